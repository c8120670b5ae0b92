/* SPDX-License-Identifier: BSD-3-Clause */
/* A store on a disk in memory, and a plain model of what it must hold. */
#ifndef UNITTEST_LVOL_WORLD_H
#define UNITTEST_LVOL_WORLD_H

#include "unittest/lvol/disk.h"

enum {
	WORLD_CLUSTER = 65536,
	WORLD_SECTORS = WORLD_CLUSTER / DISK_SECTOR,
	WORLD_VOLUMES = 10,
	WORLD_CLUSTERS = 12, /* of a volume, at most */
};

struct model_volume {
	bool there, thin, read_only;
	char name[16];
	uint64_t clusters, reserved;
	int parent;                                       /* -1: none */
	uint64_t sectors[WORLD_CLUSTERS * WORLD_SECTORS]; /* what each 8 bytes of it have; 0: nothing was written */
};

struct model {
	char name[16];
	struct model_volume volumes[WORLD_VOLUMES];
	uint64_t tag;      /* the last one written */
	uint8_t threshold; /* of space, the only one of the store; 0: the default ones */
};

struct world {
	struct disk disk;
	struct lvol_live *store;
	struct model model;
	uint32_t random;
};

/* What `done` got. */
struct outcome {
	bool done;
	int status;
	struct lvol_live_volume *volume;
	struct lvol_live *store;
	struct lvol_error error;
};
void outcome_done(void *arg, int status);
void outcome_volume(void *arg, int status, struct lvol_live_volume *v);

void outcome_opened(void *arg, int status, struct lvol_live *s, const struct lvol_error *e);

/* A disk of so many clusters with a new store "s". */
void world_create(struct world *w, uint32_t clusters);
/* Opens the store. Returns the status. */
int world_open(struct world *w, struct lvol_error *e);
/* Makes a damaged superblock from its copy, as an operator who is sure that nothing else has the disk. Returns the
 * status. */
int world_rescue(struct world *w, struct lvol_error *e);
/* Closes it and looks at it with the checker: no problems, and closed. */
void world_close(struct world *w);
/* As if power had failed now: nothing is written. */
void world_forget(struct world *w);
void world_free(struct world *w);
/* Runs the disk until it is done. Returns its status. */
int world_wait(struct world *w, struct outcome *o);

struct lvol_live_volume *world_volume(const struct world *w, int i);

/* Operations on the store and on the model, if the store has done them. Return their status. */
int world_volume_create(struct world *w, int i, uint64_t clusters, bool thin);
int world_create_reserved(struct world *w, int i, uint64_t clusters, bool thin, uint64_t reserved);
int world_delete(struct world *w, int i);
int world_snapshot(struct world *w, int i, int snapshot);
int world_clone(struct world *w, int i, int clone);
int world_rename(struct world *w, int i, const char *name);
int world_resize(struct world *w, int i, uint64_t clusters);
int world_read_only(struct world *w, int i);
int world_inflate(struct world *w, int i, bool all);
/* Reserves clusters. */
int world_reserve(struct world *w, int i, uint64_t clusters);
/* Of the store; 0: the default ones. */
int world_threshold(struct world *w, uint8_t percent);
/* Writes sectors, as a module would, and flushes. */
int world_write(struct world *w, int i, uint64_t sector, uint64_t count);
/* Unmaps clusters: they read as zeroes. */
int world_unmap(struct world *w, int i, uint64_t cluster, uint64_t count);

/* One that `random` chooses; most of them succeed. */
int world_random_op(struct world *w);

/* Writes sectors with a tag (0: zeroes). Returns the status. */
int world_put(struct world *w, struct lvol_live_volume *v, uint64_t sector, uint64_t count, uint64_t tag);
/* The 8 bytes that all of a sector of a volume is made of; UINT64_MAX - 1 if it is not uniform. */
uint64_t world_get(const struct world *w, const struct lvol_live_volume *v, uint64_t sector);

/* Whether the store has what the model has. Where `next` is not NULL, sectors may have what that one has, each by
 * itself. Returns NULL or what differs. */
const char *world_differs(const struct world *w, const struct model *m, const struct model *next);
/* The checker finds nothing in what is on the disk. */
void world_check(const struct world *w, bool closed);
/* It finds one problem, whose text has these words; NULL: none. */
void world_expect_problem(const struct world *w, const char *words);
/* Clusters and pages of the store are those of volumes, or free. */
void world_count(const struct world *w);

#endif

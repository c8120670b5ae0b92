/* SPDX-License-Identifier: BSD-3-Clause */
/* A device in memory for the engine: it records what is written and flushed, completes at once or later in any order,
 * fails what it is told to, and shows what power leaves when it fails at any point of the record. */
#ifndef UNITTEST_LVOL_DISK_H
#define UNITTEST_LVOL_DISK_H

#include "lvol/live.h"
#include "lvol/owner.h"

enum { DISK_SECTOR = 512 };

struct disk_log {
	uint64_t offset;
	size_t bytes; /* 0: a flush */
	uint8_t *data;
	size_t upto; /* of a flush: how many entries were complete when it began */
};

struct disk_op;

struct disk {
	uint8_t *bytes, *before; /* now; when the record began, all of it durable */
	uint64_t size;
	struct disk_log *log;
	size_t num_log, room_log;
	bool late;             /* operations complete in disk_run() */
	struct disk_op *waits; /* that are under way */
	uint32_t random;
	long fail_in;         /* so many operations later one fails; negative: none */
	int fail_status;      /* what the failing one answers */
	bool fail_on;         /* all later ones fail, too */
	unsigned long ops;    /* so far */
	uint64_t bytes_read;  /* so far */
	unsigned long paused; /* volumes that are paused now */
	bool no_external;
	struct lvol_owner owner; /* who opens stores on it; pid 0: this process */
	/* See struct lvol_live_user. */
	int (*may_open)(void *ctx, const char *name, const char *uuid, struct lvol_error *e);
	void (*external_changes)(void *ctx, struct lvol_live_volume *v, const char *external); /* the same */
	void (*happened)(void *ctx, const struct lvol_live_event *e);                          /* the same */
	void (*space_changed)(void *ctx);                                                      /* the same */
};

void disk_init(struct disk *d, uint64_t size);
void disk_free(struct disk *d);
/* Begins a record: what is there is durable. */
void disk_record(struct disk *d);
/* Completes one operation. Returns whether there was one. */
bool disk_run_one(struct disk *d);
/* Completes all, and those that follow. */
void disk_run(struct disk *d);
struct lvol_live_user disk_user(struct disk *d);
/* What an external snapshot has at an offset: each 8 bytes. */
uint64_t disk_external(uint64_t offset);

/* What is there when power failed after `entries` of the record: writes before the last flush, and those sectors of
 * later ones that `seed` chooses. seed 0: none of them; 1: all. */
void disk_crash(const struct disk *d, size_t entries, uint32_t seed, struct disk *to);

uint32_t disk_random(uint32_t *state);

#endif

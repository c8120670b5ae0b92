/* SPDX-License-Identifier: BSD-3-Clause */
/* What is in a volume store, read from its metadata. Changes nothing. One thread at a time. */
#ifndef VARVE_LVOL_STORE_H
#define VARVE_LVOL_STORE_H

#include "lvol/decode.h"

enum { LVOL_NAME_MAX = 64, LVOL_UUID_TEXT = 37 };

/* Where the store is. */
struct lvol_device {
	uint64_t size_bytes;
	/* Reads all of it. Returns 0 or a negative errno. */
	int (*read)(void *ctx, uint64_t offset, void *to, size_t bytes);
	/* For repairs, else NULL. Write all of it; make what was written before durable. Return 0 or a negative errno.
	 */
	int (*write)(void *ctx, uint64_t offset, const void *from, size_t bytes);
	int (*flush)(void *ctx);
	void *ctx;
};

/* Neighbouring clusters of a volume that are neighbours in the store, too. */
struct lvol_run {
	uint64_t first;   /* in the volume */
	uint32_t cluster; /* in the store */
	uint32_t count;
};

struct lvol_volume {
	uint64_t id;
	struct lvol_desc_flags flags;
	char name[LVOL_NAME_MAX + 1];
	char uuid[LVOL_UUID_TEXT]; /* "" if it has none */
	uint64_t num_clusters;     /* its size */
	uint64_t num_allocated;    /* clusters of its own */
	uint64_t num_tables;       /* metadata pages with the places of clusters; 0 in the older form */
	uint64_t reserved;         /* clusters of its own that it is sure of: lvol/reserve.h. What it says */
	struct lvol_run *runs;     /* in rising order of `first` */
	size_t num_runs, room_runs;
	uint64_t parent_id;         /* of the snapshot that it is a clone of, or LVOL_ID_NONE */
	struct lvol_volume *parent; /* NULL: none, or it is not there */
	char *external;             /* the bdev that it is a clone of, or NULL */
	bool clones;                /* it has some */
	size_t walk;                /* while its ancestors are looked for */
	bool going;                 /* its deletion, or that of a snapshot, was under way */
	bool damaged;               /* a problem says why; what was understood of it is here */
	bool reserved_bad;          /* its reservation makes no sense, and counts as none */
};

struct lvol_store {
	struct lvol_device device;
	struct lvol_geometry geometry;
	struct lvol_super *super; /* as it counts: not torn, and if it is damaged, as its copy has it */
	char name[LVOL_NAME_MAX + 1], uuid[LVOL_UUID_TEXT];
	bool named;                  /* the volume that names it was read */
	bool super_copied;           /* that volume has a copy of the superblock: lvol/rescue.h */
	struct lvol_volume *volumes; /* in rising order of `id`, without the one that names the store */
	size_t num_volumes;
	/* Of a store that was open for writing: the slot of its journal that counts, or NULL. */
	struct lvol_journal_head *journal;
	/* While it is read, and for check: */
	uint8_t *page_mask, *cluster_mask, *id_mask; /* as they are on the device; NULL unless it was closed */
	uint8_t *pages_owned, *clusters_owned;       /* as the volumes have it */
	uint32_t clusters_shared; /* how many clusters check has found twice, until it had too many problems */
	char **problems;
	size_t num_problems; /* how many there are; LVOL_PROBLEMS_MAX of them are kept */
	uint64_t steps;      /* of the search for ancestors: for tests */
};

enum { LVOL_PROBLEMS_MAX = 1000 };

/* Reads the metadata of a store: of one that was closed the pages in use, else all that the journal says may be in use.
 * A damaged volume is a problem (lvol_store_problem()), and no error. Returns 0, -EILSEQ (there is no store, or its
 * superblock is damaged and has no copy), -ENOMEM, or the device's error; e says which. */
int lvol_store_read(const struct lvol_device *d, struct lvol_store **s, struct lvol_error *e);

/* Looks for what contradicts itself: clusters that two volumes have, masks that do not fit, clones without their
 * snapshot. Adds problems. Returns 0 or -ENOMEM. Once a store. */
int lvol_store_check(struct lvol_store *s);

/* Removes a damaged volume: its root page becomes zeroes. What only it had is free after lvol_store_close_write() of
 * the store as it is read then. Returns 0, -EBUSY (it is not damaged, or is the snapshot of a volume that is not), or
 * the device's error. */
int lvol_volume_drop(struct lvol_store *s, const struct lvol_volume *v);

/* Makes the masks of a store anew, from what its volumes have, and marks it as closed, so that whoever opens it next
 * need not read all of its metadata. Power may fail at any time: the store is then as it was before, or not closed.
 * After lvol_store_check(). Returns 0, -EILSEQ (a volume is damaged, an operation was under way, or two volumes have
 * one cluster: what belongs to whom is not certain; e says which), -ENOMEM, or the device's error. */
int lvol_store_close_write(struct lvol_store *s, struct lvol_error *e);

/* Frees it, with its volumes. The device stays as it is. */
void lvol_store_free(struct lvol_store *s);

/* By its name, "STORE/NAME", or its UUID; NULL if there is none. */
const struct lvol_volume *lvol_store_find(const struct lvol_store *s, const char *name);

/* The cluster of the store that has cluster n of a volume, in the volume itself: 0 if it has none of its own. */
uint32_t lvol_volume_cluster(const struct lvol_volume *v, uint64_t n);

/* Reads a part of what hosts see of a volume, through its snapshots; what nobody has written is zeroes. offset and
 * bytes lie within it and within one cluster. Returns 0, -ENXIO (it lies in a bdev outside of the store), -EILSEQ (the
 * volume or a snapshot is damaged), or the device's error. */
int lvol_volume_data(const struct lvol_store *s, const struct lvol_volume *v, uint64_t offset, void *to, size_t bytes);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Volume stores on bdevs, and their volumes as bdevs. The store itself, its format and its changes are the room lvol/;
 * this module finds stores on new bdevs, opens and closes them, and carries out I/O by the volumes' maps.
 *
 * The bdev of a volume has the volume's UUID as its name, and STORE/NAME as an alias. Control thread. */
#ifndef BDEV_LVOL_BDEV_LVOL_H
#define BDEV_LVOL_BDEV_LVOL_H

#include "bdev/bdev.h"
#include "lvol/live.h"

struct bdev_lvol_store;

/* The end of an operation. rc: 0, or a negative errno, and error says why. uuid: of the store or volume that was made;
 * otherwise "". */
typedef void (*bdev_lvol_cb)(void *arg, int rc, const char *error, const char *uuid);

/* What becomes of data that is given up, and of the device when a store is made. */
enum bdev_lvol_clear {
	BDEV_LVOL_CLEAR_DEFAULT,
	BDEV_LVOL_CLEAR_NONE,
	BDEV_LVOL_CLEAR_UNMAP,
	BDEV_LVOL_CLEAR_WRITE_ZEROES,
};

struct bdev_lvol_store_opts {
	const char *bdev_name, *name;
	uint32_t cluster_bytes; /* 0: 4 MiB */
	uint32_t md_ratio;      /* metadata pages per 100 clusters; 0: 100 */
	enum bdev_lvol_clear clear;
	const struct lvol_space *space; /* thresholds; NULL: the usual ones */
};
/* Makes a store on a bdev, and claims that. -EINVAL: also for a volume, on which no store is looked for. */
void bdev_lvol_store_create(const struct bdev_lvol_store_opts *opts, bdev_lvol_cb cb, void *arg);
/* Deletes a store with all its volumes: when all users of these have closed them. */
void bdev_lvol_store_delete(struct bdev_lvol_store *s, bdev_lvol_cb cb, void *arg);
/* Renames it, and the aliases of its volumes. -EEXIST: another store has the name. -EBUSY: it is being renamed. */
void bdev_lvol_store_rename(struct bdev_lvol_store *s, const char *name, bdev_lvol_cb cb, void *arg);
/* Uses what was added to its bdev. */
void bdev_lvol_store_grow(struct bdev_lvol_store *s, lvol_live_done done, void *arg);
/* The store of that UUID or name, of which exactly one is given, if it is open. NULL, and *rc: -EINVAL: both or neither
 * are given; -ENODEV; the reason is in error (BDEV_ERROR_MAX bytes). */
struct bdev_lvol_store *bdev_lvol_store_find(const char *uuid, const char *name, int *rc, char *error);
/* The open stores, one by one: NULL for the first; NULL: no more. */
struct bdev_lvol_store *bdev_lvol_store_next(const struct bdev_lvol_store *after);
/* Gives a store other thresholds (lvol/space.h), which it keeps; NULL: the usual ones. */
void bdev_lvol_store_set_space(struct bdev_lvol_store *s, const struct lvol_space *space, lvol_live_done done,
			       void *arg);
/* Its thresholds. Returns the highest one that it has reached and not left; 0: none; LVOL_SPACE_FULL: it is full. */
uint8_t bdev_lvol_store_space(const struct bdev_lvol_store *s, struct lvol_space *space);

enum bdev_lvol_space_kind {
	BDEV_LVOL_SPACE_LOW,      /* a threshold was reached: the highest of them, if it was several at once */
	BDEV_LVOL_SPACE_OUT,      /* all clusters are in use or reserved */
	BDEV_LVOL_SPACE_REGAINED, /* a threshold was left: the lowest of them */
};
struct bdev_lvol_space_news {
	enum bdev_lvol_space_kind kind;
	uint8_t percent; /* the threshold; LVOL_SPACE_FULL: that of a full store */
};
/* reason: for people. */
typedef void (*bdev_lvol_space_fn)(const char *store, const struct bdev_lvol_space_news *news, const char *reason);
/* fn is called when a store reaches or leaves a threshold, also when it is opened, and when its thresholds change. */
void bdev_lvol_observe_space(bdev_lvol_space_fn fn);

/* The name of the bdev that it is on. Valid as long as the store. */
const char *bdev_lvol_store_base(const struct bdev_lvol_store *s);
/* The store itself, whose volumes and figures others may read. */
struct lvol_live *bdev_lvol_store_live(const struct bdev_lvol_store *s);

/* What a volume that can be used stands on: bases[0] is the bdev of its store, bases[1] the bdev outside of the store
 * that it reads. NULL: there is none. */
void bdev_lvol_get_bases(const struct bdev *b, const struct bdev *bases[2]);

struct bdev_lvol_opts {
	struct bdev_lvol_store *store;
	const char *name;
	uint64_t size_bytes; /* rounded up to clusters */
	bool thin;
	uint64_t reserved_bytes; /* see BDEV_LVOL_RESERVE */
};
/* Makes a volume. */
void bdev_lvol_create(const struct bdev_lvol_opts *opts, bdev_lvol_cb cb, void *arg);

/* Makes a volume that has the data of a bdev outside of the store, which nobody may write to as long as that is so. It
 * is stored by its UUID, or by its name if it has a random UUID. -EINVAL: it is a volume of the store, its blocks do
 * not fit, or its reads leave buffers as they are. */
void bdev_lvol_clone_bdev(struct bdev_lvol_store *s, const char *bdev_name, const char *name, bdev_lvol_cb cb,
			  void *arg);

/* What can be done to a volume, by its bdev's name: the UUID, or STORE/NAME. */
enum bdev_lvol_change {
	BDEV_LVOL_DELETE, /* when all its users have closed it. -EBUSY: lvol_live_volume_delete() */
	BDEV_LVOL_SNAPSHOT,
	BDEV_LVOL_CLONE,
	BDEV_LVOL_RENAME,
	BDEV_LVOL_RESIZE, /* -EBUSY: somebody depends on its data, and nobody may write to it */
	BDEV_LVOL_SET_READ_ONLY,
	BDEV_LVOL_INFLATE,
	BDEV_LVOL_DECOUPLE,
	BDEV_LVOL_SET_PARENT, /* -EBUSY: another change of its parent has not ended */
	BDEV_LVOL_SET_PARENT_BDEV,
	BDEV_LVOL_RESERVE, /* lvol_live_volume_reserve() */
};
struct bdev_lvol_change_opts {
	enum bdev_lvol_change change;
	const char *name;     /* of the volume */
	const char *new_name; /* SNAPSHOT, CLONE, RENAME: without the store's name. SET_PARENT: the snapshot's.
			       * SET_PARENT_BDEV: the bdev's */
	uint64_t size_bytes;  /* RESIZE, RESERVE: rounded up to clusters */
};
/* Changes a volume. -ENODEV: there is no such volume, or it is being removed; otherwise the errors of lvol/live.h. */
void bdev_lvol_change(const struct bdev_lvol_change_opts *opts, bdev_lvol_cb cb, void *arg);

/* Begins to copy the clusters that a read-only volume itself has to their places on another bdev, which is claimed
 * meanwhile. 0 and *id; or a negative errno and the reason in error (BDEV_ERROR_MAX bytes): -ENODEV, -EPERM (the volume
 * may be written, or the bdev is claimed), -EROFS, -EINVAL (the bdev is too small, or its blocks do not fit), -EBUSY
 * (32 are under way). */
int bdev_lvol_shallow_copy_start(const char *name, const char *to, uint32_t *id, char *error);

struct bdev_lvol_shallow_copy {
	bool has_ended;
	int error; /* why it ended before it was complete; -ENODEV: the volume or the bdev was removed */
	uint64_t copied_clusters, total_clusters;
};
/* How far it has come. The last ones that have ended are known, too. False: there is none of that number. */
bool bdev_lvol_shallow_copy_get(uint32_t id, struct bdev_lvol_shallow_copy *copy);

#endif

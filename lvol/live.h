/* SPDX-License-Identifier: BSD-3-Clause */
/* A volume store that is open for writing (the format of lvol/spec.h).
 *
 * Threads. A store belongs to one thread, its owner: the one that opened or created it. All functions run on the owner,
 * and call back on the owner, except those that say "any thread". Nothing blocks. A `done` of the store may be called
 * before the function that was given it returns, and so may a `done` that the store gives to the user.
 *
 * Data. A volume has a complete map in memory, with one 32-bit entry per cluster, so reads and writes need the store
 * only for the first write to a cluster. Any thread reads an entry (lvol_live_entry()) and does I/O on the device by
 * itself:
 *
 *   read:   lvol_live_cluster(entry) != 0: there, whoever's it is. 0 and n < v->external_clusters: in the external
 *           snapshot (that of v or of the nearest ancestor with one; zeroes behind its end). Else: zeroes. Reads go on
 *           while the parent changes: so the external snapshot counts only if n < v->external_clusters before and
 *           after the reader has looked which one it is, and a 0 only if the entry, read again after that, still is 0.
 *
 *   write:  refused by the user if v->read_only. The entry is LVOL_LIVE_OWN without LVOL_LIVE_BUSY: there. Else it is
 *           a first write:
 *
 *           1. any thread: lvol_live_fill_claim(). -EAGAIN: post to the owner, lvol_live_wait(), then look at the
 *              entry again. -EALREADY: look again. -ENOSPC: the store is full, or what is free is reserved for others,
 *              and nothing that was given up is about to come free (Capacity Exceeded).
 *           2. any thread: make fill->cluster whole: what is written, and around it what the volume read so far:
 *              fill->source, the external snapshot (fill->external), or zeroes. All of it: the cluster holds
 *              another volume's old data.
 *           3. post to the owner: lvol_live_fill_commit(); its done says that the entry is published. It flushes the
 *              device first, so a crash never leaves a map with a cluster that was not made whole. Fills that are
 *              committed while a commit is under way are committed together. If 2 failed, post
 *              lvol_live_fill_abort() in its place.
 *
 *   unmap:  of whole clusters: lvol_live_release(). Of less: the user writes zeroes or does nothing.
 *
 * Grace periods and pauses. The user provides both (struct lvol_live_user). A cluster that a volume gave up is used
 * again only after a grace period: after all I/O of all channels that had begun has ended. Pausing a volume stops its
 * first and other writes, not its reads.
 *
 * Crashes. Each change of metadata is atomic, and durable when its done is called with 0. While a store is open its
 * superblock has version LVOL_VERSION_OPEN, which other programs refuse; a clean close sets LVOL_VERSION_CLOSED again.
 * After a write or flush of metadata has failed, the store changes nothing more: all changes end with -EIO, data can be
 * read and overwritten, and the store can be opened again as after a crash. Clusters that were being given up just then
 * can only be read: nobody knows whether the next open finds them. */
#ifndef VARVE_LVOL_LIVE_H
#define VARVE_LVOL_LIVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lvol/space.h"
#include "lvol/store.h"

/* status: 0 or a negative errno. */
typedef void (*lvol_live_done)(void *arg, int status);

struct lvol_live;        /* a store */
struct lvol_live_volume; /* below */

/* What happens in a store, for whoever watches it. */
enum lvol_live_event_kind {
	LVOL_LIVE_JOURNAL,      /* a batch of metadata is complete, and is being written */
	LVOL_LIVE_COMMITTED,    /* it is durable; or, with a status, it is not */
	LVOL_LIVE_FAILED,       /* the store changes nothing more */
	LVOL_LIVE_CHANGE_WAITS, /* a change waits for writes of its volume that are under way */
	LVOL_LIVE_CHANGE_ENDED,
};
struct lvol_live_event {
	enum lvol_live_event_kind kind;
	int status;          /* COMMITTED, CHANGE_ENDED: 0 or a negative errno */
	uint64_t generation; /* JOURNAL, COMMITTED: of the batch; the next one has the same if this one failed before
				its journal */
	uint32_t pages;      /* JOURNAL: that go through the journal */
	const char *change;  /* its kind, such as "snapshot"; "": first writes and releases */
	const char *volume;  /* of CHANGE_*: its name; "": it is a change of the store */
};

/* Where the store is, and what its user does for it. All are called on the owner and may call done at once or later.
 * Offsets and lengths in bytes, multiples of block_bytes, or of 4096 for metadata. Buffers are ordinary memory, aligned
 * to 4096. They belong to the user until done. */
struct lvol_live_user {
	void *ctx;
	uint64_t size_bytes;
	uint32_t block_bytes; /* a power of two, at most 4096 */
	void (*read)(void *ctx, uint64_t offset, void *to, size_t bytes, lvol_live_done done, void *arg);
	void (*write)(void *ctx, uint64_t offset, const void *from, size_t bytes, lvol_live_done done, void *arg);
	/* Makes durable all writes that had ended, those of all threads. If the device has no volatile cache it may
	 * just call done. */
	void (*flush)(void *ctx, lvol_live_done done, void *arg);
	/* After it they read as zeroes. */
	void (*write_zeroes)(void *ctx, uint64_t offset, uint64_t bytes, lvol_live_done done, void *arg);
	/* Tells the device that nobody needs them; its status does not matter. May be NULL. */
	void (*unmap)(void *ctx, uint64_t offset, uint64_t bytes, lvol_live_done done, void *arg);
	/* A grace period: done when all I/O that any channel of any volume began before the call has ended. done's
	 * status is 0. */
	void (*synchronize)(void *ctx, lvol_live_done done, void *arg);
	/* Holds back new writes (and unmaps, and claims) of a volume on all channels; done when those that had begun
	 * have ended, with their fills. Reads go on. done's status is 0. Not called twice without a resume. Not called
	 * for a volume whose `user` is NULL: nobody uses it. */
	void (*pause)(void *ctx, struct lvol_live_volume *v, lvol_live_done done, void *arg);
	/* The end of a pause. Also called for a volume that got its user only while the change was under way (see
	 * lvol_live_volume_is_paused()). Not called if v->user is NULL by then. */
	void (*resume)(void *ctx, struct lvol_live_volume *v);
	/* Reads from the external snapshot of v, for inflating; zeroes behind its end. May be NULL: then such an
	 * inflation fails with -ENOTSUP. */
	void (*external_read)(void *ctx, struct lvol_live_volume *v, uint64_t offset, void *to, size_t bytes,
			      lvol_live_done done, void *arg);
	/* The parent of v is being changed: its external snapshot is that one (NULL: none) from now on, for all that
	 * looks for it after this call. v may get clusters that the user still reads in the old one. NULL: nobody reads
	 * while a parent changes. Not called if v->user is NULL. */
	void (*external_changes)(void *ctx, struct lvol_live_volume *v, const char *external);
	/* The number of clusters in use, or of all, is another one: see lvol_live_info(). Also called while the store
	 * is being opened. May be NULL. */
	void (*space_changed)(void *ctx);
	/* Something happens. e is valid during the call, which calls no function of the store. May be NULL. */
	void (*happened)(void *ctx, const struct lvol_live_event *e);
	/* Whether a store with that name and UUID may be opened, before anything is written to it: 0, or a negative
	 * errno, which is the status of the open; e may say why. NULL: each may. */
	int (*may_open)(void *ctx, const char *name, const char *uuid, struct lvol_error *e);
	/* Who opens it. NULL: this process (lvol_owner_self()). It is there until the open is done. */
	const struct lvol_owner *owner;
};

/* ---- Maps: any thread ---- */

/* An entry of a map: a cluster of the store (0: none), and these flags. */
#define LVOL_LIVE_OWN     (1u << 31) /* the volume's own cluster. Else it is a snapshot's, or 0 */
#define LVOL_LIVE_BUSY    (1u << 30) /* a first write or a release is under way: reads use the cluster, writes wait */
#define LVOL_LIVE_CLUSTER (LVOL_LIVE_BUSY - 1)

struct lvol_live_map {
	uint64_t num_clusters;
	_Atomic uint32_t entries[];
};

/* A volume. The owner may read all members; other threads only `map` (by the functions below) and external_clusters,
 * cluster_bytes and `user`, which change only while the volume is paused. */
struct lvol_live_volume {
	struct lvol_live *store;
	void *user;                          /* the user's. Set while I/O may come */
	_Atomic(struct lvol_live_map *) map; /* replaced by a resize; the old one lives through a grace period */
	uint32_t cluster_bytes;
	/* The first ones; where these have no cluster, an external snapshot has the data. Read after the entry. */
	_Atomic uint64_t external_clusters;
	uint64_t id;
	char name[LVOL_NAME_MAX + 1], uuid[LVOL_UUID_TEXT];
	bool thin;
	bool read_only;                  /* snapshots are */
	uint64_t num_clusters;           /* its size */
	uint64_t num_own;                /* clusters of its own */
	uint64_t reserved;               /* so many clusters of its own it is sure of; 0: of none */
	struct lvol_live_volume *parent; /* its snapshot, or NULL */
	uint32_t num_clones;             /* volumes whose parent it is. More than 0: it is a snapshot */
	char *external;                  /* the name of the external snapshot that is its parent, or NULL */
	/* It, or the nearest ancestor that has an external snapshot; or NULL. */
	struct lvol_live_volume *external_at;
	struct lvol_live_internal *internal; /* the store's */
};

/* The entry of cluster n (n < num_clusters of the map). Any thread, between two of its grace periods. */
static inline uint32_t lvol_live_entry(const struct lvol_live_volume *v, uint64_t n)
{
	/* Pairs with the publication of a cluster, and of a map, by the owner. */
	const struct lvol_live_map *map = atomic_load_explicit(&v->map, memory_order_acquire);

	return n < map->num_clusters ? atomic_load_explicit(&map->entries[n], memory_order_acquire) : 0;
}

/* Its cluster in the store, at cluster * cluster_bytes of the device; 0 if there is none. */
static inline uint32_t lvol_live_cluster(uint32_t entry)
{
	return entry & LVOL_LIVE_CLUSTER;
}

/* Whether writes go straight to its cluster. */
static inline bool lvol_live_is_writable(uint32_t entry)
{
	return (entry & (LVOL_LIVE_OWN | LVOL_LIVE_BUSY)) == LVOL_LIVE_OWN;
}

/* ---- Stores ---- */

struct lvol_live_create_opts {
	const char *name;               /* 1 to LVOL_NAME_MAX - 1 characters */
	const char *uuid;               /* text */
	uint32_t cluster_bytes;         /* a power of two, 65536 to 1 GiB; 0: 4 MiB */
	uint32_t md_ratio;              /* metadata pages per 100 clusters; 0: 100 */
	const struct lvol_space *space; /* its thresholds; NULL: the default ones */
};

typedef void (*lvol_live_open_done)(void *arg, int status, struct lvol_live *s, const struct lvol_error *e);

/* Opens a store; after a crash it reads what is used, and repairs. The volumes' maps are then complete. status:
 * -EILSEQ (there is none, or it is too damaged to be changed: see e), -EBUSY (another machine has it open, or a process
 * of this one that lives, or this process on another device; nothing was written), -ENOSPC (no free metadata pages for
 * the journal), -ENOMEM, what may_open answered, or the device's error; s is NULL then. user is copied. */
void lvol_live_open(const struct lvol_live_user *user, lvol_live_open_done done, void *arg);

/* Makes a store, and opens it. What was on the device is lost (its superblock first). -EINVAL: e says what is wrong. */
void lvol_live_create(const struct lvol_live_user *user, const struct lvol_live_create_opts *opts,
		      lvol_live_open_done done, void *arg);

/* Closes it after the changes that are under way; new ones end with -ESHUTDOWN. No volume has a user, and no I/O is
 * under way. Frees it, whatever status says: with 0 the store was marked as closed. */
void lvol_live_close(struct lvol_live *s, lvol_live_done done, void *arg);

/* Frees it without writing, as a crash would: the device is gone. Changes that are under way end with -ENODEV, device
 * operations that are under way must have ended or end later: the memory is freed after the last of them. */
void lvol_live_abandon(struct lvol_live *s);

/* Makes the superblock unreadable, and frees the store: it is lost. As lvol_live_close() otherwise. */
void lvol_live_destroy(struct lvol_live *s, lvol_live_done done, void *arg);

/* The device has size_bytes now: uses what was added, as far as the masks have room. -ENOSPC: nothing can be added. */
void lvol_live_grow(struct lvol_live *s, uint64_t size_bytes, lvol_live_done done, void *arg);

/* -EEXIST is the caller's to find among stores. */
void lvol_live_rename_store(struct lvol_live *s, const char *name, lvol_live_done done, void *arg);

/* Gives it other thresholds (lvol/space.h), which it keeps; NULL: the default ones. -EINVAL: they are none. */
void lvol_live_set_space(struct lvol_live *s, const struct lvol_space *space, lvol_live_done done, void *arg);
/* Its thresholds. Those of a store whose attribute makes no sense are the default ones; e, which may be NULL, says what
 * is wrong then, and is "" otherwise. */
struct lvol_space lvol_live_space(const struct lvol_live *s, struct lvol_error *e);

struct lvol_live_info {
	const char *name, *uuid;
	uint32_t cluster_bytes, io_unit_bytes;
	uint32_t total_data_clusters; /* without those of the metadata */
	uint32_t free_clusters;
	uint32_t coming_clusters; /* that were given up, and are free after their grace period */
	/* Of these and the free ones: what volumes with reservations may take yet, and nobody else. More than there are
	 * if another program has filled the store. */
	uint32_t reserved_clusters;
	/* So many of these are not there, since another program has filled the store. Of a store that has failed nobody
	 * knows: 0. */
	uint32_t missing_clusters;
	/* Of all: those that volumes have or have reserved. Not those of first writes under way, which may fail; nor
	 * those that come free. */
	uint32_t used_clusters;
	uint64_t max_clusters; /* that the masks have room for, with those of the metadata */
	uint32_t md_pages, free_md_pages;
	/* Of the free pages: what volumes with reservations may need yet. So many of these are not there, since another
	 * program, or a varve that kept none, has filled the store; 0 for one that has failed. */
	uint64_t reserved_md_pages, missing_md_pages;
	uint32_t num_volumes;
	bool growing;                              /* what it grows by counts as in use until it has grown */
	bool failed;                               /* a write of metadata failed: see the head of this file */
	bool recovered;                            /* it was not closed before it was opened */
	uint64_t commits, journal_bytes, md_bytes; /* written since it was opened; md_bytes: the journal's too */
	uint64_t opening_steps; /* what finding the snapshots of volumes took when it was opened: for tests */
};
/* What the store is and has. */
struct lvol_live_info lvol_live_info(const struct lvol_live *s);

/* Free clusters, any thread; for thresholds. */
uint32_t lvol_live_free_clusters(const struct lvol_live *s);

/* The volume behind v, the first one if v is NULL; NULL behind the last. In the order of their creation, or of their
 * ids after an open. */
struct lvol_live_volume *lvol_live_next(const struct lvol_live *s, const struct lvol_live_volume *v);
/* Whether a change holds v. A user that begins to use v meanwhile (sets v->user) holds back writes until resume. */
bool lvol_live_volume_is_paused(const struct lvol_live_volume *v);
/* The name of the external snapshot in which v reads what neither it nor its ancestors have; NULL if there is none. */
const char *lvol_live_external(const struct lvol_live_volume *v);
/* By the name within the store; NULL if there is none. */
struct lvol_live_volume *lvol_live_find(const struct lvol_live *s, const char *name);
/* See lvol_live_find(): by the UUID only. */
struct lvol_live_volume *lvol_live_find_uuid(const struct lvol_live *s, const char *uuid);

/* ---- Changes of volumes ----
 *
 * done is called once. Changes of one store take place one after the other, in the order of the calls; first writes and
 * releases go on between them. Errors of all: -EINVAL, -ESHUTDOWN, -EIO (the store has failed), -ENOMEM, -ENOSPC (no
 * clusters or metadata pages), the device's. After an error nothing has changed, except where said. A volume that is
 * being deleted counts as gone. */

typedef void (*lvol_live_volume_done)(void *arg, int status, struct lvol_live_volume *v);

struct lvol_live_volume_opts {
	const char *name, *uuid; /* name: 1 to LVOL_NAME_MAX - 1 characters. Both are copied */
	uint64_t num_clusters;
	bool thin;         /* else its clusters are allocated, and zeroed, before done */
	uint64_t reserved; /* see lvol_live_volume_reserve(); at most num_clusters, or -EINVAL */
	/* For a clone of an external snapshot: the name (UUID) that is stored; implies thin. */
	const char *external;
};

/* -EEXIST: the name or the UUID is in use. -EFBIG: too many clusters. */
void lvol_live_volume_create(struct lvol_live *s, const struct lvol_live_volume_opts *o, lvol_live_volume_done done,
			     void *arg);

/* Nobody uses it any more (v->user is NULL, no I/O is under way). A snapshot with one clone gives its clusters to the
 * clone, which is paused meanwhile. -EBUSY: it has several clones, or one that is longer than it and would read what is
 * behind it, or it or its clone is being inflated. -EPERM: a program of the future has forbidden changes of it or of
 * its clone. With 0, v is freed when done returns; its clusters come free in the background, after a grace period. */
void lvol_live_volume_delete(struct lvol_live_volume *v, lvol_live_done done, void *arg);

/* Whether lvol_live_volume_delete() would find v deletable now: 0, or the error that it would end with. */
int lvol_live_volume_may_delete(const struct lvol_live_volume *v);

/* Makes a snapshot of v, which becomes a clone of it. v is paused meanwhile. -EPERM: v is read-only. */
void lvol_live_volume_snapshot(struct lvol_live_volume *v, const char *name, const char *uuid,
			       lvol_live_volume_done done, void *arg);

/* Makes a clone of a read-only volume. -EPERM: it is not read-only, or only because a program of the future says so. */
void lvol_live_volume_clone(struct lvol_live_volume *v, const char *name, const char *uuid, lvol_live_volume_done done,
			    void *arg);

/* -EEXIST. With the same name: 0. */
void lvol_live_volume_rename(struct lvol_live_volume *v, const char *name, lvol_live_done done, void *arg);

/* Paused meanwhile. When it shrinks, nobody reads behind the new end any more: the user's part is to lower the size
 * first and to raise it after done. -EPERM: read-only. */
void lvol_live_volume_resize(struct lvol_live_volume *v, uint64_t num_clusters, lvol_live_done done, void *arg);

/* Paused meanwhile. */
void lvol_live_volume_set_read_only(struct lvol_live_volume *v, lvol_live_done done, void *arg);

/* Reserves clusters, in place of what it has reserved before; 0: none. It is sure of so many clusters of its own: those
 * that it has, and free ones that no other volume gets. So its first writes find a cluster until it has so many. After
 * a snapshot its clusters are the snapshot's, and it is sure of as many others: a snapshot of it is refused (-ENOSPC)
 * where there are not enough free ones. Snapshots and clones of it have no reservation, and it has none when it is
 * read-only. A volume that is made smaller than that reserves all of its size. -ENOSPC: so many are not free, or other
 * volumes have reserved them. -EINVAL: more than its size. -EPERM: read-only. */
void lvol_live_volume_reserve(struct lvol_live_volume *v, uint64_t clusters, lvol_live_done done, void *arg);

/* The most that v (NULL: a new thin volume) could reserve now, whatever its size is, in clusters. */
uint64_t lvol_live_reservable(const struct lvol_live *s, const struct lvol_live_volume *v);

/* Gives the volume a cluster of its own everywhere (inflate), or where its parent has one (decouple), while I/O goes
 * on; at the end it has no parent (decouple: that of its parent) and is thick (inflate). It begins after the changes
 * that were asked for before; those of this volume that are asked for later, while it lasts, end with -EBUSY if they
 * touch its clusters. -EPERM: read-only. -EINVAL: decouple without a parent. -EBUSY: it is being inflated. After an
 * error it may have more clusters of its own. */
void lvol_live_volume_inflate(struct lvol_live_volume *v, lvol_live_done done, void *arg);
/* See lvol_live_volume_inflate(). */
void lvol_live_volume_decouple(struct lvol_live_volume *v, lvol_live_done done, void *arg);

/* Makes snapshot its parent in place of the one it has, or of its external snapshot. Paused meanwhile. The caller
 * promises that both have the same data. -EPERM: the snapshot is not read-only, or v is. -EINVAL: their sizes differ,
 * it would be its own parent, or v is thick. -EEXIST: it is already. */
void lvol_live_volume_set_parent(struct lvol_live_volume *v, struct lvol_live_volume *snapshot, lvol_live_done done,
				 void *arg);
/* The same with an external snapshot. */
void lvol_live_volume_set_parent_external(struct lvol_live_volume *v, const char *external, lvol_live_done done,
					  void *arg);

/* Sets (value NULL: removes) an extended attribute that is neither "name", "uuid" nor that of its reservation. -ENOSPC:
 * too long for a page. -ENOENT: there is none to remove. */
void lvol_live_volume_xattr_set(struct lvol_live_volume *v, const char *name, const void *value, uint16_t bytes,
				lvol_live_done done, void *arg);
/* Its value, of *bytes bytes, which is the store's until the next change; NULL if there is none. */
const void *lvol_live_volume_xattr(const struct lvol_live_volume *v, const char *name, uint16_t *bytes);

/* ---- First writes and releases ---- */

struct lvol_live_fill {
	/* lvol_live_fill_claim() sets these: */
	struct lvol_live_volume *volume;
	uint64_t n;       /* in the volume */
	uint32_t cluster; /* in the store: to be made whole */
	uint32_t source;  /* a snapshot's cluster with what the volume reads there; 0: none */
	bool external;    /* what it reads is in the external snapshot. Else, without a source, zeroes */
	/* The store's: */
	lvol_live_done done;
	void *arg;
	struct lvol_live_fill *next;
};

/* Claims the first write to cluster n. The fill is the caller's until the done of its commit, or
 * lvol_live_fill_abort(). Any thread. Returns 0, -EAGAIN (another first write or a release of it is under way, or no
 * cluster is free for it, but some that were given up are in their grace period, or another claim may give one back),
 * -EALREADY (it is the volume's own now), -ENOSPC, -EPERM (read-only), -EIO (the store has failed), -ESHUTDOWN (it is
 * closing), -EINVAL (n). */
int lvol_live_fill_claim(struct lvol_live_volume *v, uint64_t n, struct lvol_live_fill *fill);

/* The cluster is whole: makes it the volume's. After an error it is not, and those who wait look again. */
void lvol_live_fill_commit(struct lvol_live_fill *fill, lvol_live_done done, void *arg);

/* The cluster was not made whole: gives it back. */
void lvol_live_fill_abort(struct lvol_live_fill *fill);

struct lvol_live_waiter {
	void (*wake)(struct lvol_live_waiter *w); /* w is the caller's again */
	/* The store's: */
	struct lvol_live_volume *volume;
	uint64_t n;
	struct lvol_live_waiter *next;
};

/* Wakes w on the owner when cluster n is not busy any more, and when a first write to it finds a free cluster or none
 * is to come; at once if all this is so. Its wake is set. The I/O that waits must not be one that a grace period waits
 * for.
 */
void lvol_live_wait(struct lvol_live_volume *v, uint64_t n, struct lvol_live_waiter *w);

/* Gives up clusters: afterwards they read as zeroes. Of [first, first + count) those that are the volume's own, not
 * busy, and behind which there is neither a snapshot's cluster nor an external snapshot; the others stay as they are,
 * and *kept counts them when it is not NULL (those without any data are not counted): these the caller has to overwrite
 * with zeroes. A volume that is not thin keeps all. Writes that began before end as they like. done: it is durable. */
void lvol_live_release(struct lvol_live_volume *v, uint64_t first, uint64_t count, uint64_t *kept, lvol_live_done done,
		       void *arg);

#endif

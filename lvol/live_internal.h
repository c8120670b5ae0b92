/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of the engine, and what they have in common. All of it runs on the store's owner, except where said.
 *
 *   live.c         the pump, the life of a store, what it tells
 *   live_open.c    opening a store
 *   live_owner.c   whose it is
 *   live_image.c   reading its metadata
 *   live_close.c   closing, growing, losing a store
 *   live_script.c  superblock, masks and journal, as sequences of writes
 *   live_create.c  making one
 *   live_space.c   free clusters and metadata pages, grace periods
 *   live_reserve.c reservations: who may take a free cluster
 *   live_pages.c   reservations: who may take a free metadata page
 *   live_meta.c    the metadata of one volume, and its pages
 *   live_commit.c  batches: what becomes durable at once, through the journal
 *   live_fill.c    first writes and releases
 *   live_change.c  the queue of changes
 *   live_volume.c  changes that make and remove volumes
 *   live_edit.c    changes of a volume
 *   live_inflate.c inflating and decoupling */
#ifndef VARVE_LVOL_LIVE_INTERNAL_H
#define VARVE_LVOL_LIVE_INTERNAL_H

#include <sys/queue.h>

#include "lvol/internal.h"
#include "lvol/live.h"
#include "lvol/owner.h"
#include "lvol/reserve.h"

/* An extended attribute of a volume. */
struct live_xattr {
	uint8_t type; /* LVOL_DESC_XATTR or LVOL_DESC_XATTR_INTERNAL */
	uint16_t name_length, value_length;
	char *name;     /* with a 0 behind it */
	uint8_t *value; /* behind the name */
};

/* What the pages of a volume say. */
struct live_meta {
	struct lvol_desc_flags flags;
	struct live_xattr *xattrs;
	size_t num_xattrs;
	uint64_t num_clusters;
	uint32_t *tables; /* per 512 clusters the metadata page with their places, 0: they have none */
	uint32_t *chain;  /* the pages behind the root page */
	size_t num_chain;
	bool rle; /* the clusters are in the chain, as an older program wrote them */
};

struct lvol_live_internal {
	struct lvol_live_volume *next, *prev;
	struct live_meta meta;
	/* Any thread. Its reservation without its own clusters, and without those of first writes under way: what it is
	 * promised, if that is more than 0. See live_reserve.c. */
	_Atomic int64_t balance;
	bool fixed;    /* its md_ro flags forbid changes */
	bool filling;  /* it is being inflated or decoupled */
	unsigned jobs; /* that it has under way: it cannot be deleted */
};

/* ---- The store ---- */

struct live_batch;
struct live_change;

enum { LIVE_WAITER_LISTS = 64, LVOL_EXTERNAL_MAX = 254 };

/* Of a volume: its map takes 1 GiB then. */
#define LVOL_LIVE_CLUSTERS_MAX (1u << 28)

/* A part of a volume that is being released, 512 clusters in a batch. */
struct live_release {
	struct lvol_live_volume *volume;
	uint64_t at, end;
	uint64_t until; /* what the batch under way has */
	lvol_live_done done;
	void *arg;
	uint64_t *kept, kept_before, kept_now; /* see lvol_live_release() */
	STAILQ_ENTRY(live_release) link;
};

/* Clusters, and memory, that a grace period sets free. */
struct live_freed {
	uint32_t *clusters;
	size_t num_clusters, room_clusters;
	void **memory;
	size_t num_memory, room_memory;
};

/* How a store is closed. */
struct live_last {
	bool destroy, started;
	lvol_live_done done; /* NULL: it is not to be closed */
	void *arg;
};

enum live_grace { LIVE_GRACE_IDLE, LIVE_GRACE_WAITS, LIVE_GRACE_OVER, LIVE_GRACE_UNMAPS, LIVE_GRACE_UNMAPPED };

struct lvol_live {
	struct lvol_live_user user;
	struct lvol_geometry geometry;
	struct lvol_super *super;
	struct lvol_owner owner; /* live_owner.c */
	SLIST_ENTRY(lvol_live) owned;
	char name[LVOL_NAME_MAX + 1], uuid[LVOL_UUID_TEXT];
	struct live_meta names; /* the volume that names the store */
	struct lvol_live_volume *first, *last;
	uint32_t num_volumes;

	/* live_space.c. The clusters are for any thread. */
	_Atomic uint64_t *cluster_words;
	_Atomic uint64_t space;  /* how many are free, and how many of these are promised to volumes */
	_Atomic uint64_t claims; /* that are under way, and how many have ended: live_reserve.c */
	_Atomic uint32_t cluster_hint;
	_Atomic uint32_t coming_clusters; /* that volumes gave up, and that are not free yet */
	/* The owner's: of each volume what it has or has reserved, whichever is more; what new thick volumes and growth
	 * have taken already. First writes count when they are committed. */
	uint64_t volume_clusters, zeroed_clusters;
	struct lvol_live_waiter *space_waiters, **space_waiters_end;
	uint64_t told_used; /* what the user knows of */
	uint32_t told_clusters;
	uint8_t *pages; /* metadata pages in use, the journal's too */
	uint32_t free_pages, page_hint;
	uint32_t used_below;     /* no page from here on was in use since the store was opened, but for the journal's */
	uint64_t promised_pages; /* live_pages.c */
	struct live_freed freed, in_grace;
	enum live_grace grace;
	size_t unmap_at;

	/* live_commit.c */
	struct lvol_journal_head *slot; /* a slot of the journal, in memory */
	uint64_t generation;
	struct live_batch *batch;
	bool change_last; /* the last batch was a change */

	/* live_fill.c */
	struct lvol_live_fill *fills, **fills_end; /* that are to be committed */
	STAILQ_HEAD(, live_release) releases;
	struct lvol_live_waiter *waiters[LIVE_WAITER_LISTS];
	unsigned single_parts; /* so many batches have one part: one of many could not be built */

	/* live_change.c */
	TAILQ_HEAD(, live_change) changes;
	TAILQ_HEAD(, live_job) jobs;

	_Atomic bool failed, closing;
	bool abandoned, recovered;
	bool pumping, growing;
	struct live_last ending;
	uint64_t commits, journal_bytes, md_bytes, opening_steps;
};

/* Goes on with all that can go on. Called at the end of each function and callback that may have changed what can.
 * The store may be freed when it returns. */
void live_pump(struct lvol_live *s);

/* One step of a close, once nothing is under way. */
void live_last_step(struct lvol_live *s);

/* 0, or why nothing can be changed. */
int live_state(const struct lvol_live *s);

/* Nothing changes the store any more. */
void live_fail(struct lvol_live *s);

/* Tells whoever watches. */
static inline void live_happened(const struct lvol_live *s, const struct lvol_live_event *e)
{
	if (s->user.happened != NULL) {
		s->user.happened(s->user.ctx, e);
	}
}

/* Whether nothing is under way. */
bool live_is_idle(const struct lvol_live *s);

void live_free(struct lvol_live *s);

/* ---- Whose it is ---- */

/* Whether a store that says so may be opened: 0, or -EBUSY and why. */
int live_owner_check(const struct lvol_live_user *user, const struct lvol_owner *found, struct lvol_error *e);
/* The store is the user's from now on, until live_owner_leave(). */
void live_owner_enter(struct lvol_live *s);
void live_owner_leave(struct lvol_live *s);

static inline uint64_t live_md_offset(const struct lvol_live *s, uint32_t page)
{
	return ((uint64_t)s->geometry.md.first + page) * LVOL_PAGE_BYTES;
}

/* Memory for I/O: zeroed, aligned to a page. free(). NULL: no memory. */
void *live_pages_alloc(size_t pages);

/* What goes on beside the queue of changes, step by step. */
struct live_job {
	void (*step)(struct live_job *j);
	bool waits; /* for a callback, which ends in live_job_go_on() */
	struct lvol_live *store;
	TAILQ_ENTRY(live_job) link;
};

void live_job_start(struct live_job *j, struct lvol_live *s, void (*step)(struct live_job *j));
/* Within its step: it is over. */
void live_job_end(struct live_job *j);
void live_job_go_on(struct live_job *j);

/* ---- Scripts: writes and flushes one after the other ---- */

struct live_script;

/* NULL: no memory. */
struct live_script *live_script_new(const struct lvol_live_user *user);
/* Adds a write of pages of `bytes`, which become the script's (NULL: no memory, an error of the script); of zeroes; a
 * flush. */
void live_script_write(struct live_script *c, uint64_t page, void *bytes, size_t pages);
void live_script_zeroes(struct live_script *c, uint64_t page, uint64_t pages);
void live_script_flush(struct live_script *c);
/* Whether all was added: else its run ends with -ENOMEM, and writes nothing. */
bool live_script_is_whole(const struct live_script *c);
/* Runs it, and frees it. done gets the first error, which ends it. c may be NULL: -ENOMEM. */
void live_script_run(struct live_script *c, lvol_live_done done, void *arg);

/* ---- Superblock, masks, journal ---- */

/* What the superblock and the heads of the journal say while the store is open. */
struct lvol_super_open live_super_open(const struct lvol_live *s);
/* Adds a write of the superblock as that of a store that is open, or closed, and a flush. */
void live_super_script(struct live_script *c, struct lvol_live *s, bool open);
/* Adds writes that begin the journal: slots without pages, newer than what they have now. */
void live_journal_begin_script(struct live_script *c, struct lvol_live *s);
/* Adds writes that end the journal. */
void live_journal_script(struct live_script *c, const struct lvol_live *s);
/* Adds a write of a mask. */
void live_mask_script(struct live_script *c, struct lvol_area area, enum lvol_mask_type type, const uint8_t *bits,
		      uint32_t num_bits);
/* Adds writes of the masks as they are to be when it is closed. */
void live_masks_script(struct live_script *c, const struct lvol_live *s);
/* Finds a place for the journal, as large as there is room. Returns 0 or -ENOSPC. */
int live_journal_place(struct lvol_live *s);
/* An empty store with a superblock's geometry. NULL: no memory. */
struct lvol_live *live_alloc(const struct lvol_live_user *user, const struct lvol_geometry *g,
			     const struct lvol_super *super);
/* Queues a change that writes the metadata of a volume in today's form. */
void live_volume_convert(struct lvol_live_volume *v, lvol_live_done done, void *arg);
/* Writes the copy of the superblock (lvol/rescue.h) if it is not there as it must be. done(0) too if there can be none.
 */
void live_super_copy(struct lvol_live *s, lvol_live_done done, void *arg);

/* ---- Space ---- */

int live_space_init(struct lvol_live *s);
/* Any thread. Takes a free cluster, for a first write to v, or for no volume (NULL) that has been promised one. Returns
 * 0 if there is none for it: cluster 0 is the superblock's. Else live_account_settle() is to follow. */
uint32_t live_cluster_take(struct lvol_live *s, struct lvol_live_volume *v);
/* Any thread. So many clusters come free without anybody's doing: who finds none may wait (live_space_wait()). If it
 * says 0, some may have come free just before. */
uint32_t live_space_coming(const struct lvol_live *s);
/* Clusters that are given up; they are to be added to `freed`. Before anybody is told that they are. */
void live_space_comes(struct lvol_live *s, size_t clusters);
/* Wakes w when clusters have come free, or none are to come. v: as live_cluster_take(). */
void live_space_wait(struct lvol_live *s, const struct lvol_live_volume *v, struct lvol_live_waiter *w);
/* Any thread. Of a cluster whose I/O has ended. */
void live_cluster_give(struct lvol_live *s, uint32_t cluster);
/* The same, of a cluster that was taken for a first write to v, which is not committed. */
void live_cluster_return(struct lvol_live_volume *v, uint32_t cluster);
/* When a store is read. Returns whether it was free. */
bool live_cluster_mark(struct lvol_live *s, uint32_t cluster);
bool live_cluster_is_used(const struct lvol_live *s, uint32_t cluster);
bool live_page_take(struct lvol_live *s, uint32_t *page);
void live_page_give(struct lvol_live *s, uint32_t page);
/* Room for so many more, so that adding cannot fail. */
int live_freed_reserve(struct live_freed *f, size_t clusters, size_t memory);
void live_freed_cluster(struct live_freed *f, uint32_t cluster);
void live_freed_memory(struct live_freed *f, void *memory);
/* What volumes have and have reserved. */
uint64_t live_space_used(const struct lvol_live *s);
/* Tells the user of another number of clusters. Returns whether it did. */
bool live_space_tell(struct lvol_live *s);
/* One step of a grace period. Returns whether there was one. */
bool live_grace_step(struct lvol_live *s);

/* ---- Reservations (live_reserve.c) ---- */

/* The halves of lvol_live.space. */
#define LIVE_SPACE_FREE     UINT64_C(1)
#define LIVE_SPACE_PROMISED (UINT64_C(1) << 32)

static inline uint32_t live_space_free(uint64_t space)
{
	return (uint32_t)space;
}
static inline uint32_t live_space_promised(uint64_t space)
{
	return (uint32_t)(space >> 32);
}

/* Any thread. Counts a free cluster as taken for v (NULL: for none); others wait for live_account_settle() before they
 * say that there is none. False: there is none for it. */
bool live_account_take(struct lvol_live *s, struct lvol_live_volume *v);
/* Any thread. What live_account_take() took has its place, or was returned. */
void live_account_settle(struct lvol_live *s);
/* Any thread. Whether nobody took, returned or promised clusters, and nobody is about to, since `since`: what
 * live_account_look() said before the caller looked for a cluster and found none. */
uint64_t live_account_look(const struct lvol_live *s);
bool live_account_was_still(const struct lvol_live *s, uint64_t since);
/* Any thread. One that was taken for v is free again. */
void live_account_return(struct lvol_live_volume *v);
/* Any thread. Whether v (NULL: nobody) would get one. */
bool live_account_can_take(const struct lvol_live *s, const struct lvol_live_volume *v);
/* Any thread. Whether v would, when `coming` more are free. */
bool live_account_may_come(const struct lvol_live *s, const struct lvol_live_volume *v, uint32_t coming);
/* Promises a change what v (NULL: a new volume) needs when it has `own` clusters and that reservation: the change may
 * fail later, and gives it back at its end. 0 or -ENOSPC. */
int live_account_hold(struct live_change *c, const struct lvol_live_volume *v, uint64_t own, uint64_t reserved);
void live_account_release(struct live_change *c);
/* v has so many clusters and that reservation from now on. What it needs is what c (which may be NULL) has been
 * promised, and what it gives up. */
void live_account_set(struct lvol_live_volume *v, uint64_t own, uint64_t reserved, struct live_change *c);
/* A first write to v has been committed. */
void live_account_filled(struct lvol_live_volume *v);
/* The same as live_account_set() when a store is read, whatever it says. */
void live_account_open(struct lvol_live_volume *v, uint64_t own, uint64_t reserved);
/* The attribute; 0: none. 0 or -ENOMEM. */
int live_xattr_reserve_set(struct live_meta *m, uint64_t clusters);
/* What counts of the attribute: 0 if it makes no sense, or if the volume cannot be written. */
uint64_t live_xattr_reserve_get(const struct live_meta *m);

/* ---- Metadata pages of reservations (live_pages.c) ---- */

/* How many more pages a volume with this metadata may need, if it has a reservation; else 0. */
uint64_t live_meta_promise(const struct live_meta *m);
/* A batch that has been built: whether it leaves the pages that volumes are promised. 0 or -ENOSPC. */
int live_pages_check(const struct live_batch *b);
/* So many pages were free when the batch began that nobody was promised. */
uint64_t live_pages_left(const struct live_batch *b);
/* Whether no batch of first writes can give a volume without a reservation one more page of places. own: so many it has
 * of this batch already; chain: the pages behind its root page when it has one more. */
bool live_pages_lack(const struct live_batch *b, const struct live_meta *m, uint64_t own, uint64_t chain);
/* It is committed. */
void live_pages_publish(struct live_batch *b);
/* So many pages volumes are promised that are not there, because another program, or a varve that kept none, has
 * filled the store. */
uint64_t live_pages_missing(const struct lvol_live *s);
/* So many pages the journal may choose among. */
uint32_t live_pages_open(const struct lvol_live *s);

/* ---- Metadata of a volume ---- */

static inline uint64_t live_tables(uint64_t num_clusters)
{
	return lvol_tables(num_clusters);
}

void live_meta_clear(struct live_meta *m);
/* A copy without its chain. 0 or -ENOMEM; then `to` is cleared. num_clusters: of the copy; tables behind the original's
 * are 0. */
int live_meta_copy(struct live_meta *to, const struct live_meta *from, uint64_t num_clusters);
/* Sets an attribute (value NULL: removes it). 0 or -ENOMEM. */
int live_xattr_set(struct live_meta *m, uint8_t type, const char *name, const void *value, uint16_t bytes);
const struct live_xattr *live_xattr_find(const struct live_meta *m, uint8_t type, const char *name);
/* Sets a name as other programs write that of a volume: with zeroes up to LVOL_NAME_MAX. */
int live_xattr_name_set(struct live_meta *m, const char *name);
/* Reads it from its pages, which lvol_store_read() has found to be right. Returns 0 or a negative errno. */
int live_meta_read(const struct lvol_store *from, uint64_t id, struct live_meta *m);
/* How many pages live_batch_meta() needs behind the root page: now, and when each of its tables is there. */
uint64_t live_meta_chain_now(const struct live_meta *m);
uint64_t live_meta_chain_most(const struct live_meta *m);

/* ---- Batches ---- */

struct live_buffer {
	uint32_t page;
	uint8_t *bytes;
};

enum live_phase { LIVE_DIRECT, LIVE_FLUSH, LIVE_JOURNAL, LIVE_COMMIT, LIVE_IN_PLACE, LIVE_IN_PLACE_DONE };

struct live_touch; /* live_fill.c */

/* What becomes durable at once. */
struct live_batch {
	struct lvol_live *store;
	enum live_phase phase;
	unsigned pending; /* device operations under way */
	int status;
	/* Pages that were free: they are written to their places, before the commit. */
	struct live_buffer *direct;
	size_t num_direct, room_direct;
	/* All other pages go through s->slot. Of these, the ones that were free: */
	uint32_t taken[2];
	size_t num_taken;
	uint32_t num_fresh; /* of both, until it is committed */
	int64_t promised;   /* so many more pages volumes are promised when it is committed */
	uint32_t *gone;     /* metadata pages that are free when it is committed */
	size_t num_gone, room_gone;
	struct live_freed freed;
	/* What it is for: */
	struct live_change *change;
	struct lvol_live_fill *fills, **fills_end;
	struct lvol_live_fill *refused; /* there is no metadata page for them: they are no part of it */
	bool alone;                     /* its only fill might take pages that others are promised */
	uint64_t unpromised;            /* so many pages it takes at most that nobody is promised */
	STAILQ_HEAD(, live_release) releases;
	struct live_touch *touched;
	size_t num_touched, room_touched;
};

/* A page that was free; `page` is to be remembered. NULL: *rc says why. */
struct lvol_md_page *live_batch_new(struct live_batch *b, uint32_t *page, int *rc);
/* A page that goes through the journal: its contents, zeroed. NULL: *rc says why (-E2BIG: the batch is full). */
struct lvol_md_page *live_batch_page(struct live_batch *b, uint32_t page, int *rc);
/* A free page for the root page of a new volume, which goes through the journal. 0 or -ENOSPC. */
int live_batch_root(struct live_batch *b, uint32_t *page);
uint32_t live_batch_room(const struct live_batch *b);
/* Frees a metadata page when it is committed. 0 or -ENOMEM. */
int live_batch_gone(struct live_batch *b, uint32_t page);
/* Writes the root page of a volume and the chain behind it; `m` gets the chain. old: what the volume has now (NULL: it
 * is new), whose chain is gone then. */
int live_batch_meta(struct live_batch *b, uint64_t id, struct live_meta *m, const struct live_meta *old);
/* Writes places of 512 clusters, or of those that there are, into a page. places: the clusters from `first` on. */
void live_table_fill(struct lvol_md_page *p, uint64_t id, uint64_t first, const uint32_t *places, uint32_t n);
/* The own clusters of a volume from `first` on as they are committed: 0 for the others. Up to n of them. */
uint32_t live_places(const struct lvol_live_volume *v, uint64_t first, uint32_t *places);

/* Goes on with the batch, or begins one. Returns whether something was done. */
bool live_commit_step(struct lvol_live *s);

/* ---- Fills and releases ---- */

bool live_fills_wait(const struct lvol_live *s);
/* Adds as many parts as there is room for. Returns 0, or the error of a part: the batch is to be undone. Those of
 * b->refused end by themselves; there may be no others. */
int live_fills_build(struct live_batch *b);
bool live_fills_are_none(const struct live_batch *b);
/* It is committed: publishes them. */
void live_fills_publish(struct live_batch *b);
/* Parts that end with an error. */
void live_fills_fail(struct live_batch *b, int status);
/* Fills, one behind the other, that are in no batch end with an error. */
void live_fills_refuse(struct lvol_live *s, struct lvol_live_fill *fills, int status);
/* Puts parts back into the queues. */
void live_fills_return(struct live_batch *b);
/* Of a store that has failed while a change gave up all clusters from `first` on: they are not the volume's own any
 * more, so nobody writes what the next open may forget. */
void live_clusters_disown(struct lvol_live_volume *v, uint64_t first);
/* Of a store that has failed: all that wait. Returns whether there were any. */
bool live_fills_drop(struct lvol_live *s);

/* ---- Changes ---- */

/* A kind of change. What it has made and not published is freed with it. */
struct live_change_type {
	/* Whether it can be done: 0, 1 (there is nothing to do), or an error. Sets the volume to be paused. */
	int (*check)(struct live_change *c);
	/* Adds what it writes to a batch. */
	int (*build)(struct live_change *c, struct live_batch *b);
	/* It is committed. */
	void (*publish)(struct live_change *c);
	const char *name; /* for whoever watches */
	bool of_store;    /* not of a volume */
	bool quiet;       /* the end of what it is a part of is told, not its own */
	bool of_open;     /* without it the store does not open: it may take pages that volumes are promised */
};

enum live_change_state { LIVE_CHANGE_QUEUED, LIVE_CHANGE_PAUSES, LIVE_CHANGE_READY, LIVE_CHANGE_COMMITS };

struct live_change {
	const struct live_change_type *type;
	struct lvol_live *store;
	struct lvol_live_volume *volume, *other;
	struct lvol_live_volume *paused; /* to be paused; is_paused: it is */
	bool is_paused;
	enum live_change_state state;
	int status;
	lvol_live_done done;
	lvol_live_volume_done volume_done;
	void *arg;
	/* What it is about, by kind: */
	char name[LVOL_NAME_MAX + 1], uuid[LVOL_UUID_TEXT];
	char *text;
	void *value;
	uint16_t value_bytes;
	uint64_t num_clusters;
	bool thin, all;
	struct lvol_live_volume *made; /* a new volume */
	struct live_meta metas[2];     /* what the volumes have when it is committed */
	struct lvol_live_map *map;     /* that takes the place of the volume's */
	uint32_t *clusters;            /* zeroed ones, for a thick volume */
	uint64_t num_taken;
	uint64_t reserved; /* of a new volume */
	int64_t held;      /* what it has been promised: live_account_hold() */
	struct lvol_live_volume *result, *deleted;
	TAILQ_ENTRY(live_change) link;
};

struct live_change *live_change_new(struct lvol_live *s, const struct live_change_type *type, void *arg);
/* Queues it. status != 0: it ends with that at once. */
void live_change_start(struct live_change *c, int status);
/* Takes clusters for a thick volume, zeroes them beside the queue, and starts the change. */
void live_change_zero(struct live_change *c, uint64_t num_clusters);
/* These clusters are not the change's any more. */
void live_change_taken(struct live_change *c);
/* One step of the queue. Returns whether there was one. */
bool live_change_step(struct lvol_live *s);
/* Whether its turn in a batch has come. */
struct live_change *live_change_ready(struct lvol_live *s);
/* Its batch was committed, or not. */
void live_change_end(struct live_change *c, int status);

/* ---- Volumes ---- */

/* A volume that is not in the list, whose map has nothing. NULL: no memory. */
struct lvol_live_volume *live_volume_new(struct lvol_live *s, const char *name, const char *uuid,
					 uint64_t num_clusters);
void live_volume_free(struct lvol_live_volume *v);
void live_volume_link(struct lvol_live_volume *v);
void live_volume_unlink(struct lvol_live_volume *v);
struct lvol_live_map *live_map_alloc(uint64_t num_clusters);
/* How many of its clusters may be external, by its parent. */
uint64_t live_external_clusters(const struct lvol_live_volume *v);
/* What it inherits of external data: from its parent, or its own external snapshot. */
void live_volume_inherit(struct lvol_live_volume *v);
/* Any thread, as lvol_live_entry(). */
static inline struct lvol_live_map *live_map(const struct lvol_live_volume *v)
{
	return atomic_load_explicit(&v->map, memory_order_acquire);
}
/* Whether it may have clones: others open a store only if its snapshots say that they are read-only. */
static inline bool live_is_snapshot(const struct lvol_live_volume *v)
{
	return (v->internal->meta.flags.data_ro & LVOL_DATA_RO_READ_ONLY) != 0;
}
/* What a clone of parent (NULL: of nothing) reads in cluster n. */
uint32_t live_inherited(const struct lvol_live_volume *parent, uint64_t n);

/* ---- Parts of changes ---- */

/* Whether it has 1 to max characters, all of which the next open takes. NULL has none. */
bool live_text_is_good(const char *text, size_t max);
/* Checks and copies a name. 0 or -EINVAL. */
int live_name_set(struct live_change *c, const char *name);
/* "SNAP", or none, and the flag that goes with it. */
int live_xattr_parent_set(struct live_meta *m, const struct lvol_live_volume *parent);
/* "EXTSNAP", or none. */
int live_xattr_external_set(struct live_meta *m, const char *external);
/* The volume has the metadata of a change. */
void live_meta_take(struct lvol_live_volume *v, struct live_meta *m);
/* Writes the places of n clusters from `first` on into a new page, and frees the old one; m->tables has the page, 0 if
 * there are no places. But a volume with a reservation keeps an empty page that it had: it would be promised another
 * one, and its chain twice. */
int live_table_replace(struct live_batch *b, uint64_t id, uint64_t first, const uint32_t *places, uint32_t n,
		       struct live_meta *m);

#endif

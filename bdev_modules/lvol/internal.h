/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the module share. Stores and volumes belong to the control thread; channels to their threads. */
#ifndef BDEV_LVOL_INTERNAL_H
#define BDEV_LVOL_INTERNAL_H

#include <stdatomic.h>

#include "bdev/vbdev/vbdev.h"
#include "bdev_modules/lvol/bdev_lvol.h"

/* The life of a store. */
enum store_state {
	STORE_PROBING, /* its superblock is being read */
	STORE_OPENING, /* it is being opened or created */
	STORE_OPEN,
	STORE_CLOSING, /* its volumes' bdevs are being removed */
	STORE_ENDING,  /* the engine closes or destroys it, then the base is closed */
	STORE_STATES,
};

/* Callbacks that wait for the end of a grace period. */
struct grace_waiter {
	lvol_live_done done;
	void *arg;
	STAILQ_ENTRY(grace_waiter) link;
};
STAILQ_HEAD(grace_waiters, grace_waiter);
#define GRACE_WAITERS 32u /* at a time; the engine has a handful of reasons to wait */

/* A grace period of a store. Each channel counts its I/Os in one of two counters; a period begins when all channels
 * change to the other one, and ends when the first one is 0 everywhere. */
struct grace {
	atomic_uint left; /* channels whose old I/O has not ended, and one while the control thread asks them */
	struct thread_msg msg;
	bool running;
	struct grace_waiters waiting, next, free; /* of the period that runs, and of the one behind it */
	struct grace_waiter room[GRACE_WAITERS];
};

struct bdev_lvol_store {
	enum store_state state;
	struct bdev_desc *base;
	struct vbdev_meta *meta;
	struct lvol_live *live; /* from OPEN to ENDING */
	struct io_device device;
	bool device_registered;
	struct grace grace;
	struct device_op *reserve_memory; /* device.c: operations for when there is no memory */
	STAILQ_HEAD(, device_op) reserve;
	char base_name[256], name[LVOL_NAME_MAX + 1], uuid[LVOL_UUID_TEXT];
	char new_name[LVOL_NAME_MAX + 1];                    /* it is being given that name; "": it is not */
	uint32_t base_block_bytes, block_bytes, block_shift; /* block_shift: base blocks in a block, a power of two */
	uint32_t cluster_bytes;
	struct lvol_space space;      /* its thresholds, while it is OPEN */
	struct lvol_space space_seen; /* those that space_reached is one of: others may have been set since */
	uint8_t space_reached;        /* the one that was told of: see lvol_space_reached() */
	bool space_settles;           /* it was full, and has free clusters: space_timer runs */
	struct thread_timer space_timer;
	TAILQ_HEAD(, bdev_lvol) volumes;
	bool leaving;    /* the base is being removed: close as soon as that is possible */
	bool destroys;   /* CLOSING is for its deletion */
	bool is_overdue; /* OPENING takes longer than lvol_patience.open_us */
	bool created;    /* OPENING is for a creation */
	bdev_lvol_cb cb; /* of creation or deletion, or NULL */
	void *cb_arg;
	int error; /* for cb, when the base has been closed */
	char error_text[BDEV_ERROR_MAX];
	struct lvol_live_create_opts create;
	struct thread_timer timer, open_timer; /* open_timer: OPENING, unless it is created */
	void *superblock;                      /* PROBING */
	struct vbdev_meta_op probe;
	TAILQ_ENTRY(bdev_lvol_store) link;
};

/* A thread's channel of a store: all its volumes there share the children at the base. */
struct store_channel {
	struct bdev_lvol_store *store;
	struct bdev_child_pool *pool;
	uint64_t inflight[2];
	uint8_t parity;     /* the counter of new I/Os */
	bool grace_reports; /* the grace period waits for the other counter */
};

enum { EXTERNAL_PLACES = 2, LVOL_EXTERNAL_BYTES = 256 };

/* What a volume reads of a bdev outside of the store. There are two of these while one takes the place of another. */
struct lvol_external {
	struct vbdev_bases bases;
	struct lvol_external_place {
		struct bdev_lvol *lvol;
		char name[LVOL_EXTERNAL_BYTES]; /* as it is stored */
		struct vbdev_meta *meta;        /* for inflating */
		/* Its blocks when it was opened, and those in a block of the volume, as a shift. What it grows by
		 * later is not the volume's. Set before it is active. */
		uint64_t num_blocks;
		uint32_t block_shift;
		bool is_taken;
	} place[EXTERNAL_PLACES];
	atomic_int active;                   /* the place that is read; -1: none */
	const void *change;                  /* of the parent, that has been prepared and not settled; or NULL */
	unsigned metas;                      /* that are open, or being closed */
	void (*closed)(struct bdev_lvol *l); /* it is being closed */
};

/* The bdev of a volume. */
struct bdev_lvol {
	struct bdev bdev;
	struct bdev_lvol_store *store;
	struct lvol_live_volume *v;
	uint32_t cluster_blocks;
	int cluster_shift;    /* log2 of cluster_blocks; -1: no power of two */
	uint32_t block_shift; /* the store's: each I/O needs it, and nothing else of the store */
	_Atomic bool paused;
	atomic_uint pause_left; /* channels whose writes have not ended, and one while the control thread asks them */
	struct thread_msg pause_msg;
	lvol_live_done pause_done;
	void *pause_arg;
	struct lvol_external external;
	atomic_uint refs; /* what keeps it beyond its bdev: a pause that waits, I/Os that wait for a cluster; and 1 */
	char name[LVOL_UUID_TEXT + 32], alias[2 * LVOL_NAME_MAX + 2];
	TAILQ_ENTRY(bdev_lvol) link;
};

struct lvol_channel {
	struct bdev_lvol *lvol;
	struct io_channel *io_channel;
	struct store_channel *sc;
	struct bdev_child_pool *external; /* NULL: nothing of the volume is external */
	uint64_t writes;                  /* what a pause waits for */
	bool paused, pause_reports;
	TAILQ_HEAD(, lvol_io) held; /* wait for the end of a pause, or for a cluster */
	/* io_external.c: buffers, and who waits for one. */
	unsigned bounces;
	STAILQ_HEAD(, lvol_slow) bounce_waiters;
};

/* An I/O's context. */
struct lvol_io {
	struct lvol_slow *slow; /* of one that is not just one I/O on the base; or NULL */
	uint8_t stage;          /* enum lvol_io_stage */
	uint8_t parity;
	bool in_grace, in_writes; /* counted */
	TAILQ_ENTRY(lvol_io) link;
};

extern struct bdev_module bdev_lvol_module;

/* --- store.c --- */

/* How long the examination of a bdev lasts at most. */
struct lvol_patience {
	uint64_t probe_us; /* for its superblock: a bdev that does not answer is taken for one without a store */
	uint64_t open_us;  /* for its store to be open: then nothing waits for that any more */
};
extern struct lvol_patience lvol_patience; /* tests have less */

/* Whether changes may begin. */
bool lvol_store_is_usable(const struct bdev_lvol_store *s);
/* A volume's bdev is gone: the store may be waiting for that. */
void lvol_store_check_closing(struct bdev_lvol_store *s);

/* --- device.c: what the engine asks of the module --- */

/* Fills in u for a store whose base is open. */
void lvol_device_fill_in(struct bdev_lvol_store *s, struct lvol_live_user *u);
/* Makes s->reserve. 0 or -ENOMEM. */
int lvol_device_init(struct bdev_lvol_store *s);
void lvol_grace_init(struct grace *g);
/* A channel's I/O that a grace period waits for has ended. Channel's thread. */
void lvol_grace_report(struct store_channel *sc);
/* The same for a volume's pause. */
void lvol_pause_report(struct lvol_channel *ch);

/* --- volume.c --- */

/* Makes the bdev of a volume. 0; or a negative errno and the reason in error. */
int lvol_volume_register(struct bdev_lvol_store *s, struct lvol_live_volume *v, char *error);
/* Gives back a reference; the last one frees l, and tells the store. Control thread. */
void lvol_volume_put(struct bdev_lvol *l);
/* Gives it STORE/NAME by their present names as its only alias, and has modules look at it that wait for a bdev of that
 * name. Nothing, if it is being removed. */
void lvol_volume_renew_alias(struct bdev_lvol *l);
/* Writes STORE/NAME; size: that of bdev_lvol.alias. */
void lvol_volume_alias(const char *store, const char *name, char *alias);
/* A random UUID as text. */
void lvol_volume_new_uuid(char text[BDEV_UUID_STRLEN]);
/* Whether a store or volume can have that name: 0; or -EINVAL, and the reason in error. */
int lvol_name_check(const char *name, char *error);
struct bdev_lvol *lvol_volume_of(const struct bdev *b);

/* Whether a volume has no bdev because something that it is a clone of is not there. */
bool lvol_volume_is_degraded(const struct lvol_live_volume *v);
/* A volume without a bdev, because something that it is a clone of is not there: by its UUID, or STORE/NAME. */
struct lvol_live_volume *lvol_volume_find_degraded(const char *name, struct bdev_lvol_store **store);

/* --- external.c --- */

/* Whether a bdev may be an external snapshot: 0; or a negative errno and the reason in error. */
int lvol_external_check(const struct bdev_lvol_store *s, const char *bdev_name, char *error);
/* The name by which it is stored. */
void lvol_external_name(const struct bdev *base, char name[LVOL_EXTERNAL_BYTES]);
/* Opens what a volume needs whose bdev is about to be made. 0; or a negative errno and the reason in error. */
int lvol_external_open(struct bdev_lvol *l, char *error);
/* Closes all, then calls closed. l has no channels any more. */
void lvol_external_close(struct bdev_lvol *l, void (*closed)(struct bdev_lvol *l));
/* Before the volume gets that one (NULL: none) by a change of its parent: gives it to all channels. 0; or as
 * lvol_external_open(), or -EBUSY: such a change has not ended. lvol_external_settle() follows, however the change
 * ends. */
int lvol_external_prepare(struct bdev_lvol *l, const char *name, const void *change, char *error);
/* See struct lvol_live_user: external_changes. */
void lvol_external_switch(void *ctx, struct lvol_live_volume *v, const char *name);
/* After a change: the volume reads what it has now; what it has no more is closed. If that cannot be opened, the bdev
 * of the volume goes. Nothing, while another change of its parent has been prepared: that settles all. */
void lvol_external_settle(struct bdev_lvol *l, const void *change);
/* Any thread, when a channel is made: whether it needs a pool. */
bool lvol_external_is_used(const struct bdev_lvol *l);
/* A channel's pool, which is made if there is none. NULL: no memory. Channel's thread. */
struct bdev_child_pool *lvol_external_pool(void *channel);
/* The active one, any thread: its blocks in one of the volume (as a shift), and its size in blocks of its own. False:
 * there is none. */
struct lvol_external_view {
	uint32_t place, block_shift;
	uint64_t num_blocks;
};
bool lvol_external_view(const struct bdev_lvol *l, struct lvol_external_view *view);
/* See struct lvol_live_user. */
void lvol_external_read(void *ctx, struct lvol_live_volume *v, uint64_t offset, void *to, size_t bytes,
			lvol_live_done done, void *arg);
/* A bdev has come: volumes may have waited for it. */
void lvol_external_examine(const struct bdev *b);

/* --- figures.c --- */

/* Of struct bdev_module. */
void lvol_figures(bdev_module_figure_fn fn, void *arg);

/* --- events.c: tracepoints and probes --- */

void lvol_events_store_state(const struct bdev_lvol_store *s, unsigned old, unsigned now);
/* See struct lvol_live_user; ctx: the store. */
void lvol_events_happened(void *ctx, const struct lvol_live_event *e);
/* The cluster of a first write is about to be made whole; it is, or not; it is the volume's. */
void lvol_events_copy_begins(const struct bdev_io *io, const struct bdev_lvol *l, const struct lvol_live_fill *f);
void lvol_events_copy_ended(const struct bdev_io *io, const struct bdev_lvol *l, const struct lvol_live_fill *f,
			    uint16_t status);
void lvol_events_allocated(const struct bdev_io *io, const struct bdev_lvol *l, const struct lvol_live_fill *f);

/* --- space.c --- */

/* The store has been opened: what its thresholds are, and whether it has reached one. */
void lvol_space_open(struct bdev_lvol_store *s);
/* See struct lvol_live_user; ctx: the store. */
void lvol_space_changed(void *ctx);
/* The store is not OPEN any more: nothing is told of its space. */
void lvol_space_stop(struct bdev_lvol_store *s);

/* --- shallow.c --- */

/* Forgets all copies. All bdevs are gone. */
void lvol_shallow_fini(void);

/* --- io.c --- */

extern const struct bdev_child_ops lvol_io_child_ops;
void lvol_io_submit(void *channel, struct bdev_io *io);
void lvol_io_reset_channel(struct bdev *b, void *channel);
void lvol_io_take_back(void *channel, struct bdev_io *io);
void lvol_io_describe(struct bdev_io *io, char *text, size_t size);
/* The end of an I/O that was one I/O on the base: of the pool. */
void lvol_io_child_done(struct bdev_io *child, void *parent);
/* The pause of a channel's volume has ended: what was held back goes on. */
void lvol_io_resume(struct lvol_channel *ch);
extern const size_t lvol_io_ctx_size;

#endif

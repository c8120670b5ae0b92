/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of the module.
 *
 *     layout.c	what is on the base
 *     integrity.c	how a bdev is made, waits for its base, and goes
 *     open.c		reads or makes what is on the base
 *     slots.c		checksums in memory: which regions have them, and who waits for them
 *     bitmap.c	which regions are open
 *     closer.c	closes regions
 *     flush.c		an error of a FLUSH is for all who have written
 *     learn.c	notes the checksums of regions that were open when there was a crash
 *     io.c		the I/O of users
 *     errors.c	what is found wrong
 *     figures.c	what is counted, for metrics
 *     scrub.c		reads everything
 *
 * A region has its checksums in memory in a slot. Only the control thread gives slots to regions and changes the state
 * of a slot. I/O runs on the threads of its users, and takes the lock of a slot for as long as it takes to mark units
 * as busy: a write has its units to itself, so that the checksum in memory is that of what ends up on the base. A read
 * takes no lock: if the checksums differ it is done once more with its units to itself, and only then is the data
 * wrong. An I/O that cannot go on goes to the control thread (integrity_ask()), which sends it back when it can. */
#ifndef BDEV_INTEGRITY_INTERNAL_H
#define BDEV_INTEGRITY_INTERNAL_H

#include <rte_spinlock.h>
#include <stdatomic.h>

#include "bdev/vbdev/vbdev.h"
#include "bdev_modules/integrity/integrity.h"
#include "bdev_modules/integrity/layout.h"

#define INTEGRITY_NO_REGION   UINT32_MAX
#define INTEGRITY_BUSY_WORDS  (INTEGRITY_REGION_UNITS / 64)
#define INTEGRITY_CLOSE_BATCH 256u
#define INTEGRITY_REPORTS     64u

struct integrity_bdev;

/* Tests change these. */
extern struct integrity_limits {
	uint64_t idle_us;  /* a region is closed when nobody has written to it for so long */
	uint64_t end_us;   /* the regions that are not closed in so long when the bdev goes stay open */
	uint64_t tick_us;  /* how often that is looked at */
	uint64_t retry_us; /* when the base has failed while it was opened: until that is tried again */
	bool learns;       /* regions that were found open are read */
	uint32_t slots;    /* regions whose checksums are in memory, at most; and half of them may be open, if there are
			      more regions */
} integrity_limits;

/* I/O of the module itself. The control thread. */
struct integrity_op {
	struct vbdev_meta_op op;
	struct integrity_bdev *d;
	void (*done)(struct integrity_op *o, int rc);
	struct thread_timer timer;       /* there was no memory */
	STAILQ_ENTRY(integrity_op) link; /* waits for a FLUSH */
};
STAILQ_HEAD(integrity_ops_list, integrity_op);

enum integrity_slot_state {
	SLOT_FREE,
	SLOT_LOADING, /* the checksum page is being read */
	SLOT_CLEAN,   /* as on the base */
	SLOT_OPENING, /* the bitmap is being written */
	SLOT_OPEN,    /* units may be written */
	SLOT_CLOSING,
	SLOT_STATES,
};

/* What an I/O asks for. */
enum integrity_want {
	WANT_SUMS, /* the checksums of its region */
	WANT_OPEN, /* and that the region is open */
	WANT_TURN, /* that it may FLUSH */
};

enum integrity_io_stage {
	STAGE_READ,  /* without its units to itself */
	STAGE_AGAIN, /* with them */
	STAGE_CHANGE,
	STAGE_FLUSH,
};

/* Of an I/O: the module's context. */
struct integrity_io {
	struct thread_msg msg; /* to the control thread and back */
	struct thread *thread;
	STAILQ_ENTRY(integrity_io) link; /* waits for a slot, or for units */
	struct integrity_slot *slot;     /* whose units it has; NULL: none */
	uint64_t done_units;             /* of UNMAP and WRITE_ZEROES, which go from region to region */
	uint32_t region, first, count;   /* the units of this step */
	uint16_t answer, status;         /* of the control thread, of the child */
	uint8_t want, stage, pending;
	/* While the module holds it: in the list of its channel, so that it can be ended. */
	LIST_ENTRY(integrity_io) held_link;
	struct thread_msg cancel_msg;
	struct integrity_ios *list;      /* the control thread's that it is in; NULL: none */
	struct integrity_slot *waits_at; /* for units, since; `waits`, with the slot's lock: it is in that list now */
	bool held, waits, cancelling, ended;
	bool is_writer;     /* of the units that it has */
	bool loses;         /* what they have is not known any more */
	uint32_t unchecked; /* units of a READ whose checksum was not known */
	bool is_long;       /* in its channel's list of I/Os of several regions */
	LIST_ENTRY(integrity_io) long_link;
	bool starved;   /* it has waited for a slot, or for a region to be closed: later ones wait behind it */
	bool touched;   /* the base may have carried out the step, or a part of it */
	uint32_t steps; /* begun in the present call, and before */
};
STAILQ_HEAD(integrity_ios, integrity_io);

struct integrity_slot {
	_Atomic uint32_t region; /* written by the control thread with the lock; INTEGRITY_NO_REGION: none */
	rte_spinlock_t lock;     /* held for a few dozen instructions, of what follows: */
	uint8_t state;           /* enum integrity_slot_state; written by the control thread */
	uint32_t users, writers; /* I/Os that have units of it; those of them that change them */
	bool drains;             /* it is to be closed when it has no writers */
	uint64_t busy[INTEGRITY_BUSY_WORDS];
	struct integrity_ios waiters;          /* for units, in order: none of them before one that came earlier */
	uint64_t wanted[INTEGRITY_BUSY_WORDS]; /* by the waiters */
	uint64_t lost[INTEGRITY_BUSY_WORDS];   /* unmapped, or not written: what they have is not learned */
	uint64_t written_ticks;                /* the last write */
	/* Written by who has the unit; read by all, without an order: what does not match is looked at again. */
	_Atomic uint32_t sum[INTEGRITY_REGION_UNITS];

	/* The control thread's. */
	struct thread_msg drained_msg;
	struct integrity_ios asks;         /* wait for the next change of state */
	STAILQ_ENTRY(integrity_slot) link; /* free; in a list of a bitmap page; or in a batch that is being closed */
	struct integrity_op op;
	struct integrity_bdev *d;
	struct integrity_sums_page *page; /* that is being read or written */
	bool referenced;                  /* since the hand passed */
	bool unknown;                     /* its region was found open, and has not been closed since */
	bool learned;                     /* and has been read (learn.c) */
	bool sums_fail;                   /* its checksum page could not be written the last time */
	bool stays_open;                  /* nor could it at the end */
};
STAILQ_HEAD(integrity_slots, integrity_slot);

/* A page of the bitmap in memory. The control thread. */
struct integrity_bitmap {
	struct integrity_bitmap_page page;
	struct integrity_bitmap_page copy; /* that is being written */
	struct integrity_slots now, next;  /* that wait for the write under way, and for the one after it */
	bool writing;
	bool again;               /* the last write may have failed: it is done again, to the same copy */
	bool fails;               /* it has */
	uint32_t failures_before; /* the write: of FLUSHes */
	struct integrity_op op;
	struct integrity_bdev *d;
};

enum integrity_state { INTEGRITY_OPENING, INTEGRITY_THERE, INTEGRITY_LEAVING, INTEGRITY_STATES };

struct integrity_scrubber;
struct integrity_channel;

struct integrity_bdev {
	struct bdev bdev;
	struct bdev_desc *base;
	struct vbdev_meta *meta;
	struct integrity_layout layout;
	uint32_t unit_blocks; /* of the base in a unit */
	uint32_t zero_sum;
	/* Slot of each region, plus one, doubled; and 1 if the checksums are there. 0: none. Written by the control
	 * thread, read by all. */
	_Atomic uint32_t *slot_of;
	struct integrity_slot *slots;
	uint32_t num_slots, slots_open, slots_opening, max_open, hand; /* open: also those that are being opened */
	struct integrity_slots free;
	struct integrity_ios starved; /* wait until any slot can be had, or any region closed */
	struct integrity_bitmap *bitmap;
	uint8_t *unknown; /* bits: regions that were found open, and have no slot yet */
	uint64_t regions_unknown, regions_unclean;
	uint32_t unknown_at; /* where the next one is looked for */
	/* The bitmap cannot be written, or nothing can be made durable; it is tried again. */
	_Atomic bool failed;
	uint32_t failing; /* pages of the bitmap; and the closer's FLUSH */
	bool flush_fails;
	uint32_t pages_failing; /* slots with sums_fail */
	uint16_t close_status;  /* why */
	atomic_ullong errors;
	uint64_t pages_wrong, metadata_bytes;
	rte_spinlock_t channels_lock; /* of the list, and of what channels had counted that are gone */
	LIST_HEAD(, integrity_channel) channels;
	uint64_t checked_before, unchecked_before;

	/* The closer. */
	struct thread_timer tick;
	struct integrity_slots batch;
	uint32_t batch_left;
	uint32_t drains_left; /* of it: slots that still have writers */
	uint32_t gather_at;   /* slot that is looked at first */
	struct integrity_sums_page *batch_pages;
	uint32_t failures_before; /* the checksum pages were written: of FLUSHes */
	bool hurried;
	bool closing, ending, end_failed;
	bool ended; /* what the base still answers is for nobody */
	struct integrity_op flush;

	/* FLUSHes (flush.c). */
	atomic_uint user_flushes;               /* at the base; and whether it is the module's turn */
	atomic_uint flush_failures;             /* how many have failed */
	_Atomic uint16_t flush_untold;          /* status of one of the module; 0: none, or a user was told */
	struct integrity_ios flush_waiters;     /* of users */
	struct integrity_ops_list flush_queue;  /* of the module: want one */
	struct integrity_ops_list flush_joined; /* and wait for that under way */
	struct integrity_ops_list flush_turns;  /* and want the turn before they write */
	struct integrity_op *flush_holder;      /* has it, and writes; NULL: none */
	bool flushing;                          /* it is the module's turn */
	struct integrity_op flush_op;
	struct thread_msg flush_msg;

	/* The learner. */
	struct integrity_slot *learning; /* NULL: none */
	uint32_t learn_at;               /* units of it */
	uint32_t learn_next;             /* slot that is looked at first */
	void *learn_buffer;
	struct integrity_op learn_op;

	/* Errors on their way to the control thread. */
	rte_spinlock_t reports_lock;
	struct bdev_integrity_error reports[INTEGRITY_REPORTS];
	uint32_t num_reports, reports_lost;
	struct thread_msg reports_msg;
	bool reporting;

	struct integrity_scrubber *scrubber;

	/* Opening. */
	uint8_t state; /* enum integrity_state */
	bool format, by_call, deleted, registered;
	bool is_new;   /* it has just been made */
	bool is_blank; /* nothing was ever written to the base: nothing is lost if one is made there */
	struct integrity_op open_op;
	void *buffer; /* two pages */
	uint32_t step;
	int super_errors[2];           /* of the reads of both superblocks */
	bool supers_lost[2];           /* which the medium does not have any more */
	uint32_t unreadable, rewrites; /* copies of a bitmap page that cannot be read, that are still to be written */
	bool supers_again; /* a FLUSH failed before: the superblocks that were read may be in a cache only */
	bool page_again;   /* the same of the bitmap page that has just been read */
	bdev_integrity_cb cb;
	void *cb_arg;
	bdev_delete_cb delete_cb;
	void *delete_arg;
	bool has_uuid;
	uint8_t uuid[16];
	int error;
	char error_text[BDEV_ERROR_MAX];
	char name[256], base_name[256];
	LIST_ENTRY(integrity_bdev) link;
};

extern struct bdev_module bdev_integrity_module;
extern const struct bdev_ops integrity_ops;

/* Of integrity_ops. */
void integrity_destruct(struct bdev *b);
int integrity_bases(const struct bdev *b, const struct bdev *bases[BDEV_BASES_MAX]);
void integrity_dump_info(const struct bdev *b, struct json_t *driver_specific);

/* Starts I/O of `units` units at `unit` of the base (FLUSH: of everything). done(o, rc) follows, never before this has
 * returned; a lack of memory is waited out. After integrity_closer_ended() nothing is started, and nothing follows. */
void integrity_op_start(struct integrity_bdev *d, struct integrity_op *o, enum bdev_io_type type, uint64_t unit,
			uint64_t units, void *data, void (*done)(struct integrity_op *o, int rc));

/* The status of an operation that has failed. */
static inline uint16_t integrity_op_status(const struct integrity_op *o)
{
	return o->op.status != 0 ? o->op.status : NVME_SC_INTERNAL;
}

#define INTEGRITY_STATUS_UNWRITTEN BDEV_STATUS(NVME_SCT_MEDIA, 0x87) /* Deallocated or Unwritten Logical Block */

/* Whether an operation has failed because the medium does not have the data any more: trying again does not help, and
 * nothing is lost if something is written there. Other media errors, such as Access Denied of a drive that is locked,
 * may pass. */
static inline bool integrity_op_is_unreadable(const struct integrity_op *o)
{
	uint16_t status = o->op.status & BDEV_STATUS_MASK;

	return o->op.error != 0 &&
	       (status == BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_READ_ERROR) || status == INTEGRITY_STATUS_UNWRITTEN);
}

static inline struct integrity_bdev *integrity_of(const struct bdev *b)
{
	return (struct integrity_bdev *)(uintptr_t)b;
}
static inline struct integrity_bdev *integrity_io_bdev(struct integrity_io *ctx)
{
	return integrity_of(bdev_channel_bdev(bdev_io_from_ctx(ctx)->ch));
}
/* The slot whose checksums of a region are in memory; NULL: they are not. Any thread. Another region may have the slot
 * at any time, so whoever uses it looks at its `region` again. */
static inline struct integrity_slot *integrity_slot_ready(struct integrity_bdev *d, uint32_t region)
{
	uint32_t n = atomic_load_explicit(&d->slot_of[region], memory_order_acquire);

	return n & 1 ? &d->slots[n / 2 - 1] : NULL;
}

/* Whether no checksum of these units is known. Any thread. */
static inline bool integrity_sums_are_unknown(const struct integrity_slot *s, uint32_t first, uint32_t count)
{
	uint32_t known = 0;

	for (uint32_t i = first; i < first + count; i++) {
		known |= atomic_load_explicit(&s->sum[i], memory_order_relaxed) ^ INTEGRITY_SUM_UNKNOWN;
	}
	return known == 0;
}

/* Whether its region was open at a crash, and has still to be read: were it closed, nothing would be known of it until
 * it is written. Control thread. */
static inline bool integrity_slot_is_unlearned(const struct integrity_slot *s)
{
	return s->unknown && !s->learned && integrity_limits.learns;
}

/* --- open.c --- */

/* Reads the superblock and the bitmap, or makes them. integrity_opened() follows. */
void integrity_open(struct integrity_bdev *d);
/* It has ended: with d->error. */
void integrity_opened(struct integrity_bdev *d);
/* Notes why it cannot be opened. Returns rc. */
int integrity_refuse(struct integrity_bdev *d, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* --- slots.c; control thread, but for integrity_ask() and integrity_ask_cancel() --- */

/* Makes room for slots, once d->layout is known. 0 or -ENOMEM. */
int integrity_slots_init(struct integrity_bdev *d);
/* Frees them. */
void integrity_slots_fini(struct integrity_bdev *d);
/* Changes the state, and sends back who has waited for that. */
void integrity_slot_set_state(struct integrity_slot *s, enum integrity_slot_state state);
/* The same, but who has waited gets an error. */
void integrity_slot_fail(struct integrity_slot *s, enum integrity_slot_state state, uint16_t status);
/* As integrity_slot_set_state() while the lock is held, and nobody is sent back. */
void integrity_slot_mark(struct integrity_slot *s, enum integrity_slot_state state);
/* Gives a slot to the next region that was found open, so that it is closed in its turn. False: none is left, or no
 * slot is free. */
bool integrity_slots_take_unknown(struct integrity_bdev *d);
/* Takes the slots of up to `most` open regions away that have still to be read, and that nobody uses: they stay open on
 * the base, and are as if they had not had a slot yet. Returns how many. */
uint32_t integrity_slots_forget(struct integrity_bdev *d, uint32_t most);
/* Looks again at the I/Os that wait for any slot. */
void integrity_serve_starved(struct integrity_bdev *d);
/* The same, but those that wait for a region to be closed get an error: none can be. */
void integrity_fail_starved(struct integrity_bdev *d, uint16_t status);
/* It is the turn of users: answers the FLUSHes that wait for that. */
void integrity_flushes_enter(struct integrity_bdev *d);
/* Sends an I/O to the control thread. Its integrity_io_resumed() follows on its own thread. */
void integrity_ask(struct integrity_io *ctx, enum integrity_want want);

/* Takes an I/O that has asked out of what it waits for, if it still does: it is answered with Command Abort Requested.
 * integrity_io_cancelled() follows in any case, behind integrity_io_resumed(). */
void integrity_ask_cancel(struct integrity_io *ctx);

/* --- bitmap.c --- */

/* Sets the bit of the slot's region on the base. When that is durable, an OPENING slot becomes OPEN, a CLOSING one
 * CLEAN. If it fails both become CLEAN, and who asked for an OPENING one gets the base's status. */
void integrity_bitmap_change(struct integrity_slot *s, bool open);
/* Writes the pages again whose last write has failed. */
void integrity_bitmap_again(struct integrity_bdev *d);
/* Something without which no region can be opened failed. part: that it does, of d or of a page of its bitmap. */
void integrity_fail(struct integrity_bdev *d, bool *part, const char *what, int rc);
/* And works again. */
void integrity_works(struct integrity_bdev *d, bool *part);

/* --- flush.c --- */

void integrity_flush_init(struct integrity_bdev *d);
/* A FLUSH of the module, or of an opening, has failed with that status: the next one of a user has it too. Control
 * thread, as the next three. */
void integrity_flush_lost(struct integrity_bdev *d, uint16_t status);
/* d goes: what no user has been told is kept for the next bdev of this base. */
void integrity_flush_remember(struct integrity_bdev *d);
/* d is being opened, and its layout is known: gets what was kept. */
void integrity_flush_recall(struct integrity_bdev *d);
/* At the end of the module: nothing is kept any more. */
void integrity_flush_fini(void);
/* Whether a user's FLUSH may be sent to the base now; otherwise it asks (WANT_TURN). Any thread. */
bool integrity_flush_enter(struct integrity_bdev *d);
/* One that may be sent is not. Any thread. */
void integrity_flush_leave(struct integrity_bdev *d);
/* One that was sent has ended. touched: the base may have begun it. Returns the status for the user. Any thread. */
uint16_t integrity_flush_ended(struct integrity_bdev *d, uint16_t status, bool touched);
/* Makes durable what was written. done(o, rc) follows as for integrity_op_start(). Control thread. */
void integrity_flush(struct integrity_bdev *d, struct integrity_op *o, void (*done)(struct integrity_op *o, int rc));
/* The same, for what is to be written first: done(o, 0) follows when no user's FLUSH is at the base, perhaps before
 * this returns, and none is sent there until integrity_flush(d, o, ...) has ended, or integrity_flush_turn_end(). What
 * is written in between is not void if that FLUSH succeeds. Control thread. */
void integrity_flush_turn(struct integrity_bdev *d, struct integrity_op *o,
			  void (*done)(struct integrity_op *o, int rc));
/* What was to be written could not be: gives the turn back, if o has it. Control thread. */
void integrity_flush_turn_end(struct integrity_bdev *d, const struct integrity_op *o);
/* How many FLUSHes have failed: to be noted before a write. */
static inline uint32_t integrity_flush_failures(struct integrity_bdev *d)
{
	return atomic_load(&d->flush_failures);
}
/* Whether what was written then may be lost, though integrity_flush() has succeeded: in its done(). */
static inline bool integrity_flush_is_void(struct integrity_bdev *d, uint32_t failures_before)
{
	return integrity_flush_failures(d) != failures_before;
}

/* --- closer.c --- */

/* The checksum page of a slot can be written, or need not be any more. */
void integrity_sums_work(struct integrity_slot *s);
/* Starts to close regions in the background. */
void integrity_closer_start(struct integrity_bdev *d);
/* Regions should be closed now, for others need their place. */
void integrity_closer_hurry(struct integrity_bdev *d);
/* Tells the closer if it waits for the slot's writers, and there are none any more. With the slot's lock. Any thread.
 */
void integrity_check_drained(struct integrity_slot *s);
/* The bitmap has the slot closed, or cannot: a part of the batch has ended. */
void integrity_closer_slot_ended(struct integrity_slot *s);
/* Closes all regions, or gives that up if it fails or takes long; integrity_closer_ended() follows, perhaps before this
 * returns. */
void integrity_closer_end(struct integrity_bdev *d);
/* All that could be closed is. No operation is answered any more. */
void integrity_closer_ended(struct integrity_bdev *d);

/* --- learn.c --- */

/* Goes on with the regions that were found open. */
void integrity_learn(struct integrity_bdev *d);

/* --- io.c --- */

/* An I/O comes back from the control thread. */
void integrity_io_resumed(struct thread_msg *msg);
/* integrity_ask_cancel() has been done. */
void integrity_io_cancelled(struct thread_msg *msg);
/* Some units of the slot are not busy any more: gives them to those that wait for them, in order, and moves these to
 * served, for integrity_wake(). With the slot's lock. Any thread. */
void integrity_hand_over(struct integrity_slot *s, struct integrity_ios *served);
/* Goes on with I/Os that have waited for units, and have them. Any thread. */
void integrity_wake(struct integrity_ios *ios);

/* How many units users have read that were checked, and were not. Control thread. */
void integrity_count(struct integrity_bdev *d, uint64_t *checked, uint64_t *unchecked);

/* --- figures.c --- */

/* Of the module. */
void integrity_figures(bdev_module_figure_fn fn, void *arg);
/* The bdevs that are there, one after the other. after NULL: the first; NULL: no more. Control thread. */
const struct integrity_bdev *integrity_next(const struct integrity_bdev *after);

/* --- errors.c --- */

/* Tells operators. Control thread. */
void integrity_tell(const struct integrity_bdev *d, const char *text);
/* A unit is wrong. Any thread. */
void integrity_report(struct integrity_bdev *d, uint64_t unit, uint32_t expected, uint32_t found);
/* A checksum page is wrong. Control thread. */
void integrity_report_page(struct integrity_bdev *d, uint32_t region, const char *why);

/* --- scrub.c --- */

/* The bdev goes: its last result is forgotten. No scrub runs. */
void integrity_scrub_forget(struct integrity_bdev *d);

#endif

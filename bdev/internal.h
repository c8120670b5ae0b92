/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of the bdev layer, and no others. */
#ifndef BDEV_BDEV_INTERNAL_H
#define BDEV_BDEV_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "bdev/module.h"
#include "env_dpdk/env.h"
#include "env_dpdk/iobuf.h"
#include "nvme/spec.h"
#include "thread/thread.h"
#include "trace/trace.h"
#include "usdt/usdt.h"
#include "util/compiler.h"
#include "util/log.h"

STAILQ_HEAD(bdev_io_queue, bdev_io);

/* Statuses the layer makes. */
#define STATUS_INVALID_TYPE   (NVME_SC_INVALID_OPCODE | NVME_SC_DNR)
#define STATUS_BAD_LENGTH     (NVME_SC_SGL_INVALID_DATA | NVME_SC_DNR)
#define STATUS_OUT_OF_RANGE   (NVME_SC_LBA_RANGE | NVME_SC_DNR)
#define STATUS_DENIED         (NVME_SC_OP_DENIED | NVME_SC_DNR)
#define STATUS_READ_ONLY      (NVME_SC_NS_WRITE_PROTECTED | NVME_SC_DNR)
#define STATUS_REMOVED        (NVME_SC_INVALID_NS | NVME_SC_DNR)
#define STATUS_ABORTED        (NVME_SC_ABORT_REQ)
#define STATUS_NO_RESOURCES   (NVME_SC_CMD_INTERRUPTED)
#define STATUS_OVERLAP        (BDEV_STATUS(NVME_SCT_CMD_SPECIFIC, NVME_SC_OVERLAPPING_IO_RANGE) | NVME_SC_DNR)
#define STATUS_COMPARE_FAILED (BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_COMPARE_FAILED) | NVME_SC_DNR)

/* --- io_type.c: what each type of I/O is --- */

enum {
	TRAIT_RANGE = 1,      /* has offset_blocks and num_blocks */
	TRAIT_DATA = 2,       /* has iovs that cover them */
	TRAIT_WRITES = 4,     /* changes data: needs a writing descriptor, waits for range locks */
	TRAIT_LIMITED = 8,    /* counts for rate limits */
	TRAIT_RW_LIMITS = 16, /* the module's limits on READ and WRITE hold for it */
	TRAIT_SOURCE = 32,    /* has another range, copy.src_offset_blocks */
	TRAIT_EMULATED = 64,  /* the layer does it where the module does not */
};
struct bdev_io_type_info {
	uint8_t traits;     /* TRAIT_* */
	uint8_t stat_class; /* enum bdev_stat_class */
	const char *name;   /* NULL: no type has this number */
};
extern const struct bdev_io_type_info bdev_io_type_infos[BDEV_IO_TYPES];
static inline uint8_t bdev_io_traits(unsigned type)
{
	return bdev_io_type_infos[type].traits;
}

/* bdev_io.flags */
enum {
	IO_CHILD = 1,     /* part of a split or emulated I/O: ends in bdev_split_child_done() */
	IO_RESET = 2,     /* a RESET whose module part ends in bdev_reset_module_done() */
	IO_ZCOPY = 4,     /* in flight since bdev_zcopy_get() */
	IO_ABORTED = 8,   /* split: issue no more children */
	IO_NOMEM = 16,    /* waits or has waited for the module's resources: nomem_ticks is valid */
	IO_DIF = 32,      /* what it reads is to be checked */
	IO_CHILDREN = 64, /* with a module that has made children for it (vbdev/child.c) */
	IO_EXACT = 128,   /* exact_ticks is valid, so the exact time is known at its end */
};

/* bdev_io.stage: what an I/O goes through on its way to the module, in this order. Each stage may hold the I/O back, or
 * end it. From STAGE_HANDED on the module has had it, or a child of it. */
enum {
	STAGE_FREEZE,
	STAGE_QOS,
	STAGE_LOCK,
	STAGE_DIF,
	STAGE_MODULE,
	STAGE_HANDED,    /* for the first time: bdev_io_refuse() makes it STAGE_MODULE again */
	STAGE_BEGUN,     /* the module has given it back, and may have carried out a part of it */
	STAGE_UNTOUCHED, /* it ends, or is to end, and nothing of it has been carried out: bdev_io_was_untouched() */
};

/* bdev_channel.slow: with any bit set, an I/O takes the longer way at submission or at completion. */
enum {
	SLOW_REMOVED = 1, /* the bdev is going: new I/O fails */
	SLOW_FROZEN = 2,  /* a reset is going on: new I/O waits */
	SLOW_QOS = 4,     /* there are rate limits, of the bdev or of its group */
	SLOW_LOCKED = 8,  /* some range is locked */
	SLOW_NOMEM = 16,  /* some I/O waits for the module's resources */
	SLOW_EXACT = 32,  /* a histogram is on, which has the exact time of each I/O */
	SLOW_DIF = 64,    /* blocks have metadata */
};

#define BDEV_BLOCK_SIZE_MAX 65536u
#define BDEV_ZEROES_BYTES   65536u

/* The data that all bdev channels of one thread share: the context of that thread's channel of an io_device of its own.
 */
struct bdev_thread {
	/* Completions deferred by completion frames, and the number of frames entered. */
	struct bdev_io_queue done;
	uint32_t depth;
	bool polling;
	SLIST_HEAD(, bdev_channel) plugged; /* to be unplugged before the outermost frame is left */
	SLIST_HEAD(, bdev_channel) puts;    /* to be put by the poller */
	struct poller *poller; /* runs the completions, and puts the channels, that frames have left over */
	struct thread *thread;
	struct io_channel *io_channel; /* the one that holds this */
	/* Data buffers; opened with the first channel that may need them. */
	bool has_buffers;
	struct iobuf_channel buffers;
	struct bdev_io_queue buffer_waiters[IOBUF_CLASSES]; /* split I/Os, in order */
};

/* A range lock. It belongs to the channel of the I/O that takes it, its initiator. */
struct bdev_lock {
	struct bdev_channel *ch;
	struct bdev_io *io;
	struct bdev *bdev;
	uint64_t first, last; /* blocks, inclusive */
	/* Control thread. */
	enum bdev_lock_state { LOCK_FREE, LOCK_QUEUED, LOCK_CLOSING, LOCK_HELD } state;
	atomic_uint acks_missing; /* channels that have writes in flight in the range, and one while the control thread
				     visits the channels */
	struct thread_msg msg;    /* posted once at a time; io does not end before it has arrived */
	TAILQ_ENTRY(bdev_lock) link;
	/* The channel's thread. */
	bool released;  /* it is on its way back */
	bool cancelled; /* io is not to be carried out any more, and ends with cancel_status */
	uint16_t cancel_status;
	struct thread_msg cancel_msg; /* posted once, before the lock is given back */
};
#define BDEV_LOCKS_ACTIVE      16 /* per bdev */
#define BDEV_LOCKS_PER_CHANNEL 4

/* A channel's note of a lock that is closing or held. */
struct bdev_locked {
	struct bdev_lock *lock; /* NULL: slot is free */
	uint64_t first, last;
	bool acked;
};

struct bdev_reset {
	struct bdev_channel *ch;
	struct bdev_io *io;
	struct bdev *bdev;
	uint16_t status;
	bool busy;
	uint64_t started_ticks;
	struct thread_msg msg; /* the I/O has not ended when it arrives */
	TAILQ_ENTRY(bdev_reset) link;
};

struct bdev_split_pool; /* split.c: a channel's pool */

struct bdev_channel {
	/* Used by every I/O. */
	void (*submit)(void *module_channel, struct bdev_io *io);
	struct bdev *bdev;
	struct bdev_thread *thread;
	uint32_t slow;                                    /* SLOW_* */
	uint32_t qd;                                      /* in flight, waiting ones included */
	TAILQ_HEAD(bdev_inflight_list, bdev_io) inflight; /* oldest first */
	struct bdev_histogram *histogram;
	bool plugged;
	/* Which I/Os are samples (io_is_sample()). until_sample: by type, READ and WRITE; how many are left up to the
	 * next one. sample_period: the period of time in which there was a sample last. */
	uint8_t until_sample[BDEV_IO_WRITE + 1];
	uint32_t sample_period;
	/* Statistics. */
	struct bdev_stat stat __attribute__((aligned(64)));
	/* Rare. */
	struct bdev_io_queue frozen, lock_wait, nomem;
	struct bdev_io_queue qos_wait[RATE_KINDS];
	uint64_t qos_turn_ticks[RATE_KINDS]; /* when I/O of that kind last went from there, or the first came */
	uint64_t qos_batch_ticks;            /* when as many went as may at once; 0: at the last look fewer went */
	struct bdev_io_queue locks_wait, resets_wait; /* for a free bdev_lock; for the channel's bdev_reset */
	struct bdev_split_pool *split_pool;
	uint8_t qos_turn;      /* the kind that goes first next time */
	uint8_t qos_for_group; /* bit K: the first waiting I/O of kind K waits for the group, not for the bdev's own
				  limits */
	uint8_t first_samples_left[BDEV_IO_WRITE + 1]; /* of the I/Os that are all samples */
	struct thread_timer qos_timer, nomem_timer;
	struct bdev_lock locks[BDEV_LOCKS_PER_CHANNEL];
	struct bdev_locked locked[BDEV_LOCKS_ACTIVE];
	struct bdev_reset reset;
	struct io_channel *io_channel;
	TAILQ_ENTRY(bdev_channel) link;
	SLIST_ENTRY(bdev_channel) put_link, plug_link;
	uint32_t puts;
	uint64_t number;     /* in the order in which the bdev's channels were made, from 1 */
	uint64_t stat_round; /* core->stat_rounds when bdev_get_stats() counted it; under the mutex */
	uint8_t module[] __attribute__((aligned(64)));
};
_Static_assert(offsetof(struct bdev_channel, stat) == 64, "the hot part is one cache line");
_Static_assert(sizeof(struct bdev_stat_ops) == 64, "and so are the statistics of a class");

struct bdev_alias {
	char *name;
	struct bdev *bdev;
	TAILQ_ENTRY(bdev_alias) link;
};

struct bdev_desc {
	struct bdev *bdev;
	bool write;
	bool removing; /* its user has been told that the bdev is removed */
	bool keeps_io; /* its I/O goes on while the bdev is being removed */
	bdev_event_cb event_cb;
	void *event_arg;
	enum bdev_claim_type claim_type;
	uint64_t claim_key;
	char claim_owner[64];
	TAILQ_ENTRY(bdev_desc) link;
};

struct bdev_qos;
struct bdev_qos_group;

/* The layer's own part of a bdev. It belongs to the control thread, except for the fields that the mutex guards and the
 * atomics of qos. */
struct bdev_core {
	struct bdev *bdev;
	struct io_device dev;
	enum bdev_state state;
	uint64_t state_ticks;
	TAILQ_HEAD(, bdev_alias) aliases;
	TAILQ_HEAD(, bdev_desc) descs;
	/* Taken when a channel is made or destroyed, and by the control thread; never by an I/O. Under it the control
	 * thread sets flags for new channels and chooses the existing ones to visit, so that none is left out. */
	pthread_mutex_t mutex;
	TAILQ_HEAD(, bdev_channel) channels;
	uint64_t last_channel;            /* the number of the channel made last */
	uint32_t new_channel_slow;        /* SLOW_* that channels start with */
	struct bdev_stat closed_stat;     /* of channels that are gone */
	uint64_t stat_rounds;             /* calls of bdev_get_stats() */
	struct bdev_stat *round_stat;     /* gets what channels leave that go before it asks them; or NULL */
	struct bdev_core *round_next;     /* while a thread is asked: the next bdev of which it has a channel */
	struct bdev_histogram *histogram; /* settings, and the sum of channels that are gone; NULL: off */
	struct bdev_lock *closing[BDEV_LOCKS_ACTIVE]; /* locks that new channels must know */

	TAILQ_HEAD(, bdev_lock) locks;   /* all, in order of arrival */
	TAILQ_HEAD(, bdev_reset) resets; /* the first one is running */
	struct thread_timer reset_timer;
	struct bdev_qos *qos; /* set once, freed with the bdev */
	struct bdev_qd_sampling qd;
	uint64_t qd_last_ticks;
	struct thread_timer qd_timer;
	uint64_t timeout_us;
	uint64_t timeout_last_ticks;
	struct thread_timer timeout_timer;
	void (*timeout_fn)(void *arg, struct bdev *b, const struct bdev_inflight *one);
	void *timeout_arg;
	struct thread_timer close_timer;
	void (*unregister_cb)(void *arg, int rc);
	void *unregister_arg;
	TAILQ_ENTRY(bdev_core) link;
};

/* --- bdev.c --- */
extern struct bdev_opts bdev_options;
/* bdev_fini() has begun and not ended: what is removed is not to come back. */
bool bdev_is_stopping(void);
void bdev_check_close(struct bdev *b); /* a descriptor has been closed */

/* --- channel.c --- */
void bdev_channels_init(void);
void bdev_channels_fini(void);
int bdev_core_init(struct bdev *b); /* allocates b->core */
void bdev_core_free(struct bdev *b);
/* The channel that a thread has, or NULL. Under the mutex. */
struct bdev_channel *bdev_channel_on(const struct bdev_core *core, const struct thread *t);
/* Control thread: runs fn(ch, arg) on the thread of each channel, one after the other, and waits. */
void bdev_visit_channels(struct bdev *b, void (*fn)(struct bdev_channel *ch, void *arg), void *arg);
/* Control thread: sets and clears SLOW_* bits of all channels, those to come included. */
void bdev_set_slow(struct bdev *b, uint32_t set, uint32_t clear);
void bdev_thread_kick(struct bdev_thread *t); /* has its poller run */
int bdev_thread_need_buffers(struct bdev_thread *t, const struct bdev *b);

/* --- io.c --- */
static inline void bdev_io_set_state(struct bdev_io *io, enum bdev_io_state state)
{
	io->state = (uint8_t)state;
}
/* To be called before io is handed to the module. A child's ctx is its parent. */
static inline void bdev_io_trace_dispatch(const struct bdev_io *io)
{
	TRACE(BDEV_IO_DISPATCH, io->ch->bdev->trace_owner, 0, (uintptr_t)io, io->cb_arg);
}
/* Enters a completion frame: the callbacks of I/Os that complete inside run when the outermost frame is left. */
static inline void bdev_enter(struct bdev_thread *t)
{
	t->depth++;
}
void bdev_leave(struct bdev_thread *t);
/* Continues at io->stage. */
void bdev_io_run_stages(struct bdev_io *io);
/* Hands io to the module, or starts splitting it. */
void bdev_io_dispatch(struct bdev_io *io);
/* Empties q, and continues each of its I/Os at that I/O's stage. */
void bdev_io_requeue(struct bdev_io_queue *q);
/* Removes io from q. False: it is not in q. */
bool bdev_io_queue_remove(struct bdev_io_queue *q, struct bdev_io *io);
/* Completes all of q with status. */
void bdev_io_fail_queue(struct bdev_io_queue *q, uint16_t status);
/* Whether no module has had any of io. False for children, and for a zero-copy I/O, whose data may be in place. */
static inline bool bdev_io_is_untouched(const struct bdev_io *io)
{
	return io->stage <= STAGE_MODULE && (io->flags & (IO_CHILD | IO_ZCOPY)) == 0;
}
/* It ends with an error. If no module has carried out a part of it, bdev_io_was_untouched() is true from now on. */
void bdev_io_mark_untouched(struct bdev_io *io);
/* Completes an I/O that waited in the layer; its submitter learns whether it was untouched. */
void bdev_io_end_waiting(struct bdev_io *io, uint16_t status);
void bdev_nomem_retry(struct bdev_channel *ch, uint32_t failures_allowed);
void bdev_nomem_timer(void *channel);

/* --- split.c --- */
struct bdev_split_pool *bdev_split_pool_create(struct bdev_channel *ch);
void bdev_split_pool_destroy(struct bdev_split_pool *p);
bool bdev_io_fits(const struct bdev *b, const struct bdev_io *io);
void bdev_split_start(struct bdev_io *io);
void bdev_split_child_done(struct bdev_io *child);
/* Issues no more children; inside a frame. False: all have been issued, and io goes on. */
bool bdev_split_abort(struct bdev_io *io);
/* Whether the rest of a split or emulated I/O has to be carried out too. */
bool bdev_split_must_end(const struct bdev_io *io);
/* Whether a split or emulated I/O, if it issues no more children, has changed nothing. */
bool bdev_split_is_untouched(const struct bdev_io *io);
/* Calls fn for each child of io that has not ended; inside a frame. */
void bdev_split_visit_children(struct bdev_io *io, void (*fn)(struct bdev_io *child));
int bdev_split_init(void);
void bdev_split_fini(void);
/* The second half of an emulated COMPARE_AND_WRITE, called with the lock held. */
void bdev_caw_locked(struct bdev_io *io);

/* --- dif_io.c --- */
/* Whether the iovs of an I/O of a bdev with metadata are as long as they should be. */
bool bdev_dif_length_is_good(const struct bdev *b, const struct bdev_io *io, size_t bytes);
/* The last stage: checks what is written. True: go on. False: io has ended, or is being split. */
bool bdev_dif_pass(struct bdev_io *io);
/* Types that the layer splits whatever the module can do, because it checks the blocks on their way. */
bool bdev_dif_is_ours(const struct bdev_io *io);
/* Gives blocks that were read at one place the reference tags of the place where io is about to write them. */
void bdev_dif_move(const struct bdev_io *io);
/* Checks what an I/O has read (IO_DIF), and returns its status. */
uint16_t bdev_dif_check_read(const struct bdev_io *io);
static inline bool bdev_io_is_plain(const struct bdev_io *io)
{
	return io->ch->bdev->md.size != 0 && (io->dif_flags & BDEV_DIF_PLAIN) != 0;
}
/* The module takes type of a plain I/O as it is. */
static inline bool bdev_dif_is_plain_below(const struct bdev_io *io, enum bdev_io_type type)
{
	return bdev_io_is_plain(io) && io->ch->bdev->md.plain_by_device &&
	       (type == BDEV_IO_READ || type == BDEV_IO_WRITE);
}
/* Extended blocks in a buffer become all data, one after the other, with their metadata behind num_blocks * block_size
 * bytes; and back. */
void bdev_dif_take_apart(const struct bdev *b, void *blocks, uint64_t num_blocks);
void bdev_dif_put_together(const struct bdev *b, void *blocks, uint64_t num_blocks);
/* Gives a child, which begins at the parent's block `first`, the parent's checks and the tags of that block. */
void bdev_dif_pass_on(const struct bdev_io *parent, uint64_t first, struct bdev_io *child);
/* The same for a child that goes to another offset of its bdev: the tags that the parent's blocks have are spelled out.
 */
void bdev_dif_pass_tags(const struct bdev_io *parent, uint64_t first, struct bdev_io *child);
/* A child of a plain I/O: between the parent's memory, skip bytes into iovs, and the child's extended blocks. */
void bdev_dif_insert(const struct bdev_io *child, const struct iovec *iovs, size_t skip, void *extended);
uint16_t bdev_dif_strip(const struct bdev_io *child, const struct iovec *iovs, size_t skip, const void *extended);
uint16_t bdev_dif_compare(const struct bdev_io *child, const struct iovec *iovs, size_t skip, const void *extended);

/* --- lock.c --- */
void bdev_lock_take(struct bdev_io *io);                     /* ends in bdev_caw_locked() */
void bdev_lock_release(struct bdev_io *io, uint16_t status); /* ends in bdev_io_complete() */
/* Ends an emulated COMPARE_AND_WRITE that waits for its lock, without it and without waiting for those that have the
 * blocks: soon, with status, untouched. False: it has had its lock. */
bool bdev_lock_cancel(struct bdev_io *io, uint16_t status);
bool bdev_lock_blocks(const struct bdev_channel *ch, const struct bdev_io *io);
void bdev_lock_check_acks(struct bdev_channel *ch); /* an I/O ended while SLOW_LOCKED */
void bdev_lock_inherit(struct bdev_channel *ch);    /* a new channel, under the mutex */

/* --- reset.c --- */
void bdev_reset_start(struct bdev_io *io);
void bdev_reset_module_done(struct bdev_io *io);
void bdev_reset_timer(void *core);
void bdev_abort_start(struct bdev_io *io);

/* --- qos.c --- */
/* True: go on. False: io waits, in its kind's queue. */
bool bdev_qos_pass(struct bdev_channel *ch, struct bdev_io *io);
enum rate_kind bdev_qos_kind_of(const struct bdev_io *io);
/* io is about to wait. Counts it, and tells of it. */
void bdev_qos_begin_waiting(struct bdev_io *io);
/* What waits for limits goes on: there are none any more, or the bdev goes. The time for which it has waited is counted
 * for the group, the I/O itself and its bytes are not. Inside a frame. */
void bdev_qos_end_waiting(struct bdev_channel *ch);
/* The group because of which io waits in WAIT_QOS; NULL: a limit of the bdev itself. The channel's thread. */
const struct bdev_qos_group *bdev_qos_waits_for_group(const struct bdev_io *io);
void bdev_qos_timer(void *channel);
void bdev_qos_free(struct bdev_core *core);
void bdev_qos_groups_fini(void); /* all bdevs have gone */

/* --- watch.c, histogram.c --- */
void bdev_stat_init(struct bdev_stat *s);
/* Counts in the histograms what has ended since their last samples. The channel's thread. */
void bdev_stat_settle(struct bdev_stat *s);
void bdev_stat_add(struct bdev_stat *sum, const struct bdev_stat *s);
/* The statistics of a bdev without channels are kept (kept_stat.h), and those of a new one begin with what is kept
 * under its name. Control thread. */
void bdev_stat_note(const struct bdev *b);
void bdev_stat_take(struct bdev *b);
void bdev_report_error(const struct bdev_channel *ch, const struct bdev_io *io);
void bdev_stat_error(struct bdev_stat *s, uint16_t status);
/* bdev_get_stats() in pieces of so many microseconds; 0: of one bdev each. Returns how many visits of a bdev on a
 * thread that took. */
size_t bdev_get_stats_by(struct bdev *const *list, struct bdev_stat *stats, size_t n, uint64_t piece_us);
void bdev_watch_stop(struct bdev_core *core);
struct bdev_histogram *bdev_histogram_copy(const struct bdev_histogram *h); /* settings and shape; zeroed */
void bdev_histogram_sum(struct bdev_histogram *sum, const struct bdev_histogram *h);
void bdev_histogram_tally(struct bdev_histogram *h, const struct bdev_io *io, uint64_t ticks);

#endif

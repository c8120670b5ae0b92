/* SPDX-License-Identifier: BSD-3-Clause */
/* Private to the NVMe bdev module.
 *
 *     nvme.c		options, the list of controllers, attach, detach, reset; what the driver's events lead to
 *     nvme_discovery.c what discovery services list is attached, and detached when they list it no more
 *     nvme_health.c	errors and warnings that controllers tell of
 *     nvme_hotplug.c	drives that are plugged in are attached
 *     nvme_multi.c	controllers of one name: a namespace's legs, one by each; their states of access; policies
 *     nvme_leg.c	which leg an I/O goes by, as the thread that has the channel sees it
 *     nvme_auth.c	keys for in-band authentication
 *     nvme_ns.c	a namespace's bdev
 *     nvme_md.c	metadata and protection information of its blocks
 *     nvme_path.c	queue pairs, as the control thread sees them
 *     nvme_queue.c	queue pairs, as the thread that uses one sees it: submit, poll, wait
 *     nvme_io.c	commands of bdev I/O, and what their completions mean
 *     nvme_cmd.c	commands that go by way of the control thread: admin, abort, reset; raw commands */
#ifndef BDEV_NVME_INTERNAL_H
#define BDEV_NVME_INTERNAL_H

#include <pthread.h>

#include "bdev/module.h"
#include "bdev_modules/nvme/bdev_nvme.h"

/* --- Controllers. Control thread. --- */

enum bdev_nvme_state {
	BDEV_NVME_ATTACHING, /* the first attempt to connect */
	BDEV_NVME_UP,
	BDEV_NVME_DOWN,      /* lost or reset; the driver is at it */
	BDEV_NVME_GIVEN_UP,  /* failed; a reset starts anew */
	BDEV_NVME_DETACHING, /* its bdevs and queue pairs go */
	BDEV_NVME_STATES,
};

/* Who wants to know how a reset or a detach ends. */
struct bdev_nvme_waiter {
	bdev_nvme_done_cb cb;
	void *arg;
	STAILQ_ENTRY(bdev_nvme_waiter) link;
};
STAILQ_HEAD(bdev_nvme_waiters, bdev_nvme_waiter);

struct nvme_ns_bdev;
struct nvme_path;
struct nvme_leg;

/* What goes by one name: controllers of one subsystem, and the bdevs of its namespaces. Comes with the first
 * controller, goes with the last. */
struct nvme_multi {
	char name[BDEV_NVME_NAME_MAX];
	TAILQ_HEAD(bdev_nvme_list, bdev_nvme) ctrlrs; /* in the order in which they were attached */
	TAILQ_HEAD(, nvme_ns_bdev) namespaces;        /* by ascending nsid */
	struct bdev_nvme_policy policy;               /* of bdevs to come */
};

struct bdev_nvme {
	char name[BDEV_NVME_NAME_MAX];
	struct bdev_nvme_attach opts;
	struct nvme_ctrlr *ctrlr; /* NULL: gone */
	enum bdev_nvme_state state;
	uint64_t state_ticks;
	struct nvme_multi *multi;
	bool io_fails; /* I/O is not to wait: given up, or fast_io_fail */
	bool ending;   /* detached: what its queue pairs have goes elsewhere */
	uint32_t drain_turns;
	char serial[21];          /* as it was attached */
	bool syncing, sync_again; /* nvme_ns_sync() */
	bool ctrlr_leaving;       /* nvme_ctrlr_destroy() was called */
	uint16_t crdt[3];         /* Identify; changes only while no I/O is outstanding */
	bool sizes_vendor_io; /* Identify, the same: vendor specific I/O commands say in dword 10 how much they move */
	bool has_ana;         /* likewise */
	uint8_t anatt_s;      /* likewise; never 0 */
	uint32_t resets;
	uint64_t errors_seen; /* the count of the newest entry of the Error Information log that was told of; 0: none
				 was */
	uint32_t aborts;      /* Abort commands outstanding */
	uint32_t uses;        /* what else is under way and needs this structure */
	char error[NVME_ERROR_MAX];
	struct thread_timer fast_fail_timer, drain_timer;
	TAILQ_HEAD(, nvme_leg) legs; /* of the bdevs it has a part in */
	struct io_device device;     /* its channels are paths */
	uint32_t num_paths;          /* made and not yet freed; atomic, since threads make them */
	TAILQ_HEAD(, nvme_path) paths;
	bdev_nvme_attached_cb attached;
	void *attached_arg;
	struct bdev_nvme_waiters reset_waiters, detach_waiters;
	TAILQ_ENTRY(bdev_nvme) link, multi_link;
};

extern struct bdev_nvme_options bdev_nvme_options;

/* Goes on with a detach if nothing holds it up any more; whatever held it up calls this. */
void bdev_nvme_detach_step(struct bdev_nvme *c);
/* The bdev layer stops: every controller is detached, which shuts it down. */
void bdev_nvme_stop(void);
bool bdev_nvme_is_idle(void);
/* Something is gone for which the bdev layer may wait. */
void bdev_nvme_is_idle_now(void);
bool bdev_nvme_is_stopping(void);
/* The three timeouts only make sense together. 0, or -EINVAL and an error that names them. */
int bdev_nvme_check_timeouts(int32_t loss, uint32_t delay, uint32_t fast, char *error);
/* nvme_health.c: an NVME_EVENT_LOG. */
void nvme_health_event(struct bdev_nvme *c, uint32_t aer);
/* nvme_discovery.c */
void nvme_discovery_stop_all(void);
bool nvme_discovery_is_idle(void);
/* Tells the observer. path: with BDEV_NVME_PATH_*, else NULL. why: NULL if it goes without saying. */
void bdev_nvme_tell(const struct bdev_nvme *c, enum bdev_nvme_news news, const struct nvme_trid *path, const char *why);
/* Something went wrong that a reset may put right. */
void bdev_nvme_recover(struct bdev_nvme *c, const char *why);

/* References to the keys that an attachment names, and what it offers, in the driver's options: 0, or -ENOKEY, -EINVAL
 * and error. The driver takes references of its own. */
int nvme_keys_get(const struct bdev_nvme_attach *a, struct nvme_ctrlr_opts *o, char error[BDEV_ERROR_MAX]);
void nvme_keys_put(const struct nvme_ctrlr_opts *o);

/* --- Namespaces. Control thread. --- */

/* A namespace by way of one controller. */
struct nvme_leg {
	struct bdev_nvme *c;
	struct nvme_ns_bdev *d;
	enum nvme_ana_state ana;
	bool hopeless;  /* without access, for longer than a transition may take */
	bool away;      /* its controller was, since ana was told */
	bool leaving;   /* no new I/O */
	bool preferred; /* by bdev_nvme_set_preferred_path */
	struct thread_timer anatt_timer;
	TAILQ_ENTRY(nvme_leg) link, c_link;
};
#define NVME_LEGS_MAX 16

struct nvme_io;
STAILQ_HEAD(nvme_io_list, nvme_io);
struct nvme_ns_channel;

struct nvme_ns_bdev {
	struct bdev bdev;
	struct nvme_multi *multi;
	struct bdev_nvme_attach attach; /* as its first controller was attached */
	struct bdev_nvme_policy policy;
	/* Guards what threads that make and end channels look at: the legs, and the list of channels. Never taken by
	 * I/O. */
	pthread_mutex_t mutex;
	TAILQ_HEAD(, nvme_leg) legs; /* in the order in which they came; at least one until it leaves */
	TAILQ_HEAD(, nvme_ns_channel) channels;
	struct nvme_ns ns; /* as it was registered, but for the size */
	bool leaving;
	char name[BDEV_NVME_NAME_MAX + 12];
	TAILQ_ENTRY(nvme_ns_bdev) link;
};
/* Makes the bdevs agree with the controller's namespaces. */
void nvme_ns_sync(struct bdev_nvme *c);
/* c is being detached: what only it leads to is removed, the rest does without it from now on. */
void nvme_ns_leave(struct bdev_nvme *c);

/* nvme_multi.c. Control thread. */
struct nvme_multi *nvme_multi_find(const char *name);
/* Finds or makes the one that c belongs to, and puts c into it; -ENOMEM. */
int nvme_multi_join(struct bdev_nvme *c);
void nvme_multi_part(struct bdev_nvme *c);
/* Whether a controller that has just connected may stand beside the others of its name; false and why. */
bool nvme_multi_fits(const struct bdev_nvme *c, char *why, size_t size);
/* A leg to d by c, and what it means to d's channels; NULL: out of memory, or too many. */
struct nvme_leg *nvme_leg_add(struct nvme_ns_bdev *d, struct bdev_nvme *c, const struct nvme_ns *ns);
struct nvme_leg *nvme_leg_find(const struct nvme_ns_bdev *d, const struct bdev_nvme *c);
/* How many legs of d are there to stay. */
unsigned nvme_leg_count(const struct nvme_ns_bdev *d);
void nvme_leg_set_leaving(struct nvme_leg *l, bool leaving);
/* d's channels forget it; nothing is outstanding on it. */
void nvme_leg_remove(struct nvme_leg *l);
/* d is gone, channels and all. */
void nvme_leg_free(struct nvme_leg *l);
/* Brings the legs of c up to what its ANA log says. */
void nvme_multi_ana(struct bdev_nvme *c);
/* c is not connected any more: its legs wait for it, and what they have access to is told anew. */
void nvme_multi_away(struct bdev_nvme *c);
/* Runs fn(channel, arg) on the thread of each of d's channels, and waits. */
void nvme_multi_visit(struct nvme_ns_bdev *d, void (*fn)(struct nvme_ns_channel *ch, void *arg), void *arg);

/* Its format does not change while the bdev is there. Any thread with a channel. */
static inline const struct nvme_ns *bdev_nvme_ns(const struct bdev *b)
{
	return &((const struct nvme_ns_bdev *)b)->ns;
}

/* A leg, as a channel has it. The channel's thread. */
struct nvme_leg_channel {
	struct nvme_leg *leg; /* NULL: the place is free */
	struct nvme_path *path;
	struct io_channel *path_channel;
	struct nvme_ns_channel *ch;
	enum nvme_ana_state ana;
	bool hopeless, leaving, preferred;
	bool stale;                        /* a command was told that ana is wrong; until the log has been read */
	bool dirty;                        /* something has changed that may let I/O go on */
	LIST_ENTRY(nvme_leg_channel) link; /* path->legs */
};

/* A thread's channel to a namespace. */
struct nvme_ns_channel {
	struct nvme_path *path; /* what I/O goes by; NULL: nvme_leg_pick() knows */
	uint32_t nsid;
	bool has_md;      /* blocks carry metadata: nvme_md_set() */
	bool resetting;   /* what is lost is not tried again */
	bool spread;      /* there is a choice to be made for each I/O */
	uint8_t num_legs; /* places in use, free ones among them */
	uint8_t at;       /* the leg that was chosen last */
	uint32_t turns;   /* I/Os that it gets yet */
	struct bdev_nvme_policy policy;
	struct nvme_io_list waiting; /* for a leg that can be used */
	struct thread *thread;
	struct nvme_leg_channel legs[NVME_LEGS_MAX];
	TAILQ_ENTRY(nvme_ns_channel) link;
};

/* --- I/O. --- */

enum nvme_io_place {
	NVME_IO_NOWHERE,
	NVME_IO_WAITING, /* for a queue pair, or room in it */
	NVME_IO_DELAYED, /* until due_ticks */
	NVME_IO_QUEUED,  /* with the driver */
	NVME_IO_CONTROL, /* with the control thread */
};

/* The module's part of a bdev I/O: what BDEV_NVME_IO_START names. */
struct nvme_io {
	STAILQ_ENTRY(nvme_io) link;
	struct nvme_path *path;
	union {
		struct iovec iov; /* DSM, Copy: the range */
		struct {
			uint16_t sqid, cid;
		} target;      /* ABORT */
		uint32_t cdw0; /* ABORT, ADMIN: on the way back */
	};
	union {
		struct thread_msg msg; /* NVME_IO_CONTROL */
		uint64_t due_ticks;    /* NVME_IO_DELAYED */
	};
	uint8_t place; /* enum nvme_io_place */
	uint8_t lost;  /* times it was lost with its queue pair */
	uint8_t retries;
	uint8_t parts;   /* commands of a fused pair that are outstanding */
	uint16_t status; /* of a fused pair, of an admin command */
	bool raw;        /* not of a bdev I/O: struct raw_io, nvme_cmd.c */
	bool fused : 1;
	bool wants_range : 1;
	bool repeatable : 1; /* doing it twice is doing it once */
	bool aborting : 1;   /* its submitter wants it aborted */
	struct nvme_request req __attribute__((aligned(64)));
};
_Static_assert(offsetof(struct nvme_io, req) == 64, "one cache line before the request");

/* A command's end: its last part is complete. Decides what becomes of it. */
void nvme_io_ended(struct nvme_io *n, uint16_t status, uint32_t cdw0);
/* The end of the I/O. */
void nvme_io_complete(struct nvme_io *n, uint16_t status, uint32_t cdw0);
void nvme_io_submit(void *channel, struct bdev_io *io);
/* For what is lost, and does not come again: a path error, which a host may retry. */
#define NVME_IO_PATH_ERROR NVME_ST(PATH, CTRL_PATH_ERROR)

/* What a completion means. Pure. */
enum nvme_verdict {
	NVME_VERDICT_NO_ACCESS, /* by this leg, now: nothing was done, so another one may be asked */
	NVME_VERDICT_ELSEWHERE, /* by another leg, at once */
	NVME_VERDICT_DONE,
	NVME_VERDICT_LOST,  /* with its queue pair: waits for the next one */
	NVME_VERDICT_RETRY, /* after *delay_ms */
};
struct nvme_verdict_facts {
	bool aborting, repeatable;
	bool ana;    /* the controller has states of access */
	bool others; /* there is another leg that can be used */
	uint8_t retries;
	int32_t retry_limit; /* -1: none */
	uint16_t crdt[3];    /* Identify: in 100 ms */
};
enum nvme_verdict nvme_io_verdict(uint16_t status, const struct nvme_verdict_facts *f, uint32_t *delay_ms);

/* nvme_md.c */
/* Why metadata keeps a namespace from being a bdev, or NULL. Pure. */
const char *nvme_md_unusable(const struct nvme_ns *ns, bool fabrics);
struct bdev_md nvme_md_of(const struct nvme_ns *ns, const struct bdev_nvme_attach *a);
/* The rest of a command on a namespace with metadata. */
void nvme_md_set(struct nvme_io *n, const struct bdev_io *io);
/* PRINFO and tags (NVM 5.2, and dwords 12, 14 and 15 of the commands) as io wants them; dword 12 has its other bits
 * already. Pure. */
void nvme_md_set_pi(struct nvme_sqe *cmd, const struct bdev_md *md, const struct bdev_io *io, bool act);

/* nvme_cmd.c */
void nvme_cmd_admin(struct nvme_io *n);
void nvme_cmd_abort(struct nvme_io *n, struct nvme_io *target);
void nvme_cmd_reset(struct nvme_io *n);
/* Control thread: has the controller abort a command. done(arg, aborted) may come at once. */
void nvme_cmd_send_abort(struct bdev_nvme *c, uint16_t sqid, uint16_t cid, void (*done)(void *arg, bool aborted),
			 void *arg);
/* 0 or the status that a passed-through command is refused with. fabrics: the controller cannot move more than it is
 * given. Pure. */
uint16_t nvme_cmd_check_admin(const struct nvme_sqe *cmd, uint64_t data_len, bool fabrics);
uint16_t nvme_cmd_check_io(const struct nvme_sqe *cmd, uint64_t data_len, uint64_t md_len, const struct nvme_ns *ns);
/* A vendor specific command, admin or I/O, for which we cannot know how much it moves. fabrics: the controller cannot
 * move more than it is given; otherwise it has to keep to the standard's format for such commands (has_size). Pure. */
uint16_t nvme_cmd_check_vendor(const struct nvme_sqe *cmd, uint64_t data_len, bool fabrics, bool has_size);
#define NVME_CMD_VENDOR_IO    0x80 /* opcodes from here on (NVM 3.2, Base 5) */
#define NVME_CMD_VENDOR_ADMIN 0xc0
void nvme_cmd_raw_complete(struct nvme_io *n, uint16_t status, uint32_t cdw0);

/* --- Paths: a thread's queue pair to a controller. --- */

enum nvme_path_state {
	NVME_PATH_IDLE, /* no queue pair */
	NVME_PATH_CONNECTING,
	NVME_PATH_UP,
	NVME_PATH_STOPPING,
	NVME_PATH_STATES,
};

#define NVME_PATH_RANGES 64 /* DSM and Copy commands at a time */

union nvme_path_range {
	struct nvme_dsm_range dsm;
	struct nvme_copy_range copy;
};

struct nvme_path {
	/* The using thread's. First what every I/O touches. */
	struct nvme_qpair *qpair; /* NULL: not connected */
	bool broken;              /* its queue pair takes nothing any more */
	struct nvme_io_list waiting;
	struct poller *poller;
	uint32_t outstanding; /* commands */
	bool fails;           /* without a queue pair, I/O fails */
	bool pausable;        /* its poller would keep the reactor awake: paused while nothing is outstanding */
	bool paused;
	uint8_t in_use; /* frames of ours on the stack that go on with it */
	bool closing;   /* the channel is gone; leave when in_use is 0 */
	uint64_t polls, idle_polls, completions, queued, retries;
	struct nvme_io_list delayed;
	struct thread_timer delay_timer;
	union nvme_path_range *ranges; /* DMA memory; the control thread's to make and free */
	uint8_t ranges_free[NVME_PATH_RANGES], num_ranges_free;
	LIST_HEAD(, nvme_leg_channel) legs; /* of channels that use it */
	struct nvme_request *fused;         /* the second command of a fused pair */
	struct nvme_io *fused_io;

	/* Both. */
	struct bdev_nvme *c;
	struct thread *thread;
	unsigned lcore;
	bool closed; /* atomic: stored when the thread is done with all of this, last */
	struct thread_msg join_msg, leave_msg, ana_msg;
	bool ana_asked; /* atomic: ana_msg is under way */

	/* The control thread's. */
	struct nvme_qpair *own;
	enum nvme_path_state state;
	bool left;
	bool no_queue_told;
	uint8_t refusals; /* in a row */
	struct thread_timer retry_timer;
	TAILQ_ENTRY(nvme_path) link;
};

/* nvme_path.c */
int nvme_path_create(struct io_device *dev, void *channel);   /* on its thread */
void nvme_path_destroy(struct io_device *dev, void *channel); /* on its thread */
struct nvme_path *nvme_path_of(struct io_channel *ch);
void nvme_path_post_leave(struct nvme_path *p); /* its thread, when it is done with it */
/* Control thread: takes every path of c towards what c's state wants. */
void nvme_paths_step(struct bdev_nvme *c);
/* Control thread: how many commands of c are with the driver or held for it, on all threads; whether all queue pairs
 * are gone. */
uint32_t nvme_paths_outstanding(struct bdev_nvme *c);
bool nvme_paths_are_idle(const struct bdev_nvme *c);
/* On its thread: has the control thread read the ANA log. */
void nvme_path_ask_ana(struct nvme_path *p);
/* Control thread: whether I/O without a queue pair fails or waits. */
void nvme_paths_set_fails(struct bdev_nvme *c, bool fails);

/* nvme_leg.c. The channel's thread. */
void nvme_leg_submit(struct nvme_ns_channel *ch, struct nvme_io *n);
/* The leg for the next I/O, or NULL if none can be used. */
struct nvme_path *nvme_leg_pick(struct nvme_ns_channel *ch);
/* Another one than p that can be used, or NULL. */
struct nvme_path *nvme_leg_other(const struct nvme_ns_channel *ch, const struct nvme_path *p);
/* p refused a command of ch for want of access. */
void nvme_leg_mark_stale(struct nvme_ns_channel *ch, const struct nvme_path *p);
/* Something has changed with p: its channels choose anew, and what waits goes on. */
void nvme_leg_path_changed(struct nvme_path *p);
/* Chooses for the I/O to come. */
void nvme_leg_choose(struct nvme_ns_channel *ch);
/* Something has changed for one channel. */
void nvme_leg_changed(struct nvme_ns_channel *ch);
bool nvme_leg_can_use(const struct nvme_leg_channel *l);
/* Takes n back from wherever it waits. */
bool nvme_leg_take_back(struct nvme_ns_channel *ch, struct nvme_io *n);
/* Ends all that ch holds back. */
void nvme_leg_fail_waiting(struct nvme_ns_channel *ch, uint16_t status);
int nvme_leg_channel_open(struct nvme_ns_channel *ch, struct nvme_leg *leg); /* -ENOMEM, -ENOSPC */
void nvme_leg_channel_close(struct nvme_leg_channel *l);
static inline struct nvme_ns_channel *nvme_io_channel(struct nvme_io *n)
{
	return bdev_channel_ctx(bdev_io_from_ctx(n)->ch);
}

/* nvme_queue.c. The using thread. */
/* Has all that p holds back, or (NULL: any) ch's of it, choose a leg anew. */
void nvme_queue_redistribute(struct nvme_path *p, const struct nvme_ns_channel *ch);
void nvme_queue_submit(struct nvme_path *p, struct nvme_io *n);
void nvme_queue_delay(struct nvme_path *p, struct nvme_io *n, uint32_t delay_ms);
/* Takes n back if it is here and not with the driver. */
bool nvme_queue_take_back(struct nvme_path *p, struct nvme_io *n);
/* Ends with status what ch holds back. */
void nvme_queue_fail_channel(struct nvme_path *p, const struct nvme_ns_channel *ch, uint16_t status);
/* Called by thread_call(). */
void nvme_queue_attach(void *path);
void nvme_queue_detach(void *path);
void nvme_queue_abort_all(void *path);
void nvme_queue_set_fails(void *path); /* c->io_fails, or there is no queue for it */
void nvme_queue_init(struct nvme_path *p);
void nvme_queue_leave(struct nvme_path *p);
void nvme_queue_enter(struct nvme_path *p); /* a frame that goes on with p after callbacks */
void nvme_queue_exit(struct nvme_path *p);  /* its end: p may be gone afterwards */

#endif

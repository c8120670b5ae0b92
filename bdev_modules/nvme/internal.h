/* SPDX-License-Identifier: BSD-3-Clause */
/* Private to the NVMe bdev module.
 *
 *     nvme.c		options, the list of controllers, attach, detach, reset; what the driver's events lead to
 *     nvme_discovery.c what discovery services list is attached, and detached when they list it no more
 *     nvme_health.c	errors and warnings that controllers tell of
 *     nvme_hotplug.c	drives that are plugged in are attached
 *     bdev_nvme_subsystem.c	controllers of one name: a namespace's legs, one by each; their states of access;
 * policies bdev_nvme_path.c	which leg an I/O goes by, as the thread that has the channel sees it
 *     nvme_auth.c	keys for in-band authentication
 *     nvme_ns.c	a namespace's bdev
 *     nvme_md.c	metadata and protection information of its blocks
 *     bdev_nvme_qpair.c	queue pairs, as the control thread sees them
 *     nvme_queue.c	queue pairs, as the thread that uses one sees it: submit, poll, wait
 *     bdev_nvme_io.c	commands of bdev I/O, and what their completions mean
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

struct bdev_nvme_ns;
struct bdev_nvme_qpair;
struct bdev_nvme_path;

/* What goes by one name: controllers of one subsystem, and the bdevs of its namespaces. Comes with the first
 * controller, goes with the last. */
struct bdev_nvme_subsystem {
	char name[BDEV_NVME_NAME_MAX];
	TAILQ_HEAD(bdev_nvme_list, bdev_nvme) ctrlrs; /* in the order in which they were attached */
	TAILQ_HEAD(, bdev_nvme_ns) namespaces;        /* by ascending nsid */
	struct bdev_nvme_policy policy;               /* of bdevs to come */
};

struct bdev_nvme {
	char name[BDEV_NVME_NAME_MAX];
	struct bdev_nvme_attach opts;
	struct nvme_ctrlr *ctrlr; /* NULL: gone */
	enum bdev_nvme_state state;
	uint64_t state_ticks;
	struct bdev_nvme_subsystem *subsystem;
	bool io_fails; /* I/O is not to wait: given up, or fast_io_fail */
	bool ending;   /* detached: what its queue pairs have goes elsewhere */
	uint32_t drain_turns;
	char serial[21];          /* as it was attached */
	bool syncing, sync_again; /* bdev_nvme_ns_sync() */
	bool ctrlr_leaving;       /* nvme_ctrlr_destroy() was called */
	uint16_t crdt[3];         /* Identify; changes only while no I/O is outstanding */
	bool sizes_vendor_io; /* Identify, the same: vendor specific I/O commands say in dword 10 how much they move */
	bool has_ana;         /* likewise */
	uint8_t anatt_s;      /* likewise; never 0 */
	uint32_t resets;
	uint64_t errors_seen; /* the count of the newest entry of the Error Information log that was told of; 0: none
				 was */
	uint32_t aborts;      /* Abort commands outstanding */
	uint32_t holds;       /* bdev_nvme_hold() */
	char error[NVME_ERROR_MAX];
	struct thread_timer fast_fail_timer, drain_timer;
	TAILQ_HEAD(, bdev_nvme_path) paths; /* of the bdevs it has a part in */
	struct io_device device;            /* its channels are paths */
	uint32_t num_qpairs;                /* made and not yet freed; atomic, since threads make them */
	TAILQ_HEAD(, bdev_nvme_qpair) qpairs;
	bdev_nvme_attached_cb attached;
	void *attached_arg;
	struct bdev_nvme_waiters reset_waiters, detach_waiters;
	TAILQ_ENTRY(bdev_nvme) link, subsystem_link;
};

extern struct bdev_nvme_options bdev_nvme_options;

/* While a controller is held, its detach does not get beyond the end of its bdevs and queue pairs:
 * bdev_nvme_detach_step() does not destroy the driver's controller, and so c is not freed. To be held by whoever has
 * c's address while a command is under way, and by whoever goes on with c after a call that may detach it (a callback
 * of a user, the removal of a bdev). */
void bdev_nvme_hold(struct bdev_nvme *c);
/* Ends one hold. After the last one a detach that has been waiting goes on. c itself stays until the control thread's
 * next turn, since the end of the driver's controller is told from there. */
void bdev_nvme_release(struct bdev_nvme *c);
/* Takes a detach one step further if nothing holds it up any more. To be called after whatever may have held it up: a
 * bdev, a queue pair, a hold. Nothing happens to a controller that is not being detached. */
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
void bdev_nvme_health_event(struct bdev_nvme *c, uint32_t aer);
/* nvme_discovery.c */
void bdev_nvme_discovery_stop_all(void);
bool bdev_nvme_discovery_is_idle(void);
/* Tells the observer. path: with BDEV_NVME_PATH_*, else NULL. why: NULL if it goes without saying. */
void bdev_nvme_tell(const struct bdev_nvme *c, enum bdev_nvme_news news, const struct nvme_trid *path, const char *why);
/* Something went wrong that a reset may put right. */
void bdev_nvme_recover(struct bdev_nvme *c, const char *why);

/* References to the keys that an attachment names, and what it offers, in the driver's options: 0, or -ENOKEY, -EINVAL
 * and error. The driver takes references of its own. */
int bdev_nvme_keys_get(const struct bdev_nvme_attach *a, struct nvme_ctrlr_opts *o, char error[BDEV_ERROR_MAX]);
void bdev_nvme_keys_put(const struct nvme_ctrlr_opts *o);

/* --- Namespaces. Control thread. --- */

/* A namespace by way of one controller. */
struct bdev_nvme_path {
	struct bdev_nvme *c;
	struct bdev_nvme_ns *d;
	enum nvme_ana_state ana;
	bool access_lost;  /* without access, for longer than a transition may take */
	bool ana_outdated; /* its controller was, since ana was told */
	bool leaving;      /* no new I/O */
	bool preferred;    /* by bdev_nvme_set_preferred_path */
	struct thread_timer anatt_timer;
	TAILQ_ENTRY(bdev_nvme_path) link, c_link;
};
#define BDEV_NVME_PATHS_MAX 16

struct bdev_nvme_io;
STAILQ_HEAD(bdev_nvme_io_list, bdev_nvme_io);
struct bdev_nvme_channel;

struct bdev_nvme_ns {
	struct bdev bdev;
	struct bdev_nvme_subsystem *subsystem;
	struct bdev_nvme_attach attach; /* as its first controller was attached */
	struct bdev_nvme_policy policy;
	/* Guards what threads that make and end channels look at: the legs, and the list of channels. Never taken by
	 * I/O. */
	pthread_mutex_t mutex;
	TAILQ_HEAD(, bdev_nvme_path) paths; /* in the order in which they came; at least one until it leaves */
	TAILQ_HEAD(, bdev_nvme_channel) channels;
	struct nvme_ns ns; /* as it was registered, but for the size */
	bool leaving;
	char name[BDEV_NVME_NAME_MAX + 12];
	TAILQ_ENTRY(bdev_nvme_ns) link;
};
/* Makes the bdevs agree with the controller's namespaces. */
void bdev_nvme_ns_sync(struct bdev_nvme *c);
/* c is being detached: what only it leads to is removed, the rest does without it from now on. */
void bdev_nvme_ns_leave(struct bdev_nvme *c);

/* bdev_nvme_subsystem.c. Control thread. */
struct bdev_nvme_subsystem *bdev_nvme_subsystem_find(const char *name);
/* Finds or makes the one that c belongs to, and puts c into it; -ENOMEM. */
int bdev_nvme_subsystem_join(struct bdev_nvme *c);
void bdev_nvme_subsystem_leave(struct bdev_nvme *c);
/* Whether a controller that has just connected may stand beside the others of its name; false and why. */
bool bdev_nvme_subsystem_fits(const struct bdev_nvme *c, char *why, size_t size);
/* A leg to d by c, and what it means to d's channels; NULL: out of memory, or too many. */
struct bdev_nvme_path *bdev_nvme_path_add(struct bdev_nvme_ns *d, struct bdev_nvme *c, const struct nvme_ns *ns);
struct bdev_nvme_path *bdev_nvme_path_find(const struct bdev_nvme_ns *d, const struct bdev_nvme *c);
/* How many legs of d are there to stay. */
unsigned bdev_nvme_path_count(const struct bdev_nvme_ns *d);
void bdev_nvme_path_set_leaving(struct bdev_nvme_path *path, bool leaving);
/* d's channels forget it; nothing is outstanding on it. */
void bdev_nvme_path_remove(struct bdev_nvme_path *path);
/* d is gone, channels and all. */
void bdev_nvme_path_free(struct bdev_nvme_path *path);
/* Brings the legs of c up to what its ANA log says. */
void bdev_nvme_paths_update_ana(struct bdev_nvme *c);
/* c is not connected any more: its legs wait for it, and what they have access to is told anew. */
void bdev_nvme_paths_disconnected(struct bdev_nvme *c);
/* Runs fn(channel, arg) on the thread of each of d's channels, and waits. */
void bdev_nvme_ns_visit_channels(struct bdev_nvme_ns *d, void (*fn)(struct bdev_nvme_channel *ch, void *arg),
				 void *arg);

/* Its format does not change while the bdev is there. Any thread with a channel. */
static inline const struct nvme_ns *bdev_nvme_ns_format(const struct bdev *b)
{
	return &((const struct bdev_nvme_ns *)b)->ns;
}

/* A leg, as a channel has it. The channel's thread. */
struct bdev_nvme_channel_path {
	struct bdev_nvme_path *path; /* NULL: the place is free */
	struct bdev_nvme_qpair *qpair;
	struct io_channel *qpair_channel;
	struct bdev_nvme_channel *ch;
	enum nvme_ana_state ana;
	bool access_lost, leaving, preferred;
	bool stale;                              /* a command was told that ana is wrong; until the log has been read */
	bool dirty;                              /* something has changed that may let I/O go on */
	LIST_ENTRY(bdev_nvme_channel_path) link; /* path->legs */
};

/* A thread's channel to a namespace. */
struct bdev_nvme_channel {
	struct bdev_nvme_qpair *qpair; /* what I/O goes by; NULL: bdev_nvme_channel_pick_qpair() knows */
	uint32_t nsid;
	bool has_md;       /* blocks carry metadata: bdev_nvme_md_set() */
	bool resetting;    /* what is lost is not tried again */
	bool spread;       /* there is a choice to be made for each I/O */
	uint8_t num_paths; /* places in use, free ones among them */
	uint8_t at;        /* the leg that was chosen last */
	uint32_t turns;    /* I/Os that it gets yet */
	struct bdev_nvme_policy policy;
	struct bdev_nvme_io_list waiting; /* for a leg that can be used */
	struct thread *thread;
	struct bdev_nvme_channel_path paths[BDEV_NVME_PATHS_MAX];
	TAILQ_ENTRY(bdev_nvme_channel) link;
};

/* --- I/O. --- */

enum bdev_nvme_io_place {
	BDEV_NVME_IO_NOWHERE,
	BDEV_NVME_IO_WAITING,   /* for a queue pair, or room in it */
	BDEV_NVME_IO_DELAYED,   /* until due_ticks */
	BDEV_NVME_IO_SUBMITTED, /* with the driver */
	BDEV_NVME_IO_CONTROL,   /* with the control thread */
};

/* The module's part of a bdev I/O: what BDEV_NVME_IO_START names. */
struct bdev_nvme_io {
	STAILQ_ENTRY(bdev_nvme_io) link;
	struct bdev_nvme_qpair *qpair;
	union {
		struct iovec iov; /* DSM, Copy: the range */
		struct {
			uint16_t sqid, cid;
		} target;      /* ABORT */
		uint32_t cdw0; /* ABORT, ADMIN: on the way back */
	};
	union {
		struct thread_msg msg; /* BDEV_NVME_IO_CONTROL */
		uint64_t due_ticks;    /* BDEV_NVME_IO_DELAYED */
	};
	uint8_t place; /* enum bdev_nvme_io_place */
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
_Static_assert(offsetof(struct bdev_nvme_io, req) == 64, "one cache line before the request");

/* A command's end: its last part is complete. Decides what becomes of it. */
void bdev_nvme_io_ended(struct bdev_nvme_io *n, uint16_t status, uint32_t cdw0);
/* The end of the I/O. */
void bdev_nvme_io_complete(struct bdev_nvme_io *n, uint16_t status, uint32_t cdw0);
void bdev_nvme_io_submit(void *channel, struct bdev_io *io);
/* For what is lost, and does not come again: a path error, which a host may retry. */
#define BDEV_NVME_IO_PATH_ERROR NVME_ST(PATH, CTRL_PATH_ERROR)

/* What a completion means. Pure. */
enum bdev_nvme_verdict {
	BDEV_NVME_VERDICT_NO_ACCESS, /* by this leg, now: nothing was done, so another one may be asked */
	BDEV_NVME_VERDICT_ELSEWHERE, /* by another leg, at once */
	BDEV_NVME_VERDICT_DONE,
	BDEV_NVME_VERDICT_LOST,  /* with its queue pair: waits for the next one */
	BDEV_NVME_VERDICT_RETRY, /* after *delay_ms */
};
struct bdev_nvme_verdict_facts {
	bool aborting, repeatable;
	bool ana;    /* the controller has states of access */
	bool others; /* there is another leg that can be used */
	uint8_t retries;
	int32_t retry_limit; /* -1: none */
	uint16_t crdt[3];    /* Identify: in 100 ms */
};
enum bdev_nvme_verdict bdev_nvme_io_verdict(uint16_t status, const struct bdev_nvme_verdict_facts *f,
					    uint32_t *delay_ms);

/* nvme_md.c */
/* Why metadata keeps a namespace from being a bdev, or NULL. Pure. */
const char *bdev_nvme_md_unusable(const struct nvme_ns *ns, bool fabrics);
struct bdev_md bdev_nvme_md_of(const struct nvme_ns *ns, const struct bdev_nvme_attach *a);
/* The rest of a command on a namespace with metadata. */
void bdev_nvme_md_set(struct bdev_nvme_io *n, const struct bdev_io *io);
/* PRINFO and tags (NVM 5.2, and dwords 12, 14 and 15 of the commands) as io wants them; dword 12 has its other bits
 * already. Pure. */
void bdev_nvme_md_set_pi(struct nvme_sqe *cmd, const struct bdev_md *md, const struct bdev_io *io, bool act);

/* nvme_cmd.c */
void bdev_nvme_cmd_admin(struct bdev_nvme_io *n);
void bdev_nvme_cmd_abort(struct bdev_nvme_io *n, struct bdev_nvme_io *target);
void bdev_nvme_cmd_reset(struct bdev_nvme_io *n);
/* Control thread: has the controller abort a command. done(arg, aborted) may come at once. */
void bdev_nvme_cmd_send_abort(struct bdev_nvme *c, uint16_t sqid, uint16_t cid, void (*done)(void *arg, bool aborted),
			      void *arg);
/* 0 or the status that a passed-through command is refused with. fabrics: the controller cannot move more than it is
 * given. Pure. */
uint16_t bdev_nvme_cmd_check_admin(const struct nvme_sqe *cmd, uint64_t data_len, bool fabrics);
uint16_t bdev_nvme_cmd_check_io(const struct nvme_sqe *cmd, uint64_t data_len, uint64_t md_len,
				const struct nvme_ns *ns);
/* A vendor specific command, admin or I/O, for which we cannot know how much it moves. fabrics: the controller cannot
 * move more than it is given; otherwise it has to keep to the standard's format for such commands (has_size). Pure. */
uint16_t bdev_nvme_cmd_check_vendor(const struct nvme_sqe *cmd, uint64_t data_len, bool fabrics, bool has_size);
#define BDEV_NVME_CMD_VENDOR_IO    0x80 /* opcodes from here on (NVM 3.2, Base 5) */
#define BDEV_NVME_CMD_VENDOR_ADMIN 0xc0
void bdev_nvme_cmd_raw_complete(struct bdev_nvme_io *n, uint16_t status, uint32_t cdw0);

/* --- Paths: a thread's queue pair to a controller. --- */

enum bdev_nvme_qpair_state {
	BDEV_NVME_QPAIR_IDLE, /* no queue pair */
	BDEV_NVME_QPAIR_CONNECTING,
	BDEV_NVME_QPAIR_UP,
	BDEV_NVME_QPAIR_STOPPING,
	BDEV_NVME_QPAIR_STATES,
};

#define BDEV_NVME_QPAIR_RANGES 64 /* DSM and Copy commands at a time */

union bdev_nvme_range {
	struct nvme_dsm_range dsm;
	struct nvme_copy_range copy;
};

struct bdev_nvme_qpair {
	/* The using thread's. First what every I/O touches. */
	struct nvme_qpair *driver_qpair; /* NULL: not connected */
	bool broken;                     /* its queue pair takes nothing any more */
	struct bdev_nvme_io_list waiting;
	struct poller *poller;
	uint32_t outstanding; /* commands */
	bool fails;           /* without a queue pair, I/O fails */
	bool pausable;        /* its poller would keep the reactor awake: paused while nothing is outstanding */
	bool paused;
	uint8_t in_use; /* frames of ours on the stack that go on with it */
	bool closing;   /* the channel is gone; leave when in_use is 0 */
	uint64_t polls, idle_polls, completions, queued, retries;
	struct bdev_nvme_io_list delayed;
	struct thread_timer delay_timer;
	union bdev_nvme_range *ranges; /* DMA memory; the control thread's to make and free */
	uint8_t ranges_free[BDEV_NVME_QPAIR_RANGES], num_ranges_free;
	LIST_HEAD(, bdev_nvme_channel_path) paths; /* of channels that use it */
	struct nvme_request *fused;                /* the second command of a fused pair */
	struct bdev_nvme_io *fused_io;

	/* Both. */
	struct bdev_nvme *c;
	struct thread *thread;
	unsigned lcore;
	bool closed; /* atomic: stored when the thread is done with all of this, last */
	struct thread_msg join_msg, leave_msg, ana_msg;
	bool ana_asked; /* atomic: ana_msg is under way */

	/* The control thread's. */
	struct nvme_qpair *created;
	enum bdev_nvme_qpair_state state;
	bool left;
	bool no_queue_told;
	uint8_t refusals; /* in a row */
	struct thread_timer retry_timer;
	TAILQ_ENTRY(bdev_nvme_qpair) link;
};

/* bdev_nvme_qpair.c */
int bdev_nvme_qpair_create(struct io_device *dev, void *channel);   /* on its thread */
void bdev_nvme_qpair_destroy(struct io_device *dev, void *channel); /* on its thread */
struct bdev_nvme_qpair *bdev_nvme_qpair_of(struct io_channel *ch);
void bdev_nvme_qpair_post_leave(struct bdev_nvme_qpair *qp); /* its thread, when it is done with it */
/* Control thread: takes every path of c towards what c's state wants. */
void bdev_nvme_qpairs_step(struct bdev_nvme *c);
/* Control thread: how many commands of c are with the driver or held for it, on all threads; whether all queue pairs
 * are gone. */
uint32_t bdev_nvme_qpairs_outstanding(struct bdev_nvme *c);
bool bdev_nvme_qpairs_are_idle(const struct bdev_nvme *c);
/* On its thread: has the control thread read the ANA log. */
void bdev_nvme_qpair_ask_ana(struct bdev_nvme_qpair *qp);
/* Control thread: whether I/O without a queue pair fails or waits. */
void bdev_nvme_qpairs_set_fails(struct bdev_nvme *c, bool fails);

/* bdev_nvme_path.c. The channel's thread. */
void bdev_nvme_channel_submit(struct bdev_nvme_channel *ch, struct bdev_nvme_io *n);
/* The leg for the next I/O, or NULL if none can be used. */
struct bdev_nvme_qpair *bdev_nvme_channel_pick_qpair(struct bdev_nvme_channel *ch);
/* Another one than p that can be used, or NULL. */
struct bdev_nvme_qpair *bdev_nvme_channel_other_qpair(const struct bdev_nvme_channel *ch,
						      const struct bdev_nvme_qpair *qp);
/* p refused a command of ch for want of access. */
void bdev_nvme_channel_mark_stale(struct bdev_nvme_channel *ch, const struct bdev_nvme_qpair *qp);
/* Something has changed with p: its channels choose anew, and what waits goes on. */
void bdev_nvme_channels_qpair_changed(struct bdev_nvme_qpair *qp);
/* Chooses for the I/O to come. */
void bdev_nvme_channel_choose(struct bdev_nvme_channel *ch);
/* Something has changed for one channel. */
void bdev_nvme_channel_paths_changed(struct bdev_nvme_channel *ch);
bool bdev_nvme_channel_path_is_usable(const struct bdev_nvme_channel_path *cp);
/* Takes n back from wherever it waits. */
bool bdev_nvme_channel_take_back(struct bdev_nvme_channel *ch, struct bdev_nvme_io *n);
/* Ends all that ch holds back. */
void bdev_nvme_channel_fail_waiting(struct bdev_nvme_channel *ch, uint16_t status);
int bdev_nvme_channel_path_open(struct bdev_nvme_channel *ch, struct bdev_nvme_path *path); /* -ENOMEM, -ENOSPC */
void bdev_nvme_channel_path_close(struct bdev_nvme_channel_path *cp);
static inline struct bdev_nvme_channel *bdev_nvme_io_channel(struct bdev_nvme_io *n)
{
	return bdev_channel_ctx(bdev_io_from_ctx(n)->ch);
}

/* nvme_queue.c. The using thread. */
/* Has all that p holds back, or (NULL: any) ch's of it, choose a leg anew. */
void bdev_nvme_qpair_redistribute(struct bdev_nvme_qpair *qp, const struct bdev_nvme_channel *ch);
void bdev_nvme_qpair_submit(struct bdev_nvme_qpair *qp, struct bdev_nvme_io *n);
void bdev_nvme_qpair_delay(struct bdev_nvme_qpair *qp, struct bdev_nvme_io *n, uint32_t delay_ms);
/* Takes n back if it is here and not with the driver. */
bool bdev_nvme_qpair_take_back(struct bdev_nvme_qpair *qp, struct bdev_nvme_io *n);
/* Ends with status what ch holds back. */
void bdev_nvme_qpair_fail_channel(struct bdev_nvme_qpair *qp, const struct bdev_nvme_channel *ch, uint16_t status);
/* Called by thread_call(). */
void bdev_nvme_qpair_attach(void *qpair);
void bdev_nvme_qpair_detach(void *qpair);
void bdev_nvme_qpair_abort_all(void *qpair);
void bdev_nvme_qpair_set_fails(void *qpair); /* c->io_fails, or there is no queue for it */
void bdev_nvme_qpair_init(struct bdev_nvme_qpair *qp);
void bdev_nvme_qpair_leave(struct bdev_nvme_qpair *qp);
void bdev_nvme_qpair_enter(struct bdev_nvme_qpair *qp); /* a frame that goes on with p after callbacks */
void bdev_nvme_qpair_exit(struct bdev_nvme_qpair *qp);  /* its end: p may be gone afterwards */

#endif

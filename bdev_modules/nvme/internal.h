/* SPDX-License-Identifier: BSD-3-Clause */
/* Private to the NVMe bdev module.
 *
 *     ctrlr.c		options, the list of controllers, attach, detach, reset, the driver's events
 *     disable.c	controllers that operators disable and enable
 *     discovery.c	attaches what discovery services list, and detaches what they do not list any more
 *     health.c		logs the errors and warnings that controllers report
 *     fence.c		what keeps commands that were lost with a controller from landing behind newer ones
 *     fence_cross.c	fences by Cross-Controller Reset
 *     hotplug.c	attaches drives that are plugged in
 *     auth.c		keys for in-band authentication
 *     multipath.c	controllers of one name, paths to a namespace, asymmetric access, policies: the control thread
 *     channel.c	the path that an I/O takes: the channel's thread
 *     ns.c		the bdev of a namespace
 *     md.c		metadata and protection information of its blocks
 *     qpair.c		queue pairs, as the control thread sees them: connect, stop, free
 *     qpair_io.c	queue pairs, as the thread that uses one sees it: submit, poll, queue
 *     io.c		bdev I/O as commands, and what their completions mean
 *     cmd.c		commands that the control thread sends: admin, Abort, resets; raw commands */
#ifndef BDEV_NVME_INTERNAL_H
#define BDEV_NVME_INTERNAL_H

#include <pthread.h>

#include "bdev/module.h"
#include "bdev_modules/nvme/bdev_nvme.h"
#include "bdev_modules/nvme/fence.h"

/* --- Controllers. Control thread. --- */

enum bdev_nvme_state {
	BDEV_NVME_ATTACHING, /* the first attempt to connect */
	BDEV_NVME_UP,
	BDEV_NVME_DOWN,      /* lost or reset; the driver connects it again */
	BDEV_NVME_GIVEN_UP,  /* the driver does not try to connect it any more; a reset makes it try again, or, if it is
				disabled, bdev_nvme_enable() */
	BDEV_NVME_DETACHING, /* its bdevs are removed and its queue pairs are closed */
	BDEV_NVME_STATES,
};

/* To be called when a reset or a detach has ended. */
struct bdev_nvme_waiter {
	bdev_nvme_done_cb cb;
	void *arg;
	STAILQ_ENTRY(bdev_nvme_waiter) link;
};
STAILQ_HEAD(bdev_nvme_waiters, bdev_nvme_waiter);

/* Has cb called when the operation of that list has ended; at once if there is no memory for that. */
void bdev_nvme_waiter_add(struct bdev_nvme_waiters *list, bdev_nvme_done_cb cb, void *arg);
/* The operation has ended: calls all that wait, and empties the list. */
void bdev_nvme_waiters_end(struct bdev_nvme_waiters *list, int rc, const char *error);

struct bdev_nvme_ns;
struct bdev_nvme_qpair;
struct bdev_nvme_path;

/* The controllers of one name, which belong to one NVM subsystem, and the bdevs of its namespaces. Made with the first
 * controller and freed with the last one. */
struct bdev_nvme_subsystem {
	char name[BDEV_NVME_NAME_MAX];
	TAILQ_HEAD(bdev_nvme_list, bdev_nvme) ctrlrs; /* in the order in which they were attached */
	TAILQ_HEAD(, bdev_nvme_ns) namespaces;        /* by ascending nsid */
	struct bdev_nvme_policy policy;               /* of bdevs that are registered from now on */
};

/* A controller. */
struct bdev_nvme {
	char name[BDEV_NVME_NAME_MAX];
	struct bdev_nvme_attach opts;
	struct nvme_ctrlr *ctrlr; /* the driver's; NULL: destroyed */
	enum bdev_nvme_state state;
	uint64_t state_ticks;
	struct bdev_nvme_subsystem *subsystem;
	bool disabled;   /* bdev_nvme_disable(): it is not connected again before bdev_nvme_enable() */
	bool io_fails;   /* I/O without a queue pair fails instead of waiting: given up, or fast_io_fail_timeout_sec has
			    passed */
	bool stop_tried; /* being detached, and the driver was told to disable it, because commands are outstanding */
	bool ending;     /* being detached, and its queue pairs are closed: their commands take other paths */
	uint64_t drain_end_ticks; /* when outstanding commands of a detached controller have had their time; 0: not
				     begun */
	char serial[21];          /* of the controller that was attached first */
	bool syncing, sync_again; /* bdev_nvme_ns_sync() */
	bool ctrlr_leaving;       /* nvme_ctrlr_destroy() was called */
	uint16_t crdt[3];         /* of Identify; changes only while no I/O is outstanding */
	bool sizes_vendor_io; /* likewise: dword 10 of vendor specific I/O commands is the number of dwords that they
			       * move
			       */
	bool has_ana;         /* likewise: asymmetric namespace access */
	bool has_cache;       /* likewise: a volatile write cache */
	uint8_t anatt_s;      /* likewise: how long a transition may take; never 0 */
	uint32_t resets;
	uint64_t errors_seen; /* error count of the newest entry of the Error Information log that has been logged; 0:
				 none */
	uint32_t aborts;      /* Abort commands outstanding */
	uint32_t holds;       /* bdev_nvme_hold() */
	struct bdev_nvme_fence *fence; /* of the connection there is, or of the last one; NULL: a local drive, or never
					  connected */
	char error[NVME_ERROR_MAX];
	struct thread_timer fast_fail_timer, drain_timer;
	TAILQ_HEAD(, bdev_nvme_path) paths; /* to the namespaces that it has */
	struct io_device device;            /* its channels are queue pairs */
	uint32_t num_qpairs;                /* made and not yet freed; atomic, since threads make them */
	TAILQ_HEAD(, bdev_nvme_qpair) qpairs;
	bdev_nvme_attached_cb attached;
	void *attached_arg;
	struct bdev_nvme_waiters reset_waiters, detach_waiters, disable_waiters;
	TAILQ_ENTRY(bdev_nvme) link, subsystem_link;
};

extern struct bdev_nvme_options bdev_nvme_options;

/* While a controller is held, its detach does not get beyond the end of its bdevs and queue pairs:
 * bdev_nvme_detach_step() does not destroy the driver's controller, and so c is not freed. Whoever has c's address
 * while a command is under way holds it, and whoever goes on with c after a call that may detach it (a callback of a
 * user, the removal of a bdev). */
void bdev_nvme_hold(struct bdev_nvme *c);
/* Ends one hold. After the last one a detach that has been waiting goes on. c itself is not freed before the control
 * thread's next turn, because the driver reports the end of its controller from there. */
void bdev_nvme_release(struct bdev_nvme *c);
/* Takes a detach one step further if nothing holds it up any more. To be called after the end of anything that may have
 * held it up: a bdev, a queue pair, a hold. Does nothing to a controller that is not being detached. */
void bdev_nvme_detach_step(struct bdev_nvme *c);
/* The bdev layer stops: detaches every controller, which shuts it down. */
void bdev_nvme_stop(void);
/* Whether there are no controllers and no discovery services. */
bool bdev_nvme_is_idle(void);
/* Tells the bdev layer if the module has become idle. To be called after the end of a controller or a service. */
void bdev_nvme_is_idle_now(void);
/* All bdevs and controllers are gone: controllers may be attached again. */
void bdev_nvme_fini(void);
/* Whether bdev_nvme_stop() has been called, and bdev_nvme_fini() not yet: nothing is attached any more. */
bool bdev_nvme_is_stopping(void);
/* Checks the three timeouts, in seconds, which depend on each other. 0, or -EINVAL and an error that names them. */
int bdev_nvme_check_timeouts(int32_t loss, uint32_t delay, uint32_t fast, char *error);
/* Checks the options of fences: 0, or -EINVAL and an error that names the option. */
int bdev_nvme_check_fence(int32_t timeout_ms, uint32_t default_quiesce_time_ms, char *error);
/* Logs what an asynchronous event says (NVME_EVENT_LOG; aer: dword 0 of its completion). */
void bdev_nvme_health_event(struct bdev_nvme *c, uint32_t aer);
/* Stops every discovery service. */
void bdev_nvme_discovery_stop_all(void);
/* Whether there are no discovery services. */
bool bdev_nvme_discovery_is_idle(void);
/* Tells the observer. path: with BDEV_NVME_PATH_*, else NULL. why: NULL if the news explains itself. */
void bdev_nvme_tell(const struct bdev_nvme *c, enum bdev_nvme_news news, const struct nvme_trid *path, const char *why);
/* Resets a controller that is up, after an error that a reset may clear. */
void bdev_nvme_recover(struct bdev_nvme *c, const char *why);

/* Takes references to the keys that an attachment names and puts them into the driver's options, with the hashes and
 * groups that are offered: 0, or -ENOKEY, -EINVAL and error. The driver takes references of its own. */
int bdev_nvme_keys_get(const struct bdev_nvme_attach *a, struct nvme_ctrlr_opts *o, char error[BDEV_ERROR_MAX]);
/* Drops the references. */
void bdev_nvme_keys_put(const struct nvme_ctrlr_opts *o);

/* --- Namespaces and paths. Control thread. --- */

/* NVMe's path: a controller through which a namespace is reached. */
struct bdev_nvme_path {
	struct bdev_nvme *c;
	struct bdev_nvme_ns *d;
	enum nvme_ana_state ana;
	bool access_lost;  /* no access, for longer than a transition may take: I/O does not wait for this path */
	bool ana_outdated; /* the controller has been disconnected since it reported ana */
	bool leaving;      /* takes no new I/O */
	bool preferred;    /* by bdev_nvme_set_preferred_path */
	struct bdev_stat_ops *stat; /* by class; NULL: none. What channels have counted and handed over; d->mutex */
	struct thread_timer anatt_timer;
	TAILQ_ENTRY(bdev_nvme_path) link, c_link;
};
#define BDEV_NVME_PATHS_MAX 16

struct bdev_nvme_io;
STAILQ_HEAD(bdev_nvme_io_list, bdev_nvme_io);
struct bdev_nvme_channel;

/* How many commands have ended with an error, by status code type, and by status code of the first four types. */
struct bdev_nvme_error_stat {
	_Atomic uint32_t type[8], code[4][256];
};

/* The bdev of a namespace. */
struct bdev_nvme_ns {
	struct bdev bdev;
	struct bdev_nvme_error_stat *errors; /* NULL: they are not counted. Any thread */
	bool path_stat;                      /* its paths have statistics */
	struct bdev_nvme_subsystem *subsystem;
	struct bdev_nvme_attach attach; /* of its first controller */
	struct bdev_nvme_policy policy;
	/* Guards what threads read when they make and close channels: the paths, and the list of channels. I/O never
	 * takes it. */
	pthread_mutex_t mutex;
	TAILQ_HEAD(, bdev_nvme_path) paths; /* in the order in which they were added; at least one until it leaves */
	TAILQ_HEAD(, bdev_nvme_channel) channels;
	struct nvme_ns ns; /* as it was registered; only its size changes */
	bool leaving;
	char name[BDEV_NVME_NAME_MAX + 12];
	TAILQ_ENTRY(bdev_nvme_ns) link;
};
/* The types of I/O that a namespace's bdev passes on, from Identify Controller and the namespace; queue_entries: the
 * number of commands in one of the controller's queues. Pure. */
uint32_t bdev_nvme_io_types(const struct nvme_id_ctrl *id, const struct nvme_ns *ns, uint16_t queue_entries);
/* Sets what b prefers, and its physical blocks, from Identify Namespace; nothing stays of what was set before. version:
 * of the controller (VER), which decides which bits count. Pure. */
void bdev_nvme_set_hints(struct bdev *b, const struct nvme_ns *ns, uint32_t version);
/* Makes the limits of b those that both b and `one`, the limits of another controller, have. Pure. */
void bdev_nvme_limits_narrow(struct bdev *b, const struct bdev *one);

/* Registers, removes and updates bdevs until they agree with the namespaces of c. */
void bdev_nvme_ns_sync(struct bdev_nvme *c);
/* c is being detached: removes the bdevs that have no other path; its paths to the other bdevs take no new I/O. */
void bdev_nvme_ns_leave(struct bdev_nvme *c);

/* The subsystem of that name, or NULL. */
struct bdev_nvme_subsystem *bdev_nvme_subsystem_find(const char *name);
/* Puts c into the subsystem of its name, which is made if it is the first one. 0 or -ENOMEM. */
int bdev_nvme_subsystem_join(struct bdev_nvme *c);
/* Takes c out of it; the last controller frees it. */
void bdev_nvme_subsystem_leave(struct bdev_nvme *c);
/* Whether a controller that has just connected belongs to the same subsystem as the others of its name, and may be used
 * together with them. If not, why says why. */
bool bdev_nvme_subsystem_fits(const struct bdev_nvme *c, char *why, size_t size);
/* Adds the path to d through c, and adds it to d's channels. NULL: no memory, or there are BDEV_NVME_PATHS_MAX. */
struct bdev_nvme_path *bdev_nvme_path_add(struct bdev_nvme_ns *d, struct bdev_nvme *c, const struct nvme_ns *ns);
/* The path to d through c, or NULL. */
struct bdev_nvme_path *bdev_nvme_path_find(const struct bdev_nvme_ns *d, const struct bdev_nvme *c);
/* How many paths of d take new I/O as far as the control thread is concerned: those that are not leaving. */
unsigned bdev_nvme_path_count(const struct bdev_nvme_ns *d);
/* Whether the path takes no new I/O; tells d's channels. */
void bdev_nvme_path_set_leaving(struct bdev_nvme_path *path, bool leaving);
/* Removes a path from d's channels and frees it. Nothing is outstanding on it. */
void bdev_nvme_path_remove(struct bdev_nvme_path *path);
/* Frees a path of a bdev that has no channels any more. */
void bdev_nvme_path_free(struct bdev_nvme_path *path);
/* Brings the paths through c up to what its ANA log says, and tells the channels. */
void bdev_nvme_paths_update_ana(struct bdev_nvme *c);
/* c is not connected any more: I/O waits for its paths again, whatever their access was. Their access is reported anew
 * when it is connected. */
void bdev_nvme_paths_disconnected(struct bdev_nvme *c);
/* Runs fn(channel, arg) for each of d's channels on its thread, one after the other, and waits for each. After the last
 * one d may have been freed. */
void bdev_nvme_ns_visit_channels(struct bdev_nvme_ns *d, void (*fn)(struct bdev_nvme_channel *ch, void *arg),
				 void *arg);

/* The format of the namespace, which does not change while the bdev is registered. Any thread with a channel. */
static inline const struct nvme_ns *bdev_nvme_ns_format(const struct bdev *b)
{
	return &((const struct bdev_nvme_ns *)b)->ns;
}

/* A channel's copy of a path. The channel's thread. */
struct bdev_nvme_channel_path {
	struct bdev_nvme_path *path; /* NULL: this place is free */
	struct bdev_nvme_qpair *qpair;
	struct io_channel *qpair_channel;
	struct bdev_nvme_channel *ch;
	struct bdev_stat_ops *stat; /* by class, since they were handed over to the path; NULL: none */
	enum nvme_ana_state ana;
	bool access_lost, leaving, preferred;
	bool stale; /* a command was refused for want of access although ana grants it; until the log has been read */
	bool dirty; /* bdev_nvme_channels_qpair_changed() has yet to resubmit what waits in ch */
	LIST_ENTRY(bdev_nvme_channel_path) link; /* qpair->paths */
};

/* A thread's channel to a namespace. */
struct bdev_nvme_channel {
	struct bdev_nvme_qpair *qpair; /* of the path that all I/O takes; NULL: bdev_nvme_channel_pick_qpair() */
	uint32_t nsid;
	bool has_md;       /* blocks carry metadata: bdev_nvme_md_set() */
	bool counts;       /* the paths have statistics */
	bool has_extras;   /* has_md or counts: what most channels have not */
	bool resetting;    /* an I/O that is lost with its queue pair is not submitted again */
	bool leaving;      /* the bdev is being removed: no I/O waits for a path to become usable */
	bool spread;       /* the path is chosen for each I/O */
	uint8_t num_paths; /* places in use, free ones between them included */
	uint8_t at;        /* the path that was chosen last */
	uint32_t turns;    /* how many more I/Os in a row it gets */
	struct bdev_nvme_policy policy;
	struct bdev_nvme_io_list waiting; /* until a path is usable */
	struct bdev_nvme_io_list held;    /* until the fence of the controller that they were lost with is done */
	struct thread *thread;
	struct bdev_nvme_channel_path paths[BDEV_NVME_PATHS_MAX];
	TAILQ_ENTRY(bdev_nvme_channel) link;
};

/* --- I/O --- */

/* Where an I/O is, which says how an Abort reaches it. */
enum bdev_nvme_io_place {
	BDEV_NVME_IO_NOWHERE,
	BDEV_NVME_IO_WAITING,   /* for a usable path, or for room in a queue pair */
	BDEV_NVME_IO_DELAYED,   /* until due_ticks */
	BDEV_NVME_IO_SUBMITTED, /* to the driver */
	BDEV_NVME_IO_CONTROL,   /* with the control thread */
	BDEV_NVME_IO_HELD,      /* until `fence` is done: it may still be carried out by a controller that was lost */
};

/* The module's part of a bdev I/O; its address is the trace object BDEV_NVME_IO. */
struct bdev_nvme_io {
	STAILQ_ENTRY(bdev_nvme_io) link;
	struct bdev_nvme_qpair *qpair;
	union {
		struct iovec iov; /* Dataset Management, Copy: the range */
		struct {
			uint16_t sqid, cid;
		} target;         /* ABORT, on its way to the control thread */
		uint32_t cdw0;    /* ABORT, ADMIN: the answer, on its way back */
		uint16_t flushed; /* FLUSH: a bit for each place in the channel's paths whose controller has carried
				     it out */
	};
	union {
		struct thread_msg msg;         /* BDEV_NVME_IO_CONTROL */
		uint64_t due_ticks;            /* BDEV_NVME_IO_DELAYED */
		struct bdev_nvme_fence *fence; /* BDEV_NVME_IO_HELD */
	};
	uint8_t place; /* enum bdev_nvme_io_place */
	uint8_t lost;  /* how often it was lost with its queue pair, or found no access */
	uint8_t retries;
	uint8_t parts;   /* commands of a fused pair that are outstanding */
	uint16_t status; /* of a fused pair, of an admin command; of a held one: what it is to end with, 0: it is to be
			    submitted again */
	bool raw;        /* part of struct raw_io (cmd.c), not of a bdev I/O */
	bool fused : 1;
	bool wants_range : 1;
	bool everywhere : 1; /* a Flush, which goes to each controller with a write cache, one after the other */
	bool repeatable : 1; /* carrying it out twice has the same effect as once */
	bool aborting : 1;   /* its submitter has asked to abort it */
	bool counted : 1;    /* the path that carries it out counts it */
	bool unfenced : 1;   /* it was lost with a controller that was not waited for: it may still be carried out */
	struct nvme_request req __attribute__((aligned(64)));
};
_Static_assert(offsetof(struct bdev_nvme_io, req) == 64, "one cache line before the request");

/* The command has ended, of a fused pair both: completes the I/O, or submits it again. */
void bdev_nvme_io_ended(struct bdev_nvme_io *n, uint16_t status, uint32_t cdw0);
/* Completes the I/O. n is not to be touched afterwards. */
void bdev_nvme_io_complete(struct bdev_nvme_io *n, uint16_t status, uint32_t cdw0);
/* An I/O was lost with its queue pair, and may be submitted again: does that, or completes it. name: the controller's,
 * for the log. */
void bdev_nvme_io_submit_lost(struct bdev_nvme_io *n, const char *name);
/* The bdev's submit function. */
void bdev_nvme_io_submit(void *channel, struct bdev_io *io);
/* The bdev's take_back function. */
void bdev_nvme_io_take_back(void *channel, struct bdev_io *io);
/* The status of an I/O that was lost and is not submitted again: a path error, after which a host may retry. */
#define BDEV_NVME_IO_PATH_ERROR NVME_ST(PATH, CTRL_PATH_ERROR)

/* n + 1, or n if that is the greatest number. Pure. */
static inline uint8_t bdev_nvme_count_up(uint8_t n)
{
	return n < UINT8_MAX ? (uint8_t)(n + 1) : n;
}

/* What is to be done with a command that has ended. */
enum bdev_nvme_verdict {
	BDEV_NVME_VERDICT_NO_ACCESS, /* not carried out, because the controller has no access: try another path */
	BDEV_NVME_VERDICT_ELSEWHERE, /* submit it on another path at once */
	BDEV_NVME_VERDICT_DONE,      /* complete the I/O */
	BDEV_NVME_VERDICT_LOST,      /* with its queue pair: submit it to the next one */
	BDEV_NVME_VERDICT_RETRY,     /* submit it again after *delay_ms */
};
struct bdev_nvme_verdict_facts {
	bool aborting, repeatable;
	bool timed_out; /* the driver has had it aborted, because it had no answer */
	bool ana;       /* the controller reports asymmetric access */
	bool others;    /* there is another usable path */
	uint8_t retries;
	int32_t retry_limit; /* -1: none */
	uint16_t crdt[3];    /* of Identify: command retry delay times, in units of 100 ms */
};
/* Decides by a command's status. Pure: the result depends on the arguments only. */
enum bdev_nvme_verdict bdev_nvme_io_verdict(uint16_t status, const struct bdev_nvme_verdict_facts *f,
					    uint32_t *delay_ms);

/* Why a namespace with such metadata cannot be a bdev, or NULL. extended: its controller has taken LBAFEE. Pure. */
const char *bdev_nvme_md_unusable(const struct nvme_ns *ns, bool fabrics, bool extended);
/* The bdev's description of the namespace's metadata. Pure. */
struct bdev_md bdev_nvme_md_of(const struct nvme_ns *ns, const struct bdev_nvme_attach *a);
/* Adds what a command on a namespace with metadata needs: lengths, the metadata buffer, protection information. */
void bdev_nvme_md_set(struct bdev_nvme_io *n, const struct bdev_io *io);
/* Sets PRINFO and tags (NVM 5.2, and dwords 12, 14 and 15 of the commands) as io asks for them; dword 12 has its other
 * bits already. act: the controller generates and strips protection information (PRACT). Pure. */
void bdev_nvme_md_set_pi(struct nvme_sqe *cmd, const struct bdev_md *md, const struct bdev_io *io, bool act);

/* Have the control thread carry out an admin command, an Abort of target, a reset of all controllers of the bdev. The
 * channel's thread; n is completed there. */
void bdev_nvme_cmd_admin(struct bdev_nvme_io *n);
void bdev_nvme_cmd_abort(struct bdev_nvme_io *n, struct bdev_nvme_io *target);
void bdev_nvme_cmd_reset(struct bdev_nvme_io *n);
/* Sends an Abort command. done(arg, aborted) may be called before this returns. Control thread. */
void bdev_nvme_cmd_send_abort(struct bdev_nvme *c, uint16_t sqid, uint16_t cid, void (*done)(void *arg, bool aborted),
			      void *arg);
/* Checks an admin command that is passed through: 0 or the status that it is refused with. fabrics: the controller
 * cannot move more data than the command's data pointer describes. Pure. */
uint16_t bdev_nvme_cmd_check_admin(const struct nvme_sqe *cmd, uint64_t data_len, bool fabrics);
/* Checks an I/O command that is passed through to a namespace of that format, likewise. */
uint16_t bdev_nvme_cmd_check_io(const struct nvme_sqe *cmd, uint64_t data_len, uint64_t md_len,
				const struct nvme_ns *ns);
/* Checks a vendor specific command, admin or I/O, likewise. Without fabrics the controller has to use the standard's
 * format for such commands (has_size), in which the command says how much it moves. */
uint16_t bdev_nvme_cmd_check_vendor(const struct nvme_sqe *cmd, uint64_t data_len, bool fabrics, bool has_size);
#define BDEV_NVME_CMD_VENDOR_IO    0x80 /* opcodes from here on (NVM 3.2, Base 5) */
#define BDEV_NVME_CMD_VENDOR_ADMIN 0xc0
/* A raw I/O command was lost with its queue pair: it ends with a path error when f is done. */
void bdev_nvme_cmd_raw_hold(struct bdev_nvme_io *n, struct bdev_nvme_fence *f);
/* The end of a raw I/O command: calls its owner and frees n. */
void bdev_nvme_cmd_raw_complete(struct bdev_nvme_io *n, uint16_t status, uint32_t cdw0);

/* --- Statistics: stat.c --- */

/* Allocates what the options ask for: 0 or -ENOMEM. Control thread. */
int bdev_nvme_stat_init(struct bdev_nvme_ns *d);
void bdev_nvme_stat_free(struct bdev_nvme_ns *d);
/* A command of n has ended with an error, which may yet be repeated. The channel's thread. */
void bdev_nvme_stat_error(struct bdev_nvme_io *n, uint16_t status);
/* n, which is counted, has been carried out by the controller of n->qpair. The channel's thread. */
void bdev_nvme_stat_io(struct bdev_nvme_io *n);
/* n->counted, for a channel that counts. The channel's thread. */
void bdev_nvme_stat_begin(struct bdev_nvme_io *n, const struct bdev_io *io);
/* Allocates the statistics of a path, or of a channel's copy of one. NULL: no memory. */
struct bdev_stat_ops *bdev_nvme_stat_alloc(void);
/* Hands the channel's numbers over to its paths, which exist. d->mutex is held. The channel's thread. */
void bdev_nvme_stat_hand_over(struct bdev_nvme_channel *ch);
/* The bdev's dump_stat and reset_stat functions. */
struct json_t;
void bdev_nvme_stat_dump(const struct bdev *b, struct json_t *driver_specific);
void bdev_nvme_stat_reset(struct bdev *b);

/* --- A thread's queue pair to a controller --- */

enum bdev_nvme_qpair_state {
	BDEV_NVME_QPAIR_IDLE, /* not connected */
	BDEV_NVME_QPAIR_CONNECTING,
	BDEV_NVME_QPAIR_UP,
	BDEV_NVME_QPAIR_STOPPING,
	BDEV_NVME_QPAIR_STATES,
};

#define BDEV_NVME_QPAIR_RANGES 64 /* Dataset Management and Copy commands that may be outstanding */

union bdev_nvme_range {
	struct nvme_dsm_range dsm;
	struct nvme_copy_range copy;
};

/* Why the controller does not serve a thread, although it is up. */
enum bdev_nvme_shut_out {
	BDEV_NVME_ADMITTED, /* it does, or it has not refused often enough */
	BDEV_NVME_NO_QUEUE, /* it has no I/O queue left */
	BDEV_NVME_REFUSED,  /* it refuses this queue pair, and serves those of other threads */
};

/* Made with a thread's first channel to the controller, freed after its last one. Connected while the controller is up;
 * between two connections I/O waits in it or takes other paths. */
struct bdev_nvme_qpair {
	/* The using thread's. First what every I/O touches. */
	struct nvme_qpair *driver_qpair; /* NULL: not connected */
	bool broken;                     /* the driver's queue pair has failed and takes no commands */
	struct bdev_nvme_io_list waiting;
	struct poller *poller;
	uint32_t outstanding; /* commands */
	bool fails;           /* while it is not connected, I/O fails instead of waiting */
	bool pausable;        /* its poller would keep the reactor awake: paused while nothing is outstanding */
	bool paused;
	uint8_t in_use; /* our functions on the stack that use it after calling others */
	bool closing;   /* the channel is gone; leave when in_use is 0 */
	uint64_t polls, idle_polls, completions, queued, retries;
	struct bdev_nvme_fence *fence; /* of the connection that its commands were submitted to; NULL: none are
					  outstanding, or they are not held */
	struct bdev_nvme_io_list delayed;
	struct thread_timer delay_timer;
	union bdev_nvme_range *ranges; /* DMA memory, allocated with the queue pair, freed by the control thread */
	uint8_t ranges_free[BDEV_NVME_QPAIR_RANGES], num_ranges_free;
	LIST_HEAD(, bdev_nvme_channel_path) paths; /* of the channels that use it */
	struct nvme_request *fused;                /* the second command of a fused pair */
	struct bdev_nvme_io *fused_io;

	/* Both threads'. */
	struct bdev_nvme *c;
	struct thread *thread;
	uint64_t thread_id;
	unsigned lcore;
	bool closed; /* atomic: the using thread's last store, after which it does not touch any of this */
	struct thread_msg join_msg, leave_msg, ana_msg;
	bool ana_asked; /* atomic: ana_msg is under way */

	/* The control thread's. */
	struct nvme_qpair *created; /* the driver's, from its connection until it is destroyed */
	enum bdev_nvme_qpair_state state;
	bool left; /* leave_msg has arrived */
	enum bdev_nvme_shut_out shut_out;
	uint8_t refusals; /* in a row, since the controller was connected; MAX_REFUSALS + RETRY_SHIFTS at most */
	struct thread_timer retry_timer;
	TAILQ_ENTRY(bdev_nvme_qpair) link;
};

/* qpair.c */

/* Makes and closes the queue pair of the calling thread; callbacks of the controller's io_device. */
int bdev_nvme_qpair_create(struct io_device *dev, void *channel);
void bdev_nvme_qpair_destroy(struct io_device *dev, void *channel);
/* The queue pair of a channel to a controller. */
struct bdev_nvme_qpair *bdev_nvme_qpair_of(struct io_channel *ch);
/* The using thread is done with qp: hands it to the control thread, which frees it. */
void bdev_nvme_qpair_post_leave(struct bdev_nvme_qpair *qp);
/* Has the control thread read the controller's ANA log. The using thread. */
void bdev_nvme_qpair_ask_ana(struct bdev_nvme_qpair *qp);
/* c is connected anew: queue pairs that it refused on its last connection are tried as if it had not. Control thread.
 */
void bdev_nvme_qpairs_readmit(struct bdev_nvme *c);
/* Connects or stops every queue pair of c as c's state demands. Control thread. */
void bdev_nvme_qpairs_step(struct bdev_nvme *c);
/* Has all threads submit no more commands to c, whose driver is about to disable it. Control thread. */
void bdev_nvme_qpairs_suspend(struct bdev_nvme *c);
/* How many commands of c are outstanding, on all threads. Control thread. */
uint32_t bdev_nvme_qpairs_outstanding(struct bdev_nvme *c);
/* Whether none of c's queue pairs is connected, connecting or stopping. Control thread. */
bool bdev_nvme_qpairs_are_idle(const struct bdev_nvme *c);
/* Whether I/O without a connected queue pair of c fails or waits; tells all threads. Control thread. */
void bdev_nvme_qpairs_set_fails(struct bdev_nvme *c, bool fails);

/* channel.c. The channel's thread. */

/* Submits an I/O on the path that the policy chooses; queues it if there may be a usable path later, and fails it
 * otherwise. */
void bdev_nvme_channel_submit(struct bdev_nvme_channel *ch, struct bdev_nvme_io *n);
/* The queue pair of the path for the next I/O, or NULL if no path is usable. */
struct bdev_nvme_qpair *bdev_nvme_channel_pick_qpair(struct bdev_nvme_channel *ch);
/* The queue pair of the best usable path that does not use qp, or NULL. */
struct bdev_nvme_qpair *bdev_nvme_channel_other_qpair(const struct bdev_nvme_channel *ch,
						      const struct bdev_nvme_qpair *qp);
/* A Flush has succeeded at the controller of n->qpair: submits it to the next one with a write cache, of those that can
 * be reached. False: there is none. */
bool bdev_nvme_channel_flush_next(struct bdev_nvme_io *n);
/* The controller of qp refused a command of ch for want of access: its path is not used until its ANA log has been
 * read. */
void bdev_nvme_channel_mark_stale(struct bdev_nvme_channel *ch, const struct bdev_nvme_qpair *qp);
/* qp was connected, disconnected, has broken, or began to fail: the channels that use it choose again, and resubmit
 * what waits in them. */
void bdev_nvme_channels_qpair_changed(struct bdev_nvme_qpair *qp);
/* Chooses the path for the I/O to come. */
void bdev_nvme_channel_choose(struct bdev_nvme_channel *ch);
/* A path of ch or its policy has changed: ch chooses again, and resubmits what waits in it. */
void bdev_nvme_channel_paths_changed(struct bdev_nvme_channel *ch);
/* Whether I/O can take the path now. */
bool bdev_nvme_channel_path_is_usable(const struct bdev_nvme_channel_path *cp);
/* Takes n off the list on which it waits; false if it is not waiting. */
bool bdev_nvme_channel_take_back(struct bdev_nvme_channel *ch, struct bdev_nvme_io *n);
/* Holds n, which was lost with its queue pair, until f is done. */
void bdev_nvme_channel_hold(struct bdev_nvme_channel *ch, struct bdev_nvme_io *n, struct bdev_nvme_fence *f);
/* f is done: submits or completes what it has held. */
void bdev_nvme_channel_release_held(struct bdev_nvme_channel *ch, struct bdev_nvme_fence *f);
/* Ends with status every I/O of ch that waits. What is held ends with it when its fence is done. */
void bdev_nvme_channel_fail_waiting(struct bdev_nvme_channel *ch, uint16_t status);
/* Adds a path to the channel, with a reference to the thread's queue pair: 0, -ENOMEM or -ENOSPC. */
int bdev_nvme_channel_path_open(struct bdev_nvme_channel *ch, struct bdev_nvme_path *path);
/* Removes it. */
void bdev_nvme_channel_path_close(struct bdev_nvme_channel_path *cp);
static inline struct bdev_nvme_channel *bdev_nvme_io_channel(struct bdev_nvme_io *n)
{
	return bdev_channel_ctx(bdev_io_from_ctx(n)->ch);
}

/* qpair_io.c. The using thread. */

/* Submits n, or queues it until there is room in qp. */
void bdev_nvme_qpair_submit(struct bdev_nvme_qpair *qp, struct bdev_nvme_io *n);
/* Submits n again after delay_ms, on any path. */
void bdev_nvme_qpair_delay(struct bdev_nvme_qpair *qp, struct bdev_nvme_io *n, uint32_t delay_ms);
/* Has the I/O of ch (NULL: of all channels) that waits in qp choose a path again. */
void bdev_nvme_qpair_redistribute(struct bdev_nvme_qpair *qp, const struct bdev_nvme_channel *ch);
/* Takes n off the list of qp on which it waits; false if it is not waiting. */
bool bdev_nvme_qpair_take_back(struct bdev_nvme_qpair *qp, struct bdev_nvme_io *n);
/* Ends with status the I/O of ch that waits in qp. */
void bdev_nvme_qpair_fail_channel(struct bdev_nvme_qpair *qp, const struct bdev_nvme_channel *ch, uint16_t status);
/* Called by the control thread through thread_call(), with the queue pair: use the driver's queue pair (created); stop
 * using it; complete what is outstanding on it as aborted; look at c->io_fails and shut_out. */
void bdev_nvme_qpair_attach(void *qpair);
void bdev_nvme_qpair_detach(void *qpair);
void bdev_nvme_qpair_abort_all(void *qpair);
/* The driver's queue pair takes no new commands from now on; it is still polled. */
void bdev_nvme_qpair_suspend(void *qpair);
void bdev_nvme_qpair_set_fails(void *qpair);
/* Sets up the using thread's part. */
void bdev_nvme_qpair_init(struct bdev_nvme_qpair *qp);
/* Ends it. */
void bdev_nvme_qpair_leave(struct bdev_nvme_qpair *qp);
/* Around code that uses qp after calling functions which may close its last channel: qp is not left before the
 * outermost exit. After exit qp may have been freed. */
void bdev_nvme_qpair_enter(struct bdev_nvme_qpair *qp);
void bdev_nvme_qpair_exit(struct bdev_nvme_qpair *qp);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Block devices on NVMe controllers: PCIe drives and NVMe-oF subsystems.
 *
 * A controller is attached under a name; it may be lost and connected again, or fail, and it is detached in the end.
 * Its namespaces' bdevs are registered as long as the namespaces exist, also while the controller is not connected: I/O
 * waits until then. Several controllers of one subsystem may have one name: each is a path to the namespaces that they
 * share. All functions are called on the control thread, and all callbacks are made there. */
#ifndef BDEV_BDEV_NVME_H
#define BDEV_BDEV_NVME_H

#include "bdev/bdev.h"
#include "nvme/nvme.h"

#define BDEV_NVME_KEY_MAX  64 /* bytes of a key's name, with the NUL */
#define BDEV_NVME_NAME_MAX 64 /* bytes of a controller's name, with the NUL */

struct bdev_nvme; /* a controller */
struct json_t;

/* The driver counts milliseconds, in 32 bits, and turns them into ticks. */
#define BDEV_NVME_TIMEOUT_MAX_US (INT32_MAX * UINT64_C(1000))

/* What to do with I/O that takes longer than timeout_us. */
enum bdev_nvme_timeout_action {
	BDEV_NVME_TIMEOUT_NONE,  /* nothing */
	BDEV_NVME_TIMEOUT_RESET, /* reset the controller */
	BDEV_NVME_TIMEOUT_ABORT, /* abort it; if it has not ended after the same time again, reset the controller */
};

/* How the I/O of a bdev with several paths is spread over them. Paths with optimized access are always used before
 * paths without (asymmetric namespace access). */
struct bdev_nvme_policy {
	bool active_active; /* use all paths; false: one, which is the preferred one or the first that was attached */
	bool queue_depth;   /* active_active: the path with the fewest commands outstanding; false: round robin */
	uint32_t rr_min_io; /* round robin: how many I/Os in a row a path gets; at least 1 */
};

/* Options of the controllers that are attached later. */
struct bdev_nvme_options {
	enum bdev_nvme_timeout_action action_on_timeout;
	uint64_t timeout_us;       /* of I/O; 0: none, whatever action_on_timeout is. Up to BDEV_NVME_TIMEOUT_MAX_US */
	uint64_t timeout_admin_us; /* of admin commands; 0: the driver's default, 30 s; otherwise 1000 to
				      BDEV_NVME_TIMEOUT_MAX_US */
	uint32_t keep_alive_timeout_ms;
	int32_t bdev_retry_count; /* how often I/O whose status allows a retry is submitted again; -1: no limit */
	int32_t ctrlr_loss_timeout_sec;
	uint32_t reconnect_delay_sec;
	uint32_t fast_io_fail_timeout_sec;
	unsigned dhchap_hashes, dhchap_groups; /* sets of dhchap/'s that are offered; 0: all */
	struct bdev_nvme_policy policy;        /* of bdevs whose controllers are attached without one */
	bool disable_auto_failback; /* active-passive: I/O stays on the path that it takes when a better one is
				       connected again, as long as both have the same access */
	/* Arbitration feature (Base 5.27.1.1), in its own units; all 0: the controller's setting stays. */
	uint8_t arbitration_burst, low_priority_weight, medium_priority_weight, high_priority_weight;
	uint64_t adminq_poll_period_us;   /* 0: the driver's default */
	uint32_t io_queue_requests;       /* no effect; kept for clients that read it back: there is no such pool */
	bool io_path_stat;                /* statistics by path: bdev_nvme_for_each_path_stat() */
	bool nvme_error_stat;             /* counts of commands that ended with an error, by status */
	bool enable_flush;                /* no effect, likewise: flushes are never left out */
	int32_t fence_timeout_ms;         /* struct bdev_nvme_attach */
	uint32_t default_quiesce_time_ms; /* likewise */
	/* nvme_ctrlr_opts.rdma_*. */
	uint8_t rdma_retry_count, rdma_ack_timeout, rdma_tos;
	uint16_t rdma_cm_timeout_ms;
};
/* The options in force. */
void bdev_nvme_get_options(struct bdev_nvme_options *opts);
/* The options of a new process. */
void bdev_nvme_default_options(struct bdev_nvme_options *opts);
/* Replaces the options. 0; -EINVAL and error; -EBUSY and error: a controller is attached. */
int bdev_nvme_set_options(const struct bdev_nvme_options *opts, char error[BDEV_ERROR_MAX]);

/* What to do if a controller of that name is attached already. */
enum bdev_nvme_multipath {
	BDEV_NVME_MULTIPATH, /* attach this one as well: another path */
	BDEV_NVME_FAILOVER,  /* use this address for the attached controller when its own does not answer */
	BDEV_NVME_DISABLE,   /* refuse */
};

/* What a controller is attached with. Three timeouts, in seconds, count from the loss of its connection:
 *     - ctrlr_loss_timeout_sec: -1: it is reconnected without a limit. 0: one attempt is made; if that fails, the
 *       controller stays as failed until it is reset or detached. Otherwise it is detached after that time.
 *     - reconnect_delay_sec: between attempts; 0 only if ctrlr_loss_timeout_sec is 0.
 *     - fast_io_fail_timeout_sec: after that time I/O that waits for the controller fails, and so does new I/O; 0: I/O
 *       waits until the controller is connected or given up. */
struct bdev_nvme_attach {
	const char *name; /* [1, BDEV_NVME_NAME_MAX) bytes; copied */
	struct nvme_trid trid;
	char hostnqn[NVME_NQN_MAX]; /* "": the machine's */
	enum bdev_nvme_multipath multipath;
	bool discovered;   /* by a discovery service, which attaches it again after a restart */
	bool policy_given; /* policy is for the bdevs that this name will have */
	struct bdev_nvme_policy policy;
	uint32_t num_io_queues; /* to ask the controller for */
	uint32_t connect_timeout_ms;
	int32_t ctrlr_loss_timeout_sec;
	uint32_t reconnect_delay_sec;
	uint32_t fast_io_fail_timeout_sec;
	/* How long commands that change data and were lost with a controller over fabrics wait for the proof that it
	 * has ended, before they are submitted elsewhere or fail, in ms. -1: as long as the standard says it takes at
	 * most (bdev_nvme_fence_time_ms()). 0: not at all: then a command of a lost controller may land behind newer
	 * ones. */
	int32_t fence_timeout_ms; /* at most BDEV_NVME_FENCE_MAX_MS */
	/* The Command Quiesce Time to assume of a controller that reports none, in ms. */
	uint32_t default_quiesce_time_ms; /* at most BDEV_NVME_FENCE_MAX_MS */
	bool prchk_guard, prchk_reftag;   /* the controller checks this of blocks with protection information, unless an
					     I/O says what to check */
	bool hdgst, ddgst;                /* TCP: nvme_ctrlr_opts.tcp_*_digest */
	bool disable_sq_flow_control;     /* nvme_ctrlr_opts.disable_sq_flow_control */
	int priority;                     /* TCP: nvme_ctrlr_opts.tcp_priority; 0 to BDEV_NVME_PRIORITY_MAX */
	uint32_t max_bdevs;               /* a controller with more namespaces is refused; 0: no limit */
	/* Names of keys in the keyring: the host proves to the controller that it has the first, the controller to the
	 * host that it has the second. "": no authentication. */
	char dhchap_key[BDEV_NVME_KEY_MAX], dhchap_ctrlr_key[BDEV_NVME_KEY_MAX];
	/* TCP: the name of a key in the keyring by which connections are made over TLS. "": they are not encrypted. */
	char psk[BDEV_NVME_KEY_MAX];
	bool psk_compat; /* nvme_ctrlr_opts.tcp_psk_compat */
	bool concat;     /* nvme_ctrlr_opts.tcp_concat */
};
#define BDEV_NVME_FENCE_MAX_MS  3600000
#define BDEV_NVME_PRIORITY_MAX  15  /* Linux has as many */
#define BDEV_NVME_IO_QUEUES     128 /* the default, and most targets' limit */
#define BDEV_NVME_IO_QUEUES_MAX 1024
/* Defaults, by the options in force. */
void bdev_nvme_attach_default(struct bdev_nvme_attach *a);

/* rc 0: c has been attached; otherwise error says why not. */
typedef void (*bdev_nvme_attached_cb)(void *arg, int rc, struct bdev_nvme *c, const char *error);
/* Attaches a controller and registers the bdevs of its namespaces. Calls cb once: before this returns if an argument is
 * wrong, otherwise later. */
void bdev_nvme_attach(const struct bdev_nvme_attach *a, bdev_nvme_attached_cb cb, void *arg);

/* rc 0, or a negative errno and error. */
typedef void (*bdev_nvme_done_cb)(void *arg, int rc, const char *error);
/* Detaches a controller: removes the bdevs that have no other path, shuts the controller down and frees it. Calls cb
 * when all that has happened. -EBUSY: it is still being attached. */
void bdev_nvme_detach(struct bdev_nvme *c, bdev_nvme_done_cb cb, void *arg);
/* Gives other keys, "" for none, to every controller of c's name, and authenticates each with them while its I/O goes
 * on. Calls cb when all are authenticated; a controller whose authentication fails keeps its keys, and cb is told the
 * first such error. */
void bdev_nvme_set_keys(struct bdev_nvme *c, const char *key_name, const char *ctrlr_key_name, bdev_nvme_done_cb cb,
			void *arg);
/* Resets a controller. Calls cb when it is ready again, or when an attempt to connect it has failed. */
void bdev_nvme_reset(struct bdev_nvme *c, bdev_nvme_done_cb cb, void *arg);
/* Takes a controller out of use: disables it and ends its connection. Its I/O takes other paths, or fails if there is
 * none; what it may still carry out is waited for as after any loss (its fence). It stays attached. Calls cb when it is
 * disabled; a reset or an attempt to connect it that is under way ends, and those who wait for that are told so.
 * -EALREADY: it is disabled; -EBUSY: it is being attached or detached. */
void bdev_nvme_disable(struct bdev_nvme *c, bdev_nvme_done_cb cb, void *arg);
/* Connects a disabled controller again. Calls cb as bdev_nvme_reset() does. -EALREADY: it is not disabled; -EBUSY: it
 * is still being disabled, attached or detached. */
void bdev_nvme_enable(struct bdev_nvme *c, bdev_nvme_done_cb cb, void *arg);
/* A reset by an NVM subsystem reset; -ENOTSUP: the controller does not have it. */
void bdev_nvme_reset_subsystem(struct bdev_nvme *c, bdev_nvme_done_cb cb, void *arg);

/* Whether drives are attached, as HotInNvme0, HotInNvme1 and so on, as soon as they are bound to vfio-pci or
 * uio_pci_generic; enabling it attaches those that are bound already. 0, or a negative errno: the kernel's events
 * cannot be received. */
int bdev_nvme_set_hotplug(bool enable);
/* Whether it is enabled. */
bool bdev_nvme_hotplug(void);

/* The first controller of that name that is connected, or the first one if none is; NULL: there is none. */
struct bdev_nvme *bdev_nvme_find(const char *name);
/* The next one of the same name; NULL: none. */
struct bdev_nvme *bdev_nvme_sibling(const struct bdev_nvme *c);
/* The previous one of the same name; NULL: none. */
struct bdev_nvme *bdev_nvme_previous(const struct bdev_nvme *c);
/* Whether it is the first one of its name. */
bool bdev_nvme_is_first(const struct bdev_nvme *c);
/* Whether trid is one of its addresses: the one in use, or an alternate one. */
bool bdev_nvme_has_address(const struct bdev_nvme *c, const struct nvme_trid *trid);
/* Removes one of several addresses of a controller (BDEV_NVME_FAILOVER); false if it has only one. */
bool bdev_nvme_drop_address(struct bdev_nvme *c, const struct nvme_trid *trid);
/* All controllers, one by one; after NULL: the first. NULL: no more. */
struct bdev_nvme *bdev_nvme_next(const struct bdev_nvme *after);
/* The name it was attached under. */
const char *bdev_nvme_name(const struct bdev_nvme *c);
/* "enabled", "disabled", "resetting", "reconnect_is_delayed", "failed", "deleting", "attaching". */
const char *bdev_nvme_state_name(const struct bdev_nvme *c);
/* When it entered its state, as env_ticks(). */
uint64_t bdev_nvme_state_ticks(const struct bdev_nvme *c);
/* What it was attached with; trid is the address in use. */
const struct bdev_nvme_attach *bdev_nvme_attached(const struct bdev_nvme *c);
/* The driver's controller; NULL once that is destroyed. */
struct nvme_ctrlr *bdev_nvme_ctrlr(const struct bdev_nvme *c);
/* How often it was lost or reset. */
uint32_t bdev_nvme_resets(const struct bdev_nvme *c);
/* The bdevs of its name, by namespace id; after NULL: the first. NULL: no more. */
const struct bdev *bdev_nvme_bdev_next(const struct bdev_nvme *c, const struct bdev *after);

/* Changes the policy of b, on all its channels. 0; -ENODEV: b is not a bdev of this module; -EINVAL. */
int bdev_nvme_set_policy(struct bdev *b, const struct bdev_nvme_policy *policy, char error[BDEV_ERROR_MAX]);
/* The policy of a bdev of this module. */
const struct bdev_nvme_policy *bdev_nvme_get_policy(const struct bdev *b);
/* The policy of bdevs that are registered under c's name from now on. */
const struct bdev_nvme_policy *bdev_nvme_policy_to_come(const struct bdev_nvme *c);
/* Whether two policies are the same. */
bool bdev_nvme_policy_equal(const struct bdev_nvme_policy *a, const struct bdev_nvme_policy *b);
/* Has b's I/O take the path through the controller of that id while it is usable. -ENODEV: no path is through one. */
int bdev_nvme_set_preferred(struct bdev *b, uint16_t cntlid, char error[BDEV_ERROR_MAX]);

/* A path of a bdev as one thread's channel has it. */
struct bdev_nvme_io_path {
	const struct bdev *bdev;
	const struct bdev_nvme *ctrlr;
	const char *thread_name;
	uint64_t thread_id;
	bool current;    /* the thread's I/O takes it now */
	bool connected;  /* it has a queue pair */
	bool accessible; /* it is usable: connected, with access */
	bool preferred;
	enum nvme_ana_state ana;
};
/* Calls fn(arg, ...) for each channel of b and each of its paths. */
void bdev_nvme_for_each_io_path(struct bdev *b, void (*fn)(void *arg, const struct bdev_nvme_io_path *path), void *arg);
/* Calls fn(arg, the path's address, its statistics) for each path of b: I/O that its controller has carried out with
 * success, since the path was added. Times are from the start of the round in which the I/O was submitted to the bdev
 * to its end. 0; -EPERM: b was made without the option io_path_stat. */
int bdev_nvme_for_each_path_stat(struct bdev *b,
				 void (*fn)(void *arg, const struct nvme_trid *trid,
					    const struct bdev_stat_ops class[BDEV_STAT_CLASSES]),
				 void *arg);
/* "optimized", "non_optimized" and so on. */
const char *bdev_nvme_ana_name(enum nvme_ana_state state);
/* The id of a bdev's namespace. */
uint32_t bdev_nvme_nsid(const struct bdev *b);
/* Whether b is a bdev of this module. */
bool bdev_nvme_is(const struct bdev *b);

/* A discovery service. The subsystems in a discovery controller's log are attached as NAME0, NAME1 and so on, one name
 * for each subsystem, with a path for each address; what the log does not list any more is detached. Discovery
 * controllers that the log refers to are asked too. Lost discovery controllers are connected again, without a limit. */
struct bdev_nvme_discovery;
struct bdev_nvme_discovery_opts {
	const char *name;               /* [1, 50] bytes; copied */
	struct nvme_trid trid;          /* of the discovery controller, with its NQN */
	char hostnqn[NVME_NQN_MAX];     /* "": the machine's */
	bool wait_for_attach;           /* cb is called when all that is listed has been attached, or has failed to */
	uint64_t attach_timeout_ms;     /* the same, and after that time the service ends with an error; 0: no limit */
	int32_t ctrlr_loss_timeout_sec; /* of the controllers that are attached */
	uint32_t reconnect_delay_sec, fast_io_fail_timeout_sec;
	bool hdgst, ddgst; /* TCP: nvme_ctrlr_opts.tcp_*_digest, also of the discovery controllers */
	/* TCP: the name of the key by which the controllers that are attached are connected over TLS, not the discovery
	 * controllers, which have no hosts and no keys. "": they are not encrypted. */
	char psk[BDEV_NVME_KEY_MAX];
};
#define BDEV_NVME_DISCOVERY_NQN "nqn.2014-08.org.nvmexpress.discovery"
/* Starts a service. Calls cb once, as wait_for_attach says. */
void bdev_nvme_discovery_start(const struct bdev_nvme_discovery_opts *opts, bdev_nvme_done_cb cb, void *arg);
/* Detaches what the service has attached, and ends it. */
void bdev_nvme_discovery_stop(struct bdev_nvme_discovery *s, bdev_nvme_done_cb cb, void *arg);
/* The service of that name, or NULL. */
struct bdev_nvme_discovery *bdev_nvme_discovery_find(const char *name);
/* All services, one by one; after NULL: the first. NULL: no more. */
struct bdev_nvme_discovery *bdev_nvme_discovery_next(const struct bdev_nvme_discovery *after);
/* What it was started with. */
const struct bdev_nvme_discovery_opts *bdev_nvme_discovery_opts(const struct bdev_nvme_discovery *s);
/* Calls fn for each discovery controller: the one that was named first, then those that logs refer to (referral). */
void bdev_nvme_discovery_for_each_source(const struct bdev_nvme_discovery *s,
					 void (*fn)(void *arg, const struct nvme_trid *trid,
						    const struct nvme_ctrlr *ctrlr, bool referral),
					 void *arg);
/* Calls fn for each subsystem's address that is listed: name is what it is attached as, "" if it has no name yet. */
void bdev_nvme_discovery_for_each_entry(const struct bdev_nvme_discovery *s,
					void (*fn)(void *arg, const struct nvme_trid *trid, const char *name,
						   const char *state),
					void *arg);

/* A raw command, as the RPC method bdev_nvme_send_cmd sends one. */
struct bdev_nvme_raw {
	struct nvme_sqe cmd;
	bool io; /* through an I/O queue; false: through the admin queue */
	bool to_device;
	void *data;        /* read before, or written after, by the direction; the caller's until cb */
	uint32_t data_len; /* at most BDEV_NVME_RAW_MAX */
	void *md;          /* separate metadata, likewise; io on PCIe only */
	uint32_t md_len;
};
#define BDEV_NVME_RAW_MAX (UINT32_C(1) << 20)
/* rc 0 and the completion, or a negative errno. */
typedef void (*bdev_nvme_raw_cb)(void *arg, int rc, const struct nvme_cqe *cqe);
/* Sends it. A command whose lengths do not agree with its buffers is not sent: cb is called at once, with the status
 * that a controller would answer. */
void bdev_nvme_send(struct bdev_nvme *c, const struct bdev_nvme_raw *raw, bdev_nvme_raw_cb cb, void *arg);

/* What a thread's queue pair to a controller has done. */
struct bdev_nvme_qpair_stat {
	const char *thread_name;
	uint64_t thread_id;
	uint16_t qid; /* 0: not connected */
	uint64_t polls, idle_polls, completions, queued_requests, retries;
	uint32_t outstanding, waiting;
};
/* Calls fn(arg, ...) for each queue pair of c. */
void bdev_nvme_for_each_qpair(struct bdev_nvme *c, void (*fn)(void *arg, const struct bdev_nvme_qpair_stat *stat),
			      void *arg);

/* Events of controllers, for notifications. */
enum bdev_nvme_news {
	BDEV_NVME_CONNECTED, /* for the first time, or again */
	BDEV_NVME_LOST,
	BDEV_NVME_FAILED,
	BDEV_NVME_DETACHED,
	BDEV_NVME_PATH_LOST, /* the connection by one address */
	BDEV_NVME_PATH_REGAINED,
	BDEV_NVME_HEALTH,   /* its SMART log has a warning, which why names */
	BDEV_NVME_DISABLED, /* by bdev_nvme_disable() */
};
/* path: the address, with BDEV_NVME_PATH_*; otherwise NULL. why: the reason; NULL if the news explains itself. */
typedef void (*bdev_nvme_news_fn)(const struct bdev_nvme *c, enum bdev_nvme_news news, const struct nvme_trid *path,
				  const char *why);
/* A fence that has begun and is not done: a lost controller may still carry out commands, and some are held for it. */
struct bdev_nvme_fence_info {
	const void *position; /* private */
	const char *name;     /* the controller's, which may have been detached meanwhile */
	const struct nvme_trid *trid;
	uint16_t cntlid;
	const char *state;
	uint32_t held;            /* commands */
	uint64_t age_ms, left_ms; /* left: until time is over; 0: not known yet */
};
/* The fences one by one: fills in *info and returns it; after NULL: the first. NULL: no more. */
const struct bdev_nvme_fence_info *bdev_nvme_fence_next(const struct bdev_nvme_fence_info *after,
							struct bdev_nvme_fence_info *info);
/* How a fence ended. */
enum bdev_nvme_fence_end {
	BDEV_NVME_FENCE_END_DISABLED,    /* the controller was disabled */
	BDEV_NVME_FENCE_END_CROSS_RESET, /* another controller of the subsystem has reset it */
	BDEV_NVME_FENCE_END_TIME,        /* its time is over */
	BDEV_NVME_FENCE_END_NOT_WAITED,  /* fence_timeout_ms is 0: nothing was waited for */
	BDEV_NVME_FENCE_END_UNNEEDED,    /* the last controller of its name was detached: nothing waits for it */
	BDEV_NVME_FENCE_ENDS,
};
/* Fences since the process began. */
struct bdev_nvme_fence_stat {
	uint64_t ends[BDEV_NVME_FENCE_ENDS]; /* fences that have ended, by enum bdev_nvme_fence_end */
	uint64_t commands_total;             /* commands of bdevs that were held, those that are held now included */
	uint32_t fences, held;               /* fences that have begun and are not done, and the commands they hold */
};
/* Fills in *stat. Control thread. */
void bdev_nvme_get_fence_stat(struct bdev_nvme_fence_stat *stat);
/* "disabled", "cross_reset", "time", "not_waited", "unneeded"; "unknown" for other numbers. Any thread. */
const char *bdev_nvme_fence_end_name(unsigned end);
/* "none", "disabling", "cross_reset", "waiting", "done"; "unknown" for other numbers. Any thread. */
const char *bdev_nvme_fence_state_name(unsigned state);
/* The beginning or the end of a fence, for notifications: what says which, why, and how long it took. */
typedef void (*bdev_nvme_fence_news_fn)(const char *name, const struct nvme_trid *trid, uint16_t cntlid,
					const char *what);
/* Sets the one observer that is told of fences; NULL: none. */
void bdev_nvme_observe_fences(bdev_nvme_fence_news_fn fn);
/* Sets the one observer that is told of events; NULL: none. */
void bdev_nvme_observe(bdev_nvme_news_fn fn);

#endif

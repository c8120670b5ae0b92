/* SPDX-License-Identifier: BSD-3-Clause */
/* Block devices on NVMe controllers, local and remote: one per namespace, named after the controller, Nvme0n1.
 *
 * A controller has a name and a life: it is attached, goes down, comes back or fails, and is detached. Its block
 * devices live as long as their namespaces; while the controller is down, I/O waits. Control thread. */
#ifndef BDEV_BDEV_NVME_H
#define BDEV_BDEV_NVME_H

#include "bdev/bdev.h"
#include "nvme/nvme.h"

#define BDEV_NVME_KEY_MAX  64 /* of a key's name, likewise */
#define BDEV_NVME_NAME_MAX 64 /* of a controller, with the NUL */

struct bdev_nvme; /* a controller */
struct json_t;

/* The driver counts milliseconds, in 32 bits, and turns them into ticks. */
#define BDEV_NVME_TIMEOUT_MAX_US (INT32_MAX * UINT64_C(1000))

/* What to do with I/O that takes longer than timeout_us. */
enum bdev_nvme_timeout_action {
	BDEV_NVME_TIMEOUT_NONE,  /* it takes as long as it takes */
	BDEV_NVME_TIMEOUT_RESET, /* reset the controller */
	BDEV_NVME_TIMEOUT_ABORT, /* abort it; if it is still there after as long again, reset the controller */
};

/* How the I/O of a bdev with several controllers finds its way. In any case those with optimized access come first,
 * those that are not optimized when there are no others. */
struct bdev_nvme_policy {
	bool active_active; /* all of them; otherwise the preferred one, or the first */
	bool queue_depth;   /* the one with the fewest commands outstanding; otherwise one after the other */
	uint32_t rr_min_io; /* of which each gets so many in a row; at least 1 */
};

/* For all controllers that are attached from then on. */
struct bdev_nvme_options {
	enum bdev_nvme_timeout_action action_on_timeout;
	uint64_t timeout_us;       /* of I/O; 0: none, whatever action_on_timeout is. Up to BDEV_NVME_TIMEOUT_MAX_US */
	uint64_t timeout_admin_us; /* of admin commands; 0: as the driver has it, 30 s; otherwise 1000 to
				      BDEV_NVME_TIMEOUT_MAX_US */
	uint32_t keep_alive_timeout_ms;
	int32_t bdev_retry_count; /* of I/O whose status allows a retry; -1: no limit */
	int32_t ctrlr_loss_timeout_sec;
	uint32_t reconnect_delay_sec;
	uint32_t fast_io_fail_timeout_sec;
	unsigned dhchap_hashes, dhchap_groups; /* sets of dhchap/'s that are offered; 0: all */
	struct bdev_nvme_policy policy;        /* of bdevs whose controllers are attached without one */
	bool disable_auto_failback; /* active-passive: a path that is there again is not used before the other one fails
				     */
	/* Arbitration feature (Base 5.27.1.1), in its own units; all 0: it is left as it is. */
	uint8_t arbitration_burst, low_priority_weight, medium_priority_weight, high_priority_weight;
	uint64_t adminq_poll_period_us; /* 0: the driver's */
	uint32_t io_queue_requests;     /* kept for who asks; there is no such pool */
	bool enable_flush;              /* likewise: flushes are never left out */
	/* nvme_ctrlr_opts.rdma_*. */
	uint8_t rdma_retry_count, rdma_ack_timeout, rdma_tos;
	uint16_t rdma_cm_timeout_ms;
};
void bdev_nvme_get_options(struct bdev_nvme_options *opts);
void bdev_nvme_default_options(struct bdev_nvme_options *opts);
/* 0; -EINVAL and error; -EBUSY and error: there are controllers already. */
int bdev_nvme_set_options(const struct bdev_nvme_options *opts, char error[BDEV_ERROR_MAX]);

/* What to do when a controller of that name exists. */
enum bdev_nvme_multipath {
	BDEV_NVME_MULTIPATH, /* both are used */
	BDEV_NVME_FAILOVER,  /* another address for the same controller, for when the first one does not answer */
	BDEV_NVME_DISABLE,   /* nothing: it is refused */
};

/* Timeouts while the controller is away, in seconds:
 *     ctrlr_loss	-1: reconnect for ever. 0: one attempt; if that fails, the controller stays as failed until it
 * is reset or detached. Otherwise after that long the controller is detached. reconnect_delay	between attempts; must
 * not be 0 if ctrlr_loss is not fast_io_fail	after that long, I/O that waits fails, and so does new I/O; 0: it waits
 * as long as there is hope */
struct bdev_nvme_attach {
	const char *name; /* [1, BDEV_NVME_NAME_MAX) bytes; copied */
	struct nvme_trid trid;
	char hostnqn[NVME_NQN_MAX]; /* "": the machine's */
	enum bdev_nvme_multipath multipath;
	bool discovered;   /* by a discovery service, which will do so again */
	bool policy_given; /* policy is of the bdevs that this name will have */
	struct bdev_nvme_policy policy;
	uint32_t num_io_queues; /* asked for */
	uint32_t connect_timeout_ms;
	int32_t ctrlr_loss_timeout_sec;
	uint32_t reconnect_delay_sec;
	uint32_t fast_io_fail_timeout_sec;
	bool prchk_guard, prchk_reftag; /* of blocks with protection information: checked by the controller, unless an
					   I/O says what is to be */
	uint32_t max_bdevs;             /* a controller with more namespaces is refused; 0: no limit */
	/* Names of keys of the keyring: with what we prove who we are, and the controller has to. "": none. */
	char dhchap_key[BDEV_NVME_KEY_MAX], dhchap_ctrlr_key[BDEV_NVME_KEY_MAX];
};
#define BDEV_NVME_IO_QUEUES     128 /* the default, and most targets' limit */
#define BDEV_NVME_IO_QUEUES_MAX 1024
void bdev_nvme_attach_default(struct bdev_nvme_attach *a); /* with the options above */

/* rc 0: c has been attached; otherwise error says why not. */
typedef void (*bdev_nvme_attached_cb)(void *arg, int rc, struct bdev_nvme *c, const char *error);
/* Ends in cb, later (or before it returns, for what is wrong with the arguments). */
void bdev_nvme_attach(const struct bdev_nvme_attach *a, bdev_nvme_attached_cb cb, void *arg);

typedef void (*bdev_nvme_done_cb)(void *arg, int rc, const char *error);
/* Removes its block devices, shuts the controller down and forgets it; cb when all that has happened. */
void bdev_nvme_detach(struct bdev_nvme *c, bdev_nvme_done_cb cb, void *arg);
/* Other keys, "" for none, for every controller of that name; each is authenticated with again beside its I/O. cb when
 * it has been, or, if that fails, why; then the keys stay as they were. */
void bdev_nvme_set_keys(struct bdev_nvme *c, const char *key_name, const char *ctrlr_key_name, bdev_nvme_done_cb cb,
			void *arg);
/* cb when the controller is ready again, or when an attempt to make it so has failed. */
void bdev_nvme_reset(struct bdev_nvme *c, bdev_nvme_done_cb cb, void *arg);
/* The same by an NVM subsystem reset; -ENOTSUP for controllers without. */
void bdev_nvme_reset_subsystem(struct bdev_nvme *c, bdev_nvme_done_cb cb, void *arg);

/* Whether drives are attached by themselves, as HotInNvme0, HotInNvme1 ..., when they become bound to vfio-pci or
 * uio_pci_generic; those that are so already, and not attached, at once. 0, or a negative errno: the kernel's news
 * cannot be had. */
int bdev_nvme_set_hotplug(bool enable);
bool bdev_nvme_hotplug(void);

/* The first controller of that name, one that is connected if any is. */
struct bdev_nvme *bdev_nvme_find(const char *name);
/* The next one of the same name; NULL: none. */
struct bdev_nvme *bdev_nvme_sibling(const struct bdev_nvme *c);
struct bdev_nvme *bdev_nvme_previous(const struct bdev_nvme *c);
bool bdev_nvme_is_first(const struct bdev_nvme *c); /* of those of its name */
/* Whether it is, or may be, connected at that address. */
bool bdev_nvme_has_address(const struct bdev_nvme *c, const struct nvme_trid *trid);
/* Gives up one of several addresses of a controller (BDEV_NVME_FAILOVER); false if it has only that one. */
bool bdev_nvme_drop_address(struct bdev_nvme *c, const struct nvme_trid *trid);
struct bdev_nvme *bdev_nvme_next(const struct bdev_nvme *after); /* NULL: the first */
const char *bdev_nvme_name(const struct bdev_nvme *c);
/* "enabled", "resetting", "reconnect_is_delayed", "failed", "deleting", "attaching". */
const char *bdev_nvme_state_name(const struct bdev_nvme *c);
uint64_t bdev_nvme_state_ticks(const struct bdev_nvme *c);                    /* when it entered it */
const struct bdev_nvme_attach *bdev_nvme_attached(const struct bdev_nvme *c); /* as it was asked for */
struct nvme_ctrlr *bdev_nvme_ctrlr(const struct bdev_nvme *c);                /* NULL when it is gone */
uint32_t bdev_nvme_resets(const struct bdev_nvme *c);                         /* how often it went down */
/* The block devices of its name, by namespace id; NULL: the first. */
const struct bdev *bdev_nvme_bdev_next(const struct bdev_nvme *c, const struct bdev *after);

/* 0; -ENODEV: b is not one of these; -EINVAL. For b from now on, on all its channels. */
int bdev_nvme_set_policy(struct bdev *b, const struct bdev_nvme_policy *policy, char error[BDEV_ERROR_MAX]);
const struct bdev_nvme_policy *bdev_nvme_get_policy(const struct bdev *b);
/* Of the block devices that its name will have. */
const struct bdev_nvme_policy *bdev_nvme_policy_to_come(const struct bdev_nvme *c);
bool bdev_nvme_policy_equal(const struct bdev_nvme_policy *a, const struct bdev_nvme_policy *b);
/* Has b's I/O go by the controller of that id as long as it can be used. -ENODEV: there is none. */
int bdev_nvme_set_preferred(struct bdev *b, uint16_t cntlid, char error[BDEV_ERROR_MAX]);

/* A way by which I/O of a bdev may go: fn(arg, ...) for each channel and controller. */
struct bdev_nvme_io_path {
	const struct bdev *bdev;
	const struct bdev_nvme *ctrlr;
	const char *thread_name;
	uint64_t thread_id;
	bool current;   /* what it is used now */
	bool connected; /* has a queue pair */
	bool accessible;
	bool preferred;
	enum nvme_ana_state ana;
};
void bdev_nvme_for_each_io_path(struct bdev *b, void (*fn)(void *arg, const struct bdev_nvme_io_path *path), void *arg);
const char *bdev_nvme_ana_name(enum nvme_ana_state state);
uint32_t bdev_nvme_nsid(const struct bdev *b);
bool bdev_nvme_is(const struct bdev *b); /* one of this kind */

/* Discovery services: what a discovery controller lists is attached as NAME0, NAME1 ..., one name for each subsystem,
 * with a path for each address; what it lists no more is detached. What it refers to is asked too. Lost controllers are
 * connected again, without a limit. */
struct bdev_nvme_discovery;
struct bdev_nvme_discovery_opts {
	const char *name;           /* [1, 50] bytes; copied */
	struct nvme_trid trid;      /* of the discovery controller, with its NQN */
	char hostnqn[NVME_NQN_MAX]; /* "": the machine's */
	bool wait_for_attach; /* the start is answered when all that is listed has been attached, or could not be */
	uint64_t attach_timeout_ms;     /* the same, and after so long the service ends with an error; 0: no limit */
	int32_t ctrlr_loss_timeout_sec; /* of what is attached */
	uint32_t reconnect_delay_sec, fast_io_fail_timeout_sec;
};
#define BDEV_NVME_DISCOVERY_NQN "nqn.2014-08.org.nvmexpress.discovery"
void bdev_nvme_discovery_start(const struct bdev_nvme_discovery_opts *opts, bdev_nvme_done_cb cb, void *arg);
/* Detaches what it has attached, and ends it. */
void bdev_nvme_discovery_stop(struct bdev_nvme_discovery *s, bdev_nvme_done_cb cb, void *arg);
struct bdev_nvme_discovery *bdev_nvme_discovery_find(const char *name);
struct bdev_nvme_discovery *bdev_nvme_discovery_next(const struct bdev_nvme_discovery *after); /* NULL: the first */
const struct bdev_nvme_discovery_opts *bdev_nvme_discovery_opts(const struct bdev_nvme_discovery *s);
/* Its discovery controllers: the one that was named, then those that are referred to. */
void bdev_nvme_discovery_for_each_source(const struct bdev_nvme_discovery *s,
					 void (*fn)(void *arg, const struct nvme_trid *trid,
						    const struct nvme_ctrlr *ctrlr, bool referral),
					 void *arg);
/* What they list, the name it is attached as, and how that is. */
void bdev_nvme_discovery_for_each_entry(const struct bdev_nvme_discovery *s,
					void (*fn)(void *arg, const struct nvme_trid *trid, const char *name,
						   const char *state),
					void *arg);

/* Raw commands, as bdev_nvme_send_cmd has them. io: through an I/O queue, else through the admin queue. data is copied
 * in before and out after, as the direction is. cb: rc 0 and the completion, or a negative errno. */
struct bdev_nvme_raw {
	struct nvme_sqe cmd;
	bool io, to_device;
	void *data;
	uint32_t data_len; /* at most BDEV_NVME_RAW_MAX */
	void *md;          /* separate metadata; io on PCIe only; likewise */
	uint32_t md_len;
};
#define BDEV_NVME_RAW_MAX (UINT32_C(1) << 20)
typedef void (*bdev_nvme_raw_cb)(void *arg, int rc, const struct nvme_cqe *cqe);
void bdev_nvme_send(struct bdev_nvme *c, const struct bdev_nvme_raw *raw, bdev_nvme_raw_cb cb, void *arg);

/* What a thread's queue pair to a controller has done; fn(arg, ...) for each one there is. */
struct bdev_nvme_qpair_stat {
	const char *thread_name;
	uint64_t thread_id;
	uint16_t qid; /* 0: not connected */
	uint64_t polls, idle_polls, completions, queued_requests, retries;
	uint32_t outstanding, waiting;
};
void bdev_nvme_for_each_qpair(struct bdev_nvme *c, void (*fn)(void *arg, const struct bdev_nvme_qpair_stat *stat),
			      void *arg);

/* Told of what happens to controllers: for notifications. One at a time; NULL: none. why: NULL if it goes without
 * saying. */
enum bdev_nvme_news {
	BDEV_NVME_CONNECTED, /* for the first time, or again */
	BDEV_NVME_LOST,
	BDEV_NVME_FAILED,
	BDEV_NVME_DETACHED,
	BDEV_NVME_PATH_LOST, /* one way to it; path says which */
	BDEV_NVME_PATH_REGAINED,
	BDEV_NVME_HEALTH, /* its SMART log warns; why says of what */
};
/* path: of the news about a path; otherwise NULL. */
typedef void (*bdev_nvme_news_fn)(const struct bdev_nvme *c, enum bdev_nvme_news news, const struct nvme_trid *path,
				  const char *why);
void bdev_nvme_observe(bdev_nvme_news_fn fn);

#endif

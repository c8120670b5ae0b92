/* SPDX-License-Identifier: BSD-3-Clause */
/* Subsystems, their namespaces and hosts, and the queue of changes of a subsystem: subsystem.c, subsystem_state.c,
 * ns.c, host.c. Control thread. */
#ifndef NVMF_SUBSYSTEM_INTERNAL_H
#define NVMF_SUBSYSTEM_INTERNAL_H

#include "nvmf/ana_internal.h"
#include "nvmf/peer_internal.h"
#include "nvmf/qos_internal.h"
#include "nvmf/transport.h"

struct keyring_key;
struct nvmf_ctrlr;
struct nvmf_ns_resv;

/* ---- Hosts: an access list ---- */

struct nvmf_host {
	TAILQ_ENTRY(nvmf_host) link;
	/* In a subsystem's list: what the host proves itself with, and what the subsystem does. NULL: no proof. */
	struct keyring_key *key, *ctrlr_key;
	/* What its connections over TLS are made with, and the copy that handshakes find; NULL: it has none. */
	struct keyring_key *psk_key;
	struct nvmf_psk *psk;
	char *psk_name;  /* if psk_key is NULL: of a key that the keyring lacks, kept without effect */
	bool psk_compat; /* tls_psk.compat of that copy */
	char nqn[NVMF_NQN_MAX + 1];
};
TAILQ_HEAD(nvmf_hosts, nvmf_host);

/* The entry of a host; NULL: it is not in the list. */
struct nvmf_host *nvmf_hosts_find(const struct nvmf_hosts *hosts, const char *nqn);
/* Adds a host without keys. 0, -EINVAL (not an NQN), -EEXIST, -ENOMEM. */
int nvmf_hosts_add(struct nvmf_hosts *hosts, const char *nqn);
/* Removes a host. 0 or -ENOENT. */
int nvmf_hosts_remove(struct nvmf_hosts *hosts, const char *nqn);
/* Removes all hosts. */
void nvmf_hosts_free(struct nvmf_hosts *hosts);
/* The NQN after one in the list; NULL: the first. NULL when there are no more. */
const char *nvmf_hosts_next(const struct nvmf_hosts *hosts, const char *after);

/* Adds an entry, without a key, to those that nvmf_psk_find() looks at. NULL: no memory. */
struct nvmf_psk *nvmf_psk_add(const struct nvmf_tgt *tgt, const char *hostnqn, const char *subnqn);
/* Sets or replaces its key. */
void nvmf_psk_set(struct nvmf_psk *p, const struct tls_psk *psk);
/* Removes it, and overwrites its key. NULL is ignored. */
void nvmf_psk_remove(struct nvmf_psk *p);

/* Secure channel concatenation. Keeps a PSK that was generated in the authentication of a host of s:
 * dhchap_hash_bytes(hash) bytes. Handshakes do not find it yet. replaces: the controller for which nvmf_psk_replace()
 * is called later; if there is no room, its present PSK is removed now, and the new one takes that place. NULL for
 * nvmf_psk_publish(). Returns NULL: no memory; or no room, as the log says. */
struct nvmf_psk *nvmf_psk_generate(struct nvmf_subsystem *s, const struct nvmf_host *host, unsigned hash,
				   const uint8_t *bytes, const struct nvmf_ctrlr *replaces);
/* Frees one that handshakes were never to find. NULL is ignored. */
void nvmf_psk_discard(struct nvmf_psk *p);
#define NVMF_PSK_UNUSED_S 120
/* Handshakes find it from now on, for NVMF_PSK_UNUSED_S seconds, and then for as long as it is in force for a
 * controller: nvmf_ctrlr.psk_digest. */
void nvmf_psk_publish(struct nvmf_psk *p, const struct nvmf_host *host);
/* The same; and removes the PSK that was in force for the controller. */
void nvmf_psk_replace(struct nvmf_psk *p, const struct nvmf_host *host, struct nvmf_ctrlr *ctrlr);
/* Removes those whose time is over. now: ticks (env_ticks()). A timer of psk.c calls it; so do tests. */
void nvmf_psk_expire(uint64_t now);
/* The host has other keys, or is being removed: removes all of its generated PSKs. */
void nvmf_psk_forget_generated(const struct nvmf_host *host);

/* ---- Namespaces ---- */

struct nvmf_ns {
	struct nvmf_subsystem *subsystem;
	uint32_t nsid;
	struct nvmf_ns_opts opts;
	struct bdev_desc *desc;
	struct bdev *bdev;
	struct nvmf_geometry geo;
	struct nvmf_hosts hosts;   /* opts.no_auto_visible: who sees it */
	bool removing;             /* its removal is in the subsystem's queue */
	bool going;                /* its removal has begun: no host sees it */
	struct nvmf_op *remove_op; /* allocated beforehand, so that removing needs no memory; NULL once it is queued */
	TAILQ_ENTRY(nvmf_ns) ana_link;
	char *ptpl_file;           /* absolute path of the file that keeps its reservation, or NULL */
	bool ptpl_locked;          /* nvmf_resv_lock() */
	struct nvmf_ns_resv *resv; /* NULL: no host has registered yet */
};

/* Whether a host sees the namespace. */
bool nvmf_ns_visible(const struct nvmf_ns *ns, const char *hostnqn);
/* Closes the bdev and frees the namespace, which is in no view any more. */
void nvmf_ns_free(struct nvmf_ns *ns);
/* Bytes of data of a block. */
uint32_t nvmf_ns_block_size(const struct nvmf_ns *ns);

/* ---- The queue of changes ---- */

enum nvmf_op_kind {
	NVMF_OP_START,
	NVMF_OP_PAUSE,
	NVMF_OP_RESUME,
	NVMF_OP_STOP,
	NVMF_OP_CHANGE, /* pause nsid, apply(), resume */
};

/* One change. The first part is the caller's, the second the queue's. */
struct nvmf_op {
	enum nvmf_op_kind kind;
	const char *what;                                           /* "removal of namespace": for people */
	uint32_t nsid;                                              /* PAUSE, CHANGE */
	int (*apply)(struct nvmf_subsystem *s, struct nvmf_op *op); /* CHANGE */
	void (*removes)(struct nvmf_subsystem *s, uint32_t nsid);   /* CHANGE, a removal: called when it begins */
	nvmf_done_fn done;                                          /* may be NULL */
	void *arg;
	bool for_host;               /* a host's command waits for it: limited to NVMF_DRAIN_US */
	void (*draining)(void *arg); /* for_host: commands are under way that have to end first */

	struct nvmf_subsystem *subsystem;
	uint64_t queued_ticks;
	bool begun;                         /* otherwise it waits for an earlier one */
	enum nvmf_subsystem_state original; /* the subsystem's state when the change began */
	uint32_t pending_views;             /* poll groups' namespaces that still have commands under way */
	bool given_up;                      /* for_host: the limit has passed, and the namespace goes on without the
					       change; messages of views that had drained before still arrive */
	struct thread_timer timer;          /* for_host: the limit; otherwise it is logged when it runs out */
	STAILQ_ENTRY(nvmf_op) link;
};

/* Somebody who waits until certain controllers are gone. */
struct nvmf_ctrlr_waiter {
	bool (*match)(const struct nvmf_ctrlr *ctrlr, const struct nvmf_ctrlr_waiter *w); /* which controllers */
	union { /* what match() compares with */
		uint64_t cirn;
		char hostnqn[NVMF_NQN_MAX + 1];
		struct nvmf_address address;
	};
	nvmf_done_fn done; /* may be NULL */
	void *arg;
	/* Set by nvmf_subsystem_end_ctrlrs(). */
	char why[64]; /* of the controllers' end */
	uint64_t queued_ticks;
	TAILQ_ENTRY(nvmf_ctrlr_waiter) link;
};

/* ---- Subsystems ---- */

/* The controllers whose ids have the same upper byte, by the lower one; NULL: the id is free. */
struct nvmf_cntlid_page {
	unsigned used;
	struct nvmf_ctrlr *ctrlrs[256];
};

#define NVMF_CIRN_BUCKETS 256
LIST_HEAD(nvmf_cirn_bucket, nvmf_ctrlr);

struct nvmf_subsystem {
	struct nvmf_tgt *tgt;
	uint32_t index; /* in the target's subsystems and in each group's views */
	enum nvmf_subtype subtype;
	enum nvmf_subsystem_state state;
	uint64_t state_ticks;
	uint64_t created_ticks;
	bool connectable;           /* started, and not about to stop */
	uint32_t paused_nsid;       /* PAUSED: which namespace; 0: none; NVME_NSID_ALL: all */
	uint64_t drain_us;          /* the limit of a change for a host's command */
	STAILQ_HEAD(, nvmf_op) ops; /* begun or waiting, in the order of the calls */
	bool running_ops;           /* operations are being begun */
	struct nvmf_op *stop_op; /* allocated beforehand, so that stopping the target needs no memory; NULL once it is
				    queued */
	bool views_open;         /* every group has a view of it */
	TAILQ_HEAD(, nvmf_ctrlr_waiter) waiters;
	uint16_t trace_owner;

	char serial_number[NVMF_SN_MAX + 1];
	char model_number[NVMF_MN_MAX + 1];
	char admin_label[NVMF_ADMIN_LABEL_MAX + 1];
	bool allow_any_host;
	bool ana_reporting;
	bool static_ctrlrs;
	uint32_t dmrsl; /* of its options: poll groups read both, and they never change */
	uint8_t wzsl;
	uint16_t min_cntlid, max_cntlid, next_cntlid;
	uint32_t instance_tag; /* random: the upper half of the CIRN of all its controllers */
	uint8_t *cius; /* by cntlid - min_cntlid: the CIU of the last controller with that id; NULL: there was none yet
			*/
	struct nvmf_cntlid_page *cntlids[256]; /* NULL: all of its ids are free */
	uint32_t num_ctrlrs;
	struct nvmf_peers peers;
	unsigned peer_requests; /* requests to the peers that are under way */
	uint32_t max_nsid;
	struct nvmf_ns **ns;                  /* by nsid - 1; NULL where there is none */
	struct nvmf_ana_members *ana_members; /* by group id - 1; NULL: it does not report ANA states */
	struct nvmf_hosts hosts;
	struct nvmf_qos_list qos;
	TAILQ_HEAD(, nvmf_listener) listeners;
	TAILQ_HEAD(, nvmf_ctrlr) ctrlrs;
	struct nvmf_cirn_bucket
		ctrlrs_by_cirn[NVMF_CIRN_BUCKETS]; /* by the CIRN's remainder; no discovery controllers */
	TAILQ_HEAD(, nvmf_host_latency) latencies; /* the others, if there are any, are the last */
	struct thread_msg destroy_msg; /* frees it from the event loop, when no caller is left that uses it */
	nvmf_done_fn destroy_done;
	void *destroy_arg;
	char nqn[NVMF_NQN_MAX + 1];
};

/* Makes a subsystem in state INACTIVE. 0, -ENOSPC or -ENOMEM. opts have been checked. */
int nvmf_subsystem_new(struct nvmf_tgt *tgt, const char *nqn, enum nvmf_subtype subtype,
		       const struct nvmf_subsystem_opts *opts, struct nvmf_subsystem **subsystem);
/* Frees a subsystem that is INACTIVE. */
void nvmf_subsystem_free(struct nvmf_subsystem *s);
/* What outlives a subsystem (nvmf/kept.c, bdev/kept_stat.h): it leaves which controller id is next, and a new one goes
 * on with that, and with the figures of its hosts. So a Connect of an I/O queue with an id that another process gave is
 * refused, and joins no controller that was given the id since. */
void nvmf_subsystem_note_kept(const struct nvmf_subsystem *s);
void nvmf_subsystem_take_kept(struct nvmf_subsystem *s);

/* Refuses a change of a subsystem that is being destroyed, or whose target is being stopped: 0, or -EBUSY and a line in
 * the log. change: what was asked for. */
int nvmf_subsystem_refuse_change(const struct nvmf_subsystem *s, const char *change);
/* Queues a change. op: from malloc(); the queue frees it. */
void nvmf_subsystem_add_op(struct nvmf_subsystem *s, struct nvmf_op *op);

/* How long commands of other hosts may take to end before a change for a host is given up: less than the 30 s after
 * which the kernel's hosts give up their command. */
#define NVMF_DRAIN_US 10000000

/* Queues a change that a host's command waits for. Calls done(arg, status) later or before it returns: what apply()
 * returned; -ENOMEM; -ESHUTDOWN: the subsystem stops; -ENOENT: the namespace is going; -ETIMEDOUT: commands of the
 * namespace did not end within NVMF_DRAIN_US, and nothing was changed. draining: called if commands are under way that
 * have to end first. */
void nvmf_subsystem_change_for_host(struct nvmf_subsystem *s, uint32_t nsid,
				    int (*apply)(struct nvmf_subsystem *s, struct nvmf_op *op),
				    void (*draining)(void *arg), nvmf_done_fn done, void *arg);
/* A namespace that nvmf_views_pause() or nvmf_views_hold_ns() counted has no commands under way any more. */
void nvmf_subsystem_ns_drained(struct nvmf_subsystem *s, uint32_t nsid);
/* Ends the queued changes that hosts wait for and that have not begun, of one namespace or of all (NVME_NSID_ALL), with
 * a status. */
void nvmf_subsystem_drop_host_ops(struct nvmf_subsystem *s, uint32_t nsid, int status);
/* Writes what an operation that has not ended waits for. */
void nvmf_op_waits_for(const struct nvmf_op *op, char *text, size_t size);
/* Logs that an operation takes long, and what it waits for. */
void nvmf_op_log_slow(const struct nvmf_op *op);
/* The earlier operation that this one waits for; NULL: none. */
const struct nvmf_op *nvmf_op_blocker(const struct nvmf_op *op);
/* A controller has been freed: changes and waiters that need that go on. */
void nvmf_subsystem_ctrlr_gone(struct nvmf_subsystem *s);
/* Ends the associations that w->match() selects, and calls w->done when their controllers are gone. w: from malloc();
 * freed here. why: for the log. */
void nvmf_subsystem_end_ctrlrs(struct nvmf_subsystem *s, struct nvmf_ctrlr_waiter *w, const char *why);
/* Makes the groups' views of a subsystem that is started, once there are groups. 0 or a negative errno. */
int nvmf_subsystem_open_views(struct nvmf_subsystem *s);

#endif

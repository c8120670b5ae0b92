/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of nvmf/.
 *
 * Threads: what is not marked otherwise belongs to the control thread. "Group" marks what belongs to a poll group's
 * thread. The two talk by thread_post() (messages that live in what they are about, so that none can be refused)
 * and, control thread to group only, by thread_call(). */
#ifndef NVMF_INTERNAL_H
#define NVMF_INTERNAL_H

#include <assert.h>
#include <rte_common.h>
#include "dhchap/dhchap.h"
#include "env_dpdk/env.h"
#include "keyring/keyring.h"
#include "nvmf/ana.h"
#include "nvmf/nvmf.h"
#include "nvmf/resv.h"
#include "nvmf/transport.h"
#include "thread/thread.h"
#include "trace/trace.h"
#include "usdt/usdt.h"
#include "util/compiler.h"
#include "util/log.h"
#include "util/state_machine.h"

/* ---- Notices: nvmf.c ---- */

enum nvmf_notice {
	NVMF_NOTICE_SUBSYSTEM_CREATE,
	NVMF_NOTICE_SUBSYSTEM_DESTROY,
	NVMF_NOTICE_HOST_CONNECT,
	NVMF_NOTICE_HOST_DISCONNECT,
	NVMF_NOTICE_NS_ADD,
	NVMF_NOTICE_NS_REMOVE,
	NVMF_NOTICE_NS_RESIZE,
	NVMF_NOTICE_ANA_CHANGE,
	NVMF_NOTICE_HOST_REFUSED,
	NVMF_NOTICE_AUTH_FAILED,
	NVMF_NOTICE_KEEP_ALIVE_EXPIRED,
	NVMF_NOTICE_LISTENER_ADD,
	NVMF_NOTICE_LISTENER_REMOVE,
	NVMF_NOTICES,
};
void nvmf_tell_fault(const struct nvmf_fault *fault);
/* Control thread. why: NULL if it goes without saying. */
void nvmf_notice(enum nvmf_notice notice, const char *why, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* A host that was not let in: NVMF_NOTICE_HOST_REFUSED or NVMF_NOTICE_AUTH_FAILED. Limited in number, since anybody on
 * the fabric can cause them and they must not push out what else is kept. */
void nvmf_notice_refused(enum nvmf_notice notice, const char *subnqn, const char *hostnqn, const char *why);

/* ---- Poll groups and their views of subsystems: poll_group.c, view.c ---- */

enum nvmf_view_state {
	NVMF_VIEW_INACTIVE = 0,
	NVMF_VIEW_ACTIVE = 1,
	NVMF_VIEW_PAUSED = 2,
	NVMF_VIEW_PAUSING = 3, /* new commands wait; those under way are ending */
	NVMF_VIEW_STATES,
};

/* Why a command might have to be refused, whatever it is. */
enum nvmf_ns_limit {
	NVMF_NS_HIDDEN = 1 << 0, /* only for controllers that have it in their visible set */
	NVMF_NS_ANA = 1 << 1,    /* some listener does not let commands through */
	NVMF_NS_RESV = 1 << 2,   /* it is reserved */
};

/* A namespace as one poll group sees it. Group. */
struct nvmf_ns_view {
	/* What every command touches: one line. */
	struct nvmf_geometry geo;
	struct bdev_channel *ch;
	struct bdev_desc *desc;
	struct nvmf_subsystem_view *view;
	uint32_t outstanding; /* commands in the bdev, or using a zero-copy buffer */
	uint32_t nsid;
	uint32_t anagrpid;
	bool paused;                  /* new commands wait */
	uint8_t limits;               /* enum nvmf_ns_limit: what to look at before a command goes through; mostly 0 */
	bool write_cache;             /* FUA needs a flush */
	const struct nvmf_resv *resv; /* NVMF_NS_RESV; never changes: another takes its place */
	/* Counters, the second. */
	uint64_t read_ops __attribute__((aligned(64)));
	uint64_t write_ops;
	uint64_t read_blocks, written_blocks; /* units of 512 bytes */
	struct nvmf_passthru passthru;
};

struct nvmf_io_counters {
	uint64_t read_ops, write_ops;
	uint64_t read_blocks, written_blocks;
};

/* A subsystem as one poll group sees it. Group; made and freed by the control thread with a thread_call(). */
struct nvmf_subsystem_view {
	struct nvmf_subsystem *subsystem;
	struct nvmf_poll_group *group;
	uint32_t max_nsid;
	uint32_t paused_nsid;             /* PAUSING, PAUSED: 0, an nsid or NVME_NSID_ALL */
	uint8_t state;                    /* enum nvmf_view_state */
	struct nvmf_request_queue paused; /* commands that wait */
	uint32_t num_paused;
	struct thread_msg drained_msg;
	struct nvmf_io_counters gone; /* of namespaces that were removed */
	struct nvmf_ns_view *coming;  /* is being made in every group, for there to be all of them or none */
	struct nvmf_ns_view *ns[];    /* by nsid - 1 */
};

struct nvmf_poll_group {
	struct nvmf_tgt *tgt;
	struct thread *thread;
	struct nvmf_subsystem_view **views;               /* by subsystem index; group */
	TAILQ_HEAD(, nvmf_transport_group) tgroups;       /* group */
	TAILQ_HEAD(, nvmf_qpair) qpairs;                  /* group */
	bool stopping;                                    /* group: takes no more */
	uint64_t completed, failed;                       /* group: I/O commands */
	uint64_t admin_qpairs, io_qpairs;                 /* group: ever */
	uint64_t current_admin_qpairs, current_io_qpairs; /* group */
	uint32_t ctl_admin_qpairs, ctl_io_qpairs;         /* control thread: for spreading */
	TAILQ_ENTRY(nvmf_poll_group) link;
};

int nvmf_poll_group_create(struct nvmf_tgt *tgt, unsigned lcore, struct nvmf_poll_group **group);
void nvmf_poll_group_destroy(struct nvmf_poll_group *group);
int nvmf_poll_group_add_transport(struct nvmf_poll_group *group, struct nvmf_transport *transport);
/* One that nobody uses yet; none is no error. */
void nvmf_poll_group_remove_transport(struct nvmf_poll_group *group, struct nvmf_transport *transport);
void nvmf_poll_group_disconnect_all(struct nvmf_poll_group *group);

/* View of every group; control thread. */
int nvmf_views_create(struct nvmf_subsystem *s);
void nvmf_views_destroy(struct nvmf_subsystem *s);
void nvmf_views_activate(struct nvmf_subsystem *s);
void nvmf_views_deactivate(struct nvmf_subsystem *s);
/* Makes new commands wait. Returns how many views still have commands under way; nvmf_subsystem_view_drained() is
 * called once for each of those when they have ended. */
unsigned nvmf_views_pause(struct nvmf_subsystem *s, uint32_t nsid);
/* How many had not drained yet. */
unsigned nvmf_views_resume(struct nvmf_subsystem *s);
/* Namespaces in views of started subsystems. Removing: paused, or the subsystem has no queue pairs. */
int nvmf_views_add_ns(struct nvmf_subsystem *s, struct nvmf_ns *ns);
void nvmf_views_remove_ns(struct nvmf_subsystem *s, uint32_t nsid);
void nvmf_views_update_ns(struct nvmf_subsystem *s, struct nvmf_ns *ns);
void nvmf_views_update_all(struct nvmf_subsystem *s);
void nvmf_views_sum(struct nvmf_subsystem *s, struct nvmf_io_counters *sum);

/* Group. A command begins or ends to count as under way. */
static inline void nvmf_ns_view_enter(struct nvmf_ns_view *nsv, struct nvmf_request *req)
{
	nsv->outstanding++;
	req->ns_view = nsv;
	req->counted = true;
}
void nvmf_view_check_drained(struct nvmf_subsystem_view *view);
static inline void nvmf_ns_view_leave(struct nvmf_request *req)
{
	struct nvmf_ns_view *nsv = req->ns_view;

	req->counted = false;
	if (--nsv->outstanding == 0 && unlikely(nsv->paused)) {
		nvmf_view_check_drained(nsv->view);
	}
}
/* Group. True: the namespace is paused, and the command has been queued until it is resumed. before_data: the command
 * waits before its data are fetched (nvmf_io_start() runs again); otherwise before it is carried out. */
bool nvmf_view_wait_if_paused(struct nvmf_subsystem_view *view, uint32_t nsid, struct nvmf_request *req,
			      bool before_data);
/* Group. Takes a queue pair's waiting commands out of the view's queue and fails them. */
void nvmf_view_purge(struct nvmf_subsystem_view *view, struct nvmf_qpair *qpair, uint16_t status);
/* Group. Takes one waiting command out of the queue. */
void nvmf_view_unwait(struct nvmf_request *req);

/* ---- Target: tgt.c, transport.c, listener.c ---- */

struct nvmf_listen { /* an address that a transport listens on, for one subsystem or several */
	struct nvmf_address address;
	unsigned refs;
	uint16_t portid;
	TAILQ_ENTRY(nvmf_listen) link;
};

struct nvmf_listener { /* a subsystem on an address */
	struct nvmf_transport *transport;
	struct nvmf_listen *listen;
	struct nvmf_ana *ana; /* NULL: the subsystem does not report */
	TAILQ_ENTRY(nvmf_listener) link;
};

struct nvmf_referral_node {
	struct nvmf_referral referral; /* first: nvmf_referral_next() hands it out */
	TAILQ_ENTRY(nvmf_referral_node) link;
};

struct nvmf_tgt {
	char *name;
	enum nvmf_tgt_state state;
	uint32_t max_subsystems;
	uint32_t discovery_filter;
	uint16_t crdt[3];
	cpu_set_t cores;
	bool all_cores;
	struct nvmf_subsystem **subsystems; /* by index; holes are NULL */
	struct nvmf_subsystem *discovery;
	TAILQ_HEAD(, nvmf_poll_group) groups;
	TAILQ_HEAD(, nvmf_transport) transports;
	TAILQ_HEAD(, nvmf_referral_node) referrals;
	uint64_t generation; /* of the discovery log */
	uint16_t next_portid;
	uint32_t num_qpairs;         /* accepted, not yet gone */
	uint64_t connect_timeout_us; /* for a new queue pair's Connect to arrive */
	uint64_t auth_timeout_us;    /* for a step of an authentication; 0: as the host's keep-alive timeout has it */
	unsigned dhchap_hashes, dhchap_groups; /* sets: what hosts may authenticate with */
	nvmf_done_fn stop_done;
	void *stop_arg;
	uint32_t stopping_subsystems;
	struct thread_msg stop_msg;
	TAILQ_ENTRY(nvmf_tgt) link;
};

/* The discovery log changed: a new generation, and an event for discovery controllers. */
void nvmf_tgt_discovery_changed(struct nvmf_tgt *tgt);
void nvmf_tgt_qpair_gone(struct nvmf_tgt *tgt);
void nvmf_tgt_destroyed(void); /* nvmf.c */
const struct nvmf_transport_ops *nvmf_transport_ops_find(const char *trtype);
/* As discovery log entries have it (enum nvmf_trtype), also of transports that only others have; -1: there is none of
 * that name. */
int nvmf_trtype_number(const char *trtype);
void nvmf_transport_destroy(struct nvmf_transport *transport);
/* One more, or one fewer, subsystem wants an address. */
int nvmf_transport_listen(struct nvmf_transport *t, const struct nvmf_address *address, struct nvmf_listen **listen);
void nvmf_transport_unlisten(struct nvmf_transport *t, struct nvmf_listen *listen);
void nvmf_referrals_free(struct nvmf_tgt *tgt);

/* ---- Subsystems: subsystem.c, subsystem_state.c, ns.c, host.c ---- */

struct nvmf_host {
	TAILQ_ENTRY(nvmf_host) link;
	struct keyring_key *key, *ctrlr_key; /* of subsystems' lists; NULL: it need not authenticate, or us */
	char nqn[NVMF_NQN_MAX + 1];
};
TAILQ_HEAD(nvmf_hosts, nvmf_host);
struct nvmf_host *nvmf_hosts_find(const struct nvmf_hosts *hosts, const char *nqn);
int nvmf_hosts_add(struct nvmf_hosts *hosts, const char *nqn);
int nvmf_hosts_remove(struct nvmf_hosts *hosts, const char *nqn);
void nvmf_hosts_free(struct nvmf_hosts *hosts);
const char *nvmf_hosts_next(const struct nvmf_hosts *hosts, const char *after);

struct nvmf_ns {
	struct nvmf_subsystem *subsystem;
	uint32_t nsid;
	struct nvmf_ns_opts opts;
	struct bdev_desc *desc;
	struct bdev *bdev;
	struct nvmf_geometry geo;
	struct nvmf_hosts hosts; /* no_auto_visible */
	bool removing;
	struct nvmf_op *remove_op; /* until it is removed: that has to work without memory too */
	TAILQ_ENTRY(nvmf_ns) ana_link;
	char *ptpl_file;           /* where its reservation outlives us, or NULL */
	struct nvmf_ns_resv *resv; /* NULL: nobody has ever registered */
};
bool nvmf_ns_visible(const struct nvmf_ns *ns, const char *hostnqn);
/* Closes the bdev and frees it; no view has it. */
void nvmf_ns_free(struct nvmf_ns *ns);
uint32_t nvmf_ns_block_size(const struct nvmf_ns *ns);

enum nvmf_op_kind {
	NVMF_OP_START,
	NVMF_OP_PAUSE,
	NVMF_OP_RESUME,
	NVMF_OP_STOP,
	NVMF_OP_CHANGE, /* pause nsid, apply, resume */
};

/* One change of a subsystem, in its queue. */
struct nvmf_op {
	enum nvmf_op_kind kind;
	enum nvmf_subsystem_state original; /* the subsystem's state when the change began */
	uint32_t nsid;
	int (*apply)(struct nvmf_subsystem *s, struct nvmf_op *op); /* CHANGE */
	nvmf_done_fn done;
	void *arg;
	bool for_host; /* a host's command waits for it */
	void (*draining)(void *arg);
	STAILQ_ENTRY(nvmf_op) link;
};

/* Somebody who waits for controllers to be gone. */
struct nvmf_ctrlr_waiter {
	bool (*match)(const struct nvmf_ctrlr *ctrlr, const struct nvmf_ctrlr_waiter *w);
	union {
		char hostnqn[NVMF_NQN_MAX + 1];
		struct nvmf_address address;
	};
	nvmf_done_fn done; /* may be NULL */
	void *arg;
	TAILQ_ENTRY(nvmf_ctrlr_waiter) link;
};

struct nvmf_subsystem {
	struct nvmf_tgt *tgt;
	uint32_t index; /* in the target and in the groups' views */
	enum nvmf_subtype subtype;
	enum nvmf_subsystem_state state;
	uint64_t state_ticks;
	uint64_t created_ticks;
	bool connectable;       /* started, and not about to stop */
	uint32_t pending_views; /* pausing: views that have not drained */
	uint32_t paused_nsid;
	struct thread_timer drain_timer; /* for how long a host may have it paused */
	uint64_t drain_us;
	bool drain_given_up; /* views are active again; what drained before that is still told */
	STAILQ_HEAD(, nvmf_op) ops;
	struct nvmf_op *op;      /* under way; no longer in the list */
	struct nvmf_op *stop_op; /* until the target stops: that has to work without memory too */
	bool views_open;         /* every group has a view of it */
	TAILQ_HEAD(, nvmf_ctrlr_waiter) waiters;
	uint16_t trace_owner;

	char serial_number[NVMF_SN_MAX + 1];
	char model_number[NVMF_MN_MAX + 1];
	bool allow_any_host;
	bool ana_reporting;
	bool static_ctrlrs;
	uint16_t min_cntlid, max_cntlid, next_cntlid;
	uint32_t max_nsid;
	struct nvmf_ns **ns;                  /* by nsid - 1 */
	struct nvmf_ana_members *ana_members; /* by group id - 1; NULL: it does not report */
	struct nvmf_hosts hosts;
	TAILQ_HEAD(, nvmf_listener) listeners;
	TAILQ_HEAD(, nvmf_ctrlr) ctrlrs;
	struct thread_msg destroy_msg; /* freed from the loop, where no caller is left that looks at it */
	nvmf_done_fn destroy_done;
	void *destroy_arg;
	char nqn[NVMF_NQN_MAX + 1];
};

int nvmf_subsystem_new(struct nvmf_tgt *tgt, const char *nqn, enum nvmf_subtype subtype,
		       const struct nvmf_subsystem_opts *opts, struct nvmf_subsystem **subsystem);
/* Queues a change whose memory, from malloc(), the caller has: it is the queue's from now on. */
void nvmf_subsystem_add_op(struct nvmf_subsystem *s, struct nvmf_op *op);
/* Queues a change that a host's command waits for, which may not keep its connection when the subsystem stops:
 * done(arg, what apply returned, -ENOMEM, or -ESHUTDOWN). draining: is called if commands are under way that have to
 * end first. If they do not within NVMF_DRAIN_US, nothing is changed: -ETIMEDOUT. */
#define NVMF_DRAIN_US 10000000 /* before the kernel's hosts give a command up, which is after 30 s */
void nvmf_subsystem_change_for_host(struct nvmf_subsystem *s, uint32_t nsid,
				    int (*apply)(struct nvmf_subsystem *s, struct nvmf_op *op),
				    void (*draining)(void *arg), nvmf_done_fn done, void *arg);
void nvmf_subsystem_view_drained(struct nvmf_subsystem *s);
/* A controller is gone: what waited for that goes on. */
void nvmf_subsystem_ctrlr_gone(struct nvmf_subsystem *s);
/* Frees an INACTIVE subsystem. */
void nvmf_subsystem_free(struct nvmf_subsystem *s);
void nvmf_listener_free(struct nvmf_subsystem *s, struct nvmf_listener *l);
/* Ends the associations that match; w->done when they are gone. w is consumed. */
void nvmf_subsystem_end_ctrlrs(struct nvmf_subsystem *s, struct nvmf_ctrlr_waiter *w, const char *why);
/* Makes the groups' views, once there are groups and for as long as it is not INACTIVE. */
int nvmf_subsystem_open_views(struct nvmf_subsystem *s);

/* ---- Controllers: ctrlr.c, keepalive.c, aer.c, error_log.c ---- */

#define NVMF_AER_MAX        4  /* AERL + 1 */
#define NVMF_ABORT_MAX      4  /* ACL + 1 */
#define NVMF_ERROR_LOG_SIZE 64 /* ELPE + 1 */
#define NVMF_CHANGED_NS_MAX NVME_ID_NS_LIST_MAX

/* The last errors of a controller; written by any thread, read by the control thread. */
struct nvmf_error_log {
	_Atomic uint64_t count;
	struct {
		_Atomic uint32_t sequence; /* odd while it is being written */
		struct nvme_error_log_page entry;
	} slots[NVMF_ERROR_LOG_SIZE];
};
void nvmf_error_log_add(struct nvmf_error_log *log, const struct nvmf_request *req, uint16_t status);
/* The n-th newest: false if there is none. */
bool nvmf_error_log_get(struct nvmf_error_log *log, unsigned n, struct nvme_error_log_page *entry);

enum nvmf_event { /* asynchronous events that we raise */
		  NVMF_EVENT_NS_CHANGED,
		  NVMF_EVENT_ANA_CHANGED,
		  NVMF_EVENT_DISCOVERY_CHANGED,
		  NVMF_EVENT_RESERVATION,
		  NVMF_EVENTS,
};

#define NVMF_RESV_LOG_SIZE 64

/* What a controller's host has not read yet of changes to reservations. */
struct nvmf_resv_log {
	uint64_t count; /* entries ever; the last is number `count`, at count % NVMF_RESV_LOG_SIZE */
	unsigned num;   /* of them here */
	struct {
		uint32_t nsid;
		uint8_t what; /* enum nvme_resv_notify_rnlpt */
	} entries[NVMF_RESV_LOG_SIZE];
};

struct nvmf_features {
	uint32_t arbitration;
	uint32_t power_management;
	uint32_t temperature_over, temperature_under; /* thresholds of the composite temperature */
	uint32_t error_recovery;
	uint32_t volatile_write_cache;
	uint32_t write_atomicity;
	uint32_t async_events;
	uint8_t host_behavior;
};

struct nvmf_ctrlr {
	struct nvmf_subsystem *subsystem;
	struct nvmf_transport *transport;
	struct nvmf_address listen_address, local_address;
	uint16_t cntlid;
	enum nvmf_ctrlr_state state;
	uint64_t state_ticks;
	uint32_t cc;
	bool shutdown_due; /* CC.SHN was set while it was being reset */
	uint16_t trace_owner;
	_Atomic uint32_t kato_ms; /* also read by groups */
	struct thread_timer kato_timer;
	struct thread_timer idle_timer; /* disabled or shut down: the host is to come back or go */
	struct nvmf_qpair *admin_qpair;
	TAILQ_HEAD(, nvmf_qpair) qpairs;
	uint32_t num_io_qpairs;
	uint32_t max_io_qpairs;
	struct nvmf_features features;
	struct nvmf_request *aers[NVMF_AER_MAX];
	unsigned num_aers;
	bool event_pending[NVMF_EVENTS];
	bool event_masked[NVMF_EVENTS]; /* sent; not again before its log page is read */
	unsigned num_aborts;
	uint32_t num_changed_ns; /* NVMF_CHANGED_NS_MAX + 1: too many */
	uint32_t changed_ns[NVMF_CHANGED_NS_MAX];
	struct nvmf_error_log error_log;
	struct nvmf_ana *ana; /* of its listener; groups read the states. NULL: not reported */
	struct nvmf_resv_log resv_log;
	uint8_t *resv_mask; /* by nsid - 1: what its host does not want to be told; NULL: all zero */
	uint8_t hostid[16];
	char hostnqn[NVMF_NQN_MAX + 1];
	TAILQ_ENTRY(nvmf_ctrlr) link;
	_Atomic uint64_t visible[]; /* bit nsid - 1; also read by groups */
};

static inline bool nvmf_ctrlr_sees(const struct nvmf_ctrlr *ctrlr, uint32_t nsid)
{
	uint64_t word = atomic_load_explicit(&ctrlr->visible[(nsid - 1) / 64], memory_order_relaxed);

	return word >> ((nsid - 1) % 64) & 1;
}

/* The namespace with an id, if the subsystem has it and the controller's host may see it; otherwise NULL. */
struct nvmf_ns *nvmf_ctrlr_visible_ns(const struct nvmf_ctrlr *ctrlr, uint32_t nsid);
struct nvmf_ctrlr *nvmf_ctrlr_create(struct nvmf_subsystem *s, struct nvmf_qpair *admin, const struct nvmf_connect *c,
				     uint16_t cntlid);
struct nvmf_ctrlr *nvmf_ctrlr_find(const struct nvmf_subsystem *s, uint16_t cntlid);
void nvmf_ctrlr_link_qpair(struct nvmf_ctrlr *ctrlr, struct nvmf_qpair *qpair, uint16_t qid);
/* Ends the association; it is freed when its last queue pair is gone. why: for the log. */
void nvmf_ctrlr_destroy(struct nvmf_ctrlr *ctrlr, const char *why);
void nvmf_ctrlr_set_state(struct nvmf_ctrlr *ctrlr, enum nvmf_ctrlr_state state);
/* The answers to a queue pair's life: it has begun to disconnect; it is gone. */
void nvmf_ctrlr_qpair_closing(struct nvmf_qpair *qpair);
void nvmf_ctrlr_qpair_gone(struct nvmf_qpair *qpair);
uint64_t nvmf_ctrlr_cap(const struct nvmf_ctrlr *ctrlr);
uint32_t nvmf_ctrlr_csts(const struct nvmf_ctrlr *ctrlr);
/* What a write to CC brings about. */
void nvmf_ctrlr_set_cc(struct nvmf_ctrlr *ctrlr, uint32_t cc);
void nvmf_ctrlr_set_visible(struct nvmf_ctrlr *ctrlr, uint32_t nsid, bool visible);
/* Has the group disconnect a queue pair. */
void nvmf_ctrlr_disconnect_qpair(struct nvmf_qpair *qpair);

/* A feature's entry of the log page FID Supported and Effects: bit 0: supported; 20: of a namespace; 21: of the
 * controller (Base 5.16.1.19). */
uint32_t nvmf_feature_effects(const struct nvmf_ctrlr *ctrlr, uint8_t fid);
void nvmf_features_reset(struct nvmf_ctrlr *ctrlr);
void nvmf_keepalive_set(struct nvmf_ctrlr *ctrlr, uint32_t kato_ms);
void nvmf_keepalive_stop(struct nvmf_ctrlr *ctrlr);

/* Raises an event, if the host has it enabled. */
void nvmf_event_raise(struct nvmf_ctrlr *ctrlr, enum nvmf_event event);
/* Its log page was read: it may be sent again. */
void nvmf_event_clear(struct nvmf_ctrlr *ctrlr, enum nvmf_event event);
void nvmf_event_abort_all(struct nvmf_ctrlr *ctrlr, uint16_t status);
bool nvmf_event_abort(struct nvmf_ctrlr *ctrlr, uint16_t cid);
void nvmf_ns_changed(struct nvmf_subsystem *s, struct nvmf_ns *ns);

/* ---- Reservations: resv_ns.c, resv_store.c ---- */

struct nvmf_command;
struct nvmf_window;

#define NVMF_RESV_PATH_MAX 1024

/* Set Features, Reservation Persistence of one namespace: answers the command when the change is made, or has failed.
 */
void nvmf_resv_persist(struct nvmf_request *req, struct nvmf_ns *ns);
/* The same for every namespace that the host sees and that has a ptpl_file. */
void nvmf_resv_persist_all(struct nvmf_request *req);
/* What groups are to look at; NULL: it is not reserved. */
const struct nvmf_resv *nvmf_ns_resv_published(const struct nvmf_ns *ns);
/* A new namespace takes up what its file says; a namespace goes (no view has it). */
int nvmf_resv_attach(struct nvmf_ns *ns);
void nvmf_resv_detach(struct nvmf_ns *ns);
/* Writes the log page, the oldest notice. Its length in bytes. */
uint64_t nvmf_resv_log(const struct nvmf_ctrlr *ctrlr, struct nvmf_window *w);
/* That notice has been read. */
void nvmf_resv_log_pop(struct nvmf_ctrlr *ctrlr);

/* preempt.c: Preempt and Abort. Control thread: aborts what the hosts that lost their registrations have under way on a
 * namespace; then calls done, also on the control thread. Its owner's until then, and the request's bdev_io with it. */
struct nvmf_preempt {
	/* Set by the caller. */
	struct nvmf_request *req; /* that asks for it */
	struct nvmf_subsystem *subsystem;
	uint32_t nsid;
	const struct nvmf_resv_notices *notices;
	void (*done)(struct nvmf_preempt *p);
	/* Private. */
	struct thread_msg msg;
	struct nvmf_poll_group *group; /* that we are at */
	unsigned aborted;
};
void nvmf_preempt_start(struct nvmf_preempt *p);

/* Reservations of two namespaces cannot be kept in these files, for one is the other, or is where the other's new text
 * is until it is on the disk. Absolute paths. */
bool nvmf_resv_files_clash(const char *path, const char *other);
/* -EINVAL, or why no file can be made there; the log says more. */
int nvmf_resv_check_path(const char *path);
/* A text for it, or for one that clashes with it, is on its way to the disk. Control thread. */
bool nvmf_resv_is_being_saved(const char *path);
/* A checked path. A file that is not there is nobody's registration. -EBADMSG, -EINVAL, or what the system says; the
 * log says more. */
int nvmf_resv_load(const char *path, const uint8_t uuid[16], struct nvmf_resv *r);
/* 0: done follows, on the control thread, when it is on the disk or cannot be. */
int nvmf_resv_save(const char *path, const uint8_t uuid[16], const struct nvmf_resv *r,
		   void (*done)(void *arg, int status), void *arg);

/* ---- Requests: request.c, io.c, qpair.c; group ---- */

/* Ends a request. */
void nvmf_request_finish(struct nvmf_request *req, uint16_t status);
/* The same for a field of the command that is bad (NVMF_WHERE...). */
void nvmf_request_finish_at(struct nvmf_request *req, uint16_t status, uint16_t where);
/* For functions that answer an enum nvmf_next. */
enum nvmf_next nvmf_request_reject(struct nvmf_request *req, uint16_t status, uint16_t where);
/* After its length and direction are known: decodes the data pointer. */
enum nvmf_next nvmf_request_data(struct nvmf_request *req, uint8_t xfer, uint64_t length);
static inline void nvmf_request_set_where(struct nvmf_request *req, enum nvmf_request_where where)
{
	req->where = (uint8_t)where;
	if (where != NVMF_REQUEST_TRANSPORT) { /* which keeps its own time */
		req->where_ticks = thread_now();
	}
}

/* Metadata: md.c. The namespace as hosts of a transport see it: its metadata may be hidden. */
struct nvmf_geometry nvmf_md_seen(const struct nvmf_transport *t, const struct nvmf_geometry *geo);
uint16_t nvmf_md_decode_rw(const struct nvmf_request *req, const struct nvmf_ns_view *nsv, struct nvmf_lba_range *range,
			   uint64_t *bytes, uint16_t *where);
/* The protection information fields of a command that moves no blocks. */
uint16_t nvmf_md_check(const struct nvmf_request *req, const struct nvmf_ns_view *nsv, uint16_t *where);
uint16_t nvmf_md_check_copy(const struct nvmf_request *req, const struct nvmf_ns_view *nsv, uint16_t *where);
/* Tells the bdev how the command wants the metadata. */
void nvmf_md_set(struct nvmf_request *req, const struct nvmf_ns_view *nsv);
/* Control thread: what Identify Namespace says of it; the bdev's as geometry: -EINVAL. */
void nvmf_md_identify(const struct nvmf_transport *t, const struct nvmf_ns *ns, struct nvme_id_ns *id);
int nvmf_md_geometry(const struct nvmf_ns *ns, struct nvmf_geometry *geo);

/* I/O commands. io_start also for one that has waited. */
enum nvmf_next nvmf_io_start(struct nvmf_request *req);
void nvmf_io_exec(struct nvmf_request *req);
/* The namespace of a command that may go through; otherwise NULL and the status it is to end with. */
struct nvmf_ns_view *nvmf_io_find_ns(const struct nvmf_request *req, uint32_t nsid, uint16_t *status);
/* Vendor specific commands: passthru.c. */
enum nvmf_next nvmf_passthru_start(struct nvmf_request *req, const struct nvmf_ns_view *nsv);
enum nvmf_next nvmf_passthru_admin_start(struct nvmf_request *req);
void nvmf_passthru_effects(const struct nvmf_ctrlr *ctrlr, struct nvme_cmd_effects_log *log);
void nvmf_fused_peer_ended(struct nvmf_request *req, uint16_t status);
/* Admin and fabrics commands; any queue pair that is not an enabled I/O one. */
enum nvmf_next nvmf_admin_start(struct nvmf_request *req);
/* A fabrics command, on any queue pair. */
enum nvmf_next nvmf_fabrics_start(struct nvmf_request *req);
void nvmf_admin_exec(struct nvmf_request *req);
/* Control thread: whether the controller carries out an admin command now: a status. */
uint16_t nvmf_admin_check(const struct nvmf_request *req, const struct nvmf_command *cmd);

void nvmf_qpair_set_state(struct nvmf_qpair *qpair, enum nvmf_qpair_state state);
/* Connect has succeeded; ctrlr, view and qid are set. */
void nvmf_qpair_connected(struct nvmf_qpair *qpair);

/* ---- Admin commands on the control thread: admin*.c, connect.c, property.c, abort.c, discovery.c ---- */

/* Sends a request back to its group, where it ends. The last touch. */
void nvmf_request_answer(struct nvmf_request *req, uint16_t status);
void nvmf_request_answer_at(struct nvmf_request *req, uint16_t status, uint16_t where);
struct nvmf_ctrlr *nvmf_request_ctrlr(const struct nvmf_request *req);

/* The request's data as a window [start, start + length) on something longer. */
struct nvmf_window {
	struct nvmf_request *req;
	uint64_t start;
};
void nvmf_window_zero(struct nvmf_window *w);
/* Copies the part of [at, at + len) that the window shows. */
void nvmf_window_put(struct nvmf_window *w, uint64_t at, const void *data, size_t len);
/* Copies the request's data out of its buffers: how many bytes. */
size_t nvmf_request_copy_data(const struct nvmf_request *req, void *to, size_t len);

/* Fills a text field of Identify or of a log page: padded with spaces, not terminated (Base 1.4.2). */
void nvmf_put_padded(char *field, size_t size, const char *text);

/* Group: asks the bdev to abort the victim's I/O, with the bdev_io of another command, which counts as under way on
 * that namespace until done() has called nvmf_ns_view_leave(). */
void nvmf_abort_in_bdev(struct nvmf_request *abort, struct nvmf_request *victim, bdev_io_cb done, void *arg);
/* Writes the discovery log as a controller's host sees it: its length in bytes. */
uint64_t nvmf_discovery_log(struct nvmf_ctrlr *ctrlr, struct nvmf_window *w);
/* Whether a host may connect to a subsystem through an address. */
bool nvmf_subsystem_reachable(const struct nvmf_subsystem *s, const struct nvmf_address *address);

/* ---- Authentication: auth.c ---- */

/* Whether a host has to authenticate: it has a key. */
bool nvmf_auth_required(const struct nvmf_subsystem *s, const char *hostnqn);
/* A queue pair whose host has to, or does. 0 or -ENOMEM. */
int nvmf_auth_create(struct nvmf_qpair *qpair);
/* Connect has succeeded: the host is waited for. */
void nvmf_auth_begin(struct nvmf_qpair *qpair);
/* No command of the queue pair is left. */
void nvmf_auth_destroy(struct nvmf_qpair *qpair);
/* Whether it is us that the host waits for. */
bool nvmf_auth_computes(const struct nvmf_qpair *qpair);
void nvmf_auth_get_info(const struct nvmf_qpair *qpair, struct nvmf_auth_info *info);
#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Controllers, with their features, keep-alive timer, events, error log and authentication: ctrlr.c, admin_features.c,
 * keepalive.c, aer.c, error_log.c, auth.c. Control thread. */
#ifndef NVMF_CTRLR_INTERNAL_H
#define NVMF_CTRLR_INTERNAL_H

#include "nvmf/cross_reset_internal.h"
#include "nvmf/transport.h"

struct nvmf_ana;

#define NVMF_AER_MAX        4  /* AERL + 1; of a discovery controller: 1 */
#define NVMF_ABORT_MAX      4  /* ACL + 1 */
#define NVMF_ERROR_LOG_SIZE 64 /* ELPE + 1 */
#define NVMF_CHANGED_NS_MAX NVME_ID_NS_LIST_MAX
#define NVMF_RESV_LOG_SIZE  64

/* The last errors of a controller. Any thread writes; the control thread reads. */
struct nvmf_error_log {
	_Atomic uint64_t count; /* errors so far */
	struct {
		_Atomic uint32_t sequence; /* odd while the entry is being written */
		struct nvme_error_log_page entry;
	} slots[NVMF_ERROR_LOG_SIZE];
};

/* Adds the error that a command ends with. Any thread. */
void nvmf_error_log_add(struct nvmf_error_log *log, const struct nvmf_request *req, uint16_t status);
/* The n-th newest entry, 0: the newest; zeroes if a thread overwrites it at this moment. False: there are not so many.
 */
bool nvmf_error_log_get(struct nvmf_error_log *log, unsigned n, struct nvme_error_log_page *entry);

/* The asynchronous events that controllers raise. */
enum nvmf_event {
	NVMF_EVENT_NS_CHANGED,
	NVMF_EVENT_ANA_CHANGED,
	NVMF_EVENT_DISCOVERY_CHANGED,
	NVMF_EVENT_RESERVATION,
	NVMF_EVENT_CROSS_RESET,
	NVMF_EVENTS,
};

/* Notices about reservations that a controller's host has not read yet. */
struct nvmf_resv_log {
	uint64_t count; /* notices so far; the last is in entries[count % NVMF_RESV_LOG_SIZE] */
	unsigned num;   /* notices that are still here */
	struct {
		uint32_t nsid;
		uint8_t what; /* enum nvme_resv_notify_rnlpt */
	} entries[NVMF_RESV_LOG_SIZE];
};

/* Values of Set Features. */
struct nvmf_features {
	uint32_t arbitration;
	uint32_t power_management;
	uint32_t temperature_over, temperature_under; /* thresholds of the composite temperature */
	uint32_t error_recovery;
	uint32_t volatile_write_cache;
	uint32_t write_atomicity;
	uint32_t async_events;
	bool advanced_retry;   /* Host Behavior Support: ACRE */
	bool extended_formats; /* LBAFEE */
};

struct nvmf_ctrlr {
	struct nvmf_subsystem *subsystem;
	struct nvmf_transport *transport;
	struct nvmf_address listen_address, local_address;
	uint16_t cntlid;
	uint8_t ciu; /* with cntlid and cirn the controller's struct nvmf_ctrlr_name; 0 in discovery subsystems */
	uint64_t cirn;
	LIST_ENTRY(nvmf_ctrlr) cirn_link;      /* if cirn is not 0 */
	struct nvmf_cross_resets cross_resets; /* the Cross-Controller Resets that its host has asked it for */
	enum nvmf_ctrlr_state state;
	uint64_t state_ticks;
	uint32_t cc;
	bool announced;    /* operators have been told that its host has connected */
	bool shutdown_due; /* CC.SHN was set while the controller was RESETTING */
	bool was_ready;
	uint16_t trace_owner;
	_Atomic uint32_t kato_ms; /* groups read it too */
	struct thread_timer kato_timer;
	struct thread_timer idle_timer; /* disabled or shut down: the host has to enable it or leave */
	struct nvmf_qpair *admin_qpair;
	TAILQ_HEAD(, nvmf_qpair) qpairs;
	struct nvmf_qos *qos;              /* its host's limits, for new queue pairs; NULL: none */
	struct nvmf_host_latency *latency; /* NULL: a controller without I/O queues, or there was no memory */
	LIST_ENTRY(nvmf_ctrlr) latency_link;
	uint32_t num_io_qpairs;
	uint32_t max_io_qpairs;
	struct nvmf_features features;
	struct nvmf_request *aers[NVMF_AER_MAX]; /* Asynchronous Event Requests that wait, the oldest first */
	unsigned num_aers;
	bool event_pending[NVMF_EVENTS]; /* has happened, and no request was there to tell it with */
	bool event_masked[NVMF_EVENTS];  /* told; not again before its log page is read */
	unsigned num_aborts;             /* Abort commands under way */
	uint32_t num_changed_ns;         /* NVMF_CHANGED_NS_MAX + 1: too many to list */
	uint32_t changed_ns[NVMF_CHANGED_NS_MAX];
	struct nvmf_error_log error_log;
	struct nvmf_ana *ana; /* states of its listener, which groups read; NULL: they are not reported */
	struct nvmf_resv_log resv_log;
	uint8_t *resv_mask; /* by nsid - 1: notices that its host does not want; NULL: it wants all */
	uint8_t hostid[16];
	char hostnqn[NVMF_NQN_MAX + 1];
	char psk_digest[TLS_DIGEST_MAX + 1]; /* of the generated PSK that is in force; "": none is */
	TAILQ_ENTRY(nvmf_ctrlr) link;
	_Atomic uint64_t visible[]; /* bit nsid - 1: its host sees the namespace; groups read it too */
};

/* Whether the controller's host sees a namespace. Any thread. */
static inline bool nvmf_ctrlr_sees(const struct nvmf_ctrlr *ctrlr, uint32_t nsid)
{
	uint64_t word = atomic_load_explicit(&ctrlr->visible[(nsid - 1) / 64], memory_order_relaxed);

	return word >> ((nsid - 1) % 64) & 1;
}

/* Makes a controller for an admin queue pair whose Connect has been accepted; it is DISABLED. NULL: no memory. */
struct nvmf_ctrlr *nvmf_ctrlr_create(struct nvmf_subsystem *s, struct nvmf_qpair *admin, const struct nvmf_connect *c,
				     uint16_t cntlid);
/* Tells operators that the host has connected: after Connect, or once it has proved who it is. Of discovery
 * controllers, which anybody may have, only a limited number is told. Only the first call does something. */
void nvmf_ctrlr_announce(struct nvmf_ctrlr *ctrlr);
/* The controller with an id; NULL: there is none. */
struct nvmf_ctrlr *nvmf_ctrlr_find(const struct nvmf_subsystem *s, uint16_t cntlid);
/* Adds a queue pair to a controller. */
void nvmf_ctrlr_link_qpair(struct nvmf_ctrlr *ctrlr, struct nvmf_qpair *qpair, uint16_t qid);
/* Ends the association: what has not begun is taken back, what has begun ends, all is answered, and then the queue
 * pairs are disconnected. The controller is freed when the last is gone: from then on no command of it is carried out.
 * why: for the log. */
void nvmf_ctrlr_destroy(struct nvmf_ctrlr *ctrlr, const char *why);
/* Changes the state, with its trace event and probe. */
void nvmf_ctrlr_set_state(struct nvmf_ctrlr *ctrlr, enum nvmf_ctrlr_state state);
/* A queue pair has begun to disconnect. */
void nvmf_ctrlr_qpair_closing(struct nvmf_qpair *qpair);
/* A queue pair is gone: removes it from its controller, and frees that after the last. */
void nvmf_ctrlr_qpair_gone(struct nvmf_qpair *qpair);
/* The properties CAP and CSTS. */
uint64_t nvmf_ctrlr_cap(const struct nvmf_ctrlr *ctrlr);
uint32_t nvmf_ctrlr_csts(const struct nvmf_ctrlr *ctrlr);
/* Carries out a write to the property CC. */
void nvmf_ctrlr_set_cc(struct nvmf_ctrlr *ctrlr, uint32_t cc);
/* Makes a namespace visible to the controller's host, or invisible. */
void nvmf_ctrlr_set_visible(struct nvmf_ctrlr *ctrlr, uint32_t nsid, bool visible);
/* The namespace with an id, if the subsystem has it and the controller's host sees it; otherwise NULL. */
struct nvmf_ns *nvmf_ctrlr_visible_ns(const struct nvmf_ctrlr *ctrlr, uint32_t nsid);
/* Ends a queue pair: its group takes back what has not begun and answers all, and then it is disconnected; if its
 * controller ends, together with the others. */
void nvmf_ctrlr_quiesce_qpair(struct nvmf_qpair *qpair);
/* No command of a QUIESCING queue pair is left. */
void nvmf_ctrlr_qpair_quiesced(struct nvmf_qpair *qpair);

/* ---- Features and the keep-alive timer ---- */

/* The entry of a feature in the log page FID Supported and Effects: bit 0: supported; bit 20: its scope is a namespace;
 * bit 21: the controller (Base 5.16.1.19). */
uint32_t nvmf_feature_effects(const struct nvmf_ctrlr *ctrlr, uint8_t fid);
/* Sets all features to their defaults, and forgets events and notices, as a reset does. */
void nvmf_features_reset(struct nvmf_ctrlr *ctrlr);
/* The controller's I/O counts for its host's latencies (nvmf/host_latency.c) from now on. */
void nvmf_host_latency_join(struct nvmf_ctrlr *ctrlr);
/* The controller, which has no queue pair any more, is about to be freed. */
void nvmf_host_latency_leave(struct nvmf_ctrlr *ctrlr);
/* An I/O queue pair of a controller is gone: keeps its figures. */
void nvmf_host_latency_keep(struct nvmf_qpair *qpair);
/* Frees the figures of a subsystem that has no controllers. */
void nvmf_host_latencies_free(struct nvmf_subsystem *s);
/* A new subsystem begins with the figures that are kept for it (bdev/kept_stat.h). */
void nvmf_host_latencies_take(struct nvmf_subsystem *s);
/* Sets the keep-alive timeout, in milliseconds (0: off), and starts the timer. */
void nvmf_keepalive_set(struct nvmf_ctrlr *ctrlr, uint32_t kato_ms);
/* Command Quiesce Time, milliseconds: how long after its keep-alive timeout the controller may take at most until none
 * of its commands is carried out any more. */
uint16_t nvmf_keepalive_cqt_ms(const struct nvmf_ctrlr *ctrlr);
/* Stops the timer. */
void nvmf_keepalive_stop(struct nvmf_ctrlr *ctrlr);

/* ---- Asynchronous events ---- */

/* Raises an event, if the host has enabled it. */
void nvmf_event_raise(struct nvmf_ctrlr *ctrlr, enum nvmf_event event);
/* The event's log page was read: the event may be told again. */
void nvmf_event_clear(struct nvmf_ctrlr *ctrlr, enum nvmf_event event);
/* How many Asynchronous Event Requests a controller may have outstanding. Anybody may have a discovery controller,
 * which has one kind of event: it has one. */
unsigned nvmf_aer_max(const struct nvmf_ctrlr *ctrlr);
/* Answers all Asynchronous Event Requests with a status. */
void nvmf_event_abort_all(struct nvmf_ctrlr *ctrlr, uint16_t status);
/* Answers the one with a command id as aborted. False: there is none. */
bool nvmf_event_abort(struct nvmf_ctrlr *ctrlr, uint16_t cid);
/* Notes a namespace in the Changed Namespace List of each controller whose host sees it, and raises the event. */
void nvmf_ns_changed(struct nvmf_subsystem *s, struct nvmf_ns *ns);

/* ---- Authentication (Base 8.13.5) ---- */

/* Whether a host has to authenticate to a subsystem: it has a key there. */
bool nvmf_auth_required(const struct nvmf_subsystem *s, const char *hostnqn);
/* Prepares the authentication of a queue pair. 0 or -ENOMEM. */
int nvmf_auth_create(struct nvmf_qpair *qpair);
/* Connect has succeeded: the host's first message is expected, within a time. */
void nvmf_auth_begin(struct nvmf_qpair *qpair);
/* Frees it; no command of the queue pair is left. */
void nvmf_auth_destroy(struct nvmf_qpair *qpair);
/* Whether the host waits for a computation of the target's: its silence means nothing. */
bool nvmf_auth_computes(const struct nvmf_qpair *qpair);
/* What clients of nvmf_qpair_get_info() see. */
void nvmf_auth_get_info(const struct nvmf_qpair *qpair, struct nvmf_auth_info *info);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* The NVMe host: controllers, queue pairs, namespaces, over transports (nvme/transport.h).
 *
 * A controller belongs to the control thread: its life cycle is a state table (ctrlr.c), its admin queue is polled
 * there. An I/O queue pair is connected by the control thread and then used by exactly one thread, a reactor's: submit,
 * poll and flush take no lock. Nothing here waits: what takes time ends in a callback. */
#ifndef NVME_NVME_H
#define NVME_NVME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/uio.h>

#include "nvme/spec.h"

struct nvme_ctrlr;
struct nvme_qpair;
struct thread;
struct keyring_key;

/* Transports by number: TRTYPE of a discovery log's records (Base 5.16.1.23), and 0, which none of them has, for local
 * drives. The functions below say which ones this program has. */
enum nvme_trtype {
	NVME_TRTYPE_PCIE = 0,
	NVME_TRTYPE_RDMA = 1,
};

/* The parts of an address (struct nvme_trid) that a transport makes use of, besides traddr, which all need. */
enum nvme_trid_key {
	NVME_TRID_ADRFAM = 1 << 0,
	NVME_TRID_TRSVCID = 1 << 1,
	NVME_TRID_SUBNQN = 1 << 2,
	NVME_TRID_HOST_TRADDR = 1 << 3, /* and host_trsvcid */
};

/* A transport, as its users see it. */
struct nvme_transport {
	enum nvme_trtype trtype;
	const char *name;            /* "RDMA": how it is written; it is read in upper and lower case */
	bool fabrics;                /* a network: subsystems have NQNs, and discovery can find them */
	unsigned keys;               /* set of enum nvme_trid_key; what else an address has, is ignored */
	unsigned adrfams;            /* set of 1u << NVMF_ADDR_FAMILY_*; 0: it has no address families */
	const char *default_trsvcid; /* where an address has none; NULL: it has no such thing */
};
/* The transport of that number, or NULL: this program does not have it. Any thread, as all functions of transports: the
 * table is filled before main(). */
const struct nvme_transport *nvme_transport_find(enum nvme_trtype trtype);
/* The transport of that name in upper or lower case, or NULL. */
const struct nvme_transport *nvme_transport_find_by_name(const char *name);
/* The names of the transports that this program has, as "RDMA, TCP or PCIe", for messages; of those over fabrics, if
 * fabrics_only. Writes up to size bytes to text and returns it. */
#define NVME_TRANSPORT_NAMES_MAX 80
const char *nvme_transport_names(bool fabrics_only, char *text, size_t size);
/* The name of a transport; "unknown" for a number that this program does not have. */
const char *nvme_trtype_name(enum nvme_trtype trtype);
/* False for local drives, and for numbers that this program does not have. */
bool nvme_trtype_is_fabrics(enum nvme_trtype trtype);

#define NVME_TRADDR_MAX  257 /* NVMe-oF 1.1, 5.3: 256 bytes and our NUL */
#define NVME_TRSVCID_MAX 33
#define NVME_NQN_MAX     224 /* NVMe Base 2.0, 4.5: 223 bytes and a NUL */

struct nvme_trid {
	enum nvme_trtype trtype;
	uint8_t adrfam; /* NVMF_ADDR_FAMILY_*: 1 IPv4, 2 IPv6 */
	char traddr[NVME_TRADDR_MAX];
	char trsvcid[NVME_TRSVCID_MAX];
	char subnqn[NVME_NQN_MAX];
	/* Where we come from, over RDMA: an address of this machine, of the family of traddr, and a port. "": whatever
	 * leads there. */
	char host_traddr[NVME_TRADDR_MAX];
	char host_trsvcid[NVME_TRSVCID_MAX];
};

#define NVME_ERROR_MAX 256
/* Parses "trtype:RDMA adrfam:IPv4 traddr:10.0.0.1 trsvcid:4420 subnqn:nqn..." (any order; blanks between pairs). 0, or
 * -EINVAL and error names the key, the value and what is allowed. Pure. */
int nvme_trid_parse(struct nvme_trid *trid, const char *text, char error[NVME_ERROR_MAX]);
/* The same address, from the same one, whatever the subsystem. Pure. */
bool nvme_trid_is_same_place(const struct nvme_trid *a, const struct nvme_trid *b);
/* "nqn.yyyy-mm.reverse.domain:..." or "nqn.2014-08.org.nvmexpress:uuid:..." (NVMe Base 2.0, 4.5). */
bool nvme_nqn_is_valid(const char *nqn);

/* The life cycle. The numbers appear in the probe nvme_ctrlr_state and the tracepoint of that name. */
enum nvme_ctrlr_state {
	NVME_CTRLR_DISCONNECTED, /* no connection; where an attempt starts */
	NVME_CTRLR_CONNECT,      /* the transport connects the admin queue (fabrics), or maps the registers (PCIe) */
	NVME_CTRLR_READ_CAP,
	NVME_CTRLR_READ_VS,
	NVME_CTRLR_CHECK_CC,       /* is it enabled already? */
	NVME_CTRLR_WAIT_READY_OLD, /* enabled by whoever had it before, not ready: may not be disabled yet */
	NVME_CTRLR_DISABLE,
	NVME_CTRLR_WAIT_DISABLED,
	NVME_CTRLR_ENABLE,
	NVME_CTRLR_WAIT_READY,
	NVME_CTRLR_IDENTIFY,
	NVME_CTRLR_SET_QUEUES, /* number of queues */
	NVME_CTRLR_SET_AER,    /* asynchronous event configuration, then the requests themselves */
	NVME_CTRLR_SCAN_NS,    /* identify: the active namespaces, each of them, its descriptors */
	NVME_CTRLR_READY,
	NVME_CTRLR_SHUTDOWN, /* CC.SHN set */
	NVME_CTRLR_WAIT_SHUTDOWN,
	NVME_CTRLR_BACK_OFF,     /* an attempt failed; the next one waits for its time */
	NVME_CTRLR_FAILED,       /* given up: loss timeout, or no reconnect wanted */
	NVME_CTRLR_REMOVED,      /* the device is gone */
	NVME_CTRLR_AUTHENTICATE, /* after CONNECT, where the controller or we want it. Last, for recorded numbers stay
				  */
	NVME_CTRLR_STATES
};
const char *nvme_ctrlr_state_name(enum nvme_ctrlr_state s);

/* What a controller tells its owner; on the control thread. */
enum nvme_event {
	NVME_EVENT_READY,   /* connected (again): queue pairs may be created; namespaces are known */
	NVME_EVENT_DOWN,    /* connection lost or reset: all I/O queue pairs must be stopped and destroyed; the next
			       attempt    waits for that; READY or FAILED follows */
	NVME_EVENT_RETRY,   /* an attempt to connect has failed (nvme_ctrlr_last_error()); another one follows */
	NVME_EVENT_FAILED,  /* given up; in place of DOWN, the same must be done */
	NVME_EVENT_REMOVED, /* the device is gone, or the kernel wants it back; in place of DOWN; destroy the controller
			       soon */
	NVME_EVENT_NS_CHANGED, /* namespaces came, went or changed size; iterate again */
	NVME_EVENT_LOG,        /* an asynchronous event of type error or SMART: its result is in `aer`, its page
				  nvme_ctrlr_event_log() */
	NVME_EVENT_DISCOVERY_CHANGED,
	NVME_EVENT_ANA_CHANGED, /* nvme_ctrlr_ana_state() may say something else now */
};
typedef void (*nvme_event_fn)(struct nvme_ctrlr *ctrlr, enum nvme_event event, uint32_t aer, void *arg);

struct nvme_ctrlr_opts {
	char hostnqn[NVME_NQN_MAX]; /* "": nvme_host_default() */
	uint8_t hostid[16];         /* zeroes: nvme_host_default() */
	uint16_t io_queues;         /* asked for; 0: one per lcore */
	uint16_t io_queue_entries;  /* entries asked for; capped by CAP.MQES */
	uint16_t admin_queue_entries;
	uint32_t keep_alive_ms; /* 0: none */
	uint32_t connect_timeout_ms;
	uint32_t admin_timeout_ms;
	uint32_t io_timeout_ms; /* a command without an answer is aborted after this, and the controller is reset after
				   as long again; 0: none */
	bool io_timeout_resets; /* the controller is reset at once, without an Abort */
	int32_t loss_timeout_s; /* -1: reconnect for ever; 0: a connection that is lost gets one attempt, at once */
	uint32_t reconnect_delay_s; /* doubled at each failure up to 8 times this; the last one ends with loss_timeout_s
				     */
	bool discovery;             /* a discovery controller: no I/O queues, no namespaces */
	uint32_t admin_poll_us; /* between looks at an admin queue that has no descriptor; 0: as often as is useful */
	/* RDMA: how often an unacknowledged packet is sent again (0 to 7), after 4.096 us << ack_timeout (0: as the
	 * device has it; 1 to 31), the type of service of the packets (0: as the machine has it), and how long an
	 * address or a route may take (0: 2 s). */
	uint8_t rdma_retry_count, rdma_ack_timeout, rdma_tos;
	uint16_t rdma_cm_timeout_ms;
	/* DH-HMAC-CHAP, over fabrics: what proves to the controller who we are, and what the controller has to prove;
	 * NULL: nothing. The controller holds references of its own. */
	struct keyring_key *dhchap_key, *dhchap_ctrlr_key;
	unsigned dhchap_hashes, dhchap_groups; /* sets of dhchap/'s that we offer; 0: all */
	nvme_event_fn event;
	void *event_arg;
};
void nvme_ctrlr_opts_default(struct nvme_ctrlr_opts *opts);
/* What /etc/nvme/hostnqn and hostid say, or else made from the machine id. Control thread. */
void nvme_host_default(char hostnqn[NVME_NQN_MAX], uint8_t hostid[16]);

/* Starts to connect. NULL, error and errno (EINVAL: the arguments; ENOMEM and others: the machine) if it cannot even
 * begin; what happens later comes as events. Control thread. */
struct nvme_ctrlr *nvme_ctrlr_create(const struct nvme_trid *trid, const struct nvme_ctrlr_opts *opts,
				     char error[NVME_ERROR_MAX]);
/* Shuts the controller down as the specification wants it, then frees it and calls done(arg). Its I/O queue pairs must
 * be destroyed before. Events end at once. Control thread. */
void nvme_ctrlr_destroy(struct nvme_ctrlr *ctrlr, void (*done)(void *arg), void *arg);
/* In NVME_EVENT_READY: this is not the controller that is wanted. The attempt has failed, as any may, and that is why.
 * Control thread. */
void nvme_ctrlr_refuse(struct nvme_ctrlr *ctrlr, const char *why);
/* NVME_EVENT_DOWN soon, then a new attempt. 0, or -EBUSY when one is under way. Control thread. */
int nvme_ctrlr_reset(struct nvme_ctrlr *ctrlr);
/* The same by an NVM Subsystem Reset (Base 3.7.1), which resets every controller of the subsystem, other hosts' too.
 * -ENOTSUP: it has none (CAP.NSSRS). */
int nvme_ctrlr_reset_subsystem(struct nvme_ctrlr *ctrlr);

/* Other addresses of the same controller, tried in turn when it does not answer. 0, -ENOMEM; 0, -ENOENT.
 * nvme_ctrlr_trid() is the one in use, and none of them; nvme_ctrlr_switch() makes the next one that, from the next
 * attempt on. after: NULL is the first. Control thread. */
int nvme_ctrlr_add_alternate(struct nvme_ctrlr *ctrlr, const struct nvme_trid *trid);
int nvme_ctrlr_remove_alternate(struct nvme_ctrlr *ctrlr, const struct nvme_trid *trid);
const struct nvme_trid *nvme_ctrlr_next_alternate(const struct nvme_ctrlr *ctrlr, const struct nvme_trid *after);
void nvme_ctrlr_switch(struct nvme_ctrlr *ctrlr);
/* Other keys, which may be NULL as in the options. A controller that is READY and has a key is authenticated with
 * again, on its admin queue, beside its I/O; if that fails, the keys stay as they were and the connection is made anew.
 * done(arg, 0) or (arg, negative errno, why), now or later. Control thread. */
void nvme_ctrlr_set_keys(struct nvme_ctrlr *ctrlr, struct keyring_key *key, struct keyring_key *ctrlr_key,
			 void (*done)(void *arg, int error, const char *why), void *arg);

enum nvme_ctrlr_state nvme_ctrlr_state(const struct nvme_ctrlr *ctrlr);
uint64_t nvme_ctrlr_state_ticks(const struct nvme_ctrlr *ctrlr); /* TSC when that state was entered */
const struct nvme_trid *nvme_ctrlr_trid(const struct nvme_ctrlr *ctrlr);
const struct nvme_id_ctrl *nvme_ctrlr_identify(const struct nvme_ctrlr *ctrlr);
uint64_t nvme_ctrlr_cap(const struct nvme_ctrlr *ctrlr);
uint32_t nvme_ctrlr_vs(const struct nvme_ctrlr *ctrlr);
uint16_t nvme_ctrlr_io_queues(const struct nvme_ctrlr *ctrlr);    /* granted */
uint32_t nvme_ctrlr_max_transfer(const struct nvme_ctrlr *ctrlr); /* bytes, of MDTS and the transport */
uint16_t nvme_ctrlr_max_segments(const struct nvme_ctrlr *ctrlr); /* pieces of memory (iovs) one I/O command may use */
uint32_t
nvme_ctrlr_buf_align(const struct nvme_ctrlr *ctrlr); /* bytes: what addresses and lengths of iovs are multiples of */
uint16_t nvme_ctrlr_cntlid(const struct nvme_ctrlr *ctrlr);        /* of Connect, or (PCIe) of Identify */
const char *nvme_ctrlr_last_error(const struct nvme_ctrlr *ctrlr); /* why it is down or failed; "" if it is not */

/* Namespaces, as of the last NVME_EVENT_READY or _NS_CHANGED. Control thread; I/O code copies what it needs. */
struct nvme_ns {
	uint32_t nsid;
	uint32_t block_size; /* bytes */
	uint16_t md_size;    /* bytes of metadata per block */
	bool md_interleaved;
	uint8_t pi_type; /* protection information: 0 none, 1 to 3 (NVM 5.2) */
	uint64_t num_blocks;
	uint32_t optimal_boundary_blocks; /* NOIOB; 0: none */
	uint8_t nguid[16];
	uint8_t eui64[8];
	uint8_t uuid[16];
	uint8_t csi;
	uint32_t anagrpid;
	struct nvme_id_ns id;
};
/* The namespace with the smallest id above `after` (0: the first), or NULL. */
const struct nvme_ns *nvme_ctrlr_next_ns(const struct nvme_ctrlr *ctrlr, uint32_t after);

/* Asymmetric namespace access. What the controller says of a group of namespaces (nvme_ns.anagrpid), as of the last
 * NVME_EVENT_READY or _ANA_CHANGED; optimized if it does not report such states. Control thread. */
enum nvme_ana_state nvme_ctrlr_ana_state(const struct nvme_ctrlr *ctrlr, uint32_t anagrpid);
bool nvme_ctrlr_has_ana(const struct nvme_ctrlr *ctrlr);     /* it reports such states */
uint32_t nvme_ctrlr_anatt_s(const struct nvme_ctrlr *ctrlr); /* the longest that a transition may take, in seconds */
/* Has the log read again, say because a command ended with a status that it should explain; NVME_EVENT_ANA_CHANGED
 * follows, or the end of the connection. */
void nvme_ctrlr_read_ana(struct nvme_ctrlr *ctrlr);
struct nvme_ana_group {
	uint32_t anagrpid;
	enum nvme_ana_state state;
};
/* Decodes an ANA log page (Base 5.16.1.13), with or without namespaces in it. How many groups (at most max), or
 * -EINVAL. Pure. */
int nvme_ana_decode(const uint8_t *log, size_t len, struct nvme_ana_group *groups, uint32_t max);

/* The log page that an NVME_EVENT_LOG names, NVME_EVENT_LOG_BYTES of it; NULL: it could not be read. Valid during the
 * event; reading it is what has cleared the event, so this is the only time that it is seen. Control thread. */
#define NVME_EVENT_LOG_BYTES 512
const void *nvme_ctrlr_event_log(const struct nvme_ctrlr *ctrlr);
/* What a SMART log says that a person should know, in one line. Pure. */
#define NVME_HEALTH_TEXT_MAX 512
void nvme_smart_text(const struct nvme_smart_log *smart, char *text, size_t size);
/* How many of the n entries of an Error Information log, which has the newest first, came after the one with the count
 * `seen`; 0: none has been seen, and the newest one alone is new. Pure. */
unsigned nvme_error_log_new(const struct nvme_error_log_page *entries, unsigned n, uint64_t seen);
/* One entry, in one line. Pure. */
void nvme_error_log_text(const struct nvme_error_log_page *e, char *text, size_t size);

/* A command. Embedded in its submitter's request with nvme_request_size() bytes in all; the submitter fills in cmd (not
 * cid, PSDT, the data pointer), the data and cb. */
struct nvme_request {
	struct nvme_sqe cmd;
	const struct iovec *iovs; /* stays valid until the completion */
	uint16_t iovcnt;
	bool to_device;    /* direction of the data */
	uint32_t data_len; /* bytes; the sum of iovs */
	void *md;          /* separate metadata, or NULL */
	uint32_t md_len;
	/* status: 15 bits as in the CQE without the phase (SC, SCT, CRD, M, DNR); cqe is valid during the call. The
	 * memory is the submitter's again when this is called. */
	void (*cb)(struct nvme_request *req, const struct nvme_cqe *cqe);
	void *cb_arg;
	/* private from here on */
	struct nvme_qpair *qpair;
	uint64_t submitted_ticks, abort_ticks;
	uint8_t late;   /* enum nvme_late */
	uint8_t forged; /* enum nvme_forged; valid while the queue pair is `injecting` */
	uint16_t forged_status;
	uint64_t due_ticks; /* of one that is held */
	TAILQ_ENTRY(nvme_request) link;
	uint8_t transport[] __attribute__((aligned(64)));
};
/* Bytes of a request, the room for any transport included; known before any controller is. */
size_t nvme_request_size(void);

/* Words for a status as nvme_cqe_status() gives it. */
const char *nvme_status_text(uint16_t status);

/* Admin commands, on the control thread. The controller owns the copy of the command; data is a buffer of data_len
 * bytes that stays valid until the callback (NULL: none), and is DMA-able for PCIe. 0, or -ENXIO when there is no admin
 * queue, -ENOMEM. */
int nvme_ctrlr_admin(struct nvme_ctrlr *ctrlr, const struct nvme_sqe *cmd, void *data, uint32_t data_len,
		     bool to_device, void (*cb)(void *arg, const struct nvme_cqe *cqe), void *arg);

/* Error injection: what becomes of the next `times` commands of an opcode. Control thread. */
struct nvme_injection {
	bool io; /* of the I/O queues, or of the admin queue (whoever sends it) */
	uint8_t opcode;
	bool hold; /* it is not sent at all, and completed after delay_us; else it is sent, and its status replaced */
	uint64_t delay_us; /* at most NVME_INJECTION_DELAY_MAX_US */
	uint32_t times;
	uint16_t status; /* as nvme_cqe_status() gives it; 0: success */
};
#define NVME_INJECTION_DELAY_MAX_US (UINT64_C(1) << 42)
/* In place of what was said of that opcode before. 0, -EINVAL, -ENOMEM. */
int nvme_ctrlr_inject(struct nvme_ctrlr *ctrlr, const struct nvme_injection *injection);
/* 0, or -ENOENT: there is none, or it has been used up. */
int nvme_ctrlr_inject_end(struct nvme_ctrlr *ctrlr, bool io, uint8_t opcode);

/* Discovery. What a record of a discovery log says (Base 5.16.1.23). */
struct nvme_discovered {
	struct nvme_trid trid;
	uint8_t subtype; /* 1: another discovery service, 2: an NVM subsystem, 3: this discovery service */
	uint16_t port_id;
};
/* Decodes one record. 0; -EPROTONOSUPPORT, -EAFNOSUPPORT: an address that this build cannot reach; -EINVAL: not a valid
 * record. Pure. */
int nvme_discovery_decode(const struct nvmf_disc_log_entry *entry, struct nvme_discovered *out);
/* Reads the whole log of a discovery controller (opts.discovery) that is READY. done(arg, 0, found, n) with the records
 * that decode; found is freed after the call. Or a negative errno: -EIO, -ENXIO, -ENOMEM, -EAGAIN (it kept changing).
 * Control thread. */
typedef void (*nvme_discovery_fn)(void *arg, int error, const struct nvme_discovered *found, uint32_t n);
void nvme_discovery_read(struct nvme_ctrlr *ctrlr, nvme_discovery_fn done, void *arg);

/* Where a queue pair is. The numbers appear in the probe nvme_qpair_state. */
enum nvme_qpair_state {
	NVME_QPAIR_NONE,
	NVME_QPAIR_CONNECTING, /* it has its memory; the device, or the target, is being told of it */
	NVME_QPAIR_READY,      /* in use; the admin queue: its connection is there */
	NVME_QPAIR_FAILED,     /* takes nothing any more */
	NVME_QPAIR_STOPPING,   /* its end was asked for */
	NVME_QPAIR_FREED,
	NVME_QPAIR_STATES
};
const char *nvme_qpair_state_name(enum nvme_qpair_state s);

/* I/O queue pairs. Creation on the control thread while the controller is READY; ready(arg, qpair, 0) or ready(arg,
 * NULL, negative errno) comes on the control thread; -ECONNRESET: the controller goes down, and its event follows. Then
 * one thread uses it. */
struct nvme_qpair_opts {
	uint16_t entries; /* 0: the controller's */
	int numa_node;    /* of the thread that will use it; -1: any */
	unsigned lcore;   /* of that thread */
};
void nvme_qpair_create(struct nvme_ctrlr *ctrlr, const struct nvme_qpair_opts *opts,
		       void (*ready)(void *arg, struct nvme_qpair *qpair, int error), void *arg);
/* Its end, in three steps, so that no buffer is reused while the device may still touch it:
 * 1. control thread: nvme_qpair_stop() has the device leave the queue alone; done(arg) comes on the control thread;
 * 2. using thread: nvme_qpair_abort_all() completes what is outstanding with NVME_SC_ABORT_QUEUE; no use after that;
 * 3. control thread: nvme_qpair_destroy(). */
void nvme_qpair_stop(struct nvme_qpair *qpair, void (*done)(void *arg), void *arg);
/* The using thread, when it will not submit or poll any more. If nothing is outstanding, the control thread may do all
 * three steps. */
void nvme_qpair_leave(struct nvme_qpair *qpair);
void nvme_qpair_abort_all(struct nvme_qpair *qpair);
void nvme_qpair_destroy(struct nvme_qpair *qpair);

/* The using thread. Submit: 0, or -EAGAIN when the queue is full (completions make room), -ENXIO when it is not
 * connected any more. With deferred doorbells, the device sees the command at the next flush or poll. */
int nvme_qpair_submit(struct nvme_qpair *qpair, struct nvme_request *req);
void nvme_qpair_flush(struct nvme_qpair *qpair);
/* Handles up to max completions (0: all there are) and rings what is pending. The number, or -ENXIO when the queue pair
 * has failed: NVME_EVENT_DOWN (or FAILED, REMOVED) follows. What was outstanding has then been completed with
 * NVME_SC_ABORT_QUEUE, or (PCIe: the drive may still write to its memory) will be by nvme_qpair_abort_all(), after
 * nvme_qpair_stop(). */
int nvme_qpair_poll(struct nvme_qpair *qpair, uint32_t max);
/* For reactors that sleep: a descriptor, or -1, and the request for a wake-up (true: completions are there already). */
int nvme_qpair_fd(const struct nvme_qpair *qpair);
bool nvme_qpair_arm(struct nvme_qpair *qpair);

/* Local drives: arrived(traddr, arg) on the control thread for each NVMe controller that is bound to vfio-pci or
 * uio_pci_generic, for those that are so already before this returns, then for each that comes. NULL ends it. 0 or a
 * negative errno. Control thread. */
int nvme_hotplug_listen(void (*arrived)(const char *traddr, void *arg), void *arg);

uint16_t nvme_qpair_id(const struct nvme_qpair *qpair);
uint16_t nvme_qpair_entries(const struct nvme_qpair *qpair);
uint32_t nvme_qpair_outstanding(const struct nvme_qpair *qpair);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* The NVMe host: controllers, queue pairs and namespaces, over several transports (nvme/transport.h).
 *
 * A controller belongs to the control thread, which polls its admin queue; its life is a table of states
 * (ctrlr_states.c). The control thread connects an I/O queue pair, and then exactly one thread uses it, a reactor's:
 * submit, poll and flush take no lock. No function waits: an operation that takes time ends in a callback. Functions
 * are the control thread's unless their comment says otherwise. */
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
	NVME_TRTYPE_TCP = 3,
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
	unsigned keys;               /* set of enum nvme_trid_key; other parts of an address are ignored */
	unsigned adrfams;            /* set of 1u << NVMF_ADDR_FAMILY_*; 0: it has no address families */
	const char *default_trsvcid; /* where an address has none; NULL: it has no such thing */
	bool tls;                    /* it can encrypt: nvme_ctrlr_opts.tcp_psk */
};
/* The transport of that number, or NULL: this program does not have it. Any thread, as all functions of transports: the
 * table is filled before main(). */
const struct nvme_transport *nvme_transport_find(enum nvme_trtype trtype);
/* The transport of that name in upper or lower case, or NULL. */
const struct nvme_transport *nvme_transport_find_by_name(const char *name);
#define NVME_TRANSPORT_NAMES_MAX 80
/* The names of the transports that this program has, as "RDMA, TCP or PCIe", for messages; only of those over fabrics,
 * if fabrics_only. Writes up to size bytes to text, and returns text. */
const char *nvme_transport_names(bool fabrics_only, char *text, size_t size);
/* The name of a transport; "unknown" for a number that this program does not have. */
const char *nvme_trtype_name(enum nvme_trtype trtype);
/* False for local drives, and for numbers that this program does not have. */
bool nvme_trtype_is_fabrics(enum nvme_trtype trtype);

#define NVME_TRADDR_MAX  257 /* NVMe-oF 1.1, 5.3: 256 bytes and a NUL */
#define NVME_TRSVCID_MAX 33
#define NVME_NQN_MAX     224 /* NVMe Base 2.0, 4.5: 223 bytes and a NUL */

/* The address of a controller, or of a discovery service. */
struct nvme_trid {
	enum nvme_trtype trtype;
	uint8_t adrfam; /* NVMF_ADDR_FAMILY_*: 1 IPv4, 2 IPv6; 0: as traddr is written */
	char traddr[NVME_TRADDR_MAX];
	char trsvcid[NVME_TRSVCID_MAX];
	char subnqn[NVME_NQN_MAX];
	/* The source of the connection: an address of this machine, of the family of traddr, and a port. "": the
	 * machine chooses. */
	char host_traddr[NVME_TRADDR_MAX];
	char host_trsvcid[NVME_TRSVCID_MAX];
};

/* Reads "IPv4" or "IPv6", in upper or lower case, as an address family (NVMF_ADDR_FAMILY_*). False: it is neither.
 * Pure. */
bool nvme_adrfam_parse(const char *text, uint8_t *adrfam);
/* "IPv4" or "IPv6"; "IPv4" for any other number. Pure. */
const char *nvme_adrfam_name(uint8_t adrfam);

#define NVME_ERROR_MAX 256
/* Parses "trtype:RDMA adrfam:IPv4 traddr:10.0.0.1 trsvcid:4420 subnqn:nqn..." (any order; blanks between pairs). 0, or
 * -EINVAL and error names the key, the value and what is allowed. Pure. */
int nvme_trid_parse(struct nvme_trid *trid, const char *text, char error[NVME_ERROR_MAX]);
/* Whether traddr is a numeric address of the family adrfam (0: of either), and trsvcid a port or empty; of a transport
 * that has no address families, nothing is looked at. 0, or -EINVAL and error, as above. Pure. */
int nvme_trid_check_address(const struct nvme_trid *trid, char error[NVME_ERROR_MAX]);
/* Whether two addresses, and the sources, are the same; subsystems are not compared. Pure. */
bool nvme_trid_is_same_place(const struct nvme_trid *a, const struct nvme_trid *b);
/* Whether a text is an NQN: "nqn.yyyy-mm.reverse.domain:..." or "nqn.2014-08.org.nvmexpress:uuid:..." (Base 4.5). Pure.
 */
bool nvme_nqn_is_valid(const char *nqn);

/* The life cycle. The numbers appear in the probe nvme_ctrlr_state and the tracepoint of that name. */
enum nvme_ctrlr_state {
	NVME_CTRLR_DISCONNECTED, /* no connection; where an attempt starts */
	NVME_CTRLR_CONNECT,      /* the transport connects the admin queue (fabrics), or maps the registers (PCIe) */
	NVME_CTRLR_READ_CAP,
	NVME_CTRLR_READ_VS,
	NVME_CTRLR_CHECK_CC,       /* is it enabled already? */
	NVME_CTRLR_WAIT_READY_OLD, /* its previous user has enabled it, and it is not ready: may not be disabled yet */
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
	NVME_CTRLR_FAILED,       /* no further attempt: the loss timeout is over, or the owner wants no reconnect */
	NVME_CTRLR_REMOVED,      /* the device is gone */
	NVME_CTRLR_AUTHENTICATE, /* after CONNECT, if the controller or our options demand it. Last, because numbers of
				    states stand in recorded traces */
	NVME_CTRLR_STATES
};
/* The name of a state; "unknown" for other numbers. Any thread. */
const char *nvme_ctrlr_state_name(enum nvme_ctrlr_state s);

/* Events that a controller announces to its owner, on the control thread. */
enum nvme_event {
	NVME_EVENT_READY,      /* connected (again): queue pairs may be created; namespaces are known */
	NVME_EVENT_DOWN,       /* connection lost or reset: the owner must stop and destroy all I/O queue pairs, and the
				  next attempt waits for that; READY or FAILED follows */
	NVME_EVENT_RETRY,      /* an attempt to connect has failed (nvme_ctrlr_last_error()); another one follows */
	NVME_EVENT_FAILED,     /* no further attempt is made; the owner must do the same as after DOWN */
	NVME_EVENT_REMOVED,    /* the device is gone, or the kernel wants it back; the owner must do the same as after
				  DOWN, and destroy the controller soon */
	NVME_EVENT_NS_CHANGED, /* namespaces came, went or changed: nvme_ctrlr_next_ns() has other answers */
	NVME_EVENT_LOG,        /* an asynchronous event of type error or SMART: its result is in `aer`, its page
				  nvme_ctrlr_event_log() */
	NVME_EVENT_DISCOVERY_CHANGED, /* the discovery log has changed */
	NVME_EVENT_ANA_CHANGED,       /* nvme_ctrlr_ana_state() may have other answers */
	NVME_EVENT_ENDING, /* over fabrics: the connection has failed, or is to be reset, and its admin queue may still
			      answer, so the controller is disabled next. The owner submits no command on its I/O queue
			      pairs any more, but goes on polling them. DOWN or FAILED follows */
};
typedef void (*nvme_event_fn)(struct nvme_ctrlr *ctrlr, enum nvme_event event, uint32_t aer, void *arg);

struct nvme_ctrlr_opts {
	char hostnqn[NVME_NQN_MAX]; /* "": nvme_host_default() */
	uint8_t hostid[16];         /* zeroes: nvme_host_default() */
	uint16_t io_queues;         /* requested; 0: one per lcore */
	uint16_t io_queue_entries;  /* requested; at most as many as CAP.MQES allows */
	uint16_t admin_queue_entries;
	uint32_t keep_alive_ms; /* 0: none */
	uint32_t connect_timeout_ms;
	uint32_t admin_timeout_ms;
	uint32_t io_timeout_ms;     /* a command that had no answer for so long is aborted, and the controller is reset
				       after as long again; 0: no limit */
	bool io_timeout_resets;     /* the controller is reset at once, without an Abort */
	int32_t loss_timeout_s;     /* -1: reconnect for ever; 0: a connection that is lost gets one attempt, at once */
	uint32_t reconnect_delay_s; /* a quarter of it after the first attempt has failed, which is made at once; then
				       this, doubled at each failure, up to 8 times; the last delay ends when
				       loss_timeout_s does */
	bool discovery;             /* a discovery controller: no I/O queues, no namespaces */
	uint32_t admin_poll_us; /* the interval at which an admin queue without a descriptor is polled; 0, or more than
				   the default: the default, 2 ms */
	/* RDMA. rdma_retry_count: how often an unacknowledged packet is sent again (0 to 7). rdma_ack_timeout:
	 * after 4.096 us << this (1 to 31; 0: the device's default). rdma_tos: the type of service of packets (0: the
	 * machine's default). rdma_cm_timeout_ms: the time limit for resolving an address or a route (0: 2 s). */
	uint8_t rdma_retry_count, rdma_ack_timeout, rdma_tos;
	uint16_t rdma_cm_timeout_ms;
	/* TCP: whether headers and data have digests, which the controller must then have too; the priority of packets
	 * (SO_PRIORITY; 0: the machine's default). */
	bool tcp_header_digest, tcp_data_digest;
	int tcp_priority;
	/* TCP: the pre-shared key (KEYRING_PSK) by which all connections are made over TLS; NULL: they are not
	 * encrypted. The controller holds a reference of its own. */
	struct keyring_key *tcp_psk;
	bool tcp_psk_compat; /* tls_psk.compat */
	/* TCP: secure channel concatenation. The admin queue is connected without TLS and authenticated with
	 * dhchap_key, which generates a pre-shared key; then it is connected anew over TLS with that, as are the I/O
	 * queues. Each attempt to connect begins so. Without tcp_psk. */
	bool tcp_concat;
	/* DH-HMAC-CHAP, over fabrics: the key with which this host authenticates, and the key that the controller must
	 * prove to have; NULL: no key. The controller holds references of its own. */
	struct keyring_key *dhchap_key, *dhchap_ctrlr_key;
	/* Over fabrics: queues are connected without flow control of their SQs (Fabrics 3.3, CATTR bit 2). The room in
	 * an SQ is known from the completions anyway; a TCP target may then leave out the responses of reads. */
	bool disable_sq_flow_control;
	unsigned dhchap_hashes, dhchap_groups; /* the sets that this host offers (dhchap/dhchap.h); 0: all */
	nvme_event_fn event;
	void *event_arg;
};
/* Fills in the defaults. Pure. */
void nvme_ctrlr_opts_default(struct nvme_ctrlr_opts *opts);
/* The NQN and the id of this host: those in /etc/nvme/hostnqn and hostid, or else made from the machine id. */
void nvme_host_default(char hostnqn[NVME_NQN_MAX], uint8_t hostid[16]);

/* Creates a controller and starts to connect it; the outcome comes as an event. NULL, error and errno (EINVAL: the
 * arguments; ENOMEM and others: the machine) if it cannot even begin. */
struct nvme_ctrlr *nvme_ctrlr_create(const struct nvme_trid *trid, const struct nvme_ctrlr_opts *opts,
				     char error[NVME_ERROR_MAX]);
/* Shuts the controller down as the specification demands (Base 3.6), then frees it and calls done(arg). The owner has
 * destroyed its I/O queue pairs before, and is told of no event any more. */
void nvme_ctrlr_destroy(struct nvme_ctrlr *ctrlr, void (*done)(void *arg), void *arg);
/* For the owner, in NVME_EVENT_READY: this is not the controller that it wants. The attempt counts as failed, with that
 * reason. */
void nvme_ctrlr_refuse(struct nvme_ctrlr *ctrlr, const char *why);
/* Resets the controller: NVME_EVENT_DOWN soon, then a new attempt. 0, or -EBUSY: an attempt is under way. */
int nvme_ctrlr_reset(struct nvme_ctrlr *ctrlr);
/* Disables the controller and ends its connection, without another attempt: NVME_EVENT_FAILED soon. 0, or -EBUSY: it is
 * not READY, or its connection is ending already. */
int nvme_ctrlr_stop(struct nvme_ctrlr *ctrlr);
/* As nvme_ctrlr_stop(), but also while it is being connected or waits for its next attempt. When it has FAILED,
 * nvme_ctrlr_reset() has it connected again. 0, or -EBUSY: it has FAILED, is REMOVED, or is being shut down. If it has
 * FAILED, and nvme_ctrlr_reset() was called since, of which there was no event yet, that is called off. */
int nvme_ctrlr_give_up(struct nvme_ctrlr *ctrlr);
/* A reset by an NVM Subsystem Reset (Base 3.7.1), which resets every controller of the subsystem, other hosts' too. 0,
 * -EBUSY, or -ENOTSUP: the controller has no such reset (CAP.NSSRS). */
int nvme_ctrlr_reset_subsystem(struct nvme_ctrlr *ctrlr);

/* In NVME_EVENT_DOWN, FAILED or REMOVED, and until the next READY: whether no command of the I/O queue pairs of the
 * connection that has ended is carried out any more, because the controller was seen to be disabled (CSTS.RDY 0), or is
 * a local drive, which is disabled or cut off from memory. False: it may still carry them out, at any time. */
bool nvme_ctrlr_has_ended(const struct nvme_ctrlr *ctrlr);
/* What says how soon a controller that the host has lost contact with ends its commands by itself. */
struct nvme_ctrlr_quiesce_info {
	uint32_t keep_alive_ms; /* the Keep Alive Timeout, in the controller's granularity; 0: none */
	uint16_t quiesce_ms;    /* Command Quiesce Time (CQT, TP4129); 0: not reported */
	bool traffic_based;     /* any command restarts the controller's keep-alive timer (CTRATT.TBKAS) */
	/* Cross-Controller Reset (TP8028): what names this controller, CIU and CIRN; a CIRN of 0: it cannot be reset
	 * so. How many such resets of others it takes at a time (CCRL); 0: none. */
	uint8_t ciu, cross_resets;
	uint64_t cirn;
};
/* Of the last NVME_EVENT_READY. */
void nvme_ctrlr_quiesce_info(const struct nvme_ctrlr *ctrlr, struct nvme_ctrlr_quiesce_info *info);
enum nvme_cross_reset_result {
	NVME_CROSS_RESET_DONE,   /* the controller carries out no command any more */
	NVME_CROSS_RESET_FAILED, /* it may still, as far as this controller knows, or contact with this one is lost */
	NVME_CROSS_RESET_BUSY,   /* the same; to be tried again a while later */
};
typedef void (*nvme_cross_reset_fn)(void *arg, enum nvme_cross_reset_result result);
struct nvme_cross_reset;
/* Asks ctrlr to reset another controller of its subsystem, of id icid and named by info, to which this host has been
 * connected. done(arg, result) comes once, later, unless it is cancelled. NULL: ctrlr is not READY, out of memory, or
 * its admin queue is full. */
struct nvme_cross_reset *nvme_ctrlr_cross_reset(struct nvme_ctrlr *ctrlr, uint16_t icid,
						const struct nvme_ctrlr_quiesce_info *info, nvme_cross_reset_fn done,
						void *arg);
/* done() will not be called; the reset may take place nevertheless. Not after done() has been called. */
void nvme_cross_reset_cancel(struct nvme_cross_reset *r);
/* Whether the connection has failed or is being ended: commands that were lost since have no answer to come. */
bool nvme_ctrlr_is_ending(const struct nvme_ctrlr *ctrlr);

/* Adds another address of the same controller; the addresses are tried in turn when the controller does not answer. 0
 * or -ENOMEM. */
int nvme_ctrlr_add_alternate(struct nvme_ctrlr *ctrlr, const struct nvme_trid *trid);
/* Removes one. 0, or -ENOENT: it is not among them. The address in use, nvme_ctrlr_trid(), never is. */
int nvme_ctrlr_remove_alternate(struct nvme_ctrlr *ctrlr, const struct nvme_trid *trid);
/* The other addresses one by one: NULL for the first; NULL: no more. */
const struct nvme_trid *nvme_ctrlr_next_alternate(const struct nvme_ctrlr *ctrlr, const struct nvme_trid *after);
/* From the next attempt on, the first of the other addresses is used, and the one in use is the last of them. */
void nvme_ctrlr_switch(struct nvme_ctrlr *ctrlr);
/* Gives the controller other keys, which may be NULL as in the options. A controller that is READY and gets a key
 * authenticates again, on its admin queue, while its I/O goes on; if that fails, it keeps the keys that it had, and the
 * connection is made anew. done(arg, 0) or (arg, negative errno, why), from within or later. */
void nvme_ctrlr_set_keys(struct nvme_ctrlr *ctrlr, struct keyring_key *key, struct keyring_key *ctrlr_key,
			 void (*done)(void *arg, int error, const char *why), void *arg);

/* Where the controller is. */
enum nvme_ctrlr_state nvme_ctrlr_state(const struct nvme_ctrlr *ctrlr);
/* When it entered that state, in ticks (env_ticks()). */
uint64_t nvme_ctrlr_state_ticks(const struct nvme_ctrlr *ctrlr);
/* The address in use, or that of the next attempt. */
const struct nvme_trid *nvme_ctrlr_trid(const struct nvme_ctrlr *ctrlr);
/* Identify Controller, as of the last NVME_EVENT_READY. */
const struct nvme_id_ctrl *nvme_ctrlr_identify(const struct nvme_ctrlr *ctrlr);
/* The register CAP. */
uint64_t nvme_ctrlr_cap(const struct nvme_ctrlr *ctrlr);
/* The register VS. */
uint32_t nvme_ctrlr_vs(const struct nvme_ctrlr *ctrlr);
/* How many I/O queues the controller has granted. */
uint16_t nvme_ctrlr_io_queues(const struct nvme_ctrlr *ctrlr);
/* Bytes that one command can transfer: the lower of MDTS and the transport's limit. */
uint32_t nvme_ctrlr_max_transfer(const struct nvme_ctrlr *ctrlr);
/* Bytes of data that one Write Zeroes may have (WZSL); UINT64_MAX: no limit. */
uint64_t nvme_ctrlr_max_write_zeroes(const struct nvme_ctrlr *ctrlr);
/* Blocks that one range of a deallocation may have (DMRSL); UINT32_MAX: no limit. */
uint32_t nvme_ctrlr_max_deallocate_blocks(const struct nvme_ctrlr *ctrlr);
/* Whether it has taken that the host knows extended LBA formats (LBAFEE). Otherwise it refuses I/O on namespaces whose
 * protection information has a guard of 32 or 64 bits, or a storage tag. As of the last NVME_EVENT_READY. */
bool nvme_ctrlr_has_extended_formats(const struct nvme_ctrlr *ctrlr);
/* The number of commands that an I/O queue pair of the size in the options can have outstanding: at least 1. */
uint16_t nvme_ctrlr_io_queue_entries(const struct nvme_ctrlr *ctrlr);
/* The number of iovs that one I/O command can have. */
uint16_t nvme_ctrlr_max_segments(const struct nvme_ctrlr *ctrlr);
/* Bytes: the addresses and lengths of iovs must be multiples of this. */
uint32_t nvme_ctrlr_buf_align(const struct nvme_ctrlr *ctrlr);
/* The controller's id: of the answer to Connect, or (PCIe) of Identify. */
uint16_t nvme_ctrlr_cntlid(const struct nvme_ctrlr *ctrlr);
/* Why it is down or has failed; "" if it has not. */
const char *nvme_ctrlr_last_error(const struct nvme_ctrlr *ctrlr);

/* A namespace, as of the last NVME_EVENT_READY or _NS_CHANGED. Code of other threads keeps copies of what it needs. */
struct nvme_ns {
	uint32_t nsid;
	uint32_t block_size; /* bytes */
	uint16_t md_size;    /* bytes of metadata per block */
	bool md_interleaved;
	uint8_t pi_type;   /* protection information: 0 none, 1 to 3 (NVM 5.2) */
	uint8_t pi_format; /* NVME_PI_GUARD_... of nvme/spec.h; 3: one that this driver does not know */
	/* Of the storage tag in it (NVM 4.1.5.3): bits, and those that a controller compares. */
	uint8_t storage_bits;
	uint64_t storage_mask;
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

/* The state of asymmetric namespace access of a group of namespaces (nvme_ns.anagrpid), as of the last NVME_EVENT_READY
 * or _ANA_CHANGED; optimized if the controller does not report such states. */
enum nvme_ana_state nvme_ctrlr_ana_state(const struct nvme_ctrlr *ctrlr, uint32_t anagrpid);
/* Whether it reports such states. */
bool nvme_ctrlr_has_ana(const struct nvme_ctrlr *ctrlr);
/* The longest time that a transition may take, in seconds (ANATT). */
uint32_t nvme_ctrlr_anatt_s(const struct nvme_ctrlr *ctrlr);
/* Has the ANA log read again, for example because a command ended with a status that the log should explain.
 * NVME_EVENT_ANA_CHANGED follows, or the end of the connection. */
void nvme_ctrlr_read_ana(struct nvme_ctrlr *ctrlr);
struct nvme_ana_group {
	uint32_t anagrpid;
	enum nvme_ana_state state;
};
/* Decodes an ANA log page (Base 5.16.1.13), with or without namespaces in it. How many groups (at most max), or
 * -EINVAL. Pure. */
int nvme_ana_decode(const uint8_t *log, size_t len, struct nvme_ana_group *groups, uint32_t max);

#define NVME_EVENT_LOG_BYTES 512
/* The log page that an NVME_EVENT_LOG names, NVME_EVENT_LOG_BYTES of it; NULL: it could not be read. Valid during the
 * event. Reading the page has cleared the event in the controller, so the owner sees the page only now. */
const void *nvme_ctrlr_event_log(const struct nvme_ctrlr *ctrlr);
#define NVME_HEALTH_TEXT_MAX 512
/* Describes in one line the warnings of a SMART log. text: size bytes. Pure. */
void nvme_smart_text(const struct nvme_smart_log *smart, char *text, size_t size);
/* How many of the n entries of an Error Information log, newest first, came after the entry whose error count is
 * `seen`. seen is 0 if none has been seen: then only the newest entry counts as new. Pure. */
unsigned nvme_error_log_new(const struct nvme_error_log_page *entries, unsigned n, uint64_t seen);
/* Describes an entry in one line. text: size bytes. Pure. */
void nvme_error_log_text(const struct nvme_error_log_page *e, char *text, size_t size);

/* A command, of nvme_request_size() bytes. Its submitter owns the memory, and fills in cmd (but not cid, PSDT and the
 * data pointer), the data and cb. From nvme_qpair_submit() until cb, the memory is the queue pair's. */
struct nvme_request {
	struct nvme_sqe cmd;
	const struct iovec *iovs; /* stays valid until the completion */
	uint16_t iovcnt;
	bool to_device;    /* direction of the data */
	uint32_t data_len; /* bytes; the sum of iovs */
	void *md;          /* separate metadata, or NULL */
	uint32_t md_len;
	/* The completion; cqe is valid during the call, and nvme_cqe_status() gives its status without the phase bit.
	 * The memory is the submitter's again. */
	void (*cb)(struct nvme_request *req, const struct nvme_cqe *cqe);
	void *cb_arg;
	/* private from here on */
	struct nvme_qpair *qpair;
	uint64_t submitted_ticks, abort_ticks;
	uint8_t late;   /* enum nvme_late */
	uint8_t forged; /* enum nvme_forged; valid while the queue pair is `injecting` */
	uint16_t forged_status;
	uint64_t due_ticks; /* when a held command is completed */
	TAILQ_ENTRY(nvme_request) link;
	uint8_t transport[] __attribute__((aligned(64)));
};
/* Bytes of a request, with the memory behind it that any of the transports needs. Constant. Any thread. */
size_t nvme_request_size(void);

/* A text for a status as nvme_cqe_status() gives it. Valid until the thread's next call. Any thread. */
const char *nvme_status_text(uint16_t status);

/* Sends an admin command, of which it keeps a copy. data: data_len bytes of DMA-able memory that stays valid until the
 * callback; NULL: the command has no data. 0: cb(arg, cqe) follows; -ENXIO: there is no admin queue; -EAGAIN: it is
 * full; -ENOMEM. */
int nvme_ctrlr_admin(struct nvme_ctrlr *ctrlr, const struct nvme_sqe *cmd, void *data, uint32_t data_len,
		     bool to_device, void (*cb)(void *arg, const struct nvme_cqe *cqe), void *arg);

/* Error injection: how the next `times` commands of an opcode end. */
struct nvme_injection {
	bool io; /* commands of I/O queues; false: of the admin queue, whoever sends them */
	uint8_t opcode;
	bool hold; /* the command is not sent, and completed after delay_us; else it is sent, and its status replaced */
	uint64_t delay_us; /* at most NVME_INJECTION_DELAY_MAX_US */
	uint32_t times;
	uint16_t status; /* as nvme_cqe_status() gives it; 0: success */
};
#define NVME_INJECTION_DELAY_MAX_US (UINT64_C(1) << 42)
/* Injects errors, in place of those injected before for that opcode. 0, -EINVAL, -ENOMEM. */
int nvme_ctrlr_inject(struct nvme_ctrlr *ctrlr, const struct nvme_injection *injection);
/* Ends the injection for an opcode. 0, or -ENOENT: there is none, or it has been used up. */
int nvme_ctrlr_inject_end(struct nvme_ctrlr *ctrlr, bool io, uint8_t opcode);

/* A record of a discovery log (Base 5.16.1.23). */
struct nvme_discovered {
	struct nvme_trid trid;
	uint8_t subtype; /* 1: another discovery service, 2: an NVM subsystem, 3: this discovery service */
	uint16_t port_id;
};
/* Decodes one record. 0; -EPROTONOSUPPORT: no transport of this program; -EAFNOSUPPORT: none of the transport's address
 * families; -EINVAL: the record is not valid. Pure. */
int nvme_discovery_decode(const struct nvmf_disc_log_entry *entry, struct nvme_discovered *out);
/* error 0: the n records that could be decoded, which are freed after the call; or a negative errno. */
typedef void (*nvme_discovery_fn)(void *arg, int error, const struct nvme_discovered *found, uint32_t n);
/* Reads the whole log of a discovery controller (opts.discovery) that is READY, and calls done: with -EIO, -ENXIO,
 * -ENOMEM, or -EAGAIN (the log kept changing) if that fails. */
void nvme_discovery_read(struct nvme_ctrlr *ctrlr, nvme_discovery_fn done, void *arg);

/* Where a queue pair is. The numbers appear in the probe nvme_qpair_state. */
enum nvme_qpair_state {
	NVME_QPAIR_NONE,
	NVME_QPAIR_CONNECTING, /* its memory is allocated; it is being created in the device, or connected */
	NVME_QPAIR_READY,      /* in use; of the admin queue: it is connected */
	NVME_QPAIR_FAILED,     /* takes no command any more */
	NVME_QPAIR_STOPPING,   /* nvme_qpair_stop() was called */
	NVME_QPAIR_FREED,
	NVME_QPAIR_STATES
};
/* The name of a state; "unknown" for other numbers. Any thread. */
const char *nvme_qpair_state_name(enum nvme_qpair_state s);

/* Options of an I/O queue pair. */
struct nvme_qpair_opts {
	uint16_t entries; /* 0: the controller's */
	int numa_node;    /* of the thread that will use it; -1: any */
	unsigned lcore;   /* of that thread */
};
/* Creates an I/O queue pair of a controller that is READY. ready(arg, qpair, 0) or ready(arg, NULL, negative errno)
 * follows, from within or later, on the control thread: -ENXIO: the controller is not READY; -ENOSPC: it has granted no
 * more queues; -EAGAIN: all are in use, but the controller is still deleting one, of a queue pair that was given up:
 * try again, since it is free soon, or the controller is reset; -ENOMEM; -ECONNREFUSED, -EIO and others: it was
 * refused; -ECONNRESET: the controller goes down, and its event follows. Then one thread uses the queue pair. */
void nvme_qpair_create(struct nvme_ctrlr *ctrlr, const struct nvme_qpair_opts *opts,
		       void (*ready)(void *arg, struct nvme_qpair *qpair, int error), void *arg);
/* A queue pair ends in three steps, so that no buffer is reused while the device may still access it:
 * 1. control thread: nvme_qpair_stop() has the device end its use of the queue; done(arg) comes on the control thread,
 *    from within or later;
 * 2. using thread: nvme_qpair_abort_all();
 * 3. control thread: nvme_qpair_destroy().
 * This is the first step. The using thread may go on submitting and polling meanwhile. */
void nvme_qpair_stop(struct nvme_qpair *qpair, void (*done)(void *arg), void *arg);
/* The using thread will not submit or poll any more: stops its timers. If no command is outstanding, the control thread
 * may then do all three steps. The using thread. */
void nvme_qpair_leave(struct nvme_qpair *qpair);
/* The second step: completes each outstanding command with NVME_SC_ABORT_QUEUE. The using thread, which does not use
 * the queue pair afterwards. */
void nvme_qpair_abort_all(struct nvme_qpair *qpair);
/* The third step: frees the queue pair. */
void nvme_qpair_destroy(struct nvme_qpair *qpair);

/* Submits a command; the device need not see it before the next flush or poll. 0; -EAGAIN: the queue is full, and
 * completions make room; -ENXIO: the queue pair has failed; -EFAULT, -E2BIG, -EINVAL: the transport cannot describe the
 * data. The using thread. */
int nvme_qpair_submit(struct nvme_qpair *qpair, struct nvme_request *req);
/* Sends the commands that have been submitted. The using thread. */
void nvme_qpair_flush(struct nvme_qpair *qpair);
/* Handles up to max completions (0: all there are) and flushes. The number, or -ENXIO when the queue pair has failed:
 * NVME_EVENT_DOWN (or FAILED, REMOVED) follows. Outstanding commands have then been completed with NVME_SC_ABORT_QUEUE,
 * or (PCIe: the drive may still write to their memory) nvme_qpair_abort_all() will complete them, after
 * nvme_qpair_stop(). The using thread. */
int nvme_qpair_poll(struct nvme_qpair *qpair, uint32_t max);
/* A descriptor that becomes readable when there are completions, for a reactor that sleeps; -1: there is none. Any
 * thread. */
int nvme_qpair_fd(const struct nvme_qpair *qpair);
/* Requests a wake-up on the descriptor, before the thread sleeps. True: there are completions already, and it must poll
 * instead. The using thread. */
bool nvme_qpair_arm(struct nvme_qpair *qpair);

/* Local drives: calls arrived(traddr, arg), on the control thread, for each NVMe controller that is bound to vfio-pci
 * or uio_pci_generic: for those that are bound already before it returns, then for each that is bound later. arrived:
 * NULL ends that. 0 or a negative errno. */
int nvme_hotplug_listen(void (*arrived)(const char *traddr, void *arg), void *arg);

/* For a request that ends with NVME_SC_ABORT_QUEUE, in its callback: true if the driver ended it because its queue pair
 * had failed or was ended, so that the controller may yet carry it out; false if the controller answered. The using
 * thread. */
bool nvme_request_was_lost(const struct nvme_request *req);
/* In the callback of a request: true if the driver has asked the controller to abort it, because it had no answer for
 * io_timeout_ms. The using thread. */
bool nvme_request_was_late(const struct nvme_request *req);

/* Its id; 0: the admin queue. Any thread. */
uint16_t nvme_qpair_id(const struct nvme_qpair *qpair);
/* How many commands may be outstanding. Any thread. */
uint16_t nvme_qpair_entries(const struct nvme_qpair *qpair);
/* How many commands are outstanding. The using thread. */
uint32_t nvme_qpair_outstanding(const struct nvme_qpair *qpair);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* The interface between the target and its transports (RDMA: nvmf_rdma/). A transport is written against this header,
 * nvmf/transport_buffers.h and nvmf/transport_options.h; the target, the RPC methods, metrics and tools know no
 * transport by name.
 *
 * Threads. The control thread runs what concerns the transport as a whole: options, listening, new connections. Each
 * poll group has one thread ("the group's thread"), on which everything of a connection happens once
 * nvmf_qpair_accept() has put it there. A transport that has to do something for a connection on the control thread
 * posts messages to and fro (thread_post()); neither thread waits for the network, and a poll group never waits for the
 * control thread.
 *
 * A connection. The transport makes a queue pair, whose struct begins with struct nvmf_qpair, and passes it to
 * nvmf_qpair_accept(). Then, on the group's thread:
 *
 *     ops->qpair_add()         the transport begins to receive
 *     nvmf_request_start() ... for each capsule, see below
 *     nvmf_qpair_disconnect()  called by the transport when the connection ends; or by the target, which first takes
 *                              back what has not begun, lets the rest end, and answers all (state QUIESCING)
 *     ops->qpair_close()       the transport ends the connection and all requests that it has
 *     nvmf_qpair_closed()      called by the transport when no request is left
 *     ops->qpair_destroy()     the transport frees the queue pair
 *
 * A command. The transport's request ends with struct nvmf_request. For each capsule, in the order of arrival, the
 * transport sets qpair, sqe, icd and icd_len of an idle request, and does what nvmf_request_start() returns:
 *
 *     NVMF_NEXT_BUFFER    Find room for req->length bytes in req->iov: nvmf_request_zcopy_get(), if the option zcopy is
 *                         set, else nvmf_buffers_get(), else nvmf_buffers_wait() until nvmf_buffers_next() returns it.
 *                         If req->xfer is NVME_DATA_TFR_HOST_TO_CTRL, receive the host's data into it, as req->sgl
 *                         tells. Then nvmf_request_exec(req).
 *     NVMF_NEXT_EXEC      nvmf_request_exec(req): there are no data, or they came in the capsule.
 *     NVMF_NEXT_COMPLETE  Do what ops->request_complete() does: the response is ready.
 *     NVMF_NEXT_WAIT      Nothing: ops->request_continue() is called later with one of the three above, once.
 *
 * The target calls ops->request_complete(req) when the command has been carried out. The transport sends req->iov to
 * the host if req->xfer is NVME_DATA_TFR_CTRL_TO_HOST, req->length is not 0 and nvmf_request_status(req) is 0, and then
 * req->cqe. When nothing reads or writes the buffers any more it calls nvmf_request_release(req), gives its buffers
 * back (nvmf_buffers_put()) and may use the request for another capsule. What it cannot carry through, because a
 * transfer fails or the connection ends, it completes with nvmf_request_fail() instead of nvmf_request_exec().
 *
 * No function of this header takes a lock, allocates memory or waits. */
#ifndef NVMF_TRANSPORT_H
#define NVMF_TRANSPORT_H

#include <stdatomic.h>
#include <sys/queue.h>
#include <sys/uio.h>
#include "bdev/bdev.h"
#include "env_dpdk/env.h"
#include "nvmf/nvmf.h"
#include "nvmf/transport_options.h"
#include "thread/thread.h"
#include "tls/psk.h"
#include "util/compiler.h"
#include "util/rate.h"

struct nvmf_request;
struct nvmf_buffer_group;
struct nvmf_transport_group;
struct nvmf_subsystem_view;
struct nvmf_ns_view;
struct nvmf_qos;
struct nvmf_ns_resv;

/* ---- What a transport provides ---- */

/* What a transport is to do with a request next; the head of this file says how. */
enum nvmf_next {
	NVMF_NEXT_EXEC,     /* nvmf_request_exec() */
	NVMF_NEXT_BUFFER,   /* find room for its data, fetch them, then nvmf_request_exec() */
	NVMF_NEXT_COMPLETE, /* send the response */
	NVMF_NEXT_WAIT,     /* nothing: ops->request_continue() follows */
};

/* A number in the transport's queue pair that debuggers show; they read it from a core, so it is a plain one. */
struct nvmf_qpair_field {
	const char *name;            /* heading of its column; NULL ends a table */
	uint16_t offset, size;       /* from the beginning of the struct; 1, 2, 4 or 8 bytes */
	uint16_t of_offset, of_size; /* of a second number behind a slash, as in "reads 3/16"; size 0: none */
	const char *const *names;    /* of its values; NULL: the number is shown */
	unsigned n_names;
};
#define NVMF_QPAIR_FIELD(type_, field_) .offset = offsetof(type_, field_), .size = sizeof(((type_ *)0)->field_)

/* Bytes from struct nvmf_request to a field of the transport's request that ends with it as req_. */
#define NVMF_REQUEST_OFFSET(type_, req_, field_) ((int32_t)offsetof(type_, field_) - (int32_t)offsetof(type_, req_))

struct nvmf_transport_ops {
	const char *name; /* "RDMA": in RPC methods, in any case of letters */
	uint8_t trtype;   /* enum nvmf_trtype: in the discovery log */
	bool ip_only;     /* it listens on IPv4 and IPv6 addresses only */

	/* ---- Tables, for tools that show any transport ---- */

	/* How its requests show in traces. Their tracepoints begin with a common prefix: <prefix>NEW is the birth of
	 * the object and the first of the group, <prefix>COMPLETED its end, the others are states. Tools that read a
	 * file cannot ask, and rely on these names; the prefix ends with "_REQ_". 0 and NULL: they do not show. */
	uint8_t trace_object_type; /* TRACE_OBJECT_* */
	const char *trace_prefix;  /* "RDMA_REQ_" */
	const char *trace_group;   /* "nvmf_rdma" */

	/* The states of its requests by number, at most NVMF_TRANSPORT_STATES; a number is that of the state's
	 * tracepoint in the group. One function of the transport changes a request's state, and records it (TRACE,
	 * USDT). */
	const struct nvmf_transport_state *states;
	unsigned n_states;
	/* Where a request has its state: bytes from struct nvmf_request to a uint8_t with the number, and to a uint64_t
	 * with thread_now() when the state began (NVMF_REQUEST_OFFSET). The number is NVMF_STATE_IDLE while the request
	 * is not outstanding. */
	int32_t state_offset, state_ticks_offset;

	/* What debuggers show of a queue pair, up to a field without a name; NULL: nothing. */
	const struct nvmf_qpair_field *qpair_fields;
	/* Counters of each device, up to one without a name; NULL: none. */
	const struct nvmf_device_counter *counters;
	/* Its own options (nvmf/transport_options.h), up to a line without a name; NULL: none. */
	const struct nvmf_transport_option *options;

	/* ---- The transport as a whole: control thread ---- */

	/* Sets the defaults of the common options, which are 0. Its own options have their table's values already. */
	void (*opts_init)(struct nvmf_transport_opts *opts);
	/* Makes the transport of a target. Its struct begins with struct nvmf_transport, of which it fills in
	 * sgl_rules: which data pointers its commands may have. opts are within their ranges. NULL: errno, and
	 * why says what is missing. */
	struct nvmf_transport *(*create)(struct nvmf_tgt *tgt, const struct nvmf_transport_opts *opts,
					 char why[NVMF_ERROR_MAX]);
	/* Frees it. No groups, listeners or queue pairs are left. */
	void (*destroy)(struct nvmf_transport *t);
	/* Listens at an address at which it does not listen yet. 0 or a negative errno; the log has the details. */
	int (*listen)(struct nvmf_transport *t, const struct nvmf_address *address);
	/* The same, and takes connections over TLS only. NULL: the transport has no TLS. */
	int (*listen_secure)(struct nvmf_transport *t, const struct nvmf_address *address);
	/* Stops listening. Connections that came in through the address go on. */
	void (*stop_listen)(struct nvmf_transport *t, const struct nvmf_address *address);
	/* Calls done(arg, 0) when everything that listen() began has ended, with or without success: for RDMA, memory
	 * is registered with the device. Maybe before it returns, at the latest in destroy(). NULL: listen() leaves
	 * nothing to wait for. */
	void (*settle)(struct nvmf_transport *t, nvmf_done_fn done, void *arg);
	/* Takes connections again after base.held was true. NULL: the transport does not look at that. */
	void (*resume)(struct nvmf_transport *t);
	/* Fills in tsas of a discovery log entry (Base 5.16.1.23) of a listener or a referral. The target has filled in
	 * the rest; treq says whether a secure channel is required. */
	void (*discover)(struct nvmf_transport *t, const struct nvmf_address *address,
			 struct nvmf_disc_log_entry *entry);

	/* ---- A poll group: its thread, as for all that follows ---- */

	/* Makes the transport's part of a poll group, whose struct begins with struct nvmf_transport_group, and
	 * registers its pollers. It sets buffers there if it uses nvmf/transport_buffers.h. NULL: errno,
	 * and why says what is missing. */
	struct nvmf_transport_group *(*group_create)(struct nvmf_transport *t, struct nvmf_poll_group *group,
						     char why[NVMF_ERROR_MAX]);
	/* Unregisters the pollers and frees it. No queue pairs are left. */
	void (*group_destroy)(struct nvmf_transport_group *tgroup);
	/* Fills in group_bytes, connections and connection_bytes, and adds its devices with
	 * nvmf_transport_add_device_stats(). */
	void (*group_stats)(struct nvmf_transport_group *tgroup, struct nvmf_transport_stats *stats);

	/* ---- Queue pairs ---- */

	/* Finishes making the connection, and receives from now on; it may go on on the control thread. A negative
	 * errno: qpair_destroy() follows. */
	int (*qpair_add)(struct nvmf_transport_group *tgroup, struct nvmf_qpair *qpair);
	/* Whether no request of the queue pair is outstanding: each response has been sent, and the host has it. */
	bool (*qpair_is_idle)(const struct nvmf_qpair *qpair);
	/* Ends the connection: takes no more capsules, ends every request that waits in the transport
	 * (nvmf_request_fail() with ABORT_QUEUE), and sends no response for those that the target still completes. When
	 * no request is left: nvmf_qpair_closed(), perhaps before it returns. Called once, also for a connection that
	 * broke by itself. */
	void (*qpair_close)(struct nvmf_qpair *qpair);
	/* Frees the queue pair. */
	void (*qpair_destroy)(struct nvmf_qpair *qpair);

	/* ---- Requests ---- */

	/* The command has been carried out, or was refused: its response is in req->cqe. */
	void (*request_complete)(struct nvmf_request *req);
	/* A request for which nvmf_request_start() returned NVMF_NEXT_WAIT goes on. next: never NVMF_NEXT_WAIT. */
	void (*request_continue)(struct nvmf_request *req, enum nvmf_next next);
	/* The request will wait for an event, perhaps for ever (Asynchronous Event Request): gives its share of what
	 * all hosts use back, such as a receive of a shared receive queue. anybody: its host may be anybody (a
	 * discovery controller's): such requests may take no more than a part of what is set aside for this. False:
	 * nothing is left, and the target refuses the request. NULL: it keeps nothing that others need. */
	bool (*request_hold)(struct nvmf_request *req, bool anybody);
	/* Ends a request that the transport has, because it waits or its data are being transferred: the host aborts
	 * it, or its queue pair is QUIESCING. True: the transport does not run it any more, and has called or will call
	 * nvmf_request_fail(req, status). False: it is too late, and the request goes on. */
	bool (*request_abort)(struct nvmf_request *req, uint16_t status);

	/* Private. */
	SLIST_ENTRY(nvmf_transport_ops) link;
};
/* Makes a transport type known; NVMF_TRANSPORT() calls it, before main(). */
void nvmf_transport_register(struct nvmf_transport_ops *ops);
/* Makes a transport type known before main(), and before constructors without a priority: those may ask which types
 * there are. At file scope. The library of the transport must be linked whole, because nothing refers to it. */
#define NVMF_TRANSPORT(ops_)                                                                                           \
	__attribute__((constructor(200))) static void nvmf_transport_register_##ops_(void)                             \
	{                                                                                                              \
		nvmf_transport_register(&ops_);                                                                        \
	}

/* A transport of a target. Control thread; sgl_rules, ops and opts do not change and are read by any thread. */
struct nvmf_transport {
	/* Set by the transport in create. */
	struct nvmf_sgl_rules sgl_rules;
	/* Set by the target. */
	const struct nvmf_transport_ops *ops;
	struct nvmf_tgt *tgt;
	bool held; /* control thread: it listens, but connections that come wait until ops->resume() */
	struct nvmf_transport_opts opts;
	TAILQ_ENTRY(nvmf_transport) link;
	TAILQ_HEAD(, nvmf_listen) listens;
	struct nvmf_anonymous *anonymous; /* control thread: nvmf/anonymous.c */
};

/* A transport's part of a poll group. Group's thread. */
struct nvmf_transport_group {
	struct nvmf_transport *transport; /* set by the target, like the rest */
	struct nvmf_poll_group *group;
	struct nvmf_buffer_group *buffers; /* set by the transport in group_create; NULL: it has none of these */
	struct nvmf_kept_transport *kept;  /* what its statistics begin with; NULL: nothing */
	TAILQ_ENTRY(nvmf_transport_group) link;
};
/* The thread of a poll group, for thread_post(). Any thread. */
struct thread *nvmf_poll_group_thread(const struct nvmf_poll_group *group);

/* For group_stats: adds a device's counters, which lie in counters as the transport's table says. More devices than
 * NVMF_STATS_DEVICES_MAX are left out. */
void nvmf_transport_add_device_stats(struct nvmf_transport_group *tgroup, struct nvmf_transport_stats *stats,
				     const char *name, const void *counters);

/* ---- Queue pairs ---- */

/* An array of requests in memory, at equal distances. Several queue pairs may have requests in one array. */
struct nvmf_request_array {
	struct nvmf_request *first;
	size_t stride; /* bytes from one to the next */
	uint32_t count;
};

STAILQ_HEAD(nvmf_request_queue, nvmf_request);

/* The limit that holds commands up: that of their host, or that of all hosts of the subsystem together. */
enum nvmf_qos_cause { NVMF_QOS_HOST, NVMF_QOS_ALL, NVMF_QOS_CAUSES };

/* Private: the commands of a queue pair that wait for a limit, reads or writes. All of them wait for the limit that
 * holds up the first. How long a command has waited for each is the difference of ticks from when it came. */
struct nvmf_qos_line {
	struct nvmf_request_queue queue;
	uint64_t ticks[NVMF_QOS_CAUSES]; /* how long each limit has been the cause, up to since_ticks */
	uint64_t since_ticks;
	uint64_t turn_ticks; /* when a command of it last went, or the first came */
	uint32_t changes;    /* of the cause */
	uint32_t fresh;      /* commands that came after the last change: they have waited for the present cause only */
	uint8_t cause;       /* enum nvmf_qos_cause */
};

/* One connection: the transport's struct begins with it, zeroed. */
struct nvmf_qpair {
	/* What every command touches. */
	struct nvmf_transport *transport;    /* set by the transport before nvmf_qpair_accept() */
	struct nvmf_poll_group *group;       /* the rest is set by the target */
	struct nvmf_ctrlr *ctrlr;            /* ENABLED: its controller */
	struct nvmf_subsystem_view *view;    /* ENABLED: its subsystem on this group */
	struct nvmf_request *fused_first;    /* arrived, its second has not */
	_Atomic uint64_t last_command_ticks; /* when the host was last heard of; read by the control thread */
	uint64_t completed;                  /* commands that were answered; read by the control thread */
	uint16_t qid;
	uint16_t sq_size; /* entries; 0 until connected */
	uint16_t sq_head;
	uint8_t state; /* enum nvmf_qpair_state; see nvmf_qpair_get_state() */
	bool sq_flow_control;
	uint16_t fused_first_failed; /* the last was a first that has failed so: its second does too */
	bool ends_ctrlr;             /* its end is that of its controller; set by the group before closing_msg */
	bool quiesce_posted;         /* control thread: told the group to quiesce it */
	bool quiesced;               /* control thread: its commands have ended; it waits for its controller's others */
	bool disconnect_posted;      /* control thread: told the group to disconnect it */
	bool accepted_as_io;         /* control thread: how it was counted */
	bool linked;                 /* control thread: in its controller's list */
	bool anonymous;              /* control thread: counted as such: nvmf/anonymous.c */
	_Atomic bool faulty;         /* its end is a fault; see nvmf_qpair_fail() */
	_Atomic bool write_through;  /* its host has switched the write cache off; set by the control thread */
	_Atomic bool extended_formats; /* its host knows guards of 32 and 64 bits (LBAFEE); set by the control thread */

	/* Rare. */
	struct nvmf_latency latency; /* of its commands; read by the control thread */
	uint16_t trace_owner;        /* set by the transport: its connection's, or 0 */
	struct nvmf_transport_group *tgroup;
	/* Set by the transport on the group's thread: where its requests are, to look for them; NULL: it has none.
	 * Those count that are not idle and whose qpair is this. */
	const struct nvmf_request_array *requests;
	uint64_t state_ticks;
	struct thread_timer connect_timer;
	struct thread_timer end_timer; /* QUIESCING, DISCONNECTING: looks after what has begun */
	uint64_t look_us;              /* until it looks again */
	uint64_t answering_ticks;      /* QUIESCING: since when answers alone are under way; 0: they are not */
	uint16_t answering_sq_head;    /* sq_head then */
	struct nvmf_qos *qos;          /* its host's limits; NULL: none */
	struct nvmf_qos_line qos_wait[RATE_KINDS];
	TAILQ_ENTRY(nvmf_qpair) qos_link;
	uint8_t qos_turn; /* which kind is tried first */
	bool qos_listed;  /* it is in its view's list */
	TAILQ_ENTRY(nvmf_qpair) group_link;
	TAILQ_ENTRY(nvmf_qpair) ctrlr_link; /* control thread */
	struct thread_timer late_timer;     /* control thread: it is ending, and should have ended */
	struct thread_msg disconnect_msg;   /* control thread to group */
	struct thread_msg closing_msg;      /* group to control thread */
	struct thread_msg quiesced_msg;     /* group to control thread, and back */
	struct thread_msg lifecycle_msg;    /* accept; closed; gone */
	const char *why;                    /* it is disconnected; the control thread reads it from closing_msg on */
	struct thread_msg
		refused_msg; /* group to control thread: a Connect was refused on arrival; with the next two */
	uint16_t refused_status, refused_where;
	_Atomic bool refused_posted;
	struct nvmf_ctrlr *ctl_ctrlr;       /* control thread: its controller */
	struct nvmf_auth *auth;             /* control thread: NULL: it need not, and did not, authenticate */
	uint16_t ctl_qid;                   /* control thread */
	bool auth_required;                 /* set by the control thread before Connect is answered */
	struct nvmf_address listen_address; /* set by the transport: the one it listens on ... */
	struct nvmf_address
		local_address; /* ... the one that the host connected to, which is another where that is 0.0.0.0 ... */
	struct nvmf_address peer_address; /* ... and the host's */
	/* Set by the transport before nvmf_qpair_accept(): equal for connections that one poll group serves best; 0:
	 * any poll group does. */
	uint32_t placement;
	struct nvmf_placement *placed; /* control thread: the one of that number, which counts it; NULL: none */
	/* Set by the transport before nvmf_qpair_accept(), and its memory until qpair_destroy(): over TLS, who has the
	 * key that the connection was made with. NULL: it is not encrypted. Control thread. */
	const struct tls_identity *secured_by;
	const char *tls_records;        /* likewise: who encrypts and decrypts; static */
	char hostnqn[NVMF_NQN_MAX + 1]; /* empty until connected */
};

/* Control thread: puts a new queue pair on the poll group that has others of its `placement`, else on the one with the
 * fewest of its kind. qid: the queue's number if the transport knows it before Connect (RDMA: from the private data),
 * otherwise 0. 0: the target has it from now on; ops->qpair_add() follows, and at the end ops->qpair_destroy(), both on
 * the group's thread. -ENODEV: there is no poll group, because the target does not run; -ENOSPC, -EUSERS: there are
 * max_anonymous connections whose hosts are not known, or max_anonymous_per_host of this host's address; -ENOMEM; the
 * transport keeps the queue pair then. */
int nvmf_qpair_accept(struct nvmf_qpair *qpair, uint16_t qid);
/* Finds the pre-shared key that a host has for a subsystem, configured or generated, as a tls_find_fn does. False: it
 * has none. The copy is to be overwritten after use (dhchap_cleanse()). Any thread. */
bool nvmf_psk_find(const struct nvmf_tgt *tgt, const struct tls_identity *identity, struct tls_psk *psk);
/* Whether a host may come over TLS with a PSK that was generated on a connection without: secure channel concatenation.
 * Control thread. */
bool nvmf_psk_any_generated(const struct nvmf_tgt *tgt);
/* Control thread: the transport refuses a connection before there is a queue pair. Tells operators, in the log and as a
 * notification, both limited in number. traddr: the host's address. why: the field, its value and what is allowed. */
void nvmf_connection_refused(const char *traddr, const char *why);
#define NVMF_REFUSAL_MAX 320 /* bytes of why that are told */
/* Group's thread: ends the connection, or says that it has ended. Commands that have not begun are taken back. May be
 * called any number of times; the first reason counts. ops->qpair_close() is called before it returns. why: for the log
 * and notifications, a string that lasts: "disconnected by host". */
void nvmf_qpair_disconnect(struct nvmf_qpair *qpair, const char *why);
/* The same for what is a fault: the connection or the device failed, or the host broke the rules. Faults are counted
 * and reported (nvmf_set_fault_fn()). */
void nvmf_qpair_fail(struct nvmf_qpair *qpair, const char *why);
/* Group's thread: all requests of a queue pair are idle and its connection is shut. ops->qpair_destroy() follows, not
 * before it returns. */
void nvmf_qpair_closed(struct nvmf_qpair *qpair);
/* Group's thread: the queue pair's requests that are not idle, one by one. NULL: the first; NULL: there are no more.
 * Not for the hot path: it looks at all requests of the array. */
struct nvmf_request *nvmf_qpair_next_request(const struct nvmf_qpair *qpair, const struct nvmf_request *after);
/* Group's thread. */
static inline enum nvmf_qpair_state nvmf_qpair_get_state(const struct nvmf_qpair *qpair)
{
	return (enum nvmf_qpair_state)qpair->state;
}
/* Whether it is an admin queue, or not connected yet. Group's thread. */
static inline bool nvmf_qpair_is_admin(const struct nvmf_qpair *qpair)
{
	return qpair->qid == 0;
}

/* ---- Requests ---- */

/* Who has a request. */
enum nvmf_request_where {
	NVMF_REQUEST_TRANSPORT = 0, /* the transport: it waits for a buffer, or for data or the response to be sent */
	NVMF_REQUEST_PAUSED,        /* the view's queue: its namespace is paused */
	NVMF_REQUEST_LIMITED,       /* the queue pair's queue: it waits for a rate limit */
	NVMF_REQUEST_FUSED,         /* nobody: it waits for the other command of a fused pair */
	NVMF_REQUEST_CONTROL,       /* the control thread */
	NVMF_REQUEST_HELD,          /* the control thread: an Asynchronous Event Request that waits for an event */
	NVMF_REQUEST_BDEV,          /* the bdev */
	NVMF_REQUEST_PREEMPTED, /* the bdev, which has been asked to abort it for a Preempt and Abort of another host */
	NVMF_REQUEST_WHERES,
};

/* A command. The transport's own request ends with this struct, of which nvmf_request_size() bytes are needed, in
 * zeroed memory aligned to 64 bytes. Its address is its object id in the trace, and the parent of its bdev I/O there.
 *
 * The poll group's thread has it, or, from thread_post() to the answer, the control thread. Each field has one meaning;
 * those of one kind of command say of which. */
struct nvmf_request {
	/* Set by the transport for every capsule, and not changed until the request is idle again. */
	struct nvmf_qpair *qpair;
	const struct nvme_sqe *sqe; /* the 64 bytes of the command */
	const void *icd;            /* the data after it in the capsule; they stay in place */
	uint32_t icd_len;
	/* Filled in by nvmf_request_start(). */
	uint32_t length;    /* bytes to transfer; 0: none */
	uint8_t xfer;       /* enum nvme_data_tfr: NVME_DATA_TFR_HOST_TO_CTRL, _CTRL_TO_HOST, or none */
	bool reserved_lane; /* its buffer comes from the reserved lane: Connect, Keep Alive, Abort, properties */
	bool zcopy;         /* iov is a zero-copy buffer */
	/* Private. */
	uint8_t where;       /* enum nvmf_request_where */
	uint8_t fuse;        /* enum nvme_fuse */
	uint8_t fuse_failed; /* the status code to fail with, because the other command of the pair has failed; or 0 */
	bool counted;        /* it counts in ns_view->outstanding */
	bool before_data;    /* PAUSED: its data have not been received yet */
	/* The data buffers, in an array of the transport of at least one entry. The transport fills them in before
	 * nvmf_request_exec(); the target does for data in the capsule and in a zero-copy buffer. */
	struct iovec *iov;
	struct nvmf_ns_view *ns_view; /* private: its namespace, once it is under way */
	uint16_t iovcnt;
	bool zcopy_open;         /* private: a zero-copy buffer, and its I/O has not been submitted */
	bool qos_counted;        /* private: the limits of its host and subsystem have let it through, and counted it */
	bool flushing;           /* private: its blocks are written, and the bdev is being flushed (FUA) */
	uint16_t error_location; /* private: the place of the bad field, for the error log (NVMF_WHERE...) */

	/* Second line. */
	struct nvme_cqe cqe;            /* the response; valid from request_complete on */
	struct nvmf_request *fuse_peer; /* private: the other command of a fused pair, or NULL */
	uint64_t start_ticks;           /* arrival */
	uint64_t where_ticks;           /* since when `where` holds; not for TRANSPORT */
	/* The one queue it waits in. TRANSPORT: for a buffer; PAUSED: the view's; LIMITED: the queue pair's; CONTROL: a
	 * namespace's reservation commands. */
	STAILQ_ENTRY(nvmf_request) link;
	union {
		struct thread_msg msg; /* private: takes it from one thread to another */
		/* Private, LIMITED: the ticks of its struct nvmf_qos_line when it came there. */
		uint64_t qos_ticks[NVMF_QOS_CAUSES];
	};

	/* Third line: the data pointer, decoded; sgl.kind NVMF_SGL_KEYED: walk it with nvmf_sgl_next(). */
	struct nvmf_sgl sgl;
	/* Private: commands that the control thread carries out. */
	union {
		struct nvmf_qpair *abort_qpair; /* Abort: the queue pair of the command to be aborted */
		/* Reservation commands, and Set Features, Reservation Persistence: makes the change when its turn has
		 * come. */
		uint16_t (*resv_change)(struct nvmf_ns_resv *rn, uint16_t *where);
	};
	union {
		uint32_t persist_nsid; /* Set Features, Reservation Persistence of all namespaces: the one being changed
					*/
		uint32_t qos_changes; /* private, LIMITED: the changes of its struct nvmf_qos_line when it came there */
	};
	uint16_t next_range;    /* private: Dataset Management, Copy: the next range to be carried out */
	uint16_t answer_status; /* on the way from the control thread to the poll group: the status to finish with */
	/* Set by the transport before nvmf_request_start(): 0, or, of a request whose exact latency is measured, the
	 * ticks from start_ticks to its arrival (nvmf_exact_ticks()). */
	uint32_t exact_ticks;
	uint8_t qos_kind; /* private: LIMITED: enum rate_kind */
	/* On the way from the control thread to the poll group, of Authentication Send and Receive: the host has proved
	 * who it is. */
	bool authenticated;

	struct bdev_io bdev_io; /* last: the bdev module's context follows */
};

_Static_assert(offsetof(struct nvmf_request, cqe) == 64, "what arrival and submission touch is one cache line");
_Static_assert(offsetof(struct nvmf_request, sgl) == 128 && offsetof(struct nvmf_request, bdev_io) == 192,
	       "three cache lines; count before adding one");

/* Group's thread: a command on an I/O queue is completed, and the transport has measured its exact time. In its host's
 * statistics this time counts for all commands of the queue pair since the last one that was measured. */
void nvmf_request_measured(struct nvmf_request *req, uint64_t ticks);
/* The ticks since the start of the round, for req->exact_ticks: never 0. Reads the clock. */
static inline uint32_t nvmf_exact_ticks(uint64_t round)
{
	uint64_t ticks = env_ticks() - round;

	return ticks == 0 ? 1 : ticks < UINT32_MAX ? (uint32_t)ticks : UINT32_MAX;
}

/* The bytes that struct nvmf_request needs at the end of the transport's request: its size and the context of the bdev
 * modules behind it. It does not change while the process runs. Any thread. */
size_t nvmf_request_size(void);

/* Group's thread: a capsule of 64 + icd_len bytes has arrived. To be called in the order of arrival, once for each.
 * Returns what the transport is to do. */
enum nvmf_next nvmf_request_start(struct nvmf_request *req);
/* Group's thread: carries out a command whose data are in req->iov, or that has none. ops->request_complete() follows,
 * perhaps before it returns. */
void nvmf_request_exec(struct nvmf_request *req);
/* Group's thread: instead of nvmf_request_exec(), completes a request that the transport cannot carry through. status:
 * as NVME_ST() makes it. ops->request_complete() is called before it returns. */
void nvmf_request_fail(struct nvmf_request *req, uint16_t status);
/* Group's thread: after NVMF_NEXT_BUFFER, instead of getting a buffer. True: the bdev has a zero-copy buffer, which is
 * req->iov[0] now. Data that the host reads are in it when the request completes, and stay until
 * nvmf_request_release(). */
bool nvmf_request_zcopy_get(struct nvmf_request *req);
/* Private to nvmf_request_release(): gives the zero-copy buffer back to the bdev. Group's thread. */
void nvmf_request_return(struct nvmf_request *req);
/* Group's thread: the response has been sent, or never will be, and nothing reads or writes the buffers any more. */
static inline void nvmf_request_release(struct nvmf_request *req)
{
	if (unlikely(req->zcopy)) {
		nvmf_request_return(req);
	}
}
/* The status of a completed request, as NVME_ST() makes it. Group's thread. */
static inline uint16_t nvmf_request_status(const struct nvmf_request *req)
{
	return nvme_cqe_status(&req->cqe);
}
/* The command identifier that the host gave it. Group's thread. */
static inline uint16_t nvmf_request_cid(const struct nvmf_request *req)
{
	return le16toh(req->sqe->cid);
}

#endif

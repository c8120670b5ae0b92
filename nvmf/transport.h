/* SPDX-License-Identifier: BSD-3-Clause */
/* Between the target and its transports.
 *
 * A transport listens and accepts on the control thread. For a new connection it makes a queue pair that begins
 * with struct nvmf_qpair and hands it over with nvmf_qpair_accept(); from then on it lives on one poll group's
 * thread. For every capsule it receives:
 *
 *     req->qpair, sqe, icd, icd_len, iov are set by the transport
 *     switch (nvmf_request_start(req)) {
 *     case NVMF_NEXT_BUFFER:	 get req->length bytes of buffers into req->iov (from the reserve if
 *      req->reserved_lane), or try nvmf_request_zcopy_get(); fetch the host's data if
 *      req->xfer says so; then nvmf_request_exec(req)
 *     case NVMF_NEXT_EXEC:	 nvmf_request_exec(req)
 *     case NVMF_NEXT_COMPLETE: as if ops->request_complete(req) had been called
 *     case NVMF_NEXT_WAIT:	 nothing; ops->request_continue(req, next) comes later
 *     }
 *     ops->request_complete(req): send the data if req->xfer says so and the status is 0, and req->cqe;
 *         nvmf_request_release(req) when the buffers are no longer needed
 *
 * No function here takes a lock, allocates, or waits. What is said to run on "the group's thread" does so always. */
#ifndef NVMF_TRANSPORT_H
#define NVMF_TRANSPORT_H

#include <stdatomic.h>
#include <sys/queue.h>
#include <sys/uio.h>
#include "bdev/bdev.h"
#include "nvmf/nvmf.h"
#include "nvmf/transport_options.h"
#include "thread/thread.h"
#include "util/compiler.h"

struct nvmf_request;
struct nvmf_buffer_group;
struct nvmf_transport_group;
struct nvmf_subsystem_view;
struct nvmf_ns_view;
struct nvmf_ns_resv;

/* ---- What a transport provides ---- */

enum nvmf_next {
	NVMF_NEXT_EXEC,
	NVMF_NEXT_BUFFER,
	NVMF_NEXT_COMPLETE,
	NVMF_NEXT_WAIT,
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
	const char *name; /* "RDMA" */
	uint8_t trtype;   /* enum nvmf_trtype, for the discovery log */

	/* How its requests show in traces. Their tracepoints are named with a common prefix: <prefix>NEW is the birth
	 * of the object, <prefix>COMPLETED its end, and those between are states. Tools that read a file and cannot ask
	 * rely on that. 0 and NULL: they do not show. */
	uint8_t trace_object_type; /* TRACE_OBJECT_* */
	const char *trace_prefix;  /* "RDMA_REQ_" */
	const char *trace_group;   /* "nvmf_rdma" */

	/* Its requests' states by number, at most NVMF_TRANSPORT_STATES, and where a request has its own: bytes from
	 * struct nvmf_request to the uint8_t with the number and to the uint64_t with the ticks at which it began
	 * (NVMF_REQUEST_OFFSET). The number is NVMF_STATE_IDLE while the request is not outstanding. */
	const struct nvmf_transport_state *states;
	unsigned n_states;
	int32_t state_offset, state_ticks_offset;

	/* What debuggers show of a queue pair, up to a field without a name; NULL: nothing. */
	const struct nvmf_qpair_field *qpair_fields;
	/* Counters of each device, up to one without a name; NULL: none. */
	const struct nvmf_device_counter *counters;
	/* Its own options (nvmf/transport_options.h), up to a line without a name; NULL: none. */
	const struct nvmf_transport_option *options;

	/* Control thread. Sets the common options where they are not 0; its own have their table's values already. */
	void (*opts_init)(struct nvmf_transport_opts *opts);
	/* The transport's struct begins with struct nvmf_transport; create fills in sgl_rules. NULL and
	 * errno, the log says why. opts have been checked for what holds for every transport. */
	struct nvmf_transport *(*create)(struct nvmf_tgt *tgt, const struct nvmf_transport_opts *opts);
	void (*destroy)(struct nvmf_transport *t); /* no groups, listeners or queue pairs are left */
	int (*listen)(struct nvmf_transport *t, const struct nvmf_address *address);
	void (*stop_listen)(struct nvmf_transport *t, const struct nvmf_address *address);
	/* NULL: listen() leaves nothing to wait for. done, perhaps before it returns, when all that listening began is
	 * over, in whatever way; at the latest in destroy(). */
	void (*settle)(struct nvmf_transport *t, nvmf_done_fn done, void *arg);
	/* Fills in what is particular to the transport: treq, tsas. The rest is filled in. */
	void (*discover)(struct nvmf_transport *t, const struct nvmf_address *address,
			 struct nvmf_disc_log_entry *entry);

	/* On the group's thread; it registers its pollers there. The transport's struct begins with struct
	 * nvmf_transport_group. NULL and errno. */
	struct nvmf_transport_group *(*group_create)(struct nvmf_transport *t, struct nvmf_poll_group *group);
	void (*group_destroy)(struct nvmf_transport_group *tgroup); /* no queue pairs are left */
	/* Adds group_bytes, connections, connection_bytes and, by nvmf_transport_add_device_stats(), the devices. */
	void (*group_stats)(struct nvmf_transport_group *tgroup, struct nvmf_transport_stats *stats);

	/* The group's thread, as all that follows. qpair_add finishes the connection (accepts it). On
	 * failure, a negative errno, qpair_destroy() follows. */
	int (*qpair_add)(struct nvmf_transport_group *tgroup, struct nvmf_qpair *qpair);
	/* Ends the connection: take no more capsules, let go of every request the transport has, and take
	 * back those we have as they complete. When none is left: nvmf_qpair_closed(). Called once, also for
	 * a connection that broke by itself. */
	void (*qpair_close)(struct nvmf_qpair *qpair);
	void (*qpair_destroy)(struct nvmf_qpair *qpair); /* frees it */

	/* The response is in req->cqe. */
	void (*request_complete)(struct nvmf_request *req);
	/* A request for which NVMF_NEXT_WAIT was answered may go on as nvmf_request_start() would have said;
	 * never WAIT. */
	void (*request_continue)(struct nvmf_request *req, enum nvmf_next next);
	/* The host aborts a request that the transport has (buffer wait, data transfer). True: the transport
	 * will not run it any more; it has called or will call nvmf_request_fail(req, Command Abort
	 * Requested). False: too late, it goes on. */
	bool (*request_abort)(struct nvmf_request *req);

	/* Private. */
	SLIST_ENTRY(nvmf_transport_ops) link;
};
void nvmf_transport_register(struct nvmf_transport_ops *ops);
/* Makes a transport known by its name before main(), and before constructors without a priority: those may ask which
 * transports there are. */
#define NVMF_TRANSPORT(ops_)                                                                                           \
	__attribute__((constructor(200))) static void nvmf_transport_register_##ops_(void)                             \
	{                                                                                                              \
		nvmf_transport_register(&ops_);                                                                        \
	}

struct nvmf_transport {
	/* Set by the transport in create. */
	struct nvmf_sgl_rules sgl_rules;
	/* Set by the target. */
	const struct nvmf_transport_ops *ops;
	struct nvmf_tgt *tgt;
	struct nvmf_transport_opts opts;
	TAILQ_ENTRY(nvmf_transport) link;
	TAILQ_HEAD(, nvmf_listen) listens;
};

struct nvmf_transport_group {
	struct nvmf_transport *transport; /* set by the target, like the rest */
	struct nvmf_poll_group *group;
	struct nvmf_buffer_group *buffers; /* set by the transport in group_create; NULL: it has none of these */
	TAILQ_ENTRY(nvmf_transport_group) link;
};
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

/* One connection: the transport's struct begins with it, zeroed. */
struct nvmf_qpair {
	/* What every command touches. */
	struct nvmf_transport *transport;    /* set by the transport before nvmf_qpair_accept() */
	struct nvmf_poll_group *group;       /* the rest is set by the target */
	struct nvmf_ctrlr *ctrlr;            /* ENABLED: its controller */
	struct nvmf_subsystem_view *view;    /* ENABLED: its subsystem on this group */
	struct nvmf_request *fused_first;    /* arrived, its second has not */
	_Atomic uint64_t last_command_ticks; /* when the host was last heard of; read by the control thread */
	uint16_t qid;
	uint16_t sq_size; /* entries; 0 until connected */
	uint16_t sq_head;
	uint8_t state; /* enum nvmf_qpair_state; see nvmf_qpair_get_state() */
	bool sq_flow_control;
	bool fused_first_failed;    /* the last command was a first that has failed: its second fails too */
	bool disconnect_posted;     /* control thread: told the group to disconnect it */
	bool accepted_as_io;        /* control thread: how it was counted */
	bool linked;                /* control thread: in its controller's list */
	_Atomic bool faulty;        /* its end is a fault; see nvmf_qpair_fail() */
	_Atomic bool write_through; /* its host has switched the write cache off; set by the control thread */

	/* Rare. */
	uint16_t trace_owner; /* set by the transport: its connection's, or 0 */
	struct nvmf_transport_group *tgroup;
	/* Set by the transport on the group's thread: where its requests are, to look for them; NULL: it has none.
	 * Those count that are not idle and whose qpair is this. */
	const struct nvmf_request_array *requests;
	uint64_t state_ticks;
	struct thread_timer connect_timer;
	TAILQ_ENTRY(nvmf_qpair) group_link;
	TAILQ_ENTRY(nvmf_qpair) ctrlr_link; /* control thread */
	struct thread_msg disconnect_msg;   /* control thread to group */
	struct thread_msg closing_msg;      /* group to control thread */
	struct thread_msg lifecycle_msg;    /* accept; closed; gone */
	const char *why;                    /* it is disconnected; the control thread reads it from closing_msg on */
	struct nvmf_ctrlr *ctl_ctrlr;       /* control thread: its controller */
	struct nvmf_auth *auth;             /* control thread: NULL: it need not, and did not, authenticate */
	uint16_t ctl_qid;                   /* control thread */
	bool auth_required;                 /* set by the control thread before Connect is answered */
	struct nvmf_address listen_address; /* set by the transport: the one it listens on ... */
	struct nvmf_address
		local_address; /* ... the one that the host connected to, which is another where that is 0.0.0.0 ... */
	struct nvmf_address peer_address; /* ... and the host's */
	char hostnqn[NVMF_NQN_MAX + 1];   /* empty until connected */
};

/* Control thread: puts a new queue pair on the poll group with the fewest of its kind. qid: if the transport
 * knows it beforehand (RDMA private data), else 0. 0: the target has it now, ops->qpair_add() follows and, at
 * the end, ops->qpair_destroy(), both on the group's thread. -ENODEV: no poll group (not running); the
 * transport keeps it. */
int nvmf_qpair_accept(struct nvmf_qpair *qpair, uint16_t qid);
/* Group's thread: the connection is to end (or has). Any number of times; the first reason counts. why: for the log
 * and the notices, a string that lasts: "disconnected by host". */
void nvmf_qpair_disconnect(struct nvmf_qpair *qpair, const char *why);
/* The same for what should not happen: the connection or the device failed, or the host broke the rules. */
void nvmf_qpair_fail(struct nvmf_qpair *qpair, const char *why);
/* Group's thread: all its requests are idle and the connection is shut. ops->qpair_destroy() follows. */
void nvmf_qpair_closed(struct nvmf_qpair *qpair);
/* Group's thread: the queue pair's requests that are not idle, one by one. NULL: the first; NULL: there are no more.
 * Not for the hot path: it looks at all requests of the array. */
struct nvmf_request *nvmf_qpair_next_request(const struct nvmf_qpair *qpair, const struct nvmf_request *after);
static inline enum nvmf_qpair_state nvmf_qpair_get_state(const struct nvmf_qpair *qpair)
{
	return (enum nvmf_qpair_state)qpair->state;
}
static inline bool nvmf_qpair_is_admin(const struct nvmf_qpair *qpair)
{
	return qpair->qid == 0;
}

/* ---- Requests ---- */

/* Who has a request. */
enum nvmf_request_where {
	NVMF_REQUEST_TRANSPORT = 0, /* the transport: it waits for a buffer, or for data or the response to be sent */
	NVMF_REQUEST_PAUSED,        /* the view's queue: its namespace is paused */
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
	bool flushing;           /* private: its blocks are written, and the bdev is being flushed (FUA) */
	uint16_t next_range;     /* private: Dataset Management, Copy: the next range to be carried out */
	uint16_t error_location; /* private: the place of the bad field, for the error log (NVMF_WHERE...) */

	/* Second line. */
	struct nvme_cqe cqe;            /* the response; valid from request_complete on */
	struct nvmf_request *fuse_peer; /* private: the other command of a fused pair, or NULL */
	uint64_t start_ticks;           /* arrival */
	uint64_t where_ticks;           /* since when `where` holds; not for TRANSPORT */
	/* The one queue it waits in. TRANSPORT: for a buffer; PAUSED: the view's; CONTROL: a namespace's reservation
	 * commands. */
	STAILQ_ENTRY(nvmf_request) link;
	struct thread_msg msg; /* private: takes it from one thread to another */

	/* Third line: the data pointer, decoded; sgl.kind NVMF_SGL_KEYED: walk it with nvmf_sgl_next(). */
	struct nvmf_sgl sgl;
	/* Private: commands that the control thread carries out. */
	struct nvmf_qpair *abort_qpair; /* Abort: the queue pair of the command to be aborted */
	/* Reservation commands, and Set Features, Reservation Persistence: makes the change when its turn has come. */
	uint16_t (*resv_change)(struct nvmf_ns_resv *rn, uint16_t *where);
	uint32_t persist_nsid;  /* Set Features, Reservation Persistence of all namespaces: the one being changed */
	uint16_t answer_status; /* on the way from the control thread to the poll group: the status to finish with */
	bool authenticated;     /* the same way, Authentication Send and Receive: the host has proved who it is */

	struct bdev_io bdev_io; /* last: the bdev module's context follows */
};

STAILQ_HEAD(nvmf_request_queue, nvmf_request);

_Static_assert(offsetof(struct nvmf_request, cqe) == 64, "what arrival and submission touch is one cache line");
_Static_assert(offsetof(struct nvmf_request, sgl) == 128 && offsetof(struct nvmf_request, bdev_io) == 192,
	       "three cache lines; count before adding one");

/* Bytes behind which nothing of the transport may lie: sizeof() plus the bdev modules' context. */
size_t nvmf_request_size(void);

/* All on the group's thread. nvmf_request_start: a capsule of 64 + icd_len bytes has arrived; in the order of
 * arrival. */
enum nvmf_next nvmf_request_start(struct nvmf_request *req);
/* The data are there (or none are needed). Ends in ops->request_complete(), perhaps before it returns. */
void nvmf_request_exec(struct nvmf_request *req);
/* Instead of exec, for a request that the transport cannot carry through: completes it with a status
 * (NVME_ST). */
void nvmf_request_fail(struct nvmf_request *req, uint16_t status);
/* After NVMF_NEXT_BUFFER, instead of getting buffers: true if the bdev has a zero-copy buffer, which is then
 * req->iov[0]. Read data are in it once the request has completed, and stay until nvmf_request_release(). */
bool nvmf_request_zcopy_get(struct nvmf_request *req);
void nvmf_request_return(struct nvmf_request *req); /* private to the next */
/* The response is out (or never will be) and nothing reads or writes the buffers any more. */
static inline void nvmf_request_release(struct nvmf_request *req)
{
	if (unlikely(req->zcopy)) {
		nvmf_request_return(req);
	}
}
static inline uint16_t nvmf_request_status(const struct nvmf_request *req)
{
	return nvme_cqe_status(&req->cqe);
}
static inline uint16_t nvmf_request_cid(const struct nvmf_request *req)
{
	return le16toh(req->sqe->cid);
}

#endif

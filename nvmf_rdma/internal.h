/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of nvmf_rdma/.
 *
 * Two threads work here. The control thread owns devices, listeners and connection events, and makes and destroys queue
 * pairs. A poll group's thread owns all requests and what they need; those structures and functions are marked "Group".
 * Either thread sends messages to the other (thread_post()); the control thread may also call the group's thread and
 * wait (thread_call()). Neither waits for the network.
 *
 * A receive work request and a request are one object. While it is posted as a receive it is FREE; the capsule that is
 * received into it is its command. With a shared receive queue these objects belong to the poller, otherwise to the
 * queue pair. */
#ifndef NVMF_RDMA_INTERNAL_H
#define NVMF_RDMA_INTERNAL_H

#include <rdma/rdma_cma.h>
#include <sys/queue.h>

#include "env_dpdk/iobuf.h"
#include "nvmf/transport.h"
#include "nvmf/transport_buffers.h"
#include "verbs/pd.h"
#include "thread/thread.h"
#include "trace/trace.h"
#include "usdt/usdt.h"
#include "util/compiler.h"
#include "util/latency.h"
#include "util/log.h"

#define NVMF_RDMA_MAX_SGE         16 /* scatter/gather elements (pieces of local memory) of one work request */
#define NVMF_RDMA_MAX_DESCRIPTORS 16 /* SGL descriptors of one command: MSDBD */
#define NVMF_RDMA_POLL_BATCH      32

struct nvmf_rdma_qpair;
struct nvmf_rdma_poller;

/* The states of a request, with the numbers of their tracepoints. */
enum nvmf_rdma_request_state {
	RDMA_REQ_NEW = 0,
	RDMA_REQ_NEED_BUFFER = 1,
	RDMA_REQ_TX_PENDING_H2C = 2, /* no RDMA READ credit or no room in the send queue */
	RDMA_REQ_TX_H2C = 3,
	RDMA_REQ_RDY_TO_EXECUTE = 4,
	RDMA_REQ_EXECUTING = 5,
	RDMA_REQ_EXECUTED = 6,
	RDMA_REQ_TX_PENDING_C2H = 7, /* data to write, no room in the send queue */
	RDMA_REQ_RDY_TO_COMPL = 8,
	RDMA_REQ_COMPLETING_C2H = 9,
	RDMA_REQ_COMPLETING = 10,
	RDMA_REQ_COMPLETED = 11,
	RDMA_REQ_RDY2COMPL_PEND = 18, /* no data, no room in the send queue */
	RDMA_REQ_HAVE_BUFFER = 19,
	RDMA_REQ_NEED_DATA_WR = 20,      /* the pool of data work requests is empty */
	RDMA_REQ_FREE = NVMF_STATE_IDLE, /* posted as a receive; no tracepoint: COMPLETED was the last */
	RDMA_REQ_STATES
};

/* A work request of a transfer that needs more than the one in its request. Group. */
struct nvmf_rdma_data_wr {
	struct ibv_send_wr wr;
	struct ibv_sge sge[NVMF_RDMA_MAX_SGE];
	struct nvmf_rdma_data_wr *next_free;
};

struct nvmf_rdma_request {
	struct nvmf_rdma_qpair *qp;
	uint8_t state;                        /* enum nvmf_rdma_request_state; set by set_request_state() only */
	bool read_posted;                     /* its RDMA READs are posted */
	uint16_t data_wrs;                    /* work requests of its data transfer */
	uint16_t send_slots;                  /* entries of the send queue that it uses */
	uint16_t buffers;                     /* that it has in req.iov */
	uint64_t state_ticks;                 /* thread_now() when the state was entered */
	STAILQ_ENTRY(nvmf_rdma_request) wait; /* the one queue it waits in */
	struct nvmf_rdma_data_wr *more;       /* data work requests beyond the first */

	struct ibv_recv_wr recv_wr;
	struct ibv_sge recv_sge[2];
	struct ibv_send_wr rsp_wr;
	struct ibv_sge rsp_sge[2]; /* see init_request() */
	struct ibv_send_wr data_wr;
	struct ibv_sge data_sge[NVMF_RDMA_MAX_SGE];

	struct nvmf_request req __attribute__((aligned(64))); /* last */
};
STAILQ_HEAD(nvmf_rdma_request_queue, nvmf_rdma_request);

/* An array of requests with their capsules, in registered memory. */
struct nvmf_rdma_request_array {
	struct nvmf_request_array base;
	size_t bytes; /* of all of it */
	uint8_t *memory, *commands, *icd;
	struct iovec *iovs;
	uint32_t receives; /* those that are posted as receives at first; the spares are behind them */
};

/* Whether it has no receive: see struct nvmf_rdma_spares. Its list of buffers went with the receive. */
static inline bool nvmf_rdma_request_is_spare(const struct nvmf_rdma_request *r)
{
	return r->req.iov == NULL;
}

/* Requests without a receive. One that waits for an event gives its place in the shared receive queue, with the room
 * for in-capsule data and the list of buffers, to a spare, and becomes one when it has ended. So events that never come
 * occupy no receive. Group. */
struct nvmf_rdma_spares {
	struct nvmf_rdma_request_queue free;
	uint32_t count, num_free;
};

static inline struct nvmf_rdma_request *nvmf_rdma_request_at(const struct nvmf_rdma_request_array *a, uint32_t i)
{
	return (struct nvmf_rdma_request *)(a->memory + i * a->base.stride);
}

/* The state of a connection, as its group sees it. */
enum nvmf_rdma_qpair_state {
	NVMF_RDMA_QPAIR_SETUP, /* the control thread makes its queue pair */
	NVMF_RDMA_QPAIR_LIVE,
	NVMF_RDMA_QPAIR_CLOSING, /* its requests end; no capsule is taken any more */
	NVMF_RDMA_QPAIR_CLOSED,  /* no request is left; the control thread destroys it */
	NVMF_RDMA_QPAIR_STATES,
};
extern const char *const nvmf_rdma_qpair_state_names[NVMF_RDMA_QPAIR_STATES]; /* "LIVE" */

struct nvmf_rdma_qpair {
	struct nvmf_qpair base;
	/* Group. */
	struct ibv_qp *verbs;
	struct nvmf_rdma_poller *poller;
	enum nvmf_rdma_qpair_state state;
	bool in_error;  /* the control thread has moved it to the error state */
	bool last_wqe;  /* it holds no receive of a shared receive queue any more */
	bool dirty;     /* in its poller's list of those that have work requests to post */
	bool described; /* its trace owner names host and subsystem */
	bool abandoned; /* the device did not flush its work in time: its completions are not waited for any more */
	uint16_t owner; /* of trace records */
	uint16_t depth; /* commands that the host may have outstanding */
	uint16_t max_reads, reads; /* RDMA READs: credits, outstanding */
	uint32_t in_use;           /* requests that are not FREE */
	uint32_t receives;         /* posted; without a shared receive queue */
	uint32_t send_room;        /* free entries of the send queue */
	uint32_t sends_done;       /* that completed, modulo 2^32 */
	struct ibv_send_wr *send_first, *send_last;
	struct ibv_recv_wr *recv_first, *recv_last;
	struct nvmf_rdma_request_queue pending; /* wait for RDMA READ credits or for room in the send queue, in order */
	STAILQ_ENTRY(nvmf_rdma_qpair) dirty_link;
	SLIST_ENTRY(nvmf_rdma_qpair) number_link;
	struct nvmf_rdma_request_array requests; /* without a shared receive queue */
	uint32_t send_entries;                   /* of the send queue */
	uint32_t sends_seen;                     /* sends_done when stalled connections were last looked for, and */
	uint32_t stalled;                        /* how many times in a row it was found unchanged */

	/* Control thread. */
	struct nvmf_rdma_device *device;
	struct rdma_cm_id *id;
	uint16_t receive_queue;                 /* entries */
	struct nvmf_rdma_poller *device_poller; /* as poller, but set before the group knows the queue pair */
	uint32_t completions;                   /* entries of the completion queue that are reserved for it */
	bool broken;                            /* the connection is lost, or was never made */
	bool leaving;                           /* the group has been told that it is broken, and */
	const char *broken_why;                 /* why: the group reads it from leave_msg on; NULL: the usual end */
	bool accepted;                          /* it has been connected: it may take shared receives */
	bool last_wqe_told;                     /* the group has been told of last_wqe */
	bool waits;                             /* it waits for its device to be ready */
	uint16_t qid;                           /* as its host says when it connects */
	struct thread_timer flush_timer;        /* CLOSING: how long the device may take to flush its work, and */
	struct thread_timer last_wqe_timer;     /* to say that it holds no shared receive any more */
	struct thread_msg setup_msg, close_msg, unmake_msg, describe_msg; /* group to control thread */
	struct thread_msg leave_msg, error_msg, last_wqe_msg, unmade_msg; /* control thread to group */
	TAILQ_ENTRY(nvmf_rdma_qpair) link;
};
TAILQ_HEAD(nvmf_rdma_qpair_list, nvmf_rdma_qpair);
STAILQ_HEAD(nvmf_rdma_dirty_list, nvmf_rdma_qpair);

/* What a poll group counts of a device; nvmf_get_stats and metrics name these (transport.c). Group. */
struct nvmf_rdma_counters {
	uint64_t polls, idle_polls, completions, requests, request_latency;
	uint64_t pending_free_request, pending_rdma_read, pending_rdma_write, pending_rdma_send;
	uint64_t total_send_wrs, send_doorbell_updates, total_recv_wrs, recv_doorbell_updates;
	uint64_t memory_regions, registered_bytes; /* of our memory with the device, now; all groups share them */
};

/* For the times in request_latency (util/latency.h). Group. */
struct nvmf_rdma_latency {
	uint8_t until_sample; /* I/O commands up to the next one whose exact time is measured */
	uint8_t first_samples_left;
	uint32_t sample_period; /* in which there was one last */
	struct latency_correction correction;
};

/* A device in a group: one completion queue, and one shared receive queue where the device has them. Group. */
#define NVMF_RDMA_QPAIR_BUCKETS 1024
struct nvmf_rdma_poller {
	struct nvmf_rdma_device *device;
	struct nvmf_rdma_group *tgroup;
	struct ibv_cq *cq;
	struct ibv_comp_channel *comp;
	struct ibv_srq *srq;
	struct poller *poller, *stall_poller;
	struct nvmf_rdma_dirty_list dirty;
	struct ibv_recv_wr *recv_first, *recv_last; /* of the shared receive queue */
	uint32_t region_hint;
	bool no_wr_batching;                     /* a doorbell for each send */
	struct nvmf_rdma_request_array requests; /* with a shared receive queue */
	struct nvmf_rdma_spares spares;          /* among them */
	struct nvmf_rdma_counters counters;
	struct nvmf_rdma_latency latency;
	/* Control thread. */
	uint32_t cq_size, cq_reserved; /* entries, and how many of them are reserved */
	uint32_t qps;                  /* connections that use it */
	bool failed;                   /* a queue of it failed: it is destroyed after its last connection */
	bool lossy;                    /* shared receives may be lost: the same, but it takes connections until then */
	TAILQ_ENTRY(nvmf_rdma_poller) device_link;
	SLIST_HEAD(, nvmf_rdma_qpair) by_number[NVMF_RDMA_QPAIR_BUCKETS];
	TAILQ_ENTRY(nvmf_rdma_poller) link;
};

struct nvmf_rdma_group {
	struct nvmf_transport_group base;
	struct nvmf_buffer_group buffers;
	struct nvmf_rdma_data_wr *data_wrs, *free_data_wrs;
	struct nvmf_rdma_request_queue waiting_wrs;
	uint32_t connections;                   /* of all its pollers, and */
	uint64_t connection_bytes;              /* the memory allocated for them, without the device's own queues */
	TAILQ_HEAD(, nvmf_rdma_poller) pollers; /* changed by the control thread, in thread_call() */
};

struct nvmf_rdma_device {
	struct nvmf_rdma_transport *transport;
	struct ibv_context *verbs;
	struct ibv_device_attr attr;
	struct verbs_pd *pd;
	struct nvmf_rdma_watcher *watcher; /* reads its events; NULL: nobody does */
	int sges, read_sges;               /* scatter/gather elements of a work request, and of an RDMA READ */
	bool iwarp;
	bool removed;                  /* the device is gone or dead: it is closed after its last connection */
	bool ready;                    /* all memory is registered with it; until then connections wait */
	struct verbs_pd_waiter waiter; /* for that */
	bool no_last_wqe; /* the last time it did not say that a queue pair held no shared receive any more */
	uint32_t qps;     /* connections */
	TAILQ_HEAD(, nvmf_rdma_poller) pollers;
	TAILQ_ENTRY(nvmf_rdma_device) link;         /* of its transport */
	TAILQ_ENTRY(nvmf_rdma_device) watcher_link; /* of the transports' devices with this ibv_context */
};

struct nvmf_rdma_listener {
	struct nvmf_address address;
	struct rdma_cm_id *id; /* NULL: its device is gone; tried again by relisten_timer */
	TAILQ_ENTRY(nvmf_rdma_listener) link;
};

struct nvmf_rdma_transport {
	struct nvmf_transport base;
	struct rdma_event_channel *channel;
	struct fd_source *cm_source;
	struct nvmf_buffer_pool buffers;
	TAILQ_HEAD(, nvmf_rdma_device) devices;
	TAILQ_HEAD(, nvmf_rdma_listener) listeners;
	struct thread_timer relisten_timer;
	struct nvmf_rdma_qpair_list qps;
	STAILQ_HEAD(, nvmf_rdma_settler) settlers; /* for all devices to be ready */
};

struct nvmf_rdma_settler {
	nvmf_done_fn done;
	void *arg;
	STAILQ_ENTRY(nvmf_rdma_settler) link;
};

static inline struct nvmf_rdma_qpair *nvmf_rdma_qpair_of(struct nvmf_qpair *q)
{
	return (struct nvmf_rdma_qpair *)q;
}

static inline struct nvmf_rdma_transport *nvmf_rdma_transport_of(struct nvmf_transport *t)
{
	return (struct nvmf_rdma_transport *)t;
}

/* The transport's own options (transport.c says what each means). */
struct nvmf_rdma_opts {
	int32_t num_cqe;
	uint32_t max_srq_depth;
	bool no_srq;
	bool no_wr_batching;
	uint32_t data_wr_pool_size;
	uint32_t num_event_requests;
};

static inline const struct nvmf_rdma_opts *nvmf_rdma_opts(const struct nvmf_rdma_transport *t)
{
	return (const struct nvmf_rdma_opts *)t->base.opts.own;
}

/* Work requests of a group's pool: data_wr_pool_size, but never fewer than one command can need, because that command
 * would wait for them forever. Each of the host's descriptors begins one, and so does each piece of our memory where a
 * work request takes a single one. */
static inline uint32_t nvmf_rdma_data_wr_count(const struct nvmf_rdma_transport *t)
{
	uint32_t least = NVMF_RDMA_MAX_DESCRIPTORS + t->buffers.max_per_request;

	return nvmf_rdma_opts(t)->data_wr_pool_size > least ? nvmf_rdma_opts(t)->data_wr_pool_size : least;
}

static inline struct nvmf_rdma_group *nvmf_rdma_group_of(struct nvmf_transport_group *g)
{
	return (struct nvmf_rdma_group *)g;
}

static inline struct nvmf_rdma_request *nvmf_rdma_request_of(struct nvmf_request *req)
{
	return container_of(req, struct nvmf_rdma_request, req);
}

static inline struct thread *nvmf_rdma_group_thread(const struct nvmf_rdma_group *g)
{
	return nvmf_poll_group_thread(g->base.group);
}

/* cm_decode.c: the checks of a connection request's private data (RDMA 3.2). Pure. Returns 0 or the status to reject
 * with. */
struct nvmf_rdma_cm_params {
	uint16_t qid;
	uint16_t host_send_queue;    /* entries: capsules the host may have under way */
	uint16_t host_receive_queue; /* entries */
};
#define NVMF_RDMA_CM_WHY_MAX 128
/* Says in words what is wrong with the private data that nvmf_rdma_cm_decode() has refused with a status. Pure. */
void nvmf_rdma_cm_explain(const void *data, size_t len, uint32_t max_admin_entries, uint32_t max_io_entries,
			  enum nvmf_rdma_cm_status status, char why[NVMF_RDMA_CM_WHY_MAX]);
enum nvmf_rdma_cm_status nvmf_rdma_cm_decode(const void *data, size_t len, uint32_t max_admin_entries,
					     uint32_t max_io_entries, struct nvmf_rdma_cm_params *out);

/* request_array.c: making arrays of requests. Control thread. */
int nvmf_rdma_request_array_create(struct nvmf_rdma_request_array *a, uint32_t receives, uint32_t spares,
				   const struct nvmf_rdma_transport *t, struct nvmf_rdma_poller *p);
void nvmf_rdma_request_array_destroy(struct nvmf_rdma_request_array *a);

/* request.c: the request's states. Group. */
void nvmf_rdma_request_received(struct nvmf_rdma_qpair *qp, struct nvmf_rdma_request *r, uint32_t bytes);
void nvmf_rdma_request_read_done(struct nvmf_rdma_request *r);
void nvmf_rdma_request_sent(struct nvmf_rdma_request *r);
/* One of its RDMA READs ended with an error, or was never posted. */
void nvmf_rdma_request_read_failed(struct nvmf_rdma_request *r);
/* Posts it as a receive again. */
void nvmf_rdma_request_repost(struct nvmf_rdma_poller *p, struct nvmf_rdma_request *r);
/* Ends the requests of a closing queue pair that wait in the transport. */
void nvmf_rdma_qpair_fail_waiting(struct nvmf_rdma_qpair *qp);
/* Of a queue pair that is not LIVE: how many requests and receives still wait for the device's completion. */
uint32_t nvmf_rdma_qpair_owed(const struct nvmf_rdma_qpair *qp);
/* The verbs queue pair has been destroyed, so that the device does not touch its buffers any more: ends the requests
 * that waited for completions. */
void nvmf_rdma_qpair_reclaim(struct nvmf_rdma_qpair *qp);
void nvmf_rdma_qpair_run_pending(struct nvmf_rdma_qpair *qp);
void nvmf_rdma_group_run_waiting(struct nvmf_rdma_group *g);
extern const struct nvmf_transport_state nvmf_rdma_request_states[RDMA_REQ_STATES];
/* The transport ops on requests. */
void nvmf_rdma_op_request_complete(struct nvmf_request *req);
void nvmf_rdma_op_request_continue(struct nvmf_request *req, enum nvmf_next next);
bool nvmf_rdma_op_request_hold(struct nvmf_request *req, bool anybody);
bool nvmf_rdma_op_request_abort(struct nvmf_request *req, uint16_t status);

/* data.c: work requests for a transfer. Group. 0; -EAGAIN: the pool is empty; -EFAULT: memory that is not
 * registered. */
int nvmf_rdma_data_build(struct nvmf_rdma_request *r, enum ibv_wr_opcode opcode);
void nvmf_rdma_data_release(struct nvmf_rdma_request *r);
struct ibv_send_wr *nvmf_rdma_data_last(struct nvmf_rdma_request *r);

/* poller.c: a device's queues in a group. */
struct nvmf_rdma_poller *nvmf_rdma_poller_get(struct nvmf_rdma_group *g,
					      struct nvmf_rdma_device *d); /* control thread; NULL */
/* Destroys a poller without connections. Group, while the control thread waits. */
void nvmf_rdma_poller_destroy(struct nvmf_rdma_poller *p);
/* The same, for the control thread to call. */
void nvmf_rdma_poller_release(struct nvmf_rdma_poller *p);
/* Reserves n entries of the completion queue, which grows if it has too few: an overflow would end all connections that
 * use it. 0 or a negative errno. Control thread. */
int nvmf_rdma_poller_reserve(struct nvmf_rdma_poller *p, uint32_t n);
/* Group. */
void nvmf_rdma_poller_add_qpair(struct nvmf_rdma_poller *p, struct nvmf_rdma_qpair *qp);
void nvmf_rdma_poller_remove_qpair(struct nvmf_rdma_poller *p, struct nvmf_rdma_qpair *qp);
/* Handles the completions that have come and posts what was queued. From then on the poller does not find the queue
 * pair by its number. */
void nvmf_rdma_poller_forget_qpair(struct nvmf_rdma_poller *p, struct nvmf_rdma_qpair *qp);
/* Handles the completions that were in the completion queue when it was called, and perhaps some that came later. */
void nvmf_rdma_poller_drain(struct nvmf_rdma_poller *p);
void nvmf_rdma_qpair_queue_send(struct nvmf_rdma_qpair *qp, struct ibv_send_wr *first, struct ibv_send_wr *last);
void nvmf_rdma_qpair_queue_recv(struct nvmf_rdma_poller *p, struct nvmf_rdma_qpair *qp, struct ibv_recv_wr *wr);

/* qpair.c: connections. */
void nvmf_rdma_qpair_accept(struct nvmf_rdma_transport *t, const struct rdma_cm_event *event); /* control thread */
/* The connection has ended, or never was made. why: a string that lasts; NULL: the usual end. Control thread. */
void nvmf_rdma_qpair_broken(struct nvmf_rdma_qpair *qp, const char *why);
/* The device has said that the queue pair, which is in the error state, holds no receive of the shared receive queue
 * any more (IBV_EVENT_QP_LAST_WQE_REACHED): the completions of those that it had taken can be polled. Control thread.
 */
void nvmf_rdma_qpair_reached_last_wqe(struct nvmf_rdma_qpair *qp);
/* The device is ready, or cannot be used (removed): passes the connections that wait for it to the target, or rejects
 * them. Control thread. */
void nvmf_rdma_qpairs_device_ready(struct nvmf_rdma_device *d);
int nvmf_rdma_op_qpair_add(struct nvmf_transport_group *tgroup, struct nvmf_qpair *qpair);
bool nvmf_rdma_op_qpair_is_idle(const struct nvmf_qpair *qpair);
void nvmf_rdma_op_qpair_close(struct nvmf_qpair *qpair);
void nvmf_rdma_op_qpair_destroy(struct nvmf_qpair *qpair);
void nvmf_rdma_qpair_describe(struct nvmf_rdma_qpair *qp); /* group: updates the description of its trace owner */
/* Group: closes a CLOSING queue pair if none of its work is left. */
void nvmf_rdma_qpair_check_closed(struct nvmf_rdma_qpair *qp);

/* device.c. Control thread. */
/* The device of a verbs context, which is opened at the first call and may not be ready then. NULL: it cannot be used.
 */
struct nvmf_rdma_device *nvmf_rdma_device_get(struct nvmf_rdma_transport *t, struct ibv_context *verbs);
/* The kernel has removed a device. Waits until memory is registered with it, because librdmacm closes it with its last
 * id, which must not happen before. Closes it at once if it has no connections. */
void nvmf_rdma_device_removed(struct nvmf_rdma_transport *t, const struct ibv_context *verbs);
/* done when all devices are. */
void nvmf_rdma_op_settle(struct nvmf_transport *t, nvmf_done_fn done, void *arg);
void nvmf_rdma_devices_destroy(struct nvmf_rdma_transport *t);
/* A device is gone or dead: ends its connections and takes no new ones. what: for the log. May be repeated. */
void nvmf_rdma_device_lost(struct nvmf_rdma_device *d, const char *what);
/* Frees the failed queues, and a lost device, that no connection uses any more. To be called before the last connection
 * manager id on the device is destroyed, because librdmacm closes the device with that id. */
void nvmf_rdma_device_release(struct nvmf_rdma_device *d);
const char *nvmf_rdma_device_name(const struct nvmf_rdma_device *d);
/* IBV_EVENT_CQ_ERR or IBV_EVENT_SRQ_ERR. If the queue is one of the device's: the connections that use it end, and the
 * next connection of the poll group gets new queues. Other poll groups have queues of their own. */
void nvmf_rdma_device_queue_failed(struct nvmf_rdma_device *d, const struct ibv_async_event *event);

/* async.c. Control thread. */
/* Reads the device's asynchronous events from now on. If they cannot be read, the log says what follows. */
void nvmf_rdma_watch_begin(struct nvmf_rdma_device *d);
/* The device is removed: no events are expected any more, once that is so for each transport that uses it. */
void nvmf_rdma_watch_lost(struct nvmf_rdma_device *d);
/* The device is freed. Does nothing if its events are not read. */
void nvmf_rdma_watch_end(struct nvmf_rdma_device *d);

/* listen.c. Control thread. */
int nvmf_rdma_op_listen(struct nvmf_transport *t, const struct nvmf_address *address);
void nvmf_rdma_op_stop_listen(struct nvmf_transport *t, const struct nvmf_address *address);
void nvmf_rdma_op_resume(struct nvmf_transport *t);
void nvmf_rdma_cm_readable(void *arg, uint32_t events);
/* The listener through which a connection request came in; NULL: it has been removed. */
const struct nvmf_rdma_listener *nvmf_rdma_listener_find(const struct nvmf_rdma_transport *t,
							 const struct rdma_cm_id *id);

#endif

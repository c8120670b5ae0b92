/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by the files of the library. No file outside of this folder includes it: programs see <infiniband/verbs.h> and
 * <rdma/rdma_cma.h>.
 *
 * Locks, in the order in which they may be nested:
 *   sv.lock       the control thread's sources, the peers, and all data of the connection manager
 *   sv.table_lock which queue pairs, completion queues and shared receive queues exist
 *   sv_qp.lock    send queue, attributes, the peer it is attached to
 *   sv_qp.rq_lock posting receives
 *   sv_cq.lock    polling and local completions
 *   sv_srq.lock   posting to a shared receive queue
 *   sv_context.lock, sv_channel.lock, sv.mr_lock, sv.heap_lock  leaves
 * The data path takes sv_qp.lock and sv_cq.lock for sends, and sv_qp.rq_lock for receives; no others.
 */
#ifndef SOFTVERBS_SOFTVERBS_H
#define SOFTVERBS_SOFTVERBS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <errno.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <infiniband/verbs.h>

#include "softverbs/shm.h"
#include "util/compiler.h"

/* verbs.h hides these functions behind macros of the same names; the library defines the functions. */
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_query_port

#define SV_EXPORT __attribute__((visibility("default")))

#define SV_DEVICE_NAME "softverbs0"
#define SV_MIN_INLINE  64 /* granted to every queue pair: devices round up like this, and some programs rely on it */
#define SV_MAX_INLINE  1024
/* Messages of up to SV_STAGE_MAX bytes travel through the receiver's ring, if the ring does not get too large by that.
 */
#define SV_STAGE_MAX    4096
#define SV_STAGE_MIN    256
#define SV_STAGE_TOTAL  (16u << 20) /* bytes per receive queue, at most */
#define SV_MAX_MSG      (1u << 31)
#define SV_MAX_RD_ATOM  128
#define SV_MAX_GIDS     64
#define SV_MAX_MAPPINGS 64 /* of one process's memory */

struct sv_context;
struct sv_qp;
struct sv_cq;
struct sv_srq;
struct sv_peer;

/* Something that the control thread waits for. Registered and removed under sv.lock. */
struct sv_source {
	int fd;
	uint32_t gen; /* tells an event of this source from one of a closed source with the same fd */
	void (*ready)(struct sv_source *source, uint32_t events);
};

/* The process: its arena, and the control thread. Lives from the first use to the end of the process. */
struct sv_process {
	pthread_mutex_t lock;
	pthread_mutex_t table_lock;
	pthread_mutex_t mr_lock;
	pthread_mutex_t heap_lock;
	struct sv_arena *arena;
	uint64_t arena_size;
	int arena_fd;
	struct sv_mr_shm keys[SV_MAX_MR]; /* a copy of arena->mr that peers cannot change */
	uint32_t slot;
	int kick_fd;   /* written by threads and peers, so that the control thread looks at the queue pairs */
	int listen_fd; /* a socket at which peers ask for the arena */
	int epoll_fd;
	struct sv_qp *qp[SV_MAX_QP];
	struct sv_cq *cq[SV_MAX_CQ];
	struct sv_srq *srq[SV_MAX_SRQ];
	_Atomic bool qp_live[SV_MAX_QP]; /* has rings that peers may be using */
	_Atomic uint32_t qp_end;         /* one more than the highest index that was ever used */
	bool qp_quarantine[SV_MAX_QP];   /* a peer is stopped in the middle of using it */
	uint32_t next_qp; /* where to look for a free index, so that they are reused as late as possible */
};
extern struct sv_process sv;

struct sv_device {
	struct ibv_device ibv;
	uint64_t provider_fields[64]; /* providers' libraries read behind ibv_device to recognize their own devices */
};

struct sv_event {
	TAILQ_ENTRY(sv_event) link;
	struct ibv_async_event ibv;
};

struct sv_context {
	struct verbs_context verbs; /* ends with struct ibv_context */
	pthread_mutex_t lock;
	TAILQ_HEAD(, sv_event) events; /* not yet returned by ibv_get_async_event() */
	_Atomic uint32_t objects;      /* how many refer to this context */
};

/* A range of memory, ours or the peer's, that a transfer reads or writes. */
struct sv_span {
	uint64_t addr;
	uint64_t length;
	uint64_t map; /* of a peer's range: the number of the peer's mapping that it lies in; 0: none */
};

struct sv_pd {
	struct ibv_pd ibv; /* handle: unique in the process, the pd of the shared structures */
	_Atomic uint32_t users;
};

struct sv_mr {
	struct ibv_mr ibv;
	uint64_t map; /* of sv_shared_get() */
	uint64_t iova;
	uint32_t access;
	LIST_HEAD(, sv_mw) windows; /* bound to it; under sv.mr_lock */
};

struct sv_mw {
	struct ibv_mw ibv;
	struct sv_mr *mr; /* the region it is bound to, or NULL */
	LIST_ENTRY(sv_mw) on_region;
};

struct sv_channel {
	struct ibv_comp_channel ibv;
	uint32_t id; /* never reused */
	LIST_ENTRY(sv_channel) link;
	pthread_mutex_t lock;
	TAILQ_HEAD(, sv_cq) cqs;
};

/* A ring of struct sv_slot, in our arena or in a peer's. Sizes have been checked. */
struct sv_ring {
	uint8_t *base;
	uint32_t size; /* power of two */
	uint32_t stride;
	uint32_t max_sge;
};

/* The private part of a posted receive, which peers cannot see. */
struct sv_recv {
	uint64_t wr_id;
	uint32_t num_sge;
	uint32_t posted; /* shared receive queue: 1 while the slot is in use */
	struct ibv_sge sge[];
};

/* A completion in the owner's private memory: of a send, or of a receive that was flushed. */
struct sv_cqe {
	struct sv_qp *qp;
	struct sv_srq *srq; /* slot to give back when it is polled */
	uint64_t wr_id;
	uint32_t status;
	uint32_t opcode;
	uint32_t byte_len;
	uint32_t imm;
	uint32_t wc_flags;
	uint32_t position; /* in the send queue; of sends */
	uint32_t slot;
	bool recv;
};

#define SV_CQ_BUCKETS 64

struct sv_cq {
	struct ibv_cq_ex ex; /* starts like struct ibv_cq */
	pthread_mutex_t lock;
	struct sv_cq_shm *shm;
	uint32_t index;
	struct sv_cqe *ring; /* local completions */
	uint32_t ring_size;  /* power of two */
	_Atomic uint32_t head, tail;
	_Atomic uint64_t carried; /* buckets with completions that the last poll had no room for */
	uint32_t next_bucket;     /* where the next poll begins, so that each has its turn */
	TAILQ_HEAD(sv_bucket, sv_qp) buckets[SV_CQ_BUCKETS];
	uint32_t qps;             /* users as receive queue */
	_Atomic uint32_t users;   /* queue pairs */
	_Atomic uint32_t blocked; /* queue pairs whose sends wait */
	TAILQ_ENTRY(sv_cq) on_channel;
	pthread_mutex_t events_lock;
	pthread_cond_t events_cond;
	uint32_t comp_events_got, comp_events_acked;
	uint32_t async_events_got, async_events_acked;
	bool overrun_reported;
	struct ibv_wc wc; /* the current one of the extended calls */
	pthread_mutex_t ex_lock;
	uint32_t ex_wc_flags;
};

struct sv_srq {
	struct ibv_srq ibv;
	pthread_mutex_t lock;
	struct sv_srq_shm *shm;
	uint32_t index;
	struct sv_ring ring;
	_Atomic uint32_t *order;
	struct ibv_srq_attr attr;
	void *heap;
	size_t heap_size;
	_Atomic bool spoilt; /* a stopped peer is in the middle of using it, so the heap must not be freed */
	uint8_t *recvs;      /* struct sv_recv, recv_stride apart */
	size_t recv_stride;
	uint32_t *free; /* slots */
	uint32_t num_free;
	uint32_t tail;
	_Atomic uint32_t users;
	pthread_mutex_t events_lock;
	pthread_cond_t events_cond;
	uint32_t events_got, events_acked;
};

/* A work request that is being executed: the program's, or a copy in the send queue. */
struct sv_op {
	uint64_t wr_id;
	uint32_t opcode; /* enum ibv_wr_opcode */
	uint32_t flags;  /* enum ibv_send_flags */
	uint32_t imm;
	uint32_t rkey;
	uint64_t remote_addr;
	uint64_t compare_add;
	uint64_t swap;
	const struct ibv_sge *sge;
	uint32_t num_sge;
	uint32_t position;
	struct ibv_mw *mw;
	struct ibv_mw_bind_info bind;
};

/* The connected queue pair of the peer: checked copies of its fields, and pointers that have been checked to lie in the
 * peer's arena. */
struct sv_remote {
	struct sv_peer *peer; /* NULL: not attached */
	struct sv_arena *arena;
	struct sv_mr_shm *keys; /* the peer's; our private copy if the peer is this process */
	struct sv_qp_shm *qp;
	struct sv_cq_shm *cq;
	struct sv_srq_shm *srq; /* NULL: receives come from the queue pair's own ring */
	struct sv_ring ring;
	_Atomic uint32_t *order;
	struct sv_rcqe *rcq;
	uint32_t rcq_size;
	uint64_t busy; /* the value that we stored last in the peer's sv_qp_shm.busy */
	uint32_t qpn;
	uint32_t gen;
	uint32_t srq_gen;
	uint32_t pd; /* of the receive buffers */
	uint32_t qp_pd;
	uint64_t cq_bit;
	struct sv_peer_channel *channel; /* counted reference */
	int channel_fd;                  /* -1: its completion queue has no channel */
	int kick_fd;
	pid_t pid;
	const struct sv_mapping *mapping; /* the one used last */
	bool self;
	bool est_sent; /* the owner has been told that a message came in RTR */
};

/* Why the head of a send queue waits. */
enum sv_block { SV_BLOCK_NONE = 0, SV_BLOCK_RNR = -1, SV_BLOCK_PEER = -2 };

struct sv_qp {
	struct ibv_qp_ex ex; /* starts with struct ibv_qp */
	bool with_wr_api;
	pthread_mutex_t lock;
	pthread_mutex_t rq_lock;
	struct sv_qp_shm *shm;
	uint32_t index;
	uint32_t gen;           /* the right value of shm->gen */
	_Atomic uint32_t state; /* as this process set it; see sv_qp_state() */
	struct ibv_qp_attr attr;
	struct ibv_qp_cap cap;
	bool sq_sig_all;
	void *heap;
	size_t heap_size;

	/* Send queue. Positions count work requests; [sq_exec, sq_posted) wait in the ring. */
	uint8_t *sq;
	size_t sq_stride;
	uint32_t sq_mask;
	uint32_t sq_posted;
	uint32_t sq_exec;
	_Atomic uint32_t sq_retired; /* up to here completions have been polled */
	enum sv_block blocked;
	uint64_t deadline_ns;
	uint32_t rnr_left;
	bool failed;        /* all work requests have been flushed; new ones are flushed at once */
	uint32_t drain_end; /* in SQD: work requests before this position are still executed */
	bool drained;       /* in SQD: they have been, and the event was raised */

	struct sv_remote rem;
	bool want_attach; /* to the queue pair that attr names */
	bool attaching;   /* an answer is under way */
	pthread_cond_t attach_cond;
	bool announce;  /* has come into RTR: tell the peer, if it asked before */
	bool peer_died; /* sends fail with RETRY_EXC at once */

	/* Receives; the ring is unused with a shared receive queue. */
	struct sv_ring ring;
	struct sv_rcqe *rcq;
	uint32_t rcq_size;
	uint8_t *recvs;
	size_t recv_stride;
	uint32_t rq_posted;
	_Atomic uint32_t rq_polled;
	uint32_t rcq_head;     /* under the receive completion queue's lock */
	uint32_t rq_completed; /* the same */
	bool rq_flushed;       /* under rq_lock */
	uint32_t cq_bit;
	TAILQ_ENTRY(sv_qp) in_bucket;

	pthread_mutex_t events_lock;
	pthread_cond_t events_cond;
	uint32_t events_got, events_acked;

	struct sv_wr_builder *builder;
};

static inline struct sv_context *sv_context(struct ibv_context *c)
{
	return container_of(c, struct sv_context, verbs.context);
}

static inline struct sv_qp *sv_qp(struct ibv_qp *qp)
{
	return (struct sv_qp *)qp;
}

/* The state of our queue pair. Peers can write the shared one, so of that only ERR is believed. */
static inline enum ibv_qp_state sv_qp_state(const struct sv_qp *qp)
{
	uint32_t mine = atomic_load_explicit(&qp->state, memory_order_relaxed);

	return mine != IBV_QPS_RESET && atomic_load(&qp->shm->state) == IBV_QPS_ERR ? IBV_QPS_ERR : mine;
}

static inline struct ibv_cq *sv_ibv_cq(struct sv_cq *cq)
{
	return (struct ibv_cq *)&cq->ex;
}

static inline struct sv_cq *sv_cq(struct ibv_cq *cq)
{
	return (struct sv_cq *)cq;
}

static inline struct sv_slot *sv_ring_slot(const struct sv_ring *r, uint32_t i)
{
	return (struct sv_slot *)(r->base + (size_t)(i & (r->size - 1)) * r->stride);
}

static inline uint32_t sv_ring_stage_off(uint32_t max_sge)
{
	return (uint32_t)((sizeof(struct sv_slot) + max_sge * sizeof(struct sv_sge) + 63) & ~63ul);
}

static inline uint32_t sv_ring_stage_size(const struct sv_ring *r)
{
	return r->stride - sv_ring_stage_off(r->max_sge);
}

static inline uint8_t *sv_ring_stage(const struct sv_ring *r, struct sv_slot *slot)
{
	return (uint8_t *)slot + sv_ring_stage_off(r->max_sge);
}

static inline struct sv_recv *sv_qp_recv(const struct sv_qp *qp, uint32_t i)
{
	return (struct sv_recv *)(qp->recvs + (size_t)(i & (qp->ring.size - 1)) * qp->recv_stride);
}

static inline struct sv_recv *sv_srq_recv(const struct sv_srq *srq, uint32_t slot)
{
	return (struct sv_recv *)(srq->recvs + (size_t)slot * srq->recv_stride);
}

/* process.c: start-up, the control thread */

/* Makes the arena and starts the control thread, in the first call. 0 or an errno; stderr says what is missing. */
int sv_process_start(void);
/* Has the control thread look at all queue pairs. Any thread. */
void sv_kick_self(void);
void sv_kick(int kick_fd);
/* Under sv.lock. 0 or an errno. */
int sv_source_add(struct sv_source *source, uint32_t events);
void sv_source_remove(struct sv_source *source);
uint64_t sv_now_ns(void);
__attribute__((format(printf, 1, 2))) void sv_warn(const char *format, ...);
/* The abstract socket name "softverbs/VERSION/UID/..."; returns the length of the address. */
__attribute__((format(printf, 2, 3))) socklen_t sv_socket_name(struct sockaddr_storage *address, const char *format,
							       ...);

/* arena.c: memory that peers see */

int sv_arena_create(void);
/* Allocates whole pages of zeroes. NULL and errno. */
void *sv_heap_alloc(size_t size);
void sv_heap_free(void *memory, size_t size);
uint64_t sv_heap_offset(const void *memory);
/* Whether [offset, offset + length) lies in the heap of an arena of that size. */
bool sv_heap_contains(uint64_t arena_size, uint64_t offset, uint64_t length);
uint32_t sv_pow2(uint32_t n);
/* Bytes between slots, and the whole size, for receives with max_sge entries. */
uint32_t sv_ring_stride(uint32_t size, uint32_t max_sge);

/* peer.c: links to other processes; control thread, under sv.lock */

void sv_peer_listen_ready(struct sv_source *source, uint32_t events);
/*
 * Attaches a queue pair to the one it is connected to, if all that this needs is known. False: the peer has been asked,
 * and its answer continues this; true: attached, or there is no peer to wait for now. Under qp->lock too.
 */
bool sv_peer_try_attach(struct sv_qp *qp);
void sv_peer_kick_all(void);
/* Undoes sv_peer_try_attach(). Under qp->lock; any thread. */
void sv_peer_detach(struct sv_qp *qp);
/* Closes descriptors of channels that no queue pair uses any more. */
void sv_peer_sweep(void);
/* Whether the process of a slot exists: tries to connect to it. No lock is needed. */
bool sv_slot_alive(uint32_t slot);

/* Tells all peers with a link to us that nothing of a mapping is registered any more. */
void sv_peer_tell_forget(uint64_t map);
/* The address at which a range of the peer's memory is mapped here; NULL: it is not mapped (yet). Under the lock of
 * rem's queue pair. */
void *sv_peer_mapped(struct sv_remote *rem, const struct sv_span *span);

/* shared.c: shared memory that is registered */

/* The number of the mapping that holds this memory of ours, for sv_shared_put(); 0: peers cannot map this memory. */
uint64_t sv_shared_get(const void *addr, size_t length);
void sv_shared_put(uint64_t id);
/* Tells peers which mappings are not in use any more. Control thread. */
void sv_shared_tell(void);
/* The descriptor of a mapping, to be sent to a peer, and where the mapping is; -1: no such mapping. */
int sv_shared_fd(uint64_t id, uint64_t *addr, uint64_t *length, uint64_t *offset);
/* A peer's memory that is mapped here. */
struct sv_mapping {
	_Atomic(struct sv_mapping *) next;
	uint64_t id, addr, length; /* addr: in its owner's memory */
	uint8_t *base;
};
/* Maps a peer's memory as the peer describes it; base is NULL if that is not possible. The caller keeps fd. NULL: out
 * of memory. */
struct sv_mapping *sv_mapping_make(int fd, uint64_t id, uint64_t addr, uint64_t length, uint64_t offset);
void sv_mapping_free(struct sv_mapping *m);

/* device.c, gid.c */

struct ibv_context *sv_context_open(void);
extern struct sv_device sv_device;
struct ibv_gid_entry;
/* Fills the table with the addresses of this host; returns their number. */
uint32_t sv_gid_table(struct ibv_gid_entry *table, uint32_t max);
bool sv_gid_is_local(const union ibv_gid *gid);

/* async.c */

/* Queues an asynchronous event; takes the context's lock. */
void sv_async_raise(struct ibv_context *context, enum ibv_event_type type, void *element);
/* Drops the events of an object that is being destroyed, and waits until those that the program got are acknowledged.
 */
void sv_async_forget(struct ibv_context *context, void *element, pthread_mutex_t *lock, pthread_cond_t *cond,
		     const uint32_t *got, const uint32_t *acked);

/* mr.c */

/* Whether a key of a table (sv.keys, or a peer's) allows access to [addr, addr + length). If so, *where is that range
 * in the owner's memory. */
bool sv_key_check(const struct sv_mr_shm *table, uint32_t key, uint32_t pd, uint32_t qpn, uint32_t access,
		  uint64_t addr, uint64_t length, struct sv_span *where);
/* Binds a window, as a work request of that queue pair asks. Returns an enum ibv_wc_status. */
int sv_mw_bind(struct sv_qp *qp, struct sv_mw *mw, uint32_t key, const struct ibv_mw_bind_info *info);
/* Invalidates a window of type 2, in our arena. Returns an enum ibv_wc_status. */
int sv_key_invalidate(struct sv_mr_shm *table, uint32_t key, uint32_t pd, uint32_t qpn);

struct ibv_mw *sv_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int sv_dealloc_mw(struct ibv_mw *mw);
int sv_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);

/* cq.c, channel.c, cq_ex.c */

int sv_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc);
int sv_req_notify_cq(struct ibv_cq *cq, int solicited_only);
struct ibv_cq_ex *sv_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
/* Appends a completion and wakes the program if it waits for one. Takes cq->lock. */
void sv_cq_push(struct sv_cq *cq, const struct sv_cqe *cqe, bool solicited);
/* Raises a completion event, whether or not the program asked for one. */
void sv_cq_wake(struct sv_cq *cq);
/* Moves a queue pair's receive completions into the completion queue's local ring, in order. Takes cq->lock. */
void sv_cq_absorb(struct sv_cq *cq, struct sv_qp *qp);
void sv_cq_attach(struct sv_cq *cq, struct sv_qp *qp);
/* Detaches a queue pair. */
void sv_cq_detach(struct sv_cq *cq, struct sv_qp *qp);
/* Drops the completions of a queue pair. */
void sv_cq_purge(struct sv_cq *cq, struct sv_qp *qp);
/* Reserves room for one completion in any process's completion queue. False: it is full, and overrun has been set. */
bool sv_cq_reserve(struct sv_cq_shm *cq);
/* Wakes the owner of a completion queue, if it asked for that, after a completion was published. channel_fd may be
 * -1. */
void sv_cq_notify(struct sv_cq_shm *cq, bool solicited, int channel_fd);
/* Takes one event from an eventfd of ours, if it has one; never blocks. */
void sv_eventfd_take(int fd);
void sv_channel_add(struct ibv_comp_channel *channel, struct sv_cq *cq);
void sv_channel_remove(struct ibv_comp_channel *channel, struct sv_cq *cq);
uint32_t sv_channel_id(const struct ibv_comp_channel *channel);
/* A descriptor of the channel with this id, to be sent to a peer; -1: no such channel. */
int sv_channel_fd_by_id(uint32_t id);

/* srq.c, recv.c */

int sv_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
int sv_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
/* Gives a slot back to the shared receive queue; takes its lock. */
void sv_srq_release(struct sv_srq *srq, uint32_t slot);
/* Flushes (flush) or gives back the receives that were taken for a queue pair, which is being destroyed, and not
 * completed. */
void sv_srq_reclaim(struct sv_srq *srq, struct sv_qp *qp, bool flush);
/* Copies a receive's scatter list into a slot that peers see, and into private memory. */
void sv_recv_store(struct sv_recv *recv, struct sv_slot *slot, const struct ibv_recv_wr *wr);
/* Takes the next receive that a peer has completed, and copies its data into place. False: there is none. Under the
 * receive completion queue's lock. */
bool sv_recv_next(struct sv_qp *qp, struct sv_cqe *cqe);
/* Completes all posted receives with a flush error; qp->lock held. */
void sv_recv_flush(struct sv_qp *qp);

/* qp.c, qp_state.c, qp_attr.c */

struct ibv_qp *sv_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
/* Moves to ERR and flushes all work requests. status: of the oldest send that waits. qp->lock held. */
void sv_qp_fail(struct sv_qp *qp, enum ibv_wc_status status);
/*
 * Waits until the peer that is in a busy section on our queue pair of that index has left it. False: the peer does not
 * run (a stopped process). Needs no lock, and must not be called inside a busy section.
 */
bool sv_qp_quiesce(uint32_t index);
/* Looks at a queue pair after a kick or a timeout. Control thread; table_lock held. */
void sv_qp_attend(struct sv_qp *qp);
/* Makes sure that no peer uses the queue pair's rings, now or later, with what it knows of them. False: a peer that
 * uses them does not run. */
bool sv_qp_lock_out(struct sv_qp *qp, uint32_t new_gen);
/* Sets rings and counters to those of a new queue pair. qp->lock held, peers locked out. */
void sv_qp_publish(struct sv_qp *qp, uint32_t gen);
/* Whether a queue pair may go from one state to another with these attributes (InfiniBand table 91). */
bool sv_qp_transition_ok(enum ibv_qp_state from, enum ibv_qp_state to, int mask);

/* send.c, exec.c, deliver.c, copy.c, wr_api.c */

int sv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
size_t sv_send_stride(const struct ibv_qp_cap *cap);
int sv_post_send_locked(struct sv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
/* Executes waiting sends until one must wait. qp->lock held. */
void sv_send_progress(struct sv_qp *qp);
/* Flushes waiting sends; the oldest gets status. qp->lock held. */
void sv_send_flush(struct sv_qp *qp, enum ibv_wc_status status);
/* Drops waiting sends, without completions. qp->lock held. */
void sv_send_forget(struct sv_qp *qp);
/* Executes a work request. 0: done; > 0: an enum ibv_wc_status; < 0: an enum sv_block. qp->lock held, the queue pair is
 * attached. */
int sv_exec(struct sv_qp *qp, const struct sv_op *op, uint32_t *byte_len);

enum sv_copy_result { SV_COPY_OK, SV_COPY_LOCAL_FAULT, SV_COPY_REMOTE_FAULT };
/* Copies between our memory and a peer's; both lists have the same number of bytes. */
enum sv_copy_result sv_copy(struct sv_remote *rem, bool to_remote, const struct sv_span *local, uint32_t num_local,
			    const struct sv_span *remote, uint32_t num_remote);

/* Takes the receiver's next receive. SV_BLOCK_NONE; or SV_BLOCK_RNR: there is none. */
enum sv_block sv_deliver_take(struct sv_qp *qp, uint32_t *slot);
/* Undoes sv_deliver_take(), as if there had been no message. */
void sv_deliver_untake(struct sv_qp *qp);
/* Publishes a receive completion. False: the receiver's completion queue is full. */
bool sv_deliver_publish(struct sv_qp *qp, const struct sv_rcqe *rcqe, bool solicited);
/* Moves the connected queue pair to ERR, with an event for its owner. */
void sv_deliver_fail(struct sv_qp *qp, uint32_t event);

int sv_wr_api_init(struct sv_qp *qp, uint64_t ops);
void sv_wr_api_free(struct sv_qp *qp);

#endif

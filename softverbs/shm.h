/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The arena: memory that a process shares with its peers, which are the processes of the same user that have queue
 * pairs connected with its own. It is a memfd that the peers map, and the "device" of its process: queue pair contexts,
 * completion queues, shared receive queues, the table of memory keys, and the rings of receives.
 *
 * Rules, which the rest of the library relies on:
 * - A message is executed whole by its sender: the sender takes the receiver's next receive from the receiver's ring,
 *   places the data, and publishes the completion in the receiver's ring. So the receiver need not run for that.
 * - Processes share no lock, except the one of atomic operations, which can be taken from a dead process. Each word has
 *   one writer, or is changed by single atomic operations; a process that dies between two of them leaves a state that
 *   the other side can clean up.
 * - A process trusts nothing that it reads here. It checks indices and sizes against private copies, and uses
 * addresses, wr_ids and scatter lists from its private memory alone.
 *
 * Every word that two processes may touch at once is _Atomic; plain fields are published by a release store of a
 * neighbour that is named in the comment.
 */
#ifndef SOFTVERBS_SHM_H
#define SOFTVERBS_SHM_H

#include <stdint.h>
#include <stdatomic.h>

#define SV_ARENA_MAGIC 0x736f667476657262ull /* "softverb" */
/* Part of the socket names, so that different layouts never meet. */
#define SV_ARENA_VERSION 2

#define SV_MAX_SLOTS 4096 /* processes of one user */
#define SV_MAX_QP    4096 /* per process */
#define SV_MAX_CQ    4096
#define SV_MAX_SRQ   1024
#define SV_MAX_MR    65536
#define SV_MAX_SGE   32
#define SV_MAX_WR    16384

/* A queue pair number: the process in the upper 12 bits, its queue pair in the lower 12. */
#define SV_QPN(slot, index) ((uint32_t)(slot) << 12 | (uint32_t)(index))
#define SV_QPN_SLOT(qpn)    ((qpn) >> 12 & 0xfff)
#define SV_QPN_INDEX(qpn)   ((qpn)&0xfff)

/* Memory key: index of the table entry in the upper 24 bits, a generation in the lower 8. Zero is never a key. */
#define SV_KEY_INDEX(key) ((key) >> 8)

enum sv_mr_kind {
	SV_MR_REGION = 1,
	SV_MR_WINDOW = 2, /* bound to a region; type 2 also to a queue pair */
};

/*
 * One memory region or window. The owner fills the fields, then stores the key (release); a peer loads the key
 * (acquire) and then the fields, inside a busy section of its queue pair (see struct sv_qp_shm), and the owner
 * changes them only after every busy section that may have seen the old key has ended.
 */
struct sv_mr_shm {
	_Alignas(64) _Atomic uint32_t key; /* 0: not valid */
	_Atomic uint32_t kind;
	_Atomic uint32_t pd;
	_Atomic uint32_t access; /* enum ibv_access_flags */
	_Atomic uint32_t qpn;    /* windows of type 2: the queue pair that may use it; else 0 */
	_Atomic uint64_t iova;   /* the address that work requests use for the first byte */
	_Atomic uint64_t addr;   /* where it is in the owner's memory */
	_Atomic uint64_t length;
	_Atomic uint64_t map; /* the number of the owner's mapping that it lies in, see shared.c; 0: of none */
};

/* Bits of sv_qp_shm.events: what the owner's control thread must do. */
enum {
	SV_QP_EVENT_ACCESS_ERR = 1 << 0, /* IBV_EVENT_QP_ACCESS_ERR */
	SV_QP_EVENT_REQ_ERR = 1 << 1,    /* IBV_EVENT_QP_REQ_ERR */
	SV_QP_EVENT_FATAL = 1 << 2,      /* IBV_EVENT_QP_FATAL */
	SV_QP_EVENT_COMM_EST = 1 << 3,   /* IBV_EVENT_COMM_EST */
};

/* Bits of sv_qp_shm.want: what the peer asks the owner to tell it. */
enum {
	SV_WANT_RECEIVE = 1, /* kick me when there are receives */
	SV_WANT_READY = 2,   /* kick me when you are in RTR */
};

struct sv_qp_shm {
	/* Line 0: the owner writes, the connected peer reads (and may move state to ERR). */
	_Alignas(64) _Atomic uint32_t gen; /* odd while the queue pair exists; changes when it goes */
	_Atomic uint32_t state;            /* enum ibv_qp_state */
	_Atomic uint32_t dest_qpn;
	_Atomic uint32_t access;
	_Atomic uint32_t rq_psn;
	_Atomic uint32_t min_rnr_timer;
	_Atomic uint32_t max_dest_rd_atomic;
	uint32_t pd; /* from here on fixed as long as gen is, published by gen */
	uint32_t cq;
	uint32_t cq_bit; /* which bit of sv_cq_shm.ready */
	uint32_t srq;    /* index + 1, 0: none */
	uint32_t rq_size;
	uint64_t rq_off;  /* of the ring of struct sv_slot */
	uint64_t rcq_off; /* of the ring of struct sv_rcqe */
	/* Line 1: fixed, and the owner's side of the rings. */
	_Alignas(64) _Atomic uint32_t rq_tail; /* receives posted */
	uint32_t rq_stride;
	uint32_t rcq_size;
	uint32_t rq_max_sge;
	/*
	 * Line 2: the connected peer writes. busy is (gen << 32 | sequence); odd while the peer works on this queue
	 * pair, its busy section. The owner changes it, even to even, to lock out a peer that knows the old value.
	 */
	_Alignas(64) _Atomic uint64_t busy;
	_Atomic uint32_t rq_head; /* receives taken */
	/* Line 3: the connected peer writes, the owner polls. */
	_Alignas(64) _Atomic uint32_t rcq_tail; /* receive completions published */
	/* Line 4: either side, atomic operations only. */
	_Alignas(64) _Atomic uint32_t want; /* set by the peer */
	_Atomic uint32_t events;
};

/* Values of sv_cq_shm.armed */
enum { SV_CQ_UNARMED = 0, SV_CQ_ARMED_SOLICITED = 1, SV_CQ_ARMED_ANY = 2 };

/* The one cache line that all processes write which complete work requests on the queue. */
struct sv_cq_shm {
	_Alignas(64) _Atomic uint64_t ready; /* bit cq_bit: a queue pair of that bucket has receive completions */
	_Atomic uint32_t count;              /* completions that are not polled yet */
	_Atomic uint32_t armed;
	_Atomic uint32_t fired;    /* events that ibv_get_cq_event has not returned yet */
	_Atomic uint32_t overrun;  /* a completion found no room */
	_Atomic uint32_t capacity; /* the owner writes */
	_Atomic uint32_t channel;  /* id of the completion channel, 0: none */
};

struct sv_srq_shm {
	_Alignas(64) _Atomic uint32_t gen;
	uint32_t pd; /* from here on fixed as long as gen is */
	uint32_t size;
	uint32_t stride;
	uint32_t max_sge;
	uint64_t slots_off;
	uint64_t order_off;                 /* ring of slot numbers in the order of posting */
	_Alignas(64) _Atomic uint32_t tail; /* the owner posts */
	_Atomic uint32_t limit;             /* 0: not armed */
	_Alignas(64) _Atomic uint32_t head; /* peers take: compare and swap */
	_Alignas(64) _Atomic uint32_t want; /* somebody waits for a receive */
	_Atomic uint32_t limit_reached;
};

struct sv_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

/*
 * The part of a posted receive that a sender needs: where the data goes. Behind the scatter list there is room for the
 * data of a small message, which the owner scatters when it polls; so small messages need no system call.
 * In a shared receive queue claim is (sequence << 32 | taker): the taker's queue pair number, 0 while it is free,
 * SV_CLAIM_OWNER from completion to the next posting.
 */
#define SV_CLAIM_OWNER 0xffffffffu

struct sv_slot {
	_Alignas(64) _Atomic uint64_t claim;
	uint32_t num_sge; /* num_sge and sge: published by rq_tail, or tail of the shared receive queue */
	uint32_t reserved;
	struct sv_sge sge[];
};

enum {
	SV_RCQE_STAGED = 1 << 0, /* the data waits behind the slot */
	SV_RCQE_IMM = 1 << 1,
	SV_RCQE_INV = 1 << 2,
	SV_RCQE_WRITE_IMM = 1 << 3, /* opcode IBV_WC_RECV_RDMA_WITH_IMM, else IBV_WC_RECV */
};

/* A receive completion; published by rcq_tail. */
struct sv_rcqe {
	uint32_t slot;
	uint32_t status; /* enum ibv_wc_status */
	uint32_t byte_len;
	uint32_t imm; /* or the invalidated rkey; as in struct ibv_wc */
	uint32_t flags;
	uint32_t reserved[3];
};

/* The fixed part of the arena; the heap of rings follows at SV_HEAP_OFFSET. */
struct sv_arena {
	uint64_t magic;
	uint32_t version;
	uint32_t slot;
	uint64_t size;
	_Alignas(64) _Atomic uint64_t atomic_lock; /* sequence << 32 | slot of the holder, 0 in the low half: free */
	struct sv_mr_shm mr[SV_MAX_MR];
	struct sv_qp_shm qp[SV_MAX_QP];
	struct sv_cq_shm cq[SV_MAX_CQ];
	struct sv_srq_shm srq[SV_MAX_SRQ];
};

#define SV_PAGE        4096ull
#define SV_HEAP_OFFSET ((sizeof(struct sv_arena) + SV_PAGE - 1) / SV_PAGE * SV_PAGE)

_Static_assert(sizeof(struct sv_mr_shm) == 64, "a key is one cache line");
_Static_assert(sizeof(struct sv_qp_shm) == 320, "five cache lines");
_Static_assert(sizeof(struct sv_cq_shm) == 64, "one cache line");
_Static_assert(sizeof(struct sv_rcqe) == 32, "two to a cache line");
_Static_assert(sizeof(struct sv_sge) == 16, "as struct ibv_sge");

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* A device without a wire: the calls of libibverbs and librdmacm that the target makes, and a host behind them that a
 * test or a benchmark plays. Everything above the verbs is the real thing. Two devices, fake0 at 127.0.0.1 and fake1 at
 * 127.0.0.2; post and poll are a few stores each. */
#ifndef FAKE_VERBS_H
#define FAKE_VERBS_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "nvme/spec.h"

struct fake_conn;

/* What the host does when a response arrives: on the thread that posted it. May call fake_send() for the same
 * connection. */
typedef void (*fake_response_fn)(struct fake_conn *conn, const struct nvme_cqe *cqe);

struct fake_conn {
	fake_response_fn on_response;
	void *arg;
	uint16_t cntlid;
	unsigned device; /* it comes in through */
	uint16_t port;   /* 0: 4420 */
	bool vanishes;   /* asks for a connection, and is gone when it is accepted */
	/* private */
	struct rdma_cm_id *id;
	struct fake_qp *qp;
	bool accepted, rejected, disconnected;
	uint32_t waiting; /* capsules sent while no receive was posted */
};

struct fake_stats {
	uint64_t sends, writes, reads, post_send_calls, poll_calls, async_acked;
	uint64_t short_sends;   /* iWARP: messages of one piece of no more than 32 bytes */
	uint64_t lost_receives; /* that a queue pair had taken from the shared queue when it was destroyed */
	uint64_t early_ends;    /* iWARP: connections ended while their queue pair was not in the error state */
};
extern struct fake_stats fake_stats;
extern bool fake_has_srq;           /* before the device is used; default true */
extern bool fake_iwarp;             /* before the device is there; default false */
extern bool fake_refuses_memory;    /* ibv_reg_mr() fails */
extern const void *fake_refuses_at; /* the same, for the memory that has this in it */
/* From now on ibv_reg_mr() takes as long as this lasts. On the thread that made the event channel it does not wait, but
 * is counted. */
void fake_hold_memory(bool on);
extern atomic_uint fake_held, fake_held_there; /* calls that wait; calls that did not */
extern int fake_fail_post_send;                /* errno that the next ibv_post_send() gives, once; 0: none */
extern unsigned fake_fail_behind;              /* so many of its work requests are posted before it does */

/* RDMA READs that are posted while this is set complete in fake_finish_reads() or when their queue pair is in the error
 * state. Both are the group's thread's. */
extern bool fake_delay_reads;
void fake_finish_reads(void);
extern unsigned fake_delayed_reads;
extern int fake_max_qp_wr; /* entries of a send queue; before the device is used */

/* How many receives of the shared queue a queue pair takes in advance when it is accepted, at most 64. In the error
 * state they complete as flushed, and LAST_WQE_REACHED follows. */
extern unsigned fake_take_receives;
extern enum fake_last_wqe {
	FAKE_LAST_WQE_AT_ONCE, /* that happens when it enters the error state */
	FAKE_LAST_WQE_LATER,   /* at the next fake_finish_errors() */
} fake_last_wqe;
/* On the control thread. */
void fake_finish_errors(void);
/* Receives that the queue pairs of a device have taken and not given back. */
unsigned fake_taken(unsigned device);

#define FAKE_DEVICES 2
/* What the target has made and not destroyed. */
struct fake_live {
	atomic_uint pds, mrs, cqs, srqs, qps, ids;
	atomic_uint open_mrs; /* registered so far with a right for others */
};
extern struct fake_live fake_live;

/* A host asks for a connection, at an address that is listened at: the event channel of that target becomes readable.
 */
void fake_connect(struct fake_conn *conn, uint16_t qid, uint16_t entries);
/* The host ends it. */
void fake_disconnect(struct fake_conn *conn);
/* Sends a capsule: lands in the oldest receive, completes at the target's next poll. False: no receive is posted (the
 * device would wait for one). */
bool fake_send(struct fake_conn *conn, const struct nvme_sqe *sqe, const void *data, uint32_t data_len);
/* Receives that are posted to the connection's receive queue, or the shared one. */
uint32_t fake_posted(const struct fake_conn *conn);
/* What happens to devices; on the control thread. An event of a port; of a connection's queue pair, completion queue or
 * shared receive queue, as the type has it; of a connection's address. */
void fake_port_event(unsigned device, enum ibv_event_type type);
void fake_conn_event(struct fake_conn *conn, enum ibv_event_type type);
void fake_addr_change(struct fake_conn *conn);
/* Events of the connection manager that the target has not read. */
unsigned fake_events_waiting(void);
/* From now on no completion comes: not of what is posted, and of nothing that is flushed. */
void fake_withhold(unsigned device, bool on);
/* The device is pulled: all its ids are told, and nobody can listen there until it returns, as another device of the
 * same address; then nothing of the old one may be left. */
void fake_remove(unsigned device);
void fake_return(unsigned device);
bool fake_listens(unsigned device);
/* Memory of the host that keyed descriptors may name: what reads or writes with another key fails. */
#define FAKE_RKEY 0x4711u
struct ibv_context *fake_context(unsigned device);
/* For benchmarks (fake_cost.c): nanoseconds that the fake itself takes for the calls of one 4 KiB read. toggle, if not
 * NULL, is called before and after what is measured. */
double fake_verbs_cost_ns(unsigned ios, void (*toggle)(void));

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* A device without a wire: the calls of libibverbs and librdmacm that the target makes, and a host behind them that a test or
 * a benchmark plays. Everything above the verbs is the real thing. One device, one address; post and poll are a few stores each. */
#ifndef FAKE_VERBS_H
#define FAKE_VERBS_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>

#include "nvme/spec.h"

struct fake_conn;

/* What the host does when a response arrives: on the thread that posted it. May call fake_send() for the same connection. */
typedef void (*fake_response_fn)(struct fake_conn *conn, const struct nvme_cqe *cqe);

struct fake_conn {
	fake_response_fn on_response;
	void *arg;
	uint16_t cntlid;
	/* private */
	struct rdma_cm_id *id;
	struct fake_qp *qp;
	bool accepted, rejected, disconnected;
	uint32_t waiting; /* capsules sent while no receive was posted */
};

struct fake_stats {
	uint64_t sends, writes, reads, post_send_calls, poll_calls;
};
extern struct fake_stats fake_stats;
extern bool fake_has_srq;	/* before the device is used; default true */
extern int fake_fail_post_send; /* errno that the next ibv_post_send() gives, once; 0: none */

/* A host asks for a connection: the target's event channel becomes readable. */
void fake_connect(struct fake_conn *conn, uint16_t qid, uint16_t entries);
/* The host ends it. */
void fake_disconnect(struct fake_conn *conn);
/* Sends a capsule: lands in the oldest receive, completes at the target's next poll. False: no receive is posted (the device would
 * wait for one). */
bool fake_send(struct fake_conn *conn, const struct nvme_sqe *sqe, const void *data, uint32_t data_len);
/* Memory of the host that keyed descriptors may name. */
#define FAKE_RKEY 0x4711u
/* For benchmarks: nanoseconds that the fake itself takes for the calls of one 4 KiB read. */
double fake_verbs_cost_ns(unsigned ios);

#endif

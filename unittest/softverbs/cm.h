/* SPDX-License-Identifier: BSD-3-Clause */
/* Steps over rdma_cm. Each process has one event channel, one listener and a few numbered identifiers (slots); the
 * queue pairs of all slots share the objects of `me`, made on the device that the first identifier came to. */
#ifndef UNITTEST_SOFTVERBS_CM_H
#define UNITTEST_SOFTVERBS_CM_H

#include "unittest/softverbs/sides.h"

enum {
	CM_SLOTS = 8,
	CM_PRIVATE_MAX = 256,
	CM_OTHER_EVENT = 1000, /* cm_next() returns -(CM_OTHER_EVENT + type) */
	CM_OTHER_SLOT = 2000,
};

struct cm_step {
	int slot;
	enum rdma_cm_event_type event; /* cm_next(): the expected one */
	char ip[INET6_ADDRSTRLEN];     /* "": the suite's */
	uint16_t port;
	int backlog;
	bool by_hand; /* the queue pair by ibv_create_qp() and rdma_init_qp_attr(), not rdma_create_qp() */
	uint8_t responder_resources, initiator_depth; /* 0: 1. cm_next(): out */
	uint8_t rnr_retry;                            /* 0: 7 */
	uint32_t private_len;
	uint8_t private_data[CM_PRIVATE_MAX]; /* cm_next(): out, with its length */
	int status;                           /* out, of cm_next() */
	uint16_t src_port, dst_port;          /* out, of cm_ports() */
};

struct cm {
	struct rdma_event_channel *channel, *channel2;
	struct rdma_cm_id *listener;
	struct rdma_cm_id *id[CM_SLOTS];
	bool by_hand[CM_SLOTS];
};
extern struct cm cm;

/* Steps: 0 or -errno. */
long cm_listen(struct cm_step *s); /* port 0: any; out: the port */
long cm_unlisten(struct cm_step *s);
long cm_create(struct cm_step *s);  /* an identifier in the slot */
long cm_resolve(struct cm_step *s); /* cm_create(), address and route, each with its event */
long cm_qp(struct cm_step *s);      /* the slot's queue pair, and what it needs, `me` speaks of it then */
long cm_use(struct cm_step *s);     /* `me` speaks of the slot's queue pair */
long cm_connect(struct cm_step *s);
long cm_accept(struct cm_step *s);
long cm_reject(struct cm_step *s);
long cm_establish(struct cm_step *s); /* by hand: after CONNECT_RESPONSE */
long cm_disconnect(struct cm_step *s);
long cm_destroy(struct cm_step *s); /* the slot's queue pair and identifier */
long cm_ports(struct cm_step *s);
/* Takes the next event: it must be s->event, for the slot (a connect request's new identifier goes into the slot). */
long cm_next(struct cm_step *s);
/* The next event whatever it is: its type. s->status is set. */
long cm_next_any(struct cm_step *s);
long cm_serve(struct cm_step *s); /* connect request, queue pair, accept, established */
long cm_close(int *unused);       /* everything of this process */

/* Says what a step returned, if it failed. */
bool cm_ok(const char *what, int line, long rc);
#define DO(call) CU_ASSERT_TRUE(cm_ok(#call, __LINE__, (call)))

/* Connects near slot 0 to far slot 0; listens there first. The port goes into *port. */
bool cm_pair(bool near_by_hand, bool far_by_hand, uint16_t *port);
/* Near slot `slot` to far slot `slot` through the listener at the port. */
bool cm_join(int slot, bool near_by_hand, bool far_by_hand, uint16_t port);
/* A message each way on the queue pairs in use. */
void cm_exchange(void);
/* Disconnects slot 0 from the near side, waits for both events, and closes both processes. */
void cm_pair_close(void);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The connection manager. A connection is a Unix socket between the two processes, on which the messages of
 * InfiniBand's communication management travel (chapter 12: REQ, REP, RTU, REJ, DREQ, DREP) as packets; the end of the
 * socket means that the other side has died. A listener is a socket with a name made of port space, address and port.
 * All data here are protected by sv.lock.
 */
#ifndef SOFTVERBS_CM_H
#define SOFTVERBS_CM_H

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "softverbs/softverbs.h"
#include "softverbs/wire.h"

/* Reasons of InfiniBand table 108 that occur here. */
enum {
	SV_CM_REJ_TIMEOUT = 4,
	SV_CM_REJ_INVALID_SERVICE_ID = 8,
	SV_CM_REJ_CONSUMER_DEFINED = 28,
};

enum sv_cm_state {
	CM_IDLE,
	CM_BOUND,
	CM_LISTEN,
	CM_ADDR_RESOLVED,
	CM_ROUTE_RESOLVED,
	CM_CONNECTING, /* nobody listens yet */
	CM_REQ_SENT,
	CM_REP_RECEIVED, /* active; RTU is not sent yet */
	CM_ACCEPTED,     /* passive: a connection without its REQ yet */
	CM_REQ_RECEIVED,
	CM_REP_SENT,
	CM_ESTABLISHED,
	CM_DREQ_SENT,
	CM_DREQ_RECEIVED,
	CM_TIMEWAIT,
	CM_CLOSED, /* rejected, failed, or over */
	CM_NUM_STATES
};

struct sv_cm_channel {
	struct rdma_event_channel rdma;
	TAILQ_HEAD(, sv_cm_event) events;
};

struct sv_cm_id {
	struct rdma_cm_id rdma;
	struct sv_source source; /* the socket */
	enum sv_cm_state state;
	bool sync;      /* calls wait for their event (no channel was given) */
	bool afonly;    /* a listener on :: that takes IPv6 only */
	bool reuseaddr; /* may share its port with a wildcard, or as one */
	struct sv_cm_id *listener;
	uint64_t deadline_ns;      /* 0: none */
	uint64_t give_up_ns;       /* in CM_CONNECTING */
	struct sv_cm_msg *request; /* the same */
	uint32_t psn;              /* where our packets start */
	uint32_t remote_qpn;
	uint32_t remote_psn;
	uint32_t qpn; /* told to the other side */
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t retry_count;
	uint8_t rnr_retry_count;
	int backlog; /* requests that may still be queued */
	uint32_t events_got, events_acked;
	pthread_cond_t acked;
	struct ibv_qp_init_attr *ep_qp_attr; /* of rdma_create_ep(), for accepted connections */
	TAILQ_ENTRY(sv_cm_id) link;
};

struct sv_cm_event {
	struct rdma_cm_event rdma;
	TAILQ_ENTRY(sv_cm_event) link;
	struct sv_cm_id *id;    /* whose acknowledgements it counts in: the listener's for requests */
	struct sv_cm_id *child; /* of a request, until the program gets it */
	uint8_t private_data[SV_CM_REP_PRIVATE];
};

static inline struct sv_cm_id *sv_cm_id(struct rdma_cm_id *id)
{
	return (struct sv_cm_id *)id;
}

/* Turns 0 or an errno into what librdmacm's functions return: 0, or -1 with errno. */
static inline int sv_cm_result(int rc)
{
	if (rc != 0) {
		errno = rc;
		return -1;
	}
	return 0;
}

/* cm_id.c */

struct ibv_context *sv_cm_context(void);
struct ibv_pd *sv_cm_default_pd(void);
/* sv.lock held. */
struct sv_cm_id *sv_cm_id_new(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps);
/* Close the socket and free; the program never had it, or has it no more. sv.lock held. */
void sv_cm_id_free(struct sv_cm_id *id);
void sv_cm_bind_device(struct sv_cm_id *id);
/* When the next timer of any id is due (UINT64_MAX: none), after those that are due were run. sv.lock held. */
uint64_t sv_cm_timers(void);
/* Wait for the event of a call, on an id without a channel of its own. 0, or -1 with errno. */
int sv_cm_complete(struct sv_cm_id *id);

/* cm_addr.c */

void sv_cm_gid_of(const struct sockaddr *address, union ibv_gid *gid);
bool sv_cm_address_ok(const struct sockaddr *address);
socklen_t sv_cm_address_length(const struct sockaddr *address);
bool sv_cm_address_is_any(const struct sockaddr *address);
uint16_t sv_cm_port(const struct sockaddr *address);
void sv_cm_set_port(struct sockaddr *address, uint16_t port);
void sv_cm_address_from_gid(struct sockaddr_storage *address, uint8_t family, const uint8_t gid[16], uint16_t port);
/* Give the id's source address a socket name; chooses a port if it is 0. 0 or an errno. */
int sv_cm_bind(struct sv_cm_id *id);
/* Connect the id's socket to whoever listens at its destination. 0 or an errno. */
int sv_cm_connect(struct sv_cm_id *id);

/* cm_event.c */

/* Queue an event; private_data is padded with zeros to size. sv.lock held. */
struct sv_cm_event *sv_cm_raise(struct sv_cm_id *id, enum rdma_cm_event_type type, int status, const void *private_data,
				uint8_t length, uint8_t size);
/* Drop the events that the program has not got yet. sv.lock held. */
void sv_cm_forget_events(struct sv_cm_id *id);
void sv_cm_wait_acked(struct sv_cm_id *id);

/* cm_conn.c */

void sv_cm_accept_ready(struct sv_source *source, uint32_t events);
/* The other side's answer came: bring the queue pair up and send RTU. sv.lock not held. 0 or an errno. */
int sv_cm_finish_connect(struct sv_cm_id *id);
/* What a timer means depends on the state. sv.lock held. */
void sv_cm_expire(struct sv_cm_id *id);

/* cm_qp.c */

int sv_cm_qp_to(struct sv_cm_id *id, enum ibv_qp_state state);

#endif

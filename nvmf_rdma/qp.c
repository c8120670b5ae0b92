/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections from request to end.
 *
 *     control thread				poll group's thread
 *     rdma_qp_accept: checks, chooses group
 *     rdma_op_qpair_add: setup_msg
 *     setup: queue pair, receives, accept
 *     rdma_qp_broken: leave_msg
 *     leave: nvmf_qpair_disconnect
 *     rdma_op_qpair_close: SETUP or LIVE -> CLOSING, close_msg
 *     close: disconnects, error state; error_msg
 *     in_error: work flushes; CLOSING -> CLOSED when none is left, unmake_msg
 *     flush_timer: the device does not end it;
 *     destroys the queue pair			forsake, reclaim: takes back what the device still had
 *     unmake: all that was made; unmade_msg
 *     nvmf_qpair_closed(); freed: no message is under way any more
 */
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "env_dpdk/env.h"
#include "nvmf_rdma/internal.h"

#define FROM(ptr, member) ((struct rdma_qp *)((char *)(ptr)-offsetof(struct rdma_qp, member)))

static struct thread *thread_of(const struct rdma_qp *qp)
{
	return rdma_group_thread(to_rdma_tgroup(qp->base.tgroup));
}

static struct rdma_transport *transport_of(const struct rdma_qp *qp)
{
	return to_rdma_transport(qp->base.transport);
}

static void set_state(struct rdma_qp *qp, enum rdma_qp_state new)
{
	static const uint8_t allowed[] = {
		[RDMA_QP_SETUP] = 1 << RDMA_QP_LIVE | 1 << RDMA_QP_CLOSING,
		[RDMA_QP_LIVE] = 1 << RDMA_QP_CLOSING,
		[RDMA_QP_CLOSING] = 1 << RDMA_QP_CLOSED,
		[RDMA_QP_CLOSED] = 0,
	};
	if ((allowed[qp->state] & 1 << new) == 0) {
		log_limited(LOG_LEVEL_ERROR, "a connection went from state %d to %d", qp->state, new);
	}
	qp->state = new;
}

/* The trace owner. */

static void describe_owner(const struct rdma_qp *qp, char *text, size_t size)
{
	snprintf(text, size, "%.60s %.40s qid %u at %.40s", qp->base.hostnqn[0] ? qp->base.hostnqn : "(connecting)",
		 qp->base.peer_address.traddr, qp->base.qid, qp->base.listen_address.traddr);
}

static void describe(struct thread_msg *msg)
{
	struct rdma_qp *qp = FROM(msg, describe_msg);
	char text[160];

	describe_owner(qp, text, sizeof(text));
	trace_owner_update(qp->owner, text);
}

void rdma_qp_describe(struct rdma_qp *qp)
{
	qp->described = true;
	thread_post(thread_control(), &qp->describe_msg, describe);
}

/* The end. */

static void leave(struct thread_msg *msg)
{
	struct rdma_qp *qp = FROM(msg, leave_msg);

	if (qp->state != RDMA_QP_CLOSED) {
		nvmf_qpair_disconnect(&qp->base, "the connection ended");
	}
}

void rdma_qp_broken(struct rdma_qp *qp, const char *why)
{
	qp->broken = true;
	if (!qp->leaving && qp->base.tgroup != NULL) {
		qp->leaving = true;
		thread_post(thread_of(qp), &qp->leave_msg, leave);
	}
}

static void error_state_reached(struct thread_msg *msg)
{
	struct rdma_qp *qp = FROM(msg, error_msg);

	qp->in_error = true;
	rdma_qp_check_closed(qp);
}

static void to_error_state(struct rdma_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	if (ibv_modify_qp(qp->id->qp, &attr, IBV_QP_STATE) != 0 && errno != EINVAL && !qp->device->removed) {
		log_limited(LOG_LEVEL_WARNING, "a queue pair could not be put into the error state: %s",
			    strerror(errno));
	}
}

static void disconnect(struct rdma_qp *qp)
{
	TRACE(RDMA_QP_DISCONNECT, qp->owner, 0, (uintptr_t)qp);
	if (qp->id->qp == NULL) {
		return;
	}
	/* Over iWARP the connection manager would let the work under way end first (Closing). siw then forgets RDMA
	 * READs that wait for their data: they never complete, not even when the error state follows. */
	if (qp->device->iwarp) {
		to_error_state(qp);
	}
	/* an error here means that there is no connection to end: what counts is the state of the queue pair */
	rdma_disconnect(qp->id);
	to_error_state(qp);
}

/* How long a device may take to flush the work of a queue pair in the error state: a working one needs milliseconds.
 * One that is known to be broken gets the chance to hand out what it has flushed already. */
#define FLUSH_WAIT_US      5000000
#define DEAD_FLUSH_WAIT_US 100000

struct forsake {
	struct rdma_qp *qp;
	uint32_t owed;
};

static void forsake(void *arg)
{
	struct forsake *f = arg;
	struct rdma_qp *qp = f->qp;

	rdma_poller_drain(qp->device_poller);
	f->owed = rdma_qp_owed(qp);
	if (f->owed != 0 && qp->poller != NULL) {
		rdma_poller_forget_qp(qp->poller, qp);
		qp->forsaken = true;
	}
}

static void reclaim(void *arg)
{
	struct rdma_qp *qp = arg;

	rdma_poller_drain(
		qp->device_poller); /* what came before the queue pair was destroyed; afterwards nothing does */
	rdma_qp_reclaim(qp);
	rdma_qp_check_closed(qp);
}

/* The device owes completions that do not come. When the queue pair is destroyed it will neither give them nor touch
 * memory any more, so that buffers can be used again. What block devices still have of it ends as ever, and with the
 * last of it the queue pair. */
static void flush_timeout(void *arg)
{
	struct rdma_qp *qp = arg;
	struct forsake f = {.qp = qp};

	if (qp->device_poller == NULL || qp->id->qp == NULL) {
		return;
	}
	thread_call(thread_of(qp), forsake, &f);
	if (f.owed == 0) {
		return;
	}
	log_limited(LOG_LEVEL_WARNING,
		    "%s: %u work requests of the connection from %s did not end; its queue pair is destroyed, and "
		    "their buffers are taken back",
		    rdma_device_name(qp->device), f.owed, qp->base.peer_address.traddr);
	rdma_destroy_qp(qp->id);
	thread_call(thread_of(qp), reclaim, qp);
}

static void start_flush_timer(struct rdma_qp *qp)
{
	bool dead = qp->device->removed || (qp->device_poller != NULL && qp->device_poller->failed);

	qp->flush_timer = (struct thread_timer){.fn = flush_timeout, .arg = qp};
	thread_timer_start(&qp->flush_timer, dead ? DEAD_FLUSH_WAIT_US : FLUSH_WAIT_US);
}

static void close_qp(struct thread_msg *msg)
{
	struct rdma_qp *qp = FROM(msg, close_msg);

	disconnect(qp);
	start_flush_timer(qp);
	thread_post(thread_of(qp), &qp->error_msg, error_state_reached);
}

void rdma_op_qpair_close(struct nvmf_qpair *base)
{
	struct rdma_qp *qp = to_rdma_qp(base);

	set_state(qp, RDMA_QP_CLOSING);
	thread_post(thread_control(), &qp->close_msg, close_qp);
	if (qp->poller != NULL) {
		rdma_qp_fail_waiting(qp);
	}
}

static void remove_from_poller(void *arg)
{
	struct rdma_qp *qp = arg;

	rdma_poller_remove_qp(qp->poller, qp);
}

/* On the group's thread: whatever the control thread had sent before has arrived, so that it may be freed. */
static void unmade(struct thread_msg *msg)
{
	nvmf_qpair_closed(&FROM(msg, unmade_msg)->base);
}

static void unmake(struct thread_msg *msg)
{
	struct rdma_qp *qp = FROM(msg, unmake_msg);
	struct rdma_device *d = qp->device;

	thread_timer_stop(&qp->flush_timer);
	if (qp->poller != NULL) {
		thread_call(thread_of(qp), remove_from_poller, qp);
	}
	if (qp->id->qp != NULL) {
		rdma_destroy_qp(qp->id);
	}
	if (qp->device_poller != NULL) {
		qp->device_poller->cq_reserved -= qp->completions;
		qp->device_poller->qps--;
	}
	rdma_requests_destroy(&qp->requests);
	TRACE(RDMA_QP_DESTROY, qp->owner, 0, (uintptr_t)qp);
	trace_owner_release(qp->owner);
	TAILQ_REMOVE(&transport_of(qp)->qps, qp, link);
	d->qps--;
	rdma_device_release(d);
	rdma_destroy_id(qp->id); /* the last one of a device that is gone closes it */
	qp->id = NULL;
	thread_post(thread_of(qp), &qp->unmade_msg, unmade);
}

void rdma_qp_check_closed(struct rdma_qp *qp)
{
	/* receives that were posted are flushed by the error state; with a shared queue they are not the queue
	 * pair's */
	if (qp->state == RDMA_QP_CLOSING && qp->in_error && qp->in_use == 0 && qp->receives == 0 && !qp->dirty) {
		set_state(qp, RDMA_QP_CLOSED);
		thread_post(thread_control(), &qp->unmake_msg, unmake);
	}
}

void rdma_op_qpair_destroy(struct nvmf_qpair *base)
{
	free(to_rdma_qp(base));
}

/* The beginning. */

/* Entries of the send queue: three for each command, and never fewer than one transfer and its response can need, for
 * it would wait for them for ever. */
static uint32_t send_queue(const struct rdma_qp *qp)
{
	uint32_t most = RDMA_MAX_DESCRIPTORS + transport_of(qp)->buffers.most / (uint32_t)qp->device->read_sges + 1;

	return 3u * qp->depth > most ? 3u * qp->depth : most;
}

static int make_verbs(struct rdma_qp *qp, struct rdma_poller *p)
{
	uint32_t sends = send_queue(qp), receives = 2u * qp->depth, limit = (uint32_t)qp->device->attr.max_qp_wr;
	struct ibv_qp_init_attr init = {
		.qp_context = qp,
		.send_cq = p->cq,
		.recv_cq = p->cq,
		.srq = p->srq,
		.cap = {.max_send_wr = sends < limit ? sends : limit,
			.max_recv_wr = p->srq             ? 0
				       : receives < limit ? receives
							  : limit,
			.max_send_sge = (uint32_t)qp->device->sges,
			.max_recv_sge = 2},
		.qp_type = IBV_QPT_RC,
	};

	qp->receive_queue = (uint16_t)(receives < limit ? receives : limit);
	if (p->srq == NULL) {
		/* all that can be flushed at once; with a shared receive queue its requests are the bound, see
		 * make_shared_receives() */
		uint32_t all = init.cap.max_send_wr + init.cap.max_recv_wr;
		int rc = rdma_poller_reserve(p, all);

		if (rc != 0) {
			return rc;
		}
		qp->completions = all;
	}
	if (rdma_create_qp(qp->id, qp->device->pd->pd, &init) != 0) {
		return -errno;
	}
	qp->verbs = qp->id->qp;
	qp->send_room = qp->send_entries = init.cap.max_send_wr;
	return 0;
}

static int make_receives(struct rdma_qp *qp, struct rdma_poller *p)
{
	if (p->srq != NULL) {
		return 0;
	}
	int rc = rdma_requests_create(&qp->requests, qp->receive_queue, transport_of(qp), p);
	if (rc != 0) {
		return rc;
	}
	for (uint32_t i = 0; i < qp->requests.count; i++) {
		struct rdma_request *r = rdma_requests_at(&qp->requests, i);
		struct ibv_recv_wr *bad;

		r->qp = qp;
		rc = ibv_post_recv(qp->verbs, &r->recv_wr, &bad);
		if (rc != 0) {
			return -rc;
		}
		qp->receives++; /* the group does not know the queue pair yet */
	}
	return 0;
}

static int accept_connection(struct rdma_qp *qp)
{
	struct nvmf_rdma_cm_accept data = {.recfmt = htole16(NVMF_RDMA_CM_RECFMT), .crqsize = htole16(qp->depth)};
	struct rdma_conn_param param = {
		.private_data = &data,
		.private_data_len = sizeof(data),
		.responder_resources = 0, /* hosts do not read our memory */
		.initiator_depth = (uint8_t)qp->max_reads,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};

	/* What we ask for is within what the device grants: who cannot be accepted has withdrawn. */
	return rdma_accept(qp->id, &param) == 0 ? 0 : -ECONNABORTED;
}

struct go_live {
	struct rdma_qp *qp;
	struct rdma_poller *poller;
	bool live;
};

static void go_live(void *arg)
{
	struct go_live *g = arg;

	rdma_poller_add_qp(g->poller, g->qp);
	if (g->qp->state == RDMA_QP_SETUP) { /* else it was closed meanwhile: the rest undoes it */
		set_state(g->qp, RDMA_QP_LIVE);
		g->live = true;
	}
}

static int make_connection(struct rdma_qp *qp)
{
	struct rdma_poller *p =
		qp->device->removed ? NULL : rdma_poller_get(to_rdma_tgroup(qp->base.tgroup), qp->device);
	struct go_live g = {.qp = qp, .poller = p};
	int rc;

	if (p == NULL) {
		return qp->device->removed ? -ENODEV : -ENOMEM;
	}
	qp->device_poller = p;
	p->qps++;
	if ((rc = make_verbs(qp, p)) != 0 || (rc = make_receives(qp, p)) != 0) {
		return rc;
	}
	thread_call(thread_of(qp), go_live, &g);
	return g.live ? accept_connection(qp) : 0;
}

static void reject(struct rdma_cm_id *id, enum nvmf_rdma_cm_status status)
{
	struct nvmf_rdma_cm_reject data = {.recfmt = htole16(NVMF_RDMA_CM_RECFMT), .sts = htole16((uint16_t)status)};

	rdma_reject(id, &data, sizeof(data));
}

static void setup(struct thread_msg *msg)
{
	struct rdma_qp *qp = FROM(msg, setup_msg);
	int rc = make_connection(qp);

	if (rc == -ECONNABORTED) {
		log_limited(LOG_LEVEL_NOTICE, "a host at %s went before its connection was accepted",
			    qp->base.peer_address.traddr);
		rdma_qp_broken(qp, strerror(-rc));
	} else if (rc != 0) {
		log_limited(LOG_LEVEL_ERROR, "a connection from %s could not be made: %s", qp->base.peer_address.traddr,
			    strerror(-rc));
		reject(qp->id, NVMF_RDMA_CM_NO_RSC);
		rdma_qp_broken(qp, strerror(-rc));
	} else if (qp->broken) { /* it was lost while it was being made, before the group could be told */
		rdma_qp_broken(qp, "the connection was lost");
	}
}

int rdma_op_qpair_add(struct nvmf_transport_group *tgroup, struct nvmf_qpair *base)
{
	struct rdma_qp *qp = to_rdma_qp(base);

	thread_post(thread_control(), &qp->setup_msg, setup);
	return 0;
}

static void name_address(struct nvmf_address *a, const struct sockaddr *sa)
{
	char port[16];

	snprintf(a->trtype, sizeof(a->trtype), "RDMA");
	a->adrfam = sa->sa_family == AF_INET6 ? NVMF_ADDR_FAMILY_IP6 : NVMF_ADDR_FAMILY_IP4;
	if (getnameinfo(sa, sa->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in),
			a->traddr, sizeof(a->traddr), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) == 0) {
		snprintf(a->trsvcid, sizeof(a->trsvcid), "%s", port);
	}
}

/* The address of the listener, as it was given: subsystems, ANA states and the removal of listeners go by it. The one
 * that the host has connected to may be another (the listener's is 0.0.0.0 or ::), or be written in another way (::1
 * and 0::1). */
static void name_listener(struct nvmf_address *a, const struct rdma_transport *t, const struct rdma_cm_event *event)
{
	const struct rdma_listener *l = rdma_listener_find(t, event->listen_id);

	if (l != NULL) {
		*a = l->address;
	} else {
		name_address(a, rdma_get_local_addr(event->id));
	}
}

static struct rdma_qp *make_qp(struct rdma_transport *t, struct rdma_device *d, const struct rdma_cm_event *event,
			       const struct rdma_cm_request *req)
{
	struct rdma_qp *qp = calloc(1, sizeof(*qp));
	char text[160];

	if (qp == NULL) {
		return NULL;
	}
	qp->base.transport = &t->base;
	qp->device = d;
	qp->id = event->id;
	qp->id->context = qp;
	qp->depth = req->host_send_queue;
	qp->max_reads = event->param.conn.initiator_depth;
	if (qp->max_reads > d->attr.max_qp_init_rd_atom) {
		qp->max_reads = (uint16_t)d->attr.max_qp_init_rd_atom;
	}
	if (qp->max_reads == 0) {
		qp->max_reads =
			1; /* reads would never go otherwise; a host that allows none gets its error from the device */
	}
	STAILQ_INIT(&qp->pending);
	name_listener(&qp->base.listen_address, t, event);
	name_address(&qp->base.local_address, rdma_get_local_addr(qp->id));
	name_address(&qp->base.peer_address, rdma_get_peer_addr(qp->id));
	qp->qid = req->qid;
	qp->base.qid = req->qid;
	describe_owner(qp, text, sizeof(text));
	qp->base.qid = 0;
	qp->owner = trace_owner_register(TRACE_OWNER_NVMF_RDMA_QP, text);
	return qp;
}

/* To the target, or nowhere. */
static void hand_over(struct rdma_qp *qp)
{
	qp->waits = false;
	if (!qp->device->removed && nvmf_qpair_accept(&qp->base, qp->qid) == 0) {
		return;
	}
	reject(qp->id, NVMF_RDMA_CM_NO_RSC);
	TAILQ_REMOVE(&transport_of(qp)->qps, qp, link);
	qp->device->qps--;
	rdma_destroy_id(qp->id);
	trace_owner_release(qp->owner);
	free(qp);
}

void rdma_qps_go_on(struct rdma_device *d)
{
	struct rdma_qp *qp, *next;

	for (qp = TAILQ_FIRST(&d->transport->qps); qp != NULL; qp = next) {
		next = TAILQ_NEXT(qp, link);
		if (qp->device == d && qp->waits) {
			hand_over(qp);
		}
	}
}

/* Connection requests that may wait for a device: it takes no more than seconds, and who is rejected tries again. */
#define WAITING_MOST 128

static bool is_usable(const struct rdma_device *d)
{
	return d != NULL && !d->removed && (d->ready || d->qps < WAITING_MOST);
}

void rdma_qp_accept(struct rdma_transport *t, const struct rdma_cm_event *event)
{
	const struct rdma_conn_param *conn = &event->param.conn;
	const struct nvmf_transport_opts *o = &t->base.opts;
	struct rdma_cm_request req;
	enum nvmf_rdma_cm_status status =
		rdma_cm_decode(conn->private_data, conn->private_data_len, o->max_aq_depth, o->max_queue_depth, &req);
	struct rdma_device *d = status == 0 ? rdma_device_get(t, event->id->verbs) : NULL;
	struct rdma_qp *qp = is_usable(d) ? make_qp(t, d, event, &req) : NULL;

	if (qp == NULL) {
		reject(event->id, status ? status : NVMF_RDMA_CM_NO_RSC);
		log_limited(LOG_LEVEL_WARNING, "a connection request was rejected with status %d",
			    status ? (int)status : NVMF_RDMA_CM_NO_RSC);
		rdma_destroy_id(event->id);
		return;
	}
	TAILQ_INSERT_TAIL(&t->qps, qp, link);
	d->qps++;
	TRACE(RDMA_QP_CREATE, qp->owner, 0, (uintptr_t)qp);
	qp->waits = !d->ready;
	if (d->ready) {
		hand_over(qp);
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections: the states of both sides (InfiniBand 12.9), the effect of messages on them, and the program's calls. */
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "softverbs/cm.h"

#define RESPONSE_NS 64000000000ull /* until a request without an answer is given up; as long as with real devices */
#define DREQ_NS     8000000000ull  /* until a disconnection that the other program ignores is over */
#define TIMEWAIT_NS 1000000000ull
/*
 * How long a request that finds no listener is tried again. Programs that listen again between two connections
 * (perftest does) rely on a network that is slower than they are; softverbs is not.
 */
#define NO_LISTENER_NS 200000000ull
#define RECONNECT_NS   5000000ull
#define ACK_TIMEOUT    18 /* 4.096 us << 18: a second */
#define MIN_RNR_TIMER  12

static void close_socket(struct sv_cm_id *id)
{
	if (id->source.fd >= 0) {
		sv_source_remove(&id->source);
		close(id->source.fd);
		id->source.fd = -1;
	}
}

static int send_message(struct sv_cm_id *id, const struct sv_cm_msg *m)
{
	return sv_wire_send(id->source.fd, m, sizeof(*m), NULL, 0);
}

static int send_simple(struct sv_cm_id *id, enum sv_cm_type type)
{
	return send_message(id, &(struct sv_cm_msg){.magic = SV_ARENA_MAGIC, .type = type});
}

/* Copies a program's private data into a message. False: the message has too little room. */
static bool put_private(struct sv_cm_msg *m, const void *data, uint8_t length, uint8_t max)
{
	if (length > max || (length != 0 && data == NULL)) {
		return false;
	}
	if (length != 0) {
		memcpy(m->private_data, data, length);
	}
	m->private_data_len = length;
	return true;
}

static void enter_timewait(struct sv_cm_id *id)
{
	id->state = CM_TIMEWAIT;
	id->deadline_ns = sv_now_ns() + TIMEWAIT_NS;
}

/* The handler of a message in a state. A message without a handler breaks the protocol and ends the connection. */

typedef void (*message_fn)(struct sv_cm_id *id, const struct sv_cm_msg *m);

/* Whether the listener accepts such requests; if not, the request is treated as if there were no listener. */
static bool request_is_for(const struct sv_cm_id *listener, const struct sv_cm_msg *m)
{
	return listener != NULL && m->port_space == (uint32_t)listener->rdma.ps &&
	       !(listener->afonly && m->family == 4);
}

static void on_req(struct sv_cm_id *id, const struct sv_cm_msg *m)
{
	struct rdma_addr *a = &id->rdma.route.addr;
	struct sv_cm_event *e;

	if (!request_is_for(id->listener, m)) {
		send_message(id, &(struct sv_cm_msg){.magic = SV_ARENA_MAGIC,
						     .type = SV_CM_REJ,
						     .reason = SV_CM_REJ_INVALID_SERVICE_ID});
		sv_cm_id_free(id);
		return;
	}
	if (id->listener->backlog <= 0) {
		sv_cm_id_free(id); /* the other side sees a rejection */
		return;
	}
	id->listener->backlog--;
	id->rdma.channel = id->listener->rdma.channel;
	id->rdma.context = id->listener->rdma.context;
	id->remote_qpn = m->qpn;
	id->remote_psn = m->psn;
	id->retry_count = m->retry_count;
	id->rnr_retry_count = m->rnr_retry_count;
	sv_cm_address_from_gid(&a->src_storage, m->family, m->dest, m->dest_port);
	sv_cm_address_from_gid(&a->dst_storage, m->family, m->source, m->source_port);
	sv_cm_bind_device(id);
	id->state = CM_REQ_RECEIVED;
	e = sv_cm_raise(id, RDMA_CM_EVENT_CONNECT_REQUEST, 0, m->private_data, m->private_data_len, SV_CM_REQ_PRIVATE);
	if (e == NULL) {
		sv_cm_id_free(id);
		return;
	}
	/* The other side's initiator depth limits this side's responder resources, and vice versa. */
	e->rdma.param.conn.responder_resources = id->responder_resources = m->initiator_depth;
	e->rdma.param.conn.initiator_depth = id->initiator_depth = m->responder_resources;
	e->rdma.param.conn.flow_control = m->flow_control;
	e->rdma.param.conn.retry_count = m->retry_count;
	e->rdma.param.conn.rnr_retry_count = m->rnr_retry_count;
	e->rdma.param.conn.srq = m->srq;
	e->rdma.param.conn.qp_num = m->qpn;
}

static void on_rep(struct sv_cm_id *id, const struct sv_cm_msg *m)
{
	struct sv_cm_event *e;

	id->deadline_ns = 0;
	id->state = CM_REP_RECEIVED;
	id->remote_qpn = m->qpn;
	id->remote_psn = m->psn;
	id->rnr_retry_count = m->rnr_retry_count;
	if (id->responder_resources > m->initiator_depth) {
		id->responder_resources = m->initiator_depth;
	}
	if (id->initiator_depth > m->responder_resources) {
		id->initiator_depth = m->responder_resources;
	}
	e = sv_cm_raise(id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, m->private_data, m->private_data_len, SV_CM_REP_PRIVATE);
	if (e != NULL) {
		e->rdma.param.conn.responder_resources = m->initiator_depth;
		e->rdma.param.conn.initiator_depth = m->responder_resources;
		e->rdma.param.conn.flow_control = m->flow_control;
		e->rdma.param.conn.rnr_retry_count = m->rnr_retry_count;
		e->rdma.param.conn.srq = m->srq;
		e->rdma.param.conn.qp_num = m->qpn;
	}
}

static void on_rtu(struct sv_cm_id *id, const struct sv_cm_msg *m)
{
	id->state = CM_ESTABLISHED;
	id->deadline_ns = 0;
	sv_cm_raise(id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, 0, 0);
}

static void on_late_rtu(struct sv_cm_id *id, const struct sv_cm_msg *m)
{
	/* rdma_notify() had moved the connection to ESTABLISHED before this message came. */
}

static void on_rej(struct sv_cm_id *id, const struct sv_cm_msg *m)
{
	id->state = CM_CLOSED;
	id->deadline_ns = 0;
	close_socket(id);
	sv_cm_raise(id, RDMA_CM_EVENT_REJECTED, (int)m->reason, m->private_data, m->private_data_len,
		    SV_CM_REJ_PRIVATE);
}

static void on_dreq(struct sv_cm_id *id, const struct sv_cm_msg *m)
{
	id->state = CM_DREQ_RECEIVED;
	sv_cm_raise(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0, 0);
}

/* Both sides disconnect at once. */
static void on_crossing_dreq(struct sv_cm_id *id, const struct sv_cm_msg *m)
{
	send_simple(id, SV_CM_DREP);
	sv_cm_raise(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0, 0);
	enter_timewait(id);
}

static void on_drep(struct sv_cm_id *id, const struct sv_cm_msg *m)
{
	sv_cm_raise(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0, 0);
	enter_timewait(id);
}

static void on_late(struct sv_cm_id *id, const struct sv_cm_msg *m)
{
	/* The answer to a DREQ that crossed the other side's. */
}

static const message_fn g_on_message[CM_NUM_STATES][SV_CM_DREP + 1] = {
	[CM_ACCEPTED] = {[SV_CM_REQ] = on_req},
	[CM_REQ_SENT] = {[SV_CM_REP] = on_rep, [SV_CM_REJ] = on_rej},
	[CM_REP_RECEIVED] = {[SV_CM_DREQ] = on_dreq},
	[CM_REQ_RECEIVED] = {[SV_CM_REJ] = on_rej},
	[CM_REP_SENT] = {[SV_CM_RTU] = on_rtu, [SV_CM_REJ] = on_rej, [SV_CM_DREQ] = on_dreq},
	[CM_ESTABLISHED] = {[SV_CM_RTU] = on_late_rtu, [SV_CM_DREQ] = on_dreq},
	[CM_DREQ_SENT] = {[SV_CM_DREQ] = on_crossing_dreq, [SV_CM_DREP] = on_drep, [SV_CM_RTU] = on_late_rtu},
	[CM_TIMEWAIT] = {[SV_CM_DREP] = on_late, [SV_CM_DREQ] = on_late},
	[CM_CLOSED] = {[SV_CM_RTU] = on_late, [SV_CM_DREQ] = on_late},
};

static void connect_rejected(struct sv_cm_id *id, int reason)
{
	id->state = CM_CLOSED;
	sv_cm_raise(id, RDMA_CM_EVENT_REJECTED, reason, id, 0, SV_CM_REJ_PRIVATE);
}

/* The other side has closed its socket: it destroyed its id, or died. */
static void on_hangup(struct sv_cm_id *id)
{
	enum sv_cm_state state = id->state;

	id->deadline_ns = 0;
	close_socket(id);
	id->state = CM_CLOSED;
	switch (state) {
	case CM_ACCEPTED:
		sv_cm_id_free(id);
		break;
	case CM_REQ_SENT:
	case CM_REP_SENT:
		connect_rejected(id, SV_CM_REJ_CONSUMER_DEFINED);
		break;
	case CM_REQ_RECEIVED:
		connect_rejected(id, SV_CM_REJ_TIMEOUT);
		break;
	case CM_REP_RECEIVED:
	case CM_ESTABLISHED:
		sv_cm_raise(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0, 0);
		id->state = CM_DREQ_RECEIVED; /* until the program disconnects too */
		break;
	case CM_DREQ_SENT:
		sv_cm_raise(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0, 0);
		enter_timewait(id);
		break;
	case CM_DREQ_RECEIVED:
		id->state = state;
		break;
	case CM_TIMEWAIT:
		enter_timewait(id);
		break;
	default:
		break;
	}
}

static void connection_ready(struct sv_source *source, uint32_t events)
{
	struct sv_cm_id *id = container_of(source, struct sv_cm_id, source);
	struct sv_cm_msg m;
	int fds[SV_WIRE_MAX_FDS], num_fds;
	ssize_t n = sv_wire_receive(source->fd, &m, sizeof(m), fds, &num_fds);

	sv_wire_close_fds(fds, num_fds);
	if (n < 0 && errno == EAGAIN) {
		return;
	}
	if (n <= 0 || !sv_cm_msg_ok(&m, (size_t)n) || g_on_message[id->state][m.type] == NULL) {
		on_hangup(id);
		return;
	}
	g_on_message[id->state][m.type](id, &m);
}

void sv_cm_accept_ready(struct sv_source *source, uint32_t events)
{
	struct sv_cm_id *listener = container_of(source, struct sv_cm_id, source);
	struct ucred cred;
	socklen_t size = sizeof(cred);
	struct sv_cm_id *id;
	int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0) {
		return;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) < 0 || cred.uid != geteuid()) {
		close(fd);
		return;
	}
	id = sv_cm_id_new(listener->rdma.channel, NULL, listener->rdma.ps);
	if (id == NULL) {
		close(fd);
		return;
	}
	id->listener = listener;
	id->state = CM_ACCEPTED;
	id->source = (struct sv_source){.fd = fd, .ready = connection_ready};
	if (sv_source_add(&id->source, EPOLLIN) != 0) {
		close(fd);
		id->source.fd = -1;
		sv_cm_id_free(id);
	}
}

static void request_send(struct sv_cm_id *id)
{
	int rc = sv_cm_connect(id);

	if (rc == ECONNREFUSED && sv_now_ns() < id->give_up_ns) {
		id->state = CM_CONNECTING;
		id->deadline_ns = sv_now_ns() + RECONNECT_NS;
		return;
	}
	id->source.ready = connection_ready;
	if (rc == 0) {
		rc = sv_source_add(&id->source, EPOLLIN);
	}
	if (rc == 0) {
		rc = send_message(id, id->request);
	}
	if (rc != 0) {
		connect_rejected(id, SV_CM_REJ_INVALID_SERVICE_ID);
		return;
	}
	id->state = CM_REQ_SENT;
	id->deadline_ns = sv_now_ns() + RESPONSE_NS;
}

void sv_cm_expire(struct sv_cm_id *id)
{
	switch (id->state) {
	case CM_CONNECTING:
		request_send(id);
		break;
	case CM_REQ_SENT:
	case CM_REP_SENT:
		close_socket(id);
		id->state = CM_CLOSED;
		sv_cm_raise(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, NULL, 0, 0);
		break;
	case CM_DREQ_SENT:
		sv_cm_raise(id, RDMA_CM_EVENT_DISCONNECTED, -ETIMEDOUT, NULL, 0, 0);
		enter_timewait(id);
		break;
	case CM_TIMEWAIT:
		close_socket(id);
		id->state = CM_CLOSED;
		sv_cm_raise(id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0, NULL, 0, 0);
		break;
	default:
		break;
	}
}

/* Chooses the depths for RDMA READ and atomics; RDMA_MAX_* means the device's limit. False: too large. */
static bool read_depths_choose(const struct rdma_conn_param *p, uint8_t *responder_resources, uint8_t *initiator_depth)
{
	*responder_resources = p->responder_resources == RDMA_MAX_RESP_RES ? SV_MAX_RD_ATOM : p->responder_resources;
	*initiator_depth = p->initiator_depth == RDMA_MAX_INIT_DEPTH ? SV_MAX_RD_ATOM : p->initiator_depth;
	return *responder_resources <= SV_MAX_RD_ATOM && *initiator_depth <= SV_MAX_RD_ATOM;
}

static void name_queue_pair(struct sv_cm_id *id, const struct rdma_conn_param *p, struct sv_cm_msg *m)
{
	struct ibv_qp *qp = id->rdma.qp;

	id->qpn = qp != NULL ? qp->qp_num : p->qp_num & 0xffffff;
	m->qpn = id->qpn;
	m->psn = id->psn;
	m->srq = qp != NULL ? qp->srq != NULL : p->srq;
}

static int connect_locked(struct sv_cm_id *id, const struct rdma_conn_param *p)
{
	const struct rdma_addr *a = &id->rdma.route.addr;
	struct sv_cm_msg m = {.magic = SV_ARENA_MAGIC, .type = SV_CM_REQ};

	if (id->state != CM_ROUTE_RESOLVED ||
	    !put_private(&m, p->private_data, p->private_data_len, SV_CM_REQ_PRIVATE) ||
	    !read_depths_choose(p, &id->responder_resources, &id->initiator_depth)) {
		return EINVAL;
	}
	name_queue_pair(id, p, &m);
	m.responder_resources = id->responder_resources;
	m.initiator_depth = id->initiator_depth;
	m.flow_control = p->flow_control;
	m.retry_count = id->retry_count = p->retry_count & 7;
	m.rnr_retry_count = id->rnr_retry_count = p->rnr_retry_count & 7;
	m.port_space = id->rdma.ps;
	m.family = a->dst_addr.sa_family == AF_INET ? 4 : 6;
	memcpy(m.source, a->addr.ibaddr.sgid.raw, sizeof(m.source));
	memcpy(m.dest, a->addr.ibaddr.dgid.raw, sizeof(m.dest));
	m.source_port = sv_cm_port(&a->src_addr);
	m.dest_port = sv_cm_port(&a->dst_addr);
	id->request = malloc(sizeof(m));
	if (id->request == NULL) {
		return ENOMEM;
	}
	*id->request = m;
	id->give_up_ns = sv_now_ns() + NO_LISTENER_NS;
	request_send(id);
	sv_kick_self(); /* a timer was set */
	return 0;
}

SV_EXPORT int rdma_connect(struct rdma_cm_id *rdma, struct rdma_conn_param *param)
{
	struct rdma_conn_param all = {.responder_resources = RDMA_MAX_RESP_RES,
				      .initiator_depth = RDMA_MAX_INIT_DEPTH,
				      .retry_count = 7,
				      .rnr_retry_count = 7};
	int rc;

	pthread_mutex_lock(&sv.lock);
	rc = connect_locked(sv_cm_id(rdma), param != NULL ? param : &all);
	pthread_mutex_unlock(&sv.lock);
	return rc != 0 ? sv_cm_result(rc) : sv_cm_complete(sv_cm_id(rdma));
}

int sv_cm_finish_connect(struct sv_cm_id *id)
{
	int rc = sv_cm_qp_to(id, IBV_QPS_RTR);

	if (rc == 0) {
		rc = sv_cm_qp_to(id, IBV_QPS_RTS);
	}
	pthread_mutex_lock(&sv.lock);
	if (rc != 0) {
		struct sv_cm_msg m = {.magic = SV_ARENA_MAGIC, .type = SV_CM_REJ, .reason = SV_CM_REJ_CONSUMER_DEFINED};

		send_message(id, &m);
		close_socket(id);
		id->state = CM_CLOSED;
	} else if (id->state == CM_REP_RECEIVED) {
		send_simple(id, SV_CM_RTU);
		id->state = CM_ESTABLISHED;
	}
	/* Otherwise the connection has ended meanwhile, and the event for that follows. */
	pthread_mutex_unlock(&sv.lock);
	return rc;
}

SV_EXPORT int rdma_establish(struct rdma_cm_id *rdma)
{
	struct sv_cm_id *id = sv_cm_id(rdma);
	int rc = 0;

	pthread_mutex_lock(&sv.lock);
	if (rdma->qp != NULL || id->state != CM_REP_RECEIVED) {
		rc = EINVAL;
	} else {
		send_simple(id, SV_CM_RTU);
		id->state = CM_ESTABLISHED;
	}
	pthread_mutex_unlock(&sv.lock);
	return sv_cm_result(rc);
}

static int send_rep(struct sv_cm_id *id, const struct rdma_conn_param *p)
{
	struct sv_cm_msg m = {.magic = SV_ARENA_MAGIC, .type = SV_CM_REP};

	name_queue_pair(id, p, &m);
	m.responder_resources = id->responder_resources;
	m.initiator_depth = id->initiator_depth;
	m.flow_control = p->flow_control;
	m.rnr_retry_count = p->rnr_retry_count & 7;
	put_private(&m, p->private_data, p->private_data_len, SV_CM_REP_PRIVATE);
	if (id->state != CM_REQ_RECEIVED) {
		return EINVAL; /* the connection ended while the queue pair was brought up */
	}
	id->state = CM_REP_SENT;
	id->deadline_ns = sv_now_ns() + RESPONSE_NS;
	sv_kick_self();
	send_message(id, &m); /* if it fails, the hang-up follows */
	return 0;
}

/* The requester's figures are the limit, and the default. */
static int accept_check(struct sv_cm_id *id, const struct rdma_conn_param *p)
{
	struct sv_cm_msg scratch;
	uint8_t responder, initiator;

	if (id->state != CM_REQ_RECEIVED || !read_depths_choose(p, &responder, &initiator) ||
	    !put_private(&scratch, p->private_data, p->private_data_len, SV_CM_REP_PRIVATE)) {
		return EINVAL;
	}
	id->responder_resources = responder < id->responder_resources ? responder : id->responder_resources;
	id->initiator_depth = initiator < id->initiator_depth ? initiator : id->initiator_depth;
	return 0;
}

SV_EXPORT int rdma_accept(struct rdma_cm_id *rdma, struct rdma_conn_param *param)
{
	struct rdma_conn_param all = {
		.responder_resources = RDMA_MAX_RESP_RES, .initiator_depth = RDMA_MAX_INIT_DEPTH, .rnr_retry_count = 7};
	const struct rdma_conn_param *p = param != NULL ? param : &all;
	struct sv_cm_id *id = sv_cm_id(rdma);
	int rc;

	pthread_mutex_lock(&sv.lock);
	rc = accept_check(id, p);
	pthread_mutex_unlock(&sv.lock);
	if (rc == 0 && rdma->qp != NULL) {
		rc = sv_cm_qp_to(id, IBV_QPS_RTR);
		rc = rc == 0 ? sv_cm_qp_to(id, IBV_QPS_RTS) : rc;
	}
	if (rc == 0) {
		pthread_mutex_lock(&sv.lock);
		rc = send_rep(id, p);
		pthread_mutex_unlock(&sv.lock);
	}
	return rc != 0 ? sv_cm_result(rc) : sv_cm_complete(id);
}

SV_EXPORT int rdma_reject(struct rdma_cm_id *rdma, const void *private_data, uint8_t private_data_len)
{
	struct sv_cm_msg m = {.magic = SV_ARENA_MAGIC, .type = SV_CM_REJ, .reason = SV_CM_REJ_CONSUMER_DEFINED};
	struct sv_cm_id *id = sv_cm_id(rdma);
	int rc = EINVAL;

	pthread_mutex_lock(&sv.lock);
	if ((id->state == CM_REQ_RECEIVED || id->state == CM_REP_RECEIVED) &&
	    put_private(&m, private_data, private_data_len, SV_CM_REJ_PRIVATE)) {
		send_message(id, &m);
		close_socket(id);
		id->state = CM_CLOSED;
		rc = 0;
	}
	pthread_mutex_unlock(&sv.lock);
	return sv_cm_result(rc);
}

SV_EXPORT int rdma_reject_ece(struct rdma_cm_id *rdma, const void *private_data, uint8_t private_data_len)
{
	return rdma_reject(rdma, private_data, private_data_len);
}

static int disconnect_locked(struct sv_cm_id *id)
{
	switch (id->state) {
	case CM_REP_SENT:
	case CM_REP_RECEIVED:
	case CM_ESTABLISHED:
		send_simple(id, SV_CM_DREQ);
		id->state = CM_DREQ_SENT;
		id->deadline_ns = sv_now_ns() + DREQ_NS;
		break;
	case CM_DREQ_RECEIVED:
		if (id->source.fd >= 0) {
			send_simple(id, SV_CM_DREP);
		}
		enter_timewait(id);
		break;
	case CM_TIMEWAIT: /* the other side was faster */
		break;
	default:
		return EINVAL;
	}
	sv_kick_self();
	return 0;
}

SV_EXPORT int rdma_disconnect(struct rdma_cm_id *rdma)
{
	struct sv_cm_id *id = sv_cm_id(rdma);
	int rc = rdma->qp != NULL ? sv_cm_qp_to(id, IBV_QPS_ERR) : 0;

	if (rc == 0) {
		pthread_mutex_lock(&sv.lock);
		rc = disconnect_locked(id);
		pthread_mutex_unlock(&sv.lock);
	}
	return rc != 0 ? sv_cm_result(rc) : sv_cm_complete(id);
}

SV_EXPORT int rdma_notify(struct rdma_cm_id *rdma, enum ibv_event_type event)
{
	struct sv_cm_id *id = sv_cm_id(rdma);
	int rc = EINVAL;

	pthread_mutex_lock(&sv.lock);
	if (event == IBV_EVENT_COMM_EST && (id->state == CM_REP_SENT || id->state == CM_ESTABLISHED)) {
		rc = 0;
		if (id->state == CM_REP_SENT) {
			on_rtu(id, NULL);
		}
	}
	pthread_mutex_unlock(&sv.lock);
	return sv_cm_result(rc);
}

/* Attributes for the queue pair of a connection, for the state in attr->qp_state. */
SV_EXPORT int rdma_init_qp_attr(struct rdma_cm_id *rdma, struct ibv_qp_attr *attr, int *mask)
{
	struct sv_cm_id *id = sv_cm_id(rdma);
	enum ibv_qp_state state = attr->qp_state;

	memset(attr, 0, sizeof(*attr));
	attr->qp_state = state;
	pthread_mutex_lock(&sv.lock);
	switch (state) {
	case IBV_QPS_INIT:
		attr->port_num = 1;
		attr->qp_access_flags =
			IBV_ACCESS_REMOTE_WRITE |
			(id->responder_resources != 0 ? IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC : 0);
		*mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
		break;
	case IBV_QPS_RTR:
		attr->path_mtu = IBV_MTU_4096;
		attr->dest_qp_num = id->remote_qpn;
		attr->rq_psn = id->remote_psn;
		attr->max_dest_rd_atomic = id->responder_resources;
		attr->min_rnr_timer = MIN_RNR_TIMER;
		attr->ah_attr = (struct ibv_ah_attr){.is_global = 1, .port_num = 1};
		attr->ah_attr.grh.dgid = rdma->route.addr.addr.ibaddr.dgid;
		attr->ah_attr.grh.hop_limit = 64;
		*mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		break;
	case IBV_QPS_RTS:
		attr->sq_psn = id->psn;
		attr->timeout = ACK_TIMEOUT;
		attr->retry_cnt = id->retry_count;
		attr->rnr_retry = id->rnr_retry_count;
		attr->max_rd_atomic = id->initiator_depth;
		*mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
		break;
	default:
		*mask = IBV_QP_STATE;
		break;
	}
	pthread_mutex_unlock(&sv.lock);
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "systest/hostile/link.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define RECV_ID     UINT64_C(1) << 32
#define LOCAL_SIZE  ((size_t)CAPSULES * CAPSULE_SIZE + CAPSULES * 64)
#define REMOTE_SIZE ((size_t)SLOTS * SLOT_SIZE)
#define SPIN        200

struct memory memory;
int link_deadline_ms = 90000;
static struct link links[LINKS];
static uint8_t *remote_base, *local_base;

int64_t link_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int make_memory(struct ibv_context *verbs)
{
	remote_base = aligned_alloc(4096, LINKS * REMOTE_SIZE);
	local_base = aligned_alloc(4096, LINKS * LOCAL_SIZE);
	memory.pd = ibv_alloc_pd(verbs);
	if (remote_base == NULL || local_base == NULL || memory.pd == NULL) {
		return -ENOMEM;
	}
	memset(remote_base, CANARY, LINKS * REMOTE_SIZE);
	memory.remote = ibv_reg_mr(memory.pd, remote_base, LINKS * REMOTE_SIZE,
				   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	memory.local = ibv_reg_mr(memory.pd, local_base, LINKS * LOCAL_SIZE, IBV_ACCESS_LOCAL_WRITE);
	return memory.remote != NULL && memory.local != NULL ? 0 : -errno;
}

static uint8_t *response_at(struct link *l, uint32_t index)
{
	return l->local + (size_t)CAPSULES * CAPSULE_SIZE + index * 64u;
}

static void post_receive(struct link *l, uint32_t index)
{
	struct ibv_sge sge = {.addr = (uintptr_t)response_at(l, index), .length = 64, .lkey = memory.local->lkey};
	struct ibv_recv_wr *bad, wr = {.wr_id = RECV_ID | index, .sg_list = &sge, .num_sge = 1};

	ibv_post_recv(l->id->qp, &wr, &bad); /* fails when the link has ended, which is seen otherwise */
}

struct cm_request cm_request(uint16_t qid, uint16_t entries)
{
	struct cm_request r = {
		.len = 32, .initiator_depth = 8, .responder_resources = 8, .receives = entries + 4u, .repost = true};

	put16(r.data + 2, qid);
	put16(r.data + 4, entries);
	put16(r.data + 6, (uint16_t)(entries - 1));
	put16(r.data + 8, qid == 0 ? 0xffff : 0);
	return r;
}

/* ---- Events ---- */

static void end(struct link *l, const char *why)
{
	if (!l->ended) {
		l->ended = true;
		l->why = why;
	}
}

static void cm_event(struct link *l, const struct rdma_cm_event *e)
{
	switch (e->event) {
	case RDMA_CM_EVENT_ESTABLISHED:
		l->up = true;
		break;
	case RDMA_CM_EVENT_REJECTED:
		l->reject = e->param.conn.private_data_len >= 4 ? get16((const uint8_t *)e->param.conn.private_data + 2)
								: 0;
		end(l, "rejected");
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	default:
		end(l, rdma_event_str(e->event));
		break;
	}
}

static bool take_cm_events(struct link *l)
{
	struct rdma_cm_event *e;
	bool any = false;

	while (rdma_get_cm_event(l->channel, &e) == 0) {
		cm_event(l, e);
		rdma_ack_cm_event(e);
		any = true;
	}
	return any;
}

static void completion(struct link *l, const struct ibv_wc *wc)
{
	if (wc->status != IBV_WC_SUCCESS) {
		l->send_failed += (wc->wr_id & RECV_ID) == 0;
		end(l, ibv_wc_status_str(wc->status));
	} else if ((wc->wr_id & (RECV_ID)) == 0) {
		l->send_done++;
	} else {
		uint32_t index = (uint32_t)wc->wr_id;

		l->bad_response |= wc->byte_len != CQE_SIZE;
		if (l->inbox_len < sizeof(l->inbox) / sizeof(l->inbox[0])) {
			memcpy(l->inbox[l->inbox_len++], response_at(l, index), CQE_SIZE);
		} else {
			l->bad_response = true; /* more than we can have asked for */
		}
		if (l->repost) {
			post_receive(l, index);
		}
	}
}

static bool take_completions(struct link *l)
{
	struct ibv_wc wc[32];
	bool any = false;
	int n;

	while (l->cq != NULL && (n = ibv_poll_cq(l->cq, 32, wc)) > 0) {
		for (int i = 0; i < n; i++) {
			completion(l, &wc[i]);
		}
		any = true;
	}
	return any;
}

static void take_notice(struct link *l)
{
	struct ibv_cq *cq;
	void *context;

	while (ibv_get_cq_event(l->comp, &cq, &context) == 0) {
		ibv_ack_cq_events(cq, 1);
	}
}

bool link_progress(struct link *l, int wait_ms)
{
	struct pollfd fds[2] = {{.fd = l->channel->fd, .events = POLLIN}, {.events = POLLIN}};

	for (int i = 0; i < (wait_ms ? SPIN : 1); i++) {
		if (take_completions(l)) {
			return true;
		}
	}
	if (take_cm_events(l) || wait_ms == 0) {
		return true;
	}
	if (l->cq != NULL) {
		fds[1].fd = l->comp->fd;
		take_notice(l);
		ibv_req_notify_cq(l->cq, 0);
		if (take_completions(l)) {
			return true;
		}
	}
	if (poll(fds, l->cq != NULL ? 2 : 1, wait_ms) <= 0) {
		return false;
	}
	bool any = take_completions(l);
	return take_cm_events(l) || any;
}

bool link_wait(struct link *l, uint32_t n)
{
	int64_t until = link_now_ms() + link_deadline_ms;

	while (l->inbox_len < n && !l->ended) {
		link_progress(l, 1000);
		if (link_now_ms() > until) {
			return false;
		}
	}
	return true;
}

bool link_wait_end(struct link *l)
{
	int64_t until = link_now_ms() + link_deadline_ms;

	while (!l->ended) {
		link_progress(l, 1000);
		if (link_now_ms() > until) {
			return false;
		}
	}
	return true;
}

/* ---- Making and ending ---- */

static bool wait_event(struct link *l, enum rdma_cm_event_type what)
{
	int64_t until = link_now_ms() + link_deadline_ms;
	struct pollfd fd = {.fd = l->channel->fd, .events = POLLIN};
	struct rdma_cm_event *e;

	while (link_now_ms() < until) {
		if (rdma_get_cm_event(l->channel, &e) == 0) {
			bool right = e->event == what;
			if (!right) {
				cm_event(l, e);
			}
			rdma_ack_cm_event(e);
			return right;
		}
		poll(&fd, 1, 1000);
	}
	return false;
}

static int resolve(struct link *l, const struct address *at)
{
	struct addrinfo *a, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};

	l->channel = rdma_create_event_channel();
	if (l->channel == NULL || fcntl(l->channel->fd, F_SETFL, O_NONBLOCK) != 0 ||
	    rdma_create_id(l->channel, &l->id, l, RDMA_PS_TCP) != 0) {
		return -errno;
	}
	if (getaddrinfo(at->ip, at->port, &hints, &a) != 0) {
		return -EINVAL;
	}
	int rc = rdma_resolve_addr(l->id, NULL, a->ai_addr, 5000) == 0 && wait_event(l, RDMA_CM_EVENT_ADDR_RESOLVED) &&
				 rdma_resolve_route(l->id, 5000) == 0 && wait_event(l, RDMA_CM_EVENT_ROUTE_RESOLVED)
			 ? 0
			 : -EHOSTUNREACH;
	freeaddrinfo(a);
	return rc;
}

static int make_queues(struct link *l, const struct cm_request *req)
{
	struct ibv_qp_init_attr init = {
		.cap = {.max_send_wr = CAPSULES, .max_recv_wr = CAPSULES, .max_send_sge = 2, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};

	if (memory.pd == NULL && make_memory(l->id->verbs) != 0) {
		return -ENOMEM;
	}
	l->remote = remote_base + (size_t)(l - links) * REMOTE_SIZE;
	l->local = local_base + (size_t)(l - links) * LOCAL_SIZE;
	l->comp = ibv_create_comp_channel(l->id->verbs);
	if (l->comp == NULL || fcntl(l->comp->fd, F_SETFL, O_NONBLOCK) != 0) {
		return -errno;
	}
	l->cq = ibv_create_cq(l->id->verbs, 2 * CAPSULES, NULL, l->comp, 0);
	init.send_cq = init.recv_cq = l->cq;
	if (l->cq == NULL || rdma_create_qp(l->id, memory.pd, &init) != 0) {
		return -errno;
	}
	l->receives = req->receives < CAPSULES ? req->receives : CAPSULES;
	l->repost = req->repost;
	for (uint32_t i = 0; i < l->receives; i++) {
		post_receive(l, i);
	}
	return 0;
}

static struct link *unused(void)
{
	for (int i = 0; i < LINKS; i++) {
		if (!links[i].used) {
			links[i] = (struct link){.used = true, .reject = -1};
			return &links[i];
		}
	}
	return NULL;
}

int link_begin(struct link **out, const struct address *at, const struct cm_request *req)
{
	struct link *l = *out = unused();
	struct rdma_conn_param param = {
		.private_data = req->data,
		.private_data_len = req->len,
		.initiator_depth = req->initiator_depth,
		.responder_resources = req->responder_resources,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};
	int rc = l == NULL ? -EMFILE : resolve(l, at);

	if (rc == 0) {
		rc = make_queues(l, req);
	}
	if (rc == 0 && rdma_connect(l->id, &param) != 0) {
		rc = -errno;
	}
	if (rc != 0) {
		fprintf(stderr, "no connection to %s port %s: %s\n", at->ip, at->port, strerror(-rc));
		if (l != NULL) {
			link_close(l, true);
		}
		*out = NULL;
	}
	return rc;
}

bool link_await(struct link *l)
{
	int64_t until = link_now_ms() + link_deadline_ms;

	while (!l->up && !l->ended) {
		link_progress(l, 1000);
		if (link_now_ms() > until) {
			fprintf(stderr, "a connection request was not answered within %d ms\n", link_deadline_ms);
			return false;
		}
	}
	return true;
}

int link_open(struct link **l, const struct address *at, const struct cm_request *req)
{
	int rc = link_begin(l, at, req);

	if (rc == 0 && !link_await(*l)) {
		link_close(*l, true);
		*l = NULL;
		rc = -ETIMEDOUT;
	}
	return rc;
}

void link_close(struct link *l, bool unannounced)
{
	if (l == NULL) {
		return;
	}
	if (l->id != NULL && l->id->qp != NULL) {
		if (!unannounced && l->up) {
			rdma_disconnect(l->id); /* an error says that it has ended */
		}
		rdma_destroy_qp(l->id);
	}
	if (l->remote != NULL) {
		memset(l->remote, CANARY, REMOTE_SIZE); /* without a queue pair nobody writes to it */
	}
	if (l->cq != NULL) {
		take_notice(l);
		ibv_destroy_cq(l->cq);
	}
	if (l->comp != NULL) {
		ibv_destroy_comp_channel(l->comp);
	}
	if (l->channel != NULL) {
		take_cm_events(l);
	}
	if (l->id != NULL) {
		rdma_destroy_id(l->id);
	}
	if (l->channel != NULL) {
		rdma_destroy_event_channel(l->channel);
	}
	l->used = false;
}

/* ---- Sending ---- */

bool link_post(struct link *l, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	if (ibv_post_send(l->id->qp, wr, &bad) != 0) {
		return false;
	}
	l->sent++;
	return true;
}

bool link_send(struct link *l, unsigned place, const void *bytes, uint32_t len)
{
	uint8_t *to = l->local + (size_t)(place % CAPSULES) * CAPSULE_SIZE;
	struct ibv_sge sge = {.addr = (uintptr_t)to, .length = len, .lkey = memory.local->lkey};
	struct ibv_send_wr wr = {.wr_id = place, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};

	memcpy(to, bytes, len);
	return link_post(l, &wr);
}

bool link_command(struct link *l, const void *sqe, uint32_t len, uint8_t cqe[CQE_SIZE])
{
	uint32_t before = l->inbox_len;

	if (!link_send(l, 0, sqe, len) || !link_wait(l, before + 1) || l->inbox_len != before + 1) {
		return false;
	}
	memcpy(cqe, l->inbox[before], CQE_SIZE);
	l->inbox_len = before;
	return get16(cqe + 12) == get16((const uint8_t *)sqe + AT_CID);
}

/* ---- Sessions ---- */

void fill_connect(uint8_t *sqe, uint8_t *data, const struct address *at, uint16_t cid, uint16_t qid, uint16_t sqsize,
		  uint16_t cntlid)
{
	memset(sqe, 0, SQE_SIZE);
	memset(data, 0, CONNECT_DATA);
	sqe[AT_OPCODE] = FABRICS;
	sqe[AT_FLAGS] = FLAG_SGL;
	put16(sqe + AT_CID, cid);
	sqe[AT_FCTYPE] = FC_CONNECT;
	put_keyed(sqe + AT_SGL, (uintptr_t)data, CONNECT_DATA, memory.remote->rkey, SUB_ADDRESS);
	put16(sqe + AT_QID, qid);
	put16(sqe + AT_SQSIZE, (uint16_t)(sqsize - 1));
	memcpy(data + DATA_HOSTID, at->hostid, sizeof(at->hostid));
	put16(data + DATA_CNTLID, cntlid);
	strcpy((char *)data + DATA_SUBNQN, at->subnqn);
	strcpy((char *)data + DATA_HOSTNQN, at->hostnqn);
}

bool link_queue(struct link **l, const struct address *at, uint16_t qid, uint16_t entries, uint32_t kato_ms,
		uint16_t *cntlid)
{
	struct cm_request req = cm_request(qid, entries);
	uint8_t sqe[SQE_SIZE], cqe[CQE_SIZE];

	if (link_open(l, at, &req) != 0 || (*l)->ended) {
		return false;
	}
	fill_connect(sqe, link_slot(*l, 0), at, 1, qid, entries, *cntlid);
	put32(sqe + AT_KATO, kato_ms);
	bool ok = link_command(*l, sqe, SQE_SIZE, cqe) && get16(cqe + 14) >> 1 == ST_OK;
	memset(link_slot(*l, 0), CANARY, SLOT_SIZE);
	if (ok && qid == 0) {
		*cntlid = get16(cqe);
	}
	return ok;
}

bool link_enable(struct link *admin, uint8_t cqe[CQE_SIZE])
{
	uint8_t sqe[SQE_SIZE] = {[AT_OPCODE] = FABRICS, [AT_FLAGS] = FLAG_SGL, [AT_FCTYPE] = FC_PROPERTY_SET};

	put32(sqe + AT_OFST, REG_CC);
	put64(sqe + AT_VALUE, CC_ENABLE);
	return link_command(admin, sqe, SQE_SIZE, cqe);
}

static bool enable(struct link *admin)
{
	uint8_t cqe[CQE_SIZE];

	return link_enable(admin, cqe) && get16(cqe + 14) >> 1 == ST_OK;
}

bool session_open(struct session *s, const struct address *at, bool with_io)
{
	*s = (struct session){.cntlid = 0xffff};
	if (!link_queue(&s->admin, at, 0, ADMIN_ENTRIES, 0, &s->cntlid) || !enable(s->admin) ||
	    (with_io && !link_queue(&s->io, at, 1, IO_ENTRIES, 0, &s->cntlid))) {
		session_close(s, false);
		return false;
	}
	return true;
}

void session_close(struct session *s, bool unannounced)
{
	link_close(s->io, unannounced);
	link_close(s->admin, unannounced);
	s->io = s->admin = NULL;
}

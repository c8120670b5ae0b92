/* SPDX-License-Identifier: BSD-3-Clause */
#include "unittest/nvmf_rdma/fake_verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define QUEUE          16384 /* entries of each ring below; a power of two */
#define ASYNC_QUEUE    256
#define FAKE_TAKEN_MAX 64

struct fake_cq {
	struct ibv_cq ibv;
	struct ibv_wc ring[QUEUE];
	uint32_t head, tail;
	bool armed;
	_Atomic bool qp_failed; /* a queue pair of it went into the error state */
};

/* Posted receives, of a queue pair or shared. */
struct fake_rq {
	struct {
		uint64_t wr_id;
		struct ibv_sge sge[2];
		int num_sge;
	} ring[QUEUE];
	uint32_t head, tail;
};

struct fake_srq {
	struct ibv_srq ibv;
	struct fake_rq rq;
};

struct fake_qp {
	struct ibv_qp ibv;
	struct fake_cq *cq;
	struct fake_rq *rq, own;
	struct fake_conn *conn;
	_Atomic bool error;
	uint64_t taken[FAKE_TAKEN_MAX]; /* shared receives that it has taken in advance */
	unsigned num_taken;
	_Atomic bool gives_back; /* what it has taken is flushed at the next poll */
	struct fake_qp *next;
};

struct fake_event {
	struct rdma_cm_event cm;
	struct nvmf_rdma_cm_req data;
	struct fake_event *next;
};

struct fake_stats fake_stats;
unsigned fake_take_receives;
enum fake_last_wqe fake_last_wqe;
bool fake_has_srq = true;
int fake_fail_post_send;
unsigned fake_fail_behind;
bool fake_refuses_memory;
const void *fake_refuses_at;
bool fake_iwarp;

/* A device as long as it is there; when it is removed and comes back it is another. */
struct fake_device {
	struct ibv_context context; /* first */
	struct ibv_device ibv;
	_Atomic bool withholds, removed;
	struct ibv_async_event async[ASYNC_QUEUE]; /* under lock */
	unsigned async_head, async_tail, async_acked;
};

struct fake_live fake_live;
bool fake_delay_reads;
unsigned fake_delayed_reads;
int fake_max_qp_wr = 8192;
static struct {
	struct fake_qp *qp;
	struct ibv_wc wc;
} delayed[64]; /* the first fake_delayed_reads; of the group's thread, or while it waits */
static struct fake_device *devices[FAKE_DEVICES];
static struct rdma_cm_id *ids[256]; /* those there are */
static struct fake_qp *qps;         /* the same */

/* Of a transport; the devices are shared by all. */
struct fake_channel {
	struct rdma_event_channel ibv; /* first */
	struct fake_event *events, **events_end;
};
static unsigned channels;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the events, and of qps */
static unsigned events_waiting;
static uint32_t next_qp_num = 1;

/* Completions. */

static struct fake_device *device_of(struct ibv_context *c)
{
	return (struct fake_device *)c;
}

static bool withholds(struct ibv_context *c)
{
	return atomic_load_explicit(&device_of(c)->withholds, memory_order_relaxed);
}

static void complete(struct fake_cq *cq, const struct ibv_wc *wc)
{
	if (withholds(cq->ibv.context)) {
		return;
	}
	cq->ring[cq->tail++ % QUEUE] = *wc;
	if (cq->armed) {
		cq->armed = false;
		eventfd_write(cq->ibv.channel->fd, 1);
	}
}

static void flush_receives(struct fake_qp *qp);

/* The event follows the last completion. */
static void give_back_taken(struct fake_qp *qp)
{
	for (unsigned i = 0; i < qp->num_taken; i++) {
		struct ibv_wc wc = {.wr_id = qp->taken[i], .status = IBV_WC_WR_FLUSH_ERR, .qp_num = qp->ibv.qp_num};
		complete(qp->cq, &wc);
	}
	qp->num_taken = 0;
}

/* Completes those of one queue pair, or of all that there are (NULL). */
static void finish_reads(const struct fake_qp *only)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < fake_delayed_reads; i++) {
		if (only != NULL && delayed[i].qp != only) {
			delayed[kept++] = delayed[i];
			continue;
		}
		delayed[i].wc.status = delayed[i].qp->error ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS;
		complete(delayed[i].qp->cq, &delayed[i].wc);
	}
	fake_delayed_reads = kept;
}

void fake_finish_reads(void)
{
	finish_reads(NULL);
}

/* On the thread that polls, so that the ring is its alone. */
static void flush_failed(struct fake_cq *cq)
{
	pthread_mutex_lock(&lock);
	for (struct fake_qp *qp = qps; qp != NULL; qp = qp->next) {
		if (qp->cq == cq && qp->error) {
			flush_receives(qp);
			finish_reads(qp);
		}
		if (qp->cq == cq && atomic_exchange(&qp->gives_back, false)) {
			give_back_taken(qp);
		}
	}
	pthread_mutex_unlock(&lock);
}

static int poll_cq(struct ibv_cq *ibv, int n, struct ibv_wc *wc)
{
	struct fake_cq *cq = (struct fake_cq *)ibv;
	int i = 0;

	fake_stats.poll_calls++;
	if (__builtin_expect(atomic_load_explicit(&cq->qp_failed, memory_order_relaxed), 0) &&
	    atomic_exchange(&cq->qp_failed, false)) {
		flush_failed(cq);
	}
	for (; i < n && cq->head != cq->tail; i++) {
		wc[i] = cq->ring[cq->head++ % QUEUE];
	}
	return i;
}

static int req_notify_cq(struct ibv_cq *ibv, int solicited)
{
	((struct fake_cq *)ibv)->armed = true;
	return 0;
}

/* Receives. */

static void put_receive(struct fake_rq *rq, const struct ibv_recv_wr *wr)
{
	uint32_t at = rq->tail++ % QUEUE;

	rq->ring[at].wr_id = wr->wr_id;
	rq->ring[at].num_sge = wr->num_sge;
	memcpy(rq->ring[at].sge, wr->sg_list, (size_t)wr->num_sge * sizeof(struct ibv_sge));
}

static void flush_receives(struct fake_qp *qp)
{
	while (qp->rq == &qp->own && qp->own.head != qp->own.tail) {
		struct ibv_wc wc = {.wr_id = qp->own.ring[qp->own.head++ % QUEUE].wr_id,
				    .status = IBV_WC_WR_FLUSH_ERR,
				    .qp_num = qp->ibv.qp_num};
		complete(qp->cq, &wc);
	}
}

static int post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct fake_qp *qp = (struct fake_qp *)ibv;

	for (; wr != NULL; wr = wr->next) {
		put_receive(qp->rq, wr);
	}
	if (qp->error) {
		flush_receives(qp);
	}
	return 0;
}

static int post_srq_recv(struct ibv_srq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	for (; wr != NULL; wr = wr->next) {
		put_receive(&((struct fake_srq *)ibv)->rq, wr);
	}
	return 0;
}

uint32_t fake_posted(const struct fake_conn *conn)
{
	return __atomic_load_n(&conn->qp->rq->tail, __ATOMIC_ACQUIRE) -
	       __atomic_load_n(&conn->qp->rq->head, __ATOMIC_ACQUIRE);
}

bool fake_send(struct fake_conn *conn, const struct nvme_sqe *sqe, const void *data, uint32_t data_len)
{
	struct fake_rq *rq = conn->qp->rq;

	if (rq->head == rq->tail || withholds(conn->qp->ibv.context)) {
		return false;
	}
	uint32_t at = rq->head++ % QUEUE;
	memcpy((void *)(uintptr_t)rq->ring[at].sge[0].addr, sqe, sizeof(*sqe));
	if (data_len != 0) {
		memcpy((void *)(uintptr_t)rq->ring[at].sge[1].addr, data, data_len);
	}
	struct ibv_wc wc = {.wr_id = rq->ring[at].wr_id,
			    .status = IBV_WC_SUCCESS,
			    .opcode = IBV_WC_RECV,
			    .byte_len = (uint32_t)sizeof(*sqe) + data_len,
			    .qp_num = conn->qp->ibv.qp_num};
	complete(conn->qp->cq, &wc);
	return true;
}

/* Sends: a response goes to the host at once, and its completion into the queue before what the host answers. */
static void do_send(struct fake_qp *qp, const struct ibv_send_wr *wr)
{
	struct ibv_wc wc = {.wr_id = wr->wr_id,
			    .status = qp->error ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS,
			    .opcode = wr->opcode == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ : IBV_WC_SEND,
			    .qp_num = qp->ibv.qp_num};

	if (!qp->error && (wr->opcode == IBV_WR_RDMA_WRITE || wr->opcode == IBV_WR_RDMA_READ) &&
	    wr->wr.rdma.rkey != FAKE_RKEY) {
		struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

		wc.status = IBV_WC_REM_ACCESS_ERR;
		ibv_modify_qp(&qp->ibv, &attr, IBV_QP_STATE);
	}
	if (fake_delay_reads && wr->opcode == IBV_WR_RDMA_READ && !qp->error) {
		delayed[fake_delayed_reads].qp = qp;
		delayed[fake_delayed_reads++].wc = wc;
		return;
	}
	if (wr->send_flags & IBV_SEND_SIGNALED || qp->error) {
		complete(qp->cq, &wc);
	}
	if (qp->error || withholds(qp->ibv.context)) {
		return;
	}
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
		fake_stats.writes++;
		break;
	case IBV_WR_RDMA_READ:
		fake_stats.reads++;
		break;
	default:
		fake_stats.sends++;
		if (wr->num_sge == 1 && wr->sg_list[0].length <= 32 &&
		    qp->ibv.context->device->transport_type == IBV_TRANSPORT_IWARP) {
			fake_stats.short_sends++;
		}
		if (qp->conn->on_response != NULL) {
			qp->conn->on_response(qp->conn, (const struct nvme_cqe *)(uintptr_t)wr->sg_list[0].addr);
		}
		break;
	}
}

static int post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	fake_stats.post_send_calls++;
	if (fake_fail_post_send != 0) {
		int rc = fake_fail_post_send;
		fake_fail_post_send = 0;
		for (; fake_fail_behind != 0; fake_fail_behind--, wr = wr->next) {
			do_send((struct fake_qp *)ibv, wr);
		}
		*bad = wr;
		return rc;
	}
	for (; wr != NULL; wr = wr->next) {
		do_send((struct fake_qp *)ibv, wr);
	}
	return 0;
}

/* The verbs that are functions. */

static struct fake_device *make_device(unsigned number)
{
	struct fake_device *d = calloc(1, sizeof(*d));

	snprintf(d->ibv.name, sizeof(d->ibv.name), "fake%u", number);
	d->ibv.transport_type = fake_iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
	d->context.device = &d->ibv;
	d->context.async_fd = eventfd(0, EFD_NONBLOCK);
	d->context.ops = (struct ibv_context_ops){.poll_cq = poll_cq,
						  .req_notify_cq = req_notify_cq,
						  .post_send = post_send,
						  .post_recv = post_recv,
						  .post_srq_recv = post_srq_recv};
	return d;
}

static void free_device(struct fake_device *d)
{
	close(d->context.async_fd);
	free(d);
}

const char *ibv_get_device_name(struct ibv_device *d)
{
	return d->name;
}

int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *attr)
{
	*attr = (struct ibv_device_attr){.max_qp_wr = fake_max_qp_wr,
					 .max_sge = 16,
					 .max_cqe = QUEUE,
					 .max_srq = fake_has_srq ? 16 : 0,
					 .max_srq_wr = QUEUE / 2,
					 .max_qp_rd_atom = 16,
					 .max_qp_init_rd_atom = 16};
	return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
	struct ibv_pd *pd = calloc(1, sizeof(*pd));

	pd->context = c;
	atomic_fetch_add(&fake_live.pds, 1);
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *p)
{
	atomic_fetch_sub(&fake_live.pds, 1);
	free(p);
	return 0;
}

static struct {
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool on;
} hold = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};
atomic_uint fake_held, fake_held_there;
static pthread_t maker; /* of the event channel */

void fake_hold_memory(bool on)
{
	pthread_mutex_lock(&hold.lock);
	hold.on = on;
	pthread_cond_broadcast(&hold.ended);
	pthread_mutex_unlock(&hold.lock);
}

static void wait_while_held(void)
{
	pthread_mutex_lock(&hold.lock);
	if (hold.on && pthread_equal(pthread_self(), maker)) {
		atomic_fetch_add(&fake_held_there, 1);
	} else if (hold.on) {
		atomic_fetch_add(&fake_held, 1);
		while (hold.on) {
			pthread_cond_wait(&hold.ended, &hold.lock);
		}
		atomic_fetch_sub(&fake_held, 1);
	}
	pthread_mutex_unlock(&hold.lock);
}

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *p, void *addr, size_t length, int access)
{
	wait_while_held();
	const uint8_t *at = fake_refuses_at, *start = addr;

	if (fake_refuses_memory || (at != NULL && at >= start && at < start + length)) {
		errno = ENOMEM;
		return NULL;
	}
	struct ibv_mr *mr = calloc(1, sizeof(*mr));

	atomic_fetch_add(&fake_live.mrs, 1);
	if ((access & ~IBV_ACCESS_LOCAL_WRITE) != 0) {
		atomic_fetch_add(&fake_live.open_mrs, 1);
	}
	*mr = (struct ibv_mr){.context = p->context, .pd = p, .addr = addr, .length = length, .lkey = 1, .rkey = 1};
	return mr;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *p, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	return ibv_reg_mr(p, addr, length, (int)access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	atomic_fetch_sub(&fake_live.mrs, 1);
	free(mr);
	return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *c)
{
	struct ibv_comp_channel *comp = calloc(1, sizeof(*comp));

	comp->context = c;
	comp->fd = eventfd(0, EFD_NONBLOCK);
	return comp;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *comp)
{
	close(comp->fd);
	free(comp);
	return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *c, int cqe, void *cq_context, struct ibv_comp_channel *comp,
			     int vector)
{
	struct fake_cq *cq = calloc(1, sizeof(*cq));

	cq->ibv.context = c;
	cq->ibv.channel = comp;
	cq->ibv.cq_context = cq_context;
	cq->ibv.cqe = cqe;
	atomic_fetch_add(&fake_live.cqs, 1);
	return &cq->ibv;
}

int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	cq->cqe = cqe; /* its ring is as large as all of them */
	return 0;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	atomic_fetch_sub(&fake_live.cqs, 1);
	free(cq);
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *comp, struct ibv_cq **cq, void **cq_context)
{
	eventfd_t n;

	if (eventfd_read(comp->fd, &n) != 0) {
		return -1;
	}
	*cq = NULL;
	*cq_context = NULL;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *p, struct ibv_srq_init_attr *attr)
{
	struct fake_srq *srq = calloc(1, sizeof(*srq));

	srq->ibv.context = p->context;
	srq->ibv.srq_context = attr->srq_context;
	atomic_fetch_add(&fake_live.srqs, 1);
	return &srq->ibv;
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	atomic_fetch_sub(&fake_live.srqs, 1);
	free(srq);
	return 0;
}

static void async_event(struct ibv_context *c, struct ibv_async_event event);

static void wake_poller(struct fake_qp *qp)
{
	atomic_store(&qp->cq->qp_failed, true);
	if (qp->cq->ibv.channel != NULL) {
		eventfd_write(qp->cq->ibv.channel->fd, 1);
	}
}

/* The shared receives that it has taken complete at the next poll, and the device says so. */
static void finish_error(struct fake_qp *qp)
{
	atomic_store(&qp->gives_back, true);
	wake_poller(qp);
	async_event(qp->ibv.context,
		    (struct ibv_async_event){.event_type = IBV_EVENT_QP_LAST_WQE_REACHED, .element.qp = &qp->ibv});
}

void fake_finish_errors(void)
{
	pthread_mutex_lock(&lock);
	struct fake_qp *first = qps;
	pthread_mutex_unlock(&lock);
	for (struct fake_qp *qp = first; qp != NULL; qp = qp->next) { /* the list changes on this thread only */
		if (qp->rq != &qp->own && qp->error) {
			finish_error(qp);
		}
	}
}

unsigned fake_taken(unsigned device)
{
	unsigned n = 0;

	pthread_mutex_lock(&lock);
	for (struct fake_qp *qp = qps; qp != NULL; qp = qp->next) {
		n += qp->ibv.context == &devices[device]->context ? qp->num_taken : 0;
	}
	pthread_mutex_unlock(&lock);
	return n;
}

int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
	struct fake_qp *qp = (struct fake_qp *)ibv;

	if ((mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_ERR && !qp->error) {
		qp->error = true;
		wake_poller(qp);
		if (qp->rq != &qp->own && fake_last_wqe == FAKE_LAST_WQE_AT_ONCE) {
			finish_error(qp);
		}
	}
	return 0;
}

int ibv_get_async_event(struct ibv_context *c, struct ibv_async_event *event)
{
	struct fake_device *d = device_of(c);
	eventfd_t n;

	if (d->async_head == d->async_tail) {
		eventfd_read(c->async_fd, &n);
		errno = atomic_load(&d->removed) ? EIO : EAGAIN;
		return -1;
	}
	pthread_mutex_lock(&lock);
	*event = d->async[d->async_head++ % ASYNC_QUEUE];
	pthread_mutex_unlock(&lock);
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	fake_stats.async_acked++;
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	return status == IBV_WC_REM_ACCESS_ERR ? "no such key" : "a fake status";
}

const char *ibv_event_type_str(enum ibv_event_type event)
{
	return "a fake event";
}

/* The connection manager. */

struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct fake_channel *c = calloc(1, sizeof(*c));

	for (unsigned i = 0; channels == 0 && i < FAKE_DEVICES; i++) {
		devices[i] = make_device(i);
	}
	channels++;
	c->ibv.fd = eventfd(0, EFD_NONBLOCK);
	c->events_end = &c->events;
	maker = pthread_self();
	return &c->ibv;
}

void rdma_destroy_event_channel(struct rdma_event_channel *c)
{
	close(c->fd);
	free(c);
	channels--;
	for (unsigned i = 0; channels == 0 && i < FAKE_DEVICES; i++) {
		free_device(devices[i]);
	}
}

int rdma_create_id(struct rdma_event_channel *c, struct rdma_cm_id **id, void *ctx, enum rdma_port_space ps)
{
	*id = calloc(1, sizeof(**id));
	(*id)->channel = c;
	(*id)->context = ctx;
	for (unsigned i = 0; i < 256; i++) {
		if (ids[i] == NULL) {
			ids[i] = *id;
			atomic_fetch_add(&fake_live.ids, 1);
			return 0;
		}
	}
	return 0; /* more than are tracked: a benchmark's */
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	for (unsigned i = 0; i < 256; i++) {
		if (ids[i] == id) {
			ids[i] = NULL;
			atomic_fetch_sub(&fake_live.ids, 1);
		}
	}
	free(id);
	return 0;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	uint32_t number = ntohl(((struct sockaddr_in *)addr)->sin_addr.s_addr) - INADDR_LOOPBACK;

	id->route.addr.src_sin = *(struct sockaddr_in *)addr;
	if (id->route.addr.src_sin.sin_addr.s_addr == INADDR_ANY) {
		return 0; /* of no device */
	}
	if (number >= FAKE_DEVICES || atomic_load(&devices[number]->removed)) {
		errno = ENODEV;
		return -1;
	}
	id->verbs = &devices[number]->context;
	return 0;
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	return 0;
}

static void push_event(struct fake_event *e)
{
	struct fake_channel *c = (struct fake_channel *)e->cm.id->channel;

	pthread_mutex_lock(&lock);
	*c->events_end = e;
	c->events_end = &e->next;
	events_waiting++;
	pthread_mutex_unlock(&lock);
	eventfd_write(c->ibv.fd, 1);
}

int rdma_get_cm_event(struct rdma_event_channel *ibv, struct rdma_cm_event **event)
{
	struct fake_channel *c = (struct fake_channel *)ibv;
	eventfd_t n;

	pthread_mutex_lock(&lock);
	struct fake_event *e = c->events;
	if (e != NULL) {
		c->events = e->next;
		c->events_end = c->events ? c->events_end : &c->events;
		events_waiting--;
	} else {
		eventfd_read(ibv->fd, &n);
	}
	pthread_mutex_unlock(&lock);
	*event = e ? &e->cm : NULL;
	errno = EAGAIN;
	return e ? 0 : -1;
}

unsigned fake_events_waiting(void)
{
	pthread_mutex_lock(&lock);
	unsigned n = events_waiting;
	pthread_mutex_unlock(&lock);
	return n;
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	free(event); /* the first member of a struct fake_event */
	return 0;
}

const char *rdma_event_str(enum rdma_cm_event_type event)
{
	return "a fake event";
}

static struct fake_conn *conn_of(struct rdma_cm_id *id)
{
	/* the target owns id->context; ours is where the id's own addresses are not used */
	return (struct fake_conn *)id->recv_cq_channel;
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *p, struct ibv_qp_init_attr *init)
{
	struct fake_qp *qp = calloc(1, sizeof(*qp));

	qp->ibv.context = p->context;
	qp->ibv.qp_num = next_qp_num++;
	qp->ibv.qp_context = init->qp_context;
	qp->cq = (struct fake_cq *)init->send_cq;
	qp->rq = init->srq ? &((struct fake_srq *)init->srq)->rq : &qp->own;
	qp->conn = conn_of(id);
	qp->conn->qp = qp;
	id->qp = &qp->ibv;
	atomic_fetch_add(&fake_live.qps, 1);
	pthread_mutex_lock(&lock);
	qp->next = qps;
	qps = qp;
	pthread_mutex_unlock(&lock);
	return 0;
}

static void forget_events(const struct ibv_qp *qp);

void rdma_destroy_qp(struct rdma_cm_id *id)
{
	struct fake_qp **link = &qps;

	pthread_mutex_lock(&lock);
	while (&(*link)->ibv != id->qp) {
		link = &(*link)->next;
	}
	fake_stats.lost_receives += (*link)->num_taken;
	*link = (*link)->next;
	forget_events(id->qp);
	pthread_mutex_unlock(&lock);
	atomic_fetch_sub(&fake_live.qps, 1);
	free(id->qp);
	id->qp = NULL;
}

/* On the control thread; a test that lets queue pairs do so lets its hosts send nothing meanwhile. */
static void take_in_advance(struct fake_qp *qp)
{
	while (qp->rq != &qp->own && qp->num_taken < fake_take_receives && qp->rq->head != qp->rq->tail) {
		qp->taken[qp->num_taken++] = qp->rq->ring[qp->rq->head++ % QUEUE].wr_id;
	}
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	if (conn_of(id)->vanishes) {
		errno = EINVAL;
		return -1;
	}
	take_in_advance((struct fake_qp *)id->qp);
	__atomic_store_n(&conn_of(id)->accepted, true, __ATOMIC_RELEASE);
	return 0;
}

int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t len)
{
	__atomic_store_n(&conn_of(id)->rejected, true, __ATOMIC_RELEASE);
	return 0;
}

int rdma_disconnect(struct rdma_cm_id *id)
{
	if (id->verbs->device->transport_type == IBV_TRANSPORT_IWARP && !((struct fake_qp *)id->qp)->error) {
		fake_stats.early_ends++;
	}
	__atomic_store_n(&conn_of(id)->disconnected, true, __ATOMIC_RELEASE);
	return 0;
}

/* The host. */

static struct rdma_cm_id *find_listener(const struct fake_conn *conn)
{
	for (unsigned i = 0; i < 256; i++) {
		if (ids[i] != NULL && conn_of(ids[i]) == NULL &&
		    ids[i]->route.addr.src_sin.sin_port == htons(conn->port ? conn->port : 4420) &&
		    (ids[i]->verbs == NULL || ids[i]->verbs == &devices[conn->device]->context)) {
			return ids[i];
		}
	}
	return NULL;
}

void fake_connect(struct fake_conn *conn, uint16_t qid, uint16_t entries)
{
	struct fake_event *e = calloc(1, sizeof(*e));
	struct sockaddr_in *sin;

	conn->accepted = conn->rejected = conn->disconnected = false;
	conn->qp = NULL;
	struct rdma_cm_id *listener = find_listener(conn);
	rdma_create_id(listener->channel, &conn->id, NULL, RDMA_PS_TCP);
	conn->id->verbs = &devices[conn->device]->context;
	conn->id->recv_cq_channel = (struct ibv_comp_channel *)conn;
	for (unsigned i = 0; i < 2; i++) {
		sin = i ? &conn->id->route.addr.src_sin : &conn->id->route.addr.dst_sin;
		*sin = (struct sockaddr_in){.sin_family = AF_INET,
					    .sin_port = htons(conn->port ? conn->port : 4420),
					    .sin_addr.s_addr = htonl(INADDR_LOOPBACK + conn->device)};
	}
	e->data = (struct nvmf_rdma_cm_req){.qid = htole16(qid),
					    .hrqsize = htole16(entries),
					    .hsqsize = htole16(entries - 1u),
					    .cntlid = htole16(conn->cntlid)};
	e->cm = (struct rdma_cm_event){.id = conn->id,
				       .listen_id = listener,
				       .event = RDMA_CM_EVENT_CONNECT_REQUEST,
				       .param.conn = {.private_data = &e->data,
						      .private_data_len = sizeof(e->data),
						      .responder_resources = 16,
						      .initiator_depth = 16}};
	push_event(e);
}

void fake_disconnect(struct fake_conn *conn)
{
	struct fake_event *e = calloc(1, sizeof(*e));

	e->cm = (struct rdma_cm_event){.id = conn->id, .event = RDMA_CM_EVENT_DISCONNECTED};
	push_event(e);
}

/* What happens to devices. On the control thread, which also reads the events. */

static void async_event(struct ibv_context *c, struct ibv_async_event event)
{
	struct fake_device *d = device_of(c);

	pthread_mutex_lock(&lock);
	d->async[d->async_tail++ % ASYNC_QUEUE] = event;
	pthread_mutex_unlock(&lock);
	eventfd_write(c->async_fd, 1);
}

/* A queue pair is destroyed: its events that nobody has read are not told any more. */
static void forget_events(const struct ibv_qp *qp)
{
	struct fake_device *d = device_of(qp->context);
	unsigned kept = d->async_head;

	for (unsigned i = d->async_head; i != d->async_tail; i++) {
		const struct ibv_async_event *e = &d->async[i % ASYNC_QUEUE];
		if (e->event_type != IBV_EVENT_QP_LAST_WQE_REACHED || e->element.qp != qp) {
			d->async[kept++ % ASYNC_QUEUE] = *e;
		}
	}
	d->async_tail = kept;
}

void fake_port_event(unsigned device, enum ibv_event_type type)
{
	async_event(&devices[device]->context, (struct ibv_async_event){.event_type = type, .element.port_num = 1});
}

void fake_conn_event(struct fake_conn *conn, enum ibv_event_type type)
{
	struct ibv_async_event event = {.event_type = type, .element.qp = &conn->qp->ibv};

	if (type == IBV_EVENT_CQ_ERR) {
		event.element.cq = &conn->qp->cq->ibv;
	} else if (type == IBV_EVENT_SRQ_ERR) {
		event.element.srq = (struct ibv_srq *)((char *)conn->qp->rq - offsetof(struct fake_srq, rq));
	}
	async_event(conn->qp->ibv.context, event);
}

void fake_addr_change(struct fake_conn *conn)
{
	struct fake_event *e = calloc(1, sizeof(*e));

	e->cm = (struct rdma_cm_event){.id = conn->id, .event = RDMA_CM_EVENT_ADDR_CHANGE};
	push_event(e);
}

void fake_withhold(unsigned device, bool on)
{
	atomic_store(&devices[device]->withholds, on);
}

void fake_remove(unsigned device)
{
	atomic_store(&devices[device]->removed, true);
	for (unsigned i = 0; i < 256; i++) {
		if (ids[i] != NULL && ids[i]->verbs == &devices[device]->context) {
			struct fake_event *e = calloc(1, sizeof(*e));

			e->cm = (struct rdma_cm_event){.id = ids[i], .event = RDMA_CM_EVENT_DEVICE_REMOVAL};
			push_event(e);
		}
	}
}

void fake_return(unsigned device)
{
	free_device(devices[device]); /* as librdmacm does with the last id: who still uses it is caught by valgrind */
	devices[device] = make_device(device);
}

bool fake_listens(unsigned device)
{
	for (unsigned i = 0; i < 256; i++) {
		if (ids[i] != NULL && ids[i]->verbs == &devices[device]->context && conn_of(ids[i]) == NULL) {
			return true;
		}
	}
	return false;
}

struct ibv_context *fake_context(unsigned device)
{
	return &devices[device]->context;
}

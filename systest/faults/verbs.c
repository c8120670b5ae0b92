/* SPDX-License-Identifier: BSD-3-Clause */
/* The verbs and the connection manager. What concerns a protected queue pair is left alone and not counted. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <string.h>

#include "systest/faults/faults.h"
#include "systest/faults/verbs.h"

/* Queue pairs that exist, and whether they are protected. */
#define QPS 4096
static struct ibv_qp *qps[QPS];
static _Atomic uint8_t unprotected[65536]; /* by number */
static pthread_mutex_t qps_lock = PTHREAD_MUTEX_INITIALIZER;

int __real_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);

static bool is_victim(uint32_t number)
{
	return unprotected[number % 65536] != 0;
}

static void to_error(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	__real_ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

int faults_break_qps(void)
{
	int n = 0;

	pthread_mutex_lock(&qps_lock);
	for (int i = 0; i < QPS; i++) {
		if (qps[i] != NULL && is_victim(qps[i]->qp_num)) {
			to_error(qps[i]);
			n++;
		}
	}
	pthread_mutex_unlock(&qps_lock);
	return n;
}

static void break_qp(uint32_t number)
{
	pthread_mutex_lock(&qps_lock);
	for (int i = 0; i < QPS; i++) {
		if (qps[i] != NULL && qps[i]->qp_num == number) {
			to_error(qps[i]);
		}
	}
	pthread_mutex_unlock(&qps_lock);
}

int __real_rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
int __wrap_rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
int __wrap_rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct fault_site *site;

	if (fault_gives("rdma_create_qp", __builtin_return_address(0), __builtin_frame_address(0), &site)) {
		errno = ENOMEM;
		return -1;
	}
	int rc = __real_rdma_create_qp(id, pd, attr);
	if (rc == 0) {
		fault_track(id->qp, site);
		pthread_mutex_lock(&qps_lock);
		unprotected[id->qp->qp_num % 65536] = fault_area != NULL && atomic_load(&fault_area->generation) != 0;
		for (int i = 0; i < QPS; i++) {
			if (qps[i] == NULL) {
				qps[i] = id->qp;
				break;
			}
		}
		pthread_mutex_unlock(&qps_lock);
	}
	return rc;
}

void __real_rdma_destroy_qp(struct rdma_cm_id *id);
void __wrap_rdma_destroy_qp(struct rdma_cm_id *id);
void __wrap_rdma_destroy_qp(struct rdma_cm_id *id)
{
	fault_untrack(id->qp);
	pthread_mutex_lock(&qps_lock);
	for (int i = 0; i < QPS; i++) {
		if (qps[i] == id->qp) {
			qps[i] = NULL;
		}
	}
	pthread_mutex_unlock(&qps_lock);
	__real_rdma_destroy_qp(id);
}

/* What is called through the device's table. */
static struct ibv_context_ops real;

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	if (is_victim(qp->qp_num) && FAULT_HERE("ibv_post_send", wr->opcode)) {
		*bad = wr;
		return ENOMEM;
	}
	return real.post_send(qp, wr, bad);
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	if (is_victim(qp->qp_num) && FAULT_HERE("ibv_post_recv", 0)) {
		*bad = wr;
		return ENOMEM;
	}
	return real.post_recv(qp, wr, bad);
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	if (FAULT_HERE("ibv_post_srq_recv", 0)) {
		*bad = wr;
		return ENOMEM;
	}
	return real.post_srq_recv(srq, wr, bad);
}

static int req_notify_cq(struct ibv_cq *cq, int solicited)
{
	return FAULT_HERE("ibv_req_notify_cq", 0) ? EINVAL : real.req_notify_cq(cq, solicited);
}

/* A call that fails, or a completion that becomes an error, with its queue pair in the error state as a device leaves
 * it. */
static int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *wc)
{
	if (FAULT_HERE("ibv_poll_cq", 0)) {
		return -1;
	}
	int n = real.poll_cq(cq, most, wc);
	for (int i = 0; i < n; i++) {
		if (wc[i].status == IBV_WC_SUCCESS && is_victim(wc[i].qp_num) &&
		    FAULT_HERE("completion", wc[i].opcode)) {
			break_qp(wc[i].qp_num);
			wc[i].status = IBV_WC_RETRY_EXC_ERR;
		}
	}
	return n;
}

/* Only the device's table is changed, when the first queue is made: before that nothing of it is called. */
static void take_ops(struct ibv_context *verbs)
{
	if (verbs->ops.poll_cq == poll_cq) {
		return;
	}
	real = verbs->ops;
	verbs->ops.post_send = post_send;
	verbs->ops.post_recv = post_recv;
	verbs->ops.post_srq_recv = post_srq_recv;
	verbs->ops.req_notify_cq = req_notify_cq;
	verbs->ops.poll_cq = poll_cq;
}

struct ibv_cq *__real_ibv_create_cq(struct ibv_context *verbs, int cqe, void *context, struct ibv_comp_channel *ch,
				    int vector);
struct ibv_cq *__wrap_ibv_create_cq(struct ibv_context *verbs, int cqe, void *context, struct ibv_comp_channel *ch,
				    int vector);
struct ibv_cq *__wrap_ibv_create_cq(struct ibv_context *verbs, int cqe, void *context, struct ibv_comp_channel *ch,
				    int vector)
{
	struct fault_site *site;

	take_ops(verbs);
	if (fault_gives("ibv_create_cq", __builtin_return_address(0), __builtin_frame_address(0), &site)) {
		errno = ENOMEM;
		return NULL;
	}
	struct ibv_cq *cq = __real_ibv_create_cq(verbs, cqe, context, ch, vector);
	fault_track(cq, site);
	return cq;
}

#undef ibv_reg_mr
FAULTY_GIVES(struct ibv_mr *, ibv_reg_mr, ENOMEM, (struct ibv_pd * pd, void *at, size_t n, int access),
	     (pd, at, n, access))
/* What the macro ibv_reg_mr() calls for rights that the compiler does not know. */
FAULTY_GIVES(struct ibv_mr *, ibv_reg_mr_iova2, ENOMEM,
	     (struct ibv_pd * pd, void *at, size_t n, uint64_t iova, unsigned access), (pd, at, n, iova, access))
FAULTY_GIVES(struct ibv_pd *, ibv_alloc_pd, ENOMEM, (struct ibv_context * verbs), (verbs))
FAULTY_GIVES(struct ibv_comp_channel *, ibv_create_comp_channel, EMFILE, (struct ibv_context * verbs), (verbs))
FAULTY_GIVES(struct ibv_srq *, ibv_create_srq, ENOMEM, (struct ibv_pd * pd, struct ibv_srq_init_attr *attr), (pd, attr))
FAULTY_TAKES(ibv_dereg_mr, EBUSY, struct ibv_mr *, mr)
FAULTY_TAKES(ibv_dealloc_pd, EBUSY, struct ibv_pd *, pd)
FAULTY_TAKES(ibv_destroy_comp_channel, EBUSY, struct ibv_comp_channel *, channel)
FAULTY_TAKES(ibv_destroy_srq, EBUSY, struct ibv_srq *, srq)
FAULTY_TAKES(ibv_destroy_cq, EBUSY, struct ibv_cq *, cq)
FAULTY(int, ibv_query_device, EIO, EIO, (struct ibv_context * verbs, struct ibv_device_attr *attr), (verbs, attr))
FAULTY(int, ibv_resize_cq, ENOMEM, ENOMEM, (struct ibv_cq * cq, int cqe), (cq, cqe))
FAULTY(int, ibv_modify_qp, EIO, EIO, (struct ibv_qp * qp, struct ibv_qp_attr *attr, int mask), (qp, attr, mask))
FAULTY(int, ibv_get_cq_event, -1, EAGAIN, (struct ibv_comp_channel * ch, struct ibv_cq **cq, void **context),
       (ch, cq, context))
FAULTY(int, ibv_get_async_event, -1, EAGAIN, (struct ibv_context * verbs, struct ibv_async_event *e), (verbs, e))

FAULTY_GIVES(struct rdma_event_channel *, rdma_create_event_channel, EMFILE, (void), ())
void __real_rdma_destroy_event_channel(struct rdma_event_channel *c);
void __wrap_rdma_destroy_event_channel(struct rdma_event_channel *c);
void __wrap_rdma_destroy_event_channel(struct rdma_event_channel *c)
{
	fault_untrack(c);
	__real_rdma_destroy_event_channel(c);
}

int __real_rdma_create_id(struct rdma_event_channel *c, struct rdma_cm_id **id, void *context, enum rdma_port_space ps);
int __wrap_rdma_create_id(struct rdma_event_channel *c, struct rdma_cm_id **id, void *context, enum rdma_port_space ps);
int __wrap_rdma_create_id(struct rdma_event_channel *c, struct rdma_cm_id **id, void *context, enum rdma_port_space ps)
{
	struct fault_site *site;

	if (fault_gives("rdma_create_id", __builtin_return_address(0), __builtin_frame_address(0), &site)) {
		errno = ENOMEM;
		return -1;
	}
	int rc = __real_rdma_create_id(c, id, context, ps);
	if (rc == 0) {
		fault_track(*id, site);
	}
	return rc;
}

/* The ids of connection requests come with an event, and have to go the same way. */
int __real_rdma_get_cm_event(struct rdma_event_channel *c, struct rdma_cm_event **event);
int __wrap_rdma_get_cm_event(struct rdma_event_channel *c, struct rdma_cm_event **event);
int __wrap_rdma_get_cm_event(struct rdma_event_channel *c, struct rdma_cm_event **event)
{
	struct fault_site *site;

	if (fault_gives("rdma_get_cm_event", __builtin_return_address(0), __builtin_frame_address(0), &site)) {
		errno = EAGAIN;
		return -1;
	}
	int rc = __real_rdma_get_cm_event(c, event);
	if (rc == 0 && (*event)->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		fault_track((*event)->id, site);
	}
	return rc;
}

FAULTY_TAKES(rdma_destroy_id, EBUSY, struct rdma_cm_id *, id)
FAULTY(int, rdma_bind_addr, -1, EADDRINUSE, (struct rdma_cm_id * id, struct sockaddr *at), (id, at))
FAULTY(int, rdma_listen, -1, EADDRINUSE, (struct rdma_cm_id * id, int backlog), (id, backlog))
FAULTY(int, rdma_accept, -1, EINVAL, (struct rdma_cm_id * id, struct rdma_conn_param *p), (id, p))
FAULTY(int, rdma_connect, -1, EINVAL, (struct rdma_cm_id * id, struct rdma_conn_param *p), (id, p))
FAULTY(int, rdma_reject, -1, EINVAL, (struct rdma_cm_id * id, const void *data, uint8_t n), (id, data, n))
FAULTY(int, rdma_disconnect, -1, EINVAL, (struct rdma_cm_id * id), (id))
FAULTY(int, rdma_set_option, -1, EINVAL, (struct rdma_cm_id * id, int level, int name, void *value, size_t n),
       (id, level, name, value, n))
FAULTY(int, rdma_resolve_addr, -1, ENOMEM, (struct rdma_cm_id * id, struct sockaddr *from, struct sockaddr *to, int ms),
       (id, from, to, ms))
FAULTY(int, rdma_resolve_route, -1, ENOMEM, (struct rdma_cm_id * id, int ms), (id, ms))

/* SPDX-License-Identifier: BSD-3-Clause */
/* Steps that post work, wait for what comes of it, and look at memory and states. */
#include "unittest/softverbs/sides.h"

#include <errno.h>
#include <sched.h>

static void make_sges(struct ibv_sge *sge, const struct piece *p, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		sge[i] = (struct ibv_sge){
			.addr = (uintptr_t)me.buf + p[i].off,
			.length = p[i].len,
			.lkey = p[i].lkey != 0 ? p[i].lkey : me.mr->lkey,
		};
	}
}

long post_send(struct sr *r)
{
	struct ibv_sge sge[SIDE_PIECES];
	struct ibv_send_wr wr[64] = {0}, *bad = NULL;
	uint32_t count = r->count != 0 ? r->count : 1;
	make_sges(sge, r->p, r->n);
	for (uint32_t i = 0; i < count; i++) {
		wr[i] = (struct ibv_send_wr){
			.wr_id = r->wr_id + i,
			.next = i + 1 < count ? &wr[i + 1] : NULL,
			.sg_list = sge,
			.num_sge = (int)r->n,
			.opcode = r->opcode,
			.send_flags = r->flags,
			.imm_data = r->imm,
		};
		if (r->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || r->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			wr[i].wr.atomic.remote_addr = r->remote_addr;
			wr[i].wr.atomic.rkey = r->rkey;
			wr[i].wr.atomic.compare_add = r->compare_add;
			wr[i].wr.atomic.swap = r->swap;
		} else {
			wr[i].wr.rdma.remote_addr = r->remote_addr;
			wr[i].wr.rdma.rkey = r->rkey;
		}
	}
	int rc = ibv_post_send(r->extra ? me.extra_qp : me.qp, wr, &bad);
	r->posted = rc == 0 ? count : (bad != NULL ? (uint32_t)(bad - wr) : 0);
	return rc;
}

long post_recv(struct rr *r)
{
	struct ibv_sge sge[SIDE_PIECES];
	struct ibv_recv_wr wr[64] = {0}, *bad = NULL;
	uint32_t count = r->count != 0 ? r->count : 1;
	make_sges(sge, r->p, r->n);
	for (uint32_t i = 0; i < count; i++) {
		wr[i] = (struct ibv_recv_wr){
			.wr_id = r->wr_id + i,
			.next = i + 1 < count ? &wr[i + 1] : NULL,
			.sg_list = sge,
			.num_sge = (int)r->n,
		};
	}
	int rc = me.srq != NULL ? ibv_post_srq_recv(me.srq, wr, &bad)
				: ibv_post_recv(r->extra ? me.extra_qp : me.qp, wr, &bad);
	r->posted = rc == 0 ? count : (bad != NULL ? (uint32_t)(bad - wr) : 0);
	return rc;
}

long poll_wc(struct wcs *w)
{
	return ibv_poll_cq(w->recv ? me.rcq : me.scq, (int)w->n, w->wc);
}

long wait_wc(struct wcs *w)
{
	int64_t end = sides_now_ms() + SIDE_DEADLINE_MS;
	uint32_t have = 0;
	while (have < w->n) {
		int n = ibv_poll_cq(w->recv ? me.rcq : me.scq, (int)(w->n - have), &w->wc[have]);
		if (n < 0) {
			return n;
		}
		have += (uint32_t)n;
		if (n == 0) {
			if (sides_now_ms() > end) {
				break;
			}
			sched_yield();
		}
	}
	return have;
}

static struct ibv_wc one_wc(bool recv, bool far)
{
	struct wcs w = {.recv = recv, .n = 1};
	long n = far ? FAR(wait_wc, &w) : wait_wc(&w);
	if (n != 1) {
		w.wc[0] = (struct ibv_wc){.status = (enum ibv_wc_status) - 1};
	}
	return w.wc[0];
}

struct ibv_wc wait_send_wc(void)
{
	return one_wc(false, false);
}

struct ibv_wc wait_recv_wc(void)
{
	return one_wc(true, false);
}

struct ibv_wc far_send_wc(void)
{
	return one_wc(false, true);
}

struct ibv_wc far_recv_wc(void)
{
	return one_wc(true, true);
}

static const char *status_name(int status)
{
	return status == -1 ? "no completion" : ibv_wc_status_str((enum ibv_wc_status)status);
}

void status_say(int line, int got, int wanted)
{
	printf("# line %d: %s (%d), expected %s (%d)\n", line, status_name(got), got, status_name(wanted), wanted);
}

static uint8_t pattern(uint32_t seed, uint32_t i)
{
	return (uint8_t)((seed * 2654435761u + i * 40503u) >> 8);
}

long fill(struct area *a)
{
	for (uint32_t i = 0; i < a->len; i++) {
		me.buf[a->off + i] = pattern(a->seed, a->from + i);
	}
	return 0;
}

long check(struct area *a)
{
	for (uint32_t i = 0; i < a->len; i++) {
		if (me.buf[a->off + i] != pattern(a->seed, a->from + i)) {
			return 1 + (long)i;
		}
	}
	return 0;
}

long qp_state(int *unused)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	int rc = ibv_query_qp(me.qp, &a, IBV_QP_STATE, &init);
	return rc != 0 ? -rc : (long)a.qp_state;
}

long qp_modify_state(int *state)
{
	struct ibv_qp_attr a = {.qp_state = (enum ibv_qp_state) * state};
	return -ibv_modify_qp(me.qp, &a, IBV_QP_STATE);
}

long async_event(int *deadline_ms)
{
	struct ibv_async_event e;
	if (fd_wait(me.context->async_fd, *deadline_ms) != 0) {
		return -ETIMEDOUT;
	}
	if (ibv_get_async_event(me.context, &e) != 0) {
		return -errno;
	}
	ibv_ack_async_event(&e);
	return e.event_type;
}

long async_event_of(int *wanted)
{
	int64_t end = sides_now_ms() + SIDE_DEADLINE_MS;
	for (;;) {
		int64_t left = end - sides_now_ms();
		long type = async_event(&(int){left > 0 ? (int)left : 0});
		if (type < 0 || type == *wanted) {
			return type < 0 ? type : 0;
		}
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* What the fake device itself costs, for benchmarks. */
#include <time.h>

#include "unittest/nvmf_rdma/fake_verbs.h"

/* One command's worth of calls, as the target makes them, in batches of 32: receive posted, capsule sent, polled, WRITE
 * and SEND posted, the SEND's completion polled. */
double fake_verbs_cost_ns(unsigned ios, void (*toggle)(void))
{
	enum { BATCH = 32 };
	static uint8_t memory[BATCH][64];
	struct fake_conn conn = {0};
	struct rdma_cm_id id = {.recv_cq_channel = (struct ibv_comp_channel *)&conn};
	struct ibv_pd pd = {.context = fake_context(0)};
	struct ibv_cq *cq = ibv_create_cq(pd.context, 1024, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq};
	struct fake_stats before = fake_stats;
	struct timespec from, to;
	struct nvme_sqe sqe = {0};

	rdma_create_qp(&id, &pd, &init);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
	if (toggle != NULL) {
		toggle();
	}
	for (unsigned done = 0; done < ios; done += BATCH) {
		struct ibv_wc wc[BATCH];
		struct ibv_sge sge[BATCH];
		struct ibv_recv_wr recv[BATCH], *bad_recv;
		struct ibv_send_wr send[2 * BATCH], *bad_send;

		for (unsigned i = 0; i < BATCH; i++) {
			sge[i] = (struct ibv_sge){.addr = (uintptr_t)memory[i], .length = 64};
			recv[i] = (struct ibv_recv_wr){.wr_id = i,
						       .sg_list = &sge[i],
						       .num_sge = 1,
						       .next = i < BATCH - 1 ? &recv[i + 1] : NULL};
			send[2 * i] = (struct ibv_send_wr){.opcode = IBV_WR_RDMA_WRITE, .next = &send[2 * i + 1]};
			send[2 * i + 1] = (struct ibv_send_wr){.opcode = IBV_WR_SEND,
							       .sg_list = &sge[i],
							       .send_flags = IBV_SEND_SIGNALED,
							       .next = i < BATCH - 1 ? &send[2 * i + 2] : NULL};
		}
		ibv_post_recv(id.qp, recv, &bad_recv);
		for (unsigned i = 0; i < BATCH; i++) {
			fake_send(&conn, &sqe, NULL, 0);
		}
		ibv_poll_cq(cq, BATCH, wc);
		ibv_post_send(id.qp, send, &bad_send);
		ibv_poll_cq(cq, BATCH, wc);
	}
	if (toggle != NULL) {
		toggle();
	}
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
	rdma_destroy_qp(&id);
	ibv_destroy_cq(cq);
	fake_stats = before;
	return ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / ios;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The work queues: chains, order, fences, signalled and unsignalled requests, full queues, the longest
 * message, memory regions. */
#include "unittest/softverbs/sides.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

static struct sr write_to(uint32_t far_off, uint32_t off, uint32_t len)
{
	return (struct sr){.opcode = IBV_WR_RDMA_WRITE,
			   .flags = IBV_SEND_SIGNALED,
			   .remote_addr = FAR_ADDR(far_off),
			   .rkey = FAR_RKEY,
			   .n = 1,
			   .p = {{off, len, 0}}};
}

static struct sr read_from(uint32_t far_off, uint32_t off, uint32_t len)
{
	struct sr r = write_to(far_off, off, len);
	r.opcode = IBV_WR_RDMA_READ;
	return r;
}

static struct sr send_of(uint32_t off, uint32_t len)
{
	return (struct sr){.opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED, .n = 1, .p = {{off, len, 0}}};
}

static void test_chained_requests_complete_in_order(void)
{
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	struct rr r = {.wr_id = 500, .count = 32, .n = 1, .p = {{0, 64, 0}}};
	CU_ASSERT_EQUAL(FAR(post_recv, &r), 0);
	struct sr s = send_of(0, 32);
	s.count = 32;
	s.wr_id = 1000;
	CU_ASSERT_EQUAL(post_send(&s), 0);
	struct wcs near = {.n = 32}, far = {.recv = true, .n = 32};
	CU_ASSERT_EQUAL(wait_wc(&near), 32);
	CU_ASSERT_EQUAL(FAR(wait_wc, &far), 32);
	for (uint32_t i = 0; i < 32; i++) {
		CU_ASSERT_EQUAL(near.wc[i].wr_id, 1000 + i);
		ASSERT_STATUS(near.wc[i].status, IBV_WC_SUCCESS);
		CU_ASSERT_EQUAL(far.wc[i].wr_id, 500 + i);
	}
	pair_close();
}

/* Reads take longer than writes, and sends wait for receives, but the queue completes in the order of
 * posting. */
static void test_mixed_requests_complete_in_order(void)
{
	static const uint32_t len[] = {100000, 8, 8, 4096, 65536, 8, 8, 1};
	struct sr s;
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	for (int round = 0; round < 4; round++) {
		CU_ASSERT_EQUAL(FAR(post_recv, &((struct rr){.count = 2, .n = 1, .p = {{1 << 20, 65536, 0}}})), 0);
		for (uint32_t i = 0; i < 8; i++) {
			s = i % 3 == 0   ? read_from(0, 2 << 20, len[i])
			    : i % 3 == 1 ? write_to(0, 0, len[i])
					 : send_of(0, len[i] > 65536 ? 65536 : len[i]);
			s.wr_id = i;
			CU_ASSERT_EQUAL(post_send(&s), 0);
		}
		struct wcs w = {.n = 8};
		CU_ASSERT_EQUAL(wait_wc(&w), 8);
		for (uint32_t i = 0; i < 8; i++) {
			CU_ASSERT_EQUAL(w.wc[i].wr_id, i);
			ASSERT_STATUS(w.wc[i].status, IBV_WC_SUCCESS);
		}
		CU_ASSERT_EQUAL(FAR(wait_wc, &((struct wcs){.recv = true, .n = 2})), 2);
	}
	pair_close();
}

static long recv_then_check(struct area *a) /* as soon as the receive completes, not later */
{
	struct ibv_wc wc = wait_recv_wc();
	return wc.status == IBV_WC_SUCCESS ? check(a) : -1;
}

static void test_write_is_visible_when_the_next_send_arrives(void)
{
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	for (uint32_t i = 0; i < 20; i++) {
		struct area a = {.len = 50000, .seed = i};
		CU_ASSERT_EQUAL(FAR(post_recv, &((struct rr){.n = 1, .p = {{1 << 20, 8, 0}}})), 0);
		CU_ASSERT_EQUAL(FAR_BEGIN(recv_then_check, &a), 0);
		fill(&a);
		struct sr w = write_to(0, 0, 50000), s = send_of(0, 8);
		w.flags = 0;
		CU_ASSERT_EQUAL(post_send(&w), 0);
		CU_ASSERT_EQUAL(post_send(&s), 0);
		CU_ASSERT_EQUAL(FAR_END(&a), 0);
		ASSERT_STATUS(wait_send_wc().status, IBV_WC_SUCCESS);
	}
	pair_close();
}

static void test_read_after_write_sees_what_was_written(void)
{
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	for (uint32_t i = 0; i < 20; i++) {
		fill(&(struct area){.len = 20000, .seed = i});
		struct sr w = write_to(0, 0, 20000), r = read_from(0, 1 << 20, 20000);
		CU_ASSERT_EQUAL(post_send(&w), 0);
		CU_ASSERT_EQUAL(post_send(&r), 0);
		CU_ASSERT_EQUAL(wait_wc(&(struct wcs){.n = 2}), 2);
		CU_ASSERT_EQUAL(check(&(struct area){.off = 1 << 20, .len = 20000, .seed = i}), 0);
	}
	pair_close();
}

/* A fenced request begins when the reads before it have ended: so it carries what they brought. */
static void fenced(struct sr after, uint32_t far_result)
{
	for (uint32_t i = 0; i < 20; i++) {
		FAR(fill, &((struct area){.len = 40000, .seed = i}));
		if (after.opcode == IBV_WR_SEND) {
			CU_ASSERT_EQUAL(FAR(post_recv, &((struct rr){.n = 1, .p = {{far_result, 40000, 0}}})), 0);
		}
		struct sr r = read_from(0, 0, 40000);
		r.flags = 0;
		after.flags |= IBV_SEND_FENCE;
		CU_ASSERT_EQUAL(post_send(&r), 0);
		CU_ASSERT_EQUAL(post_send(&after), 0);
		ASSERT_STATUS(wait_send_wc().status, IBV_WC_SUCCESS);
		CU_ASSERT_EQUAL(FAR(check, &((struct area){.off = far_result, .len = 40000, .seed = i})), 0);
		if (after.opcode == IBV_WR_SEND) {
			CU_ASSERT_EQUAL(far_recv_wc().byte_len, 40000);
		}
	}
}

static void test_fenced_send_carries_what_the_read_brought(void)
{
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	fenced(send_of(0, 40000), 1 << 20);
	pair_close();
}

static void test_fenced_write_carries_what_the_read_brought(void)
{
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	fenced(write_to(2 << 20, 0, 40000), 2 << 20);
	pair_close();
}

static void test_receives_are_used_in_the_order_of_posting(void)
{
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	for (uint32_t i = 0; i < 8; i++) {
		CU_ASSERT_EQUAL(FAR(post_recv, &((struct rr){.wr_id = 90 - i, .n = 1, .p = {{i * 64, 64, 0}}})), 0);
	}
	for (uint32_t i = 0; i < 8; i++) {
		fill(&(struct area){.off = i * 64, .len = 64, .seed = 40 + i});
		struct sr s = send_of(i * 64, 64);
		CU_ASSERT_EQUAL(post_send(&s), 0);
	}
	CU_ASSERT_EQUAL(wait_wc(&(struct wcs){.n = 8}), 8);
	for (uint32_t i = 0; i < 8; i++) {
		CU_ASSERT_EQUAL(far_recv_wc().wr_id, 90 - i);
		CU_ASSERT_EQUAL(FAR(check, &((struct area){.off = i * 64, .len = 64, .seed = 40 + i})), 0);
	}
	pair_close();
}

/* --- signalled, unsignalled */

static void test_only_signalled_requests_complete(void)
{
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	for (uint32_t i = 0; i < 10; i++) {
		struct sr w = write_to(0, 0, 64);
		w.wr_id = i;
		w.flags = i % 5 == 4 ? IBV_SEND_SIGNALED : 0;
		CU_ASSERT_EQUAL(post_send(&w), 0);
	}
	CU_ASSERT_EQUAL(wait_send_wc().wr_id, 4);
	CU_ASSERT_EQUAL(wait_send_wc().wr_id, 9);
	CU_ASSERT_EQUAL(poll_wc(&(struct wcs){.n = 1}), 0);
	pair_close();
}

static void test_all_complete_with_sq_sig_all(void)
{
	TEST_BEGIN();
	if (!pair_open(&(struct side_options){.all_signalled = true}, NULL)) {
		return;
	}
	struct sr w = write_to(0, 0, 64);
	w.flags = 0;
	w.count = 10;
	CU_ASSERT_EQUAL(post_send(&w), 0);
	CU_ASSERT_EQUAL(wait_wc(&(struct wcs){.n = 10}), 10);
	pair_close();
}

static void test_unsignalled_requests_give_their_slots_back(void)
{
	TEST_BEGIN();
	if (!pair_open(&(struct side_options){.send_wr = 8}, NULL)) {
		return;
	}
	for (uint32_t i = 0; i < 800; i++) {
		struct sr w = write_to(0, 0, 8);
		w.wr_id = i;
		w.flags = i % 8 == 7 ? IBV_SEND_SIGNALED : 0;
		CU_ASSERT_EQUAL_FATAL(post_send(&w), 0);
		if (i % 8 == 7) {
			CU_ASSERT_EQUAL_FATAL(wait_send_wc().wr_id, i);
		}
	}
	pair_close();
}

/* --- full queues, bad requests */

static void test_full_send_queue_is_refused_with_enomem(void)
{
	uint32_t accepted = 0;
	long rc = 0;
	TEST_BEGIN();
	/* No receive is posted, so nothing leaves the queue. */
	if (!pair_open(&(struct side_options){.send_wr = 16, .cqe = 1024}, NULL)) {
		return;
	}
	while (accepted < 1000) {
		struct sr s = send_of(0, 8);
		s.count = 3;
		rc = post_send(&s);
		accepted += s.posted;
		if (rc != 0) {
			break;
		}
	}
	CU_ASSERT_EQUAL(rc, ENOMEM);
	CU_ASSERT_TRUE(accepted >= 16 && accepted < 1000);
	/* What was accepted, and no more, arrives. */
	for (uint32_t left = accepted; left > 0;) {
		uint32_t n = left < 16 ? left : 16;
		CU_ASSERT_EQUAL(FAR(post_recv, &((struct rr){.count = n, .n = 1, .p = {{0, 8, 0}}})), 0);
		CU_ASSERT_EQUAL(wait_wc(&(struct wcs){.n = n}), n);
		CU_ASSERT_EQUAL(FAR(wait_wc, &((struct wcs){.recv = true, .n = n})), n);
		left -= n;
	}
	CU_ASSERT_EQUAL(poll_wc(&(struct wcs){.n = 1}), 0);
	pair_close();
}

static void test_full_receive_queue_is_refused_with_enomem(void)
{
	uint32_t accepted = 0;
	long rc = 0;
	TEST_BEGIN();
	if (!pair_open(&(struct side_options){.recv_wr = 16}, NULL)) {
		return;
	}
	while (accepted < 1000) {
		struct rr r = {.count = 3, .n = 1, .p = {{0, 8, 0}}};
		rc = post_recv(&r);
		accepted += r.posted;
		if (rc != 0) {
			break;
		}
	}
	CU_ASSERT_EQUAL(rc, ENOMEM);
	CU_ASSERT_TRUE(accepted >= 16 && accepted < 1000);
	pair_close();
}

static void test_more_pieces_than_the_queue_has_are_refused(void)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	TEST_BEGIN();
	if (!pair_open(&(struct side_options){.send_sge = 2, .recv_sge = 2}, NULL)) {
		return;
	}
	CU_ASSERT_EQUAL(ibv_query_qp(me.qp, &a, IBV_QP_CAP, &init), 0);
	struct sr s = send_of(0, 8);
	s.n = init.cap.max_send_sge + 1;
	struct rr r = {.n = init.cap.max_recv_sge + 1};
	CU_ASSERT_TRUE_FATAL(s.n <= SIDE_PIECES && r.n <= SIDE_PIECES);
	CU_ASSERT_NOT_EQUAL(post_send(&s), 0);
	CU_ASSERT_NOT_EQUAL(post_recv(&r), 0);
	CU_ASSERT_EQUAL(s.posted + r.posted, 0);
	pair_close();
}

static void test_bad_request_in_a_chain_stops_it_there(void)
{
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	struct ibv_sge sge[SIDE_PIECES];
	struct ibv_send_wr wr[3], *bad = NULL;
	for (int i = 0; i < SIDE_PIECES; i++) {
		sge[i] = (struct ibv_sge){.addr = (uintptr_t)me.buf, .length = 64, .lkey = me.mr->lkey};
	}
	for (int i = 0; i < 3; i++) {
		wr[i] = (struct ibv_send_wr){.wr_id = (uint64_t)i,
					     .next = i < 2 ? &wr[i + 1] : NULL,
					     .sg_list = sge,
					     .num_sge = 1,
					     .opcode = IBV_WR_RDMA_WRITE,
					     .send_flags = IBV_SEND_SIGNALED,
					     .wr.rdma = {.remote_addr = FAR_ADDR(0), .rkey = FAR_RKEY}};
	}
	wr[1].num_sge = SIDE_PIECES; /* more than the queue pair has */
	CU_ASSERT_NOT_EQUAL(ibv_post_send(me.qp, wr, &bad), 0);
	CU_ASSERT_PTR_EQUAL(bad, &wr[1]);
	CU_ASSERT_EQUAL(wait_send_wc().wr_id, 0);
	CU_ASSERT_EQUAL(poll_wc(&(struct wcs){.n = 1}), 0);
	pair_close();
}

/* --- the longest message: 2 GiB, of as much memory as one piece of it, mapped again and again */

enum { LONG_MAPPED_BYTES = 64 << 20 };
static struct {
	uint8_t *at;
	size_t bytes;
	struct ibv_mr *mr;
} long_region;

struct long_area {
	uint64_t bytes;
	uint64_t addr; /* out */
	uint32_t rkey;
};

static long long_open(struct long_area *a)
{
	int fd = memfd_create("long", 0);
	if (fd < 0 || ftruncate(fd, LONG_MAPPED_BYTES) != 0) {
		return -errno;
	}
	long_region.bytes = (a->bytes + LONG_MAPPED_BYTES - 1) / LONG_MAPPED_BYTES * LONG_MAPPED_BYTES;
	long_region.at = mmap(NULL, long_region.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (long_region.at == MAP_FAILED) {
		return -errno;
	}
	for (size_t off = 0; off < long_region.bytes; off += LONG_MAPPED_BYTES) {
		if (mmap(long_region.at + off, LONG_MAPPED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
			 0) == MAP_FAILED) {
			return -errno;
		}
	}
	close(fd);
	long_region.mr = ibv_reg_mr(me.pd, long_region.at, long_region.bytes,
				    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	if (long_region.mr == NULL) {
		return -errno;
	}
	a->addr = (uintptr_t)long_region.at;
	a->rkey = long_region.mr->rkey;
	return 0;
}

static long long_close(int *unused)
{
	int rc = ibv_dereg_mr(long_region.mr);
	munmap(long_region.at, long_region.bytes);
	return -rc;
}

static int long_post(enum ibv_wr_opcode opcode, uint64_t bytes, const struct long_area *far)
{
	struct ibv_sge sge[2] = {
		{.addr = (uintptr_t)long_region.at, .length = (uint32_t)(bytes / 2), .lkey = long_region.mr->lkey},
		{.addr = (uintptr_t)long_region.at + bytes / 2,
		 .length = (uint32_t)(bytes - bytes / 2),
		 .lkey = long_region.mr->lkey},
	};
	struct ibv_send_wr wr = {.sg_list = sge,
				 .num_sge = 2,
				 .opcode = opcode,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {.remote_addr = far->addr, .rkey = far->rkey}},
			   *bad;
	return ibv_post_send(me.qp, &wr, &bad);
}

static long long_last_bytes(uint64_t *value) /* of the message */
{
	uint64_t end = *value;
	memcpy(value, long_region.at + end - 8, 8);
	return 0;
}

static bool long_pair(uint64_t *max, struct long_area *far)
{
	struct ibv_port_attr port;
	if (!pair_open_plain()) {
		return false;
	}
	CU_ASSERT_EQUAL(ibv_query_port(me.context, 1, &port), 0);
	*max = port.max_msg_sz;
	CU_ASSERT_TRUE_FATAL(*max > 0 && *max <= 1ul << 31);
	*far = (struct long_area){.bytes = *max + 8};
	CU_ASSERT_EQUAL_FATAL(long_open(&(struct long_area){.bytes = *max + 8}), 0);
	CU_ASSERT_EQUAL_FATAL(FAR(long_open, far), 0);
	return true;
}

static void long_pair_close(void)
{
	CU_ASSERT_EQUAL(FAR(long_close, &(int){0}), 0);
	CU_ASSERT_EQUAL(long_close(&(int){0}), 0);
	pair_close();
}

static void test_longest_message_passes(void)
{
	uint64_t max, last;
	struct long_area far;
	TEST_BEGIN();
	if (!long_pair(&max, &far)) {
		return;
	}
	memcpy(long_region.at + max - 8, "the end.", 8);
	CU_ASSERT_EQUAL(long_post(IBV_WR_RDMA_WRITE, max, &far), 0);
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_SUCCESS);
	last = max;
	FAR(long_last_bytes, &last);
	CU_ASSERT_EQUAL(memcmp(&last, "the end.", 8), 0);
	memset(long_region.at + max - 8, 0, 8);
	CU_ASSERT_EQUAL(long_post(IBV_WR_RDMA_READ, max, &far), 0);
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_SUCCESS);
	CU_ASSERT_EQUAL(memcmp(long_region.at + max - 8, "the end.", 8), 0);
	long_pair_close();
}

/* One byte more: refused at once, or a local length error (IBTA volume 1, 11.6.2). */
static void test_longer_message_than_the_port_allows_is_an_error(void)
{
	static const enum ibv_wr_opcode op[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND};
	uint64_t max;
	struct long_area far;
	TEST_BEGIN();
	for (int i = 0; i < 3; i++) {
		if (!long_pair(&max, &far)) {
			return;
		}
		if (long_post(op[i], max + 1, &far) == 0) {
			ASSERT_STATUS(wait_send_wc().status, IBV_WC_LOC_LEN_ERR);
			CU_ASSERT_EQUAL(qp_state(&(int){0}), IBV_QPS_ERR);
		}
		long_pair_close();
	}
}

/* --- memory regions */

static void test_remote_write_without_local_write_cannot_be_registered(void)
{
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	CU_ASSERT_PTR_NULL(ibv_reg_mr(me.pd, me.buf, 4096, IBV_ACCESS_REMOTE_WRITE));
	CU_ASSERT_PTR_NULL(ibv_reg_mr(me.pd, me.buf, 4096, IBV_ACCESS_REMOTE_ATOMIC));
	struct ibv_mr *mr = ibv_reg_mr(me.pd, me.buf, 4096, IBV_ACCESS_REMOTE_READ);
	CU_ASSERT_PTR_NOT_NULL_FATAL(mr);
	CU_ASSERT_EQUAL(ibv_dereg_mr(mr), 0);
	pair_close();
}

static void test_region_without_rights_is_a_source(void)
{
	TEST_BEGIN();
	if (!pair_open(&(struct side_options){.mr_is_readonly = true}, &(struct side_options){0})) {
		return;
	}
	fill(&(struct area){.len = 4096, .seed = 60});
	struct sr w = write_to(0, 0, 4096), s = send_of(0, 4096);
	CU_ASSERT_EQUAL(post_send(&w), 0);
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_SUCCESS);
	CU_ASSERT_EQUAL(FAR(post_recv, &((struct rr){.n = 1, .p = {{8192, 4096, 0}}})), 0);
	CU_ASSERT_EQUAL(post_send(&s), 0);
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_SUCCESS);
	ASSERT_STATUS(far_recv_wc().status, IBV_WC_SUCCESS);
	CU_ASSERT_EQUAL(FAR(check, &((struct area){.len = 4096, .seed = 60})), 0);
	CU_ASSERT_EQUAL(FAR(check, &((struct area){.off = 8192, .len = 4096, .seed = 60})), 0);
	pair_close();
}

static struct ibv_mr *iova_mr;
static long register_at_iova(struct endpoint *e)
{
	iova_mr = ibv_reg_mr_iova(me.pd, me.buf + 4096, 8192, e->addr,
				  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	if (iova_mr == NULL) {
		return -errno;
	}
	e->rkey = iova_mr->rkey;
	return 0;
}

static long deregister_iova(int *unused)
{
	return -ibv_dereg_mr(iova_mr);
}

static void test_region_is_reached_at_its_iova(void)
{
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	struct endpoint e = {.addr = 0x10000000};
	CU_ASSERT_EQUAL(FAR(register_at_iova, &e), 0);
	fill(&(struct area){.len = 8192, .seed = 61});
	struct sr w = write_to(0, 0, 8192);
	w.remote_addr = e.addr;
	w.rkey = e.rkey;
	CU_ASSERT_EQUAL(post_send(&w), 0);
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_SUCCESS);
	CU_ASSERT_EQUAL(FAR(check, &((struct area){.off = 4096, .len = 8192, .seed = 61})), 0);
	w.remote_addr = FAR_ADDR(4096); /* its address in the process says nothing now */
	CU_ASSERT_EQUAL(post_send(&w), 0);
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_REM_ACCESS_ERR);
	CU_ASSERT_EQUAL(FAR(deregister_iova, &(int){0}), 0);
	pair_close();
}

static void test_objects_in_use_cannot_be_destroyed(void)
{
	TEST_BEGIN();
	if (!pair_open(&(struct side_options){.srq = true}, NULL)) {
		return;
	}
	CU_ASSERT_EQUAL(ibv_dealloc_pd(me.pd), EBUSY);
	CU_ASSERT_EQUAL(ibv_destroy_cq(me.scq), EBUSY);
	CU_ASSERT_EQUAL(ibv_destroy_cq(me.rcq), EBUSY);
	CU_ASSERT_EQUAL(ibv_destroy_srq(me.srq), EBUSY);
	CU_ASSERT_EQUAL(ibv_destroy_comp_channel(me.channel), EBUSY);
	pair_close();
}

static const struct unit_test tests[] = {
	UNIT(test_chained_requests_complete_in_order),
	UNIT(test_mixed_requests_complete_in_order),
	UNIT(test_write_is_visible_when_the_next_send_arrives),
	UNIT(test_read_after_write_sees_what_was_written),
	UNIT(test_fenced_send_carries_what_the_read_brought),
	UNIT(test_fenced_write_carries_what_the_read_brought),
	UNIT(test_receives_are_used_in_the_order_of_posting),
	UNIT(test_only_signalled_requests_complete),
	UNIT(test_all_complete_with_sq_sig_all),
	UNIT(test_unsignalled_requests_give_their_slots_back),
	UNIT(test_full_send_queue_is_refused_with_enomem),
	UNIT(test_full_receive_queue_is_refused_with_enomem),
	UNIT(test_more_pieces_than_the_queue_has_are_refused),
	UNIT(test_bad_request_in_a_chain_stops_it_there),
	UNIT(test_longest_message_passes),
	UNIT(test_longer_message_than_the_port_allows_is_an_error),
	UNIT(test_remote_write_without_local_write_cannot_be_registered),
	UNIT(test_region_without_rights_is_a_source),
	UNIT(test_region_is_reached_at_its_iova),
	UNIT(test_objects_in_use_cannot_be_destroyed),
	UNIT_END,
};
SIDES_MAIN("softverbs_queue", tests)

/* SPDX-License-Identifier: BSD-3-Clause */
/* Each completion status that the specification names for RC, on both sides, what becomes of the queue pairs,
 * and how the rest of the queues is flushed. */
#include "unittest/softverbs/sides.h"

#include <errno.h>

enum { BAD_KEY = 0x7fabcd12, NOTHING = -1 };

struct fault {
	struct side_options near, far;
	struct sr send; /* remote_addr: an offset in the far buffer; rkey: BAD_KEY or 0 for the right one */
	uint32_t recvs; /* how many receives like this one the far side posts before */
	struct rr recv;
	int near_status;
	int far_status; /* of the first receive, the others are flushed; NOTHING: they stay posted */
	enum ibv_qp_state far_state;
};

static bool fault_open(const struct fault *f)
{
	struct rr r = f->recv;
	if (!pair_open(&f->near, &f->far)) {
		return false;
	}
	fill(&(struct area){.len = 4096, .seed = 2});
	FAR(fill, &((struct area){.len = SIDE_BUFFER_BYTES, .seed = 1}));
	r.count = f->recvs;
	if (f->recvs != 0) {
		CU_ASSERT_EQUAL(FAR(post_recv, &r), 0);
	}
	return true;
}

static void fault_far_side(const struct fault *f)
{
	struct wcs w = {.recv = true, .n = f->recvs};
	if (f->far_status != NOTHING) {
		CU_ASSERT_EQUAL(FAR(wait_wc, &w), f->recvs);
		for (uint32_t i = 0; i < f->recvs; i++) {
			ASSERT_STATUS(w.wc[i].status, i == 0 ? f->far_status : (int)IBV_WC_WR_FLUSH_ERR);
			CU_ASSERT_EQUAL(w.wc[i].wr_id, f->recv.wr_id + i);
		}
	} else {
		CU_ASSERT_EQUAL(FAR(poll_wc, &w), 0);
	}
	CU_ASSERT_EQUAL(FAR(qp_state, &(int){0}), f->far_state);
}

/* Posts the faulty request between a good one and two that must be flushed. */
static void fault(const struct fault *f)
{
	struct sr s = f->send, good = {.opcode = IBV_WR_RDMA_WRITE, .wr_id = 1, .n = 1, .flags = IBV_SEND_SIGNALED};
	if (!fault_open(f)) {
		return;
	}
	good.remote_addr = s.remote_addr = FAR_ADDR(s.remote_addr);
	good.rkey = FAR_RKEY;
	s.rkey = s.rkey != 0 ? s.rkey : FAR_RKEY;
	s.wr_id = 2;
	CU_ASSERT_EQUAL(post_send(&good), 0);
	CU_ASSERT_EQUAL(post_send(&s), 0);
	good.flags = 0; /* unsignalled: flushed with a completion all the same */
	good.wr_id = 3;
	good.count = 2;
	/* The near queue pair may be in the error state by now; posting is allowed there, and flushed
	 * (10.3.1.5). */
	CU_ASSERT_EQUAL(post_send(&good), 0);
	struct wcs w = {.n = 4};
	CU_ASSERT_EQUAL(wait_wc(&w), 4);
	for (uint32_t i = 0; i < 4; i++) {
		CU_ASSERT_EQUAL(w.wc[i].wr_id, i + 1);
		CU_ASSERT_EQUAL(w.wc[i].qp_num, me.qp->qp_num);
		ASSERT_STATUS(w.wc[i].status,
			      i == 0 ? IBV_WC_SUCCESS : (i == 1 ? f->near_status : (int)IBV_WC_WR_FLUSH_ERR));
	}
	CU_ASSERT_EQUAL(qp_state(&(int){0}), IBV_QPS_ERR);
	fault_far_side(f);
	CU_ASSERT_EQUAL(FAR(check, &((struct area){.len = SIDE_BUFFER_BYTES, .seed = 1})), 0); /* nothing changed */
	pair_close();
}

#define SEND_OF(...)                                                                                                   \
	{                                                                                                              \
		.opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED, __VA_ARGS__                                         \
	}
#define WRITE_OF(...)                                                                                                  \
	{                                                                                                              \
		.opcode = IBV_WR_RDMA_WRITE, .flags = IBV_SEND_SIGNALED, __VA_ARGS__                                   \
	}
#define READ_OF(...)                                                                                                   \
	{                                                                                                              \
		.opcode = IBV_WR_RDMA_READ, .flags = IBV_SEND_SIGNALED, __VA_ARGS__                                    \
	}
#define PIECE(off_, len_) .n = 1, .p = {{off_, len_, 0}}
#define RECEIVE           .recvs = 3, .recv = {.wr_id = 70, PIECE(0, 64)}
#define FAULT(name, ...)                                                                                               \
	static void name(void)                                                                                         \
	{                                                                                                              \
		TEST_BEGIN();                                                                                          \
		fault(&(struct fault){__VA_ARGS__});                                                                   \
	}

/* --- found by the requester, before anything leaves it: the far side knows nothing */
#define FAR_SIDE_IS_FINE RECEIVE, .far_status = NOTHING, .far_state = IBV_QPS_RTS

FAULT(test_send_with_a_bad_lkey_is_a_local_protection_error, .send = SEND_OF(.n = 1, .p = {{0, 8, BAD_KEY}}),
      .near_status = IBV_WC_LOC_PROT_ERR, FAR_SIDE_IS_FINE)
FAULT(test_send_beyond_the_region_is_a_local_protection_error, .send = SEND_OF(PIECE(SIDE_BUFFER_BYTES - 7, 8)),
      .near_status = IBV_WC_LOC_PROT_ERR, FAR_SIDE_IS_FINE)
FAULT(test_send_before_the_region_is_a_local_protection_error, .send = SEND_OF(PIECE(0u - 1u, 8)),
      .near_status = IBV_WC_LOC_PROT_ERR, FAR_SIDE_IS_FINE)
FAULT(test_write_with_a_bad_lkey_is_a_local_protection_error,
      .send = WRITE_OF(.n = 2, .p = {{0, 8, 0}, {8, 8, BAD_KEY}}), .near_status = IBV_WC_LOC_PROT_ERR,
      .far_status = NOTHING, .far_state = IBV_QPS_RTS)
FAULT(test_read_with_a_bad_lkey_is_a_local_protection_error, .send = READ_OF(.n = 1, .p = {{0, 8, BAD_KEY}}),
      .near_status = IBV_WC_LOC_PROT_ERR, .far_status = NOTHING, .far_state = IBV_QPS_RTS)
FAULT(test_read_into_a_region_without_local_write_is_a_local_protection_error, .near = {.mr_is_readonly = true},
      .send = READ_OF(PIECE(0, 64)), .near_status = IBV_WC_LOC_PROT_ERR, .far_status = NOTHING,
      .far_state = IBV_QPS_RTS)
FAULT(test_read_with_no_initiator_depth_is_a_local_qp_operation_error, .near = {.initiator_depth = 255},
      .send = READ_OF(PIECE(0, 64)), .near_status = IBV_WC_LOC_QP_OP_ERR, .far_status = NOTHING,
      .far_state = IBV_QPS_RTS)

/* --- the receive is at fault */
FAULT(test_send_longer_than_the_receive_is_a_local_length_error_there, .send = SEND_OF(PIECE(0, 65)), RECEIVE,
      .near_status = IBV_WC_REM_INV_REQ_ERR, .far_status = IBV_WC_LOC_LEN_ERR, .far_state = IBV_QPS_ERR)
FAULT(test_long_send_longer_than_the_receive_is_a_local_length_error_there, .send = SEND_OF(PIECE(0, 1 << 20)),
      .recvs = 2, .recv = {.wr_id = 70}, .near_status = IBV_WC_REM_INV_REQ_ERR, .far_status = IBV_WC_LOC_LEN_ERR,
      .far_state = IBV_QPS_ERR)
FAULT(test_receive_with_a_bad_lkey_is_a_local_protection_error_there, .send = SEND_OF(PIECE(0, 64)), .recvs = 2,
      .recv = {.wr_id = 70, .n = 1, .p = {{0, 64, BAD_KEY}}}, .near_status = IBV_WC_REM_OP_ERR,
      .far_status = IBV_WC_LOC_PROT_ERR, .far_state = IBV_QPS_ERR)
FAULT(test_receive_into_a_region_without_local_write_is_a_local_protection_error_there, .far = {.mr_is_readonly = true},
      .send = SEND_OF(PIECE(0, 64)), RECEIVE, .near_status = IBV_WC_REM_OP_ERR, .far_status = IBV_WC_LOC_PROT_ERR,
      .far_state = IBV_QPS_ERR)
FAULT(test_receive_beyond_the_region_is_a_local_protection_error_there, .send = SEND_OF(PIECE(0, 64)), .recvs = 2,
      .recv = {.wr_id = 70, PIECE(SIDE_BUFFER_BYTES - 63, 64)}, .near_status = IBV_WC_REM_OP_ERR,
      .far_status = IBV_WC_LOC_PROT_ERR, .far_state = IBV_QPS_ERR)

/* --- remote access: an error here, the error state there (IBTA volume 1, 9.9.3 class C) */
#define ACCESS_ERROR                                                                                                   \
	RECEIVE, .near_status = IBV_WC_REM_ACCESS_ERR, .far_status = IBV_WC_WR_FLUSH_ERR, .far_state = IBV_QPS_ERR

FAULT(test_write_with_a_bad_rkey_is_a_remote_access_error, .send = WRITE_OF(.rkey = BAD_KEY, PIECE(0, 64)),
      ACCESS_ERROR)
FAULT(test_read_with_a_bad_rkey_is_a_remote_access_error, .send = READ_OF(.rkey = BAD_KEY, PIECE(0, 64)), ACCESS_ERROR)
FAULT(test_write_with_immediate_and_a_bad_rkey_is_a_remote_access_error,
      .send = {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .flags = IBV_SEND_SIGNALED, .rkey = BAD_KEY, PIECE(0, 64)},
      ACCESS_ERROR)
FAULT(test_write_one_byte_beyond_the_region_is_a_remote_access_error,
      .send = WRITE_OF(.remote_addr = SIDE_BUFFER_BYTES - 63, PIECE(0, 64)), ACCESS_ERROR)
FAULT(test_write_one_byte_before_the_region_is_a_remote_access_error,
      .send = WRITE_OF(.remote_addr = -1ul, PIECE(0, 64)), ACCESS_ERROR)
FAULT(test_read_one_byte_beyond_the_region_is_a_remote_access_error,
      .send = READ_OF(.remote_addr = SIDE_BUFFER_BYTES - 63, PIECE(0, 64)), ACCESS_ERROR)
FAULT(test_read_far_outside_of_the_region_is_a_remote_access_error,
      .send = READ_OF(.remote_addr = 1ul << 63, PIECE(0, 64)), ACCESS_ERROR)
FAULT(test_write_to_a_region_without_remote_write_is_a_remote_access_error,
      .far = {.no_mr_access = IBV_ACCESS_REMOTE_WRITE}, .send = WRITE_OF(PIECE(0, 64)), ACCESS_ERROR)
FAULT(test_read_of_a_region_without_remote_read_is_a_remote_access_error,
      .far = {.no_mr_access = IBV_ACCESS_REMOTE_READ}, .send = READ_OF(PIECE(0, 64)), ACCESS_ERROR)

/* --- what the far queue pair does not offer is an invalid request */
#define INVALID_REQUEST                                                                                                \
	RECEIVE, .near_status = IBV_WC_REM_INV_REQ_ERR, .far_status = IBV_WC_WR_FLUSH_ERR, .far_state = IBV_QPS_ERR

FAULT(test_read_from_a_queue_pair_without_remote_read_is_an_invalid_request,
      .far = {.no_qp_access = IBV_ACCESS_REMOTE_READ}, .send = READ_OF(PIECE(0, 64)), INVALID_REQUEST)
FAULT(test_read_from_a_queue_pair_without_responder_resources_is_an_invalid_request, .far = {.responder_depth = 255},
      .send = READ_OF(PIECE(0, 64)), INVALID_REQUEST)

/* Not by fault(): its first request is a write. */
static void test_write_to_a_queue_pair_without_remote_write_is_an_invalid_request(void)
{
	struct sr w = WRITE_OF(PIECE(0, 64));
	TEST_BEGIN();
	if (!pair_open(&(struct side_options){0}, &(struct side_options){.no_qp_access = IBV_ACCESS_REMOTE_WRITE})) {
		return;
	}
	w.remote_addr = FAR_ADDR(0);
	w.rkey = FAR_RKEY;
	CU_ASSERT_EQUAL(post_send(&w), 0);
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_REM_INV_REQ_ERR);
	CU_ASSERT_EQUAL(FAR(qp_state, &(int){0}), IBV_QPS_ERR);
	pair_close();
}

/* --- the responder's program learns of it by an asynchronous event (11.6.3.3) */

static void far_event(struct sr w, const struct side_options *far, int event)
{
	if (!pair_open(&(struct side_options){0}, far)) {
		return;
	}
	w.remote_addr = FAR_ADDR(0);
	w.rkey = w.rkey != 0 ? w.rkey : FAR_RKEY;
	CU_ASSERT_EQUAL(post_send(&w), 0);
	CU_ASSERT_NOT_EQUAL(wait_send_wc().status, IBV_WC_SUCCESS);
	CU_ASSERT_EQUAL(FAR(async_event_of, &event), 0);
	pair_close();
}

static void test_remote_access_error_is_an_event_there(void)
{
	TEST_BEGIN();
	far_event((struct sr)WRITE_OF(.rkey = BAD_KEY, PIECE(0, 64)), NULL, IBV_EVENT_QP_ACCESS_ERR);
}

static void test_invalid_request_is_an_event_there(void)
{
	TEST_BEGIN();
	far_event((struct sr)READ_OF(PIECE(0, 64)), &(struct side_options){.responder_depth = 255},
		  IBV_EVENT_QP_REQ_ERR);
}

/* --- keys that were good once, or are good for others */

static long take_region_away(int *unused)
{
	int rc = ibv_dereg_mr(me.mr);
	me.mr = NULL;
	return -rc;
}

static void test_deregistered_region_is_a_remote_access_error(void)
{
	struct sr w = WRITE_OF(PIECE(0, 64));
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	w.remote_addr = FAR_ADDR(0);
	w.rkey = FAR_RKEY;
	CU_ASSERT_EQUAL(FAR(take_region_away, &(int){0}), 0);
	CU_ASSERT_EQUAL(post_send(&w), 0);
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_REM_ACCESS_ERR);
	pair_close();
}

static struct {
	struct ibv_pd *pd;
	struct ibv_mr *mr;
} other_domain;

static long region_of_other_domain(struct endpoint *e)
{
	other_domain.pd = ibv_alloc_pd(me.context);
	other_domain.mr = ibv_reg_mr(other_domain.pd, me.buf, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (other_domain.mr == NULL) {
		return -errno;
	}
	e->rkey = other_domain.mr->rkey;
	return 0;
}

static long close_other_domain(int *unused)
{
	int rc = ibv_dereg_mr(other_domain.mr);
	return -(rc != 0 ? rc : ibv_dealloc_pd(other_domain.pd));
}

static void test_rkey_of_another_protection_domain_is_a_remote_access_error(void)
{
	struct endpoint e;
	struct sr w = WRITE_OF(PIECE(0, 64));
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	CU_ASSERT_EQUAL(FAR(region_of_other_domain, &e), 0);
	w.remote_addr = FAR_ADDR(0);
	w.rkey = e.rkey;
	CU_ASSERT_EQUAL(post_send(&w), 0);
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_REM_ACCESS_ERR);
	CU_ASSERT_EQUAL(FAR(close_other_domain, &(int){0}), 0);
	pair_close();
}

static void test_lkey_of_another_protection_domain_is_a_local_protection_error(void)
{
	struct endpoint e;
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	CU_ASSERT_EQUAL(region_of_other_domain(&e), 0);
	struct sr s = SEND_OF(.n = 1, .p = {{0, 64, 0}});
	s.p[0].lkey = other_domain.mr->lkey;
	CU_ASSERT_EQUAL(post_send(&s), 0);
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_LOC_PROT_ERR);
	CU_ASSERT_EQUAL(close_other_domain(&(int){0}), 0);
	pair_close();
}

/* --- retries */

static void test_receiver_not_ready_is_retried_for_ever_with_rnr_retry_7(void)
{
	struct sr s = SEND_OF(PIECE(0, 64));
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	CU_ASSERT_EQUAL(post_send(&s), 0);
	/* Some round trips of others later it is still waiting. */
	for (int i = 0; i < 200; i++) {
		CU_ASSERT_EQUAL_FATAL(FAR(poll_wc, &((struct wcs){.n = 1})), 0);
	}
	CU_ASSERT_EQUAL(poll_wc(&(struct wcs){.n = 1}), 0);
	CU_ASSERT_EQUAL(FAR(post_recv, &((struct rr){PIECE(0, 64)})), 0);
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_SUCCESS);
	ASSERT_STATUS(far_recv_wc().status, IBV_WC_SUCCESS);
	pair_close();
}

static void rnr_exceeded(enum ibv_wr_opcode opcode, uint8_t rnr_retry)
{
	struct side_options o = {.rnr_retry = rnr_retry};
	struct sr s = SEND_OF(PIECE(0, 64)), w = WRITE_OF(PIECE(0, 64));
	if (!pair_open(&o, NULL)) {
		return;
	}
	s.opcode = opcode;
	w.remote_addr = s.remote_addr = FAR_ADDR(0);
	w.rkey = s.rkey = FAR_RKEY;
	CU_ASSERT_EQUAL(post_send(&s), 0);
	CU_ASSERT_EQUAL(post_send(&w), 0);
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_RNR_RETRY_EXC_ERR);
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_WR_FLUSH_ERR);
	CU_ASSERT_EQUAL(qp_state(&(int){0}), IBV_QPS_ERR);
	CU_ASSERT_EQUAL(FAR(qp_state, &(int){0}), IBV_QPS_RTS); /* not its error */
	pair_close();
}

static void test_receiver_not_ready_fails_at_once_with_rnr_retry_0(void)
{
	TEST_BEGIN();
	rnr_exceeded(IBV_WR_SEND, 8);
}

static void test_receiver_not_ready_fails_after_two_retries(void)
{
	TEST_BEGIN();
	rnr_exceeded(IBV_WR_SEND, 2);
}

static void test_write_with_immediate_needs_a_ready_receiver(void)
{
	TEST_BEGIN();
	rnr_exceeded(IBV_WR_RDMA_WRITE_WITH_IMM, 8);
}

static long destroy_qp(int *unused)
{
	int rc = ibv_destroy_qp(me.qp);
	me.qp = NULL;
	return -rc;
}

static void retry_exceeded(long (*far_leaves)(int *), int *arg)
{
	struct side_options o = {.timeout = 10, .retry = 1};
	struct sr w = WRITE_OF(PIECE(0, 64));
	if (!pair_open(&o, NULL)) {
		return;
	}
	CU_ASSERT_EQUAL(FAR(far_leaves, arg), 0);
	w.remote_addr = FAR_ADDR(0);
	w.rkey = FAR_RKEY;
	w.count = 3;
	CU_ASSERT_EQUAL(post_send(&w), 0);
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_RETRY_EXC_ERR);
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_WR_FLUSH_ERR);
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_WR_FLUSH_ERR);
	CU_ASSERT_EQUAL(qp_state(&(int){0}), IBV_QPS_ERR);
	pair_close();
}

static void test_destroyed_queue_pair_does_not_answer(void)
{
	TEST_BEGIN();
	retry_exceeded(destroy_qp, &(int){0});
}

static void test_queue_pair_in_reset_does_not_answer(void)
{
	TEST_BEGIN();
	retry_exceeded(qp_modify_state, &(int){IBV_QPS_RESET});
}

static void test_queue_pair_in_error_does_not_answer(void)
{
	TEST_BEGIN();
	retry_exceeded(qp_modify_state, &(int){IBV_QPS_ERR});
}

/* --- flushing */

static void test_error_state_flushes_both_queues_in_order(void)
{
	struct sr s = SEND_OF(PIECE(0, 64));
	TEST_BEGIN();
	if (!pair_open_plain()) { /* no receive there: the sends wait */
		return;
	}
	s.count = 10;
	s.flags = 0;
	CU_ASSERT_EQUAL(post_send(&s), 0);
	CU_ASSERT_EQUAL(post_recv(&(struct rr){.wr_id = 100, .count = 10, PIECE(0, 64)}), 0);
	CU_ASSERT_EQUAL(qp_modify_state(&(int){IBV_QPS_ERR}), 0);
	struct wcs sends = {.n = 10}, recvs = {.recv = true, .n = 10};
	CU_ASSERT_EQUAL(wait_wc(&sends), 10);
	CU_ASSERT_EQUAL(wait_wc(&recvs), 10);
	for (uint32_t i = 0; i < 10; i++) {
		ASSERT_STATUS(sends.wc[i].status, IBV_WC_WR_FLUSH_ERR);
		CU_ASSERT_EQUAL(sends.wc[i].wr_id, i);
		ASSERT_STATUS(recvs.wc[i].status, IBV_WC_WR_FLUSH_ERR);
		CU_ASSERT_EQUAL(recvs.wc[i].wr_id, 100 + i);
		CU_ASSERT_EQUAL(recvs.wc[i].qp_num, me.qp->qp_num);
	}
	pair_close();
}

static void test_work_posted_in_the_error_state_is_flushed(void)
{
	struct sr s = SEND_OF(PIECE(0, 64));
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	CU_ASSERT_EQUAL(qp_modify_state(&(int){IBV_QPS_ERR}), 0);
	for (uint64_t i = 0; i < 5; i++) {
		s.wr_id = i;
		CU_ASSERT_EQUAL(post_send(&s), 0);
		CU_ASSERT_EQUAL(post_recv(&(struct rr){.wr_id = 50 + i, PIECE(0, 64)}), 0);
		struct ibv_wc a = wait_send_wc(), b = wait_recv_wc();
		ASSERT_STATUS(a.status, IBV_WC_WR_FLUSH_ERR);
		CU_ASSERT_EQUAL(a.wr_id, i);
		ASSERT_STATUS(b.status, IBV_WC_WR_FLUSH_ERR);
		CU_ASSERT_EQUAL(b.wr_id, 50 + i);
	}
	pair_close();
}

static void test_completions_before_the_error_keep_their_status(void)
{
	struct sr w = WRITE_OF(PIECE(0, 64));
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	w.remote_addr = FAR_ADDR(0);
	w.rkey = FAR_RKEY;
	w.count = 5;
	CU_ASSERT_EQUAL(post_send(&w), 0);
	CU_ASSERT_EQUAL(FAR(post_recv, &((struct rr){PIECE(0, 64)})), 0);
	CU_ASSERT_EQUAL(post_send(&(struct sr){.opcode = IBV_WR_SEND}), 0);
	ASSERT_STATUS(far_recv_wc().status, IBV_WC_SUCCESS); /* so the writes before it are done */
	struct wcs all = {.n = 5};
	CU_ASSERT_EQUAL(wait_wc(&all), 5);
	CU_ASSERT_EQUAL(qp_modify_state(&(int){IBV_QPS_ERR}), 0);
	for (int i = 0; i < 5; i++) {
		ASSERT_STATUS(all.wc[i].status, IBV_WC_SUCCESS);
	}
	CU_ASSERT_EQUAL(poll_wc(&(struct wcs){.n = 1}), 0);
	pair_close();
}

static const struct unit_test tests[] = {
	UNIT(test_send_with_a_bad_lkey_is_a_local_protection_error),
	UNIT(test_send_beyond_the_region_is_a_local_protection_error),
	UNIT(test_send_before_the_region_is_a_local_protection_error),
	UNIT(test_write_with_a_bad_lkey_is_a_local_protection_error),
	UNIT(test_read_with_a_bad_lkey_is_a_local_protection_error),
	UNIT(test_read_into_a_region_without_local_write_is_a_local_protection_error),
	UNIT(test_read_with_no_initiator_depth_is_a_local_qp_operation_error),
	UNIT(test_send_longer_than_the_receive_is_a_local_length_error_there),
	UNIT(test_long_send_longer_than_the_receive_is_a_local_length_error_there),
	UNIT(test_receive_with_a_bad_lkey_is_a_local_protection_error_there),
	UNIT(test_receive_into_a_region_without_local_write_is_a_local_protection_error_there),
	UNIT(test_receive_beyond_the_region_is_a_local_protection_error_there),
	UNIT(test_write_with_a_bad_rkey_is_a_remote_access_error),
	UNIT(test_read_with_a_bad_rkey_is_a_remote_access_error),
	UNIT(test_write_with_immediate_and_a_bad_rkey_is_a_remote_access_error),
	UNIT(test_write_one_byte_beyond_the_region_is_a_remote_access_error),
	UNIT(test_write_one_byte_before_the_region_is_a_remote_access_error),
	UNIT(test_read_one_byte_beyond_the_region_is_a_remote_access_error),
	UNIT(test_read_far_outside_of_the_region_is_a_remote_access_error),
	UNIT(test_write_to_a_region_without_remote_write_is_a_remote_access_error),
	UNIT(test_read_of_a_region_without_remote_read_is_a_remote_access_error),
	UNIT(test_read_from_a_queue_pair_without_remote_read_is_an_invalid_request),
	UNIT(test_read_from_a_queue_pair_without_responder_resources_is_an_invalid_request),
	UNIT(test_write_to_a_queue_pair_without_remote_write_is_an_invalid_request),
	UNIT(test_remote_access_error_is_an_event_there),
	UNIT(test_invalid_request_is_an_event_there),
	UNIT(test_deregistered_region_is_a_remote_access_error),
	UNIT(test_rkey_of_another_protection_domain_is_a_remote_access_error),
	UNIT(test_lkey_of_another_protection_domain_is_a_local_protection_error),
	UNIT(test_receiver_not_ready_is_retried_for_ever_with_rnr_retry_7),
	UNIT(test_receiver_not_ready_fails_at_once_with_rnr_retry_0),
	UNIT(test_receiver_not_ready_fails_after_two_retries),
	UNIT(test_write_with_immediate_needs_a_ready_receiver),
	UNIT(test_destroyed_queue_pair_does_not_answer),
	UNIT(test_queue_pair_in_reset_does_not_answer),
	UNIT(test_queue_pair_in_error_does_not_answer),
	UNIT(test_error_state_flushes_both_queues_in_order),
	UNIT(test_work_posted_in_the_error_state_is_flushed),
	UNIT(test_completions_before_the_error_keep_their_status),
	UNIT_END,
};
SIDES_MAIN("softverbs_status", tests)

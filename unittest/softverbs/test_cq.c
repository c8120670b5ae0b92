/* SPDX-License-Identifier: BSD-3-Clause */
/* Completion queues and their channels, overflow, shared receive queues and their limit, asynchronous events. */
#include "unittest/softverbs/sides.h"

#include <errno.h>
#include <poll.h>

static struct sr send_empty(void)
{
	return (struct sr){.opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED};
}

/* The far side sends `count` messages without a word to us. */
static long far_sends(struct sr *s)
{
	long rc = post_send(s);
	uint32_t n = s->count != 0 ? s->count : 1;
	return rc != 0 ? rc : wait_wc(&(struct wcs){.n = n}) == (long)n ? 0 : -EIO;
}

static int channel_ready(int deadline_ms)
{
	return fd_wait(me.channel->fd, deadline_ms);
}

/* Takes one event off the channel and acknowledges it. */
static struct ibv_cq *take_event(void)
{
	struct ibv_cq *cq = NULL;
	void *context = NULL;
	if (ibv_get_cq_event(me.channel, &cq, &context) != 0) {
		return NULL;
	}
	ibv_ack_cq_events(cq, 1);
	return context == (cq == me.scq ? (void *)&me.scq : (void *)&me.rcq) ? cq : NULL;
}

static void test_creation_has_its_limits(void)
{
	struct ibv_device_attr d;
	TEST_BEGIN();
	CU_ASSERT_EQUAL(side_open_device(&(struct side_options){0}), 0);
	CU_ASSERT_EQUAL(ibv_query_device(me.context, &d), 0);
	CU_ASSERT_PTR_NULL(ibv_create_cq(me.context, 0, NULL, NULL, 0));
	CU_ASSERT_PTR_NULL(ibv_create_cq(me.context, -1, NULL, NULL, 0));
	CU_ASSERT_PTR_NULL(ibv_create_cq(me.context, d.max_cqe + 1, NULL, NULL, 0));
	CU_ASSERT_PTR_NULL(ibv_create_cq(me.context, 10, NULL, NULL, me.context->num_comp_vectors));
	struct ibv_cq *cq = ibv_create_cq(me.context, 10, &d, NULL, me.context->num_comp_vectors - 1);
	CU_ASSERT_PTR_NOT_NULL_FATAL(cq);
	CU_ASSERT_TRUE(cq->cqe >= 10);
	CU_ASSERT_PTR_EQUAL(cq->cq_context, &d);
	CU_ASSERT_EQUAL(ibv_destroy_cq(cq), 0);
	CU_ASSERT_EQUAL(side_close(&(int){0}), 0);
}

static void test_poll_takes_no_more_than_asked(void)
{
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	CU_ASSERT_EQUAL(poll_wc(&(struct wcs){.n = 4}), 0);
	CU_ASSERT_EQUAL(post_recv(&(struct rr){.count = 5}), 0);
	struct sr s = send_empty();
	s.count = 5;
	CU_ASSERT_EQUAL(FAR(far_sends, &s), 0);
	CU_ASSERT_EQUAL(wait_wc(&(struct wcs){.recv = true, .n = 1}), 1);
	CU_ASSERT_EQUAL(wait_wc(&(struct wcs){.recv = true, .n = 2}), 2);
	CU_ASSERT_EQUAL(wait_wc(&(struct wcs){.recv = true, .n = 2}), 2);
	CU_ASSERT_EQUAL(poll_wc(&(struct wcs){.recv = true, .n = 1}), 0);
	pair_close();
}

static void test_event_comes_only_when_asked_for_and_once(void)
{
	struct sr s = send_empty();
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	CU_ASSERT_EQUAL(post_recv(&(struct rr){.count = 4}), 0);
	CU_ASSERT_EQUAL(FAR(far_sends, &s), 0);
	CU_ASSERT_EQUAL(wait_recv_wc().status, IBV_WC_SUCCESS);
	CU_ASSERT_EQUAL(channel_ready(0), -ETIMEDOUT); /* nobody asked */

	CU_ASSERT_EQUAL(ibv_req_notify_cq(me.rcq, 0), 0);
	s.count = 3;
	CU_ASSERT_EQUAL(FAR(far_sends, &s), 0);
	CU_ASSERT_EQUAL(channel_ready(SIDE_DEADLINE_MS), 0);
	CU_ASSERT_PTR_EQUAL(take_event(), me.rcq);
	CU_ASSERT_EQUAL(wait_wc(&(struct wcs){.recv = true, .n = 3}), 3);
	CU_ASSERT_EQUAL(channel_ready(0), -ETIMEDOUT); /* one event for all three */
	pair_close();
}

static void test_each_queue_of_a_channel_tells_for_itself(void)
{
	struct sr s = send_empty();
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	CU_ASSERT_EQUAL(post_recv(&(struct rr){.count = 1}), 0);
	CU_ASSERT_EQUAL(FAR(post_recv, &((struct rr){.count = 1})), 0);
	CU_ASSERT_EQUAL(ibv_req_notify_cq(me.scq, 0), 0);
	CU_ASSERT_EQUAL(ibv_req_notify_cq(me.rcq, 0), 0);
	CU_ASSERT_EQUAL(post_send(&s), 0);
	CU_ASSERT_EQUAL(channel_ready(SIDE_DEADLINE_MS), 0);
	CU_ASSERT_PTR_EQUAL(take_event(), me.scq);
	CU_ASSERT_EQUAL(FAR(far_sends, &s), 0);
	CU_ASSERT_EQUAL(channel_ready(SIDE_DEADLINE_MS), 0);
	CU_ASSERT_PTR_EQUAL(take_event(), me.rcq);
	pair_close();
}

static void test_nonblocking_channel_has_nothing_to_say(void)
{
	struct ibv_cq *cq;
	void *context;
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	CU_ASSERT_EQUAL(fd_nonblocking(me.channel->fd), 0);
	CU_ASSERT_EQUAL(ibv_get_cq_event(me.channel, &cq, &context), -1);
	CU_ASSERT_EQUAL(errno, EAGAIN);
	pair_close();
}

/* The usual loop: arm, poll once more, sleep. No message may be missed, however the far side's sends fall. */
static void receive_armed(uint32_t wanted)
{
	while (wanted > 0) {
		struct wcs w = {.recv = true, .n = wanted};
		CU_ASSERT_EQUAL(ibv_req_notify_cq(me.rcq, 0), 0);
		long n = poll_wc(&w);
		if (n == 0) {
			CU_ASSERT_EQUAL_FATAL(channel_ready(SIDE_DEADLINE_MS), 0);
			CU_ASSERT_PTR_EQUAL_FATAL(take_event(), me.rcq);
			n = poll_wc(&w); /* none, if the event was of messages that were polled before it was seen */
		}
		CU_ASSERT_TRUE_FATAL(n >= 0);
		wanted -= (uint32_t)n;
	}
}

static void test_armed_loop_misses_nothing(void)
{
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	for (int i = 0; i < 50; i++) {
		struct sr s = send_empty();
		s.count = 4;
		CU_ASSERT_EQUAL(post_recv(&(struct rr){.count = 4}), 0);
		CU_ASSERT_EQUAL(FAR_BEGIN(far_sends, &s), 0);
		receive_armed(4);
		CU_ASSERT_EQUAL(FAR_END(&s), 0);
	}
	CU_ASSERT_EQUAL(poll_wc(&(struct wcs){.recv = true, .n = 1}), 0);
	pair_close();
}

static void test_solicited_only_waits_for_a_solicited_message(void)
{
	struct sr s = send_empty();
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	CU_ASSERT_EQUAL(post_recv(&(struct rr){.count = 4}), 0);
	CU_ASSERT_EQUAL(ibv_req_notify_cq(me.rcq, 1), 0);
	CU_ASSERT_EQUAL(FAR(far_sends, &s), 0);
	ASSERT_STATUS(wait_recv_wc().status, IBV_WC_SUCCESS);
	CU_ASSERT_EQUAL(channel_ready(0), -ETIMEDOUT);
	s.flags |= IBV_SEND_SOLICITED;
	CU_ASSERT_EQUAL(FAR(far_sends, &s), 0);
	CU_ASSERT_EQUAL(channel_ready(SIDE_DEADLINE_MS), 0);
	CU_ASSERT_PTR_EQUAL(take_event(), me.rcq);
	ASSERT_STATUS(wait_recv_wc().status, IBV_WC_SUCCESS);
	pair_close();
}

static void test_solicited_only_wakes_for_an_error(void)
{
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	CU_ASSERT_EQUAL(post_recv(&(struct rr){.count = 1}), 0);
	CU_ASSERT_EQUAL(ibv_req_notify_cq(me.rcq, 1), 0);
	CU_ASSERT_EQUAL(qp_modify_state(&(int){IBV_QPS_ERR}), 0);
	CU_ASSERT_EQUAL(channel_ready(SIDE_DEADLINE_MS), 0);
	CU_ASSERT_PTR_EQUAL(take_event(), me.rcq);
	ASSERT_STATUS(wait_recv_wc().status, IBV_WC_WR_FLUSH_ERR);
	pair_close();
}

static void test_resize_keeps_what_is_in_the_queue(void)
{
	struct sr s = send_empty();
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	CU_ASSERT_EQUAL(post_recv(&(struct rr){.wr_id = 10, .count = 6}), 0);
	s.count = 6;
	CU_ASSERT_EQUAL(FAR(far_sends, &s), 0);
	CU_ASSERT_EQUAL(wait_recv_wc().wr_id, 10);
	int rc = ibv_resize_cq(me.rcq, 1000);
	if (rc == EOPNOTSUPP || rc == ENOSYS) {
		pair_close();
		UNIT_SKIP("the device does not resize completion queues");
	}
	CU_ASSERT_EQUAL(rc, 0);
	CU_ASSERT_TRUE(me.rcq->cqe >= 1000);
	for (uint64_t i = 1; i < 6; i++) {
		CU_ASSERT_EQUAL(wait_recv_wc().wr_id, 10 + i);
	}
	pair_close();
}

/* IBTA volume 1, 11.6.3.2: a queue that overflows is in error, and so are the queue pairs that complete there. */
static void test_overflow_is_an_event(void)
{
	struct sr w = {.opcode = IBV_WR_RDMA_WRITE, .flags = IBV_SEND_SIGNALED, .n = 1, .p = {{0, 8, 0}}};
	TEST_BEGIN();
	if (!pair_open(&(struct side_options){.cqe = 4, .send_wr = 512}, &(struct side_options){0})) {
		return;
	}
	w.remote_addr = FAR_ADDR(0);
	w.rkey = FAR_RKEY;
	for (int i = 0; i <= me.scq->cqe + 1; i++) {
		if (post_send(&w) != 0) {
			break; /* already in error */
		}
	}
	CU_ASSERT_EQUAL(async_event_of(&(int){IBV_EVENT_CQ_ERR}), 0);
	pair_close();
}

/* --- shared receive queues */

static struct side_options with_srq(void)
{
	return (struct side_options){.srq = true};
}

static long make_extra_qp(struct endpoint *e)
{
	struct ibv_qp_init_attr a;
	qp_init_attr(&a, &me.options);
	me.extra_qp = ibv_create_qp(me.pd, &a);
	e->qpn = me.extra_qp != NULL ? me.extra_qp->qp_num : 0;
	return me.extra_qp == NULL ? -errno : qp_to_init(me.extra_qp, &me.options);
}

static long connect_extra_qp(struct endpoint *other)
{
	int rc = qp_to_rtr(me.extra_qp, &me.options, other);
	return rc != 0 ? rc : qp_to_rts(me.extra_qp, &me.options);
}

/* A second connection beside the first, on the same queues. */
static bool second_connection(void)
{
	struct endpoint here, there;
	side_endpoint(&here);
	there = me.other;
	bool good = make_extra_qp(&here) == 0 && FAR(make_extra_qp, &there) == 0 && connect_extra_qp(&there) == 0 &&
		    FAR(connect_extra_qp, &here) == 0;
	CU_ASSERT_TRUE(good);
	return good;
}

static void test_shared_queue_serves_two_queue_pairs_in_order(void)
{
	struct sr s = send_empty();
	struct side_options o = with_srq();
	TEST_BEGIN();
	if (!pair_open(&o, &(struct side_options){0}) || !second_connection()) {
		return;
	}
	CU_ASSERT_EQUAL(post_recv(&(struct rr){.wr_id = 1, .count = 10, .n = 1, .p = {{0, 64, 0}}}), 0);
	for (uint64_t i = 0; i < 10; i++) {
		s.extra = i % 3 == 1;
		CU_ASSERT_EQUAL(FAR(far_sends, &s), 0);
		struct ibv_wc r = wait_recv_wc();
		ASSERT_STATUS(r.status, IBV_WC_SUCCESS);
		CU_ASSERT_EQUAL(r.wr_id, 1 + i);
		CU_ASSERT_EQUAL(r.qp_num, s.extra ? me.extra_qp->qp_num : me.qp->qp_num);
	}
	pair_close();
}

static void test_no_queue_pair_waits_until_another_has_nothing_more(void)
{
	struct sr s = send_empty();
	struct side_options o = with_srq();
	TEST_BEGIN();
	if (!pair_open(&o, &(struct side_options){0}) || !second_connection()) {
		return;
	}
	CU_ASSERT_EQUAL(post_recv(&(struct rr){.count = 64, .n = 1, .p = {{0, 64, 0}}}), 0);
	for (int i = 0; i < 64; i++) {
		s.extra = i % 2 == 1;
		CU_ASSERT_EQUAL(FAR(far_sends, &s), 0);
	}
	struct wcs w = {.recv = true, .n = 32};
	for (int half = 0; half < 2; half++) {
		uint32_t extra = 0;
		CU_ASSERT_EQUAL(wait_wc(&w), 32);
		for (uint32_t i = 0; i < 32; i++) {
			extra += w.wc[i].qp_num == me.extra_qp->qp_num;
		}
		CU_ASSERT_TRUE(extra >= 11 && extra <= 21); /* a third of them at least */
	}
	pair_close();
}

static void test_shared_queue_outlives_a_queue_pair_in_error(void)
{
	struct sr s = send_empty();
	struct side_options o = with_srq();
	TEST_BEGIN();
	if (!pair_open(&o, &(struct side_options){0}) || !second_connection()) {
		return;
	}
	CU_ASSERT_EQUAL(post_recv(&(struct rr){.wr_id = 1, .count = 3, .n = 1, .p = {{0, 64, 0}}}), 0);
	CU_ASSERT_EQUAL(qp_modify_state(&(int){IBV_QPS_ERR}), 0);
	s.extra = true;
	CU_ASSERT_EQUAL(FAR(far_sends, &s), 0);
	CU_ASSERT_EQUAL(wait_recv_wc().wr_id, 1); /* nothing of the queue was flushed */
	pair_close();
}

/* Both sides: the queue pair of before goes, a new one comes, connected to the other's. */
static void new_queue_pairs(struct side_options *o)
{
	struct endpoint here, there;
	CU_ASSERT_EQUAL(FAR(side_close, &(int){0}), 0);
	CU_ASSERT_EQUAL(ibv_destroy_qp(me.qp), 0);
	me.qp = NULL;
	CU_ASSERT_EQUAL(side_create_qp(o), 0);
	CU_ASSERT_EQUAL(FAR(side_open, o), 0);
	CU_ASSERT_EQUAL(side_endpoint(&here), 0);
	CU_ASSERT_EQUAL(FAR(side_endpoint, &there), 0);
	CU_ASSERT_EQUAL(side_connect(&there), 0);
	CU_ASSERT_EQUAL(FAR(side_connect, &here), 0);
}

static void test_messages_that_nobody_polled_give_their_room_back_with_the_queue_pair(void)
{
	struct side_options o = {.srq = true, .srq_wr = 8, .cqe = 8};
	struct sr s = {.opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED, .count = 8};
	TEST_BEGIN();
	if (!pair_open(&o, &(struct side_options){0})) {
		return;
	}
	for (int round = 0; round < 3; round++) {
		CU_ASSERT_EQUAL(post_recv(&(struct rr){.count = 8, .n = 1, .p = {{0, 64, 0}}}), 0);
		CU_ASSERT_EQUAL(FAR(far_sends, &s), 0);
		new_queue_pairs(&o);
	}
	CU_ASSERT_EQUAL(post_recv(&(struct rr){.count = 8, .n = 1, .p = {{0, 64, 0}}}), 0);
	CU_ASSERT_EQUAL(FAR(far_sends, &s), 0);
	struct wcs w = {.recv = true, .n = 8};
	CU_ASSERT_EQUAL(wait_wc(&w), 8);
	for (uint32_t i = 0; i < 8; i++) {
		ASSERT_STATUS(w.wc[i].status, IBV_WC_SUCCESS);
	}
	pair_close();
}

static void test_last_work_reached_is_an_event(void)
{
	struct side_options o = with_srq();
	TEST_BEGIN();
	if (!pair_open(&o, &(struct side_options){0})) {
		return;
	}
	CU_ASSERT_EQUAL(qp_modify_state(&(int){IBV_QPS_ERR}), 0);
	CU_ASSERT_EQUAL(async_event_of(&(int){IBV_EVENT_QP_LAST_WQE_REACHED}), 0);
	pair_close();
}

static void test_empty_shared_queue_is_not_ready(void)
{
	struct side_options far = with_srq();
	struct sr s = send_empty();
	TEST_BEGIN();
	if (!pair_open(&(struct side_options){.rnr_retry = 8}, &far)) {
		return;
	}
	CU_ASSERT_EQUAL(post_send(&s), 0);
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_RNR_RETRY_EXC_ERR);
	pair_close();
}

static void test_shared_queue_is_full_at_its_size(void)
{
	struct side_options o = {.srq = true, .srq_wr = 16};
	uint32_t accepted = 0;
	long rc = 0;
	TEST_BEGIN();
	if (!pair_open(&o, &(struct side_options){0})) {
		return;
	}
	while (rc == 0 && accepted < 1000) {
		struct rr r = {.count = 3};
		rc = post_recv(&r);
		accepted += r.posted;
	}
	CU_ASSERT_EQUAL(rc, ENOMEM);
	CU_ASSERT_TRUE(accepted >= 16 && accepted < 1000);
	pair_close();
}

static void test_limit_is_one_event_when_the_queue_falls_below(void)
{
	struct side_options o = with_srq();
	struct ibv_srq_attr a = {.srq_limit = 4};
	struct sr s = send_empty();
	TEST_BEGIN();
	if (!pair_open(&o, &(struct side_options){0})) {
		return;
	}
	CU_ASSERT_EQUAL(post_recv(&(struct rr){.count = 6}), 0);
	for (int round = 0; round < 2; round++) { /* armed again it tells again */
		CU_ASSERT_EQUAL(ibv_modify_srq(me.srq, &a, IBV_SRQ_LIMIT), 0);
		CU_ASSERT_EQUAL(ibv_query_srq(me.srq, &a), 0);
		CU_ASSERT_EQUAL(a.srq_limit, 4);
		s.count = 2; /* four are left: not below the limit */
		CU_ASSERT_EQUAL(FAR(far_sends, &s), 0);
		CU_ASSERT_EQUAL(wait_wc(&(struct wcs){.recv = true, .n = 2}), 2);
		CU_ASSERT_EQUAL(async_event(&(int){0}), -ETIMEDOUT);
		s.count = 1;
		CU_ASSERT_EQUAL(FAR(far_sends, &s), 0);
		CU_ASSERT_EQUAL(async_event_of(&(int){IBV_EVENT_SRQ_LIMIT_REACHED}), 0);
		CU_ASSERT_EQUAL(FAR(far_sends, &s), 0);
		CU_ASSERT_EQUAL(wait_wc(&(struct wcs){.recv = true, .n = 2}), 2);
		CU_ASSERT_EQUAL(async_event(&(int){0}), -ETIMEDOUT); /* once */
		CU_ASSERT_EQUAL(ibv_query_srq(me.srq, &a), 0);
		CU_ASSERT_EQUAL(a.srq_limit, 0);
		a.srq_limit = 4;
		CU_ASSERT_EQUAL(post_recv(&(struct rr){.count = 4}), 0); /* six again */
	}
	pair_close();
}

static void test_limit_beyond_the_queue_is_refused(void)
{
	struct side_options o = with_srq();
	struct ibv_srq_attr a;
	TEST_BEGIN();
	if (!pair_open(&o, &(struct side_options){0})) {
		return;
	}
	CU_ASSERT_EQUAL(ibv_query_srq(me.srq, &a), 0);
	CU_ASSERT_TRUE(a.max_wr >= 64 && a.max_sge >= 4);
	a.srq_limit = a.max_wr + 1;
	CU_ASSERT_NOT_EQUAL(ibv_modify_srq(me.srq, &a, IBV_SRQ_LIMIT), 0);
	pair_close();
}

/* --- asynchronous events */

static void test_nonblocking_device_has_no_event(void)
{
	struct ibv_async_event e;
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	struct pollfd p = {.fd = me.context->async_fd, .events = POLLIN};
	CU_ASSERT_EQUAL(poll(&p, 1, 0), 0);
	CU_ASSERT_EQUAL(fd_nonblocking(me.context->async_fd), 0);
	CU_ASSERT_EQUAL(ibv_get_async_event(me.context, &e), -1);
	CU_ASSERT_EQUAL(errno, EAGAIN);
	pair_close();
}

static const struct unit_test tests[] = {
	UNIT(test_creation_has_its_limits),
	UNIT(test_poll_takes_no_more_than_asked),
	UNIT(test_event_comes_only_when_asked_for_and_once),
	UNIT(test_each_queue_of_a_channel_tells_for_itself),
	UNIT(test_nonblocking_channel_has_nothing_to_say),
	UNIT(test_armed_loop_misses_nothing),
	UNIT(test_solicited_only_waits_for_a_solicited_message),
	UNIT(test_solicited_only_wakes_for_an_error),
	UNIT(test_resize_keeps_what_is_in_the_queue),
	UNIT(test_overflow_is_an_event),
	UNIT(test_shared_queue_serves_two_queue_pairs_in_order),
	UNIT(test_no_queue_pair_waits_until_another_has_nothing_more),
	UNIT(test_shared_queue_outlives_a_queue_pair_in_error),
	UNIT(test_messages_that_nobody_polled_give_their_room_back_with_the_queue_pair),
	UNIT(test_last_work_reached_is_an_event),
	UNIT(test_empty_shared_queue_is_not_ready),
	UNIT(test_shared_queue_is_full_at_its_size),
	UNIT(test_limit_is_one_event_when_the_queue_falls_below),
	UNIT(test_limit_beyond_the_queue_is_refused),
	UNIT(test_nonblocking_device_has_no_event),
	UNIT_END,
};
SIDES_MAIN("softverbs_cq", tests)

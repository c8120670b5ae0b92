/* SPDX-License-Identifier: BSD-3-Clause */
/* The queue pair's state machine (IBTA volume 1, 10.3.1 and 11.2.5.2): each legal step works, each illegal
 * one is refused and changes nothing; what each state lets the program post; what the queries say. */
#include "unittest/softverbs/sides.h"

#include <errno.h>

#define STATES (IBV_QPS_ERR + 1)

static const char *const state_name[STATES] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};

static const bool legal[STATES][STATES] = {
	/*                 RESET  INIT   RTR    RTS    SQD    SQE    ERR */
	[IBV_QPS_RESET] = {true, true, false, false, false, false, true},
	[IBV_QPS_INIT] = {true, true, true, false, false, false, true},
	[IBV_QPS_RTR] = {true, false, false, true, false, false, true},
	[IBV_QPS_RTS] = {true, false, false, true, true, false, true},
	[IBV_QPS_SQD] = {true, false, false, true, true, false, true},
	[IBV_QPS_ERR] = {true, false, false, false, false, false, true},
};

/* The steps with attributes: what must be given, and what may be. */
static const struct step {
	enum ibv_qp_state from, to;
	int required, optional;
} steps[] = {
	{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
	{IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
	{IBV_QPS_INIT, IBV_QPS_RTR,
	 IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
		 IBV_QP_MIN_RNR_TIMER,
	 IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
	{IBV_QPS_RTR, IBV_QPS_RTS,
	 IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
	 IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE},
	{IBV_QPS_RTS, IBV_QPS_RTS, 0,
	 IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE | IBV_QP_MIN_RNR_TIMER},
	{IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
	{IBV_QPS_SQD, IBV_QPS_RTS, 0,
	 IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE | IBV_QP_MIN_RNR_TIMER},
};
enum { STEPS = sizeof(steps) / sizeof(steps[0]) };

/* Every attribute that the verb knows, with a value that would do. */
static void fill_attr(struct ibv_qp_attr *a)
{
	struct ibv_qp_attr init, rtr, rts;
	struct endpoint self;
	side_endpoint(&self);
	qp_attr_init(&init, &me.options);
	qp_attr_rtr(&rtr, &me.options, &self);
	qp_attr_rts(&rts, &me.options);
	*a = rtr;
	a->port_num = init.port_num;
	a->pkey_index = init.pkey_index;
	a->qp_access_flags = init.qp_access_flags;
	a->timeout = rts.timeout;
	a->retry_cnt = rts.retry_cnt;
	a->rnr_retry = rts.rnr_retry;
	a->sq_psn = rts.sq_psn;
	a->max_rd_atomic = rts.max_rd_atomic;
}

static int required_of(enum ibv_qp_state from, enum ibv_qp_state to)
{
	for (int i = 0; i < STEPS; i++) {
		if (steps[i].from == from && steps[i].to == to) {
			return steps[i].required;
		}
	}
	return 0;
}

static int modify(enum ibv_qp_state to, int mask)
{
	struct ibv_qp_attr a;
	fill_attr(&a);
	a.qp_state = to;
	return ibv_modify_qp(me.qp, &a, mask | IBV_QP_STATE);
}

/* Walks me.qp from RESET to the state. */
static int walk_to(enum ibv_qp_state to)
{
	static const enum ibv_qp_state path[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD};
	int rc = modify(IBV_QPS_RESET, 0);
	for (int i = 1; rc == 0 && path[i - 1] != to; i++) {
		if (to == IBV_QPS_ERR && path[i - 1] == IBV_QPS_INIT) {
			return modify(IBV_QPS_ERR, 0);
		}
		rc = modify(path[i], required_of(path[i - 1], path[i]));
	}
	return rc;
}

static bool open_one(void)
{
	long rc = side_open(&(struct side_options){0});
	CU_ASSERT_EQUAL(rc, 0);
	return rc == 0;
}

static void close_one(void)
{
	CU_ASSERT_EQUAL(side_close(&(int){0}), 0);
}

/* Fails the test with the row that failed; known differences are rows "test: row". */
static void row_failed(const char *test, const char *row)
{
	char name[256];
	snprintf(name, sizeof(name), "%s: %s", test, row);
	const char *why = known_difference(name);
	printf("%s %s%s%s\n", why ? "SKIP" : "#", name, why ? ": " : " is wrong", why ? why : "");
	if (why == NULL) {
		CU_FAIL("a row of the table (above)");
	}
}

static void test_each_step_is_allowed_or_refused_as_specified(void)
{
	char row[64];
	TEST_BEGIN();
	if (!open_one()) {
		return;
	}
	for (enum ibv_qp_state from = IBV_QPS_RESET; from < STATES; from++) {
		for (enum ibv_qp_state to = IBV_QPS_RESET; from != IBV_QPS_SQE && to < STATES; to++) {
			if (from == IBV_QPS_RESET && to == IBV_QPS_ERR) {
				continue; /* the specification has it, Linux refuses it for all devices */
			}
			CU_ASSERT_EQUAL_FATAL(walk_to(from), 0);
			CU_ASSERT_EQUAL_FATAL(qp_state(&(int){0}), from);
			/* From a state without this step, the attributes that it needs from where it
			 * exists. */
			int mask = required_of(from, to);
			for (int i = 0; mask == 0 && i < STEPS; i++) {
				mask = steps[i].to == to && !legal[from][to] ? steps[i].required : 0;
			}
			int rc = modify(to, mask);
			long now = qp_state(&(int){0});
			if (legal[from][to] ? rc != 0 || now != (long)to : rc != EINVAL || now != (long)from) {
				snprintf(row, sizeof(row), "%s to %s", state_name[from], state_name[to]);
				row_failed(__func__, row);
			}
		}
	}
	close_one();
}

static void test_step_without_a_required_attribute_is_refused(void)
{
	char row[64];
	TEST_BEGIN();
	if (!open_one()) {
		return;
	}
	for (int i = 0; i < STEPS; i++) {
		for (int bit = 1; bit <= IBV_QP_RATE_LIMIT; bit <<= 1) {
			if (!(steps[i].required & bit)) {
				continue;
			}
			CU_ASSERT_EQUAL_FATAL(walk_to(steps[i].from), 0);
			if (modify(steps[i].to, steps[i].required & ~bit) != EINVAL ||
			    qp_state(&(int){0}) != (long)steps[i].from) {
				snprintf(row, sizeof(row), "%s to %s without 0x%x", state_name[steps[i].from],
					 state_name[steps[i].to], bit);
				row_failed(__func__, row);
			}
		}
	}
	close_one();
}

static void test_step_with_a_foreign_attribute_is_refused(void)
{
	char row[64];
	TEST_BEGIN();
	if (!open_one()) {
		return;
	}
	for (int i = 0; i < STEPS; i++) {
		for (int bit = IBV_QP_ACCESS_FLAGS; bit <= IBV_QP_DEST_QPN; bit <<= 1) {
			if ((steps[i].required | steps[i].optional) & bit) {
				continue;
			}
			CU_ASSERT_EQUAL_FATAL(walk_to(steps[i].from), 0);
			if (modify(steps[i].to, steps[i].required | bit) != EINVAL ||
			    qp_state(&(int){0}) != (long)steps[i].from) {
				snprintf(row, sizeof(row), "%s to %s with 0x%x", state_name[steps[i].from],
					 state_name[steps[i].to], bit);
				row_failed(__func__, row);
			}
		}
	}
	close_one();
}

static void test_current_state_that_is_not_the_current_one_is_refused(void)
{
	struct ibv_qp_attr a;
	TEST_BEGIN();
	if (!open_one()) {
		return;
	}
	CU_ASSERT_EQUAL(walk_to(IBV_QPS_RTS), 0);
	fill_attr(&a);
	a.qp_state = IBV_QPS_RTS;
	a.cur_qp_state = IBV_QPS_RTS;
	CU_ASSERT_EQUAL(ibv_modify_qp(me.qp, &a, IBV_QP_STATE | IBV_QP_CUR_STATE), 0);
	a.cur_qp_state = IBV_QPS_INIT;
	CU_ASSERT_EQUAL(ibv_modify_qp(me.qp, &a, IBV_QP_STATE | IBV_QP_CUR_STATE), EINVAL);
	CU_ASSERT_EQUAL(qp_state(&(int){0}), IBV_QPS_RTS);
	close_one();
}

/* --- values out of range */

static void port_0(struct ibv_qp_attr *a)
{
	a->port_num = 0;
}
static void port_2(struct ibv_qp_attr *a)
{
	a->port_num = 2;
}
static void pkey_index_60000(struct ibv_qp_attr *a)
{
	a->pkey_index = 60000;
}
static void mtu_0(struct ibv_qp_attr *a)
{
	a->path_mtu = (enum ibv_mtu)0;
}
static void mtu_9(struct ibv_qp_attr *a)
{
	a->path_mtu = (enum ibv_mtu)9;
}
static void dest_rd_atomic_255(struct ibv_qp_attr *a)
{
	a->max_dest_rd_atomic = 255;
}
static void rnr_timer_32(struct ibv_qp_attr *a)
{
	a->min_rnr_timer = 32;
}
static void sgid_index_250(struct ibv_qp_attr *a)
{
	a->ah_attr.is_global = 1;
	a->ah_attr.grh.sgid_index = 250;
}
static void rd_atomic_255(struct ibv_qp_attr *a)
{
	a->max_rd_atomic = 255;
}
static void timeout_32(struct ibv_qp_attr *a)
{
	a->timeout = 32;
}
static void retry_8(struct ibv_qp_attr *a)
{
	a->retry_cnt = 8;
}
static void rnr_retry_8(struct ibv_qp_attr *a)
{
	a->rnr_retry = 8;
}

static void test_value_out_of_range_is_refused(void)
{
	static const struct {
		const char *name;
		enum ibv_qp_state from, to;
		void (*spoil)(struct ibv_qp_attr *);
	} rows[] = {
		{"port 0", IBV_QPS_RESET, IBV_QPS_INIT, port_0},
		{"port 2", IBV_QPS_RESET, IBV_QPS_INIT, port_2},
		{"pkey index 60000", IBV_QPS_RESET, IBV_QPS_INIT, pkey_index_60000},
		{"mtu 0", IBV_QPS_INIT, IBV_QPS_RTR, mtu_0},
		{"mtu 9", IBV_QPS_INIT, IBV_QPS_RTR, mtu_9},
		{"responder resources 255", IBV_QPS_INIT, IBV_QPS_RTR, dest_rd_atomic_255},
		{"rnr timer 32", IBV_QPS_INIT, IBV_QPS_RTR, rnr_timer_32},
		{"gid index 250", IBV_QPS_INIT, IBV_QPS_RTR, sgid_index_250},
		{"initiator depth 255", IBV_QPS_RTR, IBV_QPS_RTS, rd_atomic_255},
		{"timeout 32", IBV_QPS_RTR, IBV_QPS_RTS, timeout_32},
		{"retry count 8", IBV_QPS_RTR, IBV_QPS_RTS, retry_8},
		{"rnr retry 8", IBV_QPS_RTR, IBV_QPS_RTS, rnr_retry_8},
	};
	struct ibv_qp_attr a;
	TEST_BEGIN();
	if (!open_one()) {
		return;
	}
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		CU_ASSERT_EQUAL_FATAL(walk_to(rows[i].from), 0);
		fill_attr(&a);
		a.qp_state = rows[i].to;
		rows[i].spoil(&a);
		if (ibv_modify_qp(me.qp, &a, IBV_QP_STATE | required_of(rows[i].from, rows[i].to)) == 0 ||
		    qp_state(&(int){0}) != (long)rows[i].from) {
			row_failed(__func__, rows[i].name);
		}
	}
	close_one();
}

/* --- posting */

static void test_each_state_lets_post_what_it_should(void)
{
	static const struct {
		enum ibv_qp_state state;
		bool send, recv;
	} rows[] = {
		{IBV_QPS_RESET, false, false}, {IBV_QPS_INIT, false, true}, {IBV_QPS_RTR, false, true},
		{IBV_QPS_RTS, true, true},     {IBV_QPS_SQD, true, true},   {IBV_QPS_ERR, true, true},
	};
	char row[32];
	TEST_BEGIN();
	if (!open_one()) {
		return;
	}
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		CU_ASSERT_EQUAL_FATAL(walk_to(rows[i].state), 0);
		struct sr s = {.opcode = IBV_WR_RDMA_WRITE, .remote_addr = (uintptr_t)me.buf, .rkey = me.mr->rkey};
		long send = post_send(&s), recv = post_recv(&(struct rr){.n = 0});
		if ((send == 0) != rows[i].send) {
			snprintf(row, sizeof(row), "send in %s", state_name[rows[i].state]);
			row_failed(__func__, row);
		}
		if ((recv == 0) != rows[i].recv) {
			snprintf(row, sizeof(row), "receive in %s", state_name[rows[i].state]);
			row_failed(__func__, row);
		}
	}
	close_one();
}

static void test_ready_to_receive_receives(void)
{
	struct endpoint here, there;
	TEST_BEGIN();
	if (!open_one()) {
		return;
	}
	CU_ASSERT_EQUAL(FAR(side_open, &((struct side_options){0})), 0);
	side_endpoint(&here);
	FAR(side_endpoint, &there);
	CU_ASSERT_EQUAL(post_recv(&(struct rr){.n = 1, .p = {{0, 64, 0}}}), 0); /* already in INIT */
	CU_ASSERT_EQUAL(qp_to_rtr(me.qp, &me.options, &there), 0);
	CU_ASSERT_EQUAL(FAR(side_connect, &here), 0);
	CU_ASSERT_EQUAL(FAR(post_send, &((struct sr){.opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED})), 0);
	ASSERT_STATUS(wait_recv_wc().status, IBV_WC_SUCCESS);
	ASSERT_STATUS(far_send_wc().status, IBV_WC_SUCCESS);
	CU_ASSERT_EQUAL(qp_state(&(int){0}), IBV_QPS_RTR);
	CU_ASSERT_EQUAL(FAR(side_close, &(int){0}), 0);
	close_one();
}

static void test_reset_forgets_what_was_posted(void)
{
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	CU_ASSERT_EQUAL(post_recv(&(struct rr){.count = 8, .n = 1, .p = {{0, 64, 0}}}), 0);
	CU_ASSERT_EQUAL(post_send(&(struct sr){.opcode = IBV_WR_SEND, .count = 8}), 0);
	CU_ASSERT_EQUAL(qp_modify_state(&(int){IBV_QPS_RESET}), 0);
	CU_ASSERT_EQUAL(poll_wc(&(struct wcs){.n = 8}), 0);
	CU_ASSERT_EQUAL(poll_wc(&(struct wcs){.recv = true, .n = 8}), 0);
	CU_ASSERT_EQUAL(qp_state(&(int){0}), IBV_QPS_RESET);
	pair_close();
}

static long reset_to_init(int *unused)
{
	int rc = (int)qp_modify_state(&(int){IBV_QPS_RESET});
	return rc != 0 ? rc : qp_to_init(me.qp, &me.options);
}

static void test_queue_pair_works_again_after_error_and_reset(void)
{
	struct endpoint here, there;
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	for (int i = 0; i < 3; i++) {
		CU_ASSERT_EQUAL(qp_modify_state(&(int){IBV_QPS_ERR}), 0);
		CU_ASSERT_EQUAL(reset_to_init(&(int){0}), 0);
		CU_ASSERT_EQUAL(FAR(reset_to_init, &(int){0}), 0);
		side_endpoint(&here);
		FAR(side_endpoint, &there);
		CU_ASSERT_EQUAL(side_connect(&there), 0);
		CU_ASSERT_EQUAL(FAR(side_connect, &here), 0);
		CU_ASSERT_EQUAL(FAR(post_recv, &((struct rr){.n = 1, .p = {{0, 64, 0}}})), 0);
		CU_ASSERT_EQUAL(post_send(&(struct sr){.opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED}), 0);
		ASSERT_STATUS(wait_send_wc().status, IBV_WC_SUCCESS);
		ASSERT_STATUS(far_recv_wc().status, IBV_WC_SUCCESS);
	}
	pair_close();
}

static void test_drained_send_queue_goes_on_after_rts(void)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
	struct sr w = {.opcode = IBV_WR_RDMA_WRITE, .flags = IBV_SEND_SIGNALED, .wr_id = 1, .n = 1, .p = {{0, 64, 0}}};
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	w.remote_addr = FAR_ADDR(0);
	w.rkey = FAR_RKEY;
	CU_ASSERT_EQUAL(post_send(&w), 0);
	CU_ASSERT_EQUAL(ibv_modify_qp(me.qp, &a, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	CU_ASSERT_EQUAL(async_event_of(&(int){IBV_EVENT_SQ_DRAINED}), 0);
	CU_ASSERT_EQUAL(wait_send_wc().wr_id, 1); /* what was posted before is done */
	w.wr_id = 2;
	CU_ASSERT_EQUAL(post_send(&w), 0);
	for (int i = 0; i < 50; i++) {
		CU_ASSERT_EQUAL_FATAL(FAR(poll_wc, &((struct wcs){.n = 1})), 0);
	}
	CU_ASSERT_EQUAL(poll_wc(&(struct wcs){.n = 1}), 0);
	CU_ASSERT_EQUAL(modify(IBV_QPS_RTS, 0), 0);
	CU_ASSERT_EQUAL(wait_send_wc().wr_id, 2);
	pair_close();
}

/* --- what the queries and the creation say */

static void test_query_says_what_was_set(void)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	CU_ASSERT_EQUAL(ibv_query_qp(me.qp, &a, 2 * IBV_QP_DEST_QPN - 1, &init), 0);
	CU_ASSERT_EQUAL(a.qp_state, IBV_QPS_RTS);
	CU_ASSERT_EQUAL(a.dest_qp_num, me.other.qpn);
	CU_ASSERT_EQUAL(a.path_mtu, me.mtu < IBV_MTU_1024 ? me.mtu : IBV_MTU_1024);
	CU_ASSERT_EQUAL(a.rq_psn, me.other.psn);
	CU_ASSERT_EQUAL(a.sq_psn, 0x1234);
	CU_ASSERT_EQUAL(a.timeout, me.options.timeout);
	CU_ASSERT_EQUAL(a.retry_cnt, me.options.retry);
	CU_ASSERT_EQUAL(a.rnr_retry, me.options.rnr_retry);
	CU_ASSERT_EQUAL(a.min_rnr_timer, me.options.min_rnr_timer);
	CU_ASSERT_EQUAL(a.max_rd_atomic, 4);
	CU_ASSERT_EQUAL(a.max_dest_rd_atomic, 4);
	CU_ASSERT_EQUAL(a.port_num, 1);
	CU_ASSERT_TRUE(a.qp_access_flags & IBV_ACCESS_REMOTE_WRITE);
	CU_ASSERT_TRUE(a.cap.max_send_wr >= 64 && a.cap.max_recv_wr >= 64);
	CU_ASSERT_EQUAL(init.qp_type, IBV_QPT_RC);
	CU_ASSERT_PTR_EQUAL(init.send_cq, me.scq);
	CU_ASSERT_PTR_EQUAL(init.recv_cq, me.rcq);
	CU_ASSERT_PTR_NULL(init.srq);
	pair_close();
}

static void test_creation_returns_at_least_what_was_asked(void)
{
	TEST_BEGIN();
	CU_ASSERT_EQUAL(side_open_device(&(struct side_options){.send_wr = 100, .send_sge = 3, .inline_bytes = 50}), 0);
	struct ibv_qp_init_attr a;
	qp_init_attr(&a, &me.options);
	a.cap.max_inline_data = 50;
	me.qp = ibv_create_qp(me.pd, &a);
	CU_ASSERT_PTR_NOT_NULL_FATAL(me.qp);
	CU_ASSERT_TRUE(a.cap.max_send_wr >= 100 && a.cap.max_recv_wr >= 64);
	CU_ASSERT_TRUE(a.cap.max_send_sge >= 3 && a.cap.max_recv_sge >= 4);
	CU_ASSERT_TRUE(a.cap.max_inline_data >= 50);
	CU_ASSERT_EQUAL(me.qp->state, IBV_QPS_RESET);
	CU_ASSERT_EQUAL(me.qp->qp_type, IBV_QPT_RC);
	CU_ASSERT_EQUAL(qp_state(&(int){0}), IBV_QPS_RESET);
	close_one();
}

static void test_creation_beyond_the_device_is_refused(void)
{
	struct ibv_device_attr d;
	struct ibv_qp_init_attr a;
	TEST_BEGIN();
	CU_ASSERT_EQUAL(side_open_device(&(struct side_options){0}), 0);
	CU_ASSERT_EQUAL(ibv_query_device(me.context, &d), 0);
	qp_init_attr(&a, &me.options);
	a.cap.max_send_wr = (uint32_t)d.max_qp_wr + 1;
	CU_ASSERT_PTR_NULL(ibv_create_qp(me.pd, &a));
	qp_init_attr(&a, &me.options);
	a.cap.max_recv_wr = (uint32_t)d.max_qp_wr + 1;
	CU_ASSERT_PTR_NULL(ibv_create_qp(me.pd, &a));
	qp_init_attr(&a, &me.options);
	a.cap.max_send_sge = (uint32_t)d.max_sge + 1;
	CU_ASSERT_PTR_NULL(ibv_create_qp(me.pd, &a));
	qp_init_attr(&a, &me.options);
	a.cap.max_recv_sge = (uint32_t)d.max_sge + 1;
	CU_ASSERT_PTR_NULL(ibv_create_qp(me.pd, &a));
	qp_init_attr(&a, &me.options);
	a.cap.max_inline_data = 1 << 24;
	CU_ASSERT_PTR_NULL(ibv_create_qp(me.pd, &a));
	close_one();
}

static void test_queue_pairs_have_numbers_of_their_own(void)
{
	struct ibv_qp_init_attr a;
	struct ibv_qp *qp[64];
	TEST_BEGIN();
	CU_ASSERT_EQUAL(side_open_device(&(struct side_options){0}), 0);
	for (int i = 0; i < 64; i++) {
		qp_init_attr(&a, &me.options);
		qp[i] = ibv_create_qp(me.pd, &a);
		CU_ASSERT_PTR_NOT_NULL_FATAL(qp[i]);
		CU_ASSERT_TRUE(qp[i]->qp_num > 1 && qp[i]->qp_num < 1 << 24); /* 0 and 1 are the management ones */
		for (int j = 0; j < i; j++) {
			CU_ASSERT_NOT_EQUAL(qp[i]->qp_num, qp[j]->qp_num);
		}
	}
	for (int i = 0; i < 64; i++) {
		CU_ASSERT_EQUAL(ibv_destroy_qp(qp[i]), 0);
	}
	close_one();
}

static const struct unit_test tests[] = {
	UNIT(test_each_step_is_allowed_or_refused_as_specified),
	UNIT(test_step_without_a_required_attribute_is_refused),
	UNIT(test_step_with_a_foreign_attribute_is_refused),
	UNIT(test_current_state_that_is_not_the_current_one_is_refused),
	UNIT(test_value_out_of_range_is_refused),
	UNIT(test_each_state_lets_post_what_it_should),
	UNIT(test_ready_to_receive_receives),
	UNIT(test_reset_forgets_what_was_posted),
	UNIT(test_queue_pair_works_again_after_error_and_reset),
	UNIT(test_drained_send_queue_goes_on_after_rts),
	UNIT(test_query_says_what_was_set),
	UNIT(test_creation_returns_at_least_what_was_asked),
	UNIT(test_creation_beyond_the_device_is_refused),
	UNIT(test_queue_pairs_have_numbers_of_their_own),
	UNIT_END,
};
SIDES_MAIN("softverbs_qp", tests)

/* SPDX-License-Identifier: BSD-3-Clause */
/* All verbs may be called from any thread: several post to, and poll, the same queues. For ThreadSanitizer above all
 * (systest/softverbs_sanitizers.sh), but the counts are checked everywhere. */
#include "unittest/softverbs/cm.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum {
	THREADS = 2,
	PER_THREAD = 300,
	ALL = THREADS * PER_THREAD,
	IDS = 2 * ALL, /* a receive may be posted again late, and one with a higher wr_id be used before it */
};

static struct {
	_Atomic uint32_t seen[IDS]; /* completions by wr_id */
	_Atomic uint32_t done, bad;
	_Atomic bool stop;
	bool recv; /* which queue the pollers look at */
} run;

static void run_reset(bool recv)
{
	for (int i = 0; i < IDS; i++) {
		run.seen[i] = 0;
	}
	run.done = run.bad = 0;
	run.stop = false;
	run.recv = recv;
}

static void *poller(void *unused)
{
	struct ibv_wc wc[8];
	int64_t end = sides_now_ms() + SIDE_DEADLINE_MS;
	while (run.done < ALL && sides_now_ms() < end) {
		int n = ibv_poll_cq(run.recv ? me.rcq : me.scq, 8, wc);
		for (int i = 0; i < n; i++) {
			if (wc[i].status != IBV_WC_SUCCESS || wc[i].wr_id >= IDS) {
				run.bad++;
			} else {
				run.seen[wc[i].wr_id]++;
			}
			if (run.recv) {
				post_recv(&(struct rr){.wr_id = wc[i].wr_id + 32});
			}
			run.done++;
		}
		if (n <= 0) {
			sched_yield();
		}
	}
	return NULL;
}

/* PER_THREAD writes, as fast as the queue takes them; the argument is the number of the thread. */
static void *writer(void *number)
{
	int64_t end = sides_now_ms() + SIDE_DEADLINE_MS;
	uint64_t first = (uintptr_t)number * PER_THREAD;
	for (uint64_t i = 0; i < PER_THREAD && sides_now_ms() < end;) {
		struct sr w = {.opcode = IBV_WR_RDMA_WRITE,
			       .flags = IBV_SEND_SIGNALED,
			       .wr_id = first + i,
			       .remote_addr = FAR_ADDR(first),
			       .rkey = FAR_RKEY,
			       .n = 1,
			       .p = {{(uint32_t)first, 64, 0}}};
		long rc = post_send(&w);
		if (rc != 0 && rc != ENOMEM) {
			run.bad++;
			return NULL;
		}
		i += rc == 0;
		if (rc != 0) {
			sched_yield();
		}
	}
	return NULL;
}

static void start(pthread_t *t, void *(*fn)(void *), uintptr_t arg)
{
	CU_ASSERT_EQUAL_FATAL(pthread_create(t, NULL, fn, (void *)arg), 0);
}

static void each_completed_once(void)
{
	uint32_t wrong = 0;
	for (int i = 0; i < IDS; i++) {
		wrong += run.seen[i] > 1;
	}
	CU_ASSERT_EQUAL(run.done, ALL);
	CU_ASSERT_EQUAL(run.bad, 0);
	CU_ASSERT_EQUAL(wrong, 0);
}

static void test_threads_post_to_one_queue_pair_and_poll_one_queue(void)
{
	pthread_t t[2 * THREADS];
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	run_reset(false);
	for (uintptr_t i = 0; i < THREADS; i++) {
		start(&t[i], poller, 0);
		start(&t[THREADS + i], writer, i);
	}
	for (int i = 0; i < 2 * THREADS; i++) {
		pthread_join(t[i], NULL);
	}
	each_completed_once();
	pair_close();
}

static long far_sends_all(int *count)
{
	for (int i = 0; i < *count; i++) {
		if (post_send(&(struct sr){.opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED}) != 0 ||
		    wait_send_wc().status != IBV_WC_SUCCESS) {
			return -EIO;
		}
	}
	return 0;
}

static void test_threads_share_a_receive_queue(void)
{
	pthread_t t[THREADS];
	struct side_options o = {.srq = true};
	int count = ALL;
	TEST_BEGIN();
	if (!pair_open(&o, &(struct side_options){0})) {
		return;
	}
	run_reset(true);
	CU_ASSERT_EQUAL(post_recv(&(struct rr){.count = 32}), 0);
	for (int i = 0; i < THREADS; i++) {
		start(&t[i], poller, 0);
	}
	CU_ASSERT_EQUAL(FAR(far_sends_all, &count), 0);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(t[i], NULL);
	}
	each_completed_once();
	pair_close();
}

/* One thread sleeps on the channel while another posts what wakes it. */
static void *sleeper(void *unused)
{
	struct ibv_cq *cq;
	void *context;
	struct ibv_wc wc[8];
	while (run.done < ALL) {
		if (ibv_req_notify_cq(me.scq, 0) != 0) {
			run.bad++;
		}
		int n = ibv_poll_cq(me.scq, 8, wc);
		if (n == 0) {
			if (fd_wait(me.channel->fd, SIDE_DEADLINE_MS) != 0 ||
			    ibv_get_cq_event(me.channel, &cq, &context) != 0) {
				run.bad++;
				return NULL;
			}
			ibv_ack_cq_events(cq, 1);
		}
		for (int i = 0; i < n; i++) {
			run.bad += wc[i].status != IBV_WC_SUCCESS;
			run.seen[wc[i].wr_id % IDS]++;
			run.done++;
		}
	}
	return NULL;
}

static void test_one_thread_posts_and_one_sleeps_on_the_channel(void)
{
	pthread_t t[1 + THREADS];
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	run_reset(false);
	start(&t[0], sleeper, 0);
	for (uintptr_t i = 0; i < THREADS; i++) {
		start(&t[1 + i], writer, i);
	}
	for (int i = 0; i < 1 + THREADS; i++) {
		pthread_join(t[i], NULL);
	}
	each_completed_once();
	pair_close();
}

/* Objects come and go beside the traffic. */
static void *maker(void *unused)
{
	struct ibv_qp_init_attr a;
	while (!run.stop) {
		struct ibv_cq *cq = ibv_create_cq(me.context, 16, NULL, NULL, 0);
		struct ibv_mr *mr = ibv_reg_mr(me.pd, me.buf, 65536, IBV_ACCESS_LOCAL_WRITE);
		qp_init_attr(&a, &me.options);
		a.send_cq = a.recv_cq = cq;
		struct ibv_qp *qp = cq != NULL ? ibv_create_qp(me.pd, &a) : NULL;
		run.bad += qp == NULL || mr == NULL || qp_to_init(qp, &me.options) != 0;
		run.bad += qp != NULL && ibv_destroy_qp(qp) != 0;
		run.bad += mr != NULL && ibv_dereg_mr(mr) != 0;
		run.bad += cq != NULL && ibv_destroy_cq(cq) != 0;
	}
	return NULL;
}

static void test_objects_come_and_go_beside_the_traffic(void)
{
	pthread_t t[THREADS + 1], makers[2];
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	run_reset(false);
	start(&makers[0], maker, 0);
	start(&makers[1], maker, 0);
	start(&t[0], poller, 0);
	for (uintptr_t i = 0; i < THREADS; i++) {
		start(&t[1 + i], writer, i);
	}
	for (int i = 0; i < 1 + THREADS; i++) {
		pthread_join(t[i], NULL);
	}
	run.stop = true;
	pthread_join(makers[0], NULL);
	pthread_join(makers[1], NULL);
	each_completed_once();
	pair_close();
}

/* The queue pair goes into the error state under the hands of who posts and polls: everything accepted completes. */
static void *poster(void *accepted)
{
	while (!run.stop) {
		if (post_send(&(struct sr){.opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED}) == 0) {
			*(uint32_t *)accepted += 1;
		} else {
			sched_yield();
		}
	}
	return NULL;
}

static void test_error_state_completes_all_that_threads_have_posted(void)
{
	pthread_t t[THREADS];
	uint32_t accepted[THREADS] = {0}, completed = 0;
	TEST_BEGIN();
	if (!pair_open_plain()) { /* nobody receives, so the sends wait */
		return;
	}
	run_reset(false);
	for (int i = 0; i < THREADS; i++) {
		start(&t[i], poster, (uintptr_t)&accepted[i]);
	}
	for (int i = 0; i < 50; i++) {
		FAR(poll_wc, &((struct wcs){.n = 1}));
	}
	CU_ASSERT_EQUAL(qp_modify_state(&(int){IBV_QPS_ERR}), 0);
	for (int i = 0; i < 5; i++) {
		struct wcs w = {.n = 32};
		completed += (uint32_t)wait_wc(&w);
	}
	run.stop = true;
	for (int i = 0; i < THREADS; i++) {
		pthread_join(t[i], NULL);
	}
	for (struct wcs w = {.n = 1}; completed < accepted[0] + accepted[1]; completed++) {
		if (wait_wc(&w) != 1) {
			break;
		}
		CU_ASSERT_NOT_EQUAL(w.wc[0].status, IBV_WC_SUCCESS);
	}
	CU_ASSERT_EQUAL(completed, accepted[0] + accepted[1]);
	CU_ASSERT_EQUAL(poll_wc(&(struct wcs){.n = 1}), 0);
	pair_close();
}

/* --- rdma_cm: a thread takes the events while others call */

static void *event_taker(void *unused)
{
	while (!run.stop) {
		struct rdma_cm_event *e;
		if (fd_wait(cm.channel->fd, 20) == 0 && rdma_get_cm_event(cm.channel, &e) == 0) {
			run.done += e->event == RDMA_CM_EVENT_DISCONNECTED;
			rdma_ack_cm_event(e);
		}
	}
	return NULL;
}

static void test_thread_takes_events_while_others_disconnect(void)
{
	pthread_t taker;
	uint16_t port;
	TEST_BEGIN();
	if (!cm_pair(false, false, &port)) {
		return;
	}
	for (int i = 1; i < 4; i++) {
		if (!cm_join(i, false, false, port)) {
			return;
		}
	}
	run_reset(false);
	start(&taker, event_taker, 0);
	for (int i = 0; i < 4; i++) {
		struct cm_step s = {.slot = i, .event = RDMA_CM_EVENT_DISCONNECTED};
		if (i % 2 == 0) {
			DO(FAR(cm_disconnect, &s));
			cm_disconnect(&s);
		} else {
			DO(cm_disconnect(&s));
			FAR(cm_disconnect, &s);
		}
	}
	for (int64_t end = sides_now_ms() + SIDE_DEADLINE_MS; run.done < 4 && sides_now_ms() < end;) {
		sched_yield();
	}
	CU_ASSERT_EQUAL(run.done, 4);
	run.stop = true;
	pthread_join(taker, NULL);
	DO(FAR(cm_close, &(int){0}));
	DO(cm_close(&(int){0}));
}

static const struct unit_test tests[] = {
	UNIT(test_threads_post_to_one_queue_pair_and_poll_one_queue),
	UNIT(test_threads_share_a_receive_queue),
	UNIT(test_one_thread_posts_and_one_sleeps_on_the_channel),
	UNIT(test_objects_come_and_go_beside_the_traffic),
	UNIT(test_error_state_completes_all_that_threads_have_posted),
	UNIT(test_thread_takes_events_while_others_disconnect),
	UNIT_END,
};
SIDES_MAIN("softverbs_threads", tests)

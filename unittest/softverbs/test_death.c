/* SPDX-License-Identifier: BSD-3-Clause */
/* The other process dies, by kill -9 or by an exit that cleans nothing up, at every stage of a connection: this side
 * hears of it, all its work completes, no call hangs, and the next connection is as good as any. */
#include "unittest/softverbs/cm.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BY_EXIT = 0, BY_KILL = SIGKILL };
static const int deaths[] = {BY_KILL, BY_EXIT};
#define EACH_DEATH(d_) for (size_t d_ = 0; d_ < sizeof(deaths) / sizeof(deaths[0]); d_++)

static const struct sr one_send = {.opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED, .n = 1, .p = {{0, 64, 0}}};

/* Events of the slot until one that ends the connection attempt or the connection; -ETIMEDOUT if none does. */
static long wait_for_the_end(void)
{
	for (;;) {
		struct cm_step s = {0};
		long type = cm_next_any(&s);
		if (type < 0 || type == RDMA_CM_EVENT_DISCONNECTED || type == RDMA_CM_EVENT_REJECTED ||
		    type == RDMA_CM_EVENT_UNREACHABLE || type == RDMA_CM_EVENT_CONNECT_ERROR) {
			return type;
		}
	}
}

/* What must be possible after any death: to close, and to connect anew. */
static void life_goes_on(void)
{
	DO(cm_close(&(int){0}));
	DO(far_start());
	if (cm_pair(false, false, NULL)) {
		cm_exchange();
		cm_pair_close();
	}
}

/* --- before the connection */

static void test_client_dies_after_resolving(void)
{
	TEST_BEGIN();
	EACH_DEATH(d)
	{
		struct cm_step l = {0}, far = {0};
		DO(cm_listen(&l));
		far.port = l.port;
		DO(FAR(cm_resolve, &far));
		DO(FAR(cm_qp, &far));
		far_kill(deaths[d]);
		life_goes_on();
	}
}

/* The far process asks for a connection; the request is here, unread or in the slot. */
static void far_asks(bool read)
{
	struct cm_step l = {0}, far = {0}, near = {.event = RDMA_CM_EVENT_CONNECT_REQUEST};
	if (far_pid() == 0) {
		DO(far_start());
	}
	DO(cm_listen(&l));
	far.port = l.port;
	DO(FAR(cm_resolve, &far));
	DO(FAR(cm_qp, &far));
	DO(FAR(cm_connect, &far));
	if (read) {
		DO(cm_next(&near));
	} else {
		DO(fd_wait(cm.channel->fd, SIDE_DEADLINE_MS));
	}
}

static void test_client_dies_before_its_request_is_read(void)
{
	TEST_BEGIN();
	EACH_DEATH(d)
	{
		far_asks(false);
		far_kill(deaths[d]);
		life_goes_on(); /* with the request still in the channel */
	}
}

static void test_client_dies_before_its_request_is_answered(void)
{
	TEST_BEGIN();
	EACH_DEATH(d)
	{
		struct cm_step near = {0};
		far_asks(true);
		far_kill(deaths[d]);
		if (cm_qp(&near) == 0 && cm_accept(&near) == 0) {
			CU_ASSERT_TRUE(wait_for_the_end() > 0);
		}
		life_goes_on();
	}
}

static void test_client_dies_before_its_request_is_rejected(void)
{
	TEST_BEGIN();
	EACH_DEATH(d)
	{
		far_asks(true);
		far_kill(deaths[d]);
		cm_reject(&(struct cm_step){0}); /* may fail, must return */
		life_goes_on();
	}
}

static void test_client_dies_before_it_knows_that_it_was_accepted(void)
{
	TEST_BEGIN();
	EACH_DEATH(d)
	{
		struct cm_step near = {0};
		far_asks(true);
		DO(cm_qp(&near));
		DO(cm_accept(&near));
		far_kill(deaths[d]);
		CU_ASSERT_TRUE(wait_for_the_end() > 0);
		life_goes_on();
	}
}

/* The near process asks the far one; its request is there, unread or read. */
static void near_asks(bool read)
{
	struct cm_step l = {0}, near = {0}, far = {.event = RDMA_CM_EVENT_CONNECT_REQUEST};
	if (far_pid() == 0) {
		DO(far_start());
	}
	DO(FAR(cm_listen, &l));
	near.port = l.port;
	DO(cm_resolve(&near));
	DO(cm_qp(&near));
	DO(cm_connect(&near));
	if (read) {
		DO(FAR(cm_next, &far));
	}
}

static void test_server_dies_before_it_reads_the_request(void)
{
	TEST_BEGIN();
	EACH_DEATH(d)
	{
		near_asks(false);
		far_kill(deaths[d]);
		CU_ASSERT_TRUE(wait_for_the_end() > 0);
		life_goes_on();
	}
}

static void test_server_dies_before_it_answers(void)
{
	TEST_BEGIN();
	EACH_DEATH(d)
	{
		near_asks(true);
		far_kill(deaths[d]);
		CU_ASSERT_TRUE(wait_for_the_end() > 0);
		life_goes_on();
	}
}

static void test_server_dies_after_it_accepted(void)
{
	TEST_BEGIN();
	EACH_DEATH(d)
	{
		struct cm_step far = {0};
		near_asks(true);
		DO(FAR(cm_qp, &far));
		DO(FAR(cm_accept, &far));
		far_kill(deaths[d]);
		CU_ASSERT_TRUE(wait_for_the_end() > 0);
		life_goes_on();
	}
}

static void test_server_dies_after_it_rejected(void)
{
	TEST_BEGIN();
	EACH_DEATH(d)
	{
		struct cm_step far = {0};
		near_asks(true);
		DO(FAR(cm_reject, &far));
		far_kill(deaths[d]);
		CU_ASSERT_TRUE(wait_for_the_end() == RDMA_CM_EVENT_REJECTED);
		life_goes_on();
	}
}

/* --- connected */

static bool connected(void)
{
	return cm_pair(false, false, NULL);
}

static void expect_disconnected(void)
{
	DO(cm_next(&(struct cm_step){.event = RDMA_CM_EVENT_DISCONNECTED}));
}

/* n completions of the queue, none of them missing, errors to the end once there is one. */
static void expect_errors(bool recv, uint32_t n, uint64_t first_wr_id)
{
	struct wcs w = {.recv = recv, .n = n};
	bool failed = false;
	CU_ASSERT_EQUAL(wait_wc(&w), n);
	for (uint32_t i = 0; i < n; i++) {
		CU_ASSERT_EQUAL(w.wc[i].wr_id, first_wr_id + i);
		CU_ASSERT_TRUE(!failed || w.wc[i].status == IBV_WC_WR_FLUSH_ERR);
		failed = failed || w.wc[i].status != IBV_WC_SUCCESS;
	}
	CU_ASSERT_TRUE(failed);
}

static void test_peer_dies_idle(void)
{
	TEST_BEGIN();
	EACH_DEATH(d)
	{
		if (!connected()) {
			return;
		}
		DO(post_recv(&(struct rr){.wr_id = 20, .count = 8, .n = 1, .p = {{0, 64, 0}}}));
		far_kill(deaths[d]);
		expect_disconnected();
		cm_disconnect(&(struct cm_step){0});
		expect_errors(true, 8, 20);
		life_goes_on();
	}
}

static void test_peer_dies_with_our_sends_waiting_for_its_receives(void)
{
	TEST_BEGIN();
	EACH_DEATH(d)
	{
		struct sr s = one_send;
		if (!connected()) {
			return;
		}
		s.count = 16;
		s.flags = 0;
		DO(post_send(&s));
		far_kill(deaths[d]);
		expect_disconnected();
		cm_disconnect(&(struct cm_step){0});
		expect_errors(false, 16, 0);
		life_goes_on();
	}
}

static void test_peer_dies_with_our_reads_outstanding(void)
{
	TEST_BEGIN();
	EACH_DEATH(d)
	{
		struct sr r = {.opcode = IBV_WR_RDMA_READ,
			       .flags = IBV_SEND_SIGNALED,
			       .n = 1,
			       .p = {{0, 1 << 20, 0}},
			       .count = 32};
		if (!connected()) {
			return;
		}
		r.remote_addr = FAR_ADDR(0);
		r.rkey = FAR_RKEY;
		DO(post_send(&r));
		far_kill(deaths[d]);
		struct wcs w = {.n = 32};
		expect_disconnected();
		cm_disconnect(&(struct cm_step){0});
		CU_ASSERT_EQUAL(wait_wc(&w), 32); /* good or bad, all of them */
		for (uint32_t i = 0; i < 32; i++) {
			CU_ASSERT_EQUAL(w.wc[i].wr_id, i);
		}
		DO(post_send(&r)); /* in the error state: flushed */
		expect_errors(false, 32, 0);
		life_goes_on();
	}
}

static void test_peer_dies_with_its_own_work_outstanding(void)
{
	TEST_BEGIN();
	EACH_DEATH(d)
	{
		struct endpoint here;
		struct sr s = one_send, r = {.opcode = IBV_WR_RDMA_READ, .n = 1, .p = {{0, 1 << 20, 0}}, .count = 16};
		if (!connected()) {
			return;
		}
		side_endpoint(&here);
		r.remote_addr = here.addr;
		r.rkey = here.rkey;
		DO(FAR(post_send, &r));
		s.count = 8; /* nobody has posted a receive for them */
		DO(FAR(post_send, &s));
		far_kill(deaths[d]);
		expect_disconnected();
		life_goes_on();
	}
}

/* --- the death comes while this process sleeps in poll() */

static struct {
	pid_t sleeper;
	int signal_number;
} killer;

static bool sleeps(pid_t tid)
{
	char path[64], line[512], *state;
	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	FILE *f = fopen(path, "r");
	bool yes = f != NULL && fgets(line, sizeof(line), f) != NULL && (state = strrchr(line, ')')) != NULL &&
		   state[2] == 'S';
	if (f != NULL) {
		fclose(f);
	}
	return yes;
}

static void *kill_when_asleep(void *unused)
{
	while (!sleeps(killer.sleeper)) {
		sched_yield();
	}
	kill(far_pid(), killer.signal_number);
	return NULL;
}

/* Sleeps in poll() on the descriptors; the far process is killed meanwhile. Which of them woke it, as bits. */
static int poll_until_it_dies(int a, int b)
{
	struct pollfd p[2] = {{.fd = a, .events = POLLIN}, {.fd = b, .events = POLLIN}};
	pthread_t thread;
	killer.sleeper = (pid_t)syscall(SYS_gettid);
	killer.signal_number = SIGKILL;
	CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, kill_when_asleep, NULL), 0);
	int n = poll(p, 2, SIDE_DEADLINE_MS);
	pthread_join(thread, NULL);
	far_kill(SIGKILL);
	CU_ASSERT_TRUE(n > 0);
	return (p[0].revents ? 1 : 0) | (p[1].revents ? 2 : 0);
}

static void test_peer_dies_while_we_sleep_on_both_channels(void)
{
	TEST_BEGIN();
	if (!connected()) {
		return;
	}
	DO(post_recv(&(struct rr){.n = 1, .p = {{0, 64, 0}}}));
	CU_ASSERT_EQUAL(ibv_req_notify_cq(me.rcq, 0), 0);
	CU_ASSERT_NOT_EQUAL(poll_until_it_dies(me.channel->fd, cm.channel->fd), 0);
	expect_disconnected();
	life_goes_on();
}

static void test_peer_dies_while_we_sleep_on_the_completion_channel_with_a_send_outstanding(void)
{
	struct sr s = one_send;
	TEST_BEGIN();
	if (!connected()) {
		return;
	}
	CU_ASSERT_EQUAL(ibv_req_notify_cq(me.scq, 0), 0);
	DO(post_send(&s));
	CU_ASSERT_EQUAL(poll_until_it_dies(me.channel->fd, me.channel->fd), 3);
	CU_ASSERT_NOT_EQUAL(wait_send_wc().status, IBV_WC_SUCCESS);
	struct ibv_cq *cq;
	void *context;
	CU_ASSERT_EQUAL(ibv_get_cq_event(me.channel, &cq, &context), 0);
	ibv_ack_cq_events(cq, 1);
	life_goes_on();
}

static void test_peer_dies_while_we_sleep_in_get_cm_event(void)
{
	pthread_t thread;
	struct rdma_cm_event *e;
	TEST_BEGIN();
	if (!connected()) {
		return;
	}
	killer.sleeper = (pid_t)syscall(SYS_gettid);
	killer.signal_number = SIGKILL;
	CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, kill_when_asleep, NULL), 0);
	CU_ASSERT_EQUAL_FATAL(rdma_get_cm_event(cm.channel, &e), 0);
	pthread_join(thread, NULL);
	CU_ASSERT_EQUAL(e->event, RDMA_CM_EVENT_DISCONNECTED);
	rdma_ack_cm_event(e);
	far_kill(SIGKILL);
	life_goes_on();
}

/* --- in the middle of traffic both ways */

struct storm {
	struct endpoint other;
	uint64_t turns; /* 0: until an error */
};

/* Writes, reads and sends as fast as they complete. The number of completions until one failed, or turns. */
static long storm(struct storm *storm)
{
	struct sr s[3] = {
		{.opcode = IBV_WR_RDMA_WRITE, .n = 1, .p = {{0, 20000, 0}}},
		{.opcode = IBV_WR_RDMA_READ, .n = 1, .p = {{65536, 20000, 0}}},
		{.opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED, .n = 1, .p = {{0, 64, 0}}},
	};
	uint64_t done = 0;
	post_recv(&(struct rr){.count = 32, .n = 1, .p = {{1 << 20, 64, 0}}});
	for (int64_t end = sides_now_ms() + SIDE_DEADLINE_MS; sides_now_ms() < end;) {
		for (int i = 0; i < 3; i++) {
			s[i].remote_addr = storm->other.addr;
			s[i].rkey = storm->other.rkey;
			post_send(&s[i]);
		}
		struct wcs recvs = {.recv = true, .n = 32}, one = {.n = 1};
		if (wait_wc(&one) != 1 || one.wc[0].status != IBV_WC_SUCCESS) {
			return (long)done;
		}
		long n = poll_wc(&recvs);
		if (n > 0) {
			post_recv(&(struct rr){.count = (uint32_t)n, .n = 1, .p = {{1 << 20, 64, 0}}});
		}
		if (++done == storm->turns) {
			return (long)done;
		}
	}
	return -ETIMEDOUT;
}

static void test_peer_dies_in_the_middle_of_traffic(void)
{
	int rounds = sides_device_is("rxe") ? 2 : 20;
	TEST_BEGIN();
	for (int i = 0; i < rounds; i++) {
		struct storm here = {.turns = 1 + (uint64_t)i * 37}, there = {0};
		if (!connected()) {
			return;
		}
		side_endpoint(&there.other);
		here.other = me.other;
		DO(FAR_BEGIN(storm, &there));
		CU_ASSERT_EQUAL(storm(&here), (long)here.turns);
		far_kill(SIGKILL); /* it is somewhere in its loop */
		here.turns = 0;
		CU_ASSERT_TRUE(storm(&here) >= 0); /* ends by an error, not by the deadline */
		CU_ASSERT_TRUE(wait_for_the_end() == RDMA_CM_EVENT_DISCONNECTED);
		if (i % 5 == 0) {
			life_goes_on();
		} else {
			DO(cm_close(&(int){0}));
			DO(far_start());
		}
	}
}

/* --- without rdma_cm there is no event, but the work ends all the same */

static void test_peer_dies_without_rdma_cm(void)
{
	TEST_BEGIN();
	EACH_DEATH(d)
	{
		struct sr s = one_send;
		struct side_options o = {.timeout = 10, .retry = 2};
		if (!pair_open(&o, NULL)) {
			return;
		}
		s.count = 5;
		DO(post_send(&s)); /* wait for receives */
		far_kill(deaths[d]);
		expect_errors(false, 5, 0);
		CU_ASSERT_EQUAL(side_close(&(int){0}), 0);
		DO(far_start());
	}
}

/* --- a peer that does not run is not a dead one, and does not stop this side */

static void test_stopped_peer_is_written_to_and_read_from(void)
{
	struct sr w = {.opcode = IBV_WR_RDMA_WRITE, .flags = IBV_SEND_SIGNALED, .n = 1, .p = {{0, 4096, 0}}},
		  s = one_send;
	TEST_BEGIN();
	if (!connected()) {
		return;
	}
	cm_exchange();
	w.remote_addr = FAR_ADDR(0);
	w.rkey = FAR_RKEY;
	DO(FAR(post_recv, &((struct rr){.n = 1, .p = {{65536, 64, 0}}})));
	kill(far_pid(), SIGSTOP);
	DO(post_send(&w));
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_SUCCESS);
	w.opcode = IBV_WR_RDMA_READ;
	DO(post_send(&w));
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_SUCCESS);
	DO(post_send(&s));
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_SUCCESS);
	kill(far_pid(), SIGCONT);
	ASSERT_STATUS(far_recv_wc().status, IBV_WC_SUCCESS);
	cm_pair_close();
}

static void test_stopped_peer_can_be_left(void)
{
	TEST_BEGIN();
	if (!connected()) {
		return;
	}
	kill(far_pid(), SIGSTOP);
	cm_disconnect(&(struct cm_step){0});
	DO(cm_close(&(int){0}));
	kill(far_pid(), SIGCONT);
	DO(FAR(cm_next, &((struct cm_step){.event = RDMA_CM_EVENT_DISCONNECTED})));
	DO(FAR(cm_close, &(int){0}));
}

static const struct unit_test tests[] = {
	UNIT(test_client_dies_after_resolving),
	UNIT(test_client_dies_before_its_request_is_read),
	UNIT(test_client_dies_before_its_request_is_answered),
	UNIT(test_client_dies_before_its_request_is_rejected),
	UNIT(test_client_dies_before_it_knows_that_it_was_accepted),
	UNIT(test_server_dies_before_it_reads_the_request),
	UNIT(test_server_dies_before_it_answers),
	UNIT(test_server_dies_after_it_accepted),
	UNIT(test_server_dies_after_it_rejected),
	UNIT(test_peer_dies_idle),
	UNIT(test_peer_dies_with_our_sends_waiting_for_its_receives),
	UNIT(test_peer_dies_with_our_reads_outstanding),
	UNIT(test_peer_dies_with_its_own_work_outstanding),
	UNIT(test_peer_dies_while_we_sleep_on_both_channels),
	UNIT(test_peer_dies_while_we_sleep_on_the_completion_channel_with_a_send_outstanding),
	UNIT(test_peer_dies_while_we_sleep_in_get_cm_event),
	UNIT(test_peer_dies_in_the_middle_of_traffic),
	UNIT(test_peer_dies_without_rdma_cm),
	UNIT(test_stopped_peer_is_written_to_and_read_from),
	UNIT(test_stopped_peer_can_be_left),
	UNIT_END,
};
SIDES_MAIN("softverbs_death", tests)

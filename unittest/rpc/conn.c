/* SPDX-License-Identifier: BSD-3-Clause */
/* A client's connection: what one message may do to the rest of the control thread. */
#include "rpc/conn.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "env_dpdk/env.h"
#include "rpc/registry.h"
#include "rpc/rpc.h"
#include "thread/thread.h"
#include "unittest/bdev/fixture.h"

#define CALLS       200
#define CALLS_LIMIT 1024 /* unanswered, of a connection */
#define BATCH       600
#define MANY_CALLS  (4 * BATCH)

static unsigned calls, others_in_between;
static struct rpc_request *deferred[MANY_CALLS];
static int client = -1;

static void rpc_work(struct rpc_request *req, void *params)
{
	uint64_t end = env_ticks() + env_us_to_ticks(50);

	while (env_ticks() < end) {
	}
	calls++;
	rpc_reply_true(req);
}
RPC_METHOD("test_conn_work", rpc_work, struct rpc_no_params, NULL, RPC_RUNTIME, "Takes its time", .result = "true")

static void rpc_wait(struct rpc_request *req, void *params)
{
	deferred[calls++] = req;
}
RPC_METHOD("test_conn_wait", rpc_wait, struct rpc_no_params, NULL, RPC_RUNTIME, "Waits", .result = "true")

static void on_closed(struct rpc_conn *c, void *arg)
{
}

static void on_called(void *arg)
{
}

static const struct rpc_conn_opts opts = {.max_message_size = 1 << 20, .closed = on_closed, .called = on_called};

/* Somebody else on the control thread. */
static void other_runs(void *arg)
{
	others_in_between += calls > 0 && calls < CALLS;
	thread_timer_start(arg, 0);
}

static char text[MANY_CALLS * 64];
static size_t text_len, text_sent;

static struct rpc_conn *connect_client(void)
{
	int fds[2];

	calls = others_in_between = 0;
	text_sent = text_len = 0;
	CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
	client = fds[0];
	struct rpc_conn *c = rpc_conn_open(fds[1], &opts);
	CU_ASSERT_PTR_NOT_NULL_FATAL(c);
	return c;
}

static void batch_add(const char *method, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		text_len += (size_t)snprintf(text + text_len, sizeof(text) - text_len,
					     "%c{\"method\":\"%s\",\"id\":%u}", i == 0 ? '[' : ',', method, i);
	}
	text[text_len++] = ']';
}

static bool batch_is_sent(void *arg)
{
	ssize_t n = send(client, text + text_sent, text_len - text_sent, MSG_NOSIGNAL);

	text_sent += n > 0 ? (size_t)n : 0;
	return text_sent == text_len;
}

static bool answer_is_whole(void *arg)
{
	ssize_t n = recv(client, text + text_len, sizeof(text) - 1 - text_len, 0);

	text_len += n > 0 ? (size_t)n : 0;
	return text_len > 0 && text[text_len - 1] == ']';
}

static void expect_answers(unsigned n)
{
	json_error_t error;

	text_len = 0;
	CU_ASSERT_TRUE_FATAL(fixture_poll(answer_is_whole, NULL));
	json_t *answers = rpc_json_load(text, text_len, &error);
	CU_ASSERT_EQUAL(json_array_size(answers), n);
	for (unsigned i = 0; i < n; i++) {
		CU_ASSERT_TRUE(json_is_true(json_object_get(json_array_get(answers, i), "result")));
		CU_ASSERT_EQUAL(json_integer_value(json_object_get(json_array_get(answers, i), "id")), i);
	}
	json_decref(answers);
}

static void test_a_long_batch_lets_others_have_their_turn(void)
{
	struct thread_timer timer = {.fn = other_runs, .arg = &timer};
	struct rpc_conn *c = connect_client();

	batch_add("test_conn_work", CALLS);
	CU_ASSERT_TRUE_FATAL(fixture_poll(batch_is_sent, NULL));
	thread_timer_start(&timer, 0);
	expect_answers(CALLS);
	thread_timer_stop(&timer);
	CU_ASSERT_EQUAL(calls, CALLS);
	CU_ASSERT(others_in_between > 0);
	rpc_conn_close(c);
	close(client);
}

static bool so_many_have_begun(void *arg)
{
	return calls == *(unsigned *)arg;
}

/* Four batches: the second cannot begin all of its calls. */
static struct rpc_conn *send_many(void)
{
	unsigned limit = CALLS_LIMIT;
	struct rpc_conn *c = connect_client();

	for (unsigned i = 0; i < MANY_CALLS / BATCH; i++) {
		batch_add("test_conn_wait", BATCH);
	}
	CU_ASSERT_TRUE_FATAL(fixture_poll(batch_is_sent, NULL));
	CU_ASSERT_TRUE_FATAL(fixture_poll(so_many_have_begun, &limit));
	return c;
}

static void test_a_batch_begins_no_more_calls_than_a_connection_may_have(void)
{
	struct rpc_conn *c = send_many();

	for (unsigned i = 0; i < MANY_CALLS; i++) {
		if (calls == i) {
			unsigned next = i + CALLS_LIMIT < MANY_CALLS ? i + CALLS_LIMIT : MANY_CALLS;
			CU_ASSERT_TRUE_FATAL(fixture_poll(so_many_have_begun, &next));
		}
		rpc_reply_true(deferred[i]);
	}
	rpc_conn_close(c);
	close(client);
}

static void test_a_client_may_leave_in_the_middle_of_its_batch(void)
{
	rpc_conn_close(send_many());
	for (unsigned i = 0; i < CALLS_LIMIT; i++) {
		rpc_reply_true(deferred[i]);
	}
	CU_ASSERT_EQUAL(calls, CALLS_LIMIT);
	close(client);
}

static int start(void)
{
	rpc_set_state(RPC_RUNTIME);
	return fixture_start();
}

static const struct unit_test tests[] = {
	UNIT(test_a_long_batch_lets_others_have_their_turn),
	UNIT(test_a_batch_begins_no_more_calls_than_a_connection_may_have),
	UNIT(test_a_client_may_leave_in_the_middle_of_its_batch),
	UNIT_END,
};
UNIT_MAIN("rpc_conn", tests, start, fixture_stop)

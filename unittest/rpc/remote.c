/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of another process's methods: what it may answer, and what it does not. The test plays the other process. */
#include "rpc/remote.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "rpc/rpc.h"
#include "unittest/bdev/fixture.h"

#define FOREVER_MS 100000

static char folder[] = "/tmp/varve-unit-XXXXXX", path[64];
static int listener = -1, conn = -1;

static struct {
	atomic_bool done;
	unsigned calls;
	int code;
	bool result_is_true;
	char message[512];
} got;

static void on_done(void *arg, const struct rpc_remote_answer *answer)
{
	CU_ASSERT_PTR_EQUAL(arg, &got);
	got.calls++;
	got.code = answer->code;
	got.result_is_true = answer->code == 0 && json_is_true(answer->result);
	snprintf(got.message, sizeof(got.message), "%s", answer->code == 0 ? "" : answer->message);
	set_done(&got.done);
}

static int start(void)
{
	if (fixture_start() != 0 || mkdtemp(folder) == NULL) {
		return -1;
	}
	snprintf(path, sizeof(path), "%s/rpc.sock", folder);
	return 0;
}

static int stop(void)
{
	rmdir(folder);
	return fixture_stop();
}

static void serve(int backlog)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	strcpy(address.sun_path, path);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	CU_ASSERT_EQUAL_FATAL(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	CU_ASSERT_EQUAL_FATAL(listen(listener, backlog), 0);
}

static void hang_up(void)
{
	if (conn >= 0) {
		close(conn);
	}
	close(listener);
	unlink(path);
	conn = listener = -1;
}

static struct rpc_remote *call(uint32_t timeout_ms)
{
	memset(&got, 0, sizeof(got));
	struct rpc_remote *r = rpc_remote_call(path, "work", json_pack("{s:i}", "what", 7), timeout_ms, on_done, &got);
	CU_ASSERT_PTR_NOT_NULL_FATAL(r);
	CU_ASSERT_EQUAL(got.calls, 0);
	return r;
}

static bool accepted(void *arg)
{
	conn = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	return conn >= 0;
}

static char request[4096];
static size_t request_len;
static unsigned long request_id;

static bool request_is_whole(void *arg)
{
	ssize_t n = recv(conn, request + request_len, sizeof(request) - 1 - request_len, 0);

	request_len += n > 0 ? (size_t)n : 0;
	request[request_len] = 0;
	return request_len > 0 && request[request_len - 1] == '}';
}

static void accept_request(void)
{
	json_error_t error;

	request_len = 0;
	CU_ASSERT_TRUE_FATAL(fixture_poll(accepted, NULL));
	CU_ASSERT_TRUE_FATAL(fixture_poll(request_is_whole, NULL));
	json_t *tree = rpc_json_load(request, request_len, &error);
	CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(tree, "method")), "work");
	CU_ASSERT_EQUAL(json_integer_value(json_object_get(json_object_get(tree, "params"), "what")), 7);
	CU_ASSERT_TRUE(json_is_integer(json_object_get(tree, "id")));
	request_id = (unsigned long)json_integer_value(json_object_get(tree, "id"));
	json_decref(tree);
}

static void say(const char *text, size_t len)
{
	while (len > 0 && !atomic_load(&got.done)) {
		ssize_t n = send(conn, text, len, MSG_NOSIGNAL);
		if (n > 0) {
			text += n;
			len -= (size_t)n;
		} else {
			CU_ASSERT_TRUE_FATAL(errno == EAGAIN || errno == EPIPE || errno == ECONNRESET);
			CU_ASSERT_TRUE_FATAL(fixture_wait(&got.done));
		}
	}
}

/* With the id of the request in place of each ID. */
static void say_with_id(const char *text)
{
	char whole[512];
	size_t n = 0;

	for (const char *id; (id = strstr(text, "ID")) != NULL; text = id + 2) {
		n += (size_t)snprintf(whole + n, sizeof(whole) - n, "%.*s%lu", (int)(id - text), text, request_id);
	}
	n += (size_t)snprintf(whole + n, sizeof(whole) - n, "%s", text);
	say(whole, n);
}

static void expect_answer(const char *text, int code, bool is_true)
{
	serve(1);
	call(FOREVER_MS);
	accept_request();
	say_with_id(text);
	CU_ASSERT_TRUE(fixture_wait(&got.done));
	CU_ASSERT_EQUAL(got.calls, 1);
	CU_ASSERT_EQUAL(got.code, code);
	CU_ASSERT_EQUAL(got.result_is_true, is_true);
	hang_up();
}

static void test_results_and_errors_are_told(void)
{
	expect_answer("{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":true}", 0, true);
	expect_answer(" \n{\"id\":ID,\"result\":[{}]}{\"id\":ID,\"result\":true}", 0, false);
	expect_answer("{\"id\":ID,\"error\":{\"code\":-2,\"message\":\"there is none\"}}", -2, false);
	CU_ASSERT_STRING_EQUAL(got.message, "there is none");
	expect_answer("{\"id\":ID,\"error\":{\"code\":-32601}}", -32601, false);
}

static void test_answers_that_make_no_sense_are_no_answers(void)
{
	static const char *const wrong[] = {
		"{\"id\":1ID,\"result\":true}",
		"{\"id\":\"ID\",\"result\":true}",
		"{\"result\":true}",
		"{\"id\":ID}",
		"{}",
		"[{\"id\":ID,\"result\":true}]",
		"{\"id\":ID,\"result\":true,\"error\":{\"code\":-2}}",
		"{\"id\":ID,\"result\":true,\"result\":false}",
		"{\"id\":ID,\"error\":{\"code\":0,\"message\":\"x\"}}",
		"{\"id\":ID,\"error\":{\"code\":-2147483648,\"message\":\"x\"}}",
		"{\"id\":ID,\"error\":{\"code\":99999999999,\"message\":\"x\"}}",
		"{\"id\":ID,\"error\":{\"code\":99999999999999999999999,\"message\":\"x\"}}",
		"{\"id\":ID,\"error\":{\"code\":\"-2\",\"message\":\"x\"}}",
		"{\"id\":ID,\"error\":null}",
		"{\"id\":ID,\"result\":\"\xff\"}",
		"{true}",
		"true",
		"HTTP/1.1 200 OK",
		"\x01\x02",
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		expect_answer(wrong[i], RPC_REMOTE_NO_ANSWER, false);
		CU_ASSERT_PTR_NOT_NULL(strstr(got.message, "its answer is not"));
	}
}

static void test_an_answer_may_come_in_pieces_but_not_for_ever(void)
{
	static char good[64], endless[200000];

	serve(1);
	call(FOREVER_MS);
	accept_request();
	snprintf(good, sizeof(good), "{\"id\":%lu,\"result\":true}", request_id);
	for (size_t i = 0; i < strlen(good); i++) {
		CU_ASSERT_FALSE(atomic_load(&got.done));
		say(&good[i], 1);
		if (i + 1 < strlen(good)) {
			struct rpc_remote *other =
				rpc_remote_call("/nonexistent", "x", json_object(), 100, on_done, &got);
			CU_ASSERT_TRUE(fixture_wait(&got.done)); /* rounds go by */
			CU_ASSERT_PTR_NOT_NULL(other);
			atomic_store(&got.done, false);
		}
	}
	CU_ASSERT_TRUE(fixture_wait(&got.done));
	CU_ASSERT_TRUE(got.result_is_true);
	hang_up();
	memset(endless, ' ', sizeof(endless));
	endless[0] = '{';
	serve(1);
	call(FOREVER_MS);
	accept_request();
	say(endless, sizeof(endless));
	CU_ASSERT_TRUE(fixture_wait(&got.done));
	CU_ASSERT_EQUAL(got.code, RPC_REMOTE_NO_ANSWER);
	CU_ASSERT_PTR_NOT_NULL(strstr(got.message, "longer than"));
	hang_up();
}

static void expect_no_answer(const char *why)
{
	CU_ASSERT_TRUE(fixture_wait(&got.done));
	CU_ASSERT_EQUAL(got.calls, 1);
	CU_ASSERT_EQUAL(got.code, RPC_REMOTE_NO_ANSWER);
	CU_ASSERT_PTR_NOT_NULL(strstr(got.message, why));
}

static void test_who_does_not_answer_has_not_answered(void)
{
	call(FOREVER_MS);
	expect_no_answer("cannot be connected to");
	serve(1);
	close(listener); /* the file stays */
	call(FOREVER_MS);
	expect_no_answer("cannot be connected to");
	unlink(path);
	serve(1);
	call(FOREVER_MS);
	accept_request();
	close(conn);
	conn = -1;
	expect_no_answer("closed the connection");
	call(50);
	expect_no_answer("within 50 ms");
	hang_up();
}

static void test_a_full_backlog_is_waited_for(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int others[16], num = 0;

	serve(0);
	strcpy(address.sun_path, path);
	for (; num < 16; num++) {
		others[num] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (connect(others[num], (struct sockaddr *)&address, sizeof(address)) != 0) {
			break;
		}
	}
	CU_ASSERT_NOT_EQUAL(num, 16);
	call(100);
	expect_no_answer("within 100 ms");
	call(FOREVER_MS);
	for (int i = 0; i < num; i++) {
		CU_ASSERT_TRUE(fixture_poll(accepted, NULL));
		close(conn);
	}
	accept_request();
	say_with_id("{\"id\":ID,\"result\":true}");
	CU_ASSERT_TRUE(fixture_wait(&got.done));
	CU_ASSERT_TRUE(got.result_is_true);
	for (int i = 0; i <= num; i++) {
		close(others[i]);
	}
	hang_up();
}

static void test_a_call_that_was_given_up_says_nothing(void)
{
	rpc_remote_cancel(call(FOREVER_MS));
	serve(1);
	struct rpc_remote *r = call(FOREVER_MS);
	accept_request();
	rpc_remote_cancel(r);
	char byte;
	CU_ASSERT_EQUAL(recv(conn, &byte, 1, 0), 0);
	CU_ASSERT_EQUAL(got.calls, 0);
	hang_up();
}

/* Only this thread's user: listen() notes who calls it. */
static void become(uid_t uid)
{
	CU_ASSERT_EQUAL(syscall(SYS_setresuid, -1, uid, -1), 0);
}

static void test_others_are_not_asked(void)
{
	if (geteuid() != 0) {
		return; /* cannot be others */
	}
	serve(1);
	become(65534);
	CU_ASSERT_EQUAL(listen(listener, 1), 0);
	become(0);
	call(FOREVER_MS);
	expect_no_answer("of user 65534 listens there");
	CU_ASSERT_TRUE(accepted(NULL));
	CU_ASSERT_EQUAL(recv(conn, request, sizeof(request), 0), 0); /* nor told anything */
	hang_up();
}

static void test_who_has_not_read_the_request_has_not_answered_it(void)
{
	serve(1);
	call(FOREVER_MS);
	CU_ASSERT_TRUE_FATAL(fixture_poll(accepted, NULL));
	say("{\"id\":1,\"result\":true}", 22);
	expect_no_answer("its answer is not");
	hang_up();
}

static const struct unit_test tests[] = {
	UNIT(test_results_and_errors_are_told),
	UNIT(test_answers_that_make_no_sense_are_no_answers),
	UNIT(test_an_answer_may_come_in_pieces_but_not_for_ever),
	UNIT(test_who_does_not_answer_has_not_answered),
	UNIT(test_a_full_backlog_is_waited_for),
	UNIT(test_a_call_that_was_given_up_says_nothing),
	UNIT(test_others_are_not_asked),
	UNIT(test_who_has_not_read_the_request_has_not_answered_it),
	UNIT_END,
};
UNIT_MAIN("rpc_remote", tests, start, stop)

/* SPDX-License-Identifier: BSD-3-Clause */
/* Handshakes and their ends: on time, late, cancelled, and on what is no socket. */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>
#include "env_dpdk/env.h"
#include "tls/handshake.h"
#include "unittest/tls/records.h"
#include "unittest/unit.h"
#include "util/log.h"

#define HOSTNQN "nqn.2026-11.io.varve:host"
#define SUBNQN  "nqn.2026-11.io.varve:a"
#define WAIT_US (60 * UINT64_C(1000000))
#define MANY    50

static const struct tls_psk key = {.hash = DHCHAP_HASH_SHA256, .len = 32, .bytes = "0123456789abcdef0123456789abcdef"};

static bool find_psk(void *arg, const struct tls_identity *identity, struct tls_psk *psk)
{
	*psk = key;
	return true;
}

static int setup(void)
{
	const struct env_opts env = {.name = "unit", .instance_id = -1, .no_huge = true, .no_pci = true};
	const struct thread_lib_opts opts = {.poll_mode = POLL_MODE_ADAPTIVE, .idle_spell_us = 50};
	char error[ENV_ERROR_MAX];

	(void)records_setup();
	log_set_print_level(LOG_LEVEL_DISABLED);
	return env_init(&env, error) != 0 ? -1 : thread_lib_start(&opts);
}

static int teardown(void)
{
	thread_lib_stop();
	env_fini();
	return 0;
}

struct end {
	unsigned count;
	int error;
};

static void handle_end(void *arg, struct tls_session *session, int error, const char *why)
{
	struct end *end = arg;

	end->count++;
	end->error = error;
	CU_ASSERT((error == 0) == (why[0] == '\0'));
	close(tls_session_fd(session));
	tls_session_free(session);
}

static struct tls_session *make_session(int fd, bool is_server)
{
	struct tls_credential c;
	struct tls_session *s = NULL;

	if (is_server) {
		s = tls_session_server(fd, find_psk, NULL);
	} else if (tls_credential_make(&key, HOSTNQN, SUBNQN, 1, &c) == 0) {
		s = tls_session_client(fd, &c);
	}
	CU_ASSERT_PTR_NOT_NULL_FATAL(s);
	return s;
}

static struct tls_handshake *start(int fd, bool is_server, uint64_t timeout_us, struct end *end)
{
	struct tls_handshake *h = tls_handshake_start(make_session(fd, is_server), timeout_us, handle_end, end);

	*end = (struct end){0};
	CU_ASSERT_PTR_NOT_NULL_FATAL(h);
	return h;
}

static void open_sockets(int fds[2])
{
	CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
}

static bool has_ended(void *arg)
{
	return ((struct end *)arg)->count > 0;
}

static void wait_for(struct end *end)
{
	CU_ASSERT_FATAL(thread_control_wait(has_ended, end, WAIT_US));
}

static void test_both_sides_end_on_time(void)
{
	struct end host, ctrlr;
	int fds[2];

	open_sockets(fds);
	start(fds[0], false, WAIT_US, &host);
	start(fds[1], true, WAIT_US, &ctrlr);
	wait_for(&host);
	wait_for(&ctrlr);
	CU_ASSERT_EQUAL(host.error, 0);
	CU_ASSERT_EQUAL(ctrlr.error, 0);
}

/* Those that are late before they have begun, in a step, in the queue for one, or behind it: each ends once. */
static void test_late_ones_end_once_wherever_they_are(void)
{
	static const uint64_t times_us[] = {0, 1, 300, 5000};

	for (unsigned t = 0; t < 4; t++) {
		struct end hosts[MANY], ctrlrs[MANY];
		int to_host[MANY][2], to_ctrlr[MANY][2];

		for (unsigned i = 0; i < MANY; i++) { /* nobody answers them */
			open_sockets(to_host[i]);
			open_sockets(to_ctrlr[i]);
			CU_ASSERT_EQUAL(send(to_ctrlr[i][1], "\x16\x03\x01", 3, 0), 3);
			start(to_host[i][0], false, times_us[t], &hosts[i]);
			start(to_ctrlr[i][0], true, times_us[t], &ctrlrs[i]);
		}
		for (unsigned i = 0; i < MANY; i++) {
			wait_for(&hosts[i]);
			wait_for(&ctrlrs[i]);
			CU_ASSERT_EQUAL(hosts[i].error, -ETIMEDOUT);
			CU_ASSERT_EQUAL(ctrlrs[i].error, -ETIMEDOUT);
			close(to_host[i][1]);
			close(to_ctrlr[i][1]);
		}
		tls_handshake_stop();
		for (unsigned i = 0; i < MANY; i++) {
			CU_ASSERT_EQUAL(hosts[i].count, 1);
			CU_ASSERT_EQUAL(ctrlrs[i].count, 1);
		}
	}
}

/* Before they have begun, and in the queue. The last one of the queue ends after them. */
static void test_cancelled_ones_tell_nobody(void)
{
	for (unsigned has_begun = 0; has_begun < 2; has_begun++) {
		struct tls_handshake *h[MANY];
		struct end ends[MANY], last, first;
		int peers[MANY], fds[2], pair[2];

		for (unsigned i = 0; i < MANY; i++) {
			open_sockets(fds);
			h[i] = start(fds[0], false, WAIT_US, &ends[i]);
			peers[i] = fds[1];
		}
		if (has_begun) { /* behind their messages */
			CU_ASSERT_EQUAL_FATAL(pipe2(pair, O_NONBLOCK), 0);
			close(pair[1]);
			start(pair[0], true, WAIT_US, &first);
			wait_for(&first);
		}
		for (unsigned i = 0; i < MANY; i++) {
			tls_handshake_cancel(h[i]);
		}
		open_sockets(pair);
		shutdown(pair[1], SHUT_WR);
		start(pair[0], false, WAIT_US, &last);
		wait_for(&last);
		CU_ASSERT_EQUAL(last.error, -ECONNRESET);
		tls_handshake_stop();
		close(pair[1]);
		for (unsigned i = 0; i < MANY; i++) {
			CU_ASSERT_EQUAL(ends[i].count, 0);
			close(peers[i]);
		}
	}
}

/* A host is told from somebody who has connected and nothing else. */
static void test_who_has_sent_nothing_is_told_apart(void)
{
	for (unsigned sent = 0; sent < 2; sent++) {
		struct end closed, late;
		int fds[2], other[2];

		open_sockets(fds);
		open_sockets(other);
		CU_ASSERT_EQUAL(send(fds[1], "\x16\x03", sent, 0), sent);
		CU_ASSERT_EQUAL(send(other[1], "\x16\x03", sent, 0), sent);
		shutdown(fds[1], SHUT_WR);
		start(fds[0], true, WAIT_US, &closed);
		start(other[0], true, 1000, &late);
		wait_for(&closed);
		wait_for(&late);
		CU_ASSERT_EQUAL(closed.error, sent == 0 ? -ENODATA : -ECONNRESET);
		CU_ASSERT_EQUAL(late.error, sent == 0 ? -ENODATA : -ETIMEDOUT);
		close(fds[1]);
		close(other[1]);
	}
}

static void test_what_is_no_socket_ends_once(void)
{
	struct end end;
	int fds[2];

	CU_ASSERT_EQUAL_FATAL(pipe2(fds, O_NONBLOCK), 0);
	start(fds[0], true, WAIT_US, &end);
	wait_for(&end);
	CU_ASSERT_EQUAL(end.error, -ENOTSOCK);
	close(fds[1]);
}

static const struct unit_test tests[] = {
	UNIT(test_both_sides_end_on_time),      UNIT(test_late_ones_end_once_wherever_they_are),
	UNIT(test_cancelled_ones_tell_nobody),  UNIT(test_who_has_sent_nothing_is_told_apart),
	UNIT(test_what_is_no_socket_ends_once), UNIT_END,
};
UNIT_MAIN(RECORDS_SUITE("tls-handshake"), tests, setup, teardown)

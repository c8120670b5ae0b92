/* SPDX-License-Identifier: BSD-3-Clause */
/* Listeners of nvmf_tcp/ while connections never end to come, or cannot be accepted: accept4() is a fake. */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "nvmf_tcp/internal.h"
#include "unittest/unit.h"
#include "util/log.h"

#define FLOOD 100000 /* more than a budget can be */

static struct nvmf_tcp_transport transport;
static const struct nvmf_address address = {
	.trtype = "TCP", .adrfam = NVMF_ADDR_FAMILY_IP4, .traddr = "127.0.0.1", .trsvcid = "0"};
static int accept_error; /* 0: there is a connection */
static unsigned accepts, taken, taken_secure;
static fd_source_fn watch_fn;
static void *watch_arg;
static uint32_t watched;
static struct thread_timer *timer; /* that runs */

int __wrap_accept4(int fd, struct sockaddr *peer, socklen_t *length, int flags);
int __wrap_accept4(int fd, struct sockaddr *peer, socklen_t *length, int flags)
{
	errno = ++accepts > FLOOD ? EAGAIN : accept_error;
	return errno == 0 ? 1000 : -1;
}

/* ---- Fakes of what is around ---- */

struct fd_source *fd_source_add(int fd, uint32_t events, fd_source_fn fn, void *arg, const char *name)
{
	watch_fn = fn;
	watch_arg = arg;
	watched = events;
	return (struct fd_source *)&watched;
}

void fd_source_modify(struct fd_source *s, uint32_t events)
{
	watched = events;
}

void fd_source_remove(struct fd_source **s)
{
	watch_fn = NULL;
	*s = NULL;
}

void thread_timer_start(struct thread_timer *t, uint64_t us)
{
	timer = t;
}

void thread_timer_stop(struct thread_timer *t)
{
	timer = NULL;
}

bool nvmf_psk_any_generated(const struct nvmf_tgt *tgt)
{
	return false;
}

bool nvmf_address_equal(const struct nvmf_address *a, const struct nvmf_address *b)
{
	return strcmp(a->trsvcid, b->trsvcid) == 0;
}

void nvmf_tcp_secure_accept(struct nvmf_tcp_listener *l, int fd, const struct sockaddr *peer, size_t peer_bytes)
{
	taken_secure++;
}

void nvmf_tcp_secure_stop(struct nvmf_tcp_listener *l)
{
}

void nvmf_tcp_qpair_accept(struct nvmf_tcp_listener *l, int fd, const struct sockaddr *peer, struct tls_session *tls)
{
	taken++;
}

/* ---- Tests ---- */

static void begin(int (*listen_at)(struct nvmf_transport *, const struct nvmf_address *), int error)
{
	TAILQ_INIT(&transport.listeners);
	accepts = taken = taken_secure = 0;
	accept_error = error;
	timer = NULL;
	log_set_print_level(LOG_LEVEL_DISABLED);
	CU_ASSERT_EQUAL_FATAL(listen_at(&transport.base, &address), 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(watch_fn);
}

static void end(void)
{
	nvmf_tcp_op_stop_listen(&transport.base, &address);
	CU_ASSERT_PTR_NULL(watch_fn);
	CU_ASSERT_PTR_NULL(timer);
	CU_ASSERT(TAILQ_EMPTY(&transport.listeners));
}

/* The control thread does other work between two rounds, in each of which the listener is still ready. */
static void test_a_flood_of_connections_is_taken_in_rounds(void)
{
	begin(nvmf_tcp_op_listen, 0);
	for (unsigned rounds = 1; rounds <= 3; rounds++) {
		watch_fn(watch_arg, EPOLLIN);
		CU_ASSERT_EQUAL(taken, accepts);
		CU_ASSERT(taken >= rounds && taken <= rounds * 64);
		CU_ASSERT_EQUAL(watched, EPOLLIN);
	}
	CU_ASSERT_EQUAL(taken_secure, 0);
	end();
	begin(nvmf_tcp_op_listen_secure, 0);
	watch_fn(watch_arg, EPOLLIN);
	CU_ASSERT_EQUAL(taken_secure, accepts);
	CU_ASSERT(taken_secure >= 1 && taken_secure <= 64);
	CU_ASSERT_EQUAL(taken, 0);
	end();
}

static void test_connections_wait_while_they_are_held(void)
{
	begin(nvmf_tcp_op_listen, 0);
	transport.base.held = true;
	watch_fn(watch_arg, EPOLLIN);
	CU_ASSERT_EQUAL(accepts, 0);
	CU_ASSERT_EQUAL(watched, 0); /* the control thread is not woken again and again */
	transport.base.held = false;
	nvmf_tcp_op_resume(&transport.base);
	CU_ASSERT_EQUAL(watched, EPOLLIN);
	watch_fn(watch_arg, EPOLLIN);
	CU_ASSERT(taken >= 1);
	end();
}

static void test_connections_that_break_before_they_are_accepted_are_passed_over_in_rounds(void)
{
	begin(nvmf_tcp_op_listen, ECONNABORTED);
	watch_fn(watch_arg, EPOLLIN);
	CU_ASSERT(accepts >= 1 && accepts <= 64);
	CU_ASSERT_EQUAL(watched, EPOLLIN);
	accept_error = 0;
	watch_fn(watch_arg, EPOLLIN);
	CU_ASSERT(taken >= 1);
	end();
}

/* Its readiness would keep the control thread busy. */
static void test_a_listener_without_descriptors_pauses_and_goes_on(void)
{
	static const int errors[] = {EMFILE, ENFILE, ENOBUFS, ENOMEM};

	for (unsigned i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		begin(nvmf_tcp_op_listen, errors[i]);
		watch_fn(watch_arg, EPOLLIN);
		CU_ASSERT_EQUAL(accepts, 1);
		CU_ASSERT_EQUAL(watched, 0);
		CU_ASSERT_PTR_NOT_NULL_FATAL(timer);
		accept_error = 0;
		timer->fn(timer->arg);
		CU_ASSERT_EQUAL(watched, EPOLLIN);
		watch_fn(watch_arg, EPOLLIN);
		CU_ASSERT(taken >= 1);
		end();
	}
}

static const struct unit_test tests[] = {
	UNIT(test_a_flood_of_connections_is_taken_in_rounds),
	UNIT(test_connections_wait_while_they_are_held),
	UNIT(test_connections_that_break_before_they_are_accepted_are_passed_over_in_rounds),
	UNIT(test_a_listener_without_descriptors_pauses_and_goes_on),
	UNIT_END,
};
UNIT_MAIN("nvmf_tcp_listen", tests, NULL, NULL)

/* SPDX-License-Identifier: BSD-3-Clause */
/* rdma_cm: connections to nobody, addresses that cannot be had, calls in the wrong state, identifiers that go away
 * early or move to another channel. */
#include "unittest/softverbs/cm.h"

#include <arpa/inet.h>
#include <errno.h>

enum { FREE_PORT = 29 }; /* below what rdma_cm gives out, and nobody's */

static void close_both(void)
{
	DO(FAR(cm_close, &(int){0}));
	DO(cm_close(&(int){0}));
}

/* A client that has asked, and a server that has the request. */
static bool requested(struct cm_step *near, struct cm_step *far)
{
	struct cm_step l = {0};
	DO(FAR(cm_listen, &l));
	near->port = l.port;
	far->event = RDMA_CM_EVENT_CONNECT_REQUEST;
	bool good = cm_ok("resolve", __LINE__, cm_resolve(near)) && cm_ok("qp", __LINE__, cm_qp(near)) &&
		    cm_ok("connect", __LINE__, cm_connect(near)) && cm_ok("request", __LINE__, FAR(cm_next, far));
	CU_ASSERT_TRUE(good);
	return good;
}

/* --- nobody there */

static void test_port_without_a_listener_rejects(void)
{
	TEST_BEGIN();
	for (int i = 0; i < 2; i++) {
		struct cm_step near = {.port = FREE_PORT, .slot = i, .by_hand = i == 1};
		DO(cm_resolve(&near));
		DO(cm_qp(&near));
		DO(cm_connect(&near));
		near.event = RDMA_CM_EVENT_REJECTED;
		DO(cm_next(&near));
		CU_ASSERT_EQUAL(near.status, 8); /* invalid service ID, IBTA volume 1, 12.6.7.2 */
	}
	DO(cm_close(&(int){0}));
}

static void test_identifier_can_be_destroyed_while_it_connects_to_nobody(void)
{
	struct cm_step near = {.port = FREE_PORT};
	TEST_BEGIN();
	DO(cm_resolve(&near));
	DO(cm_qp(&near));
	DO(cm_connect(&near));
	DO(cm_destroy(&near));
	DO(cm_close(&(int){0}));
}

/* 192.0.2.1 is for documentation (RFC 5737): nobody has it. */
static void test_address_of_nobody_does_not_connect(void)
{
	struct sockaddr_in a = {
		.sin_family = AF_INET, .sin_port = htons(1234), .sin_addr.s_addr = inet_addr("192.0.2.1")};
	struct cm_step near = {0};
	TEST_BEGIN();
	DO(cm_create(&near));
	if (rdma_resolve_addr(cm.id[0], NULL, (struct sockaddr *)&a, 1000) == 0) {
		long type = cm_next_any(&near);
		if (type == RDMA_CM_EVENT_ADDR_RESOLVED) { /* by a default route, which knows no better */
			CU_ASSERT_EQUAL(rdma_resolve_route(cm.id[0], 1000), 0);
			type = cm_next_any(&near);
			CU_ASSERT_TRUE(type == RDMA_CM_EVENT_ROUTE_RESOLVED || type == RDMA_CM_EVENT_ROUTE_ERROR);
		} else {
			CU_ASSERT_EQUAL(type, RDMA_CM_EVENT_ADDR_ERROR);
			CU_ASSERT_NOT_EQUAL(near.status, 0);
		}
	}
	DO(cm_close(&(int){0}));
}

static void test_listener_that_went_away_rejects(void)
{
	struct cm_step l = {0}, near = {0};
	TEST_BEGIN();
	DO(FAR(cm_listen, &l));
	DO(FAR(cm_unlisten, &l));
	near.port = l.port;
	DO(cm_resolve(&near));
	DO(cm_qp(&near));
	DO(cm_connect(&near));
	near.event = RDMA_CM_EVENT_REJECTED;
	DO(cm_next(&near));
	close_both();
}

static void test_listener_that_goes_away_rejects_who_waits(void)
{
	struct cm_step l = {0}, near = {0};
	TEST_BEGIN();
	DO(FAR(cm_listen, &l));
	near.port = l.port;
	DO(cm_resolve(&near));
	DO(cm_qp(&near));
	DO(cm_connect(&near));
	DO(FAR(cm_unlisten, &l));
	near.event = RDMA_CM_EVENT_REJECTED;
	DO(cm_next(&near));
	close_both();
}

static void test_request_destroyed_without_an_answer_is_a_rejection(void)
{
	struct cm_step near = {0}, far = {0};
	TEST_BEGIN();
	if (requested(&near, &far)) {
		DO(FAR(cm_destroy, &far));
		near.event = RDMA_CM_EVENT_REJECTED;
		DO(cm_next(&near));
	}
	close_both();
}

/* The client gives up while the server thinks. The server's calls may fail or not; it must not end established. */
static void test_client_that_gives_up_does_not_hang_the_server(void)
{
	struct cm_step near = {0}, far = {0};
	TEST_BEGIN();
	if (requested(&near, &far)) {
		DO(cm_close(&(int){0}));
		far.private_len = 0;
		if (FAR(cm_qp, &far) == 0 && FAR(cm_accept, &far) == 0) {
			long type = FAR(cm_next_any, &far);
			CU_ASSERT_TRUE(type == RDMA_CM_EVENT_REJECTED || type == RDMA_CM_EVENT_UNREACHABLE ||
				       type == RDMA_CM_EVENT_CONNECT_ERROR || type == RDMA_CM_EVENT_DISCONNECTED);
		}
	}
	DO(FAR(cm_close, &(int){0}));
}

static void test_rejected_client_can_try_again(void)
{
	struct cm_step near = {0}, far = {0}, again = {.slot = 1}, serve = {.slot = 1};
	TEST_BEGIN();
	if (!requested(&near, &far)) {
		return;
	}
	far.private_len = 0;
	DO(FAR(cm_reject, &far));
	near.event = RDMA_CM_EVENT_REJECTED;
	DO(cm_next(&near));
	DO(cm_destroy(&near));
	DO(FAR(cm_destroy, &far));
	again.port = near.port;
	if (cm_join(1, false, false, near.port)) {
		DO(cm_use(&again));
		DO(FAR(cm_use, &serve));
		cm_exchange();
	}
	close_both();
}

/* --- addresses */

static int try_bind(const char *ip, uint16_t port, bool listen)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = inet_addr(ip)};
	struct rdma_cm_id *id;
	struct rdma_event_channel *ch = rdma_create_event_channel();
	CU_ASSERT_EQUAL_FATAL(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), 0);
	int rc = rdma_bind_addr(id, (struct sockaddr *)&a) != 0 || (listen && rdma_listen(id, 1) != 0) ? errno : 0;
	rdma_destroy_id(id);
	rdma_destroy_event_channel(ch);
	return rc;
}

static void test_port_in_use_is_refused(void)
{
	struct cm_step l = {0};
	TEST_BEGIN();
	DO(FAR(cm_listen, &l));
	CU_ASSERT_EQUAL(try_bind(sides_ip(), l.port, true), EADDRINUSE);
	DO(FAR(cm_unlisten, &l));
	CU_ASSERT_EQUAL(try_bind(sides_ip(), l.port, true), 0); /* free again */
	DO(cm_listen(&l));
	CU_ASSERT_EQUAL(try_bind(sides_ip(), l.port, true), EADDRINUSE); /* in one's own process too */
	close_both();
}

static void test_foreign_address_cannot_be_bound(void)
{
	TEST_BEGIN();
	CU_ASSERT_NOT_EQUAL(try_bind("192.0.2.1", 0, false), 0);
}

static void test_port_0_takes_a_free_one(void)
{
	struct cm_step a = {0}, b = {0};
	TEST_BEGIN();
	DO(cm_listen(&a));
	DO(FAR(cm_listen, &b));
	CU_ASSERT_TRUE(a.port != 0 && b.port != 0 && a.port != b.port);
	close_both();
}

static void test_listener_on_any_address_is_reached(void)
{
	struct cm_step l = {.ip = "0.0.0.0"};
	TEST_BEGIN();
	DO(FAR(cm_listen, &l));
	if (cm_join(0, false, false, l.port)) {
		cm_exchange();
	}
	close_both();
}

/* --- calls in the wrong state */

static void test_call_in_the_wrong_state_is_refused(void)
{
	struct cm_step s = {0}, l = {0};
	struct rdma_conn_param p = {0};
	TEST_BEGIN();
	DO(FAR(cm_listen, &l));
	/* librdmacm itself does not survive all calls on an identifier without a device: these two it does. */
	DO(cm_create(&s));
	CU_ASSERT_EQUAL(rdma_reject(cm.id[0], NULL, 0), -1);
	CU_ASSERT_EQUAL(rdma_establish(cm.id[0]), -1);
	DO(cm_destroy(&s));

	s.port = l.port;
	DO(cm_resolve(&s));
	CU_ASSERT_EQUAL(rdma_listen(cm.id[0], 1), -1);
	CU_ASSERT_EQUAL(rdma_resolve_route(cm.id[0], 1000), -1); /* a second time */
	CU_ASSERT_EQUAL(rdma_accept(cm.id[0], &p), -1);
	CU_ASSERT_EQUAL(rdma_disconnect(cm.id[0]), -1);
	close_both();
}

static void test_connect_before_the_route_is_known_is_refused(void)
{
	struct sockaddr_in a = {
		.sin_family = AF_INET, .sin_port = htons(1234), .sin_addr.s_addr = inet_addr(sides_ip())};
	struct cm_step s = {.event = RDMA_CM_EVENT_ADDR_RESOLVED};
	struct rdma_conn_param p = {0};
	TEST_BEGIN();
	DO(cm_create(&s));
	CU_ASSERT_EQUAL(rdma_resolve_addr(cm.id[0], NULL, (struct sockaddr *)&a, 1000), 0);
	DO(cm_next(&s));
	DO(cm_qp(&s));
	CU_ASSERT_EQUAL(rdma_connect(cm.id[0], &p), -1);
	CU_ASSERT_EQUAL(rdma_resolve_addr(cm.id[0], NULL, (struct sockaddr *)&a, 1000), -1);
	DO(cm_close(&(int){0}));
}

static void test_connected_identifier_refuses_to_connect_again(void)
{
	struct cm_step s = {0};
	TEST_BEGIN();
	if (!cm_pair(false, false, NULL)) {
		return;
	}
	CU_ASSERT_NOT_EQUAL(cm_connect(&s), 0);
	CU_ASSERT_NOT_EQUAL(cm_accept(&s), 0);
	CU_ASSERT_NOT_EQUAL(cm_reject(&s), 0);
	cm_exchange();
	cm_pair_close();
}

/* --- channels */

static void test_nonblocking_channel_has_no_event(void)
{
	struct rdma_cm_event *e;
	struct cm_step s = {0};
	TEST_BEGIN();
	DO(cm_create(&s));
	CU_ASSERT_EQUAL(fd_nonblocking(cm.channel->fd), 0);
	CU_ASSERT_EQUAL(rdma_get_cm_event(cm.channel, &e), -1);
	CU_ASSERT_EQUAL(errno, EAGAIN);
	DO(cm_close(&(int){0}));
}

static void swap_channels(void)
{
	struct rdma_event_channel *c = cm.channel;
	cm.channel = cm.channel2;
	cm.channel2 = c;
}

static void test_migrated_identifier_tells_its_new_channel(void)
{
	struct cm_step near = {0}, far = {0}, l = {0}, ready = {.event = RDMA_CM_EVENT_ESTABLISHED};
	TEST_BEGIN();
	DO(cm_listen(&l));
	far.port = l.port;
	DO(FAR(cm_resolve, &far));
	DO(FAR(cm_qp, &far));
	DO(FAR(cm_connect, &far));
	near.event = RDMA_CM_EVENT_CONNECT_REQUEST;
	DO(cm_next(&near));
	cm.channel2 = rdma_create_event_channel();
	CU_ASSERT_EQUAL(rdma_migrate_id(cm.id[0], cm.channel2), 0);
	CU_ASSERT_PTR_EQUAL(cm.id[0]->channel, cm.channel2);
	DO(cm_qp(&near));
	near.private_len = 0;
	DO(FAR_BEGIN(cm_next, &ready));
	DO(cm_accept(&near));
	swap_channels();
	near.event = RDMA_CM_EVENT_ESTABLISHED;
	DO(cm_next(&near));
	DO(FAR_END(&ready));
	cm_exchange();

	/* An event that already waits moves along. */
	DO(FAR(cm_disconnect, &far));
	CU_ASSERT_EQUAL(fd_wait(cm.channel->fd, SIDE_DEADLINE_MS), 0);
	CU_ASSERT_EQUAL(rdma_migrate_id(cm.id[0], cm.channel2), 0);
	CU_ASSERT_EQUAL(fd_wait(cm.channel->fd, 0), -ETIMEDOUT);
	swap_channels();
	near.event = RDMA_CM_EVENT_DISCONNECTED;
	DO(cm_next(&near));
	close_both();
}

static void test_devices_are_listed(void)
{
	int n = 0;
	TEST_BEGIN();
	struct ibv_context **list = rdma_get_devices(&n);
	CU_ASSERT_PTR_NOT_NULL_FATAL(list);
	CU_ASSERT_TRUE(n >= 1);
	CU_ASSERT_PTR_NOT_NULL(list[0]);
	CU_ASSERT_PTR_NULL(list[n]);
	rdma_free_devices(list);
}

static void test_options_are_accepted(void)
{
	struct cm_step s = {0};
	uint8_t tos = 32, timeout = 14;
	int reuse = 1;
	TEST_BEGIN();
	DO(cm_create(&s));
	CU_ASSERT_EQUAL(rdma_set_option(cm.id[0], RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)), 0);
	CU_ASSERT_EQUAL(rdma_set_option(cm.id[0], RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &reuse, sizeof(reuse)), 0);
	CU_ASSERT_EQUAL(
		rdma_set_option(cm.id[0], RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof(timeout)), 0);
	CU_ASSERT_EQUAL(rdma_set_option(cm.id[0], RDMA_OPTION_ID, 999, &tos, sizeof(tos)), -1);
	DO(cm_close(&(int){0}));
}

static const struct unit_test tests[] = {
	UNIT(test_port_without_a_listener_rejects),
	UNIT(test_identifier_can_be_destroyed_while_it_connects_to_nobody),
	UNIT(test_address_of_nobody_does_not_connect),
	UNIT(test_listener_that_went_away_rejects),
	UNIT(test_listener_that_goes_away_rejects_who_waits),
	UNIT(test_request_destroyed_without_an_answer_is_a_rejection),
	UNIT(test_client_that_gives_up_does_not_hang_the_server),
	UNIT(test_rejected_client_can_try_again),
	UNIT(test_port_in_use_is_refused),
	UNIT(test_foreign_address_cannot_be_bound),
	UNIT(test_port_0_takes_a_free_one),
	UNIT(test_listener_on_any_address_is_reached),
	UNIT(test_call_in_the_wrong_state_is_refused),
	UNIT(test_connect_before_the_route_is_known_is_refused),
	UNIT(test_connected_identifier_refuses_to_connect_again),
	UNIT(test_nonblocking_channel_has_no_event),
	UNIT(test_migrated_identifier_tells_its_new_channel),
	UNIT(test_devices_are_listed),
	UNIT(test_options_are_accepted),
	UNIT_END,
};
SIDES_MAIN("softverbs_cm_refused", tests)

/* SPDX-License-Identifier: BSD-3-Clause */
/* rdma_cm: connections in every order that programs use, what the events carry, refusals, disconnection. */
#include "unittest/softverbs/cm.h"

#include <arpa/inet.h>
#include <errno.h>

static void open_close(bool near_by_hand, bool far_by_hand)
{
	if (cm_pair(near_by_hand, far_by_hand, NULL)) {
		cm_exchange();
		cm_pair_close();
	}
}

static void test_connect_with_rdma_create_qp(void)
{
	TEST_BEGIN();
	open_close(false, false);
}

static void test_connect_with_queue_pairs_made_by_hand(void)
{
	TEST_BEGIN();
	open_close(true, true);
}

static void test_connect_with_the_clients_queue_pair_made_by_hand(void)
{
	TEST_BEGIN();
	open_close(true, false);
}

static void test_connect_with_the_servers_queue_pair_made_by_hand(void)
{
	TEST_BEGIN();
	open_close(false, true);
}

static void test_connect_again_and_again(void)
{
	TEST_BEGIN();
	for (int i = 0; i < 5; i++) {
		open_close(i % 2 == 1, false);
	}
}

static void close_both(void)
{
	DO(FAR(cm_close, &(int){0}));
	DO(cm_close(&(int){0}));
}

/* The far process is the client this time. */
static void test_far_side_connects_to_the_near_one(void)
{
	struct cm_step l = {0}, far = {0}, near = {0};
	TEST_BEGIN();
	DO(cm_listen(&l));
	far.port = l.port;
	DO(FAR(cm_resolve, &far));
	DO(FAR(cm_qp, &far));
	DO(FAR(cm_connect, &far));
	far.event = RDMA_CM_EVENT_ESTABLISHED;
	DO(FAR_BEGIN(cm_next, &far)); /* the client's program takes the event before the server hears of it */
	DO(cm_serve(&near));
	DO(FAR_END(&far));
	cm_exchange();
	close_both();
}

/* Receives posted before the connection exists take what comes first. */
static void test_receives_posted_before_accept_are_used(void)
{
	struct cm_step l = {0}, near = {0}, far = {.event = RDMA_CM_EVENT_CONNECT_REQUEST};
	TEST_BEGIN();
	DO(FAR(cm_listen, &l));
	near.port = l.port;
	DO(cm_resolve(&near));
	DO(cm_qp(&near));
	DO(post_recv(&(struct rr){.wr_id = 5, .n = 1, .p = {{0, 64, 0}}}));
	DO(cm_connect(&near));
	DO(FAR(cm_next, &far));
	DO(FAR(cm_qp, &far));
	far.private_len = 0;
	DO(FAR(cm_accept, &far));
	near.event = far.event = RDMA_CM_EVENT_ESTABLISHED;
	DO(cm_next(&near));
	DO(FAR(cm_next, &far));
	DO(FAR(post_send, &((struct sr){.opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED, .n = 1, .p = {{0, 8, 0}}})));
	CU_ASSERT_EQUAL(wait_recv_wc().wr_id, 5);
	ASSERT_STATUS(far_send_wc().status, IBV_WC_SUCCESS);
	close_both();
}

/* Many ask before the server looks at its events at all. Requests may overtake each other; they say whose they are. */
static void test_requests_wait_for_a_server_that_comes_later(void)
{
	enum { CLIENTS = 4 };
	struct cm_step l = {0}, near = {.private_len = 1}, far;
	int asker[CLIENTS]; /* by far slot */
	TEST_BEGIN();
	DO(FAR(cm_listen, &l));
	near.port = l.port;
	for (near.slot = 0; near.slot < CLIENTS; near.slot++) {
		near.private_data[0] = (uint8_t)near.slot;
		DO(cm_resolve(&near));
		DO(cm_qp(&near));
		DO(cm_connect(&near));
	}
	for (int i = 0; i < CLIENTS; i++) {
		far = (struct cm_step){.slot = i, .event = RDMA_CM_EVENT_CONNECT_REQUEST};
		DO(FAR(cm_next, &far));
		DO(FAR(cm_qp, &far));
		asker[i] = far.private_data[0];
	}
	for (int i = 0; i < CLIENTS; i++) {
		far = (struct cm_step){.slot = i};
		DO(FAR(cm_accept, &far));
		near = (struct cm_step){.slot = asker[i], .event = RDMA_CM_EVENT_ESTABLISHED};
		DO(cm_next(&near));
		far.event = RDMA_CM_EVENT_ESTABLISHED;
		DO(FAR(cm_next, &far));
		DO(cm_use(&near));
		DO(FAR(cm_use, &far));
		cm_exchange();
	}
	close_both();
}

static void test_connections_are_independent(void)
{
	uint16_t port;
	TEST_BEGIN();
	if (!cm_pair(false, false, &port)) {
		return;
	}
	for (int i = 1; i < 6; i++) {
		if (!cm_join(i, i % 2 == 1, false, port)) {
			return;
		}
	}
	for (int i = 0; i < 6; i += 2) {
		struct cm_step s = {.slot = i};
		DO(FAR(cm_destroy, &s));
		s.event = RDMA_CM_EVENT_DISCONNECTED;
		DO(cm_next(&s));
		DO(cm_destroy(&s));
	}
	for (int i = 1; i < 6; i += 2) {
		struct cm_step s = {.slot = i};
		DO(cm_use(&s));
		DO(FAR(cm_use, &s));
		cm_exchange();
	}
	close_both();
}

static void test_one_process_connects_to_itself(void)
{
	struct cm_step l = {0}, client = {.slot = 0}, server = {.slot = 1, .event = RDMA_CM_EVENT_CONNECT_REQUEST};
	TEST_BEGIN();
	DO(cm_listen(&l));
	client.port = l.port;
	DO(cm_resolve(&client));
	DO(cm_qp(&client));
	DO(cm_connect(&client));
	DO(cm_next(&server));
	DO(cm_qp(&server));
	server.private_len = 0;
	DO(cm_accept(&server));
	/* Either may be told first. */
	CU_ASSERT_EQUAL(cm_next_any(&client), RDMA_CM_EVENT_ESTABLISHED);
	CU_ASSERT_EQUAL(cm_next_any(&client), RDMA_CM_EVENT_ESTABLISHED);
	DO(cm_use(&server));
	DO(post_recv(&(struct rr){.n = 1, .p = {{4096, 64, 0}}}));
	fill(&(struct area){.len = 64, .seed = 5});
	DO(cm_use(&client));
	DO(post_send(&(struct sr){.opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED, .n = 1, .p = {{0, 64, 0}}}));
	ASSERT_STATUS(wait_recv_wc().status, IBV_WC_SUCCESS);
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_SUCCESS);
	DO(check(&(struct area){.off = 4096, .len = 64, .seed = 5}));
	DO(cm_close(&(int){0}));
}

/* --- calls that wait themselves: an identifier without a channel */

static long answer_disconnection(struct cm_step *s)
{
	s->event = RDMA_CM_EVENT_DISCONNECTED;
	long rc = cm_next(s);
	return rc != 0 ? rc : cm_disconnect(s);
}

static void test_identifier_without_a_channel_waits_itself(void)
{
	struct cm_step l = {0}, far = {0};
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *info = NULL;
	struct rdma_conn_param p = {
		.responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC,
				     .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	char port[8];
	TEST_BEGIN();
	DO(FAR(cm_listen, &l));
	snprintf(port, sizeof(port), "%u", l.port);
	CU_ASSERT_EQUAL_FATAL(rdma_getaddrinfo(sides_ip(), port, &hints, &info), 0);
	struct rdma_cm_id *id = NULL;
	CU_ASSERT_EQUAL_FATAL(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), 0);
	CU_ASSERT_EQUAL_FATAL(rdma_resolve_addr(id, NULL, info->ai_dst_addr, 2000), 0);
	CU_ASSERT_EQUAL_FATAL(rdma_resolve_route(id, 2000), 0);
	CU_ASSERT_EQUAL_FATAL(rdma_create_qp(id, NULL, &a), 0); /* with a domain and queues of its own */
	CU_ASSERT_PTR_NOT_NULL(id->send_cq);
	DO(FAR_BEGIN(cm_serve, &far));
	CU_ASSERT_EQUAL(rdma_connect(id, &p), 0);
	DO(FAR_END(&far));
	DO(FAR_BEGIN(answer_disconnection, &far));
	CU_ASSERT_EQUAL(rdma_disconnect(id), 0);
	DO(FAR_END(&far));
	rdma_destroy_qp(id);
	CU_ASSERT_EQUAL(rdma_destroy_id(id), 0);
	rdma_freeaddrinfo(info);
	DO(FAR(cm_close, &(int){0}));
}

/* --- what the events carry */

static void pattern(struct cm_step *s, uint32_t len, uint8_t first)
{
	s->private_len = len;
	for (uint32_t i = 0; i < len; i++) {
		s->private_data[i] = (uint8_t)(first + i);
	}
}

static bool has_pattern(const struct cm_step *s, uint32_t len, uint8_t first)
{
	struct cm_step want;
	pattern(&want, len, first);
	return s->private_len >= len && memcmp(s->private_data, want.private_data, len) == 0;
}

static void test_private_data_and_depths_reach_the_other_side(void)
{
	struct cm_step l = {0}, near = {.initiator_depth = 5, .responder_resources = 3};
	struct cm_step far = {.event = RDMA_CM_EVENT_CONNECT_REQUEST};
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	TEST_BEGIN();
	DO(FAR(cm_listen, &l));
	near.port = l.port;
	DO(cm_resolve(&near));
	DO(cm_qp(&near));
	pattern(&near, 56, 10);
	near.initiator_depth = 5;
	near.responder_resources = 3;
	DO(cm_connect(&near));
	DO(FAR(cm_next, &far));
	CU_ASSERT_EQUAL(far.private_len, 56); /* all that the message has room for, as IB reports it */
	CU_ASSERT_TRUE(has_pattern(&far, 56, 10));
	CU_ASSERT_EQUAL(far.responder_resources, 5); /* seen from the server: what it must have for the client */
	CU_ASSERT_EQUAL(far.initiator_depth, 3);
	DO(FAR(cm_qp, &far));
	pattern(&far, 196, 40);
	far.initiator_depth = 2;
	far.responder_resources = 4;
	DO(FAR(cm_accept, &far));
	near.event = far.event = RDMA_CM_EVENT_ESTABLISHED;
	DO(cm_next(&near));
	CU_ASSERT_EQUAL(near.private_len, 196);
	CU_ASSERT_TRUE(has_pattern(&near, 196, 40));
	CU_ASSERT_EQUAL(near.initiator_depth, 4);
	CU_ASSERT_EQUAL(near.responder_resources, 2);
	DO(FAR(cm_next, &far));
	CU_ASSERT_EQUAL(ibv_query_qp(me.qp, &a, IBV_QP_MAX_QP_RD_ATOMIC, &init), 0);
	CU_ASSERT_EQUAL(a.max_rd_atomic, 4);
	cm_pair_close();
}

static void test_too_much_private_data_is_refused(void)
{
	struct cm_step l = {0}, near = {0}, far = {.event = RDMA_CM_EVENT_CONNECT_REQUEST};
	TEST_BEGIN();
	DO(FAR(cm_listen, &l));
	near.port = l.port;
	DO(cm_resolve(&near));
	DO(cm_qp(&near));
	near.private_len = 57;
	CU_ASSERT_EQUAL(cm_connect(&near), -EINVAL);
	near.private_len = 0;
	DO(cm_connect(&near));
	DO(FAR(cm_next, &far));
	far.private_len = 149;
	CU_ASSERT_EQUAL(FAR(cm_reject, &far), -EINVAL);
	far.private_len = 148;
	DO(FAR(cm_reject, &far));
	near.event = RDMA_CM_EVENT_REJECTED;
	DO(cm_next(&near));
	close_both();
}

static void test_short_private_data_is_padded_with_zeros(void)
{
	struct cm_step l = {0}, near = {0}, far = {.event = RDMA_CM_EVENT_CONNECT_REQUEST};
	TEST_BEGIN();
	DO(FAR(cm_listen, &l));
	near.port = l.port;
	DO(cm_resolve(&near));
	DO(cm_qp(&near));
	pattern(&near, 3, 1);
	DO(cm_connect(&near));
	DO(FAR(cm_next, &far));
	CU_ASSERT_EQUAL(far.private_len, 56);
	CU_ASSERT_TRUE(has_pattern(&far, 3, 1));
	CU_ASSERT_EQUAL(far.private_data[3] | far.private_data[55], 0);
	close_both();
}

static void test_reject_carries_private_data(void)
{
	struct cm_step l = {0}, near = {0}, far = {.event = RDMA_CM_EVENT_CONNECT_REQUEST};
	TEST_BEGIN();
	DO(FAR(cm_listen, &l));
	near.port = l.port;
	DO(cm_resolve(&near));
	DO(cm_qp(&near));
	DO(post_recv(&(struct rr){.n = 1, .p = {{0, 64, 0}}}));
	DO(cm_connect(&near));
	DO(FAR(cm_next, &far));
	pattern(&far, 148, 90);
	DO(FAR(cm_reject, &far));
	near.event = RDMA_CM_EVENT_REJECTED;
	DO(cm_next(&near));
	CU_ASSERT_EQUAL(near.status, 28); /* "consumer defined", IBTA volume 1, 12.6.7.2 */
	CU_ASSERT_EQUAL(near.private_len, 148);
	CU_ASSERT_TRUE(has_pattern(&near, 148, 90));
	ASSERT_STATUS(wait_recv_wc().status, IBV_WC_WR_FLUSH_ERR);
	close_both();
}

static void test_both_sides_know_the_addresses(void)
{
	uint16_t port;
	struct cm_step near = {0}, far = {0};
	TEST_BEGIN();
	if (!cm_pair(false, false, &port)) {
		return;
	}
	DO(cm_ports(&near));
	DO(FAR(cm_ports, &far));
	CU_ASSERT_EQUAL(near.dst_port, port);
	CU_ASSERT_EQUAL(far.src_port, port);
	CU_ASSERT_NOT_EQUAL(near.src_port, 0);
	CU_ASSERT_EQUAL(far.dst_port, near.src_port);
	struct sockaddr_in *peer = (struct sockaddr_in *)rdma_get_peer_addr(cm.id[0]);
	struct sockaddr_in *self = (struct sockaddr_in *)rdma_get_local_addr(cm.id[0]);
	CU_ASSERT_EQUAL(peer->sin_family, AF_INET);
	CU_ASSERT_EQUAL(peer->sin_addr.s_addr, inet_addr(sides_ip()));
	CU_ASSERT_EQUAL(self->sin_addr.s_addr, inet_addr(sides_ip()));
	CU_ASSERT_EQUAL(cm.id[0]->port_num, 1);
	cm_pair_close();
}

/* --- disconnection */

static void test_disconnect_flushes_and_is_an_event_on_both_sides(void)
{
	struct cm_step near = {.event = RDMA_CM_EVENT_DISCONNECTED}, far = near;
	TEST_BEGIN();
	if (!cm_pair(false, false, NULL)) {
		return;
	}
	DO(post_recv(&(struct rr){.wr_id = 3, .count = 4, .n = 1, .p = {{0, 64, 0}}}));
	DO(FAR(post_recv, &((struct rr){.wr_id = 3, .count = 4, .n = 1, .p = {{0, 64, 0}}})));
	DO(FAR(cm_disconnect, &far));
	DO(cm_next(&near));
	DO(cm_disconnect(&near));
	DO(FAR(cm_next, &far));
	for (uint64_t i = 0; i < 4; i++) {
		struct ibv_wc a = wait_recv_wc(), b = far_recv_wc();
		ASSERT_STATUS(a.status, IBV_WC_WR_FLUSH_ERR);
		ASSERT_STATUS(b.status, IBV_WC_WR_FLUSH_ERR);
		CU_ASSERT_EQUAL(a.wr_id, 3 + i);
		CU_ASSERT_EQUAL(b.wr_id, 3 + i);
	}
	CU_ASSERT_EQUAL(qp_state(&(int){0}), IBV_QPS_ERR);
	close_both();
}

static void test_both_disconnect_at_once(void)
{
	struct cm_step near = {.event = RDMA_CM_EVENT_DISCONNECTED}, far = near;
	TEST_BEGIN();
	for (int i = 0; i < 5; i++) {
		if (!cm_pair(false, false, NULL)) {
			return;
		}
		DO(FAR_BEGIN(cm_disconnect, &far));
		cm_disconnect(&near); /* the other's may be here already: an error is no failure */
		FAR_END(&far);
		DO(cm_next(&near));
		DO(FAR(cm_next, &far));
		close_both();
	}
}

static void test_timewait_exit_follows_the_disconnection(void)
{
	struct cm_step near = {.event = RDMA_CM_EVENT_DISCONNECTED}, far = near;
	TEST_BEGIN();
	if (!cm_pair(false, false, NULL)) {
		return;
	}
	DO(cm_disconnect(&near));
	DO(FAR(cm_next, &far));
	DO(FAR(cm_disconnect, &far));
	DO(cm_next(&near));
	near.event = far.event = RDMA_CM_EVENT_TIMEWAIT_EXIT;
	DO(cm_next(&near));
	DO(FAR(cm_next, &far));
	close_both();
}

static void test_destroyed_identifier_disconnects_the_other(void)
{
	struct cm_step near = {.event = RDMA_CM_EVENT_DISCONNECTED};
	TEST_BEGIN();
	if (!cm_pair(false, false, NULL)) {
		return;
	}
	DO(post_recv(&(struct rr){.n = 1, .p = {{0, 64, 0}}}));
	DO(FAR(cm_close, &(int){0}));
	DO(cm_next(&near));
	DO(cm_disconnect(&near));
	ASSERT_STATUS(wait_recv_wc().status, IBV_WC_WR_FLUSH_ERR);
	DO(cm_close(&(int){0}));
}

/* The last message before the disconnection is not lost: the data come before the event. */
static void test_message_before_the_disconnection_arrives(void)
{
	struct cm_step near = {.event = RDMA_CM_EVENT_DISCONNECTED}, far = near;
	TEST_BEGIN();
	if (!cm_pair(false, false, NULL)) {
		return;
	}
	DO(post_recv(&(struct rr){.n = 1, .p = {{0, 64, 0}}}));
	DO(FAR(post_send, &((struct sr){.opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED, .n = 1, .p = {{0, 8, 0}}})));
	ASSERT_STATUS(far_send_wc().status, IBV_WC_SUCCESS);
	DO(FAR(cm_disconnect, &far));
	DO(cm_next(&near));
	ASSERT_STATUS(wait_recv_wc().status, IBV_WC_SUCCESS);
	DO(cm_disconnect(&near));
	close_both();
}

static const struct unit_test tests[] = {
	UNIT(test_connect_with_rdma_create_qp),
	UNIT(test_connect_with_queue_pairs_made_by_hand),
	UNIT(test_connect_with_the_clients_queue_pair_made_by_hand),
	UNIT(test_connect_with_the_servers_queue_pair_made_by_hand),
	UNIT(test_connect_again_and_again),
	UNIT(test_far_side_connects_to_the_near_one),
	UNIT(test_receives_posted_before_accept_are_used),
	UNIT(test_requests_wait_for_a_server_that_comes_later),
	UNIT(test_connections_are_independent),
	UNIT(test_one_process_connects_to_itself),
	UNIT(test_identifier_without_a_channel_waits_itself),
	UNIT(test_private_data_and_depths_reach_the_other_side),
	UNIT(test_too_much_private_data_is_refused),
	UNIT(test_short_private_data_is_padded_with_zeros),
	UNIT(test_reject_carries_private_data),
	UNIT(test_both_sides_know_the_addresses),
	UNIT(test_disconnect_flushes_and_is_an_event_on_both_sides),
	UNIT(test_both_disconnect_at_once),
	UNIT(test_timewait_exit_follows_the_disconnection),
	UNIT(test_destroyed_identifier_disconnects_the_other),
	UNIT(test_message_before_the_disconnection_arrives),
	UNIT_END,
};
SIDES_MAIN("softverbs_cm", tests)

/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer that writes nonsense all over what it can reach of us: our arena. It may spoil connections, but it must
 * neither crash us nor make us wait for ever. Knows the layout (softverbs/shm.h), so it runs under softverbs only. */
#include "unittest/softverbs/sides.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "softverbs/shm.h"

#define HOSTILE_BEGIN()                                                                                                \
	TEST_BEGIN();                                                                                                  \
	if (!sides_device_is("softverbs")) {                                                                           \
		UNIT_SKIP("only softverbs has an arena");                                                              \
	}

enum target_area { AREA_QP, AREA_CQ, AREA_SRQ, AREA_KEYS, AREA_HEAP, AREA_ALL };

struct scribble {
	enum target_area area;
	uint32_t seed;
	uint32_t words;
};

/* The near side's arena as the far process has it mapped. */
static struct sv_arena *find_near_arena(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];
	struct sv_arena *found = NULL;
	while (f != NULL && found == NULL && fgets(line, sizeof(line), f) != NULL) {
		struct sv_arena *a = (struct sv_arena *)strtoul(line, NULL, 16);
		if (strstr(line, "memfd:softverbs") != NULL && a->slot == SV_QPN_SLOT(me.other.qpn)) {
			found = a;
		}
	}
	if (f != NULL) {
		fclose(f);
	}
	return found;
}

static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 4;
}

/* Small numbers, all ones and noise: what finds a missing check. */
static uint32_t bad_value(uint32_t *state)
{
	uint32_t r = next_random(state);
	switch (r % 4) {
	case 0:
		return r >> 8 & 15;
	case 1:
		return UINT32_MAX - (r >> 8 & 3);
	case 2:
		return 1u << (r >> 8 & 31);
	default:
		return next_random(state) << 8 ^ r;
	}
}

static void area_of(struct sv_arena *a, enum target_area area, uint8_t **base, size_t *bytes)
{
	switch (area) {
	case AREA_QP:
		*base = (uint8_t *)&a->qp[SV_QPN_INDEX(me.other.qpn)];
		*bytes = sizeof(a->qp[0]);
		return;
	case AREA_CQ:
		*base = (uint8_t *)a->cq;
		*bytes = 8 * sizeof(a->cq[0]);
		return;
	case AREA_SRQ:
		*base = (uint8_t *)a->srq;
		*bytes = 4 * sizeof(a->srq[0]);
		return;
	case AREA_KEYS:
		*base = (uint8_t *)a->mr;
		*bytes = 64 * sizeof(a->mr[0]);
		return;
	default:
		*base = (uint8_t *)a + SV_HEAP_OFFSET;
		*bytes = 1 << 20;
		return;
	}
}

/* Races with everything, on purpose. */
__attribute__((no_sanitize("thread"))) static long scribble(struct scribble *s)
{
	struct sv_arena *a = find_near_arena();
	uint32_t state = s->seed;
	if (a == NULL) {
		return -1;
	}
	for (uint32_t i = 0; i < s->words; i++) {
		uint8_t *base;
		size_t bytes;
		area_of(a, s->area == AREA_ALL ? next_random(&state) % AREA_ALL : s->area, &base, &bytes);
		*(volatile uint32_t *)(base + next_random(&state) % (bytes / 4) * 4) = bad_value(&state);
	}
	return 0;
}

/* Work as a program that suspects nothing; how any of it ends does not matter. */
static void use_everything(void)
{
	struct ibv_wc wc[16];
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	post_recv(&(struct rr){.count = 4, .n = 1, .p = {{0, 4096, 0}}});
	post_send(&(struct sr){
		.opcode = IBV_WR_SEND, .count = 2, .flags = IBV_SEND_SIGNALED, .n = 1, .p = {{8192, 64, 0}}});
	for (int i = 0; i < 50; i++) {
		ibv_poll_cq(me.rcq, 16, wc);
		ibv_poll_cq(me.scq, 16, wc);
	}
	ibv_req_notify_cq(me.rcq, 0);
	ibv_query_qp(me.qp, &attr, IBV_QP_STATE, &init);
}

static void survive(enum target_area area, bool srq, uint32_t seed)
{
	struct side_options o = {.srq = srq, .rnr_retry = 1, .timeout = 8, .retry = 1};
	if (!pair_open(&o, &o)) {
		return;
	}
	/* A message, so that the far side is attached. */
	CU_ASSERT_EQUAL(post_recv(&(struct rr){.count = 8, .n = 1, .p = {{0, 4096, 0}}}), 0);
	CU_ASSERT_EQUAL(
		FAR(post_send,
		    &((struct sr){.opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED, .n = 1, .p = {{0, 64, 0}}})),
		0);
	ASSERT_STATUS(wait_recv_wc().status, IBV_WC_SUCCESS);
	for (uint32_t round = 0; round < 8; round++) {
		struct scribble s = {.area = area, .seed = seed * 100 + round, .words = 64};
		CU_ASSERT_EQUAL(FAR(scribble, &s), 0);
		FAR(post_send,
		    &((struct sr){.opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED, .n = 1, .p = {{0, 64, 0}}}));
		use_everything();
	}
	/* The bystander's turn: everything goes in good order, or says why not; a new pair works afterwards. */
	far_kill(9);
	side_close(&(int){0});
	CU_ASSERT_EQUAL(far_start(), 0);
}

static void test_nonsense_in_the_queue_pair_is_survived(void)
{
	HOSTILE_BEGIN();
	for (uint32_t seed = 1; seed <= 3; seed++) {
		survive(AREA_QP, false, seed);
	}
}

static void test_nonsense_in_the_completion_queue_is_survived(void)
{
	HOSTILE_BEGIN();
	for (uint32_t seed = 1; seed <= 3; seed++) {
		survive(AREA_CQ, false, seed);
	}
}

static void test_nonsense_in_the_shared_receive_queue_is_survived(void)
{
	HOSTILE_BEGIN();
	for (uint32_t seed = 1; seed <= 3; seed++) {
		survive(AREA_SRQ, true, seed);
	}
}

static void test_nonsense_in_the_table_of_keys_is_survived(void)
{
	HOSTILE_BEGIN();
	survive(AREA_KEYS, false, 1);
}

static void test_nonsense_in_the_rings_is_survived(void)
{
	HOSTILE_BEGIN();
	survive(AREA_HEAP, false, 1);
	survive(AREA_HEAP, true, 2);
}

static void test_nonsense_everywhere_is_survived(void)
{
	HOSTILE_BEGIN();
	for (uint32_t seed = 1; seed <= 3; seed++) {
		survive(AREA_ALL, seed == 2, seed);
	}
}

/* As a sender does it, up to the point where a kill may end it: the next receive is its, and the queue still shows it
 * as the next. */
static long take_a_receive_and_no_more(int *unused)
{
	struct sv_arena *a = find_near_arena();
	if (a == NULL) {
		return -1;
	}
	struct sv_srq_shm *srq = &a->srq[a->qp[SV_QPN_INDEX(me.other.qpn)].srq - 1];
	_Atomic uint32_t *order = (_Atomic uint32_t *)((uint8_t *)a + srq->order_off);
	uint32_t head = atomic_load(&srq->head);
	struct sv_slot *slot =
		(struct sv_slot *)((uint8_t *)a + srq->slots_off + (size_t)order[head & (srq->size - 1)] * srq->stride);
	uint64_t unclaimed = (uint64_t)head << 32;
	return atomic_compare_exchange_strong(&slot->claim, &unclaimed, unclaimed | me.other.qpn) ? 0 : -1;
}

/* The near side's queue pair and the far process are gone: new ones, on the same shared receive queue. */
static bool pair_again(struct side_options *o)
{
	struct endpoint here, there;
	me.qp = NULL;
	return side_create_qp(o) == 0 && far_start() == 0 && FAR(side_open, o) == 0 && side_endpoint(&here) == 0 &&
	       FAR(side_endpoint, &there) == 0 && side_connect(&there) == 0 && FAR(side_connect, &here) == 0;
}

static void far_sends(uint32_t count)
{
	struct sr s = {.opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED, .count = count, .n = 1, .p = {{0, 64, 0}}};
	struct wcs w = {.recv = true, .n = count};
	CU_ASSERT_EQUAL(FAR(post_send, &s), 0);
	CU_ASSERT_EQUAL(wait_wc(&w), count);
	for (uint32_t i = 0; i < count; i++) {
		ASSERT_STATUS(w.wc[i].status, IBV_WC_SUCCESS);
	}
	ASSERT_STATUS(far_send_wc().status, IBV_WC_SUCCESS);
}

static void test_shared_receives_go_on_after_a_sender_died_taking_one(void)
{
	struct side_options o = {.srq = true, .srq_wr = 64, .timeout = 8, .retry = 1};
	struct rr one = {.n = 1, .p = {{0, 4096, 0}}};
	HOSTILE_BEGIN();
	if (!pair_open(&o, &o)) {
		return;
	}
	CU_ASSERT_EQUAL(post_recv(&(struct rr){.count = 64, .n = 1, .p = {{0, 4096, 0}}}), 0);
	far_sends(1); /* it is attached */
	CU_ASSERT_EQUAL(post_recv(&one), 0);
	CU_ASSERT_EQUAL(FAR(take_a_receive_and_no_more, &(int){0}), 0);
	far_kill(SIGKILL);
	ASSERT_STATUS(wait_recv_wc().status, IBV_WC_WR_FLUSH_ERR); /* the owner has it back */
	CU_ASSERT_EQUAL(post_recv(&one), 0);                       /* and the queue is full */
	CU_ASSERT_EQUAL(ibv_destroy_qp(me.qp), 0);
	CU_ASSERT_TRUE_FATAL(pair_again(&o));
	far_sends(1);
	pair_close();
}

static void test_a_new_connection_works_after_all_that(void)
{
	HOSTILE_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	CU_ASSERT_EQUAL(FAR(post_recv, &((struct rr){.n = 1, .p = {{0, 64, 0}}})), 0);
	CU_ASSERT_EQUAL(
		post_send(&(struct sr){.opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED, .n = 1, .p = {{0, 64, 0}}}),
		0);
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_SUCCESS);
	ASSERT_STATUS(far_recv_wc().status, IBV_WC_SUCCESS);
	pair_close();
}

static const struct unit_test tests[] = {
	UNIT(test_nonsense_in_the_queue_pair_is_survived),
	UNIT(test_nonsense_in_the_completion_queue_is_survived),
	UNIT(test_nonsense_in_the_shared_receive_queue_is_survived),
	UNIT(test_nonsense_in_the_table_of_keys_is_survived),
	UNIT(test_nonsense_in_the_rings_is_survived),
	UNIT(test_nonsense_everywhere_is_survived),
	UNIT(test_shared_receives_go_on_after_a_sender_died_taking_one),
	UNIT(test_a_new_connection_works_after_all_that),
	UNIT_END,
};

SIDES_MAIN("softverbs_hostile", tests)

/* SPDX-License-Identifier: BSD-3-Clause */
/* Too much at once: of the commands that an admin queue limits (AERL, ACL: Base 5.2, 5.1), of commands to it at all, of
 * connections that come to nothing. */
#include "systest/hostile/cases.h"

#include <stdio.h>

#define FULL      (ADMIN_ENTRIES - 1u) /* commands that the queue takes at a time */
#define HALF_OPEN 12

static void send_admin(struct link *l, uint8_t opcode, uint16_t cid, uint32_t cdw10)
{
	uint8_t sqe[SQE_SIZE] = {opcode, FLAG_SGL};

	put16(sqe + AT_CID, cid);
	put32(sqe + AT_CDW10, cdw10);
	if (opcode == ADM_IDENTIFY) {
		put_keyed(sqe + AT_SGL, (uintptr_t)link_slot(l, 1), 4096, memory.remote->rkey, SUB_ADDRESS);
	}
	link_send(l, cid, sqe, SQE_SIZE); /* fails if it has ended, which is seen otherwise */
}

static uint16_t status_at(const struct link *l, uint32_t i)
{
	return get16(l->inbox[i] + 14) >> 1 & 0x7ff;
}

/* Waits for n answers, and counts those with a status; all are taken. */
static uint32_t answers(struct kase *k, struct link *l, uint32_t n, uint16_t status)
{
	uint32_t right = 0;

	if (!link_wait(l, n) || l->inbox_len != n) {
		kase_fail(k, "%u answers instead of %u%s%s", l->inbox_len, n, l->ended ? ": " : "",
			  l->ended ? l->why : "");
	}
	for (uint32_t i = 0; i < l->inbox_len; i++) {
		right += status_at(l, i) == status;
	}
	l->inbox_len = 0;
	return right;
}

/* The queue is full of requests for events again and again: none beyond the limit is held, and each that is can be
 * aborted. */
static void flood_events(struct kase *k, struct link *l)
{
	uint32_t held = k->facts->aer_max < FULL ? k->facts->aer_max : FULL, waves = 1 + pick(k, 6);

	kase_describe(k, "%u times %u event requests", waves, FULL);
	for (uint32_t i = 0; i < held; i++) {
		send_admin(l, ADM_ASYNC, (uint16_t)i, 0);
	}
	for (uint32_t n = FULL - held; waves > 0; waves--) {
		for (uint32_t i = 0; i < n; i++) {
			send_admin(l, ADM_ASYNC, (uint16_t)(held + i), 0);
		}
		if (answers(k, l, n, ST_ASYNC_LIMIT) != n) {
			kase_fail(k, "not all of %u event requests were too many", n);
			return;
		}
	}
	for (uint32_t i = 0; i < held; i++) {
		send_admin(l, ADM_ABORT, (uint16_t)(100 + i), i << 16);
		if (!link_wait(l, 2) || l->inbox_len != 2 || status_at(l, 0) + status_at(l, 1) != ST_ABORTED) {
			kase_fail(k, "event request %u was not aborted", i);
			return;
		}
		l->inbox_len = 0;
	}
}

/* Of commands that are not there, or long since answered: each says that it found nothing, or that they are too many
 * (ACL). */
static void flood_aborts(struct kase *k, struct link *l)
{
	uint32_t waves = 1 + pick(k, 6);

	kase_describe(k, "%u times %u Aborts", waves, FULL);
	for (; waves > 0; waves--) {
		for (uint32_t i = 0; i < FULL; i++) {
			send_admin(l, ADM_ABORT, (uint16_t)i, (uint32_t)(0x8000 + pick(k, 0x8000)) << 16);
		}
		if (!link_wait(l, FULL)) {
			kase_fail(k, "%u of %u Aborts were answered", l->inbox_len, FULL);
			return;
		}
		for (uint32_t i = 0; i < l->inbox_len; i++) {
			uint16_t status = status_at(l, i);
			if (status != ST_ABORT_LIMIT && (status != ST_OK || (get32(l->inbox[i]) & 1) == 0)) {
				kase_fail(k, "an Abort of nothing: %s, dword 0 %x", status_text(status),
					  get32(l->inbox[i]));
				return;
			}
		}
		l->inbox_len = 0;
	}
}

/* More commands than the queue has entries: all are answered, or the connection ends. */
static void overrun(struct kase *k, struct link *l)
{
	static const uint8_t ops[] = {ADM_IDENTIFY, ADM_KEEP_ALIVE, ADM_ABORT, ADM_GET_FEATURES};
	uint32_t n = ADMIN_ENTRIES + 1 + pick(k, 250);

	kase_describe(k, "%u commands to a queue of %u", n, ADMIN_ENTRIES);
	for (uint32_t i = 0; i < n; i++) {
		uint8_t op = ops[pick(k, sizeof(ops))];
		send_admin(l, op, (uint16_t)i, op == ADM_IDENTIFY ? 1 : op == ADM_ABORT ? UINT32_C(0xffff0000) : 0x0b);
	}
	if (!link_wait(l, n)) {
		kase_fail(k, "%u of %u were answered, and the connection goes on", l->inbox_len, n);
	}
	for (uint32_t i = 0; i < l->inbox_len; i++) {
		if (!status_exists(status_at(l, i))) {
			kase_fail(k, "no such status: %x", status_at(l, i));
			return;
		}
	}
}

void run_admin_flood(struct kase *k)
{
	static void (*const floods[])(struct kase *, struct link *) = {flood_events, flood_aborts, overrun};
	uint32_t how = pick(k, 3);
	struct session s;

	if (!session_open(&s, &k->facts->at, false)) {
		kase_fail(k, "a controller could not be had");
		return;
	}
	floods[how](k, s.admin);
	if (floods[how] != overrun) { /* and it goes on as before */
		s.admin->inbox_len = 0;
		send_admin(s.admin, ADM_IDENTIFY, 200, 1);
		if (answers(k, s.admin, 1, ST_OK) != 1) {
			kase_fail(k, "Identify failed after it");
		}
	}
	session_close(&s, pick(k, 4) == 0);
}

/* ---- Connections that are begun, and left ---- */

/* They stay while other cases run. */
static struct link *half_open[HALF_OPEN];

/* The target ends it when no Connect comes for long; one that comes in time is as good as any. */
static void connect_late(struct kase *k, struct link *l)
{
	uint8_t sqe[SQE_SIZE], cqe[CQE_SIZE];

	if (!link_await(l)) {
		kase_fail(k, "a connection request was not answered");
		return;
	}
	if (l->reject >= 0) {
		kase_fail(k, "a connection was refused with reason %d", l->reject);
		return;
	}
	fill_connect(sqe, link_slot(l, 0), &k->facts->at, 1, 0, ADMIN_ENTRIES, 0xffff);
	bool answered = link_command(l, sqe, SQE_SIZE, cqe);
	if (answered ? get16(cqe + 14) >> 1 != ST_OK : !l->ended) {
		kase_fail(k, "a late Connect: %s", answered ? status_text(get16(cqe + 14) >> 1 & 0x7ff) : "no answer");
	}
}

static void begin_half(struct kase *k, struct link **l)
{
	struct cm_request r = cm_request(pick(k, 2) ? 0 : 1, ADMIN_ENTRIES);

	if (link_begin(l, &k->facts->at, &r) != 0) {
		kase_fail(k, "no connection can be begun");
	} else if (pick(k, 2) && !link_await(*l)) { /* or it has been asked for, and nobody looks at the answer */
		kase_fail(k, "a connection request was not answered");
	}
}

void run_half_open(struct kase *k)
{
	uint32_t n = 1 + pick(k, 6);

	kase_describe(k, "%u connections", n);
	for (uint32_t i = 0; i < n; i++) {
		struct link **l = &half_open[pick(k, HALF_OPEN)];
		if (*l == NULL) {
			begin_half(k, l);
			continue;
		}
		if (pick(k, 3) == 0) {
			connect_late(k, *l);
		}
		link_close(*l, pick(k, 2));
		*l = NULL;
	}
}

void half_open_end(void)
{
	for (unsigned i = 0; i < HALF_OPEN; i++) {
		link_close(half_open[i], false);
		half_open[i] = NULL;
	}
}

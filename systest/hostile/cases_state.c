/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of a controller (Base 3.6, 3.5.3): anything written to CC at any time, with I/O under way and queues being
 * connected. What the registers must say afterwards is modelled; a controller can always be had back by a reset. */
#include "systest/hostile/cases.h"

#include <stdio.h>

#define OPS        64 /* more than a case sends, but for looks at CSTS, which use one id again */
#define IO_QUEUES  2
#define LATE       IO_QUEUES /* the connection whose Connect is sent in between */
#define CC_SIZES   0x00460000u
#define CC_SHN(cc) ((cc) >> 14 & 3)

enum what { SET_CC, GET_CC, GET_CSTS, KEEP_ALIVE, IDENTIFY, ASYNC };

/* A command to the admin queue; its id is its place. */
struct op {
	enum what what;
	bool answered;
};

enum state { DISABLED, READY, FAILED, SHUT };

struct life {
	struct kase *k;
	struct link *admin, *io[IO_QUEUES + 1];
	uint16_t cntlid;
	uint32_t kato_ms;
	struct op ops[OPS];
	unsigned num_ops, num_open;
	uint64_t result; /* of the last Property Get */
	bool late_sent, bad;
	/* The model. */
	enum state state;
	uint32_t cc;
	bool vague; /* until the next reset: CC.SHN was set without CC.EN, or other fields were changed with it; what
		       that does is not said */
	bool queues_lost;
};

/* ---- The model: each write has come to its end before the next ---- */

/* What each command set, page size, arbitration and entry size of ours is; all else cannot be enabled. */
static bool cc_is_possible(uint32_t cc)
{
	return (cc & 0x3ff0) == 0 && (cc & 0xff0000) == CC_SIZES;
}

static void model_write(struct life *l, uint32_t cc)
{
	enum state was = l->state;
	uint32_t old = l->cc;

	l->cc = cc;
	if ((old & 1) != 0 && (cc & 1) == 0) {
		l->state = DISABLED;
		l->vague = false;
	} else if ((old & 1) == 0 && (cc & 1) != 0 && was == DISABLED) {
		l->state = cc_is_possible(cc) ? READY : FAILED;
	}
	l->vague |= (old & cc & 1) != 0 && ((old ^ cc) & ~(3u << 14)) != 0;
	if (CC_SHN(cc) != 0 && CC_SHN(old) == 0) {
		l->vague |= (cc & 1) == 0;
		if (l->state == READY || l->state == DISABLED) {
			l->state = SHUT;
		}
	}
	l->queues_lost |= was == READY && l->state != READY;
	l->queues_lost |= (old & 1) != 0 && (cc & 1) == 0;
}

static bool csts_is_right(const struct life *l, uint32_t csts)
{
	static const struct {
		uint32_t mask, value;
	} right[] = {[DISABLED] = {0xf, 0}, [READY] = {0xf, 1}, [FAILED] = {1, 0}, [SHUT] = {0xc, 8}};

	return l->vague || (csts & right[l->state].mask) == right[l->state].value;
}

/* ---- Commands ---- */

static void fail(struct life *l, const char *what, uint32_t value)
{
	if (!l->bad) {
		kase_fail(l->k, "%s %x; CC %x", what, value, l->cc);
	}
	l->bad = true;
}

static void judge(struct life *l, struct op *op, const uint8_t *cqe)
{
	uint16_t status = get16(cqe + 14) >> 1 & 0x7ff, alive = l->kato_ms != 0 ? ST_OK : ST_KATO_INVALID;
	bool right = false;

	switch (op->what) {
	case SET_CC:
		right = status == ST_OK;
		break;
	case GET_CC:
	case GET_CSTS: /* all other bits are reserved, or of what is not supported; nor is there a state 3 of shutting
			  down */
		l->result = get64(cqe);
		right = status == ST_OK &&
			(op->what == GET_CC || ((l->result & ~UINT64_C(0xf)) == 0 && (l->result & 0xc) != 0xc));
		break;
	case KEEP_ALIVE:
		right = status == alive || status == ST_SEQUENCE;
		break;
	case IDENTIFY:
		right = status == ST_OK || status == ST_SEQUENCE;
		break;
	case ASYNC: /* a reset deletes the queue of what is held */
		right = status == ST_SQ_DELETED || status == ST_ASYNC_LIMIT || status == ST_SEQUENCE;
		break;
	}
	if (!right) {
		fail(l, "a command to the admin queue ended with", status);
	}
	op->answered = true;
	l->num_open -= op->what != ASYNC;
}

static void take_answers(struct life *l)
{
	for (uint32_t i = 0; i < l->admin->inbox_len; i++) {
		uint16_t cid = get16(l->admin->inbox[i] + 12);
		if (cid >= l->num_ops || l->ops[cid].answered) {
			fail(l, "an answer to what nobody asked:", cid);
		} else {
			judge(l, &l->ops[cid], l->admin->inbox[i]);
		}
	}
	l->admin->inbox_len = 0;
}

/* All but held event requests are answered. */
static bool collect(struct life *l)
{
	while (l->num_open != 0 && !l->bad) {
		if (!link_wait(l->admin, 1) || l->admin->ended) {
			fail(l, l->admin->ended ? "the admin queue ended; open:" : "no answer; open:", l->num_open);
		}
		take_answers(l);
	}
	return !l->bad;
}

static void ask(struct life *l, enum what what, uint32_t value)
{
	static const struct {
		uint8_t opcode, fctype, offset;
	} form[] = {
		[SET_CC] = {FABRICS, FC_PROPERTY_SET, REG_CC},
		[GET_CC] = {FABRICS, FC_PROPERTY_GET, REG_CC},
		[GET_CSTS] = {FABRICS, FC_PROPERTY_GET, REG_CSTS},
		[KEEP_ALIVE] = {ADM_KEEP_ALIVE},
		[IDENTIFY] = {ADM_IDENTIFY},
		[ASYNC] = {ADM_ASYNC},
	};
	uint8_t sqe[SQE_SIZE] = {form[what].opcode, FLAG_SGL};

	put16(sqe + AT_CID, (uint16_t)l->num_ops);
	if (sqe[AT_OPCODE] == FABRICS) {
		sqe[AT_FCTYPE] = form[what].fctype;
		put32(sqe + AT_OFST, form[what].offset);
		put64(sqe + AT_VALUE, value);
	} else if (what == IDENTIFY) {
		put32(sqe + AT_CDW10, 1);
		put_keyed(sqe + AT_SGL, (uintptr_t)link_slot(l->admin, 1), 4096, memory.remote->rkey, SUB_ADDRESS);
	}
	l->ops[l->num_ops] = (struct op){.what = what};
	link_send(l->admin, l->num_ops++, sqe,
		  SQE_SIZE); /* fails if the connection has ended, which is seen otherwise */
	l->num_open += what != ASYNC;
	if (what == SET_CC) {
		model_write(l, value);
	}
}

/* Until CSTS says what it must. Ids are used again: each look is over before the next. */
static bool settle(struct life *l)
{
	int64_t until = link_now_ms() + link_deadline_ms;
	unsigned mark = l->num_ops;

	do {
		if (link_now_ms() > until) {
			fail(l, "CSTS stays", (uint32_t)l->result);
		}
		l->num_ops = mark;
		ask(l, GET_CSTS, 0);
	} while (collect(l) && !csts_is_right(l, (uint32_t)l->result));
	return !l->bad;
}

static bool write_and_settle(struct life *l, uint32_t cc)
{
	ask(l, SET_CC, cc);
	return collect(l) && settle(l);
}

/* ---- What goes on meanwhile ---- */

static uint32_t any_cc(struct kase *k)
{
	static const uint32_t impossible[] = {1,
					      CC_ENABLE | 1 << 4,
					      CC_ENABLE | 7 << 4,
					      CC_ENABLE | 1 << 7,
					      CC_ENABLE | 7 << 11,
					      CC_ENABLE ^ 1 << 16,
					      CC_ENABLE ^ 1 << 20};

	switch (pick(k, 12)) {
	case 0:
	case 1:
	case 2:
		return pick(k, 2) ? CC_SIZES : 0;
	case 3:
	case 4:
	case 5:
	case 6:
		return CC_ENABLE;
	case 7:
		return CC_ENABLE | (1 + pick(k, 2)) << 14;
	case 8:
		return CC_SIZES | (1 + pick(k, 3)) << 14;
	case 9:
		return (uint32_t)rng_next(&k->rng);
	default:
		return impossible[pick(k, sizeof(impossible) / sizeof(impossible[0]))];
	}
}

static void some_io(struct life *l, struct link *io)
{
	uint8_t sqe[SQE_SIZE];

	for (uint32_t i = 0, n = pick(l->k, 8); i < n && io->sent < IO_ENTRIES - 1u; i++) {
		fill_rw(l->k->facts, sqe, pick(l->k, 2) ? IO_READ : IO_WRITE, (uint16_t)io->sent, any_lba(l->k, 1),
			(uintptr_t)link_slot(io, io->sent % SLOTS), memory.remote->rkey);
		link_send(io, io->sent, sqe, SQE_SIZE); /* fails if it has ended, as it may */
	}
}

static void send_late_connect(struct life *l)
{
	struct link *late = l->io[LATE];
	uint8_t sqe[SQE_SIZE];

	if (!l->late_sent) {
		fill_connect(sqe, link_slot(late, 0), &l->k->facts->at, UINT16_MAX, LATE + 1, IO_ENTRIES, l->cntlid);
		link_send(late, 0, sqe, SQE_SIZE);
		l->late_sent = true;
	}
}

static void between(struct life *l)
{
	static const enum what asks[] = {KEEP_ALIVE, IDENTIFY, ASYNC, GET_CC, GET_CSTS};

	switch (pick(l->k, 8)) {
	case 0:
	case 1:
		ask(l, asks[pick(l->k, 5)], 0);
		break;
	case 2:
		some_io(l, l->io[pick(l->k, IO_QUEUES)]);
		break;
	case 3:
		send_late_connect(l);
		break;
	case 4:
		if (collect(l)) {
			settle(l);
		}
		break;
	default:
		break;
	}
}

static bool status_is_one_of(uint16_t status, const uint16_t *ok, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (ok[i] == status) {
			return true;
		}
	}
	return false;
}

/* Queues of a controller that was reset end, after answers or without. A late Connect is answered: before the end of
 * what it made, too. */
static void judge_queues(struct life *l)
{
	static const uint16_t io[] = {ST_OK, ST_SQ_DELETED, ST_ABORTED, ST_PATH_ERROR},
			      late[] = {ST_OK, ST_SEQUENCE, ST_CONNECT_PARAM, ST_CONNECT_BUSY};

	for (unsigned q = 0; q < IO_QUEUES && !l->bad; q++) {
		struct link *link = l->io[q];
		if (l->queues_lost ? !link_wait_end(link) : !link_wait(link, link->sent - 1) || link->ended) {
			fail(l,
			     l->queues_lost ? "a queue outlived a reset:" : "a queue ended without one, or is silent:",
			     q + 1);
		}
		for (uint32_t i = 0; i < link->inbox_len && !l->bad; i++) {
			uint16_t status = get16(link->inbox[i] + 14) >> 1 & 0x7ff;
			if (!status_is_one_of(status, io, 4)) {
				fail(l, "a command to an I/O queue ended with", status);
			}
		}
	}
	if (l->late_sent && !l->bad) {
		if (!link_wait(l->io[LATE], 1)) {
			fail(l, "a Connect was not answered", 0);
		} else if (l->io[LATE]->inbox_len != 0 &&
			   !status_is_one_of(get16(l->io[LATE]->inbox[0] + 14) >> 1 & 0x7ff, late, 4)) {
			fail(l, "a Connect ended with", get16(l->io[LATE]->inbox[0] + 14) >> 1 & 0x7ff);
		}
	}
}

/* Whatever was before: enable, reset, enable, and there is a controller that identifies itself and takes queues. */
static void come_back(struct life *l)
{
	struct link *io = NULL;

	if (!write_and_settle(l, CC_ENABLE) || !write_and_settle(l, 0) || !write_and_settle(l, CC_ENABLE)) {
		return;
	}
	ask(l, GET_CC, 0);
	if (collect(l) && l->result != CC_ENABLE) {
		fail(l, "CC is", (uint32_t)l->result);
	}
	ask(l, IDENTIFY, 0);
	if (collect(l) && get16(link_slot(l->admin, 1) + 78) != l->cntlid) {
		fail(l, "Identify failed, or tells of controller", get16(link_slot(l->admin, 1) + 78));
	}
	if (!l->bad && pick(l->k, 2) && !link_queue(&io, &l->k->facts->at, 1, IO_ENTRIES, 0, &l->cntlid)) {
		fail(l, "an I/O queue could not be had after all", 0);
	}
	link_close(io, pick(l->k, 2));
}

/* ---- The case ---- */

static bool begin(struct life *l)
{
	const struct address *at = &l->k->facts->at;
	struct cm_request late = cm_request(LATE + 1, IO_ENTRIES);

	if (!link_queue(&l->admin, at, 0, ADMIN_ENTRIES, l->kato_ms, &l->cntlid)) {
		kase_fail(l->k, "no controller could be had");
		return false;
	}
	if (!write_and_settle(l, CC_ENABLE)) {
		return false;
	}
	for (uint16_t q = 0; q < IO_QUEUES; q++) {
		if (!link_queue(&l->io[q], at, q + 1, IO_ENTRIES, 0, &l->cntlid)) {
			kase_fail(l->k, "I/O queue %u could not be had", q + 1);
			return false;
		}
		l->io[q]->inbox_len = 0;
	}
	if (link_open(&l->io[LATE], at, &late) != 0 || !l->io[LATE]->up) {
		kase_fail(l->k, "a connection was refused");
		return false;
	}
	return true;
}

void run_state(struct kase *k)
{
	struct life l = {.k = k, .cntlid = 0xffff, .kato_ms = pick(k, 2) ? 60000 + pick(k, 60000) : 0};
	unsigned n = 3 + pick(k, 6);

	if (begin(&l)) {
		some_io(&l, l.io[0]);
		some_io(&l, l.io[1]);
		kase_describe(k, "CC");
		for (unsigned i = 0; i < n && !l.bad; i++) {
			uint32_t cc = any_cc(k);
			kase_describe(k, " %x", cc);
			ask(&l, SET_CC, cc);
			between(&l);
		}
		if (collect(&l) && settle(&l)) {
			judge_queues(&l);
		}
		if (!l.bad) {
			come_back(&l);
		}
	}
	for (unsigned q = 0; q <= LATE; q++) {
		link_close(l.io[q], pick(k, 2));
	}
	link_close(l.admin, pick(k, 4) == 0);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* What takes a connection of its own, since it may end it: keys, messages that are no capsules, floods, silence, death,
 * one-sided access. */
#include "systest/hostile/cases.h"

#include <stdio.h>

static bool open_for(struct kase *k, struct session *s)
{
	if (session_open(s, &k->facts->at, true)) {
		return true;
	}
	kase_fail(k, "a controller could not be had");
	return false;
}

static bool untouched(const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (p[i] != CANARY) {
			return false;
		}
	}
	return true;
}

/* Keys that do not open what the descriptor names: the command fails or the connection ends, and nothing is written
 * anywhere. */
void run_key(struct kase *k)
{
	static const uint8_t opcodes[] = {IO_READ, IO_WRITE, IO_COMPARE, IO_DSM};
	struct session s;
	uint8_t sqe[SQE_SIZE], op = opcodes[pick(k, 4)];

	if (!open_for(k, &s)) {
		return;
	}
	struct link *l = s.io;
	uint64_t address = (uintptr_t)link_slot(l, 0);
	uint32_t key = memory.remote->rkey;
	unsigned how = pick(k, 5);
	switch (how) {
	case 0:
		do {
			key = (uint32_t)rng_next(&k->rng);
		} while (key == memory.remote->rkey);
		break;
	case 1: /* memory that nobody else may reach */
		key = memory.local->rkey;
		address = (uintptr_t)l->local;
		break;
	case 2: /* before the region, or behind it */
		address = pick(k, 2) ? (uintptr_t)memory.remote->addr - 1 - pick(k, 100)
				     : (uintptr_t)memory.remote->addr + memory.remote->length -
					       pick(k, k->facts->block_size - 1);
		break;
	case 3: /* wherever */
		address = rng_next(&k->rng);
		break;
	default: /* good, but not to be invalidated, which the descriptor asks for: the response may end the connection
		  */
		break;
	}
	memset(l->local, CANARY, 4096);
	fill_rw(k->facts, sqe, op, 7, any_lba(k, 1), address, key);
	if (how == 4) {
		sqe[AT_SGL_TYPE] |= SUB_INVALIDATE;
		sqe[AT_OPCODE] = op = pick(k, 2) ? IO_WRITE : IO_COMPARE;
	}
	kase_describe(k, "opcode %02x, address %llx key %x", op, (unsigned long long)address, key);
	if (!link_send(l, 1, sqe, SQE_SIZE) || !link_wait(l, 1)) {
		kase_fail(k, "neither an answer nor an end");
	} else if (how != 4 && !l->ended && (get16(l->inbox[0] + 14) >> 1 & 0x7ff) == ST_OK) {
		kase_fail(k, "success");
	} else if (!untouched(l->remote, (size_t)SLOTS * SLOT_SIZE) || !untouched(l->local, 4096)) {
		kase_fail(k, "memory was written");
	}
	session_close(&s, pick(k, 2));
}

/* Messages that are no capsules: they end the connection (RDMA 3.5: a transport error), at the worst they are answered
 * with an error. */
void run_send(struct kase *k)
{
	struct session s;
	uint8_t bytes[CAPSULE_SIZE] = {0};

	if (!open_for(k, &s)) {
		return;
	}
	struct link *l = pick(k, 2) ? s.io : s.admin;
	struct ibv_sge sge = {.addr = (uintptr_t)l->local, .lkey = memory.local->lkey};
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	bool must_end = true;

	fill_rw(k->facts, bytes, IO_READ, 7, 0, (uintptr_t)link_slot(l, 0), memory.remote->rkey);
	memcpy(l->local, bytes, sizeof(bytes));
	switch (pick(k, 4)) {
	case 0:
		sge.length = pick(k, SQE_SIZE);
		wr.num_sge = sge.length != 0;
		break;
	case 1: /* longer than any capsule */
		sge.length =
			SQE_SIZE + k->facts->icd_max + 1 + pick(k, CAPSULE_SIZE - SQE_SIZE - k->facts->icd_max - 1);
		break;
	case 2: /* wants a key of the target's invalidated */
		sge.length = SQE_SIZE;
		wr.opcode = IBV_WR_SEND_WITH_INV;
		wr.invalidate_rkey = pick(k, 2) ? (uint32_t)rng_next(&k->rng) : pick(k, 4096);
		must_end = false;
		break;
	default:
		sge.length = pick(k, SQE_SIZE);
		wr.num_sge = sge.length != 0;
		wr.opcode = IBV_WR_SEND_WITH_IMM;
		wr.imm_data = (uint32_t)rng_next(&k->rng);
		break;
	}
	kase_describe(k, "opcode %d of %u bytes", wr.opcode, sge.length);
	if (!link_post(l, &wr)) {
		kase_fail(k, "could not be posted");
	} else if (must_end ? !link_wait_end(l) : !link_wait(l, 1)) {
		kase_fail(k, "the connection goes on");
	}
	session_close(&s, pick(k, 2));
}

/* More commands than the queue has entries: all are answered, or the connection ends. */
void run_flood(struct kase *k)
{
	struct cm_request r = cm_request(1, (uint16_t)(2 + pick(k, 30)));
	uint8_t sqe[SQE_SIZE], cqe[CQE_SIZE];
	uint16_t entries = (uint16_t)(get16(r.data + 6) + 1);
	uint32_t n = entries + 1 + pick(k, 250);
	struct link *l = NULL;
	struct session s;

	if (!session_open(&s, &k->facts->at, false)) {
		kase_fail(k, "a controller could not be had");
		return;
	}
	r.receives = CAPSULES;
	kase_describe(k, "%u commands to a queue of %u", n, entries);
	if (link_open(&l, &k->facts->at, &r) != 0 || !l->up) {
		kase_fail(k, "the connection was refused");
		goto out;
	}
	fill_connect(sqe, link_slot(l, 0), &k->facts->at, 1, 1, entries, s.cntlid);
	if (!link_command(l, sqe, SQE_SIZE, cqe) || get16(cqe + 14) >> 1 != ST_OK) {
		kase_fail(k, "Connect failed");
		goto out;
	}
	bool one_id = pick(k, 4) == 0; /* all with the same command id */
	uint32_t sent = 0;
	for (; sent < n; sent++) {
		fill_rw(k->facts, sqe, pick(k, 2) ? IO_READ : IO_WRITE, one_id ? 9 : (uint16_t)sent, any_lba(k, 1),
			(uintptr_t)link_slot(l, sent % SLOTS), memory.remote->rkey);
		if (!link_send(l, sent, sqe, SQE_SIZE)) {
			break; /* it has ended */
		}
	}
	if (!link_wait(l, sent)) {
		kase_fail(k, "%u of %u were answered, and the connection goes on", l->inbox_len, sent);
	}
	for (uint32_t i = 0; i < l->inbox_len; i++) {
		if (!status_exists(get16(l->inbox[i] + 14) >> 1 & 0x7ff)) {
			kase_fail(k, "no such status: %x", get16(l->inbox[i] + 14));
			break;
		}
	}
out:
	link_close(l, pick(k, 2));
	session_close(&s, false);
}

static void post_some(struct link *l, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct ibv_sge sge = {.addr = (uintptr_t)l->local + (size_t)CAPSULES * CAPSULE_SIZE + i * 64u,
				      .length = 64,
				      .lkey = memory.local->lkey};
		struct ibv_recv_wr *bad, wr = {.wr_id = UINT64_C(1) << 32 | i, .sg_list = &sge, .num_sge = 1};
		ibv_post_recv(l->id->qp, &wr, &bad); /* fails if it has ended */
	}
}

/* Commands whose responses have nowhere to go; then receives after all, or the end. */
void run_no_receive(struct kase *k)
{
	struct cm_request r = cm_request(1, IO_ENTRIES);
	uint8_t sqe[SQE_SIZE], cqe[CQE_SIZE];
	uint32_t n = 1 + pick(k, IO_ENTRIES - 1), how = pick(k, 3);
	struct link *l = NULL;
	struct session s;

	if (!session_open(&s, &k->facts->at, false)) {
		kase_fail(k, "a controller could not be had");
		return;
	}
	r.receives = 1;
	r.repost = false;
	kase_describe(k, "%u commands, then %s", n, how == 0 ? "receives" : how == 1 ? "the end" : "death");
	if (link_open(&l, &k->facts->at, &r) != 0 || !l->up) {
		kase_fail(k, "the connection was refused");
		goto out;
	}
	fill_connect(sqe, link_slot(l, 0), &k->facts->at, 1, 1, IO_ENTRIES, s.cntlid);
	if (!link_command(l, sqe, SQE_SIZE, cqe) || get16(cqe + 14) >> 1 != ST_OK) {
		kase_fail(k, "Connect failed");
		goto out;
	}
	for (uint32_t i = 0; i < n; i++) {
		fill_rw(k->facts, sqe, pick(k, 2) ? IO_READ : IO_WRITE, (uint16_t)i, any_lba(k, 1),
			(uintptr_t)link_slot(l, i % SLOTS), memory.remote->rkey);
		if (!link_send(l, i, sqe, SQE_SIZE)) {
			break;
		}
	}
	if (how == 0) {
		post_some(l, n);
		if (!link_wait(l, n)) {
			kase_fail(k, "%u of %u were answered", l->inbox_len, n);
		}
	}
out:
	link_close(l, how == 2);
	session_close(&s, how == 2);
}

/* Gone while its commands are under way: the I/O queue first, the admin queue first, or both at once. */
void run_midway(struct kase *k)
{
	uint32_t n = 1 + pick(k, SLOTS - 1), how = pick(k, 4);
	uint8_t sqe[SQE_SIZE];
	struct session s;

	if (!open_for(k, &s)) {
		return;
	}
	kase_describe(k, "%u commands, way %u", n, how);
	for (uint32_t i = 0; i < n; i++) {
		fill_rw(k->facts, sqe, pick(k, 2) ? IO_READ : IO_WRITE, (uint16_t)i, any_lba(k, 1),
			(uintptr_t)link_slot(s.io, i), memory.remote->rkey);
		link_send(s.io, i, sqe, SQE_SIZE);
	}
	if (how == 2) { /* the controller goes with its admin queue, and all of its queues with it */
		link_close(s.admin, false);
		s.admin = NULL;
		if (!link_wait_end(s.io)) {
			kase_fail(k, "the I/O queue outlived its controller");
		}
	}
	session_close(&s, how == 1 || how == 3);
}

/* Access to the target's memory: it has given out no key, so none may be right. */
void run_one_sided(struct kase *k)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
						     IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD};
	struct session s;

	if (!open_for(k, &s)) {
		return;
	}
	struct link *l = pick(k, 2) ? s.io : s.admin;
	struct ibv_sge sge = {.addr = (uintptr_t)l->local, .length = 8 + 8 * pick(k, 500), .lkey = memory.local->lkey};
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = opcodes[pick(k, 5)]};
	/* where DPDK puts its memory unless told otherwise, where ours is, or anywhere; keys small, like ours, or
	 * anything */
	uint64_t address = pick(k, 3) == 0 ? UINT64_C(0x100000000) + pick(k, 1u << 30)
			   : pick(k, 2)    ? (uintptr_t)l->local
					   : rng_next(&k->rng);
	uint32_t key = pick(k, 2)   ? pick(k, 5000)
		       : pick(k, 2) ? memory.remote->rkey + pick(k, 9) - 4
				    : (uint32_t)rng_next(&k->rng);

	address &= ~UINT64_C(7);
	if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		sge.length = 8;
		wr.wr.atomic.remote_addr = address;
		wr.wr.atomic.rkey = key;
	} else {
		wr.wr.rdma.remote_addr = address;
		wr.wr.rdma.rkey = key;
	}
	memset(l->local, CANARY, sge.length);
	kase_describe(k, "opcode %d, address %llx key %x", wr.opcode, (unsigned long long)address, key);
	uint32_t before = l->send_done;
	if (!link_post(l, &wr)) {
		kase_fail(k, "could not be posted");
	} else if (!link_wait_end(l)) {
		kase_fail(k, "the connection goes on");
	} else if (l->send_done != before && wr.opcode == IBV_WR_RDMA_READ) {
		kase_fail(k, "memory of the target was read");
	} else if (!untouched(l->local, sge.length)) {
		kase_fail(k, "something came");
	}
	session_close(&s, false);
}

/* More requests for events than the controller holds (AERL): those too many are refused, the others wait. */
void run_async(struct kase *k)
{
	uint8_t sqe[SQE_SIZE] = {ADM_ASYNC, FLAG_SGL};
	uint32_t more = 1 + pick(k, 8);
	struct session s;

	if (!session_open(&s, &k->facts->at, false)) {
		kase_fail(k, "a controller could not be had");
		return;
	}
	kase_describe(k, "%u more than %u", more, k->facts->aer_max);
	for (uint32_t i = 0; i < k->facts->aer_max + more; i++) {
		put16(sqe + AT_CID, (uint16_t)i);
		link_send(s.admin, i, sqe, SQE_SIZE);
	}
	if (!link_wait(s.admin, more)) {
		kase_fail(k, "%u were answered", s.admin->inbox_len);
	}
	for (uint32_t i = 0; i < s.admin->inbox_len; i++) {
		uint16_t status = get16(s.admin->inbox[i] + 14) >> 1 & 0x7ff;
		if (status != ST_ASYNC_LIMIT) {
			kase_fail(k, "%s", status_text(status));
			break;
		}
	}
	session_close(&s, pick(k, 2));
}

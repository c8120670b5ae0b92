/* SPDX-License-Identifier: BSD-3-Clause */
/* I/O commands: their header, ranges, Dataset Management, fused pairs, reservations, and fabrics commands where they do
 * not belong. */
#include "systest/hostile/cases.h"

void make_io_good(struct kase *k)
{
	uint32_t blocks = 1 + pick(k, SLOT_SIZE / k->facts->block_size);
	struct step *s;

	switch (pick(k, 5)) {
	case 0:
		s = step_add(k, IO_FLUSH, k->facts->nsid);
		break;
	case 1:
		s = step_rw(k, IO_COMPARE, any_lba(k, blocks), blocks);
		step_expect(s, ST_OK, ST_COMPARE, -1);
		return;
	default:
		s = step_rw(k, pick(k, 2) ? IO_READ : IO_WRITE, any_lba(k, blocks), blocks);
		break;
	}
	/* reserved bits of the flags, and dwords that these commands do not have, mean nothing */
	s->bytes[AT_FLAGS] |= pick(k, 4) == 0 ? 0x3c & pick(k, 256) : 0;
	put32(s->bytes + 8, pick(k, 4) == 0 ? (uint32_t)rng_next(&k->rng) : 0);
	kase_describe(k, "opcode %02x", s->bytes[0]);
	step_expect(s, ST_OK, -1);
}

static uint8_t unsupported_opcode(struct kase *k)
{
	uint8_t op;

	do {
		op = (uint8_t)pick(k, 256);
	} while (op == FABRICS || (k->facts->io_ok[op] & 1) != 0);
	return op;
}

void make_io_header(struct kase *k)
{
	static const uint8_t psdt[] = {0x00, 0x80, 0xc0};
	struct step *s = step_rw(k, pick(k, 2) ? IO_READ : IO_WRITE, any_lba(k, 1), 1);
	uint32_t nsid;

	switch (pick(k, 5)) {
	case 0: /* PRPs, metadata by SGL, reserved: over fabrics data are described by SGLs */
		s->bytes[AT_FLAGS] = psdt[pick(k, 3)];
		step_expect(s, ST_FIELD, -1);
		break;
	case 1:
		s->bytes[AT_FLAGS] |= 3; /* FUSE: reserved */
		step_expect(s, ST_FIELD, -1);
		break;
	case 2:
		s->bytes[AT_OPCODE] = unsupported_opcode(k);
		s->num_windows = 0;
		step_expect(s, ST_OPCODE, -1);
		break;
	case 3: /* invalid ids; the broadcast one is for commands that say so */
		nsid = pick(k, 3) == 0 ? 0
		       : pick(k, 2)
			       ? UINT32_MAX
			       : k->facts->nn + 1 + (uint32_t)(rng_next(&k->rng) % (UINT32_MAX - k->facts->nn - 1));
		put32(s->bytes + AT_NSID, nsid);
		s->bytes[AT_OPCODE] = pick(k, 4) == 0 ? IO_FLUSH : s->bytes[AT_OPCODE];
		step_expect(s, ST_NAMESPACE, -1);
		break;
	default: /* another host's, and one that does not exist */
		put32(s->bytes + AT_NSID, pick(k, 2) ? k->facts->hidden : k->facts->nn);
		step_expect(s, ST_NAMESPACE, ST_FIELD, -1);
		break;
	}
	kase_describe(k, "opcode %02x flags %02x nsid %x", s->bytes[0], s->bytes[1], get32(s->bytes + AT_NSID));
}

void make_io_range(struct kase *k)
{
	static const uint8_t opcodes[] = {IO_READ, IO_WRITE, IO_COMPARE, IO_WRITE_ZEROES};
	uint32_t most = k->facts->max_transfer / k->facts->block_size;
	uint8_t op = opcodes[pick(k, 4)];
	struct step *s = step_rw(k, op, 0, 1);
	uint32_t blocks = 1 + pick(k, pick(k, 2) ? 16 : 65536);
	uint64_t slba = lba_beyond(k, blocks);

	if (op != IO_WRITE_ZEROES && most < 65536 && pick(k, 3) == 0) { /* longer than MDTS */
		blocks = most + 1 + pick(k, 65536 - most);
		slba = blocks <= k->facts->num_blocks ? any_lba(k, blocks) : 0;
		step_expect(s, ST_FIELD, blocks > k->facts->num_blocks ? ST_LBA_RANGE : -1, -1);
	} else {
		step_expect(s, ST_LBA_RANGE, blocks > most ? ST_FIELD : -1, -1);
	}
	put64(s->bytes + AT_CDW10, slba);
	put32(s->bytes + AT_CDW12, (blocks - 1) | (pick(k, 4) == 0 ? UINT32_C(1) << 30 : 0));
	put_keyed(s->bytes + AT_SGL, (uintptr_t)s->data, blocks * k->facts->block_size & 0xffffff, memory.remote->rkey,
		  SUB_ADDRESS);
	s->num_windows = 0;
	kase_describe(k, "opcode %02x, %u blocks from %llx", op, blocks, (unsigned long long)slba);
}

void make_io_dsm(struct kase *k)
{
	struct step *s = step_add(k, IO_DSM, k->facts->nsid);
	uint32_t ranges = 1 + pick(k, pick(k, 2) ? 4 : 256), bad = pick(k, ranges);
	uint32_t attributes = pick(k, 4) ? 4 : pick(k, 8);

	for (uint32_t i = 0; i < ranges; i++) {
		put32(s->data + i * 16, 0);
		put32(s->data + i * 16 + 4, 1);
		put64(s->data + i * 16 + 8, any_lba(k, 1));
	}
	put32(s->bytes + AT_CDW10, ranges - 1);
	put32(s->bytes + AT_CDW11, attributes);
	step_keyed(s, ranges * 16);
	switch (pick(k, 4)) {
	case 0:
		step_expect(s, ST_OK, -1);
		break;
	case 1:
		step_keyed(s, pick(k, ranges * 16));
		step_expect(s, ST_SGL_LENGTH, -1);
		break;
	default:
		put32(s->data + bad * 16 + 4, pick(k, 2) ? UINT32_MAX : 2);
		put64(s->data + bad * 16 + 8, lba_beyond(k, 2));
		/* the attributes other than "deallocate" are hints */
		step_expect(s, ST_LBA_RANGE, (attributes & 4) ? -1 : ST_OK, -1);
		break;
	}
	kase_describe(k, "%u ranges, attributes %x", ranges, attributes);
}

/* ---- Fused ---- */

static struct step *fused(struct kase *k, uint8_t opcode, uint64_t slba, unsigned fuse)
{
	struct step *s = step_rw(k, opcode, slba, 1);

	s->bytes[AT_FLAGS] |= (uint8_t)fuse;
	return s;
}

static void whole_pair(struct kase *k, uint64_t slba)
{
	struct step *first = fused(k, IO_COMPARE, slba, FUSE_FIRST), *second = fused(k, IO_WRITE, slba, FUSE_SECOND);

	step_expect(first, ST_OK, ST_COMPARE, -1);
	step_expect(second, ST_OK, ST_FUSED_FAILED, -1);
	k->together = k->num_steps == 2;
}

static void flush_ok(struct kase *k)
{
	step_expect(step_add(k, IO_FLUSH, k->facts->nsid), ST_OK, -1);
}

void make_io_fused(struct kase *k)
{
	uint64_t slba = any_lba(k, 2);
	unsigned how = k->facts->has_pair ? pick(k, 8) : 1;
	struct step *first, *second;

	switch (how) {
	case 0:
		whole_pair(k, slba);
		break;
	case 1: /* its second is missing */
		first = fused(k, IO_COMPARE, slba, FUSE_FIRST);
		step_expect(first, ST_FUSED_MISSING, k->facts->has_pair ? -1 : ST_FIELD, -1);
		flush_ok(k);
		break;
	case 2: /* its first is missing */
		flush_ok(k);
		step_expect(fused(k, pick(k, 2) ? IO_WRITE : IO_READ, slba, FUSE_SECOND), ST_FUSED_MISSING, ST_FIELD,
			    -1);
		break;
	case 3: /* two firsts */
		first = fused(k, IO_COMPARE, slba, FUSE_FIRST);
		step_expect(first, ST_FUSED_MISSING, -1);
		whole_pair(k, slba);
		break;
	case 4: /* a pair that there is not */
		first = fused(k, pick(k, 2) ? IO_READ : IO_WRITE, slba, FUSE_FIRST);
		second = fused(k, IO_WRITE, slba, FUSE_SECOND);
		first->num_windows = 0;
		step_expect(first, ST_FIELD, ST_FUSED_MISSING, -1);
		step_expect(second, ST_FIELD, ST_FUSED_FAILED, ST_FUSED_MISSING, -1);
		break;
	case 5:
		first = fused(k, IO_COMPARE, slba, FUSE_FIRST);
		second = fused(k, pick(k, 2) ? IO_READ : IO_COMPARE, slba, FUSE_SECOND);
		second->num_windows = 0;
		step_expect(first, ST_FIELD, ST_FUSED_FAILED, ST_FUSED_MISSING, -1);
		step_expect(second, ST_FIELD, ST_FUSED_FAILED, ST_FUSED_MISSING, -1);
		break;
	case 6: /* of different ranges (NVM 2.1.4) */
		first = fused(k, IO_COMPARE, slba, FUSE_FIRST);
		second = fused(k, IO_WRITE, slba + 1, FUSE_SECOND);
		step_expect(first, ST_FIELD, -1);
		step_expect(second, ST_FIELD, ST_FUSED_FAILED, -1);
		break;
	default: /* one half bad in itself */
		first = fused(k, IO_COMPARE, slba, FUSE_FIRST);
		second = fused(k, IO_WRITE, slba, FUSE_SECOND);
		if (pick(k, 2)) {
			put32(first->bytes + AT_NSID, 0);
			step_expect(first, ST_NAMESPACE, -1);
			step_expect(second, ST_FUSED_FAILED, ST_FUSED_MISSING, ST_FIELD, -1);
		} else {
			step_keyed(second, 1);
			step_expect(first, ST_FUSED_FAILED, ST_FUSED_MISSING, -1);
			step_expect(second, ST_SGL_LENGTH, -1);
		}
		break;
	}
	kase_describe(k, "way %u", how);
}

/* ---- The rest ---- */

void make_io_fabrics(struct kase *k)
{
	struct step *s = step_add(k, FABRICS, 0);
	uint8_t type = pick(k, 3) ? (uint8_t)pick(k, 10) : (uint8_t)pick(k, 256);

	if (type == 8) { /* Disconnect would end the queue */
		type = 7;
	}
	rng_next(&k->rng);
	put32(s->bytes + AT_FCTYPE, type);
	step_keyed(s, CONNECT_DATA);
	if (type == FC_CONNECT) {
		step_expect(s, ST_SEQUENCE, -1); /* Base 6.3: a queue is connected once */
	} else { /* property commands are the admin queue's; others do not exist here, or come out of turn */
		step_expect(s, ST_OPCODE, ST_FIELD, ST_SEQUENCE, 0x185, -1);
	}
	kase_describe(k, "type %02x", type);
}

/* This host has never registered: who is none of the registrants can neither acquire nor release (Base 8.19). */
void make_io_resv(struct kase *k)
{
	static const uint8_t opcodes[] = {IO_RESV_REGISTER, IO_RESV_REPORT, IO_RESV_ACQUIRE, IO_RESV_RELEASE};
	uint8_t op = opcodes[pick(k, 4)];
	struct step *s = step_add(k, op, k->facts->nsid);
	bool bad = pick(k, 2);
	uint32_t cdw10 = 0;

	memset(s->data, (int)pick(k, 256), 16);
	step_keyed(s, 16);
	switch (op) {
	case IO_RESV_REGISTER: /* a reserved action or a reserved change of persistence */
		cdw10 = bad ? 3 + pick(k, 5) : pick(k, 3) | UINT32_C(1) << 30;
		step_expect(s, ST_FIELD, -1);
		break;
	case IO_RESV_ACQUIRE:
		cdw10 = bad ? (pick(k, 2) ? 3 + pick(k, 5) : (7 + pick(k, 248)) << 8)
			    : pick(k, 3) | (1 + pick(k, 6)) << 8;
		step_expect(s, bad ? ST_FIELD : ST_RESV_CONFLICT, -1);
		break;
	case IO_RESV_RELEASE:
		cdw10 = bad ? 2 + pick(k, 6) : pick(k, 2) | (1 + pick(k, 6)) << 8;
		step_expect(s, bad ? ST_FIELD : ST_RESV_CONFLICT, -1);
		break;
	default: /* a host with an identifier of 128 bits needs the extended structure */
		cdw10 = 3;
		put32(s->bytes + AT_CDW11, 0);
		step_expect(s, ST_HOSTID_FORMAT, -1);
		break;
	}
	if (pick(k, 6) == 0) {
		step_keyed(s, pick(k, op == IO_RESV_RELEASE ? 8 : 16));
		step_expect(s, ST_SGL_LENGTH, s->ok[0], -1);
	}
	put32(s->bytes + AT_CDW10, cdw10);
	kase_describe(k, "opcode %02x, dword 10 %x", op, cdw10);
}

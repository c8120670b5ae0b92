/* SPDX-License-Identifier: BSD-3-Clause */
/* Anything at all: bytes at random, and good commands with some bits turned. What comes back cannot be foretold, but
 * for what cannot be a success; and nobody may write where no descriptor points. */
#include "systest/hostile/cases.h"

static void random_bytes(struct kase *k, uint8_t *p, uint32_t len)
{
	for (uint32_t i = 0; i < len; i += 4) {
		put32(p + i, (uint32_t)rng_next(&k->rng));
	}
}

static void turn_bits(struct kase *k, struct step *s)
{
	uint32_t n = 1 + pick(k, 6);

	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = pick(k, s->len);
		/* a wrong address or key ends the connection, which is another kind's affair */
		if (at >= AT_SGL && at < AT_SGL + 8 && pick(k, 16)) {
			continue;
		}
		if (at >= AT_SGL + 11 && at < AT_SGL + 15 && pick(k, 16)) {
			continue;
		}
		s->bytes[at] = pick(k, 2) ? (uint8_t)(s->bytes[at] ^ 1u << pick(k, 8)) : (uint8_t)pick(k, 256);
	}
}

/* Whatever in the capsule can be read as a keyed descriptor of the link's memory is where the target may write. */
static void open_windows(struct kase *k, struct step *s)
{
	uint64_t base = (uintptr_t)k->link->remote, size = (uint64_t)SLOTS * SLOT_SIZE;

	s->num_windows = 0;
	for (uint32_t at = AT_SGL; at + 16 <= s->len; at = at == AT_SGL ? SQE_SIZE : at + 4) {
		const uint8_t *d = s->bytes + at;
		uint64_t address = get64(d), end = address + (get32(d + 8) & 0xffffff);

		if (d[15] >> 4 == SGL_KEYED && address < base + size && end > base && s->num_windows < WINDOWS) {
			uint64_t from = address > base ? address - base : 0, to = end - base < size ? end - base : size;
			s->window[s->num_windows].at = (uint32_t)from;
			s->window[s->num_windows++].len = (uint32_t)(to - from);
		}
	}
}

/* Blocks without their protection information would fail the checks of who is to read them. */
static void keep_off_metadata(struct kase *k, struct step *s)
{
	for (unsigned i = 0; i < k->facts->num_md; i++) {
		if (get32(s->bytes + AT_NSID) == k->facts->md[i].nsid) {
			put32(s->bytes + AT_NSID, k->facts->nsid);
		}
	}
}

static void finish(struct kase *k, struct step *s)
{
	keep_off_metadata(k, s);
	s->any = true;
	open_windows(k, s);
	kase_describe(k, "opcode %02x flags %02x nsid %x", s->bytes[0], s->bytes[1], get32(s->bytes + AT_NSID));
}

void make_wild_io(struct kase *k)
{
	static const uint8_t opcodes[] = {IO_FLUSH,        IO_WRITE, IO_READ,       IO_COMPARE,
					  IO_WRITE_ZEROES, IO_DSM,   IO_RESV_REPORT};
	struct step *s;

	if (pick(k, 4) == 0) {
		s = step_add(k, 0, 0);
		s->len = SQE_SIZE + (pick(k, 2) ? pick(k, k->facts->icd_max + 1) & ~3u : 0);
		random_bytes(k, s->bytes, s->len);
	} else {
		s = step_rw(k, opcodes[pick(k, 7)], any_lba(k, 4), 1 + pick(k, 4));
		if (pick(k, 3) == 0) { /* a list */
			uint32_t n = 1 + pick(k, 4), each = 4 * k->facts->block_size / n;
			for (uint32_t i = 0; i < n; i++) {
				put_keyed(s->bytes + SQE_SIZE + i * 16, (uintptr_t)s->data + i * each, each,
					  memory.remote->rkey, SUB_ADDRESS);
			}
			put_plain(s->bytes + AT_SGL, SGL_LAST, SUB_OFFSET, 0, n * 16);
			s->len += n * 16;
		}
		turn_bits(k, s);
	}
	finish(k, s);
}

void make_wild_admin(struct kase *k)
{
	static const uint8_t opcodes[] = {ADM_GET_LOG,      ADM_IDENTIFY, ADM_ABORT,      ADM_SET_FEATURES,
					  ADM_GET_FEATURES, ADM_ASYNC,    ADM_KEEP_ALIVE, FABRICS};
	struct step *s = step_add(k, opcodes[pick(k, 8)], pick(k, 2) ? k->facts->nsid : 0);

	if (pick(k, 4) == 0) {
		random_bytes(k, s->bytes, SQE_SIZE);
	} else {
		step_keyed(s, 4096);
		put32(s->bytes + AT_CDW10, pick(k, 256) | (s->bytes[0] == ADM_GET_LOG ? 0x00ff0000 : 0));
		if (s->bytes[0] == FABRICS) {
			memset(s->bytes + AT_CDW10, 0, 24);
			put32(s->bytes + AT_FCTYPE, pick(k, 9));
			put32(s->bytes + AT_OFST, pick(k, 2) ? REG_CC : REG_CSTS);
			put64(s->bytes + AT_VALUE, pick(k, 2) ? CC_ENABLE : rng_next(&k->rng));
		}
		turn_bits(k, s);
	}
	finish(k, s);
	s->may_be_held = s->bytes[AT_OPCODE] == ADM_ASYNC;
}

static bool rw_must_fail(const struct facts *f, const struct step *s)
{
	uint64_t slba = get64(s->bytes + AT_CDW10), blocks = get16(s->bytes + AT_CDW12) + UINT64_C(1);

	if (slba > f->num_blocks || blocks > f->num_blocks - slba) {
		return true;
	}
	return s->bytes[AT_OPCODE] != IO_WRITE_ZEROES && blocks * f->block_size > f->max_transfer;
}

bool wild_must_fail(const struct facts *f, const struct step *s, bool io)
{
	uint8_t op = s->bytes[AT_OPCODE], flags = s->bytes[AT_FLAGS];

	if ((flags & 0xc0) != FLAG_SGL || (flags & 3) == 3 || (!io && (flags & 3) != 0)) {
		return true;
	}
	if (!io) {
		return op != FABRICS && (f->admin_ok[op] & 1) == 0;
	}
	if ((f->io_ok[op] & 1) == 0 || get32(s->bytes + AT_NSID) == 0 || get32(s->bytes + AT_NSID) > f->nn ||
	    get32(s->bytes + AT_NSID) == f->hidden) {
		return true;
	}
	return (op == IO_READ || op == IO_WRITE || op == IO_COMPARE || op == IO_WRITE_ZEROES) && rw_must_fail(f, s);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Data pointers (Base 4.1.2, RDMA 3.4): types, lengths, offsets, counts and links of descriptors. */
#include "systest/hostile/cases.h"

/* Write or Read of a few blocks, whose data pointer is then spoilt. */
static struct step *some_rw(struct kase *k, uint32_t blocks)
{
	static const uint8_t opcodes[] = {IO_READ, IO_WRITE, IO_COMPARE};

	return step_rw(k, opcodes[pick(k, 3)], any_lba(k, blocks), blocks);
}

/* Type and subtype of the descriptor in the command: over RDMA there are keyed data blocks (address, or address and
 * invalidation), data blocks with an offset for data from the host, and segments with an offset. */
void make_sgl_type(struct kase *k)
{
	struct step *s = some_rw(k, 1);
	unsigned type = pick(k, 16), subtype = pick(k, 16);
	bool from_host = s->bytes[AT_OPCODE] != IO_READ;

	if (type == SGL_KEYED && (subtype == SUB_ADDRESS || subtype == SUB_INVALIDATE)) {
		subtype = 1 + pick(k, 14);
	}
	if ((type == SGL_SEGMENT || type == SGL_LAST) && subtype == SUB_OFFSET) {
		subtype = 2 + pick(k, 13);
	}
	if (type == SGL_DATA && subtype == SUB_OFFSET) {
		if (from_host) {
			subtype = SUB_ADDRESS;
			step_expect(s, ST_SGL_TYPE, -1);
		} else { /* data to the host cannot go into its own capsule */
			step_expect(s, ST_SGL_TYPE, ST_FIELD, ST_SGL_OFFSET, -1);
		}
	} else {
		step_expect(s, ST_SGL_TYPE, -1);
	}
	s->bytes[AT_SGL_TYPE] = (uint8_t)(type << 4 | subtype);
	kase_describe(k, "opcode %02x, descriptor %x/%x", s->bytes[0], type, subtype);
}

/* Too short is an error; too long is none for a controller that says so (SGLS bit 18). */
void make_sgl_length(struct kase *k)
{
	uint32_t blocks = 1 + pick(k, 8), need = blocks * k->facts->block_size;
	struct step *s = some_rw(k, blocks);
	uint32_t len = pick(k, 4) == 0 ? 0 : pick(k, 4) == 0 ? need - 1 : pick(k, need);

	if (s->bytes[AT_OPCODE] != IO_COMPARE && pick(k, 4) == 0) {
		len = need + pick(k, SLOT_SIZE - need);
		step_expect(s, ST_OK, -1);
	} else {
		step_expect(s, ST_SGL_LENGTH, -1);
	}
	step_keyed(s, len);
	kase_describe(k, "opcode %02x, %u of %u bytes", s->bytes[0], len, need);
}

/* Data in the capsule: offset and length within what came. */
void make_sgl_capsule(struct kase *k)
{
	uint32_t block = k->facts->block_size, room = k->facts->icd_max;
	struct step *s = step_rw(k, pick(k, 2) ? IO_WRITE : IO_COMPARE, any_lba(k, 1), 1);
	uint32_t here = pick(k, 3) == 0 ? block : pick(k, room + 1);
	uint64_t offset = pick(k, 3) ? pick(k, room + 1) : pick(k, 2) ? rng_next(&k->rng) : UINT64_MAX - pick(k, 5000);
	uint32_t len = pick(k, 3) == 0 ? block : pick(k, 4) == 0 ? UINT32_MAX - pick(k, 8) : pick(k, room + 1);

	if (room < block) {
		here = 0;
	}
	if (pick(k, 4) == 0) {
		offset = 0;
	}
	s->len = SQE_SIZE + here;
	put_plain(s->bytes + AT_SGL, SGL_DATA, SUB_OFFSET, offset, len);
	if (offset > here) {
		step_expect(s, ST_SGL_OFFSET, ST_SGL_LENGTH, -1);
	} else if (len > here - offset) {
		step_expect(s, ST_SGL_LENGTH, ST_SGL_OFFSET, -1);
	} else if (len < block) {
		step_expect(s, ST_SGL_LENGTH, -1);
	} else if (s->bytes[0] == IO_WRITE) {
		step_expect(s, ST_OK, -1);
	} else {
		step_expect(s, ST_OK, ST_COMPARE, -1);
	}
	kase_describe(k, "opcode %02x, %u bytes in the capsule, offset %llx length %x", s->bytes[0], here,
		      (unsigned long long)offset, len);
}

/* ---- Lists ---- */

struct list {
	struct kase *k;
	struct step *s;
	uint32_t count, place; /* descriptors; place of the next in the capsule */
};

/* Pieces of the slot that together are the command's data. */
static void add_pieces(struct list *l, uint32_t pieces, uint32_t bytes)
{
	uint32_t at = 0;

	l->s->num_windows = 0;
	for (uint32_t i = 0; i < pieces; i++) {
		uint32_t len = i + 1 == pieces ? bytes - at : pick(l->k, (bytes - at) / (pieces - i) + 1);

		put_keyed(l->s->bytes + SQE_SIZE + l->place, (uintptr_t)l->s->data + at, len, memory.remote->rkey,
			  SUB_ADDRESS);
		if (l->s->bytes[0] == IO_READ) {
			step_window(l->s, at, len);
		}
		at += len;
		l->place += 16;
		l->count++;
	}
	l->s->len = SQE_SIZE + l->place;
}

static void point(struct step *s, unsigned type, uint64_t offset, uint32_t len)
{
	put_plain(s->bytes + AT_SGL, type, SUB_OFFSET, offset, len);
}

/* A good list, but for what follows. */
static struct list good_list(struct kase *k, struct step *s, uint32_t bytes)
{
	struct list l = {.k = k, .s = s};
	uint32_t most = k->facts->max_descs < WINDOWS ? k->facts->max_descs : WINDOWS;

	add_pieces(&l, 1 + pick(k, most), bytes);
	point(s, SGL_LAST, 0, l.place);
	step_expect(s, ST_OK, -1);
	return l;
}

static void bad_place(struct list *l)
{
	uint64_t offset = l->k->facts->icd_max + 16 +
			  (pick(l->k, 2) ? pick(l->k, 100000) * UINT64_C(16) : rng_next(&l->k->rng) & ~UINT64_C(15));

	point(l->s, SGL_LAST, offset, l->place);
	step_expect(l->s, ST_SGL_OFFSET, ST_SGL_SEGMENT, ST_SGL_COUNT, -1);
	kase_describe(l->k, ", segment at %llx", (unsigned long long)offset);
}

static void bad_length(struct list *l)
{
	uint32_t len = pick(l->k, 3) == 0 ? 0 : l->place - 1 - pick(l->k, 15);

	point(l->s, SGL_LAST, 0, len);
	step_expect(l->s, ST_SGL_SEGMENT, -1); /* Base figure 95: "a length of 0h or ... not a multiple of 16" */
	kase_describe(l->k, ", segment of %u bytes", len);
}

static void too_long(struct list *l)
{
	uint32_t len = pick(l->k, 2) ? l->k->facts->icd_max + 16 : UINT32_MAX & ~UINT32_C(15);

	point(l->s, SGL_LAST, 0, len);
	step_expect(l->s, ST_SGL_OFFSET, ST_SGL_SEGMENT, ST_SGL_COUNT, ST_SGL_LENGTH, -1);
	kase_describe(l->k, ", segment of %x bytes", len);
}

static void unaligned(struct list *l)
{
	memmove(l->s->bytes + SQE_SIZE + 4, l->s->bytes + SQE_SIZE, l->place);
	l->s->len += 4;
	point(l->s, SGL_LAST, 4, l->place);
	step_expect(l->s, ST_SGL_SEGMENT, ST_SGL_OFFSET, -1); /* "an address that is not qword aligned" */
	kase_describe(l->k, ", segment at 4");
}

/* In a last segment there is no segment descriptor; elsewhere it is the last of its segment. */
static void link_in_last(struct list *l)
{
	put_plain(l->s->bytes + SQE_SIZE + l->place - 16, pick(l->k, 2) ? SGL_LAST : SGL_SEGMENT, SUB_OFFSET, 0, 16);
	step_expect(l->s, ST_SGL_SEGMENT, -1);
	kase_describe(l->k, ", a segment descriptor at the end of a last segment");
}

static void link_too_early(struct list *l)
{
	if (l->count < 2) {
		return;
	}
	put_plain(l->s->bytes + SQE_SIZE + pick(l->k, l->count - 1) * 16u, pick(l->k, 2) ? SGL_LAST : SGL_SEGMENT,
		  SUB_OFFSET, 0, 16);
	point(l->s, SGL_SEGMENT, 0, l->place);
	step_expect(l->s, ST_SGL_COUNT, -1);
	kase_describe(l->k, ", a segment descriptor before the end");
}

static void no_link(struct list *l)
{
	point(l->s, SGL_SEGMENT, 0, l->place);
	step_expect(l->s, ST_SGL_SEGMENT, ST_SGL_COUNT, -1);
	kase_describe(l->k, ", a segment that leads nowhere");
}

static void loop(struct list *l)
{
	put_plain(l->s->bytes + SQE_SIZE + l->place, SGL_SEGMENT, SUB_OFFSET, 0, l->place + 16);
	l->place += 16;
	l->s->len += 16;
	point(l->s, SGL_SEGMENT, 0, l->place);
	step_expect(l->s, ST_SGL_SEGMENT, ST_SGL_COUNT, -1);
	kase_describe(l->k, ", a segment that leads to itself");
}

static void too_many(struct list *l)
{
	uint32_t n = l->k->facts->max_descs + 1 + pick(l->k, 16);

	l->place = l->count = 0;
	add_pieces(l, n, l->k->facts->block_size);
	l->s->num_windows = 0;
	point(l->s, SGL_LAST, 0, l->place);
	step_expect(l->s, ST_SGL_COUNT, -1);
	kase_describe(l->k, ", %u descriptors", n);
}

static void bad_type(struct list *l)
{
	uint8_t *type = l->s->bytes + SQE_SIZE + pick(l->k, l->count) * 16u + 15;
	unsigned t = pick(l->k, 16);

	*type = (uint8_t)(t << 4 | (t == SGL_KEYED ? 1 + pick(l->k, 14) : pick(l->k, 16)));
	if (t == SGL_SEGMENT || t == SGL_LAST) {
		step_expect(l->s, ST_SGL_TYPE, ST_SGL_SEGMENT, ST_SGL_COUNT, -1);
	} else {
		step_expect(l->s, ST_SGL_TYPE, -1);
	}
	kase_describe(l->k, ", one of type %02x", *type);
}

static void too_short(struct list *l)
{
	uint32_t need = (get16(l->s->bytes + AT_CDW12) + 1u) * l->k->facts->block_size;

	l->place = l->count = 0;
	add_pieces(l, 1 + pick(l->k, 4), need - 1 - pick(l->k, need - 1));
	point(l->s, SGL_LAST, 0, l->place);
	step_expect(l->s, ST_SGL_LENGTH, -1);
	kase_describe(l->k, ", too short");
}

/* The list is in two segments. */
static void two_segments(struct list *l)
{
	uint8_t *from = l->s->bytes + SQE_SIZE;
	uint32_t first = (1 + pick(l->k, l->count)) * 16u - 16, rest = l->place - first;

	memmove(from + first + 16, from + first, rest);
	put_plain(from + first, SGL_LAST, SUB_OFFSET, first + 16, rest);
	l->s->len += 16;
	point(l->s, SGL_SEGMENT, 0, first + 16);
	kase_describe(l->k, ", two segments");
}

static void nothing(struct list *l)
{
}

void make_sgl_list(struct kase *k)
{
	static void (*const spoil[])(struct list *) = {bad_place,      bad_length,   too_long, unaligned, link_in_last,
						       link_too_early, no_link,      loop,     too_many,  bad_type,
						       too_short,      two_segments, nothing};
	struct step *s = step_rw(k, pick(k, 2) ? IO_READ : IO_WRITE, any_lba(k, 4), 1 + pick(k, 4));
	struct list l = good_list(k, s, (get16(s->bytes + AT_CDW12) + 1u) * k->facts->block_size);

	kase_describe(k, "opcode %02x, %u descriptors", s->bytes[0], l.count);
	spoil[pick(k, sizeof(spoil) / sizeof(spoil[0]))](&l);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Copy (NVM 3.2.2): how many source ranges there are and how they are described, where they lie, and how long their
 * list is. */
#include "systest/hostile/cases.h"

#define RANGE_BYTES   32
#define RANGE_BYTES_1 40 /* in format 1 */
#define RANGE_SLBA    8
#define RANGE_NLB     16
#define BLOCKS_MAX    8 /* of a range, if it is well */

/* A good Copy, until it is spoilt: what is read lies in the lower half of the namespace, what is written in the
 * upper. */
struct copy {
	struct kase *k;
	struct step *s;
	uint32_t ranges, total; /* blocks */
	uint64_t to;
};

static uint8_t *range_at(struct copy *c, uint32_t i)
{
	return c->s->data + i * RANGE_BYTES;
}

static void put_range(struct copy *c, uint32_t i, uint64_t slba, uint32_t blocks)
{
	memset(range_at(c, i), 0, RANGE_BYTES);
	put64(range_at(c, i) + RANGE_SLBA, slba);
	put16(range_at(c, i) + RANGE_NLB, (uint16_t)(blocks - 1));
}

static uint32_t blocks_of(struct copy *c, uint32_t i)
{
	return get16(range_at(c, i) + RANGE_NLB) + 1u;
}

static void set_command(struct copy *c)
{
	put64(c->s->bytes + AT_CDW10, c->to);
	put32(c->s->bytes + AT_CDW12, c->ranges - 1);
	step_keyed(c->s, c->ranges * RANGE_BYTES);
}

/* With room for the longest of good_copy()'s ranges. */
static uint64_t any_source(struct copy *c)
{
	return rng_next(&c->k->rng) % (c->k->facts->num_blocks / 2 - BLOCKS_MAX);
}

static struct copy good_copy(struct kase *k)
{
	struct copy c = {.k = k, .s = step_add(k, IO_COPY, k->facts->nsid)};

	c.ranges = 1 + pick(k, pick(k, 4) ? 4 : k->facts->copy_ranges);
	for (uint32_t i = 0; i < c.ranges; i++) {
		uint32_t blocks = 1 + pick(k, BLOCKS_MAX);

		put_range(&c, i, any_source(&c), blocks);
		c.total += blocks;
	}
	c.to = k->facts->num_blocks / 2 + pick(k, (uint32_t)(k->facts->num_blocks / 2 - c.total));
	set_command(&c);
	step_expect(c.s, ST_OK, -1);
	return c;
}

/* ---- What is well ---- */

static void as_it_is(struct copy *c)
{
}

/* Sources may overlap each other; reserved fields, and those of protection information that is not there, mean
 * nothing. */
static void harmless(struct copy *c)
{
	for (uint32_t i = 1; i < c->ranges; i++) {
		put_range(c, i, get64(range_at(c, 0) + RANGE_SLBA), blocks_of(c, i));
		put32(range_at(c, i), (uint32_t)rng_next(&c->k->rng));
		put32(range_at(c, i) + 24, (uint32_t)rng_next(&c->k->rng));
	}
	put32(c->s->bytes + AT_CDW12, (c->ranges - 1) | pick(c->k, 16) << 12 | pick(c->k, 64) << 26);
	put32(c->s->bytes + AT_CDW14, (uint32_t)rng_next(&c->k->rng));
}

static void list_is_longer(struct copy *c)
{
	step_keyed(c->s, c->ranges * RANGE_BYTES + pick(c->k, SLOT_SIZE - c->ranges * RANGE_BYTES));
}

/* ---- What is not ---- */

static void onto_itself(struct copy *c)
{
	uint32_t i = pick(c->k, c->ranges), blocks = blocks_of(c, i);

	put_range(c, i, c->to - (blocks - 1) + pick(c->k, c->total + blocks - 1), blocks);
	if (get64(range_at(c, i) + RANGE_SLBA) + blocks > c->k->facts->num_blocks) {
		put_range(c, i, c->to, blocks);
	}
	step_expect(c->s, ST_OVERLAP, -1);
}

static void source_beyond(struct copy *c)
{
	uint32_t i = pick(c->k, c->ranges), blocks = blocks_of(c, i);

	put_range(c, i, lba_beyond(c->k, blocks), blocks);
	step_expect(c->s, ST_LBA_RANGE, -1);
}

static void target_beyond(struct copy *c)
{
	c->to = lba_beyond(c->k, c->total);
	put64(c->s->bytes + AT_CDW10, c->to);
	step_expect(c->s, ST_LBA_RANGE, -1);
}

/* Longer than the namespace, though none of its ranges is; the namespace may be longer than what one Copy may have. */
static void more_than_there_is(struct copy *c)
{
	const struct facts *f = c->k->facts;
	uint64_t n = f->num_blocks / f->copy_range_blocks + 1;

	c->ranges = n < f->copy_ranges ? (uint32_t)n : f->copy_ranges;
	for (uint32_t i = 0; i < c->ranges; i++) {
		put_range(c, i, 0, f->copy_range_blocks);
	}
	set_command(c);
	step_expect(c->s, n * f->copy_range_blocks > f->copy_blocks ? ST_COPY_LIMIT : ST_LBA_RANGE, -1);
}

/* Formats that the controller does not have (OCFS): all but the first two, of which the second is not for namespaces
 * like this one. Its ranges are longer. */
static void other_format(struct copy *c)
{
	uint32_t format = 1 + pick(c->k, 15);

	put32(c->s->bytes + AT_CDW12, (c->ranges - 1) | format << 8);
	step_expect(c->s, format == 1 ? ST_SGL_LENGTH : ST_FIELD, -1);
	if (format == 1 && pick(c->k, 2)) {
		step_keyed(c->s, c->ranges * RANGE_BYTES_1);
		step_expect(c->s, ST_NAMESPACE, -1);
	}
}

static void too_many_ranges(struct copy *c)
{
	c->ranges = c->k->facts->copy_ranges + 1 + pick(c->k, 256 - c->k->facts->copy_ranges);
	for (uint32_t i = 0; i < c->ranges; i++) {
		put_range(c, i, any_source(c), 1);
	}
	set_command(c);
	step_expect(c->s, ST_COPY_LIMIT, -1);
}

static void range_too_long(struct copy *c)
{
	uint32_t most = c->k->facts->copy_range_blocks;

	put_range(c, pick(c->k, c->ranges), 0, most + 1 + pick(c->k, 65536 - most));
	step_expect(c->s, ST_COPY_LIMIT, -1);
}

static void too_much(struct copy *c)
{
	const struct facts *f = c->k->facts;

	c->ranges = f->copy_blocks / f->copy_range_blocks + 1;
	for (uint32_t i = 0; i < c->ranges; i++) {
		put_range(c, i, 0, f->copy_range_blocks);
	}
	set_command(c);
	step_expect(c->s, ST_COPY_LIMIT, -1);
}

static void list_too_short(struct copy *c)
{
	step_keyed(c->s, pick(c->k, c->ranges * RANGE_BYTES));
	step_expect(c->s, ST_SGL_LENGTH, -1);
}

/* The list in the capsule: whole, or cut off by what came or by what the descriptor says. */
static void list_in_capsule(struct copy *c)
{
	uint32_t bytes = c->ranges * RANGE_BYTES, here = bytes, told = bytes;

	if (bytes > c->k->facts->icd_max) {
		return;
	}
	switch (pick(c->k, 3)) {
	case 0:
		here = pick(c->k, bytes);
		step_expect(c->s, ST_SGL_LENGTH, ST_SGL_OFFSET, -1);
		break;
	case 1:
		told = pick(c->k, bytes);
		step_expect(c->s, ST_SGL_LENGTH, -1);
		break;
	default:
		break;
	}
	memcpy(c->s->bytes + SQE_SIZE, c->s->data, here);
	c->s->len = SQE_SIZE + here;
	put_plain(c->s->bytes + AT_SGL, SGL_DATA, SUB_OFFSET, 0, told);
}

void make_io_copy(struct kase *k)
{
	static void (*const spoil[])(struct copy *) = {
		as_it_is,      harmless,           list_is_longer, onto_itself,     source_beyond,
		target_beyond, more_than_there_is, other_format,   too_many_ranges, range_too_long,
		too_much,      list_too_short,     list_in_capsule};
	unsigned how = pick(k, sizeof(spoil) / sizeof(spoil[0]));
	struct copy c = good_copy(k);

	spoil[how](&c);
	kase_describe(k, "way %u, %u ranges to %llx", how, c.ranges, (unsigned long long)c.to);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Objects as wholes: families, ends, what is unfinished, the state to blame; and the tables by state and owner. */
#include "unittest/trace/reader_use.h"

struct analysed {
	struct opened o;
	struct trace_lives l;
};

static struct analysed analyse(const struct craft *c)
{
	struct analysed a = {.o = open_craft(c)};

	CU_ASSERT_EQUAL_FATAL(trace_lives_make(a.o.r, &a.o.s->batch, &a.l), 0);
	return a;
}

static void analysed_close(struct analysed *a)
{
	trace_lives_clear(&a->l);
	close_opened(&a->o);
}

/* The life of the object of a type with a number. */
static uint32_t life_find(const struct analysed *a, uint8_t type, uint64_t index)
{
	for (size_t i = 0; i < a->l.num_lives; i++) {
		if (a->l.lives[i].type == type && a->l.lives[i].index == index) {
			return (uint32_t)i;
		}
	}
	CU_FAIL_FATAL("no such object");
	return 0;
}

enum { REQ = 2, IO = 3, CMD = 4 }; /* the object types of the crafted files */

static void test_a_family_is_linked_and_ends_are_known(void)
{
	struct craft c = craft_sample(true);
	struct analysed a = analyse(&c);
	uint32_t req = life_find(&a, REQ, 0), io = life_find(&a, IO, 0), cmd = life_find(&a, CMD, 0);

	CU_ASSERT_EQUAL(a.l.num_lives, 4);
	CU_ASSERT_EQUAL(a.l.lives[io].parent, req);
	CU_ASSERT_EQUAL(a.l.lives[cmd].parent, io);
	CU_ASSERT_EQUAL(a.l.lives[req].first_child, io);
	CU_ASSERT_EQUAL(trace_life_root(&a.l, cmd), req);
	CU_ASSERT(a.l.lives[req].ended && a.l.lives[io].ended && !a.l.lives[cmd].ended);
	CU_ASSERT_EQUAL(trace_life_ticks(&a.l, &a.l.lives[req]), 70);
	CU_ASSERT_EQUAL(a.l.lives[io].owner_id, 1); /* its request's: I/Os have no owner here */
	CU_ASSERT_EQUAL(a.l.lives[cmd].owner_id, 1);
	analysed_close(&a);
	craft_free(&c);
}

static void test_unfinished_is_what_neither_ended_nor_was_followed(void)
{
	struct craft c = craft_new(1, 16, true);

	craft_req(&c, 0, 90, CRAFT_REQ_BUSY, 0x5000); /* created before the trace */
	craft_req(&c, 0, 100, CRAFT_REQ_NEW, 0x1000); /* its end is missing, but its place is taken */
	craft_req(&c, 0, 200, CRAFT_REQ_NEW, 0x1000);
	craft_req(&c, 0, 210, CRAFT_REQ_BUSY, 0x1000);
	craft_req(&c, 0, 220, CRAFT_REQ_NEW, 0x2000);
	craft_req(&c, 0, 300, CRAFT_REQ_DONE, 0x2000);
	struct analysed a = analyse(&c);
	CU_ASSERT_EQUAL(a.l.num_lives, 4);
	CU_ASSERT(!trace_life_is_unfinished(&a.l.lives[0]));
	CU_ASSERT(!trace_life_is_unfinished(&a.l.lives[1]));
	CU_ASSERT(trace_life_is_unfinished(&a.l.lives[2]));
	CU_ASSERT(!trace_life_is_unfinished(&a.l.lives[3]));
	CU_ASSERT_EQUAL(trace_life_ticks(&a.l, &a.l.lives[2]), 100); /* until the end of the trace */
	CU_ASSERT_EQUAL(a.l.lives[2].slowest_tpoint, CRAFT_REQ_BUSY);
	CU_ASSERT_EQUAL(a.l.lives[2].slowest_ticks, 90);
	analysed_close(&a);
	craft_free(&c);
}

static void test_the_culprit_is_the_deepest_state_that_took_the_time(void)
{
	struct craft c = craft_new(1, 32, true);

	craft_req(&c, 0, 100, CRAFT_REQ_NEW, 0x1000);
	craft_req(&c, 0, 110, CRAFT_REQ_BUSY, 0x1000);
	craft_io_start(&c, 0, 120, 0x2000, 0x1000);
	craft_child(&c, 0, 1000, CRAFT_IO_DONE, 0x2000, 0x1000);
	craft_req(&c, 0, 1010, CRAFT_REQ_DONE, 0x1000);
	craft_req(&c, 0, 2000, CRAFT_REQ_NEW, 0x1000); /* this one is slow by itself */
	craft_io_start(&c, 0, 2010, 0x2000, 0x1000);
	craft_child(&c, 0, 2020, CRAFT_IO_DONE, 0x2000, 0x1000);
	craft_req(&c, 0, 2030, CRAFT_REQ_BUSY, 0x1000);
	craft_req(&c, 0, 5000, CRAFT_REQ_DONE, 0x1000);
	struct analysed a = analyse(&c);
	CU_ASSERT_EQUAL(trace_life_culprit(&a.l, life_find(&a, REQ, 0)), life_find(&a, IO, 0));
	CU_ASSERT_EQUAL(a.l.lives[life_find(&a, IO, 0)].slowest_tpoint, CRAFT_IO_START);
	CU_ASSERT_EQUAL(trace_life_culprit(&a.l, life_find(&a, REQ, 1)), life_find(&a, REQ, 1));
	CU_ASSERT_EQUAL(a.l.lives[life_find(&a, REQ, 1)].slowest_tpoint, CRAFT_REQ_BUSY);
	analysed_close(&a);
	craft_free(&c);
}

static void test_the_report_has_exact_quantiles_of_states_and_lives(void)
{
	struct craft c = craft_new(1, 4096, true);
	struct trace_report t;
	uint64_t tsc = 1000;

	/* New for 1 to 1000 ticks, in a mixed order, then busy for 7. */
	for (uint64_t i = 0; i < 1000; i++) {
		craft_req(&c, 0, tsc, CRAFT_REQ_NEW, 0x1000);
		craft_req(&c, 0, tsc += i * 37 % 1000 + 1, CRAFT_REQ_BUSY, 0x1000);
		craft_req(&c, 0, tsc += 7, CRAFT_REQ_DONE, 0x1000);
	}
	struct analysed a = analyse(&c);
	CU_ASSERT_EQUAL_FATAL(trace_report_make(a.o.r, &a.o.s->batch, &a.l, NULL, false, &t), 0);
	const struct trace_dwell *d = t.rows[TRACE_BY_STATE];
	CU_ASSERT_EQUAL_FATAL(t.num_rows[TRACE_BY_STATE], 2);
	CU_ASSERT_EQUAL(d->tpoint_id, CRAFT_REQ_NEW);
	CU_ASSERT_EQUAL(d->count, 1000);
	CU_ASSERT_EQUAL(d->min, 1);
	CU_ASSERT_EQUAL(d->median, 500);
	CU_ASSERT_EQUAL(d->p90, 900);
	CU_ASSERT_EQUAL(d->p99, 990);
	CU_ASSERT_EQUAL(d->p999, 999);
	CU_ASSERT_EQUAL(d->max, 1000);
	CU_ASSERT_EQUAL(d->total, 500500);
	d = t.rows[TRACE_BY_TYPE];
	CU_ASSERT_EQUAL_FATAL(t.num_rows[TRACE_BY_TYPE], 1);
	CU_ASSERT_EQUAL(d->count, 1000);
	CU_ASSERT_EQUAL(d->min, 8);
	CU_ASSERT_EQUAL(d->p999, 1006);
	CU_ASSERT_EQUAL(d->max, 1007);
	trace_report_clear(&t);
	analysed_close(&a);
	craft_free(&c);
}

static void req_of(struct craft *c, uint64_t tsc, enum craft_tpoint id, uint16_t owner, uint64_t object)
{
	uint32_t qd = 1;
	struct trace_file_entry e = {.tpoint_id = id, .owner_id = owner, .object_id = object};

	craft_record(c, 0, tsc, e, &qd, id == CRAFT_REQ_BUSY ? 4 : 0);
}

static void test_the_report_tells_owners_apart_and_counts_what_is_kept(void)
{
	struct craft c = craft_new(1, 64, true);
	struct trace_report t;
	bool keep[6] = {true, true, true, true, false, false};

	req_of(&c, 100, CRAFT_REQ_NEW, 3, 0x1000);
	req_of(&c, 110, CRAFT_REQ_DONE, 3, 0x1000);
	req_of(&c, 200, CRAFT_REQ_NEW, 1, 0x2000);
	req_of(&c, 230, CRAFT_REQ_DONE, 1, 0x2000);
	req_of(&c, 300, CRAFT_REQ_NEW, 1, 0x1000);
	req_of(&c, 350, CRAFT_REQ_DONE, 1, 0x1000);
	struct analysed a = analyse(&c);
	CU_ASSERT_EQUAL_FATAL(trace_report_make(a.o.r, &a.o.s->batch, &a.l, NULL, false, &t), 0);
	CU_ASSERT_EQUAL_FATAL(t.num_rows[TRACE_BY_OWNER_STATE], 2);
	CU_ASSERT_EQUAL_FATAL(t.num_rows[TRACE_BY_OWNER_TYPE], 2);
	CU_ASSERT_EQUAL(t.rows[TRACE_BY_OWNER_STATE][0].owner_id, 1);
	CU_ASSERT_EQUAL(t.rows[TRACE_BY_OWNER_STATE][0].count, 2);
	CU_ASSERT_EQUAL(t.rows[TRACE_BY_OWNER_STATE][0].max, 50);
	CU_ASSERT_EQUAL(t.rows[TRACE_BY_OWNER_TYPE][1].owner_id, 3);
	CU_ASSERT_EQUAL(t.rows[TRACE_BY_OWNER_TYPE][1].median, 10);
	trace_report_clear(&t);
	CU_ASSERT_EQUAL_FATAL(trace_report_make(a.o.r, &a.o.s->batch, &a.l, keep, false, &t), 0);
	CU_ASSERT_EQUAL(t.rows[TRACE_BY_STATE][0].count, 2);
	CU_ASSERT_EQUAL(t.rows[TRACE_BY_TYPE][0].max, 30);
	trace_report_clear(&t);
	analysed_close(&a);
	craft_free(&c);
}

static void test_a_batch_without_objects_has_no_lives(void)
{
	struct craft c = craft_new(1, 16, true);
	struct trace_report t;

	craft_plain(&c, 0, 100);
	struct analysed a = analyse(&c);
	CU_ASSERT_EQUAL(a.l.num_lives, 0);
	CU_ASSERT_EQUAL_FATAL(trace_report_make(a.o.r, &a.o.s->batch, &a.l, NULL, false, &t), 0);
	CU_ASSERT_EQUAL(t.num_rows[TRACE_BY_STATE], 0);
	CU_ASSERT_EQUAL(t.num_rows[TRACE_BY_OWNER_TYPE], 0);
	trace_report_clear(&t);
	analysed_close(&a);
	craft_free(&c);
}

/* The table of objects must not lose any while it grows. */
static void test_many_objects_at_a_time_keep_their_lives_apart(void)
{
	enum { OBJECTS = 5000 };
	struct craft c = craft_new(1, 16384, true);

	for (uint64_t i = 0; i < OBJECTS; i++) {
		craft_req(&c, 0, 1000 + i, CRAFT_REQ_NEW, 0x7f0000000000 + i * 4096);
	}
	for (uint64_t i = 0; i < OBJECTS; i++) {
		craft_req(&c, 0, 10000 + i, CRAFT_REQ_DONE, 0x7f0000000000 + i * 4096);
	}
	struct analysed a = analyse(&c);
	CU_ASSERT_EQUAL_FATAL(a.l.num_lives, OBJECTS);
	size_t right = 0;
	for (size_t i = 0; i < OBJECTS; i++) {
		right += a.l.lives[i].index == i && a.l.lives[i].ended && trace_life_ticks(&a.l, &a.l.lives[i]) == 9000;
	}
	CU_ASSERT_EQUAL(right, OBJECTS);
	analysed_close(&a);
	craft_free(&c);
}

static const struct unit_test tests[] = {
	UNIT(test_a_family_is_linked_and_ends_are_known),
	UNIT(test_unfinished_is_what_neither_ended_nor_was_followed),
	UNIT(test_the_culprit_is_the_deepest_state_that_took_the_time),
	UNIT(test_the_report_has_exact_quantiles_of_states_and_lives),
	UNIT(test_the_report_tells_owners_apart_and_counts_what_is_kept),
	UNIT(test_a_batch_without_objects_has_no_lives),
	UNIT(test_many_objects_at_a_time_keep_their_lives_apart),
	UNIT_END,
};
UNIT_MAIN("trace_reader_lives", tests, NULL, NULL)

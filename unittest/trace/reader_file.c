/* SPDX-License-Identifier: BSD-3-Clause */
/* Files that are cut off, scrambled, or wrong in one field: the reader reports what is wrong and yields what is
 * left. */
#include <errno.h>

#include "unittest/trace/reader_use.h"

/* Opens a copy of the first n bytes and takes a snapshot, if the reader lets us; true if it did. */
static bool try_cut(const struct craft *c, size_t n, const struct trace_batch *whole)
{
	uint8_t *bytes = craft_cut(c, n);
	struct trace_reader *r;
	struct trace_snapshot *s;
	struct trace_error err = {{0}};
	bool opened = trace_reader_open_memory(bytes, n, &r, &err) == 0;

	if (!opened) {
		CU_ASSERT(err.text[0] != '\0');
	} else {
		CU_ASSERT_EQUAL_FATAL(trace_snapshot_take(r, TRACE_ALL_LCORES, &s, &err), 0);
		CU_ASSERT(n == c->size || trace_reader_num_problems(r) > 0);
		CU_ASSERT(is_part_of(&s->batch, whole));
		trace_snapshot_free(s);
		trace_reader_close(r);
	}
	free(bytes);
	return opened;
}

static void cut_everywhere(bool ours)
{
	struct craft c = craft_sample(ours);
	struct opened o = open_craft(&c);
	size_t opened = 0;

	CU_ASSERT_EQUAL(o.s->batch.num_events, 9);
	for (size_t n = 0; n <= c.size; n++) {
		opened += try_cut(&c, n, &o.s->batch);
	}
	CU_ASSERT(opened > 1);
	close_opened(&o);
	craft_free(&c);
}

static void test_truncation_at_every_length_yields_an_error_or_a_part(void)
{
	cut_everywhere(true);
	cut_everywhere(false);
}

static void test_every_byte_scrambled_is_survived(void)
{
	static const uint8_t patterns[] = {0x00, 0xff, 0x80, 0x01};
	struct craft c = craft_sample(true);

	for (size_t at = 0; at < c.size; at++) {
		for (size_t k = 0; k < sizeof(patterns); k++) {
			uint8_t saved = c.bytes[at];
			struct trace_reader *r;
			struct trace_snapshot *s;
			struct trace_error err;
			c.bytes[at] = patterns[k] == 0x01 ? saved ^ 0x01 : patterns[k];
			if (trace_reader_open_memory(c.bytes, c.size, &r, &err) == 0) {
				if (trace_snapshot_take(r, TRACE_ALL_LCORES, &s, &err) == 0) {
					CU_ASSERT(is_in_time_order(&s->batch));
					CU_ASSERT(s->batch.num_events <= 32);
					trace_snapshot_free(s);
				}
				trace_reader_close(r);
			}
			c.bytes[at] = saved;
		}
	}
	craft_free(&c);
}

/* ---- What keeps a file from being read at all ---- */

static void expect_refused(const struct craft *c, const char *why)
{
	struct trace_reader *r;
	struct trace_error err = {{0}};

	CU_ASSERT_EQUAL(trace_reader_open_memory(c->bytes, c->size, &r, &err), -EINVAL);
	if (strstr(err.text, why) == NULL) {
		printf("  \"%s\" lacks \"%s\"\n", err.text, why);
	}
	CU_ASSERT(strstr(err.text, why) != NULL);
}

static void test_a_file_without_the_needed_sections_is_refused(void)
{
	static const struct {
		unsigned section;
		const char *why;
	} cases[] = {
		{TRACE_SECTION_MAIN, "section MAIN is missing"},
		{TRACE_SECTION_TPOINT, "section TPOINT is missing"},
		{TRACE_SECTION_LCORE_OFFSETS, "section LCORE_OFFSETS is missing"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct craft c = craft_sample(true);
		((struct trace_file_header *)c.bytes)->section_offset[cases[i].section] = 0;
		expect_refused(&c, cases[i].why);
		craft_free(&c);
	}
}

static void test_too_few_sections_are_refused(void)
{
	struct craft c = craft_sample(true);

	((struct trace_file_header *)c.bytes)->num_sections = 3;
	expect_refused(&c, "num_sections is 3, must be at least 7");
	craft_free(&c);
}

static void test_tsc_rate_zero_is_refused(void)
{
	struct craft c = craft_sample(true);

	((struct trace_file_main *)craft_section(&c, TRACE_SECTION_MAIN))->tsc_rate = 0;
	expect_refused(&c, "tsc_rate is 0");
	craft_free(&c);
}

static void test_a_missing_file_is_an_error_with_its_name(void)
{
	struct trace_reader *r;
	struct trace_error err = {{0}};

	CU_ASSERT_EQUAL(trace_reader_open("/nonexistent/trace", &r, &err), -ENOENT);
	CU_ASSERT(strstr(err.text, "/nonexistent/trace") != NULL);
	CU_ASSERT_EQUAL(trace_reader_open("/dev/null", &r, &err), -EINVAL);
	CU_ASSERT(strstr(err.text, "not a regular file") != NULL);
}

/* ---- What is left out, and reported ---- */

/* Opens a changed sample; it must have this problem and as many events. */
static void expect_problem(struct craft *c, const char *problem, size_t events)
{
	struct opened o = open_craft(c);

	if (!has_problem(o.r, problem)) {
		printf("  no problem \"%s\"; the first is \"%s\"\n", problem,
		       trace_reader_num_problems(o.r) > 0 ? trace_reader_problem(o.r, 0) : "none");
	}
	CU_ASSERT(has_problem(o.r, problem));
	CU_ASSERT_EQUAL(o.s->batch.num_events, events);
	close_opened(&o);
	craft_free(c);
}

static void test_a_wrong_file_size_is_reported(void)
{
	struct craft c = craft_sample(true);

	((struct trace_file_header *)c.bytes)->file_size = c.size + 5;
	expect_problem(&c, "the file is truncated", 9);
}

static void test_a_section_outside_the_file_is_left_out(void)
{
	struct craft c = craft_sample(true);

	((struct trace_file_header *)c.bytes)->section_offset[TRACE_SECTION_OWNER] = c.size;
	expect_problem(&c, "section OWNER: offset", 9);
	c = craft_sample(true);
	((struct trace_file_header *)c.bytes)->section_offset[TRACE_SECTION_OBJECT] = 8;
	expect_problem(&c, "section OBJECT: offset 8 is not between 104", 9);
}

static void test_a_ring_that_is_no_power_of_two_is_left_out(void)
{
	struct craft c = craft_sample(true);

	craft_history(&c, 0)->num_entries = 24;
	expect_problem(&c, "ring of lcore 0: num_entries is 24, must be a power of two", 5);
	c = craft_sample(true);
	craft_history(&c, 0)->num_entries = 0;
	expect_problem(&c, "num_entries is 0", 5);
}

static void test_a_ring_with_the_wrong_number_of_counters_is_left_out(void)
{
	struct craft c = craft_sample(true);

	craft_history(&c, 1)->num_tpoint_ids = 7;
	expect_problem(&c, "ring of lcore 1: num_tpoint_ids is 7, must be 8", 4);
}

static void test_rings_that_overlap_are_left_out(void)
{
	struct craft c = craft_sample(true);
	uint64_t *offsets = (uint64_t *)((uint8_t *)craft_section(&c, TRACE_SECTION_LCORE_OFFSETS) + 128);

	offsets[1] = offsets[0];
	struct opened o = open_craft(&c);
	CU_ASSERT(has_problem(o.r, "ring of lcore 1 is left out: it overlaps that of lcore 0"));
	CU_ASSERT_EQUAL(o.s->num_lcores, 1);
	close_opened(&o);
	craft_free(&c);
}

static void test_a_damaged_tracepoint_loses_only_its_events(void)
{
	struct craft c = craft_sample(true);

	memset(craft_tpoint(&c, CRAFT_IO_DONE)->name, 'x', TRACE_TPOINT_NAME_SIZE);
	expect_problem(&c, "tracepoint 5 is left out: its name", 8);
	c = craft_sample(true);
	craft_tpoint(&c, CRAFT_IO_DONE)->tpoint_id = 6;
	expect_problem(&c, "tracepoint 5 is left out: its tpoint_id is 6", 8);
	c = craft_sample(true);
	craft_tpoint(&c, CRAFT_IO_DONE)->num_args = 9;
	expect_problem(&c, "num_args is 9", 8);
	c = craft_sample(true);
	craft_tpoint(&c, CRAFT_IO_DONE)->args[0].size = 3;
	expect_problem(&c, "argument ctx has type 1 and size 3", 8);
	c = craft_sample(true);
	craft_tpoint(&c, CRAFT_IO_DONE)->args[0].type = 3;
	expect_problem(&c, "argument ctx has type 3", 8);
	c = craft_sample(true);
	memset(craft_tpoint(&c, CRAFT_IO_DONE)->args[0].name, 'y', TRACE_ARG_NAME_SIZE);
	expect_problem(&c, "the name of argument 0", 8);
	c = craft_sample(true);
	craft_tpoint(&c, CRAFT_IO_DONE)->related[0].arg_index = 1;
	expect_problem(&c, "relation 0 names argument 1", 8);
	c = craft_sample(true);
	craft_tpoint(&c, CRAFT_IO_DONE)->new_object = 2;
	expect_problem(&c, "new_object is 2", 8);
}

static void test_an_oversized_table_is_cut_to_what_can_be(void)
{
	struct craft c = craft_sample(true);

	*(uint16_t *)craft_section(&c, TRACE_SECTION_OBJECT) = 300;
	expect_problem(&c, "section OBJECT: count is 300, at most 256", 9);
	c = craft_sample(true);
	((struct trace_file_owner_section *)craft_section(&c, TRACE_SECTION_OWNER))->description_size = 5000;
	expect_problem(&c, "description_size is 5000", 9);
	c = craft_sample(true);
	((struct trace_file_owner_section *)craft_section(&c, TRACE_SECTION_OWNER))->num_owners = 60000;
	expect_problem(&c, "of its 60000 rows", 9);
}

static void test_stamps_outside_the_file_are_not_used(void)
{
	struct craft c = craft_sample(true);
	uint64_t *offsets = (uint64_t *)((uint8_t *)craft_section(&c, TRACE_SECTION_STAMPS) + 128);

	offsets[0] = c.size - 8;
	expect_problem(&c, "stamps of lcore 0", 9);
}

static void test_a_huge_index_does_not_hang(void)
{
	struct craft c = craft_sample(false);

	craft_history(&c, 0)->next_entry = UINT64_MAX;
	craft_history(&c, 1)->next_entry = (uint64_t)1 << 63;
	struct opened o = open_craft(&c);
	CU_ASSERT(is_in_time_order(&o.s->batch));
	CU_ASSERT_EQUAL(o.s->lcores[0].overwritten, UINT64_MAX - 16);
	close_opened(&o);
	craft_free(&c);
}

static void test_more_problems_than_are_kept_are_counted(void)
{
	struct craft c = craft_new(80, 2, false);

	for (unsigned i = 0; i < 80; i++) {
		craft_history(&c, i)->num_entries = 3;
	}
	struct opened o = open_craft(&c);
	CU_ASSERT_EQUAL(trace_reader_num_problems(o.r), 80);
	CU_ASSERT(trace_reader_problem(o.r, 63) != NULL);
	CU_ASSERT(trace_reader_problem(o.r, 64) == NULL);
	close_opened(&o);
	craft_free(&c);
}

static const struct unit_test tests[] = {
	UNIT(test_truncation_at_every_length_yields_an_error_or_a_part),
	UNIT(test_every_byte_scrambled_is_survived),
	UNIT(test_a_file_without_the_needed_sections_is_refused),
	UNIT(test_too_few_sections_are_refused),
	UNIT(test_tsc_rate_zero_is_refused),
	UNIT(test_a_missing_file_is_an_error_with_its_name),
	UNIT(test_a_wrong_file_size_is_reported),
	UNIT(test_a_section_outside_the_file_is_left_out),
	UNIT(test_a_ring_that_is_no_power_of_two_is_left_out),
	UNIT(test_a_ring_with_the_wrong_number_of_counters_is_left_out),
	UNIT(test_rings_that_overlap_are_left_out),
	UNIT(test_a_damaged_tracepoint_loses_only_its_events),
	UNIT(test_an_oversized_table_is_cut_to_what_can_be),
	UNIT(test_stamps_outside_the_file_are_not_used),
	UNIT(test_a_huge_index_does_not_hang),
	UNIT(test_more_problems_than_are_kept_are_counted),
	UNIT_END,
};
UNIT_MAIN("trace_reader_file", tests, NULL, NULL)

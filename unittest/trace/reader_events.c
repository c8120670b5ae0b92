/* SPDX-License-Identifier: BSD-3-Clause */
/* Events out of rings: wraps, torn slots, order, objects, relations, owners, times. */
#include <errno.h>

#include "unittest/trace/reader_use.h"

static const struct trace_event *event_at(const struct opened *o, size_t n)
{
	CU_ASSERT_FATAL(n < o->s->batch.num_events);
	return &o->s->batch.events[n];
}

static struct trace_arg arg_of(const struct opened *o, const struct trace_event *e, unsigned n)
{
	return trace_event_arg(&o->s->batch, e, trace_reader_tpoint(o->r, e->tpoint_id), n);
}

/* ---- Rings ---- */

static void wrap(bool ours, uint64_t kept)
{
	struct craft c = craft_new(1, 32, ours);

	for (uint64_t i = 0; i < 100; i++) {
		craft_plain(&c, 0, 1000 + i);
	}
	struct opened o = open_craft(&c);
	CU_ASSERT_EQUAL_FATAL(o.s->batch.num_events, kept);
	CU_ASSERT_EQUAL(event_at(&o, 0)->tsc, 1100 - kept);
	CU_ASSERT_EQUAL(event_at(&o, kept - 1)->tsc, 1099);
	CU_ASSERT_EQUAL(o.s->lcores[0].overwritten, 68);
	CU_ASSERT_EQUAL(o.s->lcores[0].written, 100);
	CU_ASSERT_EQUAL(o.s->lcores[0].recorded, 100);
	CU_ASSERT_EQUAL(o.s->lcores[0].unstable, 32 - kept);
	CU_ASSERT_EQUAL(o.s->first_tsc, 1100 - kept);
	close_opened(&o);
	craft_free(&c);
}

static void test_a_wrapped_ring_gives_its_newest_entries(void)
{
	wrap(true, 32);
}

static void test_without_stamps_the_oldest_slots_are_left_to_the_writer(void)
{
	wrap(false, 32 - 3); /* as many as the largest event has */
}

static void test_an_event_cut_by_the_wrap_is_dropped_and_counted(void)
{
	struct craft c = craft_new(1, 8, true);

	for (uint64_t i = 0; i < 5; i++) {
		craft_io_start(&c, 0, 100 + i, 0x2000, 0x1000);
	}
	/* Slots 7 to 14 are left: the last two of event 2, then events 3 and 4. */
	struct opened o = open_craft(&c);
	CU_ASSERT_EQUAL(o.s->batch.num_events, 2);
	CU_ASSERT_EQUAL(event_at(&o, 0)->tsc, 103);
	CU_ASSERT_EQUAL(o.s->lcores[0].cut, 1);
	CU_ASSERT_EQUAL(arg_of(&o, event_at(&o, 1), 1).number, 4096 + 104);
	close_opened(&o);
	craft_free(&c);
}

static void test_an_event_without_its_continuations_is_dropped_and_the_rest_is_read(void)
{
	struct craft c = craft_new(1, 16, true);

	craft_plain(&c, 0, 100);
	craft_history(&c, 0)->tpoint_count[CRAFT_IO_START]++;
	craft_record(&c, 0, 110, (struct trace_file_entry){.tpoint_id = CRAFT_IO_START}, "12345678", 8);
	craft_plain(&c, 0, 120);
	craft_io_start(&c, 0, 130, 0x2000, 0x1000);
	craft_history(&c, 0)->next_entry--; /* the writer died before the last slot was counted ... */
	craft_stamps(&c, 0)[5] = 0;         /* ... and written */
	struct opened o = open_craft(&c);
	CU_ASSERT_EQUAL(o.s->batch.num_events, 2);
	CU_ASSERT_EQUAL(o.s->lcores[0].cut, 2);
	close_opened(&o);
	craft_free(&c);
}

static void test_a_slot_whose_stamp_disagrees_is_torn(void)
{
	struct craft c = craft_new(1, 16, true);

	for (uint64_t i = 0; i < 10; i++) {
		craft_plain(&c, 0, 100 + i);
	}
	craft_stamps(&c, 0)[3] = TRACE_FILE_STAMP(555, 3 + 16); /* its successor was begun */
	craft_entries(&c, 0)[6].tsc = 999;                      /* its tsc is of another entry */
	struct opened o = open_craft(&c);
	CU_ASSERT_EQUAL(o.s->batch.num_events, 8);
	CU_ASSERT_EQUAL(o.s->lcores[0].torn, 2);
	CU_ASSERT_EQUAL(event_at(&o, 3)->tsc, 104);
	CU_ASSERT_EQUAL(event_at(&o, 3)->gaps, 1);
	CU_ASSERT_EQUAL(event_at(&o, 7)->gaps, 2);
	close_opened(&o);
	craft_free(&c);
}

/* One of an event's three slots torn: the event goes, not its neighbours. */
static void test_a_torn_continuation_drops_its_event_only(void)
{
	for (unsigned slot = 1; slot <= 3; slot++) {
		struct craft c = craft_new(1, 16, true);
		craft_plain(&c, 0, 100);
		craft_io_start(&c, 0, 110, 0x2000, 0x1000);
		craft_plain(&c, 0, 120);
		craft_stamps(&c, 0)[slot] = TRACE_FILE_STAMP(777, slot + 16);
		struct opened o = open_craft(&c);
		CU_ASSERT_EQUAL(o.s->batch.num_events, 2);
		CU_ASSERT_EQUAL(o.s->lcores[0].torn, 1);
		CU_ASSERT_EQUAL(o.s->lcores[0].cut, 1);
		close_opened(&o);
		craft_free(&c);
	}
}

static void test_a_copy_gives_whole_entries_newer_than_its_index(void)
{
	struct craft c = craft_new(1, 16, true);

	for (uint64_t i = 0; i < 20; i++) {
		craft_plain(&c, 0, 100 + i);
	}
	craft_history(&c, 0)->next_entry = 16; /* what cp saw before it copied the entries */
	struct opened o = open_craft(&c);
	CU_ASSERT_EQUAL_FATAL(o.s->batch.num_events, 16);
	CU_ASSERT_EQUAL(event_at(&o, 0)->tsc, 104);
	CU_ASSERT_EQUAL(event_at(&o, 15)->tsc, 119);
	CU_ASSERT_EQUAL(o.s->lcores[0].torn, 0);
	close_opened(&o);
	craft_free(&c);
}

static void test_without_stamps_entries_that_contradict_time_are_dropped(void)
{
	struct craft c = craft_new(1, 64, false);

	for (uint64_t i = 0; i < 40; i++) {
		craft_plain(&c, 0, 1000 + i);
	}
	craft_entries(&c, 0)[0].tsc = 5000; /* newer than all that follow */
	craft_entries(&c, 0)[20].tsc = 7;   /* older than all before */
	struct opened o = open_craft(&c);
	CU_ASSERT_EQUAL(o.s->batch.num_events, 38);
	CU_ASSERT_EQUAL(o.s->lcores[0].out_of_order, 2);
	CU_ASSERT(is_in_time_order(&o.s->batch));
	close_opened(&o);
	craft_free(&c);
}

static void test_events_of_undefined_tracepoints_are_counted(void)
{
	struct craft c = craft_new(1, 16, true);

	craft_plain(&c, 0, 100);
	craft_record(&c, 0, 110, (struct trace_file_entry){.tpoint_id = CRAFT_UNUSED}, "123456789", 9);
	craft_record(&c, 0, 120, (struct trace_file_entry){.tpoint_id = 60000}, NULL, 0);
	craft_plain(&c, 0, 130);
	struct opened o = open_craft(&c);
	CU_ASSERT_EQUAL(o.s->batch.num_events, 2);
	CU_ASSERT_EQUAL(o.s->lcores[0].unknown, 2);
	CU_ASSERT_EQUAL(o.s->lcores[0].cut, 0);
	close_opened(&o);
	craft_free(&c);
}

static void test_events_before_a_clear_are_ignored(void)
{
	struct craft c = craft_sample(true);

	((struct trace_file_main *)craft_section(&c, TRACE_SECTION_MAIN))->clear_tsc = 170;
	struct opened o = open_craft(&c);
	CU_ASSERT_EQUAL(o.s->batch.num_events, 4);
	CU_ASSERT_EQUAL(event_at(&o, 0)->tsc, 170);
	CU_ASSERT_EQUAL(o.s->lcores[0].cleared + o.s->lcores[1].cleared, 5);
	close_opened(&o);
	craft_free(&c);
}

static void test_one_lcore_can_be_chosen(void)
{
	struct craft c = craft_sample(true);
	struct opened o = {0};
	struct trace_error err;

	CU_ASSERT_EQUAL_FATAL(trace_reader_open_memory(c.bytes, c.size, &o.r, &err), 0);
	CU_ASSERT_EQUAL(trace_snapshot_take(o.r, 5, &o.s, &err), -ENOENT);
	CU_ASSERT(strstr(err.text, "lcore 5") != NULL);
	CU_ASSERT_EQUAL_FATAL(trace_snapshot_take(o.r, 1, &o.s, &err), 0);
	CU_ASSERT_EQUAL(o.s->num_lcores, 1);
	CU_ASSERT_EQUAL(o.s->batch.num_events, 5);
	close_opened(&o);
	craft_free(&c);
}

/* ---- Order ---- */

static void test_equal_times_keep_the_order_of_the_lcore_and_lose_nothing(void)
{
	struct craft c = craft_new(3, 16, true);

	for (uint32_t i = 0; i < 12; i++) {
		struct trace_file_entry e = {.tpoint_id = CRAFT_PLAIN, .size = i / 3 + 1};
		craft_record(&c, 2 - i % 3, 500, e, NULL, 0);
	}
	struct opened o = open_craft(&c);
	CU_ASSERT_EQUAL_FATAL(o.s->batch.num_events, 12);
	for (uint32_t i = 0; i < 12; i++) {
		CU_ASSERT_EQUAL(event_at(&o, i)->lcore, i / 4);
		CU_ASSERT_EQUAL(event_at(&o, i)->size, i % 4 + 1);
	}
	close_opened(&o);
	craft_free(&c);
}

static void test_many_lcores_merge_in_time_order(void)
{
	struct craft c = craft_new(37, 64, true);
	uint64_t next[37] = {0};
	uint32_t random = 12345;

	for (unsigned i = 0; i < 37 * 60; i++) {
		unsigned lcore = i % 37;
		random = random * 1664525u + 1013904223u;
		craft_plain(&c, lcore, 1000 + (next[lcore] += random >> 28));
	}
	struct opened o = open_craft(&c);
	CU_ASSERT_EQUAL(o.s->batch.num_events, 37 * 60);
	CU_ASSERT(is_in_time_order(&o.s->batch));
	close_opened(&o);
	craft_free(&c);
}

/* ---- Arguments, owners, objects ---- */

static void test_arguments_are_put_together_from_their_slots(void)
{
	struct craft c = craft_sample(true);
	struct opened o = open_craft(&c);
	const struct trace_event *e = event_at(&o, 3);

	CU_ASSERT_EQUAL(e->tpoint_id, CRAFT_IO_START);
	CU_ASSERT_EQUAL(e->size, 8);
	CU_ASSERT_EQUAL(arg_of(&o, e, 0).type, TRACE_ARG_PTR);
	CU_ASSERT_EQUAL(arg_of(&o, e, 0).number, 0x1000);
	CU_ASSERT_EQUAL(arg_of(&o, e, 1).number, 4096 + 130);
	struct trace_arg text = arg_of(&o, e, 2);
	CU_ASSERT_EQUAL(text.type, TRACE_ARG_STR);
	CU_ASSERT_EQUAL(text.length, 10);
	CU_ASSERT(memcmp(text.text, "some words", 10) == 0);
	CU_ASSERT_EQUAL(arg_of(&o, event_at(&o, 2), 0).number, 9);
	close_opened(&o);
	craft_free(&c);
}

static void test_a_text_that_fills_its_field_ends_there(void)
{
	struct craft c = craft_new(1, 16, true);
	struct trace_file_entry e = {.tpoint_id = CRAFT_IO_START};

	craft_record(&c, 0, 100, e, "ctx45678offset78sixteen-letters!", 32);
	craft_record(&c, 0, 110, e, "ctx45678offset78................", 32);
	struct opened o = open_craft(&c);
	CU_ASSERT_EQUAL(arg_of(&o, event_at(&o, 0), 2).length, 16);
	CU_ASSERT(memcmp(arg_of(&o, event_at(&o, 0), 2).text, "sixteen-letters!", 16) == 0);
	close_opened(&o);
	craft_free(&c);
}

static void test_an_owner_is_known_from_its_registration_on(void)
{
	struct craft c = craft_sample(true);
	struct opened o = open_craft(&c);

	CU_ASSERT_STRING_EQUAL(trace_reader_owner(o.r, 1, 50), "host a qid 1");
	CU_ASSERT(trace_reader_owner(o.r, 1, 49) == NULL); /* the id was someone else's then */
	CU_ASSERT(trace_reader_owner(o.r, 0, 100) == NULL);
	CU_ASSERT(trace_reader_owner(o.r, 2, 100) == NULL);
	CU_ASSERT(trace_reader_owner(o.r, 4, 100) == NULL);
	CU_ASSERT_EQUAL(trace_reader_owner_prefix(o.r, 5), 'c');
	close_opened(&o);
	craft_free(&c);
}

static void test_an_unterminated_owner_description_ends_with_its_field(void)
{
	struct craft c = craft_sample(true);

	craft_owner(&c, 1, 50, "");
	memset((uint8_t *)craft_section(&c, TRACE_SECTION_OWNER) + 128 + (9 + CRAFT_DESCRIPTION) + 9, 'd',
	       CRAFT_DESCRIPTION);
	struct opened o = open_craft(&c);
	CU_ASSERT_EQUAL(strlen(trace_reader_owner(o.r, 1, 50)), CRAFT_DESCRIPTION);
	close_opened(&o);
	craft_free(&c);
}

static void test_objects_are_numbered_by_type_and_age(void)
{
	struct craft c = craft_sample(true);
	struct opened o = open_craft(&c);

	CU_ASSERT_EQUAL(event_at(&o, 0)->object_index, TRACE_NO_OBJECT);
	CU_ASSERT_EQUAL(event_at(&o, 1)->object_index, 0);
	CU_ASSERT_EQUAL(event_at(&o, 1)->state_ticks, TRACE_NO_TIME);
	CU_ASSERT_EQUAL(event_at(&o, 2)->object_index, 0);
	CU_ASSERT_EQUAL(event_at(&o, 2)->object_start, 110);
	CU_ASSERT_EQUAL(event_at(&o, 2)->state_ticks, 10);
	CU_ASSERT_EQUAL(event_at(&o, 2)->prev_tpoint, CRAFT_REQ_NEW);
	CU_ASSERT_EQUAL(event_at(&o, 3)->object_index, 0); /* the first of its own type */
	CU_ASSERT_EQUAL(event_at(&o, 6)->state_ticks, 60);
	/* The same address, born again. */
	CU_ASSERT_EQUAL(event_at(&o, 7)->object_id, 0x1000);
	CU_ASSERT_EQUAL(event_at(&o, 7)->object_index, 1);
	CU_ASSERT_EQUAL(event_at(&o, 7)->state_ticks, TRACE_NO_TIME);
	close_opened(&o);
	craft_free(&c);
}

static void test_an_object_created_before_the_trace_has_no_number_but_states(void)
{
	struct craft c = craft_new(1, 16, true);

	craft_req(&c, 0, 100, CRAFT_REQ_BUSY, 0x1000);
	craft_req(&c, 0, 130, CRAFT_REQ_DONE, 0x1000);
	struct opened o = open_craft(&c);
	CU_ASSERT_EQUAL(event_at(&o, 1)->object_index, TRACE_NO_OBJECT);
	CU_ASSERT_EQUAL(event_at(&o, 1)->state_ticks, 30);
	close_opened(&o);
	craft_free(&c);
}

static void test_children_name_their_parents(void)
{
	struct craft c = craft_sample(true);
	struct opened o = open_craft(&c);

	CU_ASSERT_EQUAL(event_at(&o, 3)->related_index, 0);
	CU_ASSERT_EQUAL(event_at(&o, 3)->related_type, 2);
	CU_ASSERT_EQUAL(event_at(&o, 3)->related_arg, 0);
	CU_ASSERT_EQUAL(event_at(&o, 4)->related_type, 3);
	CU_ASSERT_EQUAL(event_at(&o, 2)->related_index, TRACE_NO_OBJECT);
	CU_ASSERT_EQUAL(trace_reader_object_prefix(o.r, 2), 'r');
	close_opened(&o);
	craft_free(&c);
}

static void test_a_parent_created_later_is_not_named(void)
{
	struct craft c = craft_new(1, 16, true);

	craft_io_start(&c, 0, 100, 0x2000, 0x1000);
	craft_req(&c, 0, 110, CRAFT_REQ_NEW, 0x1000);
	craft_child(&c, 0, 120, CRAFT_IO_DONE, 0x2000, 0x1000);
	struct opened o = open_craft(&c);
	CU_ASSERT_EQUAL(event_at(&o, 0)->related_index, TRACE_NO_OBJECT);
	CU_ASSERT_EQUAL(event_at(&o, 2)->related_index, 0);
	close_opened(&o);
	craft_free(&c);
}

static void test_a_life_is_the_whole_family_and_nobody_else(void)
{
	struct craft c = craft_new(2, 64, true);
	bool keep[16];
	size_t start;

	craft_req(&c, 0, 100, CRAFT_REQ_NEW, 0x1000);       /* r0 */
	craft_req(&c, 0, 105, CRAFT_REQ_NEW, 0x1100);       /* r1, another one */
	craft_io_start(&c, 0, 110, 0x2000, 0x1000);         /* i0 for r0 */
	craft_io_start(&c, 0, 115, 0x2100, 0x1100);         /* i1 for r1 */
	craft_child(&c, 1, 120, CRAFT_CMD, 0x3000, 0x2000); /* N0 for i0 */
	craft_io_start(&c, 0, 125, 0x2200, 0x1000);         /* i2 for r0 */
	craft_child(&c, 1, 130, CRAFT_IO_DONE, 0x2000, 0x1000);
	craft_req(&c, 0, 140, CRAFT_REQ_DONE, 0x1000);
	craft_req(&c, 0, 150, CRAFT_REQ_NEW, 0x1000); /* r2, at r0's address */
	static const bool family[] = {true, false, true, false, true, true, true, true, false};
	struct opened o = open_craft(&c);
	static const struct {
		char prefix;
		uint64_t index;
	} members[] = {{'r', 0}, {'i', 0}, {'N', 0}, {'i', 2}};
	for (size_t k = 0; k < sizeof(members) / sizeof(members[0]); k++) {
		CU_ASSERT_EQUAL(trace_life_mark(o.r, &o.s->batch, members[k].prefix, members[k].index, keep, &start),
				0);
		CU_ASSERT(memcmp(keep, family, sizeof(family)) == 0);
		CU_ASSERT_EQUAL(start, 0);
	}
	CU_ASSERT_EQUAL(trace_life_mark(o.r, &o.s->batch, 'r', 3, keep, &start), -ENOENT);
	CU_ASSERT_EQUAL(trace_life_mark(o.r, &o.s->batch, 'x', 0, keep, &start), -ENOENT);
	close_opened(&o);
	craft_free(&c);
}

/* ---- Times ---- */

static void test_dwell_times_have_exact_percentiles(void)
{
	struct craft c = craft_new(1, 512, true);
	struct trace_dwell *rows;
	size_t n;
	uint64_t tsc = 1000;

	/* 100 requests that are new for 1 to 100 ticks, in a mixed order, and busy for 7. */
	for (uint64_t i = 0; i < 100; i++) {
		craft_req(&c, 0, tsc, CRAFT_REQ_NEW, 0x1000);
		craft_req(&c, 0, tsc += i * 37 % 100 + 1, CRAFT_REQ_BUSY, 0x1000);
		craft_req(&c, 0, tsc += 7, CRAFT_REQ_DONE, 0x1000);
		tsc += 500; /* between requests: in no state */
	}
	struct opened o = open_craft(&c);
	CU_ASSERT_EQUAL_FATAL(trace_summary_make(o.r, &o.s->batch, &rows, &n), 0);
	CU_ASSERT_EQUAL_FATAL(n, 2);
	CU_ASSERT_EQUAL(rows[0].tpoint_id, CRAFT_REQ_NEW);
	CU_ASSERT_EQUAL(rows[0].count, 100);
	CU_ASSERT_EQUAL(rows[0].min, 1);
	CU_ASSERT_EQUAL(rows[0].median, 50);
	CU_ASSERT_EQUAL(rows[0].p99, 99);
	CU_ASSERT_EQUAL(rows[0].max, 100);
	CU_ASSERT_EQUAL(rows[0].total, 5050);
	CU_ASSERT_EQUAL(rows[1].tpoint_id, CRAFT_REQ_BUSY);
	CU_ASSERT_EQUAL(rows[1].p99, 7);
	free(rows);
	close_opened(&o);
	craft_free(&c);
}

static void test_a_dwell_time_across_a_hole_is_unknown(void)
{
	struct craft c = craft_new(1, 16, true);

	craft_req(&c, 0, 100, CRAFT_REQ_NEW, 0x1000);
	craft_req(&c, 0, 110, CRAFT_REQ_BUSY, 0x1000); /* torn */
	craft_req(&c, 0, 120, CRAFT_REQ_DONE, 0x1000);
	craft_stamps(&c, 0)[1] = 0;
	struct opened o = open_craft(&c);
	CU_ASSERT_EQUAL(o.s->batch.num_events, 2);
	CU_ASSERT_EQUAL(event_at(&o, 1)->state_ticks, TRACE_NO_TIME);
	close_opened(&o);
	craft_free(&c);
}

static void test_times_are_exact_integers(void)
{
	CU_ASSERT_EQUAL(trace_ticks_to_ns(1, 2000000000), 0);
	CU_ASSERT_EQUAL(trace_ticks_to_ns(3, 2000000000), 1);
	/* 400 days at 2.4 GHz, and a tick more */
	CU_ASSERT_EQUAL(trace_ticks_to_ns(82944000000000012u, 2400000000u), 34560000000000005u);
	CU_ASSERT_EQUAL(trace_ticks_to_ns(UINT64_MAX, 1), UINT64_MAX);
	CU_ASSERT_EQUAL(trace_ns_to_ticks(5, 2400000000u), 12);
	CU_ASSERT_EQUAL(trace_ns_to_ticks(UINT64_MAX, UINT64_MAX), UINT64_MAX);
}

static void test_the_time_of_day_comes_from_the_files_clocks(void)
{
	struct craft c = craft_sample(true);
	struct opened o = open_craft(&c);

	CU_ASSERT_EQUAL(o.s->num_clocks, 2);
	CU_ASSERT_EQUAL(trace_snapshot_realtime_ns(o.s, 1000), 1700000000000000000u);
	CU_ASSERT_EQUAL(trace_snapshot_realtime_ns(o.s, 501000), 1700000000000500000u);
	CU_ASSERT_EQUAL(trace_snapshot_realtime_ns(o.s, 990), 1699999999999999990u);
	CU_ASSERT_EQUAL(o.s->loss.no_slot, 7);
	close_opened(&o);
	craft_free(&c);
	c = craft_sample(false);
	o = open_craft(&c);
	CU_ASSERT_EQUAL(o.s->num_clocks, 0);
	CU_ASSERT_EQUAL(trace_snapshot_realtime_ns(o.s, 1000), 0);
	close_opened(&o);
	craft_free(&c);
}

/* After a thousand hours, so that two hours are well within what the rate may be off. */
static void test_a_clock_that_was_set_does_not_stretch_time(void)
{
	const uint64_t hours = 3600 * UINT64_C(1000000000), begin = 1700000000000000000u;
	struct craft c = craft_sample(true);
	struct trace_file_info *info = craft_section(&c, TRACE_SECTION_INFO);

	info->start.monotonic_ns = 5;
	info->clock[0] = (struct trace_file_clock){
		.tsc = 1000 + 1000 * hours, .realtime_ns = begin + 1002 * hours, .monotonic_ns = 5 + 1000 * hours};
	struct opened o = open_craft(&c);
	CU_ASSERT_EQUAL(o.s->num_clocks, 1);
	CU_ASSERT_EQUAL(trace_snapshot_realtime_ns(o.s, 1000 + 500 * hours), begin + 500 * hours);
	close_opened(&o);
	info->clock[0].realtime_ns = begin + 1000 * hours + 1000; /* what lies between two readings */
	o = open_craft(&c);
	CU_ASSERT_EQUAL(o.s->num_clocks, 2);
	close_opened(&o);
	craft_free(&c);
}

static const struct unit_test tests[] = {
	UNIT(test_a_wrapped_ring_gives_its_newest_entries),
	UNIT(test_without_stamps_the_oldest_slots_are_left_to_the_writer),
	UNIT(test_an_event_cut_by_the_wrap_is_dropped_and_counted),
	UNIT(test_an_event_without_its_continuations_is_dropped_and_the_rest_is_read),
	UNIT(test_a_slot_whose_stamp_disagrees_is_torn),
	UNIT(test_a_torn_continuation_drops_its_event_only),
	UNIT(test_a_copy_gives_whole_entries_newer_than_its_index),
	UNIT(test_without_stamps_entries_that_contradict_time_are_dropped),
	UNIT(test_events_of_undefined_tracepoints_are_counted),
	UNIT(test_events_before_a_clear_are_ignored),
	UNIT(test_one_lcore_can_be_chosen),
	UNIT(test_equal_times_keep_the_order_of_the_lcore_and_lose_nothing),
	UNIT(test_many_lcores_merge_in_time_order),
	UNIT(test_arguments_are_put_together_from_their_slots),
	UNIT(test_a_text_that_fills_its_field_ends_there),
	UNIT(test_an_owner_is_known_from_its_registration_on),
	UNIT(test_an_unterminated_owner_description_ends_with_its_field),
	UNIT(test_objects_are_numbered_by_type_and_age),
	UNIT(test_an_object_created_before_the_trace_has_no_number_but_states),
	UNIT(test_children_name_their_parents),
	UNIT(test_a_parent_created_later_is_not_named),
	UNIT(test_a_life_is_the_whole_family_and_nobody_else),
	UNIT(test_dwell_times_have_exact_percentiles),
	UNIT(test_a_dwell_time_across_a_hole_is_unknown),
	UNIT(test_times_are_exact_integers),
	UNIT(test_the_time_of_day_comes_from_the_files_clocks),
	UNIT(test_a_clock_that_was_set_does_not_stretch_time),
	UNIT_END,
};
UNIT_MAIN("trace_reader_events", tests, NULL, NULL)

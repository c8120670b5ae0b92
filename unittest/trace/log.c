/* SPDX-License-Identifier: BSD-3-Clause */
/* Lines of the log in the trace. */
#include <stdlib.h>

#include "trace/reader.h"
#include "unittest/trace/fixture.h"
#include "util/log.h"

static struct trace_reader *reader;
static struct trace_snapshot *snapshot;

static void look(void)
{
	struct trace_error err = {{0}};

	CU_ASSERT_EQUAL_FATAL(trace_reader_open(trace_file_path(), &reader, &err), 0);
	CU_ASSERT_EQUAL_FATAL(trace_snapshot_take(reader, TRACE_ALL_LCORES, &snapshot, &err), 0);
}

static void done(void)
{
	trace_snapshot_free(snapshot);
	trace_reader_close(reader);
	fixture_stop();
}

static struct trace_arg arg(size_t event, unsigned n)
{
	const struct trace_event *e = &snapshot->batch.events[event];

	CU_ASSERT_EQUAL_FATAL(e->tpoint_id, TRACE_TPOINT_LOG_LINE);
	return trace_event_arg(&snapshot->batch, e, trace_reader_tpoint(reader, e->tpoint_id), n);
}

static bool text_is(struct trace_arg a, const char *text)
{
	return a.length == strlen(text) && memcmp(a.text, text, a.length) == 0;
}

static void test_line_is_an_event(void)
{
	fixture_start(64);
	log_warning("disk %s is full", "U");
	int line = __LINE__ - 1;
	look();
	CU_ASSERT_EQUAL_FATAL(snapshot->batch.num_events, 1);
	CU_ASSERT_EQUAL(snapshot->batch.events[0].size, strlen("disk U is full"));
	CU_ASSERT_EQUAL(arg(0, 0).number, LOG_LEVEL_WARNING);
	CU_ASSERT_EQUAL(arg(0, 1).number, (uint64_t)line);
	CU_ASSERT(text_is(arg(0, 2), "log.c"));
	CU_ASSERT_EQUAL(arg(0, 3).number, 0);
	CU_ASSERT(text_is(arg(0, 4), "disk U is full"));
	done();
}

static void test_long_line_is_whole_in_several_events(void)
{
	char text[300], back[300] = "";
	struct trace_slot_stats stats;

	for (size_t i = 0; i < sizeof(text) - 1; i++) {
		text[i] = (char)('a' + i % 23);
	}
	text[sizeof(text) - 1] = '\0';
	fixture_start(64);
	log_error("%s", text);
	look();
	CU_ASSERT_EQUAL_FATAL(snapshot->batch.num_events, 3);
	for (size_t i = 0; i < 3; i++) {
		CU_ASSERT_EQUAL(snapshot->batch.events[i].size, sizeof(text) - 1);
		CU_ASSERT_EQUAL_FATAL(arg(i, 3).number, strlen(back));
		strncat(back, arg(i, 4).text, arg(i, 4).length);
	}
	CU_ASSERT_STRING_EQUAL(back, text);
	CU_ASSERT_TRUE(trace_get_slot_stats(0, &stats));
	CU_ASSERT_EQUAL(stats.strings_truncated, 0);
	done();
}

LOG_FLAG(unit)

static void test_what_only_flags_print_is_left_out(void)
{
	fixture_start(64);
	log_set_flag("unit", true);
	log_set_print_level(LOG_LEVEL_DEBUG);
	log_info(unit, "shown, not recorded");
	log_set_print_level(LOG_LEVEL_ERROR);
	log_notice("neither");
	log_set_print_level(LOG_LEVEL_NOTICE);
	log_notice("both");
	look();
	CU_ASSERT_EQUAL_FATAL(snapshot->batch.num_events, 1);
	CU_ASSERT_EQUAL(arg(0, 0).number, LOG_LEVEL_NOTICE);
	CU_ASSERT(text_is(arg(0, 4), "both"));
	done();
}

static void test_line_after_the_end_goes_to_the_log_alone(void)
{
	fixture_start(64);
	fixture_stop();
	log_error("nobody records");
	fixture_start(64);
	look();
	CU_ASSERT_EQUAL(snapshot->batch.num_events, 0);
	done();
}

static const struct unit_test tests[] = {
	UNIT(test_line_is_an_event),
	UNIT(test_long_line_is_whole_in_several_events),
	UNIT(test_what_only_flags_print_is_left_out),
	UNIT(test_line_after_the_end_goes_to_the_log_alone),
	UNIT_END,
};
UNIT_MAIN("trace_log", tests, fixture_setup, fixture_teardown)

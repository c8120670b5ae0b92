/* SPDX-License-Identifier: BSD-3-Clause */
/* The load of reactors and threads in the trace. */
#include "unittest/thread/fixture.h"
#include "unittest/unit.h"

#include <string.h>
#include <unistd.h>

#include "trace/reader.h"
#include "trace/trace.h"

#define REACTORS 4

static struct trace_snapshot *snapshot;
static struct trace_reader *reader;

static unsigned count_events(enum trace_tpoint_id id)
{
	unsigned n = 0;

	for (size_t i = 0; i < snapshot->batch.num_events; i++) {
		n += snapshot->batch.events[i].tpoint_id == id;
	}
	return n;
}

static void close_snapshot(void)
{
	trace_snapshot_free(snapshot);
	trace_reader_close(reader);
	snapshot = NULL;
	reader = NULL;
}

static void take_snapshot(void)
{
	struct trace_error err;

	close_snapshot();
	CU_ASSERT_EQUAL_FATAL(trace_reader_open(trace_file_path(), &reader, &err), 0);
	CU_ASSERT_EQUAL_FATAL(trace_snapshot_take(reader, TRACE_ALL_LCORES, &snapshot, &err), 0);
}

static bool has_rounds(void *arg)
{
	take_snapshot();
	return count_events(TRACE_TPOINT_SCHEDULER_PERIOD_START) >= *(unsigned *)arg;
}

/* Wakes the control thread every 20 ms, so that thread_control_wait() asks again. */
static void wake_control(void *arg)
{
	struct thread_timer *t = arg;

	thread_timer_start(t, 20000);
}

/* Runs the control thread's loop until the trace has that many rounds. */
static void wait_rounds(unsigned rounds)
{
	struct thread_timer t = {.fn = wake_control, .arg = &t};

	thread_timer_start(&t, 20000);
	CU_ASSERT(thread_control_wait(has_rounds, &rounds, WAIT_US));
	thread_timer_stop(&t);
}

/* That each round has every reactor and the control thread, each with its name and with time that adds up to the
 * round's. */
static void check_reactor(const char *name)
{
	unsigned n = 0;

	for (size_t i = 0; i < snapshot->batch.num_events; i++) {
		const struct trace_event *e = &snapshot->batch.events[i];
		const struct trace_tpoint *t = trace_reader_tpoint(reader, e->tpoint_id);
		const char *owner = trace_reader_owner(reader, e->owner_id, e->tsc);
		if (e->tpoint_id == TRACE_TPOINT_SCHEDULER_CORE_STATS && owner != NULL && strcmp(owner, name) == 0) {
			uint64_t ticks = trace_event_arg(&snapshot->batch, e, t, 0).number +
					 trace_event_arg(&snapshot->batch, e, t, 1).number;
			CU_ASSERT(ticks > 0);
			n++;
		}
	}
	CU_ASSERT(n >= 2);
}

static void record_load(void)
{
	struct thread *t = fixture_thread("loaded", 1);

	CU_ASSERT_EQUAL_FATAL(trace_set_tpoints(TRACE_GROUP_SCHEDULER, UINT64_MAX), 0);
	wait_rounds(2);
	CU_ASSERT_EQUAL(trace_clear_tpoints(TRACE_GROUP_SCHEDULER, UINT64_MAX), 0);
	take_snapshot();
	CU_ASSERT(count_events(TRACE_TPOINT_SCHEDULER_CORE_STATS) >= 2 * (REACTORS + 1));
	CU_ASSERT(count_events(TRACE_TPOINT_SCHEDULER_THREAD_STATS) >= 2 * 2); /* "loaded" and "control" */
	check_reactor("reactor_0");
	check_reactor("reactor_3");
	check_reactor("control");
	close_snapshot();
	CU_ASSERT_EQUAL(thread_destroy(t), 0);
}

/* Stops all and starts it again, with a recorder. */
static void test_reactors_and_threads_record_their_load_while_the_group_is_enabled(void)
{
	struct trace_opts opts = {
		.name = "unit_load", .version = "", .instance_id = -1, .num_entries = 1024, .num_user_threads = 2};
	const struct thread_lib_opts lib = {.idle_spell_us = 50};
	char error[TRACE_ERROR_MAX], path[4096];

	thread_lib_stop();
	CU_ASSERT_EQUAL_FATAL(trace_start(&opts, error), 0);
	CU_ASSERT_EQUAL_FATAL(thread_lib_start(&lib), 0);
	record_load();
	thread_lib_stop();
	CU_ASSERT_PTR_NOT_NULL_FATAL(trace_file_path());
	snprintf(path, sizeof(path), "%s", trace_file_path());
	trace_stop();
	unlink(path);
	CU_ASSERT_EQUAL_FATAL(thread_lib_start(&lib), 0);
}

static const struct unit_test tests[] = {
	UNIT(test_reactors_and_threads_record_their_load_while_the_group_is_enabled),
	UNIT_END,
};

UNIT_MAIN("load", tests, fixture_start, fixture_stop)

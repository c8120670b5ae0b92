/* SPDX-License-Identifier: BSD-3-Clause */
/* The reader on the recorder's file while two threads record as fast as they can, on copies of it, and after a kill -9.
 * The events carry arguments that must agree with each other, so that a torn one would show. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "trace/reader.h"
#include "unittest/trace/fixture.h"

enum {
	SNAPSHOTS = 100,
	ENTRIES = 4096,
	SLOTS_PER_EVENT = 2,
	LCORES = 2,
	ENOUGH_FOLLOWED = 20000,
	DEADLINE_S = 20 /* a slow machine or valgrind may lose most laps of the ring: what was seen by then will do */
};

/* ---- Writers ---- */

static atomic_bool stop;
static atomic_uint writing;
static atomic_uint_least64_t allowed; /* events that a writer may have recorded by now */

static void record_agreeing(uint64_t seq)
{
	TRACE(TEST_AGREE, 0, (uint32_t)seq, 3 * seq, seq, ~seq, (uint32_t)seq, seq + 1);
}

/* The EAL has bound us to one CPU; writers and reader are to run at the same time where there are several. */
static void use_all_cpus(void)
{
	cpu_set_t all;

	memset(&all, 0xff, sizeof(all));
	sched_setaffinity(0, sizeof(all), &all);
}

static void *record_at_full_rate(void *lcore)
{
	use_all_cpus();
	trace_thread_attach((unsigned)(uintptr_t)lcore, "");
	record_agreeing(0);
	atomic_fetch_add(&writing, 1);
	for (uint64_t seq = 1; !atomic_load_explicit(&stop, memory_order_relaxed);) {
		if (seq <= atomic_load_explicit(&allowed, memory_order_relaxed)) {
			record_agreeing(seq++);
		} else {
			sched_yield();
		}
	}
	return NULL;
}

/* Under valgrind threads take turns, two of three of them writers', and a turn is long enough to write a ring over:
 * there, half a ring is written during each snapshot, so that each finds something. */
static void allow_more(bool valgrind)
{
	if (valgrind) {
		atomic_fetch_add(&allowed, ENTRIES / SLOTS_PER_EVENT / 2);
	} else {
		atomic_store(&allowed, UINT64_MAX);
	}
}

/* ---- What a snapshot must be ---- */

static bool event_agrees(const struct trace_reader *r, const struct trace_batch *b, const struct trace_event *e)
{
	const struct trace_tpoint *t = trace_reader_tpoint(r, e->tpoint_id);
	uint64_t seq = trace_event_arg(b, e, t, 0).number;

	return e->tpoint_id == TRACE_TPOINT_TEST_AGREE && e->size == (uint32_t)seq && e->object_id == 3 * seq &&
	       trace_event_arg(b, e, t, 1).number == ~seq && trace_event_arg(b, e, t, 2).number == (uint32_t)seq &&
	       trace_event_arg(b, e, t, 3).number == seq + 1;
}

/* Every slot ever written is accounted for. */
static bool counters_add_up(const struct trace_lcore *lc)
{
	return lc->written == lc->overwritten + lc->skipped + lc->unstable + lc->torn + lc->out_of_order + lc->cut +
				      lc->events * SLOTS_PER_EVENT;
}

/* newest: of each ring, or 0: of all that is in them. */
static void check_snapshot(struct trace_reader *r, bool live, uint64_t newest, uint64_t *events)
{
	struct trace_snapshot *s;
	struct trace_error err = {{0}};
	size_t disagree = 0, unordered = 0, repeated = 0;
	uint64_t next_seq[8] = {0};

	CU_ASSERT_EQUAL_FATAL(newest != 0 ? trace_snapshot_take_newest(r, newest, &s, &err)
					  : trace_snapshot_take(r, TRACE_ALL_LCORES, &s, &err),
			      0);
	for (size_t i = 0; i < s->batch.num_events; i++) {
		const struct trace_event *e = &s->batch.events[i];
		uint64_t seq = trace_event_arg(&s->batch, e, trace_reader_tpoint(r, e->tpoint_id), 0).number;
		disagree += !event_agrees(r, &s->batch, e);
		unordered += i > 0 && e[-1].tsc > e->tsc;
		repeated += seq < next_seq[e->lcore % 8];
		next_seq[e->lcore % 8] = seq + 1;
	}
	CU_ASSERT_EQUAL(disagree, 0);
	CU_ASSERT_EQUAL(unordered, 0);
	CU_ASSERT_EQUAL(repeated, 0);
	for (size_t i = 0; live && i < s->num_lcores; i++) {
		CU_ASSERT(counters_add_up(&s->lcores[i]));
	}
	*events += s->batch.num_events;
	trace_snapshot_free(s);
}

static void copy_file(const char *from, const char *to)
{
	size_t size;
	uint8_t *bytes = fixture_read(from, &size);
	int fd = open(to, O_CREAT | O_TRUNC | O_WRONLY, 0600);

	CU_ASSERT_FATAL(fd >= 0);
	CU_ASSERT_EQUAL(write(fd, bytes, size), (ssize_t)size);
	close(fd);
	free(bytes);
}

static void check_copies(const char *path, unsigned n, bool valgrind, uint64_t *events)
{
	char copy[4200];
	struct trace_reader *r;
	struct trace_error err;

	snprintf(copy, sizeof(copy), "%s.copy", path);
	for (unsigned i = 0; i < n; i++) {
		allow_more(valgrind);
		copy_file(path, copy);
		CU_ASSERT_EQUAL_FATAL(trace_reader_open(copy, &r, &err), 0);
		CU_ASSERT_EQUAL(trace_reader_num_problems(r), 0);
		check_snapshot(r, false, 0, events);
		trace_reader_close(r);
	}
	unlink(copy);
}

static void test_a_hundred_snapshots_under_load_are_whole_and_in_order(void)
{
	static const unsigned lcores[LCORES] = {0, 2};
	pthread_t threads[LCORES];
	struct trace_reader *r;
	struct trace_error err = {{0}};
	uint64_t live_events = 0, copied_events = 0;
	bool valgrind = getenv("VARVE_VALGRIND") != NULL;
	char path[4096];

	fixture_start(ENTRIES);
	trace_thread_detach();
	snprintf(path, sizeof(path), "%s", trace_file_path());
	atomic_store(&stop, false);
	atomic_store(&writing, 0);
	atomic_store(&allowed, 0);
	for (unsigned i = 0; i < LCORES; i++) {
		CU_ASSERT_EQUAL_FATAL(
			pthread_create(&threads[i], NULL, record_at_full_rate, (void *)(uintptr_t)lcores[i]), 0);
	}
	CU_ASSERT_EQUAL_FATAL(trace_reader_open(path, &r, &err), 0);
	CU_ASSERT_EQUAL(trace_reader_num_problems(r), 0);
	CU_ASSERT_EQUAL(trace_reader_writer(r), TRACE_WRITER_LIVE);
	while (atomic_load(&writing) < LCORES) {
		sched_yield();
	}
	unsigned snapshots = valgrind ? SNAPSHOTS / 10 : SNAPSHOTS;
	for (unsigned i = 0; i < snapshots; i++) {
		allow_more(valgrind);
		check_snapshot(r, true, 0, &live_events);
		check_snapshot(r, true, ENTRIES / 4, &live_events);
	}
	check_copies(path, snapshots / 4, valgrind, &copied_events);
	atomic_store(&stop, true);
	for (unsigned i = 0; i < LCORES; i++) {
		pthread_join(threads[i], NULL);
	}
	CU_ASSERT(live_events > 0);
	CU_ASSERT(copied_events > 0);
	printf("  %.0f events a snapshot, %.0f a copy\n", (double)live_events / snapshots,
	       (double)copied_events / (snapshots / 4));
	trace_reader_close(r);
	fixture_stop();
}

/* ---- Following ---- */

static void test_following_under_load_loses_nothing_that_it_does_not_count(void)
{
	pthread_t thread;
	struct trace_reader *r;
	struct trace_follow *f;
	struct trace_error err;
	const struct trace_batch *b;
	uint64_t events = 0, last_tsc = 0, unordered = 0, disagree = 0;
	size_t n;

	fixture_start(ENTRIES);
	trace_thread_detach();
	CU_ASSERT_EQUAL_FATAL(trace_reader_open(trace_file_path(), &r, &err), 0);
	CU_ASSERT_EQUAL_FATAL(trace_follow_start(r, TRACE_ALL_LCORES, false, &f, &err), 0);
	atomic_store(&stop, false);
	atomic_store(&allowed, UINT64_MAX);
	CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, record_at_full_rate, (void *)(uintptr_t)2), 0);
	time_t deadline = time(NULL) + DEADLINE_S;
	for (bool last = false; !last;) {
		last = events > ENOUGH_FOLLOWED || time(NULL) > deadline;
		if (last) {
			atomic_store(&stop, true);
			pthread_join(thread, NULL);
		}
		CU_ASSERT_EQUAL_FATAL(trace_follow_next(f, last, &b), 0);
		for (size_t i = 0; i < b->num_events; i++) {
			unordered += b->events[i].tsc < last_tsc;
			disagree += !event_agrees(r, b, &b->events[i]);
			last_tsc = b->events[i].tsc;
		}
		events += b->num_events;
	}
	CU_ASSERT(events > 0);
	CU_ASSERT_EQUAL(unordered, 0);
	CU_ASSERT_EQUAL(disagree, 0);
	const struct trace_lcore *lc = trace_follow_lcores(f, &n);
	for (size_t i = 0; i < n; i++) {
		CU_ASSERT(counters_add_up(&lc[i]));
		events -= lc[i].events;
	}
	CU_ASSERT_EQUAL(events, 0);
	trace_follow_stop(f);
	trace_reader_close(r);
	fixture_stop();
}

/* ---- After a kill ---- */

struct victim {
	atomic_uint_least64_t recorded; /* the last one that was certainly recorded */
	char path[4096];
	atomic_bool ready;
};

static void record_until_killed(struct victim *v)
{
	fixture_start(ENTRIES);
	snprintf(v->path, sizeof(v->path), "%s", trace_file_path());
	for (uint64_t seq = 1;; seq++) {
		record_agreeing(seq);
		atomic_store_explicit(&v->recorded, seq, memory_order_release);
		if (seq == 3 * ENTRIES) {
			atomic_store(&v->ready, true);
		}
	}
}

/* Of a ring's newest slots, the events that are whole within them are the last ones of all, and the rest is counted. */
static void check_newest(struct trace_reader *r, const struct trace_snapshot *all)
{
	enum { NEWEST = 4 * SLOTS_PER_EVENT };
	struct trace_snapshot *s;
	struct trace_error err;

	CU_ASSERT_EQUAL_FATAL(trace_snapshot_take_newest(r, NEWEST, &s, &err), 0);
	CU_ASSERT(s->batch.num_events >= 3 && s->batch.num_events <= 5);
	for (size_t i = 1; i <= s->batch.num_events; i++) {
		const struct trace_event *a = &s->batch.events[s->batch.num_events - i];
		CU_ASSERT_EQUAL(a->tsc, all->batch.events[all->batch.num_events - i].tsc);
	}
	CU_ASSERT_EQUAL(s->lcores[0].overwritten + s->lcores[0].skipped + NEWEST, s->lcores[0].written);
	CU_ASSERT(s->lcores[0].skipped > 0);
	trace_snapshot_free(s);
}

static void test_a_killed_writers_file_has_all_it_recorded(void)
{
	struct victim *v = mmap(NULL, sizeof(*v), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct trace_reader *r;
	struct trace_snapshot *s;
	struct trace_error err;
	int status;

	CU_ASSERT_FATAL(v != MAP_FAILED);
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		record_until_killed(v);
	}
	while (!atomic_load(&v->ready) && waitpid(pid, &status, WNOHANG) == 0) {
		sched_yield();
	}
	CU_ASSERT_FATAL(atomic_load(&v->ready));
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	CU_ASSERT_EQUAL_FATAL(trace_reader_open(v->path, &r, &err), 0);
	CU_ASSERT_EQUAL(trace_reader_writer(r), TRACE_WRITER_GONE);
	CU_ASSERT_EQUAL_FATAL(trace_snapshot_take(r, TRACE_ALL_LCORES, &s, &err), 0);
	CU_ASSERT_FATAL(s->batch.num_events >= ENTRIES / SLOTS_PER_EVENT - 1);
	const struct trace_event *last = &s->batch.events[s->batch.num_events - 1];
	uint64_t seq = trace_event_arg(&s->batch, last, trace_reader_tpoint(r, last->tpoint_id), 0).number;
	CU_ASSERT(seq >= atomic_load(&v->recorded));
	for (size_t i = 0; i < s->batch.num_events; i++) {
		CU_ASSERT(event_agrees(r, &s->batch, &s->batch.events[i]));
	}
	check_newest(r, s);
	trace_snapshot_free(s);
	trace_reader_close(r);
	unlink(v->path);
	munmap(v, sizeof(*v));
}

static const struct unit_test tests[] = {
	UNIT(test_a_hundred_snapshots_under_load_are_whole_and_in_order),
	UNIT(test_following_under_load_loses_nothing_that_it_does_not_count),
	UNIT(test_a_killed_writers_file_has_all_it_recorded),
	UNIT_END,
};
UNIT_MAIN("trace_reader_live", tests, fixture_setup, fixture_teardown)

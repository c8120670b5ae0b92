/* SPDX-License-Identifier: BSD-3-Clause */
/* A copy of the live file, made by read() while the writer records as fast as it can, yields whole events and nothing
 * else. The reader here is another process and knows only what trace_file.h says. */
#include <sys/mman.h>
#include <sys/wait.h>

#include "unittest/trace/fixture.h"

enum { COPIES = 300, DEADLINE_MS = 1500, PATIENCE_MS = 60000 };

/* In memory that both processes see. */
struct shared {
	bool done; /* atomic: the reader has finished */
	uint64_t copies;
	uint64_t accepted; /* slots */
	uint64_t dropped;
	uint64_t events;
	uint64_t torn;       /* accepted events whose arguments do not agree: must stay 0 */
	uint64_t unordered;  /* accepted events older than the one before: must stay 0 */
	uint64_t naive_torn; /* events that disagree and would have been taken without the stamps */
};

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Like cp: from the beginning to the end, in pieces. */
static void copy(int fd, uint8_t *to, size_t size, size_t piece)
{
	for (size_t at = 0; at < size;) {
		ssize_t n = pread(fd, to + at, size - at < piece ? size - at : piece, (off_t)at);
		if (n <= 0) {
			_exit(2);
		}
		at += (size_t)n;
	}
}

static bool agrees(const struct trace_file_entry *e, const struct trace_file_continuation *c)
{
	uint64_t seq, inverse, last;
	uint32_t low;

	memcpy(&seq, e->args, 8);
	memcpy(&inverse, c->args, 8);
	memcpy(&low, c->args + 8, 4);
	memcpy(&last, c->args + 12, 8);
	return e->tpoint_id == TRACE_TPOINT_TEST_AGREE && c->tpoint_id == TRACE_TPOINT_ID_CONTINUATION &&
	       e->object_id == 3 * seq && e->size == (uint32_t)seq && inverse == ~seq && low == (uint32_t)seq &&
	       last == seq + 1;
}

/* Slot s holds the whole of the entry that its stamp says. */
static bool whole(const struct trace_file_history *h, const uint64_t *stamps, uint64_t s)
{
	return stamps[s] != 0 && (((uint32_t)stamps[s] - 1) & (h->num_entries - 1)) == s &&
	       stamps[s] >> 32 == (uint32_t)h->entries[s].tsc;
}

static void check_event(const struct trace_file_history *h, const uint64_t *stamps, uint64_t s, uint64_t next,
			struct shared *r)
{
	const struct trace_file_entry *e = &h->entries[s];
	const struct trace_file_continuation *c = (const void *)&h->entries[next];

	if (e->tpoint_id == TRACE_TPOINT_ID_CONTINUATION) {
		return;
	}
	if (e->tsc != 0 && e->tsc == c->tsc && !agrees(e, c)) {
		r->naive_torn++;
	}
	if (!whole(h, stamps, s) || !whole(h, stamps, next) || (uint32_t)stamps[next] != (uint32_t)stamps[s] + 1) {
		return;
	}
	r->events++;
	r->torn += !agrees(e, c);
}

static void check_copy(const uint8_t *file, struct shared *r)
{
	const struct trace_file_history *h = fixture_history(file, 0);
	const uint64_t *stamps = fixture_stamps(file, 0);
	uint64_t mask = h->num_entries - 1;

	for (uint64_t s = 0; s < h->num_entries; s++) {
		uint64_t next = (s + 1) & mask;
		bool ok = whole(h, stamps, s);
		r->accepted += ok;
		r->dropped += !ok && stamps[s] != 0;
		check_event(h, stamps, s, next, r);
		/* Neighbouring slots with neighbouring numbers: time does not go back. */
		if (ok && whole(h, stamps, next) && (uint32_t)stamps[next] == (uint32_t)stamps[s] + 1) {
			r->unordered += h->entries[next].tsc < h->entries[s].tsc;
		}
	}
	r->copies++;
}

static void read_in_child(const char *path, size_t piece, struct shared *r)
{
	int fd = open(path, O_RDONLY);
	struct stat st;
	uint64_t deadline = now_ms() + DEADLINE_MS;

	if (fd < 0 || fstat(fd, &st) != 0) {
		_exit(2);
	}
	uint8_t *file = malloc((size_t)st.st_size);
	if (file == NULL) {
		_exit(2);
	}
	/* Until there was something in one, too: the writer may be slow to begin, and a copy of what is all being
	 * written over has nothing whole. */
	while ((r->copies < COPIES && now_ms() < deadline) || (r->events == 0 && now_ms() < deadline + PATIENCE_MS)) {
		copy(fd, file, (size_t)st.st_size, piece);
		check_copy(file, r);
	}
	_exit(0);
}

static void record_and_copy(uint32_t num_entries, size_t piece)
{
	struct shared *r = mmap(NULL, sizeof(*r), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char path[4096];
	int status = -1;

	CU_ASSERT_FATAL(r != MAP_FAILED);
	fixture_start(num_entries);
	snprintf(path, sizeof(path), "%s", trace_file_path());
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		read_in_child(path, piece, r);
	}
	CU_ASSERT_FATAL(pid > 0);
	for (uint64_t seq = 1; waitpid(pid, &status, WNOHANG) == 0;) {
		for (uint64_t end = seq + 100000; seq < end; seq++) {
			TRACE(TEST_AGREE, 0, (uint32_t)seq, 3 * seq, seq, ~seq, (uint32_t)seq, seq + 1);
		}
	}
	CU_ASSERT_EQUAL(status, 0);
	printf("%u entries, pieces of %zu: %lu copies, %lu slots accepted, %lu dropped, %lu events, %lu torn "
	       "ones kept "
	       "out\n",
	       num_entries, piece, r->copies, r->accepted, r->dropped, r->events, r->naive_torn);
	CU_ASSERT(r->copies > 0);
	CU_ASSERT(r->events > 0);
	CU_ASSERT_EQUAL(r->torn, 0);
	CU_ASSERT_EQUAL(r->unordered, 0);
	fixture_stop();
	munmap(r, sizeof(*r));
}

static void test_copy_of_a_small_live_ring_has_no_torn_event(void)
{
	record_and_copy(64, 1 << 17);
}

static void test_copy_of_a_live_ring_has_no_torn_event(void)
{
	record_and_copy(1024, 1 << 17);
}

static void test_copy_of_a_large_live_ring_has_no_torn_event(void)
{
	record_and_copy(32768, 1 << 17);
}

static void test_slow_copy_in_odd_pieces_has_no_torn_event(void)
{
	record_and_copy(1024, 333);
}

static const struct unit_test tests[] = {
	UNIT(test_copy_of_a_small_live_ring_has_no_torn_event),
	UNIT(test_copy_of_a_live_ring_has_no_torn_event),
	UNIT(test_copy_of_a_large_live_ring_has_no_torn_event),
	UNIT(test_slow_copy_in_odd_pieces_has_no_torn_event),
	UNIT_END,
};
UNIT_MAIN("trace_torn", tests, fixture_setup, fixture_teardown)

/* SPDX-License-Identifier: BSD-3-Clause */
/* Following a file that grows, and finding files in a directory. */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unittest/trace/reader_use.h"

/* ---- Following ---- */

struct following {
	struct craft c;
	struct trace_reader *r;
	struct trace_follow *f;
	const struct trace_batch *b;
};

static struct following follow_begin(unsigned lcores, unsigned entries, bool from_start)
{
	struct following w = {.c = craft_new(lcores, entries, true)};
	struct trace_error err;

	craft_owner(&w.c, 1, 50, "host a qid 1");
	craft_plain(&w.c, 0, 60);
	CU_ASSERT_EQUAL_FATAL(trace_reader_open_memory(w.c.bytes, w.c.size, &w.r, &err), 0);
	CU_ASSERT_EQUAL_FATAL(trace_follow_start(w.r, TRACE_ALL_LCORES, from_start, &w.f, &err), 0);
	return w;
}

static size_t follow_step(struct following *w, bool last)
{
	CU_ASSERT_EQUAL_FATAL(trace_follow_next(w->f, last, &w->b), 0);
	return w->b->num_events;
}

static void follow_end(struct following *w)
{
	trace_follow_stop(w->f);
	trace_reader_close(w->r);
	craft_free(&w->c);
}

static void test_following_gives_new_events_one_step_later(void)
{
	struct following w = follow_begin(1, 16, false);

	CU_ASSERT_EQUAL(follow_step(&w, false), 0);
	craft_plain(&w.c, 0, 100);
	craft_plain(&w.c, 0, 110);
	CU_ASSERT_EQUAL(follow_step(&w, false), 0);
	CU_ASSERT_EQUAL(follow_step(&w, false), 2);
	CU_ASSERT_EQUAL(w.b->events[0].tsc, 100);
	CU_ASSERT_EQUAL(follow_step(&w, false), 0);
	follow_end(&w);
}

static void test_following_from_the_start_gives_the_old_events_too(void)
{
	struct following w = follow_begin(1, 16, true);

	CU_ASSERT_EQUAL(follow_step(&w, true), 1);
	CU_ASSERT_EQUAL(w.b->events[0].tsc, 60);
	follow_end(&w);
}

/* Lcore 1 publishes an event a step later than lcore 0 does, though it is older. */
static void test_following_several_lcores_keeps_the_order(void)
{
	struct following w = follow_begin(2, 16, false);

	craft_plain(&w.c, 0, 100);
	craft_plain(&w.c, 0, 120);
	CU_ASSERT_EQUAL(follow_step(&w, false), 0);
	craft_plain(&w.c, 1, 110);
	craft_plain(&w.c, 1, 130);
	craft_io_start(&w.c, 0, 140, 0x2000, 0x1000);
	CU_ASSERT_EQUAL_FATAL(follow_step(&w, false), 3);
	CU_ASSERT_EQUAL(w.b->events[0].tsc, 100);
	CU_ASSERT_EQUAL(w.b->events[1].tsc, 110);
	CU_ASSERT_EQUAL(w.b->events[2].tsc, 120);
	CU_ASSERT_EQUAL_FATAL(follow_step(&w, true), 2);
	CU_ASSERT_EQUAL(w.b->events[0].tsc, 130);
	const struct trace_event *e = &w.b->events[1];
	CU_ASSERT_EQUAL(trace_event_arg(w.b, e, trace_reader_tpoint(w.r, e->tpoint_id), 1).number, 4096 + 140);
	follow_end(&w);
}

static void test_following_keeps_objects_and_owners_across_steps(void)
{
	struct following w = follow_begin(1, 16, false);

	craft_req(&w.c, 0, 100, CRAFT_REQ_NEW, 0x1000);
	follow_step(&w, false);
	craft_req(&w.c, 0, 140, CRAFT_REQ_DONE, 0x1000);
	follow_step(&w, false);
	CU_ASSERT_EQUAL_FATAL(follow_step(&w, true), 1);
	CU_ASSERT_EQUAL(w.b->events[0].object_index, 0);
	CU_ASSERT_EQUAL(w.b->events[0].object_start, 100);
	CU_ASSERT_EQUAL(w.b->events[0].state_ticks, 40);
	CU_ASSERT_STRING_EQUAL(trace_reader_owner(w.r, 1, 140), "host a qid 1");
	follow_end(&w);
}

static void test_following_counts_what_was_overwritten_between_steps(void)
{
	struct following w = follow_begin(1, 16, false);
	size_t n;

	craft_req(&w.c, 0, 100, CRAFT_REQ_NEW, 0x1000);
	follow_step(&w, false);
	for (uint64_t i = 0; i < 40; i++) {
		craft_plain(&w.c, 0, 200 + i);
	}
	craft_req(&w.c, 0, 300, CRAFT_REQ_DONE, 0x1000);
	CU_ASSERT_EQUAL(follow_step(&w, false), 1);
	CU_ASSERT(trace_follow_fill(w.f) > 100);
	CU_ASSERT_EQUAL(trace_follow_lcores(w.f, &n)->overwritten, 25);
	CU_ASSERT_EQUAL_FATAL(follow_step(&w, true), 16);
	CU_ASSERT_EQUAL(w.b->events[15].state_ticks, TRACE_NO_TIME); /* there was a hole */
	follow_end(&w);
}

static void test_following_with_skips_reads_the_newest_of_a_lapped_ring(void)
{
	struct following w = follow_begin(1, 16, false);
	size_t n;

	craft_req(&w.c, 0, 100, CRAFT_REQ_NEW, 0x1000);
	follow_step(&w, false);
	trace_follow_skip(w.f, true);
	for (uint64_t i = 0; i < 16; i++) { /* full, and not lapped */
		craft_plain(&w.c, 0, 200 + i);
	}
	CU_ASSERT_EQUAL(follow_step(&w, false), 1);
	CU_ASSERT_EQUAL(follow_step(&w, false), 16);
	CU_ASSERT_EQUAL(trace_follow_lcores(w.f, &n)->skipped, 0);
	for (uint64_t i = 0; i < 20; i++) {
		craft_plain(&w.c, 0, 300 + i);
	}
	craft_req(&w.c, 0, 400, CRAFT_REQ_DONE, 0x1000);
	CU_ASSERT_EQUAL(follow_step(&w, false), 0);
	CU_ASSERT_EQUAL(trace_follow_lcores(w.f, &n)->overwritten, 5);
	CU_ASSERT_EQUAL(trace_follow_lcores(w.f, &n)->skipped, 14);
	CU_ASSERT_EQUAL_FATAL(follow_step(&w, true), 2);
	CU_ASSERT_EQUAL(w.b->events[0].tsc, 319);
	CU_ASSERT_EQUAL(w.b->events[1].tsc, 400);
	CU_ASSERT_EQUAL(w.b->events[1].state_ticks, TRACE_NO_TIME); /* there was a hole */
	follow_end(&w);
}

static void test_following_a_file_whose_index_went_back_ends(void)
{
	struct following w = follow_begin(1, 16, false);

	craft_plain(&w.c, 0, 100);
	follow_step(&w, false);
	craft_history(&w.c, 0)->next_entry = 0;
	CU_ASSERT_EQUAL(trace_follow_next(w.f, false, &w.b), -ESTALE);
	follow_end(&w);
}

static void test_long_following_does_not_grow(void)
{
	struct following w = follow_begin(2, 64, false);
	size_t sum = 0;

	for (uint64_t i = 0; i < 2000; i++) {
		craft_io_start(&w.c, i % 2, 100 + i, 0x2000 + i % 5 * 64, 0x1000);
		sum += follow_step(&w, false);
		CU_ASSERT(w.b->num_arg_bytes <= 3 * 44);
	}
	sum += follow_step(&w, true);
	CU_ASSERT_EQUAL(sum, 2000);
	follow_end(&w);
}

/* ---- Files ---- */

static char dir[] = "/tmp/unit_trace_reader_XXXXXX";

static int make_dir(void)
{
	return mkdtemp(dir) == NULL ? -1 : 0;
}

static int remove_dir(void)
{
	return rmdir(dir);
}

/* Writes a crafted file; the path is static. */
static const char *file_write(const char *name, bool ours, time_t mtime)
{
	static char path[128];
	struct craft c = craft_sample(ours);
	struct timespec times[2] = {{.tv_sec = mtime}, {.tv_sec = mtime}};

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
	CU_ASSERT_FATAL(fd >= 0);
	CU_ASSERT_EQUAL(write(fd, c.bytes, c.size), (ssize_t)c.size);
	futimens(fd, times);
	close(fd);
	craft_free(&c);
	return path;
}

static pid_t pid_that_is_gone(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	return pid;
}

static void files_unlink(const struct trace_found_file *files, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		unlink(files[i].path);
	}
}

static void test_files_are_found_newest_first_and_others_are_not(void)
{
	struct trace_found_file *files;
	size_t n;

	file_write("varve_trace.pid11", true, 1000);
	file_write("varve_trace.0", true, 3000);
	file_write("nvmf_trace.pid12", true, 2000);
	char other[128];
	snprintf(other, sizeof(other), "%s", file_write("varve_trace.pid11.copy", true, 4000));
	CU_ASSERT_EQUAL_FATAL(trace_files_find(dir, &files, &n), 0);
	CU_ASSERT_EQUAL_FATAL(n, 3);
	CU_ASSERT(strstr(files[0].path, "/varve_trace.0") != NULL);
	CU_ASSERT_EQUAL(files[0].pid, 0);
	CU_ASSERT_EQUAL(files[1].pid, 12);
	CU_ASSERT_EQUAL(files[2].pid, 11);
	unlink(other);
	files_unlink(files, n);
	free(files);
	CU_ASSERT_EQUAL(trace_files_find("/nonexistent", &files, &n), -ENOENT);
}

static void test_the_lock_tells_live_from_dead(void)
{
	struct trace_found_file *files;
	size_t n;
	const char *path = file_write("varve_trace.pid1", true, 1000); /* process 1 runs, but did not write this */
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	CU_ASSERT_EQUAL(flock(fd, LOCK_EX | LOCK_NB), 0);
	CU_ASSERT_EQUAL_FATAL(trace_files_find(dir, &files, &n), 0);
	CU_ASSERT_EQUAL(files[0].writer, TRACE_WRITER_LIVE);
	free(files);
	close(fd);
	CU_ASSERT_EQUAL_FATAL(trace_files_find(dir, &files, &n), 0);
	CU_ASSERT_EQUAL(files[0].writer, TRACE_WRITER_GONE);
	files_unlink(files, n);
	free(files);
}

static void test_a_stock_file_is_dead_only_if_its_process_is_gone(void)
{
	struct trace_found_file *files;
	char name[64];
	size_t n;

	file_write("nvmf_trace.pid1", false, 2000);
	snprintf(name, sizeof(name), "nvmf_trace.pid%d", (int)pid_that_is_gone());
	file_write(name, false, 1000);
	CU_ASSERT_EQUAL_FATAL(trace_files_find(dir, &files, &n), 0);
	CU_ASSERT_EQUAL_FATAL(n, 2);
	CU_ASSERT_EQUAL(files[0].writer, TRACE_WRITER_UNKNOWN);
	CU_ASSERT_EQUAL(files[1].writer, TRACE_WRITER_GONE);
	/* whoever follows such a file goes by the same */
	for (size_t i = 0; i < n; i++) {
		struct trace_reader *r;
		struct trace_error err;

		CU_ASSERT_EQUAL_FATAL(trace_reader_open(files[i].path, &r, &err), 0);
		CU_ASSERT_EQUAL(trace_file_writer(r, files[i].path), files[i].writer);
		CU_ASSERT_EQUAL(trace_file_writer(r, "nvmf.copy"), TRACE_WRITER_UNKNOWN);
		trace_reader_close(r);
	}
	files_unlink(files, n);
	free(files);
}

static void test_a_file_that_shrinks_is_an_error_and_no_crash(void)
{
	struct trace_reader *r;
	struct trace_snapshot *s;
	struct trace_error err;
	const char *path = file_write("varve_trace.pid1", true, 1000);

	CU_ASSERT_EQUAL_FATAL(trace_reader_open(path, &r, &err), 0);
	CU_ASSERT_EQUAL(truncate(path, 4096), 0);
	CU_ASSERT_EQUAL(trace_snapshot_take(r, TRACE_ALL_LCORES, &s, &err), -ENODATA);
	CU_ASSERT(strstr(err.text, "cannot be read") != NULL);
	trace_reader_close(r);
	unlink(path);
}

static const struct unit_test tests[] = {
	UNIT(test_following_gives_new_events_one_step_later),
	UNIT(test_following_from_the_start_gives_the_old_events_too),
	UNIT(test_following_several_lcores_keeps_the_order),
	UNIT(test_following_keeps_objects_and_owners_across_steps),
	UNIT(test_following_counts_what_was_overwritten_between_steps),
	UNIT(test_following_with_skips_reads_the_newest_of_a_lapped_ring),
	UNIT(test_following_a_file_whose_index_went_back_ends),
	UNIT(test_long_following_does_not_grow),
	UNIT(test_files_are_found_newest_first_and_others_are_not),
	UNIT(test_the_lock_tells_live_from_dead),
	UNIT(test_a_stock_file_is_dead_only_if_its_process_is_gone),
	UNIT(test_a_file_that_shrinks_is_an_error_and_no_crash),
	UNIT_END,
};
UNIT_MAIN("trace_reader_follow", tests, make_dir, remove_dir)

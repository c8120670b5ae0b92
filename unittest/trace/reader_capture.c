/* SPDX-License-Identifier: BSD-3-Clause */
/* Files written event by event: what goes in comes out, full rings overwrite, and losses are in the file. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "trace/file_writer.h"
#include "unittest/trace/reader_use.h"

static char path[64];
static struct trace_file_tables tables;

static struct craft sample(void)
{
	struct craft c = craft_new(2, 1024, true);

	craft_owner(&c, 1, 50, "host a qid 1");
	craft_plain(&c, 1, 100);
	craft_req(&c, 0, 110, CRAFT_REQ_NEW, 0x1000);
	craft_io_start(&c, 1, 130, 0x2000, 0x1000);
	craft_child(&c, 1, 140, CRAFT_CMD, 0x3000, 0x2000);
	craft_child(&c, 1, 170, CRAFT_IO_DONE, 0x2000, 0x1000);
	craft_req(&c, 0, 180, CRAFT_REQ_DONE, 0x1000);
	return c;
}

/* The tables of a crafted file, as a capture of it would take them over. */
static void tables_from(const struct craft *c, uint64_t num_entries)
{
	struct opened o = open_craft(c);

	trace_file_tables_copy(o.r, &tables);
	tables.num_entries = num_entries;
	close_opened(&o);
	snprintf(path, sizeof(path), "/tmp/varve-unit-capture.%d", (int)getpid());
	unlink(path);
}

static struct opened reopen(void)
{
	struct opened o = {0};
	struct trace_error err = {{0}};

	CU_ASSERT_EQUAL_FATAL(trace_reader_open(path, &o.r, &err), 0);
	CU_ASSERT_EQUAL_FATAL(trace_snapshot_take(o.r, TRACE_ALL_LCORES, &o.s, &err), 0);
	unlink(path);
	return o;
}

static int copy_event(struct trace_file_writer *w, const struct opened *o, const struct trace_event *e)
{
	struct trace_file_entry head = {.tsc = e->tsc,
					.tpoint_id = e->tpoint_id,
					.owner_id = e->owner_id,
					.size = e->size,
					.object_id = e->object_id};

	return trace_file_put(w, e->lcore, &head, o->s->batch.arg_bytes + e->args,
			      trace_reader_tpoint(o->r, e->tpoint_id)->arg_bytes);
}

static void test_a_copy_event_by_event_is_the_same_trace(void)
{
	struct craft c = sample();
	struct trace_file_writer *w;

	tables_from(&c, 64);
	struct opened o = open_craft(&c);
	CU_ASSERT_EQUAL_FATAL(trace_file_create(path, &tables, &w), 0);
	CU_ASSERT_EQUAL(trace_file_owner(w, 1, 50, 5, "host a qid 1"), 0);
	for (size_t i = 0; i < o.s->batch.num_events; i++) {
		CU_ASSERT_EQUAL(copy_event(w, &o, &o.s->batch.events[i]), 0);
	}
	CU_ASSERT_EQUAL(trace_file_close(w), 0);
	struct opened copy = reopen();
	CU_ASSERT_EQUAL(trace_reader_num_problems(copy.r), 0);
	CU_ASSERT_EQUAL_FATAL(copy.s->batch.num_events, o.s->batch.num_events);
	for (size_t i = 0; i < o.s->batch.num_events; i++) {
		CU_ASSERT(same_event(&copy.s->batch.events[i], &o.s->batch.events[i]));
	}
	CU_ASSERT_STRING_EQUAL(trace_reader_owner(copy.r, 1, 50), "host a qid 1");
	CU_ASSERT_EQUAL(trace_reader_object_prefix(copy.r, 3), 'i');
	close_opened(&copy);
	close_opened(&o);
	craft_free(&c);
}

static void test_a_full_ring_keeps_the_newest(void)
{
	struct craft c = sample();
	struct trace_file_writer *w;

	tables_from(&c, 4096);
	CU_ASSERT_EQUAL_FATAL(trace_file_create(path, &tables, &w), 0);
	for (uint64_t i = 0; i < 10000; i++) {
		struct trace_file_entry e = {.tsc = 1000 + i, .tpoint_id = CRAFT_PLAIN, .size = (uint32_t)i};
		trace_file_put(w, 1, &e, NULL, 0);
	}
	CU_ASSERT_EQUAL(trace_file_bytes(w), 320000);
	CU_ASSERT_EQUAL(trace_file_close(w), 0);
	struct opened o = reopen();
	size_t n = o.s->batch.num_events;
	/* A file without stamps: the reader leaves the oldest slots, one event's worth, to a writer that might be
	 * there. */
	CU_ASSERT_FATAL(n >= 4096 - TRACE_FILE_MAX_SLOTS && n <= 4096);
	CU_ASSERT_EQUAL(o.s->batch.events[n - 1].size, 9999);
	CU_ASSERT_EQUAL(o.s->batch.events[0].size, 10000 - n);
	CU_ASSERT_EQUAL(o.s->num_lcores, 1); /* nothing was recorded on lcore 0 */
	CU_ASSERT_EQUAL(o.s->lcores[0].overwritten, 10000 - 4096);
	close_opened(&o);
	craft_free(&c);
}

static void test_losses_are_in_the_file_and_states_across_them_unknown(void)
{
	struct craft c = sample();
	struct trace_file_writer *w;
	struct trace_file_entry new = {.tsc = 100, .tpoint_id = CRAFT_REQ_NEW, .object_id = 0x1000},
				done = {.tsc = 200, .tpoint_id = CRAFT_REQ_DONE, .object_id = 0x1000};

	tables_from(&c, 64);
	CU_ASSERT_EQUAL_FATAL(trace_file_create(path, &tables, &w), 0);
	trace_file_put(w, 0, &new, NULL, 0);
	CU_ASSERT_EQUAL(trace_file_lost(w, 0, 150, 1234), 0);
	trace_file_put(w, 0, &done, NULL, 0);
	CU_ASSERT_EQUAL(trace_file_close(w), 0);
	struct opened o = reopen();
	CU_ASSERT_EQUAL_FATAL(o.s->batch.num_events, 3);
	CU_ASSERT_EQUAL(o.s->lcores[0].missed, 1234);
	CU_ASSERT(trace_reader_tpoint(o.r, o.s->batch.events[1].tpoint_id)->lost_mark);
	CU_ASSERT_EQUAL(o.s->batch.events[2].state_ticks, TRACE_NO_TIME);
	close_opened(&o);
	craft_free(&c);
}

/* Three rings with some entries each, flushed but not closed. The size of an event tells its place. */
static struct trace_file_writer *three_rings(const char *at, uint64_t entries)
{
	struct trace_file_writer *w;

	tables.num_rings = 3;
	CU_ASSERT_EQUAL_FATAL(trace_file_create(at, &tables, &w), 0);
	for (uint64_t i = 0; i < 3 * entries; i++) {
		struct trace_file_entry e = {.tsc = 1000 + i, .tpoint_id = CRAFT_PLAIN, .size = (uint32_t)i};
		trace_file_put(w, (unsigned)(i % 3), &e, NULL, 0);
	}
	CU_ASSERT_EQUAL(trace_file_flush(w), 0);
	return w;
}

static void expect_three_rings(struct trace_reader *r, size_t entries)
{
	struct trace_error err = {{0}};
	struct trace_snapshot *s;

	CU_ASSERT_EQUAL_FATAL(trace_snapshot_take(r, TRACE_ALL_LCORES, &s, &err), 0);
	CU_ASSERT_EQUAL_FATAL(s->batch.num_events, 3 * entries);
	for (size_t i = 0; i < 3 * entries; i++) {
		const struct trace_event *e = &s->batch.events[i];
		CU_ASSERT(e->tsc == 1000 + i && e->size == i && e->lcore == i % 3);
	}
	trace_snapshot_free(s);
}

static void expect_file_of_three_rings(const char *at, size_t entries)
{
	struct trace_error err = {{0}};
	struct trace_reader *r;

	CU_ASSERT_EQUAL_FATAL(trace_reader_open(at, &r, &err), 0);
	expect_three_rings(r, entries);
	trace_reader_close(r);
}

static void test_a_reader_keeps_the_events_while_the_file_becomes_small(void)
{
	struct craft c = sample();
	struct trace_error err = {{0}};
	struct trace_reader *r;
	struct stat before, after;

	tables_from(&c, 65536);
	struct trace_file_writer *w = three_rings(path, 100);
	CU_ASSERT_EQUAL_FATAL(trace_reader_open(path, &r, &err), 0);
	stat(path, &before);
	CU_ASSERT_EQUAL(trace_file_close(w), 0);
	expect_three_rings(r, 100);
	trace_reader_close(r);
	expect_file_of_three_rings(path, 100);
	CU_ASSERT_EQUAL(stat(path, &after), 0);
	CU_ASSERT(after.st_size < before.st_size / 2);
	CU_ASSERT(after.st_blocks * 512 < after.st_size / 2); /* holes stay holes */
	CU_ASSERT_EQUAL(after.st_mode & 0777, 0600);
	unlink(path);
	craft_free(&c);
}

/* Takes what is free in a file system but for some bytes. */
static void leave_free(const char *dir, uint64_t bytes)
{
	struct statvfs fs;
	char name[96];

	snprintf(name, sizeof(name), "%s/ballast", dir);
	int fd = open(name, O_WRONLY | O_CREAT, 0600);
	CU_ASSERT_EQUAL_FATAL(statvfs(dir, &fs), 0);
	CU_ASSERT_EQUAL(posix_fallocate(fd, 0, (off_t)(fs.f_bavail * fs.f_bsize - bytes)), 0);
	close(fd);
}

static unsigned files_in(const char *dir)
{
	struct dirent **names;
	int n = scandir(dir, &names, NULL, NULL);

	for (int i = 0; i < n; i++) {
		free(names[i]);
	}
	free(names);
	return (unsigned)n - 2; /* . and .. */
}

static void test_a_file_stays_whole_without_room_to_make_it_small(void)
{
	struct craft c = sample();
	char dir[64], file[96];

	tables_from(&c, 65536);
	snprintf(dir, sizeof(dir), "/tmp/varve-unit-capture-small.%d", (int)getpid());
	snprintf(file, sizeof(file), "%s/file", dir);
	mkdir(dir, 0700);
	if (mount("tmpfs", dir, "tmpfs", 0, "size=4m") != 0) {
		rmdir(dir);
		craft_free(&c);
		UNIT_SKIP("a file system cannot be mounted here");
	}
	struct trace_file_writer *w = three_rings(file, 1000);
	leave_free(dir, 65536);
	CU_ASSERT_EQUAL(trace_file_close(w), 0);
	expect_file_of_three_rings(file, 1000);
	CU_ASSERT_EQUAL(files_in(dir), 2); /* and the ballast */
	CU_ASSERT_EQUAL(umount(dir), 0);
	CU_ASSERT_EQUAL(rmdir(dir), 0);
	craft_free(&c);
}

static void test_a_file_that_others_have_moved_stays_there(void)
{
	struct craft c = sample();
	char moved[96];

	tables_from(&c, 65536);
	snprintf(moved, sizeof(moved), "%s.moved", path);
	struct trace_file_writer *w = three_rings(path, 100);
	CU_ASSERT_EQUAL(rename(path, moved), 0);
	CU_ASSERT_EQUAL(trace_file_close(w), 0);
	expect_file_of_three_rings(moved, 100);
	CU_ASSERT_EQUAL(access(path, F_OK), -1);
	unlink(moved);
	craft_free(&c);
}

static void test_wrong_tables_and_existing_files_are_refused(void)
{
	struct craft c = sample();
	struct trace_file_writer *w;

	tables_from(&c, 63);
	CU_ASSERT_EQUAL(trace_file_create(path, &tables, &w), -EINVAL);
	tables.num_entries = 64;
	CU_ASSERT_EQUAL_FATAL(trace_file_create(path, &tables, &w), 0);
	trace_file_close(w);
	CU_ASSERT_EQUAL(trace_file_create(path, &tables, &w), -EEXIST);
	unlink(path);
	craft_free(&c);
}

static const struct unit_test tests[] = {
	UNIT(test_a_copy_event_by_event_is_the_same_trace),
	UNIT(test_a_full_ring_keeps_the_newest),
	UNIT(test_losses_are_in_the_file_and_states_across_them_unknown),
	UNIT(test_a_reader_keeps_the_events_while_the_file_becomes_small),
	UNIT(test_a_file_stays_whole_without_room_to_make_it_small),
	UNIT(test_a_file_that_others_have_moved_stays_there),
	UNIT(test_wrong_tables_and_existing_files_are_refused),
	UNIT_END,
};
UNIT_MAIN("trace_reader_capture", tests, NULL, NULL)

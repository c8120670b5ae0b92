/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies with a cause in them. */
#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <sys/stat.h>

#include "trace/reader.h"
#include "unittest/trace/fixture.h"

static char path[4200], error[TRACE_ERROR_MAX];

static struct trace_file_cause a_cause(uint64_t object, uint64_t start)
{
	struct trace_file_cause c = {.lcore = -1,
				     .object_type = TRACE_OBJECT_TEST,
				     .object_id = object,
				     .object_start_tsc = start,
				     .tsc = UINT64_MAX / 2,
				     .trigger = "slow",
				     .type = "request_age",
				     .text = "it took too long"};
	return c;
}

static void begin(const struct trace_file_cause *cause, struct trace_copy **copy)
{
	snprintf(path, sizeof(path), "%s/copy", fixture_dir);
	CU_ASSERT_EQUAL_FATAL(trace_copy_begin(path, cause, copy, error), 0);
}

static unsigned files_in_dir(void)
{
	DIR *d = opendir(fixture_dir);
	unsigned n = 0;

	CU_ASSERT_PTR_NOT_NULL_FATAL(d);
	while (readdir(d) != NULL) {
		n++;
	}
	closedir(d);
	return n - 2;
}

/* Two lives of one address: only the second is to blame. */
static uint64_t record_two_lives(uint64_t object)
{
	TRACE(TEST_NONE, 0, 0, object);
	TRACE(TEST_ONE, 0, 0, object, 2);
	uint64_t start = ticks_now();
	TRACE(TEST_NONE, 0, 0, object);
	TRACE(TEST_NONE, 0, 0, object + 8);
	TRACE(TEST_ONE, 0, 0, object, 5);
	return start;
}

static void test_a_copy_has_the_events_and_the_cause(void)
{
	struct trace_copy *copy;
	struct trace_error err;
	struct trace_reader *r;
	struct trace_snapshot *s;
	unsigned marked = 0;
	int rc;

	fixture_start(64);
	struct trace_file_cause cause = a_cause(0x1000, record_two_lives(0x1000));
	begin(&cause, &copy);
	while ((rc = trace_copy_step(copy, 10000, error)) == 1) {
		CU_ASSERT_NOT_EQUAL(access(path, F_OK), 0); /* not before it is whole */
	}
	CU_ASSERT_EQUAL_FATAL(rc, 0);
	CU_ASSERT_EQUAL(files_in_dir(), 2);
	CU_ASSERT_EQUAL_FATAL(trace_reader_open(path, &r, &err), 0);
	CU_ASSERT_EQUAL_FATAL(trace_snapshot_take(r, TRACE_ALL_LCORES, &s, &err), 0);
	CU_ASSERT_EQUAL(trace_reader_num_problems(r), 0);
	const struct trace_file_cause *got = trace_reader_cause(r);
	CU_ASSERT_PTR_NOT_NULL_FATAL(got);
	CU_ASSERT_STRING_EQUAL(got->trigger, "slow");
	CU_ASSERT_STRING_EQUAL(got->text, "it took too long");
	CU_ASSERT_EQUAL(s->batch.num_events, 5);
	for (size_t i = 0; i < s->batch.num_events; i++) {
		marked += trace_event_is_culprit(r, &s->batch.events[i]);
	}
	CU_ASSERT_EQUAL(marked, 2);
	trace_snapshot_free(s);
	trace_reader_close(r);
	unlink(path);
	fixture_stop();
}

static mode_t mode_of_copy(const char *group)
{
	struct trace_opts opts = fixture_opts(64);
	struct trace_file_cause cause = a_cause(0x1000, 0);
	struct trace_copy *copy;
	struct stat st = {0};

	opts.group = group;
	CU_ASSERT_EQUAL_FATAL(trace_start(&opts, error), 0);
	begin(&cause, &copy);
	while (trace_copy_step(copy, 1 << 20, error) == 1) {
	}
	CU_ASSERT_EQUAL(stat(path, &st), 0);
	unlink(path);
	fixture_stop();
	return st.st_mode & 0777;
}

static void test_who_may_read_the_file_may_read_its_copy(void)
{
	struct group *g = getgrgid(getgid());
	mode_t old = umask(0);

	CU_ASSERT_EQUAL(mode_of_copy(NULL), 0600);
	CU_ASSERT_PTR_NOT_NULL_FATAL(g);
	CU_ASSERT_EQUAL(mode_of_copy(g->gr_name), 0640);
	umask(old);
}

static void test_the_live_file_has_no_cause(void)
{
	struct trace_error err;
	struct trace_reader *r;

	fixture_start(64);
	CU_ASSERT_EQUAL_FATAL(trace_reader_open(trace_file_path(), &r, &err), 0);
	CU_ASSERT_PTR_NULL(trace_reader_cause(r));
	CU_ASSERT_EQUAL(trace_reader_num_problems(r), 0);
	trace_reader_close(r);
	fixture_stop();
}

static void test_the_first_seven_sections_are_where_a_stock_reader_looks(void)
{
	struct trace_file_cause cause = a_cause(1, 0);
	struct trace_copy *copy;
	size_t live_size, size;

	fixture_start(64);
	begin(&cause, &copy);
	while (trace_copy_step(copy, 1 << 20, error) == 1) {
	}
	uint8_t *live = fixture_read(trace_file_path(), &live_size), *bytes = fixture_read(path, &size);
	const struct trace_file_header *h = (const void *)bytes, *l = (const void *)live;
	CU_ASSERT_EQUAL(h->file_size, size);
	CU_ASSERT_EQUAL(size, live_size + sizeof(struct trace_file_cause));
	CU_ASSERT_EQUAL(h->num_sections, l->num_sections);
	CU_ASSERT_EQUAL(memcmp(h->section_offset, l->section_offset, TRACE_SECTION_CAUSE * sizeof(uint64_t)), 0);
	CU_ASSERT_EQUAL(h->section_offset[TRACE_SECTION_CAUSE], live_size);
	free(live);
	free(bytes);
	unlink(path);
	fixture_stop();
}

static void test_a_damaged_cause_is_left_out_and_texts_have_an_end(void)
{
	struct trace_file_cause cause = a_cause(1, 0);
	struct trace_copy *copy;
	struct trace_error err;
	struct trace_reader *r;
	size_t size;

	fixture_start(64);
	begin(&cause, &copy);
	while (trace_copy_step(copy, 1 << 20, error) == 1) {
	}
	uint8_t *bytes = fixture_read(path, &size);
	struct trace_file_cause *c = (void *)(bytes + size - sizeof(*c));
	memset(c->text, 'x', sizeof(c->text));
	memset(c->trigger, 'y', sizeof(c->trigger));
	CU_ASSERT_EQUAL_FATAL(trace_reader_open_memory(bytes, size, &r, &err), 0);
	CU_ASSERT_EQUAL(strlen(trace_reader_cause(r)->text), sizeof(c->text) - 1);
	CU_ASSERT_EQUAL(strlen(trace_reader_cause(r)->trigger), sizeof(c->trigger) - 1);
	trace_reader_close(r);
	CU_ASSERT_EQUAL_FATAL(trace_reader_open_memory(bytes, size - 1, &r, &err), 0);
	CU_ASSERT_PTR_NULL(trace_reader_cause(r));
	CU_ASSERT(trace_reader_num_problems(r) > 0);
	trace_reader_close(r);
	c->version = 0;
	CU_ASSERT_EQUAL_FATAL(trace_reader_open_memory(bytes, size, &r, &err), 0);
	CU_ASSERT_PTR_NULL(trace_reader_cause(r));
	trace_reader_close(r);
	free(bytes);
	unlink(path);
	fixture_stop();
}

static void test_an_abandoned_copy_leaves_nothing(void)
{
	struct trace_file_cause cause = a_cause(1, 0);
	struct trace_copy *copy;

	fixture_start(64);
	begin(&cause, &copy);
	CU_ASSERT_EQUAL(trace_copy_step(copy, 100, error), 1);
	CU_ASSERT_EQUAL(files_in_dir(), 2);
	trace_copy_abandon(copy);
	CU_ASSERT_EQUAL(files_in_dir(), 1);
	fixture_stop();
}

static void test_what_cannot_be_written_says_why(void)
{
	struct trace_file_cause cause = a_cause(1, 0);
	struct trace_copy *copy;

	CU_ASSERT_EQUAL(trace_copy_begin("/no/such/dir/copy", &cause, &copy, error), -ENODEV);
	CU_ASSERT_EQUAL(trace_copy_size(), 0);
	fixture_start(64);
	CU_ASSERT_EQUAL(trace_copy_begin("/no/such/dir/copy", &cause, &copy, error), -ENOENT);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "/no/such/dir/copy"));
	fixture_stop();
}

enum { KEPT_RING = 64, CULPRIT = 0x1000, CHILD = 0x2000, OTHER = 0x3000 };
#define QPAIR ((void *)0x7)

static void fill_ring(unsigned rings)
{
	for (unsigned i = 0; i < rings * KEPT_RING; i++) {
		TRACE(RDMA_REQ_EXECUTED, 0, 0, OTHER, QPAIR);
	}
}

/* The culprit, its child and another request, as they begin; returns the culprit's start. */
static uint64_t record_culprit(void)
{
	TRACE(RDMA_REQ_NEW, 0, 0, CULPRIT, QPAIR, 1); /* an older life */
	TRACE(RDMA_REQ_COMPLETED, 0, 0, CULPRIT, QPAIR, 1);
	uint64_t start = ticks_now();
	TRACE(RDMA_REQ_NEW, 0, 0, CULPRIT, QPAIR, 1);
	TRACE(RDMA_REQ_NEW, 0, 0, OTHER, QPAIR, 2);
	TRACE(RDMA_REQ_EXECUTING, 0, 0, CULPRIT, QPAIR);
	TRACE(BDEV_IO_START, 0, 8, CHILD, 1, (void *)CULPRIT, 100, 1);
	return start;
}

static struct trace_snapshot *copy_and_read(uint64_t start, struct trace_reader **r)
{
	struct trace_file_cause cause = a_cause(CULPRIT, start);
	struct trace_copy *copy;
	struct trace_error err;
	struct trace_snapshot *s;
	int rc;

	cause.object_type = TRACE_OBJECT_NVMF_RDMA_IO;
	begin(&cause, &copy);
	while ((rc = trace_copy_step(copy, 100000, error)) == 1) {
	}
	CU_ASSERT_EQUAL_FATAL(rc, 0);
	CU_ASSERT_EQUAL_FATAL(trace_reader_open(path, r, &err), 0);
	CU_ASSERT_EQUAL(trace_reader_num_problems(*r), 0);
	CU_ASSERT_EQUAL_FATAL(trace_snapshot_take(*r, TRACE_ALL_LCORES, &s, &err), 0);
	unlink(path);
	return s;
}

static unsigned count_events(const struct trace_snapshot *s, unsigned tpoint, uint64_t object)
{
	unsigned n = 0;

	for (size_t i = 0; i < s->batch.num_events; i++) {
		const struct trace_event *e = &s->batch.events[i];
		n += e->tpoint_id == tpoint && e->object_id == object;
		CU_ASSERT(i == 0 || e->tsc >= e[-1].tsc);
	}
	return n;
}

static void check_culprit(uint64_t start, unsigned lcores)
{
	struct trace_reader *r;
	struct trace_snapshot *s = copy_and_read(start, &r);

	CU_ASSERT_EQUAL(count_events(s, TRACE_TPOINT_RDMA_REQ_NEW, CULPRIT), 1);
	CU_ASSERT_EQUAL(count_events(s, TRACE_TPOINT_RDMA_REQ_NEW, OTHER), 0);
	CU_ASSERT_EQUAL(count_events(s, TRACE_TPOINT_RDMA_REQ_EXECUTING, CULPRIT), 1);
	CU_ASSERT_EQUAL(count_events(s, TRACE_TPOINT_BDEV_IO_START, CHILD), 1);
	CU_ASSERT_EQUAL(count_events(s, TRACE_TPOINT_BDEV_IO_DONE, CHILD), 1);
	for (size_t i = 0; i < s->batch.num_events; i++) {
		const struct trace_event *e = &s->batch.events[i];
		if (e->tpoint_id == TRACE_TPOINT_BDEV_IO_START && e->object_id == CHILD) {
			const struct trace_tpoint *t = trace_reader_tpoint(r, e->tpoint_id);
			CU_ASSERT_EQUAL(trace_event_arg(&s->batch, e, t, 2).number, 100);
			CU_ASSERT_EQUAL(e->related_type, TRACE_OBJECT_NVMF_RDMA_IO);
		}
	}
	CU_ASSERT_EQUAL(s->num_lcores, lcores);
	trace_snapshot_free(s);
	trace_reader_close(r);
}

static void test_events_that_were_kept_are_in_the_copy_though_the_ring_has_lost_them(void)
{
	fixture_start(KEPT_RING);
	uint64_t start = record_culprit();
	struct trace_keep_object culprit = {CULPRIT, start};
	trace_keep(&culprit, 1);
	fill_ring(3);
	trace_keep(&culprit, 1);
	TRACE(BDEV_IO_DONE, 0, 8, CHILD, (void *)CULPRIT, 0, 0);
	trace_keep(&culprit, 1);
	fill_ring(2);
	check_culprit(start, 5);
	trace_keep(NULL, 0);
	struct trace_reader *r;
	struct trace_snapshot *s = copy_and_read(start, &r);
	CU_ASSERT_EQUAL(count_events(s, TRACE_TPOINT_RDMA_REQ_NEW, CULPRIT), 0);
	CU_ASSERT_EQUAL(s->num_lcores, 4);
	trace_snapshot_free(s);
	trace_reader_close(r);
	fixture_stop();
}

/* What is in the copied ring is not there twice. */
static void test_the_kept_ring_has_only_what_the_others_have_not(void)
{
	struct trace_reader *r;

	fixture_start(KEPT_RING);
	uint64_t start = record_culprit();
	struct trace_keep_object culprit = {CULPRIT, start};
	trace_keep(&culprit, 1);
	TRACE(BDEV_IO_DONE, 0, 8, CHILD, (void *)CULPRIT, 0, 0);
	trace_keep(&culprit, 1);
	struct trace_snapshot *s = copy_and_read(start, &r);
	CU_ASSERT_EQUAL(count_events(s, TRACE_TPOINT_BDEV_IO_START, CHILD), 1);
	CU_ASSERT_EQUAL(count_events(s, TRACE_TPOINT_BDEV_IO_DONE, CHILD), 1);
	CU_ASSERT_EQUAL(s->num_lcores, 4);
	trace_snapshot_free(s);
	trace_reader_close(r);
	fill_ring(2);
	check_culprit(start, 5);
	fixture_stop();
}

/* An address is used again: what happens to the new object is not the culprit's doing. */
static void test_a_child_whose_address_is_used_again_is_no_child_any_more(void)
{
	struct trace_reader *r;

	fixture_start(KEPT_RING);
	struct trace_keep_object culprit = {CULPRIT, record_culprit()};
	TRACE(BDEV_IO_DONE, 0, 8, CHILD, (void *)CULPRIT, 0, 0);
	TRACE(BDEV_IO_START, 0, 8, CHILD, 1, (void *)OTHER, 200, 1);
	trace_keep(&culprit, 1);
	fill_ring(2);
	struct trace_snapshot *s = copy_and_read(culprit.start_tsc, &r);
	CU_ASSERT_EQUAL(count_events(s, TRACE_TPOINT_BDEV_IO_START, CHILD), 1);
	trace_snapshot_free(s);
	trace_reader_close(r);
	fixture_stop();
}

/* More objects than there is room for, and one with more events: the first ones are kept. */
static void test_what_is_kept_is_bounded(void)
{
	struct trace_keep_object many[TRACE_KEEP_OBJECTS + 4];
	struct trace_reader *r;

	fixture_start(1024);
	uint64_t start = record_culprit();
	for (size_t i = 0; i < TRACE_KEEP_OBJECTS + 4; i++) {
		many[i] = (struct trace_keep_object){CULPRIT + i, start};
	}
	for (unsigned i = 0; i < 400; i++) {
		TRACE(RDMA_REQ_EXECUTED, 0, 0, CULPRIT, QPAIR);
	}
	trace_keep(many, TRACE_KEEP_OBJECTS + 4);
	for (unsigned i = 0; i < 2048; i++) {
		TRACE(RDMA_REQ_EXECUTED, 0, 0, OTHER, QPAIR);
	}
	struct trace_snapshot *s = copy_and_read(start, &r);
	CU_ASSERT_EQUAL(count_events(s, TRACE_TPOINT_RDMA_REQ_NEW, CULPRIT), 1);
	unsigned n = count_events(s, TRACE_TPOINT_RDMA_REQ_EXECUTED, CULPRIT);
	CU_ASSERT(n > 50 && n < 128);
	trace_snapshot_free(s);
	trace_reader_close(r);
	fixture_stop();
}

static void test_the_time_that_rings_cover_is_known_once_something_is_recorded(void)
{
	CU_ASSERT_EQUAL(trace_ring_ticks(), UINT64_MAX);
	fixture_start(1024);
	CU_ASSERT_EQUAL(trace_ring_ticks(), UINT64_MAX);
	uint64_t before = ticks_now();
	for (unsigned i = 0; i < 4096; i++) {
		TRACE(RDMA_REQ_EXECUTED, 0, 0, OTHER, QPAIR);
	}
	CU_ASSERT(trace_ring_ticks() < ticks_now() - before);
	fixture_stop();
}

static const struct unit_test tests[] = {
	UNIT(test_events_that_were_kept_are_in_the_copy_though_the_ring_has_lost_them),
	UNIT(test_the_kept_ring_has_only_what_the_others_have_not),
	UNIT(test_a_child_whose_address_is_used_again_is_no_child_any_more),
	UNIT(test_what_is_kept_is_bounded),
	UNIT(test_the_time_that_rings_cover_is_known_once_something_is_recorded),
	UNIT(test_a_copy_has_the_events_and_the_cause),
	UNIT(test_who_may_read_the_file_may_read_its_copy),
	UNIT(test_the_live_file_has_no_cause),
	UNIT(test_the_first_seven_sections_are_where_a_stock_reader_looks),
	UNIT(test_a_damaged_cause_is_left_out_and_texts_have_an_end),
	UNIT(test_an_abandoned_copy_leaves_nothing),
	UNIT(test_what_cannot_be_written_says_why),
	UNIT_END,
};
UNIT_MAIN("trace_copy", tests, fixture_setup, fixture_teardown)

/* SPDX-License-Identifier: BSD-3-Clause */
/* The options io_path_stat and nvme_error_stat, with a namespace that two controllers share. */
#include <errno.h>
#include <jansson.h>

#include "bdev_modules/nvme/internal.h"
#include "unittest/bdev_modules/nvme_two.h"

static uint16_t read_one(struct user *u)
{
	return user_io(u, BDEV_IO_READ, other, 0, 1);
}

/* --- Tests --- */

struct path_counts {
	unsigned n;
	struct bdev_stat_ops class[2][BDEV_STAT_CLASSES];
};

static void collect_counts(void *arg, const struct nvme_trid *trid, const struct bdev_stat_ops class[BDEV_STAT_CLASSES])
{
	struct path_counts *c = arg;

	CU_ASSERT_FATAL(c->n < 2);
	CU_ASSERT_EQUAL(trid->traddr[strlen(trid->traddr) - 3], c->n == 0 ? '4' : '5');
	memcpy(c->class[c->n++], class, sizeof(c->class[0]));
}

static void check_counts(enum bdev_stat_class class, uint64_t first, uint64_t of_second)
{
	struct path_counts c = {0};
	const uint64_t wanted[] = {first, of_second};

	CU_ASSERT_EQUAL(bdev_nvme_for_each_path_stat(bdev_find("Nvme0n1"), collect_counts, &c), 0);
	CU_ASSERT_EQUAL_FATAL(c.n, 2);
	for (unsigned i = 0; i < 2; i++) {
		const struct bdev_stat_ops *s = &c.class[i][class];
		CU_ASSERT_EQUAL(s->ops, wanted[i]);
		CU_ASSERT_EQUAL(s->bytes, wanted[i] * 512);
		CU_ASSERT_EQUAL(s->ops != 0, s->min_ticks != UINT64_MAX);
		CU_ASSERT(s->ops == 0 || (s->min_ticks <= s->max_ticks && s->max_ticks <= s->ticks));
	}
}

static void begin_counted(struct user *u)
{
	struct bdev_nvme_attach a = path_opts();
	struct bdev_nvme_options o;

	begin_apart();
	bdev_nvme_get_options(&o);
	o.io_path_stat = o.nvme_error_stat = true;
	CU_ASSERT_EQUAL_FATAL(bdev_nvme_set_options(&o, last_error), 0);
	CU_ASSERT_EQUAL_FATAL(attach_first(a), 0);
	CU_ASSERT_EQUAL_FATAL(attach_second(a), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(u, "Nvme0n1", true, fixture_thread(0)), 0);
	wait_usable(2);
}

static void test_paths_count_what_they_have_carried_out(void)
{
	struct user u, more;

	begin_counted(&u);
	struct bdev *b = bdev_find("Nvme0n1");
	check_counts(BDEV_STAT_READ, 0, 0);
	CU_ASSERT_EQUAL(read_one(&u), 0);
	CU_ASSERT_EQUAL(read_one(&u), 0);
	check_counts(BDEV_STAT_READ, 2, 0);
	CU_ASSERT_EQUAL(bdev_nvme_set_preferred(b, 2, last_error), 0);
	CU_ASSERT_EQUAL(read_one(&u), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, other, 3, 1), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_UNMAP, NULL, 3, 1), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_FLUSH, NULL, 0, 0), 0);
	check_counts(BDEV_STAT_READ, 2, 1);
	check_counts(BDEV_STAT_WRITE, 0, 1);
	check_counts(BDEV_STAT_UNMAP, 0, 1);
	check_counts(BDEV_STAT_OTHER, 0, 0);
	/* another thread's count too, and stay when its channel is closed; a failed one does not */
	CU_ASSERT_EQUAL_FATAL(user_open(&more, "Nvme0n1", true, fixture_thread(1)), 0);
	wait_usable(4);
	CU_ASSERT_EQUAL(read_one(&more), 0);
	user_close(&more);
	check_counts(BDEV_STAT_READ, 2, 2);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_read], 2);
	CU_ASSERT_EQUAL(second.commands[nvme_cmd_read], 2);
	CU_ASSERT_EQUAL(bdev_nvme_set_preferred(b, 1, last_error), 0);
	set_fault(MODEL_FAULT_STATUS, nvme_cmd_read, 1, NVME_ST(MEDIA, READ_ERROR));
	CU_ASSERT_EQUAL(read_one(&u), NVME_ST(MEDIA, READ_ERROR));
	check_counts(BDEV_STAT_READ, 2, 2);
	user_close(&u);
	check_counts(BDEV_STAT_READ, 2, 2);
	end_two();
}

/* What driver_specific of bdev_get_iostat has. */
static void check_dump(const char *wanted)
{
	json_t *o = json_object();

	bdev_dump_stat(bdev_find("Nvme0n1"), o);
	char *text = json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS);
	CU_ASSERT_STRING_EQUAL(text, wanted);
	free(text);
	json_decref(o);
}

static void fail_one(struct user *u, uint16_t status)
{
	set_fault(MODEL_FAULT_STATUS, nvme_cmd_read, 1, status);
	CU_ASSERT_NOT_EQUAL(read_one(u), 0);
}

static void test_errors_are_counted_by_status(void)
{
	struct user u;

	begin_counted(&u);
	check_dump("{\"nvme_error\":{\"status_code\":{},\"status_type\":{}}}");
	fail_one(&u, NVME_ST(MEDIA, READ_ERROR));
	fail_one(&u, NVME_ST_DNR(MEDIA, READ_ERROR));
	fail_one(&u, NVME_ST_DNR(GENERIC, INVALID_FIELD));
	fail_one(&u, NVME_SC_DNR | 0x0c1); /* no name of their own: one sum */
	fail_one(&u, NVME_SC_DNR | 0x0c2);
	fail_one(&u, NVME_SC_DNR | 0x7c2); /* vendor specific: the type alone */
	set_fault(MODEL_FAULT_STATUS, nvme_cmd_read, 1, NVME_ST(PATH, CTRL_PATH_ERROR)); /* repeated, by the other */
	CU_ASSERT_EQUAL(read_one(&u), 0);
	check_dump("{\"nvme_error\":{\"status_code\":{\"controller_path_error\":1,\"generic\":2,\"invalid_field\":1,"
		   "\"unrecovered_read_error\":2},\"status_type\":{\"generic\":3,\"media_error\":2,\"path\":1,"
		   "\"vendor_specific\":1}}}");
	check_counts(BDEV_STAT_READ, 0, 1);
	bdev_reset_stat(bdev_find("Nvme0n1"), BDEV_STAT_RESET_MAXMIN);
	bdev_reset_stat(bdev_find("Nvme0n1"), BDEV_STAT_RESET_NONE);
	fail_one(&u, NVME_ST_DNR(GENERIC, LBA_RANGE));
	bdev_reset_stat(bdev_find("Nvme0n1"), BDEV_STAT_RESET_ERROR);
	fail_one(&u, NVME_ST_DNR(GENERIC, LBA_RANGE));
	check_dump("{\"nvme_error\":{\"status_code\":{\"lba_out_of_range\":1},\"status_type\":{\"generic\":1}}}");
	bdev_reset_stat(bdev_find("Nvme0n1"), BDEV_STAT_RESET_ALL);
	check_dump("{\"nvme_error\":{\"status_code\":{},\"status_type\":{}}}");
	user_close(&u);
	end_two();
}

static void test_without_the_options_nothing_is_counted(void)
{
	struct bdev_nvme_attach a = path_opts();
	struct user u;

	begin_two(&a, &u);
	CU_ASSERT_EQUAL(bdev_nvme_for_each_path_stat(bdev_find("Nvme0n1"), collect_counts, NULL), -EPERM);
	fail_one(&u, NVME_ST_DNR(GENERIC, LBA_RANGE));
	check_dump("{}");
	user_close(&u);
	end_two();
}

static const struct unit_test tests[] = {
	UNIT(test_paths_count_what_they_have_carried_out),
	UNIT(test_errors_are_counted_by_status),
	UNIT(test_without_the_options_nothing_is_counted),
	UNIT_END,
};
UNIT_MAIN("bdev_nvme_stat", tests, drive_setup, drive_teardown)

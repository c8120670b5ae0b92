/* SPDX-License-Identifier: BSD-3-Clause */
/* Triggers and files of the black box, without a daemon. */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "appliance/blackbox_files.h"
#include "appliance/blackbox_trigger.h"
#include "unittest/unit.h"

static struct blackbox_triggers list = TAILQ_HEAD_INITIALIZER(list);
static char why[BLACKBOX_ERROR_MAX];

static struct blackbox_trigger_opts opts(const char *name, enum blackbox_type type, uint64_t limit_us)
{
	struct blackbox_trigger_opts o = {.type = type, .limit_us = limit_us, .holdoff_us = 1000000};

	snprintf(o.name, sizeof(o.name), "%s", name);
	return o;
}

static int set(const char *name, enum blackbox_type type, uint64_t limit_us)
{
	struct blackbox_trigger_opts o = opts(name, type, limit_us);

	return blackbox_trigger_set(&list, &o, why);
}

static void test_a_trigger_of_the_same_name_replaces_the_old_in_its_place(void)
{
	CU_ASSERT_EQUAL(set("a", BLACKBOX_REQUEST_AGE, 5000), 0);
	CU_ASSERT_EQUAL(set("b", BLACKBOX_IO_ERROR, 0), 0);
	blackbox_trigger_find(&list, "a")->fired = 3;
	CU_ASSERT_EQUAL(set("a", BLACKBOX_STATE_AGE, 9000), 0);
	CU_ASSERT_EQUAL(TAILQ_FIRST(&list)->opts.type, BLACKBOX_STATE_AGE);
	CU_ASSERT_EQUAL(TAILQ_FIRST(&list)->fired, 0);
	CU_ASSERT_EQUAL(blackbox_trigger_remove(&list, "a"), 0);
	CU_ASSERT_EQUAL(blackbox_trigger_remove(&list, "a"), -ENOENT);
	blackbox_triggers_clear(&list);
	CU_ASSERT_PTR_NULL(blackbox_trigger_find(&list, "b"));
}

static void test_wrong_triggers_are_refused_with_the_reason(void)
{
	struct blackbox_trigger_opts o = opts("x", BLACKBOX_IO_ERROR, 0);

	CU_ASSERT_EQUAL(set("", BLACKBOX_IO_ERROR, 0), -EINVAL);
	CU_ASSERT_EQUAL(set("x", BLACKBOX_REQUEST_AGE, 999), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(why, "999"));
	CU_ASSERT_EQUAL(set("x", BLACKBOX_IO_ERROR, 5000), -EINVAL);
	snprintf(o.state, sizeof(o.state), "S");
	CU_ASSERT_EQUAL(blackbox_trigger_set(&list, &o, why), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(why, "state_age"));
	for (unsigned i = 0; i < BLACKBOX_TRIGGERS_MAX; i++) {
		char name[16];
		snprintf(name, sizeof(name), "t%u", i);
		CU_ASSERT_EQUAL(set(name, BLACKBOX_IO_ERROR, 0), 0);
	}
	CU_ASSERT_EQUAL(set("more", BLACKBOX_IO_ERROR, 0), -ENOSPC);
	CU_ASSERT_EQUAL(set("t0", BLACKBOX_QPAIR_ERROR, 0), 0);
	blackbox_triggers_clear(&list);
}

static void test_what_is_stuck_for_ever_fires_once(void)
{
	set("a", BLACKBOX_REQUEST_AGE, 5000000);
	struct blackbox_trigger *t = TAILQ_FIRST(&list);
	CU_ASSERT_FALSE(blackbox_trigger_is_news(t, 100000000, 4999999));
	CU_ASSERT_TRUE(blackbox_trigger_is_news(t, 100000000, 60000000)); /* it was stuck before the trigger was set */
	CU_ASSERT_TRUE(blackbox_trigger_ready(t, 100000000));
	t->fired = 1;
	t->last_us = 100000000;
	CU_ASSERT_FALSE(blackbox_trigger_ready(t, 100500000));
	CU_ASSERT_TRUE(blackbox_trigger_ready(t, 101000000));
	CU_ASSERT_FALSE(blackbox_trigger_is_news(t, 110000000, 70000000)); /* the same request */
	CU_ASSERT_TRUE(blackbox_trigger_is_news(t, 110000000, 8000000));   /* one that came over the limit later */
	blackbox_triggers_clear(&list);
}

static void test_how_often_to_look_follows_the_smallest_limit(void)
{
	const unsigned ages = 1u << BLACKBOX_REQUEST_AGE | 1u << BLACKBOX_STATE_AGE;

	CU_ASSERT_EQUAL(blackbox_min_limit_us(&list, ages), UINT64_MAX);
	set("a", BLACKBOX_REQUEST_AGE, 9000);
	set("b", BLACKBOX_STATE_AGE, 4000);
	set("c", BLACKBOX_REACTOR_STALL, 1000);
	CU_ASSERT_EQUAL(blackbox_min_limit_us(&list, ages), 4000);
	CU_ASSERT_EQUAL(blackbox_max_copy_limit_us(&list, ages), 9000);
	TAILQ_FIRST(&list)->opts.action = BLACKBOX_NOTIFY;
	CU_ASSERT_EQUAL(blackbox_max_copy_limit_us(&list, ages), 4000);
	CU_ASSERT_EQUAL(blackbox_max_copy_limit_us(&list, 1u << BLACKBOX_IO_ERROR), 0);
	CU_ASSERT_EQUAL(blackbox_period_us(4000), 10000);
	CU_ASSERT_EQUAL(blackbox_period_us(400000), 100000);
	CU_ASSERT_EQUAL(blackbox_period_us(UINT64_MAX), 1000000);
	blackbox_triggers_clear(&list);
}

static void test_events_are_kept_aside_if_the_rings_are_too_short_for_the_limit(void)
{
	CU_ASSERT_EQUAL(blackbox_keep_us(0, 1000), UINT64_MAX); /* no trigger */
	CU_ASSERT_EQUAL(blackbox_keep_us(2000000, UINT64_MAX), UINT64_MAX);
	CU_ASSERT_EQUAL(blackbox_keep_us(2000000, 4000000), UINT64_MAX);
	CU_ASSERT_EQUAL(blackbox_keep_us(2000000, 3999996), 999999);
	CU_ASSERT_EQUAL(blackbox_keep_us(2000000, 20000), 5000);
	CU_ASSERT_EQUAL(blackbox_keep_us(UINT64_MAX, 20000), 5000);
}

static void test_a_reactor_stalls_while_awake_in_one_round(void)
{
	struct blackbox_seen seen = {0};

	CU_ASSERT_EQUAL(blackbox_stall_us(&seen, 10, false, 1000), 0);
	CU_ASSERT_EQUAL(blackbox_stall_us(&seen, 10, false, 3000), 2000);
	CU_ASSERT_EQUAL(blackbox_stall_us(&seen, 11, false, 4000), 0);
	CU_ASSERT_EQUAL(blackbox_stall_us(&seen, 11, true, 9000), 0);
	CU_ASSERT_EQUAL(blackbox_stall_us(&seen, 11, false, 10000), 0); /* just woken */
	CU_ASSERT_EQUAL(blackbox_stall_us(&seen, 11, false, 10500), 500);
}

/* ---- Files ---- */

static char dir[] = "/tmp/unit_blackbox_XXXXXX";

#define LATER UINT64_C(3600000000000) /* than every file of the tests */

static int setup(void)
{
	return mkdtemp(dir) != NULL ? 0 : -1;
}

static int teardown(void)
{
	return rmdir(dir);
}

static void name_of(char *to, uint64_t ns)
{
	CU_ASSERT_EQUAL(blackbox_file_name(to, 256, dir, "app", ns, "io_error", 42), 0);
}

static void make(uint64_t ns, off_t size)
{
	char path[256];

	name_of(path, ns);
	int fd = open(path, O_CREAT | O_WRONLY, 0600);
	CU_ASSERT_FATAL(fd >= 0);
	CU_ASSERT_EQUAL(ftruncate(fd, size), 0);
	close(fd);
}

static bool is_there(uint64_t ns)
{
	char path[256];

	name_of(path, ns);
	return access(path, F_OK) == 0;
}

static void remove_all(void)
{
	for (uint64_t i = 0; i < 10; i++) {
		char path[256];
		name_of(path, i * 1000000000);
		unlink(path);
	}
}

static void test_names_tell_time_and_cause_and_sort_by_time(void)
{
	char a[256], b[256];

	name_of(a, UINT64_C(1795303702123456789));
	name_of(b, UINT64_C(1795303702123457789));
	CU_ASSERT_PTR_NOT_NULL(strstr(a, "/app_blackbox.20261121T232822.123456Z.io_error.pid42"));
	CU_ASSERT(strcmp(a, b) < 0);
	CU_ASSERT_EQUAL(blackbox_file_name(a, 20, dir, "app", 1, "io_error", 42), -ENAMETOOLONG);
}

static void test_the_oldest_make_room(void)
{
	struct blackbox_usage left;

	for (uint64_t i = 0; i < 5; i++) {
		make(i * 1000000000, 100);
	}
	CU_ASSERT_EQUAL(blackbox_make_room(dir, "app", 3, 1000, 100, LATER, &left), 0);
	CU_ASSERT_EQUAL(left.files, 2);
	CU_ASSERT(!is_there(0) && !is_there(2000000000) && is_there(3000000000) && is_there(4000000000));
	CU_ASSERT_EQUAL(blackbox_make_room(dir, "app", 8, 250, 200, LATER, &left), 0);
	CU_ASSERT_EQUAL(left.files, 0);
	CU_ASSERT_EQUAL(blackbox_make_room(dir, "app", 8, 250, 251, LATER, &left), -EFBIG);
	CU_ASSERT_EQUAL(blackbox_make_room("/no/such", "app", 8, 250, 20, LATER, &left), -ENOENT);
	remove_all();
}

/* Files 3 and 4 are of a time after now: the clock was set back since. */
static void test_files_from_before_the_clock_was_set_back_are_the_oldest(void)
{
	struct blackbox_usage left;

	for (uint64_t i = 0; i < 5; i++) {
		make(i * 1000000000, 100);
	}
	CU_ASSERT_EQUAL(blackbox_make_room(dir, "app", 5, 1000, 100, UINT64_C(2500000000), &left), 0);
	CU_ASSERT(is_there(0) && is_there(2000000000) && !is_there(3000000000) && is_there(4000000000));
	CU_ASSERT_EQUAL(blackbox_make_room(dir, "app", 3, 1000, 100, UINT64_C(2500000000), &left), 0);
	CU_ASSERT(!is_there(0) && is_there(1000000000) && is_there(2000000000) && !is_there(4000000000));
	remove_all();
}

static void test_the_same_time_again_gives_another_name(void)
{
	char first[256], again[256];

	make(1000000000, 0);
	name_of(first, 1000000000);
	CU_ASSERT_EQUAL(blackbox_file_name_unused(again, 256, dir, "app", 1000000000, "io_error", 42), 0);
	CU_ASSERT(strcmp(first, again) < 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(again, "000001.000001Z"));
	CU_ASSERT_EQUAL(blackbox_file_name_unused(again, 20, dir, "app", 1, "io_error", 42), -ENAMETOOLONG);
	remove_all();
}

static void test_others_files_are_left_alone(void)
{
	char other[256];

	make(0, 10);
	snprintf(other, sizeof(other), "%s/app_blackbox", dir);
	close(open(other, O_CREAT | O_WRONLY, 0600));
	CU_ASSERT_EQUAL(blackbox_make_room(dir, "ap", 1, 1000, 10, LATER, NULL), 0);
	CU_ASSERT_TRUE(is_there(0));
	CU_ASSERT_EQUAL(blackbox_make_room(dir, "app", 1, 1000, 10, LATER, NULL), 0);
	CU_ASSERT_FALSE(is_there(0));
	CU_ASSERT_EQUAL(access(other, F_OK), 0);
	unlink(other);
}

static void test_unfinished_files_of_the_dead_go_and_of_the_living_stay(void)
{
	char part[256];

	snprintf(part, sizeof(part), "%s/.app_blackbox.x.part", dir);
	int fd = open(part, O_CREAT | O_WRONLY, 0600);
	CU_ASSERT_EQUAL(flock(fd, LOCK_EX), 0);
	CU_ASSERT_EQUAL(blackbox_make_room(dir, "app", 1, 1000, 10, LATER, NULL), 0);
	CU_ASSERT_EQUAL(access(part, F_OK), 0);
	close(fd);
	CU_ASSERT_EQUAL(blackbox_make_room(dir, "app", 1, 1000, 10, LATER, NULL), 0);
	CU_ASSERT_NOT_EQUAL(access(part, F_OK), 0);
}

/* ---- Copies to look at ---- */

#define GOOD "varve_blackbox.20261121T231502.123456Z.request_age.pid4711"

static void test_names_of_copies_are_those_that_are_made(void)
{
	struct blackbox_copy_info i;
	char long_name[400];
	static const char *const bad[] = {
		"",
		"varve_blackbox.",
		"../" GOOD,
		"/var/tmp/" GOOD,
		GOOD "/../x",
		GOOD "x",
		GOOD "\n",
		GOOD ".part",
		"." GOOD ".part",
		"other_blackbox.20261121T231502.123456Z.request_age.pid4711",
		"varve_blackboxy20261121T231502.123456Z.request_age.pid4711",
		"varve_blackbox.20261121T231502.123456Z.request_age.pid",
		"varve_blackbox.20261121T231502.123456Z.request_age.pid47x",
		"varve_blackbox.20261121T231502.123456Z.request_age.4711",
		"varve_blackbox.20261121T231502.123456Z..pid4711",
		"varve_blackbox.20261121T231502.123456Z...pid4711",
		"varve_blackbox.20261121T231502.12345xZ.request_age.pid4711",
		"varve_blackbox.2026112/T231502.123456Z.request_age.pid4711",
		"varve_blackbox.20261121T231502.123456Z.REQUEST.pid4711",
		"varve_blackbox.20261121T231502.123456Z.abcdefghijklmnopqrstuvwxyzabcdefgh.pid4711",
	};

	CU_ASSERT_TRUE(blackbox_copy_name_parse(GOOD, "varve", &i));
	CU_ASSERT_STRING_EQUAL(i.name, GOOD);
	CU_ASSERT_STRING_EQUAL(i.time, "2026-11-21T23:15:02.123456Z");
	CU_ASSERT_STRING_EQUAL(i.cause, "request_age");
	for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++) {
		CU_ASSERT_FALSE(blackbox_copy_name_parse(bad[k], "varve", &i));
	}
	memset(long_name, '1', sizeof(long_name) - 1);
	long_name[sizeof(long_name) - 1] = '\0';
	memcpy(long_name, GOOD, strlen(GOOD));
	CU_ASSERT_FALSE(blackbox_copy_name_parse(long_name, "varve", &i));
}

static int open_copy(const char *name)
{
	uint64_t bytes = 0;
	int fd = blackbox_copy_open(dir, "varve", name, &bytes);

	if (fd >= 0) {
		close(fd);
		return (int)bytes;
	}
	return fd;
}

/* The number of copies that are listed, of at most max. */
static int list_copies(struct blackbox_copy_info *found, size_t max)
{
	bool complete = false;
	int n = blackbox_copy_list(dir, "varve", UINT64_C(1795000000000000000), found, max, &complete); /* 2026 */

	CU_ASSERT(n < 0 || complete);
	return n;
}

static void test_copies_are_opened_and_nothing_else_of_that_name(void)
{
	static const char name[] = "varve_blackbox.20261121T231502.123456Z.request_age.pid1";
	struct blackbox_copy_info found[4];
	char path[256], other[256];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	snprintf(other, sizeof(other), "%s/secret", dir);
	CU_ASSERT_EQUAL(open_copy(name), -ENOENT);
	FILE *f = fopen(other, "w");
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	fputs("12345", f);
	fclose(f);
	CU_ASSERT_EQUAL(open_copy("secret"), -ENOENT);
	CU_ASSERT_EQUAL(symlink(other, path), 0);
	CU_ASSERT_EQUAL(open_copy(name), -ENOENT);
	CU_ASSERT_EQUAL(list_copies(found, 4), 0);
	unlink(path);
	CU_ASSERT_EQUAL(link(other, path), 0);
	CU_ASSERT_EQUAL(open_copy(name), -ENOENT);
	unlink(path);
	CU_ASSERT_EQUAL(mkfifo(path, 0600), 0);
	CU_ASSERT_EQUAL(open_copy(name), -ENOENT);
	unlink(path);
	CU_ASSERT_EQUAL(mkdir(path, 0700), 0);
	CU_ASSERT_EQUAL(open_copy(name), -ENOENT);
	CU_ASSERT_EQUAL(list_copies(found, 4), 0);
	rmdir(path);
	CU_ASSERT_EQUAL(rename(other, path), 0);
	CU_ASSERT_EQUAL(open_copy(name), 5);
	CU_ASSERT_EQUAL(list_copies(found, 4), 1);
	CU_ASSERT(strcmp(found[0].name, name) == 0 && found[0].bytes == 5);
	CU_ASSERT_EQUAL(list_copies(found, 0), 0);
	unlink(path);
	bool complete;
	CU_ASSERT_EQUAL(blackbox_copy_list("/nowhere", "varve", LATER, found, 4, &complete), -ENOENT);
}

static void path_of_copy(char path[256], unsigned year, unsigned number)
{
	snprintf(path, 256, "%s/varve_blackbox.%04u1121T231502.%06uZ.request_age.pid1", dir, year, number);
}

static void make_copy(unsigned year, unsigned number)
{
	char path[256];

	path_of_copy(path, year, number);
	int fd = open(path, O_CREAT | O_WRONLY, 0600);
	CU_ASSERT_FATAL(fd >= 0);
	close(fd);
}

static void remove_copy(unsigned year, unsigned number)
{
	char path[256];

	path_of_copy(path, year, number);
	CU_ASSERT_EQUAL(unlink(path), 0);
}

static void test_the_newest_copies_are_listed_and_those_of_the_future_last(void)
{
	static const unsigned years[] = {1971, 2999, 1970, 1973, 2998, 1972};
	static const char *const listed[] = {"1973-", "1972-", "1971-", "1970-", "2999-", "2998-"};
	const size_t n = sizeof(years) / sizeof(years[0]);
	struct blackbox_copy_info found[8];

	CU_ASSERT_EQUAL(list_copies(found, 8), 0);
	for (size_t i = 0; i < n; i++) {
		make_copy(years[i], 1);
	}
	for (size_t max = 0; max <= 8; max++) {
		size_t expected = max < n ? max : n;
		CU_ASSERT_EQUAL_FATAL(list_copies(found, max), (int)expected);
		for (size_t i = 0; i < expected; i++) {
			CU_ASSERT_EQUAL(memcmp(found[i].time, listed[i], 5), 0);
		}
	}
	for (size_t i = 0; i < n; i++) {
		remove_copy(years[i], 1);
	}
}

/* Any user may make entries in the folder. */
static void test_entries_of_the_same_names_that_are_no_copies_hide_none(void)
{
	struct blackbox_copy_info found[4];
	char path[256];
	bool complete;

	for (unsigned i = 0; i < 5000; i++) {
		path_of_copy(path, 2999, i);
		CU_ASSERT_EQUAL_FATAL(i % 2 == 0 ? symlink("/etc/passwd", path) : mkfifo(path, 0600), 0);
	}
	make_copy(1970, 1);
	CU_ASSERT_EQUAL(list_copies(found, 4), 1);
	CU_ASSERT_EQUAL(memcmp(found[0].time, "1970-", 5), 0);
	CU_ASSERT_EQUAL(list_copies(found, 1), 1);
	/* A folder without end: the listing ends, and says that it did not see all. */
	for (unsigned i = 5000; i < BLACKBOX_COPY_ENTRIES_MAX; i++) {
		path_of_copy(path, 2999, i);
		CU_ASSERT_EQUAL_FATAL(symlink("/etc/passwd", path), 0);
	}
	CU_ASSERT(blackbox_copy_list(dir, "varve", LATER, found, 4, &complete) >= 0);
	CU_ASSERT_FALSE(complete);
	for (unsigned i = 0; i < BLACKBOX_COPY_ENTRIES_MAX; i++) {
		remove_copy(2999, i);
	}
	remove_copy(1970, 1);
}

static const struct unit_test tests[] = {
	UNIT(test_a_trigger_of_the_same_name_replaces_the_old_in_its_place),
	UNIT(test_wrong_triggers_are_refused_with_the_reason),
	UNIT(test_what_is_stuck_for_ever_fires_once),
	UNIT(test_how_often_to_look_follows_the_smallest_limit),
	UNIT(test_events_are_kept_aside_if_the_rings_are_too_short_for_the_limit),
	UNIT(test_a_reactor_stalls_while_awake_in_one_round),
	UNIT(test_names_tell_time_and_cause_and_sort_by_time),
	UNIT(test_the_oldest_make_room),
	UNIT(test_files_from_before_the_clock_was_set_back_are_the_oldest),
	UNIT(test_the_same_time_again_gives_another_name),
	UNIT(test_others_files_are_left_alone),
	UNIT(test_names_of_copies_are_those_that_are_made),
	UNIT(test_copies_are_opened_and_nothing_else_of_that_name),
	UNIT(test_the_newest_copies_are_listed_and_those_of_the_future_last),
	UNIT(test_entries_of_the_same_names_that_are_no_copies_hide_none),
	UNIT(test_unfinished_files_of_the_dead_go_and_of_the_living_stay),
	UNIT_END,
};
UNIT_MAIN("appliance_blackbox", tests, setup, teardown)

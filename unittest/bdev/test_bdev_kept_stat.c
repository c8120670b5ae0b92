/* SPDX-License-Identifier: BSD-3-Clause */
/* Statistics that outlive the objects that count them. */
#include <errno.h>
#include <string.h>

#include "bdev/internal.h"
#include "bdev/kept_stat.h"
#include "bdev/qos_group.h"
#include "unittest/bdev/fixture.h"

static uint8_t buf[4096] __attribute__((aligned(4096)));

struct sample {
	uint64_t plain, other;
	struct {
		uint64_t count;
		uint16_t status;
	} list[3];
	uint64_t ticks;
};
static const struct kept_stat_field sample_list[] = {
	KEPT_STAT(struct sample, "plain", plain),
	KEPT_STAT(struct sample, "other", other),
	KEPT_STAT_ARRAY(struct sample, "counts", list[0].count, list),
	KEPT_STAT_ARRAY(struct sample, "statuses", list[0].status, list, .type = KEPT_STAT_U16),
	{.name = "ns", .type = KEPT_STAT_TICKS, .offset = offsetof(struct sample, ticks), .n = 1},
};
static const struct kept_stat_fields sample_fields = {sample_list, ARRAY_SIZE(sample_list)};

static void keep(const char *name, const struct sample *s)
{
	kept_stat_keep(true);
	CU_ASSERT_TRUE(kept_stat_note("set", name, &sample_fields, s));
	kept_stat_keep(false);
}

/* As if another process had said it. How many objects are left out. */
static unsigned import_text(const char *text)
{
	unsigned left_out = 77;
	json_error_t error;
	json_t *all = json_loads(text, JSON_DECODE_ANY, &error);

	CU_ASSERT_PTR_NOT_NULL_FATAL(all);
	CU_ASSERT_EQUAL(kept_stat_import(all, &left_out), 0);
	json_decref(all);
	return left_out;
}

static void test_counters_pass_to_the_next_object_of_the_name_once(void)
{
	const struct sample s = {.plain = 5, .list = {{1, 2}, {0, 0}, {INT64_MAX, UINT16_MAX}}, .ticks = 12345678};
	struct sample got = {.other = 7};

	keep("a", &s);
	CU_ASSERT_STRING_EQUAL(kept_stat_first("set"), "a");
	CU_ASSERT_FALSE(kept_stat_take("set", "b", &sample_fields, &got));
	CU_ASSERT_FALSE(kept_stat_take("other set", "a", &sample_fields, &got));
	CU_ASSERT_TRUE(kept_stat_take("set", "a", &sample_fields, &got));
	CU_ASSERT_EQUAL(got.plain, 5);
	CU_ASSERT_EQUAL(got.other, 7); /* what is 0 is not kept */
	CU_ASSERT_EQUAL(got.list[0].count, 1);
	CU_ASSERT_EQUAL(got.list[0].status, 2);
	CU_ASSERT_EQUAL(got.list[1].count, 0);
	CU_ASSERT_EQUAL(got.list[2].count, INT64_MAX);
	CU_ASSERT_EQUAL(got.list[2].status, UINT16_MAX);
	CU_ASSERT_FALSE(kept_stat_take("set", "a", &sample_fields, &got));
	CU_ASSERT_PTR_NULL(kept_stat_first("set"));
}

static void test_nothing_is_kept_unless_it_is_asked_for(void)
{
	const struct sample s = {.plain = 5};

	CU_ASSERT_FALSE(kept_stat_note("set", "a", &sample_fields, &s));
	CU_ASSERT_PTR_NULL(kept_stat_first("set"));
}

static void test_what_was_kept_under_a_name_before_is_replaced(void)
{
	struct sample got = {0};

	keep("a", &(struct sample){.plain = 5, .other = 6});
	keep("a", &(struct sample){.plain = 9});
	CU_ASSERT_TRUE(kept_stat_take("set", "a", &sample_fields, &got));
	CU_ASSERT_EQUAL(got.plain, 9);
	CU_ASSERT_EQUAL(got.other, 0);
}

static void test_a_time_never_becomes_less(void)
{
	for (uint64_t ticks = 1; ticks < UINT64_C(1) << 60; ticks = ticks * 5 + 1) {
		struct sample got = {0};
		keep("a", &(struct sample){.ticks = ticks});
		kept_stat_take("set", "a", &sample_fields, &got);
		CU_ASSERT_TRUE(got.ticks >= ticks);
		CU_ASSERT_TRUE(got.ticks <= ticks + ticks / 1000000 + 2 * env_ticks_hz() / 1000000000 + 4);
	}
}

static void test_a_name_that_is_no_text_is_counted_as_lost(void)
{
	kept_stat_keep(true);
	CU_ASSERT_FALSE(kept_stat_note("set", "\xff\xfe", &sample_fields, &(struct sample){.plain = 1}));
	CU_ASSERT_EQUAL(kept_stat_failed(), 1);
	kept_stat_keep(true);
	CU_ASSERT_EQUAL(kept_stat_failed(), 0);
	kept_stat_keep(false);
	kept_stat_clear();
}

static void test_all_passes_to_another_process(void)
{
	struct sample got = {0};
	unsigned left_out;

	keep("a", &(struct sample){.plain = 5});
	keep("b", &(struct sample){.plain = 6});
	json_t *all = kept_stat_export();
	kept_stat_clear();
	CU_ASSERT_PTR_NULL(kept_stat_first("set"));
	CU_ASSERT_EQUAL(kept_stat_import(all, &left_out), 0);
	CU_ASSERT_EQUAL(left_out, 0);
	json_decref(all);
	CU_ASSERT_TRUE(kept_stat_take("set", "b", &sample_fields, &got));
	CU_ASSERT_EQUAL(got.plain, 6);
	CU_ASSERT_EQUAL(kept_stat_import(NULL, &left_out), 0); /* of a process that says nothing of it */
	CU_ASSERT_PTR_NULL(kept_stat_first("set"));
	all = kept_stat_export();
	CU_ASSERT_EQUAL(json_object_size(all), 0);
	json_decref(all);
}

static void test_what_another_version_does_not_know_is_left_out(void)
{
	struct sample got = {.other = 4, .list[1] = {8, 9}};

	CU_ASSERT_EQUAL(import_text("{\"set\": {\"a\": {\"plain\": [3, 77], \"new\": [1, 2], \"counts\": [6], "
				    "\"statuses\": [65536, 0, 1], \"other\": []}}, \"unknown\": {\"x\": {}}}"),
			0);
	CU_ASSERT_TRUE(kept_stat_take("set", "a", &sample_fields, &got));
	CU_ASSERT_EQUAL(got.plain, 3);
	CU_ASSERT_EQUAL(got.other, 4);
	CU_ASSERT_EQUAL(got.list[0].count, 6);
	CU_ASSERT_EQUAL(got.list[0].status, 0); /* 65536 is none */
	CU_ASSERT_EQUAL(got.list[1].count, 8);
	CU_ASSERT_EQUAL(got.list[1].status, 9);
	CU_ASSERT_EQUAL(got.list[2].status, 1);
	kept_stat_clear();
}

static void test_what_has_another_shape_is_left_out_alone(void)
{
	static const struct {
		const char *text;
		unsigned left_out;
	} wrong[] = {
		{"[]", 1},
		{"1", 1},
		{"{\"set\": []}", 1},
		{"{\"set\": {\"a\": 1}}", 1},
		{"{\"set\": {\"a\": {\"plain\": 1}}}", 1},
		{"{\"set\": {\"a\": {\"plain\": [-1]}}}", 1},
		{"{\"set\": {\"a\": {\"plain\": [1.5]}}}", 1},
		{"{\"set\": {\"a\": {\"plain\": [\"1\"]}, \"b\": []}}", 2},
		{"{\"set\": {\"a\": null}, \"b\": null}", 2},
	};
	struct sample got = {0};

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		keep("kept", &(struct sample){.plain = 5});
		CU_ASSERT_EQUAL(import_text(wrong[i].text), wrong[i].left_out);
		CU_ASSERT_PTR_NULL(kept_stat_first("set"));
		CU_ASSERT_PTR_NULL(kept_stat_first("b"));
	}
	CU_ASSERT_EQUAL(
		import_text("{\"b\": 1, \"set\": {\"a\": {\"plain\": [3]}, \"b\": {\"plain\": [1.5]}, \"c\": {}}}"), 2);
	CU_ASSERT_TRUE(kept_stat_take("set", "a", &sample_fields, &got));
	CU_ASSERT_EQUAL(got.plain, 3);
	CU_ASSERT_FALSE(kept_stat_take("set", "b", &sample_fields, &got));
	CU_ASSERT_TRUE(kept_stat_take("set", "c", &sample_fields, &got));
}

static bool nothing_is_kept(void *arg)
{
	return kept_stat_first("set") == NULL;
}

static void test_what_nobody_takes_is_dropped_after_a_time(void)
{
	keep("a", &(struct sample){.plain = 5});
	kept_stat_clear_after(1000);
	CU_ASSERT_STRING_EQUAL(kept_stat_first("set"), "a");
	CU_ASSERT_TRUE(fixture_poll(nothing_is_kept, NULL));
}

static void test_what_is_kept_anew_is_not_dropped_by_the_time_of_before(void)
{
	keep("a", &(struct sample){.plain = 5});
	kept_stat_clear_after(1000);
	keep("b", &(struct sample){.plain = 6});
	CU_ASSERT_EQUAL(thread_control_wait(nothing_is_kept, NULL, 20000), false);
	CU_ASSERT_PTR_NOT_NULL(kept_stat_first("set"));
	kept_stat_clear();
}

/* ---- Of bdevs ---- */

static void make_again(void)
{
	kept_stat_keep(true);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
	kept_stat_keep(false);
	make_null("n0", 4096, 1000);
}

static void test_the_statistics_of_a_bdev_go_on(void)
{
	struct bdev_stat before, after;
	struct user u;

	make_null("n0", 4096, 1000);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "n0", true, fixture_thread(0)), 0);
	for (unsigned i = 0; i < 5; i++) {
		CU_ASSERT_EQUAL(user_io(&u, i < 3 ? BDEV_IO_READ : BDEV_IO_WRITE, buf, i, 1), 0);
	}
	CU_ASSERT_NOT_EQUAL(user_io(&u, BDEV_IO_READ, buf, 1000, 1), 0);
	user_close(&u);
	bdev_get_stat(bdev_find("n0"), &before);
	make_again();
	bdev_get_stat(bdev_find("n0"), &after);
	for (unsigned c = 0; c < BDEV_STAT_CLASSES; c++) {
		const struct bdev_stat_ops *a = &after.class[c], *b = &before.class[c];
		CU_ASSERT_EQUAL(a->ops, b->ops);
		CU_ASSERT_EQUAL(a->bytes, b->bytes);
		CU_ASSERT_TRUE(a->ticks >= b->ticks);
		CU_ASSERT_EQUAL(a->min_ticks == UINT64_MAX, b->min_ticks == UINT64_MAX);
		CU_ASSERT_EQUAL(a->max_ticks == 0, b->max_ticks == 0);
	}
	CU_ASSERT_EQUAL(memcmp(after.errors, before.errors, sizeof(before.errors)), 0);
	CU_ASSERT_EQUAL(before.errors[0].count, 1);
	CU_ASSERT_EQUAL(after.reads.counted, 3);
	CU_ASSERT_EQUAL(memcmp(after.reads.buckets, before.reads.buckets, sizeof(before.reads.buckets)), 0);
	CU_ASSERT_EQUAL(memcmp(after.writes.buckets, before.writes.buckets, sizeof(before.writes.buckets)), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "n0", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buf, 0, 1), 0);
	user_close(&u);
	bdev_get_stat(bdev_find("n0"), &after);
	CU_ASSERT_EQUAL(after.class[BDEV_STAT_READ].ops, 4);
	CU_ASSERT_EQUAL(after.reads.counted, 4);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0); /* for good: a new one begins at 0 */
	make_null("n0", 4096, 1000);
	bdev_get_stat(bdev_find("n0"), &after);
	CU_ASSERT_EQUAL(after.class[BDEV_STAT_READ].ops, 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

/* A group with n0, whose limit lets much go. */
static struct bdev_qos_group *make_group(void)
{
	const struct rate_limits limits = {.rw_ios_per_sec = 1000000}, none = {0};
	enum rate_bucket_id id;
	int rc;
	struct bdev_qos_group *g = bdev_qos_group_create("g", &rc);

	CU_ASSERT_PTR_NOT_NULL_FATAL(g);
	CU_ASSERT_EQUAL(bdev_qos_group_set_limits(g, &limits, &id), 0);
	CU_ASSERT_EQUAL(bdev_qos_group_add(g, bdev_find("n0"), &none, &id), 0);
	return g;
}

static void check_group(const struct bdev_qos_group *g, uint64_t of_member, uint64_t of_all)
{
	struct rate_counts counts;

	bdev_qos_group_get_bdev_counts(bdev_find("n0"), &counts);
	CU_ASSERT_EQUAL(counts.ios[RATE_READS], of_member);
	CU_ASSERT_EQUAL(counts.bytes[RATE_READS], of_member * 4096);
	bdev_qos_group_get_counts(g, &counts);
	CU_ASSERT_EQUAL(counts.ios[RATE_READS], of_all);
}

static void read_from(const char *name, unsigned n)
{
	struct user u;

	CU_ASSERT_EQUAL_FATAL(user_open(&u, name, true, fixture_thread(0)), 0);
	for (unsigned i = 0; i < n; i++) {
		CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buf, i, 1), 0);
	}
	user_close(&u);
}

static void test_what_a_group_has_counted_goes_on_and_counts_once(void)
{
	make_null("n0", 4096, 1000);
	struct bdev_qos_group *g = make_group();
	read_from("n0", 2);
	bdev_qos_group_remove(bdev_find("n0")); /* what it did stays the group's */
	bdev_qos_group_delete(g);
	g = make_group();
	read_from("n0", 3);
	check_group(g, 3, 3);
	kept_stat_keep(true);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
	bdev_qos_group_delete(g);
	kept_stat_keep(false);
	make_null("n0", 4096, 1000);
	g = make_group();
	check_group(g, 3, 3);
	read_from("n0", 1);
	check_group(g, 4, 4);
	bdev_qos_group_remove(bdev_find("n0"));
	kept_stat_keep(true);
	bdev_qos_group_delete(g); /* of bdevs that have left */
	kept_stat_keep(false);
	g = make_group();
	check_group(g, 0, 4);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
	bdev_qos_group_delete(g);
	CU_ASSERT_PTR_NULL(kept_stat_first("qos_group"));
}

static void test_what_bdevs_have_counted_that_do_not_come_back_is_the_groups(void)
{
	make_null("n0", 4096, 1000);
	struct bdev_qos_group *g = make_group();
	read_from("n0", 3);
	kept_stat_keep(true);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
	bdev_qos_group_delete(g);
	kept_stat_keep(false);
	int rc;
	g = bdev_qos_group_create("g", &rc);
	CU_ASSERT_PTR_NOT_NULL_FATAL(g);
	bdev_qos_groups_take_absent();
	struct rate_counts counts = {0};
	bdev_qos_group_get_counts(g, &counts);
	CU_ASSERT_EQUAL(counts.ios[RATE_READS], 3);
	bdev_qos_groups_take_absent(); /* once */
	kept_stat_clear();
	make_null("n0", 4096, 1000);
	CU_ASSERT_EQUAL(bdev_qos_group_add(g, bdev_find("n0"), &(struct rate_limits){0}, NULL), 0);
	check_group(g, 0, 3);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
	bdev_qos_group_delete(g);
}

static const struct unit_test tests[] = {
	UNIT(test_counters_pass_to_the_next_object_of_the_name_once),
	UNIT(test_nothing_is_kept_unless_it_is_asked_for),
	UNIT(test_what_was_kept_under_a_name_before_is_replaced),
	UNIT(test_a_time_never_becomes_less),
	UNIT(test_a_name_that_is_no_text_is_counted_as_lost),
	UNIT(test_all_passes_to_another_process),
	UNIT(test_what_another_version_does_not_know_is_left_out),
	UNIT(test_what_has_another_shape_is_left_out_alone),
	UNIT(test_what_nobody_takes_is_dropped_after_a_time),
	UNIT(test_what_is_kept_anew_is_not_dropped_by_the_time_of_before),
	UNIT(test_the_statistics_of_a_bdev_go_on),
	UNIT(test_what_a_group_has_counted_goes_on_and_counts_once),
	UNIT(test_what_bdevs_have_counted_that_do_not_come_back_is_the_groups),
	UNIT_END,
};
UNIT_MAIN("bdev_kept_stat", tests, fixture_start, fixture_stop)

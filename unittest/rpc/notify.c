/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/notify.h"
#include "unittest/unit.h"

static void test_types_are_listed_once(void)
{
	notify_type_register_common("bdev_register");
	notify_type_register("ours");
	notify_type_register_common("bdev_unregister");
	notify_type_register_common("bdev_register");
	notify_type_register("ours");
	CU_ASSERT_STRING_EQUAL(notify_type(NOTIFY_COMMON, 0), "bdev_register");
	CU_ASSERT_STRING_EQUAL(notify_type(NOTIFY_COMMON, 1), "bdev_unregister");
	CU_ASSERT_PTR_NULL(notify_type(NOTIFY_COMMON, 2));
	CU_ASSERT_STRING_EQUAL(notify_type(NOTIFY_ALL, 1), "ours");
	CU_ASSERT_PTR_NULL(notify_type(NOTIFY_ALL, 3));
}

static void test_events_are_numbered_and_the_oldest_go_first(void)
{
	const struct notify_event *e;
	char name[16];

	notify_send("bdev_register", "first");
	e = notify_get(NOTIFY_ALL, 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(e);
	CU_ASSERT_STRING_EQUAL(e->type, "bdev_register");
	CU_ASSERT_STRING_EQUAL(e->context, "first");
	CU_ASSERT_STRING_EQUAL(e->reason, "");
	CU_ASSERT_TRUE(e->time_us > UINT64_C(1700000000000000));
	CU_ASSERT_PTR_NULL(notify_get(NOTIFY_ALL, 1));
	for (int i = 1; i <= 1024; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		notify_send("bdev_unregister", name);
	}
	CU_ASSERT_EQUAL(notify_first(NOTIFY_ALL), 1);
	CU_ASSERT_PTR_NULL(notify_get(NOTIFY_ALL, 0));
	e = notify_get(NOTIFY_ALL, 1024);
	CU_ASSERT_PTR_NOT_NULL_FATAL(e);
	CU_ASSERT_STRING_EQUAL(e->context, "n1024");
}

static void test_what_is_counted_has_no_gaps(void)
{
	uint64_t common = notify_first(NOTIFY_COMMON) + 1024, all = notify_first(NOTIFY_ALL) + 1024;

	notify_send("bdev_register", "one");
	for (int i = 0; i < 2000; i++) {
		notify_send("ours", "something else");
	}
	notify_send("bdev_unregister", "two");
	CU_ASSERT_STRING_EQUAL(notify_get(NOTIFY_COMMON, common)->context, "one");
	CU_ASSERT_STRING_EQUAL(notify_get(NOTIFY_COMMON, common + 1)->context, "two");
	CU_ASSERT_PTR_NULL(notify_get(NOTIFY_COMMON, common + 2));
	CU_ASSERT_PTR_NULL(notify_get(NOTIFY_ALL, all));
	CU_ASSERT_STRING_EQUAL(notify_get(NOTIFY_ALL, all + 2001)->context, "two");
	CU_ASSERT_STRING_EQUAL(notify_get(NOTIFY_ALL, all + 2000)->type, "ours");
}

static void test_a_reason_is_kept_and_cut_to_its_room(void)
{
	char longer[512];

	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	notify_send_reason("bdev_register", longer, "the test wants it");
	const struct notify_event *e = notify_get(NOTIFY_ALL, notify_first(NOTIFY_ALL) + 1023);
	CU_ASSERT_PTR_NOT_NULL_FATAL(e);
	CU_ASSERT_EQUAL(strlen(e->context), sizeof(e->context) - 1);
	CU_ASSERT_STRING_EQUAL(e->reason, "the test wants it");
	notify_send_reason("bdev_register", "short", longer);
	CU_ASSERT_EQUAL(strlen(notify_get(NOTIFY_ALL, notify_first(NOTIFY_ALL) + 1023)->reason), sizeof(e->reason) - 1);
}

static void test_an_unregistered_type_is_not_sent(void)
{
	uint64_t first = notify_first(NOTIFY_ALL);

	notify_send("unknown", "x");
	CU_ASSERT_EQUAL(notify_first(NOTIFY_ALL), first);
}

static const struct unit_test tests[] = {
	UNIT(test_types_are_listed_once),
	UNIT(test_events_are_numbered_and_the_oldest_go_first),
	UNIT(test_what_is_counted_has_no_gaps),
	UNIT(test_a_reason_is_kept_and_cut_to_its_room),
	UNIT(test_an_unregistered_type_is_not_sent),
	UNIT_END,
};

UNIT_MAIN("rpc_notify", tests, NULL, NULL)

/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/notify.h"
#include "unittest/unit.h"

static void test_types_are_listed_once(void)
{
	notify_type_register("bdev_register");
	notify_type_register("bdev_unregister");
	notify_type_register("bdev_register");
	CU_ASSERT_STRING_EQUAL(notify_type(0), "bdev_register");
	CU_ASSERT_STRING_EQUAL(notify_type(1), "bdev_unregister");
	CU_ASSERT_PTR_NULL(notify_type(2));
}

static void test_events_are_numbered_and_the_oldest_go_first(void)
{
	const struct notify_event *e;
	char name[16];

	notify_send("bdev_register", "first");
	e = notify_get(0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(e);
	CU_ASSERT_STRING_EQUAL(e->type, "bdev_register");
	CU_ASSERT_STRING_EQUAL(e->context, "first");
	CU_ASSERT_STRING_EQUAL(e->reason, "");
	CU_ASSERT_TRUE(e->time_us > UINT64_C(1700000000000000));
	CU_ASSERT_PTR_NULL(notify_get(1));
	for (int i = 1; i <= 1024; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		notify_send("bdev_unregister", name);
	}
	CU_ASSERT_EQUAL(notify_first(), 1);
	CU_ASSERT_PTR_NULL(notify_get(0));
	e = notify_get(1024);
	CU_ASSERT_PTR_NOT_NULL_FATAL(e);
	CU_ASSERT_STRING_EQUAL(e->context, "n1024");
}

static void test_a_reason_is_kept_and_cut_to_its_room(void)
{
	char longer[512];

	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	notify_send_reason("bdev_register", longer, "the test wants it");
	const struct notify_event *e = notify_get(notify_first() + 1023);
	CU_ASSERT_PTR_NOT_NULL_FATAL(e);
	CU_ASSERT_EQUAL(strlen(e->context), sizeof(e->context) - 1);
	CU_ASSERT_STRING_EQUAL(e->reason, "the test wants it");
	notify_send_reason("bdev_register", "short", longer);
	CU_ASSERT_EQUAL(strlen(notify_get(notify_first() + 1023)->reason), sizeof(e->reason) - 1);
}

static void test_an_unregistered_type_is_not_sent(void)
{
	uint64_t first = notify_first();

	notify_send("unknown", "x");
	CU_ASSERT_EQUAL(notify_first(), first);
}

static const struct unit_test tests[] = {
	UNIT(test_types_are_listed_once),
	UNIT(test_events_are_numbered_and_the_oldest_go_first),
	UNIT(test_a_reason_is_kept_and_cut_to_its_room),
	UNIT(test_an_unregistered_type_is_not_sent),
	UNIT_END,
};

UNIT_MAIN("rpc_notify", tests, NULL, NULL)

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
	const char *type, *context;
	char name[16];

	notify_send("bdev_register", "first");
	CU_ASSERT_TRUE(notify_get(0, &type, &context));
	CU_ASSERT_STRING_EQUAL(type, "bdev_register");
	CU_ASSERT_STRING_EQUAL(context, "first");
	CU_ASSERT_FALSE(notify_get(1, &type, &context));
	for (int i = 1; i <= 1024; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		notify_send("bdev_unregister", name);
	}
	CU_ASSERT_EQUAL(notify_first(), 1);
	CU_ASSERT_FALSE(notify_get(0, &type, &context));
	CU_ASSERT_TRUE(notify_get(1024, &type, &context));
	CU_ASSERT_STRING_EQUAL(context, "n1024");
}

static void test_an_unregistered_type_is_not_sent(void)
{
	uint64_t first = notify_first();
	const char *type, *context;

	notify_send("unknown", "x");
	CU_ASSERT_EQUAL(notify_first(), first);
	CU_ASSERT_FALSE(notify_get(1025, &type, &context));
}

static const struct unit_test tests[] = {
	UNIT(test_types_are_listed_once),
	UNIT(test_events_are_numbered_and_the_oldest_go_first),
	UNIT(test_an_unregistered_type_is_not_sent),
	UNIT_END,
};

UNIT_MAIN("rpc_notify", tests, NULL, NULL)

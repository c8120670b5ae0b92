/* SPDX-License-Identifier: BSD-3-Clause */
/* Owners: ids, descriptions, and when an id is used again. */
#include "unittest/trace/fixture.h"

static struct trace_file_owner owner(uint16_t id)
{
	size_t size;
	uint8_t *file = fixture_read(trace_file_path(), &size);
	const struct trace_file_owner_section *s = fixture_section(file, TRACE_SECTION_OWNER);
	struct trace_file_owner o = ((const struct trace_file_owner *)(s + 1))[id];

	free(file);
	return o;
}

static void test_owner_has_a_type_a_description_and_a_time(void)
{
	fixture_start(64);
	uint64_t before = ticks_now();
	uint16_t id = trace_owner_register(TRACE_OWNER_BDEV, "Malloc0");
	CU_ASSERT_NOT_EQUAL(id, 0);
	struct trace_file_owner o = owner(id);
	CU_ASSERT_EQUAL(o.type, 2);
	CU_ASSERT_STRING_EQUAL(o.description, "Malloc0");
	CU_ASSERT(o.tsc > before && o.tsc < ticks_now());
	fixture_stop();
}

static void test_long_description_is_cut(void)
{
	char text[300];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	fixture_start(64);
	uint16_t id = trace_owner_register(TRACE_OWNER_NVMF_RDMA_QP, text);
	struct trace_file_owner o = owner(id);
	CU_ASSERT_EQUAL(strnlen(o.description, sizeof(o.description)), sizeof(o.description) - 1);
	fixture_stop();
}

static void test_updated_owner_keeps_its_time(void)
{
	fixture_start(64);
	uint16_t id = trace_owner_register(TRACE_OWNER_BDEV, "a very long first name");
	uint64_t tsc = owner(id).tsc;
	trace_owner_update(id, "short");
	struct trace_file_owner o = owner(id);
	CU_ASSERT_STRING_EQUAL(o.description, "short");
	CU_ASSERT_EQUAL(o.description[sizeof("short") + 3], '\0');
	CU_ASSERT_EQUAL(o.tsc, tsc);
	CU_ASSERT_EQUAL(o.type, TRACE_OWNER_BDEV);
	fixture_stop();
}

static void test_released_owner_stays_in_the_file(void)
{
	fixture_start(64);
	uint16_t id = trace_owner_register(TRACE_OWNER_BDEV, "gone");
	trace_owner_release(id);
	trace_owner_update(id, "not any more");
	CU_ASSERT_STRING_EQUAL(owner(id).description, "gone");
	CU_ASSERT_NOT_EQUAL(trace_owner_register(TRACE_OWNER_BDEV, "next"), id);
	fixture_stop();
}

static void test_ids_are_reused_as_late_as_possible(void)
{
	fixture_start(64);
	uint16_t first = trace_owner_register(TRACE_OWNER_BDEV, "first");
	trace_owner_release(first);
	for (unsigned i = 0; i < TRACE_NUM_OWNERS - 2; i++) {
		uint16_t id = trace_owner_register(TRACE_OWNER_BDEV, "churn");
		CU_ASSERT(id != 0 && id != first);
		trace_owner_release(id);
	}
	CU_ASSERT_EQUAL(trace_owner_register(TRACE_OWNER_BDEV, "first again"), first);
	fixture_stop();
}

static void test_full_table_gives_no_id_and_counts(void)
{
	struct trace_file_loss loss;

	fixture_start(64);
	for (unsigned i = 1; i < TRACE_NUM_OWNERS; i++) {
		CU_ASSERT_NOT_EQUAL_FATAL(trace_owner_register(TRACE_OWNER_BDEV, "all"), 0);
	}
	CU_ASSERT_EQUAL(trace_owner_register(TRACE_OWNER_BDEV, "one too many"), 0);
	trace_get_loss(&loss);
	CU_ASSERT_EQUAL(loss.owner_table_full, 1);
	trace_owner_release(77);
	CU_ASSERT_EQUAL(trace_owner_register(TRACE_OWNER_BDEV, "fits"), 77);
	fixture_stop();
}

static void test_releasing_twice_or_nobody_does_nothing(void)
{
	fixture_start(64);
	uint16_t id = trace_owner_register(TRACE_OWNER_BDEV, "x");
	trace_owner_release(id);
	trace_owner_release(id);
	trace_owner_release(0);
	trace_owner_release(UINT16_MAX);
	for (unsigned i = 1; i < TRACE_NUM_OWNERS; i++) {
		CU_ASSERT_NOT_EQUAL_FATAL(trace_owner_register(TRACE_OWNER_BDEV, "all"), 0);
	}
	CU_ASSERT_EQUAL(trace_owner_register(TRACE_OWNER_BDEV, "one too many"), 0);
	fixture_stop();
}

static const struct unit_test tests[] = {
	UNIT(test_owner_has_a_type_a_description_and_a_time),
	UNIT(test_long_description_is_cut),
	UNIT(test_updated_owner_keeps_its_time),
	UNIT(test_released_owner_stays_in_the_file),
	UNIT(test_ids_are_reused_as_late_as_possible),
	UNIT(test_full_table_gives_no_id_and_counts),
	UNIT(test_releasing_twice_or_nobody_does_nothing),
	UNIT_END,
};
UNIT_MAIN("trace_owner", tests, fixture_setup, fixture_teardown)

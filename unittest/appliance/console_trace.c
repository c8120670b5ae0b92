/* SPDX-License-Identifier: BSD-3-Clause */
/* Looks at the recorder's own rings: which events are shown, and that whole lives come with them. */
#include "appliance/console_trace_look.h"

#include "trace/record.h"
#include "unittest/trace/fixture.h"

#define SECRET UINT64_C(0x0123456789abcdef)

static struct look_result result;

/* A request over TCP, and the I/O on a bdev that it begins. */
static void record_io(uint16_t qpair, uint16_t bdev, uint64_t n)
{
	uint64_t request = UINT64_C(0x7f0000001000) + n * 64, io = UINT64_C(0x7f0000800000) + n * 64;

	TRACE(TCP_REQ_NEW, qpair, 4096, request, 1);
	TRACE(BDEV_IO_START, bdev, 8, io, 1, (const void *)request, n, 1);
	TRACE(BDEV_IO_DONE, bdev, 0, io, (const void *)request, 0, 0);
	TRACE(TCP_REQ_COMPLETED, qpair, 4096, request, 0);
}

static const struct look_result *look(int group, const char *text, uint64_t secret)
{
	struct console_trace_query q = {.group = group};

	snprintf(q.text, sizeof(q.text), "%s", text);
	look_take(trace_file_path(), &q, secret, &result);
	CU_ASSERT_STRING_EQUAL(result.error, "");
	return &result;
}

static size_t count_shown(const struct look_result *r)
{
	size_t n = 0;

	for (size_t i = 0; i < r->n; i++) {
		n += r->events[i].shown;
	}
	return n;
}

static size_t count_family(const struct look_result *r, uint32_t family)
{
	size_t n = 0;

	for (size_t i = 0; i < r->n; i++) {
		n += r->events[i].family == family;
	}
	return n;
}

static void test_what_is_shown_comes_with_its_whole_life(void)
{
	fixture_start(4096);
	uint16_t qpair = trace_owner_register(TRACE_OWNER_NVMF_TCP_QP, "qid 1");
	uint16_t a = trace_owner_register(TRACE_OWNER_BDEV, "Disk A"), b = trace_owner_register(TRACE_OWNER_BDEV, "B");

	record_io(qpair, a, 1);
	record_io(qpair, b, 2);
	const struct look_result *r = look(TRACE_GROUP_BDEV, "disk a", SECRET);
	CU_ASSERT_EQUAL_FATAL(r->n, 4);
	CU_ASSERT_EQUAL(r->matching, 2);
	CU_ASSERT_EQUAL(count_shown(r), 2);
	CU_ASSERT_STRING_EQUAL(r->events[0].tpoint, "TCP_REQ_NEW");
	CU_ASSERT_STRING_EQUAL(r->events[1].tpoint, "BDEV_IO_START");
	CU_ASSERT_STRING_EQUAL(r->events[1].owner, "Disk A");
	CU_ASSERT_STRING_EQUAL(r->events[1].thread, "reactor_0");
	CU_ASSERT_STRING_EQUAL(r->events[1].args, "type: 1, offset: 1, qd: 1");
	CU_ASSERT_STRING_EQUAL(r->events[1].parent, r->events[0].object);
	CU_ASSERT_STRING_EQUAL(r->events[1].object, r->events[2].object);
	CU_ASSERT(!r->events[0].shown && r->events[1].shown);
	CU_ASSERT(r->events[0].at_ns == 0 && r->events[1].at_ns <= r->events[2].at_ns && r->events[3].at_ns > 0);
	CU_ASSERT(r->events[1].state_ns == TRACE_NO_TIME && r->events[2].state_ns != TRACE_NO_TIME);
	CU_ASSERT(r->events[0].family != LOOK_NO_FAMILY);
	CU_ASSERT_EQUAL(count_family(r, r->events[0].family), 4);
	CU_ASSERT_EQUAL(look(-1, "", SECRET)->n, 8);
	CU_ASSERT_EQUAL(look(TRACE_GROUP_BDEV, "tcp_req", SECRET)->n, 0);
	CU_ASSERT_EQUAL(look(-1, "tcp_req", SECRET)->matching, 4);
	fixture_stop();
}

/* An object has the same name in each look, which tells nothing of its address without the secret. */
static void test_objects_have_names_and_no_addresses(void)
{
	char first[12];

	fixture_start(4096);
	record_io(0, 0, 1);
	snprintf(first, sizeof(first), "%s", look(TRACE_GROUP_BDEV, "", SECRET)->events[1].object);
	CU_ASSERT(strlen(first) == 7 && first[0] == 'i');
	CU_ASSERT_STRING_EQUAL(look(TRACE_GROUP_BDEV, first, SECRET)->events[1].object, first);
	CU_ASSERT_STRING_NOT_EQUAL(look(TRACE_GROUP_BDEV, "", SECRET + 1)->events[1].object, first);
	/* The request of this I/O was not recorded, so it is no parent, and its address is an argument. */
	TRACE(BDEV_IO_START, 0, 8, UINT64_C(0x7f0000900000), 1, (const void *)UINT64_C(0x7f00deadbeef), 7, 1);
	const struct look_result *r = look(TRACE_GROUP_BDEV, "", SECRET);
	const struct look_event *last = &r->events[r->n - 1];
	CU_ASSERT_STRING_EQUAL(last->parent, "");
	CU_ASSERT_PTR_NOT_NULL(strstr(last->args, "ctx: x"));
	CU_ASSERT_PTR_NULL(strstr(last->args, "deadbeef"));
	fixture_stop();
}

static void test_a_look_has_the_newest_and_whole_families_alone(void)
{
	fixture_start(4096);
	for (uint64_t n = 0; n < 500; n++) {
		record_io(0, 0, n);
	}
	const struct look_result *r = look(TRACE_GROUP_BDEV, "", SECRET);
	CU_ASSERT_EQUAL(count_shown(r), LOOK_SHOWN_MAX);
	CU_ASSERT_EQUAL(r->matching, 1000);
	CU_ASSERT_EQUAL_FATAL(r->n, 2 * LOOK_SHOWN_MAX);
	CU_ASSERT_STRING_EQUAL(r->events[r->n - 3].args, "type: 1, offset: 499, qd: 1");
	for (size_t i = 0; i < r->n; i++) {
		CU_ASSERT_EQUAL(count_family(r, r->events[i].family), 4);
		CU_ASSERT(i == 0 || r->events[i - 1].tsc <= r->events[i].tsc);
	}
	/* One request with so many events that there is no room for them all. */
	TRACE(TCP_REQ_NEW, 0, 4096, 64, 1);
	for (uint64_t n = 0; n < LOOK_EVENTS_MAX; n++) {
		TRACE(TCP_REQ_COMPLETED, 0, 4096, 64, 0);
	}
	r = look(-1, "", SECRET);
	CU_ASSERT_EQUAL(count_shown(r), LOOK_SHOWN_MAX);
	CU_ASSERT_EQUAL(count_family(r, LOOK_NO_FAMILY), LOOK_SHOWN_MAX);
	fixture_stop();
}

static void test_a_file_that_cannot_be_read_is_told(void)
{
	struct console_trace_query q = {.group = -1};

	look_take("/nonexistent/trace", &q, SECRET, &result);
	CU_ASSERT_PTR_NOT_NULL(strstr(result.error, "No such file"));
	CU_ASSERT_EQUAL(result.n, 0);
}

static const struct unit_test tests[] = {
	UNIT(test_what_is_shown_comes_with_its_whole_life),
	UNIT(test_objects_have_names_and_no_addresses),
	UNIT(test_a_look_has_the_newest_and_whole_families_alone),
	UNIT(test_a_file_that_cannot_be_read_is_told),
	UNIT_END,
};
UNIT_MAIN("appliance_console_trace", tests, fixture_setup, fixture_teardown)

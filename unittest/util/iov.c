/* SPDX-License-Identifier: BSD-3-Clause */
#include "unittest/unit.h"
#include "util/compiler.h"
#include "util/iov.h"

static char text[] = "abcdefghij";
/* "abc" "" "d" "" "" "efghij" */
static struct iovec list[] = {{text, 3}, {text, 0}, {text + 3, 1}, {NULL, 0}, {text + 4, 0}, {text + 4, 6}};
#define LENGTH 10u

static void setup(void)
{
	memcpy(text, "abcdefghij", LENGTH);
}

static void test_length_is_the_sum(void)
{
	CU_ASSERT_EQUAL(iov_length(list, ARRAY_SIZE(list)), LENGTH);
	CU_ASSERT_EQUAL(iov_length(list, 0), 0);
	CU_ASSERT_EQUAL(iov_length(NULL, 0), 0);
}

static void test_every_slice_of_a_list_has_its_bytes(void)
{
	for (size_t from = 0; from <= LENGTH; from++) {
		for (size_t n = 0; n <= LENGTH - from; n++) {
			struct iov_cursor c = iov_cursor_at(list, from), again = c, third = c;
			struct iovec out[3];
			char copy[LENGTH + 1] = "";
			size_t bytes = n;

			setup();
			uint32_t count = iov_slice(&c, out, ARRAY_SIZE(out), &bytes);
			CU_ASSERT_EQUAL(bytes, n);
			CU_ASSERT_EQUAL(iov_length(out, count), n);
			for (uint32_t i = 0; i < count; i++) {
				CU_ASSERT_NOT_EQUAL(out[i].iov_len, 0);
			}
			iov_to_buffer(&again, copy, n);
			CU_ASSERT_EQUAL(memcmp(copy, text + from, n), 0);
			/* all cursors are behind the same bytes */
			iov_skip(&third, n);
			CU_ASSERT_EQUAL(iov_length(third.iov, (uint32_t)(list + ARRAY_SIZE(list) - third.iov)) -
						third.offset,
					LENGTH - from - n);
			if (from + n < LENGTH) {
				size_t a = 1, b = 1, d = 1;
				CU_ASSERT_PTR_EQUAL(iov_next(&c, &a), text + from + n);
				CU_ASSERT_PTR_EQUAL(iov_next(&again, &b), text + from + n);
				CU_ASSERT_PTR_EQUAL(iov_next(&third, &d), text + from + n);
			}
		}
	}
}

static void test_a_slice_with_too_few_iovs_says_how_far_it_came(void)
{
	struct iov_cursor c = iov_cursor_at(list, 1);
	struct iovec out[2];
	size_t bytes = 9;

	CU_ASSERT_EQUAL(iov_slice(&c, out, 2, &bytes), 2);
	CU_ASSERT_EQUAL(bytes, 3); /* "bc" "d" */
	bytes = 6;
	CU_ASSERT_EQUAL(iov_slice(&c, out, 2, &bytes), 1);
	CU_ASSERT_EQUAL(bytes, 6);
	CU_ASSERT_PTR_EQUAL(out[0].iov_base, text + 4);
	CU_ASSERT_EQUAL(iov_slice(&c, out, 0, &bytes), 0);
	CU_ASSERT_EQUAL(bytes, 0);
}

static void test_next_gives_no_more_than_asked_for(void)
{
	struct iov_cursor c = iov_cursor_at(list, 0);
	size_t n = 2;

	CU_ASSERT_PTR_EQUAL(iov_next(&c, &n), text);
	CU_ASSERT_EQUAL(n, 2);
	n = 5;
	CU_ASSERT_PTR_EQUAL(iov_next(&c, &n), text + 2);
	CU_ASSERT_EQUAL(n, 1);
}

static void test_bytes_written_are_those_between(void)
{
	struct iov_cursor c = iov_cursor_at(list, 2);

	setup();
	iov_from_buffer(&c, "CDE", 3);
	CU_ASSERT_STRING_EQUAL(text, "abCDEfghij");
	iov_fill(&c, '-', 2);
	CU_ASSERT_STRING_EQUAL(text, "abCDE--hij");
	iov_fill(&c, '-', 0);
	CU_ASSERT_STRING_EQUAL(text, "abCDE--hij");
}

static void test_each_different_byte_is_seen(void)
{
	for (size_t i = 0; i < LENGTH; i++) {
		struct iov_cursor c = iov_cursor_at(list, 0), same = c;
		char other[LENGTH];

		setup();
		memcpy(other, text, LENGTH);
		CU_ASSERT_TRUE(iov_equals_buffer(&same, other, LENGTH));
		other[i] ^= 1;
		CU_ASSERT_FALSE(iov_equals_buffer(&c, other, LENGTH));
		c = iov_cursor_at(list, 0);
		CU_ASSERT_TRUE(iov_equals_buffer(&c, other, i));
	}
}

static const struct unit_test tests[] = {
	UNIT(test_length_is_the_sum),
	UNIT(test_every_slice_of_a_list_has_its_bytes),
	UNIT(test_a_slice_with_too_few_iovs_says_how_far_it_came),
	UNIT(test_next_gives_no_more_than_asked_for),
	UNIT(test_bytes_written_are_those_between),
	UNIT(test_each_different_byte_is_seen),
	UNIT_END,
};
UNIT_MAIN("iov", tests, NULL, NULL)

/* SPDX-License-Identifier: BSD-3-Clause */
/* Which name a misspelt word is nearest to. */
#include <string.h>

#include "unittest/unit.h"
#include "util/nearest.h"

static const char *const names[] = {"bdev_malloc_create",
				    "bdev_malloc_delete",
				    "bdev_null_create",
				    "nvmf_get_stats",
				    "nvmf_get_transports",
				    "name",
				    "nqn",
				    "id",
				    "RDMA_REQ_NEW",
				    "a"};

static const char *nearest_of(const char *word)
{
	struct nearest n;

	nearest_begin(&n, word);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		nearest_try(&n, names[i]);
	}
	return n.name != NULL ? n.name : "";
}

static void test_mistakes_of_few_letters_are_seen(void)
{
	CU_ASSERT_STRING_EQUAL(nearest_of("bdev_malloc_craete"), "bdev_malloc_create");
	CU_ASSERT_STRING_EQUAL(nearest_of("bdev_maloc_create"), "bdev_malloc_create");
	CU_ASSERT_STRING_EQUAL(nearest_of("bdev_malloc_deletee"), "bdev_malloc_delete");
	CU_ASSERT_STRING_EQUAL(nearest_of("nvmf_get_stat"), "nvmf_get_stats");
	CU_ASSERT_STRING_EQUAL(nearest_of("nmae"), "name");
	CU_ASSERT_STRING_EQUAL(nearest_of("nqm"), "nqn");
	CU_ASSERT_STRING_EQUAL(nearest_of("rdma_req_new"), "RDMA_REQ_NEW");
	CU_ASSERT_STRING_EQUAL(nearest_of("name"), "name");
}

static void test_parts_in_another_order_are_seen(void)
{
	CU_ASSERT_STRING_EQUAL(nearest_of("bdev_create_malloc"), "bdev_malloc_create");
	CU_ASSERT_STRING_EQUAL(nearest_of("nvmf_transports_get"), "nvmf_get_transports");
	CU_ASSERT_STRING_EQUAL(nearest_of("nvmf_transports_get_get"), "");
}

static void test_what_is_far_is_not_proposed(void)
{
	CU_ASSERT_STRING_EQUAL(nearest_of("bdev_aio_rescan"), "");
	CU_ASSERT_STRING_EQUAL(nearest_of("xy"), "");
	CU_ASSERT_STRING_EQUAL(nearest_of("ie"), "");
	CU_ASSERT_STRING_EQUAL(nearest_of("namely"), "name");
	CU_ASSERT_STRING_EQUAL(nearest_of("mane"), "");
	CU_ASSERT_STRING_EQUAL(nearest_of(""), "");
}

static void test_long_words_are_left_alone(void)
{
	char word[200];
	struct nearest n;

	for (size_t len = 60; len < sizeof(word); len += 1) {
		memset(word, 'a', len);
		word[len] = '\0';
		CU_ASSERT_STRING_EQUAL(nearest_of(word), "");
	}
	memset(word, '_', 60);
	word[60] = '\0';
	nearest_begin(&n, "_________________");
	nearest_try(&n, word);
	CU_ASSERT_PTR_NULL(n.name);
	word[199] = '\0';
	nearest_begin(&n, "name");
	memset(word, 'n', 199);
	nearest_try(&n, word);
	CU_ASSERT_PTR_NULL(n.name);
}

static void test_sentence_ends_with_a_question(void)
{
	char text[NEAREST_TEXT_MAX];
	struct nearest n;

	nearest_begin(&n, "nmae");
	CU_ASSERT_STRING_EQUAL(nearest_format(&n, text, sizeof(text)), "");
	nearest_try(&n, "name");
	CU_ASSERT_STRING_EQUAL(nearest_format(&n, text, sizeof(text)), "; did you mean \"name\"?");
	CU_ASSERT_STRING_EQUAL(nearest_format(&n, text, 8), "; did y");
}

static const struct unit_test tests[] = {
	UNIT(test_mistakes_of_few_letters_are_seen), UNIT(test_parts_in_another_order_are_seen),
	UNIT(test_what_is_far_is_not_proposed),      UNIT(test_long_words_are_left_alone),
	UNIT(test_sentence_ends_with_a_question),    UNIT_END,
};
UNIT_MAIN("util_nearest", tests, NULL, NULL)

/* SPDX-License-Identifier: BSD-3-Clause */
/* The reference page in the tree is the one that tracepoints.def gives. */
#include "trace/trace_def.h"
#include "unittest/unit.h"

static char *read_all(FILE *f, size_t *size)
{
	char *text = malloc(1 << 20);

	CU_ASSERT_PTR_NOT_NULL_FATAL(text);
	*size = fread(text, 1, 1 << 20, f);
	return text;
}

static void test_reference_page_is_up_to_date(void)
{
	size_t expected_size, size;
	FILE *expected_file = tmpfile(), *file = fopen(SOURCE_DIR "/doc/tracepoints.md", "r");

	CU_ASSERT_PTR_NOT_NULL_FATAL(expected_file);
	if (file == NULL) {
		UNIT_SKIP("the source tree is not here");
	}
	trace_print_reference(expected_file);
	rewind(expected_file);
	char *expected = read_all(expected_file, &expected_size), *text = read_all(file, &size);
	bool same = size == expected_size && memcmp(text, expected, size) == 0;
	CU_ASSERT_TRUE(same);
	if (!same) {
		printf("doc/tracepoints.md is out of date: build/trace/tracepoints-page > "
		       "doc/tracepoints.md\n");
	}
	free(expected);
	free(text);
	fclose(expected_file);
	fclose(file);
}

static void test_every_tracepoint_has_a_group_and_fits(void)
{
	for (unsigned id = 0; id < TRACE_NUM_TPOINTS; id++) {
		const struct trace_tpoint_info *t = trace_tpoint_info(id);
		if (t == NULL) {
			continue;
		}
		CU_ASSERT_PTR_NOT_NULL(trace_group_info(id / TRACE_TPOINTS_PER_GROUP));
		CU_ASSERT_PTR_NOT_NULL(trace_owner_types[t->def.owner_type].name);
		CU_ASSERT_PTR_NOT_NULL(trace_object_types[t->def.object_type].name);
		CU_ASSERT(!t->def.new_object || t->def.object_type != 0);
		for (unsigned a = 0; a < t->def.num_args; a++) {
			CU_ASSERT_NOT_EQUAL(t->def.args[a].size, 0);
			CU_ASSERT_EQUAL(t->def.args[a].name[TRACE_ARG_NAME_SIZE - 1], '\0');
		}
	}
}

static void test_relations_name_an_argument(void)
{
	for (size_t i = 0; i < trace_num_relations; i++) {
		const struct trace_tpoint_info *t = trace_tpoint_info(trace_relations[i].tpoint_id);
		CU_ASSERT_PTR_NOT_NULL_FATAL(t);
		CU_ASSERT(trace_relations[i].relation.arg_index < t->def.num_args);
		CU_ASSERT_EQUAL(t->def.args[trace_relations[i].relation.arg_index].size, 8);
	}
}

static const struct unit_test tests[] = {
	UNIT(test_reference_page_is_up_to_date),
	UNIT(test_every_tracepoint_has_a_group_and_fits),
	UNIT(test_relations_name_an_argument),
	UNIT_END,
};
UNIT_MAIN("tracepoints", tests, NULL, NULL)

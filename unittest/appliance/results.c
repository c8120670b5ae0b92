/* SPDX-License-Identifier: BSD-3-Clause */
/* Every method that the daemon has says what it answers (RPC_METHOD's .result), in the notation of rpc/rpc.h. Linked
 * with all of the daemon but its main(). */
#include <stdio.h>
#include <string.h>

#include "bdev/module.h"
#include "rpc/registry.h"
#include "rpc_methods/bdev_module.h"
#include "unittest/unit.h"

/* Brackets close in the order they were opened. */
static bool is_balanced(const char *shape)
{
	char open[32];
	size_t depth = 0;

	for (; *shape != '\0'; shape++) {
		if (strchr("{[", *shape) != NULL) {
			if (depth == sizeof(open)) {
				return false;
			}
			open[depth++] = *shape == '{' ? '}' : ']';
		} else if (strchr("}]", *shape) != NULL && (depth == 0 || open[--depth] != *shape)) {
			return false;
		}
	}
	return depth == 0;
}

static void test_every_result_has_a_shape_that_can_be_read(void)
{
	unsigned n = 0;

	for (const struct rpc_method *m = NULL; (m = rpc_method_next(m)) != NULL; n++) {
		if (!is_balanced(m->result)) {
			fprintf(stderr, "%s: brackets do not match: %s\n", m->name, m->result);
			CU_FAIL("a shape that cannot be read");
		}
	}
	CU_ASSERT_TRUE(n > 100);
	CU_ASSERT_PTR_NOT_NULL(rpc_method_find("spdk_kill_instance")); /* appliance */
	CU_ASSERT_PTR_NOT_NULL(rpc_method_find("bdev_malloc_create")); /* rpc */
}

static void test_every_module_of_block_devices_saves_what_it_has(void)
{
	unsigned n = 0;

	for (const struct bdev_module *m = NULL; (m = bdev_module_next(m)) != NULL; n++) {
		if (rpc_bdev_config_find(m->name) == NULL) {
			fprintf(stderr, "module %s lacks an RPC_BDEV_CONFIG\n", m->name);
			CU_FAIL("bdevs that cannot be saved");
		}
	}
	CU_ASSERT_TRUE(n >= 3);
}

static const struct unit_test tests[] = {
	UNIT(test_every_result_has_a_shape_that_can_be_read),
	UNIT(test_every_module_of_block_devices_saves_what_it_has),
	UNIT_END,
};

UNIT_MAIN("appliance_results", tests, NULL, NULL)

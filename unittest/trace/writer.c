/* SPDX-License-Identifier: BSD-3-Clause */
/* trace-writer: records TEST_AGREE on two lcores as fast as it can, until it is killed, and says where. For tests of
 * readers. */
#include <stdio.h>

#include <rte_eal.h>
#include <rte_launch.h>
#include <rte_lcore.h>

#include "trace/trace.h"

static int record(void *arg)
{
	char name[16];

	snprintf(name, sizeof(name), "reactor_%u", rte_lcore_id());
	if (trace_thread_attach(rte_lcore_id(), name) != 0) {
		return 1;
	}
	for (uint64_t seq = 1;; seq++) {
		TRACE(TEST_AGREE, 0, (uint32_t)seq, 3 * seq, seq, ~seq, (uint32_t)seq, seq + 1);
	}
}

int main(void)
{
	char *argv[] = {"trace-writer", "--no-huge",      "--no-shconf",          "--no-telemetry", "--no-pci", "-m",
			"32",           "--iova-mode=va", "--lcores=(0,1)@(0-1)", "--log-level=4",  NULL};
	struct trace_opts opts = {.name = "writer", .instance_id = -1, .num_entries = 16384};
	char error[TRACE_ERROR_MAX];

	if (rte_eal_init(sizeof(argv) / sizeof(argv[0]) - 1, argv) < 0 || trace_start(&opts, error) != 0) {
		return 1;
	}
	trace_set_tpoints(TRACE_GROUP_TEST, UINT64_MAX);
	rte_eal_remote_launch(record, NULL, 1);
	printf("%s\n", trace_file_path());
	fflush(stdout);
	return record(NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* varve-usdt-names: what scripts/bpftrace.sh puts around a script, from the definitions that the daemon is built of.
 *
 *     varve-usdt-names TABLE...	a BEGIN block that fills bpftrace maps of these names with the names of numbers,
 * and an END block that empties them, and those of names that begin with _; other words are ignored varve-usdt-names
 * the tables there are varve-usdt-names --tsc-khz	the rate of the TSC, the unit of every probe's arg0 */
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "appliance/lifecycle.h"
#include "bdev/bdev.h"
#include "nvme/nvme.h"
#include "nvmf/nvmf.h"
#include "trace/trace.h"
#include "util/compiler.h"
#include "util/output.h"
#include "util/ticks.h"

#define RDMA_REQ_FREE_NUMBER 31 /* a state without a tracepoint; see nvmf_rdma/internal.h */

/* The numbers of a request's states are those of their tracepoints: "RDMA_REQ_EXECUTING". */
static const char *rdma_req_state_name(unsigned n)
{
	const struct trace_tpoint_info *t =
		trace_tpoint_info(TRACE_TPOINT_RDMA_REQ_NEW / TRACE_TPOINTS_PER_GROUP * TRACE_TPOINTS_PER_GROUP + n);

	if (t == NULL) {
		return n == RDMA_REQ_FREE_NUMBER ? "FREE" : NULL;
	}
	return strncmp(t->def.name, "RDMA_REQ_", 9) == 0 ? t->def.name + 9 : NULL;
}

/* table, function that names a number (or gives NULL), how many numbers */
#define TABLES(TABLE)                                                                                                  \
	TABLE(bdev_io_type, bdev_io_type_name, BDEV_IO_TYPES)                                                          \
	TABLE(nvme_ctrlr, nvme_ctrlr_state_name, NVME_CTRLR_STATES)                                                    \
	TABLE(nvme_qpair, nvme_qpair_state_name, NVME_QPAIR_STATES)                                                    \
	TABLE(nvmf_tgt, nvmf_tgt_state_name, NVMF_TGT_STATES)                                                          \
	TABLE(nvmf_subsystem, nvmf_subsystem_state_name, NVMF_SUBSYSTEM_STATES)                                        \
	TABLE(nvmf_ctrlr, nvmf_ctrlr_state_name, NVMF_CTRLR_STATES)                                                    \
	TABLE(rdma_req_state, rdma_req_state_name, TRACE_TPOINTS_PER_GROUP)                                            \
	TABLE(nvmf_auth, nvmf_auth_state_name, NVMF_AUTH_STATES)                                                       \
	TABLE(nvmf_qpair, nvmf_qpair_state_name, NVMF_QPAIR_STATES)                                                    \
	TABLE(appliance, appliance_state_name, APPLIANCE_STATES)

#define TABLE_NAME(table_, name_, count_)                                                                              \
	static const char *table_name_##table_(unsigned n)                                                             \
	{                                                                                                              \
		return name_(n);                                                                                       \
	}
TABLES(TABLE_NAME)

static const struct table {
	const char *name;
	const char *(*number_name)(unsigned n);
	unsigned count;
} tables[] = {
#define TABLE_LINE(table_, name_, count_) {#table_, table_name_##table_, count_},
	TABLES(TABLE_LINE)};
enum { NUM_TABLES = ARRAY_SIZE(tables) };

static bool names_is_wanted(const struct table *t, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], t->name) == 0) {
			return true;
		}
	}
	return false;
}

/* Scripts of old print names in capitals. */
static void names_print_table(const struct table *t)
{
	for (unsigned n = 0; n < t->count; n++) {
		const char *name = t->number_name(n);
		if (name == NULL) {
			continue;
		}
		printf("\t@%s[%u] = \"", t->name, n);
		for (; *name != '\0'; name++) {
			putchar(*name == '"' || *name == '\\' ? '_' : toupper((unsigned char)*name));
		}
		printf("\";\n");
	}
}

static void names_print_blocks(int argc, char **argv)
{
	printf("BEGIN\n{\n");
	for (unsigned i = 0; i < NUM_TABLES; i++) {
		if (names_is_wanted(&tables[i], argc, argv)) {
			names_print_table(&tables[i]);
		}
	}
	printf("}\n\nEND\n{\n");
	for (unsigned i = 0; i < NUM_TABLES; i++) {
		if (names_is_wanted(&tables[i], argc, argv)) {
			printf("\tclear(@%s);\n", tables[i].name);
		}
	}
	for (int i = 1; i < argc; i++) {
		if (argv[i][0] == '_') {
			printf("\tclear(@%s);\n", argv[i]);
		}
	}
	printf("}\n\n");
}

static uint64_t monotonic_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_RAW, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void names_print_tsc_khz(void)
{
	uint64_t ns = monotonic_ns(), ticks = ticks_now(), now;

	do {
		now = monotonic_ns();
	} while (now - ns < 50000000);
	printf("%llu\n", (unsigned long long)((ticks_now() - ticks) * 1000000 / (now - ns)));
}

int main(int argc, char **argv)
{
	output_guard("varve-usdt-names", 1);
	if (argc == 2 && strcmp(argv[1], "--tsc-khz") == 0) {
		names_print_tsc_khz();
	} else if (argc > 1) {
		names_print_blocks(argc, argv);
	} else {
		for (unsigned i = 0; i < NUM_TABLES; i++) {
			printf("%s\n", tables[i].name);
		}
	}
	return 0;
}

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

/* table, function that names a number (or gives NULL), how many numbers */
#define TABLES(TABLE)                                                                                                  \
	TABLE(bdev_io_type, bdev_io_type_name, BDEV_IO_TYPES)                                                          \
	TABLE(nvme_ctrlr, nvme_ctrlr_state_name, NVME_CTRLR_STATES)                                                    \
	TABLE(nvme_qpair, nvme_qpair_state_name, NVME_QPAIR_STATES)                                                    \
	TABLE(nvmf_tgt, nvmf_tgt_state_name, NVMF_TGT_STATES)                                                          \
	TABLE(nvmf_subsystem, nvmf_subsystem_state_name, NVMF_SUBSYSTEM_STATES)                                        \
	TABLE(nvmf_ctrlr, nvmf_ctrlr_state_name, NVMF_CTRLR_STATES)                                                    \
	TABLE(nvmf_auth, nvmf_auth_state_name, NVMF_AUTH_STATES)                                                       \
	TABLE(nvmf_qpair, nvmf_qpair_state_name, NVMF_QPAIR_STATES)                                                    \
	TABLE(appliance, appliance_state_name, APPLIANCE_STATES)

#define TABLE_NAME(table_, name_, count_)                                                                              \
	static const char *table_name_##table_(unsigned n)                                                             \
	{                                                                                                              \
		return name_(n);                                                                                       \
	}
TABLES(TABLE_NAME)

#define MAX_NAME 64
struct table {
	char name[MAX_NAME];
	const char *(*number_name)(unsigned n); /* NULL: of a transport's requests, as the next two say */
	unsigned count;
	unsigned group;        /* of tracepoints */
	char prefix[MAX_NAME]; /* of those that are states */
};

static struct table tables[32] = {
#define TABLE_LINE(table_, name_, count_) {#table_, table_name_##table_, count_},
	TABLES(TABLE_LINE)};

static unsigned names_count_tables(void)
{
	unsigned n = 0;

	while (n < ARRAY_SIZE(tables) && tables[n].name[0] != '\0') {
		n++;
	}
	return n;
}

/* Adds a table for the requests of each transport that has tracepoints: "rdma_req_state" for those that begin with
 * RDMA_REQ_NEW. Every transport names the first tracepoint of its requests like that (nvmf/transport.h). */
static void names_add_request_tables(void)
{
	static const char suffix[] = "_REQ_NEW";
	unsigned n = names_count_tables();

	for (unsigned group = 0; group < TRACE_NUM_GROUPS && n < ARRAY_SIZE(tables); group++) {
		const struct trace_tpoint_info *t = trace_tpoint_info(group * TRACE_TPOINTS_PER_GROUP);
		size_t len = t != NULL ? strlen(t->def.name) : 0;

		if (len < sizeof(suffix) || strcmp(t->def.name + len - (sizeof(suffix) - 1), suffix) != 0) {
			continue;
		}
		struct table *table = &tables[n++];
		table->group = group;
		table->count = TRACE_TPOINTS_PER_GROUP;
		snprintf(table->prefix, sizeof(table->prefix), "%.*s", (int)(len - strlen("NEW")), t->def.name);
		snprintf(table->name, sizeof(table->name), "%.*sstate", MAX_NAME - 8, table->prefix);
		for (char *c = table->name; *c != '\0'; c++) {
			*c = (char)tolower((unsigned char)*c);
		}
	}
}

/* The numbers of a request's states are those of their tracepoints: "EXECUTING" for RDMA_REQ_EXECUTING. */
static const char *names_request_state(const struct table *table, unsigned n)
{
	const struct trace_tpoint_info *t = trace_tpoint_info(table->group * TRACE_TPOINTS_PER_GROUP + n);
	size_t len = strlen(table->prefix);

	if (t == NULL) {
		return n == NVMF_STATE_IDLE ? "FREE" : NULL;
	}
	return strncmp(t->def.name, table->prefix, len) == 0 ? t->def.name + len : NULL;
}

static const char *names_number_name(const struct table *table, unsigned n)
{
	return table->number_name != NULL ? table->number_name(n) : names_request_state(table, n);
}

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
		const char *name = names_number_name(t, n);
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
	for (unsigned i = 0; i < names_count_tables(); i++) {
		if (names_is_wanted(&tables[i], argc, argv)) {
			names_print_table(&tables[i]);
		}
	}
	printf("}\n\nEND\n{\n");
	for (unsigned i = 0; i < names_count_tables(); i++) {
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
	names_add_request_tables();
	if (argc == 2 && strcmp(argv[1], "--tsc-khz") == 0) {
		names_print_tsc_khz();
	} else if (argc > 1) {
		names_print_blocks(argc, argv);
	} else {
		for (unsigned i = 0; i < names_count_tables(); i++) {
			printf("%s\n", tables[i].name);
		}
	}
	return 0;
}

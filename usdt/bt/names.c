/* SPDX-License-Identifier: BSD-3-Clause */
/* varve-usdt-names: what scripts/bpftrace.sh makes of a script, from the definitions that the daemon is built of.
 *
 *     varve-usdt-names                          the tables of names there are
 *     varve-usdt-names --script FILE EXE PID    the script for process PID of program EXE, with the names of numbers in
 * the maps that are called after a table varve-usdt-names --tsc-khz                the rate of the TSC, the unit of
 * every probe's arg0 */
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "appliance/lifecycle.h"
#include "bdev/bdev.h"
#include "nvme/nvme.h"
#include "nvmf/nvmf.h"
#include "trace/trace.h"
#include "usdt/bt/script.h"
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
		snprintf(table->name, sizeof(table->name), "%.*sstate", (int)(len - strlen("NEW")), t->def.name);
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

/* What scripts for SPDK call two of the tables. Filled only for a script that uses the probe: the names are common
 * words. */
static const struct alias {
	const char *name, *table, *probe;
} aliases[] = {{"target", "nvmf_tgt", ":nvmf_tgt_state"}, {"subsystem", "nvmf_subsystem", "_change_state"}};

/* The maps of a script, each once. */
struct maps {
	char names[128][MAX_NAME];
	unsigned count;
};

static void maps_add(void *arg, const char *name, size_t len)
{
	struct maps *maps = arg;

	for (unsigned i = 0; i < maps->count; i++) {
		if (strlen(maps->names[i]) == len && memcmp(maps->names[i], name, len) == 0) {
			return;
		}
	}
	if (len < MAX_NAME && maps->count < ARRAY_SIZE(maps->names)) {
		memcpy(maps->names[maps->count], name, len);
		maps->names[maps->count++][len] = '\0';
	}
}

/* The table that a map is filled from; NULL: it is the script's own. */
static const struct table *names_table_of(const char *map, const char *text)
{
	for (size_t i = 0; i < ARRAY_SIZE(aliases); i++) {
		if (strcmp(map, aliases[i].name) == 0 && strstr(text, aliases[i].probe) != NULL) {
			map = aliases[i].table;
		}
	}
	for (unsigned i = 0; i < names_count_tables(); i++) {
		if (strcmp(map, tables[i].name) == 0) {
			return &tables[i];
		}
	}
	return NULL;
}

/* Scripts of old print names in capitals. */
static void names_print_table(FILE *out, const struct table *t, const char *map)
{
	for (unsigned n = 0; n < t->count; n++) {
		const char *name = names_number_name(t, n);
		if (name == NULL) {
			continue;
		}
		fprintf(out, "\n\t@%s[%u] = \"", map, n);
		for (; *name != '\0'; name++) {
			fputc(*name == '"' || *name == '\\' ? '_' : toupper((unsigned char)*name), out);
		}
		fprintf(out, "\";");
	}
}

/* The statements that fill the maps, and those that empty them, so that bpftrace does not print them at its end. */
static void names_print_statements(FILE *begin, FILE *end, const struct maps *maps, const char *text)
{
	for (unsigned i = 0; i < maps->count; i++) {
		const char *map = maps->names[i];
		const struct table *table = names_table_of(map, text);

		if (table != NULL) {
			names_print_table(begin, table, map);
		}
		if (table != NULL || map[0] == '_') {
			fprintf(end, "\n\tclear(@%s);", map);
		}
	}
	fputs("\n", begin);
	fputs("\n", end);
}

/* Returns the file's text; NULL with errno set. */
static char *names_read_file(const char *path)
{
	char *text = NULL;
	size_t size = 0;
	FILE *f = fopen(path, "r");

	if (f == NULL) {
		return NULL;
	}
	if (getdelim(&text, &size, '\0', f) < 0 && !ferror(f)) {
		free(text);
		text = strdup("");
	}
	fclose(f);
	return text;
}

static uint64_t monotonic_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_RAW, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static unsigned long long names_tsc_khz(void)
{
	uint64_t ns = monotonic_ns(), ticks = ticks_now(), now;

	do {
		now = monotonic_ns();
	} while (now - ns < 50000000);
	return (unsigned long long)((ticks_now() - ticks) * 1000000 / (now - ns));
}

static int names_print_script(const char *path, const char *exe, const char *pid)
{
	static struct maps maps;
	char khz[24] = "", *begin = NULL, *end = NULL;
	size_t size;
	char *text = names_read_file(path);
	FILE *begin_file = open_memstream(&begin, &size), *end_file = open_memstream(&end, &size);

	if (text == NULL || begin_file == NULL || end_file == NULL) {
		fprintf(stderr, "varve-usdt-names: %s: %s\n", path, strerror(errno));
		return 1;
	}
	if (strstr(text, "__TSC_KHZ__") != NULL) {
		snprintf(khz, sizeof(khz), "%llu", names_tsc_khz());
	}
	bt_script_maps(text, maps_add, &maps);
	names_print_statements(begin_file, end_file, &maps, text);
	if (fclose(begin_file) != 0 || fclose(end_file) != 0) {
		fprintf(stderr, "varve-usdt-names: %s: out of memory\n", path);
		return 1;
	}
	const struct bt_script script = {.exe = exe,
					 .pid = pid,
					 .tsc_khz = khz,
					 .begin = strcmp(begin, "\n") != 0 ? begin : "",
					 .end = strcmp(end, "\n") != 0 ? end : "",
					 .notes = stderr};
	bool any = bt_script_write(stdout, text, &script);

	if (!any) {
		fprintf(stderr, "varve-usdt-names: %s: no probe is left\n", path);
	}
	free(begin);
	free(end);
	free(text);
	return any ? 0 : 1;
}

int main(int argc, char **argv)
{
	output_guard("varve-usdt-names", 1);
	names_add_request_tables();
	if (argc == 2 && strcmp(argv[1], "--tsc-khz") == 0) {
		printf("%llu\n", names_tsc_khz());
	} else if (argc == 5 && strcmp(argv[1], "--script") == 0) {
		return names_print_script(argv[2], argv[3], argv[4]);
	} else if (argc > 1) {
		fprintf(stderr, "usage: varve-usdt-names [--script FILE EXE PID | --tsc-khz]\n");
		return 2;
	} else {
		for (unsigned i = 0; i < names_count_tables(); i++) {
			printf("%s\n", tables[i].name);
		}
	}
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The recorder's tests start a small EAL of two lcores (both on the CPUs there are), and a trace in a folder
 * of their own. */
#ifndef UNITTEST_TRACE_FIXTURE_H
#define UNITTEST_TRACE_FIXTURE_H

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rte_eal.h>

#include "trace/trace.h"
#include "unittest/unit.h"

static char fixture_dir[] = "/dev/shm/unit_trace_XXXXXX";

static inline int fixture_setup(void)
{
	char *argv[] = {"unit", "--no-huge",      "--no-shconf",        "--no-telemetry", "--no-pci", "-m",
			"32",   "--iova-mode=va", "--lcores=(0,2)@(0)", "--log-level=4",  NULL};

	if (mkdtemp(fixture_dir) == NULL) {
		return -1;
	}
	return rte_eal_init(sizeof(argv) / sizeof(argv[0]) - 1, argv) < 0 ? -1 : 0;
}

static inline int fixture_teardown(void)
{
	rmdir(fixture_dir);
	return rte_eal_cleanup();
}

static inline struct trace_opts fixture_opts(uint32_t num_entries)
{
	return (struct trace_opts){.name = "unit",
				   .version = "1.2.3",
				   .instance_id = -1,
				   .num_entries = num_entries,
				   .num_user_threads = 2,
				   .dir = fixture_dir};
}

/* Starts with everything enabled; the caller has lcore 0's ring. */
static inline void fixture_start(uint32_t num_entries)
{
	struct trace_opts opts = fixture_opts(num_entries);
	char error[TRACE_ERROR_MAX] = "";
	struct trace_masks all;

	CU_ASSERT_EQUAL_FATAL(trace_start(&opts, error), 0);
	CU_ASSERT_STRING_EQUAL(error, "");
	CU_ASSERT_EQUAL_FATAL(trace_spec_parse("all", &all, error), 0);
	CU_ASSERT_EQUAL_FATAL(trace_set_masks(&all), 0);
	CU_ASSERT_EQUAL_FATAL(trace_thread_attach(0, "reactor_0"), 0);
}

/* Stops, and removes the file if it was kept. */
static inline void fixture_stop(void)
{
	char path[4096] = "";

	if (trace_file_path() != NULL) {
		snprintf(path, sizeof(path), "%s", trace_file_path());
	}
	trace_stop();
	unlink(path);
}

/* The file as a reader finds it; free() it. */
static inline uint8_t *fixture_read(const char *path, size_t *size)
{
	struct stat st;
	int fd = open(path, O_RDONLY);
	uint8_t *bytes = NULL;

	CU_ASSERT_FATAL(fd >= 0);
	CU_ASSERT_EQUAL_FATAL(fstat(fd, &st), 0);
	*size = (size_t)st.st_size;
	bytes = malloc(*size);
	CU_ASSERT_PTR_NOT_NULL_FATAL(bytes);
	for (size_t done = 0; done < *size;) {
		ssize_t n = read(fd, bytes + done, *size - done);
		CU_ASSERT_FATAL(n > 0);
		done += (size_t)n;
	}
	close(fd);
	return bytes;
}

static inline const void *fixture_section(const uint8_t *file, unsigned section)
{
	return file + ((const struct trace_file_header *)(const void *)file)->section_offset[section];
}

static inline const struct trace_file_history *fixture_history(const uint8_t *file, unsigned slot)
{
	const struct trace_file_table *t = fixture_section(file, TRACE_SECTION_LCORE_OFFSETS);
	uint64_t offset = slot < t->count ? ((const uint64_t *)(t + 1))[slot] : 0;

	return offset != 0 ? (const void *)(file + offset) : NULL;
}

static inline const uint64_t *fixture_stamps(const uint8_t *file, unsigned slot)
{
	const struct trace_file_table *t = fixture_section(file, TRACE_SECTION_STAMPS);
	uint64_t offset = slot < t->count ? ((const uint64_t *)(t + 1))[slot] : 0;

	return offset != 0 ? (const void *)(file + offset) : NULL;
}

#endif

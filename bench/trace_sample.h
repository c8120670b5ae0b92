/* SPDX-License-Identifier: BSD-3-Clause */
/* Made-up traces of a busy target: RDMA reads served by a local NVMe drive, many at a time, one in so many slow in the
 * drive. The same arguments give the same file. */
#ifndef BENCH_TRACE_SAMPLE_H
#define BENCH_TRACE_SAMPLE_H

#include <stdint.h>

struct trace_sample {
	unsigned lcores;
	unsigned requests;   /* per lcore; each has TRACE_SAMPLE_EVENTS events */
	unsigned slow_every; /* one in so many requests is slow; 0: none */
	unsigned unfinished; /* so many requests of each lcore never come back from the drive */
};
enum { TRACE_SAMPLE_EVENTS = 16 };

/* Errors: those of trace_file_create(). */
int trace_sample_write(const char *path, const struct trace_sample *s);

#endif

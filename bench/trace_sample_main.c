/* SPDX-License-Identifier: BSD-3-Clause */
/* trace-sample FILE REQUESTS LCORES SLOW_EVERY UNFINISHED: writes a made-up trace, for tests of readers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/trace_sample.h"

int main(int argc, char **argv)
{
	if (argc != 6) {
		fprintf(stderr, "usage: trace-sample FILE REQUESTS_PER_LCORE LCORES SLOW_EVERY UNFINISHED\n");
		return 2;
	}
	struct trace_sample s = {.requests = (unsigned)atoi(argv[2]),
				 .lcores = (unsigned)atoi(argv[3]),
				 .slow_every = (unsigned)atoi(argv[4]),
				 .unfinished = (unsigned)atoi(argv[5])};
	int rc = trace_sample_write(argv[1], &s);

	if (rc != 0) {
		fprintf(stderr, "trace-sample: %s: %s\n", argv[1], strerror(-rc));
	}
	return rc != 0;
}

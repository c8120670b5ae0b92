/* SPDX-License-Identifier: BSD-3-Clause */
/* Benchmarks: several variants, run in turns (so that the machine's noise hits all alike), medians printed as
 * `name value unit`. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else
#define CALLGRIND_TOGGLE_COLLECT
#define CALLGRIND_DUMP_STATS_AT(name)
#endif

struct bench_variant {
	const char *name; /* "trace.record1_ns" */
	const char *unit; /* "ns" */
	/* One turn; returns the figure, in unit. */
	double (*turn)(void *arg);
	void *arg;
};

static inline double bench_now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static inline int bench_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static inline double bench_median(double *values, unsigned n)
{
	qsort(values, n, sizeof(*values), bench_compare);
	return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static inline void bench_print(const char *name, double value, const char *unit)
{
	printf("%s %.3f %s\n", name, value, unit);
	fflush(stdout);
}

/* Runs all variants `turns` times in turns, after one turn each to warm up; medians[] (or NULL) receives the
 * medians. */
static inline void bench_run(const struct bench_variant *v, unsigned n, unsigned turns, double *medians)
{
	double *values = calloc((size_t)n * turns, sizeof(*values));
	if (values == NULL) {
		abort();
	}
	for (unsigned i = 0; i < n; i++) {
		v[i].turn(v[i].arg);
	}
	for (unsigned t = 0; t < turns; t++) {
		for (unsigned i = 0; i < n; i++) {
			values[i * turns + t] = v[i].turn(v[i].arg);
		}
	}
	for (unsigned i = 0; i < n; i++) {
		double m = bench_median(&values[i * turns], turns);
		if (medians != NULL) {
			medians[i] = m;
		}
		if (v[i].name != NULL) {
			bench_print(v[i].name, m, v[i].unit);
		}
	}
	free(values);
}

/* Counting instructions: bench/instructions.py runs the program in callgrind, with "--instructions" as its argument.
 * The program then does each variant once, for few I/Os, between two calls of bench_toggle_count() on the thread whose
 * instructions count, and calls bench_counted(). Outside of callgrind both toggles do nothing. */
static inline bool bench_counts(int argc, char **argv)
{
	return argc == 2 && strcmp(argv[1], "--instructions") == 0;
}

static inline void bench_toggle_count(void)
{
	CALLGRIND_TOGGLE_COLLECT;
}

/* What was counted since the last call is that of `ios` I/Os of the variant `name`. */
static inline void bench_counted(const char *name, unsigned ios)
{
	CALLGRIND_DUMP_STATS_AT(name);
	printf("%s %u\n", name, ios);
	fflush(stdout);
}

#endif

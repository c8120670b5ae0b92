/* SPDX-License-Identifier: BSD-3-Clause */
/* The arrivals of varve-perf --poisson, by statistics with fixed seeds: the limits are those that a true Poisson
 * process leaves once in a thousand times, on either side. */
#include "unittest/unit.h"

#include <math.h>

#include "tools/perf/arrivals.h"

#define SAMPLES  100000
#define BINS     10
#define PER_TICK 1e-4

/* Chi squared: the values that are exceeded, and not reached, with a probability of 1/1000. */
#define CHI2_9_HIGH 27.88
#define CHI2_9_LOW  1.15

static double chi_squared(const unsigned *counts, unsigned bins, double expected)
{
	double sum = 0;

	for (unsigned i = 0; i < bins; i++) {
		double d = counts[i] - expected;
		sum += d * d / expected;
	}
	return sum;
}

/* Where a gap is in its distribution: uniform in [0, 1) if the gaps are exponential with this mean. */
static double gap_rank(uint64_t gap)
{
	return 1 - exp(-(double)gap * PER_TICK);
}

static void test_gaps_are_exponentially_distributed(void)
{
	for (uint64_t seed = 1; seed <= 5; seed++) {
		unsigned counts[BINS] = {0};
		struct arrivals a;
		uint64_t before = 5000;

		arrivals_begin(&a, PER_TICK, before, seed);
		for (unsigned i = 0; i < SAMPLES; i++) {
			uint64_t at = arrivals_take(&a);
			CU_ASSERT_FATAL(at >= before);
			counts[(unsigned)(gap_rank(at - before) * BINS)]++;
			before = at;
		}
		double chi2 = chi_squared(counts, BINS, (double)SAMPLES / BINS);
		CU_ASSERT(chi2 > CHI2_9_LOW && chi2 < CHI2_9_HIGH);
	}
}

/* Pairs of gaps that follow each other, in 3 x 3 bins: 8 degrees of freedom, for which the limits of 9 are wide enough.
 */
static void test_gaps_do_not_depend_on_each_other(void)
{
	unsigned counts[9] = {0};
	struct arrivals a;
	uint64_t before = 0;
	unsigned bin[2];

	arrivals_begin(&a, PER_TICK, 0, 42);
	for (unsigned i = 0; i < 2 * SAMPLES; i++) {
		uint64_t at = arrivals_take(&a);
		bin[i % 2] = (unsigned)(gap_rank(at - before) * 3);
		before = at;
		if (i % 2 == 1) {
			counts[bin[0] * 3 + bin[1]]++;
		}
	}
	double chi2 = chi_squared(counts, 9, SAMPLES / 9.0);
	CU_ASSERT(chi2 > 0.8 && chi2 < CHI2_9_HIGH);
}

static void test_the_rate_is_what_was_asked_for(void)
{
	struct arrivals a;
	uint64_t at = 0;

	arrivals_begin(&a, PER_TICK, 0, 7);
	for (unsigned i = 0; i < SAMPLES; i++) {
		at = arrivals_take(&a);
	}
	/* the standard deviation of the sum is a gap times the root of SAMPLES: 0.3 % of it */
	CU_ASSERT_DOUBLE_EQUAL((double)at * PER_TICK, SAMPLES, 0.011 * SAMPLES);
}

/* In a Poisson process the variance of the number of arrivals in equal times is their mean. */
static void test_arrivals_are_as_bursty_as_a_poisson_process(void)
{
	enum { WINDOWS = 20000, MEAN = 5 };
	struct arrivals a;
	double sum = 0, squares = 0;

	arrivals_begin(&a, PER_TICK, 0, 11);
	for (unsigned w = 1; w <= WINDOWS; w++) {
		double n = 0;
		for (; arrivals_are_due(&a, (uint64_t)(w * MEAN / PER_TICK)); arrivals_take(&a)) {
			n++;
		}
		sum += n;
		squares += n * n;
	}
	double mean = sum / WINDOWS, variance = squares / WINDOWS - mean * mean;
	CU_ASSERT_DOUBLE_EQUAL(variance / mean, 1, 3.3 * sqrt(2.0 / WINDOWS));
}

static void test_arrivals_wait_until_they_are_taken(void)
{
	struct arrivals a, b;

	arrivals_begin(&a, PER_TICK, 1000, 3);
	arrivals_begin(&b, PER_TICK, 1000, 3);
	CU_ASSERT_FALSE(arrivals_are_due(&a, 0));
	CU_ASSERT_FALSE(arrivals_are_due(&a, 999));
	uint64_t first = arrivals_take(&b), second = arrivals_take(&b);
	CU_ASSERT_TRUE(arrivals_are_due(&a, second + 1));
	CU_ASSERT_EQUAL(arrivals_take(&a), first); /* when it was due, however late it is taken */
	CU_ASSERT_EQUAL(arrivals_take(&a), second);
}

static void test_a_backlog_is_told_in_the_mean(void)
{
	struct arrivals a;

	arrivals_begin(&a, PER_TICK, 1000, 3);
	CU_ASSERT_EQUAL(arrivals_backlog(&a, 1000), 0);
	uint64_t first = arrivals_take(&a);
	CU_ASSERT_EQUAL(arrivals_backlog(&a, first), 0);
	CU_ASSERT_DOUBLE_EQUAL((double)arrivals_backlog(&a, 1000000000), 1e9 * PER_TICK, 30);
	CU_ASSERT(arrivals_backlog(&a, UINT64_MAX) > UINT64_C(1) << 50);
}

static const struct unit_test tests[] = {
	UNIT(test_gaps_are_exponentially_distributed),
	UNIT(test_gaps_do_not_depend_on_each_other),
	UNIT(test_the_rate_is_what_was_asked_for),
	UNIT(test_arrivals_are_as_bursty_as_a_poisson_process),
	UNIT(test_arrivals_wait_until_they_are_taken),
	UNIT(test_a_backlog_is_told_in_the_mean),
	UNIT_END,
};
UNIT_MAIN("perf_arrivals", tests, NULL, NULL)

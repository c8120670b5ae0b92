/* SPDX-License-Identifier: BSD-3-Clause */
/* Histograms of latencies. */
#include "unittest/unit.h"
#include "util/latency.h"

static unsigned bucket_of(uint64_t ns)
{
	struct latency_histogram h = {0};

	latency_histogram_sample(&h, 1, ns);
	for (unsigned i = 0; i < LATENCY_BUCKETS; i++) {
		if (h.buckets[i] != 0) {
			return i;
		}
	}
	return LATENCY_BUCKETS;
}

static void test_a_time_is_in_the_first_bucket_whose_bound_it_does_not_exceed(void)
{
	CU_ASSERT_EQUAL(bucket_of(0), 0);
	for (unsigned i = 0; i < LATENCY_BUCKETS - 1; i++) {
		CU_ASSERT_EQUAL(bucket_of(latency_bounds_ns[i]), i);
		CU_ASSERT_EQUAL(bucket_of(latency_bounds_ns[i] + 1), i + 1);
		CU_ASSERT(i == 0 || latency_bounds_ns[i] > latency_bounds_ns[i - 1]);
	}
	CU_ASSERT_EQUAL(bucket_of(UINT64_MAX), LATENCY_BUCKETS - 1);
}

static void test_a_sample_stands_for_the_ios_before_it(void)
{
	struct latency_histogram h = {0};

	CU_ASSERT_EQUAL(latency_histogram_sample(&h, 1, 1), 1);
	CU_ASSERT_EQUAL(latency_histogram_sample(&h, 128, 15000), 127);
	CU_ASSERT_EQUAL(h.buckets[0], 1);
	CU_ASSERT_EQUAL(h.buckets[bucket_of(15000)], 127);
	CU_ASSERT_EQUAL(h.counted, 128);
	CU_ASSERT_EQUAL(latency_histogram_sample(&h, 128, 1), 0); /* nothing has ended since */
	CU_ASSERT_EQUAL(latency_histogram_sample(&h, 5, 1), 0);   /* the count was read before the last sample's */
	CU_ASSERT_EQUAL(h.counted, 128);
}

static void test_what_has_ended_since_the_last_sample_is_settled_and_never_taken_back(void)
{
	struct latency_histogram h = {0};
	unsigned slow = bucket_of(3000000);

	latency_histogram_settle(&h, 0);
	CU_ASSERT_EQUAL(h.counted, 0);
	latency_histogram_sample(&h, 1, 3000000);
	latency_histogram_settle(&h, 50);
	CU_ASSERT(h.buckets[slow] == 50 && h.counted == 50);
	latency_histogram_sample(&h, 60, 1);
	CU_ASSERT(h.buckets[slow] == 50 && h.buckets[0] == 10 && h.counted == 60);
}

static void test_histograms_are_added(void)
{
	struct latency_histogram a = {0}, b = {0};

	latency_histogram_sample(&a, 3, 1);
	latency_histogram_sample(&b, 4, UINT64_MAX);
	latency_histogram_add(&a, &b);
	CU_ASSERT(a.buckets[0] == 3 && a.buckets[LATENCY_BUCKETS - 1] == 4 && a.counted == 7);
}

static void test_quantiles_are_interpolated(void)
{
	struct latency_histogram h = {0};

	CU_ASSERT_EQUAL(latency_histogram_quantile(&h, 0.99), 0);
	latency_histogram_sample(&h, 100, 20000);
	CU_ASSERT_EQUAL(latency_histogram_quantile(&h, 0.5), 15000);
	CU_ASSERT_EQUAL(latency_histogram_quantile(&h, 1), 20000);
	latency_histogram_sample(&h, 200, 1);
	CU_ASSERT_EQUAL(latency_histogram_quantile(&h, 0.5), 2000);
	CU_ASSERT_EQUAL(latency_histogram_quantile(&h, 0.75), 15000);
	latency_histogram_sample(&h, 20000, UINT64_MAX);
	CU_ASSERT_EQUAL(latency_histogram_quantile(&h, 0.5), latency_bounds_ns[LATENCY_BUCKETS - 2]);
}

static const struct unit_test tests[] = {
	UNIT(test_a_time_is_in_the_first_bucket_whose_bound_it_does_not_exceed),
	UNIT(test_a_sample_stands_for_the_ios_before_it),
	UNIT(test_what_has_ended_since_the_last_sample_is_settled_and_never_taken_back),
	UNIT(test_histograms_are_added),
	UNIT(test_quantiles_are_interpolated),
	UNIT_END,
};
UNIT_MAIN("util_latency", tests, NULL, NULL)

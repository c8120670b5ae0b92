/* SPDX-License-Identifier: BSD-3-Clause */
#include "unittest/unit.h"

#include <rte_ring.h>

#include "env_dpdk/env.h"
#include "nvmf_rdma/internal.h"

#define COUNT 256
#define SIZE  8192

static struct rdma_buffers pool;
static struct rdma_buffer_cache a, b;

static int setup(void)
{
	char error[ENV_ERROR_MAX];
	struct env_opts o = {.name = "unit-buffers", .instance_id = -1, .no_huge = true, .no_pci = true};

	return env_init(&o, error) != 0 || rdma_buffers_create(&pool, COUNT, SIZE) != 0 ||
	       rdma_buffer_cache_create(&a, &pool, 16, 17) != 0 || rdma_buffer_cache_create(&b, &pool, 16, 17) != 0;
}

static int teardown(void)
{
	rdma_buffer_cache_destroy(&a);
	rdma_buffer_cache_destroy(&b);
	int lost = (int)(COUNT - rte_ring_count(pool.ring));
	rdma_buffers_destroy(&pool);
	env_fini();
	return lost;
}

static void test_a_transfer_gets_as_many_buffers_as_it_needs(void)
{
	static const struct {
		uint32_t length;
		uint16_t buffers;
		size_t last;
	} cases[] = {{1, 1, 1}, {4096, 1, 4096}, {SIZE, 1, SIZE}, {SIZE + 1, 2, 1}, {131072, 16, SIZE}};
	struct iovec iov[17];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint16_t n = rdma_buffers_get(&a, iov, cases[i].length, false);
		CU_ASSERT_EQUAL(n, cases[i].buffers);
		CU_ASSERT_EQUAL(iov[n - 1].iov_len, cases[i].last);
		for (uint16_t k = 0; k < n; k++) {
			CU_ASSERT_EQUAL((uintptr_t)iov[k].iov_base % 4096, 0);
			CU_ASSERT(k == n - 1 || iov[k].iov_len == SIZE);
		}
		rdma_buffers_put(&a, iov, n);
	}
}

static void test_the_buffer_used_last_is_used_next(void)
{
	struct iovec first, second;

	CU_ASSERT_EQUAL(rdma_buffers_get(&a, &first, 4096, false), 1);
	rdma_buffers_put(&a, &first, 1);
	CU_ASSERT_EQUAL(rdma_buffers_get(&a, &second, 4096, false), 1);
	CU_ASSERT_PTR_EQUAL(first.iov_base, second.iov_base);
	rdma_buffers_put(&a, &second, 1);
}

static void test_an_empty_pool_gives_all_or_nothing_but_the_reserved_lane_goes_on(void)
{
	static struct iovec taken[COUNT], more[17];
	unsigned n = 0;

	while (rdma_buffers_get(&a, &taken[n], SIZE, false) == 1) {
		n++;
	}
	CU_ASSERT(n < COUNT);
	CU_ASSERT_EQUAL(rdma_buffers_get(&a, more, SIZE, false), 0);
	CU_ASSERT_EQUAL(rdma_buffers_get(&a, more, 4096, true), 1);
	/* given back, what was reserved is reserved again */
	rdma_buffers_put(&a, more, 1);
	CU_ASSERT_EQUAL(rdma_buffers_get(&a, more, SIZE, false), 0);
	for (unsigned i = 0; i < n; i++) {
		rdma_buffers_put(&a, &taken[i], 1);
	}
	CU_ASSERT_EQUAL(rdma_buffers_get(&a, more, 131072, false), 16);
	rdma_buffers_put(&a, more, 16);
}

static void test_what_one_group_gives_back_another_gets(void)
{
	static struct iovec taken[COUNT];
	unsigned n = 0, from_b = 0;

	while (rdma_buffers_get(&a, &taken[n], SIZE, false) == 1) {
		n++;
	}
	for (unsigned i = 0; i < n; i++) {
		rdma_buffers_put(&a, &taken[i], 1);
	}
	while (rdma_buffers_get(&b, &taken[from_b], SIZE, false) == 1) {
		from_b++;
	}
	/* all but what the first keeps at hand */
	CU_ASSERT(from_b + 2 * 16 >= n);
	for (unsigned i = 0; i < from_b; i++) {
		rdma_buffers_put(&b, &taken[i], 1);
	}
}

static const struct unit_test tests[] = {
	UNIT(test_a_transfer_gets_as_many_buffers_as_it_needs),
	UNIT(test_the_buffer_used_last_is_used_next),
	UNIT(test_an_empty_pool_gives_all_or_nothing_but_the_reserved_lane_goes_on),
	UNIT(test_what_one_group_gives_back_another_gets),
	UNIT_END,
};
UNIT_MAIN("nvmf_rdma_buffers", tests, setup, teardown)

/* SPDX-License-Identifier: BSD-3-Clause */
#include "unittest/unit.h"

#include <errno.h>
#include <string.h>

#include "env_dpdk/env.h"
#include "nvmf/transport_buffers.h"

#define SHARED 256
#define SIZE   8192

static char error[ENV_ERROR_MAX];
static struct nvmf_transport_opts opts = {.io_unit_size = SIZE,
					  .max_io_size = 131072,
					  .num_shared_buffers = SHARED,
					  .iobuf_small_cache_size = 16,
					  .iobuf_large_cache_size = 16};
static struct nvmf_buffer_pool buffers;
static struct nvmf_buffer_group a, b;

static struct iobuf_module module = {.name = "nvmf_RDMA"};

static uint16_t take(struct nvmf_buffer_group *group, struct iovec *iov, uint32_t length, bool reserved)
{
	struct nvmf_request req = {.iov = iov, .length = length, .reserved_lane = reserved};
	uint16_t n = nvmf_buffers_get(group, &req);

	CU_ASSERT_EQUAL(req.iovcnt, n);
	return n;
}

static int setup(void)
{
	struct env_opts o = {.name = "unit-buffers", .instance_id = -1, .no_huge = true, .no_pci = true};

	return env_init(&o, error) != 0 || nvmf_buffer_pool_create(&buffers, &module, &opts, error) != 0 ||
	       nvmf_buffer_group_create(&a, &buffers, &opts, error) != 0 ||
	       nvmf_buffer_group_create(&b, &buffers, &opts, error) != 0;
}

static int teardown(void)
{
	nvmf_buffer_group_destroy(&a);
	nvmf_buffer_group_destroy(&b);
	int lost = (int)(SHARED - buffers.limit.left);
	nvmf_buffer_pool_destroy(&buffers);
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
	struct iovec iov[16];

	CU_ASSERT_EQUAL(buffers.max_per_request, 20);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint16_t n = take(&a, iov, cases[i].length, false);
		CU_ASSERT_EQUAL_FATAL(n, cases[i].buffers);
		CU_ASSERT_EQUAL(iov[n - 1].iov_len, cases[i].last);
		for (uint16_t k = 0; k < n; k++) {
			CU_ASSERT_EQUAL((uintptr_t)iov[k].iov_base % 4096, 0);
			CU_ASSERT(k == n - 1 || iov[k].iov_len == SIZE);
		}
		nvmf_buffers_put(&a, iov, n);
	}
}

static void test_large_pieces_come_from_the_large_pool_and_their_rest_from_the_small_one(void)
{
	struct nvmf_transport_opts o = opts;
	static const struct {
		uint32_t length;
		uint16_t buffers;
		uint16_t large;
	} cases[] = {{4096, 1, 0},   {SIZE, 1, 0},   {SIZE + 1, 1, 1}, {131072, 1, 1},
		     {131073, 2, 1}, {262144, 2, 2}, {1048576, 8, 8}};
	struct nvmf_buffer_pool large;
	struct nvmf_buffer_group ch;
	struct iovec iov[16];

	o.io_unit_size = 131072;
	o.max_io_size = 1048576;
	CU_ASSERT_EQUAL_FATAL(nvmf_buffer_pool_create(&large, &module, &o, error), 0);
	CU_ASSERT_EQUAL_FATAL(nvmf_buffer_group_create(&ch, &large, &o, error), 0);
	CU_ASSERT_EQUAL(large.max_per_request, 10);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint32_t gets = (uint32_t)ch.channel.cache[IOBUF_LARGE].gets;
		size_t bytes = 0;
		uint16_t n = take(&ch, iov, cases[i].length, false);
		CU_ASSERT_EQUAL_FATAL(n, cases[i].buffers);
		CU_ASSERT_EQUAL((uint32_t)ch.channel.cache[IOBUF_LARGE].gets - gets, cases[i].large);
		for (uint16_t k = 0; k < n; k++) {
			bytes += iov[k].iov_len;
		}
		CU_ASSERT_EQUAL(bytes, cases[i].length);
		nvmf_buffers_put(&ch, iov, n);
	}
	nvmf_buffer_group_destroy(&ch);
	nvmf_buffer_pool_destroy(&large);
}

static void test_an_empty_pool_gives_all_or_nothing_but_the_reserved_lane_goes_on(void)
{
	static struct iovec taken[SHARED], more[16];
	unsigned n = 0;

	while (take(&a, &taken[n], SIZE, false) == 1) {
		n++;
	}
	CU_ASSERT(n < SHARED);
	CU_ASSERT_EQUAL(take(&a, more, SIZE, false), 0);
	CU_ASSERT_EQUAL(take(&a, more, 4096, true), 1);
	/* what no command of the reserved lane needs is not taken from it */
	CU_ASSERT_EQUAL(take(&a, more + 1, 2 * SIZE, true), 0);
	/* given back, what was reserved is reserved again */
	nvmf_buffers_put(&a, more, 1);
	CU_ASSERT_EQUAL(take(&a, more, SIZE, false), 0);
	for (unsigned i = 0; i < n; i++) {
		nvmf_buffers_put(&a, &taken[i], 1);
	}
	CU_ASSERT_EQUAL(take(&a, more, 131072, false), 16);
	nvmf_buffers_put(&a, more, 16);
}

/* Otherwise groups that wait with half of what they need each would wait for ever. */
static void test_each_group_can_do_its_largest_command_whatever_others_hold(void)
{
	static struct iovec taken[SHARED], more[16];
	unsigned n = 0;

	while (take(&a, &taken[n], SIZE, false) == 1) {
		n++;
	}
	CU_ASSERT_EQUAL(take(&b, more, 131072, false), 16);
	nvmf_buffers_put(&b, more, 16);
	for (unsigned i = 0; i < n; i++) {
		nvmf_buffers_put(&a, &taken[i], 1);
	}
}

/* Clients send numbers that fit fewer cores, or targets whose groups own fewer. */
static void test_too_few_shared_buffers_become_what_the_groups_own(void)
{
	struct nvmf_transport_opts o = opts;
	struct nvmf_buffer_pool few;
	struct nvmf_buffer_group one, two;
	struct iovec iov[20];

	o.num_shared_buffers = 64;
	CU_ASSERT_EQUAL_FATAL(nvmf_buffer_pool_create(&few, &module, &o, error), 0);
	CU_ASSERT_EQUAL_FATAL(nvmf_buffer_group_create(&one, &few, &o, error), 0);
	CU_ASSERT_EQUAL(few.limit.total, 64);
	CU_ASSERT_EQUAL_FATAL(nvmf_buffer_group_create(&two, &few, &o, error), 0);
	CU_ASSERT_EQUAL(few.limit.total, 72);
	CU_ASSERT_EQUAL(few.limit.left, 0);
	/* each can carry the largest command out, whatever the other does */
	CU_ASSERT_EQUAL(take(&one, iov, 163840, false), 20);
	struct iovec others[20];
	CU_ASSERT_EQUAL(take(&two, others, 163840, false), 20);
	nvmf_buffers_put(&one, iov, 20);
	nvmf_buffers_put(&two, others, 20);
	nvmf_buffer_group_destroy(&one);
	nvmf_buffer_group_destroy(&two);
	CU_ASSERT_EQUAL(few.limit.left, 72);
	nvmf_buffer_pool_destroy(&few);
}

static void test_more_pieces_than_can_be_counted_are_refused(void)
{
	struct nvmf_transport_opts o = opts;
	struct nvmf_buffer_pool many;

	o.io_unit_size = 4096;
	o.max_io_size = 1u << 28;
	CU_ASSERT_EQUAL(nvmf_buffer_pool_create(&many, &module, &o, error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "81920 pieces"));
	nvmf_buffer_pool_destroy(&many);
	o.max_io_size = 1u << 27;
	CU_ASSERT_EQUAL(nvmf_buffer_pool_create(&many, &module, &o, error), 0);
	CU_ASSERT_EQUAL(many.max_per_request, 40960);
	nvmf_buffer_pool_destroy(&many);
}

static void test_commands_wait_in_order_and_the_reserved_lane_passes_them(void)
{
	static struct iovec taken[SHARED], iovs[3][16];
	static struct nvmf_qpair qpair;
	struct nvmf_request first = {.qpair = &qpair, .iov = iovs[0], .length = 131072},
			    second = {.qpair = &qpair, .iov = iovs[1], .length = SIZE},
			    urgent = {.qpair = &qpair, .iov = iovs[2], .length = 512, .reserved_lane = true};
	unsigned n = 0;
	uint16_t count;

	while (take(&a, &taken[n], SIZE, false) == 1) {
		n++;
	}
	CU_ASSERT_FALSE(nvmf_buffers_are_awaited(&a));
	CU_ASSERT_EQUAL(nvmf_buffers_get(&a, &first), 0);
	nvmf_buffers_wait(&a, &first);
	CU_ASSERT_TRUE(nvmf_buffers_are_awaited(&a));
	CU_ASSERT_EQUAL(a.waits, 1);
	CU_ASSERT_PTR_NULL(nvmf_buffers_next(&a, &count));
	/* one is back, which is enough for the second command, but not for the first */
	nvmf_buffers_put(&a, &taken[--n], 1);
	CU_ASSERT_EQUAL(nvmf_buffers_get(&a, &second), 0);
	nvmf_buffers_wait(&a, &second);
	CU_ASSERT_PTR_NULL(nvmf_buffers_next(&a, &count));
	CU_ASSERT_EQUAL(nvmf_buffers_get(&a, &urgent), 1);
	nvmf_buffers_put(&a, urgent.iov, 1);
	/* the first waits no more: the second goes on */
	nvmf_buffers_stop_waiting(&a, &first);
	CU_ASSERT_PTR_EQUAL(nvmf_buffers_next(&a, &count), &second);
	CU_ASSERT_EQUAL(count, 1);
	CU_ASSERT_EQUAL(second.iovcnt, 1);
	CU_ASSERT_FALSE(nvmf_buffers_are_awaited(&a));
	CU_ASSERT_EQUAL(a.waits, 2);
	nvmf_buffers_put(&a, second.iov, 1);
	while (n != 0) {
		nvmf_buffers_put(&a, &taken[--n], 1);
	}
}

static const struct unit_test tests[] = {
	UNIT(test_a_transfer_gets_as_many_buffers_as_it_needs),
	UNIT(test_large_pieces_come_from_the_large_pool_and_their_rest_from_the_small_one),
	UNIT(test_an_empty_pool_gives_all_or_nothing_but_the_reserved_lane_goes_on),
	UNIT(test_each_group_can_do_its_largest_command_whatever_others_hold),
	UNIT(test_too_few_shared_buffers_become_what_the_groups_own),
	UNIT(test_commands_wait_in_order_and_the_reserved_lane_passes_them),
	UNIT(test_more_pieces_than_can_be_counted_are_refused),
	UNIT_END,
};
UNIT_MAIN("nvmf-transport_buffers", tests, setup, teardown)

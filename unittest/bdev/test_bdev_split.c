/* SPDX-License-Identifier: BSD-3-Clause */
/* I/O the module cannot take as it is: split, bounced, emulated. Everything is compared with a shadow of the disk. */
#include "unittest/bdev/fixture.h"

#include <pthread.h>

#include "env_dpdk/env.h"
#include "env_dpdk/iobuf.h"
#include "nvme/spec.h"

#define BLOCKS     512u
#define MAX_BLOCKS 96u
#define SLACK      64u

static uint8_t *shadow;

/* A piece of memory of any alignment, cut into iovs of any length. */
struct data {
	uint8_t *raw;
	struct iovec iovs[64];
	uint32_t n;
};

static void data_make(struct data *d, size_t bytes, uint64_t *rnd, unsigned max_parts, bool misaligned)
{
	size_t left = bytes;

	d->raw = aligned_alloc(4096, (bytes + 64 * SLACK + 8191) & ~(size_t)4095);
	uint8_t *at = d->raw;
	for (d->n = 0; left > 0; d->n++) {
		size_t part = left;
		if (d->n + 1 < max_parts && left > 1) {
			part = fixture_random(rnd) % left + 1;
			if (!misaligned) {
				part = (part + 511) & ~(size_t)511;
				part = part > left ? left : part;
			}
		}
		at += misaligned ? fixture_random(rnd) % SLACK : 0;
		d->iovs[d->n] = (struct iovec){at, part};
		at += part;
		left -= part;
	}
}

static void data_fill(struct data *d, uint64_t *rnd)
{
	for (uint32_t i = 0; i < d->n; i++) {
		for (size_t j = 0; j < d->iovs[i].iov_len; j++) {
			((uint8_t *)d->iovs[i].iov_base)[j] = (uint8_t)fixture_random(rnd);
		}
	}
}

static void data_to(const struct data *d, uint8_t *flat)
{
	for (uint32_t i = 0; i < d->n; i++) {
		memcpy(flat, d->iovs[i].iov_base, d->iovs[i].iov_len);
		flat += d->iovs[i].iov_len;
	}
}

static bool data_equals(const struct data *d, const uint8_t *flat)
{
	for (uint32_t i = 0; i < d->n; i++) {
		if (memcmp(d->iovs[i].iov_base, flat, d->iovs[i].iov_len) != 0) {
			return false;
		}
		flat += d->iovs[i].iov_len;
	}
	return true;
}

static const enum bdev_io_type kinds[] = {
	BDEV_IO_READ,         BDEV_IO_READ, BDEV_IO_WRITE, BDEV_IO_WRITE,  BDEV_IO_COMPARE,
	BDEV_IO_WRITE_ZEROES, BDEV_IO_COPY, BDEV_IO_COPY,  BDEV_IO_VERIFY, BDEV_IO_COMPARE_AND_WRITE};

static bool has_data(enum bdev_io_type type)
{
	return type != BDEV_IO_WRITE_ZEROES && type != BDEV_IO_COPY && type != BDEV_IO_VERIFY;
}

/* One random I/O against disk and shadow; false when they disagree. */
static bool one_io(struct user *u, uint64_t *rnd, bool misaligned)
{
	uint32_t bs = bdev_block_size(bdev_desc_bdev(u->desc));
	enum bdev_io_type type = kinds[fixture_random(rnd) % (sizeof(kinds) / sizeof(kinds[0]))];
	uint64_t offset = fixture_random(rnd) % BLOCKS;
	uint64_t num = fixture_random(rnd) % MAX_BLOCKS + 1;
	num = num > BLOCKS - offset ? BLOCKS - offset : num;
	uint8_t *at = shadow + offset * bs;
	struct request *r = request_new(u);
	struct data d, cmp = {0};
	bool ok = true, differs = fixture_random(rnd) % 3 == 0;

	data_make(&d, num * bs, rnd, (unsigned)(fixture_random(rnd) % 60 + 1), misaligned);
	data_fill(&d, rnd);
	if (type == BDEV_IO_COMPARE_AND_WRITE || type == BDEV_IO_COMPARE) {
		data_make(&cmp, num * bs, rnd, 7, misaligned);
		const uint8_t *from = at;
		for (uint32_t i = 0; i < cmp.n; i++) {
			memcpy(cmp.iovs[i].iov_base, from, cmp.iovs[i].iov_len);
			from += cmp.iovs[i].iov_len;
		}
		if (differs) {
			struct iovec *victim = &cmp.iovs[fixture_random(rnd) % cmp.n];
			((uint8_t *)victim->iov_base)[fixture_random(rnd) % victim->iov_len] ^= 1;
		}
	}
	struct data *arg = type == BDEV_IO_COMPARE ? &cmp : &d;
	uint64_t from = fixture_random(rnd) % (BLOCKS - num + 1);
	bool overlaps = (from > offset ? from - offset : offset - from) < num;
	bdev_io_set_rw(r->io, type, has_data(type) ? arg->iovs : NULL, has_data(type) ? arg->n : 0, offset, num);
	if (type == BDEV_IO_COPY) {
		bdev_io_set_copy(r->io, from, offset, num);
	} else {
		r->io->compare.iovs = cmp.iovs;
		r->io->compare.iovcnt = cmp.n;
	}
	uint16_t status = request_run(r);
	switch (type) {
	case BDEV_IO_READ:
		ok = status == 0 && data_equals(&d, at);
		break;
	case BDEV_IO_WRITE:
		ok = status == 0;
		data_to(&d, at);
		break;
	case BDEV_IO_WRITE_ZEROES:
		ok = status == 0;
		memset(at, 0, num * bs);
		break;
	case BDEV_IO_VERIFY:
		ok = status == 0;
		break;
	case BDEV_IO_COPY:
		ok = overlaps ? (status & BDEV_STATUS_MASK) ==
					BDEV_STATUS(NVME_SCT_CMD_SPECIFIC, NVME_SC_OVERLAPPING_IO_RANGE)
			      : status == 0;
		if (status == 0) {
			memcpy(at, shadow + from * bs, num * bs);
		}
		break;
	default:
		ok = differs ? (status & BDEV_STATUS_MASK) == BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_COMPARE_FAILED)
			     : status == 0;
		if (type == BDEV_IO_COMPARE_AND_WRITE && status == 0) {
			data_to(&d, at);
		}
	}
	request_free(r);
	free(d.raw);
	free(cmp.raw);
	return ok;
}

static atomic_bool flips; /* boundary_flip() goes on, on: */
static pthread_t flipper;

static void flips_stop(void)
{
	atomic_store(&flips, false);
	CU_ASSERT_EQUAL(pthread_join(flipper, NULL), 0);
}

/* Many of them on t, registered with the limits it has. */
static void hammer(struct testdev *t, unsigned ios, bool misaligned, uint64_t seed)
{
	struct user u;
	uint64_t rnd = seed;
	size_t bytes = (size_t)BLOCKS * t->bdev.block_size;

	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, t->bdev.name, true, fixture_thread(1)), 0);
	shadow = calloc(1, bytes);
	for (unsigned i = 0; i < ios; i += unit_stride()) {
		if (!one_io(&u, &rnd, misaligned)) {
			printf("I/O %u of seed %lu\n", i, seed);
			CU_FAIL("the disk and its shadow differ");
			break;
		}
	}
	CU_ASSERT_EQUAL(memcmp(shadow, t->memory, bytes), 0);
	CU_ASSERT_FALSE(t->limits_broken);
	if (t->boundaries[0] != 0) {
		flips_stop();
	}
	free(shadow);
	user_close(&u);
	CU_ASSERT_TRUE(testdev_delete(t));
}

static void test_data_survives_a_bdev_without_limits(void)
{
	hammer(testdev_new("t0", 512, BLOCKS), 300, true, 1);
}

static void test_data_survives_splitting_on_boundaries(void)
{
	struct testdev *t = testdev_new("t0", 4096, BLOCKS);
	t->bdev.optimal_io_boundary = 8;
	t->bdev.split_on_boundary = true;
	t->shuffle = true;
	hammer(t, 200, true, 2);
}

static void test_data_survives_splitting_on_boundaries_that_are_no_power_of_two(void)
{
	struct testdev *t = testdev_new("t0", 512, BLOCKS);
	t->bdev.optimal_io_boundary = 7;
	t->bdev.split_on_boundary = true;
	t->shuffle = true;
	hammer(t, 200, true, 10);
}

/* As rescans do that find another boundary. */
static void *boundary_flip(void *arg)
{
	struct testdev *t = arg;

	for (unsigned i = 0; atomic_load(&flips); i++) {
		__atomic_store_n(&t->bdev.optimal_io_boundary, t->boundaries[i % 2], __ATOMIC_RELAXED);
	}
	return NULL;
}

static void flips_start(struct testdev *t)
{
	t->bdev.optimal_io_boundary = 64;
	t->bdev.split_on_boundary = true;
	t->boundaries[0] = 64;
	t->boundaries[1] = 3;
	atomic_store(&flips, true);
	CU_ASSERT_EQUAL_FATAL(pthread_create(&flipper, NULL, boundary_flip, t), 0);
}

static void test_data_survives_a_boundary_that_changes(void)
{
	struct testdev *t = testdev_new("t0", 512, BLOCKS);

	flips_start(t);
	hammer(t, 1000, false, 11);
}

#define DECISIONS 300000u

static void decided(struct bdev_io *io, void *arg)
{
	*(unsigned *)arg += io->status == 0;
}

/* The device does each I/O at once. */
static void decide_here(void *arg)
{
	struct request *r = arg;
	unsigned good = 0, decisions = DECISIONS / unit_stride();

	r->io->cb = decided;
	r->io->cb_arg = &good;
	for (unsigned i = 0; i < decisions; i++) {
		bdev_submit(r->io);
	}
	CU_ASSERT_EQUAL(good, decisions);
}

/* Blocks 62 to 65 cross both boundaries. A decision that takes its numbers from both of them, because it loads the
 * boundary twice, lets them pass as they are. */
static void test_each_decision_is_by_one_boundary(void)
{
	static uint8_t data[4 * 512];
	struct testdev *t = testdev_new("t0", 512, BLOCKS);
	struct iovec iov = {data, sizeof(data)};
	struct user u;

	flips_start(t);
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "t0", true, fixture_thread(1)), 0);
	struct request *r = request_new(&u);
	bdev_io_set_rw(r->io, BDEV_IO_READ, &iov, 1, 62, 4);
	thread_call(u.thread, decide_here, r);
	CU_ASSERT_FALSE(t->limits_broken);
	flips_stop();
	request_free(r);
	user_close(&u);
	CU_ASSERT_TRUE(testdev_delete(t));
}

static void test_data_survives_a_maximal_transfer_size(void)
{
	struct testdev *t = testdev_new("t0", 512, BLOCKS);
	t->bdev.max_rw_blocks = 5;
	t->shuffle = true;
	hammer(t, 200, true, 3);
}

static void test_data_survives_few_short_segments(void)
{
	struct testdev *t = testdev_new("t0", 512, BLOCKS);
	t->bdev.max_segments = 2;
	t->bdev.max_segment_bytes = 1536;
	t->shuffle = true;
	hammer(t, 200, true, 4);
}

/* Each limit on memory by itself: a bdev that has none of them has no iov looked at. */
static void test_data_survives_few_segments(void)
{
	struct testdev *t = testdev_new("t0", 512, BLOCKS);
	t->bdev.max_segments = 2;
	t->shuffle = true;
	hammer(t, 200, true, 10);
}

static void test_data_survives_short_segments(void)
{
	struct testdev *t = testdev_new("t0", 512, BLOCKS);
	t->bdev.max_segment_bytes = 1536;
	t->shuffle = true;
	hammer(t, 200, true, 11);
}

static void test_data_survives_bouncing_of_misaligned_memory(void)
{
	struct testdev *t = testdev_new("t0", 512, BLOCKS);
	t->bdev.buf_align = 512;
	t->shuffle = true;
	hammer(t, 200, true, 5);
}

static void test_data_survives_all_limits_at_once(void)
{
	struct testdev *t = testdev_new("t0", 512, BLOCKS);
	t->bdev.buf_align = 4096;
	t->bdev.max_segments = 1;
	t->bdev.max_segment_bytes = 4096;
	t->bdev.max_rw_blocks = 9;
	t->bdev.optimal_io_boundary = 16;
	t->bdev.split_on_boundary = true;
	t->slots = 3; /* and out of resources all the time */
	t->shuffle = true;
	hammer(t, 200, true, 6);
}

static void test_data_survives_a_native_compare_that_is_split(void)
{
	struct testdev *t = testdev_new("t0", 512, BLOCKS);
	t->bdev.io_types |= 1u << BDEV_IO_COMPARE | 1u << BDEV_IO_WRITE_ZEROES;
	t->bdev.max_rw_blocks = 7;
	t->bdev.max_unmap_blocks = 11;
	t->bdev.buf_align = 4;
	hammer(t, 200, true, 7);
}

static void test_data_survives_a_native_copy_that_is_split(void)
{
	struct testdev *t = testdev_new("t0", 512, BLOCKS);
	t->bdev.io_types |= 1u << BDEV_IO_COPY | 1u << BDEV_IO_VERIFY;
	t->bdev.max_copy_blocks = 6;
	t->bdev.max_verify_blocks = 13;
	t->shuffle = true;
	hammer(t, 300, true, 9);
}

static void test_aligned_memory_is_not_copied(void)
{
	struct testdev *t = testdev_new("t0", 512, BLOCKS);
	t->bdev.buf_align = 512;
	hammer(t, 100, false, 8);
}

/* Many at once, from two threads, on blocks of their own, with fewer pieces, buffers and slots than they need. */
#define CROWD 64
static void test_a_crowd_of_split_io_gets_through(void)
{
	struct testdev *t = testdev_new("t0", 512, (uint64_t)CROWD * 2 * 64);
	struct user u[2];
	struct request *r[2][CROWD];
	struct iovec iov[2][CROWD];
	struct bdev_stat stat;

	t->bdev.max_rw_blocks = 3;
	t->bdev.buf_align = 4096;
	t->slots = 7;
	t->shuffle = true;
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	for (unsigned i = 0; i < 2; i++) {
		CU_ASSERT_EQUAL_FATAL(user_open(&u[i], "t0", true, fixture_thread(i)), 0);
		for (unsigned j = 0; j < CROWD; j++) {
			r[i][j] = request_new(&u[i]);
			uint8_t *p = malloc(64 * 512 + 1);
			memset(p + 1, (int)(i * CROWD + j + 1), 64 * 512);
			iov[i][j] = (struct iovec){p + 1, 64 * 512};
			bdev_io_set_rw(r[i][j]->io, BDEV_IO_WRITE, &iov[i][j], 1, (i * CROWD + j) * 64, 64);
			request_submit(r[i][j]);
		}
	}
	for (unsigned i = 0; i < 2 * CROWD; i++) {
		struct request *q = r[i / CROWD][i % CROWD];
		CU_ASSERT_TRUE_FATAL(request_wait(q));
		CU_ASSERT_EQUAL(q->status, 0);
		const uint8_t *disk = t->memory + (size_t)i * 64 * 512;
		CU_ASSERT_EQUAL(disk[0], (uint8_t)(i + 1));
		CU_ASSERT_EQUAL(memcmp(disk, disk + 1, 64 * 512 - 1), 0);
		free((uint8_t *)iov[i / CROWD][i % CROWD].iov_base - 1);
		request_free(q);
	}
	CU_ASSERT_FALSE(t->limits_broken);
	bdev_get_stat(&t->bdev, &stat);
	CU_ASSERT_TRUE(stat.child_waits > 0);
	CU_ASSERT_TRUE(stat.nomem_waits > 0);
	CU_ASSERT_EQUAL(stat.class[BDEV_STAT_WRITE].ops, 2 * CROWD);
	user_close(&u[0]);
	user_close(&u[1]);
	CU_ASSERT_TRUE(testdev_delete(t));
}

/* The bdev layer's channel of a thread owns four buffers of each size, which are enough to go on with, one after the
 * other. */
#define OWNED 4
#define QUEUE (5 * OWNED)
static void take_all_others(struct iobuf_channel *hog, void **taken, unsigned *n)
{
	static struct iobuf_module module = {.name = "hog"};
	struct iobuf_channel_opts opts = {.module = &module, .class = {[IOBUF_LARGE] = {.floor = 1, .keep = 1}}};
	char error[ENV_ERROR_MAX];

	CU_ASSERT_EQUAL_FATAL(iobuf_channel_create(hog, &opts, error), 0);
	for (*n = 0; iobuf_has(hog, IOBUF_LARGE, 1); ++*n) {
		taken[*n] = iobuf_take(hog, IOBUF_LARGE);
	}
}

static void find_bdev(void *arg, const char *module, const struct iobuf_stat *stat)
{
	if (strcmp(module, "bdev") == 0) {
		memcpy(arg, stat, IOBUF_CLASSES * sizeof(*stat));
	}
}

static void test_waiters_for_buffers_go_on_in_order_while_another_user_holds_all_others(void)
{
	struct testdev *t = testdev_new("t0", 512, QUEUE * 64);
	struct iobuf_stat before[IOBUF_CLASSES], after[IOBUF_CLASSES];
	struct iobuf_channel hog;
	struct request *r[QUEUE];
	struct iovec iov[QUEUE];
	struct user u;
	static void *taken[64];
	unsigned n;

	t->bdev.buf_align = 4096;
	t->hold = true;
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "t0", true, fixture_thread(0)), 0);
	take_all_others(&hog, taken, &n);
	iobuf_for_each_module(find_bdev, before);
	for (unsigned i = 0; i < QUEUE; i++) {
		r[i] = request_new(&u);
		iov[i] = (struct iovec){(uint8_t *)malloc(64 * 512 + 1) + 1, 64 * 512};
		bdev_io_set_rw(r[i]->io, BDEV_IO_READ, &iov[i], 1, i * 64, 64);
		request_submit(r[i]);
	}
	for (unsigned i = 0; i < QUEUE; i++) {
		if (i % OWNED == 0) {
			CU_ASSERT_TRUE_FATAL(fixture_wait_count(&t->submitted, i + OWNED));
			CU_ASSERT_FALSE(atomic_load(&r[i]->done));
			testdev_release(t, &u, 0);
		}
		CU_ASSERT_TRUE_FATAL(request_wait(r[i]));
		CU_ASSERT_EQUAL(r[i]->status, 0);
		CU_ASSERT_TRUE(atomic_load(&t->submitted) <= (i / OWNED + 2) * OWNED);
	}
	iobuf_for_each_module(find_bdev, after);
	CU_ASSERT_EQUAL(after[IOBUF_LARGE].cache - before[IOBUF_LARGE].cache, QUEUE);
	CU_ASSERT_EQUAL(after[IOBUF_LARGE].main - before[IOBUF_LARGE].main, 0);
	CU_ASSERT_TRUE(after[IOBUF_LARGE].retry - before[IOBUF_LARGE].retry >= QUEUE - OWNED);
	for (unsigned i = 0; i < QUEUE; i++) {
		free((uint8_t *)iov[i].iov_base - 1);
		request_free(r[i]);
	}
	for (unsigned i = 0; i < n; i++) {
		iobuf_put(&hog, IOBUF_LARGE, taken[i]);
	}
	iobuf_channel_destroy(&hog);
	user_close(&u);
	CU_ASSERT_TRUE(testdev_delete(t));
}

static void test_blocks_larger_than_a_data_buffer_are_refused_where_they_would_need_one(void)
{
	struct testdev *t = testdev_new("t0", 32768, 8);
	struct iobuf_opts opts, before;
	char error[ENV_ERROR_MAX];
	struct user u;

	iobuf_get_opts(&before);
	opts = before;
	opts.large_bufsize = 16384;
	CU_ASSERT_EQUAL_FATAL(iobuf_set_opts(&opts, error), 0);
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	CU_ASSERT_NOT_EQUAL(user_open(&u, "t0", true, fixture_thread(0)), 0);
	CU_ASSERT_TRUE(testdev_delete(t));
	CU_ASSERT_EQUAL(iobuf_set_opts(&before, error), 0);
}

static void test_an_error_of_one_piece_is_that_of_the_whole(void)
{
	struct testdev *t = testdev_new("t0", 512, BLOCKS);
	struct user u;
	uint8_t data[64 * 512];

	t->bdev.max_rw_blocks = 1;
	t->fail_status = BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_READ_ERROR);
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "t0", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, data, 0, 64), t->fail_status);
	t->fail_status = 0;
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, data, 0, 64), 0);
	user_close(&u);
	CU_ASSERT_TRUE(testdev_delete(t));
}

static void test_unmap_without_support_succeeds_and_changes_nothing(void)
{
	struct testdev *t = testdev_new("t0", 512, BLOCKS);
	struct user u;

	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "t0", true, fixture_thread(0)), 0);
	memset(t->memory, 1, 512);
	CU_ASSERT_TRUE(bdev_io_type_supported(&t->bdev, BDEV_IO_UNMAP));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_UNMAP, NULL, 0, 1), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_FLUSH, NULL, 0, 0), 0);
	CU_ASSERT_EQUAL(atomic_load(&t->submitted), 0);
	CU_ASSERT_EQUAL(t->memory[0], 1);
	user_close(&u);
	CU_ASSERT_TRUE(testdev_delete(t));
}

static const struct unit_test tests[] = {
	UNIT(test_data_survives_a_bdev_without_limits),
	UNIT(test_data_survives_splitting_on_boundaries),
	UNIT(test_data_survives_splitting_on_boundaries_that_are_no_power_of_two),
	UNIT(test_data_survives_a_boundary_that_changes),
	UNIT(test_each_decision_is_by_one_boundary),
	UNIT(test_data_survives_a_maximal_transfer_size),
	UNIT(test_data_survives_few_short_segments),
	UNIT(test_data_survives_few_segments),
	UNIT(test_data_survives_short_segments),
	UNIT(test_data_survives_bouncing_of_misaligned_memory),
	UNIT(test_data_survives_all_limits_at_once),
	UNIT(test_data_survives_a_native_compare_that_is_split),
	UNIT(test_data_survives_a_native_copy_that_is_split),
	UNIT(test_aligned_memory_is_not_copied),
	UNIT(test_a_crowd_of_split_io_gets_through),
	UNIT(test_waiters_for_buffers_go_on_in_order_while_another_user_holds_all_others),
	UNIT(test_blocks_larger_than_a_data_buffer_are_refused_where_they_would_need_one),
	UNIT(test_an_error_of_one_piece_is_that_of_the_whole),
	UNIT(test_unmap_without_support_succeeds_and_changes_nothing),
	UNIT_END,
};
UNIT_MAIN("bdev_split", tests, fixture_start, fixture_stop)

/* SPDX-License-Identifier: BSD-3-Clause */
/* Files through io_uring. */
#include "unittest/bdev/fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES (4u << 20)

static char path[] = "/var/tmp/unit-bdev-uring-XXXXXX";
static char error[BDEV_ERROR_MAX];

static int start(void)
{
	int fd = mkstemp(path);
	int rc = fd >= 0 ? ftruncate(fd, FILE_BYTES) : -1;

	close(fd);
	return rc != 0 ? rc : fixture_start();
}

static int stop(void)
{
	unlink(path);
	return fixture_stop();
}

static struct bdev_uring_opts opts(void)
{
	return (struct bdev_uring_opts){.name = "u0", .filename = path};
}

static bool no_ring;

static bool make(const struct bdev_uring_opts *o)
{
	int rc = bdev_uring_create(o, error);

	no_ring = rc == -EPERM || rc == -ENOSYS;
	if (rc != 0 && !no_ring) {
		printf("%s\n", error);
	}
	CU_ASSERT_TRUE_FATAL(rc == 0 || no_ring);
	return rc == 0;
}
#define MAKE_OR_SKIP(opts_)                                                                                  \
	if (!make(opts_)) {                                                                                  \
		UNIT_SKIP("no io_uring here");                                                               \
	}

static void fill(uint8_t *p, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i++) {
		p[i] = (uint8_t)fixture_random(&seed);
	}
}

/* What is written through the bdev is in the file, and the other way round, aligned or not, large or small. */
static void round_trip(const struct bdev_uring_opts *o)
{
	struct user u;
	uint8_t *out = malloc(1 << 20), *in = malloc(1 << 20);

	CU_ASSERT_EQUAL_FATAL(user_open(&u, o->name, true, fixture_thread(0)), 0);
	uint32_t bs = bdev_block_size(bdev_desc_bdev(u.desc));
	uint64_t rnd = 1;
	for (unsigned i = 0; i < 40; i++) {
		uint64_t num = fixture_random(&rnd) % ((1 << 20) / bs - 1) + 1;
		uint64_t offset = fixture_random(&rnd) % (FILE_BYTES / bs - num);
		unsigned skew = i % 3;
		num -= num > 1 && skew != 0;
		fill(out + skew, num * bs, i);
		CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, out + skew, offset, num), 0);
		CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_FLUSH, NULL, 0, 0), 0);
		int fd = open(path, O_RDONLY);
		CU_ASSERT_EQUAL(pread(fd, in, num * bs, (off_t)(offset * bs)), (ssize_t)(num * bs));
		close(fd);
		CU_ASSERT_EQUAL(memcmp(in, out + skew, num * bs), 0);
		memset(in, 0, num * bs);
		CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, in + skew, offset, num), 0);
		CU_ASSERT_EQUAL(memcmp(in + skew, out + skew, num * bs), 0);
		CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_COMPARE, out + skew, offset, num), 0);
	}
	user_close(&u);
	free(out);
	free(in);
}

static void test_data_written_is_in_the_file(void)
{
	struct bdev_uring_opts o = opts();

	MAKE_OR_SKIP(&o);
	CU_ASSERT_STRING_EQUAL(bdev_product_name(bdev_find("u0")), "URING bdev");
	CU_ASSERT_TRUE(bdev_write_cache(bdev_find("u0")));
	round_trip(&o);
	CU_ASSERT_EQUAL(fixture_delete(bdev_aio_delete, "u0"), -ENODEV);
	CU_ASSERT_EQUAL(fixture_delete(bdev_uring_delete, "u0"), 0);
}

static void test_aio_names_work_alike(void)
{
	struct bdev_uring_opts o = opts();

	o.aio = true;
	o.block_size = 4096;
	MAKE_OR_SKIP(&o);
	CU_ASSERT_STRING_EQUAL(bdev_product_name(bdev_find("u0")), "AIO disk");
	CU_ASSERT_EQUAL(bdev_block_size(bdev_find("u0")), 4096);
	round_trip(&o);
	CU_ASSERT_EQUAL(fixture_delete(bdev_uring_delete, "u0"), -ENODEV);
	CU_ASSERT_EQUAL(fixture_delete(bdev_aio_delete, "u0"), 0);
}

static void test_fallocate_punches_holes_that_read_as_zeroes(void)
{
	struct bdev_uring_opts o = opts();
	struct user u;
	uint8_t *data = malloc(65536);
	struct stat before, after;

	o.fallocate = true;
	o.block_size = 4096;
	MAKE_OR_SKIP(&o);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "u0", true, fixture_thread(1)), 0);
	fill(data, 65536, 3);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, data, 0, 16), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_FLUSH, NULL, 0, 0), 0);
	stat(path, &before);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_UNMAP, NULL, 0, 8), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE_ZEROES, NULL, 8, 4), 0);
	stat(path, &after);
	CU_ASSERT_TRUE(after.st_blocks < before.st_blocks);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, data, 0, 12), 0);
	CU_ASSERT_EQUAL(data[0], 0);
	CU_ASSERT_EQUAL(memcmp(data, data + 1, 12 * 4096 - 1), 0);
	free(data);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_uring_delete, "u0"), 0);
}

static void test_read_only_file_is_not_written(void)
{
	struct bdev_uring_opts o = opts();
	struct user u;
	uint8_t data[4096];

	o.readonly = true;
	MAKE_OR_SKIP(&o);
	CU_ASSERT_EQUAL(user_open(&u, "u0", true, fixture_thread(1)), -EROFS);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "u0", false, fixture_thread(1)), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, data, 0, 1), 0);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_uring_delete, "u0"), 0);
}

static void test_rescan_takes_up_a_new_size(void)
{
	struct bdev_uring_opts o = opts();
	struct user u;

	MAKE_OR_SKIP(&o);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "u0", true, fixture_thread(1)), 0);
	CU_ASSERT_EQUAL(bdev_uring_rescan("u0", false, error), 0);
	CU_ASSERT_EQUAL(u.resizes, 0);
	CU_ASSERT_EQUAL(truncate(path, 2 * FILE_BYTES), 0);
	CU_ASSERT_EQUAL(bdev_uring_rescan("u0", true, error), -ENODEV);
	CU_ASSERT_EQUAL(bdev_uring_rescan("u0", false, error), 0);
	CU_ASSERT_EQUAL(u.resizes, 1);
	CU_ASSERT_EQUAL(bdev_num_blocks(bdev_find("u0")) * bdev_block_size(bdev_find("u0")), 2 * FILE_BYTES);
	/* Cut behind the bdev's back: an error, not silence. */
	CU_ASSERT_EQUAL(truncate(path, FILE_BYTES), 0);
	uint8_t *data = malloc(4096);
	uint64_t last = bdev_num_blocks(bdev_find("u0")) - 1;
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, data, last, 1), NVME_SC_INTERNAL);
	free(data);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_uring_delete, "u0"), 0);
}

static void test_more_io_than_the_ring_holds_gets_through(void)
{
	struct bdev_uring_opts o = opts();
	struct user u;
	struct request *r[600];
	uint8_t *data = aligned_alloc(4096, 65536);
	struct iovec iov = {data, 4096};

	o.block_size = 4096;
	MAKE_OR_SKIP(&o);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "u0", true, fixture_thread(2)), 0);
	for (unsigned i = 0; i < 600; i++) {
		r[i] = request_new(&u);
		bdev_io_set_rw(r[i]->io, i % 2 ? BDEV_IO_READ : BDEV_IO_WRITE, &iov, 1, i, 1);
		request_submit(r[i]);
	}
	for (unsigned i = 0; i < 600; i++) {
		CU_ASSERT_TRUE_FATAL(request_wait(r[i]));
		CU_ASSERT_EQUAL(r[i]->status, 0);
		request_free(r[i]);
	}
	free(data);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_uring_delete, "u0"), 0);
}

static void test_creation_says_what_is_wrong(void)
{
	struct bdev_uring_opts o = opts();

	MAKE_OR_SKIP(&o);
	CU_ASSERT_EQUAL(fixture_delete(bdev_uring_delete, "u0"), 0);
	o.filename = "/nonexistent/file";
	CU_ASSERT_EQUAL(bdev_uring_create(&o, error), -ENOENT);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "/nonexistent/file"));
	o.filename = "/dev/null";
	CU_ASSERT_EQUAL(bdev_uring_create(&o, error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "neither"));
	o = opts();
	o.block_size = 1000;
	CU_ASSERT_EQUAL(bdev_uring_create(&o, error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "block_size 1000"));
	CU_ASSERT_EQUAL(truncate(path, FILE_BYTES + 512), 0);
	o.block_size = 4096;
	CU_ASSERT_EQUAL(bdev_uring_create(&o, error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "multiple"));
	CU_ASSERT_EQUAL(truncate(path, FILE_BYTES), 0);
	o.readonly = o.fallocate = true;
	CU_ASSERT_EQUAL(bdev_uring_create(&o, error), -EINVAL);
}

static const struct unit_test tests[] = {
	UNIT(test_data_written_is_in_the_file),
	UNIT(test_aio_names_work_alike),
	UNIT(test_fallocate_punches_holes_that_read_as_zeroes),
	UNIT(test_read_only_file_is_not_written),
	UNIT(test_rescan_takes_up_a_new_size),
	UNIT(test_more_io_than_the_ring_holds_gets_through),
	UNIT(test_creation_says_what_is_wrong),
	UNIT_END,
};
UNIT_MAIN("bdev_uring", tests, start, stop)

/* SPDX-License-Identifier: BSD-3-Clause */
/* Files through io_uring. */
#include "bdev_modules/uring/uring.h"
#include "unittest/bdev/fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <signal.h>
#include <sys/resource.h>
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

/* So many transfers are told to have moved only this much, as those do that a signal or the end of the space
 * interrupts. */
static atomic_uint cuts;
static unsigned cut_bytes;
/* Other than 0: what the next one is told to have ended with. */
static atomic_int next_result;

unsigned __real_io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **cqes, unsigned count);
unsigned __wrap_io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **cqes, unsigned count);

unsigned __wrap_io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **cqes, unsigned count)
{
	unsigned n = __real_io_uring_peek_batch_cqe(ring, cqes, count);

	for (unsigned i = 0; i < n; i++) {
		if (cqes[i]->res > (int)cut_bytes && atomic_load(&cuts) > 0) {
			cqes[i]->res = (int)cut_bytes;
			atomic_fetch_sub(&cuts, 1);
		}
		int result = atomic_exchange(&next_result, 0);
		cqes[i]->res = result != 0 ? result : cqes[i]->res;
	}
	return n;
}

/* Other than 0: what the next submission to the kernel fails with. */
static atomic_int submit_error;

int __real_io_uring_submit(struct io_uring *ring);
int __wrap_io_uring_submit(struct io_uring *ring);

/* The entries are visible to the kernel then, but it has not consumed them. */
int __wrap_io_uring_submit(struct io_uring *ring)
{
	int injected = atomic_exchange(&submit_error, 0);

	if (injected == 0) {
		return __real_io_uring_submit(ring);
	}
	*ring->sq.ktail += ring->sq.sqe_tail - ring->sq.sqe_head;
	ring->sq.sqe_head = ring->sq.sqe_tail;
	return injected;
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
#define MAKE_OR_SKIP(opts_)                                                                                            \
	if (!make(opts_)) {                                                                                            \
		UNIT_SKIP("no io_uring here");                                                                         \
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

static struct bdev_uring_opts opts_with_fallocate(void)
{
	struct bdev_uring_opts o = opts();

	o.fallocate = true;
	o.block_size = 4096;
	return o;
}

/* The first 16 blocks are written. */
static void open_written(struct user *u, uint8_t data[65536])
{
	CU_ASSERT_EQUAL_FATAL(user_open(u, "u0", true, fixture_thread(1)), 0);
	fill(data, 65536, 3);
	CU_ASSERT_EQUAL(user_io(u, BDEV_IO_WRITE, data, 0, 16), 0);
}

static void check_zeroes(struct user *u, uint8_t *data, size_t blocks)
{
	CU_ASSERT_EQUAL(user_io(u, BDEV_IO_READ, data, 0, blocks), 0);
	CU_ASSERT_EQUAL(data[0], 0);
	CU_ASSERT_EQUAL(memcmp(data, data + 1, blocks * 4096 - 1), 0);
}

static void test_fallocate_punches_holes_that_read_as_zeroes(void)
{
	struct bdev_uring_opts o = opts_with_fallocate();
	struct user u;
	uint8_t *data = malloc(65536);
	struct stat before, after;

	MAKE_OR_SKIP(&o);
	open_written(&u, data);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_FLUSH, NULL, 0, 0), 0);
	stat(path, &before);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_UNMAP, NULL, 0, 8), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE_ZEROES, NULL, 8, 4), 0);
	stat(path, &after);
	CU_ASSERT_TRUE(after.st_blocks < before.st_blocks);
	check_zeroes(&u, data, 12);
	free(data);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_uring_delete, "u0"), 0);
}

/* As with a block device that cannot zero by itself: its kernel then writes zeroes, if it is asked to, and to
 * deallocate is a wish. */
static void test_where_no_holes_are_punched_zeroes_are_written(void)
{
	struct bdev_uring_opts o = opts_with_fallocate();
	struct user u;
	uint8_t *data = malloc(65536);

	MAKE_OR_SKIP(&o);
	open_written(&u, data);
	atomic_store(&next_result, -EOPNOTSUPP);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_UNMAP, NULL, 0, 4), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, data, 0, 16), 0);
	atomic_store(&next_result, -EOPNOTSUPP);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE_ZEROES, NULL, 0, 4), 0);
	check_zeroes(&u, data, 4);
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
	uint8_t *data = malloc(8192);
	uint64_t last = bdev_num_blocks(bdev_find("u0")) - 1;
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, data, last, 1), NVME_SC_INTERNAL);
	CU_ASSERT_EQUAL(truncate(path, FILE_BYTES + 100), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, data, (last + 1) / 2 - 1, 2), NVME_SC_INTERNAL);
	CU_ASSERT_EQUAL(truncate(path, FILE_BYTES), 0);
	free(data);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_uring_delete, "u0"), 0);
}

/* What the kernel has left is done then, wherever in the memory it begins. */
static void test_transfers_that_stop_short_go_on(void)
{
	uint8_t *out = aligned_alloc(4096, 1 << 20), *in = aligned_alloc(4096, 1 << 20);
	struct iovec iovs[3] = {{in, 65536}, {in + 65536, 131072}, {in + 65536 + 131072, (1 << 20) - 65536 - 131072}};
	struct bdev_uring_opts o = opts();
	struct request *r;
	struct user u;

	MAKE_OR_SKIP(&o);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "u0", true, fixture_thread(0)), 0);
	uint64_t blocks = (1 << 20) / bdev_block_size(bdev_find("u0"));
	fill(out, 1 << 20, 5);
	cut_bytes = 98304;
	atomic_store(&cuts, 3);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, out, 0, blocks), 0);
	CU_ASSERT_EQUAL(atomic_load(&cuts), 0);
	int fd = open(path, O_RDONLY);
	CU_ASSERT_EQUAL(pread(fd, in, 1 << 20, 0), 1 << 20);
	close(fd);
	CU_ASSERT_EQUAL(memcmp(in, out, 1 << 20), 0);
	memset(in, 0, 1 << 20);
	atomic_store(&cuts, 4);
	r = request_new(&u);
	bdev_io_set_rw(r->io, BDEV_IO_READ, iovs, 3, 0, blocks);
	CU_ASSERT_EQUAL(request_run(r), 0);
	CU_ASSERT_EQUAL(atomic_load(&cuts), 0);
	CU_ASSERT_EQUAL(memcmp(in, out, 1 << 20), 0);
	request_free(r);
	free(out);
	free(in);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_uring_delete, "u0"), 0);
}

/* The kernel writes what fits and says so; only the rest meets the error. */
static void test_a_write_that_finds_no_more_room_says_so(void)
{
	struct bdev_uring_opts o = opts();
	uint8_t *data = aligned_alloc(4096, 1 << 20);
	struct rlimit before, small;
	struct user u;

	MAKE_OR_SKIP(&o);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "u0", true, fixture_thread(0)), 0);
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &before);
	small = before;
	small.rlim_cur = 1 << 19;
	CU_ASSERT_EQUAL(setrlimit(RLIMIT_FSIZE, &small), 0);
	fill(data, 1 << 20, 6);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, data, 0, (1 << 20) / bdev_block_size(bdev_find("u0"))),
			NVME_SC_CAP_EXCEEDED | NVME_SC_DNR);
	setrlimit(RLIMIT_FSIZE, &before);
	signal(SIGXFSZ, SIG_DFL);
	free(data);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_uring_delete, "u0"), 0);
}

/* The kernel tells of data that it could not write once, to the first who asks: a host that tried again would be told
 * that all is well. */
static void test_a_flush_that_failed_is_not_to_be_retried(void)
{
	struct bdev_uring_opts o = opts();
	uint8_t data[4096] = {0};
	struct user u;

	MAKE_OR_SKIP(&o);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "u0", true, fixture_thread(0)), 0);
	atomic_store(&next_result, -EIO);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_FLUSH, NULL, 0, 0), NVME_SC_INTERNAL | NVME_SC_DNR);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_FLUSH, NULL, 0, 0), 0);
	atomic_store(&next_result, -EIO);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, data, 0, 1), NVME_SC_INTERNAL);
	atomic_store(&next_result, -EAGAIN);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_FLUSH, NULL, 0, 0), 0); /* by the layer */
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

/* Each I/O ends, and the ring is of use afterwards. */
static void test_io_that_the_kernel_does_not_take_fails(void)
{
	struct bdev_uring_opts o = opts();
	struct user u;
	struct request *r[300];
	uint8_t *data = aligned_alloc(4096, 4096);
	struct iovec iov = {data, 4096};

	o.block_size = 4096;
	MAKE_OR_SKIP(&o);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "u0", true, fixture_thread(2)), 0);
	for (unsigned round = 0; round < 3; round++) {
		fill(data, 4096, round);
		for (unsigned i = 0; i < 300; i++) {
			r[i] = request_new(&u);
			bdev_io_set_rw(r[i]->io, BDEV_IO_WRITE, &iov, 1, i, 1);
			atomic_store(&submit_error, i % 100 == 0 ? -EBADF : 0);
			request_submit(r[i]);
		}
		for (unsigned i = 0; i < 300; i++) {
			CU_ASSERT_TRUE_FATAL(request_wait(r[i]));
			CU_ASSERT_TRUE(r[i]->status == 0 || r[i]->status == NVME_SC_INTERNAL);
			request_free(r[i]);
		}
		atomic_store(&submit_error, -EBADF);
		CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, data, 1, 1), NVME_SC_INTERNAL);
		CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, data, 1, 1), 0);
		CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_COMPARE, data, 1, 1), 0);
	}
	free(data);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_uring_delete, "u0"), 0);
}

/* Of this process, to the file. */
static unsigned descriptors(void)
{
	char link[64], target[256];
	unsigned n = 0;

	for (unsigned fd = 0; fd < 1024; fd++) {
		snprintf(link, sizeof(link), "/proc/self/fd/%u", fd);
		ssize_t bytes = readlink(link, target, sizeof(target) - 1);
		target[bytes > 0 ? bytes : 0] = '\0';
		n += strcmp(target, path) == 0;
	}
	return n;
}

struct deletion {
	atomic_bool done;
	unsigned open;
};

static void deleted(void *arg, int rc)
{
	struct deletion *d = arg;

	CU_ASSERT_EQUAL(rc, 0);
	d->open = descriptors();
	set_done(&d->done);
}

static void test_the_file_is_closed_when_the_deletion_ends(void)
{
	struct bdev_uring_opts o = opts();
	struct deletion d = {0};

	MAKE_OR_SKIP(&o);
	CU_ASSERT_EQUAL(descriptors(), 1);
	bdev_uring_delete("u0", deleted, &d);
	CU_ASSERT_TRUE(fixture_wait(&d.done));
	CU_ASSERT_EQUAL(d.open, 0);
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
	UNIT(test_where_no_holes_are_punched_zeroes_are_written),
	UNIT(test_read_only_file_is_not_written),
	UNIT(test_rescan_takes_up_a_new_size),
	UNIT(test_transfers_that_stop_short_go_on),
	UNIT(test_a_write_that_finds_no_more_room_says_so),
	UNIT(test_a_flush_that_failed_is_not_to_be_retried),
	UNIT(test_more_io_than_the_ring_holds_gets_through),
	UNIT(test_io_that_the_kernel_does_not_take_fails),
	UNIT(test_the_file_is_closed_when_the_deletion_ends),
	UNIT(test_creation_says_what_is_wrong),
	UNIT_END,
};
UNIT_MAIN("bdev_uring", tests, start, stop)

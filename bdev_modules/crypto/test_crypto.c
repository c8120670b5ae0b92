/* SPDX-License-Identifier: BSD-3-Clause */
/* Crypto bdevs: what is on the base, what their users see, and what happens to I/O and keys meanwhile. */
#include <errno.h>

#include "bdev_modules/crypto/crypto.h"
#include "bdev_modules/crypto/keys.h"
#include "bdev_modules/crypto/test_crypto_kit.h"
#include "env_dpdk/env.h"
#include "env_dpdk/iobuf.h"

#define SMALL_COUNT 128u
#define LARGE_COUNT 16u

static int start(void)
{
	const struct iobuf_opts few = {.small_pool_count = SMALL_COUNT,
				       .large_pool_count = LARGE_COUNT,
				       .small_bufsize = 8192,
				       .large_bufsize = 65536};
	char why[ENV_ERROR_MAX];

	return iobuf_set_opts(&few, why) != 0 || fixture_start() != 0 || crypto_kit_start() != 0;
}

static uint16_t io_of(enum bdev_io_type type, void *buf, uint64_t offset, uint64_t num)
{
	return user_io(&crypto_user, type, buf, offset, num);
}

static void test_blocks_on_the_base_are_encrypted_and_the_writers_data_stay(void)
{
	static uint8_t out[8 * 512], copy[8 * 512], in[8 * 512];

	crypto_make_on_testdev(512, 100);
	crypto_fill(out, sizeof(out), 1);
	memcpy(copy, out, sizeof(out));
	CU_ASSERT_EQUAL(io_of(BDEV_IO_WRITE, out, 9, 8), 0);
	CU_ASSERT_EQUAL(memcmp(out, copy, sizeof(out)), 0);
	CU_ASSERT_NOT_EQUAL(memcmp(crypto_disk->memory + 9 * 512, out, 512), 0);
	crypto_expect_on_base(9, out, 8);
	CU_ASSERT_EQUAL(io_of(BDEV_IO_READ, in, 9, 8), 0);
	CU_ASSERT_EQUAL(memcmp(in, out, sizeof(in)), 0);
	crypto_unmake();
}

static void test_other_types_mean_plain_data(void)
{
	static uint8_t a[512], b[512], in[512];
	static const uint8_t zeroes[512];

	crypto_make_on_testdev(512, 100);
	crypto_fill(a, sizeof(a), 1);
	crypto_fill(b, sizeof(b), 2);
	CU_ASSERT_EQUAL(io_of(BDEV_IO_WRITE, a, 5, 1), 0);
	CU_ASSERT_EQUAL(io_of(BDEV_IO_COMPARE, a, 5, 1), 0);
	CU_ASSERT_EQUAL(io_of(BDEV_IO_COMPARE, b, 5, 1),
			BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_COMPARE_FAILED) | NVME_SC_DNR);
	struct request *r = request_new(&crypto_user);
	struct iovec must_be = {a, 512}, then = {b, 512};
	bdev_io_set_rw(r->io, BDEV_IO_COMPARE_AND_WRITE, &then, 1, 5, 1);
	r->io->compare.iovs = &must_be;
	r->io->compare.iovcnt = 1;
	CU_ASSERT_EQUAL(request_run(r), 0);
	request_free(r);
	crypto_expect_on_base(5, b, 1);
	r = request_new(&crypto_user);
	bdev_io_set_copy(r->io, 5, 60, 1);
	CU_ASSERT_EQUAL(request_run(r), 0);
	request_free(r);
	crypto_expect_on_base(60, b, 1);
	CU_ASSERT_EQUAL(io_of(BDEV_IO_WRITE_ZEROES, NULL, 3, 5), 0);
	for (unsigned i = 3; i < 8; i++) {
		crypto_expect_on_base(i, zeroes, 1);
		CU_ASSERT_EQUAL(io_of(BDEV_IO_READ, in, i, 1), 0);
		CU_ASSERT_EQUAL(memcmp(in, zeroes, 512), 0);
	}
	CU_ASSERT_EQUAL(io_of(BDEV_IO_UNMAP, NULL, 60, 1), 0);
	CU_ASSERT_EQUAL(crypto_disk->memory[60 * 512], 0xee); /* it has reached the base */
	CU_ASSERT_EQUAL(io_of(BDEV_IO_FLUSH, NULL, 0, 0), 0);
	CU_ASSERT_EQUAL(io_of(BDEV_IO_VERIFY, NULL, 0, 100), 0);
	CU_ASSERT_EQUAL(io_of(BDEV_IO_RESET, NULL, 0, 0), 0);
	crypto_unmake();
}

/* --- Model --- */

#define MODEL_BLOCKS 600u

static uint8_t *model;
static uint64_t seed;

static uint32_t pick(uint32_t n)
{
	return (uint32_t)(fixture_random(&seed) % n);
}

/* Cuts `bytes` bytes at `at` into iovs at random places, so that blocks lie in several of them. */
static uint32_t cut(uint8_t *at, size_t bytes, struct iovec *iovs, uint32_t max)
{
	uint32_t n = 0;

	while (bytes > 0) {
		size_t part = 1 + pick((uint32_t)bytes);
		part = pick(3) == 0 && part > 512 ? part / 512 * 512 : part;
		part = n == max - 1 ? bytes : part;
		iovs[n++] = (struct iovec){at, part};
		at += part;
		bytes -= part;
	}
	return n;
}

static void model_step(uint32_t block, uint8_t *buf)
{
	uint64_t first = pick(MODEL_BLOCKS), blocks = 1 + pick(pick(4) == 0 ? 300 : 9);
	struct iovec iovs[7];

	blocks = blocks > MODEL_BLOCKS - first ? MODEL_BLOCKS - first : blocks;
	uint8_t *there = model + first * block;
	struct request *r = request_new(&crypto_user);
	uint32_t what = pick(5);
	if (what < 2) {
		crypto_fill(buf, blocks * block, fixture_random(&seed));
		memcpy(there, buf, blocks * block);
		bdev_io_set_rw(r->io, BDEV_IO_WRITE, iovs, cut(buf, blocks * block, iovs, 1 + pick(7)), first, blocks);
	} else if (what < 4) {
		memset(buf, 0x5a, blocks * block);
		bdev_io_set_rw(r->io, BDEV_IO_READ, iovs, cut(buf, blocks * block, iovs, 1 + pick(7)), first, blocks);
	} else {
		memset(there, 0, blocks * block);
		bdev_io_set_rw(r->io, BDEV_IO_WRITE_ZEROES, NULL, 0, first, blocks);
	}
	CU_ASSERT_EQUAL(request_run(r), 0);
	if (what < 4) { /* read, or as it was before it was written */
		CU_ASSERT_EQUAL(memcmp(buf, there, blocks * block), 0);
	}
	request_free(r);
}

static void model_run(uint32_t block, unsigned steps)
{
	uint8_t *buf = malloc((size_t)MODEL_BLOCKS * block);

	crypto_make_on_testdev(block, MODEL_BLOCKS);
	crypto_disk->shuffle = true;
	model = calloc(MODEL_BLOCKS, block);
	CU_ASSERT_EQUAL(io_of(BDEV_IO_WRITE_ZEROES, NULL, 0, MODEL_BLOCKS), 0);
	for (unsigned i = 0; i < steps; i++) {
		model_step(block, buf);
	}
	crypto_expect_on_base(0, model, MODEL_BLOCKS);
	free(model);
	free(buf);
	crypto_unmake();
}

static void test_random_io_agrees_with_a_plain_copy(void)
{
	for (unsigned i = 1; i < 4; i++) {
		seed = i;
		model_run(512, 300 / unit_stride());
		model_run(4096, 150 / unit_stride());
	}
}

/* --- Too few buffers --- */

#define CROWD 200u

static uint8_t crowd_data[CROWD][16 * 4096];

/* The base holds what it gets. */
static void crowd_make_base(void)
{
	crypto_make_on_testdev(4096, 16 * CROWD);
	crypto_disk->hold = true;
}

static struct request *submit_write(struct user *u, struct iovec *iov, uint64_t offset)
{
	struct request *r = request_new(u);

	bdev_io_set_rw(r->io, BDEV_IO_WRITE, iov, 1, offset, iov->iov_len / 4096);
	request_submit(r);
	return r;
}

/* Submits CROWD large writes: some are held by the base, and most wait for a buffer. */
static void crowd_submit(struct request *r[CROWD])
{
	static struct iovec iovs[CROWD];

	for (unsigned i = 0; i < CROWD; i++) {
		crypto_fill(crowd_data[i], sizeof(crowd_data[i]), i + 1);
		iovs[i] = (struct iovec){crowd_data[i], sizeof(crowd_data[i])};
		r[i] = submit_write(&crypto_user, &iovs[i], 16ul * i);
	}
	CU_ASSERT_TRUE(fixture_wait_count(&crypto_disk->held, 2));
	crypto_sync(); /* what was submitted has got as far as it gets */
	CU_ASSERT_TRUE(atomic_load(&crypto_disk->held) < CROWD / 2);
}

static void crowd_begin(struct request *r[CROWD])
{
	crowd_make_base();
	crowd_submit(r);
}

/* The base carries out what it holds until r has ended. Returns the status of r. */
static uint16_t release_and_finish(struct request *r)
{
	while (!atomic_load(&r->done)) {
		crypto_release();
	}
	return request_finish(r);
}

static void test_writes_wait_for_buffers_and_go_on_in_small_pieces(void)
{
	struct request *r[CROWD];

	crowd_begin(r);
	crypto_disk->hold = false;
	crypto_release();
	for (unsigned i = 0; i < CROWD; i++) {
		CU_ASSERT_EQUAL(release_and_finish(r[i]), 0);
		crypto_expect_on_base(16ul * i, crowd_data[i], 16);
	}
	crypto_unmake();
}

static void test_a_reset_ends_those_that_wait_for_buffers(void)
{
	struct request *r[CROWD];

	crowd_begin(r);
	CU_ASSERT_EQUAL(io_of(BDEV_IO_RESET, NULL, 0, 0), 0);
	for (unsigned i = 0; i < CROWD; i++) {
		CU_ASSERT_EQUAL(request_finish(r[i]), NVME_SC_ABORT_REQ);
	}
	crypto_disk->hold = false;
	CU_ASSERT_EQUAL(io_of(BDEV_IO_WRITE, crowd_data[0], 0, 16), 0);
	crypto_unmake();
}

/* Aborts a request of u and waits for its end. */
static void abort_one(struct user *u, struct request *r)
{
	struct request *abort = request_new(u);

	abort->io->type = BDEV_IO_ABORT;
	abort->io->abort.target = r->io;
	CU_ASSERT_EQUAL(request_run(abort), 0);
	CU_ASSERT_EQUAL(abort->cdw0, 0);
	request_free(abort);
	CU_ASSERT_EQUAL(request_finish(r), NVME_SC_ABORT_REQ);
}

static void test_each_that_waits_or_is_at_the_base_can_be_aborted(void)
{
	struct request *r[CROWD];

	crowd_begin(r);
	for (unsigned i = CROWD; i-- > 0;) {
		abort_one(&crypto_user, r[i]);
	}
	CU_ASSERT_EQUAL(atomic_load(&crypto_disk->held), 0);
	crypto_disk->hold = false;
	CU_ASSERT_EQUAL(io_of(BDEV_IO_WRITE, crowd_data[0], 0, 16), 0);
	crypto_unmake();
}

/* Whether the request waits for a buffer. */
static bool waits(const struct request *r)
{
	const struct bdev *b = bdev_find("c0");
	char text[128] = "";

	crypto_sync();
	b->ops->describe_io(r->io, text, sizeof(text));
	return text[0] != 0;
}

static unsigned first_that_waits(struct request *r[CROWD])
{
	unsigned i = 0;

	while (i < CROWD - 2 && !waits(r[i])) {
		i++;
	}
	CU_ASSERT_TRUE_FATAL(i > 0 && i < CROWD - 2);
	return i;
}

static void crowd_abort(struct request *r[CROWD])
{
	for (unsigned i = CROWD; i-- > 0;) {
		if (r[i] != NULL) {
			abort_one(&crypto_user, r[i]);
		}
	}
}

/* The buffer that comes free first is too small for the write. The next one goes to this write, not to one behind it.
 */
static void test_one_that_finds_no_buffer_stays_the_first_that_waits(void)
{
	struct iovec small = {crowd_data[0], 4096};
	struct request *r[CROWD];

	crowd_make_base();
	struct request *of_small = submit_write(&crypto_user, &small, 0);
	crowd_submit(r);
	unsigned first = first_that_waits(r);
	abort_one(&crypto_user, of_small);
	CU_ASSERT_TRUE(waits(r[first]));
	abort_one(&crypto_user, r[0]);
	r[0] = NULL;
	CU_ASSERT_FALSE(waits(r[first]));
	CU_ASSERT_TRUE(waits(r[first + 1]));
	crowd_abort(r);
	crypto_disk->hold = false;
	crypto_unmake();
}

/* All crypto bdevs of a thread wait for the same buffers. */
static void test_a_buffer_of_another_bdev_ends_the_waiting(void)
{
	const struct bdev_crypto_opts opts = {.name = "c1", .base_bdev_name = "t1", .key_name = "k"};
	struct iovec large = {crowd_data[0], sizeof(crowd_data[0])};
	struct testdev *other = testdev_new("t1", 4096, 16);
	struct request *r[CROWD];
	struct user u;

	CU_ASSERT_EQUAL_FATAL(testdev_register(other), 0);
	CU_ASSERT_EQUAL_FATAL(bdev_crypto_create(&opts, error), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "c1", true, fixture_thread(0)), 0);
	crowd_make_base();
	other->hold = true;
	struct request *of_other = submit_write(&u, &large, 0);
	crowd_submit(r);
	unsigned first = first_that_waits(r);
	abort_one(&u, of_other);
	CU_ASSERT_FALSE(waits(r[first]));
	CU_ASSERT_TRUE(waits(r[first + 1]));
	crowd_abort(r);
	crypto_disk->hold = other->hold = false;
	crypto_unmake();
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_crypto_delete, "c1"), 0);
	CU_ASSERT_TRUE(testdev_delete(other));
}

static void take_all_back(void *arg)
{
	bdev_channel_take_back(crypto_user.ch, crypto_user.desc, true);
}

/* arg: r[CROWD]. */
static bool most_have_ended(void *arg)
{
	struct request **r = arg;
	unsigned ended = 0;

	crypto_sync(); /* a thread runs only some callbacks at a time */
	for (unsigned i = 0; i < CROWD; i++) {
		ended += atomic_load(&r[i]->done);
	}
	return ended > CROWD / 2;
}

static void test_what_waits_for_a_buffer_can_be_taken_back(void)
{
	struct request *r[CROWD];

	crowd_begin(r);
	thread_call(fixture_thread(0), take_all_back, NULL);
	CU_ASSERT_TRUE(fixture_poll(most_have_ended, r));
	crypto_disk->hold = false;
	crypto_release();
	for (unsigned i = 0; i < CROWD; i++) {
		uint16_t status = request_finish(r[i]);
		CU_ASSERT_TRUE(status == 0 || status == NVME_SC_ABORT_REQ);
	}
	crypto_unmake();
}

/* --- Failures --- */

static void test_errors_of_the_base_are_the_users(void)
{
	static uint8_t buf[64 * 512];
	unsigned failed = 0;

	crypto_make_on_testdev(512, 64);
	CU_ASSERT_EQUAL(io_of(BDEV_IO_WRITE_ZEROES, NULL, 0, 64), 0);
	crypto_disk->fail_status = NVME_SC_DATA_XFER_ERROR;
	CU_ASSERT_EQUAL(io_of(BDEV_IO_READ, buf, 0, 64), NVME_SC_DATA_XFER_ERROR);
	CU_ASSERT_EQUAL(io_of(BDEV_IO_WRITE, buf, 0, 64), NVME_SC_DATA_XFER_ERROR);
	crypto_disk->fail_status = 0;
	crypto_disk->fail_one_in = 3;
	for (unsigned i = 0; i < 200; i++) {
		uint16_t status = io_of(BDEV_IO_WRITE, buf, 0, 1 + i % 64);
		failed += status != 0;
		CU_ASSERT_TRUE(status == 0 || status == NVME_SC_DATA_XFER_ERROR);
	}
	CU_ASSERT_TRUE(failed > 20);
	crypto_disk->fail_one_in = 0;
	crypto_unmake();
}

static void test_openssl_that_fails_leaves_neither_plain_nor_encrypted_data(void)
{
	static uint8_t buf[4 * 512], before[4 * 512];
	static const uint8_t zeroes[4 * 512];

	crypto_make_on_testdev(512, 64);
	crypto_fill(buf, sizeof(buf), 1);
	memcpy(before, crypto_disk->memory, sizeof(before));
	crypto_openssl_left = 2;
	CU_ASSERT_EQUAL(io_of(BDEV_IO_WRITE, buf, 0, 4), NVME_SC_INTERNAL);
	crypto_openssl_left = -1;
	CU_ASSERT_EQUAL(memcmp(crypto_disk->memory, before, sizeof(before)), 0);
	CU_ASSERT_EQUAL(io_of(BDEV_IO_WRITE, buf, 0, 4), 0);
	crypto_openssl_left = 2;
	CU_ASSERT_EQUAL(io_of(BDEV_IO_READ, buf, 0, 4), NVME_SC_INTERNAL);
	crypto_openssl_left = -1;
	CU_ASSERT_EQUAL(memcmp(buf, zeroes, sizeof(buf)), 0);
	crypto_unmake();
}

static void test_memory_that_is_missing_fails_a_creation_or_a_channel(void)
{
	const struct bdev_crypto_opts opts = {.name = "c0", .base_bdev_name = "n0", .key_name = "k"};
	const struct crypto_key_opts key = {.name = "kx", .key = KEY_A, .key2 = KEY_B};
	unsigned failed = 0;
	int rc = -ENOMEM;

	make_null("n0", 512, 100);
	for (long n = 0; rc != 0; n++) {
		crypto_allocations_left(n);
		rc = crypto_key_create(&key, error);
		crypto_allocations_left(-1);
		CU_ASSERT_TRUE(rc == 0 || rc == -ENOMEM);
	}
	CU_ASSERT_EQUAL(crypto_key_destroy("kx", error), 0);
	for (long n = 0; n < 100; n++) {
		struct user u;
		crypto_allocations_left(n);
		rc = bdev_crypto_create(&opts, error);
		crypto_allocations_left(-1);
		CU_ASSERT_EQUAL(bdev_find("c0") != NULL, rc == 0);
		if (rc == 0) {
			crypto_allocations_left(n);
			rc = user_open(&u, "c0", true, fixture_thread(0));
			crypto_allocations_left(-1);
			if (rc == 0) {
				user_close(&u);
			}
			CU_ASSERT_EQUAL(fixture_delete(bdev_crypto_delete, "c0"), 0);
		}
		failed += rc != 0;
	}
	CU_ASSERT_EQUAL(rc, 0);
	CU_ASSERT_TRUE(failed > 5);
	CU_ASSERT_EQUAL(crypto_key_users(crypto_key_find("k")), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

/* --- Life --- */

static void test_what_cannot_be_encrypted_is_refused(void)
{
	struct bdev_crypto_opts opts = {.name = "c0", .base_bdev_name = "n0", .key_name = "none"};
	char made[256];
	const struct bdev_malloc_opts with_md = {
		.name = "m0", .block_size = 512, .num_blocks = 100, .numa_id = -1, .md = {.size = 8}};

	make_null("n0", 512, 100);
	CU_ASSERT_EQUAL(bdev_crypto_create(&opts, error), -ENOENT);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "key_name 'none'"));
	opts.key_name = "k";
	opts.name = "";
	CU_ASSERT_EQUAL(bdev_crypto_create(&opts, error), -EINVAL);
	opts.name = "n0";
	CU_ASSERT_EQUAL(bdev_crypto_create(&opts, error), -EEXIST);
	CU_ASSERT_EQUAL_FATAL(bdev_malloc_create(&with_md, made, error), 0);
	opts.name = "c0";
	opts.base_bdev_name = "m0";
	CU_ASSERT_EQUAL(bdev_crypto_create(&opts, error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "8 bytes of metadata"));
	CU_ASSERT_EQUAL(bdev_get_claim(bdev_find("m0"), NULL), BDEV_CLAIM_NONE);
	opts.base_bdev_name = "n0";
	CU_ASSERT_EQUAL(bdev_crypto_create(&opts, error), 0);
	CU_ASSERT_EQUAL(bdev_crypto_create(&opts, error), -EEXIST);
	opts.name = "c1";
	CU_ASSERT_EQUAL(bdev_crypto_create(&opts, error), -EPERM);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "claimed by c0"));
	CU_ASSERT_EQUAL(crypto_key_users(crypto_key_find("k")), 1);
	CU_ASSERT_EQUAL(fixture_delete(bdev_crypto_delete, "c0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_crypto_delete, "c0"), -ENODEV);
	CU_ASSERT_EQUAL(crypto_key_users(crypto_key_find("k")), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

static void test_a_block_must_fit_into_a_buffer(void)
{
	const struct bdev_crypto_opts opts = {.name = "c0", .base_bdev_name = "n0", .key_name = "k"};
	struct iobuf_opts before, less;
	char why[ENV_ERROR_MAX];

	iobuf_get_opts(&before);
	less = before;
	less.large_bufsize = 8192;
	CU_ASSERT_EQUAL_FATAL(iobuf_set_opts(&less, why), 0);
	make_null("n0", 16384, 100);
	CU_ASSERT_EQUAL(bdev_crypto_create(&opts, error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "do not fit into data buffers of 8192"));
	CU_ASSERT_EQUAL(iobuf_set_opts(&before, why), 0);
	CU_ASSERT_EQUAL(bdev_crypto_create(&opts, error), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_crypto_delete, "c0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

static void test_it_waits_for_its_base_and_holds_its_key(void)
{
	struct bdev_crypto_opts opts = {.name = "c0", .base_bdev_name = "n0", .key_name = "k"}, now;
	uint8_t uuid[16];

	CU_ASSERT_EQUAL_FATAL(bdev_crypto_create(&opts, error), 0);
	CU_ASSERT_PTR_NULL(bdev_find("c0"));
	CU_ASSERT_EQUAL(crypto_key_destroy("k", error), -EBUSY);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "waits for its base: c0"));
	make_null("n0", 512, 100);
	CU_ASSERT_PTR_NOT_NULL_FATAL(bdev_find("c0"));
	CU_ASSERT_TRUE(bdev_crypto_get(bdev_find("c0"), &now));
	CU_ASSERT_STRING_EQUAL(now.key_name, "k");
	CU_ASSERT_STRING_EQUAL(now.base_bdev_name, "n0");
	CU_ASSERT_EQUAL(crypto_key_destroy("k", error), -EBUSY);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "1 bdevs"));
	memcpy(uuid, bdev_uuid(bdev_find("c0")), sizeof(uuid));
	CU_ASSERT_EQUAL(bdev_null_resize("n0", 2, error), 0);
	CU_ASSERT_EQUAL(bdev_num_blocks(bdev_find("c0")), 4096);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
	CU_ASSERT_PTR_NULL(bdev_find("c0"));
	CU_ASSERT_EQUAL(crypto_key_destroy("k", error), -EBUSY);
	make_null("n0", 512, 50);
	CU_ASSERT_PTR_NOT_NULL_FATAL(bdev_find("c0"));
	CU_ASSERT_EQUAL(memcmp(uuid, bdev_uuid(bdev_find("c0")), sizeof(uuid)), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_crypto_delete, "c0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
	CU_ASSERT_EQUAL(crypto_key_destroy("k", error), 0);
	CU_ASSERT_EQUAL(crypto_key_destroy("k", error), -ENOENT);
	CU_ASSERT_EQUAL(crypto_kit_make_key(), 0);
}

/* A key that came with the bdev stays while the bdev waits, and goes when that is deleted. */
static void test_a_key_of_the_bdev_goes_with_it(void)
{
	const struct crypto_key_opts key = {.name = "c0", .key = KEY_A, .key2 = KEY_B, .of_bdev = true};
	struct bdev_crypto_opts opts = {.name = "c0", .base_bdev_name = "n0", .key_name = "c0"};

	make_null("n0", 512, 100);
	CU_ASSERT_EQUAL(crypto_key_create(&key, error), 0);
	CU_ASSERT_EQUAL_FATAL(bdev_crypto_create(&opts, error), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
	CU_ASSERT_PTR_NOT_NULL(crypto_key_find("c0"));
	make_null("n0", 512, 100);
	CU_ASSERT_PTR_NOT_NULL(bdev_find("c0"));
	CU_ASSERT_EQUAL(fixture_delete(bdev_crypto_delete, "c0"), 0);
	CU_ASSERT_PTR_NULL(crypto_key_find("c0"));
	CU_ASSERT_EQUAL(crypto_key_create(&key, error), 0);
	opts.base_bdev_name = "later";
	CU_ASSERT_EQUAL_FATAL(bdev_crypto_create(&opts, error), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_crypto_delete, "c0"), 0);
	CU_ASSERT_PTR_NULL(crypto_key_find("c0"));
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

/* Its base comes back while another bdev has its UUID: it goes on waiting, and keeps its key until it can be made. */
static void test_a_key_of_the_bdev_outlives_a_return_that_fails(void)
{
	const struct crypto_key_opts key = {.name = "c0", .key = KEY_A, .key2 = KEY_B, .of_bdev = true};
	const struct bdev_crypto_opts opts = {.name = "c0", .base_bdev_name = "n0", .key_name = "c0"};
	struct bdev_malloc_opts same = {.name = "m0", .block_size = 512, .num_blocks = 100, .numa_id = -1};
	uint8_t uuid[16];
	char made[256];

	make_null("n0", 512, 100);
	CU_ASSERT_EQUAL(crypto_key_create(&key, error), 0);
	CU_ASSERT_EQUAL_FATAL(bdev_crypto_create(&opts, error), 0);
	memcpy(uuid, bdev_uuid(bdev_find("c0")), sizeof(uuid));
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
	same.uuid = uuid;
	CU_ASSERT_EQUAL_FATAL(bdev_malloc_create(&same, made, error), 0);
	make_null("n0", 512, 100);
	CU_ASSERT_PTR_NULL(bdev_find("c0"));
	CU_ASSERT_PTR_NOT_NULL_FATAL(crypto_key_find("c0"));
	CU_ASSERT_EQUAL(crypto_key_users(crypto_key_find("c0")), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
	make_null("n0", 512, 100);
	CU_ASSERT_PTR_NOT_NULL(bdev_find("c0"));
	CU_ASSERT_EQUAL(fixture_delete(bdev_crypto_delete, "c0"), 0);
	CU_ASSERT_PTR_NULL(crypto_key_find("c0"));
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

static void test_a_base_that_goes_ends_io_that_is_under_way(void)
{
	atomic_bool gone = false;
	struct request *r[CROWD];

	crowd_begin(r);
	crypto_hold_on();
	bdev_unregister(&crypto_disk->bdev, crypto_deleted, &gone);
	crypto_sync();
	crypto_disk->hold = false;
	for (unsigned i = 0; i < CROWD; i++) {
		uint16_t status = release_and_finish(r[i]);
		CU_ASSERT_TRUE(status == 0 || status == (NVME_SC_INVALID_NS | NVME_SC_DNR));
	}
	CU_ASSERT_TRUE(crypto_user.removes > 0);
	crypto_let_go();
	user_close(&crypto_user);
	CU_ASSERT_TRUE(fixture_wait(&gone));
	CU_ASSERT_EQUAL(fixture_delete(bdev_crypto_delete, "c0"), 0); /* it waits for its base */
}

static void test_a_deletion_waits_for_io(void)
{
	static uint8_t buf[512];
	atomic_bool gone = false;

	crypto_make_on_testdev(512, 100);
	crypto_disk->hold = true;
	struct request *r = request_new(&crypto_user);
	struct iovec iov = {buf, 512};
	bdev_io_set_rw(r->io, BDEV_IO_READ, &iov, 1, 0, 1);
	request_submit(r);
	CU_ASSERT_TRUE(fixture_wait_count(&crypto_disk->held, 1));
	bdev_crypto_delete("c0", crypto_deleted, &gone);
	CU_ASSERT_FALSE(atomic_load(&gone));
	CU_ASSERT_EQUAL(crypto_key_destroy("k", error), -EBUSY);
	crypto_release();
	CU_ASSERT_EQUAL(request_finish(r), 0);
	user_close(&crypto_user);
	CU_ASSERT_TRUE(fixture_wait(&gone));
	CU_ASSERT_EQUAL(crypto_key_users(crypto_key_find("k")), 0);
	CU_ASSERT_TRUE(testdev_delete(crypto_disk));
}

/* A null bdev leaves the buffer as it was, perhaps with data of another host. Decrypting them would reveal them. */
static void test_what_was_not_read_is_not_decrypted(void)
{
	static uint8_t a[512], b[512];
	struct bdev_crypto_opts opts = {.name = "c0", .base_bdev_name = "n0", .key_name = "k"};

	make_null("n0", 512, 100);
	CU_ASSERT_EQUAL_FATAL(bdev_crypto_create(&opts, error), 0);
	CU_ASSERT_FALSE(bdev_leaves_buffers(bdev_find("c0")));
	CU_ASSERT_EQUAL_FATAL(user_open(&crypto_user, "c0", true, fixture_thread(0)), 0);
	memset(a, 1, sizeof(a));
	memset(b, 2, sizeof(b));
	CU_ASSERT_EQUAL(io_of(BDEV_IO_READ, a, 7, 1), 0);
	CU_ASSERT_EQUAL(io_of(BDEV_IO_READ, b, 7, 1), 0);
	CU_ASSERT_EQUAL(memcmp(a, b, sizeof(a)), 0);
	user_close(&crypto_user);
	CU_ASSERT_EQUAL(fixture_delete(bdev_crypto_delete, "c0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

/* Encrypted twice, with more I/O at once than there are buffers, on two threads. */
static void test_one_on_another_and_two_threads(void)
{
	static struct iovec iovs[2][32];
	const struct bdev_crypto_opts over = {.name = "c1", .base_bdev_name = "c0", .key_name = "k"};
	const struct bdev_crypto_opts opts = {.name = "c0", .base_bdev_name = "m0", .key_name = "k"};
	struct request *r[2][32];
	struct user u[2];
	static uint8_t in[16 * 4096];

	make_malloc("m0", 4096, 64 * 16);
	CU_ASSERT_EQUAL_FATAL(bdev_crypto_create(&opts, error), 0);
	CU_ASSERT_EQUAL_FATAL(bdev_crypto_create(&over, error), 0);
	for (unsigned t = 0; t < 2; t++) {
		CU_ASSERT_EQUAL_FATAL(user_open(&u[t], "c1", true, fixture_thread(t)), 0);
	}
	for (unsigned round = 0; round < 10; round += unit_stride()) {
		for (unsigned i = 0; i < 64; i++) {
			unsigned t = i % 2, n = i / 2;
			crypto_fill(crowd_data[i], sizeof(crowd_data[i]), round * 64 + i + 1);
			iovs[t][n] = (struct iovec){crowd_data[i], sizeof(crowd_data[i])};
			r[t][n] = submit_write(&u[t], &iovs[t][n], 16ul * i);
		}
		for (unsigned i = 0; i < 64; i++) {
			CU_ASSERT_EQUAL(request_finish(r[i % 2][i / 2]), 0);
		}
		for (unsigned i = 0; i < 64; i++) {
			CU_ASSERT_EQUAL(user_io(&u[(i + 1) % 2], BDEV_IO_READ, in, 16ul * i, 16), 0);
			CU_ASSERT_EQUAL(memcmp(in, crowd_data[i], sizeof(in)), 0);
		}
	}
	user_close(&u[0]);
	user_close(&u[1]);
	CU_ASSERT_EQUAL(fixture_delete(bdev_crypto_delete, "c1"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_crypto_delete, "c0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
}

static const struct unit_test tests[] = {
	UNIT(test_blocks_on_the_base_are_encrypted_and_the_writers_data_stay),
	UNIT(test_other_types_mean_plain_data),
	UNIT(test_random_io_agrees_with_a_plain_copy),
	UNIT(test_writes_wait_for_buffers_and_go_on_in_small_pieces),
	UNIT(test_a_reset_ends_those_that_wait_for_buffers),
	UNIT(test_each_that_waits_or_is_at_the_base_can_be_aborted),
	UNIT(test_one_that_finds_no_buffer_stays_the_first_that_waits),
	UNIT(test_a_buffer_of_another_bdev_ends_the_waiting),
	UNIT(test_what_waits_for_a_buffer_can_be_taken_back),
	UNIT(test_errors_of_the_base_are_the_users),
	UNIT(test_openssl_that_fails_leaves_neither_plain_nor_encrypted_data),
	UNIT(test_memory_that_is_missing_fails_a_creation_or_a_channel),
	UNIT(test_what_cannot_be_encrypted_is_refused),
	UNIT(test_a_block_must_fit_into_a_buffer),
	UNIT(test_it_waits_for_its_base_and_holds_its_key),
	UNIT(test_a_key_of_the_bdev_goes_with_it),
	UNIT(test_a_key_of_the_bdev_outlives_a_return_that_fails),
	UNIT(test_a_base_that_goes_ends_io_that_is_under_way),
	UNIT(test_a_deletion_waits_for_io),
	UNIT(test_what_was_not_read_is_not_decrypted),
	UNIT(test_one_on_another_and_two_threads),
	UNIT_END,
};
UNIT_MAIN("bdev_crypto", tests, start, fixture_stop)

/* SPDX-License-Identifier: BSD-3-Clause */
/* What encryption costs: AES-XTS 256 of blocks of 4 KiB at queue depth 16 on one core, a crypto bdev on a null bdev in
 * turns with OpenSSL alone, which does the same blocks in the same memory.
 *
 *     crypto.evp_write_4k_gbps	OpenSSL, from one buffer to another
 *     crypto.write_4k_gbps	writes of the crypto bdev
 *     crypto.evp_read_4k_gbps	OpenSSL, in place
 *     crypto.read_4k_gbps	reads of the crypto bdev
 *     and the same with 128k
 *     crypto.write_4k_share ...	the bdev's figure divided by OpenSSL's
 *     			(a null bdev reads nothing, so the memory is cleared before, which no other base needs)
 *     crypto.allocs_per_io	calls of malloc and its kin per I/O, while the above ran */
#include <errno.h>
#include <string.h>

#include "bdev/bdev.h"
#include "bdev_modules/crypto/crypto.h"
#include "bdev_modules/crypto/keys.h"
#include "bdev_modules/crypto/xts.h"
#include "bdev_modules/null/null.h"
#include "bench/allocations.h"
#include "bench/bench.h"
#include "env_dpdk/env.h"
#include "thread/thread.h"

#define QD          16
#define BLOCK       4096u
#define LARGE       131072u
#define DISK_BLOCKS 16384
#define TURN_BYTES  (UINT64_C(64) << 20)
#define TURNS       15

static uint64_t counted_ios;

struct request {
	struct run *run;
	struct iovec iov;
	struct bdev_io io; /* last: the module's context follows */
};

struct run {
	struct thread *thread;
	struct bdev_desc *desc;
	struct bdev_channel *ch;
	uint8_t *requests, *buffers, *out;
	size_t stride;
	uint32_t bytes; /* of an I/O */
	enum bdev_io_type type;
	EVP_CIPHER_CTX *ctx; /* for OpenSSL alone */
	uint64_t at;
	unsigned to_submit, to_complete;
	uint64_t start_ticks, ticks;
	bool done;
};

static uint64_t next_block(struct run *r)
{
	r->at = (r->at + 32) % DISK_BLOCKS;
	return r->at;
}

static double gbps(const struct run *r)
{
	return (double)TURN_BYTES * (double)env_ticks_hz() / (double)r->ticks / 1e9;
}

static void wake(void *arg)
{
	((struct run *)arg)->done = true;
}

static void request_done(struct bdev_io *io, void *arg)
{
	struct run *r = arg;

	if (io->status != 0) {
		abort();
	}
	if (r->to_submit > 0) {
		r->to_submit--;
		io->offset_blocks = next_block(r);
		bdev_submit(io);
	}
	if (--r->to_complete == 0) {
		r->ticks = env_ticks() - r->start_ticks;
		counting = false;
		thread_send(thread_control(), wake, r);
	}
}

static struct request *request_at(struct run *r, unsigned i)
{
	return (struct request *)(r->requests + i * r->stride);
}

static void start_run(void *arg)
{
	struct run *r = arg;

	r->to_complete = (unsigned)(TURN_BYTES / r->bytes);
	r->to_submit = r->to_complete - QD;
	counting = true;
	r->start_ticks = env_ticks();
	for (unsigned i = 0; i < QD; i++) {
		struct bdev_io *io = &request_at(r, i)->io;
		io->offset_blocks = next_block(r);
		bdev_submit(io);
	}
}

static bool is_done(void *arg)
{
	return ((struct run *)arg)->done;
}

static double turn_bdev(void *arg)
{
	struct run *r = arg;

	r->done = false;
	for (unsigned i = 0; i < QD; i++) {
		struct request *q = request_at(r, i);
		q->iov = (struct iovec){r->buffers + (size_t)i * LARGE, r->bytes};
		bdev_io_set_rw(&q->io, r->type, &q->iov, 1, 0, r->bytes / BLOCK);
	}
	thread_send(r->thread, start_run, r);
	if (!thread_control_wait(is_done, r, 600000000)) {
		abort();
	}
	counted_ios += TURN_BYTES / r->bytes;
	return gbps(r);
}

static void evp_run(void *arg)
{
	struct run *r = arg;
	unsigned n = (unsigned)(TURN_BYTES / r->bytes);
	int done;

	r->start_ticks = env_ticks();
	for (unsigned i = 0; i < n; i++) {
		uint8_t *from = r->buffers + (size_t)(i % QD) * LARGE;
		uint8_t *to = r->type == BDEV_IO_WRITE ? r->out + (size_t)(i % QD) * LARGE : from;
		uint64_t tweak[2] = {next_block(r), 0};
		for (uint32_t at = 0; at < r->bytes; at += BLOCK, tweak[0]++) {
			if (!EVP_CipherInit_ex(r->ctx, NULL, NULL, NULL, (uint8_t *)tweak, -1) ||
			    !EVP_CipherUpdate(r->ctx, to + at, &done, from + at, BLOCK)) {
				abort();
			}
		}
	}
	r->ticks = env_ticks() - r->start_ticks;
}

static double turn_evp(void *arg)
{
	struct run *r = arg;

	thread_call(r->thread, evp_run, r);
	return gbps(r);
}

static void open_run(void *arg)
{
	struct run *r = arg;
	r->ch = bdev_channel_get(r->desc);
}

static void close_run(void *arg)
{
	struct run *r = arg;
	bdev_channel_put(r->ch);
}

static void event(struct bdev_desc *desc, enum bdev_event e, void *arg)
{
}

static void run_init(struct run *r)
{
	if (bdev_open("crypto", true, event, r, &r->desc) != 0) {
		abort();
	}
	thread_call(r->thread, open_run, r);
	r->stride = (offsetof(struct request, io) + bdev_io_size() + 63) & ~(size_t)63;
	r->requests = aligned_alloc(64, QD * r->stride);
	if (r->ch == NULL || r->requests == NULL) {
		abort();
	}
	memset(r->requests, 0, QD * r->stride);
	for (unsigned i = 0; i < QD; i++) {
		bdev_io_init(&request_at(r, i)->io, r->desc, r->ch, request_done, r);
	}
}

static void run_fini(struct run *r)
{
	thread_call(r->thread, close_run, r);
	bdev_close(r->desc);
	free(r->requests);
}

static void check(int rc, const char *what, const char *error)
{
	if (rc != 0) {
		fprintf(stderr, "%s: %s\n", what, error);
		exit(1);
	}
}

static void make_bdevs(struct crypto_xts *x)
{
	char error[BDEV_ERROR_MAX];
	const struct bdev_null_opts null = {.name = "null", .block_size = BLOCK, .num_blocks = DISK_BLOCKS};
	const struct crypto_key_opts key = {.name = "key",
					    .key = "2718281828459045235360287471352662497757247093699959574966967627",
					    .key2 = "3141592653589793238462643383279502884197169399375105820974944592"};
	const struct bdev_crypto_opts crypto = {.name = "crypto", .base_bdev_name = "null", .key_name = "key"};
	size_t bytes;

	check(bdev_init(), "bdev_init", "failed");
	check(bdev_null_create(&null, error), "bdev_null_create", error);
	check(crypto_key_create(&key, error), "crypto_key_create", error);
	check(bdev_crypto_create(&crypto, error), "bdev_crypto_create", error);
	const uint8_t *secret = crypto_key_secret(crypto_key_find("key"), &bytes);
	check(crypto_xts_create(x, secret, bytes), "crypto_xts_create", "failed");
}

static void measure(struct run *r, unsigned n)
{
	static const char *const names[] = {"write_4k", "read_4k", "write_128k", "read_128k"};
	struct bench_variant variants[8];
	double medians[8];
	char text[8][64];

	for (unsigned i = 0; i < 2 * n; i++) {
		snprintf(text[i], sizeof(text[i]), "crypto.%s%s_gbps", i % 2 == 0 ? "evp_" : "", names[i / 2]);
		variants[i] = (struct bench_variant){text[i], "GB/s", i % 2 == 0 ? turn_evp : turn_bdev, &r[i / 2]};
	}
	bench_run(variants, 2 * n, TURNS, medians);
	for (unsigned i = 0; i < n; i++) {
		snprintf(text[0], sizeof(text[0]), "crypto.%s_share", names[i]);
		bench_print(text[0], medians[2 * i + 1] / medians[2 * i], "of OpenSSL");
	}
	bench_print("crypto.allocs_per_io", (double)allocations / (double)counted_ios, "allocations");
}

static void set_true(void *flag)
{
	*(bool *)flag = true;
}

static bool is_true(void *flag)
{
	return *(bool *)flag;
}

int main(void)
{
	const struct env_opts env = {.name = "bench", .instance_id = -1, .no_huge = false, .no_pci = true};
	char error[ENV_ERROR_MAX];
	struct crypto_xts x;
	bool gone = false;

	check(env_init(&env, error), "env_init", error);
	check(thread_lib_start(&(struct thread_lib_opts){.poll_mode = POLL_MODE_BUSY}), "thread_lib_start", "failed");
	make_bdevs(&x);
	struct thread *t = thread_create("bench", NULL);
	uint8_t *buffers = env_dma_zmalloc((size_t)2 * QD * LARGE, 4096, -1);
	struct run r[4];
	for (unsigned i = 0; i < 4; i++) {
		r[i] = (struct run){.thread = t,
				    .buffers = buffers,
				    .out = buffers + (size_t)QD * LARGE,
				    .bytes = i < 2 ? BLOCK : LARGE,
				    .type = i % 2 == 0 ? BDEV_IO_WRITE : BDEV_IO_READ};
		r[i].ctx = i % 2 == 0 ? x.encrypt : x.decrypt;
		run_init(&r[i]);
	}
	measure(r, 4);
	for (unsigned i = 0; i < 4; i++) {
		run_fini(&r[i]);
	}
	crypto_xts_destroy(&x);
	bdev_fini(set_true, &gone);
	thread_control_wait(is_true, &gone, 60000000);
	env_dma_free(buffers);
	thread_destroy(t);
	thread_lib_stop();
	env_fini();
	return 0;
}

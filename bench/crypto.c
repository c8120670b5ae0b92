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
#include <string.h>

#include "bdev_modules/crypto/crypto.h"
#include "bdev_modules/crypto/keys.h"
#include "bdev_modules/crypto/xts.h"
#include "bdev_modules/null/null.h"
#include "bench/bdev_load.h"
#include "bench/bench.h"
#include "env_dpdk/env.h"

#define QD          16
#define LARGE       131072u
#define DISK_BLOCKS 16384
#define TURN_BYTES  (UINT64_C(64) << 20)
#define TURNS       15

struct run {
	struct bench_load load;
	uint8_t *out;        /* where OpenSSL alone writes */
	EVP_CIPHER_CTX *ctx; /* for OpenSSL alone */
};

static double gbps(uint64_t ticks)
{
	return (double)TURN_BYTES * (double)env_ticks_hz() / (double)ticks / 1e9;
}

static double turn_bdev(void *arg)
{
	struct bench_load *l = &((struct run *)arg)->load;

	return gbps(bench_load_run(l, (unsigned)(TURN_BYTES / l->bytes)));
}

static void evp_run(void *arg)
{
	struct run *r = arg;
	struct bench_load *l = &r->load;
	unsigned n = (unsigned)(TURN_BYTES / l->bytes);
	int done;

	l->random = 1;
	l->start_ticks = env_ticks();
	for (unsigned i = 0; i < n; i++) {
		size_t at_buffer = (size_t)(i % QD) * l->bytes;
		uint8_t *from = l->buffers + at_buffer, *to = l->type == BDEV_IO_WRITE ? r->out + at_buffer : from;
		uint64_t tweak[2] = {bench_load_next(l), 0};
		for (uint32_t at = 0; at < l->bytes; at += BENCH_LOAD_BLOCK, tweak[0]++) {
			if (!EVP_CipherInit_ex(r->ctx, NULL, NULL, NULL, (uint8_t *)tweak, -1) ||
			    !EVP_CipherUpdate(r->ctx, to + at, &done, from + at, BENCH_LOAD_BLOCK)) {
				abort();
			}
		}
	}
	l->ticks = env_ticks() - l->start_ticks;
}

static double turn_evp(void *arg)
{
	struct run *r = arg;

	thread_call(r->load.thread, evp_run, r);
	return gbps(r->load.ticks);
}

static void make_bdevs(struct crypto_xts *x)
{
	char error[BDEV_ERROR_MAX];
	const struct bdev_null_opts null = {.name = "null", .block_size = BENCH_LOAD_BLOCK, .num_blocks = DISK_BLOCKS};
	const struct crypto_key_opts key = {.name = "key",
					    .key = "2718281828459045235360287471352662497757247093699959574966967627",
					    .key2 = "3141592653589793238462643383279502884197169399375105820974944592"};
	const struct bdev_crypto_opts crypto = {.name = "crypto", .base_bdev_name = "null", .key_name = "key"};
	size_t bytes;

	bench_load_check(bdev_null_create(&null, error), "bdev_null_create", error);
	bench_load_check(crypto_key_create(&key, error), "crypto_key_create", error);
	bench_load_check(bdev_crypto_create(&crypto, error), "bdev_crypto_create", error);
	const uint8_t *secret = crypto_key_secret(crypto_key_find("key"), &bytes);
	bench_load_check(crypto_xts_create(x, secret, bytes), "crypto_xts_create", "failed");
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
	bench_print("crypto.allocs_per_io", bench_load_allocations(), "allocations");
}

int main(void)
{
	struct crypto_xts x;

	bench_load_start_env();
	bench_load_start_threads();
	make_bdevs(&x);
	struct thread *t = thread_create("bench", NULL);
	uint8_t *buffers = env_dma_zmalloc((size_t)2 * QD * LARGE, 4096, -1);
	struct run r[4];
	for (unsigned i = 0; i < 4; i++) {
		r[i] = (struct run){.load = {.bdev = "crypto",
					     .thread = t,
					     .queue_depth = QD,
					     .type = i % 2 == 0 ? BDEV_IO_WRITE : BDEV_IO_READ,
					     .bytes = i < 2 ? BENCH_LOAD_BLOCK : LARGE,
					     .block_mask = (DISK_BLOCKS - 1) & ~(LARGE / BENCH_LOAD_BLOCK - 1),
					     .buffers = buffers},
				    .out = buffers + (size_t)QD * LARGE,
				    .ctx = i % 2 == 0 ? x.encrypt : x.decrypt};
		bench_load_open(&r[i].load);
	}
	measure(r, 4);
	for (unsigned i = 0; i < 4; i++) {
		bench_load_close(&r[i].load);
	}
	crypto_xts_destroy(&x);
	bench_load_end_bdevs();
	env_dma_free(buffers);
	thread_destroy(t);
	thread_lib_stop();
	env_fini();
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* What checksums of data cost: I/O at queue depth 16 on one core, an integrity bdev on a RAM disk in turns with a RAM
 * disk alone. All regions have their checksums in memory, and are open.
 *
 *     integrity.base_read_4k_ns	random reads of the RAM disk
 *     integrity.read_4k_ns		the same of the integrity bdev, which checks them
 *     integrity.base_write_4k_ns, integrity.write_4k_ns	random writes
 *     	and the same with 128k
 *     integrity.read_4k_over_ns ...	what that is more than the RAM disk's
 *     integrity.scrub_mib_per_s	a scrub at the highest rate
 *     integrity.write_md_bytes	metadata that a write of 4 KiB has the base write, when all 512 blocks of each
 *     				region are written, and the region is opened before and closed afterwards
 *     integrity.allocs_per_io		calls of malloc and its kin per I/O, while the above ran
 *
 * The benchmark fails if a block was read without a check, or is wrong. */
#include <string.h>

#include "bdev_modules/integrity/internal.h"
#include "bdev_modules/malloc/malloc.h"
#include "bench/bdev_load.h"
#include "bench/bench.h"

#define QD          16
#define LARGE       131072u
#define DISK_BLOCKS 16384 /* 64 MiB: 32 regions */
#define BASE_BLOCKS (DISK_BLOCKS + 257)
#define TURN_BYTES  (UINT64_C(64) << 20)
#define TURNS       15
#define LOADS       8
#define WAIT_US     60000000

static struct bdev_integrity_info info_now(void)
{
	struct bdev_integrity_info info;

	bdev_integrity_get_info(bdev_integrity_find("integrity"), &info);
	return info;
}

static void created(void *arg, int rc, const char *error)
{
	bench_load_check(rc, "bdev_integrity_create", error);
	*(bool *)arg = true;
}

static bool is_set(void *arg)
{
	return *(bool *)arg;
}

static void integrity_make(bool format)
{
	bool done = false;

	bdev_integrity_create(
		&(struct bdev_integrity_opts){.name = "integrity", .base_bdev_name = "base", .format = format}, created,
		&done);
	if (!thread_control_wait(is_set, &done, WAIT_US)) {
		bench_load_check(-1, "bdev_integrity_create", "does not end");
	}
}

static void make_bdevs(void)
{
	char error[BDEV_ERROR_MAX];
	struct bdev_malloc_opts ram = {
		.name = "base", .block_size = BENCH_LOAD_BLOCK, .num_blocks = BASE_BLOCKS, .numa_id = -1};

	bench_load_check(bdev_malloc_create(&ram, NULL, error), "bdev_malloc_create", error);
	ram.name = "ram";
	ram.num_blocks = DISK_BLOCKS;
	bench_load_check(bdev_malloc_create(&ram, NULL, error), "bdev_malloc_create", error);
	integrity_make(true);
}

static struct bench_load load_of(struct thread *t, uint8_t *buffers, unsigned i)
{
	uint32_t bytes = i < LOADS / 2 ? BENCH_LOAD_BLOCK : LARGE;

	return (struct bench_load){.bdev = i % 2 == 0 ? "ram" : "integrity",
				   .thread = t,
				   .queue_depth = QD,
				   .type = i % 4 < 2 ? BDEV_IO_READ : BDEV_IO_WRITE,
				   .bytes = bytes,
				   .block_mask = (DISK_BLOCKS - 1) & ~(bytes / BENCH_LOAD_BLOCK - 1),
				   .buffers = buffers};
}

/* Each block once. */
static void write_all(struct thread *t, uint8_t *buffers)
{
	struct bench_load l = load_of(t, buffers, 3);

	l.stride_blocks = 1;
	bench_load_open(&l);
	bench_load_run(&l, DISK_BLOCKS);
	bench_load_close(&l);
}

static double turn(void *arg)
{
	struct bench_load *l = arg;
	unsigned n = (unsigned)(TURN_BYTES / l->bytes);

	return bench_load_ns(bench_load_run(l, n), n);
}

static bool scrub_has_ended(void *arg)
{
	struct bdev_integrity_scrub *s = arg;

	bdev_integrity_scrub_get(bdev_integrity_find("integrity"), s);
	return !s->running;
}

static double turn_scrub(void *arg)
{
	char error[BDEV_ERROR_MAX];
	struct bdev_integrity_scrub s;
	uint64_t start = env_ticks();

	bench_load_check(bdev_integrity_scrub_start(bdev_integrity_find("integrity"), 100000, error), "scrub", error);
	if (!thread_control_wait(scrub_has_ended, &s, WAIT_US) || !s.completed || s.units_bad + s.units_unchecked > 0) {
		bench_load_check(-1, "scrub", "did not end, or found something");
	}
	return (double)DISK_BLOCKS * BENCH_LOAD_BLOCK / (1 << 20) * 1e9 / bench_load_ns(env_ticks() - start, 1);
}

static void measure(struct bench_load *l)
{
	static const char *const names[] = {"read_4k", "write_4k", "read_128k", "write_128k"};
	struct bench_variant variants[LOADS + 1];
	double medians[LOADS + 1];
	char text[LOADS][64];

	for (unsigned i = 0; i < LOADS; i++) {
		snprintf(text[i], sizeof(text[i]), "integrity.%s%s_ns", i % 2 == 0 ? "base_" : "", names[i / 2]);
		variants[i] = (struct bench_variant){text[i], "ns", turn, &l[i]};
	}
	variants[LOADS] = (struct bench_variant){"integrity.scrub_mib_per_s", "MiB/s", turn_scrub, NULL};
	bench_run(variants, LOADS + 1, TURNS, medians);
	for (unsigned i = 1; i < LOADS; i += 2) {
		snprintf(text[0], sizeof(text[0]), "integrity.%s_over_ns", names[i / 2]);
		bench_print(text[0], medians[i] - medians[i - 1], "ns");
	}
	bench_print("integrity.allocs_per_io", bench_load_allocations(), "allocations");
}

static void deleted(void *arg, int rc)
{
	bench_load_check(rc, "bdev_delete", "failed");
	*(bool *)arg = true;
}

static void integrity_delete(void)
{
	bool done = false;

	bdev_integrity_delete("integrity", deleted, &done);
	if (!thread_control_wait(is_set, &done, WAIT_US)) {
		bench_load_check(-1, "bdev_integrity_delete", "does not end");
	}
}

/* From no open region to none: what the base has counted is data and metadata. */
static void count_metadata(struct thread *t, uint8_t *buffers)
{
	static struct bdev_stat before, after;

	integrity_delete();
	integrity_make(false);
	bdev_get_stat(bdev_find("base"), &before);
	write_all(t, buffers);
	integrity_delete();
	bdev_get_stat(bdev_find("base"), &after);
	unsigned class = bdev_io_stat_class(BDEV_IO_WRITE);
	uint64_t bytes = after.class[class].bytes - before.class[class].bytes;
	bench_print("integrity.write_md_bytes", ((double)bytes - (double)DISK_BLOCKS * BENCH_LOAD_BLOCK) / DISK_BLOCKS,
		    "bytes");
}

int main(void)
{
	struct bench_load l[LOADS];

	bench_load_start_env();
	bench_load_start_threads();
	struct thread *t = thread_create("bench", NULL);
	uint8_t *buffers = env_dma_zmalloc((size_t)QD * LARGE, 4096, -1);
	integrity_limits.idle_us = 1000000000; /* regions stay open */
	make_bdevs();
	write_all(t, buffers);
	for (unsigned i = 0; i < LOADS; i++) {
		l[i] = load_of(t, buffers, i);
		bench_load_open(&l[i]);
	}
	measure(l);
	for (unsigned i = 0; i < LOADS; i++) {
		bench_load_close(&l[i]);
	}
	const struct bdev_integrity_info info = info_now();
	if (info.errors != 0 || info.units_unchecked != 0) {
		bench_load_check(-1, "integrity", "blocks were wrong, or not checked");
	}
	count_metadata(t, buffers);
	bench_load_end_bdevs();
	env_dma_free(buffers);
	thread_destroy(t);
	thread_lib_stop();
	env_fini();
	return 0;
}

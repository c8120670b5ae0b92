/* SPDX-License-Identifier: BSD-3-Clause */
/* I/O on a bdev at a fixed queue depth, from a thread of its own, and the process around it: environment, threads,
 * bdevs. For benchmarks of the block layer. Whatever fails ends the program. */
#ifndef BENCH_BDEV_LOAD_H
#define BENCH_BDEV_LOAD_H

#include <stdint.h>

#include "bdev/bdev.h"
#include "env_dpdk/env.h"
#include "thread/thread.h"

#define BENCH_LOAD_BLOCK 4096u

struct bench_request {
	struct iovec iov;
	struct bdev_io io; /* last: the module's context follows */
};

struct bench_load {
	/* Set by the caller before bench_load_open(). */
	const char *bdev;
	struct thread *thread;
	unsigned queue_depth;
	enum bdev_io_type type;
	uint32_t bytes;         /* of an I/O */
	uint32_t block_mask;    /* of a random number: where an I/O begins, in blocks of BENCH_LOAD_BLOCK bytes */
	uint32_t stride_blocks; /* not 0: no random numbers; each I/O begins so far behind the one before, from 0 on */
	uint8_t *buffers;       /* of `bytes` for each I/O, one behind the other */
	/* Private. */
	struct bdev_desc *desc;
	struct bdev_channel *ch;
	uint8_t *requests;
	size_t stride;
	uint32_t random, next_block;
	unsigned ios, to_submit, to_complete;
	uint64_t start_ticks, ticks;
	bool done;
};

/* Ends the program unless rc is 0. */
void bench_load_check(int rc, const char *what, const char *error);
/* Starts the environment. What else needs no threads, such as the recorder, comes between the two. */
void bench_load_start_env(void);
/* Starts the reactors and the block layer. */
void bench_load_start_threads(void);
/* Deletes all bdevs, and ends the block layer. Threads are still there. */
void bench_load_end_bdevs(void);

/* Opens the bdev and makes the requests. */
void bench_load_open(struct bench_load *l);
void bench_load_close(struct bench_load *l);
/* So many I/Os at random places, always the same ones. Returns the ticks that they took. */
uint64_t bench_load_run(struct bench_load *l, unsigned ios);
/* Heap allocations of the loads' threads during all runs so far, per I/O. */
double bench_load_allocations(void);

/* Nanoseconds for each of n, of the ticks that all took. */
static inline double bench_load_ns(uint64_t ticks, unsigned n)
{
	return (double)ticks * 1e9 / (double)env_ticks_hz() / n;
}

/* Where the next I/O begins, in blocks. */
static inline uint32_t bench_load_next(struct bench_load *l)
{
	if (l->stride_blocks != 0) {
		uint32_t at = l->next_block;
		l->next_block += l->stride_blocks;
		return at;
	}
	l->random = l->random * 1664525 +
		    1013904223; /* Knuth's and Lewis's quick generator: enough to defeat prefetching */
	return l->random >> 8 & l->block_mask;
}

#endif

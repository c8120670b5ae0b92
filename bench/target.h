/* SPDX-License-Identifier: BSD-3-Clause */
/* A target in the benchmark's own process: environment, threads, a null device and a subsystem with a listener. For
 * benchmarks that fake what is below a transport. */
#ifndef BENCH_TARGET_H
#define BENCH_TARGET_H

#include <stdint.h>

#include "nvmf/nvmf.h"
#include "thread/thread.h"

#define BENCH_TARGET_NQN    "nqn.2026-11.io.varve:bench"
#define BENCH_TARGET_BLOCKS (UINT32_C(1) << 22) /* of 4 KiB */

/* Prints "bench NAME: what" and ends the program. */
_Noreturn void bench_target_fail(const char *what);
/* Starts all of it; name is that of the benchmark. The caller becomes the control thread. queue_depth: entries of a
 * queue. Ends the program if anything fails, as all functions here do. */
void bench_target_start(const char *name, const struct nvmf_address *address, uint16_t queue_depth);
/* Stops all, and removes the trace file. */
void bench_target_stop(void);
/* The thread of the poll group. */
struct thread *bench_target_thread(void);
/* The namespace. */
uint32_t bench_target_nsid(void);
/* Waits until done(arg); `what` fails if it takes a minute. */
void bench_target_wait(bool (*done)(void *arg), void *arg, const char *what);
/* Records of the group's thread so far. */
uint64_t bench_target_records(void);
/* The CPU time of the calling thread: what else the machine does is not its cost. */
double bench_target_cpu_ns(void);

#endif

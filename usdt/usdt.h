/* SPDX-License-Identifier: BSD-3-Clause */
/* USDT probes. Declared once in usdt/probes.def; fired by
 *
 *     USDT(bdev_io_submit, name, type, offset_blocks, num_blocks);
 *
 * The first argument of every probe, added here, is the TSC at the event. Nothing is computed while nobody is
 * attached: the macro tests the probe's SDT semaphore first (one load, one test, a branch never taken). Wrong
 * arguments do not compile. Without <sys/sdt.h> the macros check their arguments and do nothing.
 *
 * Each probe is one place in the executable, in usdt.c, however often it is fired from: every tracer finds
 * it, and none has to attach to dozens of inlined copies. */
#ifndef USDT_USDT_H
#define USDT_USDT_H

#include <stdint.h>

#include "util/compiler.h"
#include "util/for_args.h"
#include "util/ticks.h"

#define USDT_PLUS_ONE(...)                  +1
#define USDT_PARAM(c_, type_, name_, help_) , type_ name_
/* The semaphore is the number of tracers; the kernel or the tracer writes it. */
#define USDT_PROBE(name_, help_, ...)                                                                                  \
	_Static_assert(0 FOR_ARGS(USDT_PLUS_ONE, , ##__VA_ARGS__) <= 5, #name_ ": more than 5 arguments");             \
	extern unsigned short varve_##name_##_semaphore;                                                               \
	void usdt_fire_##name_(uint64_t tsc_ FOR_ARGS(USDT_PARAM, , ##__VA_ARGS__));
#include "usdt/probes.def"

#ifdef VARVE_USDT
/* True while somebody is attached: for computing arguments that cost something. */
#define USDT_ENABLED(probe) unlikely(__atomic_load_n(&varve_##probe##_semaphore, __ATOMIC_RELAXED) != 0)
#else
#define USDT_ENABLED(probe) 0
#endif

/* An NVMe status and a duration in one argument: the low 16 bits are the status, the rest the ticks, 2^48 - 1 at most.
 * In bpftrace: arg5 & 0xffff and arg5 >> 16. */
static inline uint64_t usdt_result(uint16_t status, uint64_t ticks)
{
	const uint64_t max = (UINT64_C(1) << 48) - 1;

	return (ticks < max ? ticks : max) << 16 | status;
}

/* The state before and after in one argument: arg5 >> 8 and arg5 & 0xff. */
static inline uint32_t usdt_states(uint32_t old, uint32_t now)
{
	return old << 8 | (now & 0xff);
}

#define USDT(probe, ...)                                                                                               \
	do {                                                                                                           \
		if (USDT_ENABLED(probe)) {                                                                             \
			usdt_fire_##probe(ticks_now(), ##__VA_ARGS__);                                                 \
		}                                                                                                      \
	} while (0)

#endif

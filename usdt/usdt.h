/* SPDX-License-Identifier: BSD-3-Clause */
/* USDT probes. Declared once in usdt/probes.def; fired by
 *
 *     USDT(bdev_io_submit, name, type, offset_blocks, num_blocks);
 *
 * The first argument of every probe, which the macro adds, is the TSC at the event. While no tracer is attached, no
 * argument is evaluated: the macro tests the probe's SDT semaphore first, which costs one load, one test and a branch
 * that is not taken. Wrong arguments do not compile. Without <sys/sdt.h> the macros check their arguments and do
 * nothing.
 *
 * Each probe is one place in the executable, in usdt.c, however many places fire it. So every tracer finds it, and none
 * has to attach to dozens of inlined copies. */
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
/* True while a tracer is attached to the probe; for arguments that are expensive to compute. */
#define USDT_ENABLED(probe) unlikely(__atomic_load_n(&varve_##probe##_semaphore, __ATOMIC_RELAXED) != 0)
#else
#define USDT_ENABLED(probe) 0
#endif

/* Packs an NVMe status and a duration into one argument: the low 16 bits are the status, the others the ticks, at most
 * 2^48 - 1. In bpftrace: arg5 & 0xffff and arg5 >> 16. */
static inline uint64_t usdt_result(uint16_t status, uint64_t ticks)
{
	const uint64_t max = (UINT64_C(1) << 48) - 1;

	return (ticks < max ? ticks : max) << 16 | status;
}

/* Packs the states before and after a transition into one argument. In bpftrace: arg5 >> 8 and arg5 & 0xff. */
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

/* SPDX-License-Identifier: BSD-3-Clause */
/* The CPU's time-stamp counter, without a header of DPDK: what the trace has as times. env_ticks() is the same counter
 * with an offset, which is not 0 once the counter was reset (env_ticks_to_tsc()). */
#ifndef UTIL_TICKS_H
#define UTIL_TICKS_H

#include <stdint.h>

/* Reads the counter, in ticks. Any thread. */
static inline uint64_t ticks_now(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t t;
	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
	return t;
#else
#error "no time-stamp counter known for this CPU"
#endif
}

#endif

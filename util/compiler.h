/* SPDX-License-Identifier: BSD-3-Clause */
/* The few words that C lacks, spelled once. They mean what DPDK's headers mean by them, and may be included beside
 * those, in either order: a file that includes no DPDK header has them from here. */
#ifndef UTIL_COMPILER_H
#define UTIL_COMPILER_H

#include <stddef.h>

/* Which way a branch usually goes; for the data path. */
#ifndef likely
#define likely(x_) __builtin_expect(!!(x_), 1)
#endif
#ifndef unlikely
#define unlikely(x_) __builtin_expect(!!(x_), 0)
#endif

/* The structure of type type_ whose member member_ is at ptr_. */
#ifndef container_of
#define container_of(ptr_, type_, member_) ((type_ *)((char *)(ptr_)-offsetof(type_, member_)))
#endif

#define ARRAY_SIZE(a_) (sizeof(a_) / sizeof((a_)[0]))

/* A function that the data path seldom calls: kept out of the caller, and out of the cache lines of what is called
 * often. */
#define COLD __attribute__((noinline, cold))
/* Kept out of the caller, which stays short; called about as often as it. */
#define NOINLINE __attribute__((noinline))
/* Inlined wherever it is called, because its arguments are constants there. */
#define ALWAYS_INLINE inline __attribute__((always_inline))

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* The probes: for each line of probes.def a semaphore, and a function that contains the SDT probe. */
#ifdef VARVE_USDT

/* Must come before the first inclusion of sdt.h; otherwise the probes' notes name no semaphore, and no probe fires. */
#define _SDT_HAS_SEMAPHORES 1
#define SDT_USE_VARIADIC    1
#include <sys/sdt.h>

#if defined(__x86_64__)
/* A nop of five bytes instead of one. Kernels from 6.18 on then replace the trap by a call, which halves the cost of
 * firing a probe; older kernels work as before. It must have no comma, since sdt.h turns it into a string as one macro
 * argument. */
#undef _SDT_NOP
#define _SDT_NOP                                                                                                       \
	.4byte 0x00441f0f;                                                                                             \
	.byte 0x00
#endif

#include "usdt/usdt.h"

#define USDT_NAME(c_, type_, name_, help_) , name_
#define USDT_STAP(...)                     STAP_PROBEV(__VA_ARGS__)
#define USDT_PROBE(name_, help_, ...)                                                                                  \
	unsigned short varve_##name_##_semaphore __attribute__((section(".probes"), used, visibility("hidden")));      \
	COLD void usdt_fire_##name_(uint64_t tsc_ FOR_ARGS(USDT_PARAM, , ##__VA_ARGS__))                               \
	{                                                                                                              \
		USDT_STAP(varve, name_, tsc_ FOR_ARGS(USDT_NAME, , ##__VA_ARGS__));                                    \
	}
#include "usdt/probes.def"

#else
/* ISO C forbids an empty translation unit. */
extern const int usdt_is_not_built;
const int usdt_is_not_built = 1;
#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests of what happens after seconds: to the program a second is an eighth of one. Its clock is as it is; the
 * length of its unit is told otherwise, and it sleeps accordingly. The linker puts these functions in the place of
 * those of env_dpdk/ticks.c and the C library (unittest/meson.build: hurry_dep). Not under valgrind, which makes the
 * program itself slower than that. */
#include "env_dpdk/env.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>

#define SPEED           8u
#define NS_IN_S         UINT64_C(1000000000)
#define VALGRIND_NAP_NS 500000

uint64_t __real_env_us_to_ticks(uint64_t us);
uint64_t __real_env_ticks_to_ns(uint64_t ticks);
uint64_t __real_env_ticks_hz(void);
int __real_epoll_pwait2(int fd, struct epoll_event *events, int max, const struct timespec *timeout,
			const sigset_t *mask);
uint64_t __wrap_env_us_to_ticks(uint64_t us);
uint64_t __wrap_env_ticks_to_ns(uint64_t ticks);
uint64_t __wrap_env_ticks_hz(void);
int __wrap_epoll_pwait2(int fd, struct epoll_event *events, int max, const struct timespec *timeout,
			const sigset_t *mask);

int __real_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);

static uint64_t speed = SPEED;
static long nap_ns;

static __attribute__((constructor)) void hurry_not_under_valgrind(void)
{
	if (getenv("VARVE_VALGRIND") != NULL) {
		speed = 1;
		nap_ns = VALGRIND_NAP_NS;
	}
}

uint64_t __wrap_env_us_to_ticks(uint64_t us)
{
	uint64_t ticks = __real_env_us_to_ticks(us);

	return ticks == UINT64_MAX ? ticks : ticks / speed;
}

uint64_t __wrap_env_ticks_to_ns(uint64_t ticks)
{
	return ticks > UINT64_MAX / speed ? UINT64_MAX : __real_env_ticks_to_ns(ticks * speed);
}

uint64_t __wrap_env_ticks_hz(void)
{
	return __real_env_ticks_hz() / speed;
}

int __wrap_epoll_pwait2(int fd, struct epoll_event *events, int max, const struct timespec *timeout,
			const sigset_t *mask)
{
	if (timeout == NULL) {
		return __real_epoll_pwait2(fd, events, max, NULL, mask);
	}
	uint64_t ns = ((uint64_t)timeout->tv_sec * NS_IN_S + (uint64_t)timeout->tv_nsec) / speed;
	struct timespec shorter = {.tv_sec = (time_t)(ns / NS_IN_S), .tv_nsec = (long)(ns % NS_IN_S)};

	return __real_epoll_pwait2(fd, events, max, &shorter, mask);
}

/* Under valgrind a round of a reactor takes longer than the nap after it, and one thread runs at a time. So that rounds
 * without work do not take all of the time, the naps are longer. */
int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
	struct timespec nap = {.tv_nsec = nap_ns};

	return __real_nanosleep(time->tv_sec == 0 && time->tv_nsec < nap_ns ? &nap : time, left);
}

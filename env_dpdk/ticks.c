/* SPDX-License-Identifier: BSD-3-Clause */
/* The rate of the TSC. DPDK measures it too, but rounds to 10 MHz. Here the two readings are before and after the start
 * of the EAL, which takes over 100 ms; so the measurement is exact to a part per million and takes no extra time. */
#include "env_dpdk/env_internal.h"

#include <pthread.h>
#include <time.h>

#define SECOND_NS     1000000000ULL
#define MIN_SPAN_NS   20000000ULL
#define READ_ATTEMPTS 8

#ifdef ENV_TICKS_VIRTUAL
uint64_t env_ticks_virtual;
#endif

uint64_t env_ticks_offset;

static struct env_time_pair begin;
static pthread_mutex_t offset_lock = PTHREAD_MUTEX_INITIALIZER;
static struct env_time_pair noted; /* the last env_ticks_note(); tsc: with the offset. offset_lock */
static uint64_t ticks_hz;
static uint64_t ticks_per_us_q32; /* fixed point, 32 fractional bits */
static uint64_t ns_per_tick_q32;

static uint64_t ticks_clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec;
}

/* Makes several attempts, and uses the one that was disturbed least. */
void env_time_pair_read(struct env_time_pair *pair)
{
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < READ_ATTEMPTS; i++) {
		uint64_t before = rte_rdtsc_precise();
		uint64_t monotonic = ticks_clock_ns(CLOCK_MONOTONIC);
		uint64_t after = rte_rdtsc_precise();
		uint64_t realtime = ticks_clock_ns(CLOCK_REALTIME);
		uint64_t end = rte_rdtsc_precise();
		if (end - before < best) {
			best = end - before;
			pair->tsc = before + (after - before) / 2;
			pair->monotonic_ns = monotonic;
			pair->realtime_ns = realtime;
		}
	}
}

void env_ticks_calibrate_begin(void)
{
	env_time_pair_read(&begin);
}

void env_ticks_calibrate_end(void)
{
	struct env_time_pair end;

	env_time_pair_read(&end);
	if (end.monotonic_ns - begin.monotonic_ns < MIN_SPAN_NS) {
		struct timespec rest = {.tv_nsec = (long)MIN_SPAN_NS};
		nanosleep(&rest, NULL);
		env_time_pair_read(&end);
	}
	uint64_t ns = end.monotonic_ns - begin.monotonic_ns;
	ticks_hz = (uint64_t)((unsigned __int128)(end.tsc - begin.tsc) * SECOND_NS / ns);
	ticks_per_us_q32 = (uint64_t)(((unsigned __int128)ticks_hz << 32) / 1000000);
	ns_per_tick_q32 = (uint64_t)(((unsigned __int128)SECOND_NS << 32) / ticks_hz);
	env_ticks_note();
}

uint64_t env_ticks_hz(void)
{
	return ticks_hz;
}

static uint64_t multiply_q32(uint64_t value, uint64_t factor_q32)
{
	unsigned __int128 product = (unsigned __int128)value * factor_q32 >> 32;

	return product > UINT64_MAX ? UINT64_MAX : (uint64_t)product;
}

uint64_t env_us_to_ticks(uint64_t us)
{
	return multiply_q32(us, ticks_per_us_q32);
}

uint64_t env_ticks_to_ns(uint64_t ticks)
{
	return multiply_q32(ticks, ns_per_tick_q32);
}

void env_ticks_note(void)
{
	struct env_time_pair pair;

	pthread_mutex_lock(&offset_lock);
	uint64_t offset = __atomic_load_n(&env_ticks_offset, __ATOMIC_RELAXED);
	env_time_pair_read(&pair);
	pair.tsc += offset;
	if (pair.tsc > noted.tsc) { /* else the TSC was reset, and nobody has noticed it yet */
		noted = pair;
	}
	pthread_mutex_unlock(&offset_lock);
}

/* What the time in ticks is by CLOCK_MONOTONIC. */
static uint64_t ticks_by_monotonic(void)
{
	uint64_t ns = ticks_clock_ns(CLOCK_MONOTONIC) - noted.monotonic_ns;

	return noted.tsc + (uint64_t)((unsigned __int128)ns * ticks_hz / SECOND_NS);
}

bool env_ticks_go_on(uint64_t reached)
{
	pthread_mutex_lock(&offset_lock);
	uint64_t at = ticks_by_monotonic(); /* first: an interruption must not make it later than now */
	uint64_t now = env_ticks();
	bool is_back = now < reached && at > now && at - now >= (reached - now) / 2;
	if (is_back) {
		__atomic_fetch_add(&env_ticks_offset, (at > reached ? at : reached) - now, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&offset_lock);
	return is_back;
}

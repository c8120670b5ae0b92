/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages between reactors, the cost of an empty round, and how long a sleeping reactor takes to wake. */
#include "bench/bench.h"
#include "env_dpdk/env.h"
#include "thread/thread.h"
#include "util/log.h"

#include <rte_pause.h>
#include <sched.h>
#include <string.h>

#define MESSAGES 200000
#define ROUNDS   400000
#define WAKES    50
#define IDLE_US  50
#define TURNS    11

static struct thread *threads[2];
static uint64_t received, last_received_tsc, start_tsc;

static void nothing(void *arg)
{
}

static double ticks_to_ns(uint64_t ticks)
{
	return (double)ticks * 1e9 / (double)env_ticks_hz();
}

static double turn_tsc(void *arg)
{
	uint64_t before = env_ticks(), sum = 0;

	for (int i = 0; i < 1000000; i++) {
		sum += env_ticks();
	}
	*(volatile uint64_t *)&start_tsc = sum;
	return ticks_to_ns(env_ticks() - before) / 1e6;
}

static void receive(void *arg)
{
	if (++received == MESSAGES) {
		last_received_tsc = env_ticks();
	}
}

static void send_all(void *arg)
{
	struct thread *to = arg;

	received = 0;
	start_tsc = env_ticks();
	for (unsigned i = 0; i < MESSAGES; i++) {
		while (thread_send(to, receive, NULL) != 0) {
			rte_pause();
		}
	}
}

/* From the first send on one reactor to the last run on the other. */
static double turn_messages(void *arg)
{
	thread_call(threads[0], send_all, threads[1]);
	thread_call(threads[1], nothing, NULL);
	return ticks_to_ns(last_received_tsc - start_tsc) / MESSAGES;
}

static struct poller *pollers[8];
static unsigned poller_count;
static uint64_t rounds, rounds_begin, rounds_end;
static unsigned rounds_done;

static int poll_nothing(void *ctx)
{
	return POLLER_IDLE;
}

static int poll_counting(void *ctx)
{
	if (rounds == 0) {
		rounds_begin = env_ticks();
	} else if (rounds == ROUNDS) {
		rounds_end = env_ticks();
		__atomic_store_n(&rounds_done, 1, __ATOMIC_RELEASE);
	}
	rounds++;
	return POLLER_IDLE;
}

static void rounds_start(void *arg)
{
	rounds = 0;
	rounds_done = 0;
	for (unsigned i = 0; i < poller_count; i++) {
		pollers[i] = poller_register(
			&(struct poller_opts){.name = "bench", .fn = i == 0 ? poll_counting : poll_nothing, .fd = -1});
	}
}

static void rounds_stop(void *arg)
{
	for (unsigned i = 0; i < poller_count; i++) {
		poller_unregister(&pollers[i]);
	}
}

static double turn_rounds(void *arg)
{
	poller_count = *(unsigned *)arg;
	thread_call(threads[1], rounds_start, NULL);
	while (__atomic_load_n(&rounds_done, __ATOMIC_ACQUIRE) == 0) {
		struct timespec t = {.tv_nsec = 1000000};
		nanosleep(&t, NULL);
	}
	thread_call(threads[1], rounds_stop, NULL);
	return ticks_to_ns(rounds_end - rounds_begin) / ROUNDS;
}

static void note_time(void *arg)
{
	*(uint64_t *)arg = env_ticks();
}

/* The median over some wake-ups, each after a pause long enough for the reactor to have gone to sleep. */
static double turn_wake(void *arg)
{
	double us[WAKES];

	for (unsigned i = 0; i < WAKES; i++) {
		struct timespec pause = {.tv_nsec = 1000000};
		uint64_t woken;
		nanosleep(&pause, NULL);
		uint64_t sent = env_ticks();
		thread_call(threads[1], note_time, &woken);
		us[i] = ticks_to_ns(woken - sent) / 1e3;
	}
	return bench_median(us, WAKES);
}

static int start(void)
{
	/* Two reactors, on CPUs of their own where there are two. */
	cpu_set_t allowed, mask;
	char cores[ENV_CORES_MAX], error[ENV_ERROR_MAX];
	unsigned lcore, n = 0;

	sched_getaffinity(0, sizeof(allowed), &allowed);
	CPU_ZERO(&mask);
	for (unsigned cpu = 0; cpu < CPU_SETSIZE && n < 2; cpu++) {
		if (CPU_ISSET(cpu, &allowed)) {
			CPU_SET(cpu, &mask);
			n++;
		}
	}
	env_cores_format(&mask, cores);
	const struct env_opts env = {.name = "bench",
				     .cores = n == 2 ? cores : "0-1",
				     .oversubscribe = n < 2,
				     .instance_id = -1,
				     .no_huge = true,
				     .no_pci = true};
	log_set_print_level(LOG_LEVEL_ERROR);
	if (env_init(&env, error) != 0) {
		fprintf(stderr, "%s\n", error);
		return 1;
	}
	if (thread_lib_start(&(struct thread_lib_opts){.idle_spell_us = IDLE_US}) != 0) {
		return 1;
	}
	n = 0;
	ENV_FOREACH_LCORE (lcore) {
		CPU_ZERO(&mask);
		CPU_SET(lcore, &mask);
		threads[n++] = thread_create("bench", &mask);
	}
	return 0;
}

int main(void)
{
	unsigned one = 1, eight = 8;
	const struct bench_variant variants[] = {
		{"thread.tsc_ns", "ns", turn_tsc, NULL},      {"thread.msg_ns", "ns", turn_messages, NULL},
		{"thread.round_ns", "ns", turn_rounds, &one}, {"thread.round8_ns", "ns", turn_rounds, &eight},
		{"thread.wake_us", "us", turn_wake, NULL},
	};

	if (start() != 0) {
		return 1;
	}
	bench_run(variants, sizeof(variants) / sizeof(variants[0]), TURNS, NULL);
	thread_destroy(threads[0]);
	thread_destroy(threads[1]);
	thread_lib_stop();
	env_fini();
	return 0;
}

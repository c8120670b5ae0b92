/* SPDX-License-Identifier: BSD-3-Clause */
/* What a probe costs where it is fired, over a loop without one:
 *
 *     usdt.loop_ns		the loop
 *     usdt.detached_ns	nobody is attached: how much more than the loop, per probe
 *     usdt.evaluated_ns	the semaphore is up, but no tracer: the TSC, the arguments, the call
 *     usdt.attached_ns	bpftrace counts them (needs root and bpftrace; left out without)
 *     usdt.detached_percent	of an I/O at 10 million per second, which fires two probes */
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"
#include "usdt/usdt.h"

#define FIRES          2000000
#define ATTACHED_FIRES 200000
#define TURNS          31
#define ATTACH_SECONDS 60

static volatile uint64_t sink;

static double per_event(double start, unsigned n)
{
	return (bench_now_ns() - start) / n;
}

static double turn_loop(void *arg)
{
	double start = bench_now_ns();

	for (unsigned i = 0; i < FIRES; i++) {
		sink = i;
	}
	return per_event(start, FIRES);
}

static __attribute__((noinline)) double fire(unsigned n)
{
	double start = bench_now_ns();

	for (unsigned i = 0; i < n; i++) {
		sink = i;
		USDT(test_args, "bench", (int32_t)i, i, NULL);
	}
	return per_event(start, n);
}

static double turn_detached(void *arg)
{
	return fire(FIRES);
}

#ifdef VARVE_USDT
static double turn_evaluated(void *arg)
{
	varve_test_args_semaphore++;
	double ns = fire(FIRES / 10);
	varve_test_args_semaphore--;
	return ns;
}

static double turn_attached(void *arg)
{
	return fire(ATTACHED_FIRES);
}

/* A bpftrace that counts the probe, or -1. */
static pid_t attach(void)
{
	char script[128], pid_text[16];
	double end = bench_now_ns() + ATTACH_SECONDS * 1e9;

	snprintf(pid_text, sizeof(pid_text), "%d", (int)getpid());
	snprintf(script, sizeof(script), "usdt:/proc/%d/exe:test_args { @ = count(); }", (int)getpid());
	pid_t pid = fork();
	if (pid == 0) {
		if (freopen("/dev/null", "w", stdout) != NULL && freopen("/dev/null", "w", stderr) != NULL) {
			execlp("bpftrace", "bpftrace", "-p", pid_text, "-e", script, NULL);
		}
		_exit(127);
	}
	while (pid > 0 && __atomic_load_n(&varve_test_args_semaphore, __ATOMIC_RELAXED) == 0) {
		if (waitpid(pid, NULL, WNOHANG) != 0 || bench_now_ns() > end) {
			kill(pid, SIGKILL);
			waitpid(pid, NULL, 0);
			return -1;
		}
		usleep(10000);
	}
	return pid;
}

static void measure_attached(void)
{
	const struct bench_variant attached = {"usdt.attached_ns", "ns", turn_attached, NULL};
	pid_t tracer = attach();

	if (tracer < 0) {
		fprintf(stderr, "bench-usdt: bpftrace cannot be attached: no usdt.attached_ns\n");
		return;
	}
	bench_run(&attached, 1, 5, NULL);
	kill(tracer, SIGINT);
	waitpid(tracer, NULL, 0);
}
#endif

int main(void)
{
#ifndef VARVE_USDT
	fprintf(stderr, "bench-usdt: built without <sys/sdt.h>\n");
	return 1;
#else
	const struct bench_variant variants[] = {
		{"usdt.loop_ns", "ns", turn_loop, NULL},
		{NULL, NULL, turn_detached, NULL},
		{NULL, NULL, turn_evaluated, NULL},
	};
	double medians[3];

	bench_run(variants, 3, TURNS, medians);
	bench_print("usdt.detached_ns", medians[1] - medians[0], "ns");
	bench_print("usdt.evaluated_ns", medians[2] - medians[0], "ns");
	bench_print("usdt.detached_percent", 100 * 2 * (medians[1] - medians[0]) / 100, "%");
	measure_attached();
	return 0;
#endif
}

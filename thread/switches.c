/* SPDX-License-Identifier: BSD-3-Clause */
/* How often the kernel takes reactors off their CPUs. The control thread reads the kernel's counters, so reactors are
 * not disturbed. */
#include "thread/scheduler.h"
#include "thread/thread_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "util/log.h"

#define SWITCHES_PERIOD_US UINT64_C(1000000)

static struct thread_timer switches_timer; /* the control thread's; runs while switches are monitored */

/* Counters of an OS thread of this process. */
static bool switches_read(int tid, struct reactor_switches *s)
{
	char path[64], line[256];
	unsigned found = 0;

	snprintf(path, sizeof(path), "/proc/self/task/%d/status", tid);
	FILE *f = fopen(path, "re");
	if (f == NULL) {
		log_limited(LOG_LEVEL_WARNING, "%s: %s; the context switches of that reactor are not counted", path,
			    strerror(errno));
		return false;
	}
	while (fgets(line, sizeof(line), f) != NULL) {
		found += sscanf(line, "voluntary_ctxt_switches: %" SCNu64, &s->voluntary) == 1;
		found += sscanf(line, "nonvoluntary_ctxt_switches: %" SCNu64, &s->involuntary) == 1;
	}
	fclose(f);
	return found == 2;
}

/* first: only remembers where the counters stand. */
static void reactor_switches_tell(struct reactor *r, bool first, uint64_t elapsed_ms)
{
	struct reactor_switches now;

	if (r->tid == 0 || !switches_read(r->tid, &now)) { /* 0: it has not begun */
		return;
	}
	uint64_t voluntary = now.voluntary - r->switches.voluntary;
	uint64_t involuntary = now.involuntary - r->switches.involuntary;
	if (!first && voluntary + involuntary > 0) {
		log_notice("Reactor %u: %" PRIu64 " voluntary context switches and %" PRIu64
			   " involuntary context switches in the last %" PRIu64 ".%03" PRIu64 " seconds",
			   r->lcore, voluntary, involuntary, elapsed_ms / 1000, elapsed_ms % 1000);
	}
	r->switches = now;
}

static void switches_tell(bool first)
{
	static uint64_t last_ticks;
	uint64_t now = env_ticks(), elapsed_ms = env_ticks_to_ns(now - last_ticks) / 1000000;
	struct reactor *r;

	last_ticks = now;
	for (unsigned i = 0; (r = reactor_by_index(i)) != NULL && !r->control; i++) {
		reactor_switches_tell(r, first, elapsed_ms);
	}
	thread_timer_start(&switches_timer, SWITCHES_PERIOD_US);
}

static void switches_timer_fired(void *arg)
{
	switches_tell(false);
}

void thread_monitor_switches(bool on)
{
	if (!on) {
		thread_timer_stop(&switches_timer);
	} else if (!switches_timer.running) {
		switches_timer.fn = switches_timer_fired;
		switches_tell(true);
	}
}

bool thread_monitors_switches(void)
{
	return switches_timer.running;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/parts.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "thread/thread.h"
#include "util/log.h"

/* A part that is stopping. */
struct stop {
	const struct part *part;
	uint64_t report_us;
	struct thread_timer timer;
	bool over;
};

static void parts_report_stop(void *arg)
{
	struct stop *s = arg;

	log_warning("still waiting for %s to stop (a second signal ends the process at once)", s->part->name);
	thread_timer_start(&s->timer, s->report_us);
}

static void parts_on_stopped(void *arg)
{
	((struct stop *)arg)->over = true;
}

static bool parts_stop_is_over(void *arg)
{
	return ((struct stop *)arg)->over;
}

static void parts_stop_slow(const struct parts *p, const struct part *part)
{
	struct stop s = {.part = part, .report_us = p->report_us};

	s.timer.fn = parts_report_stop;
	s.timer.arg = &s;
	thread_timer_start(&s.timer, s.report_us);
	part->stop_slow(parts_on_stopped, &s);
	while (!s.over) {
		thread_control_wait(parts_stop_is_over, &s, UINT64_MAX);
	}
	thread_timer_stop(&s.timer);
}

int parts_start(struct parts *p, enum appliance_state when, char *error)
{
	assert(p->n <= PARTS_MAX);
	for (size_t i = 0; i < p->n; i++) {
		const struct part *part = &p->table[i];

		if (part->when != when || (p->running & UINT64_C(1) << i) != 0) {
			continue;
		}
		error[0] = '\0';
		int rc = part->start != NULL ? part->start(error) : 0;
		if (rc != 0) {
			if (error[0] == '\0') {
				snprintf(error, PART_ERROR_MAX, "cannot start %s: %s", part->name, strerror(-rc));
			}
			return rc;
		}
		p->running |= UINT64_C(1) << i;
	}
	return 0;
}

static void parts_stop_row(struct parts *p, size_t i)
{
	const struct part *part = &p->table[i];
	uint64_t bit = UINT64_C(1) << i;

	if ((p->running & bit) == 0) {
		return;
	}
	p->running &= ~bit;
	if (part->stop_slow != NULL) {
		parts_stop_slow(p, part);
	} else if (part->stop != NULL) {
		part->stop();
	}
}

void parts_stop(struct parts *p, enum appliance_state first)
{
	for (size_t i = p->n; i-- > 0;) {
		if (p->table[i].when >= first) {
			parts_stop_row(p, i);
		}
	}
}

void parts_stop_from(struct parts *p, const char *name)
{
	size_t first = 0;

	while (first < p->n && strcmp(p->table[first].name, name) != 0) {
		first++;
	}
	assert(first < p->n);
	for (size_t i = p->n; i-- > first;) {
		parts_stop_row(p, i);
	}
}

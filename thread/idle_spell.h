/* SPDX-License-Identifier: BSD-3-Clause */
/* How long a reactor without work polls before it sleeps: its idle spell. What its last waits for work brought decides.
 *
 * A wait is the time from the last sign of work to the next one, slept through in part. If it was shorter than the
 * longest spell, polling on would have met the work without the time that waking takes: the spell is doubled. If it was
 * longer, no spell would have met it, and polling was in vain: the spell is halved, but stays twice as long as the
 * longest of the short waits since the long one before. So a reactor whose work comes in quick succession does not
 * sleep in between, nor does one that waits for a device between long pauses; one whose work comes rarely hardly polls.
 *
 * Waits are judged when a reactor is about to sleep again, so that one with work spends no time here. All times are
 * ticks that the caller gives. */
#ifndef THREAD_IDLE_SPELL_H
#define THREAD_IDLE_SPELL_H

#include <stdbool.h>
#include <stdint.h>

/* The shortest spell is the longest one divided by this. It is not zero: what follows a first message at once, as the
 * next command of a batch does, is met without a sleep. */
#define IDLE_SPELL_RANGE 16
/* A wait that was slept through has the time to wake in it: it counts as short if it is longer than the longest spell
 * by at most this part of it. */
#define IDLE_SPELL_WAKING 4

struct idle_spell {
	uint64_t ticks;        /* it is as long as this now */
	uint64_t max;          /* ticks of the longest */
	uint64_t met;          /* the longest wait of at most `max` since a long one */
	uint64_t since, woken; /* of the last wait, up to now: the last sign of work before it; the end of the sleep */
	bool waited;           /* these two are of a wait that has not been judged */
};

/* The shortest spell, of at least a tick, so that it can grow again, unless the longest is 0. */
static inline uint64_t idle_spell_min(uint64_t max)
{
	return max / IDLE_SPELL_RANGE != 0 || max == 0 ? max / IDLE_SPELL_RANGE : 1;
}

/* Begins with the longest spell, of max ticks. */
void idle_spell_init(struct idle_spell *s, uint64_t max);
/* Whether a reactor whose last sign of work was at `since` has polled for long enough. Judges the wait before that. */
bool idle_spell_is_over(struct idle_spell *s, uint64_t since, uint64_t now);

/* Work has come, `wait` ticks after the last. For each round of a reactor with work, so it is two comparisons. */
static inline void idle_spell_met(struct idle_spell *s, uint64_t wait)
{
	if (wait > s->met && wait <= s->max) {
		s->met = wait;
	}
}

/* The reactor, whose last sign of work was at `since`, has slept until `woken`. A sleep that ends without work, because
 * a timer is due, is no end of the wait: the next call with the same `since` is about the same wait. */
static inline void idle_spell_slept(struct idle_spell *s, uint64_t since, uint64_t woken)
{
	s->since = since;
	s->woken = woken;
	s->waited = true;
}

#endif

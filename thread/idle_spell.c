/* SPDX-License-Identifier: BSD-3-Clause */
#include "thread/idle_spell.h"

void idle_spell_init(struct idle_spell *s, uint64_t max)
{
	*s = (struct idle_spell){.ticks = max, .max = max};
}

static uint64_t idle_spell_least(const struct idle_spell *s)
{
	uint64_t min = idle_spell_min(s->max);

	return s->met > s->max / 2 ? s->max : 2 * s->met > min ? 2 * s->met : min;
}

static void idle_spell_judge(struct idle_spell *s)
{
	if (s->woken - s->since <= s->max + s->max / IDLE_SPELL_WAKING) {
		s->ticks = s->ticks > s->max / 2 ? s->max : s->ticks * 2;
	} else {
		uint64_t least = idle_spell_least(s);
		s->ticks = s->ticks / 2 < least ? least : s->ticks / 2;
		s->met = 0;
	}
	s->waited = false;
}

bool idle_spell_is_over(struct idle_spell *s, uint64_t since, uint64_t now)
{
	if (s->waited && s->since != since) {
		idle_spell_judge(s);
	}
	return now - since >= s->ticks;
}

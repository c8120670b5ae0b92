/* SPDX-License-Identifier: BSD-3-Clause */
#include "thread/idle_spell.h"

void idle_spell_init(struct idle_spell *s, uint64_t max)
{
	*s = (struct idle_spell){.ticks = max, .max = max};
}

static void idle_spell_judge(struct idle_spell *s)
{
	uint64_t min = idle_spell_min(s->max);

	if (s->woken - s->since <= s->max) {
		s->ticks = s->ticks > s->max / 2 ? s->max : s->ticks * 2;
	} else {
		s->ticks = s->ticks / 2 < min ? min : s->ticks / 2;
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

/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/perf/ledger.h"

#include <stdlib.h>

bool ledger_init(struct ledger *l, uint64_t units, uint32_t blocks_per_unit)
{
	*l = (struct ledger){.units = units, .blocks_per_unit = blocks_per_unit};
	TAILQ_INIT(&l->torn);
	l->issued = calloc(units, sizeof(*l->issued));
	l->acknowledged = calloc(units, sizeof(*l->acknowledged));
	l->floor = calloc(units, sizeof(*l->floor));
	l->history = calloc(LEDGER_HISTORY, sizeof(*l->history));
	return l->issued != NULL && l->acknowledged != NULL && l->floor != NULL && l->history != NULL;
}

static void ledger_torn_remove(struct ledger *l, struct ledger_torn *t)
{
	TAILQ_REMOVE(&l->torn, t, link);
	l->num_torn--;
	free(t);
}

void ledger_fini(struct ledger *l)
{
	struct ledger_torn *t;

	while (l->num_torn != 0 && (t = TAILQ_FIRST(&l->torn)) != NULL) {
		ledger_torn_remove(l, t);
	}
	free(l->issued);
	free(l->acknowledged);
	free(l->floor);
	free(l->history);
	*l = (struct ledger){0};
}

static struct ledger_torn *ledger_torn_find(const struct ledger *l, uint64_t unit)
{
	struct ledger_torn *t;

	if (l->num_torn == 0) {
		return NULL;
	}
	TAILQ_FOREACH (t, &l->torn, link) {
		if (t->unit == unit) {
			return t;
		}
	}
	return NULL;
}

/* The floors of the blocks of unit; NULL: there are too many torn units, or there is no memory. */
static struct ledger_torn *ledger_torn_get(struct ledger *l, uint64_t unit)
{
	struct ledger_torn *t = ledger_torn_find(l, unit);

	if (t != NULL) {
		return t;
	}
	t = l->num_torn < LEDGER_TORN_MAX ? malloc(sizeof(*t) + l->blocks_per_unit * sizeof(t->floor[0])) : NULL;
	if (t == NULL) {
		l->torn_dropped++;
		return NULL;
	}
	t->unit = unit;
	for (uint32_t i = 0; i < l->blocks_per_unit; i++) {
		t->floor[i] = l->floor[unit];
	}
	TAILQ_INSERT_TAIL(&l->torn, t, link);
	l->num_torn++;
	return t;
}

static void ledger_torn_forget(struct ledger *l, uint64_t unit)
{
	struct ledger_torn *t = ledger_torn_find(l, unit);

	if (t != NULL) {
		ledger_torn_remove(l, t);
	}
}

uint64_t ledger_issue(struct ledger *l, uint64_t unit, uint32_t now_ms)
{
	uint64_t number = l->num_writes++;

	l->history[number % LEDGER_HISTORY] =
		(struct ledger_write){.unit = unit, .generation = ++l->issued[unit], .issued_ms = now_ms};
	return number;
}

void ledger_answer(struct ledger *l, uint64_t unit, uint64_t number, uint32_t now_ms, bool success)
{
	if (l->num_writes - number <= LEDGER_HISTORY) {
		struct ledger_write *w = &l->history[number % LEDGER_HISTORY];

		w->answered_ms = now_ms;
		w->fate = success ? LEDGER_ACKNOWLEDGED : LEDGER_FAILED;
	}
	if (success) {
		l->acknowledged[unit] = l->floor[unit] = l->issued[unit];
		ledger_torn_forget(l, unit);
	}
}

uint32_t ledger_block_floor(const struct ledger *l, uint64_t unit, uint32_t block)
{
	const struct ledger_torn *t = ledger_torn_find(l, unit);

	return t != NULL ? t->floor[block] : l->floor[unit];
}

enum ledger_verdict ledger_judge(const struct ledger *l, uint64_t unit, uint32_t block, uint32_t generation)
{
	if (generation > l->issued[unit]) {
		return LEDGER_NEVER_WRITTEN;
	}
	if (generation < l->acknowledged[unit]) {
		return LEDGER_STALE;
	}
	return generation < ledger_block_floor(l, unit, block) ? LEDGER_WENT_BACK : LEDGER_ALLOWED;
}

static bool ledger_all_are(const struct ledger *l, const uint32_t *generations, uint32_t generation)
{
	for (uint32_t i = 0; i < l->blocks_per_unit; i++) {
		if (generations[i] != generation) {
			return false;
		}
	}
	return true;
}

void ledger_note_read(struct ledger *l, uint64_t unit, const uint32_t *generations)
{
	struct ledger_torn *t;

	if (l->issued[unit] == l->floor[unit]) { /* the usual case: one generation is allowed */
		return;
	}
	if (ledger_all_are(l, generations, generations[0])) {
		bool allowed = true;

		for (uint32_t i = 0; i < l->blocks_per_unit; i++) {
			allowed = allowed && ledger_judge(l, unit, i, generations[0]) == LEDGER_ALLOWED;
		}
		if (allowed) {
			l->floor[unit] = generations[0];
			ledger_torn_forget(l, unit);
			return;
		}
	}
	t = ledger_torn_get(l, unit);
	for (uint32_t i = 0; t != NULL && i < l->blocks_per_unit; i++) {
		if (ledger_judge(l, unit, i, generations[i]) == LEDGER_ALLOWED) {
			t->floor[i] = generations[i];
		}
	}
}

struct ledger_write ledger_find_write(const struct ledger *l, uint64_t unit, uint32_t generation)
{
	uint64_t n = l->num_writes < LEDGER_HISTORY ? l->num_writes : LEDGER_HISTORY;

	for (uint64_t i = 1; i <= n; i++) {
		const struct ledger_write *w = &l->history[(l->num_writes - i) % LEDGER_HISTORY];

		if (w->unit == unit && w->generation == generation) {
			return *w;
		}
	}
	return (struct ledger_write){.unit = unit};
}

void ledger_restore_block(struct ledger *l, uint64_t unit, uint32_t block, uint32_t floor, uint32_t issued)
{
	struct ledger_torn *t;

	l->issued[unit] = issued;
	if (block == 0) {
		l->floor[unit] = l->acknowledged[unit] = floor;
		return;
	}
	if (ledger_block_floor(l, unit, block) == floor) {
		return;
	}
	if (floor < l->acknowledged[unit]) {
		l->acknowledged[unit] = floor;
	}
	t = ledger_torn_get(l, unit);
	if (t != NULL) {
		t->floor[block] = floor;
	} else if (floor < l->floor[unit]) {
		l->floor[unit] = floor; /* a weaker check than it could be */
	}
}

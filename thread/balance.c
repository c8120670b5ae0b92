/* SPDX-License-Identifier: BSD-3-Clause */
#include "thread/balance.h"

#include <stddef.h>

#define PERCENT 100U /* a hundredth, in the unit of loads */
#define WHOLE   (100 * PERCENT)
/* A core that is so busy may give its threads less than they need. */
#define SATURATED (95 * PERCENT)
/* A thread that finds nothing to do in so much of its time gets what it needs, also on a saturated core. */
#define CONTENT (50 * PERCENT)
/* What measurements of the same load differ by. */
#define NOISE (2 * PERCENT)
/* What else a core must have to do if a thread is to leave it: a thread that is alone gains nothing. */
#define COMPANY PERCENT
/* How much less busy than the core that it leaves the core that it goes to must be, at least. */
#define GAP (5 * PERCENT)

/* What a decision is made with. Loads in ten-thousandths. */
struct plan {
	struct balance_core *cores;
	struct balance_thread *threads;
	unsigned num_cores, num_threads, gather;
	uint32_t light, room, busy;
};

/* Without an overflow: ticks of a period that lasts for years times WHOLE do not fit 64 bits. */
static uint32_t share_of(uint64_t part, uint64_t whole)
{
	if (whole == 0 || part == 0) {
		return 0;
	}
	if (part >= whole) {
		return WHOLE;
	}
	return (uint32_t)(whole < UINT64_MAX / WHOLE ? part * WHOLE / whole : part / (whole / WHOLE));
}

static uint64_t ticks_add(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint32_t core_share(const struct balance_core *c)
{
	return share_of(c->busy_ticks, ticks_add(c->busy_ticks, c->idle_ticks));
}

static bool core_is_saturated(const struct balance_core *c)
{
	return core_share(c) >= SATURATED;
}

/* Learns what t needs. What was measured where there was enough time is kept while t is on a saturated core. Of a
 * thread that was never seen with enough time, more is assumed from period to period. */
static void thread_measure(const struct plan *p, struct balance_thread *t)
{
	const struct balance_core *c = &p->cores[t->from];
	uint32_t own = share_of(t->busy_ticks, ticks_add(t->busy_ticks, t->idle_ticks));
	uint32_t share = share_of(t->busy_ticks, ticks_add(c->busy_ticks, c->idle_ticks));

	t->to = t->from;
	if (!core_is_saturated(c) || own < CONTENT) {
		t->need = share;
		t->known = true;
	} else if (!t->known || share > t->need + NOISE) {
		uint32_t least = share > t->need ? share : t->need;
		t->need = least + least / 2 < WHOLE ? least + least / 2 : WHOLE;
		t->known = false;
	}
}

static uint32_t core_load(const struct plan *p, unsigned core)
{
	uint32_t load = 0;

	for (unsigned i = 0; i < p->num_threads; i++) {
		load += p->threads[i].to == core ? p->threads[i].need : 0;
	}
	return load;
}

/* If the threads of a saturated core did more than they are known to need, one of them needs more than it did. */
static void core_forget_needs(const struct plan *p, unsigned core)
{
	for (unsigned i = 0; i < p->num_threads; i++) {
		if (p->threads[i].from == core) {
			p->threads[i].known = false;
		}
	}
}

/* A reactor's time is divided among its threads, so theirs make up its own. */
static void cores_sum_ticks(struct plan *p)
{
	for (unsigned i = 0; i < p->num_cores; i++) {
		p->cores[i].busy_ticks = p->cores[i].idle_ticks = 0;
	}
	for (unsigned i = 0; i < p->num_threads; i++) {
		const struct balance_thread *t = &p->threads[i];
		struct balance_core *c = &p->cores[t->from];
		c->busy_ticks = ticks_add(c->busy_ticks, t->busy_ticks);
		c->idle_ticks = ticks_add(c->idle_ticks, t->idle_ticks);
	}
}

static void plan_begin(struct plan *p)
{
	cores_sum_ticks(p);
	for (unsigned i = 0; i < p->num_threads; i++) {
		thread_measure(p, &p->threads[i]);
		p->threads[i].light = p->threads[i].need < p->light;
	}
	for (unsigned i = 0; i < p->num_cores; i++) {
		p->cores[i].load = core_load(p, i);
		if (core_is_saturated(&p->cores[i]) && p->cores[i].load + 2 * NOISE < core_share(&p->cores[i])) {
			core_forget_needs(p, i);
		}
	}
}

static bool thread_may_go(const struct plan *p, const struct balance_thread *t, unsigned to)
{
	const struct balance_core *c = &p->cores[to];

	return to != t->to && !c->isolated && CPU_ISSET(c->lcore, &t->mask);
}

static void thread_assign(struct plan *p, struct balance_thread *t, unsigned to)
{
	p->cores[t->to].load -= t->need;
	p->cores[to].load += t->need;
	t->to = to;
}

/* The least busy core that t may go to; num_cores: there is none that would then be less busy than t's core is now. */
static unsigned core_with_room(const struct plan *p, const struct balance_thread *t)
{
	unsigned best = p->num_cores;

	for (unsigned i = 0; i < p->num_cores; i++) {
		if (thread_may_go(p, t, i) && p->cores[i].load + t->need + GAP <= p->cores[t->to].load &&
		    (best == p->num_cores || p->cores[i].load < p->cores[best].load)) {
			best = i;
		}
	}
	return best;
}

/* Whether a is to leave the core before b. Where light threads gather the heaviest goes first, elsewhere the lightest.
 */
static bool leaves_before(const struct plan *p, unsigned core, const struct balance_thread *a,
			  const struct balance_thread *b)
{
	return core == p->gather ? a->need > b->need : a->need < b->need;
}

/* Moves one thread away from a core. False: none can go. */
static bool core_relieve(struct plan *p, unsigned core)
{
	struct balance_thread *first = NULL;
	unsigned first_to = p->num_cores;

	for (unsigned i = 0; i < p->num_threads; i++) {
		struct balance_thread *t = &p->threads[i];
		if (t->to != core || t->from != core || t->light || t->need + COMPANY > p->cores[core].load ||
		    (first != NULL && !leaves_before(p, core, t, first))) {
			continue;
		}
		unsigned to = core_with_room(p, t);
		if (to != p->num_cores) {
			first = t;
			first_to = to;
		}
	}
	if (first != NULL) {
		thread_assign(p, first, first_to);
	}
	return first != NULL;
}

static void busy_cores_relieve(struct plan *p)
{
	for (unsigned i = 0; i < p->num_cores; i++) {
		bool moves = !p->cores[i].isolated && p->cores[i].load > p->busy;
		while (moves && p->cores[i].load > p->room) {
			moves = core_relieve(p, i);
		}
	}
}

static void light_threads_gather(struct plan *p)
{
	for (unsigned i = 0; i < p->num_threads; i++) {
		struct balance_thread *t = &p->threads[i];
		if (t->light && !p->cores[t->from].isolated && thread_may_go(p, t, p->gather) &&
		    p->cores[p->gather].load + t->need <= p->room) {
			thread_assign(p, t, p->gather);
		}
	}
}

unsigned balance(const struct balance_limits *limits, struct balance_core *cores, unsigned num_cores, unsigned gather,
		 struct balance_thread *threads, unsigned num_threads)
{
	struct plan p = {.cores = cores,
			 .threads = threads,
			 .num_cores = num_cores,
			 .num_threads = num_threads,
			 .gather = gather,
			 .light = limits->load_limit * PERCENT,
			 .room = limits->core_limit * PERCENT,
			 .busy = limits->core_busy * PERCENT};
	unsigned moves = 0;

	if (p.room + GAP > p.busy) {
		p.room = p.busy > GAP ? p.busy - GAP : 0;
	}
	plan_begin(&p);
	busy_cores_relieve(&p);
	light_threads_gather(&p);
	for (unsigned i = 0; i < num_threads; i++) {
		moves += threads[i].to != threads[i].from;
	}
	return moves;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* --slowest N: the requests that took longest, each with all that was done for it, and the states it spent its time in.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/varve-trace.h"

struct candidate {
	uint32_t life;
	uint64_t ticks;
};

struct candidates {
	struct candidate *c;
	size_t n;
};

static int slowest_compare(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	if (x->ticks != y->ticks) {
		return x->ticks > y->ticks ? -1 : 1;
	}
	return (x->life > y->life) - (x->life < y->life);
}

/* Finds the objects without parents that were created in the trace, and that have a chosen event, or a descendant that
 * has one. */
static bool slowest_candidates_find(const struct trace_batch *b, const struct trace_lives *l, const bool *keep,
				    struct candidates *out)
{
	bool *wanted = calloc(l->num_lives + 1, sizeof(*wanted));

	out->n = 0;
	out->c = malloc((l->num_lives + 1) * sizeof(out->c[0]));
	if (wanted == NULL || out->c == NULL) {
		free(wanted);
		return false;
	}
	for (size_t i = 0; i < b->num_events; i++) {
		if (b->events[i].life != TRACE_NO_LIFE && (keep == NULL || keep[i])) {
			wanted[b->events[i].life] = true;
		}
	}
	for (size_t i = l->num_lives; i-- > 0;) { /* parents have lower numbers */
		if (wanted[i] && l->lives[i].parent != TRACE_NO_LIFE) {
			wanted[l->lives[i].parent] = true;
		}
	}
	for (size_t i = 0; i < l->num_lives; i++) {
		const struct trace_life *life = &l->lives[i];
		/* If its end is missing, it is not known how long it took. */
		bool known = life->index != TRACE_NO_OBJECT && (life->ended || trace_life_is_unfinished(life));
		if (wanted[i] && known && life->parent == TRACE_NO_LIFE) {
			out->c[out->n++] = (struct candidate){(uint32_t)i, trace_life_ticks(l, life)};
		}
	}
	free(wanted);
	qsort(out->c, out->n, sizeof(out->c[0]), slowest_compare);
	return true;
}

static int slowest_compare_positions(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* The positions of all events of an object and of what was done for it, in order. */
static size_t slowest_chain_collect(const struct trace_lives *l, uint32_t root, uint32_t **positions)
{
	size_t n = 0, max = 0;
	uint32_t at = root;

	*positions = NULL;
	for (;;) {
		for (uint32_t e = l->lives[at].first_event; e != UINT32_MAX; e = l->next_event[e]) {
			if (n == max) {
				max = max > 0 ? 2 * max : 64;
				uint32_t *more = realloc(*positions, max * sizeof(*more));
				if (more == NULL) {
					return 0;
				}
				*positions = more;
			}
			(*positions)[n++] = e;
		}
		/* Depth first, without recursion: in a hostile file the tree may be deep. */
		if (l->lives[at].first_child != TRACE_NO_LIFE) {
			at = l->lives[at].first_child;
			continue;
		}
		while (at != root && l->lives[at].next_sibling == TRACE_NO_LIFE) {
			at = l->lives[at].parent;
		}
		if (at == root) {
			break;
		}
		at = l->lives[at].next_sibling;
	}
	qsort(*positions, n, sizeof(**positions), slowest_compare_positions);
	return n;
}

/* ---- Text ---- */

static void slowest_id_print(const struct trace_view *v, const struct trace_life *life)
{
	char text[OUT_NUMBER_MAX];

	if (life->index == TRACE_NO_OBJECT) {
		out_printf(v->out, "0x%" PRIx64, life->value);
	} else {
		out_bytes(v->out, text, object_id_format(v->r, life->type, life->index, text));
	}
}

static void slowest_text_print(struct trace_view *v, const struct trace_batch *b, const struct trace_lives *l,
			       uint32_t root)
{
	const struct trace_life *life = &l->lives[root];
	const struct trace_life *culprit = &l->lives[trace_life_culprit(l, root)];
	const struct trace_tpoint *state = trace_reader_tpoint(v->r, culprit->slowest_tpoint);
	uint64_t ticks = trace_life_ticks(l, life);
	uint32_t *positions;
	size_t n = slowest_chain_collect(l, root, &positions);

	out_char(v->out, '\n');
	slowest_id_print(v, life);
	out_text(v->out, trace_life_is_unfinished(life) ? " is not finished after " : " took ");
	time_print(v, ticks, 0);
	out_text(v->out, v->opt->ticks ? " ticks" : " us");
	if (culprit->slowest_ticks > 0 && state != NULL) {
		unsigned percent =
			(unsigned)((unsigned __int128)culprit->slowest_ticks * 100 / (ticks > 0 ? ticks : 1));
		out_text(v->out, ", of which ");
		time_print(v, culprit->slowest_ticks, 0);
		out_printf(v->out, " (%u%%) ", percent);
		out_text(v->out, "after ");
		out_text(v->out, state->name);
		out_text(v->out, " of ");
		slowest_id_print(v, culprit);
	}
	if (owner_printed(v, culprit->owner_id, UINT64_MAX)->text_length > 0) {
		out_text(v->out, ", ");
		out_text(v->out, owner_printed(v, culprit->owner_id, UINT64_MAX)->text);
	}
	out_char(v->out, '\n');
	for (size_t i = 0; i < n; i++) {
		text_event(v, b, &b->events[positions[i]]);
	}
	free(positions);
}

/* ---- JSON ---- */

static void slowest_json_print(struct trace_view *v, const struct trace_batch *b, const struct trace_lives *l,
			       uint32_t root)
{
	const struct trace_life *life = &l->lives[root];
	const struct trace_life *culprit = &l->lives[trace_life_culprit(l, root)];
	const struct trace_tpoint *state = trace_reader_tpoint(v->r, culprit->slowest_tpoint);
	uint32_t *positions;
	size_t n = slowest_chain_collect(l, root, &positions);

	out_text(v->out, v->any ? ",\n{\"id\":" : "\n{\"id\":");
	json_object_id(v, life->type, life->index);
	json_member(v->out, "time", trace_life_ticks(l, life));
	out_text(v->out, trace_life_is_unfinished(life) ? ",\"finished\":false" : ",\"finished\":true");
	if (culprit->slowest_ticks > 0 && state != NULL) {
		out_text(v->out, ",\"culprit\":{\"id\":");
		json_object_id(v, culprit->type, culprit->index);
		json_member(v->out, "tpoint", state->id);
		out_text(v->out, ",\"name\":");
		json_text(v->out, state->name);
		json_member(v->out, "time", culprit->slowest_ticks);
		const struct printed_owner *owner = owner_printed(v, culprit->owner_id, UINT64_MAX);
		if (owner->json_length > 0) {
			out_text(v->out, ",\"owner\":");
			out_bytes(v->out, owner->json, owner->json_length);
		}
		out_char(v->out, '}');
	}
	out_text(v->out, ",\"entries\":[");
	v->any = false;
	for (size_t i = 0; i < n; i++) {
		json_event(v, b, &b->events[positions[i]]);
	}
	out_text(v->out, "]}");
	v->any = true;
	free(positions);
}

int slowest_run(struct trace_view *v, const struct trace_snapshot *s, const struct trace_lives *l, const bool *keep)
{
	struct candidates found;

	if (!slowest_candidates_find(&s->batch, l, keep, &found)) {
		free(found.c);
		trace_cli_error("out of memory");
		return 1;
	}
	size_t n = found.n < v->opt->slowest ? found.n : v->opt->slowest;
	if (v->opt->json) {
		json_preamble(v, s);
		out_text(v->out, ",\n\"slowest\":[");
		for (size_t i = 0; i < n; i++) {
			slowest_json_print(v, &s->batch, l, found.c[i].life);
		}
		out_text(v->out, "\n]}\n");
	} else {
		text_header(v, s);
		if (n == 0) {
			out_text(v->out, "No object was created in these events.\n");
		}
		for (size_t i = 0; i < n; i++) {
			slowest_text_print(v, &s->batch, l, found.c[i].life);
		}
	}
	free(found.c);
	return 0;
}

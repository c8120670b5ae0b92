/* SPDX-License-Identifier: BSD-3-Clause */
/* --perfetto FILE: Chrome's trace event format, which ui.perfetto.dev opens. Each type of object is a process; its
 * objects are slices in lanes (threads), in which they do not overlap; an object's slice contains those of its states.
 * A flow leads from the parent's state in which an object was created to that object. Events without an object are
 * instants. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/varve-trace.h"

struct lane {
	uint64_t free_at; /* tsc */
	uint32_t number;
};

/* The lanes of a type: a heap, with the lane that becomes free first at its top. */
struct lanes {
	struct lane *heap;
	uint32_t n, max;
};

struct perfetto {
	struct trace_view *v;
	struct out *out;
	const struct trace_batch *b;
	const struct trace_lives *l;
	const bool *wanted; /* per life */
	uint32_t *lane;     /* per life */
	struct lanes lanes[TRACE_NUM_TYPES];
	bool any;
};

/* ---- Lanes ---- */

static void perfetto_lane_sift_down(struct lanes *s, uint32_t i)
{
	for (;;) {
		uint32_t first = i;
		for (uint32_t c = 2 * i + 1; c <= 2 * i + 2 && c < s->n; c++) {
			first = s->heap[c].free_at < s->heap[first].free_at ? c : first;
		}
		if (first == i) {
			return;
		}
		struct lane swap = s->heap[i];
		s->heap[i] = s->heap[first];
		s->heap[first] = swap;
		i = first;
	}
}

static void perfetto_lane_sift_up(struct lanes *s, uint32_t i)
{
	while (i > 0 && s->heap[i].free_at < s->heap[(i - 1) / 2].free_at) {
		struct lane swap = s->heap[i];
		s->heap[i] = s->heap[(i - 1) / 2];
		s->heap[(i - 1) / 2] = swap;
		i = (i - 1) / 2;
	}
}

/* Takes a lane that is free from `start` on, until `end`. To be called in the order of the starts. */
static bool perfetto_lane_take(struct lanes *s, uint64_t start, uint64_t end, uint32_t *number)
{
	if (s->n > 0 && s->heap[0].free_at <= start) {
		*number = s->heap[0].number;
		s->heap[0].free_at = end + 1;
		perfetto_lane_sift_down(s, 0);
		return true;
	}
	if (s->n == s->max) {
		uint32_t max = s->max > 0 ? 2 * s->max : 64;
		struct lane *more = realloc(s->heap, max * sizeof(*more));
		if (more == NULL) {
			return false;
		}
		s->heap = more;
		s->max = max;
	}
	*number = s->n;
	s->heap[s->n] = (struct lane){end + 1, s->n};
	perfetto_lane_sift_up(s, s->n++);
	return true;
}

static uint64_t perfetto_life_end(const struct trace_lives *l, const struct trace_life *life)
{
	return life->start + trace_life_ticks(l, life);
}

static bool perfetto_lanes_assign(struct perfetto *p)
{
	bool ok = true;

	for (size_t i = 0; i < p->l->num_lives && ok; i++) {
		const struct trace_life *life = &p->l->lives[i];
		if (p->wanted[i]) {
			ok = perfetto_lane_take(&p->lanes[life->type], life->start, perfetto_life_end(p->l, life),
						&p->lane[i]);
		}
	}
	return ok;
}

/* ---- Events of the format ---- */

static void perfetto_event_open(struct perfetto *p, const char *phase, unsigned pid, uint32_t tid)
{
	out_text(p->out, p->any ? ",\n{\"ph\":\"" : "\n{\"ph\":\"");
	p->any = true;
	out_text(p->out, phase);
	out_text(p->out, "\",\"pid\":");
	out_number(p->out, pid);
	json_member(p->out, "tid", tid);
}

/* Prints microseconds, the unit of the format, with three decimals for the nanoseconds. */
static void perfetto_micro_member(struct perfetto *p, const char *key, uint64_t ticks)
{
	char text[OUT_NUMBER_MAX];

	out_text(p->out, ",\"");
	out_text(p->out, key);
	out_text(p->out, "\":");
	out_bytes(p->out, text, format_milli(text, trace_ticks_to_ns(ticks, p->v->tsc_rate)));
}

/* Start and end are rounded, not the length: so slices that touch still touch. */
static void perfetto_span_members(struct perfetto *p, uint64_t from, uint64_t to)
{
	uint64_t start = trace_ticks_to_ns(from - p->v->base_tsc, p->v->tsc_rate);
	uint64_t end = trace_ticks_to_ns(to - p->v->base_tsc, p->v->tsc_rate);
	char text[OUT_NUMBER_MAX];

	out_text(p->out, ",\"ts\":");
	out_bytes(p->out, text, format_milli(text, start));
	out_text(p->out, ",\"dur\":");
	out_bytes(p->out, text, format_milli(text, end - start));
}

static void perfetto_name_member(struct perfetto *p, const char *key, const char *text)
{
	out_text(p->out, ",\"");
	out_text(p->out, key);
	out_text(p->out, "\":");
	json_text(p->out, text);
}

static void perfetto_metadata_print(struct perfetto *p, const char *what, unsigned pid, uint32_t tid, const char *name)
{
	perfetto_event_open(p, "M", pid, tid);
	perfetto_name_member(p, "name", what);
	out_text(p->out, ",\"args\":{\"name\":");
	json_text(p->out, name);
	out_text(p->out, "}}");
}

static const char *perfetto_life_name(const struct perfetto *p, const struct trace_life *life, char *to)
{
	if (life->index == TRACE_NO_OBJECT) {
		snprintf(to, 32, "0x%" PRIx64, life->value);
	} else {
		to[object_id_format(p->v->r, life->type, life->index, to)] = '\0';
	}
	return to;
}

static void perfetto_owner_member(struct perfetto *p, uint16_t id)
{
	const struct printed_owner *owner = owner_printed(p->v, id, UINT64_MAX);

	if (owner->json_length > 0) {
		out_text(p->out, ",\"owner\":");
		out_bytes(p->out, owner->json, owner->json_length);
	}
}

static void perfetto_state_print(struct perfetto *p, const struct trace_life *life, uint32_t lane, uint32_t at,
				 uint64_t end)
{
	const struct trace_event *e = &p->b->events[at];
	const struct trace_tpoint *t = trace_reader_tpoint(p->v->r, e->tpoint_id);

	perfetto_event_open(p, "X", life->type, lane);
	perfetto_name_member(p, "name", t->name);
	out_text(p->out, ",\"cat\":\"state\"");
	perfetto_span_members(p, e->tsc, end);
	out_text(p->out, ",\"args\":{\"lcore\":");
	out_number(p->out, e->lcore);
	for (unsigned i = 0; i < t->num_args; i++) {
		struct trace_arg a = trace_event_arg(p->b, e, t, i);
		out_text(p->out, ",\"arg ");
		char name[6 * sizeof(t->args[i].name) + 2];
		size_t n = json_escape(name, t->args[i].name, strlen(t->args[i].name));
		out_bytes(p->out, name + 1, n - 1); /* without the first quote */
		out_char(p->out, ':');
		if (a.type == TRACE_ARG_STR) {
			json_string(p->out, a.text, a.length);
		} else {
			/* As text, because these numbers may be larger than a double can hold exactly. */
			char hex[OUT_NUMBER_MAX];
			n = a.type == TRACE_ARG_PTR ? format_hex(hex, a.number) : format_number(hex, a.number);
			json_string(p->out, hex, n);
		}
	}
	out_text(p->out, "}}");
}

/* Flows bind to the slice around their time on their thread: the parent's state at that time, and the child. */
static void perfetto_flow_print(struct perfetto *p, uint32_t n)
{
	const struct trace_life *life = &p->l->lives[n];
	uint32_t parent = life->parent;

	if (parent == TRACE_NO_LIFE || !p->wanted[parent] || life->start < p->l->lives[parent].start ||
	    life->start > perfetto_life_end(p->l, &p->l->lives[parent])) {
		return;
	}
	perfetto_event_open(p, "s", p->l->lives[parent].type, p->lane[parent]);
	out_text(p->out, ",\"name\":\"for\",\"cat\":\"flow\"");
	json_member(p->out, "id", n);
	perfetto_micro_member(p, "ts", life->start - p->v->base_tsc);
	out_char(p->out, '}');
	perfetto_event_open(p, "f", life->type, p->lane[n]);
	out_text(p->out, ",\"name\":\"for\",\"cat\":\"flow\",\"bp\":\"e\"");
	json_member(p->out, "id", n);
	perfetto_micro_member(p, "ts", life->start - p->v->base_tsc);
	out_char(p->out, '}');
}

static void perfetto_life_print(struct perfetto *p, uint32_t n)
{
	const struct trace_life *life = &p->l->lives[n];
	uint64_t end = perfetto_life_end(p->l, life);
	char name[32];

	perfetto_event_open(p, "X", life->type, p->lane[n]);
	perfetto_name_member(p, "name", perfetto_life_name(p, life, name));
	out_text(p->out, ",\"cat\":\"object\"");
	perfetto_span_members(p, life->start, end);
	out_text(p->out, ",\"args\":{\"finished\":");
	out_text(p->out, trace_life_is_unfinished(life) ? "false" : "true");
	perfetto_owner_member(p, life->owner_id);
	out_text(p->out, "}}");
	for (uint32_t e = life->first_event; e != UINT32_MAX; e = p->l->next_event[e]) {
		uint32_t next = p->l->next_event[e];
		perfetto_state_print(p, life, p->lane[n], e, next != UINT32_MAX ? p->b->events[next].tsc : end);
	}
	perfetto_flow_print(p, n);
}

static void perfetto_instant_print(struct perfetto *p, const struct trace_event *e)
{
	perfetto_event_open(p, "i", 0, e->lcore);
	perfetto_name_member(p, "name", trace_reader_tpoint(p->v->r, e->tpoint_id)->name);
	perfetto_micro_member(p, "ts", e->tsc - p->v->base_tsc);
	out_text(p->out, ",\"s\":\"t\",\"args\":{\"size\":");
	out_number(p->out, e->size);
	perfetto_owner_member(p, e->owner_id);
	out_text(p->out, "}}");
}

static void perfetto_names_print(struct perfetto *p, const struct trace_snapshot *s)
{
	char name[64];

	perfetto_metadata_print(p, "process_name", 0, 0, "events without an object");
	for (size_t i = 0; i < s->num_lcores; i++) {
		snprintf(name, sizeof(name), "lcore %u %s", s->lcores[i].lcore, s->lcores[i].name);
		perfetto_metadata_print(p, "thread_name", 0, s->lcores[i].lcore, name);
	}
	for (unsigned type = 1; type < TRACE_NUM_TYPES; type++) {
		char prefix = trace_reader_object_prefix(p->v->r, (uint8_t)type);
		if (p->lanes[type].n == 0) {
			continue;
		}
		snprintf(name, sizeof(name), "objects %c (type 0x%x)", prefix != 0 ? prefix : '?', type);
		perfetto_metadata_print(p, "process_name", type, 0, name);
		for (uint32_t lane = 0; lane < p->lanes[type].n; lane++) {
			snprintf(name, sizeof(name), "%c lane %u", prefix != 0 ? prefix : '?', lane);
			perfetto_metadata_print(p, "thread_name", type, lane, name);
		}
	}
}

static void perfetto_document_print(struct perfetto *p, const struct trace_snapshot *s, const bool *keep)
{
	out_text(p->out, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"producer\":\"varve-trace\"");
	json_member(p->out, "tsc_rate", p->v->tsc_rate);
	json_member(p->out, "base_tsc", p->v->base_tsc);
	json_member(p->out, "base_realtime_ns", trace_snapshot_realtime_ns(s, p->v->base_tsc));
	out_text(p->out, "},\n\"traceEvents\":[");
	perfetto_names_print(p, s);
	for (size_t i = 0; i < p->l->num_lives; i++) {
		if (p->wanted[i]) {
			perfetto_life_print(p, (uint32_t)i);
		}
	}
	for (size_t i = 0; i < p->b->num_events; i++) {
		if (p->b->events[i].life == TRACE_NO_LIFE && (keep == NULL || keep[i])) {
			perfetto_instant_print(p, &p->b->events[i]);
		}
	}
	out_text(p->out, "\n]}\n");
}

bool *lives_wanted(const struct trace_batch *b, const struct trace_lives *l, const bool *keep)
{
	bool *wanted = calloc(l->num_lives + 1, sizeof(*wanted));

	for (size_t i = 0; wanted != NULL && i < b->num_events; i++) {
		if (b->events[i].life != TRACE_NO_LIFE && (keep == NULL || keep[i])) {
			wanted[b->events[i].life] = true;
		}
	}
	return wanted;
}

int perfetto_run(struct trace_view *v, const struct trace_snapshot *s, const struct trace_lives *l, const bool *keep,
		 struct out *out)
{
	struct perfetto p = {.v = v, .out = out, .b = &s->batch, .l = l};
	bool *wanted = lives_wanted(&s->batch, l, keep);
	int status = 1;

	p.wanted = wanted;
	p.lane = calloc(l->num_lives + 1, sizeof(p.lane[0]));
	if (wanted != NULL && p.lane != NULL && perfetto_lanes_assign(&p)) {
		perfetto_document_print(&p, s, keep);
		status = 0;
	} else {
		trace_cli_error("out of memory");
	}
	for (int i = 0; i < TRACE_NUM_TYPES; i++) {
		free(p.lanes[i].heap);
	}
	free(p.lane);
	free(wanted);
	return status;
}

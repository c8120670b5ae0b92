/* SPDX-License-Identifier: BSD-3-Clause */
/* --html FILE: one page with the data as JSON in it; tools/html/ is the page. Times in it are nanoseconds. If there are
 * very many requests, the page has the slowest and an even choice of the others, so that a browser can still handle it.
 * The tables count all of them. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/html/page.h"
#include "tools/varve-trace.h"

enum { MAX_ROOTS = 3000, MAX_SLOWEST = 100, BUCKETS = 256 };

struct page {
	struct trace_view *v;
	struct out *out;
	const struct trace_batch *b;
	const struct trace_lives *l;
	const bool *keep;
	bool *shown;       /* per life */
	uint32_t *number;  /* per life: its index in the page */
	uint32_t *slowest; /* roots, the slowest first */
	size_t num_roots;
	uint32_t culprit;               /* of a black box's copy: its life; or TRACE_NO_LIFE */
	bool owners[UINT16_MAX + 1];    /* that are named */
	uint32_t (*histogram)[BUCKETS]; /* per tracepoint */
};

static uint64_t html_ticks_to_ns(const struct page *p, uint64_t ticks)
{
	return trace_ticks_to_ns(ticks, p->v->tsc_rate);
}

static uint64_t html_time_ns(const struct page *p, uint64_t tsc)
{
	return html_ticks_to_ns(p, tsc - p->v->base_tsc);
}

/* ---- Which requests ---- */

static int html_compare_slowest(const void *a, const void *b, void *arg)
{
	const struct trace_lives *l = arg;
	const uint32_t *x = a, *y = b;
	uint64_t s = trace_life_ticks(l, &l->lives[*x]), t = trace_life_ticks(l, &l->lives[*y]);

	return s != t ? (s > t ? -1 : 1) : (*x > *y) - (*x < *y);
}

/* A life that began before the trace, or whose end is missing, has no length to draw. */
static bool html_life_is_drawable(const struct trace_life *life)
{
	return life->type != 0 && life->index != TRACE_NO_OBJECT && (life->ended || trace_life_is_unfinished(life));
}

/* The life of a black box's culprit, or TRACE_NO_LIFE. */
static uint32_t html_culprit_find(const struct page *p)
{
	for (size_t i = 0; i < p->l->num_lives; i++) {
		const struct trace_life *life = &p->l->lives[i];
		if (html_life_is_drawable(life) && trace_event_is_culprit(p->v->r, &p->b->events[life->first_event])) {
			return (uint32_t)i;
		}
	}
	return TRACE_NO_LIFE;
}

static bool html_roots_choose(struct page *p)
{
	bool *wanted = lives_wanted(p->b, p->l, p->keep);
	size_t n = p->l->num_lives;

	if (wanted == NULL) {
		return false;
	}
	for (size_t i = n; i-- > 0;) { /* parents have lower numbers */
		if (wanted[i] && p->l->lives[i].parent != TRACE_NO_LIFE) {
			wanted[p->l->lives[i].parent] = true;
		}
	}
	for (size_t i = 0; i < n; i++) {
		if (wanted[i] && p->l->lives[i].parent == TRACE_NO_LIFE && html_life_is_drawable(&p->l->lives[i])) {
			p->slowest[p->num_roots++] = (uint32_t)i;
		}
	}
	/* Chooses one of every so many roots in the order of time, and then the slowest. */
	size_t step = p->num_roots <= MAX_ROOTS ? 1 : p->num_roots / (MAX_ROOTS / 2);
	for (size_t i = 0; i < p->num_roots; i += step) {
		p->shown[p->slowest[i]] = true;
	}
	qsort_r(p->slowest, p->num_roots, sizeof(p->slowest[0]), html_compare_slowest, (void *)p->l);
	for (size_t i = 0; i < p->num_roots && i < MAX_ROOTS / 2; i++) {
		p->shown[p->slowest[i]] = true;
	}
	p->culprit = html_culprit_find(p);
	for (uint32_t i = p->culprit; i != TRACE_NO_LIFE; i = p->l->lives[i].parent) {
		p->shown[i] = true;
	}
	for (size_t i = 0; i < n; i++) { /* children of those shown */
		uint32_t parent = p->l->lives[i].parent;
		if (parent != TRACE_NO_LIFE && p->shown[parent] && p->l->lives[i].index != TRACE_NO_OBJECT) {
			p->shown[i] = true;
		}
	}
	free(wanted);
	return true;
}

/* ---- Tables ---- */

/* A quarter of an octave; the page has the inverse. */
static unsigned html_bucket_of(uint64_t ns)
{
	if (ns < 4) {
		return (unsigned)ns;
	}
	unsigned e = 63u - (unsigned)__builtin_clzll(ns);
	return e * 4 + (ns >> (e - 2) & 3);
}

static void html_histograms_fill(struct page *p)
{
	for (size_t i = 0; i < p->b->num_events; i++) {
		const struct trace_event *e = &p->b->events[i];
		if (e->state_ticks != TRACE_NO_TIME && (p->keep == NULL || p->keep[i])) {
			p->histogram[e->prev_tpoint][html_bucket_of(html_ticks_to_ns(p, e->state_ticks))]++;
		}
	}
}

static void html_times_print(const struct page *p, const struct trace_dwell *d)
{
	json_member(p->out, "count", d->count);
	json_member(p->out, "min", html_ticks_to_ns(p, d->min));
	json_member(p->out, "median", html_ticks_to_ns(p, d->median));
	json_member(p->out, "p90", html_ticks_to_ns(p, d->p90));
	json_member(p->out, "p99", html_ticks_to_ns(p, d->p99));
	json_member(p->out, "p999", html_ticks_to_ns(p, d->p999));
	json_member(p->out, "max", html_ticks_to_ns(p, d->max));
	json_member(p->out, "total", html_ticks_to_ns(p, d->total));
}

static void html_states_print(struct page *p, const struct trace_report *t)
{
	out_text(p->out, ",\n\"states\":[");
	for (size_t i = 0; i < t->num_rows[TRACE_BY_STATE]; i++) {
		const struct trace_dwell *d = &t->rows[TRACE_BY_STATE][i];
		bool any = false;
		out_printf(p->out, "%s\n{\"tpoint\":%u,\"type\":%u", i > 0 ? "," : "", d->tpoint_id, d->object_type);
		html_times_print(p, d);
		out_text(p->out, ",\"histogram\":[");
		for (unsigned k = 0; k < BUCKETS; k++) {
			if (p->histogram[d->tpoint_id][k] > 0) {
				out_printf(p->out, "%s[%u,%u]", any ? "," : "", k, p->histogram[d->tpoint_id][k]);
				any = true;
			}
		}
		out_text(p->out, "]}");
	}
	out_char(p->out, ']');
}

/* Prints the owners of complete lives, each with the state that took most of their time. */
static void html_owners_print(struct page *p, const struct trace_report *t)
{
	const struct trace_dwell *states = t->rows[TRACE_BY_OWNER_STATE];
	size_t k = 0, n = t->num_rows[TRACE_BY_OWNER_STATE];
	bool any = false;

	out_text(p->out, ",\n\"by_owner\":[");
	for (size_t i = 0; i < t->num_rows[TRACE_BY_OWNER_TYPE]; i++) {
		const struct trace_dwell *d = &t->rows[TRACE_BY_OWNER_TYPE][i], *worst = NULL;
		uint64_t all = 0;
		/* Both tables have the same order. */
		while (k < n && (states[k].owner_id < d->owner_id ||
				 (states[k].owner_id == d->owner_id && states[k].object_type < d->object_type))) {
			k++;
		}
		for (; k < n && states[k].owner_id == d->owner_id && states[k].object_type == d->object_type; k++) {
			worst = worst == NULL || states[k].total > worst->total ? &states[k] : worst;
			all += html_ticks_to_ns(p, states[k].total);
		}
		if (d->owner_id == 0 || worst == NULL) {
			continue;
		}
		p->owners[d->owner_id] = true;
		out_printf(p->out, "%s\n{\"owner\":%u,\"type\":%u,\"tpoint\":%u", any ? "," : "", d->owner_id,
			   d->object_type, worst->tpoint_id);
		json_member(p->out, "part", html_ticks_to_ns(p, worst->total));
		json_member(p->out, "all", all);
		html_times_print(p, d);
		out_char(p->out, '}');
		any = true;
	}
	out_char(p->out, ']');
}

/* ---- Lives ---- */

static void html_life_print(struct page *p, const struct trace_life *life)
{
	uint32_t parent =
		life->parent != TRACE_NO_LIFE && p->shown[life->parent] ? p->number[life->parent] : UINT32_MAX;

	p->owners[life->owner_id] = true;
	out_printf(p->out, "[%u,%" PRIu64 ",%u,", life->type, life->index, life->owner_id);
	if (parent == UINT32_MAX) {
		out_text(p->out, "-1");
	} else {
		out_number(p->out, parent);
	}
	out_printf(p->out, ",%" PRIu64 ",%" PRIu64 ",%s,[", html_time_ns(p, life->start),
		   html_time_ns(p, life->start + trace_life_ticks(p->l, life)),
		   trace_life_is_unfinished(life) ? "false" : "true");
	for (uint32_t e = life->first_event; e != UINT32_MAX; e = p->l->next_event[e]) {
		out_text(p->out, e == life->first_event ? "" : ",");
		out_number(p->out, p->b->events[e].tpoint_id);
		out_char(p->out, ',');
		out_number(p->out, html_time_ns(p, p->b->events[e].tsc));
	}
	out_text(p->out, "]]");
}

static void html_lives_print(struct page *p)
{
	uint32_t n = 0;

	out_text(p->out, ",\n\"lives\":[");
	for (size_t i = 0; i < p->l->num_lives; i++) {
		if (p->shown[i]) {
			out_text(p->out, n > 0 ? ",\n" : "\n");
			p->number[i] = n++;
			html_life_print(p, &p->l->lives[i]);
		}
	}
	out_text(p->out, "],\n\"slowest\":[");
	for (size_t i = 0; i < p->num_roots && i < MAX_SLOWEST; i++) {
		uint32_t culprit = trace_life_culprit(p->l, p->slowest[i]);
		const struct trace_life *life = &p->l->lives[culprit];
		/* A life that began before the trace is not on the page. */
		uint32_t number = p->number[p->shown[culprit] ? culprit : p->slowest[i]];
		out_printf(p->out, "%s\n{\"life\":%u,\"culprit\":%u,\"tpoint\":%u,\"ns\":%" PRIu64 "}",
			   i > 0 ? "," : "", p->number[p->slowest[i]], number, life->slowest_tpoint,
			   html_ticks_to_ns(p, life->slowest_ticks));
	}
	out_char(p->out, ']');
}

/* ---- Names ---- */

static void html_names_print(struct page *p)
{
	bool any = false;

	out_text(p->out, ",\n\"types\":[");
	for (unsigned i = 1; i < TRACE_NUM_TYPES; i++) {
		char prefix = trace_reader_object_prefix(p->v->r, (uint8_t)i);
		prefix = prefix != 0 ? prefix : '?';
		out_printf(p->out, "%s{\"type\":%u,\"prefix\":", i > 1 ? "," : "", i);
		json_string(p->out, &prefix, 1);
		out_char(p->out, '}');
	}
	out_text(p->out, "],\n\"tpoints\":{");
	for (unsigned id = 0; id < trace_reader_num_tpoints(p->v->r); id++) {
		const struct trace_tpoint *t = trace_reader_tpoint(p->v->r, id);
		if (t != NULL && t->object_type != 0) {
			out_printf(p->out, "%s\"%u\":", any ? "," : "", id);
			json_text(p->out, t->name);
			any = true;
		}
	}
	out_text(p->out, "},\n\"owners\":{");
	any = false;
	for (unsigned id = 1; id <= UINT16_MAX; id++) {
		const struct printed_owner *owner =
			p->owners[id] ? owner_printed(p->v, (uint16_t)id, UINT64_MAX) : NULL;
		if (owner != NULL && owner->json_length > 0) {
			out_printf(p->out, "%s\"%u\":", any ? "," : "", id);
			out_bytes(p->out, owner->json, owner->json_length);
			any = true;
		}
	}
	out_char(p->out, '}');
}

static void html_title_print(struct page *p, const struct trace_snapshot *s)
{
	const struct trace_file_info *info = trace_reader_info(p->v->r);
	uint64_t ns = trace_snapshot_realtime_ns(s, p->v->base_tsc);
	char text[256], when[40] = "";

	if (info != NULL) {
		snprintf(text, sizeof(text), "%s, process %u (%s)",
			 info->app_version[0] != '\0' ? info->app_version : info->app_name, info->pid,
			 writer_state_name(trace_reader_writer(p->v->r), info));
	} else {
		snprintf(text, sizeof(text), "trace file");
	}
	out_text(p->out, "{\"title\":");
	json_text(p->out, text);
	if (ns != 0) {
		time_of_day_format(ns, when, sizeof(when));
	}
	uint64_t duration = html_time_ns(p, p->l->end_tsc > p->v->base_tsc ? p->l->end_tsc : p->v->base_tsc);
	snprintf(text, sizeof(text), "%s%s%" PRIu64 ".%03" PRIu64 " ms, %zu events, %zu objects", when,
		 ns != 0 ? ", " : "", duration / 1000000, duration / 1000 % 1000, p->b->num_events, p->l->num_lives);
	out_text(p->out, ",\"subtitle\":");
	json_text(p->out, text);
	json_member(p->out, "duration_ns", duration);
	json_member(p->out, "num_roots", p->num_roots);
}

/* When the trigger fired. */
static void html_cause_time_print(struct page *p, const struct trace_file_cause *c)
{
	char text[64], when[40];

	if (c->realtime_ns != 0) {
		time_of_day_format(c->realtime_ns, when, sizeof(when));
		snprintf(text, sizeof(text), "%s.%06u", when, (unsigned)(c->realtime_ns % 1000000000u / 1000));
		out_text(p->out, ",\"cause_when\":");
		json_text(p->out, text);
	}
	if (c->tsc >= p->v->base_tsc && p->v->base_tsc != 0) {
		json_member(p->out, "cause_ns", html_time_ns(p, c->tsc));
	}
}

/* What stands above the timeline: why the file was made, and how its writer ended if it crashed. */
static void html_notices_print(struct page *p)
{
	const struct trace_file_info *info = trace_reader_info(p->v->r);
	const struct trace_file_cause *c = trace_reader_cause(p->v->r);
	char text[CRASH_TEXT_MAX + 64], crash[CRASH_TEXT_MAX];

	if (info != NULL && info->crash_tsc != 0) {
		crash_format(info, crash, sizeof(crash));
		snprintf(text, sizeof(text), "%s, in thread %s (%u)", crash, info->crash_thread, info->crash_tid);
		out_text(p->out, ",\n\"crash\":");
		json_text(p->out, text);
	}
	if (c != NULL) {
		json_cause(p->v);
		html_cause_time_print(p, c);
		if (p->culprit != TRACE_NO_LIFE && p->shown[p->culprit]) {
			json_member(p->out, "cause_life", p->number[p->culprit]);
		}
	}
}

static int html_page_print(struct page *p, const struct trace_snapshot *s)
{
	struct trace_report t;

	if (!html_roots_choose(p) || trace_report_make(p->v->r, p->b, p->l, p->keep, false, &t) != 0) {
		return -ENOMEM;
	}
	html_histograms_fill(p);
	out_bytes(p->out, (const char *)html_before, html_before_size);
	html_title_print(p, s);
	html_states_print(p, &t);
	html_owners_print(p, &t);
	html_lives_print(p); /* gives the lives their numbers */
	html_notices_print(p);
	html_names_print(p);
	out_char(p->out, '}');
	out_bytes(p->out, (const char *)html_after, html_after_size);
	trace_report_clear(&t);
	return 0;
}

int html_run(struct trace_view *v, const struct trace_snapshot *s, const struct trace_lives *l, const bool *keep,
	     struct out *out)
{
	struct page *p = calloc(1, sizeof(*p));
	int rc = -ENOMEM;

	if (p != NULL) {
		*p = (struct page){.v = v, .out = out, .b = &s->batch, .l = l, .keep = keep};
		p->shown = calloc(l->num_lives + 1, sizeof(p->shown[0]));
		p->number = calloc(l->num_lives + 1, sizeof(p->number[0]));
		p->slowest = calloc(l->num_lives + 1, sizeof(p->slowest[0]));
		p->histogram = calloc(TRACE_NUM_TPOINTS, sizeof(p->histogram[0]));
		if (p->shown != NULL && p->number != NULL && p->slowest != NULL && p->histogram != NULL) {
			rc = html_page_print(p, s);
		}
		free(p->shown);
		free(p->number);
		free(p->slowest);
		free(p->histogram);
	}
	free(p);
	if (rc != 0) {
		trace_cli_error("out of memory");
	}
	return rc != 0;
}

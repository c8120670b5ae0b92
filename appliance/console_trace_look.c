/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/console_trace_look.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_ENTRIES 32768 /* of all rings together that a look reads */

/* What the events of one look have in common. */
struct look {
	struct trace_reader *reader;
	const struct trace_snapshot *s;
	uint64_t secret;
};

/* ---- An event as texts ---- */

static uint64_t look_mix(uint64_t h)
{
	h ^= h >> 33;
	h *= UINT64_C(0xff51afd7ed558ccd);
	h ^= h >> 33;
	h *= UINT64_C(0xc4ceb9fe1a85ec53);
	return h ^ h >> 33;
}

/* The name of an object: the letter of its type, and a hash of its address. */
static void look_name_object(const struct look *look, char prefix, uint64_t value, char to[12])
{
	uint64_t hash = look_mix(look_mix(value ^ look->secret) + look->secret);

	snprintf(to, 12, "%c%06" PRIx64, prefix != 0 ? prefix : 'x', hash & 0xffffff);
}

/* One argument. An address of eight bytes becomes the name of an object; a shorter "pointer" is a number in
 * hexadecimal. */
static void look_print_arg(const struct look *look, const struct trace_tpoint_arg *def, const struct trace_arg *a,
			   char *to, size_t size)
{
	char name[12];

	if (a->type == TRACE_ARG_STR) {
		snprintf(to, size, "%s: %.*s", def->name, (int)a->length, a->text);
	} else if (a->type != TRACE_ARG_PTR) {
		snprintf(to, size, "%s: %" PRIu64, def->name, a->number);
	} else if (def->size == 8 && a->number != 0) {
		look_name_object(look, 'x', a->number, name);
		snprintf(to, size, "%s: %s", def->name, name);
	} else {
		snprintf(to, size, "%s: 0x%" PRIx64, def->name, a->number);
	}
}

static void look_print_args(const struct look *look, const struct trace_event *e, const struct trace_tpoint *t,
			    char *to, size_t size)
{
	size_t used = 0;

	to[0] = '\0';
	for (unsigned i = 0; i < t->num_args; i++) {
		if (e->related_index != TRACE_NO_OBJECT && e->related_arg == i) {
			continue; /* it is shown as the parent */
		}
		char text[192];
		struct trace_arg a = trace_event_arg(&look->s->batch, e, t, i);
		look_print_arg(look, &t->args[i], &a, text, sizeof(text));
		int n = snprintf(to + used, size - used, "%s%s", used != 0 ? ", " : "", text);
		used += (size_t)n < size - used ? (size_t)n : size - used - 1;
	}
}

static void look_print_event(const struct look *look, const struct trace_event *e, struct look_event *to)
{
	const struct trace_tpoint *t = trace_reader_tpoint(look->reader, e->tpoint_id);
	const char *owner = t->owner_type != 0 ? trace_reader_owner(look->reader, e->owner_id, e->tsc) : NULL;

	*to = (struct look_event){
		.tsc = e->tsc,
		.at_ns = trace_ticks_to_ns(e->tsc - look->s->first_tsc, look->s->tsc_rate),
		.realtime_us = trace_snapshot_realtime_ns(look->s, e->tsc) / 1000,
		.state_ns = e->state_ticks != TRACE_NO_TIME ? trace_ticks_to_ns(e->state_ticks, look->s->tsc_rate)
							    : TRACE_NO_TIME,
		.lcore = e->lcore,
		.size = e->size,
	};
	snprintf(to->thread, sizeof(to->thread), "%s", trace_reader_thread_name(look->reader, e->lcore, e->tsc));
	snprintf(to->owner, sizeof(to->owner), "%s", owner != NULL ? owner : "");
	snprintf(to->tpoint, sizeof(to->tpoint), "%s", t->name);
	if (t->object_type != 0 || e->object_id != 0) {
		look_name_object(look, trace_reader_object_prefix(look->reader, t->object_type), e->object_id,
				 to->object);
	}
	if (e->related_index != TRACE_NO_OBJECT) {
		struct trace_arg a = trace_event_arg(&look->s->batch, e, t, e->related_arg);
		look_name_object(look, trace_reader_object_prefix(look->reader, e->related_type), a.number, to->parent);
	}
	look_print_args(look, e, t, to->args, sizeof(to->args));
}

/* ---- Which events ---- */

/* What becomes of the events of a snapshot. */
struct look_choice {
	bool *shown;         /* per event */
	uint32_t *root;      /* per event: the topmost object's life, or TRACE_NO_LIFE */
	uint32_t *in_family; /* per life that is a root: how many events its family has; LOOK_TAKEN: they are wanted */
};
#define LOOK_TAKEN UINT32_MAX

static bool look_event_has_text(const struct look_event *e, const char *text)
{
	return strcasestr(e->owner, text) != NULL || strcasestr(e->tpoint, text) != NULL ||
	       strcasestr(e->object, text) != NULL || strcasestr(e->parent, text) != NULL ||
	       strcasestr(e->thread, text) != NULL;
}

static bool look_is_wanted(const struct look *look, const struct trace_event *e, const struct console_trace_query *q)
{
	struct look_event text;

	if (q->group >= 0 && e->tpoint_id / TRACE_TPOINTS_PER_GROUP != (unsigned)q->group) {
		return false;
	}
	if (q->text[0] == '\0') {
		return true;
	}
	look_print_event(look, e, &text);
	return look_event_has_text(&text, q->text);
}

static void look_find_roots(const struct trace_batch *b, const struct trace_lives *l, struct look_choice *c)
{
	for (size_t i = 0; i < b->num_events; i++) {
		const struct trace_event *e = &b->events[i];
		uint32_t life = e->life != TRACE_NO_LIFE ? e->life : e->related_life;
		c->root[i] = life != TRACE_NO_LIFE ? trace_life_root(l, life) : TRACE_NO_LIFE;
		if (c->root[i] != TRACE_NO_LIFE) {
			c->in_family[c->root[i]]++;
		}
	}
}

/* Chooses the newest events, and then the families of these for which there is room. */
static void look_choose(const struct look *look, const struct console_trace_query *q, struct look_choice *c,
			struct look_result *r)
{
	const struct trace_batch *b = &look->s->batch;
	size_t n = 0, room = LOOK_EVENTS_MAX - LOOK_SHOWN_MAX;

	for (size_t i = b->num_events; i-- > 0;) {
		if (!look_is_wanted(look, &b->events[i], q)) {
			continue;
		}
		r->matching++;
		if (n == LOOK_SHOWN_MAX) {
			continue;
		}
		n++;
		c->shown[i] = true;
		uint32_t *family = c->root[i] != TRACE_NO_LIFE ? &c->in_family[c->root[i]] : NULL;
		if (family != NULL && *family != LOOK_TAKEN && *family <= room) {
			room -= *family;
			*family = LOOK_TAKEN;
		}
	}
}

static void look_print_chosen(const struct look *look, const struct look_choice *c, struct look_result *r)
{
	const struct trace_batch *b = &look->s->batch;

	for (size_t i = 0; i < b->num_events; i++) {
		bool family = c->root[i] != TRACE_NO_LIFE && c->in_family[c->root[i]] == LOOK_TAKEN;
		if ((c->shown[i] || family) && r->n < LOOK_EVENTS_MAX) {
			struct look_event *e = &r->events[r->n++];
			look_print_event(look, &b->events[i], e);
			e->shown = c->shown[i];
			e->family = family ? c->root[i] : LOOK_NO_FAMILY;
		}
	}
}

static int look_pick(const struct look *look, const struct console_trace_query *q, struct look_result *r)
{
	const struct trace_batch *b = &look->s->batch;
	struct trace_lives lives;
	int rc = trace_lives_make(look->reader, b, &lives);

	if (rc != 0) {
		return rc;
	}
	struct look_choice c = {
		.shown = calloc(b->num_events + 1, sizeof(c.shown[0])),
		.root = calloc(b->num_events + 1, sizeof(c.root[0])),
		.in_family = calloc(lives.num_lives + 1, sizeof(c.in_family[0])),
	};
	rc = c.shown != NULL && c.root != NULL && c.in_family != NULL ? 0 : -ENOMEM;
	if (rc == 0) {
		look_find_roots(b, &lives, &c);
		look_choose(look, q, &c, r);
		look_print_chosen(look, &c, r);
	}
	free(c.shown);
	free(c.root);
	free(c.in_family);
	trace_lives_clear(&lives);
	return rc;
}

void look_take(const char *path, const struct console_trace_query *q, uint64_t secret, struct look_result *r)
{
	struct trace_error err = {{0}};
	struct look look = {.secret = secret};
	struct trace_snapshot *s;

	r->n = r->matching = 0;
	int rc = trace_reader_open(path, &look.reader, &err);
	if (rc == 0) {
		unsigned rings = trace_reader_num_lcores(look.reader);
		r->entries = LOOK_ENTRIES / (rings != 0 ? rings : 1);
		rc = trace_snapshot_take_newest(look.reader, r->entries, &s, &err);
		if (rc == 0) {
			look.s = s;
			rc = look_pick(&look, q, r);
			trace_snapshot_free(s);
		}
		trace_reader_close(look.reader);
	}
	snprintf(r->error, sizeof(r->error), "%s", rc == 0 ? "" : err.text[0] != '\0' ? err.text : strerror(-rc));
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* --record FILE: follows the rings and writes their events into a trace file of its own, with rings of the size asked
 * for. Events that the capture missed are noted in the file as TRACE_LOST, at their place. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/varve-trace.h"
#include "trace/file_writer.h"

#define RECORD_ENTRIES (UINT64_C(1) << 22) /* of each ring, unless --entries says otherwise */

struct captured_ring {
	struct trace_lcore before; /* the counters at the last check for losses */
	uint64_t lost;             /* entries that have not been written yet */
	uint64_t last_tsc;
	uint32_t gaps;
};

struct capture {
	struct trace_view *v;
	struct trace_file_writer *w;
	struct captured_ring *rings; /* by lcore */
	unsigned num_rings;
	uint64_t *owner_since; /* by id: which one is in the file */
	uint64_t events, lost;
};

static uint64_t capture_slots_lost(const struct trace_lcore *lc)
{
	return lc->overwritten + lc->skipped + lc->unreadable + lc->unstable + lc->torn + lc->out_of_order + lc->cut +
	       lc->unknown + lc->missed;
}

static int capture_lost_write(struct capture *c, unsigned ring, uint64_t tsc)
{
	uint64_t lost = c->rings[ring].lost;

	c->rings[ring].lost = 0;
	c->lost += lost;
	return lost > 0 ? trace_file_lost(c->w, ring, tsc, lost) : 0;
}

/* Writes an owner when an event names it for the first time, and when its id has been given to another one. */
static int capture_owner_write(struct capture *c, const struct trace_event *e)
{
	uint8_t type = 0;
	uint64_t since = trace_reader_owner_since(c->v->r, e->owner_id, &type);
	const char *text = trace_reader_owner(c->v->r, e->owner_id, UINT64_MAX);

	if (text == NULL || c->owner_since[e->owner_id] == since || e->owner_id >= TRACE_NUM_OWNERS) {
		return 0;
	}
	c->owner_since[e->owner_id] = since;
	return trace_file_owner(c->w, e->owner_id, since, type, text);
}

static int capture_event_write(struct capture *c, const struct trace_batch *b, const struct trace_event *e)
{
	const struct trace_tpoint *t = trace_reader_tpoint(c->v->r, e->tpoint_id);
	struct captured_ring *ring = &c->rings[e->lcore];
	struct trace_file_entry head = {.tsc = e->tsc,
					.tpoint_id = e->tpoint_id,
					.owner_id = e->owner_id,
					.size = e->size,
					.object_id = e->object_id};
	int rc = 0;

	if (e->tsc < ring->last_tsc) {
		ring->lost++; /* cannot occur: a ring is in the order of time */
		return 0;
	}
	if (e->gaps != ring->gaps) {
		ring->gaps = e->gaps;
		rc = capture_lost_write(c, e->lcore, e->tsc);
	}
	ring->last_tsc = e->tsc;
	if (rc != 0 || t->lost_mark || !filter_match(&c->v->opt->filter, c->v->r, e)) {
		ring->lost += t->lost_mark ? trace_event_arg(b, e, t, 0).number : 0; /* a capture of a capture */
		return rc;
	}
	rc = capture_owner_write(c, e);
	c->events++;
	return rc != 0 ? rc : trace_file_put(c->w, e->lcore, &head, b->arg_bytes + e->args, t->arg_bytes);
}

int capture_batch(struct capture *c, const struct trace_batch *b, const struct trace_lcore *lcores, size_t num_lcores)
{
	int rc = 0;

	for (size_t i = 0; i < b->num_events && rc == 0; i++) {
		rc = capture_event_write(c, b, &b->events[i]);
	}
	/* Losses are written after the events: they occurred after them. */
	for (size_t i = 0; i < num_lcores; i++) {
		struct captured_ring *ring = &c->rings[lcores[i].lcore];
		ring->lost += capture_slots_lost(&lcores[i]) - capture_slots_lost(&ring->before);
		ring->before = lcores[i];
	}
	if (rc == 0) {
		rc = trace_file_flush(c->w);
	}
	if (rc != 0) {
		trace_cli_error("%s: %s", c->v->opt->record, strerror(-rc));
	}
	return rc;
}

int capture_start(struct trace_view *v, const struct trace_lcore *lcores, size_t num_lcores, struct capture **out)
{
	struct trace_file_tables *t = malloc(sizeof(*t));
	struct capture *c = calloc(1, sizeof(*c));
	int rc = -ENOMEM;

	if (t != NULL && c != NULL) {
		trace_file_tables_copy(v->r, t);
		t->num_entries = v->opt->entries != 0 ? v->opt->entries : RECORD_ENTRIES;
		c->v = v;
		c->num_rings = t->num_rings;
		c->rings = calloc(t->num_rings + 1, sizeof(c->rings[0]));
		c->owner_since = calloc(UINT16_MAX + 1, sizeof(c->owner_since[0]));
		if (c->rings != NULL && c->owner_since != NULL) {
			rc = trace_file_create(v->opt->record, t, &c->w);
		}
	}
	for (size_t i = 0; rc == 0 && i < num_lcores; i++) {
		trace_file_ring_name(c->w, lcores[i].lcore, lcores[i].name);
	}
	free(t);
	if (rc != 0) {
		trace_cli_error("%s: %s", v->opt->record, strerror(-rc));
		if (c != NULL) {
			free(c->rings);
			free(c->owner_since);
		}
		free(c);
		return rc;
	}
	*out = c;
	return 0;
}

int capture_end(struct capture *c)
{
	int rc = 0;

	for (unsigned i = 0; i < c->num_rings && rc == 0; i++) {
		rc = capture_lost_write(c, i, c->rings[i].last_tsc > 0 ? c->rings[i].last_tsc : 1);
	}
	uint64_t bytes = trace_file_bytes(c->w);
	int end = trace_file_close(c->w);
	rc = rc != 0 ? rc : end;
	if (rc != 0) {
		trace_cli_error("%s: %s", c->v->opt->record, strerror(-rc));
	} else {
		fprintf(stderr, "varve-trace: %llu events (%llu bytes) are in %s; %llu entries were lost\n",
			(unsigned long long)c->events, (unsigned long long)bytes, c->v->opt->record,
			(unsigned long long)c->lost);
	}
	free(c->rings);
	free(c->owner_since);
	free(c);
	return rc;
}

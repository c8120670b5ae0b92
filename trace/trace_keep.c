/* SPDX-License-Identifier: BSD-3-Clause */
/* Keeps the events of a few objects (requests that are getting old) and of the objects that were created for them,
 * before the rings overwrite them. Nothing is recorded differently: the rings are read, as (b) in trace_file.h says. */
#include <stdlib.h>
#include <string.h>

#include "trace/trace_def.h"
#include "trace/trace_internal.h"

enum { FAMILY = 24, SLOTS = TRACE_KEEP_SLOTS, FILTER_BITS = 4096 };

struct keep_object {
	struct trace_keep_object object;
	bool is_new; /* its events before `seen` have not been looked for yet */
	unsigned num_ids, num_slots;
	uint64_t ids[FAMILY]; /* its own, and those of the objects that were created for it */
	struct trace_kept_slot slots[SLOTS];
};

static struct {
	struct keep_object *objects; /* [TRACE_KEEP_OBJECTS] */
	size_t count;
	uint64_t *seen;                    /* per ring: entries before this one were looked at. [num_slots] */
	uint64_t filter[FILTER_BITS / 64]; /* of all ids: most events belong to none */
	int16_t relation_offset[TRACE_NUM_TPOINTS];
} keep;

/* ---- Which objects ---- */

static unsigned keep_hash(uint64_t id)
{
	return (unsigned)(id * UINT64_C(0x9e3779b97f4a7c15) >> 52) % FILTER_BITS;
}

static bool keep_filter_has(uint64_t id)
{
	unsigned bit = keep_hash(id);

	return (keep.filter[bit / 64] >> bit % 64 & 1) != 0;
}

static void keep_filter_fill(void)
{
	memset(keep.filter, 0, sizeof(keep.filter));
	for (size_t i = 0; i < keep.count; i++) {
		for (unsigned k = 0; k < keep.objects[i].num_ids; k++) {
			unsigned bit = keep_hash(keep.objects[i].ids[k]);
			keep.filter[bit / 64] |= UINT64_C(1) << bit % 64;
		}
	}
}

static int keep_id_find(const struct keep_object *o, uint64_t id)
{
	for (unsigned i = 0; i < o->num_ids; i++) {
		if (o->ids[i] == id) {
			return (int)i;
		}
	}
	return -1;
}

static void keep_id_add(struct keep_object *o, uint64_t id)
{
	if (o->num_ids < FAMILY) {
		unsigned bit = keep_hash(id);
		o->ids[o->num_ids++] = id;
		keep.filter[bit / 64] |= UINT64_C(1) << bit % 64;
	}
}

static bool keep_is_wanted(const struct keep_object *o, const struct trace_keep_object *objects, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (objects[i].id == o->object.id && objects[i].start_tsc == o->object.start_tsc) {
			return true;
		}
	}
	return false;
}

static void keep_choose(const struct trace_keep_object *objects, size_t n)
{
	size_t left = 0;

	for (size_t i = 0; i < keep.count; i++) {
		if (keep_is_wanted(&keep.objects[i], objects, n)) {
			if (left != i) {
				keep.objects[left] = keep.objects[i];
			}
			left++;
		}
	}
	keep.count = left;
	for (size_t i = 0; i < n && keep.count < TRACE_KEEP_OBJECTS; i++) {
		bool known = false;
		for (size_t k = 0; k < left; k++) {
			known |= keep_is_wanted(&keep.objects[k], &objects[i], 1);
		}
		if (!known) {
			struct keep_object *o = &keep.objects[keep.count++];
			o->object = objects[i];
			o->is_new = true;
			o->num_slots = 0;
			o->ids[0] = objects[i].id;
			o->num_ids = 1;
		}
	}
	keep_filter_fill();
}

/* ---- One event ---- */

/* Where, in an event's arguments, the id of the object is for which this one was created; -1: nowhere. */
static int keep_relation_offset(uint16_t tpoint_id)
{
	for (size_t i = 0; i < trace_num_relations; i++) {
		if (trace_relations[i].tpoint_id == tpoint_id) {
			const struct trace_tpoint_info *t = trace_tpoint_info(tpoint_id);
			int offset = 0;
			for (unsigned a = 0; t != NULL && a < trace_relations[i].relation.arg_index; a++) {
				offset += t->def.args[a].size;
			}
			return offset;
		}
	}
	return -1;
}

struct keep_ring {
	unsigned slot;
	const struct trace_file_history *history;
	uint64_t mask, end; /* entries before end are complete */
};

static const struct trace_file_entry *keep_entry(const struct keep_ring *r, uint64_t index)
{
	return &r->history->entries[index & r->mask];
}

static uint64_t keep_related_id(const struct keep_ring *r, uint64_t index, int offset)
{
	uint8_t bytes[sizeof(uint64_t)];
	uint64_t id;

	for (unsigned i = 0; i < sizeof(bytes); i++) {
		unsigned at = (unsigned)offset + i;
		if (at < TRACE_ENTRY_ARG_BYTES) {
			bytes[i] = keep_entry(r, index)->args[at];
		} else {
			unsigned k = 1 + (at - TRACE_ENTRY_ARG_BYTES) / TRACE_CONTINUATION_ARG_BYTES;
			const struct trace_file_continuation *c = (const void *)keep_entry(r, index + k);
			bytes[i] = c->args[(at - TRACE_ENTRY_ARG_BYTES) % TRACE_CONTINUATION_ARG_BYTES];
		}
	}
	memcpy(&id, bytes, sizeof(id));
	return id;
}

/* Whether the event is of the object's family, which it may extend: or end, when it gives an address to another object.
 */
static bool keep_event_belongs(struct keep_object *o, const struct trace_file_entry *e, bool related,
			       uint64_t related_id)
{
	int at = keep_id_find(o, e->object_id);
	bool child = related && keep_id_find(o, related_id) >= 0;

	if (child && at < 0) {
		keep_id_add(o, e->object_id);
		return true;
	}
	if (related && !child && at > 0 && trace_tpoint_def(e->tpoint_id).new_object) {
		o->ids[at] = o->ids[--o->num_ids];
		return false;
	}
	return at >= 0;
}

static void keep_slots_add(struct keep_object *o, const struct keep_ring *r, uint64_t index)
{
	const struct trace_file_entry *e = keep_entry(r, index);
	unsigned n = 1;

	while (n < TRACE_FILE_MAX_SLOTS && index + n < r->end && keep_entry(r, index + n)->tsc == e->tsc &&
	       keep_entry(r, index + n)->tpoint_id == TRACE_TPOINT_ID_CONTINUATION) {
		n++;
	}
	if (o->num_slots + n > SLOTS) {
		return; /* how it began is what matters; its end is still in the ring */
	}
	for (unsigned k = 0; k < n; k++) {
		o->slots[o->num_slots++] = (struct trace_kept_slot){
			.ring = r->slot, .index = index + k, .event = index, .entry = *keep_entry(r, index + k)};
	}
}

static void keep_event(const struct keep_ring *r, uint64_t index, bool seen)
{
	const struct trace_file_entry *e = keep_entry(r, index);
	int offset = e->tpoint_id < TRACE_NUM_TPOINTS ? keep.relation_offset[e->tpoint_id] : -1;
	uint64_t related_id = offset >= 0 ? keep_related_id(r, index, offset) : 0;

	if (e->tpoint_id >= TRACE_NUM_TPOINTS ||
	    (!keep_filter_has(e->object_id) && (offset < 0 || !keep_filter_has(related_id)))) {
		return;
	}
	for (size_t i = 0; i < keep.count; i++) {
		struct keep_object *o = &keep.objects[i];
		if ((!seen || o->is_new) && e->tsc >= o->object.start_tsc &&
		    keep_event_belongs(o, e, offset >= 0, related_id)) {
			keep_slots_add(o, r, index);
		}
	}
}

/* ---- The rings ---- */

/* Takes back what was added from entries that the writer has begun to overwrite since. */
static void keep_drop_torn(const struct keep_ring *r, uint64_t oldest)
{
	for (size_t i = 0; i < keep.count; i++) {
		struct keep_object *o = &keep.objects[i];
		unsigned left = 0;
		for (unsigned k = 0; k < o->num_slots; k++) {
			bool torn = o->slots[k].ring == r->slot && !o->slots[k].whole && o->slots[k].event < oldest;
			if (!torn) {
				o->slots[left] = o->slots[k];
				o->slots[left].whole |= o->slots[left].ring == r->slot;
				left++;
			}
		}
		o->num_slots = left;
	}
}

/* The oldest entry that the writer is not overwriting, if `next` is the one that it writes next. */
static uint64_t keep_oldest(const struct trace_file_history *h, uint64_t next)
{
	uint64_t used = next + TRACE_FILE_MAX_SLOTS;

	return used > h->num_entries ? used - h->num_entries : 0;
}

static void keep_ring_scan(unsigned slot, bool any_new)
{
	const struct trace_file_history *h = trace_state.slots[slot].history;

	if (h == NULL) {
		return;
	}
	struct keep_ring r = {.slot = slot,
			      .history = h,
			      .mask = h->num_entries - 1,
			      .end = __atomic_load_n(&h->next_entry, __ATOMIC_ACQUIRE)};
	uint64_t from = keep_oldest(h, r.end);
	from = !any_new && keep.seen[slot] > from ? keep.seen[slot] : from;
	for (uint64_t i = from; i < r.end; i++) {
		keep_event(&r, i, i < keep.seen[slot]);
	}
	keep.seen[slot] = r.end;
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	keep_drop_torn(&r, keep_oldest(h, __atomic_load_n(&h->next_entry, __ATOMIC_RELAXED)));
}

static bool keep_alloc(void)
{
	if (keep.objects == NULL) {
		keep.objects = calloc(TRACE_KEEP_OBJECTS, sizeof(*keep.objects));
		keep.seen = calloc(trace_state.num_slots, sizeof(*keep.seen));
		for (unsigned id = 0; id < TRACE_NUM_TPOINTS; id++) {
			keep.relation_offset[id] = (int16_t)keep_relation_offset((uint16_t)id);
		}
	}
	if (keep.objects == NULL || keep.seen == NULL) {
		trace_keep_stop();
	}
	return keep.objects != NULL;
}

void trace_keep(const struct trace_keep_object *objects, size_t n)
{
	bool any_new = false;

	if (!trace_is_on() || (n == 0 && keep.count == 0) || !keep_alloc()) {
		return;
	}
	keep_choose(objects, n);
	for (size_t i = 0; i < keep.count; i++) {
		any_new |= keep.objects[i].is_new;
	}
	for (unsigned slot = 0; keep.count > 0 && slot < trace_state.num_slots; slot++) {
		keep_ring_scan(slot, any_new);
	}
	for (size_t i = 0; i < keep.count; i++) {
		keep.objects[i].is_new = false;
	}
}

void trace_keep_stop(void)
{
	free(keep.objects);
	free(keep.seen);
	keep.objects = NULL;
	keep.seen = NULL;
	keep.count = 0;
}

unsigned trace_kept_take(uint64_t id, uint64_t start_tsc, struct trace_kept_slot *to)
{
	for (size_t i = 0; i < keep.count; i++) {
		const struct keep_object *o = &keep.objects[i];
		if (o->object.id == id && o->object.start_tsc == start_tsc) {
			memcpy(to, o->slots, o->num_slots * sizeof(to[0]));
			return o->num_slots;
		}
	}
	return 0;
}

static uint64_t keep_ring_ticks(const struct trace_file_history *h, uint64_t now)
{
	uint64_t next = __atomic_load_n(&h->next_entry, __ATOMIC_ACQUIRE), n = h->num_entries;
	uint64_t first = __atomic_load_n(&h->entries[next > n ? next & (n - 1) : 0].tsc, __ATOMIC_RELAXED);

	if (next < n / 16 || next == 0 || now <= first) {
		return UINT64_MAX;
	}
	return next >= n ? now - first : (uint64_t)((double)(now - first) * (double)n / (double)next);
}

uint64_t trace_ring_ticks(void)
{
	uint64_t now = ticks_now(), least = UINT64_MAX;

	pthread_mutex_lock(&trace_lock);
	for (unsigned i = 0; trace_state.on && i < trace_state.num_slots; i++) {
		const struct trace_slot *s = &trace_state.slots[i];
		uint64_t ticks = s->history != NULL && s->attached ? keep_ring_ticks(s->history, now) : UINT64_MAX;
		least = ticks < least ? ticks : least;
	}
	pthread_mutex_unlock(&trace_lock);
	return least;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Gives threads their rings; and the parts of recording that are not inline. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "trace/trace_internal.h"

__thread struct trace_ring trace_ring __attribute__((tls_model("initial-exec")));

void trace_record_no_slot(void)
{
	struct trace_file_loss *loss = __atomic_load_n(&trace_state.loss, __ATOMIC_RELAXED);

	if (loss != NULL) {
		__atomic_fetch_add(&loss->no_slot, 1, __ATOMIC_RELAXED);
	}
}

void trace_put_string(const struct trace_open_event *e, unsigned offset, uint8_t size, const char *text)
{
	char padded[UINT8_MAX] = "";
	size_t length = text != NULL ? strnlen(text, size) : 0;

	if (length == size && size != 0) {
		length = size - 1;
		trace_ring.loss->strings_truncated++;
	}
	if (length != 0) {
		memcpy(padded, text, length);
	}
	for (unsigned done = 0; done < size;) {
		unsigned n = trace_arg_room(offset + done);
		n = n < size - done ? n : size - done;
		memcpy(trace_arg_address(e, offset + done), padded + done, n);
		done += n;
	}
}

static void slot_attach(struct trace_slot *s, const char *name)
{
	struct trace_file_history *h = s->history;

	memset(h->tname, 0, sizeof(h->tname));
	snprintf(h->tname, sizeof(h->tname), "%s", name != NULL ? name : "");
	s->loss->attach_tsc = ticks_now();
	s->loss->attaches++;
	s->attached = true;
	trace_ring = (struct trace_ring){
		.history = h, .stamps = s->stamps, .index_mask = h->num_entries - 1, .loss = s->loss};
}

int trace_thread_attach(unsigned lcore, const char *name)
{
	int rc = 0;

	pthread_mutex_lock(&trace_lock);
	if (!trace_state.on) {
		goto out;
	}
	if (lcore >= trace_state.first_user_slot || trace_state.slots[lcore].history == NULL) {
		rc = -ENOENT;
	} else if (trace_ring.history != NULL) {
		rc = -EEXIST;
	} else if (trace_state.slots[lcore].attached) {
		rc = -EBUSY;
	} else {
		slot_attach(&trace_state.slots[lcore], name);
	}
out:
	pthread_mutex_unlock(&trace_lock);
	return rc;
}

/* A slot that was never used; if there is none, the one that has been free for the longest time. */
static struct trace_slot *user_slot_find(void)
{
	struct trace_slot *best = NULL;

	for (unsigned i = trace_state.first_user_slot; i < trace_state.num_slots; i++) {
		struct trace_slot *s = &trace_state.slots[i];
		if (!s->attached && (best == NULL || s->detach_tsc < best->detach_tsc)) {
			best = s;
		}
	}
	return best;
}

int trace_register_user_thread(const char *name)
{
	int rc = 0;

	pthread_mutex_lock(&trace_lock);
	if (!trace_state.on) {
		goto out;
	}
	if (trace_ring.history != NULL) {
		rc = -EEXIST;
		goto out;
	}
	struct trace_slot *s = user_slot_find();
	if (s == NULL) {
		trace_state.loss->threads_refused++;
		rc = -ENOSPC;
	} else {
		slot_attach(s, name);
	}
out:
	pthread_mutex_unlock(&trace_lock);
	return rc;
}

void trace_thread_detach(void)
{
	pthread_mutex_lock(&trace_lock);
	for (unsigned i = 0; i < trace_state.num_slots && trace_ring.history != NULL; i++) {
		struct trace_slot *s = &trace_state.slots[i];
		if (s->history == trace_ring.history) {
			s->attached = false;
			s->detach_tsc = ticks_now();
			break;
		}
	}
	trace_ring = (struct trace_ring){0};
	pthread_mutex_unlock(&trace_lock);
}

unsigned trace_num_slots(void)
{
	pthread_mutex_lock(&trace_lock);
	unsigned n = trace_state.num_slots;
	pthread_mutex_unlock(&trace_lock);
	return n;
}

bool trace_get_slot_stats(unsigned slot, struct trace_slot_stats *stats)
{
	bool found = false;

	memset(stats, 0, sizeof(*stats));
	pthread_mutex_lock(&trace_lock);
	if (slot < trace_state.num_slots && trace_state.slots[slot].history != NULL) {
		const struct trace_slot *s = &trace_state.slots[slot];
		const struct trace_file_history *h = s->history;
		stats->lcore = h->lcore;
		snprintf(stats->name, sizeof(stats->name), "%.*s", (int)sizeof(h->tname) - 1, h->tname);
		stats->attached = s->attached;
		stats->num_entries = h->num_entries;
		stats->recorded = __atomic_load_n(&h->next_entry, __ATOMIC_ACQUIRE);
		stats->wrapped = stats->recorded > h->num_entries ? stats->recorded - h->num_entries : 0;
		stats->strings_truncated = s->loss->strings_truncated;
		found = true;
	}
	pthread_mutex_unlock(&trace_lock);
	return found;
}

void trace_get_loss(struct trace_file_loss *loss)
{
	memset(loss, 0, sizeof(*loss));
	pthread_mutex_lock(&trace_lock);
	if (trace_state.on) {
		*loss = *trace_state.loss;
	}
	pthread_mutex_unlock(&trace_lock);
}

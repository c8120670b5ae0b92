/* SPDX-License-Identifier: BSD-3-Clause */
/* Owners: ids with descriptions. A released id is used again as late as possible, because events of its last owner are
 * still in the rings. */
#include <stdio.h>
#include <string.h>

#include "trace/trace_internal.h"

/* Free ids in the order of their release, a ring; and which are in use. */
static uint16_t free_ids[TRACE_NUM_OWNERS];
static unsigned free_head, free_count;
static bool in_use[TRACE_NUM_OWNERS];

void trace_owners_init(void)
{
	memset(in_use, 0, sizeof(in_use));
	free_head = 0;
	free_count = TRACE_NUM_OWNERS - 1;
	for (unsigned i = 0; i < free_count; i++) {
		free_ids[i] = (uint16_t)(i + 1);
	}
}

/* Sets tsc to 0 first, and to its value last, so that a live reader sees that the description is being rewritten. */
static void owner_record_write(uint16_t id, uint8_t type, const char *description, uint64_t tsc)
{
	struct trace_file_owner *o = &trace_state.owners[id];
	char text[TRACE_OWNER_DESCRIPTION_SIZE] = "";

	snprintf(text, sizeof(text), "%s", description != NULL ? description : "");
	__atomic_store_n((uint64_t *)(void *)o, 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	o->type = type;
	memcpy(o->description, text, sizeof(text));
	__atomic_store_n((uint64_t *)(void *)o, tsc, __ATOMIC_RELEASE);
}

uint16_t trace_owner_register(uint8_t type, const char *description)
{
	uint16_t id = 0;

	pthread_mutex_lock(&trace_lock);
	if (trace_state.on && free_count == 0) {
		trace_state.loss->owner_table_full++;
	} else if (trace_state.on) {
		id = free_ids[free_head];
		free_head = (free_head + 1) % TRACE_NUM_OWNERS;
		free_count--;
		in_use[id] = true;
		owner_record_write(id, type, description, ticks_now());
	}
	pthread_mutex_unlock(&trace_lock);
	return id;
}

void trace_owner_update(uint16_t id, const char *description)
{
	pthread_mutex_lock(&trace_lock);
	if (trace_state.on && id < TRACE_NUM_OWNERS && in_use[id]) {
		const struct trace_file_owner *o = &trace_state.owners[id];
		owner_record_write(id, o->type, description, o->tsc);
	}
	pthread_mutex_unlock(&trace_lock);
}

void trace_owner_release(uint16_t id)
{
	pthread_mutex_lock(&trace_lock);
	if (trace_state.on && id < TRACE_NUM_OWNERS && in_use[id]) {
		in_use[id] = false;
		free_ids[(free_head + free_count) % TRACE_NUM_OWNERS] = id;
		free_count++;
	}
	pthread_mutex_unlock(&trace_lock);
}

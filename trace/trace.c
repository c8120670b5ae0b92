/* SPDX-License-Identifier: BSD-3-Clause */
/* Start and stop: computes the layout of the file, fills in its tables, and closes it. */
#include "trace/trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_lcore.h>

#include "trace/trace_def.h"
#include "trace/trace_internal.h"

struct trace_state trace_state;
pthread_mutex_t trace_lock = PTHREAD_MUTEX_INITIALIZER;

enum { MAX_USER_THREADS = 256 };

/* The offsets of the file's parts. */
struct layout {
	uint64_t section[TRACE_NUM_SECTIONS];
	unsigned num_slots;
	unsigned first_user_slot;
	unsigned num_reactors;
	struct layout_slot {
		uint32_t num_entries; /* 0: an lcore that is not in use */
		uint64_t history;
		uint64_t stamps;
	} slot[RTE_MAX_LCORE + MAX_USER_THREADS];
	uint64_t size;
};

static uint64_t align_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) & ~(to - 1);
}

static void layout_slots(struct layout *l, const struct trace_opts *opts)
{
	unsigned lcore;

	RTE_LCORE_FOREACH (lcore) {
		l->slot[lcore].num_entries = opts->num_entries;
		l->first_user_slot = lcore + 1;
		l->num_reactors++;
	}
	l->num_slots = l->first_user_slot + opts->num_user_threads;
	for (unsigned i = l->first_user_slot; i < l->num_slots; i++) {
		l->slot[i].num_entries = opts->num_user_entries != 0 ? opts->num_user_entries : opts->num_entries;
	}
}

static void layout_sections(struct layout *l)
{
	const struct {
		unsigned section;
		uint64_t size;
	} sizes[] = {
		{TRACE_SECTION_MAIN, sizeof(struct trace_file_main)},
		{TRACE_SECTION_OWNER,
		 sizeof(struct trace_file_owner_section) + TRACE_NUM_OWNERS * sizeof(struct trace_file_owner)},
		{TRACE_SECTION_TPOINT_MASK, sizeof(struct trace_file_table) + TRACE_NUM_GROUPS * sizeof(uint64_t)},
		{TRACE_SECTION_OWNER_TYPE,
		 sizeof(struct trace_file_table) + TRACE_NUM_TYPES * sizeof(struct trace_file_type)},
		{TRACE_SECTION_OBJECT,
		 sizeof(struct trace_file_table) + TRACE_NUM_TYPES * sizeof(struct trace_file_type)},
		{TRACE_SECTION_TPOINT,
		 sizeof(struct trace_file_table) + TRACE_NUM_TPOINTS * sizeof(struct trace_file_tpoint)},
		{TRACE_SECTION_LCORE_OFFSETS, sizeof(struct trace_file_table) + l->num_slots * sizeof(uint64_t)},
		{TRACE_SECTION_STAMPS, sizeof(struct trace_file_table) + l->num_slots * sizeof(uint64_t)},
		{TRACE_SECTION_INFO, sizeof(struct trace_file_info)},
		{TRACE_SECTION_LOSS,
		 sizeof(struct trace_file_loss) + l->num_slots * sizeof(struct trace_file_slot_loss)},
	};

	l->size = align_up(sizeof(struct trace_file_header), 64);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		l->section[sizes[i].section] = l->size;
		l->size = align_up(l->size + sizes[i].size, 64);
	}
}

/* All histories, a gap, all stamps, a gap: see trace_file.h. Two entries fill a cache line, none lies across
 * two. */
static void layout_rings(struct layout *l)
{
	for (unsigned i = 0; i < l->num_slots; i++) {
		struct layout_slot *s = &l->slot[i];
		if (s->num_entries != 0) {
			s->history = align_up(l->size + sizeof(struct trace_file_history), 64) -
				     sizeof(struct trace_file_history);
			l->size = s->history + sizeof(struct trace_file_history) +
				  (uint64_t)s->num_entries * sizeof(struct trace_file_entry);
		}
	}
	l->size += TRACE_FILE_GAP;
	for (unsigned i = 0; i < l->num_slots; i++) {
		struct layout_slot *s = &l->slot[i];
		if (s->num_entries != 0) {
			s->stamps = align_up(l->size, 64);
			l->size = s->stamps + s->num_entries * sizeof(uint64_t);
		}
	}
	l->size = align_up(l->size + TRACE_FILE_GAP, 4096);
}

static void fill_types(void *section, const struct trace_type_info *types)
{
	struct trace_file_table *head = section;
	struct trace_file_type *t = (struct trace_file_type *)(head + 1);

	head->count = TRACE_NUM_TYPES;
	for (unsigned i = 1; i < TRACE_NUM_TYPES; i++) {
		if (types[i].name != NULL) {
			t[i] = (struct trace_file_type){(uint8_t)i, types[i].prefix};
		}
	}
}

static void fill_tpoints(void *section)
{
	struct trace_file_table *head = section;
	struct trace_file_tpoint *t = (struct trace_file_tpoint *)(head + 1);

	head->count = TRACE_NUM_TPOINTS;
	for (unsigned i = 0; i < TRACE_NUM_TPOINTS; i++) {
		t[i] = trace_tpoint_def(i);
	}
}

static void fill_rings(struct trace_state *s, const struct layout *l)
{
	struct trace_file_table *histories = (void *)(s->map.file + l->section[TRACE_SECTION_LCORE_OFFSETS]);
	struct trace_file_table *stamps = (void *)(s->map.file + l->section[TRACE_SECTION_STAMPS]);
	struct trace_file_slot_loss *loss = (struct trace_file_slot_loss *)(s->loss + 1);

	histories->count = stamps->count = (uint16_t)l->num_slots;
	s->loss->num_slots = (uint16_t)l->num_slots;
	s->loss->slot_size = sizeof(*loss);
	s->loss->off_since_tsc = ticks_now();
	for (unsigned i = 0; i < l->num_slots; i++) {
		const struct layout_slot *ls = &l->slot[i];
		if (ls->num_entries == 0) {
			continue;
		}
		struct trace_file_history *h = (void *)(s->map.file + ls->history);
		((uint64_t *)(histories + 1))[i] = ls->history;
		((uint64_t *)(stamps + 1))[i] = ls->stamps;
		h->lcore = (int32_t)i;
		h->num_entries = ls->num_entries;
		h->num_tpoint_ids = TRACE_NUM_TPOINTS;
		s->slots[i] = (struct trace_slot){
			.history = h, .stamps = (void *)(s->map.file + ls->stamps), .loss = &loss[i]};
	}
}

/* The memory is all zeroes. The header comes last: before that it is no trace file. */
static void fill_file(struct trace_state *s, const struct layout *l, const struct trace_opts *opts)
{
	uint8_t *file = s->map.file;
	struct trace_file_header *header = (void *)file;
	struct trace_file_owner_section *owners = (void *)(file + l->section[TRACE_SECTION_OWNER]);
	struct trace_file_table *masks = (void *)(file + l->section[TRACE_SECTION_TPOINT_MASK]);

	s->main = (void *)(file + l->section[TRACE_SECTION_MAIN]);
	s->main->tsc_rate = opts->tsc_hz != 0 ? opts->tsc_hz : rte_get_tsc_hz();
	owners->num_owners = TRACE_NUM_OWNERS;
	owners->description_size = TRACE_OWNER_DESCRIPTION_SIZE;
	s->owners = (struct trace_file_owner *)(owners + 1);
	masks->count = TRACE_NUM_GROUPS;
	s->masks = (uint64_t *)(masks + 1);
	fill_types(file + l->section[TRACE_SECTION_OWNER_TYPE], trace_owner_types);
	fill_types(file + l->section[TRACE_SECTION_OBJECT], trace_object_types);
	fill_tpoints(file + l->section[TRACE_SECTION_TPOINT]);
	s->loss = (void *)(file + l->section[TRACE_SECTION_LOSS]);
	fill_rings(s, l);
	s->info = (void *)(file + l->section[TRACE_SECTION_INFO]);
	trace_info_init(s->info, opts);
	s->info->num_reactors = l->num_reactors;
	s->info->num_user_slots = l->num_slots - l->first_user_slot;
	s->info->flags |= s->map.locked ? TRACE_INFO_LOCKED : 0;
	memcpy(header->section_offset, l->section, sizeof(l->section));
	header->num_sections = TRACE_NUM_SECTIONS;
	__atomic_store_n(&header->file_size, l->size, __ATOMIC_RELEASE);
}

static bool entries_valid(uint32_t n)
{
	return n >= 64 && n <= 1u << 24 && (n & (n - 1)) == 0;
}

static int opts_check(const struct trace_opts *o, char *error)
{
	if (o->name == NULL || o->name[0] == '\0' || strlen(o->name) > 20 || strchr(o->name, '/') != NULL) {
		trace_errorf(error, "the trace file's name '%.30s' is not 1 to 20 characters without '/'",
			     o->name != NULL ? o->name : "");
		return -EINVAL;
	}
	if (!entries_valid(o->num_entries)) {
		trace_errorf(error, "number of trace entries %u: not a power of two from 64 to %u (or 0: no tracing)",
			     o->num_entries, 1u << 24);
		return -EINVAL;
	}
	if (o->num_user_entries != 0 && !entries_valid(o->num_user_entries)) {
		trace_errorf(error, "number of trace entries of user threads %u: not a power of two from 64 to %u",
			     o->num_user_entries, 1u << 24);
		return -EINVAL;
	}
	if (o->num_user_threads > MAX_USER_THREADS) {
		trace_errorf(error, "number of user threads to trace %u: not 0 to %d", o->num_user_threads,
			     MAX_USER_THREADS);
		return -EINVAL;
	}
	return 0;
}

/* In a child process after fork(): it has the parent's mapping, and must neither write to it nor hold the parent's
 * lock. */
static void in_child(void)
{
	trace_masks_reset();
	trace_ring = (struct trace_ring){0};
	if (trace_state.on) {
		close(trace_state.map.fd);
		trace_state.on = false;
		trace_state.info = NULL;
		trace_state.loss = NULL;
		trace_state.num_slots = 0;
	}
	pthread_mutex_init(&trace_lock, NULL);
}

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

static int start_locked(const struct trace_opts *opts, const struct layout *l, char *error)
{
	struct trace_state *s = &trace_state;
	char path[PATH_MAX], zone[32], id[24];
	int rc;

	if (opts->instance_id >= 0) {
		snprintf(id, sizeof(id), "%d", opts->instance_id);
	} else {
		snprintf(id, sizeof(id), "pid%d", getpid());
	}
	snprintf(path, sizeof(path), "%s/%s_trace.%s", opts->dir != NULL ? opts->dir : "/dev/shm", opts->name, id);
	snprintf(zone, sizeof(zone), "%s_trace", opts->name);

	s->slots = calloc(l->num_slots, sizeof(*s->slots));
	if (s->slots == NULL) {
		trace_errorf(error, "no memory for %u trace slots", l->num_slots);
		return -ENOMEM;
	}
	rc = trace_map_create(&s->map, &(struct trace_map_opts){path, zone, l->size, opts->group}, error);
	if (rc != 0) {
		free(s->slots);
		s->slots = NULL;
		return rc;
	}
	s->num_slots = l->num_slots;
	s->first_user_slot = l->first_user_slot;
	trace_owners_init();
	fill_file(s, l, opts);
	log_set_tap(trace_log_line);
	s->on = true;
	return 0;
}

int trace_start(const struct trace_opts *opts, char *error)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct layout *l;
	int rc;

	error[0] = '\0';
	if (opts->num_entries == 0) {
		return 0;
	}
	rc = opts_check(opts, error);
	if (rc != 0) {
		return rc;
	}
	l = calloc(1, sizeof(*l));
	if (l == NULL) {
		trace_errorf(error, "no memory to lay out the trace file");
		return -ENOMEM;
	}
	layout_slots(l, opts);
	layout_sections(l);
	layout_rings(l);
	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&trace_lock);
	if (trace_state.on) {
		trace_errorf(error, "tracing runs already, into %s", trace_state.map.path);
		rc = -EALREADY;
	} else {
		rc = start_locked(opts, l, error);
	}
	pthread_mutex_unlock(&trace_lock);
	free(l);
	return rc;
}

static bool anything_recorded(const struct trace_state *s)
{
	for (unsigned i = 0; i < s->num_slots; i++) {
		if (s->slots[i].history != NULL && s->slots[i].history->next_entry != 0) {
			return true;
		}
	}
	return false;
}

void trace_stop(void)
{
	struct trace_state *s = &trace_state;

	trace_thread_detach();
	trace_keep_stop();
	pthread_mutex_lock(&trace_lock);
	if (s->on) {
		struct trace_file_info *info = s->info;
		trace_masks_reset();
		log_set_tap(NULL);
		s->on = false;
		info->end = trace_clock_read();
		info->state = TRACE_INFO_STOPPED;
		__atomic_store_n(&s->info, NULL, __ATOMIC_RELEASE);
		__atomic_store_n(&s->loss, NULL, __ATOMIC_RELEASE);
		trace_map_destroy(&s->map, anything_recorded(s));
		free(s->slots);
		s->slots = NULL;
		s->num_slots = 0;
	}
	pthread_mutex_unlock(&trace_lock);
}

bool trace_is_on(void)
{
	pthread_mutex_lock(&trace_lock);
	bool on = trace_state.on;
	pthread_mutex_unlock(&trace_lock);
	return on;
}

const char *trace_file_path(void)
{
	return trace_is_on() ? trace_state.map.path : NULL;
}

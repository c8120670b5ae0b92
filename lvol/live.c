/* SPDX-License-Identifier: BSD-3-Clause */
/* The pump, which keeps all that is under way in a store going, and what a store tells. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lvol/live_internal.h"

int live_state(const struct lvol_live *s)
{
	/* Any thread; whoever comes too late for them is stopped at the commit. */
	return atomic_load_explicit(&s->failed, memory_order_relaxed)    ? -EIO
	       : atomic_load_explicit(&s->closing, memory_order_relaxed) ? -ESHUTDOWN
									 : 0;
}

void live_fail(struct lvol_live *s)
{
	bool known = atomic_exchange_explicit(&s->failed, true, memory_order_relaxed);

	/* One that is abandoned while it is being opened is told of by the end of that. */
	if (!known && !s->abandoned) {
		live_happened(s, &(struct lvol_live_event){.kind = LVOL_LIVE_FAILED, .change = "", .volume = ""});
	}
}

/* ---- Jobs ---- */

void live_job_start(struct live_job *j, struct lvol_live *s, void (*step)(struct live_job *j))
{
	j->step = step;
	j->store = s;
	j->waits = false;
	TAILQ_INSERT_TAIL(&s->jobs, j, link);
	live_pump(s);
}

void live_job_end(struct live_job *j)
{
	TAILQ_REMOVE(&j->store->jobs, j, link);
}

void live_job_go_on(struct live_job *j)
{
	j->waits = false;
	live_pump(j->store);
}

static bool jobs_step(struct lvol_live *s)
{
	struct live_job *j;

	TAILQ_FOREACH (j, &s->jobs, link) {
		if (!j->waits) {
			/* In turns. */
			TAILQ_REMOVE(&s->jobs, j, link);
			TAILQ_INSERT_TAIL(&s->jobs, j, link);
			j->step(j);
			return true;
		}
	}
	return false;
}

/* ---- The pump ---- */

bool live_is_idle(const struct lvol_live *s)
{
	return s->batch == NULL && TAILQ_EMPTY(&s->changes) && TAILQ_EMPTY(&s->jobs) && !live_fills_wait(s) &&
	       s->grace == LIVE_GRACE_IDLE && s->freed.num_clusters == 0 && s->freed.num_memory == 0;
}

static bool live_step(struct lvol_live *s)
{
	if (live_grace_step(s) || live_change_step(s) || live_commit_step(s) || jobs_step(s)) {
		return true;
	}
	if (live_state(s) == -EIO && s->batch == NULL && live_fills_drop(s)) {
		return true;
	}
	return live_space_tell(s);
}

void live_pump(struct lvol_live *s)
{
	if (s->pumping) {
		return;
	}
	s->pumping = true;
	while (live_step(s)) {
	}
	s->pumping = false;
	live_last_step(s);
}

/* ---- What it tells ---- */

/* What is on its way back is counted before it is promised, and until it is free: it is to be read first. */
static uint32_t info_missing(const struct lvol_live *s, uint64_t space, uint32_t coming)
{
	uint64_t there = (uint64_t)live_space_free(space) + coming, promised = live_space_promised(space);

	return live_state(s) == -EIO || promised <= there ? 0 : (uint32_t)(promised - there);
}

struct lvol_live_info lvol_live_info(const struct lvol_live *s)
{
	uint32_t coming = live_space_coming(s);
	uint64_t space = atomic_load_explicit(&s->space, memory_order_relaxed);

	return (struct lvol_live_info){
		.name = s->name,
		.uuid = s->uuid,
		.cluster_bytes = s->geometry.cluster_bytes,
		.io_unit_bytes = s->geometry.io_unit_bytes,
		.total_data_clusters = s->geometry.num_clusters - s->geometry.num_md_clusters,
		.max_clusters =
			((uint64_t)s->geometry.cluster_mask.pages * LVOL_PAGE_BYTES - sizeof(struct lvol_mask_head)) *
			8,
		.free_clusters = live_space_free(space),
		.coming_clusters = coming,
		.reserved_clusters = live_space_promised(space),
		.missing_clusters = info_missing(s, space, coming),
		.used_clusters = (uint32_t)live_space_used(s),
		.md_pages = s->geometry.md.pages,
		.free_md_pages = s->free_pages,
		.reserved_md_pages = s->promised_pages,
		.missing_md_pages = live_pages_missing(s),
		.num_volumes = s->num_volumes,
		.growing = s->growing,
		.failed = live_state(s) == -EIO,
		.recovered = s->recovered,
		.commits = s->commits,
		.journal_bytes = s->journal_bytes,
		.md_bytes = s->md_bytes,
		.opening_steps = s->opening_steps,
	};
}

struct lvol_live_volume *lvol_live_next(const struct lvol_live *s, const struct lvol_live_volume *v)
{
	return v == NULL ? s->first : v->internal->next;
}

const char *lvol_live_external(const struct lvol_live_volume *v)
{
	return v->external_clusters == 0 ? NULL : v->external_at->external;
}

struct lvol_live_volume *lvol_live_find(const struct lvol_live *s, const char *name)
{
	struct lvol_live_volume *v = s->first;

	while (v != NULL && strcmp(v->name, name) != 0) {
		v = v->internal->next;
	}
	return v;
}

struct lvol_live_volume *lvol_live_find_uuid(const struct lvol_live *s, const char *uuid)
{
	struct lvol_live_volume *v = s->first;

	while (v != NULL && strcmp(v->uuid, uuid) != 0) {
		v = v->internal->next;
	}
	return v;
}

/* ---- Volumes in memory ---- */

struct lvol_live_map *live_map_alloc(uint64_t num_clusters)
{
	struct lvol_live_map *map = NULL;

	if (num_clusters <= LVOL_LIVE_CLUSTERS_MAX) {
		map = calloc(1, sizeof(*map) + (size_t)num_clusters * sizeof(map->entries[0]));
	}
	if (map != NULL) {
		map->num_clusters = num_clusters;
	}
	return map;
}

struct lvol_live_volume *live_volume_new(struct lvol_live *s, const char *name, const char *uuid, uint64_t num_clusters)
{
	struct lvol_live_volume *v = calloc(1, sizeof(*v) + sizeof(*v->internal));
	struct lvol_live_map *map = live_map_alloc(num_clusters);

	if (v == NULL || map == NULL) {
		free(v);
		free(map);
		return NULL;
	}
	v->store = s;
	v->internal = (struct lvol_live_internal *)(v + 1);
	atomic_init(&v->map, map);
	v->cluster_bytes = s->geometry.cluster_bytes;
	v->num_clusters = num_clusters;
	memcpy(v->name, name, strnlen(name, sizeof(v->name) - 1));
	memcpy(v->uuid, uuid, strnlen(uuid, sizeof(v->uuid) - 1));
	return v;
}

void live_volume_free(struct lvol_live_volume *v)
{
	live_meta_clear(&v->internal->meta);
	free(live_map(v));
	free(v->external);
	free(v);
}

void live_volume_link(struct lvol_live_volume *v)
{
	struct lvol_live *s = v->store;

	v->internal->prev = s->last;
	if (s->last != NULL) {
		s->last->internal->next = v;
	} else {
		s->first = v;
	}
	s->last = v;
	s->num_volumes++;
}

void live_volume_unlink(struct lvol_live_volume *v)
{
	struct lvol_live *s = v->store;
	struct lvol_live_volume *next = v->internal->next, *prev = v->internal->prev;

	*(prev != NULL ? &prev->internal->next : &s->first) = next;
	*(next != NULL ? &next->internal->prev : &s->last) = prev;
	s->num_volumes--;
}

uint32_t live_inherited(const struct lvol_live_volume *parent, uint64_t n)
{
	return parent == NULL || n >= parent->num_clusters ? 0 : lvol_live_cluster(lvol_live_entry(parent, n));
}

uint64_t live_external_clusters(const struct lvol_live_volume *v)
{
	const struct lvol_live_volume *p = v->parent;
	uint64_t n = v->external != NULL ? v->num_clusters : p == NULL ? 0 : p->external_clusters;

	return n < v->num_clusters ? n : v->num_clusters;
}

void live_volume_inherit(struct lvol_live_volume *v)
{
	v->external_at = v->external != NULL ? v : v->parent != NULL ? v->parent->external_at : NULL;
	v->external_clusters = live_external_clusters(v);
}

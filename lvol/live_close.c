/* SPDX-License-Identifier: BSD-3-Clause */
/* The end of a store, and its growth. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lvol/live_internal.h"

struct lvol_live *live_alloc(const struct lvol_live_user *user, const struct lvol_geometry *g,
			     const struct lvol_super *super)
{
	struct lvol_live *s = calloc(1, sizeof(*s));

	if (s == NULL) {
		return NULL;
	}
	s->user = *user;
	s->geometry = *g;
	s->fills_end = &s->fills;
	s->space_waiters_end = &s->space_waiters;
	STAILQ_INIT(&s->releases);
	TAILQ_INIT(&s->changes);
	TAILQ_INIT(&s->jobs);
	s->super = malloc(sizeof(*super));
	s->slot = live_pages_alloc(LVOL_JOURNAL_SLOT_MAX);
	if (s->super == NULL || s->slot == NULL || live_space_init(s) != 0) {
		live_free(s);
		return NULL;
	}
	memcpy(s->super, super, sizeof(*super));
	live_owner_enter(s);
	return s;
}

static void freed_clear(struct live_freed *f)
{
	while (f->num_memory > 0) {
		free(f->memory[--f->num_memory]);
	}
	free(f->memory);
	free(f->clusters);
}

void live_free(struct lvol_live *s)
{
	live_owner_leave(s);
	while (s->first != NULL) {
		struct lvol_live_volume *v = s->first;
		live_volume_unlink(v);
		live_volume_free(v);
	}
	live_meta_clear(&s->names);
	freed_clear(&s->freed);
	freed_clear(&s->in_grace);
	free(s->cluster_words);
	free(s->pages);
	free(s->slot);
	free(s->super);
	free(s);
}

/* ---- Closing ---- */

static void last_done(void *arg, int status)
{
	struct lvol_live *s = arg;
	struct live_last ended = s->ending;

	live_free(s);
	ended.done(ended.arg, status);
}

static void last_start(struct lvol_live *s)
{
	struct live_script *c = live_script_new(&s->user);

	if (s->ending.destroy) {
		live_script_write(c, 0, live_pages_alloc(1), 1);
		live_script_flush(c);
	} else {
		/* While the superblock says that the store is open, nobody believes the masks. */
		live_masks_script(c, s);
		live_journal_script(c, s);
		live_super_script(c, s, false);
	}
	live_script_run(c, last_done, s);
}

void live_last_step(struct lvol_live *s)
{
	struct live_last *l = &s->ending;

	if (l->started || !live_is_idle(s)) {
		return;
	}
	if (l->done != NULL) {
		l->started = true;
		if (live_state(s) == -EIO && !l->destroy) {
			last_done(s, s->abandoned ? -ENODEV : -EIO);
		} else {
			last_start(s);
		}
	} else if (s->abandoned) {
		live_free(s);
	}
}

static void store_end(struct lvol_live *s, bool destroy, lvol_live_done done, void *arg)
{
	s->ending = (struct live_last){.destroy = destroy, .done = done, .arg = arg};
	atomic_store_explicit(&s->closing, true, memory_order_relaxed);
	live_pump(s);
}

void lvol_live_close(struct lvol_live *s, lvol_live_done done, void *arg)
{
	store_end(s, false, done, arg);
}

void lvol_live_destroy(struct lvol_live *s, lvol_live_done done, void *arg)
{
	store_end(s, true, done, arg);
}

void lvol_live_abandon(struct lvol_live *s)
{
	s->abandoned = true;
	live_fail(s);
	live_pump(s);
}

/* ---- Growing ---- */

struct grow_job {
	struct live_job job;
	struct lvol_geometry before;
	bool begun, written;
	int status;
	lvol_live_done done;
	void *arg;
};

/* A store without room for the copy has grown all the same. */
static void grow_copied(void *arg, int status)
{
	struct grow_job *g = arg;

	g->written = true;
	g->status = live_state(g->job.store) == -EIO ? status : 0;
	live_job_go_on(&g->job);
}

static void grow_written(void *arg, int status)
{
	struct grow_job *g = arg;

	if (status == 0) {
		live_super_copy(g->job.store, grow_copied, g);
		return;
	}
	g->written = true;
	g->status = status;
	live_job_go_on(&g->job);
}

/* Nobody knows whether a superblock whose write failed is there. */
static void grow_end(struct grow_job *g)
{
	struct lvol_live *s = g->job.store;
	struct grow_job ended = *g;

	if (g->status != 0) {
		if (g->begun) {
			live_fail(s);
		}
		s->geometry = g->before;
	}
	for (uint32_t i = g->before.num_clusters; i < s->geometry.num_clusters; i++) {
		live_cluster_give(s, i);
	}
	s->growing = false;
	s->told_clusters = 0; /* whatever has become of it: nothing was told while it grew */
	live_job_end(&g->job);
	free(g);
	ended.done(ended.arg, ended.status);
}

static void grow_step(struct live_job *j)
{
	struct grow_job *g = (struct grow_job *)j;
	struct lvol_live *s = j->store;

	if (g->written) {
		grow_end(g);
		return;
	}
	j->waits = true;
	struct live_script *c = live_script_new(&s->user);
	live_super_script(c, s, true);
	g->begun = live_script_is_whole(c);
	live_script_run(c, grow_written, g);
}

/* How many clusters a device of that size has, as far as the mask has room for them. */
static uint64_t grow_clusters(const struct lvol_live *s, uint64_t size_bytes)
{
	uint64_t room =
		((uint64_t)s->geometry.cluster_mask.pages * LVOL_PAGE_BYTES - sizeof(struct lvol_mask_head)) * 8;
	uint64_t n = size_bytes / s->geometry.cluster_bytes;

	room = room < LVOL_LIVE_CLUSTER ? room : LVOL_LIVE_CLUSTER;
	return n < room ? n : room;
}

void lvol_live_grow(struct lvol_live *s, uint64_t size_bytes, lvol_live_done done, void *arg)
{
	uint64_t clusters = grow_clusters(s, size_bytes);
	int rc = live_state(s);

	if (rc == 0 && (clusters <= s->geometry.num_clusters || s->growing)) {
		rc = s->growing ? -EBUSY : -ENOSPC;
	}
	struct grow_job *g = rc != 0 ? NULL : calloc(1, sizeof(*g));
	if (g == NULL) {
		done(arg, rc != 0 ? rc : -ENOMEM);
		return;
	}
	g->before = s->geometry;
	g->done = done;
	g->arg = arg;
	s->user.size_bytes = size_bytes;
	bool all = clusters == size_bytes / s->geometry.cluster_bytes;
	s->geometry.size_bytes = all ? size_bytes : clusters * s->geometry.cluster_bytes;
	s->geometry.num_clusters = (uint32_t)clusters;
	s->growing = true;
	live_job_start(&g->job, s, grow_step);
}

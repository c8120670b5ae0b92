/* SPDX-License-Identifier: BSD-3-Clause */
/* The queue of changes: one takes place at a time. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lvol/live_internal.h"

struct live_change *live_change_new(struct lvol_live *s, const struct live_change_type *type, void *arg)
{
	struct live_change *c = calloc(1, sizeof(*c));

	if (c != NULL) {
		c->store = s;
		c->type = type;
		c->arg = arg;
	}
	return c;
}

void live_change_start(struct live_change *c, int status)
{
	c->status = status != 0 ? status : live_state(c->store);
	c->state = LIVE_CHANGE_QUEUED;
	TAILQ_INSERT_TAIL(&c->store->changes, c, link);
	live_pump(c->store);
}

void live_change_taken(struct live_change *c)
{
	c->store->zeroed_clusters -= c->num_taken;
	c->num_taken = 0;
}

/* What it has taken or been promised, and has not used. The clusters come first: the promises may be about them. */
static void change_give_back(struct live_change *c)
{
	for (uint64_t i = 0; i < c->num_taken; i++) {
		live_cluster_give(c->store, c->clusters[i]);
	}
	live_change_taken(c);
	live_account_release(c);
}

static void change_free(struct live_change *c)
{
	for (size_t i = 0; i < sizeof(c->metas) / sizeof(c->metas[0]); i++) {
		live_meta_clear(&c->metas[i]);
	}
	if (c->made != NULL) {
		live_volume_free(c->made);
	}
	free(c->clusters);
	free(c->map);
	free(c->text);
	free(c->value);
	free(c);
}

static void change_tell(const struct live_change *c, enum lvol_live_event_kind kind, int status)
{
	const char *volume = c->type->of_store ? "" : c->volume != NULL ? c->volume->name : c->name;
	/* It waits for the writes of that one, which may be a clone of the volume that it is about. */
	volume = kind == LVOL_LIVE_CHANGE_WAITS ? c->paused->name : volume;

	if (!(c->type->quiet && kind == LVOL_LIVE_CHANGE_ENDED)) {
		live_happened(c->store,
			      &(struct lvol_live_event){
				      .kind = kind, .status = status, .change = c->type->name, .volume = volume});
	}
}

void live_change_end(struct live_change *c, int status)
{
	struct lvol_live *s = c->store;

	TAILQ_REMOVE(&s->changes, c, link);
	change_tell(c, LVOL_LIVE_CHANGE_ENDED, status);
	if (status == -EIO && live_state(s) == -EIO) {
		/* They may be on the device. */
		live_change_taken(c);
	}
	/* Before anybody is told: what is free and reserved is right then. */
	change_give_back(c);
	if (c->is_paused && c->paused->user != NULL) {
		s->user.resume(s->user.ctx, c->paused);
	}
	if (c->volume_done != NULL) {
		c->volume_done(c->arg, status, status == 0 ? c->result : NULL);
	} else {
		c->done(c->arg, status);
	}
	if (c->deleted != NULL) {
		live_volume_free(c->deleted);
	}
	change_free(c);
}

static void change_paused(void *arg, int status)
{
	struct live_change *c = arg;

	(void)status;
	c->state = LIVE_CHANGE_READY;
	live_pump(c->store);
}

static void change_begin(struct live_change *c)
{
	struct lvol_live *s = c->store;
	int rc = c->status != 0 ? c->status : s->abandoned ? -ENODEV : live_state(s) == -EIO ? -EIO : c->type->check(c);

	if (rc != 0) {
		live_change_end(c, rc == 1 ? 0 : rc);
		return;
	}
	/* One that nobody uses may get a user meanwhile, who asks lvol_live_volume_is_paused(). */
	bool waits = c->paused != NULL && c->paused->user != NULL;
	c->is_paused = c->paused != NULL;
	c->state = waits ? LIVE_CHANGE_PAUSES : LIVE_CHANGE_READY;
	if (waits) {
		change_tell(c, LVOL_LIVE_CHANGE_WAITS, 0);
		s->user.pause(s->user.ctx, c->paused, change_paused, c);
	}
}

bool lvol_live_volume_is_paused(const struct lvol_live_volume *v)
{
	const struct live_change *c = TAILQ_FIRST(&v->store->changes);

	return c != NULL && c->is_paused && c->paused == v;
}

bool live_change_step(struct lvol_live *s)
{
	struct live_change *c = TAILQ_FIRST(&s->changes);

	if (c != NULL && c->state == LIVE_CHANGE_QUEUED) {
		change_begin(c);
		return true;
	}
	if (c != NULL && c->state == LIVE_CHANGE_READY && live_state(s) == -EIO) {
		live_change_end(c, s->abandoned ? -ENODEV : -EIO);
		return true;
	}
	return false;
}

struct live_change *live_change_ready(struct lvol_live *s)
{
	struct live_change *c = TAILQ_FIRST(&s->changes);

	return c != NULL && c->state == LIVE_CHANGE_READY ? c : NULL;
}

/* ---- Clusters for a thick volume ---- */

struct zero_job {
	struct live_job job;
	struct live_change *change;
	struct lvol_live_waiter waiter;
	uint64_t want, at, run;
	int status;
};

static void zero_done(void *arg, int status)
{
	struct zero_job *z = arg;

	z->status = status;
	z->at += z->run;
	live_job_go_on(&z->job);
}

static void zero_end(struct zero_job *z, int status)
{
	struct live_change *c = z->change;

	if (c->volume != NULL) {
		c->volume->internal->jobs--;
	}
	live_job_end(&z->job);
	free(z);
	live_change_start(c, status);
}

static void zero_woken(struct lvol_live_waiter *w)
{
	struct zero_job *z = (struct zero_job *)((char *)w - offsetof(struct zero_job, waiter));

	live_job_go_on(&z->job);
}

/* Takes clusters. Returns whether it has all of them; else it has ended, or waits for those that come free. */
static bool zero_take(struct zero_job *z)
{
	struct live_change *c = z->change;
	uint32_t cluster;

	while (c->num_taken < z->want) {
		uint64_t since = live_account_look(c->store);
		uint32_t coming = live_space_coming(c->store);
		if ((cluster = live_cluster_take(c->store, NULL)) != 0) {
			live_account_settle(c->store);
			c->clusters[c->num_taken++] = cluster;
			c->store->zeroed_clusters++;
		} else if (!live_account_may_come(c->store, NULL, coming) && live_account_was_still(c->store, since)) {
			zero_end(z, -ENOSPC);
			return false;
		} else {
			z->job.waits = true;
			z->waiter.wake = zero_woken;
			live_space_wait(c->store, NULL, &z->waiter);
			return false;
		}
	}
	return true;
}

/* Zeroes a run of clusters that are neighbours: at most 1 GiB at once. */
static void zero_step(struct live_job *j)
{
	struct zero_job *z = (struct zero_job *)j;
	struct lvol_live *s = j->store;
	const struct live_change *c = z->change;
	uint64_t cluster_bytes = s->geometry.cluster_bytes, most = (1u << 30) / cluster_bytes;

	if (z->status != 0 || z->at == z->want || live_state(s) != 0) {
		zero_end(z, z->status != 0 ? z->status : live_state(s));
		return;
	}
	if (!zero_take(z)) {
		return;
	}
	for (z->run = 1; z->at + z->run < c->num_taken && z->run < most &&
			 c->clusters[z->at + z->run] == c->clusters[z->at] + z->run;) {
		z->run++;
	}
	j->waits = true;
	s->user.write_zeroes(s->user.ctx, c->clusters[z->at] * cluster_bytes, z->run * cluster_bytes, zero_done, z);
}

void live_change_zero(struct live_change *c, uint64_t num_clusters)
{
	uint64_t space = atomic_load_explicit(&c->store->space, memory_order_relaxed);
	uint64_t all = (uint64_t)live_space_coming(c->store) + live_space_free(space);
	bool enough = num_clusters == 0 || num_clusters + live_space_promised(space) <= all;
	struct zero_job *z = !enough ? NULL : calloc(1, sizeof(*z));

	c->clusters = z == NULL ? NULL : malloc((size_t)(num_clusters + 1) * sizeof(*c->clusters));
	if (c->clusters == NULL) {
		free(z);
		live_change_start(c, enough ? -ENOMEM : -ENOSPC);
		return;
	}
	if (c->volume != NULL) {
		c->volume->internal->jobs++;
	}
	z->change = c;
	z->want = num_clusters;
	live_job_start(&z->job, c->store, zero_step);
}

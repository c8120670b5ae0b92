/* SPDX-License-Identifier: BSD-3-Clause */
/* Giving a volume clusters of its own while I/O goes on: first writes like any other, cluster by cluster. At the end a
 * change takes its parent away. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lvol/live_internal.h"

enum { PIECE_BYTES = 1 << 20 };

struct inflate_job {
	struct live_job job;
	struct lvol_live_volume *volume;
	bool all; /* inflate: everywhere; else only what the parent has */
	uint64_t n;
	struct lvol_live_fill fill;
	struct lvol_live_waiter waiter;
	uint8_t *bytes;
	uint32_t piece, at;
	int status;
	void (*next)(struct inflate_job *i);
	lvol_live_done done;
	void *arg;
};

/* Its parts tell nothing of their ends. */
static void inflate_tell(const struct inflate_job *i, int status)
{
	live_happened(i->volume->store, &(struct lvol_live_event){.kind = LVOL_LIVE_CHANGE_ENDED,
								  .status = status,
								  .change = i->all ? "inflate" : "decouple",
								  .volume = i->volume->name});
}

/* ---- The change at the end ---- */

/* Whether cluster n has to be copied. Where the parent is shorter than its own parent, zeroes would become visible
 * data. */
static bool needs(const struct lvol_live_volume *v, bool all, uint64_t n)
{
	const struct lvol_live_volume *p = v->parent;

	if ((lvol_live_entry(v, n) & LVOL_LIVE_OWN) != 0) {
		return false;
	}
	if (all || p == NULL) {
		return all || n < v->external_clusters;
	}
	if (n >= p->num_clusters) {
		return p->external != NULL || p->parent != NULL;
	}
	return (lvol_live_entry(p, n) & LVOL_LIVE_OWN) != 0 || p->external != NULL;
}

static uint64_t needs_next(const struct lvol_live_volume *v, bool all, uint64_t n)
{
	while (n < v->num_clusters && !needs(v, all, n)) {
		n++;
	}
	return n;
}

static int detach_check(struct live_change *c)
{
	/* Snapshots may have been merged meanwhile. */
	return needs_next(c->volume, c->all, 0) < c->volume->num_clusters ? -EAGAIN : 0;
}

/* The parent that is left. */
static struct lvol_live_volume *detach_parent(const struct live_change *c)
{
	return c->all || c->volume->parent == NULL ? NULL : c->volume->parent->parent;
}

static int detach_build(struct live_change *c, struct live_batch *b)
{
	const struct lvol_live_volume *v = c->volume;
	const struct live_meta *old = &v->internal->meta;
	struct live_meta *m = &c->metas[0];
	/* Clusters may have been released since it was checked. */
	int rc = detach_check(c);

	rc = rc != 0 ? rc : live_meta_copy(m, old, v->num_clusters);

	if (rc == 0 && c->all) {
		m->flags.invalid &= ~LVOL_INVALID_THIN;
	}
	rc = rc != 0 ? rc : live_xattr_parent_set(m, detach_parent(c));
	rc = rc != 0 ? rc : live_xattr_external_set(m, NULL);
	return rc != 0 ? rc : live_batch_meta(b, v->id, m, old);
}

static void detach_publish(struct live_change *c)
{
	struct lvol_live_volume *v = c->volume, *parent = detach_parent(c);

	if (v->parent != NULL) {
		v->parent->num_clones--;
	}
	if (parent != NULL) {
		parent->num_clones++;
	}
	v->parent = parent;
	free(v->external);
	v->external = NULL;
	v->thin = v->thin && !c->all;
	live_volume_inherit(v);
	live_meta_take(v, &c->metas[0]);
}

static const struct live_change_type detach_type = {detach_check, detach_build, detach_publish, "detach",
						    .quiet = true};

/* ---- Copying ---- */

static void inflate_end(struct inflate_job *i, int status)
{
	struct inflate_job ended = *i;

	i->volume->internal->filling = false;
	inflate_tell(i, status);
	live_job_end(&i->job);
	free(i->bytes);
	free(i);
	ended.done(ended.arg, status);
}

/* Goes on with `next` when what was started is done. */
static void inflate_wait(struct inflate_job *i, void (*next)(struct inflate_job *i))
{
	i->next = next;
	i->job.waits = true;
}

static void inflate_op_done(void *arg, int status)
{
	struct inflate_job *i = arg;

	i->status = status;
	live_job_go_on(&i->job);
}

static void inflate_woken(struct lvol_live_waiter *w)
{
	struct inflate_job *i = (struct inflate_job *)((char *)w - offsetof(struct inflate_job, waiter));

	live_job_go_on(&i->job);
}

static void inflate_next(struct inflate_job *i);

static void inflate_committed(struct inflate_job *i)
{
	if (i->status != 0) {
		inflate_end(i, i->status);
		return;
	}
	i->n++;
	inflate_next(i);
}

static void inflate_commit(struct inflate_job *i)
{
	inflate_wait(i, inflate_committed);
	lvol_live_fill_commit(&i->fill, inflate_op_done, i);
}

static void inflate_read(struct inflate_job *i);

static void inflate_written(struct inflate_job *i)
{
	if (i->status != 0) {
		lvol_live_fill_abort(&i->fill);
		inflate_end(i, i->status);
		return;
	}
	i->at += i->piece;
	if (i->at == i->volume->cluster_bytes) {
		inflate_commit(i);
	} else {
		inflate_read(i);
	}
}

static void inflate_write(struct inflate_job *i)
{
	struct lvol_live *s = i->job.store;

	inflate_wait(i, inflate_written);
	if (i->status != 0) {
		live_job_go_on(&i->job);
		return;
	}
	s->user.write(s->user.ctx, (uint64_t)i->fill.cluster * i->volume->cluster_bytes + i->at, i->bytes, i->piece,
		      inflate_op_done, i);
}

static void inflate_read(struct inflate_job *i)
{
	struct lvol_live *s = i->job.store;
	uint64_t cluster_bytes = i->volume->cluster_bytes;
	uint32_t left = i->volume->cluster_bytes - i->at;

	/* The size of a cluster is not always a multiple of a piece. */
	i->piece = left < PIECE_BYTES ? left : (uint32_t)PIECE_BYTES;
	inflate_wait(i, inflate_write);
	if (i->fill.external) {
		s->user.external_read(s->user.ctx, i->volume, i->n * cluster_bytes + i->at, i->bytes, i->piece,
				      inflate_op_done, i);
	} else {
		s->user.read(s->user.ctx, i->fill.source * cluster_bytes + i->at, i->bytes, i->piece, inflate_op_done,
			     i);
	}
}

static void inflate_copy(struct inflate_job *i)
{
	struct lvol_live *s = i->job.store;
	uint32_t cluster_bytes = i->volume->cluster_bytes;

	i->at = 0;
	if (i->fill.external && s->user.external_read == NULL) {
		lvol_live_fill_abort(&i->fill);
		inflate_end(i, -ENOTSUP);
	} else if (i->fill.external || i->fill.source != 0) {
		inflate_read(i);
	} else {
		i->piece = cluster_bytes;
		inflate_wait(i, inflate_written);
		s->user.write_zeroes(s->user.ctx, (uint64_t)i->fill.cluster * cluster_bytes, cluster_bytes,
				     inflate_op_done, i);
	}
}

static void inflate_detached(struct inflate_job *i)
{
	if (i->status == -EAGAIN) {
		i->n = 0;
		inflate_next(i);
	} else {
		inflate_end(i, i->status);
	}
}

static void inflate_detach(struct inflate_job *i)
{
	struct live_change *c = live_change_new(i->job.store, &detach_type, i);

	if (c == NULL) {
		inflate_end(i, -ENOMEM);
		return;
	}
	c->done = inflate_op_done;
	c->volume = i->volume;
	c->all = i->all;
	inflate_wait(i, inflate_detached);
	live_change_start(c, 0);
}

static void inflate_claim(struct inflate_job *i)
{
	int rc = lvol_live_fill_claim(i->volume, i->n, &i->fill);

	if (rc == 0) {
		inflate_copy(i);
	} else if (rc == -EAGAIN) {
		i->waiter.wake = inflate_woken;
		inflate_wait(i, inflate_next);
		lvol_live_wait(i->volume, i->n, &i->waiter);
	} else if (rc != -EALREADY) {
		inflate_end(i, rc);
	}
}

static void inflate_next(struct inflate_job *i)
{
	i->next = inflate_next;
	i->n = needs_next(i->volume, i->all, i->n);
	if (i->n == i->volume->num_clusters) {
		inflate_detach(i);
	} else {
		inflate_claim(i);
	}
}

static void inflate_step(struct live_job *j)
{
	struct inflate_job *i = (struct inflate_job *)j;

	i->next(i);
}

/* ---- Starting ---- */

/* It has its turn in the queue of changes: a change of the volume that has begun must not find clusters claimed that
 * were not when it looked. Those that come later find the volume being filled. */
static int start_check(struct live_change *c)
{
	const struct lvol_live_volume *v = c->volume;

	if (v->read_only || v->internal->fixed) {
		return -EPERM;
	}
	if (v->internal->filling) {
		return -EBUSY;
	}
	if (!c->all && v->parent == NULL && v->external == NULL) {
		return -EINVAL;
	}
	v->internal->filling = true;
	return 1;
}

static const struct live_change_type start_type = {start_check, NULL, NULL, "inflate", .quiet = true};

static void inflate_started(void *arg, int status)
{
	struct inflate_job *i = arg;
	struct inflate_job ended = *i;

	if (status == 0) {
		live_job_start(&i->job, i->volume->store, inflate_step);
		return;
	}
	inflate_tell(i, status);
	free(i->bytes);
	free(i);
	ended.done(ended.arg, status);
}

static void inflate_start(struct lvol_live_volume *v, bool all, lvol_live_done done, void *arg)
{
	struct inflate_job *i = calloc(1, sizeof(*i));
	uint8_t *bytes = i == NULL ? NULL : live_pages_alloc(PIECE_BYTES / LVOL_PAGE_BYTES);
	struct live_change *c = bytes == NULL ? NULL : live_change_new(v->store, &start_type, i);

	if (c == NULL) {
		free(bytes);
		free(i);
		done(arg, -ENOMEM);
		return;
	}
	i->volume = v;
	i->all = all;
	i->bytes = bytes;
	i->done = done;
	i->arg = arg;
	i->next = inflate_next;
	c->done = inflate_started;
	c->volume = v;
	c->all = all;
	live_change_start(c, 0);
}

void lvol_live_volume_inflate(struct lvol_live_volume *v, lvol_live_done done, void *arg)
{
	inflate_start(v, true, done, arg);
}

void lvol_live_volume_decouple(struct lvol_live_volume *v, lvol_live_done done, void *arg)
{
	inflate_start(v, false, done, arg);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Several controllers of one name: the paths of a namespace, one through each controller; asymmetric namespace access;
 * policies. All of it runs on the control thread, which changes a path and then updates the channels' copies of it, one
 * channel after the other, each on its thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bdev/module_util.h"
#include "bdev_modules/nvme/internal.h"
#include "usdt/usdt.h"
#include "util/log.h"

/* --- The controllers of one name --- */

struct bdev_nvme_subsystem *bdev_nvme_subsystem_find(const char *name)
{
	const struct bdev_nvme *c = bdev_nvme_find(name);

	return c != NULL ? c->subsystem : NULL;
}

int bdev_nvme_subsystem_join(struct bdev_nvme *c)
{
	struct bdev_nvme_subsystem *m = bdev_nvme_subsystem_find(c->name);

	if (m == NULL) {
		m = calloc(1, sizeof(*m));
		if (m == NULL) {
			return -ENOMEM;
		}
		snprintf(m->name, sizeof(m->name), "%s", c->name);
		m->policy = c->opts.policy;
		TAILQ_INIT(&m->ctrlrs);
		TAILQ_INIT(&m->namespaces);
	} else if (c->opts.policy_given) {
		m->policy = c->opts.policy;
	}
	c->subsystem = m;
	TAILQ_INSERT_TAIL(&m->ctrlrs, c, subsystem_link);
	return 0;
}

void bdev_nvme_subsystem_leave(struct bdev_nvme *c)
{
	struct bdev_nvme_subsystem *m = c->subsystem;

	TAILQ_REMOVE(&m->ctrlrs, c, subsystem_link);
	c->subsystem = NULL;
	if (TAILQ_EMPTY(&m->ctrlrs)) {
		bdev_nvme_fence_subsystem_gone(m);
		free(m); /* it has no bdevs: a bdev has a path, and a controller with a path is not detached */
	}
}

struct bdev_nvme *bdev_nvme_sibling(const struct bdev_nvme *c)
{
	return TAILQ_NEXT(c, subsystem_link);
}

struct bdev_nvme *bdev_nvme_previous(const struct bdev_nvme *c)
{
	return TAILQ_PREV(c, bdev_nvme_list, subsystem_link);
}

bool bdev_nvme_subsystem_fits(const struct bdev_nvme *c, char *why, size_t size)
{
	const struct nvme_id_ctrl *mine = nvme_ctrlr_identify(c->ctrlr);
	const struct bdev_nvme *o;

	TAILQ_FOREACH (o, &c->subsystem->ctrlrs, subsystem_link) {
		if (o == c || o->state == BDEV_NVME_DETACHING || o->state == BDEV_NVME_ATTACHING) {
			continue;
		}
		const struct nvme_id_ctrl *other = nvme_ctrlr_identify(o->ctrlr);
		if (memcmp(mine->sn, other->sn, sizeof(mine->sn)) != 0) {
			snprintf(why, size, "multipath: the serial number is '%.20s', and that of '%s' is '%.20s'",
				 mine->sn, o->name, other->sn);
			return false;
		}
		if ((mine->cmic & other->cmic & NVME_CTRL_CMIC_MULTI_CTRL) == 0) {
			snprintf(why, size,
				 "multipath: the subsystem does not allow several controllers (Identify, CMIC)");
			return false;
		}
		/* the id of one that is disabled is free again, and may have been given to this one */
		if (nvme_ctrlr_cntlid(c->ctrlr) == nvme_ctrlr_cntlid(o->ctrlr) && !o->disabled) {
			snprintf(why, size, "multipath: the controller id %u is that of the controller at %s too",
				 nvme_ctrlr_cntlid(c->ctrlr), o->opts.trid.traddr);
			return false;
		}
	}
	return true;
}

/* --- The channels of a bdev --- */

struct visit {
	struct bdev_nvme_ns *d;
	void (*fn)(struct bdev_nvme_channel *ch, void *arg);
	void *arg;
};

/* The channel may have been closed before this call, but not during it: channels are closed on this thread. */
static void channel_visit_here(void *arg)
{
	const struct visit *v = arg;
	struct bdev_nvme_channel *ch;

	pthread_mutex_lock(&v->d->mutex);
	TAILQ_FOREACH (ch, &v->d->channels, link) {
		if (ch->thread == thread_current()) {
			break;
		}
	}
	pthread_mutex_unlock(&v->d->mutex);
	if (ch != NULL) {
		v->fn(ch, v->arg);
	}
}

/* The thread with the next higher id that has a channel. The list may change between two calls, so there is no position
 * in it to remember. */
static struct thread *channels_next_thread(struct bdev_nvme_ns *d, const struct thread *after)
{
	struct thread *found = NULL;
	const struct bdev_nvme_channel *ch;

	pthread_mutex_lock(&d->mutex);
	TAILQ_FOREACH (ch, &d->channels, link) {
		if ((after == NULL || thread_id(ch->thread) > thread_id(after)) &&
		    (found == NULL || thread_id(ch->thread) < thread_id(found))) {
			found = ch->thread;
		}
	}
	pthread_mutex_unlock(&d->mutex);
	return found;
}

void bdev_nvme_ns_visit_channels(struct bdev_nvme_ns *d, void (*fn)(struct bdev_nvme_channel *ch, void *arg), void *arg)
{
	struct visit v = {.d = d, .fn = fn, .arg = arg};

	/* The threads exist: only the control thread ends threads. */
	for (struct thread *t = channels_next_thread(d, NULL), *next; t != NULL; t = next) {
		next = channels_next_thread(d, t);
		thread_call(t, channel_visit_here, &v);
	}
}

/* --- Paths --- */

struct bdev_nvme_path *bdev_nvme_path_find(const struct bdev_nvme_ns *d, const struct bdev_nvme *c)
{
	struct bdev_nvme_path *path;

	TAILQ_FOREACH (path, &d->paths, link) {
		if (path->c == c) {
			return path;
		}
	}
	return NULL;
}

unsigned bdev_nvme_path_count(const struct bdev_nvme_ns *d)
{
	const struct bdev_nvme_path *path;
	unsigned n = 0;

	TAILQ_FOREACH (path, &d->paths, link) {
		n += !path->leaving;
	}
	return n;
}

static struct bdev_nvme_channel_path *path_in_channel(struct bdev_nvme_channel *ch, const struct bdev_nvme_path *path)
{
	for (unsigned i = 0; i < ch->num_paths; i++) {
		if (ch->paths[i].path == path) {
			return &ch->paths[i];
		}
	}
	return NULL;
}

/* Copies the control thread's state of a path. It is newer than what commands have reported about access. */
static void path_update_channel(struct bdev_nvme_channel *ch, void *arg)
{
	const struct bdev_nvme_path *path = arg;
	struct bdev_nvme_channel_path *cp = path_in_channel(ch, path);

	if (cp != NULL) {
		cp->ana = path->ana;
		cp->access_lost = path->access_lost;
		cp->leaving = path->leaving;
		if (path->preferred && !cp->preferred) {
			ch->qpair = NULL; /* choose again, also with disable_auto_failback */
		}
		cp->preferred = path->preferred;
		cp->stale = false;
		bdev_nvme_channel_paths_changed(ch);
	}
}

static void path_add_to_channel(struct bdev_nvme_channel *ch, void *arg)
{
	struct bdev_nvme_path *path = arg;

	if (path_in_channel(ch, path) == NULL && bdev_nvme_channel_path_open(ch, path) != 0) {
		log_error("%s: thread '%s' cannot use the path through %s: out of memory", path->d->name,
			  thread_name(ch->thread), path->c->opts.trid.traddr);
	}
	bdev_nvme_channel_paths_changed(ch);
}

/* I/O that waits takes another path, or ends; then the channel may be closed. */
static void path_redistribute_channel(struct bdev_nvme_channel *ch, void *arg)
{
	struct bdev_nvme_channel_path *cp = path_in_channel(ch, arg);

	if (cp != NULL) {
		bdev_nvme_qpair_redistribute(cp->qpair, ch);
	}
}

static void path_remove_from_channel(struct bdev_nvme_channel *ch, void *arg)
{
	struct bdev_nvme_channel_path *cp = path_in_channel(ch, arg);

	if (cp != NULL) {
		bdev_nvme_channel_path_close(cp); /* what it has counted goes with the path */
	}
}

static void path_anatt_timer_fired(void *arg)
{
	struct bdev_nvme_path *path = arg;

	log_warning("%s: no access through %s for %u s, the longest that a transition may take: I/O does not wait for "
		    "it any more",
		    path->d->name, path->c->opts.trid.traddr, path->c->anatt_s);
	path->access_lost = true;
	bdev_nvme_ns_visit_channels(path->d, path_update_channel, path);
}

static void path_set_ana(struct bdev_nvme_path *path, enum nvme_ana_state ana)
{
	bool access = ana == NVME_ANA_STATE_OPTIMIZED || ana == NVME_ANA_STATE_NONOPTIMIZED;

	path->ana = ana;
	path->ana_outdated = false;
	USDT(bdev_nvme_ana_state, path->c->name, path->d->ns.nsid, nvme_ctrlr_cntlid(path->c->ctrlr), ana);
	if (access) {
		thread_timer_stop(&path->anatt_timer);
		path->access_lost = false;
	} else if (ana == NVME_ANA_STATE_PERSISTENT_LOSS) {
		thread_timer_stop(&path->anatt_timer);
		path->access_lost = true;
	} else {
		path->access_lost = false;
		thread_timer_start(&path->anatt_timer, path->c->anatt_s * UINT64_C(1000000));
	}
}

struct bdev_nvme_path *bdev_nvme_path_add(struct bdev_nvme_ns *d, struct bdev_nvme *c, const struct nvme_ns *ns)
{
	struct bdev_nvme_path *path = NULL, *other;
	unsigned n = 0;

	TAILQ_FOREACH (other, &d->paths, link) {
		n++;
	}
	if (n < BDEV_NVME_PATHS_MAX) {
		path = calloc(1, sizeof(*path));
	}
	if (path != NULL && d->path_stat && (path->stat = bdev_nvme_stat_alloc()) == NULL) {
		free(path);
		path = NULL;
	}
	if (path == NULL) {
		return NULL;
	}
	path->c = c;
	path->d = d;
	path->anatt_timer = (struct thread_timer){.fn = path_anatt_timer_fired, .arg = path};
	path_set_ana(path, nvme_ctrlr_ana_state(c->ctrlr, ns->anagrpid));
	TAILQ_INSERT_TAIL(&c->paths, path, c_link);
	pthread_mutex_lock(&d->mutex);
	TAILQ_INSERT_TAIL(&d->paths, path, link);
	pthread_mutex_unlock(&d->mutex);
	bdev_nvme_ns_visit_channels(d, path_add_to_channel, path);
	return path;
}

void bdev_nvme_path_set_leaving(struct bdev_nvme_path *path, bool leaving)
{
	if (path->leaving != leaving) {
		pthread_mutex_lock(&path->d->mutex);
		path->leaving = leaving;
		pthread_mutex_unlock(&path->d->mutex);
		bdev_nvme_ns_visit_channels(path->d, leaving ? path_update_channel : path_add_to_channel, path);
		bdev_nvme_ns_visit_channels(path->d, path_update_channel, path);
	}
}

void bdev_nvme_path_free(struct bdev_nvme_path *path)
{
	thread_timer_stop(&path->anatt_timer);
	TAILQ_REMOVE(&path->c->paths, path, c_link);
	pthread_mutex_lock(&path->d->mutex);
	TAILQ_REMOVE(&path->d->paths, path, link);
	pthread_mutex_unlock(&path->d->mutex);
	free(path->stat);
	free(path);
}

void bdev_nvme_path_remove(struct bdev_nvme_path *path)
{
	bdev_nvme_ns_visit_channels(path->d, path_redistribute_channel, path);
	bdev_nvme_ns_visit_channels(path->d, path_remove_from_channel,
				    path); /* new channels do not open a path that is leaving */
	bdev_nvme_path_free(path);
}

/* --- Asymmetric access --- */

void bdev_nvme_paths_update_ana(struct bdev_nvme *c)
{
	struct bdev_nvme_path *path;

	bdev_nvme_hold(c); /* I/O may fail, and its submitter may detach the controller */
	TAILQ_FOREACH (path, &c->paths, c_link) {
		const struct nvme_ns *ns = nvme_ctrlr_next_ns(c->ctrlr, path->d->ns.nsid - 1);

		if (ns != NULL && ns->nsid == path->d->ns.nsid) {
			enum nvme_ana_state ana = nvme_ctrlr_ana_state(c->ctrlr, ns->anagrpid);
			if (ana != path->ana) {
				log_notice("%s: access through %s:%s is %s", path->d->name, c->opts.trid.traddr,
					   c->opts.trid.trsvcid, bdev_nvme_ana_name(ana));
			}
			if (ana != path->ana || path->ana_outdated) {
				pthread_mutex_lock(&path->d->mutex);
				path_set_ana(path, ana);
				pthread_mutex_unlock(&path->d->mutex);
			}
			bdev_nvme_ns_visit_channels(path->d, path_update_channel, path);
		}
	}
	bdev_nvme_release(c);
}

/* How long I/O waits for a disconnected controller is decided by its timeouts, not by the access it had. */
void bdev_nvme_paths_disconnected(struct bdev_nvme *c)
{
	struct bdev_nvme_path *path;

	TAILQ_FOREACH (path, &c->paths, c_link) {
		thread_timer_stop(&path->anatt_timer);
		path->ana_outdated = true;
		if (path->access_lost) {
			pthread_mutex_lock(&path->d->mutex);
			path->access_lost = false;
			pthread_mutex_unlock(&path->d->mutex);
			bdev_nvme_ns_visit_channels(path->d, path_update_channel, path);
		}
	}
}

const char *bdev_nvme_ana_name(enum nvme_ana_state state)
{
	switch (state) {
	case NVME_ANA_STATE_OPTIMIZED:
		return "optimized";
	case NVME_ANA_STATE_NONOPTIMIZED:
		return "non_optimized";
	case NVME_ANA_STATE_INACCESSIBLE:
		return "inaccessible";
	case NVME_ANA_STATE_PERSISTENT_LOSS:
		return "persistent_loss";
	case NVME_ANA_STATE_CHANGE:
		return "change";
	}
	return "unknown";
}

/* --- Policies --- */

static void channel_set_policy(struct bdev_nvme_channel *ch, void *arg)
{
	ch->policy = *(const struct bdev_nvme_policy *)arg;
	ch->turns = 0;
	bdev_nvme_channel_paths_changed(ch);
}

int bdev_nvme_set_policy(struct bdev *b, const struct bdev_nvme_policy *policy, char error[BDEV_ERROR_MAX])
{
	struct bdev_nvme_ns *d = (struct bdev_nvme_ns *)b;

	if (!bdev_nvme_is(b)) {
		return bdev_error(error, -ENODEV, "name '%s': is no bdev of an NVMe controller", bdev_name(b));
	}
	if (policy->rr_min_io == 0) {
		return bdev_error(error, -EINVAL, "rr_min_io 0: must be at least 1");
	}
	pthread_mutex_lock(&d->mutex);
	d->policy = *policy;
	pthread_mutex_unlock(&d->mutex);
	bdev_nvme_ns_visit_channels(d, channel_set_policy, &d->policy);
	return 0;
}

const struct bdev_nvme_policy *bdev_nvme_get_policy(const struct bdev *b)
{
	return &((const struct bdev_nvme_ns *)b)->policy;
}

const struct bdev_nvme_policy *bdev_nvme_policy_to_come(const struct bdev_nvme *c)
{
	return &c->subsystem->policy;
}

bool bdev_nvme_policy_equal(const struct bdev_nvme_policy *a, const struct bdev_nvme_policy *b)
{
	return a->active_active == b->active_active && a->queue_depth == b->queue_depth && a->rr_min_io == b->rr_min_io;
}

int bdev_nvme_set_preferred(struct bdev *b, uint16_t cntlid, char error[BDEV_ERROR_MAX])
{
	struct bdev_nvme_ns *d = (struct bdev_nvme_ns *)b;
	struct bdev_nvme_path *path, *wanted = NULL;

	if (!bdev_nvme_is(b)) {
		return bdev_error(error, -ENODEV, "name '%s': is no bdev of an NVMe controller", bdev_name(b));
	}
	TAILQ_FOREACH (path, &d->paths, link) {
		if (!path->leaving && nvme_ctrlr_cntlid(path->c->ctrlr) == cntlid) {
			wanted = path;
		}
	}
	if (wanted == NULL) {
		return bdev_error(error, -ENODEV, "cntlid %u: '%s' is not reached by a controller of that id", cntlid,
				  bdev_name(b));
	}
	TAILQ_FOREACH (path, &d->paths, link) {
		if (path->preferred != (path == wanted)) {
			pthread_mutex_lock(&d->mutex);
			path->preferred = path == wanted;
			pthread_mutex_unlock(&d->mutex);
			bdev_nvme_ns_visit_channels(d, path_update_channel, path);
		}
	}
	return 0;
}

/* --- The list of paths --- */

struct io_path_call {
	struct bdev_nvme_ns *d;
	void (*fn)(void *arg, const struct bdev_nvme_io_path *path);
	void *arg;
	/* the paths of one channel, filled in on its thread */
	struct bdev_nvme_io_path found[BDEV_NVME_PATHS_MAX];
	struct thread *thread;
	unsigned n;
};

static void io_paths_collect(struct bdev_nvme_channel *ch, void *arg)
{
	struct io_path_call *call = arg;

	for (unsigned i = 0; i < ch->num_paths; i++) {
		const struct bdev_nvme_channel_path *cp = &ch->paths[i];
		if (cp->path != NULL && call->n < BDEV_NVME_PATHS_MAX) {
			call->found[call->n++] = (struct bdev_nvme_io_path){
				.bdev = &call->d->bdev,
				.ctrlr = cp->path->c,
				.thread_name = thread_name(ch->thread),
				.thread_id = thread_id(ch->thread),
				.current = ch->spread ? bdev_nvme_channel_path_is_usable(cp) : ch->qpair == cp->qpair,
				.connected = cp->qpair->driver_qpair != NULL,
				.accessible = bdev_nvme_channel_path_is_usable(cp),
				.preferred = cp->preferred,
				.ana = cp->ana};
		}
	}
	for (unsigned i = 0; i < call->n; i++) { /* the control thread waits meanwhile, so fn may use what is its own */
		call->fn(call->arg, &call->found[i]);
	}
	call->n = 0;
}

void bdev_nvme_for_each_io_path(struct bdev *b, void (*fn)(void *arg, const struct bdev_nvme_io_path *path), void *arg)
{
	struct io_path_call call = {.d = (struct bdev_nvme_ns *)b, .fn = fn, .arg = arg};

	bdev_nvme_ns_visit_channels(call.d, io_paths_collect, &call);
}

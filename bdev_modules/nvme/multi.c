/* SPDX-License-Identifier: BSD-3-Clause */
/* Several controllers of one name: the legs of a namespace, one by each; what asymmetric access says of them; policies.
 * All on the control thread, which changes a leg and then tells the channels, one after the other, each on its thread.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bdev/module_util.h"
#include "bdev_modules/nvme/internal.h"
#include "usdt/usdt.h"
#include "util/log.h"

/* --- Those of one name --- */

struct nvme_multi *nvme_multi_find(const char *name)
{
	const struct bdev_nvme *c = bdev_nvme_find(name);

	return c != NULL ? c->multi : NULL;
}

int nvme_multi_join(struct bdev_nvme *c)
{
	struct nvme_multi *m = nvme_multi_find(c->name);

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
	c->multi = m;
	TAILQ_INSERT_TAIL(&m->ctrlrs, c, multi_link);
	return 0;
}

void nvme_multi_part(struct bdev_nvme *c)
{
	struct nvme_multi *m = c->multi;

	TAILQ_REMOVE(&m->ctrlrs, c, multi_link);
	c->multi = NULL;
	if (TAILQ_EMPTY(&m->ctrlrs)) {
		free(m); /* a bdev of it would have a leg, and hold a controller back */
	}
}

struct bdev_nvme *bdev_nvme_sibling(const struct bdev_nvme *c)
{
	return TAILQ_NEXT(c, multi_link);
}

struct bdev_nvme *bdev_nvme_previous(const struct bdev_nvme *c)
{
	return TAILQ_PREV(c, bdev_nvme_list, multi_link);
}

bool nvme_multi_fits(const struct bdev_nvme *c, char *why, size_t size)
{
	const struct nvme_id_ctrl *mine = nvme_ctrlr_identify(c->ctrlr);
	const struct bdev_nvme *o;

	TAILQ_FOREACH (o, &c->multi->ctrlrs, multi_link) {
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
		if (nvme_ctrlr_cntlid(c->ctrlr) == nvme_ctrlr_cntlid(o->ctrlr)) {
			snprintf(why, size, "multipath: the controller id %u is that of the controller at %s too",
				 nvme_ctrlr_cntlid(c->ctrlr), o->opts.trid.traddr);
			return false;
		}
	}
	return true;
}

/* --- The channels of a bdev --- */

struct visit {
	struct nvme_ns_bdev *d;
	void (*fn)(struct nvme_ns_channel *ch, void *arg);
	void *arg;
};

/* The channel may be gone by now, but cannot go meanwhile. */
static void visit_here(void *arg)
{
	const struct visit *v = arg;
	struct nvme_ns_channel *ch;

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

/* The channel of the thread with the next higher id: nothing has to be remembered of a list that changes meanwhile. */
static struct thread *next_thread(struct nvme_ns_bdev *d, const struct thread *after)
{
	struct thread *found = NULL;
	const struct nvme_ns_channel *ch;

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

/* Threads are ended by the control thread, which is here: none of those found is gone. After the last one d may be. */
void nvme_multi_visit(struct nvme_ns_bdev *d, void (*fn)(struct nvme_ns_channel *ch, void *arg), void *arg)
{
	struct visit v = {.d = d, .fn = fn, .arg = arg};

	for (struct thread *t = next_thread(d, NULL), *next; t != NULL; t = next) {
		next = next_thread(d, t);
		thread_call(t, visit_here, &v);
	}
}

/* --- Legs --- */

struct nvme_leg *nvme_leg_find(const struct nvme_ns_bdev *d, const struct bdev_nvme *c)
{
	struct nvme_leg *l;

	TAILQ_FOREACH (l, &d->legs, link) {
		if (l->c == c) {
			return l;
		}
	}
	return NULL;
}

unsigned nvme_leg_count(const struct nvme_ns_bdev *d)
{
	const struct nvme_leg *l;
	unsigned n = 0;

	TAILQ_FOREACH (l, &d->legs, link) {
		n += !l->leaving;
	}
	return n;
}

static struct nvme_leg_channel *in_channel(struct nvme_ns_channel *ch, const struct nvme_leg *l)
{
	for (unsigned i = 0; i < ch->num_legs; i++) {
		if (ch->legs[i].leg == l) {
			return &ch->legs[i];
		}
	}
	return NULL;
}

/* A leg is as the control thread has it. What was said of it by commands is older. */
static void tell_channel(struct nvme_ns_channel *ch, void *leg)
{
	const struct nvme_leg *l = leg;
	struct nvme_leg_channel *lc = in_channel(ch, l);

	if (lc != NULL) {
		lc->ana = l->ana;
		lc->hopeless = l->hopeless;
		lc->leaving = l->leaving;
		if (l->preferred && !lc->preferred) {
			ch->path = NULL; /* chosen anew, also where it would stay by itself */
		}
		lc->preferred = l->preferred;
		lc->stale = false;
		nvme_leg_changed(ch);
	}
}

static void add_to_channel(struct nvme_ns_channel *ch, void *leg)
{
	struct nvme_leg *l = leg;

	if (in_channel(ch, l) == NULL && nvme_leg_channel_open(ch, l) != 0) {
		log_error("%s: thread '%s' goes without its path by %s: out of memory", l->d->name,
			  thread_name(ch->thread), l->c->opts.trid.traddr);
	}
	nvme_leg_changed(ch);
}

/* What waits for its time goes elsewhere, or ends: then the channel may be gone. */
static void clear_in_channel(struct nvme_ns_channel *ch, void *leg)
{
	struct nvme_leg_channel *lc = in_channel(ch, leg);

	if (lc != NULL) {
		nvme_queue_redistribute(lc->path, ch);
	}
}

static void take_from_channel(struct nvme_ns_channel *ch, void *leg)
{
	struct nvme_leg_channel *lc = in_channel(ch, leg);

	if (lc != NULL) {
		nvme_leg_channel_close(lc);
	}
}

static void anatt_timer_fired(void *arg)
{
	struct nvme_leg *l = arg;

	log_warning("%s: no access by %s for %u s, the time of a transition: I/O does not wait for it any more",
		    l->d->name, l->c->opts.trid.traddr, l->c->anatt_s);
	l->hopeless = true;
	nvme_multi_visit(l->d, tell_channel, l);
}

static void set_ana(struct nvme_leg *l, enum nvme_ana_state ana)
{
	bool access = ana == NVME_ANA_STATE_OPTIMIZED || ana == NVME_ANA_STATE_NONOPTIMIZED;

	l->ana = ana;
	l->away = false;
	USDT(bdev_nvme_ana_state, l->c->name, l->d->ns.nsid, nvme_ctrlr_cntlid(l->c->ctrlr), ana);
	if (access) {
		thread_timer_stop(&l->anatt_timer);
		l->hopeless = false;
	} else if (ana == NVME_ANA_STATE_PERSISTENT_LOSS) {
		thread_timer_stop(&l->anatt_timer);
		l->hopeless = true;
	} else {
		l->hopeless = false;
		thread_timer_start(&l->anatt_timer, l->c->anatt_s * UINT64_C(1000000));
	}
}

struct nvme_leg *nvme_leg_add(struct nvme_ns_bdev *d, struct bdev_nvme *c, const struct nvme_ns *ns)
{
	struct nvme_leg *l = NULL, *other;
	unsigned n = 0;

	TAILQ_FOREACH (other, &d->legs, link) {
		n++;
	}
	if (n < NVME_LEGS_MAX) {
		l = calloc(1, sizeof(*l));
	}
	if (l == NULL) {
		return NULL;
	}
	l->c = c;
	l->d = d;
	l->anatt_timer = (struct thread_timer){.fn = anatt_timer_fired, .arg = l};
	set_ana(l, nvme_ctrlr_ana_state(c->ctrlr, ns->anagrpid));
	TAILQ_INSERT_TAIL(&c->legs, l, c_link);
	pthread_mutex_lock(&d->mutex);
	TAILQ_INSERT_TAIL(&d->legs, l, link);
	pthread_mutex_unlock(&d->mutex);
	nvme_multi_visit(d, add_to_channel, l);
	return l;
}

void nvme_leg_set_leaving(struct nvme_leg *l, bool leaving)
{
	if (l->leaving != leaving) {
		pthread_mutex_lock(&l->d->mutex);
		l->leaving = leaving;
		pthread_mutex_unlock(&l->d->mutex);
		nvme_multi_visit(l->d, leaving ? tell_channel : add_to_channel, l);
		nvme_multi_visit(l->d, tell_channel, l);
	}
}

void nvme_leg_free(struct nvme_leg *l)
{
	thread_timer_stop(&l->anatt_timer);
	TAILQ_REMOVE(&l->c->legs, l, c_link);
	pthread_mutex_lock(&l->d->mutex);
	TAILQ_REMOVE(&l->d->legs, l, link);
	pthread_mutex_unlock(&l->d->mutex);
	free(l);
}

void nvme_leg_remove(struct nvme_leg *l)
{
	nvme_multi_visit(l->d, clear_in_channel, l);
	nvme_multi_visit(l->d, take_from_channel, l); /* new channels leave out one that is leaving */
	nvme_leg_free(l);
}

/* --- Asymmetric access --- */

void nvme_multi_ana(struct bdev_nvme *c)
{
	struct nvme_leg *l;

	c->uses++; /* what fails for good may lead anywhere */
	TAILQ_FOREACH (l, &c->legs, c_link) {
		const struct nvme_ns *ns = nvme_ctrlr_next_ns(c->ctrlr, l->d->ns.nsid - 1);

		if (ns != NULL && ns->nsid == l->d->ns.nsid) {
			enum nvme_ana_state ana = nvme_ctrlr_ana_state(c->ctrlr, ns->anagrpid);
			if (ana != l->ana) {
				log_notice("%s: access by %s:%s is %s", l->d->name, c->opts.trid.traddr,
					   c->opts.trid.trsvcid, bdev_nvme_ana_name(ana));
			}
			if (ana != l->ana || l->away) {
				pthread_mutex_lock(&l->d->mutex);
				set_ana(l, ana);
				pthread_mutex_unlock(&l->d->mutex);
			}
			nvme_multi_visit(l->d, tell_channel, l);
		}
	}
	c->uses--;
	bdev_nvme_detach_step(c);
}

/* How long I/O waits for a controller that is away is said by its timeouts. */
void nvme_multi_away(struct bdev_nvme *c)
{
	struct nvme_leg *l;

	TAILQ_FOREACH (l, &c->legs, c_link) {
		thread_timer_stop(&l->anatt_timer);
		l->away = true;
		if (l->hopeless) {
			pthread_mutex_lock(&l->d->mutex);
			l->hopeless = false;
			pthread_mutex_unlock(&l->d->mutex);
			nvme_multi_visit(l->d, tell_channel, l);
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

static void set_channel_policy(struct nvme_ns_channel *ch, void *arg)
{
	ch->policy = *(const struct bdev_nvme_policy *)arg;
	ch->turns = 0;
	nvme_leg_changed(ch);
}

int bdev_nvme_set_policy(struct bdev *b, const struct bdev_nvme_policy *policy, char error[BDEV_ERROR_MAX])
{
	struct nvme_ns_bdev *d = (struct nvme_ns_bdev *)b;

	if (!bdev_nvme_is(b)) {
		return bdev_error(error, -ENODEV, "name '%s': is no bdev of an NVMe controller", bdev_name(b));
	}
	if (policy->rr_min_io == 0) {
		return bdev_error(error, -EINVAL, "rr_min_io 0: must be at least 1");
	}
	pthread_mutex_lock(&d->mutex);
	d->policy = *policy;
	pthread_mutex_unlock(&d->mutex);
	nvme_multi_visit(d, set_channel_policy, &d->policy);
	return 0;
}

const struct bdev_nvme_policy *bdev_nvme_get_policy(const struct bdev *b)
{
	return &((const struct nvme_ns_bdev *)b)->policy;
}

const struct bdev_nvme_policy *bdev_nvme_policy_to_come(const struct bdev_nvme *c)
{
	return &c->multi->policy;
}

bool bdev_nvme_policy_equal(const struct bdev_nvme_policy *a, const struct bdev_nvme_policy *b)
{
	return a->active_active == b->active_active && a->queue_depth == b->queue_depth && a->rr_min_io == b->rr_min_io;
}

int bdev_nvme_set_preferred(struct bdev *b, uint16_t cntlid, char error[BDEV_ERROR_MAX])
{
	struct nvme_ns_bdev *d = (struct nvme_ns_bdev *)b;
	struct nvme_leg *l, *wanted = NULL;

	if (!bdev_nvme_is(b)) {
		return bdev_error(error, -ENODEV, "name '%s': is no bdev of an NVMe controller", bdev_name(b));
	}
	TAILQ_FOREACH (l, &d->legs, link) {
		if (!l->leaving && nvme_ctrlr_cntlid(l->c->ctrlr) == cntlid) {
			wanted = l;
		}
	}
	if (wanted == NULL) {
		return bdev_error(error, -ENODEV, "cntlid %u: '%s' is not reached by a controller of that id", cntlid,
				  bdev_name(b));
	}
	TAILQ_FOREACH (l, &d->legs, link) {
		if (l->preferred != (l == wanted)) {
			pthread_mutex_lock(&d->mutex);
			l->preferred = l == wanted;
			pthread_mutex_unlock(&d->mutex);
			nvme_multi_visit(d, tell_channel, l);
		}
	}
	return 0;
}

/* --- What the paths are --- */

struct io_path_call {
	struct nvme_ns_bdev *d;
	void (*fn)(void *arg, const struct bdev_nvme_io_path *path);
	void *arg;
	/* of one channel, filled in on its thread */
	struct bdev_nvme_io_path found[NVME_LEGS_MAX];
	struct thread *thread;
	unsigned n;
};

static void collect(struct nvme_ns_channel *ch, void *arg)
{
	struct io_path_call *call = arg;

	for (unsigned i = 0; i < ch->num_legs; i++) {
		const struct nvme_leg_channel *l = &ch->legs[i];
		if (l->leg != NULL && call->n < NVME_LEGS_MAX) {
			call->found[call->n++] = (struct bdev_nvme_io_path){.bdev = &call->d->bdev,
									    .ctrlr = l->leg->c,
									    .thread_name = thread_name(ch->thread),
									    .thread_id = thread_id(ch->thread),
									    .current = ch->spread ? nvme_leg_can_use(l)
												  : ch->path == l->path,
									    .connected = l->path->qpair != NULL,
									    .accessible = nvme_leg_can_use(l),
									    .preferred = l->preferred,
									    .ana = l->ana};
		}
	}
	for (unsigned i = 0; i < call->n; i++) { /* the control thread waits: what it is told may allocate */
		call->fn(call->arg, &call->found[i]);
	}
	call->n = 0;
}

void bdev_nvme_for_each_io_path(struct bdev *b, void (*fn)(void *arg, const struct bdev_nvme_io_path *path), void *arg)
{
	struct io_path_call call = {.d = (struct nvme_ns_bdev *)b, .fn = fn, .arg = arg};

	nvme_multi_visit(call.d, collect, &call);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Which leg an I/O goes by: which of the controllers that have its namespace. Everything here runs on the channel's
 * thread; a channel has all it needs to choose, so that nobody is asked and nothing is locked.
 *
 * Where there is nothing to choose for each I/O (one controller, or active-passive), the choice is made when something
 * changes and stands in ch->path. An I/O for which no leg can be used waits in the channel if one may come back, and
 * fails otherwise. */
#include <errno.h>
#include <rte_branch_prediction.h>

#include "bdev_modules/nvme/internal.h"
#include "usdt/usdt.h"

/* --- Choosing --- */

static bool has_access(const struct nvme_leg_channel *l)
{
	return (l->ana == NVME_ANA_STATE_OPTIMIZED || l->ana == NVME_ANA_STATE_NONOPTIMIZED) && !l->stale;
}

bool nvme_leg_can_use(const struct nvme_leg_channel *l)
{
	return l->leg != NULL && !l->leaving && l->path->qpair != NULL && !l->path->broken && has_access(l);
}

/* It may be of use later. */
static bool has_hope(const struct nvme_leg_channel *l)
{
	return l->leg != NULL && !l->leaving && !l->hopeless && !(l->path->fails && l->path->qpair == NULL);
}

/* The smaller the better. */
static unsigned rank(const struct nvme_leg_channel *l)
{
	return (l->ana != NVME_ANA_STATE_OPTIMIZED) * 2u + !l->preferred;
}

static struct nvme_leg_channel *best(struct nvme_ns_channel *ch)
{
	struct nvme_leg_channel *found = NULL;

	for (unsigned i = 0; i < ch->num_legs; i++) {
		struct nvme_leg_channel *l = &ch->legs[i];
		if (nvme_leg_can_use(l) && (found == NULL || rank(l) < rank(found))) {
			found = l;
		}
	}
	return found;
}

/* With disable_auto_failback, I/O stays where it is while access there is as good as by l. The options do not change
 * while there are controllers. */
static struct nvme_leg_channel *stay(struct nvme_ns_channel *ch, struct nvme_leg_channel *l)
{
	if (!bdev_nvme_options.disable_auto_failback) {
		return l;
	}
	for (unsigned i = 0; l != NULL && i < ch->num_legs; i++) {
		if (ch->legs[i].path == ch->path && nvme_leg_can_use(&ch->legs[i]) && ch->legs[i].ana == l->ana) {
			return &ch->legs[i];
		}
	}
	return l;
}

static bool is_candidate(const struct nvme_leg_channel *l, enum nvme_ana_state ana)
{
	return nvme_leg_can_use(l) && l->ana == ana;
}

/* One after the other, from the one that was used last on. */
static struct nvme_leg_channel *next_in_turn(struct nvme_ns_channel *ch, enum nvme_ana_state ana)
{
	unsigned i = ch->at;

	if (ch->turns != 0 && is_candidate(&ch->legs[i], ana)) {
		ch->turns--;
		return &ch->legs[i];
	}
	for (unsigned n = 0; n < ch->num_legs; n++) {
		i = i + 1 < ch->num_legs ? i + 1 : 0;
		if (is_candidate(&ch->legs[i], ana)) {
			ch->at = (uint8_t)i;
			ch->turns = ch->policy.rr_min_io - 1;
			return &ch->legs[i];
		}
	}
	return NULL;
}

static struct nvme_leg_channel *least_busy(struct nvme_ns_channel *ch, enum nvme_ana_state ana)
{
	struct nvme_leg_channel *found = NULL;

	for (unsigned i = 0; i < ch->num_legs; i++) {
		struct nvme_leg_channel *l = &ch->legs[i];
		if (is_candidate(l, ana) && (found == NULL || l->path->outstanding < found->path->outstanding)) {
			found = l;
		}
	}
	return found;
}

struct nvme_path *nvme_leg_pick(struct nvme_ns_channel *ch)
{
	struct nvme_leg_channel *(*choose)(struct nvme_ns_channel *, enum nvme_ana_state) =
		ch->policy.queue_depth ? least_busy : next_in_turn;
	struct nvme_leg_channel *l;

	if (!ch->spread) {
		return ch->path;
	}
	l = choose(ch, NVME_ANA_STATE_OPTIMIZED);
	l = l != NULL ? l : choose(ch, NVME_ANA_STATE_NONOPTIMIZED);
	return l != NULL ? l->path : NULL;
}

struct nvme_path *nvme_leg_other(const struct nvme_ns_channel *ch, const struct nvme_path *p)
{
	const struct nvme_leg_channel *found = NULL;

	for (unsigned i = 0; i < ch->num_legs; i++) {
		const struct nvme_leg_channel *l = &ch->legs[i];
		if (nvme_leg_can_use(l) && l->path != p && (found == NULL || rank(l) < rank(found))) {
			found = l;
		}
	}
	return found != NULL ? found->path : NULL;
}

/* Chooses for the I/O to come. */
void nvme_leg_choose(struct nvme_ns_channel *ch)
{
	struct nvme_leg_channel *l = stay(ch, best(ch));
	struct nvme_path *before = ch->path;
	unsigned usable = 0;

	for (unsigned i = 0; i < ch->num_legs; i++) {
		usable += nvme_leg_can_use(&ch->legs[i]);
	}
	ch->spread = ch->policy.active_active && usable > 1;
	ch->path = ch->spread || l == NULL ? NULL : l->path;
	if (ch->path != before && ch->path != NULL) {
		USDT(bdev_nvme_io_path, ch->path->c->name, ch->nsid, ch->path->c->opts.trid.traddr,
		     ch->path->c->opts.trid.trsvcid);
	}
}

/* --- Going by it --- */

static bool may_wait(const struct nvme_ns_channel *ch)
{
	for (unsigned i = 0; i < ch->num_legs; i++) {
		if (has_hope(&ch->legs[i])) {
			return true;
		}
	}
	return false;
}

void nvme_leg_submit(struct nvme_ns_channel *ch, struct nvme_io *n)
{
	struct nvme_path *p = ch->path;

	if (unlikely(p == NULL)) { /* a choice for each I/O, or none at all */
		p = nvme_leg_pick(ch);
	}
	if (likely(p != NULL)) {
		nvme_queue_submit(p, n);
	} else if (may_wait(ch) && !ch->resetting) {
		n->place = NVME_IO_WAITING;
		STAILQ_INSERT_TAIL(&ch->waiting, n, link);
	} else {
		nvme_io_complete(n, ch->resetting ? NVME_ST(GENERIC, ABORT_REQ) : NVME_IO_PATH_ERROR, 0);
	}
}

/* What waits in ch goes on, waits again, or fails. A channel stays while it has I/O: after the last one it is not
 * touched. */
static void go_on(struct nvme_ns_channel *ch)
{
	struct nvme_io_list taken = STAILQ_HEAD_INITIALIZER(taken);
	struct nvme_io *n;

	STAILQ_CONCAT(&taken, &ch->waiting);
	while ((n = STAILQ_FIRST(&taken)) != NULL) {
		STAILQ_REMOVE_HEAD(&taken, link);
		n->place = NVME_IO_NOWHERE;
		nvme_leg_submit(ch, n);
	}
}

void nvme_leg_changed(struct nvme_ns_channel *ch)
{
	nvme_leg_choose(ch);
	go_on(ch);
}

/* What goes on may end, and its submitter may close the channel: so the list is looked at anew after each. */
void nvme_leg_path_changed(struct nvme_path *p)
{
	struct nvme_leg_channel *l;

	nvme_queue_enter(p);
	LIST_FOREACH (l, &p->legs, link) {
		nvme_leg_choose(l->ch);
		l->dirty = true;
	}
	do {
		LIST_FOREACH (l, &p->legs, link) {
			if (l->dirty) {
				l->dirty = false;
				go_on(l->ch);
				break;
			}
		}
	} while (l != NULL);
	nvme_queue_exit(p);
}

void nvme_leg_mark_stale(struct nvme_ns_channel *ch, const struct nvme_path *p)
{
	for (unsigned i = 0; i < ch->num_legs; i++) {
		if (ch->legs[i].leg != NULL && ch->legs[i].path == p) {
			ch->legs[i].stale = true;
		}
	}
	nvme_leg_choose(ch);
}

/* --- Taking back --- */

bool nvme_leg_take_back(struct nvme_ns_channel *ch, struct nvme_io *n)
{
	struct nvme_io *i;

	if (n->place == NVME_IO_WAITING) {
		STAILQ_FOREACH (i, &ch->waiting, link) {
			if (i == n) {
				STAILQ_REMOVE(&ch->waiting, n, nvme_io, link);
				n->place = NVME_IO_NOWHERE;
				return true;
			}
		}
	}
	return n->path != NULL && nvme_queue_take_back(n->path, n);
}

void nvme_leg_fail_waiting(struct nvme_ns_channel *ch, uint16_t status)
{
	struct nvme_io_list taken = STAILQ_HEAD_INITIALIZER(taken);
	struct nvme_io *n;

	for (unsigned i = 0; i < ch->num_legs; i++) {
		if (ch->legs[i].leg != NULL) {
			nvme_queue_fail_channel(ch->legs[i].path, ch, status);
		}
	}
	STAILQ_CONCAT(&taken, &ch->waiting);
	while ((n = STAILQ_FIRST(&taken)) != NULL) {
		STAILQ_REMOVE_HEAD(&taken, link);
		n->place = NVME_IO_NOWHERE;
		nvme_io_complete(n, status, 0);
	}
}

/* --- Coming and going --- */

int nvme_leg_channel_open(struct nvme_ns_channel *ch, struct nvme_leg *leg)
{
	unsigned i = 0;

	while (i < ch->num_legs && ch->legs[i].leg != NULL) {
		i++;
	}
	if (i == NVME_LEGS_MAX) {
		return -ENOSPC;
	}
	struct io_channel *pch = io_channel_get(&leg->c->device);
	if (pch == NULL) {
		return -ENOMEM;
	}
	struct nvme_leg_channel *l = &ch->legs[i];
	*l = (struct nvme_leg_channel){.leg = leg,
				       .path_channel = pch,
				       .path = nvme_path_of(pch),
				       .ch = ch,
				       .ana = leg->ana,
				       .hopeless = leg->hopeless,
				       .leaving = leg->leaving,
				       .preferred = leg->preferred};
	LIST_INSERT_HEAD(&l->path->legs, l, link);
	ch->num_legs = (uint8_t)(i == ch->num_legs ? i + 1 : ch->num_legs);
	nvme_leg_choose(ch);
	return 0;
}

void nvme_leg_channel_close(struct nvme_leg_channel *l)
{
	struct io_channel *pch = l->path_channel;

	LIST_REMOVE(l, link);
	l->leg = NULL;
	nvme_leg_choose(l->ch);
	io_channel_put(pch);
}

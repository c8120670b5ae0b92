/* SPDX-License-Identifier: BSD-3-Clause */
/* Chooses the path that an I/O takes: one of the controllers that have its namespace. Everything here runs on the
 * channel's thread. A channel has a copy of what it needs to choose, so no lock is taken and no other thread is asked.
 *
 * With one path, or with the active-passive policy, the path is chosen when something changes, and its queue pair is in
 * ch->qpair: an I/O does not choose. An I/O for which no path is usable waits in the channel if a path may become
 * usable again, and fails otherwise. */
#include <errno.h>
#include <rte_branch_prediction.h>
#include <stdlib.h>

#include "bdev_modules/nvme/internal.h"
#include "usdt/usdt.h"

/* --- Choosing --- */

static bool channel_path_has_access(const struct bdev_nvme_channel_path *cp)
{
	return (cp->ana == NVME_ANA_STATE_OPTIMIZED || cp->ana == NVME_ANA_STATE_NONOPTIMIZED) && !cp->stale;
}

bool bdev_nvme_channel_path_is_usable(const struct bdev_nvme_channel_path *cp)
{
	return cp->path != NULL && !cp->leaving && cp->qpair->driver_qpair != NULL && !cp->qpair->broken &&
	       channel_path_has_access(cp);
}

/* It may become usable again: I/O waits for it. */
static bool channel_path_may_recover(const struct bdev_nvme_channel_path *cp)
{
	return cp->path != NULL && !cp->leaving && !cp->access_lost &&
	       !(cp->qpair->fails && cp->qpair->driver_qpair == NULL);
}

/* Of two usable paths the one with the smaller rank is taken. */
static unsigned channel_path_rank(const struct bdev_nvme_channel_path *cp)
{
	return (cp->ana != NVME_ANA_STATE_OPTIMIZED) * 2u + !cp->preferred;
}

static struct bdev_nvme_channel_path *channel_best_path(struct bdev_nvme_channel *ch)
{
	struct bdev_nvme_channel_path *found = NULL;

	for (unsigned i = 0; i < ch->num_paths; i++) {
		struct bdev_nvme_channel_path *cp = &ch->paths[i];
		if (bdev_nvme_channel_path_is_usable(cp) &&
		    (found == NULL || channel_path_rank(cp) < channel_path_rank(found))) {
			found = cp;
		}
	}
	return found;
}

/* With disable_auto_failback, I/O stays on the path that it takes as long as access there is as good as through cp, the
 * best path. The options do not change while there are controllers. */
static struct bdev_nvme_channel_path *channel_keep_path(struct bdev_nvme_channel *ch, struct bdev_nvme_channel_path *cp)
{
	if (!bdev_nvme_options.disable_auto_failback) {
		return cp;
	}
	for (unsigned i = 0; cp != NULL && i < ch->num_paths; i++) {
		if (ch->paths[i].qpair == ch->qpair && bdev_nvme_channel_path_is_usable(&ch->paths[i]) &&
		    ch->paths[i].ana == cp->ana) {
			return &ch->paths[i];
		}
	}
	return cp;
}

static bool channel_path_is_candidate(const struct bdev_nvme_channel_path *cp, enum nvme_ana_state ana)
{
	return bdev_nvme_channel_path_is_usable(cp) && cp->ana == ana;
}

/* Round robin, beginning with the path that was chosen last, which gets rr_min_io I/Os in a row. */
static struct bdev_nvme_channel_path *channel_next_in_turn(struct bdev_nvme_channel *ch, enum nvme_ana_state ana)
{
	unsigned i = ch->at;

	if (ch->turns != 0 && channel_path_is_candidate(&ch->paths[i], ana)) {
		ch->turns--;
		return &ch->paths[i];
	}
	for (unsigned n = 0; n < ch->num_paths; n++) {
		i = i + 1 < ch->num_paths ? i + 1 : 0;
		if (channel_path_is_candidate(&ch->paths[i], ana)) {
			ch->at = (uint8_t)i;
			ch->turns = ch->policy.rr_min_io - 1;
			return &ch->paths[i];
		}
	}
	return NULL;
}

static struct bdev_nvme_channel_path *channel_least_busy(struct bdev_nvme_channel *ch, enum nvme_ana_state ana)
{
	struct bdev_nvme_channel_path *found = NULL;

	for (unsigned i = 0; i < ch->num_paths; i++) {
		struct bdev_nvme_channel_path *cp = &ch->paths[i];
		if (channel_path_is_candidate(cp, ana) &&
		    (found == NULL || cp->qpair->outstanding < found->qpair->outstanding)) {
			found = cp;
		}
	}
	return found;
}

struct bdev_nvme_qpair *bdev_nvme_channel_pick_qpair(struct bdev_nvme_channel *ch)
{
	struct bdev_nvme_channel_path *(*choose)(struct bdev_nvme_channel *, enum nvme_ana_state) =
		ch->policy.queue_depth ? channel_least_busy : channel_next_in_turn;
	struct bdev_nvme_channel_path *cp;

	if (!ch->spread) {
		return ch->qpair;
	}
	cp = choose(ch, NVME_ANA_STATE_OPTIMIZED);
	cp = cp != NULL ? cp : choose(ch, NVME_ANA_STATE_NONOPTIMIZED);
	return cp != NULL ? cp->qpair : NULL;
}

struct bdev_nvme_qpair *bdev_nvme_channel_other_qpair(const struct bdev_nvme_channel *ch,
						      const struct bdev_nvme_qpair *qp)
{
	const struct bdev_nvme_channel_path *found = NULL;

	for (unsigned i = 0; i < ch->num_paths; i++) {
		const struct bdev_nvme_channel_path *cp = &ch->paths[i];
		if (bdev_nvme_channel_path_is_usable(cp) && cp->qpair != qp &&
		    (found == NULL || channel_path_rank(cp) < channel_path_rank(found))) {
			found = cp;
		}
	}
	return found != NULL ? found->qpair : NULL;
}

void bdev_nvme_channel_choose(struct bdev_nvme_channel *ch)
{
	struct bdev_nvme_channel_path *cp = channel_keep_path(ch, channel_best_path(ch));
	struct bdev_nvme_qpair *before = ch->qpair;
	unsigned usable = 0;

	for (unsigned i = 0; i < ch->num_paths; i++) {
		usable += bdev_nvme_channel_path_is_usable(&ch->paths[i]);
	}
	ch->spread = ch->policy.active_active && usable > 1;
	ch->qpair = ch->spread || cp == NULL ? NULL : cp->qpair;
	if (ch->qpair != before && ch->qpair != NULL) {
		USDT(bdev_nvme_io_path, ch->qpair->c->name, ch->nsid, ch->qpair->c->opts.trid.traddr,
		     ch->qpair->c->opts.trid.trsvcid);
	}
}

/* --- Submitting and waiting --- */

static bool channel_may_wait(const struct bdev_nvme_channel *ch)
{
	for (unsigned i = 0; i < ch->num_paths && !ch->leaving; i++) {
		if (channel_path_may_recover(&ch->paths[i])) {
			return true;
		}
	}
	return false;
}

void bdev_nvme_channel_submit(struct bdev_nvme_channel *ch, struct bdev_nvme_io *n)
{
	struct bdev_nvme_qpair *qp = ch->qpair;

	if (unlikely(qp == NULL)) { /* chosen for each I/O, or no path is usable */
		qp = bdev_nvme_channel_pick_qpair(ch);
	}
	if (likely(qp != NULL)) {
		bdev_nvme_qpair_submit(qp, n);
	} else if (channel_may_wait(ch) && !ch->resetting) {
		n->place = BDEV_NVME_IO_WAITING;
		STAILQ_INSERT_TAIL(&ch->waiting, n, link);
	} else {
		bdev_nvme_io_complete(n, ch->resetting ? NVME_ST(GENERIC, ABORT_REQ) : BDEV_NVME_IO_PATH_ERROR, 0);
	}
}

/* The write cache is the controller's, and a Flush makes durable what that controller has completed (NVM 3.2.2).
 * Another thread, or this one before it changed the path, may have written through any controller of the subsystem. */
bool bdev_nvme_channel_flush_next(struct bdev_nvme_io *n)
{
	const struct bdev_nvme_channel *ch = bdev_nvme_io_channel(n);
	const struct bdev_nvme_channel_path *next = NULL;

	for (unsigned i = 0; i < ch->num_paths; i++) {
		const struct bdev_nvme_channel_path *cp = &ch->paths[i];
		if (cp->path != NULL && cp->qpair == n->qpair) {
			n->flushed |= (uint16_t)(1u << i);
		} else if (!(n->flushed & 1u << i) && bdev_nvme_channel_path_is_usable(cp) && cp->qpair->c->has_cache) {
			next = cp;
		}
	}
	if (next != NULL) {
		bdev_nvme_qpair_submit(next->qpair, n);
	}
	return next != NULL;
}

/* Submits again what waits in ch, which may wait again or fail. When its last I/O ends, the submitter may close ch: it
 * is not touched after that. */
static void channel_resubmit_waiting(struct bdev_nvme_channel *ch)
{
	struct bdev_nvme_io_list taken = STAILQ_HEAD_INITIALIZER(taken);
	struct bdev_nvme_io *n;

	STAILQ_CONCAT(&taken, &ch->waiting);
	while ((n = STAILQ_FIRST(&taken)) != NULL) {
		STAILQ_REMOVE_HEAD(&taken, link);
		n->place = BDEV_NVME_IO_NOWHERE;
		bdev_nvme_channel_submit(ch, n);
	}
}

void bdev_nvme_channel_paths_changed(struct bdev_nvme_channel *ch)
{
	bdev_nvme_channel_choose(ch);
	channel_resubmit_waiting(ch);
}

/* I/O that is resubmitted may end, and its submitter may then close a channel, which takes it off the list: so the walk
 * begins again after each channel. */
void bdev_nvme_channels_qpair_changed(struct bdev_nvme_qpair *qp)
{
	struct bdev_nvme_channel_path *cp;

	bdev_nvme_qpair_enter(qp);
	LIST_FOREACH (cp, &qp->paths, link) {
		bdev_nvme_channel_choose(cp->ch);
		cp->dirty = true;
	}
	do {
		LIST_FOREACH (cp, &qp->paths, link) {
			if (cp->dirty) {
				cp->dirty = false;
				channel_resubmit_waiting(cp->ch);
				break;
			}
		}
	} while (cp != NULL);
	bdev_nvme_qpair_exit(qp);
}

void bdev_nvme_channel_mark_stale(struct bdev_nvme_channel *ch, const struct bdev_nvme_qpair *qp)
{
	for (unsigned i = 0; i < ch->num_paths; i++) {
		if (ch->paths[i].path != NULL && ch->paths[i].qpair == qp) {
			ch->paths[i].stale = true;
		}
	}
	bdev_nvme_channel_choose(ch);
}

/* --- Held until a fence is done --- */

void bdev_nvme_channel_hold(struct bdev_nvme_channel *ch, struct bdev_nvme_io *n, struct bdev_nvme_fence *f)
{
	n->status = ch->resetting                   ? NVME_ST(GENERIC, ABORT_REQ)
		    : n->aborting || !n->repeatable ? BDEV_NVME_IO_PATH_ERROR
						    : 0;
	n->place = BDEV_NVME_IO_HELD;
	n->fence = f;
	n->qpair = NULL; /* it may be freed before n is submitted again */
	STAILQ_INSERT_TAIL(&ch->held, n, link);
}

/* When the last I/O of ch ends, the submitter may close ch: it is not touched after that. */
void bdev_nvme_channel_release_held(struct bdev_nvme_channel *ch, struct bdev_nvme_fence *f)
{
	struct bdev_nvme_io_list all = STAILQ_HEAD_INITIALIZER(all), due = STAILQ_HEAD_INITIALIZER(due);
	struct bdev_nvme_io *n;

	STAILQ_CONCAT(&all, &ch->held);
	while ((n = STAILQ_FIRST(&all)) != NULL) {
		STAILQ_REMOVE_HEAD(&all, link);
		if (n->fence == f) {
			STAILQ_INSERT_TAIL(&due, n, link);
		} else {
			STAILQ_INSERT_TAIL(&ch->held, n, link);
		}
	}
	while ((n = STAILQ_FIRST(&due)) != NULL) {
		STAILQ_REMOVE_HEAD(&due, link);
		__atomic_fetch_sub(&f->held, 1, __ATOMIC_RELAXED);
		n->place = BDEV_NVME_IO_NOWHERE;
		n->unfenced = f->timeout_ms == 0;
		if (n->status != 0) {
			bdev_nvme_io_complete(n, n->status, 0);
		} else {
			bdev_nvme_io_submit_lost(n, f->name);
		}
	}
}

/* --- Taking back what waits --- */

bool bdev_nvme_channel_take_back(struct bdev_nvme_channel *ch, struct bdev_nvme_io *n)
{
	struct bdev_nvme_io *i;

	if (n->place == BDEV_NVME_IO_WAITING) {
		STAILQ_FOREACH (i, &ch->waiting, link) {
			if (i == n) {
				STAILQ_REMOVE(&ch->waiting, n, bdev_nvme_io, link);
				n->place = BDEV_NVME_IO_NOWHERE;
				return true;
			}
		}
	}
	return n->qpair != NULL && bdev_nvme_qpair_take_back(n->qpair, n);
}

void bdev_nvme_channel_fail_waiting(struct bdev_nvme_channel *ch, uint16_t status)
{
	struct bdev_nvme_io_list taken = STAILQ_HEAD_INITIALIZER(taken);
	struct bdev_nvme_io *n;

	STAILQ_FOREACH (n, &ch->held, link) {
		n->status = status;
	}
	for (unsigned i = 0; i < ch->num_paths; i++) {
		if (ch->paths[i].path != NULL) {
			bdev_nvme_qpair_fail_channel(ch->paths[i].qpair, ch, status);
		}
	}
	STAILQ_CONCAT(&taken, &ch->waiting);
	while ((n = STAILQ_FIRST(&taken)) != NULL) {
		STAILQ_REMOVE_HEAD(&taken, link);
		n->place = BDEV_NVME_IO_NOWHERE;
		bdev_nvme_io_complete(n, status, 0);
	}
}

/* --- Opening and closing --- */

int bdev_nvme_channel_path_open(struct bdev_nvme_channel *ch, struct bdev_nvme_path *path)
{
	unsigned i = 0;

	while (i < ch->num_paths && ch->paths[i].path != NULL) {
		i++;
	}
	if (i == BDEV_NVME_PATHS_MAX) {
		return -ENOSPC;
	}
	struct io_channel *qpair_channel = io_channel_get(&path->c->device);
	if (qpair_channel == NULL) {
		return -ENOMEM;
	}
	struct bdev_stat_ops *stat = path->stat != NULL ? bdev_nvme_stat_alloc() : NULL;
	if (path->stat != NULL && stat == NULL) {
		io_channel_put(qpair_channel);
		return -ENOMEM;
	}
	struct bdev_nvme_channel_path *cp = &ch->paths[i];
	*cp = (struct bdev_nvme_channel_path){.path = path,
					      .stat = stat,
					      .qpair_channel = qpair_channel,
					      .qpair = bdev_nvme_qpair_of(qpair_channel),
					      .ch = ch,
					      .ana = path->ana,
					      .access_lost = path->access_lost,
					      .leaving = path->leaving,
					      .preferred = path->preferred};
	LIST_INSERT_HEAD(&cp->qpair->paths, cp, link);
	ch->num_paths = (uint8_t)(i == ch->num_paths ? i + 1 : ch->num_paths);
	bdev_nvme_channel_choose(ch);
	return 0;
}

void bdev_nvme_channel_path_close(struct bdev_nvme_channel_path *cp)
{
	struct io_channel *qpair_channel = cp->qpair_channel;

	LIST_REMOVE(cp, link);
	cp->path = NULL;
	free(cp->stat);
	cp->stat = NULL;
	bdev_nvme_channel_choose(cp->ch);
	io_channel_put(qpair_channel);
}

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

static bool channel_path_has_access(const struct bdev_nvme_channel_path *cp)
{
	return (cp->ana == NVME_ANA_STATE_OPTIMIZED || cp->ana == NVME_ANA_STATE_NONOPTIMIZED) && !cp->stale;
}

bool bdev_nvme_channel_path_is_usable(const struct bdev_nvme_channel_path *cp)
{
	return cp->path != NULL && !cp->leaving && cp->qpair->driver_qpair != NULL && !cp->qpair->broken &&
	       channel_path_has_access(cp);
}

/* It may be of use later. */
static bool channel_path_may_recover(const struct bdev_nvme_channel_path *cp)
{
	return cp->path != NULL && !cp->leaving && !cp->access_lost &&
	       !(cp->qpair->fails && cp->qpair->driver_qpair == NULL);
}

/* The smaller the better. */
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

/* With disable_auto_failback, I/O stays where it is while access there is as good as by l. The options do not change
 * while there are controllers. */
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

/* One after the other, from the one that was used last on. */
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

/* Chooses for the I/O to come. */
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

/* --- Going by it --- */

static bool channel_may_wait(const struct bdev_nvme_channel *ch)
{
	for (unsigned i = 0; i < ch->num_paths; i++) {
		if (channel_path_may_recover(&ch->paths[i])) {
			return true;
		}
	}
	return false;
}

void bdev_nvme_channel_submit(struct bdev_nvme_channel *ch, struct bdev_nvme_io *n)
{
	struct bdev_nvme_qpair *qp = ch->qpair;

	if (unlikely(qp == NULL)) { /* a choice for each I/O, or none at all */
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

/* What waits in ch goes on, waits again, or fails. A channel stays while it has I/O: after the last one it is not
 * touched. */
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

/* What goes on may end, and its submitter may close the channel: so the list is looked at anew after each. */
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

/* --- Taking back --- */

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

/* --- Coming and going --- */

int bdev_nvme_channel_path_open(struct bdev_nvme_channel *ch, struct bdev_nvme_path *path)
{
	unsigned i = 0;

	while (i < ch->num_paths && ch->paths[i].path != NULL) {
		i++;
	}
	if (i == BDEV_NVME_PATHS_MAX) {
		return -ENOSPC;
	}
	struct io_channel *pch = io_channel_get(&path->c->device);
	if (pch == NULL) {
		return -ENOMEM;
	}
	struct bdev_nvme_channel_path *cp = &ch->paths[i];
	*cp = (struct bdev_nvme_channel_path){.path = path,
					      .qpair_channel = pch,
					      .qpair = bdev_nvme_qpair_of(pch),
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
	struct io_channel *pch = cp->qpair_channel;

	LIST_REMOVE(cp, link);
	cp->path = NULL;
	bdev_nvme_channel_choose(cp->ch);
	io_channel_put(pch);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Fences by Cross-Controller Reset (TP8028): another controller of the subsystem, to which this host is connected as
 * the same host, is asked to reset the lost one. One is asked after the other until a reset has succeeded, or the
 * fence's time is over. Control thread. */
#include <stdio.h>
#include <string.h>

#include "bdev_modules/nvme/internal.h"
#include "util/log.h"

#define RETRY_US 1000000 /* a helper that is busy, or could not be asked, is asked again */

static bool helper_was_tried(const struct bdev_nvme_fence *f, const struct bdev_nvme *c)
{
	for (unsigned i = 0; i < BDEV_NVME_FENCE_HELPERS; i++) {
		if (f->tried[i] == c->fence->serial) {
			return true;
		}
	}
	return false;
}

/* Whether c may be asked to reset the controller of f. It may be that controller's successor, at the same address. */
static bool helper_fits(const struct bdev_nvme_fence *f, const struct bdev_nvme *c)
{
	struct nvme_ctrlr_quiesce_info info;

	if (c->state != BDEV_NVME_UP || c->fence == NULL || c->fence == f || nvme_ctrlr_is_ending(c->ctrlr) ||
	    strcmp(c->opts.trid.subnqn, f->trid.subnqn) != 0 || strcmp(c->opts.hostnqn, f->hostnqn) != 0) {
		return false;
	}
	nvme_ctrlr_quiesce_info(c->ctrlr, &info);
	return info.cross_resets != 0 && !helper_was_tried(f, c);
}

static struct bdev_nvme *helper_find(const struct bdev_nvme_fence *f)
{
	struct bdev_nvme *c = NULL;

	while ((c = bdev_nvme_next(c)) != NULL && !helper_fits(f, c)) {
	}
	return c;
}

static void cross_reset_done(void *fence, enum nvme_cross_reset_result result)
{
	struct bdev_nvme_fence *f = fence;

	f->cross_reset = NULL;
	if (result == NVME_CROSS_RESET_DONE) {
		bdev_nvme_fence_end(f, BDEV_NVME_FENCE_END_CROSS_RESET);
		return;
	}
	bdev_nvme_fence_set_state(f, BDEV_NVME_FENCE_WAITING);
	if (result == NVME_CROSS_RESET_BUSY) {
		thread_timer_start(&f->seek_timer, RETRY_US);
		return;
	}
	log_notice("%s: controller %u at %s:%s was not reset by controller %u", f->name, f->cntlid, f->trid.traddr,
		   f->trid.trsvcid, f->helper_cntlid);
	f->tried[f->num_tried++ % BDEV_NVME_FENCE_HELPERS] = f->helper_serial;
	bdev_nvme_fence_seek_helper(f);
}

void bdev_nvme_fence_seek_helper(void *fence)
{
	struct bdev_nvme_fence *f = fence;
	struct bdev_nvme *c = f->state == BDEV_NVME_FENCE_WAITING && f->info.cirn != 0 ? helper_find(f) : NULL;

	if (c == NULL) {
		return; /* one may come: bdev_nvme_fence_helper_came() */
	}
	f->helper_serial = c->fence->serial;
	f->helper_cntlid = nvme_ctrlr_cntlid(c->ctrlr);
	f->cross_reset = nvme_ctrlr_cross_reset(c->ctrlr, f->cntlid, &f->info, cross_reset_done, f);
	if (f->cross_reset == NULL) {
		thread_timer_start(&f->seek_timer, RETRY_US);
		return;
	}
	log_notice("%s: controller %u at %s:%s is asked to reset controller %u (Cross-Controller Reset)", f->name,
		   f->helper_cntlid, c->opts.trid.traddr, c->opts.trid.trsvcid, f->cntlid);
	bdev_nvme_fence_set_state(f, BDEV_NVME_FENCE_CROSS_RESET);
}

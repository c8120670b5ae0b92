/* SPDX-License-Identifier: BSD-3-Clause */
/* Other addresses of the same controller. When an address does not answer, the next one is tried: without a delay until
 * all have been tried once, then with the delay that follows any failure. Control thread. */
#include <errno.h>
#include <stdlib.h>

#include "nvme/internal.h"
#include "util/log.h"

int nvme_ctrlr_add_alternate(struct nvme_ctrlr *ctrlr, const struct nvme_trid *trid)
{
	struct nvme_alternate *a = calloc(1, sizeof(*a));

	if (a == NULL) {
		return -ENOMEM;
	}
	a->trid = *trid;
	TAILQ_INSERT_TAIL(&ctrlr->alternates, a, link);
	return 0;
}

int nvme_ctrlr_remove_alternate(struct nvme_ctrlr *ctrlr, const struct nvme_trid *trid)
{
	struct nvme_alternate *a;

	TAILQ_FOREACH (a, &ctrlr->alternates, link) {
		if (nvme_trid_is_same_place(&a->trid, trid)) {
			TAILQ_REMOVE(&ctrlr->alternates, a, link);
			free(a);
			return 0;
		}
	}
	return -ENOENT;
}

const struct nvme_trid *nvme_ctrlr_next_alternate(const struct nvme_ctrlr *ctrlr, const struct nvme_trid *after)
{
	const struct nvme_alternate *a = after != NULL
						 ? TAILQ_NEXT(container_of(after, struct nvme_alternate, trid), link)
						 : TAILQ_FIRST(&ctrlr->alternates);

	return a != NULL ? &a->trid : NULL;
}

void nvme_ctrlr_switch(struct nvme_ctrlr *ctrlr)
{
	struct nvme_alternate *a = TAILQ_FIRST(&ctrlr->alternates);

	if (a != NULL) {
		struct nvme_trid last = ctrlr->trid;
		ctrlr->trid = a->trid;
		a->trid = last;
		TAILQ_REMOVE(&ctrlr->alternates, a, link);
		TAILQ_INSERT_TAIL(&ctrlr->alternates, a, link);
		log_notice("NVMe controller %s: %s:%s is tried instead", ctrlr->trid.subnqn, ctrlr->trid.traddr,
			   ctrlr->trid.trsvcid);
	}
}

void nvme_alternates_free(struct nvme_ctrlr *ctrlr)
{
	struct nvme_alternate *a;

	while ((a = TAILQ_FIRST(&ctrlr->alternates)) != NULL) {
		TAILQ_REMOVE(&ctrlr->alternates, a, link);
		free(a);
	}
}

void nvme_alternates_turn(struct nvme_ctrlr *ctrlr, bool was_ready)
{
	const struct nvme_alternate *a;

	if (was_ready) {
		ctrlr->untried = 0;
		TAILQ_FOREACH (a, &ctrlr->alternates, link) {
			ctrlr->untried++;
		}
	}
	if (TAILQ_EMPTY(&ctrlr->alternates) || (was_ready && ctrlr->attempt_due)) {
		return; /* a reset on request keeps the address */
	}
	nvme_ctrlr_switch(ctrlr);
	if (ctrlr->untried != 0) {
		ctrlr->untried--;
		ctrlr->attempt_due = true;
	}
}

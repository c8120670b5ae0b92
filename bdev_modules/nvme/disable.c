/* SPDX-License-Identifier: BSD-3-Clause */
/* Controllers that operators take out of use and back into it; and the lists of those who wait for the end of such an
 * operation. Control thread. */
#include <errno.h>
#include <stdlib.h>

#include "bdev_modules/nvme/internal.h"
#include "util/log.h"

void bdev_nvme_waiter_add(struct bdev_nvme_waiters *list, bdev_nvme_done_cb cb, void *arg)
{
	struct bdev_nvme_waiter *w = malloc(sizeof(*w));

	if (w == NULL) {
		cb(arg, -ENOMEM, "out of memory");
		return;
	}
	*w = (struct bdev_nvme_waiter){.cb = cb, .arg = arg};
	STAILQ_INSERT_TAIL(list, w, link);
}

void bdev_nvme_waiters_end(struct bdev_nvme_waiters *list, int rc, const char *error)
{
	struct bdev_nvme_waiters taken = STAILQ_HEAD_INITIALIZER(taken);
	struct bdev_nvme_waiter *w;

	STAILQ_CONCAT(&taken, list);
	while ((w = STAILQ_FIRST(&taken)) != NULL) {
		STAILQ_REMOVE_HEAD(&taken, link);
		w->cb(w->arg, rc, error);
		free(w);
	}
}

/* Why an operation on c cannot begin: 0, or -EBUSY and *why. */
static int ctrlr_is_busy(const struct bdev_nvme *c, const char **why)
{
	if (c->state == BDEV_NVME_ATTACHING || c->state == BDEV_NVME_DETACHING) {
		*why = c->state == BDEV_NVME_ATTACHING ? "the controller is still being attached"
						       : "the controller is being detached";
		return -EBUSY;
	}
	return 0;
}

/* A reset, or bdev_nvme_enable(), may have asked for an attempt that has not begun. */
static void disable_given_up(struct bdev_nvme *c)
{
	(void)nvme_ctrlr_give_up(c->ctrlr);
	bdev_nvme_hold(c);
	bdev_nvme_tell(c, BDEV_NVME_DISABLED, NULL, NULL);
	bdev_nvme_waiters_end(&c->reset_waiters, -EIO, "the controller has been disabled meanwhile");
	bdev_nvme_release(c);
}

/* Until the driver has given the controller up, it may say in between that it is lost, or ready: it does not stay so.
 */
void bdev_nvme_disable(struct bdev_nvme *c, bdev_nvme_done_cb cb, void *arg)
{
	const char *why = NULL;
	int rc = ctrlr_is_busy(c, &why);

	if (rc == 0 && c->disabled && c->state == BDEV_NVME_GIVEN_UP) {
		rc = -EALREADY;
		why = "the controller is disabled already";
	}
	if (rc != 0) {
		cb(arg, rc, why);
		return;
	}
	bool first = !c->disabled;
	c->disabled = true;
	if (c->state == BDEV_NVME_GIVEN_UP) { /* its loss has been dealt with */
		disable_given_up(c);
		cb(arg, 0, NULL);
		return;
	}
	if (first) {
		log_notice("%s: %s:%s is being disabled on request", c->name, c->opts.trid.traddr,
			   c->opts.trid.trsvcid);
		(void)nvme_ctrlr_give_up(c->ctrlr); /* -EBUSY: it has failed just now, and says so soon */
	}
	bdev_nvme_waiter_add(&c->disable_waiters, cb, arg);
}

void bdev_nvme_enable(struct bdev_nvme *c, bdev_nvme_done_cb cb, void *arg)
{
	const char *why = NULL;
	int rc = ctrlr_is_busy(c, &why);

	if (rc == 0 && !c->disabled) {
		rc = -EALREADY;
		why = "the controller is not disabled";
	} else if (rc == 0 && c->state != BDEV_NVME_GIVEN_UP) {
		rc = -EBUSY;
		why = "the controller is still being disabled";
	}
	if (rc != 0) {
		cb(arg, rc, why);
		return;
	}
	log_notice("%s: %s:%s is enabled on request", c->name, c->opts.trid.traddr, c->opts.trid.trsvcid);
	c->disabled = false;
	(void)nvme_ctrlr_reset(c->ctrlr); /* it has FAILED, so this begins an attempt */
	bdev_nvme_waiter_add(&c->reset_waiters, cb, arg);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Disables a controller over fabrics before its connection is dropped: when CSTS.RDY is 0 after CC.EN has been cleared,
 * the controller carries out no command of its I/O queues any more (Base 3.6.1), and the owner may submit what was
 * outstanding to another controller. If the admin queue does not answer, or the controller does not become disabled in
 * time, the connection is dropped nevertheless, and the owner is told that its commands may still be carried out
 * (nvme_ctrlr_has_ended()). Over PCIe, quiesce() does the same. Control thread. */
#include "env_dpdk/env.h"
#include "nvme/internal.h"
#include "util/log.h"

LOG_FLAG(nvme)

#define ANSWER_LIMIT_MS  1000 /* of one property command: a controller that is alive answers it at once */
#define DISABLE_LIMIT_MS 10000
#define LOOK_US          1000

/* The steps of disabling. */
enum { DISABLE_NONE, DISABLE_AWAITS_ANSWER, DISABLE_AWAITS_LOOK, DISABLE_OVER };

static void disable_end(struct nvme_ctrlr *ctrlr, bool ended, const char *why)
{
	if (ended) {
		log_info(nvme, "%s: disabled: its commands have ended", ctrlr->trid.traddr);
	} else {
		log_notice("%s: the controller could not be disabled (%s): its commands may still be carried out",
			   ctrlr->trid.traddr, why);
	}
	ctrlr->has_ended = ended;
	ctrlr->disable_step = DISABLE_OVER;
	/* outside of the completion of an admin command, since the admin queue is freed next */
	thread_timer_start(&ctrlr->disable_timer, 0);
}

static void disable_start_answer_limit(struct nvme_ctrlr *ctrlr)
{
	ctrlr->disable_step = DISABLE_AWAITS_ANSWER;
	thread_timer_start(&ctrlr->disable_timer, ANSWER_LIMIT_MS * UINT64_C(1000));
}

static void disable_csts_read(struct nvme_ctrlr *ctrlr, int error, uint64_t csts)
{
	if (ctrlr->disable_step != DISABLE_AWAITS_ANSWER) {
		return; /* too late, or the admin queue is being ended */
	}
	if (error != 0) {
		disable_end(ctrlr, false, "CSTS cannot be read");
	} else if (!NVME_CSTS_RDY(csts)) {
		disable_end(ctrlr, true, NULL);
	} else if (env_ticks() >= ctrlr->disable_deadline) {
		disable_end(ctrlr, false, "CSTS.RDY is not cleared in time");
	} else {
		ctrlr->disable_step = DISABLE_AWAITS_LOOK;
		thread_timer_start(&ctrlr->disable_timer, LOOK_US);
	}
}

static void disable_read_csts(struct nvme_ctrlr *ctrlr)
{
	disable_start_answer_limit(ctrlr);
	nvme_reg_read(ctrlr, NVME_REG_CSTS, 4, disable_csts_read);
}

static void disable_cc_written(struct nvme_ctrlr *ctrlr, int error, uint64_t value)
{
	if (ctrlr->disable_step != DISABLE_AWAITS_ANSWER) {
		return;
	}
	if (error != 0) {
		disable_end(ctrlr, false, "CC cannot be written");
	} else {
		disable_read_csts(ctrlr);
	}
}

static void disable_timer_fired(void *arg)
{
	struct nvme_ctrlr *ctrlr = arg;

	switch (ctrlr->disable_step) {
	case DISABLE_AWAITS_LOOK:
		disable_read_csts(ctrlr);
		break;
	case DISABLE_AWAITS_ANSWER:
		if (thread_timer_was_absent(&ctrlr->disable_timer, ANSWER_LIMIT_MS * UINT64_C(1000))) {
			disable_start_answer_limit(ctrlr); /* the answer may have come meanwhile */
		} else {
			disable_end(ctrlr, false, "no answer to a property command");
		}
		break;
	case DISABLE_OVER:
		ctrlr->disable_step = DISABLE_NONE;
		nvme_ctrlr_quiesced(ctrlr);
		break;
	default:
		break;
	}
}

bool nvme_ctrlr_disable_is_due(const struct nvme_ctrlr *ctrlr)
{
	return ctrlr->ops->transport.fabrics && ctrlr->state == NVME_CTRLR_READY && ctrlr->was_ready &&
	       !ctrlr->admin->failed && !ctrlr->destroying && !ctrlr->opts.discovery;
}

void nvme_ctrlr_disable(struct nvme_ctrlr *ctrlr)
{
	uint64_t ms = (NVME_CAP_TO(ctrlr->cap) + 1) * UINT64_C(500); /* Base 3.1.3.1 */

	ctrlr->disable_deadline = env_ticks() + env_us_to_ticks((ms < DISABLE_LIMIT_MS ? ms : DISABLE_LIMIT_MS) * 1000);
	ctrlr->disable_timer.fn = disable_timer_fired;
	ctrlr->disable_timer.arg = ctrlr;
	disable_start_answer_limit(ctrlr);
	nvme_reg_write(ctrlr, NVME_REG_CC, 4, ctrlr->cc & ~UINT32_C(1), disable_cc_written);
}

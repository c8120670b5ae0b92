/* SPDX-License-Identifier: BSD-3-Clause */
/* Cross-Controller Reset (TP8028): asks a controller to reset another one of its subsystem that this host has lost
 * contact with. The answer says that it is reset already, or that the log page tells later. The controller announces
 * that by an event; the page is also read now and then, for an event may be lost. Control thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "env_dpdk/env.h"
#include "nvme/internal.h"
#include "util/log.h"

#define LOOK_US       500000
#define MISSES_MAX    2 /* the log page lacks the request so often: it has failed */
#define STATUS_SCT_SC 0x7ff

struct nvme_cross_reset {
	struct nvme_ctrlr *ctrlr; /* the helper */
	uint16_t icid;
	uint8_t ciu;
	bool accepted; /* the log page has it */
	uint8_t misses;
	nvme_cross_reset_fn done; /* NULL: cancelled */
	void *arg;
	TAILQ_ENTRY(nvme_cross_reset) link;
};

static void cross_request_finish(struct nvme_cross_reset *r, enum nvme_cross_reset_result result)
{
	nvme_cross_reset_fn done = r->done;
	void *arg = r->arg;

	TAILQ_REMOVE(&r->ctrlr->cross_resets, r, link);
	free(r);
	if (done != NULL) {
		done(arg, result);
	}
}

/* --- The log page --- */

struct cross_reset_read {
	struct nvme_ctrlr *ctrlr;
	struct nvme_cross_ctrl_reset_log *log;
};

/* The state of a request in the page; -1: the page does not have it. An entry does not tell the controller's random
 * number, so there may also be one of an earlier request that nobody has removed: the request has succeeded only if all
 * entries say so. */
static int cross_request_state_in_log(const struct nvme_cross_reset *r, const struct nvme_cross_ctrl_reset_log *log)
{
	unsigned n = le16toh(log->ne);
	int state = -1;

	for (unsigned i = 0; i < n && i < NVME_CROSS_CTRL_RESET_ENTRIES; i++) {
		const struct nvme_cross_ctrl_reset_entry *e = &log->entries[i];
		if (le16toh(e->icid) == r->icid && e->ciu == r->ciu &&
		    state != NVME_CROSS_CTRL_RESET_CCRS_IN_PROGRESS &&
		    (state < 0 || e->ccrs != NVME_CROSS_CTRL_RESET_CCRS_SUCCESS)) {
			state = e->ccrs;
		}
	}
	return state;
}

static void cross_request_check(struct nvme_cross_reset *r, const struct nvme_cross_ctrl_reset_log *log)
{
	int state = cross_request_state_in_log(r, log);

	r->misses = state < 0 ? r->misses + 1 : 0;
	if (state == NVME_CROSS_CTRL_RESET_CCRS_SUCCESS) {
		cross_request_finish(r, NVME_CROSS_RESET_DONE);
	} else if (state == NVME_CROSS_CTRL_RESET_CCRS_FAILED || r->misses >= MISSES_MAX) {
		cross_request_finish(r, NVME_CROSS_RESET_FAILED);
	}
}

/* A callback may begin another request, which is not accepted yet, and cancel others, which stay on the list. */
static void cross_request_log_received(void *arg, const struct nvme_cqe *cqe)
{
	struct cross_reset_read *read = arg;
	struct nvme_ctrlr *ctrlr = read->ctrlr;
	struct nvme_cross_reset *r, *next;

	ctrlr->cross_reset_reading = false;
	if (nvme_cqe_status(cqe) == 0 && !ctrlr->in_failure) {
		for (r = TAILQ_FIRST(&ctrlr->cross_resets); r != NULL; r = next) {
			next = TAILQ_NEXT(r, link);
			if (r->done == NULL && r->accepted) {
				cross_request_finish(r, NVME_CROSS_RESET_FAILED);
			} else if (r->accepted) {
				cross_request_check(r, read->log);
			}
		}
	}
	env_dma_free(read->log);
	free(read);
}

void nvme_cross_resets_read(struct nvme_ctrlr *ctrlr)
{
	uint32_t dwords = sizeof(struct nvme_cross_ctrl_reset_log) / 4 - 1;
	struct nvme_sqe cmd = {
		.opcode = nvme_admin_get_log_page,
		.cdw10 = htole32(NVME_LOG_LID_CROSS_CTRL_RESET | (uint32_t)NVME_CROSS_CTRL_RESET_LSP_RMC << 8 |
				 dwords << 16),
	};

	if (TAILQ_EMPTY(&ctrlr->cross_resets) || ctrlr->cross_reset_reading || ctrlr->in_failure) {
		return;
	}
	struct cross_reset_read *read = calloc(1, sizeof(*read));
	if (read == NULL) {
		return; /* the timer comes again */
	}
	read->ctrlr = ctrlr;
	read->log = env_dma_zmalloc(sizeof(*read->log), 4096, -1);
	if (read->log == NULL || nvme_ctrlr_admin(ctrlr, &cmd, read->log, sizeof(*read->log), false,
						  cross_request_log_received, read) != 0) {
		env_dma_free(read->log);
		free(read);
		return;
	}
	ctrlr->cross_reset_reading = true;
}

static void cross_request_timer_fired(void *arg)
{
	struct nvme_ctrlr *ctrlr = arg;

	nvme_cross_resets_read(ctrlr);
	if (!TAILQ_EMPTY(&ctrlr->cross_resets) && !ctrlr->in_failure) {
		thread_timer_start(&ctrlr->cross_reset_timer, LOOK_US);
	}
}

/* --- The command --- */

static void cross_request_answered(void *arg, const struct nvme_cqe *cqe)
{
	struct nvme_cross_reset *r = arg;
	struct nvme_ctrlr *ctrlr = r->ctrlr;
	uint16_t status = nvme_cqe_status(cqe) & STATUS_SCT_SC;

	switch (status) {
	case 0:
		if (le32toh(cqe->dw0) & NVME_CROSS_CTRL_RESET_IMMEDIATE) {
			cross_request_finish(r, NVME_CROSS_RESET_DONE);
			return;
		}
		r->accepted = true;
		thread_timer_start(&ctrlr->cross_reset_timer, LOOK_US);
		return;
	case NVME_ST(CMD_SPECIFIC, CROSS_CTRL_RESET_LOG_FULL):
		nvme_cross_resets_read(ctrlr); /* which removes what is completed */
		cross_request_finish(r, NVME_CROSS_RESET_BUSY);
		return;
	case NVME_ST(CMD_SPECIFIC, CROSS_CTRL_RESET_IN_PROGRESS):
	case NVME_ST(CMD_SPECIFIC, CROSS_CTRL_RESET_LIMIT):
		cross_request_finish(r, NVME_CROSS_RESET_BUSY);
		return;
	default:
		log_notice("%s: Cross-Controller Reset of controller %u: %s", ctrlr->trid.traddr, r->icid,
			   nvme_status_text(nvme_cqe_status(cqe)));
		cross_request_finish(r, NVME_CROSS_RESET_FAILED);
		return;
	}
}

struct nvme_cross_reset *nvme_ctrlr_cross_reset(struct nvme_ctrlr *ctrlr, uint16_t icid,
						const struct nvme_ctrlr_quiesce_info *info, nvme_cross_reset_fn done,
						void *arg)
{
	struct nvme_sqe cmd = {.opcode = NVME_ADMIN_CROSS_CTRL_RESET,
			       .cdw10 = htole32(icid | (uint32_t)info->ciu << 16),
			       .cdw12 = htole32((uint32_t)info->cirn),
			       .cdw13 = htole32((uint32_t)(info->cirn >> 32))};
	struct nvme_cross_reset *r = NULL;

	if (ctrlr->state == NVME_CTRLR_READY && !ctrlr->in_failure) {
		r = calloc(1, sizeof(*r));
	}
	if (r == NULL) {
		return NULL;
	}
	*r = (struct nvme_cross_reset){.ctrlr = ctrlr, .icid = icid, .ciu = info->ciu, .done = done, .arg = arg};
	TAILQ_INSERT_TAIL(&ctrlr->cross_resets, r, link);
	if (nvme_ctrlr_admin(ctrlr, &cmd, NULL, 0, false, cross_request_answered, r) != 0) {
		TAILQ_REMOVE(&ctrlr->cross_resets, r, link);
		free(r);
		return NULL;
	}
	return r;
}

void nvme_cross_reset_cancel(struct nvme_cross_reset *r)
{
	r->done = NULL;
}

void nvme_cross_resets_init(struct nvme_ctrlr *ctrlr)
{
	TAILQ_INIT(&ctrlr->cross_resets);
	ctrlr->cross_reset_timer.fn = cross_request_timer_fired;
	ctrlr->cross_reset_timer.arg = ctrlr;
}

void nvme_cross_resets_end(struct nvme_ctrlr *ctrlr)
{
	struct nvme_cross_reset *r;

	thread_timer_stop(&ctrlr->cross_reset_timer);
	while ((r = TAILQ_FIRST(&ctrlr->cross_resets)) != NULL) {
		cross_request_finish(r, NVME_CROSS_RESET_FAILED);
	}
}

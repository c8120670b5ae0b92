/* SPDX-License-Identifier: BSD-3-Clause */
/* The part that queue pairs of all transports share: command ids, completion, failure. The using thread. */
#include "nvme/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "env_dpdk/env.h"
#include "usdt/usdt.h"
#include "util/log.h"
#include "util/state_machine.h"

#define TO(s) (1u << NVME_QPAIR_##s)

/* The states are in the order in which a queue pair reaches them. */
static const uint32_t next_states[NVME_QPAIR_STATES] = {
	[NVME_QPAIR_NONE] = TO(CONNECTING),
	[NVME_QPAIR_CONNECTING] = TO(READY) | TO(FAILED) | TO(STOPPING) | TO(FREED),
	[NVME_QPAIR_READY] = TO(FAILED) | TO(STOPPING) | TO(FREED),
	[NVME_QPAIR_FAILED] = TO(STOPPING) | TO(FREED),
	[NVME_QPAIR_STOPPING] = TO(FREED),
	[NVME_QPAIR_FREED] = 0,
};

const char *nvme_qpair_state_name(enum nvme_qpair_state s)
{
	static const char *const names[NVME_QPAIR_STATES] = {
		[NVME_QPAIR_NONE] = "none",     [NVME_QPAIR_CONNECTING] = "connecting", [NVME_QPAIR_READY] = "ready",
		[NVME_QPAIR_FAILED] = "failed", [NVME_QPAIR_STOPPING] = "stopping",     [NVME_QPAIR_FREED] = "freed",
	};

	return s < NVME_QPAIR_STATES ? names[s] : "unknown";
}

STATE_MACHINE(qpair_machine, "nvme queue pair", nvme_qpair_state_name, next_states)

void nvme_qpair_set_state(struct nvme_qpair *qpair, enum nvme_qpair_state state)
{
	uint8_t old = __atomic_load_n(&qpair->state, __ATOMIC_RELAXED);

	do {
		if (state <= old) {
			return; /* the other thread was first */
		}
	} while (!__atomic_compare_exchange_n(&qpair->state, &old, (uint8_t)state, false, __ATOMIC_RELAXED,
					      __ATOMIC_RELAXED));
	state_machine_check(&qpair_machine, old, state, qpair->ctrlr->trid.traddr);
	USDT(nvme_qpair_state, qpair->ctrlr->trid.traddr, qpair->id, old, state);
}

static void qpair_free_arrays(struct nvme_qpair *qpair)
{
	nvme_qpair_alarm_fini(qpair);
	free(qpair->by_slot);
	free(qpair->free_cids);
	qpair->by_slot = NULL;
	qpair->free_cids = NULL;
}

int nvme_qpair_init(struct nvme_qpair *qpair, struct nvme_ctrlr *ctrlr, uint16_t id, uint16_t entries)
{
	if (entries == 0) {
		return -EINVAL;
	}
	qpair->ops = ctrlr->ops;
	qpair->ctrlr = ctrlr;
	qpair->id = id;
	qpair->entries = entries;
	qpair->by_slot = calloc(entries, sizeof(*qpair->by_slot));
	while (qpair->slot_mask <= entries - 1u) { /* its highest value is no slot, so that no command id is all ones */
		qpair->slot_mask = (uint16_t)(qpair->slot_mask << 1 | 1);
	}
	qpair->free_cids = calloc(entries, sizeof(*qpair->free_cids));
	if (qpair->by_slot == NULL || qpair->free_cids == NULL) {
		qpair_free_arrays(qpair);
		return -ENOMEM;
	}
	for (uint16_t i = 0; i < entries; i++) {
		qpair->free_cids[i] = (uint16_t)(entries - 1 - i);
	}
	qpair->num_free = entries;
	TAILQ_INIT(&qpair->held);
	qpair->injecting = ctrlr->faults != NULL;
	qpair->watched = true; /* until it is handed to its user: the steps of the control thread have time limits of
				  their own */
	if (id != 0 && nvme_qpair_alarm_init(qpair) != 0) {
		qpair_free_arrays(qpair);
		return -ENOMEM;
	}
	nvme_qpair_set_state(qpair, NVME_QPAIR_CONNECTING);
	return 0;
}

void nvme_qpair_fini(struct nvme_qpair *qpair)
{
	nvme_qpair_set_state(qpair, NVME_QPAIR_FREED);
	qpair_free_arrays(qpair);
}

static bool qpair_is_injecting(const struct nvme_qpair *qpair)
{
	return __atomic_load_n(&qpair->injecting, __ATOMIC_ACQUIRE); /* if true, ctrlr->faults is set */
}

int nvme_qpair_submit(struct nvme_qpair *qpair, struct nvme_request *req)
{
	if (qpair->failed) {
		return -ENXIO;
	}
	if (qpair->num_free == 0) {
		return -EAGAIN;
	}
	uint16_t cid = qpair->free_cids[qpair->num_free - 1];

	req->cmd.cid = htole16(cid);
	req->qpair = qpair;
	req->submitted_ticks = thread_now();
	req->late = 0;
	if (unlikely(!qpair->watched)) {
		nvme_qpair_watch(qpair);
	}
	bool held = unlikely(qpair_is_injecting(qpair)) && nvme_fault_apply(qpair, req);
	int rc = unlikely(held) ? 0 : qpair->ops->submit(qpair, req);
	if (rc != 0) {
		return rc;
	}
	qpair->num_free--;
	qpair->by_slot[cid & qpair->slot_mask] = req;
	USDT(nvme_cmd_submit, qpair, qpair->id, cid, req->cmd.opcode, req->cmd.nsid);
	return 0;
}

static void request_complete(struct nvme_qpair *qpair, struct nvme_request *req, const struct nvme_cqe *cqe)
{
	uint16_t cid = le16toh(req->cmd.cid);

	qpair->by_slot[cid & qpair->slot_mask] = NULL;
	qpair->free_cids[qpair->num_free++] = (uint16_t)(cid + qpair->slot_mask + 1); /* the slot's next use */
	USDT(nvme_cmd_complete, qpair, qpair->id, cid, req->cmd.opcode,
	     usdt_result(nvme_cqe_status(cqe), env_ticks() - req->submitted_ticks));
	req->cb(req, cqe);
}

static void request_complete_forged(struct nvme_qpair *qpair, struct nvme_request *req, const struct nvme_cqe *cqe)
{
	struct nvme_cqe forged = *cqe;

	nvme_fault_clear_data(req, cqe);
	if (req->forged == NVME_FORGED_HELD) { /* the device has answered a command that was never sent */
		TAILQ_REMOVE(&qpair->held, req, link);
	}
	forged.status = htole16((uint16_t)(req->forged_status << 1));
	request_complete(qpair, req, &forged);
}

void nvme_qpair_complete(struct nvme_qpair *qpair, const struct nvme_cqe *cqe)
{
	uint16_t cid = le16toh(cqe->cid);
	struct nvme_request *req = nvme_qpair_request(qpair, cid);

	if (req == NULL) {
		qpair->bad_completions++;
		log_limited(LOG_LEVEL_ERROR, "queue pair %u: a completion for command id %u, which is not outstanding",
			    qpair->id, cid);
		if (qpair->ops->dma_until_stopped) {
			nvme_qpair_break(qpair, "a completion for a command that is not outstanding");
		} else {
			qpair->why = "a completion for a command that is not outstanding";
			nvme_qpair_fail(qpair);
		}
		return;
	}
	if (unlikely(qpair_is_injecting(qpair)) && req->forged != NVME_GENUINE) {
		request_complete_forged(qpair, req, cqe);
		return;
	}
	request_complete(qpair, req, cqe);
}

void nvme_qpair_break(struct nvme_qpair *qpair, const char *why)
{
	if (!qpair->failed) {
		qpair->failed = true;
		qpair->why = why;
		nvme_qpair_set_state(qpair, NVME_QPAIR_FAILED);
		nvme_qpair_report(qpair);
	}
}

void nvme_qpair_fail(struct nvme_qpair *qpair)
{
	struct nvme_cqe cqe = {.status = htole16(NVME_SC_ABORT_QUEUE << 1)};

	qpair->failed = true; /* first, so that callbacks that submit again get -ENXIO */
	if (qpair->ops->shut != NULL) {
		qpair->ops->shut(qpair); /* a target that is late or hostile must not write to memory that has another
					    use by then */
	}
	nvme_qpair_set_state(qpair, NVME_QPAIR_FAILED);
	nvme_fault_forget(qpair);
	for (uint16_t slot = 0; slot < qpair->entries; slot++) {
		struct nvme_request *req = qpair->by_slot[slot];

		if (req != NULL) {
			cqe.cid = req->cmd.cid;
			request_complete(qpair, req, &cqe);
		}
	}
}

void nvme_qpair_flush(struct nvme_qpair *qpair)
{
	qpair->ops->flush(qpair);
}

int nvme_qpair_poll(struct nvme_qpair *qpair, uint32_t max)
{
	int n = qpair->failed ? -ENXIO : qpair->ops->poll(qpair, max);

	if (unlikely(qpair->failed)) {
		nvme_qpair_report(qpair);
		return -ENXIO;
	}
	return n;
}

int nvme_qpair_fd(const struct nvme_qpair *qpair)
{
	return qpair->ops->fd(qpair);
}

bool nvme_qpair_arm(struct nvme_qpair *qpair)
{
	return qpair->failed || qpair->ops->arm(qpair);
}

bool nvme_request_was_lost(const struct nvme_request *req)
{
	return req->qpair->failed;
}

uint16_t nvme_qpair_id(const struct nvme_qpair *qpair)
{
	return qpair->id;
}

uint16_t nvme_qpair_entries(const struct nvme_qpair *qpair)
{
	return qpair->entries;
}

uint32_t nvme_qpair_outstanding(const struct nvme_qpair *qpair)
{
	return qpair->entries - qpair->num_free;
}

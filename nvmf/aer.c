/* SPDX-License-Identifier: BSD-3-Clause */
/* Asynchronous events (Base 5.2): requests wait for an event, and events wait for a request. After an event was sent,
 * it is not sent again before its log page is read. Control thread. */
#include <string.h>
#include "nvmf/command_internal.h"
#include "nvmf/internal.h"

static const struct {
	uint8_t type, info, lid;
	uint32_t enable; /* the bit of the Asynchronous Event Configuration feature */
} events[NVMF_EVENTS] = {
	[NVMF_EVENT_NS_CHANGED] = {NVME_AER_NOTICE, NVME_AER_NOTICE_NS_CHANGED, NVME_LOG_LID_CHANGED_NS,
				   NVME_FEATURE_AENCFG_NOTICE_NAMESPACE_ATTRIBUTES},
	[NVMF_EVENT_ANA_CHANGED] = {NVME_AER_NOTICE, NVME_AER_NOTICE_ANA, NVME_LOG_LID_ANA,
				    NVME_FEATURE_AENCFG_NOTICE_ANA_CHANGE},
	[NVMF_EVENT_DISCOVERY_CHANGED] = {NVME_AER_NOTICE, NVME_AER_NOTICE_DISC_CHANGED, NVME_LOG_LID_DISCOVER,
					  (uint32_t)NVME_FEATURE_AENCFG_NOTICE_DISCOVERY_CHANGE},
	[NVMF_EVENT_CROSS_RESET] = {NVME_AER_NOTICE, NVME_AER_NOTICE_CROSS_CTRL_RESET, NVME_LOG_LID_CROSS_CTRL_RESET,
				    NVME_AENCFG_NOTICE_CROSS_CTRL_RESET},
	/* Always enabled; hosts mask it for each namespace (Base 5.27.1.26). */
	[NVMF_EVENT_RESERVATION] = {NVME_AER_CSS, NVME_AER_CSS_NVM_RESERVATION, NVME_LOG_LID_RESERVATION, 0},
};

static struct nvmf_request *aer_take_request(struct nvmf_ctrlr *ctrlr)
{
	struct nvmf_request *req = ctrlr->aers[0];

	ctrlr->num_aers--;
	memmove(&ctrlr->aers[0], &ctrlr->aers[1], ctrlr->num_aers * sizeof(ctrlr->aers[0]));
	return req;
}

static void aer_send_pending(struct nvmf_ctrlr *ctrlr)
{
	for (unsigned e = 0; e < NVMF_EVENTS && ctrlr->num_aers != 0; e++) {
		if (!ctrlr->event_pending[e] || ctrlr->event_masked[e]) {
			continue;
		}
		struct nvmf_request *req = aer_take_request(ctrlr);
		ctrlr->event_pending[e] = false;
		ctrlr->event_masked[e] = true;
		req->cqe.dw0 = htole32(events[e].type | (uint32_t)events[e].info << 8 | (uint32_t)events[e].lid << 16);
		nvmf_request_answer(req, NVME_ST_SUCCESS);
	}
}

void nvmf_event_raise(struct nvmf_ctrlr *ctrlr, enum nvmf_event event)
{
	if ((events[event].enable != 0 && (ctrlr->features.async_events & events[event].enable) == 0) ||
	    ctrlr->state == NVMF_CTRLR_DESTROYING) {
		return;
	}
	ctrlr->event_pending[event] = true;
	aer_send_pending(ctrlr);
}

/* The page that the host reads contains what has happened until now. */
void nvmf_event_clear(struct nvmf_ctrlr *ctrlr, enum nvmf_event event)
{
	ctrlr->event_pending[event] = false;
	ctrlr->event_masked[event] = false;
}

bool nvmf_aer_hold(struct nvmf_request *req)
{
	const struct nvmf_transport_ops *ops = req->qpair->transport->ops;
	const struct nvmf_subsystem *s = req->qpair->ctrlr->subsystem;

	return ops->request_hold == NULL || ops->request_hold(req, s->subtype == NVMF_SUBTYPE_DISCOVERY);
}

unsigned nvmf_aer_max(const struct nvmf_ctrlr *ctrlr)
{
	return ctrlr->subsystem->subtype == NVMF_SUBTYPE_DISCOVERY ? 1 : NVMF_AER_MAX;
}

void nvmf_aer_run(struct nvmf_request *req)
{
	struct nvmf_ctrlr *ctrlr = nvmf_request_ctrlr(req);

	if (ctrlr->state == NVMF_CTRLR_DESTROYING) {
		nvmf_request_answer(req, NVME_ST(GENERIC, ABORT_QUEUE));
		return;
	}
	if (ctrlr->num_aers == nvmf_aer_max(ctrlr)) {
		nvmf_request_answer_at(req, NVME_ST_DNR(CMD_SPECIFIC, ASYNC_LIMIT), NVMF_WHERE_OPCODE);
		return;
	}
	ctrlr->aers[ctrlr->num_aers++] = req;
	aer_send_pending(ctrlr);
}

void nvmf_event_abort_all(struct nvmf_ctrlr *ctrlr, uint16_t status)
{
	while (ctrlr->num_aers != 0) {
		nvmf_request_answer(aer_take_request(ctrlr), status);
	}
}

bool nvmf_event_abort(struct nvmf_ctrlr *ctrlr, uint16_t cid)
{
	for (unsigned i = 0; i < ctrlr->num_aers; i++) {
		struct nvmf_request *req = ctrlr->aers[i];
		if (nvmf_request_cid(req) == cid) {
			ctrlr->num_aers--;
			memmove(&ctrlr->aers[i], &ctrlr->aers[i + 1], (ctrlr->num_aers - i) * sizeof(ctrlr->aers[0]));
			nvmf_request_answer(req, NVME_ST(GENERIC, ABORT_REQ));
			return true;
		}
	}
	return false;
}

/* ---- Namespaces that changed ---- */

/* The list is sorted and names each namespace once (Base 5.16.1.5). NVMF_CHANGED_NS_MAX + 1 entries mean too many. */
static void aer_note_changed_ns(struct nvmf_ctrlr *ctrlr, uint32_t nsid)
{
	uint32_t i = 0;

	while (i < ctrlr->num_changed_ns && i < NVMF_CHANGED_NS_MAX && ctrlr->changed_ns[i] < nsid) {
		i++;
	}
	if (i < ctrlr->num_changed_ns && i < NVMF_CHANGED_NS_MAX && ctrlr->changed_ns[i] == nsid) {
		return;
	}
	if (ctrlr->num_changed_ns >= NVMF_CHANGED_NS_MAX) {
		ctrlr->num_changed_ns = NVMF_CHANGED_NS_MAX + 1;
		return;
	}
	memmove(&ctrlr->changed_ns[i + 1], &ctrlr->changed_ns[i],
		(ctrlr->num_changed_ns - i) * sizeof(ctrlr->changed_ns[0]));
	ctrlr->changed_ns[i] = nsid;
	ctrlr->num_changed_ns++;
}

void nvmf_ns_changed(struct nvmf_subsystem *s, struct nvmf_ns *ns)
{
	struct nvmf_ctrlr *ctrlr;

	TAILQ_FOREACH (ctrlr, &s->ctrlrs, link) {
		if (nvmf_ctrlr_sees(ctrlr, ns->nsid)) {
			aer_note_changed_ns(ctrlr, ns->nsid);
			nvmf_event_raise(ctrlr, NVMF_EVENT_NS_CHANGED);
		}
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Controllers: their states, the effects of a host's writes to CC, and their end. Control thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "nvmf/internal.h"

/* How long a controller that is disabled or shut down keeps its association; NVMe-oF 1.1, 4.3, suggests two minutes. */
#define IDLE_TIMEOUT_US (120 * UINT64_C(1000000))

#define CAP_TIMEOUT_500MS 30 /* CAP.TO and CRTO, units of 500 ms: far longer than it ever takes */

static const uint32_t ctrlr_next_states[NVMF_CTRLR_STATES] = {
	[NVMF_CTRLR_DISABLED] =
		1 << NVMF_CTRLR_READY | 1 << NVMF_CTRLR_FAILED | 1 << NVMF_CTRLR_SHUT_DOWN | 1 << NVMF_CTRLR_DESTROYING,
	[NVMF_CTRLR_READY] = 1 << NVMF_CTRLR_RESETTING | 1 << NVMF_CTRLR_SHUTTING_DOWN | 1 << NVMF_CTRLR_DESTROYING,
	[NVMF_CTRLR_RESETTING] = 1 << NVMF_CTRLR_DISABLED | 1 << NVMF_CTRLR_DESTROYING,
	[NVMF_CTRLR_SHUTTING_DOWN] = 1 << NVMF_CTRLR_SHUT_DOWN | 1 << NVMF_CTRLR_RESETTING | 1 << NVMF_CTRLR_DESTROYING,
	[NVMF_CTRLR_SHUT_DOWN] =
		1 << NVMF_CTRLR_READY | 1 << NVMF_CTRLR_RESETTING | 1 << NVMF_CTRLR_FAILED | 1 << NVMF_CTRLR_DESTROYING,
	[NVMF_CTRLR_FAILED] = 1 << NVMF_CTRLR_RESETTING | 1 << NVMF_CTRLR_DESTROYING,
	[NVMF_CTRLR_DESTROYING] = 0,
};
STATE_MACHINE(ctrlr_machine, "nvmf controller", nvmf_ctrlr_state_name, ctrlr_next_states);

void nvmf_ctrlr_set_state(struct nvmf_ctrlr *ctrlr, enum nvmf_ctrlr_state state)
{
	state_machine_check(&ctrlr_machine, ctrlr->state, state, ctrlr->hostnqn);
	TRACE(NVMF_CTRLR_STATE, ctrlr->trace_owner, 0, (uintptr_t)ctrlr, ctrlr->state, state, ctrlr->cntlid);
	USDT(nvmf_ctrlr_state, ctrlr, ctrlr->subsystem->nqn, ctrlr->hostnqn, ctrlr->state, state);
	ctrlr->state = state;
	ctrlr->state_ticks = env_ticks();
}

/* ---- Coming ---- */

static void ctrlr_idle_timeout(void *arg)
{
	struct nvmf_ctrlr *ctrlr = arg;

	if (thread_timer_was_absent(
		    &ctrlr->idle_timer,
		    IDLE_TIMEOUT_US)) { /* the host may have enabled it, and the command was not read yet */
		thread_timer_start(&ctrlr->idle_timer, IDLE_TIMEOUT_US);
		return;
	}
	nvmf_ctrlr_destroy(ctrlr, "it was left disabled or shut down for too long");
}

/* Gives a new controller an id that is free. false: no memory. */
static bool cntlid_take(struct nvmf_ctrlr *ctrlr, uint16_t cntlid)
{
	struct nvmf_subsystem *s = ctrlr->subsystem;
	struct nvmf_cntlid_page **page = &s->cntlids[cntlid >> 8];

	if (*page == NULL) {
		*page = calloc(1, sizeof(**page));
	}
	if (*page == NULL) {
		return false;
	}
	(*page)->ctrlrs[cntlid & 0xff] = ctrlr;
	(*page)->used++;
	s->num_ctrlrs++;
	ctrlr->cntlid = cntlid;
	return true;
}

static void cntlid_release(const struct nvmf_ctrlr *ctrlr)
{
	struct nvmf_subsystem *s = ctrlr->subsystem;
	struct nvmf_cntlid_page **page = &s->cntlids[ctrlr->cntlid >> 8];

	(*page)->ctrlrs[ctrlr->cntlid & 0xff] = NULL;
	s->num_ctrlrs--;
	if (--(*page)->used == 0) {
		free(*page);
		*page = NULL;
	}
}

struct nvmf_ctrlr *nvmf_ctrlr_create(struct nvmf_subsystem *s, struct nvmf_qpair *admin, const struct nvmf_connect *c,
				     uint16_t cntlid)
{
	size_t words = s->max_nsid / 64 + 1;
	struct nvmf_ctrlr *ctrlr = calloc(1, sizeof(*ctrlr) + words * sizeof(ctrlr->visible[0]));
	char owner[512];

	if (ctrlr == NULL) {
		return NULL;
	}
	ctrlr->subsystem = s;
	ctrlr->transport = admin->transport;
	ctrlr->listen_address = admin->listen_address;
	ctrlr->local_address = admin->local_address;
	if (!cntlid_take(ctrlr, cntlid)) {
		free(ctrlr);
		return NULL;
	}
	if (nvmf_cross_reset_init(ctrlr) != 0) {
		cntlid_release(ctrlr);
		free(ctrlr);
		return NULL;
	}
	ctrlr->state_ticks = env_ticks();
	ctrlr->max_io_qpairs = s->subtype == NVMF_SUBTYPE_NVME ? admin->transport->opts.max_io_qpairs_per_ctrlr : 0;
	memcpy(ctrlr->hostid, c->hostid, sizeof(ctrlr->hostid));
	strcpy(ctrlr->hostnqn, c->hostnqn);
	TAILQ_INIT(&ctrlr->qpairs);
	ctrlr->idle_timer = (struct thread_timer){.fn = ctrlr_idle_timeout, .arg = ctrlr};
	for (struct nvmf_ns *ns = nvmf_ns_next(s, NULL); ns != NULL; ns = nvmf_ns_next(s, ns)) {
		nvmf_ctrlr_set_visible(ctrlr, ns->nsid, nvmf_ns_visible(ns, ctrlr->hostnqn));
	}
	const struct nvmf_listener *l = nvmf_subsystem_find_listener(s, &admin->listen_address);
	ctrlr->ana = l != NULL ? nvmf_ana_hold(l->ana) : NULL;
	snprintf(owner, sizeof(owner), "%s %s cntlid %u", ctrlr->hostnqn, s->nqn, cntlid);
	ctrlr->trace_owner = trace_owner_register(TRACE_OWNER_NVMF_CTRLR, owner);
	nvmf_features_reset(ctrlr);
	TAILQ_INSERT_TAIL(&s->ctrlrs, ctrlr, link);
	USDT(nvmf_ctrlr_create, ctrlr, s->nqn, thread_id(admin->group->thread));
	USDT(nvmf_subsystem_add_ctrlr, s->nqn, ctrlr, ctrlr->hostnqn);
	nvmf_host_latency_join(ctrlr);
	ctrlr->qos = (struct nvmf_qos *)nvmf_qos_find(s, ctrlr->hostnqn);
	nvmf_ctrlr_link_qpair(ctrlr, admin, 0);
	ctrlr->admin_qpair = admin;
	nvmf_keepalive_set(ctrlr, c->kato_ms);
	thread_timer_start(&ctrlr->idle_timer, IDLE_TIMEOUT_US);
	return ctrlr;
}

void nvmf_ctrlr_announce(struct nvmf_ctrlr *ctrlr)
{
	const struct nvmf_subsystem *s = ctrlr->subsystem;
	const char *from = ctrlr->admin_qpair != NULL ? ctrlr->admin_qpair->peer_address.traddr : "";
	uint32_t left_out = 0;

	if (ctrlr->announced) {
		return;
	}
	if (s->subtype == NVMF_SUBTYPE_DISCOVERY) { /* lines of its own, so that they do not displace others */
		log_limited(LOG_LEVEL_NOTICE, "%s from %s connects to %s: controller %u", ctrlr->hostnqn, from, s->nqn,
			    ctrlr->cntlid);
	} else {
		log_limited(LOG_LEVEL_NOTICE, "%s from %s connects to %s: controller %u", ctrlr->hostnqn, from, s->nqn,
			    ctrlr->cntlid);
	}
	if (s->subtype != NVMF_SUBTYPE_DISCOVERY || nvmf_notice_budget(NVMF_NOTICE_HOST_CONNECT, &left_out)) {
		ctrlr->announced = true;
		nvmf_notice(NVMF_NOTICE_HOST_CONNECT, NULL, "%s %s %u", s->nqn, ctrlr->hostnqn, ctrlr->cntlid);
	}
}

void nvmf_ctrlr_link_qpair(struct nvmf_ctrlr *ctrlr, struct nvmf_qpair *qpair, uint16_t qid)
{
	qpair->ctl_ctrlr = ctrlr;
	qpair->ctl_qid = qid;
	qpair->linked = true;
	nvmf_qos_link(qpair, ctrlr->qos);
	atomic_store_explicit(&qpair->write_through, ctrlr->features.volatile_write_cache == 0, memory_order_relaxed);
	atomic_store_explicit(&qpair->extended_formats, ctrlr->features.extended_formats, memory_order_relaxed);
	TAILQ_INSERT_TAIL(&ctrlr->qpairs, qpair, ctrlr_link);
	ctrlr->num_io_qpairs += qid != 0;
	USDT(nvmf_ctrlr_add_qpair, qpair, qid, ctrlr->subsystem->nqn, ctrlr->hostnqn);
	if (qid != 0) {
		USDT(nvmf_ctrlr_add_io_qpair, ctrlr, qpair, qid, thread_id(qpair->group->thread));
	}
}

void nvmf_ctrlr_set_visible(struct nvmf_ctrlr *ctrlr, uint32_t nsid, bool visible)
{
	_Atomic uint64_t *word = &ctrlr->visible[(nsid - 1) / 64];
	uint64_t bit = UINT64_C(1) << ((nsid - 1) % 64);

	if (visible) {
		atomic_fetch_or_explicit(word, bit, memory_order_relaxed);
	} else {
		atomic_fetch_and_explicit(word, ~bit, memory_order_relaxed);
	}
}

/* ---- Registers ---- */

uint64_t nvmf_ctrlr_cap(const struct nvmf_ctrlr *ctrlr)
{
	uint64_t mqes = ctrlr->transport->opts.max_queue_depth - 1;

	return mqes << NVME_CAP_MQES_SHIFT | (uint64_t)1 << NVME_CAP_CQR_SHIFT |
	       (uint64_t)CAP_TIMEOUT_500MS << NVME_CAP_TO_SHIFT | (uint64_t)NVME_CAP_CSS_NVM << NVME_CAP_CSS_SHIFT |
	       (uint64_t)NVME_CAP_CRWMS << NVME_CAP_CRMS_SHIFT;
}

static bool ctrlr_io_is_quiesced(const struct nvmf_ctrlr *ctrlr)
{
	const struct nvmf_qpair *qpair;

	TAILQ_FOREACH (qpair, &ctrlr->qpairs, ctrlr_link) {
		if (qpair->ctl_qid != 0 && !qpair->quiesced) {
			return false;
		}
	}
	return true;
}

uint32_t nvmf_ctrlr_csts(const struct nvmf_ctrlr *ctrlr)
{
	const uint32_t ready = 1u << NVME_CSTS_RDY_SHIFT;

	switch (ctrlr->state) {
	case NVMF_CTRLR_READY:
	case NVMF_CTRLR_RESETTING: /* until its I/O queues are gone */
		return ready;
	case NVMF_CTRLR_DESTROYING: /* until no command of its I/O queues is carried out any more */
		return ctrlr_io_is_quiesced(ctrlr) ? 0 : ready;
	case NVMF_CTRLR_SHUTTING_DOWN:
		return ready | NVME_CSTS_SHST_OCCUR << NVME_CSTS_SHST_SHIFT;
	case NVMF_CTRLR_SHUT_DOWN:
		return (NVME_CC_EN(ctrlr->cc) ? ready : 0) | NVME_CSTS_SHST_CMPLT << NVME_CSTS_SHST_SHIFT;
	case NVMF_CTRLR_FAILED:
		return 1u << NVME_CSTS_CFS_SHIFT;
	default:
		return 0;
	}
}

static void ctrlr_quiesce_io_qpairs(struct nvmf_ctrlr *ctrlr)
{
	struct nvmf_qpair *qpair;

	TAILQ_FOREACH (qpair, &ctrlr->qpairs, ctrlr_link) {
		if (qpair->ctl_qid != 0) {
			nvmf_ctrlr_quiesce_qpair(qpair);
		}
	}
}

/* There is one page size, one arbitration mechanism and the NVM command set; the queue entry sizes are those of
 * fabrics. A discovery controller has no I/O queues. */
static bool ctrlr_cc_is_good(const struct nvmf_ctrlr *ctrlr, uint32_t cc)
{
	bool sizes = NVME_CC_IOSQES(cc) == 6 && NVME_CC_IOCQES(cc) == 4;

	return NVME_CC_CSS(cc) == NVME_CC_CSS_NVM && NVME_CC_MPS(cc) == 0 && NVME_CC_AMS(cc) == NVME_CC_AMS_RR &&
	       (sizes || ctrlr->subsystem->subtype == NVMF_SUBTYPE_DISCOVERY);
}

static void ctrlr_enable(struct nvmf_ctrlr *ctrlr)
{
	if (!ctrlr_cc_is_good(ctrlr, ctrlr->cc)) {
		log_limited(LOG_LEVEL_WARNING, "%s wants controller %u of %s with CC 0x%08x, which is not possible",
			    ctrlr->hostnqn, ctrlr->cntlid, ctrlr->subsystem->nqn, ctrlr->cc);
		nvmf_ctrlr_set_state(ctrlr, NVMF_CTRLR_FAILED);
		return;
	}
	thread_timer_stop(&ctrlr->idle_timer);
	nvmf_cross_reset_renew(ctrlr);
	nvmf_ctrlr_set_state(ctrlr, NVMF_CTRLR_READY);
}

static void ctrlr_shut_down(struct nvmf_ctrlr *ctrlr);

/* Ends a reset or a shutdown when no I/O queue is left. What the host has written to CC in the meantime is carried out
 * then. */
static void ctrlr_check_io_qpairs_gone(struct nvmf_ctrlr *ctrlr)
{
	if (ctrlr->num_io_qpairs != 0) {
		return;
	}
	if (ctrlr->state == NVMF_CTRLR_RESETTING) {
		nvmf_event_abort_all(ctrlr, NVME_ST(GENERIC, ABORT_QUEUE));
		nvmf_features_reset(ctrlr);
		nvmf_cross_reset_forget(ctrlr);
		nvmf_ctrlr_set_state(ctrlr, NVMF_CTRLR_DISABLED);
	} else if (ctrlr->state == NVMF_CTRLR_SHUTTING_DOWN) {
		nvmf_ctrlr_set_state(ctrlr, NVMF_CTRLR_SHUT_DOWN);
	} else {
		return;
	}
	thread_timer_start(&ctrlr->idle_timer, IDLE_TIMEOUT_US);
	if (ctrlr->state == NVMF_CTRLR_DISABLED && NVME_CC_EN(ctrlr->cc)) {
		ctrlr_enable(ctrlr);
	}
	if (ctrlr->shutdown_due) {
		ctrlr->shutdown_due = false;
		ctrlr_shut_down(ctrlr);
	}
}

static void ctrlr_reset(struct nvmf_ctrlr *ctrlr)
{
	static const uint16_t from = 1 << NVMF_CTRLR_READY | 1 << NVMF_CTRLR_SHUTTING_DOWN | 1 << NVMF_CTRLR_SHUT_DOWN |
				     1 << NVMF_CTRLR_FAILED;

	if ((from & 1 << ctrlr->state) != 0) {
		nvmf_ctrlr_set_state(ctrlr, NVMF_CTRLR_RESETTING);
		ctrlr_quiesce_io_qpairs(ctrlr);
		ctrlr_check_io_qpairs_gone(ctrlr);
	}
}

static void ctrlr_shut_down(struct nvmf_ctrlr *ctrlr)
{
	if (ctrlr->state == NVMF_CTRLR_READY) {
		nvmf_ctrlr_set_state(ctrlr, NVMF_CTRLR_SHUTTING_DOWN);
		ctrlr_quiesce_io_qpairs(ctrlr);
		ctrlr_check_io_qpairs_gone(ctrlr);
	} else if (ctrlr->state == NVMF_CTRLR_DISABLED) {
		nvmf_ctrlr_set_state(ctrlr, NVMF_CTRLR_SHUT_DOWN);
	} else if (ctrlr->state == NVMF_CTRLR_RESETTING) {
		ctrlr->shutdown_due = true;
	}
}

/* A controller may also be enabled after it was shut down while disabled, by a write that clears CC.SHN too
 * (Base 3.1.3.6, CSTS.SHST). */
static bool ctrlr_may_enable(const struct nvmf_ctrlr *ctrlr)
{
	return ctrlr->state == NVMF_CTRLR_DISABLED ||
	       (ctrlr->state == NVMF_CTRLR_SHUT_DOWN && NVME_CC_SHN(ctrlr->cc) == NVME_CC_SHN_NONE);
}

void nvmf_ctrlr_set_cc(struct nvmf_ctrlr *ctrlr, uint32_t cc)
{
	uint32_t old = ctrlr->cc;

	ctrlr->cc = cc;
	if (NVME_CC_EN(old) && !NVME_CC_EN(cc)) {
		ctrlr->shutdown_due = false; /* it was requested of the controller as it was enabled before */
		ctrlr_reset(ctrlr);
	} else if (!NVME_CC_EN(old) && NVME_CC_EN(cc) && ctrlr_may_enable(ctrlr)) {
		ctrlr_enable(ctrlr);
	}
	if (NVME_CC_SHN(cc) != NVME_CC_SHN_NONE && NVME_CC_SHN(old) == NVME_CC_SHN_NONE) {
		ctrlr_shut_down(ctrlr);
	}
}

/* ---- Going ---- */

#define WHY_CTRLR_ENDS "its controller was reset, shut down or destroyed"

static void qpair_quiesce_on_group(struct thread_msg *msg)
{
	nvmf_qpair_quiesce(container_of(msg, struct nvmf_qpair, disconnect_msg), WHY_CTRLR_ENDS);
}

void nvmf_ctrlr_quiesce_qpair(struct nvmf_qpair *qpair)
{
	if (!qpair->quiesce_posted) {
		qpair->quiesce_posted = true;
		thread_post(qpair->group->thread, &qpair->disconnect_msg, qpair_quiesce_on_group);
	}
}

static void qpair_disconnect_on_group(struct thread_msg *msg)
{
	nvmf_qpair_disconnect(container_of(msg, struct nvmf_qpair, quiesced_msg), WHY_CTRLR_ENDS);
}

/* The message that said that it is quiesced goes back. */
static void ctrlr_disconnect_qpair(struct nvmf_qpair *qpair)
{
	if (!qpair->disconnect_posted) {
		qpair->disconnect_posted = true;
		thread_post(qpair->group->thread, &qpair->quiesced_msg, qpair_disconnect_on_group);
	}
}

static bool ctrlr_ends_io(const struct nvmf_ctrlr *ctrlr)
{
	return ctrlr->state == NVMF_CTRLR_RESETTING || ctrlr->state == NVMF_CTRLR_SHUTTING_DOWN ||
	       ctrlr->state == NVMF_CTRLR_DESTROYING;
}

/* Disconnects what is quiesced. A host that sees one connection of a controller end gives up all of them, so the first
 * is disconnected when the last is quiesced. The admin queue serves the host until the I/O queues are; it is the first
 * to be disconnected. */
static void ctrlr_check_quiesced(struct nvmf_ctrlr *ctrlr)
{
	struct nvmf_qpair *qpair;

	if (ctrlr_ends_io(ctrlr) && !ctrlr_io_is_quiesced(ctrlr)) {
		return;
	}
	if (ctrlr->state == NVMF_CTRLR_DESTROYING && ctrlr->admin_qpair != NULL) {
		nvmf_ctrlr_quiesce_qpair(ctrlr->admin_qpair);
		if (ctrlr->admin_qpair->quiesced) {
			ctrlr_disconnect_qpair(ctrlr->admin_qpair);
		}
		return; /* a host that loses an I/O queue first connects it to the same controller again */
	}
	TAILQ_FOREACH (qpair, &ctrlr->qpairs, ctrlr_link) {
		if (qpair->quiesced) {
			ctrlr_disconnect_qpair(qpair);
		}
	}
}

void nvmf_ctrlr_qpair_quiesced(struct nvmf_qpair *qpair)
{
	qpair->quiesced = true;
	ctrlr_check_quiesced(qpair->ctl_ctrlr);
}

static void ctrlr_free(struct nvmf_ctrlr *ctrlr)
{
	struct nvmf_subsystem *s = ctrlr->subsystem;

	USDT(nvmf_ctrlr_destruct, ctrlr, thread_id(thread_current()));
	USDT(nvmf_subsystem_remove_ctrlr, s->nqn, ctrlr, ctrlr->hostnqn);
	TAILQ_REMOVE(&s->ctrlrs, ctrlr, link);
	cntlid_release(ctrlr);
	nvmf_cross_reset_gone(ctrlr);
	nvmf_host_latency_leave(ctrlr);
	trace_owner_release(ctrlr->trace_owner);
	nvmf_ana_release(ctrlr->ana);
	free(ctrlr->resv_mask);
	free(ctrlr);
	nvmf_subsystem_ctrlr_gone(s);
}

void nvmf_ctrlr_destroy(struct nvmf_ctrlr *ctrlr, const char *why)
{
	if (ctrlr->state == NVMF_CTRLR_DESTROYING) {
		return;
	}
	log_limited(LOG_LEVEL_NOTICE, "%s leaves controller %u of %s: %s", ctrlr->hostnqn, ctrlr->cntlid,
		    ctrlr->subsystem->nqn, why);
	if (ctrlr->announced) {
		nvmf_notice(NVMF_NOTICE_HOST_DISCONNECT, why, "%s %s %u", ctrlr->subsystem->nqn, ctrlr->hostnqn,
			    ctrlr->cntlid);
	}
	nvmf_keepalive_stop(ctrlr);
	thread_timer_stop(&ctrlr->idle_timer);
	nvmf_event_abort_all(ctrlr, NVME_ST(GENERIC, ABORT_QUEUE));
	nvmf_cross_reset_forget(ctrlr);
	nvmf_ctrlr_set_state(ctrlr, NVMF_CTRLR_DESTROYING);
	ctrlr_quiesce_io_qpairs(ctrlr);
	ctrlr_check_quiesced(ctrlr);
}

void nvmf_ctrlr_qpair_closing(struct nvmf_qpair *qpair)
{
	if (qpair->linked && (qpair->ctl_qid == 0 || qpair->ends_ctrlr)) {
		nvmf_ctrlr_destroy(qpair->ctl_ctrlr, qpair->why);
	}
}

void nvmf_ctrlr_qpair_gone(struct nvmf_qpair *qpair)
{
	struct nvmf_ctrlr *ctrlr = qpair->ctl_ctrlr;

	if (!qpair->linked) {
		return;
	}
	nvmf_auth_destroy(qpair);
	qpair->linked = false;
	TAILQ_REMOVE(&ctrlr->qpairs, qpair, ctrlr_link);
	if (qpair->ctl_qid == 0) {
		ctrlr->admin_qpair = NULL;
	} else {
		ctrlr->num_io_qpairs--;
		nvmf_host_latency_keep(qpair);
	}
	if (TAILQ_EMPTY(&ctrlr->qpairs)) {
		ctrlr_free(ctrlr);
	} else {
		ctrlr_check_quiesced(ctrlr);
		ctrlr_check_io_qpairs_gone(ctrlr);
	}
}

/* ---- Looking ---- */

struct nvmf_ns *nvmf_ctrlr_visible_ns(const struct nvmf_ctrlr *ctrlr, uint32_t nsid)
{
	struct nvmf_ns *ns = nvmf_ns_find(ctrlr->subsystem, nsid);

	return ns != NULL && nvmf_ctrlr_sees(ctrlr, nsid) ? ns : NULL;
}

struct nvmf_ctrlr *nvmf_ctrlr_find(const struct nvmf_subsystem *s, uint16_t cntlid)
{
	const struct nvmf_cntlid_page *page = s->cntlids[cntlid >> 8];

	return page != NULL ? page->ctrlrs[cntlid & 0xff] : NULL;
}

struct nvmf_ctrlr *nvmf_ctrlr_next(const struct nvmf_subsystem *s, const struct nvmf_ctrlr *after)
{
	return after == NULL ? TAILQ_FIRST(&s->ctrlrs) : TAILQ_NEXT(after, link);
}

void nvmf_ctrlr_get_info(const struct nvmf_ctrlr *ctrlr, struct nvmf_ctrlr_info *info)
{
	*info = (struct nvmf_ctrlr_info){
		.cntlid = ctrlr->cntlid,
		.ciu = ctrlr->ciu,
		.cirn = ctrlr->cirn,
		.state = ctrlr->state,
		.state_ticks = ctrlr->state_ticks,
		.num_io_qpairs = ctrlr->num_io_qpairs,
		.kato_ms = atomic_load_explicit(&ctrlr->kato_ms, memory_order_relaxed),
		.errors = atomic_load_explicit(&ctrlr->error_log.count, memory_order_relaxed),
	};
	if (ctrlr->admin_qpair != NULL) {
		nvmf_auth_get_info(ctrlr->admin_qpair, &info->auth);
	}
	strcpy(info->hostnqn, ctrlr->hostnqn);
	memcpy(info->hostid, ctrlr->hostid, sizeof(info->hostid));
}

struct nvmf_qpair *nvmf_qpair_next(const struct nvmf_ctrlr *ctrlr, const struct nvmf_qpair *after)
{
	return after == NULL ? TAILQ_FIRST(&ctrlr->qpairs) : TAILQ_NEXT(after, ctrlr_link);
}

struct qpair_state_call {
	const struct nvmf_qpair *qpair;
	struct nvmf_qpair_info *info;
};

static void qpair_read_state_on_group(void *arg)
{
	struct qpair_state_call *call = arg;

	call->info->state = nvmf_qpair_get_state(call->qpair);
	call->info->state_ticks = call->qpair->state_ticks;
}

void nvmf_qpair_get_info(const struct nvmf_qpair *qpair, struct nvmf_qpair_info *info)
{
	struct qpair_state_call call = {.qpair = qpair, .info = info};

	*info = (struct nvmf_qpair_info){
		.cntlid = qpair->ctl_ctrlr->cntlid,
		.qid = qpair->ctl_qid,
		.listen_address = qpair->listen_address,
		.peer_address = qpair->peer_address,
		.tls_records = qpair->tls_records,
	};
	nvmf_auth_get_info(qpair, &info->auth);
	strcpy(info->hostnqn, qpair->ctl_ctrlr->hostnqn);
	snprintf(info->thread, sizeof(info->thread), "%.31s", thread_name(qpair->group->thread));
	thread_call(qpair->group->thread, qpair_read_state_on_group, &call);
}

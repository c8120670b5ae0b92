/* SPDX-License-Identifier: BSD-3-Clause */
/* Cross-Controller Reset: the command, its log page, and the same for other processes by RPC.
 *
 * A CIRN tells who can know a controller: its upper half is a random number of one subsystem of one process, its
 * instance. Controllers of this instance that are gone were ended properly, because a controller is freed only when the
 * last command of its queue pairs has ended: asking for the reset of one succeeds at once. Controllers of other
 * instances are left to the subsystem's peers, and without a peer that proves the end the reset fails. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include "nvmf/command_internal.h"
#include "nvmf/internal.h"

/* The host gets an immediate success if the impacted controller ends within this time. */
#define HOLD_US 100000
/* How many may wait for the end of one controller: one that does not end may be asked for again and again. */
#define WAITERS_MAX 64

/* A Cross-Controller Reset that was begun, and its entry in the log page. */
struct nvmf_cross_reset {
	struct nvmf_ctrlr *asker; /* NULL: gone, or reset; the impacted controller is still waited for */
	struct nvmf_ctrlr_name name;
	enum nvme_cross_ctrl_reset_ccrs status;
	bool waits;                        /* for a controller of this process, which cannot be cancelled */
	struct nvmf_peer_request *request; /* to the peers; NULL: there is none under way */
	struct nvmf_request *req;          /* the host's command, held back; NULL: it was answered */
	struct thread_timer hold_timer;
	uint64_t begun_ticks;
	TAILQ_ENTRY(nvmf_cross_reset) link;
};

/* ---- Names of controllers ---- */

static uint32_t cross_reset_random(void)
{
	uint32_t value;

	do {
		if (getrandom(&value, sizeof(value), 0) != sizeof(value)) {
			abort(); /* 4 bytes never block and never fail once the system is up: getrandom(2) */
		}
	} while (value == 0);
	return value;
}

static struct nvmf_ctrlr *ctrlr_find_by_cirn(const struct nvmf_subsystem *s, uint64_t cirn)
{
	struct nvmf_ctrlr *ctrlr;

	LIST_FOREACH (ctrlr, &s->ctrlrs_by_cirn[cirn % NVMF_CIRN_BUCKETS], cirn_link) {
		if (ctrlr->cirn == cirn) {
			return ctrlr;
		}
	}
	return NULL;
}

void nvmf_cross_reset_gone(struct nvmf_ctrlr *ctrlr)
{
	if (ctrlr->cirn != 0) {
		LIST_REMOVE(ctrlr, cirn_link);
		ctrlr->cirn = 0;
	}
}

static void ctrlr_give_name(struct nvmf_ctrlr *ctrlr)
{
	struct nvmf_subsystem *s = ctrlr->subsystem;
	uint8_t *ciu = &s->cius[ctrlr->cntlid - s->min_cntlid];
	uint64_t cirn;

	*ciu = (uint8_t)(*ciu % UINT8_MAX + 1);
	do {
		cirn = (uint64_t)s->instance_tag << 32 | cross_reset_random();
	} while (ctrlr_find_by_cirn(s, cirn) != NULL);
	nvmf_cross_reset_gone(ctrlr);
	ctrlr->ciu = *ciu;
	ctrlr->cirn = cirn;
	LIST_INSERT_HEAD(&s->ctrlrs_by_cirn[cirn % NVMF_CIRN_BUCKETS], ctrlr, cirn_link);
}

int nvmf_cross_reset_init(struct nvmf_ctrlr *ctrlr)
{
	struct nvmf_subsystem *s = ctrlr->subsystem;

	TAILQ_INIT(&ctrlr->cross_resets.list);
	ctrlr->cross_resets.hold_us = HOLD_US;
	if (s->subtype == NVMF_SUBTYPE_DISCOVERY) {
		return 0;
	}
	if (s->cius == NULL) {
		s->cius = calloc(s->max_cntlid - s->min_cntlid + 1u, sizeof(s->cius[0]));
	}
	if (s->cius == NULL) {
		return -ENOMEM;
	}
	if (s->instance_tag == 0) {
		s->instance_tag = cross_reset_random();
	}
	ctrlr_give_name(ctrlr);
	return 0;
}

void nvmf_cross_reset_renew(struct nvmf_ctrlr *ctrlr)
{
	if (ctrlr->subsystem->subtype != NVMF_SUBTYPE_DISCOVERY && ctrlr->was_ready) {
		ctrlr_give_name(ctrlr);
	}
	ctrlr->was_ready = true;
}

enum ctrlr_presence {
	CTRLR_HERE, /* it is one of this process's */
	CTRLR_GONE, /* it was one of this process's, or one of them before it was disabled and enabled again, and none
		       of its commands is carried out any more */
	CTRLR_FOREIGN,  /* only another process can know it */
	CTRLR_MISNAMED, /* a part of the name is that of a controller which has another name */
};

static enum ctrlr_presence ctrlr_presence_find(const struct nvmf_subsystem *s, const struct nvmf_ctrlr_name *name,
					       struct nvmf_ctrlr **ctrlr)
{
	if (s->instance_tag == 0 || name->cirn >> 32 != s->instance_tag) {
		return CTRLR_FOREIGN;
	}
	*ctrlr = ctrlr_find_by_cirn(s, name->cirn);
	if (*ctrlr != NULL) { /* a host that errs in the rest of the name must not hear that it is gone */
		return (*ctrlr)->cntlid == name->cntlid && (*ctrlr)->ciu == name->ciu ? CTRLR_HERE : CTRLR_MISNAMED;
	}
	const struct nvmf_ctrlr *same_id = nvmf_ctrlr_find(s, name->cntlid);
	return same_id != NULL && same_id->ciu == name->ciu ? CTRLR_MISNAMED : CTRLR_GONE;
}

static bool ctrlr_host_is(const struct nvmf_ctrlr *ctrlr, const char *hostnqn, const uint8_t hostid[16])
{
	return strcmp(ctrlr->hostnqn, hostnqn) == 0 && memcmp(ctrlr->hostid, hostid, sizeof(ctrlr->hostid)) == 0;
}

static bool ctrlr_cirn_matches(const struct nvmf_ctrlr *ctrlr, const struct nvmf_ctrlr_waiter *w)
{
	return ctrlr->cirn == w->cirn;
}

static bool ctrlr_has_room_for_waiter(const struct nvmf_ctrlr *ctrlr)
{
	const struct nvmf_ctrlr_waiter *w;
	unsigned n = 0;

	TAILQ_FOREACH (w, &ctrlr->subsystem->waiters, link) {
		n += w->match == ctrlr_cirn_matches && w->cirn == ctrlr->cirn;
	}
	return n < WAITERS_MAX;
}

/* Ends a controller, and calls done(arg, 0) when it is gone. -ENOMEM, -EBUSY (too many wait for that): nothing was
 * done. */
static int ctrlr_end(struct nvmf_ctrlr *ctrlr, const char *why, nvmf_done_fn done, void *arg)
{
	if (!ctrlr_has_room_for_waiter(ctrlr)) {
		return -EBUSY;
	}
	struct nvmf_ctrlr_waiter *w = calloc(1, sizeof(*w));
	if (w == NULL) {
		return -ENOMEM;
	}
	w->match = ctrlr_cirn_matches;
	w->cirn = ctrlr->cirn;
	w->done = done;
	w->arg = arg;
	nvmf_subsystem_end_ctrlrs(ctrlr->subsystem, w, why);
	return 0;
}

/* ---- The end of a reset ---- */

static void cross_reset_free(struct nvmf_cross_reset *r)
{
	thread_timer_stop(&r->hold_timer);
	if (r->asker != NULL) {
		TAILQ_REMOVE(&r->asker->cross_resets.list, r, link);
		r->asker->cross_resets.num--;
	}
	free(r);
}

static void cross_reset_answer(struct nvmf_cross_reset *r, uint32_t dw0, uint16_t status)
{
	struct nvmf_request *req = r->req;

	thread_timer_stop(&r->hold_timer);
	r->req = NULL;
	req->cqe.dw0 = htole32(dw0);
	nvmf_request_answer(req, status);
}

static void cross_reset_tell(const struct nvmf_cross_reset *r, const char *why)
{
	const struct nvmf_ctrlr *asker = r->asker;
	unsigned long long ms = (unsigned long long)(env_ticks_to_ns(env_ticks() - r->begun_ticks) / 1000000);

	TRACE(NVMF_CROSS_RESET, asker->trace_owner, 0, (uintptr_t)asker, r->name.cntlid, r->name.ciu, r->status);
	if (r->status == NVME_CROSS_CTRL_RESET_CCRS_SUCCESS) {
		log_limited(LOG_LEVEL_NOTICE, "%s: controller %u (CIU %u) of %s was reset after %llu ms, as it asked",
			    asker->hostnqn, r->name.cntlid, r->name.ciu, asker->subsystem->nqn, ms);
		nvmf_notice(NVMF_NOTICE_CROSS_RESET_DONE, NULL, "%s %s %u", asker->subsystem->nqn, asker->hostnqn,
			    r->name.cntlid);
	} else {
		log_limited(LOG_LEVEL_WARNING,
			    "%s asked controller %u of %s to reset controller %u (CIU %u), which failed: %s",
			    asker->hostnqn, asker->cntlid, asker->subsystem->nqn, r->name.cntlid, r->name.ciu, why);
		nvmf_notice_refused(NVMF_NOTICE_CROSS_RESET_FAILED, asker->subsystem->nqn, asker->hostnqn, why);
	}
}

/* The result is there. Within the hold time a success answers the command and leaves no entry; otherwise the entry
 * stays in the log page and the host gets an event. why: of a failure. */
static void cross_reset_finish(struct nvmf_cross_reset *r, bool ended, const char *why)
{
	struct nvmf_ctrlr *asker = r->asker;

	if (asker == NULL) {
		cross_reset_free(r);
		return;
	}
	r->status = ended ? NVME_CROSS_CTRL_RESET_CCRS_SUCCESS : NVME_CROSS_CTRL_RESET_CCRS_FAILED;
	cross_reset_tell(r, why);
	if (r->req != NULL && ended) {
		cross_reset_answer(r, NVME_CROSS_CTRL_RESET_IMMEDIATE, NVME_ST_SUCCESS);
		cross_reset_free(r);
		return;
	}
	if (r->req != NULL) {
		cross_reset_answer(r, 0, NVME_ST_SUCCESS);
	}
	nvmf_event_raise(asker, NVMF_EVENT_CROSS_RESET);
}

static void cross_reset_ctrlr_gone(void *arg, int status)
{
	struct nvmf_cross_reset *r = arg;

	r->waits = false;
	cross_reset_finish(r, true, NULL);
}

static void cross_reset_peers_answered(void *arg, bool ended, const char *why)
{
	struct nvmf_cross_reset *r = arg;

	r->request = NULL;
	cross_reset_finish(r, ended, why);
}

static void cross_reset_hold_ends(void *arg)
{
	cross_reset_answer(arg, 0, NVME_ST_SUCCESS);
}

void nvmf_cross_reset_forget(struct nvmf_ctrlr *ctrlr)
{
	struct nvmf_cross_reset *r;

	while ((r = TAILQ_FIRST(&ctrlr->cross_resets.list)) != NULL) {
		if (r->req != NULL) {
			cross_reset_answer(r, 0, NVME_ST(GENERIC, ABORT_QUEUE));
		}
		if (r->request != NULL) {
			nvmf_peers_cancel(r->request);
		}
		if (r->waits) { /* freed when the impacted controller is gone */
			TAILQ_REMOVE(&ctrlr->cross_resets.list, r, link);
			ctrlr->cross_resets.num--;
			r->asker = NULL;
		} else {
			cross_reset_free(r);
		}
	}
	nvmf_event_clear(ctrlr, NVMF_EVENT_CROSS_RESET);
}

/* ---- The command ---- */

static uint16_t cross_reset_check_room(const struct nvmf_ctrlr *asker, const struct nvmf_ctrlr_name *name)
{
	const struct nvmf_cross_reset *r;
	unsigned in_progress = 0;

	TAILQ_FOREACH (r, &asker->cross_resets.list, link) {
		if (r->status != NVME_CROSS_CTRL_RESET_CCRS_IN_PROGRESS) {
			continue;
		}
		if (r->name.cirn == name->cirn && r->name.cntlid == name->cntlid && r->name.ciu == name->ciu) {
			return NVME_ST(CMD_SPECIFIC, CROSS_CTRL_RESET_IN_PROGRESS);
		}
		in_progress++;
	}
	if (in_progress >= NVMF_CROSS_RESETS_MAX) {
		return NVME_ST(CMD_SPECIFIC, CROSS_CTRL_RESET_LIMIT);
	}
	return asker->cross_resets.num < NVME_CROSS_CTRL_RESET_ENTRIES
		       ? NVME_ST_SUCCESS
		       : NVME_ST(CMD_SPECIFIC, CROSS_CTRL_RESET_LOG_FULL);
}

static struct nvmf_cross_reset *cross_reset_new(struct nvmf_request *req, const struct nvmf_ctrlr_name *name)
{
	struct nvmf_ctrlr *asker = nvmf_request_ctrlr(req);
	struct nvmf_cross_reset *r = calloc(1, sizeof(*r));

	if (r == NULL) {
		return NULL;
	}
	r->asker = asker;
	r->name = *name;
	r->status = NVME_CROSS_CTRL_RESET_CCRS_IN_PROGRESS;
	r->req = req;
	r->begun_ticks = env_ticks();
	r->hold_timer = (struct thread_timer){.fn = cross_reset_hold_ends, .arg = r};
	TAILQ_INSERT_TAIL(&asker->cross_resets.list, r, link);
	asker->cross_resets.num++;
	return r;
}

/* The reset was not begun. */
static void cross_reset_fail(struct nvmf_cross_reset *r, int error)
{
	const struct nvmf_ctrlr *asker = r->asker;

	log_limited(LOG_LEVEL_WARNING, "%s asked controller %u of %s to reset controller %u (CIU %u), which fails: %s",
		    asker->hostnqn, asker->cntlid, asker->subsystem->nqn, r->name.cntlid, r->name.ciu,
		    error == -EBUSY ? "its end is waited for by too many already" : strerror(-error));
	cross_reset_answer(
		r, 0, error == -EBUSY ? NVME_ST(CMD_SPECIFIC, CROSS_CTRL_RESET_LIMIT) : NVME_ST(GENERIC, INTERNAL));
	cross_reset_free(r);
}

static void cross_reset_begin_here(struct nvmf_cross_reset *r, struct nvmf_ctrlr *impacted)
{
	struct nvmf_ctrlr *asker = r->asker;
	char why[128];

	snprintf(why, sizeof(why), "its host had controller %u reset it (Cross-Controller Reset)", asker->cntlid);
	nvmf_notice(NVMF_NOTICE_CROSS_RESET, NULL, "%s %s %u", asker->subsystem->nqn, asker->hostnqn, r->name.cntlid);
	r->waits = true;
	int rc = ctrlr_end(impacted, why, cross_reset_ctrlr_gone, r);
	if (rc != 0) {
		r->waits = false;
		cross_reset_fail(r, rc);
	}
}

static void cross_reset_begin_elsewhere(struct nvmf_cross_reset *r)
{
	const char *why;

	r->request = nvmf_peers_ask(r->asker, &r->name, cross_reset_peers_answered, r, &why);
	if (r->request == NULL) {
		cross_reset_finish(r, false, why);
	}
}

static void cross_reset_refuse(struct nvmf_request *req, const struct nvmf_ctrlr_name *name, uint16_t where,
			       const char *why)
{
	const struct nvmf_ctrlr *asker = nvmf_request_ctrlr(req);

	log_limited(LOG_LEVEL_WARNING,
		    "%s asked controller %u of %s to reset controller %u (CIU %u), which is refused: %s",
		    asker->hostnqn, asker->cntlid, asker->subsystem->nqn, name->cntlid, name->ciu, why);
	nvmf_notice_refused(NVMF_NOTICE_CROSS_RESET_FAILED, asker->subsystem->nqn, asker->hostnqn, why);
	nvmf_request_answer_at(req, NVME_ST_DNR(GENERIC, INVALID_FIELD), where);
}

static void cross_reset_begin(struct nvmf_request *req, const struct nvmf_ctrlr_name *name, struct nvmf_ctrlr *impacted)
{
	struct nvmf_ctrlr *asker = nvmf_request_ctrlr(req);
	uint16_t status = cross_reset_check_room(asker, name);
	struct nvmf_cross_reset *r = status == NVME_ST_SUCCESS ? cross_reset_new(req, name) : NULL;

	if (r == NULL) {
		status = status != NVME_ST_SUCCESS ? status : NVME_ST(GENERIC, INTERNAL);
		log_limited(LOG_LEVEL_WARNING,
			    "%s asked controller %u of %s to reset controller %u (CIU %u): refused with status 0x%x, "
			    "%u entries are in its log page",
			    asker->hostnqn, asker->cntlid, asker->subsystem->nqn, name->cntlid, name->ciu, status,
			    asker->cross_resets.num);
		nvmf_request_answer_at(req, status, NVMF_WHERE_OPCODE);
		return;
	}
	log_limited(LOG_LEVEL_NOTICE, "%s asks controller %u of %s to reset controller %u (CIU %u)%s", asker->hostnqn,
		    asker->cntlid, asker->subsystem->nqn, name->cntlid, name->ciu,
		    impacted != NULL ? "" : ", which is not this process's: its peers are asked");
	TRACE(NVMF_CROSS_RESET, asker->trace_owner, 0, (uintptr_t)asker, name->cntlid, name->ciu, r->status);
	thread_timer_start(&r->hold_timer, asker->cross_resets.hold_us);
	if (impacted != NULL) {
		cross_reset_begin_here(r, impacted);
	} else {
		cross_reset_begin_elsewhere(r);
	}
}

void nvmf_cross_reset_run(struct nvmf_request *req)
{
	struct nvmf_ctrlr *asker = nvmf_request_ctrlr(req), *impacted = NULL;
	struct nvmf_ctrlr_name name;
	uint16_t where;
	uint16_t status = nvmf_decode_cross_reset(req->sqe, &name, &where);

	if (status != NVME_ST_SUCCESS) {
		nvmf_request_answer_at(req, status, where);
		return;
	}
	switch (ctrlr_presence_find(asker->subsystem, &name, &impacted)) {
	case CTRLR_GONE:
		req->cqe.dw0 = htole32(NVME_CROSS_CTRL_RESET_IMMEDIATE);
		nvmf_request_answer(req, NVME_ST_SUCCESS);
		break;
	case CTRLR_MISNAMED:
		cross_reset_refuse(req, &name, NVMF_WHERE_CDW12, "a controller has a part of that name only");
		break;
	case CTRLR_FOREIGN:
		cross_reset_begin(req, &name, NULL);
		break;
	default:
		if (impacted == asker) {
			cross_reset_refuse(req, &name, NVMF_WHERE_CDW10, "a controller does not reset itself this way");
		} else if (!ctrlr_host_is(impacted, asker->hostnqn, asker->hostid)) {
			cross_reset_refuse(req, &name, NVMF_WHERE_CDW10,
					   "that controller is another host's (host NQN and host identifier)");
		} else {
			cross_reset_begin(req, &name, impacted);
		}
	}
}

/* ---- The log page ---- */

static void cross_reset_put_entry(const struct nvmf_cross_reset *r, struct nvmf_window *w, uint64_t at)
{
	bool initiated = r->waits || r->status == NVME_CROSS_CTRL_RESET_CCRS_SUCCESS;
	const struct nvme_cross_ctrl_reset_entry entry = {
		.icid = htole16(r->name.cntlid),
		.ciu = r->name.ciu,
		.acid = htole16(NVME_CROSS_CTRL_RESET_ACID_NONE),
		.ccrs = (uint8_t)r->status,
		.ccrf = (uint8_t)(initiated ? NVME_CROSS_CTRL_RESET_CCRF_V | NVME_CROSS_CTRL_RESET_CCRF_CLRI : 0),
	};

	nvmf_window_put(w, at, &entry, sizeof(entry));
}

uint64_t nvmf_cross_reset_log(struct nvmf_ctrlr *ctrlr, const struct nvmf_get_log *cmd, struct nvmf_window *w)
{
	const struct {
		__le16 ne;
		uint8_t rsvd2[6];
	} header = {.ne = htole16((uint16_t)ctrlr->cross_resets.num)};
	bool remove = (cmd->lsp & NVME_CROSS_CTRL_RESET_LSP_RMC) != 0;
	uint64_t at = sizeof(header), end = cmd->offset + cmd->length;
	struct nvmf_cross_reset *r, *next;

	nvmf_window_put(w, 0, &header, sizeof(header));
	for (r = TAILQ_FIRST(&ctrlr->cross_resets.list); r != NULL; r = next) {
		uint64_t entry_end = at + sizeof(struct nvme_cross_ctrl_reset_entry);
		bool seen = at >= cmd->offset && entry_end <= end;
		next = TAILQ_NEXT(r, link);
		cross_reset_put_entry(r, w, at);
		at = entry_end;
		if (remove && seen && r->status != NVME_CROSS_CTRL_RESET_CCRS_IN_PROGRESS) {
			cross_reset_free(r);
		}
	}
	return sizeof(struct nvme_cross_ctrl_reset_log);
}

bool nvmf_ctrlr_cross_reset_info(const struct nvmf_ctrlr *ctrlr, unsigned index, struct nvmf_cross_reset_info *info)
{
	const struct nvmf_cross_reset *r;

	TAILQ_FOREACH (r, &ctrlr->cross_resets.list, link) {
		if (index-- == 0) {
			*info = (struct nvmf_cross_reset_info){
				.name = r->name,
				.status = r->status,
				.begun_ticks = r->begun_ticks,
				.peers_asked = r->request != NULL,
			};
			return true;
		}
	}
	return false;
}

/* ---- For other processes ---- */

int nvmf_subsystem_reset_ctrlr(struct nvmf_subsystem *s, const struct nvmf_ctrlr_name *name, const char *hostnqn,
			       const uint8_t hostid[16], nvmf_done_fn done, void *arg)
{
	struct nvmf_ctrlr *ctrlr;

	switch (ctrlr_presence_find(s, name, &ctrlr)) {
	case CTRLR_FOREIGN:
		return -ENOENT;
	case CTRLR_GONE:
		done(arg, 0);
		return 0;
	case CTRLR_MISNAMED:
		return -EINVAL;
	default:
		break;
	}
	if (!ctrlr_host_is(ctrlr, hostnqn, hostid)) {
		log_warning("%s of %s: a peer asked for the reset of controller %u, which is another host's", hostnqn,
			    s->nqn, name->cntlid);
		return -EACCES;
	}
	if (ctrlr->state != NVMF_CTRLR_DESTROYING) {
		log_notice("a peer of %s asks for the reset of controller %u (CIU %u) of %s", s->nqn, name->cntlid,
			   name->ciu, hostnqn);
		nvmf_notice(NVMF_NOTICE_CROSS_RESET, NULL, "%s %s %u", s->nqn, hostnqn, name->cntlid);
	}
	return ctrlr_end(ctrlr, "its host had a peer reset it (Cross-Controller Reset)", done, arg);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Asymmetric namespace access: the states, their log page, and the events that tell hosts of changes. */
#include <errno.h>
#include <stdlib.h>
#include "nvmf/internal.h"

static const struct {
	enum nvme_ana_state state;
	const char *name;
	uint16_t status;
} states[] = {
	{NVME_ANA_STATE_OPTIMIZED, "optimized", NVME_ST_SUCCESS},
	{NVME_ANA_STATE_NONOPTIMIZED, "non_optimized", NVME_ST_SUCCESS},
	{NVME_ANA_STATE_INACCESSIBLE, "inaccessible", NVME_ST(PATH, ANA_INACCESSIBLE)},
	{NVME_ANA_STATE_PERSISTENT_LOSS, "persistent_loss", NVME_ST(PATH, ANA_PERSISTENT_LOSS)},
	{NVME_ANA_STATE_CHANGE, "change", NVME_ST(PATH, ANA_TRANSITION)},
};

uint16_t nvmf_ana_status(enum nvme_ana_state state)
{
	for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
		if (states[i].state == state) {
			return states[i].status;
		}
	}
	return NVME_ST(PATH, ANA_INTERNAL_PATH_ERROR);
}

const char *nvmf_ana_state_name(enum nvme_ana_state state)
{
	for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
		if (states[i].state == state) {
			return states[i].name;
		}
	}
	return "unknown";
}

enum nvme_ana_state nvmf_ana_of(const struct nvmf_ctrlr *ctrlr, const struct nvmf_ns *ns)
{
	return ctrlr->ana != NULL ? nvmf_ana_get(ctrlr->ana, ns->opts.anagrpid) : NVME_ANA_STATE_OPTIMIZED;
}

/* ---- Life ---- */

struct nvmf_ana *nvmf_ana_create(uint32_t num_groups, enum nvme_ana_state state)
{
	struct nvmf_ana *ana = calloc(1, sizeof(*ana) + num_groups * sizeof(ana->groups[0]));

	if (ana == NULL) {
		return NULL;
	}
	ana->refs = 1;
	ana->change_count = 1; /* 0 means that changes are not counted (Base 5.16.1.13) */
	for (uint32_t i = 0; i < num_groups; i++) {
		ana->groups[i].change_count = 1;
		atomic_init(&ana->groups[i].state, (uint8_t)state);
	}
	return ana;
}

struct nvmf_ana *nvmf_ana_hold(struct nvmf_ana *ana)
{
	if (ana != NULL) {
		ana->refs++;
	}
	return ana;
}

void nvmf_ana_release(struct nvmf_ana *ana)
{
	if (ana != NULL && --ana->refs == 0) {
		free(ana);
	}
}

/* ---- Changes ---- */

static bool ana_has_visible_member(const struct nvmf_ctrlr *ctrlr, uint32_t anagrpid)
{
	const struct nvmf_ns *ns;

	TAILQ_FOREACH (ns, &ctrlr->subsystem->ana_members[anagrpid - 1], ana_link) {
		if (nvmf_ctrlr_sees(ctrlr, ns->nsid)) {
			return true;
		}
	}
	return false;
}

static void ana_notify_hosts(struct nvmf_subsystem *s, const struct nvmf_ana *ana, uint32_t anagrpid)
{
	struct nvmf_ctrlr *ctrlr;

	TAILQ_FOREACH (ctrlr, &s->ctrlrs, link) {
		if (ctrlr->ana == ana && ana_has_visible_member(ctrlr, anagrpid)) {
			nvmf_event_raise(ctrlr, NVMF_EVENT_ANA_CHANGED);
		}
	}
}

static void ana_count_change(struct nvmf_ana *ana, uint32_t anagrpid)
{
	ana->groups[anagrpid - 1].change_count = ++ana->change_count;
}

static void ana_set_state(struct nvmf_ana *ana, uint32_t anagrpid, enum nvme_ana_state state)
{
	if (nvmf_ana_get(ana, anagrpid) != state) {
		atomic_store_explicit(&ana->groups[anagrpid - 1].state, (uint8_t)state, memory_order_relaxed);
		ana_count_change(ana, anagrpid);
	}
}

/* Hosts get the event after every group refuses the commands that the new state forbids. Otherwise a command that a
 * host sends through another path after the event could be overtaken by one that it sent through this path before. */
static void ana_publish(struct nvmf_subsystem *s, const struct nvmf_ana *ana, uint64_t since)
{
	if (s->views_open) {
		nvmf_views_update_all(s);
	}
	for (uint32_t g = 1; g <= s->max_nsid; g++) {
		if (ana->groups[g - 1].change_count > since) {
			ana_notify_hosts(s, ana, g);
		}
	}
}

int nvmf_listener_set_ana_state(struct nvmf_subsystem *s, const struct nvmf_address *address, uint32_t anagrpid,
				enum nvme_ana_state state)
{
	struct nvmf_listener *l = nvmf_subsystem_find_listener(s, address);
	uint32_t first = anagrpid != 0 ? anagrpid : 1;
	uint32_t last = anagrpid != 0 ? anagrpid : s->max_nsid;

	if (nvmf_subsystem_refuse_change(s, "an ANA state") != 0) {
		return -EBUSY;
	}
	if (l == NULL) {
		return -ENOENT;
	}
	if (l->ana == NULL) {
		return -ENOTSUP;
	}
	if (anagrpid > s->max_nsid) {
		return -EINVAL;
	}
	uint64_t since = l->ana->change_count;
	for (uint32_t g = first; g <= last; g++) {
		ana_set_state(l->ana, g, state);
	}
	if (l->ana->change_count != since) {
		ana_publish(s, l->ana, since);
		nvmf_notice(NVMF_NOTICE_ANA_CHANGE, NULL, "%s %s %s %s %u %s", s->nqn, address->trtype, address->traddr,
			    address->trsvcid, anagrpid, nvmf_ana_state_name(state));
	}
	return 0;
}

enum nvme_ana_state nvmf_listener_ana_state(const struct nvmf_listener *l, uint32_t anagrpid)
{
	return l->ana != NULL ? nvmf_ana_get(l->ana, anagrpid) : NVME_ANA_STATE_OPTIMIZED;
}

bool nvmf_ana_restricts(const struct nvmf_subsystem *s, uint32_t anagrpid)
{
	const struct nvmf_listener *l;

	TAILQ_FOREACH (l, &s->listeners, link) {
		if (l->ana != NULL && nvmf_ana_status(nvmf_ana_get(l->ana, anagrpid)) != NVME_ST_SUCCESS) {
			return true;
		}
	}
	return false;
}

/* ---- Members ---- */

void nvmf_ana_members_changed(const struct nvmf_ns *ns)
{
	struct nvmf_listener *l;

	if (ns->subsystem->ana_members == NULL) {
		return;
	}
	TAILQ_FOREACH (l, &ns->subsystem->listeners, link) {
		ana_count_change(l->ana, ns->opts.anagrpid);
	}
}

void nvmf_ana_join(struct nvmf_ns *ns)
{
	struct nvmf_subsystem *s = ns->subsystem;
	struct nvmf_ns *next;

	if (s->ana_members == NULL) {
		return;
	}
	struct nvmf_ana_members *members = &s->ana_members[ns->opts.anagrpid - 1];
	TAILQ_FOREACH (next, members, ana_link) {
		if (next->nsid > ns->nsid) {
			break;
		}
	}
	if (next != NULL) {
		TAILQ_INSERT_BEFORE(next, ns, ana_link);
	} else {
		TAILQ_INSERT_TAIL(members, ns, ana_link);
	}
	nvmf_ana_members_changed(ns);
}

void nvmf_ana_leave(struct nvmf_ns *ns)
{
	struct nvmf_subsystem *s = ns->subsystem;

	if (s->ana_members != NULL) {
		TAILQ_REMOVE(&s->ana_members[ns->opts.anagrpid - 1], ns, ana_link);
		nvmf_ana_members_changed(ns);
	}
}

static void ana_notify_move(struct nvmf_subsystem *s, uint32_t nsid)
{
	struct nvmf_ctrlr *ctrlr;

	TAILQ_FOREACH (ctrlr, &s->ctrlrs, link) {
		if (nvmf_ctrlr_sees(ctrlr, nsid)) {
			nvmf_event_raise(ctrlr, NVMF_EVENT_ANA_CHANGED);
		}
	}
}

/* For hosts this is not a change of the namespace's attributes (Base 5.2.1, Namespace Attribute Changed). */
int nvmf_subsystem_set_ns_ana_group(struct nvmf_subsystem *s, uint32_t nsid, uint32_t anagrpid)
{
	struct nvmf_ns *ns = nvmf_ns_find(s, nsid);

	if (nvmf_subsystem_refuse_change(s, "an ANA group") != 0) {
		return -EBUSY;
	}
	if (ns == NULL) {
		return -ENOENT;
	}
	if (anagrpid == 0 || anagrpid > s->max_nsid) {
		log_error("anagrpid %u: allowed are 1 to %u", anagrpid, s->max_nsid);
		return -EINVAL;
	}
	if (anagrpid == ns->opts.anagrpid) {
		return 0;
	}
	nvmf_ana_leave(ns);
	ns->opts.anagrpid = anagrpid;
	nvmf_ana_join(ns);
	if (s->views_open) {
		nvmf_views_update_ns(s, ns);
	}
	if (s->ana_reporting) {
		ana_notify_move(s, nsid);
		nvmf_notice(NVMF_NOTICE_ANA_CHANGE, NULL, "%s namespace %u %u", s->nqn, nsid, anagrpid);
	}
	return 0;
}

/* ---- The log page ---- */

/* Writes a group's descriptor and, unless the host wants groups only, its nsids. Returns the offset after it. */
static uint64_t ana_put_group(const struct nvmf_ctrlr *ctrlr, uint32_t anagrpid, bool groups_only,
			      struct nvmf_window *w, uint64_t at)
{
	struct nvme_ana_group_desc desc = {
		.grpid = htole32(anagrpid),
		.chgcnt = htole64(ctrlr->ana->groups[anagrpid - 1].change_count),
		.state = (uint8_t)nvmf_ana_get(ctrlr->ana, anagrpid),
	};
	uint64_t end = at + sizeof(desc);
	const struct nvmf_ns *ns;
	uint32_t n = 0;

	TAILQ_FOREACH (ns, &ctrlr->subsystem->ana_members[anagrpid - 1], ana_link) {
		uint32_t nsid = htole32(ns->nsid);
		if (!groups_only && nvmf_ctrlr_sees(ctrlr, ns->nsid)) {
			nvmf_window_put(w, end, &nsid, sizeof(nsid));
			end += sizeof(nsid);
			n++;
		}
	}
	desc.nnsids = htole32(n);
	nvmf_window_put(w, at, &desc, sizeof(desc));
	return end;
}

/* Groups without a namespace that the host sees are left out. */
uint64_t nvmf_ana_log(const struct nvmf_ctrlr *ctrlr, const struct nvmf_get_log *cmd, struct nvmf_window *w)
{
	const bool groups_only = (cmd->lsp & NVME_LOG_ANA_LSP_RGO_GROUPS_ONLY) != 0;
	struct nvme_ana_log log = {.chgcnt = htole64(ctrlr->ana->change_count)};
	uint64_t at = sizeof(log);
	uint16_t ngrps = 0;

	for (uint32_t g = 1; g <= ctrlr->subsystem->max_nsid && ngrps < UINT16_MAX; g++) {
		if (ana_has_visible_member(ctrlr, g)) {
			at = ana_put_group(ctrlr, g, groups_only, w, at);
			ngrps++;
		}
	}
	log.ngrps = htole16(ngrps);
	nvmf_window_put(w, 0, &log, sizeof(log));
	return at;
}

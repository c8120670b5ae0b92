/* SPDX-License-Identifier: BSD-3-Clause */
/* The discovery log: the addresses that a host may connect to (Base 5.16.1.23). It is made anew for each read, and only
 * the part in the host's window is written. A host that reads it with several commands notices a change by the
 * generation counter. */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "nvmf/internal.h"

#define PORTID_REFERRAL 0xffff

struct log_writer {
	struct nvmf_ctrlr *ctrlr;
	struct nvmf_window *w;
	uint64_t numrec;
};

static void discovery_put_entry(struct log_writer *lw, const struct nvmf_disc_log_entry *entry)
{
	uint64_t at = sizeof(struct nvmf_discovery_log) + lw->numrec * sizeof(*entry);

	nvmf_window_put(lw->w, at, entry, sizeof(*entry));
	lw->numrec++;
}

static void discovery_fill_address(struct nvmf_disc_log_entry *e, const struct nvmf_address *address)
{
	e->trtype = (uint8_t)nvmf_trtype_number(address->trtype);
	e->adrfam = address->adrfam;
	nvmf_put_padded(e->trsvcid, sizeof(e->trsvcid), address->trsvcid);
	nvmf_put_padded(e->traddr, sizeof(e->traddr), address->traddr);
}

static void discovery_put_listener(struct log_writer *lw, const struct nvmf_subsystem *s, const struct nvmf_listener *l)
{
	struct nvmf_transport *t = l->transport;
	struct nvmf_disc_log_entry e = {
		.subtype = s->subtype == NVMF_SUBTYPE_DISCOVERY ? NVME_NQN_CURR : NVME_NQN_NVME,
		.treq = (l->listen->secure ? NVMF_TREQ_REQUIRED : NVMF_TREQ_NOT_SPECIFIED) | NVMF_TREQ_DISABLE_SQFLOW,
		.portid = htole16(l->listen->portid),
		.cntlid = htole16(s->static_ctrlrs ? NVMF_CNTLID_STATIC_ANY : NVMF_CNTLID_DYNAMIC),
		.asqsz = htole16((uint16_t)t->opts.max_aq_depth),
	};

	discovery_fill_address(&e, &l->listen->address);
	snprintf(e.subnqn, sizeof(e.subnqn), "%s", s->nqn);
	t->ops->discover(t, &l->listen->address, &e);
	discovery_put_entry(lw, &e);
}

static void discovery_put_referral(struct log_writer *lw, const struct nvmf_referral *r)
{
	struct nvmf_disc_log_entry e = {
		.subtype = strcmp(r->subnqn, NVMF_DISCOVERY_NQN) == 0 ? NVME_NQN_DISC : NVME_NQN_NVME,
		.treq = r->secure_channel ? NVMF_TREQ_REQUIRED : NVMF_TREQ_NOT_SPECIFIED,
		.portid = htole16(PORTID_REFERRAL),
		.cntlid = htole16(NVMF_CNTLID_DYNAMIC),
		.asqsz = htole16(32), /* the smallest admin queue size that is allowed (Base 6.3) */
	};
	struct nvmf_transport *t = nvmf_transport_find(lw->ctrlr->subsystem->tgt, r->address.trtype);

	discovery_fill_address(&e, &r->address);
	snprintf(e.subnqn, sizeof(e.subnqn), "%s", r->subnqn);
	if (t != NULL) {
		t->ops->discover(t, &r->address, &e);
	}
	discovery_put_entry(lw, &e);
}

/* Whether the target's discovery filter shows a listener to a host that reads the log through this address. */
static bool discovery_passes_filter(const struct log_writer *lw, const struct nvmf_address *a)
{
	uint32_t filter = lw->ctrlr->subsystem->tgt->discovery_filter;
	const struct nvmf_address *via = &lw->ctrlr->listen_address;
	bool same_traddr =
		strcasecmp(a->traddr, via->traddr) == 0 || strcasecmp(a->traddr, lw->ctrlr->local_address.traddr) == 0;

	return (!(filter & NVMF_DISCOVERY_MATCH_TRTYPE) || strcasecmp(a->trtype, via->trtype) == 0) &&
	       (!(filter & NVMF_DISCOVERY_MATCH_TRADDR) || same_traddr) &&
	       (!(filter & NVMF_DISCOVERY_MATCH_TRSVCID) || strcmp(a->trsvcid, via->trsvcid) == 0);
}

static void discovery_put_subsystem(struct log_writer *lw, const struct nvmf_subsystem *s)
{
	const struct nvmf_listener *l;

	if (!s->connectable || !nvmf_subsystem_host_allowed(s, lw->ctrlr->hostnqn)) {
		return;
	}
	TAILQ_FOREACH (l, &s->listeners, link) {
		if (discovery_passes_filter(lw, &l->listen->address)) {
			discovery_put_listener(lw, s, l);
		}
	}
}

uint64_t nvmf_discovery_log(struct nvmf_ctrlr *ctrlr, struct nvmf_window *w)
{
	struct nvmf_tgt *tgt = ctrlr->subsystem->tgt;
	struct log_writer lw = {.ctrlr = ctrlr, .w = w};
	const struct nvmf_referral *r;

	for (struct nvmf_subsystem *s = nvmf_subsystem_next(tgt, NULL); s != NULL; s = nvmf_subsystem_next(tgt, s)) {
		discovery_put_subsystem(&lw, s);
	}
	for (r = nvmf_referral_next(tgt, NULL); r != NULL; r = nvmf_referral_next(tgt, r)) {
		discovery_put_referral(&lw, r);
	}
	struct nvmf_discovery_log header = {.genctr = htole64(tgt->generation), .numrec = htole64(lw.numrec)};
	nvmf_window_put(w, 0, &header, sizeof(header));
	return sizeof(header) + lw.numrec * sizeof(struct nvmf_disc_log_entry);
}

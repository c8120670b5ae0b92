/* SPDX-License-Identifier: BSD-3-Clause */
/* The addresses where hosts reach subsystems, and referrals to other discovery services. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "nvmf/internal.h"

struct nvmf_listener *nvmf_subsystem_find_listener(const struct nvmf_subsystem *s, const struct nvmf_address *address)
{
	struct nvmf_listener *l;

	TAILQ_FOREACH (l, &s->listeners, link) {
		if (nvmf_address_equal(&l->listen->address, address)) {
			return l;
		}
	}
	return NULL;
}

/* The discovery subsystem is reachable at every address where a transport listens. */
bool nvmf_subsystem_reachable(const struct nvmf_subsystem *s, const struct nvmf_address *address)
{
	return s->subtype == NVMF_SUBTYPE_DISCOVERY || nvmf_subsystem_find_listener(s, address) != NULL;
}

int nvmf_subsystem_add_listener(struct nvmf_subsystem *s, const struct nvmf_address *address)
{
	return nvmf_subsystem_add_listener_ana(s, address, NVME_ANA_STATE_OPTIMIZED);
}

static struct nvmf_listener *listener_alloc(const struct nvmf_subsystem *s, struct nvmf_transport *t,
					    enum nvme_ana_state state)
{
	struct nvmf_listener *l = calloc(1, sizeof(*l));

	if (l == NULL) {
		return NULL;
	}
	l->transport = t;
	if (s->ana_reporting) {
		l->ana = nvmf_ana_create(s->max_nsid, state);
		if (l->ana == NULL) {
			free(l);
			return NULL;
		}
	}
	return l;
}

static void listener_dealloc(struct nvmf_listener *l)
{
	nvmf_ana_release(l->ana);
	free(l);
}

int nvmf_subsystem_add_listener_ana(struct nvmf_subsystem *s, const struct nvmf_address *address,
				    enum nvme_ana_state state)
{
	return nvmf_subsystem_add_listener_secure(s, address, state, false);
}

static void listener_tell_mdns(const struct nvmf_subsystem *s)
{
	if (s == s->tgt->discovery) {
		nvmf_mdns_listeners_changed(s->tgt);
	}
}

int nvmf_subsystem_add_listener_secure(struct nvmf_subsystem *s, const struct nvmf_address *address,
				       enum nvme_ana_state state, bool secure)
{
	struct nvmf_transport *t = nvmf_transport_find(s->tgt, address->trtype);
	char allowed[NVMF_ERROR_MAX];
	const char *field;

	if (nvmf_subsystem_refuse_change(s, "a listener") != 0) {
		return -EBUSY;
	}
	if (nvmf_tgt_check_listen_address(s->tgt, address, &field, allowed) != 0) {
		log_error("listen_address: %s is \"%s\": %s", field, nvmf_address_field(address, field), allowed);
		return -EINVAL;
	}
	if (nvmf_subsystem_find_listener(s, address) != NULL) {
		return -EEXIST;
	}
	if (state != NVME_ANA_STATE_OPTIMIZED && !s->ana_reporting) {
		return -ENOTSUP;
	}
	struct nvmf_listener *l = listener_alloc(s, t, state);
	if (l == NULL) {
		return -ENOMEM;
	}
	l->secure = secure;
	int rc = nvmf_transport_listen(t, address, secure && nvmf_transport_has_tls(t), &l->listen);
	if (rc != 0) {
		listener_dealloc(l);
		return rc;
	}
	TAILQ_INSERT_TAIL(&s->listeners, l, link);
	if (s->views_open && nvmf_ana_status(state) != NVME_ST_SUCCESS) {
		nvmf_views_update_all(s);
	}
	nvmf_notice(NVMF_NOTICE_LISTENER_ADD, NULL, "%s %s %s %s", s->nqn, address->trtype, address->traddr,
		    address->trsvcid);
	USDT(nvmf_subsystem_add_listener, s->nqn, address->trtype, address->traddr, address->trsvcid);
	listener_tell_mdns(s);
	nvmf_tgt_discovery_changed(s->tgt);
	return 0;
}

void nvmf_subsystem_settle_listeners(struct nvmf_subsystem *s, const char *trtype, nvmf_done_fn done, void *arg)
{
	struct nvmf_transport *t = nvmf_transport_find(s->tgt, trtype);

	if (t != NULL && t->ops->settle != NULL) {
		t->ops->settle(t, done, arg);
	} else {
		done(arg, 0);
	}
}

void nvmf_listener_free(struct nvmf_subsystem *s, struct nvmf_listener *l)
{
	nvmf_notice(NVMF_NOTICE_LISTENER_REMOVE, NULL, "%s %s %s %s", s->nqn, l->listen->address.trtype,
		    l->listen->address.traddr, l->listen->address.trsvcid);
	USDT(nvmf_subsystem_remove_listener, s->nqn, l->listen->address.trtype, l->listen->address.traddr,
	     l->listen->address.trsvcid);
	TAILQ_REMOVE(&s->listeners, l, link);
	listener_tell_mdns(s);
	nvmf_transport_unlisten(l->transport, l->listen);
	listener_dealloc(l);
}

static bool ctrlr_listener_matches(const struct nvmf_ctrlr *ctrlr, const struct nvmf_ctrlr_waiter *w)
{
	return nvmf_address_equal(&ctrlr->listen_address, &w->address);
}

void nvmf_subsystem_remove_listener(struct nvmf_subsystem *s, const struct nvmf_address *address, nvmf_done_fn done,
				    void *arg)
{
	struct nvmf_listener *l = nvmf_subsystem_find_listener(s, address);
	struct nvmf_ctrlr_waiter *w = calloc(1, sizeof(*w));

	int rc = nvmf_subsystem_refuse_change(s, "the removal of a listener");

	if (rc != 0 || l == NULL || w == NULL) {
		free(w);
		done(arg, rc != 0 ? rc : l == NULL ? -ENOENT : -ENOMEM);
		return;
	}
	w->match = ctrlr_listener_matches;
	w->address = l->listen->address;
	w->done = done;
	w->arg = arg;
	nvmf_listener_free(s, l);
	nvmf_tgt_discovery_changed(s->tgt);
	nvmf_subsystem_end_ctrlrs(s, w, "its listener was removed");
}

struct nvmf_listener *nvmf_listener_next(const struct nvmf_subsystem *s, const struct nvmf_listener *after)
{
	return after == NULL ? TAILQ_FIRST(&s->listeners) : TAILQ_NEXT(after, link);
}

const struct nvmf_address *nvmf_listener_address(const struct nvmf_listener *l)
{
	return &l->listen->address;
}

bool nvmf_listener_is_secure(const struct nvmf_listener *l)
{
	return l->secure;
}

/* ---- Referrals ---- */

static struct nvmf_referral_node *referral_find(struct nvmf_tgt *tgt, const struct nvmf_address *address,
						const char *subnqn)
{
	struct nvmf_referral_node *node;

	TAILQ_FOREACH (node, &tgt->referrals, link) {
		if (nvmf_address_equal(&node->referral.address, address) &&
		    strcmp(node->referral.subnqn, subnqn) == 0) {
			return node;
		}
	}
	return NULL;
}

static const char *referral_subnqn(const char *subnqn)
{
	return subnqn != NULL && subnqn[0] != 0 ? subnqn : NVMF_DISCOVERY_NQN;
}

int nvmf_tgt_add_referral(struct nvmf_tgt *tgt, const struct nvmf_referral *referral)
{
	const char *subnqn = referral_subnqn(referral->subnqn);
	char why[NVMF_ERROR_MAX];

	if (nvmf_tgt_check_open(tgt, why) != 0) {
		log_error("a referral: %s", why);
		return -EBUSY;
	}
	if (!nvmf_nqn_is_valid(subnqn)) {
		log_error("subnqn \"%s\" is not an NQN", subnqn);
		return -EINVAL;
	}
	if (nvmf_trtype_number(referral->address.trtype) <
	    0) { /* hosts use it; this program need not have the transport */
		log_error("trtype \"%s\" is no transport of NVMe over fabrics", referral->address.trtype);
		return -EINVAL;
	}
	char allowed[NVMF_ERROR_MAX];
	const char *field;
	if (nvmf_address_check(&referral->address, &field, allowed) != 0) {
		log_error("address of a referral: %s is \"%s\": %s", field,
			  nvmf_address_field(&referral->address, field), allowed);
		return -EINVAL;
	}
	if (referral_find(tgt, &referral->address, subnqn) != NULL) {
		return -EEXIST;
	}
	struct nvmf_referral_node *node = calloc(1, sizeof(*node));
	if (node == NULL) {
		return -ENOMEM;
	}
	node->referral = *referral;
	memmove(node->referral.subnqn, subnqn, strlen(subnqn) + 1); /* it may be the default */
	TAILQ_INSERT_TAIL(&tgt->referrals, node, link);
	nvmf_tgt_discovery_changed(tgt);
	return 0;
}

int nvmf_tgt_remove_referral(struct nvmf_tgt *tgt, const struct nvmf_address *address, const char *subnqn)
{
	struct nvmf_referral_node *node = referral_find(tgt, address, referral_subnqn(subnqn));
	char why[NVMF_ERROR_MAX];

	if (nvmf_tgt_check_open(tgt, why) != 0) {
		log_error("the removal of a referral: %s", why);
		return -EBUSY;
	}
	if (node == NULL) {
		return -ENOENT;
	}
	TAILQ_REMOVE(&tgt->referrals, node, link);
	free(node);
	nvmf_tgt_discovery_changed(tgt);
	return 0;
}

const struct nvmf_referral *nvmf_referral_next(struct nvmf_tgt *tgt, const struct nvmf_referral *after)
{
	const struct nvmf_referral_node *node =
		after == NULL ? TAILQ_FIRST(&tgt->referrals)
			      : TAILQ_NEXT(container_of(after, struct nvmf_referral_node, referral), link);

	return node != NULL ? &node->referral : NULL;
}

void nvmf_referrals_free(struct nvmf_tgt *tgt)
{
	while (!TAILQ_EMPTY(&tgt->referrals)) {
		struct nvmf_referral_node *node = TAILQ_FIRST(&tgt->referrals);
		TAILQ_REMOVE(&tgt->referrals, node, link);
		free(node);
	}
}

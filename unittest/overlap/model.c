/* SPDX-License-Identifier: BSD-3-Clause */
#include "unittest/overlap/model.h"

struct model_tgt model_tgts[OV_TGTS];
struct model_bdev model_bdevs[OV_BDEVS];
struct model_group model_groups[OV_GROUPS];

void model_reset(void)
{
	memset(model_tgts, 0, sizeof(model_tgts));
	memset(model_bdevs, 0, sizeof(model_bdevs));
	memset(model_groups, 0, sizeof(model_groups));
}

static bool model_is_of_bdev(unsigned kind)
{
	return kind >= OV_bdev_create && kind <= OV_stack_fault;
}

static bool model_is_of_remote(unsigned kind)
{
	return kind >= OV_remote_attach && kind <= OV_discovery_stop;
}

unsigned model_bdev_of(const struct ov_op *op)
{
	switch (op->kind) {
	case OV_stack_create:
	case OV_stack_delete:
	case OV_stack_fault:
		return OV_DISKS + op->a[0] % OV_STACKED;
	case OV_bdev_qos:
	case OV_bdev_group:
	case OV_bdev_timeout:
	case OV_bdev_reset:
		return op->a[0] % OV_BDEVS;
	default:
		return op->a[0] % OV_DISKS;
	}
}

/* Error bdevs are named after their bases, so theirs are fixed. */
unsigned model_base_of(const struct ov_op *op)
{
	static const uint8_t fixed[OV_STACKED] = {[OV_STACKED_ERROR] = 0, [OV_STACKED_ERROR_ON_DELAY] = OV_DISKS};
	unsigned s = op->a[0] % OV_STACKED;

	return s == OV_STACKED_ERROR || s == OV_STACKED_ERROR_ON_DELAY ? fixed[s] : op->a[1] % OV_BDEVS;
}

bool model_bdev_can_wait(unsigned bdev)
{
	return bdev >= OV_DISKS && bdev < OV_DISKS + OV_STACKED_PASSTHRU;
}

static bool model_is_of_ns(unsigned kind)
{
	return kind >= OV_ns_add && kind <= OV_ns_host_remove;
}

static bool model_is_of_tgt(unsigned kind)
{
	return kind <= OV_transport_create || kind == OV_referral_add || kind == OV_referral_remove;
}

static unsigned model_disturbed(const struct model_call *c)
{
	return (c->tgt != NULL ? c->tgt->disturbed : 0) + (c->sub != NULL ? c->sub->disturbed : 0) +
	       (c->counter != NULL ? *c->counter : 0);
}

void model_watch(struct model_call *c, const unsigned *counter)
{
	c->counter = counter;
	c->disturbed = model_disturbed(c);
}

void model_find(struct model_call *c, const struct ov_op *op)
{
	*c = (struct model_call){.op = op};
	if (model_is_of_remote(op->kind)) {
		return;
	}
	if (model_is_of_bdev(op->kind)) {
		c->bdev = &model_bdevs[model_bdev_of(op)];
		return;
	}
	c->tgt = &model_tgts[op->a[0] % OV_TGTS];
	if (!model_is_of_tgt(op->kind)) {
		c->sub = &c->tgt->sub[op->a[1] % OV_SUBS];
	}
	if (model_is_of_ns(op->kind)) {
		c->ns = &c->sub->ns[op->a[2] % OV_NSIDS];
	}
}

bool model_bdev_in_use(unsigned bdev)
{
	for (unsigned b = OV_DISKS; b < OV_BDEVS; b++) {
		if (model_bdevs[b].exists && model_bdevs[b].base == bdev) {
			return true;
		}
	}
	for (unsigned t = 0; t < OV_TGTS; t++) {
		for (unsigned s = 0; s < OV_SUBS; s++) {
			for (unsigned n = 0; n < OV_NSIDS; n++) {
				const struct model_ns *ns = &model_tgts[t].sub[s].ns[n];
				if (ns->used && ns->bdev == bdev) {
					return true;
				}
			}
		}
	}
	return false;
}

/* ---- What must the answer be ---- */

static enum model_answer model_ok_if(bool truth)
{
	return truth ? MODEL_OK : MODEL_FAILS;
}

static enum model_answer model_begin_tgt(const struct model_call *c)
{
	const struct model_tgt *t = c->tgt;

	if (c->op->kind == OV_tgt_create) {
		return model_ok_if(!t->exists);
	}
	if (!t->exists || c->op->kind == OV_tgt_delete) {
		return model_ok_if(t->exists && !t->deleting);
	}
	if (t->deleting) {
		return MODEL_EITHER;
	}
	if (c->op->kind == OV_transport_create) {
		return model_ok_if(!t->transport);
	}
	bool has = (t->referrals >> (c->op->a[1] % 4) & 1) != 0;
	return model_ok_if(has == (c->op->kind == OV_referral_remove));
}

static enum model_answer model_begin_ns(const struct model_call *c)
{
	const struct model_ns *ns = c->ns;
	bool has;

	if (ns->removing && c->op->kind != OV_ns_remove) {
		return MODEL_EITHER; /* its bdev goes: the namespace may have gone before */
	}
	if (c->op->kind == OV_ns_remote || (ns->used && ns->bdev >= OV_BDEVS)) {
		return MODEL_EITHER; /* its bdev goes when the remote target wants it */
	}
	if (c->op->kind == OV_ns_add) {
		const struct model_bdev *b = &model_bdevs[c->op->a[3] % OV_BDEVS];
		return b->creating != 0 ? MODEL_EITHER
					: model_ok_if(!ns->used && b->exists && !b->deleting && !b->leaving &&
						      !model_bdev_in_use(c->op->a[3] % OV_BDEVS));
	}
	if (!ns->used) {
		return MODEL_FAILS;
	}
	switch (c->op->kind) {
	case OV_ns_remove:
		return model_ok_if(!ns->removing);
	case OV_ns_host_add:
	case OV_ns_host_remove:
		has = (ns->hosts >> (c->op->a[3] % OV_HOSTS) & 1) != 0;
		return model_ok_if(ns->listed && has == (c->op->kind == OV_ns_host_remove));
	default:
		return MODEL_OK;
	}
}

static enum model_answer model_begin_host_or_listener(const struct model_call *c)
{
	bool host = (c->sub->hosts >> (c->op->a[2] % OV_HOSTS) & 1) != 0;
	bool peer = (c->sub->peers >> (c->op->a[2] % OV_TGTS) & 1) != 0;
	bool listener = (c->sub->listeners >> (c->op->a[2] % OV_ADDRS) & 1) != 0;

	switch (c->op->kind) {
	case OV_listener_add:
		return model_ok_if(c->tgt->transport && !listener);
	case OV_listener_remove:
		return model_ok_if(listener);
	case OV_listener_ana:
		return c->sub->ana ? model_ok_if(listener) : MODEL_EITHER;
	case OV_host_add:
		return model_ok_if(!host);
	case OV_host_remove:
	case OV_host_keys:
		return model_ok_if(host);
	case OV_peer_add:
		return model_ok_if(!peer);
	case OV_peer_remove:
		return model_ok_if(peer);
	default:
		return MODEL_OK;
	}
}

static enum model_answer model_begin_sub(const struct model_call *c)
{
	if (c->op->kind == OV_look) {
		return model_ok_if(c->tgt->exists && (c->op->a[2] % 7 >= 4 || c->sub->exists));
	}
	if (c->op->kind == OV_sub_create) {
		return model_ok_if(c->tgt->exists && !c->tgt->deleting && !c->sub->exists);
	}
	if (!c->tgt->exists || !c->sub->exists) {
		return MODEL_FAILS;
	}
	if (c->tgt->deleting || c->sub->deleting) {
		return MODEL_EITHER;
	}
	if (c->op->kind == OV_sub_delete) {
		return MODEL_OK;
	}
	if (c->op->kind >= OV_sub_pause && c->op->kind <= OV_sub_start) {
		return MODEL_EITHER;
	}
	return c->ns != NULL ? model_begin_ns(c) : model_begin_host_or_listener(c);
}

static enum model_answer model_begin_stack(const struct model_call *c)
{
	unsigned base = model_base_of(c->op);
	bool can_wait = model_bdev_can_wait(model_bdev_of(c->op));
	const struct model_bdev *m = c->bdev, *b = &model_bdevs[base];

	if (c->op->kind == OV_stack_delete) {
		return m->deleting ? MODEL_EITHER : model_ok_if(m->promised);
	}
	if (m->deleting || (m->leaving && !m->promised) || (m->leaving && !can_wait)) {
		return MODEL_EITHER;
	}
	if (m->promised) {
		return MODEL_FAILS;
	}
	if (b->creating != 0) {
		return MODEL_EITHER;
	}
	if (!b->exists || b->deleting || b->leaving) {
		return model_ok_if(can_wait);
	}
	return model_ok_if(!model_bdev_in_use(base));
}

enum model_group_what model_group_what_of(const struct ov_op *op)
{
	unsigned what = op->a[2] % 8;

	return what < MODEL_GROUP_JOIN ? (enum model_group_what)what : MODEL_GROUP_JOIN;
}

/* Minimums may be too high for a limit, which is not modelled, and so may a limit be too low for them. */
static enum model_answer model_begin_group(const struct model_call *c)
{
	bool group = model_groups[c->op->a[1] % OV_GROUPS].exists;
	bool bdev = c->bdev->exists || c->bdev->promised || c->bdev->creating != 0;

	switch (model_group_what_of(c->op)) {
	case MODEL_GROUP_CREATE:
		return model_ok_if(!group);
	case MODEL_GROUP_DELETE:
		return model_ok_if(group);
	case MODEL_GROUP_LIMIT:
		return group ? MODEL_EITHER : MODEL_FAILS;
	case MODEL_GROUP_LEAVE:
		return bdev ? MODEL_EITHER : MODEL_FAILS;
	default:
		return bdev && group ? MODEL_EITHER : MODEL_FAILS;
	}
}

static enum model_answer model_begin_bdev(const struct model_call *c)
{
	if (c->op->kind == OV_bdev_group) {
		return model_begin_group(c);
	}
	if (c->bdev->creating != 0) {
		return MODEL_EITHER;
	}
	switch (c->op->kind) {
	case OV_stack_create:
	case OV_stack_delete:
		return model_begin_stack(c);
	case OV_bdev_create:
		return model_ok_if(!c->bdev->exists);
	case OV_bdev_delete:
		return model_ok_if(c->bdev->exists && !c->bdev->deleting);
	default:
		return c->bdev->exists || c->bdev->promised ? MODEL_EITHER : MODEL_FAILS;
	}
}

/* A bdev goes, and with it the namespace that has it and what stands on it. */
static void model_bdev_goes(unsigned bdev)
{
	for (unsigned b = OV_DISKS; b < OV_BDEVS; b++) {
		struct model_bdev *m = &model_bdevs[b];
		if (m->exists && m->base == bdev && !m->leaving) {
			m->leaving = true;
			model_bdev_goes(b);
		}
	}
	for (unsigned t = 0; t < OV_TGTS; t++) {
		for (unsigned s = 0; s < OV_SUBS; s++) {
			struct model_sub *sub = &model_tgts[t].sub[s];
			for (unsigned n = 0; n < OV_NSIDS; n++) {
				if (sub->ns[n].used && sub->ns[n].bdev == bdev) {
					sub->ns[n].removing = true;
					sub->disturbed++;
				}
			}
		}
	}
}

static void model_set(uint8_t *set, unsigned bit, bool on)
{
	*set = (uint8_t)(on ? *set | 1u << bit : *set & ~(1u << bit));
}

static void model_set_key(struct model_call *c, unsigned key)
{
	unsigned h = c->op->a[2] % OV_HOSTS;

	c->sub->keys[h] = (uint8_t)key;
	c->sub->keys_changed[h]++;
}

enum model_answer model_begin(struct model_call *c)
{
	enum model_answer a = model_is_of_remote(c->op->kind) ? MODEL_EITHER
			      : c->bdev != NULL               ? model_begin_bdev(c)
			      : c->sub != NULL                ? model_begin_sub(c)
							      : model_begin_tgt(c);

	if (c->op->kind == OV_bdev_create) {
		c->bdev->creating++;
	}
	if (a != MODEL_FAILS) {
		switch (c->op->kind) {
		case OV_tgt_delete:
			c->tgt->deleting = true;
			c->tgt->disturbed++;
			break;
		case OV_sub_delete:
			c->sub->deleting = true;
			c->sub->disturbed++;
			break;
		case OV_sub_pause:
		case OV_sub_stop:
			c->sub->disturbed++;
			break;
		case OV_ns_remove:
			c->ns->removing = true;
			c->sub->disturbed++;
			break;
		case OV_listener_remove: /* it goes at once; the answer waits for the controllers */
			model_set(&c->sub->listeners, c->op->a[2] % OV_ADDRS, false);
			break;
		case OV_host_remove:
			model_set(&c->sub->hosts, c->op->a[2] % OV_HOSTS, false);
			model_set_key(c, 0);
			break;
		case OV_host_add:
		case OV_host_keys:
			c->sub->keys_changed[c->op->a[2] % OV_HOSTS]++;
			break;
		case OV_bdev_delete:
			c->bdev->deleting = c->bdev->exists;
			model_bdev_goes(model_bdev_of(c->op));
			break;
		case OV_stack_delete:
			if (a == MODEL_OK) { /* otherwise it is being deleted already */
				c->bdev->deleting = true;
				model_bdev_goes(model_bdev_of(c->op));
			}
			break;
		default:
			break;
		}
	}
	c->disturbed = model_disturbed(c);
	return a;
}

bool model_is_disturbed(const struct model_call *c)
{
	return model_disturbed(c) != c->disturbed;
}

/* ---- Effects ---- */

static void model_sub_ends(struct model_sub *sub)
{
	struct model_sub fresh = {.disturbed = sub->disturbed + 1};

	for (unsigned h = 0; h < OV_HOSTS; h++) {
		fresh.keys_changed[h] = sub->keys_changed[h] + 1;
	}
	*sub = fresh;
}

static void model_end_tgt(struct model_call *c)
{
	unsigned disturbed = c->tgt->disturbed;

	switch (c->op->kind) {
	case OV_tgt_create:
		c->tgt->exists = true;
		break;
	case OV_tgt_delete:
		for (unsigned s = 0; s < OV_SUBS; s++) {
			model_sub_ends(&c->tgt->sub[s]);
		}
		c->tgt->exists = c->tgt->deleting = c->tgt->transport = false;
		c->tgt->referrals = 0;
		c->tgt->disturbed = disturbed + 1;
		break;
	case OV_transport_create:
		c->tgt->transport = true;
		break;
	default:
		model_set(&c->tgt->referrals, c->op->a[1] % 4, c->op->kind == OV_referral_add);
		break;
	}
}

static void model_end_ns(struct model_call *c, int64_t nsid)
{
	switch (c->op->kind) {
	case OV_ns_add:
	case OV_ns_remote:
		if (nsid != c->op->a[2] % OV_NSIDS + 1) {
			ov_fail("nvmf_subsystem_add_ns made namespace %ld instead of %u", (long)nsid,
				c->op->a[2] % OV_NSIDS + 1);
		}
		*c->ns = (struct model_ns){.used = true,
					   .bdev = (uint8_t)ov_ns_bdev_of(c->op),
					   .listed = (c->op->a[4] & 1) != 0,
					   .group = (uint8_t)nsid};
		break;
	case OV_ns_remove:
		*c->ns = (struct model_ns){0};
		break;
	case OV_ns_ana_group:
		c->ns->group = c->op->a[3] % OV_NSIDS + 1;
		break;
	default:
		model_set(&c->ns->hosts, c->op->a[3] % OV_HOSTS, c->op->kind == OV_ns_host_add);
		break;
	}
}

static void model_end_sub(struct model_call *c)
{
	switch (c->op->kind) {
	case OV_sub_create:
		c->sub->exists = true;
		c->sub->any = (c->op->a[2] & 3) != 0;
		c->sub->ana = (c->op->a[2] & 4) != 0;
		break;
	case OV_sub_delete:
		model_sub_ends(c->sub);
		break;
	case OV_listener_add:
		model_set(&c->sub->listeners, c->op->a[2] % OV_ADDRS, true);
		break;
	case OV_host_add:
		model_set(&c->sub->hosts, c->op->a[2] % OV_HOSTS, true);
		model_set_key(c, c->op->a[3] % (OV_KEYS + 1));
		break;
	case OV_host_keys:
		model_set_key(c, c->op->a[3] % (OV_KEYS + 1));
		break;
	case OV_peer_add:
	case OV_peer_remove:
		model_set(&c->sub->peers, c->op->a[2] % OV_TGTS, c->op->kind == OV_peer_add);
		break;
	case OV_any_host:
		c->sub->any = (c->op->a[2] & 1) != 0;
		break;
	default:
		break;
	}
}

/* The bdev has gone, and with it the namespaces that had it and what stood on it. */
static void model_bdev_gone(unsigned bdev)
{
	struct model_bdev *m = &model_bdevs[bdev];

	m->exists = m->leaving = false;
	m->promised = m->promised && model_bdev_can_wait(bdev);
	for (unsigned t = 0; t < OV_TGTS; t++) {
		for (unsigned s = 0; s < OV_SUBS; s++) {
			for (unsigned n = 0; n < OV_NSIDS; n++) {
				struct model_ns *ns = &model_tgts[t].sub[s].ns[n];
				*ns = ns->used && ns->bdev == bdev ? (struct model_ns){0} : *ns;
			}
		}
	}
	for (unsigned b = OV_DISKS; b < OV_BDEVS; b++) {
		if (model_bdevs[b].exists && model_bdevs[b].base == bdev) {
			model_bdev_gone(b);
		}
	}
}

/* The bdev is there. If others wait for it, one of them has it now, whichever. */
static void model_bdev_came(unsigned bdev)
{
	bool wanted = false, had = false;

	model_bdevs[bdev].exists = true;
	for (unsigned b = OV_DISKS; b < OV_BDEVS; b++) {
		struct model_bdev *m = &model_bdevs[b];
		if (m->promised && !m->exists && !m->deleting && m->base == bdev) {
			wanted = true;
			if (ov_bdev_is_on(b, bdev)) {
				had = true;
				model_bdev_came(b);
			}
		}
	}
	if (wanted && !had) {
		ov_fail("bdev %u has come, and of those that waited for it none is there", bdev);
	}
}

static void model_end_stack(struct model_call *c)
{
	unsigned b = model_bdev_of(c->op), base = model_base_of(c->op);

	if (c->op->kind == OV_stack_delete) {
		model_bdev_gone(b);
		c->bdev->promised = c->bdev->deleting = false;
	} else if (c->op->kind == OV_stack_create) {
		c->bdev->promised = true;
		c->bdev->leaving = false;
		c->bdev->base = (uint8_t)base;
		if (ov_bdev_is_on(b, base)) {
			model_bdev_came(b);
		} else if (!model_bdev_can_wait(b)) {
			ov_fail("bdev %u was made, and is not there", b);
		}
	}
}

static void model_end_group(const struct ov_op *op)
{
	struct model_group *g = &model_groups[op->a[1] % OV_GROUPS];
	enum model_group_what what = model_group_what_of(op);

	g->exists = what == MODEL_GROUP_CREATE || (g->exists && what != MODEL_GROUP_DELETE);
}

static void model_end_bdev(struct model_call *c)
{
	unsigned b = model_bdev_of(c->op);

	if (c->op->kind == OV_bdev_create) {
		c->bdev->deleting = false;
		c->bdev->is_malloc = c->op->a[1] % 4 == 0;
		model_bdev_came(b);
	} else if (c->op->kind == OV_bdev_delete) {
		model_bdev_gone(b);
		c->bdev->deleting = false;
	} else if (c->op->kind == OV_bdev_group) {
		model_end_group(c->op);
	} else {
		model_end_stack(c);
	}
}

void model_end(struct model_call *c, bool success, int64_t result)
{
	if (c->op->kind == OV_bdev_create) {
		c->bdev->creating--;
	}
	if (!success || model_is_of_remote(c->op->kind)) {
		return; /* for lack of memory alone does a deletion fail that was allowed to begin */
	}
	if (c->bdev != NULL) {
		model_end_bdev(c);
	} else if (c->ns != NULL) {
		model_end_ns(c, result);
	} else if (c->sub != NULL) {
		model_end_sub(c);
	} else {
		model_end_tgt(c);
	}
}

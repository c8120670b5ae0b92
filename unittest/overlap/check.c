/* SPDX-License-Identifier: BSD-3-Clause */
/* What holds between any two messages of the control thread. */
#include "bdev/internal.h"
#include "bdev/qos_group.h"
#include "bdev/vbdev/vbdev.h"
#include "unittest/overlap/overlap.h"

static void check_ns(const struct nvmf_subsystem *s, uint32_t index)
{
	const struct nvmf_ns *ns = s->ns[index];

	if (ns->subsystem != s || ns->nsid != index + 1 || bdev_desc_bdev(ns->desc) != ns->bdev) {
		ov_fail("%s: namespace %u belongs to another subsystem, number or bdev", s->nqn, index + 1);
	}
	if (bdev_find(bdev_name(ns->bdev)) != ns->bdev) {
		ov_fail("%s: bdev %s of namespace %u is not in the registry", s->nqn, bdev_name(ns->bdev), ns->nsid);
	}
	if (ns->removing && ns->remove_op != NULL) {
		ov_fail("%s: namespace %u is being removed, and nothing removes it", s->nqn, ns->nsid);
	}
}

static void check_ctrlr(const struct nvmf_subsystem *s, const struct nvmf_ctrlr *ctrlr)
{
	const struct nvmf_qpair *qpair;
	unsigned io = 0, admin = 0;

	TAILQ_FOREACH (qpair, &ctrlr->qpairs, ctrlr_link) {
		if (qpair->ctl_ctrlr != ctrlr || !qpair->linked) {
			ov_fail("%s: controller %u has a queue pair of another one", s->nqn, ctrlr->cntlid);
		}
		io += qpair->ctl_qid != 0;
		admin += qpair->ctl_qid == 0;
	}
	if (ctrlr->subsystem != s || io != ctrlr->num_io_qpairs || admin != (ctrlr->admin_qpair != NULL)) {
		ov_fail("%s: controller %u has %u I/O queues and counts %u", s->nqn, ctrlr->cntlid, io,
			ctrlr->num_io_qpairs);
	}
	if (ctrlr->state == NVMF_CTRLR_DESTROYING || s->subtype == NVMF_SUBTYPE_DISCOVERY) {
		return;
	}
	if (!nvmf_subsystem_host_allowed(s, ctrlr->hostnqn)) {
		ov_fail("%s: controller %u is of %s, which is not allowed", s->nqn, ctrlr->cntlid, ctrlr->hostnqn);
	}
	if (nvmf_subsystem_find_listener(s, &ctrlr->listen_address) == NULL) {
		ov_fail("%s: controller %u came through a listener that is gone", s->nqn, ctrlr->cntlid);
	}
	if (!s->connectable || s->state == NVMF_SUBSYSTEM_INACTIVE) {
		ov_fail("%s: controller %u stays, and the subsystem is not started", s->nqn, ctrlr->cntlid);
	}
}

static unsigned check_subsystem(const struct nvmf_tgt *tgt, const struct nvmf_subsystem *s)
{
	const struct nvmf_listener *l;
	const struct nvmf_ctrlr *ctrlr;
	unsigned qpairs = 0;

	if (s->tgt != tgt || tgt->subsystems[s->index] != s) {
		ov_fail("%s belongs to another target", s->nqn);
	}
	for (uint32_t i = 0; i < s->max_nsid; i++) {
		if (s->ns[i] != NULL) {
			check_ns(s, i);
		}
	}
	TAILQ_FOREACH (l, &s->listeners, link) {
		if (l->listen->refs == 0 || l->transport->tgt != tgt) {
			ov_fail("%s: a listener that nobody holds", s->nqn);
		}
	}
	TAILQ_FOREACH (ctrlr, &s->ctrlrs, link) {
		const struct nvmf_qpair *qpair;
		check_ctrlr(s, ctrlr);
		TAILQ_FOREACH (qpair, &ctrlr->qpairs, ctrlr_link) {
			qpairs++;
		}
	}
	if (s->state == NVMF_SUBSYSTEM_INACTIVE && (s->views_open || !TAILQ_EMPTY(&s->ctrlrs))) {
		ov_fail("%s is inactive, and has %s", s->nqn, s->views_open ? "views" : "controllers");
	}
	if (!STAILQ_EMPTY(&s->ops) && !STAILQ_FIRST(&s->ops)->begun && s->state != NVMF_SUBSYSTEM_PAUSED) {
		ov_fail("%s: operations wait, and not even the first is carried out", s->nqn);
	}
	return qpairs;
}

/* Whoever has a bdev open that goes must come to an end: its I/O waits for no rate limit. (All threads are this one.)
 */
static void check_bdev_that_goes(const struct bdev *b)
{
	const struct bdev_channel *ch;

	TAILQ_FOREACH (ch, &b->core->channels, link) {
		if (!STAILQ_EMPTY(&ch->qos_wait[RATE_READS]) || !STAILQ_EMPTY(&ch->qos_wait[RATE_WRITES])) {
			ov_fail("bdev %s goes, and I/O waits for its rate limits", bdev_name(b));
		}
	}
}

static void check_bdev(const struct bdev *b)
{
	const char *of = b->module->name;

	if (bdev_get_state(b) == BDEV_NONE || bdev_find(bdev_name(b)) != b) {
		ov_fail("bdev %s is in the registry, and in state %s", bdev_name(b),
			bdev_state_name(bdev_get_state(b)));
	}
	if (bdev_get_state(b) > BDEV_READY) {
		check_bdev_that_goes(b);
	}
	if (strcmp(of, "delay") != 0 && strcmp(of, "error") != 0 && strcmp(of, "passthru") != 0) {
		return;
	}
	const struct bdev *base = bdev_desc_bdev(((const struct vbdev *)b)->base);
	if (bdev_find(bdev_name(base)) != base || bdev_num_blocks(base) != bdev_num_blocks(b)) {
		ov_fail("bdev %s stands on %s, which is gone or has another size", bdev_name(b), bdev_name(base));
	}
	if (bdev_get_state(b) == BDEV_READY && bdev_get_state(base) != BDEV_READY) {
		ov_fail("bdev %s stays, and its base %s goes", bdev_name(b), bdev_name(base));
	}
}

/* Each bdev of a group knows it, and is still to be found; the minimums can be kept. */
static void check_group(const struct bdev_qos_group *g)
{
	struct rate_limits sum = bdev_qos_group_minimums(g, NULL);
	enum rate_bucket_id id;

	for (const struct bdev *b = NULL; (b = bdev_qos_group_next_bdev(g, b)) != NULL;) {
		if (bdev_qos_group_of(b) != g || (bdev_get_state(b) <= BDEV_READY && bdev_find(bdev_name(b)) != b)) {
			ov_fail("QoS group %s has bdev %s, which is in another one or gone", bdev_qos_group_name(g),
				bdev_name(b));
		}
	}
	if (!share_sum_fits(bdev_qos_group_limits(g), &sum, &id)) {
		ov_fail("QoS group %s: the minimums are more than the limit", bdev_qos_group_name(g));
	}
}

void ov_check(void)
{
	for (struct nvmf_tgt *tgt = nvmf_tgt_next(NULL); tgt != NULL; tgt = nvmf_tgt_next(tgt)) {
		unsigned qpairs = 0;
		for (struct nvmf_subsystem *s = nvmf_subsystem_next(tgt, NULL); s != NULL;
		     s = nvmf_subsystem_next(tgt, s)) {
			qpairs += check_subsystem(tgt, s);
		}
		if (qpairs > tgt->num_qpairs) {
			ov_fail("target %s counts %u queue pairs, and its controllers have %u", tgt->name,
				tgt->num_qpairs, qpairs);
		}
	}
	for (struct bdev *b = bdev_next(NULL); b != NULL; b = bdev_next(b)) {
		check_bdev(b);
	}
	for (const struct bdev_qos_group *g = NULL; (g = bdev_qos_group_next(g)) != NULL;) {
		check_group(g);
	}
}

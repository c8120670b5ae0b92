/* SPDX-License-Identifier: BSD-3-Clause */
/* Tells people which changes of a subsystem have not ended, and what they wait for. Control thread. */
#include <stdio.h>
#include <string.h>
#include "nvmf/internal.h"

static const char *op_name(const struct nvmf_op *op)
{
	static const char *const names[] = {
		[NVMF_OP_START] = "start",   [NVMF_OP_PAUSE] = "pause of namespaces",
		[NVMF_OP_RESUME] = "resume", [NVMF_OP_STOP] = "stop",
		[NVMF_OP_CHANGE] = "change",
	};

	return op->what != NULL ? op->what : names[op->kind];
}

static void op_describe(const struct nvmf_op *op, char *text, size_t size)
{
	if (op->kind == NVMF_OP_CHANGE) {
		snprintf(text, size, "%s %u", op_name(op), op->nsid);
	} else {
		snprintf(text, size, "%s", op_name(op));
	}
}

/* The first controller that match() selects, or any for NULL; *n: how many there are. */
static const struct nvmf_ctrlr *changes_find_ctrlr(const struct nvmf_subsystem *s, const struct nvmf_ctrlr_waiter *w,
						   unsigned *n)
{
	const struct nvmf_ctrlr *ctrlr, *first = NULL;

	*n = 0;
	TAILQ_FOREACH (ctrlr, &s->ctrlrs, link) {
		if (w == NULL || (ctrlr->state == NVMF_CTRLR_DESTROYING && w->match(ctrlr, w))) {
			first = first != NULL ? first : ctrlr;
			++*n;
		}
	}
	return first;
}

static void changes_describe_ctrlrs(const struct nvmf_subsystem *s, const struct nvmf_ctrlr_waiter *w, char *text,
				    size_t size)
{
	unsigned n;
	const struct nvmf_ctrlr *first = changes_find_ctrlr(s, w, &n);

	if (first == NULL) {
		snprintf(text, size, "nothing");
		return;
	}
	snprintf(text, size, "the end of %u controllers, first %u of %.80s, with %u commands under way", n,
		 first->cntlid, first->hostnqn,
		 s->views_open ? nvmf_views_outstanding(first->subsystem, NVME_NSID_ALL) : 0);
}

static void op_describe_draining(const struct nvmf_op *op, char *text, size_t size)
{
	struct nvmf_subsystem *s = op->subsystem;
	const struct nvmf_ns *ns = nvmf_ns_find(s, op->nsid);

	snprintf(text, size, "the end of %u commands of namespace %u (bdev %.80s)", nvmf_views_outstanding(s, op->nsid),
		 op->nsid, ns != NULL ? bdev_name(ns->bdev) : "?");
}

/* What another operation keeps a stop from ending; NULL: none. */
static const struct nvmf_op *stop_find_other(const struct nvmf_op *stop)
{
	const struct nvmf_op *op;
	bool before = true;

	STAILQ_FOREACH (op, &stop->subsystem->ops, link) {
		before = before && op != stop;
		if (op != stop && (before || op->begun)) {
			break;
		}
	}
	return op;
}

void nvmf_op_waits_for(const struct nvmf_op *op, char *text, size_t size)
{
	const struct nvmf_op *other = op->begun ? NULL : nvmf_op_blocker(op);

	if (op->begun && op->kind == NVMF_OP_STOP) {
		if (!TAILQ_EMPTY(&op->subsystem->ctrlrs)) {
			changes_describe_ctrlrs(op->subsystem, NULL, text, size);
			return;
		}
		other = stop_find_other(op);
	} else if (op->begun) {
		op_describe_draining(op, text, size);
		return;
	}
	char name[NVMF_CHANGE_MAX] = "nothing";
	if (other != NULL) {
		op_describe(other, name, sizeof(name));
	}
	snprintf(text, size, "the %s before it", name);
}

void nvmf_op_log_slow(const struct nvmf_op *op)
{
	char what[NVMF_CHANGE_MAX], waits_for[NVMF_ERROR_MAX];

	op_describe(op, what, sizeof(what));
	nvmf_op_waits_for(op, waits_for, sizeof(waits_for));
	log_limited(LOG_LEVEL_WARNING, "subsystem %s: the %s has not ended for %llu s: it waits for %s",
		    op->subsystem->nqn, what,
		    (unsigned long long)(env_ticks_to_ns(env_ticks() - op->queued_ticks) / 1000000000), waits_for);
}

bool nvmf_subsystem_get_change(const struct nvmf_subsystem *s, unsigned n, struct nvmf_change_info *info)
{
	const struct nvmf_op *op;
	const struct nvmf_ctrlr_waiter *w;

	memset(info, 0, sizeof(*info));
	STAILQ_FOREACH (op, &s->ops, link) {
		if (n-- == 0) {
			op_describe(op, info->what, sizeof(info->what));
			info->nsid = op->kind == NVMF_OP_CHANGE ? op->nsid : 0;
			info->begun = op->begun;
			info->queued_ticks = op->queued_ticks;
			nvmf_op_waits_for(op, info->waits_for, sizeof(info->waits_for));
			return true;
		}
	}
	TAILQ_FOREACH (w, &s->waiters, link) {
		if (n-- == 0) {
			snprintf(info->what, sizeof(info->what), "disconnection of hosts (%s)", w->why);
			info->begun = true;
			info->queued_ticks = w->queued_ticks;
			changes_describe_ctrlrs(s, w, info->waits_for, sizeof(info->waits_for));
			return true;
		}
	}
	return false;
}

/* ---- A whole subsystem or target ---- */

bool nvmf_subsystem_waits_for(const struct nvmf_subsystem *s, uint32_t nsid, char *text, size_t size)
{
	struct nvmf_change_info info, oldest = {.queued_ticks = UINT64_MAX};

	for (unsigned n = 0; nvmf_subsystem_get_change(s, n, &info); n++) {
		if ((nsid == 0 || info.nsid == nsid) && info.queued_ticks < oldest.queued_ticks) {
			oldest = info;
		}
	}
	if (oldest.queued_ticks == UINT64_MAX) {
		return false;
	}
	snprintf(text, size, "%s, in the %s of %.223s", oldest.waits_for, oldest.what, s->nqn);
	return true;
}

bool nvmf_tgt_waits_for(struct nvmf_tgt *tgt, char *text, size_t size)
{
	struct nvmf_subsystem *s = nvmf_subsystem_next(tgt, NULL);

	for (; s != NULL; s = nvmf_subsystem_next(tgt, s)) {
		if (nvmf_subsystem_waits_for(s, 0, text, size)) {
			return true;
		}
	}
	if (tgt->num_qpairs != 0) {
		snprintf(text, size, "the end of %u connections", tgt->num_qpairs);
	}
	return tgt->num_qpairs != 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Latencies by host and subsystem. Poll groups count them in their queue pairs. The control thread adds them up when
 * somebody asks, and keeps those of queue pairs that are gone. A host may give itself any name, so only
 * NVMF_HOST_LATENCIES_MAX hosts of a target have figures of their own; all others of a subsystem share one entry.
 * Control thread. */
#include <stdlib.h>
#include <string.h>
#include "bdev/kept_stat.h"
#include "nvmf/internal.h"

struct nvmf_host_latency {
	uint64_t commands;           /* of queue pairs that are gone */
	struct nvmf_latency latency; /* of the same */
	LIST_HEAD(, nvmf_ctrlr) ctrlrs;
	TAILQ_ENTRY(nvmf_host_latency) link;
	bool others;
	char hostnqn[]; /* "" for the others */
};

static void host_latency_add(struct nvmf_latency *sum, const struct nvmf_latency *l)
{
	latency_histogram_add(&sum->histogram, &l->histogram);
	sum->ns += __atomic_load_n(&l->ns, __ATOMIC_RELAXED);
	sum->bytes += __atomic_load_n(&l->bytes, __ATOMIC_RELAXED);
}

static struct nvmf_host_latency *host_latency_find(const struct nvmf_subsystem *s, const char *hostnqn, bool others)
{
	struct nvmf_host_latency *h;

	TAILQ_FOREACH (h, &s->latencies, link) {
		if (h->others == others && strcmp(h->hostnqn, hostnqn) == 0) {
			return h;
		}
	}
	return NULL;
}

static struct nvmf_host_latency *host_latency_create(struct nvmf_subsystem *s, const char *hostnqn, bool others)
{
	struct nvmf_host_latency *h = calloc(1, sizeof(*h) + strlen(hostnqn) + 1);

	if (h == NULL) {
		return NULL;
	}
	strcpy(h->hostnqn, hostnqn);
	h->others = others;
	LIST_INIT(&h->ctrlrs);
	if (others) {
		TAILQ_INSERT_TAIL(&s->latencies, h, link);
	} else {
		TAILQ_INSERT_HEAD(&s->latencies, h, link);
		s->tgt->num_host_latencies++;
	}
	return h;
}

static void host_latency_free(struct nvmf_subsystem *s, struct nvmf_host_latency *h)
{
	TAILQ_REMOVE(&s->latencies, h, link);
	s->tgt->num_host_latencies -= !h->others;
	free(h);
}

/* The entry that a host of that name counts in. NULL: no memory. */
static struct nvmf_host_latency *host_latency_get(struct nvmf_subsystem *s, const char *hostnqn)
{
	struct nvmf_host_latency *h = host_latency_find(s, hostnqn, false);
	bool has_name = strcmp(hostnqn, NVMF_HOST_LATENCY_OTHERS) != 0;

	if (h == NULL && has_name && s->tgt->num_host_latencies < NVMF_HOST_LATENCIES_MAX) {
		h = host_latency_create(s, hostnqn, false);
	}
	if (h == NULL) {
		h = host_latency_find(s, "", true);
	}
	return h != NULL ? h : host_latency_create(s, "", true);
}

void nvmf_host_latency_join(struct nvmf_ctrlr *ctrlr)
{
	if (ctrlr->subsystem->subtype != NVMF_SUBTYPE_NVME) {
		return;
	}
	ctrlr->latency = host_latency_get(ctrlr->subsystem, ctrlr->hostnqn);
	if (ctrlr->latency != NULL) {
		LIST_INSERT_HEAD(&ctrlr->latency->ctrlrs, ctrlr, latency_link);
	}
}

void nvmf_host_latency_leave(struct nvmf_ctrlr *ctrlr)
{
	struct nvmf_host_latency *h = ctrlr->latency;

	if (h == NULL) {
		return;
	}
	LIST_REMOVE(ctrlr, latency_link);
	ctrlr->latency = NULL;
	if (!h->others && LIST_EMPTY(&h->ctrlrs) && h->commands == 0) { /* its place is for a host that does I/O */
		host_latency_free(ctrlr->subsystem, h);
	}
}

/* The commands after the last sample took the mean of what was measured. Of a queue pair without samples nothing is
 * known. */
static void qpair_latency_settle(struct nvmf_latency *l, uint64_t completed)
{
	uint64_t counted = l->histogram.counted, more = completed - counted;

	if (counted == 0 || completed <= counted) {
		return;
	}
	latency_histogram_settle(&l->histogram, completed);
	l->ns += (uint64_t)((double)l->ns / (double)counted * (double)more);
	l->bytes += (uint64_t)((double)l->bytes / (double)counted * (double)more);
}

void nvmf_host_latency_keep(struct nvmf_qpair *qpair)
{
	struct nvmf_host_latency *h = qpair->ctl_ctrlr->latency;

	if (h != NULL) {
		qpair_latency_settle(&qpair->latency, qpair->completed);
		h->commands += qpair->completed;
		host_latency_add(&h->latency, &qpair->latency);
	}
}

/* ---- Figures that outlive their subsystem ---- */

static const struct kept_stat_field kept_host_list[] = {
	KEPT_STAT(struct nvmf_host_latency, "commands", commands),
	KEPT_STAT(struct nvmf_host_latency, "ns", latency.ns),
	KEPT_STAT(struct nvmf_host_latency, "bytes", latency.bytes),
	KEPT_STAT_ARRAY(struct nvmf_host_latency, "times", latency.histogram.buckets[0], latency.histogram.buckets),
};
static const struct kept_stat_fields kept_host_fields = {kept_host_list, ARRAY_SIZE(kept_host_list)};

static struct nvmf_kept_set host_latency_set(const struct nvmf_subsystem *s)
{
	return nvmf_kept_set("hosts", s->tgt, s->nqn);
}

void nvmf_host_latencies_free(struct nvmf_subsystem *s)
{
	struct nvmf_kept_set set = host_latency_set(s);
	struct nvmf_host_latency *h;

	while ((h = TAILQ_FIRST(&s->latencies)) != NULL) {
		kept_stat_note(set.name, h->hostnqn, &kept_host_fields, h); /* the others under "", which is no NQN */
		host_latency_free(s, h);
	}
}

void nvmf_host_latencies_take(struct nvmf_subsystem *s)
{
	struct nvmf_kept_set set = host_latency_set(s);
	const char *name;

	while ((name = kept_stat_first(set.name)) != NULL) {
		struct nvmf_host_latency kept = {0}, *h = name[0] != '\0' ? host_latency_get(s, name) : NULL;
		h = h != NULL ? h : host_latency_get(s, NVMF_HOST_LATENCY_OTHERS);
		kept_stat_take(set.name, name, &kept_host_fields, &kept);
		if (h == NULL) {
			log_error("%s: no memory for the statistics of its hosts, which begin anew", s->nqn);
			continue;
		}
		h->commands += kept.commands;
		host_latency_add(&h->latency, &kept.latency);
	}
}

static void host_latency_add_live(struct nvmf_host_latency_info *info, const struct nvmf_ctrlr *ctrlr)
{
	const struct nvmf_qpair *qpair;

	TAILQ_FOREACH (qpair, &ctrlr->qpairs, ctrlr_link) {
		if (qpair->ctl_qid != 0) {
			host_latency_add(&info->latency, &qpair->latency);
			info->commands += __atomic_load_n(&qpair->completed, __ATOMIC_RELAXED);
		}
	}
}

static struct nvmf_host_latency_info host_latency_sum(const struct nvmf_subsystem *s, const struct nvmf_host_latency *h)
{
	struct nvmf_host_latency_info info = {.subnqn = s->nqn,
					      .hostnqn = h->others ? NVMF_HOST_LATENCY_OTHERS : h->hostnqn,
					      .commands = h->commands,
					      .latency = h->latency};
	const struct nvmf_ctrlr *ctrlr;

	LIST_FOREACH (ctrlr, &h->ctrlrs, latency_link) {
		host_latency_add_live(&info, ctrlr);
	}
	if (info.commands < info.latency.histogram.counted) { /* a group has counted between the two loads */
		info.commands = info.latency.histogram.counted;
	}
	return info;
}

void nvmf_tgt_for_each_host_latency(struct nvmf_tgt *tgt, void (*fn)(void *arg, const struct nvmf_host_latency_info *),
				    void *arg)
{
	const struct nvmf_host_latency *h;

	for (struct nvmf_subsystem *s = NULL; (s = nvmf_subsystem_next(tgt, s)) != NULL;) {
		TAILQ_FOREACH (h, &s->latencies, link) {
			struct nvmf_host_latency_info info = host_latency_sum(s, h);

			fn(arg, &info);
		}
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Metrics of each subsystem and each queue pair of a target, with their outstanding commands. */
#include <string.h>

#include "appliance/metrics_collect.h"
#include "env_dpdk/env.h"

struct outstanding {
	uint64_t count, oldest_ticks; /* the oldest of those that do not wait for their host */
};

/* The outstanding commands of a subsystem, or (q not NULL) of one of its queue pairs. */
static struct outstanding collect_outstanding_of(const struct nvmf_inflight *list, size_t n, const char *subnqn,
						 const struct nvmf_qpair_info *q)
{
	struct outstanding o = {0};

	for (size_t i = 0; i < n; i++) {
		const struct nvmf_inflight *f = &list[i];
		if (strcmp(f->subnqn, subnqn) != 0 || (q != NULL && (f->cntlid != q->cntlid || f->qid != q->qid))) {
			continue;
		}
		o.count++;
		if (!f->waits_for_host && f->age_ticks > o.oldest_ticks) {
			o.oldest_ticks = f->age_ticks;
		}
	}
	return o;
}

/* ---- Subsystems ---- */

static uint64_t collect_count_controllers(const struct nvmf_subsystem *s)
{
	uint64_t n = 0;

	for (struct nvmf_ctrlr *c = nvmf_ctrlr_next(s, NULL); c != NULL; c = nvmf_ctrlr_next(s, c)) {
		n++;
	}
	return n;
}

static uint64_t collect_count_qpairs(const struct nvmf_subsystem *s)
{
	uint64_t n = 0;

	for (struct nvmf_ctrlr *c = nvmf_ctrlr_next(s, NULL); c != NULL; c = nvmf_ctrlr_next(s, c)) {
		for (struct nvmf_qpair *q = nvmf_qpair_next(c, NULL); q != NULL; q = nvmf_qpair_next(c, q)) {
			n++;
		}
	}
	return n;
}

static uint64_t collect_count_listeners(const struct nvmf_subsystem *s)
{
	uint64_t n = 0;

	for (struct nvmf_listener *l = nvmf_listener_next(s, NULL); l != NULL; l = nvmf_listener_next(s, l)) {
		n++;
	}
	return n;
}

struct one_subsystem {
	const char *nqn;
	uint64_t controllers, qpairs, listeners;
	struct outstanding outstanding;
};

#define SUBSYSTEM(name_, unit_, member_, help_)                                                                        \
	METRIC("varve_nvmf_subsystem_" name_, METRICS_GAUGE, unit_, struct one_subsystem, member_, help_)
static const struct metric subsystem_families[] = {
	SUBSYSTEM("controllers", METRICS_PLAIN, controllers, "Controllers of the subsystem: hosts that are connected."),
	SUBSYSTEM("queue_pairs", METRICS_PLAIN, qpairs, "Their queue pairs."),
	SUBSYSTEM("listeners", METRICS_PLAIN, listeners, "Addresses on which it listens."),
	SUBSYSTEM("requests", METRICS_PLAIN, outstanding.count, "Outstanding commands."),
	SUBSYSTEM("oldest_request_seconds", METRICS_TICKS, outstanding.oldest_ticks,
		  "Age of the oldest of them that does not wait for its host; 0: there is none."),
};

static void collect_subsystem_families(struct metrics_text *m, struct nvmf_tgt *tgt, const struct nvmf_inflight *list,
				       size_t n)
{
	size_t room = 0, subsystems = 0;

	for (struct nvmf_subsystem *s = NULL; (s = nvmf_subsystem_next(tgt, s)) != NULL;) {
		room++;
	}
	struct one_subsystem *all = collect_array(room, sizeof(*all));
	for (struct nvmf_subsystem *s = NULL; all != NULL && (s = nvmf_subsystem_next(tgt, s)) != NULL;) {
		const char *nqn = nvmf_subsystem_nqn(s);
		all[subsystems++] = (struct one_subsystem){.nqn = nqn,
							   .controllers = collect_count_controllers(s),
							   .qpairs = collect_count_qpairs(s),
							   .listeners = collect_count_listeners(s),
							   .outstanding = collect_outstanding_of(list, n, nqn, NULL)};
	}
	for (size_t f = 0; f < ARRAY_SIZE(subsystem_families); f++) {
		metrics_begin(m, &subsystem_families[f]);
		for (size_t i = 0; i < subsystems; i++) {
			metrics_sample(m, &subsystem_families[f], &all[i], "subsystem", all[i].nqn, NULL);
		}
	}
	free(all);
}

/* ---- Queue pairs ---- */

struct one_qpair {
	const char *nqn;
	struct nvmf_qpair_info info;
	char cntlid[COLLECT_NUMBER_MAX], qid[COLLECT_NUMBER_MAX];
	uint64_t state_age_ticks;
	struct outstanding outstanding;
};

#define QPAIR(name_, unit_, member_, help_)                                                                            \
	METRIC("varve_nvmf_queue_pair_" name_, METRICS_GAUGE, unit_, struct one_qpair, member_, help_)
static const struct metric qpair_families[] = {
	QPAIR("state_age_seconds", METRICS_TICKS, state_age_ticks, "How long it has been in that state."),
	QPAIR("requests", METRICS_PLAIN, outstanding.count, "Its outstanding commands."),
	QPAIR("oldest_request_seconds", METRICS_TICKS, outstanding.oldest_ticks,
	      "Age of the oldest of them that does not wait for its host; 0: there is none."),
};

static void collect_qpair(struct one_qpair *q, const struct nvmf_subsystem *s, const struct nvmf_qpair *qpair,
			  const struct nvmf_inflight *list, size_t n)
{
	q->nqn = nvmf_subsystem_nqn(s);
	nvmf_qpair_get_info(qpair, &q->info);
	collect_number(q->cntlid, q->info.cntlid);
	collect_number(q->qid, q->info.qid);
	q->state_age_ticks = env_ticks() - q->info.state_ticks;
	q->outstanding = collect_outstanding_of(list, n, q->nqn, &q->info);
}

static struct one_qpair *collect_qpairs(struct nvmf_tgt *tgt, const struct nvmf_inflight *list, size_t n,
					size_t *qpairs)
{
	size_t room = 0;

	for (struct nvmf_subsystem *s = NULL; (s = nvmf_subsystem_next(tgt, s)) != NULL;) {
		room += collect_count_qpairs(s);
	}
	struct one_qpair *all = collect_array(room, sizeof(*all));
	*qpairs = 0;
	for (struct nvmf_subsystem *s = NULL; all != NULL && (s = nvmf_subsystem_next(tgt, s)) != NULL;) {
		for (struct nvmf_ctrlr *c = NULL; (c = nvmf_ctrlr_next(s, c)) != NULL;) {
			for (struct nvmf_qpair *q = NULL; (q = nvmf_qpair_next(c, q)) != NULL;) {
				collect_qpair(&all[(*qpairs)++], s, q, list, n);
			}
		}
	}
	return all;
}

static void collect_qpair_states(struct metrics_text *m, const struct one_qpair *all, size_t qpairs)
{
	char peer[320];

	metrics_family(m, "varve_nvmf_queue_pair_state", METRICS_GAUGE,
		       "A host's queue pair, where it is served and its state; always 1.");
	for (size_t i = 0; i < qpairs; i++) {
		const struct nvmf_qpair_info *q = &all[i].info;
		snprintf(peer, sizeof(peer), "%s:%s", q->peer_address.traddr, q->peer_address.trsvcid);
		metrics_uint(m, 1, "subsystem", all[i].nqn, "host", q->hostnqn, "cntlid", all[i].cntlid, "qid",
			     all[i].qid, "peer", peer, "thread", q->thread, "state", nvmf_qpair_state_name(q->state),
			     NULL);
	}
}

void metrics_collect_qpairs(struct metrics_text *m, struct nvmf_tgt *tgt, const struct nvmf_inflight *list, size_t n)
{
	size_t qpairs;

	collect_subsystem_families(m, tgt, list, n);
	struct one_qpair *all = collect_qpairs(tgt, list, n, &qpairs);
	collect_qpair_states(m, all, qpairs);
	for (size_t f = 0; f < ARRAY_SIZE(qpair_families); f++) {
		metrics_begin(m, &qpair_families[f]);
		for (size_t i = 0; i < qpairs; i++) {
			metrics_sample(m, &qpair_families[f], &all[i], "subsystem", all[i].nqn, "host",
				       all[i].info.hostnqn, "cntlid", all[i].cntlid, "qid", all[i].qid, NULL);
		}
	}
	free(all);
}

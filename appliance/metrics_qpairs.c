/* SPDX-License-Identifier: BSD-3-Clause */
/* What each subsystem and each queue pair of the target has, and what is outstanding there. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "appliance/metrics.h"
#include "env_dpdk/env.h"

#define NUMBER_MAX 24

struct outstanding {
	uint64_t count, oldest_ticks; /* what waits for its host is counted, but is not late */
};

/* Of a subsystem, or (q not NULL) of one of its queue pairs. */
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

static void collect_subsystem_families(struct metrics_text *m, struct nvmf_tgt *tgt, const struct nvmf_inflight *list,
				       size_t n)
{
	static const struct {
		const char *name, *help;
		uint64_t (*count)(const struct nvmf_subsystem *s);
	} families[] = {
		{"varve_nvmf_subsystem_controllers", "Controllers of the subsystem: hosts that are connected.",
		 collect_count_controllers},
		{"varve_nvmf_subsystem_queue_pairs", "Their queue pairs.", collect_count_qpairs},
		{"varve_nvmf_subsystem_listeners", "Addresses on which it listens.", collect_count_listeners},
		{"varve_nvmf_subsystem_requests", "Outstanding commands.", NULL},
		{"varve_nvmf_subsystem_oldest_request_seconds",
		 "Age of the oldest of them that does not wait for its host; 0: there is none.", NULL},
	};

	for (unsigned f = 0; f < 5; f++) {
		metrics_family(m, families[f].name, METRICS_GAUGE, families[f].help);
		for (struct nvmf_subsystem *s = nvmf_subsystem_next(tgt, NULL); s != NULL;
		     s = nvmf_subsystem_next(tgt, s)) {
			const char *nqn = nvmf_subsystem_nqn(s);
			struct outstanding o = collect_outstanding_of(list, n, nqn, NULL);
			if (f == 4) {
				metrics_ns(m, env_ticks_to_ns(o.oldest_ticks), "subsystem", nqn, NULL);
			} else {
				metrics_uint(m, f == 3 ? o.count : families[f].count(s), "subsystem", nqn, NULL);
			}
		}
	}
}

/* ---- Queue pairs ---- */

enum qpair_family {
	QPAIR_STATE,
	QPAIR_STATE_AGE,
	QPAIR_REQUESTS,
	QPAIR_OLDEST,
	QPAIR_FAMILIES,
};

static const struct {
	const char *name, *help;
} qpair_families[QPAIR_FAMILIES] = {
	[QPAIR_STATE] = {"varve_nvmf_queue_pair_state",
			 "A host's queue pair, where it is served and its state; always 1."},
	[QPAIR_STATE_AGE] = {"varve_nvmf_queue_pair_state_age_seconds", "How long it has been in that state."},
	[QPAIR_REQUESTS] = {"varve_nvmf_queue_pair_requests", "Its outstanding commands."},
	[QPAIR_OLDEST] = {"varve_nvmf_queue_pair_oldest_request_seconds",
			  "Age of the oldest of them that does not wait for its host; 0: there is none."},
};

static void collect_qpair(struct metrics_text *m, enum qpair_family family, const char *nqn,
			  const struct nvmf_qpair_info *q, const struct outstanding *o)
{
	char cntlid[NUMBER_MAX], qid[NUMBER_MAX], peer[320];

	snprintf(cntlid, sizeof(cntlid), "%u", q->cntlid);
	snprintf(qid, sizeof(qid), "%u", q->qid);
	if (family == QPAIR_STATE) {
		snprintf(peer, sizeof(peer), "%s:%s", q->peer_address.traddr, q->peer_address.trsvcid);
		metrics_uint(m, 1, "subsystem", nqn, "host", q->hostnqn, "cntlid", cntlid, "qid", qid, "peer", peer,
			     "thread", q->thread, "state", nvmf_qpair_state_name(q->state), NULL);
		return;
	}
	if (family == QPAIR_REQUESTS) {
		metrics_uint(m, o->count, "subsystem", nqn, "host", q->hostnqn, "cntlid", cntlid, "qid", qid, NULL);
		return;
	}
	uint64_t age = env_ticks() - q->state_ticks, ticks = family == QPAIR_OLDEST ? o->oldest_ticks : age;
	metrics_ns(m, env_ticks_to_ns(ticks), "subsystem", nqn, "host", q->hostnqn, "cntlid", cntlid, "qid", qid, NULL);
}

static void collect_qpairs(struct metrics_text *m, enum qpair_family family, const struct nvmf_subsystem *s,
			   const struct nvmf_inflight *list, size_t n)
{
	struct nvmf_qpair_info info;

	for (struct nvmf_ctrlr *c = nvmf_ctrlr_next(s, NULL); c != NULL; c = nvmf_ctrlr_next(s, c)) {
		for (struct nvmf_qpair *q = nvmf_qpair_next(c, NULL); q != NULL; q = nvmf_qpair_next(c, q)) {
			nvmf_qpair_get_info(q, &info);
			struct outstanding o = collect_outstanding_of(list, n, nvmf_subsystem_nqn(s), &info);
			collect_qpair(m, family, nvmf_subsystem_nqn(s), &info, &o);
		}
	}
}

void metrics_collect_qpairs(struct metrics_text *m, struct nvmf_tgt *tgt, const struct nvmf_inflight *list, size_t n)
{
	collect_subsystem_families(m, tgt, list, n);
	for (unsigned f = 0; f < QPAIR_FAMILIES; f++) {
		metrics_family(m, qpair_families[f].name, METRICS_GAUGE, qpair_families[f].help);
		for (struct nvmf_subsystem *s = nvmf_subsystem_next(tgt, NULL); s != NULL;
		     s = nvmf_subsystem_next(tgt, s)) {
			collect_qpairs(m, f, s, list, n);
		}
	}
}

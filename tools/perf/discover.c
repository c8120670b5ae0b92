/* SPDX-License-Identifier: BSD-3-Clause */
/* Replaces targets that were given without a subsystem, or as a discovery service, by the subsystems that the service
 * reports. */
#include <stdio.h>
#include <string.h>

#include "tools/perf/perf.h"

#define WAIT_US 60000000

struct discover {
	struct perf_options *opts;
	struct nvme_ctrlr *ctrlr;
	bool ready, failed, read, gone;
	int error;
};

static void perf_discover_on_event(struct nvme_ctrlr *ctrlr, enum nvme_event event, uint32_t aer, void *arg)
{
	struct discover *d = arg;

	d->ready |= event == NVME_EVENT_READY;
	d->failed |= event == NVME_EVENT_FAILED || event == NVME_EVENT_REMOVED;
}

static void perf_discover_on_log(void *arg, int error, const struct nvme_discovered *found, uint32_t n)
{
	struct discover *d = arg;

	d->read = true;
	d->error = error;
	for (uint32_t i = 0; i < n; i++) {
		if (found[i].subtype != NVME_NQN_NVME) {
			continue;
		}
		if (d->opts->num_targets == PERF_MAX_TARGETS) {
			fprintf(stderr, "varve-perf: more than %d subsystems were found; the rest is left out\n",
				PERF_MAX_TARGETS);
			return;
		}
		d->opts->targets[d->opts->num_targets++] = found[i].trid;
	}
}

static bool perf_discover_is_settled(void *arg)
{
	struct discover *d = arg;

	return d->ready || d->failed;
}

static bool perf_discover_is_read(void *arg)
{
	struct discover *d = arg;

	return d->read || d->failed;
}

static void perf_discover_on_gone(void *arg)
{
	((struct discover *)arg)->gone = true;
}

static bool perf_discover_is_gone(void *arg)
{
	return ((struct discover *)arg)->gone;
}

static bool perf_discover_ask(struct perf_options *o, const struct nvme_trid *at)
{
	struct discover d = {.opts = o};
	struct nvme_ctrlr_opts c;
	struct nvme_trid trid = *at;
	char error[NVME_ERROR_MAX];
	unsigned before = o->num_targets;

	nvme_ctrlr_opts_default(&c);
	snprintf(c.hostnqn, sizeof(c.hostnqn), "%s", o->hostnqn);
	c.hostid[0] = 0x76;
	c.keep_alive_ms = 0;
	c.discovery = true;
	c.event = perf_discover_on_event;
	c.event_arg = &d;
	strcpy(trid.subnqn, NVME_DISC_SUBSYS_NAME);
	d.ctrlr = nvme_ctrlr_create(&trid, &c, error);
	if (d.ctrlr == NULL) {
		fprintf(stderr, "varve-perf: %s\n", error);
		return false;
	}
	if (thread_control_wait(perf_discover_is_settled, &d, WAIT_US) && d.ready) {
		nvme_discovery_read(d.ctrlr, perf_discover_on_log, &d);
		thread_control_wait(perf_discover_is_read, &d, WAIT_US);
	}
	if (!d.read || d.error != 0) {
		fprintf(stderr, "varve-perf: the discovery service at %s port %s: %s\n", trid.traddr, trid.trsvcid,
			d.error ? strerror(-d.error) : nvme_ctrlr_last_error(d.ctrlr));
	} else if (o->num_targets == before) {
		fprintf(stderr, "varve-perf: the discovery service at %s port %s shows no subsystem to %s\n",
			trid.traddr, trid.trsvcid, o->hostnqn);
	}
	nvme_ctrlr_destroy(d.ctrlr, perf_discover_on_gone, &d);
	thread_control_wait(perf_discover_is_gone, &d, WAIT_US);
	return o->num_targets > before;
}

static bool perf_discover_is_service(const struct nvme_trid *t)
{
	return nvme_trtype_is_fabrics(t->trtype) &&
	       (t->subnqn[0] == '\0' || strcmp(t->subnqn, NVME_DISC_SUBSYS_NAME) == 0);
}

bool perf_discover(struct perf_options *o)
{
	for (unsigned i = 0; i < o->num_targets;) {
		if (!perf_discover_is_service(&o->targets[i])) {
			i++;
			continue;
		}
		struct nvme_trid at = o->targets[i];
		o->num_targets--;
		memmove(&o->targets[i], &o->targets[i + 1], (o->num_targets - i) * sizeof(o->targets[0]));
		if (!perf_discover_ask(o, &at)) {
			return false;
		}
	}
	return true;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of a target. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "nvmf/internal.h"

#define DEFAULT_MAX_SUBSYSTEMS     1024
#define DEFAULT_CONNECT_TIMEOUT_US (10 * 1000 * 1000)

static TAILQ_HEAD(, nvmf_tgt) tgts = TAILQ_HEAD_INITIALIZER(tgts);

static const uint32_t tgt_next_states[NVMF_TGT_STATES] = {
	[NVMF_TGT_NONE] = 1 << NVMF_TGT_CREATE_TARGET,
	[NVMF_TGT_CREATE_TARGET] = 1 << NVMF_TGT_CREATE_POLL_GROUPS | 1 << NVMF_TGT_STOP_SUBSYSTEMS,
	[NVMF_TGT_CREATE_POLL_GROUPS] = 1 << NVMF_TGT_START_SUBSYSTEMS | 1 << NVMF_TGT_ERROR,
	[NVMF_TGT_START_SUBSYSTEMS] = 1 << NVMF_TGT_RUNNING | 1 << NVMF_TGT_ERROR,
	[NVMF_TGT_RUNNING] = 1 << NVMF_TGT_STOP_SUBSYSTEMS,
	[NVMF_TGT_STOP_SUBSYSTEMS] = 1 << NVMF_TGT_DESTROY_SUBSYSTEMS,
	[NVMF_TGT_DESTROY_SUBSYSTEMS] = 1 << NVMF_TGT_DESTROY_POLL_GROUPS,
	[NVMF_TGT_DESTROY_POLL_GROUPS] = 1 << NVMF_TGT_STOPPED,
	[NVMF_TGT_STOPPED] = 0,
	[NVMF_TGT_ERROR] = 1 << NVMF_TGT_STOP_SUBSYSTEMS,
};
STATE_MACHINE(tgt_machine, "nvmf target", nvmf_tgt_state_name, tgt_next_states);

static void tgt_set_state(struct nvmf_tgt *tgt, enum nvmf_tgt_state state)
{
	state_machine_check(&tgt_machine, tgt->state, state, tgt->name);
	tgt->state = state;
	USDT(nvmf_tgt_state, state);
}

static struct nvmf_tgt *tgt_alloc(const struct nvmf_tgt_opts *opts)
{
	struct nvmf_tgt *tgt = calloc(1, sizeof(*tgt));

	if (tgt == NULL) {
		return NULL;
	}
	tgt->max_subsystems = opts->max_subsystems != 0 ? opts->max_subsystems : DEFAULT_MAX_SUBSYSTEMS;
	tgt->name = strdup(opts->name != NULL ? opts->name : "nvmf_tgt");
	tgt->subsystems = calloc(tgt->max_subsystems, sizeof(tgt->subsystems[0]));
	if (tgt->name == NULL || tgt->subsystems == NULL) {
		free(tgt->subsystems);
		free(tgt->name);
		free(tgt);
		return NULL;
	}
	tgt->discovery_filter = opts->discovery_filter;
	tgt->one_ctrlr_per_listener = opts->one_ctrlr_per_listener;
	tgt->dhchap_hashes = opts->dhchap_hashes != 0 ? opts->dhchap_hashes : DHCHAP_ALL_HASHES;
	tgt->dhchap_groups = opts->dhchap_groups != 0 ? opts->dhchap_groups : DHCHAP_ALL_GROUPS;
	memcpy(tgt->crdt, opts->crdt, sizeof(tgt->crdt));
	tgt->quiesce_limit_ms = opts->quiesce_limit_ms != 0 ? opts->quiesce_limit_ms : NVMF_QUIESCE_LIMIT_DEFAULT_MS;
	tgt->all_cores = opts->cores == NULL;
	if (opts->cores != NULL) {
		tgt->cores = *opts->cores;
	}
	tgt->connect_timeout_us = DEFAULT_CONNECT_TIMEOUT_US;
	TAILQ_INIT(&tgt->groups);
	TAILQ_INIT(&tgt->placements);
	TAILQ_INIT(&tgt->transports);
	TAILQ_INIT(&tgt->referrals);
	return tgt;
}

static void tgt_free(struct nvmf_tgt *tgt)
{
	nvmf_referrals_free(tgt);
	free(tgt->subsystems);
	free(tgt->name);
	free(tgt);
}

int nvmf_tgt_create(const struct nvmf_tgt_opts *opts, struct nvmf_tgt **tgtp)
{
	static const struct nvmf_subsystem_opts discovery_opts = {.allow_any_host = true};

	if (opts->name != NULL && nvmf_tgt_find(opts->name) != NULL) {
		return -EEXIST;
	}
	struct nvmf_tgt *tgt = tgt_alloc(opts);
	if (tgt == NULL) {
		return -ENOMEM;
	}
	int rc = nvmf_subsystem_new(tgt, NVMF_DISCOVERY_NQN, NVMF_SUBTYPE_DISCOVERY, &discovery_opts, &tgt->discovery);
	if (rc != 0) {
		tgt_free(tgt);
		return rc;
	}
	TAILQ_INSERT_TAIL(&tgts, tgt, link);
	tgt_set_state(tgt, NVMF_TGT_CREATE_TARGET);
	*tgtp = tgt;
	return 0;
}

/* The lcores that its poll groups may run on; each gets one. */
static void tgt_get_cores(const struct nvmf_tgt *tgt, cpu_set_t *cores)
{
	unsigned lcore;

	CPU_ZERO(cores);
	ENV_FOREACH_LCORE (lcore) {
		if (tgt->all_cores || CPU_ISSET(lcore, &tgt->cores)) {
			CPU_SET(lcore, cores);
		}
	}
}

static int tgt_create_groups(struct nvmf_tgt *tgt)
{
	struct nvmf_poll_group *group;
	struct nvmf_transport *t;
	char why[NVMF_ERROR_MAX];
	cpu_set_t cores;
	unsigned lcore;

	tgt_get_cores(tgt, &cores);
	ENV_FOREACH_LCORE (lcore) {
		if (!CPU_ISSET(lcore, &cores)) {
			continue;
		}
		int rc = nvmf_poll_group_create(tgt, lcore, &cores, &group);
		if (rc != 0) {
			return rc;
		}
		TAILQ_INSERT_TAIL(&tgt->groups, group, link);
		TAILQ_FOREACH (t, &tgt->transports, link) {
			rc = nvmf_poll_group_add_transport(group, t, why);
			if (rc != 0) {
				log_error("transport %s: %s", t->ops->name, why);
				return rc;
			}
		}
	}
	return TAILQ_EMPTY(&tgt->groups) ? -ENODEV : 0;
}

static void tgt_discovery_started(void *arg, int status)
{
	*(int *)arg = status;
}

/* Makes the views of subsystems that were started before there were poll groups. */
static int tgt_start_subsystems(struct nvmf_tgt *tgt)
{
	for (struct nvmf_subsystem *s = nvmf_subsystem_next(tgt, NULL); s != NULL; s = nvmf_subsystem_next(tgt, s)) {
		int rc = s->state != NVMF_SUBSYSTEM_INACTIVE && !s->views_open ? nvmf_subsystem_open_views(s) : 0;
		if (rc != 0) {
			return rc;
		}
	}
	/* Nothing else is queued in it, so it is started before this returns. */
	int rc = -EINPROGRESS;
	nvmf_subsystem_start(tgt->discovery, tgt_discovery_started, &rc);
	return rc;
}

int nvmf_tgt_start(struct nvmf_tgt *tgt)
{
	if (tgt->state != NVMF_TGT_CREATE_TARGET) {
		return -EINVAL;
	}
	tgt_set_state(tgt, NVMF_TGT_CREATE_POLL_GROUPS);
	int rc = tgt_create_groups(tgt);
	if (rc == 0) {
		tgt_set_state(tgt, NVMF_TGT_START_SUBSYSTEMS);
		rc = tgt_start_subsystems(tgt);
	}
	tgt_set_state(tgt, rc == 0 ? NVMF_TGT_RUNNING : NVMF_TGT_ERROR);
	if (rc != 0) {
		log_error("target %s cannot be started: %s", tgt->name, strerror(-rc));
	}
	return rc;
}

/* ---- Stopping ---- */

static void tgt_stop_finish(struct thread_msg *msg);

/* Ends the stop when all subsystems are stopped and all queue pairs gone; the rest needs no waiting. */
static void tgt_stop_step(struct nvmf_tgt *tgt)
{
	if (tgt->state != NVMF_TGT_STOP_SUBSYSTEMS || tgt->stopping_subsystems != 0 ||
	    tgt->destroying_subsystems != 0 || tgt->num_qpairs != 0) {
		return;
	}
	tgt_set_state(tgt, NVMF_TGT_DESTROY_SUBSYSTEMS);
	/* From the event loop, where no caller is left that uses a subsystem. */
	thread_post(thread_control(), &tgt->stop_msg, tgt_stop_finish);
}

/* The target's subsystems are stopped and its queue pairs gone: frees all that it has. */
static void tgt_free_parts(struct nvmf_tgt *tgt)
{
	struct nvmf_subsystem *s;
	struct nvmf_poll_group *group;

	while ((s = nvmf_subsystem_next(tgt, NULL)) != NULL) {
		nvmf_subsystem_free(s);
	}
	tgt->discovery = NULL;
	tgt_set_state(tgt, NVMF_TGT_DESTROY_POLL_GROUPS);
	while ((group = TAILQ_FIRST(&tgt->groups)) != NULL) {
		TAILQ_REMOVE(&tgt->groups, group, link);
		nvmf_poll_group_destroy(group);
	}
	while (!TAILQ_EMPTY(&tgt->transports)) {
		nvmf_transport_destroy(TAILQ_FIRST(&tgt->transports));
	}
	tgt_set_state(tgt, NVMF_TGT_STOPPED);
}

static void tgt_stop_finish(struct thread_msg *msg)
{
	struct nvmf_tgt *tgt = container_of(msg, struct nvmf_tgt, stop_msg);

	tgt_free_parts(tgt);
	tgt->stop_done(tgt->stop_arg, 0);
}

static void tgt_subsystem_stopped(void *arg, int status)
{
	struct nvmf_tgt *tgt = arg;

	tgt->stopping_subsystems--;
	tgt_stop_step(tgt);
}

void nvmf_tgt_subsystem_settled(struct nvmf_tgt *tgt)
{
	tgt->destroying_subsystems--;
	tgt_stop_step(tgt);
}

void nvmf_tgt_qpair_gone(struct nvmf_tgt *tgt)
{
	tgt->num_qpairs--;
	tgt_stop_step(tgt);
}

/* A subsystem may be waiting for something else before it stops; its hosts are not kept until then. */
static void tgt_end_ctrlrs(struct nvmf_tgt *tgt)
{
	for (struct nvmf_subsystem *s = nvmf_subsystem_next(tgt, NULL); s != NULL; s = nvmf_subsystem_next(tgt, s)) {
		struct nvmf_ctrlr *ctrlr, *next;

		s->connectable = false;
		for (ctrlr = TAILQ_FIRST(&s->ctrlrs); ctrlr != NULL; ctrlr = next) {
			next = TAILQ_NEXT(ctrlr, link);
			nvmf_ctrlr_destroy(ctrlr, "the target is being stopped");
		}
	}
}

/* Asks all subsystems to stop; tgt_subsystem_stopped() is called for each, and must be once more by the caller. */
static void tgt_stop_subsystems(struct nvmf_tgt *tgt)
{
	tgt_set_state(tgt, NVMF_TGT_STOP_SUBSYSTEMS);
	tgt->stopping_subsystems = 1; /* the caller's own, until all subsystems have been asked to stop */
	for (struct nvmf_subsystem *s = nvmf_subsystem_next(tgt, NULL); s != NULL; s = nvmf_subsystem_next(tgt, s)) {
		struct nvmf_op *op = s->stop_op;
		s->stop_op = NULL;
		*op = (struct nvmf_op){.kind = NVMF_OP_STOP, .done = tgt_subsystem_stopped, .arg = tgt};
		tgt->stopping_subsystems++;
		nvmf_subsystem_add_op(s, op);
	}
}

void nvmf_tgt_stop(struct nvmf_tgt *tgt, nvmf_done_fn done, void *arg)
{
	struct nvmf_poll_group *group;

	if (tgt->stop_done != NULL) {
		done(arg, -EALREADY);
		return;
	}
	tgt->stop_done = done;
	tgt->stop_arg = arg;
	nvmf_mdns_stop(tgt);
	tgt_end_ctrlrs(tgt);
	tgt_stop_subsystems(tgt);
	TAILQ_FOREACH (group, &tgt->groups, link) {
		nvmf_poll_group_stop(group);
	}
	tgt_subsystem_stopped(tgt, 0);
}

/* A target that was never started has no poll groups and no hosts: its subsystems stop at once. */
static void tgt_stop_unstarted(struct nvmf_tgt *tgt)
{
	nvmf_mdns_stop(tgt);
	tgt_stop_subsystems(tgt);
	assert(tgt->stopping_subsystems == 1 && tgt->destroying_subsystems == 0 && tgt->num_qpairs == 0);
	tgt_set_state(tgt, NVMF_TGT_DESTROY_SUBSYSTEMS);
	tgt_free_parts(tgt);
}

void nvmf_tgt_destroy(struct nvmf_tgt *tgt)
{
	if (tgt->state == NVMF_TGT_CREATE_TARGET) {
		tgt_stop_unstarted(tgt);
	}
	assert(tgt->state == NVMF_TGT_STOPPED);
	TAILQ_REMOVE(&tgts, tgt, link);
	tgt_free(tgt);
	nvmf_tgt_destroyed();
}

/* ---- Looking ---- */

/* The states in which a target, its transports and its subsystems may be changed. */
#define TGT_OPEN_STATES                                                                                                \
	(1u << NVMF_TGT_CREATE_TARGET | 1u << NVMF_TGT_CREATE_POLL_GROUPS | 1u << NVMF_TGT_START_SUBSYSTEMS |          \
	 1u << NVMF_TGT_RUNNING)

int nvmf_tgt_check_open(const struct nvmf_tgt *tgt, char why[NVMF_ERROR_MAX])
{
	if ((TGT_OPEN_STATES & 1u << tgt->state) != 0) {
		return 0;
	}
	snprintf(why, NVMF_ERROR_MAX, "target %s is in state %s: it is being deleted, with all that belongs to it",
		 tgt->name, nvmf_tgt_state_name(tgt->state));
	return -EBUSY;
}

void nvmf_tgt_discovery_changed(struct nvmf_tgt *tgt)
{
	struct nvmf_ctrlr *ctrlr;

	tgt->generation++;
	if (tgt->discovery == NULL) {
		return;
	}
	TAILQ_FOREACH (ctrlr, &tgt->discovery->ctrlrs, link) {
		nvmf_event_raise(ctrlr, NVMF_EVENT_DISCOVERY_CHANGED);
	}
}

struct nvmf_tgt *nvmf_tgt_find(const char *name)
{
	struct nvmf_tgt *tgt;

	TAILQ_FOREACH (tgt, &tgts, link) {
		if (name == NULL || strcmp(tgt->name, name) == 0) {
			return tgt;
		}
	}
	return NULL;
}

struct nvmf_tgt *nvmf_tgt_next(const struct nvmf_tgt *after)
{
	return after == NULL ? TAILQ_FIRST(&tgts) : TAILQ_NEXT(after, link);
}

const char *nvmf_tgt_name(const struct nvmf_tgt *tgt)
{
	return tgt->name;
}

enum nvmf_tgt_state nvmf_tgt_get_state(const struct nvmf_tgt *tgt)
{
	return tgt->state;
}

uint32_t nvmf_tgt_max_subsystems(const struct nvmf_tgt *tgt)
{
	return tgt->max_subsystems;
}

void nvmf_tgt_set_discovery_filter(struct nvmf_tgt *tgt, uint32_t filter)
{
	tgt->discovery_filter = filter;
	nvmf_tgt_discovery_changed(tgt);
}

bool nvmf_tgt_one_ctrlr_per_listener(const struct nvmf_tgt *tgt)
{
	return tgt->one_ctrlr_per_listener;
}

uint32_t nvmf_tgt_discovery_filter(const struct nvmf_tgt *tgt)
{
	return tgt->discovery_filter;
}

void nvmf_tgt_set_crdt(struct nvmf_tgt *tgt, const uint16_t crdt[3])
{
	memcpy(tgt->crdt, crdt, sizeof(tgt->crdt));
}

const uint16_t *nvmf_tgt_crdt(const struct nvmf_tgt *tgt)
{
	return tgt->crdt;
}

uint64_t nvmf_tgt_generation(const struct nvmf_tgt *tgt)
{
	return tgt->generation;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Subsystems: making and freeing them, and reading their properties. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "nvmf/internal.h"

#define DEFAULT_MAX_NAMESPACES 32
#define MAX_NAMESPACES         65536
#define DEFAULT_SERIAL_NUMBER  "00000000000000000000"
#define DEFAULT_MODEL_NUMBER   "varve bdev Controller"

/* SN and MN are printable ASCII (Base 1.4.2). */
static int subsystem_check_ascii(const char *what, const char *text, size_t max, char *why)
{
	size_t len = strlen(text);

	if (len == 0 || len > max) {
		snprintf(why, NVMF_ERROR_MAX, "\"%s\" has %zu characters: allowed are 1 to %zu", what, len, max);
		return -EINVAL;
	}
	for (const char *c = text; *c != 0; c++) {
		if (!isascii((unsigned char)*c) || !isprint((unsigned char)*c)) {
			snprintf(why, NVMF_ERROR_MAX, "\"%s\" has byte 0x%02x: allowed is printable ASCII", what,
				 (unsigned char)*c);
			return -EINVAL;
		}
	}
	return 0;
}

int nvmf_subsystem_opts_check(const char *nqn, const struct nvmf_subsystem_opts *o, char why[NVMF_ERROR_MAX])
{
	uint16_t max = o->max_cntlid != 0 ? o->max_cntlid : NVME_CNTLID_MAX;

	if (!nvmf_nqn_is_valid(nqn)) {
		snprintf(why, NVMF_ERROR_MAX,
			 "\"nqn\" is \"%.64s\": allowed is nqn.yyyy-mm.reverse.domain[:name], at most %d "
			 "bytes",
			 nqn, NVMF_NQN_MAX);
		return -EINVAL;
	}
	if (o->max_namespaces > MAX_NAMESPACES) {
		snprintf(why, NVMF_ERROR_MAX, "\"max_namespaces\" is %u: allowed are 1 to %u", o->max_namespaces,
			 MAX_NAMESPACES);
		return -EINVAL;
	}
	if (max > NVME_CNTLID_MAX || o->min_cntlid > max) {
		snprintf(why, NVMF_ERROR_MAX,
			 "\"min_cntlid\" is %u and \"max_cntlid\" %u: allowed are 1 to %u, the smaller first",
			 o->min_cntlid, max, NVME_CNTLID_MAX);
		return -EINVAL;
	}
	int rc = o->serial_number != NULL ? subsystem_check_ascii("serial_number", o->serial_number, NVMF_SN_MAX, why)
					  : 0;
	if (rc == 0 && o->model_number != NULL) {
		rc = subsystem_check_ascii("model_number", o->model_number, NVMF_MN_MAX, why);
	}
	if (rc == 0 && o->admin_label != NULL && o->admin_label[0] != 0) {
		rc = subsystem_check_ascii("admin_label", o->admin_label, NVMF_ADMIN_LABEL_MAX, why);
	}
	return rc;
}

static struct nvmf_subsystem *subsystem_alloc(const char *nqn, const struct nvmf_subsystem_opts *o, uint32_t max_nsid)
{
	struct nvmf_subsystem *s = calloc(1, sizeof(*s));

	if (s == NULL) {
		return NULL;
	}
	s->drain_us = NVMF_DRAIN_US;
	s->ns = calloc(max_nsid + 1, sizeof(s->ns[0]));
	s->ana_members = o->ana_reporting ? calloc(max_nsid + 1, sizeof(s->ana_members[0])) : NULL;
	s->stop_op = malloc(sizeof(*s->stop_op));
	if (s->ns == NULL || s->stop_op == NULL || (o->ana_reporting && s->ana_members == NULL)) {
		free(s->stop_op);
		free(s->ana_members);
		free(s->ns);
		free(s);
		return NULL;
	}
	for (uint32_t i = 0; i < max_nsid && o->ana_reporting; i++) {
		TAILQ_INIT(&s->ana_members[i]);
	}
	s->max_nsid = max_nsid;
	s->allow_any_host = o->allow_any_host;
	s->ana_reporting = o->ana_reporting;
	s->static_ctrlrs = o->static_ctrlrs;
	s->dmrsl = o->dmrsl;
	s->wzsl = o->wzsl;
	s->min_cntlid = o->min_cntlid != 0 ? o->min_cntlid : 1;
	s->max_cntlid = o->max_cntlid != 0 ? o->max_cntlid : NVME_CNTLID_MAX;
	s->next_cntlid = s->min_cntlid;
	snprintf(s->serial_number, sizeof(s->serial_number), "%s",
		 o->serial_number != NULL ? o->serial_number : DEFAULT_SERIAL_NUMBER);
	snprintf(s->model_number, sizeof(s->model_number), "%s",
		 o->model_number != NULL ? o->model_number : DEFAULT_MODEL_NUMBER);
	snprintf(s->admin_label, sizeof(s->admin_label), "%s", o->admin_label != NULL ? o->admin_label : "");
	snprintf(s->nqn, sizeof(s->nqn), "%s", nqn);
	STAILQ_INIT(&s->ops);
	TAILQ_INIT(&s->waiters);
	TAILQ_INIT(&s->hosts);
	TAILQ_INIT(&s->qos);
	TAILQ_INIT(&s->listeners);
	TAILQ_INIT(&s->ctrlrs);
	TAILQ_INIT(&s->latencies);
	TAILQ_INIT(&s->peers);
	return s;
}

int nvmf_subsystem_new(struct nvmf_tgt *tgt, const char *nqn, enum nvmf_subtype subtype,
		       const struct nvmf_subsystem_opts *opts, struct nvmf_subsystem **subsystem)
{
	uint32_t index = 0, max_nsid = opts->max_namespaces != 0 ? opts->max_namespaces : DEFAULT_MAX_NAMESPACES;

	while (index < tgt->max_subsystems && tgt->subsystems[index] != NULL) {
		index++;
	}
	if (index == tgt->max_subsystems) {
		log_error("subsystem %s: the target has its %u subsystems (max_subsystems) already", nqn,
			  tgt->max_subsystems);
		return -ENOSPC;
	}
	struct nvmf_subsystem *s = subsystem_alloc(nqn, opts, subtype == NVMF_SUBTYPE_DISCOVERY ? 0 : max_nsid);
	if (s == NULL) {
		return -ENOMEM;
	}
	s->tgt = tgt;
	s->index = index;
	s->subtype = subtype;
	s->created_ticks = s->state_ticks = env_ticks();
	s->trace_owner = trace_owner_register(TRACE_OWNER_NVMF_SUBSYSTEM, s->nqn);
	tgt->subsystems[index] = s;
	nvmf_subsystem_take_kept(s);
	USDT(nvmf_subsystem_create, s->nqn);
	nvmf_notice(NVMF_NOTICE_SUBSYSTEM_CREATE, NULL, "%s", s->nqn);
	*subsystem = s;
	return 0;
}

int nvmf_subsystem_create(struct nvmf_tgt *tgt, const char *nqn, const struct nvmf_subsystem_opts *opts,
			  struct nvmf_subsystem **subsystem)
{
	char why[NVMF_ERROR_MAX];
	int rc = nvmf_subsystem_opts_check(nqn, opts, why);

	if (rc != 0) {
		log_error("subsystem: %s", why);
		return rc;
	}
	if (nvmf_tgt_check_open(tgt, why) != 0) {
		log_error("subsystem %s cannot be made: %s", nqn, why);
		return -EBUSY;
	}
	if (nvmf_subsystem_find(tgt, nqn) != NULL) {
		return -EEXIST;
	}
	return nvmf_subsystem_new(tgt, nqn, NVMF_SUBTYPE_NVME, opts, subsystem);
}

void nvmf_subsystem_free(struct nvmf_subsystem *s)
{
	assert(s->state == NVMF_SUBSYSTEM_INACTIVE && STAILQ_EMPTY(&s->ops));
	USDT(nvmf_subsystem_destroy, s->nqn);
	nvmf_notice(NVMF_NOTICE_SUBSYSTEM_DESTROY, NULL, "%s", s->nqn);
	for (uint32_t i = 0; i < s->max_nsid; i++) {
		if (s->ns[i] != NULL) {
			nvmf_ns_free(s->ns[i]);
		}
	}
	while (!TAILQ_EMPTY(&s->listeners)) {
		nvmf_listener_free(s, TAILQ_FIRST(&s->listeners));
	}
	nvmf_hosts_free(&s->hosts);
	nvmf_subsystem_note_kept(s);
	nvmf_host_latencies_free(s);
	nvmf_peers_free(s);
	nvmf_qos_free(s);
	s->tgt->subsystems[s->index] = NULL;
	trace_owner_release(s->trace_owner);
	free(s->cius);
	free(s->stop_op);
	free(s->ana_members);
	free(s->ns);
	free(s);
}

static void subsystem_destroy_now(struct thread_msg *msg)
{
	struct nvmf_subsystem *s = container_of(msg, struct nvmf_subsystem, destroy_msg);
	nvmf_done_fn done = s->destroy_done;
	void *arg = s->destroy_arg;
	struct nvmf_tgt *tgt = s->tgt;

	nvmf_subsystem_free(s);
	done(arg, 0);
	nvmf_tgt_subsystem_settled(tgt);
}

static void subsystem_destroy_stopped(void *arg, int status)
{
	struct nvmf_subsystem *s = arg;
	nvmf_done_fn done = s->destroy_done;

	if (status != 0) { /* no memory to stop it: nothing has changed */
		s->destroy_done = NULL;
		done(s->destroy_arg, status);
		nvmf_tgt_subsystem_settled(s->tgt);
		return;
	}
	thread_post(thread_control(), &s->destroy_msg, subsystem_destroy_now);
}

void nvmf_subsystem_destroy(struct nvmf_subsystem *s, nvmf_done_fn done, void *arg)
{
	if (s->destroy_done != NULL || s == s->tgt->discovery) {
		done(arg, s == s->tgt->discovery ? -EPERM : -EALREADY);
		return;
	}
	if (nvmf_tgt_check_open(s->tgt, (char[NVMF_ERROR_MAX]){0}) != 0) {
		done(arg, -EBUSY);
		return;
	}
	s->tgt->destroying_subsystems++;
	s->destroy_done = done;
	s->destroy_arg = arg;
	if (s->state == NVMF_SUBSYSTEM_INACTIVE && STAILQ_EMPTY(&s->ops)) {
		subsystem_destroy_stopped(s, 0);
	} else {
		nvmf_subsystem_stop(s, subsystem_destroy_stopped, s);
	}
}

int nvmf_subsystem_check_open(const struct nvmf_subsystem *s, char why[NVMF_ERROR_MAX])
{
	if (s->destroy_done != NULL) {
		snprintf(why, NVMF_ERROR_MAX, "subsystem %.160s is in state %s: it is being deleted", s->nqn,
			 nvmf_subsystem_state_name(s->state));
		return -EBUSY;
	}
	return nvmf_tgt_check_open(s->tgt, why);
}

int nvmf_subsystem_refuse_change(const struct nvmf_subsystem *s, const char *change)
{
	char why[NVMF_ERROR_MAX];

	if (nvmf_subsystem_check_open(s, why) == 0) {
		return 0;
	}
	log_error("%s: %s", change, why);
	return -EBUSY;
}

struct nvmf_subsystem *nvmf_subsystem_next(struct nvmf_tgt *tgt, const struct nvmf_subsystem *after)
{
	for (uint32_t i = after == NULL ? 0 : after->index + 1; i < tgt->max_subsystems; i++) {
		if (tgt->subsystems[i] != NULL) {
			return tgt->subsystems[i];
		}
	}
	return NULL;
}

struct nvmf_subsystem *nvmf_subsystem_find(struct nvmf_tgt *tgt, const char *nqn)
{
	for (struct nvmf_subsystem *s = nvmf_subsystem_next(tgt, NULL); s != NULL; s = nvmf_subsystem_next(tgt, s)) {
		if (strcmp(s->nqn, nqn) == 0) {
			return s;
		}
	}
	return NULL;
}

struct nvmf_tgt *nvmf_subsystem_tgt(const struct nvmf_subsystem *s)
{
	return s->tgt;
}

const char *nvmf_subsystem_nqn(const struct nvmf_subsystem *s)
{
	return s->nqn;
}

enum nvmf_subtype nvmf_subsystem_subtype(const struct nvmf_subsystem *s)
{
	return s->subtype;
}

enum nvmf_subsystem_state nvmf_subsystem_get_state(const struct nvmf_subsystem *s)
{
	return s->state;
}

uint64_t nvmf_subsystem_state_ticks(const struct nvmf_subsystem *s)
{
	return s->state_ticks;
}

const char *nvmf_subsystem_serial_number(const struct nvmf_subsystem *s)
{
	return s->serial_number;
}

const char *nvmf_subsystem_model_number(const struct nvmf_subsystem *s)
{
	return s->model_number;
}

const char *nvmf_subsystem_admin_label(const struct nvmf_subsystem *s)
{
	return s->admin_label;
}

uint32_t nvmf_subsystem_max_namespaces(const struct nvmf_subsystem *s)
{
	return s->max_nsid;
}

uint16_t nvmf_subsystem_min_cntlid(const struct nvmf_subsystem *s)
{
	return s->min_cntlid;
}

uint16_t nvmf_subsystem_max_cntlid(const struct nvmf_subsystem *s)
{
	return s->max_cntlid;
}

bool nvmf_subsystem_ana_reporting(const struct nvmf_subsystem *s)
{
	return s->ana_reporting;
}

uint32_t nvmf_subsystem_dmrsl(const struct nvmf_subsystem *s)
{
	return s->dmrsl;
}

uint8_t nvmf_subsystem_wzsl(const struct nvmf_subsystem *s)
{
	return s->wzsl;
}

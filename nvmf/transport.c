/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of transports by name, the transports of a target, and the addresses they listen on. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "nvmf/internal.h"

static SLIST_HEAD(, nvmf_transport_ops) types = SLIST_HEAD_INITIALIZER(types);

void nvmf_transport_register(struct nvmf_transport_ops *ops)
{
	SLIST_INSERT_HEAD(&types, ops, link);
}

const struct nvmf_transport_ops *nvmf_transport_ops_find(const char *trtype)
{
	const struct nvmf_transport_ops *ops;

	SLIST_FOREACH (ops, &types, link) {
		if (strcasecmp(ops->name, trtype) == 0) {
			return ops;
		}
	}
	return NULL;
}

int nvmf_trtype_number(const char *trtype)
{
	static const struct {
		const char *name;
		uint8_t number;
	} known[] = {{"RDMA", NVMF_TRTYPE_RDMA}, {"FC", NVMF_TRTYPE_FC}, {"TCP", NVMF_TRTYPE_TCP}};
	const struct nvmf_transport_ops *ops = nvmf_transport_ops_find(trtype);

	if (ops != NULL) {
		return ops->trtype;
	}
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (strcasecmp(known[i].name, trtype) == 0) {
			return known[i].number;
		}
	}
	return -1;
}

const char *nvmf_transport_type(unsigned index)
{
	const struct nvmf_transport_ops *ops;

	SLIST_FOREACH (ops, &types, link) {
		if (index-- == 0) {
			return ops->name;
		}
	}
	return NULL;
}

/* ---- What a transport tells about itself ---- */

const char *nvmf_request_class_name(enum nvmf_request_class class)
{
	static const char *const names[NVMF_CLASSES] = {
		[NVMF_CLASS_NONE] = "none",
		[NVMF_CLASS_IDLE] = "idle",
		[NVMF_CLASS_PASSING] = "passing",
		[NVMF_CLASS_WAITS_FOR_BUFFER] = "waits_for_buffer",
		[NVMF_CLASS_WAITS_FOR_ROOM] = "waits_for_room",
		[NVMF_CLASS_TRANSFERS] = "transfers",
		[NVMF_CLASS_EXECUTES] = "executes",
		[NVMF_CLASS_COMPLETES] = "completes",
	};

	return class < NVMF_CLASSES ? names[class] : "unknown";
}

const struct nvmf_transport_state *nvmf_transport_ops_state(const struct nvmf_transport_ops *ops, unsigned n)
{
	return n < ops->n_states && ops->states[n].class != NVMF_CLASS_NONE ? &ops->states[n] : NULL;
}

const struct nvmf_transport_state *nvmf_transport_state(const char *trtype, unsigned n)
{
	const struct nvmf_transport_ops *ops = nvmf_transport_ops_find(trtype);

	return ops != NULL ? nvmf_transport_ops_state(ops, n) : NULL;
}

void nvmf_transport_trace_names(const char *trtype, const char **group, const char **prefix)
{
	const struct nvmf_transport_ops *ops = nvmf_transport_ops_find(trtype);

	*group = ops != NULL ? ops->trace_group : NULL;
	*prefix = ops != NULL ? ops->trace_prefix : NULL;
}

static const struct nvmf_device_counter *transport_counter_at(const struct nvmf_transport_ops *ops, unsigned n)
{
	const struct nvmf_device_counter *c = ops->counters;

	while (c != NULL && c->name != NULL && n-- != 0) {
		c++;
	}
	return c != NULL && c->name != NULL ? c : NULL;
}

const struct nvmf_device_counter *nvmf_transport_counter(const char *trtype, unsigned n)
{
	const struct nvmf_transport_ops *ops = nvmf_transport_ops_find(trtype);

	return ops != NULL && n < NVMF_DEVICE_COUNTERS_MAX ? transport_counter_at(ops, n) : NULL;
}

unsigned nvmf_transport_counter_of_metric(const char *trtype, const char *metric)
{
	const struct nvmf_device_counter *c;

	for (unsigned n = 0; (c = nvmf_transport_counter(trtype, n)) != NULL; n++) {
		if (c->metric != NULL && strcmp(c->metric, metric) == 0) {
			return n;
		}
	}
	return NVMF_DEVICE_COUNTERS_MAX;
}

void nvmf_transport_add_device_stats(struct nvmf_transport_group *tgroup, struct nvmf_transport_stats *stats,
				     const char *name, const void *counters)
{
	const struct nvmf_device_counter *c;

	if (stats->num_devices == NVMF_STATS_DEVICES_MAX) {
		return;
	}
	struct nvmf_device_stats *d = &stats->devices[stats->num_devices++];
	snprintf(d->name, sizeof(d->name), "%s", name);
	for (unsigned n = 0;
	     n < NVMF_DEVICE_COUNTERS_MAX && (c = transport_counter_at(tgroup->transport->ops, n)) != NULL; n++) {
		d->counters[n] = *(const uint64_t *)((const char *)counters + c->offset);
	}
}

struct nvmf_request *nvmf_qpair_next_request(const struct nvmf_qpair *qpair, const struct nvmf_request *after)
{
	const struct nvmf_request_array *all = qpair->requests;

	if (all == NULL || all->count == 0) {
		return NULL;
	}
	char *first = (char *)all->first;
	uint32_t i = after != NULL ? (uint32_t)((size_t)((const char *)after - first) / all->stride) + 1 : 0;
	for (; i < all->count; i++) {
		struct nvmf_request *req = (struct nvmf_request *)(first + i * all->stride);
		if (req->qpair == qpair && nvmf_request_state_number(req) != NVMF_STATE_IDLE) {
			return req;
		}
	}
	return NULL;
}

/* ---- Transports of a target ---- */

static int add_to_groups(struct nvmf_transport *t, char why[NVMF_ERROR_MAX])
{
	struct nvmf_poll_group *group;

	TAILQ_FOREACH (group, &t->tgt->groups, link) {
		int rc = nvmf_poll_group_add_transport(group, t, why);
		if (rc != 0) {
			return rc;
		}
	}
	return 0;
}

/* Hosts send the descriptors of scattered data in the capsule, in the room for data there. Identify announces as many
 * as the transport takes (MSDBD), and hosts rely on both numbers: with less room a stock host fails every command of
 * several pieces. */
static void raise_in_capsule_size(struct nvmf_transport *t)
{
	uint32_t least = t->sgl_rules.keyed ? t->sgl_rules.max_descs * (uint32_t)sizeof(union nvme_sgl_desc) : 0;

	if (t->opts.in_capsule_data_size < least) {
		log_notice("transport %s: in_capsule_data_size is %u; it becomes %u, the room for the %u descriptors "
			   "that a command may have",
			   t->ops->name, t->opts.in_capsule_data_size, least, t->sgl_rules.max_descs);
		t->opts.in_capsule_data_size = least;
	}
}

static int transport_check(struct nvmf_tgt *tgt, const char *trtype, const struct nvmf_transport_opts *opts,
			   char why[NVMF_ERROR_MAX])
{
	if (nvmf_transport_ops_find(trtype) == NULL) {
		snprintf(why, NVMF_ERROR_MAX, "trtype \"%s\" is no transport of this program", trtype);
		return -EINVAL;
	}
	int rc = nvmf_tgt_check_open(tgt, why);
	if (rc == 0 && nvmf_transport_find(tgt, trtype) != NULL) {
		snprintf(why, NVMF_ERROR_MAX, "the target has one already");
		return -EEXIST;
	}
	return rc != 0 ? rc : nvmf_transport_opts_check(trtype, opts, why);
}

static bool connections_held; /* nvmf_hold_connections() */

static struct nvmf_transport *transport_make(struct nvmf_tgt *tgt, const struct nvmf_transport_ops *ops,
					     const struct nvmf_transport_opts *opts, char why[NVMF_ERROR_MAX])
{
	struct nvmf_transport *t = ops->create(tgt, opts, why);

	if (t == NULL) {
		return NULL;
	}
	t->ops = ops;
	t->tgt = tgt;
	t->held = connections_held;
	t->anonymous = nvmf_anonymous_create();
	if (t->anonymous == NULL) {
		ops->destroy(t);
		errno = ENOMEM;
		return NULL;
	}
	t->opts = *opts;
	raise_in_capsule_size(t);
	TAILQ_INIT(&t->listens);
	TAILQ_INSERT_TAIL(&tgt->transports, t, link);
	return t;
}

static void transport_remove(struct nvmf_transport *t)
{
	struct nvmf_poll_group *group;

	TAILQ_FOREACH (group, &t->tgt->groups, link) {
		nvmf_poll_group_remove_transport(group, t);
	}
	nvmf_transport_destroy(t);
}

int nvmf_transport_create(struct nvmf_tgt *tgt, const char *trtype, const struct nvmf_transport_opts *opts,
			  char why[NVMF_ERROR_MAX])
{
	int rc = transport_check(tgt, trtype, opts, why);

	if (rc == -EEXIST) {
		return rc;
	}
	if (rc == 0) {
		snprintf(why, NVMF_ERROR_MAX, "no memory");
		struct nvmf_transport *t = transport_make(tgt, nvmf_transport_ops_find(trtype), opts, why);
		rc = t == NULL ? -errno : add_to_groups(t, why);
		if (t != NULL && rc != 0) {
			transport_remove(t);
		} else if (rc == 0) {
			USDT(nvmf_tgt_add_transport, t->ops->name, tgt->name);
		}
	}
	if (rc != 0) {
		log_error("transport %s: %s", trtype, why);
	}
	return rc;
}

void nvmf_transport_destroy(struct nvmf_transport *t)
{
	TAILQ_REMOVE(&t->tgt->transports, t, link);
	nvmf_anonymous_destroy(t->anonymous);
	t->ops->destroy(t);
}

static void transport_hold(struct nvmf_transport *t, bool hold)
{
	bool resume = t->held && !hold;

	t->held = hold;
	if (resume && t->ops->resume != NULL) {
		t->ops->resume(t);
	}
}

void nvmf_hold_connections(bool hold)
{
	struct nvmf_transport *t;

	connections_held = hold;
	for (struct nvmf_tgt *tgt = nvmf_tgt_next(NULL); tgt != NULL; tgt = nvmf_tgt_next(tgt)) {
		TAILQ_FOREACH (t, &tgt->transports, link) {
			transport_hold(t, hold);
		}
	}
}

struct nvmf_transport *nvmf_transport_find(struct nvmf_tgt *tgt, const char *trtype)
{
	struct nvmf_transport *t;

	TAILQ_FOREACH (t, &tgt->transports, link) {
		if (strcasecmp(t->ops->name, trtype) == 0) {
			return t;
		}
	}
	return NULL;
}

struct nvmf_transport *nvmf_transport_next(struct nvmf_tgt *tgt, const struct nvmf_transport *after)
{
	return after == NULL ? TAILQ_FIRST(&tgt->transports) : TAILQ_NEXT(after, link);
}

const char *nvmf_transport_name(const struct nvmf_transport *t)
{
	return t->ops->name;
}

const struct nvmf_transport_opts *nvmf_transport_get_opts(const struct nvmf_transport *t)
{
	return &t->opts;
}

/* ---- Listening ---- */

static struct nvmf_listen *find_listen(const struct nvmf_transport *t, const struct nvmf_address *address)
{
	struct nvmf_listen *l;

	TAILQ_FOREACH (l, &t->listens, link) {
		if (nvmf_address_equal(&l->address, address)) {
			return l;
		}
	}
	return NULL;
}

bool nvmf_transport_has_tls(const struct nvmf_transport *t)
{
	return t->ops->listen_secure != NULL;
}

bool nvmf_transport_demands_tls(const struct nvmf_transport *t, const struct nvmf_address *address)
{
	const struct nvmf_listen *l = find_listen(t, address);

	return l != NULL && l->secure;
}

int nvmf_transport_listen(struct nvmf_transport *t, const struct nvmf_address *address, bool secure,
			  struct nvmf_listen **listen)
{
	struct nvmf_listen *l = find_listen(t, address);

	if (l != NULL && l->secure != secure) {
		return -EPROTOTYPE;
	}
	if (l == NULL) {
		l = calloc(1, sizeof(*l));
		if (l == NULL) {
			return -ENOMEM;
		}
		l->address = *address;
		l->secure = secure;
		int rc = secure ? t->ops->listen_secure(t, address) : t->ops->listen(t, address);
		if (rc != 0) {
			free(l);
			return rc;
		}
		l->portid = t->tgt->next_portid++;
		TAILQ_INSERT_TAIL(&t->listens, l, link);
	}
	l->refs++;
	*listen = l;
	return 0;
}

void nvmf_transport_unlisten(struct nvmf_transport *t, struct nvmf_listen *l)
{
	if (--l->refs == 0) {
		t->ops->stop_listen(t, &l->address);
		TAILQ_REMOVE(&t->listens, l, link);
		free(l);
	}
}

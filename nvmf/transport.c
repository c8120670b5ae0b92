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

static int add_to_groups(struct nvmf_transport *t)
{
	struct nvmf_poll_group *group;

	TAILQ_FOREACH (group, &t->tgt->groups, link) {
		int rc = nvmf_poll_group_add_transport(group, t);
		if (rc != 0) {
			return rc;
		}
	}
	return 0;
}

int nvmf_transport_create(struct nvmf_tgt *tgt, const char *trtype, const struct nvmf_transport_opts *opts)
{
	const struct nvmf_transport_ops *ops = nvmf_transport_ops_find(trtype);

	if (ops == NULL) {
		log_error("trtype \"%s\" is no transport of this program", trtype);
		return -EINVAL;
	}
	if (nvmf_transport_find(tgt, trtype) != NULL) {
		return -EEXIST;
	}
	char why[NVMF_ERROR_MAX];
	int rc = nvmf_transport_opts_check(trtype, opts, why);
	if (rc != 0) {
		log_error("transport %s: %s", trtype, why);
		return rc;
	}
	struct nvmf_transport *t = ops->create(tgt, opts);
	if (t == NULL) {
		return -errno;
	}
	t->ops = ops;
	t->tgt = tgt;
	t->opts = *opts;
	TAILQ_INIT(&t->listens);
	TAILQ_INSERT_TAIL(&tgt->transports, t, link);
	USDT(nvmf_tgt_add_transport, ops->name, tgt->name);
	rc = add_to_groups(t);
	if (rc != 0) {
		log_error("transport %s: a poll group cannot serve it: %s", ops->name, strerror(-rc));
		struct nvmf_poll_group *group;
		TAILQ_FOREACH (group, &tgt->groups, link) {
			nvmf_poll_group_remove_transport(group, t);
		}
		nvmf_transport_destroy(t);
	}
	return rc;
}

void nvmf_transport_destroy(struct nvmf_transport *t)
{
	TAILQ_REMOVE(&t->tgt->transports, t, link);
	t->ops->destroy(t);
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

static struct nvmf_listen *find_listen(struct nvmf_transport *t, const struct nvmf_address *address)
{
	struct nvmf_listen *l;

	TAILQ_FOREACH (l, &t->listens, link) {
		if (nvmf_address_equal(&l->address, address)) {
			return l;
		}
	}
	return NULL;
}

int nvmf_transport_listen(struct nvmf_transport *t, const struct nvmf_address *address, struct nvmf_listen **listen)
{
	struct nvmf_listen *l = find_listen(t, address);

	if (l == NULL) {
		l = calloc(1, sizeof(*l));
		if (l == NULL) {
			return -ENOMEM;
		}
		l->address = *address;
		int rc = t->ops->listen(t, address);
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

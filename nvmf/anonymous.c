/* SPDX-License-Identifier: BSD-3-Clause */
/* Anonymous connections: those that anybody on the fabric can have, because their host has not been admitted to a
 * subsystem (it has not sent Connect, or has not authenticated yet), or because they read the discovery log only. Each
 * transport counts them, in all and for each address of a host, and takes no more than its options allow. Control
 * thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "nvmf/internal.h"

#define BUCKETS 1024

struct anonymous_host {
	char traddr[NVMF_TRADDR_MAX + 1];
	uint32_t connections;
	SLIST_ENTRY(anonymous_host) link;
};

struct nvmf_anonymous {
	uint32_t connections;
	SLIST_HEAD(anonymous_bucket, anonymous_host) buckets[BUCKETS];
};

struct nvmf_anonymous *nvmf_anonymous_create(void)
{
	return calloc(1, sizeof(struct nvmf_anonymous));
}

void nvmf_anonymous_destroy(struct nvmf_anonymous *a)
{
	assert(a == NULL || a->connections == 0);
	free(a);
}

static struct anonymous_bucket *anonymous_bucket_of(struct nvmf_anonymous *a, const char *traddr)
{
	uint32_t hash = 2166136261u; /* FNV-1a */

	for (; *traddr != 0; traddr++) {
		hash = (hash ^ (uint8_t)*traddr) * 16777619u;
	}
	return &a->buckets[hash % BUCKETS];
}

static struct anonymous_host *anonymous_host_find(struct nvmf_anonymous *a, const char *traddr)
{
	struct anonymous_host *h;

	SLIST_FOREACH (h, anonymous_bucket_of(a, traddr), link) {
		if (strcmp(h->traddr, traddr) == 0) {
			return h;
		}
	}
	return NULL;
}

static struct anonymous_host *anonymous_host_add(struct nvmf_anonymous *a, const char *traddr)
{
	struct anonymous_host *h = calloc(1, sizeof(*h));

	if (h != NULL) {
		strcpy(h->traddr, traddr);
		SLIST_INSERT_HEAD(anonymous_bucket_of(a, traddr), h, link);
	}
	return h;
}

int nvmf_anonymous_add(struct nvmf_qpair *qpair)
{
	const struct nvmf_transport_opts *o = &qpair->transport->opts;
	struct nvmf_anonymous *a = qpair->transport->anonymous;
	const char *traddr = qpair->peer_address.traddr;
	struct anonymous_host *h = anonymous_host_find(a, traddr);

	if (o->max_anonymous != 0 && a->connections >= o->max_anonymous) {
		return -ENOSPC;
	}
	if (o->max_anonymous_per_host != 0 && h != NULL && h->connections >= o->max_anonymous_per_host) {
		return -EUSERS;
	}
	h = h != NULL ? h : anonymous_host_add(a, traddr);
	if (h == NULL) {
		return -ENOMEM;
	}
	h->connections++;
	a->connections++;
	qpair->anonymous = true;
	return 0;
}

void nvmf_anonymous_remove(struct nvmf_qpair *qpair)
{
	struct nvmf_anonymous *a = qpair->transport->anonymous;

	if (!qpair->anonymous) {
		return;
	}
	struct anonymous_host *h = anonymous_host_find(a, qpair->peer_address.traddr);
	qpair->anonymous = false;
	a->connections--;
	if (--h->connections == 0) {
		SLIST_REMOVE(anonymous_bucket_of(a, h->traddr), h, anonymous_host, link);
		free(h);
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of the host's transports: those that this program was linked with. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "nvme/internal.h"

#define TRANSPORTS_MAX 8

static const struct nvme_transport_ops *transports[TRANSPORTS_MAX]; /* those over fabrics first, then by number */
static unsigned num_transports;
static size_t request_room; /* the most that any transport wants behind a request */

static bool transport_precedes(const struct nvme_transport *a, const struct nvme_transport *b)
{
	return a->fabrics != b->fabrics ? a->fabrics : a->trtype < b->trtype;
}

void nvme_transport_register(const struct nvme_transport_ops *ops)
{
	unsigned at = num_transports;

	if (num_transports == TRANSPORTS_MAX) {
		abort(); /* more files call this than TRANSPORTS_MAX says */
	}
	for (; at > 0 && transport_precedes(&ops->transport, &transports[at - 1]->transport); at--) {
		transports[at] = transports[at - 1];
	}
	transports[at] = ops;
	num_transports++;
	request_room = ops->request_size > request_room ? ops->request_size : request_room;
}

const struct nvme_transport_ops *nvme_transport_ops_find(enum nvme_trtype trtype)
{
	for (unsigned i = 0; i < num_transports; i++) {
		if (transports[i]->transport.trtype == trtype) {
			return transports[i];
		}
	}
	return NULL;
}

const struct nvme_transport *nvme_transport_find(enum nvme_trtype trtype)
{
	const struct nvme_transport_ops *ops = nvme_transport_ops_find(trtype);

	return ops != NULL ? &ops->transport : NULL;
}

const struct nvme_transport *nvme_transport_find_by_name(const char *name)
{
	for (unsigned i = 0; i < num_transports; i++) {
		if (strcasecmp(transports[i]->transport.name, name) == 0) {
			return &transports[i]->transport;
		}
	}
	return NULL;
}

const char *nvme_transport_names(bool fabrics_only, char *text, size_t size)
{
	unsigned n = 0;
	size_t at = 0;

	text[0] = '\0';
	for (unsigned i = 0; i < num_transports; i++) {
		n += !fabrics_only || transports[i]->transport.fabrics;
	}
	for (unsigned i = 0; i < n && at < size; i++) { /* those over fabrics are the first ones */
		at += (size_t)snprintf(text + at, size - at, "%s%s",
				       i == 0      ? ""
				       : i + 1 < n ? ", "
						   : " or ",
				       transports[i]->transport.name);
	}
	return text;
}

const char *nvme_trtype_name(enum nvme_trtype trtype)
{
	const struct nvme_transport *t = nvme_transport_find(trtype);

	return t != NULL ? t->name : "unknown";
}

bool nvme_trtype_is_fabrics(enum nvme_trtype trtype)
{
	const struct nvme_transport *t = nvme_transport_find(trtype);

	return t != NULL && t->fabrics;
}

size_t nvme_request_size(void)
{
	return sizeof(struct nvme_request) + request_room;
}

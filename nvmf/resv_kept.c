/* SPDX-License-Identifier: BSD-3-Clause */
#include "nvmf/resv_kept.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nvmf/internal.h"

struct kept {
	TAILQ_ENTRY(kept) link;
	struct nvmf_resv_kept id; /* its pointers lead to what follows */
	struct nvmf_resv state;
	char names[]; /* the target's and the subsystem's */
};

static TAILQ_HEAD(, kept) all = TAILQ_HEAD_INITIALIZER(all);
static bool keeping;
static int failed; /* the error of one that should have been kept and is not */

static struct kept *kept_find(const struct nvmf_resv_kept *id)
{
	struct kept *k;

	TAILQ_FOREACH (k, &all, link) {
		if (k->id.nsid == id->nsid && strcmp(k->id.nqn, id->nqn) == 0 &&
		    strcmp(k->id.tgt_name, id->tgt_name) == 0 && memcmp(k->id.uuid, id->uuid, sizeof(id->uuid)) == 0) {
			return k;
		}
	}
	return NULL;
}

static void kept_id(const struct nvmf_ns *ns, const struct nvmf_resv *state, struct nvmf_resv_kept *id)
{
	*id = (struct nvmf_resv_kept){
		.tgt_name = ns->subsystem->tgt->name, .nqn = ns->subsystem->nqn, .nsid = ns->nsid, .state = state};
	memcpy(id->uuid, ns->opts.uuid, sizeof(id->uuid));
}

void nvmf_resv_keep(bool on)
{
	keeping = on;
	failed = on ? 0 : failed;
}

int nvmf_resv_kept_add(const struct nvmf_resv_kept *id)
{
	size_t tgt_len = strlen(id->tgt_name) + 1, nqn_len = strlen(id->nqn) + 1;

	if (kept_find(id) != NULL) {
		return -EEXIST;
	}
	struct kept *k = malloc(sizeof(*k) + tgt_len + nqn_len);
	if (k == NULL) {
		return -ENOMEM;
	}
	memcpy(k->names, id->tgt_name, tgt_len);
	memcpy(k->names + tgt_len, id->nqn, nqn_len);
	k->state = *id->state;
	k->id = *id;
	k->id.tgt_name = k->names;
	k->id.nqn = k->names + tgt_len;
	k->id.state = &k->state;
	TAILQ_INSERT_TAIL(&all, k, link);
	return 0;
}

int nvmf_resv_kept_for_each(int (*fn)(void *arg, const struct nvmf_resv_kept *k), void *arg)
{
	struct kept *k;
	int rc = 0;

	TAILQ_FOREACH (k, &all, link) {
		rc = fn(arg, &k->id);
		if (rc != 0) {
			break;
		}
	}
	return rc;
}

unsigned nvmf_resv_kept_clear(void)
{
	struct kept *k;
	unsigned n = 0;

	while ((k = TAILQ_FIRST(&all)) != NULL) {
		TAILQ_REMOVE(&all, k, link);
		free(k);
		n++;
	}
	return n;
}

void nvmf_resv_kept_note(const struct nvmf_ns *ns, const struct nvmf_resv *state)
{
	struct nvmf_resv_kept id;

	if (!keeping || state->num_registrants == 0) {
		return;
	}
	kept_id(ns, state, &id);
	int rc = nvmf_resv_kept_add(&id);
	if (rc != 0) {
		log_error("the reservations of namespace %u of %s cannot be kept: %s", ns->nsid, ns->subsystem->nqn,
			  strerror(-rc));
		failed = rc;
	}
}

int nvmf_resv_kept_whole(void)
{
	return failed;
}

bool nvmf_resv_kept_take(const struct nvmf_ns *ns, struct nvmf_resv *state)
{
	struct nvmf_resv_kept id;

	kept_id(ns, NULL, &id);
	struct kept *k = kept_find(&id);
	if (k == NULL) {
		return false;
	}
	*state = k->state;
	TAILQ_REMOVE(&all, k, link);
	free(k);
	return true;
}

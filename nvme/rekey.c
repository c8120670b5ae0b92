/* SPDX-License-Identifier: BSD-3-Clause */
/* Changes the keys of a controller that is in use. Control thread. */
#include "nvme/internal.h"

#include <errno.h>
#include <stdlib.h>

#include "keyring/keyring.h"

struct nvme_rekey {
	struct nvme_ctrlr *ctrlr;
	struct keyring_key *key, *ctrlr_key;
	nvme_auth_fn done;
	void *arg;
};

static void ctrlr_replace_keys(struct nvme_ctrlr *ctrlr, struct keyring_key *key, struct keyring_key *ctrlr_key)
{
	keyring_hold(key); /* first, because they may be the same keys */
	keyring_hold(ctrlr_key);
	keyring_put(ctrlr->opts.dhchap_key);
	keyring_put(ctrlr->opts.dhchap_ctrlr_key);
	ctrlr->opts.dhchap_key = key;
	ctrlr->opts.dhchap_ctrlr_key = ctrlr_key;
}

static void rekey_end(struct nvme_rekey *r, int error, const char *why)
{
	nvme_auth_fn done = r->done;
	void *arg = r->arg;

	r->ctrlr->rekey = NULL;
	keyring_put(r->key);
	keyring_put(r->ctrlr_key);
	free(r);
	done(arg, error, why);
}

static void rekey_authenticated(void *arg, int error, const char *why)
{
	struct nvme_rekey *r = arg;
	struct nvme_ctrlr *ctrlr = r->ctrlr;

	if (error == 0) {
		ctrlr_replace_keys(ctrlr, r->key, r->ctrlr_key);
	} else {
		nvme_ctrlr_lost(ctrlr, "authentication with other keys: %s", why);
	}
	rekey_end(r, error, why);
}

void nvme_rekey_cancel(struct nvme_ctrlr *ctrlr)
{
	if (ctrlr->rekey != NULL) {
		rekey_end(ctrlr->rekey, -ECONNRESET, "the connection was lost meanwhile; the keys are as they were");
	}
}

static struct nvme_rekey *rekey_alloc(struct nvme_ctrlr *ctrlr, struct keyring_key *key, struct keyring_key *ctrlr_key)
{
	struct nvme_rekey *r = calloc(1, sizeof(*r));

	if (r != NULL) {
		r->ctrlr = ctrlr;
		r->key = keyring_hold(key);
		r->ctrlr_key = keyring_hold(ctrlr_key);
		ctrlr->rekey = r;
	}
	return r;
}

void nvme_ctrlr_set_keys(struct nvme_ctrlr *ctrlr, struct keyring_key *key, struct keyring_key *ctrlr_key,
			 void (*done)(void *arg, int error, const char *why), void *arg)
{
	if (ctrlr->rekey != NULL) {
		done(arg, -EBUSY, "it is being given other keys already");
		return;
	}
	if (ctrlr->state != NVME_CTRLR_READY || ctrlr->in_failure || key == NULL) {
		ctrlr_replace_keys(ctrlr, key, ctrlr_key); /* for the next connection */
		done(arg, 0, "");
		return;
	}
	struct nvme_rekey *r = rekey_alloc(ctrlr, key, ctrlr_key);
	if (r == NULL) {
		done(arg, -ENOMEM, "out of memory");
		return;
	}
	r->done = done;
	r->arg = arg;
	int rc = nvme_auth_start(ctrlr->admin, key, ctrlr_key, rekey_authenticated, r);
	if (rc != 0) {
		rekey_end(r, rc, "it could not be begun");
	}
}

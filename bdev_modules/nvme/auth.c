/* SPDX-License-Identifier: BSD-3-Clause */
/* In-band authentication: finds the keys that attachments name, and changes the keys of attached controllers. Control
 * thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bdev/module_util.h"
#include "bdev_modules/nvme/internal.h"
#include "keyring/keyring.h"

static int auth_key_get(const char *what, const char *name, enum keyring_kind kind, struct keyring_key **key,
			char *error)
{
	const char *why;

	*key = name[0] != '\0' ? keyring_get_kind(name, kind, &why) : NULL;
	return name[0] != '\0' && *key == NULL ? bdev_error(error, -ENOKEY, "%s '%s': %s", what, name, why) : 0;
}

static int auth_keys_get(const char *name, const char *ctrlr_name, struct keyring_key **key,
			 struct keyring_key **ctrlr_key, char *error)
{
	if (name[0] == '\0' && ctrlr_name[0] != '\0') {
		return bdev_error(error, -EINVAL,
				  "dhchap_ctrlr_key '%s': needs dhchap_key, since a controller is authenticated only "
				  "together with the host",
				  ctrlr_name);
	}
	int rc = auth_key_get("dhchap_key", name, KEYRING_DHCHAP, key, error);
	if (rc == 0) {
		rc = auth_key_get("dhchap_ctrlr_key", ctrlr_name, KEYRING_DHCHAP, ctrlr_key, error);
		if (rc != 0) {
			keyring_put(*key);
		}
	}
	return rc;
}

int bdev_nvme_keys_get(const struct bdev_nvme_attach *a, struct nvme_ctrlr_opts *o, char error[BDEV_ERROR_MAX])
{
	o->dhchap_hashes = bdev_nvme_options.dhchap_hashes;
	o->dhchap_groups = bdev_nvme_options.dhchap_groups;
	int rc = auth_keys_get(a->dhchap_key, a->dhchap_ctrlr_key, &o->dhchap_key, &o->dhchap_ctrlr_key, error);
	if (rc != 0) {
		return rc;
	}
	rc = auth_key_get("psk", a->psk, KEYRING_PSK, &o->tcp_psk, error);
	if (rc != 0) {
		keyring_put(o->dhchap_key);
		keyring_put(o->dhchap_ctrlr_key);
	}
	return rc;
}

void bdev_nvme_keys_put(const struct nvme_ctrlr_opts *o)
{
	keyring_put(o->dhchap_key);
	keyring_put(o->dhchap_ctrlr_key);
	keyring_put(o->tcp_psk);
}

/* --- Changing the keys of every controller of a name --- */

struct set_keys {
	unsigned pending;
	int rc; /* of the first that failed */
	char why[NVME_ERROR_MAX];
	char key[BDEV_NVME_KEY_MAX], ctrlr_key[BDEV_NVME_KEY_MAX];
	bdev_nvme_done_cb cb;
	void *arg;
};

struct set_keys_of {
	struct set_keys *s;
	const struct bdev_nvme *c; /* may have been freed when the answer comes */
};

static void set_keys_step(struct set_keys *s)
{
	if (--s->pending == 0) {
		s->cb(s->arg, s->rc, s->why);
		free(s);
	}
}

static struct bdev_nvme *set_keys_find_ctrlr(const struct bdev_nvme *which)
{
	struct bdev_nvme *c = bdev_nvme_next(NULL);

	while (c != NULL && c != which) {
		c = bdev_nvme_next(c);
	}
	return c;
}

static void set_keys_ended(void *arg, int error, const char *why)
{
	struct set_keys_of *of = arg;
	struct bdev_nvme *c = set_keys_find_ctrlr(of->c);
	struct set_keys *s = of->s;

	free(of);
	if (error == 0 && c != NULL) {
		snprintf(c->opts.dhchap_key, sizeof(c->opts.dhchap_key), "%s", s->key);
		snprintf(c->opts.dhchap_ctrlr_key, sizeof(c->opts.dhchap_ctrlr_key), "%s", s->ctrlr_key);
	} else if (error != 0 && s->rc == 0) {
		s->rc = error;
		snprintf(s->why, sizeof(s->why), "%s", why);
	}
	set_keys_step(s);
}

static void set_keys_begin(struct set_keys *s, struct bdev_nvme *c, struct keyring_key *key,
			   struct keyring_key *ctrlr_key)
{
	struct set_keys_of *of = malloc(sizeof(*of));

	if (of == NULL) {
		s->rc = -ENOMEM;
		snprintf(s->why, sizeof(s->why), "out of memory");
		return;
	}
	*of = (struct set_keys_of){.s = s, .c = c};
	s->pending++;
	nvme_ctrlr_set_keys(c->ctrlr, key, ctrlr_key, set_keys_ended, of);
}

static bool set_keys_is_possible(const struct bdev_nvme *c)
{
	return c->ctrlr != NULL && c->state != BDEV_NVME_ATTACHING && c->state != BDEV_NVME_DETACHING;
}

void bdev_nvme_set_keys(struct bdev_nvme *first, const char *key_name, const char *ctrlr_key_name, bdev_nvme_done_cb cb,
			void *arg)
{
	char error[BDEV_ERROR_MAX];
	struct keyring_key *key = NULL, *ctrlr_key = NULL;
	struct set_keys *s;

	if (!set_keys_is_possible(first)) {
		cb(arg, -EBUSY, "the controller is being attached or detached");
		return;
	}
	int rc = auth_keys_get(key_name, ctrlr_key_name, &key, &ctrlr_key, error);
	s = rc == 0 ? calloc(1, sizeof(*s)) : NULL;
	if (s == NULL) {
		if (rc == 0) {
			keyring_put(key);
			keyring_put(ctrlr_key);
		}
		cb(arg, rc != 0 ? rc : -ENOMEM, rc != 0 ? error : "out of memory");
		return;
	}
	snprintf(s->key, sizeof(s->key), "%s", key_name);
	snprintf(s->ctrlr_key, sizeof(s->ctrlr_key), "%s", ctrlr_key_name);
	s->cb = cb;
	s->arg = arg;
	s->pending = 1; /* until all have been begun */
	for (struct bdev_nvme *c = bdev_nvme_next(NULL); c != NULL; c = bdev_nvme_next(c)) {
		if (strcmp(c->name, first->name) == 0 && set_keys_is_possible(c)) {
			set_keys_begin(s, c, key, ctrlr_key);
		}
	}
	keyring_put(key);
	keyring_put(ctrlr_key);
	set_keys_step(s);
}

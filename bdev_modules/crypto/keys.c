/* SPDX-License-Identifier: BSD-3-Clause */
#include "bdev_modules/crypto/keys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "bdev/module_util.h"
#include "bdev_modules/crypto/internal.h"
#include "bdev_modules/crypto/key_text.h"
#include "bdev_modules/crypto/xts.h"
#include "keyring/keyring.h"
#include "util/secret.h"

struct crypto_key {
	char name[256];
	uint8_t *secret; /* of secret_alloc() */
	size_t bytes;
	struct keyring_key *of_keyring; /* referred to, so that a saved configuration has it; or NULL */
	bool of_bdev;
	unsigned users;
	TAILQ_ENTRY(crypto_key) link;
};

static TAILQ_HEAD(, crypto_key) keys = TAILQ_HEAD_INITIALIZER(keys);

struct crypto_key *crypto_key_find(const char *name)
{
	struct crypto_key *k;

	TAILQ_FOREACH (k, &keys, link) {
		if (strcmp(k->name, name) == 0) {
			return k;
		}
	}
	return NULL;
}

struct crypto_key *crypto_key_next(const struct crypto_key *after)
{
	return after == NULL ? TAILQ_FIRST(&keys) : TAILQ_NEXT(after, link);
}

static void key_free(struct crypto_key *k)
{
	keyring_put(k->of_keyring);
	secret_free(k->secret);
	free(k);
}

static void key_remove(struct crypto_key *k)
{
	TAILQ_REMOVE(&keys, k, link);
	key_free(k);
}

static int key_from_keyring(struct crypto_key *k, const char *name, char *error)
{
	const char *why;
	size_t bytes;

	k->of_keyring = keyring_get_kind(name, KEYRING_DATA, &why);
	if (k->of_keyring == NULL) {
		return bdev_error(error, -ENOENT, "parameter \"keyring_key\" is \"%.80s\": %s", name, why);
	}
	const uint8_t *secret = keyring_key_data(k->of_keyring, &bytes);
	memcpy(k->secret, secret, bytes);
	k->bytes = bytes;
	return crypto_key_check(k->secret, bytes, error);
}

static int key_fill(struct crypto_key *k, const struct crypto_key_opts *opts, char *error)
{
	k->secret = secret_alloc(XTS_KEY_MAX);
	if (k->secret == NULL) {
		return bdev_error(error, -ENOMEM, "no memory for keys");
	}
	if (opts->keyring_key != NULL) {
		return key_from_keyring(k, opts->keyring_key, error);
	}
	return crypto_key_decode(opts->key, opts->key2, k->secret, &k->bytes, error);
}

/* Whether OpenSSL can do it, and keeps the key where it should be: seen now, not by the first I/O. */
static int key_try(const struct crypto_key *k, char *error)
{
	struct crypto_xts x;
	int rc = crypto_xts_create(&x, k->secret, k->bytes);

	crypto_xts_destroy(&x);
	if (rc == -ENOTSUP) {
		return bdev_error(error, rc,
				  "key schedules cannot be kept out of core dumps: other software in this process "
				  "allocates OpenSSL's memory");
	}
	return rc != 0 ? bdev_error(error, rc, "OpenSSL cannot make a key schedule for AES-XTS: out of memory") : 0;
}

static int key_opts_check(const struct crypto_key_opts *opts, char *error)
{
	int rc = bdev_check_name(opts->name, error);

	if (rc != 0) {
		return rc;
	}
	if (crypto_key_find(opts->name) != NULL) {
		return bdev_error(error, -EEXIST, "there is a key \"%.200s\" already", opts->name);
	}
	if (opts->keyring_key == NULL && opts->key == NULL) {
		return bdev_error(error, -EINVAL, "parameter \"key\" or \"keyring_key\" is required");
	}
	if (opts->keyring_key != NULL && (opts->key != NULL || opts->key2 != NULL)) {
		return bdev_error(error, -EINVAL,
				  "parameter \"keyring_key\" is given, and \"key\" or \"key2\" too: either the keyring "
				  "has the keys, or the call");
	}
	return 0;
}

int crypto_key_create(const struct crypto_key_opts *opts, char *error)
{
	int rc = key_opts_check(opts, error);

	if (rc != 0) {
		return rc;
	}
	struct crypto_key *k = calloc(1, sizeof(*k));
	if (k == NULL) {
		return bdev_error(error, -ENOMEM, "out of memory");
	}
	snprintf(k->name, sizeof(k->name), "%s", opts->name);
	k->of_bdev = opts->of_bdev;
	rc = key_fill(k, opts, error);
	rc = rc != 0 ? rc : key_try(k, error);
	if (rc != 0) {
		key_free(k);
		return rc;
	}
	TAILQ_INSERT_TAIL(&keys, k, link);
	return 0;
}

int crypto_key_destroy(const char *name, char *error)
{
	struct crypto_key *k = crypto_key_find(name);

	if (k == NULL) {
		return bdev_error(error, -ENOENT, "parameter \"key_name\" is \"%.150s\": there is no such key", name);
	}
	const char *waiting = crypto_waiting_for_key(name);
	if (k->users != 0 || waiting != NULL) {
		return bdev_error(error, -EBUSY, "key \"%.80s\" is in use: %u bdevs use it%s%.80s", name, k->users,
				  waiting != NULL ? ", and one that waits for its base: " : "",
				  waiting != NULL ? waiting : "");
	}
	key_remove(k);
	return 0;
}

void crypto_key_hold(struct crypto_key *k)
{
	k->users++;
}

void crypto_key_put(struct crypto_key *k)
{
	k->users--;
}

void crypto_key_sweep(void)
{
	struct crypto_key *k = TAILQ_FIRST(&keys), *next;

	for (; k != NULL; k = next) {
		next = TAILQ_NEXT(k, link);
		if (k->of_bdev && k->users == 0 && crypto_waiting_for_key(k->name) == NULL) {
			key_remove(k);
		}
	}
}

void crypto_key_fini(void)
{
	while (!TAILQ_EMPTY(&keys)) {
		key_remove(TAILQ_FIRST(&keys));
	}
}

const char *crypto_key_name(const struct crypto_key *k)
{
	return k->name;
}

const char *crypto_key_keyring_name(const struct crypto_key *k)
{
	return k->of_keyring != NULL ? keyring_key_name(k->of_keyring) : NULL;
}

bool crypto_key_is_saved(const struct crypto_key *k)
{
	return k->of_keyring != NULL && !keyring_key_removed(k->of_keyring);
}

unsigned crypto_key_users(const struct crypto_key *k)
{
	return k->users;
}

const uint8_t *crypto_key_secret(const struct crypto_key *k, size_t *bytes)
{
	*bytes = k->bytes;
	return k->secret;
}

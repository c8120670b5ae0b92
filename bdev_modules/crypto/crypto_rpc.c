/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods that make and delete keys and crypto bdevs, and the calls that make them again. A saved configuration has
 * only keys that are in the keyring, and bdevs that use those; it has no key that a call brought. */
#include <errno.h>
#include <string.h>

#include "bdev_modules/crypto/crypto.h"
#include "bdev_modules/crypto/keys.h"
#include "rpc_methods/bdev_module.h"
#include "util/log.h"

/* --- Keys --- */

enum { CIPHER_XTS };
static const struct rpc_enum ciphers[] = {{"AES_XTS", CIPHER_XTS}, {NULL, 0}};
static const struct rpc_enum tweak_modes[] = {{"SIMPLE_LBA", 0}, {NULL, 0}};

struct key_create {
	char *name, *key, *key2, *keyring_key;
	int cipher, tweak_mode;
};

static const struct rpc_param key_create_params[] = {
	RPC_PARAM(struct key_create, cipher, RPC_ENUM, RPC_REQUIRED, "AES-XTS of IEEE 1619", .enums = ciphers),
	RPC_PARAM(struct key_create, name, RPC_STRING, RPC_REQUIRED, "of the new key"),
	RPC_PARAM(struct key_create, key, RPC_STRING, RPC_OPTIONAL,
		  "what encrypts data: 32 hexadecimal digits (AES-XTS 128) or 64 (256)"),
	RPC_PARAM(struct key_create, key2, RPC_STRING, RPC_OPTIONAL,
		  "what encrypts tweaks: as many digits, and other ones"),
	RPC_PARAM(struct key_create, tweak_mode, RPC_ENUM, RPC_OPTIONAL,
		  "the tweak is the LBA, 64 bits little endian (default SIMPLE_LBA)", .enums = tweak_modes),
	RPC_PARAM(struct key_create, keyring_key, RPC_STRING, RPC_OPTIONAL,
		  "name of a key for data in the keyring, in place of key and key2", .own = true),
	RPC_PARAM_END};

static void rpc_key_create(struct rpc_request *req, void *params)
{
	const struct key_create *p = params;
	char error[BDEV_ERROR_MAX];
	const struct crypto_key_opts opts = {
		.name = p->name, .key = p->key, .key2 = p->key2, .keyring_key = p->keyring_key};

	rpc_bdev_answer_true(req, crypto_key_create(&opts, error), error);
}
RPC_METHOD("accel_crypto_key_create", rpc_key_create, struct key_create, key_create_params, RPC_RUNTIME,
	   "Make a key for crypto bdevs", .result = "true")

struct key_name {
	char *key_name;
};

static const struct rpc_param key_destroy_params[] = {
	RPC_PARAM(struct key_name, key_name, RPC_STRING, RPC_REQUIRED, "of the key"), RPC_PARAM_END};

static void rpc_key_destroy(struct rpc_request *req, void *params)
{
	const struct key_name *p = params;
	char error[BDEV_ERROR_MAX];

	rpc_bdev_answer_true(req, crypto_key_destroy(p->key_name, error), error);
}
RPC_METHOD("accel_crypto_key_destroy", rpc_key_destroy, struct key_name, key_destroy_params, RPC_RUNTIME,
	   "Overwrite and forget a key that no bdev uses", .result = "true")

static json_t *crypto_key_json(const struct crypto_key *k)
{
	const char *keyring_name = crypto_key_keyring_name(k);
	json_t *o = json_object();
	size_t bytes;

	(void)crypto_key_secret(k, &bytes);
	json_object_set_new(o, "name", rpc_string(crypto_key_name(k)));
	json_object_set_new(o, "cipher", json_string("AES_XTS"));
	json_object_set_new(o, "key_bits", json_integer((json_int_t)bytes * 4));
	json_object_set_new(o, "tweak_mode", json_string("SIMPLE_LBA"));
	if (keyring_name != NULL) {
		json_object_set_new(o, "keyring_key", rpc_string(keyring_name));
	}
	json_object_set_new(o, "users", json_integer(crypto_key_users(k)));
	return o;
}

static const struct rpc_param keys_get_params[] = {
	RPC_PARAM(struct key_name, key_name, RPC_STRING, RPC_OPTIONAL, "of one key (default: all)"), RPC_PARAM_END};

static void rpc_keys_get(struct rpc_request *req, void *params)
{
	const struct key_name *p = params;

	if (p->key_name != NULL && crypto_key_find(p->key_name) == NULL) {
		rpc_error(req, -ENOENT, "parameter \"key_name\" is \"%.150s\": there is no such key", p->key_name);
		return;
	}
	json_t *list = json_array();
	for (struct crypto_key *k = crypto_key_next(NULL); k != NULL; k = crypto_key_next(k)) {
		if (p->key_name == NULL || strcmp(p->key_name, crypto_key_name(k)) == 0) {
			json_array_append_new(list, crypto_key_json(k));
		}
	}
	rpc_reply(req, list);
}
RPC_METHOD("accel_crypto_keys_get", rpc_keys_get, struct key_name, keys_get_params, RPC_RUNTIME,
	   "List the keys for crypto bdevs, without what is secret of them",
	   .result = "[{name: string, cipher: string, key_bits: int, tweak_mode: string, keyring_key?: string, users: "
		     "int}]")

static void crypto_write_keys(json_t *methods)
{
	for (struct crypto_key *k = crypto_key_next(NULL); k != NULL; k = crypto_key_next(k)) {
		if (!crypto_key_is_saved(k)) {
			log_warning("key %s is not in the configuration: only keys that the keyring has are saved",
				    crypto_key_name(k));
			continue;
		}
		json_t *params = rpc_bdev_params("name", crypto_key_name(k));
		json_object_set_new(params, "cipher", json_string("AES_XTS"));
		json_object_set_new(params, "keyring_key", rpc_string(crypto_key_keyring_name(k)));
		rpc_config_add(methods, "accel_crypto_key_create", params);
	}
}

static struct rpc_config crypto_keys_config = {.name = "accel", .after = "keyring", .write = crypto_write_keys};

__attribute__((constructor)) static void crypto_register_config(void)
{
	rpc_config_register(&crypto_keys_config);
}

/* --- Bdevs --- */

struct crypto_create {
	char *name, *base_bdev_name, *key_name, *key, *key2, *uuid, *rekey_key_name, *rekey_journal_bdev_name;
	uint32_t rekey_mib_per_second;
	int cipher;
};

#define CRYPTO_PARAM(field_, type_, required_, help_, ...)                                                             \
	RPC_PARAM(struct crypto_create, field_, type_, required_, help_, ##__VA_ARGS__)
static const struct rpc_param crypto_create_params[] = {
	CRYPTO_PARAM(base_bdev_name, RPC_STRING, RPC_REQUIRED,
		     "the bdev that has the encrypted blocks, which it claims"),
	CRYPTO_PARAM(name, RPC_STRING, RPC_REQUIRED, "of the new bdev"),
	CRYPTO_PARAM(key_name, RPC_STRING, RPC_OPTIONAL, "of a key (accel_crypto_key_create)"),
	CRYPTO_PARAM(
		key, RPC_STRING, RPC_OPTIONAL,
		"in place of key_name: as of accel_crypto_key_create; the key has the bdev's name, and goes with it"),
	CRYPTO_PARAM(key2, RPC_STRING, RPC_OPTIONAL, "as of accel_crypto_key_create"),
	CRYPTO_PARAM(cipher, RPC_ENUM, RPC_OPTIONAL, "of key and key2 (default AES_XTS)", .enums = ciphers),
	RPC_NO_EFFECT(crypto_pmd, RPC_STRING, "null", "OpenSSL encrypts, on the CPU"),
	CRYPTO_PARAM(uuid, RPC_UUID, RPC_OPTIONAL, "default: a random one", .own = true),
	CRYPTO_PARAM(rekey_key_name, RPC_STRING, RPC_OPTIONAL,
		     "in the middle of a rekey (bdev_crypto_rekey), which goes on: the new key", .own = true),
	CRYPTO_PARAM(rekey_journal_bdev_name, RPC_STRING, RPC_OPTIONAL,
		     "with rekey_key_name: the bdev that has its journal", .own = true),
	CRYPTO_PARAM(rekey_mib_per_second, RPC_UINT32, RPC_OPTIONAL, "as mib_per_second of bdev_crypto_rekey",
		     .max = BDEV_CRYPTO_REKEY_MIB_MAX, .own = true),
	RPC_PARAM_END};

static int crypto_create_with_key(const struct crypto_create *p, const struct bdev_crypto_opts *opts, char *error)
{
	const struct crypto_key_opts key = {.name = p->name, .key = p->key, .key2 = p->key2, .of_bdev = true};
	struct bdev_crypto_opts with_key = *opts;
	int rc = crypto_key_create(&key, error);

	if (rc == 0) {
		with_key.key_name = p->name;
		rc = bdev_crypto_create(&with_key, error);
		crypto_key_sweep();
	}
	return rc;
}

static void rpc_bdev_crypto_create(struct rpc_request *req, void *params)
{
	const struct crypto_create *p = params;
	char error[BDEV_ERROR_MAX];
	uint8_t uuid[16];
	const struct bdev_crypto_opts opts = {.name = p->name,
					      .base_bdev_name = p->base_bdev_name,
					      .key_name = p->key_name,
					      .uuid = rpc_bdev_uuid(p->uuid, uuid),
					      .rekey_key_name = p->rekey_key_name,
					      .rekey_journal_bdev_name = p->rekey_journal_bdev_name,
					      .rekey_mib_per_second = p->rekey_mib_per_second};

	if ((p->key_name == NULL) == (p->key == NULL)) {
		rpc_error(req, -EINVAL, "parameter \"key_name\" or \"key\" is required, and not both");
		return;
	}
	if ((p->rekey_key_name == NULL) != (p->rekey_journal_bdev_name == NULL)) {
		rpc_error(req, -EINVAL, "parameters \"rekey_key_name\" and \"rekey_journal_bdev_name\" go together");
		return;
	}
	int rc = p->key_name != NULL ? bdev_crypto_create(&opts, error) : crypto_create_with_key(p, &opts, error);
	rpc_bdev_answer_name(req, rc, p->name, error);
}
RPC_METHOD("bdev_crypto_create", rpc_bdev_crypto_create, struct crypto_create, crypto_create_params, RPC_RUNTIME,
	   "Create a bdev that encrypts what it writes to another one, at once or when that one comes",
	   .result = "string")

RPC_BDEV_DELETE_METHOD(crypto, "a crypto bdev")

/* --- Rekey --- */

struct crypto_rekey_params {
	char *name, *key_name, *journal_bdev_name;
	uint32_t mib_per_second;
};

static const struct rpc_param crypto_rekey_params[] = {
	RPC_PARAM(struct crypto_rekey_params, name, RPC_STRING, RPC_REQUIRED, "of the crypto bdev"),
	RPC_PARAM(struct crypto_rekey_params, key_name, RPC_STRING, RPC_REQUIRED,
		  "of the new key (accel_crypto_key_create)"),
	RPC_PARAM(
		struct crypto_rekey_params, journal_bdev_name, RPC_STRING, RPC_REQUIRED,
		"a bdev of 1.2 MiB or more that keeps what it stores, for the journal: claimed meanwhile, overwritten"),
	RPC_PARAM(struct crypto_rekey_params, mib_per_second, RPC_UINT32, RPC_OPTIONAL, "at most (default 0: no limit)",
		  .max = BDEV_CRYPTO_REKEY_MIB_MAX),
	RPC_PARAM_END};

/* A bdev_crypto_rekey_cb. */
static void rpc_rekey_answer(void *req, int rc, const char *error)
{
	rpc_bdev_answer_true(req, rc, error);
}

static void rpc_bdev_crypto_rekey(struct rpc_request *req, void *params)
{
	const struct crypto_rekey_params *p = params;
	char error[BDEV_ERROR_MAX];
	const struct bdev_crypto_rekey_opts opts = {.name = p->name,
						    .key_name = p->key_name,
						    .journal_bdev_name = p->journal_bdev_name,
						    .mib_per_second = p->mib_per_second};
	int rc = bdev_crypto_rekey(&opts, rpc_rekey_answer, req, error);

	if (rc != 0) {
		rpc_bdev_answer_true(req, rc, error);
	} else if (!rpc_bdev_is_saved(bdev_find(p->journal_bdev_name))) {
		log_warning("bdev %s: bdev %s, which has the journal of its rekey, is not in the saved configuration: "
			    "after a restart the crypto bdev waits until somebody makes it",
			    p->name, p->journal_bdev_name);
	}
}
RPC_METHOD(
	"bdev_crypto_rekey", rpc_bdev_crypto_rekey, struct crypto_rekey_params, crypto_rekey_params, RPC_RUNTIME,
	"Give all blocks of a crypto bdev another key while it is used, or go on with that; answered when it has begun",
	.result = "true", .own = true)

static void rpc_bdev_crypto_rekey_stop(struct rpc_request *req, void *params)
{
	const struct rpc_bdev_by_name *p = params;
	char error[BDEV_ERROR_MAX];
	int rc = bdev_crypto_rekey_stop(p->name, rpc_rekey_answer, req, error);

	if (rc != 0) {
		rpc_bdev_answer_true(req, rc, error);
	}
}
RPC_METHOD("bdev_crypto_rekey_stop", rpc_bdev_crypto_rekey_stop, struct rpc_bdev_by_name, rpc_bdev_by_name_params,
	   RPC_RUNTIME, "Stop a rekey, which bdev_crypto_rekey goes on with; answered when it has stopped",
	   .result = "true", .own = true)

static const char *const rekey_types[] = {
	[BDEV_CRYPTO_REKEY_ENDED] = "bdev_crypto_rekey_ended",
	[BDEV_CRYPTO_REKEY_FAILED] = "bdev_crypto_rekey_failed",
};

static void rekey_notify(const char *bdev, enum bdev_crypto_rekey_news news, const char *reason)
{
	notify_send_reason(rekey_types[news], bdev, reason);
}

__attribute__((constructor)) static void notify_of_rekeys(void)
{
	for (size_t i = 0; i < sizeof(rekey_types) / sizeof(rekey_types[0]); i++) {
		notify_type_register(rekey_types[i]);
	}
	bdev_crypto_observe_rekeys(rekey_notify);
}

/* --- Configuration --- */

static bool key_is_saved(const char *name)
{
	const struct crypto_key *key = crypto_key_find(name);

	return key != NULL && crypto_key_is_saved(key);
}

static bool opts_are_saved(const struct bdev_crypto_opts *opts)
{
	return key_is_saved(opts->key_name) && (opts->rekey_key_name == NULL || key_is_saved(opts->rekey_key_name));
}

static void write_opts(json_t *methods, const struct bdev_crypto_opts *opts)
{
	if (!opts_are_saved(opts)) {
		log_warning("bdev %s is not in the configuration, because its key %s is not saved", opts->name,
			    key_is_saved(opts->key_name) ? opts->rekey_key_name : opts->key_name);
		return;
	}
	json_t *params = rpc_bdev_params("name", opts->name);
	json_object_set_new(params, "base_bdev_name", rpc_string(opts->base_bdev_name));
	json_object_set_new(params, "key_name", rpc_string(opts->key_name));
	if (opts->uuid != NULL) {
		rpc_bdev_add_uuid(params, opts->uuid);
	}
	if (opts->rekey_key_name != NULL) {
		json_object_set_new(params, "rekey_key_name", rpc_string(opts->rekey_key_name));
		json_object_set_new(params, "rekey_journal_bdev_name", rpc_string(opts->rekey_journal_bdev_name));
		rpc_bdev_add_nonzero(params, "rekey_mib_per_second", opts->rekey_mib_per_second);
	}
	rpc_config_add(methods, "bdev_crypto_create", params);
}

static void bdev_crypto_write_config(json_t *methods, const struct bdev *b)
{
	struct bdev_crypto_opts opts;

	if (bdev_crypto_get(b, &opts)) {
		write_opts(methods, &opts);
	}
}

static void bdev_crypto_write_waiting(json_t *methods, const struct vbdev_waiting *w)
{
	struct bdev_crypto_opts opts;

	if (bdev_crypto_get_waiting(w, &opts)) {
		write_opts(methods, &opts);
	}
}

static bool bdev_crypto_is_saved(const struct bdev *b)
{
	struct bdev_crypto_opts opts;

	return bdev_crypto_get(b, &opts) && opts_are_saved(&opts);
}
RPC_BDEV_CONFIG(crypto, .write_bdev = bdev_crypto_write_config, .is_saved = bdev_crypto_is_saved,
		.write_waiting = bdev_crypto_write_waiting)

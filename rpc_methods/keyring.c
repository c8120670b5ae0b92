/* SPDX-License-Identifier: BSD-3-Clause */
/* keyring_*: secrets of hosts and controllers, from files. */
#include <string.h>

#include "keyring/keyring.h"
#include "rpc/rpc.h"

struct add_key {
	char *name, *path;
};

static const struct rpc_param add_key_params[] = {
	RPC_PARAM(struct add_key, name, RPC_STRING, RPC_REQUIRED, "what the key is to be called"),
	RPC_PARAM(
		struct add_key, path, RPC_STRING, RPC_REQUIRED,
		"absolute path of a file with a secret DHHC-1:XX:BASE64:, a TLS key NVMeTLSkey-1:XX:BASE64:, or a key "
		"that encrypts data, of 64 or 128 hexadecimal digits, which only its owner may access"),
	RPC_PARAM_END,
};

static void rpc_add_key(struct rpc_request *req, void *params)
{
	const struct add_key *p = params;
	char error[KEYRING_ERROR_MAX];
	int rc = keyring_file_add(p->name, p->path, error);

	if (rc == 0) {
		rpc_reply_true(req);
	} else {
		rpc_error(req, rc, "%s", error);
	}
}
RPC_METHOD("keyring_file_add_key", rpc_add_key, struct add_key, add_key_params, RPC_STARTUP | RPC_RUNTIME,
	   "Read a secret, a TLS key or a key for data from a file", .result = "true")

struct remove_key {
	char *name;
};

static const struct rpc_param remove_key_params[] = {
	RPC_PARAM(struct remove_key, name, RPC_STRING, RPC_REQUIRED, "name of the key"),
	RPC_PARAM_END,
};

static void rpc_remove_key(struct rpc_request *req, void *params)
{
	const struct remove_key *p = params;
	int rc = keyring_file_remove(p->name);

	if (rc == 0) {
		rpc_reply_true(req);
	} else {
		rpc_error(req, rc, "parameter \"name\" is \"%.80s\": there is no such key", p->name);
	}
}
RPC_METHOD("keyring_file_remove_key", rpc_remove_key, struct remove_key, remove_key_params, RPC_STARTUP | RPC_RUNTIME,
	   "Forget a key; who uses it keeps it until it is given another, and a saved configuration has it until then, "
	   "unless another was added by its name. A key for data that is in use is not saved any more, nor is what it "
	   "encrypts, and none can be added by its name",
	   .result = "true")

static json_t *key_json(const struct keyring_key *key)
{
	json_t *o = json_object();

	json_object_set_new(o, "name", rpc_string(keyring_key_name(key)));
	json_object_set_new(o, "module", json_string("keyring_file"));
	json_object_set_new(o, "removed", json_boolean(keyring_key_removed(key)));
	json_object_set_new(o, "probed", json_false()); /* modules are never asked for keys of files */
	json_object_set_new(o, "refcnt", json_integer(keyring_key_refs(key)));
	json_object_set_new(o, "path", rpc_string(keyring_key_path(key)));
	return o;
}

static void rpc_get_keys(struct rpc_request *req, void *params)
{
	json_t *list = json_array();

	for (struct keyring_key *key = keyring_next(NULL); key != NULL; key = keyring_next(key)) {
		json_array_append_new(list, key_json(key));
	}
	rpc_reply(req, list);
}
RPC_METHOD("keyring_get_keys", rpc_get_keys, struct rpc_no_params, NULL, RPC_STARTUP | RPC_RUNTIME,
	   "List the keys, without their secrets",
	   .result = "[{name: string, module: string, removed: bool, probed: bool, refcnt: int, path: string}]")

/* ---- Configuration: names and paths ---- */

static void keyring_write_config(json_t *methods)
{
	for (struct keyring_key *key = keyring_next(NULL); key != NULL; key = keyring_next(key)) {
		if (keyring_key_is_saved(key)) {
			json_t *params = json_object();
			json_object_set_new(params, "name", rpc_string(keyring_key_name(key)));
			json_object_set_new(params, "path", rpc_string(keyring_key_path(key)));
			rpc_config_add(methods, "keyring_file_add_key", params);
		}
	}
}

static struct rpc_config keyring_config = {.name = "keyring", .write = keyring_write_config};

__attribute__((constructor)) static void keyring_register_config(void)
{
	rpc_config_register(&keyring_config);
}

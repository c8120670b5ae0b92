/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc_methods/bdev_module.h"

#include <errno.h>

#include "bdev/dif.h"
#include "bdev/module.h"

void rpc_bdev_answer_name(struct rpc_request *req, int rc, const char *name, const char *error)
{
	if (rc == 0) {
		rpc_reply(req, rpc_string(name));
	} else {
		rpc_error(req, rc, "%s", error);
	}
}

void rpc_bdev_answer_true(struct rpc_request *req, int rc, const char *error)
{
	if (rc == 0) {
		rpc_reply_true(req);
	} else {
		rpc_error(req, rc, "%s", error);
	}
}

const uint8_t *rpc_bdev_uuid(const char *text, uint8_t uuid[16])
{
	return text != NULL && bdev_uuid_parse(text, uuid) == 0 ? uuid : NULL;
}

bool rpc_bdev_decode_md(struct rpc_request *req, uint32_t md_size, int32_t dif_type, bool dif_is_head_of_md,
			uint32_t dif_pi_format, struct bdev_md *md)
{
	if (md_size > 128) {
		rpc_error(req, -EINVAL, "md_size %u: must be 0, 8, 16, 32, 64 or 128", md_size);
		return false;
	}
	if (dif_type < 0 || dif_type > 3) {
		rpc_error(req, -EINVAL, "dif_type %d: must be 0 (none) to 3", dif_type);
		return false;
	}
	if (dif_pi_format >= DIF_GUARDS) {
		rpc_error(req, -EINVAL, "dif_pi_format %u: must be 0 (a guard of 16 bits), 1 (32 bits) or 2 (64 bits)",
			  dif_pi_format);
		return false;
	}
	*md = (struct bdev_md){.size = (uint16_t)md_size,
			       .dif_type = (uint8_t)dif_type,
			       .dif_guard = (uint8_t)dif_pi_format,
			       .dif_is_first = dif_is_head_of_md};
	return true;
}

const struct rpc_param rpc_bdev_by_name_params[] = {
	RPC_PARAM(struct rpc_bdev_by_name, name, RPC_STRING, RPC_REQUIRED, "of the bdev"), RPC_PARAM_END};

const struct rpc_param rpc_bdev_delete_params[] = {
	RPC_PARAM(struct rpc_bdev_delete, name, RPC_STRING, RPC_REQUIRED, "of the bdev"),
	RPC_PARAM(struct rpc_bdev_delete, force, RPC_BOOL, RPC_OPTIONAL,
		  "also if it is claimed, by a namespace or another bdev, which is removed with it; default: true",
		  .own = true),
	RPC_PARAM_END};

void rpc_bdev_delete_defaults(void *params)
{
	((struct rpc_bdev_delete *)params)->force = true;
}

bool rpc_bdev_may_delete(struct rpc_request *req, const struct rpc_bdev_delete *p)
{
	const struct bdev *b = p->force ? NULL : bdev_find(p->name);
	const char *owner;

	if (b == NULL || bdev_get_claim(b, &owner) == BDEV_CLAIM_NONE) {
		return true;
	}
	rpc_error(req, -EBUSY, "name '%.200s': %s uses it, and force is false", p->name, owner);
	return false;
}

void rpc_bdev_deleted(void *arg, int rc)
{
	const struct rpc_bdev_delete *p = arg;

	if (rc == 0) {
		rpc_reply_true(p->req);
	} else if (rc == -ENODEV) {
		rpc_error(p->req, rc, "name '%.200s': there is no such bdev, or it is of another kind", p->name);
	} else {
		rpc_error(p->req, rc, "name '%.200s': it is being deleted already", p->name);
	}
}

/* --- Configuration --- */

json_t *rpc_bdev_params(const char *key, const char *value)
{
	json_t *params = json_object();
	json_object_set_new(params, key, rpc_string(value));
	return params;
}

void rpc_bdev_add_uint(json_t *params, const char *key, uint64_t value)
{
	json_object_set_new(params, key, rpc_uint(value));
}

void rpc_bdev_add_nonzero(json_t *params, const char *key, uint64_t value)
{
	if (value != 0) {
		rpc_bdev_add_uint(params, key, value);
	}
}

void rpc_bdev_add_true(json_t *params, const char *key, bool value)
{
	if (value) {
		json_object_set_new(params, key, json_true());
	}
}

void rpc_bdev_add_uuid(json_t *params, const uint8_t *uuid)
{
	char text[BDEV_UUID_STRLEN];

	bdev_uuid_format(uuid, text);
	json_object_set_new(params, "uuid", json_string(text));
}

void rpc_bdev_add_md(json_t *params, const struct bdev_md *md, bool interleave)
{
	if (md->size == 0) {
		return;
	}
	rpc_bdev_add_uint(params, "md_size", md->size);
	rpc_bdev_add_true(params, "md_interleave", interleave);
	rpc_bdev_add_uint(params, "dif_type", md->dif_type);
	json_object_set_new(params, "dif_is_head_of_md", json_boolean(md->dif_is_first));
	if (md->dif_guard != 0) {
		rpc_bdev_add_uint(params, "dif_pi_format", md->dif_guard);
	}
}

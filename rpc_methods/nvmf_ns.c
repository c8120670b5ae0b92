/* SPDX-License-Identifier: BSD-3-Clause */
/* Namespaces. */
#include <errno.h>
#include <string.h>

#include "bdev/bdev.h"
#include "bdev/module.h"
#include "rpc_methods/nvmf.h"

struct ns_params {
	uint32_t nsid;
	char *bdev_name, *nguid, *eui64, *uuid, *ptpl_file;
	uint32_t anagrpid;
	bool no_auto_visible, hide_metadata;
	json_t *passthru_io, *passthru_admin;
};

static const struct rpc_param ns_object[] = {
	RPC_PARAM(struct ns_params, nsid, RPC_UINT32, RPC_OPTIONAL, "by default the lowest that is free"),
	RPC_PARAM(struct ns_params, bdev_name, RPC_STRING, RPC_REQUIRED, "what holds its data"),
	RPC_PARAM(struct ns_params, nguid, RPC_STRING, RPC_OPTIONAL, "32 hexadecimal digits; by default the UUID's"),
	RPC_PARAM(struct ns_params, eui64, RPC_STRING, RPC_OPTIONAL, "16 hexadecimal digits"),
	RPC_PARAM(struct ns_params, uuid, RPC_UUID, RPC_OPTIONAL, "by default the bdev's"),
	RPC_PARAM(struct ns_params, ptpl_file, RPC_STRING, RPC_OPTIONAL,
		  "absolute path of a file that keeps reservations over restarts; by default they end with us"),
	RPC_PARAM(struct ns_params, anagrpid, RPC_UINT32, RPC_OPTIONAL, "ANA group; by default the nsid"),
	RPC_PARAM(struct ns_params, no_auto_visible, RPC_BOOL, RPC_OPTIONAL,
		  "hosts see it only after nvmf_ns_add_host"),
	RPC_PARAM(struct ns_params, hide_metadata, RPC_BOOL, RPC_OPTIONAL,
		  "hosts see blocks without metadata, as with dif_insert_or_strip of a transport"),
	RPC_PARAM(struct ns_params, passthru_io, RPC_ARRAY, RPC_OPTIONAL,
		  "opcodes of I/O commands, 128 to 255, that are passed to the NVMe controller; none by "
		  "default",
		  .own = true),
	RPC_PARAM(struct ns_params, passthru_admin, RPC_ARRAY, RPC_OPTIONAL,
		  "opcodes of admin commands, 192 to 255, the same", .own = true),
	RPC_PARAM_END,
};

struct add_ns {
	struct rpc_nvmf_where where;
	struct ns_params namespace;
};

static const struct rpc_param add_ns_params[] = {
	RPC_NVMF_WHERE_PARAMS(struct add_ns),
	RPC_PARAM(struct add_ns, namespace, RPC_OBJECT, RPC_REQUIRED, "the namespace", .object = ns_object),
	RPC_PARAM_END,
};

static int ns_hex_digit(char c)
{
	if (c >= '0' && c <= '9') {
		return c - '0';
	}
	if (c >= 'a' && c <= 'f') {
		return c - 'a' + 10;
	}
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool ns_decode_hex(struct rpc_request *req, const char *name, const char *text, uint8_t *bytes, size_t len)
{
	size_t i = 0;

	while (i < 2 * len && ns_hex_digit(text[i]) >= 0) {
		i++;
	}
	if (i != 2 * len || text[i] != 0) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "parameter \"namespace.%s\" is \"%.64s\": allowed are %zu hexadecimal digits", name, text,
			  2 * len);
		return false;
	}
	for (i = 0; i < len; i++) {
		bytes[i] = (uint8_t)(ns_hex_digit(text[2 * i]) << 4 | ns_hex_digit(text[2 * i + 1]));
	}
	return true;
}

static bool ns_decode_opcodes(struct rpc_request *req, const char *name, const json_t *list, bool admin,
			      struct nvmf_passthru *p)
{
	const json_t *one;
	size_t i;

	json_array_foreach (list, i, one) {
		json_int_t opcode = json_is_integer(one) ? json_integer_value(one) : -1;
		if (opcode < 0 || opcode > UINT8_MAX || !nvmf_passthru_can_list((uint8_t)opcode, admin)) {
			rpc_wrong_element(req, name, i, one,
					  "are opcodes %u to 255 whose data go one way (bits 1:0 are not 3)",
					  admin ? NVMF_VENDOR_ADMIN : NVMF_VENDOR_IO);
			return false;
		}
		nvmf_passthru_add(p, (uint8_t)opcode, admin);
	}
	return true;
}

static bool ns_decode_options(struct rpc_request *req, const struct ns_params *p, struct nvmf_ns_opts *opts)
{
	*opts = (struct nvmf_ns_opts){.nsid = p->nsid,
				      .anagrpid = p->anagrpid,
				      .no_auto_visible = p->no_auto_visible,
				      .hide_metadata = p->hide_metadata,
				      .ptpl_file = p->ptpl_file};
	if (p->uuid != NULL) {
		bdev_uuid_parse(p->uuid, opts->uuid);
	}
	if (!ns_decode_opcodes(req, "namespace.passthru_io", p->passthru_io, false, &opts->passthru) ||
	    !ns_decode_opcodes(req, "namespace.passthru_admin", p->passthru_admin, true, &opts->passthru)) {
		return false;
	}
	return (p->nguid == NULL || ns_decode_hex(req, "nguid", p->nguid, opts->nguid, sizeof(opts->nguid))) &&
	       (p->eui64 == NULL || ns_decode_hex(req, "eui64", p->eui64, opts->eui64, sizeof(opts->eui64)));
}

static void ns_answer_in_use(struct rpc_request *req, const struct nvmf_subsystem *s, uint32_t nsid)
{
	const struct nvmf_ns *other = nvmf_ns_find(s, nsid);

	rpc_error(req, RPC_ERROR_INVALID_PARAMS, "parameter \"namespace.nsid\" is %u: %s", nsid,
		  other != NULL && nvmf_ns_is_being_removed(other) ? "its namespace is being removed" : "in use");
}

/* Clients compare the code of an addition that fails: it is the same whatever is wrong with the namespace. What fails
 * for want of something in the machine has its own, since then the call was right. */
static int ns_error_code(int rc)
{
	return rc == -ENOMEM || rc == -EIO || rc == -EAGAIN || rc == -EMFILE || rc == -ENFILE || rc == -EROFS
		       ? rc
		       : RPC_ERROR_INVALID_PARAMS;
}

static void ns_answer_claimed(struct rpc_request *req, int code, const char *name)
{
	const struct bdev *b = bdev_find(name);
	const char *owner = NULL;
	enum bdev_claim_type type = b != NULL ? bdev_get_claim(b, &owner) : BDEV_CLAIM_NONE;

	if (type != BDEV_CLAIM_NONE) {
		rpc_error(req, code, "parameter \"namespace.bdev_name\" is \"%s\": it is claimed (%s) by %s%s", name,
			  bdev_claim_type_name(type), owner,
			  strcmp(owner, "nvmf") == 0 ? ": a subsystem has it as a namespace (nvmf_get_subsystems)"
						     : "");
	} else {
		rpc_error(req, code,
			  "parameter \"namespace.bdev_name\" is \"%s\": it is open for writing by others; the log says "
			  "more",
			  name);
	}
}

static void ns_answer_add_error(struct rpc_request *req, const struct nvmf_subsystem *s, const struct ns_params *p,
				int rc)
{
	uint32_t max = nvmf_subsystem_max_namespaces(s);
	const int code = ns_error_code(rc);

	if (rc == -ENODEV) {
		rpc_error(req, code, "parameter \"namespace.bdev_name\" is \"%s\": there is no such bdev",
			  p->bdev_name);
	} else if (rc == -EPERM) {
		ns_answer_claimed(req, code, p->bdev_name);
	} else if (rc == -EEXIST) {
		ns_answer_in_use(req, s, p->nsid);
	} else if (rc == -EINVAL && p->nsid > max) {
		rpc_error(req, code, "parameter \"namespace.nsid\" is %u: allowed are 1 to %u (max_namespaces)",
			  p->nsid, max);
	} else if (rc == -EINVAL && p->anagrpid > max) {
		rpc_error(req, code, "parameter \"namespace.anagrpid\" is %u: allowed are 1 to %u (max_namespaces)",
			  p->anagrpid, max);
	} else if (rc == -ENOSPC) {
		rpc_error(req, code, "the subsystem has its %u namespaces (max_namespaces)", max);
	} else if (rc == -ENOTSUP) {
		rpc_error(req, code,
			  "bdev %s cannot be a namespace with what was asked for (passthru_io and "
			  "passthru_admin need one on an NVMe "
			  "controller); the log says more",
			  p->bdev_name);
	} else if (p->ptpl_file != NULL) {
		rpc_error(req, code,
			  "bdev %s cannot be a namespace with parameter \"namespace.ptpl_file\" \"%.256s\": "
			  "%s; the log says more",
			  p->bdev_name, p->ptpl_file, strerror(-rc));
	} else {
		rpc_error(req, code, "bdev %s cannot be a namespace: %s; the log says more", p->bdev_name,
			  strerror(-rc));
	}
}

static void rpc_add_ns(struct rpc_request *req, void *params)
{
	const struct add_ns *p = params;
	struct nvmf_subsystem *s = rpc_nvmf_subsystem_to_change(req, p->where.tgt_name, p->where.nqn);
	struct nvmf_ns_opts opts;
	uint32_t nsid;

	if (s == NULL || !ns_decode_options(req, &p->namespace, &opts)) {
		return;
	}
	if (nvmf_subsystem_subtype(s) == NVMF_SUBTYPE_DISCOVERY) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "parameter \"nqn\" is \"%s\": a discovery subsystem has no namespaces", p->where.nqn);
		return;
	}
	int rc = nvmf_subsystem_add_ns(s, p->namespace.bdev_name, &opts, &nsid);
	if (rc != 0) {
		ns_answer_add_error(req, s, &p->namespace, rc);
	} else {
		rpc_reply(req, json_integer(nsid));
	}
}
RPC_METHOD("nvmf_subsystem_add_ns", rpc_add_ns, struct add_ns, add_ns_params, RPC_RUNTIME,
	   "Add a bdev to a subsystem as a namespace; answers with its nsid", .result = "int")

struct nsid_params {
	struct rpc_nvmf_where where;
	uint32_t nsid;
	uint32_t anagrpid;
	char *host;
};

#define NSID_PARAMS                                                                                                    \
	RPC_NVMF_WHERE_PARAMS(struct nsid_params),                                                                     \
		RPC_PARAM(struct nsid_params, nsid, RPC_UINT32, RPC_REQUIRED, "the namespace")

static const struct rpc_param remove_ns_params[] = {
	NSID_PARAMS,
	RPC_PARAM_END,
};

static const struct rpc_param ns_ana_group_params[] = {
	NSID_PARAMS,
	RPC_PARAM(struct nsid_params, anagrpid, RPC_UINT32, RPC_REQUIRED, "its new ANA group, 1 to max_namespaces"),
	RPC_PARAM_END,
};

static const struct rpc_param ns_host_params[] = {
	NSID_PARAMS,
	RPC_PARAM(struct nsid_params, host, RPC_STRING, RPC_REQUIRED, "NQN of the host"),
	RPC_PARAM_END,
};

/* Finds the subsystem that has the namespace. NULL: the request has been answered with what is wrong. */
static struct nvmf_subsystem *ns_find_subsystem(struct rpc_request *req, const struct nsid_params *p)
{
	struct nvmf_subsystem *s = rpc_nvmf_subsystem_to_change(req, p->where.tgt_name, p->where.nqn);

	if (s != NULL && nvmf_ns_find(s, p->nsid) == NULL) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "parameter \"nsid\" is %u: the subsystem has no such namespace", p->nsid);
		return NULL;
	}
	return s;
}

static void ns_waits_for(const void *params, char *text, size_t size)
{
	const struct nsid_params *p = params;
	struct nvmf_tgt *tgt = nvmf_tgt_find(p->where.tgt_name != NULL ? p->where.tgt_name : NVMF_DEFAULT_TGT);
	const struct nvmf_subsystem *s = tgt != NULL ? nvmf_subsystem_find(tgt, p->where.nqn) : NULL;

	if (s != NULL) {
		nvmf_subsystem_waits_for(s, p->nsid, text, size);
	}
}

static void rpc_remove_ns(struct rpc_request *req, void *params)
{
	const struct nsid_params *p = params;
	struct nvmf_subsystem *s = ns_find_subsystem(req, p);

	if (s != NULL) {
		nvmf_subsystem_remove_ns(s, p->nsid, rpc_nvmf_answer, req);
	}
}
RPC_METHOD("nvmf_subsystem_remove_ns", rpc_remove_ns, struct nsid_params, remove_ns_params, RPC_RUNTIME,
	   "Remove a namespace; answers when its commands have ended", .result = "true", .waits_for = ns_waits_for)

static void rpc_set_ns_ana_group(struct rpc_request *req, void *params)
{
	const struct nsid_params *p = params;
	struct nvmf_subsystem *s = ns_find_subsystem(req, p);

	if (s == NULL) {
		return;
	}
	int rc = nvmf_subsystem_set_ns_ana_group(s, p->nsid, p->anagrpid);
	if (rc == -EINVAL) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "parameter \"anagrpid\" is %u: allowed are 1 to %u (max_namespaces)", p->anagrpid,
			  nvmf_subsystem_max_namespaces(s));
	} else {
		rpc_nvmf_answer(req, rc);
	}
}
RPC_METHOD("nvmf_subsystem_set_ns_ana_group", rpc_set_ns_ana_group, struct nsid_params, ns_ana_group_params,
	   RPC_RUNTIME, "Move a namespace to another ANA group, and tell hosts", .result = "true")

static void ns_host_answer(struct rpc_request *req, const struct nsid_params *p, int rc)
{
	if (rc == -EPERM) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "parameter \"nsid\" is %u: it is visible to every host (no_auto_visible is false)", p->nsid);
	} else if (rc == -EINVAL) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "parameter \"host\" is \"%.64s\": allowed is nqn.yyyy-mm.reverse.domain[:name]", p->host);
	} else if (rc == -EEXIST) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "parameter \"host\" is \"%s\": namespace %u is visible to it already", p->host, p->nsid);
	} else if (rc == -ENOENT) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "parameter \"host\" is \"%.256s\": it is not among the hosts that namespace %u is visible to",
			  p->host, p->nsid);
	} else {
		rpc_nvmf_answer(req, rc);
	}
}

static void rpc_ns_add_host(struct rpc_request *req, void *params)
{
	const struct nsid_params *p = params;
	struct nvmf_subsystem *s = ns_find_subsystem(req, p);

	if (s != NULL) {
		ns_host_answer(req, p, nvmf_ns_add_host(s, p->nsid, p->host));
	}
}
RPC_METHOD("nvmf_ns_add_host", rpc_ns_add_host, struct nsid_params, ns_host_params, RPC_RUNTIME,
	   "Show a namespace to a host", .result = "true")

static void rpc_ns_remove_host(struct rpc_request *req, void *params)
{
	const struct nsid_params *p = params;
	struct nvmf_subsystem *s = ns_find_subsystem(req, p);

	if (s != NULL) {
		ns_host_answer(req, p, nvmf_ns_remove_host(s, p->nsid, p->host));
	}
}
RPC_METHOD("nvmf_ns_remove_host", rpc_ns_remove_host, struct nsid_params, ns_host_params, RPC_RUNTIME,
	   "Hide a namespace from a host", .result = "true")

/* SPDX-License-Identifier: BSD-3-Clause */
/* Listeners of subsystems, and the ANA states that hosts see there. */
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "rpc_methods/nvmf.h"
#include "util/log.h"

static const struct rpc_enum ana_states[] = {
	{"optimized", NVME_ANA_STATE_OPTIMIZED},
	{"non_optimized", NVME_ANA_STATE_NONOPTIMIZED},
	{"inaccessible", NVME_ANA_STATE_INACCESSIBLE},
	{"persistent_loss", NVME_ANA_STATE_PERSISTENT_LOSS},
	{"change", NVME_ANA_STATE_CHANGE},
	{NULL, 0},
};

/* What SPDK's targets lack, and refuse as an ana_state. */
static const struct rpc_enum own_ana_states[] = {
	{"persistent_loss", NVME_ANA_STATE_PERSISTENT_LOSS},
	{"change", NVME_ANA_STATE_CHANGE},
	{NULL, 0},
};

struct listener_params {
	struct rpc_nvmf_where where;
	struct rpc_nvmf_address listen_address;
	int ana_state, own_ana_state; /* own_ana_state 0: not given */
	uint32_t anagrpid;
	bool secure_channel;
};

#define OWN_ANA_STATE_PARAM                                                                                            \
	RPC_PARAM(                                                                                                     \
		struct listener_params, own_ana_state, RPC_ENUM, RPC_OPTIONAL,                                         \
		"in place of ana_state \"inaccessible\", as which a saved configuration has these states for SPDK's "  \
		"targets; ana_state takes them as well",                                                               \
		.enums = own_ana_states, .own = true)

#define LISTENER_PARAMS                                                                                                \
	RPC_NVMF_WHERE_PARAMS(struct listener_params),                                                                 \
		RPC_PARAM(struct listener_params, listen_address, RPC_OBJECT, RPC_REQUIRED, "where",                   \
			  .object = rpc_nvmf_address_params)

static const struct rpc_param add_listener_params[] = {
	LISTENER_PARAMS,
	RPC_PARAM(struct listener_params, secure_channel, RPC_BOOL, RPC_OPTIONAL,
		  "hosts have to connect over TLS, each by its psk (nvmf_subsystem_add_host); kept without effect on "
		  "RDMA, which is not encrypted"),
	RPC_NO_EFFECT(sock_impl, RPC_STRING, "null", "RDMA has no sockets to choose, and TCP uses the kernel's"),
	RPC_NO_EFFECT(numa_id, RPC_INT32, "-1", "the address decides which device, and so which node, serves"),
	RPC_PARAM(struct listener_params, ana_state, RPC_ENUM, RPC_OPTIONAL, "of all ANA groups; by default optimized",
		  .enums = ana_states),
	OWN_ANA_STATE_PARAM,
	RPC_PARAM_END,
};

static void listener_add_defaults(void *params)
{
	((struct listener_params *)params)->ana_state = NVME_ANA_STATE_OPTIMIZED;
}

static const struct rpc_param set_ana_state_params[] = {
	LISTENER_PARAMS,
	RPC_PARAM(struct listener_params, ana_state, RPC_ENUM, RPC_REQUIRED, "what hosts are told",
		  .enums = ana_states),
	OWN_ANA_STATE_PARAM,
	RPC_PARAM(struct listener_params, anagrpid, RPC_UINT32, RPC_OPTIONAL, "the ANA group; by default all"),
	RPC_PARAM_END,
};

static const struct rpc_param remove_listener_params[] = {
	LISTENER_PARAMS,
	RPC_PARAM_END,
};

/* Finds the subsystem and decodes the address. NULL: the request has been answered with what is wrong. */
static struct nvmf_subsystem *listener_decode(struct rpc_request *req, const struct listener_params *p,
					      struct nvmf_address *address)
{
	struct nvmf_subsystem *s = rpc_nvmf_subsystem_to_change(req, p->where.tgt_name, p->where.nqn);

	return s != NULL && rpc_nvmf_address_decode(req, "listen_address", &p->listen_address, address) ? s : NULL;
}

static void listener_answer_not_found(struct rpc_request *req, const char *nqn, const struct nvmf_address *address)
{
	rpc_error(req, RPC_ERROR_INVALID_PARAMS, "parameter \"listen_address\": %s does not listen on %s %s %s", nqn,
		  address->trtype, address->traddr, address->trsvcid);
}

/* The state that is meant. False: the request has been answered with what is wrong. */
static bool listener_decode_state(struct rpc_request *req, const struct listener_params *p, enum nvme_ana_state *state)
{
	*state = (enum nvme_ana_state)(p->own_ana_state != 0 ? p->own_ana_state : p->ana_state);
	if (p->own_ana_state == 0 || p->ana_state == NVME_ANA_STATE_INACCESSIBLE || p->ana_state == p->own_ana_state) {
		return true;
	}
	rpc_error(req, RPC_ERROR_INVALID_PARAMS,
		  "parameter \"own_ana_state\" is \"%s\", and \"ana_state\" is \"%s\": allowed with it is "
		  "\"inaccessible\"",
		  nvmf_ana_state_name(*state), nvmf_ana_state_name((enum nvme_ana_state)p->ana_state));
	return false;
}

static void listener_answer_no_ana(struct rpc_request *req, const struct listener_params *p, enum nvme_ana_state state)
{
	rpc_error(req, -ENOTSUP,
		  "parameter \"ana_state\" is \"%s\": %s was made without ana_reporting, so all it can be is "
		  "optimized",
		  nvmf_ana_state_name(state), p->where.nqn);
}

/* Over RDMA there is no TLS, which the log tells once. */
static void listener_tell_no_tls(const struct listener_params *p, struct nvmf_tgt *tgt,
				 const struct nvmf_address *address)
{
	const struct nvmf_transport *t = nvmf_transport_find(tgt, address->trtype);
	static bool told;

	if (!told && p->secure_channel && t != NULL && !nvmf_transport_has_tls(t)) {
		log_notice("nvmf_subsystem_add_listener: parameter \"secure_channel\" is true: taken, no effect: %s is "
			   "not encrypted",
			   address->trtype);
		told = true;
	}
}

/* What to do about an error, in front of its text, which clients look for at the end. */
static const char *listener_remedy(int rc)
{
	return rc == -EADDRNOTAVAIL ? "no interface has that address; `ip address` lists them: "
	       : rc == -EADDRINUSE
		       ? "another program, or a listener of this one at 0.0.0.0 or :: with the same port, has "
			 "it; `ss -ltnp` lists them: "
		       : "";
}

static void listener_answer_add(struct rpc_request *req, const struct listener_params *p,
				const struct nvmf_address *address, enum nvme_ana_state state, int rc)
{
	if (rc == -ENOTSUP) {
		listener_answer_no_ana(req, p, state);
	} else if (rc == -EEXIST) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "parameter \"listen_address\": %s listens on %s %s %s already: File exists", p->where.nqn,
			  address->trtype, address->traddr, address->trsvcid);
	} else if (rc == -EPROTOTYPE) {
		rpc_error(
			req, RPC_ERROR_INVALID_PARAMS,
			"parameter \"secure_channel\" is %s: another subsystem listens on %s %s %s with %s, and all of "
			"an address must have the same",
			p->secure_channel ? "true" : "false", address->trtype, address->traddr, address->trsvcid,
			p->secure_channel ? "false" : "true");
	} else if (rc != 0) {
		rpc_error(req, rc, "%s cannot listen on %s %s %s: %s%s", p->where.nqn, address->trtype, address->traddr,
			  address->trsvcid, listener_remedy(rc), strerror(-rc));
	}
}

static void rpc_add_listener(struct rpc_request *req, void *params)
{
	const struct listener_params *p = params;
	struct nvmf_address address;
	struct nvmf_subsystem *s = listener_decode(req, p, &address);
	char allowed[NVMF_ERROR_MAX];
	enum nvme_ana_state state;
	const char *field;

	if (s == NULL || !listener_decode_state(req, p, &state)) {
		return;
	}
	struct nvmf_tgt *tgt = nvmf_subsystem_tgt(s);
	if (nvmf_tgt_check_listen_address(tgt, &address, &field, allowed) != 0) {
		rpc_nvmf_address_refuse(req, "listen_address", &address, field, allowed);
		return;
	}
	listener_tell_no_tls(p, tgt, &address);
	int rc = nvmf_subsystem_add_listener_secure(s, &address, state, p->secure_channel);
	if (rc != 0) {
		listener_answer_add(req, p, &address, state, rc);
	} else {
		nvmf_subsystem_settle_listeners(s, address.trtype, rpc_nvmf_answer, req);
	}
}
RPC_METHOD("nvmf_subsystem_add_listener", rpc_add_listener, struct listener_params, add_listener_params, RPC_RUNTIME,
	   "Let hosts connect to a subsystem through an address", .defaults = listener_add_defaults, .result = "true")

static void rpc_set_ana_state(struct rpc_request *req, void *params)
{
	const struct listener_params *p = params;
	struct nvmf_address address;
	struct nvmf_subsystem *s = listener_decode(req, p, &address);
	enum nvme_ana_state state;

	if (s == NULL || !listener_decode_state(req, p, &state)) {
		return;
	}
	int rc = nvmf_listener_set_ana_state(s, &address, p->anagrpid, state);
	if (rc == -ENOTSUP) {
		listener_answer_no_ana(req, p, state);
	} else if (rc == -EINVAL) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "parameter \"anagrpid\" is %u: allowed are 1 to %u (max_namespaces)", p->anagrpid,
			  nvmf_subsystem_max_namespaces(s));
	} else if (rc == -ENOENT) {
		listener_answer_not_found(req, p->where.nqn, &address);
	} else {
		rpc_nvmf_answer(req, rc);
	}
}
RPC_METHOD("nvmf_subsystem_listener_set_ana_state", rpc_set_ana_state, struct listener_params, set_ana_state_params,
	   RPC_RUNTIME, "Set the ANA state of a group, or of all, through a listener, and tell its hosts",
	   .result = "true")

static void rpc_remove_listener(struct rpc_request *req, void *params)
{
	const struct listener_params *p = params;
	struct nvmf_address address;
	struct nvmf_subsystem *s = listener_decode(req, p, &address);

	if (s != NULL && nvmf_subsystem_find_listener(s, &address) == NULL) {
		listener_answer_not_found(req, p->where.nqn, &address);
	} else if (s != NULL) {
		nvmf_subsystem_remove_listener(s, &address, rpc_nvmf_answer, req);
	}
}
RPC_METHOD("nvmf_subsystem_remove_listener", rpc_remove_listener, struct listener_params, remove_listener_params,
	   RPC_RUNTIME, "Disconnect the hosts that came through an address, and let no more of them in",
	   .result = "true", .waits_for = rpc_nvmf_subsystem_waits_for)

struct get_listeners {
	struct rpc_nvmf_where where;
};

static const struct rpc_param get_listeners_params[] = {
	RPC_NVMF_WHERE_PARAMS(struct get_listeners),
	RPC_PARAM_END,
};

/* The states of all possible ANA groups. */
static json_t *listener_ana_states_json(const struct nvmf_subsystem *s, const struct nvmf_listener *l)
{
	json_t *list = json_array();

	for (uint32_t g = 1; g <= nvmf_subsystem_max_namespaces(s); g++) {
		const char *state = nvmf_ana_state_name(nvmf_listener_ana_state(l, g));
		json_array_append_new(list, json_pack("{s:i,s:s}", "ana_group", (int)g, "ana_state", state));
	}
	return list;
}

static json_t *listener_json(const struct nvmf_subsystem *s, const struct nvmf_listener *l)
{
	return json_pack("{s:o, s:o}", "address", rpc_nvmf_address_json(nvmf_listener_address(l)), "ana_states",
			 listener_ana_states_json(s, l));
}

static void rpc_get_listeners(struct rpc_request *req, void *params)
{
	const struct get_listeners *p = params;
	struct nvmf_subsystem *s = rpc_nvmf_subsystem(req, p->where.tgt_name, p->where.nqn);
	json_t *list;

	if (s == NULL) {
		return;
	}
	list = json_array();
	for (struct nvmf_listener *l = nvmf_listener_next(s, NULL); l != NULL; l = nvmf_listener_next(s, l)) {
		json_array_append_new(list, listener_json(s, l));
	}
	rpc_reply(req, list);
}
RPC_METHOD("nvmf_subsystem_get_listeners", rpc_get_listeners, struct get_listeners, get_listeners_params, RPC_RUNTIME,
	   "List the addresses of a subsystem, with the state of each ANA group there",
	   .result = "[{address: " RPC_NVMF_ADDRESS_SHAPE ", ana_states: [{ana_group: int, ana_state: string}], ...}]")

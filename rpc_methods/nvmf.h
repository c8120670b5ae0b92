/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of nvmf methods share. Control thread. */
#ifndef RPC_NVMF_RPC_H
#define RPC_NVMF_RPC_H

#include "nvmf/nvmf.h"
#include "rpc/rpc.h"

/* An address as a parameter: listen_address and others. */
struct rpc_nvmf_address {
	char *trtype, *adrfam, *traddr, *trsvcid;
};
extern const struct rpc_param rpc_nvmf_address_params[];
/* Decodes an address, which is the parameter `what`. False: the request has been answered with what is wrong. */
bool rpc_nvmf_address_decode(struct rpc_request *req, const char *what, const struct rpc_nvmf_address *given,
			     struct nvmf_address *address);
/* Answers a request with what is wrong with a part of an address, as nvmf_address_check() tells. */
void rpc_nvmf_address_refuse(struct rpc_request *req, const char *what, const struct nvmf_address *a, const char *field,
			     const char *allowed);
/* An address in an answer, in the shape RPC_NVMF_ADDRESS_SHAPE. */
json_t *rpc_nvmf_address_json(const struct nvmf_address *address);

/* For RPC_METHOD's .result. */
#define RPC_NVMF_ADDRESS_SHAPE "{trtype: string, adrfam: string, traddr: string, trsvcid: string}"

/* The target of that name; name NULL: the default one. NULL: there is none, and the request has been answered with that
 * error. */
struct nvmf_tgt *rpc_nvmf_tgt(struct rpc_request *req, const char *name);
/* The same for a subsystem of that target. */
struct nvmf_subsystem *rpc_nvmf_subsystem(struct rpc_request *req, const char *tgt_name, const char *nqn);

/* As rpc_nvmf_tgt(), for a method that changes something: a target that is being deleted is refused with -EBUSY, and
 * the error names it and its state. */
struct nvmf_tgt *rpc_nvmf_tgt_to_change(struct rpc_request *req, const char *name);
/* The same for a subsystem of that target, which must not be being deleted itself. */
struct nvmf_subsystem *rpc_nvmf_subsystem_to_change(struct rpc_request *req, const char *tgt_name, const char *nqn);

/* A method's parameters that name a subsystem and its target: the member `where` of the method's struct. */
struct rpc_nvmf_where {
	char *nqn, *tgt_name;
};
#define RPC_NVMF_WHERE_PARAMS(type_)                                                                                   \
	{.name = "nqn",                                                                                                \
	 .type = RPC_STRING,                                                                                           \
	 .offset = offsetof(type_, where.nqn),                                                                         \
	 .size = sizeof(char *),                                                                                       \
	 .required = RPC_REQUIRED,                                                                                     \
	 .help = "NQN of the subsystem"},                                                                              \
	{                                                                                                              \
		.name = "tgt_name", .type = RPC_STRING, .offset = offsetof(type_, where.tgt_name),                     \
		.size = sizeof(char *), .required = RPC_OPTIONAL,                                                      \
		.help = "name of the target; the default one if not given"                                             \
	}

/* An nvmf_done_fn that answers a request: true, or the error. */
void rpc_nvmf_answer(void *req, int status);

/* For RPC_METHOD's .waits_for, of methods whose params begin with struct rpc_nvmf_where: what the subsystem's changes
 * wait for. */
void rpc_nvmf_subsystem_waits_for(const void *params, char *text, size_t size);

/* The microseconds that have passed since the time `ticks`. */
json_t *rpc_nvmf_since_us(uint64_t ticks);
/* A string in lower case. */
json_t *rpc_nvmf_lower(const char *name);

/* The options of a transport, as parameters of nvmf_create_transport. */
json_t *rpc_nvmf_transport_json(const struct nvmf_transport *t);
/* A namespace, as a parameter of nvmf_subsystem_add_ns. */
json_t *rpc_nvmf_ns_config_json(const struct nvmf_ns *ns);

/* The peers of a subsystem, with their answers so far. */
json_t *rpc_nvmf_peers_json(const struct nvmf_subsystem *s);

/* Whether hosts can connect to the target over TLS. */
bool rpc_nvmf_tgt_has_tls(struct nvmf_tgt *tgt);
/* Adds the names of an allowed host's keys to o, as parameters of nvmf_subsystem_add_host; nothing if it has none. */
void rpc_nvmf_add_key_names(json_t *o, const struct nvmf_subsystem *s, const char *hostnqn);
/* Adds "auth" to o, the state of a queue pair's authentication; nothing if it needs none. */
void rpc_nvmf_add_auth(json_t *o, const struct nvmf_auth_info *auth);

/* Parses "match_any", or names joined by commas. 0 or -EINVAL. */
int rpc_nvmf_discovery_filter_parse(const char *text, uint32_t *filter);
/* A discovery filter in that form. */
json_t *rpc_nvmf_discovery_filter_json(uint32_t filter);

#endif

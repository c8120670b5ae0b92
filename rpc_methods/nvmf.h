/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of nvmf methods share. Control thread. */
#ifndef RPC_NVMF_RPC_H
#define RPC_NVMF_RPC_H

#include "nvmf/nvmf.h"
#include "rpc/rpc.h"

/* listen_address and the like, as clients give it. */
struct rpc_nvmf_address {
	char *trtype, *adrfam, *traddr, *trsvcid;
};
extern const struct rpc_param rpc_nvmf_address_params[];
/* False after answering what is wrong with parameter `what`. */
bool rpc_nvmf_address_decode(struct rpc_request *req, const char *what, const struct rpc_nvmf_address *given,
			     struct nvmf_address *address);
json_t *rpc_nvmf_address_json(const struct nvmf_address *address);

/* The shape of what it makes, for RPC_METHOD's .result. */
#define RPC_NVMF_ADDRESS_SHAPE "{trtype: string, adrfam: string, traddr: string, trsvcid: string}"

/* The target, or NULL after answering that there is none. name NULL: the default one. */
struct nvmf_tgt *rpc_nvmf_tgt(struct rpc_request *req, const char *name);
struct nvmf_subsystem *rpc_nvmf_subsystem(struct rpc_request *req, const char *tgt_name, const char *nqn);

/* A method's parameters that are a subsystem and its target, at the head of its struct. */
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

/* How long ago `ticks` was, in microseconds. */
json_t *rpc_nvmf_since_us(uint64_t ticks);
json_t *rpc_nvmf_lower(const char *name);

/* The options of a transport, as nvmf_create_transport takes them. */
json_t *rpc_nvmf_transport_json(const struct nvmf_transport *t);
/* A namespace, as nvmf_subsystem_add_ns takes it. */
json_t *rpc_nvmf_ns_config_json(const struct nvmf_ns *ns);

/* The names of an allowed host's keys, as nvmf_subsystem_add_host takes them; nothing where it has none. */
void rpc_nvmf_add_key_names(json_t *o, const struct nvmf_subsystem *s, const char *hostnqn);
/* How far the authentication of a queue pair is: "auth"; nothing where there is none. */
void rpc_nvmf_add_auth(json_t *o, const struct nvmf_auth_info *auth);

/* "match_any" or names joined by commas: 0, or -EINVAL. */
int rpc_nvmf_discovery_filter_parse(const char *text, uint32_t *filter);
json_t *rpc_nvmf_discovery_filter_json(uint32_t filter);

#endif

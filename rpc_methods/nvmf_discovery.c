/* SPDX-License-Identifier: BSD-3-Clause */
/* Referrals to other discovery services. */
#include <errno.h>
#include <string.h>

#include "rpc_methods/nvmf.h"

struct referral_params {
	char *tgt_name, *subnqn;
	struct rpc_nvmf_address address;
	bool secure_channel;
};

#define REFERRAL_PARAMS                                                                                                \
	RPC_PARAM(struct referral_params, tgt_name, RPC_STRING, RPC_OPTIONAL,                                          \
		  "name of the target; the default one if not given"),                                                 \
		RPC_PARAM(struct referral_params, address, RPC_OBJECT, RPC_REQUIRED, "of the other service",           \
			  .object = rpc_nvmf_address_params),                                                          \
		RPC_PARAM(struct referral_params, subnqn, RPC_STRING, RPC_OPTIONAL,                                    \
			  "its NQN; by default the well-known discovery NQN")

static const struct rpc_param add_referral_params[] = {
	REFERRAL_PARAMS,
	RPC_PARAM(struct referral_params, secure_channel, RPC_BOOL, RPC_OPTIONAL, "it wants a secure channel"),
	RPC_PARAM_END,
};

static const struct rpc_param remove_referral_params[] = {
	REFERRAL_PARAMS,
	RPC_PARAM_END,
};

static void referral_answer(struct rpc_request *req, int rc, const struct nvmf_address *a, const char *subnqn,
			    const char *what)
{
	rpc_error(req, rc, "parameters \"address\" and \"subnqn\": %.256s on %s %s %s %s",
		  subnqn != NULL ? subnqn : NVMF_DISCOVERY_NQN, a->trtype, a->traddr, a->trsvcid, what);
}

static void rpc_add_referral(struct rpc_request *req, void *params)
{
	const struct referral_params *p = params;
	struct nvmf_tgt *tgt = rpc_nvmf_tgt_to_change(req, p->tgt_name);
	struct nvmf_referral r = {.secure_channel = p->secure_channel};
	char allowed[NVMF_ERROR_MAX];
	const char *field;

	if (tgt == NULL || !rpc_nvmf_address_decode(req, "address", &p->address, &r.address)) {
		return;
	}
	if (p->subnqn != NULL && !nvmf_nqn_is_valid(p->subnqn)) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "parameter \"subnqn\" is \"%.64s\": allowed is nqn.yyyy-mm.reverse.domain[:name]", p->subnqn);
		return;
	}
	if (p->subnqn != NULL) {
		strcpy(r.subnqn, p->subnqn);
	}
	if (nvmf_address_check(&r.address, &field, allowed) != 0) {
		rpc_nvmf_address_refuse(req, "address", &r.address, field, allowed);
		return;
	}
	int rc = nvmf_tgt_add_referral(tgt, &r);
	if (rc == -EINVAL) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "parameter \"address.trtype\" is \"%s\": allowed are RDMA, TCP and FC", p->address.trtype);
	} else if (rc == -EEXIST) {
		referral_answer(req, rc, &r.address, p->subnqn, "is referred to already");
	} else {
		rpc_nvmf_answer(req, rc);
	}
}
RPC_METHOD("nvmf_discovery_add_referral", rpc_add_referral, struct referral_params, add_referral_params, RPC_RUNTIME,
	   "Tell hosts of another discovery service", .result = "true")

static void rpc_remove_referral(struct rpc_request *req, void *params)
{
	const struct referral_params *p = params;
	struct nvmf_tgt *tgt = rpc_nvmf_tgt_to_change(req, p->tgt_name);
	struct nvmf_address address;

	if (tgt == NULL || !rpc_nvmf_address_decode(req, "address", &p->address, &address)) {
		return;
	}
	int rc = nvmf_tgt_remove_referral(tgt, &address, p->subnqn);
	if (rc == -ENOENT) {
		referral_answer(req, rc, &address, p->subnqn, "is not referred to");
	} else {
		rpc_nvmf_answer(req, rc);
	}
}
RPC_METHOD("nvmf_discovery_remove_referral", rpc_remove_referral, struct referral_params, remove_referral_params,
	   RPC_RUNTIME, "Stop telling hosts of another discovery service", .result = "true")

struct get_referrals {
	char *tgt_name;
};

static const struct rpc_param get_referrals_params[] = {
	RPC_PARAM(struct get_referrals, tgt_name, RPC_STRING, RPC_OPTIONAL,
		  "name of the target; the default one if not given"),
	RPC_PARAM_END,
};

static void rpc_get_referrals(struct rpc_request *req, void *params)
{
	const struct get_referrals *p = params;
	struct nvmf_tgt *tgt = rpc_nvmf_tgt(req, p->tgt_name);
	const struct nvmf_referral *r;
	json_t *list;

	if (tgt == NULL) {
		return;
	}
	list = json_array();
	for (r = nvmf_referral_next(tgt, NULL); r != NULL; r = nvmf_referral_next(tgt, r)) {
		json_array_append_new(list,
				      json_pack("{s:o,s:b,s:o}", "address", rpc_nvmf_address_json(&r->address),
						"secure_channel", r->secure_channel, "subnqn", rpc_string(r->subnqn)));
	}
	rpc_reply(req, list);
}
RPC_METHOD("nvmf_discovery_get_referrals", rpc_get_referrals, struct get_referrals, get_referrals_params, RPC_RUNTIME,
	   "List the other discovery services that hosts are told of",
	   .result = "[{address: " RPC_NVMF_ADDRESS_SHAPE ", secure_channel: bool, subnqn: string}]")

/* SPDX-License-Identifier: BSD-3-Clause */
/* The discovery service in multicast DNS. It is not part of a saved configuration, as in SPDK's targets. */
#include "rpc_methods/nvmf.h"

struct mdns_params {
	char *tgt_name;
};

static const struct rpc_param mdns_params[] = {
	RPC_PARAM(struct mdns_params, tgt_name, RPC_STRING, RPC_OPTIONAL,
		  "name of the target; the default one if not given"),
	RPC_PARAM_END,
};

static void mdns_published(void *arg, int rc, const char *why)
{
	if (rc == 0) {
		rpc_reply_true(arg);
	} else {
		rpc_error(arg, rc, "%s", why);
	}
}

static void rpc_publish_mdns_prr(struct rpc_request *req, void *params)
{
	const struct mdns_params *p = params;
	struct nvmf_tgt *tgt = rpc_nvmf_tgt_to_change(req, p->tgt_name);

	if (tgt != NULL) {
		nvmf_mdns_publish(tgt, mdns_published, req);
	}
}
RPC_METHOD("nvmf_publish_mdns_prr", rpc_publish_mdns_prr, struct mdns_params, mdns_params, RPC_RUNTIME,
	   "Have avahi-daemon tell hosts of the TCP listeners of the discovery subsystem by multicast DNS, now and as "
	   "they come and go; answered when the network knows them",
	   .result = "true")

static void rpc_stop_mdns_prr(struct rpc_request *req, void *params)
{
	const struct mdns_params *p = params;
	struct nvmf_tgt *tgt = rpc_nvmf_tgt_to_change(req, p->tgt_name);

	if (tgt != NULL) {
		nvmf_mdns_stop(tgt);
		rpc_reply_true(req);
	}
}
RPC_METHOD("nvmf_stop_mdns_prr", rpc_stop_mdns_prr, struct mdns_params, mdns_params, RPC_RUNTIME,
	   "Stop telling hosts of the discovery service", .result = "true")

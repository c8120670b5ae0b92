/* SPDX-License-Identifier: BSD-3-Clause */
/* bdev_nvme_start_discovery, bdev_nvme_stop_discovery, bdev_nvme_get_discovery_info. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bdev_modules/nvme/nvme_rpc.h"

struct start {
	char *name, *trtype, *traddr, *adrfam, *trsvcid, *hostnqn;
	bool wait_for_attach;
	uint64_t attach_timeout_ms;
	int32_t ctrlr_loss_timeout_sec;
	uint32_t reconnect_delay_sec, fast_io_fail_timeout_sec;
	bool hdgst, ddgst;
	char *psk;
};

#define START(field_, type_, required_, help_, ...)                                                                    \
	RPC_PARAM(struct start, field_, type_, required_, help_, ##__VA_ARGS__)
static const struct rpc_param start_params[] = {
	START(name, RPC_STRING, RPC_REQUIRED,
	      "name of the service; the subsystems that are listed are attached as NAME0, NAME1 ..."),
	START(trtype, RPC_STRING, RPC_REQUIRED, "transport over fabrics, such as RDMA or TCP"),
	START(traddr, RPC_STRING, RPC_REQUIRED, "an IP address"),
	START(adrfam, RPC_STRING, RPC_OPTIONAL, "IPv4 or IPv6 (default: by the form of traddr)"),
	START(trsvcid, RPC_STRING, RPC_OPTIONAL, "port (default: the transport's, 4420)"),
	START(hostnqn, RPC_STRING, RPC_OPTIONAL,
	      "NQN of this host (default: /etc/nvme/hostnqn, or one made from the machine id)"),
	START(wait_for_attach, RPC_BOOL, RPC_OPTIONAL,
	      "answer when each listed controller has been attached or has failed to be (default false: at once)"),
	START(attach_timeout_ms, RPC_UINT64, RPC_OPTIONAL,
	      "like wait_for_attach, but end the service with an error after this time; 0: no limit (default)",
	      .max = UINT64_C(1) << 42),
	START(ctrlr_loss_timeout_sec, RPC_INT32, RPC_OPTIONAL,
	      "of the controllers that are attached: see bdev_nvme_attach_controller"),
	START(reconnect_delay_sec, RPC_UINT32, RPC_OPTIONAL, "likewise"),
	START(fast_io_fail_timeout_sec, RPC_UINT32, RPC_OPTIONAL, "likewise"),
	START(hdgst, RPC_BOOL, RPC_OPTIONAL,
	      "TCP: a CRC32C for each PDU header, also of the service's own connections (default false)", .own = true),
	START(ddgst, RPC_BOOL, RPC_OPTIONAL,
	      "TCP: a CRC32C for the data of each PDU, also of the service's own connections (default false)",
	      .own = true),
	START(psk, RPC_STRING, RPC_OPTIONAL,
	      "TCP: name of a TLS key in the keyring, by which the controllers that are listed are connected; the log "
	      "itself is read without encryption (default: they are not encrypted)",
	      .own = true),
	RPC_PARAM_END,
};

static void start_defaults(void *params)
{
	struct start *p = params;
	struct bdev_nvme_attach a;

	bdev_nvme_attach_default(&a);
	p->ctrlr_loss_timeout_sec = a.ctrlr_loss_timeout_sec;
	p->reconnect_delay_sec = a.reconnect_delay_sec;
	p->fast_io_fail_timeout_sec = a.fast_io_fail_timeout_sec;
}

static void rpc_bdev_nvme_start_discovery(struct rpc_request *req, void *params)
{
	const struct start *p = params;
	struct bdev_nvme_attach a;

	if (!bdev_nvme_rpc_check_psk(req, p->trtype, p->psk) ||
	    !bdev_nvme_rpc_decode_discovery(req, p->trtype, p->traddr, p->adrfam, p->trsvcid, p->hostnqn, &a)) {
		return;
	}
	struct bdev_nvme_discovery_opts o = {
		.name = p->name,
		.trid = a.trid,
		.wait_for_attach = p->wait_for_attach,
		.attach_timeout_ms = p->attach_timeout_ms,
		.ctrlr_loss_timeout_sec = p->ctrlr_loss_timeout_sec,
		.reconnect_delay_sec = p->reconnect_delay_sec,
		.fast_io_fail_timeout_sec = p->fast_io_fail_timeout_sec,
		.hdgst = p->hdgst,
		.ddgst = p->ddgst,
	};
	memcpy(o.hostnqn, a.hostnqn, sizeof(o.hostnqn));
	snprintf(o.psk, sizeof(o.psk), "%s", p->psk != NULL ? p->psk : ""); /* the keyring has it: it fits */
	bdev_nvme_discovery_start(&o, bdev_nvme_rpc_answer, req);
}

static bool start_has_own_time(const void *params)
{
	return ((const struct start *)params)->attach_timeout_ms != 0;
}
RPC_METHOD("bdev_nvme_start_discovery", rpc_bdev_nvme_start_discovery, struct start, start_params, RPC_RUNTIME,
	   "Keep the controllers attached that a discovery controller lists, and detach those that it does not list "
	   "any more",
	   .defaults = start_defaults, .has_own_time = start_has_own_time, .result = "true")

struct by_name {
	char *name;
};

static const struct rpc_param stop_params[] = {
	RPC_PARAM(struct by_name, name, RPC_STRING, RPC_REQUIRED, "name of the service"), RPC_PARAM_END};

static void rpc_bdev_nvme_stop_discovery(struct rpc_request *req, void *params)
{
	const struct by_name *p = params;
	struct bdev_nvme_discovery *s = bdev_nvme_discovery_find(p->name);

	if (s == NULL) {
		rpc_error(req, -ENODEV, "name: there is no discovery service '%s'", p->name);
		return;
	}
	bdev_nvme_discovery_stop(s, bdev_nvme_rpc_answer, req);
}
RPC_METHOD("bdev_nvme_stop_discovery", rpc_bdev_nvme_stop_discovery, struct by_name, stop_params, RPC_RUNTIME,
	   "Stop a discovery service, and answer when the controllers that it attached are detached", .result = "true")

static void discovery_info_add_source(void *arg, const struct nvme_trid *trid, const struct nvme_ctrlr *ctrlr,
				      bool referral)
{
	json_t *info = arg;

	if (referral) {
		json_t *o = json_object();
		json_object_set_new(o, "trid", bdev_nvme_rpc_trid_json(trid));
		json_object_set_new(o, "state", json_string(nvme_ctrlr_state_name(nvme_ctrlr_state(ctrlr))));
		json_array_append_new(json_object_get(info, "referrals"), o);
		return;
	}
	json_object_set_new(info, "trid", bdev_nvme_rpc_trid_json(trid));
	json_object_set_new(info, "state", json_string(nvme_ctrlr_state_name(nvme_ctrlr_state(ctrlr))));
	json_object_set_new(info, "last_error", rpc_string(nvme_ctrlr_last_error(ctrlr)));
}

static void discovery_info_add_entry(void *arg, const struct nvme_trid *trid, const char *name, const char *state)
{
	json_t *o = json_object();

	json_object_set_new(o, "trid", bdev_nvme_rpc_trid_json(trid));
	json_object_set_new(o, "controller", rpc_string(name));
	json_object_set_new(o, "state", json_string(state));
	json_array_append_new(arg, o);
}

static void rpc_bdev_nvme_get_discovery_info(struct rpc_request *req, void *params)
{
	json_t *list = json_array();

	for (const struct bdev_nvme_discovery *s = NULL; (s = bdev_nvme_discovery_next(s)) != NULL;) {
		json_t *o = json_object(), *entries = json_array();
		json_object_set_new(o, "name", rpc_string(bdev_nvme_discovery_opts(s)->name));
		json_object_set_new(o, "referrals", json_array());
		bdev_nvme_discovery_for_each_source(s, discovery_info_add_source, o);
		bdev_nvme_discovery_for_each_entry(s, discovery_info_add_entry, entries);
		json_object_set_new(o, "entries", entries);
		json_array_append_new(list, o);
	}
	rpc_reply(req, list);
}
RPC_METHOD("bdev_nvme_get_discovery_info", rpc_bdev_nvme_get_discovery_info, struct rpc_no_params, NULL, RPC_RUNTIME,
	   "List the discovery services, their referrals and the controllers that they list",
	   .result = "[{name: string, trid?: " RPC_BDEV_NVME_TRID_SHAPE
		     ", state?: string, last_error?: string|null, referrals: [{trid: " RPC_BDEV_NVME_TRID_SHAPE
		     ", state: string}], entries: [{trid: " RPC_BDEV_NVME_TRID_SHAPE
		     ", controller: string|null, state: string}], ...}]")

void bdev_nvme_rpc_write_discovery(json_t *methods)
{
	for (const struct bdev_nvme_discovery *s = NULL; (s = bdev_nvme_discovery_next(s)) != NULL;) {
		const struct bdev_nvme_discovery_opts *d = bdev_nvme_discovery_opts(s);
		json_t *params = bdev_nvme_rpc_trid_json(&d->trid);
		json_object_del(params, "subnqn");
		json_object_set_new(params, "name", rpc_string(d->name));
		if (d->hostnqn[0] != '\0') {
			json_object_set_new(params, "hostnqn", rpc_string(d->hostnqn));
		}
		json_object_set_new(params, "wait_for_attach", json_boolean(d->wait_for_attach));
		json_object_set_new(params, "attach_timeout_ms", rpc_uint(d->attach_timeout_ms));
		json_object_set_new(params, "ctrlr_loss_timeout_sec", json_integer(d->ctrlr_loss_timeout_sec));
		json_object_set_new(params, "reconnect_delay_sec", rpc_uint(d->reconnect_delay_sec));
		json_object_set_new(params, "fast_io_fail_timeout_sec", rpc_uint(d->fast_io_fail_timeout_sec));
		if (d->hdgst) {
			json_object_set_new(params, "hdgst", json_true());
		}
		if (d->ddgst) {
			json_object_set_new(params, "ddgst", json_true());
		}
		if (d->psk[0] != '\0') {
			json_object_set_new(params, "psk", rpc_string(d->psk));
		}
		rpc_config_add(methods, "bdev_nvme_start_discovery", params);
	}
}

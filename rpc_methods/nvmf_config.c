/* SPDX-License-Identifier: BSD-3-Clause */
/* The saved configuration of nvmf: the calls that rebuild its state. What is being deleted is left out, however long
 * that takes: whoever asked for it does not want it back, and what it needs may be gone before. */
#include <string.h>

#include "bdev/bdev.h"
#include "env_dpdk/env.h"
#include "nvmf/qos.h"
#include "nvmf/transport_options.h"
#include "rpc_methods/bdev_module.h"
#include "rpc_methods/dhchap.h"
#include "rpc_methods/nvmf.h"
#include "rpc_methods/rate.h"
#include "util/log.h"

static json_t *config_add_tgt_name(struct nvmf_tgt *tgt, json_t *params)
{
	if (strcmp(nvmf_tgt_name(tgt), NVMF_DEFAULT_TGT) != 0) {
		json_object_set_new(params, "tgt_name", rpc_string(nvmf_tgt_name(tgt)));
	}
	return params;
}

static json_t *config_subsystem_params(struct nvmf_tgt *tgt, const struct nvmf_subsystem *s)
{
	return config_add_tgt_name(tgt, json_pack("{s:o}", "nqn", rpc_string(nvmf_subsystem_nqn(s))));
}

static void config_write_startup(json_t *methods)
{
	const struct nvmf_config *config = nvmf_config();
	json_t *params = json_object();
	char cores[ENV_CORES_MAX];

	json_object_set_new(params, "discovery_filter", rpc_nvmf_discovery_filter_json(config->discovery_filter));
	if (!config->all_cores) {
		env_cores_format_mask(&config->cores, cores);
		json_object_set_new(params, "poll_groups_mask", json_string(cores));
	}
	if (config->one_ctrlr_per_listener) {
		json_object_set_new(params, "dup_host_policy", json_string("restrict_per_listener"));
	}
	if (config->quiesce_limit_ms != 0) {
		json_object_set_new(params, "quiesce_limit_ms", json_integer(config->quiesce_limit_ms));
	}
	if (config->dhchap_hashes != 0) {
		json_object_set_new(params, "dhchap_digests", rpc_dhchap_digests_json(config->dhchap_hashes));
	}
	if (config->dhchap_groups != 0) {
		json_object_set_new(params, "dhchap_dhgroups", rpc_dhchap_dhgroups_json(config->dhchap_groups));
	}
	rpc_config_add(methods, "nvmf_set_config", params);
	if (config->max_subsystems != 0) {
		rpc_config_add(methods, "nvmf_set_max_subsystems",
			       json_pack("{s:i}", "max_subsystems", (int)config->max_subsystems));
	}
	rpc_config_add(methods, "nvmf_set_crdt",
		       json_pack("{s:i,s:i,s:i}", "crdt1", config->crdt[0], "crdt2", config->crdt[1], "crdt3",
				 config->crdt[2]));
}

static json_t *config_listener_params(struct nvmf_tgt *tgt, const struct nvmf_subsystem *s,
				      const struct nvmf_listener *l)
{
	json_t *params = config_subsystem_params(tgt, s);

	json_object_set_new(params, "listen_address", rpc_nvmf_address_json(nvmf_listener_address(l)));
	return params;
}

/* SPDK's targets refuse the states that only varve has, so those are saved apart. Without "whole", as SPDK's
 * clients ask, only the nearest state that SPDK has is given; with it, the true one is in own_ana_state. */
static void config_add_ana_state(json_t *params, enum nvme_ana_state state)
{
	bool own = state == NVME_ANA_STATE_PERSISTENT_LOSS || state == NVME_ANA_STATE_CHANGE;

	json_object_set_new(params, "ana_state",
			    json_string(nvmf_ana_state_name(own ? NVME_ANA_STATE_INACCESSIBLE : state)));
	if (own && rpc_config_leaves_out(true)) {
		log_limited(LOG_LEVEL_NOTICE,
			    "framework_get_config without \"whole\" gives ANA state %s of %s as inaccessible, because "
			    "SPDK's targets do not have that state; varve-rpc save_config saves the true one",
			    nvmf_ana_state_name(state), json_string_value(json_object_get(params, "nqn")));
	} else if (own) {
		json_object_set_new(params, "own_ana_state", json_string(nvmf_ana_state_name(state)));
	}
}

/* Most ANA groups have the state of the first one: calls follow only for those that differ. */
static void config_write_listener(json_t *methods, struct nvmf_tgt *tgt, const struct nvmf_subsystem *s,
				  const struct nvmf_listener *l)
{
	json_t *params = config_listener_params(tgt, s, l);

	if (nvmf_listener_is_secure(l)) {
		json_object_set_new(params, "secure_channel", json_true());
	}
	if (!nvmf_subsystem_ana_reporting(s)) {
		rpc_config_add(methods, "nvmf_subsystem_add_listener", params);
		return;
	}
	enum nvme_ana_state first = nvmf_listener_ana_state(l, 1);
	config_add_ana_state(params, first);
	rpc_config_add(methods, "nvmf_subsystem_add_listener", params);
	for (uint32_t g = 2; g <= nvmf_subsystem_max_namespaces(s); g++) {
		enum nvme_ana_state state = nvmf_listener_ana_state(l, g);
		if (state == first) {
			continue;
		}
		params = config_listener_params(tgt, s, l);
		config_add_ana_state(params, state);
		json_object_set_new(params, "anagrpid", json_integer(g));
		rpc_config_add(methods, "nvmf_subsystem_listener_set_ana_state", params);
	}
}

static void config_write_listeners(json_t *methods, struct nvmf_tgt *tgt, const struct nvmf_subsystem *s)
{
	for (struct nvmf_listener *l = nvmf_listener_next(s, NULL); l != NULL; l = nvmf_listener_next(s, l)) {
		config_write_listener(methods, tgt, s, l);
	}
}

/* The name of a key that the keyring lacked before the target had a transport with TLS: a start would stop there. */
static void config_leave_out_psk(struct nvmf_tgt *tgt, const struct nvmf_subsystem *s, const char *host, json_t *params)
{
	const char *psk = nvmf_subsystem_host_psk(s, host);

	if (psk != NULL && !nvmf_subsystem_host_psk_counts(s, host) && rpc_nvmf_tgt_has_tls(tgt)) {
		log_warning("psk of host %s of %s is not in the configuration: the keyring lacked it when the host was "
			    "added",
			    host, nvmf_subsystem_nqn(s));
		json_object_del(params, "psk");
	}
}

static void config_write_hosts(json_t *methods, struct nvmf_tgt *tgt, const struct nvmf_subsystem *s)
{
	for (const char *h = nvmf_subsystem_next_host(s, NULL); h != NULL; h = nvmf_subsystem_next_host(s, h)) {
		json_t *params = config_subsystem_params(tgt, s);
		json_object_set_new(params, "host", rpc_string(h));
		rpc_nvmf_add_key_names(params, s, h);
		config_leave_out_psk(tgt, s, h, params);
		rpc_config_add(methods, "nvmf_subsystem_add_host", params);
	}
}

static void config_write_ns_hosts(json_t *methods, struct nvmf_tgt *tgt, const struct nvmf_subsystem *s,
				  const struct nvmf_ns *ns)
{
	for (const char *h = nvmf_ns_next_host(ns, NULL); h != NULL; h = nvmf_ns_next_host(ns, h)) {
		json_t *params = config_subsystem_params(tgt, s);
		json_object_set_new(params, "nsid", json_integer(nvmf_ns_nsid(ns)));
		json_object_set_new(params, "host", rpc_string(h));
		rpc_config_add(methods, "nvmf_ns_add_host", params);
	}
}

static void config_write_namespaces(json_t *methods, struct nvmf_tgt *tgt, const struct nvmf_subsystem *s)
{
	for (struct nvmf_ns *ns = nvmf_ns_next(s, NULL); ns != NULL; ns = nvmf_ns_next(s, ns)) {
		if (nvmf_ns_is_being_removed(ns)) {
			continue;
		}
		const struct bdev *b = bdev_find(nvmf_ns_bdev_name(ns));
		if (b != NULL && !rpc_bdev_is_saved(b)) {
			log_warning("namespace %u of %s is not in the configuration, because bdev %s is not",
				    nvmf_ns_nsid(ns), nvmf_subsystem_nqn(s), bdev_name(b));
			continue;
		}
		json_t *params = config_subsystem_params(tgt, s);
		json_object_set_new(params, "namespace", rpc_nvmf_ns_config_json(ns));
		rpc_config_add(methods, "nvmf_subsystem_add_ns", params);
		config_write_ns_hosts(methods, tgt, s, ns);
	}
}

static void config_write_qos(json_t *methods, struct nvmf_tgt *tgt, const struct nvmf_subsystem *s)
{
	for (const struct nvmf_qos *q = nvmf_qos_next(s, NULL); q != NULL; q = nvmf_qos_next(s, q)) {
		const struct rate_limits *l = nvmf_qos_limits(q);
		json_t *params = config_subsystem_params(tgt, s);
		if (nvmf_qos_host(q) != NULL) {
			json_object_set_new(params, "host", rpc_string(nvmf_qos_host(q)));
		}
		rpc_rate_add(params, l, true);
		if (l->burst_ms != 0) {
			json_object_set_new(params, "burst_ms", json_integer(l->burst_ms));
		}
		if (rate_limits_are_set(nvmf_qos_minimum(q))) {
			rpc_min_rate_add(params, nvmf_qos_minimum(q));
		}
		rpc_config_add(methods, "nvmf_subsystem_set_qos_limit", params);
	}
}

static void config_write_peers(json_t *methods, struct nvmf_tgt *tgt, const struct nvmf_subsystem *s)
{
	for (const struct nvmf_peer *p = nvmf_peer_next(s, NULL); p != NULL; p = nvmf_peer_next(s, p)) {
		json_t *params = config_subsystem_params(tgt, s);
		json_object_set_new(params, "path", rpc_string(nvmf_peer_path(p)));
		json_object_set_new(params, "timeout_ms", json_integer(nvmf_peer_timeout_ms(p)));
		rpc_config_add(methods, "nvmf_subsystem_add_peer", params);
	}
}

static void config_write_subsystem(json_t *methods, struct nvmf_tgt *tgt, const struct nvmf_subsystem *s)
{
	json_t *params = config_subsystem_params(tgt, s);

	json_object_set_new(params, "serial_number", rpc_string(nvmf_subsystem_serial_number(s)));
	json_object_set_new(params, "model_number", rpc_string(nvmf_subsystem_model_number(s)));
	if (nvmf_subsystem_admin_label(s)[0] != 0) {
		json_object_set_new(params, "admin_label", rpc_string(nvmf_subsystem_admin_label(s)));
	}
	json_object_set_new(params, "max_namespaces", json_integer(nvmf_subsystem_max_namespaces(s)));
	json_object_set_new(params, "allow_any_host", json_boolean(nvmf_subsystem_allow_any_host(s)));
	json_object_set_new(params, "ana_reporting", json_boolean(nvmf_subsystem_ana_reporting(s)));
	json_object_set_new(params, "min_cntlid", json_integer(nvmf_subsystem_min_cntlid(s)));
	json_object_set_new(params, "max_cntlid", json_integer(nvmf_subsystem_max_cntlid(s)));
	json_object_set_new(params, "dmrsl", json_integer(nvmf_subsystem_dmrsl(s)));
	json_object_set_new(params, "wzsl", json_integer(nvmf_subsystem_wzsl(s)));
	rpc_config_add(methods, "nvmf_create_subsystem", params);
	config_write_hosts(methods, tgt, s);
	config_write_namespaces(methods, tgt, s);
	config_write_peers(methods, tgt, s); /* before hosts can connect */
	config_write_qos(methods, tgt, s);
	config_write_listeners(methods, tgt, s);
}

/* The discovery subsystem exists by itself, and allows every host. */
static void config_write_discovery(json_t *methods, struct nvmf_tgt *tgt, const struct nvmf_subsystem *s)
{
	if (!nvmf_subsystem_allow_any_host(s)) {
		json_t *params = config_subsystem_params(tgt, s);
		json_object_set_new(params, "allow_any_host", json_false());
		rpc_config_add(methods, "nvmf_subsystem_allow_any_host", params);
	}
	config_write_hosts(methods, tgt, s);
	config_write_listeners(methods, tgt, s);
}

static void config_write_referrals(json_t *methods, struct nvmf_tgt *tgt)
{
	const struct nvmf_referral *r;

	for (r = nvmf_referral_next(tgt, NULL); r != NULL; r = nvmf_referral_next(tgt, r)) {
		json_t *params = config_add_tgt_name(tgt, json_object());
		json_object_set_new(params, "address", rpc_nvmf_address_json(&r->address));
		json_object_set_new(params, "subnqn", rpc_string(r->subnqn));
		json_object_set_new(params, "secure_channel", json_boolean(r->secure_channel));
		rpc_config_add(methods, "nvmf_discovery_add_referral", params);
	}
}

/* As nvmf_get_transports answers it, without options that are to be left out. */
static json_t *config_transport_json(const struct nvmf_transport *t)
{
	const char *name = nvmf_transport_name(t);
	const struct nvmf_transport_option *option;
	json_t *o = rpc_nvmf_transport_json(t);
	struct nvmf_transport_opts usual;

	if (nvmf_transport_opts_init(name, &usual) != 0) {
		return o;
	}
	for (unsigned n = 0; (option = nvmf_transport_option(name, n)) != NULL; n++) {
		int64_t value = nvmf_transport_option_get(nvmf_transport_get_opts(t), option);
		if (option->own && rpc_config_leaves_out(value == nvmf_transport_option_get(&usual, option))) {
			json_object_del(o, option->name);
		}
	}
	return o;
}

static void config_write_tgt(json_t *methods, struct nvmf_tgt *tgt)
{
	char why[NVMF_ERROR_MAX];

	if (nvmf_tgt_check_open(tgt, why) != 0) {
		return;
	}
	if (strcmp(nvmf_tgt_name(tgt), NVMF_DEFAULT_TGT) != 0) {
		json_t *params = json_pack("{s:o,s:i}", "name", rpc_string(nvmf_tgt_name(tgt)), "max_subsystems",
					   (int)nvmf_tgt_max_subsystems(tgt));
		json_object_set_new(params, "discovery_filter",
				    rpc_nvmf_discovery_filter_json(nvmf_tgt_discovery_filter(tgt)));
		if (nvmf_tgt_one_ctrlr_per_listener(tgt)) {
			json_object_set_new(params, "dup_host_policy", json_string("restrict_per_listener"));
		}
		rpc_config_add(methods, "nvmf_create_target", params);
	}
	for (struct nvmf_transport *t = nvmf_transport_next(tgt, NULL); t != NULL; t = nvmf_transport_next(tgt, t)) {
		rpc_config_add(methods, "nvmf_create_transport", config_add_tgt_name(tgt, config_transport_json(t)));
	}
	for (struct nvmf_subsystem *s = nvmf_subsystem_next(tgt, NULL); s != NULL; s = nvmf_subsystem_next(tgt, s)) {
		if (nvmf_subsystem_check_open(s, why) != 0) {
			continue;
		}
		if (nvmf_subsystem_subtype(s) == NVMF_SUBTYPE_NVME) {
			config_write_subsystem(methods, tgt, s);
		} else {
			config_write_discovery(methods, tgt, s);
		}
	}
	config_write_referrals(methods, tgt);
}

static void rpc_nvmf_write_config(json_t *methods)
{
	config_write_startup(methods);
	for (struct nvmf_tgt *tgt = nvmf_tgt_next(NULL); tgt != NULL; tgt = nvmf_tgt_next(tgt)) {
		config_write_tgt(methods, tgt);
	}
}

static struct rpc_config nvmf_rpc_config = {.name = "nvmf", .after = "bdev", .write = rpc_nvmf_write_config};

__attribute__((constructor)) static void rpc_nvmf_register_config(void)
{
	rpc_config_register(&nvmf_rpc_config);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Subsystems, and the hosts that may connect to them. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bdev/bdev.h"
#include "keyring/keyring.h"
#include "nvmf/resv.h"
#include "rpc/refusal.h"
#include "rpc_methods/nvmf.h"
#include "thread/thread.h"
#include "util/log.h"

/* ---- Making and removing ---- */

struct create_subsystem {
	struct rpc_nvmf_where where;
	char *serial_number, *model_number, *admin_label;
	uint32_t max_namespaces;
	bool allow_any_host, ana_reporting;
	uint16_t min_cntlid, max_cntlid; /* 1 and the highest unless they are given */
	uint32_t dmrsl;
	uint8_t wzsl;
	/* While it is started, and taken away if that fails. */
	struct rpc_request *req;
	struct nvmf_subsystem *subsystem;
	int start_rc;
};

static const struct rpc_param create_subsystem_params[] = {
	RPC_NVMF_WHERE_PARAMS(struct create_subsystem),
	RPC_PARAM(struct create_subsystem, serial_number, RPC_STRING, RPC_OPTIONAL, "up to 20 ASCII characters"),
	RPC_PARAM(struct create_subsystem, model_number, RPC_STRING, RPC_OPTIONAL, "up to 40 ASCII characters"),
	RPC_PARAM(struct create_subsystem, max_namespaces, RPC_UINT32, RPC_OPTIONAL,
		  "also the highest nsid; by default 32"),
	RPC_PARAM(struct create_subsystem, allow_any_host, RPC_BOOL, RPC_OPTIONAL, "let every host connect"),
	RPC_PARAM(struct create_subsystem, ana_reporting, RPC_BOOL, RPC_OPTIONAL,
		  "tell hosts the state of each ANA group through each listener"),
	RPC_PARAM(struct create_subsystem, min_cntlid, RPC_UINT16, RPC_OPTIONAL,
		  "lowest controller id, at least 1, which is the default"),
	RPC_PARAM(struct create_subsystem, max_cntlid, RPC_UINT16, RPC_OPTIONAL,
		  "highest controller id, at most 65519, which is the default"),
	RPC_ONLY(passthrough, RPC_BOOL, "false",
		 "commands are passed on as nvmf_subsystem_add_ns says of each namespace"),
	RPC_ONLY(enable_nssr, RPC_BOOL, "false", "there is no NVM subsystem reset"),
	RPC_PARAM(
		struct create_subsystem, dmrsl, RPC_UINT32, RPC_OPTIONAL,
		"blocks that one range of a deallocation may have: hosts are told (DMRSL), more is refused; by default "
		"0, no limit"),
	RPC_PARAM(struct create_subsystem, wzsl, RPC_UINT8, RPC_OPTIONAL,
		  "one Write Zeroes may have 4096 << wzsl bytes: hosts are told (WZSL), more is refused; by default 0, "
		  "no "
		  "limit"),
	RPC_ONLY(max_discard_size_kib, RPC_UINT64, "0", "dmrsl is the limit of deallocations"),
	RPC_ONLY(max_write_zeroes_size_kib, RPC_UINT64, "0", "wzsl is the limit of Write Zeroes"),
	RPC_PARAM(struct create_subsystem, admin_label, RPC_STRING, RPC_OPTIONAL,
		  "what administrators call it: shown and saved, hosts do not see it; printable ASCII, up to 255 "
		  "characters"),
	RPC_PARAM_END,
};

static void create_subsystem_defaults(void *params)
{
	struct create_subsystem *p = params;

	p->min_cntlid = 1;
	p->max_cntlid = NVME_CNTLID_MAX;
}

/* Answers with what is wrong with the options. Clients look for the first words of an error. */
static void subsystem_refuse(struct rpc_request *req, const char *words, const char *why)
{
	rpc_error(req, RPC_ERROR_INVALID_PARAMS, "%s%sparameter %s", words, words[0] != 0 ? ": " : "", why);
}

static bool subsystem_check_cntlids(struct rpc_request *req, const struct create_subsystem *p)
{
	if (p->min_cntlid >= 1 && p->min_cntlid <= p->max_cntlid && p->max_cntlid <= NVME_CNTLID_MAX) {
		return true;
	}
	rpc_error(
		req, RPC_ERROR_INVALID_PARAMS,
		"Invalid cntlid range [%u-%u]: parameter \"min_cntlid\" is %u and \"max_cntlid\" %u: allowed are 1 to "
		"%u, the smaller first",
		p->min_cntlid, p->max_cntlid, p->min_cntlid, p->max_cntlid, NVME_CNTLID_MAX);
	return false;
}

static bool subsystem_check_opts(struct rpc_request *req, const char *nqn, const struct nvmf_subsystem_opts *opts)
{
	char why[NVMF_ERROR_MAX];

	if (nvmf_subsystem_opts_check(nqn, opts, why) == 0) {
		return true;
	}
	subsystem_refuse(req,
			 strncmp(why, "\"serial_number\"", 15) == 0  ? "Invalid SN"
			 : strncmp(why, "\"model_number\"", 14) == 0 ? "Invalid MN"
			 : strncmp(why, "\"admin_label\"", 13) == 0  ? "Invalid admin_label"
								     : "",
			 why);
	return false;
}

static void subsystem_answer_not_started(void *arg, int status)
{
	const struct create_subsystem *p = arg;

	rpc_error(p->req, p->start_rc, "subsystem %s cannot be started, so it has not been made: %s", p->where.nqn,
		  strerror(-p->start_rc));
}

/* A subsystem that cannot be started is taken away again: a create that fails leaves nothing. */
static void subsystem_answer_started(void *arg, int status)
{
	struct create_subsystem *p = arg;

	if (status == 0) {
		rpc_reply_true(p->req);
		return;
	}
	p->start_rc = status;
	nvmf_subsystem_destroy(p->subsystem, subsystem_answer_not_started, p);
}

static void subsystem_answer_not_made(struct rpc_request *req, struct nvmf_tgt *tgt, const char *nqn, int rc)
{
	const struct nvmf_subsystem *other = rc == -EEXIST ? nvmf_subsystem_find(tgt, nqn) : NULL;
	char why[NVMF_ERROR_MAX];

	if (other != NULL && nvmf_subsystem_check_open(other, why) != 0) {
		rpc_error(req, rc, "subsystem %s cannot be made yet: %s", nqn, why);
	} else {
		rpc_error(req, rc, "subsystem %s cannot be made: %s", nqn,
			  rc == -EEXIST ? "there is one of that name" : strerror(-rc));
	}
}

static void rpc_create_subsystem(struct rpc_request *req, void *params)
{
	struct create_subsystem *p = params;
	const struct nvmf_subsystem_opts opts = {
		.serial_number = p->serial_number,
		.model_number = p->model_number,
		.admin_label = p->admin_label,
		.max_namespaces = p->max_namespaces,
		.allow_any_host = p->allow_any_host,
		.ana_reporting = p->ana_reporting,
		.min_cntlid = p->min_cntlid,
		.max_cntlid = p->max_cntlid,
		.dmrsl = p->dmrsl,
		.wzsl = p->wzsl,
	};
	struct nvmf_tgt *tgt = rpc_nvmf_tgt_to_change(req, p->where.tgt_name);
	struct nvmf_subsystem *s;

	if (tgt == NULL || !subsystem_check_cntlids(req, p) || !subsystem_check_opts(req, p->where.nqn, &opts)) {
		return;
	}
	int rc = nvmf_subsystem_create(tgt, p->where.nqn, &opts, &s);
	if (rc != 0) {
		subsystem_answer_not_made(req, tgt, p->where.nqn, rc);
		return;
	}
	p->req = req;
	p->subsystem = s;
	nvmf_subsystem_start(s, subsystem_answer_started, p);
}
RPC_METHOD("nvmf_create_subsystem", rpc_create_subsystem, struct create_subsystem, create_subsystem_params, RPC_RUNTIME,
	   "Make an NVM subsystem", .defaults = create_subsystem_defaults, .result = "true")

struct subsystem_only {
	struct rpc_nvmf_where where;
};

static const struct rpc_param subsystem_only_params[] = {
	RPC_NVMF_WHERE_PARAMS(struct subsystem_only),
	RPC_PARAM_END,
};

/* A deletion of the discovery subsystem: it is answered when the hosts of all its listeners have gone. */
struct empty_discovery {
	struct rpc_request *req;
	unsigned left;
	int rc;
};

static void discovery_listener_gone(void *arg, int status)
{
	struct empty_discovery *e = arg;

	e->rc = status != 0 && status != -ENOENT ? status : e->rc;
	if (--e->left == 0) {
		rpc_nvmf_answer(e->req, e->rc);
		free(e);
	}
}

/* Clients that delete everything delete this one too, and give up if that is an error. The target needs it: hosts find
 * the other subsystems there, also those that are made later. So what was added to it goes, and it stays. */
static void discovery_empty(struct rpc_request *req, struct nvmf_subsystem *s)
{
	struct empty_discovery *e = calloc(1, sizeof(*e));
	const struct nvmf_listener *l, *before = NULL;

	if (e == NULL) {
		rpc_error(req, -ENOMEM, "out of memory");
		return;
	}
	*e = (struct empty_discovery){.req = req, .left = 1};
	while ((l = nvmf_listener_next(s, NULL)) != NULL && l != before) {
		const struct nvmf_address address = *nvmf_listener_address(l);
		before = l;
		e->left++;
		nvmf_subsystem_remove_listener(s, &address, discovery_listener_gone, e);
	}
	log_notice(
		"%s: its listeners have been removed; the subsystem itself stays, because hosts find all others there",
		nvmf_subsystem_nqn(s));
	discovery_listener_gone(e, 0);
}

static void rpc_delete_subsystem(struct rpc_request *req, void *params)
{
	const struct subsystem_only *p = params;
	struct nvmf_subsystem *s = rpc_nvmf_subsystem(req, p->where.tgt_name, p->where.nqn);
	char why[NVMF_ERROR_MAX];

	if (s != NULL && nvmf_subsystem_subtype(s) == NVMF_SUBTYPE_DISCOVERY) {
		discovery_empty(req, s);
	} else if (s != NULL && nvmf_subsystem_check_open(s, why) != 0) {
		rpc_error(req, -EALREADY, "%s", why);
	} else if (s != NULL) {
		nvmf_subsystem_destroy(s, rpc_nvmf_answer, req);
	}
}
RPC_METHOD("nvmf_delete_subsystem", rpc_delete_subsystem, struct subsystem_only, subsystem_only_params, RPC_RUNTIME,
	   "Disconnect a subsystem's hosts and remove it; of the discovery subsystem only its listeners are removed",
	   .result = "true", .waits_for = rpc_nvmf_subsystem_waits_for)

/* ---- Listing ---- */

static json_t *ns_hex_json(const uint8_t *bytes, size_t len)
{
	static const char digits[] = "0123456789ABCDEF";
	char text[33];

	for (size_t i = 0; i < len; i++) {
		text[2 * i] = digits[bytes[i] >> 4];
		text[2 * i + 1] = digits[bytes[i] & 0xf];
	}
	text[2 * len] = 0;
	return json_string(text);
}

static bool ns_name_is_set(const uint8_t *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (bytes[i] != 0) {
			return true;
		}
	}
	return false;
}

static json_t *ns_hosts_json(const struct nvmf_ns *ns)
{
	json_t *list = json_array();

	for (const char *h = nvmf_ns_next_host(ns, NULL); h != NULL; h = nvmf_ns_next_host(ns, h)) {
		json_array_append_new(list, json_pack("{s:o}", "nqn", rpc_string(h)));
	}
	return list;
}

/* Adds the opcodes that hosts may pass through, if there are any. */
static void ns_add_opcodes(json_t *o, const char *name, const struct nvmf_passthru *p, bool admin)
{
	json_t *list = json_array();

	for (int opcode = NVMF_VENDOR_IO; opcode <= UINT8_MAX; opcode++) {
		if (nvmf_passthru_has(p, (uint8_t)opcode, admin)) {
			json_array_append_new(list, json_integer(opcode));
		}
	}
	if (json_array_size(list) != 0) {
		json_object_set(o, name, list);
	}
	json_decref(list);
}

static void ns_add_names(json_t *o, const struct nvmf_ns *ns)
{
	const struct nvmf_ns_opts *opts = nvmf_ns_get_opts(ns);
	char uuid[BDEV_UUID_STRLEN];

	bdev_uuid_format(opts->uuid, uuid);
	json_object_set_new(o, "nguid", ns_hex_json(opts->nguid, sizeof(opts->nguid)));
	if (ns_name_is_set(opts->eui64, sizeof(opts->eui64))) {
		json_object_set_new(o, "eui64", ns_hex_json(opts->eui64, sizeof(opts->eui64)));
	}
	json_object_set_new(o, "uuid", json_string(uuid));
	json_object_set_new(o, "anagrpid", json_integer(opts->anagrpid));
	json_object_set_new(o, "no_auto_visible", json_boolean(opts->no_auto_visible));
	if (opts->hide_metadata) {
		json_object_set_new(o, "hide_metadata", json_true());
	}
	if (opts->ptpl_file != NULL) {
		json_object_set_new(o, "ptpl_file", rpc_string(opts->ptpl_file));
	}
	ns_add_opcodes(o, "passthru_io", &opts->passthru, false);
	ns_add_opcodes(o, "passthru_admin", &opts->passthru, true);
}

json_t *rpc_nvmf_ns_config_json(const struct nvmf_ns *ns)
{
	json_t *o = json_object();

	json_object_set_new(o, "nsid", json_integer(nvmf_ns_nsid(ns)));
	json_object_set_new(o, "bdev_name", rpc_string(nvmf_ns_bdev_name(ns)));
	ns_add_names(o, ns);
	return o;
}

static json_t *reservation_registrants_json(const struct nvmf_resv *r)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < r->num_registrants; i++) {
		json_t *o = json_object();
		json_object_set_new(o, "hostid", ns_hex_json(r->registrants[i].hostid, NVMF_HOSTID_SIZE));
		json_object_set_new(o, "key", rpc_hex(r->registrants[i].key));
		json_object_set_new(o, "holder", json_boolean(nvmf_resv_holds(r, i)));
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *reservation_json(const struct nvmf_resv *r)
{
	static const char *const types[] = {
		[0] = "none",
		[NVME_RESERVATION_RTYPE_WE] = "write_exclusive",
		[NVME_RESERVATION_RTYPE_EA] = "exclusive_access",
		[NVME_RESERVATION_RTYPE_WERO] = "write_exclusive_registrants_only",
		[NVME_RESERVATION_RTYPE_EARO] = "exclusive_access_registrants_only",
		[NVME_RESERVATION_RTYPE_WEAR] = "write_exclusive_all_registrants",
		[NVME_RESERVATION_RTYPE_EAAR] = "exclusive_access_all_registrants",
	};
	json_t *o = json_pack("{s:s}", "type", types[r->type]);

	json_object_set_new(o, "generation", json_integer(r->generation));
	json_object_set_new(o, "persistent", json_boolean(r->ptpl));
	json_object_set_new(o, "registrants", reservation_registrants_json(r));
	return o;
}

static json_t *subsystem_ns_json(const struct nvmf_ns *ns)
{
	json_t *o = json_object();

	json_object_set_new(o, "nsid", json_integer(nvmf_ns_nsid(ns)));
	json_object_set_new(o, "bdev_name", rpc_string(nvmf_ns_bdev_name(ns)));
	json_object_set_new(o, "name", rpc_string(nvmf_ns_bdev_name(ns)));
	ns_add_names(o, ns);
	if (nvmf_ns_get_opts(ns)->no_auto_visible) {
		json_object_set_new(o, "hosts", ns_hosts_json(ns));
	}
	const struct nvmf_resv *resv = nvmf_ns_resv_state(ns);
	if (resv->num_registrants != 0) {
		json_object_set_new(o, "reservation", reservation_json(resv));
	}
	return o;
}

static json_t *subsystem_listeners_json(const struct nvmf_subsystem *s)
{
	json_t *list = json_array();

	for (struct nvmf_listener *l = nvmf_listener_next(s, NULL); l != NULL; l = nvmf_listener_next(s, l)) {
		json_array_append_new(list, rpc_nvmf_address_json(nvmf_listener_address(l)));
	}
	return list;
}

void rpc_nvmf_add_key_names(json_t *o, const struct nvmf_subsystem *s, const char *hostnqn)
{
	const char *key = nvmf_subsystem_host_key(s, hostnqn, false),
		   *ctrlr_key = nvmf_subsystem_host_key(s, hostnqn, true), *psk = nvmf_subsystem_host_psk(s, hostnqn);

	if (key != NULL) {
		json_object_set_new(o, "dhchap_key", rpc_string(key));
	}
	if (ctrlr_key != NULL) {
		json_object_set_new(o, "dhchap_ctrlr_key", rpc_string(ctrlr_key));
	}
	if (psk != NULL) {
		json_object_set_new(o, "psk", rpc_string(psk));
	}
	if (nvmf_subsystem_psk_compat(s, hostnqn)) {
		json_object_set_new(o, "psk_compat", json_true());
	}
}

static json_t *subsystem_hosts_json(const struct nvmf_subsystem *s)
{
	json_t *list = json_array();

	for (const char *h = nvmf_subsystem_next_host(s, NULL); h != NULL; h = nvmf_subsystem_next_host(s, h)) {
		json_t *o = json_pack("{s:o}", "nqn", rpc_string(h));
		rpc_nvmf_add_key_names(o, s, h);
		json_array_append_new(list, o);
	}
	return list;
}

static void subsystem_add_nvme_fields(json_t *o, const struct nvmf_subsystem *s)
{
	json_t *namespaces = json_array();

	json_object_set_new(o, "serial_number", rpc_string(nvmf_subsystem_serial_number(s)));
	json_object_set_new(o, "model_number", rpc_string(nvmf_subsystem_model_number(s)));
	if (nvmf_subsystem_admin_label(s)[0] != 0) {
		json_object_set_new(o, "admin_label", rpc_string(nvmf_subsystem_admin_label(s)));
	}
	json_object_set_new(o, "max_namespaces", json_integer(nvmf_subsystem_max_namespaces(s)));
	json_object_set_new(o, "passthrough", json_false()); /* of all commands: there is no such thing */
	json_object_set_new(o, "min_cntlid", json_integer(nvmf_subsystem_min_cntlid(s)));
	json_object_set_new(o, "max_cntlid", json_integer(nvmf_subsystem_max_cntlid(s)));
	json_object_set_new(o, "dmrsl", json_integer(nvmf_subsystem_dmrsl(s)));
	json_object_set_new(o, "wzsl", json_integer(nvmf_subsystem_wzsl(s)));
	json_object_set_new(o, "ana_reporting", json_boolean(nvmf_subsystem_ana_reporting(s)));
	for (struct nvmf_ns *ns = nvmf_ns_next(s, NULL); ns != NULL; ns = nvmf_ns_next(s, ns)) {
		json_array_append_new(namespaces, subsystem_ns_json(ns));
	}
	json_object_set_new(o, "namespaces", namespaces);
	if (nvmf_peer_next(s, NULL) != NULL) {
		json_object_set_new(o, "peers", rpc_nvmf_peers_json(s));
	}
}

/* Adds the changes that have not ended, if there are any. */
static void subsystem_add_changes(json_t *o, const struct nvmf_subsystem *s)
{
	json_t *list = json_array();
	struct nvmf_change_info info;

	for (unsigned n = 0; nvmf_subsystem_get_change(s, n, &info); n++) {
		json_t *change = json_object();
		json_object_set_new(change, "change", rpc_string(info.what));
		json_object_set_new(change, "begun", json_boolean(info.begun));
		json_object_set_new(change, "age_us", rpc_nvmf_since_us(info.queued_ticks));
		json_object_set_new(change, "waits_for", rpc_string(info.waits_for));
		json_array_append_new(list, change);
	}
	if (json_array_size(list) != 0) {
		json_object_set(o, "changes", list);
	}
	json_decref(list);
}

static json_t *subsystem_json(const struct nvmf_subsystem *s)
{
	bool discovery = nvmf_subsystem_subtype(s) == NVMF_SUBTYPE_DISCOVERY;
	json_t *o = json_object();

	json_object_set_new(o, "nqn", rpc_string(nvmf_subsystem_nqn(s)));
	json_object_set_new(o, "subtype", json_string(discovery ? "Discovery" : "NVMe"));
	json_object_set_new(o, "listen_addresses", subsystem_listeners_json(s));
	json_object_set_new(o, "allow_any_host", json_boolean(nvmf_subsystem_allow_any_host(s)));
	json_object_set_new(o, "hosts", subsystem_hosts_json(s));
	json_object_set_new(o, "state", rpc_nvmf_lower(nvmf_subsystem_state_name(nvmf_subsystem_get_state(s))));
	json_object_set_new(o, "state_us", rpc_nvmf_since_us(nvmf_subsystem_state_ticks(s)));
	if (!discovery) {
		subsystem_add_nvme_fields(o, s);
	}
	subsystem_add_changes(o, s);
	return o;
}

struct get_subsystems {
	char *nqn, *tgt_name;
};

static const struct rpc_param get_subsystems_params[] = {
	RPC_PARAM(struct get_subsystems, nqn, RPC_STRING, RPC_OPTIONAL, "only this one"),
	RPC_PARAM(struct get_subsystems, tgt_name, RPC_STRING, RPC_OPTIONAL,
		  "name of the target; the default one if not given"),
	RPC_PARAM_END,
};

static void rpc_get_subsystems(struct rpc_request *req, void *params)
{
	const struct get_subsystems *p = params;
	struct nvmf_tgt *tgt = rpc_nvmf_tgt(req, p->tgt_name);
	json_t *list;

	if (tgt == NULL) {
		return;
	}
	if (p->nqn != NULL && nvmf_subsystem_find(tgt, p->nqn) == NULL) {
		/* Clients expect this code here; other methods answer another one. */
		rpc_error(req, -ENODEV, "parameter \"nqn\" is \"%s\": there is no such subsystem", p->nqn);
		return;
	}
	list = json_array();
	for (struct nvmf_subsystem *s = nvmf_subsystem_next(tgt, NULL); s != NULL; s = nvmf_subsystem_next(tgt, s)) {
		if (p->nqn == NULL || strcmp(p->nqn, nvmf_subsystem_nqn(s)) == 0) {
			json_array_append_new(list, subsystem_json(s));
		}
	}
	rpc_reply(req, list);
}
RPC_METHOD("nvmf_get_subsystems", rpc_get_subsystems, struct get_subsystems, get_subsystems_params, RPC_RUNTIME,
	   "List subsystems with their listeners, hosts and namespaces; the discovery subsystem comes first",
	   .result = "[{nqn: string, subtype: string, listen_addresses: [" RPC_NVMF_ADDRESS_SHAPE
		     "], allow_any_host: bool, hosts: [{nqn: string, ...}], state: string, state_us: int, "
		     "serial_number?: string, model_number?: string, admin_label?: string, max_namespaces?: int, "
		     "passthrough?: bool, "
		     "min_cntlid?: int, "
		     "max_cntlid?: int, dmrsl?: int, wzsl?: int, ana_reporting?: bool, namespaces?: [{nsid: int, "
		     "bdev_name: string, "
		     "name: string, nguid: string, eui64?: string, uuid: string, anagrpid: int, ...}], "
		     "changes?: [{change: string, begun: bool, age_us: int, waits_for: string}], "
		     "peers?: [{path: string, timeout_ms: int, ended: int, unknown: int, failed: int}], ...}]")

/* ---- Hosts ---- */

struct host_params {
	struct rpc_nvmf_where where;
	char *host;
	uint64_t timeout_ms;
};

struct keyed_host_params {
	struct rpc_nvmf_where where;
	char *host, *dhchap_key, *dhchap_ctrlr_key, *psk;
	bool psk_compat, psk_compat_given;
};

#define KEYED_HOST_PARAMS                                                                                              \
	RPC_NVMF_WHERE_PARAMS(struct keyed_host_params),                                                               \
		RPC_PARAM(struct keyed_host_params, host, RPC_STRING, RPC_REQUIRED, "NQN of the host"),                \
		RPC_PARAM(struct keyed_host_params, dhchap_key, RPC_STRING, RPC_OPTIONAL,                              \
			  "name of a key of the keyring: the host has to prove that it has it"),                       \
		RPC_PARAM(struct keyed_host_params, dhchap_ctrlr_key, RPC_STRING, RPC_OPTIONAL,                        \
			  "name of a key of the keyring: proves to the host who the subsystem is")
#define PSK_COMPAT_PARAM(default_)                                                                                     \
	RPC_PARAM(struct keyed_host_params, psk_compat, RPC_BOOL, RPC_OPTIONAL,                                        \
		  "whether the host derives from its psk as libnvme did before its release 1.16, and nvme-cli does "   \
		  "with --compat (default " default_ ")",                                                              \
		  .own = true, .given_offset = offsetof(struct keyed_host_params, psk_compat_given))

static const struct rpc_param set_keys_params[] = {
	KEYED_HOST_PARAMS,
	RPC_PARAM(struct keyed_host_params, psk, RPC_STRING, RPC_OPTIONAL,
		  "name of a TLS key of the keyring: the host's next connections need it, those that it has go on; by "
		  "default as it was; given without dhchap_key, it leaves those of DH-HMAC-CHAP as they are"),
	PSK_COMPAT_PARAM("as it was; given alone, it leaves all keys as they are"),
	RPC_PARAM_END,
};

static const struct rpc_param add_host_params[] = {
	KEYED_HOST_PARAMS,
	RPC_PARAM(struct keyed_host_params, psk, RPC_STRING, RPC_OPTIONAL,
		  "name of a TLS key of the keyring, by which the host connects where secure_channel is true"),
	PSK_COMPAT_PARAM("false"),
	RPC_PARAM_END,
};

#define REMOVE_HOST_TIMEOUT_MAX_MS 86400000

static const struct rpc_param remove_host_params[] = {
	RPC_NVMF_WHERE_PARAMS(struct host_params),
	RPC_PARAM(struct host_params, host, RPC_STRING, RPC_REQUIRED, "NQN of the host"),
	RPC_PARAM(struct host_params, timeout_ms, RPC_UINT64, RPC_OPTIONAL,
		  "how long the host's connections may take to end: then the call fails, and the removal goes on; by "
		  "default 0, no limit of its own",
		  .max = REMOVE_HOST_TIMEOUT_MAX_MS),
	RPC_PARAM_END,
};

static bool subsystem_has_host(const struct nvmf_subsystem *s, const char *hostnqn)
{
	const char *h = NULL;

	while ((h = nvmf_subsystem_next_host(s, h)) != NULL && strcmp(h, hostnqn) != 0) {
	}
	return h != NULL;
}

bool rpc_nvmf_tgt_has_tls(struct nvmf_tgt *tgt)
{
	const struct nvmf_transport *t = NULL;

	while ((t = nvmf_transport_next(tgt, t)) != NULL && !nvmf_transport_has_tls(t)) {
	}
	return t != NULL;
}

/* Clients of RDMA targets give keys that the keyring does not have: nothing can ask for them there, and their names are
 * kept. If a transport with TLS comes later, the host has no key, and is not let in. */
static bool host_psk_counts(struct nvmf_subsystem *s, const char *name)
{
	const char *why;
	struct keyring_key *key = name != NULL ? keyring_get_kind(name, KEYRING_PSK, &why) : NULL;

	if (name == NULL || key != NULL || rpc_nvmf_tgt_has_tls(nvmf_subsystem_tgt(s))) {
		keyring_put(key);
		return true;
	}
	log_notice("nvmf_subsystem_add_host: parameter \"psk\": taken, no effect: no transport of the target has TLS, "
		   "and: %s",
		   why); /* without its value, which may be the key itself */
	return false;
}

#define NAME_WORD_MAX 39 /* letters and digits in a row in the name of a key; 32 bytes in base64 are 43 */

/* A key itself, in place of its name, must not come into answers and files, in whatever form: kept is only what looks
 * like a name. */
static bool psk_is_a_name(const char *psk)
{
	size_t len = strlen(psk), word = 0;

	if (len == 0 || len >= KEYRING_NAME_MAX || rpc_value_may_be_key(psk)) {
		return false;
	}
	for (size_t i = 0; i < len; i++) {
		bool separates = strchr("._-", psk[i]) != NULL;
		word = separates ? 0 : word + 1;
		if (word > NAME_WORD_MAX || !(separates || (isascii(psk[i]) && isalnum((unsigned char)psk[i])))) {
			return false;
		}
	}
	return true;
}

static void rpc_add_host(struct rpc_request *req, void *params)
{
	const struct keyed_host_params *p = params;
	struct nvmf_subsystem *s = rpc_nvmf_subsystem_to_change(req, p->where.tgt_name, p->where.nqn);
	char why[NVMF_ERROR_MAX];

	if (s == NULL) {
		return;
	}
	bool counts = host_psk_counts(s, p->psk);
	int rc = nvmf_subsystem_add_host_psk(s, p->host, p->dhchap_key, p->dhchap_ctrlr_key, counts ? p->psk : NULL,
					     why);
	if (rc != 0) {
		rpc_error(req, rc == -EINVAL ? RPC_ERROR_INVALID_PARAMS : rc, "%s", why);
		return;
	}
	(void)nvmf_subsystem_set_psk_compat(s, p->host, p->psk_compat); /* it is there, and open */
	if (!counts && psk_is_a_name(p->psk) && nvmf_subsystem_keep_psk_name(s, p->host, p->psk) != 0) {
		log_warning("host %s of %s: no memory for the name of its psk, which is not saved", p->host,
			    p->where.nqn);
	}
	rpc_reply_true(req);
}
RPC_METHOD("nvmf_subsystem_add_host", rpc_add_host, struct keyed_host_params, add_host_params, RPC_RUNTIME,
	   "Let a host connect to a subsystem", .result = "true")

static void rpc_set_keys(struct rpc_request *req, void *params)
{
	const struct keyed_host_params *p = params;
	struct nvmf_subsystem *s = rpc_nvmf_subsystem_to_change(req, p->where.tgt_name, p->where.nqn);
	char why[NVMF_ERROR_MAX];

	if (s == NULL) {
		return;
	}
	bool compat_alone =
		p->psk_compat_given && p->dhchap_key == NULL && p->dhchap_ctrlr_key == NULL && p->psk == NULL;
	int rc = compat_alone && subsystem_has_host(s, p->host)
			 ? 0
			 : nvmf_subsystem_set_keys_psk(s, p->host, p->dhchap_key, p->dhchap_ctrlr_key, p->psk, why);
	if (rc == 0 && p->psk_compat_given) {
		rc = nvmf_subsystem_set_psk_compat(s, p->host, p->psk_compat);
		snprintf(why, sizeof(why), "the subsystem is being deleted"); /* or no error */
	}
	if (rc == 0) {
		rpc_reply_true(req);
	} else {
		rpc_error(req, rc, "%s", why);
	}
}
RPC_METHOD("nvmf_subsystem_set_keys", rpc_set_keys, struct keyed_host_params, set_keys_params, RPC_RUNTIME,
	   "Give a host other keys, or none; they count from its next authentication on", .result = "true")

/* A removal outlasts its call, which is answered when its time is over. */
struct host_removal {
	struct rpc_request *req; /* NULL: answered */
	struct thread_timer timer;
	uint64_t timeout_ms;
};

static void host_removal_ended(void *arg, int status)
{
	struct host_removal *r = arg;

	thread_timer_stop(&r->timer);
	if (r->req != NULL) {
		rpc_nvmf_answer(r->req, status);
	}
	free(r);
}

static void host_removal_took_too_long(void *arg)
{
	struct host_removal *r = arg;
	struct rpc_request *req = r->req;

	r->req = NULL;
	rpc_error(req, -ETIMEDOUT,
		  "Timeout reached during host removal: not all of its connections have ended within %" PRIu64
		  " ms (timeout_ms); it may not connect any more, and they go on ending",
		  r->timeout_ms);
}

static void host_remove(struct rpc_request *req, struct nvmf_subsystem *s, const struct host_params *p)
{
	struct host_removal *r = calloc(1, sizeof(*r));

	if (r == NULL) {
		rpc_error(req, -ENOMEM, "out of memory");
		return;
	}
	*r = (struct host_removal){.req = req, .timeout_ms = p->timeout_ms};
	r->timer.fn = host_removal_took_too_long;
	r->timer.arg = r;
	if (p->timeout_ms != 0) {
		thread_timer_start(&r->timer, p->timeout_ms * 1000);
	}
	nvmf_subsystem_remove_host(s, p->host, host_removal_ended, r);
}

static bool remove_host_has_own_time(const void *params)
{
	return ((const struct host_params *)params)->timeout_ms != 0;
}

static void rpc_remove_host(struct rpc_request *req, void *params)
{
	const struct host_params *p = params;
	struct nvmf_subsystem *s = rpc_nvmf_subsystem_to_change(req, p->where.tgt_name, p->where.nqn);

	if (s != NULL && !subsystem_has_host(s, p->host)) {
		rpc_error(req, -ENOENT, "parameter \"host\" is \"%.256s\": it is not among the subsystem's hosts",
			  p->host);
	} else if (s != NULL) {
		host_remove(req, s, p);
	}
}
RPC_METHOD("nvmf_subsystem_remove_host", rpc_remove_host, struct host_params, remove_host_params, RPC_RUNTIME,
	   "Disconnect a host and let it connect no more; answers when its connections have ended", .result = "true",
	   .waits_for = rpc_nvmf_subsystem_waits_for, .has_own_time = remove_host_has_own_time)

struct allow_any_host {
	struct rpc_nvmf_where where;
	bool allow_any_host;
};

static const struct rpc_param allow_any_host_params[] = {
	RPC_NVMF_WHERE_PARAMS(struct allow_any_host),
	RPC_PARAM(struct allow_any_host, allow_any_host, RPC_BOOL, RPC_REQUIRED, "every host, or only those added"),
	RPC_PARAM_END,
};

static void rpc_allow_any_host(struct rpc_request *req, void *params)
{
	const struct allow_any_host *p = params;
	struct nvmf_subsystem *s = rpc_nvmf_subsystem_to_change(req, p->where.tgt_name, p->where.nqn);

	if (s != NULL) {
		rpc_nvmf_answer(req, nvmf_subsystem_set_allow_any_host(s, p->allow_any_host));
	}
}
RPC_METHOD("nvmf_subsystem_allow_any_host", rpc_allow_any_host, struct allow_any_host, allow_any_host_params,
	   RPC_RUNTIME, "Let every host connect, or only those that were added", .result = "true")

/* SPDX-License-Identifier: BSD-3-Clause */
/* nvmf_*: targets, and functions for all nvmf methods. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "env_dpdk/env.h"
#include "rpc_methods/dhchap.h"
#include "rpc_methods/nvmf.h"

#define DEFAULT_TRSVCID "4420"

/* ---- Notices ---- */

__attribute__((constructor)) static void rpc_nvmf_register_notifications(void)
{
	for (unsigned i = 0; nvmf_notice_type(i) != NULL; i++) {
		notify_type_register(nvmf_notice_type(i));
	}
	nvmf_set_notice_fn(notify_send_reason);
}

/* ---- Addresses ---- */

const struct rpc_param rpc_nvmf_address_params[] = {
	RPC_PARAM(struct rpc_nvmf_address, trtype, RPC_STRING, RPC_REQUIRED,
		  "transport: RDMA or TCP; of a referral also FC"),
	RPC_PARAM(struct rpc_nvmf_address, adrfam, RPC_STRING, RPC_OPTIONAL,
		  "IPv4, IPv6, IB, FC or intra-host; by default what traddr looks like"),
	RPC_PARAM(struct rpc_nvmf_address, traddr, RPC_STRING, RPC_REQUIRED, "address, e.g. 192.0.2.1"),
	RPC_PARAM(struct rpc_nvmf_address, trsvcid, RPC_STRING, RPC_OPTIONAL, "service: the port; by default 4420"),
	RPC_PARAM_END,
};

static bool text_is_plain(const char *text, size_t max)
{
	size_t len = strlen(text);

	if (len == 0 || len > max) {
		return false;
	}
	for (const char *c = text; *c != 0; c++) {
		if (!isgraph((unsigned char)*c)) {
			return false;
		}
	}
	return true;
}

static bool text_check_plain(struct rpc_request *req, const char *what, const char *field, const char *text, size_t max)
{
	if (text_is_plain(text, max)) {
		return true;
	}
	rpc_error(req, RPC_ERROR_INVALID_PARAMS,
		  "parameter \"%s.%s\" is \"%s\": allowed are 1 to %zu printable characters", what, field, text, max);
	return false;
}

bool rpc_nvmf_address_decode(struct rpc_request *req, const char *what, const struct rpc_nvmf_address *given,
			     struct nvmf_address *a)
{
	const char *trsvcid = given->trsvcid != NULL ? given->trsvcid : DEFAULT_TRSVCID;

	memset(a, 0, sizeof(*a));
	if (!text_check_plain(req, what, "trtype", given->trtype, NVMF_TRNAME_MAX) ||
	    !text_check_plain(req, what, "traddr", given->traddr, NVMF_TRADDR_MAX - 1) ||
	    !text_check_plain(req, what, "trsvcid", trsvcid, NVMF_TRSVCID_MAX - 1)) {
		return false;
	}
	if (given->adrfam == NULL) {
		a->adrfam = strchr(given->traddr, ':') != NULL ? NVMF_ADDR_FAMILY_IP6 : NVMF_ADDR_FAMILY_IP4;
	} else if (nvmf_adrfam_parse(given->adrfam, &a->adrfam) != 0) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "parameter \"%s.adrfam\" is \"%s\": allowed are IPv4, IPv6, IB, FC and intra-host", what,
			  given->adrfam);
		return false;
	}
	strcpy(a->traddr, given->traddr);
	strcpy(a->trsvcid, trsvcid);
	for (size_t i = 0; given->trtype[i] != 0; i++) {
		a->trtype[i] = (char)toupper((unsigned char)given->trtype[i]);
	}
	return true;
}

void rpc_nvmf_address_refuse(struct rpc_request *req, const char *what, const struct nvmf_address *a, const char *field,
			     const char *allowed)
{
	rpc_error(req, RPC_ERROR_INVALID_PARAMS, "parameter \"%s.%s\" is \"%s\": %s", what, field,
		  nvmf_address_field(a, field), allowed);
}

json_t *rpc_nvmf_address_json(const struct nvmf_address *a)
{
	json_t *o = json_object();

	json_object_set_new(o, "trtype", rpc_string(a->trtype));
	json_object_set_new(o, "adrfam", rpc_string(nvmf_adrfam_name(a->adrfam)));
	json_object_set_new(o, "traddr", rpc_string(a->traddr));
	json_object_set_new(o, "trsvcid", rpc_string(a->trsvcid));
	return o;
}

/* ---- Finding, answering ---- */

struct nvmf_tgt *rpc_nvmf_tgt(struct rpc_request *req, const char *name)
{
	struct nvmf_tgt *tgt = nvmf_tgt_find(name != NULL ? name : NVMF_DEFAULT_TGT);

	if (tgt == NULL) {
		name = name != NULL ? name : NVMF_DEFAULT_TGT; /* clients look for the first words */
		rpc_error(req, -ENODEV, "Unable to find target %.64s: parameter \"tgt_name\" names none that there is",
			  name);
	}
	return tgt;
}

struct nvmf_subsystem *rpc_nvmf_subsystem(struct rpc_request *req, const char *tgt_name, const char *nqn)
{
	struct nvmf_tgt *tgt = rpc_nvmf_tgt(req, tgt_name);

	if (tgt == NULL) {
		return NULL;
	}
	struct nvmf_subsystem *s = nvmf_subsystem_find(tgt, nqn);
	if (s == NULL) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "parameter \"nqn\" is \"%s\": there is no such subsystem",
			  nqn);
	}
	return s;
}

struct nvmf_tgt *rpc_nvmf_tgt_to_change(struct rpc_request *req, const char *name)
{
	struct nvmf_tgt *tgt = rpc_nvmf_tgt(req, name);
	char why[NVMF_ERROR_MAX];

	if (tgt != NULL && nvmf_tgt_check_open(tgt, why) != 0) {
		rpc_error(req, -EBUSY, "%s", why);
		return NULL;
	}
	return tgt;
}

struct nvmf_subsystem *rpc_nvmf_subsystem_to_change(struct rpc_request *req, const char *tgt_name, const char *nqn)
{
	struct nvmf_subsystem *s = rpc_nvmf_subsystem(req, tgt_name, nqn);
	char why[NVMF_ERROR_MAX];

	if (s != NULL && nvmf_subsystem_check_open(s, why) != 0) {
		rpc_error(req, -EBUSY, "%s", why);
		return NULL;
	}
	return s;
}

void rpc_nvmf_answer(void *req, int status)
{
	if (status == 0) {
		rpc_reply_true(req);
	} else {
		rpc_error(req, status, "%s", strerror(-status));
	}
}

void rpc_nvmf_subsystem_waits_for(const void *params, char *text, size_t size)
{
	const struct rpc_nvmf_where *where = params;
	struct nvmf_tgt *tgt = nvmf_tgt_find(where->tgt_name != NULL ? where->tgt_name : NVMF_DEFAULT_TGT);
	const struct nvmf_subsystem *s = tgt != NULL ? nvmf_subsystem_find(tgt, where->nqn) : NULL;

	if (s != NULL) {
		nvmf_subsystem_waits_for(s, 0, text, size);
	}
}

json_t *rpc_nvmf_since_us(uint64_t ticks)
{
	uint64_t now = env_ticks();

	return rpc_uint(now > ticks ? env_ticks_to_ns(now - ticks) / 1000 : 0);
}

json_t *rpc_nvmf_lower(const char *name)
{
	char text[32];
	size_t i = 0;

	for (; name[i] != 0 && i < sizeof(text) - 1; i++) {
		text[i] = (char)tolower((unsigned char)name[i]);
	}
	text[i] = 0;
	return rpc_string(text);
}

/* ---- The discovery filter ---- */

static const struct {
	const char *name;
	uint32_t bit;
} filters[] = {
	{"transport", NVMF_DISCOVERY_MATCH_TRTYPE},
	{"address", NVMF_DISCOVERY_MATCH_TRADDR},
	{"svcid", NVMF_DISCOVERY_MATCH_TRSVCID},
};

static bool discovery_filter_add(const char *word, size_t len, uint32_t *filter)
{
	if (len == strlen("match_any") && strncmp(word, "match_any", len) == 0) {
		return true;
	}
	for (size_t i = 0; i < sizeof(filters) / sizeof(filters[0]); i++) {
		if (strlen(filters[i].name) == len && strncmp(filters[i].name, word, len) == 0) {
			*filter |= filters[i].bit;
			return true;
		}
	}
	return false;
}

int rpc_nvmf_discovery_filter_parse(const char *text, uint32_t *filter)
{
	*filter = 0;
	for (const char *word = text;; word++) {
		size_t len = strcspn(word, ",");
		if (!discovery_filter_add(word, len, filter)) {
			return -EINVAL;
		}
		word += len;
		if (*word == 0) {
			return 0;
		}
	}
}

json_t *rpc_nvmf_discovery_filter_json(uint32_t filter)
{
	char text[64] = "";

	for (size_t i = 0; i < sizeof(filters) / sizeof(filters[0]); i++) {
		if (filter & filters[i].bit) {
			strcat(text, text[0] != 0 ? "," : "");
			strcat(text, filters[i].name);
		}
	}
	return json_string(text[0] != 0 ? text : "match_any");
}

#define FILTER_HELP "match_any, or transport, address and svcid joined by commas: which ports the discovery log shows"

#define FILTERS_HELP "the same as an array of names: transport, address, svcid"

static void discovery_filter_refuse(struct rpc_request *req, const char *text)
{
	rpc_error(req, RPC_ERROR_INVALID_PARAMS,
		  "parameter \"discovery_filter\" is \"%s\": allowed are match_any, or transport, address "
		  "and svcid "
		  "joined by commas",
		  text);
}

/* Decodes discovery_filter or discovery_filters, of which at most one may be given; without both *filter stays as it
 * is. False: the request has been answered with what is wrong. */
static bool discovery_filter_decode(struct rpc_request *req, const char *text, const json_t *names, uint32_t *filter)
{
	uint32_t bits = 0;
	const json_t *name;
	size_t i;

	if (text != NULL && names != NULL) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "parameters \"discovery_filter\" and \"discovery_filters\": one of them is allowed");
		return false;
	}
	if (text != NULL && rpc_nvmf_discovery_filter_parse(text, &bits) != 0) {
		discovery_filter_refuse(req, text);
		return false;
	}
	json_array_foreach (names, i, name) {
		const char *word = json_is_string(name) ? json_string_value(name) : "";
		if (!discovery_filter_add(word, strlen(word), &bits)) {
			rpc_wrong_element(req, "discovery_filters", i, name, "are transport, address and svcid");
			return false;
		}
	}
	*filter = text != NULL || names != NULL ? bits : *filter;
	return true;
}

/* ---- Targets ---- */

static const struct rpc_enum dup_host_policies[] = {{"allow", 0}, {"restrict_per_listener", 1}, {NULL, 0}};
#define DUP_HOST_HELP                                                                                                  \
	"whether a host, by its host identifier, may have several controllers of a subsystem through one listener; "   \
	"by "                                                                                                          \
	"default allow"

struct create_target {
	char *name, *discovery_filter;
	json_t *discovery_filters;
	uint32_t max_subsystems;
	int dup_host_policy;
	/* While a target that cannot be started is being taken away. */
	struct rpc_request *req;
	struct nvmf_tgt *tgt;
	int start_rc;
};

static const struct rpc_param create_target_params[] = {
	RPC_PARAM(struct create_target, name, RPC_STRING, RPC_REQUIRED, "name of the new target"),
	RPC_PARAM(struct create_target, max_subsystems, RPC_UINT32, RPC_OPTIONAL, "0: 1024, the default", .max = 65536),
	RPC_PARAM(struct create_target, discovery_filter, RPC_STRING, RPC_OPTIONAL, FILTER_HELP),
	RPC_PARAM(struct create_target, discovery_filters, RPC_ARRAY, RPC_OPTIONAL, FILTERS_HELP, .own = true),
	RPC_PARAM(struct create_target, dup_host_policy, RPC_ENUM, RPC_OPTIONAL, DUP_HOST_HELP,
		  .enums = dup_host_policies),
	RPC_PARAM_END,
};

static void target_answer_not_made(struct rpc_request *req, const char *name, int rc)
{
	const struct nvmf_tgt *other = rc == -EEXIST ? nvmf_tgt_find(name) : NULL;
	char why[NVMF_ERROR_MAX];

	if (other != NULL && nvmf_tgt_check_open(other, why) != 0) {
		rpc_error(req, rc, "target \"%s\" cannot be made yet: %s", name, why);
	} else {
		rpc_error(req, rc, "target \"%s\" cannot be made: %s", name, strerror(-rc));
	}
}

static void target_not_started(void *arg, int status)
{
	struct create_target *p = arg;

	nvmf_tgt_destroy(p->tgt);
	target_answer_not_made(p->req, p->name, p->start_rc);
}

static void rpc_create_target(struct rpc_request *req, void *params)
{
	struct create_target *p = params;
	struct nvmf_tgt_opts opts = {.name = p->name,
				     .max_subsystems = p->max_subsystems,
				     .one_ctrlr_per_listener = p->dup_host_policy != 0};

	if (!discovery_filter_decode(req, p->discovery_filter, p->discovery_filters, &opts.discovery_filter)) {
		return;
	}
	if (!text_is_plain(p->name, 32)) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "parameter \"name\" is \"%s\": allowed are 1 to 32 printable characters", p->name);
		return;
	}
	int rc = nvmf_tgt_create(&opts, &p->tgt);
	if (rc != 0) {
		target_answer_not_made(req, p->name, rc);
		return;
	}
	p->req = req;
	p->start_rc = nvmf_tgt_start(p->tgt);
	if (p->start_rc != 0) {
		nvmf_tgt_stop(p->tgt, target_not_started, p);
		return;
	}
	rpc_reply(req, rpc_string(p->name));
}
RPC_METHOD("nvmf_create_target", rpc_create_target, struct create_target, create_target_params, RPC_RUNTIME,
	   "Make another NVMe-oF target", .result = "string")

struct delete_target {
	char *name;
	struct rpc_request *req;
	struct nvmf_tgt *tgt;
};

static const struct rpc_param delete_target_params[] = {
	RPC_PARAM(struct delete_target, name, RPC_STRING, RPC_REQUIRED, "name of the target"),
	RPC_PARAM_END,
};

static void target_answer_deleted(void *arg, int status)
{
	struct delete_target *p = arg;

	if (status == 0) {
		nvmf_tgt_destroy(p->tgt);
	}
	rpc_nvmf_answer(p->req, status);
}

static void target_waits_for(const void *params, char *text, size_t size)
{
	struct nvmf_tgt *tgt = nvmf_tgt_find(((const struct delete_target *)params)->name);

	if (tgt != NULL) {
		nvmf_tgt_waits_for(tgt, text, size);
	}
}

static void rpc_delete_target(struct rpc_request *req, void *params)
{
	struct delete_target *p = params;
	char why[NVMF_ERROR_MAX];

	p->req = req;
	p->tgt = nvmf_tgt_find(p->name);
	if (p->tgt == NULL) {
		/* Clients compare the code, and look for the words at the end. */
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "parameter \"name\" is \"%.64s\": The specified target doesn't exist, cannot delete it.",
			  p->name);
		return;
	}
	if (nvmf_tgt_check_open(p->tgt, why) != 0) {
		rpc_error(req, -EALREADY, "%s", why);
		return;
	}
	nvmf_tgt_stop(p->tgt, target_answer_deleted, p);
}
RPC_METHOD("nvmf_delete_target", rpc_delete_target, struct delete_target, delete_target_params, RPC_RUNTIME,
	   "Disconnect the hosts of a target and remove it with all that belongs to it", .result = "true",
	   .waits_for = target_waits_for)

static void rpc_get_targets(struct rpc_request *req, void *params)
{
	json_t *list = json_array();

	for (struct nvmf_tgt *t = nvmf_tgt_next(NULL); t != NULL; t = nvmf_tgt_next(t)) {
		json_array_append_new(list, rpc_string(nvmf_tgt_name(t)));
	}
	rpc_reply(req, list);
}
RPC_METHOD("nvmf_get_targets", rpc_get_targets, struct rpc_no_params, NULL, RPC_RUNTIME, "List the names of targets",
	   .result = "[string]")

/* ---- Before the default target is made ---- */

struct set_max_subsystems {
	uint32_t max_subsystems;
};

static const struct rpc_param set_max_subsystems_params[] = {
	RPC_PARAM(struct set_max_subsystems, max_subsystems, RPC_UINT32, RPC_REQUIRED, "of the default target",
		  .min = 1, .max = 65536),
	RPC_PARAM_END,
};

static void rpc_set_max_subsystems(struct rpc_request *req, void *params)
{
	const struct set_max_subsystems *p = params;

	nvmf_config()->max_subsystems = p->max_subsystems;
	rpc_reply_true(req);
}
RPC_METHOD("nvmf_set_max_subsystems", rpc_set_max_subsystems, struct set_max_subsystems, set_max_subsystems_params,
	   RPC_STARTUP, "Set how many subsystems the default target may have", .result = "true")

struct set_crdt {
	uint16_t crdt1, crdt2, crdt3;
};

static const struct rpc_param set_crdt_params[] = {
	RPC_PARAM(struct set_crdt, crdt1, RPC_UINT16, RPC_OPTIONAL, "command retry delay time 1, units of 100 ms"),
	RPC_PARAM(struct set_crdt, crdt2, RPC_UINT16, RPC_OPTIONAL, "command retry delay time 2"),
	RPC_PARAM(struct set_crdt, crdt3, RPC_UINT16, RPC_OPTIONAL, "command retry delay time 3"),
	RPC_PARAM_END,
};

static void rpc_set_crdt(struct rpc_request *req, void *params)
{
	const struct set_crdt *p = params;
	struct nvmf_config *config = nvmf_config();

	config->crdt[0] = p->crdt1;
	config->crdt[1] = p->crdt2;
	config->crdt[2] = p->crdt3;
	rpc_reply_true(req);
}
RPC_METHOD("nvmf_set_crdt", rpc_set_crdt, struct set_crdt, set_crdt_params, RPC_STARTUP,
	   "Set the command retry delay times that controllers announce", .result = "true")

#define PASSTHRU_WHY "controllers of subsystems answer for themselves"

struct set_config {
	struct rpc_no_params admin_cmd_passthru;
	char *poll_groups_mask, *discovery_filter;
	uint32_t quiesce_limit_ms;
	int dup_host_policy;
	bool dup_host_policy_given;
	json_t *discovery_filters, *dhchap_digests, *dhchap_dhgroups;
};

static const struct rpc_param admin_cmd_passthru_params[] = {
	RPC_ONLY(identify_ctrlr, RPC_BOOL, "false", PASSTHRU_WHY),
	RPC_ONLY(identify_uuid_list, RPC_BOOL, "false", PASSTHRU_WHY),
	RPC_ONLY(get_log_page, RPC_BOOL, "false", PASSTHRU_WHY),
	RPC_ONLY(get_set_features, RPC_BOOL, "false", PASSTHRU_WHY),
	RPC_ONLY(sanitize, RPC_BOOL, "false", PASSTHRU_WHY),
	RPC_ONLY(security_send_recv, RPC_BOOL, "false", PASSTHRU_WHY),
	RPC_ONLY(fw_update, RPC_BOOL, "false", PASSTHRU_WHY),
	RPC_ONLY(nvme_mi, RPC_BOOL, "false", PASSTHRU_WHY),
	RPC_ONLY(vendor_specific, RPC_BOOL, "false",
		 "namespace.passthru_admin of nvmf_subsystem_add_ns names what is passed on"),
	RPC_PARAM_END,
};

static const struct rpc_param set_config_params[] = {
	RPC_PARAM(struct set_config, poll_groups_mask, RPC_STRING, RPC_OPTIONAL,
		  "cores that get a poll group: 0x3, [0,2-3] or 0-1; by default all"),
	RPC_PARAM(struct set_config, discovery_filter, RPC_STRING, RPC_OPTIONAL, FILTER_HELP),
	RPC_PARAM(struct set_config, discovery_filters, RPC_ARRAY, RPC_OPTIONAL, FILTERS_HELP),
	RPC_PARAM(struct set_config, dhchap_digests, RPC_ARRAY, RPC_OPTIONAL, RPC_DHCHAP_DIGESTS_HELP),
	RPC_PARAM(struct set_config, dhchap_dhgroups, RPC_ARRAY, RPC_OPTIONAL, RPC_DHCHAP_DHGROUPS_HELP),
	RPC_PARAM(struct set_config, quiesce_limit_ms, RPC_UINT32, RPC_OPTIONAL,
		  "how long commands that have begun may take to end when their connection is ended (default 5000): "
		  "hosts "
		  "are told (CQT) and wait for it before they submit writes elsewhere; what takes longer is reported",
		  .min = 1, .max = NVMF_QUIESCE_LIMIT_MAX_MS, .own = true),
	RPC_PARAM(struct set_config, admin_cmd_passthru, RPC_OBJECT, RPC_OPTIONAL,
		  "what admin commands reach an NVMe drive: none of these", .object = admin_cmd_passthru_params),
	RPC_PARAM(struct set_config, dup_host_policy, RPC_ENUM, RPC_OPTIONAL, DUP_HOST_HELP, .enums = dup_host_policies,
		  .given_offset = offsetof(struct set_config, dup_host_policy_given)),
	RPC_PARAM_END,
};

static void rpc_set_config(struct rpc_request *req, void *params)
{
	const struct set_config *p = params;
	struct nvmf_config *config = nvmf_config();
	unsigned digests = config->dhchap_hashes, dhgroups = config->dhchap_groups;
	uint32_t filter = config->discovery_filter;
	cpu_set_t cores = config->cores;
	char why[ENV_ERROR_MAX];

	if (!discovery_filter_decode(req, p->discovery_filter, p->discovery_filters, &filter)) {
		return;
	}
	if (p->poll_groups_mask != NULL && env_cores_parse(p->poll_groups_mask, &cores, why) != 0) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "parameter \"poll_groups_mask\": %s", why);
		return;
	}
	if (!rpc_dhchap_digests(req, p->dhchap_digests, &digests) ||
	    !rpc_dhchap_dhgroups(req, p->dhchap_dhgroups, &dhgroups)) {
		return;
	}
	if (p->quiesce_limit_ms != 0) {
		config->quiesce_limit_ms = p->quiesce_limit_ms;
	}
	if (p->dup_host_policy_given) {
		config->one_ctrlr_per_listener = p->dup_host_policy != 0;
	}
	config->dhchap_hashes = digests;
	config->dhchap_groups = dhgroups;
	config->discovery_filter = filter;
	if (p->poll_groups_mask != NULL) {
		config->cores = cores;
		config->all_cores = false;
	}
	rpc_reply_true(req);
}
RPC_METHOD("nvmf_set_config", rpc_set_config, struct set_config, set_config_params, RPC_STARTUP,
	   "Choose the cores that serve NVMe-oF, what discovery shows, and what hosts may authenticate with",
	   .result = "true")

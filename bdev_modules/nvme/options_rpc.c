/* SPDX-License-Identifier: BSD-3-Clause */
/* bdev_nvme_set_options: options of all NVMe controllers that are attached later. */
#include "bdev_modules/nvme/nvme_rpc.h"

#include <string.h>

#include "rpc_methods/dhchap.h"

/* --- How I/O is spread over paths --- */

#define SPREAD(field_, type_, help_, ...)                                                                              \
	RPC_PARAM(struct bdev_nvme_rpc_multipath_opts, field_, type_, RPC_OPTIONAL, help_,                             \
		  .given_offset = offsetof(struct bdev_nvme_rpc_multipath_opts, field_##_given), ##__VA_ARGS__)
const struct rpc_param bdev_nvme_rpc_multipath_opts_params[] = {
	SPREAD(policy, RPC_ENUM, "active_passive (default) or active_active", .enums = bdev_nvme_rpc_policies),
	SPREAD(selector, RPC_ENUM, "active_active: round_robin (default) or queue_depth",
	       .enums = bdev_nvme_rpc_selectors),
	SPREAD(min_io, RPC_UINT32, "round_robin: how many I/Os in a row take the same path (default 1)"),
	RPC_PARAM_END,
};

void bdev_nvme_rpc_multipath_opts_default(struct bdev_nvme_rpc_multipath_opts *m, const struct bdev_nvme_policy *policy)
{
	*m = (struct bdev_nvme_rpc_multipath_opts){
		.policy = policy->active_active, .selector = policy->queue_depth, .min_io = policy->rr_min_io};
}

bool bdev_nvme_rpc_multipath_opts_decode(const struct bdev_nvme_rpc_multipath_opts *m, struct bdev_nvme_policy *policy)
{
	*policy = (struct bdev_nvme_policy){
		.active_active = m->policy, .queue_depth = m->selector, .rr_min_io = m->min_io};
	return m->policy_given || m->selector_given || m->min_io_given;
}

/* --- Options --- */

static const struct rpc_enum timeout_actions[] = {{"none", BDEV_NVME_TIMEOUT_NONE},
						  {"reset", BDEV_NVME_TIMEOUT_RESET},
						  {"abort", BDEV_NVME_TIMEOUT_ABORT},
						  {NULL, 0}};

struct set_options {
	struct bdev_nvme_options o;
	int action_on_timeout;
	json_t *dhchap_digests, *dhchap_dhgroups;
	struct bdev_nvme_rpc_multipath_opts multipath_opts;
};

#define OPTION(name_, field_, type_, help_, ...)                                                                       \
	{                                                                                                              \
		.name = name_, .type = type_, .offset = offsetof(struct set_options, o.field_),                        \
		.size = sizeof(((struct bdev_nvme_options *)0)->field_), .help = help_, ##__VA_ARGS__                  \
	}
static const struct rpc_param set_options_params[] = {
	RPC_PARAM(struct set_options, action_on_timeout, RPC_ENUM, RPC_OPTIONAL,
		  "what to do with I/O that exceeds timeout_us (default abort, and reset the controller if that fails)",
		  .enums = timeout_actions),
	OPTION("timeout_us", timeout_us, RPC_UINT64,
	       "how long I/O may take, checked once a second (default 30000000; 0: no limit, whatever "
	       "action_on_timeout is)",
	       .max = BDEV_NVME_TIMEOUT_MAX_US),
	OPTION("timeout_admin_us", timeout_admin_us, RPC_UINT64,
	       "how long an admin command may take (default 0: 30 s; or at least 1000)",
	       .max = BDEV_NVME_TIMEOUT_MAX_US),
	OPTION("keep_alive_timeout_ms", keep_alive_timeout_ms, RPC_UINT32,
	       "keep-alive timeout of controllers over fabrics (default 5000; 0: none)"),
	OPTION("bdev_retry_count", bdev_retry_count, RPC_INT32,
	       "how often I/O is submitted again if its status allows a retry (default 3; -1: no limit)"),
	OPTION("ctrlr_loss_timeout_sec", ctrlr_loss_timeout_sec, RPC_INT32,
	       "default for bdev_nvme_attach_controller (0)"),
	OPTION("reconnect_delay_sec", reconnect_delay_sec, RPC_UINT32, "default for bdev_nvme_attach_controller (0)"),
	OPTION("fast_io_fail_timeout_sec", fast_io_fail_timeout_sec, RPC_UINT32,
	       "default for bdev_nvme_attach_controller (0)"),
	RPC_PARAM(struct set_options, dhchap_digests, RPC_ARRAY, RPC_OPTIONAL, RPC_DHCHAP_DIGESTS_HELP),
	RPC_PARAM(struct set_options, dhchap_dhgroups, RPC_ARRAY, RPC_OPTIONAL, RPC_DHCHAP_DHGROUPS_HELP),
	RPC_PARAM(struct set_options, multipath_opts, RPC_OBJECT, RPC_OPTIONAL,
		  "default for bdev_nvme_attach_controller", .object = bdev_nvme_rpc_multipath_opts_params),
	OPTION("disable_auto_failback", disable_auto_failback, RPC_BOOL,
	       "active_passive: when a better path is connected again, I/O stays on the path that it takes, as long as "
	       "both have the same access (default false)"),
	OPTION("fence_timeout_ms", fence_timeout_ms, RPC_INT32, "default for bdev_nvme_attach_controller (-1)",
	       .own = true),
	OPTION("default_quiesce_time_ms", default_quiesce_time_ms, RPC_UINT32,
	       "default for bdev_nvme_attach_controller (5000)", .own = true),
	OPTION("arbitration_burst", arbitration_burst, RPC_UINT32,
	       "Arbitration feature: a controller takes up to 2^this commands from a queue at a time; 7: no limit "
	       "(default "
	       "0, with weights of 0: the controller's own setting stays)",
	       .max = 7),
	OPTION("low_priority_weight", low_priority_weight, RPC_UINT32, "Arbitration feature, 0's based (default 0)",
	       .max = UINT8_MAX),
	OPTION("medium_priority_weight", medium_priority_weight, RPC_UINT32, "likewise", .max = UINT8_MAX),
	OPTION("high_priority_weight", high_priority_weight, RPC_UINT32, "likewise", .max = UINT8_MAX),
	OPTION("nvme_adminq_poll_period_us", adminq_poll_period_us, RPC_UINT64,
	       "PCIe: period at which admin queues are polled; a longer one than 2000 is taken as 2000. RDMA reports "
	       "completions at once (default 0: 2000)"),
	OPTION("transport_retry_count", rdma_retry_count, RPC_UINT32,
	       "RDMA: how often a packet without acknowledgement is sent again (default 7)", .max = 7),
	OPTION("transport_ack_timeout", rdma_ack_timeout, RPC_UINT8,
	       "RDMA: acknowledgement timeout, 4.096 us << this (default 0: the device's)", .max = 31),
	OPTION("transport_tos", rdma_tos, RPC_UINT8, "RDMA: type of service of packets (default 0: the machine's)"),
	OPTION("rdma_cm_event_timeout_ms", rdma_cm_timeout_ms, RPC_UINT16,
	       "RDMA: time limit of resolving an address or a route (default 0: 2000)"),
	OPTION("io_queue_requests", io_queue_requests, RPC_UINT32,
	       "no effect, saved for clients that set it: commands are part of their submitters' requests, there is no "
	       "pool "
	       "(default 0)"),
	OPTION("enable_flush", enable_flush, RPC_BOOL,
	       "no effect, saved for clients that set it: flushes are always sent to a controller with a volatile "
	       "write cache"),
	RPC_NO_EFFECT(nvme_ioq_poll_period_us, RPC_UINT64, "0", "I/O queues are polled in each round of their reactor"),
	RPC_NO_EFFECT(delay_cmd_submit, RPC_BOOL, "true", "a doorbell is written once for all commands of a round"),
	RPC_ONLY(generate_uuids, RPC_BOOL, "false", "a bdev without a UUID of its namespace gets a random one"),
	OPTION("nvme_error_stat", nvme_error_stat, RPC_BOOL,
	       "bdev_get_iostat counts commands that end with an error, by status, also those that are repeated, in "
	       "driver_specific.nvme_error (default false)"),
	OPTION("io_path_stat", io_path_stat, RPC_BOOL,
	       "bdev_nvme_get_path_iostat has statistics by path (default false)"),
	RPC_NO_EFFECT(allow_accel_sequence, RPC_BOOL, "false", "there is no acceleration framework"),
	RPC_NO_EFFECT(rdma_umr_per_io, RPC_BOOL, "false", "the segments of an I/O are sent as a list"),
	RPC_NO_EFFECT(rdma_srq_size, RPC_UINT32, "0", "each connection has a receive queue of its own"),
	RPC_NO_EFFECT(rdma_max_cq_size, RPC_UINT32, "0",
		      "a completion queue has room for all of its connection's requests"),
	RPC_NO_EFFECT(tcp_connect_timeout_ms, RPC_UINT32, "0", "connecting has one time limit, whatever the transport"),
	RPC_PARAM_END,
};

static void set_options_defaults(void *params)
{
	struct set_options *p = params;

	bdev_nvme_get_options(&p->o);
	p->action_on_timeout = p->o.action_on_timeout;
	bdev_nvme_rpc_multipath_opts_default(&p->multipath_opts, &p->o.policy);
}

static void rpc_bdev_nvme_set_options(struct rpc_request *req, void *params)
{
	const struct set_options *p = params;
	struct bdev_nvme_options o = p->o;
	char error[BDEV_ERROR_MAX];

	o.action_on_timeout = (enum bdev_nvme_timeout_action)p->action_on_timeout;
	bdev_nvme_rpc_multipath_opts_decode(&p->multipath_opts, &o.policy);
	if (rpc_dhchap_digests(req, p->dhchap_digests, &o.dhchap_hashes) &&
	    rpc_dhchap_dhgroups(req, p->dhchap_dhgroups, &o.dhchap_groups)) {
		bdev_nvme_rpc_answer(req, bdev_nvme_set_options(&o, error), error);
	}
}
RPC_METHOD("bdev_nvme_set_options", rpc_bdev_nvme_set_options, struct set_options, set_options_params,
	   RPC_STARTUP | RPC_RUNTIME, "Set options of the NVMe controllers that will be attached",
	   .defaults = set_options_defaults, .result = "true")

/* --- Configuration --- */

static const char *timeout_action_name(enum bdev_nvme_timeout_action action)
{
	const struct rpc_enum *e = timeout_actions;

	while (e->value != (int)action) {
		e++;
	}
	return e->name;
}

void bdev_nvme_rpc_add_multipath_opts(json_t *params, const struct bdev_nvme_policy *policy)
{
	json_t *o = json_object();

	json_object_set_new(o, "policy", json_string(bdev_nvme_rpc_policies[policy->active_active].name));
	json_object_set_new(o, "selector", json_string(bdev_nvme_rpc_selectors[policy->queue_depth].name));
	json_object_set_new(o, "min_io", rpc_uint(policy->rr_min_io));
	json_object_set_new(params, "multipath_opts", o);
}

static uint64_t option_value(const void *at, size_t size)
{
	return size == 1   ? *(const uint8_t *)at
	       : size == 2 ? *(const uint16_t *)at
	       : size == 4 ? *(const uint32_t *)at
			   : *(const uint64_t *)at;
}

/* An option that is an integer or a bool in struct bdev_nvme_options. */
static void option_add(json_t *params, const struct rpc_param *p, const struct bdev_nvme_options *o,
		       const struct bdev_nvme_options *usual)
{
	size_t offset = p->offset - offsetof(struct set_options, o);
	const void *at = (const char *)o + offset;

	if (p->own && rpc_config_leaves_out(memcmp(at, (const char *)usual + offset, p->size) == 0)) {
		return;
	}
	if (p->type == RPC_BOOL) {
		json_object_set_new(params, p->name, json_boolean(*(const bool *)at));
	} else if (p->type == RPC_INT32) {
		json_object_set_new(params, p->name, json_integer(*(const int32_t *)at));
	} else {
		json_object_set_new(params, p->name, rpc_uint(option_value(at, p->size)));
	}
}

void bdev_nvme_rpc_write_options(json_t *methods)
{
	struct bdev_nvme_options o, usual;
	json_t *params = json_object();

	bdev_nvme_get_options(&o);
	bdev_nvme_default_options(&usual);
	json_object_set_new(params, "action_on_timeout", json_string(timeout_action_name(o.action_on_timeout)));
	for (const struct rpc_param *p = set_options_params; p->name != NULL; p++) {
		if (p->only == NULL && p->type != RPC_ENUM && p->type != RPC_ARRAY && p->type != RPC_OBJECT) {
			option_add(params, p, &o, &usual);
		}
	}
	if (o.dhchap_hashes != 0) {
		json_object_set_new(params, "dhchap_digests", rpc_dhchap_digests_json(o.dhchap_hashes));
	}
	if (o.dhchap_groups != 0) {
		json_object_set_new(params, "dhchap_dhgroups", rpc_dhchap_dhgroups_json(o.dhchap_groups));
	}
	bdev_nvme_rpc_add_multipath_opts(params, &o.policy);
	rpc_config_add(methods, "bdev_nvme_set_options", params);
}

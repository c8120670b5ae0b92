/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods that configurations of other targets have, about things that varve does not have: they are checked, answered
 * with true, and change nothing. The log says so once for each method. */
#include "rpc/rpc.h"
#include "util/log.h"

/* What is given is decoded, so that wrong values are errors, and forgotten. */
struct no_effect {
	uint32_t number;
	uint64_t large;
};

#define IGNORED(name_, type_, field_, ...)                                                                             \
	{                                                                                                              \
		.name = #name_, .type = type_, .offset = offsetof(struct no_effect, field_),                           \
		.size = sizeof(((struct no_effect *)0)->field_), .help = "no effect", ##__VA_ARGS__                    \
	}
#define IGNORED_UINT32(name_) IGNORED(name_, RPC_UINT32, number)

/* *told: whether the log has a line about the method. */
static void no_effect_answer(struct rpc_request *req, const char *method, const char *why, bool *told)
{
	if (!*told) {
		log_notice("%s is taken without effect: %s", method, why);
		*told = true;
	}
	rpc_reply_true(req);
}

#define NO_EFFECT_METHOD(name_, params_, states_, why_)                                                                \
	static void rpc_##name_(struct rpc_request *req, void *params)                                                 \
	{                                                                                                              \
		static bool told;                                                                                      \
		no_effect_answer(req, #name_, why_, &told);                                                            \
	}                                                                                                              \
	RPC_METHOD(#name_, rpc_##name_, struct no_effect, params_, states_,                                            \
		   "Without effect, for configurations of other targets: " why_, .result = "true")

/* --- Rooms and modules that are not there --- */

static const struct rpc_param accel_options_params[] = {
	IGNORED_UINT32(small_cache_size), IGNORED_UINT32(large_cache_size), IGNORED_UINT32(task_count),
	IGNORED_UINT32(sequence_count),   IGNORED_UINT32(buf_count),        RPC_PARAM_END};
NO_EFFECT_METHOD(accel_set_options, accel_options_params, RPC_STARTUP, "there is no framework for accelerators")

static const struct rpc_param raid_options_params[] = {IGNORED_UINT32(process_window_size_kb),
						       IGNORED_UINT32(process_max_bandwidth_mb_sec), RPC_PARAM_END};
NO_EFFECT_METHOD(bdev_raid_set_options, raid_options_params, RPC_STARTUP | RPC_RUNTIME, "there are no RAID bdevs")

static const struct rpc_param iscsi_options_params[] = {IGNORED(timeout_sec, RPC_UINT64, large), RPC_PARAM_END};
NO_EFFECT_METHOD(bdev_iscsi_set_options, iscsi_options_params, RPC_STARTUP | RPC_RUNTIME, "there are no iSCSI bdevs")

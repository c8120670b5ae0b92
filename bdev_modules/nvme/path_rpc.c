/* SPDX-License-Identifier: BSD-3-Clause */
/* bdev_nvme_get_io_paths, bdev_nvme_get_path_iostat, bdev_nvme_set_multipath_policy, bdev_nvme_set_preferred_path:
 * bdevs with several paths. */
#include <errno.h>
#include <string.h>

#include "bdev_modules/nvme/nvme_rpc.h"
#include "rpc_methods/bdev.h"

const struct rpc_enum bdev_nvme_rpc_policies[] = {{"active_passive", 0}, {"active_active", 1}, {NULL, 0}};
const struct rpc_enum bdev_nvme_rpc_selectors[] = {{"round_robin", 0}, {"queue_depth", 1}, {NULL, 0}};

/* --- bdev_nvme_get_io_paths --- */

struct by_name {
	char *name;
};

static const struct rpc_param get_io_paths_params[] = {
	RPC_PARAM(struct by_name, name, RPC_STRING, RPC_OPTIONAL, "name of a bdev (default: all)"), RPC_PARAM_END};

static void io_paths_add(void *arg, const struct bdev_nvme_io_path *p)
{
	json_t *groups = arg, *group = NULL, *g, *o = json_object();
	size_t i;

	json_array_foreach (groups, i, g) {
		const char *thread = json_string_value(json_object_get(g, "thread")); /* NULL: no memory */
		if (thread != NULL && strcmp(thread, p->thread_name) == 0) {
			group = g;
		}
	}
	if (group == NULL) {
		group = json_object();
		json_object_set_new(group, "thread", rpc_string(p->thread_name));
		json_object_set_new(group, "io_paths", json_array());
		json_array_append_new(groups, group);
	}
	const struct nvme_ctrlr *c = bdev_nvme_ctrlr(p->ctrlr);
	json_object_set_new(o, "bdev_name", rpc_string(bdev_name(p->bdev)));
	json_object_set_new(o, "cntlid", json_integer(nvme_ctrlr_cntlid(c)));
	json_object_set_new(o, "current", json_boolean(p->current));
	json_object_set_new(o, "connected", json_boolean(p->connected));
	json_object_set_new(o, "accessible", json_boolean(p->accessible));
	json_object_set_new(o, "preferred", json_boolean(p->preferred));
	if (nvme_ctrlr_has_ana(c)) {
		json_object_set_new(o, "ana_state", json_string(bdev_nvme_ana_name(p->ana)));
	}
	json_object_set_new(o, "transport", bdev_nvme_rpc_trid_json(nvme_ctrlr_trid(c)));
	json_array_append_new(json_object_get(group, "io_paths"), o);
}

static void rpc_bdev_nvme_get_io_paths(struct rpc_request *req, void *params)
{
	const char *name = ((const struct by_name *)params)->name;
	struct bdev *only = name != NULL ? rpc_bdev_find(req, name) : NULL;

	if (name != NULL && only == NULL) {
		return;
	}
	if (only != NULL && !bdev_nvme_is(only)) {
		rpc_error(req, -ENODEV, "name '%s': is no bdev of an NVMe controller", name);
		return;
	}
	json_t *groups = json_array(), *result = json_object();
	for (const struct bdev_nvme *c = NULL; (c = bdev_nvme_next(c)) != NULL;) {
		for (const struct bdev *b = NULL; bdev_nvme_is_first(c) && (b = bdev_nvme_bdev_next(c, b)) != NULL;) {
			if (only == NULL || b == only) {
				bdev_nvme_for_each_io_path((struct bdev *)b, io_paths_add, groups);
			}
		}
	}
	json_object_set_new(result, "poll_groups", groups);
	if (json_array_size(groups) == 0) {
		json_object_set_new(result, "hint",
				    rpc_string("there are no paths: a thread has paths of a bdev while it uses it, as "
					       "a namespace or as the base of another bdev"));
	}
	rpc_reply(req, result);
}
RPC_METHOD("bdev_nvme_get_io_paths", rpc_bdev_nvme_get_io_paths, struct by_name, get_io_paths_params, RPC_RUNTIME,
	   "List the paths of NVMe bdevs, by thread",
	   .result = "{poll_groups: [{thread: string, io_paths: [{bdev_name: string, cntlid: int, current: "
		     "bool, connected: bool, accessible: bool, preferred: bool, ana_state?: string, "
		     "transport: " RPC_BDEV_NVME_TRID_SHAPE ", ...}]}], hint?: string}")

/* --- bdev_nvme_get_path_iostat --- */

static const struct rpc_param get_path_iostat_params[] = {
	RPC_PARAM(struct by_name, name, RPC_STRING, RPC_REQUIRED, "name of a bdev"), RPC_PARAM_END};

static void path_iostat_add(void *arg, const struct nvme_trid *trid,
			    const struct bdev_stat_ops class[BDEV_STAT_CLASSES])
{
	json_t *o = json_object(), *stat = json_object();

	rpc_bdev_add_stat_ops(stat, class);
	json_object_set_new(o, "trid", bdev_nvme_rpc_trid_json(trid));
	json_object_set_new(o, "stat", stat);
	json_array_append_new(arg, o);
}

static void rpc_bdev_nvme_get_path_iostat(struct rpc_request *req, void *params)
{
	const char *name = ((const struct by_name *)params)->name;
	struct bdev *b = rpc_bdev_find(req, name);

	if (b == NULL) {
		return;
	}
	if (!bdev_nvme_is(b)) {
		rpc_error(req, -ENODEV, "name '%s': is no bdev of an NVMe controller", name);
		return;
	}
	json_t *stats = json_array(), *result = json_object();
	int rc = bdev_nvme_for_each_path_stat(b, path_iostat_add, stats);
	json_object_set_new(result, "name", rpc_string(bdev_name(b)));
	json_object_set_new(result, "stats", stats);
	if (rc == 0) {
		rpc_reply(req, result);
	} else {
		json_decref(result);
		rpc_error(req, rc,
			  "bdev '%s' has no statistics by path: its controller was attached with the option "
			  "io_path_stat of bdev_nvme_set_options off",
			  name);
	}
}
RPC_METHOD("bdev_nvme_get_path_iostat", rpc_bdev_nvme_get_path_iostat, struct by_name, get_path_iostat_params,
	   RPC_RUNTIME, "Tell the statistics of a bdev's paths (with io_path_stat of bdev_nvme_set_options)",
	   .result = "{name: string, stats: [{trid: " RPC_BDEV_NVME_TRID_SHAPE
		     ", stat: {bytes_read: int, num_read_ops: int, bytes_written: int, num_write_ops: int, ...}}]}")

/* --- bdev_nvme_set_multipath_policy --- */

struct set_policy {
	char *name;
	int policy, selector;
	uint32_t rr_min_io;
	bool selector_given, rr_min_io_given;
};

static const struct rpc_param set_policy_params[] = {
	RPC_PARAM(struct set_policy, name, RPC_STRING, RPC_REQUIRED, "name of the bdev"),
	RPC_PARAM(struct set_policy, policy, RPC_ENUM, RPC_REQUIRED,
		  "active_passive: one path at a time; active_active: all usable paths with the best access",
		  .enums = bdev_nvme_rpc_policies),
	RPC_PARAM(struct set_policy, selector, RPC_ENUM, RPC_OPTIONAL,
		  "active_active: the paths in turn (default), or the path with the fewest commands outstanding",
		  .enums = bdev_nvme_rpc_selectors, .given_offset = offsetof(struct set_policy, selector_given)),
	RPC_PARAM(struct set_policy, rr_min_io, RPC_UINT32, RPC_OPTIONAL,
		  "round_robin: how many I/Os in a row take the same path (default 1)",
		  .given_offset = offsetof(struct set_policy, rr_min_io_given)),
	RPC_PARAM_END,
};

static void rpc_bdev_nvme_set_multipath_policy(struct rpc_request *req, void *params)
{
	const struct set_policy *p = params;
	char error[BDEV_ERROR_MAX];
	struct bdev *b = rpc_bdev_find(req, p->name);

	if (b == NULL) {
		return;
	}
	if (p->policy == 0 && (p->selector_given || p->rr_min_io_given)) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "%s: is for policy active_active",
			  p->selector_given ? "selector" : "rr_min_io");
		return;
	}
	if (p->selector == 1 && p->rr_min_io_given) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "rr_min_io: is for selector round_robin");
		return;
	}
	int rc = bdev_nvme_set_policy(b,
				      &(struct bdev_nvme_policy){.active_active = p->policy,
								 .queue_depth = p->selector,
								 .rr_min_io = p->rr_min_io_given ? p->rr_min_io : 1},
				      error);
	if (rc == 0) {
		rpc_reply_true(req);
	} else {
		rpc_error(req, rc, "%s", error);
	}
}
RPC_METHOD("bdev_nvme_set_multipath_policy", rpc_bdev_nvme_set_multipath_policy, struct set_policy, set_policy_params,
	   RPC_RUNTIME, "Set how the I/O of a bdev is spread over its paths", .result = "true")

/* --- bdev_nvme_set_preferred_path --- */

struct set_preferred {
	char *name;
	uint16_t cntlid;
};

static const struct rpc_param set_preferred_params[] = {
	RPC_PARAM(struct set_preferred, name, RPC_STRING, RPC_REQUIRED, "name of the bdev"),
	RPC_PARAM(struct set_preferred, cntlid, RPC_UINT16, RPC_REQUIRED,
		  "id of the controller, as in bdev_nvme_get_io_paths"),
	RPC_PARAM_END,
};

static void rpc_bdev_nvme_set_preferred_path(struct rpc_request *req, void *params)
{
	const struct set_preferred *p = params;
	char error[BDEV_ERROR_MAX];
	struct bdev *b = rpc_bdev_find(req, p->name);
	int rc = b != NULL ? bdev_nvme_set_preferred(b, p->cntlid, error) : 0;

	if (b != NULL && rc == 0) {
		rpc_reply_true(req);
	} else if (b != NULL) {
		rpc_error(req, rc, "%s", error);
	}
}
RPC_METHOD("bdev_nvme_set_preferred_path", rpc_bdev_nvme_set_preferred_path, struct set_preferred, set_preferred_params,
	   RPC_RUNTIME, "Let a bdev's I/O take the path through one controller while it is usable (active_passive)",
	   .result = "true")

/* --- Configuration --- */

static void config_write_policy(json_t *methods, const struct bdev *b)
{
	const struct bdev_nvme_policy *p = bdev_nvme_get_policy(b);
	json_t *params = json_object();

	json_object_set_new(params, "name", rpc_string(bdev_name(b)));
	json_object_set_new(params, "policy", json_string(bdev_nvme_rpc_policies[p->active_active].name));
	if (p->active_active) {
		json_object_set_new(params, "selector", json_string(bdev_nvme_rpc_selectors[p->queue_depth].name));
	}
	if (p->active_active && !p->queue_depth) {
		json_object_set_new(params, "rr_min_io", rpc_uint(p->rr_min_io));
	}
	rpc_config_add(methods, "bdev_nvme_set_multipath_policy", params);
}

void bdev_nvme_rpc_write_policies(json_t *methods)
{
	for (const struct bdev_nvme *c = NULL; (c = bdev_nvme_next(c)) != NULL;) {
		/* a discovered controller is attached again at a time that the configuration does not know */
		bool wanted = bdev_nvme_is_first(c) && !bdev_nvme_attached(c)->discovered;
		for (const struct bdev *b = NULL; wanted && (b = bdev_nvme_bdev_next(c, b)) != NULL;) {
			if (!bdev_nvme_policy_equal(bdev_nvme_get_policy(b), bdev_nvme_policy_to_come(c))) {
				config_write_policy(methods, b);
			}
		}
	}
}

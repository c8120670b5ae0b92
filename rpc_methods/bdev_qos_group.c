/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups of bdevs that share rate limits, and the minimums of their members. */
#include "bdev/qos_group.h"

#include <errno.h>
#include <string.h>

#include "rpc_methods/bdev.h"
#include "rpc_methods/rate.h"

static struct bdev_qos_group *qos_group_named(struct rpc_request *req, const char *param, const char *name)
{
	struct bdev_qos_group *g = bdev_qos_group_find(name);

	if (g == NULL) {
		rpc_error(req, -ENOENT,
			  "%s: there is no QoS group '%s'; bdev_get_qos_groups lists those that there are", param,
			  name);
	}
	return g;
}

/* --- The group --- */

struct qos_group_limits {
	char *name;
	struct rpc_rate rate;
	uint32_t burst_ms;
};

#define QOS_GROUP_LIMIT_PARAMS(name_help_)                                                                             \
	RPC_PARAM(struct qos_group_limits, name, RPC_STRING, RPC_REQUIRED, name_help_),                                \
		RPC_RATE_PARAMS(struct qos_group_limits), RPC_BURST_PARAM(struct qos_group_limits, SHARE_BURST_MS_MIN)

static const struct rpc_param group_create_params[] = {
	QOS_GROUP_LIMIT_PARAMS("of the group, at most 63 bytes; its limits may also be set later"), RPC_PARAM_END};
static const struct rpc_param group_set_limit_params[] = {QOS_GROUP_LIMIT_PARAMS("of the group"), RPC_PARAM_END};

static void group_limits_defaults(void *params)
{
	rpc_rate_defaults(&((struct qos_group_limits *)params)->rate);
}

static void group_create_refuse(struct rpc_request *req, const char *name, int rc)
{
	switch (rc) {
	case -EINVAL:
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "parameter \"name\" is \"%.256s\": allowed are 1 to %d bytes",
			  name, BDEV_QOS_GROUP_NAME_MAX);
		break;
	case -EEXIST:
		rpc_error(req, rc, "name: there is a QoS group '%s' already", name);
		break;
	case -ENOSPC:
		rpc_error(req, rc, "there are %d QoS groups, and no more are allowed", BDEV_QOS_GROUPS_MAX);
		break;
	default:
		rpc_error(req, rc, "%s", strerror(-rc));
	}
}

static void rpc_bdev_qos_group_create(struct rpc_request *req, void *params)
{
	const struct qos_group_limits *p = params;
	struct rate_limits limits = {.burst_ms = p->burst_ms};
	int rc;

	if (rpc_rate_is_given(&p->rate) && !rpc_rate_apply(req, &p->rate, &limits)) {
		return;
	}
	struct bdev_qos_group *g = bdev_qos_group_create(p->name, &rc);
	if (g == NULL) {
		group_create_refuse(req, p->name, rc);
		return;
	}
	enum rate_bucket_id id;
	bdev_qos_group_set_limits(g, &limits, &id); /* no minimums, so none is too high */
	rpc_reply_true(req);
}
RPC_METHOD("bdev_qos_group_create", rpc_bdev_qos_group_create, struct qos_group_limits, group_create_params,
	   RPC_RUNTIME, "Make a group of bdevs that share rate limits: bdev_set_qos_group puts bdevs into it",
	   .own = true, .defaults = group_limits_defaults, .result = "true")

static void group_limit_refuse(struct rpc_request *req, const struct bdev_qos_group *g,
			       const struct rate_limits *limits, enum rate_bucket_id id)
{
	struct rate_limits sum = bdev_qos_group_minimums(g, NULL);
	uint64_t value, least;
	const char *field = rpc_rate_name(id, limits, &value);

	rpc_rate_name(id, &sum, &least);
	rpc_error(req, -ERANGE, "%s %lu: the minimums of the group's bdevs are %lu together; give %lu or more, or 0",
		  field, value, least, least);
}

static void rpc_bdev_qos_group_set_limit(struct rpc_request *req, void *params)
{
	const struct qos_group_limits *p = params;
	struct bdev_qos_group *g = qos_group_named(req, "name", p->name);

	if (g == NULL) {
		return;
	}
	struct rate_limits limits = *bdev_qos_group_limits(g);
	bool is_burst_only = p->burst_ms != 0 && !rpc_rate_is_given(&p->rate);
	if (!is_burst_only && !rpc_rate_apply(req, &p->rate, &limits)) {
		return;
	}
	limits.burst_ms = p->burst_ms != 0 ? p->burst_ms : limits.burst_ms;
	enum rate_bucket_id id;
	if (bdev_qos_group_set_limits(g, &limits, &id) != 0) {
		group_limit_refuse(req, g, &limits, id);
	} else {
		rpc_reply_true(req);
	}
}
RPC_METHOD("bdev_qos_group_set_limit", rpc_bdev_qos_group_set_limit, struct qos_group_limits, group_set_limit_params,
	   RPC_RUNTIME, "Limit the rate of the I/O of all bdevs of a group together", .own = true,
	   .defaults = group_limits_defaults, .result = "true")

struct qos_group_name {
	char *name;
};

static const struct rpc_param group_delete_params[] = {
	RPC_PARAM(struct qos_group_name, name, RPC_STRING, RPC_REQUIRED, "of the group"), RPC_PARAM_END};

static void rpc_bdev_qos_group_delete(struct rpc_request *req, void *params)
{
	const struct qos_group_name *p = params;
	struct bdev_qos_group *g = qos_group_named(req, "name", p->name);

	if (g != NULL) {
		bdev_qos_group_delete(g);
		rpc_reply_true(req);
	}
}
RPC_METHOD("bdev_qos_group_delete", rpc_bdev_qos_group_delete, struct qos_group_name, group_delete_params, RPC_RUNTIME,
	   "Delete a group of bdevs that share rate limits; their I/O that waits for it goes on", .own = true,
	   .result = "true")

/* --- Its bdevs --- */

struct set_qos_group {
	char *name, *group;
	struct rpc_rate minimum;
};

static const struct rpc_param set_qos_group_params[] = {
	RPC_PARAM(struct set_qos_group, name, RPC_STRING, RPC_REQUIRED, "of the bdev"),
	RPC_PARAM(struct set_qos_group, group, RPC_STRING, RPC_OPTIONAL,
		  "name of the group, which the bdev leaves another one for; \"\": it is to be in none; if not given: "
		  "the one that it is in"),
	RPC_MIN_RATE_PARAMS(struct set_qos_group),
	RPC_PARAM_END,
};

static void set_qos_group_defaults(void *params)
{
	rpc_rate_defaults(&((struct set_qos_group *)params)->minimum);
}

/* They are more than the group has. */
static void minimum_refuse(struct rpc_request *req, const struct bdev_qos_group *g, const struct bdev *b,
			   const struct rate_limits *minimum, enum rate_bucket_id id)
{
	struct rate_limits of_others = bdev_qos_group_minimums(g, b);
	uint64_t value, limit, others;
	const char *field = rpc_rate_name(id, minimum, &value);

	rpc_rate_name(id, bdev_qos_group_limits(g), &limit);
	rpc_rate_name(id, &of_others, &others);
	rpc_error(req, -ERANGE, "min_%s %lu: the group '%s' has %lu, of which %lu are guaranteed to other bdevs", field,
		  value, bdev_qos_group_name(g), limit, others);
}

static void group_take_in(struct rpc_request *req, struct bdev_qos_group *g, struct bdev *b,
			  const struct rpc_rate *rate)
{
	struct rate_limits minimum = bdev_qos_group_of(b) == g ? *bdev_qos_group_minimum(b) : (struct rate_limits){0};
	enum rate_bucket_id id;

	if (!rpc_min_rate_apply(req, rate, &minimum)) {
		return;
	}
	int rc = bdev_qos_group_add(g, b, &minimum, &id);
	if (rc == -ERANGE) {
		minimum_refuse(req, g, b, &minimum, id);
	} else if (rc == -ENOSPC) {
		rpc_error(req, rc, "the group '%s' has %d bdevs, and no more are allowed", bdev_qos_group_name(g),
			  SHARE_MEMBERS_MAX);
	} else if (rc != 0) {
		rpc_error(req, rc, "%s", strerror(-rc));
	} else {
		rpc_reply_true(req);
	}
}

static void group_let_out(struct rpc_request *req, struct bdev *b, const struct rpc_rate *minimum)
{
	if (rpc_rate_is_given(minimum)) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "group: \"\" takes bdev '%s' out of its QoS group, and minimums need a group", bdev_name(b));
		return;
	}
	bdev_qos_group_remove(b);
	rpc_reply_true(req);
}

static void rpc_bdev_set_qos_group(struct rpc_request *req, void *params)
{
	const struct set_qos_group *p = params;
	struct bdev *b = rpc_bdev_find(req, p->name);
	struct bdev_qos_group *g;

	if (b == NULL) {
		return;
	}
	if (p->group == NULL && !rpc_rate_is_given(&p->minimum)) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "group: give it, or at least one of min_rw_ios_per_sec, "
			  "min_rw_mbytes_per_sec, min_r_mbytes_per_sec and min_w_mbytes_per_sec");
		return;
	}
	if (p->group == NULL) {
		g = bdev_qos_group_of(b);
		if (g == NULL) {
			rpc_error(req, RPC_ERROR_INVALID_PARAMS, "name: bdev '%s' is in no QoS group; give \"group\"",
				  bdev_name(b));
			return;
		}
	} else if (p->group[0] == '\0') {
		group_let_out(req, b, &p->minimum);
		return;
	} else if ((g = qos_group_named(req, "group", p->group)) == NULL) {
		return;
	}
	group_take_in(req, g, b, &p->minimum);
}
RPC_METHOD("bdev_set_qos_group", rpc_bdev_set_qos_group, struct set_qos_group, set_qos_group_params, RPC_RUNTIME,
	   "Put a bdev into a group that shares rate limits, with minimums that are guaranteed to it, or take it out",
	   .own = true, .defaults = set_qos_group_defaults, .result = "true")

/* --- The list --- */

struct get_qos_groups {
	char *name;
};

static const struct rpc_param get_qos_groups_params[] = {
	RPC_PARAM(struct get_qos_groups, name, RPC_STRING, RPC_OPTIONAL, "only this group"), RPC_PARAM_END};

static json_t *member_json(const struct bdev *b)
{
	json_t *o = json_object();
	struct rate_counts c;

	bdev_qos_group_get_bdev_counts(b, &c);
	json_object_set_new(o, "name", rpc_string(bdev_name(b)));
	rpc_min_rate_add(o, bdev_qos_group_minimum(b));
	rpc_rate_counts_add(o, &c);
	return o;
}

static json_t *group_json(const struct bdev_qos_group *g)
{
	const struct rate_limits *l = bdev_qos_group_limits(g);
	json_t *o = json_object(), *bdevs = json_array();
	struct rate_counts c;

	bdev_qos_group_get_counts(g, &c);
	json_object_set_new(o, "name", rpc_string(bdev_qos_group_name(g)));
	rpc_rate_add(o, l, false);
	rpc_burst_add(o, l);
	rpc_rate_counts_add(o, &c);
	for (const struct bdev *b = NULL; (b = bdev_qos_group_next_bdev(g, b)) != NULL;) {
		json_array_append_new(bdevs, member_json(b));
	}
	json_object_set_new(o, "bdevs", bdevs);
	return o;
}

static void rpc_bdev_get_qos_groups(struct rpc_request *req, void *params)
{
	const struct get_qos_groups *p = params;
	const struct bdev_qos_group *only = p->name != NULL ? qos_group_named(req, "name", p->name) : NULL;

	if (p->name != NULL && only == NULL) {
		return;
	}
	json_t *list = json_array();
	for (const struct bdev_qos_group *g = NULL; (g = bdev_qos_group_next(g)) != NULL;) {
		if (only == NULL || g == only) {
			json_array_append_new(list, group_json(g));
		}
	}
	rpc_reply(req, list);
}
RPC_METHOD("bdev_get_qos_groups", rpc_bdev_get_qos_groups, struct get_qos_groups, get_qos_groups_params, RPC_RUNTIME,
	   "List the groups of bdevs that share rate limits, and what has gone through and waited", .own = true,
	   .result = "[{name: string, " RPC_RATE_SHAPE ", burst_ms: int, " RPC_RATE_COUNTS_SHAPE
		     ", bdevs: [{name: string, " RPC_MIN_RATE_SHAPE ", " RPC_RATE_COUNTS_SHAPE "}]}]")

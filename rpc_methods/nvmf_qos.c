/* SPDX-License-Identifier: BSD-3-Clause */
/* Rate limits of a subsystem's hosts. */
#include <errno.h>
#include <string.h>

#include "nvmf/qos.h"
#include "rpc_methods/nvmf.h"
#include "rpc_methods/rate.h"

struct set_qos_limit {
	struct rpc_nvmf_where where;
	char *host;
	struct rpc_rate rate, minimum;
	uint32_t burst_ms;
};

static const struct rpc_param set_qos_limit_params[] = {
	RPC_NVMF_WHERE_PARAMS(struct set_qos_limit),
	RPC_PARAM(struct set_qos_limit, host, RPC_STRING, RPC_OPTIONAL,
		  "NQN of the host whose limits these are, over all its connections, those to come included; if not "
		  "given, they are those of all hosts together"),
	RPC_RATE_PARAMS(struct set_qos_limit),
	RPC_BURST_PARAM(struct set_qos_limit, 1),
	RPC_MIN_RATE_PARAMS(struct set_qos_limit),
	RPC_PARAM_END,
};

static void set_qos_limit_defaults(void *params)
{
	struct set_qos_limit *p = params;

	rpc_rate_defaults(&p->rate);
	rpc_rate_defaults(&p->minimum);
}

/* The minimums of all hosts would be more than the limit of all hosts together. */
static void set_qos_limit_refuse_sum(struct rpc_request *req, const struct nvmf_subsystem *s, const char *host,
				     const struct nvmf_qos_set *set, enum rate_bucket_id id)
{
	const struct nvmf_qos *all = nvmf_qos_find(s, NULL);
	struct rate_limits others = nvmf_qos_minimums(s, host);
	uint64_t value, limit, of_others;
	const char *field;

	rpc_rate_name(id, &others, &of_others);
	if (host == NULL) {
		field = rpc_rate_name(id, &set->limits, &value);
		rpc_error(req, -ERANGE, "%s %lu: the minimums of hosts are %lu together; give %lu or more, or 0", field,
			  value, of_others, of_others);
		return;
	}
	field = rpc_rate_name(id, &set->minimum, &value);
	rpc_rate_name(id, nvmf_qos_limits(all), &limit);
	rpc_error(req, -ERANGE,
		  "min_%s %lu: the limit of all hosts together is %lu, of which %lu are guaranteed to other hosts",
		  field, value, limit, of_others);
}

static void set_qos_limit_refuse(struct rpc_request *req, const struct set_qos_limit *p, int rc)
{
	switch (rc) {
	case -EINVAL:
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "parameter \"host\" is \"%.256s\": allowed is an NQN",
			  p->host);
		break;
	case -EOPNOTSUPP:
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "parameter \"nqn\" is \"%s\": a discovery subsystem has no I/O to be limited", p->where.nqn);
		break;
	case -ENOSPC:
		rpc_error(req, rc, "%d hosts of the subsystem have limits, and no more are allowed", NVMF_QOS_MAX);
		break;
	default:
		rpc_error(req, rc, "%s", strerror(-rc));
	}
}

/* Puts what was given into *set, which has what holds now. False: it was refused, and the request has been answered. */
static bool set_qos_limit_apply(struct rpc_request *req, const struct set_qos_limit *p, struct nvmf_qos_set *set)
{
	bool has_minimum = rpc_rate_is_given(&p->minimum);

	if (has_minimum && p->host == NULL) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "host: minimums are a host's part of the limit of all hosts together; give \"host\"");
		return false;
	}
	if (!has_minimum && !rpc_rate_is_given(&p->rate)) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "give at least one of rw_ios_per_sec, rw_mbytes_per_sec, r_mbytes_per_sec and "
			  "w_mbytes_per_sec, or of a host's min_rw_ios_per_sec and so on");
		return false;
	}
	if (rpc_rate_is_given(&p->rate) && !rpc_rate_apply(req, &p->rate, &set->limits)) {
		return false;
	}
	set->limits.burst_ms = p->burst_ms != 0 ? p->burst_ms : set->limits.burst_ms;
	return rpc_min_rate_apply(req, &p->minimum, &set->minimum);
}

static void rpc_set_qos_limit(struct rpc_request *req, void *params)
{
	const struct set_qos_limit *p = params;
	struct nvmf_subsystem *s = rpc_nvmf_subsystem_to_change(req, p->where.tgt_name, p->where.nqn);
	struct nvmf_qos_set set = {0};
	enum rate_bucket_id id;

	if (s == NULL) {
		return;
	}
	const struct nvmf_qos *q = nvmf_qos_find(s, p->host);
	if (q != NULL) {
		set = (struct nvmf_qos_set){.limits = *nvmf_qos_limits(q), .minimum = *nvmf_qos_minimum(q)};
	}
	if (!set_qos_limit_apply(req, p, &set)) {
		return;
	}
	int rc = nvmf_subsystem_set_qos(s, p->host, &set, &id);
	if (rc == -ERANGE) {
		set_qos_limit_refuse_sum(req, s, p->host, &set, id);
	} else if (rc != 0) {
		set_qos_limit_refuse(req, p, rc);
	} else {
		rpc_reply_true(req);
	}
}
RPC_METHOD("nvmf_subsystem_set_qos_limit", rpc_set_qos_limit, struct set_qos_limit, set_qos_limit_params, RPC_RUNTIME,
	   "Limit the rate of a host's I/O in a subsystem, or that of all its hosts together, and guarantee a host its "
	   "part",
	   .own = true, .defaults = set_qos_limit_defaults, .result = "true")

struct get_qos_limits {
	struct rpc_nvmf_where where;
};

static const struct rpc_param get_qos_limits_params[] = {
	RPC_NVMF_WHERE_PARAMS(struct get_qos_limits),
	RPC_PARAM_END,
};

static json_t *qos_json(const struct nvmf_qos *q)
{
	const struct rate_limits *l = nvmf_qos_limits(q);
	struct rate_counts counts;
	json_t *o = json_object();

	nvmf_qos_get_counts(q, &counts);
	json_object_set_new(o, "host", nvmf_qos_host(q) != NULL ? rpc_string(nvmf_qos_host(q)) : json_null());
	rpc_rate_add(o, l, false);
	rpc_burst_add(o, l);
	rpc_min_rate_add(o, nvmf_qos_minimum(q));
	rpc_rate_counts_add(o, &counts);
	return o;
}

static void rpc_get_qos_limits(struct rpc_request *req, void *params)
{
	const struct get_qos_limits *p = params;
	const struct nvmf_subsystem *s = rpc_nvmf_subsystem(req, p->where.tgt_name, p->where.nqn);

	if (s == NULL) {
		return;
	}
	json_t *list = json_array();
	for (const struct nvmf_qos *q = nvmf_qos_next(s, NULL); q != NULL; q = nvmf_qos_next(s, q)) {
		json_array_append_new(list, qos_json(q));
	}
	rpc_reply(req, list);
}
RPC_METHOD("nvmf_subsystem_get_qos_limits", rpc_get_qos_limits, struct get_qos_limits, get_qos_limits_params,
	   RPC_RUNTIME,
	   "List the rate limits of a subsystem's hosts, and what has gone through and waited since they were set",
	   .result = "[{host: string|null, " RPC_RATE_SHAPE ", burst_ms: int, " RPC_MIN_RATE_SHAPE
		     ", " RPC_RATE_COUNTS_SHAPE "}]")

/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc_methods/rate.h"

#include <errno.h>

#include "util/share.h"

#define MAX_IOS    1000000000
#define MAX_MBYTES 1000000

#define KEEP UINT64_MAX /* not given: as it is */

void rpc_rate_defaults(struct rpc_rate *rate)
{
	rate->rw_ios_per_sec = rate->rw_mbytes_per_sec = rate->r_mbytes_per_sec = rate->w_mbytes_per_sec = KEEP;
}

bool rpc_rate_is_given(const struct rpc_rate *r)
{
	return r->rw_ios_per_sec != KEEP || r->rw_mbytes_per_sec != KEEP || r->r_mbytes_per_sec != KEEP ||
	       r->w_mbytes_per_sec != KEEP;
}

static bool rate_take(struct rpc_request *req, const char *prefix, const char *field, uint64_t value, uint64_t max,
		      unsigned shift, uint64_t *limit)
{
	if (value != KEEP && value > max) {
		rpc_error(req, -EINVAL, "%s%s %lu: at most %lu is allowed", prefix, field, value, max);
		return false;
	}
	*limit = value != KEEP ? value << shift : *limit;
	return true;
}

static bool rate_take_all(struct rpc_request *req, const char *prefix, const struct rpc_rate *r, struct rate_limits *l)
{
	return rate_take(req, prefix, "rw_ios_per_sec", r->rw_ios_per_sec, MAX_IOS, 0, &l->rw_ios_per_sec) &&
	       rate_take(req, prefix, "rw_mbytes_per_sec", r->rw_mbytes_per_sec, MAX_MBYTES, 20,
			 &l->rw_bytes_per_sec) &&
	       rate_take(req, prefix, "r_mbytes_per_sec", r->r_mbytes_per_sec, MAX_MBYTES, 20, &l->r_bytes_per_sec) &&
	       rate_take(req, prefix, "w_mbytes_per_sec", r->w_mbytes_per_sec, MAX_MBYTES, 20, &l->w_bytes_per_sec);
}

bool rpc_rate_apply(struct rpc_request *req, const struct rpc_rate *r, struct rate_limits *l)
{
	if (!rpc_rate_is_given(r)) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "give at least one of rw_ios_per_sec, rw_mbytes_per_sec, r_mbytes_per_sec and "
			  "w_mbytes_per_sec");
		return false;
	}
	return rate_take_all(req, "", r, l);
}

bool rpc_min_rate_apply(struct rpc_request *req, const struct rpc_rate *r, struct rate_limits *minimum)
{
	return rate_take_all(req, "min_", r, minimum);
}

static const struct rate_field {
	const char *name, *min_name;
	unsigned shift;
} rate_fields[RATE_BUCKETS] = {
	[RATE_RW_IOS] = {"rw_ios_per_sec", "min_rw_ios_per_sec", 0},
	[RATE_RW_BYTES] = {"rw_mbytes_per_sec", "min_rw_mbytes_per_sec", 20},
	[RATE_R_BYTES] = {"r_mbytes_per_sec", "min_r_mbytes_per_sec", 20},
	[RATE_W_BYTES] = {"w_mbytes_per_sec", "min_w_mbytes_per_sec", 20},
};

const char *rpc_rate_name(enum rate_bucket_id id, const struct rate_limits *limits, uint64_t *value)
{
	*value = share_limit(limits, id) >> rate_fields[id].shift;
	return rate_fields[id].name;
}

void rpc_rate_add(json_t *o, const struct rate_limits *l, bool nonzero)
{
	uint64_t value;

	for (unsigned i = 0; i < RATE_BUCKETS; i++) {
		const char *name = rpc_rate_name((enum rate_bucket_id)i, l, &value);
		if (!nonzero || value != 0) {
			json_object_set_new(o, name, rpc_uint(value));
		}
	}
}

void rpc_min_rate_add(json_t *o, const struct rate_limits *minimum)
{
	uint64_t value;

	for (unsigned i = 0; i < RATE_BUCKETS; i++) {
		rpc_rate_name((enum rate_bucket_id)i, minimum, &value);
		json_object_set_new(o, rate_fields[i].min_name, rpc_uint(value));
	}
}

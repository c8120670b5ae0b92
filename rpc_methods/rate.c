/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc_methods/rate.h"

#include <errno.h>
#include <stddef.h>

#define MAX_IOS    1000000000
#define MAX_MBYTES 1000000

#define KEEP UINT64_MAX /* not given: as it is */

void rpc_rate_defaults(struct rpc_rate *rate)
{
	rate->rw_ios_per_sec = rate->rw_mbytes_per_sec = rate->r_mbytes_per_sec = rate->w_mbytes_per_sec = KEEP;
}

static const struct rate_field {
	const char *name, *min_name;
	size_t param, limit; /* offsets in struct rpc_rate and struct rate_limits */
	uint64_t max;
	unsigned shift;
} rate_fields[RATE_BUCKETS] = {
#define RATE_FIELD(name_, limit_)                                                                                      \
	.name = #name_, .min_name = "min_" #name_, .param = offsetof(struct rpc_rate, name_),                          \
	.limit = offsetof(struct rate_limits, limit_)
	[RATE_RW_IOS] = {RATE_FIELD(rw_ios_per_sec, rw_ios_per_sec), .max = MAX_IOS, .shift = 0},
	[RATE_RW_BYTES] = {RATE_FIELD(rw_mbytes_per_sec, rw_bytes_per_sec), .max = MAX_MBYTES, .shift = 20},
	[RATE_R_BYTES] = {RATE_FIELD(r_mbytes_per_sec, r_bytes_per_sec), .max = MAX_MBYTES, .shift = 20},
	[RATE_W_BYTES] = {RATE_FIELD(w_mbytes_per_sec, w_bytes_per_sec), .max = MAX_MBYTES, .shift = 20},
};

static uint64_t rate_given(const struct rpc_rate *r, const struct rate_field *f)
{
	return *(const uint64_t *)((const char *)r + f->param);
}

bool rpc_rate_is_given(const struct rpc_rate *r)
{
	bool is_given = false;

	for (unsigned i = 0; i < RATE_BUCKETS; i++) {
		is_given = is_given || rate_given(r, &rate_fields[i]) != KEEP;
	}
	return is_given;
}

static bool rate_take_all(struct rpc_request *req, bool min, const struct rpc_rate *r, struct rate_limits *l)
{
	for (unsigned i = 0; i < RATE_BUCKETS; i++) {
		const struct rate_field *f = &rate_fields[i];
		uint64_t value = rate_given(r, f);
		if (value == KEEP) {
			continue;
		}
		if (value > f->max) {
			rpc_error(req, -EINVAL, "%s %lu: at most %lu is allowed", min ? f->min_name : f->name, value,
				  f->max);
			return false;
		}
		*(uint64_t *)((char *)l + f->limit) = value << f->shift;
	}
	return true;
}

bool rpc_rate_apply(struct rpc_request *req, const struct rpc_rate *r, struct rate_limits *l)
{
	if (!rpc_rate_is_given(r)) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "give at least one of rw_ios_per_sec, rw_mbytes_per_sec, r_mbytes_per_sec and "
			  "w_mbytes_per_sec");
		return false;
	}
	return rate_take_all(req, false, r, l);
}

bool rpc_min_rate_apply(struct rpc_request *req, const struct rpc_rate *r, struct rate_limits *minimum)
{
	return rate_take_all(req, true, r, minimum);
}

const char *rpc_rate_name(enum rate_bucket_id id, const struct rate_limits *limits, uint64_t *value)
{
	*value = rate_limit(limits, id) >> rate_fields[id].shift;
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

void rpc_burst_add(json_t *o, const struct rate_limits *l)
{
	json_object_set_new(o, "burst_ms", rpc_uint(l->burst_ms != 0 ? l->burst_ms : RATE_BURST_MS));
}

void rpc_rate_counts_add(json_t *o, const struct rate_counts *c)
{
	json_object_set_new(o, "reads", rpc_uint(c->ios[RATE_READS]));
	json_object_set_new(o, "writes", rpc_uint(c->ios[RATE_WRITES]));
	json_object_set_new(o, "bytes_read", rpc_uint(c->bytes[RATE_READS]));
	json_object_set_new(o, "bytes_written", rpc_uint(c->bytes[RATE_WRITES]));
	json_object_set_new(o, "waits", rpc_uint(c->waits));
	json_object_set_new(o, "waited_us", rpc_uint(c->waited_us));
}

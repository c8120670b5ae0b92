/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc_methods/rate.h"

#include <errno.h>

#define MAX_IOS    1000000000
#define MAX_MBYTES 1000000

#define KEEP UINT64_MAX /* not given: as it is */

void rpc_rate_defaults(struct rpc_rate *rate)
{
	rate->rw_ios_per_sec = rate->rw_mbytes_per_sec = rate->r_mbytes_per_sec = rate->w_mbytes_per_sec = KEEP;
}

static bool rate_take(struct rpc_request *req, const char *field, uint64_t value, uint64_t max, unsigned shift,
		      uint64_t *limit)
{
	if (value != KEEP && value > max) {
		rpc_error(req, -EINVAL, "%s %lu: at most %lu is allowed", field, value, max);
		return false;
	}
	*limit = value != KEEP ? value << shift : *limit;
	return true;
}

bool rpc_rate_apply(struct rpc_request *req, const struct rpc_rate *r, struct rate_limits *l)
{
	if (r->rw_ios_per_sec == KEEP && r->rw_mbytes_per_sec == KEEP && r->r_mbytes_per_sec == KEEP &&
	    r->w_mbytes_per_sec == KEEP) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "give at least one of rw_ios_per_sec, rw_mbytes_per_sec, r_mbytes_per_sec and "
			  "w_mbytes_per_sec");
		return false;
	}
	return rate_take(req, "rw_ios_per_sec", r->rw_ios_per_sec, MAX_IOS, 0, &l->rw_ios_per_sec) &&
	       rate_take(req, "rw_mbytes_per_sec", r->rw_mbytes_per_sec, MAX_MBYTES, 20, &l->rw_bytes_per_sec) &&
	       rate_take(req, "r_mbytes_per_sec", r->r_mbytes_per_sec, MAX_MBYTES, 20, &l->r_bytes_per_sec) &&
	       rate_take(req, "w_mbytes_per_sec", r->w_mbytes_per_sec, MAX_MBYTES, 20, &l->w_bytes_per_sec);
}

void rpc_rate_add(json_t *o, const struct rate_limits *l, bool nonzero)
{
	const struct {
		const char *name;
		uint64_t value;
	} fields[] = {
		{"rw_ios_per_sec", l->rw_ios_per_sec},
		{"rw_mbytes_per_sec", l->rw_bytes_per_sec >> 20},
		{"r_mbytes_per_sec", l->r_bytes_per_sec >> 20},
		{"w_mbytes_per_sec", l->w_bytes_per_sec >> 20},
	};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		if (!nonzero || fields[i].value != 0) {
			json_object_set_new(o, fields[i].name, rpc_uint(fields[i].value));
		}
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Rate limits as parameters and in answers. Control thread. */
#ifndef RPC_METHODS_RATE_H
#define RPC_METHODS_RATE_H

#include "rpc/rpc.h"
#include "util/rate.h"

/* The parameters of a method that sets limits: the member `rate` of its struct. */
struct rpc_rate {
	uint64_t rw_ios_per_sec, rw_mbytes_per_sec, r_mbytes_per_sec, w_mbytes_per_sec;
};
#define RPC_RATE_PARAM(type_, name_, help_)                                                                            \
	{                                                                                                              \
		.name = #name_, .type = RPC_UINT64, .offset = offsetof(type_, rate.name_), .size = sizeof(uint64_t),   \
		.help = help_ "; 0: no limit", .max = UINT64_MAX                                                       \
	}
#define RPC_RATE_PARAMS(type_)                                                                                         \
	RPC_RATE_PARAM(type_, rw_ios_per_sec, "reads and writes per second"),                                          \
		RPC_RATE_PARAM(type_, rw_mbytes_per_sec, "MiB read and written per second"),                           \
		RPC_RATE_PARAM(type_, r_mbytes_per_sec, "MiB read per second"),                                        \
		RPC_RATE_PARAM(type_, w_mbytes_per_sec, "MiB written per second")

/* What a parameter is that was not given: for RPC_METHOD's .defaults. */
void rpc_rate_defaults(struct rpc_rate *rate);
/* Puts those that were given into limits, which has the present ones. False: one is too high, or none was given; the
 * request has been answered. */
bool rpc_rate_apply(struct rpc_request *req, const struct rpc_rate *rate, struct rate_limits *limits);
/* Adds the four limits to o; nonzero: only those that there are. */
void rpc_rate_add(json_t *o, const struct rate_limits *limits, bool nonzero);
/* For RPC_METHOD's .result. */
#define RPC_RATE_SHAPE "rw_ios_per_sec: int, rw_mbytes_per_sec: int, r_mbytes_per_sec: int, w_mbytes_per_sec: int"

#endif

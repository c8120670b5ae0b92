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

/* The same of the burst time: the member burst_ms. */
#define RPC_BURST_PARAM(type_, min_)                                                                                   \
	RPC_PARAM(type_, burst_ms, RPC_UINT32, RPC_OPTIONAL,                                                           \
		  "milliseconds of idle time that are saved up for a burst; by default 20", .min = (min_),             \
		  .max = RATE_BURST_MS_MAX)

/* The same for minimums: the member `minimum` of its struct, and names that begin with min_. */
#define RPC_MIN_RATE_PARAM(type_, name_, help_)                                                                        \
	{                                                                                                              \
		.name = "min_" #name_, .type = RPC_UINT64, .offset = offsetof(type_, minimum.name_),                   \
		.size = sizeof(uint64_t), .help = help_ "; 0: none", .max = UINT64_MAX                                 \
	}
#define RPC_MIN_RATE_PARAMS(type_)                                                                                     \
	RPC_MIN_RATE_PARAM(type_, rw_ios_per_sec, "guaranteed reads and writes per second"),                           \
		RPC_MIN_RATE_PARAM(type_, rw_mbytes_per_sec, "guaranteed MiB read and written per second"),            \
		RPC_MIN_RATE_PARAM(type_, r_mbytes_per_sec, "guaranteed MiB read per second"),                         \
		RPC_MIN_RATE_PARAM(type_, w_mbytes_per_sec, "guaranteed MiB written per second")

/* What a parameter is that was not given: for RPC_METHOD's .defaults. */
void rpc_rate_defaults(struct rpc_rate *rate);
/* Whether at least one was given. */
bool rpc_rate_is_given(const struct rpc_rate *rate);
/* Puts those that were given into limits, which has the present ones. False: one is too high, or none was given; the
 * request has been answered. */
bool rpc_rate_apply(struct rpc_request *req, const struct rpc_rate *rate, struct rate_limits *limits);
/* The same for minimums, of which none need be given. */
bool rpc_min_rate_apply(struct rpc_request *req, const struct rpc_rate *rate, struct rate_limits *minimum);
/* Adds the four limits to o; nonzero: only those that there are. */
void rpc_rate_add(json_t *o, const struct rate_limits *limits, bool nonzero);
/* The same for minimums. */
void rpc_min_rate_add(json_t *o, const struct rate_limits *minimum);
/* Adds the burst time that holds. */
void rpc_burst_add(json_t *o, const struct rate_limits *limits);
/* Adds what has been counted. */
void rpc_rate_counts_add(json_t *o, const struct rate_counts *counts);
/* The name of a limit's parameter, and in *value what it would be there. */
const char *rpc_rate_name(enum rate_bucket_id id, const struct rate_limits *limits, uint64_t *value);
/* For RPC_METHOD's .result. */
#define RPC_RATE_SHAPE        "rw_ios_per_sec: int, rw_mbytes_per_sec: int, r_mbytes_per_sec: int, w_mbytes_per_sec: int"
#define RPC_RATE_COUNTS_SHAPE "reads: int, writes: int, bytes_read: int, bytes_written: int, waits: int, waited_us: int"
#define RPC_MIN_RATE_SHAPE                                                                                             \
	"min_rw_ios_per_sec: int, min_rw_mbytes_per_sec: int, min_r_mbytes_per_sec: int, min_w_mbytes_per_sec: int"

#endif

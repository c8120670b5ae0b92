/* SPDX-License-Identifier: BSD-3-Clause */
/* The tracepoint of LTTng-UST that bench-trace_peers compares with ours. Its headers include this file again. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER bench
#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "bench/trace_lttng.h"

#if !defined(BENCH_TRACE_LTTNG_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define BENCH_TRACE_LTTNG_H

#include <stdint.h>
#include <lttng/tracepoint.h>

LTTNG_UST_TRACEPOINT_EVENT(bench, four, LTTNG_UST_TP_ARGS(uint64_t, a, uint64_t, b, uint64_t, c, uint64_t, d),
			   LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(uint64_t, a, a)
						       lttng_ust_field_integer(uint64_t, b, b)
							       lttng_ust_field_integer(uint64_t, c, c)
								       lttng_ust_field_integer(uint64_t, d, d)))

#endif

#include <lttng/tracepoint-event.h>

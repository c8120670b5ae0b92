/* SPDX-License-Identifier: BSD-3-Clause */
/* The tracepoint of DPDK's recorder (rte_trace) that bench-trace_peers compares with ours. Not for anything else:
 * trace_rte.c includes it in another sense. */
#ifndef BENCH_TRACE_PEERS_H
#define BENCH_TRACE_PEERS_H

#include <stdint.h>
#include <rte_trace_point.h>

RTE_TRACE_POINT(bench_rte_four, RTE_TRACE_POINT_ARGS(uint64_t a, uint64_t b, uint64_t c, uint64_t d),
		rte_trace_point_emit_u64(a);
		rte_trace_point_emit_u64(b); rte_trace_point_emit_u64(c); rte_trace_point_emit_u64(d);)

#endif

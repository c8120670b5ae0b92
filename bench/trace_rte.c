/* SPDX-License-Identifier: BSD-3-Clause */
/* Registers the tracepoint: included behind rte_trace_point_register.h, the header makes a function that describes it.
 */
#include <rte_trace_point_register.h>

#include "bench/trace_peers.h"

RTE_TRACE_POINT_REGISTER(bench_rte_four, bench.rte.four)

/* SPDX-License-Identifier: BSD-3-Clause */
/* The probes of LTTng-UST's tracepoint. */
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "bench/trace_lttng.h"

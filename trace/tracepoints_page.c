/* SPDX-License-Identifier: BSD-3-Clause */
/* tracepoints-page > doc/tracepoints.md */
#include "trace/trace_def.h"

int main(void)
{
	trace_print_reference(stdout);
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* -e and the RPCs that enable tracepoints: any string gives masks of groups that exist, help, or an error with
 * words. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "trace/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct trace_masks masks;
	char error[TRACE_ERROR_MAX];
	char *spec = malloc(size + 1);

	if (spec == NULL) {
		return 0;
	}
	memcpy(spec, data, size);
	spec[size] = '\0';
	int rc = trace_spec_parse(spec, &masks, error);
	if ((rc != 0 && rc != TRACE_SPEC_HELP && rc != -EINVAL) || (rc < 0) != (error[0] != '\0')) {
		abort();
	}
	for (unsigned g = 0; g < TRACE_NUM_GROUPS; g++) {
		if (masks.group[g] != 0 && trace_group_info(g) == NULL) {
			abort();
		}
	}
	free(spec);
	return 0;
}

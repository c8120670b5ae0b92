/* SPDX-License-Identifier: BSD-3-Clause */
/* tracepoints.def as tables; private to the room. */
#ifndef TRACE_TRACE_DEF_H
#define TRACE_TRACE_DEF_H

#include "trace/trace.h"

struct trace_type_info {
	const char *name; /* NULL: no such type */
	char prefix;
	const char *help;
};
extern const struct trace_type_info trace_owner_types[TRACE_NUM_TYPES];
extern const struct trace_type_info trace_object_types[TRACE_NUM_TYPES];

struct trace_relation_info {
	uint16_t tpoint_id;
	struct trace_file_relation relation;
};
extern const struct trace_relation_info trace_relations[];
extern const size_t trace_num_relations;

/* The line of the file's TPOINT section, with relations; all zeroes if there is no such tracepoint. id <
 * TRACE_NUM_TPOINTS. */
struct trace_file_tpoint trace_tpoint_def(unsigned id);

/* The reference page doc/tracepoints.md. */
void trace_print_reference(FILE *out);

#endif

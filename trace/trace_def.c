/* SPDX-License-Identifier: BSD-3-Clause */
/* tracepoints.def as tables: for the file, for -e, and for the reference page. */
#include <errno.h>
#include <string.h>

#include "trace/trace_def.h"

static const struct trace_group_info groups[TRACE_NUM_GROUPS] = {
#define TRACE_GROUP(id_, number_, name_, help_) [number_] = {.name = name_, .help = help_},
#include "trace/tracepoints.def"
};

const struct trace_type_info trace_owner_types[TRACE_NUM_TYPES] = {
#define TRACE_OWNER(id_, number_, prefix_, help_) [number_] = {#id_, prefix_, help_},
#include "trace/tracepoints.def"
};

const struct trace_type_info trace_object_types[TRACE_NUM_TYPES] = {
#define TRACE_OBJECT(id_, number_, prefix_, help_) [number_] = {#id_, prefix_, help_},
#include "trace/tracepoints.def"
};

#define NEW                          1
#define OLD                          0
#define ARG(c_, kind_, size_, name_) {.name = #name_, .type = TRACE_ARG_##kind_, .size = size_},
static const struct trace_tpoint_info tpoints[TRACE_NUM_TPOINTS] = {
#define TRACE_TPOINT(group_, number_, name_, owner_, object_, new_, help_, ...)                                        \
	[TRACE_TPOINT_##name_] = {                                                                                     \
		.help = help_,                                                                                         \
		.def =                                                                                                 \
			{                                                                                              \
				.name = #name_,                                                                        \
				.tpoint_id = TRACE_TPOINT_##name_,                                                     \
				.owner_type = TRACE_OWNER_##owner_,                                                    \
				.object_type = TRACE_OBJECT_##object_,                                                 \
				.new_object = new_,                                                                    \
				.num_args = 0 FOR_ARGS(PLUS_ONE, , ##__VA_ARGS__),                                     \
				.args = {FOR_ARGS(ARG, , ##__VA_ARGS__)},                                              \
			},                                                                                             \
	},
#define PLUS_ONE(...) +1
#include "trace/tracepoints.def"
};

const struct trace_relation_info trace_relations[] = {
#define TRACE_RELATION(tpoint_, object_, arg_) {TRACE_TPOINT_##tpoint_, {TRACE_OBJECT_##object_, arg_}},
#include "trace/tracepoints.def"
};
const size_t trace_num_relations = ARRAY_SIZE(trace_relations);

/* A group exists if it has tracepoints. */
const struct trace_group_info *trace_group_info(unsigned group)
{
	return group < TRACE_NUM_GROUPS && groups[group].name != NULL ? &groups[group] : NULL;
}

uint64_t trace_group_tpoints(unsigned group)
{
	uint64_t mask = 0;

	for (unsigned n = 0; n < TRACE_TPOINTS_PER_GROUP; n++) {
		mask |= (uint64_t)(trace_tpoint_info(group * TRACE_TPOINTS_PER_GROUP + n) != NULL) << n;
	}
	return mask;
}

int trace_group_by_name(const char *name)
{
	for (unsigned g = 0; g < TRACE_NUM_GROUPS; g++) {
		if (groups[g].name != NULL && strcmp(groups[g].name, name) == 0) {
			return (int)g;
		}
	}
	return -ENOENT;
}

const struct trace_tpoint_info *trace_tpoint_info(unsigned id)
{
	return id < TRACE_NUM_TPOINTS && tpoints[id].help != NULL ? &tpoints[id] : NULL;
}

struct trace_file_tpoint trace_tpoint_def(unsigned id)
{
	struct trace_file_tpoint def = tpoints[id].def;
	unsigned n = 0;

	for (size_t i = 0; i < trace_num_relations && n < TRACE_MAX_RELATIONS; i++) {
		if (trace_relations[i].tpoint_id == id) {
			def.related[n++] = trace_relations[i].relation;
		}
	}
	return def;
}

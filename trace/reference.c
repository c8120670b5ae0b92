/* SPDX-License-Identifier: BSD-3-Clause */
/* doc/tracepoints.md from tracepoints.def. build/trace/tracepoints-page writes it, the unit test `tracepoints`
 * compares. */
#include <string.h>

#include "trace/trace_def.h"

static void print_types(FILE *out, const char *title, const struct trace_type_info *types)
{
	fprintf(out, "\n## %s\n\n| number | name | prefix | what it is |\n| --- | --- | --- | --- |\n", title);
	for (unsigned i = 1; i < TRACE_NUM_TYPES; i++) {
		if (types[i].name != NULL) {
			fprintf(out, "| 0x%02x | %s | %c | %s |\n", i, types[i].name, types[i].prefix, types[i].help);
		}
	}
}

static const char *arg_kind(const struct trace_file_arg *a)
{
	static const char *const names[] = {[TRACE_ARG_INT] = "int", [TRACE_ARG_PTR] = "ptr", [TRACE_ARG_STR] = "str"};

	return names[a->type];
}

static void print_args(FILE *out, const struct trace_file_tpoint *t)
{
	for (unsigned a = 0; a < t->num_args; a++) {
		fprintf(out, "%s%s:%s%u", a > 0 ? ", " : "", t->args[a].name, arg_kind(&t->args[a]), t->args[a].size);
	}
}

static void print_relations(FILE *out, const struct trace_file_tpoint *t)
{
	for (unsigned r = 0; r < TRACE_MAX_RELATIONS && t->related[r].object_type != 0; r++) {
		fprintf(out, "%s%s by %s", r > 0 ? ", " : "", trace_object_types[t->related[r].object_type].name,
			t->args[t->related[r].arg_index].name);
	}
}

static void print_tpoint(FILE *out, unsigned id, const char *help)
{
	struct trace_file_tpoint t = trace_tpoint_def(id);

	fprintf(out, "| %u | %s | %s | %s%s | ", id % TRACE_TPOINTS_PER_GROUP, t.name,
		t.owner_type != 0 ? trace_owner_types[t.owner_type].name : "",
		t.object_type != 0 ? trace_object_types[t.object_type].name : "", t.new_object ? " (new)" : "");
	print_args(out, &t);
	fputs(" | ", out);
	print_relations(out, &t);
	fprintf(out, " | %s |\n", help);
}

static void print_group(FILE *out, unsigned group)
{
	fprintf(out, "\n## %s\n\nGroup 0x%02x, mask 0x%x: %s.\n\n", trace_group_info(group)->name, group, 1u << group,
		trace_group_info(group)->help);
	fputs("| n | name | owner | object | arguments | related to | what happened |\n", out);
	fputs("| --- | --- | --- | --- | --- | --- | --- |\n", out);
	for (unsigned n = 0; n < TRACE_TPOINTS_PER_GROUP; n++) {
		unsigned id = group * TRACE_TPOINTS_PER_GROUP + n;
		if (trace_tpoint_info(id) != NULL) {
			print_tpoint(out, id, trace_tpoint_info(id)->help);
		}
	}
}

void trace_print_reference(FILE *out)
{
	fputs("<!-- SPDX-License-Identifier: BSD-3-Clause -->\n"
	      "<!-- Written by build/trace/tracepoints-page from trace/tracepoints.def; do not edit. -->\n"
	      "# Tracepoints\n\n"
	      "What the recorder can record. An event has a time, an owner, a size, an object and its "
	      "arguments; the\n"
	      "first event of an object is marked (new). Arguments are given as name, kind and bytes. How to "
	      "enable,\n"
	      "read and add them: [tracing.md](tracing.md).\n",
	      out);
	print_types(out, "Owners", trace_owner_types);
	print_types(out, "Objects", trace_object_types);
	for (unsigned g = 0; g < TRACE_NUM_GROUPS; g++) {
		if (trace_group_info(g) != NULL) {
			print_group(out, g);
		}
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The CAUSE section of a copy that a trigger made: why it was made, and which object was the culprit. */
#include <string.h>

#include "trace/reader_internal.h"

#define END(text_) (text_)[sizeof(text_) - 1] = '\0'

void trace_cause_load(struct trace_reader *r)
{
	struct trace_file_cause *c = &r->cause;
	uint64_t at = r->section[TRACE_SECTION_CAUSE];

	if (at == 0) {
		return;
	}
	if (trace_source_read(&r->source, at, c, sizeof(*c)) != 0 || c->version < TRACE_CAUSE_VERSION) {
		trace_problem(r, "section CAUSE is cut off or of version 0");
		return;
	}
	END(c->trigger);
	END(c->type);
	END(c->state);
	END(c->waits_for);
	END(c->owner);
	END(c->text);
	r->has_cause = true;
}

const struct trace_file_cause *trace_reader_cause(const struct trace_reader *r)
{
	return r->has_cause ? &r->cause : NULL;
}

/* Objects are identified by their addresses, which are reused. Only the life counts that was under way when the trigger
 * fired; it ends when a tracepoint that creates such objects names the same address. */
bool trace_event_is_culprit(const struct trace_reader *r, const struct trace_event *e)
{
	const struct trace_file_cause *c = &r->cause;

	if (!r->has_cause) {
		return false;
	}
	if (c->object_type == 0) {
		return c->object_id != 0 && e->object_id == c->object_id;
	}
	const struct trace_tpoint *t = trace_reader_tpoint(r, e->tpoint_id);
	return t != NULL && t->object_type == c->object_type && e->object_id == c->object_id &&
	       e->tsc >= c->object_start_tsc &&
	       (e->tsc <= c->tsc || (e->object_index != TRACE_NO_OBJECT && e->object_start <= c->tsc));
}

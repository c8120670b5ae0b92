/* SPDX-License-Identifier: BSD-3-Clause */
/* JSON output, in the shape of a stock reader's, with more keys. It is written event by event, never held in memory. */
#include <inttypes.h>
#include <string.h>

#include "tools/varve-trace.h"
#include "util/parse.h"

/* ---- Pieces ---- */

size_t json_escape(char *to, const char *text, size_t length)
{
	const unsigned char *s = (const unsigned char *)text;
	char *at = to;

	*at++ = '"';
	for (size_t i = 0; i < length;) {
		size_t n = utf8_printable(text + i, length - i);
		if (s[i] == '<' || (n == 0 && s[i] < 0x80)) { /* '<' could end a script of a page */
			at += snprintf(at, 7, "\\u%04x", s[i++]);
		} else if (n == 0) {
			memcpy(at, "\\ufffd", 6); /* not UTF-8 */
			at += 6;
			i++;
		} else {
			if (s[i] == '"' || s[i] == '\\') {
				*at++ = '\\';
			}
			memcpy(at, s + i, n);
			at += n;
			i += n;
		}
	}
	*at++ = '"';
	return (size_t)(at - to);
}

void json_string(struct out *out, const char *text, size_t length)
{
	char escaped[6 * 1024 + 4];

	if (length > 1024) {
		length = 1024; /* no text of a trace file is that long */
	}
	out_bytes(out, escaped, json_escape(escaped, text, length));
}

void json_text(struct out *out, const char *text)
{
	json_string(out, text, strlen(text));
}

void json_member(struct out *out, const char *key, uint64_t value)
{
	out_bytes(out, ",\"", 2);
	out_text(out, key);
	out_bytes(out, "\":", 2);
	out_number(out, value);
}

/* ---- An entry ---- */

static void json_event_object(const struct trace_view *v, const struct trace_event *e, const struct trace_tpoint *t)
{
	bool known = t->object_type != 0 && e->object_index != TRACE_NO_OBJECT;

	if (t->object_type == 0 && e->object_id == 0) {
		return;
	}
	out_text(v->out, ",\"object\":{");
	if (known) {
		out_text(v->out, "\"id\":");
		json_object_id(v, t->object_type, e->object_index);
		if (!t->new_object) {
			json_member(v->out, "time", e->tsc - e->object_start);
		}
		out_char(v->out, ',');
	}
	out_text(v->out, "\"value\":");
	out_number(v->out, e->object_id);
	out_char(v->out, '}');
}

void json_object_id(const struct trace_view *v, uint8_t type, uint64_t index)
{
	char id[OUT_NUMBER_MAX];
	size_t n = object_id_format(v->r, type, index, id);

	/* The prefix is a letter that the file chose; the rest are digits. */
	json_string(v->out, id, n);
}

static void json_args_print(const struct trace_view *v, const struct trace_batch *b, const struct trace_event *e,
			    const struct trace_tpoint *t)
{
	for (unsigned i = 0; i < t->num_args; i++) {
		struct trace_arg a = trace_event_arg(b, e, t, i);
		out_text(v->out, i == 0 ? ",\"args\":[" : ",");
		if (a.type == TRACE_ARG_STR) {
			json_string(v->out, a.text, a.length);
		} else {
			out_number(v->out, a.number);
		}
	}
	if (t->num_args > 0) {
		out_char(v->out, ']');
	}
}

void json_event(struct trace_view *v, const struct trace_batch *b, const struct trace_event *e)
{
	const struct trace_tpoint *t = trace_reader_tpoint(v->r, e->tpoint_id);
	const struct printed_owner *owner = t->owner_type != 0 ? owner_printed(v, e->owner_id, e->tsc) : NULL;
	char text[OUT_NUMBER_MAX];
	size_t n;

	out_text(v->out, v->any ? ",\n{\"lcore\":" : "\n{\"lcore\":");
	v->any = true;
	out_number(v->out, e->lcore);
	json_member(v->out, "tpoint", e->tpoint_id);
	json_member(v->out, "tsc", e->tsc);
	if ((n = event_poller(v->r, e, text)) > 0) {
		out_text(v->out, ",\"poller\":");
		json_string(v->out, text, n);
	}
	if (owner != NULL && owner->json_length > 0) {
		out_text(v->out, ",\"owner\":");
		out_bytes(v->out, owner->json, owner->json_length);
	}
	if (e->size != 0) {
		json_member(v->out, "size", e->size);
	}
	json_event_object(v, e, t);
	if (e->related_index != TRACE_NO_OBJECT) {
		out_text(v->out, ",\"related\":");
		json_object_id(v, e->related_type, e->related_index);
	}
	json_args_print(v, b, e, t);
	if (e->state_ticks != TRACE_NO_TIME) {
		out_text(v->out, ",\"state\":{\"tpoint\":");
		out_number(v->out, e->prev_tpoint);
		json_member(v->out, "time", e->state_ticks);
		out_char(v->out, '}');
	}
	if (trace_event_is_culprit(v->r, e)) {
		out_text(v->out, ",\"culprit\":true");
	}
	out_char(v->out, '}');
}

/* ---- Around the entries ---- */

static void json_tpoints_print(const struct trace_view *v)
{
	bool any = false;

	out_text(v->out, ",\n\"tpoints\":[");
	for (unsigned id = 0; id < trace_reader_num_tpoints(v->r); id++) {
		const struct trace_tpoint *t = trace_reader_tpoint(v->r, id);
		if (t == NULL) {
			continue;
		}
		out_text(v->out, any ? ",\n{\"name\":" : "\n{\"name\":");
		any = true;
		json_text(v->out, t->name);
		out_printf(v->out, ",\"id\":%u,\"new_object\":%s,\"args\":[", id, t->new_object ? "true" : "false");
		for (unsigned i = 0; i < t->num_args; i++) {
			out_text(v->out, i > 0 ? ",{\"name\":" : "{\"name\":");
			json_text(v->out, t->args[i].name);
			out_printf(v->out, ",\"type\":%u,\"size\":%u}", t->args[i].type, t->args[i].size);
		}
		out_text(v->out, "]}");
	}
	out_char(v->out, ']');
}

static void json_owners_print(const struct trace_view *v)
{
	bool any = false;

	out_text(v->out, ",\n\"owners\":{");
	for (unsigned id = 1; id < trace_reader_num_owners(v->r); id++) {
		const char *owner = trace_reader_owner(v->r, (uint16_t)id, UINT64_MAX);
		if (owner != NULL) {
			out_printf(v->out, "%s\"%u\":", any ? "," : "", id);
			json_text(v->out, owner);
			any = true;
		}
	}
	out_char(v->out, '}');
}

static void json_lcores_print(const struct trace_view *v, const struct trace_snapshot *s)
{
	out_text(v->out, ",\n\"lcores\":[");
	for (size_t i = 0; i < s->num_lcores; i++) {
		const struct trace_lcore *lc = &s->lcores[i];
		out_printf(v->out, "%s{\"lcore\":%u,\"name\":", i > 0 ? "," : "", lc->lcore);
		json_text(v->out, lc->name);
		json_member(v->out, "num_entries", lc->num_entries);
		json_member(v->out, "written", lc->written);
		json_member(v->out, "recorded", lc->recorded);
		json_member(v->out, "events", lc->events);
		json_member(v->out, "cleared", lc->cleared);
		out_printf(v->out, ",\"lost\":{\"overwritten\":%" PRIu64, lc->overwritten);
		json_member(v->out, "unreadable", lc->unreadable);
		json_member(v->out, "unstable", lc->unstable);
		json_member(v->out, "torn", lc->torn);
		json_member(v->out, "out_of_order", lc->out_of_order);
		json_member(v->out, "cut", lc->cut);
		json_member(v->out, "unknown", lc->unknown);
		json_member(v->out, "missed", lc->missed);
		out_text(v->out, "}}");
	}
	out_char(v->out, ']');
}

/* The members of "crash" that say how the signal came. */
static void json_crash(struct out *out, const struct trace_file_info *info)
{
	char text[CRASH_TEXT_MAX];

	if (info->crash_flags & TRACE_INFO_CRASH_CODE) {
		out_printf(out, ",\"code\":%d", info->crash_code);
	}
	if (info->crash_flags & TRACE_INFO_CRASH_SENT) {
		out_printf(out, ",\"sender\":{\"pid\":%u,\"uid\":%u,\"name\":", info->crash_sender,
			   info->crash_sender_uid);
		json_text(out, info->crash_sender_name);
		out_char(out, '}');
	}
	crash_format(info, text, sizeof(text));
	out_text(out, ",\"text\":");
	json_text(out, text);
}

static void json_snapshot_print(const struct trace_view *v, const struct trace_snapshot *s)
{
	const struct trace_file_info *info = trace_reader_info(v->r);
	const char *problem;

	json_lcores_print(v, s);
	json_member(v->out, "first_tsc", s->first_tsc);
	json_member(v->out, "clear_tsc", s->clear_tsc);
	json_member(v->out, "not_recorded", s->loss.no_slot);
	out_text(v->out, ",\"clocks\":[");
	for (unsigned i = 0; i < s->num_clocks; i++) {
		out_printf(v->out, "%s{\"tsc\":%" PRIu64 ",\"realtime_ns\":%" PRIu64 "}", i > 0 ? "," : "",
			   s->clocks[i].tsc, s->clocks[i].realtime_ns);
	}
	out_char(v->out, ']');
	if (info != NULL) {
		out_text(v->out, ",\"app\":{\"name\":");
		json_text(v->out, info->app_name);
		out_text(v->out, ",\"version\":");
		json_text(v->out, info->app_version);
		out_text(v->out, ",\"build_id\":");
		json_text(v->out, info->build_id);
		out_printf(v->out, ",\"pid\":%u,\"state\":", info->pid);
		json_text(v->out, writer_state_name(trace_reader_writer(v->r), info));
		if (info->crash_tsc != 0) {
			out_printf(v->out,
				   ",\"crash\":{\"tsc\":%" PRIu64 ",\"signal\":%d,\"address\":%" PRIu64 ",\"thread\":",
				   info->crash_tsc, info->crash_signal, info->crash_address);
			json_text(v->out, info->crash_thread);
			json_crash(v->out, info);
			out_char(v->out, '}');
		}
		out_char(v->out, '}');
	}
	json_cause(v);
	out_text(v->out, ",\"problems\":[");
	for (size_t i = 0; (problem = trace_reader_problem(v->r, i)) != NULL; i++) {
		out_text(v->out, i > 0 ? "," : "");
		json_text(v->out, problem);
	}
	out_char(v->out, ']');
}

void json_preamble(struct trace_view *v, const struct trace_snapshot *s)
{
	out_printf(v->out, "{\"tsc_rate\":%" PRIu64, v->tsc_rate);
	json_tpoints_print(v);
	json_owners_print(v);
	if (s != NULL) {
		json_snapshot_print(v, s);
	}
}

void json_begin(struct trace_view *v, const struct trace_snapshot *s)
{
	json_preamble(v, s);
	out_text(v->out, ",\n\"entries\":[");
}

void json_end(struct trace_view *v)
{
	out_text(v->out, "\n]}\n");
}

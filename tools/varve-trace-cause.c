/* SPDX-License-Identifier: BSD-3-Clause */
/* Why there is something to look at: the cause of a black box's copy, which is the trigger, and the object and lines to
 * look at; and the signal by which the writer crashed. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/varve-trace.h"
#include "util/signal_text.h"

static void cause_print_line(struct out *out, const char *head, const char *text)
{
	char safe[4 * sizeof(((struct trace_file_cause *)0)->text)];

	if (text[0] != '\0') {
		text_escape(safe, sizeof(safe), text, strlen(text));
		out_printf(out, "%s: %s\n", head, safe);
	}
}

/* Writes the culprit's id in this trace ("r41"). id: OUT_NUMBER_MAX + 1 bytes. False: it is no object, or its creation
 * is not in the rings any more. */
static bool cause_culprit_id(const struct trace_view *v, const struct trace_batch *b, char *id)
{
	for (size_t i = 0; i < b->num_events; i++) {
		const struct trace_event *e = &b->events[i];
		const struct trace_tpoint *t = trace_reader_tpoint(v->r, e->tpoint_id);
		if (e->object_index != TRACE_NO_OBJECT && t->object_type != 0 && trace_event_is_culprit(v->r, e)) {
			id[object_id_format(v->r, t->object_type, e->object_index, id)] = '\0';
			return true;
		}
	}
	return false;
}

void text_cause(const struct trace_view *v, const struct trace_snapshot *s)
{
	const struct trace_file_cause *c = trace_reader_cause(v->r);
	char text[64], id[OUT_NUMBER_MAX + 1];
	_Static_assert(sizeof(text) > OUT_NUMBER_MAX, "a time");

	if (c == NULL) {
		return;
	}
	text_escape(text, sizeof(text), c->trigger, strlen(c->trigger));
	out_printf(v->out, "Black box: trigger %s ", text);
	text_escape(text, sizeof(text), c->type, strlen(c->type));
	out_printf(v->out, "(%s)", text);
	if (c->realtime_ns != 0) {
		time_of_day_format(c->realtime_ns, text, sizeof(text));
		out_printf(v->out, " at %s.%09u", text, (unsigned)(c->realtime_ns % 1000000000u));
	}
	if (c->tsc >= v->base_tsc && v->base_tsc != 0) {
		text[time_format(v, v->opt->ticks ? c->tsc : c->tsc - v->base_tsc, text)] = '\0';
		out_printf(v->out, ", time %s", text);
	}
	out_char(v->out, '\n');
	cause_print_line(v->out, "Cause", c->text);
	if (c->lcore >= 0) {
		out_printf(v->out, "Culprit: the reactor on lcore %d; see -c %d\n", c->lcore, c->lcore);
	} else if (cause_culprit_id(v, &s->batch, id)) {
		out_printf(v->out, "Culprit: %s; see --life %s\n", id, id);
	} else if (c->object_id != 0) {
		out_printf(v->out, "Culprit: 0x%" PRIx64 "; see -l object=0x%" PRIx64 "\n", c->object_id, c->object_id);
	}
}

static void cause_print_member(struct out *out, const char *key, const char *text)
{
	if (text[0] != '\0') {
		out_printf(out, ",\"%s\":", key);
		json_text(out, text);
	}
}

void json_cause(const struct trace_view *v)
{
	const struct trace_file_cause *c = trace_reader_cause(v->r);

	if (c == NULL) {
		return;
	}
	out_printf(v->out, ",\"cause\":{\"tsc\":%" PRIu64 ",\"realtime_ns\":%" PRIu64, c->tsc, c->realtime_ns);
	cause_print_member(v->out, "trigger", c->trigger);
	cause_print_member(v->out, "type", c->type);
	cause_print_member(v->out, "text", c->text);
	cause_print_member(v->out, "owner", c->owner);
	cause_print_member(v->out, "state", c->state);
	cause_print_member(v->out, "waits_for", c->waits_for);
	if (c->object_id != 0) {
		out_printf(v->out, ",\"object\":{\"value\":%" PRIu64 ",\"type\":%u,\"start_tsc\":%" PRIu64 "}",
			   c->object_id, c->object_type, c->object_start_tsc);
	}
	if (c->lcore >= 0) {
		out_printf(v->out, ",\"lcore\":%d", c->lcore);
	}
	if (c->limit_ticks != 0) {
		out_printf(v->out, ",\"measured\":%" PRIu64 ",\"limit\":%" PRIu64, c->measured_ticks, c->limit_ticks);
	}
	if (c->status != 0) {
		out_printf(v->out, ",\"status\":%u", c->status);
	}
	out_char(v->out, '}');
}

/* ---- Crashes ---- */

static void crash_format_fault(const struct trace_file_info *info, const char *name, char *to, size_t size)
{
	const char *why = signal_text_fault(info->crash_signal, info->crash_code);

	if (signal_text_has_address(info->crash_signal, info->crash_code)) {
		snprintf(to, size, "%s at address 0x%" PRIx64 "%s%s", name, info->crash_address,
			 why != NULL ? ": " : "", why != NULL ? why : "");
	} else {
		snprintf(to, size, "%s raised by the kernel%s%s", name, why != NULL ? ": " : "",
			 why != NULL ? why : "");
	}
}

static void crash_format_sender(const struct trace_file_info *info, const char *name, char *to, size_t size)
{
	char sender[4 * sizeof(info->crash_sender_name)];

	text_escape(sender, sizeof(sender), info->crash_sender_name, strlen(info->crash_sender_name));
	if (info->crash_sender == info->pid) {
		snprintf(to, size, "%s raised by itself", name);
	} else if (sender[0] != '\0') {
		snprintf(to, size, "%s sent by process %u (%s), uid %u", name, info->crash_sender, sender,
			 info->crash_sender_uid);
	} else {
		snprintf(to, size, "%s sent by process %u, uid %u", name, info->crash_sender, info->crash_sender_uid);
	}
}

void crash_format(const struct trace_file_info *info, char *to, size_t size)
{
	const char *known = signal_text_name(info->crash_signal);
	char name[24];

	snprintf(name, sizeof(name), "signal %d", info->crash_signal);
	if (known != NULL) {
		snprintf(name, sizeof(name), "%s", known);
	}
	if (info->crash_flags & TRACE_INFO_CRASH_SENT) {
		crash_format_sender(info, name, to, size);
	} else if (info->crash_flags & TRACE_INFO_CRASH_CODE) {
		crash_format_fault(info, name, to, size);
	} else if (info->crash_address != 0) {
		snprintf(to, size, "%s at address 0x%" PRIx64, name, info->crash_address);
	} else {
		snprintf(to, size, "%s, sent or at address 0x0 (the file does not say which)", name);
	}
}

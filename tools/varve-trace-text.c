/* SPDX-License-Identifier: BSD-3-Clause */
/* Text output, in the columns that users of a stock reader know. */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/varve-trace.h"
#include "util/parse.h"

enum { NAME_WIDTH = 24, VALUE_WIDTH = 16, LABEL_WIDTH = 7 };

/* ---- Pieces ---- */

void text_escape(char *to, size_t size, const char *from, size_t length)
{
	for (size_t i = 0; i < length && size > 4;) {
		size_t n = utf8_printable(from + i, length - i);
		if (n > 0) {
			memcpy(to, from + i, n);
			i += n;
		} else {
			n = 4;
			snprintf(to, 5, "\\x%02x", (unsigned char)from[i++]);
		}
		to += n;
		size -= n;
	}
	*to = '\0';
}

size_t event_poller(struct trace_reader *r, const struct trace_event *e, char *to)
{
	uint8_t type = trace_reader_tpoint(r, e->tpoint_id)->owner_type;
	char prefix = trace_reader_owner_prefix(r, type);

	if (type == 0 || prefix == 0) {
		return 0;
	}
	to[0] = prefix;
	to[1] = '0';
	return 1 + (e->owner_id < 10) + format_number(to + 1 + (e->owner_id < 10), e->owner_id);
}

size_t object_id_format(const struct trace_reader *r, uint8_t type, uint64_t index, char *to)
{
	char prefix = trace_reader_object_prefix(r, type);

	to[0] = prefix != 0 ? prefix : '?';
	return 1 + format_number(to + 1, index);
}

size_t time_format(const struct trace_view *v, uint64_t ticks, char *to)
{
	return v->opt->ticks ? format_number(to, ticks) : format_milli(to, trace_ticks_to_ns(ticks, v->tsc_rate));
}

void time_print(const struct trace_view *v, uint64_t ticks, int width)
{
	char text[OUT_NUMBER_MAX];
	size_t n = time_format(v, ticks, text);

	out_spaces(v->out, width - (int)n);
	out_bytes(v->out, text, n);
}

/* "qd:    1                " */
static void text_item_print(const struct trace_view *v, const char *label, const char *value, size_t n)
{
	enum { ITEM_WIDTH = LABEL_WIDTH + VALUE_WIDTH + 1 };
	size_t length = strlen(label);

	if (length < LABEL_WIDTH && n <= VALUE_WIDTH) { /* as it nearly always is */
		char *to = out_room(v->out, ITEM_WIDTH);
		memset(to, ' ', ITEM_WIDTH);
		memcpy(to, label, length);
		to[length] = ':';
		memcpy(to + LABEL_WIDTH, value, n);
		v->out->used += ITEM_WIDTH;
		return;
	}
	out_bytes(v->out, label, length);
	out_char(v->out, ':');
	out_spaces(v->out, LABEL_WIDTH - 1 - (int)length);
	out_bytes(v->out, value, n);
	out_spaces(v->out, VALUE_WIDTH - (int)n);
	out_char(v->out, ' ');
}

static void text_item_time(const struct trace_view *v, const char *label, uint64_t ticks)
{
	char text[OUT_NUMBER_MAX];

	text_item_print(v, label, text, time_format(v, ticks, text));
}

static void text_item_hex(const struct trace_view *v, const char *label, uint64_t number)
{
	char text[OUT_NUMBER_MAX];

	text_item_print(v, label, text, format_hex(text, number));
}

/* ---- Owners, as they are printed again and again ---- */

static const struct printed_owner no_owner = {.text = "", .json = ""};

static void printed_owner_make(struct printed_owner *p, const char *name)
{
	size_t n = strlen(name);

	free(p->name);
	free(p->text);
	free(p->json);
	p->name = strdup(name);
	p->text = malloc(4 * n + 5);
	p->json = malloc(6 * n + 3);
	if (p->name == NULL || p->text == NULL || p->json == NULL) {
		trace_cli_error("out of memory");
		exit(EXIT_FAILURE);
	}
	text_escape(p->text, 4 * n + 5, name, n);
	p->text_length = strlen(p->text);
	p->json_length = json_escape(p->json, name, n);
	p->json[p->json_length] = '\0';
}

const struct printed_owner *owner_printed(struct trace_view *v, uint16_t id, uint64_t tsc)
{
	const char *name = trace_reader_owner(v->r, id, tsc);

	if (name == NULL) {
		return &no_owner;
	}
	if (v->owners == NULL) {
		v->owners = calloc(trace_reader_num_owners(v->r), sizeof(v->owners[0])); /* id is less */
		if (v->owners == NULL) {
			trace_cli_error("out of memory");
			exit(EXIT_FAILURE);
		}
	}
	/* While a file is followed, an id may be given to another owner. */
	struct printed_owner *p = &v->owners[id];
	if (p->name == NULL || strcmp(p->name, name) != 0) {
		printed_owner_make(p, name);
	}
	return p;
}

void owners_free(struct trace_view *v)
{
	for (unsigned i = 0; v->owners != NULL && i < trace_reader_num_owners(v->r); i++) {
		free(v->owners[i].name);
		free(v->owners[i].text);
		free(v->owners[i].json);
	}
	free(v->owners);
	v->owners = NULL;
}

/* ---- An event ---- */

static void text_object_print(const struct trace_view *v, const struct trace_event *e, const struct trace_tpoint *t)
{
	char text[2 * OUT_NUMBER_MAX + 4];
	size_t n;

	if (t->object_type == 0) {
		if (e->object_id != 0) {
			text_item_hex(v, "object", e->object_id);
		}
		return;
	}
	if (e->object_index == TRACE_NO_OBJECT) {
		text_item_print(v, "id", "N/A", 3);
		text_item_hex(v, "object", e->object_id);
		return;
	}
	n = object_id_format(v->r, t->object_type, e->object_index, text);
	if (e->related_index != TRACE_NO_OBJECT) {
		memcpy(text + n, " (", 2);
		n += 2 + object_id_format(v->r, e->related_type, e->related_index, text + n + 2);
		text[n++] = ')';
	}
	text_item_print(v, "id", text, n);
	if (!t->new_object) {
		text_item_time(v, "time", e->tsc - e->object_start);
	}
}

static void text_arg_print(const struct trace_view *v, const char *name, const struct trace_arg *a)
{
	char text[4 * UINT8_MAX + 8];

	switch (a->type) {
	case TRACE_ARG_PTR:
		text_item_hex(v, name, a->number);
		break;
	case TRACE_ARG_STR:
		text_escape(text, sizeof(text), a->text, a->length);
		text_item_print(v, name, text, strlen(text));
		break;
	default:
		text_item_print(v, name, text, format_number(text, a->number));
		break;
	}
}

static void text_args_print(const struct trace_view *v, const struct trace_batch *b, const struct trace_event *e,
			    const struct trace_tpoint *t)
{
	for (unsigned i = 0; i < t->num_args; i++) {
		bool shown_as_parent = e->related_index != TRACE_NO_OBJECT && e->related_arg == i &&
				       e->object_index != TRACE_NO_OBJECT;
		if (!shown_as_parent) {
			struct trace_arg a = trace_event_arg(b, e, t, i);
			text_arg_print(v, t->args[i].name, &a);
		}
	}
}

static void text_event_time_print(struct trace_view *v, const struct trace_event *e)
{
	uint64_t last = v->last_tsc != 0 ? v->last_tsc : e->tsc;

	if (!v->opt->delta) {
		time_print(v, v->opt->ticks ? e->tsc : e->tsc - v->base_tsc, 10);
		return;
	}
	/* With -F an event may come after younger ones of another ring. */
	time_print(v, e->tsc > last ? e->tsc - last : 0, 10);
	v->last_tsc = e->tsc > last ? e->tsc : last;
}

void text_event(struct trace_view *v, const struct trace_batch *b, const struct trace_event *e)
{
	const struct trace_tpoint *t = trace_reader_tpoint(v->r, e->tpoint_id);
	const struct printed_owner *owner = t->owner_type != 0 ? owner_printed(v, e->owner_id, e->tsc) : &no_owner;

	if ((int)owner->text_length > v->owner_width) {
		v->owner_width = (int)owner->text_length;
	}
	out_text_wide(v->out, trace_reader_thread_name(v->r, e->lcore, e->tsc), -16);
	out_char(v->out, ' ');
	out_number_wide(v->out, e->lcore, 2);
	out_bytes(v->out, ": ", 2);
	text_event_time_print(v, e);
	out_char(v->out, ' ');
	out_bytes(v->out, owner->text, owner->text_length);
	out_spaces(v->out, v->owner_width - (int)owner->text_length + 2);
	out_text_wide(v->out, t->name, -NAME_WIDTH);
	out_char(v->out, ' ');
	if (e->size != 0) {
		out_bytes(v->out, "size: ", 6);
		out_number_wide(v->out, e->size, 6);
		out_char(v->out, ' ');
	} else {
		out_spaces(v->out, 13);
	}
	text_object_print(v, e, t);
	text_args_print(v, b, e, t);
	if (e->state_ticks != TRACE_NO_TIME) {
		text_item_time(v, "since", e->state_ticks);
	}
	if (trace_event_is_culprit(v->r, e)) {
		out_text(v->out, " <== culprit");
	}
	out_char(v->out, '\n');
}

/* ---- Around the events ---- */

const char *writer_state_name(enum trace_writer writer, const struct trace_file_info *info)
{
	if (info->crash_tsc != 0) {
		return "crashed";
	}
	if (info->state == TRACE_INFO_STOPPED) {
		return "stopped";
	}
	return writer == TRACE_WRITER_LIVE || trace_info_process_runs(info) ? "running" : "gone";
}

void time_of_day_format(uint64_t ns, char *to, size_t size)
{
	time_t t = (time_t)(ns / 1000000000u);
	struct tm tm;

	if (localtime_r(&t, &tm) == NULL || strftime(to, size, "%F %T", &tm) == 0) {
		snprintf(to, size, "-");
	}
}

void text_lost(const struct trace_view *v, const struct trace_lcore *lc, const struct trace_lcore *before)
{
	static const struct trace_lcore none;
	const struct trace_lcore *b = before != NULL ? before : &none;
	const struct {
		const char *what;
		uint64_t n;
	} losses[] = {
		{"entries overwritten", lc->overwritten - b->overwritten},
		{"entries skipped", lc->skipped - b->skipped},
		{"entries not in the file", lc->unreadable - b->unreadable},
		{"entries being written during the copy", lc->unstable - b->unstable},
		{"entries torn", lc->torn - b->torn},
		{"entries out of order", lc->out_of_order - b->out_of_order},
		{"events cut", lc->cut - b->cut},
		{"events of unknown tracepoints", lc->unknown - b->unknown},
		{"entries missed by the capture", lc->missed - b->missed},
	};
	bool any = false;

	for (size_t i = 0; i < sizeof(losses) / sizeof(losses[0]); i++) {
		if (losses[i].n == 0) {
			continue;
		}
		if (!any) {
			out_printf(v->out, "Lost on lcore (%u): ", lc->lcore);
		}
		out_printf(v->out, "%s%" PRIu64 " %s", any ? ", " : "", losses[i].n, losses[i].what);
		any = true;
	}
	if (any) {
		out_char(v->out, '\n');
	}
}

/* Prints who wrote the file, how the writer ended, and the time of day at which the trace begins, if the file says so.
 */
static void text_origin_print(const struct trace_view *v, const struct trace_snapshot *s)
{
	const struct trace_file_info *info = trace_reader_info(v->r);
	char name[4 * sizeof(info->app_name)], version[4 * sizeof(info->app_version)],
		thread[4 * sizeof(info->crash_thread)];
	char time[40], crash[CRASH_TEXT_MAX];

	if (info == NULL) {
		return;
	}
	text_escape(name, sizeof(name), info->app_name, strlen(info->app_name));
	text_escape(version, sizeof(version), info->app_version, strlen(info->app_version));
	bool named = strncmp(version, name, strlen(name)) == 0;
	out_printf(v->out, "Written by: %s%s%s, process %u (%s)\n", named ? "" : name, named ? "" : " ", version,
		   info->pid, writer_state_name(trace_reader_writer(v->r), info));
	if (info->crash_tsc != 0) {
		text_escape(thread, sizeof(thread), info->crash_thread, strlen(info->crash_thread));
		crash_format(info, crash, sizeof(crash));
		time[time_format(v, v->opt->ticks ? info->crash_tsc : info->crash_tsc - v->base_tsc, time)] = '\0';
		out_printf(v->out, "Crashed: %s, in thread %s (%u), time %s\n", crash, thread, info->crash_tid,
			   info->crash_tsc < v->base_tsc ? "unknown" : time);
	}
	uint64_t ns = trace_snapshot_realtime_ns(s, v->base_tsc);
	if (ns != 0 && v->base_tsc != 0) {
		time_of_day_format(ns, time, sizeof(time));
		out_printf(v->out, "Time 0: %s.%09u\n", time, (unsigned)(ns % 1000000000u));
	}
}

/* A ring is an lcore's, or that of another thread, which has then a name. Rings that no thread has had are left out, if
 * the file has names at all. */
static void text_ring_print(const struct trace_view *v, const struct trace_lcore *lc)
{
	bool reactor = strncmp(lc->name, "reactor_", strlen("reactor_")) == 0, named = lc->name[0] != '\0';
	char name[4 * sizeof(lc->name)];

	if (!named && lc->written == 0 && trace_reader_info(v->r) != NULL) {
		return;
	}
	text_escape(name, sizeof(name), lc->name, strlen(lc->name));
	out_printf(v->out, "Trace Size of lcore (%u)%s%s: %" PRIu64 "\n", lc->lcore,
		   named && !reactor ? ", the thread " : "", named && !reactor ? name : "", lc->num_entries);
}

void text_header(const struct trace_view *v, const struct trace_snapshot *s)
{
	out_printf(v->out, "TSC Rate: %" PRIu64 "\n", s->tsc_rate);
	text_origin_print(v, s);
	for (size_t i = 0; i < s->num_lcores; i++) {
		text_ring_print(v, &s->lcores[i]);
	}
	for (size_t i = 0; i < s->num_lcores; i++) {
		text_lost(v, &s->lcores[i], NULL);
	}
	if (s->loss.no_slot > 0) {
		out_printf(v->out, "Not recorded: %" PRIu64 " events of threads without a ring\n", s->loss.no_slot);
	}
	text_cause(v, s);
}

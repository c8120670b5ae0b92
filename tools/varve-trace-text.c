/* SPDX-License-Identifier: BSD-3-Clause */
/* Text output, in the columns that users of a stock reader know. */
#include <ctype.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "tools/varve-trace.h"

enum { NAME_WIDTH = 24, VALUE_WIDTH = 16, LABEL_WIDTH = 7 };

/* ---- Pieces ---- */

size_t utf8_char_length(const unsigned char *s, size_t n)
{
	static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t length = s[0] < 0x80             ? 1
			: (s[0] & 0xe0) == 0xc0 ? 2
			: (s[0] & 0xf0) == 0xe0 ? 3
			: (s[0] & 0xf8) == 0xf0 ? 4
						: 0;
	uint32_t c = length == 1 ? s[0] : s[0] & (0x7f >> length);

	if (length == 0 || length > n) {
		return 0;
	}
	for (size_t i = 1; i < length; i++) {
		if ((s[i] & 0xc0) != 0x80) {
			return 0;
		}
		c = c << 6 | (s[i] & 0x3f);
	}
	bool control = c < 0x20 || (c >= 0x7f && c < 0xa0);
	return control || c < smallest[length] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : length;
}

void text_escape(char *to, size_t size, const char *from, size_t length)
{
	const unsigned char *s = (const unsigned char *)from;

	for (size_t i = 0; i < length && size > 4;) {
		size_t n = utf8_char_length(s + i, length - i);
		if (n > 0) {
			memcpy(to, s + i, n);
			i += n;
		} else {
			n = 4;
			snprintf(to, 5, "\\x%02x", s[i++]);
		}
		to += n;
		size -= n;
	}
	*to = '\0';
}

bool event_poller(struct trace_reader *r, const struct trace_event *e, char *to, size_t size)
{
	uint8_t type = trace_reader_tpoint(r, e->tpoint_id)->owner_type;
	char prefix = trace_reader_owner_prefix(r, type);

	if (type == 0 || prefix == 0) {
		return false;
	}
	snprintf(to, size, "%c%02u", prefix, e->owner_id);
	return true;
}

void object_id_format(struct trace_reader *r, uint8_t type, uint64_t index, char *to, size_t size)
{
	char prefix = trace_reader_object_prefix(r, type);

	snprintf(to, size, "%c%" PRIu64, prefix != 0 ? prefix : '?', index);
}

void time_format(const struct trace_view *v, uint64_t ticks, char *to, size_t size)
{
	if (v->opt->ticks) {
		snprintf(to, size, "%" PRIu64, ticks);
		return;
	}
	uint64_t ns = trace_ticks_to_ns(ticks, v->tsc_rate);
	snprintf(to, size, "%" PRIu64 ".%03" PRIu64, ns / 1000, ns % 1000);
}

/* "qd:    1                " */
static void item_print(const struct trace_view *v, const char *label, const char *value)
{
	int pad = LABEL_WIDTH - 1 - (int)strlen(label);

	fprintf(v->out, "%s:%*s%-*s ", label, pad > 0 ? pad : 0, "", VALUE_WIDTH, value);
}

/* ---- An event ---- */

static void object_print(const struct trace_view *v, const struct trace_event *e,
			 const struct trace_tpoint *t)
{
	char id[32], related[32], text[72];

	if (t->object_type == 0) {
		if (e->object_id != 0) {
			snprintf(text, sizeof(text), "0x%" PRIx64, e->object_id);
			item_print(v, "object", text);
		}
		return;
	}
	if (e->object_index == TRACE_NO_OBJECT) {
		item_print(v, "id", "N/A");
		snprintf(text, sizeof(text), "0x%" PRIx64, e->object_id);
		item_print(v, "object", text);
		return;
	}
	object_id_format(v->r, t->object_type, e->object_index, id, sizeof(id));
	if (e->related_index != TRACE_NO_OBJECT) {
		object_id_format(v->r, e->related_type, e->related_index, related, sizeof(related));
		snprintf(text, sizeof(text), "%s (%s)", id, related);
	} else {
		snprintf(text, sizeof(text), "%s", id);
	}
	item_print(v, "id", text);
	if (!t->new_object) {
		time_format(v, e->tsc - e->object_start, text, sizeof(text));
		item_print(v, "time", text);
	}
}

static void arg_print(const struct trace_view *v, const char *name, const struct trace_arg *a)
{
	char text[4 * UINT8_MAX + 8];

	switch (a->type) {
	case TRACE_ARG_PTR:
		snprintf(text, sizeof(text), "0x%" PRIx64, a->number);
		break;
	case TRACE_ARG_STR:
		text_escape(text, sizeof(text), a->text, a->length);
		break;
	default:
		snprintf(text, sizeof(text), "%" PRIu64, a->number);
		break;
	}
	item_print(v, name, text);
}

static void args_print(const struct trace_view *v, const struct trace_batch *b, const struct trace_event *e,
		       const struct trace_tpoint *t)
{
	for (unsigned i = 0; i < t->num_args; i++) {
		bool shown_as_parent = e->related_index != TRACE_NO_OBJECT && e->related_arg == i &&
				       e->object_index != TRACE_NO_OBJECT;
		if (!shown_as_parent) {
			struct trace_arg a = trace_event_arg(b, e, t, i);
			arg_print(v, t->args[i].name, &a);
		}
	}
}

void text_event(struct trace_view *v, const struct trace_batch *b, const struct trace_event *e)
{
	const struct trace_tpoint *t = trace_reader_tpoint(v->r, e->tpoint_id);
	const char *owner = trace_reader_owner(v->r, e->owner_id, e->tsc);
	char description[1024] = "", time[32];

	if (owner != NULL && t->owner_type != 0) {
		text_escape(description, sizeof(description), owner, strlen(owner));
	}
	if ((int)strlen(description) > v->owner_width) {
		v->owner_width = (int)strlen(description);
	}
	time_format(v, v->opt->ticks ? e->tsc : e->tsc - v->base_tsc, time, sizeof(time));
	fprintf(v->out, "%-16s %2u: %10s %-*s  %-*s ", trace_reader_thread_name(v->r, e->lcore, e->tsc),
		e->lcore, time, v->owner_width, description, NAME_WIDTH, t->name);
	if (e->size != 0) {
		fprintf(v->out, "size: %6u ", e->size);
	} else {
		fprintf(v->out, "%13s", "");
	}
	object_print(v, e, t);
	args_print(v, b, e, t);
	if (e->state_ticks != TRACE_NO_TIME) {
		time_format(v, e->state_ticks, time, sizeof(time));
		item_print(v, "since", time);
	}
	putc('\n', v->out);
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
	return writer == TRACE_WRITER_LIVE ? "running" : "gone";
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
		{"entries not in the file", lc->unreadable - b->unreadable},
		{"entries being written during the copy", lc->unstable - b->unstable},
		{"entries torn", lc->torn - b->torn},
		{"entries out of order", lc->out_of_order - b->out_of_order},
		{"events cut", lc->cut - b->cut},
		{"events of unknown tracepoints", lc->unknown - b->unknown},
	};
	bool any = false;

	for (size_t i = 0; i < sizeof(losses) / sizeof(losses[0]); i++) {
		if (losses[i].n == 0) {
			continue;
		}
		if (!any) {
			fprintf(v->out, "Lost on lcore (%u): ", lc->lcore);
		}
		fprintf(v->out, "%s%" PRIu64 " %s", any ? ", " : "", losses[i].n, losses[i].what);
		any = true;
	}
	if (any) {
		putc('\n', v->out);
	}
}

/* Who wrote the file, how that ended, and what time of day the trace begins at: for files that say so. */
static void origin_print(const struct trace_view *v, const struct trace_snapshot *s)
{
	const struct trace_file_info *info = trace_reader_info(v->r);
	char name[4 * sizeof(info->app_name)], version[4 * sizeof(info->app_version)],
		thread[4 * sizeof(info->crash_thread)];
	char time[40];

	if (info == NULL) {
		return;
	}
	text_escape(name, sizeof(name), info->app_name, strlen(info->app_name));
	text_escape(version, sizeof(version), info->app_version, strlen(info->app_version));
	bool named = strncmp(version, name, strlen(name)) == 0;
	fprintf(v->out, "Written by: %s%s%s, process %u (%s)\n", named ? "" : name, named ? "" : " ", version,
		info->pid, writer_state_name(trace_reader_writer(v->r), info));
	if (info->crash_tsc != 0) {
		text_escape(thread, sizeof(thread), info->crash_thread, strlen(info->crash_thread));
		time_format(v, v->opt->ticks ? info->crash_tsc : info->crash_tsc - v->base_tsc, time,
			    sizeof(time));
		fprintf(v->out, "Crashed: signal %d in thread %s (%u) at address 0x%" PRIx64 ", time %s\n",
			info->crash_signal, thread, info->crash_tid, info->crash_address,
			info->crash_tsc < v->base_tsc ? "unknown" : time);
	}
	uint64_t ns = trace_snapshot_realtime_ns(s, v->base_tsc);
	if (ns != 0 && v->base_tsc != 0) {
		time_of_day_format(ns, time, sizeof(time));
		fprintf(v->out, "Time 0: %s.%09u\n", time, (unsigned)(ns % 1000000000u));
	}
}

void text_header(const struct trace_view *v, const struct trace_snapshot *s)
{
	fprintf(v->out, "TSC Rate: %" PRIu64 "\n", s->tsc_rate);
	origin_print(v, s);
	for (size_t i = 0; i < s->num_lcores; i++) {
		fprintf(v->out, "Trace Size of lcore (%u): %" PRIu64 "\n", s->lcores[i].lcore,
			s->lcores[i].num_entries);
	}
	for (size_t i = 0; i < s->num_lcores; i++) {
		text_lost(v, &s->lcores[i], NULL);
	}
	if (s->loss.no_slot > 0) {
		fprintf(v->out, "Not recorded: %" PRIu64 " events of threads without a ring\n",
			s->loss.no_slot);
	}
}

void text_summary(const struct trace_view *v, const struct trace_dwell *rows, size_t n)
{
	uint8_t type = 0;
	unsigned __int128 sum = 0;

	for (size_t i = 0; i < n; i++) {
		const struct trace_tpoint *t = trace_reader_tpoint(v->r, rows[i].tpoint_id);
		const uint64_t ticks[] = {rows[i].min, rows[i].median, rows[i].p99, rows[i].max,
					  rows[i].total};
		char time[32];
		if (t->object_type != type) {
			type = t->object_type;
			char prefix = trace_reader_object_prefix(v->r, type);
			fprintf(v->out, "%s%-24s %10s %12s %12s %12s %12s %14s %6s\n", i > 0 ? "\n" : "",
				"time in state", "count", "min", "median", "p99", "max", "total", "share");
			fprintf(v->out, "objects %c (type 0x%x), times in %s\n", prefix != 0 ? prefix : '?',
				type, v->opt->ticks ? "ticks" : "microseconds");
			sum = 0;
			for (size_t k = i;
			     k < n && trace_reader_tpoint(v->r, rows[k].tpoint_id)->object_type == type;
			     k++) {
				sum += rows[k].total;
			}
		}
		fprintf(v->out, "%-24s %10" PRIu64, t->name, rows[i].count);
		for (size_t k = 0; k < 5; k++) {
			time_format(v, ticks[k], time, sizeof(time));
			fprintf(v->out, " %*s", k == 4 ? 14 : 12, time);
		}
		unsigned permille = sum > 0 ? (unsigned)((unsigned __int128)rows[i].total * 1000 / sum) : 0;
		fprintf(v->out, " %3u.%u%%\n", permille / 10, permille % 10);
	}
	if (n == 0) {
		fputs("No object changed its state in these events.\n", v->out);
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* JSON output, in the shape of a stock reader's, with more keys. It is written as it comes, never held in
 * memory. */
#include <inttypes.h>
#include <string.h>

#include "tools/varve-trace.h"

/* ---- Pieces ---- */

static void string_print(FILE *out, const char *text, size_t length)
{
	const unsigned char *s = (const unsigned char *)text;

	putc('"', out);
	for (size_t i = 0; i < length;) {
		size_t n = utf8_char_length(s + i, length - i);
		if (n == 0 && s[i] < 0x80) {
			fprintf(out, "\\u%04x", s[i++]);
		} else if (n == 0) {
			fputs("\\ufffd", out); /* not UTF-8 */
			i++;
		} else {
			if (s[i] == '"' || s[i] == '\\') {
				putc('\\', out);
			}
			fwrite(s + i, 1, n, out);
			i += n;
		}
	}
	putc('"', out);
}

static void text_print(FILE *out, const char *text)
{
	string_print(out, text, strlen(text));
}

static void member(FILE *out, const char *key, uint64_t value)
{
	fprintf(out, ",\"%s\":%" PRIu64, key, value);
}

/* ---- An entry ---- */

static void object_print(const struct trace_view *v, const struct trace_event *e,
			 const struct trace_tpoint *t)
{
	char id[32];
	bool known = t->object_type != 0 && e->object_index != TRACE_NO_OBJECT;

	if (t->object_type == 0 && e->object_id == 0) {
		return;
	}
	fputs(",\"object\":{", v->out);
	if (known) {
		object_id_format(v->r, t->object_type, e->object_index, id, sizeof(id));
		fputs("\"id\":", v->out);
		text_print(v->out, id);
		if (!t->new_object) {
			member(v->out, "time", e->tsc - e->object_start);
		}
		putc(',', v->out);
	}
	fprintf(v->out, "\"value\":%" PRIu64 "}", e->object_id);
}

static void args_print(const struct trace_view *v, const struct trace_batch *b, const struct trace_event *e,
		       const struct trace_tpoint *t)
{
	for (unsigned i = 0; i < t->num_args; i++) {
		struct trace_arg a = trace_event_arg(b, e, t, i);
		fputs(i == 0 ? ",\"args\":[" : ",", v->out);
		if (a.type == TRACE_ARG_STR) {
			string_print(v->out, a.text, a.length);
		} else {
			fprintf(v->out, "%" PRIu64, a.number);
		}
	}
	if (t->num_args > 0) {
		putc(']', v->out);
	}
}

void json_event(struct trace_view *v, const struct trace_batch *b, const struct trace_event *e)
{
	const struct trace_tpoint *t = trace_reader_tpoint(v->r, e->tpoint_id);
	const char *owner = trace_reader_owner(v->r, e->owner_id, e->tsc);
	char text[32];

	fputs(v->any ? ",\n" : "\n", v->out);
	v->any = true;
	fprintf(v->out, "{\"lcore\":%u,\"tpoint\":%u,\"tsc\":%" PRIu64, e->lcore, e->tpoint_id, e->tsc);
	if (event_poller(v->r, e, text, sizeof(text))) {
		fputs(",\"poller\":", v->out);
		text_print(v->out, text);
	}
	if (owner != NULL && t->owner_type != 0) {
		fputs(",\"owner\":", v->out);
		text_print(v->out, owner);
	}
	if (e->size != 0) {
		member(v->out, "size", e->size);
	}
	object_print(v, e, t);
	if (e->related_index != TRACE_NO_OBJECT) {
		object_id_format(v->r, e->related_type, e->related_index, text, sizeof(text));
		fputs(",\"related\":", v->out);
		text_print(v->out, text);
	}
	args_print(v, b, e, t);
	if (e->state_ticks != TRACE_NO_TIME) {
		fprintf(v->out, ",\"state\":{\"tpoint\":%u,\"time\":%" PRIu64 "}", e->prev_tpoint,
			e->state_ticks);
	}
	putc('}', v->out);
}

/* ---- Around the entries ---- */

static void tpoints_print(const struct trace_view *v)
{
	bool any = false;

	fputs(",\n\"tpoints\":[", v->out);
	for (unsigned id = 0; id < trace_reader_num_tpoints(v->r); id++) {
		const struct trace_tpoint *t = trace_reader_tpoint(v->r, id);
		if (t == NULL) {
			continue;
		}
		fputs(any ? ",\n{\"name\":" : "\n{\"name\":", v->out);
		any = true;
		text_print(v->out, t->name);
		fprintf(v->out, ",\"id\":%u,\"new_object\":%s,\"args\":[", id,
			t->new_object ? "true" : "false");
		for (unsigned i = 0; i < t->num_args; i++) {
			fputs(i > 0 ? ",{\"name\":" : "{\"name\":", v->out);
			text_print(v->out, t->args[i].name);
			fprintf(v->out, ",\"type\":%u,\"size\":%u}", t->args[i].type, t->args[i].size);
		}
		fputs("]}", v->out);
	}
	putc(']', v->out);
}

static void owners_print(const struct trace_view *v)
{
	bool any = false;

	fputs(",\n\"owners\":{", v->out);
	for (unsigned id = 1; id < trace_reader_num_owners(v->r); id++) {
		const char *owner = trace_reader_owner(v->r, (uint16_t)id, UINT64_MAX);
		if (owner != NULL) {
			fprintf(v->out, "%s\"%u\":", any ? "," : "", id);
			text_print(v->out, owner);
			any = true;
		}
	}
	putc('}', v->out);
}

static void lcores_print(const struct trace_view *v, const struct trace_snapshot *s)
{
	fputs(",\n\"lcores\":[", v->out);
	for (size_t i = 0; i < s->num_lcores; i++) {
		const struct trace_lcore *lc = &s->lcores[i];
		fprintf(v->out, "%s{\"lcore\":%u,\"name\":", i > 0 ? "," : "", lc->lcore);
		text_print(v->out, lc->name);
		member(v->out, "num_entries", lc->num_entries);
		member(v->out, "written", lc->written);
		member(v->out, "recorded", lc->recorded);
		member(v->out, "events", lc->events);
		member(v->out, "cleared", lc->cleared);
		fprintf(v->out, ",\"lost\":{\"overwritten\":%" PRIu64, lc->overwritten);
		member(v->out, "unreadable", lc->unreadable);
		member(v->out, "unstable", lc->unstable);
		member(v->out, "torn", lc->torn);
		member(v->out, "out_of_order", lc->out_of_order);
		member(v->out, "cut", lc->cut);
		member(v->out, "unknown", lc->unknown);
		fputs("}}", v->out);
	}
	putc(']', v->out);
}

static void snapshot_print(const struct trace_view *v, const struct trace_snapshot *s)
{
	const struct trace_file_info *info = trace_reader_info(v->r);
	const char *problem;

	lcores_print(v, s);
	member(v->out, "first_tsc", s->first_tsc);
	member(v->out, "clear_tsc", s->clear_tsc);
	member(v->out, "not_recorded", s->loss.no_slot);
	fputs(",\"clocks\":[", v->out);
	for (unsigned i = 0; i < s->num_clocks; i++) {
		fprintf(v->out, "%s{\"tsc\":%" PRIu64 ",\"realtime_ns\":%" PRIu64 "}", i > 0 ? "," : "",
			s->clocks[i].tsc, s->clocks[i].realtime_ns);
	}
	putc(']', v->out);
	if (info != NULL) {
		fputs(",\"app\":{\"name\":", v->out);
		text_print(v->out, info->app_name);
		fputs(",\"version\":", v->out);
		text_print(v->out, info->app_version);
		fputs(",\"build_id\":", v->out);
		text_print(v->out, info->build_id);
		fprintf(v->out, ",\"pid\":%u,\"state\":", info->pid);
		text_print(v->out, writer_state_name(trace_reader_writer(v->r), info));
		if (info->crash_tsc != 0) {
			fprintf(v->out,
				",\"crash\":{\"tsc\":%" PRIu64 ",\"signal\":%d,\"address\":%" PRIu64
				",\"thread\":",
				info->crash_tsc, info->crash_signal, info->crash_address);
			text_print(v->out, info->crash_thread);
			putc('}', v->out);
		}
		putc('}', v->out);
	}
	fputs(",\"problems\":[", v->out);
	for (size_t i = 0; (problem = trace_reader_problem(v->r, i)) != NULL; i++) {
		fputs(i > 0 ? "," : "", v->out);
		text_print(v->out, problem);
	}
	putc(']', v->out);
}

static void preamble_print(struct trace_view *v, const struct trace_snapshot *s)
{
	fprintf(v->out, "{\"tsc_rate\":%" PRIu64, v->tsc_rate);
	tpoints_print(v);
	owners_print(v);
	if (s != NULL) {
		snapshot_print(v, s);
	}
}

void json_begin(struct trace_view *v, const struct trace_snapshot *s)
{
	preamble_print(v, s);
	fputs(",\n\"entries\":[", v->out);
}

void json_end(struct trace_view *v)
{
	fputs("\n]}\n", v->out);
}

void json_summary(struct trace_view *v, const struct trace_snapshot *s, const struct trace_dwell *rows,
		  size_t n)
{
	preamble_print(v, s);
	fputs(",\n\"states\":[", v->out);
	for (size_t i = 0; i < n; i++) {
		const struct trace_tpoint *t = trace_reader_tpoint(v->r, rows[i].tpoint_id);
		fprintf(v->out, "%s\n{\"tpoint\":%u,\"name\":", i > 0 ? "," : "", t->id);
		text_print(v->out, t->name);
		member(v->out, "object_type", t->object_type);
		member(v->out, "count", rows[i].count);
		member(v->out, "min", rows[i].min);
		member(v->out, "median", rows[i].median);
		member(v->out, "p99", rows[i].p99);
		member(v->out, "max", rows[i].max);
		member(v->out, "total", rows[i].total);
		putc('}', v->out);
	}
	fputs("\n]}\n", v->out);
}

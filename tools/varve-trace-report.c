/* SPDX-License-Identifier: BSD-3-Clause */
/* --summary and --slowest: where the time went. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/varve-trace.h"

/* ---- Tables of times ---- */

/* The sum over the rows of one object type, or of one owner, for computing their shares. */
static unsigned __int128 report_rows_total(const struct trace_dwell *rows, size_t n)
{
	unsigned __int128 sum = 0;

	for (size_t i = 0; i < n && rows[i].object_type == rows[0].object_type && rows[i].owner_id == rows[0].owner_id;
	     i++) {
		sum += rows[i].total;
	}
	return sum;
}

static unsigned report_permille_of(uint64_t part, unsigned __int128 sum)
{
	return sum > 0 ? (unsigned)((unsigned __int128)part * 1000 / sum) : 0;
}

static void report_share_print(struct out *o, unsigned permille)
{
	out_number_wide(o, permille / 10, 5);
	out_char(o, '.');
	out_number(o, permille % 10);
	out_char(o, '%');
}

static void report_head_print(struct out *o, const char *what, int width)
{
	static const char *const columns[] = {"count", "min", "median", "90%", "99%", "99.9%", "max"};

	out_text_wide(o, what, -width);
	for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
		out_text_wide(o, columns[i], i == 0 ? 11 : 13);
	}
}

static void report_times_print(const struct trace_view *v, const struct trace_dwell *d)
{
	const uint64_t ticks[] = {d->min, d->median, d->p90, d->p99, d->p999, d->max};

	out_number_wide(v->out, d->count, 11);
	for (size_t i = 0; i < sizeof(ticks) / sizeof(ticks[0]); i++) {
		time_print(v, ticks[i], 13);
	}
}

static const char *report_unit_name(const struct trace_view *v)
{
	return v->opt->ticks ? "ticks" : "microseconds";
}

static void report_type_name(const struct trace_view *v, uint8_t type, char *to, size_t size)
{
	char prefix = trace_reader_object_prefix(v->r, type);

	snprintf(to, size, "objects %c (type 0x%x)", prefix != 0 ? prefix : '?', type);
}

static const struct trace_dwell *report_row_find(const struct trace_dwell *rows, size_t n, uint8_t type)
{
	for (size_t i = 0; i < n; i++) {
		if (rows[i].object_type == type) {
			return &rows[i];
		}
	}
	return NULL;
}

/* Prints the states of one type (of one owner), with their shares. Returns the number of rows. */
static size_t report_states_print(const struct trace_view *v, const struct trace_dwell *rows, size_t n,
				  const char *indent)
{
	unsigned __int128 sum = report_rows_total(rows, n);
	size_t i = 0;

	for (; i < n && rows[i].object_type == rows[0].object_type && rows[i].owner_id == rows[0].owner_id; i++) {
		out_text(v->out, indent);
		out_text_wide(v->out, trace_reader_tpoint(v->r, rows[i].tpoint_id)->name, -24);
		report_times_print(v, &rows[i]);
		report_share_print(v->out, report_permille_of(rows[i].total, sum));
		out_char(v->out, '\n');
	}
	return i;
}

static void report_types_print(const struct trace_view *v, const struct trace_report *t)
{
	const struct trace_dwell *rows = t->rows[TRACE_BY_STATE];
	size_t n = t->num_rows[TRACE_BY_STATE], used;
	char name[48];

	if (n == 0) {
		out_text(v->out, "No object changed its state in these events.\n");
	}
	for (size_t i = 0; i < n; i += used) {
		report_type_name(v, rows[i].object_type, name, sizeof(name));
		out_char(v->out, '\n');
		report_head_print(v->out, "time in state", 24);
		out_printf(v->out, "  share\n%s, times in %s\n", name, report_unit_name(v));
		used = report_states_print(v, rows + i, n - i, "");
		const struct trace_dwell *whole =
			report_row_find(t->rows[TRACE_BY_TYPE], t->num_rows[TRACE_BY_TYPE], rows[i].object_type);
		if (whole != NULL) {
			out_text_wide(v->out, "from beginning to end", -24);
			report_times_print(v, whole);
			out_char(v->out, '\n');
		}
	}
}

/* The rows of an owner and type among those by owner and state. */
static const struct trace_dwell *report_owner_states(const struct trace_report *t, const struct trace_dwell *whole,
						     size_t *n)
{
	const struct trace_dwell *rows = t->rows[TRACE_BY_OWNER_STATE];
	size_t count = t->num_rows[TRACE_BY_OWNER_STATE], i = 0;

	while (i < count && (rows[i].owner_id != whole->owner_id || rows[i].object_type != whole->object_type)) {
		i++;
	}
	*n = 0;
	while (i + *n < count && rows[i + *n].owner_id == whole->owner_id &&
	       rows[i + *n].object_type == whole->object_type) {
		++*n;
	}
	return rows + i;
}

static void report_owner_print(struct trace_view *v, const struct trace_report *t, const struct trace_dwell *whole)
{
	size_t n, worst = 0;
	const struct trace_dwell *states = report_owner_states(t, whole, &n);

	for (size_t i = 1; i < n; i++) {
		worst = states[i].total > states[worst].total ? i : worst;
	}
	out_text(v->out, owner_printed(v, whole->owner_id, UINT64_MAX)->text);
	out_char(v->out, '\n');
	char name[48];
	report_type_name(v, whole->object_type, name, sizeof(name));
	out_text(v->out, "  ");
	out_text_wide(v->out, name, -24);
	report_times_print(v, whole);
	if (n > 0) {
		out_text(v->out, "  ");
		report_share_print(v->out, report_permille_of(states[worst].total, report_rows_total(states, n)));
		out_printf(v->out, " in %s", trace_reader_tpoint(v->r, states[worst].tpoint_id)->name);
	}
	out_char(v->out, '\n');
	if (v->opt->by_owner && n > 0) {
		report_states_print(v, states, n, "    ");
	}
}

static void report_owners_print(struct trace_view *v, const struct trace_report *t)
{
	const struct trace_dwell *rows = t->rows[TRACE_BY_OWNER_TYPE];
	bool any = false;

	for (size_t i = 0; i < t->num_rows[TRACE_BY_OWNER_TYPE]; i++) {
		if (rows[i].owner_id == 0) {
			continue;
		}
		if (!any) {
			out_char(v->out, '\n');
			report_head_print(v->out, "by owner, whole lives", 26);
			out_printf(v->out, "   most time, times in %s\n", report_unit_name(v));
			any = true;
		}
		report_owner_print(v, t, &rows[i]);
	}
}

static void report_unfinished_print(const struct trace_view *v, const struct trace_lives *l)
{
	size_t count[TRACE_NUM_TYPES] = {0};

	for (size_t i = 0; i < l->num_lives; i++) {
		count[l->lives[i].type] += l->lives[i].type != 0 && trace_life_is_unfinished(&l->lives[i]);
	}
	for (unsigned type = 0; type < TRACE_NUM_TYPES; type++) {
		char name[48];
		if (count[type] > 0) {
			report_type_name(v, (uint8_t)type, name, sizeof(name));
			out_printf(v->out, "Not finished: %zu %s; --unfinished shows them\n", count[type], name);
		}
	}
}

void text_report(struct trace_view *v, const struct trace_report *t, const struct trace_lives *l)
{
	report_types_print(v, t);
	report_owners_print(v, t);
	report_unfinished_print(v, l);
}

/* ---- The same as JSON ---- */

static void report_json_times(struct out *o, const struct trace_dwell *d)
{
	json_member(o, "count", d->count);
	json_member(o, "min", d->min);
	json_member(o, "median", d->median);
	json_member(o, "p90", d->p90);
	json_member(o, "p99", d->p99);
	json_member(o, "p999", d->p999);
	json_member(o, "max", d->max);
	json_member(o, "total", d->total);
}

static void report_json_type(const struct trace_view *v, uint8_t type)
{
	char prefix = trace_reader_object_prefix(v->r, type);

	json_member(v->out, "object_type", type);
	out_text(v->out, ",\"object_prefix\":");
	json_string(v->out, &prefix, prefix != 0);
}

static void report_json_state(const struct trace_view *v, const struct trace_dwell *d)
{
	out_text(v->out, "{\"tpoint\":");
	out_number(v->out, d->tpoint_id);
	out_text(v->out, ",\"name\":");
	json_text(v->out, trace_reader_tpoint(v->r, d->tpoint_id)->name);
	report_json_type(v, d->object_type);
	report_json_times(v->out, d);
	out_char(v->out, '}');
}

static void report_json_states(const struct trace_view *v, const struct trace_dwell *rows, size_t n)
{
	out_text(v->out, "\"states\":[");
	for (size_t i = 0; i < n; i++) {
		out_text(v->out, i > 0 ? ",\n" : "\n");
		report_json_state(v, &rows[i]);
	}
	out_text(v->out, "\n]");
}

void json_report(struct trace_view *v, const struct trace_snapshot *s, const struct trace_report *t,
		 const struct trace_lives *l)
{
	const struct trace_dwell *rows = t->rows[TRACE_BY_TYPE];
	size_t unfinished[TRACE_NUM_TYPES] = {0}, n;

	for (size_t i = 0; i < l->num_lives; i++) {
		unfinished[l->lives[i].type] += trace_life_is_unfinished(&l->lives[i]);
	}
	json_preamble(v, s);
	out_text(v->out, ",\n");
	report_json_states(v, t->rows[TRACE_BY_STATE], t->num_rows[TRACE_BY_STATE]);
	out_text(v->out, ",\n\"lives\":[");
	for (size_t i = 0; i < t->num_rows[TRACE_BY_TYPE]; i++) {
		out_text(v->out, i > 0 ? ",\n{\"unfinished\":" : "\n{\"unfinished\":");
		out_number(v->out, unfinished[rows[i].object_type]);
		report_json_type(v, rows[i].object_type);
		report_json_times(v->out, &rows[i]);
		out_char(v->out, '}');
	}
	out_text(v->out, "\n],\n\"by_owner\":[");
	rows = t->rows[TRACE_BY_OWNER_TYPE];
	for (size_t i = 0; i < t->num_rows[TRACE_BY_OWNER_TYPE]; i++) {
		const struct printed_owner *owner = owner_printed(v, rows[i].owner_id, UINT64_MAX);
		out_text(v->out, i > 0 ? ",\n{\"owner\":" : "\n{\"owner\":");
		out_text(v->out, owner->json_length > 0 ? owner->json : "null");
		json_member(v->out, "owner_id", rows[i].owner_id);
		report_json_type(v, rows[i].object_type);
		report_json_times(v->out, &rows[i]);
		const struct trace_dwell *states = report_owner_states(t, &rows[i], &n);
		out_char(v->out, ',');
		report_json_states(v, states, n);
		out_char(v->out, '}');
	}
	out_text(v->out, "\n]}\n");
}

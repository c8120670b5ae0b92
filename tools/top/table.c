/* SPDX-License-Identifier: BSD-3-Clause */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/safe-text.h"
#include "tools/top/top.h"

void top_table_init(struct top_table *t, const struct top_column *columns, unsigned n)
{
	*t = (struct top_table){.columns = columns, .n_columns = n};
}

static void top_row_free(const struct top_table *t, struct top_row *r)
{
	for (unsigned c = 0; c < t->n_columns; c++) {
		free(r->cells[c].text);
	}
}

void top_table_free(struct top_table *t)
{
	for (size_t i = 0; i < t->n_rows; i++) {
		top_row_free(t, &t->rows[i]);
	}
	free(t->rows);
	t->rows = NULL;
	t->n_rows = 0;
}

struct top_row *top_table_row(struct top_table *t)
{
	if (t->n_rows == t->room) {
		t->room = 2 * t->room + 64;
		t->rows = realloc(t->rows, t->room * sizeof(*t->rows));
		if (t->rows == NULL) {
			abort();
		}
	}
	memset(&t->rows[t->n_rows], 0, sizeof(*t->rows));
	return &t->rows[t->n_rows++];
}

void top_set_text(struct top_row *r, unsigned column, const char *text)
{
	struct top_cell *c = &r->cells[column];

	c->text = text != NULL ? strdup(text) : NULL;
	c->known = c->text != NULL;
	if (c->text != NULL) {
		safe_text_line(c->text);
	}
}

void top_set(struct top_row *r, unsigned column, double value)
{
	r->cells[column].known = value >= 0 && isfinite(value);
	r->cells[column].value = value;
}

static bool top_row_matches(const struct top_table *t, const struct top_row *r, const char *filter)
{
	for (unsigned c = 0; c < t->n_columns; c++) {
		if (r->cells[c].text != NULL && strcasestr(r->cells[c].text, filter) != NULL) {
			return true;
		}
	}
	return false;
}

void top_table_filter(struct top_table *t, const char *filter)
{
	size_t kept = 0;

	if (filter == NULL || filter[0] == '\0') {
		return;
	}
	for (size_t i = 0; i < t->n_rows; i++) {
		if (top_row_matches(t, &t->rows[i], filter)) {
			t->rows[kept++] = t->rows[i];
		} else {
			top_row_free(t, &t->rows[i]);
		}
	}
	t->n_rows = kept;
}

static int top_row_compare(const struct top_cell *a, const struct top_cell *b, enum top_kind kind, bool reverse)
{
	int order;

	if (!a->known || !b->known) {
		return (int)b->known - (int)a->known;
	}
	if (kind == TOP_TEXT) {
		order = strcasecmp(a->text, b->text);
	} else {
		order = a->value > b->value ? -1 : a->value < b->value;
	}
	return reverse ? -order : order;
}

/* Insertion sort: it is stable, and fast for rows that are mostly in order. */
static void top_rows_merge(struct top_row *rows, struct top_row *tmp, size_t n, unsigned column, enum top_kind kind,
			   bool reverse)
{
	size_t half = n / 2, a = 0, b = half, k = 0;

	if (n < 2) {
		return;
	}
	top_rows_merge(rows, tmp, half, column, kind, reverse);
	top_rows_merge(rows + half, tmp, n - half, column, kind, reverse);
	while (a < half && b < n) {
		bool first = top_row_compare(&rows[a].cells[column], &rows[b].cells[column], kind, reverse) <= 0;
		tmp[k++] = first ? rows[a++] : rows[b++];
	}
	while (a < half) {
		tmp[k++] = rows[a++];
	}
	memcpy(rows, tmp, k * sizeof(*rows));
}

void top_table_sort(struct top_table *t, unsigned column, bool reverse)
{
	struct top_row *tmp = calloc(t->n_rows + 1, sizeof(*tmp));

	if (tmp != NULL && column < t->n_columns) {
		top_rows_merge(t->rows, tmp, t->n_rows, column, t->columns[column].kind, reverse);
	}
	free(tmp);
}

static void top_format_scaled(double value, double unit, const char *units, char *to, size_t size)
{
	size_t i = 0, last = strlen(units) - 1;

	while (value >= unit * 9.995 && i < last) { /* 9.99k at most before the next unit */
		value /= unit;
		i++;
	}
	if (i == 0) {
		snprintf(to, size, value < 10 && value != (double)(long)value ? "%.2f" : "%.0f", value);
	} else {
		snprintf(to, size, value < 100 ? "%.1f%c" : "%.0f%c", value, units[i]);
	}
}

void top_cell_format(const struct top_cell *c, enum top_kind kind, char *to, size_t size)
{
	if (!c->known) {
		snprintf(to, size, "-");
		return;
	}
	switch (kind) {
	case TOP_TEXT:
		snprintf(to, size, "%s", c->text);
		break;
	case TOP_COUNT:
		snprintf(to, size, "%.0f", c->value);
		break;
	case TOP_RATE:
		top_format_scaled(c->value, 1000, " kMG", to, size);
		break;
	case TOP_BYTES:
		top_format_scaled(c->value, 1024, " KMGT", to, size);
		break;
	case TOP_PERCENT:
		snprintf(to, size, "%.1f", c->value);
		break;
	case TOP_US:
		if (c->value < 10000) {
			snprintf(to, size, "%.1fus", c->value);
		} else if (c->value < 10e6) {
			snprintf(to, size, "%.1fms", c->value / 1000);
		} else {
			snprintf(to, size, "%.1fs", c->value / 1e6);
		}
		break;
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* One row, a line for each column, with the numbers of the last looks. */
#include <ncurses.h>
#include <string.h>

#include "tools/top/top.h"

#define VALUE_AT 12 /* columns of the screen */
#define SPARK_AT 24
#define MAX_ROOM 12 /* for "max 999.9M" */

static const struct top_row *top_detail_find(const struct top_view *view, const struct top_table *t, const char *key)
{
	char k[TOP_KEY_MAX];

	for (size_t i = 0; i < t->n_rows; i++) {
		top_row_key(view, &t->rows[i], k, sizeof(k));
		if (strcmp(k, key) == 0) {
			return &t->rows[i];
		}
	}
	return NULL;
}

static void top_detail_spark(const struct top_column *column, const float *values, unsigned n, int y)
{
	int room = COLS - SPARK_AT - MAX_ROOM;
	unsigned shown = room <= 0 ? 0 : (unsigned)room < n ? (unsigned)room : n;
	char line[TOP_HISTORY + 1], max[32];

	if (shown == 0) {
		return;
	}
	struct top_cell c = {.known = true, .value = (double)top_spark(values + n - shown, shown, line)};
	top_cell_format(&c, column->kind, max, sizeof(max));
	mvaddnstr(y, SPARK_AT, line, COLS - SPARK_AT);
	mvprintw(y, COLS - MAX_ROOM, " max %.7s", max);
}

static void top_detail_line(const struct top_column *column, const struct top_cell *cell, const float *values,
			    unsigned n, int y)
{
	char text[1024];

	mvaddnstr(y, 0, column->name, VALUE_AT - 1);
	if (cell != NULL && COLS > VALUE_AT) {
		top_cell_format(cell, column->kind, text, sizeof(text));
		mvaddnstr(y, VALUE_AT, text, COLS - VALUE_AT);
	}
	if (column->kind != TOP_TEXT) {
		top_detail_spark(column, values, n, y);
	}
}

void top_detail_draw(const struct top_view *view, const struct top_table *t, const char *key,
		     const struct top_history *h, int y)
{
	const struct top_row *r = top_detail_find(view, t, key);
	float values[TOP_HISTORY];

	attrset(A_BOLD);
	mvaddnstr(y, 0, key, COLS);
	attrset(A_NORMAL);
	if (r == NULL) {
		mvaddnstr(y + 1, 0, "It is not there any more.", COLS);
	}
	for (unsigned c = 0; c < view->n_columns && y + 2 + (int)c < LINES - 1; c++) {
		unsigned n = top_history_get(h, key, c, values);
		top_detail_line(&view->columns[c], r != NULL ? &r->cells[c] : NULL, values, n, y + 2 + (int)c);
	}
	mvaddnstr(LINES - 1, 0, "Enter back  q quit  numbers of the last looks: _ is 0, # the largest",
		  COLS > 1 ? COLS - 1 : 0);
}

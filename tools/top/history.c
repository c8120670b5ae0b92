/* SPDX-License-Identifier: BSD-3-Clause */
/* The numbers of a view's rows at the last looks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/top/top.h"

#define ROWS_MAX 4096 /* that are remembered; a view with more shows no history of the others */

/* Of one row. Slots are those of the looks, modulo TOP_HISTORY. */
struct top_history_row {
	char *key;
	uint64_t last; /* look in which the row was there */
	float values[TOP_COLUMNS_MAX][TOP_HISTORY];
};

void top_row_key(const struct top_view *view, const struct top_row *r, char *key, size_t size)
{
	size_t n = 0;
	char text[256];

	key[0] = '\0';
	for (unsigned c = 0; c < view->n_columns && n < size; c++) {
		if (view->keys & 1u << c) {
			top_cell_format(&r->cells[c], view->columns[c].kind, text, sizeof(text));
			n += (size_t)snprintf(key + n, size - n, "%s%s", n > 0 ? "  " : "", text);
		}
	}
}

static void top_history_remove(struct top_history *h, size_t i)
{
	json_object_del(h->index, h->rows[i]->key);
	free(h->rows[i]->key);
	free(h->rows[i]);
	h->rows[i] = h->rows[--h->n_rows];
	if (i < h->n_rows) {
		json_object_set_new(h->index, h->rows[i]->key, json_integer((json_int_t)i));
	}
}

void top_history_clear(struct top_history *h)
{
	while (h->n_rows > 0) {
		top_history_remove(h, h->n_rows - 1);
	}
	json_decref(h->index);
	free(h->rows);
	*h = (struct top_history){0};
}

static struct top_history_row *top_history_find(const struct top_history *h, const char *key)
{
	const json_t *i = json_object_get(h->index, key);

	return i != NULL ? h->rows[json_integer_value(i)] : NULL;
}

static struct top_history_row *top_history_insert(struct top_history *h, const char *key)
{
	struct top_history_row *r = h->n_rows < ROWS_MAX ? malloc(sizeof(*r)) : NULL;

	if (r == NULL || (r->key = strdup(key)) == NULL ||
	    json_object_set_new(h->index, key, json_integer((json_int_t)h->n_rows)) != 0) {
		free(r != NULL ? r->key : NULL);
		free(r);
		return NULL;
	}
	for (unsigned c = 0; c < TOP_COLUMNS_MAX; c++) {
		for (unsigned i = 0; i < TOP_HISTORY; i++) {
			r->values[c][i] = NAN;
		}
	}
	h->rows[h->n_rows++] = r;
	return r;
}

static void top_history_set(struct top_history *h, const struct top_view *view, const struct top_row *row)
{
	char key[TOP_KEY_MAX];

	top_row_key(view, row, key, sizeof(key));
	struct top_history_row *r = top_history_find(h, key);
	if (r == NULL && (r = top_history_insert(h, key)) == NULL) {
		return;
	}
	r->last = h->looks;
	for (unsigned c = 0; c < view->n_columns; c++) {
		const struct top_cell *cell = &row->cells[c];
		r->values[c][h->looks % TOP_HISTORY] =
			cell->known && view->columns[c].kind != TOP_TEXT ? (float)cell->value : NAN;
	}
}

void top_history_add(struct top_history *h, const struct top_view *view, const struct top_table *t)
{
	if (h->index == NULL) {
		h->index = json_object();
		h->rows = calloc(ROWS_MAX, sizeof(struct top_history_row *));
	}
	if (h->index == NULL || h->rows == NULL) {
		return;
	}
	h->looks++;
	for (size_t i = h->n_rows; i-- > 0;) {
		for (unsigned c = 0; c < TOP_COLUMNS_MAX; c++) {
			h->rows[i]->values[c][h->looks % TOP_HISTORY] = NAN;
		}
	}
	for (size_t i = 0; i < t->n_rows; i++) {
		top_history_set(h, view, &t->rows[i]);
	}
	for (size_t i = h->n_rows; i-- > 0;) {
		if (h->rows[i]->last + TOP_HISTORY <= h->looks) {
			top_history_remove(h, i);
		}
	}
}

unsigned top_history_get(const struct top_history *h, const char *key, unsigned column, float values[TOP_HISTORY])
{
	const struct top_history_row *r = h->index != NULL ? top_history_find(h, key) : NULL;
	unsigned n = r == NULL ? 0 : h->looks < TOP_HISTORY ? (unsigned)h->looks : TOP_HISTORY;

	for (unsigned i = 0; i < n; i++) {
		values[i] = r->values[column][(h->looks + 1 - n + i) % TOP_HISTORY];
	}
	return n;
}

float top_spark(const float *values, unsigned n, char *line)
{
	static const char levels[] = "_.-=+*#";
	float max = 0;

	for (unsigned i = 0; i < n; i++) {
		max = values[i] > max ? values[i] : max; /* NAN is not larger */
	}
	for (unsigned i = 0; i < n; i++) {
		size_t level = max > 0 && values[i] > 0 ? (size_t)ceilf(values[i] / max * (sizeof(levels) - 2)) : 0;
		line[i] = isnan(values[i]) ? ' ' : levels[level];
	}
	line[n] = '\0';
	return max;
}

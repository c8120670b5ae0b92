/* SPDX-License-Identifier: BSD-3-Clause */
/* Tables of JSON: an array of objects is a table with a line for each, an object a list of its members. */
#include <stdlib.h>
#include <string.h>

#include "tools/print/print.h"
#include "util/parse.h"

#define GAP       2   /* between columns */
#define COLUMNS   256 /* at most */
#define CELL_MAX  40  /* characters of a cell, unless wide */
#define INDENT    2
#define DEPTH_MAX 64 /* of what is shown as a list; what is deeper is shown as JSON */

struct table {
	json_t *rows; /* of objects whose members are texts of cells */
	const char *keys[COLUMNS];
	size_t widths[COLUMNS];
	bool numeric[COLUMNS]; /* but for cells without a value */
	bool number_seen[COLUMNS];
	size_t n_columns;
	size_t left_out; /* columns that do not fit */
};

/* Characters, not bytes. */
static size_t print_length(const char *text)
{
	size_t n = 0;

	for (; *text != '\0'; text++) {
		n += ((unsigned char)*text & 0xc0) != 0x80;
	}
	return n;
}

/* Whether numbers of that name are bytes. */
static bool print_is_bytes(const char *key)
{
	static const char *const names[] = {
		"block_size",           "physical_block_size", "cluster_size",  "io_unit_size", "max_io_size",
		"in_capsule_data_size", "small_bufsize",       "large_bufsize", "bytes_read",   "bytes_written",
		"bytes_unmapped",       "bytes_copied",        "max_bytes",     "file_size"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(names[i], key) == 0) {
			return true;
		}
	}
	size_t len = strlen(key);
	return strcmp(key, "bytes") == 0 || (len > 6 && strcmp(key + len - 6, "_bytes") == 0);
}

/* The bytes that an object with blocks has, which it does not say itself; 0: it has none. */
static uint64_t print_bytes_of_blocks(const json_t *object)
{
	json_int_t block = json_integer_value(json_object_get(object, "block_size")),
		   n = json_integer_value(json_object_get(object, "num_blocks"));
	uint64_t bytes;

	if (block <= 0 || n <= 0 || __builtin_mul_overflow((uint64_t)block, (uint64_t)n, &bytes)) {
		return 0;
	}
	return bytes;
}

/* The end of the first n characters. */
static char *print_after(char *text, size_t n)
{
	for (; *text != '\0'; text++) {
		if (((unsigned char)*text & 0xc0) != 0x80 && n-- == 0) {
			break;
		}
	}
	return text;
}

/* Puts a text into one line and, unless wide, into CELL_MAX characters. */
static json_t *print_cell(const char *text, bool wide)
{
	char *copy = malloc(strlen(text) + 4);

	if (copy == NULL) {
		return json_string("");
	}
	strcpy(copy, text);
	for (char *at = copy; (at = strpbrk(at, "\n\t")) != NULL;) {
		*at = ' ';
	}
	if (!wide && print_length(copy) > CELL_MAX) {
		strcpy(print_after(copy, CELL_MAX - 3), "...");
	}
	json_t *cell = json_string(copy);
	free(copy);
	return cell;
}

/* The text of a member that is shown in one line. */
static json_t *print_cell_of(const char *key, const json_t *value, bool wide)
{
	char size[PRINT_SIZE_MAX];

	if (json_is_string(value)) {
		return print_cell(json_string_value(value), wide);
	}
	if (json_is_integer(value) && print_is_bytes(key) && json_integer_value(value) >= 1024) {
		return json_string(print_size((uint64_t)json_integer_value(value), size));
	}
	if (json_is_null(value) || (json_is_array(value) && json_array_size(value) == 0)) {
		return json_string("-");
	}
	if (json_is_array(value) && !wide && json_array_size(value) != 1) {
		return json_sprintf("[%zu]", json_array_size(value));
	}
	if (json_is_array(value) && json_array_size(value) == 1 && json_is_string(json_array_get(value, 0))) {
		return print_cell(json_string_value(json_array_get(value, 0)), wide);
	}
	char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
	json_t *cell = print_cell(text != NULL ? text : "", wide);
	free(text);
	return cell;
}

/* Adds the members of an object to a row: inner objects only if wide, as outer.inner. */
static void print_row_add(json_t *row, const char *prefix, const json_t *object, bool wide, unsigned depth)
{
	const char *key;
	json_t *value;
	uint64_t bytes = print_bytes_of_blocks(object);
	char size[PRINT_SIZE_MAX];

	json_object_foreach ((json_t *)object, key, value) {
		json_t *name = json_sprintf("%s%s", prefix, key);
		const char *column = json_string_value(name);
		if (column == NULL) {
			continue;
		}
		if (strcmp(key, "block_size") == 0 && bytes != 0 && json_object_get(object, "size") == NULL) {
			json_object_set_new(row, "size", json_string(print_size(bytes, size)));
		}
		if (!json_is_object(value)) {
			json_object_set_new(row, column, print_cell_of(key, value, wide));
		} else if (wide && depth < DEPTH_MAX) {
			json_t *inner = json_sprintf("%s.", column);
			print_row_add(row, json_string_value(inner), value, wide, depth + 1);
			json_decref(inner);
		}
		json_decref(name);
	}
}

static size_t print_column_find(const struct table *t, const char *key)
{
	size_t i = 0;

	while (i < t->n_columns && strcmp(t->keys[i], key) != 0) {
		i++;
	}
	return i;
}

static bool print_is_number(const char *text)
{
	return strspn(text, "0123456789.-KMGTPE") == strlen(text) && strpbrk(text, "0123456789") != NULL;
}

/* Finds the columns of the rows, in the order in which they appear. */
static void print_columns_find(struct table *t)
{
	json_t *row, *cell;
	const char *key;
	size_t r;

	json_array_foreach (t->rows, r, row) {
		json_object_foreach (row, key, cell) {
			size_t i = print_column_find(t, key), len = print_length(json_string_value(cell));
			if (i == COLUMNS) {
				t->left_out++;
				continue;
			}
			if (i == t->n_columns) {
				t->keys[t->n_columns++] = key;
				t->widths[i] = print_length(key);
				t->numeric[i] = true;
			}
			t->widths[i] = len > t->widths[i] ? len : t->widths[i];
			const bool number = print_is_number(json_string_value(cell));
			t->numeric[i] &= number || strcmp(json_string_value(cell), "-") == 0;
			t->number_seen[i] |= number;
		}
	}
}

/* Leaves out the last columns, but not the first, until the others fit. */
static void print_columns_fit(struct table *t, size_t width)
{
	size_t used = 0, n = 0;

	while (n < t->n_columns && (n == 0 || used + GAP + t->widths[n] <= width)) {
		used += t->widths[n] + (n > 0 ? GAP : 0);
		n++;
	}
	t->left_out += t->n_columns - n;
	t->n_columns = n;
}

static void print_line(const struct table *t, const json_t *row, unsigned indent, FILE *out)
{
	fprintf(out, "%*s", (int)indent, "");
	for (size_t i = 0; i < t->n_columns; i++) {
		const char *text = row == NULL ? t->keys[i] : json_string_value(json_object_get(row, t->keys[i]));
		text = text != NULL ? text : "-";
		int pad = (int)(t->widths[i] - print_length(text));
		if (t->numeric[i] && t->number_seen[i]) {
			fprintf(out, "%*s%s", pad, "", text);
		} else if (i + 1 < t->n_columns) {
			fprintf(out, "%s%*s", text, pad, "");
		} else {
			fprintf(out, "%s", text);
		}
		fprintf(out, "%*s", i + 1 < t->n_columns ? GAP : 0, "");
	}
	fputc('\n', out);
}

static void print_objects(const json_t *array, bool wide, unsigned width, unsigned indent, FILE *out)
{
	struct table *t = calloc(1, sizeof(*t));
	json_t *object, *row;
	size_t i;

	if (t == NULL) {
		return;
	}
	t->rows = json_array();
	json_array_foreach (array, i, object) {
		row = json_object();
		print_row_add(row, "", object, wide, 0);
		json_array_append_new(t->rows, row);
	}
	print_columns_find(t);
	if (!wide && width != 0) {
		print_columns_fit(t, width > indent ? width - indent : 0);
	}
	print_line(t, NULL, indent, out);
	json_array_foreach (t->rows, i, row) {
		print_line(t, row, indent, out);
	}
	if (t->left_out != 0) {
		fprintf(out, "%*s(%zu more column%s: -o wide)\n", (int)indent, "", t->left_out,
			t->left_out == 1 ? "" : "s");
	}
	json_decref(t->rows);
	free(t);
}

static bool print_is_list_of_objects(const json_t *value)
{
	const json_t *o;
	size_t i;

	json_array_foreach (value, i, o) {
		if (!json_is_object(o)) {
			return false;
		}
	}
	return json_array_size(value) > 0;
}

static void print_any(const json_t *value, bool wide, unsigned width, unsigned depth, FILE *out);

/* Whether a member needs lines of its own below its name. */
static bool print_is_block(const json_t *value, unsigned depth)
{
	return depth < DEPTH_MAX && (json_object_size(value) > 0 || print_is_list_of_objects(value));
}

static void print_members(const json_t *object, bool wide, unsigned width, unsigned depth, FILE *out)
{
	uint64_t bytes = print_bytes_of_blocks(object);
	char size[PRINT_SIZE_MAX];
	size_t name_width = 0;
	const char *key;
	json_t *value;

	json_object_foreach ((json_t *)object, key, value) {
		size_t len = print_is_block(value, depth) ? 0 : print_length(key);
		name_width = len > name_width ? len : name_width;
	}
	json_object_foreach ((json_t *)object, key, value) {
		if (print_is_block(value, depth)) {
			fprintf(out, "%*s%s:\n", (int)(INDENT * depth), "", key);
			print_any(value, wide, width, depth + 1, out);
			continue;
		}
		json_t *cell = print_cell_of(key, value, true);
		fprintf(out, "%*s%s%*s  %s\n", (int)(INDENT * depth), "", key, (int)(name_width - print_length(key)),
			"", json_string_value(cell) != NULL ? json_string_value(cell) : "");
		json_decref(cell);
		if (strcmp(key, "num_blocks") == 0 && bytes != 0 && json_object_get(object, "size") == NULL) {
			fprintf(out, "%*s%-*s  %s\n", (int)(INDENT * depth), "", (int)name_width, "size",
				print_size(bytes, size));
		}
	}
}

static void print_any(const json_t *value, bool wide, unsigned width, unsigned depth, FILE *out)
{
	const json_t *o;
	size_t i;

	if (print_is_list_of_objects(value) && (json_array_size(value) > 1 || depth > 0)) {
		print_objects(value, wide, width, INDENT * depth, out);
	} else if (print_is_list_of_objects(value)) { /* one object: all of it */
		print_members(json_array_get(value, 0), wide, width, depth, out);
	} else if (json_object_size(value) > 0) {
		print_members(value, wide, width, depth, out);
	} else if (json_array_size(value) > 0) {
		json_array_foreach (value, i, o) {
			json_t *cell = print_cell_of("", o, true);
			fprintf(out, "%*s%s\n", (int)(INDENT * depth), "", json_string_value(cell));
			json_decref(cell);
		}
	} else if (json_is_array(value) || json_is_object(value)) {
		fprintf(out, "(none)\n");
	} else {
		json_t *cell = print_cell_of("", value, true);
		fprintf(out, "%s\n", json_string_value(cell));
		json_decref(cell);
	}
}

void print_table_text(const json_t *value, bool wide, unsigned width, FILE *out)
{
	print_any(value, wide, width, 0, out);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* YAML 1.2 of a JSON value. Strings are always in double quotes, in which YAML reads what JSON writes: so no string
 * becomes a number, a truth value or a comment. */
#include <stdlib.h>

#include "tools/print/print.h"

static void print_yaml_scalar(const json_t *value, FILE *out)
{
	char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);

	fprintf(out, "%s\n", text != NULL ? text : "null");
	free(text);
}

/* Whether it is written behind its key or dash, on the same line. */
static bool print_yaml_is_short(const json_t *value)
{
	return json_object_size(value) == 0 && json_array_size(value) == 0;
}

static void print_yaml_block(const json_t *value, unsigned depth, bool behind_dash, FILE *out);

static void print_yaml_value(const json_t *value, unsigned depth, bool behind_dash, FILE *out)
{
	if (print_yaml_is_short(value)) {
		fputc(' ', out);
		print_yaml_scalar(value, out);
		return;
	}
	fputc(behind_dash ? ' ' : '\n', out);
	print_yaml_block(value, depth, behind_dash, out);
}

/* An object or array that is not empty. behind_dash: its first line has begun. */
static void print_yaml_block(const json_t *value, unsigned depth, bool behind_dash, FILE *out)
{
	const char *key;
	json_t *member;
	size_t i, n = 0;

	json_object_foreach ((json_t *)value, key, member) {
		json_t *name = json_string(key);
		char *text = json_dumps(name, JSON_ENCODE_ANY);
		fprintf(out, "%*s%s:", behind_dash && n++ == 0 ? 0 : (int)(2 * depth), "", text != NULL ? text : "");
		print_yaml_value(member, depth + 1, false, out);
		free(text);
		json_decref(name);
	}
	json_array_foreach (value, i, member) {
		fprintf(out, "%*s-", behind_dash && i == 0 ? 0 : (int)(2 * depth), "");
		print_yaml_value(member, depth + 1, true, out);
	}
}

void print_yaml_text(const json_t *value, FILE *out)
{
	if (print_yaml_is_short(value)) {
		print_yaml_scalar(value, out);
	} else {
		print_yaml_block(value, 0, false, out);
	}
}

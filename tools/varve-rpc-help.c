/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints results, methods and their parameters for people. */
#include <stdlib.h>
#include <string.h>

#include "tools/safe-text.h"
#include "tools/varve-rpc.h"

#define TYPE_MAX 512

static const char *rpc_help_text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s != NULL ? s : "";
}

static size_t rpc_help_append(char *out, size_t used, const char *s)
{
	size_t len = strlen(s);

	if (used + len >= TYPE_MAX) {
		len = TYPE_MAX - 1 - used;
	}
	memcpy(out + used, s, len);
	out[used + len] = '\0';
	return used + len;
}

/* "uint32", "uint8 3..200", "enum red|green". */
static void rpc_help_type_text(const json_t *p, const char *separator, char *out)
{
	const json_t *v, *max = json_object_get(p, "max");
	size_t i, used = rpc_help_append(out, 0, rpc_help_text_of(p, "type"));
	char range[64];

	json_array_foreach (json_object_get(p, "values"), i, v) {
		used = rpc_help_append(out, used, i == 0 ? " " : separator);
		used = rpc_help_append(out, used, json_is_string(v) ? json_string_value(v) : "?");
	}
	char *only = json_dumps(json_object_get(p, "only"),
				JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII); /* NULL where there is none */
	if (only != NULL) {
		used = rpc_help_append(out, used, ", only ");
		used = rpc_help_append(out, used, only);
		free(only);
	}
	if (json_is_integer(max)) {
		snprintf(range, sizeof(range), " %lld..%lld", (long long)json_integer_value(json_object_get(p, "min")),
			 (long long)json_integer_value(max));
		rpc_help_append(out, used, range);
	}
}

static void rpc_help_print_params(const json_t *params, const char *prefix, FILE *out)
{
	const json_t *p, *fields;
	char name[128], type[TYPE_MAX];
	size_t i;

	json_array_foreach (params, i, p) {
		snprintf(name, sizeof(name), "%s%s", prefix, rpc_help_text_of(p, "name"));
		rpc_help_type_text(p, "|", type);
		if (strcmp(rpc_help_text_of(p, "unit"), "bytes") == 0) { /* understood here, not by the daemon */
			rpc_help_append(type, strlen(type), ", or 64K, 1M");
		}
		fprintf(out, "  %-28s %-10s %s\n", name,
			json_is_true(json_object_get(p, "required")) ? "(required)" : "", type);
		if (rpc_help_text_of(p, "help")[0] != '\0') {
			fprintf(out, "  %-28s            %s\n", "", rpc_help_text_of(p, "help"));
		}
		fields = json_object_get(p, "fields");
		if (fields != NULL && strlen(name) < sizeof(name) - 2) {
			strcat(name, ".");
			rpc_help_print_params(fields, name, out);
		}
	}
}

void rpc_print_names(const json_t *descriptions, FILE *out)
{
	const json_t *m;
	size_t i;

	json_array_foreach (descriptions, i, m) {
		safe_text_print(out, rpc_help_text_of(m, "name"), strlen(rpc_help_text_of(m, "name")));
		fputc('\n', out);
	}
}

void rpc_print_json(const json_t *value, FILE *out)
{
	char *text = json_dumps(value, JSON_INDENT(2) | JSON_ENCODE_ANY);

	if (text != NULL) {
		safe_text_print(out, text, strlen(text));
		fputc('\n', out);
	}
	free(text);
}

static void rpc_help_method_text(const json_t *description, FILE *out)
{
	const json_t *params = json_object_get(description, "params");

	fprintf(out, "%s: %s\n", rpc_help_text_of(description, "name"), rpc_help_text_of(description, "help"));
	if (rpc_help_text_of(description, "alias")[0] != '\0') {
		fprintf(out, "  (also known as %s)\n", rpc_help_text_of(description, "alias"));
	}
	if (json_array_size(params) == 0) {
		fprintf(out, "  It takes no parameters.\n");
	}
	rpc_help_print_params(params, "", out);
	if (rpc_args_takes_size(params)) {
		fprintf(out, "  size=1G, with block_size, is understood in place of num_blocks.\n");
	}
	if (rpc_help_text_of(description, "result")[0] != '\0') {
		fprintf(out, "  It answers: %s\n", rpc_help_text_of(description, "result"));
	}
}

static void rpc_help_markdown_params(const json_t *params, const char *prefix, FILE *out)
{
	const json_t *p, *fields;
	char name[128], type[TYPE_MAX];
	size_t i;

	json_array_foreach (params, i, p) {
		snprintf(name, sizeof(name), "%s%s", prefix, rpc_help_text_of(p, "name"));
		rpc_help_type_text(p, ", ", type);
		fprintf(out, "| `%s` | %s | %s | %s |\n", name, type,
			json_is_true(json_object_get(p, "required")) ? "yes" : "", rpc_help_text_of(p, "help"));
		fields = json_object_get(p, "fields");
		if (fields != NULL && strlen(name) < sizeof(name) - 2) {
			strcat(name, ".");
			rpc_help_markdown_params(fields, name, out);
		}
	}
}

static void rpc_help_markdown_text(const json_t *descriptions, FILE *out)
{
	const json_t *m, *state;
	size_t i, j;

	json_array_foreach (descriptions, i, m) {
		fprintf(out, "### %s\n\n%s.", rpc_help_text_of(m, "name"), rpc_help_text_of(m, "help"));
		if (json_array_size(json_object_get(m, "states")) == 1) {
			json_array_foreach (json_object_get(m, "states"), j, state) {
				fprintf(out, " Only at %s.", json_is_string(state) ? json_string_value(state) : "?");
			}
		}
		fprintf(out, "\n\n");
		if (json_array_size(json_object_get(m, "params")) > 0) {
			fprintf(out, "| parameter | type | required | |\n| --- | --- | --- | --- |\n");
			rpc_help_markdown_params(json_object_get(m, "params"), "", out);
			fprintf(out, "\n");
		}
		if (rpc_help_text_of(m, "result")[0] != '\0') {
			fprintf(out, "Answers `%s`.\n\n", rpc_help_text_of(m, "result"));
		}
	}
}

/* Prints the text that write() makes of a description, without control characters: all texts in it come from the
 * daemon. */
static void rpc_help_print_safely(const json_t *description, void (*write)(const json_t *description, FILE *out),
				  FILE *out)
{
	char *text = NULL;
	size_t len = 0;
	FILE *memory = open_memstream(&text, &len);

	if (memory != NULL) {
		write(description, memory);
		fclose(memory);
		safe_text_print(out, text, len);
	}
	free(text);
}

void rpc_print_method(const json_t *description, FILE *out)
{
	rpc_help_print_safely(description, rpc_help_method_text, out);
}

void rpc_print_markdown(const json_t *descriptions, const char *module, FILE *out)
{
	json_t *chosen = json_array(), *m;
	size_t i;

	json_array_foreach (descriptions, i, m) {
		if (strcmp(rpc_help_text_of(m, "module"), module != NULL ? module : "") == 0) {
			json_array_append(chosen, m);
		}
	}
	rpc_help_print_safely(chosen, rpc_help_markdown_text, out);
	json_decref(chosen);
}

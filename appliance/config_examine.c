/* SPDX-License-Identifier: BSD-3-Clause */
/* varve --check: all that is wrong with a configuration. */
#include <stdlib.h>
#include <string.h>

#include "appliance/config.h"
#include "appliance/config_place.h"
#include "rpc/rpc.h"

#define PER_ENTRY 32  /* so many mistakes of one entry are reported */
#define PATH_SIZE 256 /* of the names of a parameter and the objects around it */

struct examination {
	FILE *out;
	unsigned n;
};

static void config_examine_print(const struct config *c, const char *wrong)
{
	struct examination *e = c->report_arg;
	size_t len = strlen(c->file);

	/* Messages begin with the file, and those of the parser with the place too; here both stand in front. */
	if (strncmp(wrong, c->file, len) == 0 && strncmp(wrong + len, ": ", 2) == 0) {
		wrong += len + 2;
	}
	const char *rest = strncmp(wrong, "line ", 5) == 0 ? strstr(wrong, ": ") : NULL;
	wrong = rest != NULL ? rest + 2 : wrong;
	e->n++;
	fprintf(e->out, "%s:%u:%u: %s\n", c->file, c->line, c->column, wrong);
}

/* The path of the parameter that a message of the decoder names first: parameter "host.name" ...; false: it names none.
 */
static bool config_examine_path(const char *wrong, char *path, size_t size)
{
	static const char start[] = "parameter \"";
	size_t n;

	if (strncmp(wrong, start, strlen(start)) != 0) {
		return false;
	}
	wrong += strlen(start);
	n = strcspn(wrong, "\"");
	if (n == 0 || n >= size) {
		return false;
	}
	memcpy(path, wrong, n);
	path[n] = '\0';
	return true;
}

/* The object that has the last part of a path, which is at *last; NULL: there is none. copy: of the path, is changed.
 */
static json_t *config_examine_object(json_t *params, char *copy, char **last)
{
	char *rest = copy;

	for (*last = strsep(&rest, "."); rest != NULL; *last = strsep(&rest, ".")) {
		params = json_object_get(params, *last);
	}
	return json_object_get(params, *last) != NULL ? params : NULL;
}

/* One mistake of an entry, whose place is that of the parameter that it is about, or the method. params: of the entry,
 * without those that were found wrong before. False: nothing more can be found. */
static bool config_examine_mistake(struct config *c, const struct config_entry *e, json_t *params)
{
	char wrong[RPC_ERROR_TEXT_MAX], text[RPC_ERROR_TEXT_MAX], path[PATH_SIZE], line[CONFIG_ERROR_MAX];
	char in_entry[PATH_SIZE + sizeof("params.")] = "method";
	char copy[PATH_SIZE], again[PATH_SIZE], *name;
	unsigned states;

	if (rpc_check_method(e->method, params, &states, wrong) == 0) {
		return false;
	}
	bool named = config_examine_path(wrong, path, sizeof(path));
	snprintf(copy, sizeof(copy), "%s", named ? path : "");
	json_t *object = config_examine_object(params, copy, &name);
	if (named && object == NULL) {
		snprintf(again, sizeof(again), "%s", path);
		if (config_examine_object(e->params, again, &name) != NULL) {
			return false; /* "missing": its value was wrong, and has been reported */
		}
	}
	if (named) {
		snprintf(in_entry, sizeof(in_entry), "params.%s", path);
	}
	config_place_find_member(c->places, e->entry, in_entry, &c->line, &c->column);
	snprintf(line, sizeof(line), "%s: %s", e->method, rpc_refusal_text(e->params, wrong, text));
	config_examine_print(c, line);
	return object != NULL && json_object_del(object, name) == 0;
}

static void config_examine_entry(struct config *c, const struct config_entry *e)
{
	json_t *params = e->params != NULL ? json_deep_copy(e->params) : NULL;
	unsigned n = 0;

	while (n < PER_ENTRY && config_examine_mistake(c, e, params)) {
		n++;
	}
	json_decref(params);
}

unsigned config_examine_text(const char *file, const char *text, size_t len, FILE *out)
{
	struct examination e = {.out = out};
	char error[CONFIG_ERROR_MAX];
	struct config c;

	if (config_parse_all(file, text, len, &c, config_examine_print, &e, error) != 0) {
		if (e.n == 0) { /* no memory */
			fprintf(out, "%s\n", error);
		}
		return e.n != 0 ? e.n : 1;
	}
	for (size_t i = 0; i < c.n_entries; i++) {
		config_examine_entry(&c, &c.entries[i]);
	}
	config_free(&c);
	return e.n;
}

unsigned config_examine(const char *file, FILE *out)
{
	char error[CONFIG_ERROR_MAX], *text = NULL;
	size_t len = 0;

	if (config_read_text(file, &text, &len, error) != 0) {
		fprintf(out, "%s\n", error);
		return 1;
	}
	unsigned n = config_examine_text(file, text, len, out);
	free(text);
	return n;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes parameters of key=value arguments. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tools/safe-text.h"
#include "tools/varve-rpc.h"
#include "util/nearest.h"
#include "util/parse.h"

#define KEY_MAX 128

struct complaint {
	char *text;
	size_t size;
};

static int __attribute__((format(printf, 2, 3))) rpc_args_complain(struct complaint *c, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(c->text, c->size, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

/* The description of one parameter in a list of them, or NULL. */
static const json_t *rpc_args_describe(const json_t *list, const char *name)
{
	const json_t *p;
	size_t i;

	json_array_foreach (list, i, p) {
		const char *n = json_string_value(json_object_get(p, "name"));
		if (n != NULL && strcmp(n, name) == 0) {
			return p;
		}
	}
	return NULL;
}

static bool rpc_args_is_text(const json_t *description)
{
	const char *type = json_string_value(json_object_get(description, "type"));

	return type != NULL && (strcmp(type, "string") == 0 || strcmp(type, "uuid") == 0 || strcmp(type, "enum") == 0);
}

/* An integer beyond int64_t, which jansson refuses, as a hexadecimal string, which the daemon accepts. */
static json_t *rpc_args_wide_integer(const char *text)
{
	char *end, hex[24];

	if (strspn(text, "0123456789") != strlen(text) || text[0] == '\0') {
		return NULL;
	}
	errno = 0;
	unsigned long long v = strtoull(text, &end, 10);
	if (errno != 0) {
		return NULL;
	}
	snprintf(hex, sizeof(hex), "0x%llx", v);
	return json_string(hex);
}

/* A size such as 64K, where the method takes a number of bytes; NULL: it takes none, or the text is no size. */
static json_t *rpc_args_size(const char *text, const json_t *description)
{
	const char *unit = json_string_value(json_object_get(description, "unit"));
	uint64_t bytes;

	if (unit == NULL || strcmp(unit, "bytes") != 0 || parse_size(text, 0, INT64_MAX, &bytes) != 0) {
		return NULL;
	}
	return json_integer((json_int_t)bytes);
}

/* Parses a value as JSON; if it is not JSON, or if the method expects a string, the value is a string. */
static json_t *rpc_args_value_parse(const char *text, const json_t *description)
{
	json_t *value;

	if (rpc_args_is_text(description)) {
		return json_string(text);
	}
	value = json_loads(text, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
	if (value == NULL) {
		value = rpc_args_size(text, description);
	}
	if (value == NULL) {
		value = rpc_args_wide_integer(text);
	}
	return value != NULL ? value : json_string(text);
}

/* The same for a daemon that describes nothing: names tell where it expects a string. Arrays and objects are what they
 * are. */
static json_t *rpc_args_value_guess(const char *text, const char *name)
{
	json_t *value = rpc_args_value_parse(text, NULL);

	if (value != NULL && !json_is_array(value) && !json_is_object(value) && rpc_args_is_string_elsewhere(name)) {
		json_decref(value);
		value = json_string(text);
	}
	return value;
}

/* The object for `key`, named by the part up to its last dot; created if it does not exist. *key becomes the part
 * behind the dot. */
static json_t *rpc_args_object_for(json_t *params, char **key, const json_t **list, struct complaint *c)
{
	char *dot;

	while ((dot = strchr(*key, '.')) != NULL) {
		*dot = '\0';
		json_t *inner = json_object_get(params, *key);
		if (inner == NULL) {
			inner = json_object();
			json_object_set_new(params, *key, inner);
		}
		if (!json_is_object(inner)) {
			rpc_args_complain(c, "%s is given both as a value and as an object", *key);
			return NULL;
		}
		*list = json_object_get(rpc_args_describe(*list, *key), "fields");
		params = inner;
		*key = dot + 1;
	}
	return params;
}

static int rpc_args_add(json_t *params, const char *arg, const json_t *list, struct complaint *c)
{
	char copy[KEY_MAX], *key = copy;
	const char *equals = strchr(arg, '=');
	size_t len = equals != NULL ? (size_t)(equals - arg) : 0;

	if (len == 0 || len >= sizeof(copy)) {
		return rpc_args_complain(c, "\"%s\": expected key=value", arg);
	}
	memcpy(copy, arg, len);
	copy[len] = '\0';
	bool described = list != NULL;
	json_t *o = rpc_args_object_for(params, &key, &list, c);
	if (o == NULL) {
		return -EINVAL;
	}
	if (json_object_get(o, key) != NULL) {
		return rpc_args_complain(c, "\"%s\": %s is given twice", arg, key);
	}
	if (key[0] == '\0') {
		return rpc_args_complain(c, "\"%s\": nothing follows the dot", arg);
	}
	json_t *value = described ? rpc_args_value_parse(equals + 1, rpc_args_describe(list, key))
				  : rpc_args_value_guess(equals + 1, key);
	if (value == NULL || json_object_set_new(o, key, value) != 0) {
		return rpc_args_complain(c, "\"%s\": neither the key nor the value may be anything but UTF-8 text",
					 arg);
	}
	return 0;
}

bool rpc_args_takes_size(const json_t *description)
{
	return rpc_args_describe(description, "num_blocks") != NULL &&
	       rpc_args_describe(description, "block_size") != NULL && rpc_args_describe(description, "size") == NULL;
}

/* Makes num_blocks of size, where a method takes blocks. The value of size is an integer or a text, as it was given. */
static int rpc_args_blocks_of_size(json_t *params, struct complaint *c)
{
	const json_t *size = json_object_get(params, "size");
	json_int_t block_size = json_integer_value(json_object_get(params, "block_size"));
	uint64_t bytes = (uint64_t)json_integer_value(size);

	if (json_object_get(params, "num_blocks") != NULL) {
		return rpc_args_complain(c, "give either size or num_blocks");
	}
	if ((json_is_string(size) && parse_size(json_string_value(size), 1, INT64_MAX, &bytes) != 0) ||
	    (!json_is_string(size) && json_integer_value(size) <= 0)) {
		return rpc_args_complain(c, "size is not a number of bytes such as 64M or 1G");
	}
	if (block_size <= 0) {
		return rpc_args_complain(c, "size needs block_size, such as block_size=4096");
	}
	if (bytes % (uint64_t)block_size != 0) {
		return rpc_args_complain(c, "size, %llu bytes, is not a multiple of block_size, %lld",
					 (unsigned long long)bytes, (long long)block_size);
	}
	json_object_set_new(params, "num_blocks", json_integer((json_int_t)(bytes / (uint64_t)block_size)));
	json_object_del(params, "size");
	return 0;
}

json_t *rpc_args_parse(int argc, char **argv, const json_t *description, char *error, size_t error_size)
{
	struct complaint c = {error, error_size};
	json_t *params = json_object();

	for (int i = 0; i < argc; i++) {
		if (rpc_args_add(params, argv[i], description, &c) != 0) {
			json_decref(params);
			return NULL;
		}
	}
	if (json_object_get(params, "size") != NULL && rpc_args_takes_size(description) &&
	    rpc_args_blocks_of_size(params, &c) != 0) {
		json_decref(params);
		return NULL;
	}
	return params;
}

/* Prints a hint for the first part of the dotted key that is not described. */
static void rpc_args_print_hint(char *key, const json_t *list, FILE *out)
{
	char *rest = key, *part;
	struct nearest near;
	const json_t *p;
	size_t i;

	while (json_is_array(list) && (part = strsep(&rest, ".")) != NULL) {
		const json_t *known = rpc_args_describe(list, part);
		if (known != NULL) {
			list = json_object_get(known, "fields");
			continue;
		}
		nearest_begin(&near, part);
		json_array_foreach (list, i, p) {
			const char *name = json_string_value(json_object_get(p, "name"));
			nearest_try(&near, name != NULL ? name : "");
		}
		if (near.name != NULL && near.name[0] != '\0') {
			fprintf(out, "varve-rpc: %s: did you mean ", part);
			safe_text_print(out, near.name, strlen(near.name));
			fprintf(out, "?\n");
		}
		return;
	}
}

void rpc_args_print_hints(int argc, char **argv, const json_t *description, FILE *out)
{
	char key[KEY_MAX];

	for (int i = 0; i < argc; i++) {
		snprintf(key, sizeof(key), "%.*s", (int)strcspn(argv[i], "="), argv[i]);
		rpc_args_print_hint(key, description, out);
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/params.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "rpc/message.h"
#include "rpc/refusal.h"
#include "util/compiler.h"
#include "util/log.h"
#include "util/parse.h"
#include "util/secret.h"

#define PATH_MAX_ 128
#define VALUE_MAX RPC_VALUE_TEXT_MAX

/* The state of decoding: the prefix of the current object ("" or "listen_address."), and where the error message goes.
 */
struct decode {
	char path[PATH_MAX_];
	char *why;
	size_t why_size;
};

const char *rpc_type_name(enum rpc_type type)
{
	static const char *const names[] = {
		[RPC_STRING] = "string", [RPC_BOOL] = "boolean",  [RPC_UINT8] = "uint8",   [RPC_UINT16] = "uint16",
		[RPC_INT32] = "int32",   [RPC_UINT32] = "uint32", [RPC_UINT64] = "uint64", [RPC_ENUM] = "enum",
		[RPC_UUID] = "uuid",     [RPC_OBJECT] = "object", [RPC_ARRAY] = "array",
	};
	return names[type];
}

const char *rpc_value_text(const json_t *value, char text[RPC_VALUE_TEXT_MAX])
{
	const char *big = rpc_big_number(value);
	char *dump = big != NULL ? strdup(big) : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
	size_t len = utf8_sanitize(dump != NULL ? dump : "?", text, VALUE_MAX - 3);

	if (dump != NULL && len < strlen(dump)) {
		strcpy(text + len, "...");
	}
	secret_wipe_free(dump);
	return text;
}

const char *rpc_value_of_text(const char *name, const json_t *value, char text[RPC_VALUE_TEXT_MAX])
{
	bool is_plain = json_is_null(value) || json_is_boolean(value) ||
			(json_is_string(value) && json_string_length(value) == 0);

	rpc_value_text(value, text);
	if (!is_plain && rpc_param_is_secret(name, text)) {
		strcpy(text, "not shown, for it may be a secret");
	}
	return text;
}

/* Writes the error "NAME is VALUE: expected ...". Returns -EINVAL. */
static int __attribute__((format(printf, 4, 5)))
params_wrong_value(struct decode *d, const struct rpc_param *p, const json_t *value, const char *fmt, ...)
{
	char expected[384], text[VALUE_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(expected, sizeof(expected), fmt, ap);
	va_end(ap);
	snprintf(d->why, d->why_size, "parameter \"%s%s\" is %s: expected %s", d->path, p->name,
		 rpc_value_of_text(p->name, value, text), expected);
	return -EINVAL;
}

/* The allowed range of an integer parameter, in two's complement for the signed type. */
struct range {
	bool negative_allowed;
	int64_t min;
	uint64_t max;
};

static struct range params_integer_range(const struct rpc_param *p)
{
	struct range r = {0};

	switch (p->type) {
	case RPC_UINT8:
		r.max = UINT8_MAX;
		break;
	case RPC_UINT16:
		r.max = UINT16_MAX;
		break;
	case RPC_UINT32:
		r.max = UINT32_MAX;
		break;
	case RPC_INT32:
		r.min = INT32_MIN;
		r.max = INT32_MAX;
		break;
	default:
		r.max = UINT64_MAX;
	}
	if (p->max != 0) {
		r.min = (int64_t)p->min;
		r.max = p->max;
	}
	r.negative_allowed = r.min < 0;
	return r;
}

static int params_wrong_integer(struct decode *d, const struct rpc_param *p, const json_t *value, const struct range *r)
{
	if (r->negative_allowed) {
		return params_wrong_value(d, p, value, "an integer from %" PRId64 " to %" PRId64, r->min,
					  (int64_t)r->max);
	}
	return params_wrong_value(d, p, value, "an integer from %" PRIu64 " to %" PRIu64 "%s", (uint64_t)r->min, r->max,
				  p->type == RPC_UINT64 ? " (or as a string, \"0x...\")" : "");
}

/* Decodes an integer above INT64_MAX, or a string "0x...", for the 64-bit type. */
static int params_decode_wide_integer(const struct rpc_param *p, const json_t *value, const struct range *r,
				      uint64_t *out)
{
	const char *text = rpc_big_number(value);

	if (p->type != RPC_UINT64) {
		return -EINVAL;
	}
	if (text == NULL) {
		text = json_string_value(value);
		if (text == NULL || text[0] != '0' || (text[1] != 'x' && text[1] != 'X')) {
			return -EINVAL;
		}
	}
	return parse_uint64(text, (uint64_t)r->min, r->max, out);
}

static void params_store_integer(const struct rpc_param *p, void *at, uint64_t value)
{
	switch (p->size) {
	case 1:
		*(uint8_t *)at = (uint8_t)value;
		break;
	case 2:
		*(uint16_t *)at = (uint16_t)value;
		break;
	case 4:
		*(uint32_t *)at = (uint32_t)value;
		break;
	default:
		assert(p->size == sizeof(uint64_t));
		*(uint64_t *)at = value;
	}
}

static int params_decode_integer(struct decode *d, const struct rpc_param *p, const json_t *value, void *at)
{
	struct range r = params_integer_range(p);
	uint64_t number = 0;

	if (json_is_integer(value)) {
		int64_t v = json_integer_value(value);
		if (v < 0 ? !r.negative_allowed || v < r.min
			  : (uint64_t)v > r.max || (!r.negative_allowed && (uint64_t)v < (uint64_t)r.min)) {
			return params_wrong_integer(d, p, value, &r);
		}
		number = (uint64_t)v;
	} else if (params_decode_wide_integer(p, value, &r, &number) != 0) {
		return params_wrong_integer(d, p, value, &r);
	}
	params_store_integer(p, at, number);
	return 0;
}

static int params_decode_bool(struct decode *d, const struct rpc_param *p, const json_t *value, void *at)
{
	if (!json_is_boolean(value)) {
		return params_wrong_value(d, p, value, "true or false");
	}
	*(bool *)at = json_is_true(value);
	return 0;
}

/* Replaces the text that a parameter owns. */
static int params_store_text(struct decode *d, const struct rpc_param *p, const char *text, char **at)
{
	char *copy = strdup(text);

	if (copy == NULL) {
		snprintf(d->why, d->why_size, "no memory for parameter \"%s%s\"", d->path, p->name);
		return -ENOMEM;
	}
	secret_wipe_free(*at);
	*at = copy;
	return 0;
}

static int params_decode_string(struct decode *d, const struct rpc_param *p, const json_t *value, void *at)
{
	if (!json_is_string(value) || rpc_big_number(value) != NULL) {
		return params_wrong_value(d, p, value, "a string");
	}
	return params_store_text(d, p, json_string_value(value), at);
}

static int params_decode_uuid(struct decode *d, const struct rpc_param *p, const json_t *value, void *at)
{
	char canonical[PARSE_UUID_MAX];

	if (!json_is_string(value) || parse_uuid(json_string_value(value), canonical) != 0) {
		return params_wrong_value(d, p, value, "a UUID such as \"12345678-9abc-def0-1234-56789abcdef0\"");
	}
	return params_store_text(d, p, canonical, at);
}

static void params_enum_names(const struct rpc_enum *e, char *out, size_t size)
{
	size_t used = 0;

	for (; e->name != NULL && used < size; e++) {
		used += (size_t)snprintf(out + used, size - used, "%s\"%s\"", used != 0 ? ", " : "", e->name);
	}
}

/* Upper and lower case are the same: people type names of levels and signals, and clients pass them on. */
static int params_decode_enum(struct decode *d, const struct rpc_param *p, const json_t *value, void *at)
{
	char names[320] = "";

	for (const struct rpc_enum *e = p->enums; json_is_string(value) && e->name != NULL; e++) {
		if (strcasecmp(e->name, json_string_value(value)) == 0) {
			*(int *)at = e->value;
			return 0;
		}
	}
	params_enum_names(p->enums, names, sizeof(names));
	return params_wrong_value(d, p, value, "one of %s", names);
}

static int params_decode_object(struct decode *d, const struct rpc_param *table, json_t *given, void *params);

static int params_decode_nested(struct decode *d, const struct rpc_param *p, json_t *value, void *at)
{
	size_t outer = strlen(d->path);

	if (!json_is_object(value)) {
		return params_wrong_value(d, p, value, "an object");
	}
	if (p->object == NULL) {
		*(json_t **)at = value;
		return 0;
	}
	snprintf(d->path + outer, sizeof(d->path) - outer, "%s.", p->name);
	int rc = params_decode_object(d, p->object, value, at);
	d->path[outer] = '\0';
	return rc;
}

static int params_decode_array(struct decode *d, const struct rpc_param *p, json_t *value, void *at)
{
	if (!json_is_array(value)) {
		return params_wrong_value(d, p, value, "an array");
	}
	*(json_t **)at = value;
	return 0;
}

static bool params_is_only(const struct rpc_param *p, const json_t *value)
{
	char *dump = rpc_big_number(value) == NULL ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
	bool is_only = dump != NULL && strcmp(dump, p->only) == 0;

	free(dump);
	return is_only;
}

static int params_decode_typed(struct decode *d, const struct rpc_param *p, json_t *value, void *at);

/* A value of the type, which is forgotten; or the usual one, which may be null whatever the type is. */
static int params_decode_no_effect(struct decode *d, const struct rpc_param *p, json_t *value)
{
	union {
		uint64_t number;
		char *text;
		json_t *borrowed;
	} at = {0};
	int rc = params_is_only(p, value) ? 0 : params_decode_typed(d, p, value, &at);

	if (p->type == RPC_STRING) {
		free(at.text);
	}
	return rc;
}

static int params_decode_only(struct decode *d, const struct rpc_param *p, const json_t *value)
{
	return params_is_only(p, value) ? 0 : params_wrong_value(d, p, value, "%s: %s", p->only, p->help);
}

static int params_decode_value(struct decode *d, const struct rpc_param *p, json_t *value, void *at)
{
	if (p->no_effect) {
		return params_decode_no_effect(d, p, value);
	}
	return p->only != NULL ? params_decode_only(d, p, value) : params_decode_typed(d, p, value, at);
}

static int params_decode_typed(struct decode *d, const struct rpc_param *p, json_t *value, void *at)
{
	switch (p->type) {
	case RPC_STRING:
		return params_decode_string(d, p, value, at);
	case RPC_BOOL:
		return params_decode_bool(d, p, value, at);
	case RPC_ENUM:
		return params_decode_enum(d, p, value, at);
	case RPC_UUID:
		return params_decode_uuid(d, p, value, at);
	case RPC_OBJECT:
		return params_decode_nested(d, p, value, at);
	case RPC_ARRAY:
		return params_decode_array(d, p, value, at);
	default:
		return params_decode_integer(d, p, value, at);
	}
}

static bool params_table_has(const struct rpc_param *table, const char *name)
{
	for (const struct rpc_param *p = table; p != NULL && p->name != NULL; p++) {
		if (strcmp(p->name, name) == 0) {
			return true;
		}
	}
	return false;
}

static int params_unknown_parameter(struct decode *d, const struct rpc_param *table, const char *name)
{
	char text[VALUE_MAX];
	size_t used;

	utf8_sanitize(name, text, sizeof(text));
	if (table == NULL || table->name == NULL) {
		snprintf(d->why, d->why_size, "parameter \"%s%s\" is unknown: none is taken", d->path, text);
		return -EINVAL;
	}
	used = (size_t)snprintf(d->why, d->why_size, "parameter \"%s%s\" is unknown: known ones are", d->path, text);
	for (const struct rpc_param *p = table; p->name != NULL && used < d->why_size; p++) {
		used += (size_t)snprintf(d->why + used, d->why_size - used, "%s %s", p == table ? "" : ",", p->name);
	}
	return -EINVAL;
}

static int params_decode_object(struct decode *d, const struct rpc_param *table, json_t *given, void *params)
{
	const char *name;
	json_t *value;

	json_object_foreach (given, name, value) {
		if (!params_table_has(table, name)) {
			return params_unknown_parameter(d, table, name);
		}
	}
	for (const struct rpc_param *p = table; p != NULL && p->name != NULL; p++) {
		value = json_object_get(given, p->name);
		if (value == NULL) {
			if (p->required) {
				snprintf(d->why, d->why_size, "parameter \"%s%s\" (%s) is missing", d->path, p->name,
					 rpc_type_name(p->type));
				return -EINVAL;
			}
			continue;
		}
		int rc = params_decode_value(d, p, value, (char *)params + p->offset);
		if (rc != 0) {
			return rc;
		}
		if (p->given_offset != 0) {
			*(bool *)((char *)params + p->given_offset) = true;
		}
	}
	return 0;
}

int rpc_params_decode(const struct rpc_param *table, json_t *given, void *params, char *why, size_t why_size)
{
	struct decode d = {.why = why, .why_size = why_size};

	return params_decode_object(&d, table, given, params);
}

/* Whether a line about this entry of a table has to be logged: only the first time. All entries are static, and there
 * are fewer of them than places; one more would be logged each time. */
static bool params_no_effect_is_new(const struct rpc_param *p)
{
	static const struct rpc_param *told[64];
	size_t n = 0;

	while (n < ARRAY_SIZE(told) && told[n] != NULL) {
		if (told[n++] == p) {
			return false;
		}
	}
	if (n < ARRAY_SIZE(told)) {
		told[n] = p;
	}
	return true;
}

void rpc_params_log_no_effect(const char *method, const struct rpc_param *table, json_t *given)
{
	char text[RPC_VALUE_TEXT_MAX];

	for (const struct rpc_param *p = table; p != NULL && p->name != NULL; p++) {
		json_t *value = json_object_get(given, p->name);

		if (value != NULL && p->type == RPC_OBJECT && p->object != NULL) {
			rpc_params_log_no_effect(method, p->object, value);
		}
		if (value != NULL && p->no_effect && !params_is_only(p, value) && params_no_effect_is_new(p)) {
			log_notice("%s: parameter \"%s\" is %s: taken, %s", method, p->name,
				   rpc_value_of_text(p->name, value, text), p->help);
		}
	}
}

void rpc_params_free(const struct rpc_param *table, void *params)
{
	for (const struct rpc_param *p = table; p != NULL && p->name != NULL; p++) {
		char *at = (char *)params + p->offset;
		if (p->only != NULL) {
			continue; /* has no place there */
		}
		if (p->type == RPC_STRING || p->type == RPC_UUID) {
			secret_wipe_free(*(char **)at); /* it may be a key */
			*(char **)at = NULL;
		} else if (p->type == RPC_OBJECT && p->object != NULL) {
			rpc_params_free(p->object, at);
		}
	}
}

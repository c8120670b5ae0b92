/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/refusal.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "util/log.h"
#include "util/parse.h"

#define TYPE          "rpc_refused"
#define SECRET_BYTES  8  /* so many bytes of a secret in a message are taken for the secret */
#define SECRET_DIGITS 16 /* so many hexadecimal digits in a row are taken for a key */
#define PARAMS_DEPTH  64

__attribute__((constructor)) static void refusal_register_notification(void)
{
	notify_type_register(TYPE);
}

/* Whether the value is a key in its interchange format, which somebody gave where a name or a path belongs. */
static bool value_is_key(const char *value)
{
	static const char *const formats[] = {"DHHC-1", "NVMeTLSkey"};

	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
		if (strcasestr(value, formats[i]) != NULL) {
			return true;
		}
	}
	return false;
}

/* Whether a part of the value can be a key, or a good part of one. */
static bool value_has_digits(const char *value)
{
	const char *at = value;
	size_t digits = 0;

	while (*at != 0 && digits < SECRET_DIGITS) {
		digits = strspn(at, "0123456789abcdefABCDEF");
		at += digits != 0 ? digits : 1;
	}
	return digits >= SECRET_DIGITS;
}

/* Whether the parameter has the name of a key, not a key. */
static bool param_is_name_of_key(const char *name)
{
	return strcmp(name, "key_name") == 0 || strcmp(name, "keyring_key") == 0;
}

bool rpc_value_may_be_key(const char *value)
{
	return value_is_key(value) || value_has_digits(value);
}

bool rpc_param_is_secret(const char *name, const char *value)
{
	static const char *const words[] = {"key", "psk", "secret", "passw", "token"};

	if (value != NULL && value_is_key(value)) {
		return true;
	}
	if (value != NULL && param_is_name_of_key(name)) {
		return value_has_digits(value);
	}
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (strcasestr(name, words[i]) != NULL) {
			return true;
		}
	}
	return false;
}

/* Whether the message names the parameter, or has the beginning of its value. */
static bool message_shows(const char *message, const char *name, const char *value)
{
	char start[SECRET_BYTES + 1];

	if (strstr(message, name) != NULL) {
		return true;
	}
	if (value == NULL || value[0] == 0) {
		return false;
	}
	snprintf(start, sizeof(start), "%s", value);
	return strstr(message, start) != NULL;
}

/* The name of a parameter with a secret that the message may show, or NULL. */
static const char *params_find_shown(const json_t *params, const char *outer, const char *message, unsigned depth)
{
	const char *name, *found = NULL;
	json_t *value;
	size_t i;

	if (depth == PARAMS_DEPTH) { /* nobody nests so deeply but to hide something */
		return outer;
	}
	json_object_foreach ((json_t *)params, name, value) {
		const char *text = json_string_value(value);
		bool shown = rpc_param_is_secret(name, text) && message_shows(message, name, text);
		found = found != NULL ? found : shown ? name : params_find_shown(value, name, message, depth + 1);
	}
	json_array_foreach (params, i, value) {
		const char *text = json_string_value(value);
		bool shown = rpc_param_is_secret(outer, text) && message_shows(message, outer, text);
		found = found != NULL ? found : shown ? outer : params_find_shown(value, outer, message, depth + 1);
	}
	return found;
}

const char *rpc_refusal_text(const json_t *params, const char *message, char text[RPC_ERROR_TEXT_MAX])
{
	const char *shown = params_find_shown(params, "", message, 0);
	char name[64];

	if (shown == NULL) {
		return message;
	}
	utf8_sanitize(shown, name, sizeof(name));
	snprintf(text, RPC_ERROR_TEXT_MAX,
		 "what is wrong with parameter \"%s\" is told to the caller only, because the value may be a secret",
		 name);
	return text;
}

/* Puts asterisks in the place of what the message has of the value. */
static void message_mask(char *message, const char *value)
{
	char start[SECRET_BYTES + 1];

	snprintf(start, sizeof(start), "%s", value);
	for (char *at = message; (at = strstr(at, start)) != NULL;) {
		for (size_t i = 0; value[i] != 0 && *at == value[i]; i++) {
			*at++ = '*';
		}
	}
}

static void params_mask(const json_t *value, const char *name, char *message, unsigned depth)
{
	const char *text = json_string_value(value), *key;
	json_t *inner;
	size_t i;

	if (depth == PARAMS_DEPTH) {
		return;
	}
	if (text != NULL && strlen(text) >= SECRET_DIGITS &&
	    (value_is_key(text) || (value_has_digits(text) && rpc_param_is_secret(name, text)))) {
		message_mask(message, text);
	}
	json_object_foreach ((json_t *)value, key, inner) {
		params_mask(inner, key, message, depth + 1);
	}
	json_array_foreach (value, i, inner) {
		params_mask(inner, name, message, depth + 1);
	}
}

void rpc_refusal_mask(const json_t *params, char *message)
{
	params_mask(params, "", message, 0);
}

bool rpc_refusal_is_told(int code)
{
	return code == RPC_ERROR_INVALID_PARAMS || code == RPC_ERROR_NO_METHOD || code == RPC_ERROR_INVALID_STATE;
}

void rpc_refusal_tell(const char *method, const json_t *params, int code, const char *message)
{
	static struct log_limit limit;
	char text[RPC_ERROR_TEXT_MAX], name[64], reason[RPC_ERROR_TEXT_MAX + 80];
	uint32_t left_out;

	if (!log_limit_pass(&limit, &left_out)) {
		return;
	}
	utf8_sanitize(method, name, sizeof(name));
	const char *what = rpc_refusal_text(params, message, text);
	if (left_out != 0) {
		snprintf(reason, sizeof(reason), "%s (%u earlier refusals were not told of)", what, left_out);
	} else {
		snprintf(reason, sizeof(reason), "%s", what);
	}
	log_notice("RPC %s was refused (%d): %s", name, code, reason);
	notify_send_reason(TYPE, name, reason);
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/gateway/openapi.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* A type of rpc_describe_methods as a JSON schema. */
static const struct openapi_type {
	const char *type, *schema, *format;
} openapi_types[] = {
	{"boolean", "boolean", NULL},  {"uint8", "integer", NULL},     {"uint16", "integer", NULL},
	{"int32", "integer", "int32"}, {"uint32", "integer", "int64"}, {"uint64", "integer", NULL},
	{"uuid", "string", "uuid"},    {"object", "object", NULL},     {"array", "array", NULL},
	{"enum", "string", NULL},      {"string", "string", NULL},
};

static json_t *openapi_fields(const json_t *params);

static void openapi_set_type(json_t *schema, const char *type)
{
	for (size_t i = 0; type != NULL && i < sizeof(openapi_types) / sizeof(openapi_types[0]); i++) {
		if (strcmp(openapi_types[i].type, type) == 0) {
			json_object_set_new(schema, "type", json_string(openapi_types[i].schema));
			if (openapi_types[i].format != NULL) {
				json_object_set_new(schema, "format", json_string(openapi_types[i].format));
			}
		}
	}
}

/* Copies a member under another name if it is there. */
static void openapi_copy(json_t *to, const char *name, const json_t *from, const char *key)
{
	json_t *value = json_object_get(from, key);

	if (value != NULL) {
		json_object_set_new(to, name, json_deep_copy(value));
	}
}

static json_t *openapi_param(const json_t *param)
{
	json_t *schema = json_object();
	json_t *only = json_object_get(param, "only"), *fields = json_object_get(param, "fields");
	const char *type = json_string_value(json_object_get(param, "type"));

	openapi_set_type(schema, type);
	openapi_copy(schema, "description", param, "help");
	openapi_copy(schema, "enum", param, "values");
	if (json_is_integer(json_object_get(param, "min"))) {
		openapi_copy(schema, "minimum", param, "min");
	}
	if (json_is_integer(json_object_get(param, "max"))) {
		openapi_copy(schema, "maximum", param, "max");
	}
	if (only != NULL) {
		json_object_set_new(schema, "enum", json_pack("[O]", only));
		json_object_set_new(schema, "nullable", json_boolean(json_is_null(only)));
	}
	if (json_is_array(fields)) {
		json_object_update_new(schema, openapi_fields(fields));
	}
	if (type != NULL && strcmp(type, "array") == 0) {
		json_object_set_new(schema, "items", json_object());
	}
	return schema;
}

/* The schema of an object with these parameters. Their tables end: the depth is that of the registry. */
static json_t *openapi_fields(const json_t *params)
{
	json_t *properties = json_object(), *required = json_array(), *param;
	size_t i;

	json_array_foreach (params, i, param) {
		const char *name = json_string_value(json_object_get(param, "name"));
		if (name != NULL) {
			json_object_set_new(properties, name, openapi_param(param));
			if (json_is_true(json_object_get(param, "required"))) {
				json_array_append_new(required, json_string(name));
			}
		}
	}
	json_t *schema =
		json_pack("{s:s, s:o, s:b}", "type", "object", "properties", properties, "additionalProperties", 0);
	if (json_array_size(required) > 0) { /* an empty list is not allowed there */
		json_object_set(schema, "required", required);
	}
	json_decref(required);
	return schema;
}

static json_t *openapi_request(const char *name, const json_t *method)
{
	json_t *params = openapi_fields(json_object_get(method, "params"));
	bool needed = json_object_get(params, "required") != NULL;
	json_t *schema = json_pack("{s:s, s:[s,s], s:{s:{s:s, s:[s]}, s:{s:s, s:[s]}, s:{s:[{s:s},{s:s}]}, s:o}}",
				   "type", "object", "required", "method", "id", "properties", "jsonrpc", "type",
				   "string", "enum", "2.0", "method", "type", "string", "enum", name, "id", "oneOf",
				   "type", "integer", "type", "string", "params", params);

	if (needed) {
		json_array_append_new(json_object_get(schema, "required"), json_string("params"));
	}
	openapi_copy(schema, "description", method, "help");
	openapi_copy(schema, "x-result", method, "result");
	return schema;
}

static void openapi_add_methods(json_t *schemas, json_t *choices, const json_t *methods, enum gateway_role role)
{
	const json_t *method;
	char ref[192];
	size_t i;

	json_array_foreach (methods, i, method) {
		const char *name = json_string_value(json_object_get(method, "name"));
		if (name != NULL && strlen(name) < 128 && gateway_role_needed(name) <= role) {
			json_object_set_new(schemas, name, openapi_request(name, method));
			snprintf(ref, sizeof(ref), "#/components/schemas/%s", name);
			json_array_append_new(choices, json_pack("{s:s}", "$ref", ref));
		}
	}
}

static json_t *openapi_responses(void)
{
	static const struct {
		const char *status, *text;
	} rows[] = {
		{"200", "The daemon's answer: a result, or an error of the call"},
		{"204", "The request had no id: there is no answer"},
		{"400", "The body is not JSON-RPC"},
		{"401", "No user, or a wrong password"},
		{"403", "The role of the user may not call the method"},
		{"413", "The body is too long"},
		{"429", "Too many requests, or too many wrong passwords"},
		{"502", "The daemon ended without an answer"},
		{"503", "The daemon cannot be reached"},
		{"504", "The daemon has not answered in time"},
	};
	json_t *responses = json_object();

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		json_object_set_new(responses, rows[i].status, json_pack("{s:s}", "description", rows[i].text));
	}
	return responses;
}

json_t *gateway_openapi(const json_t *methods, enum gateway_role role)
{
	json_t *schemas = json_object(), *choices = json_array();

	openapi_add_methods(schemas, choices, methods, role);
	json_t *call = json_pack("{s:{s:s}}", "schema", "$ref", "#/components/schemas/call");
	json_object_set_new(schemas, "call", json_pack("{s:o}", "oneOf", choices));
	json_t *post = json_pack("{s:s, s:s, s:{s:b, s:{s:o}}, s:o}", "operationId", "call", "summary",
				 "Call a method of the storage node", "requestBody", "required", 1, "content",
				 "application/json", call, "responses", openapi_responses());
	return json_pack("{s:s, s:{s:s, s:s}, s:[{s:[]}], s:{s:{s:o}}, s:{s:{s:{s:s, s:s}}, s:o}}", "openapi", "3.0.3",
			 "info", "title", "varve", "version", VARVE_VERSION, "security", "basic", "paths", "/", "post",
			 post, "components", "securitySchemes", "basic", "type", "http", "scheme", "basic", "schemas",
			 schemas);
}

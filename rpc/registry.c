/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/allowed.h"
#include "rpc/params.h"

static SLIST_HEAD(, rpc_method) methods = SLIST_HEAD_INITIALIZER(methods);
static SLIST_HEAD(, rpc_config) configs = SLIST_HEAD_INITIALIZER(configs);
static const char *allowed_names; /* NULL: all */

/* Runs before main(): only stderr can be used. */
static void __attribute__((noreturn)) registered_twice(const char *what, const char *name)
{
	fprintf(stderr, "%s \"%s\" is registered twice\n", what, name);
	abort();
}

void rpc_method_register(struct rpc_method *m)
{
	struct rpc_method *before = NULL, *at;

	if (m->result == NULL) {
		fprintf(stderr, "RPC method \"%s\" does not say what it answers: RPC_METHOD(..., .result = ...)\n",
			m->name);
		abort();
	}
	if (rpc_method_find(m->name) != NULL || (m->alias != NULL && rpc_method_find(m->alias) != NULL)) {
		registered_twice("RPC method", m->name);
	}
	SLIST_FOREACH (at, &methods, link) {
		if (strcmp(at->name, m->name) > 0) {
			break;
		}
		before = at;
	}
	if (before == NULL) {
		SLIST_INSERT_HEAD(&methods, m, link);
	} else {
		SLIST_INSERT_AFTER(before, m, link);
	}
}

const struct rpc_method *rpc_method_find(const char *name)
{
	struct rpc_method *m;

	SLIST_FOREACH (m, &methods, link) {
		if (strcmp(m->name, name) == 0 || (m->alias != NULL && strcmp(m->alias, name) == 0)) {
			return m;
		}
	}
	return NULL;
}

bool rpc_method_exists(const char *name)
{
	return rpc_method_find(name) != NULL;
}

void rpc_set_allowed(const char *names)
{
	allowed_names = names;
}

static bool allowed_has(const char *name)
{
	size_t len = name != NULL ? strlen(name) : 0;

	for (const char *at = allowed_names; len != 0 && *at != '\0'; at += *at == ',') {
		size_t n = strcspn(at, ",");
		if (n == len && strncmp(at, name, n) == 0) {
			return true;
		}
		at += n;
	}
	return false;
}

bool rpc_method_allowed(const struct rpc_method *m)
{
	return allowed_names == NULL || allowed_has(m->name) || allowed_has(m->alias);
}

const struct rpc_method *rpc_method_next(const struct rpc_method *after)
{
	return after == NULL ? SLIST_FIRST(&methods) : SLIST_NEXT(after, link);
}

void rpc_config_register(struct rpc_config *c)
{
	struct rpc_config *before = NULL, *at;

	if (rpc_config_find(c->name) != NULL) {
		registered_twice("configuration subsystem", c->name);
	}
	SLIST_FOREACH (at, &configs, link) {
		if (strcmp(at->name, c->name) > 0) {
			break;
		}
		before = at;
	}
	if (before == NULL) {
		SLIST_INSERT_HEAD(&configs, c, link);
	} else {
		SLIST_INSERT_AFTER(before, c, link);
	}
}

const struct rpc_config *rpc_config_find(const char *name)
{
	struct rpc_config *c;

	SLIST_FOREACH (c, &configs, link) {
		if (strcmp(c->name, name) == 0) {
			return c;
		}
	}
	return NULL;
}

static bool is_among(const char *name, const struct rpc_config *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (strcmp(list[i]->name, name) == 0) {
			return true;
		}
	}
	return false;
}

/* The first one whose `after` is in the list already; if there is a circle of `after`, the first that is left. */
static const struct rpc_config *config_pick(const struct rpc_config *const *list, size_t n)
{
	struct rpc_config *c;
	const struct rpc_config *first = NULL;

	SLIST_FOREACH (c, &configs, link) {
		if (is_among(c->name, list, n)) {
			continue;
		}
		first = first != NULL ? first : c;
		if (c->after == NULL || is_among(c->after, list, n) || rpc_config_find(c->after) == NULL) {
			return c;
		}
	}
	return first;
}

const struct rpc_config **rpc_config_in_order(size_t *n)
{
	struct rpc_config *c;
	size_t count = 0;

	SLIST_FOREACH (c, &configs, link) {
		count++;
	}
	const struct rpc_config **list = calloc(count + 1, sizeof(struct rpc_config *));
	for (*n = 0; list != NULL && *n < count; (*n)++) {
		list[*n] = config_pick(list, *n);
	}
	return list;
}

static bool writes_whole; /* within rpc_config_write() */

void rpc_config_write(const struct rpc_config *c, bool whole, json_t *methods)
{
	writes_whole = whole;
	c->write(methods);
}

bool rpc_config_leaves_out(bool is_usual)
{
	return is_usual && !writes_whole;
}

void rpc_config_add(json_t *list, const char *method, json_t *params)
{
	json_t *entry = json_object();

	json_object_set_new(entry, "method", json_string(method));
	if (params != NULL) {
		json_object_set_new(entry, "params", params);
	}
	json_array_append_new(list, entry);
}

static json_t *describe_table(const struct rpc_param *table);

static json_t *describe_param(const struct rpc_param *p)
{
	json_t *o = json_object();

	json_object_set_new(o, "name", json_string(p->name));
	json_object_set_new(o, "type", json_string(rpc_type_name(p->type)));
	json_object_set_new(o, "required", json_boolean(p->required));
	if (p->help != NULL) {
		json_object_set_new(o, "help", json_string(p->help));
	}
	if (p->type == RPC_ENUM) {
		json_t *names = json_array();
		for (const struct rpc_enum *e = p->enums; e->name != NULL; e++) {
			json_array_append_new(names, json_string(e->name));
		}
		json_object_set_new(o, "values", names);
	}
	if (p->only != NULL && !p->no_effect) {
		json_object_set_new(o, "only", json_loads(p->only, JSON_DECODE_ANY, NULL));
	}
	if (p->own) {
		json_object_set_new(o, "own", json_true());
	}
	if (p->bytes) {
		json_object_set_new(o, "unit", json_string("bytes"));
	}
	if (p->max != 0) {
		json_object_set_new(o, "min", json_integer((json_int_t)p->min));
		json_object_set_new(o, "max", rpc_uint(p->max));
	}
	if (p->type == RPC_OBJECT && p->object != NULL) {
		json_object_set_new(o, "fields", describe_table(p->object));
	}
	return o;
}

static json_t *describe_table(const struct rpc_param *table)
{
	json_t *list = json_array();

	for (const struct rpc_param *p = table; p != NULL && p->name != NULL; p++) {
		json_array_append_new(list, describe_param(p));
	}
	return list;
}

json_t *rpc_method_describe(const struct rpc_method *m)
{
	json_t *o = json_object(), *states = json_array();

	json_object_set_new(o, "name", json_string(m->name));
	json_object_set_new(o, "help", json_string(m->help));
	if (m->alias != NULL) {
		json_object_set_new(o, "alias", json_string(m->alias));
	}
	if (m->module != NULL) {
		json_object_set_new(o, "module", json_string(m->module));
	}
	if (m->own) {
		json_object_set_new(o, "own", json_true());
	}
	if (m->states & RPC_STARTUP) {
		json_array_append_new(states, json_string("startup"));
	}
	if (m->states & RPC_RUNTIME) {
		json_array_append_new(states, json_string("runtime"));
	}
	json_object_set_new(o, "states", states);
	json_object_set_new(o, "params", describe_table(m->params));
	json_object_set_new(o, "result", json_string(m->result));
	return o;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/own.h"

#include <stdbool.h>
#include <string.h>

/* Of an entry that creates something: how many entries of its section come before it. */
#define PLACE "place"

/* Parameters that tell which entry of a method is meant. */
static const char *const identity[] = {"name",    "base_name",      "nqn",      "tgt_name", "trtype",
				       "traddr",  "trsvcid",        "adrfam",   "subnqn",   "host",
				       "hostnqn", "listen_address", "anagrpid", "nsid"};

/* The description of that name in a list of methods or parameters; NULL: there is none. */
static const json_t *find_named(const json_t *list, const char *name)
{
	const json_t *o;
	size_t i;

	json_array_foreach (list, i, o) {
		const char *one = json_string_value(json_object_get(o, "name"));
		if (name != NULL && one != NULL && strcmp(one, name) == 0) {
			return o;
		}
	}
	return NULL;
}

static bool is_own(const json_t *description)
{
	return json_is_true(json_object_get(description, "own"));
}

/* Takes the own ones out of params. Those, with the ones that identify the entry; NULL: there are none. */
static json_t *take_own_params(json_t *params, const json_t *known)
{
	json_t *own = json_object(), *value;
	const char *name;
	void *next;

	json_object_foreach_safe(params, next, name, value)
	{
		const json_t *p = find_named(known, name);
		if (is_own(p)) {
			json_object_set(own, name, value);
			json_object_del(params, name);
		} else if (json_is_object(value)) {
			json_t *inner = take_own_params(value, json_object_get(p, "fields"));
			if (inner != NULL) {
				json_object_set_new(own, name, inner);
			}
		}
	}
	if (json_object_size(own) == 0) {
		json_decref(own);
		return NULL;
	}
	for (size_t i = 0; i < sizeof(identity) / sizeof(identity[0]); i++) {
		value = json_object_get(params, identity[i]);
		if (value != NULL) {
			json_object_set(own, identity[i], value);
		}
	}
	return own;
}

static bool creates(const json_t *entry)
{
	static const char end[] = "_create";
	const char *method = json_string_value(json_object_get(entry, "method"));
	size_t n = method != NULL ? strlen(method) : 0;

	return n >= sizeof(end) && strcmp(method + n - sizeof(end) + 1, end) == 0;
}

/* Moves the own part of the entry at config[i] to own. True: that was all of the entry, and it is gone from config. */
static bool split_entry(json_t *config, size_t i, const json_t *methods, json_t *own)
{
	json_t *entry = json_array_get(config, i);
	const char *name = json_string_value(json_object_get(entry, "method"));
	const json_t *method = find_named(methods, name);

	if (is_own(method)) {
		json_array_append(own, entry);
		json_array_remove(config, i);
		if (creates(entry)) {
			json_object_set_new(entry, PLACE, json_integer((json_int_t)i));
		}
		return true;
	}
	json_t *params = take_own_params(json_object_get(entry, "params"), json_object_get(method, "params"));
	if (params != NULL) {
		json_array_append_new(own, json_pack("{s:s, s:o}", "method", name, "params", params));
	}
	return false;
}

void rpc_own_split(json_t *config, const json_t *methods)
{
	json_t *all = json_array(), *section;
	size_t n;

	json_array_foreach (json_object_get(config, "subsystems"), n, section) {
		json_t *entries = json_object_get(section, "config"), *own = json_array();
		for (size_t i = 0; i < json_array_size(entries);) {
			i += !split_entry(entries, i, methods, own);
		}
		if (json_array_size(own) != 0) {
			json_array_append_new(all, json_pack("{s:O, s:O}", "subsystem",
							     json_object_get(section, "subsystem"), "config", own));
		}
		json_decref(own);
	}
	if (json_array_size(all) != 0) {
		json_object_set(config, RPC_OWN_KEY, all);
	}
	json_decref(all);
}

/* Whether the two are equal in all that both have. */
static bool agrees(const json_t *a, const json_t *b)
{
	const char *name;
	json_t *value;

	if (!json_is_object(a) || !json_is_object(b)) {
		return json_equal(a, b);
	}
	json_object_foreach ((json_t *)a, name, value) {
		const json_t *other = json_object_get(b, name);
		if (other != NULL && !agrees(value, other)) {
			return false;
		}
	}
	return true;
}

/* The entry that own belongs to, among entries and arrays of entries; NULL: there is none. */
static json_t *find_entry(const json_t *entries, const json_t *own, const json_t *taken)
{
	const json_t *method = json_object_get(own, "method"), *params = json_object_get(own, "params");
	json_t *entry;
	size_t i, k;

	json_array_foreach (entries, i, entry) {
		if (json_is_array(entry)) {
			json_t *inner = find_entry(entry, own, taken);
			if (inner != NULL) {
				return inner;
			}
			continue;
		}
		for (k = 0; k < json_array_size(taken) && json_array_get(taken, k) != entry; k++) {
		}
		if (k == json_array_size(taken) && json_is_string(method) &&
		    json_equal(json_object_get(entry, "method"), method) &&
		    json_is_object(json_object_get(entry, "params")) &&
		    agrees(params, json_object_get(entry, "params"))) {
			return entry;
		}
	}
	return NULL;
}

static bool mentions(const json_t *value, const char *name)
{
	json_t *inner;
	const char *key;
	size_t i;

	if (json_is_string(value)) {
		return strcmp(json_string_value(value), name) == 0;
	}
	json_object_foreach ((json_t *)value, key, inner) {
		if (mentions(inner, name)) {
			return true;
		}
	}
	json_array_foreach (value, i, inner) {
		if (mentions(inner, name)) {
			return true;
		}
	}
	return false;
}

/* Where an entry that creates something belongs, when so many of them have been inserted: at its place, and before what
 * uses it, should others have been taken out of the file or put in. */
static size_t own_place(const json_t *entries, const json_t *own, size_t inserted)
{
	const char *name = json_string_value(json_object_get(json_object_get(own, "params"), "name"));
	const json_t *place = json_object_get(own, PLACE);
	size_t i, n = json_array_size(entries);

	if (json_is_integer(place) && json_integer_value(place) >= 0 && (size_t)json_integer_value(place) < n) {
		n = (size_t)json_integer_value(place) + inserted < n ? (size_t)json_integer_value(place) + inserted : n;
	}
	for (i = 0; i < n && (name == NULL || !mentions(json_array_get(entries, i), name)); i++) {
	}
	return i;
}

static void insert_alone(json_t *entries, const json_t *alone)
{
	size_t i, inserted = 0;
	json_t *o;

	json_array_foreach (alone, i, o) {
		if (creates(o)) {
			size_t at = own_place(entries, o, inserted++);
			json_object_del(o, PLACE);
			json_array_insert(entries, at, o);
		} else {
			json_array_append(entries, o);
		}
	}
}

static void merge_section(json_t *entries, const json_t *own)
{
	json_t *taken = json_array(), *alone = json_array(), *o;
	size_t i;

	json_array_foreach (own, i, o) {
		json_t *entry = json_is_object(o) ? find_entry(entries, o, taken) : NULL;
		if (entry == NULL) {
			json_array_append(alone, o);
		} else {
			json_object_update_recursive(json_object_get(entry, "params"), json_object_get(o, "params"));
			json_array_append(taken, entry);
		}
	}
	insert_alone(entries, alone);
	json_decref(taken);
	json_decref(alone);
}

/* The array "config" of that section, which is made if it is not there; NULL: what is there is no array. */
static json_t *section_of(json_t *sections, const char *name)
{
	json_t *o, *config;
	size_t i;

	json_array_foreach (sections, i, o) {
		const char *one = json_string_value(json_object_get(o, "subsystem"));
		if (one == NULL || strcmp(one, name) != 0) {
			continue;
		}
		config = json_object_get(o, "config");
		if (config == NULL || json_is_null(config)) {
			json_object_set_new(o, "config", json_array());
		}
		return json_is_array(json_object_get(o, "config")) ? json_object_get(o, "config") : NULL;
	}
	config = json_array();
	json_array_append_new(sections, json_pack("{s:s, s:o}", "subsystem", name, "config", config));
	return config;
}

static const char *merge_all(json_t *sections, const json_t *all)
{
	const json_t *o;
	size_t i;

	if (!json_is_array(all)) {
		return "\"" RPC_OWN_KEY "\" must be an array, of the form of \"subsystems\"";
	}
	json_array_foreach (all, i, o) {
		const char *name = json_string_value(json_object_get(o, "subsystem"));
		const json_t *own = json_object_get(o, "config");
		json_t *entries = name != NULL && json_is_array(own) ? section_of(sections, name) : NULL;
		if (entries == NULL) {
			return "each element of \"" RPC_OWN_KEY "\" must have a \"subsystem\" and an array \"config\"";
		}
		merge_section(entries, own);
	}
	return NULL;
}

const char *rpc_own_merge(json_t *config)
{
	const json_t *all = json_object_get(config, RPC_OWN_KEY);
	json_t *sections = json_object_get(config, "subsystems");

	if (all == NULL || !json_is_array(sections)) {
		return NULL;
	}
	const char *wrong = merge_all(sections, all);
	json_object_del(config, RPC_OWN_KEY);
	return wrong;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/hand_over_config.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "appliance/metrics.h"
#include "rpc/dispatch.h"
#include "rpc/registry.h"
#include "rpc/rpc.h"
#include "util/compiler.h"
#include "util/log.h"
#include "util/secret.h"

#define NOTIFICATION "appliance_not_taken_back"
#define SUBJECT_MAX  256

static char *expected; /* NULL: nothing is */
/* What attempts that failed have changed, and is not as it was before: [{"subsystem": name, "config": [entry]}]. */
static json_t *lost, *strange;
static bool unknown; /* there was no memory to look */
static bool lost_parts[HAND_OVER_PARTS];

json_t *hand_over_config(void)
{
	size_t n;
	const struct rpc_config **configs = rpc_config_in_order(&n);
	json_t *subsystems = json_array();

	if (configs == NULL) {
		json_decref(subsystems);
		return NULL;
	}
	rpc_json_was_refused(); /* forgets refusals before */
	for (size_t i = 0; i < n; i++) {
		json_t *methods = json_array();
		rpc_config_write(configs[i], true, methods);
		json_array_append_new(subsystems,
				      json_pack("{s:s,s:o}", "subsystem", configs[i]->name, "config", methods));
	}
	free(configs);
	bool whole = json_array_size(subsystems) == n && !rpc_json_was_refused();
	json_t *config = json_pack("{s:o}", "subsystems", subsystems);
	if (!whole) {
		json_decref(config);
		config = NULL;
	}
	return config;
}

/* Changes how often an entry is in a set, and returns how often it was. */
static json_int_t entry_count(json_t *set, const json_t *entry, json_int_t change)
{
	char *key = json_dumps(entry, JSON_COMPACT | JSON_SORT_KEYS);
	json_int_t n = key != NULL ? json_integer_value(json_object_get(set, key)) : 0;

	if (key != NULL) {
		json_object_set_new(set, key, json_integer(n + change));
	}
	secret_wipe_free(key);
	return n;
}

static const json_t *config_list(const json_t *config, const char *subsystem)
{
	const json_t *s;
	size_t i;

	json_array_foreach (json_object_get(config, "subsystems"), i, s) {
		const char *name = json_string_value(json_object_get(s, "subsystem"));
		if (name != NULL && strcmp(name, subsystem) == 0) {
			return json_object_get(s, "config");
		}
	}
	return NULL;
}

static size_t list_missing(const char *subsystem, const json_t *of, const json_t *in,
			   void (*report)(const char *subsystem, const json_t *entry))
{
	json_t *set = json_object();
	const json_t *entry;
	size_t i, n = 0;

	json_array_foreach (in, i, entry) {
		entry_count(set, entry, 1);
	}
	json_array_foreach (of, i, entry) {
		if (entry_count(set, entry, -1) > 0) {
			continue;
		}
		n++;
		if (report != NULL) {
			report(subsystem, entry);
		}
	}
	json_decref(set);
	return n;
}

size_t hand_over_config_missing(const json_t *of, const json_t *in,
				void (*report)(const char *subsystem, const json_t *entry))
{
	const json_t *s;
	size_t i, n = 0;

	json_array_foreach (json_object_get(of, "subsystems"), i, s) {
		const char *name = json_string_value(json_object_get(s, "subsystem"));
		if (name != NULL) {
			n += list_missing(name, json_object_get(s, "config"), config_list(in, name), report);
		}
	}
	return n;
}

void hand_over_config_expect(char *text)
{
	secret_wipe_free(expected);
	expected = text;
}

/* What an entry is about, for people; secrets are never names. */
static void entry_subject(const json_t *entry, char text[SUBJECT_MAX])
{
	static const char *const names[] = {"name", "nqn", "bdev_name", "base_bdev_name"};
	const json_t *params = json_object_get(entry, "params");
	const char *method = json_string_value(json_object_get(entry, "method")), *name = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(names) && name == NULL; i++) {
		name = json_string_value(json_object_get(params, names[i]));
	}
	snprintf(text, SUBJECT_MAX, "%.80s%s%.160s", method != NULL ? method : "an entry", name != NULL ? " of " : "",
		 name != NULL ? name : "");
}

static void list_note(json_t **list, const char *subsystem, const json_t *entry)
{
	json_t *o = json_pack("{s:s,s:[o]}", "subsystem", subsystem, "config", json_deep_copy(entry));

	*list = *list != NULL ? *list : json_array();
	unknown |= o == NULL || json_array_append_new(*list, o) != 0;
}

static void check_tell_missing(const char *subsystem, const json_t *entry)
{
	char subject[SUBJECT_MAX];

	entry_subject(entry, subject);
	log_error("not taken back: %s (subsystem \"%s\")", subject, subsystem);
	notify_send_reason(NOTIFICATION, subject, "it was handed over to a process that failed, and did not come back");
	list_note(&lost, subsystem, entry);
}

static void check_tell_other(const char *subsystem, const json_t *entry)
{
	char subject[SUBJECT_MAX];

	entry_subject(entry, subject);
	log_error("not as it was before it was handed over: %s (subsystem \"%s\")", subject, subsystem);
	list_note(&strange, subsystem, entry);
}

void hand_over_config_check(void)
{
	json_error_t wrong;

	if (expected == NULL) {
		return;
	}
	json_t *before = json_loads(expected, 0, &wrong), *now = hand_over_config();
	if (before == NULL || now == NULL) {
		log_error("no memory to look whether all was taken back");
		unknown = true;
	} else {
		hand_over_config_missing(before, now, check_tell_missing);
		hand_over_config_missing(now, before, check_tell_other);
	}
	json_decref(before);
	json_decref(now);
	hand_over_config_expect(NULL);
}

void hand_over_note_part(enum hand_over_part part, const char *why)
{
	static const char *const names[HAND_OVER_PARTS] = {
		[HAND_OVER_METRICS] = "metrics",
		[HAND_OVER_PID_FILE] = "the file with the process id",
		[HAND_OVER_RPC] = "the RPC socket",
		[HAND_OVER_RESERVATIONS] = "reservations",
	};

	if (why != NULL) {
		log_error("not taken back: %s: %s", names[part], why);
		notify_send_reason(NOTIFICATION, names[part], why);
	}
	lost_parts[part] = why != NULL;
}

/* Forgets those entries of a list that are, or are not, in the configuration. */
static void list_forget(json_t *list, const json_t *config, bool there)
{
	for (size_t i = json_array_size(list); i-- > 0;) {
		const json_t *o = json_array_get(list, i);
		const char *name = json_string_value(json_object_get(o, "subsystem"));
		bool is_there = list_missing(name, json_object_get(o, "config"), config_list(config, name), NULL) == 0;
		if (is_there == there) {
			json_array_remove(list, i);
		}
	}
}

/* What somebody has set right since. */
static void forget_what_is_right(void)
{
	struct metrics_status metrics;

	metrics_get_status(&metrics);
	if (metrics.address != NULL) {
		lost_parts[HAND_OVER_METRICS] = false;
	}
	if (json_array_size(lost) + json_array_size(strange) == 0 || rpc_get_state() != RPC_RUNTIME) {
		return;
	}
	json_t *now = hand_over_config();
	if (now != NULL) {
		list_forget(lost, now, true);
		list_forget(strange, now, false);
	}
	json_decref(now);
}

size_t hand_over_config_not_taken_back(void)
{
	forget_what_is_right();
	size_t n = json_array_size(lost) + json_array_size(strange) + unknown;
	for (size_t i = 0; i < HAND_OVER_PARTS; i++) {
		n += lost_parts[i];
	}
	return n;
}

__attribute__((constructor)) static void hand_over_register_notification(void)
{
	notify_type_register(NOTIFICATION);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* -l: which events to print. */
#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "tools/varve-trace.h"
#include "util/nearest.h"
#include "util/parse.h"

static const char *const key_names[FILTER_KEYS] = {
	[FILTER_TPOINT] = "tpoint", [FILTER_GROUP] = "group", [FILTER_OWNER] = "owner",
	[FILTER_OBJECT] = "object", [FILTER_LCORE] = "lcore",
};

/* Names of groups by number, because a trace file names only its tracepoints: varve's groups, and those that only stock
 * targets have. */
static const struct {
	const char *name;
	unsigned number;
} groups[] = {
#define TRACE_GROUP(id_, number_, name_, ...) {name_, number_},
#include "trace/tracepoints.def"
	{"nvmf_tcp", 0x5}, {"nvme_tcp", 0xd}, {"sock", 0xf}, {"blob", 0x10}, {"bdev_raid", 0x11},
};

static bool filter_number_parse(const char *text, uint64_t *number)
{
	char *end;

	errno = 0;
	*number = strtoull(text, &end, 0);
	return isdigit((unsigned char)text[0]) && *end == '\0' && errno == 0;
}

static bool filter_group_parse(const char *text, uint64_t *number)
{
	for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
		if (strcmp(text, groups[i].name) == 0) {
			*number = groups[i].number;
			return true;
		}
	}
	return filter_number_parse(text, number) && *number < TRACE_NUM_GROUPS;
}

bool object_id_parse(const char *text, char *prefix, uint64_t *index)
{
	char *end;

	if (!isgraph((unsigned char)text[0]) || !isdigit((unsigned char)text[1]) || isdigit((unsigned char)text[0])) {
		return false;
	}
	errno = 0;
	unsigned long long number = strtoull(text + 1, &end, 10);
	if (*end != '\0' || errno != 0) {
		return false;
	}
	*prefix = text[0];
	*index = number;
	return true;
}

static bool filter_address_parse(struct filter_term *t)
{
	t->by_address = strncmp(t->text, "0x", 2) == 0 && parse_uint64(t->text, 0, UINT64_MAX, &t->address) == 0;
	return t->by_address;
}

static void filter_group_complain(const char *text)
{
	char names[512] = "", question[NEAREST_TEXT_MAX];
	size_t used = 0;
	struct nearest near;

	nearest_begin(&near, text);
	for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]) && used < sizeof(names); i++) {
		nearest_try(&near, groups[i].name);
		used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", i > 0 ? ", " : "", groups[i].name);
	}
	trace_cli_error("-l: group \"%s\" is unknown; give one of %s, or a number from 0 to %d%s", text, names,
			TRACE_NUM_GROUPS - 1, nearest_format(&near, question, sizeof(question)));
}

/* Parses the value of a term whose key and text have been set. */
static bool filter_term_check(struct filter_term *t)
{
	char prefix;

	if (t->text[0] == '\0') {
		trace_cli_error("-l: an empty filter; give TEXT, or tpoint=, group=, owner=, object= or lcore= with "
				"a value");
		return false;
	}
	switch (t->key) {
	case FILTER_GROUP:
		if (!filter_group_parse(t->text, &t->number)) {
			filter_group_complain(t->text);
			return false;
		}
		return true;
	case FILTER_LCORE:
		if (!filter_number_parse(t->text, &t->number)) {
			trace_cli_error("-l: lcore \"%s\" is not a number", t->text);
			return false;
		}
		return true;
	case FILTER_OBJECT:
		if (!object_id_parse(t->text, &prefix, &t->number) && !filter_address_parse(t)) {
			trace_cli_error("-l: object \"%s\" is neither an id such as r12 nor an address such as "
					"0x7f00",
					t->text);
			return false;
		}
		return true;
	default:
		object_id_parse(t->text, &prefix, &t->number);
		filter_address_parse(t);
		return true;
	}
}

static void filter_term_split(struct filter_term *t, const char *text)
{
	const char *equals = strchr(text, '=');

	*t = (struct filter_term){.key = FILTER_ANY, .text = text, .number = TRACE_NO_OBJECT};
	for (int key = FILTER_ANY + 1; equals != NULL && key < FILTER_KEYS; key++) {
		if (strlen(key_names[key]) == (size_t)(equals - text) &&
		    strncmp(text, key_names[key], equals - text) == 0) {
			t->key = key;
			t->text = equals + 1;
		}
	}
}

static struct filter_term *filter_term_add(struct filter *f)
{
	if (f->n == TRACE_MAX_FILTERS) {
		trace_cli_error("-l: more than %d filters", TRACE_MAX_FILTERS);
		return NULL;
	}
	return &f->terms[f->n++];
}

bool filter_parse(struct filter *f, char *argument)
{
	char *rest = argument, *text;

	while ((text = strsep(&rest, ",")) != NULL) {
		struct filter_term *t = filter_term_add(f);
		if (t == NULL) {
			return false;
		}
		filter_term_split(t, text);
		if (!filter_term_check(t)) {
			return false;
		}
	}
	return true;
}

bool filter_add_object(struct filter *f, const char *id)
{
	struct filter_term *t = filter_term_add(f);

	if (t == NULL) {
		return false;
	}
	*t = (struct filter_term){.key = FILTER_OBJECT, .text = id, .number = TRACE_NO_OBJECT};
	return filter_term_check(t);
}

static bool filter_tpoint_is_known(const struct filter_term *t, const struct trace_reader *r, struct nearest *near)
{
	bool known = false;

	for (unsigned id = 0; id < trace_reader_num_tpoints(r); id++) {
		const struct trace_tpoint *tp = trace_reader_tpoint(r, id);

		if (tp != NULL) {
			known = known || fnmatch(t->text, tp->name, FNM_CASEFOLD) == 0;
			nearest_try(near, tp->name);
		}
	}
	return known;
}

bool filter_names_known(const struct filter *f, const struct trace_reader *r)
{
	char question[NEAREST_TEXT_MAX];
	struct nearest near;

	for (unsigned i = 0; i < f->n; i++) {
		nearest_begin(&near, f->terms[i].text);
		if (f->terms[i].key == FILTER_TPOINT && !filter_tpoint_is_known(&f->terms[i], r, &near)) {
			trace_cli_error("-l: no tracepoint is called \"%s\"%s", f->terms[i].text,
					nearest_format(&near, question, sizeof(question)));
			return false;
		}
	}
	return true;
}

static bool filter_match_tpoint(const struct filter_term *t, struct trace_reader *r, const struct trace_event *e)
{
	return fnmatch(t->text, trace_reader_tpoint(r, e->tpoint_id)->name, FNM_CASEFOLD) == 0;
}

static bool filter_match_owner(const struct filter_term *t, struct trace_reader *r, const struct trace_event *e)
{
	char poller[OUT_NUMBER_MAX];
	const char *owner = trace_reader_owner(r, e->owner_id, e->tsc);
	size_t n;

	return (owner != NULL && strstr(owner, t->text) != NULL) ||
	       ((n = event_poller(r, e, poller)) > 0 && n == strlen(t->text) && memcmp(poller, t->text, n) == 0);
}

/* Whether the event is about the object, or was done for it. */
static bool filter_match_object(const struct filter_term *t, struct trace_reader *r, const struct trace_event *e)
{
	const struct trace_tpoint *tp = trace_reader_tpoint(r, e->tpoint_id);
	char prefix = t->text[0];

	if (t->number == TRACE_NO_OBJECT) {
		return t->by_address && e->object_id == t->address;
	}
	return (e->object_index == t->number && trace_reader_object_prefix(r, tp->object_type) == prefix) ||
	       (e->related_index == t->number && trace_reader_object_prefix(r, e->related_type) == prefix);
}

static bool filter_term_match(const struct filter_term *t, struct trace_reader *r, const struct trace_event *e)
{
	switch (t->key) {
	case FILTER_TPOINT:
		return filter_match_tpoint(t, r, e);
	case FILTER_GROUP:
		return e->tpoint_id / TRACE_TPOINTS_PER_GROUP == t->number;
	case FILTER_OWNER:
		return filter_match_owner(t, r, e);
	case FILTER_OBJECT:
		return filter_match_object(t, r, e);
	case FILTER_LCORE:
		return e->lcore == t->number;
	default:
		return filter_match_tpoint(t, r, e) || filter_match_owner(t, r, e) || filter_match_object(t, r, e) ||
		       strstr(trace_reader_tpoint(r, e->tpoint_id)->name, t->text) != NULL;
	}
}

bool filter_match(const struct filter *f, struct trace_reader *r, const struct trace_event *e)
{
	if (f->n == 0) {
		return true;
	}
	for (int key = 0; key < FILTER_KEYS; key++) {
		bool wanted = false, match = false;
		for (unsigned i = 0; i < f->n && !match; i++) {
			if (f->terms[i].key == (enum filter_key)key) {
				wanted = true;
				match = filter_term_match(&f->terms[i], r, e);
			}
		}
		if (wanted && !match) {
			return false;
		}
	}
	return true;
}

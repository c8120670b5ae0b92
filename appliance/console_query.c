/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/console_query.h"

#include <string.h>

#include "appliance/console_series.h"
#include "appliance/metrics_http.h"
#include "trace/trace.h"
#include "util/compiler.h"

#define WORD_MAX 16

const char *console_kind_name(enum console_kind kind)
{
	static const char *const names[CONSOLE_KINDS] = {[CONSOLE_NODE] = "node",
							 [CONSOLE_SUBSYSTEM] = "subsystem",
							 [CONSOLE_HOST] = "host",
							 [CONSOLE_PATH] = "path",
							 [CONSOLE_BDEV] = "bdev"};

	return names[kind];
}

bool console_query_kind(const char *query, size_t len, enum console_kind *kind)
{
	char text[WORD_MAX];

	if (!http_query_value(query, len, "kind", text, sizeof(text))) {
		return false;
	}
	for (unsigned k = 0; k < CONSOLE_KINDS; k++) {
		if (strcmp(text, console_kind_name((enum console_kind)k)) == 0) {
			*kind = (enum console_kind)k;
			return true;
		}
	}
	return false;
}

/* What is kept, and how it is asked for. Without step, the first one of its span is meant. */
static const struct {
	const char *span, *step;
	uint32_t step_s, points;
	bool node_only;
} console_histories[] = {
	{"minutes", "1", 1, SERIES_FINE, false},
	{"hour", "10", SERIES_COARSE_STEP, SERIES_COARSE, false},
	{"hour", "1", 1, SERIES_NODE_FINE, true},
};

/* Whether the query has a value of that name at all, which may be wrong. */
static bool console_query_has(const char *query, size_t len, const char *name)
{
	size_t n = strlen(name);

	for (size_t at = 0; at < len;) {
		const char *end = memchr(query + at, '&', len - at);
		size_t pair = end != NULL ? (size_t)(end - (query + at)) : len - at;
		if (pair >= n && memcmp(query + at, name, n) == 0 && (pair == n || query[at + n] == '=')) {
			return true;
		}
		at += pair + 1;
	}
	return false;
}

/* The value, or the default if there is none. False: it is not well-formed, or too long for any word. */
static bool console_query_word(const char *query, size_t len, const char *name, const char *fallback, char to[WORD_MAX])
{
	if (!console_query_has(query, len, name)) {
		strcpy(to, fallback);
		return true;
	}
	return http_query_value(query, len, name, to, WORD_MAX);
}

bool console_query_history(const char *query, size_t len, struct console_history_query *q)
{
	bool has_step = console_query_has(query, len, "step");
	char span[WORD_MAX], step[WORD_MAX];

	if (!console_query_kind(query, len, &q->kind) ||
	    !http_query_value(query, len, "name", q->name, sizeof(q->name)) ||
	    !console_query_word(query, len, "span", console_histories[0].span, span) ||
	    !console_query_word(query, len, "step", "", step)) {
		return false;
	}
	for (size_t i = 0; i < ARRAY_SIZE(console_histories); i++) {
		if (strcmp(span, console_histories[i].span) == 0 &&
		    (!has_step || strcmp(step, console_histories[i].step) == 0)) {
			q->step_s = console_histories[i].step_s;
			q->points = console_histories[i].points;
			return !console_histories[i].node_only || q->kind == CONSOLE_NODE;
		}
	}
	return false;
}

/* ---- The trace ---- */

bool console_query_trace(const char *query, size_t len, struct console_trace_query *q)
{
	char group[WORD_MAX];

	*q = (struct console_trace_query){.group = -1};
	if (!console_query_word(query, len, "group", "", group)) {
		return false;
	}
	if (group[0] != '\0' && (q->group = trace_group_by_name(group)) < 0) {
		return false;
	}
	return !console_query_has(query, len, "text") || http_query_value(query, len, "text", q->text, sizeof(q->text));
}

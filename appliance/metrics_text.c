/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/metrics_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/parse.h"

#define FIRST_SIZE    65536
#define VALUE_MAX     1024 /* bytes of a label's value; the rest is cut off */
#define NS_PER_SECOND UINT64_C(1000000000)

static void add(struct metrics_text *m, const char *text, size_t n)
{
	if (m->size - m->len < n + 1 && !m->failed) {
		size_t size = 2 * (m->len + n) + FIRST_SIZE;
		char *bigger = realloc(m->text, size);
		if (bigger == NULL) {
			m->failed = true;
			return;
		}
		m->text = bigger;
		m->size = size;
	}
	if (!m->failed) {
		memcpy(m->text + m->len, text, n);
		m->len += n;
		m->text[m->len] = '\0';
	}
}

static void add_text(struct metrics_text *m, const char *text)
{
	add(m, text, strlen(text));
}

void metrics_family(struct metrics_text *m, const char *name, enum metrics_type type, const char *help)
{
	m->family = name;
	add_text(m, "# HELP ");
	add_text(m, name);
	add_text(m, " ");
	add_text(m, help);
	add_text(m, "\n# TYPE ");
	add_text(m, name);
	add_text(m, type == METRICS_COUNTER ? " counter\n" : " gauge\n");
}

static void add_value(struct metrics_text *m, const char *value)
{
	char cut[VALUE_MAX], clean[3 * VALUE_MAX + 1];

	snprintf(cut, sizeof(cut), "%s", value);
	utf8_sanitize(cut, clean, sizeof(clean));
	for (const char *c = clean; *c != '\0'; c++) {
		switch (*c) {
		case '\\':
			add_text(m, "\\\\");
			break;
		case '"':
			add_text(m, "\\\"");
			break;
		case '\n':
			add_text(m, "\\n");
			break;
		default:
			add(m, c, 1);
		}
	}
}

static void add_labels(struct metrics_text *m, va_list labels)
{
	const char *label, *separator = "{";

	while ((label = va_arg(labels, const char *)) != NULL) {
		const char *value = va_arg(labels, const char *);
		add_text(m, separator);
		add_text(m, label);
		add_text(m, "=\"");
		add_value(m, value != NULL ? value : "");
		add_text(m, "\"");
		separator = ",";
	}
	if (*separator == ',') {
		add_text(m, "}");
	}
}

void metrics_uint(struct metrics_text *m, uint64_t value, ...)
{
	char number[32];
	va_list labels;

	add_text(m, m->family);
	va_start(labels, value);
	add_labels(m, labels);
	va_end(labels);
	snprintf(number, sizeof(number), " %" PRIu64 "\n", value);
	add_text(m, number);
}

void metrics_ns(struct metrics_text *m, uint64_t ns, ...)
{
	char number[40];
	va_list labels;

	add_text(m, m->family);
	va_start(labels, ns);
	add_labels(m, labels);
	va_end(labels);
	snprintf(number, sizeof(number), " %" PRIu64 ".%09" PRIu64 "\n", ns / NS_PER_SECOND, ns % NS_PER_SECOND);
	add_text(m, number);
}

char *metrics_take(struct metrics_text *m, size_t *len)
{
	char *text = m->text;

	*len = m->len;
	if (m->failed) {
		free(text);
		text = NULL;
	}
	*m = (struct metrics_text){0};
	return text;
}

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

static void metrics_text_add(struct metrics_text *m, const char *text, size_t n)
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

static void metrics_text_add_string(struct metrics_text *m, const char *text)
{
	metrics_text_add(m, text, strlen(text));
}

void metrics_family(struct metrics_text *m, const char *name, enum metrics_type type, const char *help)
{
	m->family = name;
	metrics_text_add_string(m, "# HELP ");
	metrics_text_add_string(m, name);
	metrics_text_add_string(m, " ");
	metrics_text_add_string(m, help);
	metrics_text_add_string(m, "\n# TYPE ");
	metrics_text_add_string(m, name);
	metrics_text_add_string(m, type == METRICS_COUNTER ? " counter\n" : " gauge\n");
}

static void metrics_text_add_label_value(struct metrics_text *m, const char *value)
{
	char cut[VALUE_MAX], clean[3 * VALUE_MAX + 1];

	snprintf(cut, sizeof(cut), "%s", value);
	utf8_sanitize(cut, clean, sizeof(clean));
	for (const char *c = clean; *c != '\0'; c++) {
		switch (*c) {
		case '\\':
			metrics_text_add_string(m, "\\\\");
			break;
		case '"':
			metrics_text_add_string(m, "\\\"");
			break;
		case '\n':
			metrics_text_add_string(m, "\\n");
			break;
		default:
			metrics_text_add(m, c, 1);
		}
	}
}

static void metrics_text_add_labels(struct metrics_text *m, va_list labels)
{
	const char *label, *separator = "{";

	while ((label = va_arg(labels, const char *)) != NULL) {
		const char *value = va_arg(labels, const char *);
		metrics_text_add_string(m, separator);
		metrics_text_add_string(m, label);
		metrics_text_add_string(m, "=\"");
		metrics_text_add_label_value(m, value != NULL ? value : "");
		metrics_text_add_string(m, "\"");
		separator = ",";
	}
	if (*separator == ',') {
		metrics_text_add_string(m, "}");
	}
}

void metrics_uint(struct metrics_text *m, uint64_t value, ...)
{
	char number[32];
	va_list labels;

	metrics_text_add_string(m, m->family);
	va_start(labels, value);
	metrics_text_add_labels(m, labels);
	va_end(labels);
	snprintf(number, sizeof(number), " %" PRIu64 "\n", value);
	metrics_text_add_string(m, number);
}

void metrics_ns(struct metrics_text *m, uint64_t ns, ...)
{
	char number[40];
	va_list labels;

	metrics_text_add_string(m, m->family);
	va_start(labels, ns);
	metrics_text_add_labels(m, labels);
	va_end(labels);
	snprintf(number, sizeof(number), " %" PRIu64 ".%09" PRIu64 "\n", ns / NS_PER_SECOND, ns % NS_PER_SECOND);
	metrics_text_add_string(m, number);
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

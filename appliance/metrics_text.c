/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/metrics_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "env_dpdk/env.h"
#include "util/latency.h"
#include "util/parse.h"

#define FIRST_SIZE    65536
#define VALUE_MAX     1024 /* bytes of a label's value; the rest is cut off */
#define NS_PER_SECOND UINT64_C(1000000000)
#define NS_PER_MS     UINT64_C(1000000)

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
	static const char *const types[] = {
		[METRICS_COUNTER] = " counter\n", [METRICS_GAUGE] = " gauge\n", [METRICS_HISTOGRAM] = " histogram\n"};

	m->family = name;
	metrics_text_add_string(m, "# HELP ");
	metrics_text_add_string(m, name);
	metrics_text_add_string(m, " ");
	metrics_text_add_string(m, help);
	metrics_text_add_string(m, "\n# TYPE ");
	metrics_text_add_string(m, name);
	metrics_text_add_string(m, types[type]);
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

static void metrics_text_add_sample(struct metrics_text *m, va_list labels, const char *number)
{
	metrics_text_add_string(m, m->family);
	metrics_text_add_labels(m, labels);
	metrics_text_add_string(m, number);
}

#define SAMPLE_NUMBER_MAX 48

static const char *metrics_uint_text(char to[SAMPLE_NUMBER_MAX], uint64_t value)
{
	snprintf(to, SAMPLE_NUMBER_MAX, " %" PRIu64 "\n", value);
	return to;
}

static const char *metrics_ns_text(char to[SAMPLE_NUMBER_MAX], uint64_t ns)
{
	snprintf(to, SAMPLE_NUMBER_MAX, " %" PRIu64 ".%09" PRIu64 "\n", ns / NS_PER_SECOND, ns % NS_PER_SECOND);
	return to;
}

void metrics_uint(struct metrics_text *m, uint64_t value, ...)
{
	char number[SAMPLE_NUMBER_MAX];
	va_list labels;

	va_start(labels, value);
	metrics_text_add_sample(m, labels, metrics_uint_text(number, value));
	va_end(labels);
}

void metrics_ns(struct metrics_text *m, uint64_t ns, ...)
{
	char number[SAMPLE_NUMBER_MAX];
	va_list labels;

	va_start(labels, ns);
	metrics_text_add_sample(m, labels, metrics_ns_text(number, ns));
	va_end(labels);
}

/* ---- Histograms ---- */

/* labels: without the brace that ends them, which `end` begins with, after the label le if there is one. */
static void metrics_text_add_line(struct metrics_text *m, const char *suffix, const char *labels, const char *end)
{
	metrics_text_add_string(m, m->family);
	metrics_text_add_string(m, suffix);
	metrics_text_add_string(m, labels);
	metrics_text_add_string(m, end);
}

static void metrics_text_add_buckets(struct metrics_text *m, const struct latency_histogram *h, const char *labels)
{
	char end[2 * SAMPLE_NUMBER_MAX];
	uint64_t count = 0;

	for (unsigned i = 0; i < LATENCY_BUCKETS; i++) {
		count += h->buckets[i];
		if (i < LATENCY_BUCKETS - 1) {
			snprintf(end, sizeof(end), ",le=\"%g\"} %" PRIu64 "\n",
				 (double)latency_bounds_ns[i] / (double)NS_PER_SECOND, count);
		} else {
			snprintf(end, sizeof(end), ",le=\"+Inf\"} %" PRIu64 "\n", count);
		}
		metrics_text_add_line(m, "_bucket", labels, end);
	}
}

void metrics_histogram(struct metrics_text *m, const struct latency_histogram *h, uint64_t ns, ...)
{
	struct metrics_text labels = {0};
	char number[SAMPLE_NUMBER_MAX + 1] = "}";
	va_list list;

	va_start(list, ns);
	metrics_text_add_labels(&labels, list);
	va_end(list);
	if (labels.failed || labels.len == 0) {
		m->failed = true;
		free(labels.text);
		return;
	}
	labels.text[labels.len - 1] = '\0'; /* the brace */
	metrics_text_add_buckets(m, h, labels.text);
	metrics_ns_text(number + 1, ns);
	metrics_text_add_line(m, "_sum", labels.text, number);
	metrics_uint_text(number + 1, h->counted);
	metrics_text_add_line(m, "_count", labels.text, number);
	free(labels.text);
}

/* ---- Families that are rows of a table ---- */

static uint64_t metrics_member(const struct metric *family, const void *object)
{
	const char *at = (const char *)object + family->offset;

	switch (family->size) {
	case sizeof(uint8_t):
		return *(const uint8_t *)at;
	case sizeof(uint16_t):
		return *(const uint16_t *)at;
	case sizeof(uint32_t):
		return *(const uint32_t *)at;
	default:
		return *(const uint64_t *)at;
	}
}

void metrics_begin(struct metrics_text *m, const struct metric *family)
{
	metrics_family(m, family->name, family->type, family->help);
}

void metrics_sample(struct metrics_text *m, const struct metric *family, const void *object, ...)
{
	char number[SAMPLE_NUMBER_MAX];
	uint64_t value = metrics_member(family, object);
	va_list labels;

	switch (family->unit) {
	case METRICS_PLAIN:
		metrics_uint_text(number, value);
		break;
	case METRICS_TICKS:
		metrics_ns_text(number, env_ticks_to_ns(value));
		break;
	case METRICS_JIFFIES:
		metrics_ns_text(number, value * (NS_PER_SECOND / (uint64_t)sysconf(_SC_CLK_TCK)));
		break;
	case METRICS_MS:
		metrics_ns_text(number, value * NS_PER_MS);
		break;
	}
	va_start(labels, object);
	metrics_text_add_sample(m, labels, number);
	va_end(labels);
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

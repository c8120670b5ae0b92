/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests for metrics: whatever comes, there is one answer, and it does not depend on how it came in pieces. Label
 * values: whatever they are, a sample stays one line. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "appliance/blackbox_files.h"
#include "appliance/console_query.h"
#include "appliance/metrics_http.h"
#include "appliance/metrics_text.h"
#include "trace/trace_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_request(const char *bytes, size_t size)
{
	struct metrics_request whole, part;
	bool done = metrics_request_parse(bytes, size, &whole);

	if (!done && size >= METRICS_REQUEST_MAX) {
		abort();
	}
	for (size_t n = size / 4; n < size; n += size / 4 + 1) {
		if (metrics_request_parse(bytes, n, &part) &&
		    (!done || part.status != whole.status || part.head != whole.head)) {
			abort();
		}
	}
}

static void check_query(const char *query, size_t size)
{
	struct console_history_query q;
	struct console_trace_query t;
	char value[64];

	if (http_query_value(query, size, "name", value, sizeof(value)) && strlen(value) >= sizeof(value)) {
		abort();
	}
	if (console_query_history(query, size, &q) &&
	    ((q.step_s != 1 && q.step_s != 10) || q.step_s * q.points > 3600 || strlen(q.name) >= sizeof(q.name) ||
	     (q.points > 360 && q.kind != CONSOLE_NODE))) {
		abort();
	}
	if (console_query_trace(query, size, &t) &&
	    (t.group < -1 || t.group >= TRACE_NUM_GROUPS || strlen(t.text) >= sizeof(t.text))) {
		abort();
	}
}

static void check_copy_name(const char *name)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
	struct blackbox_copy_info info;
	char head[METRICS_ANSWER_HEAD_MAX];

	if (!blackbox_copy_name_parse(name, "varve", &info)) {
		return;
	}
	if (strspn(info.name, allowed) != strlen(info.name) || strcmp(name, info.name) != 0) {
		abort();
	}
	size_t n = metrics_answer_head(200, HTTP_COPY, SIZE_MAX, info.name, head, sizeof(head));
	if (n == 0 || strstr(head, "\r\n\r\n") != head + n - 4) {
		abort();
	}
}

static void check_label(const char *value)
{
	struct metrics_text m = {0};
	size_t len;

	metrics_family(&m, "m", METRICS_GAUGE, "h");
	metrics_uint(&m, 7, "l", value, NULL);
	char *text = metrics_take(&m, &len);
	if (text == NULL) {
		return;
	}
	const char *sample = strstr(text, "\nm{l=\"");
	if (sample == NULL || strchr(sample + 1, '\n') != text + len - 1 || memcmp(text + len - 5, "\"} 7\n", 5) != 0) {
		abort();
	}
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	memcpy(text, data, size);
	text[size] = '\0';
	check_request(text, size);
	check_query(text, size);
	check_copy_name(text);
	check_label(text);
	free(text);
	return 0;
}

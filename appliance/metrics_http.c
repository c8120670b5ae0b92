/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/metrics_http.h"

#include <stdio.h>
#include <string.h>

struct span {
	const char *at;
	size_t len;
};

static bool span_is(struct span s, const char *text)
{
	return s.len == strlen(text) && memcmp(s.at, text, s.len) == 0;
}

/* Takes the bytes before the first c, and c itself, from the beginning of *rest. False: there is no c. */
static bool span_take_until(struct span *rest, char c, struct span *taken)
{
	const char *end = memchr(rest->at, c, rest->len);

	if (end == NULL) {
		return false;
	}
	*taken = (struct span){rest->at, (size_t)(end - rest->at)};
	rest->at = end + 1;
	rest->len -= taken->len + 1;
	return true;
}

/* Takes a line, without its end, from the beginning of *rest. A bare line feed ends a line too (RFC 9112 2.2). False:
 * the line is not complete yet. */
static bool span_take_line(struct span *rest, struct span *line)
{
	if (!span_take_until(rest, '\n', line)) {
		return false;
	}
	if (line->len > 0 && line->at[line->len - 1] == '\r') {
		line->len--;
	}
	return true;
}

static bool http_is_token_char(unsigned char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static bool span_is_token(struct span s)
{
	for (size_t i = 0; i < s.len; i++) {
		if (!http_is_token_char((unsigned char)s.at[i])) {
			return false;
		}
	}
	return s.len > 0;
}

static bool span_is_visible(struct span s)
{
	for (size_t i = 0; i < s.len; i++) {
		if ((unsigned char)s.at[i] <= ' ' || s.at[i] == 0x7f) {
			return false;
		}
	}
	return s.len > 0;
}

static int http_check_version(struct span version)
{
	if (span_is(version, "HTTP/1.1") || span_is(version, "HTTP/1.0")) {
		return 200;
	}
	return version.len == 8 && memcmp(version.at, "HTTP/", 5) == 0 ? 505 : 400;
}

static int http_check_target(struct span target)
{
	struct span query = target, path;

	return span_is(span_take_until(&query, '?', &path) ? path : target, "/metrics") ? 200 : 404;
}

/* METHOD SP TARGET SP VERSION */
static int http_check_request_line(struct span line, bool *head)
{
	struct span method, target;

	if (!span_take_until(&line, ' ', &method) || !span_take_until(&line, ' ', &target) || !span_is_token(method) ||
	    !span_is_visible(target)) {
		return 400;
	}
	int status = http_check_version(line);
	if (status != 200) {
		return status;
	}
	*head = span_is(method, "HEAD");
	if (!*head && !span_is(method, "GET")) {
		return 405;
	}
	return http_check_target(target);
}

/* Whether s is NAME: VALUE. (A line that continues another one is refused.) */
static bool span_is_field(struct span line)
{
	struct span name;

	if (!span_take_until(&line, ':', &name) || !span_is_token(name)) {
		return false;
	}
	for (size_t i = 0; i < line.len; i++) {
		unsigned char c = (unsigned char)line.at[i];
		if ((c < ' ' && c != '\t') || c == 0x7f) {
			return false;
		}
	}
	return true;
}

bool metrics_request_parse(const char *bytes, size_t len, struct metrics_request *request)
{
	struct span rest = {bytes, len < METRICS_REQUEST_MAX ? len : METRICS_REQUEST_MAX}, line;
	bool fields_ok = true;

	*request = (struct metrics_request){.status = 431};
	if (!span_take_line(&rest, &line)) {
		return len >= METRICS_REQUEST_MAX;
	}
	int status = http_check_request_line(line, &request->head);
	/* A client that does not speak HTTP may never send the empty line: it is answered at the first wrong line. */
	if (status == 400 || status == 505) {
		request->status = status;
		return true;
	}
	while (span_take_line(&rest, &line)) {
		if (line.len == 0) {
			request->status = fields_ok ? status : 400;
			return true;
		}
		fields_ok = fields_ok && span_is_field(line);
	}
	return len >= METRICS_REQUEST_MAX;
}

static const char *http_reason(int status)
{
	switch (status) {
	case 200:
		return "OK";
	case 404:
		return "Not Found";
	case 405:
		return "Method Not Allowed";
	case 431:
		return "Request Header Fields Too Large";
	case 500:
		return "Internal Server Error";
	case 505:
		return "HTTP Version Not Supported";
	default:
		return "Bad Request";
	}
}

const char *metrics_answer_text(int status)
{
	switch (status) {
	case 404:
		return "varve's metrics are at /metrics\n";
	case 405:
		return "Only GET and HEAD are answered.\n";
	case 431:
		return "The request is too long.\n";
	case 500:
		return "There is no memory for the metrics.\n";
	case 505:
		return "Only HTTP/1.0 and HTTP/1.1 are spoken here.\n";
	default:
		return "This is not an HTTP request.\n";
	}
}

size_t metrics_answer_head(int status, size_t body_len, char *to, size_t size)
{
	int n = snprintf(to, size,
			 "HTTP/1.1 %d %s\r\n"
			 "Content-Type: text/plain%s; charset=utf-8\r\n"
			 "Content-Length: %zu\r\n"
			 "%s"
			 "Cache-Control: no-store\r\n"
			 "Connection: close\r\n"
			 "\r\n",
			 status, http_reason(status), status == 200 ? "; version=0.0.4" : "", body_len,
			 status == 405 ? "Allow: GET, HEAD\r\n" : "");

	return n > 0 && (size_t)n < size ? (size_t)n : 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/metrics_http.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

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

static const struct {
	const char *path, *type;
	bool has_query;
} http_routes[HTTP_ROUTES] = {
	[HTTP_METRICS] = {"/metrics", "text/plain; version=0.0.4; charset=utf-8"},
	[HTTP_PAGE] = {"/", "text/html; charset=utf-8"},
	[HTTP_SCRIPT] = {"/console.js", "text/javascript; charset=utf-8"},
	[HTTP_STYLE] = {"/console.css", "text/css; charset=utf-8"},
	[HTTP_ICON] = {"/console.svg", "image/svg+xml"},
	[HTTP_STATE] = {"/api/state", "application/json"},
	[HTTP_SERIES] = {"/api/series", "application/json", .has_query = true},
	[HTTP_HISTORY] = {"/api/history", "application/json", .has_query = true},
	[HTTP_TOPOLOGY] = {"/api/topology", "application/json"},
	[HTTP_INFLIGHT] = {"/api/inflight", "application/json"},
	[HTTP_COPIES] = {"/api/copies", "application/json"},
	[HTTP_TRACE] = {"/api/trace", "application/json", .has_query = true},
	[HTTP_COPY] = {"/api/copy", "application/octet-stream", .has_query = true},
};

static int http_find_route(struct span target, struct metrics_request *request)
{
	struct span query = target, path = target;

	bool asks = span_take_until(&query, '?', &path);
	for (unsigned i = 0; i < HTTP_ROUTES; i++) {
		if (!span_is(path, http_routes[i].path)) {
			continue;
		}
		request->route = (enum http_route)i;
		if (asks && http_routes[i].has_query) {
			request->query = query.at;
			request->query_len = query.len;
		}
		return 200;
	}
	return 404;
}

/* METHOD SP TARGET SP VERSION */
static int http_check_request_line(struct span line, struct metrics_request *request)
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
	request->head = span_is(method, "HEAD");
	if (!request->head && !span_is(method, "GET")) {
		return 405;
	}
	return http_find_route(target, request);
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

/* ---- Host ---- */

static bool span_is_nocase(struct span s, const char *text)
{
	return s.len == strlen(text) && strncasecmp(s.at, text, s.len) == 0;
}

static bool span_is_loopback_ipv4(struct span s)
{
	for (size_t i = 0; i < s.len; i++) {
		if (s.at[i] != '.' && (s.at[i] < '0' || s.at[i] > '9')) {
			return false;
		}
	}
	return s.len > 4 && memcmp(s.at, "127.", 4) == 0;
}

/* Whether a request names this host. The owner of another site may have its name point to this host (DNS rebinding): a
 * browser then asks here with that name. */
static bool http_host_is_local(struct span host)
{
	static const char ipv6[] = "[::1]";
	struct span rest = host, name;

	if (host.len >= strlen(ipv6) && memcmp(host.at, ipv6, strlen(ipv6)) == 0) {
		return host.len == strlen(ipv6) || host.at[strlen(ipv6)] == ':';
	}
	if (!span_take_until(&rest, ':', &name)) {
		name = host;
	}
	return span_is_nocase(name, "localhost") || span_is_loopback_ipv4(name);
}

static struct span span_trim(struct span s)
{
	while (s.len > 0 && (s.at[0] == ' ' || s.at[0] == '\t')) {
		s.at++;
		s.len--;
	}
	while (s.len > 0 && (s.at[s.len - 1] == ' ' || s.at[s.len - 1] == '\t')) {
		s.len--;
	}
	return s;
}

/* Each Host must be local, should there be several. */
static void http_note_field(struct span line, struct metrics_request *request)
{
	struct span name;

	if (!span_take_until(&line, ':', &name)) {
		return;
	}
	if (span_is_nocase(name, "Host")) {
		request->local = request->local && http_host_is_local(span_trim(line));
	} else if (span_is_nocase(name, "Sec-Fetch-Site")) {
		request->cross_site = request->cross_site || span_is_nocase(span_trim(line), "cross-site");
	}
}

bool metrics_request_parse(const char *bytes, size_t len, struct metrics_request *request)
{
	struct span rest = {bytes, len < METRICS_REQUEST_MAX ? len : METRICS_REQUEST_MAX}, line;
	bool fields_ok = true;

	*request = (struct metrics_request){.status = 431, .local = true};
	if (!span_take_line(&rest, &line)) {
		return len >= METRICS_REQUEST_MAX;
	}
	int status = http_check_request_line(line, request);
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
		http_note_field(line, request);
	}
	return len >= METRICS_REQUEST_MAX;
}

static const char *http_reason(int status)
{
	switch (status) {
	case 200:
		return "OK";
	case 403:
		return "Forbidden";
	case 404:
		return "Not Found";
	case 405:
		return "Method Not Allowed";
	case 431:
		return "Request Header Fields Too Large";
	case 500:
		return "Internal Server Error";
	case 503:
		return "Service Unavailable";
	case 505:
		return "HTTP Version Not Supported";
	default:
		return "Bad Request";
	}
}

const char *metrics_answer_text(int status)
{
	switch (status) {
	case 403:
		return "Ask for localhost, 127.0.0.1 or [::1], and not from a page of another site.\n";
	case 404:
		return "varve's metrics are at /metrics, its console is at /\n";
	case 405:
		return "Only GET and HEAD are answered.\n";
	case 431:
		return "The request is too long.\n";
	case 500:
		return "There is no memory for the answer.\n";
	case 503:
		return "Answers took too much time in this second: ask again.\n";
	case 505:
		return "Only HTTP/1.0 and HTTP/1.1 are spoken here.\n";
	default:
		return "This is not an HTTP request.\n";
	}
}

size_t metrics_answer_head(int status, enum http_route route, size_t body_len, const char *file_name, char *to,
			   size_t size)
{
	const char *before = file_name != NULL ? "Content-Disposition: attachment; filename=\"" : "";
	int n = snprintf(
		to, size,
		"HTTP/1.1 %d %s\r\n"
		"Content-Type: %s\r\n"
		"Content-Length: %zu\r\n"
		"%s"
		"%s%s%s"
		"Cache-Control: no-store\r\n"
		"Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
		"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
		"Cross-Origin-Resource-Policy: same-origin\r\n"
		"Referrer-Policy: no-referrer\r\n"
		"X-Content-Type-Options: nosniff\r\n"
		"Connection: close\r\n"
		"\r\n",
		status, http_reason(status), status == 200 ? http_routes[route].type : "text/plain; charset=utf-8",
		body_len, status == 405 ? "Allow: GET, HEAD\r\n" : "", before, file_name != NULL ? file_name : "",
		file_name != NULL ? "\"\r\n" : "");

	return n > 0 && (size_t)n < size ? (size_t)n : 0;
}

/* ---- Queries ---- */

static int http_hex_digit(char c)
{
	if (c >= '0' && c <= '9') {
		return c - '0';
	}
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* False: not well-formed, a NUL byte, or too long. */
static bool percent_decode(struct span s, char *to, size_t size)
{
	size_t n = 0;

	for (size_t i = 0; i < s.len; i++) {
		char c = s.at[i];
		if (c == '%') {
			int high = i + 2 < s.len ? http_hex_digit(s.at[i + 1]) : -1;
			int low = high >= 0 ? http_hex_digit(s.at[i + 2]) : -1;
			if (low < 0) {
				return false;
			}
			c = (char)(high << 4 | low);
			i += 2;
		}
		if (c == '\0' || n + 1 >= size) {
			return false;
		}
		to[n++] = c;
	}
	to[n] = '\0';
	return true;
}

bool http_query_value(const char *query, size_t query_len, const char *name, char *to, size_t size)
{
	struct span rest = {query, query_len}, pair, key;

	while (rest.len > 0) {
		if (!span_take_until(&rest, '&', &pair)) {
			pair = rest;
			rest.len = 0;
		}
		if (span_take_until(&pair, '=', &key) && span_is(key, name)) {
			return size > 0 && percent_decode(pair, to, size);
		}
	}
	return false;
}

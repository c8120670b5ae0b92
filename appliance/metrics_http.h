/* SPDX-License-Identifier: BSD-3-Clause */
/* The part of HTTP/1.1 (RFC 9112) that clients of metrics and of the console need. Pure. */
#ifndef APPLIANCE_METRICS_HTTP_H
#define APPLIANCE_METRICS_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#define METRICS_REQUEST_MAX 8192 /* bytes of a request's head */

/* What can be asked for. */
enum http_route {
	HTTP_METRICS, /* /metrics */
	HTTP_PAGE,    /* / */
	HTTP_SCRIPT,
	HTTP_STYLE,
	HTTP_ICON,
	HTTP_STATE, /* /api/state ... */
	HTTP_SERIES,
	HTTP_HISTORY,
	HTTP_TOPOLOGY,
	HTTP_INFLIGHT,
	HTTP_COPIES,
	HTTP_TRACE,
	HTTP_COPY, /* /api/copy: a file */
	HTTP_ROUTES,
};

struct metrics_request {
	int status; /* of the answer: 200, 400, 404, 405, 431 or 505 */
	bool head;  /* HEAD: the answer has no body */
	/* With 200. */
	enum http_route route;
	/* Of HTTP_SERIES, HTTP_HISTORY, HTTP_TRACE and HTTP_COPY: what follows the first '?', in the bytes that were
	 * parsed. */
	const char *query;
	size_t query_len;
	bool local;      /* the field Host names a loopback address or localhost, or there is none */
	bool cross_site; /* a browser says that it asks for a page of another site (Sec-Fetch-Site) */
};
/* Parses the bytes received so far. False: more are needed; true: *request says what to answer, whatever bytes may
 * follow. Only GET and HEAD of the routes give 200. A request's body is not read. */
bool metrics_request_parse(const char *bytes, size_t len, struct metrics_request *request);

/* Decodes the first value of that name in a query: "kind=bdev&name=M%200". False: there is none, it is not well-formed,
 * has a NUL byte, or does not fit into size bytes with the NUL that ends it. */
bool http_query_value(const char *query, size_t query_len, const char *name, char *to, size_t size);

#define METRICS_ANSWER_HEAD_MAX 1024
/* Writes the head of an answer whose body has body_len bytes. route: what the body is, if status is 200. file_name:
 * under which it is to be saved, of letters, digits and "._-" alone, at most 255; or NULL. Returns the head's length,
 * less than size (METRICS_ANSWER_HEAD_MAX is enough). */
size_t metrics_answer_head(int status, enum http_route route, size_t body_len, const char *file_name, char *to,
			   size_t size);
/* The body of answers other than 200: a line for people. */
const char *metrics_answer_text(int status);

#endif

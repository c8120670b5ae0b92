/* SPDX-License-Identifier: BSD-3-Clause */
/* As much of HTTP/1.1 (RFC 9112) as who asks for metrics needs. Pure. */
#ifndef APPLIANCE_METRICS_HTTP_H
#define APPLIANCE_METRICS_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#define METRICS_REQUEST_MAX 8192 /* bytes of a request's head */

struct metrics_request {
	int status; /* what to answer: 200, or why not: 400, 404, 405, 431, 505 */
	bool head;  /* without the body */
};
/* Looks at what has come so far. False: more is needed; true: *request is what to do, whatever may still come. Only GET
 * and HEAD of /metrics are answered by 200; a body is not read. */
bool metrics_request_parse(const char *bytes, size_t len, struct metrics_request *request);

/* The head of the answer, with a body of body_len bytes; its length, less than size (METRICS_ANSWER_HEAD_MAX will
 * do). */
#define METRICS_ANSWER_HEAD_MAX 512
size_t metrics_answer_head(int status, size_t body_len, char *to, size_t size);
/* A line for people, for answers other than 200. */
const char *metrics_answer_text(int status);

#endif

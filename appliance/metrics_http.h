/* SPDX-License-Identifier: BSD-3-Clause */
/* The part of HTTP/1.1 (RFC 9112) that a client of metrics needs. Pure. */
#ifndef APPLIANCE_METRICS_HTTP_H
#define APPLIANCE_METRICS_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#define METRICS_REQUEST_MAX 8192 /* bytes of a request's head */

struct metrics_request {
	int status; /* of the answer: 200, 400, 404, 405, 431 or 505 */
	bool head;  /* HEAD: the answer has no body */
};
/* Parses the bytes received so far. False: more are needed; true: *request says what to answer, whatever bytes may
 * follow. Only GET and HEAD of /metrics give 200. A request's body is not read. */
bool metrics_request_parse(const char *bytes, size_t len, struct metrics_request *request);

#define METRICS_ANSWER_HEAD_MAX 512
/* Writes the head of an answer whose body has body_len bytes. Returns the head's length, less than size
 * (METRICS_ANSWER_HEAD_MAX is enough). */
size_t metrics_answer_head(int status, size_t body_len, char *to, size_t size);
/* The body of answers other than 200: a line for people. */
const char *metrics_answer_text(int status);

#endif

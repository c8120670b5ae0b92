/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of the daemon over its socket. All functions may be called from any thread. */
#ifndef TOOLS_GATEWAY_BACKEND_H
#define TOOLS_GATEWAY_BACKEND_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gateway_backend {
	const char *path;
	uint64_t timeout_ms; /* for an answer */
	unsigned max_calls;  /* at once */
	unsigned calls;      /* under way; atomic */
};

struct gateway_answer {
	unsigned status; /* 200: text is the answer. 204: there is none, and none was expected. 429, 502, 503, 504: why
			  */
	char *text;      /* owned by whoever called; NULL unless status is 200 */
	size_t len;
	char why[320];
};

/* Sends a message on a connection of its own and waits for the answer. answered: one must come; without, the call waits
 * until the daemon has closed the connection, which it does when it is done. */
void gateway_backend_call(struct gateway_backend *b, const char *text, size_t len, bool answered,
			  struct gateway_answer *a);
/* Calls a method without parameters. *result is the result, which the caller releases, or NULL unless a->status is 200;
 * there is nothing to free in a. */
void gateway_backend_method(struct gateway_backend *b, const char *method, json_t **result, struct gateway_answer *a);
/* Whether the daemon answers. Asks it once a second at most, however often this is called. */
bool gateway_backend_is_alive(struct gateway_backend *b);

#endif

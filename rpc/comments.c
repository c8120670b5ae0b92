/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/comments.h"

#include <stdbool.h>
#include <string.h>

/* The index behind the comment that begins at text[i]; i: there is no comment, or it has no end. */
static size_t comment_end(const char *text, size_t i, size_t len)
{
	const char *end = NULL;

	if (len - i < 2 && text[i] != '#') {
		return i;
	}
	if (text[i] != '#' && text[i] != '/') {
		return i;
	}
	if (text[i] == '#' || text[i + 1] == '/') {
		end = memchr(text + i, '\n', len - i);
		return end != NULL ? (size_t)(end - text) : len;
	}
	if (text[i + 1] == '*') {
		end = memmem(text + i + 2, len - i - 2, "*/", 2);
	}
	return end != NULL ? (size_t)(end - text) + 2 : i;
}

void rpc_comments_blank(char *text, size_t len)
{
	bool in_string = false;

	for (size_t i = 0, end; i < len; i = end) {
		end = in_string ? i : comment_end(text, i, len);
		for (size_t k = i; k < end; k++) {
			text[k] = text[k] == '\n' ? '\n' : ' ';
		}
		if (end == i && !in_string && text[i] == '/') {
			return; /* not JSON: the parser will report the place */
		}
		if (end == i) {
			end = i + 1 + (in_string && text[i] == '\\');
			in_string ^= text[i] == '"';
		}
	}
}

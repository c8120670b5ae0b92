/* SPDX-License-Identifier: BSD-3-Clause */
/* Comments in configurations. Pure. */
#ifndef RPC_COMMENTS_H
#define RPC_COMMENTS_H

#include <stddef.h>

/* Replaces comments of a JSON text by blanks, so that the lines and columns of all else stay as they were: from // or #
 * to the end of the line, and from slash-star to star-slash, outside of strings. Line ends stay. A comment without an
 * end, or a slash that begins none, is left to the parser, which reports the place. */
void rpc_comments_blank(char *text, size_t len);

#endif

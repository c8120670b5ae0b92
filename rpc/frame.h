/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds where messages begin and end in a stream of JSON objects and arrays, by nesting and strings only. Grammar,
 * escapes and UTF-8 are left to the parser. The parser alone would not do: given the beginning of a message, it cannot
 * tell "incomplete" from "wrong" (inside a literal, a number, an escape or a UTF-8 sequence), and parsing again
 * whenever bytes arrive costs time with the square of the message's length.
 *
 * Incremental: no byte is scanned twice, and the messages found do not depend on how the stream is cut. Pure. */
#ifndef RPC_FRAME_H
#define RPC_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPC_FRAME_DEPTH_MAX 64

enum rpc_frame_result {
	RPC_FRAME_MORE,    /* no message is complete: call again with more bytes */
	RPC_FRAME_MESSAGE, /* a message is complete: the bytes [*begin, *end) */
	RPC_FRAME_JUNK,    /* at *begin is neither an object nor an array: the stream cannot be used any further */
	RPC_FRAME_DEEP,    /* nested deeper than RPC_FRAME_DEPTH_MAX */
};

/* All zeroes at the beginning of a stream. */
struct rpc_frame {
	size_t scanned; /* bytes of the buffer that have been scanned */
	size_t begin;   /* of the message being scanned, valid when depth > 0 */
	uint32_t depth;
	bool in_string, escaped;
};

/* Scans on in buf, which holds len bytes: those of the earlier calls that were not dropped, then new ones. The call
 * after one that found a message looks for the next message. */
enum rpc_frame_result rpc_frame_scan(struct rpc_frame *f, const char *buf, size_t len, size_t *begin, size_t *end);

/* The number of bytes at the beginning of the buffer that are not needed any more. The caller moves the rest to the
 * beginning of the buffer, and calls rpc_frame_dropped(). */
size_t rpc_frame_droppable(const struct rpc_frame *f);
/* The first n bytes, of those that rpc_frame_droppable() named, are not in the buffer any more. */
void rpc_frame_dropped(struct rpc_frame *f, size_t n);

#endif

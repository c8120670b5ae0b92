/* SPDX-License-Identifier: BSD-3-Clause */
/* Where messages begin and end in a stream of JSON objects and arrays, by nesting and strings only. Grammar,
 * escapes and UTF-8 are the parser's business: given a prefix of a message, a parser cannot tell "incomplete"
 * from "wrong" (a cut inside a literal, a number, an escape or a UTF-8 sequence), and parsing again after
 * each piece costs the square of the message.
 *
 * Incremental and pure: no byte is looked at twice, and however a stream is cut, the same messages come out.
 */
#ifndef RPC_FRAME_H
#define RPC_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPC_FRAME_DEPTH_MAX 64

enum rpc_frame_result {
	RPC_FRAME_MORE,    /* no message is complete; come back with more bytes */
	RPC_FRAME_MESSAGE, /* one is: [*begin, *end) */
	RPC_FRAME_JUNK,    /* something that is neither an object nor an array, at *begin: the stream is lost */
	RPC_FRAME_DEEP,    /* nested deeper than RPC_FRAME_DEPTH_MAX */
};

/* All zeroes at the beginning of a stream. */
struct rpc_frame {
	size_t scanned; /* bytes of the buffer looked at */
	size_t begin;   /* of the message being scanned, valid when depth > 0 */
	uint32_t depth;
	bool in_string, escaped;
};

/* Goes on in buf, which holds len bytes: those of the earlier calls, that were not dropped, and new ones.
 * After a message the next call looks for the next one. */
enum rpc_frame_result rpc_frame_scan(struct rpc_frame *f, const char *buf, size_t len, size_t *begin, size_t *end);

/* How many bytes at the front of the buffer are of no more use; the caller moves the rest down and calls
 * rpc_frame_dropped(). */
size_t rpc_frame_droppable(const struct rpc_frame *f);
void rpc_frame_dropped(struct rpc_frame *f, size_t n);

#endif

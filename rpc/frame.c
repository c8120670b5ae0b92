/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/frame.h"

#include <string.h>

/* Scans a string up to its closing quote. Returns the index of the quote, or len. */
static size_t frame_skip_string(struct rpc_frame *f, const char *buf, size_t i, size_t len)
{
	for (; i < len; i++) {
		if (f->escaped) {
			f->escaped = false;
		} else if (buf[i] == '\\') {
			f->escaped = true;
		} else if (buf[i] == '"') {
			f->in_string = false;
			break;
		}
	}
	return i;
}

/* Scans a byte between messages: only white space and the beginning of a message are allowed. */
static enum rpc_frame_result frame_scan_between(struct rpc_frame *f, char c, size_t i)
{
	if (c == '{' || c == '[') {
		f->begin = i;
		f->depth = 1;
		return RPC_FRAME_MORE;
	}
	return c == ' ' || c == '\t' || c == '\r' || c == '\n' ? RPC_FRAME_MORE : RPC_FRAME_JUNK;
}

/* Scans a byte of a message, outside of strings. */
static enum rpc_frame_result frame_scan_inside(struct rpc_frame *f, char c)
{
	switch (c) {
	case '"':
		f->in_string = true;
		return RPC_FRAME_MORE;
	case '{':
	case '[':
		f->depth++;
		return f->depth > RPC_FRAME_DEPTH_MAX ? RPC_FRAME_DEEP : RPC_FRAME_MORE;
	case '}':
	case ']':
		f->depth--;
		return f->depth == 0 ? RPC_FRAME_MESSAGE : RPC_FRAME_MORE;
	default:
		return RPC_FRAME_MORE;
	}
}

enum rpc_frame_result rpc_frame_scan(struct rpc_frame *f, const char *buf, size_t len, size_t *begin, size_t *end)
{
	size_t i = f->scanned;

	while (i < len) {
		if (f->in_string) {
			i = frame_skip_string(f, buf, i, len);
			i += i < len; /* the closing quote */
			continue;
		}
		enum rpc_frame_result r =
			f->depth == 0 ? frame_scan_between(f, buf[i], i) : frame_scan_inside(f, buf[i]);
		if (r == RPC_FRAME_JUNK) {
			*begin = *end = i;
			return r;
		}
		i++;
		if (r != RPC_FRAME_MORE) {
			*begin = f->begin;
			*end = i;
			f->scanned = i;
			return r;
		}
	}
	f->scanned = i;
	return RPC_FRAME_MORE;
}

size_t rpc_frame_droppable(const struct rpc_frame *f)
{
	return f->depth > 0 ? f->begin : f->scanned;
}

void rpc_frame_dropped(struct rpc_frame *f, size_t n)
{
	f->scanned -= n;
	f->begin = f->depth > 0 ? f->begin - n : 0;
}

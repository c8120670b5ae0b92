/* SPDX-License-Identifier: BSD-3-Clause */
/* Walks lists of iovs: data that lies in several parts of memory, one after the other. An iov may be empty.
 *
 * A cursor is a place in a list. It does not know where the list ends: whoever moves a cursor by some bytes knows that
 * the list has that many behind it. The functions read and move nothing else, and may be called on any thread.
 *
 *     struct iov_cursor c = iov_cursor_at(io->iovs, 0);
 *     iov_to_buffer(&c, &header, sizeof(header));	the first bytes
 *     iov_skip(&c, padding);
 *     n = iov_slice(&c, child_iovs, MAX, &bytes);	iovs for the next bytes */
#ifndef UTIL_IOV_H
#define UTIL_IOV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

/* A place in a list: `offset` bytes into *iov, up to iov->iov_len. */
struct iov_cursor {
	const struct iovec *iov;
	size_t offset;
};

/* Bytes that iovcnt iovs hold together. */
static inline size_t iov_length(const struct iovec *iovs, uint32_t iovcnt)
{
	size_t n = 0;

	for (uint32_t i = 0; i < iovcnt; i++) {
		n += iovs[i].iov_len;
	}
	return n;
}

/* The address of the next bytes that lie together: of at most *n, which is not 0; *n becomes their number, which is
 * not 0 either. c moves behind them. */
static inline void *iov_next(struct iov_cursor *c, size_t *n)
{
	while (c->offset == c->iov->iov_len) {
		c->iov++;
		c->offset = 0;
	}
	size_t left = c->iov->iov_len - c->offset;
	void *at = (uint8_t *)c->iov->iov_base + c->offset;

	*n = *n < left ? *n : left;
	c->offset += *n;
	return at;
}

/* Moves c forward. */
static inline void iov_skip(struct iov_cursor *c, size_t bytes)
{
	for (size_t n; bytes > 0; bytes -= n) {
		n = bytes;
		(void)iov_next(c, &n);
	}
}

/* The place `skip` bytes into iovs, which hold at least that many. iovs may be NULL if they hold none. */
static inline struct iov_cursor iov_cursor_at(const struct iovec *iovs, size_t skip)
{
	struct iov_cursor c = {.iov = iovs};

	iov_skip(&c, skip);
	return c;
}

/* Copies the next bytes to a buffer; c moves behind them. */
static inline void iov_to_buffer(struct iov_cursor *c, void *buffer, size_t bytes)
{
	for (size_t n; bytes > 0; bytes -= n) {
		n = bytes;
		const void *at = iov_next(c, &n);
		memcpy(buffer, at, n);
		buffer = (uint8_t *)buffer + n;
	}
}

/* Overwrites the next bytes with those of a buffer; c moves behind them. */
static inline void iov_from_buffer(struct iov_cursor *c, const void *buffer, size_t bytes)
{
	for (size_t n; bytes > 0; bytes -= n) {
		n = bytes;
		void *at = iov_next(c, &n);
		memcpy(at, buffer, n);
		buffer = (const uint8_t *)buffer + n;
	}
}

/* Sets each of the next bytes to `byte`; c moves behind them. */
static inline void iov_fill(struct iov_cursor *c, uint8_t byte, size_t bytes)
{
	for (size_t n; bytes > 0; bytes -= n) {
		n = bytes;
		void *at = iov_next(c, &n);
		memset(at, byte, n);
	}
}

/* Whether the next bytes are those of a buffer. c moves behind them, or, if they are not, somewhere before. */
static inline bool iov_equals_buffer(struct iov_cursor *c, const void *buffer, size_t bytes)
{
	for (size_t n; bytes > 0; bytes -= n) {
		n = bytes;
		const void *at = iov_next(c, &n);
		if (memcmp(at, buffer, n) != 0) {
			return false;
		}
		buffer = (const uint8_t *)buffer + n;
	}
	return true;
}

/* Makes up to `max` iovs of the next *bytes bytes, none of them empty, and returns their number. *bytes becomes what
 * they hold, which is less than was asked for if max iovs are too few. c moves behind that. */
static inline uint32_t iov_slice(struct iov_cursor *c, struct iovec *out, uint32_t max, size_t *bytes)
{
	size_t done = 0;
	uint32_t count = 0;

	while (done < *bytes && count < max) {
		size_t n = *bytes - done;
		void *at = iov_next(c, &n);
		out[count++] = (struct iovec){.iov_base = at, .iov_len = n};
		done += n;
	}
	*bytes = done;
	return count;
}

#endif

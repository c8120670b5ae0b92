/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffered output for the printers: text, numbers and columns without the cost of printf, which would be most of the
 * time of printing a million events. An error of the descriptor is remembered; what comes after it is dropped. */
#ifndef TOOLS_VARVE_TRACE_OUT_H
#define TOOLS_VARVE_TRACE_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { OUT_BUFFER = 1 << 16, OUT_NUMBER_MAX = 24 };

struct out {
	int fd;
	int error; /* errno of the first failure, or 0 */
	size_t used;
	char buffer[OUT_BUFFER];
};

void out_flush(struct out *o);
/* For n up to OUT_BUFFER: makes room and returns the place; the caller adds what it wrote to o->used. */
static inline char *out_room(struct out *o, size_t n)
{
	if (OUT_BUFFER - o->used < n) {
		out_flush(o);
	}
	return o->buffer + o->used;
}

static inline void out_char(struct out *o, char c)
{
	*out_room(o, 1) = c;
	o->used++;
}

void out_bytes(struct out *o, const char *text, size_t n);
static inline void out_text(struct out *o, const char *text)
{
	out_bytes(o, text, strlen(text));
}
/* So many spaces; none if n is negative. Half of what is printed are spaces: they are stored by the piece, too many
 * rather than one by one, and what comes next is written over the rest. */
static inline void out_spaces(struct out *o, int n)
{
	enum { PIECE = 32 };

	for (; n > 0; n -= PIECE) {
		memset(out_room(o, PIECE), ' ', PIECE);
		o->used += (size_t)(n < PIECE ? n : PIECE);
	}
}
void out_number(struct out *o, uint64_t number);
/* Filled up with spaces on the left (width > 0) or on the right (width < 0), as printf() does. */
void out_number_wide(struct out *o, uint64_t number, int width);
void out_text_wide(struct out *o, const char *text, int width);
void out_printf(struct out *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Without a terminating NUL, into a place of OUT_NUMBER_MAX bytes; the number of characters. */
size_t format_number(char *to, uint64_t number);
size_t format_hex(char *to, uint64_t number); /* 0x7f00 */
/* Thousands with three decimals: 1234567 is "1234.567". */
size_t format_milli(char *to, uint64_t number);

#endif

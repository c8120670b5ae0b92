/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffered output for the printers: text, numbers and columns. With printf() most of the time of printing a million
 * events would be spent in it. After an error of the descriptor, which is remembered, output is dropped. */
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

/* Writes the buffer to the descriptor. */
void out_flush(struct out *o);
/* Makes room for n bytes, at most OUT_BUFFER, and returns the place. The caller writes there, and adds the number of
 * bytes written to o->used. */
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
/* Writes n spaces; none if n is negative. Half of all output is spaces: they are stored STEP at a time, also beyond n,
 * and the output that follows overwrites those that are too many. */
static inline void out_spaces(struct out *o, int n)
{
	enum { STEP = 32 };

	for (; n > 0; n -= STEP) {
		memset(out_room(o, STEP), ' ', STEP);
		o->used += (size_t)(n < STEP ? n : STEP);
	}
}
void out_number(struct out *o, uint64_t number);
/* Padded with spaces on the left (width > 0) or on the right (width < 0), as by printf(). */
void out_number_wide(struct out *o, uint64_t number, int width);
void out_text_wide(struct out *o, const char *text, int width);
void out_printf(struct out *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* These three write to OUT_NUMBER_MAX bytes without a terminating NUL, and return the number of characters. */
size_t format_number(char *to, uint64_t number);
size_t format_hex(char *to, uint64_t number); /* 0x7f00 */
/* In thousands, with three decimals: 1234567 gives "1234.567". */
size_t format_milli(char *to, uint64_t number);

#endif

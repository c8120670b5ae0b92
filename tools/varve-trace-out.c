/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tools/varve-trace-out.h"

static void out_write_all(struct out *o, const char *text, size_t n)
{
	while (n > 0 && o->error == 0) {
		ssize_t done = write(o->fd, text, n);
		if (done < 0 && errno == EINTR) {
			continue;
		}
		if (done <= 0) {
			o->error = done < 0 ? errno : EIO;
			return;
		}
		text += done;
		n -= (size_t)done;
	}
}

void out_flush(struct out *o)
{
	out_write_all(o, o->buffer, o->used);
	o->used = 0;
}

void out_bytes(struct out *o, const char *text, size_t n)
{
	if (n > OUT_BUFFER) {
		out_flush(o);
		out_write_all(o, text, n);
		return;
	}
	memcpy(out_room(o, n), text, n);
	o->used += n;
}

static const char digit_pairs[] = "00010203040506070809101112131415161718192021222324"
				  "25262728293031323334353637383940414243444546474849"
				  "50515253545556575859606162636465666768697071727374"
				  "75767778798081828384858687888990919293949596979899";

/* Writes the digits so that they end before `end`. Returns the first one. */
static char *format_digits_before(char *end, uint64_t number)
{
	while (number >= 100) {
		unsigned pair = (unsigned)(number % 100);
		number /= 100;
		end -= 2;
		memcpy(end, digit_pairs + 2 * pair, 2);
	}
	if (number >= 10) {
		end -= 2;
		memcpy(end, digit_pairs + 2 * number, 2);
	} else {
		*--end = (char)('0' + number);
	}
	return end;
}

size_t format_number(char *to, uint64_t number)
{
	char digits[OUT_NUMBER_MAX], *end = digits + sizeof(digits), *first = format_digits_before(end, number);

	memcpy(to, first, (size_t)(end - first));
	return (size_t)(end - first);
}

size_t format_hex(char *to, uint64_t number)
{
	int digits = number != 0 ? (67 - __builtin_clzll(number)) / 4 : 1;

	to[0] = '0';
	to[1] = 'x';
	for (int i = 0; i < digits; i++) {
		to[2 + i] = "0123456789abcdef"[number >> 4 * (digits - 1 - i) & 15];
	}
	return 2 + (size_t)digits;
}

size_t format_milli(char *to, uint64_t number)
{
	size_t n = format_number(to, number / 1000);
	unsigned rest = (unsigned)(number % 1000);

	to[n] = '.';
	to[n + 1] = (char)('0' + rest / 100);
	memcpy(to + n + 2, digit_pairs + 2 * (rest % 100), 2);
	return n + 4;
}

void out_number(struct out *o, uint64_t number)
{
	char *to = out_room(o, OUT_NUMBER_MAX);

	o->used += format_number(to, number);
}

static void out_wide(struct out *o, const char *text, size_t n, int width)
{
	out_spaces(o, width - (int)n);
	out_bytes(o, text, n);
	out_spaces(o, -width - (int)n);
}

void out_number_wide(struct out *o, uint64_t number, int width)
{
	char text[OUT_NUMBER_MAX];

	out_wide(o, text, format_number(text, number), width);
}

void out_text_wide(struct out *o, const char *text, int width)
{
	out_wide(o, text, strlen(text), width);
}

void out_printf(struct out *o, const char *fmt, ...)
{
	va_list ap, again;

	va_start(ap, fmt);
	va_copy(again, ap);
	int n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n > 0) {
		char *text = malloc((size_t)n + 1);
		if (text != NULL) {
			vsnprintf(text, (size_t)n + 1, fmt, again);
			out_bytes(o, text, (size_t)n);
			free(text);
		} else {
			o->error = ENOMEM;
		}
	}
	va_end(again);
}

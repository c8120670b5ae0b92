/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/safe-text.h"

#include <string.h>

#include "util/parse.h"

/* The length in bytes of the control character at s; 0: there is none. */
static size_t safe_text_control_length(const char *s, size_t len)
{
	return utf8_printable(s, len) == 0 ? utf8_sequence(s, len) : 0;
}

/* The number of the character, of at most three bytes. */
static unsigned safe_text_number(const unsigned char *u, size_t n)
{
	return n == 1   ? u[0]
	       : n == 2 ? (u[0] & 0x1fu) << 6 | (u[1] & 0x3fu)
			: (u[0] & 0x0fu) << 12 | (u[1] & 0x3fu) << 6 | (u[2] & 0x3fu);
}

void safe_text_print(FILE *out, const char *text, size_t len)
{
	for (size_t i = 0; i < len;) {
		size_t n = safe_text_control_length(text + i, len - i);
		if (n == 0 || text[i] == '\n' || text[i] == '\t') {
			fputc(text[i++], out);
		} else {
			fprintf(out, "\\u%04x", safe_text_number((const unsigned char *)text + i, n));
			i += n;
		}
	}
}

void safe_text_line(char *text)
{
	size_t len = strlen(text);

	for (size_t i = 0; i < len;) {
		size_t n = safe_text_control_length(text + i, len - i);
		memset(text + i, '?', n);
		i += n > 0 ? n : 1;
	}
}

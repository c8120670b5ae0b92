/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/safe-text.h"

#include <string.h>

/* How many bytes the control character at s takes, 0 if there is none. C1 is U+0080 to U+009F: 0xc2 and a byte. */
static size_t control_length(const unsigned char *s, size_t len)
{
	if (s[0] < 0x20 || s[0] == 0x7f) {
		return 1;
	}
	return len > 1 && s[0] == 0xc2 && s[1] >= 0x80 && s[1] < 0xa0 ? 2 : 0;
}

void safe_text_print(FILE *out, const char *text, size_t len)
{
	const unsigned char *s = (const unsigned char *)text;

	for (size_t i = 0; i < len;) {
		size_t n = control_length(s + i, len - i);
		if (n == 0 || s[i] == '\n' || s[i] == '\t') {
			fputc(s[i++], out);
		} else {
			fprintf(out, "\\u%04x", s[i + n - 1]);
			i += n;
		}
	}
}

void safe_text_line(char *text)
{
	size_t len = strlen(text);

	for (size_t i = 0; i < len;) {
		size_t n = control_length((const unsigned char *)text + i, len - i);
		memset(text + i, '?', n);
		i += n > 0 ? n : 1;
	}
}

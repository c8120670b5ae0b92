/* SPDX-License-Identifier: BSD-3-Clause */
/* Records lines of the log as events, so that a trace tells causes also without the log. */
#include <stdio.h>
#include <string.h>

#include "trace/trace_internal.h"

enum { TEXT_BYTES = 127 }; /* of the argument's 128 bytes the last one ends the text */

void trace_log_line(enum log_level level, const char *file, int line, const char *text)
{
	/* Lines of INFO and DEBUG are left out: they would overwrite the events that the ring is for. */
	if (!TRACE_ENABLED(LOG_LINE) || level > LOG_LEVEL_NOTICE) {
		return;
	}
	size_t length = strlen(text), at = 0;
	do {
		char part[TEXT_BYTES + 1];
		size_t n = strnlen(text + at, TEXT_BYTES);

		while (n > TEXT_BYTES - 4 && (text[at + n] & 0xc0) == 0x80) { /* not inside a character */
			n--;
		}
		snprintf(part, sizeof(part), "%.*s", (int)n, text + at);
		TRACE(LOG_LINE, 0, (uint32_t)length, 0, (uint32_t)level, (uint32_t)line, file, (uint32_t)at, part);
		at += n;
	} while (at < length);
}

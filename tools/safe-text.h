/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes text from a daemon safe for a terminal: the daemon, or whoever listens in its place, must not be able to move
 * the cursor, change the title, or make the terminal send input. */
#ifndef TOOLS_SAFE_TEXT_H
#define TOOLS_SAFE_TEXT_H

#include <stddef.h>
#include <stdio.h>

/* Prints len bytes of UTF-8. Control characters (those of C0 but newline and tab, DEL, those of C1) appear as JSON has
 * them, \u001b, so that JSON stays the same JSON. */
void safe_text_print(FILE *out, const char *text, size_t len);
/* Replaces each byte of a control character, newline and tab included, by '?': for text within a line. */
void safe_text_line(char *text);

#endif

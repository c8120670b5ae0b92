/* SPDX-License-Identifier: BSD-3-Clause */
/* "Did you mean ...?": the known name that a misspelt word is nearest to. */
#ifndef UTIL_NEAREST_H
#define UTIL_NEAREST_H

#include <getopt.h>
#include <stddef.h>

/* The search for one word. Initialize it with nearest_begin(). */
struct nearest {
	const char *word;
	const char *name;  /* the nearest one by now; NULL: none is near */
	unsigned distance; /* of it; beyond the limit while there is none */
};

/* Begins a search. Words of more than 64 characters are near to nothing. */
void nearest_begin(struct nearest *n, const char *word);
/* Considers one more name, which must stay as long as it may be the answer. Of several at the same distance the first
 * one wins. */
void nearest_try(struct nearest *n, const char *name);

/* Room for what nearest_format() writes with a name of up to 64 characters. */
enum { NEAREST_TEXT_MAX = 96 };
/* Writes `; did you mean "NAME"?`, or nothing if no name is near. Returns to. */
const char *nearest_format(const struct nearest *n, char *to, size_t size);

/* Prints "PROGRAM: did you mean --OPTION?" to stderr if `argument` is a long option that is near to one of `options`.
 * For use after getopt_long() has returned '?', with argv[optind - 1]. */
void nearest_print_option(const char *program, const char *argument, const struct option *options);

#endif

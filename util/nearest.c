/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/nearest.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { WORD_MAX = 64, TOKENS_MAX = 16 };

/* How many mistakes a word of that length may have. */
static unsigned nearest_limit(size_t length)
{
	return length < 3 ? 0 : length < 6 ? 1 : length < 12 ? 2 : 3;
}

static unsigned nearest_min(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

static bool nearest_same(char a, char b)
{
	return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* The number of letters to insert, delete, replace or swap with their neighbour, without regard to case. Both words
 * have at most WORD_MAX characters. */
static unsigned nearest_distance(const char *a, const char *b)
{
	unsigned rows[3][WORD_MAX + 1], *before = rows[0], *last = rows[1], *now = rows[2];
	size_t len_a = strlen(a), len_b = strlen(b);

	for (unsigned j = 0; j <= len_b; j++) {
		last[j] = j;
	}
	for (unsigned i = 1; i <= len_a; i++) {
		now[0] = i;
		for (unsigned j = 1; j <= len_b; j++) {
			now[j] = nearest_min(nearest_min(last[j], now[j - 1]) + 1,
					     last[j - 1] + !nearest_same(a[i - 1], b[j - 1]));
			if (i > 1 && j > 1 && nearest_same(a[i - 1], b[j - 2]) && nearest_same(a[i - 2], b[j - 1])) {
				now[j] = nearest_min(now[j], before[j - 2] + 1);
			}
		}
		unsigned *free_row = before;
		before = last;
		last = now;
		now = free_row;
	}
	return last[len_b];
}

struct token {
	const char *text;
	size_t len;
};

/* The parts between underscores and dashes. Returns TOKENS_MAX + 1 if there are more than TOKENS_MAX. */
static unsigned nearest_split(const char *word, struct token tokens[TOKENS_MAX])
{
	unsigned n = 0;

	while (*word != '\0') {
		size_t len = strcspn(word, "_-");

		if (n == TOKENS_MAX) {
			return TOKENS_MAX + 1;
		}
		tokens[n++] = (struct token){word, len};
		word += len + (word[len] != '\0');
	}
	return n;
}

/* Whether two names have the same parts in another order, as bdev_create_malloc and bdev_malloc_create. */
static bool nearest_is_reordered(const char *a, const char *b)
{
	struct token of_a[TOKENS_MAX], of_b[TOKENS_MAX];
	unsigned n = nearest_split(a, of_a), used = 0;

	if (n < 2 || n > TOKENS_MAX || nearest_split(b, of_b) != n) {
		return false;
	}
	for (unsigned i = 0; i < n; i++) {
		unsigned j = 0;

		while (j < n && ((used & 1u << j) != 0 || of_a[i].len != of_b[j].len ||
				 memcmp(of_a[i].text, of_b[j].text, of_a[i].len) != 0)) {
			j++;
		}
		if (j == n) {
			return false;
		}
		used |= 1u << j;
	}
	return true;
}

void nearest_begin(struct nearest *n, const char *word)
{
	size_t len = strlen(word);

	*n = (struct nearest){.word = word, .distance = len <= WORD_MAX ? nearest_limit(len) + 1 : 0};
}

void nearest_try(struct nearest *n, const char *name)
{
	if (n->distance == 0 || strlen(name) > WORD_MAX) {
		return;
	}
	unsigned distance = nearest_distance(n->word, name);
	if (distance > 1 && nearest_is_reordered(n->word, name)) {
		distance = 1;
	}
	if (distance < n->distance) {
		n->distance = distance;
		n->name = name;
	}
}

const char *nearest_format(const struct nearest *n, char *to, size_t size)
{
	to[0] = '\0';
	if (n->name != NULL) {
		snprintf(to, size, "; did you mean \"%s\"?", n->name);
	}
	return to;
}

void nearest_print_option(const char *program, const char *argument, const struct option *options)
{
	char word[WORD_MAX + 2];
	struct nearest n;

	if (argument == NULL || strncmp(argument, "--", 2) != 0) {
		return;
	}
	snprintf(word, sizeof(word), "%.*s", (int)strcspn(argument + 2, "="), argument + 2);
	nearest_begin(&n, word);
	for (; options->name != NULL; options++) {
		nearest_try(&n, options->name);
	}
	/* At a distance of 0 the option is known, and something else is wrong. */
	if (n.name != NULL && n.distance > 0) {
		fprintf(stderr, "%s: did you mean --%s?\n", program, n.name);
	}
}

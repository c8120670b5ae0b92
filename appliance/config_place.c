/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/config_place.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/lexer.h"

struct place {
	const json_t *value;
	size_t offset;
};

struct config_places {
	const char *text;
	size_t len;
	size_t n_places, room;
	struct place *places; /* sorted by value */
	size_t *lines;        /* where each line begins */
	size_t n_lines;
	bool no_memory;
};

static int config_place_compare(const void *a, const void *b)
{
	const struct place *p = a, *q = b;

	return (p->value > q->value) - (p->value < q->value);
}

static void config_place_add(struct config_places *p, const json_t *value, size_t offset)
{
	if (json_is_boolean(value) || json_is_null(value)) {
		return;
	}
	if (p->n_places == p->room) {
		size_t room = p->room != 0 ? 2 * p->room : 64;
		struct place *more = realloc(p->places, room * sizeof(*more));
		if (more == NULL) {
			p->no_memory = true;
			return;
		}
		p->places = more;
		p->room = room;
	}
	p->places[p->n_places++] = (struct place){value, offset};
}

/* Follows the tree and the text at the same time. The text is known to be what the tree was parsed from, so its tokens
 * are those of the tree; the parser limits its nesting. */
static void config_places_walk(struct config_places *p, struct rpc_lexer *l, const json_t *value)
{
	struct rpc_token t = {0};
	const char *key;
	json_t *member;
	size_t i, n = 0;

	rpc_lexer_next(l, &t);
	config_place_add(p, value, t.begin);
	json_object_foreach ((json_t *)value, key, member) {
		rpc_lexer_next(l, &t); /* the name */
		rpc_lexer_next(l, &t); /* the colon */
		config_places_walk(p, l, member);
		rpc_lexer_next(l, &t); /* the comma, or the closing bracket */
		n++;
	}
	json_array_foreach (value, i, member) {
		config_places_walk(p, l, member);
		rpc_lexer_next(l, &t);
		n++;
	}
	if (n == 0 && (json_is_object(value) || json_is_array(value))) {
		rpc_lexer_next(l, &t); /* the closing bracket */
	}
}

static void config_places_find_lines(struct config_places *p)
{
	size_t n = 1;

	for (size_t i = 0; i < p->len; i++) {
		n += p->text[i] == '\n';
	}
	p->lines = malloc(n * sizeof(*p->lines));
	if (p->lines == NULL) {
		p->no_memory = true;
		return;
	}
	p->lines[p->n_lines++] = 0;
	for (size_t i = 0; i < p->len; i++) {
		if (p->text[i] == '\n') {
			p->lines[p->n_lines++] = i + 1;
		}
	}
}

struct config_places *config_places_create(const char *text, size_t len, const json_t *tree)
{
	struct config_places *p = calloc(1, sizeof(*p));
	struct rpc_lexer l;

	if (p == NULL) {
		return NULL;
	}
	p->text = text;
	p->len = len;
	rpc_lexer_init(&l, text, len);
	config_places_find_lines(p);
	config_places_walk(p, &l, tree);
	if (p->no_memory) {
		config_places_free(p);
		return NULL;
	}
	qsort(p->places, p->n_places, sizeof(*p->places), config_place_compare);
	return p;
}

void config_places_free(struct config_places *p)
{
	if (p != NULL) {
		free(p->places);
		free(p->lines);
		free(p);
	}
}

static const struct place *config_place_of(const struct config_places *p, const json_t *value)
{
	const struct place key = {.value = value};

	return bsearch(&key, p->places, p->n_places, sizeof(key), config_place_compare);
}

/* The line of an offset by bisection, and the byte in it. */
static void config_place_count(const struct config_places *p, size_t offset, unsigned *line, unsigned *column)
{
	size_t low = 0, high = p->n_lines;

	while (high - low > 1) {
		size_t middle = (low + high) / 2;
		if (p->lines[middle] <= offset) {
			low = middle;
		} else {
			high = middle;
		}
	}
	*line = (unsigned)low + 1;
	*column = (unsigned)(offset - p->lines[low]) + 1;
}

void config_place_find(const struct config_places *p, const json_t *value, unsigned *line, unsigned *column)
{
	const struct place *at = config_place_of(p, value);

	*line = *column = 0;
	if (at != NULL) {
		config_place_count(p, at->offset, line, column);
	}
}

/* Where the object that begins at an offset names a member; false: it has none of that name. */
static bool config_place_find_key(const struct config_places *p, size_t object, const char *key, size_t *offset)
{
	struct rpc_lexer l;
	struct rpc_token t;

	rpc_lexer_init(&l, p->text + object, p->len - object);
	while (rpc_lexer_next(&l, &t) && !(t.type == RPC_TOKEN_CLOSE && t.depth == 1)) {
		if (t.type == RPC_TOKEN_COLON && t.depth == 1 && rpc_lexer_key_is(&l, key)) {
			*offset = object + l.string_begin;
			return true;
		}
	}
	return false;
}

void config_place_find_member(const struct config_places *p, const json_t *object, const char *path, unsigned *line,
			      unsigned *column)
{
	const struct place *at = config_place_of(p, object);
	char part[64];
	size_t n, best;

	*line = *column = 0;
	if (at == NULL) {
		return;
	}
	best = at->offset;
	for (; at != NULL && *path != '\0'; path += n + (path[n] == '.')) {
		n = strcspn(path, ".");
		if (n >= sizeof(part)) {
			break;
		}
		memcpy(part, path, n);
		part[n] = '\0';
		if (!config_place_find_key(p, at->offset, part, &best)) {
			break;
		}
		object = json_object_get(object, part);
		at = config_place_of(p, object);
	}
	config_place_count(p, best, line, column);
}

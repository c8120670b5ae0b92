/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/lexer.h"

#include <string.h>

void rpc_lexer_init(struct rpc_lexer *l, const char *text, size_t len)
{
	*l = (struct rpc_lexer){.text = text, .len = len};
}

static bool lexer_is_digit(const struct rpc_lexer *l, size_t i)
{
	return i < l->len && l->text[i] >= '0' && l->text[i] <= '9';
}

static bool lexer_is_any(const struct rpc_lexer *l, size_t i, char a, char b)
{
	return i < l->len && (l->text[i] == a || l->text[i] == b);
}

static size_t lexer_skip_digits(const struct rpc_lexer *l, size_t i)
{
	while (lexer_is_digit(l, i)) {
		i++;
	}
	return i;
}

/* The index behind the number that begins at i; 0: there is no number. */
static size_t lexer_number_end(const struct rpc_lexer *l, size_t i, bool *real)
{
	*real = false;
	i += lexer_is_any(l, i, '-', '-');
	if (!lexer_is_digit(l, i)) {
		return 0;
	}
	i = l->text[i] == '0' ? i + 1 : lexer_skip_digits(l, i);
	if (lexer_is_any(l, i, '.', '.')) {
		if (!lexer_is_digit(l, i + 1)) {
			return 0;
		}
		i = lexer_skip_digits(l, i + 1);
		*real = true;
	}
	if (lexer_is_any(l, i, 'e', 'E')) {
		i++;
		i += lexer_is_any(l, i, '+', '-');
		if (!lexer_is_digit(l, i)) {
			return 0;
		}
		i = lexer_skip_digits(l, i);
		*real = true;
	}
	return i;
}

static size_t lexer_string_end(const struct rpc_lexer *l, size_t i)
{
	for (i++; i < l->len && l->text[i] != '"'; i++) {
		i += l->text[i] == '\\';
	}
	return i < l->len ? i + 1 : l->len;
}

static bool lexer_ends_word(char c)
{
	return strchr(" \t\r\n{}[]:,\"", c) != NULL; /* strchr() also finds the NUL, which ends a word too */
}

static size_t lexer_word_end(const struct rpc_lexer *l, size_t i)
{
	do {
		i++;
	} while (i < l->len && !lexer_ends_word(l->text[i]));
	return i;
}

static void lexer_take_word(struct rpc_lexer *l, struct rpc_token *t)
{
	size_t end = lexer_number_end(l, t->begin, &t->real);

	l->at = lexer_word_end(l, t->begin);
	t->type = end == l->at ? RPC_TOKEN_NUMBER : RPC_TOKEN_WORD;
}

static void lexer_take(struct rpc_lexer *l, struct rpc_token *t, enum rpc_token_type type, size_t end)
{
	t->type = type;
	l->at = end;
}

bool rpc_lexer_next(struct rpc_lexer *l, struct rpc_token *t)
{
	while (l->at < l->len && strchr(" \t\r\n", l->text[l->at]) != NULL && l->text[l->at] != '\0') {
		l->at++;
	}
	if (l->at >= l->len) {
		return false;
	}
	*t = (struct rpc_token){.text = l->text, .begin = l->at};
	switch (l->text[l->at]) {
	case '{':
	case '[':
		l->depth++;
		t->depth = l->depth;
		lexer_take(l, t, RPC_TOKEN_OPEN, l->at + 1);
		break;
	case '}':
	case ']':
		t->depth = l->depth;
		l->depth -= l->depth > 0;
		lexer_take(l, t, RPC_TOKEN_CLOSE, l->at + 1);
		break;
	case ':':
		lexer_take(l, t, RPC_TOKEN_COLON, l->at + 1);
		break;
	case ',':
		lexer_take(l, t, RPC_TOKEN_COMMA, l->at + 1);
		break;
	case '"':
		l->string_begin = l->at;
		l->string_end = lexer_string_end(l, l->at);
		lexer_take(l, t, RPC_TOKEN_STRING, l->string_end);
		break;
	default:
		lexer_take_word(l, t);
	}
	t->end = l->at;
	if (t->type != RPC_TOKEN_OPEN && t->type != RPC_TOKEN_CLOSE) {
		t->depth = l->depth;
	}
	return true;
}

bool rpc_lexer_key_is(const struct rpc_lexer *l, const char *key)
{
	size_t len = strlen(key);

	return l->string_end - l->string_begin == len + 2 && memcmp(l->text + l->string_begin + 1, key, len) == 0;
}

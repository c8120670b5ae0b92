/* SPDX-License-Identifier: BSD-3-Clause */
/* Splits a JSON text into tokens with their positions, to find how an id or a number was written: a parsed tree does
 * not have that. Does not check grammar; its users parse the text as well. Pure. */
#ifndef RPC_LEXER_H
#define RPC_LEXER_H

#include <stdbool.h>
#include <stddef.h>

enum rpc_token_type {
	RPC_TOKEN_OPEN,  /* { or [ */
	RPC_TOKEN_CLOSE, /* } or ] */
	RPC_TOKEN_COLON,
	RPC_TOKEN_COMMA,
	RPC_TOKEN_STRING, /* with its quotes */
	RPC_TOKEN_NUMBER, /* well formed (RFC 8259 section 6) */
	RPC_TOKEN_WORD,   /* true, false, null, or anything that is not JSON */
};

struct rpc_token {
	enum rpc_token_type type;
	const char *text; /* the whole text, in which the token is [begin, end) */
	size_t begin, end;
	unsigned depth; /* the number of brackets around it; a bracket counts itself */
	bool real;      /* a number with a fraction or an exponent */
};

struct rpc_lexer {
	const char *text;
	size_t at, len;
	unsigned depth;
	size_t string_begin, string_end; /* the last string */
};

/* Begins with a text of len bytes, which must stay while the lexer is in use. */
void rpc_lexer_init(struct rpc_lexer *l, const char *text, size_t len);
/* Finds the next token; false at the end of the text. */
bool rpc_lexer_next(struct rpc_lexer *l, struct rpc_token *t);
/* Whether the last string token is exactly key, without escapes. (Before a colon, the last string is a member's
 * name.) */
bool rpc_lexer_key_is(const struct rpc_lexer *l, const char *key);

#endif

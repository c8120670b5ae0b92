/* SPDX-License-Identifier: BSD-3-Clause */
/* The tokens of a JSON text with their places, for what a parsed tree no longer knows: how an id or a number
 * was written. It does not check grammar; whoever uses it parses the text as well. Pure. */
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
	RPC_TOKEN_WORD,   /* true, false, null, or rubbish */
};

struct rpc_token {
	enum rpc_token_type type;
	const char *text; /* the whole text, in which the token is [begin, end) */
	size_t begin, end;
	unsigned depth; /* brackets around it; a bracket itself counts as inside */
	bool real;      /* a number with a fraction or an exponent */
};

struct rpc_lexer {
	const char *text;
	size_t at, len;
	unsigned depth;
	size_t string_begin, string_end; /* the last string */
};

void rpc_lexer_init(struct rpc_lexer *l, const char *text, size_t len);
/* False at the end of the text. */
bool rpc_lexer_next(struct rpc_lexer *l, struct rpc_token *t);
/* True if the last string, which before a colon is the member's name, is written exactly so. */
bool rpc_lexer_key_is(const struct rpc_lexer *l, const char *key);

#endif

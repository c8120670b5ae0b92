/* SPDX-License-Identifier: BSD-3-Clause */
#include "tls/wire.h"

#define RECORD_MAX (16384 + 256) /* bytes behind the head (5.2) */
#define AGE_BYTES  4             /* obfuscated_ticket_age, behind an identity */

enum { CHANGE_CIPHER_SPEC = 20, HANDSHAKE = 22, APPLICATION_DATA = 23 };

static unsigned get_be16(const uint8_t *at)
{
	return (unsigned)at[0] << 8 | at[1];
}

int tls_record_bytes(const uint8_t *head, size_t n, bool first)
{
	if (head[0] < CHANGE_CIPHER_SPEC || head[0] > APPLICATION_DATA || (first && head[0] != HANDSHAKE) ||
	    (n > 1 && head[1] != 3)) {
		return -1;
	}
	if (n < TLS_RECORD_HEAD) {
		return TLS_RECORD_HEAD;
	}
	unsigned bytes = get_be16(head + 3);

	return bytes != 0 && bytes <= RECORD_MAX ? TLS_RECORD_HEAD + (int)bytes : -1;
}

bool tls_offer_next(const uint8_t *ext, size_t ext_len, size_t *at, const char **identity, size_t *len)
{
	size_t end = ext_len >= 2 ? 2 + (size_t)get_be16(ext) : 0;

	*at = *at == 0 ? 2 : *at;
	if (end > ext_len || *at + 2 > end) {
		return false;
	}
	*len = get_be16(ext + *at);
	if (*at + 2 + *len + AGE_BYTES > end) {
		return false;
	}
	*identity = (const char *)ext + *at + 2;
	*at += 2 + *len + AGE_BYTES;
	return true;
}

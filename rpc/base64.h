/* SPDX-License-Identifier: BSD-3-Clause */
/* Base64 in the alphabet for URLs and file names (RFC 4648, section 5). Pure. */
#ifndef RPC_BASE64_H
#define RPC_BASE64_H

#include <stddef.h>
#include <stdint.h>

/* Encodes len bytes, with padding. The caller frees the text. NULL: out of memory. */
char *base64url_encode(const void *data, size_t len);
/* Decodes text into *len bytes, which the caller frees. The standard alphabet and text without padding are accepted as
 * well. NULL: not base64, or out of memory; an empty text does not give NULL. */
uint8_t *base64url_decode(const char *text, size_t *len);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Base64 in the alphabet for URLs and file names (RFC 4648, section 5). Pure. */
#ifndef RPC_BASE64_H
#define RPC_BASE64_H

#include <stddef.h>
#include <stdint.h>

/* Text with padding, to be freed; NULL: out of memory. */
char *base64url_encode(const void *data, size_t len);
/* Takes the standard alphabet as well, and text without its padding. Bytes to be freed (at least one, also for *len 0);
 * NULL: not base64, or out of memory. */
uint8_t *base64url_decode(const char *text, size_t *len);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* What must be known of TLS 1.3 on the wire (RFC 8446) before OpenSSL sees it. All functions are pure. */
#ifndef TLS_WIRE_H
#define TLS_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TLS_RECORD_HEAD 5 /* bytes */

/* The bytes of a record with its head, from the first n bytes of it (1 to TLS_RECORD_HEAD); TLS_RECORD_HEAD while its
 * head is incomplete; -1: that is no record of TLS 1.3, or, with first, none that a connection begins with. */
int tls_record_bytes(const uint8_t *head, size_t n, bool first);

/* The next identity that a host offers, from the body of its extension pre_shared_key (4.2.11): *at is 0 at first, and
 * goes on. False: there are no more, or the rest is malformed. */
bool tls_offer_next(const uint8_t *ext, size_t ext_len, size_t *at, const char **identity, size_t *len);

#endif

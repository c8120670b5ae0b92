/* SPDX-License-Identifier: BSD-3-Clause */
/* Records of TLS 1.3 that are encrypted (RFC 8446 5.2, 5.3), with the AES-GCM that is the fastest here (tls/gcm.h).
 * They are made straight from the caller's memory and opened straight into it: each byte is moved once, by the cipher.
 *
 * The keys of one direction are used by one thread at a time. Nothing is allocated after tls_keys_begin(), but for
 * tls_keys_update(). */
#ifndef TLS_RECORD_H
#define TLS_RECORD_H

#include <stdbool.h>
#include <sys/types.h>

#include "tls/psk.h"
#include "tls/wire.h"
#include "util/iov.h"

#define TLS_RECORD_IV 12 /* bytes */

struct tls_key_secrets {
	uint8_t secret[TLS_PSK_MAX]; /* that the next keys are derived from */
	uint8_t iv[TLS_RECORD_IV];
};

/* The keys of one direction. Zeroed at first; all members are the functions' own. */
struct tls_keys {
	const struct tls_gcm_engine *engine; /* NULL: they are zeroed */
	void *cipher;                        /* what the engine knows of the key */
	struct tls_key_secrets *secrets;     /* in memory for keys (util/secret.h) */
	uint8_t hash;
	uint64_t number; /* of the next record; UINT64_MAX: there is none */
};
/* Derives the keys from a secret as long as a hash. hash: DHCHAP_HASH_SHA256 (AES-128-GCM) or DHCHAP_HASH_SHA384
 * (AES-256-GCM). seals: records are made with them, else opened. 0, -ENOMEM, or -EIO: OpenSSL lacks something. */
int tls_keys_begin(struct tls_keys *keys, unsigned hash, const uint8_t *secret, bool seals);
/* Goes on with the next keys (KeyUpdate, 7.2). 0, or -EIO: no record can be made or opened with them any more. */
int tls_keys_update(struct tls_keys *keys);
/* Overwrites them and frees what they have. Also of those that are zeroed. */
void tls_keys_end(struct tls_keys *keys);

/* Makes a record: `length` bytes of content (TLS_RECORD_CONTENT_MAX at most) from a place in memory, which moves behind
 * them. out has room for TLS_RECORD_EXTRA bytes more than that. The bytes of the record, or -EIO. */
ssize_t tls_record_seal(struct tls_keys *keys, uint8_t type, struct iov_cursor *from, size_t length, uint8_t *out);

/* Opens a record of `bytes` bytes (tls_data_record_bytes() has said so). `to` has room for TLS_RECORD_EXTRA bytes less
 * than that. It is written to although the record may turn out to be wrong, and behind *length if there is padding. 0:
 * *length bytes of content of a type; -EBADMSG: it was changed, or is of other keys; -ENOMSG: it has no type. */
int tls_record_open(struct tls_keys *keys, const uint8_t *record, size_t bytes, struct iov_cursor to, uint8_t *type,
		    size_t *length);

#endif

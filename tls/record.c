/* SPDX-License-Identifier: BSD-3-Clause */
#include "tls/record.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "tls/gcm.h"
#include "util/secret.h"

#define KEY_MAX 32 /* bytes */

/* ---- Keys ---- */

/* From the secret. */
static int use_secret(struct tls_keys *k)
{
	bool is_256 = k->hash == DHCHAP_HASH_SHA384;
	uint8_t key[KEY_MAX];
	int rc = tls_expand_label(k->hash, k->secrets->secret, "tls13 key", key, is_256 ? 32 : 16);

	rc = rc == 0 ? tls_expand_label(k->hash, k->secrets->secret, "tls13 iv", k->secrets->iv, TLS_RECORD_IV) : rc;
	rc = rc == 0 && !k->engine->set_key(k->cipher, key) ? -EIO : rc;
	k->number = 0;
	dhchap_cleanse(key, sizeof(key));
	return rc;
}

int tls_keys_begin(struct tls_keys *k, unsigned hash, const uint8_t *secret, bool seals)
{
	const struct tls_gcm_engine *engine = tls_gcm_engine();

	*k = (struct tls_keys){.engine = engine, .hash = (uint8_t)hash};
	k->secrets = secret_alloc(sizeof(*k->secrets));
	k->cipher = engine->begin(hash == DHCHAP_HASH_SHA384, seals);
	if (k->secrets == NULL || k->cipher == NULL) {
		tls_keys_end(k);
		return -ENOMEM;
	}
	memcpy(k->secrets->secret, secret, dhchap_hash_bytes(hash));
	int rc = use_secret(k);
	if (rc != 0) {
		tls_keys_end(k);
	}
	return rc;
}

int tls_keys_update(struct tls_keys *k)
{
	uint8_t next[TLS_PSK_MAX];
	size_t len = dhchap_hash_bytes(k->hash);
	int rc = tls_expand_label(k->hash, k->secrets->secret, "tls13 traffic upd", next, len);

	if (rc == 0) {
		memcpy(k->secrets->secret, next, len);
		rc = use_secret(k);
	}
	if (rc != 0) { /* the key and the IV may be the former ones, whose numbers have been used */
		k->number = UINT64_MAX;
	}
	dhchap_cleanse(next, sizeof(next));
	return rc;
}

void tls_keys_end(struct tls_keys *k)
{
	if (k->engine != NULL) {
		k->engine->end(k->cipher);
	}
	secret_free(k->secrets);
	*k = (struct tls_keys){0};
}

/* ---- Records ---- */

/* Begins the next record (5.3): its number is never used again, whatever becomes of it. */
static bool begin_record(struct tls_keys *k, const uint8_t head[TLS_RECORD_HEAD])
{
	uint8_t nonce[TLS_RECORD_IV];
	uint64_t number = htobe64(k->number);

	if (k->number == UINT64_MAX) {
		return false;
	}
	k->number++;
	memcpy(nonce, k->secrets->iv, sizeof(nonce));
	for (unsigned i = 0; i < sizeof(number); i++) {
		nonce[sizeof(nonce) - sizeof(number) + i] ^= ((const uint8_t *)&number)[i];
	}
	return k->engine->begin_message(k->cipher, nonce, head, TLS_RECORD_HEAD);
}

static bool make_record(struct tls_keys *k, uint8_t type, struct iov_cursor *from, size_t length, uint8_t *out)
{
	if (!begin_record(k, out)) {
		return false;
	}
	out += TLS_RECORD_HEAD;
	for (size_t piece; length > 0; length -= piece, out += piece) {
		piece = length;
		const void *at = iov_next(from, &piece);
		if (!k->engine->update(k->cipher, out, at, piece)) {
			return false;
		}
	}
	return k->engine->update(k->cipher, out, &type, 1) && k->engine->seal_end(k->cipher, out + 1);
}

ssize_t tls_record_seal(struct tls_keys *k, uint8_t type, struct iov_cursor *from, size_t length, uint8_t *out)
{
	size_t inner = length + 1 + TLS_RECORD_TAG;

	memcpy(out, (const uint8_t[]){TLS_RECORD_DATA, 3, 3, (uint8_t)(inner >> 8), (uint8_t)inner}, TLS_RECORD_HEAD);
	return make_record(k, type, from, length, out) ? (ssize_t)(TLS_RECORD_HEAD + inner) : -EIO;
}

/* The last byte of what is encrypted is the type, or padding. */
static bool decrypt_record(struct tls_keys *k, const uint8_t *record, size_t content, struct iov_cursor to,
			   uint8_t *last)
{
	const uint8_t *in = record + TLS_RECORD_HEAD;

	if (!begin_record(k, record)) {
		return false;
	}
	for (size_t piece; content > 0; content -= piece, in += piece) {
		piece = content;
		void *at = iov_next(&to, &piece);
		if (!k->engine->update(k->cipher, at, in, piece)) {
			return false;
		}
	}
	return k->engine->update(k->cipher, last, in, 1) && k->engine->open_end(k->cipher, in + 1);
}

/* Of a record with padding (5.4): its type is the last byte that is not 0. False: there is none. */
static bool strip_padding(struct iov_cursor c, size_t content, uint8_t *type, size_t *length)
{
	bool found = false;
	size_t at = 0;

	for (size_t piece; at < content; at += piece) {
		piece = content - at;
		const uint8_t *bytes = iov_next(&c, &piece);
		for (size_t i = piece; i > 0; i--) {
			if (bytes[i - 1] != 0) {
				*type = bytes[i - 1];
				*length = at + i - 1;
				found = true;
				break;
			}
		}
	}
	return found;
}

int tls_record_open(struct tls_keys *k, const uint8_t *record, size_t bytes, struct iov_cursor to, uint8_t *type,
		    size_t *length)
{
	*length = bytes - TLS_RECORD_EXTRA;
	if (!decrypt_record(k, record, *length, to, type)) {
		return -EBADMSG;
	}
	return *type != 0 || strip_padding(to, *length, type, length) ? 0 : -ENOMSG;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Identities and keys of connections, derived from a configured key (3.6.1.3, 3.6.1.4); and HKDF-Expand-Label. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "tls/psk.h"

#define CONTEXT_MAX 255 /* bytes: its length is one byte of an HkdfLabel */

static const EVP_MD *hash_md(unsigned hash)
{
	return hash == DHCHAP_HASH_SHA384 ? EVP_sha384() : EVP_sha256();
}

static int hmac_of(unsigned hash, const void *key, size_t key_len, const void *data, size_t len,
		   uint8_t out[TLS_PSK_MAX])
{
	unsigned n = 0;

	if (HMAC(hash_md(hash), key, (int)key_len, data, len, out, &n) == NULL || n != dhchap_hash_bytes(hash)) {
		ERR_clear_error();
		return -EIO;
	}
	return 0;
}

/* The HkdfLabel of RFC 8446 7.1, and the byte that HKDF-Expand puts behind it for its first and only block. */
struct hkdf_info {
	uint8_t bytes[2 + 1 + 32 + 1 + CONTEXT_MAX + 1];
	size_t len;
};

static void info_add(struct hkdf_info *info, const void *bytes, size_t len)
{
	memcpy(info->bytes + info->len, bytes, len);
	info->len += len;
}

/* label: with its "tls13 ". */
static void info_make(struct hkdf_info *info, size_t out_len, const char *label, const char *context, bool compat)
{
	const uint8_t lengths[] = {(uint8_t)strlen(label), (uint8_t)strlen(context)};

	*info = (struct hkdf_info){0};
	info_add(info, (const uint8_t[]){compat ? (uint8_t)out_len : 0, compat ? 0 : (uint8_t)out_len}, 2);
	info_add(info, &lengths[0], compat ? 0 : 1);
	info_add(info, label, strlen(label));
	info_add(info, &lengths[1], compat ? 0 : 1);
	info_add(info, context, strlen(context));
	info_add(info, "\1", 1);
}

/* HKDF-Extract without a salt, then HKDF-Expand-Label, to a key as long as a hash. */
static int key_derive(unsigned hash, const uint8_t *key, size_t key_len, const char *label, const char *context,
		      bool compat, uint8_t out[TLS_PSK_MAX])
{
	static const uint8_t salt[TLS_PSK_MAX];
	size_t len = dhchap_hash_bytes(hash);
	uint8_t prk[TLS_PSK_MAX];
	struct hkdf_info info;

	if (strlen(context) > CONTEXT_MAX) {
		return -ENAMETOOLONG;
	}
	info_make(&info, len, label, context, compat);
	int rc = hmac_of(hash, salt, len, key, key_len, prk);
	if (rc == 0) {
		rc = hmac_of(hash, prk, len, info.bytes, info.len, out);
	}
	dhchap_cleanse(prk, sizeof(prk));
	return rc;
}

int tls_expand_label(unsigned hash, const uint8_t *secret, const char *label, uint8_t *out, size_t len)
{
	uint8_t whole[TLS_PSK_MAX];
	struct hkdf_info info;

	info_make(&info, len, label, "", false);
	int rc = hmac_of(hash, secret, dhchap_hash_bytes(hash), info.bytes, info.len, whole);
	if (rc == 0) {
		memcpy(out, whole, len);
	}
	dhchap_cleanse(whole, sizeof(whole));
	return rc;
}

static int retained_derive(const struct tls_psk *psk, const char *hostnqn, uint8_t out[TLS_PSK_MAX])
{
	if (psk->hash == DHCHAP_HASH_NONE || psk->generated) {
		memcpy(out, psk->bytes, psk->len);
		return 0;
	}
	return key_derive(psk->hash, psk->bytes, psk->len, "tls13 HostNQN", hostnqn, psk->compat, out);
}

/* Writes the digest of a retained PSK as base64. */
static int digest_make(unsigned hash, const uint8_t *retained, const char *hostnqn, const char *subnqn,
		       char digest[TLS_DIGEST_MAX + 1])
{
	char names[2 * TLS_NQN_MAX + 32];
	uint8_t bytes[TLS_PSK_MAX];
	size_t len = dhchap_hash_bytes(hash);
	int n = snprintf(names, sizeof(names), "%s %s NVMe-over-Fabrics", hostnqn, subnqn);
	int rc = hmac_of(hash, retained, len, names, (size_t)n, bytes);

	if (rc == 0) {
		EVP_EncodeBlock((uint8_t *)digest, bytes, (int)len);
	}
	return rc;
}

/* The identity, and the context that the TLS PSK is derived with. */
static int identity_make(unsigned version, char kind, const uint8_t *retained, const char *hostnqn, const char *subnqn,
			 struct tls_credential *c, char context[TLS_IDENTITY_MAX])
{
	char digest[TLS_DIGEST_MAX + 1];

	if (version == 0) {
		snprintf(c->identity, sizeof(c->identity), "NVMe0%c%02u %s %s", kind, c->hash, hostnqn, subnqn);
		strcpy(context, c->identity);
		return 0;
	}
	int rc = digest_make(c->hash, retained, hostnqn, subnqn, digest);
	if (rc == 0) {
		snprintf(c->identity, sizeof(c->identity), "NVMe1%c%02u %s %s %s", kind, c->hash, hostnqn, subnqn,
			 digest);
		snprintf(context, TLS_IDENTITY_MAX, "%02u %s", c->hash, digest);
	}
	return rc;
}

int tls_psk_digest(const struct tls_psk *psk, const char *hostnqn, const char *subnqn, char digest[TLS_DIGEST_MAX + 1])
{
	uint8_t retained[TLS_PSK_MAX];

	if (strlen(hostnqn) > TLS_NQN_MAX || strlen(subnqn) > TLS_NQN_MAX) {
		return -ENAMETOOLONG;
	}
	int rc = retained_derive(psk, hostnqn, retained);
	rc = rc == 0 ? digest_make(tls_psk_hash(psk), retained, hostnqn, subnqn, digest) : rc;
	dhchap_cleanse(retained, sizeof(retained));
	return rc;
}

int tls_credential_make(const struct tls_psk *psk, const char *hostnqn, const char *subnqn, unsigned version,
			struct tls_credential *c)
{
	char context[TLS_IDENTITY_MAX];
	uint8_t retained[TLS_PSK_MAX];

	memset(c, 0, sizeof(*c));
	if (strlen(hostnqn) > TLS_NQN_MAX || strlen(subnqn) > TLS_NQN_MAX) {
		return -ENAMETOOLONG;
	}
	c->hash = (uint8_t)tls_psk_hash(psk);
	c->len = (uint8_t)dhchap_hash_bytes(c->hash);
	int rc = retained_derive(psk, hostnqn, retained);
	rc = rc == 0 ? identity_make(version, psk->generated ? 'G' : 'R', retained, hostnqn, subnqn, c, context) : rc;
	if (rc == 0) {
		rc = key_derive(c->hash, retained, c->len, "tls13 nvme-tls-psk", context, psk->compat, c->key);
	}
	dhchap_cleanse(retained, sizeof(retained));
	return rc;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Pre-shared keys of TLS for NVMe/TCP (NVMe TCP Transport Specification 1.0c, 3.6.1): the interchange format,
 * identities, and how the key of a connection is derived.
 *
 * An administrator gives the same configured PSK to a host and to a subsystem. For one host and one subsystem, both
 * derive a retained PSK from it, and from that the TLS PSK. The identity, which the host sends in clear, says for which
 * host and subsystem, and with which hash function. Version 0 of identities leaves open which key it is; version 1 has
 * a digest of it.
 *
 * All functions are pure: any thread. One that fails leaves nothing in the thread's list of OpenSSL errors. Keys never
 * reach a log or a trace; code that copies one overwrites the copy with dhchap_cleanse(). */
#ifndef TLS_PSK_H
#define TLS_PSK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dhchap/dhchap.h"

#define TLS_PSK_MAX      48                                      /* bytes of the longest key */
#define TLS_NQN_MAX      223                                     /* bytes of a name */
#define TLS_DIGEST_MAX   64                                      /* characters of a digest in an identity */
#define TLS_IDENTITY_MAX (12 + 2 * TLS_NQN_MAX + TLS_DIGEST_MAX) /* bytes of an identity, and a NUL */

/* The versions of identities. */
#define TLS_IDENTITY_VERSIONS 2

/* A configured PSK, or one that host and controller have generated (dhchap_generate_psk()). */
struct tls_psk {
	/* DHCHAP_HASH_NONE: the retained PSK is this one; _SHA256 or _SHA384: it is derived with that. Of one that is
	 * generated: the hash function that it was generated with. */
	uint8_t hash;
	uint8_t len; /* 32 or 48: with a hash function, the length of its hashes */
	/* Retained and TLS PSK are derived from it as libnvme did before its release 1.16 (and does on request:
	 * compat): without the lengths of label and context that RFC 8446 7.1 has, and with the length of the output
	 * little-endian. Not of one that is generated. */
	bool compat;
	bool generated;
	uint8_t bytes[TLS_PSK_MAX];
};
/* Parses "NVMeTLSkey-1:XX:BASE64:", with or without white space around it. 0; or -EINVAL, and why says which part is
 * wrong and what is allowed, without any byte of the key. */
int tls_psk_parse(const char *text, size_t len, struct tls_psk *psk, char why[DHCHAP_ERROR_MAX]);
/* The hash function of connections with this key: DHCHAP_HASH_SHA256 (TLS_AES_128_GCM_SHA256) or DHCHAP_HASH_SHA384
 * (TLS_AES_256_GCM_SHA384). */
unsigned tls_psk_hash(const struct tls_psk *psk);

/* An identity, taken apart. */
struct tls_identity {
	uint8_t version; /* below TLS_IDENTITY_VERSIONS */
	uint8_t hash;    /* DHCHAP_HASH_SHA256 or _SHA384 */
	bool generated;  /* of a generated PSK, not of a retained one */
	char hostnqn[TLS_NQN_MAX + 1], subnqn[TLS_NQN_MAX + 1];
	char digest[TLS_DIGEST_MAX + 1]; /* "": version 0 */
};
/* Takes an identity apart that a host has sent: len bytes, not ended by a NUL. False: it is none that a PSK may
 * have; or it is of a generated PSK and has version 0, which does not say which of them it is. The names have visible
 * ASCII characters only, and so has the digest, of which tls_credential_make() computes what it must be. */
bool tls_identity_parse(const char *text, size_t len, struct tls_identity *identity);

/* Writes the digest that identities of version 1 have of a PSK. 0; -ENAMETOOLONG: a name is longer than TLS_NQN_MAX; or
 * -EIO. */
int tls_psk_digest(const struct tls_psk *psk, const char *hostnqn, const char *subnqn, char digest[TLS_DIGEST_MAX + 1]);

/* What a connection between a host and a subsystem is made with. */
struct tls_credential {
	char identity[TLS_IDENTITY_MAX];
	uint8_t hash; /* DHCHAP_HASH_SHA256 or _SHA384 */
	uint8_t len;
	uint8_t key[TLS_PSK_MAX]; /* the TLS PSK */
};
/* Derives identity and TLS PSK. 0; -ENAMETOOLONG: a name is longer than TLS_NQN_MAX, or, of version 0, the identity has
 * more than the 255 bytes that can be derived from; or -EIO: OpenSSL lacks the hash function. To be overwritten with
 * dhchap_cleanse() after use. */
int tls_credential_make(const struct tls_psk *psk, const char *hostnqn, const char *subnqn, unsigned version,
			struct tls_credential *credential);

/* HKDF-Expand-Label of RFC 8446 7.1 without a context, of a secret as long as a hash: len bytes, no more than a hash
 * has. label: with its "tls13 ". 0, or -EIO: OpenSSL lacks the hash function. */
int tls_expand_label(unsigned hash, const uint8_t *secret, const char *label, uint8_t *out, size_t len);
/* Whether the text of an identity, which is not of this key, is, if derived in the other way (psk->compat). */
bool tls_identity_is_derived_otherwise(const struct tls_identity *identity, const struct tls_psk *psk, const char *text,
				       size_t len);

#endif

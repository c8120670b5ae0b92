/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys and responses, which are HMACs. */
#include "dhchap/dhchap.h"
#include "util/compiler.h"

#include <errno.h>
#include <string.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

/* An HMAC of several parts, one after the other. */
struct hmac_part {
	const void *data;
	size_t len;
};

static int hmac_run(EVP_MAC_CTX *ctx, unsigned hash, const uint8_t *key, size_t key_len, const struct hmac_part *parts,
		    size_t n, uint8_t *out)
{
	OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char *)dhchap_hash_name(hash), 0),
		OSSL_PARAM_construct_end(),
	};
	size_t len;

	if (!EVP_MAC_init(ctx, key, key_len, params)) {
		return -EIO;
	}
	for (size_t i = 0; i < n; i++) {
		if (!EVP_MAC_update(ctx, parts[i].data, parts[i].len)) {
			return -EIO;
		}
	}
	return EVP_MAC_final(ctx, out, &len, DHCHAP_HASH_MAX) && len == dhchap_hash_bytes(hash) ? 0 : -EIO;
}

static int hmac_compute(unsigned hash, const uint8_t *key, size_t key_len, const struct hmac_part *parts, size_t n,
			uint8_t *out)
{
	EVP_MAC *mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
	EVP_MAC_CTX *ctx = mac != NULL ? EVP_MAC_CTX_new(mac) : NULL;
	int rc = ctx != NULL ? hmac_run(ctx, hash, key, key_len, parts, n, out) : -EIO;

	EVP_MAC_CTX_free(ctx);
	EVP_MAC_free(mac);
	if (rc != 0) {
		ERR_clear_error(); /* here and below: the thread's next failure is not to be taken for this one */
	}
	return rc;
}

int dhchap_transform(const struct dhchap_secret *secret, const char *nqn, uint8_t key[DHCHAP_HASH_MAX], size_t *len)
{
	static const char text[] = "NVMe-over-Fabrics";
	const struct hmac_part parts[] = {{nqn, strlen(nqn)}, {text, strlen(text)}};

	if (secret->hash == DHCHAP_HASH_NONE) {
		memcpy(key, secret->bytes, secret->len);
		*len = secret->len;
		return 0;
	}
	*len = dhchap_hash_bytes(secret->hash);
	return hmac_compute(secret->hash, secret->bytes, secret->len, parts, 2, key);
}

/* The session key: the hash of the shared secret. */
static int session_key_compute(unsigned hash, const uint8_t *secret, size_t secret_len, uint8_t key[DHCHAP_HASH_MAX])
{
	size_t len;

	if (EVP_Q_digest(NULL, dhchap_hash_name(hash), NULL, secret, secret_len, key, &len)) {
		return 0;
	}
	ERR_clear_error();
	return -EIO;
}

/* With a DH group the response answers not the challenge but its HMAC, whose key is the session key. */
static int challenge_augment(const struct dhchap_challenge_in *in, uint8_t challenge[DHCHAP_HASH_MAX])
{
	const struct hmac_part part = {in->challenge, dhchap_hash_bytes(in->hash)};
	uint8_t key[DHCHAP_HASH_MAX];

	if (in->dh_secret_len == 0) {
		memcpy(challenge, in->challenge, part.len);
		return 0;
	}
	int rc = session_key_compute(in->hash, in->dh_secret, in->dh_secret_len, key);
	if (rc == 0) {
		rc = hmac_compute(in->hash, key, part.len, &part, 1, challenge);
	}
	dhchap_cleanse(key, sizeof(key));
	return rc;
}

static int response_compute(const struct dhchap_challenge_in *in, const uint8_t *key, size_t key_len,
			    const uint8_t *challenge, uint8_t *response)
{
	static const uint8_t zero; /* ends the first name */
	const char *who = in->of_host ? "HostHost" : "Controller";
	const char *first = in->of_host ? in->hostnqn : in->subnqn, *second = in->of_host ? in->subnqn : in->hostnqn;
	__le32 seqnum = htole32(in->seqnum);
	__le16 t_id = htole16(in->t_id);
	const struct hmac_part parts[] = {
		{challenge, dhchap_hash_bytes(in->hash)},
		{&seqnum, sizeof(seqnum)},
		{&t_id, sizeof(t_id)},
		{&in->sc_c, 1},
		{who, strlen(who)},
		{first, strlen(first)},
		{&zero, 1},
		{second, strlen(second)},
	};

	return hmac_compute(in->hash, key, key_len, parts, ARRAY_SIZE(parts), response);
}

int dhchap_respond(const struct dhchap_challenge_in *in, uint8_t response[DHCHAP_HASH_MAX])
{
	uint8_t key[DHCHAP_HASH_MAX], challenge[DHCHAP_HASH_MAX];
	size_t key_len;
	int rc = dhchap_hash_bytes(in->hash) == 0
			 ? -EIO
			 : dhchap_transform(in->secret, in->of_host ? in->hostnqn : in->subnqn, key, &key_len);

	if (rc == 0) {
		rc = challenge_augment(in, challenge);
	}
	if (rc == 0) {
		rc = response_compute(in, key, key_len, challenge, response);
	}
	dhchap_cleanse(key, sizeof(key));
	dhchap_cleanse(challenge, sizeof(challenge));
	return rc;
}

int dhchap_generate_psk(unsigned hash, const uint8_t *dh_secret, size_t dh_secret_len, const uint8_t *of_ctrlr,
			const uint8_t *of_host, uint8_t psk[DHCHAP_HASH_MAX])
{
	const size_t len = dhchap_hash_bytes(hash);
	const struct hmac_part parts[] = {{of_ctrlr, len}, {of_host, len}};
	uint8_t key[DHCHAP_HASH_MAX];

	if (len == 0) {
		return -EIO;
	}
	int rc = session_key_compute(hash, dh_secret, dh_secret_len, key);
	if (rc == 0) {
		rc = hmac_compute(hash, key, len, parts, ARRAY_SIZE(parts), psk);
	}
	dhchap_cleanse(key, sizeof(key));
	return rc;
}

int dhchap_random(void *to, size_t len)
{
	if (RAND_bytes(to, (int)len) == 1) {
		return 0;
	}
	ERR_clear_error();
	return -EIO;
}

uint32_t dhchap_seqnum(void)
{
	static uint32_t last;

	if (last == 0 && dhchap_random(&last, sizeof(last)) != 0) {
		last = 1; /* must be new but need not be secret, since challenges are random */
	}
	last += 1 + (last == UINT32_MAX);
	return last;
}

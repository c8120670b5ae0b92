/* SPDX-License-Identifier: BSD-3-Clause */
/* Diffie-Hellman over the groups of RFC 7919, by OpenSSL. */
#include "dhchap/dhchap.h"

#include <errno.h>
#include <stdlib.h>
#include <openssl/core_names.h>
#include <openssl/dh.h>
#include <openssl/err.h>
#include <openssl/evp.h>

struct dhchap_dh {
	unsigned group;
	EVP_PKEY *key;
};

static EVP_PKEY *dh_key_generate(unsigned group)
{
	EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, "DH", NULL);
	EVP_PKEY *key = NULL;
	OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, (char *)dhchap_group_name(group), 0),
		OSSL_PARAM_construct_end(),
	};

	if (ctx == NULL || EVP_PKEY_keygen_init(ctx) != 1 || EVP_PKEY_CTX_set_params(ctx, params) != 1 ||
	    EVP_PKEY_generate(ctx, &key) != 1) {
		key = NULL;
		ERR_clear_error(); /* here and below: the thread's next failure is not to be taken for this one */
	}
	EVP_PKEY_CTX_free(ctx);
	return key;
}

int dhchap_dh_generate(unsigned group, struct dhchap_dh **dh)
{
	if (dhchap_group_bytes(group) == 0) {
		return -EINVAL;
	}
	*dh = calloc(1, sizeof(**dh));
	if (*dh == NULL) {
		return -ENOMEM;
	}
	(*dh)->group = group;
	(*dh)->key = dh_key_generate(group);
	if ((*dh)->key == NULL) {
		free(*dh);
		return -EIO;
	}
	return 0;
}

void dhchap_dh_free(struct dhchap_dh *dh)
{
	if (dh != NULL) {
		EVP_PKEY_free(dh->key); /* which cleanses the private number */
		free(dh);
	}
}

int dhchap_dh_public(const struct dhchap_dh *dh, uint8_t value[DHCHAP_DH_MAX])
{
	size_t len;

	/* "encoded": with all of its leading zeroes */
	if (EVP_PKEY_get_octet_string_param(dh->key, OSSL_PKEY_PARAM_ENCODED_PUBLIC_KEY, value, DHCHAP_DH_MAX, &len) !=
	    1) {
		ERR_clear_error();
		return -EIO;
	}
	return len == dhchap_group_bytes(dh->group) ? 0 : -EIO;
}

/* OpenSSL accepts only values in [2, p - 2]. That is enough, because the groups' primes are safe primes: all these
 * values have an order of q or 2q. */
static EVP_PKEY *dh_peer_key_make(const struct dhchap_dh *dh, const uint8_t *value, size_t len)
{
	EVP_PKEY *key = EVP_PKEY_new();

	if (key != NULL && EVP_PKEY_copy_parameters(key, dh->key) == 1 &&
	    EVP_PKEY_set1_encoded_public_key(key, value, len) == 1) {
		return key;
	}
	EVP_PKEY_free(key);
	ERR_clear_error();
	return NULL;
}

static int dh_secret_derive(const struct dhchap_dh *dh, EVP_PKEY *peer, uint8_t *secret)
{
	EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(dh->key, NULL);
	size_t len = DHCHAP_DH_MAX;
	/* peer has been checked; OpenSSL's own check would cost another exponentiation */
	bool ok = ctx != NULL && EVP_PKEY_derive_init(ctx) == 1 && EVP_PKEY_CTX_set_dh_pad(ctx, 1) == 1 &&
		  EVP_PKEY_derive_set_peer_ex(ctx, peer, 0) == 1 && EVP_PKEY_derive(ctx, secret, &len) == 1;

	EVP_PKEY_CTX_free(ctx);
	if (!ok) {
		ERR_clear_error();
	}
	return ok && len == dhchap_group_bytes(dh->group) ? 0 : -EIO;
}

int dhchap_dh_secret(const struct dhchap_dh *dh, const uint8_t *peer, size_t peer_len, uint8_t secret[DHCHAP_DH_MAX])
{
	if (peer_len == 0 || peer_len > dhchap_group_bytes(dh->group)) {
		return -EINVAL;
	}
	EVP_PKEY *key = dh_peer_key_make(dh, peer, peer_len);
	if (key == NULL) {
		return -EINVAL;
	}
	int rc = dh_secret_derive(dh, key, secret);
	EVP_PKEY_free(key);
	return rc;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "bdev_modules/crypto/key_text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "util/secret.h"

#define DIGITS_128 32u
#define DIGITS_256 64u

static int half_decode(const char *name, const char *text, uint8_t *to, char *error)
{
	size_t digits = strlen(text);

	if (digits != DIGITS_128 && digits != DIGITS_256) {
		snprintf(error, CRYPTO_ERROR_MAX,
			 "parameter \"%s\" has %zu characters: %u hexadecimal digits (AES-XTS 128) or %u (256) are "
			 "allowed",
			 name, digits, DIGITS_128, DIGITS_256);
		return -EINVAL;
	}
	if (!secret_from_hex(text, to, digits / 2)) {
		snprintf(error, CRYPTO_ERROR_MAX, "parameter \"%s\" has characters that are no hexadecimal digits",
			 name);
		return -EINVAL;
	}
	return 0;
}

int crypto_key_check(const uint8_t *key, size_t bytes, char *error)
{
	if (secret_equal(key, key + bytes / 2, bytes / 2)) {
		snprintf(error, CRYPTO_ERROR_MAX,
			 "the key for data and the key for tweaks are equal, which makes AES-XTS weak: two different "
			 "keys are needed");
		return -EINVAL;
	}
	return 0;
}

int crypto_key_decode(const char *key, const char *key2, uint8_t *to, size_t *bytes, char *error)
{
	if (key2 == NULL) {
		snprintf(error, CRYPTO_ERROR_MAX,
			 "parameter \"key2\" is missing: AES_XTS needs two keys, one for data and one for tweaks");
		return -EINVAL;
	}
	int rc = half_decode("key", key, to, error);
	rc = rc != 0 ? rc : half_decode("key2", key2, to + strlen(key) / 2, error);
	if (rc == 0 && strlen(key2) != strlen(key)) {
		snprintf(error, CRYPTO_ERROR_MAX,
			 "parameter \"key2\" has %zu digits and \"key\" %zu: they must be equal", strlen(key2),
			 strlen(key));
		rc = -EINVAL;
	}
	if (rc == 0) {
		*bytes = strlen(key);
		rc = crypto_key_check(to, *bytes, error);
	}
	return rc;
}

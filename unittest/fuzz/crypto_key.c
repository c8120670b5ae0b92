/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys for data as clients send them: two texts, with a zero byte between them, or only one. What is accepted is what
 * another decoder reads, and no error has a part of a key. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bdev_modules/crypto/key_text.h"
#include "bdev_modules/crypto/xts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect_bytes(const uint8_t *key, const char *digits)
{
	for (size_t i = 0; i < strlen(digits) / 2; i++) {
		const char pair[3] = {digits[2 * i], digits[2 * i + 1], 0};
		char *end;
		if (key[i] != strtoul(pair, &end, 16) || *end != 0) {
			abort();
		}
	}
}

/* Whether the error has that text, which may be a key: other texts can be words of the error. */
static bool shows(const char *error, const char *text)
{
	return strlen(text) > 16 && strspn(text, "0123456789abcdefABCDEF") == strlen(text) &&
	       strstr(error, text) != NULL;
}

static void fuzz(const char *key, const char *key2)
{
	uint8_t *out = malloc(XTS_KEY_MAX); /* of its own, so that a byte too many is noticed */
	char error[CRYPTO_ERROR_MAX] = "";
	size_t bytes;

	if (crypto_key_decode(key, key2, out, &bytes, error) == 0) {
		if (strlen(key) != bytes || strlen(key2) != bytes || (bytes != 32 && bytes != XTS_KEY_MAX)) {
			abort();
		}
		expect_bytes(out, key);
		expect_bytes(out + bytes / 2, key2);
	} else if (error[0] == 0 || shows(error, key) || (key2 != NULL && shows(error, key2))) {
		abort();
	}
	free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	memcpy(text, data, size);
	text[size] = 0;
	size_t len = strlen(text);
	fuzz(text, len < size ? text + len + 1 : NULL);
	free(text);
	return 0;
}

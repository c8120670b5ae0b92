/* SPDX-License-Identifier: BSD-3-Clause */
/* Secrets as administrators write them (8.13.5.8): "DHHC-1:XX:" base64 of the secret and its CRC-32 ":". */
#include "dhchap/dhchap.h"
#include "util/compiler.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#define PREFIX   "DHHC-1:"
#define CRC_LEN  4
#define TEXT_MAX 92 /* base64 of 68 bytes */

void dhchap_cleanse(void *secret, size_t len)
{
	OPENSSL_cleanse(secret, len);
}

bool dhchap_equal(const void *a, const void *b, size_t len)
{
	return CRYPTO_memcmp(a, b, len) == 0;
}

static int secret_refuse(char why[DHCHAP_ERROR_MAX], const char *text)
{
	snprintf(why, DHCHAP_ERROR_MAX, "%s", text);
	return -EINVAL;
}

/* CRC-32 as zlib and Ethernet have it; of at most 64 bytes, so bit by bit. */
static uint32_t crc32_of(const uint8_t *bytes, size_t len)
{
	uint32_t crc = UINT32_MAX;

	for (size_t i = 0; i < len; i++) {
		crc ^= bytes[i];
		for (unsigned bit = 0; bit < 8; bit++) {
			crc = crc >> 1 ^ (UINT32_C(0xedb88320) & -(crc & 1));
		}
	}
	return ~crc;
}

static bool is_base64(char c)
{
	return isalnum((unsigned char)c) || c == '+' || c == '/';
}

/* The number of bytes that a text of this form decodes to; 0: it has none of the three lengths that secrets have. */
static size_t decoded_length(const char *text, size_t len)
{
	static const struct {
		size_t text, padding, bytes;
	} forms[] = {{48, 0, 36}, {72, 2, 52}, {92, 1, 68}};

	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		if (forms[i].text != len) {
			continue;
		}
		for (size_t j = 0; j < len; j++) {
			bool padding = j >= len - forms[i].padding;
			if (padding ? text[j] != '=' : !is_base64(text[j])) {
				return 0;
			}
		}
		return forms[i].bytes;
	}
	return 0;
}

int dhchap_key_decode(const char *text, size_t len, uint8_t key[DHCHAP_HASH_MAX], uint8_t *key_len,
		      char why[DHCHAP_ERROR_MAX])
{
	uint8_t bytes[TEXT_MAX / 4 * 3];
	size_t bytes_len = decoded_length(text, len);
	uint32_t crc;
	int rc = 0;

	/* decoded_length() has checked the text, and EVP_DecodeBlock() adds nothing to OpenSSL's list of errors */
	if (bytes_len == 0 || EVP_DecodeBlock(bytes, (const uint8_t *)text, (int)len) < 0) {
		return secret_refuse(why,
				     "its third part is not base64 of a secret of 32, 48 or 64 bytes and its CRC-32");
	}
	memcpy(&crc, bytes + bytes_len - CRC_LEN, CRC_LEN);
	if (le32toh(crc) != crc32_of(bytes, bytes_len - CRC_LEN)) {
		rc = secret_refuse(why, "its checksum is wrong: it was copied badly");
	} else {
		*key_len = (uint8_t)(bytes_len - CRC_LEN);
		memcpy(key, bytes, *key_len);
	}
	dhchap_cleanse(bytes, sizeof(bytes));
	return rc;
}

int dhchap_secret_parse(const char *text, size_t len, struct dhchap_secret *secret, char why[DHCHAP_ERROR_MAX])
{
	const size_t prefix = strlen(PREFIX);

	memset(secret, 0, sizeof(*secret));
	while (len != 0 && isspace((unsigned char)*text)) {
		text++;
		len--;
	}
	while (len != 0 && isspace((unsigned char)text[len - 1])) {
		len--;
	}
	if (len <= prefix + 3 || memcmp(text, PREFIX, prefix) != 0 || text[prefix + 2] != ':' || text[len - 1] != ':') {
		return secret_refuse(why,
				     "it does not have the form DHHC-1:XX:BASE64:, as nvme gen-dhchap-key makes it");
	}
	if (text[prefix] != '0' || text[prefix + 1] < '0' || text[prefix + 1] > '3') {
		return secret_refuse(why, "its second part is not 00, 01, 02 or 03");
	}
	secret->hash = (uint8_t)(text[prefix + 1] - '0');
	return dhchap_key_decode(text + prefix + 3, len - prefix - 4, secret->bytes, &secret->len, why);
}

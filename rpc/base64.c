/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/base64.h"

#include <stdlib.h>
#include <string.h>

char *base64url_encode(const void *data, size_t len)
{
	static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	const uint8_t *in = data;
	char *text = malloc((len + 2) / 3 * 4 + 1), *out = text;

	if (text == NULL) {
		return NULL;
	}
	for (size_t i = 0; i < len; i += 3) {
		size_t left = len - i;
		uint32_t v = (uint32_t)in[i] << 16 | (left > 1 ? in[i + 1] << 8 : 0) | (left > 2 ? in[i + 2] : 0);

		*out++ = alphabet[v >> 18];
		*out++ = alphabet[v >> 12 & 63];
		*out++ = left > 1 ? alphabet[v >> 6 & 63] : '=';
		*out++ = left > 2 ? alphabet[v & 63] : '=';
	}
	*out = '\0';
	return text;
}

/* 0 to 63, or -1. */
static int base64url_digit(char c)
{
	if (c >= 'A' && c <= 'Z') {
		return c - 'A';
	}
	if (c >= 'a' && c <= 'z') {
		return c - 'a' + 26;
	}
	if (c >= '0' && c <= '9') {
		return c - '0' + 52;
	}
	return c == '-' || c == '+' ? 62 : c == '_' || c == '/' ? 63 : -1;
}

uint8_t *base64url_decode(const char *text, size_t *len)
{
	size_t n = strcspn(text, "="), padding = strlen(text) - n;
	uint32_t v = 0;

	/* a single digit at the end is half a byte; padding, if there is any, makes the length a multiple of four */
	if (n % 4 == 1 ||
	    (padding != 0 && (padding > 2 || (n + padding) % 4 != 0 || strspn(text + n, "=") != padding))) {
		return NULL;
	}
	uint8_t *data = malloc(n / 4 * 3 + 3), *out = data;
	for (size_t i = 0; data != NULL && i < n; i++) {
		int d = base64url_digit(text[i]);
		if (d < 0) {
			free(data);
			return NULL;
		}
		v = v << 6 | (uint32_t)d;
		if (i % 4 != 0) {
			*out++ = (uint8_t)(v >> (6 - 2 * (i % 4)));
		}
	}
	*len = (size_t)(out - data);
	return data;
}

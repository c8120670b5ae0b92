/* SPDX-License-Identifier: BSD-3-Clause */
/* Base64 from clients: what decodes, encodes to a text that decodes to the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/base64.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = strndup((const char *)data, size);
	size_t len, again_len;
	uint8_t *bytes = base64url_decode(text, &len);

	if (bytes != NULL) {
		char *encoded = base64url_encode(bytes, len);
		uint8_t *again = base64url_decode(encoded, &again_len);
		if (again == NULL || again_len != len || memcmp(again, bytes, len) != 0) {
			abort();
		}
		free(encoded);
		free(again);
	}
	free(bytes);
	free(text);
	return 0;
}

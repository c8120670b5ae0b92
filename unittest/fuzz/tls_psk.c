/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys and identities of any form: nothing is read beyond them, and what is accepted keeps its promises. The first byte
 * says what the rest is: a key, an identity, or what a host sends before OpenSSL sees it. */
#include <stdlib.h>
#include <string.h>
#include "tls/psk.h"
#include "tls/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_key(const char *text, size_t len)
{
	char why[DHCHAP_ERROR_MAX];
	struct tls_psk psk;

	if (tls_psk_parse(text, len, &psk, why) == 0 && psk.len != dhchap_hash_bytes(tls_psk_hash(&psk))) {
		abort();
	}
}

/* What is made from the parts of an identity of version 0 is that identity. */
static void fuzz_identity(const char *text, size_t len)
{
	struct tls_psk psk = {.len = 32};
	struct tls_credential c;
	struct tls_identity id;

	if (!tls_identity_parse(text, len, &id)) {
		return;
	}
	psk.hash = id.hash;
	psk.len = (uint8_t)dhchap_hash_bytes(id.hash);
	int rc = tls_credential_make(&psk, id.hostnqn, id.subnqn, id.version, &c);
	if (id.version == 0 &&
	    (rc == 0 ? strlen(c.identity) != len || memcmp(c.identity, text, len) != 0 : len <= 255)) {
		abort();
	}
}

static void fuzz_wire(const uint8_t *bytes, size_t len)
{
	size_t at = 0, n, total = 0;
	const char *text;

	while (tls_offer_next(bytes, len, &at, &text, &n)) {
		if ((const uint8_t *)text + n > bytes + len) {
			abort();
		}
		total += n;
	}
	if (total > len) {
		abort();
	}
	if (len > 0 && tls_record_bytes(bytes, len, false) == 0) {
		abort();
	}
}

static bool is_update(enum tls_control_result result)
{
	return result == TLS_CONTROL_KEY_UPDATE || result == TLS_CONTROL_KEY_UPDATE_ASKED;
}

/* Records that are no payload: how they are cut makes no difference. */
static void fuzz_control(const uint8_t *bytes, size_t len)
{
	struct tls_control whole = {0}, pieces = {0};
	uint8_t type = len > 0 && bytes[0] < 4 ? TLS_RECORD_ALERT : TLS_RECORD_HANDSHAKE;
	bool ticket = len % 2 == 0;
	enum tls_control_result all = tls_control_take(&whole, type, bytes, len, ticket), each = TLS_CONTROL_GO_ON;

	for (size_t at = 0; at < len && (each == TLS_CONTROL_GO_ON || is_update(each)); at++) {
		each = tls_control_take(&pieces, type, bytes + at, 1, ticket);
	}
	if (len > 0 && (all != each || memcmp(&whole, &pieces, sizeof(whole)) != 0)) {
		abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1) {
		return 0;
	}
	char *exact = malloc(size > 1 ? size - 1 : 1); /* of its own, so that a byte too many is noticed */
	memcpy(exact, data + 1, size - 1);
	if (data[0] % 3 == 0) {
		fuzz_key(exact, size - 1);
	} else if (data[0] % 3 == 1) {
		fuzz_identity(exact, size - 1);
	} else {
		fuzz_wire((const uint8_t *)exact, size - 1);
		fuzz_control((const uint8_t *)exact, size - 1);
	}
	free(exact);
	return 0;
}

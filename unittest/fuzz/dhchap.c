/* SPDX-License-Identifier: BSD-3-Clause */
/* Secrets and messages of any form: nothing is read beyond them, and what is accepted keeps its promises. The first
 * byte says what the rest is: a secret (even), or a message for the hash and group in the next two. */
#include <stdlib.h>
#include <string.h>
#include "dhchap/dhchap.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint8_t sink;

static void touch(const uint8_t *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		sink ^= bytes[i];
	}
}

static void fuzz_secret(const char *text, size_t len)
{
	struct dhchap_secret secret;
	char why[DHCHAP_ERROR_MAX];

	if (dhchap_secret_parse(text, len, &secret, why) == 0 &&
	    (secret.hash > DHCHAP_HASH_SHA512 || (secret.len != 32 && secret.len != 48 && secret.len != 64))) {
		abort();
	}
}

static void fuzz_to_target(const uint8_t *data, size_t len, unsigned hash, unsigned group)
{
	struct dhchap_negotiate n;
	struct dhchap_reply r;
	struct dhchap_failure f;

	if (dhchap_decode_negotiate(data, len, &n) == DHCHAP_OK &&
	    (n.hashes & ~DHCHAP_ALL_HASHES || n.groups & ~DHCHAP_ALL_GROUPS)) {
		abort();
	}
	if (dhchap_decode_reply(data, len, hash, group, (uint8_t)(len & 3), &r) == DHCHAP_OK) {
		touch(r.response, dhchap_hash_bytes(hash));
		touch(r.challenge, dhchap_hash_bytes(hash));
		touch(r.dh_value, r.dh_len);
		if (r.dh_len > DHCHAP_DH_MAX) {
			abort();
		}
	}
	dhchap_decode_success2(data, len);
	dhchap_decode_failure(data, len, &f);
}

static void fuzz_to_host(const uint8_t *data, size_t len, unsigned hash)
{
	struct dhchap_challenge c;
	struct dhchap_success1 s;

	if (dhchap_decode_challenge(data, len, &c) == DHCHAP_OK) {
		touch(c.challenge, dhchap_hash_bytes(c.hash));
		touch(c.dh_value, c.dh_len);
		if (c.dh_len > DHCHAP_DH_MAX || dhchap_hash_bytes(c.hash) == 0) {
			abort();
		}
	}
	if (dhchap_decode_success1(data, len, hash, &s) == DHCHAP_OK && s.response_valid) {
		touch(s.response, dhchap_hash_bytes(hash));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct dhchap_header header;

	if (size < 3) {
		return 0;
	}
	size_t len = size - 3;
	uint8_t *copy = malloc(len + 1); /* of its own, so that a byte too many is noticed; aligned as a buffer is */
	memcpy(copy, data + 3, len);
	uint8_t *exact = realloc(copy, len != 0 ? len : 1);
	if (data[0] % 2 == 0) {
		fuzz_secret((const char *)exact, len);
	} else if (dhchap_decode_header(exact, len, &header)) {
		fuzz_to_target(exact, len, 1 + data[1] % 3, data[2] % DHCHAP_GROUPS);
		fuzz_to_host(exact, len, 1 + data[1] % 3);
	}
	free(exact);
	return 0;
}

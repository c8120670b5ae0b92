/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys of TLS: their texts, identities and derivations, held against what Python computes (vectors.py). */
#include <errno.h>
#include <string.h>
#include "tls/psk.h"
#include "tls_vectors.h"
#include "unittest/unit.h"

static char why[DHCHAP_ERROR_MAX];

static int parse(const char *text, struct tls_psk *psk)
{
	return tls_psk_parse(text, strlen(text), psk, why);
}

static void test_identities_and_keys_are_what_python_computes(void)
{
	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		const struct vector *v = &vectors[i];
		struct tls_credential c;
		struct tls_psk psk;

		CU_ASSERT_EQUAL_FATAL(parse(v->text, &psk), 0);
		CU_ASSERT_EQUAL(psk.hash, v->hash);
		CU_ASSERT_EQUAL(psk.len, v->len);
		psk.compat = v->compat != 0;
		CU_ASSERT_EQUAL(tls_credential_make(&psk, HOSTNQN, SUBNQN, v->version, &c), 0);
		CU_ASSERT_STRING_EQUAL(c.identity, v->identity);
		CU_ASSERT_EQUAL(c.len, v->len);
		CU_ASSERT_EQUAL(c.hash, tls_psk_hash(&psk));
		CU_ASSERT_EQUAL(memcmp(c.key, v->key, v->len), 0);
	}
}

static void test_generated_keys_are_what_python_computes(void)
{
	for (size_t i = 0; i < sizeof(generated) / sizeof(generated[0]); i++) {
		struct tls_psk psk = {.hash = (uint8_t)generated[i].hash,
				      .len = (uint8_t)dhchap_hash_bytes(generated[i].hash),
				      .generated = true};
		char digest[TLS_DIGEST_MAX + 1];
		struct tls_credential c;
		struct tls_identity id;

		memcpy(psk.bytes, generated[i].psk, psk.len);
		CU_ASSERT_EQUAL(tls_credential_make(&psk, HOSTNQN, SUBNQN, 1, &c), 0);
		CU_ASSERT_STRING_EQUAL(c.identity, generated[i].identity);
		CU_ASSERT_EQUAL(c.hash, psk.hash);
		CU_ASSERT_EQUAL(memcmp(c.key, generated[i].key, psk.len), 0);
		CU_ASSERT_FATAL(tls_identity_parse(c.identity, strlen(c.identity), &id));
		CU_ASSERT(id.generated);
		CU_ASSERT_EQUAL(tls_psk_digest(&psk, HOSTNQN, SUBNQN, digest), 0);
		CU_ASSERT_STRING_EQUAL(id.digest, digest);
	}
}

/* The identities that libnvme's own tests expect of its release 1.16, and of it with compat. */
static void test_identities_are_those_of_libnvme(void)
{
	static const struct {
		const char *text, *identity, *compat;
	} of[] = {
		{"NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:",
		 "NVMe1R01 nqn.psk-test-host nqn.psk-test-subsys iSbjiStwJ/1TrTvDlt2fjFmzvsytOJelidNnA+X5lEU=",
		 "NVMe1R01 nqn.psk-test-host nqn.psk-test-subsys 66GuqV08TsAGII39teWUfwQwizjv06Jy8jOcX3NAAzM="},
		{"NVMeTLSkey-1:02:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwP/w0S89ELi3W2LxIcLXVsDn8kXZQ==:",
		 "NVMe1R02 nqn.psk-test-host nqn.psk-test-subsys "
		 "QhW2+Rp6RzHlNtCslyRxMnwJ11tKKhz8JCAQpQ+XUD8f9td1VeH5h53yz2wKJG1a",
		 "NVMe1R02 nqn.psk-test-host nqn.psk-test-subsys "
		 "RsKmYJ3nAn1ApjjMloJFbAkLPivONDAX/xW327YBUsn2eGShXSjCZvBaOxscLqmz"},
	};

	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		struct tls_credential c;
		struct tls_psk psk;

		CU_ASSERT_EQUAL_FATAL(parse(of[i].text, &psk), 0);
		CU_ASSERT_EQUAL(tls_credential_make(&psk, "nqn.psk-test-host", "nqn.psk-test-subsys", 1, &c), 0);
		CU_ASSERT_STRING_EQUAL(c.identity, of[i].identity);
		psk.compat = true;
		CU_ASSERT_EQUAL(tls_credential_make(&psk, "nqn.psk-test-host", "nqn.psk-test-subsys", 1, &c), 0);
		CU_ASSERT_STRING_EQUAL(c.identity, of[i].compat);
	}
}

static void test_an_identity_is_taken_apart(void)
{
	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		struct tls_identity id;

		CU_ASSERT_FATAL(tls_identity_parse(vectors[i].identity, strlen(vectors[i].identity), &id));
		CU_ASSERT_EQUAL(id.version, vectors[i].version);
		CU_ASSERT_STRING_EQUAL(id.hostnqn, HOSTNQN);
		CU_ASSERT_STRING_EQUAL(id.subnqn, SUBNQN);
		CU_ASSERT_EQUAL(id.hash, vectors[i].len == 48 ? DHCHAP_HASH_SHA384 : DHCHAP_HASH_SHA256);
	}
}

static void test_what_is_no_identity_is_refused(void)
{
	static const char *const texts[] = {
		"",
		"NVMe0R01",
		"NVMe0R01 ",
		"NVMe0R01 a",
		"NVMe0R01 a ",
		"NVMe0R01  b",
		"NVMe0R01 a b ",
		"NVMe0R01 a b c",
		"NVMe0R01-a b",
		"NVMe1R01 a b",
		"NVMe1R01 a b ",
		"NVMe1R01 a b c d",
		"NVMe1R01 a b c\t",
		"NVMe2R01 a b c",
		"NVMe/R01 a b",
		"NVMe0H01 a b",
		"NVMe1G01 a b",
		"NVMe0G01 a b",
		"NVMe0G02 a b",
		"NVMe0G01 a b c",
		"NVMe1R01 a b 0123456789012345678901234567890123456789012345678901234567890123x",
		"NVMe0R00 a b",
		"NVMe0R03 a b",
		"NVMe0R11 a b",
		"nvme0R01 a b",
		"NVMe0R01 a\x7f b",
		"NVMe0R01 \xc3\xa4 b",
	};
	char longest[TLS_IDENTITY_MAX];
	struct tls_identity id;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		CU_ASSERT(!tls_identity_parse(texts[i], strlen(texts[i]), &id));
	}
	CU_ASSERT(tls_identity_parse("NVMe0R01 a b", 12, &id));
	CU_ASSERT(!tls_identity_parse("NVMe0R01 a b", 10, &id));
	CU_ASSERT(!tls_identity_parse("NVMe0R01 a\0b", 12, &id));
	snprintf(longest, sizeof(longest), "NVMe0R02 %0*d b", TLS_NQN_MAX, 1);
	CU_ASSERT(tls_identity_parse(longest, strlen(longest), &id));
	snprintf(longest, sizeof(longest), "NVMe0R02 %0*d b", TLS_NQN_MAX + 1, 1);
	CU_ASSERT(!tls_identity_parse(longest, strlen(longest), &id));
}

static void test_space_around_a_key_does_not_matter(void)
{
	struct tls_psk psk;
	char text[160];

	snprintf(text, sizeof(text), " \t%s\r\n", vectors[0].text);
	CU_ASSERT_EQUAL(parse(text, &psk), 0);
	CU_ASSERT_EQUAL(psk.bytes[0], 3);
	CU_ASSERT_EQUAL(psk.bytes[1], 14);
}

static void refuse(const char *text, const char *reason)
{
	struct tls_psk psk, zero = {0};

	CU_ASSERT_EQUAL(parse(text, &psk), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(why, reason));
	CU_ASSERT_EQUAL(memcmp(psk.bytes, zero.bytes, sizeof(psk.bytes)), 0);
}

static void test_what_is_no_key_is_refused(void)
{
	char text[160];

	refuse("", "NVMeTLSkey-1:XX:BASE64:");
	refuse("   ", "NVMeTLSkey-1:XX:BASE64:");
	refuse("NVMeTLSkey-1:01:", "NVMeTLSkey-1:XX:BASE64:");
	refuse("NVMeTLSkey-2:01:AAAA:", "NVMeTLSkey-1:XX:BASE64:");
	refuse("NVMeTLSkey-1:01:AAAA", "NVMeTLSkey-1:XX:BASE64:");
	refuse("NVMeTLSkey-1:01-AAAA:", "NVMeTLSkey-1:XX:BASE64:");
	refuse("NVMeTLSkey-1:03:AAAA:", "second part");
	refuse("NVMeTLSkey-1:0/:AAAA:", "second part");
	refuse("NVMeTLSkey-1:11:AAAA:", "second part");
	refuse("NVMeTLSkey-1:01:AAAA:", "base64");
	snprintf(text, sizeof(text), "%s", vectors[0].text);
	text[20] = text[20] == 'A' ? 'B' : 'A';
	refuse(text, "checksum");
}

static void test_a_key_has_the_length_of_its_hash(void)
{
	char text[160];

	snprintf(text, sizeof(text), "%s", vectors[0].text); /* 32 bytes */
	text[14] = '2';
	refuse(text, "length");
	snprintf(text, sizeof(text), "%s", vectors[4].text); /* 48 bytes */
	text[14] = '1';
	refuse(text, "length");
	/* 64 bytes, which secrets of DH-HMAC-CHAP may have */
	refuse("NVMeTLSkey-1:00:"
	       "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAADZjjXU=:",
	       "length");
}

static void test_names_that_are_too_long_have_no_key(void)
{
	char host[TLS_NQN_MAX + 2], subsystem[TLS_NQN_MAX + 2];
	struct tls_credential c;
	struct tls_psk psk;

	CU_ASSERT_EQUAL_FATAL(parse(vectors[0].text, &psk), 0);
	memset(host, 'h', sizeof(host));
	memset(subsystem, 's', sizeof(subsystem));
	host[TLS_NQN_MAX + 1] = subsystem[TLS_NQN_MAX + 1] = '\0';
	CU_ASSERT_EQUAL(tls_credential_make(&psk, host, "s", 1, &c), -ENAMETOOLONG);
	CU_ASSERT_EQUAL(tls_credential_make(&psk, "h", subsystem, 1, &c), -ENAMETOOLONG);
	CU_ASSERT_EQUAL(tls_psk_digest(&psk, host, "s", (char[TLS_DIGEST_MAX + 1]){0}), -ENAMETOOLONG);
	CU_ASSERT_EQUAL(tls_psk_digest(&psk, "h", subsystem, (char[TLS_DIGEST_MAX + 1]){0}), -ENAMETOOLONG);
	host[TLS_NQN_MAX] = subsystem[TLS_NQN_MAX] = '\0';
	CU_ASSERT_EQUAL(tls_credential_make(&psk, host, subsystem, 1, &c), 0);
	CU_ASSERT_EQUAL(strlen(c.identity), 8 + 1 + TLS_NQN_MAX + 1 + TLS_NQN_MAX + 1 + 44);
	CU_ASSERT_EQUAL(tls_credential_make(&psk, host, subsystem, 0, &c), -ENAMETOOLONG);
	subsystem[255 - 8 - 2 - TLS_NQN_MAX] = '\0'; /* 255 bytes in all */
	CU_ASSERT_EQUAL(tls_credential_make(&psk, host, subsystem, 0, &c), 0);
	CU_ASSERT_EQUAL(strlen(c.identity), 255);
}

static const struct unit_test tests[] = {
	UNIT(test_identities_and_keys_are_what_python_computes),
	UNIT(test_generated_keys_are_what_python_computes),
	UNIT(test_identities_are_those_of_libnvme),
	UNIT(test_an_identity_is_taken_apart),
	UNIT(test_what_is_no_identity_is_refused),
	UNIT(test_space_around_a_key_does_not_matter),
	UNIT(test_what_is_no_key_is_refused),
	UNIT(test_a_key_has_the_length_of_its_hash),
	UNIT(test_names_that_are_too_long_have_no_key),
	UNIT_END,
};
UNIT_MAIN("tls-psk", tests, NULL, NULL)

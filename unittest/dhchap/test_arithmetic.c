/* SPDX-License-Identifier: BSD-3-Clause */
/* Secrets, keys, responses and Diffie-Hellman, against what Python computes (vectors.py), nvme-cli prints and the
 * specification has. */
#include <openssl/bn.h>
#include <openssl/err.h>
#include "dhchap/dhchap.h"
#include "unittest/unit.h"
#include "util/compiler.h"

struct response_vector {
	const char *text;
	uint8_t transform, len;
	uint8_t secret[64], key[64];
	size_t key_len;
	uint8_t hash;
	bool of_host;
	uint32_t seqnum;
	uint16_t t_id;
	uint8_t challenge[64], shared[256];
	size_t shared_len;
	uint8_t response[64];
	uint8_t sc_c;
};
struct psk_vector {
	unsigned hash;
	uint8_t shared[1024];
	size_t shared_len;
	uint8_t of_ctrlr[64], of_host[64], psk[64];
};
struct group_vector {
	unsigned group;
	size_t bytes;
	const char *prime, *private, *public;
};
#include "dhchap_vectors.h"

static struct dhchap_secret secret;
static char why[DHCHAP_ERROR_MAX];

static int parse(const char *text)
{
	return dhchap_secret_parse(text, strlen(text), &secret, why);
}

/* ---- Secrets ---- */

static void test_secrets_are_read(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(response_vectors); i++) {
		const struct response_vector *v = &response_vectors[i];

		CU_ASSERT_EQUAL(parse(v->text), 0);
		CU_ASSERT_EQUAL(secret.hash, v->transform);
		CU_ASSERT_EQUAL(secret.len, v->len);
		CU_ASSERT_EQUAL(memcmp(secret.bytes, v->secret, v->len), 0);
	}
}

static void test_the_specifications_secret_is_read_with_white_space_around_it(void)
{
	CU_ASSERT_EQUAL(parse(" DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:\n"), 0);
	CU_ASSERT_EQUAL(secret.len, 32);
	CU_ASSERT_EQUAL(secret.bytes[0], 0x89);
}

static void test_what_is_no_secret_is_refused_without_being_repeated(void)
{
	static const char *const bad[] = {
		"",
		":",
		"DHHC-1:",
		"DHHC-1:00:",
		"DHHC-1:00::",
		"DHHC-2:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:",
		"DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n",
		"DHHC-1:04:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:",
		"DHHC-1:10:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:",
		"DHHC-1:0x:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:",
		"DHHC-1:00:ib6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:",
		"DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ==:",
		"DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6a:2n:",
		"DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2nAAAA:",
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		CU_ASSERT_NOT_EQUAL(parse(bad[i]), 0);
		CU_ASSERT_PTR_NULL(strstr(why, "ia6z"));
		CU_ASSERT_NOT_EQUAL(why[0], 0);
		CU_ASSERT_EQUAL(ERR_peek_error(), 0);
	}
	CU_ASSERT_NOT_EQUAL(
		dhchap_secret_parse("DHHC-1:00\0ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:", 59, &secret, why),
		0);
}

/* ---- Keys and responses ---- */

/* nvme gen-dhchap-key --hmac=1 --key-length=32 --secret=0011..ff0011..ff --nqn=... prints the transformed key as a
 * secret. */
static void test_keys_are_transformed_as_nvme_cli_does(void)
{
	uint8_t key[DHCHAP_HASH_MAX];
	struct dhchap_secret transformed;
	size_t len;

	CU_ASSERT_EQUAL(parse("DHHC-1:01:Ri/aOmYf2dlR6skXAxhXB9TG90MtSxXxfeVxBOhYCRGHzziV:"), 0);
	transformed = secret;
	CU_ASSERT_EQUAL(parse("DHHC-1:00:ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8qDMNU:"), 0);
	secret.hash = DHCHAP_HASH_SHA256;
	CU_ASSERT_EQUAL(dhchap_transform(&secret, "nqn.2024-01.io.varve:host", key, &len), 0);
	CU_ASSERT_EQUAL(len, 32);
	CU_ASSERT_EQUAL(memcmp(key, transformed.bytes, 32), 0);
}

static void test_keys_and_responses_are_those_of_python(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(response_vectors); i++) {
		const struct response_vector *v = &response_vectors[i];
		const struct dhchap_challenge_in in = {
			.secret = &secret,
			.hash = v->hash,
			.of_host = v->of_host,
			.hostnqn = VECTOR_HOSTNQN,
			.subnqn = VECTOR_SUBNQN,
			.seqnum = v->seqnum,
			.t_id = v->t_id,
			.challenge = v->challenge,
			.dh_secret = v->shared,
			.dh_secret_len = v->shared_len,
			.sc_c = v->sc_c,
		};
		uint8_t key[DHCHAP_HASH_MAX], response[DHCHAP_HASH_MAX];
		size_t len;

		CU_ASSERT_EQUAL(parse(v->text), 0);
		CU_ASSERT_EQUAL(dhchap_transform(&secret, v->of_host ? VECTOR_HOSTNQN : VECTOR_SUBNQN, key, &len), 0);
		CU_ASSERT_EQUAL(len, v->key_len);
		CU_ASSERT_EQUAL(memcmp(key, v->key, len), 0);
		CU_ASSERT_EQUAL(dhchap_respond(&in, response), 0);
		CU_ASSERT(dhchap_equal(response, v->response, dhchap_hash_bytes(v->hash)));
		response[0] ^= 1;
		CU_ASSERT(!dhchap_equal(response, v->response, dhchap_hash_bytes(v->hash)));
	}
}

static void test_generated_keys_are_those_of_python(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(psk_vectors); i++) {
		const struct psk_vector *v = &psk_vectors[i];
		uint8_t psk[DHCHAP_HASH_MAX];

		CU_ASSERT_EQUAL(dhchap_generate_psk(v->hash, v->shared, v->shared_len, v->of_ctrlr, v->of_host, psk),
				0);
		CU_ASSERT_EQUAL(memcmp(psk, v->psk, dhchap_hash_bytes(v->hash)), 0);
		CU_ASSERT_NOT_EQUAL(dhchap_generate_psk(7, v->shared, v->shared_len, v->of_ctrlr, v->of_host, psk), 0);
	}
}

static void test_an_unknown_hash_is_an_error(void)
{
	uint8_t response[DHCHAP_HASH_MAX];

	CU_ASSERT_NOT_EQUAL(dhchap_respond(&(struct dhchap_challenge_in){.secret = &secret, .hash = 7}, response), 0);
	secret.hash = 7;
	CU_ASSERT_NOT_EQUAL(dhchap_respond(&(struct dhchap_challenge_in){.secret = &secret,
									 .hash = DHCHAP_HASH_SHA256,
									 .of_host = true,
									 .hostnqn = VECTOR_HOSTNQN,
									 .subnqn = VECTOR_SUBNQN},
					   response),
			    0);
	CU_ASSERT_EQUAL(ERR_peek_error(), 0);
}

/* ---- Diffie-Hellman ---- */

static BIGNUM *from_hex(const char *text)
{
	BIGNUM *n = NULL;

	BN_hex2bn(&n, text);
	return n;
}

/* The other side is Python's pow(); what both have is computed from ours without OpenSSL's DH. */
static void check_group(const struct group_vector *v)
{
	BIGNUM *p = from_hex(v->prime), *private = from_hex(v->private), *public = from_hex(v->public), *mine,
	       *want = BN_new();
	uint8_t value[DHCHAP_DH_MAX], peer[DHCHAP_DH_MAX], got[DHCHAP_DH_MAX], expected[DHCHAP_DH_MAX];
	BN_CTX *ctx = BN_CTX_new();
	struct dhchap_dh *dh;

	CU_ASSERT_EQUAL(dhchap_group_bytes(v->group), v->bytes);
	CU_ASSERT_EQUAL_FATAL(dhchap_dh_generate(v->group, &dh), 0);
	CU_ASSERT_EQUAL(dhchap_dh_public(dh, value), 0);
	CU_ASSERT_EQUAL(BN_bn2binpad(public, peer, (int)v->bytes), (int)v->bytes);
	CU_ASSERT_EQUAL(dhchap_dh_secret(dh, peer, v->bytes, got), 0);
	mine = BN_bin2bn(value, (int)v->bytes, NULL);
	BN_mod_exp(want, mine, private, p, ctx);
	BN_bn2binpad(want, expected, (int)v->bytes);
	CU_ASSERT_EQUAL(memcmp(got, expected, v->bytes), 0);

	BN_bn2binpad(p, peer, (int)v->bytes); /* p, p - 1, 1, 0: none of them makes a secret */
	CU_ASSERT_NOT_EQUAL(dhchap_dh_secret(dh, peer, v->bytes, got), 0);
	peer[v->bytes - 1] -= 1;
	CU_ASSERT_NOT_EQUAL(dhchap_dh_secret(dh, peer, v->bytes, got), 0);
	memset(peer, 0, sizeof(peer));
	CU_ASSERT_NOT_EQUAL(dhchap_dh_secret(dh, peer, v->bytes, got), 0);
	CU_ASSERT_NOT_EQUAL(dhchap_dh_secret(dh, peer, 0, got), 0);
	peer[v->bytes - 1] = 1;
	CU_ASSERT_NOT_EQUAL(dhchap_dh_secret(dh, peer, v->bytes, got), 0);
	CU_ASSERT_NOT_EQUAL(dhchap_dh_secret(dh, peer, v->bytes + 1, got), 0);
	CU_ASSERT_EQUAL(ERR_peek_error(), 0);
	dhchap_dh_free(dh);
	BN_free(p);
	BN_free(private);
	BN_free(public);
	BN_free(mine);
	BN_free(want);
	BN_CTX_free(ctx);
}

static void test_groups_are_those_of_rfc_7919(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(group_vectors); i++) {
		check_group(&group_vectors[i]);
	}
}

static void test_there_are_no_other_groups(void)
{
	struct dhchap_dh *dh;

	CU_ASSERT_NOT_EQUAL(dhchap_dh_generate(DHCHAP_GROUP_NULL, &dh), 0);
	CU_ASSERT_NOT_EQUAL(dhchap_dh_generate(DHCHAP_GROUPS, &dh), 0);
}

static void test_names(void)
{
	for (int i = 1; i < DHCHAP_HASHES; i++) {
		CU_ASSERT_EQUAL(dhchap_hash_by_name(dhchap_hash_name((unsigned)i)), i);
	}
	for (int i = 0; i < DHCHAP_GROUPS; i++) {
		CU_ASSERT_EQUAL(dhchap_group_by_name(dhchap_group_name((unsigned)i)), i);
	}
	CU_ASSERT(dhchap_hash_by_name("md5") < 0 && dhchap_group_by_name("modp1024") < 0);
	CU_ASSERT_STRING_EQUAL(dhchap_hash_name(0), "unknown");
	CU_ASSERT_STRING_EQUAL(dhchap_group_name(99), "unknown");
	CU_ASSERT_EQUAL(dhchap_strongest(DHCHAP_ALL_HASHES), DHCHAP_HASH_SHA512);
	CU_ASSERT_EQUAL(dhchap_strongest(1u << DHCHAP_GROUP_NULL), DHCHAP_GROUP_NULL);
	CU_ASSERT_EQUAL(dhchap_strongest(0), -1);
}

static void test_sequence_numbers_are_new_and_never_zero(void)
{
	uint32_t before = dhchap_seqnum();

	for (int i = 0; i < 1000; i++) {
		uint32_t n = dhchap_seqnum();
		CU_ASSERT(n != 0 && n != before);
		before = n;
	}
}

static const struct unit_test tests[] = {
	UNIT(test_secrets_are_read),
	UNIT(test_the_specifications_secret_is_read_with_white_space_around_it),
	UNIT(test_what_is_no_secret_is_refused_without_being_repeated),
	UNIT(test_keys_are_transformed_as_nvme_cli_does),
	UNIT(test_keys_and_responses_are_those_of_python),
	UNIT(test_generated_keys_are_those_of_python),
	UNIT(test_an_unknown_hash_is_an_error),
	UNIT(test_groups_are_those_of_rfc_7919),
	UNIT(test_there_are_no_other_groups),
	UNIT(test_names),
	UNIT(test_sequence_numbers_are_new_and_never_zero),
	UNIT_END,
};
UNIT_MAIN("dhchap_arithmetic", tests, NULL, NULL)

/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages: what is written is read again; each wrong field has its own explanation. */
#include "dhchap/dhchap.h"
#include "unittest/unit.h"

static uint8_t buf[DHCHAP_MESSAGE_MAX];
static uint8_t bytes[DHCHAP_DH_MAX];

static void fill_bytes(void)
{
	for (size_t i = 0; i < sizeof(bytes); i++) {
		bytes[i] = (uint8_t)(i * 3);
	}
}

static void check_header(uint8_t type, uint8_t id)
{
	struct dhchap_header h;

	CU_ASSERT(dhchap_decode_header(buf, sizeof(h), &h));
	CU_ASSERT(h.type == type && h.id == id && le16toh(h.t_id) == 0x1234);
}

static void test_short_messages_have_no_header(void)
{
	struct dhchap_header h;

	CU_ASSERT(!dhchap_decode_header(buf, sizeof(h) - 1, &h));
	CU_ASSERT(!dhchap_decode_header(buf, 0, &h));
}

static void test_negotiate(void)
{
	struct dhchap_negotiate_wire *m = (void *)buf;
	struct dhchap_negotiate n;
	size_t len = dhchap_encode_negotiate(buf, 0x1234, 0, DHCHAP_ALL_HASHES, DHCHAP_ALL_GROUPS);

	CU_ASSERT_EQUAL(len, 72);
	check_header(DHCHAP_TYPE_COMMON, DHCHAP_ID_NEGOTIATE);
	CU_ASSERT_EQUAL(dhchap_decode_negotiate(buf, len, &n), DHCHAP_OK);
	CU_ASSERT(n.hashes == DHCHAP_ALL_HASHES && n.groups == DHCHAP_ALL_GROUPS);
	CU_ASSERT_EQUAL(dhchap_decode_negotiate(buf, len - 1, &n), DHCHAP_INCORRECT_PAYLOAD);
	CU_ASSERT_EQUAL(dhchap_decode_negotiate(buf, len + 1, &n), DHCHAP_INCORRECT_PAYLOAD);
	CU_ASSERT_EQUAL(dhchap_decode_negotiate(buf, 7, &n), DHCHAP_INCORRECT_PAYLOAD);
	m->protocols[0].hashes[0] = 0xff; /* unknown ones do no harm */
	m->protocols[0].groups[5] = 77;
	CU_ASSERT_EQUAL(dhchap_decode_negotiate(buf, len, &n), DHCHAP_OK);
	CU_ASSERT_EQUAL(n.hashes, DHCHAP_ALL_HASHES & ~(1u << DHCHAP_HASH_SHA256));
	CU_ASSERT_EQUAL(n.groups, DHCHAP_ALL_GROUPS & ~(1u << DHCHAP_GROUP_8192));
	m->protocols[0].num_hashes = 31;
	CU_ASSERT_EQUAL(dhchap_decode_negotiate(buf, len, &n), DHCHAP_INCORRECT_PAYLOAD);
	m->protocols[0].num_hashes = 3;
	m->protocols[0].num_groups = 31;
	CU_ASSERT_EQUAL(dhchap_decode_negotiate(buf, len, &n), DHCHAP_INCORRECT_PAYLOAD);
	m->protocols[0].auth_id = 2;
	CU_ASSERT_EQUAL(dhchap_decode_negotiate(buf, len, &n), DHCHAP_PROTOCOL_UNUSABLE);
	m->sc_c = 1;
	CU_ASSERT_EQUAL(dhchap_decode_negotiate(buf, len, &n), DHCHAP_SCC_MISMATCH);
	m->num_protocols = 0;
	CU_ASSERT_EQUAL(dhchap_decode_negotiate(buf, 8, &n), DHCHAP_INCORRECT_PAYLOAD);
}

static void test_negotiate_asks_for_a_secure_channel(void)
{
	for (unsigned sc_c = 0; sc_c < 256; sc_c++) {
		struct dhchap_negotiate n;
		size_t len = dhchap_encode_negotiate(buf, 1, (uint8_t)sc_c, DHCHAP_ALL_HASHES, DHCHAP_ALL_GROUPS);
		bool good =
			sc_c == DHCHAP_SC_NONE || sc_c == DHCHAP_SC_NEW_TLS_PSK || sc_c == DHCHAP_SC_REPLACE_TLS_PSK;

		CU_ASSERT_EQUAL(dhchap_decode_negotiate(buf, len, &n), good ? DHCHAP_OK : DHCHAP_SCC_MISMATCH);
		CU_ASSERT_EQUAL(n.sc_c, good ? sc_c : 0);
	}
}

static void test_negotiate_takes_the_protocol_it_knows(void)
{
	struct dhchap_negotiate_wire *m = (void *)buf;
	struct dhchap_negotiate n;

	dhchap_encode_negotiate(buf, 1, 0, DHCHAP_ALL_HASHES, 1);
	m->num_protocols = 2;
	m->protocols[1] = m->protocols[0];
	m->protocols[0].auth_id = 9;
	CU_ASSERT_EQUAL(dhchap_decode_negotiate(buf, 8 + 128, &n), DHCHAP_OK);
	CU_ASSERT_EQUAL(n.groups, 1);
}

static void test_challenge(void)
{
	struct dhchap_challenge_wire *m = (void *)buf;
	struct dhchap_challenge in = {.hash = DHCHAP_HASH_SHA384,
				      .group = DHCHAP_GROUP_2048,
				      .seqnum = 77,
				      .dh_len = 256},
				c;

	fill_bytes();
	in.challenge = bytes;
	in.dh_value = bytes + 100;
	size_t len = dhchap_encode_challenge(buf, 0x1234, &in);
	CU_ASSERT_EQUAL(len, 16 + 48 + 256);
	check_header(DHCHAP_TYPE_DHCHAP, DHCHAP_ID_CHALLENGE);
	CU_ASSERT_EQUAL(dhchap_decode_challenge(buf, len, &c), DHCHAP_OK);
	CU_ASSERT(c.hash == in.hash && c.group == in.group && c.seqnum == 77 && c.dh_len == 256);
	CU_ASSERT(memcmp(c.challenge, bytes, 48) == 0 && memcmp(c.dh_value, bytes + 100, 256) == 0);
	CU_ASSERT_EQUAL(dhchap_decode_challenge(buf, len - 1, &c), DHCHAP_INCORRECT_PAYLOAD);
	CU_ASSERT_EQUAL(dhchap_decode_challenge(buf, 15, &c), DHCHAP_INCORRECT_PAYLOAD);
	m->dh_len = htole16(257);
	CU_ASSERT_EQUAL(dhchap_decode_challenge(buf, sizeof(buf), &c), DHCHAP_INCORRECT_PAYLOAD);
	m->dh_len = 0;
	CU_ASSERT_EQUAL(dhchap_decode_challenge(buf, sizeof(buf), &c), DHCHAP_INCORRECT_PAYLOAD);
	m->group = DHCHAP_GROUP_NULL;
	CU_ASSERT_EQUAL(dhchap_decode_challenge(buf, sizeof(buf), &c), DHCHAP_OK);
	m->hash_len = 64;
	CU_ASSERT_EQUAL(dhchap_decode_challenge(buf, sizeof(buf), &c), DHCHAP_INCORRECT_PAYLOAD);
	m->group = DHCHAP_GROUPS;
	CU_ASSERT_EQUAL(dhchap_decode_challenge(buf, sizeof(buf), &c), DHCHAP_GROUP_UNUSABLE);
	m->hash = 4;
	CU_ASSERT_EQUAL(dhchap_decode_challenge(buf, sizeof(buf), &c), DHCHAP_HASH_UNUSABLE);
}

static void test_reply(void)
{
	struct dhchap_reply_wire *m = (void *)buf;
	struct dhchap_reply in = {.challenge_valid = true, .seqnum = 5, .dh_len = 1024}, r;
	const unsigned hash = DHCHAP_HASH_SHA512, group = DHCHAP_GROUP_8192;

	fill_bytes();
	in.response = bytes;
	in.challenge = bytes + 64;
	in.dh_value = bytes;
	size_t len = dhchap_encode_reply(buf, 0x1234, hash, &in);
	CU_ASSERT_EQUAL(len, 16 + 128 + 1024);
	check_header(DHCHAP_TYPE_DHCHAP, DHCHAP_ID_REPLY);
	CU_ASSERT_EQUAL(dhchap_decode_reply(buf, len, hash, group, 0, &r), DHCHAP_OK);
	CU_ASSERT(r.challenge_valid && r.seqnum == 5 && r.dh_len == 1024);
	CU_ASSERT(memcmp(r.response, bytes, 64) == 0 && memcmp(r.challenge, bytes + 64, 64) == 0 &&
		  memcmp(r.dh_value, bytes, 1024) == 0);
	for (size_t n = 0; n < len + 2; n++) {
		CU_ASSERT_EQUAL(dhchap_decode_reply(buf, n, hash, group, 0, &r),
				n == len ? DHCHAP_OK : DHCHAP_INCORRECT_PAYLOAD);
	}
	CU_ASSERT_EQUAL(dhchap_decode_reply(buf, len, DHCHAP_HASH_SHA384, group, 0, &r), DHCHAP_INCORRECT_PAYLOAD);
	CU_ASSERT_EQUAL(dhchap_decode_reply(buf, len, hash, DHCHAP_GROUP_6144, 0, &r), DHCHAP_INCORRECT_PAYLOAD);
	CU_ASSERT_EQUAL(dhchap_decode_reply(buf, len, hash, DHCHAP_GROUP_NULL, 0, &r), DHCHAP_INCORRECT_PAYLOAD);
	m->challenge_valid = 2;
	CU_ASSERT_EQUAL(dhchap_decode_reply(buf, len, hash, group, 0, &r), DHCHAP_INCORRECT_PAYLOAD);
	m->challenge_valid = 1;
	m->seqnum = 0;
	CU_ASSERT_EQUAL(dhchap_decode_reply(buf, len, hash, group, 0, &r), DHCHAP_INCORRECT_PAYLOAD);
	CU_ASSERT_EQUAL(dhchap_decode_reply(buf, len, hash, group, DHCHAP_SC_NEW_TLS_PSK, &r), DHCHAP_OK);
	m->challenge_valid = 0;
	CU_ASSERT_EQUAL(dhchap_decode_reply(buf, len, hash, group, DHCHAP_SC_NEW_TLS_PSK, &r),
			DHCHAP_INCORRECT_PAYLOAD);
	CU_ASSERT_EQUAL(dhchap_decode_reply(buf, len, hash, group, 0, &r), DHCHAP_OK);
}

/* The null group has no value, and who does not ask sends no challenge, but zeroes in its place. */
static void test_messages_without_what_is_optional(void)
{
	static const uint8_t zeroes[DHCHAP_HASH_MAX];
	struct dhchap_challenge challenge = {.hash = DHCHAP_HASH_SHA256, .challenge = bytes}, c;
	struct dhchap_reply reply = {.response = bytes}, r;

	fill_bytes();
	size_t len = dhchap_encode_challenge(buf, 0x1234, &challenge);
	CU_ASSERT_EQUAL(len, 16 + 32);
	CU_ASSERT_EQUAL(dhchap_decode_challenge(buf, len, &c), DHCHAP_OK);
	CU_ASSERT(c.group == DHCHAP_GROUP_NULL && c.dh_len == 0 && memcmp(c.challenge, bytes, 32) == 0);
	len = dhchap_encode_reply(buf, 0x1234, DHCHAP_HASH_SHA256, &reply);
	CU_ASSERT_EQUAL(len, 16 + 64);
	CU_ASSERT_EQUAL(dhchap_decode_reply(buf, len, DHCHAP_HASH_SHA256, DHCHAP_GROUP_NULL, 0, &r), DHCHAP_OK);
	CU_ASSERT(!r.challenge_valid && r.dh_len == 0 && memcmp(r.response, bytes, 32) == 0);
	CU_ASSERT_EQUAL(memcmp(r.challenge, zeroes, 32), 0);
}

static void test_success1(void)
{
	struct dhchap_success1_wire *m = (void *)buf;
	struct dhchap_success1 s;
	size_t len;

	fill_bytes();
	len = dhchap_encode_success1(buf, 0x1234, DHCHAP_HASH_SHA256, NULL);
	CU_ASSERT_EQUAL(len, 16);
	CU_ASSERT_EQUAL(m->hash_len, 32);
	CU_ASSERT_EQUAL(dhchap_decode_success1(buf, len, DHCHAP_HASH_SHA256, &s), DHCHAP_OK);
	CU_ASSERT(!s.response_valid);
	len = dhchap_encode_success1(buf, 0x1234, DHCHAP_HASH_SHA256, bytes);
	check_header(DHCHAP_TYPE_DHCHAP, DHCHAP_ID_SUCCESS1);
	CU_ASSERT_EQUAL(len, 48);
	CU_ASSERT_EQUAL(dhchap_decode_success1(buf, len, DHCHAP_HASH_SHA256, &s), DHCHAP_OK);
	CU_ASSERT(s.response_valid && memcmp(s.response, bytes, 32) == 0);
	CU_ASSERT_EQUAL(dhchap_decode_success1(buf, len - 1, DHCHAP_HASH_SHA256, &s), DHCHAP_INCORRECT_PAYLOAD);
	CU_ASSERT_EQUAL(dhchap_decode_success1(buf, 15, DHCHAP_HASH_SHA256, &s), DHCHAP_INCORRECT_PAYLOAD);
	CU_ASSERT_EQUAL(dhchap_decode_success1(buf, sizeof(buf), DHCHAP_HASH_SHA512, &s), DHCHAP_INCORRECT_PAYLOAD);
	m->response_valid = 2;
	CU_ASSERT_EQUAL(dhchap_decode_success1(buf, len, DHCHAP_HASH_SHA256, &s), DHCHAP_INCORRECT_PAYLOAD);
}

static void test_the_ends(void)
{
	struct dhchap_failure f;
	size_t len = dhchap_encode_success2(buf, 0x1234);

	check_header(DHCHAP_TYPE_DHCHAP, DHCHAP_ID_SUCCESS2);
	CU_ASSERT_EQUAL(dhchap_decode_success2(buf, len), DHCHAP_OK);
	CU_ASSERT_EQUAL(dhchap_decode_success2(buf, len + 1), DHCHAP_INCORRECT_PAYLOAD);
	len = dhchap_encode_failure(buf, 0x1234, DHCHAP_ID_FAILURE1, DHCHAP_HASH_UNUSABLE);
	check_header(DHCHAP_TYPE_COMMON, DHCHAP_ID_FAILURE1);
	CU_ASSERT_EQUAL(len, 8);
	CU_ASSERT_EQUAL(dhchap_decode_failure(buf, len, &f), DHCHAP_OK);
	CU_ASSERT(f.reason == DHCHAP_REASON_FAILURE && f.why == DHCHAP_HASH_UNUSABLE);
	CU_ASSERT_EQUAL(dhchap_decode_failure(buf, 7, &f), DHCHAP_INCORRECT_PAYLOAD);
	for (unsigned i = 0; i < 256; i++) {
		CU_ASSERT_PTR_NOT_NULL(dhchap_why_text(i));
	}
}

static const struct unit_test tests[] = {
	UNIT(test_short_messages_have_no_header),
	UNIT(test_negotiate),
	UNIT(test_negotiate_asks_for_a_secure_channel),
	UNIT(test_negotiate_takes_the_protocol_it_knows),
	UNIT(test_challenge),
	UNIT(test_reply),
	UNIT(test_messages_without_what_is_optional),
	UNIT(test_success1),
	UNIT(test_the_ends),
	UNIT_END,
};
UNIT_MAIN("dhchap_messages", tests, NULL, NULL)

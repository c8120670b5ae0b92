/* SPDX-License-Identifier: BSD-3-Clause */
/* AES-GCM: what can calculate it, against published vectors and against each other. */
#include <string.h>
#include "tls/gcm.h"
#include "unittest/tls/heap.h"
#include "unittest/unit.h"
#include "util/secret.h"

#define LONGEST  16385
#define NOT_HERE "libIPSec_MB is not there, or is not faster than OpenSSL on this CPU"

static uint8_t plain[LONGEST], sealed[LONGEST], other[LONGEST], opened[LONGEST];

/* One or two. */
static unsigned engines(const struct tls_gcm_engine *list[2])
{
	list[0] = &tls_gcm_openssl;
	list[1] = tls_gcm_ipsec_mb();
	return list[1] != NULL ? 2 : 1;
}

static uint32_t draw(void)
{
	static uint32_t x = 2463534242;

	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	return x;
}

/* A key and a message. */
struct message {
	const struct tls_gcm_engine *engine;
	bool is_256;
	uint8_t key[32], nonce[TLS_GCM_NONCE], head[20];
	size_t head_bytes, bytes;
	size_t piece; /* 0: pieces of any length */
};

/* All but the end. */
static void *run(const struct message *m, bool seals, const uint8_t *from, uint8_t *to)
{
	void *gcm = m->engine->begin(m->is_256, seals);

	CU_ASSERT_PTR_NOT_NULL_FATAL(gcm);
	CU_ASSERT(m->engine->set_key(gcm, m->key));
	CU_ASSERT(m->engine->begin_message(gcm, m->nonce, m->head, m->head_bytes));
	for (size_t at = 0, n; at < m->bytes; at += n) {
		n = m->piece != 0 ? m->piece : 1 + draw() % (draw() % 2 == 0 ? 40 : 3000);
		n = n < m->bytes - at ? n : m->bytes - at;
		CU_ASSERT(m->engine->update(gcm, to + at, from + at, n));
	}
	return gcm;
}

static void seal(const struct message *m, uint8_t *to, uint8_t tag[TLS_GCM_TAG])
{
	void *gcm = run(m, true, plain, to);

	CU_ASSERT(m->engine->seal_end(gcm, tag));
	m->engine->end(gcm);
}

static bool opens(const struct message *m, const uint8_t *from, const uint8_t tag[TLS_GCM_TAG])
{
	void *gcm = run(m, false, from, opened);
	bool good = m->engine->open_end(gcm, tag);

	m->engine->end(gcm);
	return good;
}

/* From "The Galois/Counter Mode of Operation (GCM)" by McGrew and Viega: test cases 1, 2, 4, 14 and 16. */
#define KEY_16 "feffe9928665731c6d6a8f9467308308"
#define KEY_0  "00000000000000000000000000000000"
#define PLAIN_16                                                                                                       \
	"d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0d" \
	"e657ba637b39"
#define HEAD_20  "feedfacedeadbeeffeedfacedeadbeefabaddad2"
#define NONCE_12 "cafebabefacedbaddecaf888"
#define NONCE_0  "000000000000000000000000"
static const struct vector {
	const char *key, *nonce, *head, *plain, *sealed, *tag;
} vectors[] = {
	{KEY_0, NONCE_0, "", "", "", "58e2fccefa7e3061367f1d57a4e7455a"},
	{KEY_0, NONCE_0, "", KEY_0, "0388dace60b6a392f328c2b971b2fe78", "ab6e47d42cec13bdf53a67b21257bddf"},
	{KEY_16, NONCE_12, HEAD_20, PLAIN_16,
	 "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d8f6a5aac84aa051ba30b396a0a"
	 "ac973d58e091",
	 "5bc94fbc3221a5db94fae95ae7121a47"},
	{KEY_0 KEY_0, NONCE_0, "", KEY_0, "cea7403d4d606b6e074ec5d3baf39d18", "d0d1c8a799996bf0265b98b5d48ab919"},
	{KEY_16 KEY_16, NONCE_12, HEAD_20, PLAIN_16,
	 "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838c5f61e6393ba"
	 "7a0abcc9f662",
	 "76fc6ece0f4e1768cddf8853bb2d551b"},
};

static size_t bytes_of(const char *hex, uint8_t *to)
{
	CU_ASSERT_FATAL(secret_from_hex(hex, to, strlen(hex) / 2));
	return strlen(hex) / 2;
}

static void test_published_vectors_come_out(void)
{
	const struct tls_gcm_engine *list[2];
	uint8_t want[64], want_tag[TLS_GCM_TAG], tag[TLS_GCM_TAG];

	for (unsigned i = 0; i < 5 * engines(list); i++) {
		const struct vector *v = &vectors[i % 5];
		struct message m = {.engine = list[i / 5]};
		m.is_256 = bytes_of(v->key, m.key) == 32;
		(void)bytes_of(v->nonce, m.nonce);
		m.head_bytes = bytes_of(v->head, m.head);
		m.bytes = bytes_of(v->plain, plain);
		(void)bytes_of(v->sealed, want);
		(void)bytes_of(v->tag, want_tag);
		for (m.piece = 1; m.piece < 62; m.piece++) {
			seal(&m, sealed, tag);
			CU_ASSERT(memcmp(sealed, want, m.bytes) == 0 && memcmp(tag, want_tag, sizeof(tag)) == 0);
			CU_ASSERT(opens(&m, want, want_tag) && memcmp(opened, plain, m.bytes) == 0);
		}
	}
}

/* A message of random content, and of a random key. */
static struct message draw_message(size_t bytes)
{
	struct message m = {.is_256 = draw() % 2 == 0, .bytes = bytes, .head_bytes = draw() % 4 == 0 ? draw() % 21 : 5};

	for (size_t i = 0; i < sizeof(m.key); i++) {
		m.key[i] = (uint8_t)draw();
		m.nonce[i % sizeof(m.nonce)] = (uint8_t)draw();
		m.head[i % sizeof(m.head)] = (uint8_t)draw();
	}
	for (size_t i = 0; i < bytes; i++) {
		plain[i] = (uint8_t)draw();
	}
	return m;
}

/* Each in pieces of its own. */
static void check_equal(struct message *m)
{
	uint8_t tag[TLS_GCM_TAG], other_tag[TLS_GCM_TAG];
	struct message mb = *m;

	m->engine = &tls_gcm_openssl;
	mb.engine = tls_gcm_ipsec_mb();
	seal(m, sealed, tag);
	seal(&mb, other, other_tag);
	CU_ASSERT(memcmp(sealed, other, m->bytes) == 0 && memcmp(tag, other_tag, sizeof(tag)) == 0);
	CU_ASSERT(opens(m, other, other_tag) && memcmp(opened, plain, m->bytes) == 0);
	memset(opened, 0, m->bytes);
	CU_ASSERT(opens(&mb, sealed, tag) && memcmp(opened, plain, m->bytes) == 0);
	tag[draw() % sizeof(tag)] ^= (uint8_t)(1u << draw() % 8);
	CU_ASSERT(!opens(m, sealed, tag));
	CU_ASSERT(!opens(&mb, sealed, tag));
}

static void test_both_calculate_the_same(void)
{
	static const size_t whole[] = {255, 256, 257, 767, 768, 769, 4096, 16383, 16384, 16385};

	if (tls_gcm_ipsec_mb() == NULL) {
		UNIT_SKIP(NOT_HERE);
	}
	for (size_t bytes = 0; bytes <= 200; bytes++) {
		for (unsigned i = 0; i < 8; i++) {
			struct message m = draw_message(bytes);
			m.piece = i < 2 ? LONGEST : i < 4 ? 1 : 0;
			check_equal(&m);
		}
	}
	for (unsigned i = 0; i < 10 * 20; i++) {
		struct message m = draw_message(whole[i % 10]);
		m.piece = i < 20 ? LONGEST : i < 30 ? 1 : 0;
		check_equal(&m);
	}
}

static void test_what_is_changed_is_refused(void)
{
	const struct tls_gcm_engine *list[2];
	uint8_t tag[TLS_GCM_TAG];

	for (unsigned i = 0; i < engines(list); i++) {
		struct message m = draw_message(100);
		m.engine = list[i];
		seal(&m, sealed, tag);
		for (unsigned bit = 0; bit < 8 * TLS_GCM_TAG; bit++) {
			tag[bit / 8] ^= (uint8_t)(1u << bit % 8);
			CU_ASSERT(!opens(&m, sealed, tag));
			tag[bit / 8] ^= (uint8_t)(1u << bit % 8);
		}
		for (unsigned bit = 0; bit < 8 * 100; bit++) {
			sealed[bit / 8] ^= (uint8_t)(1u << bit % 8);
			CU_ASSERT(!opens(&m, sealed, tag));
			sealed[bit / 8] ^= (uint8_t)(1u << bit % 8);
		}
		for (unsigned bit = 0; bit < 8 * m.head_bytes; bit++) {
			m.head[bit / 8] ^= (uint8_t)(1u << bit % 8);
			CU_ASSERT(!opens(&m, sealed, tag));
			m.head[bit / 8] ^= (uint8_t)(1u << bit % 8);
		}
		CU_ASSERT(opens(&m, sealed, tag));
	}
}

/* Many messages by one key, among them one that is not brought to its end, and another key. */
static void test_a_state_is_used_again(void)
{
	const struct tls_gcm_engine *list[2];
	uint8_t tag[TLS_GCM_TAG], want[TLS_GCM_TAG];

	for (unsigned i = 0; i < engines(list); i++) {
		struct message m = draw_message(300);
		m.engine = list[i];
		void *gcm = run(&m, true, plain, other);
		for (unsigned j = 0; j < 20; j++) {
			if (j % 5 == 0) {
				m.key[0]++;
				CU_ASSERT(m.engine->set_key(gcm, m.key));
			}
			m.nonce[1]++;
			seal(&m, sealed, want);
			CU_ASSERT(m.engine->begin_message(gcm, m.nonce, m.head, m.head_bytes));
			CU_ASSERT(m.engine->update(gcm, other, plain, m.bytes));
			if (j % 3 != 0) {
				CU_ASSERT(m.engine->seal_end(gcm, tag));
				CU_ASSERT_EQUAL(memcmp(tag, want, sizeof(tag)), 0);
			}
			CU_ASSERT_EQUAL(memcmp(other, sealed, m.bytes), 0);
		}
		m.engine->end(gcm);
		m.engine->end(NULL);
	}
}

/* A context of OpenSSL is one, too. */
static void test_keys_are_in_memory_for_keys_and_overwritten(void)
{
	const struct tls_gcm_engine *list[2];
	static const uint8_t key[32] = {1, 2, 3, 4, 5, 6, 7, 8, 9};

	for (unsigned i = 0; i < engines(list); i++) {
		void *gcm = list[i]->begin(true, true);
		CU_ASSERT_FATAL(gcm != NULL && secret_owns(gcm));
		CU_ASSERT(list[i]->set_key(gcm, key));
		CU_ASSERT_EQUAL(count_in_heap(key, sizeof(key)), 0);
		size_t room = secret_room(gcm);
		CU_ASSERT(i == 0 || memmem(gcm, room, key, sizeof(key)) != NULL);
		list[i]->end(gcm);
		CU_ASSERT_PTR_NULL(memmem(gcm, room, key, sizeof(key))); /* it stays mapped */
	}
}

/* The CPU that this is about, and each that lacks one thing of it. */
static void test_the_library_is_taken_where_the_cpu_has_all_that_it_needs(void)
{
	const struct tls_gcm_cpu has = {.leaf1_ecx = 1u << 1 | 1u << 20 | 1u << 25 | 1u << 27 | 1u << 28,
					.leaf7_ebx = 0xf0230120,
					.leaf7_ecx = 0x700,
					.xcr0 = 0xe6,
					.openssl = 0x300000d0},
				 all = {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT64_MAX, 0x300000f0}, none = {0};
	unsigned counts[4] = {0};

	CU_ASSERT(tls_gcm_ipsec_mb_is_faster(&has) && tls_gcm_ipsec_mb_is_faster(&all));
	CU_ASSERT(!tls_gcm_ipsec_mb_is_faster(&none));
	for (unsigned bit = 0; bit < 32; bit++) {
		struct tls_gcm_cpu lacks[4] = {all, all, all, all};
		lacks[0].leaf1_ecx ^= 1u << bit;
		lacks[1].leaf7_ebx ^= 1u << bit;
		lacks[2].leaf7_ecx ^= 1u << bit;
		lacks[3].xcr0 ^= UINT64_C(1) << bit;
		const bool counted[4] = {(has.leaf1_ecx >> bit & 1) != 0, (has.leaf7_ebx >> bit & 1) != 0,
					 (has.leaf7_ecx >> bit & 1) != 0, (has.xcr0 >> bit & 1) != 0};
		for (unsigned i = 0; i < 4; i++) {
			CU_ASSERT_EQUAL(tls_gcm_ipsec_mb_is_faster(&lacks[i]), !counted[i]);
			counts[i] += counted[i];
		}
	}
	CU_ASSERT(counts[0] == 5 && counts[1] == 9 && counts[2] == 3 && counts[3] == 5);
	struct tls_gcm_cpu newer = has;
	newer.openssl = 0x30100000; /* it has code for these CPUs */
	CU_ASSERT(!tls_gcm_ipsec_mb_is_faster(&newer));
}

static void test_the_fastest_is_taken_if_no_test_asks_for_another(void)
{
	const struct tls_gcm_engine *mb = tls_gcm_ipsec_mb();

	CU_ASSERT_PTR_EQUAL(tls_gcm_engine(), mb != NULL ? mb : &tls_gcm_openssl);
	tls_gcm_use(&tls_gcm_openssl);
	CU_ASSERT_PTR_EQUAL(tls_gcm_engine(), &tls_gcm_openssl);
	tls_gcm_use(NULL);
	CU_ASSERT_PTR_EQUAL(tls_gcm_engine(), mb != NULL ? mb : &tls_gcm_openssl);
}

static const struct unit_test tests[] = {
	UNIT(test_published_vectors_come_out),
	UNIT(test_both_calculate_the_same),
	UNIT(test_what_is_changed_is_refused),
	UNIT(test_a_state_is_used_again),
	UNIT(test_keys_are_in_memory_for_keys_and_overwritten),
	UNIT(test_the_library_is_taken_where_the_cpu_has_all_that_it_needs),
	UNIT(test_the_fastest_is_taken_if_no_test_asks_for_another),
	UNIT_END,
};
UNIT_MAIN("tls-gcm", tests, NULL, NULL)

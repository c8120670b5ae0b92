/* SPDX-License-Identifier: BSD-3-Clause */
#include "bdev_modules/crypto/test_crypto_rekey_kit.h"

#include <jansson.h>

#include "bdev_modules/crypto/crypto.h"
#include "bdev_modules/crypto/internal.h"
#include "bdev_modules/crypto/keys.h"
#include "bdev_modules/crypto/rekey_journal.h"

struct user users[USERS];
uint8_t plain[BLOCKS * 2][BLOCK];
static uint64_t seed;

/* --- A rekey's answers and news --- */

struct told told;

static void told_begun(void *arg, int rc, const char *why)
{
	told.rc = rc;
	snprintf(told.error, sizeof(told.error), "%s", why);
	set_done(&told.begun);
}

void told_stopped(void *arg, int rc, const char *why)
{
	set_done(&told.stopped);
}

static void told_news(const char *bdev, enum bdev_crypto_rekey_news news, const char *reason)
{
	*(news == BDEV_CRYPTO_REKEY_ENDED ? &told.ended : &told.failed) += 1;
	fixture_wake();
}

bool has_ended(void *arg)
{
	return told.ended != 0;
}

bool has_failed(void *arg)
{
	return told.failed != 0;
}

/* 0: it has begun. */
int rekey(const char *key, const char *journal, uint64_t mib_per_second)
{
	const struct bdev_crypto_rekey_opts opts = {
		.name = "c0", .key_name = key, .journal_bdev_name = journal, .mib_per_second = mib_per_second};

	memset(&told, 0, sizeof(told));
	int rc = bdev_crypto_rekey(&opts, told_begun, NULL, error);
	if (rc != 0) {
		return rc;
	}
	CU_ASSERT_TRUE_FATAL(fixture_wait(&told.begun));
	snprintf(error, sizeof(error), "%s", told.error);
	return told.rc;
}

void rekey_stop(void)
{
	CU_ASSERT_EQUAL_FATAL(bdev_crypto_rekey_stop("c0", told_stopped, NULL, error), 0);
	CU_ASSERT_TRUE_FATAL(fixture_wait(&told.stopped));
}

/* What bdev_get_bdevs says of it: "" if there is none. */
const char *rekey_shown(const char *member)
{
	static char text[256];
	json_t *info = json_object();

	bdev_dump_info(bdev_find("c0"), info);
	const json_t *r = json_object_get(json_object_get(info, "crypto"), "rekey");
	const json_t *value = json_object_get(r, member);
	if (json_is_integer(value)) {
		snprintf(text, sizeof(text), "%lld", json_integer_value(value));
	} else {
		snprintf(text, sizeof(text), "%s", r == NULL || value == NULL ? "" : json_string_value(value));
	}
	json_decref(info);
	return text;
}

uint64_t rekey_position(void)
{
	return strtoull(rekey_shown("position_blocks"), NULL, 10);
}

bool has_moved(void *blocks)
{
	return rekey_position() >= *(uint64_t *)blocks;
}

/* Lets it go on, slowly, until so many blocks have the new key, and stops it. */
void rekey_until(uint64_t blocks)
{
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "j0", 1), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_moved, &blocks));
	rekey_stop();
	CU_ASSERT_STRING_EQUAL(rekey_shown("state"), "stopped");
}

/* --- The bdevs, and their users' data --- */

void users_open(void)
{
	for (unsigned i = 0; i < USERS; i++) {
		CU_ASSERT_EQUAL_FATAL(user_open(&users[i], "c0", true, fixture_thread(i)), 0);
		users[i].close_on_remove = true;
	}
}

static void users_close(void)
{
	for (unsigned i = 0; i < USERS; i++) {
		user_close(&users[i]);
	}
}

/* Writes somewhere, or reads and compares. */
void user_acts_from(unsigned i, uint64_t first, uint64_t blocks)
{
	static uint8_t in[8][BLOCK];
	uint64_t n = 1 + fixture_random(&seed) % 8, at = first + fixture_random(&seed) % (blocks - first - n + 1);

	if (fixture_random(&seed) % 2 != 0) {
		crypto_fill(plain[at], n * BLOCK, fixture_random(&seed) + 1);
		CU_ASSERT_EQUAL(user_io(&users[i % USERS], BDEV_IO_WRITE, plain[at], at, n), 0);
	} else {
		CU_ASSERT_EQUAL(user_io(&users[i % USERS], BDEV_IO_READ, in, at, n), 0);
		CU_ASSERT_EQUAL(memcmp(in, plain[at], n * BLOCK), 0);
	}
}

void user_acts(unsigned i, uint64_t blocks)
{
	user_acts_from(i, 0, blocks);
}

void expect_plain(uint64_t blocks)
{
	static uint8_t in[64][BLOCK];

	for (uint64_t at = 0; at < blocks; at += 64) {
		CU_ASSERT_EQUAL(user_io(&users[at / 64 % USERS], BDEV_IO_READ, in, at, 64), 0);
		CU_ASSERT_EQUAL(memcmp(in, plain[at], sizeof(in)), 0);
	}
}

static void write_all(uint64_t blocks)
{
	for (uint64_t at = 0; at < blocks; at += 64) {
		crypto_fill(plain[at], 64ul * BLOCK, at + 1);
		CU_ASSERT_EQUAL(user_io(&users[0], BDEV_IO_WRITE, plain[at], at, 64), 0);
	}
}

int make_crypto(const char *key, const char *rekey_key)
{
	const struct bdev_crypto_opts opts = {.name = "c0",
					      .base_bdev_name = "EE_m0",
					      .key_name = key,
					      .rekey_key_name = rekey_key,
					      .rekey_journal_bdev_name = rekey_key != NULL ? "j0" : NULL};

	return bdev_crypto_create(&opts, error);
}

void make_crypto_again(void)
{
	memset(&told, 0, sizeof(told));
	CU_ASSERT_EQUAL_FATAL(make_crypto("k", "k2"), 0);
	users_open();
}

void rekey_to_the_end(const char *journal)
{
	CU_ASSERT_EQUAL_FATAL(rekey("k2", journal, 0), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_ended, NULL));
	expect_plain(BLOCKS);
}

void make_all_of(uint64_t blocks)
{
	seed = 42;
	make_malloc("m0", BLOCK, BLOCKS);
	CU_ASSERT_EQUAL_FATAL(bdev_resize(bdev_find("m0"), blocks), 0);
	make_malloc("j0", 512, REKEY_JOURNAL_BYTES / 512);
	CU_ASSERT_EQUAL_FATAL(bdev_error_create("m0", NULL, NULL, error), 0);
	CU_ASSERT_EQUAL_FATAL(make_crypto("k", NULL), 0);
	users_open();
	write_all(blocks);
}

void make_all(void)
{
	make_all_of(BLOCKS);
}

void delete_crypto(void)
{
	users_close();
	CU_ASSERT_EQUAL(fixture_delete(bdev_crypto_delete, "c0"), 0);
}

void unmake_all(void)
{
	delete_crypto();
	CU_ASSERT_EQUAL(fixture_delete(bdev_error_delete, "EE_m0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
	(void)fixture_delete(bdev_malloc_delete, "j0");
}

/* All blocks have that key and no other. */
void expect_key(const char *key, const char *other)
{
	static uint8_t in[BLOCK];

	delete_crypto();
	CU_ASSERT_EQUAL_FATAL(make_crypto(other, NULL), 0);
	users_open();
	for (uint64_t at = 0; at < BLOCKS; at++) {
		CU_ASSERT_EQUAL(user_io(&users[0], BDEV_IO_READ, in, at, 1), 0);
		CU_ASSERT_NOT_EQUAL(memcmp(in, plain[at], BLOCK), 0);
	}
	delete_crypto();
	CU_ASSERT_EQUAL_FATAL(make_crypto(key, NULL), 0);
	users_open();
	expect_plain(BLOCKS);
}

void fail_writes(uint32_t num)
{
	const struct bdev_error_injection inject = {.type = BDEV_IO_WRITE, .kind = BDEV_ERROR_FAILURE, .num = num};

	CU_ASSERT_EQUAL(bdev_error_inject("EE_m0", &inject, error), 0);
}

bool crypto_is_there(void *arg)
{
	return bdev_find("c0") != NULL && bdev_get_state(bdev_find("c0")) == BDEV_READY;
}

void base_keeps_next(enum bdev_io_type type)
{
	const struct bdev_error_injection inject = {.type = type, .kind = BDEV_ERROR_PENDING, .num = 1};

	CU_ASSERT_EQUAL(bdev_error_inject("EE_m0", &inject, error), 0);
}

static bool is_held(void *arg)
{
	const struct crypto_keys *keys = ((const struct crypto_bdev *)bdev_find("c0"))->keys;

	return keys->held_first != keys->held_end;
}

/* Begins a rekey, and waits until it holds the first chunk, of which the base keeps an I/O. */
void rekey_holds(uint64_t mib_per_second)
{
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "j0", mib_per_second), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(is_held, NULL));
}

static bool is_kept(void *arg, const struct bdev_inflight *one)
{
	*(bool *)arg |= one->type == BDEV_IO_READ && one->num_blocks == 256;
	return true;
}

static bool chunk_is_kept(void *arg)
{
	bool kept = false;

	bdev_for_each_inflight(bdev_find("EE_m0"), is_kept, &kept);
	return kept;
}

/* The same, and waits until the base keeps what the rekey reads of the chunk. */
void rekey_reads(uint64_t mib_per_second)
{
	base_keeps_next(BDEV_IO_READ);
	rekey_holds(mib_per_second);
	CU_ASSERT_TRUE_FATAL(fixture_poll(chunk_is_kept, NULL));
}

void inject(const char *name, const struct bdev_error_injection *injection)
{
	CU_ASSERT_EQUAL(bdev_error_inject(name, injection, error), 0);
}

/* Ends so many writes of that bdev as a reset does, each time that they are tried. */
void abort_writes(const char *name, uint32_t num)
{
	inject(name,
	       &(struct bdev_error_injection){
		       .type = BDEV_IO_WRITE, .kind = BDEV_ERROR_NVME_FAILURE, .num = num, .sc = NVME_SC_ABORT_REQ});
}

void clear_errors(const char *name)
{
	inject(name, &(struct bdev_error_injection){.clear = true});
}

/* A journal whose I/O can fail: "EE_j0". */
void make_journal_that_fails(void)
{
	CU_ASSERT_EQUAL_FATAL(bdev_error_create("j0", NULL, NULL, error), 0);
}

void unmake_journal_that_fails(void)
{
	CU_ASSERT_EQUAL(fixture_delete(bdev_error_delete, "EE_j0"), 0);
}

/* The saved configuration names that journal; NULL: it has no rekey. */
void expect_saved_journal(const char *name)
{
	struct bdev_crypto_opts opts;

	CU_ASSERT_TRUE_FATAL(bdev_crypto_get(bdev_find("c0"), &opts));
	CU_ASSERT_EQUAL(opts.rekey_key_name != NULL, name != NULL);
	CU_ASSERT_STRING_EQUAL(opts.rekey_journal_bdev_name != NULL ? opts.rekey_journal_bdev_name : "",
			       name != NULL ? name : "");
}

int rekey_kit_start(void)
{
	const struct crypto_key_opts second = {.name = "k2", .key = KEY_B, .key2 = KEY_A};
	const struct crypto_key_opts third = {
		.name = "k3", .key = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff", .key2 = KEY_A};

	bdev_crypto_observe_rekeys(told_news);
	crypto_rekey_patience.abort_us = 1000;
	return fixture_start() != 0 || crypto_kit_start() != 0 || crypto_key_create(&second, error) != 0 ||
	       crypto_key_create(&third, error) != 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Rekeys of crypto bdevs under I/O, on several threads: what users read stays what they wrote, whatever comes
 * meanwhile. */
#include <errno.h>
#include <jansson.h>

#include "bdev_modules/crypto/crypto.h"
#include "bdev_modules/crypto/internal.h"
#include "bdev_modules/crypto/keys.h"
#include "bdev_modules/crypto/rekey_journal.h"
#include "bdev_modules/crypto/test_crypto_kit.h"
#include "bdev_modules/error/error.h"

#define BLOCK  4096u
#define BLOCKS 1280u /* five chunks */
#define USERS  3u

static struct user users[USERS];
static uint8_t plain[BLOCKS * 2][BLOCK]; /* what must be there */
static uint64_t seed;

/* --- A rekey's answers and news --- */

static struct {
	atomic_bool begun, stopped;
	int rc;
	unsigned ended, failed;
	char error[BDEV_ERROR_MAX];
} told;

static void told_begun(void *arg, int rc, const char *why)
{
	told.rc = rc;
	snprintf(told.error, sizeof(told.error), "%s", why);
	set_done(&told.begun);
}

static void told_stopped(void *arg, int rc, const char *why)
{
	set_done(&told.stopped);
}

static void told_news(const char *bdev, enum bdev_crypto_rekey_news news, const char *reason)
{
	*(news == BDEV_CRYPTO_REKEY_ENDED ? &told.ended : &told.failed) += 1;
	fixture_wake();
}

static bool has_ended(void *arg)
{
	return told.ended != 0;
}

static bool has_failed(void *arg)
{
	return told.failed != 0;
}

/* 0: it has begun. */
static int rekey(const char *key, const char *journal, uint64_t mib_per_second)
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

static void rekey_stop(void)
{
	CU_ASSERT_EQUAL_FATAL(bdev_crypto_rekey_stop("c0", told_stopped, NULL, error), 0);
	CU_ASSERT_TRUE_FATAL(fixture_wait(&told.stopped));
}

/* What bdev_get_bdevs says of it: "" if there is none. */
static const char *rekey_shown(const char *member)
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

static uint64_t rekey_position(void)
{
	return strtoull(rekey_shown("position_blocks"), NULL, 10);
}

static bool has_moved(void *blocks)
{
	return rekey_position() >= *(uint64_t *)blocks;
}

/* Lets it go on, slowly, until so many blocks have the new key, and stops it. */
static void rekey_until(uint64_t blocks)
{
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "j0", 1), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_moved, &blocks));
	rekey_stop();
	CU_ASSERT_STRING_EQUAL(rekey_shown("state"), "stopped");
}

/* --- The bdevs, and their users' data --- */

static void users_open(void)
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
static void user_acts(unsigned i, uint64_t blocks)
{
	static uint8_t in[8][BLOCK];
	uint64_t n = 1 + fixture_random(&seed) % 8, at = fixture_random(&seed) % (blocks - n + 1);

	if (fixture_random(&seed) % 2 != 0) {
		crypto_fill(plain[at], n * BLOCK, fixture_random(&seed) + 1);
		CU_ASSERT_EQUAL(user_io(&users[i % USERS], BDEV_IO_WRITE, plain[at], at, n), 0);
	} else {
		CU_ASSERT_EQUAL(user_io(&users[i % USERS], BDEV_IO_READ, in, at, n), 0);
		CU_ASSERT_EQUAL(memcmp(in, plain[at], n * BLOCK), 0);
	}
}

static void expect_plain(uint64_t blocks)
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

static int make_crypto(const char *key, const char *rekey_key)
{
	const struct bdev_crypto_opts opts = {.name = "c0",
					      .base_bdev_name = "EE_m0",
					      .key_name = key,
					      .rekey_key_name = rekey_key,
					      .rekey_journal_bdev_name = rekey_key != NULL ? "j0" : NULL};

	return bdev_crypto_create(&opts, error);
}

static void make_all_of(uint64_t blocks)
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

static void make_all(void)
{
	make_all_of(BLOCKS);
}

static void delete_crypto(void)
{
	users_close();
	CU_ASSERT_EQUAL(fixture_delete(bdev_crypto_delete, "c0"), 0);
}

static void unmake_all(void)
{
	delete_crypto();
	CU_ASSERT_EQUAL(fixture_delete(bdev_error_delete, "EE_m0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
	(void)fixture_delete(bdev_malloc_delete, "j0");
}

/* All blocks have that key and no other. */
static void expect_key(const char *key, const char *other)
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

static void fail_writes(uint32_t num)
{
	const struct bdev_error_injection inject = {.type = BDEV_IO_WRITE, .kind = BDEV_ERROR_FAILURE, .num = num};

	CU_ASSERT_EQUAL(bdev_error_inject("EE_m0", &inject, error), 0);
}

/* --- Tests --- */

static void test_all_blocks_get_the_new_key_while_threads_read_and_write(void)
{
	make_all();
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "j0", 50), 0);
	unsigned acts = 0;
	for (; told.ended == 0; acts++) {
		user_acts(acts, BLOCKS);
	}
	CU_ASSERT_TRUE(acts > 10);
	CU_ASSERT_EQUAL(told.failed, 0);
	CU_ASSERT_STRING_EQUAL(rekey_shown("state"), "");
	CU_ASSERT_EQUAL(crypto_key_users(crypto_key_find("k")), 0);
	CU_ASSERT_EQUAL(crypto_key_users(crypto_key_find("k2")), 1);
	expect_plain(BLOCKS);
	expect_key("k2", "k");
	unmake_all();
}

static void test_it_stops_and_goes_on_and_the_bdev_is_made_again_in_the_middle(void)
{
	make_all();
	rekey_until(256);
	CU_ASSERT_STRING_EQUAL(rekey_shown("key_name"), "k2");
	expect_plain(BLOCKS);
	for (unsigned i = 0; i < 100; i++) {
		user_acts(i, BLOCKS);
	}
	rekey_until(rekey_position() + 256);
	delete_crypto();
	memset(&told, 0, sizeof(told));
	CU_ASSERT_EQUAL_FATAL(make_crypto("k", "k2"), 0);
	users_open();
	expect_plain(BLOCKS);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_ended, NULL));
	expect_plain(BLOCKS);
	expect_key("k2", "k");
	/* The journal says that it has ended: whoever has not saved the configuration since gets the new key. */
	delete_crypto();
	memset(&told, 0, sizeof(told));
	CU_ASSERT_EQUAL_FATAL(make_crypto("k", "k2"), 0);
	users_open();
	expect_plain(BLOCKS);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_ended, NULL));
	CU_ASSERT_STRING_EQUAL(rekey_shown("state"), "");
	unmake_all();
}

static void test_what_cannot_be_is_refused(void)
{
	uint64_t moved = 1;

	make_all();
	make_malloc("small", 512, REKEY_JOURNAL_BYTES / 512 - 1);
	CU_ASSERT_EQUAL(rekey("none", "j0", 0), -ENOENT);
	CU_ASSERT_EQUAL(rekey("k", "j0", 0), -EEXIST);
	CU_ASSERT_EQUAL(rekey("k2", "none", 0), -ENODEV);
	CU_ASSERT_EQUAL(rekey("k2", "small", 0), -ENOSPC);
	CU_ASSERT_EQUAL(rekey("k2", "m0", 0), -EPERM); /* claimed */
	CU_ASSERT_EQUAL(rekey("k2", "c0", 0), -EINVAL);
	CU_ASSERT_EQUAL(crypto_key_users(crypto_key_find("k2")), 0);
	CU_ASSERT_EQUAL(bdev_crypto_rekey_stop("c0", told_stopped, NULL, error), -ENOENT);
	CU_ASSERT_EQUAL(bdev_crypto_rekey_stop("none", told_stopped, NULL, error), -ENODEV);
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "j0", 1), 0);
	CU_ASSERT_EQUAL(rekey("k2", "j0", 0), -EBUSY);
	CU_ASSERT_EQUAL(crypto_key_destroy("k", error), -EBUSY);
	CU_ASSERT_EQUAL(crypto_key_destroy("k2", error), -EBUSY);
	/* Before blocks have moved, the journal is free for another beginning. */
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_moved, &moved));
	rekey_stop();
	CU_ASSERT_EQUAL(crypto_key_destroy("k2", error), -EBUSY);
	CU_ASSERT_EQUAL(rekey("k3", "j0", 1), -EBUSY);
	/* Made with the old key alone, the bdev would be half of it wrong: at least the journal says so. */
	delete_crypto();
	CU_ASSERT_EQUAL_FATAL(make_crypto("k", NULL), 0);
	users_open();
	CU_ASSERT_EQUAL(rekey("k2", "j0", 0), -EEXIST);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "rekey_key_name"));
	CU_ASSERT_STRING_EQUAL(rekey_shown("state"), "");
	/* With other keys than the journal's nobody gets any data. */
	delete_crypto();
	memset(&told, 0, sizeof(told));
	CU_ASSERT_EQUAL_FATAL(make_crypto("k", "k3"), 0);
	users_open();
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_failed, NULL));
	static uint8_t in[BLOCK];
	CU_ASSERT_EQUAL(user_io(&users[0], BDEV_IO_READ, in, 700, 1), NVME_SC_NS_NOT_READY);
	CU_ASSERT_EQUAL(user_io(&users[1], BDEV_IO_WRITE, in, 0, 1), NVME_SC_NS_NOT_READY);
	CU_ASSERT_STRING_EQUAL(rekey_shown("state"), "failed");
	unmake_all();
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "small"), 0);
}

static void test_a_base_that_cannot_be_written_fails_the_chunk_alone(void)
{
	static uint8_t in[BLOCK];

	make_all();
	fail_writes(1);
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "j0", 0), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_failed, NULL));
	CU_ASSERT_STRING_EQUAL(rekey_shown("state"), "failed");
	CU_ASSERT_PTR_NOT_NULL(strstr(rekey_shown("error"), "the base cannot be written"));
	CU_ASSERT_EQUAL(user_io(&users[0], BDEV_IO_READ, in, 255, 1), NVME_SC_NS_NOT_READY);
	CU_ASSERT_EQUAL(user_io(&users[1], BDEV_IO_WRITE, in, 0, 1), NVME_SC_NS_NOT_READY);
	CU_ASSERT_EQUAL(user_io(&users[0], BDEV_IO_READ, in, 256, 1), 0);
	CU_ASSERT_EQUAL(memcmp(in, plain[256], BLOCK), 0);
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "j0", 0), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_ended, NULL));
	expect_plain(BLOCKS);
	expect_key("k2", "k");
	unmake_all();
}

static void test_a_journal_that_goes_stops_it_and_one_that_comes_goes_on(void)
{
	make_all();
	rekey_until(256);
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "j0", 1), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "j0"), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_failed, NULL));
	CU_ASSERT_STRING_EQUAL(rekey_shown("state"), "failed");
	for (unsigned i = 0; i < 100; i++) {
		user_acts(i, BLOCKS);
	}
	expect_plain(BLOCKS);
	make_malloc("j1", 4096, REKEY_JOURNAL_BYTES / 4096);
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "j1", 1), 0); /* another one will do */
	rekey_stop();
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "j1", 1), 0);
	memset(&told, 0, sizeof(told));
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "j1"), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_failed, NULL));
	make_malloc("j1", 4096, REKEY_JOURNAL_BYTES / 4096); /* goes on by itself */
	CU_ASSERT_STRING_EQUAL(rekey_shown("state"), "running");
	rekey_stop();
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "j1", 0), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_ended, NULL));
	expect_plain(BLOCKS);
	expect_key("k2", "k");
	unmake_all();
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "j1"), 0);
}

static bool crypto_is_there(void *arg)
{
	return bdev_find("c0") != NULL && bdev_get_state(bdev_find("c0")) == BDEV_READY;
}

/* The bdev waits for its base, and for the bdev of its journal. */
static void test_it_is_made_when_base_and_journal_are_there(void)
{
	const struct bdev_crypto_opts opts = {.name = "c0",
					      .base_bdev_name = "m1",
					      .key_name = "k",
					      .rekey_key_name = "k2",
					      .rekey_journal_bdev_name = "j9"};

	memset(&told, 0, sizeof(told));
	make_malloc("m1", BLOCK, BLOCKS);
	CU_ASSERT_EQUAL_FATAL(bdev_crypto_create(&opts, error), 0);
	CU_ASSERT_PTR_NULL(bdev_find("c0"));
	CU_ASSERT_EQUAL(crypto_key_destroy("k2", error), -EBUSY);
	make_malloc("j9", 512, REKEY_JOURNAL_BYTES / 512);
	CU_ASSERT_TRUE_FATAL(fixture_poll(crypto_is_there, NULL));
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_failed, NULL)); /* it has no journal */
	CU_ASSERT_PTR_NOT_NULL(strstr(rekey_shown("error"), "has none"));
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m1"), 0);
	CU_ASSERT_PTR_NULL(bdev_find("c0"));
	CU_ASSERT_EQUAL(fixture_delete(bdev_crypto_delete, "c0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "j9"), 0);
	CU_ASSERT_EQUAL(crypto_key_users(crypto_key_find("k2")), 0);
}

static void test_a_deletion_ends_it_at_once(void)
{
	make_all();
	rekey_until(256);
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "j0", 1), 0);
	delete_crypto();
	CU_ASSERT_EQUAL(crypto_key_users(crypto_key_find("k")), 0);
	CU_ASSERT_EQUAL(crypto_key_users(crypto_key_find("k2")), 0);
	CU_ASSERT_EQUAL(bdev_get_claim(bdev_find("j0"), NULL), BDEV_CLAIM_NONE);
	CU_ASSERT_EQUAL_FATAL(make_crypto("k", "k2"), 0);
	users_open();
	expect_plain(BLOCKS);
	unmake_all();
}

static void base_keeps_next(enum bdev_io_type type)
{
	const struct bdev_error_injection inject = {.type = type, .kind = BDEV_ERROR_PENDING, .num = 1};

	CU_ASSERT_EQUAL(bdev_error_inject("EE_m0", &inject, error), 0);
}

static struct request *submit(enum bdev_io_type type, struct iovec *iov, uint64_t at, uint64_t blocks)
{
	struct request *r = request_new(&users[0]);

	bdev_io_set_rw(r->io, type, iov, iov != NULL, at, blocks);
	request_submit(r);
	return r;
}

static bool is_held(void *arg)
{
	const struct crypto_keys *keys = ((const struct crypto_bdev *)bdev_find("c0"))->keys;

	return keys->held_first != keys->held_end;
}

/* Begins a rekey, and waits until it holds the first chunk, of which the base keeps an I/O. */
static void rekey_holds(void)
{
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "j0", 0), 0);
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
static void rekey_reads(void)
{
	base_keeps_next(BDEV_IO_READ);
	rekey_holds();
	CU_ASSERT_TRUE_FATAL(fixture_poll(chunk_is_kept, NULL));
}

static bool waits_for_rekey(void *arg, const struct bdev_inflight *one)
{
	*(unsigned *)arg += strstr(one->waits_for, "a rekey") != NULL;
	return true;
}

/* So many I/Os wait for the rekey. */
static bool so_many_wait(void *arg)
{
	unsigned n = 0;

	bdev_for_each_inflight(bdev_find("c0"), waits_for_rekey, &n);
	return n == *(const unsigned *)arg;
}

static void expect_waiting(unsigned n)
{
	CU_ASSERT_TRUE_FATAL(fixture_poll(so_many_wait, &n));
}

/* While the base keeps what the rekey reads of the first chunk. */
static void test_io_of_the_chunk_waits_and_can_be_ended_and_other_io_goes_on(void)
{
	static uint8_t in[BLOCK], out[10][BLOCK];
	struct iovec one = {in, BLOCK}, ten = {out, sizeof(out)};

	make_all();
	rekey_reads();
	struct request *back = submit(BDEV_IO_READ, &one, 255, 1);
	struct request *aborted = submit(BDEV_IO_WRITE, &ten, 250, 10);
	struct request *reset = submit(BDEV_IO_READ, &one, 0, 1);
	struct request *reset_write = submit(BDEV_IO_WRITE, &ten, 90, 10);
	struct request *unmap = submit(BDEV_IO_UNMAP, NULL, 100, 500);
	expect_waiting(5);
	CU_ASSERT_EQUAL(user_io(&users[0], BDEV_IO_FLUSH, NULL, 0, BLOCKS), 0);
	CU_ASSERT_EQUAL(user_io(&users[0], BDEV_IO_READ, in, 256, 1), 0);
	CU_ASSERT_EQUAL(memcmp(in, plain[256], BLOCK), 0);
	request_take_back(back);
	CU_ASSERT_EQUAL(request_finish(back), NVME_SC_ABORT_REQ);
	expect_waiting(4);
	struct request *abort = request_new(&users[0]);
	abort->io->type = BDEV_IO_ABORT;
	abort->io->abort.target = aborted->io;
	CU_ASSERT_EQUAL(request_run(abort), 0);
	CU_ASSERT_EQUAL(abort->cdw0, 0);
	request_free(abort);
	CU_ASSERT_EQUAL(request_finish(aborted), NVME_SC_ABORT_REQ);
	expect_waiting(3);
	/* It ends the rekey's read as well, which is tried again. */
	CU_ASSERT_EQUAL(user_io(&users[0], BDEV_IO_RESET, NULL, 0, 0), 0);
	CU_ASSERT_EQUAL(request_finish(reset), NVME_SC_ABORT_REQ);
	CU_ASSERT_EQUAL(request_finish(reset_write), NVME_SC_ABORT_REQ);
	CU_ASSERT_EQUAL(request_finish(unmap), NVME_SC_ABORT_REQ);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_ended, NULL));
	expect_plain(BLOCKS);
	expect_key("k2", "k");
	unmake_all();
}

/* ... and goes on when the base has given it back. */
static void test_io_that_waited_is_carried_out_with_the_new_key(void)
{
	static uint8_t in[10][BLOCK];
	struct iovec read = {in, sizeof(in)}, written = {plain[250], 10 * BLOCK};

	make_all();
	rekey_reads();
	struct request *r = submit(BDEV_IO_READ, &read, 240, 10);
	expect_waiting(1);
	crypto_fill(plain[250], 10 * BLOCK, 77);
	struct request *w = submit(BDEV_IO_WRITE, &written, 250, 10);
	expect_waiting(2);
	CU_ASSERT_EQUAL(bdev_error_resume_pending("EE_m0", error), 0);
	CU_ASSERT_EQUAL(request_finish(r), 0);
	CU_ASSERT_EQUAL(memcmp(in, plain[240], sizeof(in)), 0);
	CU_ASSERT_EQUAL(request_finish(w), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_ended, NULL));
	expect_plain(BLOCKS);
	expect_key("k2", "k");
	unmake_all();
}

static bool always(void *arg)
{
	return --*(int *)arg < 0;
}

/* A chunk is not read before the writes to it that are at the base have ended; a stop does not wait for them. */
static void test_a_chunk_waits_for_writes_in_flight_and_a_stop_does_not(void)
{
	struct iovec iov = {plain[5], BLOCK};

	make_all();
	base_keeps_next(BDEV_IO_WRITE);
	crypto_fill(plain[5], BLOCK, 99);
	struct request *w = submit(BDEV_IO_WRITE, &iov, 5, 1);
	rekey_holds();
	struct iovec again = {plain[7], BLOCK};
	struct request *held = submit(BDEV_IO_WRITE, &again, 7, 1);
	expect_waiting(1);
	for (int n = 20; !fixture_poll(always, &n);) { /* some rounds */
	}
	CU_ASSERT_EQUAL(rekey_position(), 0);
	CU_ASSERT_FALSE(held->done);
	rekey_stop();
	CU_ASSERT_EQUAL(request_finish(held), 0);
	CU_ASSERT_FALSE(w->done);
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "j0", 0), 0);
	CU_ASSERT_EQUAL(rekey_position(), 0);
	CU_ASSERT_EQUAL(bdev_error_resume_pending("EE_m0", error), 0);
	CU_ASSERT_EQUAL(request_finish(w), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_ended, NULL));
	expect_plain(BLOCKS);
	expect_key("k2", "k");
	unmake_all();
}

static void test_a_bdev_that_grows_meanwhile_gets_the_new_key_there_too(void)
{
	make_all_of(704);
	rekey_until(512);
	CU_ASSERT_EQUAL(bdev_resize(bdev_find("m0"), BLOCKS), 0);
	CU_ASSERT_EQUAL(bdev_num_blocks(bdev_find("c0")), BLOCKS);
	for (uint64_t at = 704; at < BLOCKS; at += 64) {
		crypto_fill(plain[at], 64ul * BLOCK, at + 5);
		CU_ASSERT_EQUAL(user_io(&users[1], BDEV_IO_WRITE, plain[at], at, 64), 0);
	}
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "j0", 0), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_ended, NULL));
	expect_plain(BLOCKS);
	expect_key("k2", "k");
	unmake_all();
}

static void test_a_base_that_goes_and_comes_goes_on(void)
{
	make_all();
	rekey_until(256);
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "j0", 1), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_error_delete, "EE_m0"), 0); /* users close when they are told */
	CU_ASSERT_PTR_NULL(bdev_find("c0"));
	CU_ASSERT_EQUAL(crypto_key_destroy("k2", error), -EBUSY);
	memset(&told, 0, sizeof(told));
	CU_ASSERT_EQUAL_FATAL(bdev_error_create("m0", NULL, NULL, error), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(crypto_is_there, NULL));
	users_open();
	expect_plain(BLOCKS);
	rekey_stop();
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "j0", 0), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_ended, NULL));
	expect_plain(BLOCKS);
	expect_key("k2", "k");
	unmake_all();
}

static void inject(const char *name, const struct bdev_error_injection *injection)
{
	CU_ASSERT_EQUAL(bdev_error_inject(name, injection, error), 0);
}

/* Ends so many writes of that bdev as a reset does, each time that they are tried. */
static void abort_writes(const char *name, uint32_t num)
{
	inject(name,
	       &(struct bdev_error_injection){
		       .type = BDEV_IO_WRITE, .kind = BDEV_ERROR_NVME_FAILURE, .num = num, .sc = NVME_SC_ABORT_REQ});
}

static void clear_errors(const char *name)
{
	inject(name, &(struct bdev_error_injection){.clear = true});
}

/* A journal whose I/O can fail: "EE_j0". */
static void make_journal_that_fails(void)
{
	CU_ASSERT_EQUAL_FATAL(bdev_error_create("j0", NULL, NULL, error), 0);
}

static void unmake_journal_that_fails(void)
{
	CU_ASSERT_EQUAL(fixture_delete(bdev_error_delete, "EE_j0"), 0);
}

/* The saved configuration names that journal; NULL: it has no rekey. */
static void expect_saved_journal(const char *name)
{
	struct bdev_crypto_opts opts;

	CU_ASSERT_TRUE_FATAL(bdev_crypto_get(bdev_find("c0"), &opts));
	CU_ASSERT_EQUAL(opts.rekey_key_name != NULL, name != NULL);
	CU_ASSERT_STRING_EQUAL(opts.rekey_journal_bdev_name != NULL ? opts.rekey_journal_bdev_name : "",
			       name != NULL ? name : "");
}

static void test_io_that_is_aborted_again_and_again_fails_it_and_is_no_stop(void)
{
	make_all();
	make_journal_that_fails();
	abort_writes("EE_j0", UINT32_MAX);
	CU_ASSERT_EQUAL(rekey("k2", "EE_j0", 0), -EIO);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "the journal cannot be written"));
	CU_ASSERT_STRING_EQUAL(rekey_shown("state"), "");
	expect_saved_journal(NULL);
	CU_ASSERT_EQUAL(crypto_key_users(crypto_key_find("k2")), 0);
	clear_errors("EE_j0");
	abort_writes("EE_m0", UINT32_MAX);
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "EE_j0", 0), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_failed, NULL));
	CU_ASSERT_STRING_EQUAL(rekey_shown("state"), "failed");
	CU_ASSERT_PTR_NOT_NULL(strstr(rekey_shown("error"), "the base cannot be written"));
	clear_errors("EE_m0");
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "EE_j0", 0), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_ended, NULL));
	expect_plain(BLOCKS);
	unmake_journal_that_fails();
	unmake_all();
}

/* A rekey to what is the same key by another name would change nothing, and say that it had. */
static void test_the_same_key_by_another_name_is_refused(void)
{
	const struct crypto_key_opts again = {.name = "k again", .key = KEY_A, .key2 = KEY_B};

	make_all();
	CU_ASSERT_EQUAL_FATAL(crypto_key_create(&again, error), 0);
	CU_ASSERT_EQUAL(rekey("k again", "j0", 0), -EEXIST);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "are the same"));
	CU_ASSERT_STRING_EQUAL(rekey_shown("state"), "");
	CU_ASSERT_EQUAL(crypto_key_destroy("k again", error), 0);
	unmake_all();
}

static void test_a_stop_stays_one_although_the_journal_goes_and_comes(void)
{
	make_all();
	rekey_until(256);
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "j0", 1), 0);
	CU_ASSERT_EQUAL_FATAL(bdev_crypto_rekey_stop("c0", told_stopped, NULL, error), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "j0"), 0); /* in one turn with the stop */
	CU_ASSERT_TRUE_FATAL(fixture_wait(&told.stopped));
	CU_ASSERT_STRING_EQUAL(rekey_shown("state"), "stopped");
	make_malloc("j0", 512, REKEY_JOURNAL_BYTES / 512);
	CU_ASSERT_STRING_EQUAL(rekey_shown("state"), "stopped");
	CU_ASSERT_EQUAL(told.failed, 0);
	expect_plain(BLOCKS);
	unmake_all();
}

/* What was read, and not stored anywhere, is left: the chunk keeps the old key. */
static void test_a_stop_does_not_wait_for_a_chunk_that_is_not_under_way(void)
{
	make_all();
	rekey_reads();
	CU_ASSERT_EQUAL_FATAL(bdev_crypto_rekey_stop("c0", told_stopped, NULL, error), 0);
	CU_ASSERT_EQUAL(bdev_error_resume_pending("EE_m0", error), 0);
	CU_ASSERT_TRUE_FATAL(fixture_wait(&told.stopped));
	CU_ASSERT_EQUAL(rekey_position(), 0);
	CU_ASSERT_STRING_EQUAL(rekey_shown("state"), "stopped");
	expect_plain(BLOCKS);
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "j0", 0), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_ended, NULL));
	expect_plain(BLOCKS);
	unmake_all();
}

/* The journal is a bdev that aborts nothing. */
static struct testdev *silent;
static struct user silent_user;

static bool is_silent(void *arg)
{
	return atomic_load(&silent->held) != 0;
}

/* Begins a rekey whose journal keeps the first I/O of the first chunk, its copy. */
static void rekey_is_kept(void)
{
	make_all();
	CU_ASSERT_EQUAL_FATAL(fixture_delete(bdev_malloc_delete, "j0"), 0);
	silent = testdev_new("j0", 512, REKEY_JOURNAL_BYTES / 512);
	CU_ASSERT_EQUAL_FATAL(testdev_register(silent), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&silent_user, "j0", false, thread_control()), 0);
	rekey_reads();
	silent->hold = silent->deaf = true;
}

static void journal_waits_us(uint64_t us)
{
	crypto_rekey_patience.journal_us = us;
}

static void journal_answers(void)
{
	silent->hold = false;
	testdev_release(silent, &silent_user, 0);
	journal_waits_us(10000000);
}

static bool journal_is_free(void *arg)
{
	return bdev_get_claim(bdev_find("j0"), NULL) == BDEV_CLAIM_NONE;
}

static void unmake_silent(void)
{
	user_close(&silent_user);
	CU_ASSERT_TRUE(testdev_delete(silent));
}

static void test_a_journal_that_does_not_answer_keeps_nobody_waiting(void)
{
	static uint8_t in[BLOCK];

	rekey_is_kept();
	journal_waits_us(1000);
	CU_ASSERT_EQUAL(bdev_error_resume_pending("EE_m0", error), 0);
	CU_ASSERT_EQUAL(user_io(&users[0], BDEV_IO_READ, in, 5, 1), 0); /* of the chunk: with the old key */
	CU_ASSERT_EQUAL(memcmp(in, plain[5], BLOCK), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_failed, NULL));
	CU_ASSERT_STRING_EQUAL(rekey_shown("state"), "failed");
	CU_ASSERT_PTR_NOT_NULL(strstr(rekey_shown("error"), "the journal cannot be written"));
	CU_ASSERT_EQUAL(rekey("k2", "j0", 0), -EPERM); /* its I/O may still be carried out */
	make_malloc("j1", 512, REKEY_JOURNAL_BYTES / 512);
	journal_waits_us(10000000);
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "j1", 0), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_ended, NULL));
	CU_ASSERT_FALSE(journal_is_free(NULL));
	journal_answers();
	CU_ASSERT_TRUE(fixture_poll(journal_is_free, NULL));
	expect_plain(BLOCKS);
	unmake_all();
	unmake_silent();
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "j1"), 0);
}

static void test_a_journal_that_does_not_answer_does_not_keep_the_bdev(void)
{
	static uint8_t in[BLOCK];

	rekey_is_kept();
	CU_ASSERT_EQUAL(bdev_error_resume_pending("EE_m0", error), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(is_silent, NULL));
	testdev_release(silent, &silent_user, 0); /* the copy */
	CU_ASSERT_TRUE_FATAL(fixture_poll(is_silent, NULL));
	journal_waits_us(1000);
	testdev_release(silent, &silent_user, 0); /* its flush: what is kept now says that the chunk is under way */
	CU_ASSERT_EQUAL(user_io(&users[0], BDEV_IO_READ, in, 5, 1), NVME_SC_NS_NOT_READY);
	CU_ASSERT_EQUAL(user_io(&users[0], BDEV_IO_READ, in, 256, 1), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_failed, NULL));
	delete_crypto();
	CU_ASSERT_EQUAL(make_crypto("k", "k2"), -EPERM);
	journal_answers();
	CU_ASSERT_TRUE_FATAL(fixture_poll(journal_is_free, NULL));
	memset(&told, 0, sizeof(told));
	CU_ASSERT_EQUAL_FATAL(make_crypto("k", "k2"), 0);
	users_open();
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_ended, NULL));
	expect_plain(BLOCKS);
	unmake_all();
	unmake_silent();
}

static void fail_reads(const char *name, uint32_t num)
{
	inject(name, &(struct bdev_error_injection){.type = BDEV_IO_READ, .kind = BDEV_ERROR_FAILURE, .num = num});
}

/* The saved configuration names the journal that has the position, until another one has it. */
static void test_a_journal_that_fails_at_once_does_not_take_the_place_of_the_right_one(void)
{
	make_all();
	rekey_until(256);
	make_malloc("j1", 512, REKEY_JOURNAL_BYTES / 512);
	CU_ASSERT_EQUAL_FATAL(bdev_error_create("j1", NULL, NULL, error), 0);
	fail_reads("EE_j1", 1);
	CU_ASSERT_EQUAL(rekey("k2", "EE_j1", 1), -EIO);
	CU_ASSERT_STRING_EQUAL(rekey_shown("state"), "failed");
	CU_ASSERT_STRING_EQUAL(rekey_shown("journal_bdev_name"), "j0");
	expect_saved_journal("j0");
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "EE_j1", 1), 0);
	expect_saved_journal("EE_j1");
	rekey_stop();
	expect_saved_journal("EE_j1");
	/* One that is lost goes on when it comes back, although another one was tried meanwhile. */
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "EE_j1", 1), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_error_delete, "EE_j1"), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_failed, NULL));
	CU_ASSERT_TRUE_FATAL(fixture_poll(journal_is_free, NULL)); /* it is being made void */
	make_journal_that_fails();
	fail_reads("EE_j0", 1);
	CU_ASSERT_EQUAL(rekey("k2", "EE_j0", 1), -EIO);
	expect_saved_journal("EE_j1");
	CU_ASSERT_EQUAL_FATAL(bdev_error_create("j1", NULL, NULL, error), 0);
	CU_ASSERT_STRING_EQUAL(rekey_shown("state"), "running");
	rekey_stop();
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "EE_j1", 0), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_ended, NULL));
	expect_plain(BLOCKS);
	unmake_journal_that_fails();
	unmake_all();
	CU_ASSERT_EQUAL(fixture_delete(bdev_error_delete, "EE_j1"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "j1"), 0);
}

/* Whoever goes on with it after that would read blocks with the wrong key: it says nothing any more. */
static void test_a_former_journal_becomes_void(void)
{
	static uint8_t in[BLOCK];

	make_all();
	rekey_until(256);
	make_malloc("j1", 4096, REKEY_JOURNAL_BYTES / 4096);
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "j1", 1), 0);
	rekey_stop();
	CU_ASSERT_TRUE_FATAL(fixture_poll(journal_is_free, NULL));
	delete_crypto();
	memset(&told, 0, sizeof(told));
	CU_ASSERT_EQUAL_FATAL(make_crypto("k", "k2"), 0); /* as a configuration has it that was not saved again */
	users_open();
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_failed, NULL));
	CU_ASSERT_PTR_NOT_NULL(strstr(rekey_shown("error"), "has none that counts"));
	CU_ASSERT_EQUAL(user_io(&users[0], BDEV_IO_READ, in, 300, 1), NVME_SC_NS_NOT_READY);
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "j1", 0), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_ended, NULL));
	expect_plain(BLOCKS);
	unmake_all();
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "j1"), 0);
}

static void test_the_journal_of_another_bdev_whose_name_is_no_text_is_refused(void)
{
	static uint8_t block[512];
	const struct rekey_header head = {
		.generation = 1, .state = REKEY_RUNNING, .block_size = BLOCK, .base_name = "EE_m\xff"};
	struct user u;

	make_all();
	delete_crypto();
	rekey_header_encode(&head, block);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "j0", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, block, 0, 1), 0);
	user_close(&u);
	memset(&told, 0, sizeof(told));
	CU_ASSERT_EQUAL_FATAL(make_crypto("k", "k2"), 0);
	users_open();
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_failed, NULL));
	CU_ASSERT_PTR_NOT_NULL(strstr(rekey_shown("error"), "another rekey"));
	unmake_all();
}

static const struct unit_test tests[] = {
	UNIT(test_all_blocks_get_the_new_key_while_threads_read_and_write),
	UNIT(test_it_stops_and_goes_on_and_the_bdev_is_made_again_in_the_middle),
	UNIT(test_what_cannot_be_is_refused),
	UNIT(test_a_base_that_cannot_be_written_fails_the_chunk_alone),
	UNIT(test_a_journal_that_goes_stops_it_and_one_that_comes_goes_on),
	UNIT(test_io_of_the_chunk_waits_and_can_be_ended_and_other_io_goes_on),
	UNIT(test_io_that_waited_is_carried_out_with_the_new_key),
	UNIT(test_a_chunk_waits_for_writes_in_flight_and_a_stop_does_not),
	UNIT(test_a_bdev_that_grows_meanwhile_gets_the_new_key_there_too),
	UNIT(test_a_base_that_goes_and_comes_goes_on),
	UNIT(test_it_is_made_when_base_and_journal_are_there),
	UNIT(test_a_deletion_ends_it_at_once),
	UNIT(test_io_that_is_aborted_again_and_again_fails_it_and_is_no_stop),
	UNIT(test_the_same_key_by_another_name_is_refused),
	UNIT(test_a_stop_stays_one_although_the_journal_goes_and_comes),
	UNIT(test_a_stop_does_not_wait_for_a_chunk_that_is_not_under_way),
	UNIT(test_a_former_journal_becomes_void),
	UNIT(test_the_journal_of_another_bdev_whose_name_is_no_text_is_refused),
	UNIT(test_a_journal_that_fails_at_once_does_not_take_the_place_of_the_right_one),
	UNIT(test_a_journal_that_does_not_answer_keeps_nobody_waiting),
	UNIT(test_a_journal_that_does_not_answer_does_not_keep_the_bdev),
	UNIT_END,
};

static int start(void)
{
	const struct crypto_key_opts second = {.name = "k2", .key = KEY_B, .key2 = KEY_A};
	const struct crypto_key_opts third = {
		.name = "k3", .key = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff", .key2 = KEY_A};

	bdev_crypto_observe_rekeys(told_news);
	crypto_rekey_patience.abort_us = 1000;
	return fixture_start() != 0 || crypto_kit_start() != 0 || crypto_key_create(&second, error) != 0 ||
	       crypto_key_create(&third, error) != 0;
}
UNIT_MAIN("bdev_crypto_rekey_live", tests, start, fixture_stop)

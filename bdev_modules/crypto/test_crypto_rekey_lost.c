/* SPDX-License-Identifier: BSD-3-Clause */
/* Rekeys of crypto bdevs whose journal is lost, late, of another rekey, or takes the place of another one. */
#include <errno.h>
#include <jansson.h>

#include "bdev_modules/crypto/crypto.h"
#include "bdev_modules/crypto/internal.h"
#include "bdev_modules/crypto/keys.h"
#include "bdev_modules/crypto/rekey_journal.h"
#include "bdev_modules/crypto/test_crypto_rekey_kit.h"

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
	CU_ASSERT_EQUAL_FATAL(bdev_error_create("j1", NULL, NULL, error), 0);
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "EE_j1", 1), 0); /* another one will do */
	rekey_stop();
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "EE_j1", 1), 0);
	memset(&told, 0, sizeof(told));
	CU_ASSERT_EQUAL(fixture_delete(bdev_error_delete, "EE_j1"), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_failed, NULL));
	CU_ASSERT_EQUAL_FATAL(bdev_error_create("j1", NULL, NULL, error), 0); /* goes on by itself */
	CU_ASSERT_STRING_EQUAL(rekey_shown("state"), "running");
	rekey_stop();
	rekey_to_the_end("EE_j1");
	expect_key("k2", "k");
	unmake_all();
	CU_ASSERT_EQUAL(fixture_delete(bdev_error_delete, "EE_j1"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "j1"), 0);
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

/* The journal is a bdev that aborts nothing. */
static struct testdev *silent;
static struct user silent_user;

static void make_silent(void)
{
	CU_ASSERT_EQUAL_FATAL(fixture_delete(bdev_malloc_delete, "j0"), 0);
	silent = testdev_new("j0", 512, REKEY_JOURNAL_BYTES / 512);
}

static bool is_silent(void *arg)
{
	return atomic_load(&silent->held) != 0;
}

/* Begins a rekey whose journal keeps the first I/O of the first chunk, its copy. */
static void rekey_is_kept(void)
{
	make_all();
	make_silent();
	CU_ASSERT_EQUAL_FATAL(testdev_register(silent), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&silent_user, "j0", false, thread_control()), 0);
	rekey_reads(0);
	silent->hold = silent->deaf = true;
}

static void test_a_rekey_that_waits_for_its_journal_can_be_stopped(void)
{
	const struct bdev_crypto_rekey_opts other = {.name = "c0", .key_name = "k2", .journal_bdev_name = "j1"};

	make_all();
	make_malloc("j1", 512, REKEY_JOURNAL_BYTES / 512);
	make_journal_that_fails();
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "EE_j0", 1), 0);
	unmake_journal_that_fails();
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_failed, NULL));
	CU_ASSERT_STRING_EQUAL(rekey_shown("state"), "failed");
	rekey_stop();
	CU_ASSERT_STRING_EQUAL(rekey_shown("state"), "stopped");
	make_journal_that_fails();
	CU_ASSERT_STRING_EQUAL(rekey_shown("state"), "stopped");
	CU_ASSERT_EQUAL(bdev_crypto_rekey_stop("c0", told_stopped, NULL, error), -ENOENT);
	/* And so can a beginning with another journal, while it waits. */
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "EE_j0", 1), 0);
	unmake_journal_that_fails();
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_failed, NULL));
	memset(&told, 0, sizeof(told));
	CU_ASSERT_EQUAL_FATAL(bdev_crypto_rekey(&other, NULL, NULL, error), 0);
	rekey_stop(); /* in one turn */
	CU_ASSERT_STRING_EQUAL(rekey_shown("state"), "stopped");
	CU_ASSERT_EQUAL(told.failed, 0);
	make_journal_that_fails();
	CU_ASSERT_STRING_EQUAL(rekey_shown("state"), "stopped");
	rekey_to_the_end("EE_j0");
	unmake_journal_that_fails();
	unmake_all();
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "j1"), 0);
}

/* A drive in the place of the one that has failed, with somebody's data. */
static void test_a_bdev_that_comes_in_place_of_the_journal_is_left_as_it_is(void)
{
	static uint8_t pattern[REKEY_JOURNAL_BYTES];

	make_all();
	rekey_until(256);
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "j0", 1), 0);
	make_silent();
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_failed, NULL));
	memset(&told, 0, sizeof(told));
	memset(pattern, 0x5a, sizeof(pattern));
	memcpy(silent->memory, pattern, sizeof(pattern));
	CU_ASSERT_EQUAL_FATAL(testdev_register(silent), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_failed, NULL));
	CU_ASSERT_EQUAL(memcmp(silent->memory, pattern, sizeof(pattern)), 0);
	CU_ASSERT_STRING_EQUAL(rekey_shown("state"), "failed");
	CU_ASSERT_PTR_NOT_NULL(strstr(rekey_shown("error"), "has no journal of this rekey"));
	CU_ASSERT_EQUAL(bdev_get_claim(bdev_find("j0"), NULL), BDEV_CLAIM_NONE);
	expect_plain(BLOCKS);
	rekey_to_the_end("j0"); /* who asks for it has it overwritten */
	unmake_all();
	CU_ASSERT_TRUE(testdev_delete(silent));
}

/* As a namespace by two paths. */
static void test_the_journal_by_another_name_is_refused(void)
{
	make_all();
	make_silent();
	struct testdev *twin = testdev_new("j1", 512, REKEY_JOURNAL_BYTES / 512);
	uint8_t *own = silent->memory;
	silent->memory = twin->memory;
	CU_ASSERT_EQUAL_FATAL(testdev_register(silent), 0);
	CU_ASSERT_EQUAL_FATAL(testdev_register(twin), 0);
	rekey_until(256);
	CU_ASSERT_EQUAL(rekey("k2", "j1", 1), -EEXIST);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "by another name"));
	expect_saved_journal("j0");
	silent->memory = own;
	CU_ASSERT_TRUE(testdev_delete(silent));
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "j1", 1), 0);
	expect_saved_journal("j1");
	rekey_stop();
	rekey_to_the_end("j1");
	unmake_all();
	CU_ASSERT_TRUE(testdev_delete(twin));
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

static bool silent_is_void(void *arg)
{
	struct rekey_header found[2];
	const struct rekey_header *is[2], *newest;

	for (unsigned i = 0; i < 2; i++) {
		is[i] = rekey_header_decode(silent->memory + (size_t)i * REKEY_HEADER_STRIDE, &found[i]) ? &found[i]
													 : NULL;
	}
	newest = rekey_header_newest(is[0], is[1]);
	return newest != NULL && newest->state == REKEY_VOID;
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
	CU_ASSERT_FALSE(silent_is_void(NULL));
	journal_answers();
	CU_ASSERT_TRUE(fixture_poll(silent_is_void, NULL));
	CU_ASSERT_TRUE(fixture_poll(journal_is_free, NULL));
	expect_plain(BLOCKS);
	unmake_all();
	unmake_silent();
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "j1"), 0);
}

/* Begins a rekey whose journal keeps the first header that says that a chunk is under way. */
static void first_header_is_kept(void)
{
	rekey_is_kept();
	CU_ASSERT_EQUAL(bdev_error_resume_pending("EE_m0", error), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(is_silent, NULL));
	testdev_release(silent, &silent_user, 0); /* the copy */
	CU_ASSERT_TRUE_FATAL(fixture_poll(is_silent, NULL));
	journal_waits_us(1000);
	testdev_release(silent, &silent_user, 0); /* its flush */
}

static void test_a_journal_that_does_not_answer_does_not_keep_the_bdev(void)
{
	static uint8_t in[BLOCK];

	first_header_is_kept();
	CU_ASSERT_EQUAL(user_io(&users[0], BDEV_IO_READ, in, 5, 1), NVME_SC_NS_NOT_READY);
	CU_ASSERT_EQUAL(user_io(&users[0], BDEV_IO_READ, in, 256, 1), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_failed, NULL));
	delete_crypto();
	CU_ASSERT_EQUAL(make_crypto("k", "k2"), -EPERM);
	journal_answers();
	CU_ASSERT_TRUE_FATAL(fixture_poll(journal_is_free, NULL));
	make_crypto_again();
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_ended, NULL));
	expect_plain(BLOCKS);
	unmake_all();
	unmake_silent();
}

/* Nobody has to ask for it. */
static void test_a_journal_that_answers_late_is_gone_on_with(void)
{
	static uint8_t in[BLOCK];

	first_header_is_kept();
	CU_ASSERT_EQUAL(user_io(&users[0], BDEV_IO_READ, in, 5, 1), NVME_SC_NS_NOT_READY);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_failed, NULL));
	memset(&told, 0, sizeof(told));
	journal_answers();
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
	rekey_to_the_end("EE_j1");
	unmake_journal_that_fails();
	unmake_all();
	CU_ASSERT_EQUAL(fixture_delete(bdev_error_delete, "EE_j1"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "j1"), 0);
}

/* The bdev is made with it again, as a configuration has it that was not saved again. */
static void former_says_nothing(void)
{
	delete_crypto();
	make_crypto_again();
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_failed, NULL));
	CU_ASSERT_PTR_NOT_NULL(strstr(rekey_shown("error"), "has none that counts"));
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
	former_says_nothing();
	CU_ASSERT_EQUAL(user_io(&users[0], BDEV_IO_READ, in, 300, 1), NVME_SC_NS_NOT_READY);
	rekey_to_the_end("j1");
	unmake_all();
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "j1"), 0);
}

static void test_a_former_journal_becomes_void_although_it_is_reset_meanwhile(void)
{
	make_all();
	make_journal_that_fails();
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "EE_j0", 1), 0);
	rekey_stop();
	make_malloc("j1", 4096, REKEY_JOURNAL_BYTES / 4096);
	abort_writes("EE_j0", 1);
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "j1", 1), 0);
	rekey_stop();
	unmake_journal_that_fails();
	former_says_nothing();
	rekey_to_the_end("j1");
	unmake_all();
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "j1"), 0);
}

/* A rekey whose journal is removed, and which goes on with another one. */
static void former_goes(void)
{
	make_all();
	make_silent();
	CU_ASSERT_EQUAL_FATAL(testdev_register(silent), 0);
	make_journal_that_fails();
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "EE_j0", 1), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_moved, &(uint64_t){256}));
	rekey_stop();
	unmake_journal_that_fails();
	make_malloc("j1", 4096, REKEY_JOURNAL_BYTES / 4096);
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "j1", 1), 0);
	rekey_stop();
	CU_ASSERT_FALSE(silent_is_void(NULL));
}

static void unmake_former(void)
{
	unmake_all();
	CU_ASSERT_TRUE(testdev_delete(silent));
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "j1"), 0);
}

static void test_a_former_journal_that_was_removed_becomes_void_when_it_comes_back(void)
{
	former_goes();
	make_journal_that_fails();
	CU_ASSERT_TRUE(fixture_poll(silent_is_void, NULL));
	unmake_journal_that_fails();
	rekey_to_the_end("j1");
	unmake_former();
}

static bool some_rounds(void *arg)
{
	return --*(int *)arg < 0;
}

/* By another name the rekey has gone on with it meanwhile. */
static void test_a_journal_that_counts_again_does_not_become_void(void)
{
	former_goes();
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "j0", 1), 0);
	rekey_stop();
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "j1"), 0);
	make_journal_that_fails();
	for (int n = 100; !fixture_poll(some_rounds, &n);) {
	}
	CU_ASSERT_FALSE(silent_is_void(NULL));
	unmake_journal_that_fails();
	delete_crypto();
	make_crypto_again();
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_ended, NULL));
	expect_plain(BLOCKS);
	make_malloc("j1", 4096, REKEY_JOURNAL_BYTES / 4096);
	unmake_former();
}

static void wait_some_rounds(void)
{
	for (int n = 100; !fixture_poll(some_rounds, &n);) {
	}
}

/* Somebody has used the bdev since: what is there now is not written over, though one header is left. */
static void former_is_used(unsigned slot)
{
	static uint8_t pattern[4096];
	uint8_t *used;
	struct user u;

	make_all();
	make_silent();
	CU_ASSERT_EQUAL_FATAL(testdev_register(silent), 0);
	make_journal_that_fails();
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "EE_j0", 1), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_moved, &(uint64_t){256}));
	rekey_stop();
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "EE_j0", true, fixture_thread(0)), 0);
	memset(pattern, 0x5a, sizeof(pattern));
	used = silent->memory + (size_t)slot * REKEY_HEADER_STRIDE;
	memcpy(used, pattern, sizeof(pattern));
	make_malloc("j1", 4096, REKEY_JOURNAL_BYTES / 4096);
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "j1", 1), 0);
	rekey_stop();
	user_close(&u);
	unmake_journal_that_fails();
	make_journal_that_fails();
	wait_some_rounds();
	CU_ASSERT_EQUAL(memcmp(used, pattern, sizeof(pattern)), 0);
	CU_ASSERT_FALSE(silent_is_void(NULL));
	unmake_journal_that_fails();
	rekey_to_the_end("j1");
	unmake_former();
}

static void test_a_former_journal_that_others_have_used_is_left_as_it_is(void)
{
	former_is_used(0);
	former_is_used(1);
}

/* What was sent to the late one may be written yet: the rekey does not go on with it, and with another path neither. */
static void test_a_late_journal_by_another_name_is_refused(void)
{
	rekey_is_kept();
	journal_waits_us(1000);
	CU_ASSERT_EQUAL(bdev_error_resume_pending("EE_m0", error), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_failed, NULL));
	journal_waits_us(10000000);
	make_malloc("j1", 512, REKEY_JOURNAL_BYTES / 512);
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "j1", 1), 0);
	memset(&told, 0, sizeof(told));
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "j1"), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_failed, NULL));
	struct testdev *twin = testdev_new("j2", 512, REKEY_JOURNAL_BYTES / 512);
	uint8_t *own = twin->memory;
	twin->memory = silent->memory;
	CU_ASSERT_EQUAL_FATAL(testdev_register(twin), 0);
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "j2", 1), -EEXIST);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "may still be written"));
	journal_answers();
	CU_ASSERT_TRUE(fixture_poll(silent_is_void, NULL));
	CU_ASSERT_TRUE(fixture_poll(journal_is_free, NULL));
	CU_ASSERT_EQUAL_FATAL(rekey("k2", "j2", 1), 0);
	rekey_stop();
	wait_some_rounds();
	CU_ASSERT_FALSE(silent_is_void(NULL)); /* it counts */
	rekey_to_the_end("j2");
	expect_plain(BLOCKS);
	unmake_all();
	twin->memory = own;
	CU_ASSERT_TRUE(testdev_delete(twin));
	unmake_silent();
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
	make_crypto_again();
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_failed, NULL));
	CU_ASSERT_PTR_NOT_NULL(strstr(rekey_shown("error"), "another rekey"));
	unmake_all();
}

static const struct unit_test tests[] = {
	UNIT(test_a_journal_that_goes_stops_it_and_one_that_comes_goes_on),
	UNIT(test_a_stop_stays_one_although_the_journal_goes_and_comes),
	UNIT(test_a_rekey_that_waits_for_its_journal_can_be_stopped),
	UNIT(test_a_bdev_that_comes_in_place_of_the_journal_is_left_as_it_is),
	UNIT(test_the_journal_by_another_name_is_refused),
	UNIT(test_a_journal_that_does_not_answer_keeps_nobody_waiting),
	UNIT(test_a_journal_that_does_not_answer_does_not_keep_the_bdev),
	UNIT(test_a_journal_that_answers_late_is_gone_on_with),
	UNIT(test_a_journal_that_fails_at_once_does_not_take_the_place_of_the_right_one),
	UNIT(test_a_former_journal_becomes_void),
	UNIT(test_a_former_journal_becomes_void_although_it_is_reset_meanwhile),
	UNIT(test_a_former_journal_that_was_removed_becomes_void_when_it_comes_back),
	UNIT(test_a_journal_that_counts_again_does_not_become_void),
	UNIT(test_a_former_journal_that_others_have_used_is_left_as_it_is),
	UNIT(test_a_late_journal_by_another_name_is_refused),
	UNIT(test_the_journal_of_another_bdev_whose_name_is_no_text_is_refused),
	UNIT_END,
};
UNIT_MAIN("bdev_crypto_rekey_lost", tests, rekey_kit_start, fixture_stop)

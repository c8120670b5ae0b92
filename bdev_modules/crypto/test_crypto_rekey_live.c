/* SPDX-License-Identifier: BSD-3-Clause */
/* Rekeys of crypto bdevs under I/O, on several threads: what users read stays what they wrote, whatever comes
 * meanwhile. */
#include <errno.h>
#include <jansson.h>

#include "bdev_modules/crypto/crypto.h"
#include "bdev_modules/crypto/internal.h"
#include "bdev_modules/crypto/keys.h"
#include "bdev_modules/crypto/rekey_journal.h"
#include "bdev_modules/crypto/test_crypto_rekey_kit.h"

static void test_all_blocks_get_the_new_key_while_threads_read_and_write(void)
{
	make_all();
	rekey_reads(50);
	for (unsigned i = 0; i < 20; i++) {
		user_acts_from(i, 256, BLOCKS);
	}
	CU_ASSERT_EQUAL(told.ended, 0);
	CU_ASSERT_EQUAL(bdev_error_resume_pending("EE_m0", error), 0);
	for (unsigned i = 0; told.ended == 0; i++) {
		user_acts(i, BLOCKS);
	}
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
	make_crypto_again();
	expect_plain(BLOCKS);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_ended, NULL));
	expect_plain(BLOCKS);
	expect_key("k2", "k");
	/* The journal says that it has ended: whoever has not saved the configuration since gets the new key. */
	delete_crypto();
	make_crypto_again();
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
	rekey_to_the_end("j0");
	expect_key("k2", "k");
	unmake_all();
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

static struct request *submit(enum bdev_io_type type, struct iovec *iov, uint64_t at, uint64_t blocks)
{
	struct request *r = request_new(&users[0]);

	bdev_io_set_rw(r->io, type, iov, iov != NULL, at, blocks);
	request_submit(r);
	return r;
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
	rekey_reads(0);
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
	rekey_reads(0);
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
	rekey_holds(0);
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
	rekey_to_the_end("j0");
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
	rekey_to_the_end("j0");
	expect_key("k2", "k");
	unmake_all();
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
	rekey_to_the_end("EE_j0");
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

/* What was read, and not stored anywhere, is left: the chunk keeps the old key. */
static void test_a_stop_does_not_wait_for_a_chunk_that_is_not_under_way(void)
{
	make_all();
	rekey_reads(0);
	CU_ASSERT_EQUAL_FATAL(bdev_crypto_rekey_stop("c0", told_stopped, NULL, error), 0);
	CU_ASSERT_EQUAL(bdev_error_resume_pending("EE_m0", error), 0);
	CU_ASSERT_TRUE_FATAL(fixture_wait(&told.stopped));
	CU_ASSERT_EQUAL(rekey_position(), 0);
	CU_ASSERT_STRING_EQUAL(rekey_shown("state"), "stopped");
	expect_plain(BLOCKS);
	rekey_to_the_end("j0");
	unmake_all();
}

static const struct unit_test tests[] = {
	UNIT(test_all_blocks_get_the_new_key_while_threads_read_and_write),
	UNIT(test_it_stops_and_goes_on_and_the_bdev_is_made_again_in_the_middle),
	UNIT(test_what_cannot_be_is_refused),
	UNIT(test_a_base_that_cannot_be_written_fails_the_chunk_alone),
	UNIT(test_io_of_the_chunk_waits_and_can_be_ended_and_other_io_goes_on),
	UNIT(test_io_that_waited_is_carried_out_with_the_new_key),
	UNIT(test_a_chunk_waits_for_writes_in_flight_and_a_stop_does_not),
	UNIT(test_a_bdev_that_grows_meanwhile_gets_the_new_key_there_too),
	UNIT(test_a_base_that_goes_and_comes_goes_on),
	UNIT(test_it_is_made_when_base_and_journal_are_there),
	UNIT(test_a_deletion_ends_it_at_once),
	UNIT(test_io_that_is_aborted_again_and_again_fails_it_and_is_no_stop),
	UNIT(test_the_same_key_by_another_name_is_refused),
	UNIT(test_a_stop_does_not_wait_for_a_chunk_that_is_not_under_way),
	UNIT_END,
};

UNIT_MAIN("bdev_crypto_rekey_live", tests, rekey_kit_start, fixture_stop)

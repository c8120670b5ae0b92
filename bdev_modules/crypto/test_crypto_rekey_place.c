/* SPDX-License-Identifier: BSD-3-Clause */
/* What a rekey stands on, and what stands on the bdev: its journal may not need the bdev whose I/O the rekey holds,
 * whatever lies between, no other process may be able to use the base, and a store on the bdev is found again. */
#include <errno.h>

#include "bdev/owner.h"
#include "bdev_modules/crypto/crypto.h"
#include "bdev_modules/crypto/internal.h"
#include "bdev_modules/crypto/keys.h"
#include "bdev_modules/crypto/rekey_journal.h"
#include "bdev_modules/error/error.h"
#include "bdev_modules/lvol/bdev_lvol.h"
#include "bdev_modules/lvol/internal.h"
#include "bdev_modules/passthru/passthru.h"
#include "unittest/bdev/fixture.h"

#define KEY_1  "2718281828459045235360287471352662497757247093699959574966967627"
#define KEY_2  "3141592653589793238462643383279502884197169399375105820974944592"
#define BLOCKS 4096u /* 16 MiB */

static char error[BDEV_ERROR_MAX];

static struct answer {
	atomic_bool done;
	int rc;
} answer;

static void answered(void *arg, int rc, const char *why)
{
	answer.rc = rc;
	set_done(&answer.done);
}

static void store_answered(void *arg, int rc, const char *why, const char *uuid)
{
	answered(arg, rc, why);
}

static int answer_wait(void)
{
	CU_ASSERT_TRUE_FATAL(fixture_wait(&answer.done));
	return answer.rc;
}

/* 0: it has begun. It is so slow that it does not end. */
static int rekey(const char *name, const char *journal)
{
	const struct bdev_crypto_rekey_opts opts = {
		.name = name, .key_name = "k2", .journal_bdev_name = journal, .mib_per_second = 1};

	memset(&answer, 0, sizeof(answer));
	int rc = bdev_crypto_rekey(&opts, answered, NULL, error);
	return rc != 0 ? rc : answer_wait();
}

static void rekey_stop(const char *name)
{
	memset(&answer, 0, sizeof(answer));
	CU_ASSERT_EQUAL_FATAL(bdev_crypto_rekey_stop(name, answered, NULL, error), 0);
	(void)answer_wait();
}

static void make_crypto(const char *name, const char *base)
{
	const struct bdev_crypto_opts opts = {.name = name, .base_bdev_name = base, .key_name = "k1"};

	CU_ASSERT_EQUAL_FATAL(bdev_crypto_create(&opts, error), 0);
}

static void make_passthru(const char *name, const char *base)
{
	CU_ASSERT_EQUAL_FATAL(bdev_passthru_create(name, base, NULL, error), 0);
}

static void make_two(void)
{
	make_malloc("m0", 4096, BLOCKS);
	make_malloc("m1", 4096, BLOCKS);
	make_malloc("j0", 4096, BLOCKS);
	make_crypto("c0", "m0");
	make_crypto("c1", "m1");
}

static void unmake_two(void)
{
	CU_ASSERT_EQUAL(fixture_delete(bdev_crypto_delete, "c0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_crypto_delete, "c1"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m1"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "j0"), 0);
}

static void expect_refused(const char *name, const char *journal, const char *why)
{
	CU_ASSERT_EQUAL(rekey(name, journal), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, why));
	CU_ASSERT_EQUAL(crypto_key_users(crypto_key_find("k2")), 0);
}

static struct bdev_lvol_store *make_store(const char *bdev)
{
	int rc;

	memset(&answer, 0, sizeof(answer));
	bdev_lvol_store_create(
		&(struct bdev_lvol_store_opts){.bdev_name = bdev, .name = "s", .cluster_bytes = 64u << 10},
		store_answered, NULL);
	CU_ASSERT_EQUAL_FATAL(answer_wait(), 0);
	return bdev_lvol_store_find(NULL, "s", &rc, error);
}

static void make_volume(struct bdev_lvol_store *s)
{
	memset(&answer, 0, sizeof(answer));
	bdev_lvol_create(&(struct bdev_lvol_opts){.store = s, .name = "v", .size_bytes = REKEY_JOURNAL_BYTES},
			 store_answered, NULL);
	CU_ASSERT_EQUAL_FATAL(answer_wait(), 0);
}

static void clone_bdev(struct bdev_lvol_store *s, const char *bdev)
{
	memset(&answer, 0, sizeof(answer));
	bdev_lvol_clone_bdev(s, bdev, "v", store_answered, NULL);
	CU_ASSERT_EQUAL_FATAL(answer_wait(), 0);
}

static void delete_store(struct bdev_lvol_store *s)
{
	memset(&answer, 0, sizeof(answer));
	bdev_lvol_store_delete(s, store_answered, NULL);
	CU_ASSERT_EQUAL_FATAL(answer_wait(), 0);
}

static void test_a_journal_on_a_volume_of_the_bdev_is_refused(void)
{
	make_two();
	make_passthru("p0", "c0");
	struct bdev_lvol_store *s = make_store("p0");
	make_volume(s);
	expect_refused("c0", "s/v", "stands on the crypto bdev");
	CU_ASSERT_EQUAL_FATAL(rekey("c1", "s/v"), 0); /* another one's */
	rekey_stop("c1");
	CU_ASSERT_EQUAL(fixture_delete(bdev_crypto_delete, "c1"), 0);
	delete_store(s);
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p0"), 0);
	make_crypto("c1", "m1");
	unmake_two();
}

/* A volume of another store that reads the bdev as long as a cluster has not been written. */
static void test_a_journal_that_reads_the_bdev_is_refused(void)
{
	make_two();
	struct bdev_lvol_store *s = make_store("j0");
	clone_bdev(s, "c0");
	expect_refused("c0", "s/v", "stands on the crypto bdev");
	delete_store(s);
	unmake_two();
}

/* Nobody looks further than so far. */
static void test_a_journal_whose_bases_cannot_be_told_is_refused(void)
{
	char name[8], base[8];

	make_two();
	for (int i = 1; i <= 20; i++) {
		snprintf(name, sizeof(name), "j%d", i);
		snprintf(base, sizeof(base), "j%d", i - 1);
		make_passthru(name, base);
	}
	expect_refused("c0", "j20", "cannot be told");
	for (int i = 20; i > 0; i--) {
		snprintf(name, sizeof(name), "j%d", i);
		CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, name), 0);
	}
	unmake_two();
}

/* A kind of bdev that does not tell whether it stands on others. */
static void test_a_journal_of_a_module_that_does_not_tell_is_refused(void)
{
	struct bdev_ops ops;

	make_two();
	struct bdev *j = bdev_find("j0");
	const struct bdev_ops *usual = j->ops;
	ops = *usual;
	ops.bases = NULL;
	j->ops = &ops;
	expect_refused("c0", "j0", "cannot be told");
	j->ops = usual;
	unmake_two();
}

static void test_two_bdevs_with_their_journals_on_each_other_are_refused(void)
{
	make_two();
	CU_ASSERT_EQUAL(fixture_delete(bdev_crypto_delete, "c1"), 0);
	make_crypto("c1", "j0");
	CU_ASSERT_EQUAL_FATAL(rekey("c0", "c1"), 0);
	rekey_stop("c0"); /* after a restart each would wait for the other one */
	make_passthru("p0", "c0");
	CU_ASSERT_EQUAL(rekey("c1", "p0"), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "stands on the crypto bdev"));
	CU_ASSERT_EQUAL_FATAL(rekey("c1", "m1"), 0);
	rekey_stop("c1");
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p0"), 0);
	unmake_two();
}

static const struct bdev_owner_ops no_owner_ops;

static void test_a_base_that_other_processes_may_own_is_refused(void)
{
	struct bdev_owner owner;

	make_two();
	CU_ASSERT_EQUAL(fixture_delete(bdev_crypto_delete, "c0"), 0);
	make_passthru("p0", "m0");
	make_crypto("c0", "p0");
	bdev_owner_init(&owner, bdev_find("m0"), &no_owner_ops);
	CU_ASSERT_TRUE(bdev_has_owner(bdev_find("m0")));
	CU_ASSERT_FALSE(bdev_has_owner(bdev_find("m1")));
	CU_ASSERT_EQUAL(rekey("c0", "j0"), -ENOTSUP);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "standby"));
	CU_ASSERT_EQUAL(crypto_key_users(crypto_key_find("k2")), 0);
	CU_ASSERT_EQUAL_FATAL(rekey("c1", "j0"), 0);
	rekey_stop("c1");
	bdev_owner_fini(&owner);
	CU_ASSERT_EQUAL(fixture_delete(bdev_crypto_delete, "c0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p0"), 0);
	make_crypto("c0", "m0");
	unmake_two();
}

/* A bdev that waits would wait for another one. */
static void test_names_that_are_too_long_are_refused(void)
{
	char name[300];
	const struct bdev_crypto_opts opts = {.name = "c0",
					      .base_bdev_name = "none",
					      .key_name = "k1",
					      .rekey_key_name = "k2",
					      .rekey_journal_bdev_name = name};

	memset(name, 'j', sizeof(name));
	name[256] = 0;
	CU_ASSERT_EQUAL(bdev_crypto_create(&opts, error), -EINVAL);
	name[255] = 0;
	CU_ASSERT_EQUAL(bdev_crypto_create(&opts, error), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_crypto_delete, "c0"), 0);
}

static unsigned failures;

static void told_news(const char *bdev, enum bdev_crypto_rekey_news news, const char *reason)
{
	failures += news == BDEV_CRYPTO_REKEY_FAILED;
	fixture_wake();
}

static bool has_failed(void *arg)
{
	return failures != 0;
}

static bool volume_is_there(void *arg)
{
	return bdev_find("s/v") != NULL;
}

static bool volume_is_gone(void *arg)
{
	return bdev_find("s/v") == NULL;
}

static bool always(void *arg)
{
	return --*(int *)arg < 0;
}

/* c0 is gone, in the middle of a rekey, with a store on it that has a volume. */
static void store_goes(const char *journal)
{
	make_volume(make_store("c0"));
	CU_ASSERT_EQUAL_FATAL(rekey("c0", journal), 0);
	rekey_stop("c0");
	CU_ASSERT_EQUAL(fixture_delete(bdev_crypto_delete, "c0"), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(volume_is_gone, NULL));
}

static void stop_and_delete_store(void)
{
	int rc;

	rekey_stop("c0");
	delete_store(bdev_lvol_store_find(NULL, "s", &rc, error));
}

/* While the bdev could not be read the store on it was taken for none. */
static void test_what_stands_on_it_is_found_when_it_can_be_read_again(void)
{
	const struct bdev_crypto_opts wrong = {.name = "c0",
					       .base_bdev_name = "m0",
					       .key_name = "k1",
					       .rekey_key_name = "k2",
					       .rekey_journal_bdev_name = "m1"};

	make_two();
	CU_ASSERT_EQUAL(fixture_delete(bdev_crypto_delete, "c1"), 0);
	store_goes("j0");
	failures = 0;
	CU_ASSERT_EQUAL_FATAL(bdev_crypto_create(&wrong, error), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_failed, NULL)); /* m1 has no journal */
	for (int n = 100; !fixture_poll(always, &n);) {       /* some rounds */
	}
	CU_ASSERT_FALSE(volume_is_there(NULL));
	CU_ASSERT_EQUAL_FATAL(rekey("c0", "j0"), 0);
	CU_ASSERT_TRUE(fixture_poll(volume_is_there, NULL));
	stop_and_delete_store();
	make_crypto("c1", "m1");
	unmake_two();
}

static const struct bdev_crypto_opts in_the_middle = {.name = "c0",
						      .base_bdev_name = "m0",
						      .key_name = "k1",
						      .rekey_key_name = "k2",
						      .rekey_journal_bdev_name = "EE_j0"};

static void make_two_with_store(void)
{
	make_two();
	CU_ASSERT_EQUAL_FATAL(bdev_error_create("j0", NULL, NULL, error), 0);
	store_goes("EE_j0");
}

static void unmake_two_with_store(void)
{
	stop_and_delete_store();
	CU_ASSERT_EQUAL(fixture_delete(bdev_error_delete, "EE_j0"), 0);
	unmake_two();
}

static void wait_until_nobody_looks(void)
{
	static atomic_bool done;
	static struct bdev_examine_waiter w = {.done = set_done, .arg = &done};

	atomic_store(&done, false);
	bdev_wait_for_examine(&w);
	CU_ASSERT_TRUE_FATAL(fixture_wait(&done));
}

/* Later than somebody waits who looks for a store. */
static void test_what_stands_on_it_is_found_although_the_journal_answers_late(void)
{
	const struct bdev_error_injection kept = {.type = BDEV_IO_READ, .kind = BDEV_ERROR_PENDING, .num = 1};

	make_two_with_store();
	CU_ASSERT_EQUAL_FATAL(bdev_error_inject("EE_j0", &kept, error), 0);
	lvol_patience.probe_us = 1000;
	CU_ASSERT_EQUAL_FATAL(bdev_crypto_create(&in_the_middle, error), 0);
	wait_until_nobody_looks();
	lvol_patience.probe_us = 10000000;
	CU_ASSERT_FALSE(volume_is_there(NULL));
	CU_ASSERT_EQUAL_FATAL(bdev_error_resume_pending("EE_j0", error), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(volume_is_there, NULL));
	unmake_two_with_store();
}

static bool can_be_read(void *arg)
{
	return ((const struct crypto_bdev *)bdev_find("c0"))->keys->held_end != UINT64_MAX;
}

static void examine_by_itself(bool itself)
{
	struct bdev_opts opts;

	bdev_get_opts(&opts);
	opts.auto_examine = itself;
	CU_ASSERT_EQUAL_FATAL(bdev_set_opts(&opts), 0);
}

static void test_what_stands_on_it_is_not_looked_for_where_nobody_looks_by_itself(void)
{
	make_two_with_store();
	examine_by_itself(false);
	CU_ASSERT_EQUAL_FATAL(bdev_crypto_create(&in_the_middle, error), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(can_be_read, NULL));
	wait_until_nobody_looks();
	CU_ASSERT_FALSE(volume_is_there(NULL));
	examine_by_itself(true);
	CU_ASSERT_EQUAL(bdev_examine("c0"), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(volume_is_there, NULL));
	unmake_two_with_store();
}

static const struct unit_test tests[] = {
	UNIT(test_a_journal_on_a_volume_of_the_bdev_is_refused),
	UNIT(test_a_journal_that_reads_the_bdev_is_refused),
	UNIT(test_a_journal_whose_bases_cannot_be_told_is_refused),
	UNIT(test_a_journal_of_a_module_that_does_not_tell_is_refused),
	UNIT(test_two_bdevs_with_their_journals_on_each_other_are_refused),
	UNIT(test_a_base_that_other_processes_may_own_is_refused),
	UNIT(test_names_that_are_too_long_are_refused),
	UNIT(test_what_stands_on_it_is_found_when_it_can_be_read_again),
	UNIT(test_what_stands_on_it_is_found_although_the_journal_answers_late),
	UNIT(test_what_stands_on_it_is_not_looked_for_where_nobody_looks_by_itself),
	UNIT_END,
};

static int start(void)
{
	const struct crypto_key_opts first = {.name = "k1", .key = KEY_1, .key2 = KEY_2};
	const struct crypto_key_opts second = {.name = "k2", .key = KEY_2, .key2 = KEY_1};

	bdev_crypto_observe_rekeys(told_news);
	return fixture_start() != 0 || crypto_key_create(&first, error) != 0 || crypto_key_create(&second, error) != 0;
}
UNIT_MAIN("bdev_crypto_rekey_place", tests, start, fixture_stop)

/* SPDX-License-Identifier: BSD-3-Clause */
/* Watchers of an image that do not answer: who is blocklisted, and who is not. */
#include "unittest/bdev_modules/rbd_kit.h"

struct fenced {
	atomic_bool done;
	int rc;
	size_t n;
	char text[BDEV_ERROR_MAX]; /* the first address, or the error */
};

static void on_fenced(void *arg, int rc, const char *error, const char *const *addresses, size_t n)
{
	struct fenced *f = arg;

	f->rc = rc;
	f->n = n;
	snprintf(f->text, sizeof(f->text), "%s", rc != 0 ? error : n != 0 ? addresses[0] : "");
	set_done(&f->done);
}

static int fence_silent(const char *name, const char *clients, uint64_t until_us, struct fenced *f)
{
	*f = (struct fenced){.rc = 1};
	bdev_rbd_fence_silent(name, clients, until_us, on_fenced, f);
	CU_ASSERT_TRUE_FATAL(fixture_wait(&f->done));
	return f->rc;
}

static void test_a_watcher_that_does_not_answer_is_blocklisted(void)
{
	const char *clients = "127.0.0.1:0/1,[v2:127.0.0.1:0/5,v1:" FAKE_OTHER "]";
	struct fenced f;

	CU_ASSERT_EQUAL_FATAL(create_standby("R0"), 0);
	CU_ASSERT_EQUAL(fence_silent("R0", clients, UINT64_MAX, &f), 0);
	CU_ASSERT_EQUAL(f.n, 0); /* it answers */
	fake.silent = true;
	CU_ASSERT_EQUAL(fence_silent("R0", "127.0.0.1:0/1", UINT64_MAX, &f), 0);
	CU_ASSERT_EQUAL(f.n, 0); /* it was not asked for */
	CU_ASSERT_EQUAL(fence_silent("R0", clients, 1, &f), -ETIME);
	CU_ASSERT_EQUAL(fake.blocklisted, 0);
	CU_ASSERT_EQUAL(fence_silent("R0", clients, UINT64_MAX, &f), 0);
	CU_ASSERT_EQUAL(fake.blocklisted, 1);
	CU_ASSERT_EQUAL(f.n, 1);
	CU_ASSERT_STRING_EQUAL(f.text, FAKE_OTHER);
	CU_ASSERT_EQUAL(fixture_delete(bdev_rbd_delete, "R0"), 0);
	check_nothing_is_left();
}

static void test_a_watcher_that_answers_when_it_is_asked_again_is_left_alone(void)
{
	struct fenced f;

	fake.silent = true;
	fake.silent_times = 1;
	fake.notifies = 0;
	CU_ASSERT_EQUAL_FATAL(create_standby("R0"), 0);
	CU_ASSERT_EQUAL(fence_silent("R0", FAKE_OTHER, UINT64_MAX, &f), 0);
	CU_ASSERT_EQUAL(f.n + fake.blocklisted, 0);
	CU_ASSERT_EQUAL(fake.notifies, 2);
	CU_ASSERT_EQUAL(fixture_delete(bdev_rbd_delete, "R0"), 0);
	check_nothing_is_left();
}

static void test_who_has_the_lock_is_not_asked(void)
{
	struct fenced f;

	fake.silent = true;
	fake.notifies = 0;
	fake.lock_owner = FAKE_LOCK_OTHER;
	CU_ASSERT_EQUAL_FATAL(create_standby("R0"), 0);
	CU_ASSERT_EQUAL(fence_silent("R0", FAKE_OTHER, UINT64_MAX, &f), 0);
	CU_ASSERT_EQUAL(f.n + fake.blocklisted + fake.notifies, 0);
	fake.lock_owner = FAKE_LOCK_FREE;
	CU_ASSERT_EQUAL(fixture_delete(bdev_rbd_delete, "R0"), 0);
	check_nothing_is_left();
}

static void test_who_takes_the_lock_while_it_is_asked_is_left_alone(void)
{
	struct fenced f = {.rc = 1};

	fake.silent = true;
	CU_ASSERT_EQUAL_FATAL(create_standby("R0"), 0);
	fake.hold_notify = true;
	bdev_rbd_fence_silent("R0", FAKE_OTHER, UINT64_MAX, on_fenced, &f);
	CU_ASSERT_TRUE(fixture_poll(lock_waits, NULL));
	fake.lock_owner = FAKE_LOCK_OTHER;
	fake.hold_notify = false;
	CU_ASSERT_TRUE(fixture_wait(&f.done));
	CU_ASSERT_EQUAL(f.rc, 0);
	CU_ASSERT_EQUAL(f.n + fake.blocklisted, 0);
	fake.lock_owner = FAKE_LOCK_FREE;
	CU_ASSERT_EQUAL(fixture_delete(bdev_rbd_delete, "R0"), 0);
	check_nothing_is_left();
}

static void test_a_second_search_is_refused_while_one_is_under_way(void)
{
	struct fenced f = {.rc = 1}, second = {.rc = 1}, third;

	CU_ASSERT_EQUAL_FATAL(create_standby("R0"), 0);
	fake.hold_notify = true;
	bdev_rbd_fence_silent("R0", FAKE_OTHER, UINT64_MAX, on_fenced, &f);
	CU_ASSERT_TRUE(fixture_poll(lock_waits, NULL));
	bdev_rbd_fence_silent("R0", FAKE_OTHER, UINT64_MAX, on_fenced, &second);
	CU_ASSERT_EQUAL(second.rc, -EBUSY);
	CU_ASSERT_PTR_NOT_NULL(strstr(second.text, "asked already"));
	fake.hold_notify = false;
	CU_ASSERT_TRUE(fixture_wait(&f.done));
	CU_ASSERT_TRUE(fixture_wait(&second.done));
	CU_ASSERT_EQUAL(fence_silent("R0", FAKE_OTHER, UINT64_MAX, &third), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_rbd_delete, "R0"), 0);
	check_nothing_is_left();
}

static void test_this_client_is_not_blocklisted_although_it_is_silent(void)
{
	struct fenced f;

	fake.addr_is_other = true;
	fake.silent = true;
	CU_ASSERT_EQUAL_FATAL(create_standby("R0"), 0);
	CU_ASSERT_EQUAL(fence_silent("R0", FAKE_OTHER, UINT64_MAX, &f), 0);
	CU_ASSERT_EQUAL(f.n + fake.blocklisted, 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_rbd_delete, "R0"), 0);
	check_nothing_is_left();
}

static void check_silent_fails(atomic_int *what, int rc)
{
	struct fenced f;

	atomic_store(what, rc);
	CU_ASSERT_EQUAL(fence_silent("R0", FAKE_OTHER, UINT64_MAX, &f), rc);
	CU_ASSERT_PTR_NOT_NULL(strstr(f.text, "image"));
	CU_ASSERT_EQUAL(f.n, 0);
	atomic_store(what, 0);
}

static void test_nobody_is_blocklisted_when_the_cluster_does_not_say_who_is_silent(void)
{
	struct fenced f;

	CU_ASSERT_EQUAL(fence_silent("R0", FAKE_OTHER, UINT64_MAX, &f), -ENODEV);
	CU_ASSERT_EQUAL_FATAL(create_standby("R0"), 0);
	fake.silent = true;
	check_silent_fails(&fake.watchers_rc, -ERANGE);
	check_silent_fails(&fake.id_rc, -EINVAL);
	check_silent_fails(&fake.notify_rc, -EIO);
	check_silent_fails(&fake.break_rc, -EPERM);
	for (unsigned cut = 1; cut <= 44; cut++) {
		fake.cut = cut;
		CU_ASSERT_EQUAL(fence_silent("R0", FAKE_OTHER, UINT64_MAX, &f), -EBADMSG);
	}
	fake.cut = 0;
	CU_ASSERT_EQUAL(fake.blocklisted, 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_rbd_delete, "R0"), 0);
	check_nothing_is_left();
}

static void test_a_deletion_waits_until_watchers_have_answered(void)
{
	struct answer deleted = {.rc = 1};
	struct fenced f = {.rc = 1};

	CU_ASSERT_EQUAL_FATAL(create_standby("R0"), 0);
	fake.hold_notify = true;
	bdev_rbd_fence_silent("R0", FAKE_OTHER, UINT64_MAX, on_fenced, &f);
	CU_ASSERT_TRUE(fixture_poll(lock_waits, NULL));
	bdev_rbd_delete("R0", note_deleted, &deleted);
	CU_ASSERT_EQUAL(fake.closes, 0);
	fake.hold_notify = false;
	CU_ASSERT_TRUE(fixture_wait(&f.done));
	CU_ASSERT_EQUAL(f.rc, 0);
	CU_ASSERT_EQUAL(answer_rc(&deleted), 0);
	check_nothing_is_left();
}

static const struct unit_test tests[] = {
	UNIT(test_a_watcher_that_does_not_answer_is_blocklisted),
	UNIT(test_a_watcher_that_answers_when_it_is_asked_again_is_left_alone),
	UNIT(test_who_has_the_lock_is_not_asked),
	UNIT(test_who_takes_the_lock_while_it_is_asked_is_left_alone),
	UNIT(test_a_second_search_is_refused_while_one_is_under_way),
	UNIT(test_this_client_is_not_blocklisted_although_it_is_silent),
	UNIT(test_nobody_is_blocklisted_when_the_cluster_does_not_say_who_is_silent),
	UNIT(test_a_deletion_waits_until_watchers_have_answered),
	UNIT_END,
};

UNIT_MAIN("bdev_rbd_silent", tests, rbd_kit_start, rbd_kit_end)

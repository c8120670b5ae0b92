/* SPDX-License-Identifier: BSD-3-Clause */
/* What is under way in Ceph's libraries is listed, with what it waits for. */
#include "unittest/bdev_modules/rbd_kit.h"

static bool nothing_is_under_way(void *arg)
{
	struct bdev_rbd_job_info job;

	return !bdev_rbd_get_job(0, &job);
}

static bool is_in_call(void *call)
{
	struct bdev_rbd_job_info job;

	return bdev_rbd_get_job(0, &job) && job.call != NULL && strcmp(job.call, call) == 0 && fake.waiting == 1;
}

/* There is one job: of the bdev R, or, image NULL, of a connection; it is in that call. */
static void check_job(const char *name, char *call, const char *image)
{
	struct bdev_rbd_job_info job;
	char text[256] = "";

	CU_ASSERT_TRUE_FATAL(fixture_poll(is_in_call, call));
	CU_ASSERT_TRUE_FATAL(bdev_rbd_get_job(0, &job));
	CU_ASSERT_STRING_EQUAL(job.name, name);
	CU_ASSERT_EQUAL(job.image != NULL, image != NULL);
	CU_ASSERT(job.age_us < (uint64_t)600 * 1000000);
	bdev_rbd_waits_for("R", text, sizeof(text));
	CU_ASSERT_EQUAL(text[0] != '\0', image != NULL);
	bdev_rbd_describe_job(&job, text, sizeof(text));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, call));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, name));
	if (image != NULL) {
		CU_ASSERT_STRING_EQUAL(job.image, image);
		CU_ASSERT_STRING_EQUAL(job.bdev, "R");
		CU_ASSERT_STRING_EQUAL(job.pool, "rbd");
		CU_ASSERT_PTR_NOT_NULL(strstr(text, image));
	}
	CU_ASSERT_FALSE(bdev_rbd_get_job(1, &job));
}

static void test_connecting_opening_and_closing_are_listed(void)
{
	struct bdev_rbd_opts opts = opts_of("R");
	struct answer created = {.rc = 1}, deleted = {.rc = 1};

	fake.hold_connect = fake.hold_open = fake.hold_close = true;
	bdev_rbd_create(&opts, on_answer, &created);
	check_job("connect", "rados_connect", NULL);
	fake.hold_connect = false;
	check_job("open", "rbd_open", "image");
	fake.hold_open = false;
	CU_ASSERT_EQUAL(answer_rc(&created), 0);
	CU_ASSERT_TRUE(fixture_poll(nothing_is_under_way, NULL)); /* it has looked at the size once more */
	bdev_rbd_delete("R", note_deleted, &deleted);
	check_job("close", "rbd_close", "image");
	fake.hold_close = false;
	CU_ASSERT_EQUAL(answer_rc(&deleted), 0);
	check_nothing_is_left();
	CU_ASSERT_TRUE(fixture_poll(nothing_is_under_way, NULL));
}

static void test_locks_are_listed(void)
{
	struct answer a = {.rc = 1};
	char text[256] = "";

	CU_ASSERT_EQUAL_FATAL(create_standby("R"), 0);
	CU_ASSERT_TRUE(fixture_poll(nothing_is_under_way, NULL));
	bdev_owner_waits_for("R", text, sizeof(text));
	CU_ASSERT_STRING_EQUAL(text, "");
	fake.hold_lock = true;
	bdev_own("R", BDEV_OWN_FOR_EVER, false, on_answer, &a);
	check_job("take lock", "rbd_lock_get_owners", "image");
	bdev_owner_waits_for("R", text, sizeof(text));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "rbd_lock_get_owners"));
	fake.hold_lock = false;
	CU_ASSERT_EQUAL(answer_rc(&a), 0);
	CU_ASSERT_TRUE(nothing_is_under_way(NULL));
	text[0] = '\0';
	bdev_owner_waits_for("R", text, sizeof(text));
	bdev_owner_waits_for("none", text, sizeof(text));
	CU_ASSERT_STRING_EQUAL(text, "");
	CU_ASSERT_EQUAL(fixture_delete(bdev_rbd_delete, "R"), 0);
	check_nothing_is_left();
}

static void on_fenced(void *arg, int rc, const char *error, const char *const *addresses, size_t n)
{
	on_answer(arg, rc, error);
}

static void test_resizing_and_asking_are_listed(void)
{
	struct answer resized = {.rc = 1}, asked = {.rc = 1};

	CU_ASSERT_EQUAL_FATAL(create_named("R"), 0);
	CU_ASSERT_TRUE(fixture_poll(nothing_is_under_way, NULL));
	fake.hold_resize = true;
	bdev_rbd_resize("R", 2 * FAKE_IMAGE_BYTES, on_answer, &resized);
	check_job("resize", "rbd_resize2", "image");
	fake.hold_resize = false;
	CU_ASSERT_EQUAL(answer_rc(&resized), 0);
	CU_ASSERT_TRUE(fixture_poll(nothing_is_under_way, NULL));
	fake.hold_notify = true;
	bdev_rbd_fence_silent("R", FAKE_OTHER, BDEV_OWN_FOR_EVER, on_fenced, &asked);
	check_job("ask watchers", "rados_notify2", "image");
	fake.hold_notify = false;
	CU_ASSERT_EQUAL(answer_rc(&asked), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_rbd_delete, "R"), 0);
	check_nothing_is_left();
}

static const struct unit_test tests[] = {
	UNIT(test_connecting_opening_and_closing_are_listed),
	UNIT(test_locks_are_listed),
	UNIT(test_resizing_and_asking_are_listed),
	UNIT_END,
};

UNIT_MAIN("bdev_rbd_jobs", tests, rbd_kit_start, rbd_kit_end)

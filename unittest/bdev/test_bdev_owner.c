/* SPDX-License-Identifier: BSD-3-Clause */
/* Standbys and owners: each way through the states. The test stands for the module that has the lock. */
#include "bdev/owner.h"

#include <errno.h>

#include "unittest/bdev/fixture.h"

static struct testdev *dev;
static struct user user;
static struct bdev_owner owner;
static unsigned takes, gives, ends;
static bool take_now, give_now, fenced;
static int take_rc;
static atomic_uint in_flight;

static void lock_take(struct bdev_owner *o, uint64_t until_us, bool fence)
{
	takes++;
	fenced = fence;
	if (take_now) {
		bdev_owner_taken(o, take_rc, "the test does not want it");
	}
}

static void lock_give(struct bdev_owner *o)
{
	gives++;
	if (give_now) {
		bdev_owner_given(o, 0, NULL);
	}
}

static uint32_t count_in_flight(const void *channel)
{
	return atomic_load(&in_flight);
}

static const struct bdev_owner_ops ops = {.take = lock_take, .give = lock_give, .in_flight = count_in_flight};

/* What came of a call: 1 as long as it has not been answered. */
struct outcome {
	int rc;
	unsigned times;
};

static void outcome_set(void *arg, int rc, const char *error)
{
	struct outcome *o = arg;

	o->rc = rc;
	o->times++;
	CU_ASSERT_TRUE(rc == 0 || error[0] != '\0');
}

static void note_end(const char *name, const char *reason)
{
	ends++;
}

static void owner_open(void)
{
	takes = gives = ends = 0;
	take_now = give_now = true;
	take_rc = 0;
	atomic_store(&in_flight, 0);
	dev = testdev_new("own0", 512, 64);
	bdev_owner_init(&owner, &dev->bdev, &ops);
	CU_ASSERT_EQUAL_FATAL(testdev_register(dev), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&user, "own0", true, fixture_thread(0)), 0);
	bdev_owner_observe_ends(note_end);
}

static void owner_close(void)
{
	bdev_owner_observe_ends(NULL);
	bdev_owner_fini(&owner);
	user_close(&user);
	CU_ASSERT_TRUE(testdev_delete(dev));
}

static enum bdev_owner_state state_now(void)
{
	struct bdev_owner_info info;

	CU_ASSERT_TRUE_FATAL(bdev_owner_get(0, &info));
	CU_ASSERT_STRING_EQUAL(info.name, "own0");
	CU_ASSERT_EQUAL(bdev_owner_refuses(&owner), info.state != BDEV_OWNER_OWNER);
	return info.state;
}

static bool is_in_state(void *arg)
{
	return owner.state == *(const enum bdev_owner_state *)arg;
}

static bool wait_state(enum bdev_owner_state state)
{
	return fixture_poll(is_in_state, &state);
}

static uint64_t soon(uint64_t us)
{
	return bdev_owner_now_us() + us;
}

static int own(uint64_t until_us)
{
	struct outcome o = {.rc = 1};

	bdev_own("own0", until_us, false, outcome_set, &o);
	CU_ASSERT_EQUAL(o.times, 1);
	return o.rc;
}

static int disown(void)
{
	struct outcome o = {.rc = 1};

	bdev_disown("own0", outcome_set, &o);
	CU_ASSERT_EQUAL(o.times, 1);
	return o.rc;
}

static void test_an_owner_takes_the_lock_and_gives_it_back(void)
{
	owner_open();
	CU_ASSERT_EQUAL(state_now(), BDEV_OWNER_STANDBY);
	CU_ASSERT_EQUAL(disown(), 0);
	CU_ASSERT_EQUAL(gives, 0);
	CU_ASSERT_EQUAL(own(BDEV_OWN_FOR_EVER), 0);
	CU_ASSERT_EQUAL(state_now(), BDEV_OWNER_OWNER);
	CU_ASSERT_FALSE(fenced);
	CU_ASSERT_EQUAL(own(BDEV_OWN_FOR_EVER), 0);
	CU_ASSERT_EQUAL(takes, 1);
	CU_ASSERT_EQUAL(disown(), 0);
	CU_ASSERT_EQUAL(state_now(), BDEV_OWNER_STANDBY);
	CU_ASSERT_EQUAL(gives, 1);
	CU_ASSERT_EQUAL(ends, 0);
	owner_close();
}

static void test_a_lock_that_cannot_be_had_leaves_a_standby(void)
{
	owner_open();
	take_rc = -EBUSY;
	CU_ASSERT_EQUAL(own(BDEV_OWN_FOR_EVER), -EBUSY);
	CU_ASSERT_EQUAL(state_now(), BDEV_OWNER_STANDBY);
	take_rc = 0;
	CU_ASSERT_EQUAL(own(BDEV_OWN_FOR_EVER), 0);
	owner_close();
}

static void test_what_overlaps_is_refused(void)
{
	struct outcome first = {.rc = 1}, last = {.rc = 1};

	owner_open();
	take_now = give_now = false;
	bdev_own("own0", BDEV_OWN_FOR_EVER, true, outcome_set, &first);
	CU_ASSERT_EQUAL(state_now(), BDEV_OWNER_TAKING);
	CU_ASSERT_TRUE(fenced);
	CU_ASSERT_EQUAL(own(BDEV_OWN_FOR_EVER), -EBUSY);
	CU_ASSERT_EQUAL(disown(), -EBUSY);
	CU_ASSERT_EQUAL(first.times, 0);
	bdev_owner_taken(&owner, 0, NULL);
	CU_ASSERT_EQUAL(first.rc, 0);
	bdev_disown("own0", outcome_set, &last);
	CU_ASSERT_EQUAL(state_now(), BDEV_OWNER_GIVING);
	CU_ASSERT_EQUAL(own(BDEV_OWN_FOR_EVER), -EBUSY);
	CU_ASSERT_EQUAL(disown(), -EBUSY);
	bdev_owner_given(&owner, 0, NULL);
	CU_ASSERT_EQUAL(last.rc, 0);
	CU_ASSERT_EQUAL(first.times + last.times, 2);
	owner_close();
}

/* The owner hands over while so much I/O is under way. */
static void begin_hand_over(unsigned ios, struct outcome *o)
{
	owner_open();
	CU_ASSERT_EQUAL(own(BDEV_OWN_FOR_EVER), 0);
	atomic_store(&in_flight, ios);
	bdev_disown("own0", outcome_set, o);
}

static void test_the_lock_is_kept_until_io_has_ended(void)
{
	char text[128] = "";
	struct outcome o = {.rc = 1};

	begin_hand_over(3, &o);
	CU_ASSERT_EQUAL(state_now(), BDEV_OWNER_DRAINING);
	struct bdev_owner_info info;
	CU_ASSERT_TRUE(bdev_owner_get(0, &info));
	CU_ASSERT_EQUAL(info.in_flight, 3);
	bdev_owner_waits_for(info.name, text, sizeof(text));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "3 I/Os of bdev"));
	CU_ASSERT_EQUAL(disown(), -EBUSY);
	CU_ASSERT_EQUAL(gives, 0);
	atomic_store(&in_flight, 0);
	CU_ASSERT_TRUE(wait_state(BDEV_OWNER_STANDBY));
	CU_ASSERT_EQUAL(o.rc, 0);
	CU_ASSERT_EQUAL(gives, 1);
	owner_close();
}

static void test_a_hand_over_is_taken_back_while_io_goes_on(void)
{
	struct outcome o = {.rc = 1};

	begin_hand_over(1, &o);
	CU_ASSERT_EQUAL(own(BDEV_OWN_FOR_EVER), 0);
	CU_ASSERT_EQUAL(o.rc, -ECANCELED);
	CU_ASSERT_EQUAL(state_now(), BDEV_OWNER_OWNER);
	CU_ASSERT_EQUAL(takes, 1);
	CU_ASSERT_EQUAL(gives, 0);
	owner_close();
}

static void test_a_lease_ends_by_itself(void)
{
	owner_open();
	CU_ASSERT_EQUAL(own(1), -ETIME);
	CU_ASSERT_EQUAL(takes, 0);
	CU_ASSERT_EQUAL(own(soon(3600 * 1000000ULL)), 0);
	atomic_store(&in_flight, 1);
	CU_ASSERT_EQUAL(own(soon(20000)), 0);
	CU_ASSERT_TRUE(wait_state(BDEV_OWNER_DRAINING));
	CU_ASSERT_EQUAL(ends, 1);
	atomic_store(&in_flight, 0);
	CU_ASSERT_TRUE(wait_state(BDEV_OWNER_STANDBY));
	CU_ASSERT_EQUAL(gives, 1);
	CU_ASSERT_EQUAL(ends, 1);
	owner_close();
}

static bool lease_is_over(void *arg)
{
	return bdev_owner_now_us() >= *(const uint64_t *)arg;
}

static void test_a_lock_that_comes_behind_the_lease_is_given_back(void)
{
	struct outcome o = {.rc = 1};

	owner_open();
	take_now = false;
	uint64_t until = soon(1000000); /* has not passed when bdev_own() looks, however slow the machine is */
	bdev_own("own0", until, false, outcome_set, &o);
	CU_ASSERT_TRUE(fixture_poll(lease_is_over, &until));
	bdev_owner_taken(&owner, 0, NULL);
	CU_ASSERT_EQUAL(o.rc, -ETIME);
	CU_ASSERT_EQUAL(gives, 1);
	CU_ASSERT_EQUAL(state_now(), BDEV_OWNER_STANDBY);
	owner_close();
}

static void test_an_owner_whose_device_is_lost_is_none(void)
{
	owner_open();
	bdev_owner_end(&owner, "a standby has nothing to lose");
	CU_ASSERT_EQUAL(ends, 0);
	CU_ASSERT_EQUAL(own(BDEV_OWN_FOR_EVER), 0);
	bdev_owner_end(&owner, "lost");
	CU_ASSERT_EQUAL(ends, 1);
	CU_ASSERT_EQUAL(state_now(), BDEV_OWNER_STANDBY);
	owner_close();
}

static void test_a_bdev_that_goes_answers_who_waits(void)
{
	struct outcome o = {.rc = 1};

	owner_open();
	take_now = false;
	bdev_own("own0", BDEV_OWN_FOR_EVER, false, outcome_set, &o);
	bdev_owner_fini(&owner);
	CU_ASSERT_EQUAL(o.rc, -ENODEV);
	CU_ASSERT_EQUAL(own(BDEV_OWN_FOR_EVER), -ENODEV);
	CU_ASSERT_EQUAL(disown(), -ENODEV);
	struct bdev_owner_info info;
	CU_ASSERT_FALSE(bdev_owner_get(0, &info));
	owner_close();
}

static const struct unit_test tests[] = {
	UNIT(test_an_owner_takes_the_lock_and_gives_it_back),
	UNIT(test_a_lock_that_cannot_be_had_leaves_a_standby),
	UNIT(test_what_overlaps_is_refused),
	UNIT(test_the_lock_is_kept_until_io_has_ended),
	UNIT(test_a_hand_over_is_taken_back_while_io_goes_on),
	UNIT(test_a_lease_ends_by_itself),
	UNIT(test_a_lock_that_comes_behind_the_lease_is_given_back),
	UNIT(test_an_owner_whose_device_is_lost_is_none),
	UNIT(test_a_bdev_that_goes_answers_who_waits),
	UNIT_END,
};
UNIT_MAIN("bdev_owner", tests, fixture_start, fixture_stop)

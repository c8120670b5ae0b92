/* SPDX-License-Identifier: BSD-3-Clause */
/* Bdevs that share rate limits: what comes through, and everything that may end a wait: the limit, the minimum, the
 * membership, the group, the bdev, the I/O's user, a reset. unittest/util/share.c has the arithmetic. */
#include "bdev/qos_group.h"

#include <errno.h>

#include "env_dpdk/env.h"
#include "unittest/bdev/fixture.h"

#define BLOCK 512
static uint8_t buf[64 * BLOCK] __attribute__((aligned(4096)));
static struct iovec one = {buf, BLOCK};

static enum rate_bucket_id id;                                        /* which limit was too low */
static const struct rate_limits none, slow = {.rw_bytes_per_sec = 1}; /* so slow that nothing more goes in a test */

static struct bdev_qos_group *group_make(const char *name, struct rate_limits limits)
{
	int rc;
	struct bdev_qos_group *g = bdev_qos_group_create(name, &rc);

	CU_ASSERT_PTR_NOT_NULL_FATAL(g);
	CU_ASSERT_EQUAL(rc, 0);
	CU_ASSERT_EQUAL(bdev_qos_group_set_limits(g, &limits, &id), 0);
	return g;
}

static struct request *submit(struct user *u, enum bdev_io_type type)
{
	struct request *r = request_new(u);

	bdev_io_set_rw(r->io, type, &one, 1, 0, 1);
	request_submit(r);
	return r;
}

/* A group that owes so much that nothing goes in it: a bucket of its own, with which a bdev has paid, is no more. */
static struct bdev_qos_group *group_make_in_debt(const char *name)
{
	struct bdev_qos_group *g = group_make(name, slow);
	struct user u;

	make_null("debtor", BLOCK, 8);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "debtor", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(bdev_qos_group_add(g, bdev_find("debtor"), &none, &id), 0);
	CU_ASSERT_EQUAL(request_finish(submit(&u, BDEV_IO_READ)), 0);
	bdev_qos_group_remove(bdev_find("debtor")); /* what it owes is the group's */
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "debtor"), 0);
	return g;
}

/* --- An I/O that waits, and what ends that --- */

#define WAITING 3
struct scene {
	struct testdev *t;
	struct bdev_qos_group *g;
	struct rate_counts before; /* of the group: one read */
	struct user u;
	struct request *r[WAITING];
};

struct look {
	const char *group;
	unsigned waiting, for_group;
};

static bool look_at(void *arg, const struct bdev_inflight *i)
{
	struct look *l = arg;

	l->waiting += i->state == BDEV_IO_WAIT_QOS;
	l->for_group += strcmp(i->waits_for, l->group) == 0;
	return true;
}

static bool all_wait(void *arg)
{
	struct scene *s = arg;
	struct look l = {.group = "rate limit of the group G"};

	bdev_for_each_inflight(&s->t->bdev, look_at, &l);
	CU_ASSERT_EQUAL(l.waiting, l.for_group);
	return l.waiting == WAITING;
}

/* The group is in debt, and three I/Os wait, a write among them. */
static void scene_open(struct scene *s)
{
	*s = (struct scene){.t = testdev_new("t0", BLOCK, 64), .g = group_make_in_debt("G")};
	bdev_qos_group_get_counts(s->g, &s->before);
	CU_ASSERT_EQUAL_FATAL(testdev_register(s->t), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&s->u, "t0", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(bdev_qos_group_add(s->g, &s->t->bdev, &none, &id), 0);
	CU_ASSERT_PTR_EQUAL(bdev_qos_group_of(&s->t->bdev), s->g);
	for (unsigned i = 0; i < WAITING; i++) {
		s->r[i] = submit(&s->u, i == 1 ? BDEV_IO_WRITE : BDEV_IO_READ);
	}
	CU_ASSERT_TRUE_FATAL(fixture_poll(all_wait, s));
	CU_ASSERT_EQUAL(user_io(&s->u, BDEV_IO_UNMAP, NULL, 0, 1), 0); /* no data: not limited */
	CU_ASSERT_FALSE(atomic_load(&s->r[0]->done));
}

/* All that waited ends so. */
static void scene_expect(struct scene *s, uint16_t status)
{
	for (unsigned i = 0; i < WAITING; i++) {
		CU_ASSERT_EQUAL(request_finish(s->r[i]) & BDEV_STATUS_MASK, status & BDEV_STATUS_MASK);
	}
}

static void scene_close(struct scene *s)
{
	user_close(&s->u);
	CU_ASSERT_TRUE(testdev_delete(s->t));
	if (s->g != NULL) {
		bdev_qos_group_delete(s->g);
	}
	CU_ASSERT_PTR_NULL(bdev_qos_group_next(NULL));
}

static void test_a_limit_that_is_lifted_lets_waiting_io_go(void)
{
	struct rate_counts c;
	struct scene s;

	scene_open(&s);
	CU_ASSERT_EQUAL(bdev_qos_group_set_limits(s.g, &none, &id), 0);
	scene_expect(&s, 0);
	bdev_qos_group_get_counts(s.g, &c);
	CU_ASSERT(c.ios[RATE_READS] == 3 && c.ios[RATE_WRITES] == 1 && c.bytes[RATE_READS] == 3 * BLOCK);
	CU_ASSERT(c.waits == s.before.waits + WAITING && c.waited_us > s.before.waited_us);
	bdev_qos_group_get_bdev_counts(&s.t->bdev, &c);
	CU_ASSERT(c.ios[RATE_READS] == 2 && c.bytes[RATE_WRITES] == BLOCK);
	scene_close(&s);
}

static void test_a_minimum_that_is_given_lets_waiting_io_go(void)
{
	struct scene s;

	scene_open(&s);
	CU_ASSERT_EQUAL(bdev_qos_group_set_limits(s.g, &(struct rate_limits){.rw_bytes_per_sec = 100 << 20}, &id), 0);
	CU_ASSERT_EQUAL(bdev_qos_group_add(s.g, &s.t->bdev, &(struct rate_limits){.rw_bytes_per_sec = 100 << 20}, &id),
			0);
	CU_ASSERT_EQUAL(bdev_qos_group_minimum(&s.t->bdev)->rw_bytes_per_sec, 100 << 20);
	scene_expect(&s, 0);
	scene_close(&s);
}

static void test_io_goes_on_when_its_bdev_leaves_the_group(void)
{
	struct rate_counts c;
	struct scene s;

	scene_open(&s);
	bdev_qos_group_remove(&s.t->bdev);
	CU_ASSERT_PTR_NULL(bdev_qos_group_of(&s.t->bdev));
	CU_ASSERT_PTR_NULL(bdev_qos_group_next_bdev(s.g, NULL));
	scene_expect(&s, 0);
	bdev_qos_group_get_counts(s.g, &c); /* what it did in the group */
	CU_ASSERT(c.ios[RATE_READS] == 1 && c.ios[RATE_WRITES] == 0);
	CU_ASSERT(c.waits == s.before.waits + WAITING && c.waited_us > s.before.waited_us);
	bdev_qos_group_remove(&s.t->bdev); /* it is in none: nothing happens */
	scene_close(&s);
}

static void test_io_goes_on_when_the_group_is_deleted(void)
{
	struct scene s;

	scene_open(&s);
	bdev_qos_group_delete(s.g);
	s.g = NULL;
	scene_expect(&s, 0);
	scene_close(&s);
}

static void test_io_goes_by_the_group_that_its_bdev_is_moved_to(void)
{
	struct scene s;
	struct request *r;

	scene_open(&s);
	struct bdev_qos_group *other = group_make("other", (struct rate_limits){.rw_ios_per_sec = 1000000});
	CU_ASSERT_EQUAL(bdev_qos_group_add(other, &s.t->bdev, &none, &id), 0);
	CU_ASSERT_PTR_EQUAL(bdev_qos_group_of(&s.t->bdev), other);
	scene_expect(&s, 0);
	CU_ASSERT_EQUAL(bdev_qos_group_add(s.g, &s.t->bdev, &none, &id), 0);
	r = submit(&s.u, BDEV_IO_WRITE);
	CU_ASSERT_EQUAL(user_io(&s.u, BDEV_IO_FLUSH, NULL, 0, 1), 0);
	CU_ASSERT_FALSE(atomic_load(&r->done));
	bdev_qos_group_delete(s.g);
	s.g = NULL;
	CU_ASSERT_EQUAL(request_finish(r), 0);
	bdev_qos_group_delete(other);
	scene_close(&s);
}

static bool all_wait_for_other(void *arg)
{
	struct scene *s = arg;
	struct look l = {.group = "rate limit of the group other"};

	bdev_for_each_inflight(&s->t->bdev, look_at, &l);
	return l.for_group == WAITING;
}

/* Also between the two. */
static void test_a_bdev_that_goes_from_one_group_to_another_is_limited_all_the_time(void)
{
	struct rate_counts c;
	struct scene s;

	scene_open(&s);
	struct bdev_qos_group *other = group_make_in_debt("other");
	CU_ASSERT_EQUAL(bdev_qos_group_add(other, &s.t->bdev, &none, &id), 0);
	CU_ASSERT_TRUE(fixture_poll(all_wait_for_other, &s));
	bdev_qos_group_get_counts(s.g, &c);
	CU_ASSERT(c.ios[RATE_READS] + c.ios[RATE_WRITES] == 1);
	CU_ASSERT(c.waits == s.before.waits + WAITING && c.waited_us > s.before.waited_us);
	bdev_qos_group_get_bdev_counts(&s.t->bdev, &c); /* since it came into the other */
	CU_ASSERT(c.ios[RATE_READS] + c.ios[RATE_WRITES] == 0 && c.waits == WAITING && c.waited_us == 0);
	CU_ASSERT_EQUAL(bdev_qos_group_set_limits(other, &none, &id), 0);
	scene_expect(&s, 0);
	bdev_qos_group_get_bdev_counts(&s.t->bdev, &c);
	CU_ASSERT(c.ios[RATE_READS] + c.ios[RATE_WRITES] == WAITING && c.waits == WAITING && c.waited_us > 0);
	bdev_qos_group_delete(other);
	scene_close(&s);
}

static void test_limits_of_the_bdev_hold_besides(void)
{
	struct scene s;

	scene_open(&s);
	CU_ASSERT_EQUAL(bdev_set_qos_limits(&s.t->bdev, &(struct rate_limits){.rw_ios_per_sec = 1000000}), 0);
	CU_ASSERT_EQUAL(bdev_set_qos_limits(&s.t->bdev, &none), 0); /* the group's stay */
	CU_ASSERT_EQUAL(user_io(&s.u, BDEV_IO_UNMAP, NULL, 0, 1), 0);
	CU_ASSERT_FALSE(atomic_load(&s.r[0]->done) || atomic_load(&s.r[1]->done));
	CU_ASSERT_EQUAL(bdev_set_qos_limits(&s.t->bdev, &slow), 0);
	bdev_qos_group_delete(s.g); /* the bdev's stay */
	s.g = NULL;
	CU_ASSERT_EQUAL(user_io(&s.u, BDEV_IO_UNMAP, NULL, 0, 1), 0);
	CU_ASSERT_FALSE(atomic_load(&s.r[2]->done));
	CU_ASSERT_EQUAL(bdev_set_qos_limits(&s.t->bdev, &none), 0);
	scene_expect(&s, 0);
	scene_close(&s);
}

/* I/O that waits for the bdev's own limit waits for the group when that limit is lifted, and is counted once. */
static void test_waits_are_counted_for_a_group_that_comes_later(void)
{
	struct rate_counts c;
	struct scene s;

	scene_open(&s);
	bdev_qos_group_remove(&s.t->bdev);
	scene_expect(&s, 0);
	CU_ASSERT_EQUAL(bdev_set_qos_limits(&s.t->bdev, &slow), 0);
	CU_ASSERT_EQUAL(request_finish(submit(&s.u, BDEV_IO_READ)), 0);
	for (unsigned i = 0; i < WAITING; i++) {
		s.r[i] = submit(&s.u, i == 1 ? BDEV_IO_WRITE : BDEV_IO_READ);
	}
	CU_ASSERT_EQUAL(bdev_qos_group_add(s.g, &s.t->bdev, &none, &id), 0);
	CU_ASSERT_EQUAL(user_io(&s.u, BDEV_IO_UNMAP, NULL, 0, 1), 0);
	bdev_qos_group_get_bdev_counts(&s.t->bdev, &c);
	CU_ASSERT_EQUAL(c.waits, 0);
	CU_ASSERT_EQUAL(bdev_set_qos_limits(&s.t->bdev, &none), 0);
	CU_ASSERT_TRUE(fixture_poll(all_wait, &s));
	bdev_qos_group_get_bdev_counts(&s.t->bdev, &c);
	CU_ASSERT_EQUAL(c.waits, WAITING);
	bdev_qos_group_delete(s.g);
	s.g = NULL;
	scene_expect(&s, 0);
	scene_close(&s);
}

static bool two_wait_for_the_bdev(void *arg)
{
	struct scene *s = arg;
	struct look l = {.group = "rate limit of the group other"};

	bdev_for_each_inflight(&s->t->bdev, look_at, &l);
	return l.waiting == 2 && l.for_group == 0;
}

/* From the bdev's limits to the group's, back, and once more to the group's; the first two times nobody visits the
 * channel. Each I/O is counted once, and its time as long as the group is the cause. */
static void test_the_cause_of_a_wait_may_change(void)
{
	struct rate_counts c[2];
	struct scene s;

	scene_open(&s);
	bdev_qos_group_remove(&s.t->bdev);
	scene_expect(&s, 0);
	struct bdev_qos_group *other = group_make_in_debt("other");
	struct rate_limits a_few = {.rw_ios_per_sec = 4, .burst_ms = 1};
	CU_ASSERT_EQUAL(bdev_set_qos_limits(&s.t->bdev, &a_few), 0);
	CU_ASSERT_EQUAL(request_finish(submit(&s.u, BDEV_IO_READ)), 0); /* what comes next waits for 0.25 s */
	CU_ASSERT_EQUAL(bdev_qos_group_add(other, &s.t->bdev, &none, &id), 0);
	for (unsigned i = 0; i < WAITING; i++) {
		s.r[i] = submit(&s.u, BDEV_IO_READ);
	}
	CU_ASSERT_TRUE(fixture_poll(all_wait_for_other, &s));
	bdev_qos_group_get_bdev_counts(&s.t->bdev, &c[0]);
	CU_ASSERT(c[0].waits == WAITING && c[0].waited_us == 0);

	CU_ASSERT_EQUAL(bdev_set_qos_limits(&s.t->bdev, &slow), 0);
	CU_ASSERT_EQUAL(bdev_qos_group_set_limits(other, &none, &id), 0); /* one goes, and the bdev has a debt */
	CU_ASSERT_TRUE(fixture_poll(two_wait_for_the_bdev, &s));
	bdev_qos_group_get_bdev_counts(&s.t->bdev, &c[0]);
	CU_ASSERT(c[0].waits == WAITING && c[0].waited_us > 0);
	CU_ASSERT_EQUAL(user_io(&s.u, BDEV_IO_UNMAP, NULL, 0, 1), 0); /* some time passes */
	bdev_qos_group_get_bdev_counts(&s.t->bdev, &c[1]);
	CU_ASSERT_EQUAL(c[1].waited_us, c[0].waited_us);

	CU_ASSERT_EQUAL(bdev_qos_group_set_limits(other, &slow, &id), 0);
	CU_ASSERT_EQUAL(bdev_set_qos_limits(&s.t->bdev, &none), 0);
	CU_ASSERT_EQUAL(user_io(&s.u, BDEV_IO_UNMAP, NULL, 0, 1), 0);
	CU_ASSERT_FALSE(atomic_load(&s.r[2]->done));
	CU_ASSERT_EQUAL(bdev_qos_group_set_limits(other, &none, &id), 0);
	scene_expect(&s, 0);
	bdev_qos_group_get_bdev_counts(&s.t->bdev, &c[1]);
	CU_ASSERT(c[1].waits == WAITING && c[1].waited_us > c[0].waited_us);
	bdev_qos_group_delete(other);
	scene_close(&s);
}

/* What waited for the group goes for the bdev's own limits in the end: that time is not the group's. */
static void test_time_for_the_bdev_s_own_limits_is_not_the_group_s(void)
{
	struct rate_counts c[2];
	struct scene s;

	scene_open(&s);
	struct bdev_qos_group *other = group_make_in_debt("other");
	CU_ASSERT_EQUAL(bdev_qos_group_add(other, &s.t->bdev, &none, &id), 0);
	CU_ASSERT_EQUAL(bdev_set_qos_limits(&s.t->bdev, &slow), 0);
	CU_ASSERT_EQUAL(bdev_qos_group_set_limits(other, &none, &id), 0);
	CU_ASSERT_TRUE(fixture_poll(two_wait_for_the_bdev, &s));
	bdev_qos_group_get_bdev_counts(&s.t->bdev, &c[0]);
	CU_ASSERT_EQUAL(user_io(&s.u, BDEV_IO_UNMAP, NULL, 0, 1), 0); /* some time passes */
	CU_ASSERT_EQUAL(bdev_set_qos_limits(&s.t->bdev, &none), 0);
	scene_expect(&s, 0);
	bdev_qos_group_get_bdev_counts(&s.t->bdev, &c[1]);
	CU_ASSERT(c[0].waits == WAITING && c[0].waited_us > 0);
	CU_ASSERT(c[1].waits == WAITING && c[1].waited_us == c[0].waited_us);
	bdev_qos_group_delete(other);
	scene_close(&s);
}

static void test_waiting_io_that_is_aborted_or_taken_back_is_not_carried_out(void)
{
	struct scene s;

	scene_open(&s);
	unsigned submitted = atomic_load(&s.t->submitted);
	struct request *abort = request_new(&s.u);
	abort->io->type = BDEV_IO_ABORT;
	abort->io->abort.target = s.r[0]->io;
	CU_ASSERT_EQUAL(request_run(abort), 0);
	request_free(abort);
	request_take_back(s.r[1]);
	request_take_back(s.r[2]);
	scene_expect(&s, NVME_SC_ABORT_REQ);
	CU_ASSERT_EQUAL(atomic_load(&s.t->submitted), submitted);
	CU_ASSERT_EQUAL(bdev_qos_group_set_limits(s.g, &none, &id), 0);
	CU_ASSERT_EQUAL(user_io(&s.u, BDEV_IO_READ, buf, 0, 1), 0);
	scene_close(&s);
}

static void test_a_reset_ends_waiting_io(void)
{
	struct scene s;
	struct request *reset;

	scene_open(&s);
	reset = request_new(&s.u);
	reset->io->type = BDEV_IO_RESET;
	CU_ASSERT_EQUAL(request_run(reset), 0);
	request_free(reset);
	scene_expect(&s, NVME_SC_ABORT_REQ);
	scene_close(&s);
}

static void unregistered(void *arg, int rc)
{
	CU_ASSERT_EQUAL(rc, 0);
	set_done(arg);
}

static void test_a_bdev_that_goes_ends_its_waiting_io_and_its_membership(void)
{
	struct rate_counts c;
	struct scene s;

	scene_open(&s);
	s.u.close_on_remove = false;
	static atomic_bool gone;
	atomic_store(&gone, false);
	bdev_unregister(&s.t->bdev, unregistered, &gone);
	scene_expect(&s, NVME_SC_INVALID_NS);
	CU_ASSERT_EQUAL(bdev_qos_group_set_limits(s.g, &(struct rate_limits){.rw_ios_per_sec = 5}, &id),
			0); /* meanwhile */
	user_close(&s.u);
	CU_ASSERT_TRUE_FATAL(fixture_wait(&gone));
	CU_ASSERT_PTR_NULL(bdev_qos_group_next_bdev(s.g, NULL));
	bdev_qos_group_get_counts(s.g, &c);
	CU_ASSERT_EQUAL(c.ios[RATE_READS], 1);
	bdev_qos_group_delete(s.g);
}

/* A bdev that goes waits until its users have closed it, and they may have to write before: so nothing waits for a
 * limit any more, of the bdev or of a group, whatever becomes of both meanwhile. */
static void test_io_that_is_kept_waits_for_no_limit_of_a_bdev_that_goes(void)
{
	static atomic_bool gone;

	for (unsigned of_bdev = 0; of_bdev < 2; of_bdev++) {
		struct scene s;
		scene_open(&s);
		struct bdev_qos_group *other = group_make_in_debt("other");
		struct bdev *b = &s.t->bdev;
		s.u.close_on_remove = false;
		bdev_keep_io(s.u.desc);
		if (of_bdev) {
			CU_ASSERT_EQUAL(bdev_set_qos_limits(b, &slow), 0);
		}
		atomic_store(&gone, false);
		bdev_unregister(b, unregistered, &gone);
		scene_expect(&s, 0);
		CU_ASSERT_EQUAL(bdev_qos_group_add(other, b, &none, &id), 0);
		for (unsigned i = 0; i < WAITING; i++) {
			CU_ASSERT_EQUAL(request_finish(submit(&s.u, BDEV_IO_WRITE)), 0);
		}
		CU_ASSERT_EQUAL(bdev_set_qos_limits(b, of_bdev ? &none : &slow), 0);
		bdev_qos_group_delete(s.g);
		bdev_qos_group_delete(other);
		for (unsigned i = 0; i < WAITING; i++) {
			CU_ASSERT_EQUAL(request_finish(submit(&s.u, BDEV_IO_READ)), 0);
		}
		user_close(&s.u);
		CU_ASSERT_TRUE_FATAL(fixture_wait(&gone));
	}
}

/* --- Settings --- */

static void test_settings_are_checked_and_nothing_changes_if_they_are_wrong(void)
{
	char name[BDEV_QOS_GROUP_NAME_MAX + 2];
	int rc;

	memset(name, 'x', sizeof(name));
	name[BDEV_QOS_GROUP_NAME_MAX + 1] = '\0';
	CU_ASSERT(bdev_qos_group_create(name, &rc) == NULL && rc == -EINVAL);
	CU_ASSERT(bdev_qos_group_create("", &rc) == NULL && rc == -EINVAL);
	struct bdev_qos_group *g = group_make(name + 1, (struct rate_limits){.rw_ios_per_sec = 100});
	CU_ASSERT(bdev_qos_group_create(name + 1, &rc) == NULL && rc == -EEXIST);
	make_null("n0", 4096, 100);
	make_null("n1", 4096, 100);
	struct bdev *b[2] = {bdev_find("n0"), bdev_find("n1")};
	CU_ASSERT_EQUAL(
		bdev_qos_group_add(g, b[0], &(struct rate_limits){.rw_ios_per_sec = 60, .w_bytes_per_sec = 7}, &id), 0);
	CU_ASSERT_EQUAL(bdev_qos_group_add(g, b[1], &(struct rate_limits){.rw_ios_per_sec = 41}, &id), -ERANGE);
	CU_ASSERT_PTR_NULL(bdev_qos_group_of(b[1]));
	CU_ASSERT_EQUAL(bdev_qos_group_add(g, b[1], &(struct rate_limits){.rw_ios_per_sec = 40}, &id), 0);
	CU_ASSERT_EQUAL(bdev_qos_group_add(g, b[0], &(struct rate_limits){.rw_ios_per_sec = 61}, &id), -ERANGE);
	CU_ASSERT_EQUAL(bdev_qos_group_minimum(b[0])->rw_ios_per_sec, 60);
	CU_ASSERT_EQUAL(bdev_qos_group_set_limits(g, &(struct rate_limits){.rw_ios_per_sec = 99}, &id), -ERANGE);
	CU_ASSERT_EQUAL(id, RATE_RW_IOS);
	CU_ASSERT_EQUAL(bdev_qos_group_set_limits(g, &(struct rate_limits){.w_bytes_per_sec = 6}, &id), -ERANGE);
	CU_ASSERT_EQUAL(id, RATE_W_BYTES);
	CU_ASSERT_EQUAL(bdev_qos_group_limits(g)->rw_ios_per_sec, 100);
	CU_ASSERT_EQUAL(bdev_qos_group_set_limits(g, &(struct rate_limits){.w_bytes_per_sec = 7}, &id), 0);
	CU_ASSERT_EQUAL(bdev_qos_group_minimums(g, b[0]).rw_ios_per_sec, 40);
	CU_ASSERT_EQUAL(bdev_qos_group_minimums(g, NULL).rw_ios_per_sec, 100);
	CU_ASSERT(bdev_qos_group_next_bdev(g, NULL) == b[0] && bdev_qos_group_next_bdev(g, b[0]) == b[1]);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
	CU_ASSERT(bdev_qos_group_next_bdev(g, NULL) == b[1] && bdev_qos_group_next_bdev(g, b[1]) == NULL);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n1"), 0);
	bdev_qos_group_delete(g);
	for (unsigned i = 0; i < BDEV_QOS_GROUPS_MAX; i++) {
		snprintf(name, sizeof(name), "g%u", i);
		group_make(name, none);
	}
	CU_ASSERT(bdev_qos_group_create("more", &rc) == NULL && rc == -ENOSPC);
	while ((g = bdev_qos_group_next(NULL)) != NULL) {
		bdev_qos_group_delete(g);
	}
}

/* --- Load --- */

#define LOADS 4
static struct user_load loads[LOADS];
static const char *const names[2] = {"n0", "n1"};

static void loads_start(void)
{
	for (unsigned i = 0; i < 2; i++) {
		make_null(names[i], BLOCK, 1000);
	}
	for (unsigned i = 0; i < LOADS; i++) {
		user_load_start(&loads[i], names[i % 2], BDEV_IO_READ, BDEV_IO_WRITE, i, 1);
	}
}

static void loads_stop(void)
{
	for (unsigned i = 0; i < LOADS; i++) {
		user_load_stop(&loads[i]);
	}
	for (unsigned i = 0; i < 2; i++) {
		CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, names[i]), 0);
	}
}

static uint64_t went(const struct bdev_qos_group *g)
{
	struct rate_counts c;

	bdev_qos_group_get_counts(g, &c);
	return c.ios[RATE_READS] + c.ios[RATE_WRITES];
}

static bool second_s_worth(void *arg)
{
	return went(arg) >= 2000;
}

static uint64_t counted(const char *bdev)
{
	struct rate_counts c;

	bdev_qos_group_get_bdev_counts(bdev_find(bdev), &c);
	return c.ios[RATE_READS] + c.ios[RATE_WRITES];
}

struct window {
	uint64_t first, second;
};

/* Whether the first got more than three times what the second did, in a tenth of a second's worth. (In some such time
 * the first's threads may not run, because others use the machine.) */
static bool has_its_minimum(void *arg)
{
	struct window *w = arg, now = {counted("n0"), counted("n1")};

	if (now.first + now.second < w->first + w->second + 200) {
		return false;
	}
	bool has = now.first - w->first > 3 * (now.second - w->second);
	*w = now;
	return has;
}

/* No more than the limit, however long the machine takes, something for each, and the minimum for who has one. */
static void test_two_bdevs_on_four_cores_share_a_limit(void)
{
	struct bdev_qos_group *g = group_make("G", (struct rate_limits){.rw_ios_per_sec = 2000});

	loads_start();
	uint64_t start = env_ticks();
	CU_ASSERT_EQUAL(bdev_qos_group_add(g, bdev_find("n0"), &(struct rate_limits){.rw_ios_per_sec = 1500}, &id), 0);
	CU_ASSERT_EQUAL(bdev_qos_group_add(g, bdev_find("n1"), &none, &id), 0);
	CU_ASSERT_TRUE(fixture_poll(second_s_worth, g));
	uint64_t n = went(g);
	double seconds = (double)(env_ticks() - start) / (double)env_ticks_hz();
	CU_ASSERT((double)n <= 2000 * (seconds + RATE_BURST_MS / 1000.0) + 3 * LOADS);
	CU_ASSERT(counted("n0") > 0 && counted("n1") > 0);
	CU_ASSERT_TRUE(fixture_poll(has_its_minimum, &(struct window){counted("n0"), counted("n1")}));
	loads_stop();
	bdev_qos_group_delete(g);
}

/* Whatever waits does so for the bdev's own limits, and the group is not blamed: also not for I/O that comes when there
 * are tokens, but others wait for the channel to look again. */
static void test_a_group_without_limits_makes_nobody_wait(void)
{
	static struct request *r[300];
	struct rate_counts c;
	struct user u;

	make_null("n0", BLOCK, 1000);
	struct bdev_qos_group *g = group_make("G", none);
	struct bdev *b = bdev_find("n0");
	CU_ASSERT_EQUAL(bdev_qos_group_add(g, b, &none, &id), 0);
	CU_ASSERT_EQUAL(bdev_set_qos_limits(b, &(struct rate_limits){.rw_ios_per_sec = 500, .burst_ms = 1}), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "n0", true, fixture_thread(0)), 0);
	for (unsigned i = 0; i < 300; i++) {
		r[i] = submit(&u, i % 7 == 0 ? BDEV_IO_WRITE : BDEV_IO_READ);
		CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_UNMAP, NULL, 0, 1), 0); /* some time passes */
	}
	CU_ASSERT_EQUAL(bdev_set_qos_limits(b, &none), 0);
	for (unsigned i = 0; i < 300; i++) {
		CU_ASSERT_EQUAL(request_finish(r[i]), 0);
	}
	bdev_qos_group_get_counts(g, &c);
	CU_ASSERT(c.ios[RATE_READS] + c.ios[RATE_WRITES] == 300 && c.waits == 0 && c.waited_us == 0);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
	bdev_qos_group_delete(g);
}

static unsigned loads_done(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < LOADS; i++) {
		n += atomic_load(&loads[i].done);
	}
	return n;
}

static bool has_gone_on(void *arg)
{
	return loads_done() != *(const unsigned *)arg;
}

/* Members, limits, minimums and whole groups come and go under I/O, of which none gets lost. */
static void test_anything_may_change_under_load(void)
{
	uint64_t random = 7;
	int rc;

	loads_start();
	for (unsigned i = 0; i < 300; i++) {
		struct bdev_qos_group *g = bdev_qos_group_find("G");
		struct bdev *b = bdev_find(names[fixture_random(&random) % 2]);
		uint64_t ios = 100 + fixture_random(&random) % 3000;
		if (g == NULL) {
			CU_ASSERT_PTR_NOT_NULL(bdev_qos_group_create("G", &rc));
			continue;
		}
		switch (fixture_random(&random) % 5) {
		case 0:
			bdev_qos_group_delete(g);
			break;
		case 1:
			rc = bdev_qos_group_set_limits(g, &(struct rate_limits){.rw_ios_per_sec = ios}, &id);
			CU_ASSERT(rc == 0 || rc == -ERANGE);
			break;
		case 2:
			bdev_qos_group_remove(b);
			break;
		default:
			rc = bdev_qos_group_add(g, b, &(struct rate_limits){.rw_ios_per_sec = ios / 3}, &id);
			CU_ASSERT(rc == 0 || rc == -ERANGE);
		}
		if (i % 20 == 0) {
			unsigned before = loads_done();
			CU_ASSERT_TRUE(fixture_poll(has_gone_on, &before));
		}
	}
	loads_stop();
	while (bdev_qos_group_next(NULL) != NULL) {
		bdev_qos_group_delete(bdev_qos_group_next(NULL));
	}
}

/* A channel that is made while its bdev is in a group goes by it. */
static void test_channels_that_come_later_are_limited(void)
{
	struct user u;

	make_null("n0", BLOCK, 100);
	struct bdev_qos_group *g = group_make_in_debt("G");
	CU_ASSERT_EQUAL(bdev_qos_group_add(g, bdev_find("n0"), &none, &id), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "n0", true, fixture_thread(1)), 0);
	struct request *r = submit(&u, BDEV_IO_WRITE);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_UNMAP, NULL, 0, 1), 0);
	CU_ASSERT_FALSE(atomic_load(&r->done));
	CU_ASSERT_EQUAL(bdev_qos_group_set_limits(g, &none, &id), 0);
	CU_ASSERT_EQUAL(request_finish(r), 0);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
	bdev_qos_group_delete(g);
}

/* For bdev_fini(): groups are left. */
static void test_groups_may_be_left_at_the_end(void)
{
	make_null("n0", BLOCK, 100);
	CU_ASSERT_EQUAL(bdev_qos_group_add(group_make("G", slow), bdev_find("n0"), &none, &id), 0);
	group_make("empty", none);
}

static const struct unit_test tests[] = {
	UNIT(test_a_limit_that_is_lifted_lets_waiting_io_go),
	UNIT(test_a_minimum_that_is_given_lets_waiting_io_go),
	UNIT(test_io_goes_on_when_its_bdev_leaves_the_group),
	UNIT(test_io_goes_on_when_the_group_is_deleted),
	UNIT(test_io_goes_by_the_group_that_its_bdev_is_moved_to),
	UNIT(test_a_bdev_that_goes_from_one_group_to_another_is_limited_all_the_time),
	UNIT(test_limits_of_the_bdev_hold_besides),
	UNIT(test_waits_are_counted_for_a_group_that_comes_later),
	UNIT(test_the_cause_of_a_wait_may_change),
	UNIT(test_time_for_the_bdev_s_own_limits_is_not_the_group_s),
	UNIT(test_waiting_io_that_is_aborted_or_taken_back_is_not_carried_out),
	UNIT(test_a_reset_ends_waiting_io),
	UNIT(test_a_bdev_that_goes_ends_its_waiting_io_and_its_membership),
	UNIT(test_io_that_is_kept_waits_for_no_limit_of_a_bdev_that_goes),
	UNIT(test_settings_are_checked_and_nothing_changes_if_they_are_wrong),
	UNIT(test_two_bdevs_on_four_cores_share_a_limit),
	UNIT(test_a_group_without_limits_makes_nobody_wait),
	UNIT(test_anything_may_change_under_load),
	UNIT(test_channels_that_come_later_are_limited),
	UNIT(test_groups_may_be_left_at_the_end),
	UNIT_END,
};
UNIT_MAIN("bdev_qos_group", tests, fixture_start, fixture_stop)

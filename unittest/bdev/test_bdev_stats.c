/* SPDX-License-Identifier: BSD-3-Clause */
/* The statistics of many bdevs, by one message to each thread. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "bdev/internal.h"
#include "unittest/bdev/fixture.h"

#define MANY         70
#define ONE_PIECE_US 3600000000u

static uint8_t buf[4096] __attribute__((aligned(4096)));
static struct bdev *bdevs[MANY];
static struct bdev_stat stats[MANY];
static struct user users[MANY];

static const char *name_of(unsigned i)
{
	static char name[16];

	snprintf(name, sizeof(name), "n%u", i);
	return name;
}

/* With a user of each, on one of `threads` threads. */
static void make_many(unsigned n, unsigned threads)
{
	for (unsigned i = 0; i < n; i++) {
		make_null(name_of(i), 4096, 1000);
		bdevs[i] = bdev_find(name_of(i));
		CU_ASSERT_EQUAL_FATAL(user_open(&users[i], name_of(i), true, fixture_thread(i % threads)), 0);
	}
}

static void delete_many(unsigned n, bool close)
{
	for (unsigned i = 0; i < n; i++) {
		if (close) {
			user_close(&users[i]);
		}
		CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, name_of(i)), 0);
	}
}

static void check_reads(const struct bdev_stat *s, uint64_t reads)
{
	CU_ASSERT_EQUAL(s->class[BDEV_STAT_READ].ops, reads);
	CU_ASSERT_EQUAL(s->class[BDEV_STAT_READ].bytes, reads * 4096);
	CU_ASSERT_EQUAL(s->reads.counted, reads);
	CU_ASSERT_EQUAL(s->queue_depth, 0);
}

static void check_many(unsigned n)
{
	struct bdev_stat one;

	memset(stats, 0xa5, sizeof(stats));
	bdev_get_stats(bdevs, stats, n);
	for (unsigned i = 0; i < n; i++) {
		check_reads(&stats[i], i % 5);
		bdev_get_stat(bdevs[i], &one);
		CU_ASSERT_EQUAL(memcmp(&one, &stats[i], sizeof(one)), 0);
	}
}

static void test_each_of_many_bdevs_has_its_own_figures(void)
{
	bdev_get_stats(NULL, NULL, 0);
	make_many(MANY, 4);
	for (unsigned i = 0; i < MANY; i++) {
		for (unsigned k = 0; k < i % 5; k++) {
			CU_ASSERT_EQUAL(user_io(&users[i], BDEV_IO_READ, buf, k, 1), 0);
		}
	}
	check_many(MANY);
	for (unsigned i = 0; i < MANY; i++) {
		user_close(&users[i]);
	}
	check_many(MANY); /* by what the channels have left */
	delete_many(MANY, false);
}

static void test_channels_of_several_threads_are_added_up(void)
{
	struct user more[4];

	make_many(2, 1);
	for (unsigned i = 0; i < 4; i++) {
		CU_ASSERT_EQUAL_FATAL(user_open(&more[i], "n1", true, i < 3 ? fixture_thread(i + 1) : thread_control()),
				      0);
		CU_ASSERT_EQUAL(user_io(&more[i], BDEV_IO_READ, buf, 0, 1), 0);
	}
	bdev_get_stats(bdevs, stats, 2);
	check_reads(&stats[0], 0);
	check_reads(&stats[1], 4);
	for (unsigned i = 0; i < 4; i++) {
		user_close(&more[i]);
	}
	delete_many(2, true);
}

static void test_io_under_way_is_in_flight_and_not_done(void)
{
	struct testdev *t = testdev_new("t0", 4096, 64);
	struct bdev *list[2];
	struct user u;
	struct iovec iov = {buf, sizeof(buf)};

	t->hold = true;
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	make_many(1, 1);
	list[0] = bdevs[0];
	list[1] = &t->bdev;
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "t0", true, fixture_thread(2)), 0);
	struct request *r = request_new(&u);
	bdev_io_set_rw(r->io, BDEV_IO_READ, &iov, 1, 0, 1);
	request_submit(r);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 1));
	bdev_get_stats(list, stats, 2);
	check_reads(&stats[0], 0);
	CU_ASSERT_EQUAL(stats[1].queue_depth, 1);
	CU_ASSERT_EQUAL(stats[1].class[BDEV_STAT_READ].ops, 0);
	testdev_release(t, &u, 0);
	CU_ASSERT_EQUAL(request_finish(r), 0);
	bdev_get_stats(list, stats, 2);
	check_reads(&stats[1], 1);
	user_close(&u);
	CU_ASSERT_TRUE(testdev_delete(t));
	delete_many(1, true);
}

static void deleted(void *arg, int rc)
{
	CU_ASSERT_EQUAL(rc, 0);
	set_done(arg);
}

static void test_a_bdev_that_is_being_removed_still_has_figures(void)
{
	atomic_bool gone = false;

	make_many(3, 2);
	CU_ASSERT_EQUAL(user_io(&users[1], BDEV_IO_READ, buf, 0, 1), 0);
	bdev_null_delete("n1", deleted, &gone);
	CU_ASSERT_EQUAL(bdev_get_state(bdevs[1]) > BDEV_READY, true);
	bdev_get_stats(bdevs, stats, 3);
	CU_ASSERT_FALSE(atomic_load(&gone));
	check_reads(&stats[0], 0);
	check_reads(&stats[1], 1);
	check_reads(&stats[2], 0);
	user_close(&users[1]);
	CU_ASSERT_TRUE(fixture_wait(&gone));
	user_close(&users[0]);
	user_close(&users[2]);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n2"), 0);
}

/* --- Pieces --- */

struct rounds {
	struct poller *poller;
	uint64_t n;
};

static int count_round(void *ctx)
{
	((struct rounds *)ctx)->n++;
	return POLLER_IDLE;
}

static void rounds_begin(void *arg)
{
	struct rounds *r = arg;
	r->poller = poller_register(&(struct poller_opts){.name = "rounds", .fn = count_round, .ctx = r, .fd = -1});
}

static void rounds_end(void *arg)
{
	poller_unregister(&((struct rounds *)arg)->poller);
}

static void test_the_reactor_does_other_work_between_pieces(void)
{
	struct rounds r = {0};

	make_many(MANY, 1);
	thread_call(fixture_thread(0), rounds_begin, &r);
	bdev_get_stats_by(bdevs, stats, MANY, 0);
	thread_call(fixture_thread(0), rounds_end, &r);
	CU_ASSERT_TRUE(r.n >= MANY - 1);
	for (unsigned i = 0; i < MANY; i++) {
		check_reads(&stats[i], 0);
	}
	delete_many(MANY, true);
}

/* However long the list is, and however long a piece may last, a thread looks at what it has a channel of. */
static void test_a_thread_looks_only_at_bdevs_of_which_it_has_a_channel(void)
{
	const unsigned n = 1000, used[] = {0, 500, 502, 999};
	struct bdev **list = calloc(n, sizeof(struct bdev *));
	struct bdev_stat *sums = calloc(n, sizeof(struct bdev_stat));

	CU_ASSERT_FATAL(list != NULL && sums != NULL);
	for (unsigned i = 0; i < n; i++) {
		make_null(name_of(i), 4096, 1000);
		list[i] = bdev_find(name_of(i));
	}
	CU_ASSERT_EQUAL(bdev_get_stats_by(list, sums, n, ONE_PIECE_US), 0);
	for (unsigned k = 0; k < 4; k++) {
		CU_ASSERT_EQUAL_FATAL(user_open(&users[k], name_of(used[k]), true, fixture_thread(k / 3)), 0);
		CU_ASSERT_EQUAL(user_io(&users[k], BDEV_IO_READ, buf, 0, 1), 0);
		CU_ASSERT_EQUAL(bdev_get_stats_by(list, sums, n, ONE_PIECE_US), k + 1);
		CU_ASSERT_EQUAL(bdev_get_stats_by(list, sums, n, 0), k + 1);
	}
	for (unsigned i = 0; i < n; i++) {
		check_reads(&sums[i], i == used[0] || i == used[1] || i == used[2] || i == used[3]);
	}
	for (unsigned k = 0; k < 4; k++) {
		user_close(&users[k]);
	}
	for (unsigned i = 0; i < n; i++) {
		CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, name_of(i)), 0);
	}
	free(sums);
	free(list);
}

/* --- A reactor that does not answer --- */

static struct {
	atomic_bool release;
	atomic_uint looks;
} stuck;

static void be_stuck(void *arg)
{
	while (!atomic_load(&stuck.release)) {
		sched_yield();
	}
}

static void look(void)
{
	if (atomic_fetch_add(&stuck.looks, 1) == 2) {
		atomic_store(&stuck.release, true);
	}
}

/* Whoever watches reactors is called while the control thread waits, and the figures are whole afterwards. */
static void test_a_reactor_that_does_not_answer_is_waited_for_and_watched(void)
{
	make_many(5, 2);
	CU_ASSERT_EQUAL(user_io(&users[1], BDEV_IO_READ, buf, 0, 1), 0);
	thread_set_wait_hook(look, 1000);
	CU_ASSERT_EQUAL(thread_send(fixture_thread(1), be_stuck, NULL), 0);
	bdev_get_stats(bdevs, stats, 5);
	CU_ASSERT_TRUE(atomic_load(&stuck.looks) >= 3);
	CU_ASSERT_TRUE(atomic_load(&stuck.release));
	thread_set_wait_hook(NULL, 0);
	for (unsigned i = 0; i < 5; i++) {
		check_reads(&stats[i], i == 1);
	}
	delete_many(5, true);
}

static const struct unit_test tests[] = {
	UNIT(test_each_of_many_bdevs_has_its_own_figures),
	UNIT(test_channels_of_several_threads_are_added_up),
	UNIT(test_io_under_way_is_in_flight_and_not_done),
	UNIT(test_a_bdev_that_is_being_removed_still_has_figures),
	UNIT(test_the_reactor_does_other_work_between_pieces),
	UNIT(test_a_thread_looks_only_at_bdevs_of_which_it_has_a_channel),
	UNIT(test_a_reactor_that_does_not_answer_is_waited_for_and_watched),
	UNIT_END,
};
UNIT_MAIN("bdev_stats", tests, fixture_start, fixture_stop)

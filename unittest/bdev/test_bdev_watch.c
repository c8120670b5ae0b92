/* SPDX-License-Identifier: BSD-3-Clause */
/* Rate limits, histograms, queue depth, what is in flight and for how long. */
#include "unittest/bdev/fixture.h"

#include <errno.h>

#include "env_dpdk/env.h"

static uint8_t buf[65536] __attribute__((aligned(4096)));

/* --- Rate limits --- */

struct goal {
	struct user_load l[4];
	unsigned ios;
};

static unsigned done_by(const struct goal *g)
{
	unsigned n = 0;

	for (unsigned i = 0; i < 4; i++) {
		n += atomic_load(&g->l[i].done);
	}
	return n;
}

static bool is_reached(void *arg)
{
	const struct goal *g = arg;
	return done_by(g) >= g->ios;
}

/* Has four threads do at least so many I/Os in all; the seconds that took, in *done how many it were. */
static double timed(const char *bdev, enum bdev_io_type type, uint64_t blocks, unsigned ios, unsigned *done)
{
	static struct goal g;
	uint64_t start = env_ticks();

	for (unsigned i = 0; i < 4; i++) {
		user_load_start(&g.l[i], bdev, type, type, i, blocks);
	}
	g.ios = ios;
	CU_ASSERT_TRUE(fixture_poll(is_reached, &g));
	*done = done_by(&g);
	uint64_t end = env_ticks();
	for (unsigned i = 0; i < 4; i++) {
		user_load_stop(&g.l[i]);
	}
	return (double)(end - start) / (double)env_ticks_hz();
}

/* So many I/Os must not take less time than the limit gives them, but for a bucket full at the start and one overdrawn
 * by each of those outstanding. How much longer they take depends on what else the machine does. */
static void check_limit(const char *bdev, enum bdev_io_type type, uint64_t blocks, double limit, unsigned ios)
{
	unsigned done;
	double seconds = timed(bdev, type, blocks, ios, &done);

	if (done > limit * (seconds * 1.05 + 0.05) + 16) {
		printf("%u in %.3f s for a limit of %.0f per second\n", done, seconds, limit);
		CU_FAIL("more than the limit got through");
	}
}

static uint64_t qos_waits(struct bdev *b)
{
	struct bdev_stat s;
	bdev_get_stat(b, &s);
	return s.qos_waits;
}

static void check_unlimited(const char *bdev, enum bdev_io_type type, uint64_t blocks)
{
	uint64_t before = qos_waits(bdev_find(bdev));
	unsigned done;

	timed(bdev, type, blocks, 5000, &done);
	CU_ASSERT_EQUAL(qos_waits(bdev_find(bdev)), before);
}

static void test_io_rate_is_limited_over_all_threads(void)
{
	make_null("n0", 4096, 1000);
	struct bdev *b = bdev_find("n0");
	struct rate_limits got;

	CU_ASSERT_EQUAL(bdev_set_qos_limits(b, &(struct rate_limits){.rw_ios_per_sec = 5000}), 0);
	bdev_get_qos_limits(b, &got);
	CU_ASSERT_EQUAL(got.rw_ios_per_sec, 5000);
	check_limit("n0", BDEV_IO_READ, 1, 5000, 1500);
	CU_ASSERT_EQUAL(bdev_set_qos_limits(b, &(struct rate_limits){.rw_ios_per_sec = 300}), 0);
	check_limit("n0", BDEV_IO_WRITE, 1, 300, 120);
	CU_ASSERT_TRUE(qos_waits(b) > 0);
	CU_ASSERT_EQUAL(bdev_set_qos_limits(b, &(struct rate_limits){0}), 0);
	check_unlimited("n0", BDEV_IO_READ, 1);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

static void test_byte_rates_are_limited_by_direction(void)
{
	make_null("n0", 4096, 1000);
	struct bdev *b = bdev_find("n0");

	/* An I/O of 64 KiB overdraws a bucket of 20 ms: it goes, and is paid for. */
	CU_ASSERT_EQUAL(bdev_set_qos_limits(b, &(struct rate_limits){.r_bytes_per_sec = 8 << 20}), 0);
	check_limit("n0", BDEV_IO_READ, 16, 128, 60);
	check_unlimited("n0", BDEV_IO_WRITE, 16);
	CU_ASSERT_EQUAL(bdev_set_qos_limits(b, &(struct rate_limits){.w_bytes_per_sec = 40 << 20}), 0);
	check_limit("n0", BDEV_IO_WRITE, 16, 640, 250);
	CU_ASSERT_EQUAL(
		bdev_set_qos_limits(b, &(struct rate_limits){.rw_bytes_per_sec = 40 << 20, .rw_ios_per_sec = 500}), 0);
	check_limit("n0", BDEV_IO_READ, 16, 500, 200);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

static void test_lifting_a_limit_lets_waiting_io_go(void)
{
	struct user u;
	struct iovec iov = {buf, 4096};
	struct request *r[3];

	make_null("n0", 4096, 1000);
	CU_ASSERT_EQUAL(bdev_set_qos_limits(bdev_find("n0"), &(struct rate_limits){.rw_bytes_per_sec = 1}), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "n0", true, fixture_thread(0)), 0);
	for (unsigned i = 0; i < 3; i++) {
		r[i] = request_new(&u);
		bdev_io_set_rw(r[i]->io, BDEV_IO_READ, &iov, 1, 0, 1);
		request_submit(r[i]);
	}
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_UNMAP, NULL, 0, 1), 0); /* no data: not limited */
	CU_ASSERT_FALSE(atomic_load(&r[2]->done));
	CU_ASSERT_EQUAL(bdev_set_qos_limits(bdev_find("n0"), &(struct rate_limits){0}), 0);
	for (unsigned i = 0; i < 3; i++) {
		CU_ASSERT_TRUE_FATAL(request_wait(r[i]));
		CU_ASSERT_EQUAL(r[i]->status, 0);
		request_free(r[i]);
	}
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

static void test_writes_that_wait_do_not_hold_up_reads(void)
{
	struct iovec iov = {buf, 4096};
	struct request *w[3];
	struct user u;

	make_null("n0", 4096, 1000);
	CU_ASSERT_EQUAL(bdev_set_qos_limits(bdev_find("n0"), &(struct rate_limits){.w_bytes_per_sec = 1}), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "n0", true, fixture_thread(0)), 0);
	for (unsigned i = 0; i < 3; i++) {
		w[i] = request_new(&u);
		bdev_io_set_rw(w[i]->io, BDEV_IO_WRITE, &iov, 1, 0, 1);
		request_submit(w[i]);
	}
	struct request *r = request_new(&u);
	bdev_io_set_rw(r->io, BDEV_IO_READ, &iov, 1, 0, 1);
	request_submit(r);
	CU_ASSERT_TRUE(request_wait(r));
	CU_ASSERT_FALSE(atomic_load(&w[2]->done));
	CU_ASSERT_EQUAL(bdev_set_qos_limits(bdev_find("n0"), &(struct rate_limits){0}), 0);
	CU_ASSERT_TRUE_FATAL(request_wait(r));
	request_free(r);
	for (unsigned i = 0; i < 3; i++) {
		CU_ASSERT_TRUE_FATAL(request_wait(w[i]));
		CU_ASSERT_EQUAL(w[i]->status, 0);
		request_free(w[i]);
	}
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

static bool both_have_done_some(void *arg)
{
	struct user_load *l = arg;

	return atomic_load(&l[0].done) >= 100 && atomic_load(&l[1].done) >= 100;
}

static void test_reads_and_writes_share_a_limit_of_both(void)
{
	static struct user_load l[2];

	make_null("n0", 4096, 1000);
	CU_ASSERT_EQUAL(bdev_set_qos_limits(bdev_find("n0"), &(struct rate_limits){.rw_ios_per_sec = 1000}), 0);
	user_load_start(&l[0], "n0", BDEV_IO_READ, BDEV_IO_READ, 0, 1);
	user_load_start(&l[1], "n0", BDEV_IO_WRITE, BDEV_IO_WRITE, 0, 1);
	CU_ASSERT_TRUE(fixture_poll(both_have_done_some, l));
	user_load_stop(&l[0]);
	user_load_stop(&l[1]);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

/* What #3606 is about: many changes while four cores do I/O. */
static void test_limits_may_be_changed_often_under_load(void)
{
	static struct user_load l[4];

	make_null("n0", 4096, 1000);
	for (unsigned i = 0; i < 4; i++) {
		user_load_start(&l[i], "n0", BDEV_IO_READ, BDEV_IO_READ, i, 1);
	}
	for (unsigned i = 0; i < 100; i++) {
		CU_ASSERT_EQUAL(
			bdev_set_qos_limits(bdev_find("n0"), &(struct rate_limits){.rw_ios_per_sec = i % 3 * 1000}), 0);
	}
	for (unsigned i = 0; i < 4; i++) {
		user_load_stop(&l[i]);
	}
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

/* --- Histograms --- */

static uint64_t total(const struct bdev_histogram *h)
{
	uint64_t n = 0;
	for (uint32_t i = 0; i < h->num_buckets; i++) {
		n += h->buckets[i];
	}
	return n;
}

static void test_histogram_counts_every_io_of_its_type(void)
{
	const struct bdev_histogram_opts opts = {.type = BDEV_IO_READ};
	struct user u[2];

	make_malloc("m0", 4096, 100);
	struct bdev *b = bdev_find("m0");
	CU_ASSERT_PTR_NULL(bdev_get_histogram(b));
	CU_ASSERT_EQUAL_FATAL(user_open(&u[0], "m0", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(bdev_enable_histogram(b, &opts), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u[1], "m0", true, fixture_thread(1)), 0); /* joins later */
	for (unsigned i = 0; i < 10; i++) {
		CU_ASSERT_EQUAL(user_io(&u[i % 2], BDEV_IO_READ, buf, i, 1), 0);
		CU_ASSERT_EQUAL(user_io(&u[i % 2], BDEV_IO_WRITE, buf, i, 1), 0);
	}
	user_close(&u[1]); /* what it counted stays */
	struct bdev_histogram *h = bdev_get_histogram(b);
	CU_ASSERT_EQUAL(total(h), 10);
	CU_ASSERT_EQUAL(h->buckets[0], 0); /* exact times: no read takes no time at all */
	bdev_histogram_free(h);
	bdev_disable_histogram(b);
	CU_ASSERT_PTR_NULL(bdev_get_histogram(b));
	user_close(&u[0]);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
}

static void test_histogram_buckets_join_without_gap(void)
{
	struct bdev_histogram_opts opts = {.granularity = 4, .min_ns = 1000, .max_ns = 1000000000};

	make_null("n0", 4096, 100);
	struct bdev *b = bdev_find("n0");
	CU_ASSERT_EQUAL(bdev_enable_histogram(b, &opts), 0);
	struct bdev_histogram *h = bdev_get_histogram(b);
	CU_ASSERT_EQUAL(h->shift, 4);
	CU_ASSERT_EQUAL(h->num_buckets, (uint32_t)(h->max_range - h->min_range) << 4);
	CU_ASSERT_EQUAL(bdev_histogram_start(h, 0), 0);
	CU_ASSERT_TRUE(bdev_histogram_start(h, 16) <= env_ticks_hz() / 1000000);
	CU_ASSERT_TRUE(bdev_histogram_start(h, h->num_buckets - 1) >= env_ticks_hz() / 2);
	for (uint32_t i = 1; i < h->num_buckets; i++) {
		CU_ASSERT_TRUE(bdev_histogram_start(h, i) > bdev_histogram_start(h, i - 1));
		uint64_t width = bdev_histogram_start(h, i) - bdev_histogram_start(h, i - 1);
		CU_ASSERT_TRUE(width * 8 <= bdev_histogram_start(h, i) || i <= 32);
	}
	bdev_histogram_free(h);
	opts.granularity = 10;
	CU_ASSERT_EQUAL(bdev_enable_histogram(b, &opts), -EINVAL);
	opts.granularity = 0;
	opts.min_ns = opts.max_ns;
	CU_ASSERT_EQUAL(bdev_enable_histogram(b, &opts), -EINVAL);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

/* --- What is in flight --- */

struct collected {
	unsigned n;
	struct bdev_inflight one[8];
};

static bool collect(void *arg, const struct bdev_inflight *one)
{
	struct collected *c = arg;
	c->one[c->n++] = *one;
	return c->n < 8;
}

struct late {
	unsigned n;
	struct bdev_inflight one;
	atomic_bool told;
};

static void on_late(void *arg, struct bdev *b, const struct bdev_inflight *one)
{
	struct late *l = arg;
	l->n++;
	l->one = *one;
	set_done(&l->told);
}

static bool has_depth_2(void *bdev)
{
	struct bdev_qd_sampling s;
	bdev_get_qd_sampling(bdev, &s);
	return s.queue_depth == 2 && s.weighted_io_time_us >= 2000;
}

static void test_what_is_in_flight_can_be_listed_sampled_and_timed(void)
{
	struct testdev *t = testdev_new("t0", 512, 64);
	struct user u[2];
	struct iovec iov = {buf, 1024};
	struct collected c = {0};
	struct late late = {0};
	struct bdev_qd_sampling s;

	t->hold = true;
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	bdev_set_qd_sampling_period(&t->bdev, 1000);
	bdev_set_timeout(&t->bdev, 20000, on_late, &late);
	struct request *r[2];
	for (unsigned i = 0; i < 2; i++) {
		CU_ASSERT_EQUAL_FATAL(user_open(&u[i], "t0", true, fixture_thread(i)), 0);
		r[i] = request_new(&u[i]);
		bdev_io_set_rw(r[i]->io, i == 0 ? BDEV_IO_READ : BDEV_IO_WRITE, &iov, 1, 10 + i, 2);
		request_submit(r[i]);
	}
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 2));
	bdev_for_each_inflight(&t->bdev, collect, &c);
	CU_ASSERT_EQUAL_FATAL(c.n, 2);
	for (unsigned i = 0; i < 2; i++) {
		unsigned k = c.one[i].io == r[1]->io;
		CU_ASSERT_PTR_EQUAL(c.one[i].io, r[k]->io);
		CU_ASSERT_PTR_EQUAL(c.one[i].ctx, r[k]);
		CU_ASSERT_EQUAL(c.one[i].type, k == 0 ? BDEV_IO_READ : BDEV_IO_WRITE);
		CU_ASSERT_EQUAL(c.one[i].offset_blocks, 10 + k);
		CU_ASSERT_EQUAL(c.one[i].num_blocks, 2);
		CU_ASSERT_EQUAL(c.one[i].state, BDEV_IO_MODULE);
		CU_ASSERT_EQUAL(c.one[i].thread_id, thread_id(fixture_thread(k)));
	}
	CU_ASSERT_TRUE(fixture_poll(has_depth_2, &t->bdev));
	CU_ASSERT_TRUE(fixture_wait(&late.told));
	CU_ASSERT_TRUE(late.one.age_ticks >= env_us_to_ticks(20000));
	CU_ASSERT_TRUE(late.one.io == r[0]->io || late.one.io == r[1]->io);
	bdev_set_timeout(&t->bdev, 0, NULL, NULL);
	unsigned told = late.n;
	testdev_release(t, &u[0], 0);
	testdev_release(t, &u[1], 0);
	for (unsigned i = 0; i < 2; i++) {
		CU_ASSERT_TRUE(request_wait(r[i]));
		request_free(r[i]);
	}
	CU_ASSERT_EQUAL(late.n, told);
	bdev_set_qd_sampling_period(&t->bdev, 0);
	bdev_get_qd_sampling(&t->bdev, &s);
	CU_ASSERT_EQUAL(s.period_us, 0);
	user_close(&u[0]);
	user_close(&u[1]);
	CU_ASSERT_TRUE(testdev_delete(t));
}

static atomic_bool busy, may_end;

static void be_busy(void *arg)
{
	uint64_t end = env_ticks() + 20 * env_ticks_hz();

	set_done(&busy);
	while (!atomic_load(&may_end) && env_ticks() < end) {
	}
	CU_ASSERT_TRUE(atomic_load(&may_end)); /* not the deadline */
}

static bool has_sampled(void *bdev)
{
	struct bdev_qd_sampling s;
	bdev_get_qd_sampling(bdev, &s);
	return s.queue_depth == 1 && s.weighted_io_time_us >= 5000;
}

/* A message for each sample would wake idle reactors, and would have to wait for busy ones. */
static void test_sampling_asks_nothing_of_the_threads(void)
{
	struct testdev *t = testdev_new("t0", 512, 64);
	struct iovec iov = {buf, 512};
	struct user u;

	t->hold = true;
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "t0", true, fixture_thread(0)), 0);
	struct request *r = request_new(&u);
	bdev_io_set_rw(r->io, BDEV_IO_READ, &iov, 1, 0, 1);
	request_submit(r);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 1));
	CU_ASSERT_EQUAL(thread_send(fixture_thread(0), be_busy, NULL), 0);
	CU_ASSERT_TRUE(fixture_wait(&busy));
	bdev_set_qd_sampling_period(&t->bdev, 1000);
	CU_ASSERT_TRUE(fixture_poll(has_sampled, &t->bdev));
	atomic_store(&may_end, true);
	bdev_set_qd_sampling_period(&t->bdev, 0);
	testdev_release(t, &u, 0);
	CU_ASSERT_EQUAL(request_finish(r), 0);
	user_close(&u);
	CU_ASSERT_TRUE(testdev_delete(t));
}

/* --- Statistics of channels that come and go --- */

struct churn {
	struct user user;
	struct bdev_io *io;
	struct iovec iov;
};
static atomic_bool churn_stops;
static atomic_uint churn_reads, churning;

static void churn_close(void *arg);

static void churn_read_done(struct bdev_io *io, void *arg)
{
	struct churn *c = arg;

	CU_ASSERT_EQUAL(thread_send(c->user.thread, churn_close, c), 0);
}

static void churn_open(void *arg)
{
	struct churn *c = arg;

	if (atomic_load(&churn_stops)) {
		atomic_fetch_sub(&churning, 1);
		fixture_wake();
		return;
	}
	c->user.ch = bdev_channel_get(c->user.desc);
	CU_ASSERT_PTR_NOT_NULL_FATAL(c->user.ch);
	memset(c->io, 0, bdev_io_size());
	bdev_io_init(c->io, c->user.desc, c->user.ch, churn_read_done, c);
	bdev_io_set_rw(c->io, BDEV_IO_READ, &c->iov, 1, 0, 1);
	atomic_fetch_add(&churn_reads, 1);
	bdev_submit(c->io);
}

static void churn_close(void *arg)
{
	struct churn *c = arg;

	bdev_channel_put(c->user.ch);
	CU_ASSERT_EQUAL(thread_send(c->user.thread, churn_open, c), 0);
}

static bool churn_is_over(void *arg)
{
	return atomic_load(&churning) == 0;
}

static uint64_t reads_of(const char *bdev)
{
	struct bdev_stat s;

	bdev_get_stat(bdev_find(bdev), &s);
	CU_ASSERT_EQUAL(s.reads.counted, s.class[BDEV_STAT_READ].ops);
	return s.class[BDEV_STAT_READ].ops;
}

/* Each read is made by a channel of its own, while the statistics are collected again and again. */
static void test_channels_that_go_while_statistics_are_collected_count_once(void)
{
	struct testdev *t = testdev_new("t0", 512, 64);
	static struct churn churns[3];
	uint64_t last = 0, too_many = 0, too_few = 0;

	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	atomic_store(&churning, 3);
	for (unsigned i = 0; i < 3; i++) {
		struct churn *c = &churns[i];
		c->user.thread = fixture_thread(i);
		CU_ASSERT_EQUAL_FATAL(bdev_open("t0", false, NULL, NULL, &c->user.desc), 0);
		c->io = aligned_alloc(64, bdev_io_size());
		c->iov = (struct iovec){buf, bdev_block_size(bdev_find("t0"))};
		thread_send(c->user.thread, churn_open, c);
	}
	for (unsigned i = 0; i < 2000 || atomic_load(&churn_reads) < 100; i++) {
		uint64_t now = reads_of("t0");
		too_many += now > atomic_load(&churn_reads);
		too_few += now < last;
		last = now;
	}
	atomic_store(&churn_stops, true);
	CU_ASSERT_TRUE_FATAL(fixture_poll(churn_is_over, NULL));
	CU_ASSERT(too_many == 0 && too_few == 0);
	CU_ASSERT_EQUAL(reads_of("t0"), atomic_load(&churn_reads));
	for (unsigned i = 0; i < 3; i++) {
		bdev_close(churns[i].user.desc);
		free(churns[i].io);
	}
	CU_ASSERT_TRUE(testdev_delete(t));
}

static const struct unit_test tests[] = {
	UNIT(test_io_rate_is_limited_over_all_threads),
	UNIT(test_byte_rates_are_limited_by_direction),
	UNIT(test_lifting_a_limit_lets_waiting_io_go),
	UNIT(test_writes_that_wait_do_not_hold_up_reads),
	UNIT(test_reads_and_writes_share_a_limit_of_both),
	UNIT(test_limits_may_be_changed_often_under_load),
	UNIT(test_histogram_counts_every_io_of_its_type),
	UNIT(test_histogram_buckets_join_without_gap),
	UNIT(test_what_is_in_flight_can_be_listed_sampled_and_timed),
	UNIT(test_sampling_asks_nothing_of_the_threads),
	UNIT(test_channels_that_go_while_statistics_are_collected_count_once),
	UNIT_END,
};
UNIT_MAIN("bdev_watch", tests, fixture_start, fixture_stop)

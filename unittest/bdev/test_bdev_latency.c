/* SPDX-License-Identifier: BSD-3-Clause */
/* The times in the statistics of a bdev, compared with those that the submitter measures itself. The order of the
 * pollers within a round decides how far the times in whole rounds are from the truth. */
#include "bdev/internal.h"
#include "unittest/bdev/fixture.h"
#include "usdt/usdt.h"

#define NEAR_NS  2000 /* the length of the pollers' work in a round */
#define FAR_NS   6000
#define STALL_NS 400000
#define IOS      400u /* of an attempt: most of them are no samples */
#define DEPTH    4u

enum work { END, DEVICE, SUBMIT, NEAR, FAR };

/* --- A device that ends I/O in submit after some work, or in its poller --- */

struct held {
	STAILQ_ENTRY(held) link;
};

static struct {
	struct bdev bdev;
	STAILQ_HEAD(, held) held; /* one channel only */
	bool in_submit;
	bool lingers; /* about every second I/O that could end stays for another round */
	uint64_t random;
} dev;

static struct bdev_module clocked_module = {.name = "clocked", .io_ctx_size = sizeof(struct held)};
BDEV_MODULE_REGISTER(clocked_module)

static void spin(uint64_t ns)
{
	uint64_t end = env_ticks() + ns * env_ticks_hz() / 1000000000;

	while (env_ticks() < end) {
	}
}

static void clocked_submit(void *channel, struct bdev_io *io)
{
	if (dev.in_submit) {
		spin(NEAR_NS);
		bdev_io_complete(io, 0);
	} else {
		struct held *h = bdev_io_ctx(io);
		STAILQ_INSERT_TAIL(&dev.held, h, link);
	}
}

static void clocked_poll(void)
{
	STAILQ_HEAD(, held) now = STAILQ_HEAD_INITIALIZER(now);
	struct held *h;

	STAILQ_CONCAT(&now, &dev.held);
	while ((h = STAILQ_FIRST(&now)) != NULL) {
		STAILQ_REMOVE_HEAD(&now, link);
		if (dev.lingers && fixture_random(&dev.random) % 2 == 0) {
			STAILQ_INSERT_TAIL(&dev.held, h, link);
		} else {
			bdev_io_complete(bdev_io_from_ctx(h), 0);
		}
	}
}

static void clocked_destruct(struct bdev *b)
{
	bdev_destruct_done(b);
}

static const struct bdev_ops clocked_ops = {.submit = clocked_submit, .destruct = clocked_destruct};

/* --- A user that measures --- */

struct timed {
	struct bdev_io *io;
	uint64_t submitted;
	bool idle;
};

static struct {
	struct user user;
	struct timed io[DEPTH];
	struct iovec iov;
	unsigned depth, submitted, done;
	uint64_t sum, longest, round_begun, longest_round, all_rounds, rounds, reported;
	bool stalls;    /* one round among the first ones is far longer than the others */
	bool went_back; /* the sum in the statistics has decreased */
	struct poller *pollers[5];
	enum work works[5];
	atomic_bool over;
} run;

static uint8_t buffer[512] __attribute__((aligned(512)));

static enum bdev_io_type io_type(unsigned n)
{
	return n % 3 == 0 ? BDEV_IO_WRITE : BDEV_IO_READ;
}

static void timed_done(struct bdev_io *io, void *arg)
{
	const struct bdev_stat_ops *class = io->ch->stat.class;
	struct timed *t = arg;
	uint64_t ticks = env_ticks() - t->submitted;
	uint64_t reported = class[BDEV_STAT_READ].ticks + class[BDEV_STAT_WRITE].ticks;

	run.sum += ticks;
	run.longest = ticks > run.longest ? ticks : run.longest;
	run.went_back |= reported < run.reported;
	run.reported = reported;
	t->idle = true;
	run.done++;
}

static void submit_idle(void)
{
	if (run.rounds < 4) {
		return; /* the first ones have other work, too */
	}
	if (run.stalls && run.submitted == 20) {
		run.stalls = false;
		spin(STALL_NS);
		run.round_begun = env_ticks(); /* the first part of this round is not noted */
	}
	for (unsigned i = 0; i < run.depth; i++) {
		if (run.io[i].idle && run.submitted < IOS) {
			run.io[i].idle = false;
			bdev_io_set_rw(run.io[i].io, io_type(run.submitted++), &run.iov, 1, 0, 1);
			run.io[i].submitted = env_ticks();
			bdev_submit(run.io[i].io);
		}
	}
}

/* A round is what lies between two runs of the first poller. */
static void note_round(void)
{
	uint64_t now = env_ticks(), ticks = now - run.round_begun;

	if (run.round_begun != 0) {
		run.rounds++;
		run.all_rounds += ticks;
		run.longest_round = ticks > run.longest_round ? ticks : run.longest_round;
	}
	run.round_begun = now;
	if (run.done == IOS && !atomic_load(&run.over)) { /* the last round has been noted, too */
		set_done(&run.over);
	}
}

static int work_poll(void *ctx)
{
	const enum work *w = ctx;

	if (w == run.works) {
		note_round();
	}
	switch (*w) {
	case DEVICE:
		clocked_poll();
		break;
	case SUBMIT:
		submit_idle();
		break;
	case NEAR:
		spin(NEAR_NS);
		break;
	case FAR:
		spin(FAR_NS);
		break;
	case END:
		break;
	}
	return POLLER_BUSY;
}

static void start_pollers(void *arg)
{
	for (unsigned i = 0; i < 5 && run.works[i] != END; i++) {
		run.pollers[i] = poller_register(
			&(struct poller_opts){.name = "work", .fn = work_poll, .ctx = &run.works[i], .fd = -1});
	}
}

static void stop_pollers(void *arg)
{
	for (unsigned i = 0; i < 5; i++) {
		if (run.pollers[i] != NULL) {
			poller_unregister(&run.pollers[i]);
		}
	}
}

struct scenario {
	bool in_submit, lingers, stalls;
	unsigned depth;
	enum work works[5]; /* of a round, in their order */
};

static void dev_make(const struct scenario *s)
{
	memset(&dev, 0, sizeof(dev));
	STAILQ_INIT(&dev.held);
	dev.in_submit = s->in_submit;
	dev.lingers = s->lingers;
	dev.bdev = (struct bdev){.name = "clocked",
				 .product_name = "clocked",
				 .num_blocks = 16,
				 .block_size = 512,
				 .io_types = 1u << BDEV_IO_READ | 1u << BDEV_IO_WRITE,
				 .numa_node = -1,
				 .ops = &clocked_ops,
				 .module = &clocked_module};
	CU_ASSERT_EQUAL_FATAL(bdev_register(&dev.bdev), 0);
}

static void dev_gone(void *arg, int rc)
{
	set_done(arg);
}

static void dev_remove(void)
{
	atomic_bool gone = false;

	bdev_unregister(&dev.bdev, dev_gone, &gone);
	CU_ASSERT_TRUE_FATAL(fixture_wait(&gone));
}

static void run_make(const struct scenario *s)
{
	memset(&run, 0, sizeof(run));
	memcpy(run.works, s->works, sizeof(run.works));
	run.depth = s->depth;
	run.stalls = s->stalls;
	run.iov = (struct iovec){buffer, sizeof(buffer)};
	CU_ASSERT_EQUAL_FATAL(user_open(&run.user, "clocked", true, fixture_thread(0)), 0);
	for (unsigned i = 0; i < run.depth; i++) {
		struct timed *t = &run.io[i];
		t->io = aligned_alloc(64, bdev_io_size());
		memset(t->io, 0, bdev_io_size());
		t->idle = true;
		bdev_io_init(t->io, run.user.desc, run.user.ch, timed_done, t);
	}
	thread_call(run.user.thread, start_pollers, NULL);
	CU_ASSERT_TRUE_FATAL(fixture_wait(&run.over));
	thread_call(run.user.thread, stop_pollers, NULL);
	user_close(&run.user);
	for (unsigned i = 0; i < run.depth; i++) {
		free(run.io[i].io);
	}
}

/* Whether another process had the CPU meanwhile: such a round is hundreds of times as long as others, and whether the
 * one I/O that it is about was a sample decides the mean of so few. */
static bool was_disturbed(void)
{
	return run.longest_round * run.rounds > 2 * run.all_rounds;
}

static bool is_near(uint64_t is, uint64_t should)
{
	return is * 5 > should * 4 && is * 5 < should * 6;
}

static void check_histogram(const struct bdev_stat *s)
{
	struct bdev_histogram *h = bdev_get_histogram(&dev.bdev);
	uint64_t sum = 0, n = 0;

	if (h == NULL) {
		return;
	}
	for (uint32_t i = 0; i < h->num_buckets; i++) {
		n += h->buckets[i];
		sum += h->buckets[i] * bdev_histogram_start(h, i);
	}
	bdev_histogram_free(h);
	CU_ASSERT_EQUAL(n, s->class[BDEV_STAT_READ].ops);
	CU_ASSERT_TRUE(is_near(s->class[BDEV_STAT_READ].ticks / n, sum / n));
}

static void check_run(const struct scenario *s)
{
	struct bdev_stat stat;

	bdev_get_stat(&dev.bdev, &stat);
	const struct bdev_stat_ops *r = &stat.class[BDEV_STAT_READ], *w = &stat.class[BDEV_STAT_WRITE];
	CU_ASSERT_EQUAL(r->ops + w->ops, IOS);
	if (!is_near(r->ticks + w->ticks, run.sum)) {
		printf("mean %lu ns, should be %lu ns\n", env_ticks_to_ns(r->ticks + w->ticks) / IOS,
		       env_ticks_to_ns(run.sum) / IOS);
		CU_FAIL("the mean is wrong");
	}
	CU_ASSERT_FALSE(run.went_back);
	CU_ASSERT_TRUE(r->min_ticks > 0 && r->min_ticks * 4 < run.sum / IOS * 5);
	CU_ASSERT_TRUE(r->max_ticks >= r->ticks / r->ops);
	CU_ASSERT_TRUE(r->max_ticks <= run.longest + run.longest_round || s->stalls);
	check_histogram(&stat);
}

/* Until an attempt succeeds in which nobody else had the CPU. */
static void check_scenario(const struct scenario *s, bool histogram)
{
	if (getenv("VARVE_VALGRIND") != NULL) {
		return; /* which runs one thread at a time, and calls take longer there than the device's work */
	}
	const struct bdev_histogram_opts opts = {.type = BDEV_IO_READ};
	uint64_t deadline = env_ticks() + WAIT_US / 1000000 * env_ticks_hz();
	bool disturbed;

	do {
		dev_make(s);
		CU_ASSERT_TRUE(!histogram || bdev_enable_histogram(&dev.bdev, &opts) == 0);
		run_make(s);
		disturbed = was_disturbed();
		if (!disturbed) {
			check_run(s);
		}
		dev_remove();
	} while (disturbed && env_ticks() < deadline);
	CU_ASSERT_FALSE(disturbed);
}

static const struct scenario scenarios[] = {
	{.in_submit = true, .depth = 1, .works = {SUBMIT, FAR}},
	{.in_submit = true, .depth = 1, .works = {FAR, SUBMIT}},
	/* It ends at the beginning of the round after that at whose end it begins. */
	{.depth = 1, .works = {NEAR, DEVICE, FAR, SUBMIT}},
	{.depth = DEPTH, .works = {NEAR, DEVICE, FAR, SUBMIT}},
	{.depth = 1, .works = {SUBMIT, NEAR, DEVICE, FAR}},
	{.depth = 1, .stalls = true, .works = {NEAR, DEVICE, FAR, SUBMIT}},
	/* Some end in their round, some much later. */
	{.depth = DEPTH, .lingers = true, .works = {SUBMIT, NEAR, DEVICE, FAR}},
	{.depth = DEPTH, .lingers = true, .works = {NEAR, DEVICE, FAR, SUBMIT}},
};

static void test_mean_time_is_what_the_submitter_measures(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(scenarios); i++) {
		check_scenario(&scenarios[i], false);
	}
}

static void test_histogram_has_the_same_mean(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(scenarios); i++) {
		check_scenario(&scenarios[i], true);
	}
}

/* The probe then has the exact time of each I/O. */
static void test_mean_time_is_the_same_with_a_tracer(void)
{
	varve_bdev_io_done_semaphore++;
	for (size_t i = 0; i < ARRAY_SIZE(scenarios); i++) {
		check_scenario(&scenarios[i], false);
	}
	varve_bdev_io_done_semaphore--;
}

static void test_times_are_right_after_a_reset_of_the_statistics(void)
{
	struct bdev_stat s;
	struct user u;
	const enum bdev_stat_reset kinds[] = {BDEV_STAT_RESET_MAXMIN, BDEV_STAT_RESET_ALL};

	dev_make(&scenarios[0]);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "clocked", true, fixture_thread(0)), 0);
	for (unsigned i = 0; i < 2; i++) {
		for (unsigned n = 0; n < 70; n++) {
			CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buffer, 0, 1), 0);
		}
		bdev_reset_stat(&dev.bdev, kinds[i]);
		CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buffer, 0, 1), 0);
		bdev_get_stat(&dev.bdev, &s);
		const struct bdev_stat_ops *r = &s.class[BDEV_STAT_READ];
		CU_ASSERT_TRUE(r->min_ticks >= NEAR_NS * env_ticks_hz() / 1000000000);
		CU_ASSERT_EQUAL(r->min_ticks, r->max_ticks);
		CU_ASSERT_TRUE(r->min_ticks * r->ops <= r->ticks || i == 0);
	}
	user_close(&u);
	dev_remove();
}

/* What is sampled next, and how soon. The control thread looks while the channel has no I/O. */
static void test_a_reset_of_nothing_leaves_the_choice_of_samples(void)
{
	struct user u;

	dev_make(&scenarios[0]);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "clocked", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buffer, 0, 1), 0);
	u.ch->until_sample[BDEV_IO_READ] = 5;
	bdev_reset_stat(&dev.bdev, BDEV_STAT_RESET_NONE);
	CU_ASSERT_EQUAL(u.ch->until_sample[BDEV_IO_READ], 5);
	bdev_reset_stat(&dev.bdev, BDEV_STAT_RESET_MAXMIN);
	CU_ASSERT_EQUAL(u.ch->until_sample[BDEV_IO_READ], 1);
	user_close(&u);
	dev_remove();
}

static const struct unit_test tests[] = {
	UNIT(test_mean_time_is_what_the_submitter_measures),
	UNIT(test_histogram_has_the_same_mean),
	UNIT(test_mean_time_is_the_same_with_a_tracer),
	UNIT(test_times_are_right_after_a_reset_of_the_statistics),
	UNIT(test_a_reset_of_nothing_leaves_the_choice_of_samples),
	UNIT_END,
};
UNIT_MAIN("bdev_latency", tests, fixture_start, fixture_stop)

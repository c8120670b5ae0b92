/* SPDX-License-Identifier: BSD-3-Clause */
/* I/O of many types through a stack of bdevs is taken back, aborted and reset at random moments, while rate limits come
 * and go. Each I/O has blocks of its own: after its end they change no more, so nothing of it is carried out later. */
#include "bdev_modules/delay/delay.h"
#include "bdev_modules/passthru/passthru.h"
#include "unittest/bdev/fixture.h"

#define BLOCK       512u
#define SLOTS       32u
#define OWN         24u /* the others share one range, so that they wait for its lock */
#define SLOT_BLOCKS 8u
#define SLOT_BYTES  (SLOT_BLOCKS * BLOCK)
#define STEPS       60000u

struct slot {
	struct bdev_io *io;
	struct iovec iov, compare;
	uint8_t *data; /* at an address that the device does not like, every other slot */
	bool shares;
	uint64_t first;  /* block */
	uint8_t *blocks; /* of the device */
	uint8_t *at_end; /* what they were when the last I/O ended */
	bool busy;
};

static struct {
	struct user user;
	struct slot slots[SLOTS];
	struct bdev_io *abort, *reset;
	bool abort_busy, reset_busy;
	uint64_t random;
	uint8_t pattern;
	unsigned steps, ended, aborted, late, wrong, resets;
	struct poller *poller;
	atomic_bool over;
} storm;

static void check_written(const struct slot *s)
{
	if (s->io->type == BDEV_IO_WRITE && memcmp(s->blocks, s->data, SLOT_BYTES) != 0) {
		storm.wrong++;
	}
}

static void slot_done(struct bdev_io *io, void *arg)
{
	struct slot *s = arg;

	CU_ASSERT_TRUE_FATAL(s->busy); /* each ends once */
	s->busy = false;
	storm.ended++;
	/* a pair whose write a module had is not to be repeated */
	uint16_t dnr = io->type == BDEV_IO_COMPARE_AND_WRITE ? NVME_SC_DNR : 0;
	bool aborted = (io->status & ~dnr) == NVME_SC_ABORT_REQ;
	storm.aborted += aborted;
	if (io->status == 0 && !s->shares) {
		check_written(s);
	} else if (io->status != 0 && !aborted &&
		   (io->status & BDEV_STATUS_MASK) != BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_COMPARE_FAILED)) {
		storm.wrong++;
	}
	memcpy(s->at_end, s->blocks, SLOT_BYTES);
}

static void slot_submit(struct slot *s)
{
	static const enum bdev_io_type types[] = {
		BDEV_IO_WRITE,        BDEV_IO_WRITE, BDEV_IO_READ,  BDEV_IO_COMPARE_AND_WRITE,
		BDEV_IO_WRITE_ZEROES, BDEV_IO_COPY,  BDEV_IO_VERIFY};
	enum bdev_io_type type = types[fixture_random(&storm.random) % (sizeof(types) / sizeof(types[0]))];

	storm.late += !s->shares && memcmp(s->at_end, s->blocks, SLOT_BYTES) != 0;
	if (s->shares) {
		type = fixture_random(&storm.random) % 2 ? BDEV_IO_WRITE : BDEV_IO_COMPARE_AND_WRITE;
	}
	s->busy = true;
	if (type != BDEV_IO_READ) {
		memset(s->data, ++storm.pattern, SLOT_BYTES);
	}
	s->iov = (struct iovec){s->data, SLOT_BYTES};
	bool has_data = type == BDEV_IO_READ || type == BDEV_IO_WRITE || type == BDEV_IO_COMPARE_AND_WRITE;
	bdev_io_set_rw(s->io, type, has_data ? &s->iov : NULL, has_data, s->first, SLOT_BLOCKS);
	if (type == BDEV_IO_COPY) {
		bdev_io_set_copy(s->io, s->first, s->first + SLOT_BLOCKS / 2, SLOT_BLOCKS / 2);
	} else if (type == BDEV_IO_COMPARE_AND_WRITE) {
		s->compare = (struct iovec){s->at_end, SLOT_BYTES}; /* equal */
		s->io->compare.iovs = &s->compare;
		s->io->compare.iovcnt = 1;
	}
	bdev_submit(s->io);
}

static void flag_done(struct bdev_io *io, void *arg)
{
	*(bool *)arg = false;
}

static void storm_abort(struct slot *s)
{
	if (!storm.abort_busy) {
		storm.abort_busy = true;
		storm.abort->type = BDEV_IO_ABORT;
		storm.abort->abort.target = s->io;
		bdev_submit(storm.abort);
	}
}

static void storm_reset(void)
{
	if (!storm.reset_busy) {
		storm.reset_busy = true;
		storm.resets++;
		storm.reset->type = BDEV_IO_RESET;
		bdev_submit(storm.reset);
	}
}

static bool storm_is_quiet(void)
{
	bool quiet = !storm.abort_busy && !storm.reset_busy;

	for (unsigned i = 0; i < SLOTS; i++) {
		if (storm.slots[i].busy) {
			bdev_io_take_back(storm.slots[i].io);
			quiet = false;
		}
	}
	return quiet;
}

static void storm_step(void)
{
	uint64_t r = fixture_random(&storm.random);
	struct slot *s = &storm.slots[r % SLOTS];
	unsigned what = (unsigned)(r >> 32) % 1000;

	if (!s->busy) {
		slot_submit(s);
	} else if (what < 200) {
		bdev_io_take_back(s->io);
	} else if (what < 230) {
		storm_abort(s);
	} else if (what == 999) {
		storm_reset();
	}
}

static int storm_poll(void *ctx)
{
	for (unsigned i = 0; i < 4 && storm.steps < STEPS; i++, storm.steps++) {
		storm_step();
	}
	if (storm.steps == STEPS && storm_is_quiet() && storm.poller != NULL) {
		poller_unregister(&storm.poller);
		set_done(&storm.over);
	}
	return POLLER_BUSY;
}

static void storm_begin(void *arg)
{
	storm.poller =
		poller_register(&(struct poller_opts){.name = "storm", .fn = storm_poll, .period_us = 10, .fd = -1});
}

static struct bdev_io *io_new(bdev_io_cb cb, void *arg)
{
	struct bdev_io *io = aligned_alloc(64, bdev_io_size());

	memset(io, 0, bdev_io_size());
	bdev_io_init(io, storm.user.desc, storm.user.ch, cb, arg);
	return io;
}

static void storm_make(struct testdev *t, uint8_t *memory)
{
	for (unsigned i = 0; i < SLOTS; i++) {
		struct slot *s = &storm.slots[i];
		s->io = io_new(slot_done, s);
		s->data = memory + (size_t)i * 3 * SLOT_BYTES + i % 2;
		s->at_end = memory + (size_t)i * 3 * SLOT_BYTES + 2 * SLOT_BYTES;
		s->shares = i >= OWN;
		s->first = (uint64_t)(s->shares ? OWN : i) * SLOT_BLOCKS;
		s->blocks = t->memory + s->first * BLOCK;
	}
	storm.abort = io_new(flag_done, &storm.abort_busy);
	storm.reset = io_new(flag_done, &storm.reset_busy);
}

static void storm_free(void)
{
	for (unsigned i = 0; i < SLOTS; i++) {
		free(storm.slots[i].io);
	}
	free(storm.abort);
	free(storm.reset);
}

static bool is_over(void *arg)
{
	return atomic_load(&storm.over);
}

/* Limits of p0 that come and go, until the storm is over. */
static void change_limits(struct bdev *b)
{
	for (unsigned i = 0; i < WAIT_US / 500 && !thread_control_wait(is_over, NULL, 500); i++) {
		const struct rate_limits l = {.rw_ios_per_sec = i % 4 == 0 ? 20000 : 0,
					      .w_bytes_per_sec = i % 4 == 1 ? 50000000 : 0};
		CU_ASSERT_EQUAL(bdev_set_qos_limits(b, &l), 0);
	}
	CU_ASSERT_EQUAL(bdev_set_qos_limits(b, &(struct rate_limits){0}), 0);
	CU_ASSERT_TRUE_FATAL(fixture_wait(&storm.over));
}

static void run_storm(uint64_t seed)
{
	const struct bdev_delay_opts slow = {
		.name = "d0", .base_bdev_name = "p0", .latency_us = {20, 200, 400, 20, 200, 400}};
	struct testdev *t = testdev_new("t0", BLOCK, SLOTS * SLOT_BLOCKS);
	uint8_t *memory = aligned_alloc(4096, (size_t)3 * SLOTS * SLOT_BYTES);
	char error[BDEV_ERROR_MAX];

	memset(memory, 0, (size_t)3 * SLOTS * SLOT_BYTES);
	memset(&storm, 0, sizeof(storm));
	storm.random = seed;
	t->bdev.max_rw_blocks = 2;
	t->bdev.buf_align = 16;
	t->shuffle = true;
	t->slots = 7;
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	CU_ASSERT_EQUAL_FATAL(bdev_passthru_create("p0", "t0", NULL, error), 0);
	CU_ASSERT_EQUAL_FATAL(bdev_delay_create(&slow, error), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&storm.user, "d0", true, fixture_thread(0)), 0);
	storm_make(t, memory);
	thread_call(storm.user.thread, storm_begin, NULL);
	change_limits(bdev_find("p0"));
	CU_ASSERT_EQUAL(storm.late, 0);
	CU_ASSERT_EQUAL(storm.wrong, 0);
	CU_ASSERT_TRUE(storm.ended > 100 && storm.aborted > 10 && storm.aborted < storm.ended);
	CU_ASSERT_FALSE(t->limits_broken);
	user_close(&storm.user);
	storm_free();
	CU_ASSERT_EQUAL(fixture_delete(bdev_delay_delete, "d0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p0"), 0);
	CU_ASSERT_TRUE(testdev_delete(t));
	free(memory);
}

static void test_nothing_is_carried_out_after_its_end(void)
{
	const char *seed = getenv("UNIT_SEED");

	if (seed != NULL) {
		run_storm(strtoull(seed, NULL, 0));
		return;
	}
	for (uint64_t i = 1; i <= 3; i++) {
		run_storm(i);
	}
}

static const struct unit_test tests[] = {UNIT(test_nothing_is_carried_out_after_its_end), UNIT_END};
UNIT_MAIN("bdev_take_back_storm", tests, fixture_start, fixture_stop)

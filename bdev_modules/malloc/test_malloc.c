/* SPDX-License-Identifier: BSD-3-Clause */
/* RAM disks: commands that are short to say and long to do leave the reactor to others meanwhile. */
#include "unittest/bdev/fixture.h"

#define BS     4096u
#define BLOCKS 4096u /* 16 MiB: many steps */

static uint8_t data[BLOCKS * BS] __attribute__((aligned(4096)));

/* A long I/O and a read of one block, submitted one right after the other; whether each had ended when both were
 * submitted. */
struct pair {
	struct request *first, *second;
	bool first_ended, second_ended;
};

static void submit_pair(void *arg)
{
	struct pair *p = arg;

	bdev_submit(p->first->io);
	bdev_submit(p->second->io);
	p->first_ended = atomic_load(&p->first->done);
	p->second_ended = atomic_load(&p->second->done);
}

static struct request *request_of(struct user *u, enum bdev_io_type type, uint64_t offset, uint64_t blocks)
{
	struct request *r = request_new(u);

	bdev_io_set_rw(r->io, type, NULL, 0, offset, blocks);
	return r;
}

static void open_new(struct user *u)
{
	make_malloc("m0", BS, BLOCKS);
	CU_ASSERT_EQUAL_FATAL(user_open(u, "m0", true, fixture_thread(0)), 0);
}

static void close_and_delete(struct user *u)
{
	user_close(u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
}

static void check_others_go_first(struct user *u, struct request *slow)
{
	struct iovec iov = {data, BS};
	struct pair p = {.first = slow, .second = request_of(u, BDEV_IO_READ, BLOCKS - 1, 1)};

	p.second->io->iovs = &iov;
	p.second->io->iovcnt = 1;
	thread_call(u->thread, submit_pair, &p);
	CU_ASSERT_FALSE(p.first_ended);
	CU_ASSERT_TRUE(p.second_ended);
	CU_ASSERT_EQUAL(request_finish(p.second), 0);
	CU_ASSERT_EQUAL(request_finish(p.first), 0);
}

static void test_long_commands_do_not_keep_others_waiting(void)
{
	struct user u;

	open_new(&u);
	check_others_go_first(&u, request_of(&u, BDEV_IO_UNMAP, 0, BLOCKS));
	check_others_go_first(&u, request_of(&u, BDEV_IO_WRITE_ZEROES, 0, BLOCKS));
	struct request *copy = request_new(&u);
	bdev_io_set_copy(copy->io, 0, BLOCKS / 2, BLOCKS / 2);
	check_others_go_first(&u, copy);
	close_and_delete(&u);
}

static bool is(uint8_t value, uint64_t first, uint64_t blocks)
{
	const uint8_t *p = data + first * BS;

	return p[0] == value && memcmp(p, p + 1, blocks * BS - 1) == 0;
}

/* All of the range, and nothing beside it; at once or in steps, of which the last one is short. */
static void test_long_commands_do_all_of_their_range(void)
{
	struct user u;

	open_new(&u);
	memset(data, 7, BLOCKS * BS);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, data, 0, BLOCKS), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE_ZEROES, NULL, 3, 1001), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_UNMAP, NULL, 1010, 1), 0);
	struct request *r = request_new(&u);
	bdev_io_set_copy(r->io, 1, 2001, 1003);
	CU_ASSERT_EQUAL(request_run(r), 0);
	request_free(r);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, data, 0, BLOCKS), 0);
	CU_ASSERT_TRUE(is(7, 0, 3) && is(0, 3, 1001) && is(7, 1004, 6) && is(0, 1010, 1) && is(7, 1011, 992));
	CU_ASSERT_TRUE(is(0, 2003, 1001) && is(7, 3004, BLOCKS - 3004));
	close_and_delete(&u);
}

/* Its reference tags go on from step to step, where they are the submitter's too. */
static void check_zeroes_in_steps(bool apart)
{
	const struct bdev_malloc_opts opts = {.name = "m0",
					      .block_size = 512,
					      .num_blocks = BLOCKS,
					      .numa_id = -1,
					      .md = {.size = 8, .dif_type = 1, .kept_apart = apart}};
	char error[BDEV_ERROR_MAX];
	struct iovec iov = {data, BLOCKS * 520u};
	struct request *r;
	struct user u;

	CU_ASSERT_EQUAL_FATAL(bdev_malloc_create(&opts, NULL, error), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "m0", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE_ZEROES, NULL, 0, BLOCKS), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, data, 0, BLOCKS), 0);
	CU_ASSERT_EQUAL(data[519], 0);
	CU_ASSERT_EQUAL(data[(BLOCKS - 1) * 520u + 519], (uint8_t)(BLOCKS - 1));
	r = request_of(&u, BDEV_IO_WRITE_ZEROES, 0, BLOCKS);
	bdev_io_set_dif(r->io, BDEV_DIF_TAGS, 5000, 0x11, 0);
	CU_ASSERT_EQUAL(request_run(r), 0);
	bdev_io_set_rw(r->io, BDEV_IO_READ, &iov, 1, 0, BLOCKS);
	bdev_io_set_dif(r->io, BDEV_DIF_TAGS | BDEV_DIF_GUARD | BDEV_DIF_REF | BDEV_DIF_APP, 5000, 0x11, 0xffff);
	CU_ASSERT_EQUAL(request_run(r), 0);
	request_free(r);
	close_and_delete(&u);
}

static void test_zeroes_written_in_steps_have_good_protection(void)
{
	check_zeroes_in_steps(false);
	check_zeroes_in_steps(true);
}

/* ---- Blocks with metadata against a model of them ---- */

#define MD      16u
#define EXT     (512u + MD)
#define EXTENTS 3000u /* more than a step */

static uint8_t expected[EXTENTS * EXT], buffer[EXTENTS * EXT];

static uint16_t run_cut(struct user *u, enum bdev_io_type type, uint64_t offset, uint64_t blocks, size_t cut)
{
	size_t bytes = blocks * EXT;
	struct iovec iovs[3] = {
		{buffer, cut % bytes}, {buffer + cut % bytes, 0}, {buffer + cut % bytes, bytes - cut % bytes}};
	struct request *r = request_new(u);

	bdev_io_set_rw(r->io, type, iovs, 3, offset, blocks);
	uint16_t status = request_run(r);
	request_free(r);
	return status;
}

static uint16_t copy(struct user *u, uint64_t from, uint64_t to, uint64_t blocks)
{
	struct request *r = request_new(u);

	bdev_io_set_copy(r->io, from, to, blocks);
	uint16_t status = request_run(r);
	request_free(r);
	return status;
}

/* One command on a random range of up to a third, and what it does to the model. */
static void change_at_random(struct user *u, uint64_t *seed)
{
	uint64_t blocks = 1 + fixture_random(seed) % (EXTENTS / 3), at = fixture_random(seed) % (EXTENTS - blocks),
		 from = at >= blocks ? 0 : at + blocks;
	uint8_t *range = expected + at * EXT;

	switch (fixture_random(seed) % 4) {
	case 0:
		for (size_t i = 0; i < blocks * EXT; i++) {
			buffer[i] = (uint8_t)fixture_random(seed);
		}
		memcpy(range, buffer, blocks * EXT);
		CU_ASSERT_EQUAL(run_cut(u, BDEV_IO_WRITE, at, blocks, fixture_random(seed)), 0);
		break;
	case 1:
		memset(range, 0, blocks * EXT);
		CU_ASSERT_EQUAL(user_io(u, BDEV_IO_UNMAP, NULL, at, blocks), 0);
		break;
	case 2:
		memset(range, 0, blocks * EXT);
		CU_ASSERT_EQUAL(user_io(u, BDEV_IO_WRITE_ZEROES, NULL, at, blocks), 0);
		break;
	default:
		memmove(range, expected + from * EXT, blocks * EXT);
		CU_ASSERT_EQUAL(copy(u, from, at, blocks), 0);
		break;
	}
}

static void check_against_model(bool apart)
{
	const struct bdev_malloc_opts opts = {.name = "m0",
					      .block_size = 512,
					      .num_blocks = EXTENTS,
					      .numa_id = -1,
					      .md = {.size = MD, .kept_apart = apart}};
	char error[BDEV_ERROR_MAX];
	uint64_t seed = apart;
	struct user u;

	CU_ASSERT_EQUAL_FATAL(bdev_malloc_create(&opts, NULL, error), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "m0", true, fixture_thread(0)), 0);
	memset(expected, 0, sizeof(expected));
	for (unsigned i = 0; i < 60; i++) {
		change_at_random(&u, &seed);
		memcpy(buffer, expected, sizeof(buffer));
		CU_ASSERT_EQUAL(run_cut(&u, BDEV_IO_COMPARE, 0, EXTENTS, fixture_random(&seed)), 0);
		buffer[fixture_random(&seed) % sizeof(buffer)] ^= 1;
		CU_ASSERT_EQUAL(run_cut(&u, BDEV_IO_COMPARE, 0, EXTENTS, fixture_random(&seed)),
				BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_COMPARE_FAILED) | NVME_SC_DNR);
		CU_ASSERT_EQUAL(run_cut(&u, BDEV_IO_READ, 0, EXTENTS, fixture_random(&seed)), 0);
		CU_ASSERT_EQUAL(memcmp(buffer, expected, sizeof(buffer)), 0);
	}
	close_and_delete(&u);
}

static void test_blocks_with_metadata_are_as_in_a_model(void)
{
	check_against_model(false);
	check_against_model(true);
}

static void test_long_commands_can_be_aborted(void)
{
	struct user u;

	open_new(&u);
	struct pair p = {.first = request_of(&u, BDEV_IO_UNMAP, 0, BLOCKS),
			 .second = request_of(&u, BDEV_IO_ABORT, 0, 0)};
	p.second->io->abort.target = p.first->io;
	thread_call(u.thread, submit_pair, &p);
	CU_ASSERT_TRUE(p.first_ended && p.second_ended);
	CU_ASSERT_EQUAL(p.second->cdw0, 0);
	CU_ASSERT_EQUAL(request_finish(p.second), 0);
	CU_ASSERT_EQUAL(request_finish(p.first), NVME_SC_ABORT_REQ);
	close_and_delete(&u);
}

/* One that is always under way, until something ends it. */
struct endless {
	struct bdev_io *io;
	atomic_bool ended;
	uint16_t status;
};

static void once_more(struct bdev_io *io, void *arg)
{
	struct endless *e = arg;

	if (io->status == 0) {
		bdev_submit(io);
	} else {
		e->status = io->status;
		set_done(&e->ended);
	}
}

static void submit_endless(void *arg)
{
	bdev_submit(((struct endless *)arg)->io);
}

static void test_a_reset_ends_long_commands(void)
{
	struct endless e = {0};
	struct user u;

	open_new(&u);
	struct request *r = request_of(&u, BDEV_IO_WRITE_ZEROES, 0, BLOCKS);
	e.io = r->io;
	bdev_io_init(r->io, u.desc, u.ch, once_more, &e);
	thread_call(u.thread, submit_endless, &e);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_RESET, NULL, 0, 0), 0);
	CU_ASSERT_TRUE_FATAL(fixture_wait(&e.ended));
	CU_ASSERT_EQUAL(e.status, NVME_SC_ABORT_REQ);
	request_free(r);
	close_and_delete(&u);
}

static void creation_ended(void *arg, int rc, const char *text)
{
	*(int *)arg = rc;
}

static void test_the_end_of_creations_can_be_waited_for(void)
{
	const struct bdev_malloc_opts opts = {.name = "large", .block_size = BS, .num_blocks = 16384, .numa_id = -1};
	atomic_bool done = false, again = false;
	int rc = 1;

	bdev_malloc_create_async(&opts, creation_ended, &rc);
	bdev_finish_creations(set_done, &done);
	CU_ASSERT_FALSE(done);
	CU_ASSERT_TRUE_FATAL(fixture_wait(&done));
	CU_ASSERT_EQUAL(rc, 0);
	bdev_finish_creations(set_done, &again);
	CU_ASSERT_TRUE(again); /* there is none */
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "large"), 0);
}

static void test_the_layer_stops_after_the_last_creation(void)
{
	const struct bdev_malloc_opts opts = {.name = "late", .block_size = BS, .num_blocks = 16384, .numa_id = -1};
	struct bdev_malloc_opts huge = opts;
	atomic_bool done = false;
	int rc = 1, queued = 1, later = 1;

	huge.name = "huge"; /* more than there is: it would be refused for that if anybody tried to get its memory */
	huge.num_blocks = UINT64_C(1) << 45;
	bdev_malloc_create_async(&opts, creation_ended, &rc);
	bdev_malloc_create_async(&huge, creation_ended, &queued);
	CU_ASSERT_EQUAL(rc, 1); /* large: on a worker thread */
	bdev_fini(set_done, &done);
	bdev_malloc_create_async(&opts, creation_ended, &later);
	CU_ASSERT_EQUAL(later, -ESHUTDOWN);
	CU_ASSERT_TRUE_FATAL(fixture_wait(&done));
	CU_ASSERT_EQUAL(rc, -ESHUTDOWN);
	CU_ASSERT_EQUAL(queued, -ESHUTDOWN);
	CU_ASSERT_PTR_NULL(bdev_find("late"));
	CU_ASSERT_EQUAL_FATAL(bdev_init(), 0);
	make_malloc("m0", BS, BLOCKS); /* and can be started again */
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
}

static const struct unit_test tests[] = {
	UNIT(test_long_commands_do_not_keep_others_waiting),
	UNIT(test_long_commands_do_all_of_their_range),
	UNIT(test_zeroes_written_in_steps_have_good_protection),
	UNIT(test_blocks_with_metadata_are_as_in_a_model),
	UNIT(test_long_commands_can_be_aborted),
	UNIT(test_a_reset_ends_long_commands),
	UNIT(test_the_end_of_creations_can_be_waited_for),
	UNIT(test_the_layer_stops_after_the_last_creation),
	UNIT_END,
};
UNIT_MAIN("bdev_malloc", tests, fixture_start, fixture_stop)

/* SPDX-License-Identifier: BSD-3-Clause */
/* Metadata I/O of a module on its base: from the control thread, and from a worker thread. */
#include "unittest/bdev/fixture.h"

#include <errno.h>

#include "bdev/vbdev/meta.h"
#include "thread/worker.h"
#include "util/compiler.h"

#define BLOCK  512u
#define BLOCKS 64u

static struct testdev *disk;
static struct bdev_desc *desc;
static struct vbdev_meta *meta;
static struct user below; /* reaches the disk's channel of the control thread */
static uint8_t out[BLOCKS * BLOCK], in[BLOCKS * BLOCK];

struct op {
	struct vbdev_meta_op op;
	atomic_bool done;
};

static void op_done(struct vbdev_meta_op *op)
{
	set_done(&((struct op *)op)->done);
}

static struct op op_of(enum bdev_io_type type, void *data, uint64_t offset, uint64_t num)
{
	return (struct op){
		.op = {.type = type, .offset_blocks = offset, .num_blocks = num, .data = data, .done = op_done}};
}

/* Its error, or 1 if there is no answer. */
static int run(struct op *o)
{
	atomic_store(&o->done, false);
	vbdev_meta_start(meta, &o->op);
	CU_ASSERT_FALSE(atomic_load(&o->done)); /* never before it has returned */
	return fixture_wait(&o->done) ? o->op.error : 1;
}

static int run_new(enum bdev_io_type type, void *data, uint64_t offset, uint64_t num)
{
	struct op o = op_of(type, data, offset, num);
	return run(&o);
}

static void ignore_event(struct bdev_desc *d, enum bdev_event event, void *arg)
{
}

static void start(void)
{
	disk = testdev_new("t0", BLOCK, BLOCKS);
	disk->bdev.io_types |= 1u << BDEV_IO_FLUSH;
	CU_ASSERT_EQUAL_FATAL(testdev_register(disk), 0);
	CU_ASSERT_EQUAL_FATAL(bdev_open("t0", true, ignore_event, NULL, &desc), 0);
	CU_ASSERT_EQUAL_FATAL(vbdev_meta_open(desc, "the_test", &meta), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&below, "t0", false, thread_control()), 0);
	for (unsigned i = 0; i < sizeof(out); i++) {
		out[i] = (uint8_t)(i * 7 + i / BLOCK);
	}
}

static void meta_closed(void *flag)
{
	set_done(flag);
}

static void close_meta(void)
{
	atomic_bool closed = false;

	vbdev_meta_close(meta, meta_closed, &closed);
	CU_ASSERT_TRUE(fixture_wait(&closed));
	bdev_close(desc);
}

static void stop(void)
{
	close_meta();
	user_close(&below);
	CU_ASSERT_TRUE(testdev_delete(disk));
}

static void test_what_is_written_is_read(void)
{
	start();
	CU_ASSERT_EQUAL(run_new(BDEV_IO_WRITE, out + 1, 3, 5), 0); /* of any alignment */
	CU_ASSERT_EQUAL(run_new(BDEV_IO_FLUSH, NULL, 0, 0), 0);
	CU_ASSERT_EQUAL(run_new(BDEV_IO_READ, in + 3, 3, 5), 0);
	CU_ASSERT_EQUAL(memcmp(in + 3, out + 1, 5 * BLOCK), 0);
	CU_ASSERT_EQUAL(run_new(BDEV_IO_WRITE_ZEROES, NULL, 4, 1), 0);
	CU_ASSERT_EQUAL(run_new(BDEV_IO_READ, in, 3, 2), 0);
	CU_ASSERT_EQUAL(memcmp(in, out + 1, BLOCK), 0);
	CU_ASSERT_EQUAL(in[BLOCK], 0);
	stop();
}

static void test_errors_are_told_as_errno_and_status(void)
{
	struct op o = op_of(BDEV_IO_READ, in, 0, 1);

	start();
	disk->fail_status = BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_READ_ERROR);
	memset(in, 0x5a, BLOCK);
	CU_ASSERT_EQUAL(run(&o), -EIO);
	CU_ASSERT_EQUAL(o.op.status, BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_READ_ERROR));
	CU_ASSERT_EQUAL(in[0], 0x5a); /* nothing is read then */
	disk->fail_status = NVME_SC_CAP_EXCEEDED | NVME_SC_DNR;
	CU_ASSERT_EQUAL(run_new(BDEV_IO_WRITE, out, 0, 1), -ENOSPC);
	disk->fail_status = 0;
	CU_ASSERT_EQUAL(run_new(BDEV_IO_READ, in, BLOCKS, 1), -EINVAL);
	CU_ASSERT_EQUAL(run_new(BDEV_IO_READ, in, 0, UINT64_MAX), -EINVAL);
	CU_ASSERT_EQUAL(run_new(BDEV_IO_COMPARE, in, 0, 1), -EINVAL);
	CU_ASSERT_EQUAL(run(&o), 0);
	CU_ASSERT_EQUAL(o.op.status, 0);
	stop();
}

static void test_no_blocks_are_an_error_of_data_alone(void)
{
	struct op o = op_of(BDEV_IO_READ, in, 0, 0);

	start();
	CU_ASSERT_EQUAL(run(&o), -EINVAL);
	CU_ASSERT_EQUAL(o.op.status, NVME_SC_LBA_RANGE | NVME_SC_DNR);
	CU_ASSERT_EQUAL(run_new(BDEV_IO_WRITE, out, 0, 0), -EINVAL);
	CU_ASSERT_EQUAL(run_new(BDEV_IO_UNMAP, NULL, 0, 0), -EINVAL);
	CU_ASSERT_EQUAL(run_new(BDEV_IO_FLUSH, NULL, 0, 0), 0);
	CU_ASSERT_EQUAL(atomic_load(&disk->submitted), 1);
	stop();
}

/* The types that the base does not have, and a descriptor that may not write. */
static void test_what_the_base_cannot_do(void)
{
	start();
	disk->bdev.io_types &= ~(1u << BDEV_IO_FLUSH);
	CU_ASSERT_EQUAL(run_new(BDEV_IO_FLUSH, NULL, 0, 0), 0); /* it has no cache */
	CU_ASSERT_EQUAL(atomic_load(&disk->submitted), 0);
	close_meta();
	CU_ASSERT_EQUAL_FATAL(bdev_open("t0", false, ignore_event, NULL, &desc), 0);
	CU_ASSERT_EQUAL_FATAL(vbdev_meta_open(desc, "the_test", &meta), 0);
	CU_ASSERT_EQUAL(run_new(BDEV_IO_WRITE, out, 0, 1), -EPERM);
	CU_ASSERT_EQUAL(run_new(BDEV_IO_READ, in, 0, 1), 0);
	stop();
}

static void test_the_data_of_a_write_is_copied_at_once(void)
{
	struct op o = op_of(BDEV_IO_WRITE, in, 7, 1);

	start();
	disk->hold = true;
	memset(in, 1, BLOCK);
	vbdev_meta_start(meta, &o.op);
	memset(in, 2, BLOCK);
	testdev_release(disk, &below, 0);
	CU_ASSERT_TRUE(fixture_wait(&o.done));
	CU_ASSERT_EQUAL(disk->memory[7 * BLOCK], 1);
	stop();
}

static void test_a_base_short_of_resources_is_tried_again(void)
{
	struct op o[8];

	start();
	disk->slots = 1;
	disk->shuffle = true;
	for (unsigned i = 0; i < 8; i++) {
		o[i] = op_of(BDEV_IO_WRITE, out + i * BLOCK, i, 1);
		vbdev_meta_start(meta, &o[i].op);
	}
	for (unsigned i = 0; i < 8; i++) {
		CU_ASSERT_TRUE(fixture_wait(&o[i].done));
		CU_ASSERT_EQUAL(o[i].op.error, 0);
	}
	CU_ASSERT_EQUAL(memcmp(disk->memory, out, 8 * BLOCK), 0);
	stop();
}

static void test_a_late_answer_is_an_error_and_the_io_is_aborted(void)
{
	struct op o = op_of(BDEV_IO_READ, in, 0, 1);

	start();
	disk->hold = true;
	o.op.timeout_us = 2000;
	CU_ASSERT_EQUAL(run(&o), -ETIMEDOUT);
	CU_ASSERT_TRUE(fixture_wait_count(&disk->submitted, 1));
	CU_ASSERT_EQUAL(atomic_load(&disk->held), 0);
	stop();
}

/* Its memory is the caller's when the time is up, although the device may still write to what it was given. */
static void test_an_io_that_cannot_be_aborted_is_waited_for_at_the_end_only(void)
{
	struct op *o = malloc(sizeof(*o));
	atomic_bool closed = false;

	start();
	disk->hold = disk->deaf = true;
	*o = op_of(BDEV_IO_READ, malloc(BLOCK), 0, 1);
	o->op.timeout_us = 2000;
	CU_ASSERT_EQUAL(run(o), -ETIMEDOUT);
	free(o->op.data);
	free(o);
	vbdev_meta_close(meta, meta_closed, &closed);
	CU_ASSERT_FALSE(atomic_load(&closed));
	testdev_release(disk, &below, 0);
	CU_ASSERT_TRUE(fixture_wait(&closed));
	bdev_close(desc);
	user_close(&below);
	CU_ASSERT_TRUE(testdev_delete(disk));
}

static void test_closing_aborts_and_answers_all(void)
{
	struct op o[4];

	start();
	disk->hold = true;
	for (unsigned i = 0; i < 4; i++) {
		o[i] = op_of(BDEV_IO_READ, in + i * BLOCK, i, 1);
		vbdev_meta_start(meta, &o[i].op);
	}
	close_meta();
	for (unsigned i = 0; i < 4; i++) {
		CU_ASSERT_TRUE(atomic_load(&o[i].done));
		CU_ASSERT_EQUAL(o[i].op.error, -ECANCELED);
	}
	user_close(&below);
	CU_ASSERT_TRUE(testdev_delete(disk));
}

/* It may have been under way from a worker thread. */
static void test_an_operation_that_comes_after_closing_is_not_carried_out(void)
{
	struct op before = op_of(BDEV_IO_READ, in, 0, 1), after = op_of(BDEV_IO_WRITE, out, 1, 1);
	atomic_bool closed = false;

	start();
	disk->hold = true;
	vbdev_meta_start(meta, &before.op);
	vbdev_meta_close(meta, meta_closed, &closed);
	vbdev_meta_start(meta, &after.op);
	CU_ASSERT_TRUE(fixture_wait(&closed));
	CU_ASSERT_TRUE(fixture_wait(&after.done));
	CU_ASSERT_EQUAL(before.op.error, -ECANCELED);
	CU_ASSERT_EQUAL(after.op.error, -ECANCELED);
	CU_ASSERT_EQUAL(atomic_load(&disk->submitted), 1);
	bdev_close(desc);
	user_close(&below);
	CU_ASSERT_TRUE(testdev_delete(disk));
}

static void deletion_done(void *flag, int rc)
{
	set_done(flag);
}

static void test_a_base_that_goes_meanwhile(void)
{
	struct op o = op_of(BDEV_IO_READ, in, 0, 1);
	atomic_bool deleted = false;

	start();
	disk->hold = true;
	vbdev_meta_start(meta, &o.op);
	bdev_unregister(&disk->bdev, deletion_done, &deleted);
	CU_ASSERT_EQUAL(run_new(BDEV_IO_WRITE, out, 0, 1), -ENODEV);
	CU_ASSERT_FALSE(atomic_load(&o.done));
	testdev_release(disk, &below, 0);
	CU_ASSERT_TRUE(fixture_wait(&o.done));
	CU_ASSERT_EQUAL(o.op.error, 0);
	close_meta();
	user_close(&below);
	CU_ASSERT_TRUE(fixture_wait(&deleted));
}

/* --- From a worker thread --- */

struct job {
	struct worker_job job;
	enum bdev_io_type type;
	void *data;
	uint64_t timeout_us;
	int error;
	unsigned times;
	atomic_bool done;
};

static void job_work(struct worker_job *job)
{
	struct job *j = container_of(job, struct job, job);

	for (unsigned i = 0; i < j->times && j->error == 0; i++) {
		struct op o = op_of(j->type, j->data, i % BLOCKS, 1);
		o.op.timeout_us = j->timeout_us;
		j->error = vbdev_meta_run(meta, &o.op);
	}
}

static void job_done(struct worker_job *job)
{
	set_done(&container_of(job, struct job, job)->done);
}

static void job_start(struct job *j, enum bdev_io_type type, void *data, unsigned times)
{
	*j = (struct job){.job = {.work = job_work, .done = job_done}, .type = type, .data = data, .times = times};
	worker_run(NULL, &j->job);
}

static void test_worker_threads_wait_for_their_answers(void)
{
	struct job j[3];

	start();
	job_start(&j[0], BDEV_IO_WRITE, out, 200);
	job_start(&j[1], BDEV_IO_READ, in, 200);
	job_start(&j[2], BDEV_IO_FLUSH, NULL, 200);
	for (unsigned i = 0; i < 3; i++) {
		CU_ASSERT_TRUE(fixture_wait(&j[i].done));
		CU_ASSERT_EQUAL(j[i].error, 0);
	}
	CU_ASSERT_EQUAL(memcmp(disk->memory + 9 * BLOCK, out, BLOCK), 0);
	disk->fail_status = NVME_SC_NS_WRITE_PROTECTED | NVME_SC_DNR;
	job_start(&j[0], BDEV_IO_WRITE, out, 1);
	CU_ASSERT_TRUE(fixture_wait(&j[0].done));
	CU_ASSERT_EQUAL(j[0].error, -EROFS);
	stop();
}

static void test_a_worker_thread_has_a_deadline_too(void)
{
	struct job j = {.job = {.work = job_work, .done = job_done},
			.type = BDEV_IO_READ,
			.data = in,
			.times = 1,
			.timeout_us = 2000};

	start();
	disk->hold = disk->deaf = true;
	worker_run(NULL, &j.job);
	CU_ASSERT_TRUE(fixture_wait(&j.done));
	CU_ASSERT_EQUAL(j.error, -ETIMEDOUT);
	testdev_release(disk, &below, 0);
	stop();
}

static void test_a_base_that_goes_while_a_worker_thread_waits(void)
{
	atomic_bool deleted = false;
	struct job j;

	start();
	disk->hold = true;
	job_start(&j, BDEV_IO_WRITE, out, 2);
	CU_ASSERT_TRUE(fixture_wait_count(&disk->held, 1));
	bdev_unregister(&disk->bdev, deletion_done, &deleted);
	testdev_release(disk, &below, 0);
	CU_ASSERT_TRUE(fixture_wait(&j.done));
	CU_ASSERT_EQUAL(j.error, -ENODEV); /* the first was written, the second came too late */
	close_meta();
	user_close(&below);
	CU_ASSERT_TRUE(fixture_wait(&deleted));
}

static void test_who_would_wait_for_itself_is_told(void)
{
	struct op o = op_of(BDEV_IO_READ, in, 0, 1);

	start();
	CU_ASSERT_EQUAL(vbdev_meta_run(meta, &o.op), -EDEADLK);
	CU_ASSERT_EQUAL(atomic_load(&disk->submitted), 0);
	stop();
}

/* --- Blocks with metadata --- */

static void test_blocks_with_metadata_take_and_give_data_alone(void)
{
	char name[256], error[BDEV_ERROR_MAX];
	struct bdev_malloc_opts opts = {.name = "m0",
					.block_size = BLOCK,
					.num_blocks = BLOCKS,
					.numa_id = -1,
					.md = {.size = 8, .dif_type = 1}};

	CU_ASSERT_EQUAL_FATAL(bdev_malloc_create(&opts, name, error), 0);
	CU_ASSERT_EQUAL_FATAL(bdev_open("m0", true, ignore_event, NULL, &desc), 0);
	CU_ASSERT_EQUAL_FATAL(vbdev_meta_open(desc, "the_test", &meta), 0);
	CU_ASSERT_EQUAL(run_new(BDEV_IO_WRITE, out, 3, 5), 0);
	CU_ASSERT_EQUAL(run_new(BDEV_IO_READ, in, 3, 5), 0);
	CU_ASSERT_EQUAL(memcmp(in, out, 5 * BLOCK), 0);
	close_meta();
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
}

static const struct unit_test tests[] = {
	UNIT(test_what_is_written_is_read),
	UNIT(test_errors_are_told_as_errno_and_status),
	UNIT(test_no_blocks_are_an_error_of_data_alone),
	UNIT(test_what_the_base_cannot_do),
	UNIT(test_the_data_of_a_write_is_copied_at_once),
	UNIT(test_a_base_short_of_resources_is_tried_again),
	UNIT(test_a_late_answer_is_an_error_and_the_io_is_aborted),
	UNIT(test_an_io_that_cannot_be_aborted_is_waited_for_at_the_end_only),
	UNIT(test_closing_aborts_and_answers_all),
	UNIT(test_an_operation_that_comes_after_closing_is_not_carried_out),
	UNIT(test_a_base_that_goes_meanwhile),
	UNIT(test_worker_threads_wait_for_their_answers),
	UNIT(test_a_worker_thread_has_a_deadline_too),
	UNIT(test_a_base_that_goes_while_a_worker_thread_waits),
	UNIT(test_who_would_wait_for_itself_is_told),
	UNIT(test_blocks_with_metadata_take_and_give_data_alone),
	UNIT_END,
};
UNIT_MAIN("bdev_meta", tests, fixture_start, fixture_stop)

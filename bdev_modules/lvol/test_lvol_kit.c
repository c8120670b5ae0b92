/* SPDX-License-Identifier: BSD-3-Clause */
#include "bdev_modules/lvol/test_lvol_kit.h"

#include <string.h>

uint8_t data[CLUSTER] __attribute__((aligned(4096)));
char error[BDEV_ERROR_MAX];

void operation_ended(void *arg, int rc, const char *why, const char *uuid)
{
	struct operation *op = arg;

	op->rc = rc;
	snprintf(op->uuid, sizeof(op->uuid), "%s", uuid);
	snprintf(op->why, sizeof(op->why), "%s", why);
	set_done(&op->done);
}

int operation_wait(struct operation *op)
{
	CU_ASSERT_TRUE_FATAL(fixture_wait(&op->done));
	return op->rc;
}

int store_make(const char *bdev)
{
	struct operation op = {0};

	bdev_lvol_store_create(
		&(struct bdev_lvol_store_opts){.bdev_name = bdev, .name = "lvs", .cluster_bytes = CLUSTER},
		operation_ended, &op);
	return operation_wait(&op);
}

struct bdev_lvol_store *the_store(void)
{
	int rc;

	return bdev_lvol_store_find(NULL, "lvs", &rc, error);
}

int store_delete(void)
{
	struct operation op = {0};

	bdev_lvol_store_delete(the_store(), operation_ended, &op);
	return operation_wait(&op);
}

int volume_make(const char *name, uint64_t bytes, bool thin)
{
	struct operation op = {0};

	bdev_lvol_create(
		&(struct bdev_lvol_opts){.store = the_store(), .name = name, .size_bytes = bytes, .thin = thin},
		operation_ended, &op);
	return operation_wait(&op);
}

void change_start(struct operation *op, enum bdev_lvol_change change, const char *name, const char *new_name,
		  uint64_t bytes)
{
	memset(op, 0, sizeof(*op));
	bdev_lvol_change(
		&(struct bdev_lvol_change_opts){
			.change = change, .name = name, .new_name = new_name, .size_bytes = bytes},
		operation_ended, op);
}

int change_run(enum bdev_lvol_change change, const char *name, const char *new_name, uint64_t bytes)
{
	struct operation op;

	change_start(&op, change, name, new_name, bytes);
	return operation_wait(&op);
}

static void flag_examined(void *flag)
{
	set_done(flag);
}

void wait_for_examine(void)
{
	atomic_bool done = false;
	struct bdev_examine_waiter w = {.done = flag_examined, .arg = &done};

	bdev_wait_for_examine(&w);
	CU_ASSERT_TRUE_FATAL(fixture_wait(&done));
}

uint32_t free_clusters(void)
{
	return lvol_live_info(bdev_lvol_store_live(the_store())).free_clusters;
}

bool has_free_clusters(void *arg)
{
	return free_clusters() == *(const uint32_t *)arg;
}

/* --- I/O --- */

uint16_t fill(struct user *u, uint8_t byte, uint64_t block, uint64_t blocks)
{
	memset(data, byte, blocks * BLOCK);
	return user_io(u, BDEV_IO_WRITE, data, block, blocks);
}

bool holds(struct user *u, uint8_t byte, uint64_t block, uint64_t blocks)
{
	for (uint64_t i = 0; i < blocks; i++) {
		memset(data, ~byte, BLOCK);
		if (user_io(u, BDEV_IO_READ, data, block + i, 1) != 0 || data[0] != byte ||
		    memcmp(data, data + 1, BLOCK - 1) != 0) {
			return false;
		}
	}
	return true;
}

void store_on_malloc(void)
{
	struct user u;

	make_malloc("m0", BLOCK, BASE_BLOCKS);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "m0", true, fixture_thread(0)), 0);
	for (unsigned i = 0; i < BASE_BLOCKS; i += CLUSTER_BLOCKS) {
		CU_ASSERT_EQUAL_FATAL(fill(&u, 0xee, i, CLUSTER_BLOCKS), 0);
	}
	user_close(&u);
	wait_for_examine();
	struct operation op = {0};
	bdev_lvol_store_create(
		&(struct bdev_lvol_store_opts){
			.bdev_name = "m0", .name = "lvs", .cluster_bytes = CLUSTER, .clear = BDEV_LVOL_CLEAR_NONE},
		operation_ended, &op);
	CU_ASSERT_EQUAL_FATAL(operation_wait(&op), 0);
}

void store_off_malloc(void)
{
	CU_ASSERT_EQUAL(store_delete(), 0);
	CU_ASSERT_EQUAL(bdev_get_claim(bdev_find("m0"), NULL), BDEV_CLAIM_NONE);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
}

/* --- What is under way --- */

uint8_t other_data[BLOCK] __attribute__((aligned(4096)));
struct iovec one_block = {data, BLOCK}, other_block = {other_data, BLOCK};

struct request *write_start(struct user *u, uint64_t block)
{
	struct request *r = request_new(u);

	bdev_io_set_rw(r->io, BDEV_IO_WRITE, &one_block, 1, block, 1);
	request_submit(r);
	return r;
}

struct testdev *store_on_testdev(struct user *u)
{
	struct testdev *t = testdev_new("t0", BLOCK, BASE_BLOCKS);

	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	wait_for_examine();
	CU_ASSERT_EQUAL_FATAL(store_make("t0"), 0);
	CU_ASSERT_EQUAL_FATAL(volume_make("v", VOLUME_BYTES, true), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(u, "lvs/v", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(fill(u, 1, 0, 1), 0);
	return t;
}

void store_off_testdev(struct testdev *t, struct user *u)
{
	if (u->desc != NULL) {
		user_close(u);
	}
	if (the_store() != NULL) {
		CU_ASSERT_EQUAL(store_delete(), 0);
	}
	CU_ASSERT_TRUE(testdev_delete(t));
}

void watch_base(struct user *base)
{
	CU_ASSERT_EQUAL_FATAL(user_open(base, "t0", false, fixture_thread(0)), 0);
	base->close_on_remove = true;
}

static unsigned inflight_waits;

static bool count_waits(void *arg, const struct bdev_inflight *one)
{
	inflight_waits += strstr(one->waits_for, arg) != NULL;
	return true;
}

bool something_waits(void *for_what)
{
	inflight_waits = 0;
	bdev_for_each_inflight(bdev_find("lvs/v"), count_waits, for_what);
	return inflight_waits > 0;
}

struct request *abort_of(struct user *u, struct request *target)
{
	struct request *abort = request_new(u);

	abort->io->type = BDEV_IO_ABORT;
	abort->io->abort.target = target->io;
	return abort;
}

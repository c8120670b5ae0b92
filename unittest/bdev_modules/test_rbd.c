/* SPDX-License-Identifier: BSD-3-Clause */
/* The module on a library in memory: what each operation leaves behind, whatever happens meanwhile. */
#include "unittest/bdev/fixture.h"

#include "unittest/bdev_modules/rbd_kit.h"
#include "bdev/owner.h"
#include "bdev_modules/rbd/rbd.h"
#include "thread/worker.h"

static int register_cluster(const struct bdev_rbd_cluster_opts *opts, struct answer *a)
{
	*a = (struct answer){.rc = 1};
	bdev_rbd_register_cluster(opts, on_answer, a);
	return answer_rc(a);
}

static int unregister_cluster(const char *name)
{
	struct answer a = {.rc = 1};

	bdev_rbd_unregister_cluster(name, on_answer, &a);
	return answer_rc(&a);
}

/* Makes the bdev "R", and its user on the thread of this number. */
static void open_new_of(struct user *u, unsigned thread, uint32_t block_size)
{
	struct bdev_rbd_opts opts = opts_of("R");
	struct answer a;

	opts.block_size = block_size;
	CU_ASSERT_EQUAL_FATAL(create(&opts, &a), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(u, "R", true, fixture_thread(thread)), 0);
}

static void open_new(struct user *u, unsigned thread)
{
	open_new_of(u, thread, BS);
}

static void close_and_delete(struct user *u, const char *name)
{
	user_close(u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_rbd_delete, name), 0);
	check_nothing_is_left();
}

static bool flag_is_set(void *counter)
{
	return atomic_load((atomic_uint *)counter) != 0;
}

static void test_data_goes_where_it_belongs(void)
{
	static uint8_t data[4 * BS], back[4 * BS];
	struct user u;

	open_new(&u, 0);
	for (size_t i = 0; i < sizeof(data); i++) {
		data[i] = (uint8_t)(i * 7 >> 3);
	}
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, data, 5, 4), 0);
	CU_ASSERT_EQUAL(memcmp(&fake.memory[5 * BS], data, sizeof(data)), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, back, 5, 4), 0);
	CU_ASSERT_EQUAL(memcmp(back, data, sizeof(data)), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_FLUSH, NULL, 0, 256), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE_ZEROES, NULL, 6, 1), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_UNMAP, NULL, 8, 1), 0);
	CU_ASSERT_EQUAL(fake.memory[6 * BS + 1] | fake.memory[8 * BS + 1], 0);
	CU_ASSERT_EQUAL(memcmp(&fake.memory[7 * BS], &data[2 * BS], BS), 0);
	close_and_delete(&u, "R");
}

static bool was_untouched; /* the last COMPARE_AND_WRITE */

/* Of a block that has len bytes. */
static uint16_t compare_and_write(struct user *u, const uint8_t *expected, const uint8_t *data, size_t len,
				  uint64_t offset)
{
	struct request *r = request_new(u);
	struct iovec compare[2] = {{(void *)expected, 100}, {(void *)(expected + 100), len - 100}},
		     write = {(void *)data, len};

	bdev_io_set_rw(r->io, BDEV_IO_COMPARE_AND_WRITE, &write, 1, offset, 1);
	r->io->compare.iovs = compare;
	r->io->compare.iovcnt = 2;
	request_submit(r);
	CU_ASSERT_FATAL(request_wait(r));
	was_untouched = bdev_io_was_untouched(r->io);
	return request_finish(r);
}

static void test_compare_and_write_of_any_block_size(void)
{
	static uint8_t zeroes[BS], ones[BS], twos[BS];
	struct user u;

	memset(ones, 1, BS);
	memset(twos, 2, BS);
	for (unsigned len = 512; len <= BS; len += BS - 512) { /* what librbd does not do is emulated */
		open_new_of(&u, 1, len);
		CU_ASSERT_EQUAL(compare_and_write(&u, zeroes, ones, len, 3), 0);
		CU_ASSERT_EQUAL(fake.memory[3 * len] + fake.memory[4 * len - 1], 2);
		CU_ASSERT_EQUAL(compare_and_write(&u, zeroes, twos, len, 3) & BDEV_STATUS_MASK,
				BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_COMPARE_FAILED));
		CU_ASSERT_EQUAL(fake.memory[3 * len], 1);
		close_and_delete(&u, "R");
	}
}

static void test_errors_are_told(void)
{
	static uint8_t data[BS];
	struct user u;

	open_new(&u, 0);
	fake.io_rc = -EIO;
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, data, 0, 1), NVME_SC_INTERNAL);
	fake.io_rc = -ENOSPC;
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, data, 0, 1) & BDEV_STATUS_MASK, NVME_SC_CAP_EXCEEDED);
	fake.io_rc = 0;
	fake.aio_rc = -EIO; /* before anything has begun */
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, data, 0, 1), NVME_SC_INTERNAL);
	fake.aio_rc = 0;
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, data, 0, 1), 0);
	close_and_delete(&u, "R");
}

static atomic_bool loss_told;
static char loss[128];

static void on_loss(const char *name, const char *reason)
{
	snprintf(loss, sizeof(loss), "%s: %s", name, reason);
	set_done(&loss_told);
}

static void test_a_client_that_is_blocklisted_writes_nothing_any_more(void)
{
	static uint8_t data[BS] = {1};
	struct user u;

	loss_told = false;
	bdev_rbd_observe_losses(on_loss);
	open_new(&u, 0);
	fake.io_rc = -ESHUTDOWN;
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, data, 0, 1), BDEV_STATUS(NVME_SCT_PATH, NVME_SC_CTRL_PATH_ERROR));
	fake.io_rc = 0;
	data[0] = 1;
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, data, 0, 1), BDEV_STATUS(NVME_SCT_PATH, NVME_SC_CTRL_PATH_ERROR));
	CU_ASSERT_EQUAL(fake.memory[0], 0);
	CU_ASSERT_TRUE_FATAL(fixture_wait(&loss_told));
	CU_ASSERT_STRING_EQUAL(loss, "R: Ceph has blocklisted this client");
	bdev_rbd_observe_losses(NULL);
	close_and_delete(&u, "R");
}

/* Hosts try another controller. They would give up after any other error, or after Namespace is Write Protected. */
static void test_a_client_without_the_lock_refers_hosts_to_other_controllers(void)
{
	static const int rcs[] = {-EROFS, -EBUSY, -ETIMEDOUT, -ENOTCONN};
	static uint8_t data[BS] = {1};
	struct user u;

	loss_told = false;
	bdev_rbd_observe_losses(on_loss);
	open_new(&u, 0);
	for (unsigned i = 0; i < sizeof(rcs) / sizeof(rcs[0]); i++) {
		fake.io_rc = rcs[i];
		CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, data, 0, 1),
				BDEV_STATUS(NVME_SCT_PATH, NVME_SC_CTRL_PATH_ERROR));
		CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_FLUSH, NULL, 0, 0),
				BDEV_STATUS(NVME_SCT_PATH, NVME_SC_CTRL_PATH_ERROR));
		fake.io_rc = 0;
		fake.aio_rc = rcs[i];
		CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, data, 0, 1),
				BDEV_STATUS(NVME_SCT_PATH, NVME_SC_CTRL_PATH_ERROR));
		fake.aio_rc = 0;
	}
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, data, 0, 1), 0); /* it has the lock again */
	CU_ASSERT_FALSE(loss_told);
	close_and_delete(&u, "R");
	open_new_of(&u, 0, 512);
	/* of a compare-and-write it must be known whether another gateway may carry it out */
	fake.io_rc = -EROFS;
	CU_ASSERT_EQUAL(compare_and_write(&u, data, data, 512, 0), BDEV_STATUS(NVME_SCT_PATH, NVME_SC_CTRL_PATH_ERROR));
	CU_ASSERT(was_untouched);
	fake.io_rc = -ESHUTDOWN;
	CU_ASSERT_EQUAL(compare_and_write(&u, data, data, 512, 0), BDEV_STATUS(NVME_SCT_PATH, NVME_SC_CTRL_PATH_ERROR));
	CU_ASSERT_FALSE(was_untouched);
	fake.io_rc = 0;
	CU_ASSERT_TRUE_FATAL(fixture_wait(&loss_told));
	bdev_rbd_observe_losses(NULL);
	close_and_delete(&u, "R");
}

static bool has_blocks(void *blocks);

/* Without the feature exclusive-lock, no other client has what this one lacks: the image is read-only. Hosts would look
 * for another controller for ever. */
static void test_a_read_only_image_without_locks_is_write_protected(void)
{
	static uint8_t data[BS] = {1};
	struct user u;
	uint64_t more = FAKE_IMAGE_BYTES / BS + 1;

	fake.no_lock = true;
	open_new(&u, 0);
	fake.io_rc = -EROFS;
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, data, 0, 1), bdev_status_from_errno(-EROFS));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, data, 0, 1) & BDEV_STATUS_MASK, NVME_SC_NS_WRITE_PROTECTED);
	/* the feature comes while the image is open */
	fake.no_lock = false;
	fake_change_size(more * BS);
	CU_ASSERT_TRUE(fixture_poll(has_blocks, &more));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, data, 0, 1), BDEV_STATUS(NVME_SCT_PATH, NVME_SC_CTRL_PATH_ERROR));
	fake.io_rc = 0;
	close_and_delete(&u, "R");
}

/* A client that may only read is not without a lock. */
static void test_an_image_that_is_open_read_only_is_write_protected(void)
{
	struct bdev_rbd_opts opts = opts_of("R");
	struct answer a;
	struct user u;

	opts.read_only = true;
	fake.rw_open_rc = -EPERM;
	CU_ASSERT_EQUAL_FATAL(create(&opts, &a), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "R", false, fixture_thread(0)), 0);
	fake.io_rc = -EROFS;
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_FLUSH, NULL, 0, 0), bdev_status_from_errno(-EROFS));
	fake.io_rc = 0;
	fake.rw_open_rc = 0;
	close_and_delete(&u, "R");
}

static void test_images_that_cannot_be_had_are_explained(void)
{
	struct bdev_rbd_opts opts = opts_of("R");
	struct answer a;

	opts.pool = "none";
	CU_ASSERT_EQUAL(create(&opts, &a), -ENOENT);
	CU_ASSERT_PTR_NOT_NULL(strstr(a.text, "pool_name 'none'"));
	opts.pool = "rbd";
	fake.open_rc = -ENOENT;
	CU_ASSERT_EQUAL(create(&opts, &a), -ENOENT);
	CU_ASSERT_PTR_NOT_NULL(strstr(a.text, "image 'image' of pool 'rbd'"));
	fake.open_rc = 0;
	fake.stat_rc = -EIO;
	CU_ASSERT_EQUAL(create(&opts, &a), -EIO);
	fake.stat_rc = 0;
	fake.watch_rc = -EPERM;
	CU_ASSERT_EQUAL(create(&opts, &a), -EPERM);
	fake.watch_rc = 0;
	fake.size = BS - 1;
	CU_ASSERT_EQUAL(create(&opts, &a), -EINVAL);
	fake.size = FAKE_IMAGE_BYTES;
	opts.block_size = 1000;
	CU_ASSERT_EQUAL(create(&opts, &a), -EINVAL);
	opts.block_size = BS;
	opts.image = "";
	CU_ASSERT_EQUAL(create(&opts, &a), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(a.text, "rbd_name"));
	CU_ASSERT_EQUAL(create_named("R"), 0);
	CU_ASSERT_EQUAL(create_named("R"), -EEXIST);
	CU_ASSERT_EQUAL(fixture_delete(bdev_rbd_delete, "R"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_rbd_delete, "R"), -ENODEV);
	check_nothing_is_left();
}

/* Whoever is told of the failure can unregister the cluster. */
static void test_a_creation_that_fails_is_answered_when_its_image_is_closed(void)
{
	struct bdev_rbd_cluster_opts cluster = {.name = "cl"};
	struct bdev_rbd_opts opts = opts_of("R");
	struct answer a = {.rc = 1}, b;

	CU_ASSERT_EQUAL(register_cluster(&cluster, &b), 0);
	opts.cluster.name = "cl";
	fake.stat_rc = -EIO;
	fake.hold_close = true;
	bdev_rbd_create(&opts, on_answer, &a);
	CU_ASSERT_TRUE_FATAL(fixture_poll(flag_is_set, &fake.waiting));
	CU_ASSERT_FALSE(a.done);
	CU_ASSERT_EQUAL(unregister_cluster("cl"), -EBUSY);
	fake.hold_close = false;
	CU_ASSERT_EQUAL(answer_rc(&a), -EIO);
	CU_ASSERT_PTR_NOT_NULL(strstr(a.text, "the size of image 'image'"));
	CU_ASSERT_EQUAL(unregister_cluster("cl"), 0);
	check_nothing_is_left();
}

static void test_images_share_a_connection(void)
{
	struct bdev_rbd_setting other = {"mon_host", "b"};
	struct bdev_rbd_opts opts = opts_of("C");
	struct bdev_rbd_cluster_opts cluster = {.name = "cl", .config_file = "/conf"};
	struct answer a;

	CU_ASSERT_EQUAL(create_named("A"), 0);
	CU_ASSERT_EQUAL(create_named("B"), 0);
	CU_ASSERT_EQUAL(fake.connects, 1);
	opts.cluster.settings = &other;
	opts.cluster.num_settings = 1;
	CU_ASSERT_EQUAL(create(&opts, &a), 0);
	CU_ASSERT_EQUAL(fake.connects, 2);
	CU_ASSERT_PTR_NOT_NULL(strstr(fake.settings, "mon_host=b"));
	CU_ASSERT_EQUAL(register_cluster(&cluster, &a), 0);
	opts = opts_of("D");
	opts.cluster.name = "cl";
	CU_ASSERT_EQUAL(create(&opts, &a), 0);
	CU_ASSERT_EQUAL(fake.connects, 3);
	CU_ASSERT_EQUAL(unregister_cluster("cl"), -EBUSY);
	for (const char *name = "ABCD"; *name != '\0'; name++) {
		CU_ASSERT_EQUAL(fixture_delete(bdev_rbd_delete, (char[2]){*name}), 0);
	}
	CU_ASSERT_EQUAL(unregister_cluster("cl"), 0);
	CU_ASSERT_EQUAL(unregister_cluster("cl"), -ENOENT);
	check_nothing_is_left();
}

static void test_clusters_that_cannot_be_reached_are_explained(void)
{
	struct bdev_rbd_cluster_opts cluster = {.name = "cl", .config_file = "/none"};
	struct bdev_rbd_setting wrong = {"wrong", "secret"};
	struct bdev_rbd_opts opts = opts_of("R");
	struct answer a, second;

	CU_ASSERT_EQUAL(register_cluster(&cluster, &a), -ENOENT);
	CU_ASSERT_PTR_NOT_NULL(strstr(a.text, "config_file '/none'"));
	cluster = (struct bdev_rbd_cluster_opts){.name = "cl", .settings = &wrong, .num_settings = 1};
	CU_ASSERT_EQUAL(register_cluster(&cluster, &a), -ENOENT);
	CU_ASSERT_PTR_NOT_NULL(strstr(a.text, "'wrong'"));
	CU_ASSERT_PTR_NULL(strstr(a.text, "secret"));
	struct bdev_rbd_setting late = {"rados_osd_op_timeout", "10"};
	cluster = (struct bdev_rbd_cluster_opts){.name = "cl", .settings = &late, .num_settings = 1};
	CU_ASSERT_EQUAL(register_cluster(&cluster, &a), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(a.text, "rados_osd_op_timeout '10'"));
	cluster = (struct bdev_rbd_cluster_opts){.name = "cl", .core_mask = "zz"};
	CU_ASSERT_EQUAL(register_cluster(&cluster, &a), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(a.text, "core_mask"));
	opts.cluster.name = "cl";
	CU_ASSERT_EQUAL(create(&opts, &a), -ENOENT);
	fake.connect_rc = -ETIMEDOUT;
	fake.hold_connect = true;
	cluster = (struct bdev_rbd_cluster_opts){.name = "cl"};
	a = second = (struct answer){.rc = 1};
	bdev_rbd_register_cluster(&cluster, on_answer, &a);
	bdev_rbd_create(&opts, on_answer, &second); /* waits for the connection */
	struct answer third = {.rc = 1};
	bdev_rbd_register_cluster(&cluster, on_answer, &third);
	CU_ASSERT_EQUAL(third.rc, -EEXIST);
	CU_ASSERT_EQUAL(unregister_cluster("cl"), -EBUSY);
	fake.hold_connect = false;
	CU_ASSERT_EQUAL(answer_rc(&a), -ETIMEDOUT);
	CU_ASSERT_EQUAL(answer_rc(&second), -ETIMEDOUT);
	check_nothing_is_left();
}

static bool has_blocks(void *arg)
{
	struct bdev *b = bdev_find("R");

	return b != NULL && bdev_num_blocks(b) == *(uint64_t *)arg;
}

static int resize(uint64_t bytes)
{
	struct answer a = {.rc = 1};

	bdev_rbd_resize("R", bytes, on_answer, &a);
	return answer_rc(&a);
}

static void test_the_size_follows_the_image(void)
{
	uint64_t larger = 2 * FAKE_IMAGE_BYTES / BS, smaller = 3;
	struct user u;

	open_new(&u, 0);
	CU_ASSERT_EQUAL(resize(2 * FAKE_IMAGE_BYTES), 0);
	CU_ASSERT_TRUE(has_blocks(&larger));
	CU_ASSERT_EQUAL(resize(FAKE_IMAGE_BYTES), -EINVAL); /* smaller */
	fake_change_size(smaller * BS + 17);                /* whoever did that */
	CU_ASSERT_TRUE(fixture_poll(has_blocks, &smaller));
	fake.resize_rc = -EROFS;
	CU_ASSERT_EQUAL(resize(FAKE_IMAGE_BYTES), -EROFS);
	close_and_delete(&u, "R");
}

/* The image has become smaller, and varve does not know it yet: nothing that is missing is taken for data. A write that
 * ends before varve knows is acknowledged, as one that was made before the change; one that ends later is not. */
static void test_what_is_behind_the_end_of_the_image_is_an_error(void)
{
	static uint8_t data[4 * BS];
	struct iovec iov = {data, sizeof(data)};
	uint64_t smaller = 10;
	struct user u;

	open_new(&u, 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, data, 8, 4), 0);
	atomic_store(&fake.size, 10 * BS);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, data, 8, 4) & BDEV_STATUS_MASK, NVME_SC_LBA_RANGE);
	memset(data, 1, sizeof(data));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, data, 8, 4), 0);
	CU_ASSERT_EQUAL(fake.memory[10 * BS - 1], 1);
	CU_ASSERT_EQUAL(fake.memory[10 * BS], 0);
	fake.hold_io = true;
	struct request *q = request_new(&u);
	bdev_io_set_rw(q->io, BDEV_IO_WRITE, &iov, 1, 8, 4);
	request_submit(q);
	fake_change_size(10 * BS);
	CU_ASSERT_TRUE(fixture_poll(has_blocks, &smaller));
	fake.hold_io = false;
	CU_ASSERT_EQUAL(request_finish(q) & BDEV_STATUS_MASK, NVME_SC_LBA_RANGE);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, data, 8, 2), 0);
	close_and_delete(&u, "R");
}

static void test_an_image_that_grew_is_not_cut(void)
{
	CU_ASSERT_EQUAL_FATAL(create_named("R"), 0);
	atomic_store(&fake.size, 2 * FAKE_IMAGE_BYTES); /* nobody was told */
	CU_ASSERT_EQUAL(resize(FAKE_IMAGE_BYTES + BS), -EINVAL);
	CU_ASSERT_EQUAL(fake.size, 2 * FAKE_IMAGE_BYTES);
	CU_ASSERT_EQUAL(fixture_delete(bdev_rbd_delete, "R"), 0);
	check_nothing_is_left();
}

/* The bdev goes while the image is being resized, and somebody else changes it, too. */
static void test_a_deletion_waits_for_what_uses_the_image(void)
{
	struct answer resized = {.rc = 1};

	CU_ASSERT_EQUAL_FATAL(create_named("R"), 0);
	fake.hold_resize = true;
	bdev_rbd_resize("R", 2 * FAKE_IMAGE_BYTES, on_answer, &resized);
	CU_ASSERT_TRUE_FATAL(fixture_poll(flag_is_set, &fake.waiting));
	bdev_unregister(bdev_find("R"), NULL, NULL);
	fake_change_size(FAKE_IMAGE_BYTES / 2);
	CU_ASSERT_EQUAL(fake.closes, 0);
	fake.hold_resize = false;
	CU_ASSERT_EQUAL(answer_rc(&resized), -ENODEV);
	CU_ASSERT_TRUE(fixture_poll(nothing_is_open, NULL));
	check_nothing_is_left();
}

struct waiting {
	unsigned n; /* I/Os in flight */
	char text[BDEV_INFLIGHT_TEXT];
};

static bool note_waiting(void *arg, const struct bdev_inflight *one)
{
	struct waiting *w = arg;

	w->n++;
	snprintf(w->text, sizeof(w->text), "%s", one->waits_for);
	return true;
}

static bool is_explained(void *arg)
{
	struct waiting *w = arg;

	*w = (struct waiting){0};
	bdev_for_each_inflight(bdev_find("R"), note_waiting, w);
	return w->n == 1 && w->text[0] != '\0';
}

/* Of an image without its lock it is not known whether librbd waits for that. */
static void test_io_that_waits_is_explained(void)
{
	struct waiting w;
	struct user u;

	for (int no_lock = 0; no_lock <= 1; no_lock++) {
		fake.no_lock = no_lock;
		CU_ASSERT_EQUAL_FATAL(create_named("R"), 0);
		CU_ASSERT_EQUAL_FATAL(user_open(&u, "R", true, fixture_thread(0)), 0);
		fake.hold_io = true;
		struct request *q = request_new(&u);
		bdev_io_set_rw(q->io, BDEV_IO_FLUSH, NULL, 0, 0, FAKE_IMAGE_BYTES / BS);
		request_submit(q);
		CU_ASSERT_TRUE(fixture_poll(is_explained, &w));
		CU_ASSERT_EQUAL(strstr(w.text, "a client that keeps the image's lock") == NULL, no_lock);
		CU_ASSERT_PTR_NOT_NULL(strstr(w.text, "nothing of this thread has ended for"));
		fake.hold_io = false;
		CU_ASSERT_EQUAL(request_finish(q), 0);
		close_and_delete(&u, "R");
	}
}

/* Many changes, and a deletion at any time after one of them. */
static void test_changes_race_with_deletion(void)
{
	for (unsigned i = 0; i < 40; i++) {
		CU_ASSERT_EQUAL_FATAL(create_named("R"), 0);
		fake_change_size(FAKE_IMAGE_BYTES / 2 + i % 7 * BS);
		for (unsigned k = 0; k < i % 8; k++) {
			sched_yield();
		}
		CU_ASSERT_EQUAL(fixture_delete(bdev_rbd_delete, "R"), 0);
	}
	check_nothing_is_left();
}

/* Channels come and go while the library's thread ends their last I/O. */
static void test_channels_go_right_after_their_last_io(void)
{
	static uint8_t data[BS];
	struct user u;

	CU_ASSERT_EQUAL_FATAL(create_named("R"), 0);
	for (unsigned i = 0; i < 100; i++) {
		CU_ASSERT_EQUAL_FATAL(user_open(&u, "R", true, fixture_thread(i % 4)), 0);
		CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, data, i % 200, 1), 0);
		user_close(&u);
	}
	CU_ASSERT_EQUAL(fixture_delete(bdev_rbd_delete, "R"), 0);
	check_nothing_is_left();
}

static void test_the_layer_stops_with_an_image_that_is_being_opened(void)
{
	struct bdev_rbd_opts opts = opts_of("late");
	struct bdev_rbd_cluster_opts cluster = {.name = "cl"};
	struct answer a = {.rc = 1}, b;
	atomic_bool done = false;

	CU_ASSERT_EQUAL(register_cluster(&cluster, &b), 0);
	fake.hold_open = true;
	bdev_rbd_create(&opts, on_answer, &a);
	CU_ASSERT_TRUE_FATAL(fixture_poll(flag_is_set, &fake.waiting));
	bdev_fini(set_done, &done);
	CU_ASSERT_FALSE(done);
	fake.hold_open = false;
	CU_ASSERT_EQUAL(answer_rc(&a), -ESHUTDOWN);
	CU_ASSERT_TRUE_FATAL(fixture_wait(&done));
	CU_ASSERT_EQUAL_FATAL(bdev_init(), 0);
	check_nothing_is_left();
}

/* --- Time limits pass when the test says so --- */

#define OPEN_LIMIT_US UINT64_C(45000000)
#define STOP_LIMIT_US UINT64_C(20000000)

void __real_thread_timer_start(struct thread_timer *t, uint64_t us);
void __wrap_thread_timer_start(struct thread_timer *t, uint64_t us);

static struct {
	struct thread_timer *timer; /* the last that was started of those of the module */
	uint64_t us;
} limit;

void __wrap_thread_timer_start(struct thread_timer *t, uint64_t us)
{
	if (us == OPEN_LIMIT_US || us == STOP_LIMIT_US) {
		limit.timer = t;
		limit.us = us;
	}
	__real_thread_timer_start(t, us);
}

static bool is_held_up(void *us)
{
	return fake.waiting != 0 && limit.us == *(const uint64_t *)us;
}

/* Waits until a worker is held up while a limit of this length runs, and lets that pass. */
static void pass_limit(uint64_t us)
{
	CU_ASSERT_TRUE_FATAL(fixture_poll(is_held_up, &us));
	limit.us = 0;
	thread_timer_stop(limit.timer);
	__real_thread_timer_start(limit.timer, 1);
}

/* Creates "R" on a cluster that keeps a worker until the limit has passed. */
static int create_too_slowly(struct answer *a)
{
	struct bdev_rbd_opts opts = opts_of("R");

	*a = (struct answer){.rc = 1};
	bdev_rbd_create(&opts, on_answer, a);
	CU_ASSERT_TRUE_FATAL(fixture_poll(flag_is_set, &fake.waiting));
	CU_ASSERT_FALSE(a->done);
	pass_limit(OPEN_LIMIT_US);
	return answer_rc(a);
}

static void test_an_image_that_is_not_opened_in_time_is_closed_later(void)
{
	struct answer a;

	fake.hold_open = true;
	CU_ASSERT_EQUAL(create_too_slowly(&a), -ETIMEDOUT);
	CU_ASSERT_PTR_NOT_NULL(strstr(a.text, "image 'image' of pool 'rbd' has not ended for 45 s"));
	CU_ASSERT_PTR_NULL(bdev_find("R"));
	fake.hold_open = false;
	CU_ASSERT_EQUAL(create_named("R"), 0); /* the cluster is back */
	CU_ASSERT_EQUAL(fixture_delete(bdev_rbd_delete, "R"), 0);
	fake.hold_connect = true;
	CU_ASSERT_TRUE(fixture_poll(nothing_is_open, NULL));
	CU_ASSERT_EQUAL(create_too_slowly(&a), -ETIMEDOUT);
	CU_ASSERT_PTR_NOT_NULL(strstr(a.text, "connecting for image"));
	fake.hold_connect = false;
	check_nothing_is_left();
}

static void test_a_creation_that_fails_is_answered_although_its_image_cannot_be_closed(void)
{
	struct answer a;

	fake.stat_rc = -EIO;
	fake.hold_close = true;
	CU_ASSERT_EQUAL(create_too_slowly(&a), -EIO);
	CU_ASSERT_PTR_NOT_NULL(strstr(a.text, "the size of image 'image'"));
	CU_ASSERT_EQUAL(fake.closes, 0);
	fake.hold_close = false;
	check_nothing_is_left();
}

/* Stops the layer although an image cannot be closed, and starts it again. */
static void restart_without_closing(void)
{
	atomic_bool done = false;

	bdev_fini(set_done, &done);
	pass_limit(STOP_LIMIT_US);
	CU_ASSERT_TRUE_FATAL(fixture_wait(&done));
	CU_ASSERT_EQUAL(fake.closes, 0);
	CU_ASSERT_EQUAL_FATAL(bdev_init(), 0);
}

static void test_the_layer_stops_while_a_creation_that_failed_waits(void)
{
	struct bdev_rbd_opts opts = opts_of("R");
	struct answer a = {.rc = 1};

	fake.stat_rc = -EIO;
	fake.hold_close = true;
	bdev_rbd_create(&opts, on_answer, &a);
	CU_ASSERT_TRUE_FATAL(fixture_poll(flag_is_set, &fake.waiting));
	restart_without_closing();
	CU_ASSERT_EQUAL(answer_rc(&a), -EIO);
	fake.hold_close = false;
	check_nothing_is_left();
}

static void test_the_layer_stops_without_an_image_that_cannot_be_closed(void)
{
	CU_ASSERT_EQUAL_FATAL(create_named("R"), 0);
	fake.hold_close = true;
	restart_without_closing();
	fake.hold_close = false;
	check_nothing_is_left();
}

/* --- Standbys and owners --- */

/* Makes the standby "R0", and its user. */
static void open_standby(struct user *u)
{
	CU_ASSERT_EQUAL_FATAL(create_standby("R0"), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(u, "R0", true, fixture_thread(0)), 0);
}

static int own(const char *name, bool fence, struct answer *a)
{
	*a = (struct answer){.rc = 1};
	bdev_own(name, BDEV_OWN_FOR_EVER, fence, on_answer, a);
	return answer_rc(a);
}

static int disown(void)
{
	struct answer a = {.rc = 1};

	bdev_disown("R0", on_answer, &a);
	return answer_rc(&a);
}

static void test_an_owner_has_the_lock_and_a_standby_does_no_io(void)
{
	static uint8_t block[BS];
	struct user u;
	struct answer a;

	open_standby(&u);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, block, 0, 1), BDEV_OWNER_STATUS);
	CU_ASSERT_EQUAL(own("R0", false, &a), 0);
	CU_ASSERT_EQUAL(fake.lock_owner, FAKE_LOCK_OWN);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, block, 0, 1), 0);
	CU_ASSERT_EQUAL(disown(), 0);
	CU_ASSERT_EQUAL(fake.lock_owner, FAKE_LOCK_FREE);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, block, 0, 1), BDEV_OWNER_STATUS);
	close_and_delete(&u, "R0");
}

static void test_the_lock_of_another_client_is_broken_when_that_is_blocklisted(void)
{
	struct user u;
	struct answer a;

	open_standby(&u);
	fake.lock_owner = FAKE_LOCK_OTHER;
	CU_ASSERT_EQUAL(own("R0", false, &a), -EBUSY);
	CU_ASSERT_PTR_NOT_NULL(strstr(a.text, "127.0.0.1:0/2"));
	fake.break_rc = -EPERM;
	CU_ASSERT_EQUAL(own("R0", true, &a), -EPERM);
	CU_ASSERT_EQUAL(fake.lock_owner, FAKE_LOCK_OTHER);
	fake.break_rc = 0;
	CU_ASSERT_EQUAL(own("R0", true, &a), 0);
	CU_ASSERT_EQUAL(fake.blocklisted, 1);
	CU_ASSERT_EQUAL(fake.lock_owner, FAKE_LOCK_OWN);
	close_and_delete(&u, "R0");
}

static void test_this_process_does_not_fence_itself(void)
{
	struct user u;
	struct answer a;

	fake.addr_is_other = true;
	open_standby(&u);
	CU_ASSERT_EQUAL(create_standby("R1"), 0);
	CU_ASSERT_EQUAL(own("R0", false, &a), 0);
	CU_ASSERT_EQUAL(own("R1", true, &a), -EBUSY);
	CU_ASSERT_PTR_NOT_NULL(strstr(a.text, "bdev 'R0' of this process"));
	CU_ASSERT_EQUAL(disown(), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_rbd_delete, "R1"), 0);
	/* a lock of this client of which no bdev knows */
	fake.lock_owner = FAKE_LOCK_OTHER;
	CU_ASSERT_EQUAL(own("R0", true, &a), -EBUSY);
	CU_ASSERT_PTR_NOT_NULL(strstr(a.text, "this process"));
	CU_ASSERT_EQUAL(fake.blocklisted, 0);
	close_and_delete(&u, "R0");
}

static bool lease_is_over(void *arg)
{
	return bdev_owner_now_us() >= *(const uint64_t *)arg;
}

static void test_nobody_is_fenced_when_the_lease_has_ended(void)
{
	struct answer a = {.rc = 1};
	struct user u;

	open_standby(&u);
	fake.lock_owner = FAKE_LOCK_OTHER;
	fake.hold_lock = true; /* as if the process were stopped before it fences */
	uint64_t until = bdev_owner_now_us() + 1000000;
	bdev_own("R0", until, true, on_answer, &a);
	CU_ASSERT_TRUE(fixture_poll(lock_waits, NULL));
	CU_ASSERT_TRUE(fixture_poll(lease_is_over, &until));
	fake.hold_lock = false;
	CU_ASSERT_EQUAL(answer_rc(&a), -ETIME);
	CU_ASSERT_EQUAL(fake.blocklisted, 0);
	CU_ASSERT_EQUAL(fake.lock_owner, FAKE_LOCK_OTHER);
	close_and_delete(&u, "R0");
}

static void test_a_standby_has_no_cache(void)
{
	struct bdev_rbd_opts opts = opts_of("R0");
	struct answer a;

	opts.standby = true;
	fake.cache = "true";
	CU_ASSERT_EQUAL(create(&opts, &a), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(a.text, "rbd_cache"));
	CU_ASSERT_PTR_NOT_NULL(strstr(a.text, "pool"));
	fake.cache = NULL;
	fake.pwl = "rwl";
	CU_ASSERT_EQUAL(create(&opts, &a), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(a.text, "rbd_persistent_cache_mode"));
	opts.standby = false;
	CU_ASSERT_EQUAL(create(&opts, &a), 0); /* who has the image alone may have one */
	CU_ASSERT_EQUAL(fixture_delete(bdev_rbd_delete, "R0"), 0);
	check_nothing_is_left();
}

static void test_a_client_that_is_blocklisted_cannot_take_the_lock(void)
{
	struct user u;
	struct answer a;

	open_standby(&u);
	fake.lock_rc = -EINVAL;
	CU_ASSERT_EQUAL(own("R0", false, &a), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(a.text, "exclusive-lock"));
	fake.lock_rc = -ESHUTDOWN;
	CU_ASSERT_EQUAL(own("R0", false, &a), -ESHUTDOWN);
	fake.lock_rc = 0;
	CU_ASSERT_EQUAL(own("R0", false, &a), -ESHUTDOWN);
	CU_ASSERT_PTR_NOT_NULL(strstr(a.text, "is lost"));
	close_and_delete(&u, "R0");
}

static void test_a_deletion_waits_for_the_lock(void)
{
	struct answer a = {.rc = 1}, deleted = {.rc = 1};
	struct user u;

	open_standby(&u);
	fake.hold_lock = true;
	bdev_own("R0", BDEV_OWN_FOR_EVER, false, on_answer, &a);
	CU_ASSERT_TRUE(fixture_poll(lock_waits, NULL));
	user_close(&u);
	bdev_rbd_delete("R0", note_deleted, &deleted);
	CU_ASSERT_EQUAL(answer_rc(&a), -ENODEV);
	CU_ASSERT_EQUAL(fake.closes, 0);
	fake.hold_lock = false;
	CU_ASSERT_EQUAL(answer_rc(&deleted), 0);
	check_nothing_is_left();
}

static const struct unit_test tests[] = {
	UNIT(test_an_owner_has_the_lock_and_a_standby_does_no_io),
	UNIT(test_the_lock_of_another_client_is_broken_when_that_is_blocklisted),
	UNIT(test_this_process_does_not_fence_itself),
	UNIT(test_nobody_is_fenced_when_the_lease_has_ended),
	UNIT(test_a_standby_has_no_cache),
	UNIT(test_a_client_that_is_blocklisted_cannot_take_the_lock),
	UNIT(test_a_deletion_waits_for_the_lock),
	UNIT(test_data_goes_where_it_belongs),
	UNIT(test_compare_and_write_of_any_block_size),
	UNIT(test_errors_are_told),
	UNIT(test_a_client_that_is_blocklisted_writes_nothing_any_more),
	UNIT(test_a_client_without_the_lock_refers_hosts_to_other_controllers),
	UNIT(test_a_read_only_image_without_locks_is_write_protected),
	UNIT(test_an_image_that_is_open_read_only_is_write_protected),
	UNIT(test_images_that_cannot_be_had_are_explained),
	UNIT(test_a_creation_that_fails_is_answered_when_its_image_is_closed),
	UNIT(test_images_share_a_connection),
	UNIT(test_clusters_that_cannot_be_reached_are_explained),
	UNIT(test_the_size_follows_the_image),
	UNIT(test_what_is_behind_the_end_of_the_image_is_an_error),
	UNIT(test_an_image_that_grew_is_not_cut),
	UNIT(test_a_deletion_waits_for_what_uses_the_image),
	UNIT(test_io_that_waits_is_explained),
	UNIT(test_changes_race_with_deletion),
	UNIT(test_channels_go_right_after_their_last_io),
	UNIT(test_the_layer_stops_with_an_image_that_is_being_opened),
	UNIT(test_an_image_that_is_not_opened_in_time_is_closed_later),
	UNIT(test_a_creation_that_fails_is_answered_although_its_image_cannot_be_closed),
	UNIT(test_the_layer_stops_while_a_creation_that_failed_waits),
	UNIT(test_the_layer_stops_without_an_image_that_cannot_be_closed),
	UNIT_END,
};

UNIT_MAIN("bdev_rbd", tests, rbd_kit_start, rbd_kit_end)

/* SPDX-License-Identifier: BSD-3-Clause */
/* Names, descriptors, claims, events, removal. */
#include <errno.h>

#include "unittest/bdev/fixture.h"

#include "env_dpdk/env.h"

static uint8_t buf[4096] __attribute__((aligned(4096)));

static void test_bdev_is_found_by_name_alias_and_uuid(void)
{
	struct testdev *t = testdev_new("t0", 512, 8);
	char text[BDEV_UUID_STRLEN];

	CU_ASSERT_EQUAL(bdev_uuid_parse("12345678-9abc-def0-1234-56789ABCDEF0", t->bdev.uuid), 0);
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	CU_ASSERT_PTR_EQUAL(bdev_find("t0"), &t->bdev);
	CU_ASSERT_PTR_EQUAL(bdev_find("12345678-9abc-def0-1234-56789abcdef0"), &t->bdev);
	CU_ASSERT_PTR_EQUAL(bdev_find("12345678-9ABC-DEF0-1234-56789ABCDEF0"), &t->bdev);
	bdev_uuid_format(t->bdev.uuid, text);
	CU_ASSERT_STRING_EQUAL(text, "12345678-9abc-def0-1234-56789abcdef0");
	CU_ASSERT_PTR_NULL(bdev_find("lvs/lvol"));
	CU_ASSERT_EQUAL(bdev_alias_add(&t->bdev, "lvs/lvol"), 0);
	CU_ASSERT_EQUAL(bdev_alias_add(&t->bdev, "second"), 0);
	CU_ASSERT_EQUAL(bdev_alias_add(&t->bdev, "t0"), -EEXIST);
	CU_ASSERT_PTR_EQUAL(bdev_find("lvs/lvol"), &t->bdev);
	CU_ASSERT_STRING_EQUAL(bdev_alias_next(&t->bdev, NULL), "lvs/lvol");
	CU_ASSERT_STRING_EQUAL(bdev_alias_next(&t->bdev, bdev_alias_next(&t->bdev, NULL)), "second");
	CU_ASSERT_EQUAL(bdev_alias_remove(&t->bdev, "lvs/lvol"), 0);
	CU_ASSERT_EQUAL(bdev_alias_remove(&t->bdev, "lvs/lvol"), -ENOENT);
	CU_ASSERT_PTR_NULL(bdev_find("lvs/lvol"));
	CU_ASSERT_TRUE(testdev_delete(t));
	CU_ASSERT_PTR_NULL(bdev_find("second"));
	CU_ASSERT_PTR_NULL(bdev_find("12345678-9abc-def0-1234-56789abcdef0"));
}

static void test_uuid_is_made_up_when_none_is_given(void)
{
	struct testdev *t = testdev_new("t0", 512, 8);
	static const uint8_t none[16];

	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	CU_ASSERT_NOT_EQUAL(memcmp(bdev_uuid(&t->bdev), none, 16), 0);
	CU_ASSERT_EQUAL(bdev_uuid(&t->bdev)[6] >> 4, 4);
	CU_ASSERT_TRUE(testdev_delete(t));
}

static void discard(struct testdev *t)
{
	free(t->memory);
	free((char *)t->bdev.name);
	free(t);
}

static void test_taken_names_and_uuids_are_refused(void)
{
	struct testdev *a = testdev_new("t0", 512, 8), *b = testdev_new("t0", 512, 8), *c = testdev_new("t1", 512, 8);

	CU_ASSERT_EQUAL_FATAL(testdev_register(a), 0);
	CU_ASSERT_EQUAL(testdev_register(b), -EEXIST);
	memcpy(c->bdev.uuid, bdev_uuid(&a->bdev), 16);
	CU_ASSERT_EQUAL(testdev_register(c), -EEXIST);
	CU_ASSERT_PTR_NULL(bdev_find("t1"));
	CU_ASSERT_PTR_EQUAL(bdev_find("t0"), &a->bdev);
	CU_ASSERT_TRUE(testdev_delete(a));
	discard(b);
	discard(c);
}

static void test_impossible_properties_are_refused(void)
{
	const struct {
		uint32_t block_size, buf_align, boundary, segment;
		uint64_t blocks;
		const char *name;
	} bad[] = {
		{0, 0, 0, 0, 8, "t"},      {131072, 0, 0, 0, 8, "t"}, {512, 3, 0, 0, 8, "t"},
		{512, 8192, 0, 0, 8, "t"}, {512, 0, 0, 511, 8, "t"},  {512, 0, 0, 0, 0, "t"},
		{512, 0, 0, 0, 8, ""},     {512, 0, 0, 0, 8, "a\nb"}, {512, 0, 0, 0, UINT64_MAX / 512, "t"},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct testdev *t = testdev_new(bad[i].name, 512, 8);
		t->bdev.block_size = bad[i].block_size;
		t->bdev.buf_align = bad[i].buf_align;
		t->bdev.optimal_io_boundary = bad[i].boundary;
		t->bdev.max_segment_bytes = bad[i].segment;
		t->bdev.num_blocks = bad[i].blocks;
		CU_ASSERT_EQUAL(testdev_register(t), -EINVAL);
		discard(t);
	}
}

static void test_unknown_bdev_cannot_be_opened(void)
{
	struct user u;
	CU_ASSERT_EQUAL(user_open(&u, "nonsense", false, fixture_thread(0)), -ENODEV);
}

static void test_read_only_bdev_cannot_be_opened_for_writing(void)
{
	struct testdev *t = testdev_new("t0", 512, 8);
	struct user u;

	t->bdev.read_only = true;
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	CU_ASSERT_EQUAL(user_open(&u, "t0", true, fixture_thread(0)), -EROFS);
	CU_ASSERT_EQUAL(user_open(&u, "t0", false, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buf, 0, 1), 0);
	user_close(&u);
	CU_ASSERT_TRUE(testdev_delete(t));
}

static void test_exclusive_claim_keeps_other_writers_out(void)
{
	struct testdev *t = testdev_new("t0", 512, 8);
	struct user a, b, c;
	const char *owner;

	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&a, "t0", false, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(bdev_claim(a.desc, BDEV_CLAIM_EXCL_WRITE, 0, "test"), 0);
	CU_ASSERT_EQUAL(bdev_get_claim(&t->bdev, &owner), BDEV_CLAIM_EXCL_WRITE);
	CU_ASSERT_STRING_EQUAL(owner, "test");
	CU_ASSERT_EQUAL(user_io(&a, BDEV_IO_WRITE, buf, 0, 1), 0); /* the claim made it a writer */
	CU_ASSERT_EQUAL(user_open(&b, "t0", true, fixture_thread(1)), -EPERM);
	CU_ASSERT_EQUAL_FATAL(user_open(&b, "t0", false, fixture_thread(1)), 0);
	CU_ASSERT_EQUAL(bdev_claim(b.desc, BDEV_CLAIM_EXCL_WRITE, 0, "b"), -EPERM);
	CU_ASSERT_EQUAL(bdev_claim(b.desc, BDEV_CLAIM_READ_MANY_WRITE_NONE, 0, "b"), -EPERM);
	user_close(&a);
	CU_ASSERT_EQUAL(bdev_get_claim(&t->bdev, NULL), BDEV_CLAIM_NONE);
	CU_ASSERT_EQUAL_FATAL(user_open(&c, "t0", true, fixture_thread(1)), 0);
	CU_ASSERT_EQUAL(bdev_claim(b.desc, BDEV_CLAIM_EXCL_WRITE, 0, "b"), -EPERM); /* c writes */
	user_close(&c);
	CU_ASSERT_EQUAL(bdev_claim(b.desc, BDEV_CLAIM_EXCL_WRITE, 0, "b"), 0);
	user_close(&b);
	CU_ASSERT_TRUE(testdev_delete(t));
}

static void test_shared_claims_go_together_when_they_agree(void)
{
	struct testdev *t = testdev_new("t0", 512, 8);
	struct user u[3];

	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	for (unsigned i = 0; i < 3; i++) {
		CU_ASSERT_EQUAL_FATAL(user_open(&u[i], "t0", false, fixture_thread(i)), 0);
	}
	CU_ASSERT_EQUAL(bdev_claim(u[0].desc, BDEV_CLAIM_READ_MANY_WRITE_SHARED, 7, "a"), 0);
	CU_ASSERT_EQUAL(bdev_claim(u[1].desc, BDEV_CLAIM_READ_MANY_WRITE_SHARED, 7, "b"), 0);
	CU_ASSERT_EQUAL(bdev_claim(u[2].desc, BDEV_CLAIM_READ_MANY_WRITE_SHARED, 8, "c"), -EPERM);
	bdev_unclaim(u[0].desc);
	bdev_unclaim(u[1].desc);
	CU_ASSERT_EQUAL(bdev_claim(u[2].desc, BDEV_CLAIM_READ_MANY_WRITE_NONE, 0, "c"), -EPERM); /* 0 and 1 may write */
	user_close(&u[0]);
	user_close(&u[1]);
	CU_ASSERT_EQUAL(bdev_claim(u[2].desc, BDEV_CLAIM_READ_MANY_WRITE_NONE, 0, "c"), 0);
	user_close(&u[2]);
	CU_ASSERT_TRUE(testdev_delete(t));
}

/* With 64 bytes more per block the largest size in MiB has more bytes than are addressed. */
static void test_sizes_too_large_with_metadata_are_told(void)
{
	struct bdev_null_opts opts = {
		.name = "n0", .block_size = 512, .num_blocks = INT64_MAX / 512, .md = {.size = 64}};
	char error[BDEV_ERROR_MAX] = "";

	CU_ASSERT_EQUAL(bdev_null_create(&opts, error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "num_blocks 18014398509481983: must be 1 to 16012798675095096"));
	opts.num_blocks = INT64_MAX / 576;
	CU_ASSERT_EQUAL_FATAL(bdev_null_create(&opts, error), 0);
	error[0] = '\0';
	CU_ASSERT_EQUAL(bdev_null_resize("n0", INT64_MAX >> 20, error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "new_size 8796093022207: must be 1 to 7818749353073 MiB"));
	CU_ASSERT_EQUAL(bdev_null_resize("n0", 7818749353073, error), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

static void test_resize_is_told_and_takes_effect(void)
{
	char error[BDEV_ERROR_MAX];
	struct user u;

	make_null("n0", 512, 8);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "n0", true, fixture_thread(0)), 0);
	CU_ASSERT_NOT_EQUAL(user_io(&u, BDEV_IO_READ, buf, 8, 1), 0);
	CU_ASSERT_EQUAL(bdev_null_resize("n0", 1, error), 0);
	CU_ASSERT_EQUAL(u.resizes, 1);
	CU_ASSERT_EQUAL(bdev_num_blocks(bdev_find("n0")), 2048);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buf, 2047, 1), 0);
	CU_ASSERT_EQUAL(bdev_null_resize("n0", 0, error), -EINVAL);
	CU_ASSERT_EQUAL(bdev_null_resize("n1", 1, error), -ENODEV);
	CU_ASSERT_EQUAL(bdev_resize(bdev_find("n0"), 0), -EINVAL);
	CU_ASSERT_EQUAL(bdev_resize(bdev_find("n0"), 2048), 0);
	CU_ASSERT_EQUAL(u.resizes, 1);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

static void flag_removed(void *arg, int rc)
{
	set_done(arg);
}

static void test_removal_waits_for_users_and_their_io(void)
{
	struct testdev *t = testdev_new("t0", 512, 64);
	struct iovec iov = {buf, 512};
	atomic_bool removed = false;
	struct user u;

	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "t0", true, fixture_thread(0)), 0);
	t->hold = true;
	struct request *r = request_new(&u);
	bdev_io_set_rw(r->io, BDEV_IO_READ, &iov, 1, 0, 1);
	request_submit(r);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 1));

	bdev_unregister(&t->bdev, flag_removed, &removed);
	CU_ASSERT_EQUAL(u.removes, 1);
	CU_ASSERT_EQUAL(bdev_get_state(&t->bdev), BDEV_UNREGISTERING);
	CU_ASSERT_FALSE(atomic_load(&r->done));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buf, 0, 1), NVME_SC_INVALID_NS | NVME_SC_DNR);
	struct user late;
	CU_ASSERT_EQUAL(user_open(&late, "t0", false, fixture_thread(1)), -ENODEV);
	atomic_bool second = false;
	bdev_unregister(&t->bdev, flag_removed, &second); /* -EBUSY, at once */
	CU_ASSERT_TRUE(atomic_load(&second));

	testdev_release(t, &u, 0);
	CU_ASSERT_TRUE(request_wait(r));
	CU_ASSERT_EQUAL(r->status, 0);
	CU_ASSERT_FALSE(atomic_load(&removed));
	user_close(&u);
	CU_ASSERT_TRUE(fixture_wait(&removed));
	CU_ASSERT_PTR_NULL(bdev_find("t0"));
	request_free(r);
}

/* A module writes what it keeps on a bdev before it closes it. */
static void test_io_that_is_kept_goes_on_during_the_removal(void)
{
	struct testdev *t = testdev_new("t0", 512, 64);
	struct iovec iov = {buf, 512};
	atomic_bool removed = false;
	struct request *r[3];
	struct user u;

	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "t0", true, fixture_thread(0)), 0);
	bdev_keep_io(u.desc);
	t->slots = 1; /* two wait until the bdev has room */
	t->hold = true;
	for (unsigned i = 0; i < 3; i++) {
		r[i] = request_new(&u);
		bdev_io_set_rw(r[i]->io, BDEV_IO_WRITE, &iov, 1, i, 1);
		request_submit(r[i]);
	}
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 1));
	bdev_unregister(&t->bdev, flag_removed, &removed);
	CU_ASSERT_EQUAL(u.removes, 1);
	t->hold = false;
	testdev_release(t, &u, 0);
	for (unsigned i = 0; i < 3; i++) {
		CU_ASSERT_EQUAL(request_finish(r[i]), 0);
	}
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, buf, 0, 1), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_FLUSH, NULL, 0, 0), 0);
	CU_ASSERT_FALSE(atomic_load(&removed));
	user_close(&u);
	CU_ASSERT_TRUE(fixture_wait(&removed));
}

/* Users on all threads that submit as fast as they can, until they are told to go. */
struct storm {
	struct user user;
	struct request *r[8];
	struct iovec iov;
	atomic_uint in_flight;
	atomic_bool stop;
	uint64_t random;
	uint16_t last_error;
};

static void storm_next(struct bdev_io *io, void *arg)
{
	struct storm *s = arg;

	if (io->status != 0) {
		s->last_error = io->status;
	}
	if (atomic_load(&s->stop) || io->status != 0) {
		atomic_fetch_sub(&s->in_flight, 1);
		fixture_wake();
		return;
	}
	io->offset_blocks = fixture_random(&s->random) % 64;
	bdev_submit(io);
}

static void storm_start(void *arg)
{
	struct storm *s = arg;

	for (unsigned i = 0; i < 8; i++) {
		bdev_io_init(s->r[i]->io, s->user.desc, s->user.ch, storm_next, s);
		bdev_io_set_rw(s->r[i]->io, i % 2 ? BDEV_IO_READ : BDEV_IO_WRITE, &s->iov, 1, i, 1);
		bdev_submit(s->r[i]->io);
	}
}

static bool storm_is_over(void *arg)
{
	struct storm *s = arg;
	return atomic_load(&s[0].in_flight) + atomic_load(&s[1].in_flight) + atomic_load(&s[2].in_flight) == 0;
}

static void test_hot_removal_under_load_ends_every_io(void)
{
	static struct storm s[3];
	static uint8_t data[3][512];

	for (unsigned round = 0; round < 20; round++) {
		struct testdev *t = testdev_new("t0", 512, 64);
		atomic_bool removed = false;

		t->shuffle = round % 2;
		t->slots = round % 3 == 0 ? 3 : 0;
		CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
		for (unsigned i = 0; i < 3; i++) {
			memset(&s[i], 0, sizeof(s[i]));
			CU_ASSERT_EQUAL_FATAL(user_open(&s[i].user, "t0", true, fixture_thread(i)), 0);
			s[i].iov = (struct iovec){data[i], 512};
			atomic_store(&s[i].in_flight, 8);
			for (unsigned j = 0; j < 8; j++) {
				s[i].r[j] = request_new(&s[i].user);
			}
			thread_send(s[i].user.thread, storm_start, &s[i]);
		}
		CU_ASSERT_TRUE(fixture_wait_count(&t->submitted, 100));
		bdev_unregister(&t->bdev, flag_removed, &removed);
		CU_ASSERT_TRUE(thread_control_wait(storm_is_over, s, WAIT_US));
		for (unsigned i = 0; i < 3; i++) {
			CU_ASSERT_EQUAL(s[i].last_error, NVME_SC_INVALID_NS | NVME_SC_DNR);
			CU_ASSERT_EQUAL(s[i].user.removes, 1);
			for (unsigned j = 0; j < 8; j++) {
				request_free(s[i].r[j]);
			}
			user_close(&s[i].user);
		}
		CU_ASSERT_TRUE(fixture_wait(&removed));
	}
}

static void test_descriptor_may_be_closed_in_the_remove_event(void)
{
	struct testdev *t = testdev_new("t0", 512, 8);
	struct user u[2];

	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	for (unsigned i = 0; i < 2; i++) {
		CU_ASSERT_EQUAL_FATAL(user_open(&u[i], "t0", true, fixture_thread(i)), 0);
		u[i].close_on_remove = true;
	}
	CU_ASSERT_TRUE(testdev_delete(t));
	CU_ASSERT_EQUAL(u[0].removes + u[1].removes, 2);
	CU_ASSERT_PTR_NULL(u[0].desc);
}

struct seen {
	unsigned added, removed;
	const char *last;
};

static void see_added(void *ctx, struct bdev *b)
{
	((struct seen *)ctx)->added++;
	((struct seen *)ctx)->last = bdev_name(b);
}

static void see_removed(void *ctx, struct bdev *b)
{
	((struct seen *)ctx)->removed++;
}

static void test_observers_hear_of_all_bdevs(void)
{
	struct seen seen = {0};
	struct bdev_observer o = {.added = see_added, .removed = see_removed, .ctx = &seen};

	make_null("n0", 512, 8);
	bdev_observe(&o);
	CU_ASSERT_EQUAL(seen.added, 1);
	make_null("n1", 512, 8);
	CU_ASSERT_EQUAL(seen.added, 2);
	CU_ASSERT_STRING_EQUAL(seen.last, "n1");
	CU_ASSERT_STRING_EQUAL(bdev_name(bdev_next(NULL)), "n0");
	CU_ASSERT_STRING_EQUAL(bdev_name(bdev_next(bdev_next(NULL))), "n1");
	CU_ASSERT_PTR_NULL(bdev_next(bdev_next(bdev_next(NULL))));
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
	CU_ASSERT_EQUAL(seen.removed, 1);
	bdev_unobserve(&o);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n1"), 0);
	CU_ASSERT_EQUAL(seen.removed, 1);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n1"), -ENODEV);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "n1"), -ENODEV);
}

static void test_creators_say_what_is_wrong(void)
{
	char error[BDEV_ERROR_MAX], name[256];
	struct bdev_null_opts null = {.name = "n0", .block_size = 513, .num_blocks = 8};
	struct bdev_malloc_opts ram = {.block_size = 512, .num_blocks = 8, .numa_id = -1};

	CU_ASSERT_EQUAL(bdev_null_create(&null, error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "block_size 513"));
	null.block_size = 512;
	null.num_blocks = 0;
	CU_ASSERT_EQUAL(bdev_null_create(&null, error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "num_blocks 0"));
	null.num_blocks = 8;
	null.physical_block_size = 700;
	CU_ASSERT_EQUAL(bdev_null_create(&null, error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "physical_block_size 700"));
	null.physical_block_size = 4096;
	CU_ASSERT_EQUAL(bdev_null_create(&null, error), 0);
	CU_ASSERT_EQUAL(bdev_physical_block_size(bdev_find("n0")), 4096);
	CU_ASSERT_EQUAL(bdev_null_create(&null, error), -EEXIST);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "'n0'"));
	CU_ASSERT_EQUAL(bdev_malloc_create(&ram, name, error), 0);
	CU_ASSERT_EQUAL(strncmp(name, "Malloc", 6), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, name), 0);
	ram.num_blocks = 1ull << 50;
	CU_ASSERT_EQUAL(bdev_malloc_create(&ram, name, error), -ENOMEM);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "num_blocks"));
	ram.num_blocks = 8;
	ram.optimal_io_boundary = 3;
	CU_ASSERT_EQUAL(bdev_malloc_create(&ram, name, error), -EINVAL);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

static const struct unit_test tests[] = {
	UNIT(test_bdev_is_found_by_name_alias_and_uuid),
	UNIT(test_uuid_is_made_up_when_none_is_given),
	UNIT(test_taken_names_and_uuids_are_refused),
	UNIT(test_impossible_properties_are_refused),
	UNIT(test_unknown_bdev_cannot_be_opened),
	UNIT(test_read_only_bdev_cannot_be_opened_for_writing),
	UNIT(test_exclusive_claim_keeps_other_writers_out),
	UNIT(test_shared_claims_go_together_when_they_agree),
	UNIT(test_sizes_too_large_with_metadata_are_told),
	UNIT(test_resize_is_told_and_takes_effect),
	UNIT(test_removal_waits_for_users_and_their_io),
	UNIT(test_io_that_is_kept_goes_on_during_the_removal),
	UNIT(test_hot_removal_under_load_ends_every_io),
	UNIT(test_descriptor_may_be_closed_in_the_remove_event),
	UNIT(test_observers_hear_of_all_bdevs),
	UNIT(test_creators_say_what_is_wrong),
	UNIT_END,
};
UNIT_MAIN("bdev_registry", tests, fixture_start, fixture_stop)

/* SPDX-License-Identifier: BSD-3-Clause */
/* Error bdevs: what was injected happens, so many times, and nothing else does. */
#include "bdev_modules/error/error.h"
#include "unittest/bdev/fixture.h"

#include <errno.h>

static uint8_t buf[512] __attribute__((aligned(4096)));
static char error[BDEV_ERROR_MAX];

static struct request *submit(struct user *u, enum bdev_io_type type, struct iovec *iov)
{
	struct request *r = request_new(u);

	bdev_io_set_rw(r->io, type, iov, iov != NULL, 0, iov != NULL);
	request_submit(r);
	return r;
}

static struct iovec one_block = {buf, 512};

static bool is_with_module(void *arg)
{
	return ((struct request *)arg)->io->state == BDEV_IO_MODULE;
}

static void make_error(struct user *u)
{
	char name[256];

	make_malloc("m0", 512, 100);
	CU_ASSERT_EQUAL_FATAL(bdev_error_create("m0", NULL, name, error), 0);
	CU_ASSERT_STRING_EQUAL(name, "EE_m0");
	CU_ASSERT_EQUAL_FATAL(user_open(u, "EE_m0", true, fixture_thread(1)), 0);
}

static void unmake_error(struct user *u)
{
	user_close(u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_error_delete, "EE_m0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
}

static void inject(enum bdev_io_type type, enum bdev_error_kind kind, uint32_t num)
{
	const struct bdev_error_injection in = {.type = type,
						.kind = kind,
						.num = num,
						.corrupt_offset = 7,
						.corrupt_value = 0xff,
						.sct = NVME_SCT_MEDIA,
						.sc = NVME_SC_READ_ERROR};
	CU_ASSERT_EQUAL(bdev_error_inject("EE_m0", &in, error), 0);
}

static void test_injected_failures_hit_so_many_of_their_type(void)
{
	struct user u;

	make_error(&u);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buf, 0, 1), 0);
	inject(BDEV_IO_READ, BDEV_ERROR_FAILURE, 2);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, buf, 0, 1), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buf, 0, 1), NVME_SC_INTERNAL);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buf, 0, 1), NVME_SC_INTERNAL);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buf, 0, 1), 0);
	inject(BDEV_IO_READ, BDEV_ERROR_NVME_FAILURE, 1);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buf, 0, 1), BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_READ_ERROR));
	inject(BDEV_IO_INVALID, BDEV_ERROR_FAILURE, 1); /* all types, one each */
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_FLUSH, NULL, 0, 0), NVME_SC_INTERNAL);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_UNMAP, NULL, 0, 1), NVME_SC_INTERNAL);
	const struct bdev_error_injection clear = {.clear = true};
	CU_ASSERT_EQUAL(bdev_error_inject("EE_m0", &clear, error), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, buf, 0, 1), 0);
	unmake_error(&u);
}

static void test_injected_corruption_changes_one_byte(void)
{
	struct user u;
	uint8_t out[512], in[512], disk[512];

	make_error(&u);
	memset(out, 1, sizeof(out));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, out, 0, 1), 0);
	inject(BDEV_IO_READ, BDEV_ERROR_CORRUPT_DATA, 1);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, in, 0, 1), 0);
	CU_ASSERT_EQUAL(in[7], 0xfe);
	in[7] = 1;
	CU_ASSERT_EQUAL(memcmp(in, out, 512), 0);
	inject(BDEV_IO_WRITE, BDEV_ERROR_CORRUPT_DATA, 1);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, out, 0, 1), 0);
	CU_ASSERT_EQUAL(out[7], 1); /* the writer's own is as it was */
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, disk, 0, 1), 0);
	CU_ASSERT_EQUAL(disk[7], 0xfe);
	unmake_error(&u);
}

static void test_io_short_of_resources_is_tried_again(void)
{
	struct user u;
	struct bdev_stat s;

	make_error(&u);
	inject(BDEV_IO_READ, BDEV_ERROR_NOMEM, 3);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buf, 0, 1), 0);
	bdev_get_stat(bdev_find("EE_m0"), &s);
	CU_ASSERT_EQUAL(s.nomem_waits, 1);
	unmake_error(&u);
}

static void test_pending_io_hangs_until_resumed_or_reset(void)
{
	struct user u;

	make_error(&u);
	inject(BDEV_IO_READ, BDEV_ERROR_PENDING, 2);
	struct request *r = submit(&u, BDEV_IO_READ, &one_block);
	CU_ASSERT_TRUE(fixture_poll(is_with_module, r));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, buf, 1, 1), 0);
	CU_ASSERT_FALSE(atomic_load(&r->done));
	CU_ASSERT_EQUAL(bdev_error_resume_pending("EE_m0", error), 0);
	CU_ASSERT_EQUAL(request_finish(r), 0);
	r = submit(&u, BDEV_IO_READ, &one_block);
	CU_ASSERT_TRUE(fixture_poll(is_with_module, r));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_RESET, NULL, 0, 0), 0);
	CU_ASSERT_EQUAL(request_finish(r), NVME_SC_ABORT_REQ);
	CU_ASSERT_EQUAL(bdev_error_resume_pending("m0", error), -ENODEV);
	unmake_error(&u);
}

static void test_injection_says_what_is_wrong(void)
{
	struct user u;
	struct bdev_error_injection in = {.type = BDEV_IO_READ, .kind = BDEV_ERROR_CORRUPT_DATA, .num = 1};

	make_error(&u);
	CU_ASSERT_EQUAL(bdev_error_inject("EE_m0", &in, error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "corrupt_value"));
	in.num = 0;
	CU_ASSERT_EQUAL(bdev_error_inject("EE_m0", &in, error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "num"));
	in = (struct bdev_error_injection){.kind = BDEV_ERROR_NVME_FAILURE, .num = 1, .sct = 8};
	CU_ASSERT_EQUAL(bdev_error_inject("EE_m0", &in, error), -EINVAL);
	CU_ASSERT_EQUAL(bdev_error_inject("m0", &in, error), -ENODEV);
	unmake_error(&u);
}

static void test_it_waits_for_its_base(void)
{
	uint8_t uuid[16] = {1, 2, 3};
	char name[256];

	CU_ASSERT_EQUAL_FATAL(bdev_error_create("m0", uuid, name, error), 0);
	CU_ASSERT_STRING_EQUAL(name, "EE_m0");
	CU_ASSERT_PTR_NULL(bdev_find("EE_m0"));
	CU_ASSERT_EQUAL(bdev_error_create("m0", NULL, NULL, error), -EEXIST);
	CU_ASSERT_EQUAL(bdev_error_create("", NULL, NULL, error), -EINVAL);
	for (unsigned i = 0; i < 2; i++) { /* it comes, and comes back */
		make_malloc("m0", 512, 100);
		CU_ASSERT_PTR_NOT_NULL_FATAL(bdev_find("EE_m0"));
		CU_ASSERT_EQUAL(memcmp(bdev_uuid(bdev_find("EE_m0")), uuid, sizeof(uuid)), 0);
		CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
	}
	CU_ASSERT_EQUAL(fixture_delete(bdev_error_delete, "EE_m0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_error_delete, "EE_m0"), -ENODEV);
}

static const struct unit_test tests[] = {
	UNIT(test_injected_failures_hit_so_many_of_their_type),
	UNIT(test_injected_corruption_changes_one_byte),
	UNIT(test_io_short_of_resources_is_tried_again),
	UNIT(test_pending_io_hangs_until_resumed_or_reset),
	UNIT(test_injection_says_what_is_wrong),
	UNIT(test_it_waits_for_its_base),
	UNIT_END,
};
UNIT_MAIN("bdev_error", tests, fixture_start, fixture_stop)

/* SPDX-License-Identifier: BSD-3-Clause */
/* RAM disks whose contents are kept for this process or for another one: blocks, metadata, and blocks that cannot be
 * read. */
#include <errno.h>
#include <unistd.h>

#include "bdev/kept_ram.h"
#include "util/compiler.h"
#include "unittest/bdev/fixture.h"

#define BS    512u
#define SMALL 64u
#define LARGE 40960u /* 20 MiB: copied, and made, on a worker thread */

static uint8_t data[LARGE * (BS + 8)] __attribute__((aligned(4096)));
static const uint8_t uuid[16] = {1, 2, 3, 4, 5, 6, 0x47, 8, 0x89};

struct disk {
	uint64_t blocks;
	struct bdev_md md;
};
static const struct disk disks[] = {
	{SMALL, {0}},
	{LARGE, {0}},
	{SMALL, {.size = 8, .dif_type = 1, .kept_apart = true}},
	{SMALL, {.size = 8}},
};

static void made(void *arg, int rc, const char *text)
{
	*(int *)arg = rc;
}

static bool is_made(void *arg)
{
	return *(int *)arg <= 0;
}

static int make(const struct disk *d, uint64_t blocks)
{
	const struct bdev_malloc_opts opts = {
		.name = "m", .uuid = uuid, .block_size = BS, .num_blocks = blocks, .numa_id = -1, .md = d->md};
	int rc = 1;

	bdev_malloc_create_async(&opts, made, &rc);
	thread_control_wait(is_made, &rc, UINT64_MAX);
	return rc;
}

static void fill(const struct disk *d, uint8_t value, uint16_t bad)
{
	struct user u;

	CU_ASSERT_EQUAL_FATAL(user_open(&u, "m", true, fixture_thread(0)), 0);
	memset(data, value, sizeof(data));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, data, 1, d->blocks - 1), 0);
	if (bad != 0) {
		CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE_UNCORRECTABLE, NULL, bad, 1), 0);
	}
	user_close(&u);
}

static bool reads(const struct disk *d, uint64_t block, uint8_t value)
{
	size_t len = BS + d->md.size;
	struct user u;

	CU_ASSERT_EQUAL_FATAL(user_open(&u, "m", false, fixture_thread(0)), 0);
	memset(data, ~value, len);
	bool is = user_io(&u, BDEV_IO_READ, data, block, 1) == 0 && data[0] == value &&
		  memcmp(data, data + 1, BS - 1) == 0 && (d->md.dif_type != 0 || data[len - 1] == value);
	user_close(&u);
	return is;
}

/* Ends the disk as when all is handed over. */
static void end(enum kept_ram_mode mode)
{
	kept_ram_set_mode(mode);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m"), 0);
	kept_ram_set_mode(KEPT_RAM_NONE);
}

/* This process becomes the one that takes over. */
static void become_the_other(void)
{
	json_t *all = kept_ram_export();

	CU_ASSERT_EQUAL_FATAL(json_array_size(all), 1);
	int fd = dup(kept_ram_fd());
	kept_ram_own(false);
	CU_ASSERT_EQUAL_FATAL(kept_ram_import(all, fd), 0);
	kept_ram_own(true);
	json_decref(all);
}

static void forget(void)
{
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m"), 0);
	kept_ram_clear();
	CU_ASSERT_EQUAL(kept_ram_import(NULL, -1), 0);
}

static void check_kept(const struct disk *d, enum kept_ram_mode mode, bool is_other)
{
	CU_ASSERT_EQUAL_FATAL(make(d, d->blocks), 0);
	fill(d, 7, 5);
	end(mode);
	if (is_other) {
		become_the_other();
	}
	CU_ASSERT_EQUAL_FATAL(make(d, d->blocks), 0);
	CU_ASSERT_TRUE(reads(d, 1, 7) && reads(d, d->blocks - 1, 7) && reads(d, 0, 0));
	CU_ASSERT_FALSE(reads(d, 5, 7)); /* it cannot be read */
	fill(d, 9, 6);
	CU_ASSERT_TRUE(reads(d, 5, 9));
	end(mode);
	CU_ASSERT_EQUAL_FATAL(make(d, d->blocks), 0);
	CU_ASSERT_TRUE(reads(d, 1, 9) && reads(d, 5, 9) && reads(d, 0, 0));
	CU_ASSERT_FALSE(reads(d, 6, 9));
	forget();
}

static void test_contents_are_kept(void)
{
	for (unsigned i = 0; i < ARRAY_SIZE(disks); i++) {
		if (disks[i].md.dif_type != 0) {
			continue;
		}
		check_kept(&disks[i], KEPT_RAM_HERE, false);
		check_kept(&disks[i], KEPT_RAM_FILE, false);
		check_kept(&disks[i], KEPT_RAM_FILE, true);
	}
}

/* Blocks that were never written have right protection, which is not made anew over what is there. */
static void test_protection_is_kept(void)
{
	const struct disk *d = &disks[2];
	struct user u;

	CU_ASSERT_EQUAL_FATAL(make(d, d->blocks), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "m", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE_ZEROES, NULL, 0, 8), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, data, 0, 16), 0);
	user_close(&u);
	uint8_t before[16 * 520];
	memcpy(before, data, sizeof(before));
	end(KEPT_RAM_FILE);
	become_the_other();
	CU_ASSERT_EQUAL_FATAL(make(d, d->blocks), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "m", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, data, 0, 16), 0);
	user_close(&u);
	CU_ASSERT_EQUAL(memcmp(before, data, sizeof(before)), 0);
	forget();
}

/* What cannot go on is kept, and nothing else is made in its place. */
static void test_a_disk_that_cannot_be_made_leaves_what_was_kept(void)
{
	for (unsigned i = 0; i < 2; i++) {
		const struct disk *d = &disks[i];
		for (enum kept_ram_mode mode = KEPT_RAM_HERE; mode <= KEPT_RAM_FILE; mode++) {
			CU_ASSERT_EQUAL_FATAL(make(d, d->blocks), 0);
			fill(d, 7, 5);
			end(mode);
			CU_ASSERT_EQUAL(make(d, d->blocks / 2), -EINVAL);
			make_malloc("m", BS, SMALL); /* the name is taken */
			CU_ASSERT_EQUAL(make(d, d->blocks), -EEXIST);
			CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m"), 0);
			CU_ASSERT_EQUAL_FATAL(make(d, d->blocks), 0);
			CU_ASSERT_TRUE(reads(d, 1, 7));
			CU_ASSERT_FALSE(reads(d, 5, 7));
			forget();
		}
	}
}

static bool cannot_write;
ssize_t __real_pwrite64(int fd, const void *buf, size_t n, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *buf, size_t n, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *buf, size_t n, off_t offset)
{
	if (cannot_write) {
		errno = ENOSPC;
		return -1;
	}
	return __real_pwrite64(fd, buf, n, offset);
}

static void test_what_cannot_be_copied_stays_here(void)
{
	for (unsigned i = 0; i < 2; i++) {
		const struct disk *d = &disks[i];
		CU_ASSERT_EQUAL_FATAL(make(d, d->blocks), 0);
		fill(d, 7, 5);
		cannot_write = true;
		end(KEPT_RAM_FILE);
		cannot_write = false;
		CU_ASSERT_PTR_NULL(kept_ram_export()); /* nothing is handed over */
		CU_ASSERT_EQUAL_FATAL(make(d, d->blocks), 0);
		CU_ASSERT_TRUE(reads(d, 1, 7));
		CU_ASSERT_FALSE(reads(d, 5, 7));
		CU_ASSERT_EQUAL(bdev_find("m")->hand_over_bytes, d->blocks * BS);
		end(KEPT_RAM_FILE);
		become_the_other();
		CU_ASSERT_EQUAL_FATAL(make(d, d->blocks), 0);
		CU_ASSERT_TRUE(reads(d, 1, 7));
		CU_ASSERT_EQUAL(bdev_find("m")->hand_over_bytes, 0);
		forget();
	}
}

static const struct unit_test tests[] = {
	UNIT(test_contents_are_kept),
	UNIT(test_protection_is_kept),
	UNIT(test_a_disk_that_cannot_be_made_leaves_what_was_kept),
	UNIT(test_what_cannot_be_copied_stays_here),
	UNIT_END,
};
UNIT_MAIN("bdev_malloc_kept", tests, fixture_start, fixture_stop)

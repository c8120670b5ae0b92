/* SPDX-License-Identifier: BSD-3-Clause */
/* Contents of RAM disks that outlive them: the file that two processes share, and what one says of it to the other. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bdev/kept_ram.h"
#include "env_dpdk/env.h"
#include "util/compiler.h"
#include "unittest/bdev/fixture.h"

#define MB (UINT64_C(1) << 20)

static struct kept_ram *make_in_file(uint8_t first, uint64_t bytes)
{
	struct kept_ram *k = calloc(1, sizeof(*k));

	CU_ASSERT_PTR_NOT_NULL_FATAL(k);
	k->uuid[0] = first;
	CU_ASSERT_EQUAL_FATAL(kept_ram_reserve(k, bytes), 0);
	CU_ASSERT_EQUAL(kept_ram_write(k, bytes - 5, "hello", 5), 0);
	return k;
}

static uint64_t file_blocks(void)
{
	struct stat st;

	CU_ASSERT_EQUAL_FATAL(fstat(kept_ram_fd(), &st), 0);
	return (uint64_t)st.st_blocks;
}

static int import_text(const char *text, int fd)
{
	json_error_t error;
	json_t *all = json_loads(text, JSON_DECODE_ANY, &error);

	CU_ASSERT_PTR_NOT_NULL_FATAL(all);
	int rc = kept_ram_import(all, fd);
	json_decref(all);
	return rc;
}

static void test_places_lie_in_the_file(void)
{
	CU_ASSERT_TRUE(kept_ram_place_is_valid(0, 1, 2 * MB));
	CU_ASSERT_TRUE(kept_ram_place_is_valid(2 * MB, 2 * MB, 4 * MB));
	CU_ASSERT_FALSE(kept_ram_place_is_valid(0, 0, 2 * MB));
	CU_ASSERT_FALSE(kept_ram_place_is_valid(MB, MB, 2 * MB));
	CU_ASSERT_FALSE(kept_ram_place_is_valid(0, 1, 2 * MB - 1)); /* it is mapped to the end of its step */
	CU_ASSERT_FALSE(kept_ram_place_is_valid(2 * MB, 2 * MB + 1, 4 * MB));
	CU_ASSERT_FALSE(kept_ram_place_is_valid(4 * MB, 1, 4 * MB));
	CU_ASSERT_FALSE(kept_ram_place_is_valid(0, UINT64_MAX, INT64_MAX));
	CU_ASSERT_FALSE(kept_ram_place_is_valid(UINT64_MAX - 2 * MB + 1, 4 * MB, INT64_MAX));
}

static void test_contents_pass_to_another_process(void)
{
	struct kept_ram *a = make_in_file(1, 3 * MB), *b = make_in_file(2, MB);

	CU_ASSERT_TRUE(a->offset != b->offset && a->offset % KEPT_RAM_ALIGN == 0 && b->offset % KEPT_RAM_ALIGN == 0);
	kept_ram_note(a);
	kept_ram_note(b);
	json_t *all = kept_ram_export();
	CU_ASSERT_PTR_NOT_NULL_FATAL(all);
	int fd = dup(kept_ram_fd()), other = dup(fd);
	kept_ram_own(false); /* the entries go with the process, and the file stays */
	CU_ASSERT_EQUAL_FATAL(kept_ram_import(all, fd), 0);
	json_decref(all);
	const uint8_t uuid[16] = {1}, unknown[16] = {3};
	CU_ASSERT_PTR_NULL(kept_ram_take(unknown));
	a = kept_ram_take(uuid);
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	CU_ASSERT_PTR_NULL(kept_ram_take(uuid));
	char *memory = kept_ram_map(a), text[6] = "";
	CU_ASSERT_PTR_NOT_NULL_FATAL(memory);
	CU_ASSERT_EQUAL(memcmp(memory + 3 * MB - 5, "hello", 5), 0);
	memcpy(memory, "world", 5); /* the other process sees it */
	CU_ASSERT_EQUAL(pread(other, text, 5, (off_t)a->offset), 5);
	CU_ASSERT_STRING_EQUAL(text, "world");
	env_dma_unmap_file(memory);
	uint64_t before = file_blocks();
	kept_ram_free(a); /* of a file that belongs to the other process */
	CU_ASSERT_EQUAL(file_blocks(), before);
	kept_ram_own(true);
	kept_ram_clear();
	CU_ASSERT_TRUE(file_blocks() < before);
	CU_ASSERT_EQUAL(kept_ram_import(NULL, -1), 0);
	close(other);
}

static void test_what_is_not_in_the_file_is_not_handed_over(void)
{
	struct kept_ram *k = calloc(1, sizeof(*k));

	CU_ASSERT_PTR_NOT_NULL_FATAL(k);
	k->memory = env_dma_zmalloc_touched(2 * MB, 4096, -1);
	kept_ram_note(k);
	CU_ASSERT_PTR_NULL(kept_ram_export());
	kept_ram_clear();
	json_t *all = kept_ram_export();
	CU_ASSERT_EQUAL(json_array_size(all), 0);
	json_decref(all);
}

#define U(n_)     "\"uuid\": \"0000000" n_ "-0000-4000-8000-000000000000\""
#define GOOD_ONE  "{" U("1") ", \"offset\": 0, \"bytes\": 4096}"
#define OTHER_ONE "{" U("2") ", \"offset\": 2097152, \"bytes\": 4096}"

static int sealed_file(int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	CU_ASSERT_FATAL(fd >= 0);
	CU_ASSERT_EQUAL(ftruncate(fd, 4 * MB), 0);
	CU_ASSERT_EQUAL(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static void test_what_another_process_says_is_checked(void)
{
	static const char *const wrong[] = {
		"{}",
		"7",
		"[7]",
		"[{}]",
		"[" GOOD_ONE ", {" U("1") ", \"offset\": 2097152, \"bytes\": 4096}]", /* twice */
		"[" GOOD_ONE ", {" U("2") ", \"offset\": 0, \"bytes\": 4096}]",       /* at one place */
		"[{\"uuid\": \"x\", \"offset\": 0, \"bytes\": 4096}]",
		"[{" U("1") ", \"offset\": -2097152, \"bytes\": 4096}]",
		"[{" U("1") ", \"offset\": 0, \"bytes\": 0}]",
		"[{" U("1") ", \"offset\": 0, \"bytes\": 4194305}]",
		"[{" U("1") ", \"offset\": \"0\", \"bytes\": -1}]",
	};

	for (unsigned i = 0; i < ARRAY_SIZE(wrong); i++) {
		CU_ASSERT_EQUAL(import_text(wrong[i], sealed_file(F_SEAL_SHRINK)), -EBADMSG);
		json_t *all = kept_ram_export();
		CU_ASSERT_EQUAL(json_array_size(all), 0);
		json_decref(all);
	}
	CU_ASSERT_EQUAL(import_text("[" GOOD_ONE ", " OTHER_ONE "]", sealed_file(F_SEAL_SHRINK)), 0);
	CU_ASSERT_EQUAL(import_text("[" GOOD_ONE "]", sealed_file(F_SEAL_GROW)), -EBADMSG); /* it may shrink */
	CU_ASSERT_EQUAL(import_text("[" GOOD_ONE "]", open("/dev/null", O_RDWR)), -EBADMSG);
	CU_ASSERT_EQUAL(import_text("[" GOOD_ONE "]", -1), -EBADMSG);
	CU_ASSERT_EQUAL(import_text("[]", -1), 0);
	CU_ASSERT_EQUAL(kept_ram_fd(), -1);
}

static const struct unit_test tests[] = {
	UNIT(test_places_lie_in_the_file),
	UNIT(test_contents_pass_to_another_process),
	UNIT(test_what_is_not_in_the_file_is_not_handed_over),
	UNIT(test_what_another_process_says_is_checked),
	UNIT_END,
};
UNIT_MAIN("bdev_kept_ram", tests, fixture_start, fixture_stop)

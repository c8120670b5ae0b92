/* SPDX-License-Identifier: BSD-3-Clause */
/* What another process cannot take over, with bdevs and a target as they are; the age of commands is a fake. */
#include "appliance/hand_over_losses.h"

#include <fcntl.h>
#include <unistd.h>

#include "keyring/keyring.h"
#include "rpc_methods/bdev_module.h"
#include "unittest/nvmf/loop.h"

static char text[HAND_OVER_LOSSES_MAX];
static bool is_late;
static uint64_t asked_ticks;

size_t __wrap_nvmf_tgt_get_late(struct nvmf_tgt *tgt, uint64_t min_age_ticks, size_t max, struct nvmf_inflight *list);
size_t __wrap_nvmf_tgt_get_late(struct nvmf_tgt *tgt, uint64_t min_age_ticks, size_t max, struct nvmf_inflight *list)
{
	asked_ticks = min_age_ticks;
	if (is_late && max != 0) {
		list[0] = (struct nvmf_inflight){.nsid = 7, .command = "Flush"};
		snprintf(list[0].subnqn, sizeof(list[0].subnqn), "%s", LOOP_SUBNQN);
	}
	return is_late;
}

static uint64_t ordinary_bytes = UINT64_C(4) << 30;

uint64_t __wrap_env_available_ordinary_bytes(void);
uint64_t __wrap_env_available_ordinary_bytes(void)
{
	return ordinary_bytes;
}

/* With free hugepages. */
uint64_t __wrap_env_available_bytes(void);
uint64_t __wrap_env_available_bytes(void)
{
	return ordinary_bytes + (UINT64_C(8) << 30);
}

static void test_nothing_is_lost_of_a_target_without_bdevs(void)
{
	CU_ASSERT_FALSE(hand_over_losses(false, text));
}

static void test_memory_is_lost_unless_the_other_process_takes_it_over(void)
{
	make_malloc("m", 512, 1000);
	CU_ASSERT_TRUE(hand_over_losses(false, text));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "what is on bdev m (Malloc disk)"));
	CU_ASSERT_FALSE(hand_over_losses(true, text));
	CU_ASSERT_FALSE(hand_over_spoils_data(true, text));
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m"), 0);
	CU_ASSERT_FALSE(hand_over_losses(false, text));
}

/* The sizes are fakes. */
static void test_ram_disks_that_take_too_long_or_too_much_memory_to_copy_are_told_in_numbers(void)
{
	make_malloc("a", 512, 1000);
	make_malloc("b", 512, 1000);
	struct bdev *a = bdev_find("a"), *b = bdev_find("b");
	a->hand_over_bytes = UINT64_C(1000) << 20;
	b->hand_over_bytes = UINT64_C(24) << 20;
	CU_ASSERT_FALSE(hand_over_losses(true, text));
	b->hand_over_bytes++;
	CU_ASSERT_TRUE(hand_over_losses(true, text));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "RAM disks of 1024 MB"));
	CU_ASSERT_FALSE(hand_over_spoils_data(true, text));
	b->hand_over_bytes = UINT64_C(1) << 50;
	CU_ASSERT_FALSE(hand_over_spoils_data(false, text));
	CU_ASSERT_TRUE(hand_over_spoils_data(true, text));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "the copy of RAM disks takes 1073742828 MB of memory, and 4096 MB"));
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "a"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "b"), 0);
}

static void test_hugepages_are_no_room_for_the_copy_of_ram_disks(void)
{
	make_malloc("a", 512, 1000);
	bdev_find("a")->hand_over_bytes = UINT64_C(2) << 30;
	CU_ASSERT_FALSE(hand_over_spoils_data(true, text));
	ordinary_bytes = UINT64_C(1) << 30;
	CU_ASSERT_TRUE(hand_over_spoils_data(true, text));
	CU_ASSERT_FALSE(hand_over_spoils_data(false, text));
	ordinary_bytes = UINT64_C(4) << 30;
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "a"), 0);
}

static void test_the_copy_of_small_ram_disks_takes_whole_2_mib_each(void)
{
	make_malloc("a", 512, 1000);
	make_malloc("b", 512, 1000);
	ordinary_bytes = UINT64_C(4) << 20;
	CU_ASSERT_FALSE(hand_over_spoils_data(true, text));
	ordinary_bytes--;
	CU_ASSERT_TRUE(hand_over_spoils_data(true, text));
	CU_ASSERT_STRING_EQUAL(text, "the copy of RAM disks takes 4 MB of memory, and 3 MB are available");
	bdev_find("b")->hand_over_bytes = 0;
	CU_ASSERT_FALSE(hand_over_spoils_data(true, text));
	ordinary_bytes = UINT64_C(4) << 30;
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "a"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "b"), 0);
}

static bool is_saved_never(const struct bdev *b)
{
	return false;
}

RPC_BDEV_CONFIG(testdev, .is_saved = is_saved_never)

static void test_what_is_not_in_the_configuration_is_lost(void)
{
	struct testdev *t = testdev_new("other", 512, 1000);

	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	CU_ASSERT_TRUE(hand_over_losses(false, text));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "bdev other is not in the configuration"));
	CU_ASSERT_TRUE(testdev_delete(t));
	CU_ASSERT_FALSE(hand_over_losses(false, text));
}

static void test_a_command_that_may_never_end_is_named(void)
{
	is_late = true;
	CU_ASSERT_TRUE(hand_over_losses(false, text));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "a command (Flush) on namespace 7 of " LOOP_SUBNQN));
	CU_ASSERT_EQUAL(asked_ticks, env_us_to_ticks(5000000));
	is_late = false;
	CU_ASSERT_FALSE(hand_over_losses(false, text));
}

static void write_key(const char *path, const char *key)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	CU_ASSERT_FATAL(fd >= 0);
	CU_ASSERT_EQUAL(write(fd, key, strlen(key)), (ssize_t)strlen(key));
	close(fd);
}

static void test_a_key_that_another_process_would_not_read_is_lost(void)
{
	static const char one[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
	static const char other[] = "ff112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
	char folder[] = "/tmp/varve-hand-over-XXXXXX", path[64], why[KEYRING_ERROR_MAX];

	CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/key", folder);
	write_key(path, one);
	CU_ASSERT_EQUAL_FATAL(keyring_file_add("k", path, why), 0);
	CU_ASSERT_FALSE(hand_over_losses(false, text));
	CU_ASSERT_FALSE(hand_over_spoils_data(false, text));
	write_key(path, other);
	CU_ASSERT_TRUE(hand_over_spoils_data(false, text));
	CU_ASSERT_TRUE(hand_over_losses(false, text));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "key \"k\""));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "another key"));
	CU_ASSERT_PTR_NULL(strstr(text, "ff1122")); /* no message has a secret */
	unlink(path);
	CU_ASSERT_TRUE(hand_over_losses(false, text));
	keyring_clear();
	CU_ASSERT_FALSE(hand_over_losses(false, text));
	/* One that shuts hosts out may be wanted. */
	write_key(path, "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:");
	CU_ASSERT_EQUAL_FATAL(keyring_file_add("k", path, why), 0);
	unlink(path);
	CU_ASSERT_TRUE(hand_over_losses(false, text));
	CU_ASSERT_FALSE(hand_over_spoils_data(false, text));
	keyring_clear();
	rmdir(folder);
}

static const struct unit_test tests[] = {
	UNIT(test_nothing_is_lost_of_a_target_without_bdevs),
	UNIT(test_memory_is_lost_unless_the_other_process_takes_it_over),
	UNIT(test_ram_disks_that_take_too_long_or_too_much_memory_to_copy_are_told_in_numbers),
	UNIT(test_hugepages_are_no_room_for_the_copy_of_ram_disks),
	UNIT(test_the_copy_of_small_ram_disks_takes_whole_2_mib_each),
	UNIT(test_what_is_not_in_the_configuration_is_lost),
	UNIT(test_a_command_that_may_never_end_is_named),
	UNIT(test_a_key_that_another_process_would_not_read_is_lost),
	UNIT_END,
};

UNIT_MAIN("appliance_hand_over_losses", tests, loop_start, loop_stop)

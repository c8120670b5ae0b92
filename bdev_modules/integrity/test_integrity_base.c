/* SPDX-License-Identifier: BSD-3-Clause */
/* Integrity bdevs and their bases: which are refused, and what an integrity bdev does with one of which something is
 * damaged or cannot be read. */
#include <errno.h>

#include "bdev/owner.h"
#include "bdev_modules/integrity/test_integrity_kit.h"
#include "bdev_modules/passthru/passthru.h"

static struct testdev *base_new(uint32_t units)
{
	struct testdev *t = testdev_new("m0", 512, (uint64_t)units * UNIT_BYTES / 512);

	t->bdev.io_types |= 1u << BDEV_IO_UNMAP | 1u << BDEV_IO_WRITE_ZEROES | 1u << BDEV_IO_FLUSH;
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	return t;
}

/* --- Another owner --- */

static void owner_never(struct bdev_owner *o, uint64_t until_us, bool fence)
{
}
static void owner_never_gives(struct bdev_owner *o)
{
}
static uint32_t owner_has_none(const void *channel)
{
	return 0;
}
static const struct bdev_owner_ops owner_ops = {owner_never, owner_never_gives, owner_has_none};

static void test_a_standby_is_refused_also_below_another_bdev(void)
{
	struct bdev_owner owner;

	struct testdev *t = base_new(KIT_UNITS);
	CU_ASSERT_EQUAL_FATAL(bdev_passthru_create("p0", "m0", NULL, kit_error), 0);
	bdev_owner_init(&owner, &t->bdev, &owner_ops);
	CU_ASSERT_EQUAL(kit_create("p0", true), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(kit_error, "bdev 'm0' was made with standby"));
	CU_ASSERT_EQUAL(bdev_get_claim(bdev_find("p0"), NULL), BDEV_CLAIM_NONE);
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p0"), 0);
	CU_ASSERT_EQUAL(kit_create("m0", true), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(kit_error, "was made with standby"));
	bdev_owner_fini(&owner);
	CU_ASSERT_EQUAL(kit_create("m0", true), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_integrity_delete, "i0"), 0);
	CU_ASSERT_TRUE(testdev_delete(t));
}

static const struct unit_test tests[] = {
	UNIT(test_a_standby_is_refused_also_below_another_bdev),
	UNIT_END,
};
UNIT_MAIN("bdev_integrity_base", tests, fixture_start, fixture_stop)

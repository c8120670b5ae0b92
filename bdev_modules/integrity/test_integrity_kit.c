/* SPDX-License-Identifier: BSD-3-Clause */
#include "bdev_modules/integrity/test_integrity_kit.h"

#include <errno.h>

uint8_t kit_data[256 * UNIT_BYTES] __attribute__((aligned(4096)));
char kit_error[BDEV_ERROR_MAX];

struct creation {
	atomic_bool done;
	int rc;
};

static void creation_ended(void *arg, int rc, const char *error)
{
	struct creation *c = arg;

	c->rc = rc;
	snprintf(kit_error, sizeof(kit_error), "%s", error);
	set_done(&c->done);
}

int kit_create_opts(const struct bdev_integrity_opts *opts)
{
	struct creation c = {.rc = 1};

	bdev_integrity_create(opts, creation_ended, &c);
	CU_ASSERT_TRUE_FATAL(fixture_wait(&c.done));
	return c.rc;
}

int kit_create(const char *base, bool format)
{
	return kit_create_opts(&(struct bdev_integrity_opts){.name = "i0", .base_bdev_name = base, .format = format});
}

void kit_close_soon(bool soon)
{
	integrity_limits.learns = false;
	integrity_limits.idle_us = soon ? 1 : 1000000000;
	integrity_limits.tick_us = soon ? 1000 : 10000;
}

struct bdev_integrity_info kit_info(void)
{
	struct bdev_integrity_info info;

	bdev_integrity_get_info(bdev_integrity_find("i0"), &info);
	return info;
}

static bool none_is_open(void *arg)
{
	return kit_info().regions_open == 0 && kit_info().regions_unknown == 0;
}

bool kit_wait_closed(void)
{
	return fixture_poll(none_is_open, NULL);
}

/* --- Data --- */

void kit_fill(uint8_t *data, uint64_t unit, uint32_t version)
{
	uint64_t *words = (uint64_t *)data, x = unit * UINT64_C(0x9e3779b97f4a7c15) + version;

	for (unsigned i = 0; i < UNIT_BYTES / 8; i++) {
		words[i] = x + i * UINT64_C(0xd1342543de82ef95);
	}
}

bool kit_is(const uint8_t *data, uint64_t unit, uint32_t version)
{
	static uint8_t expected[UNIT_BYTES] __attribute__((aligned(8)));

	kit_fill(expected, unit, version);
	return memcmp(data, expected, UNIT_BYTES) == 0;
}

uint16_t kit_write(struct user *u, uint64_t unit, uint32_t units, uint32_t version)
{
	for (uint32_t i = 0; i < units; i++) {
		kit_fill(kit_data + (size_t)i * UNIT_BYTES, unit + i, version);
	}
	return user_io(u, BDEV_IO_WRITE, kit_data, unit, units);
}

uint16_t kit_read(struct user *u, uint64_t unit, uint32_t units)
{
	memset(kit_data, 0xcc, (size_t)units * UNIT_BYTES);
	return user_io(u, BDEV_IO_READ, kit_data, unit, units);
}

bool kit_reads(struct user *u, uint64_t unit, uint32_t units, uint32_t version)
{
	if (kit_read(u, unit, units) != 0) {
		return false;
	}
	for (uint32_t i = 0; i < units; i++) {
		if (!kit_is(kit_data + (size_t)i * UNIT_BYTES, unit + i, version)) {
			return false;
		}
	}
	return true;
}

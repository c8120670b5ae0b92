/* SPDX-License-Identifier: BSD-3-Clause */
#include "bdev/module_util.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bdev/dif.h"

int bdev_error(char *error, int rc, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(error, BDEV_ERROR_MAX, fmt, args);
	va_end(args);
	return rc;
}

int bdev_check_name(const char *name, char *error)
{
	if (name == NULL || name[0] == '\0') {
		return bdev_error(error, -EINVAL, "name: must not be empty");
	}
	if (strlen(name) > 255) {
		return bdev_error(error, -EINVAL, "name: %zu bytes long, at most 255 are allowed", strlen(name));
	}
	if (bdev_find(name) != NULL) {
		return bdev_error(error, -EEXIST, "name: a bdev '%.200s' exists already", name);
	}
	return 0;
}

int bdev_check_blocks(uint32_t block_size, uint32_t md_size, uint64_t num_blocks, char *error)
{
	if (block_size < 512 || block_size > 65536 || block_size % 512 != 0) {
		return bdev_error(error, -EINVAL, "block_size %u: must be a multiple of 512, up to 65536", block_size);
	}
	uint64_t max = INT64_MAX / ((uint64_t)block_size + md_size);
	if (num_blocks == 0 || num_blocks > max) {
		return bdev_error(error, -EINVAL, "num_blocks %lu: must be 1 to %lu", num_blocks, max);
	}
	return 0;
}

int bdev_check_md(struct bdev_md *md, char *error)
{
	if (md->size > 128 || (md->size & (md->size - 1)) != 0 || (md->size != 0 && md->size < DIF_BYTES_MIN)) {
		return bdev_error(error, -EINVAL, "md_size %u: must be 0, 8, 16, 32, 64 or 128", md->size);
	}
	if (md->dif_type > 3) {
		return bdev_error(error, -EINVAL, "dif_type %u: must be 0 (none) to 3", md->dif_type);
	}
	if (md->dif_type != 0 && md->size == 0) {
		return bdev_error(error, -EINVAL, "dif_type %u: protection information is metadata, and md_size is 0",
				  md->dif_type);
	}
	if (md->dif_guard >= DIF_GUARDS) {
		return bdev_error(error, -EINVAL,
				  "dif_pi_format %u: must be 0 (a guard of 16 bits), 1 (32 bits) or 2 (64 bits)",
				  md->dif_guard);
	}
	if (md->dif_type != 0 && md->size < dif_bytes(md->dif_guard)) {
		return bdev_error(error, -EINVAL,
				  "md_size %u: protection information of dif_pi_format %u takes %u bytes: 16, 32, 64 "
				  "and 128 are allowed",
				  md->size, md->dif_guard, dif_bytes(md->dif_guard));
	}
	/* the smallest that is possible, which leaves the longest reference tag */
	md->storage_bits = md->dif_type != 0 && md->dif_guard == DIF_GUARD_32 ? 16 : 0;
	md->storage_mask = md->storage_bits != 0 ? UINT16_MAX : 0;
	md->dif_guard = md->dif_type != 0 ? md->dif_guard : 0;
	md->checks = md->dif_type == 0 ? 0 : md->dif_type == 3 ? BDEV_DIF_GUARD : BDEV_DIF_GUARD | BDEV_DIF_REF;
	return 0;
}

int bdev_check_physical_block_size(uint32_t physical_block_size, uint32_t block_size, char *error)
{
	if (physical_block_size != 0 && physical_block_size % block_size != 0) {
		return bdev_error(error, -EINVAL, "physical_block_size %u: must be a multiple of block_size (%u)",
				  physical_block_size, block_size);
	}
	return 0;
}

int bdev_register_or_say(struct bdev *b, char *error)
{
	char uuid[BDEV_UUID_STRLEN];

	switch (bdev_register(b)) {
	case 0:
		return 0;
	case -EEXIST:
		bdev_uuid_format(b->uuid, uuid);
		return bdev_error(error, -EEXIST, "uuid %s: another bdev has it", uuid);
	case -ENOMEM:
		return bdev_error(error, -ENOMEM, "out of memory");
	default:
		return bdev_error(error, -EINVAL, "name '%.200s': only printable ASCII is allowed", b->name);
	}
}

struct bdev *bdev_find_of(const char *name, const struct bdev_module *module)
{
	struct bdev *b = bdev_find(name);
	return b != NULL && b->module == module ? b : NULL;
}

void bdev_delete_of(const char *name, const struct bdev_module *module, bdev_delete_cb cb, void *arg)
{
	struct bdev *b = bdev_find_of(name, module);

	if (b != NULL) {
		bdev_unregister(b, cb, arg);
	} else {
		cb(arg, -ENODEV);
	}
}

int bdev_bases_none(const struct bdev *b, const struct bdev *bases[BDEV_BASES_MAX])
{
	return 0;
}

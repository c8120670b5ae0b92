/* SPDX-License-Identifier: BSD-3-Clause */
/* What each type of I/O is: a new type is a row here and a number in enum bdev_io_type. */
#include "bdev/internal.h"

#define RANGE     TRAIT_RANGE
#define DATA      TRAIT_DATA
#define WRITES    TRAIT_WRITES
#define LIMITED   TRAIT_LIMITED
#define RW_LIMITS TRAIT_RW_LIMITS
#define SOURCE    TRAIT_SOURCE
#define EMULATED  TRAIT_EMULATED

const struct bdev_io_type_info bdev_io_type_infos[BDEV_IO_TYPES] = {
	[BDEV_IO_READ] = {RANGE | DATA | LIMITED | RW_LIMITS, BDEV_STAT_READ, "read"},
	[BDEV_IO_WRITE] = {RANGE | DATA | WRITES | LIMITED | RW_LIMITS, BDEV_STAT_WRITE, "write"},
	[BDEV_IO_UNMAP] = {RANGE | WRITES | EMULATED, BDEV_STAT_UNMAP, "unmap"},
	[BDEV_IO_FLUSH] = {EMULATED, BDEV_STAT_OTHER, "flush"},
	[BDEV_IO_RESET] = {EMULATED, BDEV_STAT_OTHER, "reset"},
	[BDEV_IO_NVME_ADMIN] = {WRITES, BDEV_STAT_OTHER, "nvme_admin"},
	[BDEV_IO_NVME_IO] = {WRITES, BDEV_STAT_OTHER, "nvme_io"},
	[BDEV_IO_NVME_IO_MD] = {WRITES, BDEV_STAT_OTHER, "nvme_io_md"},
	[BDEV_IO_WRITE_ZEROES] = {RANGE | WRITES | EMULATED, BDEV_STAT_UNMAP, "write_zeroes"},
	[BDEV_IO_ZCOPY] = {0, BDEV_STAT_OTHER, "zcopy"},
	[BDEV_IO_COMPARE] = {RANGE | DATA | LIMITED | RW_LIMITS | EMULATED, BDEV_STAT_OTHER, "compare"},
	[BDEV_IO_COMPARE_AND_WRITE] = {RANGE | DATA | WRITES | LIMITED | RW_LIMITS | EMULATED, BDEV_STAT_WRITE,
				       "compare_and_write"},
	[BDEV_IO_ABORT] = {EMULATED, BDEV_STAT_OTHER, "abort"},
	[BDEV_IO_COPY] = {RANGE | SOURCE | WRITES | LIMITED | EMULATED, BDEV_STAT_COPY, "copy"},
	[BDEV_IO_VERIFY] = {RANGE | LIMITED | EMULATED, BDEV_STAT_OTHER, "verify"},
	[BDEV_IO_WRITE_UNCORRECTABLE] = {RANGE | WRITES, BDEV_STAT_OTHER, "write_uncorrectable"},
};

const char *bdev_io_type_name(enum bdev_io_type type)
{
	return (unsigned)type < BDEV_IO_TYPES ? bdev_io_type_infos[type].name : NULL;
}

enum bdev_stat_class bdev_io_stat_class(enum bdev_io_type type)
{
	return (enum bdev_stat_class)bdev_io_type_infos[type].stat_class;
}

bool bdev_io_type_supported(const struct bdev *b, enum bdev_io_type type)
{
	return (unsigned)type < BDEV_IO_TYPES &&
	       ((b->io_types & 1u << type) != 0 || (bdev_io_traits(type) & TRAIT_EMULATED) != 0);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* What hosts are told of the sizes that suit an image. */
#include "bdev_modules/rbd/internal.h"

#define UNMAP_OBJECTS 256 /* of one UNMAP or WRITE_ZEROES: librbd begins a request for each object at once */
#define MAX_RW_BYTES  (32u << 20)
#define MIN_BOUNDARY  (64u << 10) /* hosts cut each I/O at boundaries: smaller pieces cost more than they save */

/* bytes in blocks; 0: it is no whole number of blocks, or too large. */
static uint32_t layout_blocks(uint64_t bytes, uint32_t block_size)
{
	return bytes % block_size == 0 && bytes / block_size <= UINT32_MAX ? (uint32_t)(bytes / block_size) : 0;
}

static bool layout_has_stripes(const struct rbd_layout *l)
{
	return l->stripe_bytes != 0 && l->object_bytes % l->stripe_bytes == 0 && l->stripe_count != 0 &&
	       l->stripe_count <= UINT64_MAX / l->stripe_bytes;
}

void bdev_rbd_set_limits(struct bdev *b, const struct rbd_layout *l)
{
	uint32_t object = layout_blocks(l->object_bytes, b->block_size);
	uint32_t stripe = layout_has_stripes(l) ? layout_blocks(l->stripe_bytes, b->block_size) : 0;

	b->max_rw_blocks = MAX_RW_BYTES / b->block_size;
	b->max_unmap_blocks = object <= UINT32_MAX / UNMAP_OBJECTS ? (uint64_t)object * UNMAP_OBJECTS : 0;
	b->optimal_io_boundary = l->stripe_bytes >= MIN_BOUNDARY ? stripe : 0;
	b->hints = (struct bdev_hints){0};
	if (stripe != 0) {
		b->hints.optimal_write_size = layout_blocks(l->stripe_bytes * l->stripe_count, b->block_size);
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bdev/module_util.h"
#include "bdev_modules/null/null.h"
#include "env_dpdk/env.h"
#include "util/iov.h"
#include "util/log.h"

struct null_bdev {
	struct bdev bdev;
	char name[];
};

static void null_fini(void);
static struct bdev_module bdev_null_module = {.name = "null", .fini = null_fini};
BDEV_MODULE_REGISTER(bdev_null_module)

static void null_submit(void *channel, struct bdev_io *io)
{
	if (io->type == BDEV_IO_ABORT) {
		io->cdw0 = 1; /* not aborted: every I/O has completed inside submit */
	}
	bdev_io_complete(io, 0);
}

/* For bdevs with metadata. Their blocks may be read into a buffer of the bdev layer, which nobody else clears. */
static void null_submit_md(void *channel, struct bdev_io *io)
{
	if (io->type == BDEV_IO_READ) {
		const struct bdev *b = bdev_channel_bdev(io->ch);
		struct iov_cursor c = iov_cursor_at(io->iovs, 0);

		iov_fill(&c, 0, io->num_blocks * b->block_size);
		if (b->md.dif_type != 0) {
			bdev_dif_make(io);
		}
	}
	null_submit(channel, io);
}

/* ---- Zero copy: all reads are sent from the same zeroes ---- */

#define ZEROES_BYTES ((size_t)1 << 20) /* larger reads have a buffer */

static void *zeroes; /* of all null bdevs; NULL: no memory was left for them. Control thread */

static void null_fini(void)
{
	env_dma_free(zeroes);
	zeroes = NULL;
}

static void *null_zcopy_addr(struct bdev *b, enum bdev_io_type type, uint64_t offset_blocks, uint64_t num_blocks)
{
	return type == BDEV_IO_READ && num_blocks * b->block_size <= b->zcopy_memory_len ? b->zcopy_memory : NULL;
}

static void null_fill_in_zcopy(struct bdev *b)
{
	b->leaves_buffers = true;
	if (zeroes == NULL) {
		zeroes = env_dma_zmalloc(ZEROES_BYTES, 4096, -1);
	}
	if (zeroes != NULL) {
		b->zcopy_memory = zeroes;
		b->zcopy_memory_len = ZEROES_BYTES;
	}
}

static void null_destruct(struct bdev *b)
{
	struct null_bdev *n = (struct null_bdev *)b;

	bdev_destruct_done(b);
	free(n);
}

static const struct bdev_ops null_ops = {
	.bases = bdev_bases_none, .submit = null_submit, .destruct = null_destruct, .zcopy_addr = null_zcopy_addr};
static const struct bdev_ops null_ops_md = {
	.bases = bdev_bases_none, .submit = null_submit_md, .destruct = null_destruct};

/* The fields of NVMe hold no more, and one has to be a multiple of another. */
static void null_tell_of_hints(const char *name, const struct bdev_hints *h)
{
	const uint32_t most = 65536;
	bool fit = h->preferred_write_granularity <= most && h->preferred_write_alignment <= most &&
		   h->optimal_write_size <= most && h->preferred_unmap_granularity <= most &&
		   h->preferred_unmap_alignment <= most;

	if (!fit) {
		log_notice("%s prefers more than %u blocks: hosts cannot be told", name, most);
	}
	if (h->preferred_write_granularity != 0 && h->optimal_write_size % h->preferred_write_granularity != 0) {
		log_notice("%s: optimal_write_size %u is no multiple of preferred_write_granularity %u: hosts are not "
			   "told of it",
			   name, h->optimal_write_size, h->preferred_write_granularity);
	}
}

int bdev_null_create(const struct bdev_null_opts *opts, char *error)
{
	int rc = bdev_check_name(opts->name, error);

	rc = rc != 0 ? rc : bdev_check_blocks(opts->block_size, opts->md.size, opts->num_blocks, error);
	rc = rc != 0 ? rc : bdev_check_physical_block_size(opts->physical_block_size, opts->block_size, error);
	struct bdev_md md = opts->md;
	rc = rc != 0 ? rc : bdev_check_md(&md, error);
	if (rc != 0) {
		return rc;
	}
	size_t name_bytes = strlen(opts->name) + 1;
	struct null_bdev *n = aligned_alloc(64, (sizeof(*n) + name_bytes + 63) & ~(size_t)63);
	if (n == NULL) {
		return bdev_error(error, -ENOMEM, "out of memory");
	}
	memset(n, 0, sizeof(*n));
	memcpy(n->name, opts->name, name_bytes);
	n->bdev.name = n->name;
	n->bdev.product_name = "Null disk";
	n->bdev.module = &bdev_null_module;
	n->bdev.ops = md.size != 0 ? &null_ops_md : &null_ops;
	n->bdev.block_size = opts->block_size + md.size;
	n->bdev.md = md;
	n->bdev.physical_block_size = opts->physical_block_size;
	n->bdev.num_blocks = opts->num_blocks;
	n->bdev.numa_node = -1;
	n->bdev.hints = opts->hints;
	null_tell_of_hints(n->name, &opts->hints);
	n->bdev.io_types = 1u << BDEV_IO_READ | 1u << BDEV_IO_WRITE | 1u << BDEV_IO_UNMAP | 1u << BDEV_IO_FLUSH |
			   1u << BDEV_IO_RESET | 1u << BDEV_IO_WRITE_ZEROES | 1u << BDEV_IO_COMPARE |
			   1u << BDEV_IO_COMPARE_AND_WRITE | 1u << BDEV_IO_ABORT | 1u << BDEV_IO_COPY |
			   1u << BDEV_IO_VERIFY;
	if (opts->uuid != NULL) {
		memcpy(n->bdev.uuid, opts->uuid, sizeof(n->bdev.uuid));
	}
	if (md.size == 0) {
		null_fill_in_zcopy(&n->bdev);
	}
	rc = bdev_register_or_say(&n->bdev, error);
	if (rc != 0) {
		free(n);
	}
	return rc;
}

void bdev_null_delete(const char *name, bdev_delete_cb cb, void *arg)
{
	bdev_delete_of(name, &bdev_null_module, cb, arg);
}

int bdev_null_resize(const char *name, uint64_t new_size_mb, char *error)
{
	struct bdev *b = bdev_find_of(name, &bdev_null_module);

	if (b == NULL) {
		return bdev_error(error, -ENODEV, "name: there is no null bdev '%.200s'", name);
	}
	uint64_t max_mb = INT64_MAX / b->block_size * bdev_data_block_size(b) >>
			  20; /* the byte offset of the last block must fit int64_t, metadata included */
	if (new_size_mb == 0 || new_size_mb > max_mb) {
		return bdev_error(error, -EINVAL, "new_size %lu: must be 1 to %lu MiB", new_size_mb, max_mb);
	}
	return bdev_resize(b, (new_size_mb << 20) / bdev_data_block_size(b));
}

bool bdev_null_get(const struct bdev *b, struct bdev_null_opts *opts)
{
	if (b->module != &bdev_null_module) {
		return false;
	}
	*opts = (struct bdev_null_opts){.name = b->name,
					.uuid = b->uuid,
					.block_size = bdev_data_block_size(b),
					.md = b->md,
					.physical_block_size = b->physical_block_size,
					.num_blocks = b->num_blocks,
					.hints = b->hints};
	return true;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Metadata and protection information on an I/O's way: checked at the last stage (what is written) and at completion
 * (what was read). What is written into plain blocks, or read out of them, goes by child I/Os in buffers: split.c. */
#include <string.h>

#include "bdev/internal.h"
#include "bdev/dif.h"
#include "util/iov.h"

_Static_assert(BDEV_DIF_GUARD == (int)DIF_CHECK_GUARD && BDEV_DIF_APP == (int)DIF_CHECK_APP &&
		       BDEV_DIF_REF == (int)DIF_CHECK_REF && BDEV_DIF_STORAGE == (int)DIF_CHECK_STORAGE,
	       "flags are checks");
#define CHECKS (BDEV_DIF_GUARD | BDEV_DIF_APP | BDEV_DIF_REF | BDEV_DIF_STORAGE)

static struct dif_format format_of(const struct bdev *b)
{
	return (struct dif_format){.data_size = b->block_size - b->md.size,
				   .md_size = b->md.size,
				   .offset = b->md.dif_type == 0 || b->md.dif_is_first
						     ? 0
						     : (uint16_t)(b->md.size - dif_bytes(b->md.dif_guard)),
				   .type = b->md.dif_type,
				   .guard = b->md.dif_guard,
				   .storage_bits = b->md.storage_bits,
				   .storage_mask = b->md.storage_mask};
}

uint64_t bdev_dif_ref_after(const struct bdev_md *md, uint64_t ref, uint64_t blocks)
{
	const struct dif_format f = {.type = md->dif_type, .guard = md->dif_guard, .storage_bits = md->storage_bits};

	return dif_ref_after(&f, ref, blocks);
}

uint64_t bdev_dif_default_ref(const struct bdev_md *md, uint64_t lba)
{
	return bdev_dif_ref_after(md, 0, lba);
}

static struct dif_tags tags_of(const struct bdev *b, const struct bdev_io *io)
{
	if (!(io->dif_flags & BDEV_DIF_TAGS)) {
		return (struct dif_tags){.ref = bdev_dif_default_ref(&b->md, io->offset_blocks),
					 .checks = b->md.checks};
	}
	return (struct dif_tags){.ref = io->dif_ref,
				 .storage = io->dif_storage,
				 .app = io->dif_app,
				 .app_mask = io->dif_app_mask,
				 .checks = io->dif_flags & CHECKS};
}

static uint16_t status_of(const struct bdev *b, const struct bdev_io *io, const struct dif_error *e)
{
	static const struct {
		const char *name;
		uint16_t status;
	} checks[] = {
		[DIF_CHECK_GUARD] = {"guard", NVME_SC_GUARD_CHECK},
		[DIF_CHECK_APP] = {"application tag", NVME_SC_APPTAG_CHECK},
		[DIF_CHECK_REF] = {"reference tag", NVME_SC_REFTAG_CHECK},
		[DIF_CHECK_STORAGE] = {"storage tag", NVME_SC_STORAGE_TAG_CHECK},
	};
	uint64_t lba = io->offset_blocks + e->block;

	TRACE(BDEV_DIF_ERROR, b->trace_owner, 1, (uintptr_t)io, lba, e->check, e->expected, e->found);
	log_limited(LOG_LEVEL_ERROR, "bdev %s: %s of block %lu: the %s is 0x%lx and should be 0x%lx", b->name,
		    bdev_io_type_name(io->type), lba, checks[e->check].name, e->found, e->expected);
	return BDEV_STATUS(NVME_SCT_MEDIA, checks[e->check].status) | NVME_SC_DNR;
}

/* ---- Whole I/Os ---- */

static bool has_plain_length(const struct bdev *b, const struct bdev_io *io, size_t bytes)
{
	return bytes == io->num_blocks * (b->block_size - b->md.size);
}

bool bdev_dif_length_is_good(const struct bdev *b, const struct bdev_io *io, size_t bytes)
{
	return b->md.size != 0 && (io->dif_flags & BDEV_DIF_PLAIN) && has_plain_length(b, io, bytes);
}

static uint16_t dif_check_io(const struct bdev *b, const struct bdev_io *io)
{
	struct dif_format f = format_of(b);
	struct dif_tags tags = tags_of(b, io);
	struct dif_error e;

	return dif_verify(&f, &tags, io->iovs, (uint32_t)io->num_blocks, &e) ? 0 : status_of(b, io, &e);
}

static bool pass_plain(const struct bdev *b, struct bdev_io *io)
{
	if (!has_plain_length(b, io, iov_length(io->iovs, io->iovcnt))) { /* they may be as long as extended blocks */
		bdev_io_complete(io, STATUS_BAD_LENGTH);
		return false;
	}
	if (bdev_dif_is_plain_below(io, io->type)) {
		return true;
	}
	bdev_split_start(io);
	return false;
}

/* For a bdev whose device makes the checks. */
static bool pass_unchecked(const struct bdev *b, struct bdev_io *io)
{
	if ((io->dif_flags & BDEV_DIF_MAKE) && (bdev_io_traits(io->type) & TRAIT_WRITES)) {
		bdev_dif_make(io);
	}
	if (b->md.separate) {
		bdev_split_start(io);
		return false;
	}
	return true;
}

bool bdev_dif_is_ours(const struct bdev_io *io)
{
	switch (io->type) {
	case BDEV_IO_COMPARE:
		return bdev_io_is_plain(io);
	case BDEV_IO_VERIFY:
		return io->ch->bdev->md.dif_type != 0 && !io->ch->bdev->md.by_device;
	case BDEV_IO_COPY:
		return io->ch->bdev->md.dif_type != 0;
	default:
		return false;
	}
}

bool bdev_dif_pass(struct bdev_io *io)
{
	const struct bdev *b = io->ch->bdev;
	uint16_t status;

	if (!(bdev_io_traits(io->type) & TRAIT_DATA)) {
		if (bdev_dif_is_ours(io)) {
			bdev_split_start(io);
			return false;
		}
		return true;
	}
	if (io->dif_flags & BDEV_DIF_PLAIN) {
		return pass_plain(b, io);
	}
	if (b->md.by_device) {
		return pass_unchecked(b, io);
	}
	if (io->type == BDEV_IO_READ) {
		io->flags |= IO_DIF;
		return true;
	}
	if ((io->dif_flags & BDEV_DIF_MAKE) && (bdev_io_traits(io->type) & TRAIT_WRITES)) {
		bdev_dif_make(io);
	} else if ((status = dif_check_io(b, io)) != 0) {
		bdev_io_complete(io, status);
		return false;
	}
	return true;
}

uint16_t bdev_dif_check_read(const struct bdev_io *io)
{
	return dif_check_io(io->ch->bdev, io);
}

void bdev_dif_pass_on(const struct bdev_io *parent, uint64_t first, struct bdev_io *child)
{
	if (parent->type ==
	    BDEV_IO_COPY) { /* its children read one place and write another, each with the tags of that place */
		bdev_io_set_dif(child, 0, 0, 0, 0);
		return;
	}
	bdev_io_set_dif(child, parent->dif_flags & (CHECKS | BDEV_DIF_TAGS),
			bdev_dif_ref_after(&parent->ch->bdev->md, parent->dif_ref, first), parent->dif_app,
			parent->dif_app_mask);
	child->dif_storage = parent->dif_storage;
}

void bdev_dif_pass_tags(const struct bdev_io *parent, uint64_t first, struct bdev_io *child)
{
	const struct bdev *b = parent->ch->bdev;
	struct dif_tags tags = tags_of(b, parent);

	bdev_io_set_dif(child, (uint8_t)(tags.checks | BDEV_DIF_TAGS), bdev_dif_ref_after(&b->md, tags.ref, first),
			tags.app, tags.app_mask);
	child->dif_storage = tags.storage;
}

void bdev_dif_move(const struct bdev_io *io)
{
	struct dif_format f = format_of(io->ch->bdev);

	dif_move(&f, io->offset_blocks, io->iovs, (uint32_t)io->num_blocks);
}

/* ---- Children of plain ones ---- */

void bdev_dif_insert(const struct bdev_io *child, const struct iovec *iovs, size_t skip, void *extended)
{
	const struct bdev *b = child->ch->bdev;
	struct dif_format f = format_of(b);
	struct dif_tags tags = tags_of(b, child);

	dif_insert(&f, &tags, iovs, skip, (uint32_t)child->num_blocks, extended);
}

uint16_t bdev_dif_strip(const struct bdev_io *child, const struct iovec *iovs, size_t skip, const void *extended)
{
	const struct bdev *b = child->ch->bdev;
	struct dif_format f = format_of(b);
	struct dif_tags tags = tags_of(b, child);
	struct dif_error e;

	return dif_strip(&f, &tags, iovs, skip, (uint32_t)child->num_blocks, extended, &e) ? 0
											   : status_of(b, child, &e);
}

/* Checks the blocks before it compares them: a block that is not as it was written is an error, not a difference. */
uint16_t bdev_dif_compare(const struct bdev_io *child, const struct iovec *iovs, size_t skip, const void *extended)
{
	const struct bdev *b = child->ch->bdev;
	const uint8_t *block = extended;
	struct bdev_io whole = *child;
	struct iovec iov = {(void *)(uintptr_t)extended, child->num_blocks * b->block_size};
	struct iov_cursor c = iov_cursor_at(iovs, skip);

	whole.iovs = &iov;
	whole.iovcnt = 1;
	uint16_t status = dif_check_io(b, &whole);
	for (uint64_t i = 0; status == 0 && i < child->num_blocks; i++, block += b->block_size) {
		if (!iov_equals_buffer(&c, block, b->block_size - b->md.size)) {
			status = STATUS_COMPARE_FAILED;
		}
	}
	return status;
}

/* ---- Devices that want metadata apart ---- */

/* The buffer has room for the metadata behind its blocks. */
void bdev_dif_take_apart(const struct bdev *b, void *blocks, uint64_t num_blocks)
{
	size_t data = b->block_size - b->md.size;
	const uint8_t *from = blocks;
	uint8_t *to = blocks, *md = to + num_blocks * b->block_size;

	for (uint64_t i = 0; i < num_blocks; i++, from += b->block_size, to += data, md += b->md.size) {
		memcpy(md, from + data, b->md.size);
		memmove(to, from, data);
	}
}

void bdev_dif_put_together(const struct bdev *b, void *blocks, uint64_t num_blocks)
{
	size_t data = b->block_size - b->md.size;
	uint8_t *base = blocks, *md = base + num_blocks * b->block_size;

	for (uint64_t i = num_blocks; i-- > 0;) { /* backwards: what moves up does not overwrite what has yet to move */
		memmove(base + i * b->block_size, base + i * data, data);
		memcpy(base + i * b->block_size + data, md + i * b->md.size, b->md.size);
	}
}

/* ---- For modules ---- */

void bdev_dif_make(const struct bdev_io *io)
{
	const struct bdev *b = io->ch->bdev;
	struct dif_format f = format_of(b);
	struct dif_tags tags = tags_of(b, io);

	dif_generate(&f, &tags, io->iovs, (uint32_t)io->num_blocks);
}

void bdev_dif_put_zeroes(const struct bdev_io *io, void *blocks)
{
	const struct bdev *b = io->ch->bdev;
	struct dif_format f = format_of(b);
	struct dif_tags tags = tags_of(b, io);
	size_t bytes = io->num_blocks * b->block_size;

	memset(blocks, 0, bytes);
	dif_generate(&f, &tags, &(struct iovec){blocks, bytes}, (uint32_t)io->num_blocks);
}

void bdev_dif_put_zeroes_apart(const struct bdev_io *io, void *data, void *md)
{
	const struct bdev *b = io->ch->bdev;
	struct dif_format f = format_of(b);
	struct dif_tags tags = tags_of(b, io);
	struct iovec block[2] = {{data, f.data_size}, {md, f.md_size}};

	memset(data, 0, io->num_blocks * f.data_size);
	memset(md, 0, io->num_blocks * f.md_size);
	for (uint64_t i = 0; f.type != 0 && i < io->num_blocks; i++) {
		dif_generate(&f, &tags, block, 1);
		tags.ref = dif_ref_after(&f, tags.ref, 1);
		block[0].iov_base = (uint8_t *)block[0].iov_base + f.data_size;
		block[1].iov_base = (uint8_t *)block[1].iov_base + f.md_size;
	}
}

/* first: where the protection information of the first block is; that of the next is `stride` bytes behind it. */
static void tuples_put_unwritten(const struct dif_format *f, void *first, size_t stride, uint64_t num_blocks)
{
	uint8_t *tuple = first;

	for (uint64_t i = 0; f->type != 0 && i < num_blocks; i++, tuple += stride) {
		memset(tuple, 0xff, dif_bytes(f->guard));
	}
}

void bdev_dif_put_unwritten(const struct bdev *b, void *blocks, uint64_t num_blocks)
{
	struct dif_format f = format_of(b);

	memset(blocks, 0, num_blocks * b->block_size);
	tuples_put_unwritten(&f, (uint8_t *)blocks + f.data_size + f.offset, b->block_size, num_blocks);
}

void bdev_dif_put_unwritten_apart(const struct bdev *b, void *data, void *md, uint64_t num_blocks)
{
	struct dif_format f = format_of(b);

	memset(data, 0, num_blocks * f.data_size);
	memset(md, 0, num_blocks * f.md_size);
	tuples_put_unwritten(&f, (uint8_t *)md + f.offset, f.md_size, num_blocks);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* I/O that the module cannot take as it is. It is split into child I/Os that keep the module's limits, with their data
 * in aligned buffers where necessary, or emulated by other types: WRITE_ZEROES by writes, COMPARE and VERIFY by reads,
 * COMPARE_AND_WRITE and COPY by both.
 *
 * A child goes straight to the module and is never split again, so a child never waits for another child of its pool.
 * Each bdev of a stack has channels, and pools, of its own. All channels of a thread share its data buffers. That
 * cannot deadlock in a stack: buffers are aligned to a page, so no bdev below needs a second buffer for the same data.
 */
#include <assert.h>
#include <errno.h>
#include <rte_common.h>
#include <string.h>

#include "bdev/internal.h"

#define CHILD_IOVS 16u

struct bdev_split_child {
	struct iovec iovs[CHILD_IOVS];
	struct bdev_io *parent;
	void *buffer;             /* bounced, compared, verified or copied, or NULL */
	uint8_t class;            /* of buffer */
	struct iov_cursor memory; /* of the parent: where the child's starts */
	STAILQ_ENTRY(bdev_split_child) link;
	struct bdev_io io __attribute__((aligned(64)));
};

struct bdev_split_pool {
	STAILQ_HEAD(, bdev_split_child) free;
	struct bdev_io_queue waiters; /* parents */
	uint8_t *memory;              /* `count` children, `stride` bytes apart */
	uint32_t count;
	size_t stride;
};

/* What kind of children a parent has at the moment. */
enum phase {
	PHASE_SPLIT,   /* smaller I/Os of the same type */
	PHASE_ZEROES,  /* writes of zeroes */
	PHASE_COMPARE, /* reads into a buffer, which the layer compares; or compares, if the module does them */
	PHASE_WRITE,   /* COMPARE_AND_WRITE, after PHASE_COMPARE */
	PHASE_VERIFY,  /* reads into a buffer */
	PHASE_COPY,    /* reads into a buffer; each becomes a write of that buffer */
};

static uint8_t *zeroes; /* BDEV_ZEROES_BYTES of them; DMA memory */

int bdev_split_init(void)
{
	zeroes = env_dma_zmalloc(BDEV_ZEROES_BYTES, 4096, -1);
	return zeroes != NULL ? 0 : -ENOMEM;
}

void bdev_split_fini(void)
{
	env_dma_free(zeroes);
	zeroes = NULL;
}

struct bdev_split_pool *bdev_split_pool_create(struct bdev_channel *ch)
{
	/* A bdev without limits and metadata needs children for rare types only. */
	bool often = ch->bdev->limited || ch->bdev->md.size != 0;
	uint32_t count = often ? bdev_options.children : RTE_MIN(4u, bdev_options.children);
	size_t stride = offsetof(struct bdev_split_child, io) + bdev_io_size();
	struct bdev_split_pool *p = calloc(1, sizeof(*p));

	if (p == NULL || (p->memory = aligned_alloc(64, count * stride)) == NULL) {
		free(p);
		return NULL;
	}
	STAILQ_INIT(&p->free);
	STAILQ_INIT(&p->waiters);
	memset(p->memory, 0, count * stride);
	p->count = count;
	p->stride = stride;
	for (uint32_t i = 0; i < count; i++) {
		struct bdev_split_child *child = (struct bdev_split_child *)(p->memory + i * stride);
		STAILQ_INSERT_TAIL(&p->free, child, link);
	}
	return p;
}

void bdev_split_pool_destroy(struct bdev_split_pool *p)
{
	if (p != NULL) {
		free(p->memory);
		free(p);
	}
}

/* --- Limits --- */

static ALWAYS_INLINE bool iovs_fit(const struct bdev *b, const struct iovec *iovs, uint32_t iovcnt)
{
	/* Of a bdev that has a boundary only, no iov is looked at. */
	if ((b->buf_align | b->max_segments | b->max_segment_bytes) == 0) {
		return true;
	}
	uintptr_t address_mask = b->buf_align != 0 ? b->buf_align - 1 : 0;
	size_t length_mask = b->buf_align != 0 ? RTE_MIN(b->buf_align, b->block_size) - 1 : 0;
	size_t max = b->max_segment_bytes != 0 ? b->max_segment_bytes : SIZE_MAX;

	if (b->max_segments != 0 && iovcnt > b->max_segments) {
		return false;
	}
	for (uint32_t i = 0; i < iovcnt; i++) {
		if (((uintptr_t)iovs[i].iov_base & address_mask) || (iovs[i].iov_len & length_mask) ||
		    iovs[i].iov_len > max) {
			return false;
		}
	}
	return true;
}

/* The boundary that I/O must not cross, in blocks; 0: none. A rescan may change it at any time, so each decision loads
 * it once. */
static ALWAYS_INLINE uint32_t boundary_load(const struct bdev *b)
{
	return b->split_on_boundary ? __atomic_load_n(&b->optimal_io_boundary, __ATOMIC_RELAXED) : 0;
}

/* Blocks between the last boundary and offset: less than `boundary`, which is not 0. Divides only for the drives whose
 * boundary is no power of two; crossing the boundary would cost them far more. */
static ALWAYS_INLINE uint64_t blocks_behind_boundary(uint32_t boundary, uint64_t offset)
{
	uint32_t mask = boundary - 1;

	return (boundary & mask) == 0 ? offset & mask : offset % boundary;
}

static ALWAYS_INLINE bool crosses_boundary(const struct bdev *b, uint64_t offset, uint64_t blocks)
{
	uint32_t boundary = boundary_load(b);

	return boundary != 0 && blocks_behind_boundary(boundary, offset) + blocks > boundary;
}

/* The limit on an I/O of a type without data, in blocks; 0: none. */
static uint64_t type_max_blocks(const struct bdev *b, enum bdev_io_type type)
{
	switch (type) {
	case BDEV_IO_UNMAP:
	case BDEV_IO_WRITE_ZEROES:
		return b->max_unmap_blocks;
	case BDEV_IO_COPY:
		return b->max_copy_blocks;
	case BDEV_IO_VERIFY:
		return b->max_verify_blocks;
	case BDEV_IO_WRITE_UNCORRECTABLE:
		return b->max_uncorrectable_blocks;
	default:
		return 0;
	}
}

bool bdev_io_fits(const struct bdev *b, const struct bdev_io *io)
{
	if (bdev_io_traits(io->type) & TRAIT_RW_LIMITS) {
		return (b->max_rw_blocks == 0 || io->num_blocks <= b->max_rw_blocks) &&
		       !crosses_boundary(b, io->offset_blocks, io->num_blocks) && iovs_fit(b, io->iovs, io->iovcnt) &&
		       (io->type != BDEV_IO_COMPARE_AND_WRITE || iovs_fit(b, io->compare.iovs, io->compare.iovcnt));
	}
	uint64_t max = type_max_blocks(b, io->type);
	return max == 0 || io->num_blocks <= max;
}

static uint64_t blocks_up_to_boundary(const struct bdev *b, uint64_t offset, uint64_t n)
{
	uint32_t boundary = boundary_load(b);

	return boundary != 0 ? RTE_MIN(n, boundary - blocks_behind_boundary(boundary, offset)) : n;
}

/* Blocks that the next child of io may have, by all limits but those on memory. */
static uint64_t child_max_blocks(const struct bdev *b, const struct bdev_io *io, enum bdev_io_type type)
{
	uint64_t n = io->num_blocks - io->children_blocks;

	if (!(bdev_io_traits(type) & TRAIT_RW_LIMITS)) {
		uint64_t max = type_max_blocks(b, type);
		return max != 0 ? RTE_MIN(n, max) : n;
	}
	uint64_t max = __atomic_load_n(&b->max_rw_blocks, __ATOMIC_RELAXED); /* once, as the boundary */
	if (max != 0) {
		n = RTE_MIN(n, max);
	}
	n = blocks_up_to_boundary(b, io->offset_blocks + io->children_blocks, n);
	return io->phase == PHASE_COPY ? blocks_up_to_boundary(b, io->copy.src_offset_blocks + io->children_blocks, n)
				       : n;
}

/* COMPARE_AND_WRITE compares one list of iovs and writes another. */
static struct iovec *parent_iovs(const struct bdev_io *io)
{
	return io->phase == PHASE_COMPARE && io->type == BDEV_IO_COMPARE_AND_WRITE ? io->compare.iovs : io->iovs;
}

/* --- Making children --- */

/* Bytes of a block in the parent's memory. */
static size_t memory_per_block(const struct bdev_io *io)
{
	const struct bdev *b = io->ch->bdev;
	return bdev_io_is_plain(io) ? b->block_size - b->md.size : b->block_size;
}

/* Points the child's iovs at the next blocks of the parent's memory: whole blocks, at most `blocks`. Returns their
 * number; 0: the memory there is misaligned, or in too many parts. */
static uint64_t child_carve_memory(struct bdev_io *io, struct bdev_split_child *child, uint64_t blocks)
{
	const struct bdev *b = io->ch->bdev;
	uint32_t max_iovs = b->max_segments != 0 ? RTE_MIN(b->max_segments, CHILD_IOVS) : CHILD_IOVS;
	size_t max_bytes = b->max_segment_bytes != 0 ? b->max_segment_bytes : SIZE_MAX;
	size_t block = memory_per_block(io), want = blocks * block, have = 0;
	struct iov_cursor c = io->iov_next;
	uint32_t n = 0;

	while (have < want && n < max_iovs) {
		size_t part = RTE_MIN(want - have, max_bytes);
		void *at = iov_next(&c, &part);
		child->iovs[n] = (struct iovec){at, part};
		if (!iovs_fit(b, &child->iovs[n], 1)) {
			break;
		}
		n++;
		have += part;
	}
	/* Give back what is not a whole block. */
	size_t excess = have % block;
	have -= excess;
	while (excess > 0) {
		size_t part = RTE_MIN(excess, child->iovs[n - 1].iov_len);
		child->iovs[n - 1].iov_len -= part;
		excess -= part;
		n -= child->iovs[n - 1].iov_len == 0;
	}
	child->io.iovs = child->iovs;
	child->io.iovcnt = n;
	return have / block;
}

/* Gives the child a buffer of the class that suits the next blocks, for as many of them as it holds. False: no buffer
 * is free, or others wait for one and it is not io's turn. */
static bool child_carve_buffer(struct bdev_io *io, struct bdev_split_child *child, uint64_t blocks, bool turn)
{
	const struct bdev *b = io->ch->bdev;
	struct bdev_thread *t = io->ch->thread;
	size_t max = b->max_segment_bytes != 0 ? b->max_segment_bytes : SIZE_MAX;

	assert(t->has_buffers); /* bdev_needs_buffers() said so when the channel was made */
	size_t room = b->block_size + (b->md.separate ? b->md.size : 0u); /* where metadata goes that is taken apart */

	blocks = RTE_MIN(blocks, RTE_MIN(max, t->buffers.cache[IOBUF_LARGE].size) / room);
	child->class = (uint8_t)iobuf_class_of(&t->buffers, blocks * room);
	if ((!turn && !STAILQ_EMPTY(&t->buffer_waiters[child->class])) || !iobuf_has(&t->buffers, child->class, 1)) {
		return false;
	}
	child->buffer = iobuf_take(&t->buffers, child->class);
	child->io.num_blocks = blocks;
	child->iovs[0] = (struct iovec){child->buffer, blocks * b->block_size};
	child->io.iovs = child->iovs;
	child->io.iovcnt = 1;
	return true;
}

static void child_carve_zeroes(struct bdev_io *io, struct bdev_split_child *child, uint64_t blocks)
{
	const struct bdev *b = io->ch->bdev;
	uint32_t max_iovs = b->max_segments != 0 ? RTE_MIN(b->max_segments, CHILD_IOVS) : CHILD_IOVS;
	size_t max = b->max_segment_bytes != 0 ? RTE_MIN(b->max_segment_bytes, BDEV_ZEROES_BYTES) : BDEV_ZEROES_BYTES;
	uint64_t per_iov = max / b->block_size, done = 0;
	uint32_t n;

	for (n = 0; n < max_iovs && done < blocks; n++) {
		uint64_t part = RTE_MIN(per_iov, blocks - done);
		child->iovs[n] = (struct iovec){zeroes, part * b->block_size};
		done += part;
	}
	child->io.num_blocks = done;
	child->io.iovs = child->iovs;
	child->io.iovcnt = n;
}

/* Whether children need buffers of extended blocks, because the parent's memory is plain data, or because the device
 * wants metadata apart. Of plain data that is one copy, during which the guard is computed; without it the children
 * would need two iovs per block, and the guard a pass of its own. */
static bool child_is_remade(const struct bdev_io *io, enum bdev_io_type type)
{
	return (bdev_io_is_plain(io) || io->ch->bdev->md.separate) && !bdev_dif_is_plain_below(io, type) &&
	       (bdev_io_traits(type) & TRAIT_DATA);
}

static enum bdev_io_type child_type(const struct bdev_io *io)
{
	switch ((enum phase)io->phase) {
	case PHASE_COMPARE:
		return (io->ch->bdev->io_types & 1u << BDEV_IO_COMPARE) && !bdev_io_is_plain(io) ? BDEV_IO_COMPARE
												 : BDEV_IO_READ;
	case PHASE_ZEROES:
	case PHASE_WRITE:
		return BDEV_IO_WRITE;
	case PHASE_VERIFY:
	case PHASE_COPY:
		return BDEV_IO_READ;
	case PHASE_SPLIT:
		break;
	}
	return io->type;
}

/* Makes child the next one of io. turn: io has waited longest for a buffer. False: no buffer of child->class is free,
 * and nothing has changed. */
static bool child_carve(struct bdev_io *io, struct bdev_split_child *child, bool turn)
{
	enum bdev_io_type type = child_type(io);
	uint64_t blocks = child_max_blocks(io->ch->bdev, io, type);

	child->buffer = NULL;
	child->memory = io->iov_next;
	child->io.type = (uint8_t)type;
	child->io.offset_blocks = io->offset_blocks + io->children_blocks;
	child->io.num_blocks = blocks;
	child->io.iovs = NULL;
	child->io.iovcnt = 0;
	if (io->type == BDEV_IO_COPY) {
		child->io.copy.src_offset_blocks = io->copy.src_offset_blocks + io->children_blocks;
		child->io.offset_blocks =
			io->phase == PHASE_COPY ? child->io.copy.src_offset_blocks : child->io.offset_blocks;
	}
	if (io->phase == PHASE_ZEROES && io->ch->bdev->md.size == 0) {
		child_carve_zeroes(io, child, blocks);
	} else if (io->phase == PHASE_ZEROES || (io->phase != PHASE_SPLIT && type == BDEV_IO_READ) ||
		   child_is_remade(io, type)) {
		if (!child_carve_buffer(io, child, blocks, turn)) {
			return false;
		}
	} else if (bdev_io_traits(type) & TRAIT_DATA) {
		child->io.num_blocks = child_carve_memory(io, child, blocks);
		if (child->io.num_blocks == 0 && !child_carve_buffer(io, child, blocks, turn)) {
			return false;
		}
	}
	return true;
}

/* Between a buffer of extended blocks and a device that wants metadata apart. */
static bool child_is_apart(const struct bdev_split_child *child)
{
	return child->io.ch->bdev->md.separate && child->buffer != NULL;
}

static void child_take_apart(struct bdev_split_child *child)
{
	const struct bdev *b = child->io.ch->bdev;

	if (child->io.type != BDEV_IO_READ) {
		bdev_dif_take_apart(b, child->buffer, child->io.num_blocks);
	}
	child->iovs[0].iov_len = child->io.num_blocks * (b->block_size - b->md.size);
	child->io.apart.md = (uint8_t *)child->buffer + child->io.num_blocks * b->block_size;
}

static void child_put_together(struct bdev_split_child *child)
{
	const struct bdev *b = child->io.ch->bdev;

	child->iovs[0].iov_len = child->io.num_blocks * b->block_size;
	if (child->io.type == BDEV_IO_READ && child->io.status == 0) {
		bdev_dif_put_together(b, child->buffer, child->io.num_blocks);
	}
}

static void child_hand_over(struct bdev_io *io, struct bdev_split_child *child)
{
	struct bdev_channel *ch = io->ch;

	if (child_is_apart(child)) {
		child_take_apart(child);
	}
	child->io.flags = IO_CHILD;
	child->io.status = 0;
	child->io.submit_ticks = thread_now();
	TRACE(BDEV_IO_START, ch->bdev->trace_owner, (uint32_t)child->io.num_blocks, (uintptr_t)&child->io,
	      child->io.type, io, child->io.offset_blocks, ch->qd);
	bdev_io_trace_dispatch(&child->io);
	bdev_io_set_state(&child->io, BDEV_IO_MODULE);
	child->io.stage = STAGE_HANDED;
	io->stage = io->stage == STAGE_BEGUN ? STAGE_BEGUN : STAGE_HANDED;
	ch->submit(ch->module, &child->io);
}

static size_t child_bytes(const struct bdev_split_child *child)
{
	return child->io.num_blocks * child->io.ch->bdev->block_size;
}

static void child_fill_buffer(struct bdev_split_child *child)
{
	struct iov_cursor c = child->memory;

	if (child->parent->phase == PHASE_ZEROES) {
		bdev_dif_put_zeroes(&child->io, child->buffer);
	} else if (bdev_io_is_plain(child->parent)) {
		bdev_dif_insert(&child->io, c.iov, c.offset, child->buffer);
	} else {
		iov_to_buffer(&c, child->buffer, child_bytes(child));
	}
}

static void child_submit_next(struct bdev_io *io, struct bdev_split_child *child)
{
	struct bdev_channel *ch = io->ch;
	uint64_t first = io->children_blocks;

	io->children_blocks += child->io.num_blocks;
	if (bdev_io_traits(io->type) & TRAIT_DATA) {
		iov_skip(&io->iov_next, child->io.num_blocks * memory_per_block(io));
	}
	child->parent = io;
	child->io.ch = ch;
	child->io.desc = io->desc;
	child->io.cb_arg = io;
	io->children++;
	if (io->phase == PHASE_COPY) {
		io->copy.children_reading++;
	}
	if (ch->slow & SLOW_DIF) {
		bdev_dif_pass_on(io, first, &child->io);
		bool is_plain = child->buffer == NULL && bdev_dif_is_plain_below(io, child->io.type);
		child->io.dif_flags |= is_plain ? BDEV_DIF_PLAIN : 0;
	}
	if (child->buffer != NULL && child->io.type != BDEV_IO_READ) {
		child_fill_buffer(child);
	}
	child_hand_over(io, child);
}

/* --- The parent --- */

static void split_start_phase(struct bdev_io *io, enum phase phase);

static void split_end(struct bdev_io *io)
{
	uint16_t status = io->child_status;

	if (status == 0 && (io->flags & IO_ABORTED) && io->children_blocks < io->num_blocks) {
		status = STATUS_ABORTED;
	}
	if (io->type != BDEV_IO_COMPARE_AND_WRITE) {
		/* if no child has begun */
		(status != 0 ? bdev_io_complete_untouched : bdev_io_complete)(io, status);
	} else if (status == 0 && io->phase == PHASE_COMPARE) {
		split_start_phase(io, PHASE_WRITE);
	} else {
		if (status != 0) {
			bdev_io_mark_untouched(io); /* no child has begun */
		}
		bdev_lock_release(io, status);
	}
}

static void split_wait_in(struct bdev_io_queue *q, struct bdev_io *io)
{
	io->ch->stat.child_waits++;
	bdev_io_set_state(io, BDEV_IO_WAIT_CHILD);
	STAILQ_INSERT_TAIL(q, io, queue);
}

/* Submits children of io until all blocks have one, or io must wait; ends io when no child is left. turn: io may take
 * one buffer although others wait. Inside a frame. */
static void split_run(struct bdev_io *io, bool turn)
{
	struct bdev_split_pool *pool = io->ch->split_pool;
	struct bdev_thread *t = io->ch->thread;

	bdev_io_set_state(io, BDEV_IO_SPLIT);
	while (io->children_blocks < io->num_blocks && io->child_status == 0 && !(io->flags & IO_ABORTED)) {
		struct bdev_split_child *child = STAILQ_FIRST(&pool->free);
		if (child == NULL) {
			split_wait_in(&pool->waiters, io);
			return;
		}
		if (!child_carve(io, child, turn)) {
			iobuf_waits(&t->buffers, child->class);
			USDT(buffer_wait, "bdev", io->ch->bdev->name, iobuf_size(child->class));
			split_wait_in(&t->buffer_waiters[child->class], io);
			return;
		}
		turn = turn && child->buffer == NULL;
		STAILQ_REMOVE_HEAD(&pool->free, link);
		child_submit_next(io, child);
	}
	if (io->children == 0) {
		split_end(io);
	}
}

static void split_start_phase(struct bdev_io *io, enum phase phase)
{
	io->phase = (uint8_t)phase;
	io->children_blocks = 0;
	io->children = 0;
	io->child_status = 0;
	io->iov_next = (struct iov_cursor){.iov = parent_iovs(io)};
	split_run(io, false);
}

void bdev_split_start(struct bdev_io *io)
{
	bool own = (io->ch->bdev->io_types & 1u << io->type) && !bdev_dif_is_ours(io);

	TRACE(BDEV_IO_SPLIT, io->ch->bdev->trace_owner, 0, (uintptr_t)io, io->cb_arg);
	if (io->type == BDEV_IO_COMPARE_AND_WRITE) {
		bdev_lock_take(io);
	} else if (io->type == BDEV_IO_WRITE_ZEROES && !own) {
		split_start_phase(io, PHASE_ZEROES);
	} else if (io->type == BDEV_IO_COMPARE && !own) {
		split_start_phase(io, PHASE_COMPARE);
	} else if (io->type == BDEV_IO_VERIFY && !own) {
		split_start_phase(io, PHASE_VERIFY);
	} else if (io->type == BDEV_IO_COPY && !own) {
		io->copy.children_reading = 0;
		split_start_phase(io, PHASE_COPY);
	} else {
		split_start_phase(io, PHASE_SPLIT);
	}
}

void bdev_caw_locked(struct bdev_io *io)
{
	split_start_phase(io, PHASE_COMPARE);
}

static struct bdev_io *split_queue_pop(struct bdev_io_queue *q)
{
	struct bdev_io *io = STAILQ_FIRST(q);
	if (io != NULL) {
		STAILQ_REMOVE_HEAD(q, queue);
	}
	return io;
}

/* For each free buffer and each free child the parent that has waited longest goes on. If that must wait again, it goes
 * to the end of the queue. */
static void split_wake_waiting(struct bdev_thread *t, struct bdev_split_pool *pool)
{
	bool waits = !STAILQ_EMPTY(&pool->waiters);

	for (unsigned class = 0; class < IOBUF_CLASSES; class ++) {
		waits |= !STAILQ_EMPTY(&t->buffer_waiters[class]);
	}
	if (likely(!waits)) {
		return;
	}
	thread_absence_check();
	for (unsigned class = 0; class < IOBUF_CLASSES; class ++) {
		while (!STAILQ_EMPTY(&t->buffer_waiters[class]) && iobuf_has(&t->buffers, class, 1)) {
			split_run(split_queue_pop(&t->buffer_waiters[class]), true);
		}
	}
	while (!STAILQ_EMPTY(&pool->free) && !STAILQ_EMPTY(&pool->waiters)) {
		split_run(split_queue_pop(&pool->waiters), false);
	}
}

/* Moves the data of a child that has ended to where it belongs, and returns the child's status. */
static uint16_t child_take_data(struct bdev_split_child *child)
{
	if (child->io.status != 0) {
		return child->io.status;
	}
	if (child->buffer == NULL || child->io.type != BDEV_IO_READ) {
		return 0;
	}
	if (!(bdev_io_traits(child->parent->type) & TRAIT_DATA)) {
		return child->io.ch->slow & SLOW_DIF ? bdev_dif_check_read(&child->io) : 0;
	}
	struct iov_cursor c = child->memory;
	bool compares = child->parent->phase == PHASE_COMPARE;
	if (bdev_io_is_plain(child->parent)) {
		return (compares ? bdev_dif_compare : bdev_dif_strip)(&child->io, c.iov, c.offset, child->buffer);
	}
	if (compares) {
		return iov_equals_buffer(&c, child->buffer, child_bytes(child)) ? 0 : STATUS_COMPARE_FAILED;
	}
	iov_from_buffer(&c, child->buffer, child_bytes(child));
	return 0;
}

/* Whether the child has read what it is to write next. */
static bool child_is_half_copied(const struct bdev_split_child *child)
{
	return child->parent->phase == PHASE_COPY && child->io.type == BDEV_IO_READ;
}

/* Submits the write of a copying child. False: the read has failed, or the parent has failed or been aborted meanwhile.
 */
static bool child_write_copied(struct bdev_split_child *child, uint16_t status)
{
	struct bdev_io *parent = child->parent;

	parent->copy.children_reading--;
	if (status != 0 || parent->child_status != 0 || (parent->flags & IO_ABORTED)) {
		return false;
	}
	child->io.type = BDEV_IO_WRITE;
	child->io.offset_blocks = parent->offset_blocks + (child->io.offset_blocks - parent->copy.src_offset_blocks);
	if (child->io.ch->slow & SLOW_DIF) {
		bdev_dif_move(&child->io);
	}
	child_hand_over(parent, child);
	return true;
}

/* Whether the module may have carried out a part of the child. */
static bool child_has_begun(const struct bdev_split_child *child)
{
	return child->io.stage != STAGE_MODULE && child->io.stage != STAGE_UNTOUCHED;
}

/* Whether a part of an emulated COMPARE_AND_WRITE may have been written when this child fails: it must not be repeated,
 * because it would find its own blocks. */
static bool child_fails_in_part_written(const struct bdev_split_child *child)
{
	const struct bdev_io *parent = child->parent;
	bool is_alone = child->io.num_blocks == parent->children_blocks;

	return bdev_split_must_end(parent) && (child_has_begun(child) || !is_alone);
}

void bdev_split_child_done(struct bdev_io *io)
{
	struct bdev_split_child *child = container_of(io, struct bdev_split_child, io);
	struct bdev_io *parent = child->parent;
	struct bdev_channel *ch = io->ch;
	if (child_is_apart(child)) {
		child_put_together(child);
	}
	uint16_t status = child_take_data(child);

	TRACE(BDEV_IO_DONE, ch->bdev->trace_owner, 0, (uintptr_t)io, parent, ch->qd, status);
	if (unlikely(child_is_half_copied(child))) {
		if (child_write_copied(child, status)) {
			return;
		}
		status = status != 0 ? status : STATUS_ABORTED;
	}
	if (parent->child_status == 0) {
		bool once = status != 0 && unlikely(child_fails_in_part_written(child));
		parent->child_status = once ? (uint16_t)(status | NVME_SC_DNR) : status;
	}
	if (parent->stage == STAGE_HANDED && child_has_begun(child)) {
		parent->stage = STAGE_BEGUN;
	}
	parent->children--;
	if (child->buffer != NULL) {
		iobuf_put(&ch->thread->buffers, child->class, child->buffer);
	}
	io->flags = 0;
	bdev_io_set_state(io, BDEV_IO_IDLE);
	STAILQ_INSERT_HEAD(&ch->split_pool->free, child, link);
	if (ch->slow & SLOW_NOMEM) {
		bdev_nomem_retry(ch, 4);
	}
	split_wake_waiting(ch->thread, ch->split_pool);
	/* A parent that waits in a queue goes on, and ends, when it is taken from there. */
	if (parent->state == BDEV_IO_SPLIT && parent->children == 0) {
		split_run(parent, false);
	}
}

/* Whether the blocks of an emulated COMPARE_AND_WRITE were equal, and some of them may have been written: it is atomic,
 * so that the others have to be written too. */
bool bdev_split_must_end(const struct bdev_io *io)
{
	return io->type == BDEV_IO_COMPARE_AND_WRITE && io->phase == PHASE_WRITE && io->children_blocks != 0;
}

bool bdev_split_is_untouched(const struct bdev_io *io)
{
	return bdev_io_is_untouched(io) ||
	       (io->type == BDEV_IO_COMPARE_AND_WRITE && io->phase == PHASE_COMPARE && !(io->flags & IO_CHILD));
}

/* Whether io has something left to do that can be omitted. Children of a copy that are reading have yet to write. */
static bool split_can_be_stopped(const struct bdev_io *io)
{
	if (bdev_split_must_end(io)) {
		return false;
	}
	return io->children_blocks < io->num_blocks || (io->phase == PHASE_COPY && io->copy.children_reading != 0) ||
	       (io->phase == PHASE_COMPARE && io->type == BDEV_IO_COMPARE_AND_WRITE);
}

bool bdev_split_abort(struct bdev_io *io)
{
	if (!split_can_be_stopped(io)) {
		return false;
	}
	io->flags |= IO_ABORTED;
	if (io->state == BDEV_IO_WAIT_CHILD) {
		(void)(bdev_io_queue_remove(&io->ch->split_pool->waiters, io) ||
		       bdev_io_queue_remove(&io->ch->thread->buffer_waiters[IOBUF_SMALL], io) ||
		       bdev_io_queue_remove(&io->ch->thread->buffer_waiters[IOBUF_LARGE], io));
		split_run(io, false);
	}
	return true;
}

void bdev_split_visit_children(struct bdev_io *io, void (*fn)(struct bdev_io *child))
{
	const struct bdev_split_pool *p = io->ch->split_pool;

	for (uint32_t i = 0; i < p->count; i++) {
		struct bdev_split_child *child = (struct bdev_split_child *)(p->memory + i * p->stride);
		if (child->parent == io && child->io.state != BDEV_IO_IDLE) {
			fn(&child->io);
		}
	}
}

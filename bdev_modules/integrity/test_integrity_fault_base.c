/* SPDX-License-Identifier: BSD-3-Clause */
#include "bdev_modules/integrity/test_integrity_fault_base.h"

#include <rte_common.h>

struct fault_base fault_base;

static enum fault_kind kind_of(const struct bdev_io *io)
{
	uint64_t unit = io->offset_blocks * bdev_block_size(&fault_base.t->bdev) / UNIT_BYTES;

	if (io->type == BDEV_IO_FLUSH || io->type == BDEV_IO_UNMAP) {
		return io->type == BDEV_IO_FLUSH ? KIND_FLUSH : KIND_UNMAP;
	}
	if (io->type == BDEV_IO_READ && unit >= fault_base.layout.data_first &&
	    unit < fault_base.layout.size_units - 1) {
		return KIND_READ;
	}
	if (io->type == BDEV_IO_WRITE_ZEROES) {
		return unit >= fault_base.layout.data_first ? KIND_ZEROES : KIND_NONE;
	}
	if (io->type == BDEV_IO_READ && unit >= fault_base.layout.sums_first && unit < fault_base.layout.data_first) {
		return KIND_SUMS_READ;
	}
	if (io->type != BDEV_IO_WRITE || unit < fault_base.layout.bitmap_first ||
	    unit >= fault_base.layout.data_first) {
		return KIND_NONE;
	}
	return unit < fault_base.layout.sums_first ? KIND_BITMAP : KIND_SUMS;
}

static bool fails_now(const struct bdev_io *io, enum fault_kind kind)
{
	uint64_t unit = io->offset_blocks * bdev_block_size(&fault_base.t->bdev) / UNIT_BYTES,
		 only = fault_base.fail_unit;

	if (kind == KIND_NONE || kind != atomic_load(&fault_base.fail_kind) ||
	    atomic_load(&fault_base.fail_count) == 0 || (only != 0 && only != unit)) {
		return false;
	}
	atomic_fetch_sub(&fault_base.fail_count, 1);
	return true;
}

static void fault_submit(void *channel, struct bdev_io *io)
{
	enum fault_kind kind = kind_of(io);

	atomic_fetch_add(&fault_base.writes[kind], 1);
	if (fails_now(io, kind)) {
		if (io->type == BDEV_IO_WRITE && fault_base.carried_out) {
			struct iov_cursor c = {.iov = io->iovs};
			iov_to_buffer(&c,
				      fault_base.t->memory + io->offset_blocks * bdev_block_size(&fault_base.t->bdev),
				      io->num_blocks * bdev_block_size(&fault_base.t->bdev));
		}
		bdev_io_complete(io, STATUS_AGAIN);
		return;
	}
	if (kind != KIND_NONE && kind == atomic_load(&fault_base.hold_kind)) {
		atomic_store(&fault_base.hold_kind, KIND_NONE);
		fault_base.held = io;
		fault_base.held_channel = channel;
		set_done(&fault_base.holds);
		return;
	}
	if (kind == KIND_UNMAP && fault_base.notes_stack) {
		uintptr_t at = (uintptr_t)__builtin_frame_address(0);
		fault_base.stack_low = RTE_MIN(fault_base.stack_low, at);
		fault_base.stack_high = RTE_MAX(fault_base.stack_high, at);
		bdev_io_complete(io, 0);
		return;
	}
	fault_base.real->submit(channel, io);
}

void fault_release(void)
{
	atomic_store(&fault_base.holds, false);
	fault_base.real->submit(fault_base.held_channel, fault_base.held);
}

void fault_held_fails(void *arg)
{
	struct bdev_io *io = fault_base.held;

	atomic_store(&fault_base.holds, false);
	bdev_io_complete(io, STATUS_AGAIN);
}

void fault_base_new(uint32_t regions, const uint8_t *memory, bool unmaps)
{
	uint32_t units = 256 + regions * INTEGRITY_REGION_UNITS + 1;
	struct testdev *t = testdev_new("m0", 512, (uint64_t)units * UNIT_BYTES / 512);
	struct integrity_error e;

	memset(&fault_base, 0, sizeof(fault_base));
	CU_ASSERT_EQUAL_FATAL(integrity_layout_make(&fault_base.layout, units, &e), 0);
	fault_base.t = t;
	fault_base.real = t->bdev.ops;
	fault_base.ops = *fault_base.real;
	fault_base.ops.submit = fault_submit;
	t->bdev.ops = &fault_base.ops;
	t->bdev.io_types |= (unmaps ? 1u << BDEV_IO_UNMAP : 0) | 1u << BDEV_IO_WRITE_ZEROES | 1u << BDEV_IO_FLUSH;
	if (memory != NULL) {
		memcpy(t->memory, memory, (size_t)units * UNIT_BYTES);
	}
}

void faults_start(struct user *u, uint32_t regions, const uint8_t *memory, bool unmaps)
{
	fault_base_new(regions, memory, unmaps);
	CU_ASSERT_EQUAL_FATAL(testdev_register(fault_base.t), 0);
	CU_ASSERT_EQUAL_FATAL(kit_create("m0", memory == NULL), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(u, "i0", true, fixture_thread(0)), 0);
}

void faults_end(struct user *u)
{
	user_close(u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_integrity_delete, "i0"), 0);
	CU_ASSERT_TRUE(testdev_delete(fault_base.t));
}

void fault_no_ticks(void)
{
	kit_close_soon(false);
	integrity_limits.tick_us = 1000000000;
}

void fault_closer_goes(void)
{
	thread_timer_start(&integrity_of(bdev_integrity_find("i0"))->tick, 0);
}

void fault_end_by(struct user *u, struct request *r, enum fault_ender ender)
{
	if (ender == TAKE_BACK) {
		request_take_back(r);
	} else if (ender == RESET) {
		CU_ASSERT_EQUAL(user_io(u, BDEV_IO_RESET, NULL, 0, 0), 0);
	} else {
		struct request *abort = request_new(u);
		abort->io->type = BDEV_IO_ABORT;
		abort->io->abort.target = r->io;
		CU_ASSERT_EQUAL(request_run(abort), 0);
		CU_ASSERT_EQUAL(abort->cdw0 & 1, 0);
		request_free(abort);
	}
}

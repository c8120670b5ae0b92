/* SPDX-License-Identifier: BSD-3-Clause */
/* A base of i0 whose single operations fail, or are held. */
#ifndef TEST_INTEGRITY_FAULT_BASE_H
#define TEST_INTEGRITY_FAULT_BASE_H

#include "bdev_modules/integrity/test_integrity_kit.h"

#define STATUS_AGAIN BDEV_STATUS(NVME_SCT_PATH, NVME_SC_HOST_PATH_ERROR)

/* READ, ZEROES: of data. SUMS: a WRITE of a checksum page. */
enum fault_kind {
	KIND_NONE,
	KIND_FLUSH,
	KIND_BITMAP,
	KIND_SUMS,
	KIND_UNMAP,
	KIND_READ,
	KIND_SUMS_READ,
	KIND_ZEROES,
	KINDS
};

struct fault_base {
	struct testdev *t;
	const struct bdev_ops *real;
	struct bdev_ops ops;
	struct integrity_layout layout;
	atomic_uint fail_kind, fail_count; /* the next ones of this kind fail */
	atomic_ullong fail_unit;           /* only those that begin there; 0: all */
	atomic_bool carried_out;           /* those that fail are carried out all the same */
	atomic_uint writes[KINDS];
	atomic_uint hold_kind; /* the next one of this kind is not answered until fault_release() */
	atomic_bool holds;
	void *held_channel;
	struct bdev_io *held;
	bool notes_stack; /* UNMAPs are not carried out, and note where the stack is then */
	uintptr_t stack_low, stack_high;
};
extern struct fault_base fault_base;

/* i0 on a base with that on it; NULL: zeroes, and it is made there. unmaps: whether the base has UNMAP. */
void faults_start(struct user *u, uint32_t regions, const uint8_t *memory, bool unmaps);
void faults_end(struct user *u);
/* Only such a base, which is not registered yet. */
void fault_base_new(uint32_t regions, const uint8_t *memory, bool unmaps);
/* Carries out an I/O of the module itself that is held. */
void fault_release(void);
/* Fails what is held, on its thread. */
void fault_held_fails(void *arg);
/* The module does nothing of its own: before faults_start(). */
void fault_no_ticks(void);
/* The closer's next turn is now. */
void fault_closer_goes(void);

enum fault_ender { TAKE_BACK, ABORT, RESET, ENDERS };
/* Has an I/O that the base does not have ended. */
void fault_end_by(struct user *u, struct request *r, enum fault_ender ender);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Metadata I/O: what a module reads from and writes to a base for itself, as superblocks and maps, apart from the I/O
 * of its users. From the control thread without waiting, or from a worker thread with waiting. Data is any memory: it
 * is copied into a buffer for the device and out of it, so that the caller's memory is free when an operation has been
 * answered, whatever the device does later. */
#ifndef BDEV_VBDEV_META_H
#define BDEV_VBDEV_META_H

#include "bdev/module.h"

struct vbdev_meta;

/* One operation. The caller fills in the first part; it must exist until it has been answered. */
struct vbdev_meta_op {
	enum bdev_io_type type; /* READ, WRITE, FLUSH, WRITE_ZEROES or UNMAP */
	uint64_t offset_blocks;
	uint64_t num_blocks;
	/* READ: receives num_blocks * bdev_data_block_size() bytes, if error is 0. WRITE: they are copied at once. The
	 * layer makes and checks the metadata of blocks that have metadata. */
	void *data;
	uint64_t timeout_us; /* 0: no limit */
	/* The answer; control thread; may free the operation, or start it again. Not used by vbdev_meta_run(). */
	void (*done)(struct vbdev_meta_op *op);

	/* The result: 0; or a negative errno (bdev_status_to_errno() of status, -ENOMEM, -EINVAL for another type,
	 * -ECANCELED after vbdev_meta_close()).
	 * -ETIMEDOUT: there was no answer in time. The I/O has been aborted, but may still be carried out: blocks that
	 * were to be written have the old or the new data, now or later. */
	int error;
	uint16_t status; /* NVMe, as bdev_io.status; 0 if the error is not the base's */

	/* private */
	struct vbdev_meta *meta;
	struct thread_msg msg;
	void *caller;
};

/* Prepares metadata I/O on a base. desc: open, for writing if the module writes, until vbdev_meta_close() has ended.
 * user: the module's bdev, for messages; copied. 0 and *meta; or -ENOMEM. Control thread. */
int vbdev_meta_open(struct bdev_desc *desc, const char *user, struct vbdev_meta **meta);
/* Ends metadata I/O: aborts what is in flight, and calls closed(arg) when nothing is any more: after
 * this has returned, and after all operations have been answered. No operation may be started after this call; one that
 * a worker thread had just passed to vbdev_meta_run() is answered with -ECANCELED. While an I/O does not end, a line in
 * the log says every 10 seconds which one is waited for. Control thread. */
void vbdev_meta_close(struct vbdev_meta *meta, void (*closed)(void *arg), void *arg);
/* Starts an operation, and does not wait. op->done is called exactly once, and never before this has returned. Any
 * number of operations may be in flight; the base may carry them out in any order. Control thread. */
void vbdev_meta_start(struct vbdev_meta *meta, struct vbdev_meta_op *op);
/* Carries out an operation, and waits for its answer; returns op->error. On a worker thread (thread/worker.h) while the
 * control thread runs its loop. On the control thread or a reactor it would wait for itself: -EDEADLK, nothing is
 * done. */
int vbdev_meta_run(struct vbdev_meta *meta, struct vbdev_meta_op *op);

#endif

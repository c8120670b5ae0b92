/* SPDX-License-Identifier: BSD-3-Clause */
/* I/O. librbd calls on_complete() on a thread of its own, which hands the I/O back to its channel's thread: without a
 * lock, and with a system call only if that sleeps. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bdev_modules/rbd/internal.h"
#include "env_dpdk/env.h"
#include "trace/trace.h"
#include "util/compiler.h"
#include "util/iov.h"
#include "util/log.h"
#include "util/ticks.h"

#define STATUS_PATH     BDEV_STATUS(NVME_SCT_PATH, NVME_SC_CTRL_PATH_ERROR) /* hosts try another controller */
#define STATUS_RANGE    (BDEV_STATUS(NVME_SCT_GENERIC, NVME_SC_LBA_RANGE) | NVME_SC_DNR)
#define STATUS_MISMATCH (BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_COMPARE_FAILED) | NVME_SC_DNR)

static struct rbd_bdev *image_of(const struct bdev_io *io)
{
	return (struct rbd_bdev *)bdev_channel_bdev(io->ch);
}

/* librbd answers so, and sends nothing, where this client does not have the exclusive lock of the image any more or
 * cannot get it: EROFS before the client knows that it is blocklisted, or while another client keeps the lock; EBUSY
 * from the cluster's check of the lock; ETIMEDOUT and ENOTCONN if the cluster cannot be asked. I/O itself has no time
 * limit (rados_osd_op_timeout in cluster.c). An image without the lock answers EROFS if it is read-only. */
static bool lacks_lock(const struct rbd_bdev *r, ssize_t result)
{
	bool may = result == -EROFS || result == -EBUSY || result == -ETIMEDOUT || result == -ENOTCONN;

	return may && __atomic_load_n(&r->needs_lock, __ATOMIC_RELAXED);
}

/* A client that was blocklisted has lost nothing that it was told of: what the cluster has not carried out by then, it
 * never will. So another gateway may carry it out. */
static uint16_t image_status(struct rbd_bdev *r, const struct bdev_io *io, ssize_t result)
{
	/* a read returns its bytes: fewer of them from an image that has been made smaller */
	if (likely(result >= 0)) {
		bool is_short = io->type == BDEV_IO_READ && (size_t)result < io->num_blocks * r->bdev.block_size;
		return unlikely(is_short) ? STATUS_RANGE : 0;
	}
	if (result == -ERANGE) {
		return STATUS_RANGE;
	}
	if (result == -EILSEQ && io->type == BDEV_IO_COMPARE_AND_WRITE) {
		return STATUS_MISMATCH;
	}
	if (result == -ESHUTDOWN || result == -ENOENT) {
		TRACE(RBD_IO_REFUSED, r->bdev.trace_owner, 0, 0, io, RBD_REFUSED_LOST);
		bdev_rbd_bdev_lost(r, result == -ENOENT ? "its image was removed" : "Ceph has blocklisted this client");
		return STATUS_PATH;
	}
	if (lacks_lock(r, result)) {
		TRACE(RBD_IO_REFUSED, r->bdev.trace_owner, 0, 0, io, RBD_REFUSED_NO_LOCK);
		log_limited(LOG_LEVEL_WARNING,
			    "bdev %s: %s of %lu blocks at %lu: this client does not have the lock of "
			    "its image%s: %s",
			    r->name, bdev_io_type_name(io->type), io->num_blocks, io->offset_blocks,
			    result == -EROFS ? ", or the image was demoted by mirroring" : "", strerror((int)-result));
		return STATUS_PATH;
	}
	log_limited(LOG_LEVEL_ERROR, "bdev %s: %s of %lu blocks at %lu: %s", r->name, bdev_io_type_name(io->type),
		    io->num_blocks, io->offset_blocks, strerror((int)-result));
	return bdev_status_from_errno((int)result);
}

/* librbd answers EROFS before it begins anything of a COMPARE_AND_WRITE: another gateway may carry it out. The other
 * answers of lacks_lock() are not trusted for that: unlike a write, a pair that was carried out must not be repeated.
 */
static void image_io_complete(struct rbd_bdev *r, struct bdev_io *io, ssize_t result)
{
	uint16_t status = image_status(r, io, result);

	if (unlikely(result == -EROFS) && io->type == BDEV_IO_COMPARE_AND_WRITE && lacks_lock(r, result)) {
		bdev_io_complete_untouched(io, status);
	} else {
		bdev_io_complete(io, status);
	}
}

static uint32_t result_to_errno(ssize_t result)
{
	return result < 0 ? (uint32_t)-result : 0;
}

static void image_io_ended(struct thread_msg *msg)
{
	struct rbd_io *x = container_of(msg, struct rbd_io, msg);
	struct bdev_io *io = bdev_io_from_ctx(x);

	TRACE(RBD_IO_DONE, image_of(io)->bdev.trace_owner, 0, (uintptr_t)x, io, result_to_errno(x->result),
	      ticks_now() - x->end_ticks);
	x->channel->last_end_ticks = thread_now();
	free(x->bounce);
	image_io_complete(image_of(io), io, x->result);
}

/* librbd leaves out what is behind the end of an image that has been made smaller, and reports success. Its own
 * functions that tell the size must not be called here: they wait until librbd has read the image's header again, which
 * needs the thread that is in here. */
static uint64_t image_size_now(const struct rbd_bdev *r)
{
	return __atomic_load_n(&r->image.size, __ATOMIC_RELAXED);
}

static void on_complete(rbd_completion_t completion, void *arg)
{
	struct rbd_io *x = arg;
	struct rbd_channel *c = x->channel;

	x->end_ticks = ticks_now();
	x->result = librbd.rbd_aio_get_return_value(completion);
	if (x->end != 0 && x->result >= 0 && x->end > image_size_now(image_of(bdev_io_from_ctx(x)))) {
		x->result = -ERANGE;
	}
	librbd.rbd_aio_release(completion);
	thread_post(c->thread, &x->msg, image_io_ended);
	/* x is the channel's thread's now; the channel itself waits for this */
	__atomic_fetch_sub(&c->outstanding, 1, __ATOMIC_RELEASE);
}

/* librbd wants one piece. */
static int compare_and_write(struct rbd_bdev *r, struct bdev_io *io, struct rbd_io *x, rbd_completion_t completion)
{
	size_t len = io->num_blocks * r->bdev.block_size;

	x->bounce = malloc(2 * len);
	if (x->bounce == NULL) {
		return -ENOMEM;
	}
	struct iov_cursor expected = iov_cursor_at(io->compare.iovs, 0), written = iov_cursor_at(io->iovs, 0);
	iov_to_buffer(&expected, x->bounce, len);
	iov_to_buffer(&written, x->bounce + len, len);
	return (int)librbd.rbd_aio_compare_and_write(r->image.image, io->offset_blocks * r->bdev.block_size, len,
						     x->bounce, x->bounce + len, completion, &x->mismatch, 0);
}

static int image_io_begin(struct rbd_bdev *r, struct bdev_io *io, struct rbd_io *x, rbd_completion_t completion)
{
	rbd_image_t image = r->image.image;
	uint64_t offset = io->offset_blocks * r->bdev.block_size, len = io->num_blocks * r->bdev.block_size;

	switch (io->type) {
	case BDEV_IO_READ:
		return librbd.rbd_aio_readv(image, io->iovs, (int)io->iovcnt, offset, completion);
	case BDEV_IO_WRITE:
		return librbd.rbd_aio_writev(image, io->iovs, (int)io->iovcnt, offset, completion);
	case BDEV_IO_UNMAP:
		return librbd.rbd_aio_discard(image, offset, len, completion);
	case BDEV_IO_WRITE_ZEROES:
		return librbd.rbd_aio_write_zeroes(image, offset, len, completion, 0, 0);
	case BDEV_IO_FLUSH:
		return librbd.rbd_aio_flush(image, completion);
	case BDEV_IO_COMPARE_AND_WRITE:
		return compare_and_write(r, io, x, completion);
	default:
		return -EOPNOTSUPP;
	}
}

/* Reads tell how many bytes there were, and a flush has no range. */
static bool changes_blocks(const struct bdev_io *io)
{
	return io->type != BDEV_IO_READ && io->type != BDEV_IO_FLUSH;
}

void bdev_rbd_submit(void *channel, struct bdev_io *io)
{
	struct rbd_channel *c = channel;
	struct rbd_bdev *r = image_of(io);
	struct rbd_io *x = bdev_io_ctx(io);
	rbd_completion_t completion;

	if (unlikely(__atomic_load_n(&r->lost, __ATOMIC_RELAXED))) {
		TRACE(RBD_IO_REFUSED, r->bdev.trace_owner, 0, 0, io, RBD_REFUSED_LOST);
		bdev_io_complete_untouched(io, STATUS_PATH);
		return;
	}
	if (unlikely(bdev_owner_refuses(&r->owner))) {
		TRACE(RBD_IO_REFUSED, r->bdev.trace_owner, 0, 0, io, RBD_REFUSED_STANDBY);
		bdev_io_complete_untouched(io, BDEV_OWNER_STATUS);
		return;
	}
	x->channel = c;
	x->bounce = NULL;
	x->end = changes_blocks(io) ? (io->offset_blocks + io->num_blocks) * r->bdev.block_size : 0;
	if (unlikely(librbd.rbd_aio_create_completion(x, on_complete, &completion) < 0)) {
		bdev_io_refuse(io);
		return;
	}
	/* before librbd has it, whose thread may end it at once */
	uint32_t others = __atomic_fetch_add(&c->outstanding, 1, __ATOMIC_RELAXED);
	TRACE(RBD_IO_SUBMIT, r->bdev.trace_owner, (uint32_t)io->num_blocks, (uintptr_t)x, io, others + 1);
	int rc = image_io_begin(r, io, x, completion);
	if (unlikely(rc < 0)) {
		__atomic_fetch_sub(&c->outstanding, 1, __ATOMIC_RELAXED);
		TRACE(RBD_IO_DONE, r->bdev.trace_owner, 0, (uintptr_t)x, io, result_to_errno(rc), 0);
		librbd.rbd_aio_release(completion);
		free(x->bounce);
		image_io_complete(r, io, rc);
	}
}

#define QUIET_S 1 /* an I/O that takes longer is looked at by people */

/* librbd does not tell whether an I/O has been sent, or waits for the lock. */
void bdev_rbd_describe_io(struct bdev_io *io, char *text, size_t size)
{
	const struct rbd_bdev *r = image_of(io);
	const struct rbd_io *x = bdev_io_ctx(io);
	uint64_t since = x->channel->last_end_ticks;

	since = since > io->submit_ticks ? since : io->submit_ticks;
	uint64_t now = thread_now(), quiet_s = (now > since ? now - since : 0) / env_ticks_hz();
	if (quiet_s < QUIET_S) {
		return;
	}
	bool may_lack = !r->standby && __atomic_load_n(&r->needs_lock, __ATOMIC_RELAXED);
	snprintf(text, size, "Ceph%s: nothing of this thread has ended for %lu s",
		 may_lack ? ", or a client that keeps the image's lock" : "", quiet_s);
}

int bdev_rbd_channel_create(struct bdev *b, void *channel)
{
	((struct rbd_channel *)channel)->thread = thread_current();
	return 0;
}

/* No I/O is in flight, but a thread of librbd's may not have returned from telling the end of the last one. */
void bdev_rbd_channel_destroy(struct bdev *b, void *channel)
{
	const struct rbd_channel *c = channel;

	while (__atomic_load_n(&c->outstanding, __ATOMIC_ACQUIRE) != 0) {
		sched_yield();
	}
}

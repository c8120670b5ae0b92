/* SPDX-License-Identifier: BSD-3-Clause */
/* An operation is carried out by a meta_io, which has the memory for the device and may outlive the operation: if that
 * is not answered in time, its caller is told so, and the meta_io goes on until the base has completed it. */
#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bdev/internal.h"
#include "bdev/vbdev/meta.h"

#define CLOSE_REPORT_US 10000000

struct vbdev_meta {
	struct bdev_desc *desc;
	struct bdev_channel *ch;
	char user[256];
	LIST_HEAD(, meta_io) in_flight;
	struct thread_timer report_timer;
	void (*closed)(void *arg);
	void *closed_arg;
	struct thread_msg msg;
};

struct meta_io {
	struct vbdev_meta *meta;
	struct vbdev_meta_op *op; /* NULL: answered */
	void *buffer;             /* DMA memory; NULL: no data */
	struct iovec iov;
	struct thread_timer timer;
	bool aborting;
	bool ended;
	struct bdev_io *abort_io;
	LIST_ENTRY(meta_io) link;
	struct bdev_io io __attribute__((aligned(64))); /* and behind it the one for its ABORT */
};

static void meta_closed_message(struct thread_msg *msg)
{
	struct vbdev_meta *meta = container_of(msg, struct vbdev_meta, msg);
	void (*closed)(void *arg) = meta->closed;
	void *arg = meta->closed_arg;

	thread_timer_stop(&meta->report_timer);
	bdev_channel_put(meta->ch);
	free(meta);
	closed(arg);
}

/* By way of a message, as the answers before it. */
static void meta_check_closed(struct vbdev_meta *meta)
{
	if (meta->closed != NULL && LIST_EMPTY(&meta->in_flight)) {
		thread_post(thread_control(), &meta->msg, meta_closed_message);
	}
}

/* --- Answers --- */

static void op_answer_message(struct thread_msg *msg)
{
	struct vbdev_meta_op *op = container_of(msg, struct vbdev_meta_op, msg);

	op->done(op);
}

static void op_answer(struct vbdev_meta_op *op, int error, uint16_t status)
{
	op->error = error;
	op->status = status;
	thread_post(thread_control(), &op->msg, op_answer_message);
}

static void meta_io_answer(struct meta_io *m, int error, uint16_t status)
{
	if (m->op != NULL) {
		thread_timer_stop(&m->timer);
		op_answer(m->op, error, status);
		m->op = NULL;
	}
}

/* --- One I/O --- */

static void meta_io_free_if_ended(struct meta_io *m)
{
	struct vbdev_meta *meta = m->meta;

	if (!m->ended || m->aborting) {
		return;
	}
	LIST_REMOVE(m, link);
	env_dma_free(m->buffer);
	free(m);
	meta_check_closed(meta);
}

static void meta_io_done(struct bdev_io *io, void *arg)
{
	struct meta_io *m = arg;

	if (io->status == 0 && io->type == BDEV_IO_READ && m->op != NULL) {
		memcpy(m->op->data, m->buffer, m->iov.iov_len);
	}
	m->ended = true;
	meta_io_answer(m, bdev_status_to_errno(io->status), io->status);
	meta_io_free_if_ended(m);
}

static void meta_abort_done(struct bdev_io *io, void *arg)
{
	struct meta_io *m = arg;

	m->aborting = false;
	meta_io_free_if_ended(m);
}

static void meta_io_abort(struct meta_io *m)
{
	if (m->aborting || m->ended) {
		return;
	}
	m->aborting = true;
	m->abort_io->type = BDEV_IO_ABORT;
	m->abort_io->abort.target = &m->io;
	bdev_submit(m->abort_io);
}

static uint64_t meta_io_age_ms(const struct meta_io *m)
{
	return env_ticks_to_ns(env_ticks() - m->io.submit_ticks) / 1000000;
}

static void meta_io_timeout(void *arg)
{
	struct meta_io *m = arg;
	const struct bdev_io *io = &m->io;

	if (thread_timer_was_absent(&m->timer, m->op->timeout_us)) {
		thread_timer_start(&m->timer, m->op->timeout_us);
		return;
	}
	log_warning("bdev %s: metadata of %s: %s of %lu blocks at %lu got no answer in %lu ms, and is aborted",
		    bdev_name(bdev_desc_bdev(m->meta->desc)), m->meta->user, bdev_io_type_name(io->type),
		    io->num_blocks, io->offset_blocks, meta_io_age_ms(m));
	meta_io_answer(m, -ETIMEDOUT, 0);
	meta_io_abort(m);
}

static bool op_has_data(const struct vbdev_meta_op *op)
{
	return op->type == BDEV_IO_READ || op->type == BDEV_IO_WRITE;
}

static struct meta_io *meta_io_alloc(struct vbdev_meta *meta, struct vbdev_meta_op *op)
{
	const struct bdev *b = bdev_desc_bdev(meta->desc);
	size_t bytes = (offsetof(struct meta_io, io) + 2 * bdev_io_size() + 63) & ~(size_t)63;
	struct meta_io *m = aligned_alloc(64, bytes);

	if (m == NULL) {
		return NULL;
	}
	memset(m, 0, bytes);
	if (op_has_data(op)) {
		m->iov.iov_len = op->num_blocks * bdev_data_block_size(b);
		m->buffer = m->iov.iov_base = env_dma_malloc(m->iov.iov_len, 4096, b->numa_node);
		if (m->buffer == NULL) {
			free(m);
			return NULL;
		}
	}
	m->meta = meta;
	m->op = op;
	m->timer = (struct thread_timer){.fn = meta_io_timeout, .arg = m};
	m->abort_io = (struct bdev_io *)((uint8_t *)&m->io + bdev_io_size());
	bdev_io_init(&m->io, meta->desc, meta->ch, meta_io_done, m);
	bdev_io_init(m->abort_io, meta->desc, meta->ch, meta_abort_done, m);
	bdev_io_set_rw(&m->io, op->type, &m->iov, m->buffer != NULL, op->offset_blocks, op->num_blocks);
	if (op_has_data(op) && b->md.size != 0) {
		bdev_io_set_dif(&m->io, BDEV_DIF_PLAIN, 0, 0, 0);
	}
	return m;
}

/* --- For the module --- */

int vbdev_meta_open(struct bdev_desc *desc, const char *user, struct vbdev_meta **meta)
{
	struct vbdev_meta *m = calloc(1, sizeof(*m));

	if (m == NULL) {
		return -ENOMEM;
	}
	m->desc = desc;
	m->ch = bdev_channel_get(desc);
	if (m->ch == NULL) {
		free(m);
		return -ENOMEM;
	}
	snprintf(m->user, sizeof(m->user), "%s", user);
	*meta = m;
	return 0;
}

static bool op_is_allowed(const struct vbdev_meta_op *op)
{
	switch (op->type) {
	case BDEV_IO_READ:
	case BDEV_IO_WRITE:
	case BDEV_IO_FLUSH:
	case BDEV_IO_WRITE_ZEROES:
	case BDEV_IO_UNMAP:
		return true;
	default:
		return false;
	}
}

static bool op_is_out_of_range(const struct vbdev_meta *meta, const struct vbdev_meta_op *op)
{
	return op->num_blocks > bdev_num_blocks(bdev_desc_bdev(meta->desc)) || (op->num_blocks == 0 && op_has_data(op));
}

void vbdev_meta_start(struct vbdev_meta *meta, struct vbdev_meta_op *op)
{
	if (!op_is_allowed(op)) {
		op_answer(op, -EINVAL, 0);
		return;
	}
	if (meta->closed != NULL) {
		op_answer(op, -ECANCELED, 0);
		return;
	}
	if (op_is_out_of_range(meta, op)) { /* before memory is allocated for it */
		op_answer(op, bdev_status_to_errno(STATUS_OUT_OF_RANGE), STATUS_OUT_OF_RANGE);
		return;
	}
	struct meta_io *m = meta_io_alloc(meta, op);
	if (m == NULL) {
		op_answer(op, -ENOMEM, 0);
		return;
	}
	if (op->type == BDEV_IO_WRITE) {
		memcpy(m->buffer, op->data, m->iov.iov_len);
	}
	LIST_INSERT_HEAD(&meta->in_flight, m, link);
	if (op->timeout_us != 0) {
		thread_timer_start(&m->timer, op->timeout_us);
	}
	bdev_submit(&m->io);
}

static void meta_report_waiting(void *arg)
{
	struct vbdev_meta *meta = arg;
	const struct meta_io *m;

	LIST_FOREACH (m, &meta->in_flight, link) {
		log_warning(
			"bdev %s: metadata of %s: closing waits for a %s of %lu blocks at %lu, in flight for %lu ms",
			bdev_name(bdev_desc_bdev(meta->desc)), meta->user, bdev_io_type_name(m->io.type),
			m->io.num_blocks, m->io.offset_blocks, meta_io_age_ms(m));
	}
	thread_timer_start(&meta->report_timer, CLOSE_REPORT_US);
}

void vbdev_meta_close(struct vbdev_meta *meta, void (*closed)(void *arg), void *arg)
{
	struct bdev_thread *t = meta->ch->thread;
	struct meta_io *m;

	bdev_enter(t); /* nothing ends, and is freed, during the walk */
	LIST_FOREACH (m, &meta->in_flight, link) {
		meta_io_abort(m);
	}
	meta->report_timer = (struct thread_timer){.fn = meta_report_waiting, .arg = meta};
	thread_timer_start(&meta->report_timer, CLOSE_REPORT_US);
	meta->closed = closed;
	meta->closed_arg = arg;
	meta_check_closed(meta);
	bdev_leave(t);
}

/* --- From a worker thread --- */

struct meta_call {
	sem_t answered;
};

static void meta_call_answer(struct vbdev_meta_op *op)
{
	struct meta_call *call = op->caller;

	sem_post(&call->answered);
}

static void meta_call_message(struct thread_msg *msg)
{
	struct vbdev_meta_op *op = container_of(msg, struct vbdev_meta_op, msg);

	vbdev_meta_start(op->meta, op);
}

int vbdev_meta_run(struct vbdev_meta *meta, struct vbdev_meta_op *op)
{
	struct meta_call call;

	if (thread_current() != NULL) {
		op->error = -EDEADLK;
		op->status = 0;
		return op->error;
	}
	sem_init(&call.answered, 0, 0);
	op->meta = meta;
	op->caller = &call;
	op->done = meta_call_answer;
	thread_post(thread_control(), &op->msg, meta_call_message);
	while (sem_wait(&call.answered) != 0) { /* a signal */
	}
	sem_destroy(&call.answered);
	return op->error;
}

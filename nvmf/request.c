/* SPDX-License-Identifier: BSD-3-Clause */
/* A request from its arrival to its response, on its poll group's thread. Commands are carried out in io.c and admin.c.
 */
#include <string.h>
#include "nvmf/io_internal.h"
#include "util/iov.h"

size_t nvmf_request_size(void)
{
	return offsetof(struct nvmf_request, bdev_io) + bdev_io_size();
}

static void request_reset(struct nvmf_request *req, uint64_t now)
{
	req->length = 0;
	req->xfer = NVME_DATA_TFR_NO_DATA_TFR;
	req->reserved_lane = false;
	req->zcopy = false;
	req->where = NVMF_REQUEST_TRANSPORT;
	req->fuse = NVME_FUSE_NONE;
	req->fuse_failed = 0;
	req->counted = false;
	req->before_data = false;
	req->zcopy_open = false;
	req->qos_counted = false;
	req->ns_view = NULL;
	req->fuse_peer = NULL;
	req->iovcnt = 0;
	req->error_location = NVMF_WHERE_NOWHERE;
	req->cqe.result = 0;
	req->start_ticks = now;
	req->where_ticks = now;
}

/* The host has used one more entry of the submission queue. */
static void qpair_consume_sqe(struct nvmf_qpair *qpair, uint64_t now)
{
	atomic_store_explicit(&qpair->last_command_ticks, now, memory_order_relaxed);
	if (++qpair->sq_head >= qpair->sq_size) {
		qpair->sq_head = 0;
	}
}

/* The command before this one was the first of a fused pair, and this one is not the second: fails the first. */
static void qpair_drop_fused_first(struct nvmf_qpair *qpair)
{
	struct nvmf_request *first = qpair->fused_first;

	qpair->fused_first = NULL;
	qpair->fused_first_failed = 0;
	if (first == NULL) {
		return;
	}
	first->fuse_failed = NVME_SC_FUSED_MISSING;
	if (first->where == NVMF_REQUEST_FUSED) {
		nvmf_request_finish_at(first, NVME_ST_DNR(GENERIC, FUSED_MISSING), NVMF_WHERE_FLAGS_FUSE);
	}
}

/* The two commands of a fused pair are adjacent, the first one first (Base 3.4.2). Pairs them as they arrive. */
static uint16_t request_fuse(struct nvmf_qpair *qpair, struct nvmf_request *req)
{
	req->fuse = req->sqe->flags & NVME_CMD_FLAGS_FUSE_MASK;
	if (likely(req->fuse != NVME_FUSE_SECOND)) {
		qpair_drop_fused_first(qpair);
		if (unlikely(req->fuse == NVME_FUSE_FIRST)) {
			qpair->fused_first = req;
		}
		return NVME_ST_SUCCESS;
	}
	if (qpair->fused_first_failed != 0) {
		uint16_t status = qpair->fused_first_failed;
		qpair->fused_first_failed = 0;
		/* a pair is taken back as a whole */
		return status == NVME_ST(PATH, CTRL_PATH_ERROR) ? status : NVME_ST_DNR(GENERIC, FUSED_FAIL);
	}
	if (qpair->fused_first == NULL) {
		return NVME_ST_DNR(GENERIC, FUSED_MISSING);
	}
	req->fuse_peer = qpair->fused_first;
	req->fuse_peer->fuse_peer = req;
	qpair->fused_first = NULL;
	return NVME_ST_SUCCESS;
}

enum nvmf_next nvmf_request_start(struct nvmf_request *req)
{
	struct nvmf_qpair *qpair = req->qpair;
	uint64_t now = thread_now();
	uint16_t where;

	request_reset(req, now);
	qpair_consume_sqe(qpair, now);
	uint16_t status = nvmf_decode_header(req->sqe, sizeof(*req->sqe), &where);
	if (unlikely(status != NVME_ST_SUCCESS)) {
		qpair_drop_fused_first(qpair);
		return nvmf_request_reject(req, status, where);
	}
	status = request_fuse(qpair, req);
	if (unlikely(status != NVME_ST_SUCCESS)) {
		return nvmf_request_reject(req, status, NVMF_WHERE_FLAGS_FUSE);
	}
	if (likely(qpair->qid != 0 && qpair->state == NVMF_QPAIR_ENABLED)) {
		return nvmf_io_start(req);
	}
	return nvmf_admin_start(req);
}

enum nvmf_next nvmf_request_data(struct nvmf_request *req, uint8_t xfer, uint64_t length)
{
	if (length > req->qpair->transport->opts.max_io_size) {
		return nvmf_request_reject(req, NVME_ST_DNR(GENERIC, INVALID_FIELD), NVMF_WHERE_CDW12);
	}
	return nvmf_request_blocks(req, xfer, length);
}

enum nvmf_next nvmf_request_blocks(struct nvmf_request *req, uint8_t xfer, uint64_t length)
{
	uint16_t where;

	if (length == 0) {
		return NVMF_NEXT_EXEC;
	}
	uint16_t status = nvmf_decode_sgl(req->sqe, req->icd, req->icd_len, &req->qpair->transport->sgl_rules,
					  xfer == NVME_DATA_TFR_HOST_TO_CTRL, (uint32_t)length, &req->sgl, &where);
	if (unlikely(status != NVME_ST_SUCCESS)) {
		return nvmf_request_reject(req, status, where);
	}
	req->xfer = xfer;
	req->length = (uint32_t)length;
	if (req->sgl.kind == NVMF_SGL_IN_CAPSULE) {
		req->iov[0].iov_base = (uint8_t *)req->icd + req->sgl.icd_offset;
		req->iov[0].iov_len = length;
		req->iovcnt = 1;
		return NVMF_NEXT_EXEC;
	}
	return NVMF_NEXT_BUFFER;
}

void nvmf_request_clear_buffer(struct nvmf_request *req)
{
	if (req->xfer == NVME_DATA_TFR_CTRL_TO_HOST) {
		struct iov_cursor c = iov_cursor_at(req->iov, 0);

		iov_fill(&c, 0, req->length);
	}
}

void nvmf_request_exec(struct nvmf_request *req)
{
	struct nvmf_qpair *qpair = req->qpair;

	if (likely(qpair->state == NVMF_QPAIR_ENABLED && qpair->qid != 0)) {
		nvmf_io_exec(req);
	} else if (qpair->state == NVMF_QPAIR_QUIESCING && req->zcopy) { /* it has begun: its data are in place */
		nvmf_io_exec(req);
	} else if (qpair->state == NVMF_QPAIR_DISCONNECTING ||
		   (qpair->state == NVMF_QPAIR_QUIESCING && req->sqe->opcode != nvme_admin_keep_alive)) {
		nvmf_request_finish(req, nvmf_qpair_end_status(qpair));
	} else {
		nvmf_admin_exec(req);
	}
}

/* Commands that were taken back with their queue or aborted by the host are not errors that the host has to look up. */
static bool request_status_is_logged(uint16_t status)
{
	uint16_t code = status & ~NVME_SC_DNR;

	return code != NVME_ST(GENERIC, ABORT_QUEUE) && code != NVME_ST(GENERIC, ABORT_REQ) &&
	       code != NVME_ST(PATH, CTRL_PATH_ERROR);
}

/* Whether it must not be carried out twice, although the transport or the bdev has had it. */
static bool request_is_once_only(const struct nvmf_request *req)
{
	return req->fuse != NVME_FUSE_NONE ||
	       (req->where == NVMF_REQUEST_BDEV &&
		(req->bdev_io.type == BDEV_IO_NVME_IO || req->bdev_io.type == BDEV_IO_NVME_ADMIN));
}

/* Does what the error of a command requires, and returns the status that the host gets. */
static uint16_t request_failed(struct nvmf_request *req, uint16_t status)
{
	struct nvmf_qpair *qpair = req->qpair;

	if (req->where == NVMF_REQUEST_PREEMPTED && status == NVME_ST(GENERIC, ABORT_REQ)) {
		status = NVME_ST(GENERIC, CMD_ABORTED_PREMEPT);
	} else if (req->where == NVMF_REQUEST_BDEV && req->fuse == NVME_FUSE_NONE &&
		   nvmf_io_may_go_elsewhere(req, status)) {
		status = NVME_ST(PATH, CTRL_PATH_ERROR);
	} else if (qpair->state == NVMF_QPAIR_QUIESCING && status == NVME_ST(GENERIC, ABORT_REQ) &&
		   !request_is_once_only(req)) {
		/* The bdev has taken it back. Its host repeats it as it does what is lost with a connection, for which
		 * it has no answer at all; but for a fused pair, which may have written, and for a command that is
		 * passed through, of which nothing is known. */
		status = nvmf_qpair_end_status(qpair);
	}
	if (req->fuse == NVME_FUSE_FIRST && qpair->fused_first == req) {
		qpair->fused_first = NULL;
		qpair->fused_first_failed = status;
	}
	if (req->fuse_peer != NULL) {
		nvmf_fused_peer_ended(req, status);
	}
	if (qpair->ctrlr != NULL && request_status_is_logged(status)) {
		nvmf_error_log_add(&qpair->ctrlr->error_log, req, status);
	}
	if (qpair->qid != 0) {
		qpair->group->failed++;
	}
	return status;
}

static inline void request_prepare_response(struct nvmf_request *req, uint16_t status)
{
	struct nvmf_qpair *qpair = req->qpair;

	if (req->counted && !req->zcopy) {
		nvmf_ns_view_leave(req);
	}
	if (unlikely(status != NVME_ST_SUCCESS)) {
		status = request_failed(req, status);
	}
	qpair->completed++;
	req->cqe.cid = req->sqe->cid;
	req->cqe.sqid = htole16(qpair->qid);
	req->cqe.sqhd = htole16(qpair->sq_flow_control ? qpair->sq_head : NVME_SQHD_NO_FLOW_CONTROL);
	req->cqe.status = htole16((uint16_t)(status << 1));
	nvmf_request_set_where(req, NVMF_REQUEST_TRANSPORT);
}

void nvmf_request_finish(struct nvmf_request *req, uint16_t status)
{
	request_prepare_response(req, status);
	req->qpair->transport->ops->request_complete(req);
}

void nvmf_request_finish_at(struct nvmf_request *req, uint16_t status, uint16_t where)
{
	req->error_location = where;
	nvmf_request_finish(req, status);
}

enum nvmf_next nvmf_request_reject(struct nvmf_request *req, uint16_t status, uint16_t where)
{
	req->error_location = where;
	req->xfer = NVME_DATA_TFR_NO_DATA_TFR;
	req->length = 0;
	request_prepare_response(req, status);
	return NVMF_NEXT_COMPLETE;
}

void nvmf_request_fail(struct nvmf_request *req, uint16_t status)
{
	nvmf_request_finish(req, status);
}

void nvmf_request_measured(struct nvmf_request *req, uint64_t ticks)
{
	struct nvmf_qpair *qpair = req->qpair;
	uint64_t ns = env_ticks_to_ns(ticks);
	uint64_t n = latency_histogram_sample(&qpair->latency.histogram, qpair->completed, ns);

	/* The control thread reads them; it wants whole numbers only. */
	__atomic_store_n(&qpair->latency.ns, qpair->latency.ns + n * ns, __ATOMIC_RELAXED);
	__atomic_store_n(&qpair->latency.bytes, qpair->latency.bytes + n * req->length, __ATOMIC_RELAXED);
}

static void request_finish_on_group(struct thread_msg *msg)
{
	struct nvmf_request *req = container_of(msg, struct nvmf_request, msg);

	if (req->where == NVMF_REQUEST_HELD) { /* the time until an event is not latency */
		req->start_ticks = thread_now();
		req->exact_ticks = nvmf_exact_ticks(req->start_ticks);
	}
	nvmf_request_finish(req, req->answer_status);
}

void nvmf_request_answer(struct nvmf_request *req, uint16_t status)
{
	req->answer_status = status;
	thread_post(req->qpair->group->thread, &req->msg, request_finish_on_group);
}

void nvmf_request_answer_at(struct nvmf_request *req, uint16_t status, uint16_t where)
{
	req->error_location = where;
	nvmf_request_answer(req, status);
}

size_t nvmf_request_copy_data(const struct nvmf_request *req, void *to, size_t len)
{
	struct iov_cursor c = iov_cursor_at(req->iov, 0);
	size_t given = iov_length(req->iov, req->iovcnt);
	size_t copied = len < given ? len : given;

	iov_to_buffer(&c, to, copied);
	return copied;
}

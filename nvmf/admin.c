/* SPDX-License-Identifier: BSD-3-Clause */
/* Admin and fabrics commands: those that arrive on admin queues and on queues that are not connected yet. They arrive
 * on the poll group and are carried out on the control thread, except Keep Alive, which the group answers. None of them
 * waits for a namespace; those of the reserved lane do not wait for ordinary buffers either. */
#include <string.h>
#include "nvmf/command_internal.h"
#include "nvmf/internal.h"
#include "util/iov.h"

/* ---- Group: arrival ---- */

static enum nvmf_next fabrics_check_and_start(struct nvmf_request *req, const struct nvmf_command *cmd)
{
	bool authenticating = req->qpair->state == NVMF_QPAIR_AUTHENTICATING;
	bool connected = req->qpair->state == NVMF_QPAIR_ENABLED || authenticating;

	if (cmd->name == NULL) {
		return nvmf_request_reject(req, NVME_ST_DNR(GENERIC, INVALID_OPCODE), NVMF_WHERE_FCTYPE);
	}
	if (connected == ((cmd->flags & NVMF_CMD_UNCONNECTED) != 0)) {
		return nvmf_request_reject(req, NVME_ST_DNR(GENERIC, CMD_SEQ_ERROR), NVMF_WHERE_FCTYPE);
	}
	if (authenticating && (cmd->flags & NVMF_CMD_UNAUTHENTICATED) == 0) {
		return nvmf_request_reject(req, NVME_ST_DNR(CMD_SPECIFIC, AUTH_REQUIRED), NVMF_WHERE_FCTYPE);
	}
	if (req->qpair->qid != 0 && (cmd->flags & NVMF_CMD_ADMIN_QUEUE) != 0) {
		return nvmf_request_reject(req, NVME_ST_DNR(GENERIC, INVALID_OPCODE), NVMF_WHERE_FCTYPE);
	}
	return nvmf_command_start(req, cmd);
}

enum nvmf_next nvmf_fabrics_start(struct nvmf_request *req)
{
	const struct nvmf_command *cmd = nvmf_command_of(req);
	enum nvmf_next next = fabrics_check_and_start(req, cmd);

	if (next == NVMF_NEXT_COMPLETE && (cmd->flags & NVMF_CMD_UNCONNECTED) != 0) {
		nvmf_connect_rejected(req);
	}
	return next;
}

uint16_t nvmf_get_log_length(const struct nvmf_request *req, uint64_t *bytes, uint16_t *where)
{
	struct nvmf_get_log log;
	uint16_t status = nvmf_decode_get_log(req->sqe, &log, where);

	*bytes = log.length;
	if (status == NVME_ST_SUCCESS && log.length > req->qpair->transport->opts.max_io_size) {
		return nvmf_bad_field(where, NVMF_WHERE(42, 0));
	}
	return status;
}

uint16_t nvmf_get_features_length(const struct nvmf_request *req, uint64_t *bytes, uint16_t *where)
{
	struct nvmf_feature f;
	uint16_t status = nvmf_decode_get_features(req->sqe, &f, where);

	*bytes = f.select == NVME_GET_FEATURES_SEL_SUPPORTED ? 0 : nvmf_feature_data_length(f.fid, f.cdw11);
	return status;
}

uint16_t nvmf_set_features_length(const struct nvmf_request *req, uint64_t *bytes, uint16_t *where)
{
	struct nvmf_feature f;
	uint16_t status = nvmf_decode_set_features(req->sqe, &f, where);

	*bytes = nvmf_feature_data_length(f.fid, f.cdw11);
	return status;
}

static enum nvmf_next admin_command_start(struct nvmf_request *req)
{
	const struct nvmf_command *cmd = nvmf_command_of(req);

	if (cmd->name == NULL) {
		return nvmf_request_reject(req, NVME_ST_DNR(GENERIC, INVALID_OPCODE), NVMF_WHERE_OPCODE);
	}
	return cmd->data == NVMF_DATA_SGL ? nvmf_passthru_admin_start(req) : nvmf_command_start(req, cmd);
}

enum nvmf_next nvmf_admin_start(struct nvmf_request *req)
{
	const struct nvmf_qpair *qpair = req->qpair;

	if (qpair->state == NVMF_QPAIR_QUIESCING && req->sqe->opcode == nvme_admin_keep_alive && qpair->qid == 0) {
		return NVMF_NEXT_EXEC; /* the host is to see the connection end, and not a target that does not answer
					*/
	}
	if (qpair->state == NVMF_QPAIR_DISCONNECTING || qpair->state == NVMF_QPAIR_QUIESCING) {
		return nvmf_request_reject(req, nvmf_qpair_end_status(qpair), NVMF_WHERE_NOWHERE);
	}
	if (req->fuse != NVME_FUSE_NONE) {
		return nvmf_request_reject(req, NVME_ST_DNR(GENERIC, INVALID_FIELD), NVMF_WHERE_FLAGS_FUSE);
	}
	if (req->sqe->opcode == nvme_admin_fabrics) {
		return nvmf_fabrics_start(req);
	}
	if (qpair->state == NVMF_QPAIR_AUTHENTICATING) {
		return nvmf_request_reject(req, NVME_ST_DNR(CMD_SPECIFIC, AUTH_REQUIRED), NVMF_WHERE_OPCODE);
	}
	if (qpair->state != NVMF_QPAIR_ENABLED) {
		return nvmf_request_reject(req, NVME_ST_DNR(GENERIC, CMD_SEQ_ERROR), NVMF_WHERE_OPCODE);
	}
	return admin_command_start(req);
}

/* ---- Group: execution ---- */

/* The time of its arrival was noted like that of every command. */
void nvmf_keep_alive_exec(struct nvmf_request *req, struct nvmf_ns_view *nsv)
{
	uint32_t kato = atomic_load_explicit(&req->qpair->ctrlr->kato_ms, memory_order_relaxed);

	if (kato == 0) {
		nvmf_request_finish_at(req, NVME_ST_DNR(GENERIC, KAT_INVALID), NVMF_WHERE_OPCODE);
	} else {
		nvmf_request_finish(req, NVME_ST_SUCCESS);
	}
}

void nvmf_admin_exec(struct nvmf_request *req)
{
	const struct nvmf_command *cmd = nvmf_command_of(req);

	if (cmd->exec != NULL) {
		cmd->exec(req, NULL);
	} else {
		nvmf_command_post(req, cmd);
	}
}

/* ---- Control thread ---- */

struct nvmf_ctrlr *nvmf_request_ctrlr(const struct nvmf_request *req)
{
	return req->qpair->ctl_ctrlr;
}

/* Commands other than those of fabrics need a controller that is ready. */
static bool ctrlr_is_ready(const struct nvmf_ctrlr *ctrlr)
{
	return ctrlr->state == NVMF_CTRLR_READY || ctrlr->state == NVMF_CTRLR_SHUTTING_DOWN ||
	       ctrlr->state == NVMF_CTRLR_SHUT_DOWN;
}

uint16_t nvmf_admin_check(const struct nvmf_request *req, const struct nvmf_command *cmd)
{
	const struct nvmf_ctrlr *ctrlr = nvmf_request_ctrlr(req);

	if (ctrlr->state == NVMF_CTRLR_DESTROYING) {
		return NVME_ST(PATH, CTRL_PATH_ERROR);
	}
	if (!ctrlr_is_ready(ctrlr)) {
		return NVME_ST_DNR(GENERIC, CMD_SEQ_ERROR);
	}
	if (ctrlr->subsystem->subtype == NVMF_SUBTYPE_DISCOVERY && (cmd->flags & NVMF_CMD_DISCOVERY) == 0) {
		return NVME_ST_DNR(GENERIC, INVALID_OPCODE);
	}
	return NVME_ST_SUCCESS;
}

/* ---- Data to the host ---- */

void nvmf_put_padded(char *field, size_t size, const char *text)
{
	size_t len = strnlen(text, size);

	memcpy(field, text, len);
	memset(field + len, ' ', size - len);
}

/* Copies into the request's buffers from offset `to` on. It fits. */
static void window_copy_in(struct nvmf_request *req, size_t to, const uint8_t *from, size_t len)
{
	struct iov_cursor c = iov_cursor_at(req->iov, to);

	iov_from_buffer(&c, from, len);
}

void nvmf_window_put(struct nvmf_window *w, uint64_t at, const void *data, size_t len)
{
	uint64_t end = w->start + w->req->length;
	uint64_t from = at > w->start ? at : w->start;
	uint64_t to = at + len < end ? at + len : end;

	if (from < to) {
		window_copy_in(w->req, from - w->start, (const uint8_t *)data + (from - at), to - from);
	}
}

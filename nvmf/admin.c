/* SPDX-License-Identifier: BSD-3-Clause */
/* Admin and fabrics commands: what arrives on admin queues and on queues that are not connected yet. They are started
 * on the poll group and carried out on the control thread; Keep Alive is answered at once. None of them waits for a
 * namespace, and those of the reserved lane do not wait for buffers either. */
#include <string.h>
#include "nvmf/internal.h"

struct admin_command {
	void (*run)(struct nvmf_request *req);
	uint32_t effects; /* enum nvme_cmd_effects */
	bool discovery;   /* discovery controllers have it too */
};

/* Base 5, figure 138; what is not here is an invalid opcode. Keep Alive's run is never called. */
static const struct admin_command admin_commands[256] = {
	[nvme_admin_get_log_page] = {nvmf_get_log_run, NVME_CMD_EFFECTS_CSUPP, true},
	[nvme_admin_identify] = {nvmf_identify_run, NVME_CMD_EFFECTS_CSUPP, true},
	[nvme_admin_abort_cmd] = {nvmf_abort_run, NVME_CMD_EFFECTS_CSUPP, false},
	[nvme_admin_set_features] = {nvmf_set_features_run, NVME_CMD_EFFECTS_CSUPP, true},
	[nvme_admin_get_features] = {nvmf_get_features_run, NVME_CMD_EFFECTS_CSUPP, true},
	[nvme_admin_async_event] = {nvmf_aer_run, NVME_CMD_EFFECTS_CSUPP, true},
	[nvme_admin_keep_alive] = {NULL, NVME_CMD_EFFECTS_CSUPP, true},
};

static const uint32_t io_effects[] = {
	[nvme_cmd_flush] = NVME_CMD_EFFECTS_CSUPP,
	[nvme_cmd_write] = NVME_CMD_EFFECTS_CSUPP | NVME_CMD_EFFECTS_LBCC,
	[nvme_cmd_read] = NVME_CMD_EFFECTS_CSUPP,
	[nvme_cmd_compare] = NVME_CMD_EFFECTS_CSUPP,
	[nvme_cmd_write_zeroes] = NVME_CMD_EFFECTS_CSUPP | NVME_CMD_EFFECTS_LBCC,
	[nvme_cmd_dsm] = NVME_CMD_EFFECTS_CSUPP | NVME_CMD_EFFECTS_LBCC,
	[nvme_cmd_verify] = NVME_CMD_EFFECTS_CSUPP,
	[nvme_cmd_write_uncor] = NVME_CMD_EFFECTS_CSUPP | NVME_CMD_EFFECTS_LBCC,
	[nvme_cmd_copy] = NVME_CMD_EFFECTS_CSUPP | NVME_CMD_EFFECTS_LBCC,
	[nvme_cmd_resv_register] = NVME_CMD_EFFECTS_CSUPP,
	[nvme_cmd_resv_report] = NVME_CMD_EFFECTS_CSUPP,
	[nvme_cmd_resv_acquire] = NVME_CMD_EFFECTS_CSUPP,
	[nvme_cmd_resv_release] = NVME_CMD_EFFECTS_CSUPP,
};

void nvmf_admin_effects(const struct nvmf_ctrlr *ctrlr, struct nvme_cmd_effects_log *log)
{
	bool discovery = ctrlr->subsystem->subtype == NVMF_SUBTYPE_DISCOVERY;

	for (size_t i = 0; i < ARRAY_SIZE(admin_commands); i++) {
		if (!discovery || admin_commands[i].discovery) {
			log->acs[i] = htole32(admin_commands[i].effects);
		}
	}
	for (size_t i = 0; i < ARRAY_SIZE(io_effects) && !discovery; i++) {
		log->iocs[i] = htole32(io_effects[i]);
	}
	if (!discovery && !(nvmf_ctrlr_oncs(ctrlr) & NVME_CTRL_ONCS_WRITE_UNCORRECTABLE)) {
		log->iocs[nvme_cmd_write_uncor] = 0;
	}
	if (!discovery) {
		nvmf_passthru_effects(ctrlr, log);
	}
}

/* ---- Group: arrival ---- */

static enum nvmf_next reserved_lane_start(struct nvmf_request *req, uint8_t xfer, uint32_t length)
{
	req->reserved_lane = true;
	return nvmf_request_data(req, xfer, length);
}

static enum nvmf_next fabrics_start(struct nvmf_request *req)
{
	const struct nvmf_fabrics_sqe *sqe = (const void *)req->sqe;
	bool proving = req->qpair->state == NVMF_QPAIR_AUTHENTICATING;
	bool connected = req->qpair->state == NVMF_QPAIR_ENABLED || proving;

	switch (sqe->fctype) {
	case nvme_fabrics_type_connect:
		if (connected) {
			return nvmf_request_reject(req, NVME_ST_DNR(GENERIC, CMD_SEQ_ERROR), NVMF_WHERE_FCTYPE);
		}
		return reserved_lane_start(req, NVME_DATA_TFR_HOST_TO_CTRL, sizeof(struct nvmf_connect_data));
	case nvme_fabrics_type_property_get:
	case nvme_fabrics_type_property_set:
		if (proving) {
			return nvmf_request_reject(req, NVME_ST_DNR(CMD_SPECIFIC, AUTH_REQUIRED), NVMF_WHERE_FCTYPE);
		}
		if (!connected) {
			return nvmf_request_reject(req, NVME_ST_DNR(GENERIC, CMD_SEQ_ERROR), NVMF_WHERE_FCTYPE);
		}
		return reserved_lane_start(req, NVME_DATA_TFR_NO_DATA_TFR, 0);
	case nvme_fabrics_type_auth_send:
	case nvme_fabrics_type_auth_receive:
		if (!connected) {
			return nvmf_request_reject(req, NVME_ST_DNR(GENERIC, CMD_SEQ_ERROR), NVMF_WHERE_FCTYPE);
		}
		return nvmf_auth_start(req);
	default:
		return nvmf_request_reject(req, NVME_ST_DNR(GENERIC, INVALID_OPCODE), NVMF_WHERE_FCTYPE);
	}
}

static enum nvmf_next get_log_start(struct nvmf_request *req)
{
	struct nvmf_get_log log;
	uint16_t where;
	uint16_t status = nvmf_decode_get_log(req->sqe, &log, &where);

	if (status != NVME_ST_SUCCESS) {
		return nvmf_request_reject(req, status, where);
	}
	if (log.length > req->qpair->transport->opts.max_io_size) {
		return nvmf_request_reject(req, NVME_ST_DNR(GENERIC, INVALID_FIELD), NVMF_WHERE(42, 0));
	}
	return nvmf_request_data(req, NVME_DATA_TFR_CTRL_TO_HOST, log.length);
}

static enum nvmf_next get_features_start(struct nvmf_request *req)
{
	struct nvmf_feature f;
	uint16_t where;
	uint16_t status = nvmf_decode_get_features(req->sqe, &f, &where);

	if (status != NVME_ST_SUCCESS) {
		return nvmf_request_reject(req, status, where);
	}
	if (f.select == NVME_GET_FEATURES_SEL_SUPPORTED) {
		return NVMF_NEXT_EXEC;
	}
	return nvmf_request_data(req, NVME_DATA_TFR_CTRL_TO_HOST, nvmf_feature_data_length(f.fid, f.cdw11));
}

static enum nvmf_next set_features_start(struct nvmf_request *req)
{
	struct nvmf_feature f;
	uint16_t where;
	uint16_t status = nvmf_decode_set_features(req->sqe, &f, &where);

	if (status != NVME_ST_SUCCESS) {
		return nvmf_request_reject(req, status, where);
	}
	return nvmf_request_data(req, NVME_DATA_TFR_HOST_TO_CTRL, nvmf_feature_data_length(f.fid, f.cdw11));
}

static enum nvmf_next admin_command_start(struct nvmf_request *req)
{
	switch (req->sqe->opcode) {
	case nvme_admin_get_log_page:
		return get_log_start(req);
	case nvme_admin_identify:
		return nvmf_request_data(req, NVME_DATA_TFR_CTRL_TO_HOST, NVME_IDENTIFY_DATA_SIZE);
	case nvme_admin_get_features:
		return get_features_start(req);
	case nvme_admin_set_features:
		return set_features_start(req);
	case nvme_admin_abort_cmd:
	case nvme_admin_keep_alive:
		return reserved_lane_start(req, NVME_DATA_TFR_NO_DATA_TFR, 0);
	case nvme_admin_async_event:
		return NVMF_NEXT_EXEC;
	default:
		return req->sqe->opcode >= NVMF_VENDOR_ADMIN
			       ? nvmf_passthru_admin_start(req)
			       : nvmf_request_reject(req, NVME_ST_DNR(GENERIC, INVALID_OPCODE), NVMF_WHERE_OPCODE);
	}
}

enum nvmf_next nvmf_admin_start(struct nvmf_request *req)
{
	const struct nvmf_qpair *qpair = req->qpair;

	if (qpair->state == NVMF_QPAIR_DISCONNECTING) {
		return nvmf_request_reject(req, NVME_ST(GENERIC, ABORT_QUEUE), NVMF_WHERE_NOWHERE);
	}
	if (req->fuse != NVME_FUSE_NONE) {
		return nvmf_request_reject(req, NVME_ST_DNR(GENERIC, INVALID_FIELD), NVMF_WHERE_FLAGS_FUSE);
	}
	if (req->sqe->opcode == nvme_admin_fabrics) {
		return fabrics_start(req);
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

static void keep_alive_exec(struct nvmf_request *req)
{
	/* That the host was heard of has been noted on arrival. */
	uint32_t kato = atomic_load_explicit(&req->qpair->ctrlr->kato_ms, memory_order_relaxed);

	if (kato == 0) {
		nvmf_request_finish_at(req, NVME_ST_DNR(GENERIC, KAT_INVALID), NVMF_WHERE_OPCODE);
	} else {
		nvmf_request_finish(req, NVME_ST_SUCCESS);
	}
}

static void admin_run_on_control(struct thread_msg *msg);

void nvmf_admin_exec(struct nvmf_request *req)
{
	bool held = req->sqe->opcode == nvme_admin_async_event;

	if (req->sqe->opcode == nvme_admin_keep_alive) {
		keep_alive_exec(req);
		return;
	}
	nvmf_request_set_where(req, held ? NVMF_REQUEST_HELD : NVMF_REQUEST_CONTROL);
	thread_post(thread_control(), &req->msg, admin_run_on_control);
}

/* ---- Control thread ---- */

struct nvmf_ctrlr *nvmf_request_ctrlr(const struct nvmf_request *req)
{
	return req->qpair->ctl_ctrlr;
}

static void fabrics_run(struct nvmf_request *req)
{
	const struct nvmf_fabrics_sqe *sqe = (const void *)req->sqe;

	switch (sqe->fctype) {
	case nvme_fabrics_type_connect:
		nvmf_connect_run(req);
		break;
	case nvme_fabrics_type_property_get:
		nvmf_property_get_run(req);
		break;
	case nvme_fabrics_type_auth_send:
		nvmf_auth_send_run(req);
		break;
	case nvme_fabrics_type_auth_receive:
		nvmf_auth_receive_run(req);
		break;
	default: /* fabrics_start lets no other pass */
		nvmf_property_set_run(req);
		break;
	}
}

/* Commands other than those of fabrics need a controller that is ready. */
static bool ctrlr_is_ready(const struct nvmf_ctrlr *ctrlr)
{
	return ctrlr->state == NVMF_CTRLR_READY || ctrlr->state == NVMF_CTRLR_SHUTTING_DOWN ||
	       ctrlr->state == NVMF_CTRLR_SHUT_DOWN;
}

static void admin_run_on_control(struct thread_msg *msg)
{
	struct nvmf_request *req = container_of(msg, struct nvmf_request, msg);
	const struct nvmf_ctrlr *ctrlr = nvmf_request_ctrlr(req);
	const struct admin_command *command = &admin_commands[req->sqe->opcode];

	if (req->sqe->opcode == nvme_admin_fabrics) {
		fabrics_run(req);
	} else if (!ctrlr_is_ready(ctrlr)) {
		nvmf_request_answer_at(req, NVME_ST_DNR(GENERIC, CMD_SEQ_ERROR), NVMF_WHERE_OPCODE);
	} else if (req->sqe->opcode >= NVMF_VENDOR_ADMIN) {
		nvmf_passthru_admin_run(req);
	} else if (ctrlr->subsystem->subtype == NVMF_SUBTYPE_DISCOVERY && !command->discovery) {
		nvmf_request_answer_at(req, NVME_ST_DNR(GENERIC, INVALID_OPCODE), NVMF_WHERE_OPCODE);
	} else {
		command->run(req);
	}
}

/* ---- Data to the host ---- */

void nvmf_put_padded(char *field, size_t size, const char *text)
{
	size_t len = strnlen(text, size);

	memcpy(field, text, len);
	memset(field + len, ' ', size - len);
}

void nvmf_window_zero(struct nvmf_window *w)
{
	struct nvmf_request *req = w->req;
	size_t left = req->length;

	for (unsigned i = 0; i < req->iovcnt && left != 0; i++) {
		size_t n = req->iov[i].iov_len < left ? req->iov[i].iov_len : left;
		memset(req->iov[i].iov_base, 0, n);
		left -= n;
	}
}

/* Copies into the buffers from `to` on; the caller has checked that it fits req->length. */
static void window_copy_in(struct nvmf_request *req, size_t to, const uint8_t *from, size_t len)
{
	for (unsigned i = 0; i < req->iovcnt && len != 0; i++) {
		size_t size = req->iov[i].iov_len;
		if (to >= size) {
			to -= size;
			continue;
		}
		size_t n = size - to < len ? size - to : len;
		memcpy((uint8_t *)req->iov[i].iov_base + to, from, n);
		from += n;
		len -= n;
		to = 0;
	}
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

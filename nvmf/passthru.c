/* SPDX-License-Identifier: BSD-3-Clause */
/* Vendor specific commands: they are passed to the NVMe controller under a namespace, if the operator has listed their
 * opcodes for the namespace. The opcode tells the direction of the data, the data pointer of the host its length, and
 * the bdev module makes sure that the controller transfers no more than that.
 *
 * I/O commands are carried out like others. Admin commands travel to the control thread, which knows whether the host's
 * controller is ready, and back; they do not wait while the namespace is paused. */
#include "nvmf/io_internal.h"

/* The data of the opcode are transferred in both directions (Base 3.3.3.1), which no transport supports. */
#define BOTH_WAYS 3

bool nvmf_passthru_can_list(uint8_t opcode, bool admin)
{
	const struct nvmf_command *cmd = admin ? &nvmf_admin_commands[opcode] : &nvmf_io_commands[opcode];

	return cmd->data == NVMF_DATA_SGL && (opcode & 3) != BOTH_WAYS;
}

static bool passthru_is_listed(const struct nvmf_passthru *p, uint8_t opcode, bool admin)
{
	return admin ? p->admin >> (opcode - NVMF_VENDOR_ADMIN) & 1
		     : p->io[(opcode - NVMF_VENDOR_IO) / 64] >> (opcode - NVMF_VENDOR_IO) % 64 & 1;
}

bool nvmf_passthru_has(const struct nvmf_passthru *p, uint8_t opcode, bool admin)
{
	return opcode >= (admin ? NVMF_VENDOR_ADMIN : NVMF_VENDOR_IO) && passthru_is_listed(p, opcode, admin);
}

void nvmf_passthru_add(struct nvmf_passthru *p, uint8_t opcode, bool admin)
{
	unsigned bit = opcode - (admin ? NVMF_VENDOR_ADMIN : NVMF_VENDOR_IO);

	*(admin ? &p->admin : &p->io[bit / 64]) |= UINT64_C(1) << bit % 64;
}

/* ---- Group ---- */

static bool passthru_is_admin(const struct nvmf_request *req)
{
	return req->qpair->qid == 0;
}

static enum nvmf_next passthru_start_data(struct nvmf_request *req)
{
	uint8_t direction = req->sqe->opcode & 3;
	uint64_t length;
	uint16_t where;

	if (direction == NVME_DATA_TFR_NO_DATA_TFR) {
		return NVMF_NEXT_EXEC;
	}
	uint16_t status = nvmf_decode_described(req->sqe, req->icd, req->icd_len, &req->qpair->transport->sgl_rules,
						direction == NVME_DATA_TFR_HOST_TO_CTRL, &length, &where);
	if (status == NVME_ST_SUCCESS && length > req->qpair->transport->opts.max_io_size) {
		status = NVME_ST_DNR(GENERIC, SGL_INVALID_DATA);
		where = NVMF_WHERE_SGL_LENGTH;
	}
	return status == NVME_ST_SUCCESS ? nvmf_request_data(req, direction, length)
					 : nvmf_request_reject(req, status, where);
}

enum nvmf_next nvmf_passthru_start(struct nvmf_request *req, const struct nvmf_ns_view *nsv)
{
	if (!nvmf_passthru_has(&nsv->passthru, req->sqe->opcode, passthru_is_admin(req))) {
		return nvmf_request_reject(req, NVME_ST_DNR(GENERIC, INVALID_OPCODE), NVMF_WHERE_OPCODE);
	}
	return passthru_start_data(req);
}

static void passthru_done(struct bdev_io *io, void *arg)
{
	struct nvmf_request *req = arg;

	req->cqe.dw0 = htole32(io->cdw0);
	nvmf_request_finish(req, nvmf_io_may_go_elsewhere(req, io->status) ? io->status
									   : nvmf_io_status_if_once(io->status));
}

void nvmf_passthru_exec(struct nvmf_request *req, struct nvmf_ns_view *nsv)
{
	if (!nvmf_passthru_has(&nsv->passthru, req->sqe->opcode, passthru_is_admin(req))) {
		nvmf_request_finish_at(req, NVME_ST_DNR(GENERIC, INVALID_OPCODE), NVMF_WHERE_OPCODE);
		return;
	}
	nvmf_request_clear_buffer(req); /* the device may move less than the host has described */
	nvmf_ns_view_enter(nsv, req);
	bdev_io_init(&req->bdev_io, nsv->desc, nsv->ch, passthru_done, req);
	bdev_io_set_rw(&req->bdev_io, passthru_is_admin(req) ? BDEV_IO_NVME_ADMIN : BDEV_IO_NVME_IO, req->iov,
		       req->iovcnt, 0, 0);
	req->bdev_io.nvme.cmd = (void *)req->sqe; /* copied from there, not written to */
	nvmf_request_set_where(req, NVMF_REQUEST_BDEV);
	bdev_submit(&req->bdev_io);
}

/* ---- Admin commands ---- */

/* Counts the namespaces that list the opcode; *found is one of them. */
static uint32_t passthru_count_listing(const struct nvmf_request *req, struct nvmf_ns_view **found)
{
	const struct nvmf_subsystem_view *view = req->qpair->view;
	uint32_t n = 0;

	for (uint32_t i = 0; i < view->max_nsid; i++) {
		if (view->ns[i] != NULL && nvmf_passthru_has(&view->ns[i]->passthru, req->sqe->opcode, true)) {
			*found = view->ns[i];
			n++;
		}
	}
	return n;
}

static struct nvmf_ns_view *passthru_find_ns(const struct nvmf_request *req, uint16_t *status)
{
	uint32_t nsid = le32toh(req->sqe->nsid);
	struct nvmf_ns_view *nsv = NULL;
	uint32_t listing = passthru_count_listing(req, &nsv);

	if (listing == 0 ||
	    (nsid == 0 && listing != 1)) { /* a command without an nsid is for the only namespace that lists it */
		*status = NVME_ST_DNR(GENERIC, INVALID_OPCODE);
		return NULL;
	}
	nsv = nvmf_io_find_ns(req, nsid != 0 ? nsid : nsv->nsid, status);
	if (nsv != NULL && nsv->paused) {
		*status = NVME_ST(GENERIC, NS_NOT_READY);
		return NULL;
	}
	return nsv;
}

enum nvmf_next nvmf_passthru_admin_start(struct nvmf_request *req)
{
	uint16_t status;
	const struct nvmf_ns_view *nsv = passthru_find_ns(req, &status);

	return nsv != NULL ? nvmf_passthru_start(req, nsv)
			   : nvmf_request_reject(req, status,
						 (status & NVME_SC_MASK) == NVME_SC_INVALID_OPCODE ? NVMF_WHERE_OPCODE
												   : NVMF_WHERE_NSID);
}

static void passthru_admin_exec_on_group(struct thread_msg *msg)
{
	struct nvmf_request *req = container_of(msg, struct nvmf_request, msg);
	uint16_t status = nvmf_qpair_end_status(req->qpair);
	struct nvmf_ns_view *nsv = req->qpair->state == NVMF_QPAIR_ENABLED ? passthru_find_ns(req, &status) : NULL;

	if (nsv == NULL) {
		nvmf_request_finish(req, status);
	} else {
		nvmf_passthru_exec(req, nsv);
	}
}

/* Control thread. */
void nvmf_passthru_admin_run(struct nvmf_request *req)
{
	thread_post(req->qpair->group->thread, &req->msg, passthru_admin_exec_on_group);
}

/* ---- Control thread: the effects log ---- */

void nvmf_passthru_effects(const struct nvmf_ctrlr *ctrlr, struct nvme_cmd_effects_log *log)
{
	for (struct nvmf_ns *ns = nvmf_ns_next(ctrlr->subsystem, NULL); ns != NULL;
	     ns = nvmf_ns_next(ctrlr->subsystem, ns)) {
		for (unsigned opcode = NVMF_VENDOR_IO; opcode <= UINT8_MAX && nvmf_ctrlr_sees(ctrlr, ns->nsid);
		     opcode++) {
			if (nvmf_passthru_has(&ns->opts.passthru, (uint8_t)opcode, false)) {
				log->iocs[opcode] = htole32(NVME_CMD_EFFECTS_CSUPP);
			}
			if (nvmf_passthru_has(&ns->opts.passthru, (uint8_t)opcode, true)) {
				log->acs[opcode] = htole32(NVME_CMD_EFFECTS_CSUPP);
			}
		}
	}
}

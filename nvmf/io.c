/* SPDX-License-Identifier: BSD-3-Clause */
/* I/O commands (NVM 3.2) on an enabled I/O queue, from the capsule to the bdev and back. The poll group's thread.
 *
 * A command looks its namespace up twice: when it arrives and when it is carried out. In between its data may be
 * transferred, and the namespace may be removed or replaced. A command counts as under way on its namespace only from
 * the second time on. */
#include "nvmf/io_internal.h"

/* Whether a reservation refuses the command. Both commands of a fused pair are checked for write access, because the
 * pair is carried out or refused as a whole. */
static bool io_conflicts_with_resv(const struct nvmf_request *req, const struct nvmf_resv *resv)
{
	const struct nvmf_command *cmd = nvmf_command_of(req);
	bool writes = (cmd->flags & NVMF_CMD_RESV_WRITE) != 0 || req->fuse != NVME_FUSE_NONE;

	return (cmd->flags & (NVMF_CMD_RESV_READ | NVMF_CMD_RESV_WRITE)) != 0 &&
	       nvmf_resv_conflicts(resv, req->qpair->ctrlr->hostid, writes);
}

/* Whether the command may access its namespace, for namespaces that have limits; most have none. */
COLD static uint16_t io_check_limits(const struct nvmf_request *req, const struct nvmf_ns_view *nsv)
{
	const struct nvmf_ctrlr *ctrlr = req->qpair->ctrlr;

	if ((nsv->limits & NVMF_NS_HIDDEN) != 0 && !nvmf_ctrlr_sees(ctrlr, nsv->nsid)) {
		return NVME_ST_DNR(GENERIC, INVALID_NS);
	}
	if ((nsv->limits & NVMF_NS_ANA) != 0 && ctrlr->ana != NULL) {
		uint16_t status = nvmf_ana_status(nvmf_ana_get(ctrlr->ana, nsv->anagrpid));
		if (status != NVME_ST_SUCCESS) {
			return status;
		}
	}
	if ((nsv->limits & NVMF_NS_RESV) != 0 && io_conflicts_with_resv(req, nsv->resv)) {
		return NVME_ST_DNR(GENERIC, RESERVATION_CONFLICT);
	}
	return NVME_ST_SUCCESS;
}

/* The namespace of a command; NULL, and the status that the command has to end with, if it may not access it. */
static inline struct nvmf_ns_view *io_find_ns(const struct nvmf_request *req, uint32_t nsid, uint16_t *status)
{
	const struct nvmf_subsystem_view *view = req->qpair->view;

	if (unlikely(nsid - 1 >= view->max_nsid) || view->ns[nsid - 1] == NULL) {
		*status = NVME_ST_DNR(GENERIC, INVALID_NS);
		return NULL;
	}
	struct nvmf_ns_view *nsv = view->ns[nsid - 1];
	if (unlikely(nsv->limits != 0)) {
		*status = io_check_limits(req, nsv);
		return *status == NVME_ST_SUCCESS ? nsv : NULL;
	}
	return nsv;
}

struct nvmf_ns_view *nvmf_io_find_ns(const struct nvmf_request *req, uint32_t nsid, uint16_t *status)
{
	return io_find_ns(req, nsid, status);
}

/* True: the namespace is paused, and the command has been queued. */
static inline bool io_wait_if_paused(struct nvmf_request *req, uint32_t nsid, bool before_data)
{
	struct nvmf_subsystem_view *view = req->qpair->view;

	return unlikely(view->state != NVMF_VIEW_ACTIVE) && nvmf_view_wait_if_paused(view, nsid, req, before_data);
}

/* Compare and Write is the only fused command that there is. */
static bool io_fuse_is_good(const struct nvmf_request *req, const struct nvmf_command *cmd)
{
	const uint32_t half = req->fuse == NVME_FUSE_FIRST ? NVMF_CMD_FUSE_FIRST : NVMF_CMD_FUSE_SECOND;

	return (cmd->flags & half) != 0 && req->qpair->transport->opts.masked_fuses == 0;
}

/* Read, Write and Compare: the range of blocks, and the bytes that are transferred. */
static inline uint16_t rw_decode(const struct nvmf_request *req, const struct nvmf_ns_view *nsv,
				 struct nvmf_lba_range *range, uint64_t *bytes, uint16_t *where)
{
	if (unlikely(nsv->geo.md_eighths != 0)) {
		return nvmf_md_decode_rw(req, nsv, range, bytes, where);
	}
	uint16_t status = nvmf_decode_rw(req->sqe, &nsv->geo, range, where);
	*bytes = (uint64_t)range->num_blocks << nsv->geo.block_shift;
	return status;
}

/* For transfers of more than max_io_size: MDTS counts data, and metadata come on top of them. Hosts of namespaces with
 * protection information send so much: Linux knows only a limit for the data. */
COLD static bool rw_is_within_mdts(const struct nvmf_request *req, const struct nvmf_ns_view *nsv,
				   const struct nvmf_lba_range *range)
{
	return nsv->geo.md_eighths != 0 &&
	       (uint64_t)range->num_blocks << nsv->geo.block_shift <= req->qpair->transport->opts.max_io_size;
}

static enum nvmf_next rw_start(struct nvmf_request *req, const struct nvmf_ns_view *nsv, uint8_t xfer)
{
	struct nvmf_lba_range range;
	uint64_t bytes;
	uint16_t where;
	uint16_t status = rw_decode(req, nsv, &range, &bytes, &where);

	if (unlikely(status != NVME_ST_SUCCESS)) {
		return nvmf_request_reject(req, status, where);
	}
	if (unlikely(bytes > req->qpair->transport->opts.max_io_size) && !rw_is_within_mdts(req, nsv, &range)) {
		return nvmf_request_reject(req, NVME_ST_DNR(GENERIC, INVALID_FIELD), NVMF_WHERE_CDW12);
	}
	return nvmf_request_blocks(req, xfer, bytes);
}

static inline enum nvmf_next io_start_on_ns(struct nvmf_request *req, const struct nvmf_command *cmd,
					    const struct nvmf_ns_view *nsv)
{
	if (likely(cmd->data == NVMF_DATA_BLOCKS)) {
		return rw_start(req, nsv, cmd->xfer);
	}
	return cmd->data == NVMF_DATA_SGL ? nvmf_passthru_start(req, nsv) : nvmf_command_start(req, cmd);
}

/* Whether the queue pair's transport has an optional command. */
static bool io_command_exists(const struct nvmf_request *req, const struct nvmf_command *cmd)
{
	return cmd->name != NULL && (cmd->oncs & req->qpair->transport->opts.masked_oncs) == 0;
}

/* Among the fabrics commands, those of authentication may be sent on I/O queues. */
static enum nvmf_next io_start_unknown(struct nvmf_request *req)
{
	return req->sqe->opcode == nvme_admin_fabrics
		       ? nvmf_fabrics_start(req)
		       : nvmf_request_reject(req, NVME_ST_DNR(GENERIC, INVALID_OPCODE), NVMF_WHERE_OPCODE);
}

enum nvmf_next nvmf_io_start(struct nvmf_request *req)
{
	const struct nvmf_command *cmd = nvmf_io_command(req);
	uint32_t nsid = le32toh(req->sqe->nsid);
	uint16_t status;

	if (unlikely((cmd->flags & NVMF_CMD_ALWAYS) == 0) && !io_command_exists(req, cmd)) {
		return io_start_unknown(req);
	}
	if (unlikely(req->fuse != NVME_FUSE_NONE) && !io_fuse_is_good(req, cmd)) {
		return nvmf_request_reject(req, NVME_ST_DNR(GENERIC, INVALID_FIELD), NVMF_WHERE_FLAGS_FUSE);
	}
	if (io_wait_if_paused(req, nsid, true)) {
		return NVMF_NEXT_WAIT;
	}
	const struct nvmf_ns_view *nsv = io_find_ns(req, nsid, &status);
	if (unlikely(nsv == NULL)) {
		return nvmf_request_reject(req, status, NVMF_WHERE_NSID);
	}
	if (unlikely((nsv->limits & NVMF_NS_QOS) != 0) && nvmf_qos_hold(req, cmd, nsv)) {
		return NVMF_NEXT_WAIT;
	}
	return io_start_on_ns(req, cmd, nsv);
}

COLD void nvmf_io_restart(struct nvmf_request *req)
{
	enum nvmf_next next = nvmf_io_start(req);

	if (next != NVMF_NEXT_WAIT) { /* otherwise it has found something else to wait for */
		req->qpair->transport->ops->request_continue(req, next);
	}
}

/* ---- Carrying out ---- */

/* In units of 512 bytes, without metadata. */
static void io_count(const struct nvmf_request *req)
{
	struct nvmf_ns_view *nsv = req->ns_view;
	uint64_t units = req->bdev_io.num_blocks << (nsv->geo.block_shift - 9);

	if (req->bdev_io.type == BDEV_IO_READ) {
		nsv->read_ops++;
		nsv->read_blocks += units;
	} else if (req->bdev_io.type == BDEV_IO_WRITE || req->bdev_io.type == BDEV_IO_COMPARE_AND_WRITE) {
		nsv->write_ops++;
		nsv->written_blocks += units;
	}
}

/* Whether the blocks that the command wrote have to be on the medium when it ends: the host asked for that in the
 * command (FUA) or for all commands (Set Features, Volatile Write Cache). */
static bool io_wants_flush(const struct nvmf_request *req)
{
	return (nvmf_io_command(req)->flags & NVMF_CMD_FUA) != 0 && req->ns_view->write_cache &&
	       ((le32toh(req->sqe->cdw12) >> 16 & NVME_IO_FUA) != 0 ||
		atomic_load_explicit(&req->qpair->write_through, memory_order_relaxed));
}

/* After the bdev has written the blocks. True: the bdev is being flushed, and req->bdev_io's callback runs once more.
 */
static bool io_flush_after(struct nvmf_request *req)
{
	if (likely(!io_wants_flush(req)) || req->flushing) {
		return false;
	}
	req->flushing = true;
	bdev_io_set_rw(&req->bdev_io, BDEV_IO_FLUSH, NULL, 0, 0, req->ns_view->geo.num_blocks);
	nvmf_io_submit(req);
	return true;
}

void nvmf_io_done(struct bdev_io *io, void *arg)
{
	struct nvmf_request *req = arg;

	if (unlikely(io->status != NVME_ST_SUCCESS)) {
		nvmf_request_finish(req, io->status);
		return;
	}
	io_count(req);
	if (!io_flush_after(req)) {
		nvmf_request_finish(req, NVME_ST_SUCCESS);
	}
}

/* Read, Write and Compare: the range, checked again. It must have the length that was transferred. */
static uint16_t rw_range(const struct nvmf_request *req, const struct nvmf_ns_view *nsv, struct nvmf_lba_range *range,
			 uint16_t *where)
{
	uint64_t bytes;
	uint16_t status = rw_decode(req, nsv, range, &bytes, where);

	if (status == NVME_ST_SUCCESS && bytes != req->length) {
		*where = NVMF_WHERE_NSID; /* its block size has changed since the command arrived */
		return NVME_ST(GENERIC, NS_NOT_READY);
	}
	return status;
}

static inline void rw_exec(struct nvmf_request *req, struct nvmf_ns_view *nsv, enum bdev_io_type type)
{
	struct nvmf_lba_range range;
	uint16_t where;
	uint16_t status = rw_range(req, nsv, &range, &where);

	if (unlikely(status != NVME_ST_SUCCESS)) {
		nvmf_request_finish_at(req, status, where);
		return;
	}
	if (unlikely(nsv->clear_reads)) {
		nvmf_request_clear_buffer(req);
	}
	nvmf_io_enter(req, nsv, nvmf_io_done);
	bdev_io_set_rw(&req->bdev_io, type, req->iov, req->iovcnt, range.slba, range.num_blocks);
	nvmf_io_submit(req);
}

void nvmf_rw_exec(struct nvmf_request *req, struct nvmf_ns_view *nsv)
{
	rw_exec(req, nsv, (enum bdev_io_type)nvmf_io_command(req)->bdev_type);
}

void nvmf_flush_exec(struct nvmf_request *req, struct nvmf_ns_view *nsv)
{
	nvmf_io_enter(req, nsv, nvmf_io_done);
	bdev_io_set_rw(&req->bdev_io, BDEV_IO_FLUSH, NULL, 0, 0, nsv->geo.num_blocks);
	nvmf_io_submit(req);
}

void nvmf_write_zeroes_exec(struct nvmf_request *req, struct nvmf_ns_view *nsv)
{
	struct nvmf_lba_range range;
	bool deallocate;
	uint16_t where;
	uint16_t status = nvmf_decode_write_zeroes(req->sqe, &nsv->geo, req->qpair->ctrlr->subsystem->wzsl, &range,
						   &deallocate, &where);

	if (status == NVME_ST_SUCCESS && nsv->geo.md_eighths != 0) {
		status = nvmf_md_check(req, nsv, &where);
	}
	if (status != NVME_ST_SUCCESS) {
		nvmf_request_finish_at(req, status, where);
		return;
	}
	nvmf_io_enter(req, nsv, nvmf_io_done);
	bdev_io_set_rw(&req->bdev_io, BDEV_IO_WRITE_ZEROES, NULL, 0, range.slba, range.num_blocks);
	nvmf_io_submit(req);
}

/* Verify and Write Uncorrectable: a range and no data. */
void nvmf_blocks_exec(struct nvmf_request *req, struct nvmf_ns_view *nsv)
{
	enum bdev_io_type type = (enum bdev_io_type)nvmf_io_command(req)->bdev_type;
	struct nvmf_lba_range range;
	uint16_t where;
	uint16_t status = nvmf_decode_blocks(req->sqe, &nsv->geo, &range, &where);

	if (status == NVME_ST_SUCCESS && nsv->geo.md_eighths != 0) {
		status =
			type == BDEV_IO_VERIFY ? nvmf_md_check(req, nsv, &where) : nvmf_md_check_host(req, nsv, &where);
	}
	if (status != NVME_ST_SUCCESS) {
		nvmf_request_finish_at(req, status, where);
		return;
	}
	nvmf_io_enter(req, nsv, nvmf_io_done);
	bdev_io_set_rw(&req->bdev_io, type, NULL, 0, range.slba, range.num_blocks);
	nvmf_io_submit(req);
}

/* ---- Compare and Write, fused: NVM 2.1.4, Base 3.4.2 ---- */

static void fused_pair_finish(struct nvmf_request *first, struct nvmf_request *second, uint16_t first_status,
			      uint16_t second_status)
{
	first->fuse_peer = NULL;
	second->fuse_peer = NULL;
	nvmf_request_finish(first, first_status);
	nvmf_request_finish(second, second_status);
}

uint16_t nvmf_io_status_if_once(uint16_t status)
{
	uint16_t code = status & (uint16_t)~NVME_SC_DNR;

	return code == NVME_ST(PATH, CTRL_PATH_ERROR) || code == NVME_ST(PATH, ANA_INTERNAL_PATH_ERROR)
		       ? NVME_ST_DNR(GENERIC, INTERNAL)
		       : status;
}

static void fused_pair_done(struct bdev_io *io, void *arg)
{
	struct nvmf_request *second = arg;
	uint16_t status = nvmf_io_status_if_once(io->status);

	if (io->status == NVME_ST_SUCCESS) {
		io_count(second);
		if (!io_flush_after(second)) {
			fused_pair_finish(second->fuse_peer, second, NVME_ST_SUCCESS, NVME_ST_SUCCESS);
		}
	} else if (second->flushing) { /* written, but the flush has failed */
		fused_pair_finish(second->fuse_peer, second, NVME_ST_SUCCESS, status);
	} else if (nvmf_io_may_go_elsewhere(second, io->status)) { /* nothing of either has been carried out */
		status = NVME_ST(PATH, CTRL_PATH_ERROR);
		fused_pair_finish(second->fuse_peer, second, status, status);
	} else {
		fused_pair_finish(second->fuse_peer, second, status, NVME_ST_DNR(GENERIC, FUSED_FAIL));
	}
}

static void fused_pair_exec(struct nvmf_request *first, struct nvmf_request *second, struct nvmf_ns_view *nsv)
{
	struct nvmf_lba_range a, b;
	uint16_t where;
	uint16_t status = rw_range(first, nsv, &a, &where);

	if (status == NVME_ST_SUCCESS) {
		status = rw_range(second, nsv, &b, &where);
	}
	if (status == NVME_ST_SUCCESS &&
	    (first->sqe->nsid != second->sqe->nsid || a.slba != b.slba || a.num_blocks != b.num_blocks)) {
		status = NVME_ST_DNR(GENERIC, INVALID_FIELD);
		where = NVMF_WHERE_CDW10;
	}
	if (status != NVME_ST_SUCCESS) {
		first->error_location = where;
		fused_pair_finish(first, second, status, NVME_ST_DNR(GENERIC, FUSED_FAIL));
		return;
	}
	nvmf_io_enter(second, nsv, fused_pair_done);
	second->bdev_io.compare.iovs = first->iov;
	second->bdev_io.compare.iovcnt = first->iovcnt;
	bdev_io_set_rw(&second->bdev_io, BDEV_IO_COMPARE_AND_WRITE, second->iov, second->iovcnt, b.slba, b.num_blocks);
	nvmf_request_set_where(first, NVMF_REQUEST_BDEV);
	nvmf_io_submit(second);
}

/* The command of the pair whose data are there first waits for the other. */
static void fused_exec(struct nvmf_request *req, struct nvmf_ns_view *nsv)
{
	struct nvmf_request *peer = req->fuse_peer;

	if (req->fuse_failed != 0) {
		nvmf_request_finish_at(req, (uint16_t)(req->fuse_failed | NVME_SC_DNR), NVMF_WHERE_FLAGS_FUSE);
	} else if (peer == NULL || peer->where != NVMF_REQUEST_FUSED) {
		nvmf_request_set_where(req, NVMF_REQUEST_FUSED);
	} else if (req->fuse == NVME_FUSE_FIRST) {
		fused_pair_exec(req, peer, nsv);
	} else {
		fused_pair_exec(peer, req, nsv);
	}
}

void nvmf_fused_peer_ended(struct nvmf_request *req, uint16_t status)
{
	struct nvmf_request *peer = req->fuse_peer;

	req->fuse_peer = NULL;
	peer->fuse_peer = NULL;
	peer->fuse_failed = NVME_SC_FUSED_FAIL;
	if (peer->where != NVMF_REQUEST_FUSED) {
		return;
	}
	if (status == NVME_ST(PATH, CTRL_PATH_ERROR)) { /* a pair is taken back as a whole */
		nvmf_request_finish(peer, status);
	} else {
		nvmf_request_finish_at(peer, NVME_ST_DNR(GENERIC, FUSED_FAIL), NVMF_WHERE_FLAGS_FUSE);
	}
}

/* ---- Execution ---- */

static inline void io_exec_on_ns(struct nvmf_request *req, struct nvmf_ns_view *nsv)
{
	const struct nvmf_command *cmd = nvmf_io_command(req);

	if (likely(cmd->data == NVMF_DATA_BLOCKS)) {
		rw_exec(req, nsv, (enum bdev_io_type)cmd->bdev_type);
	} else if (cmd->exec != NULL) {
		cmd->exec(req, nsv);
	} else {
		nvmf_command_post(req, cmd);
	}
}

static void zcopy_exec(struct nvmf_request *req)
{
	req->zcopy_open = false;
	req->flushing = false;
	req->bdev_io.iovs = req->iov;
	req->bdev_io.iovcnt = 1;
	nvmf_io_submit(req);
}

/* The namespace was there when the command arrived. If it has been removed since, the command ends like those that were
 * under way on it: its host may find the namespace elsewhere. */
COLD static void io_refuse_late(struct nvmf_request *req, uint16_t status)
{
	if (status == NVME_ST_DNR(GENERIC, INVALID_NS)) {
		nvmf_request_finish(req, NVME_ST(PATH, CTRL_PATH_ERROR));
	} else {
		nvmf_request_finish_at(req, status, NVMF_WHERE_NSID);
	}
}

void nvmf_io_exec(struct nvmf_request *req)
{
	uint32_t nsid = le32toh(req->sqe->nsid);
	uint16_t status;

	if (unlikely(req->sqe->opcode == nvme_admin_fabrics)) { /* authentication: it has no namespace */
		nvmf_admin_exec(req);
		return;
	}
	if (req->zcopy) {
		zcopy_exec(req);
		return;
	}
	if (io_wait_if_paused(req, nsid, false)) {
		return;
	}
	struct nvmf_ns_view *nsv = io_find_ns(req, nsid, &status);
	if (unlikely(nsv == NULL)) {
		io_refuse_late(req, status);
	} else if (unlikely(req->fuse != NVME_FUSE_NONE)) {
		fused_exec(req, nsv);
	} else {
		io_exec_on_ns(req, nsv);
	}
}

/* ---- Zero copy ---- */

static enum bdev_io_type zcopy_io_type(const struct nvmf_request *req)
{
	const struct nvmf_command *cmd = nvmf_io_command(req);

	if (req->qpair->qid == 0 || req->fuse != NVME_FUSE_NONE || (cmd->flags & NVMF_CMD_ZERO_COPY) == 0) {
		return BDEV_IO_INVALID;
	}
	return (enum bdev_io_type)cmd->bdev_type;
}

bool nvmf_request_zcopy_get(struct nvmf_request *req)
{
	enum bdev_io_type type = zcopy_io_type(req);
	struct nvmf_lba_range range;
	uint16_t where;

	if (type == BDEV_IO_INVALID || req->qpair->view->state != NVMF_VIEW_ACTIVE) {
		return false;
	}
	uint16_t status;
	struct nvmf_ns_view *nsv = io_find_ns(req, le32toh(req->sqe->nsid), &status);
	if (nsv == NULL || rw_range(req, nsv, &range, &where) != NVME_ST_SUCCESS) {
		return false;
	}
	bdev_io_init(&req->bdev_io, nsv->desc, nsv->ch, nvmf_io_done, req);
	bdev_io_set_rw(&req->bdev_io, type, NULL, 0, range.slba, range.num_blocks);
	void *memory = bdev_zcopy_get(&req->bdev_io);
	if (memory == NULL) {
		return false;
	}
	nvmf_ns_view_enter(nsv, req);
	req->iov[0] = (struct iovec){.iov_base = memory, .iov_len = req->length};
	req->iovcnt = 1;
	req->zcopy = true;
	req->zcopy_open = true;
	return true;
}

void nvmf_request_return(struct nvmf_request *req)
{
	if (req->zcopy_open) {
		bdev_zcopy_put(&req->bdev_io);
		req->zcopy_open = false;
	}
	req->zcopy = false;
	nvmf_ns_view_leave(req);
}

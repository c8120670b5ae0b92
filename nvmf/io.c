/* SPDX-License-Identifier: BSD-3-Clause */
/* I/O commands (NVM 3.2) on an enabled I/O queue: from the capsule to the bdev and back. The poll group's thread.
 *
 * A command looks its namespace up twice, when it arrives and when it is carried out: in between its data may have
 * travelled, and the namespace may have been replaced. Only from then on does it count as under way. */
#include <string.h>
#include "nvmf/internal.h"

static bool opcode_is_reservation(uint8_t opcode)
{
	return opcode == nvme_cmd_resv_register || opcode == nvme_cmd_resv_report || opcode == nvme_cmd_resv_acquire ||
	       opcode == nvme_cmd_resv_release;
}

/* Reservation commands have their own rules. What is not known to read counts as writing: Flush too (NVM 2.1.1), and
 * Copy. Of a fused pair both do: the Write may wait where nobody sees it, and what its Compare may, it may. */
static bool io_conflicts_with_resv(const struct nvmf_request *req, const struct nvmf_resv *resv)
{
	uint8_t opcode = req->sqe->opcode;
	bool reads = opcode == nvme_cmd_read || opcode == nvme_cmd_compare || opcode == nvme_cmd_verify;
	bool writes = !reads || req->fuse != NVME_FUSE_NONE;

	return !opcode_is_reservation(opcode) && nvmf_resv_conflicts(resv, req->qpair->ctrlr->hostid, writes);
}

/* What keeps this command from its namespace; mostly there is nothing to look at. */
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

/* The namespace of a command that may go through; otherwise NULL and the status it is to end with. */
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

/* True if the command now waits for its namespace. */
static inline bool io_wait_if_paused(struct nvmf_request *req, uint32_t nsid, bool before_data)
{
	struct nvmf_subsystem_view *view = req->qpair->view;

	return unlikely(view->state != NVMF_VIEW_ACTIVE) && nvmf_view_wait_if_paused(view, nsid, req, before_data);
}

static bool io_fuse_is_good(const struct nvmf_request *req)
{
	switch (req->fuse) {
	case NVME_FUSE_NONE:
		return true;
	case NVME_FUSE_FIRST:
		return req->sqe->opcode == nvme_cmd_compare;
	default:
		return req->sqe->opcode == nvme_cmd_write;
	}
}

/* Read, Write and Compare: their blocks, and the bytes that are transferred. */
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

static enum nvmf_next rw_start(struct nvmf_request *req, const struct nvmf_ns_view *nsv, uint8_t xfer)
{
	struct nvmf_lba_range range;
	uint64_t bytes;
	uint16_t where;
	uint16_t status = rw_decode(req, nsv, &range, &bytes, &where);

	if (unlikely(status != NVME_ST_SUCCESS)) {
		return nvmf_request_reject(req, status, where);
	}
	return nvmf_request_data(req, xfer, bytes);
}

static enum nvmf_next dsm_start(struct nvmf_request *req)
{
	struct nvmf_dsm dsm;

	nvmf_decode_dsm(req->sqe, &dsm);
	return nvmf_request_data(req, NVME_DATA_TFR_HOST_TO_CTRL, dsm.num_ranges * sizeof(struct nvme_dsm_range));
}

static enum nvmf_next copy_start(struct nvmf_request *req)
{
	struct nvmf_copy copy;
	uint16_t where;
	uint16_t status = nvmf_decode_copy(req->sqe, &copy, &where);

	return status == NVME_ST_SUCCESS ? nvmf_request_data(req, NVME_DATA_TFR_HOST_TO_CTRL,
							     copy.num_ranges * sizeof(struct nvme_copy_range))
					 : nvmf_request_reject(req, status, where);
}

/* Only what looks at nothing but the command; the rest is checked where the reservations are. */
static enum nvmf_next resv_report_start(struct nvmf_request *req)
{
	struct nvmf_resv_report report;
	uint16_t where;
	uint16_t status = nvmf_decode_resv_report(req->sqe, &report, &where);

	if (status == NVME_ST_SUCCESS && report.length > req->qpair->transport->opts.max_io_size) {
		where = NVMF_WHERE_CDW10;
		status = NVME_ST_DNR(GENERIC, INVALID_FIELD);
	}
	return status == NVME_ST_SUCCESS ? nvmf_request_data(req, NVME_DATA_TFR_CTRL_TO_HOST, report.length)
					 : nvmf_request_reject(req, status, where);
}

/* Out of the way of those that are common. */
NOINLINE static enum nvmf_next resv_start(struct nvmf_request *req)
{
	switch (req->sqe->opcode) {
	case nvme_cmd_resv_register:
		return nvmf_request_data(req, NVME_DATA_TFR_HOST_TO_CTRL, NVMF_RESV_REGISTER_DATA);
	case nvme_cmd_resv_acquire:
		return nvmf_request_data(req, NVME_DATA_TFR_HOST_TO_CTRL, NVMF_RESV_ACQUIRE_DATA);
	case nvme_cmd_resv_release:
		return nvmf_request_data(req, NVME_DATA_TFR_HOST_TO_CTRL, NVMF_RESV_RELEASE_DATA);
	default:
		return resv_report_start(req);
	}
}

static enum nvmf_next io_start_on_ns(struct nvmf_request *req, const struct nvmf_ns_view *nsv)
{
	switch (req->sqe->opcode) {
	case nvme_cmd_read:
		return rw_start(req, nsv, NVME_DATA_TFR_CTRL_TO_HOST);
	case nvme_cmd_write:
	case nvme_cmd_compare:
		return rw_start(req, nsv, NVME_DATA_TFR_HOST_TO_CTRL);
	case nvme_cmd_dsm:
		return dsm_start(req);
	case nvme_cmd_flush:
	case nvme_cmd_write_zeroes:
	case nvme_cmd_verify:
	case nvme_cmd_write_uncor:
		return NVMF_NEXT_EXEC;
	case nvme_cmd_copy:
		return copy_start(req);
	default:
		return req->sqe->opcode >= NVMF_VENDOR_IO ? nvmf_passthru_start(req, nsv) : resv_start(req);
	}
}

static bool opcode_is_known(uint8_t opcode)
{
	switch (opcode) {
	case nvme_cmd_flush:
	case nvme_cmd_write:
	case nvme_cmd_read:
	case nvme_cmd_compare:
	case nvme_cmd_write_zeroes:
	case nvme_cmd_dsm:
	case nvme_cmd_verify:
	case nvme_cmd_write_uncor:
	case nvme_cmd_copy:
		return true;
	default:
		return opcode_is_reservation(opcode) || opcode >= NVMF_VENDOR_IO;
	}
}

/* Fabrics commands on an I/O queue that is connected: authentication; Connect, out of place. */
static enum nvmf_next io_start_unknown(struct nvmf_request *req)
{
	const struct nvmf_fabrics_sqe *fabrics = (const void *)req->sqe;

	if (req->sqe->opcode != nvme_admin_fabrics) {
		return nvmf_request_reject(req, NVME_ST_DNR(GENERIC, INVALID_OPCODE), NVMF_WHERE_OPCODE);
	}
	if (fabrics->fctype == nvme_fabrics_type_auth_send || fabrics->fctype == nvme_fabrics_type_auth_receive) {
		return nvmf_auth_start(req);
	}
	return nvmf_request_reject(req,
				   fabrics->fctype == nvme_fabrics_type_connect ? NVME_ST_DNR(GENERIC, CMD_SEQ_ERROR)
										: NVME_ST_DNR(GENERIC, INVALID_OPCODE),
				   NVMF_WHERE_FCTYPE);
}

enum nvmf_next nvmf_io_start(struct nvmf_request *req)
{
	uint32_t nsid = le32toh(req->sqe->nsid);
	uint16_t status;

	if (unlikely(!opcode_is_known(req->sqe->opcode))) {
		return io_start_unknown(req);
	}
	if (unlikely(!io_fuse_is_good(req))) {
		return nvmf_request_reject(req, NVME_ST_DNR(GENERIC, INVALID_FIELD), NVMF_WHERE_FLAGS_FUSE);
	}
	if (io_wait_if_paused(req, nsid, true)) {
		return NVMF_NEXT_WAIT;
	}
	const struct nvmf_ns_view *nsv = io_find_ns(req, nsid, &status);
	if (unlikely(nsv == NULL)) {
		return nvmf_request_reject(req, status, NVMF_WHERE_NSID);
	}
	return io_start_on_ns(req, nsv);
}

/* ---- Carrying out ---- */

static void io_count(const struct nvmf_request *req)
{
	struct nvmf_ns_view *nsv = req->ns_view;
	uint64_t units = req->length >> 9;

	if (req->bdev_io.type == BDEV_IO_READ) {
		nsv->read_ops++;
		nsv->read_blocks += units;
	} else if (req->bdev_io.type == BDEV_IO_WRITE || req->bdev_io.type == BDEV_IO_COMPARE_AND_WRITE) {
		nsv->write_ops++;
		nsv->written_blocks += units;
	}
}

static void io_submit(struct nvmf_request *req)
{
	nvmf_request_set_where(req, NVMF_REQUEST_BDEV);
	bdev_submit(&req->bdev_io);
}

/* Whether it has to be on the medium when it ends: the host said so, of the command or of all (Set Features, Volatile
 * Write Cache). */
static bool io_wants_flush(const struct nvmf_request *req)
{
	switch (req->sqe->opcode) {
	case nvme_cmd_write:
	case nvme_cmd_write_zeroes:
	case nvme_cmd_copy: /* where FUA is the same bit */
		return req->ns_view->write_cache &&
		       ((le32toh(req->sqe->cdw12) >> 16 & NVME_IO_FUA) != 0 ||
			atomic_load_explicit(&req->qpair->write_through, memory_order_relaxed));
	default:
		return false;
	}
}

/* After what it wrote. True: its callback comes once more. */
static bool io_flush_after(struct nvmf_request *req)
{
	if (likely(!io_wants_flush(req)) || req->phase != 0) {
		return false;
	}
	req->phase = 1;
	bdev_io_set_rw(&req->bdev_io, BDEV_IO_FLUSH, NULL, 0, 0, req->ns_view->geo.num_blocks);
	io_submit(req);
	return true;
}

static void io_bdev_done(struct bdev_io *io, void *arg)
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

/* The command is under way from here. */
static void io_enter(struct nvmf_request *req, struct nvmf_ns_view *nsv, bdev_io_cb done)
{
	nvmf_ns_view_enter(nsv, req);
	bdev_io_init(&req->bdev_io, nsv->desc, nsv->ch, done, req);
	req->phase = 0;
	if (unlikely(nsv->geo.md_eighths != 0)) {
		nvmf_md_set(req, nsv);
	}
}

/* Read, Write and Compare: the range, if it is the one that the data were transferred for. */
static uint16_t rw_range(const struct nvmf_request *req, const struct nvmf_ns_view *nsv, struct nvmf_lba_range *range,
			 uint16_t *where)
{
	uint64_t bytes;
	uint16_t status = rw_decode(req, nsv, range, &bytes, where);

	if (status == NVME_ST_SUCCESS && bytes != req->length) {
		*where = NVMF_WHERE_NSID; /* it has another block size than when the command came */
		return NVME_ST(GENERIC, NS_NOT_READY);
	}
	return status;
}

static void rw_exec(struct nvmf_request *req, struct nvmf_ns_view *nsv, enum bdev_io_type type)
{
	struct nvmf_lba_range range;
	uint16_t where;
	uint16_t status = rw_range(req, nsv, &range, &where);

	if (unlikely(status != NVME_ST_SUCCESS)) {
		nvmf_request_finish_at(req, status, where);
		return;
	}
	io_enter(req, nsv, io_bdev_done);
	bdev_io_set_rw(&req->bdev_io, type, req->iov, req->iovcnt, range.slba, range.num_blocks);
	io_submit(req);
}

static void flush_exec(struct nvmf_request *req, struct nvmf_ns_view *nsv)
{
	io_enter(req, nsv, io_bdev_done);
	bdev_io_set_rw(&req->bdev_io, BDEV_IO_FLUSH, NULL, 0, 0, nsv->geo.num_blocks);
	io_submit(req);
}

static void write_zeroes_exec(struct nvmf_request *req, struct nvmf_ns_view *nsv)
{
	struct nvmf_lba_range range;
	bool deallocate;
	uint16_t where;
	uint16_t status = nvmf_decode_write_zeroes(req->sqe, &nsv->geo, &range, &deallocate, &where);

	if (status == NVME_ST_SUCCESS && nsv->geo.md_eighths != 0) {
		status = nvmf_md_check(req, nsv, &where);
	}
	if (status != NVME_ST_SUCCESS) {
		nvmf_request_finish_at(req, status, where);
		return;
	}
	io_enter(req, nsv, io_bdev_done);
	bdev_io_set_rw(&req->bdev_io, BDEV_IO_WRITE_ZEROES, NULL, 0, range.slba, range.num_blocks);
	io_submit(req);
}

/* Verify and Write Uncorrectable: nothing but a range. */
static void range_exec(struct nvmf_request *req, struct nvmf_ns_view *nsv, enum bdev_io_type type)
{
	struct nvmf_lba_range range;
	uint16_t where;
	uint16_t status = nvmf_decode_blocks(req->sqe, &nsv->geo, &range, &where);

	if (status == NVME_ST_SUCCESS && nsv->geo.md_eighths != 0 && type == BDEV_IO_VERIFY) {
		status = nvmf_md_check(req, nsv, &where);
	}
	if (status != NVME_ST_SUCCESS) {
		nvmf_request_finish_at(req, status, where);
		return;
	}
	io_enter(req, nsv, io_bdev_done);
	bdev_io_set_rw(&req->bdev_io, type, NULL, 0, range.slba, range.num_blocks);
	io_submit(req);
}

/* ---- Dataset Management: its ranges one after the other ---- */

/* The index'th entry of the request's data. */
static void request_copy_entry(const struct nvmf_request *req, unsigned index, void *entry, size_t size)
{
	size_t skip = index * size, copied = 0;

	for (unsigned i = 0; i < req->iovcnt && copied < size; i++) {
		size_t len = req->iov[i].iov_len;
		if (skip >= len) {
			skip -= len;
			continue;
		}
		size_t n = len - skip < size - copied ? len - skip : size - copied;
		memcpy((uint8_t *)entry + copied, (uint8_t *)req->iov[i].iov_base + skip, n);
		copied += n;
		skip = 0;
	}
}

static uint16_t dsm_range(const struct nvmf_request *req, const struct nvmf_ns_view *nsv, unsigned index,
			  struct nvmf_lba_range *out, uint16_t *where)
{
	struct nvme_dsm_range range = {0};

	request_copy_entry(req, index, &range, sizeof(range));
	return nvmf_decode_dsm_range(&range, 0, &nsv->geo, out, where);
}

static void dsm_next(struct nvmf_request *req)
{
	struct nvmf_lba_range range;
	struct nvmf_dsm dsm;
	uint16_t where;

	nvmf_decode_dsm(req->sqe, &dsm);
	while (req->dsm_next < dsm.num_ranges) {
		uint16_t status = dsm_range(req, req->ns_view, req->dsm_next, &range, &where);
		if (status != NVME_ST_SUCCESS) { /* the namespace has shrunk since the ranges were checked */
			nvmf_request_finish_at(req, status, where);
			return;
		}
		req->dsm_next++;
		if (range.num_blocks != 0) {
			bdev_io_set_rw(&req->bdev_io, BDEV_IO_UNMAP, NULL, 0, range.slba, range.num_blocks);
			io_submit(req);
			return;
		}
	}
	nvmf_request_finish(req, NVME_ST_SUCCESS);
}

static void dsm_done(struct bdev_io *io, void *arg)
{
	struct nvmf_request *req = arg;

	if (io->status != NVME_ST_SUCCESS) {
		nvmf_request_finish(req, io->status);
		return;
	}
	dsm_next(req);
}

/* Nothing is deallocated if one of the ranges is bad. Integral read and write hints mean nothing to us. */
static void dsm_exec(struct nvmf_request *req, struct nvmf_ns_view *nsv)
{
	struct nvmf_lba_range range;
	struct nvmf_dsm dsm;
	uint16_t where;

	nvmf_decode_dsm(req->sqe, &dsm);
	for (unsigned i = 0; i < dsm.num_ranges; i++) {
		uint16_t status = dsm_range(req, nsv, i, &range, &where);
		if (status != NVME_ST_SUCCESS) {
			nvmf_request_finish_at(req, status, where);
			return;
		}
	}
	if (!dsm.deallocate) {
		nvmf_request_finish(req, NVME_ST_SUCCESS);
		return;
	}
	io_enter(req, nsv, dsm_done);
	req->dsm_next = 0;
	dsm_next(req);
}

/* ---- Copy: its ranges one after the other, too ---- */

static void copy_done(struct bdev_io *io, void *arg);

static void copy_next(struct nvmf_request *req, uint64_t to)
{
	struct nvme_copy_range entry = {0};
	struct nvmf_lba_range from;

	request_copy_entry(req, req->dsm_next++, &entry, sizeof(entry));
	nvmf_decode_copy_range(&entry, &from);
	bdev_io_set_copy(&req->bdev_io, from.slba, to, from.num_blocks);
	io_submit(req);
}

static void copy_done(struct bdev_io *io, void *arg)
{
	struct nvmf_request *req = arg;
	struct nvmf_copy copy;
	uint16_t where;

	if (io->status != NVME_ST_SUCCESS) {
		/* Dword 0: the lowest of the ranges that have not been copied. */
		req->cqe.dw0 = htole32(req->phase == 0 ? req->dsm_next - 1u : 0);
		nvmf_request_finish(req, io->status);
		return;
	}
	nvmf_decode_copy(req->sqe, &copy, &where);
	if (req->dsm_next < copy.num_ranges) {
		copy_next(req, io->offset_blocks + io->num_blocks);
		return;
	}
	io_bdev_done(io, arg); /* which sees to FUA */
}

/* Nothing is copied if one of the ranges is bad. */
static void copy_exec(struct nvmf_request *req, struct nvmf_ns_view *nsv)
{
	struct nvme_copy_range ranges[NVMF_COPY_RANGES_MAX];
	struct nvmf_copy copy;
	uint16_t where;
	uint16_t status = nvmf_decode_copy(req->sqe, &copy, &where);

	if (status == NVME_ST_SUCCESS) {
		nvmf_request_copy_data(req, ranges, copy.num_ranges * sizeof(ranges[0]));
		status = nvmf_decode_copy_ranges(ranges, &copy, &nsv->geo, &where);
	}
	if (status == NVME_ST_SUCCESS && nsv->geo.md_eighths != 0) {
		status = nvmf_md_check(req, nsv, &where);
	}
	if (status != NVME_ST_SUCCESS) {
		nvmf_request_finish_at(req, status, where);
		return;
	}
	io_enter(req, nsv, copy_done);
	req->dsm_next = 0;
	copy_next(req, copy.to);
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

static void fused_pair_done(struct bdev_io *io, void *arg)
{
	struct nvmf_request *second = arg;

	if (io->status == NVME_ST_SUCCESS) {
		io_count(second);
		if (!io_flush_after(second)) {
			fused_pair_finish(second->fuse_peer, second, NVME_ST_SUCCESS, NVME_ST_SUCCESS);
		}
	} else if (second->phase != 0) { /* written, but not made to last */
		fused_pair_finish(second->fuse_peer, second, NVME_ST_SUCCESS, io->status);
	} else {
		fused_pair_finish(second->fuse_peer, second, io->status, NVME_ST_DNR(GENERIC, FUSED_FAIL));
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
		first->error_where = where;
		fused_pair_finish(first, second, status, NVME_ST_DNR(GENERIC, FUSED_FAIL));
		return;
	}
	io_enter(second, nsv, fused_pair_done);
	second->bdev_io.compare.iovs = first->iov;
	second->bdev_io.compare.iovcnt = first->iovcnt;
	bdev_io_set_rw(&second->bdev_io, BDEV_IO_COMPARE_AND_WRITE, second->iov, second->iovcnt, b.slba, b.num_blocks);
	nvmf_request_set_where(first, NVMF_REQUEST_BDEV);
	io_submit(second);
}

/* The half that is ready first waits for the other. */
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
	if (peer->where == NVMF_REQUEST_FUSED) {
		nvmf_request_finish_at(peer, NVME_ST_DNR(GENERIC, FUSED_FAIL), NVMF_WHERE_FLAGS_FUSE);
	}
}

/* ---- */

NOINLINE static void resv_exec(struct nvmf_request *req)
{
	nvmf_request_set_where(req, NVMF_REQUEST_CONTROL);
	thread_post(thread_control(), &req->msg, nvmf_resv_run);
}

static void io_exec_on_ns(struct nvmf_request *req, struct nvmf_ns_view *nsv)
{
	switch (req->sqe->opcode) {
	case nvme_cmd_read:
		rw_exec(req, nsv, BDEV_IO_READ);
		break;
	case nvme_cmd_write:
		rw_exec(req, nsv, BDEV_IO_WRITE);
		break;
	case nvme_cmd_compare:
		rw_exec(req, nsv, BDEV_IO_COMPARE);
		break;
	case nvme_cmd_flush:
		flush_exec(req, nsv);
		break;
	case nvme_cmd_write_zeroes:
		write_zeroes_exec(req, nsv);
		break;
	case nvme_cmd_dsm:
		dsm_exec(req, nsv);
		break;
	case nvme_cmd_verify:
		range_exec(req, nsv, BDEV_IO_VERIFY);
		break;
	case nvme_cmd_write_uncor:
		range_exec(req, nsv, BDEV_IO_WRITE_UNCORRECTABLE);
		break;
	case nvme_cmd_copy:
		copy_exec(req, nsv);
		break;
	default:
		if (req->sqe->opcode >= NVMF_VENDOR_IO) {
			nvmf_passthru_exec(req, nsv);
		} else {
			resv_exec(req);
		}
		break;
	}
}

static void zcopy_exec(struct nvmf_request *req)
{
	req->zcopy_open = false;
	req->phase = 0;
	req->bdev_io.iovs = req->iov;
	req->bdev_io.iovcnt = 1;
	io_submit(req);
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
		nvmf_request_finish_at(req, status, NVMF_WHERE_NSID);
	} else if (unlikely(req->fuse != NVME_FUSE_NONE)) {
		fused_exec(req, nsv);
	} else {
		io_exec_on_ns(req, nsv);
	}
}

/* ---- Zero copy ---- */

static enum bdev_io_type zcopy_io_type(const struct nvmf_request *req)
{
	if (req->qpair->qid == 0 || req->fuse != NVME_FUSE_NONE) {
		return BDEV_IO_INVALID;
	}
	switch (req->sqe->opcode) {
	case nvme_cmd_read:
		return BDEV_IO_READ;
	case nvme_cmd_write:
		return BDEV_IO_WRITE;
	default:
		return BDEV_IO_INVALID;
	}
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
	bdev_io_init(&req->bdev_io, nsv->desc, nsv->ch, io_bdev_done, req);
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

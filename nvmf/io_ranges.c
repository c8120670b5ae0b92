/* SPDX-License-Identifier: BSD-3-Clause */
/* Dataset Management and Copy (NVM 3.2.3, 3.2.2): their data are a list of ranges, which are carried out one after the
 * other. All ranges are checked before the first is touched. The poll group's thread. */
#include <string.h>
#include "nvmf/io_internal.h"
#include "util/iov.h"

/* Copies from the request's data, from byte `at` on. */
static void ranges_copy_entry(const struct nvmf_request *req, size_t at, void *entry, size_t size)
{
	struct iov_cursor c = iov_cursor_at(req->iov, at);

	iov_to_buffer(&c, entry, size);
}

/* ---- Dataset Management ---- */

uint16_t nvmf_dsm_length(const struct nvmf_request *req, uint64_t *bytes, uint16_t *where)
{
	struct nvmf_dsm dsm;

	nvmf_decode_dsm(req->sqe, &dsm);
	*bytes = dsm.num_ranges * sizeof(struct nvme_dsm_range);
	return NVME_ST_SUCCESS;
}

/* Only deallocations have a limit: the other attributes are hints for any range. */
static uint16_t dsm_get_range(const struct nvmf_request *req, const struct nvmf_ns_view *nsv, unsigned index,
			      const struct nvmf_dsm *dsm, struct nvmf_lba_range *out, uint16_t *where)
{
	uint32_t dmrsl = dsm->deallocate ? req->qpair->ctrlr->subsystem->dmrsl : 0;
	struct nvme_dsm_range range = {0};

	ranges_copy_entry(req, index * sizeof(range), &range, sizeof(range));
	return nvmf_decode_dsm_range(&range, 0, &nsv->geo, dmrsl, out, where);
}

static void dsm_submit_next(struct nvmf_request *req)
{
	struct nvmf_lba_range range;
	struct nvmf_dsm dsm;
	uint16_t where;

	nvmf_decode_dsm(req->sqe, &dsm);
	while (req->next_range < dsm.num_ranges) {
		uint16_t status = dsm_get_range(req, req->ns_view, req->next_range, &dsm, &range, &where);
		if (status != NVME_ST_SUCCESS) { /* the namespace has shrunk since the ranges were checked */
			nvmf_request_finish_at(req, status, where);
			return;
		}
		req->next_range++;
		if (range.num_blocks != 0) {
			bdev_io_set_rw(&req->bdev_io, BDEV_IO_UNMAP, NULL, 0, range.slba, range.num_blocks);
			nvmf_io_submit(req);
			return;
		}
	}
	nvmf_request_finish(req, NVME_ST_SUCCESS);
}

static bool dsm_has_more(const struct nvmf_request *req)
{
	struct nvmf_dsm dsm;

	nvmf_decode_dsm(req->sqe, &dsm);
	return req->next_range < dsm.num_ranges;
}

/* Whether the command ends before its next range, and with which status. A host may repeat what it gets a path error
 * for: the same deallocations, and copies, once more. That is no better than a lost connection, after which it does the
 * same, but a namespace that is removed is no reason for it. */
static bool ranges_end(const struct nvmf_request *req, uint16_t *status)
{
	bool ends = req->qpair->state != NVMF_QPAIR_ENABLED;

	*status = ends ? nvmf_qpair_end_status(req->qpair) : NVME_ST(GENERIC, ABORT_REQ);
	return ends || req->ns_view->removing;
}

static void dsm_range_done(struct bdev_io *io, void *arg)
{
	struct nvmf_request *req = arg;
	uint16_t status;

	if (io->status != NVME_ST_SUCCESS) {
		nvmf_request_finish(req, io->status);
	} else if (dsm_has_more(req) && ranges_end(req, &status)) {
		nvmf_request_finish(req, status);
	} else {
		dsm_submit_next(req);
	}
}

/* The attributes for reading and writing are hints, which are not used. */
void nvmf_dsm_exec(struct nvmf_request *req, struct nvmf_ns_view *nsv)
{
	struct nvmf_lba_range range;
	struct nvmf_dsm dsm;
	uint16_t where;
	uint16_t status = nsv->geo.md_eighths != 0 ? nvmf_md_check_host(req, nsv, &where) : NVME_ST_SUCCESS;

	nvmf_decode_dsm(req->sqe, &dsm);
	for (unsigned i = 0; status == NVME_ST_SUCCESS && i < dsm.num_ranges; i++) {
		status = dsm_get_range(req, nsv, i, &dsm, &range, &where);
	}
	if (status != NVME_ST_SUCCESS) {
		nvmf_request_finish_at(req, status, where);
		return;
	}
	if (!dsm.deallocate) {
		nvmf_request_finish(req, NVME_ST_SUCCESS);
		return;
	}
	nvmf_io_enter(req, nsv, dsm_range_done);
	req->next_range = 0;
	dsm_submit_next(req);
}

/* ---- Copy ---- */

uint16_t nvmf_copy_length(const struct nvmf_request *req, uint64_t *bytes, uint16_t *where)
{
	struct nvmf_copy copy;
	uint16_t status = nvmf_decode_copy(req->sqe, &copy, where);

	*bytes = (uint64_t)copy.num_ranges * copy.range_bytes;
	return status;
}

static void copy_submit_next(struct nvmf_request *req, const struct nvmf_copy *copy, uint64_t to)
{
	struct nvme_copy_range entry = {0};
	struct nvmf_lba_range from;

	ranges_copy_entry(req, (size_t)req->next_range++ * copy->range_bytes, &entry, sizeof(entry));
	nvmf_decode_copy_range(&entry, &from);
	bdev_io_set_copy(&req->bdev_io, from.slba, to, from.num_blocks);
	nvmf_io_submit(req);
}

static void copy_range_done(struct bdev_io *io, void *arg)
{
	struct nvmf_request *req = arg;
	struct nvmf_copy copy;
	uint16_t where, status;

	if (io->status != NVME_ST_SUCCESS) {
		/* Dword 0: the lowest of the ranges that have not been copied. */
		req->cqe.dw0 = htole32(req->flushing ? 0 : req->next_range - 1u);
		nvmf_request_finish(req, io->status);
		return;
	}
	nvmf_decode_copy(req->sqe, &copy, &where);
	if (req->next_range < copy.num_ranges && ranges_end(req, &status)) {
		req->cqe.dw0 = htole32(req->next_range);
		nvmf_request_finish(req, status);
		return;
	}
	if (req->next_range < copy.num_ranges) {
		copy_submit_next(req, &copy, io->offset_blocks + io->num_blocks);
		return;
	}
	nvmf_io_done(io, arg); /* flushes if FUA is set, and then this function runs again */
}

/* Whether hosts may copy here with ranges of that format: a status. Checked before the ranges are looked at. */
static uint16_t copy_check_format(const struct nvmf_request *req, const struct nvmf_ns_view *nsv,
				  const struct nvmf_copy *copy, uint16_t *where)
{
	return nsv->geo.md_eighths != 0 ? nvmf_md_check_copy(req, nsv, copy, where)
					: nvmf_decode_copy_format(copy, NVME_PI_GUARD_16, where);
}

void nvmf_copy_exec(struct nvmf_request *req, struct nvmf_ns_view *nsv)
{
	uint8_t ranges[NVMF_COPY_RANGES_MAX * NVMF_COPY_RANGE_BYTES_MAX];
	struct nvmf_copy copy;
	uint16_t where;
	uint16_t status = nvmf_decode_copy(req->sqe, &copy, &where);

	if (status == NVME_ST_SUCCESS) {
		status = copy_check_format(req, nsv, &copy, &where);
	}
	if (status == NVME_ST_SUCCESS) {
		nvmf_request_copy_data(req, ranges, (size_t)copy.num_ranges * copy.range_bytes);
		status = nvmf_decode_copy_ranges(ranges, &copy, &nsv->geo, &where);
	}
	if (status != NVME_ST_SUCCESS) {
		nvmf_request_finish_at(req, status, where);
		return;
	}
	nvmf_io_enter(req, nsv, copy_range_done);
	req->next_range = 0;
	copy_submit_next(req, &copy, copy.to);
}

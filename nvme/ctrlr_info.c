/* SPDX-License-Identifier: BSD-3-Clause */
/* What users can read of a controller (nvme.h). Control thread. */
#include <string.h>

#include "nvme/internal.h"

#define CTRATT_TBKAS (UINT32_C(1) << 6)

enum nvme_ctrlr_state nvme_ctrlr_state(const struct nvme_ctrlr *ctrlr)
{
	return ctrlr->state;
}

uint64_t nvme_ctrlr_state_ticks(const struct nvme_ctrlr *ctrlr)
{
	return ctrlr->state_ticks;
}

const struct nvme_trid *nvme_ctrlr_trid(const struct nvme_ctrlr *ctrlr)
{
	return &ctrlr->trid;
}

const struct nvme_id_ctrl *nvme_ctrlr_identify(const struct nvme_ctrlr *ctrlr)
{
	return &ctrlr->id;
}

uint64_t nvme_ctrlr_cap(const struct nvme_ctrlr *ctrlr)
{
	return ctrlr->cap;
}

uint32_t nvme_ctrlr_vs(const struct nvme_ctrlr *ctrlr)
{
	return ctrlr->vs;
}

uint16_t nvme_ctrlr_io_queues(const struct nvme_ctrlr *ctrlr)
{
	return ctrlr->io_queues;
}

uint32_t nvme_ctrlr_max_transfer(const struct nvme_ctrlr *ctrlr)
{
	uint64_t transport = ctrlr->ops->max_transfer((struct nvme_ctrlr *)ctrlr);
	/* MDTS is in units of CAP.MPSMIN, which is 4 KiB here; 0: no limit (Base 5.17.2.1) */
	uint64_t mdts = ctrlr->id.mdts ? UINT64_C(4096) << (ctrlr->id.mdts < 20 ? ctrlr->id.mdts : 20) : UINT32_MAX;

	return (uint32_t)(mdts < transport ? mdts : transport);
}

uint64_t nvme_ctrlr_max_write_zeroes(const struct nvme_ctrlr *ctrlr)
{
	/* in units of CAP.MPSMIN, as MDTS; 52 bits more than 4 KiB do not fit */
	return ctrlr->wzsl == 0 || ctrlr->wzsl >= 52 ? UINT64_MAX : UINT64_C(4096) << ctrlr->wzsl;
}

uint32_t nvme_ctrlr_max_deallocate_blocks(const struct nvme_ctrlr *ctrlr)
{
	return ctrlr->dmrsl == 0 ? UINT32_MAX : ctrlr->dmrsl;
}

bool nvme_ctrlr_has_extended_formats(const struct nvme_ctrlr *ctrlr)
{
	return ctrlr->extended_formats;
}

uint16_t nvme_ctrlr_io_queue_entries(const struct nvme_ctrlr *ctrlr)
{
	uint16_t most = (uint16_t)NVME_CAP_MQES(ctrlr->cap); /* 0's based; one entry stays free */

	return ctrlr->opts.io_queue_entries < most ? ctrlr->opts.io_queue_entries : most;
}

uint16_t nvme_ctrlr_max_segments(const struct nvme_ctrlr *ctrlr)
{
	return ctrlr->ops->max_segments ? ctrlr->ops->max_segments(ctrlr) : 1;
}

uint32_t nvme_ctrlr_buf_align(const struct nvme_ctrlr *ctrlr)
{
	return ctrlr->ops->buf_align ? ctrlr->ops->buf_align : 1;
}

uint16_t nvme_ctrlr_cntlid(const struct nvme_ctrlr *ctrlr)
{
	return ctrlr->cntlid;
}

bool nvme_ctrlr_has_ended(const struct nvme_ctrlr *ctrlr)
{
	return ctrlr->has_ended;
}

void nvme_ctrlr_quiesce_info(const struct nvme_ctrlr *ctrlr, struct nvme_ctrlr_quiesce_info *info)
{
	const uint8_t *id = (const uint8_t *)&ctrlr->id;
	uint32_t unit_ms = le16toh(ctrlr->id.kas) * 100u; /* Base 5.17.2.1: KATO is rounded up to a multiple */
	uint64_t ms = ctrlr->opts.keep_alive_ms;

	if (unit_ms != 0) {
		ms = (ms + unit_ms - 1) / unit_ms * unit_ms;
	}
	*info = (struct nvme_ctrlr_quiesce_info){
		.keep_alive_ms = ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX,
		.quiesce_ms = (uint16_t)(id[NVME_ID_CTRL_CQT] | id[NVME_ID_CTRL_CQT + 1] << 8),
		.ciu = id[NVME_ID_CTRL_CIU],
		.cross_resets = id[NVME_ID_CTRL_CCRL],
		.traffic_based = (le32toh(ctrlr->id.ctratt) & CTRATT_TBKAS) != 0};
	uint64_t cirn;
	memcpy(&cirn, id + NVME_ID_CTRL_CIRN, sizeof(cirn));
	info->cirn = le64toh(cirn);
}

bool nvme_ctrlr_is_ending(const struct nvme_ctrlr *ctrlr)
{
	return ctrlr->in_failure;
}

const char *nvme_ctrlr_last_error(const struct nvme_ctrlr *ctrlr)
{
	return ctrlr->last_error;
}

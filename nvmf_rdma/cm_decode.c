/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <string.h>

#include "nvmf_rdma/internal.h"

enum nvmf_rdma_cm_status nvmf_rdma_cm_decode(const void *data, size_t len, uint32_t max_admin_entries,
					     uint32_t max_io_entries, struct nvmf_rdma_cm_params *out)
{
	struct nvmf_rdma_cm_req req;

	if (data == NULL || len < sizeof(req)) { /* the connection manager may pad it, never shorten it */
		return NVMF_RDMA_CM_INVALID_LEN;
	}
	memcpy(&req, data, sizeof(req));
	if (le16toh(req.recfmt) != NVMF_RDMA_CM_RECFMT) {
		return NVMF_RDMA_CM_INVALID_RECFMT;
	}
	uint16_t qid = le16toh(req.qid);
	uint32_t entries = le16toh(req.hsqsize) + 1u; /* 0's based */
	/* a queue has at least two entries, of which one stays free (Base 3.3.1.2) */
	if (entries < 2 || entries > (qid == 0 ? max_admin_entries : max_io_entries)) {
		return NVMF_RDMA_CM_INVALID_HSQSIZE;
	}
	if (le16toh(req.hrqsize) == 0) {
		return NVMF_RDMA_CM_INVALID_HRQSIZE;
	}
	*out = (struct nvmf_rdma_cm_params){
		.qid = qid, .host_send_queue = (uint16_t)entries, .host_receive_queue = le16toh(req.hrqsize)};
	return 0;
}

void nvmf_rdma_cm_explain(const void *data, size_t len, uint32_t max_admin_entries, uint32_t max_io_entries,
			  enum nvmf_rdma_cm_status status, char why[NVMF_RDMA_CM_WHY_MAX])
{
	struct nvmf_rdma_cm_req req = {0};
	size_t n = data == NULL ? 0 : len < sizeof(req) ? len : sizeof(req);

	memcpy(&req, data != NULL ? data : &req, n);
	uint16_t qid = le16toh(req.qid);
	switch (status) {
	case NVMF_RDMA_CM_INVALID_LEN:
		snprintf(why, NVMF_RDMA_CM_WHY_MAX, "its private data have %zu bytes: %zu or more are needed", len,
			 sizeof(req));
		break;
	case NVMF_RDMA_CM_INVALID_RECFMT:
		snprintf(why, NVMF_RDMA_CM_WHY_MAX, "RECFMT is %u: allowed is %u", le16toh(req.recfmt),
			 NVMF_RDMA_CM_RECFMT);
		break;
	case NVMF_RDMA_CM_INVALID_HSQSIZE:
		snprintf(why, NVMF_RDMA_CM_WHY_MAX, "HSQSIZE of queue %u is %u: allowed are 1 to %u", qid,
			 le16toh(req.hsqsize), (qid == 0 ? max_admin_entries : max_io_entries) - 1);
		break;
	case NVMF_RDMA_CM_INVALID_HRQSIZE:
		snprintf(why, NVMF_RDMA_CM_WHY_MAX, "HRQSIZE of queue %u is 0: allowed are 1 or more", qid);
		break;
	default:
		snprintf(why, NVMF_RDMA_CM_WHY_MAX, "no resources for queue %u", qid);
		break;
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Property Get and Set: the properties of a fabrics controller (Base 3.1.3, 6.5, 6.6). Control thread. */
#include "nvmf/command_internal.h"
#include "nvmf/internal.h"

#define WHERE_ATTRIB NVMF_WHERE(offsetof(struct nvmf_property_get_sqe, attrib), 0)
#define WHERE_OFST   NVMF_WHERE(offsetof(struct nvmf_property_get_sqe, ofst), 0)

#define VERSION_2_0 UINT32_C(0x00020000)

static uint64_t property_get_vs(const struct nvmf_ctrlr *ctrlr)
{
	return VERSION_2_0;
}

static uint64_t property_get_cc(const struct nvmf_ctrlr *ctrlr)
{
	return ctrlr->cc;
}

static uint64_t property_get_csts(const struct nvmf_ctrlr *ctrlr)
{
	return nvmf_ctrlr_csts(ctrlr);
}

/* CRWMT: as CAP.TO. */
static uint64_t property_get_crto(const struct nvmf_ctrlr *ctrlr)
{
	return NVME_CAP_TO(nvmf_ctrlr_cap(ctrlr));
}

static const struct property {
	uint32_t offset;
	uint32_t size;
	uint64_t (*get)(const struct nvmf_ctrlr *ctrlr);
	void (*set)(struct nvmf_ctrlr *ctrlr, uint32_t value); /* NULL: read only */
} properties[] = {
	{NVME_REG_CAP, 8, nvmf_ctrlr_cap, NULL},
	{NVME_REG_VS, 4, property_get_vs, NULL},
	{NVME_REG_CC, 4, property_get_cc, nvmf_ctrlr_set_cc},
	{NVME_REG_CSTS, 4, property_get_csts, NULL},
	{NVME_REG_CRTO, 4, property_get_crto, NULL},
};

static uint16_t property_find(const struct nvmf_property *p, const struct property **found, uint16_t *where)
{
	for (size_t i = 0; i < ARRAY_SIZE(properties); i++) {
		if (properties[i].offset != p->offset) {
			continue;
		}
		*where = WHERE_ATTRIB;
		*found = &properties[i];
		return properties[i].size == p->size ? NVME_ST_SUCCESS : NVME_ST_DNR(GENERIC, INVALID_FIELD);
	}
	*where = WHERE_OFST;
	return NVME_ST_DNR(GENERIC, INVALID_FIELD);
}

void nvmf_property_get_run(struct nvmf_request *req)
{
	const struct property *property;
	struct nvmf_property p;
	uint16_t where;
	uint16_t status = nvmf_decode_property_get((const void *)req->sqe, &p, &where);

	if (status == NVME_ST_SUCCESS) {
		status = property_find(&p, &property, &where);
	}
	if (status != NVME_ST_SUCCESS) {
		nvmf_request_answer_at(req, status, where);
		return;
	}
	req->cqe.result = htole64(property->get(nvmf_request_ctrlr(req)));
	nvmf_request_answer(req, NVME_ST_SUCCESS);
}

void nvmf_property_set_run(struct nvmf_request *req)
{
	const struct property *property;
	struct nvmf_property p;
	uint16_t where;
	uint16_t status = nvmf_decode_property_set((const void *)req->sqe, &p, &where);

	if (status == NVME_ST_SUCCESS) {
		status = property_find(&p, &property, &where);
	}
	if (status == NVME_ST_SUCCESS && property->set == NULL) {
		where = WHERE_OFST;
		status = NVME_ST_DNR(GENERIC, INVALID_FIELD);
	}
	if (status != NVME_ST_SUCCESS) {
		nvmf_request_answer_at(req, status, where);
		return;
	}
	property->set(nvmf_request_ctrlr(req), (uint32_t)p.value);
	nvmf_request_answer(req, NVME_ST_SUCCESS);
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "unittest/unit.h"

#include "nvmf_rdma/internal.h"

#define ADMIN_MAX 32
#define IO_MAX    128

static struct nvmf_rdma_cm_req good(uint16_t qid, uint16_t hsqsize)
{
	return (struct nvmf_rdma_cm_req){.recfmt = 0,
					 .qid = htole16(qid),
					 .hrqsize = htole16(hsqsize + 1),
					 .hsqsize = htole16(hsqsize),
					 .cntlid = 0xffff};
}

static enum nvmf_rdma_cm_status decode(const void *data, size_t len, struct nvmf_rdma_cm_params *out)
{
	return nvmf_rdma_cm_decode(data, len, ADMIN_MAX, IO_MAX, out);
}

static void test_a_good_request_gives_its_queue_sizes(void)
{
	struct nvmf_rdma_cm_req r = good(3, 127);
	struct nvmf_rdma_cm_params out;

	CU_ASSERT_EQUAL(decode(&r, sizeof(r), &out), 0);
	CU_ASSERT_EQUAL(out.qid, 3);
	CU_ASSERT_EQUAL(out.host_send_queue, 128);
	CU_ASSERT_EQUAL(out.host_receive_queue, 128);
}

static void test_padding_behind_the_data_is_accepted(void)
{
	uint8_t padded[56] = {0};
	struct nvmf_rdma_cm_req r = good(0, 31);
	struct nvmf_rdma_cm_params out;

	memcpy(padded, &r, sizeof(r));
	memset(padded + sizeof(r), 0xa5, sizeof(padded) - sizeof(r));
	CU_ASSERT_EQUAL(decode(padded, sizeof(padded), &out), 0);
}

static void test_data_that_is_too_short_is_rejected_at_every_length(void)
{
	struct nvmf_rdma_cm_req r = good(1, 31);
	struct nvmf_rdma_cm_params out;

	for (size_t len = 0; len < sizeof(r); len++) {
		uint8_t *exact = malloc(len ? len : 1);
		memcpy(exact, &r, len);
		CU_ASSERT_EQUAL(decode(exact, len, &out), NVMF_RDMA_CM_INVALID_LEN);
		free(exact);
	}
	CU_ASSERT_EQUAL(decode(NULL, 0, &out), NVMF_RDMA_CM_INVALID_LEN);
}

static void test_an_unknown_format_is_rejected(void)
{
	struct nvmf_rdma_cm_req r = good(1, 31);
	struct nvmf_rdma_cm_params out;

	r.recfmt = htole16(1);
	CU_ASSERT_EQUAL(decode(&r, sizeof(r), &out), NVMF_RDMA_CM_INVALID_RECFMT);
}

static void test_send_queues_of_impossible_size_are_rejected(void)
{
	struct nvmf_rdma_cm_params out;
	struct nvmf_rdma_cm_req r = good(0, 0);

	CU_ASSERT_EQUAL(decode(&r, sizeof(r), &out), NVMF_RDMA_CM_INVALID_HSQSIZE);
	r = good(0, ADMIN_MAX);
	CU_ASSERT_EQUAL(decode(&r, sizeof(r), &out), NVMF_RDMA_CM_INVALID_HSQSIZE);
	r = good(0, ADMIN_MAX - 1);
	CU_ASSERT_EQUAL(decode(&r, sizeof(r), &out), 0);
	r = good(1, IO_MAX);
	CU_ASSERT_EQUAL(decode(&r, sizeof(r), &out), NVMF_RDMA_CM_INVALID_HSQSIZE);
	r = good(1, UINT16_MAX);
	r.hrqsize = 1;
	CU_ASSERT_EQUAL(decode(&r, sizeof(r), &out), NVMF_RDMA_CM_INVALID_HSQSIZE);
}

static void test_a_host_without_receives_is_rejected(void)
{
	struct nvmf_rdma_cm_req r = good(1, 31);
	struct nvmf_rdma_cm_params out;

	r.hrqsize = 0;
	CU_ASSERT_EQUAL(decode(&r, sizeof(r), &out), NVMF_RDMA_CM_INVALID_HRQSIZE);
}

static const char *explain(const struct nvmf_rdma_cm_req *r, size_t len)
{
	static char why[NVMF_RDMA_CM_WHY_MAX];
	struct nvmf_rdma_cm_params out;

	nvmf_rdma_cm_explain(r, len, ADMIN_MAX, IO_MAX, decode(r, len, &out), why);
	return why;
}

static void test_what_is_wrong_is_said_in_words(void)
{
	struct nvmf_rdma_cm_req r = good(0, 32);

	CU_ASSERT_STRING_EQUAL(explain(&r, sizeof(r)), "HSQSIZE of queue 0 is 32: allowed are 1 to 31");
	r = good(4, 128);
	CU_ASSERT_STRING_EQUAL(explain(&r, sizeof(r)), "HSQSIZE of queue 4 is 128: allowed are 1 to 127");
	r = good(1, 31);
	CU_ASSERT_STRING_EQUAL(explain(&r, 31), "its private data have 31 bytes: 32 or more are needed");
	CU_ASSERT_STRING_EQUAL(explain(NULL, 0), "its private data have 0 bytes: 32 or more are needed");
	r.recfmt = htole16(2);
	CU_ASSERT_STRING_EQUAL(explain(&r, sizeof(r)), "RECFMT is 2: allowed is 0");
	r = good(1, 31);
	r.hrqsize = 0;
	CU_ASSERT_STRING_EQUAL(explain(&r, sizeof(r)), "HRQSIZE of queue 1 is 0: allowed are 1 or more");
	r = good(5, 31);
	CU_ASSERT_STRING_EQUAL(explain(&r, sizeof(r)), "no resources for queue 5");
}

static const struct unit_test tests[] = {
	UNIT(test_a_good_request_gives_its_queue_sizes),
	UNIT(test_padding_behind_the_data_is_accepted),
	UNIT(test_data_that_is_too_short_is_rejected_at_every_length),
	UNIT(test_an_unknown_format_is_rejected),
	UNIT(test_send_queues_of_impossible_size_are_rejected),
	UNIT(test_a_host_without_receives_is_rejected),
	UNIT(test_what_is_wrong_is_said_in_words),
	UNIT_END,
};
UNIT_MAIN("nvmf_rdma_cm", tests, NULL, NULL)

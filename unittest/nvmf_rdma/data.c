/* SPDX-License-Identifier: BSD-3-Clause */
#include "unittest/unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nvmf_rdma/internal.h"

#define PIECES 16
#define PIECE  8192u
#define HOST   0x100000u
#define KEY    0x4711u
#define POOL   20

/* Host memory is told by descriptors that the test makes; ours is told by address only and never touched. */
static struct ibv_mr mr = {.lkey = 7};
static struct verbs_pd pd;
static struct nvmf_rdma_device device = {.pd = &pd};
static struct nvmf_rdma_group group;
static struct nvmf_rdma_poller poller = {.device = &device, .tgroup = &group};
static struct nvmf_rdma_qpair qp = {.poller = &poller};
static struct nvmf_rdma_data_wr pool[POOL];
static struct iovec iov[PIECES];
static union nvme_sgl_desc keyed;
static struct nvmf_rdma_request *r;

static int setup(void)
{
	pd.table = calloc(1, sizeof(*pd.table) + sizeof(pd.table->regions[0]));
	r = aligned_alloc(64, (sizeof(*r) + 63) / 64 * 64);
	if (pd.table == NULL || r == NULL) {
		return 1;
	}
	pd.table->count = 1;
	pd.table->regions[0] = (struct verbs_region){.start = 0, .end = UINTPTR_MAX, .mr = &mr};
	/* every second piece of memory, so that no two are next to each other */
	for (uintptr_t i = 0; i < PIECES; i++) {
		iov[i] = (struct iovec){.iov_base = (void *)((2 * i + 1) * PIECE), .iov_len = PIECE};
	}
	return 0;
}

static int teardown(void)
{
	free(pd.table);
	free(r);
	return 0;
}

static unsigned pool_left(void)
{
	unsigned n = 0;

	for (const struct nvmf_rdma_data_wr *m = group.free_data_wrs; m != NULL; m = m->next_free) {
		n++;
	}
	return n;
}

static int build(enum ibv_wr_opcode opcode, int sges, int read_sges, unsigned in_pool)
{
	device.sges = sges;
	device.read_sges = read_sges;
	group.free_data_wrs = NULL;
	for (unsigned i = 0; i < in_pool; i++) {
		pool[i].next_free = group.free_data_wrs;
		group.free_data_wrs = &pool[i];
	}
	memset(r, 0, sizeof(*r));
	r->qp = &qp;
	r->data_wr.sg_list = r->data_sge;
	r->req.iov = iov;
	r->req.iovcnt = PIECES;
	r->req.length = PIECES * PIECE;
	r->req.sgl = (struct nvmf_sgl){.kind = NVMF_SGL_KEYED, .num_descs = 1, .length = r->req.length, .sgl1 = &keyed};
	return nvmf_rdma_data_build(r, opcode);
}

struct nvmf_sgl_iter nvmf_sgl_iter(const struct nvmf_sgl *sgl)
{
	static const uint8_t one;

	return (struct nvmf_sgl_iter){.next = &one, .end = &one + 1};
}

bool nvmf_sgl_next(struct nvmf_sgl_iter *it, struct nvmf_sgl_block *block)
{
	*block = (struct nvmf_sgl_block){.address = HOST, .length = PIECES * PIECE, .key = KEY};
	return it->next++ < it->end;
}

/* Every byte is named once, in order, by work requests of at most `sges` pieces each. */
static void check(enum ibv_wr_opcode opcode, int sges, unsigned wrs)
{
	uint64_t at = HOST;
	unsigned n = 0, piece = 0;

	CU_ASSERT_EQUAL(r->data_wrs, wrs);
	for (const struct ibv_send_wr *wr = &r->data_wr; wr != NULL; wr = wr->next, n++) {
		CU_ASSERT_EQUAL(wr->opcode, opcode);
		CU_ASSERT_EQUAL(wr->wr.rdma.remote_addr, at);
		CU_ASSERT_EQUAL(wr->wr.rdma.rkey, KEY);
		CU_ASSERT_FATAL(wr->num_sge > 0 && wr->num_sge <= sges);
		for (int i = 0; i < wr->num_sge; i++, piece++) {
			CU_ASSERT_FATAL(piece < PIECES);
			CU_ASSERT_EQUAL(wr->sg_list[i].addr, (uintptr_t)iov[piece].iov_base);
			CU_ASSERT_EQUAL(wr->sg_list[i].length, PIECE);
			CU_ASSERT_EQUAL(wr->sg_list[i].lkey, mr.lkey);
			at += wr->sg_list[i].length;
		}
	}
	CU_ASSERT_EQUAL(n, wrs);
	CU_ASSERT_EQUAL(piece, PIECES);
}

static void test_one_work_request_where_the_device_takes_all_pieces(void)
{
	CU_ASSERT_EQUAL_FATAL(build(IBV_WR_RDMA_READ, NVMF_RDMA_MAX_SGE, NVMF_RDMA_MAX_SGE, 0), 0);
	check(IBV_WR_RDMA_READ, NVMF_RDMA_MAX_SGE, 1);
}

static void test_a_read_over_iwarp_has_one_piece_and_a_write_has_more(void)
{
	CU_ASSERT_EQUAL_FATAL(build(IBV_WR_RDMA_READ, 6, 1, POOL), 0);
	check(IBV_WR_RDMA_READ, 1, PIECES);
	CU_ASSERT_EQUAL(pool_left(), POOL - (PIECES - 1));
	nvmf_rdma_data_release(r);
	CU_ASSERT_EQUAL(pool_left(), POOL);

	CU_ASSERT_EQUAL_FATAL(build(IBV_WR_RDMA_WRITE, 6, 1, POOL), 0);
	check(IBV_WR_RDMA_WRITE, 6, 3);
	nvmf_rdma_data_release(r);
	CU_ASSERT_EQUAL(pool_left(), POOL);
}

static void test_a_pool_with_too_few_gets_back_what_was_taken(void)
{
	CU_ASSERT_EQUAL(build(IBV_WR_RDMA_READ, 6, 1, PIECES - 2), -EAGAIN);
	CU_ASSERT_EQUAL(r->data_wrs, 0);
	CU_ASSERT_EQUAL(pool_left(), PIECES - 2);
}

static const struct unit_test tests[] = {
	UNIT(test_one_work_request_where_the_device_takes_all_pieces),
	UNIT(test_a_read_over_iwarp_has_one_piece_and_a_write_has_more),
	UNIT(test_a_pool_with_too_few_gets_back_what_was_taken),
	UNIT_END,
};
UNIT_MAIN("nvmf_rdma_data", tests, setup, teardown)

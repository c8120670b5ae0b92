/* SPDX-License-Identifier: BSD-3-Clause */
/* Every type of work request: the data arrive whole, where they should, and the completions say what was
 * done. */
#include "unittest/softverbs/sides.h"

#include <errno.h>
#include <arpa/inet.h>

static void test_send_arrives_whole(void)
{
	static const uint32_t sizes[] = {1, 63, 64, 1024, 4096, 4097, 65536, 1 << 20};
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		fill(&(struct area){.len = sizes[i], .seed = i});
		CU_ASSERT_EQUAL(FAR(post_recv, &((struct rr){.wr_id = 7 + i, .n = 1, .p = {{128, 1 << 20, 0}}})), 0);
		CU_ASSERT_EQUAL(post_send(&(struct sr){.opcode = IBV_WR_SEND,
						       .flags = IBV_SEND_SIGNALED,
						       .wr_id = 100 + i,
						       .n = 1,
						       .p = {{0, sizes[i], 0}}}),
				0);
		struct ibv_wc s = wait_send_wc(), r = far_recv_wc();
		ASSERT_STATUS(s.status, IBV_WC_SUCCESS);
		CU_ASSERT_EQUAL(s.opcode, IBV_WC_SEND);
		CU_ASSERT_EQUAL(s.wr_id, 100 + i);
		CU_ASSERT_EQUAL(s.qp_num, me.qp->qp_num);
		ASSERT_STATUS(r.status, IBV_WC_SUCCESS);
		CU_ASSERT_EQUAL(r.opcode, IBV_WC_RECV);
		CU_ASSERT_EQUAL(r.wr_id, 7 + i);
		CU_ASSERT_EQUAL(r.byte_len, sizes[i]);
		CU_ASSERT_EQUAL(r.qp_num, me.other.qpn);
		CU_ASSERT_EQUAL(r.wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV), 0);
		CU_ASSERT_EQUAL(FAR(check, &((struct area){.off = 128, .len = sizes[i], .seed = i})), 0);
	}
	pair_close();
}

static void test_send_with_immediate_carries_it(void)
{
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	CU_ASSERT_EQUAL(FAR(post_recv, &((struct rr){.n = 1, .p = {{0, 64, 0}}})), 0);
	CU_ASSERT_EQUAL(post_send(&(struct sr){.opcode = IBV_WR_SEND_WITH_IMM,
					       .flags = IBV_SEND_SIGNALED,
					       .imm = htonl(0x01020304),
					       .n = 1,
					       .p = {{0, 8, 0}}}),
			0);
	struct ibv_wc r = far_recv_wc();
	ASSERT_STATUS(r.status, IBV_WC_SUCCESS);
	CU_ASSERT_EQUAL(r.opcode, IBV_WC_RECV);
	CU_ASSERT_EQUAL(r.byte_len, 8);
	CU_ASSERT_TRUE(r.wc_flags & IBV_WC_WITH_IMM);
	CU_ASSERT_EQUAL(ntohl(r.imm_data), 0x01020304);
	CU_ASSERT_EQUAL(wait_send_wc().opcode, IBV_WC_SEND);
	pair_close();
}

static void test_write_changes_exactly_its_bytes(void)
{
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	FAR(fill, &((struct area){.len = 8192, .seed = 1}));
	fill(&(struct area){.off = 5, .len = 3000, .seed = 2});
	CU_ASSERT_EQUAL(post_send(&(struct sr){.opcode = IBV_WR_RDMA_WRITE,
					       .flags = IBV_SEND_SIGNALED,
					       .remote_addr = FAR_ADDR(1001),
					       .rkey = FAR_RKEY,
					       .n = 1,
					       .p = {{5, 3000, 0}}}),
			0);
	struct ibv_wc s = wait_send_wc();
	ASSERT_STATUS(s.status, IBV_WC_SUCCESS);
	CU_ASSERT_EQUAL(s.opcode, IBV_WC_RDMA_WRITE);
	CU_ASSERT_EQUAL(FAR(check, &((struct area){.off = 1001, .len = 3000, .seed = 2})), 0);
	CU_ASSERT_EQUAL(FAR(check, &((struct area){.len = 1001, .seed = 1})), 0);
	CU_ASSERT_EQUAL(FAR(check, &((struct area){.off = 4001, .len = 4191, .seed = 1, .from = 4001})), 0);
	CU_ASSERT_EQUAL(FAR(poll_wc, &((struct wcs){.recv = true, .n = 1})), 0);
	pair_close();
}

static void test_write_with_immediate_takes_a_receive(void)
{
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	CU_ASSERT_EQUAL(FAR(post_recv, &((struct rr){.wr_id = 9})), 0); /* with no buffer: none is needed */
	fill(&(struct area){.len = 5000, .seed = 4});
	CU_ASSERT_EQUAL(post_send(&(struct sr){.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
					       .flags = IBV_SEND_SIGNALED,
					       .imm = htonl(77),
					       .remote_addr = FAR_ADDR(0),
					       .rkey = FAR_RKEY,
					       .n = 1,
					       .p = {{0, 5000, 0}}}),
			0);
	struct ibv_wc r = far_recv_wc(), s = wait_send_wc();
	CU_ASSERT_EQUAL(s.opcode, IBV_WC_RDMA_WRITE);
	ASSERT_STATUS(r.status, IBV_WC_SUCCESS);
	CU_ASSERT_EQUAL(r.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	CU_ASSERT_EQUAL(r.wr_id, 9);
	CU_ASSERT_EQUAL(r.byte_len, 5000);
	CU_ASSERT_TRUE(r.wc_flags & IBV_WC_WITH_IMM);
	CU_ASSERT_EQUAL(ntohl(r.imm_data), 77);
	CU_ASSERT_EQUAL(FAR(check, &((struct area){.len = 5000, .seed = 4})), 0);
	pair_close();
}

static void test_read_fetches_the_far_bytes(void)
{
	static const uint32_t sizes[] = {1, 64, 4095, 70000, 1 << 20};
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		FAR(fill, &((struct area){.off = 3, .len = sizes[i], .seed = 10 + i}));
		CU_ASSERT_EQUAL(post_send(&(struct sr){.opcode = IBV_WR_RDMA_READ,
						       .flags = IBV_SEND_SIGNALED,
						       .remote_addr = FAR_ADDR(3),
						       .rkey = FAR_RKEY,
						       .n = 1,
						       .p = {{100, sizes[i], 0}}}),
				0);
		struct ibv_wc s = wait_send_wc();
		ASSERT_STATUS(s.status, IBV_WC_SUCCESS);
		CU_ASSERT_EQUAL(s.opcode, IBV_WC_RDMA_READ);
		CU_ASSERT_EQUAL(s.byte_len, sizes[i]);
		CU_ASSERT_EQUAL(check(&(struct area){.off = 100, .len = sizes[i], .seed = 10 + i}), 0);
	}
	pair_close();
}

static long set_word(uint64_t *value)
{
	memcpy(me.buf, value, 8);
	return 0;
}

static long get_word(uint64_t *value)
{
	memcpy(value, me.buf, 8);
	return 0;
}

static enum ibv_atomic_cap atomic_cap(void)
{
	struct ibv_device_attr a;
	return ibv_query_device(me.context, &a) == 0 ? a.atomic_cap : IBV_ATOMIC_NONE;
}

static void test_atomics_swap_and_add(void)
{
	uint64_t word = 40;
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	if (atomic_cap() == IBV_ATOMIC_NONE) {
		pair_close();
		UNIT_SKIP("the device says that it has no atomic operations");
	}
	FAR(set_word, &word);
	struct sr r = {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		       .flags = IBV_SEND_SIGNALED,
		       .remote_addr = FAR_ADDR(0),
		       .rkey = FAR_RKEY,
		       .compare_add = 2,
		       .n = 1,
		       .p = {{64, 8, 0}}};
	CU_ASSERT_EQUAL(post_send(&r), 0);
	struct ibv_wc s = wait_send_wc();
	ASSERT_STATUS(s.status, IBV_WC_SUCCESS);
	CU_ASSERT_EQUAL(s.opcode, IBV_WC_FETCH_ADD);
	CU_ASSERT_EQUAL(*(uint64_t *)(me.buf + 64), 40);
	r.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	r.compare_add = 42;
	r.swap = 99;
	CU_ASSERT_EQUAL(post_send(&r), 0);
	s = wait_send_wc();
	ASSERT_STATUS(s.status, IBV_WC_SUCCESS);
	CU_ASSERT_EQUAL(s.opcode, IBV_WC_COMP_SWAP);
	CU_ASSERT_EQUAL(*(uint64_t *)(me.buf + 64), 42);
	CU_ASSERT_EQUAL(post_send(&r), 0); /* does not compare now */
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_SUCCESS);
	CU_ASSERT_EQUAL(*(uint64_t *)(me.buf + 64), 99);
	FAR(get_word, &word);
	CU_ASSERT_EQUAL(word, 99);
	pair_close();
}

static void test_atomics_are_refused_where_the_device_has_none(void)
{
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	if (atomic_cap() != IBV_ATOMIC_NONE) {
		pair_close();
		UNIT_SKIP("the device has atomic operations");
	}
	CU_ASSERT_NOT_EQUAL(post_send(&(struct sr){.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
						   .remote_addr = FAR_ADDR(0),
						   .rkey = FAR_RKEY,
						   .n = 1,
						   .p = {{64, 8, 0}}}),
			    0);
	pair_close();
}

/* --- windows, and what invalidates them */

struct window {                  /* what the far side does with its window, and what comes of it */
	bool without_bind_right; /* of its region */
	uint32_t bytes;          /* bound, from the buffer's start */
	uint32_t rkey;           /* out */
	int status;              /* out: of the bind or the invalidation */
};
static struct {
	struct ibv_mr *mr;
	struct ibv_mw *mw;
} window;

static int window_post(struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	wr->send_flags = IBV_SEND_SIGNALED;
	int rc = ibv_post_send(me.qp, wr, &bad);
	return rc != 0 ? -rc : (int)wait_send_wc().status;
}

static long window_bind(struct window *w)
{
	int bind = w->without_bind_right ? 0 : IBV_ACCESS_MW_BIND;
	window.mr = ibv_reg_mr(me.pd, me.buf, 65536, IBV_ACCESS_LOCAL_WRITE | bind);
	window.mw = ibv_alloc_mw(me.pd, IBV_MW_TYPE_2);
	if (window.mr == NULL || window.mw == NULL) {
		return -errno;
	}
	struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW,
				 .bind_mw = {.mw = window.mw,
					     .rkey = ibv_inc_rkey(window.mw->rkey),
					     .bind_info = {.mr = window.mr,
							   .addr = (uintptr_t)me.buf,
							   .length = w->bytes,
							   .mw_access_flags = IBV_ACCESS_REMOTE_WRITE}}};
	w->rkey = wr.bind_mw.rkey;
	w->status = window_post(&wr);
	return w->status < 0 ? w->status : 0;
}

static long window_invalidate(struct window *w)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = w->rkey};
	w->status = window_post(&wr);
	return w->status < 0 ? w->status : 0;
}

static long window_close(int *unused)
{
	int rc = ibv_dealloc_mw(window.mw), rc2 = ibv_dereg_mr(window.mr);
	return -(rc != 0 ? rc : rc2);
}

static struct ibv_wc write_through(uint32_t rkey, uint32_t off, uint32_t len)
{
	struct sr w = {.opcode = IBV_WR_RDMA_WRITE,
		       .flags = IBV_SEND_SIGNALED,
		       .remote_addr = FAR_ADDR(off),
		       .rkey = rkey,
		       .n = 1,
		       .p = {{0, len, 0}}};
	CU_ASSERT_EQUAL(post_send(&w), 0);
	return wait_send_wc();
}

static void test_window_opens_its_bytes(void)
{
	struct window w = {.bytes = 4096};
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	CU_ASSERT_EQUAL(FAR(window_bind, &w), 0);
	ASSERT_STATUS(w.status, IBV_WC_SUCCESS);
	fill(&(struct area){.len = 4096, .seed = 70});
	ASSERT_STATUS(write_through(w.rkey, 0, 4096).status, IBV_WC_SUCCESS);
	CU_ASSERT_EQUAL(FAR(check, &((struct area){.len = 4096, .seed = 70})), 0);
	CU_ASSERT_EQUAL(FAR(window_close, &(int){0}), 0);
	pair_close();
}

static void test_write_one_byte_beyond_the_window_is_a_remote_access_error(void)
{
	struct window w = {.bytes = 4096};
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	CU_ASSERT_EQUAL(FAR(window_bind, &w), 0);
	ASSERT_STATUS(write_through(w.rkey, 1, 4096).status, IBV_WC_REM_ACCESS_ERR);
	CU_ASSERT_EQUAL(FAR(window_close, &(int){0}), 0);
	pair_close();
}

static void test_window_on_a_region_without_the_right_is_a_bind_error(void)
{
	struct window w = {.bytes = 4096, .without_bind_right = true};
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	CU_ASSERT_EQUAL(FAR(window_bind, &w), 0);
	ASSERT_STATUS(w.status, IBV_WC_MW_BIND_ERR);
	CU_ASSERT_EQUAL(FAR(window_close, &(int){0}), 0);
	pair_close();
}

static void test_send_with_invalidate_ends_the_windows_rkey(void)
{
	struct window w = {.bytes = 4096};
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	CU_ASSERT_EQUAL(FAR(window_bind, &w), 0);
	ASSERT_STATUS(write_through(w.rkey, 0, 64).status, IBV_WC_SUCCESS);
	CU_ASSERT_EQUAL(FAR(post_recv, &((struct rr){.n = 1, .p = {{8192, 64, 0}}})), 0);
	CU_ASSERT_EQUAL(post_send(&(struct sr){.opcode = IBV_WR_SEND_WITH_INV,
					       .flags = IBV_SEND_SIGNALED,
					       .imm = w.rkey,
					       .n = 1,
					       .p = {{0, 16, 0}}}),
			0);
	struct ibv_wc r = far_recv_wc();
	ASSERT_STATUS(r.status, IBV_WC_SUCCESS);
	CU_ASSERT_EQUAL(r.byte_len, 16);
	if (known_difference("the flag IBV_WC_WITH_INV") == NULL) {
		CU_ASSERT_TRUE(r.wc_flags & IBV_WC_WITH_INV);
		CU_ASSERT_EQUAL(r.invalidated_rkey, w.rkey);
	}
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_SUCCESS);
	ASSERT_STATUS(write_through(w.rkey, 0, 64).status, IBV_WC_REM_ACCESS_ERR);
	CU_ASSERT_EQUAL(FAR(window_close, &(int){0}), 0);
	pair_close();
}

static void test_local_invalidate_ends_the_windows_rkey(void)
{
	struct window w = {.bytes = 4096};
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	CU_ASSERT_EQUAL(FAR(window_bind, &w), 0);
	CU_ASSERT_EQUAL(FAR(window_invalidate, &w), 0);
	ASSERT_STATUS(w.status, IBV_WC_SUCCESS);
	ASSERT_STATUS(write_through(w.rkey, 0, 64).status, IBV_WC_REM_ACCESS_ERR);
	CU_ASSERT_EQUAL(FAR(window_close, &(int){0}), 0);
	pair_close();
}

/* A key that is nobody's, and that of a region: what ibv_reg_mr() registers cannot be invalidated (IBTA volume
 * 1, 10.6.5). */
static void invalidate_in_vain(uint32_t key_change)
{
	if (!pair_open_plain()) {
		return;
	}
	CU_ASSERT_EQUAL(FAR(post_recv, &((struct rr){.n = 1, .p = {{0, 64, 0}}})), 0);
	CU_ASSERT_EQUAL(post_send(&(struct sr){.opcode = IBV_WR_SEND_WITH_INV,
					       .flags = IBV_SEND_SIGNALED,
					       .imm = FAR_RKEY ^ key_change,
					       .n = 1,
					       .p = {{0, 16, 0}}}),
			0);
	CU_ASSERT_NOT_EQUAL(far_recv_wc().status, IBV_WC_SUCCESS);
	wait_send_wc(); /* may already have been acknowledged as a good one (a class J fault, IBTA volume 1, 9.9.3) */
	CU_ASSERT_EQUAL(FAR(qp_state, &(int){0}), IBV_QPS_ERR);
	pair_close();
}

static void test_send_with_invalidate_of_a_wrong_rkey_is_an_error_there(void)
{
	TEST_BEGIN();
	invalidate_in_vain(0x5a5a5a00);
}

static void test_send_with_invalidate_of_a_region_is_an_error_there(void)
{
	TEST_BEGIN();
	invalidate_in_vain(0);
}

/* --- scatter, gather, and nothing at all */

static const struct piece split_a[] = {{0, 1, 0}, {100, 4095, 0}, {9000, 0, 0}, {10000, 4000, 0}}; /* 8096 bytes */
static const struct piece split_b[] = {{50000, 3000, 0}, {60000, 2, 0}, {70000, 5000, 0}, {80000, 1000, 0}};
enum { SPLIT_BYTES = 8096 };

static long fill_split_a(struct area *a)
{
	uint8_t whole[SPLIT_BYTES];
	uint32_t at = 0;
	fill(&(struct area){.off = 200000, .len = SPLIT_BYTES, .seed = a->seed});
	memcpy(whole, me.buf + 200000, SPLIT_BYTES);
	for (int i = 0; i < 4; i++) {
		memcpy(me.buf + split_a[i].off, whole + at, split_a[i].len);
		at += split_a[i].len;
	}
	return 0;
}

static long check_split_b(struct area *a)
{
	uint32_t at = 0;
	memset(me.buf + 300000, 0, SPLIT_BYTES);
	for (int i = 0; i < 4; i++) {
		uint32_t n = split_b[i].len < SPLIT_BYTES - at ? split_b[i].len : SPLIT_BYTES - at;
		memcpy(me.buf + 300000 + at, me.buf + split_b[i].off, n);
		at += n;
	}
	return check(&(struct area){.off = 300000, .len = SPLIT_BYTES, .seed = a->seed});
}

static void test_send_gathers_and_receive_scatters(void)
{
	struct rr r = {.n = 4};
	struct sr s = {.opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED, .n = 4};
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	memcpy(r.p, split_b, sizeof(split_b));
	memcpy(s.p, split_a, sizeof(split_a));
	fill_split_a(&(struct area){.seed = 20});
	CU_ASSERT_EQUAL(FAR(post_recv, &r), 0);
	CU_ASSERT_EQUAL(post_send(&s), 0);
	CU_ASSERT_EQUAL(far_recv_wc().byte_len, SPLIT_BYTES);
	CU_ASSERT_EQUAL(FAR(check_split_b, &((struct area){.seed = 20})), 0);
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_SUCCESS);
	pair_close();
}

static void test_write_gathers(void)
{
	struct sr s = {.opcode = IBV_WR_RDMA_WRITE, .flags = IBV_SEND_SIGNALED, .n = 4};
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	memcpy(s.p, split_a, sizeof(split_a));
	s.remote_addr = FAR_ADDR(4000);
	s.rkey = FAR_RKEY;
	fill_split_a(&(struct area){.seed = 21});
	CU_ASSERT_EQUAL(post_send(&s), 0);
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_SUCCESS);
	CU_ASSERT_EQUAL(FAR(check, &((struct area){.off = 4000, .len = SPLIT_BYTES, .seed = 21})), 0);
	pair_close();
}

static void test_read_scatters(void)
{
	struct sr s = {.opcode = IBV_WR_RDMA_READ, .flags = IBV_SEND_SIGNALED, .n = 4};
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	memcpy(s.p, split_b, sizeof(split_b));
	s.p[3].len = SPLIT_BYTES - 3000 - 2 - 5000;
	s.remote_addr = FAR_ADDR(4000);
	s.rkey = FAR_RKEY;
	FAR(fill, &((struct area){.off = 4000, .len = SPLIT_BYTES, .seed = 22}));
	CU_ASSERT_EQUAL(post_send(&s), 0);
	CU_ASSERT_EQUAL(wait_send_wc().byte_len, SPLIT_BYTES);
	CU_ASSERT_EQUAL(check_split_b(&(struct area){.seed = 22}), 0);
	pair_close();
}

static void test_zero_length_messages_complete(void)
{
	static const struct {
		enum ibv_wr_opcode op;
		enum ibv_wc_opcode near;
		bool takes_receive;
	} rows[] = {
		{IBV_WR_SEND, IBV_WC_SEND, true},
		{IBV_WR_SEND_WITH_IMM, IBV_WC_SEND, true},
		{IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, false},
		{IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE, true},
		{IBV_WR_RDMA_READ, IBV_WC_RDMA_READ, false},
	};
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		for (uint32_t n = 0; n < 2; n++) { /* without a list, and with one of an empty piece */
			if (rows[i].takes_receive) {
				CU_ASSERT_EQUAL(FAR(post_recv, &((struct rr){.n = n, .p = {{0, 0, 0}}})), 0);
			}
			CU_ASSERT_EQUAL(post_send(&(struct sr){.opcode = rows[i].op,
							       .flags = IBV_SEND_SIGNALED,
							       .remote_addr = FAR_ADDR(0),
							       .rkey = FAR_RKEY,
							       .n = n}),
					0);
			struct ibv_wc s = wait_send_wc();
			ASSERT_STATUS(s.status, IBV_WC_SUCCESS);
			CU_ASSERT_EQUAL(s.opcode, rows[i].near);
			if (rows[i].takes_receive) {
				struct ibv_wc r = far_recv_wc();
				ASSERT_STATUS(r.status, IBV_WC_SUCCESS);
				CU_ASSERT_EQUAL(r.byte_len, 0);
			}
		}
	}
	pair_close();
}

/* IBTA volume 1, 9.7.4.1: the rkey of a request whose length is zero is not checked. */
static void test_zero_length_write_and_read_do_not_check_the_rkey(void)
{
	TEST_BEGIN();
	if (!pair_open_plain()) {
		return;
	}
	struct sr s = {.opcode = IBV_WR_RDMA_WRITE, .flags = IBV_SEND_SIGNALED};
	CU_ASSERT_EQUAL(post_send(&s), 0);
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_SUCCESS);
	s.opcode = IBV_WR_RDMA_READ;
	CU_ASSERT_EQUAL(post_send(&s), 0);
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_SUCCESS);
	pair_close();
}

/* --- inline */

static void test_inline_data_are_taken_when_posted(void)
{
	TEST_BEGIN();
	if (!pair_open(&(struct side_options){.inline_bytes = 64}, NULL)) {
		return;
	}
	fill(&(struct area){.len = 64, .seed = 30});
	/* The receive comes last, so nothing can have been sent when the buffer changes; the lkey is not
	 * looked at. */
	CU_ASSERT_EQUAL(post_send(&(struct sr){.opcode = IBV_WR_SEND,
					       .flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
					       .n = 2,
					       .p = {{0, 10, 0xdead}, {10, 54, 0xbeef}}}),
			0);
	memset(me.buf, 0, 64);
	CU_ASSERT_EQUAL(FAR(post_recv, &((struct rr){.n = 1, .p = {{0, 64, 0}}})), 0);
	CU_ASSERT_EQUAL(far_recv_wc().byte_len, 64);
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_SUCCESS);
	CU_ASSERT_EQUAL(FAR(check, &((struct area){.len = 64, .seed = 30})), 0);

	fill(&(struct area){.len = 64, .seed = 31});
	CU_ASSERT_EQUAL(post_send(&(struct sr){.opcode = IBV_WR_RDMA_WRITE,
					       .flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
					       .remote_addr = FAR_ADDR(4096),
					       .rkey = FAR_RKEY,
					       .n = 1,
					       .p = {{0, 64, 0xdead}}}),
			0);
	memset(me.buf, 0, 64);
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_SUCCESS);
	CU_ASSERT_EQUAL(FAR(check, &((struct area){.off = 4096, .len = 64, .seed = 31})), 0);
	pair_close();
}

static void test_inline_beyond_the_capability_is_refused(void)
{
	TEST_BEGIN();
	if (!pair_open(&(struct side_options){.inline_bytes = 64}, NULL)) {
		return;
	}
	CU_ASSERT_TRUE(me.options.inline_bytes >= 64); /* what the queue pair really has */
	struct sr s = {.opcode = IBV_WR_SEND,
		       .flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
		       .n = 1,
		       .p = {{0, me.options.inline_bytes + 1, 0}}};
	CU_ASSERT_NOT_EQUAL(post_send(&s), 0);
	CU_ASSERT_EQUAL(s.posted, 0);
	pair_close();
}

static const struct unit_test tests[] = {
	UNIT(test_send_arrives_whole),
	UNIT(test_send_with_immediate_carries_it),
	UNIT(test_write_changes_exactly_its_bytes),
	UNIT(test_write_with_immediate_takes_a_receive),
	UNIT(test_read_fetches_the_far_bytes),
	UNIT(test_atomics_swap_and_add),
	UNIT(test_atomics_are_refused_where_the_device_has_none),
	UNIT(test_window_opens_its_bytes),
	UNIT(test_write_one_byte_beyond_the_window_is_a_remote_access_error),
	UNIT(test_window_on_a_region_without_the_right_is_a_bind_error),
	UNIT(test_send_with_invalidate_ends_the_windows_rkey),
	UNIT(test_local_invalidate_ends_the_windows_rkey),
	UNIT(test_send_with_invalidate_of_a_region_is_an_error_there),
	UNIT(test_send_with_invalidate_of_a_wrong_rkey_is_an_error_there),
	UNIT(test_send_gathers_and_receive_scatters),
	UNIT(test_write_gathers),
	UNIT(test_read_scatters),
	UNIT(test_zero_length_messages_complete),
	UNIT(test_zero_length_write_and_read_do_not_check_the_rkey),
	UNIT(test_inline_data_are_taken_when_posted),
	UNIT(test_inline_beyond_the_capability_is_refused),
	UNIT_END,
};
SIDES_MAIN("softverbs_wr", tests)

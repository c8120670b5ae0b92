/* SPDX-License-Identifier: BSD-3-Clause */
/* What hosts send, good and bad: each wrong field is refused with its own status and place. */
#include "unittest/unit.h"
#include "nvmf/decode.h"

static struct nvme_sqe sqe;
static uint8_t icd[8192];
static uint16_t where;
static struct nvmf_sgl sgl;

static const struct nvmf_sgl_rules rdma_rules = {.in_capsule = true, .keyed = true, .max_descs = 16};

static void sqe_reset(uint8_t opcode)
{
	memset(&sqe, 0, sizeof(sqe));
	memset(icd, 0, sizeof(icd));
	memset(&sgl, 0, sizeof(sgl));
	where = 0x5555;
	sqe.opcode = opcode;
	sqe.flags = NVME_CMD_FLAGS_PSDT_SGL;
}

static uint16_t decode_sgl(bool to_target, uint32_t need)
{
	return nvmf_decode_sgl(&sqe, icd, 4096, &rdma_rules, to_target, need, &sgl, &where);
}

#define EXPECT_FAULT(call_, sct_, sc_, where_)                                                                         \
	do {                                                                                                           \
		CU_ASSERT_EQUAL(call_, NVME_ST_DNR(sct_, sc_));                                                        \
		CU_ASSERT_EQUAL(where, where_);                                                                        \
	} while (0)

/* ---- header ---- */

static void test_header_of_a_good_command_is_accepted(void)
{
	sqe_reset(nvme_cmd_read);
	CU_ASSERT_EQUAL(nvmf_decode_header(&sqe, sizeof(sqe), &where), 0);
	sqe.flags |= NVME_FUSE_FIRST;
	CU_ASSERT_EQUAL(nvmf_decode_header(&sqe, sizeof(sqe), &where), 0);
}

static void test_short_capsule_is_rejected(void)
{
	sqe_reset(nvme_cmd_read);
	EXPECT_FAULT(nvmf_decode_header(&sqe, 63, &where), GENERIC, DATA_XFER_ERROR, NVMF_WHERE_NOWHERE);
	EXPECT_FAULT(nvmf_decode_header(&sqe, 0, &where), GENERIC, DATA_XFER_ERROR, NVMF_WHERE_NOWHERE);
}

static void test_prp_command_is_rejected(void)
{
	static const uint8_t bad[] = {0x00, 0x80, 0xc0};

	for (size_t i = 0; i < sizeof(bad); i++) {
		sqe_reset(nvme_cmd_read);
		sqe.flags = bad[i];
		EXPECT_FAULT(nvmf_decode_header(&sqe, sizeof(sqe), &where), GENERIC, INVALID_FIELD, NVMF_WHERE(1, 6));
	}
}

static void test_reserved_fuse_is_rejected(void)
{
	sqe_reset(nvme_cmd_read);
	sqe.flags |= 3;
	EXPECT_FAULT(nvmf_decode_header(&sqe, sizeof(sqe), &where), GENERIC, INVALID_FIELD, NVMF_WHERE(1, 0));
}

static void test_fused_fabrics_command_is_rejected(void)
{
	sqe_reset(nvme_admin_fabrics);
	sqe.flags |= NVME_FUSE_FIRST;
	EXPECT_FAULT(nvmf_decode_header(&sqe, sizeof(sqe), &where), GENERIC, INVALID_FIELD, NVMF_WHERE(1, 0));
}

/* ---- SGLs ---- */

static void test_keyed_block_is_decoded(void)
{
	struct nvmf_sgl_block b;

	sqe_reset(nvme_cmd_read);
	sqe.sgl1 = nvme_sgl_make_keyed(0x1122334455667788, 0x00abcdef, 0xdeadbeef, NVME_SGL_SUBTYPE_INVALIDATE_KEY);
	CU_ASSERT_EQUAL(decode_sgl(false, 4096), 0);
	CU_ASSERT_EQUAL(sgl.kind, NVMF_SGL_KEYED);
	CU_ASSERT_EQUAL(sgl.length, 0xabcdef);
	struct nvmf_sgl_iter it = nvmf_sgl_iter(&sgl);
	CU_ASSERT_TRUE(nvmf_sgl_next(&it, &b));
	CU_ASSERT_EQUAL(b.address, 0x1122334455667788);
	CU_ASSERT_EQUAL(b.length, 0xabcdef);
	CU_ASSERT_EQUAL(b.key, 0xdeadbeef);
	CU_ASSERT_TRUE(b.invalidate);
	CU_ASSERT_FALSE(nvmf_sgl_next(&it, &b));
}

static void test_in_capsule_data_is_decoded(void)
{
	sqe_reset(nvme_cmd_write);
	sqe.sgl1 = nvme_sgl_make_plain(NVME_SGL_TYPE_DATA_BLOCK, NVME_SGL_SUBTYPE_OFFSET, 512, 3584);
	CU_ASSERT_EQUAL(decode_sgl(true, 3584), 0);
	CU_ASSERT_EQUAL(sgl.kind, NVMF_SGL_IN_CAPSULE);
	CU_ASSERT_EQUAL(sgl.icd_offset, 512);
	CU_ASSERT_EQUAL(sgl.length, 3584);
}

static void test_in_capsule_data_beyond_the_capsule_is_rejected(void)
{
	sqe_reset(nvme_cmd_write);
	sqe.sgl1 = nvme_sgl_make_plain(NVME_SGL_TYPE_DATA_BLOCK, NVME_SGL_SUBTYPE_OFFSET, 513, 3584);
	EXPECT_FAULT(decode_sgl(true, 512), GENERIC, SGL_INVALID_DATA, NVMF_WHERE_SGL_LENGTH);
	sqe.sgl1 = nvme_sgl_make_plain(NVME_SGL_TYPE_DATA_BLOCK, NVME_SGL_SUBTYPE_OFFSET, 4097, 0);
	EXPECT_FAULT(decode_sgl(true, 1), GENERIC, SGL_INVALID_OFFSET, NVMF_WHERE_SGL_ADDRESS);
	sqe.sgl1 = nvme_sgl_make_plain(NVME_SGL_TYPE_DATA_BLOCK, NVME_SGL_SUBTYPE_OFFSET, UINT64_MAX, UINT32_MAX);
	EXPECT_FAULT(decode_sgl(true, 1), GENERIC, SGL_INVALID_OFFSET, NVMF_WHERE_SGL_ADDRESS);
}

static void test_in_capsule_descriptor_for_a_read_is_rejected(void)
{
	sqe_reset(nvme_cmd_read);
	sqe.sgl1 = nvme_sgl_make_plain(NVME_SGL_TYPE_DATA_BLOCK, NVME_SGL_SUBTYPE_OFFSET, 0, 512);
	EXPECT_FAULT(decode_sgl(false, 512), GENERIC, SGL_INVALID_TYPE, NVMF_WHERE_SGL_TYPE);
}

static void test_sgl_shorter_than_the_transfer_is_rejected(void)
{
	sqe_reset(nvme_cmd_read);
	sqe.sgl1 = nvme_sgl_make_keyed(0, 4095, 1, NVME_SGL_SUBTYPE_ADDRESS);
	EXPECT_FAULT(decode_sgl(false, 4096), GENERIC, SGL_INVALID_DATA, NVMF_WHERE_SGL_LENGTH);
	sqe.sgl1 = nvme_sgl_make_keyed(0, 0, 1, NVME_SGL_SUBTYPE_ADDRESS);
	EXPECT_FAULT(decode_sgl(false, 1), GENERIC, SGL_INVALID_DATA, NVMF_WHERE_SGL_LENGTH);
}

static void test_unknown_sgl_types_are_rejected(void)
{
	/* Every type and subtype byte but those that RDMA has for a write. */
	for (unsigned type = 0; type < 256; type++) {
		if (type == 0x01 || type == 0x40 || type == 0x4f || type == 0x21 || type == 0x31) {
			continue;
		}
		sqe_reset(nvme_cmd_write);
		sqe.sgl1.bytes[15] = (uint8_t)type;
		EXPECT_FAULT(decode_sgl(true, 1), GENERIC, SGL_INVALID_TYPE, NVMF_WHERE_SGL_TYPE);
	}
}

static void test_transport_block_is_for_transports_that_have_it(void)
{
	struct nvmf_sgl_rules tcp = {.in_capsule = true, .transport = true, .max_descs = 1};

	sqe_reset(nvme_cmd_read);
	sqe.sgl1 = nvme_sgl_make_plain(NVME_SGL_TYPE_TRANSPORT_DATA_BLOCK, NVME_SGL_SUBTYPE_TRANSPORT, 0, 4096);
	CU_ASSERT_EQUAL(nvmf_decode_sgl(&sqe, icd, 0, &tcp, false, 4096, &sgl, &where), 0);
	CU_ASSERT_EQUAL(sgl.kind, NVMF_SGL_TRANSPORT);
	sqe.sgl1 = nvme_sgl_make_keyed(0, 4096, 1, NVME_SGL_SUBTYPE_ADDRESS);
	EXPECT_FAULT(nvmf_decode_sgl(&sqe, icd, 0, &tcp, false, 4096, &sgl, &where), GENERIC, SGL_INVALID_TYPE,
		     NVMF_WHERE_SGL_TYPE);
}

static void put_desc(size_t offset, union nvme_sgl_desc d)
{
	memcpy(icd + offset, &d, sizeof(d));
}

static void sgl1_list(enum nvme_sgl_type type, uint64_t offset, uint32_t length)
{
	sqe_reset(nvme_cmd_write);
	sqe.sgl1 = nvme_sgl_make_plain(type, NVME_SGL_SUBTYPE_OFFSET, offset, length);
}

static void test_list_of_keyed_blocks_is_walked(void)
{
	struct nvmf_sgl_block b;
	unsigned n = 0;

	sgl1_list(NVME_SGL_TYPE_LAST_SEGMENT, 64, 3 * 16);
	for (unsigned i = 0; i < 3; i++) {
		put_desc(64 + i * 16, nvme_sgl_make_keyed(0x1000 * i, 4096 + i, i, NVME_SGL_SUBTYPE_ADDRESS));
	}
	CU_ASSERT_EQUAL(decode_sgl(true, 12288), 0);
	CU_ASSERT_EQUAL(sgl.num_descs, 3);
	CU_ASSERT_EQUAL(sgl.length, 12291);
	for (struct nvmf_sgl_iter it = nvmf_sgl_iter(&sgl); nvmf_sgl_next(&it, &b); n++) {
		CU_ASSERT_EQUAL(b.address, 0x1000 * n);
		CU_ASSERT_EQUAL(b.length, 4096 + n);
		CU_ASSERT_EQUAL(b.key, n);
	}
	CU_ASSERT_EQUAL(n, 3);
}

static void test_chained_segments_are_walked(void)
{
	struct nvmf_sgl_block b;
	uint64_t sum = 0;

	sgl1_list(NVME_SGL_TYPE_SEGMENT, 0, 2 * 16);
	put_desc(0, nvme_sgl_make_keyed(1, 100, 1, NVME_SGL_SUBTYPE_ADDRESS));
	put_desc(16, nvme_sgl_make_plain(NVME_SGL_TYPE_LAST_SEGMENT, NVME_SGL_SUBTYPE_OFFSET, 1024, 2 * 16));
	put_desc(1024, nvme_sgl_make_keyed(2, 200, 2, NVME_SGL_SUBTYPE_ADDRESS));
	put_desc(1040, nvme_sgl_make_keyed(3, 300, 3, NVME_SGL_SUBTYPE_ADDRESS));
	CU_ASSERT_EQUAL(decode_sgl(true, 600), 0);
	CU_ASSERT_EQUAL(sgl.num_descs, 3);
	for (struct nvmf_sgl_iter it = nvmf_sgl_iter(&sgl); nvmf_sgl_next(&it, &b);) {
		sum = sum * 10 + b.address;
	}
	CU_ASSERT_EQUAL(sum, 123);
}

static void test_segments_that_name_themselves_are_rejected(void)
{
	sgl1_list(NVME_SGL_TYPE_SEGMENT, 0, 16);
	put_desc(0, nvme_sgl_make_plain(NVME_SGL_TYPE_SEGMENT, NVME_SGL_SUBTYPE_OFFSET, 0, 16));
	EXPECT_FAULT(decode_sgl(true, 1), GENERIC, SGL_INVALID_COUNT, NVMF_WHERE_SGL_LENGTH);
}

static void test_segment_without_a_next_is_rejected(void)
{
	sgl1_list(NVME_SGL_TYPE_SEGMENT, 0, 16);
	put_desc(0, nvme_sgl_make_keyed(1, 100, 1, NVME_SGL_SUBTYPE_ADDRESS));
	EXPECT_FAULT(decode_sgl(true, 1), GENERIC, SGL_INVALID_LAST, NVMF_WHERE_SGL_TYPE);
}

static void test_last_segment_that_leads_on_is_rejected(void)
{
	sgl1_list(NVME_SGL_TYPE_LAST_SEGMENT, 0, 16);
	put_desc(0, nvme_sgl_make_plain(NVME_SGL_TYPE_LAST_SEGMENT, NVME_SGL_SUBTYPE_OFFSET, 16, 16));
	EXPECT_FAULT(decode_sgl(true, 1), GENERIC, SGL_INVALID_LAST, NVMF_WHERE_SGL_TYPE);
}

static void test_segment_in_the_middle_of_a_list_is_rejected(void)
{
	sgl1_list(NVME_SGL_TYPE_SEGMENT, 0, 32);
	put_desc(0, nvme_sgl_make_plain(NVME_SGL_TYPE_LAST_SEGMENT, NVME_SGL_SUBTYPE_OFFSET, 64, 16));
	put_desc(16, nvme_sgl_make_keyed(1, 100, 1, NVME_SGL_SUBTYPE_ADDRESS));
	EXPECT_FAULT(decode_sgl(true, 1), GENERIC, SGL_INVALID_COUNT, NVMF_WHERE_SGL_LENGTH);
}

static void test_list_outside_the_capsule_is_rejected(void)
{
	static const struct {
		uint64_t offset;
		uint32_t length;
	} bad[] = {{4096, 16}, {4088, 16}, {UINT64_MAX - 7, 16}, {0, 4096 + 16}};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		sgl1_list(NVME_SGL_TYPE_LAST_SEGMENT, bad[i].offset, bad[i].length);
		EXPECT_FAULT(decode_sgl(true, 1), GENERIC, SGL_INVALID_OFFSET, NVMF_WHERE_SGL_ADDRESS);
	}
}

/* What a transport does not have is no type of it. */
static void test_each_transport_takes_its_own_descriptors_only(void)
{
	static const struct nvmf_sgl_rules none = {.max_descs = 16},
					   tcp = {.in_capsule = true, .transport = true, .max_descs = 1};
	static const enum nvme_sgl_type types[] = {NVME_SGL_TYPE_DATA_BLOCK, NVME_SGL_TYPE_SEGMENT,
						   NVME_SGL_TYPE_LAST_SEGMENT, NVME_SGL_TYPE_TRANSPORT_DATA_BLOCK,
						   NVME_SGL_TYPE_KEYED_DATA_BLOCK};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		sqe.sgl1 = nvme_sgl_make_plain(
			types[i], types[i] == NVME_SGL_TYPE_KEYED_DATA_BLOCK ? 0 : NVME_SGL_SUBTYPE_OFFSET, 0, 16);
		EXPECT_FAULT(nvmf_decode_sgl(&sqe, icd, 4096, &none, true, 1, &sgl, &where), GENERIC, SGL_INVALID_TYPE,
			     NVMF_WHERE_SGL_TYPE);
	}
	sqe.sgl1 = nvme_sgl_make_plain(NVME_SGL_TYPE_TRANSPORT_DATA_BLOCK, NVME_SGL_SUBTYPE_ADDRESS, 0, 512);
	EXPECT_FAULT(nvmf_decode_sgl(&sqe, icd, 0, &tcp, true, 512, &sgl, &where), GENERIC, SGL_INVALID_TYPE,
		     NVMF_WHERE_SGL_TYPE);
	sqe.sgl1 = nvme_sgl_make_plain(NVME_SGL_TYPE_TRANSPORT_DATA_BLOCK, NVME_SGL_SUBTYPE_TRANSPORT, 0, 512);
	CU_ASSERT_EQUAL(nvmf_decode_sgl(&sqe, icd, 0, &tcp, true, 512, &sgl, &where), 0);
	CU_ASSERT_EQUAL(sgl.kind, NVMF_SGL_TRANSPORT);
}

static void test_list_with_other_than_keyed_blocks_is_rejected(void)
{
	sgl1_list(NVME_SGL_TYPE_LAST_SEGMENT, 0, 32);
	put_desc(0, nvme_sgl_make_keyed(1, 100, 1, NVME_SGL_SUBTYPE_ADDRESS));
	put_desc(16, nvme_sgl_make_plain(NVME_SGL_TYPE_DATA_BLOCK, NVME_SGL_SUBTYPE_OFFSET, 0, 16));
	EXPECT_FAULT(decode_sgl(true, 1), GENERIC, SGL_INVALID_TYPE, NVMF_WHERE_SGL_TYPE);
	put_desc(16, nvme_sgl_make_keyed(1, 100, 1, NVME_SGL_SUBTYPE_TRANSPORT));
	EXPECT_FAULT(decode_sgl(true, 1), GENERIC, SGL_INVALID_TYPE, NVMF_WHERE_SGL_TYPE);
}

static void test_authentication_commands_are_checked(void)
{
	static const struct {
		struct nvmf_auth_sqe sqe;
		uint16_t where; /* 0: good */
	} cases[] = {
		{{.secp = 0xe9, .spsp0 = 1, .spsp1 = 1, .length = 16}, 0},
		{{.secp = 0xe9, .spsp0 = 1, .spsp1 = 1, .length = 4096}, 0},
		{{.secp = 0xea, .spsp0 = 1, .spsp1 = 1, .length = 16}, 43},
		{{.secp = 0xe9, .spsp0 = 0, .spsp1 = 1, .length = 16}, 41},
		{{.secp = 0xe9, .spsp0 = 1, .spsp1 = 2, .length = 16}, 42},
		{{.secp = 0xe9, .spsp0 = 1, .spsp1 = 1, .length = 0}, 44},
		{{.secp = 0xe9, .spsp0 = 1, .spsp1 = 1, .length = 4097}, 44},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint32_t length;
		uint16_t status = nvmf_decode_auth(&cases[i].sqe, 4096, &length, &where);

		CU_ASSERT_EQUAL(status, cases[i].where == 0 ? 0 : NVME_ST_DNR(GENERIC, INVALID_FIELD));
		CU_ASSERT_EQUAL(where, cases[i].where);
	}
}

static void test_list_must_begin_at_a_multiple_of_eight(void)
{
	sgl1_list(NVME_SGL_TYPE_LAST_SEGMENT, 4, 16);
	EXPECT_FAULT(decode_sgl(true, 1), GENERIC, SGL_INVALID_LAST, NVMF_WHERE_SGL_ADDRESS);
}

static void test_list_length_must_be_whole_descriptors(void)
{
	sgl1_list(NVME_SGL_TYPE_LAST_SEGMENT, 0, 24);
	EXPECT_FAULT(decode_sgl(true, 1), GENERIC, SGL_INVALID_LAST, NVMF_WHERE_SGL_LENGTH);
	sgl1_list(NVME_SGL_TYPE_LAST_SEGMENT, 0, 0);
	EXPECT_FAULT(decode_sgl(true, 1), GENERIC, SGL_INVALID_LAST, NVMF_WHERE_SGL_LENGTH);
}

static void test_more_descriptors_than_msdbd_are_rejected(void)
{
	for (unsigned count = 16; count <= 17; count++) {
		sgl1_list(NVME_SGL_TYPE_LAST_SEGMENT, 0, count * 16);
		for (unsigned i = 0; i < count; i++) {
			put_desc(i * 16, nvme_sgl_make_keyed(i, 512, i, NVME_SGL_SUBTYPE_ADDRESS));
		}
		if (count == 16) {
			CU_ASSERT_EQUAL(decode_sgl(true, 8192), 0);
		} else {
			EXPECT_FAULT(decode_sgl(true, 8192), GENERIC, SGL_INVALID_COUNT, NVMF_WHERE_SGL_LENGTH);
		}
	}
}

static void test_lengths_of_a_list_do_not_wrap(void)
{
	sgl1_list(NVME_SGL_TYPE_LAST_SEGMENT, 0, 16 * 16);
	for (unsigned i = 0; i < 16; i++) {
		put_desc(i * 16, nvme_sgl_make_keyed(i, NVME_SGL_KEYED_LENGTH_MAX, i, NVME_SGL_SUBTYPE_ADDRESS));
	}
	CU_ASSERT_EQUAL(decode_sgl(true, 1), 0);
	CU_ASSERT_EQUAL(sgl.length, 16 * (uint64_t)NVME_SGL_KEYED_LENGTH_MAX);
}

/* ---- Connect ---- */

static struct nvmf_connect_sqe connect_sqe;
static struct nvmf_connect_data connect_data;
static struct nvmf_connect connect_out;
static struct nvmf_connect_fault fault;

static void connect_reset(void)
{
	memset(&connect_sqe, 0, sizeof(connect_sqe));
	memset(&connect_data, 0, sizeof(connect_data));
	connect_sqe.opcode = nvme_admin_fabrics;
	connect_sqe.fctype = nvme_fabrics_type_connect;
	connect_sqe.sqsize = htole16(31);
	connect_sqe.kato = htole32(15000);
	connect_data.cntlid = htole16(NVMF_CNTLID_DYNAMIC);
	memset(connect_data.hostid, 0xab, 16);
	strcpy(connect_data.subsysnqn, "nqn.2016-06.io.spdk:cnode1");
	strcpy(connect_data.hostnqn, "nqn.2014-08.org.nvmexpress:uuid:0a7b6f7c-0b5e-4d8c-b13a-6b0d0d0d0d0d");
}

static uint16_t decode_connect(void)
{
	return nvmf_decode_connect(&connect_sqe, &connect_data, sizeof(connect_data), &connect_out, &fault);
}

#define EXPECT_CONNECT_FAULT(sc_, iattr_, ipo_)                                                                        \
	do {                                                                                                           \
		CU_ASSERT_EQUAL(decode_connect(), NVME_ST_DNR(CMD_SPECIFIC, sc_));                                     \
		CU_ASSERT_EQUAL(fault.iattr, iattr_);                                                                  \
		CU_ASSERT_EQUAL(fault.ipo, ipo_);                                                                      \
	} while (0)

static void test_good_connect_is_decoded(void)
{
	connect_reset();
	connect_sqe.qid = htole16(3);
	connect_sqe.cattr = NVMF_CATTR_DISABLE_SQ_FLOW;
	connect_data.cntlid = htole16(0x1234);
	CU_ASSERT_EQUAL(decode_connect(), 0);
	CU_ASSERT_EQUAL(connect_out.qid, 3);
	CU_ASSERT_EQUAL(connect_out.sqsize, 32);
	CU_ASSERT_EQUAL(connect_out.kato_ms, 15000);
	CU_ASSERT_EQUAL(connect_out.cntlid, 0x1234);
	CU_ASSERT_TRUE(connect_out.no_sq_flow_control);
	CU_ASSERT_STRING_EQUAL(connect_out.subnqn, "nqn.2016-06.io.spdk:cnode1");
	CU_ASSERT_EQUAL(connect_out.hostid[15], 0xab);
}

static void test_connect_with_unknown_format_is_rejected(void)
{
	connect_reset();
	connect_sqe.recfmt = htole16(1);
	EXPECT_CONNECT_FAULT(CONNECT_FORMAT, 0, 40);
}

static void test_connect_with_short_data_is_rejected(void)
{
	connect_reset();
	CU_ASSERT_EQUAL(nvmf_decode_connect(&connect_sqe, &connect_data, 1023, &connect_out, &fault),
			NVME_ST_DNR(GENERIC, SGL_INVALID_DATA));
}

static void test_connect_with_queue_of_one_is_rejected(void)
{
	connect_reset();
	connect_sqe.sqsize = 0;
	EXPECT_CONNECT_FAULT(CONNECT_INVALID_PARAM, 0, 44);
}

static void test_connect_with_bad_subsystem_name_is_rejected(void)
{
	connect_reset();
	memset(connect_data.subsysnqn, 'a', sizeof(connect_data.subsysnqn));
	EXPECT_CONNECT_FAULT(CONNECT_INVALID_PARAM, 1, 256);
	memset(connect_data.subsysnqn, 0, sizeof(connect_data.subsysnqn));
	EXPECT_CONNECT_FAULT(CONNECT_INVALID_PARAM, 1, 256);
	strcpy(connect_data.subsysnqn, "nqn.2016-06.io.spdk:cnode\n");
	EXPECT_CONNECT_FAULT(CONNECT_INVALID_PARAM, 1, 256);
}

static void test_connect_with_bad_host_name_is_rejected(void)
{
	connect_reset();
	memset(connect_data.hostnqn, 'a', sizeof(connect_data.hostnqn));
	EXPECT_CONNECT_FAULT(CONNECT_INVALID_PARAM, 1, 512);
	connect_data.hostnqn[NVMF_NQN_MAX + 1] = 0; /* terminated, but a byte too long */
	EXPECT_CONNECT_FAULT(CONNECT_INVALID_PARAM, 1, 512);
	connect_data.hostnqn[NVMF_NQN_MAX] = 0;
	CU_ASSERT_EQUAL(decode_connect(), 0);
	static const char *const bad[] = {"h\xc3\x28",
					  "h\x1b[31m",
					  "h\x7f",
					  "h\xc2\x9b"
					  "31m",
					  "h\xc2\x80",
					  "h\xe2\x80\xa8",
					  "h\xe2\x80\xae"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		strcpy(connect_data.hostnqn, bad[i]);
		EXPECT_CONNECT_FAULT(CONNECT_INVALID_PARAM, 1, 512);
	}
	strcpy(connect_data.hostnqn, "h\xc2\xa0");
	CU_ASSERT_EQUAL(decode_connect(), 0);
	connect_data.hostnqn[0] = 0; /* no name: whether such hosts may come is decided elsewhere */
	CU_ASSERT_EQUAL(decode_connect(), 0);
	CU_ASSERT_STRING_EQUAL(connect_out.hostnqn, "");
}

static void test_nqn_forms(void)
{
	static const char *const good[] = {
		"nqn.2014-08.org.nvmexpress.discovery",
		"nqn.2014-08.org.nvmexpress:uuid:0a7b6f7c-0b5e-4d8c-b13a-6b0d0d0d0d0d",
		"nqn.2016-06.io.spdk:cnode1",
		"nqn.2016-06.io.xn--spdk-8qa:a", /* two hyphens */
		"nqn.2016-06.io.a-b.c3:\xc3\xa9t\xc3\xa9",
		"nqn.2016-06.io.spdk:\xe2\x82\xac\xf0\x9f\x92\xbe", /* three bytes, and four */
	};
	static const char *const bad[] = {
		"",
		"nqn.",
		"iqn.2016-06.io.spdk:cnode1",
		"nqn.2016-13.io.spdk:cnode1",
		"nqn.2016-00.io.spdk:cnode1",
		"nqn.2016_06.io.spdk:cnode1",
		"nqn.216-06.io.spdk:cnode1",
		"nqn.2016-06.",
		"nqn.2016-06.io.spdk:",
		"nqn.2016-06..spdk:a",
		"nqn.2016-06.io.-spdk:a",
		"nqn.2016-06.io.spdk-:a",
		"nqn.2016-06.io.spdk.:a",
		"nqn.2016-06.io.sp dk:a",
		"nqn.2016-06.io.spdk:\xc3",
		"nqn.2016-06.io.spdk:\xe1\x80\x28", /* a third byte that is none */
		"nqn.2016-06.io.a-.b:c",
		"nqn.2016-06.io.spdk:\xed\xa0\x80", /* a surrogate */
		"nqn.2016-06.io.spdk:\xc0\xaf",     /* not the shortest form */
		"nqn.2016-06.io.spdk:\xf5\x80\x80\x80",
	};

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		CU_ASSERT_TRUE(nvmf_nqn_is_valid(good[i]));
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CU_ASSERT_FALSE(nvmf_nqn_is_valid(bad[i]));
	}
}

/* ---- properties ---- */

static void test_properties_are_decoded(void)
{
	struct nvmf_property_set_sqe set = {
		.attrib = NVMF_PROPERTY_SIZE_8, .ofst = htole32(NVME_REG_CC), .value = htole64(0x1122334455667788)};
	struct nvmf_property_get_sqe get = {.attrib = NVMF_PROPERTY_SIZE_4, .ofst = htole32(NVME_REG_CSTS)};
	struct nvmf_property p;

	CU_ASSERT_EQUAL(nvmf_decode_property_set(&set, &p, &where), 0);
	CU_ASSERT(p.offset == NVME_REG_CC && p.size == 8 && p.value == 0x1122334455667788);
	set.attrib = NVMF_PROPERTY_SIZE_4;
	CU_ASSERT_EQUAL(nvmf_decode_property_set(&set, &p, &where), 0);
	CU_ASSERT(p.size == 4 && p.value == 0x55667788);
	CU_ASSERT_EQUAL(nvmf_decode_property_get(&get, &p, &where), 0);
	CU_ASSERT(p.offset == NVME_REG_CSTS && p.size == 4);
}

static void test_property_of_odd_size_is_rejected(void)
{
	struct nvmf_property_get_sqe get = {.attrib = 2};
	struct nvmf_property_set_sqe set = {.attrib = 7};
	struct nvmf_property p;

	EXPECT_FAULT(nvmf_decode_property_get(&get, &p, &where), GENERIC, INVALID_FIELD, NVMF_WHERE(40, 0));
	EXPECT_FAULT(nvmf_decode_property_set(&set, &p, &where), GENERIC, INVALID_FIELD, NVMF_WHERE(40, 0));
}

/* ---- admin ---- */

static void test_identify_is_decoded(void)
{
	struct nvmf_identify id;

	sqe_reset(nvme_admin_identify);
	sqe.nsid = htole32(7);
	sqe.cdw10 = htole32(0x12340006);
	sqe.cdw11 = htole32(0x02000045);
	CU_ASSERT_EQUAL(nvmf_decode_identify(&sqe, &id, &where), 0);
	CU_ASSERT(id.cns == 6 && id.cntid == 0x1234 && id.csi == 2 && id.cns_specific == 0x45 && id.nsid == 7);
	sqe.cdw14 = htole32(1);
	EXPECT_FAULT(nvmf_decode_identify(&sqe, &id, &where), GENERIC, INVALID_FIELD, NVMF_WHERE(56, 0));
}

static void test_get_log_is_decoded(void)
{
	struct nvmf_get_log log;

	sqe_reset(nvme_admin_get_log_page);
	sqe.cdw10 = htole32(0xffffu << 16 | 1u << 15 | 0x7f << 8 | 0x70);
	sqe.cdw11 = htole32(0x0042ffff);
	sqe.cdw12 = htole32(0x1000);
	sqe.cdw13 = htole32(1);
	CU_ASSERT_EQUAL(nvmf_decode_get_log(&sqe, &log, &where), 0);
	CU_ASSERT(log.lid == 0x70 && log.rae && log.lsp == 0x7f && log.lsi == 0x42);
	CU_ASSERT_EQUAL(log.length, UINT64_C(1) << 34);
	CU_ASSERT_EQUAL(log.offset, 0x100001000);
}

static void test_get_log_with_bad_offset_is_rejected(void)
{
	struct nvmf_get_log log;

	sqe_reset(nvme_admin_get_log_page);
	sqe.cdw12 = htole32(2);
	EXPECT_FAULT(nvmf_decode_get_log(&sqe, &log, &where), GENERIC, INVALID_FIELD, NVMF_WHERE(48, 0));
	sqe.cdw12 = 0;
	sqe.cdw14 = htole32(1u << 23);
	EXPECT_FAULT(nvmf_decode_get_log(&sqe, &log, &where), GENERIC, INVALID_FIELD, NVMF_WHERE(58, 7));
}

static void test_features_are_decoded(void)
{
	struct nvmf_feature f;

	sqe_reset(nvme_admin_set_features);
	sqe.cdw10 = htole32(1u << 31 | NVME_FEAT_FID_KATO);
	sqe.cdw11 = htole32(10000);
	CU_ASSERT_EQUAL(nvmf_decode_set_features(&sqe, &f, &where), 0);
	CU_ASSERT(f.fid == NVME_FEAT_FID_KATO && f.save && f.cdw11 == 10000);
	sqe.cdw10 = htole32(3 << 8 | NVME_FEAT_FID_NUM_QUEUES);
	CU_ASSERT_EQUAL(nvmf_decode_get_features(&sqe, &f, &where), 0);
	CU_ASSERT(f.fid == NVME_FEAT_FID_NUM_QUEUES && f.select == 3);
	sqe.cdw10 = htole32(4 << 8 | NVME_FEAT_FID_NUM_QUEUES);
	EXPECT_FAULT(nvmf_decode_get_features(&sqe, &f, &where), GENERIC, INVALID_FIELD, NVMF_WHERE(41, 0));
	CU_ASSERT_EQUAL(nvmf_feature_data_length(NVME_FEAT_FID_HOST_ID, 1), 16);
	CU_ASSERT_EQUAL(nvmf_feature_data_length(NVME_FEAT_FID_HOST_ID, 0), 8);
	CU_ASSERT_EQUAL(nvmf_feature_data_length(NVME_FEAT_FID_HOST_BEHAVIOR, 0), 512);
	CU_ASSERT_EQUAL(nvmf_feature_data_length(NVME_FEAT_FID_KATO, 1), 0);
}

/* ---- I/O ---- */

static const struct nvmf_geometry geo = {.num_blocks = 1000, .max_transfer_bytes = 131072, .block_shift = 12};

static void sqe_rw(uint64_t slba, uint16_t nlb)
{
	sqe_reset(nvme_cmd_read);
	sqe.cdw10 = htole32((uint32_t)slba);
	sqe.cdw11 = htole32((uint32_t)(slba >> 32));
	sqe.cdw12 = htole32(nlb);
}

static void test_rw_inside_the_namespace_is_accepted(void)
{
	struct nvmf_lba_range r;

	sqe_rw(968, 31);
	CU_ASSERT_EQUAL(nvmf_decode_rw(&sqe, &geo, &r, &where), 0);
	CU_ASSERT(r.slba == 968 && r.num_blocks == 32);
	CU_ASSERT_EQUAL(nvmf_rw_length(&sqe, 12), 131072);
}

static void test_rw_beyond_the_end_is_rejected(void)
{
	static const struct {
		uint64_t slba;
		uint16_t nlb;
	} bad[] = {{1000, 0}, {999, 1}, {UINT64_MAX, 0}, {UINT64_MAX - 7, 7}, {0, 1000}, {0, 65535}};
	struct nvmf_lba_range r;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		sqe_rw(bad[i].slba, bad[i].nlb);
		EXPECT_FAULT(nvmf_decode_rw(&sqe, &geo, &r, &where), GENERIC, LBA_RANGE, NVMF_WHERE(40, 0));
	}
}

static void test_rw_longer_than_mdts_is_rejected(void)
{
	struct nvmf_lba_range r;

	sqe_rw(0, 32);
	EXPECT_FAULT(nvmf_decode_rw(&sqe, &geo, &r, &where), GENERIC, INVALID_FIELD, NVMF_WHERE(48, 0));
}

static void test_write_zeroes_has_no_mdts(void)
{
	struct nvmf_lba_range r;
	bool deallocate;

	sqe_rw(0, 999);
	sqe.cdw12 |= htole32((uint32_t)NVME_IO_DEAC << 16);
	CU_ASSERT_EQUAL(nvmf_decode_write_zeroes(&sqe, &geo, 0, &r, &deallocate, &where), 0);
	CU_ASSERT(r.num_blocks == 1000 && deallocate);
	sqe_rw(1, 999);
	EXPECT_FAULT(nvmf_decode_write_zeroes(&sqe, &geo, 0, &r, &deallocate, &where), GENERIC, LBA_RANGE,
		     NVMF_WHERE(40, 0));
}

static void test_write_zeroes_and_deallocations_have_the_limits_of_the_subsystem(void)
{
	struct nvme_dsm_range range = {.nlb = htole32(10)};
	struct nvmf_lba_range r;
	bool deallocate;

	sqe_rw(0, (uint16_t)((UINT32_C(8192) >> geo.block_shift) - 1));
	CU_ASSERT_EQUAL(nvmf_decode_write_zeroes(&sqe, &geo, 1, &r, &deallocate, &where), 0);
	sqe_rw(0, (uint16_t)(UINT32_C(8192) >> geo.block_shift));
	EXPECT_FAULT(nvmf_decode_write_zeroes(&sqe, &geo, 1, &r, &deallocate, &where), GENERIC, INVALID_FIELD,
		     NVMF_WHERE(48, 0));
	CU_ASSERT_EQUAL(nvmf_decode_write_zeroes(&sqe, &geo, 2, &r, &deallocate, &where), 0);
	for (unsigned wzsl = 19; wzsl <= UINT8_MAX; wzsl++) { /* more than there can be */
		CU_ASSERT_EQUAL(nvmf_decode_write_zeroes(&sqe, &geo, (uint8_t)wzsl, &r, &deallocate, &where), 0);
	}
	CU_ASSERT_EQUAL(nvmf_decode_dsm_range(&range, 0, &geo, 10, &r, &where), 0);
	EXPECT_FAULT(nvmf_decode_dsm_range(&range, 0, &geo, 9, &r, &where), CMD_SPECIFIC, CMD_SIZE_LIMIT_EXCEEDED,
		     NVMF_WHERE_NOWHERE);
}

static void test_dsm_ranges_are_checked(void)
{
	struct nvme_dsm_range ranges[2] = {{.nlb = htole32(10), .slba = htole64(990)},
					   {.nlb = htole32(UINT32_MAX), .slba = htole64(1)}};
	struct nvmf_lba_range r;
	struct nvmf_dsm dsm;

	sqe_reset(nvme_cmd_dsm);
	sqe.cdw10 = htole32(255);
	sqe.cdw11 = htole32(NVME_DSMGMT_AD);
	nvmf_decode_dsm(&sqe, &dsm);
	CU_ASSERT(dsm.num_ranges == 256 && dsm.deallocate);
	CU_ASSERT_EQUAL(nvmf_decode_dsm_range(ranges, 0, &geo, 0, &r, &where), 0);
	CU_ASSERT(r.slba == 990 && r.num_blocks == 10);
	EXPECT_FAULT(nvmf_decode_dsm_range(ranges, 1, &geo, 0, &r, &where), GENERIC, LBA_RANGE, NVMF_WHERE_NOWHERE);
}

static void test_blocks_without_data_are_checked_against_the_end_alone(void)
{
	struct nvmf_lba_range r;

	sqe_rw(0, 999);
	CU_ASSERT_EQUAL(nvmf_decode_blocks(&sqe, &geo, &r, &where), 0);
	CU_ASSERT(r.slba == 0 && r.num_blocks == 1000);
	sqe_rw(UINT64_MAX, 999);
	EXPECT_FAULT(nvmf_decode_blocks(&sqe, &geo, &r, &where), GENERIC, LBA_RANGE, NVMF_WHERE(40, 0));
}

/* ---- Copy ---- */

static void test_copy_is_decoded(void)
{
	struct nvmf_copy copy;

	sqe_reset(nvme_cmd_copy);
	sqe.cdw10 = htole32(0x89abcdef);
	sqe.cdw11 = htole32(1);
	sqe.cdw12 = htole32(127);
	CU_ASSERT_EQUAL(nvmf_decode_copy(&sqe, &copy, &where), 0);
	CU_ASSERT(copy.to == UINT64_C(0x189abcdef) && copy.num_ranges == 128);
	CU_ASSERT(copy.format == 0 && copy.range_bytes == 32);
	sqe.cdw12 = htole32(1 << 8 | 127);
	CU_ASSERT_EQUAL(nvmf_decode_copy(&sqe, &copy, &where), 0);
	CU_ASSERT(copy.num_ranges == 128 && copy.format == 1 && copy.range_bytes == 40);
	sqe.cdw12 = htole32(128);
	EXPECT_FAULT(nvmf_decode_copy(&sqe, &copy, &where), CMD_SPECIFIC, CMD_SIZE_LIMIT_EXCEEDED, NVMF_WHERE(48, 0));
	for (unsigned format = 2; format < 16; format++) {
		sqe.cdw12 = htole32(format << 8);
		EXPECT_FAULT(nvmf_decode_copy(&sqe, &copy, &where), GENERIC, INVALID_FIELD, NVMF_WHERE(49, 0));
	}
}

static void test_limits_of_copy_fit_their_fields(void)
{
	for (uint8_t shift = 9; shift <= 16; shift++) {
		struct nvmf_copy_limits l = nvmf_copy_limits(shift);
		CU_ASSERT_EQUAL((uint32_t)l.range_blocks << shift, 8u << 20);
		CU_ASSERT_EQUAL(l.blocks << shift, 64u << 20);
	}
}

static void test_ranges_of_a_copy_are_checked(void)
{
	static const struct nvmf_geometry large = {
		.num_blocks = 100000, .max_transfer_bytes = 131072, .block_shift = 12};
	struct nvme_copy_range ranges[16] = {{.slba = htole64(10), .nlb = htole16(9)}, {.slba = htole64(99), .nlb = 0}};
	struct nvmf_copy copy = {.to = 500, .num_ranges = 2, .range_bytes = sizeof(ranges[0])};
	struct nvmf_lba_range r;

	nvmf_decode_copy_range(&ranges[0], &r);
	CU_ASSERT(r.slba == 10 && r.num_blocks == 10);
	CU_ASSERT_EQUAL(nvmf_decode_copy_ranges(ranges, &copy, &geo, &where), 0);
	copy.to = 989; /* exactly to the end */
	CU_ASSERT_EQUAL(nvmf_decode_copy_ranges(ranges, &copy, &geo, &where), 0);
	copy.to = 990;
	EXPECT_FAULT(nvmf_decode_copy_ranges(ranges, &copy, &geo, &where), GENERIC, LBA_RANGE, NVMF_WHERE(40, 0));
	copy.to = UINT64_MAX - 5;
	EXPECT_FAULT(nvmf_decode_copy_ranges(ranges, &copy, &geo, &where), GENERIC, LBA_RANGE, NVMF_WHERE(40, 0));
	copy.to = 500;
	ranges[1].slba = htole64(1000);
	EXPECT_FAULT(nvmf_decode_copy_ranges(ranges, &copy, &geo, &where), GENERIC, LBA_RANGE, NVMF_WHERE_NOWHERE);
	ranges[1].slba = htole64(UINT64_MAX);
	EXPECT_FAULT(nvmf_decode_copy_ranges(ranges, &copy, &geo, &where), GENERIC, LBA_RANGE, NVMF_WHERE_NOWHERE);
	/* onto what is copied from, be it another range's place */
	static const uint64_t bad[] = {500, 505, 510};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ranges[1].slba = htole64(bad[i]);
		EXPECT_FAULT(nvmf_decode_copy_ranges(ranges, &copy, &geo, &where), CMD_SPECIFIC, OVERLAPPING_IO_RANGE,
			     NVMF_WHERE_NOWHERE);
	}
	ranges[1].slba = htole64(511);
	CU_ASSERT_EQUAL(nvmf_decode_copy_ranges(ranges, &copy, &geo, &where), 0);
	ranges[1].slba = htole64(499);
	CU_ASSERT_EQUAL(nvmf_decode_copy_ranges(ranges, &copy, &geo, &where), 0);
	/* sizes come before the namespace's end */
	ranges[1].nlb = htole16(2048);
	EXPECT_FAULT(nvmf_decode_copy_ranges(ranges, &copy, &geo, &where), CMD_SPECIFIC, CMD_SIZE_LIMIT_EXCEEDED,
		     NVMF_WHERE_NOWHERE);
	for (unsigned i = 0; i < 16; i++) {
		ranges[i] = (struct nvme_copy_range){.slba = htole64(i * 2048), .nlb = htole16(2047)};
	}
	copy = (struct nvmf_copy){.to = 50000, .num_ranges = 8, .range_bytes = sizeof(ranges[0])};
	CU_ASSERT_EQUAL(nvmf_decode_copy_ranges(ranges, &copy, &large, &where), 0);
	copy.num_ranges = 9;
	EXPECT_FAULT(nvmf_decode_copy_ranges(ranges, &copy, &large, &where), CMD_SPECIFIC, CMD_SIZE_LIMIT_EXCEEDED,
		     NVMF_WHERE_NOWHERE);
}

/* ---- Metadata ---- */

static void md_sqe(uint64_t slba, uint32_t cdw12, uint32_t ref)
{
	sqe = (struct nvme_sqe){.opcode = nvme_cmd_read,
				.cdw10 = htole32((uint32_t)slba),
				.cdw11 = htole32((uint32_t)(slba >> 32)),
				.cdw12 = htole32(cdw12),
				.cdw14 = htole32(ref),
				.cdw15 = htole32(0xff0f1234)};
}

static void test_metadata_counts_among_the_bytes_unless_the_controller_makes_it(void)
{
	static const struct {
		uint8_t md, type;
		uint32_t cdw12;
		uint64_t bytes;
	} cases[] = {
		{1, 1, 3, 4 * 4104},
		{1, 1, 3 | NVME_PI_ACT, 4 * 4096},
		{1, 0, 3 | NVME_PI_ACT, 4 * 4104},
		{2, 1, 3 | NVME_PI_ACT, 4 * 4112},
		{16, 3, 3, 4 * 4224},
		{1, 2, 0, 4104},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct nvmf_geometry g = {.num_blocks = 1000,
						.max_transfer_bytes = 131072,
						.block_shift = 12,
						.md_eighths = cases[i].md,
						.pi_type = cases[i].type};
		struct nvmf_lba_range r;
		struct nvmf_pi pi;
		uint64_t bytes;

		md_sqe(7, cases[i].cdw12, 0);
		CU_ASSERT_EQUAL(nvmf_decode_rw_md(&sqe, &g, &r, &pi, &bytes, &where), 0);
		CU_ASSERT_EQUAL(bytes, cases[i].bytes);
		CU_ASSERT_EQUAL(r.slba, 7);
		md_sqe(997, cases[i].cdw12 | 3, 0);
		EXPECT_FAULT(nvmf_decode_rw_md(&sqe, &g, &r, &pi, &bytes, &where), GENERIC, LBA_RANGE,
			     NVMF_WHERE(40, 0));
		md_sqe(0, 31, 0); /* as much as MDTS without the metadata */
		EXPECT_FAULT(nvmf_decode_rw_md(&sqe, &g, &r, &pi, &bytes, &where), GENERIC, INVALID_FIELD,
			     NVMF_WHERE(48, 0));
	}
}

static void test_protection_information_fields(void)
{
	struct nvmf_geometry g = {.num_blocks = UINT64_C(1) << 40, .block_shift = 12, .md_eighths = 1, .pi_type = 1};
	const uint64_t slba = UINT64_C(0x1200000034);
	struct nvmf_pi pi;

	md_sqe(slba, NVME_PI_ACT | NVME_PI_CHECK_GUARD | NVME_PI_CHECK_REF, 0x34);
	CU_ASSERT_EQUAL(nvmf_decode_pi(&sqe, &g, &pi, &where), 0);
	CU_ASSERT_TRUE(pi.act && pi.check_guard && pi.check_ref && !pi.check_app);
	CU_ASSERT_EQUAL(pi.ref, 0x34);
	CU_ASSERT_EQUAL(pi.app, 0x1234);
	CU_ASSERT_EQUAL(pi.app_mask, 0xff0f);
	md_sqe(slba, NVME_PI_CHECK_REF, 0x35); /* type 1: it is the address */
	EXPECT_FAULT(nvmf_decode_pi(&sqe, &g, &pi, &where), CMD_SPECIFIC, INVALID_PI, NVMF_WHERE(56, 0));
	g.pi_type = 2;
	CU_ASSERT_EQUAL(nvmf_decode_pi(&sqe, &g, &pi, &where), 0);
	g.pi_type = 3;
	EXPECT_FAULT(nvmf_decode_pi(&sqe, &g, &pi, &where), CMD_SPECIFIC, INVALID_PI, NVMF_WHERE(51, 2));
	g.pi_type = 1;
	md_sqe(slba, NVME_PI_CHECK_APP, 0x35); /* nor is it looked at where it is not checked */
	CU_ASSERT_EQUAL(nvmf_decode_pi(&sqe, &g, &pi, &where), 0);
	CU_ASSERT_TRUE(pi.check_app && !pi.check_ref && !pi.check_guard && !pi.act);
	g.pi_type = 0;
	md_sqe(slba, NVME_PI_ACT | NVME_PI_CHECK_REF, 0x35);
	CU_ASSERT_EQUAL(nvmf_decode_pi(&sqe, &g, &pi, &where), 0);
	CU_ASSERT_FALSE(pi.act || pi.check_ref);
}

/* The reference tag has the bits that guard and storage tag leave: 32 of a space of 32, 80 or 48 bits at least. */
static void test_protection_information_of_longer_guards(void)
{
	static const struct {
		uint8_t format, storage_bits;
		uint64_t ref; /* what is decoded of the dwords below */
		uint16_t storage;
		unsigned ref_bits;
	} cases[] = {
		{NVME_PI_GUARD_16, 0, UINT64_C(0x55667788), 0, 32},
		{NVME_PI_GUARD_16, 8, UINT64_C(0x55667788), 0, 24},
		{NVME_PI_GUARD_32, 16, UINT64_C(0x1122334455667788), 0xbeef, 64},
		{NVME_PI_GUARD_32, 40, UINT64_C(0x1122334455667788), 0xbeef, 40},
		{NVME_PI_GUARD_64, 0, UINT64_C(0x334455667788), 0, 48},
		{NVME_PI_GUARD_64, 16, UINT64_C(0x334455667788), 0, 32},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct nvmf_geometry g = {.num_blocks = UINT64_MAX,
						.max_transfer_bytes = 131072,
						.block_shift = 12,
						.md_eighths = cases[i].format == NVME_PI_GUARD_16 ? 1 : 2,
						.pi_type = 1,
						.pi_format = cases[i].format & 3,
						.storage_bits = cases[i].storage_bits};
		for (unsigned bit = 0; bit < 64; bit++) {
			uint64_t slba = UINT64_C(0x1122334455667788) ^ UINT64_C(1) << bit;
			struct nvmf_lba_range r;
			struct nvmf_pi pi;
			uint64_t bytes;
			md_sqe(slba, NVME_PI_CHECK_REF | NVME_PI_CHECK_STORAGE, 0x55667788);
			sqe.cdw3 = htole32(0x11223344);
			sqe.cdw2 = htole32(0xdeadbeef);
			if (bit < cases[i].ref_bits) {
				EXPECT_FAULT(nvmf_decode_pi(&sqe, &g, &pi, &where), CMD_SPECIFIC, INVALID_PI,
					     NVMF_WHERE(56, 0));
			} else {
				CU_ASSERT_EQUAL(nvmf_decode_pi(&sqe, &g, &pi, &where), 0);
			}
			CU_ASSERT_TRUE(pi.check_storage);
			CU_ASSERT_EQUAL(pi.ref, cases[i].ref);
			CU_ASSERT_EQUAL(pi.storage, cases[i].storage);
			sqe.cdw12 = htole32(NVME_PI_ACT | 3); /* not transferred, as it is nothing else */
			CU_ASSERT_EQUAL(nvmf_decode_rw_md(&sqe, &g, &r, &pi, &bytes, &where), 0);
			CU_ASSERT_EQUAL(bytes, 4 * 4096);
		}
	}
}

static void test_described_length_is_what_the_host_says(void)
{
	static const struct nvmf_sgl_rules rules = {.in_capsule = true, .keyed = true, .max_descs = 16};
	uint64_t length;

	sqe_reset(0x82);
	for (uint32_t len = 0; len <= NVME_SGL_KEYED_LENGTH_MAX; len = len * 3 + 4) {
		sqe.sgl1 = nvme_sgl_make_keyed(0x1000, len, 1, NVME_SGL_SUBTYPE_ADDRESS);
		CU_ASSERT_EQUAL(nvmf_decode_described(&sqe, NULL, 0, &rules, false, &length, &where), 0);
		CU_ASSERT_EQUAL(length, len);
	}
	sqe.sgl1 = nvme_sgl_make_keyed(0x1000, 6, 1, NVME_SGL_SUBTYPE_ADDRESS);
	EXPECT_FAULT(nvmf_decode_described(&sqe, NULL, 0, &rules, false, &length, &where), GENERIC, SGL_INVALID_DATA,
		     NVMF_WHERE(32, 0));
	sqe.sgl1 = nvme_sgl_make_plain(NVME_SGL_TYPE_DATA_BLOCK, NVME_SGL_SUBTYPE_OFFSET, 0, 64);
	CU_ASSERT_EQUAL(nvmf_decode_described(&sqe, icd, 64, &rules, true, &length, &where), 0);
	CU_ASSERT_EQUAL(length, 64);
	EXPECT_FAULT(nvmf_decode_described(&sqe, icd, 60, &rules, true, &length, &where), GENERIC, SGL_INVALID_DATA,
		     NVMF_WHERE(32, 0));
}

static void test_cross_controller_reset_is_decoded(void)
{
	struct nvme_sqe reset = {.opcode = NVME_ADMIN_CROSS_CTRL_RESET,
				 .cdw10 = htole32(0xff071234),
				 .cdw12 = htole32(0x89abcdef),
				 .cdw13 = htole32(0x01234567)};
	struct nvmf_ctrlr_name name;

	CU_ASSERT_EQUAL(nvmf_decode_cross_reset(&reset, &name, &where), 0);
	CU_ASSERT_EQUAL(name.cntlid, 0x1234);
	CU_ASSERT_EQUAL(name.ciu, 7);
	CU_ASSERT_EQUAL(name.cirn, UINT64_C(0x0123456789abcdef));
	reset.cdw10 = htole32(0x1234);
	EXPECT_FAULT(nvmf_decode_cross_reset(&reset, &name, &where), GENERIC, INVALID_FIELD, NVMF_WHERE(42, 0));
	reset.cdw10 = htole32(0x071234);
	reset.cdw12 = reset.cdw13 = 0;
	EXPECT_FAULT(nvmf_decode_cross_reset(&reset, &name, &where), GENERIC, INVALID_FIELD, NVMF_WHERE_CDW12);
	reset.cdw13 = htole32(1);
	CU_ASSERT_EQUAL(nvmf_decode_cross_reset(&reset, &name, &where), 0);
}

static const struct unit_test tests[] = {
	UNIT(test_header_of_a_good_command_is_accepted),
	UNIT(test_short_capsule_is_rejected),
	UNIT(test_prp_command_is_rejected),
	UNIT(test_reserved_fuse_is_rejected),
	UNIT(test_fused_fabrics_command_is_rejected),
	UNIT(test_keyed_block_is_decoded),
	UNIT(test_in_capsule_data_is_decoded),
	UNIT(test_in_capsule_data_beyond_the_capsule_is_rejected),
	UNIT(test_in_capsule_descriptor_for_a_read_is_rejected),
	UNIT(test_sgl_shorter_than_the_transfer_is_rejected),
	UNIT(test_unknown_sgl_types_are_rejected),
	UNIT(test_transport_block_is_for_transports_that_have_it),
	UNIT(test_list_of_keyed_blocks_is_walked),
	UNIT(test_chained_segments_are_walked),
	UNIT(test_segments_that_name_themselves_are_rejected),
	UNIT(test_segment_without_a_next_is_rejected),
	UNIT(test_last_segment_that_leads_on_is_rejected),
	UNIT(test_segment_in_the_middle_of_a_list_is_rejected),
	UNIT(test_list_outside_the_capsule_is_rejected),
	UNIT(test_list_must_begin_at_a_multiple_of_eight),
	UNIT(test_each_transport_takes_its_own_descriptors_only),
	UNIT(test_list_with_other_than_keyed_blocks_is_rejected),
	UNIT(test_authentication_commands_are_checked),
	UNIT(test_list_length_must_be_whole_descriptors),
	UNIT(test_more_descriptors_than_msdbd_are_rejected),
	UNIT(test_lengths_of_a_list_do_not_wrap),
	UNIT(test_good_connect_is_decoded),
	UNIT(test_connect_with_unknown_format_is_rejected),
	UNIT(test_connect_with_short_data_is_rejected),
	UNIT(test_connect_with_queue_of_one_is_rejected),
	UNIT(test_connect_with_bad_subsystem_name_is_rejected),
	UNIT(test_connect_with_bad_host_name_is_rejected),
	UNIT(test_nqn_forms),
	UNIT(test_properties_are_decoded),
	UNIT(test_property_of_odd_size_is_rejected),
	UNIT(test_identify_is_decoded),
	UNIT(test_get_log_is_decoded),
	UNIT(test_get_log_with_bad_offset_is_rejected),
	UNIT(test_features_are_decoded),
	UNIT(test_cross_controller_reset_is_decoded),
	UNIT(test_rw_inside_the_namespace_is_accepted),
	UNIT(test_rw_beyond_the_end_is_rejected),
	UNIT(test_rw_longer_than_mdts_is_rejected),
	UNIT(test_write_zeroes_has_no_mdts),
	UNIT(test_write_zeroes_and_deallocations_have_the_limits_of_the_subsystem),
	UNIT(test_dsm_ranges_are_checked),
	UNIT(test_blocks_without_data_are_checked_against_the_end_alone),
	UNIT(test_copy_is_decoded),
	UNIT(test_limits_of_copy_fit_their_fields),
	UNIT(test_ranges_of_a_copy_are_checked),
	UNIT(test_described_length_is_what_the_host_says),
	UNIT(test_metadata_counts_among_the_bytes_unless_the_controller_makes_it),
	UNIT(test_protection_information_fields),
	UNIT(test_protection_information_of_longer_guards),
	UNIT_END,
};
UNIT_MAIN("nvmf_decode", tests, NULL, NULL)

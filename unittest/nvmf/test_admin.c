/* SPDX-License-Identifier: BSD-3-Clause */
/* Identify data byte for byte where it matters, log pages, features, events, aborts. */
#include "unittest/nvmf/loop.h"

static uint8_t data[LOOP_MAX_IO] __attribute__((aligned(8)));
static struct loop_conn *c;
static uint32_t nsid;

static const uint8_t uuid[16] = {1, 2, 3, 4, 5, 6, 0x47, 8, 0x89, 10, 11, 12, 13, 14, 15, 16};

static uint64_t le(size_t offset, unsigned bytes)
{
	uint64_t v = 0;

	for (unsigned i = bytes; i-- > 0;) {
		v = v << 8 | data[offset + i];
	}
	return v;
}

static void attach(void)
{
	struct nvmf_ns_opts opts = {.nsid = 3};

	memset(data, 0xa5, sizeof(data));
	make_malloc("m", 4096, 256);
	memcpy(opts.uuid, uuid, sizeof(uuid));
	memcpy(opts.eui64, "\x11\x22\x33\x44\x55\x66\x77\x88", 8);
	CU_ASSERT_EQUAL_FATAL(nvmf_subsystem_add_ns(loop_subsystem(), "m", &opts, &nsid), 0);
	c = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(c);
}

static void detach(void)
{
	loop_close(c);
	loop_remove_malloc_ns(nsid, "m");
}

/* ---- Identify ---- */

static void test_identify_controller(void)
{
	attach();
	CU_ASSERT_EQUAL(loop_identify(c, NVME_IDENTIFY_CNS_CTRL, 0, 0, data), 0);
	CU_ASSERT_EQUAL(memcmp(data + 4, "SN0123456789        ", 20), 0);
	CU_ASSERT_EQUAL(memcmp(data + 24, "varve bdev Controller                   ", 40), 0);
	CU_ASSERT_EQUAL(data[76] & 0x3, 3); /* CMIC: several ports, several controllers */
	CU_ASSERT_EQUAL(data[77], 5);       /* MDTS: 128 KiB */
	CU_ASSERT_EQUAL(le(78, 2), c->cntlid);
	CU_ASSERT_EQUAL(le(80, 4), 0x20000);            /* VER */
	CU_ASSERT_EQUAL(le(92, 4), 1u << 8 | 1u << 20); /* OAES: namespace attributes, Cross-Controller Reset */
	CU_ASSERT_EQUAL(le(96, 4) & 0x10041, 0x10041);  /* CTRATT: 128-bit host id, TBKAS, MEM */
	CU_ASSERT_EQUAL(data[111], 1);                  /* CNTRLTYPE: I/O */
	CU_ASSERT_EQUAL(data[258], 3);                  /* ACL */
	CU_ASSERT_EQUAL(data[259], 3);                  /* AERL */
	CU_ASSERT_EQUAL(data[261], 0x6);                /* LPA: effects, extended */
	CU_ASSERT_EQUAL(data[262], 63);                 /* ELPE */
	CU_ASSERT_EQUAL(data[512], 0x66);               /* SQES */
	CU_ASSERT_EQUAL(data[513], 0x44);               /* CQES */
	CU_ASSERT_EQUAL(le(514, 2), LOOP_QUEUE);        /* MAXCMD */
	CU_ASSERT_EQUAL(le(516, 4), 32);                /* NN */
	/* ONCS: Compare, Write Uncorrectable (malloc can), DSM, Write Zeroes, reservations, Verify, Copy */
	CU_ASSERT_EQUAL(le(520, 2), 1 | 2 | 4 | 8 | 32 | 128 | 256);
	CU_ASSERT_EQUAL(le(534, 2), 3);                              /* OCFS: formats 0 and 1 */
	CU_ASSERT_EQUAL(le(522, 2), 1);                              /* FUSES */
	CU_ASSERT_EQUAL(data[525], 0x5);                             /* VWC: present, no broadcast flush */
	CU_ASSERT_EQUAL(le(536, 4), 1 | 1 << 2 | 1 << 18 | 1 << 20); /* SGLS */
	CU_ASSERT_STRING_EQUAL((char *)data + 768, LOOP_SUBNQN);
	CU_ASSERT_EQUAL(le(1792, 4), (64 + LOOP_ICD_MAX) / 16); /* IOCCSZ */
	CU_ASSERT_EQUAL(le(1796, 4), 1);                        /* IORCSZ */
	CU_ASSERT_EQUAL(le(1800, 2), 0);                        /* ICDOFF */
	CU_ASSERT_EQUAL(data[1802], 0);                         /* FCATT: dynamic */
	CU_ASSERT_EQUAL(data[1803], 16);                        /* MSDBD */
	detach();
}

static void test_identify_namespace(void)
{
	attach();
	CU_ASSERT_EQUAL(loop_identify(c, NVME_IDENTIFY_CNS_NS, nsid, 0, data), 0);
	CU_ASSERT_EQUAL(le(0, 8), 256); /* NSZE */
	CU_ASSERT_EQUAL(le(8, 8), 256); /* NCAP */
	CU_ASSERT_EQUAL(data[25], 0);   /* NLBAF: one */
	CU_ASSERT_EQUAL(data[26], 0);   /* FLBAS */
	CU_ASSERT_EQUAL(data[30], 1);   /* NMIC: shared */
	CU_ASSERT_EQUAL(memcmp(data + 104, uuid, 16), 0);
	CU_ASSERT_EQUAL(memcmp(data + 120, "\x11\x22\x33\x44\x55\x66\x77\x88", 8), 0);
	CU_ASSERT_EQUAL(le(128, 4), 12u << 16); /* LBAF0: 4096 bytes, no metadata */
	CU_ASSERT_EQUAL(le(74, 2), 2048);       /* MSSRL: 8 MiB */
	CU_ASSERT_EQUAL(le(76, 4), 16384);      /* MCL: 64 MiB */
	CU_ASSERT_EQUAL(data[80], 127);         /* MSRC */

	/* Not there: zeroes. Cannot be there: an error. */
	memset(data, 0xa5, 4096);
	CU_ASSERT_EQUAL(loop_identify(c, NVME_IDENTIFY_CNS_NS, 1, 0, data), 0);
	for (size_t i = 0; i < 4096; i++) {
		CU_ASSERT_EQUAL_FATAL(data[i], 0);
	}
	static const uint32_t bad[] = {0, 33, NVME_NSID_ALL};
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		CU_ASSERT_EQUAL(loop_identify(c, NVME_IDENTIFY_CNS_NS, bad[i], 0, data),
				NVME_ST_DNR(GENERIC, INVALID_NS));
	}
	detach();
}

static void test_identify_active_list(void)
{
	attach();
	make_malloc("m2", 512, 100);
	loop_add_ns("m2", 7);
	CU_ASSERT_EQUAL(loop_identify(c, NVME_IDENTIFY_CNS_NS_ACTIVE_LIST, 0, 0, data), 0);
	CU_ASSERT(le(0, 4) == 3 && le(4, 4) == 7 && le(8, 4) == 0);
	CU_ASSERT_EQUAL(loop_identify(c, NVME_IDENTIFY_CNS_NS_ACTIVE_LIST, 3, 0, data), 0);
	CU_ASSERT(le(0, 4) == 7 && le(4, 4) == 0);
	CU_ASSERT_EQUAL(loop_identify(c, NVME_IDENTIFY_CNS_CSI_NS_ACTIVE_LIST, 0, 0, data), 0);
	CU_ASSERT(le(0, 4) == 3 && le(4, 4) == 7);
	CU_ASSERT_EQUAL(loop_identify(c, NVME_IDENTIFY_CNS_NS_ACTIVE_LIST, 0xfffffffe, 0, data),
			NVME_ST_DNR(GENERIC, INVALID_NS));
	CU_ASSERT_EQUAL(loop_identify(c, NVME_IDENTIFY_CNS_NS_ACTIVE_LIST, 0xfffffffd, 0, data), 0);
	CU_ASSERT_EQUAL(le(0, 4), 0);
	loop_remove_malloc_ns(7, "m2");
	detach();
}

static void test_identify_descriptors(void)
{
	attach();
	CU_ASSERT_EQUAL(loop_identify(c, NVME_IDENTIFY_CNS_NS_DESC_LIST, nsid, 0, data), 0);
	CU_ASSERT_EQUAL(memcmp(data, "\x01\x08\0\0\x11\x22\x33\x44\x55\x66\x77\x88", 12), 0);
	CU_ASSERT_EQUAL(memcmp(data + 12, "\x02\x10\0\0", 4), 0);
	CU_ASSERT_EQUAL(memcmp(data + 16, uuid, 16), 0);
	CU_ASSERT_EQUAL(memcmp(data + 32, "\x03\x10\0\0", 4), 0);
	CU_ASSERT_EQUAL(memcmp(data + 36, uuid, 16), 0);
	CU_ASSERT_EQUAL(memcmp(data + 52, "\x04\x01\0\0\0\0\0\0", 8), 0);
	CU_ASSERT_EQUAL(loop_identify(c, NVME_IDENTIFY_CNS_NS_DESC_LIST, 1, 0, data), NVME_ST_DNR(GENERIC, INVALID_NS));
	detach();
}

static void test_identify_command_set_structures(void)
{
	const uint16_t bad_field = NVME_ST_DNR(GENERIC, INVALID_FIELD);

	attach();
	CU_ASSERT_EQUAL(loop_identify(c, NVME_IDENTIFY_CNS_CSI_NS, nsid, 0, data), 0);
	CU_ASSERT_EQUAL(le(0, 8) | le(268, 8), 0);
	CU_ASSERT_EQUAL(loop_identify(c, NVME_IDENTIFY_CNS_CSI_CTRL, 0, 0, data), 0);
	CU_ASSERT_EQUAL(loop_identify(c, NVME_IDENTIFY_CNS_CSI_INDEPENDENT_ID_NS, nsid, 0, data), 0);
	CU_ASSERT_EQUAL(data[1], 1);                                                                /* NMIC */
	CU_ASSERT_EQUAL(data[14], 1);                                                               /* NSTAT: ready */
	CU_ASSERT_EQUAL(loop_identify(c, NVME_IDENTIFY_CNS_CSI_INDEPENDENT_ID_NS, 20, 0, data), 0); /* inactive */
	CU_ASSERT(data[1] == 0 && data[14] == 0);
	CU_ASSERT_EQUAL(loop_identify(c, NVME_IDENTIFY_CNS_CSI_INDEPENDENT_ID_NS, NVME_NSID_ALL, 0, data),
			NVME_ST_DNR(GENERIC, INVALID_NS));
	CU_ASSERT_EQUAL(loop_identify(c, NVME_IDENTIFY_CNS_CSI_NS, nsid, 2u << 24, data), bad_field); /* ZNS */
	CU_ASSERT_EQUAL(loop_identify(c, NVME_IDENTIFY_CNS_CSI_CTRL, 0, 1u << 24, data), bad_field);
	CU_ASSERT_EQUAL(loop_identify(c, NVME_IDENTIFY_CNS_ALLOCATED_NS_LIST, 0, 0, data), bad_field);
	CU_ASSERT_EQUAL(loop_identify(c, 0xff, 0, 0, data), bad_field);
	detach();
}

static void test_identify_controller_list(void)
{
	attach();
	struct loop_conn *other = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
	uint16_t low = c->cntlid < other->cntlid ? c->cntlid : other->cntlid;
	uint16_t high = c->cntlid < other->cntlid ? other->cntlid : c->cntlid;

	CU_ASSERT_EQUAL(loop_identify(c, NVME_IDENTIFY_CNS_CTRL_LIST, 0, 0, data), 0);
	CU_ASSERT(le(0, 2) == 2 && le(2, 2) == low && le(4, 2) == high);
	loop_close(other);
	detach();
}

static void test_identify_with_short_sgl_is_rejected(void)
{
	struct loop_cmd cmd;

	attach();
	loop_cmd_init(&cmd, c, nvme_admin_identify, 0);
	cmd.sqe.cdw10 = htole32(NVME_IDENTIFY_CNS_CTRL);
	loop_cmd_data(&cmd, data, 4095);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(GENERIC, SGL_INVALID_DATA));
	loop_cmd_data(&cmd, data, 8192); /* longer is fine: SGLS bit 18 */
	memset(data, 0xa5, 8192);
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	CU_ASSERT_EQUAL(data[4096], 0xa5);
	detach();
}

static void test_restricted_namespace_is_seen_by_its_hosts_only(void)
{
	struct nvmf_ns_opts opts = {.nsid = 9, .no_auto_visible = true};
	uint32_t got;

	attach();
	make_malloc("secret", 512, 100);
	CU_ASSERT_EQUAL(nvmf_subsystem_add_ns(loop_subsystem(), "secret", &opts, &got), 0);
	struct loop_conn *io = loop_io_queue(c, 1);
	CU_ASSERT_EQUAL(loop_identify(c, NVME_IDENTIFY_CNS_NS_ACTIVE_LIST, 0, 0, data), 0);
	CU_ASSERT(le(0, 4) == 3 && le(4, 4) == 0);
	CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_read, 9, 0, 0, data, 512), NVME_ST_DNR(GENERIC, INVALID_NS));
	CU_ASSERT_EQUAL(nvmf_ns_add_host(loop_subsystem(), 9, LOOP_HOSTNQN), 0);
	CU_ASSERT_EQUAL(nvmf_ns_add_host(loop_subsystem(), 3, LOOP_HOSTNQN), -EPERM);
	CU_ASSERT_EQUAL(loop_identify(c, NVME_IDENTIFY_CNS_NS_ACTIVE_LIST, 0, 0, data), 0);
	CU_ASSERT(le(0, 4) == 3 && le(4, 4) == 9);
	CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_read, 9, 0, 0, data, 512), 0);
	CU_ASSERT_EQUAL(nvmf_ns_remove_host(loop_subsystem(), 9, LOOP_HOSTNQN), 0);
	CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_read, 9, 0, 0, data, 512), NVME_ST_DNR(GENERIC, INVALID_NS));
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_CHANGED_NS, false, 0, data, 4096), 0);
	CU_ASSERT(le(0, 4) == 9 && le(4, 4) == 0);
	loop_close(io);
	loop_remove_malloc_ns(9, "secret");
	detach();
}

/* ---- Log pages ---- */

static void test_errors_are_logged(void)
{
	attach();
	struct loop_conn *io = loop_io_queue(c, 2);
	struct loop_cmd cmd;

	CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_read, nsid, 256, 0, data, 4096), NVME_ST_DNR(GENERIC, LBA_RANGE));
	loop_cmd_init(&cmd, c, 0xc5, 0);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(GENERIC, INVALID_OPCODE));
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_ERROR, true, 0, data, 4096), 0);
	CU_ASSERT_EQUAL(le(0, 8), 2); /* the newest first */
	CU_ASSERT_EQUAL(le(8, 2), 0);
	CU_ASSERT_EQUAL(le(10, 2), le16toh(cmd.sqe.cid));
	CU_ASSERT_EQUAL(le(12, 2) >> 1, NVME_ST_DNR(GENERIC, INVALID_OPCODE));
	CU_ASSERT_EQUAL(le(14, 2), 0);
	CU_ASSERT_EQUAL(le(64, 8), 1);
	CU_ASSERT_EQUAL(le(64 + 8, 2), 2); /* SQID */
	CU_ASSERT_EQUAL(le(64 + 12, 2) >> 1, NVME_ST_DNR(GENERIC, LBA_RANGE));
	CU_ASSERT_EQUAL(le(64 + 14, 2), 40); /* at SLBA */
	CU_ASSERT_EQUAL(le(64 + 16, 8), 256);
	CU_ASSERT_EQUAL(le(64 + 24, 4), nsid);
	CU_ASSERT_EQUAL(data[64 + 29], NVMF_TRTYPE_LOOP);
	CU_ASSERT_EQUAL(le(128, 8), 0);

	/* A window in the middle of the page; and what SMART says of the number. */
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_ERROR, true, 64 + 12, data, 4), 0);
	CU_ASSERT_EQUAL(le(0, 2) >> 1, NVME_ST_DNR(GENERIC, LBA_RANGE));
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_SMART, true, 0, data, 512), 0);
	CU_ASSERT_EQUAL(le(176, 8), 2);
	for (unsigned i = 0; i < 70; i++) {
		loop_cmd_init(&cmd, c, 0xc5, 0);
		CU_ASSERT_NOT_EQUAL(loop_run(&cmd), 0);
	}
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_ERROR, true, 0, data, 4096), 0);
	for (unsigned i = 0; i < 64; i++) {
		CU_ASSERT_EQUAL(le(i * 64, 8), 72 - i);
	}
	loop_close(io);
	detach();
}

/* Dwords 10 and 11 of Dataset Management are a number of ranges and attributes. */
static void test_the_error_log_has_an_lba_for_commands_with_one_only(void)
{
	attach();
	struct loop_conn *io = loop_io_queue(c, 2);
	struct loop_cmd cmd;

	loop_cmd_init(&cmd, io, nvme_cmd_dsm, 7); /* there is no such namespace */
	cmd.sqe.cdw10 = htole32(3);
	cmd.sqe.cdw11 = htole32(NVME_DSMGMT_AD);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(GENERIC, INVALID_NS));
	CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_read, 7, 5, 0, data, 4096), NVME_ST_DNR(GENERIC, INVALID_NS));
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_ERROR, true, 0, data, 4096), 0);
	CU_ASSERT_EQUAL(le(16, 8), 5); /* the newest first */
	CU_ASSERT_EQUAL(le(64 + 16, 8), 0);
	loop_close(io);
	detach();
}

static void test_smart_counts_io(void)
{
	attach();
	struct loop_conn *io = loop_io_queue(c, 1);

	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_SMART, true, 0, data, 512), 0);
	uint64_t reads = le(64, 8), writes = le(80, 8);
	CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_read, nsid, 0, 1, data, 8192), 0);
	CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_write, nsid, 0, 1, data, 8192), 0);
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_SMART, true, 0, data, 512), 0);
	CU_ASSERT_EQUAL(data[0], 0);
	CU_ASSERT_EQUAL(data[3], 100);
	CU_ASSERT_EQUAL(le(64, 8), reads + 1);
	CU_ASSERT_EQUAL(le(80, 8), writes + 1);
	CU_ASSERT_NOT_EQUAL(le(32, 8), 0);
	loop_close(io);
	detach();
}

static void test_supported_logs_and_effects(void)
{
	attach();
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_SUPPORTED_LOG_PAGES, true, 0, data, 1024), 0);
	for (unsigned lid = 0; lid < 256; lid++) {
		bool want = lid <= 5 || lid == 0x12 || lid == 0x1e || lid == 0x80;
		CU_ASSERT_EQUAL(le(lid * 4, 4), want);
	}
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_CMD_EFFECTS, true, 0, data, 4096), 0);
	CU_ASSERT_EQUAL(le(nvme_admin_identify * 4, 4), 1);
	CU_ASSERT_EQUAL(le(nvme_admin_format_nvm * 4, 4), 0);
	CU_ASSERT_EQUAL(le(1024 + nvme_cmd_write * 4, 4), 3);
	CU_ASSERT_EQUAL(le(1024 + nvme_cmd_copy * 4, 4), 3);
	CU_ASSERT_EQUAL(le(1024 + nvme_cmd_verify * 4, 4), 1);
	CU_ASSERT_EQUAL(le(1024 + nvme_cmd_write_uncor * 4, 4), 3);
	CU_ASSERT_EQUAL(le(1024 + nvme_zns_cmd_append * 4, 4), 0);
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_FID_SUPPORTED_EFFECTS, true, 0, data, 1024), 0);
	CU_ASSERT_EQUAL(le(NVME_FEAT_FID_KATO * 4, 4), 1 | 1u << 21);
	CU_ASSERT_EQUAL(le(NVME_FEAT_FID_ERR_RECOVERY * 4, 4), 1 | 1u << 20);
	CU_ASSERT_EQUAL(le(NVME_FEAT_FID_RESV_MASK * 4, 4), 1 | 1u << 20);
	CU_ASSERT_EQUAL(le(NVME_FEAT_FID_AUTO_PST * 4, 4), 0);
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_FW_SLOT, true, 0, data, 512), 0);
	CU_ASSERT_EQUAL(data[0], 1);
	CU_ASSERT_EQUAL(memcmp(data + 8, VARVE_VERSION, strlen(VARVE_VERSION)), 0);
	detach();
}

/* On a subsystem all of whose bdevs cannot do it. */
static void test_write_uncorrectable_is_there_where_a_bdev_can(void)
{
	attach();
	loop_remove_ns(nsid);
	make_null("n", 512, 100);
	uint32_t null = loop_add_ns("n", 0);
	CU_ASSERT_EQUAL(loop_identify(c, NVME_IDENTIFY_CNS_CTRL, 0, 0, data), 0);
	CU_ASSERT_EQUAL(le(520, 2), 1 | 4 | 8 | 32 | 128 | 256);
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_CMD_EFFECTS, true, 0, data, 4096), 0);
	CU_ASSERT_EQUAL(le(1024 + nvme_cmd_write_uncor * 4, 4), 0);
	loop_remove_ns(null);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n"), 0);
	nsid = loop_add_ns("m", 0);
	detach();
}

static void test_wrong_log_requests_are_rejected(void)
{
	struct loop_cmd cmd;

	attach();
	CU_ASSERT_EQUAL(loop_get_log(c, 0xc0, false, 0, data, 512), NVME_ST_DNR(CMD_SPECIFIC, INVALID_LOG_PAGE));
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_DISCOVER, false, 0, data, 512),
			NVME_ST_DNR(CMD_SPECIFIC, INVALID_LOG_PAGE));
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_SMART, false, 516, data, 512),
			NVME_ST_DNR(GENERIC, INVALID_FIELD));
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_SMART, false, 2, data, 512), NVME_ST_DNR(GENERIC, INVALID_FIELD));
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_SMART, false, 0, data, LOOP_MAX_IO + 4),
			NVME_ST_DNR(GENERIC, INVALID_FIELD));
	memset(data, 0xa5, sizeof(data));
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_SMART, false, 508, data, 8192), 0); /* what is beyond is zero */
	CU_ASSERT(data[0] == 0 && data[8191] == 0);
	loop_cmd_init(&cmd, c, nvme_admin_get_log_page, 3); /* SMART of one namespace */
	cmd.sqe.cdw10 = htole32(NVME_LOG_LID_SMART | 127 << 16);
	loop_cmd_data(&cmd, data, 512);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(GENERIC, INVALID_FIELD));
	detach();
}

/* ---- Features ---- */

static void test_features_are_kept(void)
{
	static const struct {
		uint8_t fid;
		uint32_t set, get;
	} cases[] = {
		{NVME_FEAT_FID_ARBITRATION, 0x01020307, 0x01020307},
		{NVME_FEAT_FID_POWER_MGMT, 0x40, 0x40},
		{NVME_FEAT_FID_TEMP_THRESH, 350, 350},
		{NVME_FEAT_FID_ERR_RECOVERY, 10, 10},
		{NVME_FEAT_FID_VOLATILE_WC, 0, 0},
		{NVME_FEAT_FID_WRITE_ATOMIC, 1, 1},
		{NVME_FEAT_FID_ASYNC_EVENT, 0xffffffff, 0x10013f},
		{NVME_FEAT_FID_KATO, 60000, 60000},
	};
	uint32_t value;

	attach();
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CU_ASSERT_EQUAL(loop_set_feature(c, cases[i].fid, cases[i].set, NULL), 0);
		CU_ASSERT_EQUAL(loop_get_feature(c, cases[i].fid, 0, &value), 0);
		CU_ASSERT_EQUAL(value, cases[i].get);
		CU_ASSERT_EQUAL(loop_get_feature(c, 3 << 8 | cases[i].fid, 0, &value), 0);
		CU_ASSERT_EQUAL(value,
				cases[i].fid == NVME_FEAT_FID_ERR_RECOVERY ? 6 : 4); /* changeable, and per namespace */
	}
	CU_ASSERT_EQUAL(loop_get_feature(c, 1 << 8 | NVME_FEAT_FID_VOLATILE_WC, 0, &value), 0); /* default */
	CU_ASSERT_EQUAL(value, 1);
	CU_ASSERT_EQUAL(loop_get_feature(c, 2 << 8 | NVME_FEAT_FID_TEMP_THRESH, 0, &value), 0); /* saved */
	CU_ASSERT_EQUAL(value, 0xffff);
	CU_ASSERT_EQUAL(loop_set_feature(c, NVME_FEAT_FID_KATO, 0, NULL), 0);
	detach();
}

static void set_error_recovery(uint32_t ns, uint16_t status)
{
	struct loop_cmd cmd;

	loop_cmd_init(&cmd, c, nvme_admin_set_features, ns);
	cmd.sqe.cdw10 = htole32(NVME_FEAT_FID_ERR_RECOVERY);
	cmd.sqe.cdw11 = htole32(7);
	CU_ASSERT_EQUAL(loop_run(&cmd), status);
}

static void test_error_recovery_is_a_namespaces(void)
{
	attach();
	set_error_recovery(0, 0);
	set_error_recovery(nsid, 0);
	set_error_recovery(NVME_NSID_ALL, 0);
	set_error_recovery(20, NVME_ST_DNR(GENERIC, INVALID_NS));
	set_error_recovery(1000, NVME_ST_DNR(GENERIC, INVALID_NS));
	detach();
}

static void test_number_of_queues(void)
{
	uint32_t value;

	attach();
	CU_ASSERT_EQUAL(loop_set_feature(c, NVME_FEAT_FID_NUM_QUEUES, 0x00ff00ff, &value), 0);
	CU_ASSERT_EQUAL(value, 0x00030003);
	CU_ASSERT_EQUAL(loop_set_feature(c, NVME_FEAT_FID_NUM_QUEUES, 0x0000ffff, NULL),
			NVME_ST_DNR(GENERIC, INVALID_FIELD));
	struct loop_conn *io = loop_io_queue(c, 1);
	CU_ASSERT_EQUAL(loop_set_feature(c, NVME_FEAT_FID_NUM_QUEUES, 0, NULL), NVME_ST_DNR(GENERIC, CMD_SEQ_ERROR));
	CU_ASSERT_EQUAL(loop_get_feature(c, NVME_FEAT_FID_NUM_QUEUES, 0, &value), 0);
	CU_ASSERT_EQUAL(value, 0x00030003);
	loop_close(io);
	detach();
}

static void test_wrong_features_are_rejected(void)
{
	const uint16_t bad = NVME_ST_DNR(GENERIC, INVALID_FIELD);
	struct loop_cmd cmd;

	attach();
	CU_ASSERT_EQUAL(loop_get_feature(c, 0xc3, 0, NULL), bad);
	CU_ASSERT_EQUAL(loop_set_feature(c, 0xc3, 0, NULL), bad);
	CU_ASSERT_EQUAL(loop_get_feature(c, 4 << 8 | NVME_FEAT_FID_KATO, 0, NULL), bad);
	CU_ASSERT_EQUAL(loop_set_feature(c, NVME_FEAT_FID_POWER_MGMT, 1, NULL), bad);
	CU_ASSERT_EQUAL(loop_set_feature(c, NVME_FEAT_FID_ERR_RECOVERY, 1 << 16, NULL), bad);
	CU_ASSERT_EQUAL(loop_get_feature(c, NVME_FEAT_FID_TEMP_THRESH, 1 << 16, NULL), bad);
	CU_ASSERT_EQUAL(loop_set_feature(c, 1u << 31 | NVME_FEAT_FID_KATO, 0, NULL),
			NVME_ST_DNR(CMD_SPECIFIC, FEATURE_NOT_SAVEABLE));
	loop_cmd_init(&cmd, c, nvme_admin_set_features, 3);
	cmd.sqe.cdw10 = htole32(NVME_FEAT_FID_KATO);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(CMD_SPECIFIC, FEATURE_NOT_PER_NS));
	detach();
}

static void test_host_identifier_is_that_of_connect(void)
{
	struct loop_cmd cmd;

	attach();
	loop_cmd_init(&cmd, c, nvme_admin_get_features, 0);
	cmd.sqe.cdw10 = htole32(NVME_FEAT_FID_HOST_ID);
	cmd.sqe.cdw11 = htole32(1);
	loop_cmd_data(&cmd, data, 16);
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	for (unsigned i = 0; i < 16; i++) {
		CU_ASSERT_EQUAL(data[i], 0x42);
	}
	cmd.sqe.cdw11 = 0; /* 64 bits are not for fabrics */
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(GENERIC, INVALID_FIELD));
	cmd.sqe.opcode = nvme_admin_set_features;
	cmd.sqe.cdw11 = htole32(1);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(GENERIC, CMD_SEQ_ERROR));
	detach();
}

/* ---- Events ---- */

static void arm(struct loop_cmd *aer)
{
	loop_cmd_init(aer, c, nvme_admin_async_event, 0);
	loop_submit(aer);
}

#define NS_EVENT (NVME_AER_NOTICE | NVME_AER_NOTICE_NS_CHANGED << 8 | NVME_LOG_LID_CHANGED_NS << 16)

static void test_namespace_changes_raise_one_event_until_read(void)
{
	struct loop_cmd aer, next;

	attach();
	arm(&aer);
	make_null("n1", 512, 1000);
	uint32_t a = loop_add_ns("n1", 12);
	CU_ASSERT_EQUAL(loop_wait(&aer), 0);
	CU_ASSERT_EQUAL(le32toh(aer.cqe.dw0), NS_EVENT);
	arm(&next);
	make_null("n2", 512, 1000);
	uint32_t b = loop_add_ns("n2", 5);
	/* Masked: not sent again. Reading with RAE leaves it so. */
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_CHANGED_NS, true, 0, data, 4096), 0);
	CU_ASSERT(le(0, 4) == 5 && le(4, 4) == 12 && le(8, 4) == 0);
	CU_ASSERT_FALSE(atomic_load(&next.done));
	/* what is refused has not been read */
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_CHANGED_NS, false, 8192, data, 4096),
			NVME_ST_DNR(GENERIC, INVALID_FIELD));
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_CHANGED_NS, false, 0, data, 4096), 0);
	CU_ASSERT_EQUAL(le(4, 4), 12);
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_CHANGED_NS, true, 0, data, 4096), 0);
	CU_ASSERT_EQUAL(le(0, 4), 0);
	char error[BDEV_ERROR_MAX];
	CU_ASSERT_EQUAL(bdev_null_resize("n1", 1, error), 0);
	CU_ASSERT_EQUAL(loop_wait(&next), 0);
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_CHANGED_NS, false, 0, data, 4096), 0);
	CU_ASSERT(le(0, 4) == 12 && le(4, 4) == 0);
	CU_ASSERT_EQUAL(loop_identify(c, 0, 12, 0, data), 0);
	CU_ASSERT_EQUAL(le(0, 8), 2048);
	loop_remove_ns(a);
	loop_remove_ns(b);
	fixture_delete(bdev_null_delete, "n1");
	fixture_delete(bdev_null_delete, "n2");
	detach();
}

static void test_event_that_comes_first_waits_for_its_request(void)
{
	struct loop_cmd aer;

	attach();
	make_null("n1", 512, 1000);
	uint32_t a = loop_add_ns("n1", 12);
	arm(&aer);
	CU_ASSERT_EQUAL(loop_wait(&aer), 0);
	CU_ASSERT_EQUAL(le32toh(aer.cqe.dw0), NS_EVENT);
	loop_remove_ns(a);
	fixture_delete(bdev_null_delete, "n1");
	detach();
}

static void test_event_that_is_switched_off_is_not_sent(void)
{
	struct loop_cmd aer;

	attach();
	arm(&aer);
	CU_ASSERT_EQUAL(loop_set_feature(c, NVME_FEAT_FID_ASYNC_EVENT, 0, NULL), 0);
	make_null("n1", 512, 1000);
	uint32_t a = loop_add_ns("n1", 12);
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_CHANGED_NS, true, 0, data, 4096), 0);
	CU_ASSERT_FALSE(atomic_load(&aer.done));
	loop_remove_ns(a);
	fixture_delete(bdev_null_delete, "n1");
	detach();
	CU_ASSERT_TRUE(loop_given_up(loop_wait(&aer)));
}

static void test_more_event_requests_than_aerl_are_rejected(void)
{
	struct loop_cmd aer[NVMF_AER_MAX], extra;

	attach();
	for (unsigned i = 0; i < NVMF_AER_MAX; i++) {
		arm(&aer[i]);
	}
	arm(&extra);
	CU_ASSERT_EQUAL(loop_wait(&extra), NVME_ST_DNR(CMD_SPECIFIC, ASYNC_LIMIT));
	detach();
	for (unsigned i = 0; i < NVMF_AER_MAX; i++) {
		CU_ASSERT_TRUE(loop_given_up(loop_wait(&aer[i])));
	}
}

static void test_too_many_changed_namespaces_are_said_to_be(void)
{
	attach();
	struct nvmf_ctrlr *ctrlr = nvmf_ctrlr_next(loop_subsystem(), NULL);
	struct nvmf_ns fake = {.subsystem = loop_subsystem()};

	ctrlr->num_changed_ns = 0;
	for (uint32_t i = 0; i < NVMF_CHANGED_NS_MAX; i++) {
		ctrlr->changed_ns[i] = 100 + i;
		ctrlr->num_changed_ns++;
	}
	fake.nsid = nsid;
	nvmf_ns_changed(loop_subsystem(), &fake);
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_CHANGED_NS, false, 0, data, 4096), 0);
	CU_ASSERT(le(0, 4) == NVME_NSID_ALL && le(4, 4) == 0);
	detach();
}

/* ---- Abort ---- */

static uint32_t run_abort(uint16_t sqid, const struct loop_cmd *victim)
{
	struct loop_cmd cmd;

	loop_cmd_init(&cmd, c, nvme_admin_abort_cmd, 0);
	cmd.sqe.cdw10 = htole32(sqid | (uint32_t)le16toh(victim->sqe.cid) << 16);
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	return le32toh(cmd.cqe.dw0);
}

static void test_event_request_is_aborted(void)
{
	struct loop_cmd aer;

	attach();
	arm(&aer);
	CU_ASSERT_EQUAL(run_abort(0, &aer), 0);
	CU_ASSERT_EQUAL(loop_wait(&aer), NVME_ST(GENERIC, ABORT_REQ));
	detach();
}

static void test_abort_of_an_unknown_command_or_queue(void)
{
	struct loop_cmd cmd;

	attach();
	struct loop_conn *io = loop_io_queue(c, 1);
	loop_cmd_init(&cmd, c, nvme_admin_abort_cmd, 0);
	CU_ASSERT_EQUAL(run_abort(1, &cmd), 1);
	CU_ASSERT_EQUAL(run_abort(2, &cmd), 1);
	loop_close(io);
	CU_ASSERT_EQUAL(run_abort(1, &cmd), 1); /* the host may not know yet that the queue has ended */
	detach();
}

static bool is_held(void *arg)
{
	return atomic_load(&((struct testdev *)arg)->held) != 0;
}

static void test_command_in_the_bdev_is_aborted(void)
{
	struct loop_cmd cmd;

	attach();
	struct testdev *t = testdev_new("dev", 512, 1000);
	t->hold = true;
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	uint32_t id = loop_add_ns("dev", 20);
	struct loop_conn *io = loop_io_queue(c, 1);
	loop_cmd_init(&cmd, io, nvme_cmd_read, id);
	loop_cmd_data(&cmd, data, 512);
	loop_submit(&cmd);
	CU_ASSERT_TRUE(loop_until(is_held, t));
	CU_ASSERT_EQUAL(run_abort(1, &cmd), 0);
	CU_ASSERT_EQUAL(loop_wait(&cmd), NVME_ST(GENERIC, ABORT_REQ));
	loop_close(io);
	loop_remove_ns(id);
	CU_ASSERT_TRUE(testdev_delete(t));
	detach();
}

/* Its answer has reached the host, which has used its identifier again. */
static void test_command_is_aborted_and_not_one_that_is_answered(void)
{
	struct loop_cmd answered, cmd;

	attach();
	struct loop_conn *io = loop_io_queue(c, 1);
	atomic_store(&loop_keep_answered, true);
	loop_cmd_init(&answered, io, nvme_cmd_read, nsid);
	loop_cmd_data(&answered, data, 4096);
	CU_ASSERT_EQUAL(loop_run(&answered), 0);
	atomic_store(&loop_keep_answered, false);
	CU_ASSERT_EQUAL(run_abort(1, &answered), 1);
	atomic_store(&loop_hold_data, true);
	loop_cmd_init(&cmd, io, nvme_cmd_read, nsid);
	cmd.sqe.cid = answered.sqe.cid;
	loop_cmd_data(&cmd, data, 4096);
	loop_submit(&cmd);
	CU_ASSERT_EQUAL(run_abort(1, &cmd), 0);
	CU_ASSERT_EQUAL(loop_wait(&cmd), NVME_ST(GENERIC, ABORT_REQ));
	atomic_store(&loop_hold_data, false);
	loop_release_data(io);
	loop_close(io);
	detach();
}

static void test_command_that_waits_for_a_buffer_is_aborted(void)
{
	struct loop_cmd cmd;

	attach();
	struct loop_conn *io = loop_io_queue(c, 1);
	atomic_store(&loop_hold_data, true);
	loop_cmd_init(&cmd, io, nvme_cmd_read, nsid);
	loop_cmd_data(&cmd, data, 4096);
	loop_submit(&cmd);
	CU_ASSERT_EQUAL(run_abort(1, &cmd), 0);
	CU_ASSERT_EQUAL(loop_wait(&cmd), NVME_ST(GENERIC, ABORT_REQ));
	atomic_store(&loop_hold_data, false);
	loop_close(io);
	detach();
}

static void test_command_held_back_by_a_pause_is_aborted(void)
{
	struct loop_wait pause = LOOP_WAIT, resume = LOOP_WAIT;
	struct loop_cmd cmd;

	attach();
	struct loop_conn *io = loop_io_queue(c, 1);
	nvmf_subsystem_pause(loop_subsystem(), NVME_NSID_ALL, loop_done, &pause);
	CU_ASSERT_EQUAL(loop_wait_for(&pause), 0);
	loop_cmd_init(&cmd, io, nvme_cmd_read, nsid);
	loop_cmd_data(&cmd, data, 4096);
	loop_submit(&cmd);
	CU_ASSERT_EQUAL(run_abort(1, &cmd), 0);
	CU_ASSERT_EQUAL(loop_wait(&cmd), NVME_ST(GENERIC, ABORT_REQ));
	nvmf_subsystem_resume(loop_subsystem(), loop_done, &resume);
	CU_ASSERT_EQUAL(loop_wait_for(&resume), 0);
	loop_close(io);
	detach();
}

/* ---- The reserved lane, and what is outstanding ---- */

static void test_reserved_lane_waits_for_nothing(void)
{
	struct loop_wait pause = LOOP_WAIT, resume = LOOP_WAIT;
	struct loop_cmd cmd, stuck;
	uint64_t v;

	attach();
	struct loop_conn *io = loop_io_queue(c, 1);
	CU_ASSERT_EQUAL(loop_set_feature(c, NVME_FEAT_FID_KATO, 100000, NULL), 0);
	nvmf_subsystem_pause(loop_subsystem(), NVME_NSID_ALL, loop_done, &pause);
	CU_ASSERT_EQUAL(loop_wait_for(&pause), 0);
	atomic_store(&loop_hold_data, true);
	loop_cmd_init(&stuck, io, nvme_cmd_read, nsid);
	loop_cmd_data(&stuck, data, 4096);
	loop_submit(&stuck);

	struct loop_conn *another = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0); /* Connect and properties */
	CU_ASSERT_PTR_NOT_NULL(another);
	loop_cmd_init(&cmd, c, nvme_admin_keep_alive, 0);
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	CU_ASSERT_EQUAL(loop_property_get(c, NVME_REG_CSTS, 4, &v), 0);
	CU_ASSERT_EQUAL(run_abort(1, &stuck), 0);
	CU_ASSERT_EQUAL(loop_wait(&stuck), NVME_ST(GENERIC, ABORT_REQ));
	atomic_store(&loop_hold_data, false);
	nvmf_subsystem_resume(loop_subsystem(), loop_done, &resume);
	CU_ASSERT_EQUAL(loop_wait_for(&resume), 0);
	loop_close(another);
	loop_close(io);
	detach();
}

static bool has_inflight(void *arg)
{
	struct nvmf_inflight *list;
	size_t n = (size_t)nvmf_tgt_get_inflight(loop_tgt(), &list);

	free(list);
	return n == *(size_t *)arg;
}

static void test_inflight_tells_what_each_command_waits_for(void)
{
	struct loop_cmd in_bdev, held, aer;
	struct nvmf_inflight *list;
	size_t three = 3;

	attach();
	struct testdev *t = testdev_new("dev", 512, 1000);
	t->hold = true;
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	uint32_t id = loop_add_ns("dev", 20);
	struct loop_conn *io = loop_io_queue(c, 1);
	loop_cmd_init(&in_bdev, io, nvme_cmd_write, id);
	in_bdev.sqe.cdw10 = htole32(77);
	in_bdev.sqe.cdw12 = htole32(1);
	loop_cmd_data(&in_bdev, data, 1024);
	loop_submit(&in_bdev);
	CU_ASSERT_TRUE(loop_until(is_held, t));
	atomic_store(&loop_hold_data, true);
	loop_cmd_init(&held, io, nvme_cmd_read, nsid);
	loop_cmd_data(&held, data, 4096);
	loop_submit(&held);
	arm(&aer);
	CU_ASSERT_TRUE(loop_until(has_inflight, &three));
	size_t n = (size_t)nvmf_tgt_get_inflight(loop_tgt(), &list);
	unsigned seen = 0;
	for (size_t i = 0; i < n; i++) {
		const struct nvmf_inflight *f = &list[i];
		CU_ASSERT_STRING_EQUAL(f->hostnqn, LOOP_HOSTNQN);
		CU_ASSERT_STRING_EQUAL(f->subnqn, LOOP_SUBNQN);
		CU_ASSERT_EQUAL(f->cntlid, c->cntlid);
		if (f->cid == le16toh(in_bdev.sqe.cid)) {
			CU_ASSERT(f->qid == 1 && !f->admin && f->opcode == nvme_cmd_write && f->nsid == id);
			CU_ASSERT(f->slba == 77 && f->num_blocks == 2);
			CU_ASSERT_STRING_EQUAL(f->state, "BDEV");
			seen |= 1;
		} else if (f->cid == le16toh(held.sqe.cid)) {
			CU_ASSERT_STRING_EQUAL(f->state, "loop need buffer");
			CU_ASSERT_STRING_EQUAL(f->waits_for, "data buffer");
			seen |= 2;
		} else if (f->cid == le16toh(aer.sqe.cid)) {
			CU_ASSERT(f->admin && f->qid == 0);
			CU_ASSERT_STRING_EQUAL(f->state, "HELD");
			seen |= 4;
		}
	}
	CU_ASSERT_EQUAL(seen, 7);
	free(list);
	atomic_store(&loop_hold_data, false);
	loop_release_data(io);
	CU_ASSERT_EQUAL(loop_wait(&held), 0);
	CU_ASSERT_EQUAL(run_abort(1, &in_bdev), 0);
	CU_ASSERT_EQUAL(loop_wait(&in_bdev), NVME_ST(GENERIC, ABORT_REQ));
	loop_close(io);
	loop_remove_ns(id);
	CU_ASSERT_TRUE(testdev_delete(t));
	CU_ASSERT_EQUAL(loop_wait(&aer), 0); /* the namespace has gone */
	detach();
}

/* ---- Discovery ---- */

static void attach_discovery(void)
{
	c = loop_attach(NVMF_DISCOVERY_NQN, LOOP_HOSTNQN, 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(c);
}

static void test_discovery_log(void)
{
	attach_discovery();
	CU_ASSERT_EQUAL(loop_identify(c, NVME_IDENTIFY_CNS_CTRL, 0, 0, data), 0);
	CU_ASSERT_EQUAL(data[111], NVME_CTRL_CNTRLTYPE_DISCOVERY);
	CU_ASSERT_EQUAL(le(92, 4), 1u << 31);
	CU_ASSERT_STRING_EQUAL((char *)data + 768, NVMF_DISCOVERY_NQN);
	CU_ASSERT_EQUAL(loop_identify(c, NVME_IDENTIFY_CNS_NS_ACTIVE_LIST, 0, 0, data),
			NVME_ST_DNR(GENERIC, INVALID_FIELD));

	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_DISCOVER, false, 0, data, 2048), 0);
	CU_ASSERT_EQUAL(le(8, 8), 1);
	CU_ASSERT_EQUAL(le(16, 2), 0);
	CU_ASSERT_EQUAL(data[1024], NVMF_TRTYPE_LOOP);
	CU_ASSERT_EQUAL(data[1025], NVMF_ADDR_FAMILY_LOOP);
	CU_ASSERT_EQUAL(data[1026], NVME_NQN_NVME);
	CU_ASSERT_EQUAL(le(1024 + 6, 2), 0xffff);
	CU_ASSERT_EQUAL(le(1024 + 8, 2), 32);
	CU_ASSERT_EQUAL(memcmp(data + 1024 + 32, "1   ", 4), 0);
	CU_ASSERT_STRING_EQUAL((char *)data + 1024 + 256, LOOP_SUBNQN);
	CU_ASSERT_EQUAL(memcmp(data + 1024 + 512, "here    ", 8), 0);
	CU_ASSERT_EQUAL(data[1024 + 768], 'L'); /* TSAS: the transport's */
	loop_close(c);
}

/* A change: another generation, and an event for hosts that want it. */
static void test_discovery_log_changes_with_referrals(void)
{
	struct nvmf_referral referral = {.address = {"LOOP", NVMF_ADDR_FAMILY_IP4, "10.0.0.1", "8009"}};
	struct loop_cmd aer;

	attach_discovery();
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_DISCOVER, false, 0, data, 2048), 0);
	uint64_t generation = le(0, 8);
	CU_ASSERT_EQUAL(loop_set_feature(c, NVME_FEAT_FID_ASYNC_EVENT, 1u << 31, NULL), 0);
	arm(&aer);
	CU_ASSERT_EQUAL(nvmf_tgt_add_referral(loop_tgt(), &referral), 0);
	CU_ASSERT_EQUAL(nvmf_tgt_add_referral(loop_tgt(), &referral), -EEXIST);
	CU_ASSERT_EQUAL(loop_wait(&aer), 0);
	CU_ASSERT_EQUAL(le32toh(aer.cqe.dw0), (uint32_t)NVME_AER_NOTICE | 0xf0 << 8 | 0x70 << 16);
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_DISCOVER, false, 0, data, 1024), 0);
	CU_ASSERT(le(0, 8) > generation && le(8, 8) == 2);
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_DISCOVER, false, 2048, data, 1024), 0);
	CU_ASSERT_EQUAL(data[2], NVME_NQN_DISC);
	CU_ASSERT_EQUAL(memcmp(data + 512, "10.0.0.1 ", 9), 0);
	CU_ASSERT_STRING_EQUAL((char *)data + 256, NVMF_DISCOVERY_NQN);
	/* The host has read that there are two entries. Before it reads them one goes. */
	CU_ASSERT_EQUAL(nvmf_tgt_remove_referral(loop_tgt(), &referral.address, NULL), 0);
	memset(data, 0xa5, sizeof(data));
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_DISCOVER, false, 2048 + 4, data, 1024), 0);
	CU_ASSERT(data[0] == 0 && data[1023] == 0 && data[1024] == 0xa5);
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_DISCOVER, false, UINT64_MAX - 3, data, 1024), 0);
	CU_ASSERT(data[0] == 0 && data[1023] == 0);
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_ERROR, false, UINT64_MAX - 3, data, 64),
			NVME_ST_DNR(GENERIC, INVALID_FIELD));
	CU_ASSERT_EQUAL(nvmf_tgt_remove_referral(loop_tgt(), &referral.address, NULL), -ENOENT);

	/* A referral by a transport that we do not have: hosts may. */
	strcpy(referral.address.trtype, "tcp");
	CU_ASSERT_EQUAL(nvmf_tgt_add_referral(loop_tgt(), &referral), 0);
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_DISCOVER, false, 2048, data, 1024), 0);
	CU_ASSERT_EQUAL(data[0], NVMF_TRTYPE_TCP);
	CU_ASSERT_EQUAL(nvmf_tgt_remove_referral(loop_tgt(), &referral.address, NULL), 0);
	strcpy(referral.address.trtype, "pigeon");
	CU_ASSERT_EQUAL(nvmf_tgt_add_referral(loop_tgt(), &referral), -EINVAL);
	loop_close(c);
}

static void test_discovery_log_has_what_the_host_may_use_and_the_filter_passes(void)
{
	attach_discovery();
	nvmf_subsystem_set_allow_any_host(loop_subsystem(), false);
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_DISCOVER, false, 0, data, 1024), 0);
	CU_ASSERT_EQUAL(le(8, 8), 0);
	nvmf_subsystem_set_allow_any_host(loop_subsystem(), true);
	CU_ASSERT_EQUAL(nvmf_subsystem_add_listener(loop_subsystem(), &loop_other_address), 0);
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_DISCOVER, false, 0, data, 1024), 0);
	CU_ASSERT_EQUAL(le(8, 8), 2);
	nvmf_tgt_set_discovery_filter(loop_tgt(), NVMF_DISCOVERY_MATCH_TRADDR);
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_DISCOVER, false, 0, data, 1024), 0);
	CU_ASSERT_EQUAL(le(8, 8), 1);
	/* Through a listener at any address: the one that the host has connected to. */
	struct nvmf_ctrlr *ctrlr = TAILQ_FIRST(&nvmf_subsystem_find(loop_tgt(), NVMF_DISCOVERY_NQN)->ctrlrs);
	struct nvmf_address listens = ctrlr->listen_address;
	strcpy(ctrlr->listen_address.traddr, "0.0.0.0");
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_DISCOVER, false, 0, data, 1024), 0);
	CU_ASSERT_EQUAL(le(8, 8), 1);
	ctrlr->listen_address = listens;
	/* What each word of the filter compares: both listeners have one transport, and nothing else. */
	for (uint32_t filter = NVMF_DISCOVERY_MATCH_ANY; filter <= 7; filter++) {
		uint64_t listeners = filter & (NVMF_DISCOVERY_MATCH_TRADDR | NVMF_DISCOVERY_MATCH_TRSVCID) ? 1 : 2;
		nvmf_tgt_set_discovery_filter(loop_tgt(), filter);
		CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_DISCOVER, false, 0, data, 1024), 0);
		CU_ASSERT_EQUAL(le(8, 8), listeners);
		strcpy(ctrlr->listen_address.trsvcid, "77");
		CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_DISCOVER, false, 0, data, 1024), 0);
		CU_ASSERT_EQUAL(le(8, 8), filter & NVMF_DISCOVERY_MATCH_TRSVCID ? 0 : listeners);
		ctrlr->listen_address = listens;
		strcpy(ctrlr->listen_address.trtype, "pigeon");
		CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_DISCOVER, false, 0, data, 1024), 0);
		CU_ASSERT_EQUAL(le(8, 8), filter & NVMF_DISCOVERY_MATCH_TRTYPE ? 0 : listeners);
		ctrlr->listen_address = listens;
	}
	nvmf_tgt_set_discovery_filter(loop_tgt(), NVMF_DISCOVERY_MATCH_ANY);
	struct loop_wait wait = LOOP_WAIT;
	nvmf_subsystem_remove_listener(loop_subsystem(), &loop_other_address, loop_done, &wait);
	CU_ASSERT_EQUAL(loop_wait_for(&wait), 0);
	loop_close(c);
}

static void test_a_discovery_controller_has_no_more_than_that(void)
{
	struct loop_cmd cmd;

	attach_discovery();
	loop_cmd_init(&cmd, c, nvme_admin_abort_cmd, 0);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(GENERIC, INVALID_OPCODE));
	CU_ASSERT_EQUAL(loop_get_feature(c, NVME_FEAT_FID_NUM_QUEUES, 0, NULL), NVME_ST_DNR(GENERIC, INVALID_FIELD));
	CU_ASSERT_EQUAL(loop_get_log(c, NVME_LOG_LID_SMART, false, 0, data, 512),
			NVME_ST_DNR(CMD_SPECIFIC, INVALID_LOG_PAGE));
	loop_close(c);
}

static const struct unit_test tests[] = {
	UNIT(test_identify_controller),
	UNIT(test_identify_namespace),
	UNIT(test_identify_active_list),
	UNIT(test_identify_descriptors),
	UNIT(test_identify_command_set_structures),
	UNIT(test_identify_controller_list),
	UNIT(test_identify_with_short_sgl_is_rejected),
	UNIT(test_restricted_namespace_is_seen_by_its_hosts_only),
	UNIT(test_errors_are_logged),
	UNIT(test_the_error_log_has_an_lba_for_commands_with_one_only),
	UNIT(test_smart_counts_io),
	UNIT(test_supported_logs_and_effects),
	UNIT(test_write_uncorrectable_is_there_where_a_bdev_can),
	UNIT(test_wrong_log_requests_are_rejected),
	UNIT(test_features_are_kept),
	UNIT(test_error_recovery_is_a_namespaces),
	UNIT(test_number_of_queues),
	UNIT(test_wrong_features_are_rejected),
	UNIT(test_host_identifier_is_that_of_connect),
	UNIT(test_namespace_changes_raise_one_event_until_read),
	UNIT(test_event_that_comes_first_waits_for_its_request),
	UNIT(test_event_that_is_switched_off_is_not_sent),
	UNIT(test_more_event_requests_than_aerl_are_rejected),
	UNIT(test_too_many_changed_namespaces_are_said_to_be),
	UNIT(test_event_request_is_aborted),
	UNIT(test_abort_of_an_unknown_command_or_queue),
	UNIT(test_command_in_the_bdev_is_aborted),
	UNIT(test_command_is_aborted_and_not_one_that_is_answered),
	UNIT(test_command_that_waits_for_a_buffer_is_aborted),
	UNIT(test_command_held_back_by_a_pause_is_aborted),
	UNIT(test_reserved_lane_waits_for_nothing),
	UNIT(test_inflight_tells_what_each_command_waits_for),
	UNIT(test_discovery_log),
	UNIT(test_discovery_log_changes_with_referrals),
	UNIT(test_discovery_log_has_what_the_host_may_use_and_the_filter_passes),
	UNIT(test_a_discovery_controller_has_no_more_than_that),
	UNIT_END,
};
UNIT_MAIN("nvmf_admin", tests, loop_start, loop_stop)

/* SPDX-License-Identifier: BSD-3-Clause */
/* The pure parts of NVMe bdevs: what a completion means, and which commands may be passed through. */
#include "bdev_modules/nvme/internal.h"
#include "unittest/unit.h"

static const struct bdev_nvme_verdict_facts facts = {.repeatable = true, .retry_limit = 3, .crdt = {5, 20, 300}};

static enum bdev_nvme_verdict verdict(uint16_t status, struct bdev_nvme_verdict_facts f, uint32_t *delay_ms)
{
	uint32_t ignored;

	return bdev_nvme_io_verdict(status, &f, delay_ms ? delay_ms : &ignored);
}

static void test_success_and_lasting_errors_are_final(void)
{
	CU_ASSERT_EQUAL(verdict(0, facts, NULL), BDEV_NVME_VERDICT_DONE);
	CU_ASSERT_EQUAL(verdict(NVME_ST_DNR(GENERIC, INTERNAL), facts, NULL), BDEV_NVME_VERDICT_DONE);
	CU_ASSERT_EQUAL(verdict(NVME_ST(GENERIC, LBA_RANGE), facts, NULL), BDEV_NVME_VERDICT_DONE);
	CU_ASSERT_EQUAL(verdict(NVME_ST(MEDIA, READ_ERROR), facts, NULL), BDEV_NVME_VERDICT_DONE);
	CU_ASSERT_EQUAL(verdict(NVME_ST(MEDIA, COMPARE_FAILED), facts, NULL), BDEV_NVME_VERDICT_DONE);
	CU_ASSERT_EQUAL(verdict(NVME_ST_DNR(GENERIC, ABORT_REQ), facts, NULL), BDEV_NVME_VERDICT_DONE);
	CU_ASSERT_EQUAL(verdict(NVME_ST(GENERIC, RESERVATION_CONFLICT), facts, NULL), BDEV_NVME_VERDICT_DONE);
}

static void test_what_is_lost_with_its_queue_pair_goes_again(void)
{
	struct bdev_nvme_verdict_facts f = facts;

	f.retries = 200; /* retries and losses are counted apart */
	CU_ASSERT_EQUAL(verdict(NVME_ST(GENERIC, ABORT_QUEUE), f, NULL), BDEV_NVME_VERDICT_LOST);
	f.aborting = true;
	CU_ASSERT_EQUAL(verdict(NVME_ST(GENERIC, ABORT_QUEUE), f, NULL), BDEV_NVME_VERDICT_DONE);
	f = facts;
	f.repeatable = false;
	CU_ASSERT_EQUAL(verdict(NVME_ST(GENERIC, ABORT_QUEUE), f, NULL), BDEV_NVME_VERDICT_DONE);
	CU_ASSERT_EQUAL(verdict(NVME_ST(GENERIC, CMD_INTERRUPTED), f, NULL), BDEV_NVME_VERDICT_DONE);
}

static void test_passing_errors_are_tried_again_so_often(void)
{
	static const uint16_t passing[] = {NVME_ST(GENERIC, CMD_INTERRUPTED), NVME_ST(GENERIC, NS_NOT_READY),
					   NVME_ST(GENERIC, INTERNAL),        NVME_ST(PATH, ANA_INACCESSIBLE),
					   NVME_ST(PATH, ANA_TRANSITION),     NVME_ST(PATH, CTRL_PATH_ERROR),
					   NVME_ST(GENERIC, TRAN_TPORT_ERROR)};
	struct bdev_nvme_verdict_facts f = facts;

	for (unsigned i = 0; i < sizeof(passing) / sizeof(passing[0]); i++) {
		f.retries = 2;
		CU_ASSERT_EQUAL(verdict(passing[i], f, NULL), BDEV_NVME_VERDICT_RETRY);
		f.retries = passing[i] >> NVME_SCT_SHIFT == NVME_SCT_PATH ? 16 : 3;
		CU_ASSERT_EQUAL(verdict(passing[i], f, NULL), BDEV_NVME_VERDICT_DONE);
	}
	f.retry_limit = -1;
	f.retries = 255;
	CU_ASSERT_EQUAL(verdict(passing[0], f, NULL), BDEV_NVME_VERDICT_RETRY);
}

static void test_what_was_refused_for_want_of_access_may_go_elsewhere_whatever_it_is(void)
{
	static const uint16_t no_access[] = {NVME_ST(PATH, ANA_INACCESSIBLE), NVME_ST(PATH, ANA_TRANSITION),
					     NVME_ST(PATH, ANA_PERSISTENT_LOSS)};
	struct bdev_nvme_verdict_facts f = facts;

	f.ana = true;
	f.repeatable = false; /* it was not carried out */
	f.retries = 200;      /* the ANA log decides when it is submitted again, not a count */
	for (unsigned i = 0; i < sizeof(no_access) / sizeof(no_access[0]); i++) {
		CU_ASSERT_EQUAL(verdict(no_access[i], f, NULL), BDEV_NVME_VERDICT_NO_ACCESS);
		CU_ASSERT_EQUAL(verdict(no_access[i] | NVME_SC_DNR, f, NULL), BDEV_NVME_VERDICT_DONE);
		f.aborting = true;
		CU_ASSERT_EQUAL(verdict(no_access[i], f, NULL), BDEV_NVME_VERDICT_DONE);
		f.aborting = false;
	}
	CU_ASSERT_EQUAL(verdict(NVME_ST(PATH, CTRL_PATH_ERROR), f, NULL), BDEV_NVME_VERDICT_DONE);
	CU_ASSERT_EQUAL(verdict(0, f, NULL), BDEV_NVME_VERDICT_DONE);
}

static void test_path_errors_go_elsewhere_at_once_so_often(void)
{
	struct bdev_nvme_verdict_facts f = facts;
	uint32_t delay_ms;

	f.others = true;
	CU_ASSERT_EQUAL(verdict(NVME_ST(PATH, CTRL_PATH_ERROR), f, &delay_ms), BDEV_NVME_VERDICT_ELSEWHERE);
	CU_ASSERT_EQUAL(delay_ms, 0);
	CU_ASSERT_EQUAL(verdict(NVME_ST(PATH, ANA_INTERNAL_PATH_ERROR), f, NULL), BDEV_NVME_VERDICT_ELSEWHERE);
	CU_ASSERT_EQUAL(verdict(NVME_ST(GENERIC, CMD_INTERRUPTED), f, NULL),
			BDEV_NVME_VERDICT_RETRY); /* another path has the same drive */
	CU_ASSERT_EQUAL(verdict(NVME_ST(GENERIC, TRAN_TPORT_ERROR), f, &delay_ms), BDEV_NVME_VERDICT_ELSEWHERE);
	CU_ASSERT_EQUAL(delay_ms, 0);
	CU_ASSERT_EQUAL(verdict(NVME_ST_DNR(PATH, CTRL_PATH_ERROR), f, NULL), BDEV_NVME_VERDICT_DONE);
	f.retries = 3;
	CU_ASSERT_EQUAL(verdict(NVME_ST(GENERIC, TRAN_TPORT_ERROR), f, NULL), BDEV_NVME_VERDICT_DONE);
	/* the others after delays: targets that end their connections refuse for a while */
	CU_ASSERT_EQUAL(verdict(NVME_ST(PATH, CTRL_PATH_ERROR), f, &delay_ms), BDEV_NVME_VERDICT_RETRY);
	CU_ASSERT_EQUAL(delay_ms, 80);
	f.retries = 15;
	CU_ASSERT_EQUAL(verdict(NVME_ST(PATH, CTRL_PATH_ERROR), f, &delay_ms), BDEV_NVME_VERDICT_RETRY);
	CU_ASSERT_EQUAL(delay_ms, 1280);
	f.retries = 16;
	CU_ASSERT_EQUAL(verdict(NVME_ST(PATH, CTRL_PATH_ERROR), f, NULL), BDEV_NVME_VERDICT_DONE);
	f.retries = 0;
	f.others = false;
	CU_ASSERT_EQUAL(verdict(NVME_ST(PATH, CTRL_PATH_ERROR), f, &delay_ms), BDEV_NVME_VERDICT_RETRY);
	CU_ASSERT_EQUAL(delay_ms, 10);
	f.retry_limit = 0;
	CU_ASSERT_EQUAL(verdict(NVME_ST(PATH, CTRL_PATH_ERROR), f, NULL), BDEV_NVME_VERDICT_DONE);
	f.retry_limit = 3;
	f.others = true;
	f.repeatable = false;
	CU_ASSERT_EQUAL(verdict(NVME_ST(PATH, CTRL_PATH_ERROR), f, NULL), BDEV_NVME_VERDICT_DONE);
}

static void test_a_namespace_that_one_controller_has_no_more_is_used_through_another(void)
{
	uint16_t gone = NVME_ST_DNR(GENERIC, INVALID_NS); /* final for this controller */
	struct bdev_nvme_verdict_facts f = facts;

	CU_ASSERT_EQUAL(verdict(gone, f, NULL), BDEV_NVME_VERDICT_DONE);
	f.others = true;
	CU_ASSERT_EQUAL(verdict(gone, f, NULL), BDEV_NVME_VERDICT_ELSEWHERE);
	f.repeatable = false; /* a target may have begun it when the namespace went */
	CU_ASSERT_EQUAL(verdict(gone, f, NULL), BDEV_NVME_VERDICT_DONE);
	f.repeatable = true;
	f.retries = (uint32_t)f.retry_limit;
	CU_ASSERT_EQUAL(verdict(gone, f, NULL), BDEV_NVME_VERDICT_DONE);
	f.retries = 0;
	f.aborting = true;
	CU_ASSERT_EQUAL(verdict(gone, f, NULL), BDEV_NVME_VERDICT_DONE);
}

static void test_a_count_does_not_begin_anew(void)
{
	CU_ASSERT_EQUAL(bdev_nvme_count_up(0), 1);
	CU_ASSERT_EQUAL(bdev_nvme_count_up(254), 255);
	CU_ASSERT_EQUAL(bdev_nvme_count_up(255), 255); /* 0: no controller has had the command */
}

static void test_what_the_driver_had_aborted_goes_elsewhere_and_what_the_submitter_aborts_does_not(void)
{
	uint16_t aborted = NVME_ST(GENERIC, ABORT_REQ);
	struct bdev_nvme_verdict_facts f = facts;

	f.timed_out = true;
	CU_ASSERT_EQUAL(verdict(aborted, f, NULL), BDEV_NVME_VERDICT_DONE); /* there is no other path */
	f.others = true;
	CU_ASSERT_EQUAL(verdict(aborted, f, NULL), BDEV_NVME_VERDICT_ELSEWHERE);
	CU_ASSERT_EQUAL(verdict(aborted | NVME_SC_DNR, f, NULL), BDEV_NVME_VERDICT_DONE);
	f.repeatable = false; /* it may have been carried out in part */
	CU_ASSERT_EQUAL(verdict(aborted, f, NULL), BDEV_NVME_VERDICT_DONE);
	f.repeatable = true;
	f.aborting = true;
	CU_ASSERT_EQUAL(verdict(aborted, f, NULL), BDEV_NVME_VERDICT_DONE);
	f.aborting = false;
	f.retries = (uint32_t)f.retry_limit;
	CU_ASSERT_EQUAL(verdict(aborted, f, NULL), BDEV_NVME_VERDICT_DONE);
}

static void test_what_a_controller_aborts_of_its_own_accord_is_tried_again_so_often(void)
{
	uint16_t aborted = NVME_ST(GENERIC, ABORT_REQ);
	struct bdev_nvme_verdict_facts f = facts;
	uint32_t delay_ms;

	for (unsigned others = 0; others < 2; others++) {
		f.others = others != 0;
		f.retries = 2;
		CU_ASSERT_EQUAL(verdict(aborted, f, &delay_ms), BDEV_NVME_VERDICT_RETRY);
		CU_ASSERT(delay_ms > 0);
		f.retries = 3;
		CU_ASSERT_EQUAL(verdict(aborted, f, NULL), BDEV_NVME_VERDICT_DONE);
	}
	f.retries = 0;
	CU_ASSERT_EQUAL(verdict(aborted | NVME_SC_DNR, f, NULL), BDEV_NVME_VERDICT_DONE);
	f.repeatable = false; /* it may have been carried out in part */
	CU_ASSERT_EQUAL(verdict(aborted, f, NULL), BDEV_NVME_VERDICT_DONE);
	f.repeatable = true;
	f.aborting = true;
	CU_ASSERT_EQUAL(verdict(aborted, f, NULL), BDEV_NVME_VERDICT_DONE);
}

/* --- The log of access states --- */

static size_t put_group(uint8_t *log, size_t at, uint32_t id, uint8_t state, uint32_t nnsids)
{
	struct nvme_ana_group_desc d = {.grpid = htole32(id), .nnsids = htole32(nnsids), .state = state};

	memcpy(log + at, &d, sizeof(d));
	return at + sizeof(d) + nnsids * 4;
}

static void test_ana_log_is_decoded_and_nonsense_refused(void)
{
	uint8_t log[256] = {0};
	struct nvme_ana_group g[4];
	struct nvme_ana_log header = {.ngrps = htole16(3)};

	memcpy(log, &header, sizeof(header));
	size_t at = put_group(log, sizeof(header), 1, NVME_ANA_STATE_OPTIMIZED, 3);
	size_t second = at;
	at = put_group(log, at, 7, NVME_ANA_STATE_CHANGE, 0);
	at = put_group(log, at, 9, NVME_ANA_STATE_INACCESSIBLE, 0);
	CU_ASSERT_EQUAL(nvme_ana_decode(log, at, g, 4), 3);
	CU_ASSERT(g[0].anagrpid == 1 && g[0].state == NVME_ANA_STATE_OPTIMIZED);
	CU_ASSERT(g[1].anagrpid == 7 && g[1].state == NVME_ANA_STATE_CHANGE);
	CU_ASSERT(g[2].anagrpid == 9 && g[2].state == NVME_ANA_STATE_INACCESSIBLE);
	CU_ASSERT_EQUAL(nvme_ana_decode(log, at, g, 2), 2);
	for (size_t len = 0; len < at; len++) {
		CU_ASSERT_EQUAL(nvme_ana_decode(log, len, g, 4), -EINVAL);
	}
	put_group(log, second, 7, 0, 0); /* no such state */
	CU_ASSERT_EQUAL(nvme_ana_decode(log, at, g, 4), -EINVAL);
	put_group(log, second, 7, 5, 0);
	CU_ASSERT_EQUAL(nvme_ana_decode(log, at, g, 4), -EINVAL);
	put_group(log, second, 0, NVME_ANA_STATE_OPTIMIZED, 0);
	CU_ASSERT_EQUAL(nvme_ana_decode(log, at, g, 4), -EINVAL);
	struct nvme_ana_group_desc d = {.grpid = htole32(7), .nnsids = UINT32_MAX, .state = NVME_ANA_STATE_OPTIMIZED};
	memcpy(log + second, &d, sizeof(d));
	CU_ASSERT_EQUAL(nvme_ana_decode(log, at, g, 4), -EINVAL);
}

static void test_controller_says_how_long_to_wait(void)
{
	uint32_t delay_ms;

	for (uint16_t crd = 1; crd <= 3; crd++) {
		CU_ASSERT_EQUAL(verdict((uint16_t)(NVME_SC_CMD_INTERRUPTED | crd << 11), facts, &delay_ms),
				BDEV_NVME_VERDICT_RETRY);
		CU_ASSERT_EQUAL(delay_ms, facts.crdt[crd - 1] * 100u);
	}
	CU_ASSERT_EQUAL(verdict(NVME_SC_CMD_INTERRUPTED, facts, &delay_ms), BDEV_NVME_VERDICT_RETRY);
	CU_ASSERT(delay_ms > 0 && delay_ms < 100);
}

static void test_commands_of_the_driver_are_not_passed_through(void)
{
	static const uint8_t own[] = {nvme_admin_delete_sq, nvme_admin_create_sq, nvme_admin_delete_cq,
				      nvme_admin_create_cq, nvme_admin_abort_cmd, nvme_admin_async_event,
				      nvme_admin_dbbuf,     nvme_admin_fabrics};
	static const uint8_t features[] = {NVME_FEAT_FID_NUM_QUEUES, NVME_FEAT_FID_ASYNC_EVENT, NVME_FEAT_FID_KATO};
	struct nvme_sqe cmd = {0};

	for (unsigned i = 0; i < sizeof(own); i++) {
		cmd.opcode = own[i];
		CU_ASSERT_EQUAL(bdev_nvme_cmd_check_admin(&cmd, 0, true), NVME_ST_DNR(GENERIC, INVALID_OPCODE));
	}
	for (unsigned i = 0; i < sizeof(features); i++) {
		cmd = (struct nvme_sqe){.opcode = nvme_admin_set_features, .cdw10 = htole32(features[i])};
		CU_ASSERT_EQUAL(bdev_nvme_cmd_check_admin(&cmd, 0, true), NVME_ST_DNR(GENERIC, INVALID_FIELD));
		cmd.opcode = nvme_admin_get_features;
		CU_ASSERT_EQUAL(bdev_nvme_cmd_check_admin(&cmd, 0, true), 0);
	}
	cmd = (struct nvme_sqe){.opcode = nvme_admin_get_log_page};
	CU_ASSERT_EQUAL(bdev_nvme_cmd_check_admin(&cmd, 0, true), 0);
}

static void check_admin_length(struct nvme_sqe cmd, uint64_t need)
{
	CU_ASSERT_EQUAL(bdev_nvme_cmd_check_admin(&cmd, need, false), 0);
	CU_ASSERT_EQUAL(bdev_nvme_cmd_check_admin(&cmd, need + 4096, false), 0);
	if (need != 0) {
		CU_ASSERT_EQUAL(bdev_nvme_cmd_check_admin(&cmd, need - 1, false),
				NVME_ST_DNR(GENERIC, SGL_INVALID_DATA));
		CU_ASSERT_EQUAL(bdev_nvme_cmd_check_admin(&cmd, 0, false), NVME_ST_DNR(GENERIC, SGL_INVALID_DATA));
		CU_ASSERT_EQUAL(bdev_nvme_cmd_check_admin(&cmd, 0, true), 0); /* an SGL has its length */
	}
}

/* A controller moves as much as the command says, even if the buffers have less. */
static void test_admin_commands_that_move_more_than_they_have_are_refused(void)
{
	static const struct {
		uint8_t opcode;
		uint32_t cdw10, cdw11, cdw12;
		uint64_t need;
	} rows[] = {
		{nvme_admin_identify, NVME_IDENTIFY_CNS_CTRL, 0, 0, 4096},
		{nvme_admin_get_log_page, NVME_LOG_LID_SMART | 127u << 16, 0, 0, 512},
		{nvme_admin_get_log_page, NVME_LOG_LID_SMART | 0xffffu << 16, 0xffff, 0, UINT64_C(1) << 34},
		{nvme_admin_get_features, NVME_FEAT_FID_ARBITRATION, 0, 0, 0},
		{nvme_admin_get_features, NVME_FEAT_FID_LBA_RANGE, 0, 0, 4096},
		{nvme_admin_get_features, NVME_FEAT_FID_LBA_RANGE | 3 << 8, 0, 0, 0},
		{nvme_admin_set_features, NVME_FEAT_FID_TIMESTAMP, 0, 0, 8},
		{nvme_admin_set_features, 0xd0, 0, 0, 4096},
		{nvme_admin_fw_download, 1023, 0, 0, 4096},
		{nvme_admin_security_recv, 0, 513, 0, 513},
		{nvme_admin_directive_recv, UINT32_MAX, 0, 0, UINT64_C(1) << 34},
		{nvme_admin_get_lba_status, 0, 0, 15, 64},
		{nvme_admin_ns_mgmt, 0, 0, 0, 4096},
		{nvme_admin_ns_mgmt, 1, 0, 0, 0},
		{nvme_admin_format_nvm, 0, 0, 0, 0},
	};
	const struct nvme_sqe unknown = {.opcode = nvme_admin_nvme_mi_recv};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		check_admin_length((struct nvme_sqe){.opcode = rows[i].opcode,
						     .cdw10 = htole32(rows[i].cdw10),
						     .cdw11 = htole32(rows[i].cdw11),
						     .cdw12 = htole32(rows[i].cdw12)},
				   rows[i].need);
	}
	CU_ASSERT_EQUAL(bdev_nvme_cmd_check_admin(&unknown, 4096, false), NVME_ST_DNR(GENERIC, INVALID_OPCODE));
	CU_ASSERT_EQUAL(bdev_nvme_cmd_check_admin(&unknown, 4096, true), 0);
}

static const struct nvme_ns plain = {.block_size = 512};

static void check_length(uint8_t opcode, uint32_t cdw10, uint32_t cdw12, uint64_t right)
{
	struct nvme_sqe cmd = {.opcode = opcode, .cdw10 = htole32(cdw10), .cdw12 = htole32(cdw12)};

	CU_ASSERT_EQUAL(bdev_nvme_cmd_check_io(&cmd, right, 0, &plain), 0);
	CU_ASSERT_EQUAL(bdev_nvme_cmd_check_io(&cmd, right + 4, 0, &plain), NVME_ST_DNR(GENERIC, SGL_INVALID_DATA));
	if (right >= 4) {
		CU_ASSERT_EQUAL(bdev_nvme_cmd_check_io(&cmd, right - 4, 0, &plain),
				NVME_ST_DNR(GENERIC, SGL_INVALID_DATA));
	}
}

static void test_data_of_a_passed_command_must_be_what_the_controller_will_move(void)
{
	check_length(nvme_cmd_read, 0, 0, 512);
	check_length(nvme_cmd_write, 0, 0xffff, 512 * 65536ull);
	check_length(nvme_cmd_write, 0, 1 | UINT32_C(1) << 30, 1024); /* FUA */
	check_length(nvme_cmd_compare, 0, 7, 4096);
	check_length(nvme_cmd_flush, 0, 9, 0);
	check_length(nvme_cmd_write_zeroes, 0, 9, 0);
	check_length(nvme_cmd_verify, 0, 9, 0);
	check_length(nvme_cmd_copy, 0, 3, 128); /* four ranges */
	check_length(nvme_cmd_dsm, 255, 0, 4096);
	check_length(nvme_cmd_resv_report, 0xff, 0, 1024);
	check_length(nvme_cmd_resv_report, UINT32_MAX, 0, UINT64_C(4) << 32);
	check_length(nvme_cmd_resv_release, 0, 0, 8);
	struct nvme_sqe vendor = {.opcode = 0x99};
	CU_ASSERT_EQUAL(bdev_nvme_cmd_check_io(&vendor, 512, 0, &plain), NVME_ST_DNR(GENERIC, INVALID_OPCODE));
}

/* The controller takes the length of a range from the command's format, whatever the data pointer says. */
static void test_copy_has_ranges_of_its_formats_length(void)
{
	static const struct nvme_ns extended = {
		.block_size = 512, .md_size = 16, .pi_type = 1, .pi_format = NVME_PI_GUARD_64};
	static const uint64_t right[16] = {64, 80, 64, 80}; /* two ranges */

	for (uint32_t format = 0; format < 16; format++) {
		struct nvme_sqe cmd = {.opcode = nvme_cmd_copy, .cdw12 = htole32(format << 8 | 1)};
		uint16_t wrong = right[format] != 0 ? NVME_ST_DNR(GENERIC, SGL_INVALID_DATA)
						    : NVME_ST_DNR(GENERIC, INVALID_OPCODE);
		for (uint64_t len = 0; len <= 160; len += 16) {
			uint16_t status = right[format] == len && len != 0 ? 0 : wrong;
			CU_ASSERT_EQUAL(bdev_nvme_cmd_check_io(&cmd, len, 0, &plain), status);
			CU_ASSERT_EQUAL(bdev_nvme_cmd_check_io(&cmd, len, 0, &extended), status);
		}
	}
}

static void check_md(const struct nvme_ns *ns, uint32_t cdw12, uint64_t data, uint64_t md)
{
	struct nvme_sqe cmd = {.opcode = nvme_cmd_read, .cdw12 = htole32(cdw12)};

	CU_ASSERT_EQUAL(bdev_nvme_cmd_check_io(&cmd, data, md, ns), 0);
	CU_ASSERT_EQUAL(bdev_nvme_cmd_check_io(&cmd, data, md + 8, ns), NVME_ST_DNR(GENERIC, SGL_INVALID_METADATA));
	CU_ASSERT_EQUAL(bdev_nvme_cmd_check_io(&cmd, data + 8, md, ns), NVME_ST_DNR(GENERIC, SGL_INVALID_DATA));
}

static void test_metadata_of_a_passed_command_is_counted_too(void)
{
	struct nvme_ns separate = {.block_size = 512, .md_size = 16},
		       joined = {.block_size = 512, .md_size = 16, .md_interleaved = true},
		       protected = {.block_size = 512, .md_size = 8, .pi_type = 1};

	check_md(&separate, 3, 2048, 64);
	check_md(&joined, 3, 2112, 0);
	check_md(&protected, 3, 2048, 32);
	check_md(&protected, 3 | NVME_PI_ACT, 2048, 0);
	protected.md_interleaved = true;
	check_md(&protected, 3, 2080, 0);
	check_md(&protected, 3 | NVME_PI_ACT, 2048, 0);
	protected.md_size = 16; /* more than the protection information that the controller generates */
	check_md(&protected, 3 | NVME_PI_ACT, 2112, 0);
	separate.md_size = 8; /* without protection information, the bit means nothing */
	check_md(&separate, 3 | NVME_PI_ACT, 2048, 32);
}

/* Nobody but the controller may make what is taken for protection information: varve-perf writes with PRACT then. */
static void test_protection_information_alone_is_of_a_known_format(void)
{
	for (uint32_t md_size = 0; md_size <= 24; md_size += 8) {
		for (uint8_t type = 0; type < 4; type++) {
			for (uint8_t format = 0; format < 4; format++) {
				bool is_pi = type != 0 && format != 3 && md_size == (format == 0 ? 8 : 16);
				CU_ASSERT_EQUAL(nvme_md_is_pi(md_size, type, format), is_pi);
			}
		}
	}
}

/* A controller on fabrics cannot move more than the descriptors say. */
static void test_vendor_commands_are_bounded(void)
{
	struct nvme_sqe cmd = {.opcode = 0xc2, .cdw10 = htole32(99)};

	CU_ASSERT_EQUAL(bdev_nvme_cmd_check_vendor(&cmd, 4096, true, false), 0);
	CU_ASSERT_EQUAL(bdev_nvme_cmd_check_vendor(&cmd, 4096, false, false), NVME_ST_DNR(GENERIC, INVALID_OPCODE));
	CU_ASSERT_EQUAL(bdev_nvme_cmd_check_vendor(&cmd, 4096, false, true), NVME_ST_DNR(GENERIC, SGL_INVALID_DATA));
	CU_ASSERT_EQUAL(bdev_nvme_cmd_check_vendor(&cmd, 396, false, true), 0);
	cmd.cdw10 = htole32(1u << 30 | 99); /* as if it were 396 in 32 bits */
	CU_ASSERT_EQUAL(bdev_nvme_cmd_check_vendor(&cmd, 396, false, true), NVME_ST_DNR(GENERIC, SGL_INVALID_DATA));
	cmd.opcode = 0x83;
	CU_ASSERT_EQUAL(bdev_nvme_cmd_check_vendor(&cmd, 396, true, true), NVME_ST_DNR(GENERIC, INVALID_OPCODE));
}

static const struct unit_test tests[] = {
	UNIT(test_success_and_lasting_errors_are_final),
	UNIT(test_what_is_lost_with_its_queue_pair_goes_again),
	UNIT(test_passing_errors_are_tried_again_so_often),
	UNIT(test_what_was_refused_for_want_of_access_may_go_elsewhere_whatever_it_is),
	UNIT(test_path_errors_go_elsewhere_at_once_so_often),
	UNIT(test_a_namespace_that_one_controller_has_no_more_is_used_through_another),
	UNIT(test_a_count_does_not_begin_anew),
	UNIT(test_what_the_driver_had_aborted_goes_elsewhere_and_what_the_submitter_aborts_does_not),
	UNIT(test_what_a_controller_aborts_of_its_own_accord_is_tried_again_so_often),
	UNIT(test_ana_log_is_decoded_and_nonsense_refused),
	UNIT(test_controller_says_how_long_to_wait),
	UNIT(test_commands_of_the_driver_are_not_passed_through),
	UNIT(test_admin_commands_that_move_more_than_they_have_are_refused),
	UNIT(test_data_of_a_passed_command_must_be_what_the_controller_will_move),
	UNIT(test_copy_has_ranges_of_its_formats_length),
	UNIT(test_metadata_of_a_passed_command_is_counted_too),
	UNIT(test_protection_information_alone_is_of_a_known_format),
	UNIT(test_vendor_commands_are_bounded),
	UNIT_END,
};
UNIT_MAIN("bdev_nvme_verdict", tests, NULL, NULL)

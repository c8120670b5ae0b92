/* SPDX-License-Identifier: BSD-3-Clause */
/* The tables of commands: each row is whole, and what hosts are told and answered agrees with the rows. */
#include "nvmf/command_internal.h"
#include "unittest/nvmf/loop.h"

static struct loop_conn *admin, *io;
static uint32_t nsid;
static uint8_t data[131072];

static void attach(void)
{
	nsid = loop_add_malloc_ns("m", 512, 1024);
	admin = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(admin);
	io = loop_io_queue(admin, 1);
	CU_ASSERT_PTR_NOT_NULL_FATAL(io);
}

static void detach(void)
{
	loop_close(io);
	loop_close(admin);
	loop_remove_malloc_ns(nsid, "m");
}

/* ---- The rows ---- */

static void check_data(const struct nvmf_command *cmd, uint8_t opcode)
{
	bool is_vendor = cmd->data == NVMF_DATA_SGL;

	CU_ASSERT_EQUAL(cmd->data_bytes != 0, cmd->data == NVMF_DATA_FIXED);
	CU_ASSERT_EQUAL(cmd->length != NULL, cmd->data == NVMF_DATA_LENGTH);
	if (cmd->data == NVMF_DATA_NONE || is_vendor) {
		CU_ASSERT_EQUAL(cmd->xfer, NVME_DATA_TFR_NO_DATA_TFR);
	} else {
		CU_ASSERT_EQUAL(cmd->xfer, opcode & 3); /* Base 3.3.3.1 */
	}
}

static void check_row(const struct nvmf_command *cmd, uint8_t opcode)
{
	if (cmd->name == NULL) {
		CU_ASSERT(cmd->exec == NULL && cmd->run == NULL && cmd->flags == 0 && cmd->oncs == 0);
		return;
	}
	CU_ASSERT_EQUAL((cmd->exec != NULL) + (cmd->run != NULL), 1);
	check_data(cmd, opcode);
}

static void check_io_row(const struct nvmf_command *cmd)
{
	const uint16_t admin_only = NVMF_CMD_DISCOVERY | NVMF_CMD_RESERVED_LANE | NVMF_CMD_WAITS_FOR_EVENT |
				    NVMF_CMD_UNCONNECTED | NVMF_CMD_UNAUTHENTICATED | NVMF_CMD_ADMIN_QUEUE;

	CU_ASSERT_EQUAL(cmd->flags & admin_only, 0);
	/* A command that changes blocks needs write access, and none needs both kinds. */
	CU_ASSERT((cmd->flags & NVMF_CMD_CHANGES_BLOCKS) == 0 || (cmd->flags & NVMF_CMD_RESV_WRITE) != 0);
	CU_ASSERT_NOT_EQUAL(cmd->flags & (NVMF_CMD_RESV_READ | NVMF_CMD_RESV_WRITE),
			    NVMF_CMD_RESV_READ | NVMF_CMD_RESV_WRITE);
	CU_ASSERT((cmd->flags & NVMF_CMD_FUA) == 0 || (cmd->flags & NVMF_CMD_CHANGES_BLOCKS) != 0);
	CU_ASSERT((cmd->flags & NVMF_CMD_NLB) == 0 || (cmd->flags & NVMF_CMD_SLBA) != 0);
	CU_ASSERT(cmd->data != NVMF_DATA_BLOCKS || (cmd->flags & NVMF_CMD_NLB) != 0);
	CU_ASSERT((cmd->flags & NVMF_CMD_ZERO_COPY) == 0 || cmd->data == NVMF_DATA_BLOCKS);
	/* io.c carries these out by its own functions, whatever else the row says. */
	CU_ASSERT((cmd->data == NVMF_DATA_BLOCKS) == (cmd->exec == nvmf_rw_exec));
	CU_ASSERT((cmd->flags & NVMF_CMD_FUSE_FIRST) == 0 || cmd == &nvmf_io_commands[nvme_cmd_compare]);
	CU_ASSERT((cmd->flags & NVMF_CMD_FUSE_SECOND) == 0 || cmd == &nvmf_io_commands[nvme_cmd_write]);
	/* A row without this flag is looked at once more, whether it is masked. */
	CU_ASSERT_EQUAL((cmd->flags & NVMF_CMD_ALWAYS) != 0, cmd->name != NULL && cmd->oncs == 0);
	/* Carried out by the poll group: by a bdev. */
	CU_ASSERT_EQUAL(cmd->exec != NULL, cmd->bdev_type != BDEV_IO_INVALID);
}

static void test_each_row_is_whole(void)
{
	for (unsigned i = 0; i < 256; i++) {
		check_row(&nvmf_io_commands[i], (uint8_t)i);
		check_row(&nvmf_admin_commands[i], (uint8_t)i);
		check_io_row(&nvmf_io_commands[i]);
	}
	for (unsigned i = 0; i < NVMF_FABRICS_COMMANDS; i++) {
		check_row(&nvmf_fabrics_commands[i], (uint8_t)i);
	}
	CU_ASSERT_PTR_NULL(nvmf_io_commands[nvme_admin_fabrics].name);
	CU_ASSERT_PTR_NULL(nvmf_admin_commands[nvme_admin_fabrics].name);
}

/* An opcode of which varve has a row of its own would never be passed on: it cannot be listed for that. */
static void test_only_vendor_specific_rows_can_be_passed_on(void)
{
	for (unsigned i = 0; i < 256; i++) {
		bool one_way = (i & 3) != 3;
		CU_ASSERT_EQUAL(nvmf_io_commands[i].data == NVMF_DATA_SGL, i >= NVMF_VENDOR_IO);
		CU_ASSERT_EQUAL(nvmf_admin_commands[i].data == NVMF_DATA_SGL, i >= NVMF_VENDOR_ADMIN);
		CU_ASSERT_EQUAL(nvmf_passthru_can_list((uint8_t)i, false), i >= NVMF_VENDOR_IO && one_way);
		CU_ASSERT_EQUAL(nvmf_passthru_can_list((uint8_t)i, true), i >= NVMF_VENDOR_ADMIN && one_way);
	}
}

/* NVM 2.1.1 and Base 8.19: who may send what while a namespace is reserved. */
static void test_reservations_distinguish_readers_and_writers(void)
{
	for (unsigned i = 0; i < NVMF_VENDOR_IO; i++) {
		const struct nvmf_command *cmd = &nvmf_io_commands[i];
		bool reads = i == nvme_cmd_read || i == nvme_cmd_compare || i == nvme_cmd_verify;
		bool of_reservations = cmd->oncs == NVME_CTRL_ONCS_RESERVATIONS;
		CU_ASSERT_EQUAL((cmd->flags & NVMF_CMD_RESV_READ) != 0, reads);
		CU_ASSERT_EQUAL((cmd->flags & NVMF_CMD_RESV_WRITE) != 0,
				cmd->name != NULL && !reads && !of_reservations);
	}
}

/* ---- What hosts are told ---- */

static uint32_t effects(const struct nvmf_command *cmd)
{
	if (cmd->name == NULL || cmd->data == NVMF_DATA_SGL) {
		return 0;
	}
	return cmd->flags & NVMF_CMD_CHANGES_BLOCKS ? NVME_CMD_EFFECTS_CSUPP | NVME_CMD_EFFECTS_LBCC
						    : NVME_CMD_EFFECTS_CSUPP;
}

static void test_the_effects_log_tells_the_rows(void)
{
	static const uint8_t changing[] = {nvme_cmd_write, nvme_cmd_write_uncor, nvme_cmd_write_zeroes, nvme_cmd_dsm,
					   nvme_cmd_copy};
	struct nvme_cmd_effects_log log;
	unsigned with_lbcc = 0;

	attach();
	CU_ASSERT_EQUAL(loop_get_log(admin, NVME_LOG_LID_CMD_EFFECTS, true, 0, &log, sizeof(log)), 0);
	for (unsigned i = 0; i < 256; i++) {
		CU_ASSERT_EQUAL(le32toh(log.acs[i]), effects(&nvmf_admin_commands[i]));
		CU_ASSERT_EQUAL(le32toh(log.iocs[i]), effects(&nvmf_io_commands[i]));
		with_lbcc += (le32toh(log.iocs[i]) & NVME_CMD_EFFECTS_LBCC) != 0;
	}
	CU_ASSERT_EQUAL(with_lbcc, ARRAY_SIZE(changing));
	for (unsigned i = 0; i < ARRAY_SIZE(changing); i++) {
		CU_ASSERT_EQUAL(le32toh(log.iocs[changing[i]]), NVME_CMD_EFFECTS_CSUPP | NVME_CMD_EFFECTS_LBCC);
	}
	detach();
}

static void test_oncs_tells_the_rows(void)
{
	struct nvme_id_ctrl id;
	uint16_t oncs = 0;

	attach();
	CU_ASSERT_EQUAL(loop_identify(admin, NVME_IDENTIFY_CNS_CTRL, 0, 0, &id), 0);
	for (unsigned i = 0; i < 256; i++) {
		oncs |= nvmf_io_commands[i].oncs;
	}
	CU_ASSERT_EQUAL(le16toh(id.oncs), oncs);
	CU_ASSERT_EQUAL(oncs, NVME_CTRL_ONCS_COMPARE | NVME_CTRL_ONCS_WRITE_UNCORRECTABLE | NVME_CTRL_ONCS_DSM |
				      NVME_CTRL_ONCS_WRITE_ZEROES | NVME_CTRL_ONCS_RESERVATIONS |
				      NVME_CTRL_ONCS_VERIFY | NVME_CTRL_ONCS_COPY);
	detach();
}

/* ---- What hosts are answered ---- */

static uint16_t send(struct loop_conn *c, uint8_t opcode)
{
	struct loop_cmd cmd;

	loop_cmd_init(&cmd, c, opcode, nsid);
	loop_cmd_data(&cmd, data, sizeof(data));
	return loop_run(&cmd);
}

static struct nvmf_transport_opts *transport_opts(void)
{
	return (struct nvmf_transport_opts *)(uintptr_t)nvmf_transport_get_opts(nvmf_transport_next(loop_tgt(), NULL));
}

static void check_masked_rows(uint16_t mask)
{
	struct nvme_cmd_effects_log log;

	CU_ASSERT_EQUAL(loop_get_log(admin, NVME_LOG_LID_CMD_EFFECTS, true, 0, &log, sizeof(log)), 0);
	for (unsigned i = 0; i < NVMF_VENDOR_IO; i++) {
		const struct nvmf_command *cmd = &nvmf_io_commands[i];
		bool masked = (cmd->oncs & mask) != 0;
		bool refused = send(io, (uint8_t)i) == NVME_ST_DNR(GENERIC, INVALID_OPCODE);
		if (cmd->name != NULL) {
			CU_ASSERT_EQUAL(refused, masked);
			CU_ASSERT_EQUAL(le32toh(log.iocs[i]) == 0, masked);
		}
	}
}

static void test_masked_commands_are_hidden_and_refused(void)
{
	static const uint16_t all[] = {NVME_CTRL_ONCS_COMPARE, NVME_CTRL_ONCS_DSM, NVME_CTRL_ONCS_WRITE_ZEROES,
				       NVME_CTRL_ONCS_RESERVATIONS, NVME_CTRL_ONCS_COPY};
	struct nvme_id_ctrl id, masked;
	struct nvme_id_ns ns;

	attach();
	memset(data, 0, sizeof(data));
	CU_ASSERT_EQUAL(loop_identify(admin, NVME_IDENTIFY_CNS_CTRL, 0, 0, &id), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(all); i++) {
		transport_opts()->masked_oncs = all[i];
		CU_ASSERT_EQUAL(loop_identify(admin, NVME_IDENTIFY_CNS_CTRL, 0, 0, &masked), 0);
		CU_ASSERT_EQUAL(le16toh(masked.oncs), le16toh(id.oncs) & ~all[i]);
		CU_ASSERT_EQUAL(le16toh(masked.fuses), all[i] != NVME_CTRL_ONCS_COMPARE);
		CU_ASSERT_EQUAL(le16toh(masked.ocfs), all[i] != NVME_CTRL_ONCS_COPY ? 3 : 0);
		CU_ASSERT_EQUAL(loop_identify(admin, NVME_IDENTIFY_CNS_NS, nsid, 0, &ns), 0);
		CU_ASSERT_EQUAL(ns.rescap == 0, all[i] == NVME_CTRL_ONCS_RESERVATIONS);
		check_masked_rows(all[i]);
	}
	transport_opts()->masked_oncs = 0;
	check_masked_rows(0);
	detach();
}

/* Vendor specific commands are left out: each namespace lists its own. */
static void test_commands_without_a_row_are_invalid_opcodes(void)
{
	attach();
	memset(data, 0, sizeof(data));
	for (unsigned i = 0; i < NVMF_VENDOR_IO; i++) {
		bool invalid = send(io, (uint8_t)i) == NVME_ST_DNR(GENERIC, INVALID_OPCODE);
		CU_ASSERT_EQUAL(invalid, nvmf_io_commands[i].name == NULL && i != nvme_admin_fabrics);
	}
	for (unsigned i = 0; i < NVMF_VENDOR_ADMIN; i++) {
		bool waits = (nvmf_admin_commands[i].flags & NVMF_CMD_WAITS_FOR_EVENT) != 0;
		if (i != nvme_admin_fabrics && !waits) {
			bool invalid = send(admin, (uint8_t)i) == NVME_ST_DNR(GENERIC, INVALID_OPCODE);
			CU_ASSERT_EQUAL(invalid, nvmf_admin_commands[i].name == NULL);
		}
	}
	detach();
}

static void test_fabrics_commands_without_a_row_are_invalid_opcodes(void)
{
	struct loop_cmd cmd;

	attach();
	for (unsigned i = 0; i < 512; i++) {
		struct loop_conn *c = i < 256 ? admin : io;
		const struct nvmf_command *row =
			i % 256 < NVMF_FABRICS_COMMANDS ? &nvmf_fabrics_commands[i % 256] : NULL;
		bool here = row != NULL && row->name != NULL && (c == admin || !(row->flags & NVMF_CMD_ADMIN_QUEUE));
		loop_cmd_init(&cmd, c, nvme_admin_fabrics, 0);
		((struct nvmf_fabrics_sqe *)&cmd.sqe)->fctype = (uint8_t)i;
		CU_ASSERT_EQUAL(loop_run(&cmd) == NVME_ST_DNR(GENERIC, INVALID_OPCODE), !here);
	}
	detach();
}

static const struct unit_test tests[] = {
	UNIT(test_each_row_is_whole),
	UNIT(test_only_vendor_specific_rows_can_be_passed_on),
	UNIT(test_reservations_distinguish_readers_and_writers),
	UNIT(test_the_effects_log_tells_the_rows),
	UNIT(test_oncs_tells_the_rows),
	UNIT(test_commands_without_a_row_are_invalid_opcodes),
	UNIT(test_masked_commands_are_hidden_and_refused),
	UNIT(test_fabrics_commands_without_a_row_are_invalid_opcodes),
	UNIT_END,
};

UNIT_MAIN("nvmf_command", tests, loop_start, loop_stop)

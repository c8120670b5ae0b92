/* SPDX-License-Identifier: BSD-3-Clause */
/* The tables of commands, and what a controller tells of them. */
#include "nvmf/command_internal.h"
#include "nvmf/internal.h"

#define TO_TARGET NVME_DATA_TFR_HOST_TO_CTRL
#define TO_HOST   NVME_DATA_TFR_CTRL_TO_HOST

#define RANGE (NVMF_CMD_SLBA | NVMF_CMD_NLB)

/* Of two rows for one opcode the compiler would silently take the second. */
#pragma GCC diagnostic error "-Woverride-init"

/* NVM figure "Opcodes for I/O Commands". Flush and Copy need write access (NVM 2.1.1), and so do vendor specific
 * commands, of which nothing is known. */
const struct nvmf_command nvmf_io_commands[256] = {
	[nvme_cmd_flush] = {.name = "flush",
			    .exec = nvmf_flush_exec,
			    .bdev_type = BDEV_IO_FLUSH,
			    .flags = NVMF_CMD_RESV_WRITE | NVMF_CMD_ALWAYS},
	[nvme_cmd_write] = {.name = "write",
			    .exec = nvmf_rw_exec,
			    .data = NVMF_DATA_BLOCKS,
			    .xfer = TO_TARGET,
			    .bdev_type = BDEV_IO_WRITE,
			    .flags = RANGE | NVMF_CMD_RESV_WRITE | NVMF_CMD_CHANGES_BLOCKS | NVMF_CMD_FUA |
				     NVMF_CMD_FUSE_SECOND | NVMF_CMD_ZERO_COPY | NVMF_CMD_ALWAYS},
	[nvme_cmd_read] = {.name = "read",
			   .exec = nvmf_rw_exec,
			   .data = NVMF_DATA_BLOCKS,
			   .xfer = TO_HOST,
			   .bdev_type = BDEV_IO_READ,
			   .flags = RANGE | NVMF_CMD_RESV_READ | NVMF_CMD_ZERO_COPY | NVMF_CMD_ALWAYS},
	[nvme_cmd_write_uncor] = {.name = "write_uncorrectable",
				  .exec = nvmf_blocks_exec,
				  .bdev_type = BDEV_IO_WRITE_UNCORRECTABLE,
				  .oncs = NVME_CTRL_ONCS_WRITE_UNCORRECTABLE,
				  .flags =
					  RANGE | NVMF_CMD_RESV_WRITE | NVMF_CMD_CHANGES_BLOCKS | NVMF_CMD_IF_BDEV_CAN},
	[nvme_cmd_compare] = {.name = "compare",
			      .exec = nvmf_rw_exec,
			      .data = NVMF_DATA_BLOCKS,
			      .xfer = TO_TARGET,
			      .bdev_type = BDEV_IO_COMPARE,
			      .oncs = NVME_CTRL_ONCS_COMPARE,
			      .flags = RANGE | NVMF_CMD_RESV_READ | NVMF_CMD_FUSE_FIRST},
	[nvme_cmd_write_zeroes] = {.name = "write_zeroes",
				   .exec = nvmf_write_zeroes_exec,
				   .bdev_type = BDEV_IO_WRITE_ZEROES,
				   .oncs = NVME_CTRL_ONCS_WRITE_ZEROES,
				   .flags = RANGE | NVMF_CMD_RESV_WRITE | NVMF_CMD_CHANGES_BLOCKS | NVMF_CMD_FUA},
	[nvme_cmd_dsm] = {.name = "dataset_management",
			  .exec = nvmf_dsm_exec,
			  .data = NVMF_DATA_LENGTH,
			  .length = nvmf_dsm_length,
			  .xfer = TO_TARGET,
			  .bdev_type = BDEV_IO_UNMAP,
			  .oncs = NVME_CTRL_ONCS_DSM,
			  .flags = NVMF_CMD_RESV_WRITE | NVMF_CMD_CHANGES_BLOCKS},
	[nvme_cmd_verify] = {.name = "verify",
			     .exec = nvmf_blocks_exec,
			     .bdev_type = BDEV_IO_VERIFY,
			     .oncs = NVME_CTRL_ONCS_VERIFY,
			     .flags = RANGE | NVMF_CMD_RESV_READ},
	[nvme_cmd_copy] = {.name = "copy",
			   .exec = nvmf_copy_exec,
			   .data = NVMF_DATA_LENGTH,
			   .length = nvmf_copy_length,
			   .xfer = TO_TARGET,
			   .bdev_type = BDEV_IO_COPY,
			   .oncs = NVME_CTRL_ONCS_COPY,
			   .flags = NVMF_CMD_SLBA | NVMF_CMD_RESV_WRITE | NVMF_CMD_CHANGES_BLOCKS | NVMF_CMD_FUA},
	/* Reservation commands have rules of their own for who may send them: nvmf/resv.c. */
	[nvme_cmd_resv_register] = {.name = "reservation_register",
				    .run = nvmf_resv_register_run,
				    .data = NVMF_DATA_FIXED,
				    .data_bytes = NVMF_RESV_REGISTER_DATA,
				    .xfer = TO_TARGET,
				    .oncs = NVME_CTRL_ONCS_RESERVATIONS},
	[nvme_cmd_resv_report] = {.name = "reservation_report",
				  .run = nvmf_resv_report_run,
				  .data = NVMF_DATA_LENGTH,
				  .length = nvmf_resv_report_length,
				  .xfer = TO_HOST,
				  .oncs = NVME_CTRL_ONCS_RESERVATIONS},
	[nvme_cmd_resv_acquire] = {.name = "reservation_acquire",
				   .run = nvmf_resv_acquire_run,
				   .data = NVMF_DATA_FIXED,
				   .data_bytes = NVMF_RESV_ACQUIRE_DATA,
				   .xfer = TO_TARGET,
				   .oncs = NVME_CTRL_ONCS_RESERVATIONS},
	[nvme_cmd_resv_release] = {.name = "reservation_release",
				   .run = nvmf_resv_release_run,
				   .data = NVMF_DATA_FIXED,
				   .data_bytes = NVMF_RESV_RELEASE_DATA,
				   .xfer = TO_TARGET,
				   .oncs = NVME_CTRL_ONCS_RESERVATIONS},
	/* Those that the operator has listed for the namespace; the direction is in each opcode. */
	[NVMF_VENDOR_IO... UINT8_MAX] = {.name = "vendor_specific",
					 .exec = nvmf_passthru_exec,
					 .data = NVMF_DATA_SGL,
					 .bdev_type = BDEV_IO_NVME_IO,
					 .flags = NVMF_CMD_RESV_WRITE | NVMF_CMD_ALWAYS},
};

/* Base figure "Opcodes for Admin Commands". */
const struct nvmf_command nvmf_admin_commands[256] = {
	[nvme_admin_get_log_page] = {.name = "get_log_page",
				     .run = nvmf_get_log_run,
				     .data = NVMF_DATA_LENGTH,
				     .length = nvmf_get_log_length,
				     .xfer = TO_HOST,
				     .flags = NVMF_CMD_DISCOVERY},
	[nvme_admin_identify] = {.name = "identify",
				 .run = nvmf_identify_run,
				 .data = NVMF_DATA_FIXED,
				 .data_bytes = NVME_IDENTIFY_DATA_SIZE,
				 .xfer = TO_HOST,
				 .flags = NVMF_CMD_DISCOVERY},
	[nvme_admin_abort_cmd] = {.name = "abort", .run = nvmf_abort_run, .flags = NVMF_CMD_RESERVED_LANE},
	[nvme_admin_set_features] = {.name = "set_features",
				     .run = nvmf_set_features_run,
				     .data = NVMF_DATA_LENGTH,
				     .length = nvmf_set_features_length,
				     .xfer = TO_TARGET,
				     .flags = NVMF_CMD_DISCOVERY},
	[nvme_admin_get_features] = {.name = "get_features",
				     .run = nvmf_get_features_run,
				     .data = NVMF_DATA_LENGTH,
				     .length = nvmf_get_features_length,
				     .xfer = TO_HOST,
				     .flags = NVMF_CMD_DISCOVERY},
	[nvme_admin_async_event] = {.name = "async_event_request",
				    .run = nvmf_aer_run,
				    .flags = NVMF_CMD_DISCOVERY | NVMF_CMD_WAITS_FOR_EVENT},
	[nvme_admin_keep_alive] = {.name = "keep_alive",
				   .exec = nvmf_keep_alive_exec,
				   .flags = NVMF_CMD_DISCOVERY | NVMF_CMD_RESERVED_LANE},
	[NVME_ADMIN_CROSS_CTRL_RESET] = {.name = "cross_controller_reset",
					 .run = nvmf_cross_reset_run,
					 .flags = NVMF_CMD_RESERVED_LANE},
	[NVMF_VENDOR_ADMIN... UINT8_MAX] = {.name = "vendor_specific",
					    .run = nvmf_passthru_admin_run,
					    .data = NVMF_DATA_SGL,
					    .bdev_type = BDEV_IO_NVME_ADMIN,
					    .flags = NVMF_CMD_RESV_WRITE},
};

/* Base figure "Fabrics Command Type". */
const struct nvmf_command nvmf_fabrics_commands[NVMF_FABRICS_COMMANDS] = {
	[nvme_fabrics_type_property_set] = {.name = "property_set",
					    .run = nvmf_property_set_run,
					    .flags = NVMF_CMD_RESERVED_LANE | NVMF_CMD_ADMIN_QUEUE},
	[nvme_fabrics_type_connect] = {.name = "connect",
				       .run = nvmf_connect_run,
				       .data = NVMF_DATA_FIXED,
				       .data_bytes = sizeof(struct nvmf_connect_data),
				       .xfer = TO_TARGET,
				       .flags = NVMF_CMD_RESERVED_LANE | NVMF_CMD_UNCONNECTED},
	[nvme_fabrics_type_property_get] = {.name = "property_get",
					    .run = nvmf_property_get_run,
					    .flags = NVMF_CMD_RESERVED_LANE | NVMF_CMD_ADMIN_QUEUE},
	[nvme_fabrics_type_auth_send] = {.name = "auth_send",
					 .run = nvmf_auth_send_run,
					 .data = NVMF_DATA_LENGTH,
					 .length = nvmf_auth_length,
					 .xfer = TO_TARGET,
					 .flags = NVMF_CMD_UNAUTHENTICATED},
	[nvme_fabrics_type_auth_receive] = {.name = "auth_receive",
					    .run = nvmf_auth_receive_run,
					    .data = NVMF_DATA_LENGTH,
					    .length = nvmf_auth_length,
					    .xfer = TO_HOST,
					    .flags = NVMF_CMD_UNAUTHENTICATED},
};

const struct nvmf_command *nvmf_command_of(const struct nvmf_request *req)
{
	static const struct nvmf_command none;
	const struct nvmf_fabrics_sqe *fabrics = (const void *)req->sqe;

	if (req->sqe->opcode == nvme_admin_fabrics) {
		return fabrics->fctype < NVMF_FABRICS_COMMANDS ? &nvmf_fabrics_commands[fabrics->fctype] : &none;
	}
	return req->qpair->qid == 0 ? &nvmf_admin_commands[req->sqe->opcode] : &nvmf_io_commands[req->sqe->opcode];
}

/* ---- Arrival ---- */

enum nvmf_next nvmf_command_start(struct nvmf_request *req, const struct nvmf_command *cmd)
{
	uint64_t bytes = cmd->data == NVMF_DATA_FIXED ? cmd->data_bytes : 0;
	uint16_t where;

	req->reserved_lane = (cmd->flags & NVMF_CMD_RESERVED_LANE) != 0;
	if (cmd->data == NVMF_DATA_LENGTH) {
		uint16_t status = cmd->length(req, &bytes, &where);
		if (status != NVME_ST_SUCCESS) {
			return nvmf_request_reject(req, status, where);
		}
	}
	return nvmf_request_data(req, cmd->xfer, bytes);
}

static void command_run_on_control(struct thread_msg *msg)
{
	struct nvmf_request *req = container_of(msg, struct nvmf_request, msg);
	const struct nvmf_command *cmd = nvmf_command_of(req);
	bool admin = req->qpair->ctl_qid == 0 && req->sqe->opcode != nvme_admin_fabrics;
	uint16_t status = admin ? nvmf_admin_check(req, cmd) : NVME_ST_SUCCESS;

	if (status != NVME_ST_SUCCESS) {
		nvmf_request_answer_at(req, status, NVMF_WHERE_OPCODE);
	} else {
		cmd->run(req);
	}
}

void nvmf_command_post(struct nvmf_request *req, const struct nvmf_command *cmd)
{
	bool waits = (cmd->flags & NVMF_CMD_WAITS_FOR_EVENT) != 0;

	if (waits && !nvmf_aer_hold(req)) {
		nvmf_request_finish_at(req, NVME_ST_DNR(CMD_SPECIFIC, ASYNC_LIMIT), NVMF_WHERE_OPCODE);
		return;
	}
	nvmf_request_clear_buffer(req);
	nvmf_request_set_where(req, waits ? NVMF_REQUEST_HELD : NVMF_REQUEST_CONTROL);
	thread_post(thread_control(), &req->msg, command_run_on_control);
}

/* ---- What a controller announces ---- */

static bool some_bdev_supports(const struct nvmf_subsystem *s, enum bdev_io_type type)
{
	for (const struct nvmf_ns *ns = nvmf_ns_next(s, NULL); ns != NULL; ns = nvmf_ns_next(s, ns)) {
		if (bdev_io_type_supported(ns->bdev, type)) {
			return true;
		}
	}
	return false;
}

/* Vendor specific commands are announced by namespaces (nvmf_passthru_effects()). */
static bool command_is_announced(const struct nvmf_ctrlr *ctrlr, const struct nvmf_command *cmd)
{
	return cmd->name != NULL && cmd->data != NVMF_DATA_SGL &&
	       (cmd->oncs & ctrlr->transport->opts.masked_oncs) == 0 &&
	       ((cmd->flags & NVMF_CMD_IF_BDEV_CAN) == 0 ||
		some_bdev_supports(ctrlr->subsystem, (enum bdev_io_type)cmd->bdev_type));
}

uint16_t nvmf_ctrlr_oncs(const struct nvmf_ctrlr *ctrlr)
{
	uint16_t oncs = 0;

	for (size_t i = 0; i < ARRAY_SIZE(nvmf_io_commands); i++) {
		if (nvmf_io_commands[i].oncs != 0 && command_is_announced(ctrlr, &nvmf_io_commands[i])) {
			oncs |= nvmf_io_commands[i].oncs;
		}
	}
	return oncs;
}

/* Compare and Write is made of a Compare. */
uint16_t nvmf_ctrlr_fuses(const struct nvmf_ctrlr *ctrlr)
{
	const struct nvmf_transport_opts *opts = &ctrlr->transport->opts;

	return opts->masked_oncs & NVME_CTRL_ONCS_COMPARE
		       ? 0
		       : (uint16_t)(NVME_CTRL_FUSES_COMPARE_AND_WRITE & ~opts->masked_fuses);
}

static uint32_t command_effects(const struct nvmf_ctrlr *ctrlr, const struct nvmf_command *cmd)
{
	if (!command_is_announced(ctrlr, cmd)) {
		return 0;
	}
	return NVME_CMD_EFFECTS_CSUPP | (cmd->flags & NVMF_CMD_CHANGES_BLOCKS ? NVME_CMD_EFFECTS_LBCC : 0);
}

void nvmf_command_effects(const struct nvmf_ctrlr *ctrlr, struct nvme_cmd_effects_log *log)
{
	bool discovery = ctrlr->subsystem->subtype == NVMF_SUBTYPE_DISCOVERY;

	for (size_t i = 0; i < ARRAY_SIZE(nvmf_admin_commands); i++) {
		if (!discovery || (nvmf_admin_commands[i].flags & NVMF_CMD_DISCOVERY) != 0) {
			log->acs[i] = htole32(command_effects(ctrlr, &nvmf_admin_commands[i]));
		}
		if (!discovery) {
			log->iocs[i] = htole32(command_effects(ctrlr, &nvmf_io_commands[i]));
		}
	}
	if (!discovery) {
		nvmf_passthru_effects(ctrlr, log);
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "nvme/nvme.h"

#include <stdio.h>

struct status_name {
	uint16_t status;
	const char *text;
};

/* By status code type and status code (Base 3.3.3.2.1, NVM 4.1.1). */
static const struct status_name names[] = {
	{NVME_ST(GENERIC, SUCCESS), "successful completion"},
	{NVME_ST(GENERIC, INVALID_OPCODE), "invalid command opcode"},
	{NVME_ST(GENERIC, INVALID_FIELD), "invalid field in command"},
	{NVME_ST(GENERIC, CMDID_CONFLICT), "command id conflict"},
	{NVME_ST(GENERIC, DATA_XFER_ERROR), "data transfer error"},
	{NVME_ST(GENERIC, POWER_LOSS), "aborted due to power loss"},
	{NVME_ST(GENERIC, INTERNAL), "internal error"},
	{NVME_ST(GENERIC, ABORT_REQ), "abort requested"},
	{NVME_ST(GENERIC, ABORT_QUEUE), "aborted: the queue is gone"},
	{NVME_ST(GENERIC, FUSED_FAIL), "aborted: the other fused command failed"},
	{NVME_ST(GENERIC, FUSED_MISSING), "aborted: the other fused command is missing"},
	{NVME_ST(GENERIC, INVALID_NS), "invalid namespace or format"},
	{NVME_ST(GENERIC, CMD_SEQ_ERROR), "command sequence error"},
	{NVME_ST(GENERIC, SGL_INVALID_DATA), "data SGL length invalid"},
	{NVME_ST(GENERIC, SGL_INVALID_TYPE), "SGL descriptor type invalid"},
	{NVME_ST(GENERIC, SGL_INVALID_OFFSET), "SGL offset invalid"},
	{NVME_ST(GENERIC, KAT_EXPIRED), "keep alive timer expired"},
	{NVME_ST(GENERIC, KAT_INVALID), "keep alive timeout invalid"},
	{NVME_ST(GENERIC, NS_WRITE_PROTECTED), "namespace is write protected"},
	{NVME_ST(GENERIC, CMD_INTERRUPTED), "command interrupted"},
	{NVME_ST(GENERIC, TRAN_TPORT_ERROR), "transient transport error"},
	{NVME_ST(GENERIC, LBA_RANGE), "LBA out of range"},
	{NVME_ST(GENERIC, CAP_EXCEEDED), "capacity exceeded"},
	{NVME_ST(GENERIC, NS_NOT_READY), "namespace not ready"},
	{NVME_ST(GENERIC, RESERVATION_CONFLICT), "reservation conflict"},
	{NVME_ST(CMD_SPECIFIC, CQ_INVALID), "completion queue invalid"},
	{NVME_ST(CMD_SPECIFIC, QID_INVALID), "invalid queue identifier"},
	{NVME_ST(CMD_SPECIFIC, QUEUE_SIZE), "invalid queue size"},
	{NVME_ST(CMD_SPECIFIC, ABORT_LIMIT), "abort command limit exceeded"},
	{NVME_ST(CMD_SPECIFIC, ASYNC_LIMIT), "asynchronous event request limit exceeded"},
	{NVME_ST(CMD_SPECIFIC, INVALID_LOG_PAGE), "invalid log page"},
	{NVME_ST(CMD_SPECIFIC, INVALID_FORMAT), "invalid format"},
	{NVME_ST(CMD_SPECIFIC, FEATURE_NOT_SAVEABLE), "feature is not saveable"},
	{NVME_ST(CMD_SPECIFIC, FEATURE_NOT_CHANGEABLE), "feature is not changeable"},
	{NVME_ST(CMD_SPECIFIC, FEATURE_NOT_PER_NS), "feature is not per namespace"},
	{NVME_ST(CMD_SPECIFIC, CONNECT_FORMAT), "incompatible format (or conflicting attributes)"},
	{NVME_ST(CMD_SPECIFIC, CONNECT_CTRL_BUSY), "controller busy (or invalid protection information)"},
	{NVME_ST(CMD_SPECIFIC, CONNECT_INVALID_PARAM), "invalid parameters (or write to a read-only range)"},
	{NVME_ST(CMD_SPECIFIC, CONNECT_RESTART_DISC), "restart discovery"},
	{NVME_ST(CMD_SPECIFIC, CONNECT_INVALID_HOST), "the host is not allowed"},
	{NVME_ST(MEDIA, WRITE_FAULT), "write fault"},
	{NVME_ST(MEDIA, READ_ERROR), "unrecovered read error"},
	{NVME_ST(MEDIA, GUARD_CHECK), "guard check error"},
	{NVME_ST(MEDIA, APPTAG_CHECK), "application tag check error"},
	{NVME_ST(MEDIA, REFTAG_CHECK), "reference tag check error"},
	{NVME_ST(MEDIA, COMPARE_FAILED), "compare failure"},
	{NVME_ST(MEDIA, ACCESS_DENIED), "access denied"},
	{NVME_ST(MEDIA, UNWRITTEN_BLOCK), "deallocated or unwritten block"},
	{NVME_ST(MEDIA, STORAGE_TAG_CHECK), "storage tag check error"},
	{NVME_ST(PATH, ANA_INTERNAL_PATH_ERROR), "internal path error"},
	{NVME_ST(PATH, ANA_PERSISTENT_LOSS), "asymmetric access persistent loss"},
	{NVME_ST(PATH, ANA_INACCESSIBLE), "asymmetric access inaccessible"},
	{NVME_ST(PATH, ANA_TRANSITION), "asymmetric access transition"},
	{NVME_ST(PATH, CTRL_PATH_ERROR), "controller pathing error"},
};

const char *nvme_status_text(uint16_t status)
{
	static __thread char other[48];
	uint16_t code = status & 0x7ff; /* SCT and SC */

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (names[i].status == code) {
			return names[i].text;
		}
	}
	snprintf(other, sizeof(other), "status code type %u, status code 0x%02x", code >> 8, code & 0xff);
	return other;
}

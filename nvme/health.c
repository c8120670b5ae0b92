/* SPDX-License-Identifier: BSD-3-Clause */
/* Texts for the Error Information log and the SMART log. Pure. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "nvme/nvme.h"

#define HAS_OPCODE 1 /* log page version of Base 2.0: it has the command's opcode */

/* Base 5.16.1.3, Critical Warning */
static const char *const warnings[8] = {
	"the spare blocks are below their threshold",
	"a temperature is beyond its threshold",
	"the reliability is degraded",
	"the media have become read-only",
	"the backup of volatile memory has failed",
	"the persistent memory region has become unreliable or read-only",
	"bit 6",
	"bit 7",
};

void nvme_smart_text(const struct nvme_smart_log *smart, char *text, size_t size)
{
	size_t n = 0;

	text[0] = '\0';
	for (unsigned bit = 0; bit < 8; bit++) {
		if ((smart->critical_warning & 1u << bit) != 0 && n < size) {
			n += (size_t)snprintf(text + n, size - n, "%s%s", n != 0 ? ", " : "", warnings[bit]);
		}
	}
	if (n < size) {
		snprintf(text + n, size - n,
			 "%scritical warning 0x%02x, %d degrees Celsius, %u %% of the spare blocks left (threshold %u "
			 "%%), %u %% worn",
			 n != 0 ? ": " : "", smart->critical_warning,
			 (smart->temperature[0] | smart->temperature[1] << 8) - 273, smart->avail_spare,
			 smart->spare_thresh, smart->percent_used);
	}
}

unsigned nvme_error_log_new(const struct nvme_error_log_page *entries, unsigned n, uint64_t seen)
{
	unsigned found = 0;

	if (n == 0 || entries[0].error_count == 0) {
		return 0;
	}
	/* a lower count: the log began anew, and how many entries are new is unknown */
	if (seen == 0 || le64toh(entries[0].error_count) < seen) {
		return 1;
	}
	while (found < n && le64toh(entries[found].error_count) > seen) {
		found++;
	}
	return found;
}

void nvme_error_log_text(const struct nvme_error_log_page *e, char *text, size_t size)
{
	uint16_t status = (uint16_t)(le16toh(e->status_field) >> 1), sqid = le16toh(e->sqid);
	bool has_opcode = e->rsvd2[sizeof(e->rsvd2) - 1] >= HAS_OPCODE;
	char of[96] = "of no command";

	if (sqid != UINT16_MAX) {
		int n = snprintf(of, sizeof(of), "queue pair %u, command %u", sqid, le16toh(e->cmdid));
		if (has_opcode) {
			snprintf(of + n, sizeof(of) - (size_t)n, " (opcode 0x%02x)", e->rsvd[1]);
		}
	}
	snprintf(text, size, "error %llu: %s, namespace %u, LBA %llu: %s", (unsigned long long)le64toh(e->error_count),
		 of, le32toh(e->nsid), (unsigned long long)le64toh(e->lba), nvme_status_text(status));
}

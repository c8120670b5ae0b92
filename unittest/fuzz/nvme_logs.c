/* SPDX-License-Identifier: BSD-3-Clause */
/* Any bytes as a log that a remote controller sends: of its asymmetric namespace access, or records of its discovery
 * log. Nothing outside them is read, and what is accepted may be relied on. Input: one byte says which log (its lowest
 * bit) and how many groups there is room for (the others), then the log. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/nvme.h"
#include "nvme/spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool truth)
{
	if (!truth) {
		abort();
	}
}

static bool is_state(enum nvme_ana_state state)
{
	return state == NVME_ANA_STATE_OPTIMIZED || state == NVME_ANA_STATE_NONOPTIMIZED ||
	       state == NVME_ANA_STATE_INACCESSIBLE || state == NVME_ANA_STATE_PERSISTENT_LOSS ||
	       state == NVME_ANA_STATE_CHANGE;
}

static void decode_ana(const uint8_t *log, size_t len, uint32_t max)
{
	/* exactly so many, so that a write beyond them is detected */
	struct nvme_ana_group *groups = malloc(max * sizeof(*groups));
	struct nvme_ana_log header;
	int n = nvme_ana_decode(log, len, groups, max);

	if (n < 0) {
		expect(n == -EINVAL);
		free(groups);
		return;
	}
	expect(len >= sizeof(header) + (size_t)n * sizeof(struct nvme_ana_group_desc));
	memcpy(&header, log, sizeof(header));
	uint32_t told = le16toh(header.ngrps);
	expect((uint32_t)n == (told < max ? told : max));
	for (int i = 0; i < n; i++) {
		expect(groups[i].anagrpid != 0 && is_state(groups[i].state));
	}
	free(groups);
}

static bool is_word(const char *text, size_t size)
{
	size_t len = strnlen(text, size);

	for (size_t i = 0; i < len; i++) {
		if (text[i] <= ' ' || text[i] >= 0x7f) {
			return false;
		}
	}
	return len < size;
}

static void decode_record(const struct nvmf_disc_log_entry *entry)
{
	struct nvme_discovered d;
	int rc = nvme_discovery_decode(entry, &d);

	if (rc != 0) {
		expect(rc == -EINVAL || rc == -EPROTONOSUPPORT || rc == -EAFNOSUPPORT);
		return;
	}
	expect(d.subtype == entry->subtype && d.port_id == le16toh(entry->portid));
	expect(nvme_trtype_is_fabrics(d.trid.trtype) && d.trid.traddr[0] != '\0');
	expect(is_word(d.trid.traddr, sizeof(d.trid.traddr)) && is_word(d.trid.trsvcid, sizeof(d.trid.trsvcid)) &&
	       is_word(d.trid.subnqn, sizeof(d.trid.subnqn)));
	expect(nvme_nqn_is_valid(d.trid.subnqn));
	expect(strncmp(d.trid.traddr, entry->traddr, strlen(d.trid.traddr)) == 0);
}

/* The last record may be short: the rest of it is zeroes. */
static void decode_discovery(const uint8_t *log, size_t len)
{
	struct nvmf_disc_log_entry *entry = malloc(sizeof(*entry));

	for (size_t at = 0; at < len; at += sizeof(*entry)) {
		memset(entry, 0, sizeof(*entry));
		memcpy(entry, log + at, len - at < sizeof(*entry) ? len - at : sizeof(*entry));
		decode_record(entry);
	}
	free(entry);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0) {
		return 0;
	}
	uint8_t *log = malloc(size - 1); /* exactly so long, so that a read beyond it is detected */
	memcpy(log, data + 1, size - 1);
	if (data[0] & 1) {
		decode_discovery(log, size - 1);
	} else {
		decode_ana(log, size - 1, data[0] >> 1);
	}
	free(log);
	return 0;
}

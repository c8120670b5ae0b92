/* SPDX-License-Identifier: BSD-3-Clause */
/* Asymmetric namespace access (Base 2.16, 8.1): the ANA log holds the state of each group of namespaces. It is read
 * when the controller has been connected, when it announces a change, and on request (nvme_ctrlr_read_ana()). Control
 * thread; the decoding is pure.
 *
 * The log is read without the lists of namespaces (Return Groups Only), as Identify names each namespace's group. So
 * after a notice the namespaces are read again, too (admin.c). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "env_dpdk/env.h"
#include "nvme/internal.h"
#include "util/log.h"

#define GROUPS_MAX 2047 /* as many as fit into 64 KiB; further groups of a controller are not read */

struct ana_read {
	struct nvme_ctrlr *ctrlr;
	void (*done)(struct nvme_ctrlr *ctrlr, int error);
	uint8_t *log; /* DMA memory */
	uint32_t len;
};

bool nvme_ctrlr_has_ana(const struct nvme_ctrlr *ctrlr)
{
	return (ctrlr->id.cmic & NVME_CTRL_CMIC_MULTI_ANA_REPORTING) != 0;
}

uint32_t nvme_ctrlr_anatt_s(const struct nvme_ctrlr *ctrlr)
{
	return ctrlr->id.anatt;
}

enum nvme_ana_state nvme_ctrlr_ana_state(const struct nvme_ctrlr *ctrlr, uint32_t anagrpid)
{
	if (!nvme_ctrlr_has_ana(ctrlr) || anagrpid == 0) {
		return NVME_ANA_STATE_OPTIMIZED;
	}
	for (uint32_t i = 0; i < ctrlr->num_ana_groups; i++) {
		if (ctrlr->ana_groups[i].anagrpid == anagrpid) {
			return ctrlr->ana_groups[i].state;
		}
	}
	return NVME_ANA_STATE_INACCESSIBLE; /* the log has no such group */
}

static bool ana_state_is_valid(uint8_t state)
{
	return (state >= NVME_ANA_STATE_OPTIMIZED && state <= NVME_ANA_STATE_PERSISTENT_LOSS) ||
	       state == NVME_ANA_STATE_CHANGE;
}

int nvme_ana_decode(const uint8_t *log, size_t len, struct nvme_ana_group *groups, uint32_t max)
{
	struct nvme_ana_log header;
	size_t at = sizeof(header);
	uint32_t n = 0;

	if (len < sizeof(header)) {
		return -EINVAL;
	}
	memcpy(&header, log, sizeof(header));
	for (uint32_t i = 0; i < le16toh(header.ngrps) && n < max; i++) {
		struct nvme_ana_group_desc d;

		if (at + sizeof(d) > len) {
			return -EINVAL;
		}
		memcpy(&d, log + at, sizeof(d));
		at += sizeof(d) + (size_t)le32toh(d.nnsids) * sizeof(uint32_t); /* 32 bits each: no overflow */
		if (!ana_state_is_valid(d.state & 0xf) || d.grpid == 0) {
			return -EINVAL;
		}
		groups[n++] = (struct nvme_ana_group){.anagrpid = le32toh(d.grpid),
						      .state = (enum nvme_ana_state)(d.state & 0xf)};
	}
	return (int)n;
}

static void ana_read_finish(struct ana_read *r, int error)
{
	struct nvme_ctrlr *ctrlr = r->ctrlr;
	void (*done)(struct nvme_ctrlr *, int) = r->done;

	env_dma_free(r->log);
	free(r);
	done(ctrlr, error);
}

static void ana_log_received(void *arg, const struct nvme_cqe *cqe)
{
	struct ana_read *r = arg;
	struct nvme_ctrlr *ctrlr = r->ctrlr;

	if (ctrlr->in_failure || nvme_cqe_status(cqe) != 0) {
		ana_read_finish(r, -EIO);
		return;
	}
	uint32_t max = (r->len - (uint32_t)sizeof(struct nvme_ana_log)) / (uint32_t)sizeof(struct nvme_ana_group_desc);
	struct nvme_ana_group *groups = calloc(max, sizeof(*groups));
	int n = groups != NULL ? nvme_ana_decode(r->log, r->len, groups, max) : -ENOMEM;
	if (n < 0) {
		free(groups);
		ana_read_finish(r, n);
		return;
	}
	free(ctrlr->ana_groups);
	ctrlr->ana_groups = groups;
	ctrlr->num_ana_groups = (uint32_t)n;
	ana_read_finish(r, 0);
}

void nvme_ana_read(struct nvme_ctrlr *ctrlr, void (*done)(struct nvme_ctrlr *ctrlr, int error))
{
	uint32_t groups = le32toh(ctrlr->id.nanagrpid);
	struct ana_read *r = calloc(1, sizeof(*r));

	if (r == NULL) {
		done(ctrlr, -ENOMEM);
		return;
	}
	groups = groups == 0 ? 1 : groups > GROUPS_MAX ? GROUPS_MAX : groups;
	*r = (struct ana_read){.ctrlr = ctrlr, .done = done};
	r->len = (uint32_t)(sizeof(struct nvme_ana_log) + groups * sizeof(struct nvme_ana_group_desc));
	r->log = env_dma_zmalloc(r->len, 4096, -1);
	uint32_t dwords = r->len / 4 - 1;
	struct nvme_sqe cmd = {
		.opcode = nvme_admin_get_log_page,
		.nsid = htole32(NVME_NSID_ALL),
		/* without RAE: reading the log lets the controller announce the next change */
		.cdw10 = htole32(NVME_LOG_LID_ANA | NVME_LOG_ANA_LSP_RGO_GROUPS_ONLY << 8 | (dwords & 0xffff) << 16),
		.cdw11 = htole32(dwords >> 16),
	};
	int rc = r->log != NULL ? nvme_ctrlr_admin(ctrlr, &cmd, r->log, r->len, false, ana_log_received, r) : -ENOMEM;
	if (rc != 0) {
		ana_read_finish(r, rc);
	}
}

/* --- When something has changed --- */

static void ana_reread_finished(struct nvme_ctrlr *ctrlr, int error)
{
	ctrlr->ana_reading = false;
	if (ctrlr->in_failure) {
		return;
	}
	/* not the controller's fault: later there may be memory, or room in the queue */
	if (error == -ENOMEM || error == -EAGAIN) {
		ctrlr->ana_due = true;
		return;
	}
	if (error != 0) {
		nvme_ctrlr_lost(ctrlr, "the log of asymmetric namespace access could not be read: %s",
				strerror(-error));
		return;
	}
	if (ctrlr->ana_read_again) {
		nvme_ctrlr_read_ana(ctrlr);
	}
	nvme_ctrlr_emit(ctrlr, NVME_EVENT_ANA_CHANGED, 0);
}

void nvme_ctrlr_read_ana(struct nvme_ctrlr *ctrlr)
{
	if (ctrlr->state != NVME_CTRLR_READY || ctrlr->in_failure || !nvme_ctrlr_has_ana(ctrlr)) {
		return; /* the log is read at the next connection anyway */
	}
	ctrlr->ana_due = false;
	ctrlr->ana_read_again = ctrlr->ana_reading; /* the read under way may have passed the group that changed */
	if (!ctrlr->ana_reading) {
		ctrlr->ana_reading = true;
		nvme_ana_read(ctrlr, ana_reread_finished);
	}
}

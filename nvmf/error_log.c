/* SPDX-License-Identifier: BSD-3-Clause */
/* The last errors of a controller (Base 5.16.1.2). Groups write without waiting; the control thread reads only entries
 * that are complete. */
#include <string.h>
#include "nvmf/command_internal.h"
#include "nvmf/internal.h"

/* The first LBA of a command that has one; 0 for all others (Base 5.16.1.2). */
static uint64_t error_log_lba(const struct nvmf_request *req)
{
	bool has_lba = (nvmf_command_of(req)->flags & NVMF_CMD_SLBA) != 0;

	return has_lba ? le32toh(req->sqe->cdw10) | (uint64_t)le32toh(req->sqe->cdw11) << 32 : 0;
}

static void error_log_fill(struct nvme_error_log_page *entry, const struct nvmf_request *req, uint16_t status,
			   uint64_t count)
{
	*entry = (struct nvme_error_log_page){
		.error_count = htole64(count),
		.sqid = htole16(req->qpair->qid),
		.cmdid = req->sqe->cid,
		.status_field = htole16((uint16_t)(status << 1)),
		.parm_error_location = htole16(req->error_location),
		.lba = htole64(error_log_lba(req)),
		.nsid = req->sqe->opcode != nvme_admin_fabrics ? req->sqe->nsid : 0,
		.trtype = req->qpair->transport->ops->trtype,
	};
}

/* Entry number n (from 1 on; hosts see it as the error count) is in slot n mod 64. If another thread is just writing to
 * the slot, an entry 64 errors older, this entry is dropped; the gap in the numbers shows that. */
void nvmf_error_log_add(struct nvmf_error_log *log, const struct nvmf_request *req, uint16_t status)
{
	uint64_t count = atomic_fetch_add_explicit(&log->count, 1, memory_order_relaxed) + 1;
	unsigned slot = count % NVMF_ERROR_LOG_SIZE;
	uint32_t sequence = atomic_load_explicit(&log->slots[slot].sequence, memory_order_relaxed);
	struct nvme_error_log_page entry;

	error_log_fill(&entry, req, status, count);
	if ((sequence & 1) != 0 ||
	    !atomic_compare_exchange_strong_explicit(&log->slots[slot].sequence, &sequence, sequence + 1,
						     memory_order_acquire, memory_order_relaxed)) {
		return;
	}
	/* The reader may copy the entry while it is being written. The sequence then tells it to discard the copy. */
	atomic_thread_fence(memory_order_release);
	memcpy(&log->slots[slot].entry, &entry, sizeof(entry));
	atomic_store_explicit(&log->slots[slot].sequence, sequence + 2, memory_order_release);
}

bool nvmf_error_log_get(struct nvmf_error_log *log, unsigned n, struct nvme_error_log_page *entry)
{
	uint64_t count = atomic_load_explicit(&log->count, memory_order_relaxed);

	memset(entry, 0, sizeof(*entry));
	if (n >= count || n >= NVMF_ERROR_LOG_SIZE) {
		return false;
	}
	unsigned slot = (count - n) % NVMF_ERROR_LOG_SIZE;
	uint32_t before = atomic_load_explicit(&log->slots[slot].sequence, memory_order_acquire);
	struct nvme_error_log_page copy = log->slots[slot].entry;
	atomic_thread_fence(memory_order_acquire);
	uint32_t after = atomic_load_explicit(&log->slots[slot].sequence, memory_order_relaxed);
	if (before == after && (before & 1) == 0) {
		*entry = copy;
	}
	return true;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The data path: commands into the submission queue, completions out of the completion queue, doorbells. One thread per
 * queue pair; no lock, no allocation, no system call but for interrupts going on and off as the thread falls asleep and
 * wakes. */
#include "nvme/pcie/pcie.h"

#include <errno.h>
#include <rte_atomic.h>
#include <rte_io.h>
#include <string.h>
#include <unistd.h>

#include "trace/trace.h"
#include "util/compiler.h"
#include "util/log.h"

/* While there is work, interrupts cost more than polling: they are disabled when so many completions have been found
 * since the thread last slept. A thread that sleeps after every few completions never pays for the change. */
#define AWAKE_COMPLETIONS 64

/* Shadow doorbells (Base 5.8): the device reads the shadow by itself up to its event index, and needs a write of the
 * register when the doorbell passes that. True if the register must be written too. */
static bool shadow_doorbell_write(volatile uint32_t *shadow, volatile uint32_t *event, uint16_t value)
{
	uint16_t old = (uint16_t)le32toh(*shadow);

	*shadow = htole32(value);
	rte_mb(); /* the device writes the event index and then reads the shadow, so one of the two sides sees the
		     other's write */
	uint16_t wanted = (uint16_t)le32toh(*event);
	return (uint16_t)(value - wanted - 1) < (uint16_t)(value - old);
}

static void doorbell_ring(struct nvme_pcie_qpair *q, volatile uint32_t *doorbell, volatile uint32_t *shadow,
			  volatile uint32_t *event, uint16_t value)
{
	rte_io_wmb(); /* the entries must be written before the doorbell that announces them */
	if (__atomic_load_n(&q->stopped, __ATOMIC_RELAXED)) {
		return; /* the control thread is deleting the queue, whose doorbell must not be written any more */
	}
	if (shadow == NULL || shadow_doorbell_write(shadow, event, value)) {
		*doorbell = htole32(value);
		q->doorbells++;
	}
}

static int command_point_to_data(struct nvme_pcie_qpair *q, struct nvme_request *req, uint16_t slot)
{
	struct nvme_pcie_data d = {.translate = q->translate,
				   .list = q->lists + (size_t)slot * q->list_bytes,
				   .list_iova = q->lists_iova + (uint64_t)slot * q->list_bytes,
				   .list_bytes = q->list_bytes,
				   .sgl = (enum nvme_pcie_sgl)q->sgl};

	return nvme_pcie_data_pointer(&d, req->iovs, req->iovcnt, req->data_len, &req->cmd);
}

/* Separate metadata: one contiguous buffer, with PRPs and with SGLs (Base 4.1.1, MPTR; PSDT 01b). */
static int command_point_to_metadata(struct nvme_pcie_qpair *q, struct nvme_request *req)
{
	size_t len = req->md_len;
	uint64_t addr = q->translate(req->md, &len);

	if (addr == ENV_IOVA_BAD || len < req->md_len) {
		return -EFAULT;
	}
	if (addr & 3) {
		return -EINVAL;
	}
	req->cmd.mptr = htole64(addr);
	return 0;
}

/* The command has just been written, by stores of one to eight bytes. A wider load of these bytes would wait until the
 * stores have left the store buffer, but a load of the same width is served from it. The atomics are relaxed, and keep
 * the compiler from widening the loads. */
static void command_copy(struct nvme_sqe *to, const struct nvme_sqe *from)
{
	__le32 *t = (__le32 *)to;
	const __le32 *f = (const __le32 *)from;

	t[0] = htole32(__atomic_load_n(&from->opcode, __ATOMIC_RELAXED) |
		       (uint32_t)__atomic_load_n(&from->flags, __ATOMIC_RELAXED) << 8 |
		       (uint32_t)le16toh(__atomic_load_n(&from->cid, __ATOMIC_RELAXED)) << 16);
	for (unsigned i = 1; i < 4; i++) {
		t[i] = __atomic_load_n(&f[i], __ATOMIC_RELAXED);
	}
	to->mptr = from->mptr;
	to->prp1 = __atomic_load_n(&from->prp1, __ATOMIC_RELAXED);
	to->prp2 = __atomic_load_n(&from->prp2, __ATOMIC_RELAXED);
	for (unsigned i = 10; i < 16; i++) {
		t[i] = __atomic_load_n(&f[i], __ATOMIC_RELAXED);
	}
}

int nvme_pcie_submit(struct nvme_qpair *base, struct nvme_request *req)
{
	struct nvme_pcie_qpair *q = nvme_pcie_qpair_of(base);
	int rc = 0;

	req->cmd.mptr = 0;
	if (req->data_len != 0) {
		rc = command_point_to_data(q, req, le16toh(req->cmd.cid) & base->slot_mask);
	} else {
		req->cmd.flags &= (uint8_t)~NVME_CMD_FLAGS_PSDT_MASK;
		req->cmd.prp1 = req->cmd.prp2 = 0;
	}
	if (rc == 0 && req->md != NULL) {
		rc = command_point_to_metadata(q, req);
	}
	if (unlikely(rc != 0)) {
		log_limited(LOG_LEVEL_ERROR, "%s queue pair %u: opcode 0x%02x with %u bytes in %u segments: %s",
			    base->ctrlr->trid.traddr, base->id, req->cmd.opcode, req->data_len, req->iovcnt,
			    rc == -EFAULT ? "the device cannot reach this memory (it must come from env_dpdk)"
					  : "this drive cannot take segments of that number or alignment");
		return rc;
	}
	/* there is room: the queue has one entry more than commands can be outstanding */
	command_copy(&q->sq[q->sq_tail], &req->cmd);
	q->sq_tail = q->sq_tail + 1 == q->sq_size ? 0 : (uint16_t)(q->sq_tail + 1);
	TRACE(NVME_PCIE_SUBMIT, q->owner, req->data_len, (uintptr_t)req, req->cb_arg, le16toh(req->cmd.cid),
	      req->cmd.opcode, le32toh(req->cmd.cdw10), le32toh(req->cmd.cdw11), le32toh(req->cmd.cdw12),
	      base->entries - base->num_free + 1u);
	return 0;
}

void nvme_pcie_flush(struct nvme_qpair *base)
{
	struct nvme_pcie_qpair *q = nvme_pcie_qpair_of(base);

	if (q->sq_tail != q->sq_rung) {
		q->sq_rung = q->sq_tail;
		doorbell_ring(q, q->sq_doorbell, q->sq_shadow, q->sq_event, q->sq_tail);
	}
}

static bool completion_is_there(const struct nvme_pcie_qpair *q)
{
	return (le16toh(*(volatile __le16 *)&q->cq[q->cq_head].status) & 1) == q->phase;
}

static void completion_trace(const struct nvme_pcie_qpair *q, const struct nvme_cqe *cqe)
{
	uint16_t cid = le16toh(cqe->cid);
	const struct nvme_request *req = nvme_qpair_request(&q->base, cid);

	if (req != NULL) {
		TRACE(NVME_PCIE_COMPLETE, q->owner, req->data_len, (uintptr_t)req, req->cb_arg, cid,
		      (uint32_t)cid | (uint32_t)le16toh(cqe->status) << 16, q->base.entries - q->base.num_free - 1u);
	}
}

static void completion_take(struct nvme_pcie_qpair *q)
{
	struct nvme_cqe cqe;

	rte_io_rmb(); /* the phase must be read before the rest of the entry */
	memcpy(&cqe, &q->cq[q->cq_head], sizeof(cqe));
	if (++q->cq_head == q->cq_size) {
		q->cq_head = 0;
		q->phase = !q->phase;
	}
	q->cq_unrung++;
	if (TRACE_ENABLED(NVME_PCIE_COMPLETE)) {
		completion_trace(q, &cqe);
	}
	/* SQHD and SQID are not used: a slot is free when its command has been completed, and only one submission queue
	 * uses this completion queue */
	nvme_qpair_complete(&q->base, &cqe);
}

static void cq_doorbell_ring(struct nvme_pcie_qpair *q)
{
	q->cq_unrung = 0;
	doorbell_ring(q, q->cq_doorbell, q->cq_shadow, q->cq_event, q->cq_head);
}

static void qpair_set_interrupts(struct nvme_pcie_qpair *q, bool on)
{
	struct nvme_pcie_ctrlr *c = nvme_pcie_ctrlr_of(q->base.ctrlr);

	q->polled = 0;
	if (q->interrupting != on && c->dev.access->vector_enable(&c->dev, (unsigned)q->vector, on) == 0) {
		q->interrupting = on;
	}
}

int nvme_pcie_poll(struct nvme_qpair *base, uint32_t max)
{
	struct nvme_pcie_qpair *q = nvme_pcie_qpair_of(base);
	/* a limit, or a drive that completes commands as fast as their submitters replace them would keep this thread
	 * for ever */
	uint32_t n = 0, most = max != 0 ? max : q->cq_size;

	while (n < most && completion_is_there(q) && !base->failed) {
		completion_take(q);
		n++;
	}
	if (q->cq_unrung > q->cq_slack) {
		cq_doorbell_ring(q);
	}
	nvme_pcie_flush(base);
	if (q->interrupting && (q->polled += n) > AWAKE_COMPLETIONS) {
		qpair_set_interrupts(q, false);
	}
	return (int)n;
}

int nvme_pcie_fd(const struct nvme_qpair *base)
{
	return nvme_pcie_qpair_of(base)->fd;
}

bool nvme_pcie_arm(struct nvme_qpair *base)
{
	struct nvme_pcie_qpair *q = nvme_pcie_qpair_of(base);
	uint64_t count;
	ssize_t ignored = read(q->fd, &count, sizeof(count));

	(void)ignored; /* there is nothing to read if there was no interrupt */
	if (q->cq_unrung != 0) {
		cq_doorbell_ring(q); /* some drives interrupt again only after the whole queue has been read */
	}
	nvme_pcie_flush(base);
	qpair_set_interrupts(q, true);
	/* without an interrupt the thread must stay awake; a completion that came before the interrupt was enabled is
	 * found here */
	return !q->interrupting || completion_is_there(q);
}

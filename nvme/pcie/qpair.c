/* SPDX-License-Identifier: BSD-3-Clause */
/* How queues of a PCIe controller are made and deleted: memory, Create and Delete I/O Queue. All on the control thread.
 *
 * Memory that the device knows of is freed only after the device has confirmed the deletion of its queue, or after the
 * whole controller has been quiesced: until then a queue that its user has freed is in limbo. */
#include "nvme/pcie/pcie.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "trace/trace.h"
#include "util/log.h"

#define HUGE_STEP        ((size_t)2 << 20)
#define IRQ_ENABLED      UINT32_C(0x2) /* Create I/O CQ, dword 11 (Base 5.5) */
#define PHYS_CONTIGUOUS  UINT32_C(0x1)
#define CQ_SLACK_DIVISOR 4
#define DELETE_SQ        "Delete I/O Submission Queue"
#define DELETE_CQ        "Delete I/O Completion Queue"

static size_t round_up_to_power_of_two(size_t n)
{
	size_t p = 64;

	while (p < n) {
		p *= 2;
	}
	return p;
}

/* Memory that is contiguous for the device: a power of two as its alignment keeps it within a hugepage, where that
 * matters. */
static void *queue_alloc_memory(const struct nvme_pcie_ctrlr *c, size_t size, int numa_node, uint64_t *iova)
{
	size_t align = round_up_to_power_of_two(size < NVME_PCIE_PAGE ? NVME_PCIE_PAGE : size),
	       len = size = (size + NVME_PCIE_PAGE - 1) & ~(size_t)(NVME_PCIE_PAGE - 1);
	void *p = env_dma_zmalloc(size, align > HUGE_STEP ? HUGE_STEP : align, numa_node);

	if (p == NULL) {
		return NULL;
	}
	*iova = c->dev.translate(p, &len);
	if (*iova == ENV_IOVA_BAD || len < size) {
		log_error("%s: %zu bytes of DMA memory for a queue are not contiguous, or out of the "
			  "device's reach",
			  c->dev.bdf, size);
		env_dma_free(p);
		return NULL;
	}
	return p;
}

/* A completion queue has somewhat more entries than commands can be outstanding: then its doorbell need not be written
 * at each poll. */
static uint16_t cq_choose_size(const struct nvme_pcie_ctrlr *c, uint16_t id, uint16_t entries)
{
	uint32_t most = (uint32_t)NVME_CAP_MQES(c->base.cap) + 1, wanted = entries + 1u + entries / CQ_SLACK_DIVISOR;

	if (id == 0) {
		most = 4096; /* Base 3.1.3.6, ACQS */
	}
	return (uint16_t)(wanted < most ? wanted : most < entries + 1u ? entries + 1u : most);
}

static int qpair_make_queues(struct nvme_pcie_ctrlr *c, struct nvme_pcie_qpair *q, int numa_node)
{
	uint32_t transfer = q->base.id == 0 ? NVME_PCIE_MAX_TRANSFER : nvme_ctrlr_max_transfer(&c->base);

	q->sq_size = (uint16_t)(q->base.entries + 1);
	q->cq_size = cq_choose_size(c, q->base.id, q->base.entries);
	q->cq_slack = (uint16_t)(q->cq_size - q->sq_size);
	/* a power of two up to a page, so that no list crosses a page boundary (Base 4.1.1) */
	q->list_bytes = (uint32_t)round_up_to_power_of_two((transfer / NVME_PCIE_PAGE + 1) * sizeof(uint64_t) > 256
								   ? transfer / NVME_PCIE_PAGE * sizeof(uint64_t)
								   : 256);
	q->sq = queue_alloc_memory(c, q->sq_size * sizeof(*q->sq), numa_node, &q->sq_iova);
	q->cq = queue_alloc_memory(c, q->cq_size * sizeof(*q->cq), numa_node, &q->cq_iova);
	q->lists = queue_alloc_memory(c, (size_t)q->base.entries * q->list_bytes, numa_node, &q->lists_iova);
	return q->sq != NULL && q->cq != NULL && q->lists != NULL ? 0 : -ENOMEM;
}

static volatile uint32_t *doorbell_at(const struct nvme_pcie_ctrlr *c, uint32_t index)
{
	return (volatile uint32_t *)(c->dev.regs + NVME_PCIE_DOORBELLS + (size_t)index * c->doorbell_stride);
}

static int qpair_find_doorbells(struct nvme_pcie_ctrlr *c, struct nvme_pcie_qpair *q)
{
	uint32_t sq = 2u * q->base.id, cq = sq + 1;
	size_t end = NVME_PCIE_DOORBELLS + (size_t)(cq + 1) * c->doorbell_stride,
	       words = c->doorbell_stride / sizeof(uint32_t);

	if (end > c->dev.regs_len) {
		log_error("%s: BAR 0 has %zu bytes: the doorbells of queue pair %u, up to byte %zu, are not "
			  "in it",
			  c->dev.bdf, c->dev.regs_len, q->base.id, end);
		return -ERANGE;
	}
	q->sq_doorbell = doorbell_at(c, sq);
	q->cq_doorbell = doorbell_at(c, cq);
	if (c->shadow_on && q->base.id != 0 && (cq + 1) * c->doorbell_stride <= NVME_PCIE_PAGE) {
		q->sq_shadow = c->shadow + sq * words;
		q->cq_shadow = c->shadow + cq * words;
		q->sq_event = c->event_idx + sq * words;
		q->cq_event = c->event_idx + cq * words;
		/* the previous queue of this id has left its values */
		*q->sq_shadow = *q->cq_shadow = *q->sq_event = *q->cq_event = 0;
	}
	return 0;
}

static void qpair_release(struct nvme_pcie_qpair *q)
{
	trace_owner_release(q->owner);
	env_dma_free(q->sq);
	env_dma_free(q->cq);
	env_dma_free(q->lists);
	nvme_qpair_fini(&q->base);
	free(q);
}

struct nvme_qpair *nvme_pcie_qpair_alloc(struct nvme_ctrlr *ctrlr, uint16_t id, uint16_t entries,
					 const struct nvme_qpair_opts *opts)
{
	struct nvme_pcie_ctrlr *c = nvme_pcie_ctrlr_of(ctrlr);
	struct nvme_pcie_qpair *q = aligned_alloc(64, (sizeof(*q) + 63) / 64 * 64);
	char name[64];

	if (q == NULL) {
		return NULL;
	}
	memset(q, 0, sizeof(*q));
	if (nvme_qpair_init(&q->base, ctrlr, id, entries) != 0) {
		free(q);
		return NULL;
	}
	int numa_node = opts != NULL && opts->numa_node >= 0 ? opts->numa_node : c->dev.numa_node;
	q->translate = c->dev.translate;
	q->phase = true;
	/* SGLs in admin commands are for fabrics (Base 4.1.2) */
	uint32_t sgls = id == 0 ? 0 : le32toh(ctrlr->id.sgls) & 3;
	q->sgl = sgls == 1 ? NVME_PCIE_SGL_BYTES : sgls == 2 ? NVME_PCIE_SGL_DWORDS : NVME_PCIE_SGL_NONE;
	q->vector = id < c->vectors ? id : -1;
	q->fd = q->vector >= 0 ? c->dev.access->vector_fd(&c->dev, id) : -1;
	if (qpair_make_queues(c, q, numa_node) != 0 || qpair_find_doorbells(c, q) != 0) {
		qpair_release(q);
		return NULL;
	}
	snprintf(name, sizeof(name), "%s qid %u", c->dev.bdf, id);
	q->owner = trace_owner_register(TRACE_OWNER_NVME_PCIE_QP, name);
	return &q->base;
}

/* The number of a queue pair that its user has freed is not given out again while the device may know its queues. */
static void qid_set_in_use(const struct nvme_pcie_qpair *q, bool in_use)
{
	uint64_t *word = &q->base.ctrlr->qids[q->base.id / 64], bit = UINT64_C(1) << q->base.id % 64;

	*word = in_use ? *word | bit : *word & ~bit;
}

/* Sends an admin command. queue: memory that PRP1 shall point to, as if it were a page of data; or NULL. */
static int qpair_send_admin(struct nvme_pcie_qpair *q, const struct nvme_sqe *cmd, void *queue,
			    void (*cb)(void *arg, const struct nvme_cqe *cqe))
{
	int rc = nvme_ctrlr_admin(q->base.ctrlr, cmd, queue, queue != NULL ? NVME_PCIE_PAGE : 0, true, cb, q);

	q->commands += rc == 0;
	return rc;
}

/* Limbo: as soon as no command of a queue pair in it is outstanding, its queues are deleted, and it is freed. So a
 * queue that was created too late does not stay. */

/* nvme_pcie_limbo_free() frees all of them soon. */
static bool limbo_ends(const struct nvme_pcie_ctrlr *c)
{
	return c->quiet || c->base.in_failure || c->base.state != NVME_CTRLR_READY;
}

static void qid_set_awaited(struct nvme_pcie_qpair *q, bool awaited)
{
	q->base.ctrlr->qids_awaited += awaited - q->awaited;
	q->awaited = awaited;
}

static void limbo_leave(struct nvme_pcie_ctrlr *c, struct nvme_pcie_qpair *q)
{
	qid_set_awaited(q, false);
	TAILQ_REMOVE(&c->limbo, q, limbo_link);
	qid_set_in_use(q, false);
	qpair_release(q);
}

static bool ctrlr_serves(const struct nvme_pcie_ctrlr *c)
{
	const struct nvme_qpair *base;

	TAILQ_FOREACH (base, &c->base.qpairs, link) {
		if (base->connected) {
			return true;
		}
	}
	return false;
}

/* The queue could not be deleted: a reset follows, which ends a stop by nvme_pcie_qpairs_stopped(). */
static void queue_deletion_failed(struct nvme_pcie_qpair *q, const char *what, const char *why)
{
	nvme_ctrlr_lost(q->base.ctrlr, "%s %u: %s", what, q->base.id, why);
}

/* The drive has refused to delete a queue, so only a reset gives the number back. If the drive serves no queue pair, a
 * reset disturbs nobody, and is begun at once: otherwise all numbers could be kept and nobody would reset the drive. */
static void limbo_stay(struct nvme_pcie_qpair *q, const char *what, const char *why)
{
	struct nvme_pcie_ctrlr *c = nvme_pcie_ctrlr_of(q->base.ctrlr);

	if (!ctrlr_serves(c)) {
		queue_deletion_failed(q, what, why);
		return;
	}
	qid_set_awaited(q, false);
	log_limited(LOG_LEVEL_WARNING,
		    "%s: %s %u, of a queue pair that was given up: %s. Its number stays in use until the "
		    "controller is reset",
		    c->base.trid.traddr, what, q->base.id, why);
}

static void limbo_step(struct nvme_pcie_qpair *q);

static void limbo_queue_deleted(struct nvme_pcie_qpair *q, bool *is_there, const char *what, const struct nvme_cqe *cqe)
{
	uint16_t status = nvme_cqe_status(cqe);

	q->commands--;
	*is_there = status != 0;
	if (status == 0) {
		limbo_step(q);
	} else if (!limbo_ends(nvme_pcie_ctrlr_of(q->base.ctrlr))) {
		limbo_stay(q, what, nvme_status_text(status));
	}
}

static void limbo_sq_deleted(void *arg, const struct nvme_cqe *cqe)
{
	struct nvme_pcie_qpair *q = arg;

	limbo_queue_deleted(q, &q->has_sq, DELETE_SQ, cqe);
}

static void limbo_cq_deleted(void *arg, const struct nvme_cqe *cqe)
{
	struct nvme_pcie_qpair *q = arg;

	limbo_queue_deleted(q, &q->has_cq, DELETE_CQ, cqe);
}

static void limbo_step(struct nvme_pcie_qpair *q)
{
	struct nvme_pcie_ctrlr *c = nvme_pcie_ctrlr_of(q->base.ctrlr);
	struct nvme_sqe cmd = {.opcode = q->has_sq ? nvme_admin_delete_sq : nvme_admin_delete_cq,
			       .cdw10 = htole32(q->base.id)};

	if (q->commands != 0 || limbo_ends(c)) {
		return;
	}
	if (!q->has_sq && !q->has_cq) {
		limbo_leave(c, q);
		return;
	}
	int rc = qpair_send_admin(q, &cmd, NULL, q->has_sq ? limbo_sq_deleted : limbo_cq_deleted);
	q->unsent = rc == -EAGAIN || rc == -ENOMEM; /* later there may be room in the queue, or memory */
	if (rc != 0 && !q->unsent) {
		limbo_stay(q, q->has_sq ? DELETE_SQ : DELETE_CQ, strerror(-rc));
	}
}

void nvme_pcie_limbo_retry(struct nvme_pcie_ctrlr *c)
{
	struct nvme_pcie_qpair *q = TAILQ_FIRST(&c->limbo), *next;

	for (; q != NULL; q = next) {
		next = TAILQ_NEXT(q, limbo_link);
		if (q->unsent) {
			limbo_step(q);
		}
	}
}

static void limbo_enter(struct nvme_pcie_ctrlr *c, struct nvme_pcie_qpair *q)
{
	q->dead = true;
	nvme_qpair_alarm_fini(&q->base);
	TAILQ_INSERT_TAIL(&c->limbo, q, limbo_link);
	qid_set_in_use(q, true);
	qid_set_awaited(q, true);
	if (q->commands != 0 && !limbo_ends(c)) {
		log_limited(LOG_LEVEL_NOTICE,
			    "%s: queue pair %u was given up before the drive has answered: its number stays in use "
			    "until the drive has deleted its queues",
			    c->base.trid.traddr, q->base.id);
	}
	limbo_step(q);
}

/* Creating: the completion queue, then the submission queue (Base 5.5, 5.6). */

static void refused_sq_ended(struct nvme_pcie_qpair *q, const char *why)
{
	nvme_qpair_transport_connected(&q->base, -EIO); /* the user is told by a timer, so q is still there */
	if (why != NULL) {
		queue_deletion_failed(q, DELETE_CQ, why);
	}
}

static void refused_sq_cq_deleted(void *arg, const struct nvme_cqe *cqe)
{
	struct nvme_pcie_qpair *q = arg;
	uint16_t status = nvme_cqe_status(cqe);

	if (q->dead) {
		limbo_cq_deleted(q, cqe);
		return;
	}
	q->commands--;
	q->has_cq = status != 0;
	if (q->base.failed) { /* it is being ended */
		return;
	}
	refused_sq_ended(q, status != 0 ? nvme_status_text(status) : NULL);
}

/* The completion queue is deleted, or no queue pair of this id could be created before the next reset. */
static void sq_refused(struct nvme_pcie_qpair *q, uint16_t status)
{
	struct nvme_sqe cmd = {.opcode = nvme_admin_delete_cq, .cdw10 = htole32(q->base.id)};

	log_limited(LOG_LEVEL_WARNING, "%s: Create I/O Submission Queue %u was refused: %s", q->base.ctrlr->trid.traddr,
		    q->base.id, nvme_status_text(status));
	int rc = qpair_send_admin(q, &cmd, NULL, refused_sq_cq_deleted);
	if (rc != 0) {
		refused_sq_ended(q, strerror(-rc));
	}
}

static void sq_created(void *arg, const struct nvme_cqe *cqe)
{
	struct nvme_pcie_qpair *q = arg;
	uint16_t status = nvme_cqe_status(cqe);

	q->commands--;
	q->has_sq = status == 0;
	if (q->dead) {
		limbo_step(q);
		return;
	}
	if (q->base.failed) { /* it is being ended */
		return;
	}
	if (status == 0) {
		nvme_qpair_transport_connected(&q->base, 0);
	} else {
		sq_refused(q, status);
	}
}

static void cq_created(void *arg, const struct nvme_cqe *cqe)
{
	struct nvme_pcie_qpair *q = arg;
	struct nvme_sqe cmd = {
		.opcode = nvme_admin_create_sq,
		.cdw10 = htole32(q->base.id | (q->sq_size - 1u) << 16),
		.cdw11 = htole32(PHYS_CONTIGUOUS | (uint32_t)q->base.id << 16),
	};
	uint16_t status = nvme_cqe_status(cqe);

	q->commands--;
	q->has_cq = status == 0;
	if (q->dead) {
		limbo_step(q);
		return;
	}
	if (q->base.failed) { /* it is being ended */
		return;
	}
	if (status != 0) {
		log_limited(LOG_LEVEL_WARNING, "%s: Create I/O Completion Queue %u was refused: %s",
			    q->base.ctrlr->trid.traddr, q->base.id, nvme_status_text(status));
		nvme_qpair_transport_connected(&q->base, -EIO);
		return;
	}
	q->has_sq = true; /* as soon as the device may have read the command */
	int rc = qpair_send_admin(q, &cmd, q->sq, sq_created);
	if (rc != 0) {
		q->has_sq = false;
		nvme_qpair_transport_connected(&q->base, rc);
	}
}

void nvme_pcie_qpair_connect(struct nvme_qpair *base)
{
	struct nvme_pcie_qpair *q = nvme_pcie_qpair_of(base);
	struct nvme_sqe cmd = {
		.opcode = nvme_admin_create_cq,
		.cdw10 = htole32(base->id | (q->cq_size - 1u) << 16),
		.cdw11 = htole32(PHYS_CONTIGUOUS | (q->vector >= 0 ? IRQ_ENABLED | (uint32_t)q->vector << 16 : 0)),
	};

	q->has_cq = true;
	int rc = qpair_send_admin(q, &cmd, q->cq, cq_created);
	if (rc != 0) {
		q->has_cq = false;
		nvme_qpair_transport_connected(base, rc);
	}
}

/* Ending: the submission queue, then the completion queue (Base 5.7, 5.4). */

static void qpair_stop_ended(struct nvme_pcie_qpair *q)
{
	void (*done)(void *) = q->stop_done;

	if (done != NULL) {
		q->stop_done = NULL;
		done(q->stop_arg);
	}
}

static void queue_delete(struct nvme_pcie_qpair *q, uint8_t opcode, const char *what,
			 void (*cb)(void *arg, const struct nvme_cqe *cqe))
{
	struct nvme_sqe cmd = {.opcode = opcode, .cdw10 = htole32(q->base.id)};
	int rc = qpair_send_admin(q, &cmd, NULL, cb);

	if (rc != 0) {
		queue_deletion_failed(q, what, strerror(-rc));
	}
}

static void cq_deleted(void *arg, const struct nvme_cqe *cqe)
{
	struct nvme_pcie_qpair *q = arg;

	if (q->dead) {
		limbo_cq_deleted(q, cqe);
		return;
	}
	q->commands--;
	if (nvme_pcie_ctrlr_of(q->base.ctrlr)->quiet) { /* a reset has begun meanwhile */
		return;
	}
	if (nvme_cqe_status(cqe) != 0) {
		queue_deletion_failed(q, DELETE_CQ, nvme_status_text(nvme_cqe_status(cqe)));
		return;
	}
	q->has_cq = false;
	qpair_stop_ended(q);
}

static void sq_deleted(void *arg, const struct nvme_cqe *cqe)
{
	struct nvme_pcie_qpair *q = arg;

	if (q->dead) {
		limbo_sq_deleted(q, cqe);
		return;
	}
	q->commands--;
	if (nvme_pcie_ctrlr_of(q->base.ctrlr)->quiet) {
		return;
	}
	if (nvme_cqe_status(cqe) != 0) {
		queue_deletion_failed(q, DELETE_SQ, nvme_status_text(nvme_cqe_status(cqe)));
		return;
	}
	q->has_sq = false;
	queue_delete(q, nvme_admin_delete_cq, DELETE_CQ, cq_deleted);
}

void nvme_pcie_qpair_stop(struct nvme_qpair *base, void (*done)(void *arg), void *arg)
{
	struct nvme_pcie_qpair *q = nvme_pcie_qpair_of(base);

	__atomic_store_n(&q->stopped, true, __ATOMIC_RELAXED);
	q->stop_done = done;
	q->stop_arg = arg;
	if (nvme_pcie_ctrlr_of(base->ctrlr)->quiet) {
		q->has_cq = q->has_sq = false;
		qpair_stop_ended(q);
	} else if (!base->ctrlr->in_failure) {
		queue_delete(q, nvme_admin_delete_sq, DELETE_SQ, sq_deleted);
	} /* else the controller is being quiesced, which ends this stop */
}

void nvme_pcie_qpair_free(struct nvme_qpair *base)
{
	struct nvme_pcie_qpair *q = nvme_pcie_qpair_of(base);
	struct nvme_pcie_ctrlr *c = nvme_pcie_ctrlr_of(base->ctrlr);

	if (q->commands != 0 || ((q->has_cq || q->has_sq) && !c->quiet)) {
		limbo_enter(c, q);
		return;
	}
	qpair_release(q);
}

void nvme_pcie_qpairs_stopped(struct nvme_pcie_ctrlr *c)
{
	struct nvme_qpair *base = TAILQ_FIRST(&c->base.qpairs), *next;

	for (; base != NULL; base = next) {
		next = TAILQ_NEXT(base, link); /* stop_done() destroys the queue pair */
		nvme_pcie_qpair_of(base)->has_cq = nvme_pcie_qpair_of(base)->has_sq = false;
		qpair_stop_ended(nvme_pcie_qpair_of(base));
	}
}

void nvme_pcie_limbo_free(struct nvme_pcie_ctrlr *c)
{
	struct nvme_pcie_qpair *q;

	while ((q = TAILQ_FIRST(&c->limbo)) != NULL) {
		limbo_leave(c, q);
	}
}

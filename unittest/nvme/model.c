/* SPDX-License-Identifier: BSD-3-Clause */
/* The model's registers, queues, faults, and PCI access layer. */
#include "unittest/nvme/model_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define REGS_BYTES 8192
#define MQES       255 /* 0's based */

struct model *model_current;
size_t model_ns_bytes = 4u << 20;

static uint32_t reg4(const struct model *m, uint32_t offset)
{
	return le32toh(*(volatile uint32_t *)(m->regs + offset));
}

static void set_reg4(struct model *m, uint32_t offset, uint32_t value)
{
	*(volatile uint32_t *)(m->regs + offset) = htole32(value);
}

static uint64_t reg8(const struct model *m, uint32_t offset)
{
	return reg4(m, offset) | (uint64_t)reg4(m, offset + 4) << 32;
}

uint64_t model_noise(struct model *m, unsigned bits)
{
	return m->noise != NULL ? m->noise(m->noise_arg, bits) : 0;
}

void model_violation(struct model *m, const char *what)
{
	if (m->violation[0] == '\0') {
		snprintf(m->violation, sizeof(m->violation), "%s", what);
	}
}

static void make_ns(struct model_ns *ns, unsigned shift, uint16_t md_size)
{
	*ns = (struct model_ns){.active = true,
				.blocks = model_ns_bytes >> shift,
				.block_shift = (uint8_t)shift,
				.md_size = md_size,
				.mssrl = 64,
				.mcl = 96,
				.msrc = 3};
	ns->data = calloc(1, model_ns_bytes);
	ns->md = md_size ? calloc(ns->blocks, md_size) : NULL;
}

void model_init(struct model *m)
{
	memset(m, 0, sizeof(*m));
	m->regs = calloc(1, REGS_BYTES);
	m->regs_len = REGS_BYTES;
	m->vendor_device = 0x1b36 | 0x10 << 16;
	/* MQES; contiguous queues required; TO 500 ms; DSTRD 0; NVM command set; 4 KiB pages */
	set_reg4(m, NVME_REG_CAP, MQES | 1 << 16 | 1 << 24);
	set_reg4(m, NVME_REG_CAP + 4, 1 << 5);
	set_reg4(m, NVME_REG_VS, 0x10400);
	m->sgl_offered = true;
	m->oncs = 0x1f | NVME_CTRL_ONCS_VERIFY | NVME_CTRL_ONCS_COPY;
	m->ocfs = 1;
	m->mdts = 5; /* 128 KiB */
	m->cntlid = 1;
	m->serial = "MODEL0";
	make_ns(&m->ns[0], 9, 0);
	make_ns(&m->ns[1], 12, 16);
}

void model_fini(struct model *m)
{
	for (unsigned i = 0; i < MODEL_NAMESPACES; i++) {
		free(m->ns[i].data);
		free(m->ns[i].md);
	}
	free((void *)m->regs);
	m->regs = NULL;
}

/* Completions. */

static void signal_vector(struct model *m, unsigned qid)
{
	if (qid < m->vectors && m->vector_on[qid] && eventfd_write(m->vector_fds[qid], 1) != 0) {
		abort();
	}
}

static void complete_raw(struct model *m, unsigned qid, struct nvme_cqe cqe, bool wrong_phase)
{
	struct model_queue *q = &m->queues[qid];

	if (q->cq == 0 || !m->bus_master || m->removed) {
		return;
	}
	if ((q->cq_tail + 1u) % q->cq_size == q->last_head) {
		model_violation(m, "the completion queue is full: its doorbell came too late");
		return;
	}
	volatile struct nvme_cqe *slot = &((volatile struct nvme_cqe *)(uintptr_t)q->cq)[q->cq_tail];
	bool phase = wrong_phase ? !q->phase : q->phase;
	slot->dw0 = cqe.dw0;
	slot->dw1 = cqe.dw1;
	slot->sqhd = cqe.sqhd;
	slot->sqid = cqe.sqid;
	slot->cid = cqe.cid;
	__atomic_store_n(&slot->status, htole16((uint16_t)(le16toh(cqe.status) << 1 | phase)), __ATOMIC_RELEASE);
	if (!wrong_phase && ++q->cq_tail == q->cq_size) {
		q->cq_tail = 0;
		q->phase = !q->phase;
	}
	signal_vector(m, qid);
}

/* Spoils one of the fields, or all of them. */
static void spoil(struct model *m, struct nvme_cqe *cqe)
{
	if (m->noise == NULL || model_noise(m, 4) != 0) {
		return;
	}
	uint64_t which = model_noise(m, 3);
	cqe->cid = which & 1 ? (uint16_t)model_noise(m, 16) : cqe->cid;
	cqe->status = which & 2 ? (uint16_t)model_noise(m, 15) : cqe->status;
	cqe->dw0 = which & 4 ? (uint32_t)model_noise(m, 32) : cqe->dw0;
	cqe->sqhd = (uint16_t)model_noise(m, 16);
	cqe->sqid = (uint16_t)model_noise(m, 8);
}

void model_complete(struct model *m, unsigned qid, uint16_t cid, uint16_t status, uint32_t dw0)
{
	struct nvme_cqe cqe = {.dw0 = htole32(dw0),
			       .sqhd = htole16(m->queues[qid].sq_head),
			       .sqid = htole16((uint16_t)qid),
			       .cid = htole16(cid),
			       .status = htole16(status)};

	spoil(m, &cqe);
	complete_raw(m, qid, cqe, false);
}

bool model_event(struct model *m, uint32_t dw0)
{
	if (m->num_aers == 0) {
		return false;
	}
	model_complete(m, 0, m->aer_cids[--m->num_aers], 0, dw0);
	return true;
}

/* Faults. */

static bool fault_fits(struct model_fault *f, unsigned qid, uint8_t opcode)
{
	if (f->kind == MODEL_FAULT_NONE || f->count == 0 || (f->qid >= 0 && (unsigned)f->qid != qid) ||
	    (f->opcode >= 0 && f->opcode != opcode)) {
		return false;
	}
	if (f->skip > 0) {
		f->skip--;
		return false;
	}
	f->count--;
	return true;
}

static void hold(struct model *m, unsigned qid, const struct nvme_sqe *sqe, enum model_fault_kind kind)
{
	if (m->num_held < sizeof(m->held) / sizeof(m->held[0])) {
		m->held[m->num_held++] =
			(struct model_held){.qid = (uint16_t)qid, .cid = le16toh(sqe->cid), .sqe = *sqe, .kind = kind};
	}
}

static void complete_duplicate(struct model *m, unsigned qid, const struct nvme_sqe *sqe)
{
	model_complete(m, qid, le16toh(sqe->cid), 0, 0);
	model_complete(m, qid, le16toh(sqe->cid), 0, 0);
}

static void do_fault(struct model *m, unsigned qid, const struct nvme_sqe *sqe)
{
	struct nvme_cqe cqe = {.cid = sqe->cid};

	switch (m->fault.kind) {
	case MODEL_FAULT_NO_ANSWER:
	case MODEL_FAULT_DEAF:
	case MODEL_FAULT_LATE:
		hold(m, qid, sqe, m->fault.kind);
		break;
	case MODEL_FAULT_STATUS:
		model_complete(m, qid, le16toh(sqe->cid), m->fault.status, 0);
		break;
	case MODEL_FAULT_BAD_PHASE:
		complete_raw(m, qid, cqe, true);
		break;
	case MODEL_FAULT_UNKNOWN_CID:
		cqe.cid = htole16(0); /* the stack of free ids makes 0 the first: see `skip` */
		complete_raw(m, qid, cqe, false);
		break;
	case MODEL_FAULT_HUGE_CID:
		cqe.cid = htole16(0xfffe);
		complete_raw(m, qid, cqe, false);
		break;
	case MODEL_FAULT_DUPLICATE:
		complete_duplicate(m, qid, sqe);
		break;
	case MODEL_FAULT_CFS:
		set_reg4(m, NVME_REG_CSTS, reg4(m, NVME_REG_CSTS) | 2);
		break;
	case MODEL_FAULT_REMOVED:
		model_remove(m);
		break;
	case MODEL_FAULT_NONE:
		break;
	}
}

void model_release(struct model *m)
{
	unsigned n = m->num_held;

	m->num_held = 0;
	for (unsigned i = 0; i < n; i++) {
		model_execute(m, m->held[i].qid, &m->held[i].sqe);
	}
}

bool model_abort_held(struct model *m, uint16_t qid, uint16_t cid)
{
	for (unsigned i = 0; i < m->num_held; i++) {
		if (m->held[i].qid == qid && m->held[i].cid == cid && m->held[i].kind != MODEL_FAULT_DEAF) {
			m->held[i] = m->held[--m->num_held];
			model_complete(m, qid, cid, NVME_ST(GENERIC, ABORT_REQ), 0);
			return true;
		}
	}
	return false;
}

void model_drop_held(struct model *m, uint16_t qid)
{
	for (unsigned i = 0; i < m->num_held;) {
		if (m->held[i].qid == qid) {
			m->held[i] = m->held[--m->num_held];
		} else {
			i++;
		}
	}
}

void model_remove(struct model *m)
{
	m->removed = true;
	memset((void *)m->regs, 0xff, m->regs_len);
}

/* Registers. */

static void forget_everything(struct model *m)
{
	memset(m->queues, 0, sizeof(m->queues));
	m->num_held = 0;
	m->num_aers = 0;
	m->shadow = m->event_idx = 0;
	m->ready = false;
}

static void clear_doorbells(struct model *m)
{
	memset((void *)(m->regs + NVME_PCIE_DOORBELLS), 0, m->regs_len - NVME_PCIE_DOORBELLS);
}

static void enable(struct model *m)
{
	uint32_t aqa = reg4(m, NVME_REG_AQA);

	if (!m->bus_master) {
		model_violation(m, "enabled without being allowed to master the bus");
	}
	if (m->refuse_enable) {
		return;
	}
	m->queues[0] = (struct model_queue){.sq = reg8(m, NVME_REG_ASQ),
					    .cq = reg8(m, NVME_REG_ACQ),
					    .sq_size = (uint16_t)((aqa & 0xfff) + 1),
					    .cq_size = (uint16_t)((aqa >> 16 & 0xfff) + 1),
					    .phase = true};
	if ((m->queues[0].sq | m->queues[0].cq) & 4095) {
		model_violation(m, "an admin queue is not aligned to a page");
	}
	clear_doorbells(m);
	m->ready = true;
	set_reg4(m, NVME_REG_CSTS, 1);
}

/* All is as after power-on, but for CSTS.NSSRO, which tells the reason. */
static void look_at_nssr(struct model *m)
{
	uint32_t value = reg4(m, NVME_REG_NSSR);

	set_reg4(m, NVME_REG_NSSR, 0);
	if (value == 0x4e564d65 && NVME_CAP_NSSRC(reg8(m, NVME_REG_CAP))) {
		m->subsystem_resets++;
		forget_everything(m);
		m->cc = 0;
		set_reg4(m, NVME_REG_CC, 0);
		set_reg4(m, NVME_REG_CSTS, 1 << 4);
	} else if (value != 0) {
		model_violation(m, "a write to NSSR that resets nothing");
	}
}

static void look_at_cc(struct model *m)
{
	uint32_t cc = reg4(m, NVME_REG_CC), changed = cc ^ m->cc;

	m->cc = cc;
	if (changed & 1) {
		if (cc & 1) {
			enable(m);
		} else if (!m->refuse_disable) {
			forget_everything(m);
			set_reg4(m, NVME_REG_CSTS, 0);
			m->resets++;
		}
	}
	if ((cc >> NVME_CC_SHN_SHIFT & 3) != 0 && (cc & 1) && !m->refuse_shutdown) {
		set_reg4(m, NVME_REG_CSTS, reg4(m, NVME_REG_CSTS) | 2 << 2); /* SHST: complete */
	}
}

/* Doorbells and commands. */

static uint32_t doorbell(struct model *m, unsigned index)
{
	uint32_t value = reg4(m, NVME_PCIE_DOORBELLS + index * 4);

	if (m->shadow != 0 && index >= 2) {
		value = *(volatile uint32_t *)(uintptr_t)(m->shadow + index * 4);
		*(volatile uint32_t *)(uintptr_t)(m->event_idx + index * 4) =
			value; /* the model reads it by itself, without a write of the register */
	}
	return value;
}

void model_execute(struct model *m, unsigned qid, const struct nvme_sqe *sqe)
{
	if (qid == 0) {
		m->admin_commands[sqe->opcode]++;
		model_admin_command(m, sqe);
	} else {
		m->commands[sqe->opcode]++;
		model_io_command(m, qid, sqe);
	}
}

static void take_command(struct model *m, unsigned qid)
{
	struct model_queue *q = &m->queues[qid];
	struct nvme_sqe sqe = ((struct nvme_sqe *)(uintptr_t)q->sq)[q->sq_head];

	q->sq_head = (uint16_t)(q->sq_head + 1 == q->sq_size ? 0 : q->sq_head + 1);
	if (fault_fits(&m->fault, qid, sqe.opcode)) {
		do_fault(m, qid, &sqe);
	} else {
		model_execute(m, qid, &sqe);
	}
}

static unsigned step_queue(struct model *m, unsigned qid)
{
	struct model_queue *q = &m->queues[qid];
	unsigned n = 0;
	uint32_t tail = doorbell(m, 2 * qid), head = doorbell(m, 2 * qid + 1);

	m->doorbells += (tail != q->last_tail) + (head != q->last_head);
	if (tail >= q->sq_size || head >= q->cq_size) {
		model_violation(m, "a doorbell beyond its queue");
		return 0;
	}
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	q->last_tail = tail;
	q->last_head = head;
	while (q->sq != 0 && q->sq_head != tail && !m->removed) {
		take_command(m, qid);
		n++;
	}
	return n;
}

unsigned model_step(struct model *m)
{
	unsigned n = 0;

	if (!m->open || m->removed) {
		return 0;
	}
	look_at_nssr(m);
	look_at_cc(m);
	if (!m->ready || !m->bus_master || (reg4(m, NVME_REG_CSTS) & 2)) {
		return 0;
	}
	for (unsigned qid = 0; qid < MODEL_QUEUES && !m->removed; qid++) {
		if (m->queues[qid].sq != 0) {
			n += step_queue(m, qid);
		} else if (qid != 0 && m->queues[qid].cq == 0 &&
			   (doorbell(m, 2 * qid) | doorbell(m, 2 * qid + 1)) != 0) {
			model_violation(m, "a doorbell of a queue that is not there");
		}
	}
	return n;
}

void model_queue_gone(struct model *m, unsigned qid)
{
	*(volatile uint32_t *)(m->regs + NVME_PCIE_DOORBELLS + qid * 8) = 0;
	*(volatile uint32_t *)(m->regs + NVME_PCIE_DOORBELLS + qid * 8 + 4) = 0;
	if (m->shadow != 0) {
		*(volatile uint64_t *)(uintptr_t)(m->shadow + qid * 8) = 0;
	}
}

/* The PCI access layer. */

static uint64_t same_address(const void *buf, size_t *len)
{
	return (uintptr_t)buf;
}

static int model_access_open(const char *traddr, struct nvme_pcie_device *dev, char *error)
{
	struct model *m = model_current;

	if (m == NULL || m->no_open) {
		snprintf(error, NVME_ERROR_MAX, "there is no model at %.32s", traddr);
		return -ENODEV;
	}
	m->open = true;
	dev->handle = m;
	snprintf(dev->bdf, sizeof(dev->bdf), "%.15s", traddr);
	dev->vendor = (uint16_t)m->vendor_device;
	dev->device = (uint16_t)(m->vendor_device >> 16);
	dev->numa_node = -1;
	dev->regs = m->regs;
	dev->regs_len = m->regs_len;
	dev->translate = same_address;
	return 0;
}

static void model_access_close(struct nvme_pcie_device *dev)
{
	struct model *m = dev->handle;

	for (unsigned i = 0; i < m->vectors; i++) {
		close(m->vector_fds[i]);
	}
	m->vectors = 0;
	m->open = false;
	m->bus_master = false;
}

static int model_access_set_bus_master(struct nvme_pcie_device *dev, bool on)
{
	((struct model *)dev->handle)->bus_master = on;
	return 0;
}

static int model_access_reset(struct nvme_pcie_device *dev)
{
	struct model *m = dev->handle;

	forget_everything(m);
	set_reg4(m, NVME_REG_CSTS, 0);
	set_reg4(m, NVME_REG_CC, 0);
	m->cc = 0;
	m->resets++;
	return 0;
}

static unsigned model_access_vectors_open(struct nvme_pcie_device *dev, unsigned n)
{
	struct model *m = dev->handle;

	for (unsigned i = 0; i < n && i < m->vectors_wanted && i < MODEL_QUEUES; i++) {
		m->vector_fds[i] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		m->vectors = i + 1;
	}
	return m->vectors;
}

static int model_access_vector_fd(const struct nvme_pcie_device *dev, unsigned vector)
{
	const struct model *m = dev->handle;

	return vector < m->vectors ? m->vector_fds[vector] : -1;
}

static int model_access_vector_enable(struct nvme_pcie_device *dev, unsigned vector, bool on)
{
	struct model *m = dev->handle;

	m->vector_on[vector] = on;
	m->vector_switches++;
	return 0;
}

const struct nvme_pcie_access model_access = {
	.open = model_access_open,
	.close = model_access_close,
	.set_bus_master = model_access_set_bus_master,
	.reset = model_access_reset,
	.vectors_open = model_access_vectors_open,
	.vector_fd = model_access_vector_fd,
	.vector_enable = model_access_vector_enable,
};

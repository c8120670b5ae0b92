/* SPDX-License-Identifier: BSD-3-Clause */
/* The PCIe transport of the NVMe host (NVMe over PCIe Transport Specification 1.0c): the controller. Control thread.
 *
 * The registers are memory of the device, mapped: reads and writes take effect at once, so each ends within its call.
 * The device reads and writes the host's memory by itself. So after a failure no memory is freed or reused before the
 * controller has been quiesced: it is disabled, or else its bus mastering is. */
#include "nvme/pcie/pcie.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/log.h"

#define QUIESCE_LOOK_US  1000
#define DISABLE_DELAY_US UINT64_C(2300000)
#define ADMIN_SIZE_MAX   4096
#define OACS_DBBUF       (1 << 8)
#define ALL_ONES         UINT32_MAX /* reads of a device that is gone return this */

static const struct nvme_pcie_access *device_access = &nvme_pcie_dpdk_access;

void nvme_pcie_set_access(const struct nvme_pcie_access *access)
{
	device_access = access != NULL ? access : &nvme_pcie_dpdk_access;
}

/* Registers. */

static uint64_t nvme_pcie_reg_read8(const struct nvme_pcie_ctrlr *c, uint32_t offset)
{
	uint64_t low = nvme_pcie_reg_read4(c, offset);

	return low | (uint64_t)nvme_pcie_reg_read4(c, offset + 4) << 32;
}

static void nvme_pcie_reg_write8(const struct nvme_pcie_ctrlr *c, uint32_t offset, uint64_t value)
{
	nvme_pcie_reg_write4(c, offset, (uint32_t)value);
	nvme_pcie_reg_write4(c, offset + 4, (uint32_t)(value >> 32));
}

static void nvme_pcie_reg_read(struct nvme_ctrlr *ctrlr, uint32_t offset, unsigned size, nvme_reg_fn fn)
{
	struct nvme_pcie_ctrlr *c = nvme_pcie_ctrlr_of(ctrlr);

	fn(ctrlr, 0, size == 8 ? nvme_pcie_reg_read8(c, offset) : nvme_pcie_reg_read4(c, offset));
}

static void delayed_write_ended(void *arg)
{
	struct nvme_pcie_ctrlr *c = arg;

	c->write_fn(&c->base, 0, 0);
}

static void nvme_pcie_reg_write(struct nvme_ctrlr *ctrlr, uint32_t offset, unsigned size, uint64_t value,
				nvme_reg_fn fn)
{
	struct nvme_pcie_ctrlr *c = nvme_pcie_ctrlr_of(ctrlr);

	if (size == 8) {
		nvme_pcie_reg_write8(c, offset, value);
	} else {
		nvme_pcie_reg_write4(c, offset, (uint32_t)value);
	}
	if (offset == NVME_REG_CC && !NVME_CC_EN(value) && (c->quirks & NVME_PCIE_QUIRK_DISABLE_DELAY)) {
		c->write_fn = fn;
		thread_timer_start(&c->write_timer, DISABLE_DELAY_US);
		return;
	}
	fn(ctrlr, 0, 0);
}

/* Opening: the device is opened with its controller, and stays open through all resets. */

static void quiesce_look(void *arg);

static struct nvme_ctrlr *nvme_pcie_ctrlr_alloc(const struct nvme_trid *trid, char error[NVME_ERROR_MAX])
{
	struct nvme_pcie_ctrlr *c = calloc(1, sizeof(*c));

	if (c == NULL) {
		snprintf(error, NVME_ERROR_MAX, "out of memory");
		return NULL;
	}
	c->dev.access = device_access;
	c->dev.request_fd = -1;
	int rc = device_access->open(trid->traddr, &c->dev, error);
	if (rc != 0) {
		free(c);
		errno = -rc;
		return NULL;
	}
	if (c->dev.regs_len < NVME_PCIE_DOORBELLS + 8) {
		snprintf(error, NVME_ERROR_MAX, "%s: BAR 0 has %zu bytes, too few for an NVMe controller's registers",
			 c->dev.bdf, c->dev.regs_len);
		device_access->close(&c->dev);
		free(c);
		errno = ENODEV;
		return NULL;
	}
	c->quirks = nvme_pcie_quirks(c->dev.vendor, c->dev.device);
	c->quiet = true;
	c->quiesce_timer.fn = quiesce_look;
	c->quiesce_timer.arg = c;
	c->write_timer.fn = delayed_write_ended;
	c->write_timer.arg = c;
	TAILQ_INIT(&c->limbo);
	nvme_pcie_hotplug_add(c);
	return &c->base;
}

static void nvme_pcie_ctrlr_free(struct nvme_ctrlr *ctrlr)
{
	struct nvme_pcie_ctrlr *c = nvme_pcie_ctrlr_of(ctrlr);

	nvme_pcie_hotplug_remove(c);
	thread_timer_stop(&c->quiesce_timer);
	thread_timer_stop(&c->write_timer);
	nvme_pcie_limbo_free(c);
	c->dev.access->close(&c->dev);
	env_dma_free(c->shadow);
	free(c);
}

static void nvme_pcie_connect(struct nvme_ctrlr *ctrlr)
{
	struct nvme_pcie_ctrlr *c = nvme_pcie_ctrlr_of(ctrlr);
	uint16_t entries = ctrlr->opts.admin_queue_entries;

	if (nvme_pcie_reg_read4(c, NVME_REG_CSTS) == ALL_ONES) {
		nvme_ctrlr_removed(ctrlr);
		return;
	}
	if (c->vectors == 0) {
		c->vectors = c->dev.access->vectors_open(&c->dev, 1u + ctrlr->opts.io_queues);
	}
	c->doorbell_stride = UINT32_C(4) << NVME_CAP_DSTRD(nvme_pcie_reg_read8(c, NVME_REG_CAP));
	c->shadow_on = false;
	ctrlr->admin = nvme_pcie_qpair_alloc(ctrlr, 0, entries < ADMIN_SIZE_MAX ? entries : ADMIN_SIZE_MAX - 1, NULL);
	if (ctrlr->admin == NULL) {
		nvme_ctrlr_connected(ctrlr, -ENOMEM, "no memory for the admin queue");
		return;
	}
	nvme_ctrlr_connected(ctrlr, 0, "");
}

/* The controller is disabled, so it can be given its queues' addresses and bus mastering. */
static int nvme_pcie_before_enable(struct nvme_ctrlr *ctrlr)
{
	struct nvme_pcie_ctrlr *c = nvme_pcie_ctrlr_of(ctrlr);
	const struct nvme_pcie_qpair *q = nvme_pcie_qpair_of(ctrlr->admin);
	int rc = c->dev.access->set_bus_master(&c->dev, true);

	if (rc != 0) {
		return rc;
	}
	c->quiet = false;
	nvme_pcie_reg_write4(c, NVME_REG_AQA, (q->sq_size - 1u) | (q->cq_size - 1u) << 16);
	nvme_pcie_reg_write8(c, NVME_REG_ASQ, q->sq_iova);
	nvme_pcie_reg_write8(c, NVME_REG_ACQ, q->cq_iova);
	return 0;
}

/* After Identify: the stripe size of drives that have one, and shadow doorbells of drives that have them (virtual
 * ones). */

static void shadow_doorbells_set(void *arg, const struct nvme_cqe *cqe)
{
	struct nvme_pcie_ctrlr *c = arg;

	c->shadow_on = nvme_cqe_status(cqe) == 0; /* the controller works without them, too */
	nvme_ctrlr_configured(&c->base, 0);
}

static bool shadow_doorbells_start(struct nvme_pcie_ctrlr *c)
{
	struct nvme_sqe cmd = {.opcode = nvme_admin_dbbuf};

	/* one buffer of two pages: PRP1 and PRP2 */
	if (c->shadow == NULL) {
		c->shadow = env_dma_zmalloc(2 * NVME_PCIE_PAGE, 2 * NVME_PCIE_PAGE, c->dev.numa_node);
	}
	if (c->shadow == NULL) {
		return false;
	}
	c->event_idx = c->shadow + NVME_PCIE_PAGE / sizeof(*c->shadow);
	memset(c->shadow, 0, 2 * NVME_PCIE_PAGE);
	return nvme_ctrlr_admin(&c->base, &cmd, c->shadow, 2 * NVME_PCIE_PAGE, true, shadow_doorbells_set, c) == 0;
}

static void nvme_pcie_identified(struct nvme_ctrlr *ctrlr)
{
	struct nvme_pcie_ctrlr *c = nvme_pcie_ctrlr_of(ctrlr);

	ctrlr->stripe_bytes = 0;
	if ((c->quirks & NVME_PCIE_QUIRK_STRIPE) && ctrlr->id.vs[3] != 0 && ctrlr->id.vs[3] < 16) {
		ctrlr->stripe_bytes = UINT32_C(4096) << ctrlr->id.vs[3];
	}
	if ((le16toh(ctrlr->id.oacs) & OACS_DBBUF) == 0 || !shadow_doorbells_start(c)) {
		nvme_ctrlr_configured(ctrlr, 0);
	}
}

/* Quiescing: the end of all access of the device to memory, whatever the device does. */

static void quiesce_ended(struct nvme_pcie_ctrlr *c)
{
	c->quiet = true;
	c->shadow_on = false;
	nvme_pcie_qpairs_stopped(c);
	nvme_ctrlr_quiesced(&c->base);
}

static void quiesce_look(void *arg)
{
	struct nvme_pcie_ctrlr *c = arg;
	uint32_t csts = nvme_pcie_reg_read4(c, NVME_REG_CSTS);

	if (csts == ALL_ONES || !NVME_CSTS_RDY(csts)) {
		quiesce_ended(c);
	} else if (env_ticks() < c->quiesce_deadline) {
		thread_timer_start(&c->quiesce_timer, QUIESCE_LOOK_US);
	} else {
		log_error("%s does not become disabled: it is cut off from memory and reset", c->dev.bdf);
		c->dev.access->set_bus_master(&c->dev, false);
		c->dev.access->reset(&c->dev); /* if it has a function level reset; without bus mastering it does no
						  harm in any case */
		quiesce_ended(c);
	}
}

static void nvme_pcie_quiesce(struct nvme_ctrlr *ctrlr)
{
	struct nvme_pcie_ctrlr *c = nvme_pcie_ctrlr_of(ctrlr);
	uint32_t cc = nvme_pcie_reg_read4(c, NVME_REG_CC);
	uint64_t ms = (NVME_CAP_TO(ctrlr->cap) + 1) * UINT64_C(500); /* Base 3.1.3.1 */

	thread_timer_stop(&c->write_timer);
	if (c->quiet) { /* it has not been told of any memory */
		quiesce_ended(c);
		return;
	}
	if (cc != ALL_ONES && NVME_CC_EN(cc)) {
		nvme_pcie_reg_write4(c, NVME_REG_CC, cc & ~UINT32_C(1));
	}
	c->quiesce_deadline =
		env_ticks() +
		env_us_to_ticks(ms * 1000 + DISABLE_DELAY_US * !!(c->quirks & NVME_PCIE_QUIRK_DISABLE_DELAY));
	thread_timer_start(&c->quiesce_timer, (c->quirks & NVME_PCIE_QUIRK_DISABLE_DELAY) ? DISABLE_DELAY_US : 0);
}

static void nvme_pcie_disconnect(struct nvme_ctrlr *ctrlr)
{
	if (ctrlr->admin != NULL) {
		nvme_pcie_qpair_free(ctrlr->admin);
	}
	nvme_pcie_limbo_free(nvme_pcie_ctrlr_of(ctrlr));
}

static void nvme_pcie_check(struct nvme_ctrlr *ctrlr)
{
	uint32_t csts = nvme_pcie_reg_read4(nvme_pcie_ctrlr_of(ctrlr), NVME_REG_CSTS);

	if (csts == ALL_ONES) {
		nvme_ctrlr_removed(ctrlr);
	} else if (NVME_CSTS_CFS(csts)) {
		nvme_ctrlr_lost(ctrlr, "the controller reports a fatal status (CSTS.CFS)");
	} else if (!NVME_CSTS_RDY(csts)) {
		nvme_ctrlr_lost(ctrlr, "the controller is not ready any more (CSTS.RDY)");
	} else {
		nvme_pcie_limbo_retry(nvme_pcie_ctrlr_of(ctrlr));
	}
}

static uint32_t nvme_pcie_max_transfer(struct nvme_ctrlr *ctrlr)
{
	return NVME_PCIE_MAX_TRANSFER;
}

/* SGLs describe any segments; PRPs describe one contiguous buffer in any case, and more only if these meet at page
 * boundaries. */
static uint16_t nvme_pcie_max_segments(const struct nvme_ctrlr *ctrlr)
{
	uint32_t list = nvme_ctrlr_max_transfer(ctrlr) / NVME_PCIE_PAGE * sizeof(uint64_t);

	if ((le32toh(ctrlr->id.sgls) & 3) == 0) {
		return 1;
	}
	return (uint16_t)((list > NVME_PCIE_LIST_MIN ? list : NVME_PCIE_LIST_MIN) / sizeof(union nvme_sgl_desc));
}

static const struct nvme_transport_ops nvme_pcie_ops = {
	.transport = {.trtype = NVME_TRTYPE_PCIE, .name = "PCIe"},
	.dma_until_stopped = true,
	.ctrlr_alloc = nvme_pcie_ctrlr_alloc,
	.ctrlr_free = nvme_pcie_ctrlr_free,
	.connect = nvme_pcie_connect,
	.quiesce = nvme_pcie_quiesce,
	.disconnect = nvme_pcie_disconnect,
	.before_enable = nvme_pcie_before_enable,
	.identified = nvme_pcie_identified,
	.check = nvme_pcie_check,
	.reg_read = nvme_pcie_reg_read,
	.reg_write = nvme_pcie_reg_write,
	.max_transfer = nvme_pcie_max_transfer,
	.max_segments = nvme_pcie_max_segments,
	.buf_align = 4,
	.qpair_alloc = nvme_pcie_qpair_alloc,
	.qpair_connect = nvme_pcie_qpair_connect,
	.qpair_stop = nvme_pcie_qpair_stop,
	.qpair_free = nvme_pcie_qpair_free,
	.submit = nvme_pcie_submit,
	.flush = nvme_pcie_flush,
	.poll = nvme_pcie_poll,
	.fd = nvme_pcie_fd,
	.arm = nvme_pcie_arm,
};

__attribute__((constructor)) static void nvme_pcie_register(void)
{
	nvme_transport_register(&nvme_pcie_ops);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of the PCIe transport and its tests.
 *
 * pcie.c: the controller: registers, admin queue, quiescing, and the transport's table. qpair.c: how queues are made
 * and deleted. io.c: commands and completions. data.c: PRPs and SGLs. access.c: access to a real device. quirks.c:
 * drives that need something beyond the specification. hotplug.c: drives that arrive and leave. */
#ifndef NVME_PCIE_H
#define NVME_PCIE_H

#include <sys/queue.h>

#include "env_dpdk/env.h"
#include "nvme/transport.h"

#define NVME_PCIE_PAGE         4096   /* CC.MPS is 0 */
#define NVME_PCIE_DOORBELLS    0x1000 /* PCIe Transport 3.1.2 */
#define NVME_PCIE_LIST_MIN     256    /* bytes for PRP entries or SGL descriptors, per command id */
#define NVME_PCIE_MAX_TRANSFER (UINT32_C(1) << 20)

/* The PCI access layer, between the driver and the hardware. The real one is nvme_pcie_dpdk_access (access.c). Tests
 * use a model of a controller instead, whose registers are plain memory; all other code of the driver is the same.
 * Control thread, unless it says otherwise. */
struct nvme_pcie_device;
struct nvme_pcie_access {
	/* Fills in *dev. 0, or a negative errno and error (NVME_ERROR_MAX bytes). */
	int (*open)(const char *traddr, struct nvme_pcie_device *dev, char *error);
	void (*close)(struct nvme_pcie_device *dev);
	int (*set_bus_master)(struct nvme_pcie_device *dev, bool on);
	int (*reset)(struct nvme_pcie_device *dev);
	/* Opens up to n interrupt vectors. Their number; 0: all queues are polled. */
	unsigned (*vectors_open)(struct nvme_pcie_device *dev, unsigned n);
	int (*vector_fd)(const struct nvme_pcie_device *dev, unsigned vector);
	int (*vector_enable)(struct nvme_pcie_device *dev, unsigned vector, bool on); /* any thread */
};

struct nvme_pcie_device {
	const struct nvme_pcie_access *access;
	void *handle; /* for `access` */
	char bdf[16];
	uint16_t vendor, device;
	int numa_node;
	volatile uint8_t *regs;
	size_t regs_len;
	/* As env_pci_translator(): the address of memory as the device sees it. Any thread. */
	uint64_t (*translate)(const void *buf, size_t *len);
	int request_fd; /* readable when the kernel wants the device back; -1: there is none */
};

extern const struct nvme_pcie_access nvme_pcie_dpdk_access;
/* For tests: the access layer of controllers that are created from now on. NULL: the real one. */
void nvme_pcie_set_access(const struct nvme_pcie_access *access);

/* Quirks. */
enum nvme_pcie_quirk {
	NVME_PCIE_QUIRK_STRIPE =
		1 << 0, /* I/O across a stripe is slow; Identify has the stripe's size, vendor specific */
	NVME_PCIE_QUIRK_DISABLE_DELAY = 1 << 1, /* CSTS must not be read for a while after CC.EN was cleared */
};
/* The quirks of a drive: a set of enum nvme_pcie_quirk. Pure. */
uint32_t nvme_pcie_quirks(uint16_t vendor, uint16_t device);

struct nvme_pcie_qpair;
TAILQ_HEAD(nvme_pcie_qpair_list, nvme_pcie_qpair);

struct nvme_pcie_ctrlr {
	struct nvme_ctrlr base;
	struct nvme_pcie_device dev;
	uint32_t quirks;
	uint32_t doorbell_stride; /* bytes */
	unsigned vectors;
	bool quiet; /* disabled, without bus mastering, or gone: it accesses no memory of the host */
	struct thread_timer quiesce_timer;
	uint64_t quiesce_deadline;
	struct thread_timer write_timer; /* delays the end of a register write (NVME_PCIE_QUIRK_DISABLE_DELAY) */
	nvme_reg_fn write_fn;
	struct fd_source *request_source;
	/* Shadow doorbells (Base 5.8), two pages; used for I/O queues once `shadow_on`. */
	uint32_t *shadow, *event_idx;
	bool shadow_on;
	/* queue pairs that their users have freed while the device may still know them; until it has deleted their
	 * queues or is quiet */
	struct nvme_pcie_qpair_list limbo;
	TAILQ_ENTRY(nvme_pcie_ctrlr) link; /* of all */
};

struct nvme_pcie_qpair {
	struct nvme_qpair base;
	/* used per command; one thread */
	struct nvme_sqe *sq;
	struct nvme_cqe *cq;
	volatile uint32_t *sq_doorbell, *cq_doorbell;
	volatile uint32_t *sq_shadow, *sq_event, *cq_shadow, *cq_event; /* NULL: no shadow doorbells */
	uint64_t (*translate)(const void *buf, size_t *len);
	uint8_t *lists; /* of each command id, list_bytes: PRP entries or SGL descriptors */
	uint64_t lists_iova;
	uint32_t list_bytes;
	uint16_t sq_size, cq_size;
	uint16_t sq_tail, sq_rung; /* the tail, and the value of it that the device has been told */
	uint16_t cq_head, cq_unrung;
	uint16_t cq_slack; /* the completion queue has so many entries more than commands can be outstanding: the
			      doorbell need not be written before that many completions */
	uint16_t owner;    /* in the trace */
	bool phase;
	uint8_t sgl;        /* enum nvme_pcie_sgl */
	bool interrupting;  /* the vector is enabled */
	bool stopped;       /* atomic: no doorbell is rung any more */
	uint32_t polled;    /* completions since the vector was enabled */
	uint64_t doorbells; /* MMIO writes, for statistics */
	int vector;         /* -1: none */
	int fd;
	/* control thread */
	uint64_t sq_iova, cq_iova;
	bool has_cq, has_sq; /* the device knows, or may know, the queue */
	bool dead;           /* in limbo */
	bool awaited;        /* ... and counted in qids_awaited */
	bool unsent;         /* ... and its Delete command could not be sent: it is tried again */
	uint8_t commands;    /* Create or Delete commands outstanding: their callbacks use this structure */
	void (*stop_done)(void *arg);
	void *stop_arg;
	TAILQ_ENTRY(nvme_pcie_qpair) limbo_link;
};

static inline struct nvme_pcie_ctrlr *nvme_pcie_ctrlr_of(const struct nvme_ctrlr *ctrlr)
{
	return container_of(ctrlr, struct nvme_pcie_ctrlr, base);
}

static inline struct nvme_pcie_qpair *nvme_pcie_qpair_of(const struct nvme_qpair *qpair)
{
	return container_of(qpair, struct nvme_pcie_qpair, base);
}

static inline uint32_t nvme_pcie_reg_read4(const struct nvme_pcie_ctrlr *c, uint32_t offset)
{
	return le32toh(*(volatile uint32_t *)(c->dev.regs + offset));
}

static inline void nvme_pcie_reg_write4(const struct nvme_pcie_ctrlr *c, uint32_t offset, uint32_t value)
{
	*(volatile uint32_t *)(c->dev.regs + offset) = htole32(value);
}

/* data.c: which SGLs a drive accepts (Identify Controller, SGLS bits 1:0): none, any, or those of dwords. */
enum nvme_pcie_sgl { NVME_PCIE_SGL_NONE = 0, NVME_PCIE_SGL_BYTES = 1, NVME_PCIE_SGL_DWORDS = 2 };

struct nvme_pcie_data {
	uint64_t (*translate)(const void *buf, size_t *len);
	void *list; /* list_bytes of memory, at list_iova for the device */
	uint64_t list_iova;
	uint32_t list_bytes;
	enum nvme_pcie_sgl sgl;
};
/* Fills in the data pointer and PSDT of cmd for the iovs (len bytes together). 0; -EFAULT: the device cannot reach the
 * memory; -E2BIG: too many segments; -EINVAL: neither PRPs nor this drive's SGLs can describe the data (segments that
 * end or begin within a page). The using thread. */
int nvme_pcie_data_pointer(const struct nvme_pcie_data *d, const struct iovec *iovs, unsigned iovcnt, uint32_t len,
			   struct nvme_sqe *cmd);

/* io.c: the operations of struct nvme_transport_ops of these names (nvme/transport.h). The using thread. */
int nvme_pcie_submit(struct nvme_qpair *qpair, struct nvme_request *req);
/* See there. */
void nvme_pcie_flush(struct nvme_qpair *qpair);
/* See there. */
int nvme_pcie_poll(struct nvme_qpair *qpair, uint32_t max);
/* See there. */
int nvme_pcie_fd(const struct nvme_qpair *qpair);
/* See there. */
bool nvme_pcie_arm(struct nvme_qpair *qpair);

/* qpair.c: the operations of these names. Control thread. */
struct nvme_qpair *nvme_pcie_qpair_alloc(struct nvme_ctrlr *ctrlr, uint16_t id, uint16_t entries,
					 const struct nvme_qpair_opts *opts);
/* See there. */
void nvme_pcie_qpair_connect(struct nvme_qpair *qpair);
/* See there. */
void nvme_pcie_qpair_stop(struct nvme_qpair *qpair, void (*done)(void *arg), void *arg);
/* See there; a queue that the device may still know goes into limbo. */
void nvme_pcie_qpair_free(struct nvme_qpair *qpair);
/* The controller is quiet: ends the stops of queue pairs that wait for that. Control thread. */
void nvme_pcie_qpairs_stopped(struct nvme_pcie_ctrlr *c);
/* Sends the Delete commands of queues in limbo for which there was no room, or no memory. Control thread. */
void nvme_pcie_limbo_retry(struct nvme_pcie_ctrlr *c);
/* The controller is quiet, and no admin command is outstanding: frees the queues in limbo. Control thread. */
void nvme_pcie_limbo_free(struct nvme_pcie_ctrlr *c);

/* hotplug.c: the controller's removal is noticed from now on. Control thread. */
void nvme_pcie_hotplug_add(struct nvme_pcie_ctrlr *c);
/* Undoes that. Control thread. */
void nvme_pcie_hotplug_remove(struct nvme_pcie_ctrlr *c);
/* The device at bdf has been bound to a driver for user space. Control thread. */
void nvme_pcie_hotplug_arrived(const char *bdf);
/* Some uevents were lost: looks for drives that may have arrived. That a drive has left shows in its registers, too.
 * Control thread. */
void nvme_pcie_hotplug_lost(void);

#endif

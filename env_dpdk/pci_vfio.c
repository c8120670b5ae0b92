/* SPDX-License-Identifier: BSD-3-Clause */
/* VFIO. The EAL's public calls keep the container, add the device to it, and map the EAL's memory for devices as it
 * grows and shrinks. Our own regions, which the EAL does not know, are mapped here by a listener. The device itself is
 * driven through the kernel's interface, <linux/vfio.h>; no structure of DPDK is used for that (see
 * doc/architecture.md). */
#include "env_dpdk/env_internal.h"
#include "env_dpdk/pci_internal.h"

#include "util/log.h"
#include <errno.h>
#include <linux/vfio.h>
#include <rte_errno.h>
#include <rte_memory.h>
#include <rte_vfio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

static bool vfio_is_mapped_by_eal(const void *addr)
{
	const struct rte_memseg_list *msl = rte_mem_virt2memseg_list(addr);

	return msl != NULL && !msl->external;
}

static void vfio_region_added(void *ctx, void *addr, size_t len)
{
	uint64_t va = (uintptr_t)addr;
	bool mapped = vfio_is_mapped_by_eal(addr) ||
		      rte_vfio_container_dma_map(RTE_VFIO_DEFAULT_CONTAINER_FD, va, va, len) == 0;

	env_region_set_unreachable(addr, !mapped);
	if (!mapped) {
		log_error("VFIO does not map %zu bytes of memory at %p for devices: %s (ulimit -l? more than "
			  "the IOMMU's address width?)",
			  len, addr, rte_strerror(rte_errno));
	}
}

static void vfio_region_removed(void *ctx, void *addr, size_t len)
{
	uint64_t va = (uintptr_t)addr;

	if (!vfio_is_mapped_by_eal(addr)) {
		rte_vfio_container_dma_unmap(RTE_VFIO_DEFAULT_CONTAINER_FD, va, va, len);
	}
}

static const struct env_mem_listener listener = {.add = vfio_region_added, .remove = vfio_region_removed};
static unsigned open_devices; /* behind an IOMMU */

static int vfio_map_registers(struct env_pci *dev, char *error)
{
	struct vfio_region_info region = {.argsz = sizeof(region), .index = VFIO_PCI_BAR0_REGION_INDEX};

	if (ioctl(dev->fd, VFIO_DEVICE_GET_REGION_INFO, &region) != 0 ||
	    (region.flags & VFIO_REGION_INFO_FLAG_MMAP) == 0 || region.size == 0) {
		snprintf(error, ENV_PCI_ERROR_MAX, "%s: BAR 0 cannot be mapped", dev->info.bdf);
		return -ENODEV;
	}
	/* also when MSI-X tables lie in it: the kernel says by flags whether the whole may be mapped, and refuses
	 * otherwise */
	void *p = mmap(NULL, region.size, PROT_READ | PROT_WRITE, MAP_SHARED, dev->fd, (off_t)region.offset);
	if (p == MAP_FAILED) {
		snprintf(error, ENV_PCI_ERROR_MAX, "%s: BAR 0 cannot be mapped: %s", dev->info.bdf, strerror(errno));
		return -errno;
	}
	int rc = env_pci_window_add(p, region.size);
	if (rc != 0) {
		munmap(p, region.size);
		snprintf(error, ENV_PCI_ERROR_MAX, "%s: no protection against its removal: %s", dev->info.bdf,
			 strerror(-rc));
		return rc;
	}
	dev->registers = p;
	dev->registers_len = region.size;
	return 0;
}

static int vfio_set_irqs(struct env_pci *dev, unsigned index, unsigned first, unsigned n, const int *fds)
{
	/* enabling one vector happens whenever a reactor falls asleep or wakes, and must not allocate */
	uint64_t small[(sizeof(struct vfio_irq_set) + sizeof(int)) / sizeof(uint64_t) + 1] = {0};
	struct vfio_irq_set *set = n <= 1 ? (struct vfio_irq_set *)small : calloc(1, sizeof(*set) + n * sizeof(int));

	if (set == NULL) {
		return -ENOMEM;
	}
	set->argsz = (uint32_t)(sizeof(*set) + n * sizeof(int));
	set->flags = (n != 0 ? VFIO_IRQ_SET_DATA_EVENTFD : VFIO_IRQ_SET_DATA_NONE) | VFIO_IRQ_SET_ACTION_TRIGGER;
	set->index = index;
	set->start = first;
	set->count = n;
	if (n != 0) {
		memcpy(set->data, fds, n * sizeof(int));
	}
	int rc = ioctl(dev->fd, VFIO_DEVICE_SET_IRQS, set) == 0 ? 0 : -errno;
	if (n > 1) {
		free(set);
	}
	return rc;
}

/* The kernel has no mask for a vector, but one without an eventfd is masked in the device's table. */
static int vfio_vectors_set(struct env_pci *dev, unsigned first, unsigned n, const int *fds)
{
	return vfio_set_irqs(dev, VFIO_PCI_MSIX_IRQ_INDEX, first, n, fds);
}

static unsigned vfio_count_irqs(struct env_pci *dev, unsigned index)
{
	struct vfio_irq_info info = {.argsz = sizeof(info), .index = index};

	if (ioctl(dev->fd, VFIO_DEVICE_GET_IRQ_INFO, &info) != 0 || (info.flags & VFIO_IRQ_INFO_EVENTFD) == 0) {
		return 0;
	}
	return info.count < ENV_PCI_VECTORS_MAX ? info.count : ENV_PCI_VECTORS_MAX;
}

static void vfio_watch_requests(struct env_pci *dev)
{
	if (vfio_count_irqs(dev, VFIO_PCI_REQ_IRQ_INDEX) == 0) {
		return;
	}
	dev->request_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (dev->request_fd >= 0 && vfio_set_irqs(dev, VFIO_PCI_REQ_IRQ_INDEX, 0, 1, &dev->request_fd) != 0) {
		close(dev->request_fd);
		dev->request_fd = -1;
	}
}

static int vfio_setup_device(struct env_pci *dev, char *error)
{
	struct vfio_device_info info = {.argsz = sizeof(info)};

	/* the modules may have been loaded after the EAL's start */
	if (!rte_vfio_is_enabled("vfio") && rte_vfio_enable("vfio") != 0) {
		snprintf(error, ENV_PCI_ERROR_MAX, "%s: VFIO cannot be used (is /dev/vfio/vfio there, and accessible?)",
			 dev->info.bdf);
		return -ENODEV;
	}
	int rc = rte_vfio_setup_device(env_pci_folder(), dev->info.bdf, &dev->fd, &info);
	if (rc != 0) {
		dev->fd = -1;
		snprintf(error, ENV_PCI_ERROR_MAX,
			 "%s: VFIO does not give it to us: other devices of IOMMU group %d with a driver of "
			 "the kernel's, no right to "
			 "/dev/vfio/%d, or too little lockable memory (ulimit -l); the log says which",
			 dev->info.bdf, dev->info.iommu_group, dev->info.iommu_group);
		return -EACCES;
	}
	return 0;
}

static void vfio_close(struct env_pci *dev)
{
	if (dev->fd < 0) {
		return;
	}
	if (dev->request_fd >= 0) {
		vfio_set_irqs(dev, VFIO_PCI_REQ_IRQ_INDEX, 0, 1, &(int){-1});
		close(dev->request_fd);
	}
	if (dev->kind == &env_pci_vfio && --open_devices == 0) {
		env_mem_unlisten(&listener);
	}
	rte_vfio_release_device(env_pci_folder(), dev->info.bdf, dev->fd);
}

static int vfio_open(struct env_pci *dev, char *error)
{
	struct vfio_region_info config = {.argsz = sizeof(config), .index = VFIO_PCI_CONFIG_REGION_INDEX};
	int rc = vfio_setup_device(dev, error);

	if (rc != 0) {
		return rc;
	}
	if (dev->kind == &env_pci_vfio && open_devices++ == 0 && (rc = env_mem_listen(&listener)) != 0) {
		snprintf(error, ENV_PCI_ERROR_MAX,
			 "%s: memory cannot be mapped for it: too many devices want to know of all memory",
			 dev->info.bdf);
		return rc;
	}
	if (ioctl(dev->fd, VFIO_DEVICE_GET_REGION_INFO, &config) != 0) {
		snprintf(error, ENV_PCI_ERROR_MAX, "%s: no configuration space: %s", dev->info.bdf, strerror(errno));
		return -EIO;
	}
	dev->config_base = config.offset;
	dev->vectors_max = vfio_count_irqs(dev, VFIO_PCI_MSIX_IRQ_INDEX);
	vfio_watch_requests(dev);
	return vfio_map_registers(dev, error);
}

static int vfio_config(struct env_pci *dev, bool write, unsigned offset, void *data, unsigned size)
{
	off_t at = (off_t)(dev->config_base + offset);
	ssize_t n = write ? pwrite(dev->fd, data, size, at) : pread(dev->fd, data, size, at);

	return n == (ssize_t)size ? 0 : -EIO;
}

static int vfio_reset(struct env_pci *dev)
{
	return ioctl(dev->fd, VFIO_DEVICE_RESET) == 0 ? 0 : -errno;
}

static int noiommu_open(struct env_pci *dev, char *error)
{
	int rc = env_phys_start();

	if (rc != 0) {
		snprintf(error, ENV_PCI_ERROR_MAX, "%s: without an IOMMU, physical addresses are needed: %s",
			 dev->info.bdf, rc == -ENOTSUP ? "run with hugepages" : "run as root");
		return rc;
	}
	return vfio_open(dev, error);
}

const struct env_pci_kind env_pci_vfio = {
	.name = "vfio",
	.translate = env_iova_iommu,
	.open = vfio_open,
	.close = vfio_close,
	.config = vfio_config,
	.reset = vfio_reset,
	.vectors_set = vfio_vectors_set,
};

const struct env_pci_kind env_pci_vfio_noiommu = {
	.name = "vfio (no IOMMU)",
	.translate = env_phys,
	.open = noiommu_open,
	.close = vfio_close,
	.config = vfio_config,
	.reset = vfio_reset,
	.vectors_set = vfio_vectors_set,
};

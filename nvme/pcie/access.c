/* SPDX-License-Identifier: BSD-3-Clause */
/* The real device: env_dpdk's. */
#include "nvme/pcie/pcie.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "env_dpdk/pci_device.h"
#include "util/log.h"

static int access_open(const char *traddr, struct nvme_pcie_device *dev, char *error)
{
	struct env_pci *pci;
	int rc = env_pci_open(traddr, &pci, error);

	_Static_assert(NVME_ERROR_MAX >= ENV_PCI_ERROR_MAX, "one error text is handed on as the other");
	if (rc != 0) {
		return rc;
	}
	const struct env_pci_device *info = env_pci_info(pci);
	if (info->class_code != ENV_PCI_CLASS_NVME) {
		snprintf(error, NVME_ERROR_MAX, "%s is no NVMe controller: its class is 0x%06x, not 0x%06x", info->bdf,
			 info->class_code, ENV_PCI_CLASS_NVME);
		env_pci_close(pci);
		return -ENODEV;
	}
	memcpy(dev->bdf, info->bdf, sizeof(dev->bdf));
	dev->handle = pci;
	dev->vendor = info->vendor;
	dev->device = info->device;
	dev->numa_node = info->numa_node;
	dev->regs = env_pci_registers(pci, &dev->regs_len);
	dev->translate = env_pci_translator(pci);
	dev->request_fd = env_pci_request_fd(pci);
	log_notice("NVMe controller %s: %04x:%04x by %s, %u interrupt vectors", info->bdf, info->vendor, info->device,
		   env_pci_access(pci), env_pci_num_vectors(pci));
	return 0;
}

static void access_close(struct nvme_pcie_device *dev)
{
	env_pci_close(dev->handle);
}

static int access_set_bus_master(struct nvme_pcie_device *dev, bool on)
{
	return env_pci_set_bus_master(dev->handle, on);
}

static int access_reset(struct nvme_pcie_device *dev)
{
	return env_pci_reset(dev->handle);
}

static unsigned access_vectors_open(struct nvme_pcie_device *dev, unsigned n)
{
	unsigned there = env_pci_num_vectors(dev->handle);

	n = n < there ? n : there;
	if (n == 0) {
		return 0;
	}
	int rc = env_pci_vectors_open(dev->handle, n);
	if (rc != 0) {
		log_warning("%s: no interrupts: %s; its queues are polled", dev->bdf, strerror(-rc));
		return 0;
	}
	return n;
}

static int access_vector_fd(const struct nvme_pcie_device *dev, unsigned vector)
{
	return env_pci_vector_fd(dev->handle, vector);
}

static int access_vector_enable(struct nvme_pcie_device *dev, unsigned vector, bool on)
{
	return env_pci_vector_enable(dev->handle, vector, on);
}

const struct nvme_pcie_access nvme_pcie_dpdk_access = {
	.open = access_open,
	.close = access_close,
	.set_bus_master = access_set_bus_master,
	.reset = access_reset,
	.vectors_open = access_vectors_open,
	.vector_fd = access_vector_fd,
	.vector_enable = access_vector_enable,
};

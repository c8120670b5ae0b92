/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ENV_DPDK_PCI_INTERNAL_H
#define ENV_DPDK_PCI_INTERNAL_H

#include "env_dpdk/pci_device.h"

/* Tests: another folder than /sys/bus/pci/devices. */
void env_pci_set_folder(const char *folder);
const char *env_pci_folder(void);
/* Reads what sysfs says of a device. 0 or -ENODEV. */
int env_pci_get(const char *bdf, struct env_pci_device *d);

#define ENV_PCI_VECTORS_MAX 2048 /* PCI Base 7.7.2: entries of an MSI-X table */

/* The operations in which VFIO and UIO differ. */
struct env_pci_kind {
	const char *name;
	env_pci_translate_fn translate;
	int (*open)(struct env_pci *dev, char *error); /* maps the registers too */
	void (*close)(struct env_pci *dev);
	int (*config)(struct env_pci *dev, bool write, unsigned offset, void *data, unsigned size);
	int (*reset)(struct env_pci *dev); /* NULL: cannot */
	/* Connects n vectors from `first` on to descriptors (-1: none). The first call is for all vectors that will be
	 * used; n 0: ends all interrupts. NULL: the kind has no interrupts. */
	int (*vectors_set)(struct env_pci *dev, unsigned first, unsigned n, const int *fds);
};
extern const struct env_pci_kind env_pci_vfio, env_pci_vfio_noiommu, env_pci_uio;

struct env_pci {
	struct env_pci_device info;
	const struct env_pci_kind *kind;
	int claim;
	int fd;               /* VFIO: the device's; UIO: /dev/uioN */
	int config_fd;        /* UIO */
	uint64_t config_base; /* VFIO: where the configuration space begins in fd */
	int request_fd;
	void *registers;
	size_t registers_len;
	unsigned vectors_max, num_vectors;
	int *vector_fds;
};

/* Windows onto registers: a SIGBUS from inside one puts a page of ones there. */
int env_pci_window_add(void *start, size_t len);
void env_pci_window_remove(void *start);

#endif

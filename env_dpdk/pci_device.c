/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices that this process drives: the part that VFIO and UIO have in common. */
#include "env_dpdk/pci_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define PCI_COMMAND         0x04 /* PCI Base 7.5.1.1.3 */
#define PCI_COMMAND_MEMORY  0x0002
#define PCI_COMMAND_MASTER  0x0004
#define PCI_COMMAND_NO_INTX 0x0400

static int pci_refuse_driver(const struct env_pci_device *d, char *error)
{
	if (d->driver[0] == '\0') {
		snprintf(error, ENV_PCI_ERROR_MAX, "%s has no driver: bind it to vfio-pci: scripts/setup.sh bind %s",
			 d->bdf, d->bdf);
	} else {
		snprintf(error, ENV_PCI_ERROR_MAX,
			 "%s belongs to the kernel's driver '%s' and is left alone: scripts/setup.sh bind %s "
			 "hands it over (it refuses "
			 "a disk in use)",
			 d->bdf, d->driver, d->bdf);
	}
	return -EBUSY;
}

static const struct env_pci_kind *pci_kind_find(const struct env_pci_device *d)
{
	char path[64];

	if (strcmp(d->driver, "uio_pci_generic") == 0) {
		return &env_pci_uio;
	}
	if (strcmp(d->driver, "vfio-pci") != 0) {
		return NULL;
	}
	snprintf(path, sizeof(path), "/dev/vfio/noiommu-%d", d->iommu_group);
	return access(path, F_OK) == 0 ? &env_pci_vfio_noiommu : &env_pci_vfio;
}

static int pci_claim(struct env_pci *dev, char *error)
{
	int holder;

	dev->claim = env_pci_claim(dev->info.bdf, &holder);
	if (dev->claim >= 0) {
		return 0;
	}
	if (dev->claim == -EBUSY) {
		snprintf(error, ENV_PCI_ERROR_MAX, "%s is in use by process %d", dev->info.bdf, holder);
	} else if (dev->claim == -EPERM) {
		snprintf(error, ENV_PCI_ERROR_MAX, "%s is left out by this program's options for PCI devices",
			 dev->info.bdf);
	} else {
		snprintf(error, ENV_PCI_ERROR_MAX, "%s cannot be claimed: %s", dev->info.bdf, strerror(-dev->claim));
	}
	return dev->claim;
}

static int pci_command_change(struct env_pci *dev, uint16_t set, uint16_t clear)
{
	uint16_t command;
	int rc = dev->kind->config(dev, false, PCI_COMMAND, &command, sizeof(command));

	if (rc != 0) {
		return rc;
	}
	command = (uint16_t)((command | set) & ~clear);
	return dev->kind->config(dev, true, PCI_COMMAND, &command, sizeof(command));
}

int env_pci_open(const char *bdf, struct env_pci **out, char *error)
{
	struct env_pci *dev = calloc(1, sizeof(*dev));
	int rc;

	*out = NULL;
	if (dev == NULL) {
		snprintf(error, ENV_PCI_ERROR_MAX, "out of memory");
		return -ENOMEM;
	}
	dev->fd = dev->config_fd = dev->request_fd = dev->claim = -1;
	rc = env_pci_get(bdf, &dev->info);
	if (rc != 0) {
		snprintf(error, ENV_PCI_ERROR_MAX, "there is no PCI device '%.32s' (an address is like 0000:5e:00.0)",
			 bdf);
		goto fail;
	}
	dev->kind = pci_kind_find(&dev->info);
	if (dev->kind == NULL) {
		rc = pci_refuse_driver(&dev->info, error);
		goto fail;
	}
	rc = pci_claim(dev, error);
	if (rc != 0) {
		goto fail;
	}
	rc = dev->kind->open(dev, error);
	if (rc != 0) {
		goto fail;
	}
	rc = pci_command_change(dev, PCI_COMMAND_MEMORY | PCI_COMMAND_NO_INTX, PCI_COMMAND_MASTER);
	if (rc != 0) {
		snprintf(error, ENV_PCI_ERROR_MAX, "%s: its configuration space cannot be written: %s", dev->info.bdf,
			 strerror(-rc));
		goto fail;
	}
	*out = dev;
	return 0;
fail:
	env_pci_close(dev);
	return rc;
}

void env_pci_close(struct env_pci *dev)
{
	if (dev->registers != NULL) {
		pci_command_change(dev, 0,
				   PCI_COMMAND_MASTER); /* fails for a device that has gone, which does no harm */
		env_pci_vectors_close(dev);
		/* first, since the addresses may belong to others as soon as they are not mapped any more */
		env_pci_window_remove(dev->registers);
		munmap(dev->registers, dev->registers_len);
	}
	if (dev->kind != NULL) {
		dev->kind->close(dev);
	}
	if (dev->claim >= 0) {
		env_pci_release(dev->claim);
	}
	free(dev);
}

const struct env_pci_device *env_pci_info(const struct env_pci *dev)
{
	return &dev->info;
}

const char *env_pci_access(const struct env_pci *dev)
{
	return dev->kind->name;
}

volatile void *env_pci_registers(const struct env_pci *dev, size_t *len)
{
	*len = dev->registers_len;
	return dev->registers;
}

env_pci_translate_fn env_pci_translator(const struct env_pci *dev)
{
	return dev->kind->translate;
}

int env_pci_set_bus_master(struct env_pci *dev, bool on)
{
	return on ? pci_command_change(dev, PCI_COMMAND_MASTER, 0) : pci_command_change(dev, 0, PCI_COMMAND_MASTER);
}

int env_pci_reset(struct env_pci *dev)
{
	return dev->kind->reset != NULL ? dev->kind->reset(dev) : -ENOTSUP;
}

unsigned env_pci_num_vectors(const struct env_pci *dev)
{
	return dev->vectors_max;
}

static int pci_vectors_make(struct env_pci *dev, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		dev->vector_fds[i] = -1;
	}
	/* connected to nothing yet */
	int rc = dev->kind->vectors_set(dev, 0, n, dev->vector_fds);
	for (unsigned i = 0; rc == 0 && i < n; i++) {
		dev->vector_fds[i] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		rc = dev->vector_fds[i] >= 0 ? 0 : -errno;
	}
	return rc;
}

int env_pci_vectors_open(struct env_pci *dev, unsigned n)
{
	if (n == 0 || n > dev->vectors_max || dev->num_vectors != 0) {
		return -EINVAL;
	}
	dev->vector_fds = malloc(n * sizeof(*dev->vector_fds));
	if (dev->vector_fds == NULL) {
		return -ENOMEM;
	}
	dev->num_vectors = n;
	int rc = pci_vectors_make(dev, n);
	if (rc != 0) {
		env_pci_vectors_close(dev);
	}
	return rc;
}

void env_pci_vectors_close(struct env_pci *dev)
{
	if (dev->num_vectors == 0) {
		return;
	}
	dev->kind->vectors_set(dev, 0, 0, NULL);
	for (unsigned i = 0; i < dev->num_vectors; i++) {
		if (dev->vector_fds[i] >= 0) {
			close(dev->vector_fds[i]);
		}
	}
	free(dev->vector_fds);
	dev->vector_fds = NULL;
	dev->num_vectors = 0;
}

int env_pci_vector_fd(const struct env_pci *dev, unsigned vector)
{
	return vector < dev->num_vectors ? dev->vector_fds[vector] : -1;
}

int env_pci_vector_enable(struct env_pci *dev, unsigned vector, bool on)
{
	int fd = env_pci_vector_fd(dev, vector);

	return fd >= 0 ? dev->kind->vectors_set(dev, vector, 1, &(int){on ? fd : -1}) : -EINVAL;
}

int env_pci_request_fd(const struct env_pci *dev)
{
	return dev->request_fd;
}

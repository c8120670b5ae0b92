/* SPDX-License-Identifier: BSD-3-Clause */
/* A PCI device driven from this process: its registers, its view of our memory, its interrupts, its removal.
 *
 * The device must be bound to vfio-pci (with an IOMMU, or in no-IOMMU mode) or to uio_pci_generic; one that a driver
 * of the kernel's has is refused, never touched. Everything here is for the control thread, but for the translation
 * function, which any thread may call. */
#ifndef ENV_DPDK_PCI_DEVICE_H
#define ENV_DPDK_PCI_DEVICE_H

#include "env_dpdk/pci.h"

struct env_pci;

#define ENV_PCI_ERROR_MAX 256

/* Claims the device at bdf, maps its BAR 0 and lets it reach our memory (but not master the bus yet). A negative errno,
 * and what is wrong and what to do about it in error (ENV_PCI_ERROR_MAX bytes). */
int env_pci_open(const char *bdf, struct env_pci **dev, char *error);
/* The device can reach no memory any more after this. */
void env_pci_close(struct env_pci *dev);
const struct env_pci_device *env_pci_info(const struct env_pci *dev);
/* "vfio", "vfio (no IOMMU)", "uio" */
const char *env_pci_access(const struct env_pci *dev);

/* BAR 0. Once the device is gone, reads of it are all ones and writes go nowhere: a SIGBUS from these addresses is
 * handled. */
volatile void *env_pci_registers(const struct env_pci *dev, size_t *len);
/* Translates addresses for this device, as env_iova() does. Without an IOMMU they are physical ones,
 * and *len ends where memory stops being contiguous; only hugepages have such. */
typedef uint64_t (*env_pci_translate_fn)(const void *buf, size_t *len);
env_pci_translate_fn env_pci_translator(const struct env_pci *dev);
/* Whether the device may start transactions of its own: reads and writes of memory, interrupts. */
int env_pci_set_bus_master(struct env_pci *dev, bool on);
/* Function level reset, where there is one: -ENOTSUP otherwise. */
int env_pci_reset(struct env_pci *dev);

/* Interrupts: MSI-X through VFIO, each vector an eventfd. 0 vectors: none to be had. */
unsigned env_pci_num_vectors(const struct env_pci *dev);
/* Prepares the first n vectors; none of them signals before env_pci_vector_enable(). */
int env_pci_vectors_open(struct env_pci *dev, unsigned n);
void env_pci_vectors_close(struct env_pci *dev);
/* The descriptor, non-blocking; -1 if there is no such vector. */
int env_pci_vector_fd(const struct env_pci *dev, unsigned vector);
/* Lets a vector signal its descriptor, or not. Any thread; a system call. */
int env_pci_vector_enable(struct env_pci *dev, unsigned vector, bool on);

/* A descriptor that becomes readable when the kernel wants the device back (VFIO: hot removal, unbind); -1: none. */
int env_pci_request_fd(const struct env_pci *dev);

/* Uevents: devices come and go. A descriptor to read from, or a negative errno. */
int env_pci_uevent_open(void);
struct env_pci_uevent {
	enum {
		ENV_PCI_UEVENT_OTHER,
		ENV_PCI_UEVENT_ADD,
		ENV_PCI_UEVENT_REMOVE,
		ENV_PCI_UEVENT_BIND,
		ENV_PCI_UEVENT_LOST, /* there were more than the kernel keeps: any of them, about any device */
	} action;
	char bdf[16];
	char driver[32]; /* BIND: the driver; "" otherwise */
};
/* The next event that is about a PCI device, or that some were lost: 1; 0 if there is none left. */
int env_pci_uevent_read(int fd, struct env_pci_uevent *event);
/* Pure: a uevent as the kernel sends it, "action@path" and KEY=VALUE, each ended by a NUL. True if it is about a PCI
 * device. */
bool env_pci_uevent_parse(const char *text, size_t len, struct env_pci_uevent *event);

#endif

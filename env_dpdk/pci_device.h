/* SPDX-License-Identifier: BSD-3-Clause */
/* A PCI device that this process drives: its registers, its access to our memory, its interrupts, its removal.
 *
 * The device must be bound to vfio-pci (with an IOMMU, or in no-IOMMU mode) or to uio_pci_generic. A device that
 * another driver of the kernel has is refused and not touched. All functions are for the control thread, unless they
 * say otherwise. */
#ifndef ENV_DPDK_PCI_DEVICE_H
#define ENV_DPDK_PCI_DEVICE_H

#include "env_dpdk/pci.h"

struct env_pci;

#define ENV_PCI_ERROR_MAX 256

/* Claims the device at bdf, maps its BAR 0 and gives it access to our memory; bus mastering stays off. 0 and *dev, for
 * env_pci_close(); or a negative errno, and error (ENV_PCI_ERROR_MAX bytes) says what is wrong and what to do. */
int env_pci_open(const char *bdf, struct env_pci **dev, char *error);
/* Ends the device's access to our memory, unmaps BAR 0, gives the claim back, and frees dev. */
void env_pci_close(struct env_pci *dev);
/* What env_pci_list() said of the device; valid until env_pci_close(). */
const struct env_pci_device *env_pci_info(const struct env_pci *dev);
/* How the device is accessed: "vfio", "vfio (no IOMMU)" or "uio". */
const char *env_pci_access(const struct env_pci *dev);

/* BAR 0, of *len bytes. After the device has gone, reads return all ones and writes are ignored: SIGBUS at these
 * addresses is handled. */
volatile void *env_pci_registers(const struct env_pci *dev, size_t *len);
/* Translates the address of a buffer into an I/O address for a device, as env_iova() does. Without an IOMMU I/O
 * addresses are physical addresses, *len ends where memory is not contiguous any more, and only hugepages have such
 * addresses. Any thread, no lock. */
typedef uint64_t (*env_pci_translate_fn)(const void *buf, size_t *len);
/* The function that translates for this device. */
env_pci_translate_fn env_pci_translator(const struct env_pci *dev);
/* Turns bus mastering on or off: whether the device may read and write memory and send interrupts. 0 or a negative
 * errno. */
int env_pci_set_bus_master(struct env_pci *dev, bool on);
/* Resets the device (function level reset). 0; -ENOTSUP: it has none; or another negative errno. */
int env_pci_reset(struct env_pci *dev);

/* How many interrupt vectors the device has for us: MSI-X through VFIO, each an eventfd. 0: none. */
unsigned env_pci_num_vectors(const struct env_pci *dev);
/* Prepares the first n vectors, which do not signal before env_pci_vector_enable(). 0 or a negative errno. */
int env_pci_vectors_open(struct env_pci *dev, unsigned n);
/* Undoes env_pci_vectors_open(), and closes the descriptors. */
void env_pci_vectors_close(struct env_pci *dev);
/* The vector's descriptor, non-blocking, which dev owns; -1: no such vector. */
int env_pci_vector_fd(const struct env_pci *dev, unsigned vector);
/* Sets whether a vector signals its descriptor. 0 or a negative errno. Any thread; a system call. */
int env_pci_vector_enable(struct env_pci *dev, unsigned vector, bool on);

/* A descriptor that becomes readable when the kernel wants the device back (VFIO: hot removal, unbind); -1: none. */
int env_pci_request_fd(const struct env_pci *dev);

/* Opens a descriptor for the kernel's uevents, which tell when devices come and go. The caller closes it. Or a negative
 * errno. */
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
/* Reads the next event that is about a PCI device, or that says that events were lost. 1: there was one; 0: no more. */
int env_pci_uevent_read(int fd, struct env_pci_uevent *event);
/* Parses a uevent as the kernel sends it: "action@path" and KEY=VALUE, each ended by a NUL. True: it is about a PCI
 * device, and *event is set. Any thread. */
bool env_pci_uevent_parse(const char *text, size_t len, struct env_pci_uevent *event);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* PCI devices: which there are, and which process uses one. All functions: control thread. */
#ifndef ENV_DPDK_PCI_H
#define ENV_DPDK_PCI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENV_PCI_CLASS_NVME 0x010802 /* class, subclass, programming interface: mass storage, NVM, NVM Express */

struct env_pci_device {
	char bdf[16];        /* "0000:5e:00.0" */
	uint32_t class_code; /* 24 bits */
	uint16_t vendor, device, subvendor, subdevice;
	int numa_node;   /* -1: unknown */
	char driver[32]; /* the kernel's driver, "" if none */
	int iommu_group; /* -1: none */
};

/* Lists the devices that this process may use (--no-pci, the allow and the block list), in the order of their
 * addresses. Returns their number, or a negative errno; *devices is an array that the caller frees (NULL if there are
 * none). */
int env_pci_list(struct env_pci_device **devices);

/* Writes the full form of an address, which may lack the domain ("5e:00.0"), into bdf (16 bytes). 0 or -EINVAL. */
int env_pci_parse(const char *text, char *bdf);

#define ENV_PCI_CONFIG_BYTES 256 /* of the configuration space that each device has */
/* Reads the beginning of a device's configuration space. Returns how many bytes could be read: without CAP_SYS_ADMIN,
 * 64; or a negative errno. */
int env_pci_read_config(const char *bdf, uint8_t config[ENV_PCI_CONFIG_BYTES]);

/* Claims a device for this process, until env_pci_release() or the process's end (also by SIGKILL). Returns a handle >=
 * 0; -EBUSY: another process has claimed it, and *holder is its pid (0: unknown); -ENODEV: no such device; -EPERM: the
 * process's options exclude it. */
int env_pci_claim(const char *bdf, int *holder);
/* Gives a claim back. claim: the handle. */
void env_pci_release(int claim);

#endif

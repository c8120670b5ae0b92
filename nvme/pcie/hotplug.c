/* SPDX-License-Identifier: BSD-3-Clause */
/* How drives arrive and leave: by the kernel's uevents, and by VFIO's requests to give a device back. Control thread.
 */
#include "nvme/pcie/pcie.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "env_dpdk/pci_device.h"
#include "util/log.h"

static TAILQ_HEAD(, nvme_pcie_ctrlr) all = TAILQ_HEAD_INITIALIZER(all);
static int uevent_fd = -1;
static struct fd_source *uevent_source;
static void (*arrived_fn)(const char *traddr, void *arg);
static void *arrived_arg;

static void drive_removed(const char *bdf)
{
	struct nvme_pcie_ctrlr *c;

	TAILQ_FOREACH (c, &all, link) {
		if (strcmp(c->dev.bdf, bdf) == 0) {
			nvme_ctrlr_removed(&c->base);
			return;
		}
	}
}

static bool drive_is_ours(const struct env_pci_device *d)
{
	return d->class_code == ENV_PCI_CLASS_NVME &&
	       (strcmp(d->driver, "vfio-pci") == 0 || strcmp(d->driver, "uio_pci_generic") == 0);
}

void nvme_pcie_hotplug_arrived(const char *bdf)
{
	if (arrived_fn != NULL) {
		arrived_fn(bdf, arrived_arg);
	}
}

/* Announces the drives that are bound to a driver for user space. bdf: only that one; NULL: all. */
static void drives_look_for(const char *bdf)
{
	struct env_pci_device *list;
	int n = env_pci_list(&list);

	for (int i = 0; i < n; i++) {
		if (drive_is_ours(&list[i]) && (bdf == NULL || strcmp(list[i].bdf, bdf) == 0)) {
			nvme_pcie_hotplug_arrived(list[i].bdf);
		}
	}
	free(list);
}

void nvme_pcie_hotplug_lost(void)
{
	if (arrived_fn != NULL) {
		drives_look_for(NULL);
	}
}

static void uevents_read(void *arg, uint32_t events)
{
	struct env_pci_uevent e;

	/* no budget: only the kernel sends these, a few for each device that comes or goes */
	while (uevent_fd >= 0 && env_pci_uevent_read(uevent_fd, &e) > 0) {
		if (e.action == ENV_PCI_UEVENT_REMOVE) {
			drive_removed(e.bdf);
		} else if (e.action == ENV_PCI_UEVENT_BIND) {
			drives_look_for(e.bdf);
		} else if (e.action == ENV_PCI_UEVENT_LOST) {
			nvme_pcie_hotplug_lost();
		}
	}
}

/* Uevents are read only while there is a controller, or a listener for drives that arrive. */
static int uevents_update_listening(void)
{
	bool wanted = !TAILQ_EMPTY(&all) || arrived_fn != NULL;

	if (wanted && uevent_fd < 0) {
		uevent_fd = env_pci_uevent_open();
		if (uevent_fd < 0) {
			return uevent_fd;
		}
		uevent_source = fd_source_add(uevent_fd, EPOLLIN, uevents_read, NULL, "nvme_uevents");
		if (uevent_source == NULL) {
			close(uevent_fd);
			uevent_fd = -1;
			return -ENOMEM;
		}
	} else if (!wanted && uevent_fd >= 0) {
		fd_source_remove(&uevent_source);
		close(uevent_fd);
		uevent_fd = -1;
	}
	return 0;
}

/* The kernel cannot unbind the device, or power its slot off, before this process has closed it. */
static void drive_requested_by_kernel(void *arg, uint32_t events)
{
	struct nvme_pcie_ctrlr *c = arg;
	uint64_t count;
	ssize_t ignored = read(c->dev.request_fd, &count, sizeof(count));

	(void)ignored;
	nvme_ctrlr_removed(&c->base);
}

void nvme_pcie_hotplug_add(struct nvme_pcie_ctrlr *c)
{
	TAILQ_INSERT_TAIL(&all, c, link);
	int rc = uevents_update_listening();
	if (rc != 0) {
		log_warning("%s: the kernel will not announce its removal: %s", c->dev.bdf, strerror(-rc));
	}
	if (c->dev.request_fd >= 0) {
		c->request_source =
			fd_source_add(c->dev.request_fd, EPOLLIN, drive_requested_by_kernel, c, "nvme_request");
	}
}

void nvme_pcie_hotplug_remove(struct nvme_pcie_ctrlr *c)
{
	TAILQ_REMOVE(&all, c, link);
	uevents_update_listening();
	if (c->request_source != NULL) {
		fd_source_remove(&c->request_source);
	}
}

int nvme_hotplug_listen(void (*arrived)(const char *traddr, void *arg), void *arg)
{
	arrived_fn = arrived;
	arrived_arg = arg;
	int rc = uevents_update_listening();
	if (rc == 0 && arrived != NULL) { /* uevents are read first, so no drive is missed between the two */
		drives_look_for(NULL);
	}
	return rc;
}

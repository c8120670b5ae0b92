/* SPDX-License-Identifier: BSD-3-Clause */
/* uio_pci_generic: registers by sysfs, physical addresses, no interrupts. /dev/uioN is kept open: the kernel stops the
 * device's bus mastering when it is closed, also by the death of the process. */
#include "env_dpdk/env_internal.h"
#include "env_dpdk/pci_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_LEN 96

/* The N of /dev/uioN, or -1. */
static int uio_number(const char *bdf)
{
	char path[PATH_LEN];
	int n = -1;

	snprintf(path, sizeof(path), "%s/%s/uio", env_pci_folder(), bdf);
	DIR *d = opendir(path);
	if (d == NULL) {
		return -1;
	}
	for (struct dirent *e; n < 0 && (e = readdir(d)) != NULL;) {
		if (sscanf(e->d_name, "uio%d", &n) != 1) {
			n = -1;
		}
	}
	closedir(d);
	return n;
}

static int uio_map_registers(struct env_pci *dev, char *error)
{
	char path[PATH_LEN];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s/resource0", env_pci_folder(), dev->info.bdf);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) != 0 || st.st_size == 0) {
		snprintf(error, ENV_PCI_ERROR_MAX, "%.90s: %s", path, fd < 0 ? strerror(errno) : "is empty");
		if (fd >= 0) {
			close(fd);
		}
		return -ENODEV;
	}
	void *p = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	int rc = p == MAP_FAILED ? -errno : env_pci_window_add(p, (size_t)st.st_size);
	if (rc != 0) {
		if (p != MAP_FAILED) {
			munmap(p, (size_t)st.st_size);
		}
		snprintf(error, ENV_PCI_ERROR_MAX, "%s: BAR 0 cannot be mapped: %s", dev->info.bdf, strerror(-rc));
		return rc;
	}
	dev->registers = p;
	dev->registers_len = (size_t)st.st_size;
	return 0;
}

static int uio_open(struct env_pci *dev, char *error)
{
	char path[PATH_LEN];
	int rc = env_phys_start(), n = uio_number(dev->info.bdf);

	if (rc != 0) {
		snprintf(error, ENV_PCI_ERROR_MAX, "%s: uio_pci_generic needs physical addresses: %s", dev->info.bdf,
			 rc == -ENOTSUP ? "run with hugepages, or bind it to vfio-pci"
					: "run as root, or bind it to vfio-pci");
		return rc;
	}
	snprintf(path, sizeof(path), "/dev/uio%d", n);
	dev->fd = open(path, O_RDWR | O_CLOEXEC);
	if (dev->fd < 0) {
		snprintf(error, ENV_PCI_ERROR_MAX, "%s: %.90s: %s", dev->info.bdf, path, strerror(errno));
		return -errno;
	}
	snprintf(path, sizeof(path), "%s/%s/config", env_pci_folder(), dev->info.bdf);
	dev->config_fd = open(path, O_RDWR | O_CLOEXEC);
	if (dev->config_fd < 0) {
		snprintf(error, ENV_PCI_ERROR_MAX, "%.90s: %s", path, strerror(errno));
		return -errno;
	}
	return uio_map_registers(dev, error);
}

static void uio_close(struct env_pci *dev)
{
	if (dev->config_fd >= 0) {
		close(dev->config_fd);
	}
	if (dev->fd >= 0) {
		close(dev->fd);
	}
}

static int uio_config(struct env_pci *dev, bool write, unsigned offset, void *data, unsigned size)
{
	ssize_t n = write ? pwrite(dev->config_fd, data, size, offset) : pread(dev->config_fd, data, size, offset);

	return n == (ssize_t)size ? 0 : -EIO;
}

const struct env_pci_kind env_pci_uio = {
	.name = "uio",
	.translate = env_phys,
	.open = uio_open,
	.close = uio_close,
	.config = uio_config,
};

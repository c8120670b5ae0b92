/* SPDX-License-Identifier: BSD-3-Clause */
/* PCI devices, from sysfs. A claim is a lock (flock) on a file of the device there: all processes of this host use the
 * same file, no file of ours in /run is needed, and the kernel releases the lock however the process ends. */
#include "env_dpdk/env_internal.h"
#include "env_dpdk/pci_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static const char *folder = "/sys/bus/pci/devices";
static bool none;
static char (*listed)[16]; /* the allowed or the blocked ones */
static size_t listed_count;
static bool listed_are_allowed;

void env_pci_set_folder(const char *f)
{
	folder = f;
}

const char *env_pci_folder(void)
{
	return folder;
}

int env_pci_parse(const char *text, char *bdf)
{
	unsigned domain = 0, bus, device, function;
	int end = -1;

	if (sscanf(text, "%8x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &end) != 4 || text[end] != '\0') {
		domain = 0;
		end = -1;
		if (sscanf(text, "%2x:%2x.%1x%n", &bus, &device, &function, &end) != 3 || text[end] != '\0') {
			return -EINVAL;
		}
	}
	if (domain > 0xffffff || bus > 0xff || device > 0x1f || function > 7) {
		return -EINVAL;
	}
	snprintf(bdf, 16, "%04x:%02x:%02x.%x", domain, bus, device, function);
	return 0;
}

/* env_init() has checked the addresses in the options. */
void env_pci_start(const struct env_opts *opts)
{
	const char *const *list = opts->pci_allowed != NULL ? opts->pci_allowed : opts->pci_blocked;

	none = opts->no_pci;
	listed_are_allowed = opts->pci_allowed != NULL;
	free(listed);
	listed = NULL;
	listed_count = 0;
	for (size_t n = 0; list != NULL && list[n] != NULL; n++) {
		listed_count = n + 1;
	}
	if (listed_count > 0) {
		listed = calloc(listed_count, sizeof(*listed));
	}
	for (size_t n = 0; listed != NULL && n < listed_count; n++) {
		env_pci_parse(list[n], listed[n]);
	}
}

static bool pci_left_out(const char *bdf)
{
	bool found = false;

	for (size_t i = 0; i < listed_count && listed != NULL; i++) {
		found |= strcmp(listed[i], bdf) == 0;
	}
	return none || (listed_count > 0 && found != listed_are_allowed);
}

static uint64_t pci_read_hex(const char *bdf, const char *file)
{
	char path[PATH_MAX], text[32] = "";
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s/%s", folder, bdf, file);
	f = fopen(path, "re");
	if (f == NULL) {
		return 0;
	}
	bool ok = fgets(text, sizeof(text), f) != NULL;
	fclose(f);
	return ok ? strtoull(text, NULL, 0) : 0;
}

/* Reads the last part of the path that a link of the device points to; "": there is no such link. */
static void pci_read_link(const char *bdf, const char *link, char *name, size_t size)
{
	char path[PATH_MAX], target[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s/%s", folder, bdf, link);
	ssize_t n = readlink(path, target, sizeof(target) - 1);
	target[n > 0 ? n : 0] = '\0';
	snprintf(name, size, "%.*s", (int)size - 1, n > 0 ? basename(target) : "");
}

static void pci_read_device(const char *bdf, struct env_pci_device *d)
{
	char group[32];

	memset(d, 0, sizeof(*d));
	env_pci_parse(bdf, d->bdf);
	d->class_code = (uint32_t)pci_read_hex(bdf, "class");
	d->vendor = (uint16_t)pci_read_hex(bdf, "vendor");
	d->device = (uint16_t)pci_read_hex(bdf, "device");
	d->subvendor = (uint16_t)pci_read_hex(bdf, "subsystem_vendor");
	d->subdevice = (uint16_t)pci_read_hex(bdf, "subsystem_device");
	d->numa_node = (int)pci_read_hex(bdf, "numa_node");
	pci_read_link(bdf, "driver", d->driver, sizeof(d->driver));
	pci_read_link(bdf, "iommu_group", group, sizeof(group));
	d->iommu_group = group[0] != '\0' ? atoi(group) : -1;
}

int env_pci_get(const char *bdf, struct env_pci_device *d)
{
	char path[PATH_MAX], full[16];

	if (env_pci_parse(bdf, full) != 0) {
		return -ENODEV;
	}
	snprintf(path, sizeof(path), "%s/%s", folder, full);
	if (access(path, F_OK) != 0) {
		return -ENODEV;
	}
	pci_read_device(full, d);
	return 0;
}

static int pci_is_wanted(const struct dirent *e)
{
	char bdf[16];

	return env_pci_parse(e->d_name, bdf) == 0 && !pci_left_out(bdf);
}

int env_pci_list(struct env_pci_device **devices)
{
	struct dirent **names;
	int n;

	*devices = NULL;
	if (none) {
		return 0;
	}
	n = scandir(folder, &names, pci_is_wanted, alphasort);
	if (n < 0) {
		return errno == ENOENT ? 0 : -errno; /* a machine without PCI */
	}
	if (n > 0) {
		*devices = calloc((size_t)n, sizeof(**devices));
	}
	for (int i = 0; i < n; i++) {
		if (*devices != NULL) {
			pci_read_device(names[i]->d_name, &(*devices)[i]);
		}
		free(names[i]);
	}
	free(names);
	return n > 0 && *devices == NULL ? -ENOMEM : n;
}

/* /proc/locks: "1: FLOCK  ADVISORY  WRITE 1234 00:15:3079 0 EOF". */
static int pci_lock_holder(int fd)
{
	char line[256];
	struct stat st;
	unsigned major_, minor_;
	uint64_t inode;
	int pid, holder = 0;
	FILE *f = fopen("/proc/locks", "re");

	if (f == NULL || fstat(fd, &st) != 0) {
		if (f != NULL) {
			fclose(f);
		}
		return 0;
	}
	while (fgets(line, sizeof(line), f) != NULL) {
		if (sscanf(line, "%*d: FLOCK ADVISORY WRITE %d %x:%x:%" SCNu64, &pid, &major_, &minor_, &inode) == 4 &&
		    inode == st.st_ino && major_ == major(st.st_dev) && minor_ == minor(st.st_dev)) {
			holder = pid;
		}
	}
	fclose(f);
	return holder;
}

int env_pci_claim(const char *bdf, int *holder)
{
	char path[PATH_MAX], full[16];

	*holder = 0;
	if (env_pci_parse(bdf, full) != 0) {
		return -ENODEV;
	}
	if (pci_left_out(full)) {
		return -EPERM;
	}
	snprintf(path, sizeof(path), "%s/%s/config", folder, full);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		return errno == ENOENT ? -ENODEV : -errno;
	}
	if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
		return fd;
	}
	int rc = errno == EWOULDBLOCK ? -EBUSY : -errno;
	*holder = pci_lock_holder(fd);
	close(fd);
	return rc;
}

int env_pci_read_config(const char *bdf, uint8_t config[ENV_PCI_CONFIG_BYTES])
{
	char path[PATH_MAX], full[16];

	if (env_pci_parse(bdf, full) != 0) {
		return -ENODEV;
	}
	snprintf(path, sizeof(path), "%s/%s/config", folder, full);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		return -errno;
	}
	ssize_t n = read(fd, config, ENV_PCI_CONFIG_BYTES);
	int rc = n >= 0 ? (int)n : -errno;
	close(fd);
	return rc;
}

void env_pci_release(int claim)
{
	close(claim);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory and PCI devices. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "env_dpdk/env.h"
#include "env_dpdk/pci.h"
#include "rpc/rpc.h"

#define ALWAYS (RPC_STARTUP | RPC_RUNTIME)

/* Writes everything about the memory into a file in a folder that other users can write to as well: into a new file,
 * never into an existing one or through a link, which another user may have made. */
static int rpc_env_dump_memory(const char *path)
{
	if (unlink(path) != 0 && errno != ENOENT) {
		return -errno;
	}
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
	if (f == NULL) {
		int rc = -errno;

		if (fd >= 0) {
			close(fd);
		}
		return rc;
	}
	env_mem_dump(f);
	return fclose(f) == 0 ? 0 : -errno;
}

static void rpc_env_dpdk_get_mem_stats(struct rpc_request *req, void *params)
{
	struct env_mem_stats s;
	char path[64];

	snprintf(path, sizeof(path), "/tmp/varve_mem_dump.pid%d.txt", getpid());
	int rc = rpc_env_dump_memory(path);
	if (rc != 0) {
		rpc_error(req, rc, "cannot write %s: %s", path, strerror(-rc));
		return;
	}
	env_mem_stats(&s);
	json_t *o = json_object();
	json_object_set_new(o, "filename", json_string(path));
	json_object_set_new(o, "hugepages", json_boolean(s.hugepages));
	json_object_set_new(o, "resident_bytes", rpc_uint(s.resident_bytes));
	json_object_set_new(o, "dma_bytes", rpc_uint(s.dma_bytes));
	json_object_set_new(o, "heap_bytes", rpc_uint(s.heap_bytes));
	json_object_set_new(o, "heap_free_bytes", rpc_uint(s.heap_free_bytes));
	json_object_set_new(o, "heap_largest_free_bytes", rpc_uint(s.heap_largest_free_bytes));
	json_object_set_new(o, "heap_blocks", json_integer(s.heap_blocks));
	json_object_set_new(o, "mapped_bytes", rpc_uint(s.mapped_bytes));
	json_object_set_new(o, "mapped_blocks", json_integer(s.mapped_blocks));
	json_object_set_new(o, "regions", json_integer(s.regions));
	rpc_reply(req, o);
}
RPC_METHOD("env_dpdk_get_mem_stats", rpc_env_dpdk_get_mem_stats, struct rpc_no_params, NULL, ALWAYS,
	   "Tell how much memory is used, and write all details into a file",
	   .result = "{filename: string, hugepages: bool, resident_bytes: int, dma_bytes: int, heap_bytes: "
		     "int, heap_free_bytes: int, heap_largest_free_bytes: int, heap_blocks: int, "
		     "mapped_bytes: int, mapped_blocks: int, regions: int, ...}")

/* As a text of hexadecimal digits. */
static json_t *rpc_env_pci_config_json(const char *bdf)
{
	uint8_t config[ENV_PCI_CONFIG_BYTES];
	char text[2 * ENV_PCI_CONFIG_BYTES + 1] = "";
	int n = env_pci_read_config(bdf, config);

	for (int i = 0; i < n; i++) {
		snprintf(&text[2 * i], 3, "%02x", config[i]);
	}
	return json_string(text);
}

static json_t *rpc_env_pci_json(const struct env_pci_device *d)
{
	json_t *o = json_object();

	json_object_set_new(o, "address", json_string(d->bdf));
	json_object_set_new(o, "type", json_string("pci"));
	json_object_set_new(o, "config_space", rpc_env_pci_config_json(d->bdf));
	json_object_set_new(o, "vendor_id", rpc_hex(d->vendor));
	json_object_set_new(o, "device_id", rpc_hex(d->device));
	json_object_set_new(o, "subvendor_id", rpc_hex(d->subvendor));
	json_object_set_new(o, "subdevice_id", rpc_hex(d->subdevice));
	json_object_set_new(o, "class", rpc_hex(d->class_code));
	json_object_set_new(o, "driver", rpc_string(d->driver));
	json_object_set_new(o, "numa_node", json_integer(d->numa_node));
	json_object_set_new(o, "iommu_group", json_integer(d->iommu_group));
	return o;
}

static void rpc_framework_get_pci_devices(struct rpc_request *req, void *params)
{
	struct env_pci_device *devices;
	int n = env_pci_list(&devices);

	if (n < 0) {
		rpc_error(req, n, "cannot list the PCI devices: %s", strerror(-n));
		return;
	}
	json_t *list = json_array();
	for (int i = 0; i < n; i++) {
		json_array_append_new(list, rpc_env_pci_json(&devices[i]));
	}
	free(devices);
	rpc_reply(req, list);
}
RPC_METHOD("framework_get_pci_devices", rpc_framework_get_pci_devices, struct rpc_no_params, NULL, ALWAYS,
	   "List the PCI devices that may be used",
	   .result = "[{address: string, type: string, config_space: string, vendor_id: string, device_id: string, "
		     "subvendor_id: string, subdevice_id: string, class: string, driver: string|null, "
		     "numa_node: int, iommu_group: int, ...}]")

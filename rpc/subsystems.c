/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/subsystems.h"

#include <stddef.h>
#include <string.h>

#include "util/compiler.h"
#include "util/nearest.h"

/* varve's own are keyring, iobuf, bdev, nvmf, scheduler, sock, trace and metrics; the others are in configurations that
 * SPDK's programs saved. */
static const char *const subsystems[] = {
	"accel", "bdev", "fsdev", "iobuf", "iscsi",     "keyring",   "metrics",    "nbd",        "nvmf", "scheduler",
	"scsi",  "sock", "trace", "ublk",  "vfio_user", "vhost_blk", "vhost_scsi", "virtio_blk", "vmd"};

bool rpc_subsystem_is_known(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(subsystems); i++) {
		if (strcmp(subsystems[i], name) == 0) {
			return true;
		}
	}
	return false;
}

const char *rpc_subsystem_nearest(const char *name)
{
	struct nearest near;

	nearest_begin(&near, name);
	for (size_t i = 0; i < ARRAY_SIZE(subsystems); i++) {
		nearest_try(&near, subsystems[i]);
	}
	return near.name;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Attaches drives as soon as they are bound to a kernel driver that gives them to processes. Control thread. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "bdev_modules/nvme/internal.h"
#include "util/log.h"

#define NAME_PREFIX "HotInNvme" /* the name that control software knows from SPDK */

static bool enabled;
static unsigned next_number;

static bool hotplug_is_attached(const char *traddr)
{
	for (const struct bdev_nvme *c = NULL; (c = bdev_nvme_next(c)) != NULL;) {
		if (c->opts.trid.trtype == NVME_TRTYPE_PCIE && strcasecmp(c->opts.trid.traddr, traddr) == 0 &&
		    c->state != BDEV_NVME_DETACHING) {
			return true;
		}
	}
	return false;
}

static void hotplug_attached(void *arg, int rc, struct bdev_nvme *c, const char *error)
{
	if (rc == 0) {
		log_notice("%s: the drive at %s was plugged in and is attached", bdev_nvme_name(c),
			   c->opts.trid.traddr);
	} else {
		log_error("a drive that was plugged in cannot be attached: %s", error);
	}
}

static void hotplug_drive_arrived(const char *traddr, void *arg)
{
	char name[BDEV_NVME_NAME_MAX];
	struct bdev_nvme_attach a;

	if (hotplug_is_attached(traddr)) {
		return;
	}
	do {
		snprintf(name, sizeof(name), NAME_PREFIX "%u", next_number++);
	} while (bdev_nvme_find(name) != NULL);
	bdev_nvme_attach_default(&a);
	a.name = name;
	a.trid.trtype = NVME_TRTYPE_PCIE;
	snprintf(a.trid.traddr, sizeof(a.trid.traddr), "%s", traddr);
	bdev_nvme_attach(&a, hotplug_attached, NULL);
}

int bdev_nvme_set_hotplug(bool enable)
{
	int rc = nvme_hotplug_listen(enable ? hotplug_drive_arrived : NULL, NULL);

	if (rc == 0) {
		enabled = enable;
		next_number = 0;
	} else {
		nvme_hotplug_listen(NULL, NULL);
		enabled = false;
	}
	return rc;
}

bool bdev_nvme_hotplug(void)
{
	return enabled;
}

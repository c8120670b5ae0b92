/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/rooms.h"

#include <stdbool.h>

#include "bdev/bdev.h"
#include "nvmf/nvmf.h"
#include "thread/thread.h"
#include "util/log.h"

/* In the order of starting: a room comes after those it uses. */
static const struct room rooms[] = {
	{"bdev", bdev_init, bdev_fini},
	{"nvmf", nvmf_init, nvmf_fini},
	{NULL, NULL, NULL},
};

#define STOP_REPORT_US 5000000 /* a room that takes longer to stop is named in the log, again and again */

static size_t n_running;

int rooms_start(const char **failed)
{
	for (const struct room *r = rooms; r->name != NULL; r++) {
		int rc = r->start();
		if (rc != 0) {
			*failed = r->name;
			return rc;
		}
		n_running++;
	}
	return 0;
}

static void room_set_stopped(void *arg)
{
	*(bool *)arg = true;
}

static bool room_is_stopped(void *arg)
{
	return *(bool *)arg;
}

void rooms_stop(void)
{
	for (; n_running > 0; n_running--) {
		const struct room *r = &rooms[n_running - 1];
		bool stopped = false;
		r->stop(room_set_stopped, &stopped);
		while (!thread_control_wait(room_is_stopped, &stopped, STOP_REPORT_US)) {
			log_warning("still waiting for %s to stop (a second signal ends the process at once)", r->name);
		}
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/log_flags.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "util/log.h"

static struct log_other_flag others[] = {
	{.name = "accel"},
	{.name = "accel_ae4dma"},
	{.name = "accel_ioat"},
	{.name = "aio"},
	{.name = "app_config"},
	{.name = "app_rpc", .ours = "rpc"},
	{.name = "bdev_concat"},
	{.name = "bdev_ftl"},
	{.name = "bdev_malloc"},
	{.name = "bdev_null"},
	{.name = "bdev_nvme", .ours = "nvme"},
	{.name = "bdev_raid"},
	{.name = "bdev_raid0"},
	{.name = "bdev_raid1"},
	{.name = "bdev_raid_sb"},
	{.name = "blob"},
	{.name = "blob_esnap"},
	{.name = "blob_rw"},
	{.name = "ftl_core"},
	{.name = "ftl_init"},
	{.name = "gpt_parse"},
	{.name = "ioat"},
	{.name = "json_util", .ours = "rpc"},
	{.name = "keyring"},
	{.name = "log_rpc", .ours = "rpc"},
	{.name = "lvol"},
	{.name = "lvol_rpc"},
	{.name = "nbd"},
	{.name = "notify_rpc", .ours = "rpc"},
	{.name = "nvme_auth", .ours = "nvme"},
	{.name = "nvmf_auth", .ours = "nvmf"},
	{.name = "nvmf_tcp"},
	{.name = "opal"},
	{.name = "rdma", .ours = "nvmf"},
	{.name = "reactor", .ours = "scheduler"},
	{.name = "rpc_client", .ours = "rpc_conn"},
	{.name = "sock"},
	{.name = "sock_posix"},
	{.name = "thread", .ours = "scheduler"},
	{.name = "trace"},
	{.name = "uring"},
	{.name = "vbdev_delay"},
	{.name = "vbdev_gpt"},
	{.name = "vbdev_lvol"},
	{.name = "vbdev_opal"},
	{.name = "vbdev_passthru"},
	{.name = "vbdev_split"},
	{.name = "vbdev_zone_block"},
	{.name = "vmd"},
};
#define NUM_OTHERS (sizeof(others) / sizeof(others[0]))

static bool is_ours(const char *name)
{
	const struct log_flag *f;

	for (f = log_first_flag(); f != NULL && strcasecmp(f->name, name) != 0; f = SLIST_NEXT(f, link)) {
	}
	return f != NULL;
}

/* A flag of ours that is added later under one of these names stands for itself. */
const struct log_other_flag *log_other_flag_next(const struct log_other_flag *after)
{
	const struct log_other_flag *f = after == NULL ? others : after + 1;

	while (f < others + NUM_OTHERS && is_ours(f->name)) {
		f++;
	}
	return f < others + NUM_OTHERS ? f : NULL;
}

int log_other_flag_set(const char *name, bool on)
{
	bool all = strcasecmp(name, "all") == 0;
	int rc = -ENOENT;

	for (size_t i = 0; i < NUM_OTHERS; i++) {
		if (all || strcasecmp(name, others[i].name) == 0) {
			others[i].enabled = on;
			if (!all && others[i].ours != NULL) {
				log_set_flag(others[i].ours, on);
			}
			rc = 0;
		}
	}
	return rc;
}

static const struct log_other_flag *other_find(const char *name)
{
	const struct log_other_flag *f = NULL;

	while ((f = log_other_flag_next(f)) != NULL && strcasecmp(f->name, name) != 0) {
	}
	return f;
}

void log_other_flag_explain(const char *name)
{
	const struct log_other_flag *f = other_find(name);

	if (f != NULL && f->ours != NULL) {
		log_notice("log flag %s: its messages are those of the flag %s here, which is %s now", f->name, f->ours,
			   f->enabled ? "on" : "off");
	} else if (f != NULL) {
		log_notice("log flag %s: varve has no messages under it", f->name);
	}
}

bool log_flag_is_known(const char *name)
{
	return is_ours(name) || other_find(name) != NULL || strcasecmp(name, "all") == 0;
}

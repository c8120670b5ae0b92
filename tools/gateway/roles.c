/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/gateway/roles.h"

#include <fnmatch.h>
#include <stddef.h>
#include <string.h>

static const char *const gateway_roles[] = {
	[GATEWAY_READ] = "read",
	[GATEWAY_OPERATE] = "operate",
	[GATEWAY_ADMIN] = "admin",
};

/* The first row whose pattern matches counts. A name that no row matches needs GATEWAY_ADMIN: a new kind of method is
 * refused until somebody has decided. systest/gateway.py knows each method of the daemon and its role. */
static const struct gateway_rule {
	const char *pattern; /* as in fnmatch(3) */
	enum gateway_role role;
} gateway_rules[] = {
	/* They end the daemon or touch keys. */
	{"spdk_kill_instance", GATEWAY_ADMIN},
	{"framework_hand_over", GATEWAY_ADMIN},
	{"keyring_*", GATEWAY_ADMIN},
	{"*_set_keys", GATEWAY_ADMIN},
	/* Any command to a drive, such as Format. */
	{"bdev_nvme_send_cmd", GATEWAY_ADMIN},
	/* They open, create or write files and sockets that the caller names, with the rights of the daemon. */
	{"bdev_aio_create", GATEWAY_ADMIN},
	{"bdev_uring_create", GATEWAY_ADMIN},
	{"env_dpdk_get_mem_stats", GATEWAY_ADMIN},
	{"trace_set_blackbox", GATEWAY_ADMIN},
	{"nvmf_subsystem_add_peer", GATEWAY_ADMIN},
	/* It opens a port. */
	{"metrics_start", GATEWAY_ADMIN},

	/* They change nothing. */
	{"*_get_*", GATEWAY_READ},
	{"get_bdevs", GATEWAY_READ},
	{"rpc_describe_methods", GATEWAY_READ},
	{"bdev_wait_for_examine", GATEWAY_READ},
	{"framework_wait_init", GATEWAY_READ},

	{"bdev_*", GATEWAY_OPERATE},
	{"nvmf_*", GATEWAY_OPERATE},
	{"framework_*", GATEWAY_OPERATE},
	{"iobuf_*", GATEWAY_OPERATE},
	{"log_*", GATEWAY_OPERATE},
	{"metrics_stop", GATEWAY_OPERATE},
	{"scheduler_*", GATEWAY_OPERATE},
	{"sock_*", GATEWAY_OPERATE},
	{"accel_*", GATEWAY_OPERATE},
	{"thread_*", GATEWAY_OPERATE},
	{"trace_*", GATEWAY_OPERATE},
};

enum gateway_role gateway_role_needed(const char *method)
{
	for (size_t i = 0; i < sizeof(gateway_rules) / sizeof(gateway_rules[0]); i++) {
		if (fnmatch(gateway_rules[i].pattern, method, 0) == 0) {
			return gateway_rules[i].role;
		}
	}
	return GATEWAY_ADMIN;
}

const char *gateway_role_name(enum gateway_role role)
{
	return gateway_roles[role];
}

bool gateway_role_find(const char *name, enum gateway_role *role)
{
	for (size_t i = 0; i < sizeof(gateway_roles) / sizeof(gateway_roles[0]); i++) {
		if (strcmp(gateway_roles[i], name) == 0) {
			*role = (enum gateway_role)i;
			return true;
		}
	}
	return false;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The copies of the black box that are in its folder. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "appliance/blackbox.h"
#include "appliance/blackbox_files.h"
#include "appliance/console_api.h"
#include "appliance/metrics.h"
#include "appliance/metrics_peer.h"
#include "rpc/rpc.h"

#define COPIES_MAX 64

static json_t *console_copy_json(const struct blackbox_copy_info *c)
{
	json_t *o = json_object();

	json_object_set_new(o, "name", rpc_string(c->name));
	json_object_set_new(o, "bytes", rpc_uint(c->bytes));
	json_object_set_new(o, "time", rpc_string(c->time));
	json_object_set_new(o, "cause", rpc_string(c->cause));
	return o;
}

json_t *console_copies(void)
{
	const char *dir = blackbox_get_opts()->dir, *app = blackbox_app();
	struct blackbox_copy_info *found = calloc(COPIES_MAX, sizeof(*found));
	struct metrics_status status;
	struct timespec now;

	if (found == NULL) {
		return NULL;
	}
	clock_gettime(CLOCK_REALTIME, &now);
	uint64_t now_ns = (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
	bool complete = true;
	int n = app != NULL ? blackbox_copy_list(dir, app, now_ns, found, COPIES_MAX, &complete) : 0;
	json_t *o = json_object(), *list = json_array();
	for (int i = 0; i < n; i++) {
		json_array_append_new(list, console_copy_json(&found[i]));
	}
	free(found);
	metrics_get_status(&status);
	json_object_set_new(o, "directory", rpc_string(dir));
	json_object_set_new(o, "offered", json_boolean(status.copies));
	json_object_set_new(o, "complete", json_boolean(n >= 0 && complete));
	if (n < 0) {
		json_object_set_new(o, "error", rpc_string(strerror(-n)));
	}
	json_object_set_new(o, "copies", list);
	return o;
}

int console_copy_open(const char *query, size_t query_len, int peer_fd, struct console_copy *copy)
{
	const char *app = blackbox_app();
	struct metrics_peer peer;
	struct stat st;

	copy->fd = -1;
	if (app == NULL || !http_query_value(query, query_len, "name", copy->name, sizeof(copy->name))) {
		return -ENOENT;
	}
	int fd = blackbox_copy_open(blackbox_get_opts()->dir, app, copy->name, &copy->bytes);
	if (fd < 0) {
		return fd;
	}
	int rc = metrics_peer_get(peer_fd, &peer);
	if (rc == 0 && fstat(fd, &st) != 0) {
		rc = -errno;
	}
	if (rc == 0 && !metrics_peer_may_read(&peer, &st)) {
		rc = -EPERM;
	}
	if (rc != 0) {
		close(fd);
		return rc;
	}
	copy->fd = fd;
	return 0;
}

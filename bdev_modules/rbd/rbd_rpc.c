/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods of clusters and of bdevs on their images, and the calls that make them again. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bdev/owner.h"
#include "bdev_modules/rbd/rbd.h"
#include "rpc_methods/bdev_module.h"

enum { MAX_SETTINGS = 256 };

/* The settings of an object of strings, in its order; the caller frees them. False: the request has been answered. */
static bool decode_settings(struct rpc_request *req, const char *name, const json_t *object,
			    struct bdev_rbd_cluster_opts *opts)
{
	size_t n = json_object_size(object), i = 0;
	const char *key;
	json_t *value;

	if (n == 0) {
		return true;
	}
	if (n > MAX_SETTINGS) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "%s: has %zu settings; at most %u are allowed", name, n,
			  MAX_SETTINGS);
		return false;
	}
	struct bdev_rbd_setting *settings = calloc(n, sizeof(*settings));
	if (settings == NULL) {
		rpc_error(req, -ENOMEM, "out of memory");
		return false;
	}
	json_object_foreach ((json_t *)object, key, value) {
		if (!json_is_string(value) || key[0] == '\0') {
			rpc_error(req, RPC_ERROR_INVALID_PARAMS, "%s: '%.100s' must have a name, and a string as value",
				  name, key);
			free(settings);
			return false;
		}
		settings[i++] = (struct bdev_rbd_setting){key, json_string_value(value)};
	}
	opts->settings = settings;
	opts->num_settings = n;
	return true;
}

/* --- What calls wait for --- */

static bool same_cluster(const struct bdev_rbd_job_info *job, const char *name)
{
	return job->cluster_name == name ||
	       (job->cluster_name != NULL && name != NULL && strcmp(job->cluster_name, name) == 0);
}

/* The oldest job of a connection. name: NULL for those without one. */
static void cluster_waits_for(const char *name, char *text, size_t size)
{
	struct bdev_rbd_job_info job;

	for (size_t n = 0; bdev_rbd_get_job(n, &job); n++) {
		if (job.image == NULL && same_cluster(&job, name)) {
			bdev_rbd_describe_job(&job, text, size);
			return;
		}
	}
}

/* Of methods whose params begin with the name of a bdev. */
static void by_bdev_waits_for(const void *params, char *text, size_t size)
{
	bdev_rbd_waits_for(*(char *const *)params, text, size);
}

/* Of methods whose params begin with the name of a cluster. */
static void by_cluster_waits_for(const void *params, char *text, size_t size)
{
	cluster_waits_for(*(char *const *)params, text, size);
}

/* --- Clusters --- */

struct register_cluster {
	char *name, *user_id, *config_file, *key_file, *core_mask;
	json_t *config_param;
};
#define CLUSTER_PARAM(field_, type_, required_, help_)                                                                 \
	RPC_PARAM(struct register_cluster, field_, type_, required_, help_)
static const struct rpc_param register_cluster_params[] = {
	CLUSTER_PARAM(name, RPC_STRING, RPC_REQUIRED, "of the connection, for bdev_rbd_create"),
	CLUSTER_PARAM(user_id, RPC_STRING, RPC_OPTIONAL, "of Ceph, without \"client.\"; default: admin"),
	CLUSTER_PARAM(
		config_param, RPC_OBJECT, RPC_OPTIONAL,
		"settings of librados and librbd, each a string; without config_file they take the place of a file"),
	CLUSTER_PARAM(config_file, RPC_STRING, RPC_OPTIONAL, "default: /etc/ceph/ceph.conf"),
	CLUSTER_PARAM(key_file, RPC_STRING, RPC_OPTIONAL, "a keyring; default: the configuration's"),
	CLUSTER_PARAM(core_mask, RPC_STRING, RPC_OPTIONAL,
		      "CPUs of librados' threads, as of -m; default: those without a reactor"),
	RPC_PARAM_END};

static void cluster_registered(void *req, int rc, const char *text)
{
	rpc_bdev_answer_name(req, rc, text, text);
}

static void rpc_bdev_rbd_register_cluster(struct rpc_request *req, void *params)
{
	const struct register_cluster *p = params;
	struct bdev_rbd_cluster_opts opts = {.name = p->name,
					     .user_id = p->user_id,
					     .config_file = p->config_file,
					     .key_file = p->key_file,
					     .core_mask = p->core_mask};

	if (decode_settings(req, "config_param", p->config_param, &opts)) {
		bdev_rbd_register_cluster(&opts, cluster_registered, req);
		free((void *)opts.settings);
	}
}
RPC_METHOD("bdev_rbd_register_cluster", rpc_bdev_rbd_register_cluster, struct register_cluster, register_cluster_params,
	   RPC_RUNTIME, "Connect to a Ceph cluster; the images that name it share the connection", .in_turn = true,
	   .result = "string", .waits_for = by_cluster_waits_for)

struct by_cluster_name {
	char *name;
};
static const struct rpc_param unregister_cluster_params[] = {
	RPC_PARAM(struct by_cluster_name, name, RPC_STRING, RPC_REQUIRED, "of the cluster"), RPC_PARAM_END};

static void cluster_unregistered(void *req, int rc, const char *text)
{
	rpc_bdev_answer_true(req, rc, text);
}

static void rpc_bdev_rbd_unregister_cluster(struct rpc_request *req, void *params)
{
	bdev_rbd_unregister_cluster(((const struct by_cluster_name *)params)->name, cluster_unregistered, req);
}
RPC_METHOD("bdev_rbd_unregister_cluster", rpc_bdev_rbd_unregister_cluster, struct by_cluster_name,
	   unregister_cluster_params, RPC_RUNTIME, "End the connection to a cluster, which no bdev uses any more",
	   .in_turn = true, .result = "true", .waits_for = by_cluster_waits_for)

static void add_text(json_t *object, const char *key, const char *value)
{
	if (value != NULL) {
		json_object_set_new(object, key, rpc_string(value));
	}
}

static void add_settings(json_t *object, const char *key, const struct bdev_rbd_cluster_opts *o)
{
	json_t *settings;

	if (o->num_settings == 0) {
		return;
	}
	settings = json_object();
	for (size_t i = 0; i < o->num_settings; i++) {
		json_object_set_new(settings, o->settings[i].key, rpc_string(o->settings[i].value));
	}
	json_object_set_new(object, key, settings);
}

/* "key" is the one setting whose value is a secret. */
static void hide_key(json_t *object)
{
	json_t *settings = json_object_get(object, "config_param");

	if (json_object_get(settings, "key") != NULL) {
		json_object_set_new(settings, "key", json_string("(hidden)"));
	}
}

static json_t *cluster_params(const struct bdev_rbd_cluster_opts *o, const char *name_key)
{
	json_t *params = json_object();

	add_text(params, name_key, o->name);
	add_text(params, "user_id", o->user_id);
	add_settings(params, "config_param", o);
	add_text(params, "config_file", o->config_file);
	add_text(params, "key_file", o->key_file);
	add_text(params, "core_mask", o->core_mask);
	return params;
}

static const struct rpc_param get_clusters_params[] = {
	RPC_PARAM(struct by_cluster_name, name, RPC_STRING, RPC_OPTIONAL, "of one cluster; default: all"),
	RPC_PARAM_END};

static void rpc_bdev_rbd_get_clusters_info(struct rpc_request *req, void *params)
{
	const struct by_cluster_name *p = params;
	struct bdev_rbd_cluster_info info;
	json_t *answer = json_array();

	for (size_t n = 0; bdev_rbd_get_cluster(n, &info); n++) {
		if (p->name == NULL || strcmp(p->name, info.opts.name) == 0) {
			json_t *cluster = cluster_params(&info.opts, "cluster_name");
			hide_key(cluster);
			json_object_set_new(cluster, "connected", json_boolean(info.connected));
			json_object_set_new(cluster, "users", json_integer(info.images));
			json_array_append_new(answer, cluster);
		}
	}
	if (p->name != NULL && json_array_size(answer) == 0) {
		json_decref(answer);
		rpc_error(req, -ENOENT, "name '%.200s': no cluster of that name is registered", p->name);
		return;
	}
	rpc_reply(req, answer);
}
RPC_METHOD("bdev_rbd_get_clusters_info", rpc_bdev_rbd_get_clusters_info, struct by_cluster_name, get_clusters_params,
	   RPC_RUNTIME, "List the registered clusters",
	   .result = "[{cluster_name: string, user_id?: string, config_param?: {*: string}, config_file?: string, "
		     "key_file?: string, core_mask?: string, connected: bool, users: int}]")

/* --- Bdevs --- */

struct rbd_create {
	char *name, *user_id, *pool_name, *rbd_name, *cluster_name, *uuid, *rados_namespace, *snapshot;
	uint32_t block_size;
	json_t *config;
	bool read_only, standby;
};
#define RBD_PARAM(field_, type_, required_, help_, ...)                                                                \
	RPC_PARAM(struct rbd_create, field_, type_, required_, help_, ##__VA_ARGS__)
static const struct rpc_param rbd_create_params[] = {
	RBD_PARAM(name, RPC_STRING, RPC_OPTIONAL, "of the new bdev; default: Ceph0, Ceph1 ..."),
	RBD_PARAM(pool_name, RPC_STRING, RPC_REQUIRED, "of Ceph"),
	RBD_PARAM(rbd_name, RPC_STRING, RPC_REQUIRED, "of the image"),
	RBD_PARAM(block_size, RPC_UINT32, RPC_REQUIRED, "bytes, a multiple of 512, up to 65536"),
	RBD_PARAM(cluster_name, RPC_STRING, RPC_OPTIONAL,
		  "a registered cluster; default: a connection that all bdevs with the same user_id and config share"),
	RBD_PARAM(user_id, RPC_STRING, RPC_OPTIONAL,
		  "of Ceph, without \"client.\"; default: admin. Not with cluster_name"),
	RBD_PARAM(
		config, RPC_OBJECT, RPC_OPTIONAL,
		"settings of librados and librbd, each a string; default: /etc/ceph/ceph.conf. Not with cluster_name"),
	RBD_PARAM(uuid, RPC_UUID, RPC_OPTIONAL, "default: a random one"),
	RBD_PARAM(read_only, RPC_BOOL, RPC_OPTIONAL, "refuse what changes data"),
	RBD_PARAM(rados_namespace, RPC_STRING, RPC_OPTIONAL, "in the pool; default: none", .own = true),
	RBD_PARAM(snapshot, RPC_STRING, RPC_OPTIONAL, "of the image, which is read-only; default: none", .own = true),
	RBD_PARAM(standby, RPC_BOOL, RPC_OPTIONAL,
		  "refuse all I/O until bdev_own makes it the owner of the image, which needs the feature "
		  "exclusive-lock; not with read_only or snapshot",
		  .own = true),
	RPC_PARAM_END};

static void rbd_created(void *req, int rc, const char *text)
{
	rpc_bdev_answer_name(req, rc, text, text);
}

static void rpc_bdev_rbd_create(struct rpc_request *req, void *params)
{
	const struct rbd_create *p = params;
	uint8_t uuid[16];
	struct bdev_rbd_opts opts = {
		.name = p->name,
		.pool = p->pool_name,
		.image = p->rbd_name,
		.rados_namespace = p->rados_namespace,
		.snapshot = p->snapshot,
		.uuid = rpc_bdev_uuid(p->uuid, uuid),
		.block_size = p->block_size,
		.read_only = p->read_only,
		.standby = p->standby,
		.cluster = {.name = p->cluster_name, .user_id = p->user_id},
	};

	if (p->cluster_name != NULL && (p->user_id != NULL || p->config != NULL)) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "%s: not together with cluster_name, whose connection has its own",
			  p->user_id != NULL ? "user_id" : "config");
		return;
	}
	if (decode_settings(req, "config", p->config, &opts.cluster)) {
		bdev_rbd_create(&opts, rbd_created, req);
		free((void *)opts.cluster.settings);
	}
}
/* The job of the image, or of the connection that is made for it. */
static void create_waits_for(const void *params, char *text, size_t size)
{
	const struct rbd_create *p = params;
	struct bdev_rbd_job_info job;

	for (size_t n = 0; bdev_rbd_get_job(n, &job); n++) {
		if (job.image != NULL && strcmp(job.image, p->rbd_name) == 0 && strcmp(job.pool, p->pool_name) == 0 &&
		    (p->name == NULL || strcmp(job.bdev, p->name) == 0)) {
			bdev_rbd_describe_job(&job, text, size);
			return;
		}
	}
	cluster_waits_for(p->cluster_name, text, size);
}
RPC_METHOD("bdev_rbd_create", rpc_bdev_rbd_create, struct rbd_create, rbd_create_params, RPC_RUNTIME,
	   "Create a bdev from an image of a Ceph cluster", .in_turn = true, .result = "string",
	   .waits_for = create_waits_for)

RPC_BDEV_DELETE_METHOD(rbd, "a bdev made by bdev_rbd_create", .waits_for = by_bdev_waits_for)

struct rbd_resize {
	char *name;
	uint64_t new_size;
};
static const struct rpc_param rbd_resize_params[] = {
	RPC_PARAM(struct rbd_resize, name, RPC_STRING, RPC_REQUIRED, "of the bdev"),
	RPC_PARAM(struct rbd_resize, new_size, RPC_UINT64, RPC_REQUIRED, "MiB, not less than it has", .min = 1,
		  .max = (uint64_t)1 << 40),
	RPC_PARAM_END};

static void rbd_resized(void *req, int rc, const char *text)
{
	rpc_bdev_answer_true(req, rc, text);
}

static void rpc_bdev_rbd_resize(struct rpc_request *req, void *params)
{
	const struct rbd_resize *p = params;

	bdev_rbd_resize(p->name, p->new_size << 20, rbd_resized, req);
}
RPC_METHOD("bdev_rbd_resize", rpc_bdev_rbd_resize, struct rbd_resize, rbd_resize_params, RPC_RUNTIME,
	   "Make an image larger, and its bdev with it", .in_turn = true, .result = "true",
	   .waits_for = by_bdev_waits_for)

struct rbd_fence_silent {
	char *name, *clients;
	uint64_t until_us;
};
static const struct rpc_param rbd_fence_silent_params[] = {
	RPC_PARAM(struct rbd_fence_silent, name, RPC_STRING, RPC_REQUIRED, "of the bdev"),
	RPC_PARAM(struct rbd_fence_silent, clients, RPC_STRING, RPC_REQUIRED,
		  "addresses of clients, as `client` of bdev_get_bdevs, separated by commas"),
	RPC_PARAM(struct rbd_fence_silent, until_us, RPC_UINT64, RPC_OPTIONAL,
		  "nobody is blocklisted later, microseconds of CLOCK_BOOTTIME; default: no limit", .min = 1,
		  .max = INT64_MAX),
	RPC_PARAM_END};

static void rbd_fenced(void *req, int rc, const char *error, const char *const *addresses, size_t n)
{
	if (rc != 0) {
		rpc_error(req, rc, "%s", error);
		return;
	}
	json_t *answer = json_array();
	for (size_t i = 0; i < n; i++) {
		json_array_append_new(answer, rpc_string(addresses[i]));
	}
	rpc_reply(req, answer);
}

static void rpc_bdev_rbd_fence_silent(struct rpc_request *req, void *params)
{
	const struct rbd_fence_silent *p = params;

	bdev_rbd_fence_silent(p->name, p->clients, p->until_us != 0 ? p->until_us : BDEV_OWN_FOR_EVER, rbd_fenced, req);
}
RPC_METHOD(
	"bdev_rbd_fence_silent", rpc_bdev_rbd_fence_silent, struct rbd_fence_silent, rbd_fence_silent_params,
	RPC_RUNTIME,
	"Blocklist those of the named clients of Ceph that watch the image, do not have its lock, and twice in a row "
	"do not answer within 2 seconds. Answers the addresses of those that were blocklisted",
	.result = "[string]", .waits_for = by_bdev_waits_for)

static json_t *rbd_job_json(const struct bdev_rbd_job_info *info)
{
	json_t *job = json_object();

	add_text(job, "job", info->name);
	add_text(job, "cluster_name", info->cluster_name);
	add_text(job, "bdev", info->bdev);
	add_text(job, "pool_name", info->pool);
	add_text(job, "rbd_name", info->image);
	add_text(job, "call", info->call);
	rpc_bdev_add_uint(job, "age_us", info->age_us);
	return job;
}

static void rpc_bdev_rbd_get_jobs(struct rpc_request *req, void *params)
{
	struct bdev_rbd_job_info info;
	json_t *answer = json_array();

	for (size_t n = 0; bdev_rbd_get_job(n, &info); n++) {
		json_array_append_new(answer, rbd_job_json(&info));
	}
	rpc_reply(req, answer);
}
RPC_METHOD("bdev_rbd_get_jobs", rpc_bdev_rbd_get_jobs, struct rpc_no_params, NULL, RPC_RUNTIME,
	   "List what is under way in Ceph's libraries besides I/O: connections, images and locks",
	   .result = "[{job: string, cluster_name?: string, bdev?: string, pool_name?: string, rbd_name?: string, "
		     "call?: string, age_us: int}]")

/* --- Saved configuration --- */

static void bdev_rbd_write_clusters(json_t *methods)
{
	struct bdev_rbd_cluster_info info;

	for (size_t n = 0; bdev_rbd_get_cluster(n, &info); n++) {
		rpc_config_add(methods, "bdev_rbd_register_cluster", cluster_params(&info.opts, "name"));
	}
}

static void bdev_rbd_write_config(json_t *methods, const struct bdev *b)
{
	struct bdev_rbd_opts o;

	bdev_rbd_get(b, &o);
	json_t *params = rpc_bdev_params("name", o.name);
	add_text(params, "pool_name", o.pool);
	add_text(params, "rbd_name", o.image);
	rpc_bdev_add_uint(params, "block_size", o.block_size);
	rpc_bdev_add_uuid(params, o.uuid);
	rpc_bdev_add_true(params, "read_only", o.read_only);
	rpc_bdev_add_true(params, "standby", o.standby);
	add_text(params, "rados_namespace", o.rados_namespace);
	add_text(params, "snapshot", o.snapshot);
	add_text(params, "cluster_name", o.cluster.name);
	if (o.cluster.name == NULL) {
		add_text(params, "user_id", o.cluster.user_id);
		add_settings(params, "config", &o.cluster);
	}
	rpc_config_add(methods, "bdev_rbd_create", params);
}
RPC_BDEV_CONFIG(rbd, .write_module = bdev_rbd_write_clusters, .write_bdev = bdev_rbd_write_config)

static void loss_notify(const char *name, const char *reason)
{
	notify_send_reason("bdev_rbd_lost", name, reason);
}

__attribute__((constructor)) static void notify_of_losses(void)
{
	notify_type_register("bdev_rbd_lost");
	bdev_rbd_observe_losses(loss_notify);
}

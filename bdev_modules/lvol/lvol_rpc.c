/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods of volume stores and volumes. Each waits until no new bdev is being looked at for a store, so that a client
 * that has just made a bdev finds the store on it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bdev_modules/lvol/bdev_lvol.h"
#include "rpc_methods/bdev_module.h"

#define MIB (1ull << 20)

/* The first member of the parameters of each method. */
struct lvol_call {
	struct rpc_request *req;
	struct bdev_examine_waiter waiter;
};

static void call_begin(struct rpc_request *req, struct lvol_call *call, void (*fn)(void *params))
{
	call->req = req;
	call->waiter.done = fn;
	call->waiter.arg = call;
	bdev_wait_for_examine(&call->waiter);
}

static void call_answer_true(void *arg, int rc, const char *error, const char *uuid)
{
	const struct lvol_call *call = arg;

	rpc_bdev_answer_true(call->req, rc, error);
}

static void call_answer_uuid(void *arg, int rc, const char *error, const char *uuid)
{
	const struct lvol_call *call = arg;

	rpc_bdev_answer_name(call->req, rc, uuid, error);
}

/* Defines rpc_NAME(), which runs NAME(params) when stores have been looked for. */
#define LVOL_CALL(name_)                                                                                               \
	static void rpc_##name_(struct rpc_request *req, void *params)                                                 \
	{                                                                                                              \
		call_begin(req, params, name_);                                                                        \
	}

/* The store that a call names; NULL: the call has been answered. */
static struct bdev_lvol_store *call_find_store(const struct lvol_call *call, const char *uuid, const char *name)
{
	char error[BDEV_ERROR_MAX];
	int rc;
	struct bdev_lvol_store *s = bdev_lvol_store_find(uuid, name, &rc, error);

	if (s == NULL) {
		rpc_error(call->req, rc, "%s", error);
	}
	return s;
}

/* --- Stores --- */

#define THRESHOLDS_HELP                                                                                                \
	"operators are told when so many per cent of the clusters are in use: up to 8 numbers from 1 to 99, "          \
	"ascending; []: only when none is free (default 80, 90, 95)"

/* The thresholds that a call has; NULL: none. False: the call has been answered. */
static bool call_space(const struct lvol_call *call, const json_t *list, struct lvol_space *space)
{
	size_t n = json_array_size(list);
	uint8_t percent[LVOL_SPACE_MAX];
	struct lvol_error e;

	if (n > LVOL_SPACE_MAX) {
		rpc_error(call->req, RPC_ERROR_INVALID_PARAMS,
			  "parameter \"space_thresholds\" has %zu: up to %d are allowed", n, LVOL_SPACE_MAX);
		return false;
	}
	for (size_t i = 0; i < n; i++) {
		const json_t *v = json_array_get(list, i);
		json_int_t number = json_is_integer(v) ? json_integer_value(v) : 0;
		percent[i] = (uint8_t)(number < 0 || number > UINT8_MAX ? 0 : number);
		if (lvol_space_check(percent, i + 1, &e) != 0) {
			rpc_wrong_element(call->req, "space_thresholds", i, v,
					  "is a per cent from 1 to 99, greater than the one before");
			return false;
		}
	}
	*space = (struct lvol_space){.num = (uint8_t)n};
	memcpy(space->percent, percent, n);
	return true;
}

struct lvol_create_lvstore {
	struct lvol_call call;
	char *bdev_name, *lvs_name;
	uint32_t cluster_sz, num_md_pages_per_cluster_ratio;
	int clear_method;
	json_t *space_thresholds;
};

static const struct rpc_enum clear_methods[] = {{"unmap", BDEV_LVOL_CLEAR_UNMAP},
						{"write_zeroes", BDEV_LVOL_CLEAR_WRITE_ZEROES},
						{"none", BDEV_LVOL_CLEAR_NONE},
						{NULL, 0}};

static const struct rpc_param create_lvstore_params[] = {
	RPC_PARAM(struct lvol_create_lvstore, bdev_name, RPC_STRING, RPC_REQUIRED,
		  "that the store is made on; it is claimed"),
	RPC_PARAM(struct lvol_create_lvstore, lvs_name, RPC_STRING, RPC_REQUIRED,
		  "of the new store, at most 63 characters"),
	RPC_PARAM(struct lvol_create_lvstore, cluster_sz, RPC_UINT32, RPC_OPTIONAL,
		  "bytes that are allocated at once, a power of two from 65536 to 1 GiB (default 4 MiB)"),
	RPC_PARAM(struct lvol_create_lvstore, clear_method, RPC_ENUM, RPC_OPTIONAL,
		  "what is done to the bdev first (default unmap)", .enums = clear_methods),
	RPC_PARAM(struct lvol_create_lvstore, num_md_pages_per_cluster_ratio, RPC_UINT32, RPC_OPTIONAL,
		  "pages of metadata per 100 clusters (default 100)"),
	RPC_ONLY(md_page_size, RPC_UINT32, "4096", "other sizes of metadata pages are not supported"),
	RPC_PARAM(struct lvol_create_lvstore, space_thresholds, RPC_ARRAY, RPC_OPTIONAL, THRESHOLDS_HELP, .own = true),
	RPC_PARAM_END};

static void create_lvstore(void *params)
{
	struct lvol_create_lvstore *p = params;
	struct lvol_space space;

	if (!call_space(&p->call, p->space_thresholds, &space)) {
		return;
	}
	bdev_lvol_store_create(&(struct bdev_lvol_store_opts){.bdev_name = p->bdev_name,
							      .name = p->lvs_name,
							      .cluster_bytes = p->cluster_sz,
							      .md_ratio = p->num_md_pages_per_cluster_ratio,
							      .clear = (enum bdev_lvol_clear)p->clear_method,
							      .space = p->space_thresholds != NULL ? &space : NULL},
			       call_answer_uuid, p);
}
LVOL_CALL(create_lvstore)
RPC_METHOD("bdev_lvol_create_lvstore", rpc_create_lvstore, struct lvol_create_lvstore, create_lvstore_params,
	   RPC_RUNTIME, "Make a volume store on a bdev; what was on it is lost. Answers its UUID", .result = "string",
	   .in_turn = true)

struct lvol_by_store {
	struct lvol_call call;
	char *uuid, *lvs_name;
};

static const struct rpc_param by_store_params[] = {
	RPC_PARAM(struct lvol_by_store, uuid, RPC_STRING, RPC_OPTIONAL, "of the store; or its name"),
	RPC_PARAM(struct lvol_by_store, lvs_name, RPC_STRING, RPC_OPTIONAL, "of the store; or its UUID"),
	RPC_PARAM_END};

static void delete_lvstore(void *params)
{
	struct lvol_by_store *p = params;
	struct bdev_lvol_store *s = call_find_store(&p->call, p->uuid, p->lvs_name);

	if (s != NULL) {
		bdev_lvol_store_delete(s, call_answer_true, p);
	}
}
LVOL_CALL(delete_lvstore)
RPC_METHOD("bdev_lvol_delete_lvstore", rpc_delete_lvstore, struct lvol_by_store, by_store_params, RPC_RUNTIME,
	   "Delete a volume store with all its volumes; answered when all their users have closed them",
	   .result = "true")

struct lvol_two_names {
	struct lvol_call call;
	char *old_name, *new_name;
};

static const struct rpc_param rename_lvstore_params[] = {
	RPC_PARAM(struct lvol_two_names, old_name, RPC_STRING, RPC_REQUIRED, "of the store"),
	RPC_PARAM(struct lvol_two_names, new_name, RPC_STRING, RPC_REQUIRED, "at most 63 characters"), RPC_PARAM_END};

static void rename_lvstore(void *params)
{
	struct lvol_two_names *p = params;
	struct bdev_lvol_store *s = call_find_store(&p->call, NULL, p->old_name);

	if (s != NULL) {
		bdev_lvol_store_rename(s, p->new_name, call_answer_true, p);
	}
}
LVOL_CALL(rename_lvstore)
RPC_METHOD("bdev_lvol_rename_lvstore", rpc_rename_lvstore, struct lvol_two_names, rename_lvstore_params, RPC_RUNTIME,
	   "Rename a volume store, and with it the aliases of its volumes", .result = "true")

struct lvol_set_space {
	struct lvol_call call;
	char *uuid, *lvs_name;
	json_t *space_thresholds;
};

static const struct rpc_param set_space_params[] = {
	RPC_PARAM(struct lvol_set_space, uuid, RPC_STRING, RPC_OPTIONAL, "of the store; or its name"),
	RPC_PARAM(struct lvol_set_space, lvs_name, RPC_STRING, RPC_OPTIONAL, "of the store; or its UUID"),
	RPC_PARAM(struct lvol_set_space, space_thresholds, RPC_ARRAY, RPC_OPTIONAL, THRESHOLDS_HELP), RPC_PARAM_END};

static void space_was_set(void *arg, int status)
{
	const struct lvol_set_space *p = arg;
	char error[BDEV_ERROR_MAX];

	snprintf(error, sizeof(error), "the metadata of store '%.60s' could not be changed: %s",
		 p->lvs_name != NULL ? p->lvs_name : p->uuid, strerror(-status));
	rpc_bdev_answer_true(p->call.req, status, error);
}

static void set_space_thresholds(void *params)
{
	struct lvol_set_space *p = params;
	struct lvol_space space;

	if (!call_space(&p->call, p->space_thresholds, &space)) {
		return;
	}
	struct bdev_lvol_store *s = call_find_store(&p->call, p->uuid, p->lvs_name);
	if (s != NULL) {
		bdev_lvol_store_set_space(s, p->space_thresholds != NULL ? &space : NULL, space_was_set, p);
	}
}
LVOL_CALL(set_space_thresholds)
RPC_METHOD("bdev_lvol_set_space_thresholds", rpc_set_space_thresholds, struct lvol_set_space, set_space_params,
	   RPC_RUNTIME, "Set the thresholds of a volume store that operators are told of; the store keeps them",
	   .result = "true", .own = true)

static const char *const space_types[] = {
	[BDEV_LVOL_SPACE_LOW] = "bdev_lvol_space_low",
	[BDEV_LVOL_SPACE_OUT] = "bdev_lvol_space_out",
	[BDEV_LVOL_SPACE_REGAINED] = "bdev_lvol_space_regained",
};

static void space_notify(const char *store, const struct bdev_lvol_space_news *news, const char *reason)
{
	char ctx[LVOL_NAME_MAX + 8];

	snprintf(ctx, sizeof(ctx), "%s %u", store, news->percent);
	notify_send_reason(space_types[news->kind], ctx, reason);
}

__attribute__((constructor)) static void notify_of_space(void)
{
	for (size_t i = 0; i < sizeof(space_types) / sizeof(space_types[0]); i++) {
		notify_type_register(space_types[i]);
	}
	bdev_lvol_observe_space(space_notify);
}

static json_t *describe_thresholds(const struct lvol_space *space)
{
	json_t *list = json_array();

	for (size_t i = 0; i < space->num; i++) {
		json_array_append_new(list, rpc_uint(space->percent[i]));
	}
	return list;
}

static json_t *describe_store(const struct bdev_lvol_store *s)
{
	const struct lvol_live_info info = lvol_live_info(bdev_lvol_store_live(s));
	struct lvol_space space;
	uint8_t reached = bdev_lvol_store_space(s, &space);
	json_t *o = json_object();

	json_object_set_new(o, "uuid", rpc_string(info.uuid));
	json_object_set_new(o, "name", rpc_string(info.name));
	json_object_set_new(o, "base_bdev", rpc_string(bdev_lvol_store_base(s)));
	json_object_set_new(o, "total_data_clusters", rpc_uint(info.total_data_clusters));
	json_object_set_new(o, "free_clusters", rpc_uint(info.free_clusters));
	json_object_set_new(o, "reserved_clusters", rpc_uint(info.reserved_clusters));
	json_object_set_new(o, "reserved_missing_clusters", rpc_uint(info.missing_clusters));
	json_object_set_new(o, "md_pages", rpc_uint(info.md_pages));
	json_object_set_new(o, "free_md_pages", rpc_uint(info.free_md_pages));
	json_object_set_new(o, "reserved_md_pages", rpc_uint(info.reserved_md_pages));
	json_object_set_new(o, "reserved_missing_md_pages", rpc_uint(info.missing_md_pages));
	json_object_set_new(o, "block_size", rpc_uint(info.io_unit_bytes));
	json_object_set_new(o, "cluster_size", rpc_uint(info.cluster_bytes));
	json_object_set_new(o, "max_growable_size", rpc_uint(info.max_clusters * info.cluster_bytes));
	json_object_set_new(o, "space_thresholds", describe_thresholds(&space));
	json_object_set_new(o, "space_reached", rpc_uint(reached));
	return o;
}

/* Calls fn for the store that is named, or for all. False: the call has been answered. */
static bool for_each_store(const struct lvol_call *call, const char *uuid, const char *name,
			   void (*fn)(json_t *list, const struct bdev_lvol_store *s), json_t *list)
{
	const struct bdev_lvol_store *s;

	if (uuid == NULL && name == NULL) {
		for (s = bdev_lvol_store_next(NULL); s != NULL; s = bdev_lvol_store_next(s)) {
			fn(list, s);
		}
		return true;
	}
	s = call_find_store(call, uuid, name);
	if (s != NULL) {
		fn(list, s);
	}
	return s != NULL;
}

static void call_answer_list(const struct lvol_call *call, const char *uuid, const char *name,
			     void (*fn)(json_t *list, const struct bdev_lvol_store *s))
{
	json_t *list = json_array();

	if (for_each_store(call, uuid, name, fn, list)) {
		rpc_reply(call->req, list);
	} else {
		json_decref(list);
	}
}

static void list_store(json_t *list, const struct bdev_lvol_store *s)
{
	json_array_append_new(list, describe_store(s));
}

static void get_lvstores(void *params)
{
	const struct lvol_by_store *p = params;

	call_answer_list(&p->call, p->uuid, p->lvs_name, list_store);
}
LVOL_CALL(get_lvstores)
RPC_METHOD("bdev_lvol_get_lvstores", rpc_get_lvstores, struct lvol_by_store, by_store_params, RPC_RUNTIME,
	   "List the volume stores, or one",
	   .result = "[{uuid: string, name: string, base_bdev: string, total_data_clusters: int, free_clusters: int, "
		     "reserved_clusters: int, reserved_missing_clusters: int, md_pages: int, free_md_pages: int, "
		     "reserved_md_pages: int, reserved_missing_md_pages: int, block_size: int, cluster_size: int, "
		     "max_growable_size: int, "
		     "space_thresholds: [int], space_reached: int}]")

/* --- Volumes --- */

struct lvol_get_lvols {
	struct lvol_call call;
	char *lvs_uuid, *lvs_name;
};

static const struct rpc_param get_lvols_params[] = {
	RPC_PARAM(struct lvol_get_lvols, lvs_uuid, RPC_STRING, RPC_OPTIONAL, "of the store; or its name"),
	RPC_PARAM(struct lvol_get_lvols, lvs_name, RPC_STRING, RPC_OPTIONAL, "of the store; or its UUID"),
	RPC_PARAM_END};

static json_t *describe_volume(const struct bdev_lvol_store *s, const struct lvol_live_volume *v)
{
	const struct lvol_live_info info = lvol_live_info(bdev_lvol_store_live(s));
	json_t *o = json_object(), *lvs = json_object();

	json_object_set_new(o, "alias", rpc_string_format("%s/%s", info.name, v->name));
	json_object_set_new(o, "uuid", rpc_string(v->uuid));
	json_object_set_new(o, "name", rpc_string(v->name));
	json_object_set_new(o, "is_thin_provisioned", json_boolean(v->thin));
	json_object_set_new(o, "is_snapshot", json_boolean(v->num_clones > 0));
	json_object_set_new(o, "is_clone", json_boolean(v->parent != NULL));
	json_object_set_new(o, "is_esnap_clone", json_boolean(v->external != NULL));
	json_object_set_new(o, "is_degraded", json_boolean(v->external_clusters != 0 && v->user == NULL));
	json_object_set_new(o, "num_allocated_clusters", rpc_uint(v->num_own));
	json_object_set_new(o, "num_reserved_clusters", rpc_uint(v->reserved));
	json_object_set_new(lvs, "name", rpc_string(info.name));
	json_object_set_new(lvs, "uuid", rpc_string(info.uuid));
	json_object_set_new(o, "lvs", lvs);
	return o;
}

static void list_volumes(json_t *list, const struct bdev_lvol_store *s)
{
	const struct lvol_live *live = bdev_lvol_store_live(s);
	const struct lvol_live_volume *v;

	for (v = lvol_live_next(live, NULL); v != NULL; v = lvol_live_next(live, v)) {
		json_array_append_new(list, describe_volume(s, v));
	}
}

static void get_lvols(void *params)
{
	const struct lvol_get_lvols *p = params;

	call_answer_list(&p->call, p->lvs_uuid, p->lvs_name, list_volumes);
}
LVOL_CALL(get_lvols)
RPC_METHOD("bdev_lvol_get_lvols", rpc_get_lvols, struct lvol_get_lvols, get_lvols_params, RPC_RUNTIME,
	   "List the volumes of all stores, or of one",
	   .result = "[{alias: string, uuid: string, name: string, is_thin_provisioned: bool, is_snapshot: bool, "
		     "is_clone: bool, is_esnap_clone: bool, is_degraded: bool, num_allocated_clusters: int, "
		     "num_reserved_clusters: int, lvs: {name: string, uuid: string}}]")

struct lvol_create {
	struct lvol_call call;
	char *lvol_name, *uuid, *lvs_name;
	uint64_t size_in_mib, size, reserved_in_mib;
	bool thin_provision;
};

static const struct rpc_param create_params[] = {
	RPC_PARAM(struct lvol_create, lvol_name, RPC_STRING, RPC_REQUIRED, "of the new volume, at most 63 characters"),
	RPC_PARAM(struct lvol_create, size_in_mib, RPC_UINT64, RPC_OPTIONAL,
		  "rounded up to whole clusters; it or size is required", .min = 1, .max = UINT64_MAX / MIB),
	RPC_PARAM(struct lvol_create, size, RPC_UINT64, RPC_OPTIONAL,
		  "bytes, as older clients send it; rounded up to whole clusters", .own = true),
	RPC_PARAM(struct lvol_create, thin_provision, RPC_BOOL, RPC_OPTIONAL,
		  "allocate clusters at the first write (default false)"),
	RPC_PARAM(struct lvol_create, reserved_in_mib, RPC_UINT64, RPC_OPTIONAL,
		  "that the volume is sure of: bdev_lvol_set_reservation (default 0)", .max = UINT64_MAX / MIB,
		  .own = true),
	RPC_PARAM(struct lvol_create, uuid, RPC_STRING, RPC_OPTIONAL, "of the store; or its name"),
	RPC_PARAM(struct lvol_create, lvs_name, RPC_STRING, RPC_OPTIONAL, "of the store; or its UUID"),
	RPC_NO_EFFECT(clear_method, RPC_STRING, "\"default\"",
		      "clusters are overwritten before another volume can read them, and unmapped when they come free"),
	RPC_PARAM_END};

/* In bytes. 0: the call has been answered. */
static uint64_t call_size(const struct lvol_call *call, uint64_t mib, uint64_t bytes)
{
	if ((mib != 0) == (bytes != 0)) {
		rpc_error(call->req, RPC_ERROR_INVALID_PARAMS, "size_in_mib: it or size must be given, and not both");
		return 0;
	}
	return bytes != 0 ? bytes : mib * MIB;
}

static void create(void *params)
{
	struct lvol_create *p = params;

	uint64_t bytes = call_size(&p->call, p->size_in_mib, p->size);

	if (bytes == 0) {
		return;
	}
	struct bdev_lvol_store *s = call_find_store(&p->call, p->uuid, p->lvs_name);
	if (s != NULL) {
		bdev_lvol_create(&(struct bdev_lvol_opts){.store = s,
							  .name = p->lvol_name,
							  .size_bytes = bytes,
							  .thin = p->thin_provision,
							  .reserved_bytes = p->reserved_in_mib * MIB},
				 call_answer_uuid, p);
	}
}
LVOL_CALL(create)
RPC_METHOD("bdev_lvol_create", rpc_create, struct lvol_create, create_params, RPC_RUNTIME,
	   "Make a volume. Answers its bdev's name, which is the volume's UUID; STORE/NAME is an alias",
	   .result = "string", .in_turn = true)

struct lvol_by_name {
	struct lvol_call call;
	char *name;
};

static const struct rpc_param by_name_params[] = {
	RPC_PARAM(struct lvol_by_name, name, RPC_STRING, RPC_REQUIRED, "of the volume: its UUID, or STORE/NAME"),
	RPC_PARAM_END};

static void change_by_name(const struct lvol_by_name *p, enum bdev_lvol_change change)
{
	bdev_lvol_change(&(struct bdev_lvol_change_opts){.change = change, .name = p->name}, call_answer_true,
			 (void *)(uintptr_t)p);
}

static void delete (void *params)
{
	change_by_name(params, BDEV_LVOL_DELETE);
}
LVOL_CALL(delete)
RPC_METHOD("bdev_lvol_delete", rpc_delete, struct lvol_by_name, by_name_params, RPC_RUNTIME,
	   "Delete a volume; answered when all its users have closed it. A snapshot must not have several clones",
	   .result = "true")

struct lvol_snapshot {
	struct lvol_call call;
	char *lvol_name, *snapshot_name;
};

static const struct rpc_param snapshot_params[] = {
	RPC_PARAM(struct lvol_snapshot, lvol_name, RPC_STRING, RPC_REQUIRED, "of the volume: its UUID, or STORE/NAME"),
	RPC_PARAM(struct lvol_snapshot, snapshot_name, RPC_STRING, RPC_REQUIRED,
		  "of the new snapshot, without the store's name"),
	RPC_PARAM_END};

static void snapshot(void *params)
{
	struct lvol_snapshot *p = params;

	bdev_lvol_change(&(struct bdev_lvol_change_opts){.change = BDEV_LVOL_SNAPSHOT,
							 .name = p->lvol_name,
							 .new_name = p->snapshot_name},
			 call_answer_uuid, p);
}
LVOL_CALL(snapshot)
RPC_METHOD("bdev_lvol_snapshot", rpc_snapshot, struct lvol_snapshot, snapshot_params, RPC_RUNTIME,
	   "Make a snapshot of a volume, which becomes a clone of it. Answers the snapshot's UUID", .result = "string",
	   .in_turn = true)

struct lvol_clone {
	struct lvol_call call;
	char *snapshot_name, *clone_name;
};

static const struct rpc_param clone_params[] = {RPC_PARAM(struct lvol_clone, snapshot_name, RPC_STRING, RPC_REQUIRED,
							  "of a snapshot or read-only volume: its UUID, or STORE/NAME"),
						RPC_PARAM(struct lvol_clone, clone_name, RPC_STRING, RPC_REQUIRED,
							  "of the new volume, without the store's name"),
						RPC_PARAM_END};

static void clone(void *params)
{
	struct lvol_clone *p = params;

	bdev_lvol_change(&(struct bdev_lvol_change_opts){.change = BDEV_LVOL_CLONE,
							 .name = p->snapshot_name,
							 .new_name = p->clone_name},
			 call_answer_uuid, p);
}
LVOL_CALL(clone)
RPC_METHOD("bdev_lvol_clone", rpc_clone, struct lvol_clone, clone_params, RPC_RUNTIME,
	   "Make a volume that has the data of a snapshot. Answers its UUID", .result = "string", .in_turn = true)

static const struct rpc_param rename_params[] = {
	RPC_PARAM(struct lvol_two_names, old_name, RPC_STRING, RPC_REQUIRED, "of the volume: its UUID, or STORE/NAME"),
	RPC_PARAM(struct lvol_two_names, new_name, RPC_STRING, RPC_REQUIRED, "without the store's name"),
	RPC_PARAM_END};

static void rename_volume(void *params)
{
	struct lvol_two_names *p = params;

	bdev_lvol_change(&(struct bdev_lvol_change_opts){.change = BDEV_LVOL_RENAME,
							 .name = p->old_name,
							 .new_name = p->new_name},
			 call_answer_true, p);
}
LVOL_CALL(rename_volume)
RPC_METHOD("bdev_lvol_rename", rpc_rename_volume, struct lvol_two_names, rename_params, RPC_RUNTIME,
	   "Rename a volume, and its alias with it", .result = "true")

struct lvol_resize {
	struct lvol_call call;
	char *name;
	uint64_t size_in_mib, size;
};

static const struct rpc_param resize_params[] = {
	RPC_PARAM(struct lvol_resize, name, RPC_STRING, RPC_REQUIRED, "of the volume: its UUID, or STORE/NAME"),
	RPC_PARAM(struct lvol_resize, size_in_mib, RPC_UINT64, RPC_OPTIONAL,
		  "rounded up to whole clusters; it or size is required", .min = 1, .max = UINT64_MAX / MIB),
	RPC_PARAM(struct lvol_resize, size, RPC_UINT64, RPC_OPTIONAL,
		  "bytes, as older clients send it; rounded up to whole clusters", .own = true),
	RPC_PARAM_END};

static void resize(void *params)
{
	struct lvol_resize *p = params;
	uint64_t bytes = call_size(&p->call, p->size_in_mib, p->size);

	if (bytes != 0) {
		bdev_lvol_change(&(struct bdev_lvol_change_opts){.change = BDEV_LVOL_RESIZE,
								 .name = p->name,
								 .size_bytes = bytes},
				 call_answer_true, p);
	}
}
LVOL_CALL(resize)
RPC_METHOD("bdev_lvol_resize", rpc_resize, struct lvol_resize, resize_params, RPC_RUNTIME,
	   "Change the size of a volume; what is behind a smaller end is lost", .result = "true")

struct lvol_set_reservation {
	struct lvol_call call;
	char *name;
	uint64_t reserved_in_mib;
};

static const struct rpc_param set_reservation_params[] = {
	RPC_PARAM(struct lvol_set_reservation, name, RPC_STRING, RPC_REQUIRED,
		  "of the volume: its UUID, or STORE/NAME"),
	RPC_PARAM(struct lvol_set_reservation, reserved_in_mib, RPC_UINT64, RPC_REQUIRED,
		  "rounded up to whole clusters, at most its size; 0: nothing", .max = UINT64_MAX / MIB),
	RPC_PARAM_END};

static void set_reservation(void *params)
{
	struct lvol_set_reservation *p = params;

	bdev_lvol_change(&(struct bdev_lvol_change_opts){.change = BDEV_LVOL_RESERVE,
							 .name = p->name,
							 .size_bytes = p->reserved_in_mib * MIB},
			 call_answer_true, p);
}
LVOL_CALL(set_reservation)
RPC_METHOD("bdev_lvol_set_reservation", rpc_set_reservation, struct lvol_set_reservation, set_reservation_params,
	   RPC_RUNTIME,
	   "Set how much of a volume is sure to find room in its store: its own clusters, and free ones that no other "
	   "volume gets. A snapshot of it is refused if the store has not as much room once more; the snapshot itself "
	   "reserves nothing. Pages for the metadata of all its clusters are kept, too",
	   .result = "true", .own = true)

static void set_read_only(void *params)
{
	change_by_name(params, BDEV_LVOL_SET_READ_ONLY);
}
LVOL_CALL(set_read_only)
RPC_METHOD("bdev_lvol_set_read_only", rpc_set_read_only, struct lvol_by_name, by_name_params, RPC_RUNTIME,
	   "Make a volume read-only, for good", .result = "true")

static void inflate(void *params)
{
	change_by_name(params, BDEV_LVOL_INFLATE);
}
LVOL_CALL(inflate)
RPC_METHOD("bdev_lvol_inflate", rpc_inflate, struct lvol_by_name, by_name_params, RPC_RUNTIME,
	   "Allocate all clusters of a volume, with copies of its snapshot's; it depends on no snapshot then",
	   .result = "true")

static void decouple_parent(void *params)
{
	change_by_name(params, BDEV_LVOL_DECOUPLE);
}
LVOL_CALL(decouple_parent)
RPC_METHOD(
	"bdev_lvol_decouple_parent", rpc_decouple_parent, struct lvol_by_name, by_name_params, RPC_RUNTIME,
	"Copy the clusters of a volume's snapshot to the volume, which then depends on that snapshot's parent, if any",
	.result = "true")

struct lvol_set_parent {
	struct lvol_call call;
	char *lvol_name, *parent_name;
};

static const struct rpc_param set_parent_params[] = {
	RPC_PARAM(struct lvol_set_parent, lvol_name, RPC_STRING, RPC_REQUIRED,
		  "of the volume: its UUID, or STORE/NAME"),
	RPC_PARAM(struct lvol_set_parent, parent_name, RPC_STRING, RPC_REQUIRED,
		  "of a snapshot with the same data: its UUID, or STORE/NAME"),
	RPC_PARAM_END};

static void set_parent(void *params)
{
	struct lvol_set_parent *p = params;

	bdev_lvol_change(&(struct bdev_lvol_change_opts){.change = BDEV_LVOL_SET_PARENT,
							 .name = p->lvol_name,
							 .new_name = p->parent_name},
			 call_answer_true, p);
}
LVOL_CALL(set_parent)
RPC_METHOD("bdev_lvol_set_parent", rpc_set_parent, struct lvol_set_parent, set_parent_params, RPC_RUNTIME,
	   "Make a snapshot the parent of a volume", .result = "true")

static const struct rpc_param set_parent_bdev_params[] = {
	RPC_PARAM(struct lvol_set_parent, lvol_name, RPC_STRING, RPC_REQUIRED,
		  "of a thin volume: its UUID, or STORE/NAME"),
	RPC_PARAM(struct lvol_set_parent, parent_name, RPC_STRING, RPC_REQUIRED,
		  "of a bdev with the same data, outside of the store"),
	RPC_PARAM_END};

static void set_parent_bdev(void *params)
{
	struct lvol_set_parent *p = params;

	bdev_lvol_change(&(struct bdev_lvol_change_opts){.change = BDEV_LVOL_SET_PARENT_BDEV,
							 .name = p->lvol_name,
							 .new_name = p->parent_name},
			 call_answer_true, p);
}
LVOL_CALL(set_parent_bdev)
RPC_METHOD("bdev_lvol_set_parent_bdev", rpc_set_parent_bdev, struct lvol_set_parent, set_parent_bdev_params,
	   RPC_RUNTIME, "Make a bdev outside of the store the parent of a volume; nobody may write to it from then on",
	   .result = "true")

struct lvol_clone_bdev {
	struct lvol_call call;
	char *bdev, *lvs_name, *clone_name;
};

static const struct rpc_param clone_bdev_params[] = {
	RPC_PARAM(struct lvol_clone_bdev, bdev, RPC_STRING, RPC_REQUIRED,
		  "the bdev, outside of the store; nobody may write to it as long as the volume depends on it"),
	RPC_PARAM(struct lvol_clone_bdev, lvs_name, RPC_STRING, RPC_REQUIRED, "of the store"),
	RPC_PARAM(struct lvol_clone_bdev, clone_name, RPC_STRING, RPC_REQUIRED,
		  "of the new volume, without the store's name"),
	RPC_PARAM_END};

static void clone_bdev(void *params)
{
	struct lvol_clone_bdev *p = params;
	struct bdev_lvol_store *s = call_find_store(&p->call, NULL, p->lvs_name);

	if (s != NULL) {
		bdev_lvol_clone_bdev(s, p->bdev, p->clone_name, call_answer_uuid, p);
	}
}
LVOL_CALL(clone_bdev)
RPC_METHOD("bdev_lvol_clone_bdev", rpc_clone_bdev, struct lvol_clone_bdev, clone_bdev_params, RPC_RUNTIME,
	   "Make a volume that has the data of a bdev outside of the store. Answers its UUID", .result = "string",
	   .in_turn = true)

struct lvol_start_shallow_copy {
	struct lvol_call call;
	char *src_lvol_name, *dst_bdev_name;
};

static const struct rpc_param start_shallow_copy_params[] = {
	RPC_PARAM(struct lvol_start_shallow_copy, src_lvol_name, RPC_STRING, RPC_REQUIRED,
		  "of a read-only volume: its UUID, or STORE/NAME"),
	RPC_PARAM(struct lvol_start_shallow_copy, dst_bdev_name, RPC_STRING, RPC_REQUIRED,
		  "that is written, and claimed meanwhile; at least as large as the volume"),
	RPC_PARAM_END};

static void start_shallow_copy(void *params)
{
	struct lvol_start_shallow_copy *p = params;
	char error[BDEV_ERROR_MAX];
	uint32_t id;
	int rc = bdev_lvol_shallow_copy_start(p->src_lvol_name, p->dst_bdev_name, &id, error);

	if (rc != 0) {
		rpc_error(p->call.req, rc, "%s", error);
		return;
	}
	json_t *o = json_object();
	json_object_set_new(o, "operation_id", rpc_uint(id));
	rpc_reply(p->call.req, o);
}
LVOL_CALL(start_shallow_copy)
RPC_METHOD("bdev_lvol_start_shallow_copy", rpc_start_shallow_copy, struct lvol_start_shallow_copy,
	   start_shallow_copy_params, RPC_RUNTIME,
	   "Copy the clusters that a volume has itself, without its snapshots', to a bdev, in the background",
	   .result = "{operation_id: int}")

struct lvol_check_shallow_copy {
	uint32_t operation_id;
};

static const struct rpc_param check_shallow_copy_params[] = {
	RPC_PARAM(struct lvol_check_shallow_copy, operation_id, RPC_UINT32, RPC_REQUIRED,
		  "that bdev_lvol_start_shallow_copy has answered"),
	RPC_PARAM_END};

static void rpc_check_shallow_copy(struct rpc_request *req, void *params)
{
	const struct lvol_check_shallow_copy *p = params;
	struct bdev_lvol_shallow_copy c;

	if (!bdev_lvol_shallow_copy_get(p->operation_id, &c)) {
		rpc_error(req, -ENOENT, "there is no shallow copy %u: it has not begun, or ended long ago",
			  p->operation_id);
		return;
	}
	json_t *o = json_object();
	const char *state = !c.has_ended ? "in progress" : c.error != 0 ? "error" : "complete";
	json_object_set_new(o, "state", rpc_string(state));
	json_object_set_new(o, "copied_clusters", rpc_uint(c.copied_clusters));
	json_object_set_new(o, "total_clusters", rpc_uint(c.total_clusters));
	if (c.has_ended && c.error != 0) {
		json_object_set_new(o, "error", rpc_string(strerror(-c.error)));
	}
	rpc_reply(req, o);
}
RPC_METHOD("bdev_lvol_check_shallow_copy", rpc_check_shallow_copy, struct lvol_check_shallow_copy,
	   check_shallow_copy_params, RPC_RUNTIME, "Tell how far a shallow copy has come",
	   .result = "{state: string, copied_clusters: int, total_clusters: int, error?: string}")

static void store_grown(void *arg, int status)
{
	const struct lvol_call *call = arg;

	rpc_bdev_answer_true(call->req, status,
			     status == -ENOSPC
				     ? "the bdev has not grown, or the store's masks have no room for more clusters"
				     : strerror(-status));
}

static void grow_lvstore(void *params)
{
	struct lvol_by_store *p = params;
	struct bdev_lvol_store *s = call_find_store(&p->call, p->uuid, p->lvs_name);

	if (s != NULL) {
		bdev_lvol_store_grow(s, store_grown, p);
	}
}
LVOL_CALL(grow_lvstore)
RPC_METHOD("bdev_lvol_grow_lvstore", rpc_grow_lvstore, struct lvol_by_store, by_store_params, RPC_RUNTIME,
	   "Use what was added to the bdev of a store", .result = "true")

/* The stores keep their volumes. */
static bool bdev_lvol_is_saved(const struct bdev *b)
{
	const struct bdev *bases[2];

	bdev_lvol_get_bases(b, bases);
	return (bases[0] == NULL || rpc_bdev_is_saved(bases[0])) && (bases[1] == NULL || rpc_bdev_is_saved(bases[1]));
}
RPC_BDEV_CONFIG(lvol, .is_saved = bdev_lvol_is_saved)

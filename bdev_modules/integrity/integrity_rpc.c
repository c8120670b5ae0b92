/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods that make, watch, scrub and delete integrity bdevs, and the calls that make them again. */
#include "bdev_modules/integrity/integrity.h"

#include <errno.h>
#include <string.h>

#include "bdev/vbdev/waiting.h"
#include "rpc_methods/bdev_module.h"

/* --- Making them --- */

struct integrity_create {
	char *name, *base_bdev_name, *uuid;
	bool format;
	struct rpc_request *req; /* not a parameter */
};

#define INTEGRITY_PARAM(field_, type_, required_, help_, ...)                                                          \
	RPC_PARAM(struct integrity_create, field_, type_, required_, help_, ##__VA_ARGS__)
static const struct rpc_param integrity_create_params[] = {
	INTEGRITY_PARAM(name, RPC_STRING, RPC_REQUIRED, "of the new bdev"),
	INTEGRITY_PARAM(base_bdev_name, RPC_STRING, RPC_REQUIRED,
			"the bdev that has data and checksums, which it claims"),
	INTEGRITY_PARAM(uuid, RPC_UUID, RPC_OPTIONAL,
			"that the base must have; with format: that it gets (default: a random one)"),
	INTEGRITY_PARAM(format, RPC_BOOL, RPC_OPTIONAL,
			"make a new one: what was on the base is lost. Refused if the base has one (default false: use "
			"what the base has, or make one on a RAM disk that nobody has written to)"),
	RPC_PARAM_END};

static void integrity_created(void *arg, int rc, const char *error)
{
	const struct integrity_create *p = arg;

	rpc_bdev_answer_name(p->req, rc, p->name, error);
}

static void rpc_bdev_integrity_create(struct rpc_request *req, void *params)
{
	struct integrity_create *p = params;
	uint8_t uuid[16];

	p->req = req;
	bdev_integrity_create(&(struct bdev_integrity_opts){.name = p->name,
							    .base_bdev_name = p->base_bdev_name,
							    .uuid = rpc_bdev_uuid(p->uuid, uuid),
							    .format = p->format},
			      integrity_created, p);
}
RPC_METHOD("bdev_integrity_create", rpc_bdev_integrity_create, struct integrity_create, integrity_create_params,
	   RPC_RUNTIME,
	   "Create a bdev that checks what is read of another one by checksums, at once or when that one comes",
	   .own = true, .result = "string", .in_turn = true)

RPC_BDEV_DELETE_METHOD(integrity, "an integrity bdev")

/* --- Watching them --- */

static json_t *integrity_bad_json(const struct bdev_integrity_scrub *s)
{
	json_t *list = json_array();

	for (uint64_t i = 0; i < s->units_bad && i < BDEV_INTEGRITY_SCRUB_LIST; i++) {
		json_array_append_new(list, rpc_uint(s->bad[i]));
	}
	return list;
}

static json_t *integrity_scrub_json(const struct bdev_integrity_scrub *s)
{
	json_t *o = json_object();

	json_object_set_new(o, "running", json_boolean(s->running));
	json_object_set_new(o, "completed", json_boolean(s->completed));
	json_object_set_new(o, "mib_per_second", rpc_uint(s->mib_per_second));
	json_object_set_new(o, "blocks_read", rpc_uint(s->units_done));
	json_object_set_new(o, "blocks_wrong", rpc_uint(s->units_bad));
	json_object_set_new(o, "blocks_failed", rpc_uint(s->units_failed));
	json_object_set_new(o, "blocks_unchecked", rpc_uint(s->units_unchecked));
	json_object_set_new(o, "first_wrong", integrity_bad_json(s));
	return o;
}

static json_t *integrity_json(const struct bdev *b)
{
	struct bdev_integrity_info info;
	struct bdev_integrity_scrub scrub;
	json_t *o = rpc_bdev_params("name", bdev_name(b));

	bdev_integrity_get_info(b, &info);
	bdev_integrity_scrub_get(b, &scrub);
	json_object_set_new(o, "base_bdev_name", rpc_string(bdev_name(bdev_integrity_base(b))));
	rpc_bdev_add_uuid(o, bdev_uuid(b));
	json_object_set_new(o, "read_only", json_boolean(info.read_only));
	json_object_set_new(o, "num_blocks", rpc_uint(info.units));
	json_object_set_new(o, "regions", rpc_uint(info.regions));
	json_object_set_new(o, "regions_open", rpc_uint(info.regions_open));
	json_object_set_new(o, "regions_unclean", rpc_uint(info.regions_unclean));
	json_object_set_new(o, "regions_unknown", rpc_uint(info.regions_unknown));
	json_object_set_new(o, "errors", rpc_uint(info.errors));
	json_object_set_new(o, "checksum_pages_wrong", rpc_uint(info.checksum_pages_wrong));
	json_object_set_new(o, "blocks_unchecked", rpc_uint(info.units_unchecked));
	if (scrub.ever) {
		json_object_set_new(o, "scrub", integrity_scrub_json(&scrub));
	}
	return o;
}

struct integrity_by_name {
	char *name;
};

/* NULL: the request has been answered. */
static struct bdev *integrity_named(struct rpc_request *req, const char *name)
{
	struct bdev *b = bdev_integrity_find(name);

	if (b == NULL) {
		rpc_error(req, -ENODEV, "parameter \"name\" is \"%.150s\": there is no such integrity bdev", name);
	}
	return b;
}

static const struct rpc_param integrity_get_params[] = {
	RPC_PARAM(struct integrity_by_name, name, RPC_STRING, RPC_OPTIONAL, "of one integrity bdev (default: all)"),
	RPC_PARAM_END};

static void rpc_bdev_integrity_get_bdevs(struct rpc_request *req, void *params)
{
	const struct integrity_by_name *p = params;
	struct bdev *b, *one = p->name != NULL ? integrity_named(req, p->name) : NULL;
	struct bdev_integrity_opts opts;

	if (p->name != NULL && one == NULL) {
		return;
	}
	json_t *list = json_array();
	for (b = NULL; (b = bdev_next(b)) != NULL;) {
		if ((one == NULL || b == one) && bdev_integrity_get(b, &opts)) {
			json_array_append_new(list, integrity_json(b));
		}
	}
	rpc_reply(req, list);
}
RPC_METHOD("bdev_integrity_get_bdevs", rpc_bdev_integrity_get_bdevs, struct integrity_by_name, integrity_get_params,
	   RPC_RUNTIME, "List integrity bdevs, with what was found wrong and how far a scrub is",
	   .result = "[{name: string, base_bdev_name: string, uuid: string, read_only: bool, num_blocks: int, regions: "
		     "int, regions_open: int, regions_unclean: int, regions_unknown: int, errors: int, "
		     "checksum_pages_wrong: int, blocks_unchecked: int, scrub?: {running: bool, completed: bool, "
		     "mib_per_second: int, blocks_read: int, blocks_wrong: int, blocks_failed: int, blocks_unchecked: "
		     "int, first_wrong: [int]}}]")

/* --- Scrub --- */

struct integrity_scrub_start {
	char *name;
	uint32_t mib_per_second;
};

static const struct rpc_param scrub_start_params[] = {
	RPC_PARAM(struct integrity_scrub_start, name, RPC_STRING, RPC_REQUIRED, "of the integrity bdev"),
	RPC_PARAM(struct integrity_scrub_start, mib_per_second, RPC_UINT32, RPC_OPTIONAL,
		  "at most, from 1 to 100000 (default 100)"),
	RPC_PARAM_END};

static void scrub_start_defaults(void *params)
{
	((struct integrity_scrub_start *)params)->mib_per_second = 100;
}

static void rpc_bdev_integrity_scrub_start(struct rpc_request *req, void *params)
{
	const struct integrity_scrub_start *p = params;
	struct bdev *b = integrity_named(req, p->name);
	char error[BDEV_ERROR_MAX];

	if (b != NULL) {
		rpc_bdev_answer_true(req, bdev_integrity_scrub_start(b, p->mib_per_second, error), error);
	}
}
RPC_METHOD(
	"bdev_integrity_scrub_start", rpc_bdev_integrity_scrub_start, struct integrity_scrub_start, scrub_start_params,
	RPC_RUNTIME,
	"Read all of an integrity bdev in the background, so that what is wrong is found; or change the rate of that",
	.defaults = scrub_start_defaults, .result = "true")

static const struct rpc_param scrub_stop_params[] = {
	RPC_PARAM(struct integrity_by_name, name, RPC_STRING, RPC_REQUIRED, "of the integrity bdev"), RPC_PARAM_END};

static void rpc_bdev_integrity_scrub_stop(struct rpc_request *req, void *params)
{
	const struct integrity_by_name *p = params;
	struct bdev *b = integrity_named(req, p->name);

	if (b != NULL) {
		bdev_integrity_scrub_stop(b);
		rpc_bdev_answer_true(req, 0, "");
	}
}
RPC_METHOD("bdev_integrity_scrub_stop", rpc_bdev_integrity_scrub_stop, struct integrity_by_name, scrub_stop_params,
	   RPC_RUNTIME, "End the scrub of an integrity bdev, if there is one", .result = "true")

/* --- Notifications --- */

__attribute__((constructor)) static void notify_of_integrity(void)
{
	notify_type_register("bdev_integrity_error");
	bdev_integrity_set_notice_fn(notify_send_reason);
}

/* --- The configuration --- */

static void write_integrity_opts(json_t *methods, const struct bdev_integrity_opts *opts)
{
	json_t *params = rpc_bdev_params("name", opts->name);

	json_object_set_new(params, "base_bdev_name", rpc_string(opts->base_bdev_name));
	if (opts->uuid != NULL) {
		rpc_bdev_add_uuid(params, opts->uuid);
	}
	rpc_config_add(methods, "bdev_integrity_create", params);
}

static void bdev_integrity_write_config(json_t *methods, const struct bdev *b)
{
	struct bdev_integrity_opts opts;

	if (bdev_integrity_get(b, &opts)) {
		write_integrity_opts(methods, &opts);
	}
}

static void bdev_integrity_write_waiting(json_t *methods, const struct vbdev_waiting *w)
{
	struct bdev_integrity_opts opts;

	if (bdev_integrity_get_waiting(w, &opts)) {
		write_integrity_opts(methods, &opts);
	}
}

static bool bdev_integrity_is_saved(const struct bdev *b)
{
	return rpc_bdev_is_saved(bdev_integrity_base(b));
}
RPC_BDEV_CONFIG(integrity, .write_bdev = bdev_integrity_write_config, .is_saved = bdev_integrity_is_saved,
		.write_waiting = bdev_integrity_write_waiting)

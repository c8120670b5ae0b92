/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods for all bdevs: the list, examination, options; and the notifications of registration and removal. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bdev/bdev.h"
#include "bdev/qos_group.h"
#include "bdev/vbdev/waiting.h"
#include "env_dpdk/env.h"
#include "env_dpdk/iobuf.h"
#include "rpc_methods/bdev.h"
#include "rpc_methods/rate.h"
#include "rpc/rpc.h"
#include "thread/thread.h"

struct bdev *rpc_bdev_find(struct rpc_request *req, const char *name)
{
	struct bdev *b = bdev_find(name);

	if (b == NULL) {
		rpc_error(req, -ENODEV, "name: there is no bdev '%s'", name);
	}
	return b;
}

/* --- bdev_get_bdevs --- */

/* All I/O types that clients know. Those without a bdev_io_type are never supported. */
static const struct {
	const char *name;
	enum bdev_io_type type;
} io_types[] = {
	{"read", BDEV_IO_READ},
	{"write", BDEV_IO_WRITE},
	{"unmap", BDEV_IO_UNMAP},
	{"flush", BDEV_IO_FLUSH},
	{"reset", BDEV_IO_RESET},
	{"nvme_admin", BDEV_IO_NVME_ADMIN},
	{"nvme_io", BDEV_IO_NVME_IO},
	{"nvme_io_md", BDEV_IO_NVME_IO_MD},
	{"write_zeroes", BDEV_IO_WRITE_ZEROES},
	{"zcopy", BDEV_IO_ZCOPY},
	{"get_zone_info", BDEV_IO_INVALID},
	{"zone_management", BDEV_IO_INVALID},
	{"zone_append", BDEV_IO_INVALID},
	{"compare", BDEV_IO_COMPARE},
	{"compare_and_write", BDEV_IO_COMPARE_AND_WRITE},
	{"abort", BDEV_IO_ABORT},
	{"seek_hole", BDEV_IO_INVALID},
	{"seek_data", BDEV_IO_INVALID},
	{"copy", BDEV_IO_COPY},
	{"nvme_iov_md", BDEV_IO_INVALID},
	{"nvme_nssr", BDEV_IO_INVALID},
	/* ours */
	{"verify", BDEV_IO_VERIFY},
	{"write_uncorrectable", BDEV_IO_WRITE_UNCORRECTABLE},
};

static json_t *io_types_json(const struct bdev *b)
{
	json_t *o = json_object();

	for (size_t i = 0; i < sizeof(io_types) / sizeof(io_types[0]); i++) {
		json_object_set_new(o, io_types[i].name, json_boolean(bdev_io_type_supported(b, io_types[i].type)));
	}
	return o;
}

static json_t *aliases_json(const struct bdev *b)
{
	json_t *list = json_array();

	for (const char *a = NULL; (a = bdev_alias_next(b, a)) != NULL;) {
		json_array_append_new(list, rpc_string(a));
	}
	return list;
}

static json_t *limits_json(const struct bdev *b)
{
	struct rate_limits l;
	json_t *o = json_object();

	bdev_get_qos_limits(b, &l);
	rpc_rate_add(o, &l, false);
	return o;
}

static void add_hints(json_t *o, const struct bdev *b)
{
	const struct bdev_hints *h = bdev_get_hints(b);
	const struct {
		const char *name;
		uint32_t value;
	} fields[] = {
		{"preferred_write_granularity", h->preferred_write_granularity},
		{"preferred_write_alignment", h->preferred_write_alignment},
		{"optimal_write_size", h->optimal_write_size},
		{"preferred_unmap_granularity", h->preferred_unmap_granularity},
		{"preferred_unmap_alignment", h->preferred_unmap_alignment},
	};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		if (fields[i].value != 0) {
			json_object_set_new(o, fields[i].name, rpc_uint(fields[i].value));
		}
	}
}

static void add_claim(json_t *o, const struct bdev *b)
{
	const char *owner;
	enum bdev_claim_type claim = bdev_get_claim(b, &owner);

	json_object_set_new(o, "claimed", json_boolean(claim != BDEV_CLAIM_NONE));
	if (claim != BDEV_CLAIM_NONE) {
		json_object_set_new(o, "claim_type", json_string(bdev_claim_type_name(claim)));
		json_object_set_new(o, "claimed_by", rpc_string(owner));
	}
}

static json_t *checks_json(uint8_t checks)
{
	json_t *o = json_object();

	json_object_set_new(o, "reftag", json_boolean(checks & BDEV_DIF_REF));
	json_object_set_new(o, "apptag", json_boolean(checks & BDEV_DIF_APP));
	json_object_set_new(o, "guard", json_boolean(checks & BDEV_DIF_GUARD));
	return o;
}

static void add_md(json_t *o, const struct bdev *b)
{
	const struct bdev_md *md = bdev_get_md(b);

	if (md->size == 0) {
		return;
	}
	json_object_set_new(o, "md_size", rpc_uint(md->size));
	json_object_set_new(o, "md_interleave", json_boolean(!md->kept_apart));
	json_object_set_new(o, "dif_type", rpc_uint(md->dif_type));
	if (md->dif_type != 0) {
		json_object_set_new(o, "dif_is_head_of_md", json_boolean(md->dif_is_first));
		json_object_set_new(o, "enabled_dif_check_types", checks_json(md->checks));
		json_object_set_new(o, "dif_pi_format", rpc_uint(md->dif_guard));
	}
}

/* Clients know metadata that is kept apart as no part of the block. */
static uint32_t shown_block_size(const struct bdev *b)
{
	return bdev_get_md(b)->kept_apart ? bdev_data_block_size(b) : bdev_block_size(b);
}

static json_t *rpc_bdev_json(const struct bdev *b)
{
	char uuid[BDEV_UUID_STRLEN];
	json_t *o = json_object(), *driver_specific = json_object();

	bdev_uuid_format(bdev_uuid(b), uuid);
	json_object_set_new(o, "name", rpc_string(bdev_name(b)));
	json_object_set_new(o, "aliases", aliases_json(b));
	json_object_set_new(o, "product_name", rpc_string(bdev_product_name(b)));
	json_object_set_new(o, "block_size", rpc_uint(shown_block_size(b)));
	json_object_set_new(o, "physical_block_size", rpc_uint(bdev_physical_block_size(b)));
	json_object_set_new(o, "num_blocks", rpc_uint(bdev_num_blocks(b)));
	json_object_set_new(o, "uuid", json_string(uuid));
	json_object_set_new(o, "numa_id", json_integer(bdev_numa_node(b)));
	add_hints(o, b);
	json_object_set_new(o, "assigned_rate_limits", limits_json(b));
	if (bdev_qos_group_of(b) != NULL) {
		json_object_set_new(o, "qos_group", rpc_string(bdev_qos_group_name(bdev_qos_group_of(b))));
	}
	add_md(o, b);
	add_claim(o, b);
	json_object_set_new(o, "zoned", json_false());
	json_object_set_new(o, "supported_io_types", io_types_json(b));
	json_object_set_new(o, "state", json_string(bdev_state_name(bdev_get_state(b))));
	json_object_set_new(o, "state_us", rpc_uint(env_ticks_to_ns(env_ticks() - bdev_state_ticks(b)) / 1000));
	bdev_dump_info(b, driver_specific);
	json_object_set_new(o, "driver_specific", driver_specific);
	return o;
}

struct get_bdevs {
	char *name;
	uint64_t timeout;
};

static const struct rpc_param get_bdevs_params[] = {
	RPC_PARAM(struct get_bdevs, name, RPC_STRING, RPC_OPTIONAL, "only this one: name, alias or UUID"),
	RPC_PARAM(struct get_bdevs, timeout, RPC_UINT64, RPC_OPTIONAL,
		  "how long to wait for it to come, milliseconds; up to 1024 calls may wait", .max = 86400000),
	RPC_PARAM_END};

/* Calls that wait for a bdev to come. They outlast the clients that made them, so there is an end to how many. */
#define WAITING_MAX    1024
#define NAME_MAX_BYTES 255 /* what has a longer name than a bdev can have never comes */
static unsigned n_waiting;

struct waiting_call {
	struct rpc_request *req;
	const char *name; /* the params', which live until the answer */
	struct bdev_observer observer;
	struct thread_timer timer;
};

static void reply_with(struct rpc_request *req, const struct bdev *b)
{
	json_t *list = json_array();

	json_array_append_new(list, rpc_bdev_json(b));
	rpc_reply(req, list);
}

static void end_waiting(struct waiting_call *w, const struct bdev *b)
{
	n_waiting--;
	bdev_unobserve(&w->observer);
	thread_timer_stop(&w->timer);
	if (b != NULL) {
		reply_with(w->req, b);
	} else {
		rpc_error(w->req, -ENODEV, "name: no bdev '%s' has come in the time given", w->name);
	}
	free(w);
}

static void waited_for_came(void *ctx, struct bdev *unused)
{
	struct waiting_call *w = ctx;
	struct bdev *b = bdev_find(w->name);

	if (b != NULL) {
		end_waiting(w, b);
	}
}

static void ignore_removal(void *ctx, struct bdev *b)
{
}

static void waited_in_vain(void *arg)
{
	end_waiting(arg, NULL);
}

static void wait_for_bdev(struct rpc_request *req, const struct get_bdevs *p)
{
	if (n_waiting == WAITING_MAX) {
		rpc_error(req, -EAGAIN, "timeout %" PRIu64 ": %d calls are waiting for bdevs already, and no more can",
			  p->timeout, WAITING_MAX);
		return;
	}
	struct waiting_call *w = calloc(1, sizeof(*w));
	if (w == NULL) {
		rpc_error(req, -ENOMEM, "out of memory");
		return;
	}
	n_waiting++;
	w->req = req;
	w->name = p->name;
	w->timer.fn = waited_in_vain;
	w->timer.arg = w;
	thread_timer_start(&w->timer, p->timeout * 1000);
	w->observer.added = waited_for_came;
	w->observer.removed = ignore_removal;
	w->observer.ctx = w;
	bdev_observe(&w->observer);
}

static void rpc_bdev_get_bdevs(struct rpc_request *req, void *params)
{
	const struct get_bdevs *p = params;
	struct bdev *b;

	if (p->name == NULL) {
		json_t *list = json_array();
		for (b = NULL; (b = bdev_next(b)) != NULL;) {
			json_array_append_new(list, rpc_bdev_json(b));
		}
		rpc_reply(req, list);
	} else if ((b = bdev_find(p->name)) != NULL) {
		reply_with(req, b);
	} else if (p->timeout != 0 && strlen(p->name) <= NAME_MAX_BYTES) {
		wait_for_bdev(req, p);
	} else {
		rpc_error(req, -ENODEV, "name: there is no bdev '%s'", p->name);
	}
}

static bool get_bdevs_has_own_time(const void *params)
{
	return ((const struct get_bdevs *)params)->timeout != 0;
}
RPC_METHOD(
	"bdev_get_bdevs", rpc_bdev_get_bdevs, struct get_bdevs, get_bdevs_params, RPC_RUNTIME,
	"List block devices, or wait for one to come", .alias = "get_bdevs", .has_own_time = get_bdevs_has_own_time,
	.result =
		"[{name: string, aliases: [string], product_name: string, block_size: int, "
		"physical_block_size: int, num_blocks: int, uuid: string, numa_id: int, "
		"assigned_rate_limits: {rw_ios_per_sec: int, rw_mbytes_per_sec: int, r_mbytes_per_sec: "
		"int, w_mbytes_per_sec: int}, qos_group?: string, md_size?: int, md_interleave?: bool, dif_type?: int, "
		"dif_is_head_of_md?: bool, enabled_dif_check_types?: {reftag: bool, apptag: bool, guard: "
		"bool}, dif_pi_format?: int, claimed: bool, claim_type?: string, claimed_by?: string, "
		"zoned: bool, supported_io_types: {*: bool}, state: string, state_us: int, "
		"driver_specific: {*: any}, ...}]")

/* --- Bdevs that wait for their base --- */

static void rpc_bdev_get_waiting(struct rpc_request *req, void *params)
{
	json_t *list = json_array();

	for (const struct vbdev_waiting *w = NULL; (w = vbdev_waiting_next(w)) != NULL;) {
		json_t *o = json_object();
		json_object_set_new(o, "name", rpc_string(w->name));
		json_object_set_new(o, "base_bdev_name", rpc_string(w->base_name));
		json_object_set_new(o, "module", json_string(w->module->name));
		json_array_append_new(list, o);
	}
	rpc_reply(req, list);
}
RPC_METHOD("bdev_get_waiting", rpc_bdev_get_waiting, struct rpc_no_params, NULL, RPC_RUNTIME,
	   "List the bdevs that are not there because they wait for the bdev that they stand on",
	   .result = "[{name: string, base_bdev_name: string, module: string}]")

/* --- Examination --- */

struct bdev_by_name {
	char *name;
};

static const struct rpc_param examine_params[] = {
	RPC_PARAM(struct bdev_by_name, name, RPC_STRING, RPC_REQUIRED, "of the bdev"), RPC_PARAM_END};

static void rpc_bdev_examine(struct rpc_request *req, void *params)
{
	const struct bdev_by_name *p = params;

	if (rpc_bdev_find(req, p->name) != NULL) {
		bdev_examine(p->name);
		rpc_reply_true(req);
	}
}
RPC_METHOD("bdev_examine", rpc_bdev_examine, struct bdev_by_name, examine_params, RPC_RUNTIME,
	   "Have modules look at a bdev, as they do by themselves while bdev_auto_examine is on", .result = "true")

struct wait_for_examine {
	struct rpc_request *req;
	struct bdev_examine_waiter waiter;
};

static void examined(void *arg)
{
	const struct wait_for_examine *w = arg;

	rpc_reply_true(w->req);
}

static void rpc_bdev_wait_for_examine(struct rpc_request *req, void *params)
{
	struct wait_for_examine *w = params;

	w->req = req;
	w->waiter.done = examined;
	w->waiter.arg = w;
	bdev_wait_for_examine(&w->waiter);
}
RPC_METHOD("bdev_wait_for_examine", rpc_bdev_wait_for_examine, struct wait_for_examine, NULL, RPC_RUNTIME,
	   "Answer when all bdevs there are have been examined", .result = "true")

/* --- Options --- */

struct rpc_bdev_options rpc_bdev_options = {.bdev_io_pool_size = 65535,
					    .bdev_io_cache_size = 256,
					    .bdev_auto_examine = true,
					    .iobuf_small_cache_size = 128,
					    .iobuf_large_cache_size = 16,
					    .nomem_timeout_ms = RPC_BDEV_NOMEM_TIMEOUT_MS,
					    .split_children = RPC_BDEV_SPLIT_CHILDREN};

static void options_defaults(void *params)
{
	*(struct rpc_bdev_options *)params = rpc_bdev_options;
}

#define NO_EFFECT "saved for clients that set it; no effect: "
static const struct rpc_param options_params[] = {
	RPC_PARAM(struct rpc_bdev_options, bdev_io_pool_size, RPC_UINT32, RPC_OPTIONAL,
		  NO_EFFECT "an I/O is part of its submitter's request, not of a pool"),
	RPC_PARAM(struct rpc_bdev_options, bdev_io_cache_size, RPC_UINT32, RPC_OPTIONAL,
		  NO_EFFECT "as bdev_io_pool_size"),
	RPC_PARAM(struct rpc_bdev_options, bdev_auto_examine, RPC_BOOL, RPC_OPTIONAL, "modules look at every new bdev"),
	RPC_PARAM(struct rpc_bdev_options, iobuf_small_cache_size, RPC_UINT32, RPC_OPTIONAL,
		  "small data buffers that each thread keeps at hand, for what has to be copied or compared",
		  .max = IOBUF_COUNT_MAX),
	RPC_PARAM(struct rpc_bdev_options, iobuf_large_cache_size, RPC_UINT32, RPC_OPTIONAL,
		  "large ones; both are of threads that use their first bdev later", .max = IOBUF_COUNT_MAX),
	RPC_PARAM(struct rpc_bdev_options, nomem_timeout_ms, RPC_UINT32, RPC_OPTIONAL,
		  "how long an I/O waits for a module that has no room before it fails", .min = 1, .max = UINT32_MAX,
		  .own = true),
	RPC_PARAM(struct rpc_bdev_options, split_children, RPC_UINT32, RPC_OPTIONAL,
		  "child I/Os of split I/O that a channel has with its module at a time; before the first bdev",
		  .min = 1, .max = 4096, .own = true),
	RPC_PARAM_END};

static void rpc_bdev_set_options(struct rpc_request *req, void *params)
{
	const struct rpc_bdev_options *p = params;
	const struct bdev_opts opts = {.auto_examine = p->bdev_auto_examine,
				       .nomem_timeout_ms = p->nomem_timeout_ms,
				       .children = p->split_children,
				       .iobuf_small_cache_size = p->iobuf_small_cache_size,
				       .iobuf_large_cache_size = p->iobuf_large_cache_size};
	int rc = bdev_set_opts(&opts);

	if (rc != 0) {
		rpc_error(req, rc, "split_children %u: can be changed only before the first bdev is made",
			  p->split_children);
		return;
	}
	rpc_bdev_options = *p;
	rpc_reply_true(req);
}
RPC_METHOD("bdev_set_options", rpc_bdev_set_options, struct rpc_bdev_options, options_params, RPC_STARTUP | RPC_RUNTIME,
	   "Set options of the bdev layer; what is not given stays as it is", .defaults = options_defaults,
	   .result = "true")

/* --- Events --- */

static void rpc_bdev_added(void *ctx, struct bdev *b)
{
	notify_send("bdev_register", bdev_name(b));
}

static void rpc_bdev_removed(void *ctx, struct bdev *b)
{
	notify_send("bdev_unregister", bdev_name(b));
}

static void rpc_bdev_resized(void *ctx, struct bdev *b)
{
	notify_send("bdev_resize", bdev_name(b));
}

static struct bdev_observer notifier = {
	.added = rpc_bdev_added, .removed = rpc_bdev_removed, .resized = rpc_bdev_resized};

__attribute__((constructor)) static void notify_of_bdevs(void)
{
	notify_type_register_common("bdev_register");
	notify_type_register_common("bdev_unregister");
	notify_type_register_common("bdev_resize");
	bdev_observe(&notifier);
}

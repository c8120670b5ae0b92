/* SPDX-License-Identifier: BSD-3-Clause */
/* The bdev part of a saved configuration: options, then what the modules write, then groups, then settings of single
 * bdevs. */
#include <stdlib.h>
#include <string.h>

#include "bdev/module.h"
#include "bdev/qos_group.h"
#include "bdev/vbdev/vbdev.h"
#include "rpc_methods/bdev.h"
#include "rpc_methods/bdev_module.h"
#include "rpc_methods/rate.h"
#include "util/log.h"

static void write_options(json_t *methods)
{
	const struct rpc_bdev_options *o = &rpc_bdev_options;
	json_t *params = json_object();

	rpc_bdev_add_uint(params, "bdev_io_pool_size", o->bdev_io_pool_size);
	rpc_bdev_add_uint(params, "bdev_io_cache_size", o->bdev_io_cache_size);
	json_object_set_new(params, "bdev_auto_examine", json_boolean(o->bdev_auto_examine));
	rpc_bdev_add_uint(params, "iobuf_small_cache_size", o->iobuf_small_cache_size);
	rpc_bdev_add_uint(params, "iobuf_large_cache_size", o->iobuf_large_cache_size);
	if (!rpc_config_leaves_out(o->nomem_timeout_ms == RPC_BDEV_NOMEM_TIMEOUT_MS)) {
		rpc_bdev_add_uint(params, "nomem_timeout_ms", o->nomem_timeout_ms);
	}
	if (!rpc_config_leaves_out(o->split_children == RPC_BDEV_SPLIT_CHILDREN)) {
		rpc_bdev_add_uint(params, "split_children", o->split_children);
	}
	rpc_config_add(methods, "bdev_set_options", params);
}

static void write_qos(json_t *methods, struct bdev *b)
{
	struct rate_limits l;

	bdev_get_qos_limits(b, &l);
	if (!rate_limits_are_set(&l)) {
		return;
	}
	json_t *params = rpc_bdev_params("name", bdev_name(b));
	rpc_rate_add(params, &l, true);
	rpc_config_add(methods, "bdev_set_qos_limit", params);
}

/* Limits are set by a call of their own, so that varve-ctl can change them where the group is there already. */
static void write_qos_groups(json_t *methods)
{
	for (const struct bdev_qos_group *g = NULL; (g = bdev_qos_group_next(g)) != NULL;) {
		const struct rate_limits *l = bdev_qos_group_limits(g);
		rpc_config_add(methods, "bdev_qos_group_create", rpc_bdev_params("name", bdev_qos_group_name(g)));
		json_t *params = rpc_bdev_params("name", bdev_qos_group_name(g));
		rpc_rate_add(params, l, false);
		rpc_bdev_add_uint(params, "burst_ms", l->burst_ms != 0 ? l->burst_ms : RATE_BURST_MS);
		rpc_config_add(methods, "bdev_qos_group_set_limit", params);
	}
}

static void write_qos_group_of(json_t *methods, struct bdev *b)
{
	const struct bdev_qos_group *g = bdev_qos_group_of(b);

	if (g == NULL) {
		return;
	}
	json_t *params = rpc_bdev_params("name", bdev_name(b));
	json_object_set_new(params, "group", rpc_string(bdev_qos_group_name(g)));
	rpc_min_rate_add(params, bdev_qos_group_minimum(b));
	rpc_config_add(methods, "bdev_set_qos_group", params);
}

static void write_histogram(json_t *methods, struct bdev *b)
{
	const struct bdev_histogram_opts *h = bdev_histogram_settings(b);

	if (h == NULL) {
		return;
	}
	json_t *params = rpc_bdev_params("name", bdev_name(b));
	json_object_set_new(params, "enable", json_true());
	if (h->type != BDEV_IO_INVALID) {
		json_object_set_new(params, "opc", json_string(bdev_io_type_name(h->type)));
	}
	rpc_bdev_add_nonzero(params, "granularity", h->granularity);
	rpc_bdev_add_nonzero(params, "min_nsec", h->min_ns);
	rpc_bdev_add_nonzero(params, "max_nsec", h->max_ns);
	rpc_config_add(methods, "bdev_enable_histogram", params);
}

static void write_watching(json_t *methods, struct bdev *b)
{
	struct bdev_qd_sampling qd;

	bdev_get_qd_sampling(b, &qd);
	if (qd.period_us != 0) {
		json_t *params = rpc_bdev_params("name", bdev_name(b));
		rpc_bdev_add_uint(params, "period", qd.period_us);
		rpc_config_add(methods, "bdev_set_qd_sampling_period", params);
	}
	if (bdev_get_timeout(b) != 0) {
		json_t *params = rpc_bdev_params("name", bdev_name(b));
		rpc_bdev_add_uint(params, "timeout_us", bdev_get_timeout(b));
		rpc_config_add(methods, "bdev_set_timeout", params);
	}
	write_histogram(methods, b);
}

/* A bdev that is being deleted is left out, however long that takes: whoever asked for it does not want it back, and
 * what it stands on may be gone before. */
static bool is_being_deleted(const struct bdev *b)
{
	return bdev_get_state(b) > BDEV_READY;
}

/* The base of b if that is not saved; otherwise NULL. */
static const struct bdev *unsaved_base(const struct bdev *b)
{
	const struct bdev *base = vbdev_base_of(b);

	return base != NULL && !rpc_bdev_is_saved(base) ? base : NULL;
}

static bool module_saves(const struct bdev *b)
{
	const struct rpc_bdev_config *c = rpc_bdev_config_find(b->module->name);

	return c == NULL || c->is_saved == NULL || c->is_saved(b);
}

bool rpc_bdev_is_saved(const struct bdev *b)
{
	return !is_being_deleted(b) && module_saves(b) && unsaved_base(b) == NULL;
}

static void write_settings(json_t *methods, struct bdev *b)
{
	write_qos(methods, b);
	write_qos_group_of(methods, b);
	write_watching(methods, b);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(bdev_name(*(struct bdev *const *)a), bdev_name(*(struct bdev *const *)b));
}

/* In the order of names: the bdevs of controllers are registered in another order each time. */
static void write_all_settings(json_t *methods)
{
	struct bdev *b, **all;
	size_t n = 0;

	for (b = NULL; (b = bdev_next(b)) != NULL;) {
		n++;
	}
	all = malloc((n + 1) * sizeof(struct bdev *));
	if (all == NULL) { /* all of them, in the order of registration */
		for (b = NULL; (b = bdev_next(b)) != NULL;) {
			if (rpc_bdev_is_saved(b)) {
				write_settings(methods, b);
			}
		}
		return;
	}
	n = 0;
	for (b = NULL; (b = bdev_next(b)) != NULL;) {
		if (rpc_bdev_is_saved(b)) {
			all[n++] = b;
		}
	}
	qsort(all, n, sizeof(all[0]), by_name);
	for (size_t i = 0; i < n; i++) {
		write_settings(methods, all[i]);
	}
	free(all);
}

/* --- Modules --- */

static SLIST_HEAD(, rpc_bdev_config) module_configs = SLIST_HEAD_INITIALIZER(module_configs); /* sorted by name */

void rpc_bdev_config_register(struct rpc_bdev_config *c)
{
	struct rpc_bdev_config *before = NULL, *at;

	SLIST_FOREACH (at, &module_configs, link) {
		if (strcmp(at->module, c->module) > 0) {
			break;
		}
		before = at;
	}
	if (before == NULL) {
		SLIST_INSERT_HEAD(&module_configs, c, link);
	} else {
		SLIST_INSERT_AFTER(before, c, link);
	}
}

const struct rpc_bdev_config *rpc_bdev_config_find(const char *module)
{
	const struct rpc_bdev_config *c;

	SLIST_FOREACH (c, &module_configs, link) {
		if (strcmp(c->module, module) == 0) {
			return c;
		}
	}
	return NULL;
}

static void write_bdev(json_t *methods, const struct bdev *b)
{
	const struct rpc_bdev_config *c = rpc_bdev_config_find(b->module->name);
	const struct bdev *base = unsaved_base(b);

	if (base != NULL) {
		log_warning("bdev %s is not in the configuration, because bdev %s, on which it stands, is not", b->name,
			    bdev_name(base));
	} else if (c == NULL) {
		log_error("bdev %s: module %s cannot save it in a configuration: its methods lack an RPC_BDEV_CONFIG",
			  b->name, b->module->name);
	} else if (c->write_bdev != NULL) {
		c->write_bdev(methods, b);
	} else if (!module_saves(b)) {
		log_warning("bdev %s will not be there when the configuration is loaded, because what it stands on is "
			    "not in it",
			    b->name);
	}
}

/* One that waits though its base is there, for another bdev has the base or the name, is left out: the call would be
 * refused when the file is loaded, and the file with it. */
static bool waiting_is_saved(const struct vbdev_waiting *w)
{
	const struct bdev *same = bdev_find(w->name), *base = bdev_find(w->base_name);

	if (same != NULL && rpc_bdev_is_saved(same)) {
		return false;
	}
	return base == NULL || !rpc_bdev_is_saved(base) || bdev_get_claim(base, NULL) == BDEV_CLAIM_NONE;
}

static void write_waiting(json_t *methods)
{
	for (const struct vbdev_waiting *w = NULL; (w = vbdev_waiting_next(w)) != NULL;) {
		const struct rpc_bdev_config *c = rpc_bdev_config_find(w->module->name);
		if (c != NULL && c->write_waiting != NULL && waiting_is_saved(w)) {
			c->write_waiting(methods, w);
		}
	}
}

static void write_bdevs(json_t *methods)
{
	const struct rpc_bdev_config *c;

	write_options(methods);
	SLIST_FOREACH (c, &module_configs, link) {
		if (c->write_module != NULL) {
			c->write_module(methods);
		}
	}
	for (const struct bdev *b = NULL; (b = bdev_next(b)) != NULL;) {
		if (!is_being_deleted(b)) {
			write_bdev(methods, b);
		}
	}
	write_waiting(methods);
	write_qos_groups(methods);
	write_all_settings(methods);
	rpc_config_add(methods, "bdev_wait_for_examine", NULL);
}

static struct rpc_config bdev_config = {.name = "bdev", .after = "iobuf", .write = write_bdevs};

__attribute__((constructor)) static void register_config(void)
{
	rpc_config_register(&bdev_config);
}

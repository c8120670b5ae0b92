/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls that rebuild the bdevs there are. */
#include <stdlib.h>
#include <string.h>

#include "bdev_modules/bdev_modules.h"
#include "env_dpdk/env.h"
#include "bdev_modules/nvme/nvme_rpc.h"
#include "rpc_methods/bdev.h"

static void add_uint(json_t *params, const char *name, uint64_t value)
{
	json_object_set_new(params, name, rpc_uint(value));
}

static void add_uint_unless_0(json_t *params, const char *name, uint64_t value)
{
	if (value != 0) {
		add_uint(params, name, value);
	}
}

static json_t *params_named(const char *key, const char *name)
{
	json_t *params = json_object();
	json_object_set_new(params, key, rpc_string(name));
	return params;
}

static void add_uuid(json_t *params, const uint8_t *uuid)
{
	char text[BDEV_UUID_STRLEN];

	bdev_uuid_format(uuid, text);
	json_object_set_new(params, "uuid", json_string(text));
}

static void write_options(json_t *methods)
{
	const struct rpc_bdev_options *o = &rpc_bdev_options;
	json_t *params = json_object();

	add_uint(params, "bdev_io_pool_size", o->bdev_io_pool_size);
	add_uint(params, "bdev_io_cache_size", o->bdev_io_cache_size);
	json_object_set_new(params, "bdev_auto_examine", json_boolean(o->bdev_auto_examine));
	add_uint(params, "iobuf_small_cache_size", o->iobuf_small_cache_size);
	add_uint(params, "iobuf_large_cache_size", o->iobuf_large_cache_size);
	add_uint(params, "nomem_timeout_ms", o->nomem_timeout_ms);
	add_uint(params, "split_children", o->split_children);
	rpc_config_add(methods, "bdev_set_options", params);
}

static void add_md(json_t *params, const struct bdev_md *md, bool interleave)
{
	if (md->size == 0) {
		return;
	}
	add_uint(params, "md_size", md->size);
	if (interleave) {
		json_object_set_new(params, "md_interleave", json_true());
	}
	add_uint(params, "dif_type", md->dif_type);
	json_object_set_new(params, "dif_is_head_of_md", json_boolean(md->dif_is_first));
}

static bool write_null(json_t *methods, const struct bdev *b)
{
	struct bdev_null_opts o;

	if (!bdev_null_get(b, &o)) {
		return false;
	}
	json_t *params = params_named("name", o.name);
	add_uint(params, "num_blocks", o.num_blocks);
	add_uint(params, "block_size", o.block_size);
	add_uint(params, "physical_block_size", o.physical_block_size);
	add_uint_unless_0(params, "preferred_write_granularity", o.hints.preferred_write_granularity);
	add_uint_unless_0(params, "preferred_write_alignment", o.hints.preferred_write_alignment);
	add_uint_unless_0(params, "optimal_write_size", o.hints.optimal_write_size);
	add_uint_unless_0(params, "preferred_unmap_granularity", o.hints.preferred_unmap_granularity);
	add_uint_unless_0(params, "preferred_unmap_alignment", o.hints.preferred_unmap_alignment);
	add_md(params, &o.md, false);
	add_uuid(params, o.uuid);
	rpc_config_add(methods, "bdev_null_create", params);
	return true;
}

static bool write_malloc(json_t *methods, const struct bdev *b)
{
	struct bdev_malloc_opts o;

	if (!bdev_malloc_get(b, &o)) {
		return false;
	}
	json_t *params = params_named("name", o.name);
	add_uint(params, "num_blocks", o.num_blocks);
	add_uint(params, "block_size", o.block_size);
	add_uint(params, "physical_block_size", o.physical_block_size);
	add_uuid(params, o.uuid);
	add_uint(params, "optimal_io_boundary", o.optimal_io_boundary);
	add_md(params, &o.md, true);
	if (o.numa_id >= 0) {
		json_object_set_new(params, "numa_id", json_integer(o.numa_id));
	}
	rpc_config_add(methods, "bdev_malloc_create", params);
	return true;
}

static bool write_delay(json_t *methods, const struct bdev *b)
{
	struct bdev_delay_opts o;

	if (!bdev_delay_get(b, &o)) {
		return false;
	}
	json_t *params = params_named("name", o.name);
	json_object_set_new(params, "base_bdev_name", rpc_string(o.base_bdev_name));
	add_uint(params, "avg_read_latency", o.latency_us[BDEV_DELAY_AVG_READ]);
	add_uint(params, "p99_read_latency", o.latency_us[BDEV_DELAY_P99_READ]);
	add_uint(params, "avg_write_latency", o.latency_us[BDEV_DELAY_AVG_WRITE]);
	add_uint(params, "p99_write_latency", o.latency_us[BDEV_DELAY_P99_WRITE]);
	if (o.latency_us[BDEV_DELAY_P999_READ] != 0) {
		add_uint(params, "p999_read_latency", o.latency_us[BDEV_DELAY_P999_READ]);
	}
	if (o.latency_us[BDEV_DELAY_P999_WRITE] != 0) {
		add_uint(params, "p999_write_latency", o.latency_us[BDEV_DELAY_P999_WRITE]);
	}
	add_uuid(params, o.uuid);
	rpc_config_add(methods, "bdev_delay_create", params);
	return true;
}

static bool write_error(json_t *methods, const struct bdev *b)
{
	const char *base = bdev_error_base(b);

	if (base == NULL) {
		return false;
	}
	json_t *params = params_named("base_name", base);
	add_uuid(params, bdev_uuid(b));
	rpc_config_add(methods, "bdev_error_create", params);
	return true;
}

static bool write_uring(json_t *methods, const struct bdev *b)
{
	struct bdev_uring_opts o;

	if (!bdev_uring_get(b, &o)) {
		return false;
	}
	json_t *params = params_named("name", o.name);
	json_object_set_new(params, "filename", rpc_string(o.filename));
	add_uint_unless_0(params, "block_size", o.block_size);
	add_uuid(params, o.uuid);
	if (o.readonly) {
		json_object_set_new(params, "readonly", json_true());
	}
	if (o.fallocate) {
		json_object_set_new(params, "fallocate", json_true());
	}
	if (o.nowait) {
		json_object_set_new(params, "nowait", json_true());
	}
	rpc_config_add(methods, o.aio ? "bdev_aio_create" : "bdev_uring_create", params);
	return true;
}

static void write_qos(json_t *methods, struct bdev *b)
{
	struct bdev_qos_limits l;

	bdev_get_qos_limits(b, &l);
	if (l.rw_ios_per_sec == 0 && l.rw_bytes_per_sec == 0 && l.r_bytes_per_sec == 0 && l.w_bytes_per_sec == 0) {
		return;
	}
	json_t *params = params_named("name", bdev_name(b));
	add_uint_unless_0(params, "rw_ios_per_sec", l.rw_ios_per_sec);
	add_uint_unless_0(params, "rw_mbytes_per_sec", l.rw_bytes_per_sec >> 20);
	add_uint_unless_0(params, "r_mbytes_per_sec", l.r_bytes_per_sec >> 20);
	add_uint_unless_0(params, "w_mbytes_per_sec", l.w_bytes_per_sec >> 20);
	rpc_config_add(methods, "bdev_set_qos_limit", params);
}

static void write_histogram(json_t *methods, struct bdev *b)
{
	const struct bdev_histogram_opts *h = bdev_histogram_settings(b);

	if (h == NULL) {
		return;
	}
	json_t *params = params_named("name", bdev_name(b));
	json_object_set_new(params, "enable", json_true());
	if (h->type != BDEV_IO_INVALID) {
		json_object_set_new(params, "opc", json_string(bdev_io_type_name(h->type)));
	}
	add_uint_unless_0(params, "granularity", h->granularity);
	add_uint_unless_0(params, "min_nsec", h->min_ns);
	add_uint_unless_0(params, "max_nsec", h->max_ns);
	rpc_config_add(methods, "bdev_enable_histogram", params);
}

static void write_watching(json_t *methods, struct bdev *b)
{
	struct bdev_qd_sampling qd;

	bdev_get_qd_sampling(b, &qd);
	if (qd.period_us != 0) {
		json_t *params = params_named("name", bdev_name(b));
		add_uint(params, "period", qd.period_us);
		rpc_config_add(methods, "bdev_set_qd_sampling_period", params);
	}
	if (bdev_get_timeout(b) != 0) {
		json_t *params = params_named("name", bdev_name(b));
		add_uint(params, "timeout_us", bdev_get_timeout(b));
		rpc_config_add(methods, "bdev_set_timeout", params);
	}
	write_histogram(methods, b);
}

static void write_settings(json_t *methods, struct bdev *b)
{
	write_qos(methods, b);
	write_watching(methods, b);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(bdev_name(*(struct bdev *const *)a), bdev_name(*(struct bdev *const *)b));
}

/* By name: which of the bdevs of controllers came first is another matter each time. */
static void write_all_settings(json_t *methods)
{
	struct bdev *b, **all;
	size_t n = 0;

	for (b = NULL; (b = bdev_next(b)) != NULL;) {
		n++;
	}
	all = malloc((n + 1) * sizeof(struct bdev *));
	if (all == NULL) { /* complete, if in another order */
		for (b = NULL; (b = bdev_next(b)) != NULL;) {
			write_settings(methods, b);
		}
		return;
	}
	n = 0;
	for (b = NULL; (b = bdev_next(b)) != NULL;) {
		all[n++] = b;
	}
	qsort(all, n, sizeof(all[0]), by_name);
	for (size_t i = 0; i < n; i++) {
		write_settings(methods, all[i]);
	}
	free(all);
}

/* In the order they were made: what is on top of another one comes after it. */
static void write_bdevs(json_t *methods)
{
	static bool (*const writers[])(json_t *, const struct bdev *) = {write_null, write_malloc, write_delay,
									 write_error, write_uring};

	write_options(methods);
	bdev_nvme_rpc_write_config(methods); /* nothing is below these, and others may be on top of them */
	for (struct bdev *b = NULL; (b = bdev_next(b)) != NULL;) {
		for (size_t i = 0; i < sizeof(writers) / sizeof(writers[0]) && !writers[i](methods, b); i++) {
		}
	}
	write_all_settings(methods);
	rpc_config_add(methods, "bdev_wait_for_examine", NULL);
}

static struct rpc_config bdev_config = {.name = "bdev", .after = "iobuf", .write = write_bdevs};

__attribute__((constructor)) static void register_config(void)
{
	rpc_config_register(&bdev_config);
}

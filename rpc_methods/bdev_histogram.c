/* SPDX-License-Identifier: BSD-3-Clause */
/* Latency histograms of bdevs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "env_dpdk/env.h"
#include "rpc_methods/bdev.h"

struct enable_histogram {
	char *name;
	bool enable;
	char *opc;
	uint8_t granularity;
	uint64_t min_nsec, max_nsec;
};

static const struct rpc_param enable_histogram_params[] = {
	RPC_PARAM(struct enable_histogram, name, RPC_STRING, RPC_REQUIRED, "of the bdev"),
	RPC_PARAM(struct enable_histogram, enable, RPC_BOOL, RPC_REQUIRED, "or disable"),
	RPC_PARAM(struct enable_histogram, opc, RPC_STRING, RPC_OPTIONAL,
		  "only I/O of this type: read, write ...; default: all"),
	RPC_PARAM(struct enable_histogram, granularity, RPC_UINT8, RPC_OPTIONAL,
		  "2^granularity buckets per power of two; default: 7", .max = 9),
	RPC_PARAM(struct enable_histogram, min_nsec, RPC_UINT64, RPC_OPTIONAL,
		  "shorter times may share buckets; default: 0"),
	RPC_PARAM(struct enable_histogram, max_nsec, RPC_UINT64, RPC_OPTIONAL,
		  "longer times share a bucket; default: no bound"),
	RPC_PARAM_END};

static bool type_by_name(const char *name, enum bdev_io_type *type)
{
	for (*type = BDEV_IO_INVALID; *type < BDEV_IO_TYPES; (*type)++) {
		const char *known = bdev_io_type_name(*type);
		if (known != NULL && strcmp(known, name) == 0) {
			return true;
		}
	}
	*type = BDEV_IO_INVALID;
	return strcmp(name, "all") == 0;
}

static void rpc_bdev_enable_histogram(struct rpc_request *req, void *params)
{
	const struct enable_histogram *p = params;
	struct bdev *b = rpc_bdev_find(req, p->name);
	struct bdev_histogram_opts opts = {.granularity = p->granularity, .min_ns = p->min_nsec, .max_ns = p->max_nsec};

	if (b == NULL) {
		return;
	}
	if (p->opc != NULL && !type_by_name(p->opc, &opts.type)) {
		rpc_error(req, -EINVAL, "opc '%s': must be all, or a type of supported_io_types, such as read", p->opc);
		return;
	}
	if (!p->enable) {
		bdev_disable_histogram(b);
		rpc_reply_true(req);
		return;
	}
	int rc = bdev_enable_histogram(b, &opts);
	if (rc == 0) {
		rpc_reply_true(req);
	} else if (rc == -EINVAL) {
		rpc_error(req, rc, "min_nsec %lu: must be less than max_nsec (%lu)", p->min_nsec, p->max_nsec);
	} else {
		rpc_error(req, rc, "out of memory");
	}
}
RPC_METHOD("bdev_enable_histogram", rpc_bdev_enable_histogram, struct enable_histogram, enable_histogram_params,
	   RPC_RUNTIME, "Count a bdev's I/O by how long it took, or stop that", .result = "true")

/* RFC 4648, section 4. The caller frees it; NULL: out of memory. */
static char *base64(const uint8_t *in, size_t n)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char *text = malloc((n + 2) / 3 * 4 + 1), *out = text;

	if (text == NULL) {
		return NULL;
	}
	for (size_t i = 0; i < n; i += 3) {
		uint32_t three = (uint32_t)in[i] << 16 | (i + 1 < n ? (uint32_t)in[i + 1] << 8 : 0) |
				 (i + 2 < n ? in[i + 2] : 0);
		*out++ = digits[three >> 18];
		*out++ = digits[three >> 12 & 63];
		*out++ = i + 1 < n ? digits[three >> 6 & 63] : '=';
		*out++ = i + 2 < n ? digits[three & 63] : '=';
	}
	*out = '\0';
	return text;
}

/* The bdev's histogram, to be freed; NULL after answering why there is none. */
static struct bdev_histogram *histogram_of(struct rpc_request *req, const char *name)
{
	struct bdev *b = rpc_bdev_find(req, name);

	if (b == NULL) {
		return NULL;
	}
	if (bdev_histogram_settings(b) == NULL) {
		rpc_error(req, -EINVAL, "name '%s': its histogram is not enabled (bdev_enable_histogram)", name);
		return NULL;
	}
	struct bdev_histogram *h = bdev_get_histogram(b);
	if (h == NULL) {
		rpc_error(req, -ENOMEM, "out of memory");
	}
	return h;
}

struct get_histogram {
	char *name;
};

static const struct rpc_param get_histogram_params[] = {
	RPC_PARAM(struct get_histogram, name, RPC_STRING, RPC_REQUIRED, "of the bdev"), RPC_PARAM_END};

static void rpc_bdev_get_histogram(struct rpc_request *req, void *params)
{
	struct bdev_histogram *h = histogram_of(req, ((const struct get_histogram *)params)->name);

	if (h == NULL) {
		return;
	}
	/* Little-endian, as all machines are that this is built for. */
	char *text = base64((const uint8_t *)h->buckets, h->num_buckets * sizeof(*h->buckets));
	if (text == NULL) {
		bdev_histogram_free(h);
		rpc_error(req, -ENOMEM, "out of memory");
		return;
	}
	json_t *o = json_object();
	json_object_set_new(o, "histogram", json_string(text));
	json_object_set_new(o, "granularity", json_integer(h->shift));
	json_object_set_new(o, "bucket_shift", json_integer(h->shift)); /* its older name */
	json_object_set_new(o, "min_range", json_integer(h->min_range));
	json_object_set_new(o, "max_range", json_integer(h->max_range));
	json_object_set_new(o, "tsc_rate", rpc_uint(env_ticks_hz()));
	free(text);
	bdev_histogram_free(h);
	rpc_reply(req, o);
}
RPC_METHOD("bdev_get_histogram", rpc_bdev_get_histogram, struct get_histogram, get_histogram_params, RPC_RUNTIME,
	   "Tell a bdev's latency histogram, in base64",
	   .result = "{histogram: string, granularity: int, bucket_shift: int, min_range: int, max_range: "
		     "int, tsc_rate: int}")

/* --- Histograms with bucket limits of the caller --- */

struct get_borders {
	char *name;
	json_t *borders;
};

static const struct rpc_param get_borders_params[] = {
	RPC_PARAM(struct get_borders, name, RPC_STRING, RPC_REQUIRED, "of the bdev"),
	RPC_PARAM(struct get_borders, borders, RPC_ARRAY, RPC_REQUIRED, "microseconds, ascending, at most 256 of them"),
	RPC_PARAM_END};

#define LIMIT_MAX_US 86400000000ll /* a day, which nanoseconds hold */

/* The limits in nanoseconds. */
static bool borders_decode(struct rpc_request *req, const json_t *list, uint64_t *borders)
{
	size_t n = json_array_size(list);

	if (n == 0 || n > 256) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "parameter \"borders\" has %zu: 1 to 256 are allowed", n);
		return false;
	}
	for (size_t i = 0; i < n; i++) {
		const json_t *v = json_array_get(list, i);
		if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > LIMIT_MAX_US ||
		    (i > 0 && json_integer_value(v) <= json_integer_value(json_array_get(list, i - 1)))) {
			rpc_wrong_element(req, "borders", i, v,
					  "is a number of microseconds larger than the one before, at most %lld",
					  LIMIT_MAX_US);
			return false;
		}
		borders[i] = (uint64_t)json_integer_value(v) * 1000;
	}
	return true;
}

/* How many latencies were below each limit, and as the last element how many there were in all. A bucket counts as a
 * whole, by where it begins. */
static json_t *counts_below(const struct bdev_histogram *h, const uint64_t *borders, size_t n)
{
	json_t *list = json_array();
	uint32_t bucket = 0;
	uint64_t count = 0;

	for (size_t i = 0; i <= n; i++) {
		for (; bucket < h->num_buckets &&
		       (i == n || env_ticks_to_ns(bdev_histogram_start(h, bucket)) < borders[i]);
		     bucket++) {
			count += h->buckets[bucket];
		}
		json_array_append_new(list, rpc_uint(count));
	}
	return list;
}

static void rpc_bdev_get_histogram_borders(struct rpc_request *req, void *params)
{
	const struct get_borders *p = params;
	uint64_t borders[256];

	if (!borders_decode(req, p->borders, borders)) {
		return;
	}
	struct bdev_histogram *h = histogram_of(req, p->name);
	if (h != NULL) {
		json_t *o = json_object();
		json_object_set(o, "borders", p->borders);
		json_object_set_new(o, "borders_count", counts_below(h, borders, json_array_size(p->borders)));
		bdev_histogram_free(h);
		rpc_reply(req, o);
	}
}
RPC_METHOD("bdev_get_histogram_borders", rpc_bdev_get_histogram_borders, struct get_borders, get_borders_params,
	   RPC_RUNTIME, "Count a bdev's I/O below each of given latencies, and all of it",
	   .result = "{borders: [int], borders_count: [int]}")

/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods that watch bdevs: statistics, histograms, queue depth, what is in flight; and that limit them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "env_dpdk/env.h"
#include "rpc_methods/bdev.h"
#include "rpc_methods/rate.h"
#include "rpc/message.h"

/* --- bdev_get_iostat --- */

static const struct rpc_enum reset_modes[] = {{"all", BDEV_STAT_RESET_ALL},
					      {"maxmin", BDEV_STAT_RESET_MAXMIN},
					      {"error", BDEV_STAT_RESET_ERROR},
					      {"none", BDEV_STAT_RESET_NONE},
					      {NULL, 0}};

struct get_iostat {
	char *name;
	json_t *names;
	bool per_channel;
	int reset_mode;
};

static const struct rpc_param get_iostat_params[] = {
	RPC_PARAM(struct get_iostat, name, RPC_STRING, RPC_OPTIONAL, "one bdev; the same as names with one name"),
	RPC_PARAM(struct get_iostat, names, RPC_ARRAY, RPC_OPTIONAL, "strings: these bdevs; all, if neither is given"),
	RPC_PARAM(struct get_iostat, per_channel, RPC_BOOL, RPC_OPTIONAL, "each channel by itself; for one bdev"),
	RPC_PARAM(struct get_iostat, reset_mode, RPC_ENUM, RPC_OPTIONAL, "what to set back afterwards; default: none",
		  .enums = reset_modes),
	RPC_PARAM_END};

static void get_iostat_defaults(void *params)
{
	((struct get_iostat *)params)->reset_mode = BDEV_STAT_RESET_NONE;
}

static void add_ops(json_t *o, const char *bytes, const char *ops, const char *kind, const struct bdev_stat_ops *s)
{
	char key[64];

	json_object_set_new(o, bytes, rpc_uint(s->bytes));
	json_object_set_new(o, ops, rpc_uint(s->ops));
	snprintf(key, sizeof(key), "%s_latency_ticks", kind);
	json_object_set_new(o, key, rpc_uint(s->ticks));
	snprintf(key, sizeof(key), "max_%s_latency_ticks", kind);
	json_object_set_new(o, key, rpc_uint(s->max_ticks));
	snprintf(key, sizeof(key), "min_%s_latency_ticks", kind);
	json_object_set_new(o, key, rpc_uint(s->ops != 0 && s->min_ticks != UINT64_MAX ? s->min_ticks : 0));
}

/* By NVMe status, "0x280": type and code. */
static json_t *errors_json(const struct bdev_stat *s)
{
	json_t *o = json_object();

	for (unsigned i = 0; i < BDEV_STAT_ERRORS; i++) {
		char key[16];
		snprintf(key, sizeof(key), "0x%03x", s->errors[i].status);
		if (s->errors[i].count != 0) {
			json_object_set_new(o, i == BDEV_STAT_ERRORS - 1 ? "other" : key, rpc_uint(s->errors[i].count));
		}
	}
	return o;
}

void rpc_bdev_add_stat_ops(json_t *o, const struct bdev_stat_ops class[BDEV_STAT_CLASSES])
{
	add_ops(o, "bytes_read", "num_read_ops", "read", &class[BDEV_STAT_READ]);
	add_ops(o, "bytes_written", "num_write_ops", "write", &class[BDEV_STAT_WRITE]);
	add_ops(o, "bytes_unmapped", "num_unmap_ops", "unmap", &class[BDEV_STAT_UNMAP]);
	add_ops(o, "bytes_copied", "num_copy_ops", "copy", &class[BDEV_STAT_COPY]);
}

static void add_stat(json_t *o, const struct bdev_stat *s)
{
	rpc_bdev_add_stat_ops(o, s->class);
	json_object_set_new(o, "io_error", errors_json(s));
	json_object_set_new(o, "in_flight", rpc_uint(s->queue_depth));
	json_object_set_new(o, "num_nomem_waits", rpc_uint(s->nomem_waits));
	json_object_set_new(o, "num_qos_waits", rpc_uint(s->qos_waits));
	json_object_set_new(o, "num_split_waits", rpc_uint(s->child_waits));
}

static json_t *stat_json(struct bdev *b)
{
	struct bdev_qd_sampling qd;
	struct bdev_stat s;
	json_t *o = json_object();

	bdev_get_stat(b, &s);
	bdev_get_qd_sampling(b, &qd);
	json_object_set_new(o, "name", rpc_string(bdev_name(b)));
	add_stat(o, &s);
	if (qd.period_us != 0) {
		json_object_set_new(o, "queue_depth_polling_period", rpc_uint(qd.period_us));
		json_object_set_new(o, "queue_depth", rpc_uint(qd.queue_depth));
		json_object_set_new(o, "io_time", rpc_uint(qd.io_time_us));
		json_object_set_new(o, "weighted_io_time", rpc_uint(qd.weighted_io_time_us));
	}
	json_t *driver_specific = json_object();
	bdev_dump_stat(b, driver_specific);
	json_object_set_new(o, "driver_specific", driver_specific);
	return o;
}

static void add_channel(void *list, uint64_t thread_id, const struct bdev_stat *stat)
{
	json_t *o = json_object();

	json_object_set_new(o, "thread_id", rpc_uint(thread_id));
	add_stat(o, stat);
	json_array_append_new(list, o);
}

static json_t *answer_with_time(void)
{
	json_t *o = json_object();

	json_object_set_new(o, "tick_rate", rpc_uint(env_ticks_hz()));
	json_object_set_new(o, "ticks", rpc_uint(env_ticks()));
	return o;
}

static void reply_per_channel(struct rpc_request *req, struct bdev *b, enum bdev_stat_reset reset)
{
	json_t *o = answer_with_time(), *list = json_array();

	bdev_for_each_channel_stat(b, add_channel, list);
	bdev_reset_stat(b, reset);
	json_object_set_new(o, "name", rpc_string(bdev_name(b)));
	json_object_set_new(o, "channels", list);
	rpc_reply(req, o);
}

static void append_stat(json_t *list, struct bdev *b, enum bdev_stat_reset reset)
{
	json_array_append_new(list, stat_json(b));
	bdev_reset_stat(b, reset);
}

/* Checks all names before any statistics are read or reset. False: the request has been answered with the error. */
static bool check_names(struct rpc_request *req, const json_t *names)
{
	for (size_t i = 0; i < json_array_size(names); i++) {
		const json_t *one = json_array_get(names, i);
		const char *name = json_string_value(one);
		if (name == NULL || rpc_big_number(one) != NULL) {
			rpc_wrong_element(req, "names", i, one, "is the name of a bdev");
			return false;
		}
		if (bdev_find(name) == NULL) {
			rpc_error(req, -ENODEV, "names[%zu]: there is no bdev '%s'", i, name);
			return false;
		}
	}
	return true;
}

static const char *only_name(const struct get_iostat *p)
{
	return p->name != NULL                  ? p->name
	       : json_array_size(p->names) == 1 ? json_string_value(json_array_get(p->names, 0))
						: NULL;
}

static void reply_stat(struct rpc_request *req, const struct get_iostat *p)
{
	json_t *o = answer_with_time(), *list = json_array();
	enum bdev_stat_reset reset = (enum bdev_stat_reset)p->reset_mode;

	if (p->name != NULL) {
		append_stat(list, bdev_find(p->name), reset);
	} else if (p->names != NULL) {
		for (size_t i = 0; i < json_array_size(p->names); i++) {
			append_stat(list, bdev_find(json_string_value(json_array_get(p->names, i))), reset);
		}
	} else {
		for (struct bdev *b = NULL; (b = bdev_next(b)) != NULL;) {
			append_stat(list, b, reset);
		}
	}
	json_object_set_new(o, "bdevs", list);
	rpc_reply(req, o);
}

static void rpc_bdev_get_iostat(struct rpc_request *req, void *params)
{
	const struct get_iostat *p = params;

	if (p->name != NULL && p->names != NULL) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "name and names: only one of them");
	} else if (json_array_size(p->names) > 1024) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "parameter \"names\" has %zu: at most 1024 are allowed",
			  json_array_size(p->names));
	} else if ((p->name != NULL && rpc_bdev_find(req, p->name) == NULL) || !check_names(req, p->names)) {
		return;
	} else if (p->per_channel && only_name(p) == NULL) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "per_channel: needs exactly one bdev, by name");
	} else if (p->per_channel) {
		reply_per_channel(req, bdev_find(only_name(p)), (enum bdev_stat_reset)p->reset_mode);
	} else {
		reply_stat(req, p);
	}
}
#define IOSTAT_SHAPE                                                                                                   \
	"bytes_read: int, num_read_ops: int, read_latency_ticks: int, max_read_latency_ticks: "                        \
	"int, min_read_latency_ticks: int, bytes_written: int, num_write_ops: int, "                                   \
	"write_latency_ticks: int, max_write_latency_ticks: int, min_write_latency_ticks: int, "                       \
	"bytes_unmapped: int, num_unmap_ops: int, unmap_latency_ticks: int, "                                          \
	"max_unmap_latency_ticks: int, min_unmap_latency_ticks: int, bytes_copied: int, "                              \
	"num_copy_ops: int, copy_latency_ticks: int, max_copy_latency_ticks: int, "                                    \
	"min_copy_latency_ticks: int, io_error: {*: any}, in_flight: int, num_nomem_waits: int, "                      \
	"num_qos_waits: int, num_split_waits: int"
RPC_METHOD("bdev_get_iostat", rpc_bdev_get_iostat, struct get_iostat, get_iostat_params, RPC_RUNTIME,
	   "Tell what bdevs have done: I/Os, bytes, times, errors", .defaults = get_iostat_defaults,
	   .result = "{tick_rate: int, ticks: int, bdevs: [{name: string, " IOSTAT_SHAPE
		     ", driver_specific?: {*: any}, ...}]}|{tick_rate: int, ticks: int, name: string, "
		     "channels: [{thread_id: int, " IOSTAT_SHAPE ", ...}]}")

struct reset_iostat {
	char *name;
	int mode;
};

static const struct rpc_param reset_iostat_params[] = {
	RPC_PARAM(struct reset_iostat, name, RPC_STRING, RPC_OPTIONAL, "of the bdev; all, if not given"),
	RPC_PARAM(struct reset_iostat, mode, RPC_ENUM, RPC_OPTIONAL, "what; default: all", .enums = reset_modes),
	RPC_PARAM_END};

static void reset_iostat_defaults(void *params)
{
	((struct reset_iostat *)params)->mode = BDEV_STAT_RESET_ALL;
}

static void rpc_bdev_reset_iostat(struct rpc_request *req, void *params)
{
	const struct reset_iostat *p = params;
	struct bdev *b;

	if (p->name == NULL) {
		for (b = NULL; (b = bdev_next(b)) != NULL;) {
			bdev_reset_stat(b, (enum bdev_stat_reset)p->mode);
		}
	} else {
		b = rpc_bdev_find(req, p->name);
		if (b == NULL) {
			return;
		}
		bdev_reset_stat(b, (enum bdev_stat_reset)p->mode);
	}
	rpc_reply_true(req);
}
RPC_METHOD("bdev_reset_iostat", rpc_bdev_reset_iostat, struct reset_iostat, reset_iostat_params, RPC_RUNTIME,
	   "Set statistics back to zero", .defaults = reset_iostat_defaults, .result = "true")

/* --- Queue depth --- */

struct set_qd_period {
	char *name;
	uint64_t period;
};

static const struct rpc_param set_qd_period_params[] = {
	RPC_PARAM(struct set_qd_period, name, RPC_STRING, RPC_REQUIRED, "of the bdev"),
	RPC_PARAM(struct set_qd_period, period, RPC_UINT64, RPC_REQUIRED,
		  "microseconds between samples; 0: no sampling; at least 100 otherwise", .max = 3600000000),
	RPC_PARAM_END};

static void rpc_bdev_set_qd_sampling_period(struct rpc_request *req, void *params)
{
	const struct set_qd_period *p = params;
	struct bdev *b = rpc_bdev_find(req, p->name);

	if (b != NULL && p->period != 0 && p->period < 100) {
		rpc_error(req, -EINVAL, "period %lu: must be 0 or at least 100 microseconds", p->period);
	} else if (b != NULL) {
		bdev_set_qd_sampling_period(b, p->period);
		rpc_reply_true(req);
	}
}
RPC_METHOD("bdev_set_qd_sampling_period", rpc_bdev_set_qd_sampling_period, struct set_qd_period, set_qd_period_params,
	   RPC_RUNTIME, "Sample how many I/Os are in flight, for bdev_get_iostat", .result = "true")

/* --- Rate limits --- */

struct set_qos {
	char *name;
	struct rpc_rate rate;
};

static const struct rpc_param set_qos_params[] = {
	RPC_PARAM(struct set_qos, name, RPC_STRING, RPC_REQUIRED, "of the bdev"), RPC_RATE_PARAMS(struct set_qos),
	RPC_PARAM_END};

static void set_qos_defaults(void *params)
{
	rpc_rate_defaults(&((struct set_qos *)params)->rate);
}

static void rpc_bdev_set_qos_limit(struct rpc_request *req, void *params)
{
	const struct set_qos *p = params;
	struct bdev *b = rpc_bdev_find(req, p->name);
	struct rate_limits l;

	if (b == NULL) {
		return;
	}
	bdev_get_qos_limits(b, &l);
	if (rpc_rate_apply(req, &p->rate, &l)) {
		int rc = bdev_set_qos_limits(b, &l);
		if (rc != 0) {
			rpc_error(req, rc, "out of memory");
		} else {
			rpc_reply_true(req);
		}
	}
}
RPC_METHOD("bdev_set_qos_limit", rpc_bdev_set_qos_limit, struct set_qos, set_qos_params, RPC_RUNTIME,
	   "Limit the rate of a bdev's I/O, over all cores together", .defaults = set_qos_defaults, .result = "true")

/* --- Time limits, and what is in flight --- */

struct set_timeout {
	char *name;
	uint64_t timeout_us;
};

static const struct rpc_param set_timeout_params[] = {
	RPC_PARAM(struct set_timeout, name, RPC_STRING, RPC_REQUIRED, "of the bdev"),
	RPC_PARAM(struct set_timeout, timeout_us, RPC_UINT64, RPC_REQUIRED,
		  "microseconds after which an I/O in flight is named in the log and a bdev_slow_io event "
		  "sent; 0: never",
		  .max = 86400000000),
	RPC_PARAM_END};

static void on_slow_io(void *arg, struct bdev *b, const struct bdev_inflight *one)
{
	char text[512];

	snprintf(text, sizeof(text), "%s %s %lu+%lu %s %lu us", bdev_name(b), bdev_io_type_name(one->type),
		 one->offset_blocks, one->num_blocks, bdev_io_state_name(one->state),
		 env_ticks_to_ns(one->age_ticks) / 1000);
	notify_send("bdev_slow_io", text);
}

static void rpc_bdev_set_timeout(struct rpc_request *req, void *params)
{
	const struct set_timeout *p = params;
	struct bdev *b = rpc_bdev_find(req, p->name);

	if (b != NULL && p->timeout_us != 0 && p->timeout_us < 1000) {
		rpc_error(req, -EINVAL, "timeout_us %lu: must be 0 or at least 1000", p->timeout_us);
	} else if (b != NULL) {
		bdev_set_timeout(b, p->timeout_us, on_slow_io, NULL);
		rpc_reply_true(req);
	}
}
RPC_METHOD("bdev_set_timeout", rpc_bdev_set_timeout, struct set_timeout, set_timeout_params, RPC_RUNTIME,
	   "Report I/O that has been in flight for too long", .own = true, .result = "true")

__attribute__((constructor)) static void register_slow_io(void)
{
	notify_type_register("bdev_slow_io");
}

struct get_inflight {
	char *name;
	uint32_t max;
};

static const struct rpc_param get_inflight_params[] = {
	RPC_PARAM(struct get_inflight, name, RPC_STRING, RPC_OPTIONAL, "of the bdev; all, if not given"),
	RPC_PARAM(struct get_inflight, max, RPC_UINT32, RPC_OPTIONAL, "at most so many per bdev; default: 1000",
		  .min = 1, .max = 100000),
	RPC_PARAM_END};

static void get_inflight_defaults(void *params)
{
	((struct get_inflight *)params)->max = 1000;
}

struct inflight_list {
	struct bdev_inflight *one;
	uint32_t n, max;
};

static bool copy_inflight(void *arg, const struct bdev_inflight *one)
{
	struct inflight_list *l = arg;

	if (l->n == l->max) {
		return false;
	}
	l->one[l->n++] = *one;
	return true;
}

static json_t *one_json(const struct bdev_inflight *one)
{
	json_t *o = json_object();

	json_object_set_new(o, "io", rpc_hex((uintptr_t)one->io));
	json_object_set_new(o, "ctx", rpc_hex((uintptr_t)one->ctx));
	json_object_set_new(o, "thread_id", rpc_uint(one->thread_id));
	json_object_set_new(o, "type", rpc_string(bdev_io_type_name(one->type)));
	json_object_set_new(o, "state", rpc_string(bdev_io_state_name(one->state)));
	json_object_set_new(o, "offset_blocks", rpc_uint(one->offset_blocks));
	json_object_set_new(o, "num_blocks", rpc_uint(one->num_blocks));
	json_object_set_new(o, "pieces", rpc_uint(one->children));
	json_object_set_new(o, "age_us", rpc_uint(env_ticks_to_ns(one->age_ticks) / 1000));
	if (one->waits_for[0] != '\0') {
		json_object_set_new(o, "waits_for", rpc_string(one->waits_for));
	}
	return o;
}

static json_t *rpc_bdev_inflight_json(struct bdev *b, struct inflight_list *l)
{
	json_t *o = json_object(), *list = json_array();

	l->n = 0;
	bdev_for_each_inflight(b, copy_inflight, l);
	for (uint32_t i = 0; i < l->n; i++) {
		json_array_append_new(list, one_json(&l->one[i]));
	}
	json_object_set_new(o, "name", rpc_string(bdev_name(b)));
	json_object_set_new(o, "inflight", list);
	return o;
}

static void rpc_bdev_get_inflight(struct rpc_request *req, void *params)
{
	const struct get_inflight *p = params;
	bool all = p->name == NULL;
	struct bdev *only = all ? NULL : rpc_bdev_find(req, p->name);

	if (!all && only == NULL) {
		return; /* answered; the request and its parameters are gone */
	}
	struct inflight_list l = {.one = calloc(p->max, sizeof(*l.one)), .max = p->max};
	if (l.one == NULL) {
		rpc_error(req, -ENOMEM, "max %u: out of memory", p->max);
		return;
	}
	json_t *list = json_array();
	for (struct bdev *b = NULL; (b = bdev_next(b)) != NULL;) {
		if (only == NULL || b == only) {
			json_array_append_new(list, rpc_bdev_inflight_json(b, &l));
		}
	}
	free(l.one);
	rpc_reply(req, list);
}
RPC_METHOD("bdev_get_inflight", rpc_bdev_get_inflight, struct get_inflight, get_inflight_params, RPC_RUNTIME,
	   "List the I/Os in flight: what, where, in which state, for how long", .defaults = get_inflight_defaults,
	   .result = "[{name: string, inflight: [{...}]}]")

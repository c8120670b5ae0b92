/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods that watch bdevs: queue depth, time limits, what is in flight; and that limit them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "env_dpdk/env.h"
#include "rpc_methods/bdev.h"
#include "rpc_methods/rate.h"
#include "rpc/message.h"

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

/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods that make, change and delete delay bdevs, and the calls that make them again. */
#include "bdev_modules/delay/delay.h"
#include "rpc_methods/bdev_module.h"

struct delay_create {
	char *name, *base_bdev_name, *uuid;
	uint64_t avg_read_latency, p99_read_latency, avg_write_latency, p99_write_latency;
	uint64_t p999_read_latency, p999_write_latency;
};

#define DELAY_PARAM(field_, type_, required_, help_, ...)                                                              \
	RPC_PARAM(struct delay_create, field_, type_, required_, help_, ##__VA_ARGS__)
static const struct rpc_param delay_create_params[] = {
	DELAY_PARAM(name, RPC_STRING, RPC_REQUIRED, "of the new bdev"),
	DELAY_PARAM(base_bdev_name, RPC_STRING, RPC_REQUIRED, "the bdev to make slower, which it claims"),
	DELAY_PARAM(avg_read_latency, RPC_UINT64, RPC_REQUIRED, "microseconds"),
	DELAY_PARAM(p99_read_latency, RPC_UINT64, RPC_REQUIRED, "microseconds, of one in a hundred"),
	DELAY_PARAM(avg_write_latency, RPC_UINT64, RPC_REQUIRED, "microseconds"),
	DELAY_PARAM(p99_write_latency, RPC_UINT64, RPC_REQUIRED, "microseconds, of one in a hundred"),
	DELAY_PARAM(p999_read_latency, RPC_UINT64, RPC_OPTIONAL,
		    "microseconds, of one in a thousand (default 0: as the 99th)", .own = true),
	DELAY_PARAM(p999_write_latency, RPC_UINT64, RPC_OPTIONAL,
		    "microseconds, of one in a thousand (default 0: as the 99th)", .own = true),
	DELAY_PARAM(uuid, RPC_UUID, RPC_OPTIONAL, "default: a random one"),
	RPC_PARAM_END};

static void rpc_bdev_delay_create(struct rpc_request *req, void *params)
{
	const struct delay_create *p = params;
	char error[BDEV_ERROR_MAX];
	uint8_t uuid[16];
	const struct bdev_delay_opts opts = {
		.name = p->name,
		.base_bdev_name = p->base_bdev_name,
		.uuid = rpc_bdev_uuid(p->uuid, uuid),
		.latency_us = {[BDEV_DELAY_AVG_READ] = p->avg_read_latency,
			       [BDEV_DELAY_P99_READ] = p->p99_read_latency,
			       [BDEV_DELAY_P999_READ] = p->p999_read_latency,
			       [BDEV_DELAY_AVG_WRITE] = p->avg_write_latency,
			       [BDEV_DELAY_P99_WRITE] = p->p99_write_latency,
			       [BDEV_DELAY_P999_WRITE] = p->p999_write_latency},
	};

	rpc_bdev_answer_name(req, bdev_delay_create(&opts, error), p->name, error);
}
RPC_METHOD("bdev_delay_create", rpc_bdev_delay_create, struct delay_create, delay_create_params, RPC_RUNTIME,
	   "Create a bdev that makes another one slower, at once or when that one comes", .result = "string")

struct delay_update {
	char *delay_bdev_name;
	int latency_type;
	uint64_t latency_us;
};

static const struct rpc_enum latency_types[] = {{"avg_read", BDEV_DELAY_AVG_READ},
						{"p99_read", BDEV_DELAY_P99_READ},
						{"p999_read", BDEV_DELAY_P999_READ},
						{"avg_write", BDEV_DELAY_AVG_WRITE},
						{"p99_write", BDEV_DELAY_P99_WRITE},
						{"p999_write", BDEV_DELAY_P999_WRITE},
						{NULL, 0}};

static const struct rpc_param delay_update_params[] = {
	RPC_PARAM(struct delay_update, delay_bdev_name, RPC_STRING, RPC_REQUIRED, "of the delay bdev"),
	RPC_PARAM(struct delay_update, latency_type, RPC_ENUM, RPC_REQUIRED, "which", .enums = latency_types),
	RPC_PARAM(struct delay_update, latency_us, RPC_UINT64, RPC_REQUIRED, "microseconds"), RPC_PARAM_END};

static void rpc_bdev_delay_update_latency(struct rpc_request *req, void *params)
{
	const struct delay_update *p = params;
	char error[BDEV_ERROR_MAX];

	rpc_bdev_answer_true(req,
			     bdev_delay_update_latency(p->delay_bdev_name, (enum bdev_delay_latency)p->latency_type,
						       p->latency_us, error),
			     error);
}
RPC_METHOD("bdev_delay_update_latency", rpc_bdev_delay_update_latency, struct delay_update, delay_update_params,
	   RPC_RUNTIME, "Change a latency of a delay bdev", .result = "true")

RPC_BDEV_DELETE_METHOD(delay, "a delay bdev")

static void delay_write_create(json_t *methods, const struct bdev_delay_opts *o)
{
	json_t *params = rpc_bdev_params("name", o->name);

	json_object_set_new(params, "base_bdev_name", rpc_string(o->base_bdev_name));
	rpc_bdev_add_uint(params, "avg_read_latency", o->latency_us[BDEV_DELAY_AVG_READ]);
	rpc_bdev_add_uint(params, "p99_read_latency", o->latency_us[BDEV_DELAY_P99_READ]);
	rpc_bdev_add_uint(params, "avg_write_latency", o->latency_us[BDEV_DELAY_AVG_WRITE]);
	rpc_bdev_add_uint(params, "p99_write_latency", o->latency_us[BDEV_DELAY_P99_WRITE]);
	rpc_bdev_add_nonzero(params, "p999_read_latency", o->latency_us[BDEV_DELAY_P999_READ]);
	rpc_bdev_add_nonzero(params, "p999_write_latency", o->latency_us[BDEV_DELAY_P999_WRITE]);
	if (o->uuid != NULL) {
		rpc_bdev_add_uuid(params, o->uuid);
	}
	rpc_config_add(methods, "bdev_delay_create", params);
}

static void bdev_delay_write_config(json_t *methods, const struct bdev *b)
{
	struct bdev_delay_opts o;

	bdev_delay_get(b, &o);
	delay_write_create(methods, &o);
}

static void bdev_delay_write_waiting(json_t *methods, const struct vbdev_waiting *w)
{
	struct bdev_delay_opts o;

	bdev_delay_get_waiting(w, &o);
	delay_write_create(methods, &o);
}
RPC_BDEV_CONFIG(delay, .write_bdev = bdev_delay_write_config, .write_waiting = bdev_delay_write_waiting)

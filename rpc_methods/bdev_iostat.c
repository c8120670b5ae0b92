/* SPDX-License-Identifier: BSD-3-Clause */
/* bdev_get_iostat and bdev_reset_iostat. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "env_dpdk/env.h"
#include "rpc_methods/bdev.h"
#include "rpc/dispatch.h"
#include "rpc/message.h"
#include "thread/thread.h"

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

static json_t *stat_json(struct bdev *b, const struct bdev_stat *s)
{
	struct bdev_qd_sampling qd;
	json_t *o = json_object();

	bdev_get_qd_sampling(b, &qd);
	json_object_set_new(o, "name", rpc_string(bdev_name(b)));
	add_stat(o, s);
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

/* --- A visit of many bdevs, in pieces --- */

/* To read or reset statistics, the control thread waits for the reactors of the channels: with hundreds of bdevs on
 * busy reactors that is a long time. So after PIECE_US it goes on with other work first. Reactors are asked for the
 * statistics of up to BATCH bdevs at once. */
#define PIECE_US 2000
#define BATCH    64

struct iostat_walk {
	struct rpc_request *req;
	json_t *names;         /* of all bdevs that are to be visited */
	size_t next;           /* in names */
	bool leaves_out;       /* a bdev that has gone meanwhile; otherwise that is an error */
	bool refused;          /* memory for a part of the answer */
	json_t *answer, *list; /* NULL: only reset */
	enum bdev_stat_reset reset;
	struct thread_timer timer;
	/* The bdevs that are visited at once. */
	size_t n, room;
	struct bdev *bdevs[BATCH];
	size_t at[BATCH];         /* their places in names */
	struct bdev_stat stats[]; /* room of them */
};

static void iostat_walk_free(struct iostat_walk *w)
{
	json_decref(w->names);
	json_decref(w->answer);
	free(w);
}

static void iostat_walk_end(struct iostat_walk *w)
{
	if (w->refused) {
		rpc_result_lacks_memory();
	}
	if (w->answer != NULL) {
		rpc_reply(w->req, json_incref(w->answer));
	} else {
		rpc_reply_true(w->req);
	}
	iostat_walk_free(w);
}

/* The bdev at a place in names, or NULL. False: it was asked for by name, and has gone; the request has been answered.
 */
static bool iostat_find(struct iostat_walk *w, size_t at, struct bdev **b)
{
	const char *name = json_string_value(json_array_get(w->names, at));

	*b = bdev_find(name);
	if (*b == NULL && !w->leaves_out) {
		rpc_error(w->req, -ENODEV, "names[%zu]: the bdev '%s' was deleted during the call", at, name);
		return false;
	}
	return true;
}

static bool iostat_has(const struct iostat_walk *w, const struct bdev *b)
{
	for (size_t i = 0; i < w->n; i++) {
		if (w->bdevs[i] == b) {
			return true;
		}
	}
	return false;
}

/* Chooses the bdevs that come next, none of them twice. False: the request has been answered. */
static bool iostat_gather(struct iostat_walk *w)
{
	struct bdev *b;

	for (w->n = 0; w->n < w->room && w->next < json_array_size(w->names); w->next++) {
		if (!iostat_find(w, w->next, &b)) {
			return false;
		}
		if (b != NULL && iostat_has(w, b)) {
			return true; /* it begins the next ones */
		}
		if (b != NULL) {
			w->bdevs[w->n] = b;
			w->at[w->n++] = w->next;
		}
	}
	return true;
}

/* Tells of those chosen. A module that is asked for what it counts itself may have callbacks run, in which bdevs go.
 * False: the request has been answered. */
static bool iostat_tell(struct iostat_walk *w)
{
	struct bdev *b;

	bdev_get_stats(w->bdevs, w->stats, w->n);
	for (size_t i = 0; i < w->n; i++) {
		if (!iostat_find(w, w->at[i], &b)) {
			return false;
		}
		if (b == w->bdevs[i]) {
			json_array_append_new(w->list, stat_json(b, &w->stats[i]));
		}
	}
	return true;
}

/* False: the request has been answered with an error. */
static bool iostat_visit(struct iostat_walk *w)
{
	struct bdev *b;

	if (!iostat_gather(w) || (w->list != NULL && !iostat_tell(w))) {
		return false;
	}
	/* With a reset there is one at a time, and if it has gone, it is left out. */
	if (w->reset != BDEV_STAT_RESET_NONE && w->n == 1 && iostat_find(w, w->at[0], &b) && b == w->bdevs[0]) {
		bdev_reset_stat(b, w->reset);
	}
	return true;
}

static void iostat_walk_run(void *arg)
{
	struct iostat_walk *w = arg;
	uint64_t end = env_ticks() + env_us_to_ticks(PIECE_US);

	while (w->next < json_array_size(w->names)) {
		if (!iostat_visit(w)) {
			iostat_walk_free(w);
			return;
		}
		if (env_ticks() >= end && w->next < json_array_size(w->names)) {
			w->refused = rpc_json_was_refused() || w->refused;
			thread_timer_start(&w->timer, 0);
			return;
		}
	}
	w->refused = rpc_json_was_refused() || w->refused;
	iostat_walk_end(w);
}

static void iostat_walk_go_on(void *arg)
{
	rpc_json_was_refused(); /* forgets refusals of others' work */
	iostat_walk_run(arg);
}

/* NULL: out of memory. */
static json_t *names_of_all(void)
{
	json_t *names = json_array();

	for (struct bdev *b = NULL; (b = bdev_next(b)) != NULL;) {
		if (json_array_append_new(names, json_string_nocheck(bdev_name(b))) != 0) {
			json_decref(names);
			return NULL;
		}
	}
	return names;
}

/* names: of the bdevs, consumed; NULL: there is no memory for them. */
static void iostat_walk_start(struct rpc_request *req, json_t *names, const struct iostat_walk *kind)
{
	/* One by one with a reset: what happens between telling and setting back is lost. */
	size_t n = json_array_size(names), room = kind->reset != BDEV_STAT_RESET_NONE ? 1 : n < BATCH ? n : BATCH;
	struct iostat_walk *w = calloc(1, sizeof(*w) + room * sizeof(w->stats[0]));

	if (w == NULL || names == NULL) {
		free(w);
		json_decref(names);
		json_decref(kind->answer);
		rpc_error(req, -ENOMEM, "out of memory");
		return;
	}
	*w = *kind;
	w->req = req;
	w->names = names;
	w->room = room;
	w->timer.fn = iostat_walk_go_on;
	w->timer.arg = w;
	iostat_walk_run(w);
}

static void reply_stat(struct rpc_request *req, const struct get_iostat *p)
{
	struct iostat_walk kind = {.answer = answer_with_time(),
				   .list = json_array(),
				   /* With a reset, an error would lose what was told of the bdevs before it. */
				   .leaves_out = (p->name == NULL && p->names == NULL) ||
						 p->reset_mode != BDEV_STAT_RESET_NONE,
				   .reset = (enum bdev_stat_reset)p->reset_mode};
	json_t *names;

	if (json_object_set_new(kind.answer, "bdevs", kind.list) != 0) { /* it has the list then, or has freed it */
		json_decref(kind.answer);
		rpc_error(req, -ENOMEM, "out of memory");
		return;
	}
	if (p->name != NULL) {
		names = json_pack("[s]", p->name);
	} else {
		names = p->names != NULL ? json_incref(p->names) : names_of_all();
	}
	iostat_walk_start(req, names, &kind);
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
	   "Tell what bdevs have done: I/Os, bytes, times, errors", .defaults = get_iostat_defaults, .in_turn = true,
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
		iostat_walk_start(req, names_of_all(),
				  &(struct iostat_walk){.leaves_out = true, .reset = (enum bdev_stat_reset)p->mode});
	} else if ((b = rpc_bdev_find(req, p->name)) != NULL) {
		bdev_reset_stat(b, (enum bdev_stat_reset)p->mode);
		rpc_reply_true(req);
	}
}
RPC_METHOD("bdev_reset_iostat", rpc_bdev_reset_iostat, struct reset_iostat, reset_iostat_params, RPC_RUNTIME,
	   "Set statistics back to zero", .defaults = reset_iostat_defaults, .in_turn = true, .result = "true")

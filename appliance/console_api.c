/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/console_api.h"

#include <string.h>
#include <unistd.h>

#include "appliance/app.h"
#include "appliance/blackbox.h"
#include "appliance/console_history.h"
#include "bdev/bdev.h"
#include "env_dpdk/env.h"
#include "nvmf/nvmf.h"
#include "rpc/rpc.h"

/* ---- Figures ---- */

static const char *const figure_names[SERIES_FIGURES] = {
	[SERIES_IOPS] = "iops",     [SERIES_BYTES_PER_S] = "bytes_per_s", [SERIES_P50_NS] = "p50_ns",
	[SERIES_P99_NS] = "p99_ns", [SERIES_DEPTH_MILLI] = "depth_milli",
};

static json_t *console_figure(uint16_t packed)
{
	return packed == SERIES_NONE ? json_null() : rpc_uint(series_unpack(packed));
}

/* Adds the figures of the last second to o. */
static void console_add_latest(json_t *o, const struct console_series *s)
{
	uint32_t n = series_count(s->series, false);

	for (unsigned f = 0; f < SERIES_FIGURES; f++) {
		json_object_set_new(o, figure_names[f],
				    n != 0 ? console_figure(series_get(s->series, false, n - 1)->figure[f])
					   : json_null());
	}
}

/* ---- /api/series ---- */

static json_t *console_list_series(const char *query, size_t len)
{
	enum console_kind kind;

	if (!console_query_kind(query, len, &kind)) {
		return NULL;
	}
	json_t *list = json_array(), *o = json_object();
	for (const struct console_series *s = NULL; (s = console_series_next(s)) != NULL;) {
		if (s->kind == kind && console_series_is_live(s)) {
			json_t *one = json_object();
			json_object_set_new(one, "name", rpc_string(s->name));
			console_add_latest(one, s);
			json_array_append_new(list, one);
		}
	}
	json_object_set_new(o, "series", list);
	json_object_set_new(o, "left_out", json_integer(console_series_left_out()));
	return o;
}

/* ---- /api/history ---- */

static json_t *console_points(const struct series *s, bool coarse, uint32_t max)
{
	uint32_t n = series_count(s, coarse), from = n > max ? n - max : 0;
	json_t *o = json_object();

	for (unsigned f = 0; f < SERIES_FIGURES; f++) {
		json_t *list = json_array();
		for (uint32_t i = from; i < n; i++) {
			json_array_append_new(list, console_figure(series_get(s, coarse, i)->figure[f]));
		}
		json_object_set_new(o, figure_names[f], list);
	}
	return o;
}

static json_t *console_history(const char *query, size_t len)
{
	struct console_history_query q;

	if (!console_query_history(query, len, &q)) {
		return NULL;
	}
	const struct console_series *s = console_series_find(q.kind, q.name);
	if (s == NULL) {
		return NULL;
	}
	json_t *o = console_points(s->series, q.step_s != 1, q.points);
	json_object_set_new(o, "step_s", json_integer(q.step_s));
	json_object_set_new(o, "span_s", json_integer((json_int_t)q.step_s * q.points));
	return o;
}

/* ---- /api/state ---- */

static json_t *console_counts(void)
{
	uint64_t bdevs = 0, subsystems = 0, namespaces = 0, controllers = 0;

	for (struct bdev *b = NULL; (b = bdev_next(b)) != NULL;) {
		bdevs++;
	}
	for (struct nvmf_tgt *tgt = nvmf_tgt_next(NULL); tgt != NULL; tgt = nvmf_tgt_next(tgt)) {
		for (struct nvmf_subsystem *s = NULL; (s = nvmf_subsystem_next(tgt, s)) != NULL;) {
			subsystems += nvmf_subsystem_subtype(s) == NVMF_SUBTYPE_NVME;
			for (struct nvmf_ns *ns = NULL; (ns = nvmf_ns_next(s, ns)) != NULL; namespaces++) {
			}
			for (struct nvmf_ctrlr *c = NULL; (c = nvmf_ctrlr_next(s, c)) != NULL; controllers++) {
			}
		}
	}
	json_t *o = json_object();
	json_object_set_new(o, "bdevs", rpc_uint(bdevs));
	json_object_set_new(o, "subsystems", rpc_uint(subsystems));
	json_object_set_new(o, "namespaces", rpc_uint(namespaces));
	json_object_set_new(o, "controllers", rpc_uint(controllers));
	return o;
}

static json_t *console_triggers(void)
{
	const struct blackbox_trigger *t;
	json_t *list = json_array();

	TAILQ_FOREACH (t, blackbox_triggers(), link) {
		json_t *o = json_object();
		json_object_set_new(o, "name", rpc_string(t->opts.name));
		json_object_set_new(o, "type", rpc_string(blackbox_type_name(t->opts.type)));
		json_object_set_new(o, "fired", rpc_uint(t->fired));
		json_object_set_new(o, "ago_us",
				    t->fired != 0 ? rpc_uint(blackbox_now_us() - t->last_us) : json_null());
		json_object_set_new(o, "cause", rpc_string(t->last_text));
		json_object_set_new(o, "file", rpc_string(t->last_file));
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *console_state(void)
{
	const struct console_series *node = console_series_find(CONSOLE_NODE, "");
	json_t *o = json_object(), *figures = json_object();
	char host[256] = "";

	gethostname(host, sizeof(host) - 1);
	json_object_set_new(o, "host", rpc_string(host));
	json_object_set_new(o, "pid", json_integer(getpid()));
	json_object_set_new(o, "version", json_string(VARVE_VERSION));
	json_object_set_new(o, "state", json_string(appliance_state_name(app_state())));
	json_object_set_new(o, "age_us", rpc_uint(app_state_age_us()));
	json_object_set_new(o, "trace_file", rpc_string(trace_file_path()));
	json_object_set_new(o, "findings", console_findings());
	json_object_set_new(o, "counts", console_counts());
	json_object_set_new(o, "triggers", console_triggers());
	json_object_set_new(o, "history_bytes", rpc_uint(console_history_bytes()));
	if (node != NULL) {
		console_add_latest(figures, node);
	}
	json_object_set_new(o, "node", figures);
	return o;
}

json_t *console_answer(enum http_route route, const char *query, size_t query_len)
{
	switch (route) {
	case HTTP_STATE:
		return console_state();
	case HTTP_SERIES:
		return console_list_series(query, query_len);
	case HTTP_HISTORY:
		return console_history(query, query_len);
	case HTTP_TOPOLOGY:
		return console_topology();
	case HTTP_INFLIGHT:
		return console_inflight();
	case HTTP_COPIES:
		return console_copies();
	case HTTP_TRACE:
		return console_trace(query, query_len);
	default:
		return NULL;
	}
}

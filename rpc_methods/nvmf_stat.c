/* SPDX-License-Identifier: BSD-3-Clause */
/* Who is connected, what they have outstanding, and how much was done. */
#include <stdlib.h>
#include <string.h>

#include "bdev/bdev.h"
#include "env_dpdk/env.h"
#include "rpc_methods/nvmf.h"

struct subsystem_only {
	struct rpc_nvmf_where where;
};

static const struct rpc_param subsystem_only_params[] = {
	RPC_NVMF_WHERE_PARAMS(struct subsystem_only),
	RPC_PARAM_END,
};

/* ---- Controllers and queue pairs ---- */

void rpc_nvmf_add_auth(json_t *o, const struct nvmf_auth_info *auth)
{
	if (auth->present) {
		json_object_set_new(o, "auth",
				    json_pack("{s:s,s:s,s:s}", "state", auth->state, "digest", auth->digest, "dhgroup",
					      auth->dhgroup));
	}
}

/* Adds the names by which hosts know a controller in Cross-Controller Reset, and the resets that it was asked for. */
static void ctrlr_add_cross_resets(json_t *o, const struct nvmf_ctrlr *ctrlr, const struct nvmf_ctrlr_info *info)
{
	static const char *const states[] = {
		[NVME_CROSS_CTRL_RESET_CCRS_IN_PROGRESS] = "in_progress",
		[NVME_CROSS_CTRL_RESET_CCRS_SUCCESS] = "success",
		[NVME_CROSS_CTRL_RESET_CCRS_FAILED] = "failed",
	};
	struct nvmf_cross_reset_info reset;
	json_t *list = json_array();

	for (unsigned i = 0; nvmf_ctrlr_cross_reset_info(ctrlr, i, &reset); i++) {
		json_t *entry = json_object();
		json_object_set_new(entry, "cntlid", json_integer(reset.name.cntlid));
		json_object_set_new(entry, "ciu", json_integer(reset.name.ciu));
		json_object_set_new(entry, "state", json_string(states[reset.status]));
		json_object_set_new(entry, "begun_us", rpc_nvmf_since_us(reset.begun_ticks));
		json_object_set_new(entry, "peers_asked", json_boolean(reset.peers_asked));
		json_array_append_new(list, entry);
	}
	if (info->ciu != 0) {
		json_object_set_new(o, "ciu", json_integer(info->ciu));
		json_object_set_new(o, "cirn", rpc_hex(info->cirn));
	}
	if (json_array_size(list) != 0) {
		json_object_set(o, "cross_resets", list);
	}
	json_decref(list);
}

static json_t *ctrlr_json(const struct nvmf_ctrlr *ctrlr)
{
	struct nvmf_ctrlr_info info;
	char hostid[BDEV_UUID_STRLEN];
	json_t *o = json_object();

	nvmf_ctrlr_get_info(ctrlr, &info);
	bdev_uuid_format(info.hostid, hostid);
	json_object_set_new(o, "cntlid", json_integer(info.cntlid));
	json_object_set_new(o, "hostnqn", rpc_string(info.hostnqn));
	json_object_set_new(o, "hostid", json_string(hostid));
	json_object_set_new(o, "num_io_qpairs", json_integer(info.num_io_qpairs));
	json_object_set_new(o, "state", rpc_nvmf_lower(nvmf_ctrlr_state_name(info.state)));
	json_object_set_new(o, "state_us", rpc_nvmf_since_us(info.state_ticks));
	json_object_set_new(o, "kato_ms", json_integer(info.kato_ms));
	json_object_set_new(o, "errors", rpc_uint(info.errors));
	ctrlr_add_cross_resets(o, ctrlr, &info);
	rpc_nvmf_add_auth(o, &info.auth);
	return o;
}

static void rpc_get_controllers(struct rpc_request *req, void *params)
{
	const struct subsystem_only *p = params;
	struct nvmf_subsystem *s = rpc_nvmf_subsystem(req, p->where.tgt_name, p->where.nqn);
	json_t *list;

	if (s == NULL) {
		return;
	}
	list = json_array();
	for (struct nvmf_ctrlr *c = nvmf_ctrlr_next(s, NULL); c != NULL; c = nvmf_ctrlr_next(s, c)) {
		json_array_append_new(list, ctrlr_json(c));
	}
	rpc_reply(req, list);
}
RPC_METHOD(
	"nvmf_subsystem_get_controllers", rpc_get_controllers, struct subsystem_only, subsystem_only_params,
	RPC_RUNTIME, "List a subsystem's controllers: the hosts that are connected",
	.result = "[{cntlid: int, hostnqn: string, hostid: string, num_io_qpairs: int, state: string, "
		  "state_us: int, kato_ms: int, errors: int, ciu?: int, cirn?: string, cross_resets?: [{cntlid: int, "
		  "ciu: int, state: string, begun_us: int, peers_asked: bool}], auth?: {state: string, digest: string, "
		  "dhgroup: string}, ...}]")

/* The words that clients know. */
static const char *qpair_state(enum nvmf_qpair_state state)
{
	switch (state) {
	case NVMF_QPAIR_NEW:
		return "uninitialized";
	case NVMF_QPAIR_CONNECTING:
		return "connecting";
	case NVMF_QPAIR_AUTHENTICATING:
		return "authenticating";
	case NVMF_QPAIR_ENABLED:
		return "enabled";
	case NVMF_QPAIR_QUIESCING:
		return "quiescing";
	default:
		return "deactivating";
	}
}

static json_t *qpair_json(const struct nvmf_qpair *qpair)
{
	struct nvmf_qpair_info info;
	json_t *o = json_object();

	nvmf_qpair_get_info(qpair, &info);
	json_object_set_new(o, "cntlid", json_integer(info.cntlid));
	json_object_set_new(o, "qid", json_integer(info.qid));
	json_object_set_new(o, "state", json_string(qpair_state(info.state)));
	json_object_set_new(o, "state_us", rpc_nvmf_since_us(info.state_ticks));
	json_object_set_new(o, "thread", rpc_string(info.thread));
	json_object_set_new(o, "hostnqn", rpc_string(info.hostnqn));
	json_object_set_new(o, "listen_address", rpc_nvmf_address_json(&info.listen_address));
	json_object_set_new(o, "peer_address", rpc_nvmf_address_json(&info.peer_address));
	rpc_nvmf_add_auth(o, &info.auth);
	if (info.tls_records != NULL) {
		json_object_set_new(o, "tls_records", json_string(info.tls_records));
	}
	return o;
}

static void rpc_get_qpairs(struct rpc_request *req, void *params)
{
	const struct subsystem_only *p = params;
	struct nvmf_subsystem *s = rpc_nvmf_subsystem(req, p->where.tgt_name, p->where.nqn);
	json_t *list;

	if (s == NULL) {
		return;
	}
	list = json_array();
	for (struct nvmf_ctrlr *c = nvmf_ctrlr_next(s, NULL); c != NULL; c = nvmf_ctrlr_next(s, c)) {
		for (struct nvmf_qpair *q = nvmf_qpair_next(c, NULL); q != NULL; q = nvmf_qpair_next(c, q)) {
			json_array_append_new(list, qpair_json(q));
		}
	}
	rpc_reply(req, list);
}
RPC_METHOD("nvmf_subsystem_get_qpairs", rpc_get_qpairs, struct subsystem_only, subsystem_only_params, RPC_RUNTIME,
	   "List a subsystem's queue pairs: where each comes from, and the thread that serves it",
	   .result = "[{cntlid: int, qid: int, state: string, state_us: int, thread: string, hostnqn: string, "
		     "listen_address: " RPC_NVMF_ADDRESS_SHAPE ", peer_address: " RPC_NVMF_ADDRESS_SHAPE
		     ", auth?: {state: string, digest: string, dhgroup: string}, tls_records?: string, ...}]")

/* ---- Outstanding commands ---- */

struct tgt_only {
	char *tgt_name;
};

static const struct rpc_param tgt_only_params[] = {
	RPC_PARAM(struct tgt_only, tgt_name, RPC_STRING, RPC_OPTIONAL,
		  "name of the target; the default one if not given"),
	RPC_PARAM_END,
};

struct get_inflight {
	char *tgt_name, *nqn, *host;
	uint64_t min_age_us;
};

static const struct rpc_param get_inflight_params[] = {
	RPC_PARAM(struct get_inflight, tgt_name, RPC_STRING, RPC_OPTIONAL,
		  "name of the target; the default one if not given"),
	RPC_PARAM(struct get_inflight, nqn, RPC_STRING, RPC_OPTIONAL, "only of this subsystem"),
	RPC_PARAM(struct get_inflight, host, RPC_STRING, RPC_OPTIONAL, "only of this host"),
	RPC_PARAM(struct get_inflight, min_age_us, RPC_UINT64, RPC_OPTIONAL,
		  "only those that are as old, microseconds"),
	RPC_PARAM_END,
};

static json_t *rpc_nvmf_inflight_json(const struct nvmf_inflight *f)
{
	json_t *o = json_object();

	json_object_set_new(o, "hostnqn", rpc_string(f->hostnqn));
	json_object_set_new(o, "subnqn", rpc_string(f->subnqn));
	json_object_set_new(o, "cntlid", json_integer(f->cntlid));
	json_object_set_new(o, "qid", json_integer(f->qid));
	json_object_set_new(o, "cid", json_integer(f->cid));
	json_object_set_new(o, "opcode", json_integer(f->opcode));
	json_object_set_new(o, "command", rpc_string(f->command));
	json_object_set_new(o, "nsid", json_integer(f->nsid));
	json_object_set_new(o, "lba", rpc_uint(f->slba));
	json_object_set_new(o, "num_blocks", json_integer(f->num_blocks));
	json_object_set_new(o, "state", rpc_string(f->state));
	json_object_set_new(o, "state_us", rpc_uint(env_ticks_to_ns(f->state_age_ticks) / 1000));
	json_object_set_new(o, "waits_for", rpc_string(f->waits_for));
	json_object_set_new(o, "age_us", rpc_uint(env_ticks_to_ns(f->age_ticks) / 1000));
	json_object_set_new(o, "object", rpc_hex((uintptr_t)f->object));
	return o;
}

static int oldest_first(const void *a, const void *b)
{
	uint64_t x = ((const struct nvmf_inflight *)a)->age_ticks, y = ((const struct nvmf_inflight *)b)->age_ticks;

	return x > y ? -1 : x < y;
}

static bool is_wanted(const struct get_inflight *p, const struct nvmf_inflight *f)
{
	return (p->nqn == NULL || strcmp(p->nqn, f->subnqn) == 0) &&
	       (p->host == NULL || strcmp(p->host, f->hostnqn) == 0) &&
	       env_ticks_to_ns(f->age_ticks) / 1000 >= p->min_age_us;
}

static void rpc_get_inflight(struct rpc_request *req, void *params)
{
	const struct get_inflight *p = params;
	struct nvmf_tgt *tgt = rpc_nvmf_tgt(req, p->tgt_name);
	struct nvmf_inflight *found;
	json_t *list;

	if (tgt == NULL) {
		return;
	}
	ssize_t n = nvmf_tgt_get_inflight(tgt, &found);
	if (n < 0) {
		rpc_error(req, (int)n, "%s", strerror((int)-n));
		return;
	}
	if (n != 0) {
		qsort(found, (size_t)n, sizeof(*found), oldest_first);
	}
	list = json_array();
	for (ssize_t i = 0; i < n; i++) {
		if (is_wanted(p, &found[i])) {
			json_array_append_new(list, rpc_nvmf_inflight_json(&found[i]));
		}
	}
	free(found);
	rpc_reply(req, list);
}
RPC_METHOD("nvmf_get_inflight", rpc_get_inflight, struct get_inflight, get_inflight_params, RPC_RUNTIME,
	   "List every outstanding command, the oldest first: whose, what, since when, and what it waits for",
	   .result = "[{hostnqn: string, subnqn: string, cntlid: int, qid: int, cid: int, opcode: int, "
		     "command: string|null, nsid: int, lba: int, num_blocks: int, state: string, state_us: int, "
		     "waits_for: string|null, age_us: int, object: string, ...}]")

/* ---- Statistics ---- */

static json_t *rpc_nvmf_device_stats_json(const char *trtype, const struct nvmf_device_stats *d)
{
	const struct nvmf_device_counter *c;
	json_t *o = json_object();

	json_object_set_new(o, "name", rpc_string(d->name));
	for (unsigned n = 0; (c = nvmf_transport_counter(trtype, n)) != NULL; n++) {
		json_object_set_new(o, c->name, rpc_uint(d->counters[n]));
	}
	return o;
}

static json_t *rpc_nvmf_transport_stats_json(const struct nvmf_transport_stats *t)
{
	json_t *o = json_object(), *devices = json_array();

	for (unsigned i = 0; i < t->num_devices; i++) {
		json_array_append_new(devices, rpc_nvmf_device_stats_json(t->trtype, &t->devices[i]));
	}
	json_object_set_new(o, "trtype", rpc_string(t->trtype));
	json_object_set_new(o, "pending_data_buffer", rpc_uint(t->pending_data_buffer));
	json_object_set_new(o, "group_bytes", rpc_uint(t->group_bytes));
	json_object_set_new(o, "connections", rpc_uint(t->connections));
	json_object_set_new(o, "connection_bytes", rpc_uint(t->connection_bytes));
	json_object_set_new(o, "devices", devices);
	return o;
}

static json_t *rpc_nvmf_group_stats_json(struct nvmf_poll_group *group)
{
	static struct nvmf_poll_group_stats stats; /* of the control thread, which has no room on its stack for it */
	struct nvmf_poll_group_stats *s = &stats;
	json_t *o = json_object(), *transports = json_array();

	nvmf_poll_group_get_stats(group, s);
	json_object_set_new(o, "name", rpc_string(nvmf_poll_group_name(group)));
	json_object_set_new(o, "admin_qpairs", rpc_uint(s->admin_qpairs));
	json_object_set_new(o, "io_qpairs", rpc_uint(s->io_qpairs));
	json_object_set_new(o, "current_admin_qpairs", rpc_uint(s->current_admin_qpairs));
	json_object_set_new(o, "current_io_qpairs", rpc_uint(s->current_io_qpairs));
	json_object_set_new(o, "current_unassociated_qpairs", rpc_uint(s->current_unassociated_qpairs));
	json_object_set_new(o, "pending_bdev_io", rpc_uint(s->pending_bdev_io));
	json_object_set_new(o, "completed_nvme_io", rpc_uint(s->completed_nvme_io));
	json_object_set_new(o, "failed_nvme_io", rpc_uint(s->failed_nvme_io));
	for (unsigned i = 0; i < s->num_transports; i++) {
		json_array_append_new(transports, rpc_nvmf_transport_stats_json(&s->transports[i]));
	}
	json_object_set_new(o, "transports", transports);
	return o;
}

static void rpc_get_stats(struct rpc_request *req, void *params)
{
	const struct tgt_only *p = params;
	struct nvmf_tgt *tgt = rpc_nvmf_tgt(req, p->tgt_name);
	json_t *o, *groups;

	if (tgt == NULL) {
		return;
	}
	o = json_object();
	groups = json_array();
	for (struct nvmf_poll_group *g = nvmf_poll_group_next(tgt, NULL); g != NULL; g = nvmf_poll_group_next(tgt, g)) {
		json_array_append_new(groups, rpc_nvmf_group_stats_json(g));
	}
	json_object_set_new(o, "tick_rate", rpc_uint(env_ticks_hz()));
	json_object_set_new(o, "poll_groups", groups);
	rpc_reply(req, o);
}
RPC_METHOD("nvmf_get_stats", rpc_get_stats, struct tgt_only, tgt_only_params, RPC_RUNTIME,
	   "Tell how much each poll group has done",
	   .result = "{tick_rate: int, poll_groups: [{name: string, admin_qpairs: int, io_qpairs: int, "
		     "current_admin_qpairs: int, current_io_qpairs: int, current_unassociated_qpairs: int, "
		     "pending_bdev_io: int, "
		     "completed_nvme_io: int, failed_nvme_io: int, transports: [{trtype: string, "
		     "pending_data_buffer: int, group_bytes: int, connections: int, connection_bytes: int, "
		     "devices: [{name: string, *: int}], ...}], ...}]}")

/* ---- Latencies of hosts ---- */

static void add_host_latency(void *list, const struct nvmf_host_latency_info *h)
{
	const struct latency_histogram *times = &h->latency.histogram;
	json_t *o = json_object(), *counts = json_array();

	for (unsigned i = 0; i < LATENCY_BUCKETS; i++) {
		json_array_append_new(counts, rpc_uint(times->buckets[i]));
	}
	json_object_set_new(o, "hostnqn", rpc_string(h->hostnqn));
	json_object_set_new(o, "subnqn", rpc_string(h->subnqn));
	json_object_set_new(o, "commands", rpc_uint(h->commands));
	json_object_set_new(o, "bytes", rpc_uint(h->latency.bytes));
	json_object_set_new(o, "total_ns", rpc_uint(h->latency.ns));
	json_object_set_new(o, "p50_ns", rpc_uint(latency_histogram_quantile(times, 0.5)));
	json_object_set_new(o, "p99_ns", rpc_uint(latency_histogram_quantile(times, 0.99)));
	json_object_set_new(o, "counts", counts);
	json_array_append_new(list, o);
}

static void rpc_get_host_latencies(struct rpc_request *req, void *params)
{
	const struct tgt_only *p = params;
	struct nvmf_tgt *tgt = rpc_nvmf_tgt(req, p->tgt_name);

	if (tgt == NULL) {
		return;
	}
	json_t *o = json_object(), *bounds = json_array(), *hosts = json_array();
	for (unsigned i = 0; i < LATENCY_BUCKETS - 1; i++) {
		json_array_append_new(bounds, rpc_uint(latency_bounds_ns[i]));
	}
	nvmf_tgt_for_each_host_latency(tgt, add_host_latency, hosts);
	json_object_set_new(o, "bounds_ns", bounds);
	json_object_set_new(o, "hosts", hosts);
	rpc_reply(req, o);
}
RPC_METHOD("nvmf_get_host_latencies", rpc_get_host_latencies, struct tgt_only, tgt_only_params, RPC_RUNTIME,
	   "List how long the I/O commands of each host of each subsystem took, since the subsystem was made: their "
	   "number "
	   "up to each bound and beyond the last, and percentiles. From the 257th host on they are one, \"other\"",
	   .own = true,
	   .result =
		   "{bounds_ns: [int], hosts: [{hostnqn: string, subnqn: string, commands: int, bytes: int, total_ns: "
		   "int, p50_ns: int, p99_ns: int, counts: [int]}]}")

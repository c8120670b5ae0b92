/* SPDX-License-Identifier: BSD-3-Clause */
/* bdev_nvme_get_*: the state of controllers, their health, and the statistics of their queue pairs. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "env_dpdk/env.h"
#include "nvme/nvme.h"
#include "bdev_modules/nvme/nvme_rpc.h"

/* --- bdev_nvme_get_controllers --- */

struct by_name {
	char *name;
};

static const struct rpc_param get_controllers_params[] = {
	RPC_PARAM(struct by_name, name, RPC_STRING, RPC_OPTIONAL, "name of a controller (default: all)"),
	RPC_PARAM_END};

static uint64_t since_us(uint64_t ticks)
{
	return env_ticks_to_ns(env_ticks() - ticks) / 1000;
}

static json_t *host_info_json(const struct bdev_nvme_attach *a)
{
	char hostnqn[NVME_NQN_MAX];
	uint8_t hostid[16];
	json_t *o = json_object();

	nvme_host_default(hostnqn, hostid);
	json_object_set_new(o, "nqn", rpc_string(a->hostnqn[0] != '\0' ? a->hostnqn : hostnqn));
	json_object_set_new(o, "addr", rpc_string(a->trid.host_traddr));
	json_object_set_new(o, "svcid", rpc_string(a->trid.host_trsvcid));
	return o;
}

static void qpair_info_add(void *arg, const struct bdev_nvme_qpair_stat *s)
{
	json_t *o = json_object();

	json_object_set_new(o, "thread", rpc_string(s->thread_name));
	json_object_set_new(o, "qid", json_integer(s->qid));
	json_object_set_new(o, "outstanding", json_integer(s->outstanding));
	json_object_set_new(o, "waiting", json_integer(s->waiting));
	json_array_append_new(arg, o);
}

/* The fences of the controllers of a name, those included that have been detached. */
static json_t *fences_json(const char *name)
{
	json_t *list = json_array();
	struct bdev_nvme_fence_info info;
	const struct bdev_nvme_fence_info *f = NULL;

	while ((f = bdev_nvme_fence_next(f, &info)) != NULL) {
		if (strcmp(f->name, name) == 0) {
			json_t *o = json_object();
			json_object_set_new(o, "cntlid", json_integer(f->cntlid));
			json_object_set_new(o, "trid", bdev_nvme_rpc_trid_json(f->trid));
			json_object_set_new(o, "state", json_string(f->state));
			json_object_set_new(o, "held", json_integer(f->held));
			json_object_set_new(o, "age_ms", rpc_uint(f->age_ms));
			json_object_set_new(o, "left_ms", rpc_uint(f->left_ms));
			json_array_append_new(list, o);
		}
	}
	return list;
}

static json_t *ctrlr_info_json(struct bdev_nvme *c)
{
	const struct nvme_ctrlr *n = bdev_nvme_ctrlr(c);
	json_t *o = json_object(), *bdevs = json_array(), *paths = json_array(), *alternates = json_array();
	const struct nvme_trid *t = NULL;

	json_object_set_new(o, "state", json_string(bdev_nvme_state_name(c)));
	json_object_set_new(o, "state_us", rpc_uint(since_us(bdev_nvme_state_ticks(c))));
	json_object_set_new(o, "trid", bdev_nvme_rpc_trid_json(nvme_ctrlr_trid(n)));
	while ((t = nvme_ctrlr_next_alternate(n, t)) != NULL) {
		json_array_append_new(alternates, bdev_nvme_rpc_trid_json(t));
	}
	json_object_set_new(o, "alternate_trids", alternates);
	json_object_set_new(o, "cntlid", json_integer(nvme_ctrlr_cntlid(n)));
	json_object_set_new(o, "host", host_info_json(bdev_nvme_attached(c)));
	json_object_set_new(o, "driver_state", json_string(nvme_ctrlr_state_name(nvme_ctrlr_state(n))));
	json_object_set_new(o, "driver_state_us", rpc_uint(since_us(nvme_ctrlr_state_ticks(n))));
	json_object_set_new(o, "last_error", rpc_string(nvme_ctrlr_last_error(n)));
	json_object_set_new(o, "resets", json_integer(bdev_nvme_resets(c)));
	json_object_set_new(o, "io_queues", json_integer(nvme_ctrlr_io_queues(n)));
	for (const struct bdev *b = NULL; (b = bdev_nvme_bdev_next(c, b)) != NULL;) {
		json_array_append_new(bdevs, rpc_string(bdev_name(b)));
	}
	json_object_set_new(o, "bdevs", bdevs);
	bdev_nvme_for_each_qpair(c, qpair_info_add, paths);
	json_object_set_new(o, "queue_pairs", paths);
	return o;
}

static json_t *name_info_json(struct bdev_nvme *c)
{
	json_t *o = json_object(), *ctrlrs = json_array();

	json_object_set_new(o, "name", rpc_string(bdev_nvme_name(c)));
	for (; c != NULL; c = bdev_nvme_sibling(c)) {
		json_array_append_new(ctrlrs, ctrlr_info_json(c));
	}
	json_object_set_new(o, "ctrlrs", ctrlrs);
	json_object_set_new(o, "fences", fences_json(json_string_value(json_object_get(o, "name"))));
	return o;
}

static void rpc_bdev_nvme_get_controllers(struct rpc_request *req, void *params)
{
	const char *name = ((const struct by_name *)params)->name;
	struct bdev_nvme *only = name != NULL ? bdev_nvme_rpc_find(req, name) : NULL;

	if (name != NULL && only == NULL) {
		return; /* answered: the request and its parameters have been freed */
	}
	json_t *list = json_array();
	for (struct bdev_nvme *c = NULL; (c = bdev_nvme_next(c)) != NULL;) {
		if (bdev_nvme_is_first(c) && (only == NULL || strcmp(bdev_nvme_name(c), bdev_nvme_name(only)) == 0)) {
			json_array_append_new(list, name_info_json(c));
		}
	}
	rpc_reply(req, list);
}
RPC_METHOD("bdev_nvme_get_controllers", rpc_bdev_nvme_get_controllers, struct by_name, get_controllers_params,
	   RPC_RUNTIME, "List the NVMe controllers that are attached",
	   .result = "[{name: string, ctrlrs: [{state: string, state_us: int, trid: {trtype: string, traddr: "
		     "string, ...}, cntlid: int, host: {nqn: string, addr: string, svcid: string}, "
		     "driver_state: string, driver_state_us: int, last_error: string, resets: int, io_queues: "
		     "int, bdevs: [string], queue_pairs: [{thread: string, qid: int, outstanding: int, "
		     "waiting: int, ...}], ...}], fences: [{cntlid: int, trid: {...}, state: string, held: int, "
		     "age_ms: int, left_ms: int}], ...}]")

/* --- bdev_nvme_get_transport_statistics --- */

struct statistics {
	json_t *groups;
	const struct bdev_nvme *c;
};

/* The array `key` of the object in list whose member name_key is name. If there is no such object, it is added. */
static json_t *array_find_or_add(json_t *list, const char *name_key, const char *name, const char *key)
{
	json_t *o;
	size_t i;

	json_array_foreach (list, i, o) {
		const char *has = json_string_value(json_object_get(o, name_key)); /* NULL: no memory */
		if (has != NULL && strcmp(has, name) == 0) {
			return json_object_get(o, key);
		}
	}
	o = json_object();
	json_object_set_new(o, name_key, rpc_string(name));
	json_object_set_new(o, key, json_array());
	json_array_append_new(list, o);
	return json_object_get(o, key);
}

static void qpair_statistics_add(void *arg, const struct bdev_nvme_qpair_stat *s)
{
	const struct statistics *st = arg;
	json_t *transports = array_find_or_add(st->groups, "thread", s->thread_name, "transports");
	json_t *devices = array_find_or_add(transports, "trname",
					    nvme_trtype_name(bdev_nvme_attached(st->c)->trid.trtype), "devices");
	json_t *o = json_object();

	json_object_set_new(o, "dev_name", rpc_string(bdev_nvme_name(st->c)));
	json_object_set_new(o, "qid", json_integer(s->qid));
	json_object_set_new(o, "polls", rpc_uint(s->polls));
	json_object_set_new(o, "idle_polls", rpc_uint(s->idle_polls));
	json_object_set_new(o, "completions", rpc_uint(s->completions));
	json_object_set_new(o, "queued_requests", rpc_uint(s->queued_requests));
	json_object_set_new(o, "retries", rpc_uint(s->retries));
	json_array_append_new(devices, o);
}

static void rpc_bdev_nvme_get_transport_statistics(struct rpc_request *req, void *params)
{
	struct statistics st = {.groups = json_array()};
	json_t *o = json_object();

	for (struct bdev_nvme *c = NULL; (c = bdev_nvme_next(c)) != NULL;) {
		st.c = c;
		bdev_nvme_for_each_qpair(c, qpair_statistics_add, &st);
	}
	json_object_set_new(o, "poll_groups", st.groups);
	rpc_reply(req, o);
}
RPC_METHOD("bdev_nvme_get_transport_statistics", rpc_bdev_nvme_get_transport_statistics, struct rpc_no_params, NULL,
	   RPC_RUNTIME, "Answer with statistics of the queue pairs of each thread",
	   .result = "{poll_groups: [{thread: string, transports: [{trname: string, devices: [{dev_name: "
		     "string, qid: int, polls: int, idle_polls: int, completions: int, queued_requests: int, "
		     "retries: int, ...}]}]}]}")

/* --- bdev_nvme_get_controller_health_info --- */

static const struct rpc_param health_params[] = {
	RPC_PARAM(struct by_name, name, RPC_STRING, RPC_REQUIRED, "name of the controller"), RPC_PARAM_END};

struct health {
	struct rpc_request *req;
	struct nvme_smart_log log;
	struct nvme_id_ctrl id;
	char traddr[NVME_TRADDR_MAX];
};

/* A counter of 128 bits, as 64 bits; a larger one, which no drive reaches, becomes the largest. */
static json_t *smart_counter_json(const uint8_t field[16])
{
	uint64_t low, high;

	memcpy(&low, field, 8);
	memcpy(&high, field + 8, 8);
	return rpc_uint(high != 0 ? UINT64_MAX : le64toh(low));
}

static json_t *smart_text_json(const char *field, size_t size)
{
	char buf[64];
	size_t n = strnlen(field, size);

	memcpy(buf, field, n);
	while (n > 0 && buf[n - 1] == ' ') {
		n--;
	}
	buf[n] = '\0';
	return rpc_string(buf);
}

static json_t *health_json(const struct health *h)
{
	const struct nvme_smart_log *l = &h->log;
	json_t *o = json_object();

	json_object_set_new(o, "model_number", smart_text_json(h->id.mn, sizeof(h->id.mn)));
	json_object_set_new(o, "serial_number", smart_text_json(h->id.sn, sizeof(h->id.sn)));
	json_object_set_new(o, "firmware_revision", smart_text_json(h->id.fr, sizeof(h->id.fr)));
	json_object_set_new(o, "traddr", rpc_string(h->traddr));
	json_object_set_new(o, "critical_warning", json_integer(l->critical_warning));
	json_object_set_new(o, "temperature_celsius", json_integer((l->temperature[0] | l->temperature[1] << 8) - 273));
	json_object_set_new(o, "available_spare_percentage", json_integer(l->avail_spare));
	json_object_set_new(o, "available_spare_threshold_percentage", json_integer(l->spare_thresh));
	json_object_set_new(o, "percentage_used", json_integer(l->percent_used));
	json_object_set_new(o, "data_units_read", smart_counter_json(l->data_units_read));
	json_object_set_new(o, "data_units_written", smart_counter_json(l->data_units_written));
	json_object_set_new(o, "host_read_commands", smart_counter_json(l->host_reads));
	json_object_set_new(o, "host_write_commands", smart_counter_json(l->host_writes));
	json_object_set_new(o, "controller_busy_time", smart_counter_json(l->ctrl_busy_time));
	json_object_set_new(o, "power_cycles", smart_counter_json(l->power_cycles));
	json_object_set_new(o, "power_on_hours", smart_counter_json(l->power_on_hours));
	json_object_set_new(o, "unsafe_shutdowns", smart_counter_json(l->unsafe_shutdowns));
	json_object_set_new(o, "media_errors", smart_counter_json(l->media_errors));
	json_object_set_new(o, "num_err_log_entries", smart_counter_json(l->num_err_log_entries));
	json_object_set_new(o, "warning_temperature_time_minutes", rpc_uint(le32toh(l->warning_temp_time)));
	json_object_set_new(o, "critical_composite_temperature_time_minutes", rpc_uint(le32toh(l->critical_comp_time)));
	return o;
}

static void health_read(void *arg, int rc, const struct nvme_cqe *cqe)
{
	struct health *h = arg;

	if (rc != 0) {
		rpc_error(h->req, rc, "the SMART log cannot be read: %s",
			  rc == -ENXIO ? "the controller is not connected" : strerror(-rc));
	} else if (nvme_cqe_status(cqe) != 0) {
		rpc_error(h->req, -EIO, "the controller refuses the SMART log: %s",
			  nvme_status_text(nvme_cqe_status(cqe)));
	} else {
		rpc_reply(h->req, health_json(h));
	}
	free(h);
}

static void rpc_bdev_nvme_get_controller_health_info(struct rpc_request *req, void *params)
{
	struct bdev_nvme *c = bdev_nvme_rpc_find(req, ((const struct by_name *)params)->name);
	struct health *h = c ? calloc(1, sizeof(*h)) : NULL;

	if (h == NULL) {
		if (c != NULL) {
			rpc_error(req, -ENOMEM, "out of memory");
		}
		return;
	}
	h->req = req;
	h->id = *nvme_ctrlr_identify(bdev_nvme_ctrlr(c));
	snprintf(h->traddr, sizeof(h->traddr), "%s", nvme_ctrlr_trid(bdev_nvme_ctrlr(c))->traddr);
	const struct bdev_nvme_raw raw = {
		.cmd = {.opcode = nvme_admin_get_log_page,
			.nsid = htole32(NVME_NSID_ALL),
			.cdw10 = htole32(NVME_LOG_LID_SMART | (sizeof(h->log) / 4 - 1) << 16)},
		.data = &h->log,
		.data_len = sizeof(h->log),
	};
	bdev_nvme_send(c, &raw, health_read, h);
}
RPC_METHOD("bdev_nvme_get_controller_health_info", rpc_bdev_nvme_get_controller_health_info, struct by_name,
	   health_params, RPC_RUNTIME, "Answer with the SMART log of a controller",
	   .result = "{model_number: string, serial_number: string, firmware_revision: string, traddr: "
		     "string, critical_warning: int, temperature_celsius: int, available_spare_percentage: "
		     "int, available_spare_threshold_percentage: int, percentage_used: int, data_units_read: "
		     "int, data_units_written: int, host_read_commands: int, host_write_commands: int, "
		     "controller_busy_time: int, power_cycles: int, power_on_hours: int, unsafe_shutdowns: "
		     "int, media_errors: int, num_err_log_entries: int, warning_temperature_time_minutes: "
		     "int, critical_composite_temperature_time_minutes: int, ...}")

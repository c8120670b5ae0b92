/* SPDX-License-Identifier: BSD-3-Clause */
/* The RDMA transport of the target: its options, its share of each poll group, and the table of its operations. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "env_dpdk/env.h"
#include "nvmf_rdma/internal.h"

static struct iobuf_module buffers_module = {.name = "nvmf_RDMA"};

#define OPTION(field_, type_, initial_, help_, ...)                                                                    \
	NVMF_TRANSPORT_OPTION(struct nvmf_rdma_opts, field_, NVMF_OPTION_##type_, initial_, help_, ##__VA_ARGS__)

static const struct nvmf_transport_option options[] = {
	OPTION(num_cqe, INT32, 4096, "entries of a completion queue; -1: as needed"),
	OPTION(max_srq_depth, UINT32, 4096, "entries of a shared receive queue"),
	OPTION(no_srq, BOOL, false, "a receive queue for each connection"),
	OPTION(no_wr_batching, BOOL, false, "ring the doorbell for every send"),
	OPTION(data_wr_pool_size, UINT32, 1024,
	       "work requests for scattered data; never fewer than one command can need"),
	OPTION(num_event_requests, UINT32, 4096,
	       "Asynchronous Event Requests that may wait in a poll group without occupying a shared receive; more are "
	       "refused; 0: they occupy shared receives",
	       .own = true),
	{0},
};

static void init_opts(struct nvmf_transport_opts *o)
{
	o->max_queue_depth = 128;
	o->max_io_qpairs_per_ctrlr = 127;
	o->in_capsule_data_size = 4096;
	o->max_io_size = 131072;
	o->io_unit_size = 8192;
	o->max_aq_depth = 128;
	o->num_shared_buffers = 4095;
	o->buf_cache_size = 64;
	o->iobuf_small_cache_size = 64;
	o->iobuf_large_cache_size = 64;
	o->zcopy = true;
	o->acceptor_backlog = 128;
	o->acceptor_poll_rate_us = 10000;
	o->abort_timeout_sec = 1;
	o->kas = 1;
	o->min_kato_ms = 1000;
}

static struct nvmf_transport *create_transport(struct nvmf_tgt *tgt, const struct nvmf_transport_opts *opts,
					       char why[NVMF_ERROR_MAX])
{
	struct nvmf_rdma_transport *t = calloc(1, sizeof(*t));
	char error[ENV_ERROR_MAX];
	int rc;

	if (t == NULL) {
		return NULL;
	}
	TAILQ_INIT(&t->devices);
	TAILQ_INIT(&t->listeners);
	TAILQ_INIT(&t->qps);
	STAILQ_INIT(&t->settlers);
	t->base.sgl_rules =
		(struct nvmf_sgl_rules){.in_capsule = true, .keyed = true, .max_descs = NVMF_RDMA_MAX_DESCRIPTORS};
	t->channel = rdma_create_event_channel();
	if (t->channel == NULL || fcntl(t->channel->fd, F_SETFL, O_NONBLOCK) != 0) {
		snprintf(why, NVMF_ERROR_MAX,
			 "no RDMA: %s (load rdma_ucm and the device's driver, or start varve under `softverbs`)",
			 strerror(errno));
		goto fail;
	}
	rc = nvmf_buffer_pool_create(&t->buffers, &buffers_module, opts, error);
	if (rc != 0) {
		snprintf(why, NVMF_ERROR_MAX, "num_shared_buffers %u of io_unit_size %u bytes: %.180s",
			 opts->num_shared_buffers, opts->io_unit_size, error);
		errno = -rc;
		goto fail;
	}
	t->cm_source = fd_source_add(t->channel->fd, EPOLLIN, nvmf_rdma_cm_readable, t, "nvmf_rdma_cm");
	if (t->cm_source == NULL) {
		errno = ENOMEM;
		goto fail;
	}
	return &t->base;
fail:;
	int saved = errno;
	nvmf_buffer_pool_destroy(&t->buffers);
	if (t->channel != NULL) {
		rdma_destroy_event_channel(t->channel);
	}
	free(t);
	errno = saved;
	return NULL;
}

static void destroy_transport(struct nvmf_transport *base)
{
	struct nvmf_rdma_transport *t = nvmf_rdma_transport_of(base);

	thread_timer_stop(&t->relisten_timer);
	nvmf_rdma_devices_destroy(t);
	fd_source_remove(&t->cm_source);
	rdma_destroy_event_channel(t->channel);
	nvmf_buffer_pool_destroy(&t->buffers);
	free(t);
}

static void fill_discovery_entry(struct nvmf_transport *t, const struct nvmf_address *address,
				 struct nvmf_disc_log_entry *entry)
{
	entry->tsas.rdma.qptype = NVMF_RDMA_QPTYPE_CONNECTED;
	entry->tsas.rdma.prtype = NVMF_RDMA_PRTYPE_NOT_SPECIFIED;
	entry->tsas.rdma.cms = NVMF_RDMA_CMS_RDMA_CM;
}

static struct nvmf_transport_group *create_group(struct nvmf_transport *base, struct nvmf_poll_group *group,
						 char why[NVMF_ERROR_MAX])
{
	struct nvmf_rdma_transport *t = nvmf_rdma_transport_of(base);
	struct nvmf_rdma_group *g = calloc(1, sizeof(*g));
	uint32_t wrs = nvmf_rdma_data_wr_count(t);
	char error[ENV_ERROR_MAX];

	if (g == NULL) {
		errno = ENOMEM;
		return NULL;
	}
	TAILQ_INIT(&g->pollers);
	STAILQ_INIT(&g->waiting_wrs);
	g->data_wrs = calloc(wrs, sizeof(*g->data_wrs));
	if (g->data_wrs == NULL || nvmf_buffer_group_create(&g->buffers, &t->buffers, &base->opts, error) != 0) {
		snprintf(why, NVMF_ERROR_MAX, "a poll group cannot serve it: %.220s",
			 g->data_wrs != NULL ? error : "no memory for work requests");
		free(g->data_wrs);
		free(g);
		errno = ENOMEM;
		return NULL;
	}
	for (uint32_t i = 0; i < wrs; i++) {
		g->data_wrs[i].next_free = g->free_data_wrs;
		g->free_data_wrs = &g->data_wrs[i];
	}
	g->base.buffers = &g->buffers;
	return &g->base;
}

static void destroy_group(struct nvmf_transport_group *base)
{
	struct nvmf_rdma_group *g = nvmf_rdma_group_of(base);
	struct nvmf_rdma_poller *p;

	while ((p = TAILQ_FIRST(&g->pollers)) != NULL) {
		nvmf_rdma_poller_destroy(p);
	}
	nvmf_buffer_group_destroy(&g->buffers);
	free(g->data_wrs);
	free(g);
}

/* On the group's thread: the table is read as verbs_region_find() does. */
static void add_device_stats(struct nvmf_rdma_group *g, const struct nvmf_rdma_device *d,
			     const struct nvmf_rdma_counters *counted, struct nvmf_transport_stats *stats)
{
	struct nvmf_rdma_counters counters = *counted;

	counters.memory_regions = __atomic_load_n(&d->pd->table, __ATOMIC_ACQUIRE)->count;
	counters.registered_bytes = __atomic_load_n(&d->pd->registered_bytes, __ATOMIC_RELAXED);
	nvmf_transport_add_device_stats(&g->base, stats, nvmf_rdma_device_name(d), &counters);
}

static bool group_uses_device(const struct nvmf_rdma_group *g, const struct nvmf_rdma_device *d)
{
	const struct nvmf_rdma_poller *p;

	TAILQ_FOREACH (p, &g->pollers, link) {
		if (p->device == d) {
			return true;
		}
	}
	return false;
}

/* The transport's devices belong to the control thread, which waits for this call. */
static void fill_group_stats(struct nvmf_transport_group *base, struct nvmf_transport_stats *stats)
{
	static const struct nvmf_rdma_counters nothing;
	const struct nvmf_rdma_transport *t = nvmf_rdma_transport_of(base->transport);
	struct nvmf_rdma_group *g = nvmf_rdma_group_of(base);
	const struct nvmf_rdma_device *d;
	struct nvmf_rdma_poller *p;

	stats->connections = g->connections;
	stats->connection_bytes = g->connection_bytes;
	stats->group_bytes = sizeof(*g) + nvmf_rdma_data_wr_count(t) * sizeof(*g->data_wrs);
	TAILQ_FOREACH (p, &g->pollers, link) {
		stats->group_bytes += sizeof(*p) + p->requests.bytes;
		add_device_stats(g, p->device, &p->counters, stats);
	}
	TAILQ_FOREACH (d, &t->devices, link) { /* of those that the group has no connection on yet */
		if (!group_uses_device(g, d)) {
			add_device_stats(g, d, &nothing, stats);
		}
	}
}

#define COUNTER(field_, ...)                                                                                           \
	{                                                                                                              \
		.name = #field_, .offset = offsetof(struct nvmf_rdma_counters, field_), ##__VA_ARGS__                  \
	}

static const struct nvmf_device_counter device_counters[] = {
	COUNTER(polls, .metric = "polls_total", .help = "How often the device's completion queue was polled."),
	COUNTER(idle_polls, .metric = "idle_polls_total", .help = "Polls that found nothing."),
	COUNTER(completions, .metric = "completions_total", .help = "Completions."),
	COUNTER(requests, .metric = "requests_total", .help = "Commands received."),
	COUNTER(request_latency),
	COUNTER(pending_free_request, .waits_for = "free request"),
	COUNTER(pending_rdma_read, .waits_for = "RDMA READ credit or room", .metric = "read_waits_total",
		.help = "Transfers from a host that waited for a credit or room."),
	COUNTER(pending_rdma_write, .waits_for = "room to send data", .metric = "write_waits_total",
		.help = "Answers with data that waited for room."),
	COUNTER(pending_rdma_send, .waits_for = "room to send an answer", .metric = "send_waits_total",
		.help = "Answers without data that waited for room."),
	COUNTER(total_send_wrs, .metric = "send_work_requests_total", .help = "Work requests posted to send queues."),
	COUNTER(send_doorbell_updates, .metric = "send_doorbells_total", .help = "Posts that they took."),
	COUNTER(total_recv_wrs),
	COUNTER(recv_doorbell_updates),
	COUNTER(memory_regions, .is_level = true),
	COUNTER(registered_bytes, .is_level = true),
	{0},
};

#define FIELD(name_, field_) .name = name_, NVMF_QPAIR_FIELD(struct nvmf_rdma_qpair, field_)

static const struct nvmf_qpair_field qpair_fields[] = {
	{FIELD("connection", state), .names = nvmf_rdma_qpair_state_names, .n_names = NVMF_RDMA_QPAIR_STATES},
	{FIELD("commands", in_use)},
	{FIELD("send room", send_room)},
	{FIELD("reads", reads), .of_offset = offsetof(struct nvmf_rdma_qpair, max_reads),
	 .of_size = sizeof(((struct nvmf_rdma_qpair *)0)->max_reads)},
	{0},
};

static struct nvmf_transport_ops nvmf_rdma_ops = {
	.name = "RDMA",
	.trtype = NVMF_TRTYPE_RDMA,
	.ip_only = true,
	.trace_object_type = TRACE_OBJECT_NVMF_RDMA_IO,
	.trace_prefix = "RDMA_REQ_",
	.trace_group = "nvmf_rdma",
	.states = nvmf_rdma_request_states,
	.n_states = RDMA_REQ_STATES,
	.state_offset = NVMF_REQUEST_OFFSET(struct nvmf_rdma_request, req, state),
	.state_ticks_offset = NVMF_REQUEST_OFFSET(struct nvmf_rdma_request, req, state_ticks),
	.qpair_fields = qpair_fields,
	.counters = device_counters,
	.options = options,
	.opts_init = init_opts,
	.create = create_transport,
	.destroy = destroy_transport,
	.listen = nvmf_rdma_op_listen,
	.stop_listen = nvmf_rdma_op_stop_listen,
	.resume = nvmf_rdma_op_resume,
	.settle = nvmf_rdma_op_settle,
	.discover = fill_discovery_entry,
	.group_create = create_group,
	.group_destroy = destroy_group,
	.group_stats = fill_group_stats,
	.qpair_add = nvmf_rdma_op_qpair_add,
	.qpair_is_idle = nvmf_rdma_op_qpair_is_idle,
	.qpair_close = nvmf_rdma_op_qpair_close,
	.qpair_destroy = nvmf_rdma_op_qpair_destroy,
	.request_complete = nvmf_rdma_op_request_complete,
	.request_continue = nvmf_rdma_op_request_continue,
	.request_hold = nvmf_rdma_op_request_hold,
	.request_abort = nvmf_rdma_op_request_abort,
};
NVMF_TRANSPORT(nvmf_rdma_ops)

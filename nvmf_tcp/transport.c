/* SPDX-License-Identifier: BSD-3-Clause */
/* The TCP transport of the target: its options and the table of its operations. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "env_dpdk/env.h"
#include "nvmf_tcp/internal.h"

static struct iobuf_module buffers_module = {.name = "nvmf_TCP"};

#define OPTION(field_, type_, initial_, help_, ...)                                                                    \
	NVMF_TRANSPORT_OPTION(struct nvmf_tcp_opts, field_, NVMF_OPTION_##type_, initial_, help_, ##__VA_ARGS__)

static const struct nvmf_transport_option options[] = {
	OPTION(c2h_success, BOOL, true,
	       "the last data of a read say that it was successful, instead of a response of its own"),
	OPTION(sock_priority, UINT32, 0, "SO_PRIORITY of the connections' sockets; 0: as they are"),
	OPTION(control_msg_num, UINT16, 32,
	       "not looked at: each connection has room for the data of a fabrics command"),
	{0},
};

static void init_tcp_opts(struct nvmf_transport_opts *o)
{
	o->max_queue_depth = 128;
	o->max_io_qpairs_per_ctrlr = 127;
	o->in_capsule_data_size = 4096;
	o->max_io_size = 131072;
	o->io_unit_size = 131072;
	o->max_aq_depth = 128;
	o->num_shared_buffers = 511;
	o->buf_cache_size = 32;
	o->iobuf_small_cache_size = 32;
	o->iobuf_large_cache_size = 32;
	o->acceptor_backlog = 128;
	o->acceptor_poll_rate_us = 10000;
	o->abort_timeout_sec = 1;
	o->kas = 1;
	o->min_kato_ms = 1000;
}

static struct nvmf_transport *create_tcp_transport(struct nvmf_tgt *tgt, const struct nvmf_transport_opts *opts,
						   char why[NVMF_ERROR_MAX])
{
	struct nvmf_tcp_transport *t = calloc(1, sizeof(*t));
	char error[ENV_ERROR_MAX];

	if (t == NULL) {
		return NULL;
	}
	TAILQ_INIT(&t->listeners);
	TAILQ_INIT(&t->handshakes);
	t->base.sgl_rules = (struct nvmf_sgl_rules){.in_capsule = true, .transport = true, .max_descs = 1};
	int rc = nvmf_buffer_pool_create(&t->buffers, &buffers_module, opts, error);
	if (rc != 0) {
		snprintf(why, NVMF_ERROR_MAX, "num_shared_buffers %u of io_unit_size %u bytes: %.180s",
			 opts->num_shared_buffers, opts->io_unit_size, error);
		nvmf_buffer_pool_destroy(&t->buffers);
		free(t);
		errno = -rc;
		return NULL;
	}
	return &t->base;
}

static void destroy_tcp_transport(struct nvmf_transport *base)
{
	struct nvmf_tcp_transport *t = nvmf_tcp_transport_of(base);

	nvmf_buffer_pool_destroy(&t->buffers);
	free(t);
}

static void fill_tcp_discovery_entry(struct nvmf_transport *t, const struct nvmf_address *address,
				     struct nvmf_disc_log_entry *entry)
{
	bool secure = (entry->treq & (NVMF_TREQ_REQUIRED | NVMF_TREQ_NOT_REQUIRED)) == NVMF_TREQ_REQUIRED;

	entry->tsas.tcp.sectype = secure ? NVMF_TCP_SECTYPE_TLS13 : NVMF_TCP_SECTYPE_NONE;
}

static void fill_tcp_group_stats(struct nvmf_transport_group *base, struct nvmf_transport_stats *stats)
{
	struct nvmf_tcp_group *g = nvmf_tcp_group_of(base);

	stats->connections = g->connections;
	stats->connection_bytes = g->connection_bytes;
	stats->group_bytes = sizeof(*g);
	nvmf_transport_add_device_stats(base, stats, "sockets", &g->counters);
}

#define COUNTER(field_, ...)                                                                                           \
	{                                                                                                              \
		.name = #field_, .offset = offsetof(struct nvmf_tcp_counters, field_), ##__VA_ARGS__                   \
	}

static const struct nvmf_device_counter device_counters[] = {
	COUNTER(polls, .metric = "polls_total", .help = "How often the poll group's sockets were looked at."),
	COUNTER(idle_polls, .metric = "idle_polls_total", .help = "Polls that found nothing."),
	COUNTER(requests, .metric = "requests_total", .help = "Commands received."),
	COUNTER(request_latency),
	COUNTER(reads, .metric = "reads_total", .help = "Reads of sockets."),
	COUNTER(read_bytes, .metric = "read_bytes_total", .help = "Bytes that they brought."),
	COUNTER(sends, .metric = "sends_total", .help = "Writes to sockets."),
	COUNTER(sent_bytes, .metric = "sent_bytes_total", .help = "Bytes that they took."),
	COUNTER(r2ts, .metric = "r2ts_total", .help = "Commands whose data were asked for."),
	COUNTER(pending_send, .waits_for = "room in a socket", .metric = "send_waits_total",
		.help = "How often a socket took no more."),
	COUNTER(zerocopy_sends, .metric = "zerocopy_sends_total",
		.help = "Writes of data that the kernel sends without a copy (MSG_ZEROCOPY)."),
	COUNTER(zerocopy_copied, .metric = "zerocopy_copied_total", .help = "Those of them that it has copied."),
	COUNTER(digest_errors, .metric = "digest_errors_total", .help = "Data digests that did not fit."),
	COUNTER(terminations, .metric = "terminations_total",
		.help = "Connections of hosts that broke the rules of NVMe/TCP."),
	{0},
};

#define FIELD(name_, field_) .name = name_, NVMF_QPAIR_FIELD(struct nvmf_tcp_qpair, field_)

static const struct nvmf_qpair_field qpair_fields[] = {
	{FIELD("connection", state), .names = nvmf_tcp_qpair_state_names, .n_names = NVMF_TCP_QPAIR_STATES},
	{FIELD("commands", in_use)},
	{FIELD("unsent", unsent)},
	{FIELD("transfers", transfers)},
	{0},
};

static struct nvmf_transport_ops nvmf_tcp_ops = {
	.name = "TCP",
	.trtype = NVMF_TRTYPE_TCP,
	.ip_only = true,
	.trace_object_type = TRACE_OBJECT_NVMF_TCP_IO,
	.trace_prefix = "TCP_REQ_",
	.trace_group = "nvmf_tcp",
	.states = nvmf_tcp_request_states,
	.n_states = TCP_REQ_STATES,
	.state_offset = NVMF_REQUEST_OFFSET(struct nvmf_tcp_request, req, state),
	.state_ticks_offset = NVMF_REQUEST_OFFSET(struct nvmf_tcp_request, req, state_ticks),
	.qpair_fields = qpair_fields,
	.counters = device_counters,
	.options = options,
	.opts_init = init_tcp_opts,
	.create = create_tcp_transport,
	.destroy = destroy_tcp_transport,
	.listen = nvmf_tcp_op_listen,
	.listen_secure = nvmf_tcp_op_listen_secure,
	.stop_listen = nvmf_tcp_op_stop_listen,
	.resume = nvmf_tcp_op_resume,
	.discover = fill_tcp_discovery_entry,
	.group_create = nvmf_tcp_op_group_create,
	.group_destroy = nvmf_tcp_op_group_destroy,
	.group_stats = fill_tcp_group_stats,
	.qpair_add = nvmf_tcp_op_qpair_add,
	.qpair_is_idle = nvmf_tcp_op_qpair_is_idle,
	.qpair_close = nvmf_tcp_op_qpair_close,
	.qpair_destroy = nvmf_tcp_op_qpair_destroy,
	.request_complete = nvmf_tcp_op_request_complete,
	.request_continue = nvmf_tcp_op_request_continue,
	.request_abort = nvmf_tcp_op_request_abort,
};
NVMF_TRANSPORT(nvmf_tcp_ops)

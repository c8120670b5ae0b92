/* SPDX-License-Identifier: BSD-3-Clause */
/* Transports. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rpc_methods/nvmf.h"

/* Each option and whether it was given: defaults are the transport's. */
struct create_transport {
	char *trtype, *tgt_name;
	struct nvmf_transport_opts opts;
	uint32_t acceptor_poll_rate, min_kato;
	bool c2h_success;
	uint32_t sock_priority;
	uint16_t control_msg_num;
	struct {
		bool max_queue_depth, max_io_qpairs_per_ctrlr, in_capsule_data_size, max_io_size, io_unit_size,
			max_aq_depth, num_shared_buffers, buf_cache_size, iobuf_small_cache_size,
			iobuf_large_cache_size, zcopy, dif_insert_or_strip, acceptor_backlog, abort_timeout_sec, kas,
			ack_timeout, num_cqe, max_srq_depth, no_srq, no_wr_batching, data_wr_pool_size,
			acceptor_poll_rate, min_kato;
	} given;
};

#define OPT(field_, type_, help_)                                                                                      \
	{                                                                                                              \
		.name = #field_, .type = type_, .offset = offsetof(struct create_transport, opts.field_),              \
		.size = sizeof(((struct nvmf_transport_opts *)0)->field_), .required = RPC_OPTIONAL, .help = help_,    \
		.given_offset = offsetof(struct create_transport, given.field_)                                        \
	}

/* TCP's, which files saved by other programs may contain for any transport. */
#define UNUSED_HELP "of another transport: not looked at"

static const struct rpc_param create_transport_params[] = {
	RPC_PARAM(struct create_transport, trtype, RPC_STRING, RPC_REQUIRED, "RDMA"),
	RPC_PARAM(struct create_transport, tgt_name, RPC_STRING, RPC_OPTIONAL,
		  "name of the target; the default one if not given"),
	OPT(max_queue_depth, RPC_UINT16, "entries of an I/O queue"),
	OPT(max_io_qpairs_per_ctrlr, RPC_UINT16, "I/O queues of a controller"),
	OPT(in_capsule_data_size, RPC_UINT32, "bytes of data that a command may bring along"),
	OPT(max_io_size, RPC_UINT32, "bytes of one command, a power of two"),
	OPT(io_unit_size, RPC_UINT32, "bytes of one data buffer"),
	OPT(max_aq_depth, RPC_UINT32, "entries of an admin queue"),
	OPT(num_shared_buffers, RPC_UINT32, "data buffers of all poll groups together"),
	OPT(buf_cache_size, RPC_UINT32, "the default of the next two"),
	OPT(iobuf_small_cache_size, RPC_UINT32, "small data buffers that each poll group keeps at hand"),
	OPT(iobuf_large_cache_size, RPC_UINT32, "large ones; used when io_unit_size exceeds small_bufsize"),
	OPT(zcopy, RPC_BOOL, "move data straight to and from bdevs whose blocks are memory"),
	OPT(acceptor_backlog, RPC_INT32, "connections that may wait to be accepted"),
	OPT(abort_timeout_sec, RPC_UINT32, "not looked at: an abort ends when the bdev has answered it"),
	OPT(kas, RPC_UINT16, "keep-alive granularity, units of 100 ms"),
	OPT(ack_timeout, RPC_UINT32,
	    "milliseconds that a host may acknowledge nothing of what it was sent before it is disconnected; 0: 30000"),
	OPT(num_cqe, RPC_INT32, "RDMA: entries of a completion queue; -1: as needed"),
	OPT(max_srq_depth, RPC_UINT32, "RDMA: entries of a shared receive queue"),
	OPT(no_srq, RPC_BOOL, "RDMA: a receive queue for each connection"),
	OPT(no_wr_batching, RPC_BOOL, "RDMA: ring the doorbell for every send"),
	OPT(data_wr_pool_size, RPC_UINT32,
	    "RDMA: work requests for scattered data; never fewer than one command can need"),
	RPC_PARAM(struct create_transport, acceptor_poll_rate, RPC_UINT32, RPC_OPTIONAL,
		  "of transports that look for connections now and then; not looked at: they are taken as they come",
		  .given_offset = offsetof(struct create_transport, given.acceptor_poll_rate)),
	RPC_PARAM(struct create_transport, min_kato, RPC_UINT32, RPC_OPTIONAL,
		  "milliseconds that a host's keep-alive timeout is rounded up to",
		  .given_offset = offsetof(struct create_transport, given.min_kato)),
	OPT(dif_insert_or_strip, RPC_BOOL,
	    "hosts see blocks without metadata: made when they write, checked when they read"),
	RPC_PARAM(struct create_transport, c2h_success, RPC_BOOL, RPC_OPTIONAL, UNUSED_HELP),
	RPC_PARAM(struct create_transport, sock_priority, RPC_UINT32, RPC_OPTIONAL, UNUSED_HELP),
	RPC_PARAM(struct create_transport, control_msg_num, RPC_UINT16, RPC_OPTIONAL, UNUSED_HELP),
	RPC_ONLY(disable_mappable_bar0, RPC_BOOL, "false", "there is no vfio-user"),
	RPC_ONLY(disable_adaptive_irq, RPC_BOOL, "false", "there is no vfio-user"),
	RPC_ONLY(disable_shadow_doorbells, RPC_BOOL, "false", "there is no vfio-user"),
	RPC_ONLY(disable_command_passthru, RPC_BOOL, "false",
		 "which commands are passed on is up to each namespace, by default none"),
	RPC_ONLY(masked_oncs, RPC_ARRAY, "[]", "optional commands are offered as the bdevs have them"),
	RPC_ONLY(masked_fuses, RPC_ARRAY, "[]", "fused commands are offered as the bdevs have them"),
	RPC_PARAM_END,
};

#define TAKE(field_)                                                                                                   \
	if (p->given.field_) {                                                                                         \
		opts->field_ = p->opts.field_;                                                                         \
	}

static void take_given(const struct create_transport *p, struct nvmf_transport_opts *opts)
{
	TAKE(max_queue_depth)
	TAKE(max_io_qpairs_per_ctrlr)
	TAKE(in_capsule_data_size)
	TAKE(max_io_size)
	TAKE(io_unit_size)
	TAKE(max_aq_depth)
	TAKE(num_shared_buffers)
	TAKE(buf_cache_size)
	opts->iobuf_small_cache_size = opts->iobuf_large_cache_size = opts->buf_cache_size;
	TAKE(iobuf_small_cache_size)
	TAKE(iobuf_large_cache_size)
	TAKE(zcopy)
	TAKE(dif_insert_or_strip)
	TAKE(acceptor_backlog)
	TAKE(abort_timeout_sec)
	TAKE(kas)
	TAKE(ack_timeout)
	TAKE(num_cqe)
	TAKE(max_srq_depth)
	TAKE(no_srq)
	TAKE(no_wr_batching)
	TAKE(data_wr_pool_size)
	if (p->given.acceptor_poll_rate) {
		opts->acceptor_poll_rate_us = p->acceptor_poll_rate;
	}
	if (p->given.min_kato) {
		opts->min_kato_ms = p->min_kato;
	}
}

static void answer_unknown_type(struct rpc_request *req, const char *trtype)
{
	char known[256] = "";

	for (unsigned i = 0; nvmf_transport_type(i) != NULL; i++) {
		size_t len = strlen(known);
		snprintf(known + len, sizeof(known) - len, "%s%s", i != 0 ? ", " : "", nvmf_transport_type(i));
	}
	rpc_error(req, RPC_ERROR_INVALID_PARAMS, "parameter \"trtype\" is \"%s\": this program has %s", trtype,
		  known[0] != 0 ? known : "no transport");
}

static void rpc_create_transport(struct rpc_request *req, void *params)
{
	const struct create_transport *p = params;
	struct nvmf_tgt *tgt = rpc_nvmf_tgt(req, p->tgt_name);
	struct nvmf_transport_opts opts;
	char why[NVMF_ERROR_MAX] = "";

	if (tgt == NULL) {
		return;
	}
	if (nvmf_transport_opts_init(p->trtype, &opts) != 0) {
		answer_unknown_type(req, p->trtype);
		return;
	}
	take_given(p, &opts);
	if (nvmf_transport_opts_check(&opts, why) != 0) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "parameter %s", why);
		return;
	}
	int rc = nvmf_transport_create(tgt, p->trtype, &opts);
	if (rc == -EEXIST) { /* in these words: clients that make one in any case look for them */
		rpc_error(req, rc, "Transport type '%s' already exists", p->trtype);
		return;
	}
	if (rc != 0) {
		rpc_error(req, rc, "transport %s cannot be made: %s; the log says more", p->trtype, strerror(-rc));
		return;
	}
	rpc_reply_true(req);
}
RPC_METHOD("nvmf_create_transport", rpc_create_transport, struct create_transport, create_transport_params, RPC_RUNTIME,
	   "Make a transport, so that subsystems can listen", .result = "true")

struct get_transports {
	char *tgt_name, *trtype;
};

static const struct rpc_param get_transports_params[] = {
	RPC_PARAM(struct get_transports, tgt_name, RPC_STRING, RPC_OPTIONAL,
		  "name of the target; the default one if not given"),
	RPC_PARAM(struct get_transports, trtype, RPC_STRING, RPC_OPTIONAL, "only this one"),
	RPC_PARAM_END,
};

json_t *rpc_nvmf_transport_json(const struct nvmf_transport *t)
{
	const struct nvmf_transport_opts *opts = nvmf_transport_get_opts(t);
	json_t *o = json_object();

	json_object_set_new(o, "trtype", rpc_string(nvmf_transport_name(t)));
	json_object_set_new(o, "max_queue_depth", json_integer(opts->max_queue_depth));
	json_object_set_new(o, "max_io_qpairs_per_ctrlr", json_integer(opts->max_io_qpairs_per_ctrlr));
	json_object_set_new(o, "in_capsule_data_size", json_integer(opts->in_capsule_data_size));
	json_object_set_new(o, "max_io_size", json_integer(opts->max_io_size));
	json_object_set_new(o, "io_unit_size", json_integer(opts->io_unit_size));
	json_object_set_new(o, "max_aq_depth", json_integer(opts->max_aq_depth));
	json_object_set_new(o, "num_shared_buffers", json_integer(opts->num_shared_buffers));
	json_object_set_new(o, "buf_cache_size", json_integer(opts->buf_cache_size));
	json_object_set_new(o, "iobuf_small_cache_size", json_integer(opts->iobuf_small_cache_size));
	json_object_set_new(o, "iobuf_large_cache_size", json_integer(opts->iobuf_large_cache_size));
	json_object_set_new(o, "dif_insert_or_strip", json_boolean(opts->dif_insert_or_strip));
	json_object_set_new(o, "zcopy", json_boolean(opts->zcopy));
	json_object_set_new(o, "acceptor_backlog", json_integer(opts->acceptor_backlog));
	json_object_set_new(o, "acceptor_poll_rate", json_integer(opts->acceptor_poll_rate_us));
	json_object_set_new(o, "abort_timeout_sec", json_integer(opts->abort_timeout_sec));
	json_object_set_new(o, "kas", json_integer(opts->kas));
	json_object_set_new(o, "min_kato", json_integer(opts->min_kato_ms));
	json_object_set_new(o, "ack_timeout", json_integer(opts->ack_timeout));
	json_object_set_new(o, "num_cqe", json_integer(opts->num_cqe));
	json_object_set_new(o, "max_srq_depth", json_integer(opts->max_srq_depth));
	json_object_set_new(o, "no_srq", json_boolean(opts->no_srq));
	json_object_set_new(o, "no_wr_batching", json_boolean(opts->no_wr_batching));
	json_object_set_new(o, "data_wr_pool_size", json_integer(opts->data_wr_pool_size));
	return o;
}

static void rpc_get_transports(struct rpc_request *req, void *params)
{
	const struct get_transports *p = params;
	struct nvmf_tgt *tgt = rpc_nvmf_tgt(req, p->tgt_name);
	json_t *list;

	if (tgt == NULL) {
		return;
	}
	if (p->trtype != NULL && nvmf_transport_find(tgt, p->trtype) == NULL) {
		rpc_error(req, -ENODEV, "parameter \"trtype\" is \"%s\": the target has no such transport", p->trtype);
		return;
	}
	list = json_array();
	for (struct nvmf_transport *t = nvmf_transport_next(tgt, NULL); t != NULL; t = nvmf_transport_next(tgt, t)) {
		if (p->trtype == NULL || nvmf_transport_find(tgt, p->trtype) == t) {
			json_array_append_new(list, rpc_nvmf_transport_json(t));
		}
	}
	rpc_reply(req, list);
}
RPC_METHOD("nvmf_get_transports", rpc_get_transports, struct get_transports, get_transports_params, RPC_RUNTIME,
	   "List a target's transports and their options",
	   .result = "[{trtype: string, max_queue_depth: int, max_io_qpairs_per_ctrlr: int, "
		     "in_capsule_data_size: int, max_io_size: int, io_unit_size: int, max_aq_depth: int, "
		     "num_shared_buffers: int, buf_cache_size: int, ...}]")

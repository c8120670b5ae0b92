/* SPDX-License-Identifier: BSD-3-Clause */
#include "unittest/nvmf/loop.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "keyring/keyring.h"

/* The target's side of a request. Data go through pieces of 4 KiB, so that nothing relies on buffers being whole. */
#define PIECE  4096
#define PIECES (LOOP_MAX_IO / PIECE * 5 / 4)

enum loop_state {
	LOOP_NEW = 0,
	LOOP_NEED_BUFFER = 1,
	LOOP_NEED_CREDIT = 2, /* never: a state that only this transport has, for the tools to show */
	LOOP_EXECUTING = 3,
	LOOP_COMPLETING = 4,
	LOOP_IDLE = NVMF_STATE_IDLE,
	LOOP_STATES,
};

struct loop_request {
	uint8_t state; /* enum loop_state */
	uint64_t state_ticks;
	struct loop_cmd *cmd; /* NULL: idle */
	struct loop_qpair *qp;
	bool waits_for_data;
	uint8_t *buffer;
	struct iovec iovs[PIECES];
	struct nvmf_request req; /* last */
};

struct loop_qpair {
	struct nvmf_qpair q; /* first */
	struct loop_conn *conn;
	struct nvmf_request_array requests;
	uint32_t turns;
	bool closing;
	unsigned in_use;
};

struct loop_group {
	struct nvmf_transport_group g;
};

/* What only this transport has. */
struct loop_opts {
	uint32_t loop_turns;
	bool loop_slowly;
};

struct loop_counters {
	uint64_t turns, credit_waits, unseen;
};

const struct nvmf_address loop_address = {"LOOP", NVMF_ADDR_FAMILY_LOOP, "here", "1"};
const struct nvmf_address loop_other_address = {"LOOP", NVMF_ADDR_FAMILY_LOOP, "there", "2"};

const struct nvmf_address *loop_peer;
uint32_t loop_placement;
atomic_bool loop_hold_data, loop_zcopy, loop_keep_answered;
atomic_uint loop_requests, loop_qpairs, loop_zcopy_requests;

/* Outside of tests, and on other threads than theirs, CUnit cannot be told. */
static void must(bool truth)
{
	if (!truth) {
		abort();
	}
}

struct nvmf_tgt *loop_use_tgt;
_Atomic uint64_t loop_last_start;
atomic_bool loop_measures = true;
static struct nvmf_tgt *tgt;
static struct nvmf_subsystem *subsystem;

/* ---- The transport ---- */

static struct loop_request *to_loop(struct nvmf_request *req)
{
	return (struct loop_request *)((char *)req - offsetof(struct loop_request, req));
}

static const struct nvmf_transport_option loop_options[] = {
	NVMF_TRANSPORT_OPTION(struct loop_opts, loop_turns, NVMF_OPTION_UINT32, 3, "turns of the loop", .min = 1,
			      .max = 9),
	NVMF_TRANSPORT_OPTION(struct loop_opts, loop_slowly, NVMF_OPTION_BOOL, true, "no hurry"),
	{0},
};

static const struct nvmf_device_counter loop_counters[] = {
	{"turns", .metric = "turns_total", .help = "Turns of the loop.",
	 .offset = offsetof(struct loop_counters, turns)},
	{"pending_credit", .waits_for = "loop credit", .offset = offsetof(struct loop_counters, credit_waits)},
	{"unseen", .offset = offsetof(struct loop_counters, unseen)},
	{0},
};

#define STATE(s_, name_, class_, ...) [LOOP_##s_] = {name_, #s_, .class = NVMF_CLASS_##class_, ##__VA_ARGS__}
static const struct nvmf_transport_state loop_states[LOOP_STATES] = {
	STATE(NEW, "loop new", PASSING),
	STATE(NEED_BUFFER, "loop need buffer", WAITS_FOR_BUFFER, .waits_for = "data buffer"),
	STATE(NEED_CREDIT, "loop need credit", WAITS_FOR_ROOM, .waits_for = "loop credit",
	      .remedy = "nvmf_create_transport loop_turns=N"),
	STATE(EXECUTING, "loop executing", EXECUTES),
	STATE(COMPLETING, "loop completing", COMPLETES),
	STATE(IDLE, "loop idle", IDLE),
};

static const struct nvmf_qpair_field loop_fields[] = {
	{.name = "turns", NVMF_QPAIR_FIELD(struct loop_qpair, turns)},
	{0},
};

static void set_state(struct loop_request *lr, enum loop_state state)
{
	lr->state = (uint8_t)state;
	lr->state_ticks = thread_now();
}

static void opts_init(struct nvmf_transport_opts *o)
{
	o->max_queue_depth = LOOP_QUEUE;
	o->max_aq_depth = 32;
	o->max_io_qpairs_per_ctrlr = 4;
	o->in_capsule_data_size = LOOP_ICD_MAX;
	o->max_io_size = LOOP_MAX_IO;
	o->io_unit_size = LOOP_MAX_IO;
	o->num_shared_buffers = 1; /* of neither is anything made */
	o->io_unit_size = PIECE;
	o->zcopy = true;
}

static struct nvmf_transport *create(struct nvmf_tgt *t, const struct nvmf_transport_opts *opts, char *why)
{
	struct nvmf_transport *transport = calloc(1, sizeof(*transport));

	transport->sgl_rules = (struct nvmf_sgl_rules){.in_capsule = true, .keyed = true, .max_descs = 16};
	return transport;
}

static void destroy(struct nvmf_transport *t)
{
	free(t);
}

static int listen_on(struct nvmf_transport *t, const struct nvmf_address *address)
{
	return strcmp(address->traddr, "nowhere") == 0 ? -EADDRNOTAVAIL : 0;
}

static void stop_listen(struct nvmf_transport *t, const struct nvmf_address *address)
{
}

unsigned loop_resumes;

static void resume(struct nvmf_transport *t)
{
	CU_ASSERT_FALSE(t->held);
	loop_resumes++;
}

static void discover(struct nvmf_transport *t, const struct nvmf_address *address, struct nvmf_disc_log_entry *entry)
{
	entry->tsas.common[0] = 'L';
}

static struct nvmf_transport_group *group_create(struct nvmf_transport *t, struct nvmf_poll_group *group, char *why)
{
	return calloc(1, sizeof(struct loop_group));
}

static void group_destroy(struct nvmf_transport_group *tgroup)
{
	free(tgroup);
}

static void group_stats(struct nvmf_transport_group *tgroup, struct nvmf_transport_stats *stats)
{
	stats->pending_data_buffer = 7; /* it has no struct nvmf_buffer_group */
	nvmf_transport_add_device_stats(tgroup, stats, "loop0",
					&(struct loop_counters){.turns = 11, .credit_waits = 5, .unseen = 6});
}

static int qpair_add(struct nvmf_transport_group *tgroup, struct nvmf_qpair *qpair)
{
	struct loop_qpair *qp = (struct loop_qpair *)qpair;

	qpair->requests = &qp->requests;
	qp->conn->qp = qp;
	qp->conn->thread = thread_current();
	atomic_store(&qp->conn->added, true);
	fixture_wake();
	return 0;
}

static void request_idle(struct loop_request *lr)
{
	struct loop_qpair *qp = lr->qp;

	nvmf_request_release(&lr->req);
	free(lr->buffer);
	lr->buffer = NULL;
	lr->cmd = NULL;
	set_state(lr, LOOP_IDLE);
	lr->waits_for_data = false;
	atomic_fetch_sub(&loop_requests, 1);
	if (--qp->in_use == 0 && qp->closing) {
		nvmf_qpair_closed(&qp->q);
	}
}

static void cmd_done(struct loop_cmd *cmd, const struct nvme_cqe *cqe)
{
	atomic_uint *outstanding = &cmd->conn->outstanding;

	cmd->cqe = *cqe;
	atomic_store(&cmd->done, true);
	atomic_fetch_sub(outstanding, 1);
	fixture_wake();
}

static void cmd_gone(struct loop_cmd *cmd)
{
	cmd_done(cmd, &(struct nvme_cqe){.status = (uint16_t)(LOOP_STATUS_GONE << 1)});
}

static struct loop_request *request_at(const struct loop_qpair *qp, uint32_t i)
{
	return to_loop((struct nvmf_request *)((char *)qp->requests.first + i * qp->requests.stride));
}

static bool qpair_is_idle(const struct nvmf_qpair *qpair)
{
	return ((const struct loop_qpair *)qpair)->in_use == 0;
}

static void qpair_close(struct nvmf_qpair *qpair)
{
	struct loop_qpair *qp = (struct loop_qpair *)qpair;

	qp->closing = true;
	qp->in_use++; /* ours, while we look */
	for (uint32_t i = 0; i < qp->requests.count; i++) {
		struct loop_request *lr = request_at(qp, i);
		if (lr->cmd != NULL && lr->waits_for_data) {
			cmd_gone(lr->cmd);
			request_idle(lr);
		}
	}
	if (--qp->in_use == 0) {
		nvmf_qpair_closed(qpair);
	}
}

static void qpair_destroy(struct nvmf_qpair *qpair)
{
	struct loop_qpair *qp = (struct loop_qpair *)qpair;

	free((char *)qp->requests.first - offsetof(struct loop_request, req));
	qp->conn->qp = NULL;
	atomic_store(&qp->conn->closed, true);
	free(qp);
	atomic_fetch_sub(&loop_qpairs, 1);
	fixture_wake();
}

void *loop_memory;
size_t loop_memory_len;

/* A remote access error otherwise. */
static bool is_host_memory(const struct nvmf_sgl_block *b)
{
	uint64_t start = (uintptr_t)loop_memory;

	return b->key == LOOP_KEY && (loop_memory == NULL || (b->address >= start && b->length <= loop_memory_len &&
							      b->address - start <= loop_memory_len - b->length));
}

/* The "RDMA" between the pieces and what the keyed descriptors say is the host's memory. */
static bool copy_data(struct loop_request *lr, bool to_host)
{
	struct nvmf_sgl_iter it = nvmf_sgl_iter(&lr->req.sgl);
	uint32_t left = lr->req.length;
	size_t at = 0;
	unsigned piece = 0;
	struct nvmf_sgl_block b;

	while (left != 0 && nvmf_sgl_next(&it, &b)) {
		uint8_t *host = (uint8_t *)(uintptr_t)b.address;
		if (!is_host_memory(&b)) {
			return false;
		}
		while (b.length != 0 && left != 0) {
			struct iovec *iov = &lr->req.iov[piece];
			size_t n = iov->iov_len - at;
			n = n < b.length ? n : b.length;
			n = n < left ? n : left;
			memcpy(to_host ? (void *)host : (uint8_t *)iov->iov_base + at,
			       to_host ? (const uint8_t *)iov->iov_base + at : host, n);
			host += n;
			b.length -= (uint32_t)n;
			left -= (uint32_t)n;
			at += n;
			if (at == iov->iov_len) {
				at = 0;
				piece++;
			}
		}
	}
	must(left == 0);
	return true;
}

/* As the transports do it, but for the time. */
static void measure(struct nvmf_request *req)
{
	if (atomic_load(&loop_measures) && req->qpair->qid != 0 && req->sqe->opcode != nvme_admin_fabrics) {
		nvmf_request_measured(req, env_us_to_ticks(LOOP_LATENCY_US));
	}
}

static void request_complete(struct nvmf_request *req)
{
	struct loop_request *lr = to_loop(req);
	struct loop_cmd *cmd = lr->cmd;
	struct nvme_cqe cqe = req->cqe;

	atomic_store(&loop_last_start, req->start_ticks);
	measure(req);
	if (lr->qp->closing) {
		request_idle(lr);
		cmd_gone(cmd);
		return;
	}
	if (req->xfer == NVME_DATA_TFR_CTRL_TO_HOST && nvmf_request_status(req) == 0) {
		if (!copy_data(lr, true)) {
			cqe.status = htole16((uint16_t)(NVME_ST(GENERIC, DATA_XFER_ERROR) << 1));
		}
	}
	if (atomic_load(&loop_keep_answered) && req->qpair->qid != 0) {
		set_state(lr, LOOP_COMPLETING);
	} else {
		request_idle(lr);
	}
	cmd_done(cmd, &cqe);
}

static void get_buffer(struct loop_request *lr)
{
	uint32_t left = lr->req.length;

	lr->buffer = malloc(left);
	memset(lr->buffer, LOOP_STALE, left);
	lr->req.iovcnt = 0;
	for (uint8_t *p = lr->buffer; left != 0; p += PIECE) {
		uint32_t n = left < PIECE ? left : PIECE;
		lr->iovs[lr->req.iovcnt++] = (struct iovec){p, n};
		left -= n;
	}
}

static void go_on(struct loop_request *lr)
{
	struct nvmf_request *req = &lr->req;

	lr->waits_for_data = false;
	if (atomic_load(&loop_zcopy) && nvmf_request_zcopy_get(req)) {
		atomic_fetch_add(&loop_zcopy_requests, 1);
	} else {
		get_buffer(lr);
	}
	if (req->xfer == NVME_DATA_TFR_HOST_TO_CTRL && !copy_data(lr, false)) {
		nvmf_request_fail(req, NVME_ST(GENERIC, DATA_XFER_ERROR));
		return;
	}
	set_state(lr, LOOP_EXECUTING);
	nvmf_request_exec(req);
}

static void request_continue(struct nvmf_request *req, enum nvmf_next next)
{
	struct loop_request *lr = to_loop(req);

	switch (next) {
	case NVMF_NEXT_EXEC:
		nvmf_request_exec(req);
		break;
	case NVMF_NEXT_BUFFER:
		if (atomic_load(&loop_hold_data) && !req->reserved_lane) {
			lr->waits_for_data = true;
			set_state(lr, LOOP_NEED_BUFFER);
			fixture_wake();
		} else {
			go_on(lr);
		}
		break;
	case NVMF_NEXT_COMPLETE:
		request_complete(req);
		break;
	case NVMF_NEXT_WAIT:
		fixture_wake();
		break;
	}
}

static void op_request_continue(struct nvmf_request *req, enum nvmf_next next)
{
	CU_ASSERT_NOT_EQUAL(next, NVMF_NEXT_WAIT);
	request_continue(req, next);
}

static bool request_abort(struct nvmf_request *req, uint16_t status)
{
	struct loop_request *lr = to_loop(req);

	if (!lr->waits_for_data) {
		return false;
	}
	nvmf_request_fail(req, status);
	return true;
}

static struct nvmf_transport_ops loop_ops = {
	.name = "LOOP",
	.trtype = NVMF_TRTYPE_LOOP,
	.trace_object_type = TRACE_OBJECT_TEST,
	.trace_prefix = "LOOP_",
	.trace_group = "test",
	.states = loop_states,
	.n_states = LOOP_STATES,
	.state_offset = NVMF_REQUEST_OFFSET(struct loop_request, req, state),
	.state_ticks_offset = NVMF_REQUEST_OFFSET(struct loop_request, req, state_ticks),
	.qpair_fields = loop_fields,
	.counters = loop_counters,
	.options = loop_options,
	.opts_init = opts_init,
	.create = create,
	.destroy = destroy,
	.listen = listen_on,
	.stop_listen = stop_listen,
	.resume = resume,
	.discover = discover,
	.group_create = group_create,
	.group_destroy = group_destroy,
	.group_stats = group_stats,
	.qpair_add = qpair_add,
	.qpair_is_idle = qpair_is_idle,
	.qpair_close = qpair_close,
	.qpair_destroy = qpair_destroy,
	.request_complete = request_complete,
	.request_continue = op_request_continue,
	.request_abort = request_abort,
};
NVMF_TRANSPORT(loop_ops)

static void make_requests(struct loop_qpair *qp)
{
	size_t stride = (offsetof(struct loop_request, req) + nvmf_request_size() + 63) / 64 * 64;
	char *memory = aligned_alloc(64, stride * LOOP_QUEUE * 2);

	memset(memory, 0, stride * LOOP_QUEUE * 2);
	qp->requests = (struct nvmf_request_array){
		.first = &((struct loop_request *)memory)->req, .stride = stride, .count = LOOP_QUEUE * 2};
	for (uint32_t i = 0; i < qp->requests.count; i++) {
		struct loop_request *lr = request_at(qp, i);

		lr->qp = qp;
		lr->state = LOOP_IDLE;
		lr->req.qpair = &qp->q;
		lr->req.iov = lr->iovs;
	}
}

static struct loop_request *idle_request(struct loop_qpair *qp)
{
	for (uint32_t i = 0; i < qp->requests.count; i++) {
		if (request_at(qp, i)->cmd == NULL) {
			return request_at(qp, i);
		}
	}
	return NULL;
}

/* A capsule arrives. */
static void receive(void *arg)
{
	struct loop_cmd *cmd = arg;
	struct loop_qpair *qp = cmd->conn->qp;

	if (qp == NULL || qp->closing) {
		cmd_gone(cmd);
		return;
	}
	struct loop_request *lr = idle_request(qp);
	lr->cmd = cmd;
	set_state(lr, LOOP_NEW);
	qp->in_use++;
	atomic_fetch_add(&loop_requests, 1);
	lr->req.sqe = &cmd->sqe;
	lr->req.icd = cmd->icd;
	lr->req.icd_len = cmd->icd_len;
	request_continue(&lr->req, nvmf_request_start(&lr->req));
}

static void release_data(void *arg)
{
	struct loop_conn *c = arg;

	for (uint32_t i = 0; c->qp != NULL && i < c->qp->requests.count; i++) {
		struct loop_request *lr = request_at(c->qp, i);
		if (lr->cmd != NULL && lr->waits_for_data) {
			go_on(lr);
		} else if (lr->state == LOOP_COMPLETING) {
			request_idle(lr);
		}
	}
}

static void release_data_begun(void *arg)
{
	struct loop_conn *c = arg;

	release_data(c);
	atomic_fetch_sub(&c->outstanding, 1);
}

void loop_release_data_begin(struct loop_conn *c)
{
	atomic_fetch_add(&c->outstanding, 1);
	while (thread_send(c->thread, release_data_begun, c) != 0) {
	}
}

void loop_release_data(struct loop_conn *c)
{
	thread_call(c->thread, release_data, c);
}

/* ---- The suite ---- */

void loop_done(void *wait, int status)
{
	struct loop_wait *w = wait;

	must(atomic_load(&w->status) == LOOP_PENDING);
	atomic_store(&w->status, status);
	fixture_wake();
}

static bool wait_is_over(void *arg)
{
	return atomic_load(&((struct loop_wait *)arg)->status) != LOOP_PENDING;
}

bool loop_until(bool (*fn)(void *arg), void *arg)
{
	return fn(arg) || thread_control_wait(fn, arg, WAIT_US);
}

int loop_wait_for(struct loop_wait *wait)
{
	must(loop_until(wait_is_over, wait));
	return atomic_load(&wait->status);
}

static int loop_make_tgt(void)
{
	struct nvmf_transport_opts topts;
	struct nvmf_subsystem_opts sopts = {.serial_number = "SN0123456789", .allow_any_host = true};
	struct loop_wait wait = LOOP_WAIT;
	cpu_set_t cores;

	CPU_ZERO(&cores);
	CPU_SET(1, &cores);
	CPU_SET(2, &cores);
	int rc = nvmf_tgt_create(&(struct nvmf_tgt_opts){.name = "t", .cores = &cores}, &tgt);
	if (rc != 0) {
		return rc;
	}
	nvmf_transport_opts_init("LOOP", &topts);
	rc = nvmf_transport_create(tgt, "loop", &topts, (char[NVMF_ERROR_MAX]){0});
	rc = rc != 0 ? rc : nvmf_tgt_start(tgt);
	rc = rc != 0 ? rc : nvmf_subsystem_create(tgt, LOOP_SUBNQN, &sopts, &subsystem);
	rc = rc != 0 ? rc : nvmf_subsystem_add_listener(subsystem, &loop_address);
	if (rc == 0) {
		nvmf_subsystem_start(subsystem, loop_done, &wait);
		rc = loop_wait_for(&wait);
	}
	return rc;
}

int loop_start(void)
{
	int rc = fixture_start();

	return rc != 0 ? rc : loop_make_tgt();
}

int loop_replace_tgt(void)
{
	nvmf_tgt_destroy(tgt);
	return loop_make_tgt();
}

int loop_stop(void)
{
	struct loop_wait wait = LOOP_WAIT;

	nvmf_tgt_stop(tgt, loop_done, &wait);
	int rc = loop_wait_for(&wait);
	nvmf_tgt_destroy(tgt);
	if (atomic_load(&loop_requests) != 0 || atomic_load(&loop_qpairs) != 0) {
		printf("left behind: %u requests, %u queue pairs\n", loop_requests, loop_qpairs);
		rc = -1;
	}
	return rc | fixture_stop();
}

struct nvmf_tgt *loop_tgt(void)
{
	return tgt;
}

struct nvmf_subsystem *loop_subsystem(void)
{
	return subsystem;
}

struct thread *loop_group_thread(unsigned i)
{
	struct nvmf_poll_group *group = nvmf_poll_group_next(tgt, NULL);

	while (i-- != 0) {
		group = nvmf_poll_group_next(tgt, group);
	}
	return nvmf_poll_group_thread(group);
}

/* ---- The host ---- */

static bool is_added_or_closed(void *arg)
{
	struct loop_conn *c = arg;
	return atomic_load(&c->added) || atomic_load(&c->closed);
}

struct loop_conn *loop_open_begin(struct nvmf_tgt *to, const struct nvmf_address *address, uint16_t qid)
{
	struct loop_conn *c = calloc(1, sizeof(*c));
	struct loop_qpair *qp = calloc(1, sizeof(*qp));

	qp->conn = c;
	make_requests(qp);
	qp->q.transport = nvmf_transport_find(to, "LOOP");
	qp->q.listen_address = *address;
	qp->q.local_address = *address;
	qp->q.placement = loop_placement;
	qp->q.peer_address = loop_peer != NULL ? *loop_peer : *address;
	atomic_fetch_add(&loop_qpairs, 1);
	if (nvmf_qpair_accept(&qp->q, qid) != 0) {
		atomic_fetch_sub(&loop_qpairs, 1);
		free((char *)qp->requests.first - offsetof(struct loop_request, req));
		free(qp);
		free(c);
		return NULL;
	}
	return c;
}

struct loop_conn *loop_open(const struct nvmf_address *address, uint16_t qid)
{
	struct loop_conn *c = loop_open_begin(loop_use_tgt != NULL ? loop_use_tgt : tgt, address, qid);

	if (c != NULL) {
		CU_ASSERT_TRUE_FATAL(loop_until(is_added_or_closed, c));
	}
	return c;
}

static void hang_up(void *arg)
{
	struct loop_conn *c = arg;

	if (c->qp != NULL) {
		nvmf_qpair_disconnect(&c->qp->q, "the host hung up");
	}
}

void loop_break(struct loop_conn *c)
{
	thread_call(c->thread, hang_up, c);
}

static void hang_up_begun(void *arg)
{
	struct loop_conn *c = arg;

	hang_up(c);
	atomic_fetch_sub(&c->outstanding, 1);
}

void loop_hang_up(struct loop_conn *c)
{
	atomic_fetch_add(&c->outstanding, 1);
	while (thread_send(c->thread, hang_up_begun, c) != 0) {
	}
}

static bool is_closed(void *arg)
{
	struct loop_conn *c = arg;
	return atomic_load(&c->closed) && atomic_load(&c->outstanding) == 0;
}

bool loop_wait_closed(struct loop_conn *c)
{
	return loop_until(is_closed, c);
}

void loop_close(struct loop_conn *c)
{
	if (!atomic_load(&c->closed)) {
		thread_call(c->thread, hang_up, c);
	}
	CU_ASSERT_TRUE_FATAL(loop_wait_closed(c));
	free(c);
}

void loop_cmd_init(struct loop_cmd *cmd, struct loop_conn *c, uint8_t opcode, uint32_t nsid)
{
	static uint16_t next_cid;

	memset(&cmd->sqe, 0, sizeof(cmd->sqe));
	cmd->conn = c;
	cmd->icd_len = 0;
	cmd->sqe.opcode = opcode;
	cmd->sqe.flags = NVME_CMD_FLAGS_PSDT_SGL;
	cmd->sqe.cid = next_cid++;
	cmd->sqe.nsid = htole32(nsid);
}

void loop_cmd_data(struct loop_cmd *cmd, void *buf, uint32_t len)
{
	cmd->sqe.sgl1 = nvme_sgl_make_keyed((uintptr_t)buf, len, LOOP_KEY, NVME_SGL_SUBTYPE_ADDRESS);
}

void loop_submit(struct loop_cmd *cmd)
{
	atomic_store(&cmd->done, false);
	atomic_fetch_add(&cmd->conn->outstanding, 1);
	while (thread_send(cmd->conn->thread, receive, cmd) != 0) {
	}
}

static bool cmd_is_done(void *arg)
{
	return atomic_load(&((struct loop_cmd *)arg)->done);
}

uint16_t loop_wait(struct loop_cmd *cmd)
{
	CU_ASSERT_TRUE_FATAL(loop_until(cmd_is_done, cmd));
	uint16_t status = nvme_cqe_status(&cmd->cqe);
	if (status != LOOP_STATUS_GONE) {
		CU_ASSERT_EQUAL(cmd->cqe.cid, cmd->sqe.cid);
	}
	return status;
}

uint16_t loop_run(struct loop_cmd *cmd)
{
	loop_submit(cmd);
	return loop_wait(cmd);
}

bool loop_given_up(uint16_t status)
{
	return status == LOOP_STATUS_GONE || status == NVME_ST(GENERIC, ABORT_QUEUE) ||
	       status == NVME_ST(PATH, CTRL_PATH_ERROR);
}

void loop_connect_init(struct loop_cmd *cmd, struct loop_conn *c, struct nvmf_connect_data *data, uint16_t qid,
		       uint16_t cntlid)
{
	struct nvmf_connect_sqe *sqe = (void *)&cmd->sqe;

	loop_cmd_init(cmd, c, nvme_admin_fabrics, 0);
	sqe->fctype = nvme_fabrics_type_connect;
	sqe->qid = htole16(qid);
	sqe->sqsize = htole16(31);
	memset(data, 0, sizeof(*data));
	memset(data->hostid, 0x42, sizeof(data->hostid));
	data->cntlid = htole16(cntlid);
	strcpy(data->subsysnqn, LOOP_SUBNQN);
	strcpy(data->hostnqn, LOOP_HOSTNQN);
	loop_cmd_data(cmd, data, sizeof(*data));
}

uint16_t loop_property_get(struct loop_conn *c, uint32_t offset, uint8_t size, uint64_t *value)
{
	struct loop_cmd cmd;
	struct nvmf_property_get_sqe *sqe = (void *)&cmd.sqe;

	loop_cmd_init(&cmd, c, nvme_admin_fabrics, 0);
	sqe->fctype = nvme_fabrics_type_property_get;
	sqe->attrib = size == 8 ? NVMF_PROPERTY_SIZE_8 : NVMF_PROPERTY_SIZE_4;
	sqe->ofst = htole32(offset);
	uint16_t status = loop_run(&cmd);
	*value = le64toh(cmd.cqe.result);
	return status;
}

uint16_t loop_property_set(struct loop_conn *c, uint32_t offset, uint8_t size, uint64_t value)
{
	struct loop_cmd cmd;
	struct nvmf_property_set_sqe *sqe = (void *)&cmd.sqe;

	loop_cmd_init(&cmd, c, nvme_admin_fabrics, 0);
	sqe->fctype = nvme_fabrics_type_property_set;
	sqe->attrib = size == 8 ? NVMF_PROPERTY_SIZE_8 : NVMF_PROPERTY_SIZE_4;
	sqe->ofst = htole32(offset);
	sqe->value = htole64(value);
	return loop_run(&cmd);
}

static void name_host(struct nvmf_connect_data *data, const struct loop_host *host)
{
	snprintf(data->subsysnqn, sizeof(data->subsysnqn), "%s", host->subnqn);
	snprintf(data->hostnqn, sizeof(data->hostnqn), "%s", host->hostnqn);
	memset(data->hostid, host->hostid, sizeof(data->hostid));
}

struct loop_conn *loop_attach(const char *subnqn, const char *hostnqn, uint32_t kato_ms)
{
	return loop_attach_as(&(struct loop_host){&loop_address, subnqn, hostnqn, 0x42, kato_ms});
}

struct loop_conn *loop_attach_as(const struct loop_host *host)
{
	struct loop_conn *c = loop_open(host->address, 0);
	struct nvmf_connect_data data;
	struct loop_cmd cmd;

	c->host = *host;
	loop_connect_init(&cmd, c, &data, 0, NVMF_CNTLID_DYNAMIC);
	((struct nvmf_connect_sqe *)&cmd.sqe)->kato = htole32(host->kato_ms);
	name_host(&data, host);
	if (loop_run(&cmd) != 0 || loop_property_set(c, NVME_REG_CC, 4, LOOP_CC_ENABLE) != 0) {
		loop_close(c);
		return NULL;
	}
	c->cntlid = (uint16_t)le32toh(cmd.cqe.dw0);
	return c;
}

struct loop_conn *loop_io_queue(struct loop_conn *admin, uint16_t qid)
{
	struct loop_conn *c = loop_open(admin->host.address, qid);
	struct nvmf_connect_data data;
	struct loop_cmd cmd;

	loop_connect_init(&cmd, c, &data, qid, admin->cntlid);
	((struct nvmf_connect_sqe *)&cmd.sqe)->sqsize = htole16(LOOP_QUEUE - 1);
	name_host(&data, &admin->host);
	c->host = admin->host;
	if (loop_run(&cmd) != 0) {
		loop_close(c);
		return NULL;
	}
	c->cntlid = admin->cntlid;
	return c;
}

uint16_t loop_rw(struct loop_conn *c, uint8_t opcode, uint32_t nsid, uint64_t slba, uint16_t nlb, void *buf,
		 uint32_t len)
{
	struct loop_cmd cmd;

	loop_cmd_init(&cmd, c, opcode, nsid);
	cmd.sqe.cdw10 = htole32((uint32_t)slba);
	cmd.sqe.cdw11 = htole32((uint32_t)(slba >> 32));
	cmd.sqe.cdw12 = htole32(nlb);
	loop_cmd_data(&cmd, buf, len);
	return loop_run(&cmd);
}

uint16_t loop_identify(struct loop_conn *c, uint8_t cns, uint32_t nsid, uint32_t cdw11, void *buf)
{
	struct loop_cmd cmd;

	loop_cmd_init(&cmd, c, nvme_admin_identify, nsid);
	cmd.sqe.cdw10 = htole32(cns);
	cmd.sqe.cdw11 = htole32(cdw11);
	loop_cmd_data(&cmd, buf, 4096);
	return loop_run(&cmd);
}

uint16_t loop_get_log(struct loop_conn *c, uint8_t lid, bool rae, uint64_t offset, void *buf, uint32_t len)
{
	struct loop_cmd cmd;
	uint32_t numd = len / 4 - 1;

	loop_cmd_init(&cmd, c, nvme_admin_get_log_page, NVME_NSID_ALL);
	cmd.sqe.cdw10 = htole32(lid | (uint32_t)rae << 15 | numd << 16);
	cmd.sqe.cdw11 = htole32(numd >> 16);
	cmd.sqe.cdw12 = htole32((uint32_t)offset);
	cmd.sqe.cdw13 = htole32((uint32_t)(offset >> 32));
	loop_cmd_data(&cmd, buf, len);
	return loop_run(&cmd);
}

static uint16_t feature(struct loop_conn *c, uint8_t opcode, uint32_t cdw10, uint32_t cdw11, uint32_t *value)
{
	struct loop_cmd cmd;

	loop_cmd_init(&cmd, c, opcode, 0);
	cmd.sqe.cdw10 = htole32(cdw10);
	cmd.sqe.cdw11 = htole32(cdw11);
	uint16_t status = loop_run(&cmd);
	if (value != NULL) {
		*value = le32toh(cmd.cqe.dw0);
	}
	return status;
}

uint16_t loop_get_feature(struct loop_conn *c, uint32_t cdw10, uint32_t cdw11, uint32_t *value)
{
	return feature(c, nvme_admin_get_features, cdw10, cdw11, value);
}

uint16_t loop_set_feature(struct loop_conn *c, uint32_t cdw10, uint32_t cdw11, uint32_t *value)
{
	return feature(c, nvme_admin_set_features, cdw10, cdw11, value);
}

uint32_t loop_add_ns(const char *bdev_name_, uint32_t nsid)
{
	struct nvmf_ns_opts opts = {.nsid = nsid};
	uint32_t got = 0;

	CU_ASSERT_EQUAL_FATAL(nvmf_subsystem_add_ns(subsystem, bdev_name_, &opts, &got), 0);
	return got;
}

uint32_t loop_add_malloc_ns(const char *name, uint32_t block_size, uint64_t num_blocks)
{
	make_malloc(name, block_size, num_blocks);
	return loop_add_ns(name, 0);
}

void loop_remove_ns(uint32_t nsid)
{
	struct loop_wait wait = LOOP_WAIT;

	nvmf_subsystem_remove_ns(subsystem, nsid, loop_done, &wait);
	CU_ASSERT_EQUAL(loop_wait_for(&wait), 0);
}

void loop_remove_malloc_ns(uint32_t nsid, const char *name)
{
	loop_remove_ns(nsid);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, name), 0);
}

int loop_add_key(const char *name, const char *text)
{
	char path[] = "/tmp/varve-nvmf-key-XXXXXX", error[KEYRING_ERROR_MAX];
	int fd = mkstemp(path);

	if (fd < 0) {
		return -errno;
	}
	bool ok = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	close(fd);
	int rc = keyring_file_add(name, path, error);
	unlink(path);
	return ok ? rc : -EIO;
}

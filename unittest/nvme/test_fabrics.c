/* SPDX-License-Identifier: BSD-3-Clause */
/* A controller that is reached over a fabric, which here is a function call: what the host makes of a target that
 * answers late, never, or while this thread is away. */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "env_dpdk/env.h"
#include "nvme/internal.h"
#include "thread/thread.h"
#include "unittest/unit.h"
#include "util/log.h"

#define FAKE           ((enum nvme_trtype)7)
#define WAIT_US        UINT64_C(120000000)
#define TIMEOUT_MS     200u
#define ENTRIES        31
#define READY_LIMIT_MS 500u /* CAP.TO of 0 */
#define CAP_TO(half_s) ((uint64_t)(half_s) << 24)
#define MUTE           UINT32_MAX
#define UUID_0         0x5a
#define DELAY_S        UINT64_C(1000) /* between attempts, in tests of the delay */
#define DELAYS_MAX     16

/* The target: answers commands in their order when it is polled. */
static struct {
	uint32_t cc;
	uint16_t mqes;
	uint32_t looks_until_ready; /* reads of CSTS after each enable; MUTE: the second one has no answer */
	int mute_at;                /* the command that has no answer, counted from 0; -1: none */
	int slow_at;           /* the command whose answer comes only after the host's thread was absent; -1: none */
	uint32_t slow_polls;   /* and takes so many polls more, as timers may fire first */
	bool tells_once_armed; /* I/O queues have a descriptor, and answers only after it has been armed */
	uint16_t broken_qid;   /* its connection is broken whenever it is polled */
	uint32_t connect_timeout_ms, admin_poll_us;
	uint32_t connects, cattr; /* CATTR of the first four: a byte each */
	bool disable_sq_flow_control;
	uint32_t refusals; /* so many Connects are refused */
	uint32_t looks, commands;
	uint32_t namespaces; /* with ids from 1 on */
	bool has_nguid;
	uint16_t desc_status; /* of the answer to Identify, CNS 03h */
	bool breaks_at_desc;  /* there is none: the connection breaks */
	bool broken;
	unsigned given_back, given_back_open; /* commands completed, and those on a queue pair through which the target
						 can still access memory */
	uint16_t aer_cid;                     /* of a request for events */
	bool refuses_events;                  /* their configuration */
	bool discovery;
	unsigned event_configurations, event_requests;
	unsigned ready, down, retry, failed, ns_changed;
	bool destroyed;
	struct nvme_ctrlr *ctrlr;
	struct nvme_qpair *qpair;
	int qpair_error;
	bool qpair_answered;
	bool counts_delays; /* the delays are recorded, in quarters of DELAY_S, and not waited for */
	uint32_t num_delays, delays[DELAYS_MAX];
} fx;

static uint8_t identify_data[NVME_IDENTIFY_DATA_SIZE];

struct fake_qpair {
	struct nvme_qpair base;
	struct nvme_cqe answers[ENTRIES];
	uint32_t num;
	int fd;
	bool armed, shut;
};

/* --- The target --- */

static uint64_t property(uint32_t offset, bool *mute)
{
	switch (offset) {
	case NVME_REG_CAP:
		return fx.mqes | CAP_TO(0) | UINT64_C(1) << 37;
	case NVME_REG_VS:
		return 0x10400;
	case NVME_REG_CC:
		return fx.cc;
	default:
		fx.looks++;
		*mute = fx.looks_until_ready == MUTE && fx.looks > 1;
		return ((fx.cc & 1) != 0 && fx.looks > fx.looks_until_ready) |
		       ((fx.cc >> 14 & 3) != 0 ? 2 << 2 : 0); /* RDY, SHST */
	}
}

/* The list of namespaces after `after`, as many as there is room for. */
static void list_ns(uint32_t *list, uint32_t after)
{
	for (uint32_t i = 0; i < 1024 && after + i < fx.namespaces; i++) {
		list[i] = htole32(after + i + 1);
	}
}

static void identify_ns(struct nvme_id_ns *id)
{
	id->nsze = htole64(1024);
	id->lbaf[0].ds = 9;
	id->nguid[0] = fx.has_nguid;
}

static bool describe_ns(uint8_t *data, struct nvme_cqe *cqe)
{
	if (fx.breaks_at_desc) {
		fx.broken = true;
		return false;
	}
	cqe->status = htole16((uint16_t)(fx.desc_status << 1));
	data[0] = NVME_NIDT_UUID;
	data[1] = 16;
	data[4] = UUID_0;
	return true;
}

/* False: there is no answer. */
static bool identify(const struct nvme_request *req, struct nvme_cqe *cqe)
{
	void *data = req->iovs[0].iov_base;

	memset(data, 0, req->data_len);
	switch (le32toh(req->cmd.cdw10)) {
	case NVME_IDENTIFY_CNS_CTRL:
		((struct nvme_id_ctrl *)data)->nn = htole32(fx.namespaces);
		return true;
	case NVME_IDENTIFY_CNS_NS_ACTIVE_LIST:
		list_ns(data, le32toh(req->cmd.nsid));
		return true;
	case NVME_IDENTIFY_CNS_NS:
		identify_ns(data);
		return true;
	default:
		return describe_ns(data, cqe);
	}
}

static bool execute(const struct nvme_request *req, struct nvme_cqe *cqe)
{
	const struct nvme_sqe *cmd = &req->cmd;
	const struct nvmf_property_set_sqe *set = (const void *)cmd;
	const struct nvmf_property_get_sqe *get = (const void *)cmd;
	bool mute = (int)fx.commands++ == fx.mute_at;

	if (cmd->opcode == nvme_admin_async_event) {
		fx.aer_cid = cmd->cid;
		fx.event_requests++;
		return false;
	}
	if (cmd->opcode == nvme_admin_set_features && le32toh(cmd->cdw10) == NVME_FEAT_FID_ASYNC_EVENT) {
		fx.event_configurations++;
		cqe->status = htole16(fx.refuses_events ? NVME_ST_DNR(GENERIC, INVALID_FIELD) << 1 : 0);
	} else if (cmd->opcode == nvme_admin_fabrics && set->fctype == nvme_fabrics_type_property_get) {
		cqe->result = htole64(property(le32toh(get->ofst), &mute));
	} else if (cmd->opcode == nvme_admin_fabrics && set->fctype == nvme_fabrics_type_property_set) {
		fx.cc = (uint32_t)le64toh(set->value);
		fx.looks = 0;
	} else if (cmd->opcode == nvme_admin_fabrics) {
		cqe->dw0 = htole32(1); /* Connect: the controller id */
		fx.cattr |= (uint32_t)((const struct nvmf_connect_sqe *)cmd)->cattr << (8 * (fx.connects++ & 3));
		cqe->status = htole16(fx.refusals != 0 ? NVME_ST(GENERIC, INTERNAL) << 1 : 0);
		fx.refusals -= fx.refusals != 0;
	} else if (cmd->opcode == nvme_admin_identify) {
		return identify(req, cqe) && !mute;
	}
	return !mute;
}

static int submit(struct nvme_qpair *base, struct nvme_request *req)
{
	struct fake_qpair *q = (struct fake_qpair *)base;
	struct nvme_cqe cqe = {.cid = req->cmd.cid};

	if (execute(req, &cqe)) {
		q->answers[q->num++] = cqe;
	}
	return 0;
}

static void notice_that_namespaces_changed(void)
{
	struct fake_qpair *q = (struct fake_qpair *)fx.ctrlr->admin;

	q->answers[q->num++] =
		(struct nvme_cqe){.cid = fx.aer_cid, .dw0 = htole32(NVME_AER_NOTICE | NVME_LOG_LID_CHANGED_NS << 16)};
}

static void flush(struct nvme_qpair *base)
{
}

static uint64_t now_ms(void)
{
	return env_ticks() / (env_ticks_hz() / 1000);
}

static bool is_held_up(void)
{
	return fx.slow_at >= 0 && (int)fx.commands > fx.slow_at;
}

static int poll(struct nvme_qpair *base, uint32_t max)
{
	struct fake_qpair *q = (struct fake_qpair *)base;
	uint32_t n = q->num;
	struct nvme_cqe answers[ENTRIES];

	if (base->id != 0 && base->id == fx.broken_qid) {
		return -ENXIO;
	}
	if (fx.broken) {
		fx.broken = false;
		nvme_qpair_fail(base);
		return -ENXIO;
	}
	if (n != 0 && (is_held_up() || fx.slow_polls != 0)) {
		fx.slow_polls -= !is_held_up();
		return 0;
	}
	if (q->fd >= 0 && !q->armed) {
		return 0;
	}
	memcpy(answers, q->answers, sizeof(answers));
	q->num = 0;
	for (uint32_t i = 0; i < n; i++) {
		nvme_qpair_complete(base, &answers[i]);
	}
	return (int)n;
}

static int qpair_fd(const struct nvme_qpair *base)
{
	return ((const struct fake_qpair *)base)->fd;
}

/* Answers come as soon as the host could miss them by going to sleep. */
static bool arm(struct nvme_qpair *base)
{
	struct fake_qpair *q = (struct fake_qpair *)base;
	eventfd_t count;

	eventfd_read(q->fd, &count);
	if (q->num != 0 && !q->armed) {
		eventfd_write(q->fd, 1);
	}
	q->armed = true;
	return false;
}

static struct nvme_qpair *qpair_alloc(struct nvme_ctrlr *ctrlr, uint16_t id, uint16_t entries,
				      const struct nvme_qpair_opts *opts)
{
	struct fake_qpair *q = calloc(1, sizeof(*q));

	CU_ASSERT_EQUAL_FATAL(nvme_qpair_init(&q->base, ctrlr, id, entries < ENTRIES ? entries : ENTRIES), 0);
	q->fd = id != 0 && fx.tells_once_armed ? eventfd(0, EFD_NONBLOCK) : -1;
	return &q->base;
}

static void qpair_connect(struct nvme_qpair *qpair)
{
	nvme_qpair_transport_connected(qpair, 0);
}

static void qpair_stop(struct nvme_qpair *qpair, void (*done)(void *arg), void *arg)
{
	done(arg);
}

static void qpair_shut(struct nvme_qpair *base)
{
	((struct fake_qpair *)base)->shut = true;
}

static void qpair_free(struct nvme_qpair *qpair)
{
	int fd = qpair_fd(qpair);

	if (fd >= 0) {
		close(fd);
	}
	nvme_qpair_fini(qpair);
	free(qpair);
}

static struct nvme_ctrlr *ctrlr_alloc(const struct nvme_trid *trid, char error[NVME_ERROR_MAX])
{
	return calloc(1, sizeof(struct nvme_ctrlr));
}

static void ctrlr_free(struct nvme_ctrlr *ctrlr)
{
	free(ctrlr);
}

static void connect_admin(struct nvme_ctrlr *ctrlr)
{
	ctrlr->admin = qpair_alloc(ctrlr, 0, ENTRIES, NULL);
	nvme_ctrlr_connected(ctrlr, 0, "");
}

static void disconnect_admin(struct nvme_ctrlr *ctrlr)
{
	qpair_free(ctrlr->admin);
}

static uint32_t max_transfer(struct nvme_ctrlr *ctrlr)
{
	return 65536;
}

static const struct nvme_transport_ops fake = {
	.transport = {.trtype = FAKE, .name = "FAKE", .fabrics = true},
	.ctrlr_alloc = ctrlr_alloc,
	.ctrlr_free = ctrlr_free,
	.connect = connect_admin,
	.disconnect = disconnect_admin,
	.max_transfer = max_transfer,
	.qpair_alloc = qpair_alloc,
	.qpair_connect = qpair_connect,
	.qpair_stop = qpair_stop,
	.qpair_free = qpair_free,
	.shut = qpair_shut,
	.submit = submit,
	.flush = flush,
	.poll = poll,
	.fd = qpair_fd,
	.arm = arm,
};

/* --- The host --- */

static bool is(void *condition)
{
	return ((bool (*)(void))condition)();
}

static bool wait(bool (*condition)(void))
{
	return thread_control_wait(is, (void *)condition, WAIT_US);
}

static bool attempt_ended(void)
{
	return fx.ready + fx.retry != 0;
}

static bool is_ready(void)
{
	return fx.ready != 0;
}

static bool is_down(void)
{
	return fx.down != 0;
}

static bool was_rescanned(void)
{
	return fx.ns_changed != 0;
}

static bool is_destroyed(void)
{
	return fx.destroyed;
}

static bool qpair_answered(void)
{
	return fx.qpair_answered;
}

static void count_delay(struct nvme_ctrlr *ctrlr)
{
	CU_ASSERT_EQUAL_FATAL(nvme_ctrlr_state(ctrlr), NVME_CTRLR_BACK_OFF);
	CU_ASSERT_FATAL(fx.num_delays < DELAYS_MAX);
	fx.delays[fx.num_delays++] =
		(uint32_t)((ctrlr->step_timer.deadline - ctrlr->state_ticks) / env_ticks_hz() * 4 / DELAY_S);
	thread_timer_start(&ctrlr->step_timer, 0);
}

static void on_event(struct nvme_ctrlr *ctrlr, enum nvme_event event, uint32_t aer, void *arg)
{
	fx.ready += event == NVME_EVENT_READY;
	fx.down += event == NVME_EVENT_DOWN;
	fx.retry += event == NVME_EVENT_RETRY;
	fx.failed += event == NVME_EVENT_FAILED;
	fx.ns_changed += event == NVME_EVENT_NS_CHANGED;
	if (event == NVME_EVENT_RETRY) { /* the next attempt shall succeed */
		fx.looks_until_ready = 0;
		fx.desc_status = 0;
	}
	if (fx.counts_delays && (event == NVME_EVENT_RETRY || event == NVME_EVENT_DOWN)) {
		count_delay(ctrlr);
	}
}

static void begin(void)
{
	memset(&fx, 0, sizeof(fx));
	fx.mute_at = fx.slow_at = -1;
	fx.connect_timeout_ms = TIMEOUT_MS;
	fx.mqes = 63;
}

static void attach(void)
{
	const struct nvme_trid trid = {.trtype = FAKE, .traddr = "there", .subnqn = "nqn.2026-11.io.varve:there"};
	struct nvme_ctrlr_opts opts;
	char error[NVME_ERROR_MAX];

	nvme_ctrlr_opts_default(&opts);
	opts.io_queues = 1;
	opts.keep_alive_ms = 0;
	opts.admin_timeout_ms = TIMEOUT_MS;
	opts.connect_timeout_ms = fx.connect_timeout_ms;
	opts.admin_poll_us = fx.admin_poll_us;
	opts.discovery = fx.discovery;
	opts.disable_sq_flow_control = fx.disable_sq_flow_control;
	opts.reconnect_delay_s = fx.counts_delays ? DELAY_S : 0;
	opts.loss_timeout_s = -1;
	opts.event = on_event;
	fx.ctrlr = nvme_ctrlr_create(&trid, &opts, error);
	CU_ASSERT_PTR_NOT_NULL_FATAL(fx.ctrlr);
}

static void destroyed(void *arg)
{
	fx.destroyed = true;
}

static void end(void)
{
	fx.mute_at = fx.slow_at = -1;
	nvme_ctrlr_destroy(fx.ctrlr, destroyed, NULL);
	CU_ASSERT(wait(is_destroyed));
	CU_ASSERT_EQUAL(fx.failed, 0);
}

static void qpair_ready(void *arg, struct nvme_qpair *qpair, int error)
{
	fx.qpair = qpair;
	fx.qpair_error = error;
	fx.qpair_answered = true;
}

/* Creates an I/O queue pair; qpair_ready() is called with the result. */
static void create_qpair(void)
{
	fx.qpair_answered = false;
	nvme_qpair_create(fx.ctrlr, &(struct nvme_qpair_opts){.numa_node = -1}, qpair_ready, NULL);
}

static void drop_qpair(void)
{
	CU_ASSERT_PTR_NOT_NULL_FATAL(fx.qpair);
	nvme_qpair_abort_all(fx.qpair);
	nvme_qpair_destroy(fx.qpair);
}

/* Blocks the thread, as a system call might: time passes, and costs nothing. */
static bool be_away(void *ms)
{
	uint64_t until = now_ms() + (uintptr_t)ms;

	while (now_ms() < until) {
		nanosleep(&(const struct timespec){.tv_nsec = 1000000}, NULL);
	}
	fx.slow_at = -1;
	fx.slow_polls = 3;
	return true;
}

static void away_ms(uint32_t ms)
{
	thread_control_wait(be_away, (void *)(uintptr_t)ms, 1);
}

static void away(void)
{
	away_ms(2 * TIMEOUT_MS);
}

/* --- Tests --- */

static uint32_t commands_to_ready(void)
{
	begin();
	attach();
	CU_ASSERT_FATAL(wait(attempt_ended));
	CU_ASSERT_EQUAL(fx.ready, 1);
	uint32_t n = fx.commands;
	end();
	return n;
}

static void test_it_comes_up_and_has_a_queue(void)
{
	begin();
	attach();
	CU_ASSERT_FATAL(wait(attempt_ended));
	create_qpair();
	CU_ASSERT_FATAL(wait(qpair_answered));
	CU_ASSERT_EQUAL(fx.qpair_error, 0);
	drop_qpair();
	end();
	CU_ASSERT_EQUAL(fx.retry, 0);
}

static void test_a_target_that_is_ready_late_is_looked_at_until_it_is(void)
{
	begin();
	fx.looks_until_ready = 5;
	attach();
	CU_ASSERT_FATAL(wait(attempt_ended));
	CU_ASSERT_EQUAL(fx.ready, 1);
	CU_ASSERT_EQUAL(fx.looks, 6);
	end();
}

static void test_a_later_look_without_an_answer_ends_the_attempt(void)
{
	begin();
	fx.looks_until_ready = MUTE;
	attach();
	CU_ASSERT_FATAL(wait(attempt_ended));
	CU_ASSERT_EQUAL(fx.retry, 1);
	CU_ASSERT_PTR_NOT_NULL(strstr(nvme_ctrlr_last_error(fx.ctrlr), "no answer within"));
	CU_ASSERT(wait(is_ready));
	end();
}

static void test_each_command_without_an_answer_ends_the_attempt(void)
{
	uint32_t n = commands_to_ready();

	for (uint32_t i = 0; i < n; i++) {
		begin();
		fx.mute_at = (int)i;
		attach();
		CU_ASSERT_FATAL(wait(is_ready));
		CU_ASSERT(fx.retry <= 1); /* 0: the command without an answer was a request for events */
		end();
	}
	begin();
	attach();
	CU_ASSERT_FATAL(wait(is_ready));
	fx.mute_at = (int)fx.commands;
	create_qpair();
	CU_ASSERT_FATAL(wait(qpair_answered));
	CU_ASSERT_PTR_NULL(fx.qpair);
	CU_ASSERT_EQUAL(fx.down, 0);
	end();
}

static void test_an_answer_that_came_while_we_were_away_is_not_late(void)
{
	uint32_t n = commands_to_ready();

	for (uint32_t i = 0; i < n; i++) {
		begin();
		fx.slow_at = (int)i;
		attach();
		CU_ASSERT_FATAL(wait(is_held_up));
		away();
		CU_ASSERT_FATAL(wait(attempt_ended));
		CU_ASSERT_EQUAL(fx.retry, 0);
		end();
	}
	begin();
	attach();
	CU_ASSERT_FATAL(wait(is_ready));
	fx.slow_at = (int)fx.commands;
	create_qpair();
	away();
	CU_ASSERT_FATAL(wait(qpair_answered));
	CU_ASSERT_EQUAL(fx.qpair_error, 0);
	drop_qpair();
	end();
}

/* The absence outlasts the time limit of CSTS.RDY. */
static void test_an_answer_about_readiness_that_was_missed_changes_no_later_state(void)
{
	uint32_t n = commands_to_ready();

	for (uint32_t i = 0; i < n; i++) {
		begin();
		fx.slow_at = (int)i;
		attach();
		CU_ASSERT_FATAL(wait(is_held_up));
		away_ms(READY_LIMIT_MS + 2 * TIMEOUT_MS);
		CU_ASSERT_FATAL(wait(attempt_ended));
		CU_ASSERT_EQUAL(fx.retry, 0);
		/* nothing reads registers of a controller that is ready: what follows are the commands of this queue */
		uint32_t commands = fx.commands;
		create_qpair();
		CU_ASSERT_FATAL(wait(qpair_answered));
		CU_ASSERT_EQUAL(fx.qpair_error, 0);
		CU_ASSERT_FALSE(fx.ctrlr->step_timer.running);
		CU_ASSERT_EQUAL(fx.commands, commands + 1);
		CU_ASSERT_EQUAL(fx.down, 0);
		drop_qpair();
		end();
	}
}

static void test_an_answer_to_connect_wakes_who_sleeps(void)
{
	begin();
	fx.tells_once_armed = true;
	attach();
	CU_ASSERT_FATAL(wait(is_ready));
	create_qpair();
	CU_ASSERT_FATAL(wait(qpair_answered));
	CU_ASSERT_EQUAL(fx.qpair_error, 0);
	drop_qpair();
	end();
}

static void test_a_queue_that_breaks_while_it_connects_is_reported_at_once(void)
{
	begin();
	fx.broken_qid = 1;
	fx.connect_timeout_ms = UINT32_MAX; /* so that this is not the reason */
	attach();
	CU_ASSERT_FATAL(wait(is_ready));
	create_qpair();
	CU_ASSERT(wait(qpair_answered));
	CU_ASSERT_NOT_EQUAL(fx.qpair_error, 0);
	CU_ASSERT_PTR_NULL(fx.qpair);
	end();
	CU_ASSERT_EQUAL(fx.down, 0);
}

static void test_a_controller_without_room_in_its_queues_is_refused(void)
{
	struct nvme_qpair none = {.id = 1};

	begin();
	fx.mqes = 0;
	attach();
	CU_ASSERT_EQUAL(nvme_qpair_init(&none, fx.ctrlr, 1, 0), -EINVAL);
	CU_ASSERT_FATAL(wait(attempt_ended));
	CU_ASSERT_EQUAL(fx.ready, 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(nvme_ctrlr_last_error(fx.ctrlr), "MQES"));
	end();
}

/* A command of the host's user, which never has an answer. */
static void given_back(struct nvme_request *req, const struct nvme_cqe *cqe)
{
	fx.given_back++;
	fx.given_back_open += !((struct fake_qpair *)req->qpair)->shut;
}

static void admin_given_back(void *arg, const struct nvme_cqe *cqe)
{
	fx.given_back++;
	fx.given_back_open += !((struct fake_qpair *)fx.ctrlr->admin)->shut;
}

static void submit_a_command_without_an_answer(struct nvme_qpair *qpair, struct nvme_request *req)
{
	fx.mute_at = (int)fx.commands;
	*req = (struct nvme_request){.cb = given_back};
	CU_ASSERT_EQUAL(nvme_qpair_submit(qpair, req), 0);
}

static void attach_with_a_queue(void)
{
	begin();
	attach();
	CU_ASSERT_FATAL(wait(is_ready));
	create_qpair();
	CU_ASSERT_FATAL(wait(qpair_answered));
	CU_ASSERT_PTR_NOT_NULL_FATAL(fx.qpair);
}

static void test_a_wrong_completion_gives_no_memory_back_that_the_target_reaches(void)
{
	struct nvme_request req;

	attach_with_a_queue();
	submit_a_command_without_an_answer(fx.qpair, &req);
	nvme_qpair_complete(fx.qpair, &(struct nvme_cqe){.cid = UINT16_MAX});
	CU_ASSERT_EQUAL(fx.given_back, 1);
	CU_ASSERT_EQUAL(fx.given_back_open, 0);
	CU_ASSERT_EQUAL(nvme_qpair_poll(fx.qpair, 0), -ENXIO);
	CU_ASSERT(wait(is_down));
	drop_qpair();
	end();
}

static void test_a_reset_gives_no_memory_back_that_the_target_reaches(void)
{
	const struct nvme_sqe cmd = {.opcode = nvme_admin_identify};

	attach_with_a_queue();
	fx.mute_at = (int)fx.commands;
	CU_ASSERT_EQUAL(
		nvme_ctrlr_admin(fx.ctrlr, &cmd, identify_data, sizeof(identify_data), false, admin_given_back, NULL),
		0);
	CU_ASSERT_EQUAL(nvme_ctrlr_reset(fx.ctrlr), 0);
	CU_ASSERT(wait(is_down));
	CU_ASSERT_EQUAL(fx.given_back, 1);
	CU_ASSERT_EQUAL(fx.given_back_open, 0);
	drop_qpair();
	end();
}

static bool has_uuid(void)
{
	const struct nvme_ns *ns = nvme_ctrlr_next_ns(fx.ctrlr, 0);

	return ns != NULL && ns->uuid[0] == UUID_0;
}

static void attach_with_a_namespace(void)
{
	begin();
	fx.namespaces = 1;
	attach();
	CU_ASSERT_FATAL(wait(is_ready));
	CU_ASSERT(has_uuid());
}

/* Such a change makes the bdev layer treat it as another namespace, and remove the bdev. */
static void test_an_identity_that_is_known_outlasts_a_connection_that_breaks_in_a_scan(void)
{
	attach_with_a_namespace();
	fx.breaks_at_desc = true;
	notice_that_namespaces_changed();
	CU_ASSERT(wait(is_down));
	CU_ASSERT_EQUAL(fx.ns_changed, 0);
	CU_ASSERT(has_uuid());
	fx.breaks_at_desc = false;
	end();
}

static void test_an_identity_that_is_known_outlasts_descriptors_that_are_refused(void)
{
	const uint16_t status[] = {NVME_SC_INTERNAL, NVME_SC_INVALID_FIELD | NVME_SC_DNR};

	for (unsigned i = 0; i < 2; i++) {
		attach_with_a_namespace();
		fx.desc_status = status[i];
		notice_that_namespaces_changed();
		CU_ASSERT(wait(was_rescanned));
		CU_ASSERT(has_uuid());
		end();
		CU_ASSERT_EQUAL(fx.down, 0);
	}
}

static void test_another_namespace_does_not_get_the_identity_that_was_known(void)
{
	attach_with_a_namespace();
	fx.desc_status = NVME_SC_INVALID_FIELD;
	fx.has_nguid = true;
	notice_that_namespaces_changed();
	CU_ASSERT(wait(was_rescanned));
	CU_ASSERT(!has_uuid());
	end();
}

static void test_descriptors_that_fail_for_now_end_the_first_scan(void)
{
	begin();
	fx.namespaces = 1;
	fx.desc_status = NVME_SC_INTERNAL;
	attach();
	CU_ASSERT_FATAL(wait(is_ready));
	CU_ASSERT_EQUAL(fx.retry, 1);
	CU_ASSERT(has_uuid());
	end();
}

static void test_a_controller_without_descriptors_is_as_good(void)
{
	begin();
	fx.namespaces = 1;
	fx.desc_status = NVME_SC_INVALID_FIELD;
	attach();
	CU_ASSERT_FATAL(wait(attempt_ended));
	CU_ASSERT_EQUAL(fx.ready, 1);
	CU_ASSERT_PTR_NOT_NULL(nvme_ctrlr_next_ns(fx.ctrlr, 0));
	CU_ASSERT(!has_uuid());
	end();
}

static uint32_t last_nsid(void)
{
	uint32_t nsid = 0;

	for (const struct nvme_ns *ns; (ns = nvme_ctrlr_next_ns(fx.ctrlr, nsid)) != NULL;) {
		nsid = ns->nsid;
	}
	return nsid;
}

static void test_a_namespace_above_the_number_that_was_read_at_connect_comes(void)
{
	attach_with_a_namespace();
	fx.namespaces = 3;
	notice_that_namespaces_changed();
	CU_ASSERT(wait(was_rescanned));
	CU_ASSERT_EQUAL(last_nsid(), 3);
	end();
	CU_ASSERT_EQUAL(fx.down, 0);
}

static void test_an_endless_list_of_namespaces_is_cut(void)
{
	begin();
	fx.namespaces = UINT32_MAX / 2;
	fx.admin_poll_us = 1;
	attach();
	CU_ASSERT_FATAL(wait(is_ready));
	CU_ASSERT_EQUAL(last_nsid(), 4096);
	end();
}

static void test_a_controller_that_refuses_the_event_configuration_is_used(void)
{
	begin();
	fx.refuses_events = true;
	attach();
	CU_ASSERT_FATAL(wait(attempt_ended));
	CU_ASSERT_EQUAL(fx.ready, 1);
	CU_ASSERT_EQUAL(fx.event_configurations, 1);
	CU_ASSERT_NOT_EQUAL(fx.event_requests, 0);
	end();
}

static void test_a_discovery_controller_without_notices_is_not_asked_for_events(void)
{
	begin();
	fx.discovery = true;
	attach();
	CU_ASSERT_FATAL(wait(attempt_ended));
	CU_ASSERT_EQUAL(fx.ready, 1);
	CU_ASSERT_EQUAL(fx.event_configurations, 0);
	CU_ASSERT_EQUAL(fx.event_requests, 0);
	end();
}

static void test_a_capsule_has_room_for_what_the_controller_takes_there(void)
{
	const struct {
		uint32_t ioccsz, sgls;
		uint16_t icdoff;
		uint32_t room;
	} cases[] = {
		{4 + 256, NVME_CTRL_SGLS_KEYED | NVME_CTRL_SGLS_OFFSET, 0, 4096},
		{4 + 256, NVME_CTRL_SGLS_KEYED, 0, 0},
		{4 + 256, NVME_CTRL_SGLS_KEYED | NVME_CTRL_SGLS_OFFSET, 1, 0},
		{4, NVME_CTRL_SGLS_OFFSET, 0, 0},
		{3, NVME_CTRL_SGLS_OFFSET, 0, 0},
		{0, NVME_CTRL_SGLS_OFFSET, 0, 0},
		{UINT32_MAX, NVME_CTRL_SGLS_OFFSET, 0, UINT32_MAX},
		{(1 << 28) + 5, NVME_CTRL_SGLS_OFFSET, 0, UINT32_MAX},
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct nvme_id_ctrl id = {.ioccsz = htole32(cases[i].ioccsz),
						.sgls = htole32(cases[i].sgls),
						.icdoff = htole16(cases[i].icdoff)};
		CU_ASSERT_EQUAL(nvme_capsule_room(&id), cases[i].room);
	}
}

static bool is_ready_again(void)
{
	return fx.ready == 2;
}

static void check_delays(const uint32_t *expected, uint32_t n)
{
	CU_ASSERT_EQUAL(fx.num_delays, n);
	for (uint32_t i = 0; i < n && i < fx.num_delays; i++) {
		CU_ASSERT_EQUAL(fx.delays[i], expected[i]);
	}
	fx.num_delays = 0;
}

static void test_the_delay_begins_with_a_quarter_doubles_up_to_eight_times_and_begins_anew_after_success(void)
{
	static const uint32_t first[] = {1, 4, 8, 16, 32, 32}, lost[] = {0, 1, 4}, reset[] = {0, 1};

	begin();
	fx.counts_delays = true;
	fx.refusals = 6;
	attach();
	CU_ASSERT_FATAL(wait(is_ready));
	check_delays(first, 6);
	fx.refusals = 2;
	nvme_ctrlr_lost(fx.ctrlr, "lost"); /* the first attempt has no delay */
	CU_ASSERT_FATAL(wait(is_ready_again));
	check_delays(lost, 3);
	fx.ready = 0;
	fx.refusals = 1;
	CU_ASSERT_EQUAL(nvme_ctrlr_reset(fx.ctrlr), 0);
	CU_ASSERT_FATAL(wait(is_ready));
	check_delays(reset, 2);
	fx.counts_delays = false;
	end();
}

static void test_flow_control_of_sqs_is_turned_off_where_that_is_asked_for(void)
{
	for (int off = 0; off < 2; off++) {
		begin();
		fx.disable_sq_flow_control = off;
		attach();
		CU_ASSERT_FATAL(wait(is_ready));
		create_qpair();
		CU_ASSERT_FATAL(wait(qpair_answered));
		CU_ASSERT_EQUAL(fx.connects, 2);
		CU_ASSERT_EQUAL(fx.cattr, off ? NVMF_CATTR_DISABLE_SQ_FLOW * 0x101u : 0);
		drop_qpair();
		end();
	}
}

static int setup(void)
{
	const struct env_opts env = {.name = "unit",
				     .cores = "[0]",
				     .oversubscribe = true,
				     .instance_id = -1,
				     .no_huge = true,
				     .no_pci = true};
	const struct thread_lib_opts opts = {.poll_mode = POLL_MODE_ADAPTIVE};
	char error[ENV_ERROR_MAX];

	log_set_print_level(LOG_LEVEL_DISABLED);
	nvme_transport_register(&fake);
	return env_init(&env, error) == 0 ? thread_lib_start(&opts) : -1;
}

static int teardown(void)
{
	thread_lib_stop();
	env_fini();
	return 0;
}

static const struct unit_test tests[] = {
	UNIT(test_it_comes_up_and_has_a_queue),
	UNIT(test_a_target_that_is_ready_late_is_looked_at_until_it_is),
	UNIT(test_a_later_look_without_an_answer_ends_the_attempt),
	UNIT(test_each_command_without_an_answer_ends_the_attempt),
	UNIT(test_an_answer_that_came_while_we_were_away_is_not_late),
	UNIT(test_an_answer_about_readiness_that_was_missed_changes_no_later_state),
	UNIT(test_an_answer_to_connect_wakes_who_sleeps),
	UNIT(test_a_queue_that_breaks_while_it_connects_is_reported_at_once),
	UNIT(test_a_controller_without_room_in_its_queues_is_refused),
	UNIT(test_a_wrong_completion_gives_no_memory_back_that_the_target_reaches),
	UNIT(test_a_reset_gives_no_memory_back_that_the_target_reaches),
	UNIT(test_an_identity_that_is_known_outlasts_a_connection_that_breaks_in_a_scan),
	UNIT(test_an_identity_that_is_known_outlasts_descriptors_that_are_refused),
	UNIT(test_another_namespace_does_not_get_the_identity_that_was_known),
	UNIT(test_descriptors_that_fail_for_now_end_the_first_scan),
	UNIT(test_a_controller_without_descriptors_is_as_good),
	UNIT(test_a_namespace_above_the_number_that_was_read_at_connect_comes),
	UNIT(test_an_endless_list_of_namespaces_is_cut),
	UNIT(test_a_controller_that_refuses_the_event_configuration_is_used),
	UNIT(test_a_discovery_controller_without_notices_is_not_asked_for_events),
	UNIT(test_a_capsule_has_room_for_what_the_controller_takes_there),
	UNIT(test_flow_control_of_sqs_is_turned_off_where_that_is_asked_for),
	UNIT(test_the_delay_begins_with_a_quarter_doubles_up_to_eight_times_and_begins_anew_after_success),
	UNIT_END,
};
UNIT_MAIN("nvme_fabrics", tests, setup, teardown)

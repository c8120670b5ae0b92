/* SPDX-License-Identifier: BSD-3-Clause */
/* Two targets in one process on one device, which librdmacm opens once: each gets the events of its own queues. */
#include <stdatomic.h>

#include "nvmf/nvmf.h"
#include "nvmf/transport.h"
#include "unittest/bdev/fixture.h"
#include "unittest/nvmf_rdma/hosts.h"
#include "util/log.h"

struct target {
	struct nvmf_tgt *tgt;
	struct thread *group_thread;
	uint16_t port;
	struct host host;
};
static struct target one, two;
static atomic_int state;

static void set_state(void *arg, int status)
{
	atomic_store(&state, status == 0 ? 1 : -1);
	fixture_wake();
}

static bool has_state(void *arg)
{
	return atomic_load(&state) != 0;
}

static void wait_state(void)
{
	CU_ASSERT_FATAL(fixture_poll(has_state, NULL));
	CU_ASSERT_EQUAL(atomic_load(&state), 1);
	atomic_store(&state, 0);
}

static struct thread *find_group_thread(struct nvmf_tgt *tgt)
{
	struct thread *t = thread_next(NULL);

	while (t != NULL && strcmp(thread_name(t), nvmf_poll_group_name(nvmf_poll_group_next(tgt, NULL))) != 0) {
		t = thread_next(t);
	}
	return t;
}

static void target_start(struct target *t, const char *name, uint16_t port)
{
	struct nvmf_tgt_opts opts = {.name = name};
	struct nvmf_subsystem_opts sopts = {.serial_number = "1", .allow_any_host = true};
	struct nvmf_address at = {.trtype = "RDMA", .adrfam = 1, .traddr = "127.0.0.1"};
	struct nvmf_transport_opts topts;
	struct nvmf_subsystem *subsystem;
	char why[NVMF_ERROR_MAX];
	cpu_set_t cores;

	CPU_ZERO(&cores);
	CPU_SET(1, &cores);
	opts.cores = &cores;
	*t = (struct target){.port = port, .host.admin.port = port, .host.io.port = port};
	snprintf(at.trsvcid, sizeof(at.trsvcid), "%u", port);
	nvmf_transport_opts_init("RDMA", &topts);
	CU_ASSERT_EQUAL_FATAL(nvmf_tgt_create(&opts, &t->tgt), 0);
	CU_ASSERT_EQUAL_FATAL(nvmf_transport_create(t->tgt, "RDMA", &topts, why), 0);
	CU_ASSERT_EQUAL_FATAL(nvmf_tgt_start(t->tgt), 0);
	CU_ASSERT_EQUAL_FATAL(nvmf_subsystem_create(t->tgt, HOST_SUBNQN, &sopts, &subsystem), 0);
	CU_ASSERT_EQUAL_FATAL(nvmf_subsystem_add_listener(subsystem, &at), 0);
	nvmf_subsystem_start(subsystem, set_state, NULL);
	wait_state();
	t->group_thread = find_group_thread(t->tgt);
	CU_ASSERT_PTR_NOT_NULL_FATAL(t->group_thread);
}

static void target_end(struct target *t)
{
	nvmf_tgt_stop(t->tgt, set_state, NULL);
	wait_state();
	nvmf_tgt_destroy(t->tgt);
}

static void target_connect(struct target *t)
{
	host_group_thread = t->group_thread;
	host_connect(&t->host, 0);
}

/* The first to have a connection is the first that reads events. */
static void start_both(void)
{
	target_start(&one, "one", 4420);
	target_start(&two, "two", 4430);
	target_connect(&one);
	target_connect(&two);
}

static bool qps_are(void *arg)
{
	return fake_live.qps == *(unsigned *)arg;
}

static bool wait_qps(unsigned n)
{
	return fixture_poll(qps_are, &n);
}

static void disconnect(struct target *t)
{
	fake_disconnect(&t->host.io);
	fake_disconnect(&t->host.admin);
}

static atomic_uint lines_of_last_wqe;

static void count_last_wqe_line(enum log_level level, const char *file, int line, const char *text)
{
	atomic_fetch_add(&lines_of_last_wqe, strstr(text, "LAST_WQE_REACHED") != NULL);
}

/* Without it varve waits for a time limit, and trusts the device less from then on. */
static void test_the_device_says_to_each_target_that_a_queue_pair_holds_no_receives(void)
{
	atomic_store(&lines_of_last_wqe, 0);
	log_set_tap(count_last_wqe_line);
	log_set_print_level(LOG_LEVEL_WARNING);
	start_both();
	disconnect(&two);
	CU_ASSERT(wait_qps(2));
	disconnect(&one);
	CU_ASSERT(wait_qps(0));
	log_set_print_level(LOG_LEVEL_DISABLED);
	log_set_tap(NULL);
	CU_ASSERT_EQUAL(atomic_load(&lines_of_last_wqe), 0);
	target_end(&two);
	target_end(&one);
}

static char fault[64];

static void keep_fault(const struct nvmf_fault *f)
{
	snprintf(fault, sizeof(fault), "%s", f->why);
}

static void test_a_queue_that_fails_ends_the_connections_of_its_target_alone(void)
{
	static const struct {
		enum ibv_event_type type;
		unsigned ended;
		const char *why;
	} cases[] = {{IBV_EVENT_QP_FATAL, 1, "a fake event"},
		     {IBV_EVENT_CQ_ERR, 2, "its completion queue failed"},
		     {IBV_EVENT_SRQ_ERR, 2, "its shared receive queue failed"}};

	start_both();
	nvmf_set_fault_fn(keep_fault);
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		fake_conn_event(&two.host.io, cases[i].type);
		CU_ASSERT_FATAL(wait_qps(4 - cases[i].ended));
		CU_ASSERT_STRING_EQUAL(fault, cases[i].why);
		if (cases[i].ended == 1) {
			fake_disconnect(&two.host.admin);
			CU_ASSERT_FATAL(wait_qps(2));
		}
		host_group_thread = one.group_thread;
		CU_ASSERT_EQUAL(host_enable(&one.host), 0); /* that it is already */
		target_connect(&two);
	}
	nvmf_set_fault_fn(NULL);
	disconnect(&one);
	disconnect(&two);
	CU_ASSERT(wait_qps(0));
	target_end(&two);
	target_end(&one);
}

static void test_events_are_read_when_the_target_that_read_them_first_is_gone(void)
{
	start_both();
	disconnect(&one);
	CU_ASSERT(wait_qps(2));
	target_end(&one);
	fake_conn_event(&two.host.io, IBV_EVENT_QP_FATAL);
	CU_ASSERT(wait_qps(1));
	/* and by one that comes later */
	target_start(&one, "one", 4420);
	target_connect(&one);
	fake_conn_event(&one.host.io, IBV_EVENT_QP_FATAL);
	CU_ASSERT(wait_qps(2));
	fake_disconnect(&one.host.admin);
	fake_disconnect(&two.host.admin);
	CU_ASSERT(wait_qps(0));
	target_end(&two);
	target_end(&one);
}

static void test_a_device_that_fails_ends_the_connections_of_all_targets(void)
{
	start_both();
	fake_port_event(0, IBV_EVENT_DEVICE_FATAL);
	CU_ASSERT(wait_qps(0));
	CU_ASSERT_EQUAL(fake_live.cqs, 0);
	CU_ASSERT_EQUAL(fake_live.pds, 0);
	target_end(&two);
	target_end(&one);
}

#define FLOOD 250 /* what the fake keeps for the reader */

static struct thread_msg turn_msg;
static unsigned turns;
static uint64_t acked_before, acked_in_the_end;

static bool all_are_acked(void *arg)
{
	return fake_stats.async_acked >= acked_in_the_end;
}

/* Has turns on the control thread, which reads the events, too: those count before which some, but not all of them have
 * been read since the last one. */
static void count_turn(struct thread_msg *msg)
{
	if (!all_are_acked(NULL)) {
		turns += fake_stats.async_acked != acked_before;
		acked_before = fake_stats.async_acked;
		thread_post(thread_control(), msg, count_turn);
	}
}

/* Hosts whose queue pairs break cause such events. */
static void test_the_control_thread_does_other_work_between_events_of_a_device(void)
{
	start_both();
	acked_before = fake_stats.async_acked;
	acked_in_the_end = acked_before + FLOOD;
	for (unsigned i = 0; i < FLOOD; i++) {
		fake_port_event(0, IBV_EVENT_GID_CHANGE);
	}
	thread_post(thread_control(), &turn_msg, count_turn);
	CU_ASSERT(fixture_poll(all_are_acked, NULL));
	CU_ASSERT(turns >= 3);
	disconnect(&one);
	disconnect(&two);
	CU_ASSERT(wait_qps(0));
	target_end(&two);
	target_end(&one);
}

static int setup(void)
{
	return fixture_start();
}

static int teardown(void)
{
	unsigned left = fake_live.qps + fake_live.cqs + fake_live.srqs + fake_live.pds + fake_live.mrs + fake_live.ids;

	if (left != 0) {
		printf("%u objects of verbs are left behind\n", left);
	}
	return fixture_stop() | (left != 0 ? -1 : 0);
}

static const struct unit_test tests[] = {
	UNIT(test_the_device_says_to_each_target_that_a_queue_pair_holds_no_receives),
	UNIT(test_a_queue_that_fails_ends_the_connections_of_its_target_alone),
	UNIT(test_events_are_read_when_the_target_that_read_them_first_is_gone),
	UNIT(test_a_device_that_fails_ends_the_connections_of_all_targets),
	UNIT(test_the_control_thread_does_other_work_between_events_of_a_device),
	UNIT_END,
};

UNIT_MAIN("nvmf_rdma_targets", tests, setup, teardown)

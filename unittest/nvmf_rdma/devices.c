/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices that fail, go and come back, and ports and queue pairs that have events: the whole target on two devices
 * without a wire. */
#include <stdatomic.h>

#include "env_dpdk/env.h"
#include "nvmf/nvmf.h"
#include "nvmf/transport.h"
#include "verbs/pd.h"
#include "unittest/bdev/fixture.h"
#include "unittest/nvmf_rdma/hosts.h"
#include "util/log.h"

#define LBAS            64
#define BUFFERS         36 /* of the transport, the fewest; what is lost of them is soon missed */
#define SHARED_RECEIVES 128
#define EACH            4 /* writes and reads under way when something happens */

static struct nvmf_tgt *tgt;
static struct nvmf_subsystem *subsystem;
static struct testdev *disk;
static struct host near[2], far; /* on device 0; on device 1 */

/* Writes and reads arrive, and from then on the device completes nothing: the target's READs and responses stay with
 * it. */
static void send_and_withhold(void *arg)
{
	struct host *h = arg;
	bool sent = true;

	for (unsigned i = 0; i < EACH; i++) {
		struct nvme_sqe write = host_rw(nvme_cmd_write, i), read = host_rw(nvme_cmd_read, EACH + i);

		sent = fake_send(&h->io, &write, NULL, 0) && sent;
		sent = fake_send(&h->io, &read, NULL, 0) && sent;
	}
	CU_ASSERT(sent);
	fake_withhold(h->io.device, true);
}

static void strand(struct host *h)
{
	unsigned before = atomic_load(&disk->submitted);

	thread_call(host_group_thread, send_and_withhold, h);
	CU_ASSERT(fixture_wait_count(&disk->submitted, before + EACH)); /* the reads; no write gets its data */
}

/* ---- What the target has ---- */

static struct nvmf_transport_stats stats(void)
{
	struct nvmf_poll_group_stats s;

	nvmf_poll_group_get_stats(nvmf_poll_group_next(tgt, NULL), &s);
	return s.transports[0];
}

struct wanted {
	unsigned qps, cqs, pds;
};

static bool has_left(void *arg)
{
	const struct wanted *w = arg;

	return fake_live.qps == w->qps && fake_live.cqs == w->cqs && fake_live.pds == w->pds &&
	       stats().connections == w->qps;
}

static bool wait_left(unsigned qps, unsigned cqs, unsigned pds)
{
	struct wanted w = {.qps = qps, .cqs = cqs, .pds = pds};

	return fixture_poll(has_left, &w);
}

static bool listens(void *arg)
{
	return fake_listens(0);
}

static bool listens_no_more(void *arg)
{
	return !fake_listens(0);
}

/* Device 0 goes and comes back, with connections or without. The other one is undisturbed. */
static void pull(void)
{
	fake_remove(0);
	CU_ASSERT_FATAL(fixture_poll(listens_no_more, NULL));
	CU_ASSERT_FATAL(wait_left(2, 1, 1));
	CU_ASSERT_EQUAL(fake_live.srqs, 1);
	CU_ASSERT_EQUAL(fake_live.ids, 3); /* the other's listener and two connections */
	CU_ASSERT_EQUAL(stats().num_devices, 1);
	CU_ASSERT_EQUAL(host_read_one(&far), 0);
}

static void put_back(void)
{
	fake_return(0);
	CU_ASSERT_FATAL(fixture_poll(listens, NULL));
	CU_ASSERT_EQUAL(fake_live.pds, 2);
}

static void disconnect(struct host *h)
{
	fake_disconnect(&h->io);
	fake_disconnect(&h->admin);
}

/* ---- Tests: each begins and ends with device 1's host alone ---- */

/* Whatever key a host guesses, it opens nothing. */
static void test_no_host_has_a_right_to_the_targets_memory(void)
{
	CU_ASSERT_NOT_EQUAL(fake_live.mrs, 0);
	CU_ASSERT_EQUAL(fake_live.open_mrs, 0);
}

/* A target that we attach gets keys of the host side's domain, and of no other memory region. */
static void test_the_keys_that_an_attached_target_gets_are_of_another_domain(void)
{
	const struct verbs_pd *target = verbs_pd_next(NULL);
	unsigned mrs = fake_live.mrs, open = fake_live.open_mrs;

	CU_ASSERT_PTR_NOT_NULL_FATAL(target);
	CU_ASSERT_EQUAL(target->side, VERBS_SIDE_TARGET);
	struct verbs_pd *host = verbs_pd_get(target->verbs, VERBS_SIDE_HOST);
	CU_ASSERT_PTR_NOT_NULL_FATAL(host);
	CU_ASSERT_PTR_NOT_EQUAL(host->pd, target->pd);
	CU_ASSERT(fake_live.mrs > mrs);
	CU_ASSERT_EQUAL(fake_live.open_mrs - open, fake_live.mrs - mrs);
	for (uint32_t i = 0; i < host->table->count; i++) {
		CU_ASSERT_PTR_EQUAL(host->table->regions[i].mr->pd, host->pd);
	}
	verbs_pd_put(host);
	CU_ASSERT_EQUAL(fake_live.mrs, mrs);
}

static bool has_regions(void *arg)
{
	return atomic_load(&fake_live.mrs) == *(unsigned *)arg;
}

static void test_memory_that_devices_did_not_take_is_offered_again(void)
{
	unsigned before = fake_live.mrs, with = before + FAKE_DEVICES;

	fake_refuses_memory = true;
	void *large = env_dma_zmalloc(4 << 20, 0, -1);
	CU_ASSERT_PTR_NOT_NULL_FATAL(large);
	CU_ASSERT_EQUAL(fake_live.mrs, before);
	fake_refuses_memory = false;
	CU_ASSERT_TRUE(fixture_poll(has_regions, &with));
	env_dma_free(large);
	CU_ASSERT_EQUAL(fake_live.mrs, before);
}

static void test_a_removed_device_with_work_under_way_is_let_go_and_listened_on_again(void)
{
	for (unsigned i = 0; i <= BUFFERS / (2 * EACH); i++) { /* more than there are buffers for */
		host_connect(&near[0], 0);
		host_connect(&near[1], 0);
		CU_ASSERT_EQUAL(host_read_one(&near[0]), 0);
		strand(&near[0]);
		pull();
		put_back();
	}
}

static void test_a_fatal_event_ends_the_devices_connections_and_only_those(void)
{
	host_connect(&near[0], 0);
	strand(&near[0]);
	fake_port_event(0, IBV_EVENT_DEVICE_FATAL);
	CU_ASSERT_FATAL(wait_left(2, 1, 1));
	CU_ASSERT_EQUAL(host_read_one(&far), 0);
	pull(); /* what the kernel tells after it */
	put_back();
}

static void test_a_device_without_shared_receive_queues_is_let_go(void)
{
	pull();
	fake_has_srq = false;
	put_back();
	host_connect(&near[0], 0);
	CU_ASSERT_EQUAL(host_read_one(&near[0]), 0);
	strand(&near[0]);
	pull();
	put_back();
	/* and an ordinary end, where receives are flushed */
	host_connect(&near[0], 0);
	disconnect(&near[0]);
	CU_ASSERT(wait_left(2, 2, 2));
	pull();
	fake_has_srq = true;
	put_back();
}

static void test_a_removed_device_without_connections_is_let_go(void)
{
	pull();
	put_back();
	host_connect(&near[0], 0);
	CU_ASSERT_EQUAL(host_read_one(&near[0]), 0);
	disconnect(&near[0]);
	CU_ASSERT(wait_left(2, 2, 2));
	pull();
	put_back();
}

/* A queue that breaks takes its connections with it; the next one gets a queue that works. */
static void queue_breaks(enum ibv_event_type type)
{
	host_connect(&near[0], 0);
	host_connect(&near[1], 0);
	strand(&near[0]);
	fake_conn_event(&near[1].io, type);
	CU_ASSERT_FATAL(wait_left(2, 1, 2)); /* the device is as good as before */
	CU_ASSERT_EQUAL(fake_live.srqs, 1);
	CU_ASSERT_EQUAL(host_read_one(&far), 0);
	fake_withhold(0, false);
	host_connect(&near[0], 0);
	CU_ASSERT_EQUAL(host_read_one(&near[0]), 0);
	disconnect(&near[0]);
	CU_ASSERT(wait_left(2, 2, 2));
}

static void test_a_broken_completion_queue_is_replaced(void)
{
	queue_breaks(IBV_EVENT_CQ_ERR);
}

static void test_a_broken_shared_receive_queue_is_replaced(void)
{
	queue_breaks(IBV_EVENT_SRQ_ERR);
}

static void test_a_broken_queue_pair_ends_alone(void)
{
	static const enum ibv_event_type types[] = {IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR,
						    IBV_EVENT_QP_LAST_WQE_REACHED};

	for (unsigned i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		host_connect(&near[0], 0);
		fake_conn_event(&near[0].io, types[i]);
		CU_ASSERT(wait_left(3, 2, 2));
		CU_ASSERT_EQUAL(host_enable(&near[0]), 0); /* that it is already */
		fake_disconnect(&near[0].admin);
		CU_ASSERT(wait_left(2, 2, 2));
	}
}

static bool all_acked(void *arg)
{
	return fake_stats.async_acked >= *(uint64_t *)arg;
}

static void test_events_of_ports_and_addresses_end_nothing(void)
{
	static const enum ibv_event_type types[] = {
		IBV_EVENT_PORT_ERR,  IBV_EVENT_LID_CHANGE,        IBV_EVENT_GID_CHANGE, IBV_EVENT_PKEY_CHANGE,
		IBV_EVENT_SM_CHANGE, IBV_EVENT_CLIENT_REREGISTER, IBV_EVENT_PORT_ACTIVE};
	uint64_t acked = fake_stats.async_acked + sizeof(types) / sizeof(types[0]);

	host_connect(&near[0], 0);
	for (unsigned i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		fake_port_event(0, types[i]);
	}
	fake_addr_change(&near[0].io);
	CU_ASSERT(fixture_poll(all_acked, &acked));
	CU_ASSERT_EQUAL(host_read_one(&near[0]), 0);
	CU_ASSERT_EQUAL(stats().connections, 4);
	disconnect(&near[0]);
	CU_ASSERT(wait_left(2, 2, 2));
}

/* Nothing says that the device is broken; it just never gives the work back. */
static void test_work_that_is_never_flushed_does_not_keep_a_connection(void)
{
	host_connect(&near[0], 0);
	strand(&near[0]);
	disconnect(&near[0]);
	CU_ASSERT(wait_left(2, 2, 2));
	fake_withhold(0, false);
	host_connect(&near[0], 0);
	CU_ASSERT_EQUAL(host_read_one(&near[0]), 0);
	pull();
	put_back();
}

/* Its connection stands, but nothing of what it is sent arrives. Who waits for nothing is left alone. */
static void test_a_host_that_acknowledges_nothing_is_disconnected(void)
{
	host_connect(&near[0], 0);
	strand(&near[0]);
	CU_ASSERT(wait_left(3, 2, 2));
	fake_withhold(0, false);
	CU_ASSERT_EQUAL(host_enable(&near[0]), 0); /* that it is already */
	CU_ASSERT_EQUAL(host_read_one(&far), 0);
	fake_disconnect(&near[0].admin);
	CU_ASSERT(wait_left(2, 2, 2));
}

static bool all_disconnected(void *arg)
{
	const struct host *h = arg;

	return __atomic_load_n(&h->io.disconnected, __ATOMIC_ACQUIRE) &&
	       __atomic_load_n(&h->admin.disconnected, __ATOMIC_ACQUIRE);
}

/* Connects with queue pairs that take shared receives in advance, and ends both connections: their queue pairs are in
 * the error state. */
static void end_with_taken_receives(void)
{
	fake_take_receives = 4;
	host_connect(&near[0], 0);
	CU_ASSERT_EQUAL(fake_taken(0), 8);
	fake_last_wqe = FAKE_LAST_WQE_LATER;
	disconnect(&near[0]);
	CU_ASSERT(fixture_poll(all_disconnected, &near[0]));
}

static void test_shared_receives_that_a_queue_pair_has_taken_are_not_lost(void)
{
	uint64_t lost = fake_stats.lost_receives;

	end_with_taken_receives();
	for (unsigned i = 0; i < 20; i++) { /* both threads have had time to destroy the queue pairs */
		CU_ASSERT_EQUAL(host_read_one(&far), 0);
	}
	CU_ASSERT_EQUAL(fake_live.qps, 4);
	fake_finish_errors();
	CU_ASSERT(wait_left(2, 2, 2));
	fake_last_wqe = FAKE_LAST_WQE_AT_ONCE;
	fake_take_receives = 0;
	CU_ASSERT_EQUAL(fake_stats.lost_receives, lost);
	host_connect(&near[0], 0);
	CU_ASSERT_EQUAL(host_read_one(&near[0]), 0);
	disconnect(&near[0]);
	CU_ASSERT(wait_left(2, 2, 2));
}

static void send_event_requests(void *arg)
{
	struct host *h = arg;

	for (unsigned i = 0; i < 4; i++) {
		struct nvme_sqe sqe = {.opcode = nvme_admin_async_event,
				       .flags = NVME_CMD_FLAGS_PSDT_SGL,
				       .cid = htole16((uint16_t)(100 + i))};

		CU_ASSERT(fake_send(&h->admin, &sqe, NULL, 0));
	}
}

static struct {
	struct fake_conn *conn;
	uint32_t receives;
} posted_wanted;

static bool are_posted(void *arg)
{
	return fake_posted(posted_wanted.conn) >= posted_wanted.receives;
}

static bool has_four_commands(void *arg)
{
	struct nvmf_inflight *list = NULL;
	int n = nvmf_tgt_get_inflight(tgt, &list);

	free(list);
	return n == 4;
}

/* They wait as long as the connection lasts, and others need the receives. */
static void test_requests_for_events_occupy_no_shared_receive(void)
{
	for (unsigned i = 0; i < 40; i++) { /* more than there are receives */
		host_connect(&near[0], 0);
		posted_wanted.conn = &near[0].admin;
		posted_wanted.receives = fake_posted(&near[0].admin);
		thread_call(host_group_thread, send_event_requests, &near[0]);
		CU_ASSERT_FATAL(fixture_poll(has_four_commands, NULL));
		CU_ASSERT_FATAL(fixture_poll(are_posted, NULL));
		CU_ASSERT_EQUAL(host_read_one(&near[0]), 0);
		CU_ASSERT_FATAL(fixture_poll(are_posted, NULL));
		disconnect(&near[0]);
		CU_ASSERT_FATAL(wait_left(2, 2, 2));
	}
}

static atomic_uint lines_of_last_wqe;

static void count_last_wqe_line(enum log_level level, const char *file, int line, const char *text)
{
	atomic_fetch_add(&lines_of_last_wqe, strstr(text, "LAST_WQE_REACHED") != NULL);
}

/* Connections end nevertheless, it is said once, and receives are missing until nobody uses the queue. */
static void test_a_device_that_never_says_that_it_holds_no_receives_keeps_no_connection(void)
{
	pull();
	put_back();
	log_set_tap(count_last_wqe_line);
	log_set_print_level(LOG_LEVEL_WARNING);
	for (unsigned i = 0; i < 3; i++) {
		end_with_taken_receives();
		CU_ASSERT(wait_left(2, 1, 2));
		fake_last_wqe = FAKE_LAST_WQE_AT_ONCE;
		fake_take_receives = 0;
		host_connect(&near[0], 0);
		posted_wanted.conn = &near[0].io;
		posted_wanted.receives = SHARED_RECEIVES;
		CU_ASSERT(fixture_poll(are_posted, NULL));
		fake_last_wqe = FAKE_LAST_WQE_LATER;
		disconnect(&near[0]);
		CU_ASSERT(wait_left(2, 1, 2));
		fake_last_wqe = FAKE_LAST_WQE_AT_ONCE;
	}
	CU_ASSERT_EQUAL(atomic_load(&lines_of_last_wqe), 1);
	host_connect(&near[0], 0); /* now it says so, and is believed again */
	disconnect(&near[0]);
	CU_ASSERT(wait_left(2, 2, 2));
	end_with_taken_receives();
	CU_ASSERT(wait_left(2, 1, 2));
	fake_last_wqe = FAKE_LAST_WQE_AT_ONCE;
	fake_take_receives = 0;
	CU_ASSERT_EQUAL(atomic_load(&lines_of_last_wqe), 2);
	log_set_print_level(LOG_LEVEL_DISABLED);
	log_set_tap(NULL);
	pull();
	put_back();
}

/* What siw, the kernel's software iWARP, stumbles over: see init_request() and disconnect(). */
static void test_iwarp_gets_responses_in_two_pieces_and_its_queue_pairs_end_first(void)
{
	pull();
	fake_iwarp = true;
	put_back();
	host_connect(&near[0], 0);
	CU_ASSERT_EQUAL(host_read_one(&near[0]), 0);
	disconnect(&near[0]);
	CU_ASSERT(wait_left(2, 2, 2));
	CU_ASSERT_EQUAL(fake_stats.short_sends, 0);
	CU_ASSERT_EQUAL(fake_stats.early_ends, 0);
	pull();
	fake_iwarp = false;
	put_back();
}

static bool qps_gone(void *arg)
{
	return fake_live.qps == 2; /* the other device's */
}

/* The verbs queue pair goes at once, its memory stays until the block device is through. */
static void test_a_block_device_that_is_slow_outlives_the_device(void)
{
	struct user u;

	CU_ASSERT_EQUAL_FATAL(user_open(&u, "T0", false, host_group_thread), 0);
	host_connect(&near[0], 0);
	disk->hold = true;
	strand(&near[0]);
	fake_remove(0);
	CU_ASSERT(fixture_poll(qps_gone, NULL));
	CU_ASSERT_EQUAL(stats().connections, 3);
	CU_ASSERT_EQUAL(atomic_load(&disk->held), EACH);
	testdev_release(disk, &u, 0);
	disk->hold = false;
	CU_ASSERT(wait_left(2, 1, 1));
	user_close(&u);
	pull();
	put_back();
}

/* The clock that the limits of the log look at; it may stand still. */
static atomic_bool frozen;
static struct timespec frozen_at;

int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
	if (clock == CLOCK_MONOTONIC_COARSE && atomic_load(&frozen)) {
		*t = frozen_at;
		return 0;
	}
	return __real_clock_gettime(clock, t);
}

static atomic_uint lines;

static void count_line(enum log_level level, const char *file, int line, const char *text)
{
	atomic_fetch_add(&lines, 1);
}

/* From now on all that is logged is counted, as if it came at once. */
static void watch_log(void)
{
	__real_clock_gettime(CLOCK_MONOTONIC_COARSE, &frozen_at);
	atomic_store(&frozen, true);
	atomic_store(&lines, 0);
	log_set_tap(count_line);
	log_set_print_level(LOG_LEVEL_NOTICE);
}

static bool log_was_limited(void)
{
	log_set_print_level(LOG_LEVEL_DISABLED);
	log_set_tap(NULL);
	atomic_store(&frozen, false);
	return atomic_load(&lines) >= 1 && atomic_load(&lines) <= 10;
}

static bool is_gone(void *arg)
{
	return fake_live.ids == *(unsigned *)arg;
}

/* Connection requests from nowhere cost neither memory nor, in any span of time, more than a few lines of the log. */
static void test_hosts_that_vanish_do_not_fill_the_log(void)
{
	struct fake_conn conn = {.vanishes = true};
	unsigned ids = fake_live.ids;

	watch_log();
	for (unsigned i = 0; i < 50; i++) {
		fake_connect(&conn, 0, HOST_ENTRIES);
		CU_ASSERT_FATAL(fixture_poll(is_gone, &ids));
	}
	CU_ASSERT(log_was_limited());
	CU_ASSERT(wait_left(2, 2, 2));
}

static struct thread_msg turn_msg;
static unsigned turns_beside_events, events_left;

/* Has turns on the control thread: those count before which some, but not all events have been read since the last one.
 */
static void count_turn(struct thread_msg *msg)
{
	if (fake_events_waiting() != 0) {
		turns_beside_events += fake_events_waiting() != events_left;
		events_left = fake_events_waiting();
		thread_post(thread_control(), msg, count_turn);
	}
}

static bool events_are_read(void *arg)
{
	return fake_events_waiting() == 0;
}

/* A flood of connection events does not keep the control thread. */
static void test_the_control_thread_does_other_work_between_connection_events(void)
{
	for (unsigned i = 0; i < 1000; i++) {
		fake_addr_change(&far.io);
	}
	events_left = fake_events_waiting();
	thread_post(thread_control(), &turn_msg, count_turn);
	CU_ASSERT(fixture_poll(events_are_read, NULL));
	CU_ASSERT(turns_beside_events >= 10);
}

/* So do those of which the device says that they did what they may not. */
static void test_queue_pairs_that_break_do_not_fill_the_log(void)
{
	watch_log();
	for (unsigned i = 0; i < 50; i++) {
		struct fake_conn conn = {.arg = &near[0], .on_response = host_on_answer};
		fake_connect(&conn, 0, HOST_ENTRIES);
		CU_ASSERT_FATAL(fixture_poll(host_is_accepted, &conn));
		fake_conn_event(&conn, IBV_EVENT_QP_ACCESS_ERR);
		CU_ASSERT_FATAL(wait_left(2, 2, 2));
	}
	CU_ASSERT(log_was_limited());
}

static bool have_same_regions(void *arg)
{
	const struct verbs_pd *first = verbs_pd_next(NULL);

	return first->table->count == verbs_pd_next(first)->table->count;
}

/* Requests, commands and in-capsule data may lie in different regions, of which the device may lack any. */
static void test_a_device_that_lacks_the_memory_of_the_commands_serves_nobody(void)
{
	struct fake_conn conn = {.arg = &near[0], .on_response = host_on_answer};
	void *neighbour = env_dma_malloc(4096, 64, -1); /* small, as are all commands */

	pull();
	fake_refuses_at = neighbour;
	put_back();
	fake_connect(&conn, 0, HOST_ENTRIES);
	CU_ASSERT(fixture_poll(host_is_rejected, &conn));
	CU_ASSERT(wait_left(2, 1, 2));
	CU_ASSERT_FALSE(have_same_regions(NULL));
	fake_refuses_at = NULL;
	CU_ASSERT(fixture_poll(have_same_regions, NULL));
	host_connect(&near[0], 0);
	CU_ASSERT_EQUAL(host_read_one(&near[0]), 0);
	disconnect(&near[0]);
	CU_ASSERT(wait_left(2, 2, 2));
	env_dma_free(neighbour);
}

static char fault[64];

static void keep_fault(const struct nvmf_fault *f)
{
	snprintf(fault, sizeof(fault), "%s", f->why);
}

static void send_with_other_key(void *arg)
{
	struct nvme_sqe sqe = host_rw(*(uint8_t *)arg, 1);

	sqe.sgl1 = nvme_sgl_make_keyed(0x1000, 4096, FAKE_RKEY + 1, NVME_SGL_SUBTYPE_ADDRESS);
	CU_ASSERT(fake_send(&near[0].io, &sqe, NULL, 0));
}

/* Of a read, the work request that fails is one that is not signalled. The device's event, by which the target learns
 * of the end too, comes before the completion is polled. */
static void test_a_key_that_does_not_fit_is_told_as_the_reason(void)
{
	static const uint8_t opcodes[] = {nvme_cmd_read, nvme_cmd_write};

	nvmf_set_fault_fn(keep_fault);
	for (unsigned i = 0; i < sizeof(opcodes); i++) {
		host_connect(&near[0], 0);
		fault[0] = '\0';
		thread_call(host_group_thread, send_with_other_key, (void *)&opcodes[i]);
		CU_ASSERT(wait_left(3, 2, 2));
		CU_ASSERT_STRING_EQUAL(fault, "no such key");
		fake_disconnect(&near[0].admin);
		CU_ASSERT(wait_left(2, 2, 2));
	}
	nvmf_set_fault_fn(NULL);
}

static void count(void *arg, int status)
{
	*(unsigned *)arg += status == 0;
}

static bool is_counted(void *arg)
{
	return *(unsigned *)arg != 0;
}

static bool is_fault_told(void *arg)
{
	return fault[0] != '\0';
}

static void read_with_half_posted(void *arg)
{
	struct nvme_sqe sqe = host_rw(nvme_cmd_read, 1);

	fake_fail_behind = 1; /* the WRITE of the data; the response is not posted any more */
	fake_fail_post_send = ENOMEM;
	CU_ASSERT(fake_send(&near[0].io, &sqe, NULL, 0));
}

/* The device may read the buffers until its queue pair is destroyed: so long the command has them. */
static void test_what_is_posted_in_part_keeps_its_buffers_until_the_queue_pair_is_gone(void)
{
	struct nvmf_inflight late[2];

	nvmf_set_fault_fn(keep_fault);
	host_connect(&near[0], 0);
	fault[0] = '\0';
	thread_call(host_group_thread, read_with_half_posted, NULL);
	CU_ASSERT(fixture_poll(is_fault_told, NULL));
	CU_ASSERT_EQUAL_FATAL(nvmf_tgt_get_late(tgt, 0, 2, late), 1);
	CU_ASSERT_STRING_EQUAL(late[0].state, "completing with data");
	CU_ASSERT(wait_left(3, 2, 2));
	CU_ASSERT_EQUAL(nvmf_tgt_get_late(tgt, 0, 2, late), 0);
	nvmf_set_fault_fn(NULL);
	fake_disconnect(&near[0].admin);
	CU_ASSERT(wait_left(2, 2, 2));
}

/* What counts is the listener that a host came through; its connections end with it. */
static void test_a_listener_at_any_address_or_of_another_spelling_is_connected_through(void)
{
	static const char *const addresses[] = {"0.0.0.0", "127.1"};

	for (unsigned i = 0; i < 2; i++) {
		struct nvmf_address at = {.trtype = "RDMA", .adrfam = 1, .trsvcid = "4422"};
		unsigned removed = 0;

		strcpy(at.traddr, addresses[i]);
		CU_ASSERT_EQUAL_FATAL(nvmf_subsystem_add_listener(subsystem, &at), 0);
		near[0].admin.port = near[0].io.port = 4422;
		host_connect(&near[0], 0);
		CU_ASSERT_EQUAL(host_read_one(&near[0]), 0);
		nvmf_subsystem_remove_listener(subsystem, &at, count, &removed);
		CU_ASSERT(fixture_poll(is_counted, &removed));
		CU_ASSERT(wait_left(2, 2, 2));
		near[0].admin.port = near[0].io.port = 0;
	}
}

/* ---- Memory is registered beside ---- */

int __real_sem_wait(sem_t *sem);
int __wrap_sem_wait(sem_t *sem);
int __wrap_sem_wait(sem_t *sem)
{
	fake_hold_memory(false); /* who cannot go on before the registration has ended: now it may */
	return __real_sem_wait(sem);
}

static bool is_held(void *arg)
{
	return atomic_load(&fake_held) != 0;
}

/* Device 0 has come back, and its memory is being registered until fake_hold_memory(false). */
static void put_back_slowly(void)
{
	fake_hold_memory(true);
	fake_return(0);
	CU_ASSERT_FATAL(fixture_poll(is_held, NULL));
	CU_ASSERT(fake_listens(0));
}

static void test_others_are_served_while_memory_is_registered_and_who_connects_waits(void)
{
	struct fake_conn early = {.arg = &near[0], .on_response = host_on_answer};
	unsigned settled = 0;

	pull();
	put_back_slowly();
	nvmf_subsystem_settle_listeners(subsystem, "RDMA", count, &settled);
	fake_connect(&early, 0, HOST_ENTRIES);
	host_connect(&near[1], 1); /* commands of this the control thread answers */
	CU_ASSERT_EQUAL(host_read_one(&near[1]), 0);
	CU_ASSERT_FALSE(early.accepted);
	CU_ASSERT_FALSE(early.rejected);
	CU_ASSERT_EQUAL(settled, 0);
	CU_ASSERT_EQUAL(atomic_load(&fake_held), 1);
	fake_hold_memory(false);
	CU_ASSERT_FATAL(fixture_poll(host_is_accepted, &early));
	CU_ASSERT_EQUAL(settled, 1);
	fake_disconnect(&early);
	disconnect(&near[1]);
	CU_ASSERT(wait_left(2, 2, 2));
	CU_ASSERT_EQUAL(atomic_load(&fake_held_there), 0);
}

/* Two on one device at once; and one is removed again before the device is ready. */
static void test_listeners_come_and_go_while_memory_is_registered(void)
{
	struct nvmf_address at = {.trtype = "RDMA", .adrfam = 1, .traddr = "127.0.0.1", .trsvcid = "4421"};
	unsigned settled = 0, removed = 0;

	pull();
	put_back_slowly();
	CU_ASSERT_EQUAL(nvmf_subsystem_add_listener(subsystem, &at), 0);
	nvmf_subsystem_settle_listeners(subsystem, "RDMA", count, &settled);
	nvmf_subsystem_remove_listener(subsystem, &at, count, &removed);
	CU_ASSERT(fixture_poll(is_counted, &removed));
	CU_ASSERT_EQUAL(nvmf_subsystem_add_listener(subsystem, &at), 0);
	CU_ASSERT_EQUAL(settled, 0);
	CU_ASSERT_EQUAL(fake_live.pds, 2);
	fake_hold_memory(false);
	CU_ASSERT(fixture_poll(is_counted, &settled));
	CU_ASSERT_EQUAL(settled, 1);
	nvmf_subsystem_settle_listeners(subsystem, "RDMA", count, &settled); /* nothing is left to wait for */
	CU_ASSERT_EQUAL(settled, 2);
	removed = 0;
	nvmf_subsystem_remove_listener(subsystem, &at, count, &removed);
	CU_ASSERT(fixture_poll(is_counted, &removed));
	CU_ASSERT_EQUAL(fake_live.pds, 2);
	CU_ASSERT_EQUAL(atomic_load(&fake_held_there), 0);
}

static void test_a_device_that_goes_while_its_memory_is_registered_is_let_go(void)
{
	struct fake_conn early = {.arg = &near[0], .on_response = host_on_answer};
	unsigned settled = 0;

	pull();
	put_back_slowly();
	nvmf_subsystem_settle_listeners(subsystem, "RDMA", count, &settled);
	fake_connect(&early, 0, HOST_ENTRIES);
	pull();
	CU_ASSERT_EQUAL(settled, 1);
	put_back();
	host_connect(&near[0], 0);
	CU_ASSERT_EQUAL(host_read_one(&near[0]), 0);
	disconnect(&near[0]);
	CU_ASSERT(wait_left(2, 2, 2));
}

static void test_a_device_that_takes_no_memory_serves_nobody_until_it_does(void)
{
	struct fake_conn conn = {.arg = &near[0], .on_response = host_on_answer};
	unsigned settled = 0;

	pull();
	fake_refuses_memory = true;
	put_back();
	nvmf_subsystem_settle_listeners(subsystem, "RDMA", count, &settled);
	CU_ASSERT(fixture_poll(is_counted, &settled));
	fake_connect(&conn, 0, HOST_ENTRIES);
	CU_ASSERT(fixture_poll(host_is_rejected, &conn));
	CU_ASSERT(wait_left(2, 1, 2));
	fake_refuses_memory = false;
	CU_ASSERT(fixture_poll(have_same_regions, NULL));
	host_connect(&near[0], 0);
	CU_ASSERT_EQUAL(host_read_one(&near[0]), 0);
	disconnect(&near[0]);
	CU_ASSERT(wait_left(2, 2, 2));
}

/* ---- Set-up ---- */

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

static int wait_state(void)
{
	int rc = fixture_poll(has_state, NULL) && atomic_load(&state) > 0 ? 0 : -1;

	atomic_store(&state, 0);
	return rc;
}

static void set_option(struct nvmf_transport_opts *opts, const char *name, int64_t value)
{
	const struct nvmf_transport_option *o;

	for (unsigned n = 0; (o = nvmf_transport_own_option("RDMA", n)) != NULL; n++) {
		if (strcmp(o->name, name) == 0) {
			nvmf_transport_option_set(opts, o, value);
			return;
		}
	}
	CU_FAIL_FATAL("no such option");
}

static int setup(void)
{
	struct nvmf_tgt_opts opts = {.name = "devices"};
	struct nvmf_subsystem_opts sopts = {.serial_number = "1", .allow_any_host = true};
	struct nvmf_address addresses[] = {{.trtype = "RDMA", .adrfam = 1, .traddr = "127.0.0.1", .trsvcid = "4420"},
					   {.trtype = "RDMA", .adrfam = 1, .traddr = "127.0.0.2", .trsvcid = "4420"}};
	struct nvmf_transport_opts topts;
	cpu_set_t cores;
	uint32_t nsid;
	int rc = fixture_start();

	CPU_ZERO(&cores);
	CPU_SET(1, &cores);
	opts.cores = &cores;
	if (rc != 0 || (disk = testdev_new("T0", 4096, LBAS)) == NULL || (rc = testdev_register(disk)) != 0) {
		return -1;
	}
	nvmf_transport_opts_init("RDMA", &topts);
	topts.num_shared_buffers = BUFFERS;
	set_option(&topts, "max_srq_depth", SHARED_RECEIVES);
	set_option(&topts, "num_event_requests", 16);
	set_option(&topts, "data_wr_pool_size", 16);
	topts.ack_timeout = 2000;
	topts.iobuf_small_cache_size = topts.iobuf_large_cache_size = 0;
	rc = nvmf_tgt_create(&opts, &tgt);
	rc = rc != 0 ? rc : nvmf_transport_create(tgt, "RDMA", &topts, (char[NVMF_ERROR_MAX]){0});
	rc = rc != 0 ? rc : nvmf_tgt_start(tgt);
	rc = rc != 0 ? rc : nvmf_subsystem_create(tgt, HOST_SUBNQN, &sopts, &subsystem);
	rc = rc != 0 ? rc : nvmf_subsystem_add_ns(subsystem, "T0", &(struct nvmf_ns_opts){0}, &nsid);
	rc = rc != 0 ? rc : nvmf_subsystem_add_listener(subsystem, &addresses[0]);
	rc = rc != 0 ? rc : nvmf_subsystem_add_listener(subsystem, &addresses[1]);
	if (rc != 0) {
		printf("no target: %s\n", strerror(-rc));
		return rc;
	}
	nvmf_subsystem_start(subsystem, set_state, NULL);
	rc = wait_state();
	for (struct thread *t = thread_next(NULL); t != NULL; t = thread_next(t)) {
		host_group_thread = strstr(thread_name(t), nvmf_poll_group_name(nvmf_poll_group_next(tgt, NULL)))
					    ? t
					    : host_group_thread;
	}
	if (rc == 0 && host_group_thread != NULL) {
		return host_try_connect(&far, 1) ? 0 : -1;
	}
	return -1;
}

/* It ends while memory is registered, while a host waits for that, and while somebody wants to know. */
static int teardown(void)
{
	struct fake_conn early = {0};
	unsigned settled = 0;

	fake_remove(0);
	fixture_poll(listens_no_more, NULL);
	fake_hold_memory(true);
	fake_return(0);
	int rc = fixture_poll(is_held, NULL) ? 0 : -1;
	nvmf_subsystem_settle_listeners(subsystem, "RDMA", count, &settled);
	fake_connect(&early, 0, HOST_ENTRIES);
	nvmf_tgt_stop(tgt, set_state, NULL);
	rc |= wait_state();

	nvmf_tgt_destroy(tgt);
	verbs_pd_wait();
	if (settled != 1 || !early.rejected) {
		printf("%u were told that the device is ready, and the host that waited for it was %srejected\n",
		       settled, early.rejected ? "" : "not ");
		rc = -1;
	}
	if (fake_live.qps + fake_live.cqs + fake_live.srqs + fake_live.pds + fake_live.mrs + fake_live.ids != 0) {
		printf("left behind: %u queue pairs, %u completion queues, %u shared receive queues, %u domains, %u "
		       "regions, %u ids\n",
		       fake_live.qps, fake_live.cqs, fake_live.srqs, fake_live.pds, fake_live.mrs, fake_live.ids);
		rc = -1;
	}
	if (!testdev_delete(disk)) {
		rc = -1;
	}
	return rc | fixture_stop();
}

static const struct unit_test tests[] = {
	UNIT(test_no_host_has_a_right_to_the_targets_memory),
	UNIT(test_the_keys_that_an_attached_target_gets_are_of_another_domain),
	UNIT(test_memory_that_devices_did_not_take_is_offered_again),
	UNIT(test_a_removed_device_without_connections_is_let_go),
	UNIT(test_a_removed_device_with_work_under_way_is_let_go_and_listened_on_again),
	UNIT(test_a_fatal_event_ends_the_devices_connections_and_only_those),
	UNIT(test_a_device_without_shared_receive_queues_is_let_go),
	UNIT(test_a_broken_completion_queue_is_replaced),
	UNIT(test_a_broken_shared_receive_queue_is_replaced),
	UNIT(test_a_broken_queue_pair_ends_alone),
	UNIT(test_events_of_ports_and_addresses_end_nothing),
	UNIT(test_work_that_is_never_flushed_does_not_keep_a_connection),
	UNIT(test_a_host_that_acknowledges_nothing_is_disconnected),
	UNIT(test_a_block_device_that_is_slow_outlives_the_device),
	UNIT(test_hosts_that_vanish_do_not_fill_the_log),
	UNIT(test_queue_pairs_that_break_do_not_fill_the_log),
	UNIT(test_the_control_thread_does_other_work_between_connection_events),
	UNIT(test_requests_for_events_occupy_no_shared_receive),
	UNIT(test_shared_receives_that_a_queue_pair_has_taken_are_not_lost),
	UNIT(test_a_device_that_never_says_that_it_holds_no_receives_keeps_no_connection),
	UNIT(test_iwarp_gets_responses_in_two_pieces_and_its_queue_pairs_end_first),
	UNIT(test_a_device_that_lacks_the_memory_of_the_commands_serves_nobody),
	UNIT(test_a_key_that_does_not_fit_is_told_as_the_reason),
	UNIT(test_what_is_posted_in_part_keeps_its_buffers_until_the_queue_pair_is_gone),
	UNIT(test_a_listener_at_any_address_or_of_another_spelling_is_connected_through),
	UNIT(test_others_are_served_while_memory_is_registered_and_who_connects_waits),
	UNIT(test_listeners_come_and_go_while_memory_is_registered),
	UNIT(test_a_device_that_goes_while_its_memory_is_registered_is_let_go),
	UNIT(test_a_device_that_takes_no_memory_serves_nobody_until_it_does),
	UNIT_END,
};

UNIT_MAIN("nvmf_rdma_devices", tests, setup, teardown)

/* SPDX-License-Identifier: BSD-3-Clause */
/* The end of connections: whatever the cause, what has not begun is never carried out, what has begun ends before the
 * host sees a connection end, and all is answered, unless the host is gone. */
#include "unittest/nvmf/loop.h"

#define BLOCK  512
#define BLOCKS 1024
#define OTHER  "nqn.2024-01.io.varve:other-host"

#define PATH_ERROR NVME_ST(PATH, CTRL_PATH_ERROR)

/* Where the commands of a test are. */
enum {
	BEGUN,  /* with the device, which holds it */
	NOMEM,  /* the device has no room for it */
	QOS,    /* waits for a rate limit */
	PAUSED, /* its namespace is paused */
	BUFFER, /* waits for a data buffer */
	PLACES,
};

static struct loop_conn *admin, *io, *io2;
static struct testdev *slow;
static uint32_t slow_nsid, limited_nsid, paused_nsid;
static uint8_t buf[128 * BLOCK];
static struct loop_cmd cmds[PLACES], fused, late;

static void write_init(struct loop_cmd *c, struct loop_conn *conn, uint32_t nsid, uint64_t lba)
{
	loop_cmd_init(c, conn, nvme_cmd_write, nsid);
	c->sqe.cdw10 = htole32((uint32_t)lba);
	loop_cmd_data(c, buf, BLOCK);
}

static void write_submit(struct loop_cmd *c, struct loop_conn *conn, uint32_t nsid, uint64_t lba)
{
	write_init(c, conn, nsid, lba);
	loop_submit(c);
}

struct expected {
	const char *waits_for;
	size_t count;
};

static bool so_many_wait(void *arg)
{
	const struct expected *e = arg;
	struct nvmf_inflight *list;
	ssize_t n = nvmf_tgt_get_inflight(loop_tgt(), &list);
	size_t count = 0;

	for (ssize_t i = 0; i < n; i++) {
		count += list[i].waits_for != NULL && strcmp(list[i].waits_for, e->waits_for) == 0;
	}
	free(list);
	return count == e->count;
}

static void expect_waiting(const char *waits_for, size_t count)
{
	struct expected e = {waits_for, count};

	CU_ASSERT_TRUE_FATAL(fixture_poll(so_many_wait, &e));
}

static void pause_ns(uint32_t nsid)
{
	struct loop_wait wait = LOOP_WAIT;

	nvmf_subsystem_pause(loop_subsystem(), nsid, loop_done, &wait);
	CU_ASSERT_EQUAL(loop_wait_for(&wait), 0);
}

static void resume(void)
{
	struct loop_wait wait = LOOP_WAIT;

	nvmf_subsystem_resume(loop_subsystem(), loop_done, &wait);
	CU_ASSERT_EQUAL(loop_wait_for(&wait), 0);
}

/* A limit that the first write exceeds by so much that the next one waits for minutes. */
static void make_limited_ns(void)
{
	limited_nsid = loop_add_malloc_ns("limited", BLOCK, BLOCKS);
	CU_ASSERT_EQUAL(bdev_set_qos_limits(bdev_find("limited"), &(struct rate_limits){.w_bytes_per_sec = BLOCK}), 0);
}

static void attach(void)
{
	memset(buf, 0x5a, sizeof(buf));
	slow = testdev_new("slow", BLOCK, BLOCKS);
	slow->hold = true;
	slow->slots = 1;
	CU_ASSERT_EQUAL_FATAL(testdev_register(slow), 0);
	slow_nsid = loop_add_ns("slow", 0);
	paused_nsid = loop_add_malloc_ns("paused", BLOCK, BLOCKS);
	make_limited_ns();
	admin = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 600000);
	CU_ASSERT_PTR_NOT_NULL_FATAL(admin);
	io = loop_io_queue(admin, 1);
	io2 = loop_io_queue(admin, 2);
	CU_ASSERT_PTR_NOT_NULL_FATAL(io);
	CU_ASSERT_PTR_NOT_NULL_FATAL(io2);
}

static void detach(void)
{
	loop_close(io);
	loop_close(io2);
	loop_close(admin);
	loop_remove_malloc_ns(limited_nsid, "limited");
	loop_remove_malloc_ns(paused_nsid, "paused");
	loop_remove_ns(slow_nsid);
	CU_ASSERT_TRUE(testdev_delete(slow));
}

/* The device ends what it has of a thread. */
static void release_held(struct thread *thread)
{
	struct user u;

	CU_ASSERT_EQUAL_FATAL(user_open(&u, "slow", false, thread), 0);
	testdev_release(slow, &u, 0);
	user_close(&u);
}

static void let_end(void)
{
	slow->hold = false;
	release_held(io->thread);
}

static void fill_every_place(void)
{
	CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_write, limited_nsid, 0, 127, buf, sizeof(buf)), 0);
	write_submit(&cmds[BEGUN], io, slow_nsid, 1);
	CU_ASSERT_TRUE_FATAL(fixture_wait_count(&slow->held, 1));
	write_submit(&cmds[NOMEM], io, slow_nsid, 2);
	write_submit(&cmds[QOS], io, limited_nsid, 200);
	pause_ns(paused_nsid);
	write_submit(&cmds[PAUSED], io, paused_nsid, 3);
	loop_cmd_init(&fused, io2, nvme_cmd_compare, slow_nsid);
	fused.sqe.flags |= NVME_FUSE_FIRST;
	loop_cmd_data(&fused, buf, BLOCK);
	loop_submit(&fused);
	expect_waiting("wait_nomem", 1);
	expect_waiting("wait_qos", 1);
	expect_waiting("paused namespace", 1);
	expect_waiting("other half of a fused pair", 1);
	atomic_store(&loop_hold_data, true);
	write_submit(&cmds[BUFFER], io, slow_nsid, 4);
	expect_waiting("data buffer", 1);
}

static bool target_stops; /* and its subsystems are freed then */

static void no_longer_hold(void)
{
	atomic_store(&loop_hold_data, false);
	if (!target_stops && nvmf_subsystem_get_state(loop_subsystem()) == NVMF_SUBSYSTEM_PAUSED) {
		resume();
	}
}

/* A block that was not written is zero. */
static uint8_t first_byte(const char *bdev, uint64_t lba)
{
	static uint8_t block[BLOCK];
	struct user u;

	memset(block, 0xff, sizeof(block));
	CU_ASSERT_EQUAL_FATAL(user_open(&u, bdev, false, fixture_thread(3)), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, block, lba, 1), 0);
	user_close(&u);
	return block[0];
}

static void expect_nothing_was_carried_out(void)
{
	CU_ASSERT_EQUAL(bdev_set_qos_limits(bdev_find("limited"), &(struct rate_limits){0}), 0);
	slow->slots = 0;
	CU_ASSERT_EQUAL(first_byte("slow", 1), 0x5a);
	CU_ASSERT_EQUAL(first_byte("slow", 2), 0);
	CU_ASSERT_EQUAL(first_byte("limited", 200), 0);
	CU_ASSERT_EQUAL(first_byte("paused", 3), 0);
	CU_ASSERT_EQUAL(first_byte("slow", 4), 0);
}

/* The target ends the queue pairs of the controller: by `begin`, which does not wait. */
static void expect_quiesced_by(void (*begin)(void), bool admin_too)
{
	attach();
	fill_every_place();
	begin();
	for (unsigned i = NOMEM; i < PLACES; i++) {
		CU_ASSERT_EQUAL(loop_wait(&cmds[i]), PATH_ERROR);
	}
	CU_ASSERT_EQUAL(loop_wait(&fused), PATH_ERROR);
	write_init(&late, io2, slow_nsid, 0); /* the other half of the pair */
	late.sqe.flags |= NVME_FUSE_SECOND;
	loop_submit(&late);
	CU_ASSERT_EQUAL(loop_wait(&late), PATH_ERROR);
	write_submit(&late, io, slow_nsid, 5);
	CU_ASSERT_EQUAL(loop_wait(&late), PATH_ERROR); /* it arrives too late */
	CU_ASSERT_FALSE(atomic_load(&cmds[BEGUN].done));
	CU_ASSERT_FALSE(atomic_load(&io->closed));
	CU_ASSERT_FALSE(atomic_load(&io2->closed)); /* nor is any other queue of the controller */
	CU_ASSERT_FALSE(atomic_load(&admin->closed));
	let_end();
	CU_ASSERT_EQUAL(loop_wait(&cmds[BEGUN]), 0);
	CU_ASSERT_TRUE(loop_wait_closed(io));
	CU_ASSERT_TRUE(loop_wait_closed(io2));
	if (admin_too) {
		CU_ASSERT_TRUE(loop_wait_closed(admin));
	}
	no_longer_hold();
	expect_nothing_was_carried_out();
	CU_ASSERT_EQUAL(first_byte("slow", 5), 0);
}

static struct nvmf_ctrlr *the_ctrlr(void)
{
	return nvmf_ctrlr_next(loop_subsystem(), NULL);
}

static void by_destruction(void)
{
	nvmf_ctrlr_destroy(the_ctrlr(), "the test wants it");
}

static void test_destroyed_controller(void)
{
	expect_quiesced_by(by_destruction, true);
	detach();
}

static uint32_t csts(void)
{
	uint64_t value = UINT64_MAX;

	CU_ASSERT_EQUAL(loop_property_get(admin, NVME_REG_CSTS, 4, &value), 0);
	return (uint32_t)value;
}

static void by_reset(void)
{
	CU_ASSERT_EQUAL(loop_property_set(admin, NVME_REG_CC, 4, LOOP_CC_ENABLE & ~1u), 0);
	CU_ASSERT_EQUAL(NVME_CSTS_RDY(csts()), 1); /* a command is being carried out */
}

static bool is_not_ready(void *arg)
{
	return NVME_CSTS_RDY(csts()) == 0;
}

static void test_reset_by_the_host(void)
{
	expect_quiesced_by(by_reset, false);
	CU_ASSERT_TRUE(fixture_poll(is_not_ready, NULL));
	detach();
}

static void by_shutdown(void)
{
	CU_ASSERT_EQUAL(loop_property_set(admin, NVME_REG_CC, 4, LOOP_CC_ENABLE | 1u << NVME_CC_SHN_SHIFT), 0);
	CU_ASSERT_EQUAL(NVME_CSTS_SHST(csts()), NVME_CSTS_SHST_OCCUR);
}

static void test_shutdown_by_the_host(void)
{
	expect_quiesced_by(by_shutdown, false);
	detach();
}

static struct loop_wait removed;

static void by_listener(void)
{
	removed = (struct loop_wait)LOOP_WAIT;
	nvmf_subsystem_remove_listener(loop_subsystem(), &loop_address, loop_done, &removed);
}

static void test_removed_listener(void)
{
	expect_quiesced_by(by_listener, true);
	CU_ASSERT_EQUAL(loop_wait_for(&removed), 0);
	CU_ASSERT_EQUAL(nvmf_subsystem_add_listener(loop_subsystem(), &loop_address), 0);
	detach();
}

static void by_host_removal(void)
{
	CU_ASSERT_EQUAL(nvmf_subsystem_set_allow_any_host(loop_subsystem(), false), 0);
}

static void test_removed_host(void)
{
	expect_quiesced_by(by_host_removal, true);
	CU_ASSERT_EQUAL(nvmf_subsystem_set_allow_any_host(loop_subsystem(), true), 0);
	detach();
}

static void by_stop(void)
{
	removed = (struct loop_wait)LOOP_WAIT;
	nvmf_subsystem_stop(loop_subsystem(), loop_done, &removed);
}

static void test_stopped_subsystem(void)
{
	struct loop_wait started = LOOP_WAIT;

	expect_quiesced_by(by_stop, true);
	CU_ASSERT_EQUAL(loop_wait_for(&removed), 0);
	nvmf_subsystem_start(loop_subsystem(), loop_done, &started);
	CU_ASSERT_EQUAL(loop_wait_for(&started), 0);
	detach();
}

static void be_absent_for(void *arg)
{
	nvmf_poll_group_was_absent(io->qp != NULL ? ((struct nvmf_qpair *)io->qp)->group : NULL, *(uint64_t *)arg);
}

static void by_absence(void)
{
	uint64_t less = 599000000, enough = 600000000;

	thread_call(io->thread, be_absent_for, &less); /* forgiven: the host has not given up */
	CU_ASSERT_EQUAL(the_ctrlr()->state, NVMF_CTRLR_READY);
	thread_call(io->thread, be_absent_for, &enough);
}

/* The other queue may be in the other group, which ends it when it is told. */
static void test_absence_for_the_keep_alive_timeout(void)
{
	expect_quiesced_by(by_absence, true);
	detach();
}

/* Nothing was heard of the host for silent_ms, and the keep-alive timer comes late. The timeout is 10 s. */
static void keep_alive_runs_out(uint64_t silent_ms, uint64_t late_ms)
{
	struct nvmf_ctrlr *ctrlr = the_ctrlr();
	uint64_t now = env_ticks();
	struct nvmf_qpair *qpair;

	atomic_store(&ctrlr->kato_ms, 10000);
	TAILQ_FOREACH (qpair, &ctrlr->qpairs, ctrlr_link) {
		atomic_store(&qpair->last_command_ticks, now - env_us_to_ticks(silent_ms * 1000));
	}
	thread_timer_stop(&ctrlr->kato_timer);
	ctrlr->kato_timer.deadline = now - env_us_to_ticks(late_ms * 1000);
	ctrlr->kato_timer.fn(ctrlr->kato_timer.arg);
}

static void by_keep_alive(void)
{
	keep_alive_runs_out(13000, 0);
}

static void test_expired_keep_alive(void)
{
	expect_quiesced_by(by_keep_alive, true);
	detach();
}

/* A host waits for 3 x the timeout + CQT before it submits writes elsewhere, so it is forgiven no longer. */
static void test_own_absence_forgives_less_than_the_host_waits(void)
{
	uint64_t most_ms = 3 * 10000 + 2500;

	attach();
	uint64_t last_us = env_ticks_to_ns(env_ticks()) / 1000 - 31000000;
	keep_alive_runs_out(31000, 9000);
	CU_ASSERT_EQUAL(the_ctrlr()->state, NVMF_CTRLR_READY);
	uint64_t due_us = env_ticks_to_ns(the_ctrlr()->kato_timer.deadline) / 1000;
	CU_ASSERT(due_us <= last_us + most_ms * 1000 + 1000000);
	keep_alive_runs_out(13000, 9000); /* its whole time again */
	CU_ASSERT_EQUAL(the_ctrlr()->state, NVMF_CTRLR_READY);
	keep_alive_runs_out(most_ms, 9000);
	CU_ASSERT_NOT_EQUAL(the_ctrlr()->state, NVMF_CTRLR_READY);
	CU_ASSERT_TRUE(loop_wait_closed(admin));
	detach();
}

static struct loop_wait tgt_stopped;

static void by_stop_of_the_target(void)
{
	target_stops = true;
	tgt_stopped = (struct loop_wait)LOOP_WAIT;
	nvmf_tgt_stop(loop_tgt(), loop_done, &tgt_stopped);
}

static void test_stopped_target(void)
{
	expect_quiesced_by(by_stop_of_the_target, true);
	CU_ASSERT_EQUAL(loop_wait_for(&tgt_stopped), 0);
	CU_ASSERT_EQUAL_FATAL(loop_replace_tgt(), 0);
	target_stops = false;
	loop_close(io);
	loop_close(io2);
	loop_close(admin);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "limited"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "paused"), 0);
	CU_ASSERT_TRUE(testdev_delete(slow));
}

/* A namespace that is removed ends no connection: what it has not begun waits there, until the queue pair is ended. */
static void test_namespace_that_is_removed_meanwhile(void)
{
	struct loop_wait gone = LOOP_WAIT;

	attach();
	CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_write, limited_nsid, 0, 127, buf, sizeof(buf)), 0);
	write_submit(&cmds[QOS], io, limited_nsid, 200);
	expect_waiting("wait_qos", 1);
	nvmf_subsystem_remove_ns(loop_subsystem(), limited_nsid, loop_done, &gone);
	write_submit(&late, io, limited_nsid, 201);
	by_destruction();
	CU_ASSERT_EQUAL(loop_wait(&cmds[QOS]), PATH_ERROR);
	CU_ASSERT(loop_wait(&late) == PATH_ERROR || nvme_cqe_status(&late.cqe) == NVME_ST_DNR(GENERIC, INVALID_NS));
	CU_ASSERT_EQUAL(loop_wait_for(&gone), 0);
	CU_ASSERT_TRUE(loop_wait_closed(io));
	CU_ASSERT_EQUAL(bdev_set_qos_limits(bdev_find("limited"), &(struct rate_limits){0}), 0);
	CU_ASSERT_EQUAL(first_byte("limited", 200), 0);
	CU_ASSERT_EQUAL(first_byte("limited", 201), 0);
	limited_nsid = loop_add_ns("limited", 0);
	detach();
}

/* ---- The host is gone ---- */

static void test_connection_that_breaks(void)
{
	attach();
	fill_every_place();
	loop_break(io);
	loop_break(io2);
	for (unsigned i = NOMEM; i < PLACES; i++) {
		CU_ASSERT_EQUAL(loop_wait(&cmds[i]), LOOP_STATUS_GONE);
	}
	CU_ASSERT_EQUAL(loop_wait(&fused), LOOP_STATUS_GONE);
	CU_ASSERT_FALSE(atomic_load(&io->closed)); /* the device has one */
	let_end();
	CU_ASSERT_EQUAL(loop_wait(&cmds[BEGUN]), LOOP_STATUS_GONE);
	CU_ASSERT_TRUE(loop_wait_closed(io));
	no_longer_hold();
	expect_nothing_was_carried_out();
	detach();
}

static void test_connection_that_breaks_while_quiescing(void)
{
	attach();
	fill_every_place();
	by_destruction();
	CU_ASSERT_EQUAL(loop_wait(&cmds[QOS]), PATH_ERROR);
	loop_break(io);
	CU_ASSERT_FALSE(atomic_load(&io->closed));
	CU_ASSERT_FALSE(atomic_load(&admin->closed)); /* the controller has not ended */
	let_end();
	CU_ASSERT_EQUAL(loop_wait(&cmds[BEGUN]), LOOP_STATUS_GONE);
	CU_ASSERT_TRUE(loop_wait_closed(io));
	CU_ASSERT_TRUE(loop_wait_closed(admin));
	no_longer_hold();
	expect_nothing_was_carried_out();
	detach();
}

static void test_controller_that_is_destroyed_while_it_is_reset(void)
{
	attach();
	fill_every_place();
	by_reset();
	by_destruction();
	CU_ASSERT_EQUAL(NVME_CSTS_RDY(csts()), 1);
	let_end();
	CU_ASSERT_EQUAL(loop_wait(&cmds[BEGUN]), 0);
	CU_ASSERT_TRUE(loop_wait_closed(admin));
	no_longer_hold();
	expect_nothing_was_carried_out();
	detach();
}

static void test_admin_queue_that_breaks_ends_the_others_in_order(void)
{
	attach();
	fill_every_place();
	loop_break(admin);
	for (unsigned i = NOMEM; i < PLACES; i++) {
		CU_ASSERT_EQUAL(loop_wait(&cmds[i]), PATH_ERROR); /* I/O queues still have their connections */
	}
	CU_ASSERT_FALSE(atomic_load(&io2->closed));
	let_end();
	CU_ASSERT_EQUAL(loop_wait(&cmds[BEGUN]), 0);
	CU_ASSERT_TRUE(loop_wait_closed(io2));
	no_longer_hold();
	expect_nothing_was_carried_out();
	detach();
}

/* ---- The host comes back by another reactor ---- */

static struct loop_conn *other, *other_io, *back, *back_io;

/* So that the host's next I/O queue is in the other group than `io`. */
static void load_the_first_group(void)
{
	other = loop_attach(LOOP_SUBNQN, OTHER, 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(other);
	other_io = loop_io_queue(other, 1);
	CU_ASSERT_PTR_NOT_NULL_FATAL(other_io);
	CU_ASSERT_PTR_EQUAL_FATAL(other_io->thread, io->thread);
}

static void come_back_by_another_group(void)
{
	back = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 600000);
	CU_ASSERT_PTR_NOT_NULL_FATAL(back);
	back_io = loop_io_queue(back, 1);
	CU_ASSERT_PTR_NOT_NULL_FATAL(back_io);
	CU_ASSERT_PTR_NOT_EQUAL_FATAL(back_io->thread, io->thread);
}

/* Old writes: with the device, in its channel, and without a data buffer. */
static void fill_the_group_of_io(void)
{
	write_submit(&cmds[BEGUN], io, slow_nsid, 1);
	CU_ASSERT_TRUE_FATAL(fixture_wait_count(&slow->held, 1));
	write_submit(&cmds[NOMEM], io, slow_nsid, 2);
	expect_waiting("wait_nomem", 1);
	atomic_store(&loop_hold_data, true);
	write_submit(&cmds[BUFFER], io, slow_nsid, 4);
	expect_waiting("data buffer", 1);
	atomic_store(&loop_hold_data, false);
}

static void write_anew(uint64_t lba)
{
	static uint8_t anew[BLOCK];
	unsigned held = atomic_load(&slow->held);

	memset(anew, 0xa5, sizeof(anew));
	write_init(&late, back_io, slow_nsid, lba);
	loop_cmd_data(&late, anew, BLOCK);
	loop_submit(&late);
	CU_ASSERT_TRUE_FATAL(fixture_wait_count(&slow->held, held + 1));
	release_held(back_io->thread);
	CU_ASSERT_EQUAL(loop_wait(&late), 0);
}

/* What waited is over at once, so the host writes those blocks anew while the device still has one of its writes. That
 * block it writes anew when the old connection has ended. */
static void expect_no_old_write_behind_new_ones(void (*end)(void), uint16_t taken_back, uint16_t carried_out)
{
	attach();
	load_the_first_group();
	fill_the_group_of_io();
	end();
	CU_ASSERT_EQUAL(loop_wait(&cmds[NOMEM]), taken_back);
	CU_ASSERT_EQUAL(loop_wait(&cmds[BUFFER]), taken_back);
	come_back_by_another_group();
	slow->slots = 0;
	write_anew(2);
	write_anew(4);
	CU_ASSERT_FALSE(atomic_load(&io->closed));
	loop_release_data(io);
	release_held(io->thread);
	CU_ASSERT_EQUAL(loop_wait(&cmds[BEGUN]), carried_out);
	CU_ASSERT_TRUE(loop_wait_closed(io));
	write_anew(1);
	slow->hold = false;
	CU_ASSERT_EQUAL(first_byte("slow", 1), 0xa5);
	CU_ASSERT_EQUAL(first_byte("slow", 2), 0xa5);
	CU_ASSERT_EQUAL(first_byte("slow", 4), 0xa5);
	loop_close(back_io);
	loop_close(back);
	loop_close(other_io);
	loop_close(other);
	detach();
}

static void test_host_that_comes_back_to_another_reactor_after_the_target_ended_its_controller(void)
{
	expect_no_old_write_behind_new_ones(by_destruction, PATH_ERROR, 0);
}

static void by_broken_connection(void)
{
	loop_break(io);
}

static void test_host_that_comes_back_to_another_reactor_after_its_connection_broke(void)
{
	expect_no_old_write_behind_new_ones(by_broken_connection, LOOP_STATUS_GONE, LOOP_STATUS_GONE);
}

/* ---- What never ends ---- */

static char notice_text[1024], notice_why[1024];
static unsigned late_notices;

static void note(const char *type, const char *text, const char *why)
{
	if (strcmp(type, "nvmf_quiesce_late") == 0) {
		snprintf(notice_text, sizeof(notice_text), "%s", text);
		snprintf(notice_why, sizeof(notice_why), "%s", why);
		late_notices++;
	}
}

static bool has_been_told(void *arg)
{
	return late_notices != 0;
}

static void test_device_that_does_not_end_is_named(void)
{
	uint32_t limit_ms = loop_tgt()->quiesce_limit_ms;

	attach();
	late_notices = 0;
	nvmf_set_notice_fn(note);
	write_submit(&cmds[BEGUN], io, slow_nsid, 7);
	CU_ASSERT_TRUE_FATAL(fixture_wait_count(&slow->held, 1));
	loop_tgt()->quiesce_limit_ms = 1;
	by_destruction();
	CU_ASSERT_TRUE_FATAL(loop_until(has_been_told, NULL) || fixture_poll(has_been_told, NULL));
	CU_ASSERT_PTR_NOT_NULL(strstr(notice_text, LOOP_HOSTNQN));
	CU_ASSERT_PTR_NOT_NULL(strstr(notice_why, "write (cid"));
	CU_ASSERT_PTR_NOT_NULL(strstr(notice_why, "LBA 7, 1 blocks"));
	CU_ASSERT_PTR_NOT_NULL(strstr(notice_why, "module of bdev slow"));
	CU_ASSERT_FALSE(atomic_load(&io->closed));
	/* Others are not held up, not even the same host. */
	struct loop_conn *again = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(again);
	struct loop_conn *queue = loop_io_queue(again, 1);
	CU_ASSERT_EQUAL(loop_rw(queue, nvme_cmd_write, paused_nsid, 0, 0, buf, BLOCK), 0);
	loop_close(queue);
	loop_close(again);
	let_end();
	CU_ASSERT_TRUE(loop_wait_closed(io));
	nvmf_set_notice_fn(NULL);
	loop_tgt()->quiesce_limit_ms = limit_ms;
	detach();
}

static void test_identify_tells_the_time_that_quiescing_may_take(void)
{
	static uint8_t id[4096];
	uint32_t limit_ms = loop_tgt()->quiesce_limit_ms;

	CU_ASSERT_EQUAL(limit_ms, NVMF_QUIESCE_LIMIT_DEFAULT_MS);
	for (unsigned i = 0; i < 3; i++) {
		static const uint32_t kato[] = {0, 10000, 4000000000};
		static const uint32_t grace[] = {0, 2500, 30000};
		struct loop_conn *c = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, kato[i]);
		CU_ASSERT_PTR_NOT_NULL_FATAL(c);
		CU_ASSERT_EQUAL(loop_identify(c, 1, 0, 0, id), 0);
		CU_ASSERT_EQUAL(id[386] | id[387] << 8, (int)(limit_ms + grace[i]));
		loop_close(c);
	}
}

static const struct unit_test tests[] = {
	UNIT(test_destroyed_controller),
	UNIT(test_reset_by_the_host),
	UNIT(test_shutdown_by_the_host),
	UNIT(test_removed_listener),
	UNIT(test_removed_host),
	UNIT(test_stopped_subsystem),
	UNIT(test_absence_for_the_keep_alive_timeout),
	UNIT(test_expired_keep_alive),
	UNIT(test_own_absence_forgives_less_than_the_host_waits),
	UNIT(test_stopped_target),
	UNIT(test_namespace_that_is_removed_meanwhile),
	UNIT(test_connection_that_breaks),
	UNIT(test_connection_that_breaks_while_quiescing),
	UNIT(test_controller_that_is_destroyed_while_it_is_reset),
	UNIT(test_admin_queue_that_breaks_ends_the_others_in_order),
	UNIT(test_host_that_comes_back_to_another_reactor_after_the_target_ended_its_controller),
	UNIT(test_host_that_comes_back_to_another_reactor_after_its_connection_broke),
	UNIT(test_device_that_does_not_end_is_named),
	UNIT(test_identify_tells_the_time_that_quiescing_may_take),
	UNIT_END,
};
UNIT_MAIN("nvmf_quiesce", tests, loop_start, loop_stop)

/* SPDX-License-Identifier: BSD-3-Clause */
/* Rate limits of hosts and of subsystems: who waits, who does not, and what becomes of a command that waits. */
#include "nvmf/qos.h"
#include "unittest/nvmf/loop.h"

#define BLOCK  512
#define BLOCKS 4096
#define OTHER  "nqn.2024-01.io.varve:other-host"

#define PATH_ERROR NVME_ST(PATH, CTRL_PATH_ERROR)

/* After one large command, which is let through, the next one waits for minutes: see exceed(). */
static const struct rate_limits slow_writes = {.w_bytes_per_sec = BLOCK}, slow_ios = {.rw_bytes_per_sec = BLOCK};

static struct loop_conn *admin, *io, *io2, *other_admin, *other;
static uint32_t nsid;
static enum rate_bucket_id id; /* which limit was too low */
static uint8_t buf[128 * BLOCK], read_buf[BLOCK];
static struct loop_cmd cmds[8];

static void set_with_minimum(const char *hostnqn, const struct rate_limits *limits, const struct rate_limits *minimum)
{
	const struct nvmf_qos_set both = {.limits = *limits, .minimum = *minimum};

	CU_ASSERT_EQUAL_FATAL(nvmf_subsystem_set_qos(loop_subsystem(), hostnqn, &both, &id), 0);
}

static void set(const char *hostnqn, const struct rate_limits *limits)
{
	set_with_minimum(hostnqn, limits, &(struct rate_limits){0});
}

static void unset(const char *hostnqn)
{
	set(hostnqn, &(struct rate_limits){0});
}

static struct loop_conn *connect_queue(struct loop_conn *to, uint16_t qid)
{
	struct loop_conn *conn = loop_io_queue(to, qid);

	CU_ASSERT_PTR_NOT_NULL_FATAL(conn);
	return conn;
}

static void attach(void)
{
	memset(buf, 0x5a, sizeof(buf));
	nsid = loop_add_malloc_ns("m", BLOCK, BLOCKS);
	admin = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 600000);
	other_admin = loop_attach(LOOP_SUBNQN, OTHER, 600000);
	CU_ASSERT_PTR_NOT_NULL_FATAL(admin);
	CU_ASSERT_PTR_NOT_NULL_FATAL(other_admin);
	io = connect_queue(admin, 1);
	io2 = connect_queue(admin, 2);
	other = connect_queue(other_admin, 1);
}

static void detach(void)
{
	loop_close(io);
	loop_close(io2);
	loop_close(other);
	loop_close(admin);
	loop_close(other_admin);
	loop_remove_malloc_ns(nsid, "m");
}

static bool so_many_are_limited(void *arg)
{
	struct nvmf_inflight *list;
	ssize_t n = nvmf_tgt_get_inflight(loop_tgt(), &list);
	size_t count = 0;

	for (ssize_t i = 0; i < n; i++) {
		count += strcmp(list[i].state, "LIMITED") == 0;
	}
	free(list);
	return count == *(size_t *)arg;
}

static void expect_limited(size_t count)
{
	CU_ASSERT_TRUE_FATAL(fixture_poll(so_many_are_limited, &count));
}

/* A command for one block. */
static void command_init(struct loop_cmd *c, struct loop_conn *conn, uint8_t opcode, uint64_t lba, void *data)
{
	loop_cmd_init(c, conn, opcode, nsid);
	c->sqe.cdw10 = htole32((uint32_t)lba);
	loop_cmd_data(c, data, BLOCK);
}

static void submit(struct loop_cmd *c, struct loop_conn *conn, uint8_t opcode, uint64_t lba)
{
	command_init(c, conn, opcode, lba, opcode == nvme_cmd_read ? read_buf : buf);
	loop_submit(c);
}

/* 64 KiB, which is let through: it leaves a debt of two minutes. */
static void exceed(struct loop_conn *conn, uint8_t opcode)
{
	CU_ASSERT_EQUAL(loop_rw(conn, opcode, nsid, 0, 127, buf, sizeof(buf)), 0);
}

static uint16_t one(struct loop_conn *conn, uint8_t opcode, uint64_t lba)
{
	return loop_rw(conn, opcode, nsid, lba, 0, buf, BLOCK);
}

/* A block that was not written is zero. */
static uint8_t first_byte(uint64_t lba)
{
	static uint8_t block[BLOCK];
	struct user u;

	memset(block, 0xff, sizeof(block));
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "m", false, fixture_thread(3)), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, block, lba, 1), 0);
	user_close(&u);
	return block[0];
}

/* The first n of cmds end, and have succeeded. */
static void expect_success(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		CU_ASSERT_EQUAL(loop_wait(&cmds[i]), 0);
	}
}

static struct rate_counts counts_of(const char *hostnqn)
{
	const struct nvmf_qos *q = nvmf_qos_find(loop_subsystem(), hostnqn);
	struct rate_counts counts = {0};

	CU_ASSERT_PTR_NOT_NULL_FATAL(q);
	nvmf_qos_get_counts(q, &counts);
	return counts;
}

static void test_a_host_waits_for_its_own_limit_and_others_do_not(void)
{
	attach();
	set(LOOP_HOSTNQN, &slow_writes);
	exceed(io, nvme_cmd_write);
	submit(&cmds[0], io, nvme_cmd_write, 200);
	submit(&cmds[1], io2, nvme_cmd_write, 201); /* all of its queues together */
	expect_limited(2);
	CU_ASSERT_EQUAL(one(io, nvme_cmd_read, 0), 0); /* the limit is one of writes */
	CU_ASSERT_EQUAL(one(other, nvme_cmd_write, 202), 0);
	CU_ASSERT_EQUAL(first_byte(200), 0);

	struct rate_counts c = counts_of(LOOP_HOSTNQN);
	CU_ASSERT_EQUAL(c.ios[RATE_WRITES], 1);
	CU_ASSERT_EQUAL(c.bytes[RATE_WRITES], 128 * BLOCK);
	CU_ASSERT_EQUAL(c.ios[RATE_READS], 1);
	CU_ASSERT_TRUE(c.waits >= 2);

	unset(LOOP_HOSTNQN);
	expect_success(2);
	CU_ASSERT_EQUAL(first_byte(200), 0x5a);
	CU_ASSERT_PTR_NULL(nvmf_qos_find(loop_subsystem(), LOOP_HOSTNQN));
	detach();
}

static void test_a_limit_of_reads_and_writes_together_holds_both_in_order(void)
{
	attach();
	set(LOOP_HOSTNQN, &slow_ios);
	exceed(io, nvme_cmd_read);
	submit(&cmds[0], io, nvme_cmd_write, 300);
	submit(&cmds[1], io, nvme_cmd_read, 301);
	expect_limited(2);
	set(LOOP_HOSTNQN, &(struct rate_limits){.rw_ios_per_sec = 100000}); /* other limits: those that wait go on */
	expect_success(2);
	struct rate_counts c = counts_of(LOOP_HOSTNQN);
	CU_ASSERT_EQUAL(c.ios[RATE_READS], 2);
	CU_ASSERT_EQUAL(c.ios[RATE_WRITES], 1);
	unset(LOOP_HOSTNQN);
	detach();
}

static void test_all_hosts_of_a_subsystem_share_its_limit(void)
{
	attach();
	set(NULL, &slow_writes);
	exceed(io, nvme_cmd_write);
	submit(&cmds[0], other, nvme_cmd_write, 400);
	submit(&cmds[1], io, nvme_cmd_write, 401);
	expect_limited(2);
	CU_ASSERT_EQUAL(one(other, nvme_cmd_read, 0), 0);
	struct rate_counts c = counts_of(NULL);
	CU_ASSERT_TRUE(c.waits >= 2);
	CU_ASSERT_EQUAL(c.bytes[RATE_WRITES], 128 * BLOCK);
	CU_ASSERT_PTR_NULL(nvmf_qos_host(nvmf_qos_find(loop_subsystem(), NULL)));
	unset(NULL);
	expect_success(2);
	detach();
}

static void test_what_waits_for_a_limit_of_reads_does_not_hold_writes_of_any_host(void)
{
	attach();
	set(NULL, &(struct rate_limits){.r_bytes_per_sec = BLOCK});
	exceed(io, nvme_cmd_read);
	submit(&cmds[0], io, nvme_cmd_read, 0);
	submit(&cmds[1], other, nvme_cmd_read, 0);
	expect_limited(2);
	uint64_t waits = counts_of(NULL).waits;
	for (unsigned i = 0; i < 20; i++) {
		CU_ASSERT_EQUAL(one(io, nvme_cmd_write, 450), 0);
		CU_ASSERT_EQUAL(one(io2, nvme_cmd_write, 451), 0);
		CU_ASSERT_EQUAL(one(other, nvme_cmd_write, 452), 0);
	}
	CU_ASSERT_EQUAL(counts_of(NULL).waits, waits);
	unset(NULL);
	expect_success(2);
	detach();
}

static void test_a_host_that_waits_for_its_own_limit_does_not_hold_others_at_the_common_one(void)
{
	attach();
	set(NULL, &(struct rate_limits){.rw_ios_per_sec = 1000000});
	set(LOOP_HOSTNQN, &slow_ios);
	exceed(io, nvme_cmd_write);
	submit(&cmds[0], io, nvme_cmd_write, 500);
	submit(&cmds[1], io2, nvme_cmd_read, 500);
	expect_limited(2);
	for (unsigned i = 0; i < 100; i++) {
		CU_ASSERT_EQUAL(one(other, nvme_cmd_write, 501), 0);
	}
	struct rate_counts own = counts_of(LOOP_HOSTNQN), all = counts_of(NULL);
	CU_ASSERT_EQUAL(own.ios[RATE_WRITES], 1);
	CU_ASSERT_EQUAL(all.ios[RATE_WRITES], 101); /* both count what goes through both */
	unset(LOOP_HOSTNQN);
	expect_success(2);
	unset(NULL);
	detach();
}

/* Of both limits, since the test has noted them: what exceeds a limit may have waited, too. */
static uint64_t noted_own, noted_all;

static void note_waits(void)
{
	noted_own = counts_of(LOOP_HOSTNQN).waits;
	noted_all = counts_of(NULL).waits;
}

struct expected_waits {
	const char *hostnqn;
	uint64_t waits;
};

static bool so_many_waits_are_counted(void *arg)
{
	const struct expected_waits *e = arg;

	return counts_of(e->hostnqn).waits == e->waits;
}

static void expect_waits(const char *hostnqn, uint64_t waits)
{
	struct expected_waits e = {hostnqn, waits + (hostnqn != NULL ? noted_own : noted_all)};

	CU_ASSERT_TRUE(fixture_poll(so_many_waits_are_counted, &e));
}

/* The first waits for the limit of its host and then for that of all. The second, which comes in between, and the
 * third wait for the latter only. */
static void test_a_wait_counts_for_each_limit_that_held_the_command(void)
{
	attach();
	set(NULL, &slow_writes);
	set(LOOP_HOSTNQN, &slow_writes);
	exceed(io, nvme_cmd_write); /* a debt of both */
	note_waits();
	uint64_t before_us = counts_of(LOOP_HOSTNQN).waited_us;
	submit(&cmds[0], io, nvme_cmd_write, 500);
	expect_limited(1);
	expect_waits(LOOP_HOSTNQN, 1);
	expect_waits(NULL, 0);
	set(LOOP_HOSTNQN, &(struct rate_limits){.w_bytes_per_sec = 1 << 30});
	expect_waits(NULL, 1);
	submit(&cmds[1], io, nvme_cmd_write, 501);
	expect_limited(2);
	expect_waits(NULL, 2);
	expect_waits(LOOP_HOSTNQN, 1);
	CU_ASSERT_EQUAL(counts_of(LOOP_HOSTNQN).waited_us, before_us); /* none of them has gone on */
	set(NULL, &(struct rate_limits){.w_bytes_per_sec = 1 << 30});
	expect_success(2);
	struct rate_counts own = counts_of(LOOP_HOSTNQN), all = counts_of(NULL);
	CU_ASSERT(own.waited_us > before_us && all.waited_us > 0);
	CU_ASSERT(own.waits == noted_own + 1 && all.waits == noted_all + 2);

	set(NULL, &slow_writes);
	exceed(io2, nvme_cmd_write);
	note_waits();
	submit(&cmds[2], io, nvme_cmd_write, 502);
	expect_limited(1);
	expect_waits(NULL, 1);
	set(NULL, &(struct rate_limits){.rw_ios_per_sec = 1000000});
	CU_ASSERT_EQUAL(loop_wait(&cmds[2]), 0);
	expect_waits(NULL, 1);
	expect_waits(LOOP_HOSTNQN, 0);
	unset(NULL);
	unset(LOOP_HOSTNQN);
	detach();
}

/* On io. */
static void abort_command(struct loop_cmd *c)
{
	struct loop_cmd abort;

	loop_cmd_init(&abort, admin, nvme_admin_abort_cmd, 0);
	abort.sqe.cdw10 = htole32(1u | (uint32_t)le16toh(c->sqe.cid) << 16);
	CU_ASSERT_EQUAL(loop_run(&abort), 0);
	CU_ASSERT_EQUAL(le32toh(abort.cqe.dw0) & 1, 0);
	CU_ASSERT_EQUAL(loop_wait(c), NVME_ST(GENERIC, ABORT_REQ));
}

/* What goes out of its line by another way is forgotten there: those behind it are counted as before. */
static void test_an_aborted_wait_is_no_wait_for_the_next_limit(void)
{
	attach();
	set(NULL, &slow_writes);
	set(LOOP_HOSTNQN, &slow_writes);
	exceed(io, nvme_cmd_write);
	note_waits();
	submit(&cmds[0], io, nvme_cmd_write, 500);
	submit(&cmds[1], io, nvme_cmd_write, 501);
	expect_limited(2);
	abort_command(&cmds[0]);
	expect_limited(1);
	expect_waits(LOOP_HOSTNQN, 2);
	set(LOOP_HOSTNQN, &(struct rate_limits){.w_bytes_per_sec = 1 << 30});
	expect_waits(NULL, 1);
	unset(NULL);
	CU_ASSERT_EQUAL(loop_wait(&cmds[1]), 0);
	unset(LOOP_HOSTNQN);
	detach();
}

static void test_a_minimum_passes_those_who_wait_for_the_limit_of_all(void)
{
	attach();
	set(NULL, &slow_ios);
	exceed(other, nvme_cmd_write);
	submit(&cmds[0], other, nvme_cmd_write, 500);
	submit(&cmds[1], io, nvme_cmd_write, 501);
	expect_limited(2);
	set_with_minimum(LOOP_HOSTNQN, &(struct rate_limits){0}, &slow_ios); /* one block a second */
	CU_ASSERT_EQUAL(loop_wait(&cmds[1]), 0);
	CU_ASSERT_EQUAL(one(io, nvme_cmd_read, 0), 0); /* a second later */
	CU_ASSERT_FALSE(atomic_load(&cmds[0].done));
	CU_ASSERT_EQUAL(counts_of(LOOP_HOSTNQN).ios[RATE_WRITES], 1);
	unset(LOOP_HOSTNQN);
	submit(&cmds[1], io, nvme_cmd_write, 502);
	expect_limited(2);
	unset(NULL);
	expect_success(2);
	detach();
}

/* More than go at once: the others follow in the next rounds of the reactor, in the order of their queue pair. */
static void test_more_than_go_at_once(void)
{
	static struct loop_cmd many[3 * RATE_BATCH + 1];
	const unsigned n = sizeof(many) / sizeof(many[0]);

	attach();
	set(NULL, &slow_writes);
	exceed(io, nvme_cmd_write);
	uint64_t waits = counts_of(NULL).waits;
	for (unsigned i = 0; i < n; i++) {
		submit(&many[i], io, nvme_cmd_write, 600 + i);
	}
	expect_limited(n);
	set(NULL, &(struct rate_limits){.rw_ios_per_sec = 1000000000});
	for (unsigned i = n; i-- > 0;) {
		CU_ASSERT(i == n - 1 || atomic_load(&many[i].done)); /* before the one that came after it */
		CU_ASSERT_EQUAL(loop_wait(&many[i]), 0);
	}
	CU_ASSERT_EQUAL(counts_of(NULL).ios[RATE_WRITES], n + 1);
	CU_ASSERT_EQUAL(counts_of(NULL).waits, waits + n);
	unset(NULL);
	detach();
}

static void test_limits_hold_for_queues_that_connect_later(void)
{
	set(LOOP_HOSTNQN, &slow_writes); /* the host is not there yet */
	attach();
	exceed(io2, nvme_cmd_write);
	submit(&cmds[0], io, nvme_cmd_write, 600);
	expect_limited(1);
	unset(LOOP_HOSTNQN);
	CU_ASSERT_EQUAL(loop_wait(&cmds[0]), 0);
	detach();
}

/* A queue of a controller that is older than the limit is limited if the limit is there when the queue connects. */
static void test_limits_hold_for_later_queues_of_a_controller(void)
{
	attach();
	set(LOOP_HOSTNQN, &slow_writes);
	struct loop_conn *later = connect_queue(admin, 3);
	exceed(later, nvme_cmd_write);
	submit(&cmds[0], later, nvme_cmd_write, 600);
	expect_limited(1);
	set(OTHER, &slow_writes);
	unset(LOOP_HOSTNQN);
	CU_ASSERT_EQUAL(loop_wait(&cmds[0]), 0);
	struct loop_conn *last = connect_queue(admin, 4);
	exceed(last, nvme_cmd_write);
	CU_ASSERT_EQUAL(one(last, nvme_cmd_write, 601), 0);
	exceed(other, nvme_cmd_write); /* the other limit is still there */
	submit(&cmds[1], other, nvme_cmd_write, 602);
	expect_limited(1);
	unset(OTHER);
	CU_ASSERT_EQUAL(loop_wait(&cmds[1]), 0);
	loop_close(later);
	loop_close(last);
	detach();
}

static void test_a_host_aborts_what_waits(void)
{
	attach();
	set(LOOP_HOSTNQN, &slow_writes);
	exceed(io, nvme_cmd_write);
	submit(&cmds[0], io, nvme_cmd_write, 700);
	submit(&cmds[1], io, nvme_cmd_write, 701);
	expect_limited(2);
	abort_command(&cmds[0]);
	expect_limited(1);
	unset(LOOP_HOSTNQN);
	CU_ASSERT_EQUAL(loop_wait(&cmds[1]), 0);
	CU_ASSERT_EQUAL(first_byte(700), 0);
	CU_ASSERT_EQUAL(first_byte(701), 0x5a);
	detach();
}

/* The target ends a host's controllers: what waits is answered with a path error, and never carried out. */
static void test_what_waits_when_its_queue_ends_is_not_carried_out(void)
{
	struct loop_wait wait = LOOP_WAIT, wait2 = LOOP_WAIT;
	char why[NVMF_ERROR_MAX];

	attach();
	set(NULL, &slow_writes);
	exceed(io, nvme_cmd_write);
	submit(&cmds[0], io, nvme_cmd_write, 800);
	submit(&cmds[1], other, nvme_cmd_write, 801);
	expect_limited(2);
	CU_ASSERT_EQUAL(nvmf_subsystem_add_host(loop_subsystem(), LOOP_HOSTNQN, NULL, NULL, why), 0);
	CU_ASSERT_EQUAL(nvmf_subsystem_add_host(loop_subsystem(), OTHER, NULL, NULL, why), 0);
	CU_ASSERT_EQUAL(nvmf_subsystem_set_allow_any_host(loop_subsystem(), false), 0);
	nvmf_subsystem_remove_host(loop_subsystem(), LOOP_HOSTNQN, loop_done, &wait);
	CU_ASSERT_EQUAL(loop_wait(&cmds[0]), PATH_ERROR);
	CU_ASSERT_EQUAL(loop_wait_for(&wait), 0);
	expect_limited(1);
	CU_ASSERT_EQUAL(nvmf_subsystem_set_allow_any_host(loop_subsystem(), true), 0);
	loop_break(other); /* and without an answer */
	CU_ASSERT_TRUE(loop_given_up(loop_wait(&cmds[1])));
	CU_ASSERT_TRUE(loop_wait_closed(other));
	nvmf_subsystem_remove_host(loop_subsystem(), OTHER, loop_done, &wait2);
	CU_ASSERT_EQUAL(loop_wait_for(&wait2), 0);
	unset(NULL);
	CU_ASSERT_EQUAL(first_byte(800), 0);
	CU_ASSERT_EQUAL(first_byte(801), 0);
	detach();
}

static void test_what_waits_when_its_namespace_goes_is_answered_with_a_path_error(void)
{
	uint32_t second = loop_add_malloc_ns("second", BLOCK, BLOCKS);

	attach();
	uint32_t first = nsid;
	set(LOOP_HOSTNQN, &slow_writes);
	exceed(io, nvme_cmd_write);
	submit(&cmds[0], io, nvme_cmd_write, 900);
	nsid = second;
	submit(&cmds[1], io, nvme_cmd_write, 900);
	submit(&cmds[2], io2, nvme_cmd_write, 901);
	expect_limited(3);
	loop_remove_malloc_ns(second, "second");
	CU_ASSERT_EQUAL(loop_wait(&cmds[1]), PATH_ERROR);
	CU_ASSERT_EQUAL(loop_wait(&cmds[2]), PATH_ERROR);
	expect_limited(1);
	nsid = first;
	unset(LOOP_HOSTNQN);
	CU_ASSERT_EQUAL(loop_wait(&cmds[0]), 0);
	detach();
}

static void pause_namespace(void)
{
	struct loop_wait paused = LOOP_WAIT;

	nvmf_subsystem_pause(loop_subsystem(), nsid, loop_done, &paused);
	CU_ASSERT_EQUAL(loop_wait_for(&paused), 0);
}

static void resume_namespaces(void)
{
	struct loop_wait resumed = LOOP_WAIT;

	nvmf_subsystem_resume(loop_subsystem(), loop_done, &resumed);
	CU_ASSERT_EQUAL(loop_wait_for(&resumed), 0);
}

/* A paused namespace: what is let through waits there, and goes on afterwards. */
static void test_a_limit_and_a_pause(void)
{
	attach();
	set(LOOP_HOSTNQN, &slow_writes);
	exceed(io, nvme_cmd_write);
	submit(&cmds[0], io, nvme_cmd_write, 1000);
	expect_limited(1);
	pause_namespace();
	unset(LOOP_HOSTNQN);
	expect_limited(0);
	CU_ASSERT_FALSE(atomic_load(&cmds[0].done));
	resume_namespaces();
	CU_ASSERT_EQUAL(loop_wait(&cmds[0]), 0);
	detach();
}

static void test_what_a_limit_lets_through_into_a_pause_counts_once_and_does_not_wait_again(void)
{
	attach();
	set(LOOP_HOSTNQN, &slow_writes);
	exceed(io, nvme_cmd_write);
	submit(&cmds[0], io, nvme_cmd_write, 1000);
	expect_limited(1);
	pause_namespace();
	set(LOOP_HOSTNQN, &(struct rate_limits){.w_bytes_per_sec = 1 << 30});
	expect_limited(0);
	set(LOOP_HOSTNQN, &slow_writes);
	resume_namespaces();
	CU_ASSERT_EQUAL(loop_wait(&cmds[0]), 0);
	struct rate_counts c = counts_of(LOOP_HOSTNQN);
	CU_ASSERT_EQUAL(c.ios[RATE_WRITES], 2);
	CU_ASSERT_EQUAL(c.bytes[RATE_WRITES], 129 * BLOCK);
	unset(LOOP_HOSTNQN);
	detach();
}

static void test_what_waited_for_its_namespace_waits_for_a_limit_too(void)
{
	attach();
	set(LOOP_HOSTNQN, &slow_writes);
	exceed(io, nvme_cmd_write);
	pause_namespace();
	submit(&cmds[0], io, nvme_cmd_write, 1000);
	expect_limited(0);
	resume_namespaces();
	expect_limited(1);
	unset(LOOP_HOSTNQN);
	CU_ASSERT_EQUAL(loop_wait(&cmds[0]), 0);
	detach();
}

/* A block that holds `old` becomes `new`. */
static void compare_and_write(uint64_t lba, uint8_t *old, uint8_t *new)
{
	command_init(&cmds[0], io, nvme_cmd_compare, lba, old);
	cmds[0].sqe.flags |= NVME_FUSE_FIRST;
	loop_submit(&cmds[0]);
	command_init(&cmds[1], io, nvme_cmd_write, lba, new);
	cmds[1].sqe.flags |= NVME_FUSE_SECOND;
	loop_submit(&cmds[1]);
	expect_success(2);
}

static void test_a_fused_pair_counts_and_does_not_wait(void)
{
	static uint8_t zeroes[BLOCK];

	attach();
	set(LOOP_HOSTNQN, &slow_ios);
	exceed(io, nvme_cmd_write);
	compare_and_write(1100, zeroes, buf);
	struct rate_counts c = counts_of(LOOP_HOSTNQN);
	CU_ASSERT_EQUAL(c.ios[RATE_READS], 1);
	CU_ASSERT_EQUAL(c.ios[RATE_WRITES], 2);
	unset(LOOP_HOSTNQN);
	detach();
}

/* At five commands per second, a debt of all of them would hold the next command for minutes. */
static void test_fused_pairs_leave_a_debt_of_one_command(void)
{
	static uint8_t zeroes[BLOCK];

	attach();
	set(NULL, &(struct rate_limits){.rw_ios_per_sec = 5});
	for (unsigned i = 0; i < 1000; i++) {
		compare_and_write(1200 + i, zeroes, buf);
	}
	CU_ASSERT_EQUAL(counts_of(NULL).ios[RATE_READS] + counts_of(NULL).ios[RATE_WRITES], 2000);
	CU_ASSERT_EQUAL(one(other, nvme_cmd_write, 200), 0);
	unset(NULL);
	detach();
}

static void test_commands_that_move_no_blocks_do_not_count(void)
{
	attach();
	set(LOOP_HOSTNQN, &slow_ios);
	exceed(io, nvme_cmd_write);
	loop_cmd_init(&cmds[0], io, nvme_cmd_flush, nsid);
	CU_ASSERT_EQUAL(loop_run(&cmds[0]), 0);
	struct rate_counts c = counts_of(LOOP_HOSTNQN);
	CU_ASSERT_EQUAL(c.ios[RATE_READS] + c.ios[RATE_WRITES], 1);
	unset(LOOP_HOSTNQN);
	/* a range that is too long is refused at its turn, and costs no more than the longest one */
	set(LOOP_HOSTNQN, &(struct rate_limits){.rw_bytes_per_sec = UINT32_MAX});
	loop_cmd_init(&cmds[1], io, nvme_cmd_read, nsid);
	cmds[1].sqe.cdw12 = htole32(0xffff);
	loop_cmd_data(&cmds[1], buf, BLOCK);
	CU_ASSERT_NOT_EQUAL(loop_run(&cmds[1]), 0);
	CU_ASSERT_TRUE(counts_of(LOOP_HOSTNQN).bytes[RATE_READS] <= LOOP_MAX_IO);
	unset(LOOP_HOSTNQN);
	detach();
}

static void test_wrong_limits_are_refused(void)
{
	const struct nvmf_qos_set slow = {.limits = slow_ios}, none = {0}, least = {.minimum = {.rw_ios_per_sec = 600}};
	struct nvmf_subsystem *s = loop_subsystem(), *discovery;

	CU_ASSERT_EQUAL(nvmf_subsystem_set_qos(s, "not an NQN", &slow, &id), -EINVAL);
	CU_ASSERT_EQUAL(nvmf_subsystem_set_qos(s, "", &slow, &id), -EINVAL);
	discovery = nvmf_subsystem_find(loop_tgt(), NVMF_DISCOVERY_NQN);
	CU_ASSERT_PTR_NOT_NULL_FATAL(discovery);
	CU_ASSERT_EQUAL(nvmf_subsystem_set_qos(discovery, NULL, &slow, &id), -EOPNOTSUPP);
	CU_ASSERT_EQUAL(nvmf_subsystem_set_qos(s, LOOP_HOSTNQN, &none, &id), 0); /* there is none */
	CU_ASSERT_EQUAL(nvmf_subsystem_set_qos(s, NULL, &least, &id), -EINVAL);  /* a part of what? */
	CU_ASSERT_PTR_NULL(nvmf_qos_next(s, NULL));

	/* minimums of more than the limit of all, whichever comes last */
	set(NULL, &(struct rate_limits){.rw_ios_per_sec = 1000, .rw_bytes_per_sec = 1 << 20});
	CU_ASSERT_EQUAL(nvmf_subsystem_set_qos(s, LOOP_HOSTNQN, &least, &id), 0);
	CU_ASSERT_EQUAL(nvmf_subsystem_set_qos(s, OTHER, &least, &id), -ERANGE);
	CU_ASSERT_EQUAL(id, RATE_RW_IOS);
	CU_ASSERT_PTR_NULL(nvmf_qos_find(s, OTHER));
	CU_ASSERT_EQUAL(nvmf_subsystem_set_qos(s, NULL, &(struct nvmf_qos_set){.limits = {.rw_ios_per_sec = 599}}, &id),
			-ERANGE);
	CU_ASSERT_EQUAL(nvmf_qos_limits(nvmf_qos_find(s, NULL))->rw_ios_per_sec, 1000);
	CU_ASSERT_EQUAL(nvmf_qos_minimum(nvmf_qos_find(s, LOOP_HOSTNQN))->rw_ios_per_sec, 600);
	CU_ASSERT_EQUAL(nvmf_qos_minimums(s, NULL).rw_ios_per_sec, 600);
	CU_ASSERT_EQUAL(nvmf_qos_minimums(s, LOOP_HOSTNQN).rw_ios_per_sec, 0);
	unset(LOOP_HOSTNQN);
	CU_ASSERT_EQUAL(nvmf_subsystem_set_qos(s, OTHER, &least, &id), 0);
	unset(OTHER);
	unset(NULL);
	CU_ASSERT_PTR_NULL(nvmf_qos_next(s, NULL));
}

/* On one of all queues, a write or a read. */
static void submit_one_of_many(unsigned i, uint64_t lba)
{
	struct loop_conn *const conns[] = {io, io2, other};

	submit(&cmds[i], conns[i % 3], i % 2 == 0 ? nvme_cmd_write : nvme_cmd_read, lba);
}

/* Limits come and go while I/O is under way on all queues; all of it ends, and each write is there. */
static void test_limits_change_under_io(void)
{
	unsigned done = 0;

	attach();
	for (unsigned i = 0; i < 8; i++) {
		submit_one_of_many(i, 2000 + i);
	}
	for (unsigned round = 0; round < 400; round++) {
		const struct rate_limits limits = {.rw_ios_per_sec = round % 3 == 0 ? 0 : 20000 + round,
						   .w_bytes_per_sec = round % 5 == 0 ? 8 << 20 : 0,
						   .burst_ms = round % 7};
		set(round % 4 == 0 ? NULL : round % 4 == 1 ? OTHER : LOOP_HOSTNQN, &limits);
		for (unsigned i = 0; i < 8; i++) {
			CU_ASSERT_EQUAL(loop_wait(&cmds[i]), 0);
			submit_one_of_many(i, 2000 + round * 4 + i);
			done++;
		}
	}
	expect_success(8);
	CU_ASSERT_EQUAL(done, 3200);
	CU_ASSERT_EQUAL(first_byte(2000 + 399 * 4 + 6), 0x5a);
	unset(NULL);
	unset(OTHER);
	unset(LOOP_HOSTNQN);
	detach();
}

/* Nobody removes these limits before the subsystem ends, which frees them: the leak checker would find them. */
static void test_limits_end_with_their_subsystem(void)
{
	set(NULL, &slow_ios);
	set(LOOP_HOSTNQN, &slow_writes);
}

static const struct unit_test tests[] = {
	UNIT(test_a_host_waits_for_its_own_limit_and_others_do_not),
	UNIT(test_a_limit_of_reads_and_writes_together_holds_both_in_order),
	UNIT(test_all_hosts_of_a_subsystem_share_its_limit),
	UNIT(test_what_waits_for_a_limit_of_reads_does_not_hold_writes_of_any_host),
	UNIT(test_a_host_that_waits_for_its_own_limit_does_not_hold_others_at_the_common_one),
	UNIT(test_a_wait_counts_for_each_limit_that_held_the_command),
	UNIT(test_an_aborted_wait_is_no_wait_for_the_next_limit),
	UNIT(test_a_minimum_passes_those_who_wait_for_the_limit_of_all),
	UNIT(test_more_than_go_at_once),
	UNIT(test_limits_hold_for_queues_that_connect_later),
	UNIT(test_limits_hold_for_later_queues_of_a_controller),
	UNIT(test_a_host_aborts_what_waits),
	UNIT(test_what_waits_when_its_queue_ends_is_not_carried_out),
	UNIT(test_what_waits_when_its_namespace_goes_is_answered_with_a_path_error),
	UNIT(test_a_limit_and_a_pause),
	UNIT(test_what_a_limit_lets_through_into_a_pause_counts_once_and_does_not_wait_again),
	UNIT(test_what_waited_for_its_namespace_waits_for_a_limit_too),
	UNIT(test_a_fused_pair_counts_and_does_not_wait),
	UNIT(test_fused_pairs_leave_a_debt_of_one_command),
	UNIT(test_commands_that_move_no_blocks_do_not_count),
	UNIT(test_wrong_limits_are_refused),
	UNIT(test_limits_change_under_io),
	UNIT(test_limits_end_with_their_subsystem),
	UNIT_END,
};
UNIT_MAIN("nvmf-qos", tests, loop_start, loop_stop)

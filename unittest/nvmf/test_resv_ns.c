/* SPDX-License-Identifier: BSD-3-Clause */
/* Reservations as hosts use them: commands, what others may do meanwhile, and notices. */
#include <sched.h>

#include "nvmf/resv_kept.h"
#include "unittest/nvmf/resv_fixture.h"

/* ---- What is reported ---- */

static void test_namespace_says_what_it_can(void)
{
	attach(false);
	CU_ASSERT_EQUAL(loop_identify(a.admin, NVME_IDENTIFY_CNS_CTRL, 0, 0, data), 0);
	CU_ASSERT_EQUAL(le(520, 2) & 1 << 5, 1 << 5); /* ONCS */
	CU_ASSERT_EQUAL(loop_identify(a.admin, NVME_IDENTIFY_CNS_NS, nsid, 0, data), 0);
	CU_ASSERT_EQUAL(data[31], 0xfe); /* RESCAP */
	detach();
	attach(true);
	CU_ASSERT_EQUAL(loop_identify(a.admin, NVME_IDENTIFY_CNS_NS, nsid, 0, data), 0);
	CU_ASSERT_EQUAL(data[31], 0xff);
	detach();
}

static void test_report_shows_registrants(void)
{
	attach(false);
	CU_ASSERT_EQUAL(report(&a, 64, true), 0);
	CU_ASSERT(le(0, 4) == 0 && data[4] == 0 && le(5, 2) == 0);
	CU_ASSERT_EQUAL(reg(&a, 0), 0);
	CU_ASSERT_EQUAL(reg(&b, 0), 0);
	CU_ASSERT_EQUAL(acquire(&b, 0, WE, 0), 0);
	CU_ASSERT_EQUAL(report(&a, 4096, true), 0);
	CU_ASSERT(le(0, 4) == 2 && data[4] == WE && le(5, 2) == 2 && data[9] == 0);
	CU_ASSERT(le(64, 2) == 0xffff && data[66] == 0 && le(72, 8) == 'a' && data[80] == 'a' && data[95] == 'a');
	CU_ASSERT(le(128, 2) == 0xffff && data[130] == 1 && le(136, 8) == 'b' && data[144] == 'b');
	CU_ASSERT(data[192] == 0 && data[4095] == 0 && data[4096] == 0xa5);
	CU_ASSERT_EQUAL(report(&a, 76, true), 0); /* a part of it */
	CU_ASSERT(le(72, 4) == 'a' && data[76] == 0xa5);
	CU_ASSERT_EQUAL(report(&a, 64, false), NVME_ST_DNR(GENERIC, HOSTID_FORMAT));
	CU_ASSERT_EQUAL(report(&a, LOOP_MAX_IO, true), 0);
	struct loop_cmd cmd;
	loop_cmd_init(&cmd, a.io, nvme_cmd_resv_report, nsid);
	cmd.sqe.cdw10 = htole32(LOOP_MAX_IO / 4);
	cmd.sqe.cdw11 = htole32(1);
	loop_cmd_data(&cmd, data, sizeof(data));
	CU_ASSERT_EQUAL(loop_run(&cmd), INVALID);
	detach();
}

/* ---- Reservations that are kept without a file ---- */

static int count_kept(void *arg, const struct nvmf_resv_kept *k)
{
	CU_ASSERT_EQUAL(k->nsid, nsid);
	CU_ASSERT_STRING_EQUAL(k->nqn, LOOP_SUBNQN);
	CU_ASSERT_STRING_EQUAL(k->tgt_name, "t");
	CU_ASSERT_EQUAL(k->uuid[2], 3);
	CU_ASSERT_EQUAL(k->state->num_registrants, 2);
	return ++*(int *)arg == 2;
}

static void test_what_is_kept_comes_back_with_the_same_namespace(void)
{
	struct nvmf_ns_opts other = {.uuid = {1, 2, 4}};
	int n = 0;

	attach(false);
	CU_ASSERT_EQUAL(reg(&a, 0), 0);
	CU_ASSERT_EQUAL(reg(&b, 0), 0);
	CU_ASSERT_EQUAL(acquire(&b, 0, WE, 0), 0);
	nvmf_resv_keep(true);
	detach();
	nvmf_resv_keep(false);
	CU_ASSERT_EQUAL(nvmf_resv_kept_for_each(count_kept, &n), 0);
	CU_ASSERT_EQUAL(n, 1);
	/* Another namespace of that number has nothing of it. */
	make_malloc("m", 512, 1000);
	CU_ASSERT_EQUAL(nvmf_subsystem_add_ns(loop_subsystem(), "m", &other, &nsid), 0);
	CU_ASSERT_EQUAL(nvmf_ns_resv_state(nvmf_ns_next(loop_subsystem(), NULL))->num_registrants, 0);
	loop_remove_malloc_ns(nsid, "m");
	attach(false);
	CU_ASSERT_EQUAL(nvmf_resv_kept_for_each(count_kept, &n), 0);
	CU_ASSERT_EQUAL(n, 1); /* it has been taken */
	CU_ASSERT_EQUAL(io(&a, nvme_cmd_write), CONFLICT);
	CU_ASSERT_EQUAL(io(&b, nvme_cmd_write), 0);
	CU_ASSERT_EQUAL(report(&a, 4096, true), 0);
	CU_ASSERT(le(0, 4) == 2 && data[4] == WE && le(5, 2) == 2);
	detach();
	attach(false);
	CU_ASSERT_EQUAL(nvmf_ns_resv_state(nvmf_ns_next(loop_subsystem(), NULL))->num_registrants, 0);
	detach();
	CU_ASSERT_EQUAL(nvmf_resv_kept_clear(), 0);
}

#define PERSIST (3u << 30) /* CPTPL */

static void detach_keep_file(void)
{
	detach_host(&a);
	detach_host(&b);
	loop_remove_malloc_ns(nsid, "m");
}

static void test_of_a_file_and_what_is_kept_the_file_counts(void)
{
	attach(true);
	CU_ASSERT_EQUAL(reg(&a, PERSIST), 0);
	CU_ASSERT_EQUAL(reg(&b, PERSIST), 0);
	struct nvmf_ns *ns = nvmf_ns_next(loop_subsystem(), NULL);
	struct nvmf_resv two = *nvmf_ns_resv_state(ns);
	CU_ASSERT_EQUAL(two.generation, 2);
	nvmf_resv_keep(true);
	detach_keep_file();
	nvmf_resv_keep(false);
	attach(true);
	ns = nvmf_ns_next(loop_subsystem(), NULL);
	CU_ASSERT_EQUAL(nvmf_ns_resv_state(ns)->num_registrants, 2);
	CU_ASSERT_EQUAL(nvmf_ns_resv_state(ns)->generation, 2); /* they are the same: what was kept has it */
	struct nvmf_resv one = two;
	one.num_registrants = 1;
	struct nvmf_resv_kept other = {
		.tgt_name = "t", .nqn = LOOP_SUBNQN, .nsid = nsid, .uuid = {1, 2, 3}, .state = &one};
	detach_keep_file();
	CU_ASSERT_EQUAL(nvmf_resv_kept_add(&other), 0);
	attach(true);
	ns = nvmf_ns_next(loop_subsystem(), NULL);
	CU_ASSERT_EQUAL(nvmf_ns_resv_state(ns)->num_registrants, 2);
	CU_ASSERT_EQUAL(nvmf_ns_resv_state(ns)->generation, 0);
	CU_ASSERT_EQUAL(nvmf_resv_kept_clear(), 0);
	detach();
}

static void test_what_cannot_be_kept_is_remembered(void)
{
	struct nvmf_resv_kept first = {0};

	attach(false);
	CU_ASSERT_EQUAL(reg(&a, 0), 0);
	nvmf_resv_keep(true);
	CU_ASSERT_EQUAL(nvmf_resv_kept_whole(), 0);
	struct nvmf_ns *ns = nvmf_ns_next(loop_subsystem(), NULL);
	first = (struct nvmf_resv_kept){
		.tgt_name = "t", .nqn = LOOP_SUBNQN, .nsid = nsid, .uuid = {1, 2, 3}, .state = nvmf_ns_resv_state(ns)};
	CU_ASSERT_EQUAL(nvmf_resv_kept_add(&first), 0);
	detach();
	nvmf_resv_keep(false);
	CU_ASSERT_EQUAL(nvmf_resv_kept_whole(), -EEXIST);
	CU_ASSERT_EQUAL(nvmf_resv_kept_clear(), 1);
	nvmf_resv_keep(true);
	CU_ASSERT_EQUAL(nvmf_resv_kept_whole(), 0);
	nvmf_resv_keep(false);
}

/* ---- Conflicts ---- */

static void test_reservation_keeps_other_hosts_out(void)
{
	static const uint8_t writes[] = {nvme_cmd_write, nvme_cmd_flush, nvme_cmd_write_zeroes,
					 nvme_cmd_dsm,   nvme_cmd_copy,  nvme_cmd_write_uncor};

	attach(false);
	CU_ASSERT_EQUAL(reg(&a, 0), 0);
	CU_ASSERT_EQUAL(acquire(&a, 0, WE, 0), 0);
	memset(data, 0, 512);
	data[8] = 1; /* the source of a Copy */
	for (size_t i = 0; i < sizeof(writes); i++) {
		CU_ASSERT_EQUAL(io(&b, writes[i]), CONFLICT);
		CU_ASSERT_EQUAL(io(&a, writes[i]), 0);
	}
	CU_ASSERT_EQUAL(io(&b, nvme_cmd_verify), NVME_ST_DNR(MEDIA, READ_ERROR)); /* reads */
	CU_ASSERT_EQUAL(io(&a, nvme_cmd_write), 0);
	CU_ASSERT_EQUAL(io(&b, nvme_cmd_read), 0);
	CU_ASSERT_EQUAL(io(&b, nvme_cmd_compare), 0);
	CU_ASSERT_EQUAL(io(&b, nvme_cmd_verify), 0);
	CU_ASSERT_EQUAL(release(&b, 0, WE), CONFLICT);
	CU_ASSERT_EQUAL(release(&a, 0, WE), 0);
	CU_ASSERT_EQUAL(io(&b, nvme_cmd_write), 0);

	CU_ASSERT_EQUAL(acquire(&a, 0, EARO, 0), 0);
	CU_ASSERT_EQUAL(io(&b, nvme_cmd_read), CONFLICT);
	CU_ASSERT_EQUAL(reg(&b, 0), 0); /* which lets it in */
	CU_ASSERT_EQUAL(io(&b, nvme_cmd_read), 0);
	CU_ASSERT_EQUAL(io(&b, nvme_cmd_write), 0);
	CU_ASSERT_EQUAL(acquire(&b, 0, WE, 0), CONFLICT);
	CU_ASSERT_EQUAL(reg(&b, 1), 0);
	CU_ASSERT_EQUAL(io(&b, nvme_cmd_write), CONFLICT);
	CU_ASSERT_EQUAL(reg(&a, 1), 0); /* and the reservation with it */
	CU_ASSERT_EQUAL(io(&b, nvme_cmd_write), 0);
	detach();
}

/* The same host through another association is the same registrant. */
static void test_registrant_is_a_host_and_not_a_controller(void)
{
	struct host again;

	attach(false);
	CU_ASSERT_EQUAL(reg(&a, 0), 0);
	CU_ASSERT_EQUAL(acquire(&a, 0, EA, 0), 0);
	attach_host(&again, 'a');
	CU_ASSERT_EQUAL(io(&again, nvme_cmd_write), 0);
	CU_ASSERT_EQUAL(io(&b, nvme_cmd_read), CONFLICT);
	detach_host(&a);
	CU_ASSERT_EQUAL(io(&again, nvme_cmd_write), 0);
	CU_ASSERT_EQUAL(release(&again, 0, EA), 0);
	CU_ASSERT_EQUAL(io(&b, nvme_cmd_read), 0);
	a = again;
	detach();
}

static bool waits_for_data(void *arg)
{
	struct nvmf_inflight *list;
	size_t n = (size_t)nvmf_tgt_get_inflight(loop_tgt(), &list), held = 0;

	for (size_t i = 0; i < n; i++) {
		held += list[i].waits_for != NULL && strcmp(list[i].waits_for, "data buffer") == 0;
	}
	free(list);
	return held == 1;
}

static void fused(struct loop_cmd *cmd, uint8_t opcode, uint8_t fuse)
{
	loop_cmd_init(cmd, b.io, opcode, nsid);
	cmd->sqe.flags |= fuse;
	loop_cmd_data(cmd, data, 512);
}

/* A Write that waits for its Compare has passed the check, and nobody counts it as under way. */
static void test_half_of_a_fused_pair_cannot_write_after_a_preempt(void)
{
	static struct loop_cmd compare, write;

	attach(false);
	CU_ASSERT_EQUAL(reg(&a, 0), 0);
	CU_ASSERT_EQUAL(reg(&b, 0), 0);
	CU_ASSERT_EQUAL(acquire(&b, 0, WE, 0), 0);
	memset(data, 0, 512);
	fused(&compare, nvme_cmd_compare, NVME_FUSE_FIRST);
	fused(&write, nvme_cmd_write, NVME_FUSE_SECOND);
	atomic_store(&loop_hold_data, true);
	loop_submit(&compare);
	CU_ASSERT_TRUE(loop_until(waits_for_data, NULL));
	atomic_store(&loop_hold_data, false);
	loop_submit(&write);
	CU_ASSERT_EQUAL(io(&b, nvme_cmd_flush), 0); /* behind it */
	CU_ASSERT_EQUAL(acquire(&a, 2, WE, 'b'), 0);
	loop_release_data(b.io);
	CU_ASSERT_EQUAL(loop_wait(&compare), CONFLICT);
	CU_ASSERT_EQUAL(loop_wait(&write), NVME_ST_DNR(GENERIC, FUSED_FAIL));
	detach();
}

static void test_command_whose_data_was_on_its_way_conflicts_too(void)
{
	struct loop_cmd cmd;

	attach(false);
	CU_ASSERT_EQUAL(reg(&a, 0), 0);
	atomic_store(&loop_hold_data, true);
	loop_cmd_init(&cmd, b.io, nvme_cmd_write, nsid);
	loop_cmd_data(&cmd, data, 512);
	loop_submit(&cmd);
	CU_ASSERT_EQUAL(io(&b, nvme_cmd_flush), 0); /* is behind it, and needs no data */
	atomic_store(&loop_hold_data, false);
	CU_ASSERT_EQUAL(acquire(&a, 0, WE, 0), 0);
	loop_release_data(b.io);
	CU_ASSERT_EQUAL(loop_wait(&cmd), CONFLICT);
	detach();
}

static void test_wrong_commands_change_nothing(void)
{
	attach(false);
	CU_ASSERT_EQUAL(reg(&a, 5), INVALID);
	CU_ASSERT_EQUAL(reg(&a, 3u << 30), INVALID); /* persistence without a file */
	CU_ASSERT_EQUAL(acquire(&a, 0, WE, 0), CONFLICT);
	CU_ASSERT_EQUAL(reg(&a, 0), 0);
	CU_ASSERT_EQUAL(acquire(&a, 0, 7, 0), INVALID);
	CU_ASSERT_EQUAL(release(&a, 2, WE), INVALID);
	nsid++;
	CU_ASSERT_EQUAL(reg(&a, 0), NVME_ST_DNR(GENERIC, INVALID_NS));
	CU_ASSERT_EQUAL(report(&a, 64, true), NVME_ST_DNR(GENERIC, INVALID_NS));
	nsid--;
	CU_ASSERT_EQUAL(report(&a, 128, true), 0);
	CU_ASSERT(le(0, 4) == 1 && le(5, 2) == 1 && data[4] == 0);
	detach();
}

/* Many at once, on several groups: they are carried out one after the other, and each has its answer. */
static void test_commands_that_race_are_carried_out_in_turn(void)
{
	enum { EACH = 16 };
	static struct loop_cmd cmds[2][EACH];
	static uint64_t keys[2][EACH][2];
	unsigned conflicts = 0;

	attach(true);
	CU_ASSERT_EQUAL(reg(&a, 3u << 30), 0);
	CU_ASSERT_EQUAL(reg(&b, 0), 0);
	for (unsigned i = 0; i < EACH; i++) {
		for (unsigned h = 0; h < 2; h++) {
			const struct host *who = h == 0 ? &a : &b;
			uint8_t opcode = i % 2 == 0 ? nvme_cmd_resv_acquire : nvme_cmd_resv_release;
			make_cmd(&cmds[h][i], who, opcode, EA << 8, who->letter, 0, keys[h][i]);
			loop_submit(&cmds[h][i]);
		}
	}
	for (unsigned i = 0; i < EACH; i++) {
		for (unsigned h = 0; h < 2; h++) {
			uint16_t status = loop_wait(&cmds[h][i]);
			CU_ASSERT_TRUE(status == 0 || status == CONFLICT);
			conflicts += status == CONFLICT;
		}
	}
	CU_ASSERT_TRUE(conflicts < EACH);
	CU_ASSERT_EQUAL(report(&a, 128, true), 0);
	CU_ASSERT_EQUAL(data[4], 0);
	detach();
}

/* A host names itself, so it could be as many as it likes. */
static void test_registrants_are_bounded_and_those_there_are_keep_what_they_have(void)
{
	enum { MAX = NVMF_RESV_REGISTRANTS_MAX };
	struct host h;

	attach(true);
	CU_ASSERT_EQUAL(reg(&a, 3u << 30), 0);
	CU_ASSERT_EQUAL(acquire(&a, 0, WE, 0), 0);
	for (uint8_t i = 1; i < MAX; i++) {
		attach_host(&h, (uint8_t)('b' + i));
		CU_ASSERT_EQUAL(reg(&h, 0), 0);
		detach_host(&h);
	}
	CU_ASSERT_EQUAL(reg(&b, 0), NVME_ST_DNR(GENERIC, INTERNAL));
	CU_ASSERT_EQUAL(reg(&a, 2), 0); /* another key, the same: those who are there may go on */
	for (unsigned restarted = 0; restarted < 2; restarted++) {
		CU_ASSERT_EQUAL(report(&a, 64 * (MAX + 1), true), 0);
		CU_ASSERT(data[4] == WE && le(5, 2) == MAX && data[9] == 1);
		CU_ASSERT(le(64 + 8, 8) == 'a' && data[64 + 2] == 1);
		for (unsigned i = 1; i < MAX; i++) {
			CU_ASSERT(le(64 + 64 * i + 8, 8) == 'b' + i && data[64 + 64 * i + 2] == 0);
		}
		CU_ASSERT_EQUAL(io(&b, nvme_cmd_write), CONFLICT);
		CU_ASSERT_EQUAL(io(&a, nvme_cmd_write), 0);
		if (restarted == 0) {
			restart();
		}
	}
	CU_ASSERT_EQUAL(reg(&b, 0), NVME_ST_DNR(GENERIC, INTERNAL));
	attach_host(&h, 'c');
	CU_ASSERT_EQUAL(reg(&h, 1), 0); /* one goes */
	detach_host(&h);
	CU_ASSERT_EQUAL(reg(&b, 0), 0);
	detach();
}

/* ---- Preempt ---- */

static void test_preempt_throws_out(void)
{
	attach(false);
	CU_ASSERT_EQUAL(reg(&a, 0), 0);
	CU_ASSERT_EQUAL(reg(&b, 0), 0);
	CU_ASSERT_EQUAL(acquire(&a, 0, EA, 0), 0);
	CU_ASSERT_EQUAL(acquire(&b, 1, EA, 'a'), 0);
	CU_ASSERT_EQUAL(io(&a, nvme_cmd_read), CONFLICT);
	CU_ASSERT_EQUAL(io(&b, nvme_cmd_write), 0);
	CU_ASSERT_EQUAL(release(&a, 0, EA), CONFLICT);
	detach();
}

static bool is_held(void *arg)
{
	return atomic_load(&((struct testdev *)arg)->held) != 0;
}

/* A namespace whose bdev keeps what it gets; a holds it, and has a write there. */
static struct testdev *attach_slow(struct loop_cmd *old)
{
	struct testdev *t = testdev_new("slow", 512, 1000);
	struct nvmf_ns_opts opts = {0};

	t->hold = true;
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	CU_ASSERT_EQUAL_FATAL(nvmf_subsystem_add_ns(loop_subsystem(), "slow", &opts, &nsid), 0);
	attach_host(&a, 'a');
	attach_host(&b, 'b');
	CU_ASSERT_EQUAL(reg(&a, 0), 0);
	CU_ASSERT_EQUAL(reg(&b, 0), 0);
	CU_ASSERT_EQUAL(acquire(&a, 0, EA, 0), 0);
	loop_cmd_init(old, a.io, nvme_cmd_read, nsid);
	loop_cmd_data(old, data, 512);
	loop_submit(old);
	CU_ASSERT_TRUE_FATAL(loop_until(is_held, t));
	return t;
}

static void abort_it(const struct host *h, const struct loop_cmd *victim)
{
	struct loop_cmd cmd;

	loop_cmd_init(&cmd, h->admin, nvme_admin_abort_cmd, 0);
	cmd.sqe.cdw10 = htole32(1 | (uint32_t)le16toh(victim->sqe.cid) << 16);
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
}

static void detach_slow(struct testdev *t)
{
	detach_host(&a);
	detach_host(&b);
	loop_remove_ns(nsid);
	CU_ASSERT_TRUE(testdev_delete(t));
}

static void release_slow(struct testdev *t)
{
	struct user u;

	CU_ASSERT_EQUAL_FATAL(user_open(&u, "slow", false, a.io->thread), 0);
	testdev_release(t, &u, 0);
	user_close(&u);
}

static void preempt_begin(struct loop_cmd *cmd, uint64_t keys[2])
{
	make_cmd(cmd, &b, nvme_cmd_resv_acquire, 2 | EA << 8, 'b', 'a', keys);
	loop_submit(cmd);
}

static void test_preempt_and_abort_aborts(void)
{
	struct loop_cmd old, preempt;
	uint64_t keys[2];
	struct testdev *t = attach_slow(&old);

	preempt_begin(&preempt, keys);
	CU_ASSERT_EQUAL(loop_wait(&old), NVME_ST(GENERIC, CMD_ABORTED_PREMEPT));
	CU_ASSERT_EQUAL(loop_wait(&preempt), 0);
	CU_ASSERT_EQUAL(report(&b, 128, true), 0);
	CU_ASSERT_EQUAL(data[5], 1); /* registrant */
	detach_slow(t);
}

/* What cannot be aborted is waited for. */
static void test_preempt_and_abort_leaves_nothing_under_way(void)
{
	struct loop_cmd old, late, preempt;
	uint64_t keys[2];
	struct testdev *t = attach_slow(&old);

	t->deaf = true;
	preempt_begin(&preempt, keys);
	while (STAILQ_EMPTY(&loop_subsystem()->ops) || STAILQ_FIRST(&loop_subsystem()->ops)->pending_views == 0) {
		CU_ASSERT_EQUAL(loop_identify(b.admin, NVME_IDENTIFY_CNS_CTRL, 0, 0, data), 0);
	}
	/* What comes now waits, and then it is too late for it. */
	loop_cmd_init(&late, a.io, nvme_cmd_read, nsid);
	loop_cmd_data(&late, data, 512);
	loop_submit(&late);
	CU_ASSERT_EQUAL(loop_identify(a.admin, NVME_IDENTIFY_CNS_CTRL, 0, 0, data), 0);
	CU_ASSERT_FALSE(atomic_load(&preempt.done));
	release_slow(t);
	CU_ASSERT_EQUAL(loop_wait(&old), 0);
	CU_ASSERT_EQUAL(loop_wait(&preempt), 0);
	CU_ASSERT_EQUAL(loop_wait(&late), CONFLICT);
	detach_slow(t);
}

/* A bdev that does not end its I/O may not keep the namespace from its other hosts. */
static void test_preempt_and_abort_that_cannot_changes_nothing(void)
{
	struct loop_cmd old, preempt;
	uint64_t keys[2];
	struct testdev *t = attach_slow(&old);

	t->deaf = true;
	loop_subsystem()->drain_us = 1000;
	preempt_begin(&preempt, keys);
	CU_ASSERT_EQUAL(loop_wait(&preempt), NVME_ST(GENERIC, INTERNAL));
	CU_ASSERT_EQUAL(report(&b, 128, true), 0);
	CU_ASSERT_EQUAL(data[4], EA);
	CU_ASSERT_EQUAL(data[5], 2); /* registrants, as before */
	CU_ASSERT_EQUAL(io(&b, nvme_cmd_write), CONFLICT);
	CU_ASSERT_FALSE(atomic_load(&old.done));
	release_slow(t);
	CU_ASSERT_EQUAL(loop_wait(&old), 0);
	loop_subsystem()->drain_us = NVMF_DRAIN_US;
	preempt_begin(&preempt, keys);
	CU_ASSERT_EQUAL(loop_wait(&preempt), 0);
	CU_ASSERT_EQUAL(io(&a, nvme_cmd_read), CONFLICT);
	detach_slow(t);
}

static void do_nothing(void *arg)
{
}

/* The command is on its way to the control thread when the removal of its namespace begins, and ends although the
 * removal waits. */
static void preempt_behind_removal(struct loop_cmd *cmd, uint64_t keys[2], nvmf_done_fn removed, void *arg)
{
	preempt_begin(cmd, keys);
	thread_call(b.io->thread, do_nothing, NULL);
	nvmf_subsystem_remove_ns(loop_subsystem(), nsid, removed, arg);
	CU_ASSERT_EQUAL(loop_identify(b.admin, NVME_IDENTIFY_CNS_CTRL, 0, 0, data), 0);
	CU_ASSERT_EQUAL(loop_wait(cmd), NVME_ST_DNR(GENERIC, INVALID_NS));
	CU_ASSERT_TRUE(nvmf_ns_is_being_removed(nvmf_ns_find(loop_subsystem(), nsid)));
}

/* A Preempt and Abort that comes too late for its namespace may not keep a subsystem from stopping. */
static void test_subsystem_stops_with_a_preempt_and_abort_behind_a_removal(void)
{
	struct loop_wait gone = LOOP_WAIT, stop = LOOP_WAIT, start = LOOP_WAIT;
	struct loop_cmd old, preempt;
	uint64_t keys[2];
	struct testdev *t = attach_slow(&old);

	preempt_behind_removal(&preempt, keys, loop_done, &gone);
	nvmf_subsystem_stop(loop_subsystem(), loop_done, &stop);
	CU_ASSERT_EQUAL(atomic_load(&stop.status), LOOP_PENDING);
	release_slow(t);
	CU_ASSERT_EQUAL(loop_wait_for(&stop), 0);
	CU_ASSERT_EQUAL(loop_wait_for(&gone), 0);
	loop_wait(&old);
	detach_host(&a);
	detach_host(&b);
	nvmf_subsystem_start(loop_subsystem(), loop_done, &start);
	CU_ASSERT_EQUAL(loop_wait_for(&start), 0);
	CU_ASSERT_TRUE(testdev_delete(t));
}

/* Uses the number of a removed namespace for another one, with a read that is held, before anything else can happen. */
static struct loop_cmd later_read;

static void use_number_again(void *arg, int status)
{
	struct nvmf_ns_opts opts = {.nsid = nsid};

	CU_ASSERT_EQUAL(nvmf_subsystem_add_ns(loop_subsystem(), "other", &opts, &nsid), 0);
	loop_cmd_init(&later_read, a.io, nvme_cmd_read, nsid);
	loop_cmd_data(&later_read, data, 512);
	loop_submit(&later_read);
	while (!is_held(arg)) {
		sched_yield();
	}
}

static void test_preempt_and_abort_of_a_namespace_whose_number_is_used_again(void)
{
	struct loop_cmd old, preempt;
	uint64_t keys[2];
	struct testdev *t = attach_slow(&old), *other = testdev_new("other", 512, 1000);
	struct user u;

	other->hold = true;
	CU_ASSERT_EQUAL_FATAL(testdev_register(other), 0);
	preempt_behind_removal(&preempt, keys, use_number_again, other);
	release_slow(t);
	CU_ASSERT_EQUAL(loop_wait(&old), 0);
	CU_ASSERT_TRUE_FATAL(loop_until(is_held, other));
	CU_ASSERT_FALSE(atomic_load(&later_read.done));
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "other", false, a.io->thread), 0);
	testdev_release(other, &u, 0);
	user_close(&u);
	CU_ASSERT_EQUAL(loop_wait(&later_read), 0);
	CU_ASSERT_TRUE(testdev_delete(t));
	detach_slow(other);
}

/* Its commands are waited for, and then it is gone. */
static void test_namespace_goes_while_it_is_being_preempted(void)
{
	struct loop_wait gone = LOOP_WAIT;
	struct loop_cmd old, preempt;
	uint64_t keys[2];
	struct testdev *t = attach_slow(&old);

	nvmf_subsystem_remove_ns(loop_subsystem(), nsid, loop_done, &gone);
	make_cmd(&preempt, &b, nvme_cmd_resv_acquire, 2 | EA << 8, 'b', 'a', keys);
	loop_submit(&preempt);
	CU_ASSERT_EQUAL(loop_wait(&preempt), NVME_ST(PATH, CTRL_PATH_ERROR));
	CU_ASSERT_EQUAL(atomic_load(&gone.status), LOOP_PENDING);
	abort_it(&a, &old);
	CU_ASSERT_EQUAL(loop_wait(&old), NVME_ST(GENERIC, ABORT_REQ));
	CU_ASSERT_EQUAL(loop_wait_for(&gone), 0);
	detach_host(&a);
	detach_host(&b);
	CU_ASSERT_TRUE(testdev_delete(t));
}

/* ---- Notices ---- */

#define RESV_EVENT (NVME_AER_CSS | NVME_AER_CSS_NVM_RESERVATION << 8 | NVME_LOG_LID_RESERVATION << 16)

static void arm(struct loop_cmd *aer, const struct host *h)
{
	loop_cmd_init(aer, h->admin, nvme_admin_async_event, 0);
	loop_submit(aer);
}

static uint16_t notices(const struct host *h, bool keep)
{
	return loop_get_log(h->admin, NVME_LOG_LID_RESERVATION, keep, 0, data, 64);
}

static void test_hosts_are_told_what_others_did(void)
{
	struct loop_cmd aer, next;

	attach(false);
	CU_ASSERT_EQUAL(reg(&a, 0), 0);
	CU_ASSERT_EQUAL(reg(&b, 0), 0);
	arm(&aer, &b);
	CU_ASSERT_EQUAL(notices(&b, false), 0);
	CU_ASSERT(le(0, 8) == 0 && data[8] == 0);
	for (unsigned i = 0; i < 2; i++) {
		CU_ASSERT_EQUAL(acquire(&a, 0, EARO, 0), 0);
		CU_ASSERT_EQUAL(release(&a, 0, EARO), 0);
	}
	CU_ASSERT_EQUAL(loop_wait(&aer), 0);
	CU_ASSERT_EQUAL(le32toh(aer.cqe.dw0), RESV_EVENT);
	arm(&next, &b);
	CU_ASSERT_EQUAL(notices(&b, true), 0);
	CU_ASSERT(le(0, 8) == 1 && data[8] == NVME_RESV_NOTIFY_RNLPT_RESERVATION_RELEASED && data[9] == 1 &&
		  le(12, 4) == nsid);
	CU_ASSERT_FALSE(atomic_load(&next.done));
	CU_ASSERT_EQUAL(notices(&b, false), 0); /* the same: it was kept */
	CU_ASSERT_EQUAL(le(0, 8), 1);
	CU_ASSERT_EQUAL(loop_wait(&next), 0); /* there is another */
	CU_ASSERT_EQUAL(notices(&b, false), 0);
	CU_ASSERT(le(0, 8) == 2 && data[9] == 0);
	CU_ASSERT_EQUAL(notices(&b, false), 0);
	CU_ASSERT_EQUAL(le(0, 8), 0);
	CU_ASSERT_EQUAL(notices(&a, false), 0); /* the one who did it knows */
	CU_ASSERT_EQUAL(le(0, 8), 0);
	CU_ASSERT_EQUAL(release(&a, 1, 0), 0);
	CU_ASSERT_EQUAL(notices(&b, false), 0);
	CU_ASSERT(le(0, 8) == 3 && data[8] == NVME_RESV_NOTIFY_RNLPT_RESERVATION_PREEMPTED);
	detach();
}

static void test_masked_notices_are_not_sent(void)
{
	const uint32_t released = 1u << 2;
	uint32_t value = 0;

	attach(false);
	CU_ASSERT_EQUAL(reg(&a, 0), 0);
	CU_ASSERT_EQUAL(reg(&b, 0), 0);
	CU_ASSERT_EQUAL(set_feature(&b, NVME_FEAT_FID_RESV_MASK, nsid, UINT32_MAX), 0);
	CU_ASSERT_EQUAL(feature(&b, nvme_admin_get_features, NVME_FEAT_FID_RESV_MASK, nsid, &value), 0);
	CU_ASSERT_EQUAL(value, 0xe);
	CU_ASSERT_EQUAL(set_feature(&b, NVME_FEAT_FID_RESV_MASK, NVME_NSID_ALL, released), 0);
	value = 0;
	CU_ASSERT_EQUAL(feature(&b, nvme_admin_get_features, NVME_FEAT_FID_RESV_MASK, nsid, &value), 0);
	CU_ASSERT_EQUAL(value, released);
	CU_ASSERT_EQUAL(acquire(&a, 0, EARO, 0), 0);
	CU_ASSERT_EQUAL(release(&a, 0, EARO), 0);
	CU_ASSERT_EQUAL(notices(&b, false), 0);
	CU_ASSERT_EQUAL(le(0, 8), 0);
	CU_ASSERT_EQUAL(acquire(&a, 1, EA, 'b'), 0);
	CU_ASSERT_EQUAL(notices(&b, false), 0);
	CU_ASSERT(le(0, 8) == 1 && data[8] == NVME_RESV_NOTIFY_RNLPT_REGISTRATION_PREEMPTED);
	value = 0;
	CU_ASSERT_EQUAL(feature(&b, nvme_admin_get_features, NVME_FEAT_FID_RESV_MASK, NVME_NSID_ALL, &value), INVALID);
	CU_ASSERT_EQUAL(set_feature(&b, NVME_FEAT_FID_RESV_MASK, nsid + 1, 0), NVME_ST_DNR(GENERIC, INVALID_NS));
	CU_ASSERT_EQUAL(set_feature(&b, NVME_FEAT_FID_RESV_MASK, 0, 0), NVME_ST_DNR(GENERIC, INVALID_NS));
	detach();
}

static void test_notices_that_nobody_reads_are_bounded(void)
{
	attach(false);
	CU_ASSERT_EQUAL(reg(&a, 0), 0);
	CU_ASSERT_EQUAL(reg(&b, 0), 0);
	for (unsigned i = 0; i < NVMF_RESV_LOG_SIZE + 3; i++) {
		CU_ASSERT_EQUAL(acquire(&a, 0, EARO, 0), 0);
		CU_ASSERT_EQUAL(release(&a, 0, EARO), 0);
	}
	for (unsigned i = 0; i < NVMF_RESV_LOG_SIZE; i++) {
		CU_ASSERT_EQUAL(notices(&b, false), 0);
		CU_ASSERT_EQUAL(le(0, 8), i + 4);
		CU_ASSERT_EQUAL(data[9], NVMF_RESV_LOG_SIZE - 1 - i);
	}
	CU_ASSERT_EQUAL(notices(&b, false), 0);
	CU_ASSERT_EQUAL(le(0, 8), 0);
	detach();
}

static const struct unit_test tests[] = {
	UNIT(test_namespace_says_what_it_can),
	UNIT(test_report_shows_registrants),
	UNIT(test_what_is_kept_comes_back_with_the_same_namespace),
	UNIT(test_of_a_file_and_what_is_kept_the_file_counts),
	UNIT(test_what_cannot_be_kept_is_remembered),
	UNIT(test_reservation_keeps_other_hosts_out),
	UNIT(test_registrant_is_a_host_and_not_a_controller),
	UNIT(test_half_of_a_fused_pair_cannot_write_after_a_preempt),
	UNIT(test_command_whose_data_was_on_its_way_conflicts_too),
	UNIT(test_wrong_commands_change_nothing),
	UNIT(test_commands_that_race_are_carried_out_in_turn),
	UNIT(test_registrants_are_bounded_and_those_there_are_keep_what_they_have),
	UNIT(test_preempt_throws_out),
	UNIT(test_preempt_and_abort_aborts),
	UNIT(test_preempt_and_abort_leaves_nothing_under_way),
	UNIT(test_preempt_and_abort_that_cannot_changes_nothing),
	UNIT(test_subsystem_stops_with_a_preempt_and_abort_behind_a_removal),
	UNIT(test_preempt_and_abort_of_a_namespace_whose_number_is_used_again),
	UNIT(test_namespace_goes_while_it_is_being_preempted),
	UNIT(test_hosts_are_told_what_others_did),
	UNIT(test_masked_notices_are_not_sent),
	UNIT(test_notices_that_nobody_reads_are_bounded),
	UNIT_END,
};
UNIT_MAIN("nvmf_resv_ns", tests, resv_start, resv_stop)

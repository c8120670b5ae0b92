/* SPDX-License-Identifier: BSD-3-Clause */
/* Subsystems and namespaces that change while hosts use them: nothing is lost, nothing is left behind, nothing is
 * wrong. */
#include <sched.h>

#include "unittest/nvmf/loop.h"

#define BLOCK  512
#define BLOCKS 1024

static struct loop_conn *admin, *io;
static uint32_t nsid;
static uint8_t buf[8192];
static struct loop_cmd cmd;

static void attach(void)
{
	nsid = loop_add_malloc_ns("m", BLOCK, BLOCKS);
	admin = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
	io = loop_io_queue(admin, 1);
	CU_ASSERT_PTR_NOT_NULL_FATAL(io);
}

static void detach(void)
{
	loop_close(io);
	loop_close(admin);
	loop_remove_malloc_ns(nsid, "m");
}

static void pause_ns(uint32_t which)
{
	struct loop_wait wait = LOOP_WAIT;

	nvmf_subsystem_pause(loop_subsystem(), which, loop_done, &wait);
	CU_ASSERT_EQUAL(loop_wait_for(&wait), 0);
	CU_ASSERT_EQUAL(nvmf_subsystem_get_state(loop_subsystem()), NVMF_SUBSYSTEM_PAUSED);
}

static void resume(void)
{
	struct loop_wait wait = LOOP_WAIT;

	nvmf_subsystem_resume(loop_subsystem(), loop_done, &wait);
	CU_ASSERT_EQUAL(loop_wait_for(&wait), 0);
	CU_ASSERT_EQUAL(nvmf_subsystem_get_state(loop_subsystem()), NVMF_SUBSYSTEM_ACTIVE);
}

static void submit_read(struct loop_cmd *c, struct loop_conn *conn, uint32_t ns)
{
	loop_cmd_init(c, conn, nvme_cmd_read, ns);
	loop_cmd_data(c, buf, BLOCK);
	loop_submit(c);
}

static uint64_t num_paused(void)
{
	struct nvmf_poll_group_stats stats;
	uint64_t n = 0;

	for (struct nvmf_poll_group *g = nvmf_poll_group_next(loop_tgt(), NULL); g != NULL;
	     g = nvmf_poll_group_next(loop_tgt(), g)) {
		nvmf_poll_group_get_stats(g, &stats);
		n += stats.pending_bdev_io;
	}
	return n;
}

static bool paused_are(void *arg)
{
	return num_paused() == *(uint64_t *)arg;
}

static void test_paused_commands_wait_and_go_on(void)
{
	uint64_t one = 1;

	attach();
	pause_ns(NVME_NSID_ALL);
	submit_read(&cmd, io, nsid);
	CU_ASSERT_TRUE(loop_until(paused_are, &one));
	CU_ASSERT_FALSE(atomic_load(&cmd.done));
	resume();
	CU_ASSERT_EQUAL(loop_wait(&cmd), 0);
	CU_ASSERT_EQUAL(num_paused(), 0);
	detach();
}

static void test_pause_of_one_namespace_leaves_the_others(void)
{
	attach();
	uint32_t other = loop_add_malloc_ns("m2", BLOCK, BLOCKS);
	struct loop_cmd *paused = malloc(sizeof(*paused));

	pause_ns(nsid);
	submit_read(paused, io, nsid);
	CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_read, other, 0, 0, buf, BLOCK), 0);
	CU_ASSERT_FALSE(atomic_load(&paused->done));
	resume();
	CU_ASSERT_EQUAL(loop_wait(paused), 0);
	pause_ns(0); /* of none: I/O goes on */
	CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_read, nsid, 0, 0, buf, BLOCK), 0);
	resume();
	free(paused);
	loop_remove_malloc_ns(other, "m2");
	detach();
}

static void test_changes_that_are_not_possible_are_refused(void)
{
	struct loop_wait a = LOOP_WAIT, b = LOOP_WAIT;

	nvmf_subsystem_resume(loop_subsystem(), loop_done, &a);
	CU_ASSERT_EQUAL(loop_wait_for(&a), -EINVAL);
	nvmf_subsystem_start(loop_subsystem(), loop_done, &b);
	CU_ASSERT_EQUAL(loop_wait_for(&b), -EINVAL);
}

static bool is_held(void *arg)
{
	return atomic_load(&((struct testdev *)arg)->held) != 0;
}

static struct testdev *slow_ns(uint32_t *id)
{
	struct testdev *t = testdev_new("slow", BLOCK, BLOCKS);

	t->hold = true;
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	*id = loop_add_ns("slow", 0);
	return t;
}

static void release(struct testdev *t, struct loop_conn *conn)
{
	struct user u;

	t->hold = false;
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "slow", false, conn->thread), 0);
	testdev_release(t, &u, 0);
	user_close(&u);
}

static void test_pause_waits_for_commands_under_way(void)
{
	struct loop_wait pause = LOOP_WAIT;
	uint32_t id;

	attach();
	struct testdev *t = slow_ns(&id);
	submit_read(&cmd, io, id);
	CU_ASSERT_TRUE(loop_until(is_held, t));
	nvmf_subsystem_pause(loop_subsystem(), id, loop_done, &pause);
	/* The control thread is not held up meanwhile, nor are other namespaces. */
	CU_ASSERT_EQUAL(loop_identify(admin, NVME_IDENTIFY_CNS_NS, id, 0, buf), 0);
	CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_read, nsid, 0, 0, buf, BLOCK), 0);
	CU_ASSERT_EQUAL(atomic_load(&pause.status), LOOP_PENDING);
	release(t, io);
	CU_ASSERT_EQUAL(loop_wait_for(&pause), 0);
	CU_ASSERT_EQUAL(loop_wait(&cmd), 0);
	resume();
	loop_remove_ns(id);
	CU_ASSERT_TRUE(testdev_delete(t));
	detach();
}

static void test_removal_waits_for_commands_under_way(void)
{
	struct loop_wait gone = LOOP_WAIT, again = LOOP_WAIT;
	struct loop_cmd *late = malloc(sizeof(*late));
	uint32_t id;

	attach();
	struct testdev *t = slow_ns(&id);
	submit_read(&cmd, io, id);
	CU_ASSERT_TRUE(loop_until(is_held, t));
	nvmf_subsystem_remove_ns(loop_subsystem(), id, loop_done, &gone);
	nvmf_subsystem_remove_ns(loop_subsystem(), id, loop_done, &again);
	CU_ASSERT_EQUAL(loop_wait_for(&again), -ENOENT);
	submit_read(late, io, id); /* for hosts it is as if it had no path any more */
	CU_ASSERT_EQUAL(loop_wait(late), NVME_ST(PATH, CTRL_PATH_ERROR));
	CU_ASSERT_EQUAL(atomic_load(&gone.status), LOOP_PENDING);
	release(t, io);
	CU_ASSERT_EQUAL(loop_wait_for(&gone), 0);
	CU_ASSERT_EQUAL(loop_wait(&cmd), 0);
	CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_read, id, 0, 0, buf, BLOCK), NVME_ST_DNR(GENERIC, INVALID_NS));
	CU_ASSERT_TRUE(testdev_delete(t));
	free(late);
	detach();
}

static void test_bdev_that_goes_takes_its_namespace_along(void)
{
	attach();
	make_malloc("gone", BLOCK, BLOCKS);
	uint32_t id = loop_add_ns("gone", 0);
	CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_read, id, 0, 0, buf, BLOCK), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "gone"), 0);
	CU_ASSERT_PTR_NULL(nvmf_ns_find(loop_subsystem(), id));
	CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_read, id, 0, 0, buf, BLOCK), NVME_ST_DNR(GENERIC, INVALID_NS));
	detach();
}

static void test_bdev_that_goes_during_a_pause(void)
{
	atomic_bool done = false;

	attach();
	struct testdev *t = testdev_new("dev", BLOCK, BLOCKS);
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	uint32_t id = loop_add_ns("dev", 0);
	pause_ns(nsid);
	bdev_unregister(&t->bdev, (void (*)(void *, int))(void *)set_done, &done);
	/* The pause is of another namespace: removal need not wait. */
	CU_ASSERT_TRUE(fixture_wait(&done));
	CU_ASSERT_PTR_NULL(nvmf_ns_find(loop_subsystem(), id));
	resume();
	detach();
}

static void test_resized_namespace_has_new_bounds(void)
{
	char error[BDEV_ERROR_MAX];

	attach();
	make_null("n", BLOCK, 2048);
	uint32_t id = loop_add_ns("n", 0);
	CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_read, id, 2048, 0, buf, BLOCK), NVME_ST_DNR(GENERIC, LBA_RANGE));
	CU_ASSERT_EQUAL(bdev_null_resize("n", 2, error), 0);
	CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_read, id, 2048, 0, buf, BLOCK), 0);
	loop_remove_ns(id);
	fixture_delete(bdev_null_delete, "n");
	detach();
}

static void test_namespace_replaced_by_one_with_other_blocks(void)
{
	size_t one = 1;

	attach();
	make_malloc("a", 512, 100);
	make_malloc("b", 4096, 100);
	uint32_t id = loop_add_ns("a", 0);
	/* The command's data are on their way for the old one when the new one comes. */
	atomic_store(&loop_hold_data, true);
	loop_cmd_init(&cmd, io, nvme_cmd_write, id);
	loop_cmd_data(&cmd, buf, 512);
	loop_submit(&cmd);
	struct nvmf_inflight *list = NULL;
	while (nvmf_tgt_get_inflight(loop_tgt(), &list) != (ssize_t)one) {
		free(list);
	}
	free(list);
	loop_remove_ns(id);
	CU_ASSERT_EQUAL(loop_add_ns("b", id), id);
	atomic_store(&loop_hold_data, false);
	loop_release_data(io);
	CU_ASSERT_EQUAL(loop_wait(&cmd), NVME_ST(GENERIC, NS_NOT_READY));
	loop_remove_malloc_ns(id, "b");
	fixture_delete(bdev_malloc_delete, "a");
	detach();
}

static void test_disconnect_with_commands_everywhere(void)
{
	struct loop_cmd *cmds = calloc(4, sizeof(*cmds));
	uint64_t one = 1;
	uint32_t id;

	attach();
	struct testdev *t = slow_ns(&id);
	submit_read(&cmds[0], io, id); /* in the bdev */
	CU_ASSERT_TRUE(loop_until(is_held, t));
	pause_ns(nsid);
	submit_read(&cmds[1], io, nsid); /* held back by a pause */
	CU_ASSERT_TRUE(loop_until(paused_are, &one));
	CU_ASSERT_EQUAL(loop_get_log(admin, NVME_LOG_LID_CHANGED_NS, false, 0, buf, 4096), 0);
	loop_cmd_init(&cmds[3], admin, nvme_admin_async_event, 0);
	loop_submit(&cmds[3]);
	atomic_store(&loop_hold_data, true);
	submit_read(&cmds[2], io, id);                                            /* waiting for a buffer */
	CU_ASSERT_EQUAL(loop_set_feature(admin, NVME_FEAT_FID_KATO, 0, NULL), 0); /* they have all arrived */

	nvmf_ctrlr_destroy(nvmf_ctrlr_next(loop_subsystem(), NULL), "the test wants it");
	for (unsigned i = 1; i < 4; i++) {
		CU_ASSERT_TRUE(loop_given_up(loop_wait(&cmds[i])));
	}
	CU_ASSERT_FALSE(atomic_load(&io->closed)); /* not before the bdev is done */
	release(t, io);
	CU_ASSERT_TRUE(loop_wait_closed(io));
	CU_ASSERT_EQUAL(loop_wait(&cmds[0]), 0); /* it had begun, so it was carried out and answered */
	atomic_store(&loop_hold_data, false);
	resume();
	CU_ASSERT_EQUAL(num_paused(), 0);
	loop_remove_ns(id);
	CU_ASSERT_TRUE(testdev_delete(t));
	free(cmds);
	detach();
}

/* ---- Many commands, many changes ---- */

#define DEPTH     16
#define QUEUES    3
#define SPAN      64 /* blocks of one command's own */
#define STRESS_US 1500000

/* One slot writes and reads its own blocks in turn, and knows what must be there. */
struct slot {
	struct loop_cmd cmd;
	struct loop_conn *conn;
	uint64_t lba, random;
	uint32_t generation;
	bool writing, known;
	unsigned bad, refused, done;
	uint8_t data[8 * BLOCK];
};

static void slot_fill(struct slot *s, uint32_t generation)
{
	for (size_t i = 0; i < sizeof(s->data); i += 8) {
		uint32_t tag[2] = {(uint32_t)s->lba + (uint32_t)i, generation};
		memcpy(s->data + i, tag, sizeof(tag));
	}
}

static bool slot_check(const struct slot *s)
{
	for (size_t i = 0; i < sizeof(s->data); i += 8) {
		uint32_t tag[2];
		memcpy(tag, s->data + i, sizeof(tag));
		if (tag[0] != (uint32_t)s->lba + (uint32_t)i || tag[1] != s->generation) {
			return false;
		}
	}
	return true;
}

static void slot_submit(struct slot *s)
{
	s->writing = !s->known || fixture_random(&s->random) % 2 == 0;
	if (s->writing) {
		slot_fill(s, s->generation + 1);
	}
	loop_cmd_init(&s->cmd, s->conn, s->writing ? nvme_cmd_write : nvme_cmd_read, nsid);
	s->cmd.sqe.cdw10 = htole32((uint32_t)s->lba);
	s->cmd.sqe.cdw12 = htole32(7);
	loop_cmd_data(&s->cmd, s->data, sizeof(s->data));
	loop_submit(&s->cmd);
}

/* What a finished command proves. */
static void slot_finish(struct slot *s)
{
	uint16_t status = nvme_cqe_status(&s->cmd.cqe);

	s->done++;
	if (status != 0) {
		s->refused++;
		s->known = false; /* a write that failed may have been done */
		s->bad += (status & ~NVME_SC_DNR) != NVME_ST(GENERIC, INVALID_NS) &&
			  (status & ~NVME_SC_DNR) != NVME_ST(GENERIC, NS_NOT_READY);
		s->generation++;
	} else if (s->writing) {
		s->generation++;
		s->known = true;
	} else {
		s->bad += !slot_check(s);
	}
}

struct churn {
	struct slot *slots;
	unsigned num_slots;
};

static void churn_run(struct churn *ch)
{
	for (unsigned i = 0; i < ch->num_slots; i++) {
		struct slot *s = &ch->slots[i];
		if (atomic_load(&s->cmd.done)) {
			slot_finish(s);
			slot_submit(s);
		}
	}
}

static bool churn_on(void *arg)
{
	churn_run(arg);
	return false;
}

static struct churn *churn_start(struct loop_conn **conns)
{
	struct churn *ch = calloc(1, sizeof(*ch));

	ch->num_slots = DEPTH * QUEUES;
	ch->slots = calloc(ch->num_slots, sizeof(*ch->slots));
	for (unsigned i = 0; i < ch->num_slots; i++) {
		struct slot *s = &ch->slots[i];
		s->conn = conns[i % QUEUES];
		s->lba = i * 8;
		s->random = i;
		slot_submit(s);
	}
	return ch;
}

/* All commands end, and nothing was wrong. */
static unsigned churn_stop(struct churn *ch, unsigned *refused)
{
	unsigned done = 0;

	*refused = 0;
	for (unsigned i = 0; i < ch->num_slots; i++) {
		struct slot *s = &ch->slots[i];
		loop_wait(&s->cmd);
		slot_finish(s);
		CU_ASSERT_EQUAL(s->bad, 0);
		*refused += s->refused;
		done += s->done;
	}
	free(ch->slots);
	free(ch);
	return done;
}

/* Keeps the commands going for a while. */
static void churn_for(struct churn *ch, uint64_t us)
{
	thread_control_wait(churn_on, ch, us + 1);
}

struct churn_wait {
	struct churn *ch;
	struct loop_wait *wait;
};

static bool churn_wait_over(void *arg)
{
	struct churn_wait *w = arg;

	churn_run(w->ch);
	return atomic_load(&w->wait->status) != LOOP_PENDING;
}

static int churn_wait_for(struct churn *ch, struct loop_wait *wait)
{
	struct churn_wait w = {ch, wait};

	CU_ASSERT_TRUE_FATAL(loop_until(churn_wait_over, &w));
	return atomic_load(&wait->status);
}

static void open_queues(struct loop_conn **conns)
{
	for (uint16_t i = 0; i < QUEUES; i++) {
		conns[i] = loop_io_queue(admin, (uint16_t)(i + 2));
		CU_ASSERT_PTR_NOT_NULL_FATAL(conns[i]);
	}
}

static void close_queues(struct loop_conn **conns)
{
	for (unsigned i = 0; i < QUEUES; i++) {
		loop_close(conns[i]);
	}
}

static void test_pausing_under_io_loses_nothing(void)
{
	struct loop_conn *conns[QUEUES];
	unsigned pauses = 0, refused;
	uint64_t random = 1;

	attach();
	open_queues(conns);
	atomic_store(&loop_zcopy, true);
	struct churn *ch = churn_start(conns);
	uint64_t end = env_ticks() + STRESS_US * (env_ticks_hz() / 1000000);
	while (env_ticks() < end || pauses <= 10) { /* a slow machine takes longer */
		struct loop_wait pause = LOOP_WAIT, run = LOOP_WAIT;
		uint64_t r = fixture_random(&random);
		nvmf_subsystem_pause(loop_subsystem(), r % 3 == 0 ? nsid : NVME_NSID_ALL, loop_done, &pause);
		if (r % 2 == 0) {
			CU_ASSERT_EQUAL(churn_wait_for(ch, &pause), 0);
		}
		if (r % 5 == 0) {
			churn_for(ch, r % 1000);
		}
		nvmf_subsystem_resume(loop_subsystem(), loop_done, &run);
		CU_ASSERT_EQUAL(churn_wait_for(ch, &run), 0);
		CU_ASSERT_EQUAL(churn_wait_for(ch, &pause), 0);
		atomic_store(&loop_zcopy, r % 7 < 3);
		churn_for(ch, r % 500);
		pauses++;
	}
	CU_ASSERT(churn_stop(ch, &refused) > 100);
	CU_ASSERT_EQUAL(refused, 0);
	CU_ASSERT(pauses > 10);
	atomic_store(&loop_zcopy, false);
	close_queues(conns);
	detach();
}

static void test_namespace_that_comes_and_goes_under_io(void)
{
	struct loop_conn *conns[QUEUES];
	unsigned changes = 0, refused;
	uint64_t random = 2;

	attach();
	open_queues(conns);
	struct churn *ch = churn_start(conns);
	uint64_t end = env_ticks() + STRESS_US * (env_ticks_hz() / 1000000);
	while (env_ticks() < end || changes <= 10) { /* a busy machine takes longer */
		struct loop_wait gone = LOOP_WAIT;
		struct nvmf_ns_opts opts = {.nsid = nsid};
		uint32_t got;
		uint64_t r = fixture_random(&random);
		churn_for(ch, r % 2000);
		atomic_store(&loop_zcopy, r % 2);
		nvmf_subsystem_remove_ns(loop_subsystem(), nsid, loop_done, &gone);
		CU_ASSERT_EQUAL(churn_wait_for(ch, &gone), 0);
		churn_for(ch, r % 300);
		CU_ASSERT_EQUAL_FATAL(nvmf_subsystem_add_ns(loop_subsystem(), "m", &opts, &got), 0);
		changes++;
	}
	churn_for(ch, 2000);
	CU_ASSERT(churn_stop(ch, &refused) > 100);
	CU_ASSERT(refused > 0);
	atomic_store(&loop_zcopy, false);
	close_queues(conns);
	detach();
}

static void test_connections_that_break_under_io(void)
{
	struct loop_conn *conns[QUEUES];
	struct loop_cmd *cmds = calloc(DEPTH, sizeof(*cmds));
	uint64_t random = 3;

	attach();
	for (unsigned round = 0; round < 60; round++) {
		open_queues(conns);
		for (unsigned i = 0; i < DEPTH; i++) {
			submit_read(&cmds[i], conns[i % QUEUES], nsid);
		}
		if (fixture_random(&random) % 2 == 0) {
			struct loop_wait pause = LOOP_WAIT, run = LOOP_WAIT;
			nvmf_subsystem_pause(loop_subsystem(), NVME_NSID_ALL, loop_done, &pause);
			close_queues(conns);
			nvmf_subsystem_resume(loop_subsystem(), loop_done, &run);
			CU_ASSERT_EQUAL(loop_wait_for(&run), 0);
			CU_ASSERT_EQUAL(loop_wait_for(&pause), 0);
		} else {
			close_queues(conns);
		}
		for (unsigned i = 0; i < DEPTH; i++) {
			uint16_t status = loop_wait(&cmds[i]);
			CU_ASSERT(status == 0 || loop_given_up(status));
		}
	}
	CU_ASSERT_EQUAL(num_paused(), 0);
	free(cmds);
	detach();
}

static void test_subsystem_that_stops_under_io(void)
{
	struct loop_cmd *cmds = calloc(DEPTH, sizeof(*cmds));

	for (unsigned round = 0; round < 20; round++) {
		struct loop_wait stop = LOOP_WAIT, start = LOOP_WAIT;
		attach();
		for (unsigned i = 0; i < DEPTH; i++) {
			submit_read(&cmds[i], io, nsid);
		}
		nvmf_subsystem_stop(loop_subsystem(), loop_done, &stop);
		CU_ASSERT_EQUAL(loop_wait_for(&stop), 0);
		for (unsigned i = 0; i < DEPTH; i++) {
			uint16_t status = loop_wait(&cmds[i]);
			CU_ASSERT(status == 0 || loop_given_up(status));
		}
		nvmf_subsystem_start(loop_subsystem(), loop_done, &start);
		CU_ASSERT_EQUAL(loop_wait_for(&start), 0);
		detach();
	}
	free(cmds);
}

/* ---- A namespace that there is no room for ---- */

static unsigned channels;

static bool second_does_not_open(struct testdev *t)
{
	return ++channels % 2 != 0;
}

/* On the second group: the first one has the namespace, or has not, and a host asks it for that namespace at this very
 * moment. */
static bool second_does_not_open_after_a_read(struct testdev *t)
{
	if (second_does_not_open(t)) {
		return true;
	}
	loop_submit(&cmd);
	while (!atomic_load(&cmd.done) && atomic_load(&t->held) == 0) {
		sched_yield();
	}
	return false;
}

static void test_namespace_that_one_group_has_no_room_for_is_in_none(void)
{
	struct testdev *t = testdev_new("poor", BLOCK, BLOCKS);
	struct nvmf_ns_opts opts = {0};
	struct loop_conn *both[2];

	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	admin = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
	both[0] = loop_io_queue(admin, 1);
	both[1] = loop_io_queue(admin, 2);
	io = both[0]->thread == loop_group_thread(0) ? both[0] : both[1];
	CU_ASSERT_PTR_EQUAL_FATAL(io->thread, loop_group_thread(0));
	loop_cmd_init(&cmd, io, nvme_cmd_read, 1);
	loop_cmd_data(&cmd, buf, BLOCK);
	t->hold = true;
	channels = 0;
	t->opens = second_does_not_open_after_a_read;
	CU_ASSERT_EQUAL(nvmf_subsystem_add_ns(loop_subsystem(), "poor", &opts, &nsid), -ENOMEM);
	CU_ASSERT_EQUAL(loop_wait(&cmd), NVME_ST_DNR(GENERIC, INVALID_NS));
	t->hold = false;
	t->opens = NULL;
	CU_ASSERT_EQUAL_FATAL(nvmf_subsystem_add_ns(loop_subsystem(), "poor", &opts, &nsid), 0);
	CU_ASSERT_EQUAL(nsid, 1);
	CU_ASSERT_EQUAL(loop_rw(both[0], nvme_cmd_read, nsid, 0, 0, buf, BLOCK), 0);
	CU_ASSERT_EQUAL(loop_rw(both[1], nvme_cmd_read, nsid, 0, 0, buf, BLOCK), 0);
	loop_close(both[0]);
	loop_close(both[1]);
	loop_close(admin);
	loop_remove_ns(nsid);
	CU_ASSERT_TRUE(testdev_delete(t));
}

/* What it has got so far is given back. */
static void test_subsystem_that_cannot_be_started_can_be_later(void)
{
	struct testdev *t = testdev_new("poor", BLOCK, BLOCKS);
	struct loop_wait failed = LOOP_WAIT, start = LOOP_WAIT, gone = LOOP_WAIT;
	struct nvmf_subsystem_opts sopts = {.allow_any_host = true};
	struct nvmf_ns_opts opts = {0};
	struct nvmf_subsystem *s;

	make_malloc("m", BLOCK, BLOCKS);
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	CU_ASSERT_EQUAL_FATAL(nvmf_subsystem_create(loop_tgt(), "nqn.2024-01.io.varve:poor", &sopts, &s), 0);
	CU_ASSERT_EQUAL(nvmf_subsystem_add_ns(s, "m", &opts, &nsid), 0);
	CU_ASSERT_EQUAL(nvmf_subsystem_add_ns(s, "poor", &opts, &nsid), 0);
	channels = 0;
	t->opens = second_does_not_open;
	nvmf_subsystem_start(s, loop_done, &failed);
	CU_ASSERT_EQUAL(loop_wait_for(&failed), -ENOMEM);
	CU_ASSERT_EQUAL(nvmf_subsystem_get_state(s), NVMF_SUBSYSTEM_INACTIVE);
	t->opens = NULL;
	nvmf_subsystem_start(s, loop_done, &start);
	CU_ASSERT_EQUAL(loop_wait_for(&start), 0);
	nvmf_subsystem_destroy(s, loop_done, &gone);
	CU_ASSERT_EQUAL(loop_wait_for(&gone), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m"), 0);
	CU_ASSERT_TRUE(testdev_delete(t));
}

/* ---- Before there are groups ---- */

static void test_subsystem_that_was_paused_before_the_target_started_goes_on(void)
{
	struct loop_wait waits[5] = {LOOP_WAIT, LOOP_WAIT, LOOP_WAIT, LOOP_WAIT, LOOP_WAIT};
	struct nvmf_subsystem_opts sopts = {.allow_any_host = true};
	struct nvmf_subsystem *s;
	struct nvmf_tgt *tgt;

	CU_ASSERT_EQUAL_FATAL(nvmf_tgt_create(&(struct nvmf_tgt_opts){.name = "early"}, &tgt), 0);
	CU_ASSERT_EQUAL_FATAL(nvmf_subsystem_create(tgt, "nqn.2024-01.io.varve:early", &sopts, &s), 0);
	nvmf_subsystem_start(s, loop_done, &waits[0]);
	CU_ASSERT_EQUAL(loop_wait_for(&waits[0]), 0);
	nvmf_subsystem_pause(s, NVME_NSID_ALL, loop_done, &waits[1]);
	CU_ASSERT_EQUAL(loop_wait_for(&waits[1]), 0);
	CU_ASSERT_EQUAL_FATAL(nvmf_tgt_start(tgt), 0);
	CU_ASSERT_EQUAL(nvmf_subsystem_get_state(s), NVMF_SUBSYSTEM_PAUSED);
	nvmf_subsystem_resume(s, loop_done, &waits[2]);
	CU_ASSERT_EQUAL(loop_wait_for(&waits[2]), 0);
	nvmf_subsystem_pause(s, NVME_NSID_ALL, loop_done, &waits[3]);
	CU_ASSERT_EQUAL(loop_wait_for(&waits[3]), 0);
	nvmf_tgt_stop(tgt, loop_done, &waits[4]);
	CU_ASSERT_EQUAL(loop_wait_for(&waits[4]), 0);
	nvmf_tgt_destroy(tgt);
}

static void test_target_that_was_never_started_can_be_destroyed(void)
{
	struct nvmf_address address = loop_address;
	struct nvmf_subsystem_opts sopts = {.allow_any_host = true};
	struct loop_wait waits[3] = {LOOP_WAIT, LOOP_WAIT, LOOP_WAIT};
	struct nvmf_transport_opts topts;
	struct nvmf_subsystem *s, *idle;
	struct nvmf_tgt *tgt;
	uint32_t added;

	CU_ASSERT_EQUAL_FATAL(nvmf_tgt_create(&(struct nvmf_tgt_opts){.name = "never"}, &tgt), 0);
	nvmf_tgt_destroy(tgt); /* nothing was added */
	CU_ASSERT_PTR_NULL(nvmf_tgt_find("never"));

	CU_ASSERT_EQUAL_FATAL(nvmf_tgt_create(&(struct nvmf_tgt_opts){.name = "never"}, &tgt), 0);
	nvmf_transport_opts_init("LOOP", &topts);
	CU_ASSERT_EQUAL_FATAL(nvmf_transport_create(tgt, "LOOP", &topts, (char[NVMF_ERROR_MAX]){0}), 0);
	CU_ASSERT_EQUAL_FATAL(nvmf_subsystem_create(tgt, "nqn.2024-01.io.varve:never", &sopts, &s), 0);
	CU_ASSERT_EQUAL_FATAL(nvmf_subsystem_create(tgt, "nqn.2024-01.io.varve:idle", &sopts, &idle), 0);
	make_malloc("m", 512, 1024);
	CU_ASSERT_EQUAL(nvmf_subsystem_add_ns(s, "m", &(struct nvmf_ns_opts){0}, &added), 0);
	strcpy(address.trsvcid, "4499");
	CU_ASSERT_EQUAL(nvmf_subsystem_add_listener(s, &address), 0);
	nvmf_subsystem_start(s, loop_done, &waits[0]);
	CU_ASSERT_EQUAL(loop_wait_for(&waits[0]), 0);
	nvmf_subsystem_pause(s, added + 1, loop_done, &waits[1]);
	CU_ASSERT_EQUAL(loop_wait_for(&waits[1]), 0);
	nvmf_subsystem_remove_ns(s, added, loop_done, &waits[2]);
	nvmf_tgt_destroy(tgt);
	CU_ASSERT_NOT_EQUAL(loop_wait_for(&waits[2]), LOOP_PENDING);
	CU_ASSERT_PTR_NULL(nvmf_tgt_find("never"));
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m"), 0);
}

/* Those that there are, and those that are made meanwhile; each is told once. */
static void test_transports_are_told_when_hosts_may_connect(void)
{
	struct nvmf_transport_opts topts;
	struct nvmf_tgt *second;
	unsigned before = loop_resumes;

	nvmf_hold_connections(true);
	CU_ASSERT_TRUE(nvmf_transport_find(loop_tgt(), "LOOP")->held);
	CU_ASSERT_EQUAL_FATAL(nvmf_tgt_create(&(struct nvmf_tgt_opts){.name = "second"}, &second), 0);
	nvmf_transport_opts_init("LOOP", &topts);
	CU_ASSERT_EQUAL_FATAL(nvmf_transport_create(second, "LOOP", &topts, (char[NVMF_ERROR_MAX]){0}), 0);
	CU_ASSERT_TRUE(nvmf_transport_find(second, "LOOP")->held);
	CU_ASSERT_EQUAL(loop_resumes, before);
	nvmf_hold_connections(false);
	CU_ASSERT_EQUAL(loop_resumes, before + 2);
	CU_ASSERT_FALSE(nvmf_transport_find(second, "LOOP")->held);
	nvmf_hold_connections(false);
	CU_ASSERT_EQUAL(loop_resumes, before + 2);
	nvmf_tgt_destroy(second);
}

static const struct unit_test tests[] = {
	UNIT(test_transports_are_told_when_hosts_may_connect),
	UNIT(test_paused_commands_wait_and_go_on),
	UNIT(test_pause_of_one_namespace_leaves_the_others),
	UNIT(test_changes_that_are_not_possible_are_refused),
	UNIT(test_pause_waits_for_commands_under_way),
	UNIT(test_removal_waits_for_commands_under_way),
	UNIT(test_bdev_that_goes_takes_its_namespace_along),
	UNIT(test_bdev_that_goes_during_a_pause),
	UNIT(test_resized_namespace_has_new_bounds),
	UNIT(test_namespace_replaced_by_one_with_other_blocks),
	UNIT(test_disconnect_with_commands_everywhere),
	UNIT(test_pausing_under_io_loses_nothing),
	UNIT(test_namespace_that_comes_and_goes_under_io),
	UNIT(test_connections_that_break_under_io),
	UNIT(test_subsystem_that_stops_under_io),
	UNIT(test_namespace_that_one_group_has_no_room_for_is_in_none),
	UNIT(test_subsystem_that_cannot_be_started_can_be_later),
	UNIT(test_subsystem_that_was_paused_before_the_target_started_goes_on),
	UNIT(test_target_that_was_never_started_can_be_destroyed),
	UNIT_END,
};
UNIT_MAIN("nvmf_state", tests, loop_start, loop_stop)

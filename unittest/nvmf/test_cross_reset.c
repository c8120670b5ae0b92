/* SPDX-License-Identifier: BSD-3-Clause */
/* Cross-Controller Reset: names of controllers, the command, its log page and event, peers. */
#include <errno.h>
#include "unittest/nvmf/loop.h"

#define BLOCK      512
#define EVENT      (NVME_AER_NOTICE | NVME_AER_NOTICE_CROSS_CTRL_RESET << 8 | NVME_LOG_LID_CROSS_CTRL_RESET << 16)
#define IMMEDIATE  NVME_CROSS_CTRL_RESET_IMMEDIATE
#define FOREIGN(n) ((struct nvmf_ctrlr_name){.cntlid = (uint16_t)(n), .ciu = 1, .cirn = UINT64_C(0x1122334400000001)})
#define LOG_HEADER 8

static uint8_t data[4096] __attribute__((aligned(8)));
static struct loop_conn *asker, *impacted;
static struct nvme_cross_ctrl_reset_log page;

static void attach(void)
{
	asker = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
	impacted = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
	CU_ASSERT_FATAL(asker != NULL && impacted != NULL);
}

/* The name of a controller as its host reads it. */
static struct nvmf_ctrlr_name name_of(struct loop_conn *c)
{
	struct nvmf_ctrlr_name name = {.cntlid = c->cntlid};

	CU_ASSERT_EQUAL(loop_identify(c, NVME_IDENTIFY_CNS_CTRL, 0, 0, data), 0);
	name.ciu = data[135];
	memcpy(&name.cirn, data + 136, 8);
	name.cirn = le64toh(name.cirn);
	return name;
}

static void cmd_init(struct loop_cmd *cmd, struct loop_conn *c, const struct nvmf_ctrlr_name *name)
{
	loop_cmd_init(cmd, c, NVME_ADMIN_CROSS_CTRL_RESET, 0);
	cmd->sqe.cdw10 = htole32(name->cntlid | (uint32_t)name->ciu << 16);
	cmd->sqe.cdw12 = htole32((uint32_t)name->cirn);
	cmd->sqe.cdw13 = htole32((uint32_t)(name->cirn >> 32));
}

/* Sends the command and waits: its status, and dword 0. */
static uint16_t reset(struct loop_conn *c, const struct nvmf_ctrlr_name *name, uint32_t *dw0)
{
	struct loop_cmd cmd;

	cmd_init(&cmd, c, name);
	uint16_t status = loop_run(&cmd);
	*dw0 = le32toh(cmd.cqe.dw0);
	return status;
}

/* Reads the page: the number of entries. */
static unsigned read_page(struct loop_conn *c, bool rmc)
{
	struct loop_cmd cmd;

	memset(&page, 0xa5, sizeof(page));
	loop_cmd_init(&cmd, c, nvme_admin_get_log_page, 0);
	cmd.sqe.cdw10 = htole32(NVME_LOG_LID_CROSS_CTRL_RESET | (uint32_t)rmc << 8 | (sizeof(page) / 4 - 1) << 16);
	loop_cmd_data(&cmd, &page, sizeof(page));
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	return le16toh(page.ne);
}

static void arm(struct loop_cmd *aer)
{
	loop_cmd_init(aer, asker, nvme_admin_async_event, 0);
	loop_submit(aer);
}

static void wait_event(struct loop_cmd *aer)
{
	CU_ASSERT_EQUAL(loop_wait(aer), 0);
	CU_ASSERT_EQUAL(le32toh(aer->cqe.dw0), EVENT);
}

static void expect_entry(unsigned i, const struct nvmf_ctrlr_name *name, uint8_t ccrs, uint8_t ccrf)
{
	CU_ASSERT_EQUAL(le16toh(page.entries[i].icid), name->cntlid);
	CU_ASSERT_EQUAL(page.entries[i].ciu, name->ciu);
	CU_ASSERT_EQUAL(page.entries[i].rsvd3, 0);
	CU_ASSERT_EQUAL(le16toh(page.entries[i].acid), 0xffff);
	CU_ASSERT_EQUAL(page.entries[i].ccrs, ccrs);
	CU_ASSERT_EQUAL(page.entries[i].ccrf, ccrf);
}

/* ---- A bdev that keeps what it gets ---- */

static struct testdev *dev;
static uint32_t nsid;
static struct loop_conn *io;
static struct loop_cmd stuck;

static void stick(void)
{
	dev = testdev_new("slow", BLOCK, 1024);
	dev->hold = true;
	dev->deaf = true;
	CU_ASSERT_EQUAL_FATAL(testdev_register(dev), 0);
	nsid = loop_add_ns("slow", 0);
	attach();
	io = loop_io_queue(impacted, 1);
	CU_ASSERT_PTR_NOT_NULL_FATAL(io);
	loop_cmd_init(&stuck, io, nvme_cmd_write, nsid);
	loop_cmd_data(&stuck, data, BLOCK);
	loop_submit(&stuck);
	CU_ASSERT_TRUE(fixture_wait_count(&dev->held, 1));
}

static void unstick(void)
{
	struct user u;

	dev->hold = false;
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "slow", false, io->thread), 0);
	testdev_release(dev, &u, 0);
	user_close(&u);
}

static void unstuck_detach(void)
{
	loop_wait(&stuck);
	loop_close(io);
	loop_close(impacted);
	if (asker != NULL) {
		loop_close(asker);
	}
	loop_remove_ns(nsid);
	CU_ASSERT_TRUE(testdev_delete(dev));
}

static void detach(void)
{
	loop_close(impacted);
	loop_close(asker);
}

/* ---- Peers that the test plays ---- */

static struct question {
	struct nvmf_ctrlr_name name;
	char path[64];
	void (*done)(void *arg, enum nvmf_peer_answer answer, const char *why);
	void *arg;
	bool open;
} questions[64];
static atomic_uint num_questions;
static unsigned cancelled;
static bool no_memory;

static void *ask(const struct nvmf_peer_question *q,
		 void (*done)(void *arg, enum nvmf_peer_answer answer, const char *why), void *arg)
{
	struct question *mine = &questions[num_questions];

	if (no_memory) {
		return NULL;
	}
	CU_ASSERT_STRING_EQUAL(q->nqn, LOOP_SUBNQN);
	CU_ASSERT_STRING_EQUAL(q->hostnqn, LOOP_HOSTNQN);
	*mine = (struct question){.name = q->name, .done = done, .arg = arg, .open = true};
	snprintf(mine->path, sizeof(mine->path), "%s", q->path);
	atomic_fetch_add(&num_questions, 1);
	return mine;
}

static void cancel(void *handle)
{
	struct question *q = handle;

	CU_ASSERT_TRUE(q->open);
	q->open = false;
	cancelled++;
}

static const struct nvmf_peer_ops ops = {.ask = ask, .cancel = cancel};

static void reply(unsigned i, enum nvmf_peer_answer answer)
{
	CU_ASSERT_TRUE_FATAL(questions[i].open);
	questions[i].open = false;
	questions[i].done(questions[i].arg, answer, "the test says so");
}

static void peers_begin(unsigned num)
{
	static const char *const paths[] = {"/run/a.sock", "/run/b.sock"};

	nvmf_set_peer_ops(&ops);
	atomic_store(&num_questions, 0);
	cancelled = 0;
	for (unsigned i = 0; i < num; i++) {
		CU_ASSERT_EQUAL(nvmf_subsystem_add_peer(loop_subsystem(), paths[i], 0), 0);
	}
	attach();
}

static void peers_end(void)
{
	nvmf_subsystem_remove_peer(loop_subsystem(), "/run/a.sock");
	nvmf_subsystem_remove_peer(loop_subsystem(), "/run/b.sock");
	CU_ASSERT_PTR_NULL(nvmf_peer_next(loop_subsystem(), NULL));
	for (unsigned i = 0; i < num_questions; i++) {
		CU_ASSERT_FALSE(questions[i].open);
	}
	nvmf_set_peer_ops(NULL);
}

/* ---- Names ---- */

static void test_controllers_have_names(void)
{
	attach();
	struct nvmf_ctrlr_name a = name_of(asker), b = name_of(impacted);
	CU_ASSERT_EQUAL(data[1807], NVMF_CROSS_RESETS_MAX);
	CU_ASSERT(a.ciu != 0 && a.cirn != 0 && b.ciu != 0 && b.cirn != 0);
	CU_ASSERT_EQUAL(a.cirn >> 32, b.cirn >> 32);
	CU_ASSERT_NOT_EQUAL(a.cirn, b.cirn);
	detach();
	struct loop_conn *d = loop_attach("nqn.2014-08.org.nvmexpress.discovery", LOOP_HOSTNQN, 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(d);
	struct nvmf_ctrlr_name none = name_of(d);
	uint32_t dw0;
	CU_ASSERT(none.ciu == 0 && none.cirn == 0 && data[1807] == 0);
	CU_ASSERT_EQUAL(reset(d, &b, &dw0), NVME_ST_DNR(GENERIC, INVALID_OPCODE));
	CU_ASSERT_EQUAL(loop_get_log(d, NVME_LOG_LID_CROSS_CTRL_RESET, true, 0, data, 64),
			NVME_ST_DNR(CMD_SPECIFIC, INVALID_LOG_PAGE));
	loop_close(d);
}

static void test_an_id_that_is_used_again_has_another_ciu(void)
{
	struct nvmf_subsystem *s = loop_subsystem();
	uint16_t min = s->min_cntlid, max = s->max_cntlid, next = s->next_cntlid;
	uint64_t cirn = 0;

	s->min_cntlid = s->max_cntlid = s->next_cntlid = 60000;
	uint8_t *cius = s->cius;
	s->cius = NULL;
	for (unsigned i = 0; i < 257; i++) {
		struct loop_conn *c = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
		CU_ASSERT_PTR_NOT_NULL_FATAL(c);
		struct nvmf_ctrlr_name name = name_of(c);
		CU_ASSERT_EQUAL(name.cntlid, 60000);
		CU_ASSERT_EQUAL(name.ciu, i % 255 + 1);
		CU_ASSERT_NOT_EQUAL(name.cirn, cirn);
		cirn = name.cirn;
		loop_close(c);
	}
	free(s->cius);
	s->cius = cius;
	s->min_cntlid = min;
	s->max_cntlid = max;
	s->next_cntlid = next;
}

/* ---- Controllers of this process ---- */

static void test_an_idle_controller_is_reset_at_once(void)
{
	uint32_t dw0;

	attach();
	struct nvmf_ctrlr_name name = name_of(impacted);
	CU_ASSERT_EQUAL(reset(asker, &name, &dw0), 0);
	CU_ASSERT_EQUAL(dw0, IMMEDIATE);
	CU_ASSERT_TRUE(loop_wait_closed(impacted));
	CU_ASSERT_PTR_NULL(nvmf_ctrlr_find(loop_subsystem(), name.cntlid));
	CU_ASSERT_EQUAL(read_page(asker, false), 0);
	/* It is gone: that stays true. */
	CU_ASSERT_EQUAL(reset(asker, &name, &dw0), 0);
	CU_ASSERT_EQUAL(dw0, IMMEDIATE);
	detach();
}

static bool can_be_enabled(void *arg)
{
	uint64_t csts = 0;

	CU_ASSERT_EQUAL(loop_property_get(impacted, NVME_REG_CSTS, 4, &csts), 0);
	return NVME_CSTS_RDY(csts) == 0;
}

/* By its old name it is gone; a late reset by that name must not end what the host uses now. */
static void test_a_controller_that_is_enabled_again_is_another_instance(void)
{
	uint32_t dw0;

	attach();
	struct nvmf_ctrlr_name old = name_of(impacted);
	CU_ASSERT_EQUAL(loop_property_set(impacted, NVME_REG_CC, 4, LOOP_CC_ENABLE & ~1u), 0);
	CU_ASSERT_TRUE(fixture_poll(can_be_enabled, NULL));
	CU_ASSERT_EQUAL(loop_property_set(impacted, NVME_REG_CC, 4, LOOP_CC_ENABLE), 0);
	struct nvmf_ctrlr_name name = name_of(impacted);
	CU_ASSERT_EQUAL(name.cntlid, old.cntlid);
	CU_ASSERT_EQUAL(name.ciu, old.ciu + 1);
	CU_ASSERT_NOT_EQUAL(name.cirn, old.cirn);
	CU_ASSERT_EQUAL(name.cirn >> 32, old.cirn >> 32);
	CU_ASSERT_EQUAL(reset(asker, &old, &dw0), 0);
	CU_ASSERT_EQUAL(dw0, IMMEDIATE);
	CU_ASSERT_EQUAL(loop_identify(impacted, NVME_IDENTIFY_CNS_CTRL, 0, 0, data), 0); /* it lives */
	CU_ASSERT_EQUAL(reset(asker, &name, &dw0), 0);
	CU_ASSERT_EQUAL(dw0, IMMEDIATE);
	CU_ASSERT_TRUE(loop_wait_closed(impacted));
	detach();
}

static void test_who_may_reset_what(void)
{
	const struct loop_host other = {
		.address = &loop_address, .subnqn = LOOP_SUBNQN, .hostnqn = LOOP_HOSTNQN, .hostid = 77};
	uint32_t dw0;

	attach();
	struct nvmf_ctrlr_name self = name_of(asker), name = name_of(impacted), wrong = name;
	struct loop_conn *b = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN ":b", 0), *c = loop_attach_as(&other);
	CU_ASSERT_FATAL(b != NULL && c != NULL);
	CU_ASSERT_EQUAL(reset(b, &name, &dw0), NVME_ST_DNR(GENERIC, INVALID_FIELD)); /* another host NQN */
	CU_ASSERT_EQUAL(reset(c, &name, &dw0), NVME_ST_DNR(GENERIC, INVALID_FIELD)); /* another host identifier */
	CU_ASSERT_EQUAL(reset(asker, &self, &dw0), NVME_ST_DNR(GENERIC, INVALID_FIELD));
	wrong.cirn ^= 1;
	CU_ASSERT_EQUAL(reset(asker, &wrong, &dw0), NVME_ST_DNR(GENERIC, INVALID_FIELD));
	wrong = name;
	wrong.ciu = 0;
	CU_ASSERT_EQUAL(reset(asker, &wrong, &dw0), NVME_ST_DNR(GENERIC, INVALID_FIELD));
	wrong = name; /* the rest of the name says that it is not gone */
	wrong.ciu++;
	CU_ASSERT_EQUAL(reset(asker, &wrong, &dw0), NVME_ST_DNR(GENERIC, INVALID_FIELD));
	wrong = name;
	wrong.cntlid += 1000;
	CU_ASSERT_EQUAL(reset(asker, &wrong, &dw0), NVME_ST_DNR(GENERIC, INVALID_FIELD));
	CU_ASSERT_EQUAL(loop_identify(impacted, NVME_IDENTIFY_CNS_CTRL, 0, 0, data), 0); /* it lives */
	CU_ASSERT_EQUAL(read_page(asker, false), 0);
	loop_close(b);
	loop_close(c);
	detach();
}

static void test_a_stuck_controller_stays_in_progress_until_it_is_gone(void)
{
	struct loop_cmd aer;
	uint32_t dw0;

	stick();
	arm(&aer);
	struct nvmf_ctrlr_name name = name_of(impacted);
	CU_ASSERT_EQUAL(reset(asker, &name, &dw0), 0);
	CU_ASSERT_EQUAL(dw0, 0);
	CU_ASSERT_EQUAL(read_page(asker, true), 1); /* RMC removes only what is completed */
	expect_entry(0, &name, NVME_CROSS_CTRL_RESET_CCRS_IN_PROGRESS, 3);
	CU_ASSERT_EQUAL(reset(asker, &name, &dw0), NVME_ST(CMD_SPECIFIC, CROSS_CTRL_RESET_IN_PROGRESS));
	CU_ASSERT_FALSE(atomic_load(&aer.done));
	struct loop_conn *third = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0); /* others are not disturbed */
	CU_ASSERT_PTR_NOT_NULL_FATAL(third);
	struct nvmf_ctrlr_name other = name_of(third);
	CU_ASSERT_EQUAL(reset(asker, &other, &dw0), 0);
	CU_ASSERT_EQUAL(dw0, IMMEDIATE);
	loop_close(third);
	unstick();
	wait_event(&aer);
	CU_ASSERT_PTR_NULL(nvmf_ctrlr_find(loop_subsystem(), name.cntlid));
	CU_ASSERT_EQUAL(read_page(asker, false), 1);
	expect_entry(0, &name, NVME_CROSS_CTRL_RESET_CCRS_SUCCESS, 3);
	CU_ASSERT_EQUAL(read_page(asker, true), 1);
	CU_ASSERT_EQUAL(read_page(asker, false), 0);
	unstuck_detach();
}

static bool no_entries(void *arg)
{
	struct nvmf_ctrlr *c = nvmf_ctrlr_find(loop_subsystem(), *(uint16_t *)arg);

	return c == NULL || c->cross_resets.num == 0;
}

static bool is_gone(void *arg)
{
	return nvmf_ctrlr_find(loop_subsystem(), *(uint16_t *)arg) == NULL;
}

static void test_the_asker_may_end_first(void)
{
	uint32_t dw0;

	stick();
	struct nvmf_ctrlr_name name = name_of(impacted);
	CU_ASSERT_EQUAL(reset(asker, &name, &dw0), 0);
	CU_ASSERT_EQUAL(dw0, 0);
	loop_close(asker);
	asker = NULL;
	unstick();
	CU_ASSERT_TRUE(loop_until(is_gone, &name.cntlid));
	unstuck_detach();
}

static void test_entries_vanish_when_the_asker_is_reset(void)
{
	struct loop_cmd cmd;
	uint32_t dw0;

	stick();
	struct nvmf_ctrlr_name name = name_of(impacted);
	/* While the command is held back, too. */
	nvmf_ctrlr_find(loop_subsystem(), asker->cntlid)->cross_resets.hold_us = 1000000000;
	cmd_init(&cmd, asker, &name);
	loop_submit(&cmd);
	CU_ASSERT_EQUAL(loop_property_set(asker, NVME_REG_CC, 4, LOOP_CC_ENABLE & ~1u), 0);
	CU_ASSERT_EQUAL(loop_wait(&cmd), NVME_ST(GENERIC, ABORT_QUEUE));
	CU_ASSERT_TRUE(loop_until(no_entries, &asker->cntlid));
	CU_ASSERT_EQUAL(loop_property_set(asker, NVME_REG_CC, 4, LOOP_CC_ENABLE), 0);
	CU_ASSERT_EQUAL(read_page(asker, false), 0);
	nvmf_ctrlr_find(loop_subsystem(), asker->cntlid)->cross_resets.hold_us = 1;
	CU_ASSERT_EQUAL(reset(asker, &name, &dw0), 0); /* asked again, it is waited for again */
	CU_ASSERT_EQUAL(read_page(asker, false), 1);
	unstick();
	CU_ASSERT_TRUE(loop_until(is_gone, &name.cntlid));
	CU_ASSERT_EQUAL(read_page(asker, false), 1);
	expect_entry(0, &name, NVME_CROSS_CTRL_RESET_CCRS_SUCCESS, 3);
	unstuck_detach();
}

static void test_two_controllers_that_reset_each_other(void)
{
	struct loop_cmd a, b;

	attach();
	struct nvmf_ctrlr_name first = name_of(asker), second = name_of(impacted);
	cmd_init(&a, asker, &second);
	cmd_init(&b, impacted, &first);
	loop_submit(&a);
	loop_submit(&b);
	uint16_t status = loop_wait(&a);
	CU_ASSERT(status == 0 || loop_given_up(status));
	loop_wait(&b);
	/* At least one of them is gone. */
	CU_ASSERT(nvmf_ctrlr_find(loop_subsystem(), first.cntlid) == NULL ||
		  nvmf_ctrlr_find(loop_subsystem(), second.cntlid) == NULL);
	detach();
}

static void test_a_disabled_event_is_not_sent(void)
{
	struct loop_cmd aer;
	const struct nvmf_ctrlr_name name = FOREIGN(1);
	uint32_t dw0, value;

	attach();
	CU_ASSERT_EQUAL(loop_get_feature(asker, NVME_FEAT_FID_ASYNC_EVENT, 0, &value), 0);
	CU_ASSERT_EQUAL(value & 1u << 20, 1u << 20);
	CU_ASSERT_EQUAL(loop_set_feature(asker, NVME_FEAT_FID_ASYNC_EVENT, value & ~(1u << 20), NULL), 0);
	arm(&aer);
	CU_ASSERT_EQUAL(reset(asker, &name, &dw0), 0);
	CU_ASSERT_EQUAL(read_page(asker, false), 1);
	CU_ASSERT_FALSE(atomic_load(&aer.done));
	detach();
	CU_ASSERT_TRUE(loop_given_up(loop_wait(&aer)));
}

/* ---- Limits and the page ---- */

static void test_a_full_page_refuses_until_it_is_read(void)
{
	uint32_t dw0;

	attach();
	for (unsigned i = 1; i <= NVME_CROSS_CTRL_RESET_ENTRIES; i++) {
		const struct nvmf_ctrlr_name name = FOREIGN(i);
		CU_ASSERT_EQUAL_FATAL(reset(asker, &name, &dw0), 0);
		CU_ASSERT_EQUAL(dw0, 0);
	}
	const struct nvmf_ctrlr_name more = FOREIGN(600);
	CU_ASSERT_EQUAL(reset(asker, &more, &dw0), NVME_ST(CMD_SPECIFIC, CROSS_CTRL_RESET_LOG_FULL));
	/* Entries 1 and 2 of the page alone: those are removed. */
	struct loop_cmd cmd;
	struct nvme_cross_ctrl_reset_entry two[2];
	loop_cmd_init(&cmd, asker, nvme_admin_get_log_page, 0);
	cmd.sqe.cdw10 = htole32(NVME_LOG_LID_CROSS_CTRL_RESET | 1u << 8 | (sizeof(two) / 4 - 1) << 16);
	cmd.sqe.cdw12 = htole32(LOG_HEADER + 8);
	loop_cmd_data(&cmd, two, sizeof(two));
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	CU_ASSERT(le16toh(two[0].icid) == 2 && le16toh(two[1].icid) == 3);
	CU_ASSERT_EQUAL(read_page(asker, false), NVME_CROSS_CTRL_RESET_ENTRIES - 2);
	CU_ASSERT_EQUAL(le16toh(page.entries[0].icid), 1);
	CU_ASSERT_EQUAL(le16toh(page.entries[1].icid), 4);
	expect_entry(508, &FOREIGN(511), NVME_CROSS_CTRL_RESET_CCRS_FAILED, 0);
	CU_ASSERT_EQUAL(page.entries[509].ciu, 0);
	CU_ASSERT_EQUAL(loop_get_log(asker, NVME_LOG_LID_CROSS_CTRL_RESET, false, sizeof(page), data, 8), 0);
	CU_ASSERT_EQUAL(loop_get_log(asker, NVME_LOG_LID_CROSS_CTRL_RESET, false, sizeof(page) + 4, data, 8),
			NVME_ST_DNR(GENERIC, INVALID_FIELD));
	CU_ASSERT_EQUAL(read_page(asker, true), NVME_CROSS_CTRL_RESET_ENTRIES - 2);
	CU_ASSERT_EQUAL(read_page(asker, false), 0);
	CU_ASSERT_EQUAL(reset(asker, &more, &dw0), 0);
	detach();
}

/* ---- Controllers of other processes ---- */

static void test_without_peers_a_foreign_controller_cannot_be_reset(void)
{
	struct loop_cmd aer;
	const struct nvmf_ctrlr_name name = FOREIGN(1);
	uint32_t dw0;

	attach();
	arm(&aer);
	CU_ASSERT_EQUAL(reset(asker, &name, &dw0), 0);
	CU_ASSERT_EQUAL(dw0, 0);
	wait_event(&aer);
	CU_ASSERT_EQUAL(read_page(asker, true), 1);
	expect_entry(0, &name, NVME_CROSS_CTRL_RESET_CCRS_FAILED, 0);
	detach();
}

static void test_a_peer_that_ends_the_controller(void)
{
	struct loop_cmd cmd, aer;
	struct nvmf_ctrlr_name name = FOREIGN(5);

	peers_begin(2);
	name.cntlid = asker->cntlid; /* ids of different processes may be equal */
	nvmf_ctrlr_find(loop_subsystem(), asker->cntlid)->cross_resets.hold_us = 1000000000;
	cmd_init(&cmd, asker, &name);
	loop_submit(&cmd);
	CU_ASSERT_TRUE(fixture_wait_count(&num_questions, 2));
	CU_ASSERT_STRING_EQUAL(questions[1].path, "/run/b.sock");
	CU_ASSERT(questions[0].name.cirn == name.cirn && questions[0].name.cntlid == name.cntlid);
	reply(0, NVMF_PEER_UNKNOWN);
	CU_ASSERT_FALSE(atomic_load(&cmd.done));
	reply(1, NVMF_PEER_ENDED);
	CU_ASSERT_EQUAL(loop_wait(&cmd), 0);
	CU_ASSERT_EQUAL(le32toh(cmd.cqe.dw0), IMMEDIATE);
	CU_ASSERT_EQUAL(cancelled, 0);
	/* Later, and the other is not waited for. */
	nvmf_ctrlr_find(loop_subsystem(), asker->cntlid)->cross_resets.hold_us = 1;
	arm(&aer);
	cmd_init(&cmd, asker, &name);
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	CU_ASSERT_EQUAL(le32toh(cmd.cqe.dw0), 0);
	CU_ASSERT_EQUAL(read_page(asker, true), 1);
	expect_entry(0, &name, NVME_CROSS_CTRL_RESET_CCRS_IN_PROGRESS, 0);
	reply(2, NVMF_PEER_ENDED);
	CU_ASSERT_EQUAL(cancelled, 1);
	wait_event(&aer);
	CU_ASSERT_EQUAL(read_page(asker, true), 1);
	expect_entry(0, &name, NVME_CROSS_CTRL_RESET_CCRS_SUCCESS, 3);
	const struct nvmf_peer *a = nvmf_peer_next(loop_subsystem(), NULL);
	CU_ASSERT_EQUAL(nvmf_peer_get_counts(a)->answers[NVMF_PEER_ENDED], 1);
	CU_ASSERT_EQUAL(nvmf_peer_get_counts(a)->answers[NVMF_PEER_UNKNOWN], 1);
	detach();
	peers_end();
}

static void expect_failure(struct loop_cmd *aer, const struct nvmf_ctrlr_name *name)
{
	wait_event(aer);
	CU_ASSERT_EQUAL(read_page(asker, true), 1);
	expect_entry(0, name, NVME_CROSS_CTRL_RESET_CCRS_FAILED, 0);
	CU_ASSERT_EQUAL(read_page(asker, true), 0);
}

static void test_peers_that_prove_nothing_are_no_success(void)
{
	struct loop_cmd aer;
	const struct nvmf_ctrlr_name name = FOREIGN(5);
	uint32_t dw0;

	peers_begin(2);
	nvmf_ctrlr_find(loop_subsystem(), asker->cntlid)->cross_resets.hold_us = 1;
	for (unsigned i = 0; i < 2; i++) { /* unknown to both; unknown to one, and the other fails */
		arm(&aer);
		CU_ASSERT_EQUAL(reset(asker, &name, &dw0), 0);
		CU_ASSERT_EQUAL(dw0, 0);
		reply(2 * i, NVMF_PEER_UNKNOWN);
		CU_ASSERT_EQUAL(read_page(asker, false), 1);
		expect_entry(0, &name, NVME_CROSS_CTRL_RESET_CCRS_IN_PROGRESS, 0);
		reply(2 * i + 1, i == 0 ? NVMF_PEER_UNKNOWN : NVMF_PEER_FAILED);
		expect_failure(&aer, &name);
	}
	no_memory = true;
	arm(&aer);
	CU_ASSERT_EQUAL(reset(asker, &name, &dw0), 0);
	CU_ASSERT_EQUAL(dw0, 0);
	expect_failure(&aer, &name);
	no_memory = false;
	detach();
	peers_end();
}

static void test_a_peer_is_removed_while_it_is_asked(void)
{
	struct loop_cmd aer;
	const struct nvmf_ctrlr_name name = FOREIGN(5);
	uint32_t dw0;

	peers_begin(2);
	nvmf_ctrlr_find(loop_subsystem(), asker->cntlid)->cross_resets.hold_us = 1;
	arm(&aer);
	CU_ASSERT_EQUAL(reset(asker, &name, &dw0), 0);
	CU_ASSERT_EQUAL(nvmf_subsystem_remove_peer(loop_subsystem(), "/run/a.sock"), 0);
	CU_ASSERT_EQUAL(cancelled, 1);
	CU_ASSERT_EQUAL(read_page(asker, false), 1);
	expect_entry(0, &name, NVME_CROSS_CTRL_RESET_CCRS_IN_PROGRESS, 0);
	CU_ASSERT_EQUAL(nvmf_subsystem_remove_peer(loop_subsystem(), "/run/b.sock"), 0);
	CU_ASSERT_EQUAL(cancelled, 2);
	expect_failure(&aer, &name);
	CU_ASSERT_EQUAL(nvmf_subsystem_remove_peer(loop_subsystem(), "/run/b.sock"), -ENOENT);
	detach();
	peers_end();
}

static void test_peers_are_not_asked_for_an_asker_that_is_gone(void)
{
	struct loop_cmd cmd;
	const struct nvmf_ctrlr_name name = FOREIGN(5);

	peers_begin(2);
	nvmf_ctrlr_find(loop_subsystem(), asker->cntlid)->cross_resets.hold_us = 1000000000;
	cmd_init(&cmd, asker, &name);
	loop_submit(&cmd);
	CU_ASSERT_TRUE(fixture_wait_count(&num_questions, 2));
	loop_close(asker);
	CU_ASSERT_TRUE(loop_given_up(loop_wait(&cmd)));
	CU_ASSERT_EQUAL(cancelled, 2);
	CU_ASSERT_EQUAL(loop_subsystem()->peer_requests, 0);
	loop_close(impacted);
	peers_end();
}

static void test_resets_in_progress_are_limited(void)
{
	const struct nvmf_ctrlr_name more = FOREIGN(100);
	uint32_t dw0;

	peers_begin(1);
	nvmf_ctrlr_find(loop_subsystem(), asker->cntlid)->cross_resets.hold_us = 1;
	for (unsigned i = 1; i <= NVMF_CROSS_RESETS_MAX; i++) {
		const struct nvmf_ctrlr_name name = FOREIGN(i);
		CU_ASSERT_EQUAL(reset(asker, &name, &dw0), 0);
	}
	CU_ASSERT_EQUAL(reset(asker, &more, &dw0), NVME_ST(CMD_SPECIFIC, CROSS_CTRL_RESET_LIMIT));
	reply(3, NVMF_PEER_UNKNOWN);
	CU_ASSERT_EQUAL(reset(asker, &more, &dw0), 0);
	CU_ASSERT_EQUAL(read_page(asker, false), NVMF_CROSS_RESETS_MAX + 1);
	detach();
	peers_end();
}

static void test_peers_are_checked(void)
{
	struct nvmf_subsystem *s = loop_subsystem();
	char path[NVMF_PEER_PATH_MAX + 2];

	memset(path, '/', sizeof(path));
	path[NVMF_PEER_PATH_MAX + 1] = 0;
	CU_ASSERT_EQUAL(nvmf_subsystem_add_peer(s, path, 0), -EINVAL);
	CU_ASSERT_EQUAL(nvmf_subsystem_add_peer(s, "", 0), -EINVAL);
	CU_ASSERT_EQUAL(nvmf_subsystem_add_peer(s, "varve.sock", 0), -EINVAL);
	path[NVMF_PEER_PATH_MAX] = 0;
	CU_ASSERT_EQUAL(nvmf_subsystem_add_peer(s, path, 500), 0);
	CU_ASSERT_EQUAL(nvmf_subsystem_add_peer(s, path, 0), -EEXIST);
	CU_ASSERT_EQUAL(nvmf_peer_timeout_ms(nvmf_peer_next(s, NULL)), 500);
	CU_ASSERT_STRING_EQUAL(nvmf_peer_path(nvmf_peer_next(s, NULL)), path);
	CU_ASSERT_EQUAL(nvmf_subsystem_remove_peer(s, path), 0);
	CU_ASSERT_EQUAL(nvmf_subsystem_add_peer(nvmf_subsystem_next(loop_tgt(), NULL), "/a", 0), -EOPNOTSUPP);
}

/* ---- What a peer may ask ---- */

static unsigned num_done;

static void count_done(void *arg, int status)
{
	num_done++;
}

static void test_a_peer_resets_a_controller(void)
{
	struct nvmf_subsystem *s = loop_subsystem();
	struct loop_wait first = LOOP_WAIT, second = LOOP_WAIT, again = LOOP_WAIT;
	const struct nvmf_ctrlr_name foreign = FOREIGN(1);
	uint8_t hostid[16];

	stick();
	struct nvmf_ctrlr_name name = name_of(impacted), wrong = name;
	memcpy(hostid, nvmf_ctrlr_find(s, name.cntlid)->hostid, sizeof(hostid));
	CU_ASSERT_EQUAL(nvmf_subsystem_reset_ctrlr(s, &foreign, LOOP_HOSTNQN, hostid, loop_done, &first), -ENOENT);
	CU_ASSERT_EQUAL(nvmf_subsystem_reset_ctrlr(s, &name, LOOP_HOSTNQN "x", hostid, loop_done, &first), -EACCES);
	wrong.cirn++;
	CU_ASSERT_EQUAL(nvmf_subsystem_reset_ctrlr(s, &wrong, LOOP_HOSTNQN, hostid, loop_done, &first), -EINVAL);
	wrong = name;
	wrong.ciu++;
	CU_ASSERT_EQUAL(nvmf_subsystem_reset_ctrlr(s, &wrong, LOOP_HOSTNQN, hostid, loop_done, &first), -EINVAL);
	hostid[0]++;
	CU_ASSERT_EQUAL(nvmf_subsystem_reset_ctrlr(s, &name, LOOP_HOSTNQN, hostid, loop_done, &first), -EACCES);
	hostid[0]--;
	CU_ASSERT_EQUAL(loop_identify(impacted, NVME_IDENTIFY_CNS_CTRL, 0, 0, data), 0); /* it lives */
	CU_ASSERT_EQUAL(nvmf_subsystem_reset_ctrlr(s, &name, LOOP_HOSTNQN, hostid, loop_done, &first), 0);
	CU_ASSERT_EQUAL(nvmf_subsystem_reset_ctrlr(s, &name, LOOP_HOSTNQN, hostid, loop_done, &second), 0);
	CU_ASSERT_EQUAL(loop_identify(asker, NVME_IDENTIFY_CNS_CTRL, 0, 0, data), 0);
	CU_ASSERT(first.status == LOOP_PENDING && second.status == LOOP_PENDING);
	unsigned more = 0; /* peers that give up and ask again do not pile up */
	while (more < 1000 && nvmf_subsystem_reset_ctrlr(s, &name, LOOP_HOSTNQN, hostid, count_done, NULL) == 0) {
		more++;
	}
	CU_ASSERT_EQUAL(more, 62);
	uint32_t dw0;
	CU_ASSERT_EQUAL(reset(asker, &name, &dw0), NVME_ST(CMD_SPECIFIC, CROSS_CTRL_RESET_LIMIT));
	CU_ASSERT_EQUAL(read_page(asker, false), 0);
	unstick();
	CU_ASSERT_EQUAL(loop_wait_for(&first), 0);
	CU_ASSERT_EQUAL(num_done, more);
	CU_ASSERT_EQUAL(loop_wait_for(&second), 0);
	CU_ASSERT_EQUAL(nvmf_subsystem_reset_ctrlr(s, &name, LOOP_HOSTNQN, hostid, loop_done, &again), 0);
	CU_ASSERT_EQUAL(again.status, 0);
	unstuck_detach();
}

static const struct unit_test tests[] = {
	UNIT(test_controllers_have_names),
	UNIT(test_an_id_that_is_used_again_has_another_ciu),
	UNIT(test_an_idle_controller_is_reset_at_once),
	UNIT(test_a_controller_that_is_enabled_again_is_another_instance),
	UNIT(test_who_may_reset_what),
	UNIT(test_a_stuck_controller_stays_in_progress_until_it_is_gone),
	UNIT(test_the_asker_may_end_first),
	UNIT(test_entries_vanish_when_the_asker_is_reset),
	UNIT(test_two_controllers_that_reset_each_other),
	UNIT(test_a_disabled_event_is_not_sent),
	UNIT(test_a_full_page_refuses_until_it_is_read),
	UNIT(test_without_peers_a_foreign_controller_cannot_be_reset),
	UNIT(test_a_peer_that_ends_the_controller),
	UNIT(test_peers_that_prove_nothing_are_no_success),
	UNIT(test_a_peer_is_removed_while_it_is_asked),
	UNIT(test_peers_are_not_asked_for_an_asker_that_is_gone),
	UNIT(test_resets_in_progress_are_limited),
	UNIT(test_peers_are_checked),
	UNIT(test_a_peer_resets_a_controller),
	UNIT_END,
};

UNIT_MAIN("nvmf_cross_reset", tests, loop_start, loop_stop)

/* SPDX-License-Identifier: BSD-3-Clause */
/* Asymmetric namespace access: what hosts are told through two listeners, and what they may do there. */
#include "unittest/nvmf/loop.h"

#define ANA_SUBNQN "nqn.2024-01.io.varve:ana"

static uint8_t data[LOOP_MAX_IO] __attribute__((aligned(8)));
static struct nvmf_subsystem *s;
static struct loop_conn *here, *there, *here_io, *there_io; /* one host's two paths */

static uint64_t le(size_t offset, unsigned bytes)
{
	uint64_t v = 0;

	for (unsigned i = bytes; i-- > 0;) {
		v = v << 8 | data[offset + i];
	}
	return v;
}

static void add_ns(const char *name, uint32_t nsid, uint32_t anagrpid, bool hidden)
{
	struct nvmf_ns_opts opts = {.nsid = nsid, .anagrpid = anagrpid, .no_auto_visible = hidden};
	uint32_t got;

	make_malloc(name, 512, 1000);
	CU_ASSERT_EQUAL_FATAL(nvmf_subsystem_add_ns(s, name, &opts, &got), 0);
}

static struct loop_conn *attach_at(const struct nvmf_address *address, struct loop_conn **io)
{
	struct loop_conn *c = loop_attach_as(&(struct loop_host){address, ANA_SUBNQN, LOOP_HOSTNQN, 0x42, 0});

	CU_ASSERT_PTR_NOT_NULL_FATAL(c);
	*io = loop_io_queue(c, 1);
	CU_ASSERT_PTR_NOT_NULL_FATAL(*io);
	return c;
}

/* Namespaces 1 and 4 in group 1, 2 in group 2, hidden 3 in group 3. */
static void setup(void)
{
	struct nvmf_subsystem_opts opts = {.max_namespaces = 8, .allow_any_host = true, .ana_reporting = true};
	struct loop_wait wait = LOOP_WAIT;

	CU_ASSERT_EQUAL_FATAL(nvmf_subsystem_create(loop_tgt(), ANA_SUBNQN, &opts, &s), 0);
	nvmf_subsystem_start(s, loop_done, &wait);
	CU_ASSERT_EQUAL_FATAL(loop_wait_for(&wait), 0);
	CU_ASSERT_EQUAL_FATAL(nvmf_subsystem_add_listener(s, &loop_address), 0);
	CU_ASSERT_EQUAL_FATAL(nvmf_subsystem_add_listener_ana(s, &loop_other_address, NVME_ANA_STATE_NONOPTIMIZED), 0);
	add_ns("a4", 4, 1, false);
	add_ns("a1", 1, 1, false);
	add_ns("a2", 2, 0, false);
	add_ns("a3", 3, 0, true);
	here = attach_at(&loop_address, &here_io);
	there = attach_at(&loop_other_address, &there_io);
}

static void teardown(void)
{
	struct loop_wait wait = LOOP_WAIT;

	loop_close(here_io);
	loop_close(there_io);
	loop_close(here);
	loop_close(there);
	nvmf_subsystem_destroy(s, loop_done, &wait);
	CU_ASSERT_EQUAL(loop_wait_for(&wait), 0);
	for (const char *const *name = (const char *const[]){"a1", "a2", "a3", "a4", NULL}; *name != NULL; name++) {
		CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, *name), 0);
	}
}

static void set_state(const struct nvmf_address *address, uint32_t anagrpid, enum nvme_ana_state state)
{
	CU_ASSERT_EQUAL(nvmf_listener_set_ana_state(s, address, anagrpid, state), 0);
}

static uint16_t ana_log(struct loop_conn *c, bool groups_only, bool rae, uint64_t offset, uint32_t len)
{
	struct loop_cmd cmd;

	memset(data, 0xa5, sizeof(data));
	loop_cmd_init(&cmd, c, nvme_admin_get_log_page, NVME_NSID_ALL);
	cmd.sqe.cdw10 =
		htole32(NVME_LOG_LID_ANA | (uint32_t)groups_only << 8 | (uint32_t)rae << 15 | (len / 4 - 1) << 16);
	cmd.sqe.cdw12 = htole32((uint32_t)offset);
	loop_cmd_data(&cmd, data, len);
	return loop_run(&cmd);
}

static uint16_t io(struct loop_conn *c, uint8_t opcode, uint32_t nsid)
{
	return loop_rw(c, opcode, nsid, 0, 0, data, 512);
}

/* ---- What is reported ---- */

static void test_controller_says_that_it_reports(void)
{
	uint32_t value;

	setup();
	CU_ASSERT_EQUAL(loop_identify(here, NVME_IDENTIFY_CNS_CTRL, 0, 0, data), 0);
	CU_ASSERT_EQUAL(data[76] & 0xf, 0xb);                                             /* CMIC */
	CU_ASSERT_EQUAL(le(92, 4), 1u << 8 | 1u << 11 | NVME_CTRL_OAES_CROSS_CTRL_RESET); /* OAES */
	CU_ASSERT_NOT_EQUAL(data[342], 0);                                                /* ANATT */
	CU_ASSERT_EQUAL(data[343], 0x1f); /* ANACAP: all states; groups may change */
	CU_ASSERT_EQUAL(le(344, 4), 8);   /* ANAGRPMAX */
	CU_ASSERT_EQUAL(le(348, 4), 8);   /* NANAGRPID */
	CU_ASSERT_EQUAL(loop_identify(here, NVME_IDENTIFY_CNS_NS, 4, 0, data), 0);
	CU_ASSERT_EQUAL(data[30], 1);  /* NMIC */
	CU_ASSERT_EQUAL(le(92, 4), 1); /* ANAGRPID */
	CU_ASSERT_EQUAL(loop_get_feature(here, NVME_FEAT_FID_ASYNC_EVENT, 0, &value), 0);
	CU_ASSERT_EQUAL(value, 1u << 8 | 1u << 11 | NVME_CTRL_OAES_CROSS_CTRL_RESET);
	teardown();
}

static void test_subsystem_without_ana_has_neither_log_nor_event(void)
{
	struct loop_conn *c = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
	uint32_t value;

	CU_ASSERT_EQUAL(ana_log(c, false, false, 0, 64), NVME_ST_DNR(CMD_SPECIFIC, INVALID_LOG_PAGE));
	CU_ASSERT_EQUAL(loop_set_feature(c, NVME_FEAT_FID_ASYNC_EVENT, 1u << 11, NULL), 0);
	CU_ASSERT_EQUAL(loop_get_feature(c, NVME_FEAT_FID_ASYNC_EVENT, 0, &value), 0);
	CU_ASSERT_EQUAL(value, 0);
	loop_close(c);
	CU_ASSERT_EQUAL(nvmf_listener_set_ana_state(loop_subsystem(), &loop_address, 0, NVME_ANA_STATE_INACCESSIBLE),
			-ENOTSUP);
	CU_ASSERT_EQUAL(
		nvmf_subsystem_add_listener_ana(loop_subsystem(), &loop_other_address, NVME_ANA_STATE_INACCESSIBLE),
		-ENOTSUP);
}

static void test_log_lists_the_groups_that_the_host_sees(void)
{
	setup();
	CU_ASSERT_EQUAL(ana_log(here, false, false, 0, 4096), 0);
	CU_ASSERT_NOT_EQUAL(le(0, 8), 0);
	CU_ASSERT_EQUAL(le(8, 2), 2);
	CU_ASSERT(le(16, 4) == 1 && le(20, 4) == 2 && data[32] == NVME_ANA_STATE_OPTIMIZED);
	CU_ASSERT(le(48, 4) == 1 && le(52, 4) == 4);
	CU_ASSERT(le(56, 4) == 2 && le(60, 4) == 1 && data[72] == NVME_ANA_STATE_OPTIMIZED);
	CU_ASSERT(le(88, 4) == 2 && le(92, 4) == 0);
	CU_ASSERT_EQUAL(ana_log(there, false, false, 0, 4096), 0);
	CU_ASSERT_EQUAL(data[32], NVME_ANA_STATE_NONOPTIMIZED);
	/* Groups only. */
	CU_ASSERT_EQUAL(ana_log(here, true, false, 0, 4096), 0);
	CU_ASSERT(le(8, 2) == 2 && le(16, 4) == 1 && le(20, 4) == 0 && le(48, 4) == 2);
	/* The namespace that was hidden brings its group along. */
	CU_ASSERT_EQUAL(nvmf_ns_add_host(s, 3, LOOP_HOSTNQN), 0);
	CU_ASSERT_EQUAL(ana_log(here, false, false, 0, 4096), 0);
	CU_ASSERT(le(8, 2) == 3 && le(92, 4) == 3);
	teardown();
}

static void test_log_is_read_in_windows(void)
{
	setup();
	CU_ASSERT_EQUAL(ana_log(here, false, false, 52, 8), 0);
	CU_ASSERT(le(0, 4) == 4 && le(4, 4) == 2);
	CU_ASSERT_EQUAL(data[8], 0xa5);
	CU_ASSERT_EQUAL(ana_log(here, false, false, 88, 64), 0);
	CU_ASSERT(le(0, 4) == 2 && le(4, 4) == 0 && data[63] == 0);
	CU_ASSERT_EQUAL(ana_log(here, false, false, 92, 64), 0);
	CU_ASSERT_EQUAL(ana_log(here, false, false, 96, 64), NVME_ST_DNR(GENERIC, INVALID_FIELD));
	CU_ASSERT_EQUAL(ana_log(here, true, false, 84, 64), NVME_ST_DNR(GENERIC, INVALID_FIELD));
	teardown();
}

/* ---- What a state does ---- */

static void test_states_that_allow_no_io_fail_it_with_their_status(void)
{
	static const struct {
		enum nvme_ana_state state;
		uint16_t status;
	} cases[] = {
		{NVME_ANA_STATE_INACCESSIBLE, NVME_SCT_PATH << 8 | 0x02},
		{NVME_ANA_STATE_PERSISTENT_LOSS, NVME_SCT_PATH << 8 | 0x01},
		{NVME_ANA_STATE_CHANGE, NVME_SCT_PATH << 8 | 0x03},
		{NVME_ANA_STATE_NONOPTIMIZED, 0},
		{NVME_ANA_STATE_OPTIMIZED, 0},
	};

	setup();
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		set_state(&loop_address, 1, cases[i].state);
		CU_ASSERT_EQUAL(io(here_io, nvme_cmd_read, 1), cases[i].status);
		CU_ASSERT_EQUAL(io(here_io, nvme_cmd_write, 4), cases[i].status);
		CU_ASSERT_EQUAL(io(here_io, nvme_cmd_flush, 4), cases[i].status);
		CU_ASSERT_EQUAL(io(here_io, nvme_cmd_read, 2), 0);  /* another group */
		CU_ASSERT_EQUAL(io(there_io, nvme_cmd_read, 1), 0); /* another path */
		/* Admin commands work, and say what the state is. */
		CU_ASSERT_EQUAL(loop_identify(here, NVME_IDENTIFY_CNS_NS, 1, 0, data), 0);
		CU_ASSERT_EQUAL(le(0, 8), 1000);
		CU_ASSERT_EQUAL(le(8, 8), 1000);
		CU_ASSERT_EQUAL(le(16, 8), cases[i].status == 0 ? 1000 : 0); /* NUSE */
		CU_ASSERT_EQUAL(loop_identify(here, NVME_IDENTIFY_CNS_NS_ACTIVE_LIST, 0, 0, data), 0);
		CU_ASSERT(le(0, 4) == 1 && le(4, 4) == 2 && le(8, 4) == 4);
		CU_ASSERT_EQUAL(ana_log(here, false, false, 0, 4096), 0);
		CU_ASSERT_EQUAL(data[32], cases[i].state);
	}
	teardown();
}

static void test_command_whose_data_was_on_its_way_fails_too(void)
{
	struct loop_cmd cmd;

	setup();
	atomic_store(&loop_hold_data, true);
	loop_cmd_init(&cmd, here_io, nvme_cmd_write, 1);
	loop_cmd_data(&cmd, data, 512);
	loop_submit(&cmd);
	set_state(&loop_address, 0, NVME_ANA_STATE_INACCESSIBLE);
	atomic_store(&loop_hold_data, false);
	loop_release_data(here_io);
	CU_ASSERT_EQUAL(loop_wait(&cmd), NVME_ST(PATH, ANA_INACCESSIBLE));
	teardown();
}

static void test_listener_may_begin_inaccessible(void)
{
	static const struct nvmf_address third = {"LOOP", NVMF_ADDR_FAMILY_LOOP, "third", "3"};
	struct loop_conn *c_io;

	setup();
	CU_ASSERT_EQUAL(nvmf_subsystem_add_listener_ana(s, &third, NVME_ANA_STATE_INACCESSIBLE), 0);
	struct loop_conn *c = attach_at(&third, &c_io);
	CU_ASSERT_EQUAL(io(c_io, nvme_cmd_read, 1), NVME_ST(PATH, ANA_INACCESSIBLE));
	set_state(&third, 0, NVME_ANA_STATE_OPTIMIZED);
	CU_ASSERT_EQUAL(io(c_io, nvme_cmd_read, 1), 0);
	loop_close(c_io);
	loop_close(c);
	teardown();
}

static void test_namespace_takes_the_state_of_its_new_group(void)
{
	setup();
	set_state(&loop_address, 7, NVME_ANA_STATE_INACCESSIBLE);
	CU_ASSERT_EQUAL(nvmf_subsystem_set_ns_ana_group(s, 4, 7), 0);
	CU_ASSERT_EQUAL(io(here_io, nvme_cmd_read, 4), NVME_ST(PATH, ANA_INACCESSIBLE));
	CU_ASSERT_EQUAL(io(here_io, nvme_cmd_read, 1), 0);
	CU_ASSERT_EQUAL(io(there_io, nvme_cmd_read, 4), 0);
	CU_ASSERT_EQUAL(ana_log(here, false, false, 0, 4096), 0);
	CU_ASSERT(le(8, 2) == 3 && le(20, 4) == 1);
	CU_ASSERT_EQUAL(nvmf_subsystem_set_ns_ana_group(s, 4, 9), -EINVAL);
	CU_ASSERT_EQUAL(nvmf_subsystem_set_ns_ana_group(s, 4, 0), -EINVAL);
	CU_ASSERT_EQUAL(nvmf_subsystem_set_ns_ana_group(s, 5, 1), -ENOENT);
	teardown();
}

/* ---- Events ---- */

#define ANA_EVENT (NVME_AER_NOTICE | NVME_AER_NOTICE_ANA << 8 | NVME_LOG_LID_ANA << 16)

static void arm(struct loop_cmd *aer, struct loop_conn *c)
{
	loop_cmd_init(aer, c, nvme_admin_async_event, 0);
	loop_submit(aer);
}

/* The namespaces that setup() added came before the controllers: no event of them is pending. */
static void test_change_is_told_once_on_its_path_until_the_log_is_read(void)
{
	struct loop_cmd mine, others, next;

	setup();
	arm(&mine, here);
	arm(&others, there);
	CU_ASSERT_EQUAL(ana_log(here, false, false, 0, 16), 0);
	uint64_t count = le(0, 8);
	set_state(&loop_address, 2, NVME_ANA_STATE_OPTIMIZED); /* as it is */
	CU_ASSERT_EQUAL(ana_log(here, false, false, 0, 16), 0);
	CU_ASSERT_EQUAL(le(0, 8), count);
	CU_ASSERT_FALSE(atomic_load(&mine.done));
	set_state(&loop_address, 8, NVME_ANA_STATE_INACCESSIBLE); /* nobody is there */
	CU_ASSERT_FALSE(atomic_load(&mine.done));
	set_state(&loop_address, 2, NVME_ANA_STATE_INACCESSIBLE);
	CU_ASSERT_EQUAL(loop_wait(&mine), 0);
	CU_ASSERT_EQUAL(le32toh(mine.cqe.dw0), ANA_EVENT);
	arm(&next, here);
	set_state(&loop_address, 1, NVME_ANA_STATE_INACCESSIBLE);
	CU_ASSERT_EQUAL(ana_log(here, false, true, 0, 4096), 0);
	CU_ASSERT_EQUAL(le(0, 8), count + 3);
	CU_ASSERT_FALSE(atomic_load(&next.done));
	CU_ASSERT_EQUAL(ana_log(here, false, false, 0, 4096), 0);
	CU_ASSERT_EQUAL(nvmf_subsystem_set_ns_ana_group(s, 4, 2), 0); /* told on all paths */
	CU_ASSERT_EQUAL(loop_wait(&next), 0);
	CU_ASSERT_EQUAL(loop_wait(&others), 0);
	CU_ASSERT_EQUAL(le32toh(others.cqe.dw0), ANA_EVENT);
	teardown();
}

static void test_event_can_be_switched_off(void)
{
	struct loop_cmd aer;

	setup();
	arm(&aer, here);
	CU_ASSERT_EQUAL(loop_set_feature(here, NVME_FEAT_FID_ASYNC_EVENT, 1u << 8, NULL), 0);
	set_state(&loop_address, 0, NVME_ANA_STATE_INACCESSIBLE);
	CU_ASSERT_EQUAL(ana_log(here, false, true, 0, 4096), 0);
	CU_ASSERT_FALSE(atomic_load(&aer.done));
	teardown();
	CU_ASSERT_TRUE(loop_given_up(loop_wait(&aer)));
}

static void test_wrong_states_are_refused(void)
{
	static const struct nvmf_address nowhere = {"LOOP", NVMF_ADDR_FAMILY_LOOP, "x", "9"};

	setup();
	CU_ASSERT_EQUAL(nvmf_listener_set_ana_state(s, &nowhere, 0, NVME_ANA_STATE_OPTIMIZED), -ENOENT);
	CU_ASSERT_EQUAL(nvmf_listener_set_ana_state(s, &loop_address, 9, NVME_ANA_STATE_OPTIMIZED), -EINVAL);
	struct nvmf_ns_opts opts = {.anagrpid = 9};
	uint32_t got;
	make_malloc("a9", 512, 100);
	CU_ASSERT_EQUAL(nvmf_subsystem_add_ns(s, "a9", &opts, &got), -EINVAL);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "a9"), 0);
	teardown();
}

/* A listener goes with its hosts; the other's go on. */
static void test_listener_that_goes_takes_its_states_along(void)
{
	struct loop_wait wait = LOOP_WAIT;

	setup();
	set_state(&loop_address, 0, NVME_ANA_STATE_INACCESSIBLE);
	nvmf_subsystem_remove_listener(s, &loop_address, loop_done, &wait);
	CU_ASSERT_EQUAL(loop_wait_for(&wait), 0);
	CU_ASSERT_TRUE(loop_wait_closed(here));
	CU_ASSERT_EQUAL(io(there_io, nvme_cmd_read, 1), 0);
	teardown();
}

static const struct unit_test tests[] = {
	UNIT(test_controller_says_that_it_reports),
	UNIT(test_subsystem_without_ana_has_neither_log_nor_event),
	UNIT(test_log_lists_the_groups_that_the_host_sees),
	UNIT(test_log_is_read_in_windows),
	UNIT(test_states_that_allow_no_io_fail_it_with_their_status),
	UNIT(test_command_whose_data_was_on_its_way_fails_too),
	UNIT(test_listener_may_begin_inaccessible),
	UNIT(test_namespace_takes_the_state_of_its_new_group),
	UNIT(test_change_is_told_once_on_its_path_until_the_log_is_read),
	UNIT(test_event_can_be_switched_off),
	UNIT(test_wrong_states_are_refused),
	UNIT(test_listener_that_goes_takes_its_states_along),
	UNIT_END,
};
UNIT_MAIN("nvmf_ana", tests, loop_start, loop_stop)

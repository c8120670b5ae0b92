/* SPDX-License-Identifier: BSD-3-Clause */
/* A local controller's life: coming up, failing, being reset, being pulled out. */
#include "unittest/nvme/fixture.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static volatile uint32_t *reg(uint32_t offset)
{
	return (volatile uint32_t *)(fx.model.regs + offset);
}

static void set_fault(enum model_fault_kind kind, int qid, int opcode, unsigned count, uint16_t status)
{
	fx.model.fault =
		(struct model_fault){.kind = kind, .qid = qid, .opcode = opcode, .count = count, .status = status};
}

static void test_controller_becomes_ready_with_its_namespaces(void)
{
	fx_begin();
	fx.model.cntlid = 7;
	fx_connect();
	CU_ASSERT_EQUAL(fx.ready, 1);
	const struct nvme_ns *ns = nvme_ctrlr_next_ns(fx.ctrlr, 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(ns);
	CU_ASSERT_EQUAL(ns->block_size, 512);
	CU_ASSERT_EQUAL(ns->num_blocks, 8192);
	CU_ASSERT_EQUAL(ns->uuid[15], 1);
	ns = nvme_ctrlr_next_ns(fx.ctrlr, 1);
	CU_ASSERT_PTR_NOT_NULL_FATAL(ns);
	CU_ASSERT_EQUAL(ns->block_size, 4096);
	CU_ASSERT_EQUAL(ns->md_size, 16);
	CU_ASSERT_EQUAL(nvme_ctrlr_io_queues(fx.ctrlr), MODEL_QUEUES - 1);
	CU_ASSERT_EQUAL(nvme_ctrlr_max_transfer(fx.ctrlr), 131072);
	CU_ASSERT_EQUAL(nvme_ctrlr_cntlid(fx.ctrlr), 7);
	CU_ASSERT_EQUAL(fx.model.num_aers, MODEL_AERS);
	CU_ASSERT_EQUAL(fx.model.admin_commands[nvme_admin_keep_alive], 0);
	fx_end();
	CU_ASSERT_EQUAL(fx.model.cc & 1, 0); /* left disabled ... */
	CU_ASSERT(!fx.model.bus_master);     /* ... and off the bus */
}

static void test_controller_that_firmware_left_enabled_is_disabled_first(void)
{
	fx_begin();
	*reg(NVME_REG_CC) = 1 | 6 << 16 | 4 << 20;
	fx.model.cc = *reg(NVME_REG_CC);
	*reg(NVME_REG_CSTS) = 1;
	fx_connect();
	CU_ASSERT_EQUAL(fx.ready, 1);
	CU_ASSERT_EQUAL(fx.model.resets, 1);
	fx_end();
}

static void test_controller_in_a_fatal_state_is_reset(void)
{
	fx_begin();
	*reg(NVME_REG_CC) = 1 | 6 << 16 | 4 << 20;
	fx.model.cc = *reg(NVME_REG_CC);
	*reg(NVME_REG_CSTS) = 2;
	fx_connect();
	CU_ASSERT_EQUAL(fx.ready, 1);
	fx_end();
}

static void test_controller_that_was_enabled_but_never_gets_ready_is_disabled(void)
{
	fx_begin();
	*reg(NVME_REG_CC) = 1 | 6 << 16 | 4 << 20;
	fx.model.cc = *reg(NVME_REG_CC);
	*reg(NVME_REG_CSTS) = 0;
	fx_connect();
	CU_ASSERT_EQUAL(fx.ready, 1);
	fx_end();
}

static void test_controller_that_never_becomes_ready_fails_and_says_so(void)
{
	fx_begin();
	fx.model.refuse_enable = true;
	fx_connect();
	CU_ASSERT_EQUAL(fx.failed, 1);
	CU_ASSERT_PTR_NOT_NULL(strstr(nvme_ctrlr_last_error(fx.ctrlr), "wait for ready: no answer within"));
	fx_end();
}

static void test_controller_that_cannot_be_disabled_is_cut_off_the_bus(void)
{
	fx_begin_ready(15);
	fx.model.refuse_disable = true;
	CU_ASSERT_EQUAL(fx_submit(0, nvme_cmd_read, 1, 0, 8), 0);
	set_fault(MODEL_FAULT_DEAF, 1, -1, 1, 0);
	CU_ASSERT_EQUAL(nvme_ctrlr_reset(fx.ctrlr), 0);
	CU_ASSERT(FX_WAIT(fx.down == 1));
	CU_ASSERT_EQUAL(fx.io[0].completions, 1);
	CU_ASSERT_EQUAL(fx.io[0].status & 0x7ff, NVME_SC_ABORT_QUEUE);
	CU_ASSERT(fx.model.resets >= 1); /* by the PCI access layer's reset */
	fx.model.refuse_disable = false;
	CU_ASSERT(FX_WAIT(fx.ready == 2));
	fx_end();
}

static void test_device_that_cannot_be_opened_is_an_error_at_once(void)
{
	const struct nvme_trid trid = {.trtype = NVME_TRTYPE_PCIE, .traddr = "0000:00:09.0"};
	char error[NVME_ERROR_MAX] = "";

	fx_begin();
	fx.model.no_open = true;
	CU_ASSERT_PTR_NULL(nvme_ctrlr_create(&trid, &fx.opts, error));
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "0000:00:09.0"));
	fx_end();
}

static void test_registers_that_end_before_the_doorbells_are_refused(void)
{
	const struct nvme_trid trid = {.trtype = NVME_TRTYPE_PCIE, .traddr = "0000:00:04.0"};
	char error[NVME_ERROR_MAX] = "";

	fx_begin();
	fx.model.regs_len = 4096;
	CU_ASSERT_PTR_NULL(nvme_ctrlr_create(&trid, &fx.opts, error));
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "BAR 0"));
	fx.model.regs_len = 8192;
	fx_end();
}

static void test_doorbell_stride_beyond_the_registers_is_refused(void)
{
	fx_begin();
	*reg(NVME_REG_CAP + 4) |= 15; /* DSTRD: 128 KiB apart */
	fx_connect();
	CU_ASSERT_EQUAL(fx.failed, 1);
	fx_end();
}

/* The commands by which a controller comes up. */
static const struct step {
	const char *state;
	uint8_t opcode;
	unsigned skip; /* commands of that opcode before it */
	bool optional; /* the controller comes up also if it fails */
} steps[] = {
	{"identify", nvme_admin_identify, 0, false},
	{"identify", nvme_admin_dbbuf, 0, true},
	{"set number of queues", nvme_admin_set_features, 0, false},
	{"set event configuration", nvme_admin_set_features, 1, true},
	{"read namespaces", nvme_admin_identify, 1, false},
};
#define STEPS (sizeof(steps) / sizeof(steps[0]))

static void begin_step(const struct step *s, enum model_fault_kind kind)
{
	fx_begin();
	fx.model.shadow_offered = true;
	fx.model.fault = (struct model_fault){.kind = kind,
					      .qid = 0,
					      .opcode = s->opcode,
					      .skip = s->skip,
					      .count = 1,
					      .status = NVME_ST(GENERIC, INTERNAL)};
}

static void test_each_refused_admin_command_fails_the_attempt(void)
{
	for (unsigned i = 0; i < STEPS; i++) {
		begin_step(&steps[i], MODEL_FAULT_STATUS);
		fx_connect();
		CU_ASSERT_EQUAL(fx.model.fault.count, 0);
		CU_ASSERT_EQUAL(fx.failed, !steps[i].optional);
		CU_ASSERT_EQUAL(fx.ready, steps[i].optional);
		CU_ASSERT(steps[i].optional || strstr(nvme_ctrlr_last_error(fx.ctrlr), steps[i].state) != NULL);
		fx_end();
	}
}

/* Makes the state's time limit pass at once. */
static void let_time_pass(void)
{
	CU_ASSERT(fx.ctrlr->step_deadline > 0);
	fx.ctrlr->step_deadline = env_ticks();
	thread_timer_start(&fx.ctrlr->step_timer, 0);
}

static void create_ctrlr(void)
{
	const struct nvme_trid trid = {.trtype = NVME_TRTYPE_PCIE, .traddr = "0000:00:04.0"};
	char error[NVME_ERROR_MAX];

	fx.ctrlr = nvme_ctrlr_create(&trid, &fx.opts, error);
	CU_ASSERT_PTR_NOT_NULL_FATAL(fx.ctrlr);
}

static void test_each_admin_command_without_answer_fails_the_attempt_in_its_state(void)
{
	char text[64];

	for (unsigned i = 0; i < STEPS; i++) {
		begin_step(&steps[i], MODEL_FAULT_DEAF);
		create_ctrlr();
		CU_ASSERT(FX_WAIT(fx.model.num_held == 1));
		let_time_pass();
		CU_ASSERT(FX_WAIT(fx.failed == 1));
		snprintf(text, sizeof(text), "%s: no answer within", steps[i].state);
		CU_ASSERT_EQUAL(strncmp(nvme_ctrlr_last_error(fx.ctrlr), text, strlen(text)), 0);
		fx_end();
	}
}

static bool is_gone;

static void gone(void *arg)
{
	is_gone = true;
}

static void test_controller_that_does_not_shut_down_is_let_go_in_time(void)
{
	fx_begin();
	fx_connect();
	fx.model.refuse_shutdown = true;
	is_gone = false;
	nvme_ctrlr_destroy(fx.ctrlr, gone, NULL);
	CU_ASSERT(FX_WAIT(nvme_ctrlr_state(fx.ctrlr) == NVME_CTRLR_WAIT_SHUTDOWN));
	for (unsigned i = 0; i < 10; i++) {
		fx_round();
	}
	CU_ASSERT(!is_gone); /* the shutdown must be waited for */
	CU_ASSERT_EQUAL_FATAL(nvme_ctrlr_state(fx.ctrlr), NVME_CTRLR_WAIT_SHUTDOWN);
	let_time_pass();
	CU_ASSERT(FX_WAIT(is_gone));
	fx.ctrlr = NULL;
	CU_ASSERT_EQUAL(fx.model.cc & 1, 0);
	CU_ASSERT(!fx.model.bus_master);
	fx_end();
}

static void test_admin_command_without_answer_fails_the_attempt(void)
{
	fx_begin();
	fx_be_quick();
	set_fault(MODEL_FAULT_NO_ANSWER, 0, nvme_admin_identify, 1, 0);
	fx_connect();
	CU_ASSERT_EQUAL(fx.failed, 1);
	CU_ASSERT_PTR_NOT_NULL(strstr(nvme_ctrlr_last_error(fx.ctrlr), "identify: no answer within 200 ms"));
	fx_end();
}

static void test_failed_attempt_is_repeated_while_there_is_time(void)
{
	fx_begin();
	fx.opts.loss_timeout_s = -1;
	set_fault(MODEL_FAULT_STATUS, 0, nvme_admin_identify, 2, NVME_ST(GENERIC, INTERNAL));
	fx_connect();
	CU_ASSERT(FX_WAIT(fx.ready == 1));
	CU_ASSERT_EQUAL(fx.retry, 2);
	fx_end();
}

static void test_garbage_on_the_admin_queue_fails_the_attempt(void)
{
	static const enum model_fault_kind kinds[] = {MODEL_FAULT_HUGE_CID, MODEL_FAULT_DUPLICATE, MODEL_FAULT_CFS};

	for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		fx_begin();
		fx_be_quick();
		set_fault(kinds[i], 0, nvme_admin_set_features, 1, 0);
		fx_connect();
		CU_ASSERT_EQUAL(fx.failed, 1);
		CU_ASSERT(nvme_ctrlr_last_error(fx.ctrlr)[0] != '\0');
		fx_end();
	}
}

static void test_reset_on_request_comes_up_again(void)
{
	fx_begin();
	fx_connect();
	CU_ASSERT_EQUAL(nvme_ctrlr_reset(fx.ctrlr), 0);
	CU_ASSERT_EQUAL(nvme_ctrlr_reset(fx.ctrlr), -EBUSY);
	CU_ASSERT(FX_WAIT(fx.ready == 2));
	CU_ASSERT_EQUAL(fx.down, 1);
	CU_ASSERT_EQUAL(fx.model.resets, 1);
	fx_end();
}

static void test_subsystem_reset_comes_up_again(void)
{
	fx_begin();
	fx_connect();
	CU_ASSERT_EQUAL(nvme_ctrlr_reset_subsystem(fx.ctrlr), -ENOTSUP);
	*(volatile uint32_t *)(fx.model.regs + NVME_REG_CAP + 4) |= 1 << (NVME_CAP_NSSRC_SHIFT - 32);
	CU_ASSERT_EQUAL(nvme_ctrlr_reset(fx.ctrlr), 0); /* which reads CAP again */
	CU_ASSERT(FX_WAIT(fx.ready == 2));
	fx_create_qpair(15);
	fx.model.fault = (struct model_fault){.kind = MODEL_FAULT_DEAF, .qid = 1, .opcode = -1, .count = 1};
	CU_ASSERT_EQUAL(fx_submit(0, nvme_cmd_read, 1, 0, 1), 0);
	CU_ASSERT_EQUAL(nvme_ctrlr_reset_subsystem(fx.ctrlr), 0);
	CU_ASSERT_EQUAL(nvme_ctrlr_reset_subsystem(fx.ctrlr), -EBUSY);
	CU_ASSERT(FX_WAIT(fx.ready == 3));
	CU_ASSERT_EQUAL(fx.down, 2);
	CU_ASSERT_EQUAL(fx.model.subsystem_resets, 1);
	CU_ASSERT_EQUAL(fx.io[0].completions, 1);
	fx_end();
}

static void test_fatal_status_resets_the_controller(void)
{
	fx_begin();
	fx_connect();
	fx_be_quick();
	*reg(NVME_REG_CSTS) |= 2;
	CU_ASSERT(FX_WAIT(fx.ready == 2));
	CU_ASSERT_EQUAL(fx.down, 1);
	fx_end();
}

static void test_controller_that_lost_its_readiness_is_reset(void)
{
	fx_begin();
	fx_connect();
	fx_be_quick();
	*reg(NVME_REG_CSTS) = 0;
	CU_ASSERT(FX_WAIT(fx.ready == 2));
	fx_end();
}

static struct {
	unsigned done;
	uint16_t status;
} admin;

static void admin_done(void *arg, const struct nvme_cqe *cqe)
{
	admin.done++;
	admin.status = nvme_cqe_status(cqe);
}

static void test_admin_command_without_answer_resets_and_is_completed(void)
{
	struct nvme_sqe cmd = {.opcode = nvme_admin_get_features};

	fx_begin();
	fx_connect();
	fx_be_quick();
	set_fault(MODEL_FAULT_DEAF, 0, nvme_admin_get_features, 1, 0);
	admin.done = 0;
	CU_ASSERT_EQUAL(nvme_ctrlr_admin(fx.ctrlr, &cmd, NULL, 0, false, admin_done, NULL), 0);
	CU_ASSERT(FX_WAIT(fx.ready == 2));
	CU_ASSERT_EQUAL(admin.done, 1);
	CU_ASSERT_EQUAL(admin.status, NVME_SC_ABORT_QUEUE);
	fx_end();
}

static void test_events_of_the_controller_arrive(void)
{
	fx_begin();
	fx_connect();
	CU_ASSERT(model_event(&fx.model, 1 | 1 << 8 | 2 << 16)); /* SMART, temperature, log page 2 */
	CU_ASSERT(FX_WAIT(fx.logs == 1));
	fx.model.ns[2] = (struct model_ns){.active = true, .blocks = 100, .block_shift = 12};
	CU_ASSERT(FX_WAIT(fx.model.num_aers == MODEL_AERS));
	CU_ASSERT(model_event(&fx.model, 2 | 4 << 16)); /* notice, namespaces changed */
	CU_ASSERT(FX_WAIT(fx.ns_changed == 1));
	const struct nvme_ns *ns = nvme_ctrlr_next_ns(fx.ctrlr, 2);
	CU_ASSERT_PTR_NOT_NULL_FATAL(ns);
	CU_ASSERT_EQUAL(ns->num_blocks, 100);
	fx_end();
}

static uint64_t out_of_reach(const void *buf, size_t *len)
{
	return ENV_IOVA_BAD;
}

static void test_event_whose_log_could_not_be_read_is_not_lost(void)
{
	fx_begin();
	fx_connect();
	struct nvme_pcie_qpair *admin_queue = nvme_pcie_qpair_of(fx.ctrlr->admin);
	uint64_t (*translate)(const void *, size_t *) = admin_queue->translate;
	admin_queue->translate = out_of_reach;
	fx.model.ns[2] = (struct model_ns){.active = true, .blocks = 100, .block_shift = 12};
	CU_ASSERT(model_event(&fx.model, 2 | 4 << 16));          /* notice, namespaces changed */
	CU_ASSERT(model_event(&fx.model, 1 | 1 << 8 | 2 << 16)); /* SMART */
	CU_ASSERT(FX_WAIT(fx.ctrlr->num_unread == 2));
	fx_round();
	CU_ASSERT_EQUAL(fx.model.num_aers, MODEL_AERS - 2); /* the host has no room for more answers */
	admin_queue->translate = translate;
	CU_ASSERT(FX_WAIT(fx.ns_changed == 1 && fx.logs == 1));
	CU_ASSERT_PTR_NOT_NULL(nvme_ctrlr_next_ns(fx.ctrlr, 2));
	CU_ASSERT(FX_WAIT(fx.model.num_aers == MODEL_AERS));
	CU_ASSERT_EQUAL(fx.ready, 1);
	fx_end();
}

static void test_event_is_asked_for_again_after_the_admin_queue_was_full(void)
{
	struct nvme_sqe cmd = {.opcode = nvme_admin_get_features};

	fx_begin();
	fx.opts.admin_queue_entries = 8;
	fx_connect();
	set_fault(MODEL_FAULT_LATE, 0, nvme_admin_get_features, 4, 0);
	admin.done = 0;
	for (unsigned i = 0; i < 8 - MODEL_AERS; i++) {
		CU_ASSERT_EQUAL(nvme_ctrlr_admin(fx.ctrlr, &cmd, NULL, 0, false, admin_done, NULL), 0);
	}
	CU_ASSERT(FX_WAIT(fx.model.num_held == 4));
	CU_ASSERT_EQUAL(nvme_ctrlr_admin(fx.ctrlr, &cmd, NULL, 0, false, admin_done, NULL), -EAGAIN);
	CU_ASSERT(model_event(&fx.model, 1 | 1 << 8 | 2 << 16));
	/* its page was requested through the slot that the event has freed, which is then in use: */
	CU_ASSERT(FX_WAIT(fx.logs == 1));
	CU_ASSERT(FX_WAIT(fx.model.num_aers == MODEL_AERS));
	model_release(&fx.model);
	CU_ASSERT(FX_WAIT(admin.done == 4));
	CU_ASSERT_EQUAL(fx.ready, 1);
	fx_end();
}

static void test_namespaces_that_change_while_they_are_read_first_are_read_again(void)
{
	fx_begin();
	fx.model.fault = (struct model_fault){
		.kind = MODEL_FAULT_LATE, .qid = 0, .opcode = nvme_admin_identify, .skip = 2, .count = 1};
	const struct nvme_trid trid = {.trtype = NVME_TRTYPE_PCIE, .traddr = "0000:00:04.0"};
	char error[NVME_ERROR_MAX];
	fx.ctrlr = nvme_ctrlr_create(&trid, &fx.opts, error);
	CU_ASSERT_PTR_NOT_NULL_FATAL(fx.ctrlr);
	CU_ASSERT(FX_WAIT(fx.model.num_held == 1)); /* the list is read */
	CU_ASSERT_EQUAL(nvme_ctrlr_state(fx.ctrlr), NVME_CTRLR_SCAN_NS);
	fx.model.ns[2] = (struct model_ns){.active = true, .blocks = 100, .block_shift = 12};
	CU_ASSERT(model_event(&fx.model, 2 | 4 << 16));
	CU_ASSERT(FX_WAIT(fx.model.num_aers == MODEL_AERS));
	model_release(&fx.model);
	CU_ASSERT(FX_WAIT(fx.ready == 1 && fx.ns_changed == 1));
	CU_ASSERT_PTR_NOT_NULL(nvme_ctrlr_next_ns(fx.ctrlr, 2));
	fx_end();
}

/* Holds back one command at a time and reads the deadline: each command has the whole time limit, however many there
 * are. */
static void test_each_command_of_the_scan_has_its_own_time(void)
{
	const struct nvme_trid trid = {.trtype = NVME_TRTYPE_PCIE, .traddr = "0000:00:04.0"};
	char error[NVME_ERROR_MAX];
	uint64_t before = 0;
	unsigned held = 0;

	fx_begin();
	set_fault(MODEL_FAULT_LATE, 0, nvme_admin_identify, UINT32_MAX, 0);
	fx.ctrlr = nvme_ctrlr_create(&trid, &fx.opts, error);
	CU_ASSERT_PTR_NOT_NULL_FATAL(fx.ctrlr);
	while (FX_WAIT(fx.model.num_held == 1 || fx.ready) && !fx.ready && !fx.failed) {
		held += nvme_ctrlr_state(fx.ctrlr) == NVME_CTRLR_SCAN_NS;
		CU_ASSERT(fx.ctrlr->step_deadline > before);
		before = fx.ctrlr->step_deadline;
		model_release(&fx.model);
	}
	CU_ASSERT_EQUAL(fx.ready, 1);
	CU_ASSERT_EQUAL(held, 5); /* the list, two namespaces, their descriptors */
	fx_end();
}

static void test_namespace_whose_identify_fails_is_left_out(void)
{
	fx_begin();
	/* Identify Controller, the list, the first namespace */
	fx.model.fault = (struct model_fault){.kind = MODEL_FAULT_STATUS,
					      .qid = 0,
					      .opcode = nvme_admin_identify,
					      .skip = 2,
					      .count = 1,
					      .status = NVME_ST(GENERIC, INTERNAL)};
	fx_connect();
	CU_ASSERT_EQUAL(fx.ready, 1);
	CU_ASSERT_EQUAL(nvme_ctrlr_next_ns(fx.ctrlr, 0)->nsid, 2);
	CU_ASSERT_PTR_NULL(nvme_ctrlr_next_ns(fx.ctrlr, 2));
	fx_end();
}

static void test_namespace_in_use_whose_identify_fails_stays_unless_it_is_gone(void)
{
	static const uint16_t statuses[] = {NVME_ST(GENERIC, INTERNAL), NVME_ST_DNR(GENERIC, INVALID_NS)};

	for (unsigned i = 0; i < 2; i++) {
		fx_begin();
		fx_connect();
		fx.model.fault = (struct model_fault){.kind = MODEL_FAULT_STATUS,
						      .qid = 0,
						      .opcode = nvme_admin_identify,
						      .skip = 1,
						      .count = 1,
						      .status = statuses[i]};
		CU_ASSERT(model_event(&fx.model, 2 | 4 << 16));
		CU_ASSERT(FX_WAIT(fx.ns_changed == 1));
		CU_ASSERT_EQUAL(nvme_ctrlr_next_ns(fx.ctrlr, 0)->nsid, i == 0 ? 1 : 2);
		CU_ASSERT_EQUAL(nvme_ctrlr_next_ns(fx.ctrlr, 1)->nsid, 2);
		CU_ASSERT_EQUAL(fx.down, 0);
		fx_end();
	}
}

static void test_removed_device_is_noticed_and_left_alone(void)
{
	fx_begin();
	fx_connect();
	fx_be_quick();
	model_remove(&fx.model);
	CU_ASSERT(FX_WAIT(fx.removed == 1));
	CU_ASSERT_EQUAL(nvme_ctrlr_state(fx.ctrlr), NVME_CTRLR_REMOVED);
	CU_ASSERT_EQUAL(fx.down, 0);
	CU_ASSERT_EQUAL(nvme_ctrlr_reset(fx.ctrlr), -EBUSY);
	fx_end();
}

static void test_device_removed_while_it_comes_up_is_noticed(void)
{
	static const uint8_t opcodes[] = {nvme_admin_identify, nvme_admin_set_features};

	for (unsigned i = 0; i < sizeof(opcodes); i++) {
		fx_begin();
		fx_be_quick();
		set_fault(MODEL_FAULT_REMOVED, 0, opcodes[i], 1, 0);
		fx_connect();
		CU_ASSERT_EQUAL(fx.ready, 0);
		CU_ASSERT_EQUAL(fx.failed + fx.removed, 1);
		fx_end();
	}
}

static void test_device_that_is_gone_already_is_told_as_removed(void)
{
	fx_begin();
	model_remove(&fx.model);
	fx_connect();
	CU_ASSERT_EQUAL(fx.removed, 1);
	fx_end();
}

static void test_removal_is_told_once_also_during_a_reset(void)
{
	fx_begin();
	fx_connect();
	CU_ASSERT_EQUAL(nvme_ctrlr_reset(fx.ctrlr), 0);
	nvme_ctrlr_removed(fx.ctrlr);
	nvme_ctrlr_removed(fx.ctrlr);
	CU_ASSERT(FX_WAIT(fx.removed == 1));
	CU_ASSERT_EQUAL(fx.ready, 1);
	fx_end();
}

static void test_removal_is_told_also_of_a_controller_that_has_failed(void)
{
	fx_begin();
	set_fault(MODEL_FAULT_STATUS, 0, nvme_admin_identify, 1, NVME_ST(GENERIC, INTERNAL));
	fx_connect();
	CU_ASSERT_EQUAL(fx.failed, 1);
	nvme_ctrlr_removed(fx.ctrlr);
	CU_ASSERT(FX_WAIT(fx.removed == 1));
	fx_end();
}

static void test_destroying_in_the_middle_of_coming_up_ends(void)
{
	const struct nvme_trid trid = {.trtype = NVME_TRTYPE_PCIE, .traddr = "0000:00:04.0"};
	char error[NVME_ERROR_MAX];

	fx_begin();
	set_fault(MODEL_FAULT_NO_ANSWER, 0, nvme_admin_set_features, 1, 0);
	fx.ctrlr = nvme_ctrlr_create(&trid, &fx.opts, error);
	CU_ASSERT_PTR_NOT_NULL_FATAL(fx.ctrlr);
	CU_ASSERT(FX_WAIT(fx.model.num_held == 1));
	fx_end();
}

static void test_shadow_doorbells_that_are_refused_are_done_without(void)
{
	fx_begin();
	fx.model.shadow_offered = true;
	set_fault(MODEL_FAULT_STATUS, 0, nvme_admin_dbbuf, 1, NVME_ST(GENERIC, INTERNAL));
	fx_connect();
	CU_ASSERT_EQUAL(fx.ready, 1);
	fx_create_qpair(15);
	CU_ASSERT_EQUAL(fx_submit(0, nvme_cmd_read, 1, 0, 8), 0);
	fx_run();
	CU_ASSERT_EQUAL(fx.io[0].completions, 1);
	fx_end();
}

static void test_stripe_of_a_drive_with_that_quirk_is_a_boundary(void)
{
	fx_begin();
	fx.model.vendor_device = 0x8086 | 0x0953u << 16;
	fx_connect();
	CU_ASSERT_EQUAL(nvme_ctrlr_next_ns(fx.ctrlr, 0)->optimal_boundary_blocks, (4096 << 5) / 512);
	fx_end();
	fx_begin();
	fx_connect();
	CU_ASSERT_EQUAL(nvme_ctrlr_next_ns(fx.ctrlr, 0)->optimal_boundary_blocks, 0);
	fx_end();
}

static const struct unit_test tests[] = {
	UNIT(test_controller_becomes_ready_with_its_namespaces),
	UNIT(test_controller_that_firmware_left_enabled_is_disabled_first),
	UNIT(test_controller_in_a_fatal_state_is_reset),
	UNIT(test_controller_that_was_enabled_but_never_gets_ready_is_disabled),
	UNIT(test_controller_that_never_becomes_ready_fails_and_says_so),
	UNIT(test_controller_that_cannot_be_disabled_is_cut_off_the_bus),
	UNIT(test_device_that_cannot_be_opened_is_an_error_at_once),
	UNIT(test_registers_that_end_before_the_doorbells_are_refused),
	UNIT(test_doorbell_stride_beyond_the_registers_is_refused),
	UNIT(test_each_refused_admin_command_fails_the_attempt),
	UNIT(test_each_admin_command_without_answer_fails_the_attempt_in_its_state),
	UNIT(test_controller_that_does_not_shut_down_is_let_go_in_time),
	UNIT(test_admin_command_without_answer_fails_the_attempt),
	UNIT(test_failed_attempt_is_repeated_while_there_is_time),
	UNIT(test_garbage_on_the_admin_queue_fails_the_attempt),
	UNIT(test_reset_on_request_comes_up_again),
	UNIT(test_subsystem_reset_comes_up_again),
	UNIT(test_fatal_status_resets_the_controller),
	UNIT(test_controller_that_lost_its_readiness_is_reset),
	UNIT(test_admin_command_without_answer_resets_and_is_completed),
	UNIT(test_events_of_the_controller_arrive),
	UNIT(test_event_whose_log_could_not_be_read_is_not_lost),
	UNIT(test_event_is_asked_for_again_after_the_admin_queue_was_full),
	UNIT(test_namespaces_that_change_while_they_are_read_first_are_read_again),
	UNIT(test_each_command_of_the_scan_has_its_own_time),
	UNIT(test_namespace_whose_identify_fails_is_left_out),
	UNIT(test_namespace_in_use_whose_identify_fails_stays_unless_it_is_gone),
	UNIT(test_removed_device_is_noticed_and_left_alone),
	UNIT(test_device_removed_while_it_comes_up_is_noticed),
	UNIT(test_device_that_is_gone_already_is_told_as_removed),
	UNIT(test_removal_is_told_once_also_during_a_reset),
	UNIT(test_removal_is_told_also_of_a_controller_that_has_failed),
	UNIT(test_destroying_in_the_middle_of_coming_up_ends),
	UNIT(test_shadow_doorbells_that_are_refused_are_done_without),
	UNIT(test_stripe_of_a_drive_with_that_quirk_is_a_boundary),
	UNIT_END,
};
UNIT_MAIN("nvme_pcie_ctrlr", tests, fx_setup, fx_teardown)

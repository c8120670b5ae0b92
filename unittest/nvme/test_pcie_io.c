/* SPDX-License-Identifier: BSD-3-Clause */
/* I/O on a local controller: data, doorbells, interrupts, and faults of the drive. */
#include "unittest/nvme/fixture.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/internal.h"
#include "util/log.h"

#define ABORTED_QUEUE(i_) ((fx.io[i_].status & 0x7ff) == NVME_SC_ABORT_QUEUE)

static void set_fault(enum model_fault_kind kind, int opcode, unsigned skip, unsigned count, uint16_t status)
{
	fx.model.fault = (struct model_fault){
		.kind = kind, .qid = 1, .opcode = opcode, .skip = skip, .count = count, .status = status};
}

/* A controller that is ready, with short timeouts. */
static void begin_quick(void)
{
	fx_begin();
	fx_connect();
	fx_be_quick();
	fx_create_qpair(15);
	CU_ASSERT_PTR_NOT_NULL_FATAL(fx.qpair);
}

static void fill(uint8_t *p, size_t len, uint8_t seed)
{
	for (size_t i = 0; i < len; i++) {
		p[i] = (uint8_t)(seed + i * 7 + (i >> 8));
	}
}

static void test_data_is_written_and_read(void)
{
	fx_begin_ready(15);
	fill(fx.io[0].buf, 16384, 3);
	CU_ASSERT_EQUAL(fx_submit(0, nvme_cmd_write, 1, 100, 32), 0);
	fx_run();
	CU_ASSERT_EQUAL(fx.io[0].status, 0);
	CU_ASSERT_EQUAL(memcmp(fx.model.ns[0].data + 100 * 512, fx.io[0].buf, 16384), 0);
	CU_ASSERT_EQUAL(fx_submit(1, nvme_cmd_read, 1, 100, 32), 0);
	fx_run();
	CU_ASSERT_EQUAL(memcmp(fx.io[1].buf, fx.io[0].buf, 16384), 0);
	CU_ASSERT_EQUAL(fx.model.prp_commands > 0, 1);
	fx_end();
}

static void test_scattered_data_goes_by_sgl(void)
{
	fx_begin_ready(15);
	struct fx_io *io = &fx.io[0];
	fill(io->buf, 16384, 9);
	/* 4096 bytes in segments of odd length, from the end to the beginning */
	size_t lengths[] = {1, 511, 1024, 2047, 513}, at = 16384;
	uint8_t expected[4096], *e = expected;
	for (unsigned i = 0; i < 5; i++) {
		at -= lengths[i] + 100;
		io->iov[i] = (struct iovec){.iov_base = io->buf + at, .iov_len = lengths[i]};
		memcpy(e, io->buf + at, lengths[i]);
		e += lengths[i];
	}
	uint64_t before = fx.model.sgl_commands;
	CU_ASSERT_EQUAL(fx_submit_pieces(0, nvme_cmd_write, 2, 5, 1, 5), 0);
	fx_run();
	CU_ASSERT_EQUAL(io->status, 0);
	CU_ASSERT_EQUAL(fx.model.sgl_commands, before + 1);
	CU_ASSERT_EQUAL(memcmp(fx.model.ns[1].data + 5 * 4096, expected, 4096), 0);
	fx_end();
}

static void test_scattered_data_is_refused_by_drives_without_sgls(void)
{
	fx_begin();
	fx.model.sgl_offered = false;
	fx_connect();
	fx_create_qpair(15);
	CU_ASSERT_EQUAL(nvme_ctrlr_max_segments(fx.ctrlr), 1);
	struct fx_io *io = &fx.io[0];
	io->iov[0] = (struct iovec){.iov_base = io->buf, .iov_len = 512};
	io->iov[1] = (struct iovec){.iov_base = io->buf + 2048, .iov_len = 512};
	CU_ASSERT_EQUAL(fx_submit_pieces(0, nvme_cmd_write, 1, 5, 2, 2), -EINVAL);
	CU_ASSERT_EQUAL(nvme_qpair_outstanding(fx.qpair), 0);
	fx_end();
}

static void test_metadata_goes_with_the_data(void)
{
	fx_begin_ready(15);
	uint8_t *md = fx.io[2].buf;
	fill(md, 64, 77);
	fx.io[0].req->md = NULL;
	CU_ASSERT_EQUAL(fx_submit(0, nvme_cmd_write, 2, 8, 4), 0);
	fx_run();
	/* again, without fx_submit(), which has no metadata */
	struct nvme_request *req = fx.io[0].req;
	req->md = md;
	req->md_len = 64;
	fx.io[0].completions = 0;
	CU_ASSERT_EQUAL(nvme_qpair_submit(fx.qpair, req), 0);
	fx_run();
	CU_ASSERT_EQUAL(fx.io[0].completions, 1);
	CU_ASSERT_EQUAL(fx.io[0].status, 0);
	CU_ASSERT_EQUAL(memcmp(fx.model.ns[1].md + 8 * 16, md, 64), 0);
	req->md = md + 1;
	CU_ASSERT_EQUAL(nvme_qpair_submit(fx.qpair, req), -EINVAL); /* MPTR is aligned to a dword */
	fx_end();
}

static void test_status_of_a_command_is_handed_on(void)
{
	fx_begin_ready(15);
	CU_ASSERT_EQUAL(fx_submit(0, nvme_cmd_read, 1, 8190, 8), 0);
	CU_ASSERT_EQUAL(fx_submit(1, nvme_cmd_flush, 1, 0, 1), 0);
	fx_run();
	CU_ASSERT_EQUAL(fx.io[0].status, NVME_ST_DNR(GENERIC, LBA_RANGE));
	CU_ASSERT_EQUAL(fx.io[1].status, 0);
	fx_end();
}

static void test_queue_takes_as_many_as_it_has_entries(void)
{
	fx_begin_ready(8);
	poller_pause(fx.model_poller);
	for (unsigned i = 0; i < 8; i++) {
		CU_ASSERT_EQUAL(fx_submit(i, nvme_cmd_read, 1, i, 1), 0);
	}
	CU_ASSERT_EQUAL(fx_submit(8, nvme_cmd_read, 1, 8, 1), -EAGAIN);
	CU_ASSERT_EQUAL(nvme_qpair_outstanding(fx.qpair), 8);
	fx_run();
	CU_ASSERT_EQUAL(fx_submit(8, nvme_cmd_read, 1, 8, 1), 0);
	fx_run();
	poller_resume(fx.model_poller);
	fx_end();
}

static void test_queues_wrap_around_for_a_long_time(void)
{
	fx_begin_ready(7);
	for (unsigned round = 0; round < 200; round++) {
		for (unsigned i = 0; i < 7; i++) {
			CU_ASSERT_EQUAL(fx_submit(i, nvme_cmd_read, 1, i, 1), 0);
		}
		fx_run();
	}
	CU_ASSERT_EQUAL(fx.io[6].completions, 200);
	fx_end();
}

static void test_doorbell_is_rung_once_for_many_commands(void)
{
	fx_begin_ready(63);
	poller_pause(fx.model_poller);
	struct nvme_pcie_qpair *q = nvme_pcie_qpair_of(fx.qpair);
	uint64_t before = q->doorbells;
	for (unsigned i = 0; i < 60; i++) {
		CU_ASSERT_EQUAL(fx_submit(i, nvme_cmd_read, 1, i, 1), 0);
	}
	CU_ASSERT_EQUAL(q->doorbells, before);
	nvme_qpair_flush(fx.qpair);
	nvme_qpair_flush(fx.qpair);
	CU_ASSERT_EQUAL(q->doorbells, before + 1);
	model_step(&fx.model);
	CU_ASSERT_EQUAL(nvme_qpair_poll(fx.qpair, 0), 60);
	CU_ASSERT(q->doorbells <= before + 2);
	poller_resume(fx.model_poller);
	fx_end();
}

static bool counting;
static unsigned allocations;

#define COUNTED(name_, params_, ...)                                                                                   \
	void *__real_##name_ params_;                                                                                  \
	void *__wrap_##name_ params_;                                                                                  \
	void *__wrap_##name_ params_                                                                                   \
	{                                                                                                              \
		allocations += counting;                                                                               \
		return __real_##name_(__VA_ARGS__);                                                                    \
	}
COUNTED(malloc, (size_t size), size)
COUNTED(calloc, (size_t n, size_t size), n, size)
COUNTED(realloc, (void *p, size_t size), p, size)
COUNTED(aligned_alloc, (size_t align, size_t size), align, size)

/* The benchmark (bench/nvme.c) counts the same; here the counts are exact. */
static void test_full_queue_costs_no_allocation_and_few_doorbells(void)
{
	unsigned rounds = 200;

	fx_begin_ready(128);
	struct nvme_pcie_qpair *q = nvme_pcie_qpair_of(fx.qpair);
	uint64_t before = q->doorbells;

	counting = true;
	void *volatile p = malloc(1);
	free(p);
	CU_ASSERT_EQUAL(allocations, 1); /* they are counted */
	allocations = 0;
	for (unsigned r = 0; r < rounds; r++) {
		for (unsigned i = 0; i < FX_IOS; i++) {
			fx_submit(i, nvme_cmd_read, 1, i * 8, 8);
		}
		nvme_qpair_flush(fx.qpair);
		model_step(&fx.model);
		nvme_qpair_poll(fx.qpair, 0);
	}
	counting = false;
	CU_ASSERT_EQUAL(allocations, 0);
	CU_ASSERT(q->doorbells - before < rounds * FX_IOS / 10);
	CU_ASSERT(q->doorbells - before >= rounds); /* the counter works */
	for (unsigned i = 0; i < FX_IOS; i++) {
		CU_ASSERT_EQUAL(fx.io[i].completions, rounds);
	}
	fx_end();
}

static void test_poll_handles_no_more_than_asked(void)
{
	fx_begin_ready(15);
	poller_pause(fx.qpair_poller);
	for (unsigned i = 0; i < 10; i++) {
		CU_ASSERT_EQUAL(fx_submit(i, nvme_cmd_read, 1, i, 1), 0);
	}
	nvme_qpair_flush(fx.qpair);
	CU_ASSERT_EQUAL(model_step(&fx.model), 10);
	CU_ASSERT_EQUAL(nvme_qpair_poll(fx.qpair, 4), 4);
	CU_ASSERT_EQUAL(nvme_qpair_poll(fx.qpair, 0), 6);
	poller_resume(fx.qpair_poller);
	fx_end();
}

static void test_shadow_doorbells_spare_the_registers(void)
{
	fx_begin();
	fx.model.shadow_offered = true;
	fx_connect();
	fx_create_qpair(15);
	struct nvme_pcie_qpair *q = nvme_pcie_qpair_of(fx.qpair);
	uint64_t before = q->doorbells;
	for (unsigned round = 0; round < 50; round++) {
		for (unsigned i = 0; i < 10; i++) {
			CU_ASSERT_EQUAL(fx_submit(i, nvme_cmd_read, 1, i, 1), 0);
		}
		fx_run();
	}
	CU_ASSERT_EQUAL(fx.io[9].completions, 50);
	/* by its event index the model declares that it reads the shadow by itself, except at the value that it has
	 * read last */
	CU_ASSERT(q->doorbells - before <= 150);
	fx_end();
}

static void test_interrupt_wakes_who_has_armed(void)
{
	fx_begin();
	fx.model.vectors_wanted = MODEL_QUEUES;
	fx_connect();
	fx_create_qpair(15);
	poller_pause(fx.qpair_poller);
	poller_pause(fx.model_poller);
	struct pollfd p = {.fd = nvme_qpair_fd(fx.qpair), .events = POLLIN};
	CU_ASSERT_FATAL(p.fd >= 0);
	CU_ASSERT(!nvme_qpair_arm(fx.qpair));
	CU_ASSERT_EQUAL(fx_submit(0, nvme_cmd_read, 1, 0, 1), 0);
	nvme_qpair_flush(fx.qpair);
	CU_ASSERT_EQUAL(poll(&p, 1, 0), 0);
	model_step(&fx.model);
	CU_ASSERT_EQUAL(poll(&p, 1, 0), 1);
	CU_ASSERT(nvme_qpair_arm(fx.qpair)); /* a completion came in between */
	CU_ASSERT_EQUAL(nvme_qpair_poll(fx.qpair, 0), 1);
	CU_ASSERT(!nvme_qpair_arm(fx.qpair));
	CU_ASSERT_EQUAL(poll(&p, 1, 0), 0); /* nothing is left to read */
	poller_resume(fx.qpair_poller);
	poller_resume(fx.model_poller);
	fx_end();
}

static void test_interrupts_go_off_while_there_is_work(void)
{
	fx_begin();
	fx.model.vectors_wanted = MODEL_QUEUES;
	fx_connect();
	fx_create_qpair(15);
	nvme_qpair_arm(fx.qpair);
	CU_ASSERT(fx.model.vector_on[1]);
	for (unsigned i = 0; i < 100; i++) {
		CU_ASSERT_EQUAL(fx_submit(0, nvme_cmd_read, 1, 0, 1), 0);
		fx_run();
	}
	CU_ASSERT(!fx.model.vector_on[1]);
	fx_end();
}

/* Faults. */

static void test_command_without_answer_is_aborted(void)
{
	begin_quick();
	set_fault(MODEL_FAULT_NO_ANSWER, nvme_cmd_read, 0, 1, 0);
	CU_ASSERT_EQUAL(fx_submit(0, nvme_cmd_read, 1, 0, 1), 0);
	CU_ASSERT(FX_WAIT(fx.io[0].completions == 1));
	CU_ASSERT_EQUAL(fx.io[0].status, NVME_ST(GENERIC, ABORT_REQ));
	CU_ASSERT_EQUAL(fx.model.admin_commands[nvme_admin_abort_cmd], 1);
	CU_ASSERT_EQUAL(fx.down, 0);
	CU_ASSERT_EQUAL(fx_submit(1, nvme_cmd_read, 1, 0, 1), 0);
	CU_ASSERT(FX_WAIT(fx.io[1].completions == 1));
	CU_ASSERT_EQUAL(fx.io[1].status, 0);
	fx_end();
}

/* Longer than a command has until the controller is reset. */
static bool limits_are_over(void)
{
	return env_ticks() - fx.io[0].req->submitted_ticks > env_us_to_ticks(4000 * fx.ctrlr->opts.io_timeout_ms);
}

static void test_command_beyond_the_abort_limit_waits_for_its_abort(void)
{
	begin_quick();
	fx.ctrlr->aborts = fx.ctrlr->id.acl + 1u; /* those of other queue pairs */
	set_fault(MODEL_FAULT_NO_ANSWER, nvme_cmd_read, 0, 1, 0);
	CU_ASSERT_EQUAL(fx_submit(0, nvme_cmd_read, 1, 0, 1), 0);
	CU_ASSERT(FX_WAIT(fx.down != 0 || limits_are_over()));
	CU_ASSERT_EQUAL(fx.down, 0);
	CU_ASSERT_EQUAL(fx.io[0].completions, 0);
	CU_ASSERT_EQUAL(fx.model.admin_commands[nvme_admin_abort_cmd], 0);
	fx.ctrlr->aborts = 0;
	CU_ASSERT(FX_WAIT(fx.io[0].completions == 1));
	CU_ASSERT_EQUAL(fx.io[0].status, NVME_ST(GENERIC, ABORT_REQ));
	CU_ASSERT_EQUAL(fx.model.admin_commands[nvme_admin_abort_cmd], 1);
	CU_ASSERT_EQUAL(fx.down, 0);
	fx_end();
}

static void test_command_that_even_abort_does_not_end_resets_the_controller(void)
{
	begin_quick();
	set_fault(MODEL_FAULT_DEAF, nvme_cmd_read, 0, 1, 0);
	CU_ASSERT_EQUAL(fx_submit(0, nvme_cmd_read, 1, 0, 1), 0);
	CU_ASSERT_EQUAL(fx_submit(1, nvme_cmd_read, 1, 0, 1), 0);
	CU_ASSERT(FX_WAIT(fx.down == 1));
	CU_ASSERT_EQUAL(fx.io[0].completions, 1);
	CU_ASSERT(ABORTED_QUEUE(0));
	CU_ASSERT_EQUAL(fx.io[1].status, 0);
	CU_ASSERT(FX_WAIT(fx.ready == 2));
	fx_create_qpair(15);
	CU_ASSERT_EQUAL(fx_submit(0, nvme_cmd_read, 1, 0, 1), 0);
	CU_ASSERT(FX_WAIT(fx.io[0].completions == 2));
	CU_ASSERT_EQUAL(fx.io[0].status, 0);
	fx_end();
}

static void test_late_answer_is_an_answer(void)
{
	fx_begin_ready(15);
	set_fault(MODEL_FAULT_LATE, nvme_cmd_read, 0, 2, 0);
	CU_ASSERT_EQUAL(fx_submit(0, nvme_cmd_read, 1, 0, 1), 0);
	CU_ASSERT_EQUAL(fx_submit(1, nvme_cmd_read, 1, 0, 1), 0);
	CU_ASSERT_EQUAL(fx_submit(2, nvme_cmd_read, 1, 0, 1), 0);
	fx_run();
	CU_ASSERT_EQUAL(fx.io[0].completions + fx.io[1].completions, 0);
	CU_ASSERT_EQUAL(fx.io[2].completions, 1);
	model_release(&fx.model);
	fx_run();
	CU_ASSERT_EQUAL(fx.io[0].completions, 1);
	CU_ASSERT_EQUAL(fx.io[0].status, 0);
	fx_end();
}

static void test_bad_phase_is_no_completion(void)
{
	begin_quick();
	set_fault(MODEL_FAULT_BAD_PHASE, nvme_cmd_read, 0, 1, 0);
	CU_ASSERT_EQUAL(fx_submit(0, nvme_cmd_read, 1, 0, 1), 0);
	CU_ASSERT(FX_WAIT(fx.down == 1)); /* Abort finds nothing to abort */
	CU_ASSERT(ABORTED_QUEUE(0));
	CU_ASSERT(FX_WAIT(fx.ready == 2));
	fx_end();
}

static void expect_reset_by(enum model_fault_kind kind)
{
	fx_begin_ready(15);
	for (unsigned i = 0; i < 4; i++) {
		CU_ASSERT_EQUAL(fx_submit(i, nvme_cmd_read, 1, i, 1), 0);
	}
	fx_run(); /* command ids 0 to 3 have been used, and are free */
	set_fault(MODEL_FAULT_LATE, -1, 0, 3, 0);
	for (unsigned i = 4; i < 7; i++) {
		CU_ASSERT_EQUAL(fx_submit(i, nvme_cmd_write, 1, i, 1), 0);
	}
	fx_run();
	set_fault(kind, nvme_cmd_read, 0, 1, 0);
	fx.ctrlr->opts.admin_timeout_ms = 200; /* so that its health is checked soon */
	nvme_ctrlr_start_watch(fx.ctrlr);
	CU_ASSERT_EQUAL(fx_submit(7, nvme_cmd_read, 1, 0, 1), 0);
	CU_ASSERT(FX_WAIT(fx.down + fx.removed == 1));
	for (unsigned i = 4; i < 7; i++) {
		CU_ASSERT_EQUAL(fx.io[i].completions, 1);
		CU_ASSERT(ABORTED_QUEUE(i));
	}
	CU_ASSERT(FX_WAIT(fx.ready == 2 || fx.removed));
	fx_end();
}

static void test_completion_with_an_impossible_id_resets_the_controller(void)
{
	expect_reset_by(MODEL_FAULT_HUGE_CID);
}

static void test_duplicate_completion_resets_the_controller(void)
{
	expect_reset_by(MODEL_FAULT_DUPLICATE);
}

static void test_fatal_status_under_io_resets_the_controller(void)
{
	expect_reset_by(MODEL_FAULT_CFS);
}

static void test_removal_under_io_completes_everything(void)
{
	expect_reset_by(MODEL_FAULT_REMOVED);
	CU_ASSERT_EQUAL(fx.removed, 1);
	CU_ASSERT_EQUAL(fx.ready, 1);
}

static void test_nothing_is_given_back_before_the_drive_is_disabled(void)
{
	fx_begin_ready(15);
	poller_pause(fx.model_poller);
	CU_ASSERT_EQUAL(fx_submit(0, nvme_cmd_read, 1, 0, 1), 0);
	CU_ASSERT_EQUAL(fx_submit(1, nvme_cmd_read, 1, 0, 1), 0);
	nvme_qpair_flush(fx.qpair);
	struct nvme_cqe *cqe = &nvme_pcie_qpair_of(fx.qpair)->cq[0];
	*cqe = (struct nvme_cqe){.cid = 0x7777, .status = 1}; /* a forged completion */
	CU_ASSERT_EQUAL(nvme_qpair_poll(fx.qpair, 0), -ENXIO);
	CU_ASSERT_EQUAL(nvme_qpair_submit(fx.qpair, fx.io[2].req), -ENXIO);
	CU_ASSERT_EQUAL(nvme_qpair_poll(fx.qpair, 0), -ENXIO);
	CU_ASSERT_EQUAL(fx.io[0].completions, 0); /* the drive may still write to its buffer */
	poller_resume(fx.model_poller);
	CU_ASSERT(FX_WAIT(fx.down == 1));
	CU_ASSERT_EQUAL(fx.io[0].completions, 1);
	CU_ASSERT_EQUAL(fx.model.resets, 1);
	fx_end();
}

static void test_stopping_under_io_completes_everything(void)
{
	fx_begin_ready(15);
	set_fault(MODEL_FAULT_DEAF, -1, 0, 5, 0);
	for (unsigned i = 0; i < 5; i++) {
		CU_ASSERT_EQUAL(fx_submit(i, nvme_cmd_read, 1, i, 1), 0);
	}
	fx_run();
	fx_end(); /* counts the completions */
	CU_ASSERT(ABORTED_QUEUE(4));
	CU_ASSERT_EQUAL(fx.down, 0);
}

static void renew_qpair(void)
{
	struct nvme_qpair *q = fx.qpair;
	uint16_t id = nvme_qpair_id(q);

	nvme_qpair_stop(q, NULL, NULL);
	CU_ASSERT(FX_WAIT(fx.model.queues[id].cq == 0));
	poller_unregister(&fx.qpair_poller);
	nvme_qpair_abort_all(q);
	nvme_qpair_destroy(q);
	fx_create_qpair(31);
	CU_ASSERT_PTR_NOT_NULL_FATAL(fx.qpair);
}

static void test_queue_ids_are_used_again_in_turn(void)
{
	fx_begin_ready(15);
	uint16_t ids = nvme_ctrlr_io_queues(fx.ctrlr);
	for (unsigned i = 1; i <= ids; i++) {
		renew_qpair();
		CU_ASSERT_EQUAL(nvme_qpair_id(fx.qpair), i % ids + 1);
	}
	CU_ASSERT_EQUAL(fx_submit(0, nvme_cmd_read, 1, 0, 1), 0);
	fx_run();
	CU_ASSERT_EQUAL(fx.io[0].completions, 1);
	fx_end();
}

static void fault_admin(enum model_fault_kind kind, int opcode, uint16_t status)
{
	fx.model.fault = (struct model_fault){.kind = kind, .qid = 0, .opcode = opcode, .count = 1, .status = status};
}

static void test_queue_that_cannot_be_deleted_resets_the_controller(void)
{
	static const uint8_t opcodes[] = {nvme_admin_delete_sq, nvme_admin_delete_cq};
	static const enum model_fault_kind kinds[] = {MODEL_FAULT_STATUS, MODEL_FAULT_DEAF, MODEL_FAULT_REMOVED};

	for (unsigned i = 0; i < 6; i++) {
		fx_begin_ready(15);
		set_fault(MODEL_FAULT_DEAF, -1, 0, 1, 0);
		CU_ASSERT_EQUAL(fx_submit(0, nvme_cmd_read, 1, 0, 1), 0);
		fx_run();
		fx.close_by_event = false;
		fx_be_quick();
		fault_admin(kinds[i / 2], opcodes[i % 2], NVME_ST(GENERIC, INTERNAL));
		fx_end();
		CU_ASSERT_EQUAL(fx.io[0].completions, 1);
	}
}

static void test_queue_that_is_refused_is_an_error_to_its_creator_only(void)
{
	static const uint8_t opcodes[] = {nvme_admin_create_cq, nvme_admin_create_sq};

	for (unsigned i = 0; i < 2; i++) {
		fx_begin();
		fx_connect();
		fault_admin(MODEL_FAULT_STATUS, opcodes[i], NVME_ST(CMD_SPECIFIC, QID_INVALID));
		fx_create_qpair(15);
		CU_ASSERT(fx.create_error < 0);
		CU_ASSERT_PTR_NULL(fx.qpair);
		CU_ASSERT_EQUAL(fx.down, 0);
		fx_end();
	}
}

static void test_queue_whose_creation_is_late_is_not_freed_under_the_drive(void)
{
	static const uint8_t opcodes[] = {nvme_admin_create_cq, nvme_admin_create_sq};

	for (unsigned i = 0; i < 2; i++) {
		fx_begin();
		fx.opts.connect_timeout_ms = 100;
		fx_connect();
		fault_admin(MODEL_FAULT_LATE, opcodes[i], 0);
		fx_create_qpair(15); /* times out */
		CU_ASSERT(fx.create_error < 0);
		/* only now does the drive create the queue: its memory must still be allocated */
		model_release(&fx.model);
		CU_ASSERT(fx.model.queues[1].cq != 0);
		memset((void *)(uintptr_t)fx.model.queues[1].cq, 0, 64);
		fx_end();
	}
}

/* The only queue pair is not created in time, and the answer to `opcode` is held back. */
static void create_too_late(uint8_t opcode, enum model_fault_kind kind)
{
	fx_begin();
	fx.opts.io_queues = 1;
	fx.opts.connect_timeout_ms = 100;
	fx_connect();
	fault_admin(kind, opcode, 0);
	fx_create_qpair(15);
	CU_ASSERT_EQUAL(fx.create_error, -ECONNREFUSED);
	/* the drive may still create it, and its number is free soon */
	fx_create_qpair(15);
	CU_ASSERT_EQUAL(fx.create_error, -EAGAIN);
	fx.ctrlr->opts.connect_timeout_ms = WAIT_US / 1000;
}

static bool qid_is_free(void)
{
	return (fx.ctrlr->qids[0] & 2) == 0;
}

/* The number can be used again, and the drive has nothing of the queue pair that was too late. */
static void check_qid_is_of_use(void)
{
	CU_ASSERT_FATAL(FX_WAIT(qid_is_free()));
	CU_ASSERT(TAILQ_EMPTY(&nvme_pcie_ctrlr_of(fx.ctrlr)->limbo));
	CU_ASSERT_EQUAL(fx.model.queues[1].cq, 0);
	CU_ASSERT_EQUAL(fx.model.queues[1].sq, 0);
	fx_create_qpair(15);
	CU_ASSERT_PTR_NOT_NULL_FATAL(fx.qpair);
	CU_ASSERT_EQUAL(nvme_qpair_id(fx.qpair), 1);
	CU_ASSERT_EQUAL(fx_submit(0, nvme_cmd_read, 1, 0, 1), 0);
	fx_run();
	CU_ASSERT_EQUAL(fx.io[0].completions, 1);
	CU_ASSERT_EQUAL(fx.io[0].status, 0);
}

static void test_queue_that_is_created_too_late_is_deleted(void)
{
	static const uint8_t opcodes[] = {nvme_admin_create_cq, nvme_admin_create_sq};

	for (unsigned i = 0; i < 2; i++) {
		create_too_late(opcodes[i], MODEL_FAULT_LATE);
		model_release(&fx.model);
		check_qid_is_of_use();
		CU_ASSERT_EQUAL(fx.model.admin_commands[nvme_admin_delete_cq], 1);
		CU_ASSERT_EQUAL(fx.model.admin_commands[nvme_admin_delete_sq], i);
		CU_ASSERT_EQUAL(fx.down, 0);
		fx_end();
	}
}

static void test_queue_that_is_refused_too_late_leaves_nothing(void)
{
	static const uint8_t opcodes[] = {nvme_admin_create_cq, nvme_admin_create_sq};

	for (unsigned i = 0; i < 2; i++) {
		create_too_late(opcodes[i], MODEL_FAULT_LATE);
		uint64_t *taken = i == 0 ? &fx.model.queues[1].cq : &fx.model.queues[1].sq;
		*taken = 4096; /* so the drive refuses */
		model_release(&fx.model);
		*taken = 0;
		check_qid_is_of_use();
		CU_ASSERT_EQUAL(fx.model.admin_commands[nvme_admin_delete_cq], i);
		CU_ASSERT_EQUAL(fx.model.admin_commands[nvme_admin_delete_sq], 0);
		CU_ASSERT_EQUAL(fx.down, 0);
		fx_end();
	}
}

static void test_queue_whose_refusal_is_cleaned_up_too_late_leaves_nothing(void)
{
	fx_begin();
	fx.opts.io_queues = 1;
	fx.opts.connect_timeout_ms = 100;
	fx_connect();
	fx.model.queues[1].sq = 4096; /* so the drive refuses Create I/O Submission Queue */
	fx.model.queues[1].sq_size = 16;
	fault_admin(MODEL_FAULT_LATE, nvme_admin_delete_cq, 0);
	fx_create_qpair(15);
	CU_ASSERT_EQUAL(fx.create_error, -ECONNREFUSED);
	CU_ASSERT(!qid_is_free());
	fx.model.queues[1].sq = 0;
	fx.ctrlr->opts.connect_timeout_ms = WAIT_US / 1000;
	model_release(&fx.model);
	check_qid_is_of_use();
	CU_ASSERT_EQUAL(fx.model.admin_commands[nvme_admin_delete_cq], 1);
	CU_ASSERT_EQUAL(fx.down, 0);
	fx_end();
}

static char stays[256];

static void find_stays(enum log_level level, const char *file, int line, const char *text)
{
	if (strstr(text, "stays in use until the controller is reset") != NULL) {
		snprintf(stays, sizeof(stays), "%s", text);
	}
}

static void not_created(void *arg, struct nvme_qpair *qpair, int error)
{
	CU_ASSERT_PTR_NULL(qpair);
	fx.create_error = error;
	fx.created = true;
}

/* Besides fx.qpair. */
static void create_another(void (*ready)(void *arg, struct nvme_qpair *qpair, int error))
{
	fx.created = false;
	nvme_qpair_create(fx.ctrlr, &(struct nvme_qpair_opts){.entries = 15, .numa_node = -1}, ready, NULL);
	CU_ASSERT_FATAL(FX_WAIT(fx.created));
}

static void await_stays(const char *what)
{
	log_set_print_level(LOG_LEVEL_WARNING);
	stays[0] = '\0';
	log_set_tap(find_stays);
	model_release(&fx.model);
	CU_ASSERT(FX_WAIT(stays[0] != '\0'));
	log_set_tap(NULL);
	log_set_print_level(LOG_LEVEL_DISABLED);
	CU_ASSERT_PTR_NOT_NULL(strstr(stays, what));
}

/* Another queue pair is served, and goes on. */
static void test_number_of_a_late_queue_that_cannot_be_deleted_is_not_used_before_a_reset(void)
{
	static const uint8_t opcodes[] = {nvme_admin_delete_sq, nvme_admin_delete_cq};

	for (unsigned i = 0; i < 2; i++) {
		fx_begin();
		fx.opts.io_queues = 2;
		fx_connect();
		fx_create_qpair(15);
		CU_ASSERT_PTR_NOT_NULL_FATAL(fx.qpair);
		fault_admin(MODEL_FAULT_LATE, nvme_admin_create_sq, 0);
		fx.ctrlr->opts.connect_timeout_ms = 100;
		create_another(not_created);
		CU_ASSERT_EQUAL(fx.create_error, -ECONNREFUSED);
		fx.ctrlr->opts.connect_timeout_ms = WAIT_US / 1000;
		fault_admin(MODEL_FAULT_STATUS, opcodes[i], NVME_ST(GENERIC, INTERNAL));
		await_stays(i == 0 ? "Delete I/O Submission Queue 2" : "Delete I/O Completion Queue 2");
		CU_ASSERT_EQUAL(fx.down, 0);
		CU_ASSERT_EQUAL(fx_submit(1, nvme_cmd_read, 1, 0, 1), 0);
		fx_run();
		CU_ASSERT_EQUAL(fx.io[1].status, 0);
		CU_ASSERT_NOT_EQUAL(fx.ctrlr->qids[0] & 4, 0);
		create_another(not_created);
		CU_ASSERT_EQUAL(fx.create_error, -ENOSPC);
		nvme_ctrlr_reset(fx.ctrlr);
		CU_ASSERT_FATAL(FX_WAIT(fx.ready == 2 && fx.qpair == NULL));
		CU_ASSERT_EQUAL(fx.ctrlr->qids[0] & 4, 0);
		check_qid_is_of_use();
		fx_end();
	}
}

/* Nobody is served, and no number is left: nobody but the driver would reset the controller. */
static void test_late_queue_that_cannot_be_deleted_resets_a_controller_that_serves_nobody(void)
{
	static const uint8_t opcodes[] = {nvme_admin_delete_sq, nvme_admin_delete_cq};

	for (unsigned i = 0; i < 2; i++) {
		create_too_late(nvme_admin_create_sq, MODEL_FAULT_LATE);
		fault_admin(MODEL_FAULT_STATUS, opcodes[i], NVME_ST(GENERIC, INTERNAL));
		model_release(&fx.model);
		CU_ASSERT_FATAL(FX_WAIT(fx.ready == 2));
		CU_ASSERT_EQUAL(fx.down, 1);
		check_qid_is_of_use();
		fx_end();
	}
}

static uint64_t (*translate)(const void *buf, size_t *len);

/* Create I/O Completion Queue can be sent, and then Create I/O Submission Queue cannot. */
static uint64_t translate_until_there_is_a_cq(const void *buf, size_t *len)
{
	return fx.model.queues[1].cq == 0 ? translate(buf, len) : ENV_IOVA_BAD;
}

static void ignore_admin(void *arg, const struct nvme_cqe *cqe)
{
}

/* The queue pair could not be created. Before it is given up, the admin queue fills. */
static void not_created_fill_admin_queue(void *arg, struct nvme_qpair *qpair, int error)
{
	struct nvme_sqe cmd = {.opcode = nvme_admin_keep_alive};

	fault_admin(MODEL_FAULT_LATE, nvme_admin_keep_alive, 0);
	fx.model.fault.count = 1000;
	while (nvme_ctrlr_admin(fx.ctrlr, &cmd, NULL, 0, false, ignore_admin, NULL) == 0) {
	}
	CU_ASSERT_EQUAL(nvme_qpair_outstanding(fx.ctrlr->admin), nvme_qpair_entries(fx.ctrlr->admin));
	not_created(arg, qpair, error);
}

static void test_queue_whose_deletion_finds_the_admin_queue_full_is_deleted_later(void)
{
	fx_begin();
	fx.opts.io_queues = 1;
	fx_connect();
	struct nvme_pcie_qpair *admin = nvme_pcie_qpair_of(fx.ctrlr->admin);
	translate = admin->translate;
	admin->translate = translate_until_there_is_a_cq;
	create_another(not_created_fill_admin_queue);
	admin->translate = translate;
	CU_ASSERT_EQUAL(fx.create_error, -ECONNREFUSED);
	CU_ASSERT_FATAL(FX_WAIT(!TAILQ_EMPTY(&nvme_pcie_ctrlr_of(fx.ctrlr)->limbo)));
	CU_ASSERT_NOT_EQUAL(fx.model.queues[1].cq, 0);
	fx.model.fault.count = 0;
	model_release(&fx.model);
	check_qid_is_of_use();
	CU_ASSERT_EQUAL(fx.model.admin_commands[nvme_admin_delete_cq], 1);
	CU_ASSERT_EQUAL(fx.down, 0);
	fx_end();
}

static void test_number_of_a_queue_whose_creation_is_never_answered_is_of_use_after_the_reset(void)
{
	static const uint8_t opcodes[] = {nvme_admin_create_cq, nvme_admin_create_sq};

	for (unsigned i = 0; i < 2; i++) {
		create_too_late(opcodes[i], MODEL_FAULT_DEAF);
		fx_be_quick();
		CU_ASSERT_FATAL(FX_WAIT(fx.ready >= 2)); /* the admin command has a time limit of its own */
		fx.ctrlr->opts.admin_timeout_ms = fx.ctrlr->opts.connect_timeout_ms = WAIT_US / 1000;
		check_qid_is_of_use();
		fx_end();
	}
}

static void test_connection_lost_while_a_queue_is_created_is_an_error_to_its_creator(void)
{
	fx_begin();
	fx_connect();
	fx_be_quick();
	fault_admin(MODEL_FAULT_REMOVED, nvme_admin_create_sq, 0);
	fx_create_qpair(15);
	CU_ASSERT(fx.create_error < 0);
	CU_ASSERT(FX_WAIT(fx.removed == 1));
	fx_end();
}

static void test_more_queues_than_granted_are_refused(void)
{
	fx_begin();
	fx.opts.io_queues = 1;
	fx_connect();
	fx_create_qpair(15);
	struct nvme_qpair *first = fx.qpair;
	struct poller *p = fx.qpair_poller;
	CU_ASSERT_PTR_NOT_NULL(first);
	fx_create_qpair(15);
	CU_ASSERT_EQUAL(fx.create_error, -ENOSPC);
	fx.qpair = first;
	fx.qpair_poller = p;
	fx_end();
}

static const struct unit_test tests[] = {
	UNIT(test_data_is_written_and_read),
	UNIT(test_scattered_data_goes_by_sgl),
	UNIT(test_scattered_data_is_refused_by_drives_without_sgls),
	UNIT(test_metadata_goes_with_the_data),
	UNIT(test_status_of_a_command_is_handed_on),
	UNIT(test_queue_takes_as_many_as_it_has_entries),
	UNIT(test_queues_wrap_around_for_a_long_time),
	UNIT(test_doorbell_is_rung_once_for_many_commands),
	UNIT(test_full_queue_costs_no_allocation_and_few_doorbells),
	UNIT(test_poll_handles_no_more_than_asked),
	UNIT(test_shadow_doorbells_spare_the_registers),
	UNIT(test_interrupt_wakes_who_has_armed),
	UNIT(test_interrupts_go_off_while_there_is_work),
	UNIT(test_command_without_answer_is_aborted),
	UNIT(test_command_beyond_the_abort_limit_waits_for_its_abort),
	UNIT(test_command_that_even_abort_does_not_end_resets_the_controller),
	UNIT(test_late_answer_is_an_answer),
	UNIT(test_bad_phase_is_no_completion),
	UNIT(test_completion_with_an_impossible_id_resets_the_controller),
	UNIT(test_duplicate_completion_resets_the_controller),
	UNIT(test_fatal_status_under_io_resets_the_controller),
	UNIT(test_removal_under_io_completes_everything),
	UNIT(test_nothing_is_given_back_before_the_drive_is_disabled),
	UNIT(test_stopping_under_io_completes_everything),
	UNIT(test_queue_ids_are_used_again_in_turn),
	UNIT(test_queue_that_cannot_be_deleted_resets_the_controller),
	UNIT(test_queue_that_is_refused_is_an_error_to_its_creator_only),
	UNIT(test_queue_whose_creation_is_late_is_not_freed_under_the_drive),
	UNIT(test_queue_that_is_created_too_late_is_deleted),
	UNIT(test_queue_that_is_refused_too_late_leaves_nothing),
	UNIT(test_queue_whose_refusal_is_cleaned_up_too_late_leaves_nothing),
	UNIT(test_number_of_a_late_queue_that_cannot_be_deleted_is_not_used_before_a_reset),
	UNIT(test_late_queue_that_cannot_be_deleted_resets_a_controller_that_serves_nobody),
	UNIT(test_queue_whose_deletion_finds_the_admin_queue_full_is_deleted_later),
	UNIT(test_number_of_a_queue_whose_creation_is_never_answered_is_of_use_after_the_reset),
	UNIT(test_connection_lost_while_a_queue_is_created_is_an_error_to_its_creator),
	UNIT(test_more_queues_than_granted_are_refused),
	UNIT_END,
};
UNIT_MAIN("nvme_pcie_io", tests, fx_setup, fx_teardown)

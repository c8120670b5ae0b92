/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests and connections of nvmf_tcp/ in each of their states: how they go on, are aborted, and end. */
#include "unittest/nvmf_tcp/fake_target.h"
#include "unittest/unit.h"

#define PATH NVME_ST(PATH, CTRL_PATH_ERROR)

static void open_live(uint8_t digests)
{
	fake_open();
	fake_icreq(digests);
	fake_connect();
	CU_ASSERT_EQUAL_FATAL(fake.qp->state, NVMF_TCP_QPAIR_LIVE);
	fake.sent_bytes = 0;
}

static uint8_t state_of(uint16_t cid)
{
	struct nvmf_tcp_request *r = fake_request(cid);

	return r != NULL ? r->state : TCP_REQ_FREE;
}

static uint16_t begin_write(uint16_t cid, uint16_t blocks)
{
	fake_command(nvme_cmd_write, cid, blocks, 0, false);
	CU_ASSERT_EQUAL_FATAL(state_of(cid), TCP_REQ_TX_H_TO_C);
	return fake_request(cid)->ttag;
}

static bool abort_request(uint16_t cid)
{
	bool done = nvmf_tcp_op_request_abort(&fake_request(cid)->req, NVME_ST(GENERIC, ABORT_REQ));

	fake_run();
	return done;
}

static void test_connection_goes_through_its_states(void)
{
	fake_open();
	CU_ASSERT_EQUAL(fake.qp->state, NVMF_TCP_QPAIR_INITIALIZING);
	fake_icreq(0);
	CU_ASSERT_EQUAL(fake.qp->state, NVMF_TCP_QPAIR_SETUP);
	CU_ASSERT_EQUAL(fake.sent_bytes, 128);
	fake_connect();
	CU_ASSERT_EQUAL(fake.qp->state, NVMF_TCP_QPAIR_LIVE);
	CU_ASSERT_EQUAL(fake.qp->array->base.count, FAKE_ENTRIES);
	CU_ASSERT(fake_end());
}

static void test_commands_are_answered_with_each_digest(void)
{
	for (uint8_t digests = 0; digests < 4; digests++) {
		open_live(digests);
		fake_command(nvme_cmd_write, 1, 8, 0x11, true);
		CU_ASSERT_EQUAL(fake.last_written, 0x11);
		uint16_t ttag = begin_write(2, 64);
		fake_data(2, ttag, 0, 16384, 0x22, false, 0);
		CU_ASSERT_EQUAL(state_of(2), TCP_REQ_TX_H_TO_C);
		fake_data(2, ttag, 16384, 16384, 0x22, true, 0);
		CU_ASSERT_EQUAL(fake.last_written, 0x22);
		fake_command(nvme_cmd_read, 3, 8, 0, false);
		CU_ASSERT_EQUAL(fake.writes, 2);
		CU_ASSERT_EQUAL(fake.last_status, 0);
		CU_ASSERT_EQUAL(fake.qp->in_use, 0);
		CU_ASSERT_EQUAL(fake.qp->transfers, 0);
		CU_ASSERT(fake_end());
	}
}

static uint8_t stream[FAKE_ENTRIES * (TCP_HEAD_MAX + 4096)];

/* Capsules of n writes, 4 KiB of 0x40, 0x41 and so on. Their bytes. */
static size_t fill_stream_with_writes(unsigned n)
{
	size_t length = 0;

	for (uint16_t cid = 0; cid < n; cid++) {
		struct nvme_sqe sqe = {.opcode = nvme_cmd_write, .cid = htole16(cid), .cdw12 = htole32(7)};

		length += tcp_capsule_cmd_encode(stream + length, &fake.qp->receiver.agreed, &sqe, 4096);
		memset(stream + length, 0x40 + cid, 4096);
		length += 4096;
	}
	return length;
}

/* What was read for other connections since. */
static void overwrite_shared_stage(void)
{
	CU_ASSERT_PTR_EQUAL(fake.qp->receiver.stage, fake.qp->stage);
	memset(fake.qp->tgroup->stage, 0xee, sizeof(fake.qp->tgroup->stage));
}

static void test_commands_with_their_data_come_in_one_read(void)
{
	open_live(0);
	uint64_t reads = fake.qp->tgroup->counters.reads;
	fake_receive(stream, fill_stream_with_writes(FAKE_ENTRIES));
	CU_ASSERT_EQUAL(fake.qp->tgroup->counters.reads, reads + 1);
	CU_ASSERT_EQUAL(fake.writes, FAKE_ENTRIES);
	CU_ASSERT_EQUAL(fake.last_written, 0x40 + FAKE_ENTRIES - 1);
	CU_ASSERT(fake_end());
}

static void test_held_commands_keep_their_data(void)
{
	open_live(0);
	fake.holds = true;
	fake_receive(stream, fill_stream_with_writes(FAKE_ENTRIES));
	CU_ASSERT_EQUAL(fake.writes, 0);
	overwrite_shared_stage();
	fake_carry_out();
	CU_ASSERT_EQUAL(fake.writes, FAKE_ENTRIES);
	CU_ASSERT_EQUAL(fake.last_written, 0x40 + FAKE_ENTRIES - 1);
	CU_ASSERT(fake_end());
}

static void test_half_a_command_is_kept(void)
{
	for (size_t part = 1; part < 72 + 4096; part += part < 100 ? 1 : 997) {
		open_live(0);
		size_t length = fill_stream_with_writes(1);
		fake_receive(stream, part);
		overwrite_shared_stage();
		fake_receive(stream + part, length - part);
		CU_ASSERT_EQUAL(fake.writes, 1);
		CU_ASSERT_EQUAL(fake.last_written, 0x40);
		CU_ASSERT_EQUAL(fake.last_status, 0);
		CU_ASSERT(fake_end());
	}
}

/* Behind commands that the host has to read the answers of first, the connection has its own stage. */
static void test_commands_behind_unsent_answers_wait(void)
{
	open_live(0);
	fake.room = 0;
	for (uint16_t cid = 0; cid < FAKE_ENTRIES - 1; cid++) {
		fake_command(nvme_cmd_read, cid, 256, 0, false);
	}
	CU_ASSERT(fake.qp->send_blocked);
	fake_receive(stream, fill_stream_with_writes(1));
	CU_ASSERT_PTR_EQUAL(fake.qp->receiver.stage, fake.qp->stage);
	overwrite_shared_stage();
	fake.room = SIZE_MAX;
	fake_run();
	CU_ASSERT_EQUAL(fake.writes, 1);
	CU_ASSERT_EQUAL(fake.last_written, 0x40);
	CU_ASSERT(fake_end());
}

static void test_bytes_come_in_pieces_of_each_size(void)
{
	for (size_t n = 1; n < 200; n += 1 + n / 8) {
		fake_open();
		fake.in_at_once = n;
		fake_icreq(3);
		fake_connect();
		uint16_t ttag = begin_write(1, 16);
		fake_data(1, ttag, 0, 8192, 0x33, true, 0);
		CU_ASSERT_EQUAL(fake.last_written, 0x33);
		CU_ASSERT_EQUAL(fake.writes, 1);
		CU_ASSERT(fake_end());
	}
}

static void test_answers_go_out_in_pieces_of_each_size(void)
{
	size_t whole = 0;

	for (size_t n = SIZE_MAX; n != 0; n = n == SIZE_MAX ? 5000 : n * 2 / 3) {
		open_live(3);
		fake.room = 0;
		fake_command(nvme_cmd_read, 1, 16, 0, false);
		fake_command(nvme_cmd_read, 2, 1, 0, false);
		fake_command(nvme_cmd_flush, 3, 1, 0, false);
		CU_ASSERT(fake.qp->send_blocked && fake.qp->in_use == 3);
		for (unsigned i = 0; fake.qp->in_use != 0 && i < 100000; i++) {
			fake.room = n;
			fake_run();
		}
		CU_ASSERT_EQUAL(fake.qp->unsent, 0);
		whole = whole != 0 ? whole : fake.sent_bytes;
		CU_ASSERT_EQUAL(fake.sent_bytes, whole);
		CU_ASSERT(fake_end());
	}
}

/* Of commands that end at the same time: a queue's answers to writes, and data to reads, with each digest. */
static void test_answers_of_many_commands_are_one_sendmsg(void)
{
	for (uint8_t digests = 0; digests < 4; digests++) {
		for (unsigned kind = 0; kind < 2; kind++) {
			open_live(digests);
			fake.holds = true;
			for (uint16_t cid = 0; cid < FAKE_ENTRIES; cid++) {
				fake_command(kind == 0 ? nvme_cmd_read : nvme_cmd_write, cid, 8, cid, kind == 1);
			}
			uint64_t sends = fake.qp->tgroup->counters.sends;
			unsigned calls = fake.sendmsgs;
			fake_carry_out();
			CU_ASSERT_EQUAL(fake.completed, FAKE_ENTRIES + 1); /* and Connect */
			CU_ASSERT_EQUAL(fake.sendmsgs, calls + 1);
			CU_ASSERT_EQUAL(fake.qp->tgroup->counters.sends, sends + 1);
			CU_ASSERT_EQUAL(fake.qp->in_use, 0);
			CU_ASSERT(fake.sent_bytes >= FAKE_ENTRIES * (kind == 0 ? 4096u + 24 : 24u));
			CU_ASSERT(fake_end());
		}
	}
}

static void test_abort_in_each_state(void)
{
	open_live(0);
	/* NEED_BUFFER */
	fake.buffers = 0;
	fake_command(nvme_cmd_read, 1, 16, 0, false);
	CU_ASSERT_EQUAL(state_of(1), TCP_REQ_NEED_BUFFER);
	CU_ASSERT(abort_request(1));
	CU_ASSERT_EQUAL(fake.last_status, NVME_ST(GENERIC, ABORT_REQ));
	fake.buffers = 8;
	/* AWAIT_R2T_ACK: nothing of it has been sent */
	fake.room = 0;
	fake_command(nvme_cmd_write, 2, 16, 0, false);
	CU_ASSERT_EQUAL(state_of(2), TCP_REQ_AWAIT_R2T_ACK);
	CU_ASSERT(abort_request(2));
	fake.room = SIZE_MAX;
	size_t before = fake.sent_bytes;
	fake_run();
	CU_ASSERT_EQUAL(fake.sent_bytes - before, 24); /* a response, and no R2T */
	CU_ASSERT_EQUAL(fake.sent[before], TCP_PDU_CAPSULE_RESP);
	/* a part of the R2T has been sent */
	fake.room = 10;
	fake_command(nvme_cmd_write, 3, 16, 0, false);
	CU_ASSERT_EQUAL(state_of(3), TCP_REQ_AWAIT_R2T_ACK);
	CU_ASSERT_FALSE(abort_request(3));
	fake.room = SIZE_MAX;
	fake_run();
	/* TX_H_TO_C */
	CU_ASSERT_EQUAL(state_of(3), TCP_REQ_TX_H_TO_C);
	uint16_t ttag = fake_request(3)->ttag;
	CU_ASSERT(abort_request(3));
	CU_ASSERT_EQUAL(fake.qp->transfers, 0);
	fake_data(3, ttag, 0, 8192, 0x44, true, 0);
	CU_ASSERT_EQUAL(fake.writes, 0);
	/* EXECUTING */
	fake.holds = true;
	fake_command(nvme_cmd_flush, 4, 1, 0, false);
	CU_ASSERT_EQUAL(state_of(4), TCP_REQ_EXECUTING);
	CU_ASSERT_FALSE(abort_request(4));
	fake.holds = false;
	/* its answer waits */
	fake.room = 0;
	fake_carry_out();
	CU_ASSERT_EQUAL(state_of(4), TCP_REQ_TRANSFER_C2H);
	CU_ASSERT_FALSE(abort_request(4));
	CU_ASSERT_EQUAL(fake.qp->base.state, NVMF_QPAIR_CONNECTING);
	CU_ASSERT(fake_end());
}

/* Each number of bytes of the data, and the request's next command while the rest is on its way. */
static void test_abort_after_each_part_of_the_data(void)
{
	for (uint32_t n = 1; n <= 24 + 4 + 512 + 4; n++) {
		open_live(3);
		fake.buffers = 1;
		uint16_t ttag = begin_write(1, 16);
		fake_data(1, ttag, 0, 8192, 0x55, true, n);
		CU_ASSERT(abort_request(1));
		CU_ASSERT_EQUAL(fake.buffers_used, 0);
		CU_ASSERT_EQUAL(fake.completed, 2);
		CU_ASSERT_EQUAL(fake.writes, 0);
		CU_ASSERT(fake_end());
	}
}

static void test_late_data_and_those_of_the_next_command_are_told_apart(void)
{
	open_live(2);
	uint16_t late = begin_write(1, 16);
	CU_ASSERT(abort_request(1));
	uint16_t ttag = begin_write(2, 16);
	CU_ASSERT_NOT_EQUAL(ttag, late);
	CU_ASSERT_EQUAL(ttag % FAKE_ENTRIES, late % FAKE_ENTRIES);
	CU_ASSERT_FALSE(abort_request(2)); /* it remembers one command */
	fake_data(1, late, 0, 4096, 0x66, false, 0);
	fake_data(2, ttag, 0, 8192, 0x77, true, 0);
	CU_ASSERT_EQUAL(fake.last_written, 0x77);
	fake_data(1, late, 4096, 4096, 0x66, true, 0);
	CU_ASSERT_EQUAL(fake.writes, 1);
	for (unsigned i = 0; i < 10; i++) {
		uint16_t t = begin_write(3, 16);
		CU_ASSERT(abort_request(3));
		fake_data(3, t, 0, 8192, 0x66, true, 0);
	}
	CU_ASSERT_EQUAL(fake.writes, 1);
	fake_data(1, late, 0, 8192, 0x66, true, 0);
	CU_ASSERT_EQUAL(fake.sent[fake.sent_bytes - 48], TCP_PDU_C2H_TERM); /* 24 bytes, and those in error */
	CU_ASSERT(fake_end());
}

/* While its queue pair is being ended, a host has a moment for the data. */
static void test_write_is_taken_back_when_its_queue_pair_is_ended(void)
{
	open_live(0);
	begin_write(1, 16);
	fake.qp->base.state = NVMF_QPAIR_QUIESCING;
	CU_ASSERT_FALSE(nvmf_tcp_op_request_abort(&fake_request(1)->req, PATH));
	fake_request(1)->state_ticks -= 60000;
	CU_ASSERT(nvmf_tcp_op_request_abort(&fake_request(1)->req, PATH));
	fake_run();
	CU_ASSERT_EQUAL(fake.last_status, PATH);
	CU_ASSERT_EQUAL(fake.qp->in_use, 0);
	CU_ASSERT(fake_end());
}

enum end_at {
	AT_NEED_BUFFER,
	AT_R2T,
	AT_R2T_PART,
	AT_DATA,
	AT_PART_OF_DATA,
	AT_LATE_DATA,
	AT_EXECUTING,
	AT_ANSWER,
	AT_PART_OF_ANSWER,
	AT_CAPSULE,
	ENDS
};

static void come_to(enum end_at at, uint8_t digests)
{
	uint8_t head[] = {TCP_PDU_CAPSULE_CMD, digests, 72, 72, 72 + 4, 2, 0, 0}; /* of 512 bytes of data, at least */
	uint16_t ttag;

	switch (at) {
	case AT_NEED_BUFFER:
		fake.buffers = 0;
		fake_command(nvme_cmd_read, 1, 16, 0, false);
		break;
	case AT_R2T:
	case AT_R2T_PART:
		fake.room = at == AT_R2T ? 0 : 10;
		fake_command(nvme_cmd_write, 1, 16, 0, false);
		break;
	case AT_DATA:
		begin_write(1, 16);
		break;
	case AT_PART_OF_DATA:
	case AT_LATE_DATA:
		ttag = begin_write(1, 16);
		fake_data(1, ttag, 0, 8192, 0x11, true, 1000);
		if (at == AT_LATE_DATA) {
			CU_ASSERT(abort_request(1));
		}
		break;
	case AT_EXECUTING:
		fake.holds = true;
		fake_command(nvme_cmd_write, 1, 4, 0, true);
		break;
	case AT_ANSWER:
	case AT_PART_OF_ANSWER:
		fake.room = at == AT_ANSWER ? 0 : 500;
		fake_command(nvme_cmd_read, 1, 16, 0, false);
		break;
	case AT_CAPSULE:
		fake_receive(head, sizeof(head));
		break;
	case ENDS:
		break;
	}
}

static void test_all_is_given_back_at_each_end(void)
{
	for (int digests = 0; digests < 4; digests += 2) {
		for (enum end_at at = AT_NEED_BUFFER; at < ENDS; at++) {
			open_live((uint8_t)digests);
			come_to(at, (uint8_t)digests);
			CU_ASSERT(fake_end());
			open_live((uint8_t)digests);
			come_to(at, (uint8_t)digests);
			nvmf_qpair_fail(&fake.qp->base, "the target ends it");
			CU_ASSERT(fake_end());
		}
	}
}

/* The control thread frees its memory while the read that has found the end returns. */
static void test_connection_that_has_ended_is_not_touched(void)
{
	open_live(0);
	fake.control_is_quick = true;
	CU_ASSERT(fake_end());
}

static void test_more_commands_than_entries_end_it(void)
{
	open_live(0);
	fake.holds = true;
	for (uint16_t i = 0; i < FAKE_ENTRIES; i++) {
		fake_command(nvme_cmd_flush, i, 1, 0, false);
	}
	CU_ASSERT_EQUAL(fake.sent_bytes, 0);
	fake_command(nvme_cmd_flush, 9, 1, 0, false);
	CU_ASSERT_EQUAL(fake.sent[0], TCP_PDU_C2H_TERM);
	CU_ASSERT_EQUAL(fake.sent[8], TCP_FES_SEQUENCE);
	CU_ASSERT(fake_end());
}

static const struct unit_test tests[] = {
	UNIT(test_connection_goes_through_its_states),
	UNIT(test_commands_are_answered_with_each_digest),
	UNIT(test_commands_with_their_data_come_in_one_read),
	UNIT(test_held_commands_keep_their_data),
	UNIT(test_half_a_command_is_kept),
	UNIT(test_commands_behind_unsent_answers_wait),
	UNIT(test_bytes_come_in_pieces_of_each_size),
	UNIT(test_answers_go_out_in_pieces_of_each_size),
	UNIT(test_answers_of_many_commands_are_one_sendmsg),
	UNIT(test_abort_in_each_state),
	UNIT(test_abort_after_each_part_of_the_data),
	UNIT(test_late_data_and_those_of_the_next_command_are_told_apart),
	UNIT(test_write_is_taken_back_when_its_queue_pair_is_ended),
	UNIT(test_all_is_given_back_at_each_end),
	UNIT(test_connection_that_has_ended_is_not_touched),
	UNIT(test_more_commands_than_entries_end_it),
	UNIT_END,
};
UNIT_MAIN("nvmf_tcp_states", tests, NULL, NULL)

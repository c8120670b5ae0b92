/* SPDX-License-Identifier: BSD-3-Clause */
/* The receiver: streams of PDUs over a socket pair, cut at every place. */
#include "unittest/unit.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tcp/digest.h"
#include "tcp/receiver.h"

static int fds[2]; /* we write to 0, the receiver reads from 1 */
static uint8_t stage[TCP_STAGE_MIN], stream[70000], got[40000], sent[40000];
static uint32_t stream_bytes;
static struct tcp_receiver r;
static struct tcp_fault fault;
static struct tcp_agreed agreed;

static int setup(void)
{
	for (unsigned i = 0; i < sizeof(sent); i++) {
		sent[i] = (uint8_t)(i * 7 + i / 251);
	}
	return 0;
}

static void begin(bool digests)
{
	CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	agreed = (struct tcp_agreed){.done = true,
				     .header_digest = digests,
				     .data_digest = digests,
				     .align_to_ctrlr = 4,
				     .align_to_host = digests ? 64 : 4,
				     .max_h2c_data = 65536,
				     .max_in_capsule = 8192};
	tcp_receiver_init(&r, TCP_HOST, stage, sizeof(stage));
	r.agreed = agreed;
	stream_bytes = 0;
	memset(got, 0, sizeof(got));
}

static void end(void)
{
	close(fds[0]);
	close(fds[1]);
}

static void add(const void *p, uint32_t n)
{
	memcpy(stream + stream_bytes, p, n);
	stream_bytes += n;
}

static void add_data(uint32_t offset, uint32_t length)
{
	struct tcp_piece piece = {.cccid = 3, .offset = offset, .length = length, .last = true};
	union tcp_header h;
	uint32_t digest = htole32(tcp_digest_end(tcp_digest_add(TCP_DIGEST_START, sent + offset, length)));

	add(&h, tcp_c2h_data_encode(&h, &agreed, &piece));
	add(sent + offset, length);
	add(&digest, tcp_data_digest_bytes(&agreed, length));
}

static void add_response(void)
{
	union tcp_header h;
	uint8_t cqe[16] = {0};

	add(&h, tcp_capsule_resp_encode(&h, &agreed, cqe));
}

/* Takes events until there is none: "h" and "p" per header and PDU, "b" for bad data, "f" for a fault. Data goes to
 * got[], in pieces of `piece` bytes; nowhere if that is 0. */
static void take(char *log, uint32_t piece)
{
	static struct iovec iovs[4000];
	enum tcp_event e;

	while ((e = tcp_receiver_next(&r, &fault)) != TCP_EVENT_NONE) {
		strcat(log, e == TCP_EVENT_HEADER ? "h" : e == TCP_EVENT_FAULT ? "f" : r.data_is_bad ? "b" : "p");
		if (e == TCP_EVENT_FAULT) {
			return;
		}
		if (e == TCP_EVENT_HEADER && r.shape.data > 0 && piece > 0) {
			unsigned n = 0;
			for (uint32_t at = 0; at < sizeof(got); at += piece) {
				iovs[n++] = (struct iovec){got, 0}; /* an empty one is no harm */
				uint32_t left = (uint32_t)sizeof(got) - at;
				iovs[n++] = (struct iovec){got + at, piece < left ? piece : left};
			}
			tcp_receiver_place(&r, iovs, n, le32toh(r.header.data.datao));
		}
	}
}

/* Sends the stream in pieces of `cut` bytes, and reads after each. */
static void run(char *log, uint32_t cut, uint32_t piece)
{
	log[0] = '\0';
	for (uint32_t at = 0; at < stream_bytes; at += cut) {
		uint32_t n = stream_bytes - at < cut ? stream_bytes - at : cut;
		int rc;
		CU_ASSERT_EQUAL_FATAL(write(fds[0], stream + at, n), n);
		while ((rc = tcp_receiver_read(&r, fds[1])) > 0) {
			take(log, piece);
		}
		CU_ASSERT_EQUAL(rc, -EAGAIN);
	}
}

static void test_a_stream_is_the_same_wherever_it_is_cut(void)
{
	static const uint32_t cuts[] = {1, 2, 3, 7, 23, 24, 25, 63, 64, 100, 511, 512, 513, 700, 4096, 65536};
	char log[100];

	for (unsigned digests = 0; digests < 2; digests++) {
		for (unsigned i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
			begin(digests);
			add_response();
			add_data(0, 600);
			add_data(600, 3000);
			add_response();
			add_data(3600, 4);
			run(log, cuts[i], 1000);
			CU_ASSERT_STRING_EQUAL(log, "hphphphphp");
			CU_ASSERT_EQUAL(memcmp(got, sent, 3604), 0);
			CU_ASSERT_EQUAL(got[3604], 0);
			CU_ASSERT_FALSE(tcp_receiver_has_bytes(&r));
			end();
		}
	}
}

static void test_payload_of_many_pieces_goes_where_it_belongs(void)
{
	char log[100];

	begin(true);
	add_data(4, 30000);
	add_response();
	run(log, 30500, 100); /* more pieces than one read fills */
	CU_ASSERT_STRING_EQUAL(log, "hphp");
	CU_ASSERT_EQUAL(memcmp(got + 4, sent + 4, 30000), 0);
	CU_ASSERT_EQUAL(got[30004], 0);
	end();
}

static void test_payload_that_nobody_wants_is_dropped_and_checked(void)
{
	char log[100];

	begin(true);
	add_data(0, 3000);
	add_response();
	run(log, 5000, 0);
	CU_ASSERT_STRING_EQUAL(log, "hphp");
	CU_ASSERT_EQUAL(got[0], 0);
	end();
}

static void test_buffers_that_are_too_small_are_not_overrun(void)
{
	struct iovec small = {got, 100};
	char log[100] = "";

	begin(false);
	add_data(0, 400);
	add_response();
	CU_ASSERT_EQUAL_FATAL(write(fds[0], stream, stream_bytes), stream_bytes);
	CU_ASSERT_TRUE(tcp_receiver_read(&r, fds[1]) > 0);
	CU_ASSERT_EQUAL(tcp_receiver_next(&r, &fault), TCP_EVENT_HEADER);
	tcp_receiver_place(&r, &small, 1, 0);
	take(log, 0);
	CU_ASSERT_STRING_EQUAL(log, "php");
	CU_ASSERT_EQUAL(memcmp(got, sent, 100), 0);
	CU_ASSERT_EQUAL(got[100], 0);
	end();
}

static void test_skipped_payload_is_written_no_more(void)
{
	struct iovec all = {got, sizeof(got)};
	char log[100] = "";

	begin(false);
	add_data(0, 2000);
	CU_ASSERT_EQUAL_FATAL(write(fds[0], stream, 1000), 1000);
	CU_ASSERT_TRUE(tcp_receiver_read(&r, fds[1]) > 0);
	CU_ASSERT_EQUAL(tcp_receiver_next(&r, &fault), TCP_EVENT_HEADER);
	tcp_receiver_place(&r, &all, 1, 0);
	take(log, 0);
	CU_ASSERT_EQUAL(tcp_receiver_read(&r, fds[1]), 1000 - (int)sizeof(stage)); /* straight into the buffer */
	tcp_receiver_skip(&r);
	CU_ASSERT_EQUAL_FATAL(write(fds[0], stream + 1000, stream_bytes - 1000), stream_bytes - 1000);
	while (tcp_receiver_read(&r, fds[1]) > 0) {
		take(log, 0);
	}
	CU_ASSERT_STRING_EQUAL(log, "p");
	CU_ASSERT_EQUAL(memcmp(got, sent, 1000 - 24), 0);
	CU_ASSERT_EQUAL(got[1000 - 24], 0);
	end();
}

static void test_bad_data_digests_are_told_and_the_stream_goes_on(void)
{
	char log[100];

	begin(true);
	add_data(0, 1000);
	stream[stream_bytes - 1] ^= 1;
	add_data(1000, 1000);
	run(log, 70, 5000);
	CU_ASSERT_STRING_EQUAL(log, "hbhp");
	end();
}

static void test_bad_header_digests_and_headers_are_faults(void)
{
	char log[100];

	begin(true);
	add_response();
	stream[stream_bytes - 1] ^= 1;
	run(log, 1000, 0);
	CU_ASSERT_STRING_EQUAL(log, "f");
	CU_ASSERT_EQUAL(fault.fes, TCP_FES_HEADER_DIGEST);
	end();
	begin(false);
	add_response();
	add_response();
	stream[24] = TCP_PDU_CAPSULE_CMD;
	run(log, 1000, 0);
	CU_ASSERT_STRING_EQUAL(log, "hpf");
	CU_ASSERT_EQUAL(fault.fes, TCP_FES_INVALID_FIELD);
	end();
}

static void test_a_full_stage_is_not_read_into(void)
{
	begin(false);
	add_data(0, 4000);
	CU_ASSERT_EQUAL_FATAL(write(fds[0], stream, stream_bytes), stream_bytes);
	CU_ASSERT_EQUAL(tcp_receiver_read(&r, fds[1]), sizeof(stage));
	CU_ASSERT_TRUE(tcp_receiver_has_bytes(&r));
	CU_ASSERT_EQUAL(tcp_receiver_read(&r, fds[1]), -ENOBUFS);
	end();
}

static void test_reads_without_events_between_them_append(void)
{
	char log[100] = "";

	begin(false);
	add_response();
	CU_ASSERT_EQUAL_FATAL(write(fds[0], stream, 10), 10);
	CU_ASSERT_EQUAL(tcp_receiver_read(&r, fds[1]), 10);
	CU_ASSERT_EQUAL_FATAL(write(fds[0], stream + 10, 14), 14);
	CU_ASSERT_EQUAL(tcp_receiver_read(&r, fds[1]), 14);
	take(log, 0);
	CU_ASSERT_STRING_EQUAL(log, "hp");
	end();
}

static void test_the_end_of_the_connection_and_errors_are_told(void)
{
	begin(false);
	shutdown(fds[0], SHUT_WR);
	CU_ASSERT_EQUAL(tcp_receiver_read(&r, fds[1]), -ECONNRESET);
	CU_ASSERT_EQUAL(tcp_receiver_read(&r, -1), -EBADF);
	end();
}

static const struct unit_test tests[] = {
	UNIT(test_a_stream_is_the_same_wherever_it_is_cut),
	UNIT(test_payload_of_many_pieces_goes_where_it_belongs),
	UNIT(test_payload_that_nobody_wants_is_dropped_and_checked),
	UNIT(test_buffers_that_are_too_small_are_not_overrun),
	UNIT(test_skipped_payload_is_written_no_more),
	UNIT(test_bad_data_digests_are_told_and_the_stream_goes_on),
	UNIT(test_bad_header_digests_and_headers_are_faults),
	UNIT(test_a_full_stage_is_not_read_into),
	UNIT(test_reads_without_events_between_them_append),
	UNIT(test_the_end_of_the_connection_and_errors_are_told),
	UNIT_END,
};
UNIT_MAIN("tcp_receiver", tests, setup, NULL)

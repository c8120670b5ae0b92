/* SPDX-License-Identifier: BSD-3-Clause */
/* The TCP transport against a controller over the loopback device (tcp_peer.c): data of all shapes, and a controller
 * that breaks each rule once. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <linux/errqueue.h>
#include <sys/socket.h>

#include "env_dpdk/env.h"
#include "nvme/nvme.h"
#include "tcp/socket.h"
#include "thread/thread.h"
#include "unittest/nvme/tcp_peer.h"
#include "unittest/unit.h"
#include "util/log.h"

#define WAIT_US   UINT64_C(120000000)
#define ENTRIES   31
#define IO_BYTES  (1u << 18)
#define GUARD     64
#define PIECES    64
#define GET(x)    __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define SET(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELEASE)

static struct {
	struct nvme_ctrlr *ctrlr;
	struct nvme_ctrlr_opts opts;
	struct nvme_trid trid;
	struct nvme_qpair *qpair;
	int qpair_error;
	bool qpair_answered, destroyed, stopped;
	unsigned ready, down, retry;
	char why[NVME_ERROR_MAX]; /* of the first attempt that has failed */
	bool late;                /* an attempt has failed because ICResp did not come in time */
} fx;

struct io {
	struct iovec iovs[PIECES];
	bool done;
	uint16_t status;
	bool lost;
	uint8_t data[GUARD + IO_BYTES + GUARD];
	struct nvme_request *req;
};
static struct io ios[ENTRIES + 1]; /* the last one finds no room in the queue */

/* Allocations on this thread while it does I/O: there may be none. */
static _Thread_local bool counting;
static unsigned allocations;
void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_malloc(size_t n)
{
	allocations += counting;
	return __real_malloc(n);
}
void *__real_calloc(size_t n, size_t m);
void *__wrap_calloc(size_t n, size_t m);
void *__wrap_calloc(size_t n, size_t m)
{
	allocations += counting;
	return __real_calloc(n, m);
}

/* Sends without a copy: how many were asked for, and what the kernel's notifications say. */
static unsigned zerocopy_sends;
static int zerocopy_refused;  /* errno of these sends; 0: none */
static bool keeps_zerocopy;   /* that the loopback interface has copied is not told */
static bool hides_zerocopies; /* notifications are not told at all; atomic */

ssize_t __real_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	if ((flags & MSG_ZEROCOPY) != 0 && zerocopy_refused != 0) {
		errno = zerocopy_refused;
		return -1;
	}
	zerocopy_sends += (flags & MSG_ZEROCOPY) != 0;
	return __real_sendmsg(fd, msg, flags);
}

ssize_t __real_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags)
{
	if ((flags & MSG_ERRQUEUE) != 0 && GET(hides_zerocopies)) {
		errno = EAGAIN;
		return -1;
	}
	ssize_t n = __real_recvmsg(fd, msg, flags);
	if (n >= 0 && (flags & MSG_ERRQUEUE) != 0 && keeps_zerocopy) {
		((struct sock_extended_err *)(void *)CMSG_DATA(CMSG_FIRSTHDR(msg)))->ee_code = 0;
	}
	return n;
}

/* --- The host --- */

static bool is(void *condition)
{
	return ((bool (*)(void))condition)();
}

static bool wait(bool (*condition)(void))
{
	return thread_control_wait(is, (void *)condition, WAIT_US);
}

/* As a thread does that uses a queue pair: without the control thread, which knows nothing of this condition. */
static bool spin(bool (*condition)(void))
{
	uint64_t start = env_ticks(), limit = WAIT_US / 1000000 * env_ticks_hz();

	while (!condition()) {
		if (env_ticks() - start > limit) {
			return false;
		}
		sched_yield();
	}
	return true;
}

static bool attempt_ended(void)
{
	return fx.ready + fx.retry != 0;
}

static bool was_retried(void)
{
	return fx.retry != 0;
}

static bool was_late(void)
{
	return fx.late;
}

static bool is_down(void)
{
	return fx.down != 0;
}

static bool is_ready_twice(void)
{
	return fx.ready == 2;
}

static bool is_destroyed(void)
{
	return fx.destroyed;
}

static bool qpair_answered(void)
{
	return fx.qpair_answered;
}

static void on_event(struct nvme_ctrlr *ctrlr, enum nvme_event event, uint32_t aer, void *arg)
{
	fx.ready += event == NVME_EVENT_READY;
	fx.down += event == NVME_EVENT_DOWN;
	fx.late |=
		event == NVME_EVENT_RETRY && strstr(nvme_ctrlr_last_error(ctrlr), "ICResp: none within 900 ms") != NULL;
	if (event == NVME_EVENT_RETRY && fx.retry++ == 0) {
		snprintf(fx.why, sizeof(fx.why), "%s", nvme_ctrlr_last_error(ctrlr));
	}
}

static void begin(void)
{
	memset(&fx, 0, sizeof(fx));
	peer_start();
	for (uint32_t i = 0; i < sizeof(peer.disk); i++) {
		peer.disk[i] = (uint8_t)(i * 31 + i / 509);
	}
	nvme_ctrlr_opts_default(&fx.opts);
	fx.opts.io_queues = 2;
	fx.opts.io_queue_entries = ENTRIES;
	fx.opts.keep_alive_ms = 0;
	fx.opts.admin_timeout_ms = fx.opts.connect_timeout_ms = 60000;
	fx.opts.io_timeout_ms = 0;
	fx.opts.reconnect_delay_s = 0;
	fx.opts.loss_timeout_s = -1;
	fx.opts.event = on_event;
	fx.trid = (struct nvme_trid){
		.trtype = NVME_TRTYPE_TCP, .traddr = "127.0.0.1", .subnqn = "nqn.2026-11.io.varve:there"};
	snprintf(fx.trid.trsvcid, sizeof(fx.trid.trsvcid), "%u", peer.port);
}

static void attach(void)
{
	char error[NVME_ERROR_MAX];

	fx.ctrlr = nvme_ctrlr_create(&fx.trid, &fx.opts, error);
	CU_ASSERT_PTR_NOT_NULL_FATAL(fx.ctrlr);
	CU_ASSERT_FATAL(wait(attempt_ended));
}

static void qpair_ready(void *arg, struct nvme_qpair *qpair, int error)
{
	fx.qpair = qpair;
	fx.qpair_error = error;
	fx.qpair_answered = true;
}

static void create_qpair(void)
{
	fx.qpair_answered = false;
	nvme_qpair_create(fx.ctrlr, &(struct nvme_qpair_opts){.numa_node = -1}, qpair_ready, NULL);
	CU_ASSERT_FATAL(wait(qpair_answered));
	CU_ASSERT_PTR_NOT_NULL_FATAL(fx.qpair);
}

static void begin_io(void)
{
	attach();
	if (fx.ready == 0) {
		printf("the controller did not come up: %s\n", fx.why);
	}
	CU_ASSERT_EQUAL_FATAL(fx.ready, 1);
	create_qpair();
}

static void destroyed(void *arg)
{
	fx.destroyed = true;
}

static void stopped(void *arg)
{
	fx.stopped = true;
}

static void drop_qpair(void)
{
	nvme_qpair_stop(fx.qpair, stopped, NULL);
	CU_ASSERT(fx.stopped);
	nvme_qpair_abort_all(fx.qpair);
	nvme_qpair_destroy(fx.qpair);
	fx.qpair = NULL;
}

static void end(void)
{
	if (fx.qpair != NULL) {
		drop_qpair();
	}
	nvme_ctrlr_destroy(fx.ctrlr, destroyed, NULL);
	CU_ASSERT(wait(is_destroyed));
	peer_stop();
	CU_ASSERT_EQUAL(peer.wrong, 0);
}

/* --- I/O --- */

static void io_done(struct nvme_request *req, const struct nvme_cqe *cqe)
{
	struct io *io = req->cb_arg;

	io->done = true;
	io->status = nvme_cqe_status(cqe);
	io->lost = nvme_request_was_lost(req);
}

/* Starts a command of `bytes` from block `lba` on, with its data in pieces of `piece` bytes. */
static int io_start(struct io *io, bool write, uint32_t lba, uint32_t bytes, uint32_t piece)
{
	struct nvme_request *req = io->req;
	uint16_t n = 0;

	for (uint32_t at = 0; at < bytes; at += piece) {
		io->iovs[n++] = (struct iovec){io->data + GUARD + at, bytes - at < piece ? bytes - at : piece};
	}
	memset(req, 0, sizeof(*req));
	req->cmd.opcode = write ? nvme_cmd_write : nvme_cmd_read;
	req->cmd.nsid = htole32(1);
	req->cmd.cdw10 = htole32(lba);
	req->cmd.cdw12 = htole32(bytes / PEER_BLOCK - 1);
	req->iovs = io->iovs;
	req->iovcnt = n;
	req->data_len = bytes;
	req->to_device = write;
	req->cb = io_done;
	req->cb_arg = io;
	io->done = false;
	return nvme_qpair_submit(fx.qpair, req);
}

static void io_fill(struct io *io, uint8_t seed)
{
	for (uint32_t i = 0; i < sizeof(io->data); i++) {
		io->data[i] = (uint8_t)(i * 7 + i / 253 + seed);
	}
}

static unsigned num_wanted;
static bool ios_ended(void)
{
	unsigned n = 0;

	nvme_qpair_poll(fx.qpair, 0);
	for (unsigned i = 0; i < num_wanted; i++) {
		n += ios[i].done;
	}
	return n == num_wanted;
}

/* Waits for the first n of ios[]. */
static void ios_wait(unsigned n)
{
	num_wanted = n;
	CU_ASSERT_FATAL(spin(ios_ended));
}

/* One command, until it has ended: its status. */
static uint16_t io_run(bool write, uint32_t lba, uint32_t bytes, uint32_t piece)
{
	CU_ASSERT_EQUAL_FATAL(io_start(&ios[0], write, lba, bytes, piece), 0);
	nvme_qpair_flush(fx.qpair);
	ios_wait(1);
	return ios[0].status;
}

static bool io_is_disk(const struct io *io, uint32_t lba, uint32_t bytes)
{
	return memcmp(io->data + GUARD, peer.disk + (size_t)lba * PEER_BLOCK, bytes) == 0;
}

/* Writes and reads of all sizes, each checked on both sides; what is beside the data stays as it was. */
static void io_sizes(void)
{
	static const uint32_t sizes[] = {512, 4096, 4608, 8192, 65536, 131072, IO_BYTES};
	static const uint32_t pieces[] = {IO_BYTES, 4096 + 4, 65536};
	uint8_t seed = 1;

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (unsigned j = 0; j < sizeof(pieces) / sizeof(pieces[0]); j++) {
			uint32_t n = sizes[i], lba = 3 * i;
			io_fill(&ios[0], seed++);
			CU_ASSERT_EQUAL(io_run(true, lba, n, pieces[j]), 0);
			CU_ASSERT_TRUE(io_is_disk(&ios[0], lba, n));
			io_fill(&ios[0], seed++);
			uint8_t before = ios[0].data[GUARD - 1], behind = ios[0].data[GUARD + n];
			CU_ASSERT_EQUAL(io_run(false, lba, n, pieces[j]), 0);
			CU_ASSERT_TRUE(io_is_disk(&ios[0], lba, n));
			CU_ASSERT_EQUAL(ios[0].data[GUARD - 1], before);
			CU_ASSERT_EQUAL(ios[0].data[GUARD + n], behind);
		}
	}
}

static void test_data_of_all_sizes_arrives_unchanged(void)
{
	begin();
	begin_io();
	io_sizes();
	CU_ASSERT_TRUE(peer.capsules_with_data > 0 && peer.r2ts_sent > 0);
	end();
}

static void test_data_with_digests_arrives_unchanged(void)
{
	for (unsigned i = 1; i < 4; i++) {
		begin();
		fx.opts.tcp_header_digest = i & 1;
		fx.opts.tcp_data_digest = i & 2;
		peer.cpda = (uint8_t)(i * 10);
		begin_io();
		io_sizes();
		end();
	}
}

static void test_data_in_many_pieces_arrives_unchanged(void)
{
	begin();
	fx.opts.tcp_data_digest = true;
	peer.max_h2c_data = 4096;
	peer.r2t_bytes = 20000;
	peer.r2ts = 4; /* as many as the host takes */
	peer.c2h_bytes = 3000;
	peer.success = true;
	peer.in_capsule = 0;
	begin_io();
	io_sizes();
	CU_ASSERT_EQUAL(peer.capsules_with_data, 0);
	CU_ASSERT_TRUE(peer.h2c_pdus > peer.r2ts_sent);
	end();
}

static void test_a_full_queue_works_and_allocates_nothing(void)
{
	begin();
	peer.r2t_bytes = 8192;
	peer.r2ts = 2;
	begin_io();
	for (unsigned round = 0; round < 40; round++) {
		for (unsigned i = 0; i < ENTRIES; i++) {
			io_fill(&ios[i], (uint8_t)(round + i));
			counting = true;
			CU_ASSERT_EQUAL_FATAL(io_start(&ios[i], i % 2, i * 64, 512u << (round + i) % 6, 1000), 0);
			counting = false;
		}
		CU_ASSERT_EQUAL(io_start(&ios[ENTRIES], false, 0, 512, 512), -EAGAIN);
		counting = true;
		nvme_qpair_flush(fx.qpair);
		ios_wait(ENTRIES);
		counting = false;
		for (unsigned i = 0; i < ENTRIES; i++) {
			CU_ASSERT_TRUE_FATAL(ios[i].done);
			CU_ASSERT_EQUAL(ios[i].status, 0);
			CU_ASSERT_TRUE(io_is_disk(&ios[i], i * 64, 512u << (round + i) % 6));
		}
	}
	CU_ASSERT_EQUAL(allocations, 0);
	end();
}

static void test_too_many_pieces_are_refused(void)
{
	static struct iovec many[257];

	begin();
	begin_io();
	memset(ios[0].req, 0, sizeof(*ios[0].req));
	ios[0].req->iovs = many;
	ios[0].req->iovcnt = 257;
	CU_ASSERT_EQUAL(nvme_qpair_submit(fx.qpair, ios[0].req), -E2BIG);
	CU_ASSERT_EQUAL(nvme_ctrlr_max_segments(fx.ctrlr), 256);
	end();
}

static void test_polls_with_a_limit_leave_the_rest_for_the_next(void)
{
	begin();
	begin_io();
	for (unsigned i = 0; i < 8; i++) {
		CU_ASSERT_EQUAL_FATAL(io_start(&ios[i], false, i, 512, 512), 0);
	}
	nvme_qpair_flush(fx.qpair);
	for (unsigned left = 8; left > 0;) {
		int n = nvme_qpair_poll(fx.qpair, 1);
		CU_ASSERT_FATAL(n >= 0 && n <= 1);
		left -= (unsigned)n;
		CU_ASSERT_EQUAL(nvme_qpair_outstanding(fx.qpair), left);
	}
	end();
}

/* --- Sleeping --- */

static bool fd_is_readable(void)
{
	return poll(&(struct pollfd){.fd = nvme_qpair_fd(fx.qpair), .events = POLLIN}, 1, 0) == 1;
}

static void test_an_answer_wakes_who_sleeps(void)
{
	begin();
	begin_io();
	CU_ASSERT_FALSE(nvme_qpair_arm(fx.qpair));
	CU_ASSERT_FALSE(fd_is_readable());
	CU_ASSERT_EQUAL(io_start(&ios[0], false, 0, 512, 512), 0);
	CU_ASSERT_TRUE(nvme_qpair_arm(fx.qpair)); /* it is not sent yet */
	nvme_qpair_flush(fx.qpair);
	CU_ASSERT_FALSE(nvme_qpair_arm(fx.qpair));
	CU_ASSERT_TRUE(spin(fd_is_readable));
	ios_wait(1);
	CU_ASSERT_FALSE(fd_is_readable());
	peer_drop_all();
	CU_ASSERT_TRUE(spin(fd_is_readable));
	end();
}

static bool fd_is_not_readable(void)
{
	nvme_qpair_poll(fx.qpair, 0);
	return !nvme_qpair_arm(fx.qpair) && !fd_is_readable();
}

static void test_a_socket_without_room_lets_the_thread_sleep(void)
{
	begin();
	peer.in_capsule = 0;
	begin_io();
	SET(peer.evil, PEER_MUTE);
	for (unsigned i = 0; i < ENTRIES; i++) {
		CU_ASSERT_EQUAL_FATAL(io_start(&ios[i], true, 0, i == 0 ? IO_BYTES : 512, IO_BYTES), 0);
	}
	nvme_qpair_flush(fx.qpair);
	CU_ASSERT_TRUE(spin(fd_is_not_readable));
	peer_drop_all();
	CU_ASSERT_TRUE(spin(fd_is_readable));
	ios_wait(ENTRIES);
	for (unsigned i = 0; i < ENTRIES; i++) {
		CU_ASSERT_TRUE(ios[i].lost);
	}
	end();
}

/* --- Without a copy --- */

static void begin_zerocopy(bool keeps)
{
	begin();
	tcp_socket_set_opts(&(struct tcp_socket_opts){.zerocopy_client = true, .zerocopy_threshold = 4096});
	zerocopy_sends = 0;
	zerocopy_refused = 0;
	keeps_zerocopy = keeps;
	SET(hides_zerocopies, false);
}

static void end_zerocopy(void)
{
	end();
	tcp_socket_set_opts(&(struct tcp_socket_opts){0});
}

static void test_data_sent_without_a_copy_arrive_unchanged(void)
{
	for (unsigned i = 0; i < 4; i++) {
		begin_zerocopy(true);
		fx.opts.tcp_header_digest = i & 1;
		fx.opts.tcp_data_digest = i & 2;
		if (i % 2 != 0) {
			peer.max_h2c_data = 8192;
			peer.r2t_bytes = 20000;
			peer.r2ts = 4;
		}
		begin_io();
		io_sizes();
		CU_ASSERT(zerocopy_sends > 15);
		unsigned sends = zerocopy_sends;
		zerocopy_refused = ENOBUFS;
		CU_ASSERT_EQUAL(io_run(true, 0, IO_BYTES, 65536), 0); /* it is copied */
		CU_ASSERT_EQUAL(zerocopy_sends, sends);
		end_zerocopy();
	}
}

static void test_a_full_queue_works_without_copies(void)
{
	begin_zerocopy(true);
	peer.r2t_bytes = 8192;
	peer.r2ts = 2;
	begin_io();
	for (unsigned round = 0; round < 10; round++) {
		for (unsigned i = 0; i < ENTRIES; i++) {
			io_fill(&ios[i], (uint8_t)(round + i));
			CU_ASSERT_EQUAL_FATAL(io_start(&ios[i], i % 3 != 0, i * 64, 512u << (round + i) % 6, 1000), 0);
		}
		nvme_qpair_flush(fx.qpair);
		ios_wait(ENTRIES);
		for (unsigned i = 0; i < ENTRIES; i++) {
			CU_ASSERT_EQUAL(ios[i].status, 0);
			CU_ASSERT_TRUE(io_is_disk(&ios[i], i * 64, 512u << (round + i) % 6));
		}
	}
	end_zerocopy();
}

static void test_a_kernel_that_copies_is_asked_no_more(void)
{
	begin_zerocopy(false);
	begin_io();
	for (unsigned i = 0; i < 10; i++) {
		CU_ASSERT_EQUAL(io_run(true, 0, 32768, 32768), 0);
	}
	CU_ASSERT(zerocopy_sends > 0 && zerocopy_sends < 10);
	end_zerocopy();
	begin_zerocopy(false); /* nor for small data */
	begin_io();
	CU_ASSERT_EQUAL(io_run(true, 0, 3584, 3584), 0);
	CU_ASSERT_EQUAL(zerocopy_sends, 0);
	end_zerocopy();
}

static bool write_is_on_disk(void)
{
	CU_ASSERT_EQUAL(nvme_qpair_poll(fx.qpair, 0), 0);
	return io_is_disk(&ios[0], 0, 32768);
}

/* A write has been carried out, and nothing is notified. */
static void begin_held_write(void)
{
	begin_zerocopy(true);
	begin_io();
	SET(hides_zerocopies, true);
	io_fill(&ios[0], 99);
	CU_ASSERT_EQUAL_FATAL(io_start(&ios[0], true, 0, 32768, 32768), 0);
	nvme_qpair_flush(fx.qpair);
	CU_ASSERT_FATAL(spin(write_is_on_disk));
	CU_ASSERT(zerocopy_sends > 0);
}

static bool second_is_done(void)
{
	return nvme_qpair_poll(fx.qpair, 0) < 0 || ios[1].done;
}

static void test_a_command_waits_for_its_notification(void)
{
	begin_held_write();
	CU_ASSERT_EQUAL(io_start(&ios[1], false, 0, 512, 512), 0); /* its answer is behind the write's */
	nvme_qpair_flush(fx.qpair);
	CU_ASSERT_FATAL(spin(second_is_done));
	CU_ASSERT_TRUE(ios[1].done);
	CU_ASSERT_FALSE(ios[0].done);
	SET(hides_zerocopies, false);
	ios_wait(1);
	CU_ASSERT_EQUAL(ios[0].status, 0);
	end_zerocopy();
}

static bool user_sees_the_end(void)
{
	return nvme_qpair_poll(fx.qpair, 0) == -ENXIO;
}

static bool has_looked(void)
{
	static unsigned looks;

	return ++looks % 100 == 0;
}

static bool is_stopped(void)
{
	return fx.stopped;
}

/* Commands are lost with their connection only when nothing refers to their data any more. */
static void test_lost_commands_wait_for_their_notifications(void)
{
	begin_held_write();
	peer_drop_all();
	CU_ASSERT(spin(user_sees_the_end)); /* at once: other paths are for what comes now */
	CU_ASSERT_EQUAL(io_start(&ios[1], false, 0, 512, 512), -ENXIO);
	nvme_qpair_stop(fx.qpair, stopped, NULL);
	CU_ASSERT(wait(has_looked));
	CU_ASSERT_FALSE(fx.stopped);
	CU_ASSERT_FALSE(ios[0].done);
	SET(hides_zerocopies, false);
	CU_ASSERT(wait(is_stopped));
	nvme_qpair_abort_all(fx.qpair);
	CU_ASSERT(ios[0].done && ios[0].lost);
	nvme_qpair_destroy(fx.qpair);
	fx.qpair = NULL;
	end_zerocopy();
}

static void test_a_stop_waits_for_notifications(void)
{
	begin_held_write();
	nvme_qpair_stop(fx.qpair, stopped, NULL);
	CU_ASSERT_FALSE(fx.stopped);
	CU_ASSERT(wait(has_looked));
	CU_ASSERT_FALSE(fx.stopped);
	CU_ASSERT_EQUAL(nvme_qpair_poll(fx.qpair, 0), -ENXIO); /* its user may be at work on it still */
	CU_ASSERT_FALSE(ios[0].done);
	SET(hides_zerocopies, false);
	CU_ASSERT(wait(is_stopped));
	CU_ASSERT_FALSE(ios[0].done);
	nvme_qpair_abort_all(fx.qpair);
	CU_ASSERT(ios[0].done && ios[0].lost);
	nvme_qpair_destroy(fx.qpair);
	fx.qpair = NULL;
	end_zerocopy();
}

/* --- A controller that does wrong --- */

static void test_a_wrong_data_digest_fails_the_command_only(void)
{
	for (unsigned success = 0; success < 2; success++) {
		begin();
		fx.opts.tcp_data_digest = true;
		peer.success = success;
		begin_io();
		SET(peer.evil, PEER_DATA_DIGEST);
		CU_ASSERT_EQUAL(io_run(false, 0, 8192, 8192), NVME_ST(GENERIC, TRAN_TPORT_ERROR));
		CU_ASSERT_FALSE(ios[0].lost);
		CU_ASSERT_EQUAL(io_run(false, 0, 8192, 8192), 0);
		CU_ASSERT_EQUAL(fx.down, 0);
		end();
	}
}

static void test_an_error_that_comes_while_data_is_sent_ends_the_command_afterwards(void)
{
	begin();
	begin_io();
	SET(peer.evil, PEER_WRITE_ERROR);
	CU_ASSERT_EQUAL(io_run(true, 0, IO_BYTES, IO_BYTES), NVME_ST_DNR(GENERIC, INTERNAL));
	CU_ASSERT_FALSE(ios[0].lost);
	CU_ASSERT_EQUAL(io_run(true, 0, IO_BYTES, IO_BYTES), 0); /* the stream is intact */
	CU_ASSERT_EQUAL(fx.down, 0);
	end();
}

static bool term_came(void)
{
	return GET(peer.terms) != 0;
}

static bool term_comes(void)
{
	nvme_qpair_poll(fx.qpair, 0);
	return term_came();
}

static const struct wrong {
	enum peer_evil evil;
	bool write, header_digest;
	uint8_t type; /* of the PDU in error */
	uint16_t fes;
	uint32_t fei; /* with TCP_FES_HEADER_DIGEST: not compared */
} wrongs[] = {
	{PEER_DATA_CCCID, false, false, TCP_PDU_C2H_DATA, TCP_FES_INVALID_FIELD, 8},
	{PEER_DATA_OFFSET, false, false, TCP_PDU_C2H_DATA, TCP_FES_OUT_OF_RANGE, 0},
	{PEER_DATA_MORE, false, false, TCP_PDU_C2H_DATA, TCP_FES_OUT_OF_RANGE, 0},
	{PEER_DATA_AGAIN, false, false, TCP_PDU_C2H_DATA, TCP_FES_OUT_OF_RANGE, 0},
	{PEER_DATA_LENGTH, false, false, TCP_PDU_C2H_DATA, TCP_FES_INVALID_FIELD, 16},
	{PEER_DATA_SUCCESS, false, false, TCP_PDU_C2H_DATA, TCP_FES_INVALID_FIELD, 1},
	{PEER_DATA_TO_WRITE, true, false, TCP_PDU_C2H_DATA, TCP_FES_INVALID_FIELD, 8},
	{PEER_HALF, false, false, TCP_PDU_CAPSULE_RESP, TCP_FES_SEQUENCE, 0},
	{PEER_HEADER_DIGEST, false, true, TCP_PDU_CAPSULE_RESP, TCP_FES_HEADER_DIGEST, 0},
	{PEER_RESP_CID, false, false, TCP_PDU_CAPSULE_RESP, TCP_FES_INVALID_FIELD, 20},
	{PEER_TYPE, false, false, TCP_PDU_H2C_DATA, TCP_FES_INVALID_FIELD, 0},
	{PEER_UNKNOWN, false, false, 0x55, TCP_FES_INVALID_FIELD, 0},
	{PEER_ICRESP, false, false, TCP_PDU_ICRESP, TCP_FES_SEQUENCE, 0},
	{PEER_HLEN, false, false, TCP_PDU_CAPSULE_RESP, TCP_FES_INVALID_FIELD, 2},
	{PEER_PLEN, false, false, TCP_PDU_CAPSULE_RESP, TCP_FES_INVALID_FIELD, 4},
	{PEER_PDO, false, false, TCP_PDU_C2H_DATA, TCP_FES_INVALID_FIELD, 3},
	{PEER_R2T_TO_READ, false, false, TCP_PDU_R2T, TCP_FES_INVALID_FIELD, 8},
	{PEER_R2T_CCCID, true, false, TCP_PDU_R2T, TCP_FES_INVALID_FIELD, 8},
	{PEER_R2T_OFFSET, true, false, TCP_PDU_R2T, TCP_FES_OUT_OF_RANGE, 0},
	{PEER_R2T_MORE, true, false, TCP_PDU_R2T, TCP_FES_OUT_OF_RANGE, 0},
	{PEER_R2T_ZERO, true, false, TCP_PDU_R2T, TCP_FES_INVALID_FIELD, 16},
	{PEER_R2T_MANY, true, false, TCP_PDU_R2T, TCP_FES_LIMIT, 0},
	{PEER_WRITE_SUCCESS, true, false, TCP_PDU_CAPSULE_RESP, TCP_FES_SEQUENCE, 0},
};

static void expect_wrong(const struct wrong *w)
{
	begin();
	fx.opts.tcp_header_digest = w->header_digest;
	begin_io();
	io_fill(&ios[0], 9);
	SET(peer.evil, w->evil);
	io_run(w->write, 0, 16384, 16384);
	CU_ASSERT_TRUE(ios[0].lost);
	CU_ASSERT_EQUAL(ios[0].status, NVME_ST(GENERIC, ABORT_QUEUE));
	CU_ASSERT_EQUAL(ios[0].data[GUARD - 1], (uint8_t)((GUARD - 1) * 7 + 9));
	CU_ASSERT_EQUAL(ios[0].data[GUARD + 16384], (uint8_t)((GUARD + 16384) * 7 + (GUARD + 16384) / 253 + 9));
	CU_ASSERT_TRUE_FATAL(spin(term_came));
	CU_ASSERT_EQUAL(peer.term_type, w->type);
	CU_ASSERT_EQUAL(peer.term_fes, w->fes);
	if (w->fes != TCP_FES_HEADER_DIGEST) {
		CU_ASSERT_EQUAL(peer.term_fei, w->fei);
	}
	CU_ASSERT_TRUE(wait(is_down));
	drop_qpair();
	CU_ASSERT_TRUE(wait(is_ready_twice)); /* the controller is connected anew, and works */
	create_qpair();
	CU_ASSERT_EQUAL(io_run(false, 0, 16384, 16384), 0);
	CU_ASSERT_TRUE(io_is_disk(&ios[0], 0, 16384));
	end();
}

static void test_wrong_pdus_end_the_connection_and_name_the_field(void)
{
	for (unsigned i = 0; i < sizeof(wrongs) / sizeof(wrongs[0]); i++) {
		expect_wrong(&wrongs[i]);
	}
}

static void test_a_second_response_ends_the_connection(void)
{
	begin();
	begin_io();
	SET(peer.evil, PEER_RESP_TWICE);
	CU_ASSERT_EQUAL(io_run(false, 0, 512, 512), 0);
	CU_ASSERT_TRUE_FATAL(spin(term_comes));
	CU_ASSERT_EQUAL(nvme_qpair_poll(fx.qpair, 0), -ENXIO);
	CU_ASSERT_EQUAL(peer.term_fei, 20);
	end();
}

static void test_a_connection_that_ends_loses_its_commands(void)
{
	static const enum peer_evil ends[] = {PEER_TERM, PEER_CLOSE};

	for (unsigned i = 0; i < 2; i++) {
		begin();
		begin_io();
		SET(peer.evil, ends[i]);
		io_run(false, 0, 16384, 16384);
		CU_ASSERT_TRUE(ios[0].lost);
		CU_ASSERT_EQUAL(GET(peer.terms), 0);
		CU_ASSERT_TRUE(wait(is_down));
		end();
	}
}

static void test_wrong_pdus_on_the_admin_queue_fail_the_attempt(void)
{
	begin();
	peer.evil_qid = 0;
	peer.evil = PEER_DATA_MORE;
	attach();
	CU_ASSERT_EQUAL(fx.retry, 1);
	fx.ready = 1;
	CU_ASSERT_TRUE(wait(is_ready_twice)); /* the next one succeeds */
	end();
}

static void test_a_reset_ends_commands_that_are_outstanding(void)
{
	begin();
	peer.in_capsule = 0;
	begin_io();
	SET(peer.evil, PEER_MUTE);
	for (unsigned i = 0; i < 4; i++) {
		CU_ASSERT_EQUAL_FATAL(io_start(&ios[i], true, 0, IO_BYTES, IO_BYTES), 0);
	}
	nvme_qpair_flush(fx.qpair);
	CU_ASSERT_EQUAL(nvme_ctrlr_reset(fx.ctrlr), 0);
	CU_ASSERT_TRUE(wait(is_down));
	nvme_qpair_stop(fx.qpair, stopped, NULL);
	CU_ASSERT_TRUE(fx.stopped);
	CU_ASSERT_EQUAL(nvme_qpair_poll(fx.qpair, 0), -ENXIO); /* its user has not been told yet */
	for (unsigned i = 0; i < 4; i++) {
		CU_ASSERT_TRUE(ios[i].done && ios[i].lost);
	}
	nvme_qpair_flush(fx.qpair);
	nvme_qpair_destroy(fx.qpair);
	fx.qpair = NULL;
	CU_ASSERT_TRUE(wait(is_ready_twice));
	end();
}

/* --- Connecting --- */

static void expect_refusal(const char *why)
{
	attach();
	CU_ASSERT_TRUE(wait(was_retried));
	CU_ASSERT_PTR_NOT_NULL(strstr(fx.why, why));
	if (strstr(fx.why, why) == NULL) {
		printf("the reason is '%s', not '%s'\n", fx.why, why);
	}
	end();
}

static void test_a_port_that_nobody_listens_on_is_named(void)
{
	begin();
	peer_stop();
	expect_refusal("TCP connection: Connection refused");
}

static void test_what_is_wrong_with_icresp_is_named(void)
{
	begin();
	peer.wrong_icresp = true;
	expect_refusal("ICResp: ICResp: MAXH2CDATA (offset 12) is 16");
	begin();
	peer.term_icresp = true;
	expect_refusal("C2HTermReq: Invalid PDU Header Field (1), field at offset 3 of CapsuleCmd");
	begin();
	peer.refuse_digests = fx.opts.tcp_header_digest = true;
	expect_refusal("no header digest");
	begin();
	peer.refuse_digests = fx.opts.tcp_data_digest = true;
	expect_refusal("no data digest");
}

/* On a machine that is very busy, the time limit of the whole attempt may be seen first; the next attempt is as good.
 */
static void test_the_step_that_takes_too_long_is_named(void)
{
	begin();
	peer.mute_icresp = true;
	fx.opts.connect_timeout_ms = 1000;
	attach();
	CU_ASSERT_TRUE(wait(was_late));
	end();
}

static void test_the_source_address_is_used(void)
{
	begin();
	strcpy(fx.trid.host_traddr, "127.0.0.5");
	fx.opts.tcp_priority = 3;
	begin_io();
	CU_ASSERT_EQUAL(io_run(false, 0, 512, 512), 0);
	end();
	begin();
	strcpy(fx.trid.host_traddr, "192.0.2.1"); /* of documentation: not this machine's */
	expect_refusal("source address: ");
}

static void test_an_io_queue_that_cannot_connect_is_reported(void)
{
	begin();
	attach();
	peer.term_icresp = true;
	fx.qpair_answered = false;
	nvme_qpair_create(fx.ctrlr, &(struct nvme_qpair_opts){.numa_node = -1}, qpair_ready, NULL);
	CU_ASSERT_FATAL(wait(qpair_answered));
	CU_ASSERT_PTR_NULL(fx.qpair);
	CU_ASSERT_EQUAL(fx.qpair_error, -ECONNREFUSED);
	CU_ASSERT_EQUAL(fx.down, 0);
	end();
}

static int setup(void)
{
	const struct env_opts env = {.name = "unit",
				     .cores = "[0]",
				     .oversubscribe = true,
				     .instance_id = -1,
				     .no_huge = true,
				     .no_pci = true};
	const struct thread_lib_opts opts = {.poll_mode = POLL_MODE_ADAPTIVE};
	char error[ENV_ERROR_MAX];

	log_set_print_level(LOG_LEVEL_DISABLED);
	for (unsigned i = 0; i <= ENTRIES; i++) {
		ios[i].req = aligned_alloc(64, nvme_request_size());
	}
	return env_init(&env, error) == 0 ? thread_lib_start(&opts) : -1;
}

static int teardown(void)
{
	for (unsigned i = 0; i <= ENTRIES; i++) {
		free(ios[i].req);
	}
	thread_lib_stop();
	env_fini();
	return 0;
}

static const struct unit_test tests[] = {
	UNIT(test_data_of_all_sizes_arrives_unchanged),
	UNIT(test_data_with_digests_arrives_unchanged),
	UNIT(test_data_in_many_pieces_arrives_unchanged),
	UNIT(test_a_full_queue_works_and_allocates_nothing),
	UNIT(test_too_many_pieces_are_refused),
	UNIT(test_polls_with_a_limit_leave_the_rest_for_the_next),
	UNIT(test_an_answer_wakes_who_sleeps),
	UNIT(test_a_socket_without_room_lets_the_thread_sleep),
	UNIT(test_data_sent_without_a_copy_arrive_unchanged),
	UNIT(test_a_full_queue_works_without_copies),
	UNIT(test_a_kernel_that_copies_is_asked_no_more),
	UNIT(test_a_command_waits_for_its_notification),
	UNIT(test_lost_commands_wait_for_their_notifications),
	UNIT(test_a_stop_waits_for_notifications),
	UNIT(test_a_wrong_data_digest_fails_the_command_only),
	UNIT(test_an_error_that_comes_while_data_is_sent_ends_the_command_afterwards),
	UNIT(test_wrong_pdus_end_the_connection_and_name_the_field),
	UNIT(test_a_second_response_ends_the_connection),
	UNIT(test_a_connection_that_ends_loses_its_commands),
	UNIT(test_wrong_pdus_on_the_admin_queue_fail_the_attempt),
	UNIT(test_a_reset_ends_commands_that_are_outstanding),
	UNIT(test_a_port_that_nobody_listens_on_is_named),
	UNIT(test_what_is_wrong_with_icresp_is_named),
	UNIT(test_the_step_that_takes_too_long_is_named),
	UNIT(test_the_source_address_is_used),
	UNIT(test_an_io_queue_that_cannot_connect_is_reported),
	UNIT_END,
};
UNIT_MAIN("nvme_tcp", tests, setup, teardown)

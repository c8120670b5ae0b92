/* SPDX-License-Identifier: BSD-3-Clause */
/* The conformance suite's frame: two processes, plain libibverbs and librdmacm programs, so that the same
 *tests run over softverbs on any machine and over a real (or soft) RDMA device.
 *
 * The test runs in the first process, the near side. The second, the far side, executes what the test asks
 *for, one step at a time, so that a test reads from top to bottom:
 *
 *     post_recv(&(struct rr){.wr_id = 1, ...})		here
 *     FAR(post_send, &(struct sr){.opcode = IBV_WR_SEND, ...})	the same function there
 *
 * A step is a function `long f(struct something *)`; its argument is copied there and back, its result comes
 *back. Each process has one struct side, `me`, which the steps work on. Steps run on the main thread. Every
 *wait has a deadline, and a test that hangs is ended by an alarm that names it.
 */
#ifndef UNITTEST_SOFTVERBS_SIDES_H
#define UNITTEST_SOFTVERBS_SIDES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "unittest/unit.h"

enum {
	SIDE_BUFFER_BYTES = 4 << 20,
	SIDE_DEADLINE_MS = 20000, /* of each wait; a guest under TCG is slow */
	SIDE_TEST_SECONDS = 120,  /* of each test */
	SIDE_PIECES = 32,
};

/* What side_open() makes; zero means the default in brackets. */
struct side_options {
	uint32_t send_wr, recv_wr;   /* [64] */
	uint32_t send_sge, recv_sge; /* [4] */
	uint32_t inline_bytes;       /* [0] */
	int cqe;                     /* [256] of each of the two completion queues */
	bool all_signalled;          /* sq_sig_all */
	bool srq;                    /* receives come from a shared receive queue */
	uint32_t srq_wr;             /* [64] */
	bool mr_is_readonly;         /* the region gives no remote access and no local write */
	unsigned no_mr_access;       /* access flags taken from the region's (local write, remote read, write,
					atomic) */
	unsigned no_qp_access;       /* the same of the queue pair's */
	uint8_t timeout, retry, rnr_retry, min_rnr_timer; /* [17: 0.5 s], [7], [7; 8 means 0], [1: 10 us] */
	uint8_t initiator_depth, responder_depth;         /* [4]; 255 means 0 */
};

struct endpoint { /* what the other side must know to connect and to reach the buffer */
	uint32_t qpn, psn, rkey;
	uint16_t lid;
	union ibv_gid gid;
	uint64_t addr;
};

struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel; /* of both completion queues */
	struct ibv_cq *scq, *rcq;
	struct ibv_srq *srq;
	struct ibv_qp *qp, *extra_qp;
	struct ibv_mr *mr; /* of buf */
	uint8_t *buf;      /* SIDE_BUFFER_BYTES */
	int memfd;         /* its file, with VERBS_SUITE_MEMFD; else 0 */
	struct side_options options;
	struct endpoint other; /* near side: the far one's, as side_connect() was told */
	union ibv_gid gid;
	int gid_index;
	uint16_t lid;
	enum ibv_mtu mtu;
	bool global;  /* addresses need a GID */
	bool rdma_cm; /* the queue pair belongs to an rdma_cm_id */
};
extern struct side me;

/* --- the far side */

/* Runs fn there. Returns its result, -EPIPE when the far process is gone, -ETIMEDOUT when it does not
 * answer. */
long far_call(void (*fn)(void), void *arg, size_t bytes);
/* The two halves of it, so that both sides can work at once. */
int far_begin(void (*fn)(void), const void *arg, size_t bytes);
long far_end(void *arg, size_t bytes);
#define FAR(fn, arg)       ((void)sizeof((fn)(arg)), far_call((void (*)(void))(fn), (arg), sizeof(*(arg))))
#define FAR_BEGIN(fn, arg) ((void)sizeof((fn)(arg)), far_begin((void (*)(void))(fn), (arg), sizeof(*(arg))))
#define FAR_END(arg)       far_end((arg), sizeof(*(arg)))

pid_t far_pid(void);
/* Ends the far process by a signal (0: it is told to exit without cleaning up) and waits until it is gone. */
void far_kill(int signal_number);
/* A new far process in place of the one before (ended first, if it still runs). 0 or -errno. */
int far_start(void);

/* --- the suite's main() */

/* Runs argv's program as the far side, or under the softverbs library of the build when no device was named
 * by VERBS_SUITE_IP; returns when the tests are to run here. */
void sides_main(int argc, char **argv);
#define SIDES_MAIN(name_, tests_)                                                                                      \
	int main(int argc, char **argv)                                                                                \
	{                                                                                                              \
		sides_main(argc, argv);                                                                                \
		return unit_run(name_, tests_, sides_setup, sides_teardown, argc, argv);                               \
	}
int sides_setup(void);
int sides_teardown(void);

/* First statement of each test: starts its alarm; skips where the device is known to differ from the
 * specification. */
#define TEST_BEGIN()                                                                                                   \
	do {                                                                                                           \
		const char *why_ = sides_test_begins(__func__);                                                        \
		if (why_ != NULL) {                                                                                    \
			UNIT_SKIP(why_);                                                                               \
		}                                                                                                      \
	} while (0)
const char *sides_test_begins(const char *test);
/* The reason why this device differs in this test (or row of one), or NULL. */
const char *known_difference(const char *test);

/* The address of the near and far side ($VERBS_SUITE_IP). */
const char *sides_ip(void);
bool sides_device_is(const char *prefix);
int64_t sides_now_ms(void);

/* --- steps: opening and connecting. 0 or -errno unless said otherwise */

long side_open(struct side_options *o);        /* device, PD, CQs, QP in INIT, region */
long side_open_device(struct side_options *o); /* the same without a queue pair */
long side_create_qp(struct side_options *o);   /* me.qp on what side_open_device() made, in INIT */
long side_endpoint(struct endpoint *e);
long side_connect(struct endpoint *other); /* INIT to RTS */
long side_close(int *unused);              /* the first error of any destroy call */

/* All of it for both sides: near's options, far's (NULL: the same). Fails the test if anything fails. */
bool pair_open(const struct side_options *near, const struct side_options *far);
void pair_close(void);
/* The ordinary pair, with defaults. */
bool pair_open_plain(void);

int qp_to_init(struct ibv_qp *qp, const struct side_options *o);
int qp_to_rtr(struct ibv_qp *qp, const struct side_options *o, const struct endpoint *other);
int qp_to_rts(struct ibv_qp *qp, const struct side_options *o);
/* The attributes of these steps with their mask, for tests that change something in them. */
int qp_attr_init(struct ibv_qp_attr *a, const struct side_options *o);
int qp_attr_rtr(struct ibv_qp_attr *a, const struct side_options *o, const struct endpoint *other);
int qp_attr_rts(struct ibv_qp_attr *a, const struct side_options *o);
void qp_init_attr(struct ibv_qp_init_attr *a, const struct side_options *o);

/* --- steps: work */

struct piece { /* of the buffer */
	uint32_t off, len;
	uint32_t lkey; /* 0: the buffer's region */
};

struct sr { /* send work requests, posted as one chain of `count` (0: 1) with wr_id counting up */
	enum ibv_wr_opcode opcode;
	unsigned flags; /* IBV_SEND_* */
	uint64_t wr_id;
	uint32_t count;
	uint32_t imm; /* or the rkey to invalidate */
	uint64_t remote_addr;
	uint32_t rkey;
	uint64_t compare_add, swap;
	uint32_t n; /* pieces */
	struct piece p[SIDE_PIECES];
	bool extra; /* on me.extra_qp */
	/* out: */
	uint32_t posted; /* accepted requests, by bad_wr */
};
/* 0 or the (positive) error of ibv_post_send(). */
long post_send(struct sr *r);

struct rr {
	uint64_t wr_id;
	uint32_t count;
	uint32_t n;
	struct piece p[SIDE_PIECES];
	bool extra;
	uint32_t posted;
};
long post_recv(struct rr *r); /* to the SRQ if the side has one */

enum { WAIT_MAX = 64 };
struct wcs {
	bool recv;  /* of the receive CQ */
	uint32_t n; /* wait for as many */
	struct ibv_wc wc[WAIT_MAX];
};
/* How many came until the deadline. */
long wait_wc(struct wcs *w);
/* How many are there now (at most n). */
long poll_wc(struct wcs *w);
/* One completion of the queue, here; status -1 if none came. */
struct ibv_wc wait_send_wc(void);
struct ibv_wc wait_recv_wc(void);
struct ibv_wc far_send_wc(void);
struct ibv_wc far_recv_wc(void);

struct area {
	uint32_t off, len, seed;
	uint32_t from; /* the place in the pattern where the area begins */
};
long fill(struct area *a);  /* with bytes that depend on the seed and the place in the area */
long check(struct area *a); /* 0, or 1 + the offset in the area of the first byte that differs */

long qp_state(int *unused);       /* of me.qp, by ibv_query_qp(); -errno */
long qp_modify_state(int *state); /* to RESET, ERR or SQD: only the state */
/* Waits for an asynchronous event; its type, or -ETIMEDOUT. Acknowledges it. */
long async_event(int *deadline_ms);
/* Waits until the wanted type came, over others; 0 or -ETIMEDOUT. */
long async_event_of(int *wanted);

/* The far side's buffer as the near side reaches it. */
#define FAR_ADDR(off_) (me.other.addr + (off_))
#define FAR_RKEY       (me.other.rkey)

/* Asserts a completion's status, and says what it was instead. */
void status_say(int line, int got, int wanted);
#define ASSERT_STATUS(got_, wanted_)                                                                                   \
	do {                                                                                                           \
		int got__ = (int)(got_), wanted__ = (int)(wanted_);                                                    \
		if (got__ != wanted__) {                                                                               \
			status_say(__LINE__, got__, wanted__);                                                         \
		}                                                                                                      \
		CU_ASSERT_EQUAL(got__, wanted__);                                                                      \
	} while (0)

/* --- small things */
int fd_wait(int fd, int deadline_ms); /* 0, or -ETIMEDOUT */
int fd_nonblocking(int fd);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* A transport inside the test: the host's side runs on the control thread, its memory is the process's. Together with
 * the fixture of bdev/ it gives a whole target, with nothing faked but the wire. */
#ifndef UNITTEST_NVMF_LOOP_H
#define UNITTEST_NVMF_LOOP_H

#include "nvmf/internal.h"
#include "unittest/bdev/fixture.h"

#define LOOP_SUBNQN      "nqn.2024-01.io.varve:test"
#define LOOP_HOSTNQN     "nqn.2024-01.io.varve:host"
#define LOOP_KEY         UINT32_C(0xfeedf00d)
#define LOOP_ICD_MAX     8192
#define LOOP_MAX_IO      131072
#define LOOP_STALE       0xd7 /* what is in a data buffer before it is used: another host's data */
#define LOOP_QUEUE       64
#define LOOP_STATUS_GONE UINT16_C(0x7ffe) /* the connection ended before the command did */

/* Who connects, where, and to what. */
struct loop_host {
	const struct nvmf_address *address;
	const char *subnqn, *hostnqn;
	uint8_t hostid; /* each byte of it */
	uint32_t kato_ms;
};

/* A connection as its host sees it. */
struct loop_conn {
	struct loop_host host;
	struct thread *thread; /* its poll group's; NULL until it is there */
	atomic_bool added, closed;
	atomic_uint outstanding;
	uint16_t cntlid;
	struct loop_qpair *qp; /* group */
};

/* A command, in host memory until it is done. */
struct loop_cmd {
	struct loop_conn *conn;
	struct nvme_sqe sqe;
	struct nvme_cqe cqe;
	atomic_bool done;
	uint32_t icd_len;
	uint8_t icd[LOOP_ICD_MAX];
};

/* What the transport does with data; atomic, for all connections. */
extern atomic_bool loop_hold_data;     /* commands that need a buffer wait for one, until loop_release_data() */
extern atomic_bool loop_zcopy;         /* asks for bdev memory first */
extern atomic_bool loop_keep_answered; /* requests of I/O queues, and their loop_cmds, stay until loop_release_data() */
extern atomic_uint loop_requests;      /* in use */
extern atomic_uint loop_qpairs;        /* not destroyed */
extern _Atomic uint64_t loop_last_start; /* start_ticks of the request that was completed last */
extern atomic_bool loop_measures;        /* each I/O command is a sample of the latency, of so much time: */
#define LOOP_LATENCY_US 1000
extern atomic_uint loop_zcopy_requests; /* requests served from bdev memory */

extern unsigned loop_resumes; /* how often a transport was told to take connections again */

/* What is the host's, and may be reached with LOOP_KEY; NULL: everything. Set it while nothing is outstanding. */
extern void *loop_memory;
extern size_t loop_memory_len;

/* Suite setup and teardown: reactors, bdevs, a target "t" with the transport, two poll groups, one subsystem (any host)
 * that listens on loop_address. Teardown checks that nothing is left. */
int loop_start(void);
int loop_stop(void);
/* Another target, and its subsystem, in place of the target, which has been stopped. */
int loop_replace_tgt(void);
struct nvmf_tgt *loop_tgt(void);
struct nvmf_subsystem *loop_subsystem(void);
extern const struct nvmf_address loop_address, loop_other_address;
/* Where new connections come from; NULL: from the address to which they go. */
extern const struct nvmf_address *loop_peer;
extern uint32_t loop_placement; /* nvmf_qpair.placement of new connections */
struct thread *loop_group_thread(unsigned i);
void loop_release_data(struct loop_conn *c);

/* For the target's `done` functions: an int that is INT_MIN until then. */
#define LOOP_PENDING INT32_MIN
struct loop_wait {
	atomic_int status;
};
#define LOOP_WAIT                                                                                                      \
	{                                                                                                              \
		LOOP_PENDING                                                                                           \
	}
void loop_done(void *wait, int status);
int loop_wait_for(struct loop_wait *wait);
/* Runs the control loop until fn(arg). */
bool loop_until(bool (*fn)(void *arg), void *arg);

/* ---- Connections ---- */

/* The target that loop_open() connects to; NULL: loop_tgt(). */
extern struct nvmf_tgt *loop_use_tgt;
/* A new connection; qid as RDMA's private data would tell. NULL: refused. */
struct loop_conn *loop_open(const struct nvmf_address *address, uint16_t qid);
/* The same to another target, without waiting: `added` or `closed` says when it is there. */
struct loop_conn *loop_open_begin(struct nvmf_tgt *to, const struct nvmf_address *address, uint16_t qid);
/* The host hangs up an `added` connection, without waiting; c may be freed when it is closed and nothing is
 * outstanding. */
void loop_hang_up(struct loop_conn *c);
/* As loop_release_data(), without waiting. */
void loop_release_data_begin(struct loop_conn *c);
/* The host hangs up, if it has not been hung up on; waits until nothing is left, and frees it. */
void loop_close(struct loop_conn *c);
bool loop_wait_closed(struct loop_conn *c);
/* The connection breaks; does not wait. */
void loop_break(struct loop_conn *c);

/* ---- Commands ---- */

void loop_cmd_init(struct loop_cmd *cmd, struct loop_conn *c, uint8_t opcode, uint32_t nsid);
/* The data pointer: one keyed descriptor. */
void loop_cmd_data(struct loop_cmd *cmd, void *buf, uint32_t len);
void loop_submit(struct loop_cmd *cmd);
/* Its status, without the phase bit; LOOP_STATUS_GONE. */
uint16_t loop_wait(struct loop_cmd *cmd);
uint16_t loop_run(struct loop_cmd *cmd);
/* A status of a command whose queue ended: no answer, or "aborted with its queue". */
bool loop_given_up(uint16_t status);

void loop_connect_init(struct loop_cmd *cmd, struct loop_conn *c, struct nvmf_connect_data *data, uint16_t qid,
		       uint16_t cntlid);
uint16_t loop_property_get(struct loop_conn *c, uint32_t offset, uint8_t size, uint64_t *value);
uint16_t loop_property_set(struct loop_conn *c, uint32_t offset, uint8_t size, uint64_t value);
#define LOOP_CC_ENABLE (1u | 6u << NVME_CC_IOSQES_SHIFT | 4u << NVME_CC_IOCQES_SHIFT)

/* An association: admin queue, enabled. NULL if anything failed. What host points to stays. */
struct loop_conn *loop_attach_as(const struct loop_host *host);
/* The same on loop_address, with kato_ms as given. */
struct loop_conn *loop_attach(const char *subnqn, const char *hostnqn, uint32_t kato_ms);
/* An I/O queue of it. */
struct loop_conn *loop_io_queue(struct loop_conn *admin, uint16_t qid);

uint16_t loop_rw(struct loop_conn *c, uint8_t opcode, uint32_t nsid, uint64_t slba, uint16_t nlb, void *buf,
		 uint32_t len);
uint16_t loop_identify(struct loop_conn *c, uint8_t cns, uint32_t nsid, uint32_t cdw11, void *buf);
uint16_t loop_get_log(struct loop_conn *c, uint8_t lid, bool rae, uint64_t offset, void *buf, uint32_t len);
uint16_t loop_get_feature(struct loop_conn *c, uint32_t cdw10, uint32_t cdw11, uint32_t *value);
uint16_t loop_set_feature(struct loop_conn *c, uint32_t cdw10, uint32_t cdw11, uint32_t *value);

/* A malloc bdev as a namespace: its nsid; and away with both. */
uint32_t loop_add_malloc_ns(const char *name, uint32_t block_size, uint64_t num_blocks);
uint32_t loop_add_ns(const char *bdev_name, uint32_t nsid);
void loop_remove_ns(uint32_t nsid);
void loop_remove_malloc_ns(uint32_t nsid, const char *name);

/* Puts a key into the keyring, from a file that is gone afterwards. 0, or what keyring_file_add() returned. */
int loop_add_key(const char *name, const char *text);

#endif

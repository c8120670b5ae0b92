/* SPDX-License-Identifier: BSD-3-Clause */
/* Hosts that a test plays over the devices of fake_verbs.h: an admin queue and an I/O queue each. */
#ifndef NVMF_RDMA_HOSTS_H
#define NVMF_RDMA_HOSTS_H

#include "unittest/nvmf_rdma/fake_verbs.h"

#define HOST_SUBNQN  "nqn.2026-11.io.varve:devices"
#define HOST_ENTRIES 32 /* of each queue */

struct host {
	struct fake_conn admin, io;
	atomic_uint answers;
	struct nvme_cqe cqe; /* the last answer */
};

/* The thread of the target's only poll group, set by the test. */
extern struct thread *host_group_thread;

/* For fake_conn.on_response; its arg is the host. */
void host_on_answer(struct fake_conn *conn, const struct nvme_cqe *cqe);
/* For fixture_poll(), of a struct fake_conn. */
bool host_is_accepted(void *arg);
bool host_is_rejected(void *arg);
/* The status of a command, or 0xffff if no answer came. */
uint16_t host_do_command(struct host *h, struct fake_conn *conn, const void *sqe, const void *data, uint32_t data_len);
/* Connects one queue; the status of Connect, or 0xffff. */
uint16_t host_connect_queue(struct host *h, struct fake_conn *conn, uint16_t qid, uint16_t cntlid);
/* Enables the controller; the status. */
uint16_t host_enable(struct host *h);
/* Connects both queues through a device. */
bool host_try_connect(struct host *h, unsigned device);
void host_connect(struct host *h, unsigned device);
/* A command of 4096 bytes of namespace 1. */
struct nvme_sqe host_rw(uint8_t opcode, unsigned lba);
/* Reads one block; the status. */
uint16_t host_read_one(struct host *h);

#endif

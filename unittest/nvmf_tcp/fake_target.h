/* SPDX-License-Identifier: BSD-3-Clause */
/* One connection of nvmf_tcp/ with nothing else around it: the target above it, its socket, threads and memory are
 * fakes in this process, so that every step is decided by the test. */
#ifndef UNITTEST_NVMF_TCP_FAKE_TARGET_H
#define UNITTEST_NVMF_TCP_FAKE_TARGET_H

#include "nvmf_tcp/internal.h"

#define FAKE_FD       7
#define FAKE_ENTRIES  4 /* of the queue that Connect makes */
#define FAKE_SENT_MAX (1u << 22)

struct fake {
	struct nvmf_tcp_qpair *qp; /* NULL: destroyed */
	/* The socket. */
	const uint8_t *in; /* what the host has sent, and how much one read brings at most */
	size_t in_bytes, in_at_once;
	bool host_closed;
	size_t room; /* bytes that the socket takes before it is full */
	uint8_t sent[FAKE_SENT_MAX];
	size_t sent_bytes;
	unsigned sendmsgs; /* calls */
	bool fd_open, leaver_open;
	/* What it was to send without a copy: it is looked at when the host takes it. */
	bool zerocopy;         /* the option */
	unsigned optmem;       /* such sends that the kernel takes before it has no means */
	unsigned resets;       /* connections that were reset so that nothing more is sent */
	size_t unacknowledged; /* bytes that the host has not taken, as the socket tells */
	int outq_fd;           /* a real socket, which tells it instead; 0: there is none */
	unsigned pinned, max;  /* sends that were not taken; the most of them */
	/* The target. */
	bool control_is_quick;         /* the control thread does at once what it is asked to */
	bool holds;                    /* commands are not carried out until fake_carry_out() */
	unsigned buffers;              /* that there are */
	unsigned buffers_used, memory; /* that are in use; pieces of memory */
	unsigned executed, completed, writes;
	unsigned failures;    /* of what must always be so */
	bool closed;          /* nvmf_qpair_closed() */
	uint8_t last_written; /* first byte of the last write that was carried out */
	uint16_t last_status;
};
extern struct fake fake;

/* A new connection; ICReq has not come. */
void fake_open(void);
/* The host sends bytes; all that follows happens, as far as the socket takes what is sent. */
void fake_receive(const void *bytes, size_t length);
/* Lets poll and messages go on until nothing happens. */
void fake_run(void);
/* What was held is carried out. */
void fake_carry_out(void);
/* The host goes; all must be given back. True: it was. */
bool fake_end(void);
/* The request with a command id, or NULL. */
struct nvmf_tcp_request *fake_request(uint16_t cid);
/* The host takes what was sent without a copy, from the n-th of those that it has not taken on, as many as `count`, and
 * the kernel tells, also that it has copied. */
void fake_take(unsigned n, unsigned count, bool copied);
/* The timer of a connection that ends has run out, if it runs. */
void fake_look(void);
/* Time passes. */
void fake_tick(void);
/* Sends PDUs as a host does. */
void fake_icreq(uint8_t digests);
void fake_command(uint8_t opcode, uint16_t cid, uint16_t blocks, uint8_t fill, bool in_capsule);
void fake_connect(void);
void fake_data(uint16_t cid, uint16_t ttag, uint32_t offset, uint32_t length, uint8_t fill, bool last,
	       uint32_t send_only);

#endif

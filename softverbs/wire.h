/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages between processes on Unix sockets (SOCK_SEQPACKET: one message is one packet): those of links, and those
 * of the connection manager. Receiving checks everything that can be checked without a connection's state; the
 * functions that check are pure.
 */
#ifndef SOFTVERBS_WIRE_H
#define SOFTVERBS_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SV_WIRE_MAX_FDS 4

enum sv_link_type {
	SV_LINK_HELLO = 1,   /* give me your arena (answered with arena and kick descriptors) */
	SV_LINK_CHANNEL = 2, /* give me a completion channel's descriptor */
	SV_LINK_MEMORY = 3,  /* give me the memfd of a mapping (answered without one if there is none) */
	SV_LINK_FORGET = 4,  /* nothing of that mapping is registered any more: unmap it */
};

struct sv_link_msg {
	uint64_t magic;
	uint32_t type;
	uint32_t slot; /* the sender's */
	uint32_t id;   /* of the channel */
	uint32_t reserved;
	uint64_t arena_size;
	uint64_t probe; /* address of a word SV_ARENA_MAGIC in the sender's private memory */
	uint64_t map;   /* of the mapping: its number; and in the answer where it is in the sender's memory and in the
			   file */
	uint64_t map_addr;
	uint64_t map_length;
	uint64_t map_offset;
};

enum sv_cm_type {
	SV_CM_REQ = 1,
	SV_CM_REP = 2,
	SV_CM_RTU = 3,
	SV_CM_REJ = 4,
	SV_CM_DREQ = 5,
	SV_CM_DREP = 6,
};

/* As much private data as InfiniBand's messages have room for behind the connection manager's own header. */
#define SV_CM_REQ_PRIVATE 56
#define SV_CM_REP_PRIVATE 196
#define SV_CM_REJ_PRIVATE 148

struct sv_cm_msg {
	uint64_t magic;
	uint32_t type;
	uint32_t reason; /* of a rejection: enum ib_cm_rej_reason */
	uint32_t qpn;
	uint32_t psn;
	uint8_t responder_resources; /* as its sender sees itself */
	uint8_t initiator_depth;
	uint8_t flow_control;
	uint8_t retry_count;
	uint8_t rnr_retry_count;
	uint8_t srq;
	uint8_t private_data_len;
	uint8_t family;     /* of the addresses below: 4 or 6 */
	uint8_t source[16]; /* the active side's address, as a GID */
	uint8_t dest[16];
	uint16_t source_port; /* network byte order */
	uint16_t dest_port;
	uint32_t port_space;
	uint8_t private_data[SV_CM_REP_PRIVATE];
};

/* Sends a message with up to SV_WIRE_MAX_FDS descriptors. 0 or an errno; never blocks. */
int sv_wire_send(int fd, const void *message, size_t size, const int *fds, int num_fds);
/* Receives a message, as recv(2) does, and its descriptors, which the caller must close. *num_fds is always set. */
ssize_t sv_wire_receive(int fd, void *message, size_t size, int *fds, int *num_fds);
/* Closes the descriptors that are not -1. */
void sv_wire_close_fds(const int *fds, int num_fds);

/* Whether a received message of a link is valid. */
bool sv_link_msg_ok(const struct sv_link_msg *m, size_t size);
/* Whether a received message of the connection manager is valid. */
bool sv_cm_msg_ok(const struct sv_cm_msg *m, size_t size);

#endif

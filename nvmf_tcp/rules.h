/* SPDX-License-Identifier: BSD-3-Clause */
/* Decisions of the transport that depend on nothing but what they are given: pure functions, for any thread. */
#ifndef NVMF_TCP_RULES_H
#define NVMF_TCP_RULES_H

#include "tcp/pdu.h"

/* A command whose R2T has been sent, and whose data are awaited. */
struct nvmf_tcp_awaited {
	uint16_t cid;
	uint32_t received; /* bytes so far */
	uint32_t length;   /* bytes in all, for which the R2T has asked */
};

/* Whether H2CData that have arrived are those that are awaited next. flags: of its common header. awaited: of the R2T
 * with its tag; NULL: no such R2T waits. True, or false with the fault filled in. */
bool nvmf_tcp_h2c_data_check(const struct tcp_piece *piece, uint8_t flags, const struct nvmf_tcp_awaited *awaited,
			     struct tcp_fault *fault);

#define NVMF_TCP_STALL_BYTES        UINT64_C(4096)
#define NVMF_TCP_STALL_BYTES_SCARCE (UINT64_C(1) << 20)

/* How many bytes a connection that has something to send or to receive must move between two looks at it. scarce:
 * commands wait for data buffers, and it holds some. Then it is measured by its neighbours, for all may be slow: it
 * must move a quarter of what `connections` that had something to move (it is one of them) have moved on average, which
 * is `moved` bytes together; NVMF_TCP_STALL_BYTES at least, and NVMF_TCP_STALL_BYTES_SCARCE at most. */
uint64_t nvmf_tcp_stall_bytes(bool scarce, uint64_t moved, uint32_t connections);

/* Why a connection over TLS may not begin its handshake, for operators; NULL: it may. all: handshakes under way,
 * of_host: those from the same address, which has an eighth at most: one stranger does not keep all others out. max,
 * max_per_host: the options max_anonymous and max_anonymous_per_host; 0: no limit but those here. */
const char *nvmf_tcp_handshake_refusal(uint32_t all, uint32_t of_host, uint32_t max, uint32_t max_per_host);
#define NVMF_TCP_HANDSHAKES_MAX 1024 /* whatever the options say: each takes some 60 KiB */

#endif

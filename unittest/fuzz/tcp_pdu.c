/* SPDX-License-Identifier: BSD-3-Clause */
/* A stream of PDUs, as both sides would receive it. The first byte: the side, the digests, whether the connection is
 * initialized, and the alignment. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tcp/receiver.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t place[1 << 16], stage[TCP_STAGE_MIN];

static void pdu_decode(struct tcp_receiver *r)
{
	struct tcp_icreq req = {.header_digest = true, .max_r2t = 1};
	struct tcp_icresp resp;
	struct tcp_piece piece;
	struct tcp_fault fault;
	struct tcp_term term;
	char text[TCP_FAULT_TEXT_MAX];
	bool good = true;

	switch (r->header.common.type) {
	case TCP_PDU_ICREQ:
		good = tcp_icreq_decode(&r->header.icreq, &req, &fault);
		break;
	case TCP_PDU_ICRESP:
		good = tcp_icresp_decode(&r->header.icresp, &req, &resp, &fault);
		if (good && (resp.data_digest || resp.max_h2c_data < TCP_MAX_H2C_DATA_MIN)) {
			abort();
		}
		break;
	case TCP_PDU_H2C_DATA:
		good = tcp_h2c_data_decode(&r->header.data, &r->shape, &piece, &fault);
		good = good && tcp_piece_check(&piece, TCP_PDU_H2C_DATA, 0, 4096, &fault);
		break;
	case TCP_PDU_C2H_DATA:
		good = tcp_c2h_data_decode(&r->header.data, &r->shape, &piece, &fault);
		break;
	case TCP_PDU_R2T:
		good = tcp_r2t_decode(&r->header.r2t, &piece, &fault);
		break;
	case TCP_PDU_H2C_TERM:
	case TCP_PDU_C2H_TERM:
		tcp_term_decode(&r->header, &r->shape, &term);
		tcp_term_text(&term, r->side == TCP_HOST ? TCP_CONTROLLER : TCP_HOST, text);
		break;
	}
	if (!good) {
		tcp_fault_text(&fault, text);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct iovec iov = {place, sizeof(place)};
	struct tcp_receiver r;
	struct tcp_fault fault;
	enum tcp_event e = TCP_EVENT_NONE;
	int fds[2];

	if (size < 1 || socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0) {
		return 0;
	}
	tcp_receiver_init(&r, data[0] & 1 ? TCP_CONTROLLER : TCP_HOST, stage, sizeof(stage));
	r.agreed = (struct tcp_agreed){.done = data[0] & 2,
				       .header_digest = data[0] & 4,
				       .data_digest = data[0] & 8,
				       .align_to_ctrlr = 4,
				       .align_to_host = data[0] & 16 ? 64 : 4,
				       .max_r2t = 1,
				       .max_h2c_data = 8192,
				       .max_in_capsule = 8192};
	size = size > 32768 ? 32768 : size;
	if (write(fds[0], data + 1, size - 1) != (ssize_t)(size - 1)) {
		abort();
	}
	while (e != TCP_EVENT_FAULT && tcp_receiver_read(&r, fds[1]) > 0) {
		while ((e = tcp_receiver_next(&r, &fault)) == TCP_EVENT_HEADER || e == TCP_EVENT_PDU) {
			if (e == TCP_EVENT_HEADER) {
				if (r.shape.data > 0 && r.shape.data <= sizeof(place)) {
					tcp_receiver_place(&r, &iov, 1, 0);
				}
				pdu_decode(&r);
			}
		}
	}
	if (e == TCP_EVENT_FAULT && (fault.fes == TCP_FES_NONE || fault.field == NULL)) {
		abort();
	}
	close(fds[0]);
	close(fds[1]);
	return 0;
}

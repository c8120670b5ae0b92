/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes the heads of PDUs. */
#include <string.h>

#include "tcp/digest.h"
#include "tcp/pdu.h"

/* Fills in the common header of a PDU whose other fields are written, and appends digest and padding: the length of the
 * head. */
static uint32_t head_finish(union tcp_header *h, const struct tcp_agreed *agreed, uint8_t type, uint8_t flags,
			    uint8_t hlen, uint8_t align, uint32_t data_bytes)
{
	uint8_t *bytes = (uint8_t *)h;
	uint32_t head = hlen + (agreed->header_digest ? TCP_DIGEST_BYTES : 0u);
	uint32_t pdo = data_bytes == 0 ? 0 : (head + align - 1) / align * align;
	uint32_t plen = data_bytes == 0 ? head : pdo + data_bytes + tcp_data_digest_bytes(agreed, data_bytes);

	flags |= agreed->header_digest ? TCP_FLAG_HDGST : 0;
	flags |= tcp_data_digest_bytes(agreed, data_bytes) != 0 ? TCP_FLAG_DDGST : 0;
	h->common = (struct tcp_pdu_common){
		.type = type, .flags = flags, .hlen = hlen, .pdo = (uint8_t)pdo, .plen = htole32(plen)};
	if (agreed->header_digest) {
		uint32_t digest = htole32(tcp_digest_end(tcp_digest_add(TCP_DIGEST_START, bytes, hlen)));
		memcpy(bytes + hlen, &digest, sizeof(digest));
	}
	if (pdo > head) {
		memset(bytes + head, 0, pdo - head);
		head = pdo;
	}
	return head;
}

uint32_t tcp_icreq_encode(void *head, const struct tcp_icreq *req)
{
	struct tcp_pdu_icreq *pdu = head;

	*pdu = (struct tcp_pdu_icreq){
		.common = {.type = TCP_PDU_ICREQ, .hlen = sizeof(*pdu), .plen = htole32(sizeof(*pdu))},
		.hpda = req->hpda,
		.dgst = (uint8_t)((req->header_digest ? TCP_DGST_HEADER : 0) | (req->data_digest ? TCP_DGST_DATA : 0)),
		.maxr2t = htole32(req->max_r2t - 1),
	};
	return sizeof(*pdu);
}

uint32_t tcp_icresp_encode(void *head, const struct tcp_icresp *resp)
{
	struct tcp_pdu_icresp *pdu = head;

	*pdu = (struct tcp_pdu_icresp){
		.common = {.type = TCP_PDU_ICRESP, .hlen = sizeof(*pdu), .plen = htole32(sizeof(*pdu))},
		.cpda = resp->cpda,
		.dgst = (uint8_t)((resp->header_digest ? TCP_DGST_HEADER : 0) |
				  (resp->data_digest ? TCP_DGST_DATA : 0)),
		.maxh2cdata = htole32(resp->max_h2c_data),
	};
	return sizeof(*pdu);
}

uint32_t tcp_capsule_cmd_encode(void *head, const struct tcp_agreed *agreed, const void *sqe, uint32_t data_bytes)
{
	union tcp_header *h = head;

	memcpy(h->cmd.sqe, sqe, sizeof(h->cmd.sqe));
	return head_finish(h, agreed, TCP_PDU_CAPSULE_CMD, 0, sizeof(h->cmd), agreed->align_to_ctrlr, data_bytes);
}

uint32_t tcp_capsule_resp_encode(void *head, const struct tcp_agreed *agreed, const void *cqe)
{
	union tcp_header *h = head;

	memcpy(h->resp.cqe, cqe, sizeof(h->resp.cqe));
	return head_finish(h, agreed, TCP_PDU_CAPSULE_RESP, 0, sizeof(h->resp), 4, 0);
}

static void data_fill(union tcp_header *h, const struct tcp_piece *piece, uint16_t ttag)
{
	h->data.cccid = htole16(piece->cccid);
	h->data.ttag = htole16(ttag);
	h->data.datao = htole32(piece->offset);
	h->data.datal = htole32(piece->length);
	h->data.reserved20 = 0;
}

uint32_t tcp_h2c_data_encode(void *head, const struct tcp_agreed *agreed, const struct tcp_piece *piece)
{
	union tcp_header *h = head;

	data_fill(h, piece, piece->ttag);
	return head_finish(h, agreed, TCP_PDU_H2C_DATA, piece->last ? TCP_FLAG_LAST_PDU : 0, sizeof(h->data),
			   agreed->align_to_ctrlr, piece->length);
}

uint32_t tcp_c2h_data_encode(void *head, const struct tcp_agreed *agreed, const struct tcp_piece *piece)
{
	union tcp_header *h = head;
	uint8_t flags = (uint8_t)((piece->last ? TCP_FLAG_LAST_PDU : 0) | (piece->success ? TCP_FLAG_SUCCESS : 0));

	data_fill(h, piece, 0);
	return head_finish(h, agreed, TCP_PDU_C2H_DATA, flags, sizeof(h->data), agreed->align_to_host, piece->length);
}

uint32_t tcp_r2t_encode(void *head, const struct tcp_agreed *agreed, const struct tcp_piece *piece)
{
	union tcp_header *h = head;

	h->r2t.cccid = htole16(piece->cccid);
	h->r2t.ttag = htole16(piece->ttag);
	h->r2t.r2to = htole32(piece->offset);
	h->r2t.r2tl = htole32(piece->length);
	h->r2t.reserved20 = 0;
	return head_finish(h, agreed, TCP_PDU_R2T, 0, sizeof(h->r2t), 4, 0);
}

uint32_t tcp_term_encode(void *head, enum tcp_side side, const struct tcp_fault *fault, const void *pdu,
			 uint32_t pdu_bytes)
{
	struct tcp_pdu_term *term = head;
	uint32_t room = TCP_TERM_MAX - sizeof(*term), n = pdu_bytes < room ? pdu_bytes : room;

	*term = (struct tcp_pdu_term){
		.common = {.type = side == TCP_HOST ? TCP_PDU_H2C_TERM : TCP_PDU_C2H_TERM,
			   .hlen = sizeof(*term),
			   .plen = htole32((uint32_t)sizeof(*term) + n)},
		.fes = htole16(fault->fes),
		.fei_low = htole16((uint16_t)fault->fei),
		.fei_high = htole16((uint16_t)(fault->fei >> 16)),
	};
	memcpy((uint8_t *)head + sizeof(*term), pdu, n);
	return (uint32_t)sizeof(*term) + n;
}

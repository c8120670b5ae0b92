/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks and decodes PDUs. Every value comes from the other side. */
#include <string.h>

#include "tcp/digest.h"
#include "tcp/pdu.h"

#define OFFSET(field) ((uint8_t)offsetof(union tcp_header, field))

/* A PDU type: the length of its header, and who receives it. */
struct type_rule {
	uint8_t hlen; /* 0: there is no such type */
	bool to_ctrlr, to_host;
	bool connects; /* ICReq, ICResp: no other PDU comes before it, and it comes once */
	bool has_data; /* it may have data */
};

static const struct type_rule types[] = {
	[TCP_PDU_ICREQ] = {.hlen = sizeof(struct tcp_pdu_icreq), .to_ctrlr = true, .connects = true},
	[TCP_PDU_ICRESP] = {.hlen = sizeof(struct tcp_pdu_icresp), .to_host = true, .connects = true},
	[TCP_PDU_H2C_TERM] = {.hlen = sizeof(struct tcp_pdu_term), .to_ctrlr = true},
	[TCP_PDU_C2H_TERM] = {.hlen = sizeof(struct tcp_pdu_term), .to_host = true},
	[TCP_PDU_CAPSULE_CMD] = {.hlen = sizeof(struct tcp_pdu_capsule_cmd), .to_ctrlr = true, .has_data = true},
	[TCP_PDU_CAPSULE_RESP] = {.hlen = sizeof(struct tcp_pdu_capsule_resp), .to_host = true},
	[TCP_PDU_H2C_DATA] = {.hlen = sizeof(struct tcp_pdu_data), .to_ctrlr = true, .has_data = true},
	[TCP_PDU_C2H_DATA] = {.hlen = sizeof(struct tcp_pdu_data), .to_host = true, .has_data = true},
	[TCP_PDU_R2T] = {.hlen = sizeof(struct tcp_pdu_r2t), .to_host = true},
};

static bool type_is_term(uint8_t type)
{
	return type == TCP_PDU_H2C_TERM || type == TCP_PDU_C2H_TERM;
}

/* A fault of the common header. */
static bool common_wrong(struct tcp_fault *fault, const struct tcp_pdu_common *c, uint8_t offset, const char *field,
			 uint64_t value, const char *reason)
{
	return tcp_fault_set(fault, TCP_FES_INVALID_FIELD, c->type, offset, field, value, reason);
}

static bool type_check(const struct tcp_pdu_common *c, enum tcp_side side, const struct tcp_agreed *agreed,
		       struct tcp_fault *fault)
{
	const struct type_rule *rule = c->type < sizeof(types) / sizeof(types[0]) ? &types[c->type] : NULL;

	if (rule == NULL || rule->hlen == 0) {
		return common_wrong(fault, c, OFFSET(common.type), "PDU-Type", c->type, "there is no such type");
	}
	if (!(side == TCP_CONTROLLER ? rule->to_ctrlr : rule->to_host)) {
		return common_wrong(fault, c, OFFSET(common.type), "PDU-Type", c->type,
				    side == TCP_CONTROLLER ? "a host does not send it"
							   : "a controller does not send it");
	}
	if (!type_is_term(c->type) && rule->connects == agreed->done) {
		return tcp_fault_set(fault, TCP_FES_SEQUENCE, c->type, OFFSET(common.type), "PDU-Type", c->type,
				     agreed->done ? "the connection is initialized already"
						  : "the connection is not initialized yet");
	}
	if (c->hlen != rule->hlen) {
		return common_wrong(fault, c, OFFSET(common.hlen), "HLEN", c->hlen, "not the length of this header");
	}
	return true;
}

static bool term_check(const struct tcp_pdu_common *c, struct tcp_shape *shape, struct tcp_fault *fault)
{
	uint32_t plen = le32toh(c->plen);

	if (plen < sizeof(struct tcp_pdu_term) || plen > TCP_TERM_MAX) {
		return common_wrong(fault, c, OFFSET(common.plen), "PLEN", plen, "24 to 152 are allowed");
	}
	*shape = (struct tcp_shape){.header = (uint16_t)plen};
	return true;
}

/* PDO, PLEN and the data digest of a PDU with data. shape: `header` is filled in. */
static bool data_check(const struct tcp_pdu_common *c, const struct tcp_agreed *agreed, struct tcp_shape *shape,
		       struct tcp_fault *fault)
{
	uint32_t plen = le32toh(c->plen), digest = agreed->data_digest ? TCP_DIGEST_BYTES : 0;
	uint32_t limit = c->type == TCP_PDU_CAPSULE_CMD ? agreed->max_in_capsule
			 : c->type == TCP_PDU_H2C_DATA  ? agreed->max_h2c_data
							: UINT32_MAX;
	uint8_t align = c->type == TCP_PDU_C2H_DATA ? agreed->align_to_host : agreed->align_to_ctrlr;

	if (c->pdo < shape->header) {
		return common_wrong(fault, c, OFFSET(common.pdo), "PDO", c->pdo, "within the header");
	}
	if (c->pdo % align != 0) {
		return common_wrong(fault, c, OFFSET(common.pdo), "PDO", c->pdo, "not a multiple of the alignment");
	}
	if (((c->flags & TCP_FLAG_DDGST) != 0) != agreed->data_digest) {
		return common_wrong(fault, c, OFFSET(common.flags), "FLAGS", c->flags,
				    agreed->data_digest ? "DDGSTF must be 1" : "DDGSTF must be 0");
	}
	if (plen <= c->pdo + digest) {
		return common_wrong(fault, c, OFFSET(common.plen), "PLEN", plen, "no data behind PDO");
	}
	if (plen - c->pdo - digest > limit) {
		return tcp_fault_set(fault, TCP_FES_LIMIT, c->type, OFFSET(common.plen), "PLEN", plen,
				     "more data than the controller takes in this PDU");
	}
	shape->padding = (uint16_t)(c->pdo - shape->header);
	shape->data = plen - c->pdo - digest;
	shape->data_digest = agreed->data_digest;
	return true;
}

bool tcp_common_check(const struct tcp_pdu_common *c, enum tcp_side side, const struct tcp_agreed *agreed,
		      struct tcp_shape *shape, struct tcp_fault *fault)
{
	uint32_t plen = le32toh(c->plen);

	*shape = (struct tcp_shape){0};
	if (!type_check(c, side, agreed, fault)) {
		return false;
	}
	if (type_is_term(c->type)) {
		return term_check(c, shape, fault);
	}
	const struct type_rule *rule = &types[c->type];

	if (!rule->connects && ((c->flags & TCP_FLAG_HDGST) != 0) != agreed->header_digest) {
		return common_wrong(fault, c, OFFSET(common.flags), "FLAGS", c->flags,
				    agreed->header_digest ? "HDGSTF must be 1" : "HDGSTF must be 0");
	}
	shape->header_digest = !rule->connects && agreed->header_digest;
	shape->header = (uint16_t)(rule->hlen + (shape->header_digest ? TCP_DIGEST_BYTES : 0));
	if (rule->has_data && !(c->type == TCP_PDU_CAPSULE_CMD && plen == shape->header)) {
		return data_check(c, agreed, shape, fault);
	}
	if (plen != shape->header) {
		return common_wrong(fault, c, OFFSET(common.plen), "PLEN", plen, "not the length of this PDU");
	}
	return true;
}

bool tcp_header_digest_check(const union tcp_header *header, const struct tcp_shape *shape, struct tcp_fault *fault)
{
	uint32_t bytes = shape->header - TCP_DIGEST_BYTES, wire;

	if (!shape->header_digest) {
		return true;
	}
	memcpy(&wire, header->bytes + bytes, sizeof(wire));
	if (le32toh(wire) == tcp_digest_end(tcp_digest_add(TCP_DIGEST_START, header->bytes, bytes))) {
		return true;
	}
	return tcp_fault_set(fault, TCP_FES_HEADER_DIGEST, header->common.type, (uint8_t)bytes, "HDGST", le32toh(wire),
			     "not the CRC32C of the header");
}

bool tcp_icreq_decode(const struct tcp_pdu_icreq *pdu, struct tcp_icreq *req, struct tcp_fault *fault)
{
	uint32_t maxr2t = le32toh(pdu->maxr2t);

	if (pdu->pfv != 0) {
		return tcp_fault_set(fault, TCP_FES_UNSUPPORTED, TCP_PDU_ICREQ, OFFSET(icreq.pfv), "PFV",
				     le16toh(pdu->pfv), "0 is supported");
	}
	if (pdu->hpda > TCP_PDA_MAX) {
		return tcp_fault_set(fault, TCP_FES_INVALID_FIELD, TCP_PDU_ICREQ, OFFSET(icreq.hpda), "HPDA", pdu->hpda,
				     "0 to 31 are allowed");
	}
	*req = (struct tcp_icreq){
		.header_digest = pdu->dgst & TCP_DGST_HEADER,
		.data_digest = pdu->dgst & TCP_DGST_DATA,
		.hpda = pdu->hpda,
		.max_r2t = maxr2t == UINT32_MAX ? UINT32_MAX : maxr2t + 1,
	};
	return true;
}

static bool icresp_wrong(struct tcp_fault *fault, uint8_t offset, const char *field, uint64_t value, const char *reason)
{
	return tcp_fault_set(fault, TCP_FES_INVALID_FIELD, TCP_PDU_ICRESP, offset, field, value, reason);
}

bool tcp_icresp_decode(const struct tcp_pdu_icresp *pdu, const struct tcp_icreq *req, struct tcp_icresp *resp,
		       struct tcp_fault *fault)
{
	uint32_t maxh2cdata = le32toh(pdu->maxh2cdata);
	uint8_t asked = (uint8_t)((req->header_digest ? TCP_DGST_HEADER : 0) | (req->data_digest ? TCP_DGST_DATA : 0));

	if (pdu->pfv != 0) {
		return tcp_fault_set(fault, TCP_FES_UNSUPPORTED, TCP_PDU_ICRESP, OFFSET(icresp.pfv), "PFV",
				     le16toh(pdu->pfv), "0 is supported");
	}
	if (pdu->cpda > TCP_PDA_MAX) {
		return icresp_wrong(fault, OFFSET(icresp.cpda), "CPDA", pdu->cpda, "0 to 31 are allowed");
	}
	if (pdu->dgst & (TCP_DGST_HEADER | TCP_DGST_DATA) & ~asked) {
		return icresp_wrong(fault, OFFSET(icresp.dgst), "DGST", pdu->dgst, "a digest that was not asked for");
	}
	if (maxh2cdata < TCP_MAX_H2C_DATA_MIN) {
		return icresp_wrong(fault, OFFSET(icresp.maxh2cdata), "MAXH2CDATA", maxh2cdata,
				    "4096 or more is allowed");
	}
	*resp = (struct tcp_icresp){
		.header_digest = pdu->dgst & TCP_DGST_HEADER,
		.data_digest = pdu->dgst & TCP_DGST_DATA,
		.cpda = pdu->cpda,
		.max_h2c_data = maxh2cdata & ~UINT32_C(3), /* targets of Linux 5.0 to 5.6 say 65535 */
	};
	return true;
}

struct tcp_agreed tcp_agree(const struct tcp_icreq *req, const struct tcp_icresp *resp)
{
	return (struct tcp_agreed){
		.done = true,
		.header_digest = req->header_digest && resp->header_digest,
		.data_digest = req->data_digest && resp->data_digest,
		.align_to_ctrlr = (uint8_t)((resp->cpda + 1) * 4),
		.align_to_host = (uint8_t)((req->hpda + 1) * 4),
		.max_r2t = req->max_r2t,
		.max_h2c_data = resp->max_h2c_data,
	};
}

static bool data_decode(const struct tcp_pdu_data *pdu, const struct tcp_shape *shape, struct tcp_piece *piece,
			struct tcp_fault *fault)
{
	*piece = (struct tcp_piece){
		.cccid = le16toh(pdu->cccid),
		.offset = le32toh(pdu->datao),
		.length = le32toh(pdu->datal),
		.last = pdu->common.flags & TCP_FLAG_LAST_PDU,
	};
	if (piece->offset % 4 != 0) {
		return tcp_fault_set(fault, TCP_FES_INVALID_FIELD, pdu->common.type, OFFSET(data.datao), "DATAO",
				     piece->offset, "not a multiple of 4");
	}
	if (piece->length != shape->data) {
		return tcp_fault_set(fault, TCP_FES_INVALID_FIELD, pdu->common.type, OFFSET(data.datal), "DATAL",
				     piece->length, "not the number of bytes behind the header");
	}
	return true;
}

bool tcp_h2c_data_decode(const struct tcp_pdu_data *pdu, const struct tcp_shape *shape, struct tcp_piece *piece,
			 struct tcp_fault *fault)
{
	if (!data_decode(pdu, shape, piece, fault)) {
		return false;
	}
	piece->ttag = le16toh(pdu->ttag);
	return true;
}

bool tcp_c2h_data_decode(const struct tcp_pdu_data *pdu, const struct tcp_shape *shape, struct tcp_piece *piece,
			 struct tcp_fault *fault)
{
	if (!data_decode(pdu, shape, piece, fault)) {
		return false;
	}
	piece->success = pdu->common.flags & TCP_FLAG_SUCCESS;
	if (piece->success && !piece->last) {
		return tcp_fault_set(fault, TCP_FES_INVALID_FIELD, pdu->common.type, OFFSET(common.flags), "FLAGS",
				     pdu->common.flags, "SUCCESS without LAST_PDU");
	}
	return true;
}

bool tcp_r2t_decode(const struct tcp_pdu_r2t *pdu, struct tcp_piece *piece, struct tcp_fault *fault)
{
	*piece = (struct tcp_piece){
		.cccid = le16toh(pdu->cccid),
		.ttag = le16toh(pdu->ttag),
		.offset = le32toh(pdu->r2to),
		.length = le32toh(pdu->r2tl),
	};
	if (piece->offset % 4 != 0) {
		return tcp_fault_set(fault, TCP_FES_INVALID_FIELD, TCP_PDU_R2T, OFFSET(r2t.r2to), "R2TO", piece->offset,
				     "not a multiple of 4");
	}
	if (piece->length == 0) {
		return tcp_fault_set(fault, TCP_FES_INVALID_FIELD, TCP_PDU_R2T, OFFSET(r2t.r2tl), "R2TL", 0,
				     "no data is asked for");
	}
	return true;
}

bool tcp_piece_check(const struct tcp_piece *piece, uint8_t type, uint32_t begin, uint32_t end, struct tcp_fault *fault)
{
	bool is_r2t = type == TCP_PDU_R2T;

	if (piece->offset != begin) {
		return tcp_fault_set(fault, TCP_FES_OUT_OF_RANGE, type, OFFSET(data.datao), is_r2t ? "R2TO" : "DATAO",
				     piece->offset, "not where the data before it has ended");
	}
	if (piece->length > end - begin) {
		return tcp_fault_set(fault, TCP_FES_OUT_OF_RANGE, type, OFFSET(data.datal), is_r2t ? "R2TL" : "DATAL",
				     piece->length, "more than is left");
	}
	return true;
}

void tcp_term_decode(const union tcp_header *header, const struct tcp_shape *shape, struct tcp_term *term)
{
	const struct tcp_pdu_term *pdu = &header->term;

	*term = (struct tcp_term){
		.fes = le16toh(pdu->fes),
		.fei = le16toh(pdu->fei_low) | (uint32_t)le16toh(pdu->fei_high) << 16,
		.pdu = header->bytes + sizeof(*pdu),
		.pdu_bytes = shape->header - (uint32_t)sizeof(*pdu),
	};
}

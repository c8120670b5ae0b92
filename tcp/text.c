/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of types and errors, and faults as sentences. */
#include <inttypes.h>
#include <stdio.h>

#include "tcp/pdu.h"

const char *tcp_pdu_type_name(uint8_t type)
{
	static const char *const names[] = {
		[TCP_PDU_ICREQ] = "ICReq",
		[TCP_PDU_ICRESP] = "ICResp",
		[TCP_PDU_H2C_TERM] = "H2CTermReq",
		[TCP_PDU_C2H_TERM] = "C2HTermReq",
		[TCP_PDU_CAPSULE_CMD] = "CapsuleCmd",
		[TCP_PDU_CAPSULE_RESP] = "CapsuleResp",
		[TCP_PDU_H2C_DATA] = "H2CData",
		[TCP_PDU_C2H_DATA] = "C2HData",
		[TCP_PDU_R2T] = "R2T",
	};

	return type < sizeof(names) / sizeof(names[0]) && names[type] != NULL ? names[type] : "PDU of unknown type";
}

const char *tcp_fes_name(uint16_t fes, enum tcp_side sender)
{
	switch (fes) {
	case TCP_FES_INVALID_FIELD:
		return "Invalid PDU Header Field";
	case TCP_FES_SEQUENCE:
		return "PDU Sequence Error";
	case TCP_FES_HEADER_DIGEST:
		return "Header Digest Error";
	case TCP_FES_OUT_OF_RANGE:
		return "Data Transfer Out of Range";
	case TCP_FES_LIMIT:
		return sender == TCP_CONTROLLER ? "Data Transfer Limit Exceeded" : "R2T Limit Exceeded";
	case TCP_FES_UNSUPPORTED:
		return "Unsupported Parameter";
	default:
		return "unknown";
	}
}

bool tcp_fault_set(struct tcp_fault *fault, enum tcp_fes fes, uint8_t type, uint8_t offset, const char *field,
		   uint64_t value, const char *reason)
{
	*fault = (struct tcp_fault){
		.fes = fes, .type = type, .offset = offset, .field = field, .value = value, .reason = reason};
	if (fes == TCP_FES_INVALID_FIELD || fes == TCP_FES_UNSUPPORTED) {
		fault->fei = offset;
	} else if (fes == TCP_FES_HEADER_DIGEST) {
		fault->fei = (uint32_t)value;
	}
	return false;
}

const char *tcp_fault_text(const struct tcp_fault *fault, char text[TCP_FAULT_TEXT_MAX])
{
	snprintf(text, TCP_FAULT_TEXT_MAX, "%s: %s (offset %u) is %" PRIu64 ": %s", tcp_pdu_type_name(fault->type),
		 fault->field, fault->offset, fault->value, fault->reason);
	return text;
}

const char *tcp_term_text(const struct tcp_term *term, enum tcp_side sender, char text[TCP_FAULT_TEXT_MAX])
{
	const char *name = tcp_fes_name(term->fes, sender);
	const char *pdu = term->pdu_bytes > 0 ? tcp_pdu_type_name(term->pdu[0]) : "a PDU that was not sent back";

	if (term->fes == TCP_FES_INVALID_FIELD || term->fes == TCP_FES_UNSUPPORTED) {
		snprintf(text, TCP_FAULT_TEXT_MAX, "%s (%u), field at offset %" PRIu32 " of %s", name, term->fes,
			 term->fei, pdu);
	} else {
		snprintf(text, TCP_FAULT_TEXT_MAX, "%s (%u), of %s", name, term->fes, pdu);
	}
	return text;
}

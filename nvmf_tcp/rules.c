/* SPDX-License-Identifier: BSD-3-Clause */
#include "nvmf_tcp/rules.h"

#include "util/compiler.h"

static bool h2c_data_fault(struct tcp_fault *fault, size_t offset, const char *field, uint64_t value,
			   const char *reason)
{
	return tcp_fault_set(fault, TCP_FES_INVALID_FIELD, TCP_PDU_H2C_DATA, (uint8_t)offset, field, value, reason);
}

bool nvmf_tcp_h2c_data_check(const struct tcp_piece *piece, uint8_t flags, const struct nvmf_tcp_awaited *awaited,
			     struct tcp_fault *fault)
{
	if (unlikely(awaited == NULL)) {
		return h2c_data_fault(fault, offsetof(struct tcp_pdu_data, ttag), "TTAG", piece->ttag,
				      "no R2T with this tag is waiting for data");
	}
	if (unlikely(piece->cccid != awaited->cid)) {
		return h2c_data_fault(fault, offsetof(struct tcp_pdu_data, cccid), "CCCID", piece->cccid,
				      "the R2T with this tag belongs to another command");
	}
	if (!tcp_piece_check(piece, TCP_PDU_H2C_DATA, awaited->received, awaited->length, fault)) {
		return false;
	}
	if (unlikely(piece->last != (piece->offset + piece->length == awaited->length))) {
		return h2c_data_fault(fault, offsetof(struct tcp_pdu_common, flags), "FLAGS", flags,
				      "LAST_PDU does not fit to the end of the data");
	}
	return true;
}

uint64_t nvmf_tcp_stall_bytes(bool scarce, uint64_t moved, uint32_t connections)
{
	uint64_t share = connections != 0 ? moved / connections / 4 : 0;

	if (!scarce || share < NVMF_TCP_STALL_BYTES) {
		return NVMF_TCP_STALL_BYTES;
	}
	return share < NVMF_TCP_STALL_BYTES_SCARCE ? share : NVMF_TCP_STALL_BYTES_SCARCE;
}

const char *nvmf_tcp_handshake_refusal(uint32_t all, uint32_t of_host, uint32_t max, uint32_t max_per_host)
{
	if (all >= NVMF_TCP_HANDSHAKES_MAX || (max != 0 && all >= max)) {
		return "TLS: too many handshakes are under way (1024, or max_anonymous)";
	}
	if (of_host >= NVMF_TCP_HANDSHAKES_MAX / 8 || (max_per_host != 0 && of_host >= max_per_host)) {
		return "TLS: too many handshakes with this address are under way (128, or max_anonymous_per_host)";
	}
	return NULL;
}

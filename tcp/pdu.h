/* SPDX-License-Identifier: BSD-3-Clause */
/* PDUs of NVMe/TCP (NVMe TCP Transport Specification 1.0c, section 3.6): their structures, and pure functions that
 * check what has arrived and write what is sent. Host and target share them; neither a socket nor memory is touched.
 *
 * A PDU is, in this order: a header of HLEN bytes, a header digest if one was agreed on, padding up to PDO, data, and a
 * data digest if one was agreed on. Here "head" is everything before the data: header, digest and padding. */
#ifndef TCP_PDU_H
#define TCP_PDU_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 3.6.1, figure 17 */
enum tcp_pdu_type {
	TCP_PDU_ICREQ = 0x00,
	TCP_PDU_ICRESP = 0x01,
	TCP_PDU_H2C_TERM = 0x02,
	TCP_PDU_C2H_TERM = 0x03,
	TCP_PDU_CAPSULE_CMD = 0x04,
	TCP_PDU_CAPSULE_RESP = 0x05,
	TCP_PDU_H2C_DATA = 0x06,
	TCP_PDU_C2H_DATA = 0x07,
	TCP_PDU_R2T = 0x09
};

#define TCP_FLAG_HDGST    0x01 /* a header digest follows the header */
#define TCP_FLAG_DDGST    0x02 /* a data digest follows the data */
#define TCP_FLAG_LAST_PDU 0x04 /* H2CData, C2HData: the last PDU of a transfer */
#define TCP_FLAG_SUCCESS  0x08 /* C2HData, with LAST_PDU: the command is successful, no CapsuleResp follows */

#define TCP_DIGEST_BYTES 4
/* Bytes of header, digest and padding. It is CapsuleCmd's 72 and 4, behind which an alignment of 72 has its data at
 * 144; other headers are shorter, or end within the largest alignment, 128. */
#define TCP_HEAD_MAX   144
#define TCP_TERM_MAX   152          /* bytes of a TermReq: its header and 128 bytes of the PDU in error */
#define TCP_HEADER_MAX TCP_TERM_MAX /* the most that arrives before a PDU can be handled */
#define TCP_PDA_MAX    31           /* of HPDA and CPDA: alignments of 4 to 128 bytes */

#define TCP_MAX_H2C_DATA_MIN 4096 /* the least value of MAXH2CDATA */

/* The header that all PDUs begin with. All fields of all structures are little-endian. */
struct tcp_pdu_common {
	uint8_t type;
	uint8_t flags;
	uint8_t hlen;
	uint8_t pdo;
	uint32_t plen;
};
_Static_assert(sizeof(struct tcp_pdu_common) == 8, "size");

#define TCP_DGST_HEADER 0x01 /* in ICReq and ICResp */
#define TCP_DGST_DATA   0x02

struct tcp_pdu_icreq {
	struct tcp_pdu_common common;
	uint16_t pfv;
	uint8_t hpda;
	uint8_t dgst;
	uint32_t maxr2t; /* 0's based */
	uint8_t reserved16[112];
};
_Static_assert(sizeof(struct tcp_pdu_icreq) == 128, "size");

struct tcp_pdu_icresp {
	struct tcp_pdu_common common;
	uint16_t pfv;
	uint8_t cpda;
	uint8_t dgst;
	uint32_t maxh2cdata;
	uint8_t reserved16[112];
};
_Static_assert(sizeof(struct tcp_pdu_icresp) == 128, "size");

/* H2CTermReq and C2HTermReq. Behind it: up to 128 bytes of the header in error. */
struct tcp_pdu_term {
	struct tcp_pdu_common common;
	uint16_t fes;
	uint16_t fei_low; /* FEI is bytes 10 to 13 */
	uint16_t fei_high;
	uint8_t reserved14[10];
};
_Static_assert(sizeof(struct tcp_pdu_term) == 24, "size");

struct tcp_pdu_capsule_cmd {
	struct tcp_pdu_common common;
	uint8_t sqe[64];
};
_Static_assert(sizeof(struct tcp_pdu_capsule_cmd) == 72, "size");

struct tcp_pdu_capsule_resp {
	struct tcp_pdu_common common;
	uint8_t cqe[16];
};
_Static_assert(sizeof(struct tcp_pdu_capsule_resp) == 24, "size");

/* H2CData, and C2HData, whose TTAG is reserved. */
struct tcp_pdu_data {
	struct tcp_pdu_common common;
	uint16_t cccid;
	uint16_t ttag;
	uint32_t datao;
	uint32_t datal;
	uint32_t reserved20;
};
_Static_assert(sizeof(struct tcp_pdu_data) == 24, "size");

struct tcp_pdu_r2t {
	struct tcp_pdu_common common;
	uint16_t cccid;
	uint16_t ttag;
	uint32_t r2to;
	uint32_t r2tl;
	uint32_t reserved20;
};
_Static_assert(sizeof(struct tcp_pdu_r2t) == 24, "size");

/* A header that has arrived or is to be sent; room for each kind, with the digest behind it. */
union tcp_header {
	struct tcp_pdu_common common;
	struct tcp_pdu_icreq icreq;
	struct tcp_pdu_icresp icresp;
	struct tcp_pdu_term term;
	struct tcp_pdu_capsule_cmd cmd;
	struct tcp_pdu_capsule_resp resp;
	struct tcp_pdu_data data;
	struct tcp_pdu_r2t r2t;
	uint8_t bytes[TCP_HEADER_MAX];
} __attribute__((aligned(8)));
_Static_assert(sizeof(union tcp_header) == TCP_HEADER_MAX, "size");

/* Fatal error status of a TermReq (3.6.2.3, 3.6.2.4). Its FEI: the byte offset of the field for INVALID_FIELD and
 * UNSUPPORTED, the digest that arrived for HEADER_DIGEST, else 0. */
enum tcp_fes {
	TCP_FES_NONE = 0,
	TCP_FES_INVALID_FIELD = 1,
	TCP_FES_SEQUENCE = 2,
	TCP_FES_HEADER_DIGEST = 3,
	TCP_FES_OUT_OF_RANGE = 4,
	TCP_FES_LIMIT = 5, /* C2HTermReq: Data Transfer Limit Exceeded; H2CTermReq: R2T Limit Exceeded */
	TCP_FES_UNSUPPORTED = 6
};

/* What is wrong with a PDU: for the TermReq that answers it, and for the log. */
struct tcp_fault {
	uint16_t fes;       /* enum tcp_fes */
	uint32_t fei;       /* as that wants it */
	uint8_t type;       /* of the PDU */
	uint8_t offset;     /* in bytes, of the field */
	const char *field;  /* its name, a constant: "HLEN" */
	uint64_t value;     /* what it is */
	const char *reason; /* a constant: "not that of this PDU type" */
};

#define TCP_FAULT_TEXT_MAX 160

enum tcp_side { TCP_HOST, TCP_CONTROLLER };

/* What the two sides of a connection have agreed on by ICReq and ICResp. */
struct tcp_agreed {
	bool done;               /* both PDUs have passed; until then only they, and TermReqs, may come */
	bool header_digest;      /* PDUs but ICReq, ICResp and TermReq have one */
	bool data_digest;        /* likewise, of PDUs with data */
	uint8_t align_to_ctrlr;  /* bytes, 4 to 128, of CPDA: where data begins in CapsuleCmd and H2CData */
	uint8_t align_to_host;   /* likewise, of HPDA, in C2HData */
	uint32_t max_r2t;        /* R2Ts that may be outstanding per command: MAXR2T, but 1's based */
	uint32_t max_h2c_data;   /* bytes of data of one H2CData: MAXH2CDATA */
	uint32_t max_in_capsule; /* the controller's: bytes of data that it takes in one CapsuleCmd */
};

/* How the bytes of a PDU are divided. */
struct tcp_shape {
	uint16_t header;    /* bytes to read before the PDU can be handled: the header and its digest; a TermReq: all */
	uint16_t padding;   /* bytes between these and the data */
	uint32_t data;      /* bytes */
	bool header_digest; /* the last TCP_DIGEST_BYTES of `header` are a digest */
	bool data_digest;   /* TCP_DIGEST_BYTES follow the data */
};

/* The name of a type as the specification has it: "C2HData", or "PDU of unknown type". */
const char *tcp_pdu_type_name(uint8_t type);
/* The name of a fatal error status, or "unknown". The side is the one that sent the TermReq. */
const char *tcp_fes_name(uint16_t fes, enum tcp_side sender);
/* Describes a fault: "C2HData: DATAO (offset 12) is 4098: not a multiple of 4". Returns text. */
const char *tcp_fault_text(const struct tcp_fault *fault, char text[TCP_FAULT_TEXT_MAX]);

/* Checks. Each returns true, or false with the fault filled in. */

/* A common header that `side` has received: its type, which must be one that this side receives now, its flags and
 * sizes. */
bool tcp_common_check(const struct tcp_pdu_common *common, enum tcp_side side, const struct tcp_agreed *agreed,
		      struct tcp_shape *shape, struct tcp_fault *fault);
/* The header digest of a header that has arrived whole. */
bool tcp_header_digest_check(const union tcp_header *header, const struct tcp_shape *shape, struct tcp_fault *fault);

/* What a host asks for in ICReq. */
struct tcp_icreq {
	bool header_digest, data_digest;
	uint8_t hpda;     /* as on the wire: in dwords, 0's based */
	uint32_t max_r2t; /* 1's based; MAXR2T FFFFFFFFh: UINT32_MAX */
};
/* Decodes ICReq. */
bool tcp_icreq_decode(const struct tcp_pdu_icreq *pdu, struct tcp_icreq *req, struct tcp_fault *fault);

/* What a controller answers in ICResp. */
struct tcp_icresp {
	bool header_digest, data_digest;
	uint8_t cpda; /* as on the wire */
	uint32_t max_h2c_data;
};
/* Decodes ICResp, the answer to req. A digest that was not asked for is a fault. */
bool tcp_icresp_decode(const struct tcp_pdu_icresp *pdu, const struct tcp_icreq *req, struct tcp_icresp *resp,
		       struct tcp_fault *fault);
/* What both have agreed on: `done`, digests that both want, alignments, limits. max_in_capsule is 0: the caller's. */
struct tcp_agreed tcp_agree(const struct tcp_icreq *req, const struct tcp_icresp *resp);

/* A piece of a command's data: H2CData, C2HData (no tag), R2T (neither flag). */
struct tcp_piece {
	uint16_t cccid;
	uint16_t ttag;
	uint32_t offset; /* bytes, of the command's data */
	uint32_t length; /* bytes, never 0 */
	bool last;
	bool success; /* C2HData; only with `last` */
};
/* Decode a header whose common part was checked; `shape` is the result of that. Whether the command id and the tag are
 * known, and the range is within the command's data, is the caller's to check: tcp_piece_check(). */
bool tcp_h2c_data_decode(const struct tcp_pdu_data *pdu, const struct tcp_shape *shape, struct tcp_piece *piece,
			 struct tcp_fault *fault);
/* Likewise. */
bool tcp_c2h_data_decode(const struct tcp_pdu_data *pdu, const struct tcp_shape *shape, struct tcp_piece *piece,
			 struct tcp_fault *fault);
/* Likewise. */
bool tcp_r2t_decode(const struct tcp_pdu_r2t *pdu, struct tcp_piece *piece, struct tcp_fault *fault);
/* A piece must begin at `begin`, where the one before has ended, and end at `end` or before it (bytes of the command's
 * data). A wrong begin or end is a fault of the field of the PDU of this type: TCP_FES_OUT_OF_RANGE. */
bool tcp_piece_check(const struct tcp_piece *piece, uint8_t type, uint32_t begin, uint32_t end,
		     struct tcp_fault *fault);
/* Fills in the fault of a field of a header that has arrived, for rules that only the caller knows: that of CCCID
 * (offset 8), TTAG (offset 10) and so on. Returns false. */
bool tcp_fault_set(struct tcp_fault *fault, enum tcp_fes fes, uint8_t type, uint8_t offset, const char *field,
		   uint64_t value, const char *reason);

/* What the other side says in a TermReq. */
struct tcp_term {
	uint16_t fes;
	uint32_t fei;
	const uint8_t *pdu; /* the header in error, as far as it was sent; within the TermReq */
	uint32_t pdu_bytes; /* 0: none */
};
/* Decodes a TermReq whose common part was checked. Any values are taken: it ends the connection anyway. */
void tcp_term_decode(const union tcp_header *header, const struct tcp_shape *shape, struct tcp_term *term);
/* Describes it: "Invalid PDU Header Field, field at offset 12 of C2HData". Returns text. */
const char *tcp_term_text(const struct tcp_term *term, enum tcp_side sender, char text[TCP_FAULT_TEXT_MAX]);

/* Encoders. Each writes the head of a PDU (header, digest, padding) and returns its length: at most TCP_HEAD_MAX, and
 * TCP_TERM_MAX for tcp_term_encode(). The data, and its digest if tcp_data_digest_bytes() says so, follow. */

/* ICReq. */
uint32_t tcp_icreq_encode(void *head, const struct tcp_icreq *req);
/* ICResp. */
uint32_t tcp_icresp_encode(void *head, const struct tcp_icresp *resp);
/* CapsuleCmd with data_bytes of data behind it. sqe: 64 bytes. */
uint32_t tcp_capsule_cmd_encode(void *head, const struct tcp_agreed *agreed, const void *sqe, uint32_t data_bytes);
/* CapsuleResp. cqe: 16 bytes. */
uint32_t tcp_capsule_resp_encode(void *head, const struct tcp_agreed *agreed, const void *cqe);
/* H2CData. */
uint32_t tcp_h2c_data_encode(void *head, const struct tcp_agreed *agreed, const struct tcp_piece *piece);
/* C2HData. */
uint32_t tcp_c2h_data_encode(void *head, const struct tcp_agreed *agreed, const struct tcp_piece *piece);
/* R2T. */
uint32_t tcp_r2t_encode(void *head, const struct tcp_agreed *agreed, const struct tcp_piece *piece);
/* The TermReq by which `side` ends a connection over a fault. pdu: the header in error, pdu_bytes of it have arrived;
 * the first 128 are sent. */
uint32_t tcp_term_encode(void *head, enum tcp_side side, const struct tcp_fault *fault, const void *pdu,
			 uint32_t pdu_bytes);
/* Bytes of digest behind data_bytes of data: 0 or TCP_DIGEST_BYTES. */
static inline uint32_t tcp_data_digest_bytes(const struct tcp_agreed *agreed, uint32_t data_bytes)
{
	return agreed->data_digest && data_bytes > 0 ? TCP_DIGEST_BYTES : 0;
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Definitions that <nvme/types.h> lacks: queue entries, SGL descriptors, fabrics commands and responses, RDMA
 * connection data. Everything here is wire format: little-endian, packed by layout, its size asserted.
 *
 * "Base" is the NVM Express Base Specification 2.0c, "NVM" the NVM Command Set Specification 1.0c, "RDMA" the
 * NVMe RDMA Transport Specification 1.0b. */
#ifndef NVME_SPEC_H
#define NVME_SPEC_H

#include <assert.h>
#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <nvme/types.h>

/* A status as it stands in a completion's status field, without the phase bit: SCT in bits 10:8, SC in bits
 * 7:0, "do not retry" in bit 14 (Base 3.3.3.2.1). NVME_ST(GENERIC, INVALID_FIELD) is one without DNR,
 * NVME_ST_DNR one with it. */
#define NVME_ST(sct_, sc_)     ((uint16_t)(NVME_SCT_##sct_ << NVME_SCT_SHIFT | NVME_SC_##sc_))
#define NVME_ST_DNR(sct_, sc_) ((uint16_t)(NVME_ST(sct_, sc_) | NVME_SC_DNR))
#define NVME_ST_SUCCESS        ((uint16_t)0)

/* Of Copy, since NVM 1.1 (3.2.2). */
#define NVME_SC_OVERLAPPING_IO_RANGE 0x87
_Static_assert(sizeof(struct nvme_copy_range) == 32, "NVM 3.2.2, source ranges of format 0");
_Static_assert(sizeof(struct nvme_copy_range_f1) == 40, "NVM 3.2.2, source ranges of format 1");

/* Protection information (NVM 5.2): bits of dword 12 of a command. */
#define NVME_PI_ACT           (UINT32_C(1) << 29) /* the controller generates it, or checks and strips it */
#define NVME_PI_CHECK_GUARD   (UINT32_C(1) << 28)
#define NVME_PI_CHECK_APP     (UINT32_C(1) << 27)
#define NVME_PI_CHECK_REF     (UINT32_C(1) << 26)
#define NVME_PI_CHECK_STORAGE (UINT32_C(1) << 24) /* STC */

/* Its formats (Identify Namespace for the NVM command set, PIF). */
#define NVME_PI_GUARD_16 0
#define NVME_PI_GUARD_32 1
#define NVME_PI_GUARD_64 2
/* Bytes of guard, application tag, storage tag and reference tag. */
#define NVME_PI_BYTES(format) ((format) == NVME_PI_GUARD_16 ? 8u : 16u)
/* Bits of storage and reference tag together. */
#define NVME_PI_SPACE_BITS(format) ((format) == NVME_PI_GUARD_16 ? 32u : (format) == NVME_PI_GUARD_32 ? 80u : 48u)
#define NVME_NVM_ELBAF_PIF_SHIFT   7
#define NVME_NVM_PIC_16BPISTS                                                                                          \
	1 /* storage tags are possible with guards of 16 bits; set wherever longer guards are, too */

/* The n lowest of 64 bits; all, if n is larger. */
static inline uint64_t nvme_low_bits(unsigned n)
{
	return n >= 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
}

/* Whether a block's metadata is protection information of a known format and nothing else: with PRACT, the controller
 * generates and strips all of it (NVM 5.2.2.1). */
static inline bool nvme_md_is_pi(uint32_t md_size, uint8_t pi_type, uint8_t pi_format)
{
	return pi_type != 0 && pi_format <= NVME_PI_GUARD_64 && md_size == NVME_PI_BYTES(pi_format);
}

/* Host Behavior Support, byte 2: the host knows namespaces with guards of 32 and 64 bits (LBAFEE). */
#define NVME_HOST_BEHAVIOR_LBAFEE 2

/* SGL descriptors, Base 4.1.2. The type is the high nibble of the last byte, the subtype the low one. */
enum nvme_sgl_type {
	NVME_SGL_TYPE_DATA_BLOCK = 0x0,
	NVME_SGL_TYPE_BIT_BUCKET = 0x1,
	NVME_SGL_TYPE_SEGMENT = 0x2,
	NVME_SGL_TYPE_LAST_SEGMENT = 0x3,
	NVME_SGL_TYPE_KEYED_DATA_BLOCK = 0x4,
	NVME_SGL_TYPE_TRANSPORT_DATA_BLOCK = 0x5,
	NVME_SGL_TYPE_VENDOR = 0xf,
};

enum nvme_sgl_subtype {
	NVME_SGL_SUBTYPE_ADDRESS = 0x0,
	NVME_SGL_SUBTYPE_OFFSET = 0x1,         /* address is an offset into the capsule's data */
	NVME_SGL_SUBTYPE_TRANSPORT = 0xa,      /* transport data block (TCP) */
	NVME_SGL_SUBTYPE_INVALIDATE_KEY = 0xf, /* keyed: the target is to invalidate the key remotely, RDMA 3.4 */
};

/* Data block, segment, last segment and transport data block, Base figures 98 to 104. */
struct nvme_sgl_plain {
	__le64 address;
	__le32 length;
	uint8_t rsvd12[3];
	uint8_t type;
};

/* Keyed data block, Base figure 103. */
struct nvme_sgl_keyed {
	__le64 address;
	uint8_t length[3];
	uint8_t key[4];
	uint8_t type;
};

union nvme_sgl_desc {
	struct nvme_sgl_plain plain;
	struct nvme_sgl_keyed keyed;
	uint8_t bytes[16];
};
_Static_assert(sizeof(union nvme_sgl_desc) == 16, "Base 4.1.2");

static inline enum nvme_sgl_type nvme_sgl_type(const union nvme_sgl_desc *d)
{
	return (enum nvme_sgl_type)(d->bytes[15] >> 4);
}

static inline enum nvme_sgl_subtype nvme_sgl_subtype(const union nvme_sgl_desc *d)
{
	return (enum nvme_sgl_subtype)(d->bytes[15] & 0xf);
}

static inline uint32_t nvme_sgl_keyed_length(const union nvme_sgl_desc *d)
{
	return d->keyed.length[0] | (uint32_t)d->keyed.length[1] << 8 | (uint32_t)d->keyed.length[2] << 16;
}

static inline uint32_t nvme_sgl_key(const union nvme_sgl_desc *d)
{
	return d->keyed.key[0] | (uint32_t)d->keyed.key[1] << 8 | (uint32_t)d->keyed.key[2] << 16 |
	       (uint32_t)d->keyed.key[3] << 24;
}

/* The longest that one keyed descriptor can be. */
#define NVME_SGL_KEYED_LENGTH_MAX ((UINT32_C(1) << 24) - 1)

static inline union nvme_sgl_desc nvme_sgl_make_keyed(uint64_t address, uint32_t length, uint32_t key,
						      enum nvme_sgl_subtype subtype)
{
	return (union nvme_sgl_desc){
		.keyed = {
			.address = htole64(address),
			.length = {(uint8_t)length, (uint8_t)(length >> 8), (uint8_t)(length >> 16)},
			.key = {(uint8_t)key, (uint8_t)(key >> 8), (uint8_t)(key >> 16), (uint8_t)(key >> 24)},
			.type = (uint8_t)(NVME_SGL_TYPE_KEYED_DATA_BLOCK << 4 | subtype),
		}};
}

static inline union nvme_sgl_desc nvme_sgl_make_plain(enum nvme_sgl_type type, enum nvme_sgl_subtype subtype,
						      uint64_t address, uint32_t length)
{
	return (union nvme_sgl_desc){.plain = {
					     .address = htole64(address),
					     .length = htole32(length),
					     .type = (uint8_t)(type << 4 | subtype),
				     }};
}

/* Command dword 0, bits 9:8 and 15:14 (Base 3.3.3.1); here as the command's flags byte has them. */
enum nvme_fuse {
	NVME_FUSE_NONE = 0,
	NVME_FUSE_FIRST = 1,
	NVME_FUSE_SECOND = 2,
	NVME_FUSE_RESERVED = 3,
};
#define NVME_CMD_FLAGS_FUSE_MASK UINT8_C(0x03)
#define NVME_CMD_FLAGS_RSVD_MASK UINT8_C(0x3c)
#define NVME_CMD_FLAGS_PSDT_MASK UINT8_C(0xc0)
#define NVME_CMD_FLAGS_PSDT_PRP  UINT8_C(0x00)
#define NVME_CMD_FLAGS_PSDT_SGL  UINT8_C(0x40) /* data by SGL, metadata contiguous; what fabrics uses */

/* Submission queue entry, Base 3.3.3.1. */
struct nvme_sqe {
	uint8_t opcode;
	uint8_t flags; /* FUSE and PSDT */
	__le16 cid;
	__le32 nsid;
	__le32 cdw2;
	__le32 cdw3;
	__le64 mptr;
	union {
		struct {
			__le64 prp1;
			__le64 prp2;
		};
		union nvme_sgl_desc sgl1;
	};
	__le32 cdw10;
	__le32 cdw11;
	__le32 cdw12;
	__le32 cdw13;
	__le32 cdw14;
	__le32 cdw15;
};
_Static_assert(sizeof(struct nvme_sqe) == 64, "Base 3.3.3.1");

/* The storage and reference space that a command names (NVM 5.2.1.4): its last 64 bits, as far as the format has them,
 * and in *first the 16 in front of them; those of a space of 80 bits. */
static inline uint64_t nvme_pi_space(const struct nvme_sqe *sqe, unsigned format, uint16_t *first)
{
	uint64_t last = le32toh(sqe->cdw14);

	*first = format == NVME_PI_GUARD_32 ? (uint16_t)le32toh(sqe->cdw2) : 0;
	if (format == NVME_PI_GUARD_16) {
		return last;
	}
	return last | (uint64_t)(format == NVME_PI_GUARD_32 ? le32toh(sqe->cdw3) : le32toh(sqe->cdw3) & 0xffff) << 32;
}

/* Writes them into a command. */
static inline void nvme_pi_space_set(struct nvme_sqe *sqe, unsigned format, uint16_t first, uint64_t last)
{
	sqe->cdw14 = htole32((uint32_t)last);
	if (format != NVME_PI_GUARD_16) {
		sqe->cdw3 = htole32((uint32_t)(last >> 32) & (format == NVME_PI_GUARD_32 ? UINT32_MAX : 0xffff));
	}
	if (format == NVME_PI_GUARD_32) {
		sqe->cdw2 = htole32(first);
	}
}
_Static_assert(offsetof(struct nvme_sqe, sgl1) == 24, "Base 3.3.3.1");
_Static_assert(offsetof(struct nvme_sqe, cdw10) == 40, "Base 3.3.3.1");

/* Completion queue entry, Base 3.3.3.2. status: phase in bit 0, the status above it. */
struct nvme_cqe {
	union {
		struct {
			__le32 dw0;
			__le32 dw1;
		};
		__le64 result; /* Property Get */
	};
	__le16 sqhd;
	__le16 sqid;
	__le16 cid;
	__le16 status;
};
_Static_assert(sizeof(struct nvme_cqe) == 16, "Base 3.3.3.2");

static inline uint16_t nvme_cqe_status(const struct nvme_cqe *cqe)
{
	return le16toh(cqe->status) >> 1;
}

/* SQ head pointer of a completion on a queue without flow control, Base 6.3 (CATTR bit 2). */
#define NVME_SQHD_NO_FLOW_CONTROL UINT16_C(0xffff)

/* Fabrics commands share opcode 7Fh and tell themselves apart by FCTYPE (enum nvme_fctype), Base 6. */
struct nvmf_fabrics_sqe {
	uint8_t opcode;
	uint8_t flags;
	__le16 cid;
	uint8_t fctype;
	uint8_t rsvd5[35];
	uint8_t specific[24];
};
_Static_assert(sizeof(struct nvmf_fabrics_sqe) == 64, "Base 6");

/* Base 6.3. */
struct nvmf_connect_sqe {
	uint8_t opcode;
	uint8_t flags;
	__le16 cid;
	uint8_t fctype;
	uint8_t rsvd5[19];
	union nvme_sgl_desc sgl1;
	__le16 recfmt;
	__le16 qid;
	__le16 sqsize; /* 0's based */
	uint8_t cattr;
	uint8_t rsvd47;
	__le32 kato; /* milliseconds */
	uint8_t rsvd52[12];
};
_Static_assert(sizeof(struct nvmf_connect_sqe) == 64, "Base 6.3");
_Static_assert(offsetof(struct nvmf_connect_sqe, recfmt) == 40, "Base 6.3");
_Static_assert(offsetof(struct nvmf_connect_sqe, kato) == 48, "Base 6.3");

enum nvmf_connect_cattr {
	NVMF_CATTR_PRIORITY_MASK = 0x3,
	NVMF_CATTR_DISABLE_SQ_FLOW = 1 << 2,
	NVMF_CATTR_QUEUE_DELETION = 1 << 3,
};

/* Connect data (struct nvmf_connect_data of libnvme), Base 6.3. */
_Static_assert(sizeof(struct nvmf_connect_data) == 1024, "Base 6.3");
_Static_assert(offsetof(struct nvmf_connect_data, subsysnqn) == 256, "Base 6.3");
_Static_assert(offsetof(struct nvmf_connect_data, hostnqn) == 512, "Base 6.3");
enum nvmf_connect_cntlid {
	NVMF_CNTLID_STATIC_ANY = 0xfffe,
	NVMF_CNTLID_DYNAMIC = 0xffff,
};
/* The highest controller id there is; F0h and up in the low byte of FFxxh are reserved (Base 5.17.2.1,
 * CNTLID). */
#define NVME_CNTLID_MAX UINT16_C(0xffef)

/* Dword 0 of Connect's response, Base 6.3. */
struct nvmf_connect_rsp_ok {
	__le16 cntlid;
	__le16 authreq;
};
struct nvmf_connect_rsp_invalid {
	__le16 ipo;    /* offset of the invalid parameter ... */
	uint8_t iattr; /* ... in the command (0) or in the data (1) */
	uint8_t rsvd3;
};
_Static_assert(sizeof(struct nvmf_connect_rsp_ok) == 4 && sizeof(struct nvmf_connect_rsp_invalid) == 4, "Base 6.3");

/* Base 6.6. */
struct nvmf_property_set_sqe {
	uint8_t opcode;
	uint8_t flags;
	__le16 cid;
	uint8_t fctype;
	uint8_t rsvd5[35];
	uint8_t attrib; /* bits 2:0 size: 0 four bytes, 1 eight */
	uint8_t rsvd41[3];
	__le32 ofst;
	__le64 value;
	uint8_t rsvd56[8];
};
_Static_assert(sizeof(struct nvmf_property_set_sqe) == 64, "Base 6.6");
_Static_assert(offsetof(struct nvmf_property_set_sqe, value) == 48, "Base 6.6");

/* Base 6.5. */
struct nvmf_property_get_sqe {
	uint8_t opcode;
	uint8_t flags;
	__le16 cid;
	uint8_t fctype;
	uint8_t rsvd5[35];
	uint8_t attrib;
	uint8_t rsvd41[3];
	__le32 ofst;
	uint8_t rsvd48[16];
};
_Static_assert(sizeof(struct nvmf_property_get_sqe) == 64, "Base 6.5");

enum {
	NVMF_PROPERTY_SIZE_MASK = 0x7,
	NVMF_PROPERTY_SIZE_4 = 0,
	NVMF_PROPERTY_SIZE_8 = 1,
};

/* Authentication Send and Receive, Base 6.1 and 6.2. */
struct nvmf_auth_sqe {
	uint8_t opcode;
	uint8_t flags;
	__le16 cid;
	uint8_t fctype;
	uint8_t rsvd5[19];
	union nvme_sgl_desc sgl1;
	uint8_t rsvd40;
	uint8_t spsp0, spsp1;
	uint8_t secp;
	__le32 length; /* bytes: transfer length, allocation length */
	uint8_t rsvd48[16];
};
_Static_assert(sizeof(struct nvmf_auth_sqe) == 64, "Base 6.1");
_Static_assert(offsetof(struct nvmf_auth_sqe, length) == 44, "Base 6.1");

enum {
	NVMF_AUTH_SECP = 0xe9, /* the protocols of NVM Express */
	NVMF_AUTH_SPSP = 0x01, /* both bytes */
};

/* The authentication that the controller demands first: the upper half of dword 0 of Connect's response, Base 6.3. */
enum nvmf_authreq {
	NVMF_AUTHREQ_ATR = 1 << 1,  /* an authentication transaction */
	NVMF_AUTHREQ_ASCR = 1 << 2, /* the same, and secure channel concatenation */
};

/* Base 6.4. */
struct nvmf_disconnect_sqe {
	uint8_t opcode;
	uint8_t flags;
	__le16 cid;
	uint8_t fctype;
	uint8_t rsvd5[35];
	__le16 recfmt;
	uint8_t rsvd42[22];
};
_Static_assert(sizeof(struct nvmf_disconnect_sqe) == 64, "Base 6.4");

/* RDMA_CM private data, RDMA 3.2 and 3.3. */
enum { NVMF_RDMA_CM_RECFMT = 0 };

struct nvmf_rdma_cm_req {
	__le16 recfmt;
	__le16 qid;
	__le16 hrqsize; /* the host's receive queue: responses it can hold, 1's based */
	__le16 hsqsize; /* the host's send queue, 0's based: capsules it may send */
	__le16 cntlid;  /* I/O queues, since 1.1; FFFFh on admin queues */
	uint8_t rsvd10[22];
};
_Static_assert(sizeof(struct nvmf_rdma_cm_req) == 32, "RDMA 3.2");

struct nvmf_rdma_cm_accept {
	__le16 recfmt;
	__le16 crqsize; /* the controller's receive queue, 1's based */
	uint8_t rsvd4[28];
};
_Static_assert(sizeof(struct nvmf_rdma_cm_accept) == 32, "RDMA 3.2");

struct nvmf_rdma_cm_reject {
	__le16 recfmt;
	__le16 sts;
};
_Static_assert(sizeof(struct nvmf_rdma_cm_reject) == 4, "RDMA 3.2");

enum nvmf_rdma_cm_status {
	NVMF_RDMA_CM_INVALID_LEN = 0x01,
	NVMF_RDMA_CM_INVALID_RECFMT = 0x02,
	NVMF_RDMA_CM_INVALID_QID = 0x03,
	NVMF_RDMA_CM_INVALID_HSQSIZE = 0x04,
	NVMF_RDMA_CM_INVALID_HRQSIZE = 0x05,
	NVMF_RDMA_CM_NO_RSC = 0x06,
	NVMF_RDMA_CM_INVALID_IRD = 0x07,
	NVMF_RDMA_CM_INVALID_ORD = 0x08,
	NVMF_RDMA_CM_INVALID_CNTLID = 0x09,
};

/* CTRATT: MDTS and other limits of sizes leave metadata out (Base 2.1, Identify Controller). */
#define NVME_ID_CTRL_CTRATT_MEM (UINT32_C(1) << 16)

/* Fields of Identify Controller that struct nvme_id_ctrl of <nvme/types.h> does not name yet: bytes from its beginning.
 * TP8028, TP4129; Base 2.3, Identify Controller. */
enum nvme_id_ctrl_byte {
	NVME_ID_CTRL_CIU = 135,   /* Controller Instance Uniquifier, 1 byte */
	NVME_ID_CTRL_CIRN = 136,  /* Controller Instance Random Number, 8 bytes */
	NVME_ID_CTRL_CQT = 386,   /* Command Quiesce Time, 2 bytes, milliseconds; 0: not reported */
	NVME_ID_CTRL_CCRL = 1807, /* Cross-Controller Reset Limit, 1 byte; 0: the command is not supported */
};

/* ---- Cross-Controller Reset (TP8028; Base 2.3, 5.4.3) ---- */

/* A host asks one controller to reset another one of the subsystem: the impacted controller, whose connections the host
 * has lost. Dword 10: ICID in bits 15:0, CIU in bits 23:16. Dwords 12 and 13: CIRN. */
#define NVME_ADMIN_CROSS_CTRL_RESET UINT8_C(0x38)
/* Dword 0 of its completion: the impacted controller is reset. Otherwise the log page tells when it is. */
#define NVME_CROSS_CTRL_RESET_IMMEDIATE UINT32_C(1)
/* Its status codes, of NVME_SCT_CMD_SPECIFIC. */
#define NVME_SC_CROSS_CTRL_RESET_IN_PROGRESS UINT8_C(0x3f) /* of the same impacted controller */
#define NVME_SC_CROSS_CTRL_RESET_LOG_FULL    UINT8_C(0x40) /* no room for an entry: read the page with RMC */
#define NVME_SC_CROSS_CTRL_RESET_LIMIT       UINT8_C(0x41) /* more than CCRL at a time */

/* Log page Cross-Controller Reset. */
#define NVME_LOG_LID_CROSS_CTRL_RESET UINT8_C(0x1e)
/* Log Specific Parameter: reading the page removes the entries that it tells of as completed. */
#define NVME_CROSS_CTRL_RESET_LSP_RMC UINT8_C(1)
#define NVME_CROSS_CTRL_RESET_ENTRIES 511 /* most entries of the page */

enum nvme_cross_ctrl_reset_ccrs {
	NVME_CROSS_CTRL_RESET_CCRS_IN_PROGRESS = 0,
	NVME_CROSS_CTRL_RESET_CCRS_SUCCESS = 1,
	NVME_CROSS_CTRL_RESET_CCRS_FAILED = 2,
};

enum nvme_cross_ctrl_reset_ccrf {
	NVME_CROSS_CTRL_RESET_CCRF_V = 1 << 0,    /* the request was validated */
	NVME_CROSS_CTRL_RESET_CCRF_CLRI = 1 << 1, /* a Controller Level Reset was initiated */
};

/* No other controller is suggested for a new attempt. */
#define NVME_CROSS_CTRL_RESET_ACID_NONE UINT16_C(0xffff)

struct nvme_cross_ctrl_reset_entry {
	__le16 icid;
	uint8_t ciu;
	uint8_t rsvd3;
	__le16 acid;
	uint8_t ccrs; /* enum nvme_cross_ctrl_reset_ccrs */
	uint8_t ccrf; /* enum nvme_cross_ctrl_reset_ccrf */
};
_Static_assert(sizeof(struct nvme_cross_ctrl_reset_entry) == 8, "TP8028, log page 1Eh");

struct nvme_cross_ctrl_reset_log {
	__le16 ne;
	uint8_t rsvd2[6];
	struct nvme_cross_ctrl_reset_entry entries[NVME_CROSS_CTRL_RESET_ENTRIES];
};
_Static_assert(sizeof(struct nvme_cross_ctrl_reset_log) == 4096, "TP8028, log page 1Eh");

/* Asynchronous event information of type notice: a reset has completed, with success or not. Its bit in OAES and in
 * the feature Asynchronous Event Configuration. */
#define NVME_AER_NOTICE_CROSS_CTRL_RESET    UINT8_C(0xf4)
#define NVME_CTRL_OAES_CROSS_CTRL_RESET     (UINT32_C(1) << 20)
#define NVME_AENCFG_NOTICE_CROSS_CTRL_RESET NVME_CTRL_OAES_CROSS_CTRL_RESET

/* Data structures of libnvme whose size the code relies on. */
_Static_assert(sizeof(struct nvme_id_ctrl) == 4096, "Base 5.17.2.1");
_Static_assert(sizeof(struct nvme_id_ns) == 4096, "NVM 4.1.5.1");
_Static_assert(sizeof(struct nvme_id_ctrl_nvm) == 4096, "NVM 4.1.5.4");
_Static_assert(sizeof(struct nvme_id_independent_id_ns) == 4096, "Base 5.17.2.8");
_Static_assert(sizeof(struct nvme_error_log_page) == 64, "Base 5.16.1.2");
_Static_assert(sizeof(struct nvme_smart_log) == 512, "Base 5.16.1.3");
_Static_assert(sizeof(struct nvme_firmware_slot) == 512, "Base 5.16.1.4");
_Static_assert(sizeof(struct nvme_cmd_effects_log) == 4096, "Base 5.16.1.6");
_Static_assert(sizeof(struct nvmf_discovery_log) == 1024, "Base 5.16.1.23");
_Static_assert(sizeof(struct nvmf_disc_log_entry) == 1024, "Base 5.16.1.23");
_Static_assert(sizeof(struct nvme_dsm_range) == 16, "NVM 3.2.3");

#endif

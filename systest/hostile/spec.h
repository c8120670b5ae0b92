/* SPDX-License-Identifier: BSD-3-Clause */
/* What the specifications say, for who tests a target by them: numbers and places in wire structures, written down here
 * a second time on purpose. A mistake in the target's own headers must not hide itself.
 *
 * "Base" is the NVM Express Base Specification 2.0c, "NVM" the NVM Command Set Specification 1.0c, "RDMA" the NVMe RDMA
 * Transport Specification 1.0b. */
#ifndef HOSTILE_SPEC_H
#define HOSTILE_SPEC_H

#include <stdint.h>
#include <string.h>

/* Status: type in bits 10:8, code in bits 7:0 (Base figures 94 to 98). */
enum {
	ST_OK = 0x000,
	ST_OPCODE = 0x001, /* Invalid Command Opcode */
	ST_FIELD = 0x002,  /* Invalid Field in Command */
	ST_CID_CONFLICT = 0x003,
	ST_TRANSFER = 0x004, /* Data Transfer Error */
	ST_ABORTED = 0x007,  /* Command Abort Requested */
	ST_SQ_DELETED = 0x008,
	ST_PATH_ERROR = 0x360, /* Controller Pathing Error: its queue is being ended */
	ST_FUSED_FAILED = 0x009,
	ST_FUSED_MISSING = 0x00a,
	ST_NAMESPACE = 0x00b, /* Invalid Namespace or Format */
	ST_SEQUENCE = 0x00c,
	ST_SGL_SEGMENT = 0x00d, /* Invalid SGL Segment Descriptor */
	ST_SGL_COUNT = 0x00e,   /* Invalid Number of SGL Descriptors */
	ST_SGL_LENGTH = 0x00f,  /* Data SGL Length Invalid */
	ST_SGL_TYPE = 0x011,
	ST_SGL_OFFSET = 0x016,
	ST_HOSTID_FORMAT = 0x018,
	ST_KATO_INVALID = 0x01a,
	ST_LBA_RANGE = 0x080,
	ST_CAPACITY = 0x081,
	ST_RESV_CONFLICT = 0x083,
	ST_ABORT_LIMIT = 0x103,
	ST_ASYNC_LIMIT = 0x105,
	ST_LOG_PAGE = 0x109,
	ST_NOT_SAVEABLE = 0x10d,
	ST_NOT_CHANGEABLE = 0x10e,
	ST_NOT_PER_NS = 0x10f,
	ST_CONNECT_FORMAT = 0x180,
	ST_CONNECT_BUSY = 0x181,
	ST_CONNECT_PARAM = 0x182,
	ST_INVALID_PI = 0x181, /* of I/O commands */
	ST_COPY_LIMIT = 0x183, /* Command Size Limit Exceeded */
	ST_CONNECT_HOST = 0x184,
	ST_OVERLAP = 0x187,
	ST_AUTH_REQUIRED = 0x191,
	ST_GUARD = 0x282,
	ST_APP = 0x283,
	ST_REF = 0x284,
	ST_COMPARE = 0x285,
	ST_ANA_LOSS = 0x301,
	ST_ANA_INACCESSIBLE = 0x302,
	ST_ANA_TRANSITION = 0x303,
};

/* RDMA_CM reject reasons (RDMA figure 11). */
enum {
	CM_LENGTH = 1,
	CM_RECFMT = 2,
	CM_QID = 3,
	CM_HSQSIZE = 4,
	CM_HRQSIZE = 5,
	CM_RESOURCES = 6,
	CM_IRD = 7,
	CM_ORD = 8,
	CM_CNTLID = 9,
};

/* Places in a submission queue entry (Base 3.3.3.1) and in the fabrics commands (Base 6). */
enum {
	AT_OPCODE = 0,
	AT_FLAGS = 1,
	AT_CID = 2,
	AT_NSID = 4,
	AT_FCTYPE = 4,
	AT_MPTR = 16,
	AT_SGL = 24,
	AT_SGL_LEN = 32,
	AT_SGL_TYPE = 39,
	AT_CDW10 = 40,
	AT_CDW11 = 44,
	AT_CDW12 = 48,
	AT_CDW13 = 52,
	AT_CDW14 = 56,
	AT_CDW15 = 60,
	AT_RECFMT = 40,
	AT_QID = 42,
	AT_SQSIZE = 44,
	AT_CATTR = 46,
	AT_KATO = 48, /* Connect */
	AT_ATTRIB = 40,
	AT_OFST = 44,
	AT_VALUE = 48, /* Property Get and Set */
	AT_SPSP0 = 41,
	AT_SPSP1 = 42,
	AT_SECP = 43,
	AT_AUTH_LEN = 44, /* Authentication Send and Receive */
	SQE_SIZE = 64,
	CQE_SIZE = 16,
	CONNECT_DATA = 1024,
	DATA_HOSTID = 0,
	DATA_CNTLID = 16,
	DATA_SUBNQN = 256,
	DATA_HOSTNQN = 512, /* Connect's data */
	FLAG_SGL = 0x40,
	FUSE_FIRST = 1,
	FUSE_SECOND = 2,
};

enum {
	IO_FLUSH = 0,
	IO_WRITE = 1,
	IO_READ = 2,
	IO_COMPARE = 5,
	IO_WRITE_ZEROES = 8,
	IO_DSM = 9,
	IO_VERIFY = 0x0c,
	IO_RESV_REGISTER = 0x0d,
	IO_RESV_REPORT = 0x0e,
	IO_RESV_ACQUIRE = 0x11,
	IO_RESV_RELEASE = 0x15,
	IO_COPY = 0x19,
	ADM_GET_LOG = 2,
	ADM_IDENTIFY = 6,
	ADM_ABORT = 8,
	ADM_SET_FEATURES = 9,
	ADM_GET_FEATURES = 0x0a,
	ADM_ASYNC = 0x0c,
	ADM_KEEP_ALIVE = 0x18,
	FABRICS = 0x7f,
	FC_PROPERTY_SET = 0,
	FC_CONNECT = 1,
	FC_PROPERTY_GET = 4,
	FC_AUTH_SEND = 5,
	FC_AUTH_RECEIVE = 6,
	AUTHREQ_ATR = 1 << 1, /* in byte 2 of Connect's response */
	REG_CAP = 0,
	REG_VS = 8,
	REG_CC = 0x14,
	REG_CSTS = 0x1c,
	CC_ENABLE = 0x00460001, /* 64-byte and 16-byte entries, enable */
};

/* PRINFO in dword 12 of I/O commands (NVM 3.2). */
enum {
	PI_REF = 1 << 26,
	PI_APP = 1 << 27,
	PI_GUARD = 1 << 28,
	PI_ACT = 1 << 29,
};

/* SGL descriptors (Base 4.1.2): type in the high nibble of the last byte, subtype in the low one. */
enum {
	SGL_DATA = 0x0,
	SGL_BIT_BUCKET = 0x1,
	SGL_SEGMENT = 0x2,
	SGL_LAST = 0x3,
	SGL_KEYED = 0x4,
	SGL_TRANSPORT = 0x5,
	SUB_ADDRESS = 0x0,
	SUB_OFFSET = 0x1,
	SUB_INVALIDATE = 0xf,
};

static inline void put16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)v;
	p[1] = (uint8_t)(v >> 8);
}

static inline void put32(uint8_t *p, uint32_t v)
{
	put16(p, (uint16_t)v);
	put16(p + 2, (uint16_t)(v >> 16));
}

static inline void put64(uint8_t *p, uint64_t v)
{
	put32(p, (uint32_t)v);
	put32(p + 4, (uint32_t)(v >> 32));
}

static inline uint16_t get16(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t get32(const uint8_t *p)
{
	return get16(p) | (uint32_t)get16(p + 2) << 16;
}

static inline uint64_t get64(const uint8_t *p)
{
	return get32(p) | (uint64_t)get32(p + 4) << 32;
}

static inline void put_plain(uint8_t *d, unsigned type, unsigned subtype, uint64_t address, uint32_t length)
{
	put64(d, address);
	put32(d + 8, length);
	memset(d + 12, 0, 3);
	d[15] = (uint8_t)(type << 4 | subtype);
}

static inline void put_keyed(uint8_t *d, uint64_t address, uint32_t length, uint32_t key, unsigned subtype)
{
	put64(d, address);
	d[8] = (uint8_t)length;
	d[9] = (uint8_t)(length >> 8);
	d[10] = (uint8_t)(length >> 16);
	put32(d + 11, key);
	d[15] = (uint8_t)(SGL_KEYED << 4 | subtype);
}

#endif

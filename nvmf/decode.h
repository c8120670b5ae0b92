/* SPDX-License-Identifier: BSD-3-Clause */
/* Decodes what hosts send: bytes in, a checked struct or an NVMe status out. These are pure functions: they read
 * nothing but their arguments, and never outside those, whatever the bytes are. Any thread.
 *
 * Each function that returns uint16_t returns an NVMe status, 0 for success. Otherwise *where is the first bad field,
 * as the error log tells it (Parameter Error Location, Base 5.16.1.2): bits 7:0 are the byte of the command, bits 10:8
 * the bit in that byte. */
#ifndef NVMF_DECODE_H
#define NVMF_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "nvme/spec.h"

#define NVMF_WHERE(byte_, bit_) ((uint16_t)((byte_) | (bit_) << 8))
#define NVMF_WHERE_FLAGS_FUSE   NVMF_WHERE(1, 0)
#define NVMF_WHERE_FLAGS_PSDT   NVMF_WHERE(1, 6)
#define NVMF_WHERE_OPCODE       NVMF_WHERE(0, 0)
#define NVMF_WHERE_NSID         NVMF_WHERE(4, 0)
#define NVMF_WHERE_FCTYPE       NVMF_WHERE(4, 0)
#define NVMF_WHERE_SGL_ADDRESS  NVMF_WHERE(24, 0)
#define NVMF_WHERE_SGL_LENGTH   NVMF_WHERE(32, 0)
#define NVMF_WHERE_SGL_TYPE     NVMF_WHERE(39, 0)
#define NVMF_WHERE_CDW10        NVMF_WHERE(40, 0)
#define NVMF_WHERE_CDW11        NVMF_WHERE(44, 0)
#define NVMF_WHERE_CDW12        NVMF_WHERE(48, 0)
#define NVMF_WHERE_CDW14        NVMF_WHERE(56, 0)
#define NVMF_WHERE_NOWHERE      UINT16_C(0xffff) /* not a field of the command */

/* Stores the place (NVMF_WHERE...) of a bad field and returns Invalid Field in Command. */
static inline uint16_t nvmf_bad_field(uint16_t *where, uint16_t place)
{
	*where = place;
	return NVME_ST_DNR(GENERIC, INVALID_FIELD);
}

/* Checks the first bytes, which all commands on fabrics have: PSDT must be SGL; FUSE must be a defined value, and none
 * on fabrics commands. len: bytes received. */
uint16_t nvmf_decode_header(const void *capsule, size_t len, uint16_t *where);

/* ---- SGLs ---- */

/* The SGLs that a transport supports. */
struct nvmf_sgl_rules {
	bool in_capsule;    /* data block, offset */
	bool keyed;         /* keyed data blocks, alone or in segments in the capsule */
	bool transport;     /* transport data block */
	uint16_t max_descs; /* MSDBD: most data descriptors of a command */
};

enum nvmf_sgl_kind {
	NVMF_SGL_NONE,
	NVMF_SGL_IN_CAPSULE, /* the data came with the capsule, at icd_offset */
	NVMF_SGL_KEYED,      /* the host's memory: walk it with nvmf_sgl_next() */
	NVMF_SGL_TRANSPORT,  /* the transport knows where the data are */
};

/* A command's checked data pointer. It points into the capsule, which must stay in place as long as it is used. */
struct nvmf_sgl {
	enum nvmf_sgl_kind kind;
	uint16_t num_descs; /* data descriptors */
	uint32_t icd_offset;
	uint64_t length; /* bytes that it describes, at least as many as the command needs */
	const union nvme_sgl_desc *sgl1;
	const uint8_t *icd; /* the capsule's data */
};

/* Decodes the data pointer of a command that transfers `need` bytes (not 0). to_target: from the host. icd, icd_len:
 * the data in the capsule after the 64 bytes of the command. */
uint16_t nvmf_decode_sgl(const struct nvme_sqe *sqe, const void *icd, size_t icd_len,
			 const struct nvmf_sgl_rules *rules, bool to_target, uint32_t need, struct nvmf_sgl *sgl,
			 uint16_t *where);

/* Counts the bytes that a data pointer describes, for a command that has no length of its own: a multiple of 4, or 0.
 */
uint16_t nvmf_decode_described(const struct nvme_sqe *sqe, const void *icd, size_t icd_len,
			       const struct nvmf_sgl_rules *rules, bool to_target, uint64_t *length, uint16_t *where);

/* One block of host memory. */
struct nvmf_sgl_block {
	uint64_t address;
	uint32_t length;
	uint32_t key;
	bool invalidate; /* the host wants its key invalidated by the response (Send with Invalidate) */
};

/* The only descriptor of an NVMF_SGL_KEYED data pointer, if the command itself has it. NULL: the command has a list. */
static inline const union nvme_sgl_desc *nvmf_sgl_single(const struct nvmf_sgl *sgl)
{
	return nvme_sgl_type(sgl->sgl1) == NVME_SGL_TYPE_KEYED_DATA_BLOCK ? sgl->sgl1 : NULL;
}

/* A position in the descriptors of an NVMF_SGL_KEYED data pointer:
 *
 *     struct nvmf_sgl_iter it = nvmf_sgl_iter(sgl);
 *     while (nvmf_sgl_next(&it, &block)) */
struct nvmf_sgl_iter {
	const uint8_t *icd;
	const uint8_t *next;
	const uint8_t *end;
};
/* Before the first descriptor. */
struct nvmf_sgl_iter nvmf_sgl_iter(const struct nvmf_sgl *sgl);
/* Fills in the next block. False: there are no more. */
bool nvmf_sgl_next(struct nvmf_sgl_iter *it, struct nvmf_sgl_block *block);

/* ---- Fabrics commands ---- */

#define NVMF_NQN_MAX NVMF_NQN_SIZE
/* Whether a name of a host or a subsystem that came over the wire, in a field of `size` bytes, can be shown:
 * terminated, 1 to 223 bytes of UTF-8 without control characters. */
bool nvmf_nqn_is_printable(const char *nqn, size_t size);
/* Whether a name has the form of an NQN too (Base 4.5): "nqn.yyyy-mm.reverse.domain[:anything]". For names in the
 * configuration. */
bool nvmf_nqn_is_valid(const char *nqn);

struct nvmf_connect {
	uint16_t qid;
	uint16_t cntlid;
	uint32_t sqsize; /* entries, 1's based */
	uint32_t kato_ms;
	bool no_sq_flow_control;
	uint8_t hostid[16];
	char subnqn[NVMF_NQN_MAX + 1];
	char hostnqn[NVMF_NQN_MAX + 1]; /* empty: the host has not given a name */
};

/* Authentication Send or Receive: the number of bytes that are sent, or may be received, 1 to max. */
uint16_t nvmf_decode_auth(const struct nvmf_auth_sqe *sqe, uint32_t max, uint32_t *length, uint16_t *where);

/* A bad parameter of Connect, as dword 0 of its response tells it. */
struct nvmf_connect_fault {
	uint16_t ipo;  /* its offset in bytes */
	uint8_t iattr; /* 0: in the command; 1: in its data */
};

/* Connect: what can be checked without the target. data: the 1024 bytes of data. */
uint16_t nvmf_decode_connect(const struct nvmf_connect_sqe *sqe, const void *data, size_t data_len,
			     struct nvmf_connect *out, struct nvmf_connect_fault *fault);

struct nvmf_property {
	uint32_t offset;
	uint32_t size;  /* 4 or 8 bytes */
	uint64_t value; /* Property Set */
};
/* Property Get. */
uint16_t nvmf_decode_property_get(const struct nvmf_property_get_sqe *sqe, struct nvmf_property *out, uint16_t *where);
/* Property Set. */
uint16_t nvmf_decode_property_set(const struct nvmf_property_set_sqe *sqe, struct nvmf_property *out, uint16_t *where);

/* ---- Admin commands ---- */

struct nvmf_identify {
	uint8_t cns;
	uint16_t cntid;
	uint16_t cns_specific;
	uint8_t csi;
	uint8_t uuid_index;
	uint32_t nsid;
};
/* Identify. CNS values that do not exist are not refused. */
uint16_t nvmf_decode_identify(const struct nvme_sqe *sqe, struct nvmf_identify *out, uint16_t *where);

struct nvmf_get_log {
	uint8_t lid;
	uint8_t lsp;
	bool rae;
	uint16_t lsi;
	uint64_t offset; /* bytes */
	uint64_t length; /* bytes, a multiple of 4, at least 4, up to 16 GiB */
	uint8_t csi;
	uint8_t uuid_index;
	uint32_t nsid;
};
/* Get Log Page. Log page ids that do not exist are not refused. */
uint16_t nvmf_decode_get_log(const struct nvme_sqe *sqe, struct nvmf_get_log *out, uint16_t *where);

struct nvmf_feature {
	uint8_t fid;
	uint8_t select; /* Get: enum nvme_get_features_sel */
	bool save;      /* Set */
	uint8_t uuid_index;
	uint32_t nsid;
	uint32_t cdw11;
};
/* Get Features. Features that do not exist are not refused. */
uint16_t nvmf_decode_get_features(const struct nvme_sqe *sqe, struct nvmf_feature *out, uint16_t *where);
/* Set Features. Features that do not exist are not refused. */
uint16_t nvmf_decode_set_features(const struct nvme_sqe *sqe, struct nvmf_feature *out, uint16_t *where);
/* Bytes of data that Get and Set Features transfer for a feature; 0: none, its value is in the command or the
 * completion.
 */
uint32_t nvmf_feature_data_length(uint8_t fid, uint32_t cdw11);

struct nvmf_abort {
	uint16_t sqid;
	uint16_t cid;
};
/* Abort; every value is good. */
void nvmf_decode_abort(const struct nvme_sqe *sqe, struct nvmf_abort *out);

/* Names one controller of all that a subsystem has ever had (TP8028): ids are used again, the other two tell apart who
 * had the id. */
struct nvmf_ctrlr_name {
	uint16_t cntlid;
	uint8_t ciu;   /* Controller Instance Uniquifier, 1 to 255: another one each time the id is used again */
	uint64_t cirn; /* Controller Instance Random Number, not 0 */
};
/* Cross-Controller Reset: the controller that is to be reset. CIU and CIRN must not be 0, as no controller's are. */
uint16_t nvmf_decode_cross_reset(const struct nvme_sqe *sqe, struct nvmf_ctrlr_name *out, uint16_t *where);

/* ---- I/O commands ---- */

/* What the fields of I/O commands are checked against: a namespace's size and format. */
struct nvmf_geometry {
	uint64_t num_blocks;
	uint32_t max_transfer_bytes; /* MDTS */
	uint8_t block_shift;         /* data of a block: 1 << block_shift bytes */
	uint8_t md_eighths;          /* metadata of a block, units of 8 bytes; 0: none, then the rest is unused */
	uint8_t pi_type : 2;         /* the type of protection information in it, 1 to 3; 0: none */
	uint8_t pi_format : 2;       /* NVME_PI_GUARD_... */
	bool md_hidden : 1;          /* hosts see blocks without it */
	uint8_t storage_bits;        /* of the storage tag in the protection information */
};

struct nvmf_lba_range {
	uint64_t slba;
	uint32_t num_blocks; /* 1's based; 0 only in a Dataset Management range */
};

/* Bytes of data that Read, Write and Compare transfer (NVM 3.2.4), whether the range is good or not. */
static inline uint64_t nvmf_rw_length(const struct nvme_sqe *sqe, uint8_t block_shift)
{
	return (uint64_t)((le32toh(sqe->cdw12) & 0xffff) + 1) << block_shift;
}

/* Read, Write, Compare: the range is in the namespace and not longer than MDTS. */
uint16_t nvmf_decode_rw(const struct nvme_sqe *sqe, const struct nvmf_geometry *geo, struct nvmf_lba_range *out,
			uint16_t *where);
/* Protection information fields of a command: PRINFO, and the tags in dwords 14 and 15. */
struct nvmf_pi {
	bool act; /* PRACT: the controller generates it, or checks and strips it */
	bool check_guard, check_app, check_ref, check_storage;
	uint64_t ref;     /* the last 64 bits of the storage and reference space (nvme_pi_space()) */
	uint16_t storage; /* those in front of them */
	uint16_t app, app_mask;
};
/* Decodes the protection information fields; all zero if the namespace has none. Invalid Protection Information (NVM
 * 5.2.2.1): the reference tag is to be checked, but cannot match. */
uint16_t nvmf_decode_pi(const struct nvme_sqe *sqe, const struct nvmf_geometry *geo, struct nvmf_pi *out,
			uint16_t *where);
/* The same as nvmf_decode_rw() for blocks with metadata. *bytes: what is transferred, with metadata unless the
 * controller generates or strips it; MDTS limits this. */
uint16_t nvmf_decode_rw_md(const struct nvme_sqe *sqe, const struct nvmf_geometry *geo, struct nvmf_lba_range *out,
			   struct nvmf_pi *pi, uint64_t *bytes, uint16_t *where);
/* Write Zeroes: the range is in the namespace, and has at most 4096 << wzsl bytes of data if wzsl is not 0. It has no
 * data, so MDTS does not limit it. */
uint16_t nvmf_decode_write_zeroes(const struct nvme_sqe *sqe, const struct nvmf_geometry *geo, uint8_t wzsl,
				  struct nvmf_lba_range *out, bool *deallocate, uint16_t *where);

/* Verify, Write Uncorrectable: the range is in the namespace. They have no data. */
uint16_t nvmf_decode_blocks(const struct nvme_sqe *sqe, const struct nvmf_geometry *geo, struct nvmf_lba_range *out,
			    uint16_t *where);

/* Limits of one Copy (NVM 4.1.5.1: MSRC, MSSRL, MCL): large enough that hosts gain from it, small enough that it ends
 * before hosts give it up. */
#define NVMF_COPY_RANGES_MAX 128
struct nvmf_copy_limits {
	uint16_t range_blocks;
	uint32_t blocks;
};
/* The limits, in blocks of 1 << block_shift bytes. */
struct nvmf_copy_limits nvmf_copy_limits(uint8_t block_shift);

struct nvmf_copy {
	uint64_t to;         /* LBA of the destination */
	uint16_t num_ranges; /* 1 to NVMF_COPY_RANGES_MAX, each of range_bytes of data */
	uint8_t format;      /* of the ranges: 0 or 1 */
	uint8_t range_bytes; /* at most NVMF_COPY_RANGE_BYTES_MAX */
};
#define NVMF_COPY_RANGE_BYTES_MAX sizeof(struct nvme_copy_range_f1)
/* Copy, without its source ranges. */
uint16_t nvmf_decode_copy(const struct nvme_sqe *sqe, struct nvmf_copy *out, uint16_t *where);
/* Whether the ranges are of the format that goes with the namespace's protection information as the host sees it
 * (NVME_PI_GUARD_...; 16 if there is none). */
uint16_t nvmf_decode_copy_format(const struct nvmf_copy *copy, uint8_t pi_format, uint16_t *where);
/* All source ranges of a Copy: they keep the limits, are in the namespace, and do not overlap the destination. data:
 * the ranges, in one buffer. */
uint16_t nvmf_decode_copy_ranges(const void *data, const struct nvmf_copy *copy, const struct nvmf_geometry *geo,
				 uint16_t *where);
/* One source range, or the first bytes of one of format 1, which are the same; every value is good here. */
void nvmf_decode_copy_range(const struct nvme_copy_range *range, struct nvmf_lba_range *out);

struct nvmf_dsm {
	uint16_t num_ranges; /* 1 to 256 */
	bool deallocate;
};
/* Dataset Management, without its ranges; every value is good. */
void nvmf_decode_dsm(const struct nvme_sqe *sqe, struct nvmf_dsm *out);
/* The index'th range of Dataset Management: it is in the namespace, and has at most dmrsl blocks if that is not 0.
 * data: at least index + 1 ranges. */
uint16_t nvmf_decode_dsm_range(const void *data, unsigned index, const struct nvmf_geometry *geo, uint32_t dmrsl,
			       struct nvmf_lba_range *out, uint16_t *where);

/* ---- Reservation commands ---- */

/* Bytes of data of each command; `data` below has that many. */
#define NVMF_RESV_REGISTER_DATA 16
#define NVMF_RESV_ACQUIRE_DATA  16
#define NVMF_RESV_RELEASE_DATA  8

struct nvmf_resv_register {
	uint8_t action; /* enum nvme_resv_rrega */
	bool ignore_key;
	uint8_t change_ptpl; /* enum nvme_resv_cptpl */
	uint64_t crkey, nrkey;
};
/* Reservation Register. */
uint16_t nvmf_decode_resv_register(const struct nvme_sqe *sqe, const void *data, struct nvmf_resv_register *out,
				   uint16_t *where);

struct nvmf_resv_acquire {
	uint8_t action; /* enum nvme_resv_racqa */
	uint8_t type;   /* enum nvme_resv_rtype */
	uint64_t crkey, prkey;
};
/* Reservation Acquire. */
uint16_t nvmf_decode_resv_acquire(const struct nvme_sqe *sqe, const void *data, struct nvmf_resv_acquire *out,
				  uint16_t *where);

struct nvmf_resv_release {
	uint8_t action; /* enum nvme_resv_rrela */
	uint8_t type;   /* of the action Release only */
	uint64_t crkey;
};
/* Reservation Release. */
uint16_t nvmf_decode_resv_release(const struct nvme_sqe *sqe, const void *data, struct nvmf_resv_release *out,
				  uint16_t *where);

struct nvmf_resv_report {
	uint64_t length; /* bytes, a multiple of 4, at least 4 */
};
/* Reservation Report. */
uint16_t nvmf_decode_resv_report(const struct nvme_sqe *sqe, struct nvmf_resv_report *out, uint16_t *where);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases: what is sent, and what the specification says must come back. Case n of a seed is always the same, and depends
 * on no other. */
#ifndef HOSTILE_CASES_H
#define HOSTILE_CASES_H

#include "systest/hostile/link.h"

struct rng {
	uint64_t state;
};

static inline uint64_t rng_next(struct rng *r)
{
	uint64_t z = (r->state += UINT64_C(0x9e3779b97f4a7c15)); /* splitmix64 */

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* 0 to n - 1. */
static inline uint32_t rng_below(struct rng *r, uint32_t n)
{
	return (uint32_t)((rng_next(r) >> 32) * n >> 32);
}

/* A namespace whose blocks have metadata. */
struct md_ns {
	uint32_t nsid;
	uint64_t num_blocks;
	uint32_t block_size; /* of the data */
	uint32_t md;         /* bytes of metadata of a block */
	uint8_t pi_type;     /* 0: without protection information */
	bool pi_first;       /* it comes first in the metadata */
};
#define MD_NS_MAX 8

/* A log page, whole, as it stays. */
struct page {
	uint8_t bytes[16384];
	uint32_t len;
};
#define ANA_MAX 16

/* What the target says of itself, by Identify and log pages: what it supports decides what it has to answer. */
struct facts {
	struct address at;
	struct address keyed; /* as another host, which has to prove that it has the key */
	uint8_t key[64];
	size_t key_len;  /* 0: there is no such host */
	uint32_t nsid;   /* the namespace to work on */
	uint32_t hidden; /* one that this host may not see */
	uint32_t nn;
	uint64_t num_blocks;
	uint32_t block_size;
	uint32_t max_transfer;
	uint32_t icd_max; /* bytes of data behind a command in its capsule */
	uint32_t max_descs;
	uint32_t max_entries; /* of an I/O queue */
	uint32_t aer_max;
	uint32_t admin_ok[256], io_ok[256]; /* the Commands Supported and Effects log page */
	bool log_ok[256], feature_ok[256];
	uint32_t copy_range_blocks, copy_blocks, copy_ranges; /* the most that one Copy may have (MSSRL, MCL, MSRC) */
	struct md_ns md[MD_NS_MAX];
	unsigned num_md;
	bool has_pair;       /* Compare and Write, fused */
	struct page page[2]; /* of a discovery subsystem: its log; of one with asymmetric access: that log, and groups
				only */
	struct {
		uint32_t nsid;
		uint8_t state; /* of its group */
	} ana[ANA_MAX];
	unsigned num_ana;
};
/* Ask the target; 0 or -1, said on stderr. */
int facts_get_discovery(struct facts *f, const struct address *at);
int facts_get_ana(struct facts *f, const struct address *at);
int facts_get(struct facts *f, const struct address *at, uint32_t nsid, uint32_t hidden);

#define STATUSES    8
#define WINDOWS     24
#define CAPSULE_MAX (SQE_SIZE + 4096)
#define STEPS       4

/* One capsule. */
struct step {
	uint8_t bytes[CAPSULE_MAX];
	uint32_t len;
	uint16_t ok[STATUSES];
	uint8_t num_ok;
	bool any;         /* any status that there is, if it is no success that may not be */
	bool may_be_held; /* an answer need not come */
	struct {
		uint32_t at, len;
	} window[WINDOWS]; /* where the target may write, in the link's memory */
	unsigned num_windows;
	unsigned slot;
	uint8_t *data;          /* the slot's memory */
	bool dw0_bit0;          /* a success has it set */
	const uint8_t *content; /* a success has this as its data */
	uint32_t content_len;
	/* Set when it is run. */
	bool answered;
	uint16_t status;
	uint32_t dw0;
};

struct kase {
	uint64_t number;
	const struct kind *kind;
	struct rng rng;
	const struct facts *facts;
	char what[160];
	struct step *step[STEPS];
	unsigned num_steps;
	bool together; /* its first two steps succeed both or neither */
	/* Its memory: given by the lane. */
	struct link *link;
	struct step *steps;
	unsigned slot;
};

/* Cases that share a connection are generated, then sent together with others; the rest (LANE_OWN) run by themselves
 * and report by kase_fail(). */
enum lane {
	LANE_IO,
	LANE_ADMIN,
	LANE_WILD_IO,
	LANE_WILD_ADMIN,
	LANE_DISCOVERY,
	LANE_ANA_IO,
	LANE_ANA_ADMIN,
	LANES,
	LANE_OWN = LANES, /* and where the target is one that others work on */
	LANE_OWN_DISCOVERY,
	LANE_OWN_RESERVED
};

struct kind {
	const char *name;
	unsigned weight;
	enum lane lane;
	void (*make)(struct kase *k);
};
extern const struct kind kinds[];
extern const unsigned num_kinds;

/* Says so, with seed and number, and counts. */
void kase_fail(struct kase *k, const char *format, ...) __attribute__((format(printf, 2, 3)));
void kase_describe(struct kase *k, const char *format, ...) __attribute__((format(printf, 2, 3)));

static inline uint32_t pick(struct kase *k, uint32_t n)
{
	return rng_below(&k->rng, n);
}

/* A new step: 64 zeroes with opcode, flags (SGL) and namespace. */
struct step *step_add(struct kase *k, uint8_t opcode, uint32_t nsid);
/* With a list of statuses, ended by -1. */
void step_expect(struct step *s, ...);
/* The target may write there, in the step's slot. */
void step_window(struct step *s, uint32_t at, uint32_t len);
/* A keyed descriptor of the first len bytes of the step's slot, as its data pointer. */
void step_keyed(struct step *s, uint32_t len);
/* A valid command with data: Read, Write or Compare of whole blocks. */
struct step *step_rw(struct kase *k, uint8_t opcode, uint64_t slba, uint32_t blocks);
/* A Read, Write or Compare of one block, for who sends it himself. */
void fill_rw(const struct facts *f, uint8_t *sqe, uint8_t op, uint16_t cid, uint64_t slba, uint64_t address,
	     uint32_t key);
uint64_t any_lba(struct kase *k, uint32_t blocks);
/* From where so many blocks reach beyond the end. */
uint64_t lba_beyond(struct kase *k, uint32_t blocks);
const char *status_text(uint16_t status);
bool status_exists(uint16_t status);

/* The generators, by file. */
void make_io_good(struct kase *k); /* cases_io.c */
void make_io_header(struct kase *k);
void make_io_range(struct kase *k);
void make_io_dsm(struct kase *k);
void make_io_fused(struct kase *k);
void make_io_fabrics(struct kase *k);
void make_io_resv(struct kase *k);
void make_io_copy(struct kase *k);  /* cases_copy.c */
void make_io_md(struct kase *k);    /* cases_md.c */
void make_sgl_type(struct kase *k); /* cases_sgl.c */
void make_sgl_length(struct kase *k);
void make_sgl_capsule(struct kase *k);
void make_sgl_list(struct kase *k);
void make_admin_header(struct kase *k); /* cases_admin.c */
void make_admin_identify(struct kase *k);
void make_admin_log(struct kase *k);
void make_admin_feature(struct kase *k);
void make_admin_property(struct kase *k);
void make_admin_fabrics(struct kase *k);
void make_admin_abort(struct kase *k);
void make_wild_io(struct kase *k); /* cases_wild.c */
void make_wild_admin(struct kase *k);
/* Whether a success is out of the question. */
bool wild_must_fail(const struct facts *f, const struct step *s, bool io);
void run_cm(struct kase *k); /* cases_connect.c */
void run_connect(struct kase *k);
void run_order(struct kase *k);
void run_auth(struct kase *k); /* cases_auth.c */
void run_key(struct kase *k);  /* cases_link.c */
void run_send(struct kase *k);
void run_flood(struct kase *k);
void run_no_receive(struct kase *k);
void run_midway(struct kase *k);
void run_one_sided(struct kase *k);
void run_async(struct kase *k);
void run_state(struct kase *k);      /* cases_state.c */
void make_discovery(struct kase *k); /* cases_logs.c */
void run_discovery(struct kase *k);
void make_ana_io(struct kase *k);
void make_ana_admin(struct kase *k);
void run_admin_flood(struct kase *k); /* cases_flood.c */
void run_half_open(struct kase *k);
/* Lets go of the connections that are left. */
void half_open_end(void);
void run_reservations(struct kase *k); /* cases_resv.c */
void reservations_end(void);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* The control plane as clients may expect it: which objects exist, and which operation must succeed or fail. An
 * operation's effect is counted when it has been answered. What overlaps with the end of its object may do either. */
#ifndef UNITTEST_OVERLAP_MODEL_H
#define UNITTEST_OVERLAP_MODEL_H

#include "unittest/overlap/overlap.h"

#define OV_NO_BDEV 0xff

struct model_ns {
	bool used, removing, listed; /* listed: only hosts of the list see it */
	uint8_t bdev, hosts;         /* a set */
	uint8_t group;
};

struct model_sub {
	bool exists, deleting, any, ana;
	uint8_t hosts, listeners, peers; /* sets */
	uint8_t keys[OV_HOSTS];          /* which key a host has to prove that it has; 0: none */
	unsigned keys_changed[OV_HOSTS]; /* how often that may have changed */
	struct model_ns ns[OV_NSIDS];
	unsigned disturbed; /* how often something began that may change what other operations find */
};

struct model_tgt {
	bool exists, deleting, transport;
	uint8_t referrals;
	struct model_sub sub[OV_SUBS];
	unsigned disturbed;
};

struct model_bdev {
	bool exists, deleting, is_malloc;
	unsigned creating; /* calls that make it, not answered yet */
	/* Of those that stand on another one. */
	bool promised; /* a call has made it, and none has deleted it: it is there, or waits for its base */
	bool leaving;  /* it exists, and its base goes */
	uint8_t base;  /* if it is promised or exists */
};

/* A QoS group of bdevs. Its calls are answered at once. */
struct model_group {
	bool exists;
};

enum model_answer {
	MODEL_OK,
	MODEL_FAILS,
	MODEL_EITHER,
};

extern struct model_tgt model_tgts[OV_TGTS];
extern struct model_bdev model_bdevs[OV_BDEVS];
extern struct model_group model_groups[OV_GROUPS];

/* An operation on a target, a subsystem or a bdev, with its arguments in range. */
struct model_call {
	const struct ov_op *op;
	struct model_tgt *tgt; /* NULL: not of one */
	struct model_sub *sub;
	struct model_ns *ns;
	struct model_bdev *bdev;
	const unsigned *counter; /* of what else disturbs it; NULL: nothing */
	unsigned disturbed;
};

void model_reset(void);
/* The objects that an operation is about. */
void model_find(struct model_call *c, const struct ov_op *op);
/* The operation begins: what must its answer be? */
enum model_answer model_begin(struct model_call *c);
/* It has been answered. result: of those that name what they made. */
void model_end(struct model_call *c, bool success, int64_t result);
/* Whether something has overlapped with it that makes either answer right. */
bool model_is_disturbed(const struct model_call *c);
/* From now on it is disturbed when *counter changes. */
void model_watch(struct model_call *c, const unsigned *counter);
/* Whether a namespace of any subsystem or another bdev has the bdev. */
bool model_bdev_in_use(unsigned bdev);
/* The bdev that an operation is about. */
unsigned model_bdev_of(const struct ov_op *op);
/* What an operation does with a QoS group. */
enum model_group_what {
	MODEL_GROUP_CREATE,
	MODEL_GROUP_DELETE,
	MODEL_GROUP_LIMIT,
	MODEL_GROUP_LEAVE, /* the bdev leaves whichever it is in */
	MODEL_GROUP_JOIN,
};
enum model_group_what model_group_what_of(const struct ov_op *op);
/* The base that a stacked bdev is made on. */
unsigned model_base_of(const struct ov_op *op);
/* Whether a stacked bdev may be asked for before its base is there, and comes back with it. */
bool model_bdev_can_wait(unsigned bdev);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* The rate limits of a bdev, its own and its group's. */
#ifndef BDEV_QOS_INTERNAL_H
#define BDEV_QOS_INTERNAL_H

#include "bdev/internal.h"
#include "bdev/qos_group.h"

struct bdev_qos_group {
	struct share_group share; /* the channels' threads, without a lock */
	/* Control thread. */
	char name[BDEV_QOS_GROUP_NAME_MAX + 1];
	struct rate_limits limits;
	TAILQ_HEAD(, bdev_qos) members;
	uint32_t num_members;
	struct rate_counts left; /* of bdevs that have left */
	TAILQ_ENTRY(bdev_qos_group) link;
};

struct bdev_qos {
	struct rate_limiter limiter;
	/* Or NULL. The control thread sets it to NULL, and visits all channels, before it ends the membership or frees
	 * the group: a channel's thread may use what it has loaded until it returns from what it does. */
	struct bdev_qos_group *_Atomic group;
	/* While group is NULL because the bdev goes from one group to another: no I/O goes. */
	atomic_bool is_moving;
	struct share_member member;    /* of group */
	struct rate_counters counters; /* of what it does in group */
	/* Control thread. */
	struct rate_limits limits, minimum;
	struct bdev *bdev;
	TAILQ_ENTRY(bdev_qos) link;
};

/* Pairs with the stores of bdev_qos_group_add() and bdev_qos_group_remove(). Any thread that has a channel of the bdev.
 */
static inline struct bdev_qos_group *bdev_qos_group_load(const struct bdev_qos *q)
{
	return atomic_load_explicit(&q->group, memory_order_acquire);
}

/* --- Control thread --- */
/* The bdev's limits, which are made if there are none; NULL: no memory. */
struct bdev_qos *bdev_qos_get_or_alloc(struct bdev *b);
/* Has all channels go by the limits and the group that there are now. */
void bdev_qos_apply(struct bdev *b);
/* The bdev goes, and has no channels any more. */
void bdev_qos_group_forget(struct bdev_qos *q);

#endif

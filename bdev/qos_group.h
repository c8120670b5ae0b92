/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups of bdevs that share rate limits: all of a group together stay below them, each bdev gets at least its
 * minimums, and what is left is divided equally among those that want more (util/share.h). The limits that a bdev has
 * of its own hold besides. A bdev is in one group at most. I/O that has to wait does so as for a bdev's own limit
 * (BDEV_IO_WAIT_QOS). */
#ifndef BDEV_QOS_GROUP_H
#define BDEV_QOS_GROUP_H

#include "bdev/bdev.h"
#include "util/share.h"

struct bdev_qos_group;
#define BDEV_QOS_GROUPS_MAX     256
#define BDEV_QOS_GROUP_NAME_MAX 63

/* All functions: control thread. */

/* Makes a group without limits and bdevs. NULL, and *rc: -EINVAL: the name is empty or too long; -EEXIST: there is one;
 * -ENOSPC: there are BDEV_QOS_GROUPS_MAX; -ENOMEM. */
struct bdev_qos_group *bdev_qos_group_create(const char *name, int *rc);
/* Sets the limits of all its bdevs together, at once, also for I/O that waits. 0, or -ERANGE: a limit, *id, would be
 * less than the minimums together. */
int bdev_qos_group_set_limits(struct bdev_qos_group *g, const struct rate_limits *limits, enum rate_bucket_id *id);
/* Puts a bdev into a group, with its minimums (0: none), or changes them; it leaves the group that it was in, and is
 * limited by one or the other all the time. Waits for the threads that have channels of it. 0; -ERANGE: the minimums
 * together would be more than a limit of the group, *id; -ENOSPC: it has SHARE_MEMBERS_MAX bdevs; -ENOMEM. If it fails,
 * everything is as before. */
int bdev_qos_group_add(struct bdev_qos_group *g, struct bdev *b, const struct rate_limits *minimum,
		       enum rate_bucket_id *id);
/* Takes a bdev out of its group, if it is in one. I/O that waits because of the group goes on. */
void bdev_qos_group_remove(struct bdev *b);
/* Takes all bdevs out, and ends the group. I/O that waits because of it goes on. */
void bdev_qos_group_delete(struct bdev_qos_group *g);

/* Adds to each group what its bdevs of before have counted that have not come back into it: its counts do not become
 * less because of these. Such a bdev begins at 0 if it comes later. */
void bdev_qos_groups_take_absent(void);

/* The group of this name; NULL: there is none. */
struct bdev_qos_group *bdev_qos_group_find(const char *name);
/* The group after this one, or the first for NULL; NULL: there are no more. */
struct bdev_qos_group *bdev_qos_group_next(const struct bdev_qos_group *g);
/* Its name. */
const char *bdev_qos_group_name(const struct bdev_qos_group *g);
/* Its limits. */
const struct rate_limits *bdev_qos_group_limits(const struct bdev_qos_group *g);
/* The minimums of its bdevs together, without those of one; NULL: of all. */
struct rate_limits bdev_qos_group_minimums(const struct bdev_qos_group *g, const struct bdev *without);
/* What has gone through in all, that of bdevs which have left included. */
void bdev_qos_group_get_counts(const struct bdev_qos_group *g, struct rate_counts *counts);

/* The bdev after this one in its group, or the first for NULL; NULL: there are no more. */
struct bdev *bdev_qos_group_next_bdev(const struct bdev_qos_group *g, const struct bdev *b);
/* The group that a bdev is in; NULL: none. */
struct bdev_qos_group *bdev_qos_group_of(const struct bdev *b);
/* The minimums of a bdev that is in a group. */
const struct rate_limits *bdev_qos_group_minimum(const struct bdev *b);
/* What has gone through since it came into the group. */
void bdev_qos_group_get_bdev_counts(const struct bdev *b, struct rate_counts *counts);

#endif

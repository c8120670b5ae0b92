/* SPDX-License-Identifier: BSD-3-Clause */
/* The control thread's side of groups of bdevs that share rate limits; qos.c has that of an I/O. */
#include "bdev/qos_group.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bdev/kept_stat.h"
#include "bdev/qos_internal.h"

static TAILQ_HEAD(, bdev_qos_group) groups = TAILQ_HEAD_INITIALIZER(groups);
static unsigned num_groups;

/* --- Looking --- */

struct bdev_qos_group *bdev_qos_group_find(const char *name)
{
	struct bdev_qos_group *g;

	TAILQ_FOREACH (g, &groups, link) {
		if (strcmp(g->name, name) == 0) {
			return g;
		}
	}
	return NULL;
}

struct bdev_qos_group *bdev_qos_group_next(const struct bdev_qos_group *g)
{
	return g == NULL ? TAILQ_FIRST(&groups) : TAILQ_NEXT(g, link);
}

const char *bdev_qos_group_name(const struct bdev_qos_group *g)
{
	return g->name;
}

const struct rate_limits *bdev_qos_group_limits(const struct bdev_qos_group *g)
{
	return &g->limits;
}

struct rate_limits bdev_qos_group_minimums(const struct bdev_qos_group *g, const struct bdev *without)
{
	struct rate_limits sum = {0};
	const struct bdev_qos *q;

	TAILQ_FOREACH (q, &g->members, link) {
		if (q->bdev != without) {
			share_sum(&sum, &q->minimum);
		}
	}
	return sum;
}

struct bdev *bdev_qos_group_next_bdev(const struct bdev_qos_group *g, const struct bdev *b)
{
	const struct bdev_qos *q = b == NULL ? TAILQ_FIRST(&g->members) : TAILQ_NEXT(b->core->qos, link);

	return q != NULL ? q->bdev : NULL;
}

struct bdev_qos_group *bdev_qos_group_of(const struct bdev *b)
{
	return b->core->qos != NULL ? bdev_qos_group_load(b->core->qos) : NULL;
}

const struct rate_limits *bdev_qos_group_minimum(const struct bdev *b)
{
	return &b->core->qos->minimum;
}

void bdev_qos_group_get_bdev_counts(const struct bdev *b, struct rate_counts *counts)
{
	*counts = (struct rate_counts){0};
	rate_counters_sum(&b->core->qos->counters, counts);
}

void bdev_qos_group_get_counts(const struct bdev_qos_group *g, struct rate_counts *counts)
{
	const struct bdev_qos *q;

	*counts = g->left;
	TAILQ_FOREACH (q, &g->members, link) {
		rate_counters_sum(&q->counters, counts);
	}
}

/* --- Changing --- */

/* What is counted outlives a group in two sets: of bdevs that have left, by the group's name, and of its members. */
static const char left_set[] = "qos_group";

struct member_set {
	char name[BDEV_QOS_GROUP_NAME_MAX + 32];
};

static struct member_set member_set_of(const struct bdev_qos_group *g)
{
	struct member_set set;

	snprintf(set.name, sizeof(set.name), "qos_group members: %s", g->name);
	return set;
}

struct bdev_qos_group *bdev_qos_group_create(const char *name, int *rc)
{
	struct bdev_qos_group *g = NULL;

	if (name[0] == '\0' || strlen(name) > BDEV_QOS_GROUP_NAME_MAX) {
		*rc = -EINVAL;
	} else if (bdev_qos_group_find(name) != NULL) {
		*rc = -EEXIST;
	} else if (num_groups == BDEV_QOS_GROUPS_MAX) {
		*rc = -ENOSPC;
	} else if ((g = calloc(1, sizeof(*g))) == NULL) {
		*rc = -ENOMEM;
	} else {
		*rc = 0;
		share_group_init(&g->share, env_ticks(), env_ticks_hz());
		memcpy(g->name, name, strlen(name));
		TAILQ_INIT(&g->members);
		kept_stat_take_rates(left_set, g->name, &g->left);
		TAILQ_INSERT_TAIL(&groups, g, link);
		num_groups++;
	}
	return g;
}

int bdev_qos_group_set_limits(struct bdev_qos_group *g, const struct rate_limits *limits, enum rate_bucket_id *id)
{
	struct rate_limits sum = bdev_qos_group_minimums(g, NULL);

	if (!share_sum_fits(limits, &sum, id)) {
		return -ERANGE;
	}
	g->limits = *limits;
	share_group_set(&g->share, limits); /* I/O that waits looks again after RATE_REFILL_US at the latest */
	return 0;
}

static void membership_end(struct bdev_qos *q, struct bdev_qos_group *g)
{
	struct member_set set = member_set_of(g);
	struct rate_counts counts = {0};

	share_group_remove(&g->share, &q->member);
	rate_counters_sum(&q->counters, &counts);
	if (!kept_stat_note_rates(set.name, q->bdev->name, &counts)) { /* otherwise it will be a member again */
		rate_counters_sum(&q->counters, &g->left);
	}
	TAILQ_REMOVE(&g->members, q, link);
	g->num_members--;
}

static void membership_begin(struct bdev_qos *q, struct bdev_qos_group *g, const struct rate_limits *minimum)
{
	struct member_set set = member_set_of(g);
	struct rate_counts counts = {0};

	kept_stat_take_rates(set.name, q->bdev->name, &counts);
	rate_counters_set(&q->counters, &counts);
	q->minimum = *minimum;
	share_group_add(&g->share, &q->member, minimum);
	TAILQ_INSERT_TAIL(&g->members, q, link);
	g->num_members++;
}

void bdev_qos_group_remove(struct bdev *b)
{
	struct bdev_qos_group *g = bdev_qos_group_of(b);
	struct bdev_qos *q = b->core->qos;

	if (g != NULL) {
		atomic_store_explicit(&q->group, NULL, memory_order_release); /* pairs with bdev_qos_group_load() */
		bdev_qos_apply(b);                                            /* no thread uses g for b from here on */
		membership_end(q, g);
	}
}

void bdev_qos_group_forget(struct bdev_qos *q)
{
	struct bdev_qos_group *g = bdev_qos_group_load(q);

	if (g != NULL) {
		atomic_store_explicit(&q->group, NULL, memory_order_relaxed);
		membership_end(q, g);
	}
}

int bdev_qos_group_add(struct bdev_qos_group *g, struct bdev *b, const struct rate_limits *minimum,
		       enum rate_bucket_id *id)
{
	struct rate_limits sum = bdev_qos_group_minimums(g, b);
	bool is_in = bdev_qos_group_of(b) == g;

	share_sum(&sum, minimum);
	if (!share_sum_fits(&g->limits, &sum, id)) {
		return -ERANGE;
	}
	if (!is_in && g->num_members == SHARE_MEMBERS_MAX) {
		return -ENOSPC;
	}
	struct bdev_qos *q = bdev_qos_get_or_alloc(b);
	if (q == NULL) {
		return -ENOMEM;
	}
	if (is_in) {
		q->minimum = *minimum;
		share_group_set_minimum(&g->share, &q->member, minimum);
		return 0;
	}
	atomic_store_explicit(&q->is_moving, bdev_qos_group_of(b) != NULL, memory_order_relaxed);
	bdev_qos_group_remove(b);
	membership_begin(q, g, minimum);
	atomic_store_explicit(&q->group, g, memory_order_release); /* pairs with bdev_qos_group_load() */
	bdev_qos_apply(b);
	atomic_store_explicit(&q->is_moving, false, memory_order_relaxed); /* all threads have seen g */
	return 0;
}

void bdev_qos_group_delete(struct bdev_qos_group *g)
{
	struct bdev_qos *q;

	while ((q = TAILQ_FIRST(&g->members)) != NULL) {
		bdev_qos_group_remove(q->bdev);
	}
	kept_stat_note_rates(left_set, g->name, &g->left);
	TAILQ_REMOVE(&groups, g, link);
	num_groups--;
	free(g);
}

void bdev_qos_groups_take_absent(void)
{
	struct bdev_qos_group *g;
	const char *bdev;

	TAILQ_FOREACH (g, &groups, link) {
		struct member_set set = member_set_of(g);
		while ((bdev = kept_stat_first(set.name)) != NULL) {
			kept_stat_take_rates(set.name, bdev, &g->left);
		}
	}
}

void bdev_qos_groups_fini(void)
{
	struct bdev_qos_group *g;

	while ((g = TAILQ_FIRST(&groups)) != NULL) {
		bdev_qos_group_delete(g);
	}
}

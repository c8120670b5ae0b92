/* SPDX-License-Identifier: BSD-3-Clause */
/* A budget that members share: rate limits of all together, and a guaranteed minimum for each. Token buckets that any
 * number of threads take from, without a lock.
 *
 * The tokens of each limit become due at its rate R. A member with a minimum m gets its part of them, m, into a bucket
 * of its own, which holds what m yields in half the burst time. The rest, R less all minimums, and what overflows from
 * the buckets of members that are idle, is divided equally among the members that want more than they have; while none
 * does, it is put into a bucket that anybody may take from. An I/O may go if, for each limit that it counts for, its
 * member's bucket or the common one is above zero. It may take more than the bucket holds, and those after it wait the
 * longer: the debt is its member's if the member's bucket had tokens, and otherwise of all together. So in any time t
 *
 *   - all members together get at most R * t + R * burst, and of each bucket that there was one I/O (of each thread)
 * that overdrew it;
 *   - a member that always has I/O waiting, and looks at least once in a quarter of the burst time, gets at least m * t
 * less one I/O;
 *   - members that always have I/O waiting get equal parts of the rest, however many threads each of them has.
 *
 * Times are ticks of one clock, which the caller reads. */
#ifndef UTIL_SHARE_H
#define UTIL_SHARE_H

#include <stdatomic.h>
#include <sys/queue.h>

#include "util/rate.h"

#define SHARE_MEMBERS_MAX 1024
/* The least burst time. Whoever waits looks a little less often than once in RATE_REFILL_US, which is to be a quarter
 * of the burst time at most; refills come a quarter of it after each other at most. So no bucket of a minimum, which
 * holds half of it, runs over. */
#define SHARE_BURST_MS_MIN 5
/* Refills come so much time after each other for each member, up to a quarter of the burst time, and at the least so
 * much in all. */
#define SHARE_REFILL_US_PER_MEMBER 4
#define SHARE_REFILL_MIN_US        125
/* A member that had to wait counts as one that wants more for so long; much longer than RATE_REFILL_US, so that members
 * whose threads look late, or that have one I/O at a time, do not lose their turns. */
#define SHARE_WANT_US 10000

struct share_group;

/* A member's state. Private. */
struct share_member {
	_Atomic int64_t tokens[RATE_BUCKETS]; /* millionths of an I/O or byte, so that slow rates refill evenly */
	_Atomic uint64_t wanted_ticks;        /* when it had to wait last */
	_Atomic bool has_wanted;
	/* Whoever has the group busy. */
	uint64_t min_per_sec[RATE_BUCKETS];
	bool wants;
	TAILQ_ENTRY(share_member) link;
};

/* The state of a group. Private. The minimums of all members together must not exceed a limit (share_sum_fits()). */
struct share_group {
	_Atomic uint64_t per_sec[RATE_BUCKETS]; /* 0: no limit */
	_Atomic int64_t tokens[RATE_BUCKETS];   /* anybody's */
	_Atomic uint64_t refilled_ticks;
	_Atomic uint64_t interval_ticks; /* a refill comes this long after the one before, or later */
	_Atomic uint64_t interval_us;
	atomic_flag busy; /* held by whoever refills or changes the group */
	/* Whoever has it busy. */
	uint64_t burst_us, hz;
	uint64_t min_per_sec[RATE_BUCKETS]; /* of all members */
	int64_t kept_back[RATE_BUCKETS];    /* what will be divided at the next refill */
	TAILQ_HEAD(, share_member) members;
	uint32_t num_members;
};

/* Sets up a group without limits and members. now: the time; hz: ticks per second. Before any other call. */
void share_group_init(struct share_group *g, uint64_t now, uint64_t hz);

/* ---- One thread at a time, which may wait for a refill's end ---- */

/* Sets all limits, and the burst time: 0, or SHARE_BURST_MS_MIN or more. What was saved up for a limit that changes is
 * lost; debts stay. */
void share_group_set(struct share_group *g, const struct rate_limits *limits);
/* Makes m a member with these minimums; it begins with empty buckets. m must be no member. burst_ms has no meaning. */
void share_group_add(struct share_group *g, struct share_member *m, const struct rate_limits *minimum);
/* Changes a member's minimums. */
void share_group_set_minimum(struct share_group *g, struct share_member *m, const struct rate_limits *minimum);
/* Ends a membership: nothing refers to m any more. What it has saved up, or owes, is that of all from then on. */
void share_group_remove(struct share_group *g, struct share_member *m);
/* Adds minimums up, saturating. Pure. */
void share_sum(struct rate_limits *sum, const struct rate_limits *minimum);
/* Whether minimums of this sum can be kept: where there is a limit, it is at least as high. If not, *id is the first
 * for which it is not. Pure. */
bool share_sum_fits(const struct rate_limits *limits, const struct rate_limits *sum, enum rate_bucket_id *id);

/* ---- Any thread ---- */

/* Gives what has become due to the members, if the time for it has come and no other thread does. Takes time in
 * proportion to the number of members, but comes the less often for it: at most once in SHARE_REFILL_US_PER_MEMBER for
 * each, up to a quarter of the burst time. */
void share_refill(struct share_group *g, uint64_t now);
/* When whoever waits should look again: after so many microseconds, at most RATE_REFILL_US. */
uint64_t share_look_us(const struct share_group *g);
/* Whether an I/O of a member, of so many bytes, may go. */
bool share_allows(const struct share_group *g, const struct share_member *m, enum rate_kind kind, uint64_t bytes);
/* Takes its tokens, whether or not they are there. */
void share_take(struct share_group *g, struct share_member *m, enum rate_kind kind, uint64_t bytes);
/* An I/O of the member has to wait: until some time after now, the member gets its part of the rest. */
void share_want(struct share_member *m, uint64_t now);
/* Whether I/O of this kind of a member may not go because of a limit of its own kind. */
bool share_is_dry_for(const struct share_group *g, const struct share_member *m, enum rate_kind kind);
/* Whether a limit holds for reads and writes together. */
bool share_has_common_limit(const struct share_group *g);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Reservations: how many clusters of its own a volume is sure of.
 *
 * A volume with a reservation of R clusters that has n of its own, those of first writes under way included, is
 * promised R - n more (none, if that is negative). The store has the sum of all promises and the number of free
 * clusters in one word, so that both are looked at and changed at once, by any thread and without a lock. Promises are
 * kept because of two rules:
 *
 *   free + coming >= promised: what would break that is refused, and is checked in the word itself. (A store that
 *   another program filled may break it: then nothing is left but for those who were promised it.)
 *
 *   Whoever was promised nothing takes a cluster only if free > promised.
 *
 * R - n of a volume, its balance, changes with each claim of a first write, on any thread. The word always has at least
 * the promises that the balances make: it is raised before a balance rises, and lowered after a balance was lowered.
 *
 * A claim takes a cluster before it marks the entry that it is for, and gives it back if another claim of that entry
 * was faster. So a claim that finds nothing may only say that there is nothing if no other claim, and no other change
 * of balances, was under way in its time: lvol_live.claims counts those that are under way, and those that have ended.
 * A claim that found nothing has changed nothing: it does not count as ended, so that two of them do not keep each
 * other trying. Memory order: a claim is counted before it changes a balance or the word (release), and has ended after
 * it has marked the entry or given its cluster back (release). Whoever has seen a change of a claim (acquire) then sees
 * that claim under way, or that one more has ended. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lvol/live_internal.h"
#include "lvol/reserve.h"

/* Of promises, so that they fit into their half of the word whatever a forged store says. */
#define PROMISES_MAX (1ll << 31)

static int64_t promise_of(int64_t balance)
{
	return balance > 0 ? balance : 0;
}

static int64_t account_balance(uint64_t reserved, uint64_t own)
{
	return (int64_t)reserved - (int64_t)own;
}

/* What nobody else may have. */
static uint64_t account_size(uint64_t reserved, uint64_t own)
{
	return reserved > own ? reserved : own;
}

/* The halves of lvol_live.claims. */
#define CLAIM_UNDER_WAY UINT64_C(1)
#define CLAIM_ENDED     (UINT64_C(1) << 32)

static void claim_begin(struct lvol_live *s)
{
	atomic_fetch_add_explicit(&s->claims, CLAIM_UNDER_WAY, memory_order_relaxed);
}

static void claim_end(struct lvol_live *s)
{
	atomic_fetch_add_explicit(&s->claims, CLAIM_ENDED - CLAIM_UNDER_WAY, memory_order_release);
}

/* It has changed nothing. */
static void claim_forget(struct lvol_live *s)
{
	atomic_fetch_sub_explicit(&s->claims, CLAIM_UNDER_WAY, memory_order_release);
}

static void promised_add(struct lvol_live *s, int64_t more)
{
	/* Less is more of its complement: the lower half is not touched. */
	atomic_fetch_add_explicit(&s->space, (uint64_t)more * LIVE_SPACE_PROMISED, memory_order_release);
}

/* ---- Any thread ---- */

uint64_t live_account_look(const struct lvol_live *s)
{
	return atomic_load_explicit(&s->claims, memory_order_acquire);
}

bool live_account_was_still(const struct lvol_live *s, uint64_t since)
{
	uint64_t claims = live_account_look(s);

	return claims % CLAIM_ENDED == 0 && claims / CLAIM_ENDED == since / CLAIM_ENDED;
}

void live_account_settle(struct lvol_live *s)
{
	claim_end(s);
}

/* A free cluster that was promised. */
static bool space_take_promised(struct lvol_live *s)
{
	uint64_t w = atomic_load_explicit(&s->space, memory_order_acquire);

	while (live_space_free(w) > 0) {
		if (atomic_compare_exchange_weak_explicit(&s->space, &w, w - LIVE_SPACE_FREE - LIVE_SPACE_PROMISED,
							  memory_order_acq_rel, memory_order_acquire)) {
			return true;
		}
	}
	return false;
}

/* A free cluster that nobody was promised. */
static bool space_take_open(struct lvol_live *s)
{
	uint64_t w = atomic_load_explicit(&s->space, memory_order_acquire);

	while (live_space_free(w) > live_space_promised(w)) {
		if (atomic_compare_exchange_weak_explicit(&s->space, &w, w - LIVE_SPACE_FREE, memory_order_acq_rel,
							  memory_order_acquire)) {
			return true;
		}
	}
	return false;
}

static bool space_has_free(const struct lvol_live *s)
{
	return live_space_free(atomic_load_explicit(&s->space, memory_order_acquire)) > 0;
}

static void balance_raise(struct lvol_live_volume *v)
{
	/* Its promise is in the word already. */
	if (atomic_fetch_add_explicit(&v->internal->balance, 1, memory_order_acq_rel) < 0) {
		promised_add(v->store, -1);
	}
}

enum taken { TAKEN_NONE, TAKEN_ONE, TAKEN_BACK };

/* The balance is lowered first: its promise is in the word until the cluster is taken. TAKEN_BACK: it was lowered, but
 * others have taken the last free cluster meanwhile. */
static enum taken volume_take_promised(struct lvol_live_volume *v)
{
	_Atomic int64_t *balance = &v->internal->balance;
	int64_t b = atomic_load_explicit(balance, memory_order_acquire);

	while (b > 0 && space_has_free(v->store)) {
		if (!atomic_compare_exchange_weak_explicit(balance, &b, b - 1, memory_order_acq_rel,
							   memory_order_acquire)) {
			continue;
		}
		if (space_take_promised(v->store)) {
			return TAKEN_ONE;
		}
		balance_raise(v);
		return TAKEN_BACK;
	}
	return TAKEN_NONE;
}

bool live_account_take(struct lvol_live *s, struct lvol_live_volume *v)
{
	if (!space_has_free(s)) {
		return false; /* such a claim is not even under way for others */
	}
	claim_begin(s);
	enum taken taken = v != NULL ? volume_take_promised(v) : TAKEN_NONE;
	if (taken == TAKEN_ONE) {
		return true;
	}
	if (space_take_open(s)) {
		/* It may be promised something by now, since a first write was given up: then this was it. */
		if (v != NULL && atomic_fetch_sub_explicit(&v->internal->balance, 1, memory_order_acq_rel) > 0) {
			promised_add(s, -1);
		}
		return true;
	}
	if (taken == TAKEN_BACK) {
		claim_end(s);
	} else {
		claim_forget(s);
	}
	return false;
}

void live_account_return(struct lvol_live_volume *v)
{
	struct lvol_live *s = v->store;
	_Atomic int64_t *balance = &v->internal->balance;
	int64_t b = atomic_load_explicit(balance, memory_order_acquire);
	bool raised = false;

	claim_begin(s);
	/* It is promised nothing, now and afterwards. */
	while (b < 0 && !raised) {
		raised = atomic_compare_exchange_weak_explicit(balance, &b, b + 1, memory_order_acq_rel,
							       memory_order_acquire);
	}
	/* Else both at once: until the balance is known nobody else takes it. Release: see live_cluster_give(). */
	atomic_fetch_add_explicit(&s->space, LIVE_SPACE_FREE + (raised ? 0 : LIVE_SPACE_PROMISED),
				  memory_order_release);
	if (!raised) {
		balance_raise(v);
	}
	claim_end(s);
}

static bool volume_is_promised(const struct lvol_live_volume *v)
{
	return v != NULL && atomic_load_explicit(&v->internal->balance, memory_order_relaxed) > 0;
}

bool live_account_can_take(const struct lvol_live *s, const struct lvol_live_volume *v)
{
	uint64_t w = atomic_load_explicit(&s->space, memory_order_relaxed);

	return live_space_free(w) > (volume_is_promised(v) ? 0 : live_space_promised(w));
}

bool live_account_may_come(const struct lvol_live *s, const struct lvol_live_volume *v, uint32_t coming)
{
	uint64_t w = atomic_load_explicit(&s->space, memory_order_relaxed);

	return coming > 0 && (volume_is_promised(v) || live_space_free(w) + coming > live_space_promised(w));
}

/* ---- The owner ---- */

int live_account_hold(struct live_change *c, const struct lvol_live_volume *v, uint64_t own, uint64_t reserved)
{
	struct lvol_live *s = c->store;
	int64_t before = v == NULL ? 0 : promise_of(account_balance(v->reserved, v->num_own));
	int64_t more = promise_of(account_balance(reserved, own)) - before;
	uint64_t w = atomic_load_explicit(&s->space, memory_order_relaxed);

	if (more <= 0) {
		return 0;
	}
	do {
		/* Clusters come free by the owner's doing: none of them is counted twice here. */
		if (live_space_promised(w) + (uint64_t)more > (uint64_t)live_space_free(w) + live_space_coming(s)) {
			return -ENOSPC;
		}
	} while (!atomic_compare_exchange_weak_explicit(&s->space, &w, w + (uint64_t)more * LIVE_SPACE_PROMISED,
							memory_order_relaxed, memory_order_relaxed));
	c->held = more;
	return 0;
}

uint64_t lvol_live_reservable(const struct lvol_live *s, const struct lvol_live_volume *v)
{
	uint64_t w = atomic_load_explicit(&s->space, memory_order_relaxed);
	uint64_t all = (uint64_t)live_space_free(w) + live_space_coming(s), promises = live_space_promised(w);
	uint64_t open = all > promises ? all - promises : 0;

	return v == NULL ? open : open + account_size(v->reserved, v->num_own);
}

void live_account_release(struct live_change *c)
{
	if (c->held > 0) {
		promised_add(c->store, -c->held);
		c->held = 0;
	}
}

void live_account_set(struct lvol_live_volume *v, uint64_t own, uint64_t reserved, struct live_change *c)
{
	int64_t before = account_balance(v->reserved, v->num_own), after = account_balance(reserved, own);
	/* First writes under way make the balance less than that, and its promise rise by no more. */
	int64_t most = promise_of(after) - promise_of(before), held = c == NULL ? 0 : c->held;

	claim_begin(v->store);
	if (most > held) {
		promised_add(v->store, most - held);
		held = most;
	}
	if (c != NULL) {
		c->held = 0;
	}
	v->store->volume_clusters += account_size(reserved, own) - account_size(v->reserved, v->num_own);
	v->num_own = own;
	v->reserved = reserved;
	int64_t b = atomic_fetch_add_explicit(&v->internal->balance, after - before, memory_order_acq_rel);
	promised_add(v->store, promise_of(b + after - before) - promise_of(b) - held);
	claim_end(v->store);
}

void live_account_filled(struct lvol_live_volume *v)
{
	/* Its balance has known since the claim. */
	v->num_own++;
	v->store->volume_clusters += v->num_own > v->reserved;
}

void live_account_open(struct lvol_live_volume *v, uint64_t own, uint64_t reserved)
{
	uint64_t w = atomic_load_explicit(&v->store->space, memory_order_relaxed);
	uint64_t most = own + (uint64_t)(PROMISES_MAX - (int64_t)live_space_promised(w));

	live_account_set(v, own, reserved < most ? reserved : most, NULL);
}

/* ---- Changing it ---- */

/* Another program may have left an attribute that counts as something else than it says. */
static bool reserve_is_stored(const struct lvol_live_volume *v, uint64_t clusters)
{
	const struct live_xattr *x = live_xattr_find(&v->internal->meta, LVOL_DESC_XATTR, LVOL_RESERVE_XATTR);
	struct lvol_error e;
	uint64_t stored = 0;
	bool good = x == NULL || lvol_reserve_decode(x->value, x->value_length, &stored, &e) == 0;

	return good && stored == clusters && v->reserved == clusters;
}

uint64_t live_xattr_reserve_get(const struct live_meta *m)
{
	uint64_t stored = 0;
	unsigned times = 0;
	struct lvol_error e;

	for (size_t i = 0; i < m->num_xattrs; i++) {
		const struct live_xattr *x = &m->xattrs[i];
		if (x->type == LVOL_DESC_XATTR && strcmp(x->name, LVOL_RESERVE_XATTR) == 0) {
			times++;
			(void)lvol_reserve_decode(x->value, x->value_length, &stored, &e); /* 0, if it is bad */
		}
	}
	return times == 1 ? lvol_reserve_counts(&m->flags, m->num_clusters, stored) : 0;
}

static int reserve_check(struct live_change *c)
{
	const struct lvol_live_volume *v = c->volume;

	if (v->read_only || v->internal->fixed) {
		return -EPERM;
	}
	return c->num_clusters > v->num_clusters ? -EINVAL : reserve_is_stored(v, c->num_clusters) ? 1 : 0;
}

int live_xattr_reserve_set(struct live_meta *m, uint64_t clusters)
{
	uint8_t value[LVOL_RESERVE_BYTES];
	/* A damaged store may have it more than once. */
	int rc = live_xattr_set(m, LVOL_DESC_XATTR, LVOL_RESERVE_XATTR, NULL, 0);

	lvol_reserve_encode(clusters, value);
	return rc != 0 || clusters == 0 ? rc
					: live_xattr_set(m, LVOL_DESC_XATTR, LVOL_RESERVE_XATTR, value, sizeof(value));
}

static int reserve_build(struct live_change *c, struct live_batch *b)
{
	const struct lvol_live_volume *v = c->volume;
	const struct live_meta *old = &v->internal->meta;
	int rc = live_account_hold(c, v, v->num_own, c->num_clusters);

	rc = rc != 0 ? rc : live_meta_copy(&c->metas[0], old, v->num_clusters);
	rc = rc != 0 ? rc : live_xattr_reserve_set(&c->metas[0], c->num_clusters);
	return rc != 0 ? rc : live_batch_meta(b, v->id, &c->metas[0], old);
}

static void reserve_publish(struct live_change *c)
{
	live_account_set(c->volume, c->volume->num_own, c->num_clusters, c);
	live_meta_take(c->volume, &c->metas[0]);
}

static const struct live_change_type reserve_type = {reserve_check, reserve_build, reserve_publish, "reserve"};

void lvol_live_volume_reserve(struct lvol_live_volume *v, uint64_t clusters, lvol_live_done done, void *arg)
{
	struct live_change *c = live_change_new(v->store, &reserve_type, arg);

	if (c == NULL) {
		done(arg, -ENOMEM);
		return;
	}
	c->done = done;
	c->volume = v;
	c->num_clusters = clusters;
	live_change_start(c, 0);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Which tracepoints are enabled. TRACE() tests trace_group_mask; the file has a copy for readers. */
#include <errno.h>
#include <string.h>

#include "trace/trace_internal.h"

/* In cache lines of its own: read by every TRACE(), and seldom written. */
uint64_t trace_group_mask[TRACE_NUM_GROUPS] __attribute__((aligned(64)));

static bool anything_enabled(void)
{
	uint64_t all = 0;

	for (unsigned g = 0; g < TRACE_NUM_GROUPS; g++) {
		all |= trace_group_mask[g];
	}
	return all != 0;
}

/* Groups without a tracepoint stay 0: readers take any bit for one that exists. */
static void mask_store(unsigned group, uint64_t mask)
{
	if (trace_group_info(group) == NULL) {
		mask = 0;
	}
	__atomic_store_n(&trace_group_mask[group], mask, __ATOMIC_RELAXED);
	__atomic_store_n(&trace_state.masks[group], mask, __ATOMIC_RELAXED);
}

/* Counts changes, and the time in which all tracepoints were disabled, for the LOSS section. */
static void account_change(bool was_on)
{
	struct trace_file_loss *l = trace_state.loss;
	uint64_t now = ticks_now();
	bool is_on = anything_enabled();

	l->mask_changes++;
	l->mask_change_tsc = now;
	if (was_on && !is_on) {
		l->off_count++;
		l->off_since_tsc = now;
	} else if (!was_on && is_on) {
		l->off_ticks += now - l->off_since_tsc;
		l->off_since_tsc = 0;
	}
}

static void (*masks_hook)(void);

void trace_set_masks_hook(void (*fn)(void))
{
	__atomic_store_n(&masks_hook, fn, __ATOMIC_RELAXED);
}

static int masks_change(const struct trace_masks *set, const struct trace_masks *clear)
{
	int rc = -ENODEV;

	pthread_mutex_lock(&trace_lock);
	if (trace_state.on) {
		bool was_on = anything_enabled();
		for (unsigned g = 0; g < TRACE_NUM_GROUPS; g++) {
			mask_store(g, (trace_group_mask[g] | set->group[g]) & ~clear->group[g]);
		}
		account_change(was_on);
		rc = 0;
	}
	pthread_mutex_unlock(&trace_lock);
	void (*hook)(void) = __atomic_load_n(&masks_hook, __ATOMIC_RELAXED);
	if (rc == 0 && hook != NULL) {
		hook();
	}
	return rc;
}

int trace_set_masks(const struct trace_masks *masks)
{
	static const struct trace_masks none;

	return masks_change(masks, &none);
}

int trace_clear_masks(const struct trace_masks *masks)
{
	static const struct trace_masks none;

	return masks_change(&none, masks);
}

int trace_set_tpoints(unsigned group, uint64_t mask)
{
	struct trace_masks set = {0};

	if (trace_group_info(group) == NULL) {
		return -ENOENT;
	}
	set.group[group] = mask;
	return trace_set_masks(&set);
}

int trace_clear_tpoints(unsigned group, uint64_t mask)
{
	struct trace_masks clear = {0};

	if (trace_group_info(group) == NULL) {
		return -ENOENT;
	}
	clear.group[group] = mask;
	return trace_clear_masks(&clear);
}

uint64_t trace_get_tpoint_mask(unsigned group)
{
	return group < TRACE_NUM_GROUPS ? __atomic_load_n(&trace_group_mask[group], __ATOMIC_RELAXED) : 0;
}

uint64_t trace_get_group_mask(void)
{
	uint64_t mask = 0;

	for (unsigned g = 0; g < TRACE_NUM_GROUPS; g++) {
		mask |= (uint64_t)(trace_get_tpoint_mask(g) != 0) << g;
	}
	return mask;
}

void trace_masks_reset(void)
{
	for (unsigned g = 0; g < TRACE_NUM_GROUPS; g++) {
		__atomic_store_n(&trace_group_mask[g], 0, __ATOMIC_RELAXED);
	}
}

int trace_clear(void)
{
	int rc = -ENODEV;

	pthread_mutex_lock(&trace_lock);
	if (trace_state.on) {
		__atomic_store_n(&trace_state.main->clear_tsc, ticks_now(), __ATOMIC_RELEASE);
		rc = 0;
	}
	pthread_mutex_unlock(&trace_lock);
	return rc;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* What operators are told of stores that fill: lvol/space.h says when. All of it on the control thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bdev_modules/lvol/internal.h"
#include "util/log.h"

/* A full store has to have free clusters for so long before it is told of: hosts that give up and take a cluster again
 * and again do not push other notifications out of their ring. */
#define SETTLED_US UINT64_C(1000000)

static bdev_lvol_space_fn observer;

void bdev_lvol_observe_space(bdev_lvol_space_fn fn)
{
	observer = fn;
}

/* The lowest threshold above `now`. */
static uint8_t space_above(const struct lvol_space *space, uint8_t now)
{
	for (size_t i = 0; i < space->num; i++) {
		if (space->percent[i] > now) {
			return space->percent[i];
		}
	}
	return LVOL_SPACE_FULL;
}

/* How many thresholds are not above `reached`. */
static size_t space_num_reached(const struct lvol_space *space, uint8_t reached)
{
	size_t n = 0;

	while (n < space->num && space->percent[n] <= reached) {
		n++;
	}
	return n;
}

/* Whether two lists have the same thresholds up to `reached`: then it may be compared with what is reached now. */
static bool space_is_same(const struct lvol_space *a, const struct lvol_space *b, uint8_t reached)
{
	size_t n = space_num_reached(a, reached);

	return n == space_num_reached(b, reached) && memcmp(a->percent, b->percent, n) == 0;
}

static void space_tell(const struct bdev_lvol_store *s, enum bdev_lvol_space_kind kind, uint8_t percent,
		       const char *reason)
{
	if (observer != NULL) {
		observer(s->name, &(struct bdev_lvol_space_news){.kind = kind, .percent = percent}, reason);
	}
}

static void space_tell_reached(const struct bdev_lvol_store *s, const char *usage)
{
	char reason[192];

	if (s->space_reached == LVOL_SPACE_FULL) {
		snprintf(reason, sizeof(reason), "%s: first writes fail until some are given back%s", usage,
			 lvol_live_info(s->live).reserved_clusters > 0 ? ", but for those that are reserved" : "");
		log_limited(LOG_LEVEL_ERROR, "lvol store %s is full: %s", s->name, reason);
		space_tell(s, BDEV_LVOL_SPACE_OUT, LVOL_SPACE_FULL, reason);
	} else {
		snprintf(reason, sizeof(reason), "%s: it has reached %u %%", usage, s->space_reached);
		log_limited(LOG_LEVEL_WARNING, "lvol store %s fills: %s", s->name, reason);
		space_tell(s, BDEV_LVOL_SPACE_LOW, s->space_reached, reason);
	}
}

static void space_tell_left(const struct bdev_lvol_store *s, uint8_t percent, const char *usage)
{
	char reason[192];

	snprintf(reason, sizeof(reason), "%s: it has left %u %%", usage, percent);
	log_limited(LOG_LEVEL_NOTICE, "lvol store %s has space again: %s", s->name, reason);
	space_tell(s, BDEV_LVOL_SPACE_REGAINED, percent, reason);
}

/* The thresholds that were reached are others now: whoever was told of them is told that none of them holds. */
static void space_tell_changed(const struct bdev_lvol_store *s, uint8_t percent, const char *usage)
{
	char reason[192];

	snprintf(reason, sizeof(reason),
		 "%s: its thresholds were changed, and what was told of %u %% and above holds no more", usage, percent);
	log_limited(LOG_LEVEL_NOTICE, "lvol store %s has other thresholds: %s", s->name, reason);
	space_tell(s, BDEV_LVOL_SPACE_REGAINED, percent, reason);
}

/* Once it is known that the store has `now` reached. s->space_seen: the thresholds that s->space_reached is of. */
static void space_update(struct bdev_lvol_store *s, uint8_t now, bool same, const char *usage)
{
	uint8_t before = s->space_reached, lowest = space_above(&s->space_seen, 0);
	/* That a store is full does not depend on its thresholds. */
	bool anew = !same && !(lowest == LVOL_SPACE_FULL && now == LVOL_SPACE_FULL);

	s->space_seen = s->space;
	s->space_reached = now;
	if (anew) {
		space_tell_changed(s, lowest, usage);
	}
	if (now > before || (anew && now != 0)) {
		space_tell_reached(s, usage);
	} else if (same && now < before) {
		space_tell_left(s, space_above(&s->space, now), usage);
	}
}

static void space_has_settled(void *arg);

/* settled: a store that was full has had free clusters for SETTLED_US. */
static void space_look(struct bdev_lvol_store *s, bool settled)
{
	const struct lvol_live_info info = lvol_live_info(s->live);
	uint64_t used = info.used_clusters, all = info.total_data_clusters;
	char usage[96];

	if (info.growing) {
		return; /* it tells when it has grown */
	}
	bool same = space_is_same(&s->space_seen, &s->space, s->space_reached);
	uint8_t now = lvol_space_reached(&s->space, same ? s->space_reached : 0, used, all);
	if (same && s->space_reached == LVOL_SPACE_FULL && now != LVOL_SPACE_FULL && !settled) {
		if (!s->space_settles) {
			s->space_timer = (struct thread_timer){.fn = space_has_settled, .arg = s};
			s->space_settles = true;
			thread_timer_start(&s->space_timer, SETTLED_US);
		}
		return;
	}
	lvol_space_stop(s);
	if (same && now == s->space_reached) { /* as after most first writes */
		s->space_seen = s->space;
		return;
	}
	snprintf(usage, sizeof(usage), "%lu of %lu clusters of %u KiB are in use%s", used, all,
		 info.cluster_bytes >> 10, info.reserved_clusters > 0 ? " or reserved" : "");
	space_update(s, now, same, usage);
}

static void space_has_settled(void *arg)
{
	struct bdev_lvol_store *s = arg;

	s->space_settles = false;
	space_look(s, true);
}

void lvol_space_stop(struct bdev_lvol_store *s)
{
	if (s->space_settles) {
		thread_timer_stop(&s->space_timer);
		s->space_settles = false;
	}
}

void lvol_space_changed(void *ctx)
{
	struct bdev_lvol_store *s = ctx;

	if (s->state == STORE_OPEN) {
		space_look(s, false);
	}
}

void lvol_space_open(struct bdev_lvol_store *s)
{
	struct lvol_error e;

	s->space = lvol_live_space(s->live, &e);
	if (e.text[0] != '\0') {
		log_warning("lvol store %s: %s; it has the usual ones", s->name, e.text);
	}
	space_look(s, false);
}

uint8_t bdev_lvol_store_space(const struct bdev_lvol_store *s, struct lvol_space *space)
{
	*space = s->space;
	return s->space_reached;
}

/* --- Other thresholds --- */

struct space_call {
	struct bdev_lvol_store *store;
	lvol_live_done done;
	void *arg;
};

static void space_set(void *arg, int status)
{
	struct space_call *call = arg;
	struct bdev_lvol_store *s = call->store;

	if (status == 0) {
		s->space = lvol_live_space(s->live, NULL);
		if (s->state == STORE_OPEN) {
			space_look(s, false);
		}
	}
	call->done(call->arg, status);
	free(call);
}

void bdev_lvol_store_set_space(struct bdev_lvol_store *s, const struct lvol_space *space, lvol_live_done done,
			       void *arg)
{
	struct space_call *call = malloc(sizeof(*call));

	if (call == NULL) {
		done(arg, -ENOMEM);
		return;
	}
	*call = (struct space_call){.store = s, .done = done, .arg = arg};
	lvol_live_set_space(s->live, space, space_set, call);
}

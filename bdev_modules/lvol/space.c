/* SPDX-License-Identifier: BSD-3-Clause */
/* What operators are told of stores that fill: lvol/space.h says when. All of it on the control thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bdev_modules/lvol/internal.h"
#include "util/log.h"

static bdev_lvol_space_fn observer;

void bdev_lvol_observe_space(bdev_lvol_space_fn fn)
{
	observer = fn;
}

/* The lowest threshold between what was reached and what is now. */
static uint8_t space_left(const struct lvol_space *space, uint8_t now)
{
	for (size_t i = 0; i < space->num; i++) {
		if (space->percent[i] > now) {
			return space->percent[i];
		}
	}
	return LVOL_SPACE_FULL;
}

static void space_tell(const struct bdev_lvol_store *s, const struct bdev_lvol_space_news *news, const char *usage)
{
	char reason[160];

	if (news->kind == BDEV_LVOL_SPACE_OUT) {
		snprintf(reason, sizeof(reason), "%s: first writes fail until some are given back", usage);
		log_limited(LOG_LEVEL_ERROR, "lvol store %s is full: %s", s->name, reason);
	} else if (news->kind == BDEV_LVOL_SPACE_LOW) {
		snprintf(reason, sizeof(reason), "%s: it has reached %u %%", usage, news->percent);
		log_limited(LOG_LEVEL_WARNING, "lvol store %s fills: %s", s->name, reason);
	} else {
		snprintf(reason, sizeof(reason), "%s: it has left %u %%", usage, news->percent);
		log_limited(LOG_LEVEL_NOTICE, "lvol store %s has space again: %s", s->name, reason);
	}
	if (observer != NULL) {
		observer(s->name, news, reason);
	}
}

/* anew: the thresholds are others than those that were reached before. */
static void space_change(struct bdev_lvol_store *s, uint8_t now, bool anew, const char *usage)
{
	bool rises = now != 0 && (anew || now > s->space_reached);
	const struct bdev_lvol_space_news news = {
		.kind = !rises                   ? BDEV_LVOL_SPACE_REGAINED
			: now == LVOL_SPACE_FULL ? BDEV_LVOL_SPACE_OUT
						 : BDEV_LVOL_SPACE_LOW,
		.percent = rises ? now : space_left(&s->space, now),
	};

	s->space_reached = now;
	space_tell(s, &news, usage);
}

static void space_look(struct bdev_lvol_store *s, bool anew)
{
	const struct lvol_live_info info = lvol_live_info(s->live);
	uint64_t spare = (uint64_t)info.free_clusters + info.coming_clusters, all = info.total_data_clusters;
	uint64_t used = spare < all ? all - spare : 0;
	uint8_t now = lvol_space_reached(&s->space, anew ? 0 : s->space_reached, used, all);
	char usage[96];

	if (now != s->space_reached && !info.growing) { /* the store tells when it has grown */
		snprintf(usage, sizeof(usage), "%lu of %lu clusters of %u KiB are in use", used, all,
			 info.cluster_bytes >> 10);
		space_change(s, now, anew, usage);
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
	space_look(s, true);
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
			space_look(s, true);
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

/* SPDX-License-Identifier: BSD-3-Clause */
/* Whose a store is: that of one process on one machine, while it is open. A process may meet a store twice, on two
 * devices; and one of its own that it has lost. */
#include <pthread.h>

#include "lvol/live_internal.h"

/* Those that this process has open, on any thread. */
static pthread_mutex_t owned_mutex = PTHREAD_MUTEX_INITIALIZER;
static SLIST_HEAD(, lvol_live) owned = SLIST_HEAD_INITIALIZER(owned);
static uint64_t openings;

static void live_owner_of(const struct lvol_live_user *user, struct lvol_owner *o)
{
	if (user->owner != NULL) {
		*o = *user->owner;
	} else {
		lvol_owner_self(o);
	}
}

static bool live_owner_has_open(uint64_t opening)
{
	const struct lvol_live *s;

	pthread_mutex_lock(&owned_mutex);
	SLIST_FOREACH (s, &owned, owned) {
		if (s->owner.opening == opening) {
			break;
		}
	}
	pthread_mutex_unlock(&owned_mutex);
	return s != NULL;
}

int live_owner_check(const struct lvol_live_user *user, const struct lvol_owner *found, struct lvol_error *e)
{
	struct lvol_owner self;

	live_owner_of(user, &self);
	uint64_t started = found->pid == 0 ? 0 : lvol_process_started(found->pid);
	if (found->pid == self.pid && found->started == self.started && !live_owner_has_open(found->opening)) {
		started = 0; /* of this process, which has lost it */
	}
	return lvol_owner_refuse(found, lvol_owner_judge(found, &self, started), e);
}

void live_owner_enter(struct lvol_live *s)
{
	live_owner_of(&s->user, &s->owner);
	pthread_mutex_lock(&owned_mutex);
	s->owner.opening = ++openings;
	SLIST_INSERT_HEAD(&owned, s, owned);
	pthread_mutex_unlock(&owned_mutex);
}

void live_owner_leave(struct lvol_live *s)
{
	pthread_mutex_lock(&owned_mutex);
	if (s->owner.opening != 0) {
		SLIST_REMOVE(&owned, s, lvol_live, owned);
	}
	pthread_mutex_unlock(&owned_mutex);
}

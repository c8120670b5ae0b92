/* SPDX-License-Identifier: BSD-3-Clause */
#include "bdev/owner.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "bdev/module_util.h"
#include "util/compiler.h"
#include "util/log.h"

/* A lease is checked at least this often: timers stand still while the system is suspended, CLOCK_BOOTTIME does not. */
#define LOOK_US  ((uint64_t)250000)
#define DRAIN_US 1000

static LIST_HEAD(, bdev_owner) owners = LIST_HEAD_INITIALIZER(owners);
static void (*end_observer)(const char *name, const char *reason);

uint64_t bdev_owner_now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

const char *bdev_owner_state_name(enum bdev_owner_state state)
{
	static const char *const names[] = {[BDEV_OWNER_STANDBY] = "standby",
					    [BDEV_OWNER_TAKING] = "taking",
					    [BDEV_OWNER_OWNER] = "owner",
					    [BDEV_OWNER_DRAINING] = "draining",
					    [BDEV_OWNER_GIVING] = "giving"};

	return names[state];
}

void bdev_owner_observe_ends(void (*fn)(const char *name, const char *reason))
{
	end_observer = fn;
}

/* The one function that changes the state. */
static void owner_set_state(struct bdev_owner *o, enum bdev_owner_state state)
{
	o->state = state;
	__atomic_store_n(&o->refuses, state != BDEV_OWNER_OWNER, __ATOMIC_RELEASE);
	thread_timer_stop(&o->timer);
}

static void owner_answer(struct bdev_owner *o, int rc, const char *error)
{
	bdev_owner_cb cb = o->cb;

	o->cb = NULL;
	if (cb != NULL) {
		cb(o->arg, rc, error);
	}
}

/* --- The end of ownership --- */

static void visit_in_flight(struct bdev *b, void *channel, void *arg)
{
	struct bdev_owner *o = arg;

	o->in_flight += o->ops->in_flight(channel);
}

/* Each channel is visited on its thread, so an I/O that passed bdev_owner_refuses() before has been counted. */
static void owner_drain(struct bdev_owner *o)
{
	o->in_flight = 0;
	bdev_visit_module_channels(o->bdev, visit_in_flight, o);
	if (o->in_flight != 0) {
		thread_timer_start(&o->timer, DRAIN_US);
		return;
	}
	owner_set_state(o, BDEV_OWNER_GIVING);
	o->ops->give(o);
}

static void owner_begin_drain(struct bdev_owner *o, const char *why)
{
	owner_set_state(o, BDEV_OWNER_DRAINING);
	if (why != NULL) {
		log_warning("bdev %s is no longer the owner of what it stores: %s", o->bdev->name, why);
		if (end_observer != NULL) {
			end_observer(o->bdev->name, why);
		}
	}
	owner_drain(o);
}

void bdev_owner_given(struct bdev_owner *o, int rc, const char *error)
{
	if (rc != 0) {
		log_error("bdev %s: its lock could not be given back: %s", o->bdev->name, error);
	}
	owner_set_state(o, BDEV_OWNER_STANDBY);
	owner_answer(o, rc, error);
}

void bdev_owner_end(struct bdev_owner *o, const char *why)
{
	if (o->is_set && o->state == BDEV_OWNER_OWNER) {
		owner_begin_drain(o, why);
	}
}

/* --- The lease --- */

static void owner_watch_lease(struct bdev_owner *o)
{
	uint64_t now = bdev_owner_now_us();

	if (o->until_us == BDEV_OWN_FOR_EVER) {
		return;
	}
	if (now >= o->until_us) {
		owner_begin_drain(o, "its lease has ended");
		return;
	}
	uint64_t left = o->until_us - now;
	thread_timer_start(&o->timer, left < LOOK_US ? left : LOOK_US);
}

static void owner_timer(void *arg)
{
	struct bdev_owner *o = arg;

	if (o->state == BDEV_OWNER_DRAINING) {
		owner_drain(o);
	} else if (o->state == BDEV_OWNER_OWNER) {
		owner_watch_lease(o);
	}
}

static void owner_become(struct bdev_owner *o)
{
	owner_set_state(o, BDEV_OWNER_OWNER);
	owner_watch_lease(o);
}

void bdev_owner_taken(struct bdev_owner *o, int rc, const char *error)
{
	char late[BDEV_ERROR_MAX];

	if (rc != 0) {
		owner_set_state(o, BDEV_OWNER_STANDBY);
		owner_answer(o, rc, error);
		return;
	}
	if (bdev_owner_now_us() >= o->until_us) { /* taking took longer than the lease: no I/O may begin */
		rc = bdev_error(late, -ETIME, "bdev '%.100s': its lease ended before its lock was taken",
				o->bdev->name);
		bdev_owner_cb cb = o->cb; /* NULL: nobody waits */
		void *arg = o->arg;

		o->cb = NULL;
		owner_begin_drain(o, "its lease ended before its lock was taken");
		if (cb != NULL) {
			cb(arg, rc, late);
		}
		return;
	}
	owner_become(o);
	owner_answer(o, 0, NULL);
}

/* --- Users --- */

static struct bdev_owner *owner_of_bdev(const struct bdev *b)
{
	struct bdev_owner *o;

	LIST_FOREACH (o, &owners, link) {
		if (o->bdev == b) {
			return o;
		}
	}
	return NULL;
}

static struct bdev_owner *owner_find(const char *name)
{
	return owner_of_bdev(bdev_find(name));
}

bool bdev_has_owner(const struct bdev *b)
{
	return owner_of_bdev(b) != NULL;
}

static int owner_say_none(const char *name, char *error)
{
	return bdev_error(error, -ENODEV, "name: there is no bdev '%.200s' that was made with standby", name);
}

static int owner_say_busy(const struct bdev_owner *o, char *error)
{
	return bdev_error(error, -EBUSY, "name '%.100s': an operation is under way: it is %s", o->bdev->name,
			  bdev_owner_state_name(o->state));
}

void bdev_own(const char *name, uint64_t until_us, bool fence, bdev_owner_cb cb, void *arg)
{
	struct bdev_owner *o = owner_find(name);
	char error[BDEV_ERROR_MAX];
	int rc = o == NULL                                                        ? owner_say_none(name, error)
		 : o->state == BDEV_OWNER_TAKING || o->state == BDEV_OWNER_GIVING ? owner_say_busy(o, error)
										  : 0;

	if (rc == 0 && bdev_owner_now_us() >= until_us) {
		rc = bdev_error(error, -ETIME, "until_us %lu: has passed: it is %lu now", until_us,
				bdev_owner_now_us());
	}
	if (rc != 0) {
		cb(arg, rc, error);
		return;
	}
	o->until_us = until_us;
	if (o->state == BDEV_OWNER_STANDBY) {
		o->cb = cb;
		o->arg = arg;
		owner_set_state(o, BDEV_OWNER_TAKING);
		o->ops->take(o, until_us, fence);
		return;
	}
	if (o->state == BDEV_OWNER_DRAINING) { /* it still has the lock */
		bdev_error(error, -ECANCELED, "name '%.100s': was made the owner again", name);
		owner_answer(o, -ECANCELED, error);
	}
	owner_become(o);
	cb(arg, 0, NULL);
}

void bdev_disown(const char *name, bdev_owner_cb cb, void *arg)
{
	struct bdev_owner *o = owner_find(name);
	char error[BDEV_ERROR_MAX];

	if (o == NULL) {
		cb(arg, owner_say_none(name, error), error);
	} else if (o->state == BDEV_OWNER_TAKING || o->cb != NULL) {
		cb(arg, owner_say_busy(o, error), error);
	} else if (o->state == BDEV_OWNER_STANDBY) {
		cb(arg, 0, NULL);
	} else {
		o->cb = cb;
		o->arg = arg;
		if (o->state == BDEV_OWNER_OWNER) {
			owner_begin_drain(o, NULL);
		}
	}
}

void bdev_owner_waits_for(const char *name, char *text, size_t size)
{
	const struct bdev_owner *o = owner_find(name);

	if (o == NULL) {
		return;
	}
	if (o->state == BDEV_OWNER_DRAINING) {
		snprintf(text, size, "%u I/Os of bdev '%.100s' that are under way", o->in_flight, name);
	} else if ((o->state == BDEV_OWNER_TAKING || o->state == BDEV_OWNER_GIVING) && o->ops->waits_for != NULL) {
		o->ops->waits_for(o, text, size);
	}
}

bool bdev_owner_get(size_t n, struct bdev_owner_info *info)
{
	const struct bdev_owner *o;

	LIST_FOREACH (o, &owners, link) {
		if (n-- == 0) {
			*info = (struct bdev_owner_info){.name = o->bdev->name,
							 .state = o->state,
							 .until_us = o->until_us,
							 .in_flight = o->in_flight};
			return true;
		}
	}
	return false;
}

/* --- Modules --- */

void bdev_owner_init(struct bdev_owner *o, struct bdev *b, const struct bdev_owner_ops *ops)
{
	*o = (struct bdev_owner){
		.refuses = true, .is_set = true, .bdev = b, .ops = ops, .timer = {.fn = owner_timer, .arg = o}};
	LIST_INSERT_HEAD(&owners, o, link);
}

void bdev_owner_fini(struct bdev_owner *o)
{
	char error[BDEV_ERROR_MAX];

	if (!o->is_set) {
		return;
	}
	o->is_set = false;
	LIST_REMOVE(o, link);
	thread_timer_stop(&o->timer);
	bdev_error(error, -ENODEV, "name '%.200s': the bdev is being deleted", o->bdev->name);
	owner_answer(o, -ENODEV, error);
}

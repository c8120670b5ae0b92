/* SPDX-License-Identifier: BSD-3-Clause */
/* A reactor's sleep, and how it is woken.
 *
 * No wake-up is lost. A sender of work (a message, a request, stop) does
 *     store work; fence; load sleeping; if set, clear it and write the eventfd
 * and the reactor, before it waits, does
 *     store sleeping = 1; fence; load work; if there is any, do not wait.
 * The fences are sequentially consistent, so at least one side sees the other's store. Sending to a reactor that is
 * awake makes no system call; of several senders to a sleeping reactor, one makes it. Descriptors are level-triggered,
 * so an event between arming and waiting ends the wait at once. */
#include "thread/thread_internal.h"

#include <errno.h>
#include <rte_rcu_qsbr.h>
#include <unistd.h>

void reactor_notify(struct reactor *r)
{
	/* Sequentially consistent; pairs with the fence in reactor_sleep. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&r->sleeping, __ATOMIC_RELAXED) != 0 &&
	    __atomic_exchange_n(&r->sleeping, 0, __ATOMIC_RELAXED) != 0) {
		uint64_t one = 1;
		while (write(r->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR) {
		}
	}
}

/* While t moves, a sender may read the old reactor here and wake that one, in vain. The message is not lost: the new
 * reactor looks at t's ring when it gets t, and again after a fence before it sleeps. The field t->reactor is changed
 * on the old reactor (reactor_detach()), so a reactor that finds itself in the field does run t. */
void reactor_notify_thread(struct thread *t)
{
	if (__atomic_load_n(&t->reactor, __ATOMIC_RELAXED) == reactor_self && reactor_self != NULL) {
		return;
	}
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	reactor_notify(__atomic_load_n(&t->reactor, __ATOMIC_ACQUIRE));
}

bool reactor_must_stop(const struct reactor *r)
{
	return __atomic_load_n(&r->stop, __ATOMIC_RELAXED) && !r->waiting;
}

static bool reactor_has_work(const struct reactor *r)
{
	const struct thread *t;

	if (__atomic_load_n(&r->request, __ATOMIC_RELAXED) != NULL || reactor_must_stop(r)) {
		return true;
	}
	TAILQ_FOREACH (t, &r->threads, reactor_link) {
		if (__atomic_load_n(&t->ring->prod.tail, __ATOMIC_RELAXED) != t->ring->cons.tail ||
		    __atomic_load_n(&t->posted, __ATOMIC_RELAXED) != NULL) {
			return true;
		}
	}
	return false;
}

bool reactor_may_sleep(const struct reactor *r)
{
	const struct thread *t;

	TAILQ_FOREACH (t, &r->threads, reactor_link) {
		if (t->sleepless > 0) {
			return false;
		}
	}
	return true;
}

static bool reactor_arm(struct reactor *r)
{
	struct thread *t;
	bool work = false;

	TAILQ_FOREACH (t, &r->threads, reactor_link) {
		thread_self = t;
		if (pollers_arm(t)) {
			work = true;
			break;
		}
	}
	return work;
}

static uint64_t reactor_deadline(const struct reactor *r)
{
	const struct thread *t;
	uint64_t deadline = UINT64_MAX;

	TAILQ_FOREACH (t, &r->threads, reactor_link) {
		uint64_t next = timers_next(t);
		deadline = next < deadline ? next : deadline;
	}
	if (deadline > r->now + absence_min_ticks && reactor_watches_absence(r)) {
		deadline = r->now + absence_min_ticks;
	}
	return deadline;
}

/* Counts the time slept as idle time of the reactor and, in equal shares, of its threads. */
static void reactor_count_sleep(struct reactor *r, uint64_t ticks)
{
	struct thread *t;

	r->sleeps++;
	r->idle_ticks += ticks;
	TAILQ_FOREACH (t, &r->threads, reactor_link) {
		t->idle_ticks += ticks / r->thread_count;
	}
}

/* Waits for a descriptor, a message or the deadline. Returns which kind of work (WORK_*) was done on descriptors. */
static unsigned reactor_wait(struct reactor *r, uint64_t deadline)
{
	struct epoll_event events[FD_BATCH];
	uint64_t before = r->now, now = reactor_read_clock(r);

	if (deadline <= now) {
		return 0;
	}
	if (!r->control) {
		rte_rcu_qsbr_thread_offline(reactor_quiescence, r->index);
	}
	int n = fd_sources_wait(r, events, deadline == UINT64_MAX ? UINT64_MAX : deadline - now);
	if (!r->control) {
		rte_rcu_qsbr_thread_online(reactor_quiescence, r->index);
	}
	/* From now on senders need not wake this reactor. Relaxed, because a needless wake-up does no harm. */
	__atomic_store_n(&r->sleeping, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&r->now, reactor_read_clock(r), __ATOMIC_RELAXED);
	reactor_count_sleep(r, r->now - before);
	idle_spell_slept(&r->spell, r->awake_since, r->now);
	uint64_t absent = absence_of_sleep(now, deadline, r->now);
	if (unlikely(absent != 0)) {
		reactor_tell_absence(r, absent);
	}
	reactor_enter_round(r);
	unsigned served = fd_sources_serve(r, events, n);
	reactor_leave_round(r);
	return served > 0 ? WORK_BUSY | WORK_AWAKE : 0;
}

unsigned reactor_sleep(struct reactor *r, uint64_t deadline)
{
	unsigned work = 0;

	if (reactor_arm(r)) {
		return WORK_AWAKE;
	}
	uint64_t timer = reactor_deadline(r);
	__atomic_store_n(&r->sleeping, 1, __ATOMIC_RELAXED);
	/* Sequentially consistent; pairs with the fence in reactor_notify. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!reactor_has_work(r)) {
		work = reactor_wait(r, timer < deadline ? timer : deadline);
	}
	__atomic_store_n(&r->sleeping, 0, __ATOMIC_RELAXED);
	return work;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptors: those of threads (fd_source) and those that wake pollers, in their reactor's epoll set.
 *
 * One that epoll refuses when its thread moves, or when its events change (out of memory; the kernel's limit of
 * watches) is not lost. Its owner learns of its events from poll(), every millisecond, for which the reactor stays
 * awake, until epoll takes it. A poller is called all the time then. */
#include "thread/thread_internal.h"

#include "util/log.h"
#include "usdt/usdt.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <poll.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define NS_IN_S  1000000000ULL
#define NS_IN_MS 1000000ULL

_Static_assert(EPOLLIN == POLLIN && EPOLLOUT == POLLOUT && EPOLLPRI == POLLPRI && EPOLLERR == POLLERR &&
		       EPOLLHUP == POLLHUP,
	       "epoll's events are those of poll()");

static int epoll_change(struct reactor *r, int op, struct fd_source *s)
{
	struct epoll_event e = {.events = s->events, .data.ptr = s};

	return epoll_ctl(r->epoll_fd, op, s->fd, &e);
}

static void fd_source_set_refused(struct fd_source *s, struct reactor *r, bool refused)
{
	s->refused = refused;
	if (refused) {
		TAILQ_INSERT_TAIL(&r->refused, s, refused_link);
		r->fd_refused++;
		r->fd_count++; /* also that of a poller: the reactor tries it again when it looks at descriptors */
		s->thread->sleepless++;
	} else {
		TAILQ_REMOVE(&r->refused, s, refused_link);
		r->fd_refused--;
		r->fd_count--;
		s->thread->sleepless--;
	}
}

static void fd_source_watch(struct fd_source *s, struct reactor *r, int op)
{
	if (epoll_change(r, op, s) == 0) {
		return;
	}
	log_limited(LOG_LEVEL_WARNING, "descriptor %d (%s) of thread %s: epoll: %s: it is polled for without sleeping",
		    s->fd, s->name, s->thread->name, strerror(errno));
	if (op == EPOLL_CTL_MOD) {
		(void)epoll_change(r, EPOLL_CTL_DEL, s); /* its old events are not wanted */
	}
	fd_source_set_refused(s, r, true);
}

static void fd_source_unwatch(struct fd_source *s, struct reactor *r)
{
	if (s->refused) {
		fd_source_set_refused(s, r, false);
	} else if (epoll_change(r, EPOLL_CTL_DEL, s) != 0) {
		log_error("descriptor %d (%s): epoll: %s", s->fd, s->name, strerror(errno));
	}
}

struct fd_source *fd_source_add_for(struct thread *t, int fd, uint32_t events, fd_source_fn fn, void *arg,
				    const char *name, bool counted)
{
	struct fd_source *s = calloc(1, sizeof(*s));
	struct epoll_event e = {.events = events, .data.ptr = s};
	struct reactor *r = reactor_self;

	if (s == NULL) {
		errno = ENOMEM;
		return NULL;
	}
	s->fd = fd;
	s->events = events;
	s->fn = fn;
	s->arg = arg;
	s->thread = t;
	s->counted = counted;
	snprintf(s->name, sizeof(s->name), "%s", name);
	if (epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, fd, &e) != 0) {
		int err = errno;
		log_error("descriptor %d (%s) cannot be watched: %s", fd, name, strerror(err));
		free(s);
		errno = err;
		return NULL;
	}
	r->fd_count += counted;
	TAILQ_INSERT_TAIL(&t->sources, s, link);
	return s;
}

struct fd_source *fd_source_add(int fd, uint32_t events, fd_source_fn fn, void *arg, const char *name)
{
	assert(thread_self != NULL);
	return fd_source_add_for(thread_self, fd, events, fn, arg, name, true);
}

void fd_source_modify(struct fd_source *s, uint32_t events)
{
	assert(s->thread == thread_self);
	if (s->events != events) {
		s->events = events;
		if (!s->refused) {
			fd_source_watch(s, reactor_self, EPOLL_CTL_MOD);
		}
	}
}

void fd_source_remove(struct fd_source **sp)
{
	struct fd_source *s = *sp;
	struct reactor *r = reactor_self;

	if (s == NULL) {
		return;
	}
	assert(s->thread == thread_self);
	*sp = NULL;
	fd_source_unwatch(s, r);
	r->fd_count -= s->counted;
	TAILQ_REMOVE(&s->thread->sources, s, link);
	s->fn = NULL;
	TAILQ_INSERT_TAIL(&r->dead, s, link);
	if (!r->serving) { /* the batch may have an event of it, and frees it at the end */
		fd_sources_free_dead(r);
	}
}

void fd_sources_free_dead(struct reactor *r)
{
	struct fd_source *s;

	while ((s = TAILQ_FIRST(&r->dead)) != NULL) {
		TAILQ_REMOVE(&r->dead, s, link);
		free(s);
	}
}

void fd_sources_attach(struct thread *t, struct reactor *r)
{
	struct fd_source *s;

	TAILQ_FOREACH (s, &t->sources, link) {
		fd_source_watch(s, r, EPOLL_CTL_ADD);
		r->fd_count += s->counted;
	}
}

void fd_sources_detach(struct thread *t, struct reactor *r)
{
	struct fd_source *s;

	TAILQ_FOREACH (s, &t->sources, link) {
		fd_source_unwatch(s, r);
		r->fd_count -= s->counted;
	}
}

/* Kernels before 5.11 have no epoll_pwait2 (nor has valgrind): then timeouts are rounded up to milliseconds. */
static int epoll_wait_ns(int epoll_fd, struct epoll_event *events, int max, uint64_t timeout_ns)
{
	static bool missing; /* read and set by all reactors; atomic */

	if (timeout_ns == 0) {
		return epoll_wait(epoll_fd, events, max, 0);
	}
	if (!__atomic_load_n(&missing, __ATOMIC_RELAXED)) {
		struct timespec t = {.tv_sec = (time_t)(timeout_ns / NS_IN_S), .tv_nsec = (long)(timeout_ns % NS_IN_S)};
		int n = epoll_pwait2(epoll_fd, events, max, timeout_ns == UINT64_MAX ? NULL : &t, NULL);
		if (n >= 0 || errno != ENOSYS) {
			return n;
		}
		__atomic_store_n(&missing, true, __ATOMIC_RELAXED);
	}
	uint64_t ms = timeout_ns / NS_IN_MS + 1;
	return epoll_wait(epoll_fd, events, max, timeout_ns == UINT64_MAX || ms > INT32_MAX ? -1 : (int)ms);
}

static bool fd_source_serve(struct fd_source *s, uint32_t events)
{
	if (s == NULL || s->fn == NULL || !s->counted) {
		return false; /* the wake-up descriptor, one removed in this batch, a poller's */
	}
	thread_self = s->thread;
	USDT(interrupt_fd_process, s->name, s->fd, s->fn, s->arg);
	s->fn(s->arg, events);
	return true;
}

int fd_sources_wait(struct reactor *r, struct epoll_event *events, uint64_t timeout_ticks)
{
	return epoll_wait_ns(r->epoll_fd, events, FD_BATCH,
			     timeout_ticks == UINT64_MAX ? UINT64_MAX : env_ticks_to_ns(timeout_ticks));
}

unsigned fd_sources_serve(struct reactor *r, const struct epoll_event *events, int n)
{
	struct thread *before = thread_self;
	unsigned served = 0;

	r->serving = true;
	for (int i = 0; i < n; i++) {
		served += fd_source_serve(events[i].data.ptr, events[i].events);
	}
	r->serving = false;
	thread_self = before;
	fd_sources_free_dead(r);
	return served;
}

static unsigned fd_source_look(struct fd_source *s, struct reactor *r)
{
	struct pollfd p = {.fd = s->fd, .events = (short)s->events};

	if (epoll_change(r, EPOLL_CTL_ADD, s) == 0) {
		fd_source_set_refused(s, r, false);
		return 0; /* its events come from epoll */
	}
	if (poll(&p, 1, 0) <= 0) {
		return 0;
	}
	uint32_t events = p.revents & POLLNVAL ? EPOLLERR : (uint32_t)(uint16_t)p.revents;
	return fd_source_serve(s, events);
}

/* Some of them in turn, the first one anew after each: what is served may remove any of them. */
static unsigned fd_sources_look_at_refused(struct reactor *r)
{
	struct thread *before = thread_self;
	struct fd_source *s;
	unsigned served = 0;

	r->serving = true;
	for (uint32_t i = r->fd_refused < FD_BATCH ? r->fd_refused : FD_BATCH;
	     i > 0 && (s = TAILQ_FIRST(&r->refused)) != NULL; i--) {
		TAILQ_REMOVE(&r->refused, s, refused_link);
		TAILQ_INSERT_TAIL(&r->refused, s, refused_link);
		served += fd_source_look(s, r);
	}
	r->serving = false;
	thread_self = before;
	fd_sources_free_dead(r);
	return served;
}

unsigned fd_sources_look(struct reactor *r)
{
	struct epoll_event events[FD_BATCH];
	unsigned served = fd_sources_serve(r, events, fd_sources_wait(r, events, 0));

	return unlikely(r->fd_refused > 0) ? served + fd_sources_look_at_refused(r) : served;
}

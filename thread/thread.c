/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads: made, placed, moved and destroyed by the control thread. */
#include "thread/thread_internal.h"

#include "trace/trace.h"
#include "util/log.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* How many messages a thread that is being destroyed may run before that fails. */
#define RETIRE_MESSAGES_MAX (4 * MESSAGE_RING_SIZE)

static struct thread_list threads = TAILQ_HEAD_INITIALIZER(threads);
static struct thread *control;
static uint64_t last_id;

static void thread_free(struct thread *t)
{
	free(t->ring);
	free(t);
}

static struct thread *thread_alloc(const char *name, const cpu_set_t *mask)
{
	struct thread *t = aligned_alloc(RTE_CACHE_LINE_SIZE, sizeof(*t));

	if (t == NULL) {
		return NULL;
	}
	memset(t, 0, sizeof(*t));
	TAILQ_INIT(&t->active);
	TAILQ_INIT(&t->timed);
	TAILQ_INIT(&t->paused);
	TAILQ_INIT(&t->channels);
	TAILQ_INIT(&t->sources);
	SLIST_INIT(&t->absences);
	snprintf(t->name, sizeof(t->name), "%s", name);
	t->mask = *mask;
	t->ring = message_ring_create();
	if (t->ring == NULL) {
		thread_free(t);
		return NULL;
	}
	return t;
}

static void thread_enter(struct thread *t)
{
	t->id = ++last_id;
	t->trace_owner = trace_owner_register(TRACE_OWNER_THREAD, t->name);
	TAILQ_INSERT_TAIL(&threads, t, link);
}

static void thread_leave(struct thread *t)
{
	TAILQ_REMOVE(&threads, t, link);
	trace_owner_release(t->trace_owner);
	thread_free(t);
}

static void lcores_all(cpu_set_t *mask)
{
	unsigned lcore;

	CPU_ZERO(mask);
	ENV_FOREACH_LCORE (lcore) {
		CPU_SET(lcore, mask);
	}
}

/* The argument of a request to a reactor. */
struct move {
	struct thread *thread;
	struct reactor *from, *to;
	const char *leak; /* out: the name of an object that keeps the thread from being destroyed */
	const char *leak_name;
};

static void thread_move_in(void *arg)
{
	struct move *m = arg;

	reactor_attach(m->to, m->thread);
}

static void thread_move_out(void *arg)
{
	struct move *m = arg;

	reactor_detach(m->from, m->thread, m->to);
}

/* NULL, and a line in the log: there is none. */
static struct reactor *reactor_choose_for(const char *name, const cpu_set_t *mask)
{
	struct reactor *r = reactor_choose(mask);
	char cores[ENV_CORES_MAX];

	if (r == NULL) {
		env_cores_format(mask, cores);
		log_error("thread %s: none of the cores %s has a reactor", name, cores);
		errno = EINVAL;
	}
	return r;
}

/* r: where it begins; NULL: errno is set. */
static struct thread *thread_create_on(struct reactor *r, const char *name, const cpu_set_t *mask)
{
	if (r == NULL) {
		return NULL;
	}
	struct thread *t = thread_alloc(name, mask);
	if (t == NULL) {
		errno = ENOMEM;
		return NULL;
	}
	thread_enter(t);
	t->reactor = r;
	r->assigned++;
	reactor_call(r, thread_move_in, &(struct move){.thread = t, .to = r});
	return t;
}

struct thread *thread_create(const char *name, const cpu_set_t *mask)
{
	cpu_set_t all;

	assert(thread_self == control);
	if (mask == NULL) {
		lcores_all(&all);
		mask = &all;
	}
	return thread_create_on(reactor_choose_for(name, mask), name, mask);
}

struct thread *thread_create_at(const char *name, unsigned lcore, const cpu_set_t *mask)
{
	cpu_set_t only;

	assert(thread_self == control && CPU_ISSET(lcore, mask));
	CPU_ZERO(&only);
	CPU_SET(lcore, &only);
	return thread_create_on(reactor_choose_for(name, &only), name, mask);
}

/* What kind of object t still owns, and its name; or NULL. */
static const char *thread_leak(const struct thread *t, const char **name)
{
	const struct poller_list *lists[] = {&t->active, &t->timed, &t->paused};

	for (unsigned i = 0; i < RTE_DIM(lists); i++) {
		if (!TAILQ_EMPTY(lists[i])) {
			*name = TAILQ_FIRST(lists[i])->name;
			return "poller";
		}
	}
	if (!TAILQ_EMPTY(&t->channels)) {
		*name = TAILQ_FIRST(&t->channels)->dev->name;
		return "channel of";
	}
	if (!TAILQ_EMPTY(&t->sources)) {
		*name = TAILQ_FIRST(&t->sources)->name;
		return "descriptor";
	}
	*name = "";
	if (!SLIST_EMPTY(&t->absences)) {
		return "watch for absence";
	}
	return t->timer_count > 0 ? "running timer" : NULL;
}

/* On the thread's reactor: runs the messages that the thread has been sent, and then takes it off the reactor. */
static void thread_retire(void *arg)
{
	struct move *m = arg;
	struct thread *t = m->thread;
	unsigned total = 0, n;

	thread_self = t;
	do {
		n = messages_run(t);
		total += n;
	} while (n > 0 && total < RETIRE_MESSAGES_MAX);
	thread_self = NULL;
	m->leak = thread_leak(t, &m->leak_name);
	if (m->leak == NULL && n > 0) {
		m->leak = "messages without end";
	}
	if (m->leak == NULL) {
		reactor_detach(m->from, t, m->from);
	}
}

int thread_destroy(struct thread *t)
{
	struct move m = {.thread = t, .from = t->reactor};

	assert(thread_self == control && t != control);
	reactor_call(m.from, thread_retire, &m);
	if (m.leak != NULL) {
		log_error("thread %s cannot be destroyed: it still has a %s %s", t->name, m.leak, m.leak_name);
		return -EBUSY;
	}
	m.from->assigned--;
	thread_leave(t);
	return 0;
}

void thread_move(struct thread *t, struct reactor *to)
{
	struct move m = {.thread = t, .from = t->reactor, .to = to};

	assert(thread_self == control && t != control && m.from != to);
	TRACE(SCHEDULER_MOVE_THREAD, t->trace_owner, 0, (uintptr_t)t, m.from->lcore, m.to->lcore);
	reactor_call(m.from, thread_move_out, &m);
	reactor_call(m.to, thread_move_in, &m);
	m.from->assigned--;
	m.to->assigned++;
}

int thread_set_cpumask(struct thread *t, const cpu_set_t *mask)
{
	struct reactor *to = reactor_choose(mask);

	assert(thread_self == control);
	if (t == control || to == NULL) {
		return -EINVAL;
	}
	t->mask = *mask;
	if (!reactor_allowed(t->reactor, mask)) {
		thread_move(t, to);
	}
	return 0;
}

struct thread *thread_control(void)
{
	return control;
}

struct thread *thread_current(void)
{
	return thread_self;
}

uint64_t thread_id(const struct thread *t)
{
	return t->id;
}

const char *thread_name(const struct thread *t)
{
	return t->name;
}

struct thread *thread_next(const struct thread *after)
{
	return after == NULL ? TAILQ_FIRST(&threads) : TAILQ_NEXT(after, link);
}

struct thread *thread_by_id(uint64_t id)
{
	struct thread *t;

	TAILQ_FOREACH (t, &threads, link) {
		if (t->id == id) {
			break;
		}
	}
	return t;
}

int thread_lib_start(const struct thread_lib_opts *opts)
{
	cpu_set_t none;
	int rc = reactors_start(opts);

	if (rc != 0) {
		return rc;
	}
	CPU_ZERO(&none);
	last_id = 0;
	control = thread_alloc("control", &none);
	if (control == NULL) {
		reactors_stop();
		return -ENOMEM;
	}
	control->reactor = reactor_control();
	thread_enter(control);
	reactor_attach(reactor_control(), control);
	thread_self = control;
	absence_start();
	load_start();
	scheduler_start();
	return 0;
}

void thread_lib_stop(void)
{
	struct thread *t;

	assert(thread_self == control && !reactor_in_round());
	for (unsigned total = 0, n = 1; n > 0 && total < RETIRE_MESSAGES_MAX; total += n) {
		n = messages_run(control);
	}
	while ((t = TAILQ_NEXT(control, link)) != NULL) {
		log_error("thread %s is still there at the end", t->name);
		TAILQ_REMOVE(&threads, t, link);
	}
	scheduler_stop();
	load_stop();
	absence_stop();
	const char *name, *leak = thread_leak(control, &name);
	if (leak != NULL) {
		log_error("the control thread still has a %s %s at the end", leak, name);
	}
	reactors_stop();
	thread_leave(control);
	control = thread_self = NULL;
}

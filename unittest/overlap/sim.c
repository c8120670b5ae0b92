/* SPDX-License-Identifier: BSD-3-Clause */
#include "unittest/overlap/sim.h"

#include "thread/thread_internal.h"
#include "thread/worker.h"

#include <assert.h>
#include <errno.h>
#include <rte_ring.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#ifndef ENV_TICKS_VIRTUAL
#error "link this into builds with virtual time only"
#endif

#define STEP_NS        300 /* of virtual time that a step takes, on average */
#define WEIGHTS_STEPS  48  /* after so many steps some threads become slower and others faster */
#define CALL_STEPS     6   /* up to so many steps of others before a call is served */
#define CONTROL_STEPS  5   /* a thread of a reactor runs this many times as often as a worker's job */
#define WEIGHT_DEFAULT 4
#define REACTORS_MAX   64
#define START_TICKS    (UINT64_C(1) << 40)

struct sim_message {
	STAILQ_ENTRY(sim_message) link;
	uint64_t seq;
	thread_fn fn;
	void *arg;
	struct thread_msg *posted; /* NULL: sent, with fn and arg */
};
STAILQ_HEAD(sim_queue, sim_message);

/* thread->ring points here. The ring itself stays empty; only its statistics are read. */
struct sim_ring {
	struct rte_ring ring;
	struct sim_queue sent, posted;
	unsigned count, weight;
};

__thread struct thread *thread_self;
__thread struct reactor *reactor_self;
__thread uint64_t thread_round_ticks;

static struct reactor *reactors; /* [count]; the last one is the control thread's */
static unsigned reactor_count;
static uint64_t absent_ticks[REACTORS_MAX];             /* by reactor: since it ran last */
static uint64_t random_state, message_seq, steps, turn; /* turn: since sim_reset() */
static bool control_exit;

/* What a worker thread would be working on. */
struct sim_job {
	struct worker_job *job;
	STAILQ_ENTRY(sim_job) link;
};
static STAILQ_HEAD(, sim_job) jobs = STAILQ_HEAD_INITIALIZER(jobs);

static uint64_t sim_random(void)
{
	uint64_t z = (random_state += 0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static unsigned sim_below(unsigned n)
{
	return (unsigned)(sim_random() % n);
}

void sim_seed(uint64_t seed)
{
	random_state = seed;
}

static struct sim_ring *sim_ring_of(const struct thread *t)
{
	return (struct sim_ring *)(void *)t->ring;
}

void sim_reset(void)
{
	random_state = turn = 0;
	for (struct thread *t = thread_next(NULL); t != NULL; t = thread_next(t)) {
		sim_ring_of(t)->weight = WEIGHT_DEFAULT;
	}
}

/* ---- Messages ---- */

struct rte_ring *message_ring_create(void)
{
	struct sim_ring *r = aligned_alloc(RTE_CACHE_LINE_SIZE, RTE_CACHE_LINE_ROUNDUP(sizeof(*r)));

	memset(r, 0, sizeof(*r));
	STAILQ_INIT(&r->sent);
	STAILQ_INIT(&r->posted);
	r->ring.mask = MESSAGE_RING_SIZE - 1;
	r->ring.capacity = MESSAGE_RING_SIZE - 1;
	r->weight = WEIGHT_DEFAULT;
	return &r->ring;
}

static void sim_put(struct thread *t, struct sim_queue *q, const struct sim_message *proto)
{
	struct sim_message *m = malloc(sizeof(*m));

	*m = *proto;
	m->seq = ++message_seq;
	STAILQ_INSERT_TAIL(q, m, link);
	sim_ring_of(t)->count++;
}

int thread_send(struct thread *t, thread_fn fn, void *arg)
{
	struct sim_ring *r = sim_ring_of(t);

	if (r->count >= MESSAGE_RING_SIZE - 1) {
		return -ENOBUFS;
	}
	sim_put(t, &r->sent, &(struct sim_message){.fn = fn, .arg = arg});
	return 0;
}

void thread_post(struct thread *t, struct thread_msg *msg, void (*fn)(struct thread_msg *msg))
{
	msg->fn = fn;
	msg->next = NULL;
	sim_put(t, &sim_ring_of(t)->posted, &(struct sim_message){.posted = msg});
}

/* What was posted before something was sent runs before it; what was posted later may. */
static bool sim_take_posted(const struct sim_ring *r)
{
	const struct sim_message *sent = STAILQ_FIRST(&r->sent), *posted = STAILQ_FIRST(&r->posted);

	return posted != NULL && (sent == NULL || posted->seq < sent->seq || sim_below(4) == 0);
}

/* Runs one message of t, on t. */
static bool sim_run_message(struct thread *t)
{
	struct sim_ring *r = sim_ring_of(t);
	struct sim_queue *q = sim_take_posted(r) ? &r->posted : &r->sent;
	struct sim_message *m = STAILQ_FIRST(q), copy;

	if (m == NULL) {
		return false;
	}
	STAILQ_REMOVE_HEAD(q, link);
	r->count--;
	copy = *m;
	free(m);
	if (copy.posted != NULL) {
		copy.posted->fn(copy.posted);
	} else {
		copy.fn(copy.arg);
	}
	return true;
}

unsigned messages_run(struct thread *t)
{
	unsigned n = 0;

	while (n < MESSAGE_BATCH && sim_run_message(t)) {
		n++;
	}
	return n;
}

unsigned sim_pending(void)
{
	unsigned n = 0;

	for (struct thread *t = thread_next(NULL); t != NULL; t = thread_next(t)) {
		n += sim_ring_of(t)->count;
	}
	return n;
}

void thread_set_wait_hook(void (*fn)(void), uint64_t period_us)
{
}

uint64_t wait_look(uint64_t since)
{
	return since;
}

/* ---- Steps ---- */

/* What a reactor finds out first when it runs again. */
static void sim_tell_absence(struct reactor *r)
{
	uint64_t ticks = absent_ticks[r->index];

	absent_ticks[r->index] = 0;
	if (ticks > absence_min_ticks) {
		r->now = env_ticks();
		reactor_tell_absence(r, ticks);
	}
}

/* One thing that t has to do. */
static void sim_run_thread(struct thread *t)
{
	struct reactor *r = t->reactor, *before_reactor = reactor_self;
	struct thread *before = thread_self;
	bool in_round = r->in_round;

	reactor_self = r;
	sim_tell_absence(r);
	thread_self = t;
	r->now = env_ticks();
	r->in_round = true;
	if (sim_below(4) == 0 || !sim_run_message(t)) {
		if (timers_next(t) <= r->now) {
			timers_run(t, r->now);
		} else {
			pollers_run(t, false);
		}
	}
	r->in_round = in_round;
	reactor_self = before_reactor;
	thread_self = before;
}

void sim_as(struct thread *t, thread_fn fn, void *arg)
{
	struct thread *self = thread_self;
	struct reactor *before = reactor_self;
	bool in_round = t->reactor->in_round;

	reactor_self = t->reactor;
	thread_self = t;
	reactor_self->in_round = true;
	reactor_self->now = env_ticks();
	fn(arg);
	reactor_self->in_round = in_round;
	reactor_self = before;
	thread_self = self;
}

static void sim_pick_weights(void)
{
	static const unsigned weights[] = {1, 4, 4, 16, 64};

	for (struct thread *t = thread_next(NULL); t != NULL; t = thread_next(t)) {
		sim_ring_of(t)->weight = weights[sim_below(RTE_DIM(weights))];
	}
}

static bool sim_thread_has_work(const struct thread *t)
{
	return sim_ring_of(t)->count != 0 || timers_next(t) <= env_ticks() || !TAILQ_EMPTY(&t->active);
}

/* One of the threads that have work, by weight; NULL: none has. */
static struct thread *sim_pick_thread(bool control_too)
{
	unsigned total = 0, n;
	struct thread *t;

	for (t = thread_next(NULL); t != NULL; t = thread_next(t)) {
		if ((control_too || t != thread_control()) && sim_thread_has_work(t)) {
			total += sim_ring_of(t)->weight;
		}
	}
	if (total == 0) {
		return NULL;
	}
	n = sim_below(total);
	for (t = thread_next(NULL); t != NULL; t = thread_next(t)) {
		if ((control_too || t != thread_control()) && sim_thread_has_work(t)) {
			if (n < sim_ring_of(t)->weight) {
				break;
			}
			n -= sim_ring_of(t)->weight;
		}
	}
	return t;
}

static void worker_job_end(struct thread_msg *msg);

static void sim_run_job(void)
{
	struct sim_job *first = STAILQ_FIRST(&jobs);
	struct worker_job *job = first->job;
	struct thread *self = thread_self;
	struct reactor *reactor = reactor_self;

	STAILQ_REMOVE_HEAD(&jobs, link);
	free(first);
	thread_self = NULL;
	reactor_self = NULL;
	job->work(job);
	thread_self = self;
	reactor_self = reactor;
	thread_post(thread_control(), &job->msg, worker_job_end);
}

static bool sim_step_of(bool control_too)
{
	steps++;
	env_ticks_virtual += env_us_to_ticks(1) * sim_below(2 * STEP_NS) / 1000;
	if (++turn % WEIGHTS_STEPS == 0) {
		sim_pick_weights();
	}
	if (!STAILQ_EMPTY(&jobs) && sim_below(CONTROL_STEPS) == 0) {
		sim_run_job();
		return true;
	}
	struct thread *t = sim_pick_thread(control_too);
	if (t != NULL) {
		sim_run_thread(t);
	}
	return t != NULL;
}

void sim_step(void)
{
	sim_step_of(true);
}

bool sim_settle(unsigned max_steps)
{
	for (unsigned i = 0; i < max_steps; i++) {
		bool work = sim_pending() != 0 || !STAILQ_EMPTY(&jobs);
		for (struct thread *t = thread_next(NULL); t != NULL && !work; t = thread_next(t)) {
			work = timers_next(t) <= env_ticks();
		}
		if (!work) {
			return true;
		}
		sim_step();
	}
	return false;
}

bool sim_pass_time(uint64_t max_us)
{
	uint64_t now = env_ticks(), end = now + env_us_to_ticks(max_us), next = UINT64_MAX;

	for (struct thread *t = thread_next(NULL); t != NULL; t = thread_next(t)) {
		next = timers_next(t) < next ? timers_next(t) : next;
	}
	if (next > now) {
		env_ticks_virtual = next < end ? next : end;
	}
	return next <= end;
}

void sim_be_absent(uint64_t us)
{
	env_ticks_virtual += env_us_to_ticks(us);
	for (unsigned i = 0; i < reactor_count; i++) {
		absent_ticks[i] += env_us_to_ticks(us);
	}
}

uint64_t sim_now_us(void)
{
	return env_ticks_to_ns(env_ticks() - START_TICKS) / 1000;
}

uint64_t sim_steps(void)
{
	return steps;
}

void sim_enter_control(void)
{
	struct reactor *r = reactor_control();

	assert(!r->in_round);
	reactor_self = r;
	thread_self = thread_control();
	sim_tell_absence(r);
	r->now = env_ticks();
	r->in_round = true;
}

void sim_leave_control(void)
{
	reactor_control()->in_round = false;
}

/* ---- Calls ---- */

void call_init(struct call *c, thread_fn fn, void *arg)
{
	*c = (struct call){.fn = fn, .arg = arg};
}

void call_serve(struct call *c)
{
	c->fn(c->arg);
	c->state = 1;
}

static void call_message(void *arg)
{
	call_serve(arg);
}

static void sim_others_run(unsigned max)
{
	for (unsigned n = sim_below(max + 1); n > 0; n--) {
		sim_step_of(false);
	}
}

void thread_call(struct thread *t, thread_fn fn, void *arg)
{
	struct call c;

	if (t == thread_self) {
		fn(arg);
		return;
	}
	assert(thread_self == thread_control());
	call_init(&c, fn, arg);
	while (thread_send(t, call_message, &c) != 0) {
		sim_run_thread(t);
	}
	sim_others_run(CALL_STEPS);
	while (c.state == 0) {
		sim_run_thread(t);
	}
}

void reactor_call(struct reactor *r, thread_fn fn, void *arg)
{
	struct thread *self = thread_self;
	struct reactor *before = reactor_self;

	assert(thread_self == thread_control());
	if (!r->control) {
		sim_others_run(CALL_STEPS);
		thread_self = NULL;
		reactor_self = r;
	}
	fn(arg);
	thread_self = self;
	reactor_self = before;
}

void thread_synchronize(void)
{
	assert(thread_self == thread_control());
	sim_others_run(CALL_STEPS);
}

/* thread_round_ticks stays 0, because here reactors run inside of each other's rounds. */
uint64_t thread_now_outside(void)
{
	struct reactor *r = reactor_self;

	return r != NULL && r->in_round ? r->now : env_ticks();
}

/* ---- The control thread's loop ---- */

void thread_control_exit(void)
{
	control_exit = true;
}

bool thread_control_wait(bool (*done)(void *arg), void *arg, uint64_t timeout_us)
{
	uint64_t now = env_ticks(), timeout = env_us_to_ticks(timeout_us);
	uint64_t deadline = timeout < UINT64_MAX - now ? now + timeout : UINT64_MAX;

	assert(!reactor_control()->in_round);
	while (!done(arg)) {
		if (env_ticks() >= deadline) {
			return false;
		}
		if (!sim_step_of(true) && STAILQ_EMPTY(&jobs)) {
			sim_pass_time(1000000);
		}
	}
	return true;
}

static bool control_must_exit(void *arg)
{
	return control_exit;
}

void thread_control_run(void)
{
	thread_control_wait(control_must_exit, NULL, UINT64_MAX);
	control_exit = false;
}

/* ---- Worker threads ---- */

static void worker_job_start(struct worker_job *job);

static void worker_job_end(struct thread_msg *msg)
{
	struct worker_job *job = container_of(msg, struct worker_job, msg);
	struct worker_queue *q = job->queue;

	if (q != NULL) {
		STAILQ_REMOVE_HEAD(&q->jobs, link);
		if (!STAILQ_EMPTY(&q->jobs)) {
			worker_job_start(STAILQ_FIRST(&q->jobs));
		}
	}
	job->done(job);
}

static void worker_job_start(struct worker_job *job)
{
	struct sim_job *entry = malloc(sizeof(*entry));

	job->error = 0;
	entry->job = job;
	STAILQ_INSERT_TAIL(&jobs, entry, link);
}

void worker_run(struct worker_queue *q, struct worker_job *job)
{
	bool now = q == NULL || STAILQ_EMPTY(&q->jobs);

	job->queue = q;
	if (q != NULL) {
		STAILQ_INSERT_TAIL(&q->jobs, job, link);
	}
	if (now) {
		worker_job_start(job);
	}
}

static bool queue_is_idle(void *q)
{
	return STAILQ_EMPTY(&((struct worker_queue *)q)->jobs);
}

void worker_wait(struct worker_queue *q, uint64_t timeout_us)
{
	thread_control_wait(queue_is_idle, q, timeout_us);
}

/* ---- Reactors: places of threads, nothing more ---- */

struct reactor *reactor_control(void)
{
	return &reactors[reactor_count - 1];
}

struct reactor *reactor_by_index(unsigned index)
{
	return index < reactor_count ? &reactors[index] : NULL;
}

bool reactor_in_round(void)
{
	return reactor_self != NULL && reactor_self->in_round;
}

void reactor_let_empty_sleep(bool yes)
{
}

bool reactor_allowed(const struct reactor *r, const cpu_set_t *mask)
{
	return !r->control && CPU_ISSET(r->lcore, mask);
}

struct reactor *reactor_choose(const cpu_set_t *mask)
{
	struct reactor *best = NULL;

	for (unsigned i = 0; i < reactor_count; i++) {
		struct reactor *r = &reactors[i];
		if (reactor_allowed(r, mask) && (best == NULL || r->assigned < best->assigned)) {
			best = r;
		}
	}
	return best;
}

void reactor_attach(struct reactor *r, struct thread *t)
{
	TAILQ_INSERT_TAIL(&r->threads, t, reactor_link);
	r->thread_count++;
	fd_sources_attach(t, r);
}

void reactor_detach(struct reactor *r, struct thread *t, struct reactor *next)
{
	TAILQ_REMOVE(&r->threads, t, reactor_link);
	r->thread_count--;
	fd_sources_detach(t, r);
	t->reactor = next;
}

void reactor_notify(struct reactor *r)
{
}

static void reactor_init(struct reactor *r, unsigned index, unsigned lcore)
{
	TAILQ_INIT(&r->threads);
	TAILQ_INIT(&r->dead);
	TAILQ_INIT(&r->refused);
	r->index = index;
	r->lcore = lcore;
	r->control = lcore == ENV_LCORE_NONE;
	r->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	r->wake_fd = -1;
	r->now = env_ticks();
}

int reactors_start(const struct thread_lib_opts *opts)
{
	unsigned n = env_lcore_count() + 1, i = 0, lcore;

	env_ticks_virtual = START_TICKS;
	absence_init();
	assert(n <= REACTORS_MAX);
	reactors = aligned_alloc(RTE_CACHE_LINE_SIZE, n * sizeof(*reactors));
	memset(reactors, 0, n * sizeof(*reactors));
	reactor_count = n;
	ENV_FOREACH_LCORE (lcore) {
		reactor_init(&reactors[i], i, lcore);
		i++;
	}
	reactor_init(&reactors[i], i, ENV_LCORE_NONE);
	reactor_self = reactor_control();
	return 0;
}

void reactors_stop(void)
{
	for (unsigned i = 0; i < reactor_count; i++) {
		fd_sources_free_dead(&reactors[i]);
		close(reactors[i].epoll_fd);
	}
	free(reactors);
	reactors = NULL;
	reactor_count = 0;
	reactor_self = NULL;
}

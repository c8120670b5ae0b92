/* SPDX-License-Identifier: BSD-3-Clause */
/* Reactors: the loop that runs the threads of an lcore. The control thread's loop is a reactor too, which sleeps as
 * soon as it has nothing to do. Sleeping and waking: sleep.c. */
#include "thread/thread_internal.h"

#include "trace/trace.h"
#include "usdt/usdt.h"
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <rte_rcu_qsbr.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The longest idle spell: longer than the gaps between requests on a loaded node, and so short that a node with few
 * requests sleeps. */
#define IDLE_SPELL_DEFAULT_US 500
/* How often a reactor that polls looks at descriptors. */
#define FD_POLL_US     1000
#define SAMPLE_MASK    255
#define TIMER_SLACK_NS 1000UL

__thread struct thread *thread_self;
__thread struct reactor *reactor_self;
__thread uint64_t thread_round_ticks;

static struct reactor *reactors; /* [count]; the last one is the control thread's */
static unsigned reactor_count;
struct rte_rcu_qsbr *reactor_quiescence;
static uint64_t fd_poll_ticks;
static bool busy_mode;
static bool empty_may_sleep; /* atomic: reactors without threads sleep in busy mode, too */
static void (*reactor_started)(void);
static bool control_ring_is_ours; /* reactor_begin() has registered it, so reactors_stop() gives it back */

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

static void reactor_run_call(struct call *c)
{
	USDT(event_exec, (void *)c->fn, c->arg, NULL);
	call_serve(c);
}

void reactor_call(struct reactor *r, thread_fn fn, void *arg)
{
	struct call c;

	assert(thread_self == thread_control());
	call_init(&c, fn, arg);
	if (r->control) {
		reactor_run_call(&c);
		return;
	}
	/* One slot is enough: only the control thread makes requests, and it waits for each. */
	__atomic_store_n(&r->request, &c, __ATOMIC_RELEASE);
	reactor_notify(r);
	call_wait(&c);
}

static void reactor_serve_request(struct reactor *r)
{
	struct call *c = __atomic_load_n(&r->request, __ATOMIC_ACQUIRE);

	thread_self = NULL;
	__atomic_store_n(&r->request, NULL, __ATOMIC_RELAXED);
	reactor_run_call(c);
}

static unsigned thread_round(struct reactor *r, struct thread *t, unsigned work)
{
	thread_self = t;
	if (messages_run(t) > 0) {
		work |= WORK_BUSY | WORK_AWAKE;
	}
	if (timers_next(t) <= r->now && timers_run(t, r->now) > 0) {
		work |= WORK_BUSY;
	}
	if (pollers_run(t, r->sample) > 0) {
		work |= WORK_BUSY | WORK_AWAKE;
	}
	/* The round's only reading of the TSC per thread: the end of this thread's part is the start of the next. */
	uint64_t now = reactor_read_clock(r), elapsed = now - r->now;
	/* Relaxed, as all accesses to r->now, which other threads read: reactor_get_progress(), absence.c. */
	__atomic_store_n(&r->now, now, __ATOMIC_RELAXED);
	thread_round_ticks = now;
	if (work & WORK_BUSY) {
		t->busy_ticks += elapsed;
		r->busy_ticks += elapsed;
	} else {
		t->idle_ticks += elapsed;
		r->idle_ticks += elapsed;
	}
	if (unlikely(elapsed > absence_min_ticks)) {
		reactor_tell_absence(r, elapsed);
	}
	return work;
}

static void reactor_pass_time(struct reactor *r)
{
	uint64_t now = reactor_read_clock(r);

	r->idle_ticks += now - r->now;
	__atomic_store_n(&r->now, now, __ATOMIC_RELAXED);
	thread_round_ticks = now;
}

/* Runs all threads once. work: the kind of work that was done on descriptors since the last round. Returns the kind of
 * all work. */
static unsigned reactor_round(struct reactor *r, unsigned work)
{
	struct thread *t;
	unsigned all = work;

	reactor_enter_round(r);
	if (unlikely(__atomic_load_n(&r->request, __ATOMIC_RELAXED) != NULL)) {
		reactor_serve_request(r);
		all |= WORK_BUSY;
	}
	if (unlikely(r->fd_count > 0 && r->now >= r->next_fd_poll)) {
		r->next_fd_poll = r->now + fd_poll_ticks;
		if (fd_sources_look(r) > 0) {
			all |= WORK_BUSY | WORK_AWAKE;
		}
	}
	r->sample = (++r->rounds & SAMPLE_MASK) == 0;
	work = all;
	TAILQ_FOREACH (t, &r->threads, reactor_link) {
		all |= thread_round(r, t, work);
		work = 0;
	}
	if (unlikely(TAILQ_EMPTY(&r->threads))) {
		reactor_pass_time(r);
	}
	reactor_leave_round(r);
	return all;
}

static void reactor_begin(struct reactor *r)
{
	char name[16];

	reactor_self = r;
	r->tid = (int)syscall(SYS_gettid);
	r->awake_since = env_ticks();
	__atomic_store_n(&r->now, r->awake_since, __ATOMIC_RELAXED);
	if (r->control) {
		/* fails if there is no ring for it, or tracing is off */
		control_ring_is_ours = trace_register_user_thread("control") == 0;
	} else {
		snprintf(name, sizeof(name), "reactor_%u", r->lcore);
		trace_thread_attach(r->lcore, name);
		pthread_setname_np(pthread_self(), name);
		/* The kernel may otherwise wake a sleeper 50 us late. */
		prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
		if (reactor_started != NULL) {
			reactor_started();
		}
		rte_rcu_qsbr_thread_online(reactor_quiescence, r->index);
	}
}

/* Gives the CPU to another thread that may need it. By a short sleep and not by sched_yield(): with four spinning
 * processes on two CPUs (Linux 6.18), a target under I/O makes twice as many changes of its configuration in the same
 * time (systest/nvmf_integrity_full.py, interleaved runs). */
static void reactor_yield_cpu(void)
{
	nanosleep(&(struct timespec){.tv_nsec = TIMER_SLACK_NS}, NULL);
}

void reactor_let_empty_sleep(bool yes)
{
	__atomic_store_n(&empty_may_sleep, yes, __ATOMIC_RELAXED);
}

/* Operators want busy reactors to poll; one that the scheduler has left without a thread has nothing to poll. */
static bool reactor_keeps_polling(const struct reactor *r)
{
	return busy_mode && !(r->thread_count == 0 && __atomic_load_n(&empty_may_sleep, __ATOMIC_RELAXED));
}

static int reactor_loop(void *arg)
{
	struct reactor *r = arg;
	unsigned work = 0;

	reactor_begin(r);
	while (!__atomic_load_n(&r->stop, __ATOMIC_RELAXED)) {
		work = reactor_round(r, work);
		rte_rcu_qsbr_quiescent(reactor_quiescence, r->index);
		if (work & WORK_AWAKE) {
			idle_spell_met(&r->spell, r->now - r->awake_since);
			r->awake_since = r->now;
			work = 0;
			continue;
		}
		work = 0;
		if (!reactor_keeps_polling(r) && idle_spell_is_over(&r->spell, r->awake_since, r->now) &&
		    reactor_may_sleep(r)) {
			work = reactor_sleep(r, UINT64_MAX);
		} else if (env_oversubscribed()) {
			reactor_yield_cpu();
			thread_absence_check();
		}
	}
	rte_rcu_qsbr_thread_offline(reactor_quiescence, r->index);
	trace_thread_detach();
	reactor_self = NULL;
	return 0;
}

/* The control thread's loop. Ends when done(arg) is true or the deadline (ticks) has passed; without done, when it is
 * told to stop. Returns whether done(arg) was true. */
static bool control_loop(bool (*done)(void *arg), void *arg, uint64_t deadline)
{
	struct reactor *r = reactor_control();
	unsigned work = 0;

	assert(reactor_self == r && !r->in_round);
	__atomic_store_n(&r->now, reactor_read_clock(r), __ATOMIC_RELAXED);
	r->waiting = done != NULL;
	while (!reactor_must_stop(r)) {
		work = reactor_round(r, work);
		thread_self = TAILQ_FIRST(&r->threads);
		if (done != NULL && done(arg)) {
			return true;
		}
		if (r->now >= deadline) {
			return false;
		}
		if (work & WORK_AWAKE) {
			work = 0;
		} else if (reactor_may_sleep(r)) {
			work = reactor_sleep(r, deadline);
			thread_self = TAILQ_FIRST(&r->threads);
		} else {
			work = 0;
			reactor_yield_cpu(); /* a reactor may share this CPU */
		}
	}
	return false;
}

void thread_control_run(void)
{
	struct reactor *r = reactor_control();

	control_loop(NULL, NULL, UINT64_MAX);
	__atomic_store_n(&r->stop, false, __ATOMIC_RELAXED);
}

void thread_control_exit(void)
{
	struct reactor *r = reactor_control();

	__atomic_store_n(&r->stop, true, __ATOMIC_RELAXED);
	reactor_notify(r);
}

bool thread_control_wait(bool (*done)(void *arg), void *arg, uint64_t timeout_us)
{
	uint64_t now = reactor_read_clock(reactor_control()), timeout = env_us_to_ticks(timeout_us);

	return done(arg) || control_loop(done, arg, timeout < UINT64_MAX - now ? now + timeout : UINT64_MAX);
}

uint64_t thread_now_outside(void)
{
	return env_ticks();
}

/* Not by rte_rcu_qsbr_synchronize(), which spins: a reactor may need this CPU to reach its quiescent point. */
void thread_synchronize(void)
{
	assert(thread_self == thread_control());
	uint64_t token = rte_rcu_qsbr_start(reactor_quiescence), since = env_ticks();
	while (rte_rcu_qsbr_check(reactor_quiescence, token, false) == 0) {
		reactor_yield_cpu();
		since = wait_look(since);
	}
}

void reactor_attach(struct reactor *r, struct thread *t)
{
	/* t must not see an earlier time than on the reactor that it comes from. Other threads of r read the clock
	 * before t runs. */
	if (r->in_round && TAILQ_EMPTY(&r->threads)) {
		reactor_pass_time(r);
	}
	TAILQ_INSERT_TAIL(&r->threads, t, reactor_link);
	r->thread_count++;
	fd_sources_attach(t, r);
	r->awake_since = env_ticks();
	thread_tell_absence_of_move(t);
}

void reactor_detach(struct reactor *r, struct thread *t, struct reactor *next)
{
	TAILQ_REMOVE(&r->threads, t, reactor_link);
	r->thread_count--;
	fd_sources_detach(t, r);
	t->left_ticks = r->now;
	/* Release: pairs with the acquire in reactor_notify_thread. */
	__atomic_store_n(&t->reactor, next, __ATOMIC_RELEASE);
}

static int reactor_init(struct reactor *r, unsigned index, unsigned lcore)
{
	struct epoll_event e = {.events = EPOLLIN |
					  EPOLLET}; /* edge-triggered: each write is an edge, so it need not be read */

	TAILQ_INIT(&r->threads);
	TAILQ_INIT(&r->dead);
	TAILQ_INIT(&r->refused);
	r->index = index;
	r->lcore = lcore;
	r->control = lcore == ENV_LCORE_NONE;
	r->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	r->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (r->epoll_fd < 0 || r->wake_fd < 0 || epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, r->wake_fd, &e) != 0) {
		return -errno;
	}
	return r->control ? 0 : -rte_rcu_qsbr_thread_register(reactor_quiescence, index);
}

static void reactors_free(void)
{
	for (unsigned i = 0; i < reactor_count; i++) {
		fd_sources_free_dead(&reactors[i]);
		close(reactors[i].epoll_fd);
		close(reactors[i].wake_fd);
	}
	free(reactors);
	free(reactor_quiescence);
	reactors = NULL;
	reactor_quiescence = NULL;
	reactor_count = 0;
}

static int reactors_alloc(void)
{
	unsigned n = env_lcore_count() + 1, lcore;
	size_t rcu_size = RTE_CACHE_LINE_ROUNDUP(rte_rcu_qsbr_get_memsize(n));
	int rc = 0;

	reactors = aligned_alloc(RTE_CACHE_LINE_SIZE, n * sizeof(*reactors));
	reactor_quiescence = aligned_alloc(RTE_CACHE_LINE_SIZE, rcu_size);
	if (reactors == NULL || reactor_quiescence == NULL || rte_rcu_qsbr_init(reactor_quiescence, n) != 0) {
		return -ENOMEM; /* reactors_free() follows */
	}
	memset(reactors, 0, n * sizeof(*reactors));
	for (unsigned i = 0; i < n; i++) {
		reactors[i].epoll_fd = reactors[i].wake_fd = -1;
	}
	reactor_count = n;
	unsigned i = 0;
	ENV_FOREACH_LCORE (lcore) {
		rc = rc != 0 ? rc : reactor_init(&reactors[i], i, lcore);
		i++;
	}
	return rc != 0 ? rc : reactor_init(&reactors[i], i, ENV_LCORE_NONE);
}

int reactors_start(const struct thread_lib_opts *opts)
{
	int rc = reactors_alloc();

	absence_init();
	busy_mode = opts->poll_mode == POLL_MODE_BUSY;
	reactor_started = opts->reactor_started;
	uint64_t spell = env_us_to_ticks(opts->idle_spell_us != 0 ? opts->idle_spell_us : IDLE_SPELL_DEFAULT_US);
	fd_poll_ticks = env_us_to_ticks(FD_POLL_US);
	if (rc != 0) {
		reactors_free();
		return rc;
	}
	for (unsigned i = 0; i < reactor_count; i++) {
		idle_spell_init(&reactors[i].spell, spell);
	}
	reactor_begin(reactor_control());
	for (unsigned i = 0; i + 1 < reactor_count && rc == 0; i++) {
		rc = env_lcore_launch(reactors[i].lcore, reactor_loop, &reactors[i]);
	}
	if (rc != 0) {
		reactors_stop();
	}
	return rc;
}

void reactors_stop(void)
{
	for (unsigned i = 0; i + 1 < reactor_count; i++) {
		__atomic_store_n(&reactors[i].stop, true, __ATOMIC_RELAXED);
		reactor_notify(&reactors[i]);
	}
	for (unsigned i = 0; i + 1 < reactor_count; i++) {
		env_lcore_wait(reactors[i].lcore);
	}
	reactors_free();
	if (control_ring_is_ours) { /* a ring that the thread had before reactor_begin() stays with it */
		trace_thread_detach();
	}
	reactor_self = NULL;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of thread/. */
#ifndef THREAD_THREAD_INTERNAL_H
#define THREAD_THREAD_INTERNAL_H

#include "env_dpdk/env.h"
#include "thread/idle_spell.h"
#include "thread/thread.h"
#include "util/compiler.h"

#include <rte_common.h>
#include <rte_ring_elem.h>
#include <sys/epoll.h>

#define MESSAGE_RING_SIZE 4096
#define MESSAGE_BATCH     32

struct message {
	thread_fn fn;
	void *arg;
};

/* A call that somebody waits for. */
struct call {
	thread_fn fn;
	void *arg;
	uint32_t state; /* CALL_*; atomic, and a futex */
};

enum poller_state {
	POLLER_ACTIVE,
	POLLER_PAUSED,
	POLLER_GONE, /* unregistered; freed when no loop of its thread looks at it */
};

/* The object that epoll returns with an event. */
struct fd_source {
	int fd;
	uint32_t events;
	fd_source_fn fn; /* NULL: removed; freed after the batch */
	void *arg;
	bool counted; /* also looked at while the reactor polls; not so with the descriptor of a poller */
	bool refused; /* epoll has not taken it: the reactor stays awake, looks at it by poll(), and tries again */
	TAILQ_ENTRY(fd_source) refused_link;
	struct thread *thread;
	char name[THREAD_NAME_MAX];
	TAILQ_ENTRY(fd_source) link;
};
TAILQ_HEAD(fd_source_list, fd_source);

struct poller {
	/* One cache line that each round reads. */
	int (*fn)(void *ctx);
	void *ctx;
	uint64_t run_count, busy_count;
	uint64_t ticks; /* without a period: estimated from samples */
	TAILQ_ENTRY(poller) link;
	enum poller_state state;
	bool running; /* a timed one, inside fn */
	bool in_active;

	struct thread *thread;
	bool (*arm)(void *ctx);
	struct fd_source *source;
	int fd;
	uint64_t period_ticks;
	struct thread_timer timer;
	uint64_t id;
	char name[THREAD_NAME_MAX];
} __rte_cache_aligned;
TAILQ_HEAD(poller_list, poller);

TAILQ_HEAD(io_channel_list, io_channel);

struct thread {
	struct reactor *reactor; /* atomic: senders read it */
	struct rte_ring *ring;
	struct poller_list active;
	struct thread_timer *timers; /* the root of the heap, which is due first */
	size_t timer_count;
	uint64_t busy_ticks, idle_ticks;
	/* Of absence.c, while the thread watches: the clock of the day at its last look, and for how long the system
	 * has been suspended since it was started. */
	uint64_t looked_ns, suspended_ns;
	bool iterating;      /* inside the loop over `active`: no poller may leave the list */
	bool poller_changes; /* some poller must leave the list after the loop */
	uint32_t sleepless;  /* active pollers that no descriptor can wake, and descriptors that epoll has refused */
	TAILQ_ENTRY(thread) reactor_link;

	/* Written by senders. */
	struct thread_msg *posted __rte_cache_aligned; /* atomic: a stack, the newest first */

	struct poller_list timed __rte_cache_aligned, paused;
	struct io_channel_list channels;
	struct fd_source_list sources;
	SLIST_HEAD(, thread_absence) absences;
	uint64_t left_ticks; /* while it moves: when its old reactor last read the clock */
	uint64_t last_poller_id;
	uint64_t messages;
	uint64_t load_busy_ticks, load_idle_ticks;       /* of load.c: busy_ticks and idle_ticks when it looked last */
	uint64_t balance_busy_ticks, balance_idle_ticks; /* the same of scheduler.c */

	/* The control thread's. */
	uint64_t id;
	cpu_set_t mask;
	uint16_t trace_owner;
	unsigned balance_index; /* of scheduler.c, as the next two: valid during a decision */
	uint32_t balance_need;
	bool balance_known;
	char name[THREAD_NAME_MAX];
	TAILQ_ENTRY(thread) link;
} __rte_cache_aligned;
TAILQ_HEAD(thread_list, thread);

/* How often the kernel has taken an OS thread off its CPU. */
struct reactor_switches {
	uint64_t voluntary, involuntary;
};

struct reactor {
	uint64_t now; /* TSC at the start of the round (of the thread's part of it) */
	bool in_round;
	bool sample; /* this round, pollers are timed one by one */
	uint32_t rounds;
	struct thread_list threads;
	uint64_t awake_since; /* TSC of the last sign of work */
	uint64_t next_fd_poll;
	uint32_t fd_count;   /* descriptors to look at while polling */
	uint32_t fd_refused; /* of them: by epoll */
	uint64_t busy_ticks, idle_ticks, sleeps;
	struct idle_spell spell; /* of no use to the control thread, which polls for no time */

	/* Written by others. */
	struct call *request __rte_cache_aligned; /* atomic */
	bool stop;                                /* atomic */

	/* Read by every sender, written when it sleeps and wakes: see reactor_sleep. */
	uint32_t sleeping __rte_cache_aligned; /* atomic */
	int wake_fd;

	int epoll_fd __rte_cache_aligned;
	unsigned lcore; /* ENV_LCORE_NONE: the control thread's */
	unsigned index; /* in reactors[], and its id for quiescence */
	int tid;
	bool control;
	bool waiting; /* the control thread's: in thread_control_wait, not to be stopped */
	uint32_t thread_count;
	uint32_t assigned; /* threads that are here or on their way; the control thread's */
	struct fd_source_list dead, refused;
	bool serving;                              /* a batch of events, which may have some of `dead` */
	uint16_t trace_owner;                      /* 0: none yet; the control thread's */
	uint64_t load_busy_ticks, load_idle_ticks; /* as in struct thread */
	struct reactor_switches switches;          /* of switches.c: when it looked last */
} __rte_cache_aligned;

extern __thread struct thread *thread_self;
extern __thread struct reactor *reactor_self;

/* reactor.c */
int reactors_start(const struct thread_lib_opts *opts);
void reactors_stop(void);
struct reactor *reactor_control(void);
struct reactor *reactor_by_index(unsigned index); /* NULL: no more; the control thread's is the last */
bool reactor_in_round(void);
/* From now on thread_now() is the start of the round, r->now. On the reactor's OS thread. */
static inline void reactor_enter_round(struct reactor *r)
{
	r->in_round = true;
	thread_round_ticks = r->now;
}
static inline void reactor_leave_round(struct reactor *r)
{
	r->in_round = false;
	thread_round_ticks = 0;
}
/* The least loaded reactor whose lcore is in mask; NULL: none. */
struct reactor *reactor_choose(const cpu_set_t *mask);
bool reactor_allowed(const struct reactor *r, const cpu_set_t *mask);
/* Control thread: runs fn(arg) on r between two rounds, with no current thread, and returns after it did. */
void reactor_call(struct reactor *r, thread_fn fn, void *arg);
/* On r, between rounds. reactor_detach leaves t to `next`, which must attach it. */
void reactor_attach(struct reactor *r, struct thread *t);
void reactor_detach(struct reactor *r, struct thread *t, struct reactor *next);

/* What kind of work a step of a reactor was. */
enum {
	WORK_BUSY = 1,  /* its time counts as busy */
	WORK_AWAKE = 2, /* more work may follow soon, so it stays awake; timers do not set this */
};
extern struct rte_rcu_qsbr *reactor_quiescence;

/* absence.c */
extern uint64_t absence_min_ticks; /* THREAD_ABSENCE_MIN_US */
void absence_init(void);
/* The timer of env_ticks_note(). Control thread. */
void absence_start(void);
void absence_stop(void);
/* env_ticks() has given less than r->now: the time to go on with, which is not less. On r's OS thread. */
COLD uint64_t reactor_clock_went_back(const struct reactor *r);
/* The time in ticks, which is never before r->now. On r's OS thread. */
static inline uint64_t reactor_read_clock(const struct reactor *r)
{
	uint64_t now = env_ticks();

	return likely(now >= r->now) ? now : reactor_clock_went_back(r);
}
/* The reactor did not run for so many ticks, up to r->now: tells those who watch. */
COLD void reactor_tell_absence(struct reactor *r, uint64_t ticks);
/* The thread was moved to the current reactor: tells those who watch on it if it belonged to no reactor, or to one that
 * was absent, for so long that they must know. Its old reactor can tell only the threads that it still has. */
void thread_tell_absence_of_move(struct thread *t);
/* Whether a thread of the reactor watches. */
bool reactor_watches_absence(const struct reactor *r);
/* How long a reactor that was asleep was absent at most, if it woke late; otherwise 0. Times in ticks; deadline: when
 * it was to wake at the latest, or UINT64_MAX. */
uint64_t absence_of_sleep(uint64_t fell_asleep, uint64_t deadline, uint64_t woke);

/* sleep.c */
/* Wakes r if it sleeps; to be called after work for it was stored. Any thread, also a signal handler. */
void reactor_notify(struct reactor *r);
void reactor_notify_thread(struct thread *t);
bool reactor_must_stop(const struct reactor *r);
/* False while there is a poller that no descriptor can wake. */
bool reactor_may_sleep(const struct reactor *r);
/* Whether reactors without threads sleep in busy mode, too: while the dynamic scheduler is in use. */
void reactor_let_empty_sleep(bool yes);
/* Arms all pollers, and waits for a descriptor, a message, the next timer or the deadline. Returns which kind of work
 * was done on descriptors; WORK_AWAKE: there was work already, so it did not wait. */
unsigned reactor_sleep(struct reactor *r, uint64_t deadline);

/* message.c */
struct rte_ring *message_ring_create(void);
unsigned messages_run(struct thread *t);
void call_init(struct call *c, thread_fn fn, void *arg);
void call_serve(struct call *c);
void call_wait(struct call *c);
/* For loops in which the control thread waits for a reactor: runs the hook of thread_set_wait_hook() if its period has
 * passed since `since` (ticks; at first the start of the loop). Returns the value for the next call. */
uint64_t wait_look(uint64_t since);

/* timer.c */
unsigned timers_run(struct thread *t, uint64_t now);
void timer_start_at(struct thread_timer *timer, uint64_t deadline);
static inline uint64_t timers_next(const struct thread *t)
{
	return t->timers != NULL ? t->timers->deadline : UINT64_MAX;
}

/* poller.c */
unsigned pollers_run(struct thread *t, bool sample);
/* Calls the arm function of each active poller. True: one has work already. */
bool pollers_arm(struct thread *t);

/* fd.c */
void fd_sources_attach(struct thread *t, struct reactor *r);
void fd_sources_detach(struct thread *t, struct reactor *r);
struct fd_source *fd_source_add_for(struct thread *t, int fd, uint32_t events, fd_source_fn fn, void *arg,
				    const char *name, bool counted);
#define FD_BATCH 32
/* Fills events (FD_BATCH of them); returns their number, or negative. UINT64_MAX: waits for ever. */
int fd_sources_wait(struct reactor *r, struct epoll_event *events, uint64_t timeout_ticks);
/* Looks at the descriptors without waiting. Returns how many sources were served. */
unsigned fd_sources_look(struct reactor *r);
/* Returns how many sources were served. */
unsigned fd_sources_serve(struct reactor *r, const struct epoll_event *events, int n);
void fd_sources_free_dead(struct reactor *r);

/* load.c: control thread, after the reactors have been started and before they are stopped */
void load_start(void);
void load_stop(void);

/* scheduler.c: as load.c */
void scheduler_start(void);
void scheduler_stop(void);

/* thread.c */
/* Moves t, with all that it owns, to another reactor, whatever its mask is. Control thread; waits for both reactors. */
void thread_move(struct thread *t, struct reactor *to);

#endif

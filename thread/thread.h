/* SPDX-License-Identifier: BSD-3-Clause */
/* Reactors, threads, messages, pollers, timers, channels.
 *
 * A reactor is an lcore's loop; a thread is a named unit of work that lives on one reactor (its cpumask says which
 * are allowed) and owns pollers and channels; nothing of a thread needs a lock. The control thread is a thread too, run
 * by the process's first OS thread: it always sleeps in epoll when it has nothing to do, is the only writer of
 * configuration, and the only one that may wait for others (thread_call). Reactors post to it and never wait. */
#ifndef THREAD_THREAD_H
#define THREAD_THREAD_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#define THREAD_NAME_MAX 48 /* of threads, pollers and descriptors, with the 0; longer ones are cut */

struct thread;
struct poller;

typedef void (*thread_fn)(void *arg);

enum poll_mode {
	POLL_MODE_ADAPTIVE, /* a reactor with nothing to do sleeps in epoll */
	POLL_MODE_BUSY,     /* a reactor never sleeps */
};

struct thread_lib_opts {
	enum poll_mode poll_mode;
	uint32_t idle_spell_us;        /* adaptive: how long without work before sleeping; 0: the default */
	void (*reactor_started)(void); /* called on each reactor's OS thread before its first round, or NULL */
};

/* Starts a reactor on every lcore of env; the caller becomes the control thread. Negative errno. */
int thread_lib_start(const struct thread_lib_opts *opts);
/* Stops the reactors; every thread but the control thread must be gone. What was sent or posted to the control thread
 * is run first: it may be what frees its memory. */
void thread_lib_stop(void);

/* Runs the control loop until thread_control_exit(); any thread, also a signal handler, may call the latter. */
void thread_control_run(void);
void thread_control_exit(void);
/* Runs the control loop until done(arg), for straight-line code that waits for something of its own (start-up,
 * shut-down, tests). done is asked after each round of the loop, so whoever makes it true must wake the loop, with a
 * message or the like; thread_control_exit() does not end it. Not from inside a callback of the loop. False if
 * timeout_us passed first. */
bool thread_control_wait(bool (*done)(void *arg), void *arg, uint64_t timeout_us);

/* Threads. Created and destroyed by the control thread. mask: lcore ids allowed; NULL: all. NULL and errno if it fails;
 * EINVAL: no reactor on any of these lcores. The name is copied. */
struct thread *thread_create(const char *name, const cpu_set_t *mask);
/* The thread must have no channel, poller, descriptor or running timer left; -EBUSY names the one it found in the log.
 * What was sent to it before is run first. Waits until it is off its reactor. Whoever sent or posted to it must have
 * returned from that: it looks at the thread once more, to wake it, when the message may have run already. */
int thread_destroy(struct thread *t);
struct thread *thread_control(void);
struct thread *thread_current(void); /* NULL on a foreign OS thread */
uint64_t thread_id(const struct thread *t);
const char *thread_name(const struct thread *t);
/* Moves the thread, with all it owns, if its reactor is not among those allowed any more; returns when it has. -EINVAL:
 * no reactor on any of these lcores, or t is the control thread. */
int thread_set_cpumask(struct thread *t, const cpu_set_t *mask);
struct thread *thread_by_id(uint64_t id);
struct thread *thread_next(const struct thread *after); /* NULL: first. Control thread. */

/* Has fn(arg) run on t. Any OS thread; never blocks. 0, or -ENOBUFS when t's ring is full. Messages of one sender to
 * one thread arrive in order. Wakes a sleeping reactor. */
int thread_send(struct thread *t, thread_fn fn, void *arg);
/* A message that cannot be refused, since it lives in what it is about: for those who could not cope with -ENOBUFS. Any
 * OS thread; never blocks. msg belongs to t until fn(msg) runs there, and may then be posted again or freed. Those of
 * one sender to one thread arrive in order, and before what it sends or calls later. */
struct thread_msg {
	struct thread_msg *next;
	void (*fn)(struct thread_msg *msg);
};
void thread_post(struct thread *t, struct thread_msg *msg, void (*fn)(struct thread_msg *msg));
/* Control thread: has fn(arg) run on t and returns after it did. */
void thread_call(struct thread *t, thread_fn fn, void *arg);
/* Control thread: returns after every reactor has passed a quiescent point; what was unpublished before is free
 * after. */
void thread_synchronize(void);

/* TSC at the start of the current round of this reactor; cheap, and precise to a round. Outside of any round: now. */
uint64_t thread_now(void);

/* Pollers, of the current thread. fn returns POLLER_BUSY if it found work. */
enum { POLLER_IDLE = 0, POLLER_BUSY = 1 };
struct poller_opts {
	const char *name; /* copied */
	int (*fn)(void *ctx);
	void *ctx;
	uint64_t period_us; /* 0: every round */
	/* For sleeping: a descriptor that becomes readable when there is work, and (may be NULL) a function that asks
	 * for it; arm returns true if work slipped in meanwhile. It is for fn or arm to read the descriptor empty: one
	 * that stays readable keeps the reactor awake. fd -1 and period 0: the reactor cannot sleep while this is
	 * active. With a period, neither is used. */
	int fd;
	bool (*arm)(void *ctx);
};
/* NULL and errno: out of memory. */
struct poller *poller_register(const struct poller_opts *opts);
void poller_unregister(struct poller **p); /* from its own thread, also from inside fn; sets *p to NULL */
void poller_pause(struct poller *p);
void poller_resume(struct poller *p);

/* One-shot timers, embedded in their owner; of the current thread. Starting a running one moves it. They never fire
 * early. Zero it, set fn and arg. Must be stopped before its owner is freed. */
struct thread_timer {
	thread_fn fn;
	void *arg;
	uint64_t deadline; /* ticks */
	bool running;      /* private, as what follows */
	struct thread_timer *child, *next, *prev;
};
void thread_timer_start(struct thread_timer *t, uint64_t delay_us);
void thread_timer_stop(struct thread_timer *t);
/* For timers that wait for somebody else. In fn, before it starts the timer again: whether this thread was away when
 * the timer ran out, as in a process or a virtual machine that was stopped. What it has not heard of others meanwhile
 * says nothing about them, and may still lie in its queues: they get their time anew. timeout_us: that time, of which a
 * part that matters must be missing (thread_was_away). */
bool thread_timer_was_away(const struct thread_timer *t, uint64_t timeout_us);
/* The rule alone: away is who comes late by more than an eighth of timeout_us, and by more than what a busy machine
 * explains. */
#define THREAD_AWAY_PART   8
#define THREAD_AWAY_MIN_US UINT64_C(10000)
static inline bool thread_was_away(uint64_t late_us, uint64_t timeout_us)
{
	return late_us > THREAD_AWAY_MIN_US && late_us > timeout_us / THREAD_AWAY_PART;
}

/* Descriptors, of the current thread: fn(arg, events) when epoll reports EPOLLIN etc. Level-triggered. Served when the
 * reactor sleeps, and now and then while it polls: for control-plane descriptors. */
struct fd_source;
typedef void (*fd_source_fn)(void *arg, uint32_t events);
/* NULL and errno if epoll refuses it. The caller keeps the descriptor, and closes it after fd_source_remove. */
struct fd_source *fd_source_add(int fd, uint32_t events, fd_source_fn fn, void *arg, const char *name);
void fd_source_modify(struct fd_source *s, uint32_t events);
void fd_source_remove(struct fd_source **s); /* also from inside fn */

/* io_devices and their channels: one channel per (device, thread), counted. */
struct io_channel;
struct io_device {
	const char *name;                                        /* owned by the caller; lives as long as the device */
	size_t channel_size;                                     /* bytes of context behind a channel */
	int (*channel_create)(struct io_device *dev, void *ctx); /* on the channel's thread; negative errno */
	void (*channel_destroy)(struct io_device *dev, void *ctx);
	/* private */
	uint32_t channels; /* atomic */
	bool registered;
	TAILQ_ENTRY(io_device) link;
};
void io_device_register(struct io_device *dev);           /* control thread */
int io_device_unregister(struct io_device *dev);          /* control thread; -EBUSY while channels exist */
struct io_channel *io_channel_get(struct io_device *dev); /* current thread; NULL and errno on failure */
void io_channel_put(struct io_channel *ch);               /* on the thread that got it */
static inline void *io_channel_ctx(struct io_channel *ch);
struct thread *io_channel_thread(const struct io_channel *ch);
/* Control thread: runs fn(ctx of the channel, arg) on each thread that has a channel of dev, one after the other. */
void io_device_for_each_channel(struct io_device *dev, void (*fn)(void *channel_ctx, void *arg), void *arg);

struct io_channel {
	struct io_device *dev;
	struct thread *thread;
	uint32_t refs;
	TAILQ_ENTRY(io_channel) link;
	uint8_t ctx[] __attribute__((aligned(64)));
};
static inline void *io_channel_ctx(struct io_channel *ch)
{
	return ch->ctx;
}

/* Statistics, for the control thread. What belongs to a thread is collected on it, so that it is consistent. Ticks are
 * the TSC's. The time a reactor sleeps is idle time, of it and (in equal shares) of its threads. */
struct thread_stats {
	char name[THREAD_NAME_MAX];
	uint64_t id;
	cpu_set_t cpumask; /* empty: the control thread */
	uint32_t lcore;    /* where it is; UINT32_MAX: the control thread */
	uint64_t busy_ticks, idle_ticks;
	uint32_t active_pollers, timed_pollers, paused_pollers, timers, channels, descriptors;
	uint32_t pending_messages;
};
void thread_get_stats(struct thread *t, struct thread_stats *stats);

enum poller_kind { POLLER_KIND_ACTIVE, POLLER_KIND_TIMED, POLLER_KIND_PAUSED };
struct poller_stats {
	char name[THREAD_NAME_MAX];
	uint64_t id; /* within its thread */
	enum poller_kind kind;
	uint64_t run_count, busy_count, period_ticks;
	uint64_t ticks; /* spent in it; for those that run every round an estimate, of one round in 256 */
};
/* *stats: an array for the caller to free, NULL when empty. Returns its length, or -ENOMEM. */
int thread_get_pollers(struct thread *t, struct poller_stats **stats);

struct io_channel_stats {
	char name[2 * THREAD_NAME_MAX]; /* its device's */
	uint32_t refs;
};
int thread_get_io_channels(struct thread *t, struct io_channel_stats **stats);

struct reactor_stats {
	uint32_t lcore;
	int tid;
	uint64_t busy_ticks, idle_ticks;
	bool sleeping;   /* was, before it was asked */
	uint64_t sleeps; /* how often */
	/* What the kernel counts for the lcore's CPU: time in interrupts and in system calls. 0 where lcores float. */
	uint64_t irq_ticks, sys_ticks;
};
/* How far a reactor has got, without asking it: for who wants to know whether it still goes round. index counts
 * reactors from 0; -ENODEV: no more. A reactor that is not sleeping and whose round_ticks stay the same does not poll.
 * Control thread. */
struct reactor_progress {
	uint32_t lcore;
	int tid;
	uint64_t round_ticks; /* start of the round it is in */
	bool sleeping;
};
int reactor_get_progress(uint32_t index, struct reactor_progress *progress);
/* Makes a reactor that sleeps go a round, which its progress shows soon; one that is awake does so anyway. Control
 * thread. */
void reactor_wake(uint32_t index);
/* While the control thread waits for a reactor (thread_call, thread_synchronize), fn runs every period_us on it: it may
 * look, write files, and start timers, and wait for nothing. NULL: nothing runs. Control thread. */
void thread_set_wait_hook(void (*fn)(void), uint64_t period_us);

/* -ENODEV if there is no reactor on that lcore. */
int reactor_get_stats(uint32_t lcore, struct reactor_stats *stats);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Reactors, threads, messages, pollers, timers, channels.
 *
 * A reactor is the loop of one lcore. A thread is a named unit of work that lives on one reactor at a time (its cpumask
 * says on which it may, and thread/scheduler.h what moves it) and owns pollers, timers, descriptors and channels. Only
 * one OS thread at a time runs a thread, so what belongs to a thread needs no lock.
 *
 * The control thread is a thread as well, run by the process's first OS thread. It alone changes the configuration, and
 * it alone may wait for others (thread_call(), thread_synchronize()); reactors send messages to it and never wait. It
 * sleeps in epoll whenever it has nothing to do. */
#ifndef THREAD_THREAD_H
#define THREAD_THREAD_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#define THREAD_NAME_MAX                                                                                                \
	48 /* bytes of the name of a thread, poller or descriptor, with the NUL; longer ones are cut                   \
	    */

struct thread;
struct poller;

typedef void (*thread_fn)(void *arg);

enum poll_mode {
	POLL_MODE_ADAPTIVE, /* a reactor with nothing to do sleeps in epoll */
	POLL_MODE_BUSY,     /* a reactor that has a thread never sleeps */
};

struct thread_lib_opts {
	enum poll_mode poll_mode;
	uint32_t idle_spell_us; /* adaptive: the longest time without work before a reactor sleeps; 0: the default. How
				   much of it a reactor takes, what its last waits brought decides (idle_spell.h). */
	void (*reactor_started)(void); /* called on each reactor's OS thread before its first round, or NULL */
};

/* Starts a reactor on every lcore of env_dpdk; the caller becomes the control thread. 0 or a negative errno. */
int thread_lib_start(const struct thread_lib_opts *opts);
/* Runs the messages that the control thread has been sent, since they may free memory, and stops the reactors. All
 * other threads must have been destroyed. Control thread, outside of its loop. */
void thread_lib_stop(void);

/* Runs the control thread's loop until thread_control_exit(). Control thread. */
void thread_control_run(void);
/* Ends thread_control_run(), now or when it is called next. Any OS thread, also from a signal handler. */
void thread_control_exit(void);
/* Runs the control thread's loop until done(arg) is true, for straight-line code (start-up, shutdown, tests) that waits
 * for an event. done is asked after each round, so what makes it true must also wake the loop, for example by a
 * message. thread_control_exit() does not end this loop. Not from a callback of the loop. False: timeout_us
 * microseconds passed first (UINT64_MAX: no limit). Control thread. */
bool thread_control_wait(bool (*done)(void *arg), void *arg, uint64_t timeout_us);

/* ---- Threads ---- */

/* Makes a thread on the least loaded reactor of those whose lcores are in mask (NULL: all). name is copied. NULL and
 * errno on failure; EINVAL: none of these lcores has a reactor. Control thread. */
struct thread *thread_create(const char *name, const cpu_set_t *mask);
/* The same, on the reactor of an lcore, which is in mask. The others in mask are where it may be moved to. Control
 * thread. */
struct thread *thread_create_at(const char *name, unsigned lcore, const cpu_set_t *mask);
/* Runs the messages that t has been sent, takes it off its reactor, waiting for that, and frees it. t must own no
 * channel, poller, descriptor or running timer: -EBUSY if it does, and the log names one. Whoever has sent or posted a
 * message to t must have returned from that call: it looks at t once more to wake it, when the message may have run
 * already. Control thread. */
int thread_destroy(struct thread *t);
/* The control thread. Any OS thread. */
struct thread *thread_control(void);
/* The thread that runs now; NULL on an OS thread that is not a reactor's or the control thread's. */
struct thread *thread_current(void);
/* A number that no other thread of this process has had since thread_lib_start(). Any thread. */
uint64_t thread_id(const struct thread *t);
/* The name it was made with. Any thread; valid until the thread is destroyed. */
const char *thread_name(const struct thread *t);
/* Changes the lcores that t may run on. If its reactor is not among them any more, t moves with all that it owns; the
 * call returns when it has. -EINVAL: none of these lcores has a reactor, or t is the control thread. Control thread. */
int thread_set_cpumask(struct thread *t, const cpu_set_t *mask);
/* The thread of that id, or NULL. Control thread. */
struct thread *thread_by_id(uint64_t id);
/* All threads, one by one: NULL for the first; NULL: no more. Control thread. */
struct thread *thread_next(const struct thread *after);

/* ---- Messages ---- */

/* Has fn(arg) run on t, and wakes its reactor if that sleeps. Messages of one sender to one thread run in the order in
 * which they were sent. 0, or -ENOBUFS: t's ring of messages is full. Any OS thread; never blocks. */
int thread_send(struct thread *t, thread_fn fn, void *arg);
/* A message without an allocation, which therefore cannot be refused: it is embedded in the object that it is about. */
struct thread_msg {
	struct thread_msg *next;
	void (*fn)(struct thread_msg *msg);
};
/* Has fn(msg) run on t. msg belongs to t until fn is called, which may free it or post it again. Posted messages of one
 * sender to one thread run in their order, and before what the sender sends or calls later. Any OS thread; never
 * blocks. */
void thread_post(struct thread *t, struct thread_msg *msg, void (*fn)(struct thread_msg *msg));
/* Runs fn(arg) on t and returns after it has run. Control thread. */
void thread_call(struct thread *t, thread_fn fn, void *arg);
/* Waits for a grace period: returns after every reactor has passed a point where it holds no pointer to shared tables.
 * What was taken out of such tables before the call may be freed after it. Control thread. */
void thread_synchronize(void);

/* For thread_now() alone: the start of the round that this OS thread is in; 0 outside of rounds. */
extern __thread uint64_t thread_round_ticks;
/* The TSC, for thread_now() alone. */
uint64_t thread_now_outside(void);
/* The TSC at the start of the current round of this reactor: cheap, and up to one round old. Outside of a round: the
 * TSC now. Any thread. */
static inline uint64_t thread_now(void)
{
	return thread_round_ticks != 0 ? thread_round_ticks : thread_now_outside();
}

/* ---- Pollers ---- */

enum {
	POLLER_IDLE = 0, /* found no work */
	POLLER_BUSY = 1, /* found work: its time counts as busy, and the reactor stays awake */
};
struct poller_opts {
	const char *name;     /* copied */
	int (*fn)(void *ctx); /* POLLER_IDLE or POLLER_BUSY */
	void *ctx;
	uint64_t period_us; /* 0: called in every round */
	/* For sleeping, without a period: a descriptor that becomes readable when there is work; and a function that
	 * asks for that, or NULL. arm is called before the reactor sleeps and returns true if there is work already.
	 * fn or arm must read the descriptor empty: one that stays readable keeps the reactor awake. With fd -1 and
	 * period 0 the reactor cannot sleep while this poller is active. With a period, neither is used. */
	int fd;
	bool (*arm)(void *ctx);
};
/* Makes a poller of the current thread. NULL and errno: out of memory. */
struct poller *poller_register(const struct poller_opts *opts);
/* Ends a poller and sets *p to NULL; fn is not called again. On the poller's thread, also from inside fn. */
void poller_unregister(struct poller **p);
/* Stops calling fn until poller_resume(). On the poller's thread. */
void poller_pause(struct poller *p);
/* Undoes poller_pause(); a period begins anew. On the poller's thread. */
void poller_resume(struct poller *p);

/* ---- Timers ---- */

/* A one-shot timer of the thread that starts it, embedded in its owner. Zero it, and set fn and arg. It never fires
 * early. It must be stopped, or have fired, before its owner is freed. */
struct thread_timer {
	thread_fn fn;
	void *arg;
	uint64_t deadline; /* ticks */
	bool running;      /* private, as are the next ones */
	struct thread_timer *child, *next, *prev;
};
/* Has t->fn run after delay_us microseconds, on the current thread; moves a timer that runs. */
void thread_timer_start(struct thread_timer *t, uint64_t delay_us);
/* Stops a timer; does nothing to one that does not run. On the thread that started it. */
void thread_timer_stop(struct thread_timer *t);
/* Whether this thread did not run for so long when the timer ran out that the timer says nothing about others: the
 * process or its virtual machine was stopped, and what others sent meanwhile may still lie in queues. Who waits for
 * others then gives them their time anew. To be asked in fn, before it starts the timer again. timeout_us: the time
 * that others have (thread_was_absent()). */
bool thread_timer_was_absent(const struct thread_timer *t, uint64_t timeout_us);
/* The rule: absent is who comes late by more than an eighth of timeout_us and by more than a busy machine explains. */
#define THREAD_ABSENT_PART   8
#define THREAD_ABSENT_MIN_US UINT64_C(10000)
/* Whether a thread that comes late_us microseconds late was absent, for a wait of timeout_us. Any thread. */
static inline bool thread_was_absent(uint64_t late_us, uint64_t timeout_us)
{
	return late_us > THREAD_ABSENT_MIN_US && late_us > timeout_us / THREAD_ABSENT_PART;
}

/* Absence: the process was stopped, or its virtual machine paused, or its memory swapped out. Timers that run out tell
 * their owners (thread_timer_was_absent()); this is for what must be done before anything else, because the peers may
 * have given this process up. Those who watch are told before the next thread's part of the round; before the rest of
 * the present one only where thread_absence_check() is called. A thread that is being moved meanwhile is told where it
 * arrives. It costs nothing on the way of an I/O, because a reactor reads the clock in every round. A reactor that
 * sleeps until there is work is not absent. If the system was suspended and the TSC stood still meanwhile, each thread
 * is told by its own thread_absence_check(). */
struct thread_absence {
	/* absent_us: for how many microseconds at most, more than THREAD_ABSENCE_MIN_US. May unwatch this watch. */
	void (*fn)(void *arg, uint64_t absent_us);
	void *arg;
	SLIST_ENTRY(thread_absence) link; /* private */
};
#define THREAD_ABSENCE_MIN_US UINT64_C(200000)
/* Has w->fn called on the current thread after each absence. w: the caller's until thread_absence_unwatch(). Its
 * reactor wakes every THREAD_ABSENCE_MIN_US meanwhile. */
void thread_absence_watch(struct thread_absence *w);
/* Ends that. On the same thread. */
void thread_absence_unwatch(struct thread_absence *w);
/* Reads the clock, and calls those who watch if this reactor was absent since it read it last. For pollers, between
 * reading a queue and working on what was in it, and before I/O is submitted that has waited. On the thread of a
 * reactor, where its caller may find its own objects changed by those calls. */
void thread_absence_check(void);

/* ---- Descriptors ---- */

/* A descriptor that a thread watches. Level-triggered. Reactors look at descriptors when they sleep, and every
 * millisecond while they poll: for the control plane, not for I/O. */
struct fd_source;
typedef void (*fd_source_fn)(void *arg, uint32_t events);
/* Has fn(arg, events) called on the current thread when epoll reports one of events (EPOLLIN ...) for fd. name is
 * copied. The caller keeps fd, and closes it after fd_source_remove(). NULL and errno: what epoll says. */
struct fd_source *fd_source_add(int fd, uint32_t events, fd_source_fn fn, void *arg, const char *name);
/* Changes the events that fn is called for. On its thread. */
void fd_source_modify(struct fd_source *s, uint32_t events);
/* Stops watching, and sets *s to NULL; fn is not called again. On its thread, also from inside fn. */
void fd_source_remove(struct fd_source **s);

/* ---- Devices and channels ---- */

struct io_channel;
/* A device that each thread uses through a channel of its own, embedded in its owner. */
struct io_device {
	const char *name;                                        /* owned by the caller; lives as long as the device */
	size_t channel_size;                                     /* bytes of context behind a channel */
	int (*channel_create)(struct io_device *dev, void *ctx); /* on the channel's thread; negative errno */
	void (*channel_destroy)(struct io_device *dev, void *ctx); /* on the channel's thread */
	/* private */
	uint32_t channels; /* atomic */
	bool registered;
	TAILQ_ENTRY(io_device) link;
};
/* Makes the device known, so that threads can get channels. Control thread. */
void io_device_register(struct io_device *dev);
/* Undoes it. -EBUSY while channels exist. Control thread. */
int io_device_unregister(struct io_device *dev);
/* The current thread's channel of dev, made if it has none, with one more reference. NULL and errno on failure. */
struct io_channel *io_channel_get(struct io_device *dev);
/* Gives a reference back; the last one destroys the channel. On the thread that got it. */
void io_channel_put(struct io_channel *ch);
/* The context behind the channel, of dev->channel_size bytes. */
static inline void *io_channel_ctx(struct io_channel *ch);
/* The thread that owns the channel. */
struct thread *io_channel_thread(const struct io_channel *ch);
/* Runs fn(context of the channel, arg) on each thread that has a channel of dev, one after the other, and returns after
 * the last. Control thread. */
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

/* ---- Statistics ---- */

/* Of a thread; collected on it, so that the numbers belong together. Ticks are the TSC's. The time that a reactor
 * sleeps is idle time of the reactor and, in equal shares, of its threads. */
struct thread_stats {
	char name[THREAD_NAME_MAX];
	uint64_t id;
	cpu_set_t cpumask; /* empty: the control thread */
	uint32_t lcore;    /* where it is; UINT32_MAX: the control thread */
	uint64_t busy_ticks, idle_ticks;
	uint32_t active_pollers, timed_pollers, paused_pollers, timers, channels, descriptors;
	uint32_t pending_messages;
};
/* Collects the statistics of t. Control thread; waits for t's reactor. */
void thread_get_stats(struct thread *t, struct thread_stats *stats);

enum poller_kind { POLLER_KIND_ACTIVE, POLLER_KIND_TIMED, POLLER_KIND_PAUSED };
struct poller_stats {
	char name[THREAD_NAME_MAX];
	uint64_t id; /* within its thread */
	enum poller_kind kind;
	uint64_t run_count, busy_count, period_ticks;
	uint64_t ticks; /* spent in fn; without a period an estimate, from one round in 256 */
};
/* Collects the pollers of t into *stats, an array that the caller frees (NULL if there are none). Returns their number,
 * or -ENOMEM. Control thread; waits for t's reactor. */
int thread_get_pollers(struct thread *t, struct poller_stats **stats);

struct io_channel_stats {
	char name[2 * THREAD_NAME_MAX]; /* of its device */
	uint32_t refs;
};
/* Collects the channels of t, as thread_get_pollers() does its pollers. */
int thread_get_io_channels(struct thread *t, struct io_channel_stats **stats);

struct reactor_stats {
	uint32_t lcore;
	int tid; /* of its OS thread */
	uint64_t busy_ticks, idle_ticks;
	bool sleeping;   /* before this call woke it */
	uint64_t sleeps; /* how often it has slept */
	/* Time of the lcore's CPU in interrupts, in the kernel and in programs, as the kernel counts it: in jiffies, of
	 * which a second has sysconf(_SC_CLK_TCK). 0 with oversubscribe. */
	uint64_t irq_jiffies, sys_jiffies, usr_jiffies;
};
/* Collects the statistics of the reactor on that lcore. -ENODEV: there is none. Control thread; waits for the
 * reactor. */
int reactor_get_stats(uint32_t lcore, struct reactor_stats *stats);

/* How far a reactor has got, read without its help: whether it still makes rounds. A reactor that does not sleep and
 * whose round_ticks stay the same is stuck in a callback, or gets no CPU. */
struct reactor_progress {
	uint32_t lcore;
	int tid;
	uint64_t round_ticks; /* start of the round it is in */
	bool sleeping;
};
/* The progress of reactor number index, from 0. -ENODEV: there are fewer. Control thread. */
int reactor_get_progress(uint32_t index, struct reactor_progress *progress);
/* Has a reactor that sleeps make a round, which its progress shows soon. Control thread. */
void reactor_wake(uint32_t index);
/* Has fn called every period_us microseconds while the control thread waits for a reactor (thread_call(),
 * thread_synchronize()). fn runs on the control thread; it may look at things, write files and start timers, and must
 * not wait. NULL: nothing is called. Control thread. */
void thread_set_wait_hook(void (*fn)(void), uint64_t period_us);

#endif

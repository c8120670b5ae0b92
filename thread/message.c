/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages: 16-byte {fn, arg} elements in one ring per thread, with many producers and one consumer; posted messages,
 * in one stack per thread; and calls, which are messages whose sender waits. */
#include "thread/thread_internal.h"

#include "usdt/usdt.h"
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <rte_pause.h>
#include <rte_ring.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* About as long as a busy reactor needs to answer. A sleeping one needs longer than spinning is worth. */
#define CALL_SPINS 200

enum { CALL_PENDING, CALL_WAITED_FOR, CALL_DONE };

/* Producers use DPDK's relaxed tail synchronization. With it the others do not wait for a producer that is preempted in
 * the middle of an enqueue, which on a shared CPU would cost them a time slice. ThreadSanitizer cannot follow it, since
 * the consumer reads the producers' 64-bit tail as 32 bits; builds with it use the ordinary kind. */
#ifdef __SANITIZE_THREAD__
#define RING_FLAGS RING_F_SC_DEQ
#else
#define RING_FLAGS (RING_F_MP_RTS_ENQ | RING_F_SC_DEQ)
#endif

struct rte_ring *message_ring_create(void)
{
	ssize_t size = rte_ring_get_memsize_elem(sizeof(struct message), MESSAGE_RING_SIZE);
	struct rte_ring *ring =
		size > 0 ? aligned_alloc(RTE_CACHE_LINE_SIZE, RTE_CACHE_LINE_ROUNDUP((size_t)size)) : NULL;

	if (ring == NULL) {
		return NULL;
	}
	if (rte_ring_init(ring, "messages", MESSAGE_RING_SIZE, RING_FLAGS) != 0) {
		free(ring);
		return NULL;
	}
	return ring;
}

int thread_send(struct thread *t, thread_fn fn, void *arg)
{
	struct message m = {.fn = fn, .arg = arg};

	USDT(thread_send_msg, thread_self != NULL ? thread_self->id : 0, t->id, fn);
	if (rte_ring_enqueue_elem(t->ring, &m, sizeof(m)) != 0) {
		return -ENOBUFS;
	}
	reactor_notify_thread(t);
	return 0;
}

void thread_post(struct thread *t, struct thread_msg *msg, void (*fn)(struct thread_msg *msg))
{
	USDT(thread_send_msg, thread_self != NULL ? thread_self->id : 0, t->id, fn);
	msg->fn = fn;
	msg->next = __atomic_load_n(&t->posted, __ATOMIC_RELAXED);
	/* Release pairs with the acquire in posted_run. */
	while (!__atomic_compare_exchange_n(&t->posted, &msg->next, msg, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
	}
	reactor_notify_thread(t);
}

/* Takes the whole stack, reverses it, and runs the messages in the order in which they were posted. */
static unsigned posted_run(struct thread *t)
{
	struct thread_msg *msg = __atomic_exchange_n(&t->posted, NULL, __ATOMIC_ACQUIRE), *in_order = NULL, *next;
	unsigned n = 0;

	for (; msg != NULL; msg = next) {
		next = msg->next;
		msg->next = in_order;
		in_order = msg;
	}
	for (; in_order != NULL; in_order = next, n++) {
		next = in_order->next; /* fn may post it again, or free it */
		USDT(msg_exec, (void *)in_order->fn, in_order);
		in_order->fn(in_order);
	}
	return n;
}

/* Runs a bounded number of t's messages, on t. It looks for posted messages after it has taken those of the ring, and
 * runs them first; so a posted message runs before one that its sender sent later. */
unsigned messages_run(struct thread *t)
{
	struct message batch[MESSAGE_BATCH];
	unsigned n = rte_ring_sc_dequeue_burst_elem(t->ring, batch, sizeof(batch[0]), MESSAGE_BATCH, NULL), posts = 0;

	if (unlikely(__atomic_load_n(&t->posted, __ATOMIC_RELAXED) != NULL)) {
		posts = posted_run(t);
	}
	for (unsigned i = 0; i < n; i++) {
		USDT(msg_exec, batch[i].fn, batch[i].arg);
		batch[i].fn(batch[i].arg);
	}
	return n + posts;
}

static void (*wait_hook)(void); /* of the control thread, which is the only one that waits */
static struct timespec wait_period;
static uint64_t wait_ticks;

void thread_set_wait_hook(void (*fn)(void), uint64_t period_us)
{
	wait_hook = fn;
	wait_period = (struct timespec){(time_t)(period_us / 1000000), (long)(period_us % 1000000 * 1000)};
	wait_ticks = env_us_to_ticks(period_us);
}

uint64_t wait_look(uint64_t since)
{
	if (wait_hook == NULL || env_ticks() - since < wait_ticks) {
		return since;
	}
	wait_hook();
	return env_ticks();
}

static long futex_call(uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
	return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, timeout, NULL, 0);
}

void call_init(struct call *c, thread_fn fn, void *arg)
{
	c->fn = fn;
	c->arg = arg;
	c->state = CALL_PENDING;
}

/* c is on the waiter's stack, and may not exist any more once its state is CALL_DONE; after that the wake-up uses only
 * its address. */
void call_serve(struct call *c)
{
	c->fn(c->arg);
	/* Release pairs with the acquire in call_wait(): the waiter sees what fn has written. */
	if (__atomic_exchange_n(&c->state, CALL_DONE, __ATOMIC_ACQ_REL) == CALL_WAITED_FOR) {
		futex_call(&c->state, FUTEX_WAKE, INT_MAX, NULL);
	}
}

void call_wait(struct call *c)
{
	uint32_t pending = CALL_PENDING;

	for (int i = 0; i < CALL_SPINS && !env_oversubscribed(); i++) {
		if (__atomic_load_n(&c->state, __ATOMIC_ACQUIRE) == CALL_DONE) {
			return;
		}
		rte_pause();
	}
	__atomic_compare_exchange_n(&c->state, &pending, CALL_WAITED_FOR, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
	while (__atomic_load_n(&c->state, __ATOMIC_ACQUIRE) != CALL_DONE) {
		if (futex_call(&c->state, FUTEX_WAIT, CALL_WAITED_FOR, wait_hook != NULL ? &wait_period : NULL) != 0 &&
		    errno == ETIMEDOUT && wait_hook != NULL) {
			wait_hook();
		}
	}
}

static void call_message(void *arg)
{
	call_serve(arg);
}

void thread_call(struct thread *t, thread_fn fn, void *arg)
{
	struct call c;

	if (t == thread_self) {
		fn(arg);
		return;
	}
	call_init(&c, fn, arg);
	while (thread_send(t, call_message, &c) != 0) {
		sched_yield(); /* its ring is full, so it is awake */
	}
	call_wait(&c);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue pairs as the control thread sees them. A struct bdev_nvme_qpair belongs to one thread and one controller; while
 * the controller is up it has a connected queue pair of the driver.
 *
 * It is made on its thread, with that thread's channel to the controller, and announced to the control thread by a
 * message (join). When the channel is closed, another message (leave) hands it to the control thread, which frees it.
 * Between the two messages the control thread may call the using thread (thread_call()). After `closed` has been set it
 * must not, because that thread may have ended; the control thread then stops the driver's queue pair by itself. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bdev_modules/nvme/internal.h"
#include "env_dpdk/env.h"
#include "usdt/usdt.h"
#include "util/log.h"
#include "util/state_machine.h"

#define RETRY_US 1000000
/* In a row. From then on the thread of the queue pair does without the controller, and it is retried less often. */
#define MAX_REFUSALS 5
#define RETRY_SHIFTS 4 /* the delay doubles so often: 16 s at most */

static const char *bdev_nvme_qpair_state_name(unsigned state)
{
	static const char *const names[BDEV_NVME_QPAIR_STATES] = {[BDEV_NVME_QPAIR_IDLE] = "idle",
								  [BDEV_NVME_QPAIR_CONNECTING] = "connecting",
								  [BDEV_NVME_QPAIR_UP] = "up",
								  [BDEV_NVME_QPAIR_STOPPING] = "stopping"};

	return state < BDEV_NVME_QPAIR_STATES ? names[state] : "unknown";
}

static const uint32_t qpair_next_states[BDEV_NVME_QPAIR_STATES] = {
	[BDEV_NVME_QPAIR_IDLE] = 1u << BDEV_NVME_QPAIR_CONNECTING,
	[BDEV_NVME_QPAIR_CONNECTING] = 1u << BDEV_NVME_QPAIR_UP | 1u << BDEV_NVME_QPAIR_IDLE,
	[BDEV_NVME_QPAIR_UP] = 1u << BDEV_NVME_QPAIR_STOPPING,
	[BDEV_NVME_QPAIR_STOPPING] = 1u << BDEV_NVME_QPAIR_IDLE,
};
STATE_MACHINE(bdev_nvme_qpair_machine, "bdev_nvme queue pair", bdev_nvme_qpair_state_name, qpair_next_states)

static void bdev_nvme_qpair_set_state(struct bdev_nvme_qpair *qp, enum bdev_nvme_qpair_state state)
{
	state_machine_check(&bdev_nvme_qpair_machine, qp->state, state, qp->c->name);
	USDT(bdev_nvme_qpair_state, qp->c->name, qp->thread_id, qp->state, state);
	qp->state = state;
}

/* Runs fn(qp) on its thread and waits; false if qp is closed. */
static bool bdev_nvme_qpair_call(struct bdev_nvme_qpair *qp, thread_fn fn)
{
	if (__atomic_load_n(&qp->closed, __ATOMIC_ACQUIRE)) { /* pairs with bdev_nvme_qpair_post_leave() */
		return false;
	}
	/* The thread exists: only the control thread ends threads, and not before their channels are closed. */
	thread_call(qp->thread, fn, qp);
	return true;
}

static void bdev_nvme_qpair_step(struct bdev_nvme_qpair *qp);

/* A queue has become free, which may be what others have lacked. */
static void bdev_nvme_qpairs_retry(struct bdev_nvme *c)
{
	struct bdev_nvme_qpair *qp;

	TAILQ_FOREACH (qp, &c->qpairs, link) {
		if (qp->shut_out != BDEV_NVME_ADMITTED && qp->state == BDEV_NVME_QPAIR_IDLE) {
			thread_timer_start(&qp->retry_timer, 0);
		}
	}
}

static void bdev_nvme_qpair_free(struct bdev_nvme_qpair *qp)
{
	struct bdev_nvme *c = qp->c;

	thread_timer_stop(&qp->retry_timer);
	TAILQ_REMOVE(&c->qpairs, qp, link);
	bdev_nvme_qpairs_retry(c);
	env_dma_free(qp->ranges);
	free(qp->fused);
	free(qp);
	__atomic_fetch_sub(&c->num_qpairs, 1, __ATOMIC_RELAXED);
	bdev_nvme_detach_step(c);
}

static void bdev_nvme_qpair_retry_timer_fired(void *qpair)
{
	bdev_nvme_qpair_step(qpair);
}

/* I/O of the thread takes other paths, or fails. */
static void bdev_nvme_qpair_set_shut_out(struct bdev_nvme_qpair *qp, enum bdev_nvme_shut_out shut_out)
{
	struct bdev_nvme *c = qp->c;

	if (shut_out == qp->shut_out || __atomic_load_n(&qp->closed, __ATOMIC_ACQUIRE)) {
		qp->shut_out = shut_out; /* closed: the thread, whose name the log would say, may have ended */
		return;
	}
	if (shut_out == BDEV_NVME_NO_QUEUE) {
		log_warning(
			"%s: the controller grants %u I/O queues, and none of them is free: I/O of thread '%s' fails",
			c->name, nvme_ctrlr_io_queues(c->ctrlr), thread_name(qp->thread));
	} else if (shut_out == BDEV_NVME_REFUSED) {
		log_warning(
			"%s: the controller at %s refused the queue pair of thread '%s' %u times in a row, and serves "
			"others: I/O of this thread takes other paths, or fails",
			c->name, c->opts.trid.traddr, thread_name(qp->thread), qp->refusals);
	} else {
		log_notice("%s: the queue pair of thread '%s' is connected", c->name, thread_name(qp->thread));
	}
	qp->shut_out = shut_out;
	bdev_nvme_qpair_call(qp, bdev_nvme_qpair_set_fails);
}

static bool bdev_nvme_serves_others(const struct bdev_nvme_qpair *qp)
{
	const struct bdev_nvme_qpair *other;

	TAILQ_FOREACH (other, &qp->c->qpairs, link) {
		if (other != qp && other->state == BDEV_NVME_QPAIR_UP) {
			return true;
		}
	}
	return false;
}

/* A controller that refuses one queue pair and serves others is not reset, which would end the I/O of those. */
static void bdev_nvme_qpair_count_refusal(struct bdev_nvme_qpair *qp)
{
	if (qp->refusals < MAX_REFUSALS + RETRY_SHIFTS) {
		qp->refusals++;
	}
	if (qp->refusals < MAX_REFUSALS) {
		return;
	}
	if (bdev_nvme_serves_others(qp)) {
		bdev_nvme_qpair_set_shut_out(qp, BDEV_NVME_REFUSED);
	} else {
		qp->refusals = 0;
		bdev_nvme_recover(qp->c, "a queue pair was refused again and again");
	}
}

static bool bdev_nvme_is_serving(const struct bdev_nvme *c)
{
	return c->state == BDEV_NVME_UP && nvme_ctrlr_state(c->ctrlr) == NVME_CTRLR_READY &&
	       !nvme_ctrlr_is_ending(c->ctrlr);
}

static uint64_t bdev_nvme_qpair_retry_us(const struct bdev_nvme_qpair *qp)
{
	return RETRY_US << (qp->refusals > MAX_REFUSALS ? qp->refusals - MAX_REFUSALS : 0);
}

/* It is tried again after a while, and as soon as another one has been freed if that may be what it lacked. */
static void bdev_nvme_qpair_refused(struct bdev_nvme_qpair *qp, int error)
{
	struct bdev_nvme *c = qp->c;

	bdev_nvme_qpair_set_state(qp, BDEV_NVME_QPAIR_IDLE);
	if (qp->left) {
		bdev_nvme_qpair_free(qp);
		return;
	}
	if (error == -EAGAIN) { /* nobody is shut out for a moment */
		log_limited(LOG_LEVEL_NOTICE,
			    "%s: the queue pair of thread '%s' waits until the controller has deleted one that was "
			    "created too late: no other queue is free",
			    c->name, thread_name(qp->thread));
	} else if (error == -ENOSPC) {
		bdev_nvme_qpair_set_shut_out(qp, BDEV_NVME_NO_QUEUE);
	} else if (bdev_nvme_is_serving(c)) { /* else its connection has ended, or is being ended */
		bdev_nvme_qpair_count_refusal(qp);
	}
	thread_timer_start(&qp->retry_timer, bdev_nvme_qpair_retry_us(qp));
	bdev_nvme_detach_step(c); /* a detach may have waited for this one */
}

static void bdev_nvme_qpair_connected(void *arg, struct nvme_qpair *qpair, int error)
{
	struct bdev_nvme_qpair *qp = arg;

	if (error != 0) {
		bdev_nvme_qpair_refused(qp, error);
		return;
	}
	qp->refusals = 0;
	qp->created = qpair;
	bdev_nvme_qpair_set_state(qp, BDEV_NVME_QPAIR_UP);
	USDT(bdev_nvme_create_qpair, qp->c->name, nvme_qpair_id(qpair), qp->thread_id);
	bdev_nvme_qpair_set_shut_out(qp, BDEV_NVME_ADMITTED);
	if (bdev_nvme_qpair_call(qp, bdev_nvme_qpair_attach) && qp->poller == NULL && !qp->closing) {
		log_error("%s: out of memory for the poller of a queue pair", qp->c->name);
		bdev_nvme_recover(qp->c, "out of memory");
	}
	bdev_nvme_qpair_step(qp);
}

static void bdev_nvme_qpair_stopped(void *arg)
{
	struct bdev_nvme_qpair *qp = arg;

	if (!bdev_nvme_qpair_call(qp, bdev_nvme_qpair_abort_all)) {
		nvme_qpair_abort_all(
			qp->created); /* nothing is outstanding, or the channel could not have been closed */
	}
	nvme_qpair_destroy(qp->created);
	qp->created = NULL;
	bdev_nvme_qpair_set_state(qp, BDEV_NVME_QPAIR_IDLE);
	struct bdev_nvme *c = qp->c;
	bdev_nvme_hold(c);
	bdev_nvme_qpair_step(qp);
	bdev_nvme_release(c);
}

static bool bdev_nvme_qpair_is_wanted(const struct bdev_nvme_qpair *qp)
{
	bool up = qp->c->state == BDEV_NVME_UP || (qp->c->state == BDEV_NVME_DETACHING && !qp->c->io_fails);

	return up && !qp->left && !qp->c->ending && qp->c->ctrlr != NULL &&
	       nvme_ctrlr_state(qp->c->ctrlr) == NVME_CTRLR_READY;
}

/* Connects or stops qp, as the state of its controller demands. qp may have been freed afterwards. */
static void bdev_nvme_qpair_step(struct bdev_nvme_qpair *qp)
{
	switch (qp->state) {
	case BDEV_NVME_QPAIR_IDLE:
		if (qp->left) {
			bdev_nvme_qpair_free(qp);
		} else if (bdev_nvme_qpair_is_wanted(qp)) {
			struct nvme_qpair_opts opts = {
				.lcore = qp->lcore,
				.numa_node = qp->lcore == ENV_LCORE_NONE ? -1 : env_lcore_numa_node(qp->lcore)};
			bdev_nvme_qpair_set_state(qp, BDEV_NVME_QPAIR_CONNECTING);
			nvme_qpair_create(qp->c->ctrlr, &opts, bdev_nvme_qpair_connected, qp);
		}
		break;
	case BDEV_NVME_QPAIR_UP:
		if (!bdev_nvme_qpair_is_wanted(qp)) {
			bdev_nvme_qpair_set_state(qp, BDEV_NVME_QPAIR_STOPPING);
			bdev_nvme_qpair_call(qp, bdev_nvme_qpair_detach);
			nvme_qpair_stop(qp->created, bdev_nvme_qpair_stopped, qp);
		}
		break;
	default:
		break; /* connecting or stopping: its end calls this again */
	}
}

void bdev_nvme_qpairs_readmit(struct bdev_nvme *c)
{
	struct bdev_nvme_qpair *qp;

	TAILQ_FOREACH (qp, &c->qpairs, link) {
		qp->refusals = 0;
		if (qp->shut_out == BDEV_NVME_REFUSED) {
			qp->shut_out = BDEV_NVME_ADMITTED;
			bdev_nvme_qpair_call(qp, bdev_nvme_qpair_set_fails);
		}
	}
}

void bdev_nvme_qpairs_step(struct bdev_nvme *c)
{
	struct bdev_nvme_qpair *qp = TAILQ_FIRST(&c->qpairs), *next;

	for (; qp != NULL; qp = next) {
		next = TAILQ_NEXT(qp, link);
		bdev_nvme_qpair_step(qp);
	}
}

bool bdev_nvme_qpairs_are_idle(const struct bdev_nvme *c)
{
	const struct bdev_nvme_qpair *qp;

	TAILQ_FOREACH (qp, &c->qpairs, link) {
		if (qp->state != BDEV_NVME_QPAIR_IDLE) {
			return false;
		}
	}
	return true;
}

struct outstanding {
	struct bdev_nvme_qpair *qp;
	uint32_t n;
};

static void bdev_nvme_qpair_add_outstanding(void *arg)
{
	struct outstanding *o = arg;

	o->n += o->qp->outstanding;
}

uint32_t bdev_nvme_qpairs_outstanding(struct bdev_nvme *c)
{
	struct outstanding o = {NULL, 0};

	TAILQ_FOREACH (o.qp, &c->qpairs, link) {
		if (!__atomic_load_n(&o.qp->closed, __ATOMIC_ACQUIRE)) {
			thread_call(o.qp->thread, bdev_nvme_qpair_add_outstanding, &o);
		}
	}
	return o.n;
}

void bdev_nvme_qpairs_suspend(struct bdev_nvme *c)
{
	struct bdev_nvme_qpair *qp;

	TAILQ_FOREACH (qp, &c->qpairs, link) {
		bdev_nvme_qpair_call(qp, bdev_nvme_qpair_suspend);
	}
}

void bdev_nvme_qpairs_set_fails(struct bdev_nvme *c, bool fails)
{
	struct bdev_nvme_qpair *qp;

	if (c->io_fails == fails) {
		return;
	}
	c->io_fails = fails;
	TAILQ_FOREACH (qp, &c->qpairs, link) {
		bdev_nvme_qpair_call(qp, bdev_nvme_qpair_set_fails);
	}
}

/* --- Messages of the using thread --- */

static void bdev_nvme_qpair_join_message(struct thread_msg *msg)
{
	struct bdev_nvme_qpair *qp =
		(struct bdev_nvme_qpair *)((uint8_t *)msg - offsetof(struct bdev_nvme_qpair, join_msg));

	TAILQ_INSERT_TAIL(&qp->c->qpairs, qp, link);
	bdev_nvme_qpair_call(qp, bdev_nvme_qpair_set_fails);
	bdev_nvme_qpair_step(qp);
}

static void bdev_nvme_qpair_ana_message(struct thread_msg *msg)
{
	struct bdev_nvme_qpair *qp =
		(struct bdev_nvme_qpair *)((uint8_t *)msg - offsetof(struct bdev_nvme_qpair, ana_msg));

	__atomic_store_n(&qp->ana_asked, false, __ATOMIC_RELEASE); /* pairs with bdev_nvme_qpair_ask_ana() */
	if (qp->c->ctrlr != NULL) {
		nvme_ctrlr_read_ana(qp->c->ctrlr);
	}
}

void bdev_nvme_qpair_ask_ana(struct bdev_nvme_qpair *qp)
{
	if (!__atomic_exchange_n(&qp->ana_asked, true, __ATOMIC_ACQUIRE)) {
		thread_post(thread_control(), &qp->ana_msg, bdev_nvme_qpair_ana_message);
	}
}

static void bdev_nvme_qpair_leave_message(struct thread_msg *msg)
{
	struct bdev_nvme_qpair *qp =
		(struct bdev_nvme_qpair *)((uint8_t *)msg - offsetof(struct bdev_nvme_qpair, leave_msg));
	struct bdev_nvme *c = qp->c;

	qp->left = true;
	bdev_nvme_hold(c); /* qp may be the last one, for which a detach waits */
	bdev_nvme_qpair_step(qp);
	bdev_nvme_release(c);
}

/* --- On the using thread --- */

struct qpair_channel {
	struct bdev_nvme_qpair *qpair;
};

static int qpair_lacks_memory(const struct bdev_nvme *c)
{
	log_limited(LOG_LEVEL_ERROR, "%s: no memory for a queue pair of thread %s", c->name,
		    thread_name(thread_current()));
	return -ENOMEM;
}

int bdev_nvme_qpair_create(struct io_device *dev, void *channel)
{
	struct bdev_nvme *c = (struct bdev_nvme *)((uint8_t *)dev - offsetof(struct bdev_nvme, device));
	struct bdev_nvme_qpair *qp = calloc(1, sizeof(*qp));

	if (qp == NULL) {
		return qpair_lacks_memory(c);
	}
	qp->ranges = env_dma_zmalloc(BDEV_NVME_QPAIR_RANGES * sizeof(*qp->ranges), 0, -1);
	size_t fused_size = (nvme_request_size() + 63) & ~(size_t)63;
	qp->fused = aligned_alloc(64, fused_size);
	if (qp->ranges == NULL || qp->fused == NULL) {
		env_dma_free(qp->ranges);
		free(qp->fused);
		free(qp);
		return qpair_lacks_memory(c);
	}
	memset(qp->fused, 0, fused_size);
	qp->c = c;
	qp->thread = thread_current();
	qp->thread_id = thread_id(qp->thread);
	qp->lcore = env_lcore_current();
	qp->retry_timer = (struct thread_timer){.fn = bdev_nvme_qpair_retry_timer_fired, .arg = qp};
	bdev_nvme_qpair_init(qp);
	((struct qpair_channel *)channel)->qpair = qp;
	__atomic_fetch_add(&c->num_qpairs, 1, __ATOMIC_RELAXED);
	thread_post(thread_control(), &qp->join_msg, bdev_nvme_qpair_join_message);
	return 0;
}

void bdev_nvme_qpair_destroy(struct io_device *dev, void *channel)
{
	struct bdev_nvme_qpair *qp = ((struct qpair_channel *)channel)->qpair;

	qp->closing = true;
	bdev_nvme_qpair_enter(qp);
	bdev_nvme_qpair_exit(qp); /* leaves now, or when a function further up the stack calls exit */
}

void bdev_nvme_qpair_post_leave(struct bdev_nvme_qpair *qp)
{
	/* pairs with bdev_nvme_qpair_call(): who sees it set also sees that this thread does not use qp any more */
	__atomic_store_n(&qp->closed, true, __ATOMIC_RELEASE);
	thread_post(thread_control(), &qp->leave_msg, bdev_nvme_qpair_leave_message);
}

struct bdev_nvme_qpair *bdev_nvme_qpair_of(struct io_channel *ch)
{
	return ((struct qpair_channel *)io_channel_ctx(ch))->qpair;
}

/* --- Statistics --- */

struct stat_call {
	struct bdev_nvme_qpair *qp;
	struct bdev_nvme_qpair_stat *stat;
};

static void bdev_nvme_qpair_collect_stat(void *arg)
{
	const struct stat_call *s = arg;
	const struct bdev_nvme_qpair *qp = s->qp;
	const struct bdev_nvme_io *n;

	*s->stat = (struct bdev_nvme_qpair_stat){.polls = qp->polls,
						 .idle_polls = qp->idle_polls,
						 .completions = qp->completions,
						 .queued_requests = qp->queued,
						 .retries = qp->retries,
						 .outstanding = qp->outstanding};
	STAILQ_FOREACH (n, &qp->waiting, link) {
		s->stat->waiting++;
	}
	STAILQ_FOREACH (n, &qp->delayed, link) {
		s->stat->waiting++;
	}
}

void bdev_nvme_for_each_qpair(struct bdev_nvme *c, void (*fn)(void *arg, const struct bdev_nvme_qpair_stat *stat),
			      void *arg)
{
	struct bdev_nvme_qpair *qp;

	TAILQ_FOREACH (qp, &c->qpairs, link) {
		struct bdev_nvme_qpair_stat stat;
		struct stat_call s = {qp, &stat};

		if (!__atomic_load_n(&qp->closed, __ATOMIC_ACQUIRE)) {
			thread_call(qp->thread, bdev_nvme_qpair_collect_stat, &s);
			stat.thread_name = thread_name(qp->thread);
			stat.thread_id = thread_id(qp->thread);
			stat.qid = qp->created ? nvme_qpair_id(qp->created) : 0;
			fn(arg, &stat);
		}
	}
}

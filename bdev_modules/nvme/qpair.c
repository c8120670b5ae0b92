/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue pairs as the control thread sees them: a path is a thread's way to a controller, and has a queue pair while the
 * controller is up.
 *
 * A path is made on its thread, when a channel is, and announces itself here by a message; it says good-bye by another
 * one, and is freed here. Between the two this thread may call that thread. One that has been closed may have lost its
 * thread: nobody calls it, and its queue pair is this thread's to end. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bdev_modules/nvme/internal.h"
#include "env_dpdk/env.h"
#include "usdt/usdt.h"
#include "util/log.h"

#define RETRY_US     1000000
#define MAX_REFUSALS 5

static const struct {
	const char *name;
	uint32_t next;
} states[NVME_PATH_STATES] = {
	[NVME_PATH_IDLE] = {"idle", 1u << NVME_PATH_CONNECTING},
	[NVME_PATH_CONNECTING] = {"connecting", 1u << NVME_PATH_UP | 1u << NVME_PATH_IDLE},
	[NVME_PATH_UP] = {"up", 1u << NVME_PATH_STOPPING},
	[NVME_PATH_STOPPING] = {"stopping", 1u << NVME_PATH_IDLE},
};

static void set_state(struct nvme_path *p, enum nvme_path_state state)
{
	if ((states[p->state].next & 1u << state) == 0) {
		log_error("%s: a path may not go from '%s' to '%s'", p->c->name, states[p->state].name,
			  states[state].name);
		abort(); /* a fault in this file */
	}
	USDT(bdev_nvme_path_state, p->c->name, thread_id(p->thread), p->state, state);
	p->state = state;
}

/* Runs fn(p) on p's thread; false if p is closed. */
static bool call(struct nvme_path *p, thread_fn fn)
{
	if (__atomic_load_n(&p->closed, __ATOMIC_ACQUIRE)) { /* pairs with nvme_path_post_leave() */
		return false;
	}
	/* Only this thread ends threads, and not before their channels are gone: it is there. */
	thread_call(p->thread, fn, p);
	return true;
}

static void step(struct nvme_path *p);

static void free_path(struct nvme_path *p)
{
	struct bdev_nvme *c = p->c;

	thread_timer_stop(&p->retry_timer);
	TAILQ_REMOVE(&c->paths, p, link);
	env_dma_free(p->ranges);
	free(p->fused);
	free(p);
	__atomic_fetch_sub(&c->num_paths, 1, __ATOMIC_RELAXED);
	bdev_nvme_detach_step(c);
}

static void retry_timer_fired(void *path)
{
	step(path);
}

/* Those that found no queue left try again when another path has gone, too. */
static void set_no_queue(struct nvme_path *p, bool none)
{
	if (none != p->no_queue_told) {
		p->no_queue_told = none;
		if (none) {
			log_warning(
				"%s: the controller grants %u I/O queues, and all are in use: I/O of thread '%s' fails",
				p->c->name, nvme_ctrlr_io_queues(p->c->ctrlr), thread_name(p->thread));
		}
		call(p, nvme_queue_set_fails);
	}
}

static void refused(struct nvme_path *p, int error)
{
	struct bdev_nvme *c = p->c;

	set_state(p, NVME_PATH_IDLE);
	if (p->left) {
		free_path(p);
		return;
	}
	if (error == -ENOSPC) {
		set_no_queue(p, true);
	} else if (c->state == BDEV_NVME_UP && ++p->refusals >= MAX_REFUSALS) {
		p->refusals = 0;
		bdev_nvme_recover(c, "a queue pair was refused again and again");
	}
	thread_timer_start(&p->retry_timer, RETRY_US);
	bdev_nvme_detach_step(c); /* which may have waited for this one */
}

static void connected(void *arg, struct nvme_qpair *qpair, int error)
{
	struct nvme_path *p = arg;

	if (error != 0) {
		refused(p, error);
		return;
	}
	p->refusals = 0;
	p->own = qpair;
	set_state(p, NVME_PATH_UP);
	USDT(bdev_nvme_create_qpair, p->c->name, nvme_qpair_id(qpair), thread_id(p->thread));
	set_no_queue(p, false);
	if (call(p, nvme_queue_attach) && p->poller == NULL && !p->closing) {
		log_error("%s: out of memory for the poller of a queue pair", p->c->name);
		bdev_nvme_recover(p->c, "out of memory");
	}
	step(p);
}

static void stopped(void *arg)
{
	struct nvme_path *p = arg;

	if (!call(p, nvme_queue_abort_all)) {
		nvme_qpair_abort_all(p->own); /* nothing is outstanding: its channel could not have gone otherwise */
	}
	nvme_qpair_destroy(p->own);
	p->own = NULL;
	set_state(p, NVME_PATH_IDLE);
	struct bdev_nvme *c = p->c;
	c->uses++;
	step(p);
	c->uses--;
	bdev_nvme_detach_step(c);
}

static bool wanted(const struct nvme_path *p)
{
	bool up = p->c->state == BDEV_NVME_UP || (p->c->state == BDEV_NVME_DETACHING && !p->c->io_fails);

	return up && !p->left && !p->c->ending && p->c->ctrlr != NULL &&
	       nvme_ctrlr_state(p->c->ctrlr) == NVME_CTRLR_READY;
}

/* Takes p one step towards what is wanted. p may be gone afterwards. */
static void step(struct nvme_path *p)
{
	switch (p->state) {
	case NVME_PATH_IDLE:
		if (p->left) {
			free_path(p);
		} else if (wanted(p)) {
			struct nvme_qpair_opts opts = {
				.lcore = p->lcore,
				.numa_node = p->lcore == ENV_LCORE_NONE ? -1 : env_lcore_numa_node(p->lcore)};
			set_state(p, NVME_PATH_CONNECTING);
			nvme_qpair_create(p->c->ctrlr, &opts, connected, p);
		}
		break;
	case NVME_PATH_UP:
		if (!wanted(p)) {
			set_state(p, NVME_PATH_STOPPING);
			call(p, nvme_queue_detach);
			nvme_qpair_stop(p->own, stopped, p);
		}
		break;
	default:
		break; /* the end of what runs leads here again */
	}
}

void nvme_paths_step(struct bdev_nvme *c)
{
	struct nvme_path *p = TAILQ_FIRST(&c->paths), *next;

	for (; p != NULL; p = next) {
		next = TAILQ_NEXT(p, link);
		step(p);
	}
}

bool nvme_paths_are_idle(const struct bdev_nvme *c)
{
	const struct nvme_path *p;

	TAILQ_FOREACH (p, &c->paths, link) {
		if (p->state != NVME_PATH_IDLE) {
			return false;
		}
	}
	return true;
}

struct outstanding {
	struct nvme_path *p;
	uint32_t n;
};

static void add_outstanding(void *arg)
{
	struct outstanding *o = arg;

	o->n += o->p->outstanding;
}

uint32_t nvme_paths_outstanding(struct bdev_nvme *c)
{
	struct outstanding o = {NULL, 0};

	TAILQ_FOREACH (o.p, &c->paths, link) {
		if (!__atomic_load_n(&o.p->closed, __ATOMIC_ACQUIRE)) {
			thread_call(o.p->thread, add_outstanding, &o);
		}
	}
	return o.n;
}

void nvme_paths_set_fails(struct bdev_nvme *c, bool fails)
{
	struct nvme_path *p;

	if (c->io_fails == fails) {
		return;
	}
	c->io_fails = fails;
	TAILQ_FOREACH (p, &c->paths, link) {
		call(p, nvme_queue_set_fails);
	}
}

/* --- What the path's thread says --- */

static void join(struct thread_msg *msg)
{
	struct nvme_path *p = (struct nvme_path *)((uint8_t *)msg - offsetof(struct nvme_path, join_msg));

	TAILQ_INSERT_TAIL(&p->c->paths, p, link);
	call(p, nvme_queue_set_fails);
	step(p);
}

static void ana_asked(struct thread_msg *msg)
{
	struct nvme_path *p = (struct nvme_path *)((uint8_t *)msg - offsetof(struct nvme_path, ana_msg));

	__atomic_store_n(&p->ana_asked, false, __ATOMIC_RELEASE); /* pairs with nvme_path_ask_ana() */
	if (p->c->ctrlr != NULL) {
		nvme_ctrlr_read_ana(p->c->ctrlr);
	}
}

void nvme_path_ask_ana(struct nvme_path *p)
{
	if (!__atomic_exchange_n(&p->ana_asked, true, __ATOMIC_ACQUIRE)) {
		thread_post(thread_control(), &p->ana_msg, ana_asked);
	}
}

static void leave(struct thread_msg *msg)
{
	struct nvme_path *p = (struct nvme_path *)((uint8_t *)msg - offsetof(struct nvme_path, leave_msg));
	struct bdev_nvme *c = p->c;

	p->left = true;
	c->uses++; /* p may be the last to go */
	step(p);
	struct nvme_path *other;
	TAILQ_FOREACH (other, &c->paths, link) {
		if (other->no_queue_told && other->state == NVME_PATH_IDLE) {
			thread_timer_start(&other->retry_timer, 0);
		}
	}
	c->uses--;
	bdev_nvme_detach_step(c);
}

/* --- On the path's thread --- */

struct channel {
	struct nvme_path *path;
};

int nvme_path_create(struct io_device *dev, void *channel)
{
	struct bdev_nvme *c = (struct bdev_nvme *)((uint8_t *)dev - offsetof(struct bdev_nvme, device));
	struct nvme_path *p = calloc(1, sizeof(*p));

	if (p == NULL) {
		return -ENOMEM;
	}
	p->ranges = env_dma_zmalloc(NVME_PATH_RANGES * sizeof(*p->ranges), 0, -1);
	size_t fused_size = (nvme_request_size() + 63) & ~(size_t)63;
	p->fused = aligned_alloc(64, fused_size);
	if (p->ranges == NULL || p->fused == NULL) {
		env_dma_free(p->ranges);
		free(p->fused);
		free(p);
		return -ENOMEM;
	}
	memset(p->fused, 0, fused_size);
	p->c = c;
	p->thread = thread_current();
	p->lcore = env_lcore_current();
	p->retry_timer = (struct thread_timer){.fn = retry_timer_fired, .arg = p};
	nvme_queue_init(p);
	((struct channel *)channel)->path = p;
	__atomic_fetch_add(&c->num_paths, 1, __ATOMIC_RELAXED);
	thread_post(thread_control(), &p->join_msg, join);
	return 0;
}

void nvme_path_destroy(struct io_device *dev, void *channel)
{
	struct nvme_path *p = ((struct channel *)channel)->path;

	p->closing = true;
	nvme_queue_enter(p);
	nvme_queue_exit(p); /* leaves now, or when the frame further up does */
}

void nvme_path_post_leave(struct nvme_path *p)
{
	/* pairs with call(): who finds it set also finds that the queue pair is not used any more */
	__atomic_store_n(&p->closed, true, __ATOMIC_RELEASE);
	thread_post(thread_control(), &p->leave_msg, leave);
}

struct nvme_path *nvme_path_of(struct io_channel *ch)
{
	return ((struct channel *)io_channel_ctx(ch))->path;
}

/* --- Statistics --- */

struct stat_call {
	struct nvme_path *p;
	struct bdev_nvme_path_stat *stat;
};

static void collect(void *arg)
{
	const struct stat_call *s = arg;
	const struct nvme_path *p = s->p;
	const struct nvme_io *n;

	*s->stat = (struct bdev_nvme_path_stat){.polls = p->polls,
						.idle_polls = p->idle_polls,
						.completions = p->completions,
						.queued_requests = p->queued,
						.retries = p->retries,
						.outstanding = p->outstanding};
	STAILQ_FOREACH (n, &p->waiting, link) {
		s->stat->waiting++;
	}
	STAILQ_FOREACH (n, &p->delayed, link) {
		s->stat->waiting++;
	}
}

void bdev_nvme_for_each_path(struct bdev_nvme *c, void (*fn)(void *arg, const struct bdev_nvme_path_stat *stat),
			     void *arg)
{
	struct nvme_path *p;

	TAILQ_FOREACH (p, &c->paths, link) {
		struct bdev_nvme_path_stat stat;
		struct stat_call s = {p, &stat};

		if (!__atomic_load_n(&p->closed, __ATOMIC_ACQUIRE)) {
			thread_call(p->thread, collect, &s);
			stat.thread_name = thread_name(p->thread);
			stat.thread_id = thread_id(p->thread);
			stat.qid = p->own ? nvme_qpair_id(p->own) : 0;
			fn(arg, &stat);
		}
	}
}

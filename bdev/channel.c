/* SPDX-License-Identifier: BSD-3-Clause */
/* Channels: one thread's access to a bdev; and the data that all channels of a thread share. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bdev/internal.h"

static struct iobuf_module iobuf_module = {.name = "bdev"};

/* --- Per thread --- */

/* Carries out the puts that came inside frames. t may be gone afterwards. */
static void bdev_channels_put(struct bdev_thread *t)
{
	bool last;

	do {
		struct bdev_channel *ch = SLIST_FIRST(&t->puts);
		if (--ch->puts == 0) {
			SLIST_REMOVE_HEAD(&t->puts, put_link);
		}
		last = SLIST_EMPTY(&t->puts);
		io_channel_put(ch->io_channel); /* the last one may take t with it */
	} while (!last);
}

static int bdev_thread_poll(void *ctx)
{
	struct bdev_thread *t = ctx;

	if (STAILQ_EMPTY(&t->done) && SLIST_EMPTY(&t->puts)) {
		t->polling = false;
		poller_pause(t->poller);
		return POLLER_IDLE;
	}
	bdev_enter(t);
	bdev_leave(t);
	if (!SLIST_EMPTY(&t->puts)) {
		bdev_channels_put(t);
	}
	return POLLER_BUSY;
}

void bdev_thread_kick(struct bdev_thread *t)
{
	if (!t->polling) {
		t->polling = true;
		poller_resume(t->poller);
	}
}

static int bdev_thread_create_ctx(struct io_device *dev, void *ctx)
{
	struct bdev_thread *t = ctx;

	STAILQ_INIT(&t->done);
	STAILQ_INIT(&t->buffer_waiters[IOBUF_SMALL]);
	STAILQ_INIT(&t->buffer_waiters[IOBUF_LARGE]);
	t->thread = thread_current();
	t->poller = poller_register(
		&(struct poller_opts){.name = "bdev_thread", .fn = bdev_thread_poll, .ctx = t, .fd = -1});
	if (t->poller == NULL) {
		log_limited(LOG_LEVEL_ERROR, "no memory for the poller of block devices on thread %s",
			    thread_name(t->thread));
		return -ENOMEM;
	}
	poller_pause(t->poller);
	return 0;
}

static void bdev_thread_destroy_ctx(struct io_device *dev, void *ctx)
{
	struct bdev_thread *t = ctx;

	poller_unregister(&t->poller);
	iobuf_channel_destroy(&t->buffers);
}

static struct io_device thread_device = {
	.name = "bdev_thread",
	.channel_size = sizeof(struct bdev_thread),
	.channel_create = bdev_thread_create_ctx,
	.channel_destroy = bdev_thread_destroy_ctx,
};

void bdev_channels_init(void)
{
	iobuf_module_register(&iobuf_module);
	io_device_register(&thread_device);
}

void bdev_channels_fini(void)
{
	int rc = io_device_unregister(&thread_device);
	if (rc != 0) {
		log_error("some thread still has a bdev channel: %d", rc);
	}
}

/* A child of a split I/O takes one buffer, so a few are enough to make progress, whatever others hold. */
#define BUFFERS_FLOOR 4

int bdev_thread_need_buffers(struct bdev_thread *t, const struct bdev *b)
{
	struct iobuf_channel_opts opts = {.module = &iobuf_module};
	char error[ENV_ERROR_MAX];

	if (b->block_size > iobuf_size(IOBUF_LARGE)) {
		log_error("bdev %s: blocks of %u bytes do not fit into data buffers of %u: raise large_bufsize "
			  "(iobuf_set_options)",
			  b->name, b->block_size, iobuf_size(IOBUF_LARGE));
		return -EINVAL;
	}
	if (t->has_buffers) {
		return 0;
	}
	opts.class[IOBUF_SMALL].floor = opts.class[IOBUF_LARGE].floor = BUFFERS_FLOOR;
	opts.class[IOBUF_SMALL].keep = bdev_options.iobuf_small_cache_size;
	opts.class[IOBUF_LARGE].keep = bdev_options.iobuf_large_cache_size;
	int rc = iobuf_channel_create(&t->buffers, &opts, error);
	if (rc != 0) {
		log_error("bdev %s: %s", b->name, error);
	}
	t->has_buffers = rc == 0;
	return rc;
}

/* --- Channels --- */

static struct bdev_core *io_device_core(struct io_device *dev)
{
	return container_of(dev, struct bdev_core, dev);
}

/* Whether the layer may need data buffers: to copy misaligned data, which only bdevs with limits or metadata require,
 * or to compare, copy and verify because the module does not. */
static bool bdev_needs_buffers(const struct bdev *b)
{
	const uint32_t own = 1u << BDEV_IO_COMPARE | 1u << BDEV_IO_COPY | 1u << BDEV_IO_VERIFY;

	return b->limited || b->md.size != 0 || (b->io_types & own) != own;
}

/* Gives a new channel the state that visits give to the existing ones. Under the mutex. */
static int channel_join(struct bdev_core *core, struct bdev_channel *ch)
{
	ch->slow = core->new_channel_slow;
	if (core->histogram != NULL) {
		ch->histogram = bdev_histogram_copy(core->histogram);
		if (ch->histogram == NULL) {
			return -ENOMEM;
		}
	}
	bdev_lock_inherit(ch);
	ch->number = ++core->last_channel;
	TAILQ_INSERT_TAIL(&core->channels, ch, link);
	return 0;
}

static void channel_init(struct bdev_channel *ch, struct bdev *b)
{
	ch->bdev = b;
	ch->submit = b->ops->submit;
	TAILQ_INIT(&ch->inflight);
	struct bdev_io_queue *queues[] = {
		&ch->frozen,     &ch->qos_wait[RATE_READS], &ch->qos_wait[RATE_WRITES], &ch->lock_wait, &ch->nomem,
		&ch->locks_wait, &ch->resets_wait};
	for (size_t i = 0; i < sizeof(queues) / sizeof(queues[0]); i++) {
		STAILQ_INIT(queues[i]);
	}
	ch->qos_timer = (struct thread_timer){.fn = bdev_qos_timer, .arg = ch};
	ch->nomem_timer = (struct thread_timer){.fn = bdev_nomem_timer, .arg = ch};
	bdev_stat_init(&ch->stat);
	memset(ch->until_sample, 1, sizeof(ch->until_sample));
	memset(ch->first_samples_left, LATENCY_FIRST_SAMPLES, sizeof(ch->first_samples_left));
}

static int bdev_channel_ctx_create(struct io_device *dev, void *ctx)
{
	struct bdev_core *core = io_device_core(dev);
	struct bdev *b = core->bdev;
	struct bdev_channel *ch = ctx;
	int rc = -ENOMEM;

	channel_init(ch, b);
	struct io_channel *thread_channel = io_channel_get(&thread_device);
	if (thread_channel == NULL) {
		return rc;
	}
	ch->thread = io_channel_ctx(thread_channel);
	ch->thread->io_channel = thread_channel;
	if (bdev_needs_buffers(b) && (rc = bdev_thread_need_buffers(ch->thread, b)) != 0) {
		goto put_thread;
	}
	ch->split_pool = bdev_split_pool_create(ch);
	if (ch->split_pool == NULL) {
		log_limited(LOG_LEVEL_ERROR, "bdev %s: no memory for the pieces of split I/O on thread %s", b->name,
			    thread_name(thread_current()));
		rc = -ENOMEM;
		goto put_thread;
	}
	rc = b->ops->channel_create != NULL ? b->ops->channel_create(b, ch->module) : 0;
	if (rc != 0) {
		goto free_split_pool;
	}
	pthread_mutex_lock(&core->mutex);
	rc = channel_join(core, ch);
	pthread_mutex_unlock(&core->mutex);
	if (rc != 0) {
		goto destroy_module;
	}
	TRACE(BDEV_IOCH_CREATE, b->trace_owner, 0, (uintptr_t)ch, thread_id(thread_current()));
	return 0;

destroy_module:
	if (b->ops->channel_destroy != NULL) {
		b->ops->channel_destroy(b, ch->module);
	}
free_split_pool:
	bdev_split_pool_destroy(ch->split_pool);
put_thread:
	io_channel_put(thread_channel);
	return rc;
}

static void bdev_channel_ctx_destroy(struct io_device *dev, void *ctx)
{
	struct bdev_core *core = io_device_core(dev);
	struct bdev *b = core->bdev;
	struct bdev_channel *ch = ctx;

	if (ch->qd != 0) {
		log_error("bdev %s: a channel was put with %u I/Os in flight", b->name, ch->qd);
		abort(); /* their completions would write to freed memory */
	}
	TRACE(BDEV_IOCH_DESTROY, b->trace_owner, 0, (uintptr_t)ch, thread_id(thread_current()));
	pthread_mutex_lock(&core->mutex);
	TAILQ_REMOVE(&core->channels, ch, link);
	bdev_stat_settle(&ch->stat);
	bdev_stat_add(&core->closed_stat, &ch->stat);
	if (core->round_stat != NULL && ch->stat_round != core->stat_rounds) {
		bdev_stat_add(core->round_stat, &ch->stat);
	}
	if (ch->histogram != NULL && core->histogram != NULL) {
		bdev_histogram_sum(core->histogram, ch->histogram);
	}
	pthread_mutex_unlock(&core->mutex);

	thread_timer_stop(&ch->qos_timer);
	thread_timer_stop(&ch->nomem_timer);
	if (b->ops->channel_destroy != NULL) {
		b->ops->channel_destroy(b, ch->module);
	}
	bdev_histogram_free(ch->histogram);
	bdev_split_pool_destroy(ch->split_pool);
	io_channel_put(ch->thread->io_channel);
}

struct bdev_channel *bdev_channel_get(struct bdev_desc *desc)
{
	struct io_channel *c = io_channel_get(&desc->bdev->core->dev);
	if (c == NULL) {
		return NULL;
	}
	struct bdev_channel *ch = io_channel_ctx(c);
	ch->io_channel = c;
	return ch;
}

/* A completion frame still uses the channel and its thread's data; so does the module whose poller has completed an
 * I/O, and goes on with the next one. So a put from inside a frame, for example from an I/O's callback, is carried out
 * by the thread's poller. */
void bdev_channel_put(struct bdev_channel *ch)
{
	struct bdev_thread *t = ch->thread;

	if (t->depth == 0) {
		io_channel_put(ch->io_channel);
	} else if (ch->puts++ == 0) {
		SLIST_INSERT_HEAD(&t->puts, ch, put_link);
		bdev_thread_kick(t);
	}
}

/* --- The control thread's side --- */

int bdev_core_init(struct bdev *b)
{
	struct bdev_core *core = calloc(1, sizeof(*core));

	if (core == NULL) {
		return -ENOMEM;
	}
	core->bdev = b;
	core->dev = (struct io_device){
		.name = b->name,
		.channel_size = sizeof(struct bdev_channel) + b->ops->channel_size,
		.channel_create = bdev_channel_ctx_create,
		.channel_destroy = bdev_channel_ctx_destroy,
	};
	TAILQ_INIT(&core->aliases);
	TAILQ_INIT(&core->descs);
	TAILQ_INIT(&core->channels);
	TAILQ_INIT(&core->locks);
	TAILQ_INIT(&core->resets);
	pthread_mutex_init(&core->mutex, NULL);
	bdev_stat_init(&core->closed_stat);
	core->new_channel_slow = b->md.size != 0 ? SLOW_DIF : 0;
	core->reset_timer = (struct thread_timer){.fn = bdev_reset_timer, .arg = core};
	b->core = core;
	return 0;
}

void bdev_core_free(struct bdev *b)
{
	struct bdev_core *core = b->core;

	bdev_qos_free(core);
	bdev_histogram_free(core->histogram);
	pthread_mutex_destroy(&core->mutex);
	free(core);
	b->core = NULL;
}

struct visit {
	struct bdev_core *core;
	void (*fn)(struct bdev_channel *ch, void *arg);
	void *arg;
};

struct bdev_channel *bdev_channel_on(const struct bdev_core *core, const struct thread *t)
{
	struct bdev_channel *ch;

	TAILQ_FOREACH (ch, &core->channels, link) {
		if (ch->thread->thread == t) {
			break;
		}
	}
	return ch;
}

/* Runs on a thread that had a channel when the visit was sent. The channel may be gone by now; if it is there, it stays
 * until this returns, since it belongs to this thread. */
static void visit_channel_here(void *arg)
{
	const struct visit *v = arg;
	struct bdev_channel *ch;

	pthread_mutex_lock(&v->core->mutex);
	ch = bdev_channel_on(v->core, thread_current());
	pthread_mutex_unlock(&v->core->mutex);
	if (ch != NULL) {
		bdev_enter(ch->thread);
		v->fn(ch, v->arg);
		bdev_leave(ch->thread);
	}
}

/* The first channel with a number above `after`, up to `last`. The list is in the order of the numbers. */
static struct bdev_channel *channel_after(const struct bdev_core *core, uint64_t after, uint64_t last)
{
	struct bdev_channel *ch;

	TAILQ_FOREACH (ch, &core->channels, link) {
		if (ch->number > after) {
			return ch->number <= last ? ch : NULL;
		}
	}
	return NULL;
}

/* A callback that runs in a visit to the control thread's channel may begin another visit. */

void bdev_visit_channels(struct bdev *b, void (*fn)(struct bdev_channel *ch, void *arg), void *arg)
{
	struct visit v = {.core = b->core, .fn = fn, .arg = arg};
	struct bdev_channel *ch;

	assert(thread_current() == thread_control());
	pthread_mutex_lock(&v.core->mutex);
	uint64_t last = v.core->last_channel; /* later channels have the new state already, and are not visited */
	uint64_t at = 0;
	while ((ch = channel_after(v.core, at, last)) != NULL) {
		struct thread *thread = ch->thread->thread;

		at = ch->number;
		pthread_mutex_unlock(&v.core->mutex);
		thread_call(thread, visit_channel_here, &v);
		pthread_mutex_lock(&v.core->mutex);
	}
	pthread_mutex_unlock(&v.core->mutex);
}

struct module_visit {
	void (*fn)(struct bdev *b, void *channel, void *arg);
	void *arg;
};

static void visit_module(struct bdev_channel *ch, void *arg)
{
	const struct module_visit *v = arg;
	v->fn(ch->bdev, ch->module, v->arg);
}

void bdev_visit_module_channels(struct bdev *b, void (*fn)(struct bdev *b, void *channel, void *arg), void *arg)
{
	struct module_visit v = {.fn = fn, .arg = arg};
	bdev_visit_channels(b, visit_module, &v);
}

struct slow_change {
	uint32_t set, clear;
};

static void visit_change_slow(struct bdev_channel *ch, void *arg)
{
	const struct slow_change *c = arg;
	ch->slow = (ch->slow | c->set) & ~c->clear;
}

void bdev_set_slow(struct bdev *b, uint32_t set, uint32_t clear)
{
	struct slow_change c = {.set = set, .clear = clear};

	pthread_mutex_lock(&b->core->mutex);
	b->core->new_channel_slow = (b->core->new_channel_slow | set) & ~clear;
	pthread_mutex_unlock(&b->core->mutex);
	bdev_visit_channels(b, visit_change_slow, &c);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* io_devices and their channels. */
#include "thread/thread_internal.h"

#include "trace/trace.h"
#include "util/log.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static TAILQ_HEAD(, io_device) io_devices = TAILQ_HEAD_INITIALIZER(io_devices);

void io_device_register(struct io_device *dev)
{
	assert(thread_self == thread_control() && !dev->registered);
	dev->channels = 0;
	TAILQ_INSERT_TAIL(&io_devices, dev, link);
	__atomic_store_n(&dev->registered, true, __ATOMIC_SEQ_CST);
}

/* io_channel_get() first counts its channel and then checks `registered`; this function first clears `registered` and
 * then checks the count. Both are sequentially consistent, so at least one of the two sees the other and fails. */
int io_device_unregister(struct io_device *dev)
{
	assert(thread_self == thread_control());
	__atomic_store_n(&dev->registered, false, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&dev->channels, __ATOMIC_SEQ_CST) != 0) {
		__atomic_store_n(&dev->registered, true, __ATOMIC_SEQ_CST);
		return -EBUSY;
	}
	TAILQ_REMOVE(&io_devices, dev, link);
	return 0;
}

static struct io_channel *channel_find(const struct thread *t, const struct io_device *dev)
{
	struct io_channel *ch;

	TAILQ_FOREACH (ch, &t->channels, link) {
		if (ch->dev == dev) {
			return ch;
		}
	}
	return NULL;
}

static int channel_make(struct thread *t, struct io_device *dev, struct io_channel **channel)
{
	size_t size = RTE_CACHE_LINE_ROUNDUP(sizeof(struct io_channel) + dev->channel_size);
	struct io_channel *ch = aligned_alloc(RTE_CACHE_LINE_SIZE, size);

	if (ch == NULL) {
		log_limited(LOG_LEVEL_ERROR, "%s: no memory for a channel on thread %s", dev->name, thread_name(t));
		return -ENOMEM;
	}
	memset(ch, 0, size);
	ch->dev = dev;
	ch->thread = t;
	ch->refs = 1;
	/* Before channel_create(), which may get the same channel again. */
	TAILQ_INSERT_TAIL(&t->channels, ch, link);
	int rc = dev->channel_create(dev, ch->ctx);
	if (rc != 0) {
		TAILQ_REMOVE(&t->channels, ch, link);
		free(ch);
		return rc;
	}
	*channel = ch;
	return 0;
}

struct io_channel *io_channel_get(struct io_device *dev)
{
	struct thread *t = thread_self;

	assert(t != NULL);
	struct io_channel *ch = channel_find(t, dev);
	if (ch != NULL) {
		ch->refs++;
	} else {
		int rc = -ENODEV;
		__atomic_fetch_add(&dev->channels, 1, __ATOMIC_SEQ_CST);
		if (__atomic_load_n(&dev->registered, __ATOMIC_SEQ_CST)) {
			rc = channel_make(t, dev, &ch);
		}
		if (rc != 0) {
			__atomic_fetch_sub(&dev->channels, 1, __ATOMIC_SEQ_CST);
			errno = -rc;
			return NULL;
		}
	}
	TRACE(THREAD_IOCH_GET, t->trace_owner, 0, (uintptr_t)ch, ch->refs);
	return ch;
}

void io_channel_put(struct io_channel *ch)
{
	struct io_device *dev = ch->dev;

	assert(ch->thread == thread_self && ch->refs > 0);
	ch->refs--;
	TRACE(THREAD_IOCH_PUT, ch->thread->trace_owner, 0, (uintptr_t)ch, ch->refs);
	if (ch->refs > 0) {
		return;
	}
	TAILQ_REMOVE(&ch->thread->channels, ch, link);
	dev->channel_destroy(dev, ch->ctx);
	free(ch);
	/* Release, and last: the device may be freed as soon as the control thread sees this. */
	__atomic_fetch_sub(&dev->channels, 1, __ATOMIC_SEQ_CST);
}

struct thread *io_channel_thread(const struct io_channel *ch)
{
	return ch->thread;
}

struct visit {
	struct io_device *dev;
	void (*fn)(void *channel_ctx, void *arg);
	void *arg;
};

static void channel_visit(void *arg)
{
	struct visit *v = arg;
	struct io_channel *ch = channel_find(thread_self, v->dev);

	if (ch != NULL) {
		v->fn(ch->ctx, v->arg);
	}
}

void io_device_for_each_channel(struct io_device *dev, void (*fn)(void *channel_ctx, void *arg), void *arg)
{
	struct visit v = {.dev = dev, .fn = fn, .arg = arg};
	struct thread *t;

	assert(thread_self == thread_control());
	for (t = thread_next(NULL); t != NULL; t = thread_next(t)) {
		thread_call(t, channel_visit, &v);
	}
}

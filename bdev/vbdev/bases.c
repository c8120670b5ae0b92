/* SPDX-License-Identifier: BSD-3-Clause */
/* The control thread publishes and withdraws a base's descriptor by one store. A channel that is being made on another
 * thread at that moment has read the one or the other: after a grace period it is made, and visiting all channels
 * reaches it too. */
#include <errno.h>
#include <stdlib.h>

#include "bdev/internal.h"
#include "bdev/module_util.h"
#include "bdev/vbdev/vbdev.h"

static uint32_t base_index(const struct vbdev_base *base)
{
	return (uint32_t)(base - base->bases->base);
}

static void base_publish(struct vbdev_base *base, struct bdev_desc *desc)
{
	/* Release: pairs with the acquire in vbdev_bases_desc(). */
	__atomic_store_n(&base->desc, desc, __ATOMIC_RELEASE);
}

struct bdev_desc *vbdev_bases_desc(const struct vbdev_bases *bases, uint32_t base)
{
	return __atomic_load_n(&bases->base[base].desc, __ATOMIC_ACQUIRE);
}

static void base_event_came(struct bdev_desc *desc, enum bdev_event event, void *arg)
{
	struct vbdev_base *base = arg;
	struct vbdev_bases *bases = base->bases;

	if (base->desc != desc) {
		return; /* being detached */
	}
	switch (event) {
	case BDEV_EVENT_REMOVE:
		bases->ops->removed(bases, base_index(base));
		break;
	case BDEV_EVENT_RESIZE:
		if (bases->ops->resized != NULL) {
			bases->ops->resized(bases, base_index(base));
		}
		break;
	}
}

static int base_open_at(struct vbdev_base *base, const char *name, const char *claimer, char *error)
{
	struct bdev_desc *desc;
	int rc = base->bases->ops->reads_only
			 ? vbdev_base_open_to_read(name, claimer, base_event_came, base, &desc, error)
			 : vbdev_base_open(name, claimer, base_event_came, base, &desc, error);

	if (rc == 0) {
		base_publish(base, desc);
	}
	return rc;
}

int vbdev_bases_open(struct vbdev_bases *bases, const struct vbdev_bases_ops *ops, struct bdev *b,
		     const char *const *names, uint32_t n, const char *claimer, char *error)
{
	int rc = 0;

	*bases = (struct vbdev_bases){.ops = ops, .bdev = b, .n = n, .base = calloc(n, sizeof(bases->base[0]))};
	if (bases->base == NULL) {
		return bdev_error(error, -ENOMEM, "out of memory");
	}
	for (uint32_t i = 0; i < n; i++) {
		bases->base[i].bases = bases;
	}
	for (uint32_t i = 0; i < n && rc == 0; i++) {
		rc = names[i] != NULL ? base_open_at(&bases->base[i], names[i], claimer, error) : 0;
	}
	if (rc != 0) {
		vbdev_bases_close(bases, NULL, NULL);
	}
	return rc;
}

/* Ends vbdev_bases_close() when no base is left. */
static void bases_check_closed(struct vbdev_bases *bases)
{
	void (*closed)(void *arg) = bases->closed;

	for (uint32_t i = 0; i < bases->n; i++) {
		if (bases->base[i].leaving != NULL) {
			return;
		}
	}
	free(bases->base);
	bases->base = NULL;
	bases->n = 0;
	if (closed != NULL) {
		closed(bases->closed_arg);
	}
}

static void bases_closed_nothing(void *arg)
{
}

void vbdev_bases_close(struct vbdev_bases *bases, void (*closed)(void *arg), void *arg)
{
	for (uint32_t i = 0; i < bases->n; i++) {
		struct bdev_desc *desc = bases->base[i].desc;
		if (desc != NULL) {
			base_publish(&bases->base[i], NULL);
			bdev_close(desc);
		}
	}
	bases->closed = closed != NULL ? closed : bases_closed_nothing;
	bases->closed_arg = arg;
	bases_check_closed(bases);
}

struct bdev_child_pool *vbdev_bases_pool_create(const struct vbdev_bases *bases, uint32_t count, uint32_t iovs,
						bdev_io_cb done)
{
	struct bdev_desc **descs = calloc(bases->n, sizeof(descs[0]));

	if (descs == NULL) {
		errno = ENOMEM;
		return NULL;
	}
	for (uint32_t i = 0; i < bases->n; i++) {
		descs[i] = vbdev_bases_desc(bases, i);
	}
	struct bdev_child_pool *pool = bdev_child_pool_create_for(&(struct bdev_child_pool_opts){
		.bases = descs, .n_bases = bases->n, .count = count, .iovs = iovs, .done = done});
	int error = errno; /* which free() need not leave alone */

	free(descs);
	errno = error;
	return pool;
}

/* --- Taking one out --- */

static void base_left_message(struct thread_msg *msg)
{
	struct vbdev_base *base = container_of(msg, struct vbdev_base, msg);
	struct vbdev_bases *bases = base->bases;

	bdev_close(base->leaving);
	base->leaving = NULL;
	if (bases->closed != NULL) {
		bases_check_closed(bases);
	} else if (bases->ops->detached != NULL) {
		bases->ops->detached(bases, base_index(base));
	}
}

/* On a channel's thread, or the control thread. */
static void base_channel_left(void *arg)
{
	struct vbdev_base *base = arg;

	/* acquire and release: the last one goes on after what the others did */
	if (atomic_fetch_sub_explicit(&base->channels_left, 1, memory_order_acq_rel) == 1) {
		thread_post(thread_control(), &base->msg, base_left_message);
	}
}

static void visit_base_detach(struct bdev *b, void *channel, void *arg)
{
	struct vbdev_base *base = arg;

	atomic_fetch_add_explicit(&base->channels_left, 1,
				  memory_order_relaxed); /* the control thread's own is there */
	struct bdev_child_pool *pool = base->bases->ops->pool(channel);

	if (pool != NULL) {
		bdev_child_pool_detach(pool, base_index(base), base_channel_left, base);
	} else {
		base_channel_left(base);
	}
}

void vbdev_bases_detach(struct vbdev_bases *bases, uint32_t index)
{
	struct vbdev_base *base = &bases->base[index];

	if (base->desc == NULL) {
		return;
	}
	base->leaving = base->desc;
	base_publish(base, NULL);
	atomic_store_explicit(&base->channels_left, 1, memory_order_relaxed);
	if (bases->bdev->core != NULL) { /* registered: there may be channels */
		thread_synchronize();
		bdev_visit_module_channels(bases->bdev, visit_base_detach, base);
	}
	base_channel_left(base);
}

/* --- Putting one in --- */

struct base_attach {
	struct vbdev_base *base;
	int rc;
};

static void visit_base_attach(struct bdev *b, void *channel, void *arg)
{
	struct base_attach *a = arg;
	struct vbdev_bases *bases = a->base->bases;
	struct bdev_child_pool *pool = bases->ops->pool(channel);
	int rc = pool != NULL ? bdev_child_pool_attach(pool, base_index(a->base), a->base->desc) : -ENOMEM;

	if (rc != 0) {
		a->rc = rc;
	}
}

static const struct bdev *base_desc_user(const struct bdev_desc *desc)
{
	return desc->event_cb == base_event_came ? ((const struct vbdev_base *)desc->event_arg)->bases->bdev
						 : vbdev_desc_user(desc);
}

/* Whether `upper` is b, or stands on b, perhaps by way of others. This ends, because no bdev stands on itself. */
static bool bdev_stands_on(const struct bdev *upper, const struct bdev *b)
{
	const struct bdev_desc *desc;

	if (upper == b) {
		return true;
	}
	if (b->core == NULL) { /* not registered: nobody has opened it */
		return false;
	}
	TAILQ_FOREACH (desc, &b->core->descs, link) {
		const struct bdev *user = base_desc_user(desc);
		if (user != NULL && bdev_stands_on(upper, user)) {
			return true;
		}
	}
	return false;
}

int vbdev_bases_attach(struct vbdev_bases *bases, uint32_t index, const char *name, const char *claimer, char *error)
{
	struct base_attach a = {.base = &bases->base[index]};

	if (a.base->desc != NULL || a.base->leaving != NULL) {
		return bdev_error(error, -EBUSY, "bdev '%.150s' cannot become base %u: the place is taken", name,
				  index);
	}
	const struct bdev *b = bdev_find(name);
	if (b != NULL && bdev_stands_on(b, bases->bdev)) {
		return bdev_error(error, -EINVAL, "bdev '%.110s' stands on bdev '%.110s': it cannot be a base of it",
				  name, bases->bdev->name);
	}
	int rc = base_open_at(a.base, name, claimer, error);
	if (rc != 0 || bases->bdev->core == NULL) {
		return rc;
	}
	thread_synchronize();
	bdev_visit_module_channels(bases->bdev, visit_base_attach, &a);
	if (a.rc != 0) {
		vbdev_bases_detach(bases, index);
		return bdev_error(error, a.rc, "bdev '%.150s': a thread can have no channel of it: error %d", name,
				  -a.rc);
	}
	return 0;
}

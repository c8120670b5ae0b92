/* SPDX-License-Identifier: BSD-3-Clause */
/* The exclusive lock of an image, for bdevs of which several processes have one, and one at a time is the owner. The
 * lock is held explicitly (rbd_lock_acquire()), so librbd does not pass it on when another client wants to write. All
 * calls are on worker threads: they wait for the cluster. */
#include <errno.h>
#include <string.h>

#include "bdev_modules/rbd/internal.h"
#include "util/compiler.h"
#include "util/log.h"

/* How long a client stays blocklisted. One that was stopped may go on as late as that, and sends then what it had
 * begun. librbd blocklists it as well, for an hour; a client that is blocklisted already keeps its time. */
#define FENCE_S ((uint32_t)365 * 86400)

static int lock_say(const struct rbd_bdev *r, int rc, const char *what)
{
	return bdev_error(((struct rbd_bdev *)r)->lock_change.error, rc,
			  "bdev '%.80s': %s the lock of image '%.80s': %s", r->name, what, r->image_name,
			  rc == -EINVAL      ? "the image lacks the feature exclusive-lock"
			  : rc == -ESHUTDOWN ? "Ceph has blocklisted this client"
					     : strerror(-rc));
}

/* Another client has the lock: that client is fenced, or this one may not have it. The cluster blocklists the client
 * before the lock is free, so that none of its writes is carried out any more. */
static int lock_fence(struct rbd_bdev *r, const char *owner)
{
	if (!r->lock_change.fence) {
		return bdev_error(r->lock_change.error, -EBUSY,
				  "bdev '%.80s': client %.80s has the lock of image '%.80s' (fence takes it away)",
				  r->name, owner, r->image_name);
	}
	log_notice("bdev %s: client %s, which has the lock of image %s, is blocklisted", r->name, owner, r->image_name);
	int rc = librbd.rados_blocklist_add(bdev_rbd_cluster_handle(r->image.cluster), (char *)owner, FENCE_S);
	if (rc < 0) {
		return lock_say(r, rc, "blocklisting the client that has");
	}
	rc = librbd.rbd_lock_break(r->image.image, RBD_LOCK_MODE_EXCLUSIVE, owner);
	return rc == 0 || rc == -ENOENT ? 0 : lock_say(r, rc, "breaking");
}

static int lock_fence_others(struct rbd_bdev *r)
{
	rbd_lock_mode_t mode;
	char *owners[1];
	size_t n = 1;
	int is_own = 0, rc = librbd.rbd_is_exclusive_lock_owner(r->image.image, &is_own);

	if (rc < 0) {
		return lock_say(r, rc, "asking for");
	}
	rc = is_own ? -ENOENT : librbd.rbd_lock_get_owners(r->image.image, &mode, owners, &n);
	if (rc == -ENOENT || (rc == 0 && n == 0)) {
		return 0;
	}
	if (rc < 0) {
		return lock_say(r, rc, "reading the owner of");
	}
	rc = lock_fence(r, owners[0]);
	librbd.rbd_lock_get_owners_cleanup(owners, n);
	return rc;
}

static struct rbd_bdev *lock_bdev(struct worker_job *job)
{
	return container_of(job, struct rbd_bdev, lock_job);
}

static void take_work(struct worker_job *job)
{
	struct rbd_bdev *r = lock_bdev(job);
	int rc = lock_fence_others(r);

	if (rc == 0 && (rc = librbd.rbd_lock_acquire(r->image.image, RBD_LOCK_MODE_EXCLUSIVE)) < 0) {
		lock_say(r, rc, "taking");
	}
	r->lock_change.rc = rc;
}

static void give_work(struct worker_job *job)
{
	struct rbd_bdev *r = lock_bdev(job);
	int rc = librbd.rbd_lock_release(r->image.image);

	if (rc == -ESHUTDOWN) { /* it has none any more */
		bdev_rbd_bdev_lost(r, "Ceph has blocklisted this client");
	}
	r->lock_change.rc = rc == -ESHUTDOWN ? 0 : rc < 0 ? lock_say(r, rc, "giving back") : 0;
}

/* What came of a job; false: the bdev is being closed, and nobody waits. */
static bool lock_job_ended(struct rbd_bdev *r, int *rc)
{
	bool closing = r->closing;

	*rc = r->lock_change.rc;
	if (r->lock_job.error != 0) {
		*rc = bdev_error(r->lock_change.error, r->lock_job.error, "no thread for the lock: %s",
				 strerror(-r->lock_job.error));
	}
	if (*rc == -ESHUTDOWN) {
		bdev_rbd_bdev_lost(r, "Ceph has blocklisted this client");
	}
	bdev_rbd_job_ended(r);
	return !closing;
}

static void take_done(struct worker_job *job)
{
	struct rbd_bdev *r = lock_bdev(job);
	int rc;

	if (lock_job_ended(r, &rc)) {
		bdev_owner_taken(&r->owner, rc, r->lock_change.error);
	}
}

static void give_done(struct worker_job *job)
{
	struct rbd_bdev *r = lock_bdev(job);
	int rc;

	if (lock_job_ended(r, &rc)) {
		bdev_owner_given(&r->owner, rc, r->lock_change.error);
	}
}

static void lock_begin(struct rbd_bdev *r, void (*work)(struct worker_job *), void (*done)(struct worker_job *))
{
	r->jobs++;
	r->lock_job.work = work;
	r->lock_job.done = done;
	worker_run(NULL, &r->lock_job);
}

static void lock_take(struct bdev_owner *o, bool fence)
{
	struct rbd_bdev *r = container_of(o, struct rbd_bdev, owner);

	if (__atomic_load_n(&r->lost, __ATOMIC_ACQUIRE)) {
		int rc = bdev_error(r->lock_change.error, -ESHUTDOWN,
				    "bdev '%.100s' is lost: delete it, and create it on a new connection", r->name);
		bdev_owner_taken(o, rc, r->lock_change.error);
		return;
	}
	r->lock_change.fence = fence;
	lock_begin(r, take_work, take_done);
}

static void lock_give(struct bdev_owner *o)
{
	lock_begin(container_of(o, struct rbd_bdev, owner), give_work, give_done);
}

static uint32_t lock_in_flight(const void *channel)
{
	return __atomic_load_n(&((const struct rbd_channel *)channel)->outstanding, __ATOMIC_ACQUIRE);
}

const struct bdev_owner_ops bdev_rbd_owner_ops = {.take = lock_take, .give = lock_give, .in_flight = lock_in_flight};

/* SPDX-License-Identifier: BSD-3-Clause */
/* The exclusive lock of an image, for bdevs of which several processes have one, and one at a time is the owner. The
 * lock is held explicitly (rbd_lock_acquire()), so librbd does not pass it on when another client wants to write. All
 * calls are on worker threads: they wait for the cluster. */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "bdev_modules/rbd/internal.h"
#include "trace/trace.h"
#include "util/compiler.h"
#include "util/log.h"

static int lock_say(struct rbd_bdev *r, int rc, const char *what)
{
	return bdev_error(r->lock_change.error, rc, "bdev '%.80s': %s the lock of image '%.80s': %s", r->name, what,
			  r->image_name,
			  rc == -EINVAL      ? "the image lacks the feature exclusive-lock"
			  : rc == -ESHUTDOWN ? "Ceph has blocklisted this client"
					     : strerror(-rc));
}

bool bdev_rbd_address_is_in(const char *client, const char *addresses)
{
	size_t len = strlen(client);

	for (const char *at = addresses; len != 0 && (at = strstr(at, client)) != NULL; at++) {
		bool begins = at == addresses || strchr("[,:", at[-1]) != NULL;
		if (begins && !isdigit((unsigned char)at[len])) {
			return true;
		}
	}
	return false;
}

/* Refuses to fence this process itself, all of whose images that share the connection would be lost. */
static int lock_check_other(struct rbd_bdev *r, const char *owner)
{
	return bdev_rbd_address_is_in(owner, bdev_rbd_cluster_client(r->image.cluster))
		       ? bdev_error(r->lock_change.error, -EBUSY,
				    "bdev '%.80s': the lock of image '%.80s' is in use by this process", r->name,
				    r->image_name)
		       : 0;
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
	int rc = lock_check_other(r, owner);
	if (rc != 0) {
		return rc;
	}
	rc = bdev_rbd_blocklist(r->image.cluster, owner, r->lock_change.until_us);
	if (rc == -ETIME) {
		return bdev_error(r->lock_change.error, rc,
				  "bdev '%.80s': its lease ended before client %.80s was fenced", r->name, owner);
	}
	if (rc < 0) {
		return lock_say(r, rc, "blocklisting the client that has");
	}
	log_notice("bdev %s: client %s, which has the lock of image %s, is blocklisted", r->name, owner, r->image_name);
	rc = RBD_WAIT(rbd_lock_break, r->image.image, RBD_LOCK_MODE_EXCLUSIVE, owner);
	return rc == 0 || rc == -ENOENT ? 0 : lock_say(r, rc, "breaking");
}

static int lock_fence_others(struct rbd_bdev *r)
{
	rbd_lock_mode_t mode;
	char *owners[1];
	size_t n = 1;
	int is_own = 0, rc = RBD_WAIT(rbd_is_exclusive_lock_owner, r->image.image, &is_own);

	if (rc < 0) {
		return lock_say(r, rc, "asking for");
	}
	rc = is_own ? -ENOENT : RBD_WAIT(rbd_lock_get_owners, r->image.image, &mode, owners, &n);
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
	return container_of(job, struct rbd_bdev, lock_job.worker);
}

static void take_work(struct worker_job *job)
{
	struct rbd_bdev *r = lock_bdev(job);
	int rc = lock_fence_others(r);

	if (rc == 0 && (rc = RBD_WAIT(rbd_lock_acquire, r->image.image, RBD_LOCK_MODE_EXCLUSIVE)) < 0) {
		lock_say(r, rc, "taking");
	}
	r->lock_change.rc = rc;
}

static void give_work(struct worker_job *job)
{
	struct rbd_bdev *r = lock_bdev(job);
	int rc = RBD_WAIT(rbd_lock_release, r->image.image);

	if (rc == -ESHUTDOWN) { /* it has none any more */
		bdev_rbd_bdev_lost(r, "Ceph has blocklisted this client");
	}
	r->lock_change.rc = rc == -ESHUTDOWN ? 0 : rc < 0 ? lock_say(r, rc, "giving back") : 0;
}

/* A job has ended: its result in *rc. False: the bdev is being closed, and nobody waits for the result. */
static bool lock_job_ended(struct rbd_bdev *r, enum rbd_lock_step step, int *rc)
{
	bool closing = r->closing;

	*rc = r->lock_change.rc;
	if (r->lock_job.worker.error != 0) {
		*rc = bdev_error(r->lock_change.error, r->lock_job.worker.error, "no thread for the lock: %s",
				 strerror(-r->lock_job.worker.error));
	}
	if (*rc == -ESHUTDOWN) {
		bdev_rbd_bdev_lost(r, "Ceph has blocklisted this client");
	}
	TRACE(RBD_LOCK, r->bdev.trace_owner, 0, 0, step, (uint32_t) - *rc);
	bdev_rbd_job_ended(r);
	return !closing;
}

static void take_done(struct worker_job *job)
{
	struct rbd_bdev *r = lock_bdev(job);
	int rc;

	if (lock_job_ended(r, RBD_LOCK_TAKEN, &rc)) {
		bdev_owner_taken(&r->owner, rc, r->lock_change.error);
	}
}

static void give_done(struct worker_job *job)
{
	struct rbd_bdev *r = lock_bdev(job);
	int rc;

	if (lock_job_ended(r, RBD_LOCK_GIVEN, &rc)) {
		bdev_owner_given(&r->owner, rc, r->lock_change.error);
	}
}

static void lock_begin(struct rbd_bdev *r, enum rbd_job_kind kind, void (*work)(struct worker_job *),
		       void (*done)(struct worker_job *))
{
	r->jobs++;
	r->lock_job.work = work;
	r->lock_job.done = done;
	bdev_rbd_job_run(&r->lock_job, kind, r->image.cluster, r);
}

static bool same_name(const char *a, const char *b)
{
	return strcmp(a != NULL ? a : "", b != NULL ? b : "") == 0;
}

/* Another bdev of this process, by the same connection, that owns the image; or NULL. To the cluster, both are one
 * client. */
static const struct rbd_bdev *lock_other_bdev(const struct rbd_bdev *r)
{
	struct bdev_owner_info info;

	for (size_t n = 0; bdev_owner_get(n, &info); n++) {
		const struct rbd_bdev *other = (const struct rbd_bdev *)bdev_find_of(info.name, &bdev_rbd_module);
		if (other != NULL && other != r && info.state != BDEV_OWNER_STANDBY &&
		    other->image.cluster == r->image.cluster && strcmp(other->pool, r->pool) == 0 &&
		    strcmp(other->image_name, r->image_name) == 0 &&
		    same_name(other->rados_namespace, r->rados_namespace)) {
			return other;
		}
	}
	return NULL;
}

static int lock_check_take(struct rbd_bdev *r)
{
	const struct rbd_bdev *other = lock_other_bdev(r);

	if (__atomic_load_n(&r->lost, __ATOMIC_ACQUIRE)) {
		return bdev_error(r->lock_change.error, -ESHUTDOWN,
				  "bdev '%.100s' is lost: delete it, and create it on a new connection", r->name);
	}
	return other == NULL ? 0
			     : bdev_error(r->lock_change.error, -EBUSY,
					  "bdev '%.80s': image '%.80s' is in use by bdev '%.80s' of this process",
					  r->name, r->image_name, other->name);
}

static void lock_take(struct bdev_owner *o, uint64_t until_us, bool fence)
{
	struct rbd_bdev *r = container_of(o, struct rbd_bdev, owner);
	int rc = lock_check_take(r);

	if (rc != 0) {
		bdev_owner_taken(o, rc, r->lock_change.error);
		return;
	}
	r->lock_change.fence = fence;
	r->lock_change.until_us = until_us;
	TRACE(RBD_LOCK, r->bdev.trace_owner, 0, 0, RBD_LOCK_TAKE, 0);
	lock_begin(r, RBD_JOB_TAKE, take_work, take_done);
}

static void lock_give(struct bdev_owner *o)
{
	struct rbd_bdev *r = container_of(o, struct rbd_bdev, owner);

	TRACE(RBD_LOCK, r->bdev.trace_owner, 0, 0, RBD_LOCK_GIVE, 0);
	lock_begin(r, RBD_JOB_GIVE, give_work, give_done);
}

static uint32_t lock_in_flight(const void *channel)
{
	return __atomic_load_n(&((const struct rbd_channel *)channel)->outstanding, __ATOMIC_ACQUIRE);
}

static void lock_waits_for(const struct bdev_owner *o, char *text, size_t size)
{
	bdev_rbd_waits_for(container_of(o, const struct rbd_bdev, owner)->name, text, size);
}

const struct bdev_owner_ops bdev_rbd_owner_ops = {
	.take = lock_take, .give = lock_give, .in_flight = lock_in_flight, .waits_for = lock_waits_for};

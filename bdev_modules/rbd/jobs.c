/* SPDX-License-Identifier: BSD-3-Clause */
/* What worker threads do in librados and librbd: the list of it, for whoever asks what an operation waits for. */
#include <stdio.h>
#include <string.h>

#include "bdev_modules/rbd/internal.h"
#include "util/compiler.h"

static TAILQ_HEAD(, rbd_job) jobs = TAILQ_HEAD_INITIALIZER(jobs);
static __thread struct rbd_job *running; /* on this thread */

static const char *const job_names[] = {
	[RBD_JOB_CONNECT] = "connect", [RBD_JOB_DISCONNECT] = "disconnect", [RBD_JOB_OPEN] = "open",
	[RBD_JOB_CLOSE] = "close",     [RBD_JOB_REFRESH] = "refresh",       [RBD_JOB_RESIZE] = "resize",
	[RBD_JOB_TAKE] = "take lock",  [RBD_JOB_GIVE] = "give lock",        [RBD_JOB_ASK] = "ask watchers",
};

static void job_work(struct worker_job *worker)
{
	running = container_of(worker, struct rbd_job, worker);
	running->work(worker);
}

static void job_done(struct worker_job *worker)
{
	struct rbd_job *j = container_of(worker, struct rbd_job, worker);

	TAILQ_REMOVE(&jobs, j, link);
	j->done(worker);
}

void bdev_rbd_job_run(struct rbd_job *j, enum rbd_job_kind kind, const struct rbd_cluster *c, const struct rbd_bdev *r)
{
	j->kind = kind;
	j->cluster = c;
	j->r = r;
	j->call = NULL;
	j->begin_us = bdev_owner_now_us();
	j->worker.work = job_work;
	j->worker.done = job_done;
	TAILQ_INSERT_TAIL(&jobs, j, link);
	worker_run(NULL, &j->worker);
}

void bdev_rbd_job_calls(const char *function)
{
	if (running != NULL) {
		__atomic_store_n(&running->call, function, __ATOMIC_RELAXED);
	}
}

bool bdev_rbd_get_job(size_t n, struct bdev_rbd_job_info *info)
{
	const struct rbd_job *j;

	TAILQ_FOREACH (j, &jobs, link) {
		if (n-- == 0) {
			*info = (struct bdev_rbd_job_info){
				.name = job_names[j->kind],
				.cluster_name = bdev_rbd_cluster_opts(j->cluster)->name,
				.call = __atomic_load_n(&j->call, __ATOMIC_RELAXED),
				.age_us = bdev_owner_now_us() - j->begin_us,
			};
			if (j->r != NULL) {
				info->bdev = j->r->name;
				info->pool = j->r->pool;
				info->image = j->r->image_name;
			}
			return true;
		}
	}
	return false;
}

void bdev_rbd_describe_job(const struct bdev_rbd_job_info *info, char *text, size_t size)
{
	const char *call = info->call != NULL ? info->call : "a thread";
	unsigned long long seconds = info->age_us / 1000000;

	if (info->image != NULL) {
		snprintf(text, size, "Ceph: job '%s' of image '%.80s' of pool '%.80s', for %llu s, now in %s",
			 info->name, info->image, info->pool, seconds, call);
	} else {
		snprintf(text, size, "Ceph: job '%s' of cluster '%.80s', for %llu s, now in %s", info->name,
			 info->cluster_name != NULL ? info->cluster_name : "", seconds, call);
	}
}

void bdev_rbd_waits_for(const char *bdev, char *text, size_t size)
{
	struct bdev_rbd_job_info info;

	for (size_t n = 0; bdev_rbd_get_job(n, &info); n++) {
		if (info.bdev != NULL && strcmp(info.bdev, bdev) == 0) {
			bdev_rbd_describe_job(&info, text, size);
			return;
		}
	}
}

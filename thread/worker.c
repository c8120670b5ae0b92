/* SPDX-License-Identifier: BSD-3-Clause */
#include "thread/worker.h"

#include <rte_common.h>

#include "env_dpdk/env.h"

static void worker_job_end(struct thread_msg *msg);

static void *worker_main(void *arg)
{
	struct worker_job *job = arg;
	cpu_set_t cpus;

	/* A new thread inherits the affinity of the control thread, which may share its CPU with a reactor. If these
	 * CPUs have been taken from the process meanwhile, the call fails and the job runs where it is. */
	if (env_worker_cpus(&cpus)) {
		pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus);
	}
	job->work(job);
	thread_post(thread_control(), &job->msg, worker_job_end);
	return NULL;
}

static void worker_job_start(struct worker_job *job)
{
	job->error = -pthread_create(&job->thread, NULL, worker_main, job);
	if (job->error != 0) {
		thread_post(thread_control(), &job->msg, worker_job_end);
	}
}

static void worker_job_end(struct thread_msg *msg)
{
	struct worker_job *job = container_of(msg, struct worker_job, msg);
	struct worker_queue *q = job->queue;

	if (job->error == 0) {
		pthread_join(job->thread, NULL);
	}
	if (q != NULL) {
		STAILQ_REMOVE_HEAD(&q->jobs, link);
		if (!STAILQ_EMPTY(&q->jobs)) {
			worker_job_start(STAILQ_FIRST(&q->jobs));
		}
	}
	job->done(job);
}

void worker_run(struct worker_queue *q, struct worker_job *job)
{
	bool now = q == NULL || STAILQ_EMPTY(&q->jobs);

	job->queue = q;
	if (q != NULL) {
		STAILQ_INSERT_TAIL(&q->jobs, job, link);
	}
	if (now) {
		worker_job_start(job);
	}
}

static bool queue_is_idle(void *q)
{
	return STAILQ_EMPTY(&((struct worker_queue *)q)->jobs);
}

void worker_wait(struct worker_queue *q, uint64_t timeout_us)
{
	if (!queue_is_idle(q)) {
		thread_control_wait(queue_is_idle, q, timeout_us);
	}
}

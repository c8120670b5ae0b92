/* SPDX-License-Identifier: BSD-3-Clause */
#include "thread/beside.h"

#include <rte_common.h>

#include "env_dpdk/env.h"

static void ended(struct thread_msg *msg);

static void *work_main(void *arg)
{
	struct beside_job *job = arg;

	job->work(job);
	thread_post(thread_control(), &job->msg, ended);
	return NULL;
}

/* A thread would inherit the CPU of the control thread's reactor, and take half of it. */
static int start_thread(struct beside_job *job)
{
	pthread_attr_t attr;
	cpu_set_t cpus;
	int rc = pthread_attr_init(&attr);

	if (rc != 0) {
		return -rc;
	}
	if (env_cpus_beside(&cpus)) {
		pthread_attr_setaffinity_np(&attr, sizeof(cpus), &cpus); /* a wish */
	}
	rc = pthread_create(&job->thread, &attr, work_main, job);
	pthread_attr_destroy(&attr);
	return -rc;
}

static void start(struct beside_job *job)
{
	job->error = start_thread(job);
	if (job->error != 0) {
		thread_post(thread_control(), &job->msg, ended);
	}
}

static void ended(struct thread_msg *msg)
{
	struct beside_job *job = container_of(msg, struct beside_job, msg);
	struct beside_queue *q = job->queue;

	if (job->error == 0) {
		pthread_join(job->thread, NULL);
	}
	if (q != NULL) {
		STAILQ_REMOVE_HEAD(&q->jobs, link);
		if (!STAILQ_EMPTY(&q->jobs)) {
			start(STAILQ_FIRST(&q->jobs));
		}
	}
	job->done(job);
}

void beside_run(struct beside_queue *q, struct beside_job *job)
{
	bool now = q == NULL || STAILQ_EMPTY(&q->jobs);

	job->queue = q;
	if (q != NULL) {
		STAILQ_INSERT_TAIL(&q->jobs, job, link);
	}
	if (now) {
		start(job);
	}
}

static bool is_idle(void *q)
{
	return STAILQ_EMPTY(&((struct beside_queue *)q)->jobs);
}

void beside_wait(struct beside_queue *q, uint64_t timeout_us)
{
	if (!is_idle(q)) {
		thread_control_wait(is_idle, q, timeout_us);
	}
}

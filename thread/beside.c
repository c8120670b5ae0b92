/* SPDX-License-Identifier: BSD-3-Clause */
#include "thread/beside.h"

#include <rte_common.h>

#include "env_dpdk/env.h"

static void ended(struct thread_msg *msg);

static void *work_main(void *arg)
{
	struct beside_job *job = arg;
	cpu_set_t cpus;

	if (env_cpus_beside(&cpus)) { /* so far on the CPU of the control thread's reactor, as whoever is made there */
		pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus); /* a wish: the CPUs may be gone by now */
	}
	job->work(job);
	thread_post(thread_control(), &job->msg, ended);
	return NULL;
}

static void start(struct beside_job *job)
{
	job->error = -pthread_create(&job->thread, NULL, work_main, job);
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

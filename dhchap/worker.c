/* SPDX-License-Identifier: BSD-3-Clause */
/* The helper thread. An exponentiation with ffdhe8192 takes tens of milliseconds: on a reactor it would hold up everybody's I/O, on the
 * control thread Connect, RPCs and timers. So it is done beside both, in a thread that lives as long as one job: a host authenticates
 * seldom, and what does not exist need not be stopped. Its queue belongs to the control thread and needs no lock. */
#include "dhchap/dhchap.h"

#include <pthread.h>
#include <rte_common.h>

#define STOP_WAIT_US (60 * UINT64_C(1000000))

static STAILQ_HEAD(, dhchap_job) queue = STAILQ_HEAD_INITIALIZER(queue); /* the first is being worked on */
static pthread_t thread;

static void ended(struct thread_msg *msg);

static void *work_main(void *arg)
{
	struct dhchap_job *job = arg;

	job->work(job);
	thread_post(thread_control(), &job->msg, ended);
	return NULL;
}

static void start(struct dhchap_job *job)
{
	job->error = -pthread_create(&thread, NULL, work_main, job);
	if (job->error != 0) {
		thread_post(thread_control(), &job->msg, ended);
	}
}

static void ended(struct thread_msg *msg)
{
	struct dhchap_job *job = container_of(msg, struct dhchap_job, msg);

	if (job->error == 0) {
		pthread_join(thread, NULL);
	}
	STAILQ_REMOVE_HEAD(&queue, link);
	if (!STAILQ_EMPTY(&queue)) {
		start(STAILQ_FIRST(&queue));
	}
	job->done(job); /* may free it, and may run another */
}

void dhchap_run(struct dhchap_job *job)
{
	bool idle = STAILQ_EMPTY(&queue);

	STAILQ_INSERT_TAIL(&queue, job, link);
	if (idle) {
		start(job);
	}
}

static bool is_idle(void *arg)
{
	return STAILQ_EMPTY(&queue);
}

void dhchap_stop(void)
{
	if (!is_idle(NULL)) {
		thread_control_wait(is_idle, NULL, STOP_WAIT_US);
	}
}

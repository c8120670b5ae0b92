/* SPDX-License-Identifier: BSD-3-Clause */
/* Worker threads: OS threads that do long jobs for the control thread (registering memory with a device, zeroing
 * gigabytes, modular exponentiations, writes to a file system), so that RPCs, Connect and timers do not wait for
 * them.
 *
 * A worker thread lives as long as its one job: such jobs are rare, and a thread that does not exist need not be
 * stopped. It runs on CPUs that have no reactor, if the process may use any (env_worker_cpus()). */
#ifndef THREAD_WORKER_H
#define THREAD_WORKER_H

#include <pthread.h>

#include "thread/thread.h"

/* A job, embedded in its owner. The owner sets work and done, and must not be freed before done has been called. */
struct worker_job {
	/* Runs on the worker thread, and may use only data that nobody else uses until done. */
	void (*work)(struct worker_job *job);
	/* Runs on the control thread after work has returned. It may free the job's owner, and may start jobs. */
	void (*done)(struct worker_job *job);
	int error; /* for done: 0; or a negative errno of pthread_create(), and work was not called */
	/* private */
	struct worker_queue *queue;
	pthread_t thread;
	struct thread_msg msg;
	STAILQ_ENTRY(worker_job) link;
};

/* Jobs that run one at a time, in the order of worker_run(). Used by the control thread only. */
struct worker_queue {
	STAILQ_HEAD(, worker_job) jobs; /* the first one is running */
};
#define WORKER_QUEUE_INITIALIZER(q)                                                                                    \
	{                                                                                                              \
		STAILQ_HEAD_INITIALIZER((q).jobs)                                                                      \
	}

/* Starts the job, or, if q has unfinished jobs, adds it to them. q NULL: starts it at once. job->done is called exactly
 * once, also if no thread could be made, and never before worker_run() has returned. Control thread. */
void worker_run(struct worker_queue *q, struct worker_job *job);
/* Runs the control thread's loop until q has no unfinished job, or until timeout_us microseconds have passed
 * (UINT64_MAX: no limit). Control thread, not from a callback of its loop. */
void worker_wait(struct worker_queue *q, uint64_t timeout_us);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* What takes long, beside the control thread: in an OS thread that lives as long as one job, on CPUs where no reactor
 * is, if the process has such. What is slow is seldom, and a thread that does not exist need not be stopped. */
#ifndef THREAD_BESIDE_H
#define THREAD_BESIDE_H

#include <pthread.h>

#include "thread/thread.h"

/* Embedded in its owner, which lives until done has been called. */
struct beside_job {
	void (*work)(struct beside_job *job); /* in that thread; touches what belongs to the job only */
	void (*done)(struct beside_job *job); /* on the control thread; may free its owner, and run another */
	int error;                            /* in done: 0, or a negative errno: work was not called */
	/* private */
	struct beside_queue *queue;
	pthread_t thread;
	struct thread_msg msg;
	STAILQ_ENTRY(beside_job) link;
};

/* Jobs of which one is done at a time, in their order. The control thread's. */
struct beside_queue {
	STAILQ_HEAD(, beside_job) jobs; /* the first is being worked on */
};
#define BESIDE_QUEUE_INITIALIZER(q)                                                                                    \
	{                                                                                                              \
		STAILQ_HEAD_INITIALIZER((q).jobs)                                                                      \
	}

/* q: NULL: it waits for no other. done follows in any case, never from inside the call. Control thread. */
void beside_run(struct beside_queue *q, struct beside_job *job);
/* Returns when none is left, or after timeout_us. Control thread, outside of its loop. */
void beside_wait(struct beside_queue *q, uint64_t timeout_us);

#endif

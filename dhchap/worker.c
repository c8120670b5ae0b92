/* SPDX-License-Identifier: BSD-3-Clause */
/* An exponentiation with ffdhe8192 takes tens of milliseconds. On a reactor it would delay the I/O of all hosts, on the
 * control thread Connect, RPCs and timers; so it runs on a worker thread. */
#include "dhchap/dhchap.h"

#define STOP_WAIT_US (60 * UINT64_C(1000000))

static struct worker_queue queue = WORKER_QUEUE_INITIALIZER(queue);

void dhchap_run(struct worker_job *job)
{
	worker_run(&queue, job);
}

void dhchap_stop(void)
{
	worker_wait(&queue, STOP_WAIT_US);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* An exponentiation with ffdhe8192 takes tens of milliseconds: on a reactor it would hold up everybody's I/O, on the
 * control thread Connect, RPCs and timers. So it is done beside both. */
#include "dhchap/dhchap.h"

#define STOP_WAIT_US (60 * UINT64_C(1000000))

static struct beside_queue queue = BESIDE_QUEUE_INITIALIZER(queue);

void dhchap_run(struct beside_job *job)
{
	beside_run(&queue, job);
}

void dhchap_stop(void)
{
	beside_wait(&queue, STOP_WAIT_US);
}

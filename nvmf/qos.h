/* SPDX-License-Identifier: BSD-3-Clause */
/* Rate limits of what hosts do in a subsystem: of one host, over all its controllers and queues, or of all hosts
 * together. They hold in every poll group, and on top of the limits of bdevs. Of the limit of all hosts together, a
 * host may have a minimum, which it gets whatever the others do; what it does not use of it, they may. It counts for
 * the limit of all, so the others wait the longer: in any time t, all together get at most the limit times t, what the
 * limit saves up in its burst time, what the minimums save up in theirs, which is RATE_BURST_MS, and of the limit and
 * of each minimum one command (of each poll group) that used up more than was left.
 *
 * Commands that read, write, compare, copy or verify blocks count as I/Os, and with the bytes of their range; those of
 * a Copy count as an I/O without bytes. A command that has to wait does so before it has a buffer and before its data
 * are fetched, in the order of its queue pair, reads and writes apart; commands of a fused pair count, and do not wait.
 * A limit that is used up does not count them, so the debt that they leave is one command's. */
#ifndef NVMF_QOS_H
#define NVMF_QOS_H

#include "nvmf/nvmf.h"
#include "util/rate.h"

struct nvmf_qos;
/* What is set for a host, or for all hosts together. 0: no limit, no minimum. */
struct nvmf_qos_set {
	struct rate_limits limits;
	struct rate_limits
		minimum; /* of a host: its part of the limits of all hosts together; burst_ms has no meaning */
};
#define NVMF_QOS_MAX 16384 /* limits of a subsystem's hosts */

/* All functions: control thread. */

/* Sets the limits of a host, which need not be connected or known, and its minimum, or the limits of all hosts together
 * (hostnqn NULL), at once, also for commands that wait already. Without any limit and minimum: removes what was set,
 * with its counts; those that wait go on. 0; -EINVAL: not an NQN, or a minimum for all hosts together; -ERANGE: the
 * minimums would be more than a limit of all hosts together, *id; -EOPNOTSUPP: a discovery subsystem; -EBUSY: it is
 * being destroyed; -ENOSPC: NVMF_QOS_MAX hosts have limits; -ENOMEM. Waits for each poll group. */
int nvmf_subsystem_set_qos(struct nvmf_subsystem *s, const char *hostnqn, const struct nvmf_qos_set *set,
			   enum rate_bucket_id *id);
/* The limits of a host or, for NULL, of all together; NULL: there are none. */
const struct nvmf_qos *nvmf_qos_find(const struct nvmf_subsystem *s, const char *hostnqn);
/* The limits after these, or the first for NULL; NULL: there are no more. */
const struct nvmf_qos *nvmf_qos_next(const struct nvmf_subsystem *s, const struct nvmf_qos *after);
/* Whose they are; NULL: those of all hosts together. */
const char *nvmf_qos_host(const struct nvmf_qos *q);
/* The limits themselves. */
const struct rate_limits *nvmf_qos_limits(const struct nvmf_qos *q);
/* What is guaranteed to the host. */
const struct rate_limits *nvmf_qos_minimum(const struct nvmf_qos *q);
/* The minimums of all hosts together, without those of one; NULL: of all. */
struct rate_limits nvmf_qos_minimums(const struct nvmf_subsystem *s, const char *without);
/* What has gone through since they were set first. */
void nvmf_qos_get_counts(const struct nvmf_qos *q, struct rate_counts *counts);

#endif

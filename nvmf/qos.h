/* SPDX-License-Identifier: BSD-3-Clause */
/* Rate limits of what hosts do in a subsystem: of one host, over all its controllers and queues, or of all hosts
 * together. They hold in every poll group, and on top of the limits of bdevs.
 *
 * Commands that read, write, compare, copy or verify blocks count as I/Os, and with the bytes of their range; those of
 * a Copy count as an I/O without bytes. A command that has to wait does so before it has a buffer and before its data
 * are fetched, in the order of its queue pair, reads and writes apart; commands of a fused pair count, and do not wait.
 * These take from a limit only what it has: the debt that they leave is one command's. */
#ifndef NVMF_QOS_H
#define NVMF_QOS_H

#include "nvmf/nvmf.h"
#include "util/rate.h"

struct nvmf_qos;
#define NVMF_QOS_MAX 16384 /* limits of a subsystem's hosts */

/* All functions: control thread. */

/* Sets the limits of a host, which need not be connected or known, or of all hosts together (hostnqn NULL), at once,
 * also for commands that wait already. All limits 0: removes them, with their counts; those that wait go on. 0;
 * -EINVAL: not an NQN; -EOPNOTSUPP: a discovery subsystem; -EBUSY: it is being destroyed; -ENOSPC: NVMF_QOS_MAX hosts
 * have limits; -ENOMEM. Waits for each poll group. */
int nvmf_subsystem_set_qos(struct nvmf_subsystem *s, const char *hostnqn, const struct rate_limits *limits);
/* The limits of a host or, for NULL, of all together; NULL: there are none. */
const struct nvmf_qos *nvmf_qos_find(const struct nvmf_subsystem *s, const char *hostnqn);
/* The limits after these, or the first for NULL; NULL: there are no more. */
const struct nvmf_qos *nvmf_qos_next(const struct nvmf_subsystem *s, const struct nvmf_qos *after);
/* Whose they are; NULL: those of all hosts together. */
const char *nvmf_qos_host(const struct nvmf_qos *q);
/* The limits themselves. */
const struct rate_limits *nvmf_qos_limits(const struct nvmf_qos *q);
/* What has gone through since they were set first. */
void nvmf_qos_get_counts(const struct nvmf_qos *q, struct rate_counts *counts);

#endif

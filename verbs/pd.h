/* SPDX-License-Identifier: BSD-3-Clause */
/* Protection domains, which the RDMA host and the RDMA target share: all DMA-able memory of the process is registered
 * in each of them.
 *
 * A device has one domain for each side. In the target's domain no peer has a right to access memory, whatever key it
 * tries: keys can be guessed. The host driver sends keys to the targets that it is told to attach, so in its domain
 * memory can be accessed with these keys, on the host's connections only: a key of one domain is not valid on the queue
 * pairs of the other. */
#ifndef VERBS_PD_H
#define VERBS_PD_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "env_dpdk/env.h"
#include "thread/worker.h"
#include "thread/thread.h"

/* Registered regions, by ascending address; replaced as a whole when memory is allocated or freed. */
struct verbs_region {
	uintptr_t start, end;
	struct ibv_mr *mr;
};

struct verbs_region_table {
	struct thread_msg retired; /* by which the control thread frees it */
	uint32_t count;
	struct verbs_region regions[];
};

enum verbs_side { VERBS_SIDE_TARGET, VERBS_SIDE_HOST };

/* A callback for the end of a domain's registration. It belongs to the domain until fn has been called, or
 * verbs_pd_put() has returned. */
struct verbs_pd_waiter {
	void (*fn)(void *arg, int status); /* control thread; a negative errno: the domain cannot be used */
	void *arg;
	STAILQ_ENTRY(verbs_pd_waiter) link;
};

struct verbs_pd {
	struct ibv_pd *pd;
	enum verbs_side side;
	struct verbs_region_table *table; /* atomic: published as a whole; old tables are freed after a grace period */
	pthread_mutex_t table_lock;       /* of who changes it: several regions may be registered at a time */
	struct env_mem_listener listener;
	struct ibv_context *verbs;
	uint32_t refs;
	uint64_t registered_bytes;
	/* Of the first registration. */
	struct worker_job job;
	sem_t registered; /* posted when its work is over; error is valid then */
	int error;
	bool registering; /* control thread: the waiters have not been called yet */
	bool job_left; /* control thread: the job has not ended; its end frees the domain if there is no reference any
			  more */
	STAILQ_HEAD(, verbs_pd_waiter) waiters;
	atomic_bool lacks;     /* the device has refused a region: it is registered again later, less and less often */
	atomic_bool repeating; /* all regions are registered again, but for those that are registered already */
	struct verbs_pd *next;
};

/* The domain of a device for one side, made at the first call: all memory of env_dpdk is registered in it, also memory
 * that is allocated later. Memory that the device refuses (it has no room for more regions, or memory cannot be locked)
 * cannot be used with it until a retry has succeeded. NULL and errno on failure. Control thread, which waits for the
 * registration. */
struct verbs_pd *verbs_pd_get(struct ibv_context *verbs, enum verbs_side side);
/* The same, but memory is registered on a worker thread: that can take seconds if there is much memory, or the device
 * is software. If verbs_pd_is_registering() afterwards, the waiter is called at the end, and the domain cannot be used
 * before. */
struct verbs_pd *verbs_pd_get_async(struct ibv_context *verbs, enum verbs_side side, struct verbs_pd_waiter *waiter);
/* Whether the first registration is under way. Control thread. */
static inline bool verbs_pd_is_registering(const struct verbs_pd *pd)
{
	return pd->registering;
}
/* Waits for the end of a registration and calls the waiters, for a caller that cannot go on before. Control thread,
 * which does nothing else meanwhile. */
void verbs_pd_settle(struct verbs_pd *pd);
/* Waits until no registration is under way, at the end of the program. Control thread, outside of its loop. */
void verbs_pd_wait(void);
/* Drops a reference that verbs_pd_get() or verbs_pd_get_async() returned; with the last one, waits for a registration
 * under way and deregisters all memory. Control thread. */
void verbs_pd_put(struct verbs_pd *pd);
/* The domains one by one, for statistics: NULL for the first; NULL: no more. Control thread. */
const struct verbs_pd *verbs_pd_next(const struct verbs_pd *after);

/* The region that holds [addr, addr + len), or NULL. Reactors, or the control thread. *hint, which its owner has set to
 * zero first, remembers the region found, as the next search mostly finds the same. */
static inline const struct verbs_region *verbs_region_find(const struct verbs_pd *pd, const void *addr, size_t len,
							   uint32_t *hint)
{
	/* pairs with the release store in region_table_publish(), pd.c */
	const struct verbs_region_table *t = __atomic_load_n(&pd->table, __ATOMIC_ACQUIRE);
	uintptr_t start = (uintptr_t)addr, end = start + len;

	if (*hint < t->count && start >= t->regions[*hint].start && end <= t->regions[*hint].end) {
		return &t->regions[*hint];
	}
	for (uint32_t i = 0; i < t->count; i++) {
		if (start >= t->regions[i].start && end <= t->regions[i].end) {
			*hint = i;
			return &t->regions[i];
		}
	}
	return NULL;
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* What the RDMA host and the RDMA target share: protection domains, with all of our DMA-able memory registered in them.
 *
 * A device has one for each side. The target's memory is for its own device only: no peer gets a right to it, whatever
 * key it tries, for keys can be guessed. The host driver hands keys to the targets that it is told to attach, so its
 * memory can be reached with them, on its connections and on no others: the keys of one domain open nothing on the
 * queue pairs of the other. */
#ifndef VERBS_PD_H
#define VERBS_PD_H

#include <infiniband/verbs.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "env_dpdk/env.h"
#include "thread/worker.h"
#include "thread/thread.h"

/* Registered regions, by ascending address; replaced as a whole when memory comes or goes. */
struct verbs_region {
	uintptr_t start, end;
	struct ibv_mr *mr;
};

struct verbs_region_table {
	struct thread_msg retired; /* brings it to the control thread to be freed */
	uint32_t count;
	struct verbs_region regions[];
};

enum verbs_side { VERBS_SIDE_TARGET, VERBS_SIDE_HOST };

/* Who wants to know when a domain's memory is registered: the owner's, until fn has been called or verbs_pd_put() has
 * returned. */
struct verbs_pd_waiter {
	void (*fn)(void *arg, int status); /* control thread; 0 or a negative errno: the domain is of no use */
	void *arg;
	STAILQ_ENTRY(verbs_pd_waiter) link;
};

struct verbs_pd {
	struct ibv_pd *pd;
	enum verbs_side side;
	struct verbs_region_table *table; /* atomic: swapped as a whole, old ones freed after thread_synchronize() */
	struct env_mem_listener listener;
	struct ibv_context *verbs;
	uint32_t refs;
	uint64_t registered_bytes;
	/* Of the first registration. */
	struct worker_job job;
	sem_t registered; /* posted when its work is over; error is valid then */
	int error;
	bool registering; /* control thread: nobody has been told yet */
	bool job_left; /* control thread: the job's end has yet to arrive, and frees the domain if it was given back */
	STAILQ_HEAD(, verbs_pd_waiter) waiters;
	atomic_bool lacks;     /* a region that the device did not take: it is offered again, less and less often */
	atomic_bool repeating; /* all regions are offered: those that are registered stay so */
	struct verbs_pd *next;
};

/* A side's domain of a device, made at the first call: registers all memory of env_dpdk, and what comes later. What the
 * device does not take (it has no more room for regions, or memory cannot be locked) cannot be used with it until it
 * does. NULL and errno on failure. Control thread. */
struct verbs_pd *verbs_pd_get(struct ibv_context *verbs, enum verbs_side side);
/* The same, but registers in a thread beside, for that takes long: up to seconds where there is much memory or the
 * device is software. If verbs_pd_is_registering() then, the waiter is told when it is over, and until then the domain
 * serves nobody. */
struct verbs_pd *verbs_pd_get_async(struct ibv_context *verbs, enum verbs_side side, struct verbs_pd_waiter *waiter);
static inline bool verbs_pd_is_registering(const struct verbs_pd *pd)
{
	return pd->registering;
}
/* Waits for the end of a registration, for who cannot go on before it, and tells the waiters. Control thread, which
 * stands still meanwhile. */
void verbs_pd_settle(struct verbs_pd *pd);
/* Returns when no registration is under way, for the end of the program. Control thread, outside of its loop. */
void verbs_pd_wait(void);
/* Undoes one verbs_pd_get() or verbs_pd_get_async(); the last one waits for a registration and deregisters all.
 * Control thread. */
void verbs_pd_put(struct verbs_pd *pd);
/* The domains there are, for statistics: NULL first. Control thread. */
const struct verbs_pd *verbs_pd_next(const struct verbs_pd *after);

/* The region that holds [addr, addr + len), or NULL. Any lcore; *hint (zero-initialised by its owner) remembers the
 * last hit, which is nearly always the next one too. */
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

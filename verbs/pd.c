/* SPDX-License-Identifier: BSD-3-Clause */
#include "verbs/pd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "env_dpdk/env.h"
#include "thread/thread.h"
#include "util/compiler.h"
#include "util/log.h"

/* Registering memory may take long, so it is retried seldom. */
#define RETRY_US     UINT64_C(1000000)
#define RETRY_MAX_US UINT64_C(4000000)

static struct verbs_pd *pds;
static unsigned jobs; /* under way; control thread */

/* The retry of memory that devices have refused. */
static struct {
	struct thread_timer timer;
	bool waits;        /* the timer runs; control thread */
	uint64_t delay_us; /* from now to the next retry; 0: RETRY_US. Control thread */
	struct thread_msg msg;
	atomic_bool asked; /* the message is under way */
} retry;

static size_t region_table_size(uint32_t count)
{
	return sizeof(struct verbs_region_table) + count * sizeof(struct verbs_region);
}

static void region_table_free_retired(struct thread_msg *msg)
{
	thread_synchronize();
	free(container_of(msg, struct verbs_region_table, retired));
}

/* Publishes a new table. On the thread that allocated or freed memory, which holds the table's lock; the control thread
 * waits for a grace period and frees the old table. */
static void region_table_publish(struct verbs_pd *pd, struct verbs_region_table *table)
{
	struct verbs_region_table *old = pd->table;

	__atomic_store_n(&pd->table, table, __ATOMIC_RELEASE); /* pairs with verbs_region_find() */
	thread_post(thread_control(), &old->retired, region_table_free_retired);
}

/* iWARP carries the answer to an RDMA READ as an RDMA WRITE: there the memory that data is read into must be remotely
 * writable. */
static int pd_access_flags(const struct verbs_pd *pd)
{
	if (pd->side == VERBS_SIDE_HOST) {
		return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	}
	return pd->verbs->device->transport_type == IBV_TRANSPORT_IWARP
		       ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
		       : IBV_ACCESS_LOCAL_WRITE;
}

/* The reason why a device refuses memory may pass: another process frees its regions, or somebody raises a limit. */
static void regions_offer_again(void *arg)
{
	uint64_t next_us = 2 * retry.delay_us;
	bool lacking = false;

	retry.waits = false;
	for (struct verbs_pd *pd = pds; pd != NULL; pd = pd->next) {
		/* a domain that is still being registered would block this thread; it is retried when that has ended */
		if (!pd->registering && atomic_exchange(&pd->lacks, false)) {
			atomic_store(&pd->repeating, true);
			env_mem_repeat(&pd->listener);
			atomic_store(&pd->repeating, false);
			lacking |= atomic_load(&pd->lacks);
		}
	}
	retry.delay_us = !lacking ? 0 : next_us < RETRY_MAX_US ? next_us : RETRY_MAX_US;
}

static void regions_schedule_retry(void)
{
	if (pds != NULL && !retry.waits) {
		retry.waits = true;
		retry.delay_us = retry.delay_us != 0 ? retry.delay_us : RETRY_US;
		retry.timer.fn = regions_offer_again;
		thread_timer_start(&retry.timer, retry.delay_us);
	}
}

static void regions_retry_requested(struct thread_msg *msg)
{
	atomic_store(&retry.asked, false);
	regions_schedule_retry();
}

static void region_refused(struct verbs_pd *pd, void *addr, size_t len)
{
	if (!pd->repeating) { /* each connection request may cause it again */
		log_limited(LOG_LEVEL_ERROR,
			    "%s: %zu bytes at %p could not be registered, and are offered again: %s (a limit on locked "
			    "memory? see ulimit -l)",
			    ibv_get_device_name(pd->verbs->device), len, addr, strerror(errno));
	}
	atomic_store(&pd->lacks, true);
	if (!atomic_exchange(&retry.asked, true)) {
		thread_post(thread_control(), &retry.msg, regions_retry_requested);
	}
}

static bool region_is_registered(struct verbs_pd *pd, const void *addr)
{
	uint32_t at = 0;

	pthread_mutex_lock(&pd->table_lock);
	const struct verbs_region_table *t = pd->table;
	while (at < t->count && t->regions[at].start != (uintptr_t)addr) {
		at++;
	}
	bool found = at < t->count;
	pthread_mutex_unlock(&pd->table_lock);
	return found;
}

/* Puts a region into the table. False: no memory. */
static bool region_enter(struct verbs_pd *pd, const struct verbs_region *r)
{
	uint32_t at = 0;

	pthread_mutex_lock(&pd->table_lock);
	const struct verbs_region_table *old = pd->table;
	struct verbs_region_table *table = malloc(region_table_size(old->count + 1));
	if (table != NULL) {
		while (at < old->count && old->regions[at].start < r->start) {
			at++;
		}
		table->count = old->count + 1;
		memcpy(table->regions, old->regions, at * sizeof(old->regions[0]));
		table->regions[at] = *r;
		memcpy(&table->regions[at + 1], &old->regions[at], (old->count - at) * sizeof(old->regions[0]));
		pd->registered_bytes += r->end - r->start;
		region_table_publish(pd, table);
	}
	pthread_mutex_unlock(&pd->table_lock);
	return table != NULL;
}

static void region_add(void *ctx, void *addr, size_t len)
{
	struct verbs_pd *pd = ctx;
	struct verbs_region r = {.start = (uintptr_t)addr, .end = (uintptr_t)addr + len};

	if (pd->repeating && region_is_registered(pd, addr)) {
		return;
	}
	r.mr = ibv_reg_mr(pd->pd, addr, len, pd_access_flags(pd));
	if (r.mr == NULL) {
		region_refused(pd, addr, len);
		return;
	}
	if (!region_enter(pd, &r)) {
		ibv_dereg_mr(r.mr);
		errno = ENOMEM;
		region_refused(pd, addr, len);
		return;
	}
	if (pd->repeating) {
		log_notice("%s: %zu bytes at %p are registered now", ibv_get_device_name(pd->verbs->device), len, addr);
	}
}

/* Takes a region out of the table. Returns what it was registered with; NULL: the device had refused it, or there is no
 * memory. */
static struct ibv_mr *region_leave(struct verbs_pd *pd, const void *addr, size_t len)
{
	struct ibv_mr *mr = NULL;
	uint32_t at = 0;

	pthread_mutex_lock(&pd->table_lock);
	const struct verbs_region_table *old = pd->table;
	while (at < old->count && old->regions[at].start != (uintptr_t)addr) {
		at++;
	}
	struct verbs_region_table *table = at < old->count ? malloc(region_table_size(old->count - 1)) : NULL;
	if (table != NULL) {
		mr = old->regions[at].mr;
		table->count = old->count - 1;
		memcpy(table->regions, old->regions, at * sizeof(old->regions[0]));
		memcpy(&table->regions[at], &old->regions[at + 1], (old->count - at - 1) * sizeof(old->regions[0]));
		pd->registered_bytes -= len;
		region_table_publish(pd, table);
	} else if (at < old->count) {
		log_error("out of memory: a region of %zu bytes stays registered", len);
	}
	pthread_mutex_unlock(&pd->table_lock);
	return mr;
}

static void region_remove(void *ctx, void *addr, size_t len)
{
	struct ibv_mr *mr = region_leave(ctx, addr, len);

	if (mr != NULL) {
		ibv_dereg_mr(mr);
	}
}

static void pd_close(struct verbs_pd *pd)
{
	for (uint32_t i = 0; pd->table != NULL && i < pd->table->count; i++) {
		ibv_dereg_mr(pd->table->regions[i].mr);
	}
	free(pd->table);
	if (pd->pd != NULL) {
		ibv_dealloc_pd(pd->pd);
	}
}

static void pd_free(struct verbs_pd *pd)
{
	sem_destroy(&pd->registered);
	pthread_mutex_destroy(&pd->table_lock);
	free(pd);
}

static struct verbs_pd *pd_make(struct ibv_context *verbs, enum verbs_side side)
{
	struct verbs_pd *pd = calloc(1, sizeof(*pd));

	if (pd == NULL) {
		return NULL;
	}
	pd->verbs = verbs;
	pd->side = side;
	pd->registering = true;
	sem_init(&pd->registered, 0, 0);
	pthread_mutex_init(&pd->table_lock, NULL);
	STAILQ_INIT(&pd->waiters);
	pd->listener =
		(struct env_mem_listener){.concurrent = true, .add = region_add, .remove = region_remove, .ctx = pd};
	pd->table = calloc(1, region_table_size(0));
	pd->pd = pd->table ? ibv_alloc_pd(verbs) : NULL;
	if (pd->pd == NULL) {
		int saved = errno;

		pd_close(pd);
		pd_free(pd);
		errno = saved;
		return NULL;
	}
	pd->next = pds;
	pds = pd;
	return pd;
}

/* The first registration: on a worker thread, or on the control thread if its caller waits for it. */
static void pd_register_memory(struct worker_job *job)
{
	struct verbs_pd *pd = container_of(job, struct verbs_pd, job);

	pd->error = env_mem_listen(&pd->listener);
	sem_post(&pd->registered);
}

static void pd_job_done(struct worker_job *job)
{
	struct verbs_pd *pd = container_of(job, struct verbs_pd, job);

	jobs--;
	pd->job_left = false;
	if (pd->refs == 0) { /* the last reference was dropped meanwhile */
		pd_free(pd);
	} else {
		verbs_pd_settle(pd);
	}
}

static void pd_start_job(struct verbs_pd *pd)
{
	pd->job = (struct worker_job){.work = pd_register_memory, .done = pd_job_done};
	pd->job_left = true;
	jobs++;
	worker_run(NULL, &pd->job);
	if (pd->job.error != 0) { /* there is no worker thread: do it here */
		pd_register_memory(&pd->job);
	}
}

void verbs_pd_settle(struct verbs_pd *pd)
{
	struct verbs_pd_waiter *w;

	if (!pd->registering) {
		return;
	}
	while (sem_wait(&pd->registered) != 0) { /* EINTR */
	}
	pd->registering = false;
	pd->refs++; /* a waiter may drop its reference */
	if (atomic_load(&pd->lacks)) {
		regions_schedule_retry();
	}
	while ((w = STAILQ_FIRST(&pd->waiters)) != NULL) {
		STAILQ_REMOVE_HEAD(&pd->waiters, link);
		w->fn(w->arg, pd->error);
	}
	verbs_pd_put(pd);
}

static struct verbs_pd *pd_find(const struct ibv_context *verbs, enum verbs_side side)
{
	struct verbs_pd *pd;

	for (pd = pds; pd != NULL && (pd->verbs != verbs || pd->side != side); pd = pd->next) {
	}
	return pd;
}

struct verbs_pd *verbs_pd_get(struct ibv_context *verbs, enum verbs_side side)
{
	struct verbs_pd *pd = pd_find(verbs, side);

	if (pd == NULL) {
		pd = pd_make(verbs, side);
		if (pd == NULL) {
			return NULL;
		}
		pd_register_memory(&pd->job);
	}
	pd->refs++;
	verbs_pd_settle(pd);
	int rc = pd->error;
	if (rc != 0) {
		verbs_pd_put(pd);
		errno = -rc;
		return NULL;
	}
	return pd;
}

struct verbs_pd *verbs_pd_get_async(struct ibv_context *verbs, enum verbs_side side, struct verbs_pd_waiter *waiter)
{
	struct verbs_pd *pd = pd_find(verbs, side);

	if (pd == NULL) {
		pd = pd_make(verbs, side);
		if (pd == NULL) {
			return NULL;
		}
		pd_start_job(pd);
	}
	pd->refs++;
	if (pd->registering) {
		STAILQ_INSERT_TAIL(&pd->waiters, waiter, link);
	}
	return pd;
}

static void pd_unlink(const struct verbs_pd *pd)
{
	struct verbs_pd **link = &pds;

	while (*link != pd) {
		link = &(*link)->next;
	}
	*link = pd->next;
	if (pds == NULL) {
		thread_timer_stop(&retry.timer);
		retry.waits = false;
		retry.delay_us = 0;
	}
}

void verbs_pd_put(struct verbs_pd *pd)
{
	verbs_pd_settle(pd);
	if (--pd->refs != 0) {
		return;
	}
	pd_unlink(pd);
	env_mem_unlisten(&pd->listener);
	pd_close(pd);
	if (!pd->job_left) {
		pd_free(pd);
	}
}

static bool no_job_runs(void *arg)
{
	return jobs == 0;
}

void verbs_pd_wait(void)
{
	if (jobs != 0) {
		thread_control_wait(no_job_runs, NULL, UINT64_MAX);
	}
}

const struct verbs_pd *verbs_pd_next(const struct verbs_pd *after)
{
	return after == NULL ? pds : after->next;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The main pools, and how channels fetch from and return to them. A main pool is a DPDK ring of buffers and not an
 * rte_mempool. An rte_mempool puts a header before each object; since data must begin at a page (O_DIRECT, most
 * drives), that would cost a page per buffer, and touch all of them at the start. The channels' stacks are not the
 * caches of an rte_mempool, because those cannot be filled beforehand or kept filled.
 *
 * Memory is allocated in slabs, up to the pool's count, as channels and limits declare how much they will use. All is
 * freed when the last of them ends. Pages are not resident before they are used. */
#include "env_dpdk/iobuf.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <rte_ring.h>
#include <stdlib.h>
#include <string.h>

#include "env_dpdk/env.h"
#include "util/log.h"

#define NODES_MAX  8
#define SLAB_BYTES ((size_t)1 << 20) /* at least, so that a pool has few */

struct slab {
	void *memory;
	struct slab *next;
};

struct iobuf_pool {
	struct rte_ring *ring;
	struct slab *slabs;
	uint64_t demand; /* buffers that channels and limits have declared */
	uint64_t count;  /* buffers allocated */
	int node;        /* -1: any */
};

/* Protects the variables below, and the modules' lists. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct iobuf_opts options = {
	.small_pool_count = 8192,
	.large_pool_count = 1024,
	.small_bufsize = 8192,
	.large_bufsize = 135168, /* 128 KiB and one page, for data that do not begin at a page */
};
static struct iobuf_pool pools[IOBUF_CLASSES][NODES_MAX];
static unsigned users; /* channels and limits */
static LIST_HEAD(, iobuf_module) modules = LIST_HEAD_INITIALIZER(modules);

static const char *const count_names[IOBUF_CLASSES] = {"small_pool_count", "large_pool_count"};
static const char *const size_names[IOBUF_CLASSES] = {"small_bufsize", "large_bufsize"};

static uint32_t buffer_size(enum iobuf_class class)
{
	uint32_t size = class == IOBUF_SMALL ? options.small_bufsize : options.large_bufsize;

	return (size + IOBUF_ALIGN - 1) & ~(IOBUF_ALIGN - 1);
}

uint32_t iobuf_size(enum iobuf_class class)
{
	pthread_mutex_lock(&lock);
	uint32_t size = buffer_size(class);
	pthread_mutex_unlock(&lock);
	return size;
}

static uint64_t pool_max(enum iobuf_class class)
{
	return class == IOBUF_SMALL ? options.small_pool_count : options.large_pool_count;
}

/* --- Options --- */

void iobuf_get_opts(struct iobuf_opts *opts)
{
	pthread_mutex_lock(&lock);
	*opts = options;
	pthread_mutex_unlock(&lock);
}

static int iobuf_opts_check(const struct iobuf_opts *o, char *error)
{
	const struct {
		const char *name;
		uint64_t value, min, max;
	} checks[] = {
		{count_names[IOBUF_SMALL], o->small_pool_count, IOBUF_SMALL_COUNT_MIN, IOBUF_COUNT_MAX},
		{count_names[IOBUF_LARGE], o->large_pool_count, IOBUF_LARGE_COUNT_MIN, IOBUF_COUNT_MAX},
		{size_names[IOBUF_SMALL], o->small_bufsize, IOBUF_SMALL_SIZE_MIN, IOBUF_SIZE_MAX},
		{size_names[IOBUF_LARGE], o->large_bufsize, IOBUF_LARGE_SIZE_MIN, IOBUF_SIZE_MAX},
	};

	for (size_t i = 0; i < ARRAY_SIZE(checks); i++) {
		if (checks[i].value < checks[i].min || checks[i].value > checks[i].max) {
			snprintf(error, ENV_ERROR_MAX, "%s is %" PRIu64 ": allowed are %" PRIu64 " to %" PRIu64,
				 checks[i].name, checks[i].value, checks[i].min, checks[i].max);
			return -EINVAL;
		}
	}
	if (o->small_bufsize > o->large_bufsize) {
		snprintf(error, ENV_ERROR_MAX, "small_bufsize is %u: allowed are at most large_bufsize, %u bytes",
			 o->small_bufsize, o->large_bufsize);
		return -EINVAL;
	}
	return 0;
}

int iobuf_set_opts(const struct iobuf_opts *opts, char *error)
{
	int rc = iobuf_opts_check(opts, error);

	pthread_mutex_lock(&lock);
	if (rc == 0 && users != 0) {
		snprintf(error, ENV_ERROR_MAX,
			 "the buffers are in use: they can be changed only before anything uses them");
		rc = -EBUSY;
	}
	if (rc == 0) {
		options = *opts;
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

/* --- Pools. The lock is held. --- */

/* A thread that is stopped in the middle of a fetch keeps its places in the ring occupied, and those of all buffers
 * that others fetch meanwhile: up to an eighth of the ring and one fetch (DPDK's default), which may be as long as the
 * pool. The ring needs room for buffers that are returned at that time, or they would be lost. */
static unsigned ring_entries(enum iobuf_class class)
{
	return rte_align32pow2(3 * (uint32_t)pool_max(class));
}

static int pool_start(struct iobuf_pool *pool, enum iobuf_class class, int node)
{
	unsigned entries = ring_entries(class);
	ssize_t bytes = rte_ring_get_memsize(entries);

	if (pool->ring != NULL) {
		return 0;
	}
	pool->ring = bytes > 0 ? aligned_alloc(RTE_CACHE_LINE_SIZE, RTE_CACHE_LINE_ROUNDUP((size_t)bytes)) : NULL;
	if (pool->ring == NULL) {
		return -ENOMEM;
	}
	/* Relaxed tail synchronization: reactors may share a CPU, and one that is preempted must not delay the others.
	 */
	if (rte_ring_init(pool->ring, class == IOBUF_SMALL ? "iobuf_small" : "iobuf_large", entries,
			  RING_F_MP_RTS_ENQ | RING_F_MC_RTS_DEQ) != 0) {
		free(pool->ring);
		pool->ring = NULL;
		return -ENOMEM;
	}
	pool->node = node;
	return 0;
}

static int pool_grow(struct iobuf_pool *pool, enum iobuf_class class, uint64_t n)
{
	uint32_t size = buffer_size(class);
	/* Without this check the allocation would succeed, and the memory would be missing when it is used. */
	struct slab *slab = n <= env_available_bytes() / size ? malloc(sizeof(*slab)) : NULL;

	if (slab == NULL) {
		return -ENOMEM;
	}
	slab->memory = env_dma_malloc(n * size, IOBUF_ALIGN, pool->node);
	if (slab->memory == NULL) {
		free(slab);
		return -ENOMEM;
	}
	env_dma_nodump(slab->memory, n * size);
	slab->next = pool->slabs;
	pool->slabs = slab;
	for (uint64_t i = 0; i < n; i++) {
		rte_ring_enqueue(pool->ring, (uint8_t *)slab->memory + i * size);
	}
	pool->count += n;
	return 0;
}

/* Declares n more buffers. -ENOMEM: not all could be allocated; those that the pool has stay usable. */
static int pool_demand(struct iobuf_pool *pool, enum iobuf_class class, uint64_t n, int node)
{
	uint64_t max = pool_max(class), least = SLAB_BYTES / buffer_size(class) + 1;

	pool->demand += n;
	if (pool_start(pool, class, node) != 0) {
		return -ENOMEM;
	}
	uint64_t want = RTE_MIN(pool->demand, max);
	if (want <= pool->count) {
		return 0;
	}
	want = RTE_MIN(RTE_MAX(want - pool->count, least), max - pool->count);
	return pool_grow(pool, class, want);
}

static void pool_end(struct iobuf_pool *pool)
{
	if (pool->ring != NULL && rte_ring_count(pool->ring) != pool->count) {
		log_error("%" PRIu64 " of %" PRIu64 " data buffers were not given back",
			  pool->count - rte_ring_count(pool->ring), pool->count);
	}
	while (pool->slabs != NULL) {
		struct slab *s = pool->slabs;
		pool->slabs = s->next;
		env_dma_free(s->memory);
		free(s);
	}
	free(pool->ring);
	*pool = (struct iobuf_pool){0};
}

static void user_remove(void)
{
	if (--users != 0) {
		return;
	}
	for (unsigned class = 0; class < IOBUF_CLASSES; class ++) {
		for (unsigned node = 0; node < NODES_MAX; node++) {
			pool_end(&pools[class][node]);
		}
	}
}

/* The NUMA node of the calling thread, whose pools it uses. */
static int calling_numa_node(void)
{
	unsigned lcore = env_lcore_current();
	int node = options.enable_numa && lcore != ENV_LCORE_NONE ? env_lcore_numa_node(lcore) : 0;

	return node > 0 && node < NODES_MAX ? node : 0;
}

/* --- Limits --- */

/* Declares a limit's buffers on a node, once; with pools per node, when its first channel on that node is made. The
 * lock is held. */
static int limit_demand(struct iobuf_limit *limit, int node, char *error)
{
	struct iobuf_pool *pool = &pools[limit->class][node];

	if (limit->nodes & 1u << node) {
		return 0;
	}
	limit->nodes |= 1u << node;
	if (pool_demand(pool, limit->class, limit->total, options.enable_numa ? node : -1) != 0) {
		snprintf(error, ENV_ERROR_MAX, "no memory for %u data buffers of %u bytes", limit->total,
			 buffer_size(limit->class));
		return -ENOMEM;
	}
	if (pool->count < limit->total) {
		log_notice("of the %u data buffers wanted there are %" PRIu64 ": that is %s (iobuf_set_options)",
			   limit->total, pool->count, count_names[limit->class]);
	}
	return 0;
}

/* The lock is held. */
static void limit_end(struct iobuf_limit *limit)
{
	for (int node = 0; node < NODES_MAX; node++) {
		if (limit->nodes & 1u << node) {
			pools[limit->class][node].demand -= limit->total;
		}
	}
	user_remove();
	*limit = (struct iobuf_limit){0};
}

int iobuf_limit_create(struct iobuf_limit *limit, enum iobuf_class class, uint32_t count, char *error)
{
	int rc;

	*limit = (struct iobuf_limit){.left = count, .class = class, .total = count};
	pthread_mutex_lock(&lock);
	users++;
	rc = options.enable_numa ? 0 : limit_demand(limit, 0, error);
	if (rc != 0) {
		limit_end(limit);
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

void iobuf_limit_raise(struct iobuf_limit *limit, uint32_t count)
{
	pthread_mutex_lock(&lock);
	if (count > limit->total) {
		uint32_t more = count - limit->total;

		/* Too little memory shows when a channel fetches its buffers. */
		for (int node = 0; node < NODES_MAX; node++) {
			if (limit->nodes & 1u << node) {
				pool_demand(&pools[limit->class][node], limit->class, more,
					    options.enable_numa ? node : -1);
			}
		}
		limit->total = count;
		__atomic_fetch_add(&limit->left, more, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&lock);
}

void iobuf_limit_destroy(struct iobuf_limit *limit)
{
	if (limit->total != 0) {
		pthread_mutex_lock(&lock);
		limit_end(limit);
		pthread_mutex_unlock(&lock);
	}
}

static uint32_t limit_take(struct iobuf_limit *limit, uint32_t want)
{
	uint32_t left, take;

	if (limit == NULL) {
		return want;
	}
	left = __atomic_load_n(&limit->left, __ATOMIC_RELAXED);
	do {
		take = RTE_MIN(left, want);
	} while (!__atomic_compare_exchange_n(&limit->left, &left, left - take, true, __ATOMIC_RELAXED,
					      __ATOMIC_RELAXED));
	return take;
}

static void limit_give(struct iobuf_limit *limit, uint32_t n)
{
	if (limit != NULL && n != 0) {
		__atomic_fetch_add(&limit->left, n, __ATOMIC_RELAXED);
	}
}

/* --- Channels --- */

static uint32_t buffers_fetch(struct iobuf_channel *ch, enum iobuf_class class, void **to, uint32_t want)
{
	uint32_t allowed = limit_take(ch->limit, want);
	uint32_t got = rte_ring_dequeue_burst(ch->cache[class].pool->ring, to, allowed, NULL);

	limit_give(ch->limit, allowed - got);
	return got;
}

static void buffers_return(struct iobuf_channel *ch, enum iobuf_class class, void **from, uint32_t n)
{
	if (n != 0) {
		rte_ring_enqueue_bulk(ch->cache[class].pool->ring, from, n, NULL);
		limit_give(ch->limit, n);
	}
}

bool iobuf_refill(struct iobuf_channel *ch, enum iobuf_class class, uint32_t n)
{
	struct iobuf_cache *c = &ch->cache[class];
	uint32_t missing = n - c->count;

	if (c->pool == NULL) {
		return false;
	}
	/* fetches a whole cache more, so that the next requests find buffers in it */
	uint32_t got = buffers_fetch(ch, class, &c->free[c->count], missing + c->keep);
	c->count += got;
	__atomic_store_n(&c->main, c->main + RTE_MIN(got, missing), __ATOMIC_RELAXED);
	return c->count >= n;
}

/* Returns the upper ones. The lowest were used least recently, but moving the others down would cost more than it
 * saves. */
void iobuf_drain(struct iobuf_channel *ch, enum iobuf_class class)
{
	struct iobuf_cache *c = &ch->cache[class];

	buffers_return(ch, class, &c->free[c->keep], c->count - c->keep);
	c->count = c->keep;
}

static int cache_explain_shortage(const struct iobuf_channel *ch, enum iobuf_class class, uint32_t wanted, uint32_t had,
				  char *error)
{
	const struct iobuf_pool *pool = ch->cache[class].pool;

	snprintf(error, ENV_ERROR_MAX,
		 "a thread of %s needs %u data buffers of %u bytes for itself and got %u: %s of %" PRIu64
		 " (of which there is memory for "
		 "%" PRIu64 ") or the user's own limit is too small",
		 ch->module->name, wanted, ch->cache[class].size, had, count_names[class], pool_max(class),
		 pool->count);
	return -ENOMEM;
}

/* The lock is held. */
static int cache_open(struct iobuf_channel *ch, enum iobuf_class class, const struct iobuf_channel_opts *o, int node,
		      char *error)
{
	struct iobuf_cache *c = &ch->cache[class];
	uint32_t floor = o->class[class].floor, reserve = class == IOBUF_SMALL ? o->reserve : 0;
	uint32_t most = (uint32_t)pool_max(class);

	c->size = buffer_size(class);
	if (floor == 0 && reserve == 0) {
		return 0;
	}
	c->keep = RTE_MAX(floor, RTE_MIN(o->class[class].keep, most));
	c->capacity = 2 * c->keep + floor + 1;
	c->free = calloc(c->capacity, sizeof(*c->free));
	c->pool = &pools[class][node];
	/* The result does not matter: a channel that can fetch its floor works with a smaller cache. */
	pool_demand(c->pool, class, c->keep + reserve, options.enable_numa ? node : -1);
	if (c->free == NULL || c->pool->ring == NULL) {
		snprintf(error, ENV_ERROR_MAX, "no memory for data buffers");
		return -ENOMEM;
	}
	uint32_t got = buffers_fetch(ch, class, ch->reserved, reserve);
	ch->reserved_count += got;
	c->count = buffers_fetch(ch, class, c->free, floor);
	return got < reserve || c->count < floor
		       ? cache_explain_shortage(ch, class, floor + reserve, got + c->count, error)
		       : 0;
}

/* The lock is held. */
static void cache_close(struct iobuf_channel *ch, enum iobuf_class class)
{
	struct iobuf_cache *c = &ch->cache[class];

	if (c->pool == NULL) {
		return;
	}
	if (c->pool->ring != NULL) {
		buffers_return(ch, class, c->free, c->count);
		if (class == IOBUF_SMALL) {
			buffers_return(ch, class, ch->reserved, ch->reserved_count);
		}
	}
	c->pool->demand -= c->keep + (class == IOBUF_SMALL ? ch->reserve : 0);
	free(c->free);
}

static void stat_add(struct iobuf_stat *sum, const struct iobuf_cache *c)
{
	uint64_t main = __atomic_load_n(&c->main, __ATOMIC_RELAXED), gets = __atomic_load_n(&c->gets, __ATOMIC_RELAXED);

	/* `main` counts buffers when they are fetched, which may not have been taken yet. */
	sum->cache += gets > main ? gets - main : 0;
	sum->main += RTE_MIN(main, gets);
	sum->retry += __atomic_load_n(&c->retry, __ATOMIC_RELAXED);
}

static void channel_close(struct iobuf_channel *ch)
{
	for (unsigned class = 0; class < IOBUF_CLASSES; class ++) {
		cache_close(ch, class);
	}
	user_remove();
}

int iobuf_channel_create(struct iobuf_channel *ch, const struct iobuf_channel_opts *opts, char *error)
{
	int rc = 0;

	*ch = (struct iobuf_channel){.limit = opts->limit, .module = opts->module, .reserve = opts->reserve};
	pthread_mutex_lock(&lock);
	users++;
	if (ch->limit != NULL) {
		rc = limit_demand(ch->limit, calling_numa_node(), error);
	}
	for (unsigned class = 0; class < IOBUF_CLASSES && rc == 0; class ++) {
		rc = cache_open(ch, class, opts, calling_numa_node(), error);
	}
	if (rc == 0) {
		LIST_INSERT_HEAD(&ch->module->channels, ch, link);
	} else {
		channel_close(ch);
		*ch = (struct iobuf_channel){0};
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

void iobuf_channel_destroy(struct iobuf_channel *ch)
{
	if (ch->module == NULL) {
		return;
	}
	pthread_mutex_lock(&lock);
	LIST_REMOVE(ch, link);
	for (unsigned class = 0; class < IOBUF_CLASSES; class ++) {
		stat_add(&ch->module->closed[class], &ch->cache[class]);
	}
	channel_close(ch);
	pthread_mutex_unlock(&lock);
	*ch = (struct iobuf_channel){0};
}

/* --- Statistics --- */

void iobuf_module_register(struct iobuf_module *module)
{
	struct iobuf_module *m, *before = NULL;

	pthread_mutex_lock(&lock);
	LIST_FOREACH (m, &modules, link) {
		if (strcmp(m->name, module->name) < 0) {
			before = m;
		}
	}
	if (module->registered) {
	} else if (before == NULL) {
		LIST_INSERT_HEAD(&modules, module, link);
	} else {
		LIST_INSERT_AFTER(before, module, link);
	}
	module->registered = true;
	pthread_mutex_unlock(&lock);
}

void iobuf_for_each_module(void (*fn)(void *arg, const char *module, const struct iobuf_stat *stat), void *arg)
{
	const struct iobuf_module *m;
	const struct iobuf_channel *ch;

	pthread_mutex_lock(&lock);
	LIST_FOREACH (m, &modules, link) {
		struct iobuf_stat stat[IOBUF_CLASSES] = {m->closed[IOBUF_SMALL], m->closed[IOBUF_LARGE]};
		LIST_FOREACH (ch, &m->channels, link) {
			for (unsigned class = 0; class < IOBUF_CLASSES; class ++) {
				stat_add(&stat[class], &ch->cache[class]);
				stat[class].cache_size += ch->cache[class].keep;
			}
		}
		fn(arg, m->name, stat);
	}
	pthread_mutex_unlock(&lock);
}

/* How many buffers of a pool are in the channels' caches. Exact only while the threads are idle, since they use their
 * caches without the lock. The lock is held. */
static uint64_t buffers_at_hand(const struct iobuf_pool *pool, enum iobuf_class class)
{
	const struct iobuf_module *m;
	const struct iobuf_channel *ch;
	uint64_t n = 0;

	LIST_FOREACH (m, &modules, link) {
		LIST_FOREACH (ch, &m->channels, link) {
			n += ch->cache[class].pool != pool
				     ? 0
				     : ch->cache[class].count + (class == IOBUF_SMALL ? ch->reserved_count : 0);
		}
	}
	return n;
}

void iobuf_dump(FILE *f)
{
	pthread_mutex_lock(&lock);
	for (unsigned class = 0; class < IOBUF_CLASSES; class ++) {
		for (unsigned node = 0; node < NODES_MAX; node++) {
			const struct iobuf_pool *p = &pools[class][node];
			if (p->ring == NULL) {
				continue;
			}
			unsigned idle = rte_ring_count(p->ring);
			uint64_t ready = buffers_at_hand(p, class),
				 used = p->count > idle + ready ? p->count - idle - ready : 0;
			fprintf(f,
				"  %s of %u bytes, node %d: %" PRIu64 " (at most %" PRIu64
				"), %u in the main pool, %" PRIu64 " at hand of threads, %" PRIu64 " in use\n",
				class == IOBUF_SMALL ? "small" : "large", buffer_size(class), p->node, p->count,
				pool_max(class), idle, ready, used);
		}
	}
	pthread_mutex_unlock(&lock);
}

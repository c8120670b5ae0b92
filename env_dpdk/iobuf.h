/* SPDX-License-Identifier: BSD-3-Clause */
/* Data buffers: DMA-able memory in two sizes, aligned to 4 KiB, shared by all modules that move data. A module (the
 * bdev layer, a transport of the target) has a channel on each thread. The channel caches some buffers; it fetches more
 * from the main pool, and returns those that exceed its cache.
 *
 * A channel always owns a few buffers (`floor`, `reserve`). So a request that waits for a buffer waits for another
 * request of its own channel, which will complete; modules that stand on each other cannot starve each other, however
 * small the pools are. */
#ifndef ENV_DPDK_IOBUF_H
#define ENV_DPDK_IOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/queue.h>

#include "util/compiler.h"

#define IOBUF_ALIGN       4096u
#define IOBUF_RESERVE_MAX 16u

enum iobuf_class { IOBUF_SMALL, IOBUF_LARGE, IOBUF_CLASSES };

/* Counts are upper limits (on each NUMA node, with enable_numa): memory is allocated as channels are made. */
#define IOBUF_COUNT_MAX       (UINT64_C(1) << 22)
#define IOBUF_SMALL_COUNT_MIN 64u
#define IOBUF_LARGE_COUNT_MIN 8u
#define IOBUF_SMALL_SIZE_MIN  4096u
#define IOBUF_LARGE_SIZE_MIN  8192u
#define IOBUF_SIZE_MAX        (UINT32_C(16) << 20)
struct iobuf_opts {
	uint64_t small_pool_count, large_pool_count;
	uint32_t small_bufsize, large_bufsize; /* bytes */
	bool enable_numa;                      /* each NUMA node has pools of its own */
};
/* Copies the options. Any thread. */
void iobuf_get_opts(struct iobuf_opts *opts);
/* Sets the options. 0; or -EINVAL (out of range) or -EBUSY (there are channels or limits), and error (ENV_ERROR_MAX
 * bytes) says what is wrong. Control thread. */
int iobuf_set_opts(const struct iobuf_opts *opts, char *error);

/* Of the buffers of a class. */
struct iobuf_stat {
	uint64_t cache;      /* buffers taken from a channel's cache */
	uint64_t main;       /* buffers that were fetched from the main pool when they were needed */
	uint64_t retry;      /* requests that had to wait for a buffer */
	uint64_t cache_size; /* buffers that the caches of its channels keep, at most, now */
};

/* Bytes of a buffer: the option, rounded up to IOBUF_ALIGN. Does not change while channels exist. Any thread. */
uint32_t iobuf_size(enum iobuf_class class);

struct iobuf_channel;
/* A user of buffers, for the statistics: a static variable of the module. */
struct iobuf_module {
	const char *name;                        /* "bdev" */
	struct iobuf_stat closed[IOBUF_CLASSES]; /* of channels that have been destroyed */
	LIST_HEAD(, iobuf_channel) channels;
	bool registered;
	LIST_ENTRY(iobuf_module) link;
};
/* Adds the module to the statistics; does nothing if it has been added. Control thread. */
void iobuf_module_register(struct iobuf_module *module);
/* Calls fn(arg, module, stat[IOBUF_CLASSES]) for each module, in the order of their names. fn must not call functions
 * of this header. Any thread. */
void iobuf_for_each_module(void (*fn)(void *arg, const char *module, const struct iobuf_stat *stat), void *arg);

/* How many buffers several channels may have together. */
struct iobuf_limit {
	uint32_t left; /* atomic */
	uint32_t total;
	enum iobuf_class class;
	uint32_t nodes; /* bit n: memory has been allocated on NUMA node n */
};
/* Makes a limit of `count` buffers of the class, and allocates memory for them as far as the pool's count allows. 0; or
 * -ENOMEM, and error (ENV_ERROR_MAX bytes) says what is missing. Control thread. */
int iobuf_limit_create(struct iobuf_limit *limit, enum iobuf_class class, uint32_t count, char *error);
/* Makes a limit larger, so that it allows at least `count` buffers; does nothing if it does so already. As far as the
 * pool's count allows, there is memory for them. Any thread that is not on the I/O path. */
void iobuf_limit_raise(struct iobuf_limit *limit, uint32_t count);
/* Ends a limit, whose channels must have been destroyed. Control thread. */
void iobuf_limit_destroy(struct iobuf_limit *limit);

struct iobuf_pool;
struct iobuf_cache {
	void **free;
	uint32_t count, keep, capacity; /* buffers */
	uint32_t size;                  /* bytes of one */
	uint64_t gets, main, retry;
	struct iobuf_pool *pool;
};

/* A thread's buffers. All functions on a channel: on its thread. */
struct iobuf_channel {
	struct iobuf_cache cache[IOBUF_CLASSES];
	struct iobuf_limit *limit;
	void *reserved[IOBUF_RESERVE_MAX];
	uint32_t reserved_count, reserve;
	struct iobuf_module *module;
	LIST_ENTRY(iobuf_channel) link;
};

struct iobuf_channel_opts {
	struct iobuf_module *module;
	struct iobuf_limit *limit; /* or NULL; counts the channel's buffers of both classes */
	struct {
		uint32_t floor; /* buffers that it owns: the most that one request needs. 0: the class is not used */
		uint32_t keep;  /* size of the cache, in buffers; the excess is returned when there are twice as many */
	} class[IOBUF_CLASSES];
	uint32_t reserve; /* small buffers for iobuf_take_reserved() alone, at most IOBUF_RESERVE_MAX */
};
/* Makes a channel of the calling thread. 0; or -ENOMEM, and error (ENV_ERROR_MAX bytes) says which limit is too small,
 * and ch is zeroed. Not on the I/O path. */
int iobuf_channel_create(struct iobuf_channel *ch, const struct iobuf_channel_opts *opts, char *error);
/* Ends a channel, to which all buffers must have been given back; does nothing to a zeroed one. */
void iobuf_channel_destroy(struct iobuf_channel *ch);

/* The class to use for so many bytes, which may be more than one buffer of that class holds. */
static inline enum iobuf_class iobuf_class_of(const struct iobuf_channel *ch, size_t bytes)
{
	return bytes <= ch->cache[IOBUF_SMALL].size ? IOBUF_SMALL : IOBUF_LARGE;
}

/* Fetches buffers from the main pool until the cache has n, and some more. False: it has fewer. By iobuf_has(). */
bool iobuf_refill(struct iobuf_channel *ch, enum iobuf_class class, uint32_t n);
/* Returns the buffers that exceed the cache's size to the main pool. By iobuf_put(). */
void iobuf_drain(struct iobuf_channel *ch, enum iobuf_class class);

/* Makes sure that the cache has n buffers (at most the floor), for iobuf_take(). False: there are not so many now. */
static inline bool iobuf_has(struct iobuf_channel *ch, enum iobuf_class class, uint32_t n)
{
	return likely(ch->cache[class].count >= n) || iobuf_refill(ch, class, n);
}

/* Takes a buffer: the one that was given back last. Only after iobuf_has(). */
static inline void *iobuf_take(struct iobuf_channel *ch, enum iobuf_class class)
{
	struct iobuf_cache *c = &ch->cache[class];

	/* This thread alone writes it; other threads read it for statistics. */
	__atomic_store_n(&c->gets, c->gets + 1, __ATOMIC_RELAXED);
	return c->free[--c->count];
}

/* Takes a buffer of the reserve, which must not be empty. */
static inline void *iobuf_take_reserved(struct iobuf_channel *ch)
{
	struct iobuf_cache *c = &ch->cache[IOBUF_SMALL];

	__atomic_store_n(&c->gets, c->gets + 1, __ATOMIC_RELAXED);
	return ch->reserved[--ch->reserved_count];
}

/* Gives a buffer back. Refills the reserve first. */
static inline void iobuf_put(struct iobuf_channel *ch, enum iobuf_class class, void *buffer)
{
	struct iobuf_cache *c = &ch->cache[class];

	if (unlikely(ch->reserved_count < ch->reserve && class == IOBUF_SMALL)) {
		ch->reserved[ch->reserved_count++] = buffer;
		return;
	}
	if (unlikely(c->count == c->capacity)) {
		iobuf_drain(ch, class);
	}
	c->free[c->count++] = buffer;
}

/* Counts a request that has to wait for a buffer of the class. */
static inline void iobuf_waits(struct iobuf_channel *ch, enum iobuf_class class)
{
	struct iobuf_cache *c = &ch->cache[class];

	__atomic_store_n(&c->retry, c->retry + 1, __ATOMIC_RELAXED);
}

/* Writes the pools and how many buffers are where, as text. Any thread. */
void iobuf_dump(FILE *f);

#endif

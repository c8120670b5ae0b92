/* SPDX-License-Identifier: BSD-3-Clause */
/* Data buffers: DMA-able memory of two sizes, aligned to 4 KiB, shared by all who move data. A user (the bdev layer, a
 * transport of the target) has a channel per thread, which keeps some buffers at hand; what it has not it fetches from
 * the main pool, and gives back there what it has too many of.
 *
 * A channel owns a few buffers for good (`floor`, `reserve`), so that whoever waits, waits for an I/O of its own
 * channel that will end: users on top of each other cannot starve each other, however small the pools are. */
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

/* Counts are the most there will be (on each NUMA node, with enable_numa): memory is taken as users come. */
#define IOBUF_COUNT_MAX       (UINT64_C(1) << 22)
#define IOBUF_SMALL_COUNT_MIN 64u
#define IOBUF_LARGE_COUNT_MIN 8u
#define IOBUF_SMALL_SIZE_MIN  4096u
#define IOBUF_LARGE_SIZE_MIN  8192u
#define IOBUF_SIZE_MAX        (UINT32_C(16) << 20)
struct iobuf_opts {
	uint64_t small_pool_count, large_pool_count;
	uint32_t small_bufsize, large_bufsize; /* bytes */
	bool enable_numa;                      /* pools of their own for each NUMA node */
};
void iobuf_get_opts(struct iobuf_opts *opts);
/* 0; -EINVAL (out of range) or -EBUSY (there are users), and error (ENV_ERROR_MAX bytes) says what is wrong. Control
 * thread. */
int iobuf_set_opts(const struct iobuf_opts *opts, char *error);

/* Gets of a class: served from what the channel had at hand; for which the main pool had to be asked; that found
 * nothing and waited. Buffers are counted, except `retry`, which counts requests. */
struct iobuf_stat {
	uint64_t cache, main, retry;
};

/* Bytes that a buffer has: the option, rounded up to IOBUF_ALIGN. Does not change while there are users. */
uint32_t iobuf_size(enum iobuf_class class);

struct iobuf_channel;
/* A user, for the statistics; a static variable of its. */
struct iobuf_module {
	const char *name;                        /* "bdev" */
	struct iobuf_stat closed[IOBUF_CLASSES]; /* of channels that are gone */
	LIST_HEAD(, iobuf_channel) channels;
	bool registered;
	LIST_ENTRY(iobuf_module) link;
};
/* Has the module appear in the statistics; again is no error. Control thread. */
void iobuf_module_register(struct iobuf_module *module);
/* fn(arg, module, stat[IOBUF_CLASSES]) for each module, by name. Any thread; fn must not call iobuf functions. */
void iobuf_for_each_module(void (*fn)(void *arg, const char *module, const struct iobuf_stat *stat), void *arg);

/* How many buffers several channels may have together. */
struct iobuf_limit {
	uint32_t left; /* atomic */
	uint32_t total;
	enum iobuf_class class;
	uint32_t nodes; /* bits: where memory was seen to */
};
/* Sees that there is memory for `count` buffers of the class, as far as the pool's count allows. 0, or -ENOMEM and
 * error. */
int iobuf_limit_create(struct iobuf_limit *limit, enum iobuf_class class, uint32_t count, char *error);
/* All channels under it must be gone. */
void iobuf_limit_destroy(struct iobuf_limit *limit);

struct iobuf_pool;
struct iobuf_cache {
	void **free;
	uint32_t count, keep, capacity; /* buffers */
	uint32_t size;                  /* bytes of one */
	uint64_t gets, main, retry;
	struct iobuf_pool *pool;
};

/* On one thread. */
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
	struct iobuf_limit *limit; /* or NULL; counts for all of the channel's buffers, of either class */
	struct {
		uint32_t floor; /* buffers it owns: the most that one request needs. 0: the class is not used */
		uint32_t keep;  /* buffers to keep at hand: given back from twice as many on */
	} class[IOBUF_CLASSES];
	uint32_t reserve; /* small buffers for iobuf_take_reserved() only, at most IOBUF_RESERVE_MAX */
};
/* For the calling thread. 0, or -ENOMEM and error (ENV_ERROR_MAX bytes) says what is too small. Not on the I/O path. */
int iobuf_channel_create(struct iobuf_channel *ch, const struct iobuf_channel_opts *opts, char *error);
/* All buffers must be back. */
void iobuf_channel_destroy(struct iobuf_channel *ch);

/* The class for so many bytes; they may be more than one buffer of it has. */
static inline enum iobuf_class iobuf_class_of(const struct iobuf_channel *ch, size_t bytes)
{
	return bytes <= ch->cache[IOBUF_SMALL].size ? IOBUF_SMALL : IOBUF_LARGE;
}

bool iobuf_refill(struct iobuf_channel *ch, enum iobuf_class class, uint32_t n);
void iobuf_drain(struct iobuf_channel *ch, enum iobuf_class class);

/* Sees to it that n buffers (at most the floor) are at hand; false: there are not so many now. */
static inline bool iobuf_has(struct iobuf_channel *ch, enum iobuf_class class, uint32_t n)
{
	return likely(ch->cache[class].count >= n) || iobuf_refill(ch, class, n);
}

/* The buffer that came back last; after iobuf_has(). */
static inline void *iobuf_take(struct iobuf_channel *ch, enum iobuf_class class)
{
	struct iobuf_cache *c = &ch->cache[class];

	/* A single writer; whoever reads the statistics may be another thread. */
	__atomic_store_n(&c->gets, c->gets + 1, __ATOMIC_RELAXED);
	return c->free[--c->count];
}

/* One of the reserve, which has some. */
static inline void *iobuf_take_reserved(struct iobuf_channel *ch)
{
	struct iobuf_cache *c = &ch->cache[IOBUF_SMALL];

	__atomic_store_n(&c->gets, c->gets + 1, __ATOMIC_RELAXED);
	return ch->reserved[--ch->reserved_count];
}

/* Gives back a buffer of the class; the reserve is filled first. */
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

/* A request has to wait for a buffer of the class: counts it. */
static inline void iobuf_waits(struct iobuf_channel *ch, enum iobuf_class class)
{
	struct iobuf_cache *c = &ch->cache[class];

	__atomic_store_n(&c->retry, c->retry + 1, __ATOMIC_RELAXED);
}

/* Pools and their buffers, as text. */
void iobuf_dump(FILE *f);

#endif

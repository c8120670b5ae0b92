/* SPDX-License-Identifier: BSD-3-Clause */
/* Data buffers. Not an rte_mempool: its objects start behind a header, and data for O_DIRECT files and for most drives must
 * be aligned to a page. So a DPDK ring of page-aligned buffers, and in each group a stack of some, whose top is the one
 * that was used last. */
#include <errno.h>
#include <rte_ring.h>
#include <stdlib.h>
#include <string.h>

#include "env_dpdk/env.h"
#include "nvmf_rdma/internal.h"

#define BUFFER_ALIGN 4096

int rdma_buffers_create(struct rdma_buffers *b, uint32_t count, uint32_t size)
{
	*b = (struct rdma_buffers){.count = count, .size = (size + BUFFER_ALIGN - 1) & ~(uint32_t)(BUFFER_ALIGN - 1)};
	ssize_t bytes = rte_ring_get_memsize(rte_align32pow2(count + 1));
	b->memory = env_dma_malloc((size_t)count * b->size, BUFFER_ALIGN, -1);
	b->ring = bytes > 0 ? aligned_alloc(RTE_CACHE_LINE_SIZE, RTE_CACHE_LINE_ROUNDUP((size_t)bytes)) : NULL;
	if (b->memory == NULL || b->ring == NULL ||
	    rte_ring_init(b->ring, "rdma_buffers", rte_align32pow2(count + 1), RING_F_MP_RTS_ENQ | RING_F_MC_RTS_DEQ) != 0) {
		rdma_buffers_destroy(b);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < count; i++) {
		rte_ring_enqueue(b->ring, b->memory + (size_t)i * b->size);
	}
	return 0;
}

void rdma_buffers_destroy(struct rdma_buffers *b)
{
	if (b->ring != NULL && b->memory != NULL && rte_ring_count(b->ring) != b->count) {
		log_error("%u of %u data buffers were not given back", b->count - rte_ring_count(b->ring), b->count);
	}
	env_dma_free(b->memory);
	free(b->ring);
	*b = (struct rdma_buffers){0};
}

int rdma_buffer_cache_create(struct rdma_buffer_cache *c, struct rdma_buffers *pool, uint32_t keep, uint32_t most_at_once)
{
	*c = (struct rdma_buffer_cache){.pool = pool, .keep = keep, .capacity = 2 * keep + 2 * most_at_once};
	c->free = calloc(c->capacity, sizeof(*c->free));
	if (c->free == NULL) {
		return -ENOMEM;
	}
	c->reserved_count = rte_ring_dequeue_burst(pool->ring, c->reserved, RDMA_RESERVED_BUFFERS, NULL);
	return c->reserved_count > 0 ? 0 : -ENOMEM;
}

void rdma_buffer_cache_destroy(struct rdma_buffer_cache *c)
{
	rte_ring_enqueue_bulk(c->pool->ring, c->free, c->count, NULL);
	rte_ring_enqueue_bulk(c->pool->ring, c->reserved, c->reserved_count, NULL);
	free(c->free);
}

/* Leaves n or more at hand, if there are so many. */
static bool refill(struct rdma_buffer_cache *c, uint32_t n)
{
	if (c->count < n) {
		/* as many as we like to keep, too, so that the next ones need not ask */
		c->count += rte_ring_dequeue_burst(c->pool->ring, &c->free[c->count], n - c->count + c->keep, NULL);
	}
	return c->count >= n;
}

uint16_t rdma_buffers_get(struct rdma_buffer_cache *c, struct iovec *iov, uint32_t length, bool reserved)
{
	uint32_t size = c->pool->size, left = length;
	uint16_t n = 0, count = 0;

	/* sizes are powers of two times 4096 more often than not, but a subtraction per buffer beats a division */
	for (left = length; left > size; left -= size) {
		count++;
	}
	count++;
	if (__builtin_expect(!refill(c, count), 0) && !(reserved && c->count + c->reserved_count >= count)) {
		return 0;
	}
	for (left = length; n < count; n++) {
		void *buf = c->count > 0 ? c->free[--c->count] : c->reserved[--c->reserved_count];

		iov[n] = (struct iovec){.iov_base = buf, .iov_len = left < size ? left : size};
		left -= (uint32_t)iov[n].iov_len;
	}
	return count;
}

void rdma_buffers_put(struct rdma_buffer_cache *c, const struct iovec *iov, uint16_t count)
{
	for (uint16_t i = 0; i < count; i++) {
		if (__builtin_expect(c->reserved_count < RDMA_RESERVED_BUFFERS, 0)) {
			c->reserved[c->reserved_count++] = iov[i].iov_base;
		} else {
			c->free[c->count++] = iov[i].iov_base;
		}
	}
	if (__builtin_expect(c->count > 2 * c->keep, 0)) {
		/* the lowest are the coldest, but moving the rest would cost more than a cold buffer does */
		uint32_t n = c->count - c->keep;

		rte_ring_enqueue_bulk(c->pool->ring, &c->free[c->keep], n, NULL);
		c->count = c->keep;
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffers of io_unit_size bytes. One lies in a small buffer of the shared pools if it fits, in a large one otherwise,
 * so its length tells which. */
#include "nvmf/transport_buffers.h"

#include <errno.h>
#include <stdio.h>

#include "env_dpdk/env.h"
#include "usdt/usdt.h"
#include "util/compiler.h"
#include "util/log.h"

/* Buffers of a command, and a transport's work requests for it, are counted in 16 bits. */
#define MAX_BUFFERS_PER_REQUEST 40960u

int nvmf_buffer_pool_create(struct nvmf_buffer_pool *pool, struct iobuf_module *module,
			    const struct nvmf_transport_opts *opts, char *error)
{
	iobuf_module_register(module);
	*pool = (struct nvmf_buffer_pool){.size = (opts->io_unit_size + IOBUF_ALIGN - 1) & ~(IOBUF_ALIGN - 1),
					  .module = module};
	pool->class = pool->size <= iobuf_size(IOBUF_SMALL) ? IOBUF_SMALL : IOBUF_LARGE;
	pool->max_per_request = (nvmf_max_transfer(opts->max_io_size) + pool->size - 1) / pool->size;
	if (pool->max_per_request > MAX_BUFFERS_PER_REQUEST) {
		snprintf(error, ENV_ERROR_MAX, "max_io_size, %u, with metadata is %u pieces of that: allowed are %u",
			 opts->max_io_size, pool->max_per_request, MAX_BUFFERS_PER_REQUEST);
		return -EINVAL;
	}
	return iobuf_limit_create(&pool->limit, pool->class, opts->num_shared_buffers, error);
}

void nvmf_buffer_pool_destroy(struct nvmf_buffer_pool *pool)
{
	iobuf_limit_destroy(&pool->limit);
}

/* For what a new group owns. The option keeps its value: it is a configuration's, which may be used on more cores. */
static void pool_raise_limit(struct nvmf_buffer_pool *pool, const struct nvmf_transport_opts *opts, uint32_t owned)
{
	if (pool->limit.total == opts->num_shared_buffers && pool->owned + owned > pool->limit.total) {
		log_notice("%s: num_shared_buffers is %u; it is raised to what the poll groups need: each owns %u "
			   "buffers, for one command of max_io_size and for commands that must not wait",
			   pool->module->name, opts->num_shared_buffers, owned);
	}
	pool->owned += owned;
	iobuf_limit_raise(&pool->limit, pool->owned);
}

int nvmf_buffer_group_create(struct nvmf_buffer_group *group, struct nvmf_buffer_pool *pool,
			     const struct nvmf_transport_opts *opts, char *error)
{
	struct iobuf_channel_opts o = {.module = pool->module, .limit = &pool->limit, .reserve = NVMF_RESERVED_BUFFERS};

	o.class[IOBUF_SMALL].keep = opts->iobuf_small_cache_size;
	o.class[IOBUF_LARGE].keep = opts->iobuf_large_cache_size;
	/* one command's; and the last buffer may be a small one */
	o.class[IOBUF_SMALL].floor = 1;
	o.class[pool->class].floor = pool->max_per_request;
	group->size = pool->size;
	group->waits = 0;
	STAILQ_INIT(&group->waiting);
	uint32_t owned = o.class[pool->class].floor + (pool->class != IOBUF_SMALL ? 1 : 0) + o.reserve;

	pool_raise_limit(pool, opts, owned);
	int rc = iobuf_channel_create(&group->channel, &o, error);
	if (rc != 0) {
		pool->owned -= owned;
	}
	return rc;
}

void nvmf_buffer_group_destroy(struct nvmf_buffer_group *group)
{
	iobuf_channel_destroy(&group->channel);
}

/* Too few buffers for all. A command of the reserved lane that needs a single small one has it from those set aside. */
static NOINLINE uint16_t take_reserved_buffer(struct iobuf_channel *ch, struct nvmf_request *req, bool one_small)
{
	if (!req->reserved_lane || !one_small || ch->reserved_count == 0) {
		return 0;
	}
	req->iov[0] = (struct iovec){.iov_base = iobuf_take_reserved(ch), .iov_len = req->length};
	return req->iovcnt = 1;
}

static ALWAYS_INLINE uint16_t take_buffers(struct nvmf_buffer_group *group, struct nvmf_request *req)
{
	struct iobuf_channel *ch = &group->channel;
	uint32_t size = group->size, left = req->length, whole = 0;
	enum iobuf_class unit = iobuf_class_of(ch, size), tail;
	struct iovec *iov = req->iov;

	/* sizes are powers of two times 4096 more often than not, but a subtraction per buffer beats a division */
	for (; left > size; left -= size) {
		whole++;
	}
	tail = iobuf_class_of(ch, left);
	bool enough =
		unit == tail ? iobuf_has(ch, unit, whole + 1) : iobuf_has(ch, unit, whole) && iobuf_has(ch, tail, 1);
	if (unlikely(!enough)) {
		return take_reserved_buffer(ch, req, whole == 0 && tail == IOBUF_SMALL);
	}
	for (uint32_t i = 0; i < whole; i++) {
		iov[i] = (struct iovec){.iov_base = iobuf_take(ch, unit), .iov_len = size};
	}
	iov[whole] = (struct iovec){.iov_base = iobuf_take(ch, tail), .iov_len = left};
	return req->iovcnt = (uint16_t)(whole + 1);
}

uint16_t nvmf_buffers_get(struct nvmf_buffer_group *group, struct nvmf_request *req)
{
	if (unlikely(nvmf_buffers_are_awaited(group)) && !req->reserved_lane) {
		return 0;
	}
	return take_buffers(group, req);
}

void nvmf_buffers_wait(struct nvmf_buffer_group *group, struct nvmf_request *req)
{
	struct iobuf_channel *ch = &group->channel;

	group->waits++;
	iobuf_waits(ch, iobuf_class_of(ch, req->length < group->size ? req->length : group->size));
	USDT(buffer_wait, ch->module->name, req->qpair->hostnqn, req->length);
	STAILQ_INSERT_TAIL(&group->waiting, req, link);
}

struct nvmf_request *nvmf_buffers_next(struct nvmf_buffer_group *group, uint16_t *count)
{
	struct nvmf_request *req = STAILQ_FIRST(&group->waiting);

	if (req == NULL || (*count = take_buffers(group, req)) == 0) {
		return NULL;
	}
	STAILQ_REMOVE_HEAD(&group->waiting, link);
	return req;
}

void nvmf_buffers_stop_waiting(struct nvmf_buffer_group *group, struct nvmf_request *req)
{
	STAILQ_REMOVE(&group->waiting, req, nvmf_request, link);
}

void nvmf_buffers_put(struct nvmf_buffer_group *group, const struct iovec *iov, uint16_t count)
{
	for (uint16_t i = 0; i < count; i++) {
		iobuf_put(&group->channel, iobuf_class_of(&group->channel, iov[i].iov_len), iov[i].iov_base);
	}
}

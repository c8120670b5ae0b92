/* SPDX-License-Identifier: BSD-3-Clause */
/* Data buffers of requests: pieces of io_unit_size, of the buffers that all share (env_dpdk/iobuf.h). A piece lies in a
 * small one if it fits, in a large one otherwise, so its length tells which. */
#include <errno.h>
#include <stdio.h>

#include "env_dpdk/env.h"
#include "nvmf_rdma/internal.h"

static struct iobuf_module buffers_module = {.name = "nvmf_RDMA"};

/* Pieces, and work requests, of a request are counted in 16 bits. */
#define PIECES_MOST 32768u

int nvmf_rdma_buffers_create(struct nvmf_rdma_buffers *b, const struct nvmf_transport_opts *opts, char *error)
{
	iobuf_module_register(&buffers_module);
	*b = (struct nvmf_rdma_buffers){.size = (opts->io_unit_size + IOBUF_ALIGN - 1) & ~(IOBUF_ALIGN - 1)};
	b->class = b->size <= iobuf_size(IOBUF_SMALL) ? IOBUF_SMALL : IOBUF_LARGE;
	b->most = (opts->max_io_size + b->size - 1) / b->size;
	if (b->most > PIECES_MOST) {
		snprintf(error, ENV_ERROR_MAX, "max_io_size, %u, is %u pieces of that: allowed are %u",
			 opts->max_io_size, b->most, PIECES_MOST);
		return -EINVAL;
	}
	return iobuf_limit_create(&b->limit, b->class, opts->num_shared_buffers, error);
}

void nvmf_rdma_buffers_destroy(struct nvmf_rdma_buffers *b)
{
	iobuf_limit_destroy(&b->limit);
}

int nvmf_rdma_buffer_channel_create(struct iobuf_channel *ch, struct nvmf_rdma_buffers *b,
				    const struct nvmf_transport_opts *opts, char *error)
{
	struct iobuf_channel_opts o = {
		.module = &buffers_module, .limit = &b->limit, .reserve = NVMF_RDMA_RESERVED_BUFFERS};

	o.class[IOBUF_SMALL].keep = opts->iobuf_small_cache_size;
	o.class[IOBUF_LARGE].keep = opts->iobuf_large_cache_size;
	/* one command's; and the last piece may be a small one */
	o.class[IOBUF_SMALL].floor = 1;
	o.class[b->class].floor = b->most;
	return iobuf_channel_create(ch, &o, error);
}

uint16_t nvmf_rdma_buffers_get(struct iobuf_channel *ch, uint32_t size, struct iovec *iov, uint32_t length,
			       bool reserved)
{
	uint32_t left = length, whole = 0;
	enum iobuf_class unit = iobuf_class_of(ch, size), tail;

	/* sizes are powers of two times 4096 more often than not, but a subtraction per buffer beats a division */
	for (; left > size; left -= size) {
		whole++;
	}
	tail = iobuf_class_of(ch, left);
	bool enough =
		unit == tail ? iobuf_has(ch, unit, whole + 1) : iobuf_has(ch, unit, whole) && iobuf_has(ch, tail, 1);
	if (unlikely(!enough)) {
		if (!reserved || whole != 0 || tail != IOBUF_SMALL || ch->reserved_count == 0) {
			return 0;
		}
		iov[0] = (struct iovec){.iov_base = iobuf_take_reserved(ch), .iov_len = left};
		return 1;
	}
	for (uint32_t i = 0; i < whole; i++) {
		iov[i] = (struct iovec){.iov_base = iobuf_take(ch, unit), .iov_len = size};
	}
	iov[whole] = (struct iovec){.iov_base = iobuf_take(ch, tail), .iov_len = left};
	return (uint16_t)(whole + 1);
}

void nvmf_rdma_buffers_put(struct iobuf_channel *ch, const struct iovec *iov, uint16_t count)
{
	for (uint16_t i = 0; i < count; i++) {
		iobuf_put(ch, iobuf_class_of(ch, iov[i].iov_len), iov[i].iov_base);
	}
}

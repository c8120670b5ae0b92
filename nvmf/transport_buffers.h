/* SPDX-License-Identifier: BSD-3-Clause */
/* Data buffers of a transport's commands, and the commands that wait for one: for transports whose data go through the
 * buffers that all rooms share (env_dpdk/iobuf.h). The sizes and numbers are the transport's options io_unit_size,
 * max_io_size, num_shared_buffers, iobuf_small_cache_size and iobuf_large_cache_size.
 *
 *     transport's create        nvmf_buffer_pool_create()
 *     group_create              nvmf_buffer_group_create(); tgroup->buffers points to it, for statistics and debuggers
 *     NVMF_NEXT_BUFFER          nvmf_buffers_get(); if it gives none, nvmf_buffers_wait()
 *     every poll                nvmf_buffers_next() while commands wait
 *     the response is out       nvmf_buffers_put()
 *
 * Commands wait in the order of their arrival. Those of the reserved lane (nvmf_request.reserved_lane) pass them and
 * have buffers set aside, so that a host whose data fill all buffers cannot stop Keep Alive and Abort. */
#ifndef NVMF_TRANSPORT_BUFFERS_H
#define NVMF_TRANSPORT_BUFFERS_H

#include "env_dpdk/iobuf.h"
#include "nvmf/transport.h"

/* Buffers that each poll group sets aside for the reserved lane. */
#define NVMF_RESERVED_BUFFERS 16

/* A transport's. Control thread. */
struct nvmf_buffer_pool {
	uint32_t size;               /* bytes of one buffer: io_unit_size, rounded up to whole pages of 4096 bytes */
	uint32_t max_per_request;    /* buffers of one command: entries of nvmf_request.iov */
	enum iobuf_class class;      /* of a whole buffer; the last one of a command may be a small one */
	struct iobuf_limit limit;    /* num_shared_buffers, or as many as the groups own together if that is more */
	uint32_t owned;              /* buffers that the groups own together */
	struct iobuf_module *module; /* whose name statistics and probes show */
};

/* A poll group's share. Group's thread. */
struct nvmf_buffer_group {
	struct iobuf_channel channel;
	uint32_t size;                     /* as the pool's */
	struct nvmf_request_queue waiting; /* commands without a buffer, the first first */
	uint64_t waits;                    /* commands that had to wait, ever */
};

/* Makes a transport's pool. module: a static object, named "nvmf_" and the transport's name. 0, or a negative errno and
 * error (ENV_ERROR_MAX bytes); nvmf_buffer_pool_destroy() may follow in both cases. Control thread. */
int nvmf_buffer_pool_create(struct nvmf_buffer_pool *pool, struct iobuf_module *module,
			    const struct nvmf_transport_opts *opts, char *error);
/* All its groups are destroyed. Also for a pool of zeroes. Control thread. */
void nvmf_buffer_pool_destroy(struct nvmf_buffer_pool *pool);

/* Makes the calling thread's share, which owns as many buffers as one command can need, and those of the reserved lane.
 * Where num_shared_buffers is too small for the groups' own, it is raised: clients give numbers that fit other targets
 * or fewer cores. 0, or -ENOMEM and error (ENV_ERROR_MAX bytes). The control thread waits meanwhile. */
int nvmf_buffer_group_create(struct nvmf_buffer_group *group, struct nvmf_buffer_pool *pool,
			     const struct nvmf_transport_opts *opts, char *error);
/* No command waits, and all buffers are back. Group's thread. */
void nvmf_buffer_group_destroy(struct nvmf_buffer_group *group);

/* Takes buffers for req->length bytes into req->iov and sets req->iovcnt: all of them or none. Returns how many, which
 * the transport keeps for nvmf_buffers_put(); 0: none, because there are too few or because others wait already. Then
 * nvmf_buffers_wait() follows. Group's thread. */
uint16_t nvmf_buffers_get(struct nvmf_buffer_group *group, struct nvmf_request *req);
/* Puts a command that got no buffer behind those that wait already. Group's thread. */
void nvmf_buffers_wait(struct nvmf_buffer_group *group, struct nvmf_request *req);
/* Takes buffers for the command that has waited for longest, as nvmf_buffers_get() does, and returns it; NULL: no
 * command waits, or there are too few buffers for it. Group's thread. */
struct nvmf_request *nvmf_buffers_next(struct nvmf_buffer_group *group, uint16_t *count);
/* A command that waits is aborted, or its connection ends: it waits no more. Group's thread. */
void nvmf_buffers_stop_waiting(struct nvmf_buffer_group *group, struct nvmf_request *req);
/* Gives back count buffers, as nvmf_buffers_get() put them into iov. Group's thread. */
void nvmf_buffers_put(struct nvmf_buffer_group *group, const struct iovec *iov, uint16_t count);

/* Whether commands wait: the transport's poller tries nvmf_buffers_next(), and keeps the reactor awake, since it may be
 * another group that gives buffers back. Group's thread. */
static inline bool nvmf_buffers_are_awaited(const struct nvmf_buffer_group *group)
{
	return !STAILQ_EMPTY(&group->waiting);
}

#endif

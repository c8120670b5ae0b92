/* SPDX-License-Identifier: BSD-3-Clause */
/* The RDMA transport of the NVMe host (NVMe RDMA Transport Specification 1.0b): the controller, and the table of
 * operations. Control thread. */
#include "nvme/rdma/rdma.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define MAX_TRANSFER (UINT32_C(1) << 20)

static struct nvme_ctrlr *nvme_rdma_ctrlr_alloc(const struct nvme_trid *trid, char error[NVME_ERROR_MAX])
{
	struct nvme_rdma_ctrlr *c = calloc(1, sizeof(*c));
	int rc;

	if (c == NULL) {
		snprintf(error, NVME_ERROR_MAX, "out of memory");
		return NULL;
	}
	c->channel = rdma_create_event_channel();
	if (c->channel == NULL || fcntl(c->channel->fd, F_SETFL, O_NONBLOCK) != 0) {
		rc = errno;
		snprintf(error, NVME_ERROR_MAX,
			 "no rdma_cm event channel: %s (is there an RDMA device? `softverbs` provides one)",
			 strerror(rc));
		goto fail;
	}
	c->cm_source = fd_source_add(c->channel->fd, EPOLLIN, nvme_rdma_cm_events_read, c, "nvme_rdma_cm");
	if (c->cm_source == NULL) {
		rc = errno;
		snprintf(error, NVME_ERROR_MAX, "the rdma_cm event channel cannot be watched: %s", strerror(rc));
		goto fail;
	}
	return &c->base;
fail:
	if (c->channel != NULL) {
		rdma_destroy_event_channel(c->channel);
	}
	free(c);
	errno = rc;
	return NULL;
}

static void nvme_rdma_ctrlr_free(struct nvme_ctrlr *base)
{
	struct nvme_rdma_ctrlr *c = nvme_rdma_ctrlr_of(base);

	fd_source_remove(&c->cm_source);
	rdma_destroy_event_channel(c->channel);
	free(c);
}

static void nvme_rdma_connect(struct nvme_ctrlr *ctrlr)
{
	ctrlr->admin = nvme_rdma_qpair_alloc(ctrlr, 0, ctrlr->opts.admin_queue_entries, NULL);
	if (ctrlr->admin == NULL) {
		nvme_ctrlr_connected(ctrlr, -ENOMEM, "out of memory");
		return;
	}
	nvme_rdma_qpair_connect(ctrlr->admin);
}

static void nvme_rdma_disconnect(struct nvme_ctrlr *ctrlr)
{
	if (ctrlr->admin != NULL) {
		nvme_rdma_qpair_free(ctrlr->admin);
	}
}

static uint32_t nvme_rdma_max_transfer(struct nvme_ctrlr *ctrlr)
{
	return MAX_TRANSFER;
}

static const struct nvme_transport_ops nvme_rdma_ops = {
	.transport = {.trtype = NVME_TRTYPE_RDMA,
		      .name = "RDMA",
		      .fabrics = true,
		      .keys = NVME_TRID_ADRFAM | NVME_TRID_TRSVCID | NVME_TRID_SUBNQN | NVME_TRID_HOST_TRADDR,
		      .adrfams = 1u << NVMF_ADDR_FAMILY_IP4 | 1u << NVMF_ADDR_FAMILY_IP6,
		      .default_trsvcid = NVME_RDMA_DEFAULT_TRSVCID},
	.request_size = 0, /* a command's data of this transport is in its slot */
	.ctrlr_alloc = nvme_rdma_ctrlr_alloc,
	.ctrlr_free = nvme_rdma_ctrlr_free,
	.connect = nvme_rdma_connect,
	.disconnect = nvme_rdma_disconnect,
	.max_transfer = nvme_rdma_max_transfer,
	.max_segments = nvme_rdma_max_descriptors,
	.qpair_alloc = nvme_rdma_qpair_alloc,
	.qpair_connect = nvme_rdma_qpair_connect,
	.qpair_stop = nvme_rdma_qpair_stop,
	.qpair_free = nvme_rdma_qpair_free,
	.shut = nvme_rdma_shut,
	.submit = nvme_rdma_submit,
	.flush = nvme_rdma_flush,
	.poll = nvme_rdma_poll,
	.fd = nvme_rdma_fd,
	.arm = nvme_rdma_arm,
};

__attribute__((constructor)) static void nvme_rdma_register(void)
{
	nvme_transport_register(&nvme_rdma_ops);
}

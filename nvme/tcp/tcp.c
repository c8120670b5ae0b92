/* SPDX-License-Identifier: BSD-3-Clause */
/* The TCP transport of the NVMe host: the controller, and the table of operations. Control thread. */
#include "nvme/tcp/tcp.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_TRANSFER (UINT32_C(1) << 20)

static struct nvme_ctrlr *nvme_tcp_ctrlr_alloc(const struct nvme_trid *trid, char error[NVME_ERROR_MAX])
{
	struct nvme_tcp_ctrlr *c = calloc(1, sizeof(*c));

	if (c == NULL) {
		snprintf(error, NVME_ERROR_MAX, "out of memory");
		return NULL;
	}
	c->identity = TLS_IDENTITY_VERSIONS - 1;
	return &c->base;
}

static void nvme_tcp_ctrlr_free(struct nvme_ctrlr *ctrlr)
{
	free(container_of(ctrlr, struct nvme_tcp_ctrlr, base));
}

static void nvme_tcp_connect(struct nvme_ctrlr *ctrlr)
{
	ctrlr->admin = nvme_tcp_qpair_alloc(ctrlr, 0, ctrlr->opts.admin_queue_entries, NULL);
	if (ctrlr->admin == NULL) {
		nvme_ctrlr_connected(ctrlr, -ENOMEM, "out of memory");
		return;
	}
	nvme_tcp_qpair_connect(ctrlr->admin);
}

static void nvme_tcp_disconnect(struct nvme_ctrlr *ctrlr)
{
	if (ctrlr->admin != NULL) {
		nvme_tcp_qpair_free(ctrlr->admin);
	}
}

static uint32_t nvme_tcp_max_transfer(struct nvme_ctrlr *ctrlr)
{
	return MAX_TRANSFER;
}

static uint16_t nvme_tcp_max_segments(const struct nvme_ctrlr *ctrlr)
{
	return NVME_TCP_SEGMENTS;
}

static const struct nvme_transport_ops nvme_tcp_ops = {
	.transport = {.trtype = NVME_TRTYPE_TCP,
		      .name = "TCP",
		      .fabrics = true,
		      .keys = NVME_TRID_ADRFAM | NVME_TRID_TRSVCID | NVME_TRID_SUBNQN | NVME_TRID_HOST_TRADDR,
		      .adrfams = 1u << NVMF_ADDR_FAMILY_IP4 | 1u << NVMF_ADDR_FAMILY_IP6,
		      .default_trsvcid = NVME_TCP_DEFAULT_TRSVCID,
		      .tls = true},
	.request_size = 0, /* a command's data of this transport is in its slot */
	.ctrlr_alloc = nvme_tcp_ctrlr_alloc,
	.ctrlr_free = nvme_tcp_ctrlr_free,
	.connect = nvme_tcp_connect,
	.disconnect = nvme_tcp_disconnect,
	.max_transfer = nvme_tcp_max_transfer,
	.max_segments = nvme_tcp_max_segments,
	.qpair_alloc = nvme_tcp_qpair_alloc,
	.qpair_connect = nvme_tcp_qpair_connect,
	.qpair_stop = nvme_tcp_qpair_stop,
	.qpair_free = nvme_tcp_qpair_free,
	.shut = nvme_tcp_shut,
	.submit = nvme_tcp_submit,
	.flush = nvme_tcp_flush,
	.poll = nvme_tcp_poll,
	.fd = nvme_tcp_fd,
	.arm = nvme_tcp_arm,
};

__attribute__((constructor)) static void nvme_tcp_register(void)
{
	nvme_transport_register(&nvme_tcp_ops);
}

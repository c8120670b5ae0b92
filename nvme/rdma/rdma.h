/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of the RDMA transport of the NVMe host (NVMe RDMA Transport Specification 1.0b).
 *
 * rdma.c: the controller and the transport's table. connect.c: connections. qpair.c: memory, verbs objects and the end
 * of a queue pair. request.c: commands, their data and their sends. completion.c: responses.
 *
 * The control thread makes all connections, from the events of one rdma_cm channel per controller. Each queue pair has
 * its own completion queue: once a queue pair has been handed to its user, only that user's thread touches it. A
 * command is complete when its response has arrived and the send of its capsule has completed: until then the device
 * may still read the capsule. */
#ifndef NVME_RDMA_H
#define NVME_RDMA_H

#include <rdma/rdma_cma.h>

#include "nvme/transport.h"
#include "verbs/pd.h"

#define NVME_RDMA_DEFAULT_TRSVCID "4420"
#define NVME_RDMA_DESCRIPTORS_MAX 16 /* SGL descriptors of one command; each describes contiguous memory */
#define NVME_RDMA_WR_RECV         (UINT64_C(1) << 32) /* in the wr_id of receives; below it the index of the buffer */

/* The send of one slot's command, and which of the two completions that it waits for have come. */
struct nvme_rdma_slot {
	struct ibv_send_wr wr;
	struct ibv_sge sge[1 + NVME_RDMA_DESCRIPTORS_MAX];
	bool send_done, response_received;
	struct nvme_cqe cqe;
};

/* The progress of a connection. The control thread makes every step (cm_event_handle()), and the queue pair's user may
 * set DOWN too. */
enum nvme_rdma_link {
	NVME_RDMA_LINK_RESOLVING,
	NVME_RDMA_LINK_ROUTING,
	NVME_RDMA_LINK_CONNECTING,
	NVME_RDMA_LINK_UP,
	NVME_RDMA_LINK_DOWN
};

struct nvme_rdma_qpair {
	struct nvme_qpair base;
	struct rdma_cm_id *id;
	struct verbs_pd *pd;
	struct ibv_cq *cq;
	struct ibv_comp_channel *comp;
	enum nvme_rdma_link link;     /* atomic: both threads store DOWN, and the user reads it */
	struct nvme_rdma_slot *slots; /* by slot of the command id */
	uint8_t *capsules;            /* likewise; DMA memory */
	uint32_t capsule_size;
	uint32_t capsule_lkey;
	struct nvme_cqe *responses; /* one per receive; DMA memory */
	uint32_t response_lkey;
	struct ibv_recv_wr *recvs;
	struct ibv_sge *recv_sges;
	struct ibv_send_wr *send_first, *send_last; /* to be posted at the next flush */
	struct ibv_recv_wr *recv_first, *recv_last;
	uint32_t region_hint;
	uint32_t send_sges;      /* that the queue pair has for a capsule and the data behind it */
	uint32_t in_capsule_max; /* bytes of data that may follow a command in its capsule */
	uint32_t max_descriptors;
	bool connect_reported; /* to the room: how connecting ended; control thread */
};

struct nvme_rdma_ctrlr {
	struct nvme_ctrlr base;
	struct rdma_event_channel *channel;
	struct fd_source *cm_source;
};

static inline struct nvme_rdma_qpair *nvme_rdma_qpair_of(const struct nvme_qpair *q)
{
	return container_of(q, struct nvme_rdma_qpair, base);
}

static inline struct nvme_rdma_ctrlr *nvme_rdma_ctrlr_of(const struct nvme_ctrlr *c)
{
	return container_of(c, struct nvme_rdma_ctrlr, base);
}

/* The number of receives: as many as the submission queue has entries, the one that stays free included. */
static inline uint32_t nvme_rdma_num_receives(const struct nvme_rdma_qpair *q)
{
	return q->base.entries + 1u;
}

/* Adds a receive to those that the next flush posts. The using thread, or the control thread before the hand-over. */
static inline void nvme_rdma_queue_receive(struct nvme_rdma_qpair *q, uint32_t index)
{
	struct ibv_recv_wr *wr = &q->recvs[index];

	wr->next = NULL;
	if (q->recv_last != NULL) {
		q->recv_last->next = wr;
	} else {
		q->recv_first = wr;
	}
	q->recv_last = wr;
}

/* request.c: the operations of struct nvme_transport_ops of these names (nvme/transport.h). The using thread. */
int nvme_rdma_submit(struct nvme_qpair *qpair, struct nvme_request *req);
/* See there. */
void nvme_rdma_flush(struct nvme_qpair *qpair);

/* completion.c: the operations of these names. The using thread. */
int nvme_rdma_poll(struct nvme_qpair *qpair, uint32_t max);
/* See there. */
int nvme_rdma_fd(const struct nvme_qpair *qpair);
/* See there. */
bool nvme_rdma_arm(struct nvme_qpair *qpair);

/* qpair.c: the operation of this name. Control thread, as all of qpair.c, but for nvme_rdma_shut(). */
struct nvme_qpair *nvme_rdma_qpair_alloc(struct nvme_ctrlr *ctrlr, uint16_t id, uint16_t entries,
					 const struct nvme_qpair_opts *opts);
/* Makes the verbs objects and buffers of a queue pair whose device is known: q->id has its route. 0 or a negative
 * errno; nvme_rdma_qpair_free() frees what has been made. */
int nvme_rdma_make_verbs(struct nvme_rdma_qpair *q, const struct ibv_device_attr *attr);
/* The operation `shut`: puts the queue pair into the error state. The using thread, or the control thread. */
void nvme_rdma_shut(struct nvme_qpair *qpair);
/* Disconnects, and shuts the queue pair. Its user may be posting meanwhile. */
void nvme_rdma_link_cut(struct nvme_rdma_qpair *q);
/* The operation of this name. */
void nvme_rdma_qpair_stop(struct nvme_qpair *qpair, void (*done)(void *arg), void *arg);
/* The operation of this name. */
void nvme_rdma_qpair_free(struct nvme_qpair *qpair);
/* The operation `max_segments`: the number of SGL descriptors that one command can have. */
uint16_t nvme_rdma_max_descriptors(const struct nvme_ctrlr *ctrlr);

/* connect.c: resolves the address in ctrlr->trid and connects the queue pair, also the admin queue. Control thread. */
void nvme_rdma_qpair_connect(struct nvme_qpair *qpair);
/* Handles the events of a controller's rdma_cm channel. arg: struct nvme_rdma_ctrlr. Control thread. */
void nvme_rdma_cm_events_read(void *arg, uint32_t events);

#endif

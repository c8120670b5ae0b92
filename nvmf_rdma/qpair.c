/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections from request to end.
 *
 *     control thread                                      poll group's thread
 *     nvmf_rdma_qpair_accept(): checks, chooses a group
 *                                                         nvmf_rdma_op_qpair_add(): posts setup_msg
 *     setup_connection(): queue pair, receives, accept
 *     nvmf_rdma_qpair_broken(): posts leave_msg
 *                                                         leave_target(): nvmf_qpair_disconnect()
 *                                                         nvmf_rdma_op_qpair_close(): SETUP or LIVE to
 *                                                             CLOSING; posts close_msg
 *     close_qpair(): disconnects, moves the queue pair
 *         to the error state; posts error_msg
 *                                                         qpair_in_error_state(): its work flushes; CLOSING
 *                                                             to CLOSED when none is left; posts unmake_msg
 *     nvmf_rdma_qpair_reached_last_wqe(), or
 *         last_wqe_timer_expired(): posts last_wqe_msg
 *                                                         qpair_has_reached_last_wqe(): with a shared receive
 *                                                             queue; CLOSING to CLOSED when none is left
 *     flush_timer_expired(): the device did not flush;
 *         destroys the queue pair
 *                                                         abandon_owed(), reclaim_owed(): what the device
 *                                                             still had is taken back
 *     destroy_connection(): frees all that was made;
 *         posts unmade_msg
 *                                                         finish_close(): nvmf_qpair_closed(); no message is
 *                                                             under way any more, so the memory can be freed
 */
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "env_dpdk/env.h"
#include "nvmf_rdma/internal.h"
#include "util/state_machine.h"

static struct thread *qpair_thread(const struct nvmf_rdma_qpair *qp)
{
	return nvmf_rdma_group_thread(nvmf_rdma_group_of(qp->base.tgroup));
}

static struct nvmf_rdma_transport *qpair_transport(const struct nvmf_rdma_qpair *qp)
{
	return nvmf_rdma_transport_of(qp->base.transport);
}

const char *const nvmf_rdma_qpair_state_names[NVMF_RDMA_QPAIR_STATES] = {
	[NVMF_RDMA_QPAIR_SETUP] = "SETUP",
	[NVMF_RDMA_QPAIR_LIVE] = "LIVE",
	[NVMF_RDMA_QPAIR_CLOSING] = "CLOSING",
	[NVMF_RDMA_QPAIR_CLOSED] = "CLOSED",
};

static const char *connection_state_name(unsigned n)
{
	return n < NVMF_RDMA_QPAIR_STATES ? nvmf_rdma_qpair_state_names[n] : "unknown";
}

static const uint32_t next_states[] = {
	[NVMF_RDMA_QPAIR_SETUP] = 1u << NVMF_RDMA_QPAIR_LIVE | 1u << NVMF_RDMA_QPAIR_CLOSING,
	[NVMF_RDMA_QPAIR_LIVE] = 1u << NVMF_RDMA_QPAIR_CLOSING,
	[NVMF_RDMA_QPAIR_CLOSING] = 1u << NVMF_RDMA_QPAIR_CLOSED,
	[NVMF_RDMA_QPAIR_CLOSED] = 0,
};
STATE_MACHINE(qpair_machine, "nvmf_rdma connection", connection_state_name, next_states)

static void qpair_set_state(struct nvmf_rdma_qpair *qp, enum nvmf_rdma_qpair_state new)
{
	state_machine_check(&qpair_machine, qp->state, new, qp->base.hostnqn);
	qp->state = new;
}

/* The trace owner. */

static void write_trace_owner(const struct nvmf_rdma_qpair *qp, char *text, size_t size)
{
	snprintf(text, size, "%.60s %.40s qid %u at %.40s", qp->base.hostnqn[0] ? qp->base.hostnqn : "(connecting)",
		 qp->base.peer_address.traddr, qp->base.qid, qp->base.listen_address.traddr);
}

static void update_trace_owner(struct thread_msg *msg)
{
	struct nvmf_rdma_qpair *qp = container_of(msg, struct nvmf_rdma_qpair, describe_msg);
	char text[160];

	write_trace_owner(qp, text, sizeof(text));
	trace_owner_update(qp->owner, text);
}

void nvmf_rdma_qpair_describe(struct nvmf_rdma_qpair *qp)
{
	qp->described = true;
	thread_post(thread_control(), &qp->describe_msg, update_trace_owner);
}

/* The end. */

static void leave_target(struct thread_msg *msg)
{
	struct nvmf_rdma_qpair *qp = container_of(msg, struct nvmf_rdma_qpair, leave_msg);

	if (qp->state == NVMF_RDMA_QPAIR_LIVE) {
		/* A work request that failed is the cause of the end. Its completion is older than the event that told
		 * of the end, but may not have been polled yet; its reason is the one to be told. */
		nvmf_rdma_poller_drain(qp->poller);
	}
	if (qp->state != NVMF_RDMA_QPAIR_CLOSED) {
		nvmf_qpair_disconnect(&qp->base, qp->broken_why != NULL ? qp->broken_why : "the connection ended");
	}
}

void nvmf_rdma_qpair_broken(struct nvmf_rdma_qpair *qp, const char *why)
{
	qp->broken = true;
	if (!qp->leaving && why != NULL) {
		qp->broken_why = why;
	}
	if (!qp->leaving && qp->base.tgroup != NULL) {
		qp->leaving = true;
		thread_post(qpair_thread(qp), &qp->leave_msg, leave_target);
	}
}

/* ---- Shared receives that the queue pair has taken. A device may take receives of the shared queue in advance, and
 * gives them back in the error state, as flushed completions. The event LAST_WQE_REACHED follows the last of them. Who
 * destroys the queue pair before has lost them: the device forgets their completions. ---- */

static void qpair_has_reached_last_wqe(struct thread_msg *msg)
{
	struct nvmf_rdma_qpair *qp = container_of(msg, struct nvmf_rdma_qpair, last_wqe_msg);

	qp->last_wqe = true;
	if (qp->state != NVMF_RDMA_QPAIR_CLOSED) {
		nvmf_rdma_qpair_check_closed(qp);
	}
}

static void tell_last_wqe(struct nvmf_rdma_qpair *qp)
{
	thread_timer_stop(&qp->last_wqe_timer);
	if (!qp->last_wqe_told && qp->base.tgroup != NULL) {
		qp->last_wqe_told = true;
		thread_post(qpair_thread(qp), &qp->last_wqe_msg, qpair_has_reached_last_wqe);
	}
}

void nvmf_rdma_qpair_reached_last_wqe(struct nvmf_rdma_qpair *qp)
{
	qp->device->no_last_wqe = false;
	tell_last_wqe(qp);
}

/* Its queue pair is destroyed though the device has not said that it holds no shared receive any more. No other sign
 * says so: the number of receives in a shared queue cannot be asked for, and flushed sends are not ordered with flushed
 * receives. A receive is used again after its completion only, so one that is lost is never used too early; but it
 * never comes back. The shared queue is therefore replaced when no connection uses it. */
static void expect_lost_receives(struct nvmf_rdma_qpair *qp)
{
	qp->device_poller->lossy = qp->device_poller->srq != NULL;
}

/* How long a device may take to send the event. A working device needs milliseconds. One that failed to do so may be of
 * the kind that never does: then it is not worth keeping connections for, until it does. */
#define LAST_WQE_WAIT_US    1000000
#define NO_LAST_WQE_WAIT_US 20000

static bool device_may_tell(const struct nvmf_rdma_qpair *qp)
{
	return !qp->device->removed && !qp->device_poller->failed;
}

static uint64_t last_wqe_wait_us(const struct nvmf_rdma_qpair *qp)
{
	return qp->device->no_last_wqe ? NO_LAST_WQE_WAIT_US : LAST_WQE_WAIT_US;
}

static void last_wqe_timer_expired(void *arg)
{
	struct nvmf_rdma_qpair *qp = arg;
	uint64_t wait_us = last_wqe_wait_us(qp);

	if (thread_timer_was_absent(&qp->last_wqe_timer, wait_us)) { /* the event may be there, not read yet */
		thread_timer_start(&qp->last_wqe_timer, wait_us);
		return;
	}
	if (device_may_tell(qp) && !qp->device->no_last_wqe) {
		log_limited(
			LOG_LEVEL_WARNING,
			"%s: the device did not say within %u ms that a queue pair holds no receive of the shared "
			"receive queue any more (LAST_WQE_REACHED); receives that it held are lost until no connection "
			"uses the queue; for this device varve waits no longer than %u ms from now on (no_srq of "
			"nvmf_create_transport avoids the "
			"shared queue)",
			nvmf_rdma_device_name(qp->device), LAST_WQE_WAIT_US / 1000, NO_LAST_WQE_WAIT_US / 1000);
		qp->device->no_last_wqe = true;
	}
	expect_lost_receives(qp);
	tell_last_wqe(qp);
}

/* A queue pair that was never connected has taken nothing, and a device that is gone tells nothing any more. */
static void await_last_wqe(struct nvmf_rdma_qpair *qp)
{
	if (!qp->accepted || qp->device_poller->srq == NULL || !device_may_tell(qp)) {
		tell_last_wqe(qp);
	} else if (!qp->last_wqe_told) {
		qp->last_wqe_timer = (struct thread_timer){.fn = last_wqe_timer_expired, .arg = qp};
		thread_timer_start(&qp->last_wqe_timer, last_wqe_wait_us(qp));
	}
}

static void qpair_in_error_state(struct thread_msg *msg)
{
	struct nvmf_rdma_qpair *qp = container_of(msg, struct nvmf_rdma_qpair, error_msg);

	qp->in_error = true;
	nvmf_rdma_qpair_check_closed(qp);
}

static void move_to_error_state(struct nvmf_rdma_qpair *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	if (ibv_modify_qp(qp->id->qp, &attr, IBV_QP_STATE) != 0 && errno != EINVAL && !qp->device->removed) {
		log_limited(LOG_LEVEL_WARNING, "a queue pair could not be put into the error state: %s",
			    strerror(errno));
	}
}

static void disconnect_fabric(struct nvmf_rdma_qpair *qp)
{
	TRACE(RDMA_QP_DISCONNECT, qp->owner, 0, (uintptr_t)qp);
	if (qp->id->qp == NULL) {
		return;
	}
	/* Over iWARP the connection manager would let the outstanding work end first (state Closing). siw then forgets
	 * RDMA READs that wait for their data: they never complete, not even in the error state that follows. */
	if (qp->device->iwarp) {
		move_to_error_state(qp);
	}
	/* An error only means that there is no connection to end. The error state below ends the work in any case. */
	rdma_disconnect(qp->id);
	move_to_error_state(qp);
}

/* How long a device may take to flush the work of a queue pair in the error state. A working device needs milliseconds.
 * One that is known to be broken has a short time, to deliver the completions that it has already. */
#define FLUSH_WAIT_US      5000000
#define DEAD_FLUSH_WAIT_US 100000

struct owed_check {
	struct nvmf_rdma_qpair *qp;
	uint32_t owed;
};

static void abandon_owed(void *arg)
{
	struct owed_check *f = arg;
	struct nvmf_rdma_qpair *qp = f->qp;

	nvmf_rdma_poller_drain(qp->device_poller);
	f->owed = nvmf_rdma_qpair_owed(qp);
	if (f->owed != 0 && qp->poller != NULL) {
		nvmf_rdma_poller_forget_qpair(qp->poller, qp);
		qp->abandoned = true;
	}
}

static void reclaim_owed(void *arg)
{
	struct nvmf_rdma_qpair *qp = arg;

	nvmf_rdma_poller_drain(
		qp->device_poller); /* completions from before the queue pair was destroyed; none come afterwards */
	nvmf_rdma_qpair_reclaim(qp);
	nvmf_rdma_qpair_check_closed(qp);
}

/* The device has not delivered completions in time. Destroying the queue pair makes sure that it neither delivers them
 * nor touches the buffers any more, so that these can be used again. Requests that block devices have end as usual, and
 * the queue pair closes after the last of them. */
static void flush_timer_expired(void *arg)
{
	struct nvmf_rdma_qpair *qp = arg;
	struct owed_check f = {.qp = qp};

	if (qp->device_poller == NULL || qp->id->qp == NULL) {
		return;
	}
	thread_call(qpair_thread(qp), abandon_owed, &f);
	if (f.owed == 0) {
		return;
	}
	log_limited(LOG_LEVEL_WARNING,
		    "%s: %u work requests of the connection from %s did not end; its queue pair is destroyed, and "
		    "their buffers are taken back",
		    nvmf_rdma_device_name(qp->device), f.owed, qp->base.peer_address.traddr);
	rdma_destroy_qp(qp->id);
	if (!qp->last_wqe_told) {
		expect_lost_receives(qp);
		tell_last_wqe(qp); /* it holds nothing any more */
	}
	thread_call(qpair_thread(qp), reclaim_owed, qp);
}

static void start_flush_timer(struct nvmf_rdma_qpair *qp)
{
	bool dead = qp->device->removed || (qp->device_poller != NULL && qp->device_poller->failed);

	qp->flush_timer = (struct thread_timer){.fn = flush_timer_expired, .arg = qp};
	thread_timer_start(&qp->flush_timer, dead ? DEAD_FLUSH_WAIT_US : FLUSH_WAIT_US);
}

static void close_qpair(struct thread_msg *msg)
{
	struct nvmf_rdma_qpair *qp = container_of(msg, struct nvmf_rdma_qpair, close_msg);

	disconnect_fabric(qp);
	start_flush_timer(qp);
	await_last_wqe(qp);
	thread_post(qpair_thread(qp), &qp->error_msg, qpair_in_error_state);
}

bool nvmf_rdma_op_qpair_is_idle(const struct nvmf_qpair *base)
{
	return ((const struct nvmf_rdma_qpair *)base)->in_use == 0;
}

void nvmf_rdma_op_qpair_close(struct nvmf_qpair *base)
{
	struct nvmf_rdma_qpair *qp = nvmf_rdma_qpair_of(base);

	qpair_set_state(qp, NVMF_RDMA_QPAIR_CLOSING);
	thread_post(thread_control(), &qp->close_msg, close_qpair);
	if (qp->poller != NULL) {
		nvmf_rdma_qpair_fail_waiting(qp);
	}
}

static void remove_qpair_from_poller(void *arg)
{
	struct nvmf_rdma_qpair *qp = arg;

	nvmf_rdma_poller_remove_qpair(qp->poller, qp);
}

/* On the group's thread: all messages that the control thread has sent before have arrived, so the queue pair may be
 * freed. */
static void finish_close(struct thread_msg *msg)
{
	nvmf_qpair_closed(&container_of(msg, struct nvmf_rdma_qpair, unmade_msg)->base);
}

static void destroy_connection(struct thread_msg *msg)
{
	struct nvmf_rdma_qpair *qp = container_of(msg, struct nvmf_rdma_qpair, unmake_msg);
	struct nvmf_rdma_device *d = qp->device;

	thread_timer_stop(&qp->flush_timer);
	thread_timer_stop(&qp->last_wqe_timer);
	if (qp->poller != NULL) {
		thread_call(qpair_thread(qp), remove_qpair_from_poller, qp);
	}
	if (qp->id->qp != NULL) {
		rdma_destroy_qp(qp->id);
	}
	if (qp->device_poller != NULL) {
		qp->device_poller->cq_reserved -= qp->completions;
		qp->device_poller->qps--;
	}
	nvmf_rdma_request_array_destroy(&qp->requests);
	TRACE(RDMA_QP_DESTROY, qp->owner, 0, (uintptr_t)qp);
	trace_owner_release(qp->owner);
	TAILQ_REMOVE(&qpair_transport(qp)->qps, qp, link);
	d->qps--;
	nvmf_rdma_device_release(d);
	rdma_destroy_id(qp->id); /* if it is the last id of a removed device, this closes the device */
	qp->id = NULL;
	thread_post(qpair_thread(qp), &qp->unmade_msg, finish_close);
}

void nvmf_rdma_qpair_check_closed(struct nvmf_rdma_qpair *qp)
{
	/* posted receives are flushed in the error state; those of a shared receive queue that the queue pair has taken
	 * are flushed before last_wqe, and polled before it is destroyed (remove_qpair_from_poller()) */
	if (qp->state == NVMF_RDMA_QPAIR_CLOSING && qp->in_error && qp->in_use == 0 && qp->receives == 0 &&
	    (qp->last_wqe || qp->poller == NULL) && !qp->dirty) {
		qpair_set_state(qp, NVMF_RDMA_QPAIR_CLOSED);
		thread_post(thread_control(), &qp->unmake_msg, destroy_connection);
	}
}

void nvmf_rdma_op_qpair_destroy(struct nvmf_qpair *base)
{
	free(nvmf_rdma_qpair_of(base));
}

/* The beginning. */

/* Entries of the send queue: three for each command, and never fewer than one transfer and its response can need,
 * because that command would wait for them forever. */
static uint32_t send_queue_entries(const struct nvmf_rdma_qpair *qp)
{
	uint32_t most = NVMF_RDMA_MAX_DESCRIPTORS +
			qpair_transport(qp)->buffers.max_per_request / (uint32_t)qp->device->read_sges + 1;

	return 3u * qp->depth > most ? 3u * qp->depth : most;
}

static int make_verbs_qpair(struct nvmf_rdma_qpair *qp, struct nvmf_rdma_poller *p)
{
	uint32_t sends = send_queue_entries(qp), receives = 2u * qp->depth,
		 limit = (uint32_t)qp->device->attr.max_qp_wr;
	struct ibv_qp_init_attr init = {
		.qp_context = qp,
		.send_cq = p->cq,
		.recv_cq = p->cq,
		.srq = p->srq,
		.cap = {.max_send_wr = sends < limit ? sends : limit,
			.max_recv_wr = p->srq             ? 0
				       : receives < limit ? receives
							  : limit,
			.max_send_sge = (uint32_t)qp->device->sges,
			.max_recv_sge = 2},
		.qp_type = IBV_QPT_RC,
	};

	qp->receive_queue = (uint16_t)(receives < limit ? receives : limit);
	if (p->srq == NULL) {
		/* everything can be flushed at once; with a shared receive queue the number of its requests is the
		 * limit (make_shared_receive_queue()) */
		uint32_t all = init.cap.max_send_wr + init.cap.max_recv_wr;
		int rc = nvmf_rdma_poller_reserve(p, all);

		if (rc != 0) {
			return rc;
		}
		qp->completions = all;
	}
	if (rdma_create_qp(qp->id, qp->device->pd->pd, &init) != 0) {
		return -errno;
	}
	qp->verbs = qp->id->qp;
	qp->send_room = qp->send_entries = init.cap.max_send_wr;
	return 0;
}

static int make_qpair_receives(struct nvmf_rdma_qpair *qp, struct nvmf_rdma_poller *p)
{
	if (p->srq != NULL) {
		return 0;
	}
	int rc = nvmf_rdma_request_array_create(&qp->requests, qp->receive_queue, 0, qpair_transport(qp), p);
	if (rc != 0) {
		return rc;
	}
	for (uint32_t i = 0; i < qp->requests.base.count; i++) {
		struct nvmf_rdma_request *r = nvmf_rdma_request_at(&qp->requests, i);
		struct ibv_recv_wr *bad;

		r->qp = qp;
		rc = ibv_post_recv(qp->verbs, &r->recv_wr, &bad);
		if (rc != 0) {
			return -rc;
		}
		qp->receives++; /* on the control thread: the group does not know the queue pair yet */
	}
	return 0;
}

static int accept_connection(struct nvmf_rdma_qpair *qp)
{
	struct nvmf_rdma_cm_accept data = {.recfmt = htole16(NVMF_RDMA_CM_RECFMT), .crqsize = htole16(qp->depth)};
	struct rdma_conn_param param = {
		.private_data = &data,
		.private_data_len = sizeof(data),
		.responder_resources = 0, /* hosts do not read from the target's memory */
		.initiator_depth = (uint8_t)qp->max_reads,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};

	/* The parameters are within the device's limits, so an error means that the host has withdrawn. */
	qp->accepted = rdma_accept(qp->id, &param) == 0;
	return qp->accepted ? 0 : -ECONNABORTED;
}

struct go_live_call {
	struct nvmf_rdma_qpair *qp;
	struct nvmf_rdma_poller *poller;
	bool live;
};

static void go_live(void *arg)
{
	struct go_live_call *g = arg;

	nvmf_rdma_poller_add_qpair(g->poller, g->qp);
	if (g->qp->state ==
	    NVMF_RDMA_QPAIR_SETUP) { /* otherwise it has been closed meanwhile, and its close destroys what was made */
		qpair_set_state(g->qp, NVMF_RDMA_QPAIR_LIVE);
		g->live = true;
	}
}

static int make_connection(struct nvmf_rdma_qpair *qp)
{
	struct nvmf_rdma_poller *p =
		qp->device->removed ? NULL : nvmf_rdma_poller_get(nvmf_rdma_group_of(qp->base.tgroup), qp->device);
	struct go_live_call g = {.qp = qp, .poller = p};
	int rc;

	if (p == NULL) {
		return qp->device->removed ? -ENODEV : -ENOMEM;
	}
	qp->device_poller = p;
	p->qps++;
	if ((rc = make_verbs_qpair(qp, p)) != 0 || (rc = make_qpair_receives(qp, p)) != 0) {
		return rc;
	}
	thread_call(qpair_thread(qp), go_live, &g);
	return g.live ? accept_connection(qp) : 0;
}

static void reject_connection(struct rdma_cm_id *id, enum nvmf_rdma_cm_status status)
{
	struct nvmf_rdma_cm_reject data = {.recfmt = htole16(NVMF_RDMA_CM_RECFMT), .sts = htole16((uint16_t)status)};

	rdma_reject(id, &data, sizeof(data));
}

static void setup_connection(struct thread_msg *msg)
{
	struct nvmf_rdma_qpair *qp = container_of(msg, struct nvmf_rdma_qpair, setup_msg);
	int rc = make_connection(qp);

	if (rc == -ECONNABORTED) {
		log_limited(LOG_LEVEL_NOTICE, "a host at %s went before its connection was accepted",
			    qp->base.peer_address.traddr);
		nvmf_rdma_qpair_broken(qp, "the host went before its connection was accepted");
	} else if (rc != 0) {
		char why[NVMF_RDMA_CM_WHY_MAX];

		snprintf(why, sizeof(why), "its queue %u could not be made: %s", qp->qid, strerror(-rc));
		nvmf_connection_refused(qp->base.peer_address.traddr, why);
		reject_connection(qp->id, NVMF_RDMA_CM_NO_RSC);
		nvmf_rdma_qpair_broken(qp, "its queue could not be made");
	} else if (qp->broken) { /* the connection was lost while it was made, when the group could not be told yet */
		nvmf_rdma_qpair_broken(qp, NULL);
	}
}

int nvmf_rdma_op_qpair_add(struct nvmf_transport_group *tgroup, struct nvmf_qpair *base)
{
	struct nvmf_rdma_qpair *qp = nvmf_rdma_qpair_of(base);

	thread_post(thread_control(), &qp->setup_msg, setup_connection);
	return 0;
}

static void name_address(struct nvmf_address *a, const struct sockaddr *sa)
{
	char port[16];

	snprintf(a->trtype, sizeof(a->trtype), "RDMA");
	a->adrfam = sa->sa_family == AF_INET6 ? NVMF_ADDR_FAMILY_IP6 : NVMF_ADDR_FAMILY_IP4;
	if (getnameinfo(sa, sa->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in),
			a->traddr, sizeof(a->traddr), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) == 0) {
		snprintf(a->trsvcid, sizeof(a->trsvcid), "%s", port);
	}
}

/* The listener's address as it was given, because subsystems, ANA states and the removal of listeners compare with it.
 * The address that the host has connected to may be another one (the listener's is 0.0.0.0 or ::), or be written in
 * another way (::1 and 0::1). */
static void name_listener(struct nvmf_address *a, const struct nvmf_rdma_transport *t,
			  const struct rdma_cm_event *event)
{
	const struct nvmf_rdma_listener *l = nvmf_rdma_listener_find(t, event->listen_id);

	if (l != NULL) {
		*a = l->address;
	} else {
		name_address(a, rdma_get_local_addr(event->id));
	}
}

static struct nvmf_rdma_qpair *make_qpair(struct nvmf_rdma_transport *t, struct nvmf_rdma_device *d,
					  const struct rdma_cm_event *event, const struct nvmf_rdma_cm_params *req)
{
	struct nvmf_rdma_qpair *qp = calloc(1, sizeof(*qp));
	char text[160];

	if (qp == NULL) {
		return NULL;
	}
	qp->base.transport = &t->base;
	qp->device = d;
	qp->id = event->id;
	qp->id->context = qp;
	qp->depth = req->host_send_queue;
	qp->max_reads = event->param.conn.initiator_depth;
	if (qp->max_reads > d->attr.max_qp_init_rd_atom) {
		qp->max_reads = (uint16_t)d->attr.max_qp_init_rd_atom;
	}
	if (qp->max_reads == 0) {
		qp->max_reads = 1; /* with 0, no RDMA READ would ever be posted; a host that allows none gets an error
				      from the device */
	}
	STAILQ_INIT(&qp->pending);
	name_listener(&qp->base.listen_address, t, event);
	name_address(&qp->base.local_address, rdma_get_local_addr(qp->id));
	name_address(&qp->base.peer_address, rdma_get_peer_addr(qp->id));
	qp->qid = req->qid;
	qp->base.qid = req->qid;
	write_trace_owner(qp, text, sizeof(text));
	qp->base.qid = 0;
	qp->owner = trace_owner_register(TRACE_OWNER_NVMF_RDMA_QP, text);
	return qp;
}

static void tell_not_passed(const struct nvmf_rdma_qpair *qp, int rc)
{
	const struct nvmf_transport_opts *o = &qp->base.transport->opts;
	char why[NVMF_RDMA_CM_WHY_MAX];

	switch (-rc) {
	case ENOSPC:
		snprintf(why, sizeof(why), "there are %u connections of hosts that are not known (max_anonymous)",
			 o->max_anonymous);
		break;
	case EUSERS:
		snprintf(why, sizeof(why),
			 "there are %u connections from this address of hosts that are not known "
			 "(max_anonymous_per_host)",
			 o->max_anonymous_per_host);
		break;
	case ENOMEM:
		snprintf(why, sizeof(why), "no memory");
		break;
	default:
		snprintf(why, sizeof(why), "%s",
			 qp->device->removed ? "its device is gone" : "the target is being started or stopped");
		break;
	}
	nvmf_connection_refused(qp->base.peer_address.traddr, why);
}

/* Passes the connection to the target, or rejects it. */
static void pass_to_target(struct nvmf_rdma_qpair *qp)
{
	qp->waits = false;
	int rc = qp->device->removed ? -ENODEV : nvmf_qpair_accept(&qp->base, qp->qid);

	if (rc == 0) {
		return;
	}
	tell_not_passed(qp, rc);
	reject_connection(qp->id, NVMF_RDMA_CM_NO_RSC);
	TAILQ_REMOVE(&qpair_transport(qp)->qps, qp, link);
	qp->device->qps--;
	rdma_destroy_id(qp->id);
	trace_owner_release(qp->owner);
	free(qp);
}

void nvmf_rdma_qpairs_device_ready(struct nvmf_rdma_device *d)
{
	struct nvmf_rdma_qpair *qp, *next;

	for (qp = TAILQ_FIRST(&d->transport->qps); qp != NULL; qp = next) {
		next = TAILQ_NEXT(qp, link);
		if (qp->device == d && qp->waits) {
			pass_to_target(qp);
		}
	}
}

/* How many connection requests may wait until a device is ready. That takes seconds, and rejected hosts try again. */
#define WAITING_MOST 128

static bool device_takes_connections(const struct nvmf_rdma_device *d)
{
	return d != NULL && !d->removed && (d->ready || d->qps < WAITING_MOST);
}

static void tell_rejected_request(const struct rdma_cm_event *event, const struct nvmf_transport_opts *o,
				  const struct nvmf_rdma_device *d, enum nvmf_rdma_cm_status status)
{
	const struct rdma_conn_param *conn = &event->param.conn;
	char why[NVMF_RDMA_CM_WHY_MAX];
	struct nvmf_address peer = {.traddr = "an unknown address"};

	name_address(&peer, rdma_get_peer_addr(event->id));
	if (status != NVMF_RDMA_CM_NO_RSC) {
		nvmf_rdma_cm_explain(conn->private_data, conn->private_data_len, o->max_aq_depth, o->max_queue_depth,
				     status, why);
	} else if (d == NULL || d->removed) {
		snprintf(why, sizeof(why), "its device cannot be used");
	} else {
		snprintf(why, sizeof(why), "%u connections wait for the device %s already", d->qps,
			 nvmf_rdma_device_name(d));
	}
	nvmf_connection_refused(peer.traddr, why);
}

void nvmf_rdma_qpair_accept(struct nvmf_rdma_transport *t, const struct rdma_cm_event *event)
{
	const struct rdma_conn_param *conn = &event->param.conn;
	const struct nvmf_transport_opts *o = &t->base.opts;
	struct nvmf_rdma_cm_params req;
	enum nvmf_rdma_cm_status status = nvmf_rdma_cm_decode(conn->private_data, conn->private_data_len,
							      o->max_aq_depth, o->max_queue_depth, &req);
	struct nvmf_rdma_device *d = status == 0 ? nvmf_rdma_device_get(t, event->id->verbs) : NULL;
	struct nvmf_rdma_qpair *qp = device_takes_connections(d) ? make_qpair(t, d, event, &req) : NULL;

	if (qp == NULL) {
		status = status ? status : NVMF_RDMA_CM_NO_RSC;
		reject_connection(event->id, status);
		tell_rejected_request(event, o, d, status);
		rdma_destroy_id(event->id);
		return;
	}
	TAILQ_INSERT_TAIL(&t->qps, qp, link);
	d->qps++;
	TRACE(RDMA_QP_CREATE, qp->owner, 0, (uintptr_t)qp);
	qp->waits = !d->ready;
	if (d->ready) {
		pass_to_target(qp);
	}
}

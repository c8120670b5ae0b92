/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of a queue pair on its poll group. The control thread is told of its end in two steps: it is closing, then
 * it is gone. The queue pair is freed after the control thread has answered the second, so that neither thread holds a
 * pointer to freed memory. A connection that is gone skips the quiescing: nvmf_qpair_disconnect() then sends the
 * message that it is closing.
 *
 *     control thread                     poll group
 *     nvmf_qpair_accept             ->   qpair_add_on_group: ops->qpair_add
 *     (Connect)                     <->  CONNECTING to ENABLED, or to AUTHENTICATING
 *     (Authentication)              <->  AUTHENTICATING to ENABLED
 *     nvmf_ctrlr_quiesce_qpair      ->   nvmf_qpair_quiesce: to QUIESCING
 *     qpair_closing_on_control      <-
 *     nvmf_ctrlr_qpair_quiesced     <-   its commands have ended
 *                                   ->   nvmf_qpair_disconnect: ops->qpair_close
 *     qpair_gone_on_control         <-   nvmf_qpair_closed
 *                                   ->   qpair_destroy_on_group: ops->qpair_destroy
 */
#include <errno.h>
#include "nvmf/internal.h"

LOG_FLAG(nvmf)

static const uint32_t qpair_next_states[NVMF_QPAIR_STATES] = {
	[NVMF_QPAIR_NEW] = 1 << NVMF_QPAIR_CONNECTING,
	[NVMF_QPAIR_CONNECTING] =
		1 << NVMF_QPAIR_ENABLED | 1 << NVMF_QPAIR_AUTHENTICATING | 1 << NVMF_QPAIR_DISCONNECTING,
	[NVMF_QPAIR_AUTHENTICATING] =
		1 << NVMF_QPAIR_ENABLED | 1 << NVMF_QPAIR_QUIESCING | 1 << NVMF_QPAIR_DISCONNECTING,
	[NVMF_QPAIR_ENABLED] = 1 << NVMF_QPAIR_QUIESCING | 1 << NVMF_QPAIR_DISCONNECTING,
	[NVMF_QPAIR_QUIESCING] = 1 << NVMF_QPAIR_DISCONNECTING,
	[NVMF_QPAIR_DISCONNECTING] = 1 << NVMF_QPAIR_CLOSED,
	[NVMF_QPAIR_CLOSED] = 0,
};
STATE_MACHINE(qpair_machine, "nvmf queue pair", nvmf_qpair_state_name, qpair_next_states);

void nvmf_qpair_set_state(struct nvmf_qpair *qpair, enum nvmf_qpair_state state)
{
	state_machine_check(&qpair_machine, qpair->state, state, qpair->hostnqn);
	TRACE(NVMF_QPAIR_STATE, qpair->trace_owner, 0, (uintptr_t)qpair, qpair->state, state, qpair->qid);
	USDT(nvmf_qpair_state, qpair, qpair->qid, qpair->hostnqn, qpair->state, state);
	qpair->state = (uint8_t)state;
	qpair->state_ticks = env_ticks();
}

static bool qpair_is_ending(const struct nvmf_qpair *qpair)
{
	return qpair->state == NVMF_QPAIR_DISCONNECTING || qpair->state == NVMF_QPAIR_CLOSED;
}

static uint64_t qpair_group_thread_id(void)
{
	return thread_id(thread_current());
}

/* ---- Coming ---- */

static void qpair_connect_timeout(void *arg)
{
	struct nvmf_qpair *qpair = arg;
	uint64_t timeout_us = qpair->group->tgt->connect_timeout_us;

	if (thread_timer_was_absent(&qpair->connect_timer,
				    timeout_us)) { /* the Connect command may be in the receive queue */
		thread_timer_start(&qpair->connect_timer, timeout_us);
		return;
	}
	nvmf_qpair_disconnect(qpair, "no Connect command came in time");
}

static struct nvmf_transport_group *group_find_tgroup(const struct nvmf_poll_group *group,
						      const struct nvmf_transport *t)
{
	struct nvmf_transport_group *tgroup;

	TAILQ_FOREACH (tgroup, &group->tgroups, link) {
		if (tgroup->transport == t) {
			return tgroup;
		}
	}
	return NULL;
}

static void qpair_count(struct nvmf_qpair *qpair)
{
	if (qpair->qid == 0) {
		qpair->group->admin_qpairs++;
		qpair->group->current_admin_qpairs++;
	} else {
		qpair->group->io_qpairs++;
		qpair->group->current_io_qpairs++;
	}
}

static void qpair_add_on_group(struct thread_msg *msg)
{
	struct nvmf_qpair *qpair = container_of(msg, struct nvmf_qpair, lifecycle_msg);
	struct nvmf_poll_group *group = qpair->group;

	USDT(nvmf_poll_group_add_qpair, qpair, qpair_group_thread_id());
	nvmf_qpair_set_state(qpair, NVMF_QPAIR_CONNECTING);
	if (TAILQ_EMPTY(&group->qpairs)) {
		thread_absence_watch(&group->absence);
	}
	TAILQ_INSERT_TAIL(&group->qpairs, qpair, group_link);
	group->qpairs_count++;
	qpair->tgroup = group_find_tgroup(group, qpair->transport);
	int rc = qpair->tgroup != NULL && !group->stopping ? qpair->transport->ops->qpair_add(qpair->tgroup, qpair)
							   : -ENODEV;
	if (rc != 0) {
		nvmf_qpair_set_state(qpair, NVMF_QPAIR_DISCONNECTING);
		nvmf_qpair_closed(qpair);
		return;
	}
	USDT(nvmf_transport_poll_group_add, qpair, qpair->qid, qpair_group_thread_id());
	if (qpair->state == NVMF_QPAIR_CONNECTING) {
		qpair->connect_timer = (struct thread_timer){.fn = qpair_connect_timeout, .arg = qpair};
		thread_timer_start(&qpair->connect_timer, group->tgt->connect_timeout_us);
	}
}

/* The group with the fewest queue pairs of this kind. */
static struct nvmf_poll_group *tgt_pick_group(struct nvmf_tgt *tgt, bool admin)
{
	struct nvmf_poll_group *group, *best = NULL;

	TAILQ_FOREACH (group, &tgt->groups, link) {
		uint32_t n = admin ? group->ctl_admin_qpairs : group->ctl_io_qpairs;
		if (best == NULL || n < (admin ? best->ctl_admin_qpairs : best->ctl_io_qpairs)) {
			best = group;
		}
	}
	return best;
}

/* Queue pairs of the same nvmf_qpair.placement, and where they are. */
struct nvmf_placement {
	uint32_t id, qpairs;
	struct nvmf_poll_group *group;
	TAILQ_ENTRY(nvmf_placement) link;
};

static struct nvmf_placement *placement_find(struct nvmf_tgt *tgt, uint32_t id)
{
	struct nvmf_placement *p;

	TAILQ_FOREACH (p, &tgt->placements, link) {
		if (p->id == id) {
			return p;
		}
	}
	return NULL;
}

/* Counts a queue pair that has been given to a group. Without memory it is not counted, and others of its placement may
 * be elsewhere. */
static void placement_add(struct nvmf_tgt *tgt, struct nvmf_qpair *qpair)
{
	struct nvmf_placement *p = placement_find(tgt, qpair->placement);

	if (p == NULL) {
		p = calloc(1, sizeof(*p));
		if (p == NULL) {
			return;
		}
		p->id = qpair->placement;
		p->group = qpair->group;
		TAILQ_INSERT_TAIL(&tgt->placements, p, link);
	}
	p->qpairs++;
	qpair->placed = p;
}

static void placement_remove(struct nvmf_tgt *tgt, struct nvmf_qpair *qpair)
{
	struct nvmf_placement *p = qpair->placed;

	qpair->placed = NULL;
	if (p != NULL && --p->qpairs == 0) {
		TAILQ_REMOVE(&tgt->placements, p, link);
		free(p);
	}
}

static struct nvmf_poll_group *qpair_pick_group(struct nvmf_tgt *tgt, const struct nvmf_qpair *qpair, bool admin)
{
	const struct nvmf_placement *p = qpair->placement != 0 ? placement_find(tgt, qpair->placement) : NULL;

	return p != NULL ? p->group : tgt_pick_group(tgt, admin);
}

int nvmf_qpair_accept(struct nvmf_qpair *qpair, uint16_t qid)
{
	struct nvmf_tgt *tgt = qpair->transport->tgt;
	struct nvmf_poll_group *group = tgt->state == NVMF_TGT_RUNNING ? qpair_pick_group(tgt, qpair, qid == 0) : NULL;

	if (group == NULL) {
		return -ENODEV;
	}
	int rc = nvmf_anonymous_add(qpair);
	if (rc != 0) {
		return rc;
	}
	qpair->group = group;
	qpair->accepted_as_io = qid != 0;
	*(qid == 0 ? &group->ctl_admin_qpairs : &group->ctl_io_qpairs) += 1;
	if (qpair->placement != 0) {
		placement_add(tgt, qpair);
	}
	tgt->num_qpairs++;
	thread_post(group->thread, &qpair->lifecycle_msg, qpair_add_on_group);
	return 0;
}

void nvmf_qpair_connected(struct nvmf_qpair *qpair)
{
	thread_timer_stop(&qpair->connect_timer);
	nvmf_qpair_set_state(qpair, qpair->auth_required ? NVMF_QPAIR_AUTHENTICATING : NVMF_QPAIR_ENABLED);
	qpair_count(qpair);
}

/* ---- Going ---- */

/* A host that disconnects on purpose shuts its controller down first. If its admin queue ends before that, the host is
 * lost. */
static bool qpair_host_is_lost(const struct nvmf_qpair *qpair)
{
	return qpair->linked && qpair->ctl_qid == 0 && qpair->ctl_ctrlr->state == NVMF_CTRLR_READY;
}

static void qpair_closing_on_control(struct thread_msg *msg)
{
	struct nvmf_qpair *qpair = container_of(msg, struct nvmf_qpair, closing_msg);

	if (atomic_load_explicit(&qpair->faulty, memory_order_relaxed) || qpair_host_is_lost(qpair)) {
		nvmf_tell_fault(&(struct nvmf_fault){
			.kind = NVMF_FAULT_QPAIR,
			.qpair = qpair,
			.cntlid = qpair->linked ? qpair->ctl_ctrlr->cntlid : 0,
			.qid = qpair->linked ? qpair->ctl_qid : 0,
			.hostnqn = qpair->linked ? qpair->ctl_ctrlr->hostnqn : "",
			.subnqn = qpair->linked ? qpair->ctl_ctrlr->subsystem->nqn : "",
			.why = qpair->why,
		});
	}
	nvmf_qpair_watch_end(qpair);
	nvmf_ctrlr_qpair_closing(qpair);
}

void nvmf_qpair_quiesce(struct nvmf_qpair *qpair, const char *why)
{
	if (qpair_is_ending(qpair) || qpair->state == NVMF_QPAIR_QUIESCING) {
		return;
	}
	if (qpair->state == NVMF_QPAIR_CONNECTING) { /* it has carried out nothing */
		nvmf_qpair_disconnect(qpair, why);
		return;
	}
	log_info(nvmf, "queue pair %u of %s: quiescing: %s", qpair->qid, qpair->hostnqn, why);
	qpair->why = why;
	nvmf_qpair_set_state(qpair, NVMF_QPAIR_QUIESCING);
	thread_post(thread_control(), &qpair->closing_msg, qpair_closing_on_control);
	nvmf_qpair_begin_end(qpair);
}

void nvmf_qpair_disconnect(struct nvmf_qpair *qpair, const char *why)
{
	bool was_quiescing = qpair->state == NVMF_QPAIR_QUIESCING;

	if (qpair_is_ending(qpair)) {
		return;
	}
	USDT(nvmf_qpair_disconnect, qpair, qpair_group_thread_id(), why);
	log_info(nvmf, "queue pair %u of %s: disconnecting: %s", qpair->qid,
		 qpair->hostnqn[0] != 0 ? qpair->hostnqn : "an unknown host", why);
	thread_timer_stop(&qpair->connect_timer);
	nvmf_qpair_set_state(qpair, NVMF_QPAIR_DISCONNECTING);
	if (!was_quiescing) { /* the control thread knows, and reads `why` */
		qpair->why = why;
		thread_post(thread_control(), &qpair->closing_msg, qpair_closing_on_control);
	}
	USDT(nvmf_poll_group_drain_qpair, qpair, qpair_group_thread_id());
	qpair->transport->ops->qpair_close(qpair);
	if (qpair->state != NVMF_QPAIR_CLOSED) {
		nvmf_qpair_begin_end(qpair);
	}
}

void nvmf_qpair_fail(struct nvmf_qpair *qpair, const char *why)
{
	if (!qpair_is_ending(qpair)) {
		atomic_store_explicit(&qpair->faulty, true, memory_order_relaxed);
		log_limited(LOG_LEVEL_NOTICE, "the connection of queue pair %u of %s fails: %s", qpair->qid,
			    qpair->hostnqn[0] != 0 ? qpair->hostnqn : "an unknown host", why);
		nvmf_qpair_disconnect(qpair, why);
	}
}

static void qpair_destroy_on_group(struct thread_msg *msg)
{
	struct nvmf_qpair *qpair = container_of(msg, struct nvmf_qpair, lifecycle_msg);

	USDT(nvmf_transport_qpair_fini, qpair);
	qpair->transport->ops->qpair_destroy(qpair);
}

static void qpair_gone_on_control(struct thread_msg *msg)
{
	struct nvmf_qpair *qpair = container_of(msg, struct nvmf_qpair, lifecycle_msg);
	struct nvmf_poll_group *group = qpair->group;
	struct nvmf_tgt *tgt = group->tgt;

	*(qpair->accepted_as_io ? &group->ctl_io_qpairs : &group->ctl_admin_qpairs) -= 1;
	placement_remove(tgt, qpair);
	thread_timer_stop(&qpair->late_timer);
	nvmf_anonymous_remove(qpair);
	nvmf_ctrlr_qpair_gone(qpair);
	thread_post(group->thread, &qpair->lifecycle_msg, qpair_destroy_on_group);
	nvmf_tgt_qpair_gone(tgt);
}

void nvmf_qpair_closed(struct nvmf_qpair *qpair)
{
	bool was_connected = qpair->ctrlr != NULL;

	nvmf_qpair_set_state(qpair, NVMF_QPAIR_CLOSED);
	thread_timer_stop(&qpair->end_timer);
	TAILQ_REMOVE(&qpair->group->qpairs, qpair, group_link);
	qpair->group->qpairs_count--;
	qpair->group->completed += qpair->qid != 0 ? qpair->completed : 0;
	if (TAILQ_EMPTY(&qpair->group->qpairs)) {
		thread_absence_unwatch(&qpair->group->absence);
	}
	if (was_connected) {
		*(qpair->qid == 0 ? &qpair->group->current_admin_qpairs : &qpair->group->current_io_qpairs) -= 1;
	}
	USDT(nvmf_transport_poll_group_remove, qpair, qpair->qid, qpair_group_thread_id());
	USDT(nvmf_poll_group_remove_qpair, qpair, qpair_group_thread_id());
	thread_post(thread_control(), &qpair->lifecycle_msg, qpair_gone_on_control);
}

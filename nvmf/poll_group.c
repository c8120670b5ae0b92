/* SPDX-License-Identifier: BSD-3-Clause */
/* Poll groups: each is a thread on one lcore that serves a share of the queue pairs of every transport. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "nvmf/internal.h"
#include "nvmf/transport_buffers.h"

struct group_call {
	struct nvmf_poll_group *group;
	struct nvmf_transport *transport;
	struct nvmf_poll_group_stats *stats;
	struct nvmf_kept_transport *kept; /* what its part begins with, or NULL */
	char *why;
	int rc;
};

static void group_init_on_group(void *arg)
{
	USDT(nvmf_create_poll_group, thread_id(thread_current()));
}

static void group_free(struct nvmf_poll_group *group)
{
	free(group->views);
	free(group);
}

int nvmf_poll_group_create(struct nvmf_tgt *tgt, unsigned lcore, const cpu_set_t *cores,
			   struct nvmf_poll_group **groupp)
{
	struct nvmf_poll_group *group = calloc(1, sizeof(*group));
	char name[THREAD_NAME_MAX];

	if (group == NULL) {
		return -ENOMEM;
	}
	group->tgt = tgt;
	TAILQ_INIT(&group->tgroups);
	TAILQ_INIT(&group->qpairs);
	group->absence = (struct thread_absence){.fn = nvmf_poll_group_was_absent, .arg = group};
	group->views = calloc(tgt->max_subsystems, sizeof(group->views[0]));
	snprintf(name, sizeof(name), "%s_poll_group_%03u", tgt->name, lcore);
	group->thread = group->views != NULL ? thread_create_at(name, lcore, cores) : NULL;
	if (group->thread == NULL) {
		group_free(group);
		return -ENOMEM;
	}
	nvmf_poll_group_take_kept(group);
	thread_call(group->thread, group_init_on_group, NULL);
	*groupp = group;
	return 0;
}

static bool qpair_host_has_given_up(const struct nvmf_qpair *qpair, uint64_t absent_us)
{
	uint32_t kato = qpair->ctrlr != NULL ? atomic_load_explicit(&qpair->ctrlr->kato_ms, memory_order_relaxed) : 0;

	return kato != 0 && absent_us >= kato * UINT64_C(1000);
}

void nvmf_poll_group_was_absent(void *arg, uint64_t absent_us)
{
	struct nvmf_poll_group *group = arg;
	struct nvmf_qpair *qpair, *next;
	unsigned n = 0;

	for (qpair = TAILQ_FIRST(&group->qpairs); qpair != NULL; qpair = next) {
		next = TAILQ_NEXT(qpair, group_link);
		if (qpair_host_has_given_up(qpair, absent_us)) {
			qpair->ends_ctrlr = true;
			nvmf_qpair_quiesce(qpair, "this process did not run for the keep-alive timeout");
			n++;
		}
	}
	if (n != 0) {
		log_limited(LOG_LEVEL_WARNING,
			    "%s did not run for %" PRIu64
			    " ms: %u queue pairs of hosts with a shorter keep-alive timeout "
			    "are ended, and nothing that they have sent and that has not begun is carried out",
			    thread_name(group->thread), absent_us / 1000, n);
	}
}

static void group_add_transport_on_group(void *arg)
{
	struct group_call *call = arg;
	struct nvmf_transport *t = call->transport;
	struct nvmf_transport_group *tgroup = t->ops->group_create(t, call->group, call->why);

	if (tgroup == NULL) {
		call->rc = errno != 0 ? -errno : -ENOMEM;
		return;
	}
	tgroup->transport = t;
	tgroup->group = call->group;
	tgroup->kept = call->kept;
	TAILQ_INSERT_TAIL(&call->group->tgroups, tgroup, link);
	USDT(nvmf_transport_poll_group_create, t->ops->name, thread_id(thread_current()));
}

int nvmf_poll_group_add_transport(struct nvmf_poll_group *group, struct nvmf_transport *transport,
				  char why[NVMF_ERROR_MAX])
{
	struct group_call call = {.group = group, .transport = transport, .why = why};

	snprintf(why, NVMF_ERROR_MAX, "no memory for a poll group");

	call.kept = nvmf_transport_take_kept(group, transport);
	thread_call(group->thread, group_add_transport_on_group, &call);
	if (call.rc != 0) {
		free(call.kept);
	}
	return call.rc;
}

static void group_destroy_part(struct nvmf_poll_group *group, struct nvmf_transport_group *tgroup)
{
	TAILQ_REMOVE(&group->tgroups, tgroup, link);
	free(tgroup->kept);
	tgroup->transport->ops->group_destroy(tgroup);
}

static void group_remove_transport_on_group(void *arg)
{
	struct group_call *call = arg;
	struct nvmf_transport_group *tgroup;

	TAILQ_FOREACH (tgroup, &call->group->tgroups, link) {
		if (tgroup->transport == call->transport) {
			group_destroy_part(call->group, tgroup);
			return;
		}
	}
}

void nvmf_poll_group_remove_transport(struct nvmf_poll_group *group, struct nvmf_transport *transport)
{
	struct group_call call = {.group = group, .transport = transport};

	thread_call(group->thread, group_remove_transport_on_group, &call);
}

/* Queue pairs with a controller end with it. */
static void group_disconnect_unconnected_on_group(void *arg)
{
	struct nvmf_poll_group *group = arg;
	struct nvmf_qpair *qpair, *next;

	USDT(nvmf_destroy_poll_group_qpairs, thread_id(thread_current()));
	group->stopping = true;
	for (qpair = TAILQ_FIRST(&group->qpairs); qpair != NULL; qpair = next) {
		next = TAILQ_NEXT(qpair, group_link);
		if (qpair->ctrlr == NULL) {
			nvmf_qpair_disconnect(qpair, "the target is being stopped");
		}
	}
}

void nvmf_poll_group_stop(struct nvmf_poll_group *group)
{
	thread_call(group->thread, group_disconnect_unconnected_on_group, group);
}

static void group_fini_on_group(void *arg)
{
	struct nvmf_poll_group *group = arg;

	/* Messages that were posted before this call have run; the last of them freed the queue pairs. */
	assert(TAILQ_EMPTY(&group->qpairs));
	USDT(nvmf_destroy_poll_group, thread_id(thread_current()));
	while (!TAILQ_EMPTY(&group->tgroups)) {
		group_destroy_part(group, TAILQ_FIRST(&group->tgroups));
	}
}

void nvmf_poll_group_destroy(struct nvmf_poll_group *group)
{
	nvmf_poll_group_note_kept(group);
	thread_call(group->thread, group_fini_on_group, group);
	thread_destroy(group->thread);
	group_free(group);
}

struct thread *nvmf_poll_group_thread(const struct nvmf_poll_group *group)
{
	return group->thread;
}

struct nvmf_poll_group *nvmf_poll_group_next(struct nvmf_tgt *tgt, const struct nvmf_poll_group *after)
{
	return after == NULL ? TAILQ_FIRST(&tgt->groups) : TAILQ_NEXT(after, link);
}

const char *nvmf_poll_group_name(const struct nvmf_poll_group *group)
{
	return thread_name(group->thread);
}

static void group_read_stats_on_group(void *arg)
{
	struct group_call *call = arg;
	const struct nvmf_poll_group *group = call->group;
	struct nvmf_poll_group_stats *stats = call->stats;
	struct nvmf_transport_group *tgroup;
	struct nvmf_qpair *qpair;

	stats->admin_qpairs = group->admin_qpairs;
	stats->io_qpairs = group->io_qpairs;
	stats->current_admin_qpairs = group->current_admin_qpairs;
	stats->current_io_qpairs = group->current_io_qpairs;
	stats->current_unassociated_qpairs =
		group->qpairs_count - group->current_admin_qpairs - group->current_io_qpairs;
	stats->completed_nvme_io = group->completed;
	TAILQ_FOREACH (qpair, &group->qpairs, group_link) {
		stats->completed_nvme_io += qpair->qid != 0 ? qpair->completed : 0;
	}
	stats->failed_nvme_io = group->failed;
	for (uint32_t i = 0; i < group->tgt->max_subsystems; i++) {
		if (group->views[i] != NULL) {
			stats->pending_bdev_io += group->views[i]->num_paused;
		}
	}
	TAILQ_FOREACH (tgroup, &group->tgroups, link) {
		if (stats->num_transports == NVMF_STATS_TRANSPORTS_MAX) {
			break;
		}
		struct nvmf_transport_stats *ts = &stats->transports[stats->num_transports++];
		ts->trtype = tgroup->transport->ops->name;
		ts->pending_data_buffer = tgroup->buffers != NULL ? tgroup->buffers->waits : 0;
		tgroup->transport->ops->group_stats(tgroup, ts);
		nvmf_transport_add_kept(tgroup, ts);
	}
}

void nvmf_poll_group_get_stats(struct nvmf_poll_group *group, struct nvmf_poll_group_stats *stats)
{
	struct group_call call = {.group = group, .stats = stats};

	*stats = (struct nvmf_poll_group_stats){0};
	thread_call(group->thread, group_read_stats_on_group, &call);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists outstanding commands, for diagnosis. Each group is called in turn, so that it does not change what is being
 * read. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "nvmf/command_internal.h"
#include "nvmf/internal.h"

struct inflight_call {
	struct nvmf_poll_group *group;
	struct nvmf_inflight *list;
	size_t count, room;
};

static void inflight_count_on_group(void *arg)
{
	struct inflight_call *call = arg;
	struct nvmf_qpair *qpair;

	TAILQ_FOREACH (qpair, &call->group->qpairs, group_link) {
		struct nvmf_request *req = nvmf_qpair_next_request(qpair, NULL);
		for (; req != NULL; req = nvmf_qpair_next_request(qpair, req)) {
			call->room++;
		}
	}
}

static const struct {
	const char *state, *waits_for;
} wheres[NVMF_REQUEST_WHERES] = {
	[NVMF_REQUEST_PAUSED] = {"PAUSED", "paused namespace"},
	[NVMF_REQUEST_LIMITED] = {"LIMITED", "rate limit"},
	[NVMF_REQUEST_FUSED] = {"FUSED", "other half of a fused pair"},
	[NVMF_REQUEST_CONTROL] = {"CONTROL", "control thread"},
	[NVMF_REQUEST_HELD] = {"HELD", "an event"},
	[NVMF_REQUEST_BDEV] = {"BDEV", "bdev"},
	[NVMF_REQUEST_PREEMPTED] = {"PREEMPTED", "bdev"},
};

const char *nvmf_request_state(unsigned n)
{
	const struct nvmf_transport_state *state;
	const char *type;

	for (unsigned i = 0; i < NVMF_REQUEST_WHERES; i++) {
		if (wheres[i].state != NULL && n-- == 0) {
			return wheres[i].state;
		}
	}
	for (unsigned t = 0; (type = nvmf_transport_type(t)) != NULL; t++) {
		for (unsigned i = 0; i < NVMF_TRANSPORT_STATES; i++) {
			state = nvmf_transport_state(type, i);
			if (state != NULL && state->class != NVMF_CLASS_IDLE && n-- == 0) {
				return state->name;
			}
		}
	}
	return NULL;
}

static void inflight_describe_command(const struct nvmf_request *req, struct nvmf_inflight *out)
{
	const struct nvmf_command *cmd = nvmf_command_of(req);
	const struct nvme_sqe *sqe = req->sqe;

	out->cid = nvmf_request_cid(req);
	out->opcode = sqe->opcode;
	out->fabrics = sqe->opcode == nvme_admin_fabrics;
	out->admin = req->qpair->qid == 0;
	out->command = out->fabrics ? "fabrics" : cmd->name;
	out->nsid = out->fabrics ? 0 : le32toh(sqe->nsid);
	if ((cmd->flags & NVMF_CMD_SLBA) != 0) {
		out->slba = le32toh(sqe->cdw10) | (uint64_t)le32toh(sqe->cdw11) << 32;
	}
	if ((cmd->flags & NVMF_CMD_NLB) != 0) {
		out->num_blocks = (le32toh(sqe->cdw12) & 0xffff) + 1;
	}
}

/* The transport has it. */
static void inflight_describe_transport_state(const struct nvmf_request *req, uint64_t now, struct nvmf_inflight *out)
{
	const struct nvmf_transport_ops *ops = req->qpair->transport->ops;
	const struct nvmf_transport_state *state = nvmf_transport_ops_state(ops, nvmf_request_state_number(req));

	out->state = state != NULL ? state->name : "unknown";
	out->waits_for = state != NULL ? state->waits_for : NULL;
	out->state_age_ticks = now - *(const uint64_t *)((const char *)req + ops->state_ticks_offset);
}

void nvmf_request_describe(const struct nvmf_request *req, struct nvmf_inflight *out)
{
	const struct nvmf_qpair *qpair = req->qpair;
	uint64_t now = env_ticks();

	memset(out, 0, sizeof(*out));
	out->qid = qpair->qid;
	strcpy(out->hostnqn, qpair->hostnqn);
	if (qpair->ctrlr != NULL) {
		out->cntlid = qpair->ctrlr->cntlid;
		strcpy(out->subnqn, qpair->ctrlr->subsystem->nqn);
	}
	inflight_describe_command(req, out);
	out->object = req;
	out->age_ticks = now > req->start_ticks ? now - req->start_ticks : 0;
	out->start_ticks = req->start_ticks;
	out->object_type = qpair->transport->ops->trace_object_type;
	out->waits_for_host = req->where == NVMF_REQUEST_HELD;
	if (req->where == NVMF_REQUEST_TRANSPORT) {
		inflight_describe_transport_state(req, now, out);
	} else {
		out->state = wheres[req->where].state;
		out->waits_for = wheres[req->where].waits_for;
		out->state_age_ticks = now - req->where_ticks;
	}
	if (req->where == NVMF_REQUEST_BDEV || req->where == NVMF_REQUEST_PREEMPTED) {
		const struct bdev_io *io = &nvmf_request_io_owner(req)->bdev_io;
		out->waits_for = bdev_io_state_name((enum bdev_io_state)io->state);
		snprintf(out->bdev, sizeof(out->bdev), "%s", bdev_name(bdev_desc_bdev(io->desc)));
	}
}

static void inflight_list_on_group(void *arg)
{
	struct inflight_call *call = arg;
	struct nvmf_qpair *qpair;

	TAILQ_FOREACH (qpair, &call->group->qpairs, group_link) {
		struct nvmf_request *req = nvmf_qpair_next_request(qpair, NULL);
		for (; req != NULL && call->count < call->room; req = nvmf_qpair_next_request(qpair, req)) {
			nvmf_request_describe(req, &call->list[call->count++]);
		}
	}
}

ssize_t nvmf_tgt_get_inflight(struct nvmf_tgt *tgt, struct nvmf_inflight **list)
{
	struct inflight_call call = {0};

	*list = NULL;
	TAILQ_FOREACH (call.group, &tgt->groups, link) {
		thread_call(call.group->thread, inflight_count_on_group, &call);
	}
	call.room += 64; /* more commands may arrive before the list is made */
	call.list = calloc(call.room, sizeof(*call.list));
	if (call.list == NULL) {
		return -ENOMEM;
	}
	TAILQ_FOREACH (call.group, &tgt->groups, link) {
		thread_call(call.group->thread, inflight_list_on_group, &call);
	}
	if (call.count == 0) {
		free(call.list);
		call.list = NULL;
	}
	*list = call.list;
	return (ssize_t)call.count;
}

struct late_call {
	struct nvmf_poll_group *group;
	struct nvmf_inflight *list;
	size_t count, room;
	uint64_t min_age_ticks;
};

static void inflight_list_late_on_group(void *arg)
{
	struct late_call *call = arg;
	struct nvmf_qpair *qpair;
	uint64_t now = env_ticks();

	TAILQ_FOREACH (qpair, &call->group->qpairs, group_link) {
		struct nvmf_request *req = nvmf_qpair_next_request(qpair, NULL);
		for (; req != NULL && call->count < call->room; req = nvmf_qpair_next_request(qpair, req)) {
			if (req->where != NVMF_REQUEST_HELD && now > req->start_ticks &&
			    now - req->start_ticks >= call->min_age_ticks) {
				nvmf_request_describe(req, &call->list[call->count++]);
			}
		}
	}
}

size_t nvmf_tgt_get_late(struct nvmf_tgt *tgt, uint64_t min_age_ticks, size_t max, struct nvmf_inflight *list)
{
	struct late_call call = {.list = list, .room = max, .min_age_ticks = min_age_ticks};

	TAILQ_FOREACH (call.group, &tgt->groups, link) {
		if (call.group->ctl_admin_qpairs + call.group->ctl_io_qpairs != 0) {
			thread_call(call.group->thread, inflight_list_late_on_group, &call);
		}
	}
	return call.count;
}

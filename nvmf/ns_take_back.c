/* SPDX-License-Identifier: BSD-3-Clause */
/* What becomes of a namespace's commands when it is removed, on a poll group's thread. Those that have begun end as
 * usual, and only then the namespace goes. All others are taken back and answered with a path error, so that hosts with
 * another path submit them there; so are those that arrive meanwhile.
 *
 * "Has begun" means that a module has had the I/O, or a part of it: such a command is never answered with a path error,
 * because the host would carry it out twice. What a module still holds after the target's limit (CQT), or has begun in
 * part, is taken back then, and answered with Command Abort Requested.
 *
 * A command may be held back again after it was with a module, so this is repeated, by a timer. The bdev's channel
 * knows what is in flight: a queue pair without commands of the namespace costs nothing. */
#include "nvmf/io_internal.h"

#define FIRST_LOOK_US UINT64_C(1000)
#define LAST_LOOK_US                                                                                                   \
	UINT64_C(64000) /* the time between two looks doubles up to this; hosts that repeat at once what               \
			   was answered with a path error are answered as often */

static void ns_view_look(void *arg)
{
	struct nvmf_ns_view *nsv = arg;
	uint64_t limit_us = nsv->view->group->tgt->quiesce_limit_ms * UINT64_C(1000);
	bool late = env_ticks() - nsv->removal_began_ticks > env_us_to_ticks(limit_us);

	/* before the last of them ends, after which the namespace may go at any time */
	thread_timer_start(&nsv->look_timer, nsv->look_us);
	nsv->look_us = nsv->look_us < LAST_LOOK_US ? 2 * nsv->look_us : LAST_LOOK_US;
	nvmf_view_purge_ns(nsv->view, nsv->nsid, NVME_ST(PATH, CTRL_PATH_ERROR));
	if (nsv->outstanding != 0) {
		bdev_channel_take_back(nsv->ch, nsv->desc, late);
	}
}

void nvmf_ns_view_begin_removal(struct nvmf_ns_view *nsv)
{
	nsv->removing = true;
	nsv->removal_began_ticks = env_ticks();
	nsv->look_us = FIRST_LOOK_US;
	nsv->look_timer = (struct thread_timer){.fn = ns_view_look, .arg = nsv};
	ns_view_look(nsv);
}

void nvmf_ns_view_end_removal(struct nvmf_ns_view *nsv)
{
	if (nsv->removing) {
		thread_timer_stop(&nsv->look_timer);
		nvmf_view_purge_ns(nsv->view, nsv->nsid, NVME_ST(PATH, CTRL_PATH_ERROR));
	}
}

/* Whether a bdev I/O of the command, before the one that has ended last, has been carried out. */
static bool request_is_partly_done(const struct nvmf_request *req)
{
	uint8_t opcode = req->sqe->opcode;

	return req->flushing || ((opcode == nvme_cmd_dsm || opcode == nvme_cmd_copy) && req->next_range > 1);
}

bool nvmf_io_may_go_elsewhere(const struct nvmf_request *req, uint16_t status)
{
	uint16_t code = status & (uint16_t)~NVME_SC_DNR;

	return (code == NVME_ST(GENERIC, ABORT_REQ) || code == NVME_ST(GENERIC, INVALID_NS) ||
		code == NVME_ST(PATH, CTRL_PATH_ERROR)) &&
	       bdev_io_was_untouched(&req->bdev_io) && !request_is_partly_done(req);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files that carry out I/O commands: io.c, io_ranges.c, md.c. The poll group's thread. */
#ifndef NVMF_IO_INTERNAL_H
#define NVMF_IO_INTERNAL_H

#include "nvmf/command_internal.h"
#include "nvmf/internal.h"

static inline const struct nvmf_command *nvmf_io_command(const struct nvmf_request *req)
{
	return &nvmf_io_commands[req->sqe->opcode];
}

static inline void nvmf_io_submit(struct nvmf_request *req)
{
	nvmf_request_set_where(req, NVMF_REQUEST_BDEV);
	bdev_submit(&req->bdev_io);
}

/* Prepares req->bdev_io; from here on the command counts as under way on the namespace. done: runs on the poll group
 * when the bdev I/O ends. */
static inline void nvmf_io_enter(struct nvmf_request *req, struct nvmf_ns_view *nsv, bdev_io_cb done)
{
	nvmf_ns_view_enter(nsv, req);
	bdev_io_init(&req->bdev_io, nsv->desc, nsv->ch, done, req);
	req->flushing = false;
	if (unlikely(nsv->geo.md_eighths != 0)) {
		nvmf_md_set(req, nsv);
	}
}

/* The command's bdev I/O has ended with this error: whether nothing of the command has been carried out, because it was
 * taken back, the bdev goes, or the bdev can only be used through another controller. Then it is answered with a path
 * error. */
bool nvmf_io_may_go_elsewhere(const struct nvmf_request *req, uint16_t status);

/* The status for the host of a command that must not be carried out twice (a fused pair, a command that is passed
 * through), when its bdev I/O has ended with this one and nvmf_io_may_go_elsewhere() is false. After a bdev's path
 * error the command may have been carried out before it was lost, and a host would repeat it. Pure. */
uint16_t nvmf_io_status_if_once(uint16_t status);

/* The end of a command's last bdev I/O: counts it, flushes the bdev if the command asks for that (FUA), and finishes
 * the command. A bdev_io_cb. */
void nvmf_io_done(struct bdev_io *io, void *arg);

#endif

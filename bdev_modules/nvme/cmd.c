/* SPDX-License-Identifier: BSD-3-Clause */
/* Commands that the control thread sends, because it owns the admin queue: admin commands that are passed through,
 * Aborts, resets; and raw commands of the RPC methods.
 *
 * An I/O is handed to the control thread by a message, and back by another one; both are struct bdev_nvme_io.msg. The
 * channel exists meanwhile, because the I/O is outstanding. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bdev_modules/nvme/internal.h"
#include "env_dpdk/env.h"
#include "util/log.h"
#include "util/iov.h"

static struct bdev_nvme_io *cmd_of_message(struct thread_msg *msg)
{
	return (struct bdev_nvme_io *)((uint8_t *)msg - offsetof(struct bdev_nvme_io, msg));
}

/* --- What may be passed through --- */

/* Bytes of data of a feature; 0: its value is in a dword. The size of a vendor's feature is unknown: 4096 is the most
 * that one PRP entry can address. */
static uint64_t cmd_feature_amount(uint8_t fid)
{
	switch (fid) {
	case NVME_FEAT_FID_FDP_EVENTS:
	case NVME_FEAT_FID_LBA_RANGE:
	case NVME_FEAT_FID_HOST_MEM_BUF:
	case NVME_FEAT_FID_ENH_CTRL_METADATA:
	case NVME_FEAT_FID_CTRL_METADATA:
	case NVME_FEAT_FID_NS_METADATA:
		return 4096;
	case NVME_FEAT_FID_AUTO_PST:
		return 256;
	case NVME_FEAT_FID_TIMESTAMP:
		return 8;
	case NVME_FEAT_FID_HOST_BEHAVIOR:
	case NVME_FEAT_FID_PLM_CONFIG:
		return 512;
	case NVME_FEAT_FID_HOST_ID:
		return 16;
	default:
		return fid >= 0xc0 ? 4096 : 0;
	}
}

/* The most bytes that a controller may move for an admin command. False: not known. */
static bool cmd_admin_amount(const struct nvme_sqe *cmd, uint64_t *amount)
{
	uint32_t cdw10 = le32toh(cmd->cdw10), cdw11 = le32toh(cmd->cdw11);

	*amount = 0;
	switch (cmd->opcode) {
	case nvme_admin_fw_commit:
	case nvme_admin_dev_self_test:
	case nvme_admin_virtual_mgmt:
	case nvme_admin_capacity_mgmt:
	case nvme_admin_lockdown:
	case nvme_admin_format_nvm:
	case nvme_admin_sanitize_nvm:
		return true;
	case nvme_admin_identify:
	case nvme_admin_ns_attach:
		*amount = 4096;
		return true;
	case nvme_admin_ns_mgmt: /* SEL: 0 is Create */
		*amount = (cdw10 & 0xf) == 0 ? 4096 : 0;
		return true;
	case nvme_admin_get_log_page: /* NUMDL and NUMDU, 0's based */
		*amount = ((cdw10 >> 16 | (uint64_t)(cdw11 & 0xffff) << 16) + 1) * 4;
		return true;
	case nvme_admin_get_features: /* SEL 3: its capabilities, a dword */
		*amount = (cdw10 >> 8 & 7) == 3 ? 0 : cmd_feature_amount((uint8_t)cdw10);
		return true;
	case nvme_admin_set_features:
		*amount = cmd_feature_amount((uint8_t)cdw10);
		return true;
	case nvme_admin_fw_download:
	case nvme_admin_directive_send:
	case nvme_admin_directive_recv:
		*amount = (cdw10 + UINT64_C(1)) * 4;
		return true;
	case nvme_admin_security_send:
	case nvme_admin_security_recv:
		*amount = cdw11;
		return true;
	case nvme_admin_get_lba_status:
		*amount = (le32toh(cmd->cdw12) + UINT64_C(1)) * 4;
		return true;
	default:
		return false;
	}
}

/* A data pointer of PRPs has no length: the buffer must be as large as the controller may assume, or it would access
 * memory behind it. */
static uint16_t cmd_check_admin_amount(const struct nvme_sqe *cmd, uint64_t data_len)
{
	uint64_t need;

	if (!cmd_admin_amount(cmd, &need)) {
		return NVME_ST_DNR(GENERIC, INVALID_OPCODE);
	}
	if (data_len < need) {
		return NVME_ST_DNR(GENERIC, SGL_INVALID_DATA);
	}
	return 0;
}

/* Refuses the commands and features that the driver itself uses: queues, events, Abort, doorbell buffers. */
uint16_t bdev_nvme_cmd_check_admin(const struct nvme_sqe *cmd, uint64_t data_len, bool fabrics)
{
	uint8_t fid = (uint8_t)le32toh(cmd->cdw10);

	switch (cmd->opcode) {
	case nvme_admin_delete_sq:
	case nvme_admin_create_sq:
	case nvme_admin_delete_cq:
	case nvme_admin_create_cq:
	case nvme_admin_abort_cmd:
	case nvme_admin_async_event:
	case nvme_admin_keep_alive:
	case nvme_admin_dbbuf:
	case nvme_admin_fabrics:
		return NVME_ST_DNR(GENERIC, INVALID_OPCODE);
	case nvme_admin_set_features:
		if (fid == NVME_FEAT_FID_NUM_QUEUES || fid == NVME_FEAT_FID_ASYNC_EVENT || fid == NVME_FEAT_FID_KATO ||
		    fid == NVME_FEAT_FID_HOST_MEM_BUF || fid == NVME_FEAT_FID_HOST_BEHAVIOR) {
			return NVME_ST_DNR(GENERIC, INVALID_FIELD);
		}
		break;
	default:
		break;
	}
	return fabrics ? 0 : cmd_check_admin_amount(cmd, data_len);
}

/* Bits 1:0 of an opcode are its data's direction (Base 3.3.3.1). In the standard's format for vendor specific commands
 * (Base figure 88) dword 10 is the number of dwords of data (NDT), dword 11 that of metadata (NDM). */
uint16_t bdev_nvme_cmd_check_vendor(const struct nvme_sqe *cmd, uint64_t data_len, bool fabrics, bool has_size)
{
	unsigned direction = cmd->opcode & 3;

	if (direction == 3) {
		return NVME_ST_DNR(GENERIC, INVALID_OPCODE);
	}
	if (direction == 0) {
		return data_len == 0 ? 0 : NVME_ST_DNR(GENERIC, SGL_INVALID_DATA);
	}
	if (fabrics) {
		return 0;
	}
	if (!has_size) {
		return NVME_ST_DNR(GENERIC, INVALID_OPCODE);
	}
	return le32toh(cmd->cdw10) * UINT64_C(4) == data_len && cmd->cdw11 == 0
		       ? 0
		       : NVME_ST_DNR(GENERIC, SGL_INVALID_DATA);
}

/* How many bytes a controller moves for a command. The caller's buffers must have as many, or the controller would
 * access memory behind them. */
struct amount {
	uint64_t data, md;
};

/* Metadata is moved with the data, interleaved or in a buffer of its own. With PRACT, metadata that is nothing but
 * protection information is not moved: the controller generates and strips it (NVM 5.2.2.1). */
static struct amount cmd_block_amount(const struct nvme_sqe *cmd, const struct nvme_ns *ns)
{
	uint32_t cdw12 = le32toh(cmd->cdw12);
	uint64_t blocks = (cdw12 & 0xffff) + UINT64_C(1);
	bool stripped = nvme_md_is_pi(ns->md_size, ns->pi_type, ns->pi_format) && (cdw12 & NVME_PI_ACT);
	uint64_t md = stripped ? 0 : blocks * ns->md_size;

	return ns->md_interleaved ? (struct amount){blocks * ns->block_size + md, 0}
				  : (struct amount){blocks * ns->block_size, md};
}

/* NVM 3.2.2: the source ranges of Copy, which have longer tags in formats 1 and 3. 0: the format is not known. */
static uint64_t cmd_copy_amount(uint32_t cdw12)
{
	static const uint8_t range_bytes[16] = {sizeof(struct nvme_copy_range), sizeof(struct nvme_copy_range_f1),
						sizeof(struct nvme_copy_range), sizeof(struct nvme_copy_range_f1)};

	return ((cdw12 & 0xff) + UINT64_C(1)) * range_bytes[cdw12 >> 8 & 0xf];
}

/* False: not known. */
static bool cmd_io_amount(const struct nvme_sqe *cmd, const struct nvme_ns *ns, struct amount *amount)
{
	*amount = (struct amount){0, 0};
	switch (cmd->opcode) {
	case nvme_cmd_flush:
	case nvme_cmd_write_uncor:
	case nvme_cmd_write_zeroes:
	case nvme_cmd_verify:
		return true;
	case nvme_cmd_write:
	case nvme_cmd_read:
	case nvme_cmd_compare:
		*amount = cmd_block_amount(cmd, ns);
		return true;
	case nvme_cmd_dsm:
		amount->data = ((le32toh(cmd->cdw10) & 0xff) + 1) * sizeof(struct nvme_dsm_range);
		return true;
	case nvme_cmd_copy:
		amount->data = cmd_copy_amount(le32toh(cmd->cdw12));
		return amount->data != 0;
	case nvme_cmd_resv_register:
	case nvme_cmd_resv_acquire:
		amount->data = 16;
		return true;
	case nvme_cmd_resv_release:
		amount->data = 8;
		return true;
	case nvme_cmd_resv_report:
		amount->data = (le32toh(cmd->cdw10) + UINT64_C(1)) * 4;
		return true;
	default:
		return false;
	}
}

uint16_t bdev_nvme_cmd_check_io(const struct nvme_sqe *cmd, uint64_t data_len, uint64_t md_len,
				const struct nvme_ns *ns)
{
	struct amount need;

	if (!cmd_io_amount(cmd, ns, &need)) {
		return NVME_ST_DNR(GENERIC, INVALID_OPCODE);
	}
	if (need.data != data_len) {
		return NVME_ST_DNR(GENERIC, SGL_INVALID_DATA);
	}
	if (need.md != md_len) {
		return NVME_ST_DNR(GENERIC, SGL_INVALID_METADATA);
	}
	return 0;
}

/* --- Back on the channel's thread --- */

static void cmd_end_message(struct thread_msg *msg)
{
	struct bdev_nvme_io *n = cmd_of_message(msg);

	n->place = BDEV_NVME_IO_NOWHERE;
	bdev_nvme_io_complete(n, n->status, n->cdw0);
}

/* Control thread: has n completed on the thread of its channel. */
static void cmd_post_end(struct bdev_nvme_io *n, uint16_t status, uint32_t cdw0)
{
	n->status = status;
	n->cdw0 = cdw0;
	thread_post(bdev_nvme_io_channel(n)->thread, &n->msg, cmd_end_message);
}

static void cmd_post_control(struct bdev_nvme_io *n, void (*fn)(struct thread_msg *msg))
{
	n->place = BDEV_NVME_IO_CONTROL;
	thread_post(thread_control(), &n->msg, fn);
}

/* --- Admin commands. Their data is copied through one contiguous DMA buffer. --- */

struct admin {
	struct bdev_nvme_io *n; /* NULL: a raw command, which ends in cb */
	bdev_nvme_raw_cb cb;
	void *cb_arg;
	struct bdev_nvme *c;
	bool to_device;
	void *bounce;
	uint32_t len;
	const struct iovec *iovs;
	uint32_t iovcnt;
	struct iovec iov; /* raw */
	uint8_t opcode;
	struct nvme_cqe cqe; /* the answer, while it is held until a fence is done */
	struct bdev_nvme_fence_wait wait;
};

static void cmd_admin_copy_iovs(struct admin *a, bool to_bounce)
{
	struct iov_cursor c = iov_cursor_at(a->iovs, 0);

	if (to_bounce) {
		iov_to_buffer(&c, a->bounce, iov_length(a->iovs, a->iovcnt));
	} else {
		iov_from_buffer(&c, a->bounce, iov_length(a->iovs, a->iovcnt));
	}
}

static void cmd_admin_free(struct admin *a)
{
	struct bdev_nvme *c = a->c;

	env_dma_free(a->bounce);
	free(a);
	if (c != NULL) {
		bdev_nvme_release(c);
	}
}

static void cmd_admin_done(void *arg, const struct nvme_cqe *cqe);

static void cmd_admin_fence_done(void *admin)
{
	struct admin *a = admin;

	cmd_admin_done(a, &a->cqe);
}

/* Keeps the answer to a command that was lost and may still be carried out. The controller need not stay meanwhile. */
static void cmd_admin_hold(struct admin *a, const struct nvme_cqe *cqe)
{
	struct bdev_nvme *c = a->c;

	a->cqe = *cqe;
	a->c = NULL;
	bdev_nvme_fence_wait(c->fence, &a->wait, cmd_admin_fence_done, a);
	bdev_nvme_release(c);
}

static void cmd_admin_done(void *arg, const struct nvme_cqe *cqe)
{
	struct admin *a = arg;
	uint16_t status = nvme_cqe_status(cqe);

	if (a->c != NULL && (status & BDEV_STATUS_MASK) == NVME_ST(GENERIC, ABORT_QUEUE) &&
	    bdev_nvme_fence_holds_admin(a->c, a->opcode)) {
		cmd_admin_hold(a, cqe);
		return;
	}

	if (status == 0 && !a->to_device && a->len != 0) {
		cmd_admin_copy_iovs(a, false);
	}
	if (a->n != NULL) {
		cmd_post_end(a->n,
			     (status & BDEV_STATUS_MASK) == NVME_ST(GENERIC, ABORT_QUEUE) ? BDEV_NVME_IO_PATH_ERROR
											  : status,
			     le32toh(cqe->dw0));
	} else {
		a->cb(a->cb_arg, 0, cqe);
	}
	cmd_admin_free(a);
}

/* 0, or a negative errno, and a has been freed. */
static int cmd_admin_send(struct admin *a, const struct nvme_sqe *cmd)
{
	int rc = 0;

	a->opcode = cmd->opcode;
	bdev_nvme_hold(a->c);
	if (a->len != 0) {
		a->bounce = env_dma_zmalloc(a->len, 4096, -1);
		rc = a->bounce != NULL ? 0 : -ENOMEM;
	}
	if (rc == 0 && a->to_device) {
		cmd_admin_copy_iovs(a, true);
	}
	if (rc == 0) {
		rc = a->c->ctrlr != NULL && a->c->state == BDEV_NVME_UP ? 0 : -ENXIO;
	}
	rc = rc != 0 ? rc : nvme_ctrlr_admin(a->c->ctrlr, cmd, a->bounce, a->len, a->to_device, cmd_admin_done, a);
	if (rc != 0) {
		cmd_admin_free(a);
	}
	return rc;
}

static uint16_t cmd_passthru_check(const struct bdev_nvme *c, const struct nvme_sqe *cmd, uint64_t len)
{
	if (cmd->opcode < BDEV_NVME_CMD_VENDOR_ADMIN) {
		return bdev_nvme_cmd_check_admin(cmd, len, nvme_trtype_is_fabrics(c->opts.trid.trtype));
	}
	bool has_size = c->ctrlr != NULL && (nvme_ctrlr_identify(c->ctrlr)->avscc & 1) != 0;
	return bdev_nvme_cmd_check_vendor(cmd, len, nvme_trtype_is_fabrics(c->opts.trid.trtype), has_size);
}

/* A copy for the controller: a namespace id becomes that of the bdev, and the submitter's data pointers, which are not
 * addresses of this host, are cleared. */
static struct nvme_sqe cmd_passthru_build(const struct bdev_io *io)
{
	struct nvme_sqe cmd = *(const struct nvme_sqe *)io->nvme.cmd;

	cmd.nsid = cmd.nsid != 0 ? htole32(bdev_nvme_ns_format(bdev_channel_bdev(io->ch))->nsid) : 0;
	cmd.flags = 0;
	cmd.mptr = cmd.prp1 = cmd.prp2 = 0;
	return cmd;
}

/* The controller that an admin command is sent to: one that is connected, with optimized access if there is one. */
static struct bdev_nvme *cmd_choose_ctrlr(struct bdev_nvme_io *n)
{
	const struct bdev_nvme_ns *d = (const struct bdev_nvme_ns *)bdev_channel_bdev(bdev_io_from_ctx(n)->ch);
	const struct bdev_nvme_path *path, *found = TAILQ_FIRST(&d->paths);

	TAILQ_FOREACH (path, &d->paths, link) {
		bool up = path->c->state == BDEV_NVME_UP && !path->leaving,
		     found_up = found->c->state == BDEV_NVME_UP && !found->leaving;
		if (up &&
		    (!found_up || (path->ana == NVME_ANA_STATE_OPTIMIZED && found->ana != NVME_ANA_STATE_OPTIMIZED))) {
			found = path;
		}
	}
	return found->c;
}

static void cmd_admin_message(struct thread_msg *msg)
{
	struct bdev_nvme_io *n = cmd_of_message(msg);
	const struct bdev_io *io = bdev_io_from_ctx(n);
	const struct nvme_sqe cmd = cmd_passthru_build(io);
	struct bdev_nvme *c = cmd_choose_ctrlr(n);
	uint64_t len = iov_length(io->iovs, io->iovcnt);

	uint16_t status = cmd_passthru_check(c, &cmd, len);
	if (status == 0 && len > BDEV_NVME_RAW_MAX) {
		status = NVME_ST_DNR(GENERIC, SGL_INVALID_DATA);
	}
	if (status != 0) {
		cmd_post_end(n, status, 0);
		return;
	}
	struct admin *a = calloc(1, sizeof(*a));
	int rc = -ENOMEM;
	if (a != NULL) {
		*a = (struct admin){.n = n,
				    .c = c,
				    .to_device = (cmd.opcode & 1) != 0,
				    .len = (uint32_t)len,
				    .iovs = io->iovs,
				    .iovcnt = io->iovcnt};
		rc = cmd_admin_send(a, &cmd);
	}
	if (rc != 0) {
		cmd_post_end(n, rc == -ENXIO ? BDEV_NVME_IO_PATH_ERROR : NVME_ST(GENERIC, CMD_INTERRUPTED), 0);
	}
}

void bdev_nvme_cmd_admin(struct bdev_nvme_io *n)
{
	cmd_post_control(n, cmd_admin_message);
}

/* --- Abort --- */

struct abort_cmd {
	struct bdev_nvme *c;
	void (*done)(void *arg, bool aborted);
	void *arg;
};

static void cmd_abort_done(void *arg, const struct nvme_cqe *cqe)
{
	struct abort_cmd a = *(struct abort_cmd *)arg;

	free(arg);
	a.c->aborts--;
	a.done(a.arg, nvme_cqe_status(cqe) == 0 && (le32toh(cqe->dw0) & 1) == 0); /* Base 5.1: bit 0 clear: aborted */
	bdev_nvme_release(a.c);
}

void bdev_nvme_cmd_send_abort(struct bdev_nvme *c, uint16_t sqid, uint16_t cid, void (*done)(void *arg, bool aborted),
			      void *arg)
{
	struct nvme_sqe cmd = {.opcode = nvme_admin_abort_cmd, .cdw10 = htole32((uint32_t)cid << 16 | sqid)};
	struct abort_cmd *a = NULL;

	/* ACL, 0's based: a controller refuses more Aborts at a time */
	if (c->state == BDEV_NVME_UP && c->aborts <= nvme_ctrlr_identify(c->ctrlr)->acl) {
		a = malloc(sizeof(*a));
	}
	if (a == NULL) {
		done(arg, false);
		return;
	}
	*a = (struct abort_cmd){.c = c, .done = done, .arg = arg};
	c->aborts++;
	bdev_nvme_hold(c);
	if (nvme_ctrlr_admin(c->ctrlr, &cmd, NULL, 0, false, cmd_abort_done, a) != 0) {
		c->aborts--;
		bdev_nvme_release(c);
		free(a);
		done(arg, false);
	}
}

static void cmd_abort_answered(void *arg, bool aborted)
{
	cmd_post_end(arg, 0, aborted ? 0 : 1);
}

static void cmd_abort_message(struct thread_msg *msg)
{
	struct bdev_nvme_io *n = cmd_of_message(msg);

	bdev_nvme_cmd_send_abort(n->qpair->c, n->target.sqid, n->target.cid, cmd_abort_answered, n);
}

void bdev_nvme_cmd_abort(struct bdev_nvme_io *n, struct bdev_nvme_io *target)
{
	struct bdev_nvme_qpair *qp = target->qpair;

	if (bdev_nvme_channel_take_back(bdev_nvme_io_channel(target), target)) {
		bdev_nvme_io_complete(target, NVME_ST(GENERIC, ABORT_REQ), 0);
		bdev_nvme_io_complete(n, 0, 0);
	} else if (target->place == BDEV_NVME_IO_SUBMITTED && qp->driver_qpair != NULL) {
		target->aborting = true;
		n->qpair = qp;
		n->target.sqid = nvme_qpair_id(qp->driver_qpair);
		n->target.cid = le16toh(target->req.cmd.cid);
		cmd_post_control(n, cmd_abort_message);
	} else {
		if (target->place == BDEV_NVME_IO_HELD && target->status == 0) {
			target->status = NVME_ST(GENERIC, ABORT_REQ); /* when its fence is done, not before */
		}
		bdev_nvme_io_complete(n, 0, 1);
	}
}

/* --- Reset --- */

/* A reset of a bdev resets all its connected controllers, so that the commands of each end. It succeeds if one of them
 * is ready again. */
struct resets {
	struct bdev_nvme_io *n;
	unsigned left;
	bool worked;
	uint64_t newest_fence; /* of the connections that there were before the reset */
	struct bdev_nvme_fence_wait wait;
};

/* A reset has not ended while commands from before it may still be carried out. It does not wait for connections that
 * were made and lost meanwhile: a target that comes and goes would keep it for ever. */
static void cmd_reset_finish(void *resets)
{
	struct resets *r = resets;
	const struct bdev_nvme_ns *d = (const struct bdev_nvme_ns *)bdev_channel_bdev(bdev_io_from_ctx(r->n)->ch);
	struct bdev_nvme_fence *f = bdev_nvme_fence_find(d->subsystem, r->newest_fence);

	if (f != NULL) {
		bdev_nvme_fence_wait(f, &r->wait, cmd_reset_finish, r);
		return;
	}
	cmd_post_end(r->n, r->worked ? 0 : BDEV_NVME_IO_PATH_ERROR, 0);
	free(r);
}

static void cmd_reset_done(void *arg, int rc, const char *error)
{
	struct resets *r = arg;

	r->worked |= rc == 0;
	if (--r->left == 0) {
		cmd_reset_finish(r);
	}
}

static void cmd_reset_message(struct thread_msg *msg)
{
	struct bdev_nvme_io *n = cmd_of_message(msg);
	const struct bdev_nvme_ns *d = (const struct bdev_nvme_ns *)bdev_channel_bdev(bdev_io_from_ctx(n)->ch);
	struct resets *r = malloc(sizeof(*r));
	const struct bdev_nvme_path *path;
	bool any_up = false;

	if (r == NULL) {
		cmd_post_end(n, NVME_ST(GENERIC, CMD_INTERRUPTED), 0);
		return;
	}
	*r = (struct resets){.n = n, .left = 1, .newest_fence = bdev_nvme_fence_newest()};
	TAILQ_FOREACH (path, &d->paths, link) {
		any_up |= path->c->state == BDEV_NVME_UP;
	}
	/* no path is freed meanwhile: that happens in a later turn of the control thread */
	TAILQ_FOREACH (path, &d->paths, link) {
		if (!path->leaving &&
		    (path->c->state == BDEV_NVME_UP || !any_up)) { /* a disconnected one has no commands */
			r->left++;
			bdev_nvme_reset(path->c, cmd_reset_done, r);
		}
	}
	cmd_reset_done(r, -ENODEV, NULL);
}

void bdev_nvme_cmd_reset(struct bdev_nvme_io *n)
{
	cmd_post_control(n, cmd_reset_message);
}

/* --- Raw commands. Control thread. --- */

struct raw_io {
	struct bdev_nvme *c;
	struct io_channel *ch;
	bdev_nvme_raw_cb cb;
	void *cb_arg;
	void *data, *bounce, *md;
	struct bdev_nvme_fence_wait wait;
	struct bdev_nvme_io n __attribute__((aligned(64))); /* last: the transport's part of the request follows */
};

static void raw_io_free(struct raw_io *r)
{
	struct bdev_nvme *c = r->c;

	env_dma_free(r->bounce);
	env_dma_free(r->n.req.md);
	if (r->ch != NULL) {
		io_channel_put(r->ch);
	}
	free(r);
	bdev_nvme_release(c);
}

void bdev_nvme_cmd_raw_complete(struct bdev_nvme_io *n, uint16_t status, uint32_t cdw0)
{
	struct raw_io *r = (struct raw_io *)((uint8_t *)n - offsetof(struct raw_io, n));
	struct nvme_cqe cqe = {.dw0 = htole32(cdw0), .cid = n->req.cmd.cid, .status = htole16((uint16_t)(status << 1))};

	if (status == 0 && !n->req.to_device && n->req.data_len != 0) {
		memcpy(r->data, r->bounce, n->req.data_len);
	}
	if (status == 0 && !n->req.to_device && n->req.md_len != 0) {
		memcpy(r->md, n->req.md, n->req.md_len);
	}
	r->cb(r->cb_arg, 0, &cqe);
	raw_io_free(r);
}

static void raw_io_fence_done(void *raw_io)
{
	struct raw_io *r = raw_io;

	bdev_nvme_cmd_raw_complete(&r->n, BDEV_NVME_IO_PATH_ERROR, 0);
}

void bdev_nvme_cmd_raw_hold(struct bdev_nvme_io *n, struct bdev_nvme_fence *f)
{
	struct raw_io *r = (struct raw_io *)((uint8_t *)n - offsetof(struct raw_io, n));

	n->place = BDEV_NVME_IO_CONTROL; /* raw commands are the control thread's */
	bdev_nvme_fence_wait(f, &r->wait, raw_io_fence_done, r);
}

static int raw_io_prepare(struct raw_io *r, const struct bdev_nvme_raw *raw)
{
	r->ch = io_channel_get(&r->c->device);
	if (r->ch == NULL) {
		return -ENOMEM;
	}
	if (raw->data_len != 0) {
		r->bounce = env_dma_zmalloc(raw->data_len, 4096, -1);
		if (r->bounce == NULL) {
			return -ENOMEM;
		}
	}
	if (raw->to_device && raw->data_len != 0) {
		memcpy(r->bounce, raw->data, raw->data_len);
	}
	if (raw->md_len != 0) {
		r->n.req.md = env_dma_zmalloc(raw->md_len, 4096, -1);
		if (r->n.req.md == NULL) {
			return -ENOMEM;
		}
		r->n.req.md_len = raw->md_len;
		if (raw->to_device) {
			memcpy(r->n.req.md, raw->md, raw->md_len);
		}
	}
	r->n.raw = true;
	r->n.iov = (struct iovec){.iov_base = r->bounce, .iov_len = raw->data_len};
	r->n.req.cmd = raw->cmd;
	r->n.req.cmd.flags = 0;
	r->n.req.iovs = &r->n.iov;
	r->n.req.iovcnt = raw->data_len != 0;
	r->n.req.data_len = raw->data_len;
	r->n.req.to_device = raw->to_device;
	return 0;
}

static int raw_io_send(struct bdev_nvme *c, const struct bdev_nvme_raw *raw, bdev_nvme_raw_cb cb, void *arg)
{
	size_t size = (offsetof(struct raw_io, n.req) + nvme_request_size() + 63) & ~(size_t)63;
	struct raw_io *r = aligned_alloc(64, size);

	if (r == NULL) {
		return -ENOMEM;
	}
	memset(r, 0, size);
	bdev_nvme_hold(c);
	*r = (struct raw_io){.c = c, .cb = cb, .cb_arg = arg, .data = raw->data, .md = raw->md};
	int rc = raw_io_prepare(r, raw);
	if (rc != 0) {
		raw_io_free(r);
		return rc;
	}
	bdev_nvme_qpair_submit(bdev_nvme_qpair_of(r->ch), &r->n);
	return 0;
}

static int raw_admin_send(struct bdev_nvme *c, const struct bdev_nvme_raw *raw, bdev_nvme_raw_cb cb, void *arg)
{
	struct admin *a = calloc(1, sizeof(*a));

	if (a == NULL) {
		return -ENOMEM;
	}
	*a = (struct admin){.cb = cb,
			    .cb_arg = arg,
			    .c = c,
			    .to_device = raw->to_device,
			    .len = raw->data_len,
			    .iovcnt = 1,
			    .iov = {.iov_base = raw->data, .iov_len = raw->data_len}};
	a->iovs = &a->iov;
	return cmd_admin_send(a, &raw->cmd);
}

/* The format of the namespace that a command is for, by which its lengths are checked. */
static const struct nvme_ns *raw_ns_format(const struct bdev_nvme *c, const struct nvme_sqe *cmd)
{
	static const struct nvme_ns none;
	uint32_t nsid = le32toh(cmd->nsid);
	const struct nvme_ns *ns = nsid != 0 ? nvme_ctrlr_next_ns(c->ctrlr, nsid - 1) : NULL;

	return ns != NULL && ns->nsid == nsid ? ns : &none;
}

void bdev_nvme_send(struct bdev_nvme *c, const struct bdev_nvme_raw *raw, bdev_nvme_raw_cb cb, void *arg)
{
	int rc = c->state == BDEV_NVME_UP && !nvme_ctrlr_is_ending(c->ctrlr) ? 0 : -ENXIO;
	uint16_t status = 0;

	if (rc == 0 && (raw->data_len > BDEV_NVME_RAW_MAX || raw->md_len > BDEV_NVME_RAW_MAX)) {
		rc = -E2BIG;
	}
	if (rc == 0 && raw->md_len != 0 && (!raw->io || nvme_trtype_is_fabrics(c->opts.trid.trtype))) {
		rc = -ENOTSUP; /* fabrics have no metadata pointer (Base 3.3.1.2) */
	}
	if (rc == 0) {
		status = raw->io ? bdev_nvme_cmd_check_io(&raw->cmd, raw->data_len, raw->md_len,
							  raw_ns_format(c, &raw->cmd))
				 : cmd_passthru_check(c, &raw->cmd, raw->data_len);
	}
	if (status != 0) {
		struct nvme_cqe cqe = {.status = htole16((uint16_t)(status << 1))};
		cb(arg, 0, &cqe);
		return;
	}
	rc = rc != 0 ? rc : raw->io ? raw_io_send(c, raw, cb, arg) : raw_admin_send(c, raw, cb, arg);
	if (rc != 0) {
		cb(arg, rc, NULL);
	}
}

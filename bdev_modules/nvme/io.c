/* SPDX-License-Identifier: BSD-3-Clause */
/* Builds NVMe commands for bdev I/O, and decides what their completions mean. Runs on the channel's thread. */
#include <rte_branch_prediction.h>
#include <string.h>

#include "bdev_modules/nvme/internal.h"
#include "env_dpdk/env.h"
#include "trace/trace.h"
#include "util/log.h"
#include "util/iov.h"

#define LOST_MAX       16  /* after so many lost queue pairs the I/O is suspected of causing the losses */
#define RETRY_DELAY_MS 10u /* for a controller that asks for no delay of its own */
/* Path-related errors: a target that ends its connections refuses commands so until they have ended. All retries
 * together take 13 s, as the delay doubles up to PATH_DELAY_SHIFT times. */
#define PATH_RETRIES     16
#define PATH_DELAY_SHIFT 7

/* --- What a completion means --- */

/* Errors after which the same command may succeed later. All others are final.
 *
 * Among them is Command Abort Requested that nobody asked for. Base 4.2.3.1 has it for a command that an Abort command
 * named, and 5.1 leaves open how much of such a command was carried out. A completion without Do Not Retry says that
 * the same command may succeed if it is submitted again, and that the controller works on it no more: so nothing lands
 * later than the retry. As after a lost queue pair (verdict LOST), a part may have landed the first time; another host
 * that writes the same blocks meanwhile, without a lock, has no order with it either way. What must not be carried out
 * twice is not repeatable, and does not come here. Targets end so what they held back when a namespace went. */
static bool status_is_transient(uint16_t code)
{
	switch (code) {
	case NVME_ST(GENERIC, ABORT_REQ):
	case NVME_ST(GENERIC, INTERNAL):
	case NVME_ST(GENERIC, DATA_XFER_ERROR):
	case NVME_ST(GENERIC, CMD_INTERRUPTED):
	case NVME_ST(GENERIC, TRAN_TPORT_ERROR):
	case NVME_ST(GENERIC, NS_NOT_READY):
	case NVME_ST(GENERIC, CMDID_CONFLICT):
		return true;
	default:
		return code >> NVME_SCT_SHIFT == NVME_SCT_PATH;
	}
}

/* The statuses of a controller that has no access to the namespace (Base 8.1.4). */
static bool status_is_no_access(uint16_t code)
{
	return code == NVME_ST(PATH, ANA_INACCESSIBLE) || code == NVME_ST(PATH, ANA_TRANSITION) ||
	       code == NVME_ST(PATH, ANA_PERSISTENT_LOSS);
}

/* The command was not carried out, and another path may take it; so may this one, or its successor, a while later. */
static enum bdev_nvme_verdict verdict_of_path_error(const struct bdev_nvme_verdict_facts *f, unsigned crd,
						    uint32_t *delay_ms)
{
	bool used_up = f->retry_limit >= 0 && f->retries >= f->retry_limit;
	unsigned shift = f->retries < PATH_DELAY_SHIFT ? f->retries : PATH_DELAY_SHIFT;

	if (f->retry_limit == 0 || (used_up && f->retries >= PATH_RETRIES)) {
		return BDEV_NVME_VERDICT_DONE;
	}
	if (f->others && !used_up) {
		return BDEV_NVME_VERDICT_ELSEWHERE;
	}
	*delay_ms = crd != 0 ? f->crdt[crd - 1] * 100u : RETRY_DELAY_MS << shift;
	return BDEV_NVME_VERDICT_RETRY;
}

enum bdev_nvme_verdict bdev_nvme_io_verdict(uint16_t status, const struct bdev_nvme_verdict_facts *f,
					    uint32_t *delay_ms)
{
	uint16_t code = status & BDEV_STATUS_MASK;
	unsigned crd = (status & NVME_SC_CRD) >> 11; /* Base 3.3.3.2.1: 0, or which of the controller's delays */

	*delay_ms = 0;
	if (unlikely(f->ana) && status_is_no_access(code) && !f->aborting && !(status & NVME_SC_DNR)) {
		return BDEV_NVME_VERDICT_NO_ACCESS; /* it was not carried out, so it may be repeated even if it is not
						       repeatable */
	}
	if (unlikely(code == NVME_ST(GENERIC, INVALID_NS)) && f->repeatable && f->others && !f->aborting &&
	    (f->retry_limit < 0 || f->retries < f->retry_limit)) {
		/* Removed from this controller's side; its notice is under way. Targets also end so what they had begun
		 * when the namespace went. */
		return BDEV_NVME_VERDICT_ELSEWHERE;
	}
	if (likely(status == 0) || !f->repeatable || (status & NVME_SC_DNR)) {
		return BDEV_NVME_VERDICT_DONE;
	}
	if (code == NVME_ST(GENERIC, ABORT_REQ) && (f->aborting || f->timed_out)) {
		/* Asked for. The controller has ended it: nothing of it lands later. */
		bool goes_on = !f->aborting && f->others && (f->retry_limit < 0 || f->retries < f->retry_limit);
		return goes_on ? BDEV_NVME_VERDICT_ELSEWHERE : BDEV_NVME_VERDICT_DONE;
	}
	if (code == NVME_ST(GENERIC, ABORT_QUEUE)) {
		return f->aborting ? BDEV_NVME_VERDICT_DONE : BDEV_NVME_VERDICT_LOST;
	}
	if (code >> NVME_SCT_SHIFT == NVME_SCT_PATH) {
		return verdict_of_path_error(f, crd, delay_ms);
	}
	if (f->retry_limit >= 0 && f->retries >= f->retry_limit) {
		return BDEV_NVME_VERDICT_DONE;
	}
	if (!status_is_transient(code)) {
		return BDEV_NVME_VERDICT_DONE;
	}
	if (code == NVME_ST(GENERIC, TRAN_TPORT_ERROR) && f->others) {
		return BDEV_NVME_VERDICT_ELSEWHERE; /* a data digest did not fit: the network of this path is at fault
						     */
	}
	*delay_ms = crd != 0 ? f->crdt[crd - 1] * 100u : RETRY_DELAY_MS;
	return BDEV_NVME_VERDICT_RETRY;
}

void bdev_nvme_io_complete(struct bdev_nvme_io *n, uint16_t status, uint32_t cdw0)
{
	if (unlikely(n->raw)) {
		bdev_nvme_cmd_raw_complete(n, status, cdw0);
		return;
	}
	struct bdev_io *io = bdev_io_from_ctx(n);
	TRACE(BDEV_NVME_IO_DONE, 0, 0, (uintptr_t)n, io);
	bdev_io_complete_cdw0(io, status, cdw0);
}

/* The status for the submitter of a command that was lost and is not submitted again: a path error, not "aborted". */
static uint16_t status_as_path_error(uint16_t status)
{
	return (status & BDEV_STATUS_MASK) == NVME_ST(GENERIC, ABORT_QUEUE) ? BDEV_NVME_IO_PATH_ERROR : status;
}

/* The delay after the n-th round of refusals for want of access. Delays grow with n; all LOST_MAX of them together take
 * as long as a transition may (ANATT). Base 8.1.4: a host is not to retry at once. */
static uint32_t no_access_delay_ms(const struct bdev_nvme *c, uint32_t round)
{
	return c->anatt_s * 1000u * round / (LOST_MAX * (LOST_MAX + 1) / 2);
}

/* A command was refused for want of access. It is tried on each other path at once; this path is used again when its
 * ANA log has been read. The log may grant an access that commands are refused, for example while a namespace moves
 * from one ANA group to another: then all paths come round again, and each further round is delayed. */
static void command_retry_elsewhere(struct bdev_nvme_channel *ch, struct bdev_nvme_io *n, uint16_t status)
{
	struct bdev_nvme_qpair *qp = n->qpair;

	bdev_nvme_channel_mark_stale(ch, qp);
	bdev_nvme_qpair_ask_ana(qp);
	if (++n->lost > LOST_MAX) {
		bdev_nvme_io_complete(n, status, 0);
	} else if (n->lost <= ch->num_paths) {
		bdev_nvme_channel_submit(ch, n);
	} else {
		bdev_nvme_qpair_delay(qp, n, no_access_delay_ms(qp->c, n->lost));
	}
}

/* The retry is logged, because the status that the I/O ends with may not show it. */
static void command_log_retry(const struct bdev_nvme_io *n, uint16_t status)
{
	log_limited(LOG_LEVEL_NOTICE, "%s: command 0x%02x: %s: it is submitted again", n->qpair->c->name,
		    n->req.cmd.opcode, nvme_status_text(status));
}

static void command_retry(struct bdev_nvme_io *n, enum bdev_nvme_verdict verdict, uint32_t delay_ms, uint16_t status)
{
	struct bdev_nvme_qpair *qp = n->qpair;
	struct bdev_nvme_channel *ch = n->raw ? NULL : bdev_nvme_io_channel(n);

	n->aborting = false;
	if (verdict == BDEV_NVME_VERDICT_RETRY) {
		n->retries = bdev_nvme_count_up(n->retries);
		command_log_retry(n, status);
		bdev_nvme_qpair_delay(qp, n, delay_ms);
		return;
	}
	if (verdict == BDEV_NVME_VERDICT_ELSEWHERE && ch->resetting) {
		bdev_nvme_io_complete(n, NVME_ST(GENERIC, ABORT_REQ), 0);
		return;
	}
	if (verdict == BDEV_NVME_VERDICT_ELSEWHERE) {
		n->retries = bdev_nvme_count_up(n->retries);
		command_log_retry(n, status);
		bdev_nvme_qpair_submit(bdev_nvme_channel_other_qpair(ch, qp), n);
		return;
	}
	if (verdict == BDEV_NVME_VERDICT_NO_ACCESS) {
		command_retry_elsewhere(ch, n, status);
		return;
	}
	if (ch != NULL) {
		bdev_nvme_io_submit_lost(n, qp->c->name);
	} else {
		bdev_nvme_qpair_submit(qp, n);
	}
}

void bdev_nvme_io_submit_lost(struct bdev_nvme_io *n, const char *name)
{
	struct bdev_nvme_channel *ch = bdev_nvme_io_channel(n);

	if (ch->resetting) {
		bdev_nvme_io_complete(n, NVME_ST(GENERIC, ABORT_REQ), 0);
	} else if (++n->lost > LOST_MAX) {
		log_limited(LOG_LEVEL_ERROR, "%s: command 0x%02x was lost with its queue pair %u times: it fails", name,
			    n->req.cmd.opcode, LOST_MAX);
		bdev_nvme_io_complete(n, BDEV_NVME_IO_PATH_ERROR, 0);
	} else {
		bdev_nvme_channel_submit(ch, n);
	}
}

/* A controller that is being disabled refuses or aborts what arrives, or has arrived, by statuses that would be final
 * otherwise; it has not carried the command out, or has ended it. */
static bool status_is_of_disabling(const struct bdev_nvme_io *n, uint16_t code)
{
	return n->qpair->broken && !n->aborting && n->repeatable &&
	       (code == NVME_ST(GENERIC, CMD_SEQ_ERROR) || code == NVME_ST(GENERIC, ABORT_REQ));
}

void bdev_nvme_io_ended(struct bdev_nvme_io *n, uint16_t status, uint32_t cdw0)
{
	uint32_t delay_ms;

	if (likely(status == 0)) {
		bdev_nvme_io_complete(n, 0, cdw0);
		return;
	}
	uint16_t code = status & BDEV_STATUS_MASK;
	if (!n->raw) {
		bdev_nvme_stat_error(n, status);
	}
	if (code == NVME_ST(GENERIC, ABORT_QUEUE) && nvme_request_was_lost(&n->req) && bdev_nvme_fence_hold(n)) {
		return;
	}
	if (!n->raw && status_is_of_disabling(n, code)) {
		status = NVME_ST(GENERIC, ABORT_QUEUE);
	}
	struct bdev_nvme_verdict_facts f = {.aborting = n->aborting,
					    .repeatable = n->repeatable,
					    .timed_out = nvme_request_was_late(&n->req),
					    .retries = n->retries,
					    .retry_limit = bdev_nvme_options.bdev_retry_count};
	memcpy(f.crdt, n->qpair->c->crdt, sizeof(f.crdt));
	if (!n->raw) {
		f.ana = n->qpair->c->has_ana;
		f.others = bdev_nvme_channel_other_qpair(bdev_nvme_io_channel(n), n->qpair) != NULL;
	}
	enum bdev_nvme_verdict verdict = bdev_nvme_io_verdict(status, &f, &delay_ms);
	if (verdict == BDEV_NVME_VERDICT_DONE) {
		bdev_nvme_io_complete(n, status_as_path_error(status), cdw0);
	} else {
		command_retry(n, verdict, delay_ms, status);
	}
}

/* --- Commands --- */

static void command_set_range(struct nvme_sqe *cmd, const struct bdev_io *io)
{
	cmd->cdw10 = htole32((uint32_t)io->offset_blocks);
	cmd->cdw11 = htole32((uint32_t)(io->offset_blocks >> 32));
	cmd->cdw12 = htole32((uint32_t)(io->num_blocks - 1)); /* 0's based; fits by max_rw_blocks */
}

static void command_set_data(struct bdev_nvme_io *n, const struct bdev_io *io, struct iovec *iovs, uint32_t iovcnt,
			     bool to_device)
{
	n->req.iovs = iovs;
	n->req.iovcnt = (uint16_t)iovcnt; /* fits by max_segments */
	n->req.to_device = to_device;
	n->req.data_len = (uint32_t)(io->num_blocks * bdev_channel_bdev(io->ch)->block_size);
}

static void command_init(struct bdev_nvme_io *n, const struct bdev_io *io)
{
	/* clears everything before the request, where another module may have left data */
	memset(n, 0, offsetof(struct bdev_nvme_io, req));
	memset(&n->req, 0, offsetof(struct nvme_request, transport));
	n->repeatable = true;
	TRACE(BDEV_NVME_IO_START, 0, 0, (uintptr_t)n, io);
}

/* The command may take any of the channel's paths, so each controller must be known not to move more than len. */
static uint16_t command_check_vendor(const struct bdev_nvme_channel *ch, const struct nvme_sqe *cmd, uint64_t len)
{
	uint16_t status = 0;

	for (unsigned i = 0; i < ch->num_paths && status == 0; i++) {
		const struct bdev_nvme *c = ch->paths[i].path != NULL ? ch->paths[i].qpair->c : NULL;
		if (c != NULL) {
			status = bdev_nvme_cmd_check_vendor(cmd, len, nvme_trtype_is_fabrics(c->opts.trid.trtype),
							    c->sizes_vendor_io);
		}
	}
	return status;
}

static uint16_t command_pass_through(struct bdev_nvme_io *n, const struct bdev_io *io,
				     const struct bdev_nvme_channel *ch)
{
	uint64_t len = iov_length(io->iovs, io->iovcnt);

	memcpy(&n->req.cmd, io->nvme.cmd, sizeof(n->req.cmd));
	uint16_t status =
		n->req.cmd.opcode >= BDEV_NVME_CMD_VENDOR_IO
			? command_check_vendor(ch, &n->req.cmd, len)
			: bdev_nvme_cmd_check_io(&n->req.cmd, len, 0, bdev_nvme_ns_format(bdev_channel_bdev(io->ch)));
	if (status != 0) {
		return status;
	}
	n->req.cmd.nsid = htole32(ch->nsid); /* the bdev's namespace, whatever the submitter wrote */
	n->req.cmd.flags = 0;
	n->req.cmd.mptr = n->req.cmd.prp1 = n->req.cmd.prp2 =
		0; /* the submitter's data pointers are not addresses of this host */
	n->req.iovs = io->iovs;
	n->req.iovcnt = (uint16_t)io->iovcnt;
	n->req.data_len = (uint32_t)len;
	n->req.to_device =
		(n->req.cmd.opcode & 1) != 0; /* Base 3.3.3.1: bits 1:0 of an opcode are the direction of data */
	n->repeatable = false;                /* its effect is not known */
	return 0;
}

/* Builds everything but reads and writes. True: n is to be submitted; false: it has been dealt with. */
static bool command_build_other(struct bdev_nvme_io *n, struct bdev_io *io, struct bdev_nvme_channel *ch)
{
	struct nvme_sqe *cmd = &n->req.cmd;
	uint16_t status;

	switch (io->type) {
	case BDEV_IO_FLUSH:
		cmd->opcode = nvme_cmd_flush;
		n->everywhere = true;
		return true;
	case BDEV_IO_UNMAP:
		cmd->opcode = nvme_cmd_dsm;
		cmd->cdw11 = htole32(NVME_DSMGMT_AD); /* cdw10: one range, 0's based */
		n->wants_range = true;
		return true;
	case BDEV_IO_WRITE_ZEROES:
		cmd->opcode = nvme_cmd_write_zeroes;
		command_set_range(cmd, io);
		return true;
	case BDEV_IO_COPY: /* one range of format 0: NR, in dword 12, is 0's based */
		cmd->opcode = nvme_cmd_copy;
		cmd->cdw10 = htole32((uint32_t)io->offset_blocks);
		cmd->cdw11 = htole32((uint32_t)(io->offset_blocks >> 32));
		n->wants_range = true;
		return true;
	case BDEV_IO_VERIFY:
		cmd->opcode = nvme_cmd_verify;
		command_set_range(cmd, io);
		return true;
	case BDEV_IO_WRITE_UNCORRECTABLE:
		cmd->opcode = nvme_cmd_write_uncor;
		command_set_range(cmd, io);
		return true;
	case BDEV_IO_COMPARE:
		cmd->opcode = nvme_cmd_compare;
		command_set_range(cmd, io);
		command_set_data(n, io, io->iovs, io->iovcnt, true);
		return true;
	case BDEV_IO_COMPARE_AND_WRITE:
		cmd->opcode = nvme_cmd_compare;
		cmd->flags = NVME_FUSE_FIRST;
		command_set_range(cmd, io);
		command_set_data(n, io, io->compare.iovs, io->compare.iovcnt, true);
		n->fused = true;
		n->repeatable = false; /* if it was carried out before it was lost, the compare would fail now */
		return true;
	case BDEV_IO_NVME_IO:
		status = command_pass_through(n, io, ch);
		if (status != 0) {
			bdev_nvme_io_complete(n, status, 0);
		}
		return status == 0;
	case BDEV_IO_NVME_ADMIN:
		bdev_nvme_cmd_admin(n);
		return false;
	case BDEV_IO_ABORT:
		bdev_nvme_cmd_abort(n, bdev_io_ctx(io->abort.target));
		return false;
	default: /* RESET: io_types allows no others */
		bdev_nvme_cmd_reset(n);
		return false;
	}
}

/* A command that is held has begun: the controller that it was lost with may still carry it out. It ends with its
 * fence, and is not submitted again. */
void bdev_nvme_io_take_back(void *channel, struct bdev_io *io)
{
	struct bdev_nvme_io *n = bdev_io_ctx(io);

	if (n->place == BDEV_NVME_IO_HELD && n->status == 0) {
		n->status = NVME_ST(GENERIC, ABORT_REQ); /* when its fence is done, not before */
	} else if (n->unfenced || !bdev_nvme_channel_take_back(channel, n)) {
		return;
	} else if (n->lost != 0 || n->retries != 0 || (n->everywhere && n->flushed != 0)) {
		/* some controller has had it */
		bdev_nvme_io_complete(n, NVME_ST(GENERIC, ABORT_REQ), 0);
	} else {
		TRACE(BDEV_NVME_IO_DONE, 0, 0, (uintptr_t)n, io);
		bdev_io_complete_untouched(io, NVME_ST(GENERIC, ABORT_REQ));
	}
}

static NOINLINE void command_add_extras(struct bdev_nvme_io *n, const struct bdev_io *io,
					const struct bdev_nvme_channel *ch)
{
	if (ch->has_md) {
		bdev_nvme_md_set(n, io);
	}
	if (ch->counts) {
		bdev_nvme_stat_begin(n, io);
	}
}

void bdev_nvme_io_submit(void *channel, struct bdev_io *io)
{
	struct bdev_nvme_channel *ch = channel;
	struct bdev_nvme_io *n = bdev_io_ctx(io);

	command_init(n, io);
	n->req.cmd.nsid = htole32(ch->nsid);
	if (likely(io->type == BDEV_IO_READ || io->type == BDEV_IO_WRITE)) {
		n->req.cmd.opcode = io->type == BDEV_IO_READ ? nvme_cmd_read : nvme_cmd_write;
		command_set_range(&n->req.cmd, io);
		command_set_data(n, io, io->iovs, io->iovcnt, io->type == BDEV_IO_WRITE);
	} else if (!command_build_other(n, io, ch)) {
		return;
	}
	if (unlikely(ch->has_extras)) {
		command_add_extras(n, io, ch);
	}
	if (io->type != BDEV_IO_RESET && unlikely(ch->resetting)) {
		ch->resetting = false; /* the bdev layer submits nothing before the reset has ended: it has */
	}
	bdev_nvme_channel_submit(ch, n);
}

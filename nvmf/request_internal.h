/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests: their arrival, execution and end. request.c, qpair.c, io.c, md.c, passthru.c, admin*.c, abort.c,
 * discovery.c. Which commands there are: command_internal.h. */
#ifndef NVMF_REQUEST_INTERNAL_H
#define NVMF_REQUEST_INTERNAL_H

#include "nvmf/transport.h"

struct nvmf_command;

/* ---- Group ---- */

/* Finishes a request: fills in its completion and gives it to the transport. */
void nvmf_request_finish(struct nvmf_request *req, uint16_t status);
/* The same; location: the field of the command that is bad (NVMF_WHERE...). */
void nvmf_request_finish_at(struct nvmf_request *req, uint16_t status, uint16_t location);
/* On arrival: finishes a request without data, for the transport to complete. Returns NVMF_NEXT_COMPLETE. */
enum nvmf_next nvmf_request_reject(struct nvmf_request *req, uint16_t status, uint16_t location);
/* On arrival: decodes the data pointer of a command that transfers `length` bytes. */
enum nvmf_next nvmf_request_data(struct nvmf_request *req, uint8_t xfer, uint64_t length);
/* The same for blocks, of which the caller has checked that they are not too many. */
enum nvmf_next nvmf_request_blocks(struct nvmf_request *req, uint8_t xfer, uint64_t length);

/* Fills the buffers of a command that sends data to the host with zeroes. Buffers are shared by all hosts and keep what
 * was in them last, and all of them is sent, so every command whose data are not blocks begins with this: what it does
 * not write is zero. A Read needs none, because a bdev that reports success has written all blocks. Group. */
void nvmf_request_clear_buffer(struct nvmf_request *req);

/* Notes who has the request now. */
static inline void nvmf_request_set_where(struct nvmf_request *req, enum nvmf_request_where where)
{
	req->where = (uint8_t)where;
	if (where != NVMF_REQUEST_TRANSPORT) { /* the transport has timestamps of its own */
		req->where_ticks = thread_now();
	}
}

/* An I/O command arrives. */
enum nvmf_next nvmf_io_start(struct nvmf_request *req);
/* An I/O command has waited for its namespace or for a rate limit, and goes on as if it arrived now. */
void nvmf_io_restart(struct nvmf_request *req);
/* Carries out an I/O command, whose data are there. */
void nvmf_io_exec(struct nvmf_request *req);
/* The namespace of a command; NULL, and the status that the command has to end with, if it may not access it. */
struct nvmf_ns_view *nvmf_io_find_ns(const struct nvmf_request *req, uint32_t nsid, uint16_t *status);
/* One command of a fused pair has failed: the other fails too. */
void nvmf_fused_peer_ended(struct nvmf_request *req, uint16_t status);

/* A command arrives on an admin queue, or on a queue that is not connected. */
enum nvmf_next nvmf_admin_start(struct nvmf_request *req);
/* A fabrics command arrives, on any queue. */
enum nvmf_next nvmf_fabrics_start(struct nvmf_request *req);
/* Carries out an admin or fabrics command, whose data are there. */
void nvmf_admin_exec(struct nvmf_request *req);

/* A vendor specific command arrives: an I/O command, or an admin command. */
enum nvmf_next nvmf_passthru_start(struct nvmf_request *req, const struct nvmf_ns_view *nsv);
enum nvmf_next nvmf_passthru_admin_start(struct nvmf_request *req);

/* Asks the bdev to abort the I/O of a command. The bdev_io of the request `abort` is used for that, and it counts as
 * under way on the namespace until done() calls nvmf_ns_view_leave(). */
void nvmf_abort_in_bdev(struct nvmf_request *abort, struct nvmf_request *victim, bdev_io_cb done, void *arg);

/* Changes the state of a queue pair, with its trace event and probe. */
void nvmf_qpair_set_state(struct nvmf_qpair *qpair, enum nvmf_qpair_state state);
/* The target ends the queue pair: QUIESCING. Commands that have not begun are taken back and answered with a path
 * error, as are those that arrive; when those that have begun have been answered, nvmf_ctrlr_qpair_quiesced() is called
 * on the control thread. why: as for nvmf_qpair_disconnect(). */
void nvmf_qpair_quiesce(struct nvmf_qpair *qpair, const char *why);
/* A queue pair has become QUIESCING or DISCONNECTING: takes commands back, now and repeatedly until it is CLOSED or
 * quiesced. */
void nvmf_qpair_begin_end(struct nvmf_qpair *qpair);
/* Control thread: the queue pair is ending. Reports, after the target's limit (CQT) and then every minute, which
 * command it still waits for, until late_timer is stopped. */
void nvmf_qpair_watch_end(struct nvmf_qpair *qpair);
/* The request whose bdev_io carries the command out: for both commands of a fused pair it is the second one's. Group.
 */
static inline struct nvmf_request *nvmf_request_io_owner(const struct nvmf_request *req)
{
	return req->fuse == NVME_FUSE_FIRST && req->fuse_peer != NULL ? req->fuse_peer : (struct nvmf_request *)req;
}
/* Fills in what nvmf_get_inflight tells of a command. */
void nvmf_request_describe(const struct nvmf_request *req, struct nvmf_inflight *out);
/* The status of commands that are not carried out because their queue pair is not ENABLED any more. */
uint16_t nvmf_qpair_end_status(const struct nvmf_qpair *qpair);
/* Connect has succeeded; ctrlr, view and qid are set. */
void nvmf_qpair_connected(struct nvmf_qpair *qpair);

/* ---- Metadata: md.c. Group, but for the last two functions ---- */

/* A namespace's geometry as hosts of a transport see it: its metadata may be hidden. */
struct nvmf_geometry nvmf_md_seen(const struct nvmf_transport *t, const struct nvmf_geometry *geo);
/* The range of a Read, Write or Compare, and the bytes it transfers with metadata. Returns a status. */
uint16_t nvmf_md_decode_rw(const struct nvmf_request *req, const struct nvmf_ns_view *nsv, struct nvmf_lba_range *range,
			   uint64_t *bytes, uint16_t *where);
/* Whether the host has said that it knows the namespace's format, where that is an extended one: a status. The three
 * functions beside it ask this, too; without it no command may touch the blocks (NVM 4.1.3.6.1). */
uint16_t nvmf_md_check_host(const struct nvmf_request *req, const struct nvmf_ns_view *nsv, uint16_t *where);
/* Checks the protection information fields of a command that transfers no blocks. Returns a status. */
uint16_t nvmf_md_check(const struct nvmf_request *req, const struct nvmf_ns_view *nsv, uint16_t *where);
/* Whether Copy is possible with the namespace's protection information: a status. */
uint16_t nvmf_md_check_copy(const struct nvmf_request *req, const struct nvmf_ns_view *nsv,
			    const struct nvmf_copy *copy, uint16_t *where);
/* Sets in req->bdev_io what the command wants of the metadata. The command has been decoded without an error. */
void nvmf_md_set(struct nvmf_request *req, const struct nvmf_ns_view *nsv);
/* Fills in the metadata fields of Identify Namespace. */
void nvmf_md_identify(const struct nvmf_transport *t, const struct nvmf_ns *ns, struct nvme_id_ns *id);
/* ... and in that of the NVM command set (NVM 4.1.5.3). */
void nvmf_md_identify_nvm(const struct nvmf_transport *t, const struct nvmf_ns *ns, struct nvme_nvm_id_ns *id);
/* Fills in the metadata fields of a new namespace's geometry. -EINVAL: the bdev's metadata cannot be exposed. */
int nvmf_md_geometry(const struct nvmf_ns *ns, struct nvmf_geometry *geo);

/* ---- Control thread ---- */

/* Sends a request back to its group, which finishes it. The control thread must not touch it after that. */
void nvmf_request_answer(struct nvmf_request *req, uint16_t status);
/* The same; location: the field of the command that is bad. */
void nvmf_request_answer_at(struct nvmf_request *req, uint16_t status, uint16_t location);
/* The controller of a request's queue pair; NULL before Connect. */
struct nvmf_ctrlr *nvmf_request_ctrlr(const struct nvmf_request *req);
/* Whether the controller carries out an admin command in its present state: a status. */
uint16_t nvmf_admin_check(const struct nvmf_request *req, const struct nvmf_command *cmd);

/* The request's data buffer as a window on something longer, such as a log page: bytes [start, start + req->length). It
 * is zeroed before the command is carried out. */
struct nvmf_window {
	struct nvmf_request *req;
	uint64_t start;
};
/* Copies that part of [at, at + len) that is in the window. */
void nvmf_window_put(struct nvmf_window *w, uint64_t at, const void *data, size_t len);
/* Copies the request's data out of its buffers, at most len bytes. Returns how many. Any thread that has the request.
 */
size_t nvmf_request_copy_data(const struct nvmf_request *req, void *to, size_t len);
/* Fills a text field of Identify or of a log page: padded with spaces, not terminated (Base 1.4.2). */
void nvmf_put_padded(char *field, size_t size, const char *text);

/* Writes the discovery log as a controller's host sees it. Returns its length in bytes. */
uint64_t nvmf_discovery_log(struct nvmf_ctrlr *ctrlr, struct nvmf_window *w);
/* Adds the vendor specific commands of the namespaces that a controller's host sees to its effects log. */
void nvmf_passthru_effects(const struct nvmf_ctrlr *ctrlr, struct nvme_cmd_effects_log *log);

#endif

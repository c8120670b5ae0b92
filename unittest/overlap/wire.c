/* SPDX-License-Identifier: BSD-3-Clause */
#include "unittest/overlap/wire.h"

#include <errno.h>

#include "nvme/transport.h"
#include "unittest/overlap/overlap.h"

#define ENTRIES      31 /* commands of a queue */
#define CONNECT_US   1000
#define SEGMENTS     16
#define MAX_TRANSFER 65536

/* A command on its way. It is the link's: the target may still use its memory when the host has given it up. */
struct wire_cmd {
	TAILQ_ENTRY(wire_cmd) link;
	uint8_t *data;
	struct loop_cmd *cmd; /* without most of its in-capsule data */
};

struct wire_qpair;
/* A connection, until both sides have left it. */
struct wire_link {
	TAILQ_ENTRY(wire_link) link;
	struct wire_qpair *qpair; /* NULL: the host has left */
	struct loop_conn *conn;
	TAILQ_HEAD(, wire_cmd) cmds;
	bool cut;  /* the target hears nothing any more, not even that the host has left */
	bool deaf; /* the host hears nothing any more */
	bool lost; /* the host knows that the connection is lost */
	bool hung_up;
};
static TAILQ_HEAD(, wire_link) links = TAILQ_HEAD_INITIALIZER(links);

struct wire_qpair {
	struct nvme_qpair base; /* first */
	struct wire_link *link;
	struct thread_timer timer; /* looks whether it is connected */
};

void ov_wire_reset(void)
{
	if (!TAILQ_EMPTY(&links)) {
		ov_fail("connections of an earlier run are left");
	}
}

void ov_wire_address(unsigned t, const struct nvmf_address *address, char text[OV_WIRE_ADDRESS_MAX])
{
	snprintf(text, OV_WIRE_ADDRESS_MAX, "T%u.%s", t % OV_TGTS, address->traddr);
}

static const struct nvmf_address *wire_address(const char *traddr, unsigned *t)
{
	const char *dot = strchr(traddr, '.');

	*t = dot != NULL && traddr[1] == '1';
	traddr = dot != NULL ? dot + 1 : traddr;
	return strcmp(traddr, loop_other_address.traddr) == 0 ? &loop_other_address : &loop_address;
}

/* ---- Links ---- */

static struct wire_link *link_open(const struct nvme_trid *trid, uint16_t qid)
{
	unsigned t;
	const struct nvmf_address *address = wire_address(trid->traddr, &t);
	struct nvmf_tgt *tgt = ov_tgt(t);
	struct loop_conn *conn =
		tgt != NULL && nvmf_transport_find(tgt, "LOOP") != NULL ? loop_open_begin(tgt, address, qid) : NULL;

	if (conn == NULL) {
		return NULL;
	}
	struct wire_link *l = calloc(1, sizeof(*l));
	l->conn = conn;
	TAILQ_INIT(&l->cmds);
	TAILQ_INSERT_TAIL(&links, l, link);
	return l;
}

static void cmd_free(struct wire_link *l, struct wire_cmd *c)
{
	TAILQ_REMOVE(&l->cmds, c, link);
	free(c->data);
	free(c->cmd);
	free(c);
}

/* The host hears of an end of the connection. */
static bool link_is_lost(const struct wire_link *l)
{
	return l->lost || (!l->deaf && atomic_load(&l->conn->closed));
}

static void link_hang_up(struct wire_link *l)
{
	if (l->cut || l->hung_up || !atomic_load(&l->conn->added) || atomic_load(&l->conn->closed)) {
		return;
	}
	l->hung_up = true;
	loop_hang_up(l->conn);
}

static void link_leave(struct wire_link *l)
{
	l->qpair = NULL;
	link_hang_up(l);
}

static bool link_is_over(const struct wire_link *l)
{
	return l->qpair == NULL && atomic_load(&l->conn->closed) && atomic_load(&l->conn->outstanding) == 0;
}

void ov_wire_advance(void)
{
	struct wire_link *l, *next;

	for (l = TAILQ_FIRST(&links); l != NULL; l = next) {
		next = TAILQ_NEXT(l, link);
		if (l->qpair == NULL) {
			link_hang_up(l);
		}
		if (link_is_over(l)) {
			while (!TAILQ_EMPTY(&l->cmds)) {
				cmd_free(l, TAILQ_FIRST(&l->cmds));
			}
			TAILQ_REMOVE(&links, l, link);
			free(l->conn);
			free(l);
		}
	}
}

static void link_lose(struct wire_link *l, enum ov_loss how)
{
	ov_say("a connection of queue %u is lost: %s", l->qpair->base.id,
	       how == OV_LOSS_BOTH   ? "both sides notice"
	       : how == OV_LOSS_HOST ? "the host notices"
				     : "nobody notices");
	l->lost = l->lost || how != OV_LOSS_SILENT;
	l->cut = how != OV_LOSS_BOTH;
	l->deaf = true;
	if (how == OV_LOSS_BOTH) {
		link_hang_up(l);
	}
}

void ov_wire_lose(unsigned number, enum ov_loss how, bool whole)
{
	struct wire_link *l, *picked = NULL;
	unsigned n = 0;

	TAILQ_FOREACH (l, &links, link) {
		n += l->qpair != NULL && !l->deaf;
	}
	number = n != 0 ? number % n : 0;
	TAILQ_FOREACH (l, &links, link) {
		if (l->qpair != NULL && !l->deaf && number-- == 0) {
			picked = l;
			break;
		}
	}
	if (picked == NULL) {
		return;
	}
	const struct nvme_ctrlr *ctrlr = picked->qpair->base.ctrlr;
	TAILQ_FOREACH (l, &links, link) {
		if (l == picked || (whole && l->qpair != NULL && l->qpair->base.ctrlr == ctrlr && !l->deaf)) {
			link_lose(l, how);
		}
	}
}

void ov_wire_heal(void)
{
	struct wire_link *l;

	TAILQ_FOREACH (l, &links, link) {
		if (l->cut) {
			l->cut = false;
			l->lost = true;
			link_hang_up(l);
		}
	}
}

bool ov_wire_has_answers(void)
{
	const struct wire_link *l;
	const struct wire_cmd *c;

	TAILQ_FOREACH (l, &links, link) {
		if (l->qpair == NULL || l->deaf || l->qpair->base.failed) {
			continue;
		}
		TAILQ_FOREACH (c, &l->cmds, link) {
			if (atomic_load(&c->cmd->done)) {
				return true;
			}
		}
	}
	return false;
}

bool ov_wire_is_gone(void)
{
	return TAILQ_EMPTY(&links);
}

void ov_wire_print(void)
{
	const struct wire_link *l;

	TAILQ_FOREACH (l, &links, link) {
		fprintf(stderr, "  wire: queue %d of %s: cut %d, deaf %d, lost %d, closed %d, %u outstanding\n",
			l->qpair != NULL ? l->qpair->base.id : -1,
			l->qpair != NULL ? l->qpair->base.ctrlr->trid.traddr : "a host that has left", l->cut, l->deaf,
			l->lost, atomic_load(&l->conn->closed), atomic_load(&l->conn->outstanding));
	}
}

/* ---- Commands ---- */

static void request_copy(struct nvme_request *req, uint8_t *data, bool to_host)
{
	uint32_t left = req->data_len;

	for (uint32_t i = 0; i < req->iovcnt && left != 0; i++) {
		size_t n = req->iovs[i].iov_len < left ? req->iovs[i].iov_len : left;
		memcpy(to_host ? req->iovs[i].iov_base : data, to_host ? data : req->iovs[i].iov_base, n);
		data += n;
		left -= (uint32_t)n;
	}
}

static int wire_submit(struct nvme_qpair *base, struct nvme_request *req)
{
	struct wire_link *l = ((struct wire_qpair *)base)->link;

	if (l->cut || l->lost || l->hung_up || atomic_load(&l->conn->closed)) {
		return 0; /* nothing arrives */
	}
	struct wire_cmd *c = calloc(1, sizeof(*c));
	c->cmd = calloc(1, offsetof(struct loop_cmd, icd) + 64);
	loop_cmd_init(c->cmd, l->conn, 0, 0);
	c->cmd->sqe = req->cmd;
	c->cmd->sqe.flags = (uint8_t)((req->cmd.flags & NVME_CMD_FLAGS_FUSE_MASK) | NVME_CMD_FLAGS_PSDT_SGL);
	memset(&c->cmd->sqe.sgl1, 0, sizeof(c->cmd->sqe.sgl1));
	if (req->data_len != 0) {
		c->data = calloc(1, req->data_len);
		if (req->to_device) {
			request_copy(req, c->data, false);
		}
		loop_cmd_data(c->cmd, c->data, req->data_len);
	}
	TAILQ_INSERT_TAIL(&l->cmds, c, link);
	loop_submit(c->cmd);
	return 0;
}

static void wire_flush(struct nvme_qpair *base)
{
}

static struct wire_cmd *link_next_answer(const struct wire_link *l)
{
	struct wire_cmd *c;

	TAILQ_FOREACH (c, &l->cmds, link) {
		if (atomic_load(&c->cmd->done) && nvme_cqe_status(&c->cmd->cqe) != LOOP_STATUS_GONE) {
			break;
		}
	}
	return c;
}

static void answer_take(struct wire_qpair *q, struct wire_cmd *c)
{
	struct nvme_cqe cqe = c->cmd->cqe;
	struct nvme_request *req = nvme_qpair_request(&q->base, le16toh(cqe.cid));

	if (req != NULL && !req->to_device && c->data != NULL) {
		request_copy(req, c->data, true);
	}
	cmd_free(q->link, c);
	nvme_qpair_complete(&q->base, &cqe);
}

static int wire_poll(struct nvme_qpair *base, uint32_t max)
{
	struct wire_qpair *q = (struct wire_qpair *)base;
	struct wire_cmd *c;
	int n = 0;

	while (!q->link->deaf && !base->failed && (max == 0 || n < (int)max) &&
	       (c = link_next_answer(q->link)) != NULL) {
		answer_take(q, c);
		n++;
	}
	if (!base->failed && link_is_lost(q->link)) {
		if (base->created || base->id == 0) {
			nvme_qpair_fail(base);
		}
		return -ENXIO;
	}
	return base->failed ? -ENXIO : n;
}

static int wire_fd(const struct nvme_qpair *base)
{
	return -1;
}

static bool wire_arm(struct nvme_qpair *base)
{
	return false;
}

/* ---- Queue pairs ---- */

static void wire_connect_end(struct wire_qpair *q, int error)
{
	if (q->base.id == 0) {
		nvme_ctrlr_connected(q->base.ctrlr, error, "the remote target refuses the connection");
	} else {
		nvme_qpair_transport_connected(&q->base, error);
	}
}

static void wire_connect_look(void *arg)
{
	struct wire_qpair *q = arg;

	if (link_is_lost(q->link)) {
		wire_connect_end(q, -ECONNREFUSED);
	} else if (!q->link->deaf && atomic_load(&q->link->conn->added)) {
		wire_connect_end(q, 0);
	} else {
		thread_timer_start(&q->timer, CONNECT_US);
	}
}

static struct nvme_qpair *wire_qpair_alloc(struct nvme_ctrlr *ctrlr, uint16_t id, uint16_t entries,
					   const struct nvme_qpair_opts *opts)
{
	struct wire_qpair *q = calloc(1, sizeof(*q));

	if (nvme_qpair_init(&q->base, ctrlr, id, entries < ENTRIES ? entries : ENTRIES) != 0) {
		free(q);
		return NULL;
	}
	q->timer = (struct thread_timer){.fn = wire_connect_look, .arg = q};
	return &q->base;
}

static void wire_qpair_connect(struct nvme_qpair *base)
{
	struct wire_qpair *q = (struct wire_qpair *)base;

	q->link = link_open(&base->ctrlr->trid, base->id);
	if (q->link == NULL) {
		wire_connect_end(q, -ECONNREFUSED);
		return;
	}
	q->link->qpair = q;
	thread_timer_start(&q->timer, CONNECT_US);
}

static void wire_qpair_stop(struct nvme_qpair *base, void (*done)(void *arg), void *arg)
{
	done(arg);
}

static void wire_qpair_free(struct nvme_qpair *base)
{
	struct wire_qpair *q = (struct wire_qpair *)base;

	thread_timer_stop(&q->timer);
	if (q->link != NULL) {
		link_leave(q->link);
	}
	nvme_qpair_fini(base);
	free(q);
}

/* ---- Controllers ---- */

static struct nvme_ctrlr *wire_ctrlr_alloc(const struct nvme_trid *trid, char error[NVME_ERROR_MAX])
{
	return calloc(1, sizeof(struct nvme_ctrlr));
}

static void wire_ctrlr_free(struct nvme_ctrlr *ctrlr)
{
	free(ctrlr);
}

static void wire_connect(struct nvme_ctrlr *ctrlr)
{
	ctrlr->admin = wire_qpair_alloc(ctrlr, 0, ENTRIES, NULL);
	if (ctrlr->admin == NULL) {
		nvme_ctrlr_connected(ctrlr, -ENOMEM, "out of memory");
	} else {
		wire_qpair_connect(ctrlr->admin);
	}
}

static void wire_disconnect(struct nvme_ctrlr *ctrlr)
{
	if (ctrlr->admin != NULL) {
		wire_qpair_free(ctrlr->admin);
	}
}

static uint32_t wire_max_transfer(struct nvme_ctrlr *ctrlr)
{
	return MAX_TRANSFER;
}

static uint16_t wire_max_segments(const struct nvme_ctrlr *ctrlr)
{
	return SEGMENTS;
}

static const struct nvme_transport_ops wire_ops = {
	.transport = {.trtype = (enum nvme_trtype)NVMF_TRTYPE_LOOP,
		      .name = "LOOP",
		      .fabrics = true,
		      .keys = NVME_TRID_TRSVCID | NVME_TRID_SUBNQN,
		      .default_trsvcid = "1"},
	.ctrlr_alloc = wire_ctrlr_alloc,
	.ctrlr_free = wire_ctrlr_free,
	.connect = wire_connect,
	.disconnect = wire_disconnect,
	.max_transfer = wire_max_transfer,
	.max_segments = wire_max_segments,
	.qpair_alloc = wire_qpair_alloc,
	.qpair_connect = wire_qpair_connect,
	.qpair_stop = wire_qpair_stop,
	.qpair_free = wire_qpair_free,
	.submit = wire_submit,
	.flush = wire_flush,
	.poll = wire_poll,
	.fd = wire_fd,
	.arm = wire_arm,
};

__attribute__((constructor)) static void wire_register(void)
{
	nvme_transport_register(&wire_ops);
}

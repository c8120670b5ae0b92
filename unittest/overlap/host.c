/* SPDX-License-Identifier: BSD-3-Clause */
/* Hosts: associations with an admin queue and up to two I/O queues. What they have been told to do goes on by itself:
 * connect, enable, keep alive; until they leave, fall silent, or are disconnected. */
#include <errno.h>

#include "unittest/overlap/overlap.h"

#define IO_QUEUES     2
#define QUEUES        (1 + IO_QUEUES)
#define OUTSTANDING   24 /* of a queue */
#define AERS          3
#define CROSS_RESETS  8
#define DATA_BYTES    4096
#define COMMANDS      65536 /* ids of commands whose fate is known */
#define KATO_MS       15000
#define SHORT_KATO_MS 1000

enum command_kind {
	CMD_CONNECT,
	CMD_ENABLE,
	CMD_KEEP_ALIVE,
	CMD_AER,
	CMD_READ,
	CMD_WRITE,
	CMD_CROSS_RESET,
	CMD_CROSS_RESET_LOG,
	CMD_OTHER,
};

struct queue;
struct command {
	TAILQ_ENTRY(command) link;
	struct queue *queue;
	enum command_kind kind;
	uint32_t id;
	uint8_t *data;
	struct nvmf_ctrlr_name name; /* CMD_CROSS_RESET */
	struct loop_cmd *cmd;        /* without most of its in-capsule data */
};

enum queue_phase {
	QUEUE_NONE,
	QUEUE_OPENING,
	QUEUE_CONNECTING,
	QUEUE_ENABLING,
	QUEUE_READY,
	QUEUE_CLOSING,
};

struct assoc;
struct queue {
	struct assoc *assoc;
	struct loop_conn *conn;
	enum queue_phase phase;
	uint16_t qid;
	uint64_t cirn; /* of its controller */
	bool hung_up;
	unsigned outstanding;
	TAILQ_HEAD(, command) commands;
};

struct assoc {
	struct queue queues[QUEUES];
	unsigned host, tgt, sub;
	const struct nvmf_address *address;
	unsigned io_queues; /* wanted */
	uint16_t cntlid;
	uint32_t kato_ms;
	bool silent;
	uint64_t heard_us; /* when the last keep-alive was sent */
	struct nvmf_ctrlr_name name;
	struct nvmf_ctrlr_name asked[CROSS_RESETS]; /* whose resets are under way; cirn 0: none */
};

static struct assoc assocs[OV_ASSOCS];
static bool live[COMMANDS];
static uint32_t last_id;

void ov_hosts_reset(void)
{
	last_id = 0;
	atomic_store(&loop_hold_data, false);
	memset(live, 0, sizeof(live));
	memset(assocs, 0, sizeof(assocs));
	for (unsigned a = 0; a < OV_ASSOCS; a++) {
		for (unsigned q = 0; q < QUEUES; q++) {
			assocs[a].queues[q].assoc = &assocs[a];
			assocs[a].queues[q].qid = (uint16_t)q;
			TAILQ_INIT(&assocs[a].queues[q].commands);
		}
	}
}

/* ---- Data: each block is full of one number, which tells the write that it is from ---- */

static void data_fill(uint8_t *data, uint32_t id, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
		*(uint64_t *)(void *)(data + i) = UINT64_C(0x0e71a90000000000) | id;
	}
}

static void data_check(const uint8_t *data, size_t bytes)
{
	for (size_t b = 0; b < bytes; b += OV_BLOCK) {
		const uint64_t *words = (const uint64_t *)(const void *)(data + b);
		for (size_t i = 0; i < OV_BLOCK / sizeof(*words); i++) {
			if (words[i] != words[0] || (words[0] != 0 && words[0] >> 40 != 0x0e71a9)) {
				ov_fail("a read returned what nobody has written: word %zu is 0x%lx, the first 0x%lx",
					i, (unsigned long)words[i], (unsigned long)words[0]);
			}
		}
	}
}

void ov_write_carried_out(const uint64_t *block)
{
	uint32_t id = (uint32_t)*block;

	if (*block >> 40 == 0x0e71a9 && !live[id % COMMANDS]) {
		ov_fail("write %u was carried out after its host had been told that it had ended", id);
	}
}

uint32_t ov_write_begin(void *data, size_t bytes)
{
	uint32_t id = ++last_id;

	data_fill(data, id, bytes);
	live[id % COMMANDS] = true;
	return id;
}

void ov_write_end(uint32_t id)
{
	live[id % COMMANDS] = false;
}

/* ---- Commands ---- */

static struct command *command_new(struct queue *q, enum command_kind kind, uint8_t opcode, uint32_t nsid, size_t bytes)
{
	struct command *c = calloc(1, sizeof(*c));

	c->queue = q;
	c->kind = kind;
	c->id = ++last_id;
	c->cmd = calloc(1, offsetof(struct loop_cmd, icd) + 64);
	loop_cmd_init(c->cmd, q->conn, opcode, nsid);
	c->cmd->sqe.cid = (uint16_t)c->id;
	if (bytes != 0) {
		c->data = calloc(1, bytes);
		loop_cmd_data(c->cmd, c->data, (uint32_t)bytes);
	}
	return c;
}

static void command_send(struct command *c)
{
	struct queue *q = c->queue;

	live[c->id % COMMANDS] = true;
	q->outstanding++;
	TAILQ_INSERT_TAIL(&q->commands, c, link);
	loop_submit(c->cmd);
}

static void command_free(struct command *c)
{
	TAILQ_REMOVE(&c->queue->commands, c, link);
	c->queue->outstanding--;
	live[c->id % COMMANDS] = false;
	free(c->data);
	free(c->cmd);
	free(c);
}

static void *command_property_set(struct command *c, uint32_t offset, uint64_t value)
{
	struct nvmf_property_set_sqe *sqe = (void *)&c->cmd->sqe;

	sqe->fctype = nvme_fabrics_type_property_set;
	sqe->attrib = NVMF_PROPERTY_SIZE_4;
	sqe->ofst = htole32(offset);
	sqe->value = htole64(value);
	return sqe;
}

static void send_cc(struct queue *q, uint32_t cc, enum command_kind kind)
{
	struct command *c = command_new(q, kind, nvme_admin_fabrics, 0, 0);

	command_property_set(c, NVME_REG_CC, cc);
	command_send(c);
}

static void send_connect(struct queue *q)
{
	const struct assoc *a = q->assoc;
	struct command *c = command_new(q, CMD_CONNECT, 0, 0, sizeof(struct nvmf_connect_data));
	struct nvmf_connect_data *data = (void *)c->data;
	struct nvmf_connect_sqe *sqe = (void *)&c->cmd->sqe;

	loop_connect_init(c->cmd, q->conn, data, q->qid, q->qid == 0 ? NVMF_CNTLID_DYNAMIC : a->cntlid);
	c->cmd->sqe.cid = (uint16_t)c->id;
	sqe->sqsize = htole16(31);
	sqe->kato = q->qid == 0 ? htole32(a->kato_ms) : 0;
	snprintf(data->subsysnqn, sizeof(data->subsysnqn), "%s", ov_sub_nqn(a->sub));
	snprintf(data->hostnqn, sizeof(data->hostnqn), "%s", ov_host_nqn(a->host));
	memset(data->hostid, (int)a->host + 1, sizeof(data->hostid));
	command_send(c);
	q->phase = QUEUE_CONNECTING;
}

/* ---- Queues ---- */

static void queue_open(struct queue *q)
{
	struct nvmf_tgt *tgt = ov_tgt(q->assoc->tgt);

	if (tgt == NULL || nvmf_transport_find(tgt, "LOOP") == NULL) {
		return;
	}
	q->conn = loop_open_begin(tgt, q->assoc->address, q->qid);
	q->phase = q->conn != NULL ? QUEUE_OPENING : QUEUE_NONE;
	q->hung_up = false;
}

/* The connection ends, now or when it is there. */
static void queue_close(struct queue *q)
{
	if (q->conn == NULL || q->hung_up) {
		return;
	}
	if (atomic_load(&q->conn->added)) { /* otherwise when it is */
		q->hung_up = true;
		if (!atomic_load(&q->conn->closed)) {
			loop_hang_up(q->conn);
		}
	}
	q->phase = QUEUE_CLOSING;
}

/* What the host reads in Identify Controller. */
static void assoc_read_name(struct assoc *a)
{
	struct nvmf_tgt *tgt = ov_tgt(a->tgt);
	const struct nvmf_subsystem *s = tgt != NULL ? nvmf_subsystem_find(tgt, ov_sub_nqn(a->sub)) : NULL;
	const struct nvmf_ctrlr *ctrlr = s != NULL ? nvmf_ctrlr_find(s, a->cntlid) : NULL;

	if (ctrlr != NULL) {
		a->name = (struct nvmf_ctrlr_name){.cntlid = ctrlr->cntlid, .ciu = ctrlr->ciu, .cirn = ctrlr->cirn};
	}
}

static void queue_went_well(struct queue *q, const struct command *c)
{
	struct assoc *a = q->assoc;

	if (c->kind == CMD_CONNECT && q->qid == 0) {
		a->cntlid = (uint16_t)le32toh(c->cmd->cqe.dw0);
		q->phase = QUEUE_ENABLING;
		send_cc(q, LOOP_CC_ENABLE, CMD_ENABLE);
	} else if (c->kind == CMD_CONNECT) {
		q->phase = QUEUE_READY;
		assoc_read_name(a);
		q->cirn = a->name.cirn;
	} else {
		q->phase = QUEUE_READY;
		assoc_read_name(a);
		for (unsigned i = 1; i <= a->io_queues; i++) {
			if (a->queues[i].phase == QUEUE_NONE) {
				queue_open(&a->queues[i]);
			}
		}
	}
}

/* A reset is told to have succeeded: the controller is gone by that name, and nothing that was sent to it is carried
 * out from now on. */
static void cross_reset_succeeded(const struct nvmf_ctrlr_name *name)
{
	const struct command *c;

	for (struct nvmf_tgt *tgt = nvmf_tgt_next(NULL); tgt != NULL; tgt = nvmf_tgt_next(tgt)) {
		for (struct nvmf_subsystem *s = nvmf_subsystem_next(tgt, NULL); s != NULL;
		     s = nvmf_subsystem_next(tgt, s)) {
			const struct nvmf_ctrlr *ctrlr = nvmf_ctrlr_find(s, name->cntlid);
			if (ctrlr != NULL && ctrlr->cirn == name->cirn) {
				ov_fail("controller %u of %s was reset, and is there", name->cntlid, s->nqn);
			}
		}
	}
	for (unsigned i = 0; i < OV_ASSOCS * IO_QUEUES; i++) {
		const struct queue *q = &assocs[i / IO_QUEUES].queues[1 + i % IO_QUEUES];
		TAILQ_FOREACH (c, &q->commands, link) {
			if (q->cirn == name->cirn) {
				live[c->id % COMMANDS] = false;
			}
		}
	}
}

static void cross_reset_ended(struct assoc *a, const struct command *c, uint16_t status)
{
	if (status == 0 && (le32toh(c->cmd->cqe.dw0) & NVME_CROSS_CTRL_RESET_IMMEDIATE) != 0) {
		cross_reset_succeeded(&c->name);
	} else if (status == 0) {
		for (unsigned i = 0; i < CROSS_RESETS; i++) {
			if (a->asked[i].cirn == 0) {
				a->asked[i] = c->name;
				break;
			}
		}
	}
}

static void cross_reset_log_read(struct assoc *a, const struct command *c)
{
	const struct nvme_cross_ctrl_reset_log *page = (const void *)c->data;

	for (unsigned e = 0; e < le16toh(page->ne); e++) {
		for (unsigned i = 0; i < CROSS_RESETS; i++) {
			struct nvmf_ctrlr_name *n = &a->asked[i];
			if (n->cirn == 0 || n->cntlid != le16toh(page->entries[e].icid) ||
			    n->ciu != page->entries[e].ciu ||
			    page->entries[e].ccrs == NVME_CROSS_CTRL_RESET_CCRS_IN_PROGRESS) {
				continue;
			}
			if (page->entries[e].ccrs == NVME_CROSS_CTRL_RESET_CCRS_SUCCESS) {
				cross_reset_succeeded(n);
			}
			n->cirn = 0;
		}
	}
}

static void command_ended(struct command *c)
{
	struct queue *q = c->queue;
	uint16_t status = nvme_cqe_status(&c->cmd->cqe);

	ov_say("host %u, queue %u: command %u, opcode 0x%02x: 0x%x", q->assoc->host, q->qid, c->id, c->cmd->sqe.opcode,
	       status);
	if (status != LOOP_STATUS_GONE && c->cmd->cqe.cid != c->cmd->sqe.cid) {
		ov_fail("the answer to command %u has the id %u", c->cmd->sqe.cid, c->cmd->cqe.cid);
	}
	if (c->kind == CMD_READ && status == 0) {
		data_check(c->data, DATA_BYTES);
	}
	if (c->kind == CMD_CROSS_RESET) {
		cross_reset_ended(q->assoc, c, status);
	}
	if (c->kind == CMD_CROSS_RESET_LOG && status == 0) {
		cross_reset_log_read(q->assoc, c);
	}
	if ((c->kind == CMD_CONNECT || c->kind == CMD_ENABLE) && q->phase != QUEUE_CLOSING &&
	    !atomic_load(&q->conn->closed)) {
		if (status == 0) {
			queue_went_well(q, c);
		} else {
			queue_close(q);
		}
	}
	command_free(c);
}

static void queue_advance(struct queue *q)
{
	struct command *c, *next;

	if (q->conn == NULL) {
		return;
	}
	for (c = TAILQ_FIRST(&q->commands); c != NULL; c = next) {
		next = TAILQ_NEXT(c, link);
		if (atomic_load(&c->cmd->done)) {
			command_ended(c);
		}
	}
	if (atomic_load(&q->conn->closed)) {
		if (atomic_load(&q->conn->outstanding) == 0 && q->outstanding == 0) {
			free(q->conn);
			q->conn = NULL;
			q->phase = QUEUE_NONE;
		}
		return;
	}
	if (q->phase == QUEUE_OPENING && atomic_load(&q->conn->added)) {
		send_connect(q);
	} else if (q->phase == QUEUE_CLOSING && atomic_load(&q->conn->added)) {
		queue_close(q);
	}
}

static bool queue_is_usable(const struct queue *q)
{
	return q->phase == QUEUE_READY && !atomic_load(&q->conn->closed) && q->outstanding < OUTSTANDING;
}

/* ---- Associations ---- */

static void assoc_keep_alive(struct assoc *a)
{
	struct queue *admin = &a->queues[0];
	uint64_t now = sim_now_us();

	if (!a->silent && queue_is_usable(admin) && now - a->heard_us >= a->kato_ms * UINT64_C(1000) / 4) {
		a->heard_us = now;
		command_send(command_new(admin, CMD_KEEP_ALIVE, nvme_admin_keep_alive, 0, 0));
	}
}

static void assoc_close(struct assoc *a)
{
	for (unsigned i = 0; i < QUEUES; i++) {
		queue_close(&a->queues[i]);
	}
}

/* A host whose admin queue has gone gives its I/O queues up. */
static void assoc_advance(struct assoc *a)
{
	for (unsigned i = 0; i < QUEUES; i++) {
		queue_advance(&a->queues[i]);
	}
	const struct queue *admin = &a->queues[0];
	if (admin->conn == NULL || admin->phase == QUEUE_CLOSING || atomic_load(&admin->conn->closed)) {
		for (unsigned i = 1; i < QUEUES; i++) {
			queue_close(&a->queues[i]);
		}
	}
	assoc_keep_alive(a);
}

static bool assoc_is_free(const struct assoc *a)
{
	for (unsigned i = 0; i < QUEUES; i++) {
		if (a->queues[i].conn != NULL) {
			return false;
		}
	}
	return true;
}

void ov_hosts_advance(void)
{
	for (unsigned a = 0; a < OV_ASSOCS; a++) {
		assoc_advance(&assocs[a]);
	}
}

bool ov_hosts_gone(void)
{
	for (unsigned a = 0; a < OV_ASSOCS; a++) {
		if (!assoc_is_free(&assocs[a])) {
			return false;
		}
	}
	return true;
}

void ov_hosts_leave(void)
{
	for (unsigned a = 0; a < OV_ASSOCS; a++) {
		assoc_close(&assocs[a]);
	}
}

static bool command_is_awaited(const struct command *c)
{
	return c->kind != CMD_AER || c->queue->phase != QUEUE_READY || atomic_load(&c->queue->conn->closed);
}

static unsigned queue_outstanding(const struct queue *q)
{
	const struct command *c;
	unsigned n = q->conn != NULL && q->phase != QUEUE_READY;

	TAILQ_FOREACH (c, &q->commands, link) {
		n += command_is_awaited(c);
	}
	return n;
}

unsigned ov_hosts_outstanding(void)
{
	unsigned n = 0;

	for (unsigned a = 0; a < OV_ASSOCS; a++) {
		for (unsigned i = 0; i < QUEUES; i++) {
			n += queue_outstanding(&assocs[a].queues[i]);
		}
	}
	return n;
}

void ov_hosts_print(void)
{
	for (unsigned a = 0; a < OV_ASSOCS; a++) {
		for (unsigned i = 0; i < QUEUES; i++) {
			const struct queue *q = &assocs[a].queues[i];
			const struct command *c;
			if (queue_outstanding(q) != 0) {
				fprintf(stderr, "  association %u, queue %u: phase %d, closed %d\n", a, i, q->phase,
					atomic_load(&q->conn->closed));
			}
			TAILQ_FOREACH (c, &q->commands, link) {
				fprintf(stderr, "    command %u, opcode 0x%02x, nsid %u\n", c->id, c->cmd->sqe.opcode,
					le32toh(c->cmd->sqe.nsid));
			}
		}
	}
}

/* ---- Operations ---- */

static void host_connect(struct assoc *a, const struct ov_op *op)
{
	for (unsigned i = 1; i < OV_ASSOCS && !assoc_is_free(a); i++) {
		a = &assocs[(op->a[0] + i) % OV_ASSOCS];
	}
	if (!assoc_is_free(a)) {
		return;
	}
	a->host = op->a[4] % OV_HOSTS;
	a->tgt = op->a[1] % OV_TGTS;
	a->sub = op->a[2] % 8 == 7 ? OV_SUBS : op->a[2] % OV_SUBS;
	a->address = op->a[3] % OV_ADDRS != 0 ? &loop_other_address : &loop_address;
	a->io_queues = a->sub == OV_SUBS ? 0 : op->a[4] / 4 % (IO_QUEUES + 1);
	a->io_queues += a->io_queues == 0 && a->sub != OV_SUBS;
	a->kato_ms = (op->a[4] & 64) != 0 ? SHORT_KATO_MS : KATO_MS;
	a->silent = false;
	a->name.cirn = 0;
	memset(a->asked, 0, sizeof(a->asked));
	a->heard_us = sim_now_us();
	queue_open(&a->queues[0]);
}

static struct queue *host_io_queue(struct assoc *a, unsigned number)
{
	for (unsigned i = 0; i < IO_QUEUES; i++) {
		struct queue *q = &a->queues[1 + (i + number) % IO_QUEUES];
		if (queue_is_usable(q)) {
			return q;
		}
	}
	return NULL;
}

static const struct {
	uint8_t opcode;
	bool data;
} io_commands[] = {
	{nvme_cmd_read, true},   {nvme_cmd_write, true}, {nvme_cmd_read, true},          {nvme_cmd_write, true},
	{nvme_cmd_flush, false}, {nvme_cmd_dsm, true},   {nvme_cmd_write_zeroes, false}, {nvme_cmd_compare, true},
};

static void host_send_io(struct queue *q, unsigned what, uint32_t nsid, uint8_t fuse, uint64_t lba)
{
	uint8_t opcode = io_commands[what].opcode;
	bool is_read = opcode == nvme_cmd_read, is_write = opcode == nvme_cmd_write;
	struct command *c = command_new(q,
					is_read    ? CMD_READ
					: is_write ? CMD_WRITE
						   : CMD_OTHER,
					opcode, nsid,
					!io_commands[what].data  ? 0
					: opcode == nvme_cmd_dsm ? 16
								 : DATA_BYTES);

	c->cmd->sqe.flags |= fuse;
	if (opcode == nvme_cmd_dsm) {
		((uint32_t *)(void *)c->data)[1] = htole32(8);
		c->cmd->sqe.cdw11 = htole32(4); /* deallocate */
	} else if (opcode != nvme_cmd_flush) {
		c->cmd->sqe.cdw10 = htole32((uint32_t)lba);
		c->cmd->sqe.cdw12 = htole32(DATA_BYTES / OV_BLOCK - 1);
	}
	if (opcode == nvme_cmd_write) { /* what is compared is zero: nobody has written it yet */
		data_fill(c->data, c->id, DATA_BYTES);
	}
	command_send(c);
}

static void host_io(struct assoc *a, const struct ov_op *op)
{
	struct queue *q = host_io_queue(a, op->a[3]);
	uint32_t nsid = op->a[2] % OV_NSIDS + 1;
	unsigned what = op->a[1] % 9;

	for (unsigned n = 0; n <= op->a[3] % 6 && q != NULL && q->outstanding + 2 < OUTSTANDING; n++) {
		uint64_t lba = (op->a[3] + n) % (OV_BLOCKS / 8) * 8;
		if (what == 8) { /* Compare and Write */
			host_send_io(q, 7, nsid, NVME_FUSE_FIRST, lba);
			host_send_io(q, 1, nsid, NVME_FUSE_SECOND, lba);
		} else {
			host_send_io(q, what, nsid, 0, lba);
		}
	}
}

/* One of the commands of the I/O queues. */
static const struct command *host_pick_command(const struct assoc *a, unsigned number)
{
	const struct command *c;
	unsigned total = a->queues[1].outstanding + a->queues[2].outstanding, n = total != 0 ? number % total : 0;

	for (unsigned i = 1; i < QUEUES; i++) {
		TAILQ_FOREACH (c, &a->queues[i].commands, link) {
			if (n-- == 0) {
				return c;
			}
		}
	}
	return NULL;
}

static void host_abort(struct assoc *a, const struct ov_op *op)
{
	const struct command *victim = host_pick_command(a, op->a[1]);

	if (victim != NULL) {
		struct command *c = command_new(&a->queues[0], CMD_OTHER, nvme_admin_abort_cmd, 0, 0);
		c->cmd->sqe.cdw10 = htole32(victim->queue->qid | (uint32_t)victim->cmd->sqe.cid << 16);
		command_send(c);
	}
}

static void host_aer(struct assoc *a)
{
	const struct command *c;
	unsigned n = 0;

	TAILQ_FOREACH (c, &a->queues[0].commands, link) {
		n += c->kind == CMD_AER;
	}
	if (n < AERS) {
		command_send(command_new(&a->queues[0], CMD_AER, nvme_admin_async_event, 0, 0));
	}
}

static void host_admin(struct assoc *a, const struct ov_op *op)
{
	static const uint8_t logs[] = {NVME_LOG_LID_ERROR, NVME_LOG_LID_CHANGED_NS, NVME_LOG_LID_ANA,
				       NVME_LOG_LID_RESERVATION, NVME_LOG_LID_DISCOVER};
	static const uint8_t cns[] = {NVME_IDENTIFY_CNS_NS, NVME_IDENTIFY_CNS_CTRL, NVME_IDENTIFY_CNS_NS_ACTIVE_LIST,
				      NVME_IDENTIFY_CNS_NS_DESC_LIST};
	unsigned what = op->a[1] % 12;
	uint32_t nsid = op->a[2] % OV_NSIDS + 1;
	struct command *c;

	if (what < 5) {
		c = command_new(&a->queues[0], CMD_OTHER, nvme_admin_get_log_page, NVME_NSID_ALL, 1024);
		c->cmd->sqe.cdw10 = htole32(logs[what] | (1024u / 4 - 1) << 16);
	} else if (what < 9) {
		c = command_new(&a->queues[0], CMD_OTHER, nvme_admin_identify, nsid, 4096);
		c->cmd->sqe.cdw10 = htole32(cns[what - 5]);
	} else if (what == 9) {
		c = command_new(&a->queues[0], CMD_OTHER, nvme_admin_set_features, 0, 0);
		c->cmd->sqe.cdw10 = htole32(NVME_FEAT_FID_KATO);
		c->cmd->sqe.cdw11 = htole32(a->kato_ms);
	} else {
		c = command_new(&a->queues[0], CMD_OTHER, nvme_admin_set_features, 0, 0);
		c->cmd->sqe.cdw10 = htole32(NVME_FEAT_FID_ASYNC_EVENT);
		c->cmd->sqe.cdw11 = htole32(what == 10 ? UINT32_C(0x900) : UINT32_C(0x80000000));
	}
	command_send(c);
}

/* Of a controller that is or was another one's, by its name or by one that is wrong. */
static void host_cross_reset(struct assoc *a, const struct ov_op *op)
{
	struct nvmf_ctrlr_name name = assocs[op->a[1] % OV_ASSOCS].name;
	struct command *c;

	if (name.cirn == 0) {
		return;
	}
	switch (op->a[2] % 16) {
	case 0:
		name.cirn ^= 1;
		break;
	case 1:
		name.ciu = (uint8_t)(name.ciu % UINT8_MAX + 1);
		break;
	case 2: /* nobody knows it */
		name.cirn ^= UINT64_C(1) << 63;
		break;
	default:
		break;
	}
	c = command_new(&a->queues[0], CMD_CROSS_RESET, NVME_ADMIN_CROSS_CTRL_RESET, 0, 0);
	c->name = name;
	c->cmd->sqe.cdw10 = htole32(name.cntlid | (uint32_t)name.ciu << 16);
	c->cmd->sqe.cdw12 = htole32((uint32_t)name.cirn);
	c->cmd->sqe.cdw13 = htole32((uint32_t)(name.cirn >> 32));
	command_send(c);
}

static void host_read_cross_reset_log(struct assoc *a)
{
	struct command *c = command_new(&a->queues[0], CMD_CROSS_RESET_LOG, nvme_admin_get_log_page, NVME_NSID_ALL,
					sizeof(struct nvme_cross_ctrl_reset_log));

	c->cmd->sqe.cdw10 = htole32(NVME_LOG_LID_CROSS_CTRL_RESET | NVME_CROSS_CTRL_RESET_LSP_RMC << 8 |
				    (sizeof(struct nvme_cross_ctrl_reset_log) / 4 - 1) << 16);
	command_send(c);
}

static void host_resv(struct assoc *a, const struct ov_op *op)
{
	static const struct {
		uint8_t opcode;
		uint32_t cdw10;
	} commands[] = {
		{nvme_cmd_resv_register, 0 | 1u << 3}, {nvme_cmd_resv_register, 1 | 1u << 3},
		{nvme_cmd_resv_register, 2 | 1u << 3}, {nvme_cmd_resv_acquire, 0 | 1u << 8},
		{nvme_cmd_resv_acquire, 0 | 2u << 8},  {nvme_cmd_resv_acquire, 1 | 2u << 8},
		{nvme_cmd_resv_acquire, 2 | 2u << 8},  {nvme_cmd_resv_acquire, 2 | 3u << 8},
		{nvme_cmd_resv_release, 0 | 2u << 8},  {nvme_cmd_resv_release, 1},
		{nvme_cmd_resv_register, 0 | 1u << 3}, {nvme_cmd_resv_acquire, 2 | 2u << 8},
	};
	struct queue *q = host_io_queue(a, 0);
	unsigned what = op->a[1] % 12;

	if (q == NULL) {
		return;
	}
	struct command *c = command_new(q, CMD_OTHER, commands[what].opcode, op->a[2] % OV_NSIDS + 1, 16);
	bool persist = commands[what].opcode == nvme_cmd_resv_register && op->a[4] % 2 != 0;
	c->cmd->sqe.cdw10 = htole32(commands[what].cdw10 | (persist ? UINT32_C(3) << 30 : 0)); /* CPTPL: set */
	((uint64_t *)(void *)c->data)[0] = htole64(a->host + 1);
	((uint64_t *)(void *)c->data)[1] =
		htole64(commands[what].opcode == nvme_cmd_resv_acquire ? op->a[3] % OV_HOSTS + UINT64_C(1)
								       : a->host + UINT64_C(1));
	command_send(c);
}

static void host_queue(struct assoc *a)
{
	for (unsigned i = 1; i < QUEUES; i++) {
		if (a->queues[i].conn == NULL) {
			queue_open(&a->queues[i]);
			return;
		}
	}
}

static void hosts_release_data(void)
{
	atomic_store(&loop_hold_data, false);
	for (unsigned a = 0; a < OV_ASSOCS; a++) {
		for (unsigned i = 0; i < QUEUES; i++) {
			struct loop_conn *c = assocs[a].queues[i].conn;
			if (c != NULL && atomic_load(&c->added) && !atomic_load(&c->closed)) {
				loop_release_data_begin(c);
			}
		}
	}
}

/* What needs an admin queue that works. */
static void host_do_admin(struct assoc *a, const struct ov_op *op)
{
	struct queue *admin = &a->queues[0];

	if (!queue_is_usable(admin)) {
		return;
	}
	switch (op->kind) {
	case OV_abort:
		host_abort(a, op);
		break;
	case OV_aer:
		host_aer(a);
		break;
	case OV_admin:
		host_admin(a, op);
		break;
	case OV_ccr:
		host_cross_reset(a, op);
		break;
	case OV_ccr_log:
		host_read_cross_reset_log(a);
		break;
	case OV_reset: /* and enable it again: what is asked for meanwhile is carried out then */
		send_cc(admin, LOOP_CC_ENABLE & ~1u, CMD_OTHER);
		if (op->a[0] / OV_ASSOCS % 2 == 0) {
			send_cc(admin, LOOP_CC_ENABLE, CMD_OTHER);
		}
		break;
	case OV_shutdown:
		send_cc(admin, LOOP_CC_ENABLE | 1u << 14, CMD_OTHER);
		break;
	default:
		host_queue(a);
		break;
	}
}

/* The association of that number, or the next one that works. */
static struct assoc *assoc_in_use(unsigned number)
{
	for (unsigned i = 0; i < OV_ASSOCS; i++) {
		struct assoc *a = &assocs[(number + i) % OV_ASSOCS];
		if (queue_is_usable(&a->queues[0])) {
			return a;
		}
	}
	return &assocs[number % OV_ASSOCS];
}

bool ov_host_do(const struct ov_op *op)
{
	struct assoc *a = op->kind == OV_connect ? &assocs[op->a[0] % OV_ASSOCS] : assoc_in_use(op->a[0]);

	switch (op->kind) {
	case OV_connect:
		host_connect(a, op);
		break;
	case OV_leave:
		assoc_close(a);
		break;
	case OV_leave_all:
		ov_hosts_leave();
		break;
	case OV_die: /* the I/O queues first, and the admin queue only when they are noticed, or the other way round */
		for (unsigned i = op->a[0] / OV_ASSOCS % 2; i < QUEUES; i++) {
			queue_close(&a->queues[i]);
		}
		break;
	case OV_silence:
		a->silent = true;
		break;
	case OV_io:
		host_io(a, op);
		break;
	case OV_resv:
		host_resv(a, op);
		break;
	case OV_peer_answer:
		ov_peer_answer(op->a[0], op->a[1]);
		break;
	case OV_data_hold:
		atomic_store(&loop_hold_data, true);
		break;
	case OV_data_release:
		hosts_release_data();
		break;
	case OV_abort:
	case OV_aer:
	case OV_admin:
	case OV_ccr:
	case OV_ccr_log:
	case OV_reset:
	case OV_shutdown:
	case OV_queue:
		host_do_admin(a, op);
		break;
	default:
		return false;
	}
	return true;
}

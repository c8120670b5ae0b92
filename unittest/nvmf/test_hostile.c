/* SPDX-License-Identifier: BSD-3-Clause */
/* Hosts that send anything at any time, while the target is being changed: every command ends, nothing is left behind,
 * and a host that behaves is still served. The random numbers are the same each time. */
#include "unittest/nvmf/loop.h"

#define CONNS    8
#define DEPTH    24
#define COMMANDS 60000

struct slot {
	struct loop_cmd cmd;
	struct nvmf_connect_data *connect;
	bool used;
};

struct host {
	struct loop_conn *conn;
	uint16_t qid;      /* that it pretends to have */
	unsigned patience; /* turns before it goes */
	struct slot slots[DEPTH];
};

static uint64_t seed = 42;
static uint8_t *memory; /* one megabyte that all hosts have in common */
#define MEMORY_LEN (1u << 20)
static struct host hosts[CONNS];
static unsigned statuses[0x800], ended;

static uint32_t rnd(uint32_t n)
{
	return (uint32_t)(fixture_random(&seed) % n);
}

static uint64_t rnd64(void)
{
	return fixture_random(&seed);
}

/* Mostly what makes sense, and now and then anything. */
static uint32_t rnd_field(uint32_t n)
{
	switch (rnd(16)) {
	case 0:
		return (uint32_t)rnd64();
	case 1:
		return UINT32_MAX - rnd(3);
	default:
		return rnd(n);
	}
}

static union nvme_sgl_desc rnd_keyed(void)
{
	uint32_t len = rnd(4) == 0 ? rnd(LOOP_MAX_IO * 2) : rnd(2) == 0 ? LOOP_MAX_IO : 512u << rnd(9);
	uint64_t address = (uintptr_t)memory + rnd(MEMORY_LEN - LOOP_MAX_IO);

	return nvme_sgl_make_keyed(rnd(64) == 0 ? rnd64() : address, len & NVME_SGL_KEYED_LENGTH_MAX,
				   rnd(64) == 0 ? 1 : LOOP_KEY, NVME_SGL_SUBTYPE_ADDRESS);
}

static void rnd_sgl(struct loop_cmd *cmd)
{
	union nvme_sgl_desc d;
	uint32_t n = 1 + rnd(18);

	cmd->icd_len = rnd(4) == 0 ? rnd(LOOP_ICD_MAX + 1) : 0;
	for (uint32_t i = 0; i < cmd->icd_len; i += 8) {
		uint64_t v = rnd64();
		memcpy(cmd->icd + i, &v, cmd->icd_len - i < 8 ? cmd->icd_len - i : 8);
	}
	switch (rnd(8)) {
	case 0:
		cmd->sqe.sgl1 = nvme_sgl_make_plain(NVME_SGL_TYPE_DATA_BLOCK, NVME_SGL_SUBTYPE_OFFSET, rnd_field(64),
						    rnd_field(LOOP_ICD_MAX));
		break;
	case 1: /* a list */
		cmd->icd_len = n * sizeof(d);
		for (uint32_t i = 0; i < n; i++) {
			d = rnd_keyed();
			memcpy(cmd->icd + i * sizeof(d), &d, sizeof(d));
		}
		cmd->sqe.sgl1 = nvme_sgl_make_plain(rnd(8) == 0 ? NVME_SGL_TYPE_SEGMENT : NVME_SGL_TYPE_LAST_SEGMENT,
						    NVME_SGL_SUBTYPE_OFFSET, 0, cmd->icd_len);
		break;
	case 2:
		cmd->sqe.sgl1.bytes[15] = (uint8_t)rnd64();
		break;
	default:
		cmd->sqe.sgl1 = rnd_keyed();
		break;
	}
}

static void rnd_connect(struct slot *s, struct host *h)
{
	loop_connect_init(&s->cmd, h->conn, s->connect, h->qid, h->qid == 0 ? NVMF_CNTLID_DYNAMIC : (uint16_t)rnd(40));
	struct nvmf_connect_sqe *sqe = (void *)&s->cmd.sqe;
	sqe->kato = htole32(rnd(3) == 0 ? 1 + rnd(400) : 0);
	if (rnd(5) == 0) {
		strcpy(s->connect->subsysnqn, NVMF_DISCOVERY_NQN);
	}
	if (rnd(8) == 0) {
		((uint8_t *)s->connect)[rnd(sizeof(*s->connect))] ^= (uint8_t)rnd64();
	}
	if (rnd(8) == 0) {
		((uint8_t *)sqe)[40 + rnd(12)] = (uint8_t)rnd64();
	}
}

static void rnd_fabrics(struct slot *s, struct host *h)
{
	struct nvmf_property_set_sqe *sqe = (void *)&s->cmd.sqe;
	static const uint32_t ccs[] = {
		LOOP_CC_ENABLE, LOOP_CC_ENABLE, LOOP_CC_ENABLE, 0, LOOP_CC_ENABLE | 1u << NVME_CC_SHN_SHIFT, 1};

	if (rnd(3) != 0) {
		rnd_connect(s, h);
		return;
	}
	sqe->fctype = rnd(12) == 0  ? (uint8_t)rnd64()
		      : rnd(2) == 0 ? nvme_fabrics_type_property_get
				    : nvme_fabrics_type_property_set;
	sqe->attrib = (uint8_t)(rnd(6) == 0 ? rnd64() : 0);
	sqe->ofst = htole32(rnd(4) == 0 ? rnd_field(0x80) : NVME_REG_CC);
	sqe->value = htole64(rnd(8) == 0 ? rnd64() : ccs[rnd(ARRAY_SIZE(ccs))]);
	s->cmd.sqe.cdw14 = 0;
	if (sqe->fctype == nvme_fabrics_type_connect) {
		rnd_sgl(&s->cmd);
	}
}

static void rnd_command(struct slot *s, struct host *h)
{
	static const uint8_t admin[] = {nvme_admin_get_log_page, nvme_admin_identify,     nvme_admin_abort_cmd,
					nvme_admin_set_features, nvme_admin_get_features, nvme_admin_async_event,
					nvme_admin_keep_alive};
	static const uint8_t io[] = {nvme_cmd_flush,         nvme_cmd_write,        nvme_cmd_read,
				     nvme_cmd_compare,       nvme_cmd_write_zeroes, nvme_cmd_dsm,
				     nvme_cmd_resv_register, nvme_cmd_resv_report,  nvme_cmd_resv_acquire,
				     nvme_cmd_resv_release,  nvme_cmd_verify,       nvme_cmd_write_uncor,
				     nvme_cmd_copy};
	struct nvme_sqe *sqe = &s->cmd.sqe;

	sqe->opcode = h->qid == 0 ? admin[rnd(sizeof(admin))] : io[rnd(sizeof(io))];
	if (rnd(32) == 0) {
		sqe->opcode = (uint8_t)rnd64();
	}
	if (rnd(32) == 0) {
		sqe->flags = (uint8_t)rnd64();
	} else if (rnd(h->qid == 0 ? 64 : 12) == 0) {
		sqe->flags |= (uint8_t)rnd(3);
	}
	sqe->nsid = htole32(rnd_field(4));
	if (h->qid == 0) {
		sqe->cdw10 = htole32(rnd_field(32) | (rnd(2) == 0 ? rnd(1024) << 16 : 0));
		sqe->cdw11 = htole32(rnd(8) == 0 ? (uint32_t)rnd64() : 0);
	} else {
		sqe->cdw10 = htole32(rnd_field(400));
		sqe->cdw11 = htole32(rnd(32) == 0 ? (uint32_t)rnd64() : 0);
	}
	sqe->cdw12 = htole32(rnd_field(40));
	sqe->cdw13 = htole32(rnd(32) == 0 ? (uint32_t)rnd64() : 0);
	sqe->cdw14 = htole32(rnd(32) == 0 ? (uint32_t)rnd64() : 0);
	rnd_sgl(&s->cmd);
}

static void slot_submit(struct slot *s, struct host *h)
{
	loop_cmd_init(&s->cmd, h->conn, nvme_admin_fabrics, 0);
	if (rnd(40) == 0) {
		rnd_fabrics(s, h);
	} else {
		rnd_command(s, h);
	}
	s->used = true;
	loop_submit(&s->cmd);
}

static void slot_collect(struct slot *s)
{
	if (s->used && atomic_load(&s->cmd.done)) {
		statuses[nvme_cqe_status(&s->cmd.cqe) & 0x7ff]++;
		s->used = false;
		ended++;
	}
}

static void host_connect(struct host *h)
{
	static const uint16_t qids[] = {0, 0, 1, 2, 3, 4, 1, 2, 3, 4, 5};
	struct loop_cmd *cmd = &h->slots[0].cmd;

	h->qid = qids[rnd(ARRAY_SIZE(qids))];
	h->conn = loop_open(&loop_address, h->qid);
	CU_ASSERT_PTR_NOT_NULL_FATAL(h->conn);
	h->patience = 10 + rnd(100);
	/* A good start, most of the time. An I/O queue goes to one of the controllers there are. */
	if (rnd(16) != 0) {
		struct nvmf_ctrlr *ctrlr = nvmf_ctrlr_next(loop_subsystem(), NULL);
		uint16_t cntlid = h->qid == 0 || ctrlr == NULL ? NVMF_CNTLID_DYNAMIC : ctrlr->cntlid;
		loop_connect_init(cmd, h->conn, h->slots[0].connect, h->qid, cntlid);
		if (cntlid != NVMF_CNTLID_DYNAMIC) {
			memcpy(h->slots[0].connect->hostid, ctrlr->hostid, sizeof(ctrlr->hostid));
		} else {
			h->slots[0].connect->hostid[15] = (uint8_t)rnd(3); /* some have reservations of others */
		}
		loop_run(cmd);
		if (nvme_cqe_status(&cmd->cqe) != 0) {
			h->patience = 0;
		} else if (h->qid == 0) {
			loop_property_set(h->conn, NVME_REG_CC, 4, LOOP_CC_ENABLE);
		}
	}
}

static void host_leave(struct host *h)
{
	struct loop_conn *conn = h->conn;

	loop_close(conn);
	h->conn = NULL;
	for (unsigned i = 0; i < DEPTH; i++) {
		slot_collect(&h->slots[i]);
		CU_ASSERT_FALSE(h->slots[i].used);
	}
}

/* True if the host has nothing left to send with. */
static bool host_step(struct host *h)
{
	unsigned busy = 0;

	for (unsigned i = 0; i < DEPTH; i++) {
		slot_collect(&h->slots[i]);
		if (!h->slots[i].used) {
			slot_submit(&h->slots[i], h);
		} else {
			busy++;
		}
	}
	return busy == DEPTH;
}

static bool has_ended(void *arg)
{
	const struct host *h = arg;

	for (unsigned i = 0; i < DEPTH; i++) {
		if (h->slots[i].used && atomic_load(&h->slots[i].cmd.done)) {
			return true;
		}
	}
	return false;
}

static void ignore(void *arg, int status)
{
}

static bool nothing_pending(void *arg)
{
	return STAILQ_EMPTY(&loop_subsystem()->ops);
}

/* What an operator does meanwhile. */
static void change_something(void)
{
	struct nvmf_subsystem *s = loop_subsystem();
	struct nvmf_ns_opts opts = {.nsid = 1 + rnd(3)};
	uint32_t got;

	switch (rnd(40)) {
	case 0:
		nvmf_subsystem_set_allow_any_host(s, false);
		nvmf_subsystem_set_allow_any_host(s, true);
		break;
	case 1 ... 12:
		nvmf_subsystem_pause(s, rnd(2) == 0 ? NVME_NSID_ALL : 1 + rnd(4), ignore, NULL);
		nvmf_subsystem_resume(s, ignore, NULL);
		break;
	case 13 ... 18:
		nvmf_subsystem_remove_ns(s, 1 + rnd(3), ignore, NULL);
		break;
	case 19 ... 32:
		opts.no_auto_visible = rnd(4) == 0;
		nvmf_subsystem_add_ns(s, rnd(2) == 0 ? "h1" : "h2", &opts, &got);
		break;
	default:
		atomic_store(&loop_zcopy, rnd(2) == 0);
		break;
	}
}

static void setup(void)
{
	memory = calloc(1, MEMORY_LEN);
	loop_memory = memory;
	loop_memory_len = MEMORY_LEN;
	for (unsigned i = 0; i < CONNS; i++) {
		for (unsigned n = 0; n < DEPTH; n++) {
			hosts[i].slots[n].connect = (void *)(memory + (i * DEPTH + n) * 1024);
		}
	}
	make_malloc("h1", 512, 4096);
	make_malloc("h2", 4096, 512);
	loop_add_ns("h1", 1);
	loop_add_ns("h2", 2);
}

static void teardown(void)
{
	struct nvmf_ns *ns;

	CU_ASSERT_TRUE(loop_until(nothing_pending, NULL));
	atomic_store(&loop_zcopy, false);
	while ((ns = nvmf_ns_next(loop_subsystem(), NULL)) != NULL) {
		loop_remove_ns(nvmf_ns_nsid(ns));
	}
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "h1"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "h2"), 0);
	loop_memory = NULL;
	free(memory);
}

static void test_random_commands_at_random_times(void)
{
	unsigned kinds = 0, turns = 0;

	setup();
	while (ended < COMMANDS) {
		struct host *h = &hosts[rnd(CONNS)];
		if (h->conn == NULL) {
			host_connect(h);
		}
		if (host_step(h)) {
			/* All it has wait for something: an event, the other half of a pair. */
			if (!thread_control_wait(has_ended, h, 2000)) {
				host_leave(h);
			}
		} else if (h->patience-- == 0 || atomic_load(&h->conn->closed)) {
			host_leave(h);
		}
		if (++turns % 16 == 0) {
			change_something();
		}
	}
	for (unsigned i = 0; i < CONNS; i++) {
		if (hosts[i].conn != NULL) {
			host_leave(&hosts[i]);
		}
	}
	CU_ASSERT_PTR_NULL(nvmf_ctrlr_next(loop_subsystem(), NULL));
	CU_ASSERT_EQUAL(atomic_load(&loop_requests), 0);
	CU_ASSERT_EQUAL(atomic_load(&loop_qpairs), 0);
	for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
		kinds += statuses[i] != 0;
		if (getenv("UNIT_VERBOSE") != NULL && statuses[i] != 0) {
			printf("status %x/%02zx: %u\n", (unsigned)(i >> 8), i & 0xff, statuses[i]);
		}
	}
	CU_ASSERT(kinds > 15); /* it went into many corners */
	CU_ASSERT(statuses[0] > COMMANDS / 100);

	/* And somebody who behaves is served. */
	loop_memory = NULL;
	struct loop_conn *admin = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(admin);
	loop_close(admin);
	teardown();
}

static const struct unit_test tests[] = {
	UNIT(test_random_commands_at_random_times),
	UNIT_END,
};
UNIT_MAIN("nvmf_hostile", tests, loop_start, loop_stop)

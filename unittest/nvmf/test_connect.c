/* SPDX-License-Identifier: BSD-3-Clause */
/* Who gets a controller and who does not; registers; the end of associations. */
#include <errno.h>
#include "unittest/nvmf/loop.h"

static struct nvmf_connect_data data;
static struct loop_cmd cmd;
static struct nvmf_connect_sqe *const sqe = (struct nvmf_connect_sqe *)&cmd.sqe;

/* A connection with a good Connect in cmd and data, to be spoilt. */
static struct loop_conn *prepare(uint16_t qid, uint16_t cntlid)
{
	struct loop_conn *c = loop_open(&loop_address, qid);

	CU_ASSERT_PTR_NOT_NULL_FATAL(c);
	loop_connect_init(&cmd, c, &data, qid, cntlid);
	return c;
}

#define EXPECT_INVALID(iattr_, ipo_)                                                                                   \
	do {                                                                                                           \
		CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(CMD_SPECIFIC, CONNECT_INVALID_PARAM));                     \
		CU_ASSERT_EQUAL(le32toh(cmd.cqe.dw0), (uint32_t)(ipo_) | (uint32_t)(iattr_) << 16);                    \
	} while (0)

static void test_connect_makes_a_controller(void)
{
	struct loop_conn *c = prepare(0, NVMF_CNTLID_DYNAMIC);
	struct nvmf_ctrlr_info info;

	sqe->kato = htole32(60000);
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	struct nvmf_ctrlr *ctrlr = nvmf_ctrlr_next(loop_subsystem(), NULL);
	CU_ASSERT_PTR_NOT_NULL_FATAL(ctrlr);
	nvmf_ctrlr_get_info(ctrlr, &info);
	CU_ASSERT_EQUAL(info.cntlid, le32toh(cmd.cqe.dw0));
	CU_ASSERT_STRING_EQUAL(info.hostnqn, LOOP_HOSTNQN);
	CU_ASSERT_EQUAL(info.hostid[3], 0x42);
	CU_ASSERT_EQUAL(info.kato_ms, 60000);
	CU_ASSERT_EQUAL(info.state, NVMF_CTRLR_DISABLED);
	CU_ASSERT_EQUAL(le16toh(cmd.cqe.sqhd), 1);
	loop_close(c);
	CU_ASSERT_PTR_NULL(nvmf_ctrlr_next(loop_subsystem(), NULL));
}

/* SPDK's perf and identify send no name unless they are told one. */
static void test_a_host_without_a_name_goes_by_its_address(void)
{
	struct loop_conn *admin = prepare(0, NVMF_CNTLID_DYNAMIC);
	struct nvmf_ctrlr_info info;

	memset(data.hostnqn, 0, sizeof(data.hostnqn));
	CU_ASSERT_EQUAL_FATAL(loop_run(&cmd), 0);
	admin->cntlid = (uint16_t)le32toh(cmd.cqe.dw0);
	CU_ASSERT_EQUAL(loop_property_set(admin, NVME_REG_CC, 4, LOOP_CC_ENABLE), 0);
	nvmf_ctrlr_get_info(nvmf_ctrlr_next(loop_subsystem(), NULL), &info);
	CU_ASSERT_STRING_EQUAL(info.hostnqn, "(unnamed) here");

	struct loop_conn *io = prepare(1, admin->cntlid); /* with a name, so another host's */
	EXPECT_INVALID(1, 512);
	loop_connect_init(&cmd, io, &data, 1, admin->cntlid);
	memset(data.hostnqn, 0, sizeof(data.hostnqn));
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	loop_close(io);
	loop_close(admin);
}

/* Two of them at different addresses are two hosts. */
static void test_a_host_without_a_name_does_not_get_anothers_controller(void)
{
	struct loop_conn *admin = loop_attach(LOOP_SUBNQN, "", 0);

	loop_peer = &loop_other_address;
	struct loop_conn *io = prepare(1, admin->cntlid);
	loop_peer = NULL;
	memset(data.hostnqn, 0, sizeof(data.hostnqn));
	EXPECT_INVALID(1, 512);
	loop_close(io);
	loop_close(admin);
}

/* A name that is begun with a zero byte, or one that hosts are listed by, is not any host's. */
static void test_a_host_without_a_name_is_none_of_those_listed(void)
{
	struct loop_conn *c = prepare(0, NVMF_CNTLID_DYNAMIC);

	CU_ASSERT_EQUAL(nvmf_subsystem_set_allow_any_host(loop_subsystem(), false), 0);
	memset(data.hostnqn, 0, sizeof(data.hostnqn));
	strcpy(data.hostnqn + 1, LOOP_HOSTNQN);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(CMD_SPECIFIC, CONNECT_INVALID_HOST));
	CU_ASSERT_EQUAL(nvmf_subsystem_set_allow_any_host(loop_subsystem(), true), 0);
	loop_close(c);
}

static void test_controller_ids_are_not_reused_at_once(void)
{
	struct loop_conn *a = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
	uint16_t cntlid = a->cntlid;

	loop_close(a);
	struct loop_conn *b = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
	CU_ASSERT_NOT_EQUAL(b->cntlid, cntlid);
	loop_close(b);
}

static void test_sq_flow_control_can_be_disabled(void)
{
	struct loop_conn *c = prepare(0, NVMF_CNTLID_DYNAMIC);

	sqe->cattr = NVMF_CATTR_DISABLE_SQ_FLOW;
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	CU_ASSERT_EQUAL(le16toh(cmd.cqe.sqhd), NVME_SQHD_NO_FLOW_CONTROL);
	loop_close(c);
}

static void test_sq_head_follows_and_wraps(void)
{
	struct loop_conn *c = prepare(0, NVMF_CNTLID_DYNAMIC);
	struct loop_cmd get;

	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	for (unsigned i = 2; i <= 70; i++) {
		struct nvmf_property_get_sqe *g = (void *)&get.sqe;
		loop_cmd_init(&get, c, nvme_admin_fabrics, 0);
		g->fctype = nvme_fabrics_type_property_get;
		g->ofst = htole32(NVME_REG_VS);
		CU_ASSERT_EQUAL(loop_run(&get), 0);
		CU_ASSERT_EQUAL(le16toh(get.cqe.sqhd), i % 32);
	}
	loop_close(c);
}

static void test_connect_to_unknown_subsystem_is_rejected(void)
{
	struct loop_conn *c = prepare(0, NVMF_CNTLID_DYNAMIC);

	strcpy(data.subsysnqn, "nqn.2024-01.io.varve:other");
	EXPECT_INVALID(1, 256);
	loop_close(c);
}

static void test_connect_through_another_listener_is_rejected(void)
{
	struct loop_conn *c = loop_open(&loop_other_address, 0);

	loop_connect_init(&cmd, c, &data, 0, NVMF_CNTLID_DYNAMIC);
	EXPECT_INVALID(1, 256);
	loop_close(c);
}

static void test_connect_with_malformed_names_is_rejected(void)
{
	struct loop_conn *c = prepare(0, NVMF_CNTLID_DYNAMIC);

	memset(data.subsysnqn, 'x', sizeof(data.subsysnqn));
	EXPECT_INVALID(1, 256);
	loop_connect_init(&cmd, c, &data, 0, NVMF_CNTLID_DYNAMIC);
	memset(data.hostnqn, 'x', sizeof(data.hostnqn));
	EXPECT_INVALID(1, 512);
	loop_close(c);
}

static void test_connect_with_static_id_to_dynamic_subsystem_is_rejected(void)
{
	static const uint16_t ids[] = {0, 1, NVMF_CNTLID_STATIC_ANY};

	for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
		struct loop_conn *c = prepare(0, ids[i]);
		EXPECT_INVALID(1, 16);
		loop_close(c);
	}
}

static void test_connect_with_long_admin_queue_is_rejected(void)
{
	struct loop_conn *c = prepare(0, NVMF_CNTLID_DYNAMIC);

	sqe->sqsize = htole16(32);
	EXPECT_INVALID(0, 44);
	sqe->sqsize = 0;
	EXPECT_INVALID(0, 44);
	loop_close(c);
}

static void test_connect_with_unknown_record_format_is_rejected(void)
{
	struct loop_conn *c = prepare(0, NVMF_CNTLID_DYNAMIC);

	sqe->recfmt = htole16(7);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(CMD_SPECIFIC, CONNECT_FORMAT));
	loop_close(c);
}

static void test_connect_with_too_little_data_is_rejected(void)
{
	struct loop_conn *c = prepare(0, NVMF_CNTLID_DYNAMIC);

	loop_cmd_data(&cmd, &data, 1023);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(GENERIC, SGL_INVALID_DATA));
	loop_close(c);
}

static void test_connect_data_in_the_capsule_is_taken(void)
{
	struct loop_conn *c = prepare(0, NVMF_CNTLID_DYNAMIC);

	memcpy(cmd.icd, &data, sizeof(data));
	cmd.icd_len = sizeof(data);
	cmd.sqe.sgl1 = nvme_sgl_make_plain(NVME_SGL_TYPE_DATA_BLOCK, NVME_SGL_SUBTYPE_OFFSET, 0, sizeof(data));
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	loop_close(c);
}

static void test_host_that_is_not_allowed_is_rejected(void)
{
	struct loop_conn *c = prepare(0, NVMF_CNTLID_DYNAMIC);
	char why[NVMF_ERROR_MAX];

	nvmf_subsystem_set_allow_any_host(loop_subsystem(), false);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(CMD_SPECIFIC, CONNECT_INVALID_HOST));
	CU_ASSERT_EQUAL(nvmf_subsystem_add_host(loop_subsystem(), LOOP_HOSTNQN, NULL, NULL, why), 0);
	CU_ASSERT_EQUAL(nvmf_subsystem_add_host(loop_subsystem(), LOOP_HOSTNQN, NULL, NULL, why), -EEXIST);
	CU_ASSERT_EQUAL(nvmf_subsystem_add_host(loop_subsystem(), "nonsense", NULL, NULL, why), -EINVAL);
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);

	/* Taken off the list again, it is disconnected. */
	struct loop_wait wait = LOOP_WAIT;
	nvmf_subsystem_remove_host(loop_subsystem(), LOOP_HOSTNQN, loop_done, &wait);
	CU_ASSERT_EQUAL(loop_wait_for(&wait), 0);
	CU_ASSERT_PTR_NULL(nvmf_ctrlr_next(loop_subsystem(), NULL));
	CU_ASSERT_TRUE(loop_wait_closed(c));
	loop_close(c);
	nvmf_subsystem_set_allow_any_host(loop_subsystem(), true);
}

static void test_second_connect_on_a_queue_is_rejected(void)
{
	struct loop_conn *c = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);

	loop_connect_init(&cmd, c, &data, 0, NVMF_CNTLID_DYNAMIC);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(GENERIC, CMD_SEQ_ERROR));
	loop_close(c);
}

static void test_commands_before_connect_are_rejected(void)
{
	struct loop_conn *c = loop_open(&loop_address, 0);
	uint64_t value;
	uint8_t buf[4096];

	CU_ASSERT_EQUAL(loop_property_get(c, NVME_REG_CAP, 8, &value), NVME_ST_DNR(GENERIC, CMD_SEQ_ERROR));
	CU_ASSERT_EQUAL(loop_identify(c, 1, 0, 0, buf), NVME_ST_DNR(GENERIC, CMD_SEQ_ERROR));
	loop_cmd_init(&cmd, c, nvme_admin_fabrics, 0);
	((struct nvmf_fabrics_sqe *)&cmd.sqe)->fctype = 0x33;
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(GENERIC, INVALID_OPCODE));
	loop_close(c);
}

static void test_connection_without_connect_is_closed(void)
{
	uint64_t before = loop_tgt()->connect_timeout_us;

	loop_tgt()->connect_timeout_us = 20000;
	struct loop_conn *c = loop_open(&loop_address, 0);
	CU_ASSERT_TRUE(loop_wait_closed(c));
	loop_close(c);
	loop_tgt()->connect_timeout_us = before;
}

/* Ticks of the clock that the target looks at, in milliseconds. */
static uint64_t now_ms(void)
{
	return env_ticks() / (env_ticks_hz() / 1000);
}

/* As after SIGSTOP and SIGCONT. */
static void be_away(void *ms)
{
	uint64_t end = now_ms() + (uintptr_t)ms;

	while (now_ms() < end) {
	}
}

static void test_a_connect_is_not_late_while_the_target_is_away(void)
{
	uint64_t before = loop_tgt()->connect_timeout_us;

	loop_tgt()->connect_timeout_us = 1000000;
	struct loop_conn *c = prepare(0, NVMF_CNTLID_DYNAMIC);
	thread_call(c->thread, be_away, (void *)(uintptr_t)2500);
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	loop_close(c);
	loop_tgt()->connect_timeout_us = before;
}

/* ---- I/O queues ---- */

static void test_io_queue_connects_to_its_controller(void)
{
	struct loop_conn *admin = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
	struct loop_conn *io = loop_io_queue(admin, 1);
	struct nvmf_qpair_info info;

	CU_ASSERT_PTR_NOT_NULL_FATAL(io);
	struct nvmf_qpair *qpair = nvmf_qpair_next(nvmf_ctrlr_next(loop_subsystem(), NULL),
						   nvmf_qpair_next(nvmf_ctrlr_next(loop_subsystem(), NULL), NULL));
	CU_ASSERT_PTR_NOT_NULL_FATAL(qpair);
	nvmf_qpair_get_info(qpair, &info);
	CU_ASSERT_EQUAL(info.qid, 1);
	CU_ASSERT_EQUAL(info.state, NVMF_QPAIR_ENABLED);
	CU_ASSERT_EQUAL(info.cntlid, admin->cntlid);
	/* Losing an I/O queue leaves the association alone, and the id can be used again. */
	loop_close(io);
	io = loop_io_queue(admin, 1);
	CU_ASSERT_PTR_NOT_NULL(io);
	/* Losing the admin queue ends the I/O queues. */
	loop_close(admin);
	CU_ASSERT_TRUE(loop_wait_closed(io));
	loop_close(io);
}

static void test_io_queue_with_wrong_fields_is_rejected(void)
{
	struct loop_conn *admin = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
	struct loop_conn *c = prepare(1, (uint16_t)(admin->cntlid + 1));

	EXPECT_INVALID(1, 16);
	loop_connect_init(&cmd, c, &data, 1, admin->cntlid);
	strcpy(data.hostnqn, "nqn.2024-01.io.varve:another");
	EXPECT_INVALID(1, 512);
	loop_connect_init(&cmd, c, &data, 1, admin->cntlid);
	data.hostid[0]++;
	EXPECT_INVALID(1, 0);
	loop_connect_init(&cmd, c, &data, 5, admin->cntlid); /* one more than there are */
	EXPECT_INVALID(0, 42);
	loop_connect_init(&cmd, c, &data, 1, admin->cntlid);
	sqe->sqsize = htole16(LOOP_QUEUE);
	EXPECT_INVALID(0, 44);
	/* Nothing of this has spoilt the queue. */
	loop_connect_init(&cmd, c, &data, 1, admin->cntlid);
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	loop_close(c);
	loop_close(admin);
}

static void test_io_queue_id_in_use_is_rejected(void)
{
	struct loop_conn *admin = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
	struct loop_conn *a = loop_io_queue(admin, 2);
	struct loop_conn *b = prepare(2, admin->cntlid);

	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST(GENERIC, CMD_SEQ_ERROR));
	loop_close(b);
	loop_close(a);
	loop_close(admin);
}

static void test_io_queue_before_enable_is_rejected(void)
{
	struct loop_conn *admin = prepare(0, NVMF_CNTLID_DYNAMIC);

	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	struct loop_conn *c = prepare(1, (uint16_t)le32toh(cmd.cqe.dw0));
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST(GENERIC, CMD_SEQ_ERROR));
	loop_close(c);
	loop_close(admin);
}

static void test_discovery_controller_has_no_io_queues(void)
{
	struct loop_conn *admin = loop_attach(NVMF_DISCOVERY_NQN, LOOP_HOSTNQN, 0);
	struct loop_conn *c = prepare(1, admin->cntlid);

	strcpy(data.subsysnqn, NVMF_DISCOVERY_NQN);
	EXPECT_INVALID(0, 42);
	loop_close(c);
	loop_close(admin);
}

/* ---- Static controllers ---- */

static void test_static_controllers(void)
{
	struct nvmf_subsystem_opts opts = {
		.allow_any_host = true, .static_ctrlrs = true, .min_cntlid = 10, .max_cntlid = 11};
	struct loop_wait wait = LOOP_WAIT;
	struct nvmf_subsystem *s;

	CU_ASSERT_EQUAL_FATAL(nvmf_subsystem_create(loop_tgt(), "nqn.2024-01.io.varve:static", &opts, &s), 0);
	CU_ASSERT_EQUAL(nvmf_subsystem_add_listener(s, &loop_address), 0);
	nvmf_subsystem_start(s, loop_done, &wait);
	CU_ASSERT_EQUAL(loop_wait_for(&wait), 0);

	struct loop_conn *c[4];
	static const struct {
		uint16_t wanted, status, got;
	} cases[] = {
		{11, 0, 11},
		{11, NVME_ST(CMD_SPECIFIC, CONNECT_CTRL_BUSY), 0},
		{NVMF_CNTLID_STATIC_ANY, 0, 10},
		{NVMF_CNTLID_STATIC_ANY, NVME_ST(CMD_SPECIFIC, CONNECT_CTRL_BUSY), 0},
	};
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		c[i] = prepare(0, cases[i].wanted);
		strcpy(data.subsysnqn, "nqn.2024-01.io.varve:static");
		CU_ASSERT_EQUAL(loop_run(&cmd), cases[i].status);
		if (cases[i].status == 0) {
			CU_ASSERT_EQUAL(le32toh(cmd.cqe.dw0), cases[i].got);
		}
	}
	struct loop_conn *bad = prepare(0, NVMF_CNTLID_DYNAMIC);
	strcpy(data.subsysnqn, "nqn.2024-01.io.varve:static");
	EXPECT_INVALID(1, 16);
	loop_close(bad);

	/* Destroying the subsystem ends its associations. */
	struct loop_wait gone = LOOP_WAIT;
	nvmf_subsystem_destroy(s, loop_done, &gone);
	CU_ASSERT_EQUAL(loop_wait_for(&gone), 0);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		loop_close(c[i]);
	}
	CU_ASSERT_PTR_NULL(nvmf_subsystem_find(loop_tgt(), "nqn.2024-01.io.varve:static"));
}

/* ---- Memory ---- */

static __thread bool no_memory;

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes)
{
	return no_memory ? NULL : __real_malloc(bytes);
}

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes)
{
	return no_memory ? NULL : __real_calloc(count, bytes);
}

static void test_subsystem_without_memory_to_be_destroyed_stays(void)
{
	static const char nqn[] = "nqn.2024-01.io.varve:poor";
	struct nvmf_subsystem_opts opts = {.allow_any_host = true};
	struct loop_wait start = LOOP_WAIT, failed = LOOP_WAIT, gone = LOOP_WAIT;
	struct nvmf_subsystem *s;
	uint64_t version;

	CU_ASSERT_EQUAL_FATAL(nvmf_subsystem_create(loop_tgt(), nqn, &opts, &s), 0);
	CU_ASSERT_EQUAL(nvmf_subsystem_add_listener(s, &loop_address), 0);
	nvmf_subsystem_start(s, loop_done, &start);
	CU_ASSERT_EQUAL(loop_wait_for(&start), 0);
	struct loop_conn *c = loop_attach(nqn, LOOP_HOSTNQN, 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(c);
	no_memory = true;
	nvmf_subsystem_destroy(s, loop_done, &failed);
	no_memory = false;
	CU_ASSERT_EQUAL(loop_wait_for(&failed), -ENOMEM);
	CU_ASSERT_PTR_EQUAL_FATAL(nvmf_subsystem_find(loop_tgt(), nqn), s);
	CU_ASSERT_EQUAL(nvmf_subsystem_get_state(s), NVMF_SUBSYSTEM_ACTIVE);
	CU_ASSERT_EQUAL(loop_property_get(c, NVME_REG_VS, 4, &version), 0);
	nvmf_subsystem_destroy(s, loop_done, &gone);
	CU_ASSERT_EQUAL(loop_wait_for(&gone), 0);
	CU_ASSERT_PTR_NULL(nvmf_subsystem_find(loop_tgt(), nqn));
	loop_close(c);
}

static void test_hosts_stay_allowed_if_there_is_no_memory_to_end_their_controllers(void)
{
	struct nvmf_subsystem *s = loop_subsystem();
	struct loop_conn *c = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
	uint64_t version;

	no_memory = true;
	int rc = nvmf_subsystem_set_allow_any_host(s, false);
	no_memory = false;
	CU_ASSERT_EQUAL(rc, -ENOMEM);
	CU_ASSERT_TRUE(nvmf_subsystem_allow_any_host(s));
	CU_ASSERT_EQUAL(loop_property_get(c, NVME_REG_VS, 4, &version), 0);
	CU_ASSERT_EQUAL(nvmf_subsystem_set_allow_any_host(s, false), 0);
	CU_ASSERT_TRUE(loop_wait_closed(c));
	loop_close(c);
	CU_ASSERT_EQUAL(nvmf_subsystem_set_allow_any_host(s, true), 0);
}

/* ---- Registers ---- */

static void test_registers_have_their_values(void)
{
	struct loop_conn *c = prepare(0, NVMF_CNTLID_DYNAMIC);
	uint64_t v;

	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	CU_ASSERT_EQUAL(loop_property_get(c, NVME_REG_CAP, 8, &v), 0);
	CU_ASSERT_EQUAL(NVME_CAP_MQES(v), LOOP_QUEUE - 1);
	CU_ASSERT_EQUAL(NVME_CAP_CQR(v), 1);
	CU_ASSERT_EQUAL(NVME_CAP_CSS(v), NVME_CAP_CSS_NVM);
	CU_ASSERT_EQUAL(NVME_CAP_MPSMIN(v), 0);
	CU_ASSERT_NOT_EQUAL(NVME_CAP_TO(v), 0);
	CU_ASSERT_EQUAL(loop_property_get(c, NVME_REG_VS, 4, &v), 0);
	CU_ASSERT_EQUAL(v, 0x20000);
	CU_ASSERT_EQUAL(loop_property_get(c, NVME_REG_CC, 4, &v), 0);
	CU_ASSERT_EQUAL(v, 0);
	CU_ASSERT_EQUAL(loop_property_get(c, NVME_REG_CRTO, 4, &v), 0);
	CU_ASSERT_NOT_EQUAL(v, 0);
	loop_close(c);
}

static void test_wrong_register_accesses_are_rejected(void)
{
	struct loop_conn *c = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
	const uint16_t bad = NVME_ST_DNR(GENERIC, INVALID_FIELD);
	uint64_t v;

	CU_ASSERT_EQUAL(loop_property_get(c, NVME_REG_CAP, 4, &v), bad);
	CU_ASSERT_EQUAL(loop_property_get(c, NVME_REG_CC, 8, &v), bad);
	CU_ASSERT_EQUAL(loop_property_get(c, NVME_REG_INTMS, 4, &v), bad);
	CU_ASSERT_EQUAL(loop_property_get(c, 0xffffffff, 4, &v), bad);
	CU_ASSERT_EQUAL(loop_property_set(c, NVME_REG_CAP, 8, 1), bad);
	CU_ASSERT_EQUAL(loop_property_set(c, NVME_REG_CSTS, 4, 1), bad);
	CU_ASSERT_EQUAL(loop_property_set(c, NVME_REG_CC, 8, 1), bad);
	loop_close(c);
}

static uint64_t csts(struct loop_conn *c)
{
	uint64_t v = UINT64_MAX;

	CU_ASSERT_EQUAL(loop_property_get(c, NVME_REG_CSTS, 4, &v), 0);
	return v;
}

/* Hosts poll CSTS. */
static bool wait_csts(struct loop_conn *c, uint64_t wanted)
{
	for (unsigned i = 0; i < 10000; i++) {
		if (csts(c) == wanted) {
			return true;
		}
	}
	return false;
}

static void test_enable_reset_and_enable_again(void)
{
	struct loop_conn *c = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
	uint8_t buf[4096];

	CU_ASSERT_EQUAL(csts(c), 1);
	struct loop_conn *io = loop_io_queue(c, 1);
	CU_ASSERT_EQUAL(loop_property_set(c, NVME_REG_CC, 4, LOOP_CC_ENABLE & ~1u), 0);
	CU_ASSERT_TRUE(wait_csts(c, 0));
	CU_ASSERT_TRUE(loop_wait_closed(io));
	loop_close(io);
	CU_ASSERT_EQUAL(loop_identify(c, 1, 0, 0, buf), NVME_ST_DNR(GENERIC, CMD_SEQ_ERROR));
	CU_ASSERT_EQUAL(loop_property_set(c, NVME_REG_CC, 4, LOOP_CC_ENABLE), 0);
	CU_ASSERT_EQUAL(csts(c), 1);
	CU_ASSERT_EQUAL(loop_identify(c, 1, 0, 0, buf), 0);
	loop_close(c);
}

static void test_shutdown_completes(void)
{
	struct loop_conn *c = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
	struct loop_conn *io = loop_io_queue(c, 1);

	CU_ASSERT_EQUAL(loop_property_set(c, NVME_REG_CC, 4, LOOP_CC_ENABLE | 1u << NVME_CC_SHN_SHIFT), 0);
	CU_ASSERT_TRUE(wait_csts(c, 1 | NVME_CSTS_SHST_CMPLT << NVME_CSTS_SHST_SHIFT));
	CU_ASSERT_TRUE(loop_wait_closed(io));
	loop_close(io);
	/* And back to life by way of a reset. */
	CU_ASSERT_EQUAL(loop_property_set(c, NVME_REG_CC, 4, 0), 0);
	CU_ASSERT_TRUE(wait_csts(c, 0));
	CU_ASSERT_EQUAL(loop_property_set(c, NVME_REG_CC, 4, LOOP_CC_ENABLE), 0);
	CU_ASSERT_EQUAL(csts(c), 1);
	loop_close(c);
}

static void begin_set_cc(struct loop_cmd *set, struct loop_conn *c, uint32_t cc)
{
	struct nvmf_property_set_sqe *property = (void *)&set->sqe;

	loop_cmd_init(set, c, nvme_admin_fabrics, 0);
	property->fctype = nvme_fabrics_type_property_set;
	property->attrib = NVMF_PROPERTY_SIZE_4;
	property->ofst = htole32(NVME_REG_CC);
	property->value = htole64(cc);
	loop_submit(set);
}

/* Whatever was written to CC before: a host that enables, resets and enables has a controller that is ready. */
static void check_comes_back(struct loop_conn *c)
{
	uint8_t buf[4096];

	CU_ASSERT_EQUAL(loop_property_set(c, NVME_REG_CC, 4, LOOP_CC_ENABLE), 0);
	CU_ASSERT_EQUAL(loop_property_set(c, NVME_REG_CC, 4, 0), 0);
	CU_ASSERT_TRUE(wait_csts(c, 0));
	CU_ASSERT_EQUAL(loop_property_set(c, NVME_REG_CC, 4, LOOP_CC_ENABLE), 0);
	CU_ASSERT_EQUAL(csts(c), 1);
	CU_ASSERT_EQUAL(loop_identify(c, 1, 0, 0, buf), 0);
}

static void test_any_order_of_enables_resets_and_shutdowns_is_survived(void)
{
	enum { WRITES = 4 };
	static const uint32_t values[] = {0, LOOP_CC_ENABLE, 1 /* impossible */, 1u << NVME_CC_SHN_SHIFT,
					  LOOP_CC_ENABLE | 1u << NVME_CC_SHN_SHIFT};
	struct loop_cmd writes[WRITES];

	for (unsigned order = 0; order < 5 * 5 * 5 * 5; order++) {
		struct loop_conn *c = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
		struct loop_conn *io = loop_io_queue(c, 1);
		for (unsigned i = 0, rest = order; i < WRITES; i++, rest /= 5) {
			begin_set_cc(&writes[i], c, values[rest % 5]);
		}
		for (unsigned i = 0; i < WRITES; i++) {
			CU_ASSERT_EQUAL(loop_wait(&writes[i]), 0);
		}
		check_comes_back(c);
		CU_ASSERT_TRUE(loop_wait_closed(io));
		loop_close(io);
		loop_close(c);
	}
}

static void test_enable_during_a_reset_takes_effect_after_it(void)
{
	struct loop_conn *c = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
	struct loop_conn *io = loop_io_queue(c, 1);
	struct loop_cmd off, on;

	begin_set_cc(&off, c, 0);
	begin_set_cc(&on, c, LOOP_CC_ENABLE);
	CU_ASSERT_EQUAL(loop_wait(&off), 0);
	CU_ASSERT_EQUAL(loop_wait(&on), 0);
	CU_ASSERT_TRUE(loop_wait_closed(io));
	loop_close(io);
	CU_ASSERT_TRUE(wait_csts(c, 1));
	io = loop_io_queue(c, 1);
	CU_ASSERT_PTR_NOT_NULL(io);
	loop_close(io);
	loop_close(c);
}

static void test_shutdown_during_a_reset_completes_after_it(void)
{
	struct loop_conn *c = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
	struct loop_conn *io = loop_io_queue(c, 1);
	struct loop_cmd off, down;

	begin_set_cc(&off, c, 0);
	begin_set_cc(&down, c, 1u << NVME_CC_SHN_SHIFT);
	CU_ASSERT_EQUAL(loop_wait(&off), 0);
	CU_ASSERT_EQUAL(loop_wait(&down), 0);
	CU_ASSERT_TRUE(wait_csts(c, NVME_CSTS_SHST_CMPLT << NVME_CSTS_SHST_SHIFT));
	CU_ASSERT_TRUE(loop_wait_closed(io));
	loop_close(io);
	check_comes_back(c);
	loop_close(c);
}

static void test_shutdown_does_not_outlive_a_reset_that_came_during_one(void)
{
	static const uint32_t values[] = {0, LOOP_CC_ENABLE | 1u << NVME_CC_SHN_SHIFT, 0};
	struct loop_conn *c = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
	struct loop_conn *io = loop_io_queue(c, 1);
	struct loop_cmd writes[ARRAY_SIZE(values)];

	for (unsigned i = 0; i < ARRAY_SIZE(values); i++) {
		begin_set_cc(&writes[i], c, values[i]);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(values); i++) {
		CU_ASSERT_EQUAL(loop_wait(&writes[i]), 0);
	}
	CU_ASSERT_TRUE(loop_wait_closed(io));
	loop_close(io);
	CU_ASSERT_TRUE(wait_csts(c, 0));
	CU_ASSERT_EQUAL(loop_property_set(c, NVME_REG_CC, 4, LOOP_CC_ENABLE), 0);
	CU_ASSERT_EQUAL(csts(c), 1);
	loop_close(c);
}

static void test_impossible_configurations_are_fatal(void)
{
	static const uint32_t bad[] = {
		1,                                           /* no queue entry sizes */
		(LOOP_CC_ENABLE & ~(0xfu << 16)) | 5u << 16, /* 32-byte commands */
		LOOP_CC_ENABLE | 7u << NVME_CC_CSS_SHIFT,
		LOOP_CC_ENABLE | 1u << NVME_CC_MPS_SHIFT,
		LOOP_CC_ENABLE | 1u << NVME_CC_AMS_SHIFT,
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct loop_conn *c = prepare(0, NVMF_CNTLID_DYNAMIC);
		CU_ASSERT_EQUAL(loop_run(&cmd), 0);
		CU_ASSERT_EQUAL(loop_property_set(c, NVME_REG_CC, 4, bad[i]), 0);
		CU_ASSERT_EQUAL(csts(c), 2);
		CU_ASSERT_EQUAL(loop_property_set(c, NVME_REG_CC, 4, 0), 0);
		CU_ASSERT_TRUE(wait_csts(c, 0));
		loop_close(c);
	}
}

/* ---- Keep-alive ---- */

static void test_silent_host_is_disconnected(void)
{
	struct loop_conn *c = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 300);
	struct loop_conn *io = loop_io_queue(c, 1);

	CU_ASSERT_TRUE(loop_wait_closed(c));
	CU_ASSERT_TRUE(loop_wait_closed(io));
	loop_close(io);
	loop_close(c);
}

/* One with nothing but Keep Alive, one with nothing but reads: both outlive their timeout. */
static void test_any_traffic_keeps_an_association(void)
{
	uint32_t nsid = loop_add_malloc_ns("m", 512, 1000);
	struct loop_conn *a = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 1500);
	struct loop_conn *b = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 1500);
	struct loop_conn *io = loop_io_queue(b, 1);
	uint64_t end = now_ms() + 2 * 1500 + 100;
	uint8_t buf[512];

	while (now_ms() < end) {
		loop_cmd_init(&cmd, a, nvme_admin_keep_alive, 0);
		CU_ASSERT_EQUAL_FATAL(loop_run(&cmd), 0);
		CU_ASSERT_EQUAL_FATAL(loop_rw(io, nvme_cmd_read, nsid, 0, 0, buf, sizeof(buf)), 0);
	}
	CU_ASSERT_FALSE(atomic_load(&a->closed));
	CU_ASSERT_FALSE(atomic_load(&b->closed));
	loop_close(io);
	loop_close(b);
	loop_close(a);
	loop_remove_malloc_ns(nsid, "m");
}

/* Is asked before the first round, and after it. */
static bool after_a_round(void *asked)
{
	return (*(unsigned *)asked)++ > 0;
}

/* With the control thread the first to run: what the host has sent is not looked at yet. */
static void test_a_host_is_not_silent_while_the_target_is_away(void)
{
	struct loop_conn *c = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 1000);
	unsigned asked = 0;

	be_away((void *)(uintptr_t)1600);
	thread_control_wait(after_a_round, &asked, 0);
	loop_cmd_init(&cmd, c, nvme_admin_keep_alive, 0);
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	CU_ASSERT_TRUE(loop_wait_closed(c)); /* silent indeed */
	loop_close(c);
}

static void test_keep_alive_without_a_timer_is_rejected(void)
{
	struct loop_conn *c = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);

	loop_cmd_init(&cmd, c, nvme_admin_keep_alive, 0);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(GENERIC, KAT_INVALID));
	loop_close(c);
}

/* ---- Endings ---- */

static void test_removed_listener_ends_its_associations(void)
{
	CU_ASSERT_EQUAL(nvmf_subsystem_add_listener(loop_subsystem(), &loop_other_address), 0);
	struct loop_conn *stays = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
	struct loop_conn *goes = loop_open(&loop_other_address, 0);
	struct loop_wait wait = LOOP_WAIT;

	loop_connect_init(&cmd, goes, &data, 0, NVMF_CNTLID_DYNAMIC);
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	nvmf_subsystem_remove_listener(loop_subsystem(), &loop_other_address, loop_done, &wait);
	CU_ASSERT_EQUAL(loop_wait_for(&wait), 0);
	CU_ASSERT_TRUE(loop_wait_closed(goes));
	CU_ASSERT_EQUAL(csts(stays), 1);
	loop_close(goes);
	loop_close(stays);
}

static void test_listener_that_cannot_be_is_refused(void)
{
	struct nvmf_address a = loop_address;
	struct loop_wait wait = LOOP_WAIT;

	CU_ASSERT_EQUAL(nvmf_subsystem_add_listener(loop_subsystem(), &loop_address), -EEXIST);
	strcpy(a.traddr, "nowhere");
	CU_ASSERT_EQUAL(nvmf_subsystem_add_listener(loop_subsystem(), &a), -EADDRNOTAVAIL);
	strcpy(a.trtype, "FC");
	CU_ASSERT_EQUAL(nvmf_subsystem_add_listener(loop_subsystem(), &a), -EINVAL);
	nvmf_subsystem_remove_listener(loop_subsystem(), &loop_other_address, loop_done, &wait);
	CU_ASSERT_EQUAL(loop_wait_for(&wait), -ENOENT);
}

static void test_stopped_subsystem_is_busy(void)
{
	struct loop_conn *old = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
	struct loop_wait stop = LOOP_WAIT, start = LOOP_WAIT;

	nvmf_subsystem_stop(loop_subsystem(), loop_done, &stop);
	CU_ASSERT_EQUAL(loop_wait_for(&stop), 0);
	CU_ASSERT_TRUE(loop_wait_closed(old));
	loop_close(old);
	struct loop_conn *c = prepare(0, NVMF_CNTLID_DYNAMIC);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST(CMD_SPECIFIC, CONNECT_CTRL_BUSY));
	nvmf_subsystem_start(loop_subsystem(), loop_done, &start);
	CU_ASSERT_EQUAL(loop_wait_for(&start), 0);
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	loop_close(c);
}

static void test_many_connections_come_and_go(void)
{
	struct loop_conn *admins[40], *ios[40];

	for (unsigned round = 0; round < 3; round++) {
		for (size_t i = 0; i < ARRAY_SIZE(admins); i++) {
			admins[i] = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 60000);
			ios[i] = loop_io_queue(admins[i], (uint16_t)(i % 4 + 1));
			CU_ASSERT_PTR_NOT_NULL_FATAL(ios[i]);
		}
		for (size_t i = 0; i < ARRAY_SIZE(admins); i++) {
			loop_close(i % 2 ? admins[i] : ios[i]);
		}
		for (size_t i = 0; i < ARRAY_SIZE(admins); i++) {
			loop_close(i % 2 ? ios[i] : admins[i]);
		}
		CU_ASSERT_PTR_NULL(nvmf_ctrlr_next(loop_subsystem(), NULL));
	}
	CU_ASSERT_EQUAL(atomic_load(&loop_qpairs), 0);
}

static void test_queue_pairs_are_spread_over_groups(void)
{
	struct loop_conn *admin = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
	struct loop_conn *io[4];
	unsigned here = 0;

	for (uint16_t i = 0; i < 4; i++) {
		io[i] = loop_io_queue(admin, (uint16_t)(i + 1));
		here += io[i]->thread == loop_group_thread(0);
	}
	CU_ASSERT_EQUAL(here, 2);
	struct nvmf_poll_group_stats stats;
	nvmf_poll_group_get_stats(nvmf_poll_group_next(loop_tgt(), NULL), &stats);
	CU_ASSERT_EQUAL(stats.current_io_qpairs, 2);
	CU_ASSERT_EQUAL(stats.num_transports, 1);
	CU_ASSERT_EQUAL(stats.transports[0].pending_data_buffer, 7);
	for (unsigned i = 0; i < 4; i++) {
		loop_close(io[i]);
	}
	loop_close(admin);
}

/* Connections of one number are in one group, whatever the others have; and when all have gone, the number is free. */
static void test_connections_of_one_placement_share_a_group(void)
{
	struct loop_conn *a[6], *b[3], *none[3];

	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < ARRAY_SIZE(a); i++) {
			loop_placement = 7;
			a[i] = loop_open(&loop_address, 0);
			CU_ASSERT_PTR_EQUAL(a[i]->thread, a[0]->thread);
			if (i < ARRAY_SIZE(b)) {
				loop_placement = UINT32_MAX;
				b[i] = loop_open(&loop_address, 0);
				CU_ASSERT_PTR_EQUAL(b[i]->thread, b[0]->thread);
			}
		}
		CU_ASSERT_PTR_NOT_EQUAL(a[0]->thread, b[0]->thread);
		loop_placement = 0;
		for (unsigned i = 0; i < ARRAY_SIZE(none); i++) { /* where there are fewer */
			none[i] = loop_open(&loop_address, 0);
			CU_ASSERT_PTR_EQUAL(none[i]->thread, b[0]->thread);
		}
		for (unsigned i = 0; i < ARRAY_SIZE(none); i++) {
			loop_close(none[i]);
			loop_close(b[i]);
		}
		CU_ASSERT_FALSE(TAILQ_EMPTY(&loop_tgt()->placements));
		for (unsigned i = 0; i < ARRAY_SIZE(a); i++) {
			loop_close(a[i]);
		}
		CU_ASSERT(TAILQ_EMPTY(&loop_tgt()->placements));
	}
}

static const struct unit_test tests[] = {
	UNIT(test_connect_makes_a_controller),
	UNIT(test_a_host_without_a_name_goes_by_its_address),
	UNIT(test_a_host_without_a_name_does_not_get_anothers_controller),
	UNIT(test_a_host_without_a_name_is_none_of_those_listed),
	UNIT(test_controller_ids_are_not_reused_at_once),
	UNIT(test_sq_flow_control_can_be_disabled),
	UNIT(test_sq_head_follows_and_wraps),
	UNIT(test_connect_to_unknown_subsystem_is_rejected),
	UNIT(test_connect_through_another_listener_is_rejected),
	UNIT(test_connect_with_malformed_names_is_rejected),
	UNIT(test_connect_with_static_id_to_dynamic_subsystem_is_rejected),
	UNIT(test_connect_with_long_admin_queue_is_rejected),
	UNIT(test_connect_with_unknown_record_format_is_rejected),
	UNIT(test_connect_with_too_little_data_is_rejected),
	UNIT(test_connect_data_in_the_capsule_is_taken),
	UNIT(test_host_that_is_not_allowed_is_rejected),
	UNIT(test_second_connect_on_a_queue_is_rejected),
	UNIT(test_commands_before_connect_are_rejected),
	UNIT(test_connection_without_connect_is_closed),
	UNIT(test_a_connect_is_not_late_while_the_target_is_away),
	UNIT(test_io_queue_connects_to_its_controller),
	UNIT(test_io_queue_with_wrong_fields_is_rejected),
	UNIT(test_io_queue_id_in_use_is_rejected),
	UNIT(test_io_queue_before_enable_is_rejected),
	UNIT(test_discovery_controller_has_no_io_queues),
	UNIT(test_static_controllers),
	UNIT(test_subsystem_without_memory_to_be_destroyed_stays),
	UNIT(test_hosts_stay_allowed_if_there_is_no_memory_to_end_their_controllers),
	UNIT(test_registers_have_their_values),
	UNIT(test_wrong_register_accesses_are_rejected),
	UNIT(test_enable_reset_and_enable_again),
	UNIT(test_shutdown_completes),
	UNIT(test_any_order_of_enables_resets_and_shutdowns_is_survived),
	UNIT(test_enable_during_a_reset_takes_effect_after_it),
	UNIT(test_shutdown_during_a_reset_completes_after_it),
	UNIT(test_shutdown_does_not_outlive_a_reset_that_came_during_one),
	UNIT(test_impossible_configurations_are_fatal),
	UNIT(test_silent_host_is_disconnected),
	UNIT(test_any_traffic_keeps_an_association),
	UNIT(test_a_host_is_not_silent_while_the_target_is_away),
	UNIT(test_keep_alive_without_a_timer_is_rejected),
	UNIT(test_removed_listener_ends_its_associations),
	UNIT(test_listener_that_cannot_be_is_refused),
	UNIT(test_stopped_subsystem_is_busy),
	UNIT(test_many_connections_come_and_go),
	UNIT(test_queue_pairs_are_spread_over_groups),
	UNIT(test_connections_of_one_placement_share_a_group),
	UNIT_END,
};
UNIT_MAIN("nvmf_connect", tests, loop_start, loop_stop)

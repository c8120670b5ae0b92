/* SPDX-License-Identifier: BSD-3-Clause */
#include "unittest/nvmf_rdma/hosts.h"

#include "thread/thread.h"
#include "unittest/bdev/fixture.h"

struct thread *host_group_thread;
static unsigned hosts_made;

struct command {
	struct fake_conn *conn;
	const void *sqe, *data;
	uint32_t data_len;
	bool sent;
};

void host_on_answer(struct fake_conn *conn, const struct nvme_cqe *cqe)
{
	struct host *h = conn->arg;

	h->cqe = *cqe;
	atomic_fetch_add(&h->answers, 1);
	fixture_wake();
}

static void send_command(void *arg)
{
	struct command *c = arg;

	c->sent = fake_send(c->conn, c->sqe, c->data, c->data_len);
}

/* Its status, or 0xffff if no answer came. */
uint16_t host_do_command(struct host *h, struct fake_conn *conn, const void *sqe, const void *data, uint32_t data_len)
{
	struct command c = {.conn = conn, .sqe = sqe, .data = data, .data_len = data_len};
	unsigned before = atomic_load(&h->answers);

	thread_call(host_group_thread, send_command, &c);
	if (!c.sent || !fixture_wait_count(&h->answers, before + 1)) {
		return 0xffff;
	}
	return nvme_cqe_status(&h->cqe);
}

bool host_is_accepted(void *arg)
{
	return __atomic_load_n(&((struct fake_conn *)arg)->accepted, __ATOMIC_ACQUIRE);
}

bool host_is_rejected(void *arg)
{
	return __atomic_load_n(&((struct fake_conn *)arg)->rejected, __ATOMIC_ACQUIRE);
}

uint16_t host_connect_queue(struct host *h, struct fake_conn *conn, uint16_t qid, uint16_t cntlid)
{
	struct nvmf_connect_data data = {.cntlid = htole16(cntlid), .hostid = {1}};
	struct nvmf_connect_sqe sqe = {
		.opcode = nvme_admin_fabrics,
		.flags = NVME_CMD_FLAGS_PSDT_SGL,
		.fctype = nvme_fabrics_type_connect,
		.qid = htole16(qid),
		.sqsize = htole16(HOST_ENTRIES - 1u),
		.sgl1 = nvme_sgl_make_plain(NVME_SGL_TYPE_DATA_BLOCK, NVME_SGL_SUBTYPE_OFFSET, 0, sizeof(data))};

	conn->arg = h;
	conn->on_response = host_on_answer;
	conn->cntlid = cntlid;
	memcpy(data.hostid + 8, &hosts_made, sizeof(hosts_made));
	strcpy(data.subsysnqn, HOST_SUBNQN);
	snprintf(data.hostnqn, sizeof(data.hostnqn), "nqn.2026-11.io.varve:host%u", hosts_made);
	fake_connect(conn, qid, HOST_ENTRIES);
	return fixture_poll(host_is_accepted, conn) ? host_do_command(h, conn, &sqe, &data, sizeof(data)) : 0xffff;
}

uint16_t host_enable(struct host *h)
{
	struct nvmf_property_set_sqe sqe = {.opcode = nvme_admin_fabrics,
					    .flags = NVME_CMD_FLAGS_PSDT_SGL,
					    .fctype = nvme_fabrics_type_property_set,
					    .ofst = htole32(NVME_REG_CC),
					    .value = htole64(1 | 6 << 16 | 4 << 20)};

	return host_do_command(h, &h->admin, &sqe, NULL, 0);
}

bool host_try_connect(struct host *h, unsigned device)
{
	hosts_made++;
	h->admin.device = h->io.device = device;
	if (host_connect_queue(h, &h->admin, 0, NVMF_CNTLID_DYNAMIC) != 0) {
		return false;
	}
	uint16_t cntlid = (uint16_t)le32toh(h->cqe.dw0);

	return host_enable(h) == 0 && host_connect_queue(h, &h->io, 1, cntlid) == 0;
}

void host_connect(struct host *h, unsigned device)
{
	CU_ASSERT_FATAL(host_try_connect(h, device));
}

struct nvme_sqe host_rw(uint8_t opcode, unsigned lba)
{
	return (struct nvme_sqe){.opcode = opcode,
				 .flags = NVME_CMD_FLAGS_PSDT_SGL,
				 .cid = htole16((uint16_t)lba),
				 .nsid = htole32(1),
				 .cdw10 = htole32(lba),
				 .sgl1 = nvme_sgl_make_keyed(0x1000, 4096, FAKE_RKEY, NVME_SGL_SUBTYPE_ADDRESS)};
}

uint16_t host_read_one(struct host *h)
{
	struct nvme_sqe sqe = host_rw(nvme_cmd_read, 1);

	return host_do_command(h, &h->io, &sqe, NULL, 0);
}

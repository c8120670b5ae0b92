/* SPDX-License-Identifier: BSD-3-Clause */
#include "unittest/nvmf/resv_fixture.h"

#include <unistd.h>

uint8_t data[LOOP_MAX_IO] __attribute__((aligned(8)));
char folder[] = "/tmp/varve-resv-XXXXXX";
char file[64];
uint32_t nsid;
struct host a, b;

uint64_t le(size_t offset, unsigned bytes)
{
	uint64_t v = 0;

	for (unsigned i = bytes; i-- > 0;) {
		v = v << 8 | data[offset + i];
	}
	return v;
}

void attach_host(struct host *h, uint8_t letter)
{
	h->letter = letter;
	h->admin = loop_attach_as(&(struct loop_host){&loop_address, LOOP_SUBNQN, LOOP_HOSTNQN, letter, 0});
	CU_ASSERT_PTR_NOT_NULL_FATAL(h->admin);
	h->io = loop_io_queue(h->admin, 1);
	CU_ASSERT_PTR_NOT_NULL_FATAL(h->io);
}

void detach_host(struct host *h)
{
	loop_close(h->io);
	loop_close(h->admin);
}

int add_ns(const char *ptpl_file)
{
	struct nvmf_ns_opts opts = {.ptpl_file = ptpl_file, .uuid = {1, 2, 3}};

	return nvmf_subsystem_add_ns(loop_subsystem(), "m", &opts, &nsid);
}

void attach(bool persistent)
{
	make_malloc("m", 512, 1000);
	snprintf(file, sizeof(file), "%s/resv", folder);
	CU_ASSERT_EQUAL_FATAL(add_ns(persistent ? file : NULL), 0);
	attach_host(&a, 'a');
	attach_host(&b, 'b');
}

void detach(void)
{
	detach_host(&a);
	detach_host(&b);
	loop_remove_malloc_ns(nsid, "m");
	unlink(file);
}

void make_cmd(struct loop_cmd *cmd, const struct host *h, uint8_t opcode, uint32_t cdw10, uint64_t key, uint64_t second,
	      uint64_t keys[2])
{
	keys[0] = htole64(key);
	keys[1] = htole64(second);
	loop_cmd_init(cmd, h->io, opcode, nsid);
	cmd->sqe.cdw10 = htole32(cdw10);
	loop_cmd_data(cmd, keys, 16);
}

uint16_t run_resv(const struct host *h, uint8_t opcode, uint32_t cdw10, uint64_t key, uint64_t second)
{
	uint64_t keys[2];
	struct loop_cmd cmd;

	make_cmd(&cmd, h, opcode, cdw10, key, second, keys);
	return loop_run(&cmd);
}

uint16_t reg(const struct host *h, uint32_t cdw10)
{
	return run_resv(h, nvme_cmd_resv_register, cdw10, h->letter, h->letter);
}

uint16_t acquire(const struct host *h, uint32_t action, uint32_t type, uint64_t prkey)
{
	return run_resv(h, nvme_cmd_resv_acquire, action | type << 8, h->letter, prkey);
}

uint16_t release(const struct host *h, uint32_t action, uint32_t type)
{
	return run_resv(h, nvme_cmd_resv_release, action | type << 8, h->letter, 0);
}

uint16_t report(const struct host *h, uint32_t len, bool extended)
{
	struct loop_cmd cmd;

	memset(data, 0xa5, sizeof(data));
	loop_cmd_init(&cmd, h->io, nvme_cmd_resv_report, nsid);
	cmd.sqe.cdw10 = htole32(len / 4 - 1);
	cmd.sqe.cdw11 = htole32(extended);
	loop_cmd_data(&cmd, data, len);
	return loop_run(&cmd);
}

uint16_t io(const struct host *h, uint8_t opcode)
{
	return loop_rw(h->io, opcode, nsid, 0, 0, data, 512);
}

uint16_t feature(const struct host *h, uint8_t opcode, uint32_t fid, uint32_t ns, uint32_t *value)
{
	struct loop_cmd cmd;

	loop_cmd_init(&cmd, h->admin, opcode, ns);
	cmd.sqe.cdw10 = htole32(fid);
	cmd.sqe.cdw11 = htole32(*value);
	uint16_t status = loop_run(&cmd);
	*value = le32toh(cmd.cqe.dw0);
	return status;
}

uint16_t set_feature(const struct host *h, uint8_t fid, uint32_t ns, uint32_t value)
{
	return feature(h, nvme_admin_set_features, fid, ns, &value);
}

void restart(void)
{
	detach_host(&a);
	detach_host(&b);
	loop_remove_ns(nsid);
	CU_ASSERT_EQUAL_FATAL(add_ns(file), 0);
	attach_host(&a, 'a');
	attach_host(&b, 'b');
}

int resv_start(void)
{
	return mkdtemp(folder) == NULL ? -1 : loop_start();
}

int resv_stop(void)
{
	return rmdir(folder) | loop_stop();
}

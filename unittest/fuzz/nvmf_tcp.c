/* SPDX-License-Identifier: BSD-3-Clause */
/* A connection of the target, with nothing real around it (unittest/nvmf_tcp/fake_target.h). The input is a row of
 * steps: what the host sends, whole PDUs or any bytes, in pieces of any size, and what happens beside it. At the end
 * all must have been given back. */
#include <stdlib.h>

#include "unittest/nvmf_tcp/fake_target.h"
#include "util/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const uint8_t *at;
	size_t left;
};

static uint8_t next(struct input *in)
{
	if (in->left == 0) {
		return 0;
	}
	in->left--;
	return *in->at++;
}

static uint16_t ttag_of(uint8_t cid)
{
	const struct nvmf_tcp_request *r = fake_request(cid);

	return r != NULL ? r->ttag : cid;
}

static void send_bytes(struct input *in)
{
	size_t n = next(in);

	n = n < in->left ? n : in->left;
	fake_receive(in->at, n);
	in->at += n;
	in->left -= n;
}

static void send_data(struct input *in)
{
	uint8_t cid = next(in) % 8, blocks = next(in), flags = next(in);
	uint32_t length = blocks * 128u + 4;

	fake_data(cid, (uint16_t)(ttag_of(cid) + (flags >> 6)), (flags & 0x20) != 0 ? length : 0, length, flags,
		  (flags & 1) != 0, (flags & 2) != 0 ? next(in) + 1u : 0);
}

static void abort_one(uint8_t cid)
{
	struct nvmf_tcp_request *r = fake_request(cid % 8);

	if (r != NULL && r->req.where == NVMF_REQUEST_TRANSPORT) {
		(void)nvmf_tcp_op_request_abort(&r->req, NVME_ST(GENERIC, ABORT_REQ));
	}
	fake_run();
}

static void step(struct input *in)
{
	static const size_t rooms[] = {0, 1, 23, 24, 25, 100, 5000, SIZE_MAX};
	uint8_t what = next(in), arg = next(in);

	switch (what % 12) {
	case 0:
		send_bytes(in);
		break;
	case 1:
		fake_icreq(arg & 3);
		break;
	case 2:
		fake_connect();
		break;
	case 3:
	case 4:
		fake_command(what % 12 == 3 ? nvme_cmd_write : nvme_cmd_read, arg % 8, next(in) % 64 + 1, arg,
			     (arg & 8) != 0);
		break;
	case 5:
		fake_command(arg, arg % 8, 1, arg, false);
		break;
	case 6:
		send_data(in);
		break;
	case 7:
		abort_one(arg);
		break;
	case 8:
		fake.room = rooms[arg % 8];
		fake_run();
		break;
	case 9:
		fake.in_at_once = rooms[arg % 7 + 1];
		break;
	case 10:
		fake.buffers = arg % 4;
		fake_run();
		break;
	case 11:
		fake.holds = (arg & 1) != 0;
		fake_carry_out();
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};

	log_set_level(LOG_LEVEL_DISABLED);
	log_set_print_level(LOG_LEVEL_DISABLED);
	fake_open();
	while (in.left > 0 && fake.qp != NULL && nvmf_tcp_qpair_is_open(fake.qp)) {
		step(&in);
	}
	if (!fake_end()) {
		abort();
	}
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* A hostile drive: the input's bytes spoil the registers, the data of every admin answer, and every field of every
 * completion of the model controller. The driver must neither crash nor write where it should not (the buffers here are
 * malloc's, so that AddressSanitizer sees), and must complete what it took exactly once. Time is virtual: the same
 * input is the same run. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "unittest/nvme/model.h"
#include "util/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define IOS      8
#define NS_BYTES (256 << 10) /* larger ones would cost a run more time than all else */
#define STEP_US  3000000     /* more than any of the driver's own deadlines here */
#define IDLE_US  500         /* the time that passes in a round of the control thread */
#define BUSY_US  1

struct input {
	const uint8_t *data;
	size_t size, bit;
};

struct io {
	uint8_t *buf;
	struct iovec iov[2];
	struct nvme_request *req;
	unsigned submitted, completed;
};

static struct model model;
static struct input input;
static uint64_t idle_ticks, busy_ticks;
static struct nvme_ctrlr *ctrlr;
static struct nvme_qpair *qpair;
static struct poller *qpair_poller;
static struct io ios[IOS];
static bool settled, is_ready, created, destroyed;

static uint64_t next_bits(void *arg, unsigned bits)
{
	struct input *in = arg;
	uint64_t v = 0;

	for (unsigned i = 0; i < bits; i++, in->bit++) {
		v |= in->bit / 8 < in->size ? (uint64_t)(in->data[in->bit / 8] >> in->bit % 8 & 1) << i : 0;
	}
	return v;
}

static int run_model(void *ctx)
{
	/* if nothing happens in a round, the driver waits for its timers */
	env_ticks_virtual += model_step(&model) == 0 ? idle_ticks : busy_ticks;
	return POLLER_BUSY;
}

static int run_qpair(void *ctx)
{
	nvme_qpair_poll(qpair, 0);
	return POLLER_BUSY;
}

static void start(void)
{
	static bool started;
	const struct env_opts env = {.name = "fuzz",
				     .cores = "[0]",
				     .oversubscribe = true,
				     .instance_id = -1,
				     .no_huge = true,
				     .no_pci = true};
	const struct thread_lib_opts opts = {.poll_mode = POLL_MODE_ADAPTIVE};
	char error[ENV_ERROR_MAX];

	if (started) {
		return;
	}
	started = true;
	log_set_print_level(LOG_LEVEL_DISABLED);
	if (env_init(&env, error) != 0 || thread_lib_start(&opts) != 0) {
		abort();
	}
	nvme_pcie_set_access(&model_access);
	model_ns_bytes = NS_BYTES;
	idle_ticks = env_us_to_ticks(IDLE_US);
	busy_ticks = env_us_to_ticks(BUSY_US);
	env_ticks_virtual = env_ticks(); /* from here on, time passes with rounds, and no run really waits */
}

static void stopped(void *arg)
{
	struct nvme_qpair *q = qpair;

	poller_unregister(&qpair_poller);
	nvme_qpair_abort_all(q);
	qpair = NULL;
	nvme_qpair_destroy(q);
}

static void on_event(struct nvme_ctrlr *c, enum nvme_event event, uint32_t aer, void *arg)
{
	switch (event) {
	case NVME_EVENT_READY:
		is_ready = true;
		settled = true;
		break;
	case NVME_EVENT_DOWN:
	case NVME_EVENT_FAILED:
	case NVME_EVENT_REMOVED:
		is_ready = false;
		settled = true;
		if (qpair != NULL) {
			nvme_qpair_stop(qpair, stopped, NULL);
		}
		break;
	case NVME_EVENT_RETRY:
		settled = true;
		break;
	default:
		break;
	}
}

static bool true_by(void *arg)
{
	return *(bool *)arg;
}

static void wait_for(bool *condition)
{
	thread_control_wait(true_by, condition, STEP_US);
	if (!*condition) {
		abort(); /* the driver waits for ever for a drive that does not answer */
	}
}

static void qpair_ready(void *arg, struct nvme_qpair *q, int error)
{
	qpair = q;
	created = true;
	if (q != NULL) {
		qpair_poller = poller_register(&(struct poller_opts){.name = "qpair", .fn = run_qpair, .fd = -1});
	}
}

static void io_done(struct nvme_request *req, const struct nvme_cqe *cqe)
{
	((struct io *)req->cb_arg)->completed++;
}

static void submit(struct io *io, uint64_t lba)
{
	size_t len = 512 * (1 + next_bits(&input, 4)), first = len / 2 & ~(size_t)3;

	io->buf = aligned_alloc(4, len);
	io->req = calloc(1, nvme_request_size());
	io->iov[0] = (struct iovec){.iov_base = io->buf, .iov_len = first};
	io->iov[1] = (struct iovec){.iov_base = io->buf + first, .iov_len = len - first};
	memset(io->buf, 0, len);
	io->req->cmd.opcode = next_bits(&input, 1) ? nvme_cmd_read : nvme_cmd_write;
	io->req->cmd.nsid = htole32(1);
	io->req->cmd.cdw10 = htole32((uint32_t)lba);
	io->req->cmd.cdw12 = htole32((uint32_t)(len / 512 - 1));
	io->req->iovs = io->iov;
	io->req->iovcnt = 2;
	io->req->data_len = (uint32_t)len;
	io->req->cb = io_done;
	io->req->cb_arg = io;
	io->submitted = nvme_qpair_submit(qpair, io->req) == 0;
}

static bool ios_done(void *arg)
{
	for (unsigned i = 0; i < IOS; i++) {
		if (ios[i].completed < ios[i].submitted) {
			return false;
		}
	}
	return true;
}

static void do_io(void)
{
	created = false;
	nvme_qpair_create(ctrlr, &(struct nvme_qpair_opts){.entries = 15, .numa_node = -1}, qpair_ready, NULL);
	wait_for(&created);
	for (unsigned i = 0; i < IOS && qpair != NULL; i++) {
		submit(&ios[i], next_bits(&input, 8));
	}
	if (next_bits(&input, 1)) {
		model_event(&model, (uint32_t)next_bits(&input, 32));
	}
	if (next_bits(&input, 2) == 1) {
		model_remove(&model);
	}
	if (!thread_control_wait(ios_done, NULL, STEP_US)) {
		abort();
	}
}

static void ctrlr_gone(void *arg)
{
	destroyed = true;
}

static bool no_qpair(void *arg)
{
	return qpair == NULL;
}

static void end_all(void)
{
	if (qpair != NULL && is_ready) {
		nvme_qpair_stop(qpair, stopped, NULL);
	}
	if (!thread_control_wait(no_qpair, NULL, STEP_US)) {
		abort();
	}
	destroyed = false;
	nvme_ctrlr_destroy(ctrlr, ctrlr_gone, NULL);
	wait_for(&destroyed);
	for (unsigned i = 0; i < IOS; i++) {
		if (ios[i].completed != ios[i].submitted) {
			abort();
		}
		free(ios[i].buf);
		free(ios[i].req);
	}
	memset(ios, 0, sizeof(ios));
}

static void spoil_registers(void)
{
	volatile uint32_t *cap = (volatile uint32_t *)model.regs;

	if (next_bits(&input, 2) == 1) {
		cap[0] ^= (uint32_t)next_bits(&input, 32) & 0x00ffffff; /* but not TO, to be quick */
		cap[1] ^= (uint32_t)next_bits(&input, 32);
		*(volatile uint32_t *)(model.regs + NVME_REG_VS) ^= (uint32_t)next_bits(&input, 32);
		*(volatile uint32_t *)(model.regs + NVME_REG_CSTS) ^= (uint32_t)next_bits(&input, 8);
	}
	cap[0] &= 0x00ffffff;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct nvme_trid trid = {.trtype = NVME_TRTYPE_PCIE, .traddr = "0000:00:04.0"};
	struct nvme_ctrlr_opts opts;
	char error[NVME_ERROR_MAX];

	start();
	input = (struct input){.data = data, .size = size};
	model_init(&model);
	model.shadow_offered = next_bits(&input, 1);
	model.noise = next_bits;
	model.noise_arg = &input;
	model_current = &model;
	spoil_registers();
	struct poller *p = poller_register(&(struct poller_opts){.name = "model", .fn = run_model, .fd = -1});
	nvme_ctrlr_opts_default(&opts);
	opts.admin_timeout_ms = opts.connect_timeout_ms = opts.io_timeout_ms = 4;
	opts.io_queues = 2;
	opts.event = on_event;
	settled = is_ready = false;
	ctrlr = nvme_ctrlr_create(&trid, &opts, error);
	if (ctrlr == NULL) {
		abort();
	}
	wait_for(&settled);
	if (is_ready) {
		do_io();
	}
	end_all();
	poller_unregister(&p);
	model_fini(&model);
	return 0;
}

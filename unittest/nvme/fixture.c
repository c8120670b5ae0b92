/* SPDX-License-Identifier: BSD-3-Clause */
#include "unittest/nvme/fixture.h"

#include "nvme/internal.h"
#include "util/log.h"

#include <time.h>

#define NAP_NS 50000

struct fx fx;
static unsigned submitted[FX_IOS];

int fx_setup(void)
{
	const struct env_opts env = {.name = "unit",
				     .cores = "[0]",
				     .oversubscribe = true,
				     .instance_id = -1,
				     .no_huge = true,
				     .no_pci = true};
	const struct thread_lib_opts opts = {.poll_mode = POLL_MODE_ADAPTIVE};
	char error[ENV_ERROR_MAX];

	log_set_print_level(LOG_LEVEL_DISABLED);
	int rc = env_init(&env, error);
	if (rc != 0) {
		printf("%s\n", error);
		return rc;
	}
	nvme_pcie_set_access(&model_access);
	for (unsigned i = 0; i < FX_IOS; i++) {
		fx.io[i].buf = env_dma_zmalloc(16384, 4096, -1);
		fx.io[i].req = calloc(1, nvme_request_size());
	}
	return thread_lib_start(&opts);
}

int fx_teardown(void)
{
	for (unsigned i = 0; i < FX_IOS; i++) {
		env_dma_free(fx.io[i].buf);
		free(fx.io[i].req);
	}
	thread_lib_stop();
	env_fini();
	return 0;
}

static bool asked_twice(void *arg)
{
	unsigned *asked = arg;

	return ++*asked > 1;
}

void fx_round(void)
{
	unsigned asked = 0;

	thread_control_wait(asked_twice, &asked, WAIT_US);
}

void fx_wait_round(void)
{
	fx_round();
	if (fx.model_idle) {
		nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
	}
}

/* The PCI access layer's errors and the model's work come by polling: the control thread does not sleep. */
static int run_model(void *ctx)
{
	fx.model_idle = model_step(&fx.model) == 0;
	return fx.model_idle ? POLLER_IDLE : POLLER_BUSY;
}

static int run_qpair(void *ctx)
{
	fx.poll_result = nvme_qpair_poll(fx.qpair, 0);
	return POLLER_BUSY;
}

static void stopped(void *arg)
{
	struct nvme_qpair *q = fx.qpair;

	fx.stopped = true;
	poller_unregister(&fx.qpair_poller);
	nvme_qpair_abort_all(q);
	fx.qpair = NULL;
	nvme_qpair_destroy(q);
}

static void on_event(struct nvme_ctrlr *ctrlr, enum nvme_event event, uint32_t aer, void *arg)
{
	unsigned *counters[] = {[NVME_EVENT_READY] = &fx.ready,     [NVME_EVENT_DOWN] = &fx.down,
				[NVME_EVENT_RETRY] = &fx.retry,     [NVME_EVENT_FAILED] = &fx.failed,
				[NVME_EVENT_REMOVED] = &fx.removed, [NVME_EVENT_NS_CHANGED] = &fx.ns_changed,
				[NVME_EVENT_LOG] = &fx.logs};

	if (event < sizeof(counters) / sizeof(counters[0])) {
		(*counters[event])++;
	}
	fx.aer = aer;
	if ((event == NVME_EVENT_DOWN || event == NVME_EVENT_FAILED || event == NVME_EVENT_REMOVED) &&
	    fx.qpair != NULL && fx.close_by_event) {
		nvme_qpair_stop(fx.qpair, stopped, NULL);
	}
}

void fx_begin(void)
{
	struct fx_io io[FX_IOS];

	memcpy(io, fx.io, sizeof(io));
	memset(&fx, 0, sizeof(fx));
	memset(submitted, 0, sizeof(submitted));
	for (unsigned i = 0; i < FX_IOS; i++) {
		fx.io[i].buf = io[i].buf;
		fx.io[i].req = io[i].req;
	}
	model_init(&fx.model);
	model_current = &fx.model;
	fx.close_by_event = true;
	nvme_ctrlr_opts_default(&fx.opts);
	fx.opts.io_queues = MODEL_QUEUES - 1;
	fx.opts.admin_timeout_ms = WAIT_US / 1000;
	fx.opts.connect_timeout_ms = WAIT_US / 1000;
	fx.opts.io_timeout_ms = WAIT_US / 1000;
	fx.opts.reconnect_delay_s = 0;
	fx.opts.event = on_event;
	fx.model_poller = poller_register(&(struct poller_opts){.name = "model", .fn = run_model, .fd = -1});
}

void fx_be_quick(void)
{
	struct nvme_ctrlr_opts *o = fx.ctrlr != NULL ? &fx.ctrlr->opts : &fx.opts;

	o->admin_timeout_ms = 200;
	o->connect_timeout_ms = 200;
	o->io_timeout_ms = 40;
	if (fx.ctrlr != NULL) {
		nvme_ctrlr_start_watch(fx.ctrlr);
	}
}

void fx_connect(void)
{
	const struct nvme_trid trid = {.trtype = NVME_TRTYPE_PCIE, .traddr = "0000:00:04.0"};
	char error[NVME_ERROR_MAX];

	fx.ctrlr = nvme_ctrlr_create(&trid, &fx.opts, error);
	CU_ASSERT_FATAL(fx.ctrlr != NULL);
	CU_ASSERT(FX_WAIT(fx.ready || fx.failed || fx.retry || fx.removed));
}

static void qpair_ready(void *arg, struct nvme_qpair *qpair, int error)
{
	fx.created = true;
	fx.create_error = error;
	fx.qpair = qpair;
	if (qpair != NULL) {
		fx.stopped = false;
		fx.qpair_poller = poller_register(&(struct poller_opts){.name = "qpair", .fn = run_qpair, .fd = -1});
	}
}

void fx_create_qpair(uint16_t entries)
{
	fx.created = false;
	nvme_qpair_create(fx.ctrlr, &(struct nvme_qpair_opts){.entries = entries, .numa_node = -1}, qpair_ready, NULL);
	CU_ASSERT(FX_WAIT(fx.created));
}

void fx_begin_ready(uint16_t entries)
{
	fx_begin();
	fx_connect();
	CU_ASSERT_EQUAL_FATAL(fx.ready, 1);
	fx_create_qpair(entries);
	CU_ASSERT_PTR_NOT_NULL_FATAL(fx.qpair);
}

static void destroyed(void *arg)
{
	fx.destroyed = true;
}

void fx_end(void)
{
	if (fx.qpair != NULL) {
		nvme_qpair_stop(fx.qpair, stopped, NULL);
		CU_ASSERT(FX_WAIT(fx.qpair == NULL));
	}
	if (fx.ctrlr != NULL) {
		nvme_ctrlr_destroy(fx.ctrlr, destroyed, NULL);
		CU_ASSERT(FX_WAIT(fx.destroyed));
	}
	poller_unregister(&fx.model_poller);
	CU_ASSERT_STRING_EQUAL(fx.model.violation, "");
	CU_ASSERT(!fx.model.open);
	for (unsigned i = 0; i < FX_IOS; i++) {
		CU_ASSERT_EQUAL(fx.io[i].completions, submitted[i]);
	}
	model_fini(&fx.model);
}

static void io_done(struct nvme_request *req, const struct nvme_cqe *cqe)
{
	struct fx_io *io = req->cb_arg;

	io->completions++;
	io->status = nvme_cqe_status(cqe);
}

int fx_submit_pieces(unsigned i, uint8_t opcode, uint32_t nsid, uint64_t lba, uint32_t blocks, unsigned iovcnt)
{
	struct fx_io *io = &fx.io[i];
	struct nvme_request *req = io->req;

	memset(req, 0, sizeof(*req));
	req->cmd.opcode = opcode;
	req->cmd.nsid = htole32(nsid);
	req->cmd.cdw10 = htole32((uint32_t)lba);
	req->cmd.cdw12 = htole32(blocks - 1);
	req->iovs = io->iov;
	req->iovcnt = (uint16_t)iovcnt;
	req->to_device = opcode != nvme_cmd_read;
	for (unsigned n = 0; n < iovcnt; n++) {
		req->data_len += (uint32_t)io->iov[n].iov_len;
	}
	req->cb = io_done;
	req->cb_arg = io;
	int rc = nvme_qpair_submit(fx.qpair, req);
	submitted[i] += rc == 0;
	return rc;
}

int fx_submit(unsigned i, uint8_t opcode, uint32_t nsid, uint64_t lba, uint32_t blocks)
{
	fx.io[i].iov[0] =
		(struct iovec){.iov_base = fx.io[i].buf, .iov_len = blocks << fx.model.ns[nsid - 1].block_shift};
	return fx_submit_pieces(i, opcode, nsid, lba, blocks, opcode != nvme_cmd_flush);
}

void fx_run(void)
{
	for (unsigned quiet = 0; quiet < 3;) {
		nvme_qpair_flush(fx.qpair);
		unsigned n = model_step(&fx.model);
		int done = nvme_qpair_poll(fx.qpair, 0);
		quiet = n == 0 && done <= 0 ? quiet + 1 : 0;
	}
}

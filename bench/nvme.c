/* SPDX-License-Identifier: BSD-3-Clause */
/* What the NVMe driver costs on PCIe: 4 KiB reads at queue depth 128 on one core, against the model controller of the
 * tests.
 *
 *     nvme.model_ns		the model alone: its doorbells written by a loop that does nothing else
 *     nvme.driver_ns		submission and completion, beyond that
 *     nvme.traced_ns		the same with every tracepoint of the group nvme_pcie on
 *     nvme.bdev_ns		what the block device layer and its NVMe module add to driver_ns
 *     nvme.doorbells_per_io	writes to the device's registers
 *     nvme.allocs_per_io	calls of malloc and its kin */
#include <errno.h>
#include <string.h>

#include "bdev/bdev.h"
#include "bdev_modules/nvme/bdev_nvme.h"
#include "bench/allocations.h"
#include "bench/bench.h"
#include "trace/trace.h"
#include "unittest/nvme/model.h"
#include "util/log.h"

#define QD    128
#define IOS   400000
#define TURNS 31
#define FEW   40000 /* I/Os where instructions are counted */
#define BLOCK 4096

struct io {
	struct iovec iov;
	struct nvme_request req; /* last: the transport's room follows */
};

static struct bench {
	struct model model;
	struct nvme_ctrlr *ctrlr;
	struct nvme_qpair *qpair;
	struct thread *thread;
	uint8_t *ios;
	size_t stride;
	uint8_t *buffers;
	uint32_t random;
	unsigned num_ios, to_submit, to_complete;
	uint64_t ticks;
	uint64_t doorbells, counted_ios;
	struct poller *poller;
	bool ready, created, destroyed;
} b = {.num_ios = IOS};

static void io_done(struct nvme_request *req, const struct nvme_cqe *cqe);

static void submit(struct io *io)
{
	/* Knuth's and Lewis's quick generator; NS 2 has 1024 blocks of 4 KiB */
	b.random = b.random * 1664525 + 1013904223;
	io->req.cmd.opcode = nvme_cmd_read;
	io->req.cmd.nsid = htole32(2);
	io->req.cmd.cdw10 = htole32((b.random >> 8) % 1024);
	io->req.cmd.cdw11 = 0;
	io->req.cmd.cdw12 = 0;
	if (nvme_qpair_submit(b.qpair, &io->req) != 0) {
		abort();
	}
}

static void io_done(struct nvme_request *req, const struct nvme_cqe *cqe)
{
	if (nvme_cqe_status(cqe) != 0) {
		abort();
	}
	b.to_complete--;
	if (b.to_submit > 0) {
		b.to_submit--;
		submit(req->cb_arg);
	}
}

static struct io *io_at(unsigned i)
{
	return (struct io *)(b.ios + i * b.stride);
}

static void run_driver(void *arg)
{
	struct nvme_pcie_qpair *q = nvme_pcie_qpair_of(b.qpair);
	uint64_t doorbells = q->doorbells, start;

	b.to_submit = b.num_ios - QD;
	b.to_complete = b.num_ios;
	counting = true;
	start = env_ticks();
	bench_toggle_count();
	for (unsigned i = 0; i < QD; i++) {
		submit(io_at(i));
	}
	nvme_qpair_flush(b.qpair);
	while (b.to_complete > 0) {
		model_step(&b.model);
		nvme_qpair_poll(b.qpair, 0);
	}
	bench_toggle_count();
	b.ticks = env_ticks() - start;
	counting = false;
	b.doorbells += q->doorbells - doorbells;
	b.counted_ios += b.num_ios;
}

/* The submission queue is full of valid commands of the run before: writes of the doorbells alone make the model carry
 * them out. What it does is undone at the end, so that driver and device agree again. */
static void run_model(void *arg)
{
	struct nvme_pcie_qpair *q = nvme_pcie_qpair_of(b.qpair);
	struct model_queue saved = b.model.queues[b.qpair->id], *mq = &b.model.queues[b.qpair->id];
	uint32_t tail = *q->sq_doorbell, head = *q->cq_doorbell;
	static struct nvme_cqe cq[256];
	uint64_t start = env_ticks();

	mq->cq = (uintptr_t)cq;
	mq->last_head = mq->cq_tail;
	*q->cq_doorbell = mq->cq_tail;
	bench_toggle_count();
	for (unsigned done = 0; done < b.num_ios; done += QD) {
		*q->sq_doorbell = (*q->sq_doorbell + QD) % q->sq_size;
		model_step(&b.model);
		*q->cq_doorbell = mq->cq_tail;
	}
	bench_toggle_count();
	b.ticks = env_ticks() - start;
	*q->sq_doorbell = tail;
	*q->cq_doorbell = head;
	*mq = saved;
}

/* The same reads through a block device, on a second model, which a poller of the same thread runs. */

struct bdev_io_slot {
	struct iovec iov;
	struct bdev_io io; /* last: the module's context follows */
};

static struct {
	struct model model;
	struct poller *control_poller, *reactor_poller;
	struct bdev_nvme *nvme;
	struct bdev_desc *desc;
	struct bdev_channel *ch;
	uint8_t *slots;
	size_t stride;
	uint32_t random;
	unsigned to_submit, to_complete;
	uint64_t start;
	bool attached, done, detached, gone;
} d;

static void set_true(void *flag)
{
	*(bool *)flag = true;
}

static uint64_t next_block(void)
{
	d.random = d.random * 1664525 + 1013904223;
	return (d.random >> 8) % 1024;
}

static void bdev_done(struct bdev_io *io, void *arg)
{
	if (io->status != 0) {
		abort();
	}
	if (d.to_submit > 0) {
		d.to_submit--;
		io->offset_blocks = next_block();
		bdev_submit(io);
	}
	if (--d.to_complete == 0) {
		b.ticks = env_ticks() - d.start;
		counting = false;
		thread_send(thread_control(), set_true, &d.done);
	}
}

static void run_bdev(void *arg)
{
	d.to_submit = b.num_ios - QD;
	d.to_complete = b.num_ios;
	counting = true;
	d.start = env_ticks();
	for (unsigned i = 0; i < QD; i++) {
		struct bdev_io *io = &((struct bdev_io_slot *)(d.slots + i * d.stride))->io;

		io->offset_blocks = next_block();
		bdev_submit(io);
	}
}

static int step_bdev_model(void *ctx)
{
	return model_step(&d.model) > 0 ? POLLER_BUSY : POLLER_IDLE;
}

static struct poller *poll_bdev_model(void)
{
	return poller_register(&(struct poller_opts){.name = "model", .fn = step_bdev_model, .fd = -1});
}

static void open_on_reactor(void *arg)
{
	d.ch = bdev_channel_get(d.desc);
	d.reactor_poller = poll_bdev_model();
}

static void close_on_reactor(void *arg)
{
	bdev_channel_put(d.ch);
	poller_unregister(&d.reactor_poller);
}

static void bdev_event(struct bdev_desc *desc, enum bdev_event e, void *arg)
{
}

static void bdev_attached(void *arg, int rc, struct bdev_nvme *c, const char *error)
{
	if (rc != 0) {
		fprintf(stderr, "bench nvme: %s\n", error);
		exit(EXIT_FAILURE);
	}
	d.nvme = c;
	d.attached = true;
}

static void bdev_detached(void *arg, int rc, const char *error)
{
	d.detached = true;
}

static double ns_per_io(void)
{
	return (double)b.ticks * 1e9 / (double)env_ticks_hz() / b.num_ios;
}

static void wait_for(bool *condition);

static double turn_model(void *arg)
{
	thread_call(b.thread, run_model, NULL);
	return ns_per_io();
}

static double turn_driver(void *arg)
{
	if (arg != NULL) {
		trace_set_tpoints(TRACE_GROUP_NVME_PCIE, UINT64_MAX);
	}
	thread_call(b.thread, run_driver, NULL);
	trace_clear_tpoints(TRACE_GROUP_NVME_PCIE, UINT64_MAX);
	return ns_per_io();
}

static double turn_bdev(void *arg)
{
	d.done = false;
	thread_send(b.thread, run_bdev, NULL);
	wait_for(&d.done);
	return ns_per_io();
}

static void on_event(struct nvme_ctrlr *ctrlr, enum nvme_event event, uint32_t aer, void *arg)
{
	b.ready |= event == NVME_EVENT_READY;
}

static void qpair_ready(void *arg, struct nvme_qpair *qpair, int error)
{
	b.qpair = qpair;
	b.created = true;
}

static void ctrlr_gone(void *arg)
{
	b.destroyed = true;
}

static bool is_true(void *arg)
{
	return *(bool *)arg;
}

static void wait_for(bool *condition)
{
	if (!thread_control_wait(is_true, condition, 120000000)) {
		fprintf(stderr, "bench nvme: the model does not come up: %s\n", nvme_ctrlr_last_error(b.ctrlr));
		exit(EXIT_FAILURE);
	}
}

static int step_model(void *ctx)
{
	model_step(&b.model);
	return POLLER_BUSY;
}

static void attach(void)
{
	const struct nvme_trid trid = {.trtype = NVME_TRTYPE_PCIE, .traddr = "0000:00:04.0"};
	struct nvme_ctrlr_opts opts;
	char error[NVME_ERROR_MAX];

	model_init(&b.model);
	free(b.model.ns[1].data); /* the drive moves the data, not the driver */
	b.model.ns[1].data = NULL;
	model_current = &b.model;
	nvme_pcie_set_access(&model_access);
	b.poller = poller_register(&(struct poller_opts){.name = "model", .fn = step_model, .fd = -1});
	nvme_ctrlr_opts_default(&opts);
	opts.event = on_event;
	b.ctrlr = nvme_ctrlr_create(&trid, &opts, error);
	wait_for(&b.ready);
	nvme_qpair_create(b.ctrlr, &(struct nvme_qpair_opts){.entries = QD, .numa_node = -1}, qpair_ready, NULL);
	wait_for(&b.created);
	poller_pause(b.poller); /* from now on the reactor runs the model */
}

static void make_bdev_ios(void)
{
	d.stride = (offsetof(struct bdev_io_slot, io) + bdev_io_size() + 63) & ~(size_t)63;
	d.slots = aligned_alloc(64, QD * d.stride);
	memset(d.slots, 0, QD * d.stride);
	for (unsigned i = 0; i < QD; i++) {
		struct bdev_io_slot *s = (struct bdev_io_slot *)(d.slots + i * d.stride);

		s->iov = (struct iovec){.iov_base = b.buffers + i * BLOCK, .iov_len = BLOCK};
		bdev_io_init(&s->io, d.desc, d.ch, bdev_done, NULL);
		bdev_io_set_rw(&s->io, BDEV_IO_READ, &s->iov, 1, 0, 1);
	}
}

/* The control thread runs the model while it is being attached, then the reactor that uses it does. */
static void attach_bdev(void)
{
	struct bdev_nvme_attach a;

	model_init(&d.model);
	free(d.model.ns[1].data);
	d.model.ns[1].data = NULL;
	d.model.ns[1].md_size = 0;
	model_current = &d.model;
	d.control_poller = poll_bdev_model();
	bdev_nvme_attach_default(&a);
	a.name = "Nvme0";
	a.trid = (struct nvme_trid){.trtype = NVME_TRTYPE_PCIE, .traddr = "0000:00:05.0"};
	bdev_nvme_attach(&a, bdev_attached, NULL);
	wait_for(&d.attached);
	if (bdev_open("Nvme0n2", true, bdev_event, NULL, &d.desc) != 0) {
		abort();
	}
	poller_unregister(&d.control_poller);
	thread_call(b.thread, open_on_reactor, NULL);
	make_bdev_ios();
}

static void detach_bdev(void)
{
	/* the reactor's poller is being removed, and nothing else uses the model */
	d.control_poller = poll_bdev_model();
	thread_call(b.thread, close_on_reactor, NULL);
	bdev_close(d.desc);
	bdev_nvme_detach(d.nvme, bdev_detached, NULL);
	wait_for(&d.detached);
	bdev_fini(set_true, &d.gone);
	wait_for(&d.gone);
	poller_unregister(&d.control_poller);
	model_fini(&d.model);
	free(d.slots);
}

static void make_ios(void)
{
	b.stride = (offsetof(struct io, req) + nvme_request_size() + 63) & ~(size_t)63;
	b.ios = aligned_alloc(64, QD * b.stride);
	b.buffers = env_dma_zmalloc(QD * BLOCK, BLOCK, -1);
	memset(b.ios, 0, QD * b.stride);
	for (unsigned i = 0; i < QD; i++) {
		struct io *io = io_at(i);

		io->iov = (struct iovec){.iov_base = b.buffers + i * BLOCK, .iov_len = BLOCK};
		io->req.iovs = &io->iov;
		io->req.iovcnt = 1;
		io->req.data_len = BLOCK;
		io->req.cb = io_done;
		io->req.cb_arg = io;
	}
}

static void abort_all(void *arg)
{
	nvme_qpair_abort_all(b.qpair);
}

static void qpair_stopped(void *arg)
{
	thread_call(b.thread, abort_all, NULL);
	nvme_qpair_destroy(b.qpair);
	nvme_ctrlr_destroy(b.ctrlr, ctrlr_gone, NULL);
}

static void reactor_started(void)
{
	trace_thread_attach(env_lcore_current(), "reactor");
}

static void reactor_detach(void *arg)
{
	trace_thread_detach();
}

static void measure_times(void)
{
	double medians[4];
	const struct bench_variant variants[] = {{NULL, "ns", turn_driver, NULL},
						 {NULL, "ns", turn_driver, &b},
						 {NULL, "ns", turn_model, NULL},
						 {NULL, "ns", turn_bdev, NULL}};
	bench_run(variants, 4, TURNS, medians);
	bench_print("nvme.model_ns", medians[2], "ns");
	bench_print("nvme.driver_ns", medians[0] - medians[2], "ns");
	bench_print("nvme.traced_ns", medians[1] - medians[2], "ns");
	bench_print("nvme.bdev_ns", medians[3] - medians[0], "ns");
	bench_print("nvme.doorbells_per_io", (double)b.doorbells / (double)b.counted_ios, "writes");
	bench_print("nvme.allocs_per_io", (double)allocations / (2 * (double)b.counted_ios), "calls");
}

/* After a run of each kind, which pays for what is done once. */
static void count_instructions(void)
{
	b.num_ios = FEW;
	turn_driver(NULL);
	turn_driver(&b);
	bench_counted("warm", FEW);
	turn_model(NULL);
	bench_counted("nvme_model", FEW);
	turn_driver(NULL);
	bench_counted("nvme", FEW);
	turn_driver(&b);
	bench_counted("nvme_traced", FEW);
}

int main(int argc, char **argv)
{
	const struct env_opts env = {.name = "bench_nvme", .instance_id = -1, .no_huge = true, .no_pci = true};
	const struct trace_opts trace = {.name = "bench_nvme",
					 .version = VARVE_VERSION,
					 .instance_id = -1,
					 .num_entries = TRACE_DEFAULT_ENTRIES,
					 .num_user_threads = 1};
	const struct thread_lib_opts opts = {.poll_mode = POLL_MODE_ADAPTIVE, .reactor_started = reactor_started};
	char error[TRACE_ERROR_MAX];

	log_set_print_level(LOG_LEVEL_WARNING);
	if (env_init(&env, error) != 0 || trace_start(&trace, error) != 0 || thread_lib_start(&opts) != 0) {
		fprintf(stderr, "bench nvme: %s\n", error);
		return EXIT_FAILURE;
	}
	b.thread = thread_create("bench", NULL);
	attach();
	make_ios();
	if (bdev_init() != 0) {
		return EXIT_FAILURE;
	}
	attach_bdev();
	if (bench_counts(argc, argv)) {
		count_instructions();
	} else {
		measure_times();
	}
	detach_bdev();
	poller_resume(b.poller);
	nvme_qpair_stop(b.qpair, qpair_stopped, NULL);
	wait_for(&b.destroyed);
	poller_unregister(&b.poller);
	model_fini(&b.model);
	thread_call(b.thread, reactor_detach, NULL);
	thread_destroy(b.thread);
	thread_lib_stop();
	char file[256];
	snprintf(file, sizeof(file), "%s", trace_file_path());
	trace_stop();
	remove(file); /* a benchmark leaves nothing behind */
	env_dma_free(b.buffers);
	env_fini();
	free(b.ios);
	return 0;
}

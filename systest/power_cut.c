/* SPDX-License-Identifier: BSD-3-Clause */
/* power-cut DEVICE LOG: a writer that is killed.
 *
 * DEVICE is uring:FILE or pcie:ADDRESS. Blocks are written without end, each with its number and a generation that
 * counts up; from time to time a flush is sent, while writes go on. LOG is a file of 64-bit generations: those whose
 * write was complete before a flush was submitted that is complete too, and which must therefore be there whenever this
 * process ends. A dot goes to standard output for each flush that has been logged.
 *
 * At its start it reads every block, and holds it against LOG: a block that is older than what was promised, or that is
 * not whole, is an error (status 1). With a third argument, "check", it ends after that. The block of a generation
 * follows from it alone, and a block is never written twice at a time, so that the generation says which of two
 * contents is the newer one. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bdev/bdev.h"
#include "bdev_modules/uring/uring.h"
#include "bdev_modules/nvme/bdev_nvme.h"
#include "env_dpdk/env.h"
#include "thread/thread.h"
#include "util/log.h"

#define BLOCK       4096u
#define BLOCKS      512u
#define DEPTH       32
#define FLUSH_EVERY 48 /* writes */
#define LOG_MAX     (DEPTH + FLUSH_EVERY * 64)
#define DEADLINE_US UINT64_C(120000000)

struct stamp {
	uint64_t block, generation;
};

struct request {
	struct iovec iov;
	uint8_t *buf;
	uint64_t generation;
	struct bdev_io *io;
};

static struct state {
	struct bdev_desc *desc;
	struct bdev_channel *ch;
	uint32_t units; /* of the bdev per block */
	struct request requests[DEPTH], flush;
	uint64_t promised[BLOCKS], newest;
	bool in_flight[BLOCKS];
	uint64_t written[LOG_MAX], flushing[LOG_MAX]; /* complete; and those that the flush under way covers */
	unsigned num_written, num_flushing;
	bool flush_out;
	unsigned read_next, to_read;
	bool attached, failed;
	int log;
} s;

static void die(const char *what)
{
	fprintf(stderr, "power-cut: %s\n", what);
	exit(1);
}

static uint64_t block_of(uint64_t generation)
{
	return (generation * UINT64_C(0x9e3779b97f4a7c15) >> 40) % BLOCKS; /* Knuth's multiplicative hash */
}

/* --- What was promised, and what is there --- */

static void log_load(const char *path)
{
	uint64_t g;
	FILE *f;

	s.log = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	f = fopen(path, "re");
	if (s.log < 0 || f == NULL) {
		die("the log cannot be opened");
	}
	while (fread(&g, sizeof(g), 1, f) == 1) {
		uint64_t *p = &s.promised[block_of(g)];
		*p = g > *p ? g : *p;
		s.newest = g > s.newest ? g : s.newest;
	}
	fclose(f);
}

static void check_block(uint64_t block, const uint8_t *buf)
{
	const struct stamp *stamps = (const struct stamp *)buf;
	uint64_t g = stamps[0].generation;

	for (unsigned i = 0; i < BLOCK / sizeof(*stamps); i++) {
		if (stamps[i].generation != g || (g != 0 && stamps[i].block != block)) {
			fprintf(stderr, "block %" PRIu64 " is not whole: generations %" PRIu64 " and %" PRIu64 "\n",
				block, g, stamps[i].generation);
			s.failed = true;
			return;
		}
	}
	if (g < s.promised[block] || (g != 0 && block_of(g) != block)) {
		fprintf(stderr,
			"block %" PRIu64 " has generation %" PRIu64 ", and %" PRIu64 " was acknowledged and flushed\n",
			block, g, s.promised[block]);
		s.failed = true;
	}
	s.newest = g > s.newest ? g : s.newest;
}

static void submit(struct request *r, enum bdev_io_type type, uint64_t block, bdev_io_cb cb)
{
	bool data = type != BDEV_IO_FLUSH;

	r->iov = (struct iovec){.iov_base = r->buf, .iov_len = BLOCK};
	bdev_io_init(r->io, s.desc, s.ch, cb, r);
	bdev_io_set_rw(r->io, type, data ? &r->iov : NULL, data, block * s.units,
		       data ? s.units : (uint64_t)BLOCKS * s.units);
	bdev_submit(r->io);
}

static void read_more(struct request *r);

static void read_done(struct bdev_io *io, void *arg)
{
	struct request *r = arg;

	if (io->status != 0) {
		die("a read failed");
	}
	check_block(r->generation, r->buf);
	s.to_read--;
	read_more(r);
}

static void read_more(struct request *r)
{
	if (s.read_next < BLOCKS) {
		r->generation = s.read_next++; /* here: the block */
		submit(r, BDEV_IO_READ, r->generation, read_done);
	}
}

static bool all_read(void *arg)
{
	return s.to_read == 0;
}

static void check_all(void)
{
	s.to_read = BLOCKS;
	for (unsigned i = 0; i < DEPTH; i++) {
		read_more(&s.requests[i]);
	}
	if (!thread_control_wait(all_read, NULL, DEADLINE_US)) {
		die("the reads do not end");
	}
}

/* --- Writing --- */

static void flush_done(struct bdev_io *io, void *arg)
{
	ssize_t len = (ssize_t)(s.num_flushing * sizeof(s.flushing[0]));

	if (io->status != 0) {
		die("a flush failed");
	}
	if (write(s.log, s.flushing, (size_t)len) != len || write(STDOUT_FILENO, ".", 1) != 1) {
		die("the log cannot be written");
	}
	s.flush_out = false;
}

static void flush_if_due(void)
{
	if (s.flush_out || s.num_written < FLUSH_EVERY) {
		return;
	}
	memcpy(s.flushing, s.written, s.num_written * sizeof(s.written[0]));
	s.num_flushing = s.num_written;
	s.num_written = 0;
	s.flush_out = true;
	submit(&s.flush, BDEV_IO_FLUSH, 0, flush_done);
}

static void write_next(struct request *r);

static void write_done(struct bdev_io *io, void *arg)
{
	struct request *r = arg;

	if (io->status != 0) {
		die("a write failed");
	}
	s.in_flight[block_of(r->generation)] = false;
	if (s.num_written < LOG_MAX) { /* a flush may take long: what finds no room is not promised */
		s.written[s.num_written++] = r->generation;
	}
	flush_if_due();
	write_next(r);
}

static void write_next(struct request *r)
{
	do {
		r->generation = ++s.newest;
	} while (s.in_flight[block_of(r->generation)]);
	uint64_t block = block_of(r->generation);
	struct stamp *stamps = (struct stamp *)r->buf;
	for (unsigned i = 0; i < BLOCK / sizeof(*stamps); i++) {
		stamps[i] = (struct stamp){block, r->generation};
	}
	s.in_flight[block] = true;
	submit(r, BDEV_IO_WRITE, block, write_done);
}

/* --- The device --- */

static void attached(void *arg, int rc, struct bdev_nvme *c, const char *error)
{
	if (rc != 0) {
		die(error);
	}
	s.attached = true;
}

static bool is_attached(void *arg)
{
	return s.attached;
}

static void device_make(const char *device)
{
	char error[BDEV_ERROR_MAX] = "DEVICE must be uring:FILE or pcie:ADDRESS";

	if (strncmp(device, "uring:", 6) == 0) {
		const struct bdev_uring_opts o = {.name = "Dn1", .filename = device + 6, .block_size = BLOCK};
		if (bdev_uring_create(&o, error) == 0) {
			return;
		}
	} else if (strncmp(device, "pcie:", 5) == 0) {
		struct bdev_nvme_attach a;
		bdev_nvme_attach_default(&a);
		a.name = "D";
		a.num_io_queues = 1;
		a.trid.trtype = NVME_TRTYPE_PCIE;
		snprintf(a.trid.traddr, sizeof(a.trid.traddr), "%s", device + 5);
		bdev_nvme_attach(&a, attached, NULL);
		if (thread_control_wait(is_attached, NULL, DEADLINE_US)) {
			return;
		}
		snprintf(error, sizeof(error), "the controller does not become ready");
	}
	die(error);
}

static void on_event(struct bdev_desc *desc, enum bdev_event event, void *arg)
{
	die("the device is gone");
}

static void device_open(void)
{
	if (bdev_open("Dn1", true, on_event, NULL, &s.desc) != 0) {
		die("the bdev cannot be opened");
	}
	s.ch = bdev_channel_get(s.desc);
	s.units = BLOCK / bdev_block_size(bdev_find("Dn1"));
	for (unsigned i = 0; i <= DEPTH; i++) {
		struct request *r = i < DEPTH ? &s.requests[i] : &s.flush;
		r->io = aligned_alloc(64, bdev_io_size());
		r->buf = env_dma_zmalloc(BLOCK, BLOCK, -1);
		if (s.ch == NULL || r->io == NULL || r->buf == NULL) {
			die("out of memory");
		}
		memset(r->io, 0, bdev_io_size());
	}
}

int main(int argc, char **argv)
{
	const struct env_opts env = {.name = "power-cut", .instance_id = -1, .no_huge = true, .mem_mb = 64};
	const struct thread_lib_opts opts = {.poll_mode = POLL_MODE_ADAPTIVE};
	char error[ENV_ERROR_MAX];

	if (argc < 3) {
		die("power-cut uring:FILE|pcie:ADDRESS LOG [check]");
	}
	log_set_print_level(LOG_LEVEL_WARNING);
	if (env_init(&env, error) != 0) {
		die(error);
	}
	if (thread_lib_start(&opts) != 0 || bdev_init() != 0) {
		die("out of resources");
	}
	log_load(argv[2]);
	device_make(argv[1]);
	device_open();
	check_all();
	if (s.failed || argc > 3) {
		_exit(s.failed); /* nothing is taken down: a kill would not do so either */
	}
	if (write(STDOUT_FILENO, "+", 1) != 1) { /* checked */
		die("standard output is closed");
	}
	for (unsigned i = 0; i < DEPTH; i++) {
		write_next(&s.requests[i]);
	}
	thread_control_run();
	return 1;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* --verify: what a stream writes, what it may read, and the file of --ledger, from which --check-ledger goes on. */
#include "tools/perf/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "env_dpdk/env.h"
#include "tools/perf/pattern.h"
#include "tools/perf/perf.h"
#include "util/log.h"

#define LEDGER_MAGIC UINT64_C(0x72656764656c7676) /* "vvledger" in the file */

_Static_assert(sizeof(struct perf_ledger_header) == 64, "it is in files");
_Static_assert(sizeof(struct perf_ledger_block) == 8, "it is in files");

static uint32_t perf_verify_now_ms(const struct perf_stream *s)
{
	return (uint32_t)((env_ticks() - s->created_ticks) / (env_ticks_hz() / 1000));
}

void perf_verify_issue(struct perf_stream *s, struct perf_io *io)
{
	uint32_t now = perf_verify_now_ms(s);

	io->write_number = ledger_issue(&s->ledger, io->unit, now);
	pattern_fill(io->iov.iov_base, s->block_size, s->blocks_per_unit, s->first_lba + io->unit * s->blocks_per_unit,
		     &(struct pattern_write){
			     .writer = s->writer, .generation = s->ledger.issued[io->unit], .issued_ms = now});
}

void perf_verify_answer(struct perf_stream *s, const struct perf_io *io, bool success)
{
	ledger_answer(&s->ledger, io->unit, io->write_number, perf_verify_now_ms(s), success);
}

static const char *perf_fate_text(enum ledger_fate fate)
{
	return fate == LEDGER_ACKNOWLEDGED ? "acknowledged" : "answered with an error";
}

/* For a message: when a write was issued and answered. */
static void perf_write_describe(const struct perf_stream *s, uint64_t unit, uint32_t generation, char *text,
				size_t size)
{
	struct ledger_write w = ledger_find_write(&s->ledger, unit, generation);

	if (w.generation == 0) {
		snprintf(text, size, "generation %u", generation);
	} else if (w.fate == LEDGER_OPEN) {
		snprintf(text, size, "generation %u (issued at %.3f s, not answered)", generation, w.issued_ms / 1e3);
	} else {
		snprintf(text, size, "generation %u (issued at %.3f s, %s at %.3f s)", generation, w.issued_ms / 1e3,
			 perf_fate_text(w.fate), w.answered_ms / 1e3);
	}
}

static void perf_found_describe(const struct perf_stream *s, uint64_t unit, uint64_t lba, const struct pattern_found *f,
				enum ledger_verdict verdict, char *text, size_t size)
{
	static const char *const whats[] = {[LEDGER_ALLOWED] = "allowed",
					    [LEDGER_STALE] = "stale: a newer write was acknowledged",
					    [LEDGER_WENT_BACK] = "went back: a newer write was read before",
					    [LEDGER_NEVER_WRITTEN] = "was never written"};
	char write[128];

	if (f->write.writer != s->writer) {
		snprintf(text, size, "LBA %" PRIu64 " generation %u of another writer %016" PRIx64, f->lba,
			 f->write.generation, f->write.writer);
		return;
	}
	perf_write_describe(s, unit, f->write.generation, write, sizeof(write));
	snprintf(text, size, "%s%s, which carries %.3f s: %s", f->lba != lba ? "another LBA's " : "", write,
		 f->write.issued_ms / 1e3, f->lba != lba ? "misplaced" : whats[verdict]);
}

static void perf_block_complain(struct perf_stream *s, const struct perf_io *io, uint32_t block,
				const struct pattern_found *f, bool whole, enum ledger_verdict verdict)
{
	uint64_t lba = s->first_lba + io->unit * s->blocks_per_unit + block;
	uint32_t floor = ledger_block_floor(&s->ledger, io->unit, block), last = s->ledger.issued[io->unit];
	char oldest[128], newest[136] = "", found[256];

	perf_write_describe(s, io->unit, floor, oldest, sizeof(oldest));
	if (last != floor) {
		memcpy(newest, " to ", 5);
		perf_write_describe(s, io->unit, last, newest + 4, sizeof(newest) - 4);
	}
	if (whole) {
		perf_found_describe(s, io->unit, lba, f, verdict, found, sizeof(found));
	} else {
		snprintf(found, sizeof(found), "LBA %" PRIu64 " generation %u, and at offset %u something else", f->lba,
			 f->write.generation, f->bad_offset);
	}
	log_limited(LOG_LEVEL_ERROR, "miscompare: namespace %u LBA %" PRIu64 " at %.3f s: expected %s%s, found %s",
		    s->nsid, lba, perf_verify_now_ms(s) / 1e3, oldest, newest, found);
}

void perf_verify_read(struct perf_stream *s, const struct perf_io *io)
{
	bool good = true;

	for (uint32_t b = 0; b < s->blocks_per_unit; b++) {
		uint64_t lba = s->first_lba + io->unit * s->blocks_per_unit + b;
		enum ledger_verdict verdict = LEDGER_NEVER_WRITTEN;
		struct pattern_found f;
		bool whole = pattern_read((uint8_t *)io->iov.iov_base + (size_t)b * s->block_size, s->block_size, &f);

		if (whole && f.lba == lba && f.write.writer == s->writer) {
			verdict = ledger_judge(&s->ledger, io->unit, b, f.write.generation);
		} else if (ledger_block_floor(&s->ledger, io->unit, b) == 0) { /* no write has succeeded yet */
			verdict = LEDGER_ALLOWED;
			f.write.generation = 0;
		}
		s->found[b] = verdict == LEDGER_ALLOWED ? f.write.generation : 0;
		if (verdict != LEDGER_ALLOWED && good) { /* one message per I/O */
			good = false;
			perf_block_complain(s, io, b, &f, whole, verdict);
		}
	}
	s->miscompares += !good;
	ledger_note_read(&s->ledger, io->unit, s->found);
}

/* ---- The file ---- */

static bool perf_ledger_complain(const char *path, const char *why)
{
	fprintf(stderr, "varve-perf: ledger '%s': %s\n", path, why);
	return false;
}

static off_t perf_ledger_place(uint64_t block)
{
	return (off_t)(sizeof(struct perf_ledger_header) + block * sizeof(struct perf_ledger_block));
}

struct perf_ledger_job {
	int fd;
	uint64_t first_lba; /* of the file's first block */
	bool save, failed;
	struct perf_stream *stream;
};

/* One unit's blocks, to the file or from it. */
static bool perf_ledger_move_unit(const struct perf_ledger_job *job, struct perf_stream *s, uint64_t unit)
{
	struct perf_ledger_block block;
	uint64_t at = s->first_lba + unit * s->blocks_per_unit - job->first_lba;

	for (uint32_t b = 0; b < s->blocks_per_unit; b++) {
		off_t place = perf_ledger_place(at + b);

		if (job->save) {
			block = (struct perf_ledger_block){.floor = htole32(ledger_block_floor(&s->ledger, unit, b)),
							   .issued = htole32(s->ledger.issued[unit])};
			if (pwrite(job->fd, &block, sizeof(block), place) != sizeof(block)) {
				return false;
			}
			continue;
		}
		if (pread(job->fd, &block, sizeof(block), place) != sizeof(block)) {
			errno = EINVAL;
			return false;
		}
		ledger_restore_block(&s->ledger, unit, b, le32toh(block.floor), le32toh(block.issued));
	}
	return true;
}

/* The worker's thread. */
static void perf_ledger_move(void *arg)
{
	struct perf_ledger_job *job = arg;

	for (uint64_t unit = 0; unit < job->stream->units && !job->failed; unit++) {
		job->failed = !perf_ledger_move_unit(job, job->stream, unit);
	}
}

static void perf_ledger_move_stream(struct perf_stream *s, void *arg)
{
	struct perf_ledger_job *job = arg;

	job->stream = s;
	if (!job->failed) {
		thread_call(s->worker->thread, perf_ledger_move, job);
	}
}

struct perf_ledger_extent {
	struct perf_stream *any;
	uint64_t first_lba, end_lba;
	bool several;
};

static void perf_ledger_extend(struct perf_stream *s, void *arg)
{
	struct perf_ledger_extent *e = arg;
	uint64_t end = s->first_lba + s->units * s->blocks_per_unit;

	if (e->any == NULL) {
		*e = (struct perf_ledger_extent){.any = s, .first_lba = s->first_lba, .end_lba = end};
		return;
	}
	e->several |= s->target != e->any->target || s->nsid != e->any->nsid;
	e->first_lba = s->first_lba < e->first_lba ? s->first_lba : e->first_lba;
	e->end_lba = end > e->end_lba ? end : e->end_lba;
}

bool perf_ledger_save(struct perf *p)
{
	struct perf_ledger_extent e = {0};
	const char *path = p->opts.ledger;

	if (path == NULL) {
		return true;
	}
	perf_for_each_stream(p, perf_ledger_extend, &e);
	if (e.any == NULL || e.several) {
		return perf_ledger_complain(path, "it is about one namespace; --nsid chooses one");
	}
	struct perf_ledger_header h = {.magic = htole64(LEDGER_MAGIC),
				       .version = htole32(1),
				       .block_size = htole32(e.any->block_size),
				       .blocks_per_unit = htole32(e.any->blocks_per_unit),
				       .writer = htole64(e.any->writer),
				       .first_lba = htole64(e.first_lba),
				       .blocks = htole64(e.end_lba - e.first_lba)};
	struct perf_ledger_job job = {.first_lba = e.first_lba, .save = true};

	job.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (job.fd < 0) {
		return perf_ledger_complain(path, strerror(errno));
	}
	job.failed = pwrite(job.fd, &h, sizeof(h), 0) != sizeof(h);
	perf_for_each_stream(p, perf_ledger_move_stream, &job);
	if (close(job.fd) != 0 || job.failed) {
		return perf_ledger_complain(path, strerror(errno));
	}
	return true;
}

static bool perf_ledger_header_is_valid(const struct perf_ledger_header *h, off_t size)
{
	uint32_t blocks_per_unit = le32toh(h->blocks_per_unit), block_size = le32toh(h->block_size);
	uint64_t blocks = le64toh(h->blocks);

	return le64toh(h->magic) == LEDGER_MAGIC && le32toh(h->version) == 1 && block_size >= 512 &&
	       block_size <= 65536 && blocks_per_unit != 0 && blocks_per_unit <= (1 << 24) / block_size &&
	       le64toh(h->first_lba) < UINT64_C(1) << 48 && blocks != 0 && blocks % blocks_per_unit == 0 &&
	       blocks < UINT64_C(1) << 40 && size == perf_ledger_place(blocks);
}

bool perf_ledger_open(struct perf_options *o)
{
	struct perf_ledger_header *h = &o->checked;
	struct stat st;

	if (o->check_ledger == NULL) {
		return true;
	}
	o->checked_fd = open(o->check_ledger, O_RDONLY | O_CLOEXEC);
	if (o->checked_fd < 0 || fstat(o->checked_fd, &st) != 0) {
		return perf_ledger_complain(o->check_ledger, strerror(errno));
	}
	if (pread(o->checked_fd, h, sizeof(*h), 0) != sizeof(*h) || !perf_ledger_header_is_valid(h, st.st_size)) {
		return perf_ledger_complain(o->check_ledger, "it is not a whole file that --ledger wrote");
	}
	o->io_size = le32toh(h->block_size) * le32toh(h->blocks_per_unit);
	o->region_start = le64toh(h->first_lba) * le32toh(h->block_size);
	o->region_bytes = le64toh(h->blocks) * le32toh(h->block_size);
	o->qpairs = 1;
	o->seconds = 0;
	o->ios = le64toh(h->blocks) / le32toh(h->blocks_per_unit);
	o->random = false;
	o->read_percent = 100;
	o->verify = true;
	if (o->queue_depth > o->ios) {
		o->queue_depth = (uint32_t)o->ios;
	}
	return true;
}

bool perf_ledger_load(struct perf *p, struct perf_stream *s)
{
	const struct perf_ledger_header *h = &p->opts.checked;
	struct perf_ledger_job job = {.fd = p->opts.checked_fd, .first_lba = le64toh(h->first_lba), .stream = s};

	if (s->block_size != le32toh(h->block_size)) {
		return perf_ledger_complain(p->opts.check_ledger, "the namespace has another block size");
	}
	s->writer = le64toh(h->writer);
	s->phase = STREAM_FILLED;
	s->budget = 0;
	perf_ledger_move(&job);
	return !job.failed || perf_ledger_complain(p->opts.check_ledger, strerror(errno));
}

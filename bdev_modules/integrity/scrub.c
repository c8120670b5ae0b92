/* SPDX-License-Identifier: BSD-3-Clause */
/* A scrub is a reader of the bdev, on the control thread: what it reads is checked as all reads are. It reads 1 MiB at
 * a time, and block by block where that fails. */
#include <errno.h>
#include <rte_common.h>
#include <stdlib.h>
#include <string.h>

#include "bdev_modules/integrity/internal.h"
#include "env_dpdk/env.h"
#include "trace/trace.h"
#include "util/log.h"

#define PIECE_UNITS 256u
#define RATE_MAX    100000u /* MiB/s */

struct integrity_scrubber {
	struct bdev_integrity_scrub result;
	struct integrity_bdev *d;
	struct bdev_desc *desc;
	struct bdev_channel *ch;
	struct bdev_io *io;
	void *buffer;
	struct iovec iov;
	struct thread_timer timer;
	uint64_t singles_until; /* up to here block by block */
	uint64_t submitted_ticks;
	uint32_t units; /* being read */
	bool in_flight, stops;
};

static void scrub_read(void *arg);

static void scrub_end(struct integrity_scrubber *s)
{
	struct bdev_integrity_scrub *r = &s->result;

	thread_timer_stop(&s->timer);
	bdev_channel_put(s->ch);
	env_dma_free(s->buffer);
	free(s->io);
	r->running = false;
	log_notice("bdev %s: scrub %s: %lu blocks read, %lu of them wrong, %lu without a checksum; %lu could not be "
		   "read",
		   s->d->name, r->completed ? "completed" : "stopped", r->units_done, r->units_bad, r->units_unchecked,
		   r->units_failed);
	bdev_close(s->desc); /* last: it may be all that the bdev waits for that is being removed */
}

/* A unit could not be read. */
static void scrub_note_bad(struct integrity_scrubber *s, uint16_t status)
{
	struct bdev_integrity_scrub *r = &s->result;

	if ((status & BDEV_STATUS_MASK) != BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_READ_ERROR)) {
		r->units_failed++;
		return;
	}
	if (r->units_bad < BDEV_INTEGRITY_SCRUB_LIST) {
		r->bad[r->units_bad] = r->units_done;
	}
	r->units_bad++;
}

/* How many of the units that have just been read have no checksum. Their slot is there, unless another region has been
 * given it this very moment. */
static uint64_t scrub_unchecked(const struct integrity_scrubber *s)
{
	uint64_t at = s->result.units_done, n = 0;
	uint32_t region = (uint32_t)(at >> INTEGRITY_REGION_SHIFT);
	struct integrity_slot *slot = integrity_slot_ready(s->d, region);

	for (uint32_t i = 0; slot != NULL && i < s->units; i++) {
		n += atomic_load_explicit(&slot->sum[(at + i) % INTEGRITY_REGION_UNITS], memory_order_relaxed) ==
		     INTEGRITY_SUM_UNKNOWN;
	}
	return n;
}

/* When the next read is due, so that it is so many MiB in a second. */
static void scrub_go_on_later(struct integrity_scrubber *s)
{
	uint64_t us = (uint64_t)s->units * INTEGRITY_UNIT_BYTES * 1000000 / ((uint64_t)s->result.mib_per_second << 20);
	uint64_t passed = env_ticks_to_ns(env_ticks() - s->submitted_ticks) / 1000;

	thread_timer_start(&s->timer, us > passed ? us - passed : 1);
}

static void scrub_read_done(struct bdev_io *io, void *arg)
{
	struct integrity_scrubber *s = arg;
	struct bdev_integrity_scrub *r = &s->result;

	s->in_flight = false;
	TRACE(INTEGRITY_SCRUB_READ, s->d->bdev.trace_owner, s->units, 0, r->units_done, io->status);
	if (s->stops) {
		scrub_end(s);
		return;
	}
	if (io->status != 0 && s->units > 1) {
		s->singles_until = r->units_done + s->units;
	} else {
		if (io->status != 0) {
			scrub_note_bad(s, io->status);
		} else {
			r->units_unchecked += scrub_unchecked(s);
		}
		r->units_done += s->units;
	}
	if (r->units_done == s->d->layout.data_units) {
		r->completed = true;
		scrub_end(s);
		return;
	}
	scrub_go_on_later(s);
}

static void scrub_read(void *arg)
{
	struct integrity_scrubber *s = arg;
	uint64_t at = s->result.units_done, left = s->d->layout.data_units - at;

	s->units = at < s->singles_until ? 1 : (uint32_t)RTE_MIN(left, PIECE_UNITS - at % PIECE_UNITS);
	s->iov = (struct iovec){s->buffer, (size_t)s->units * INTEGRITY_UNIT_BYTES};
	s->submitted_ticks = env_ticks();
	s->in_flight = true;
	bdev_io_set_rw(s->io, BDEV_IO_READ, &s->iov, 1, at, s->units);
	bdev_submit(s->io);
}

static void scrub_stop(struct integrity_scrubber *s)
{
	s->stops = true;
	if (!s->in_flight) {
		scrub_end(s);
	}
}

static void scrub_event(struct bdev_desc *desc, enum bdev_event event, void *arg)
{
	struct integrity_scrubber *s = arg;

	if (event == BDEV_EVENT_REMOVE && s->result.running && !s->stops) {
		scrub_stop(s);
	}
}

static int scrub_open(struct integrity_scrubber *s, char *error)
{
	struct bdev *b = &s->d->bdev;
	int rc = bdev_open(bdev_name(b), false, scrub_event, s, &s->desc);

	if (rc != 0) {
		return bdev_error(error, rc, "bdev '%.200s' cannot be opened: error %d", bdev_name(b), -rc);
	}
	s->io = aligned_alloc(64, bdev_io_size());
	s->buffer = env_dma_malloc((size_t)PIECE_UNITS * INTEGRITY_UNIT_BYTES, 4096, b->numa_node);
	s->ch = s->io != NULL && s->buffer != NULL ? bdev_channel_get(s->desc) : NULL;
	if (s->ch == NULL) {
		free(s->io);
		env_dma_free(s->buffer);
		bdev_close(s->desc);
		return bdev_error(error, -ENOMEM, "out of memory");
	}
	memset(s->io, 0, bdev_io_size());
	bdev_io_init(s->io, s->desc, s->ch, scrub_read_done, s);
	return 0;
}

static int scrub_begin(struct integrity_bdev *d, uint32_t mib_per_second, char *error)
{
	struct integrity_scrubber *s = d->scrubber;

	if (s == NULL) {
		s = d->scrubber = calloc(1, sizeof(*s));
	}
	if (s == NULL) {
		return bdev_error(error, -ENOMEM, "out of memory");
	}
	s->d = d;
	int rc = scrub_open(s, error);
	if (rc != 0) {
		return rc;
	}
	s->result = (struct bdev_integrity_scrub){.running = true, .ever = true, .mib_per_second = mib_per_second};
	s->singles_until = 0;
	s->stops = false;
	s->timer = (struct thread_timer){.fn = scrub_read, .arg = s};
	thread_timer_start(&s->timer, 1);
	return 0;
}

int bdev_integrity_scrub_start(struct bdev *b, uint32_t mib_per_second, char *error)
{
	struct integrity_bdev *d = integrity_of(b);
	struct integrity_scrubber *s = d->scrubber;

	if (mib_per_second == 0 || mib_per_second > RATE_MAX) {
		return bdev_error(error, -EINVAL, "mib_per_second %u: must be from 1 to %u", mib_per_second, RATE_MAX);
	}
	if (s == NULL || !s->result.running) {
		return scrub_begin(d, mib_per_second, error);
	}
	if (s->stops) {
		return bdev_error(error, -EBUSY, "the scrub of bdev '%.200s' is being stopped", bdev_name(b));
	}
	s->result.mib_per_second = mib_per_second;
	return 0;
}

void bdev_integrity_scrub_stop(struct bdev *b)
{
	struct integrity_scrubber *s = integrity_of(b)->scrubber;

	if (s != NULL && s->result.running && !s->stops) {
		scrub_stop(s);
	}
}

void bdev_integrity_scrub_get(const struct bdev *b, struct bdev_integrity_scrub *r)
{
	const struct integrity_scrubber *s = integrity_of(b)->scrubber;

	*r = s != NULL ? s->result : (struct bdev_integrity_scrub){0};
}

void integrity_scrub_forget(struct integrity_bdev *d)
{
	free(d->scrubber);
	d->scrubber = NULL;
}

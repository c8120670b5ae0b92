/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "unittest/lvol/disk.h"

enum disk_kind { DISK_READ, DISK_WRITE, DISK_FLUSH, DISK_ZEROES, DISK_NOTHING };

struct disk_op {
	enum disk_kind kind;
	uint64_t offset;
	void *to;
	const void *from;
	uint64_t bytes;
	size_t upto;
	lvol_live_done done;
	void *arg;
	struct disk_op *next;
};

uint32_t disk_random(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

uint64_t disk_external(uint64_t offset)
{
	return 0xe0000000000ull + offset;
}

/* Memory that a test which lets allocations fail does not count. */
static void *disk_alloc(size_t bytes)
{
	void *p;

	if (posix_memalign(&p, 64, bytes) != 0) {
		abort();
	}
	return p;
}

void disk_init(struct disk *d, uint64_t size)
{
	*d = (struct disk){.size = size, .random = 1, .fail_in = -1, .fail_status = -EIO};
	d->bytes = disk_alloc(size);
	d->before = disk_alloc(size);
	memset(d->bytes, 0xa5, size);
	memset(d->before, 0xa5, size);
}

static void log_clear(struct disk *d)
{
	for (size_t i = 0; i < d->num_log; i++) {
		free(d->log[i].data);
	}
	d->num_log = 0;
}

void disk_free(struct disk *d)
{
	log_clear(d);
	free(d->log);
	free(d->bytes);
	free(d->before);
}

void disk_record(struct disk *d)
{
	log_clear(d);
	memcpy(d->before, d->bytes, d->size);
}

static void log_add(struct disk *d, const struct disk_log *entry)
{
	if (d->num_log == d->room_log) {
		d->room_log = d->room_log == 0 ? 256 : 2 * d->room_log;
		struct disk_log *log = disk_alloc(d->room_log * sizeof(*log));
		if (d->log != NULL) {
			memcpy(log, d->log, d->num_log * sizeof(*log));
		}
		free(d->log);
		d->log = log;
	}
	d->log[d->num_log++] = *entry;
}

static void disk_write_now(struct disk *d, const struct disk_op *op)
{
	struct disk_log entry = {.offset = op->offset, .bytes = op->bytes, .data = disk_alloc(op->bytes)};

	memset(entry.data, 0, op->bytes);
	if (op->kind == DISK_WRITE) {
		memcpy(entry.data, op->from, op->bytes);
	}
	memcpy(d->bytes + op->offset, entry.data, op->bytes);
	log_add(d, &entry);
}

static int disk_op_status(struct disk *d)
{
	d->ops++;
	if (d->fail_in < 0 || d->fail_in-- > 0) {
		return 0;
	}
	d->fail_in = d->fail_on ? 0 : -1;
	return d->fail_status;
}

static void disk_op_end(struct disk *d, struct disk_op *op)
{
	int status = op->kind == DISK_NOTHING ? 0 : disk_op_status(d);

	if (status == 0) {
		switch (op->kind) {
		case DISK_READ:
			memcpy(op->to, d->bytes + op->offset, op->bytes);
			break;
		case DISK_WRITE:
		case DISK_ZEROES:
			disk_write_now(d, op);
			break;
		case DISK_FLUSH:
			log_add(d, &(struct disk_log){.upto = op->upto});
			break;
		case DISK_NOTHING:
			break;
		}
	}
	lvol_live_done done = op->done;
	void *arg = op->arg;
	free(op);
	done(arg, status);
}

static void disk_op(struct disk *d, struct disk_op o)
{
	struct disk_op *op = disk_alloc(sizeof(*op));

	if (o.bytes > d->size || o.offset > d->size - o.bytes || o.offset % DISK_SECTOR != 0 ||
	    o.bytes % DISK_SECTOR != 0 || ((o.kind == DISK_READ || o.kind == DISK_WRITE) && o.bytes == 0)) {
		abort();
	}
	*op = o;
	op->upto = d->num_log;
	if (d->late) {
		op->next = d->waits;
		d->waits = op;
	} else {
		disk_op_end(d, op);
	}
}

bool disk_run_one(struct disk *d)
{
	size_t n = 0;

	for (struct disk_op *op = d->waits; op != NULL; op = op->next) {
		n++;
	}
	if (n == 0) {
		return false;
	}
	struct disk_op **at = &d->waits;
	for (size_t i = disk_random(&d->random) % n; i > 0; i--) {
		at = &(*at)->next;
	}
	struct disk_op *op = *at;
	*at = op->next;
	disk_op_end(d, op);
	return true;
}

void disk_run(struct disk *d)
{
	while (disk_run_one(d)) {
	}
}

/* ---- What the engine calls ---- */

static void disk_read(void *ctx, uint64_t offset, void *to, size_t bytes, lvol_live_done done, void *arg)
{
	struct disk *d = ctx;

	d->bytes_read += bytes;
	disk_op(ctx, (struct disk_op){
			     .kind = DISK_READ, .offset = offset, .to = to, .bytes = bytes, .done = done, .arg = arg});
}

static void disk_write(void *ctx, uint64_t offset, const void *from, size_t bytes, lvol_live_done done, void *arg)
{
	disk_op(ctx,
		(struct disk_op){
			.kind = DISK_WRITE, .offset = offset, .from = from, .bytes = bytes, .done = done, .arg = arg});
}

static void disk_flush(void *ctx, lvol_live_done done, void *arg)
{
	disk_op(ctx, (struct disk_op){.kind = DISK_FLUSH, .done = done, .arg = arg});
}

static void disk_zeroes(void *ctx, uint64_t offset, uint64_t bytes, lvol_live_done done, void *arg)
{
	disk_op(ctx, (struct disk_op){.kind = DISK_ZEROES, .offset = offset, .bytes = bytes, .done = done, .arg = arg});
}

/* What was unmapped reads as anything. */
static void disk_unmap(void *ctx, uint64_t offset, uint64_t bytes, lvol_live_done done, void *arg)
{
	struct disk *d = ctx;
	struct disk_log entry = {.offset = offset, .bytes = bytes, .data = disk_alloc(bytes)};

	memset(entry.data, 0x5a, bytes);
	memcpy(d->bytes + offset, entry.data, bytes);
	log_add(d, &entry);
	disk_op(d, (struct disk_op){.kind = DISK_NOTHING, .done = done, .arg = arg});
}

static void disk_synchronize(void *ctx, lvol_live_done done, void *arg)
{
	disk_op(ctx, (struct disk_op){.kind = DISK_NOTHING, .done = done, .arg = arg});
}

static void disk_pause(void *ctx, struct lvol_live_volume *v, lvol_live_done done, void *arg)
{
	struct disk *d = ctx;

	d->paused++;
	if (v->user == NULL) {
		abort();
	}
	disk_op(d, (struct disk_op){.kind = DISK_NOTHING, .done = done, .arg = arg});
}

static void disk_resume(void *ctx, struct lvol_live_volume *v)
{
	struct disk *d = ctx;

	if (v->user != NULL && d->paused-- == 0) {
		abort();
	}
}

static void disk_external_read(void *ctx, struct lvol_live_volume *v, uint64_t offset, void *to, size_t bytes,
			       lvol_live_done done, void *arg)
{
	(void)v;
	for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
		uint64_t x = disk_external(offset + i);
		memcpy((uint8_t *)to + i, &x, sizeof(x));
	}
	disk_op(ctx, (struct disk_op){.kind = DISK_NOTHING, .done = done, .arg = arg});
}

struct lvol_live_user disk_user(struct disk *d)
{
	return (struct lvol_live_user){
		.ctx = d,
		.size_bytes = d->size,
		.block_bytes = DISK_SECTOR,
		.read = disk_read,
		.write = disk_write,
		.flush = disk_flush,
		.write_zeroes = disk_zeroes,
		.unmap = disk_unmap,
		.synchronize = disk_synchronize,
		.pause = disk_pause,
		.resume = disk_resume,
		.external_read = d->no_external ? NULL : disk_external_read,
		.external_changes = d->external_changes,
		.space_changed = d->space_changed,
		.happened = d->happened,
		.may_open = d->may_open,
		.owner = d->owner.pid == 0 ? NULL : &d->owner,
	};
}

/* ---- Power ---- */

void disk_crash(const struct disk *d, size_t entries, uint32_t seed, struct disk *to)
{
	uint32_t random = seed * 2654435761u + 1;
	size_t durable = 0;

	for (size_t i = 0; i < entries; i++) {
		durable = d->log[i].bytes == 0 && d->log[i].upto > durable ? d->log[i].upto : durable;
	}
	memcpy(to->bytes, d->before, d->size);
	for (size_t i = 0; i < entries; i++) {
		const struct disk_log *e = &d->log[i];
		for (size_t at = 0; at < e->bytes; at += DISK_SECTOR) {
			bool kept = i < durable || seed == 1 || (seed > 1 && disk_random(&random) % 2 == 0);
			if (kept) {
				memcpy(to->bytes + e->offset + at, e->data + at, DISK_SECTOR);
			}
		}
	}
	disk_record(to);
}

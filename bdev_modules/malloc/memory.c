/* SPDX-License-Identifier: BSD-3-Clause */
#include "bdev_modules/malloc/memory.h"

#include <stdlib.h>
#include <string.h>

#include "bdev/module.h"
#include "env_dpdk/env.h"
#include "thread/worker.h"
#include "util/log.h"

/* What has up to so many bytes is copied at once: a worker thread takes as long to start. */
#define COPY_AT_ONCE_BYTES ((uint64_t)1 << 20)

/* Where the bitmap is in the file. */
static uint64_t ram_bitmap_at(uint64_t bytes)
{
	return (bytes + 7) & ~UINT64_C(7);
}

static uint64_t ram_place_bytes(uint64_t bytes, uint64_t num_blocks)
{
	return ram_bitmap_at(bytes) + bad_blocks_bytes(num_blocks);
}

bool ram_memory_fits(const struct kept_ram *kept, uint64_t bytes, uint64_t num_blocks)
{
	return kept->bytes != 0 ? kept->bytes == ram_place_bytes(bytes, num_blocks) : kept->memory_bytes == bytes;
}

bool ram_memory_is_in_file(const struct ram_memory *r)
{
	return r->kept->bytes != 0;
}

/* ---- Getting it ---- */

static uint8_t *ram_memory_get_new(struct ram_memory *r, int numa_id)
{
	r->kept = calloc(1, sizeof(*r->kept));
	uint8_t *memory = r->kept != NULL ? env_dma_zmalloc_touched(r->bytes, 4096, numa_id) : NULL;

	if (memory == NULL) {
		free(r->kept);
	}
	return memory;
}

static uint8_t *ram_memory_get_kept(struct ram_memory *r, struct bad_blocks *bad)
{
	struct kept_ram *k = r->kept;
	uint8_t *memory = k->memory;

	if (k->bytes != 0) {
		memory = kept_ram_map(k);
		if (memory != NULL) {
			bad_blocks_adopt(bad, memory + ram_bitmap_at(r->bytes), r->num_blocks);
			env_dma_free(k->memory); /* that it was copied from */
			k->memory = NULL;
		}
		return memory;
	}
	if (k->more != NULL) {
		bad_blocks_adopt(bad, k->more, r->num_blocks);
	}
	k->memory = k->more = NULL; /* the disk's */
	return memory;
}

uint8_t *ram_memory_get(struct ram_memory *r, struct bad_blocks *bad, struct kept_ram *kept, uint64_t bytes,
			uint64_t num_blocks, int numa_id)
{
	*r = (struct ram_memory){.bytes = bytes, .num_blocks = num_blocks, .kept = kept, .was_kept = kept != NULL};
	r->memory = kept != NULL ? ram_memory_get_kept(r, bad) : ram_memory_get_new(r, numa_id);
	return r->memory;
}

/* ---- Giving it up ---- */

static void ram_memory_unmap(struct ram_memory *r, struct bad_blocks *bad)
{
	*bad = (struct bad_blocks){0}; /* the bitmap is in what is unmapped */
	env_dma_unmap_file(r->memory);
}

void ram_memory_free(struct ram_memory *r, struct bad_blocks *bad)
{
	if (ram_memory_is_in_file(r)) {
		ram_memory_unmap(r, bad);
	} else {
		env_dma_free(r->memory);
		bad_blocks_free(bad);
	}
	kept_ram_free(r->kept);
}

static void ram_memory_keep_here(struct ram_memory *r, struct bad_blocks *bad)
{
	r->kept->memory = r->memory;
	r->kept->memory_bytes = r->bytes;
	r->kept->more = bad_blocks_none(bad) ? NULL : (void *)atomic_load(&bad->bits);
	if (r->kept->more == NULL) {
		bad_blocks_free(bad);
	}
	kept_ram_note(r->kept);
}

static void ram_memory_keep_in_file(struct ram_memory *r, struct bad_blocks *bad)
{
	ram_memory_unmap(r, bad);
	kept_ram_note(r->kept);
}

void ram_memory_put_back(struct ram_memory *r, struct bad_blocks *bad)
{
	if (!r->was_kept) {
		ram_memory_free(r, bad);
	} else if (ram_memory_is_in_file(r)) {
		ram_memory_keep_in_file(r, bad);
	} else {
		ram_memory_keep_here(r, bad);
	}
}

/* ---- Copying it to the file ---- */

struct ram_copy {
	struct worker_job job;
	struct ram_memory r;
	struct bad_blocks bad;
	int rc;
	void (*done)(void *arg);
	void *arg;
};

/* Any thread. */
static int ram_memory_write(const struct ram_memory *r, const struct bad_blocks *bad)
{
	int rc = kept_ram_write(r->kept, 0, r->memory, r->bytes);

	if (rc != 0 || bad_blocks_none(bad)) {
		return rc;
	}
	return kept_ram_write(r->kept, ram_bitmap_at(r->bytes), (const void *)atomic_load(&bad->bits),
			      bad_blocks_bytes(r->num_blocks));
}

/* rc: of the copy, which is in the file if that is 0. Then the memory is freed later, because hosts are waiting now:
 * when the other process serves, or, if that fails, when the disk is made again. */
static void ram_memory_copied(struct ram_memory *r, struct bad_blocks *bad, int rc)
{
	if (rc != 0) {
		log_error("a RAM disk of %lu bytes cannot be handed over: %s", r->bytes, strerror(-rc));
		kept_ram_unreserve(r->kept);
		ram_memory_keep_here(r, bad);
		return;
	}
	bad_blocks_free(bad);
	r->kept->memory = r->memory;
	kept_ram_note(r->kept);
}

static void ram_copy_work(struct worker_job *job)
{
	struct ram_copy *c = container_of(job, struct ram_copy, job);

	c->rc = ram_memory_write(&c->r, &c->bad);
}

static void ram_copy_done(struct worker_job *job)
{
	struct ram_copy *c = container_of(job, struct ram_copy, job);

	ram_memory_copied(&c->r, &c->bad, job->error != 0 ? job->error : c->rc);
	c->done(c->arg);
	free(c);
	if (ram_memory_is_idle()) {
		bdev_module_is_idle();
	}
}

static struct worker_queue copies = WORKER_QUEUE_INITIALIZER(copies);

bool ram_memory_is_idle(void)
{
	return STAILQ_EMPTY(&copies.jobs);
}

/* False: it has to be done at once. */
static bool ram_copy_start(const struct ram_memory *r, const struct bad_blocks *bad, void (*done)(void *arg), void *arg)
{
	struct ram_copy *c = r->bytes > COPY_AT_ONCE_BYTES ? calloc(1, sizeof(*c)) : NULL;

	if (c == NULL) {
		return false;
	}
	c->r = *r;
	atomic_store(&c->bad.count, atomic_load(&bad->count));
	atomic_store(&c->bad.bits, atomic_load(&bad->bits));
	c->done = done;
	c->arg = arg;
	c->job.work = ram_copy_work;
	c->job.done = ram_copy_done;
	worker_run(&copies, &c->job);
	return true;
}

bool ram_memory_keep(struct ram_memory *r, struct bad_blocks *bad, const uint8_t uuid[16], void (*done)(void *arg),
		     void *arg)
{
	enum kept_ram_mode mode = kept_ram_get_mode();

	if (mode == KEPT_RAM_NONE) {
		return false;
	}
	memcpy(r->kept->uuid, uuid, sizeof(r->kept->uuid));
	if (ram_memory_is_in_file(r)) {
		ram_memory_keep_in_file(r, bad);
	} else if (mode == KEPT_RAM_HERE) {
		ram_memory_keep_here(r, bad);
	} else {
		int rc = kept_ram_reserve(r->kept, ram_place_bytes(r->bytes, r->num_blocks));
		if (rc == 0 && ram_copy_start(r, bad, done, arg)) {
			return true;
		}
		ram_memory_copied(r, bad, rc != 0 ? rc : ram_memory_write(r, bad));
	}
	done(arg);
	return true;
}

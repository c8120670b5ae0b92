/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory of a RAM disk: of this process, or in the file that it shares with the process that takes over from it
 * (bdev/kept_ram.h). There its bitmap of bad blocks comes behind its blocks. */
#ifndef BDEV_MALLOC_MEMORY_H
#define BDEV_MALLOC_MEMORY_H

#include "bdev/kept_ram.h"
#include "bdev_modules/malloc/bad_blocks.h"

struct ram_memory {
	uint8_t *memory;
	uint64_t bytes, num_blocks;
	struct kept_ram *kept; /* what the disk leaves */
	bool was_kept;         /* it has been another disk's, of which this one is the continuation */
};

/* Gets memory of that many bytes, with each page present: otherwise the first write to a page would wait for the kernel
 * to replace the shared zero page. kept NULL: it is zeroed; otherwise it is what was kept, with its bad blocks, and
 * belongs to r if this succeeds. NULL: no memory. Any thread. */
uint8_t *ram_memory_get(struct ram_memory *r, struct bad_blocks *bad, struct kept_ram *kept, uint64_t bytes,
			uint64_t num_blocks, int numa_id);
/* Whether what was kept is of a disk of that size. Pure. */
bool ram_memory_fits(const struct kept_ram *kept, uint64_t bytes, uint64_t num_blocks);
/* Whether it is in the file. */
bool ram_memory_is_in_file(const struct ram_memory *r);

/* Frees it. Control thread. */
void ram_memory_free(struct ram_memory *r, struct bad_blocks *bad);
/* Of a disk that could not be made: what was kept is kept again, and the rest is freed. Control thread. */
void ram_memory_put_back(struct ram_memory *r, struct bad_blocks *bad);
/* Keeps it, if anything is kept now: false, otherwise. Calls done(arg) when that has happened, perhaps before it
 * returns: a large one is copied to the file on a worker thread. r and bad are not used any more when it returns. If
 * there is no memory for the file, it is kept for this process. Control thread. */
bool ram_memory_keep(struct ram_memory *r, struct bad_blocks *bad, const uint8_t uuid[16], void (*done)(void *arg),
		     void *arg);
/* Whether nothing is being copied to the file. When that becomes true, bdev_module_is_idle() is called. Control thread.
 */
bool ram_memory_is_idle(void);

#endif

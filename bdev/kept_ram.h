/* SPDX-License-Identifier: BSD-3-Clause */
/* Contents of RAM disks that outlive them: in a process that hands over to another one, the successor, and in the
 * successor. They are in a file of shared memory (memfd), of which the successor gets a descriptor. Both processes have
 * the same memory then, and never use it at the same time: if the successor fails after hosts have written, the
 * predecessor has what they wrote. A RAM disk that is in the file stays in it, and passes to the next successor without
 * a copy.
 *
 * All functions: control thread, unless it says otherwise. */
#ifndef BDEV_KEPT_RAM_H
#define BDEV_KEPT_RAM_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#define KEPT_RAM_ALIGN ((uint64_t)2 << 20) /* of a disk's place in the file */

/* What one RAM disk has. It belongs to the disk, or is kept. */
struct kept_ram {
	uint8_t uuid[16];
	uint64_t offset, bytes; /* its place in the file; bytes 0: it has none */
	/* Of env_dma_malloc(): what it has while it has no place in the file; otherwise memory that is to be freed with
	 * it. */
	void *memory;
	uint64_t memory_bytes;
	void *more; /* of malloc(), which belongs to the memory; NULL: nothing */
	TAILQ_ENTRY(kept_ram) link;
};

enum kept_ram_mode {
	KEPT_RAM_NONE, /* what a RAM disk has that goes is lost */
	KEPT_RAM_HERE, /* it is kept for this process */
	KEPT_RAM_FILE, /* it is kept in the file, for another process too */
};
/* What is done from now on with what RAM disks have that go. */
void kept_ram_set_mode(enum kept_ram_mode mode);
/* What is done now. */
enum kept_ram_mode kept_ram_get_mode(void);

/* How much of the file a place of so many bytes takes up. Pure. */
uint64_t kept_ram_round(uint64_t bytes);
/* Gives it a place of that many bytes in the file, which reads as zeroes. 0; or a negative errno. */
int kept_ram_reserve(struct kept_ram *k, uint64_t bytes);
/* Gives its place up, with what is there, unless the file belongs to another process. */
void kept_ram_unreserve(struct kept_ram *k);
/* Writes to its place, from a distance of its beginning on. 0; or a negative errno. Any thread. */
int kept_ram_write(const struct kept_ram *k, uint64_t at, const void *from, uint64_t bytes);
/* Maps its place as DMA-able memory, for env_dma_unmap_file(). NULL: no memory. Any thread. */
void *kept_ram_map(const struct kept_ram *k);

/* Keeps it: what has that UUID before is replaced. */
void kept_ram_note(struct kept_ram *k);
/* What is kept under a UUID, which is kept no longer and belongs to the caller. NULL: nothing. */
struct kept_ram *kept_ram_take(const uint8_t uuid[16]);
/* Frees it, with its memory and its place in the file, unless that belongs to another process. */
void kept_ram_free(struct kept_ram *k);
/* Frees all that is kept. */
void kept_ram_clear(void);

/* Whether the file belongs to this process: in one that has made it until it is told otherwise, in one that has got it
 * when it is told so. The other one does not remove anything from it. */
void kept_ram_own(bool own);

/* The descriptor of the file; -1: there is none. */
int kept_ram_fd(void);
/* What is kept in the file: [{"uuid": ..., "offset": ..., "bytes": ...}], to be released. NULL: no memory, or something
 * is kept that is not in the file. */
json_t *kept_ram_export(void);
/* Keeps what another process has exported, with its file (fd, which belongs to this module then; -1: none), instead of
 * what is kept. 0; -EBADMSG: that cannot be; -ENOMEM. */
int kept_ram_import(const json_t *all, int fd);
/* Whether a place lies in a file of that size, as kept_ram_reserve() places it. Pure. */
bool kept_ram_place_is_valid(uint64_t offset, uint64_t bytes, uint64_t file_bytes);

#endif

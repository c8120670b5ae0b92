/* SPDX-License-Identifier: BSD-3-Clause */
/* How the bdevs that come with varve are made. Control thread. All creators return 0 and register the bdev, or a
 * negative errno with the reason in error (BDEV_ERROR_MAX bytes): the field, its value, what is allowed. Names are
 * copied. A uuid of NULL means a random one. The deletes: as bdev_unregister(), or cb(arg, -ENODEV) where no bdev of
 * that name and kind is. */
#ifndef BDEV_BDEV_MODULES_H
#define BDEV_BDEV_MODULES_H

#include "bdev/bdev.h"

/* null: completes everything, stores nothing; what is read is whatever the buffer held, with protection information
 * that fits. */
struct bdev_null_opts {
	const char *name;
	const uint8_t *uuid;
	uint32_t block_size; /* bytes of data; metadata comes on top */
	uint32_t physical_block_size;
	uint64_t num_blocks;
	struct bdev_hints hints;
	struct bdev_md md; /* size, dif_type, dif_is_first; the checks follow from the type: guard, and for types 1 and
			      2 the reference tag */
};
int bdev_null_create(const struct bdev_null_opts *opts, char *error);
void bdev_null_delete(const char *name, bdev_delete_cb cb, void *arg);
/* New size in MiB; -ENODEV, -EINVAL. */
int bdev_null_resize(const char *name, uint64_t new_size_mb, char *error);

/* malloc: a disk in DMA memory. It lends its memory (bdev_lend), but for blocks with metadata. */
struct bdev_malloc_opts {
	const char *name; /* NULL: Malloc0, Malloc1 ... */
	const uint8_t *uuid;
	uint32_t block_size;
	uint32_t physical_block_size;
	uint32_t optimal_io_boundary; /* blocks */
	uint64_t num_blocks;
	int numa_id;       /* -1: any */
	struct bdev_md md; /* as for null */
};
/* name (256 bytes) receives the name it got. */
int bdev_malloc_create(const struct bdev_malloc_opts *opts, char *name, char *error);
/* The same for a control thread with other things to do: the memory of a large one is got, zeroed and entered with
 * devices in a thread of its own, one bdev after the other. opts is copied. cb runs on the control thread, from inside
 * the call if the bdev is small or cannot be; text is the name it got, or with rc != 0 what is wrong. */
typedef void (*bdev_malloc_cb)(void *arg, int rc, const char *text);
void bdev_malloc_create_async(const struct bdev_malloc_opts *opts, bdev_malloc_cb cb, void *arg);
/* Returns when none is being created, for the end of the process. Control thread, not from a callback. */
void bdev_malloc_wait(void);
void bdev_malloc_delete(const char *name, bdev_delete_cb cb, void *arg);

/* The options it was made with, for saving a configuration; false if b is of another kind. */
bool bdev_null_get(const struct bdev *b, struct bdev_null_opts *opts);
bool bdev_malloc_get(const struct bdev *b, struct bdev_malloc_opts *opts);

/* delay: on top of another bdev, which it claims: an I/O takes an average latency longer, one in a hundred the 99th
 * percentile, one in a thousand the 99.9th (0: as the 99th). It goes when its base goes. */
enum bdev_delay_latency {
	BDEV_DELAY_AVG_READ,
	BDEV_DELAY_P99_READ,
	BDEV_DELAY_P999_READ,
	BDEV_DELAY_AVG_WRITE, /* and all else that changes data, and flushes */
	BDEV_DELAY_P99_WRITE,
	BDEV_DELAY_P999_WRITE,
	BDEV_DELAY_LATENCIES,
};
struct bdev_delay_opts {
	const char *name;
	const char *base_bdev_name;
	const uint8_t *uuid;
	uint64_t latency_us[BDEV_DELAY_LATENCIES]; /* a p99 is at least its average, a p999 its p99; updates one by
							   one may have it otherwise, and then the larger counts */
};
int bdev_delay_create(const struct bdev_delay_opts *opts, char *error);
void bdev_delay_delete(const char *name, bdev_delete_cb cb, void *arg);
/* For I/O completed from now on. -ENODEV, -EINVAL. */
int bdev_delay_update_latency(const char *name, enum bdev_delay_latency which, uint64_t latency_us, char *error);
bool bdev_delay_get(const struct bdev *b, struct bdev_delay_opts *opts);

/* error: EE_<base> on top of another bdev, which it claims; passes everything on until an error is injected. */
enum bdev_error_kind {
	BDEV_ERROR_FAILURE,      /* ends with Internal Error */
	BDEV_ERROR_PENDING,      /* hangs until resumed, aborted or reset */
	BDEV_ERROR_CORRUPT_DATA, /* goes through with one byte of its data changed */
	BDEV_ERROR_NOMEM,        /* finds the bdev out of resources, and is tried again */
	BDEV_ERROR_NVME_FAILURE, /* ends with the given status */
};
struct bdev_error_injection {
	bool clear;             /* take all injections back; nothing else counts then */
	enum bdev_io_type type; /* READ, WRITE, UNMAP or FLUSH; BDEV_IO_INVALID: all of them */
	enum bdev_error_kind kind;
	uint32_t num; /* so many I/Os */
	uint64_t
		queue_depth; /* only those that find at least so many in flight on their channel, themselves included */
	uint64_t corrupt_offset; /* bytes into the I/O's data */
	uint8_t corrupt_value;   /* xor */
	uint32_t sct, sc;
};
/* name (256 bytes, or NULL) receives EE_<base>. */
int bdev_error_create(const char *base_name, const uint8_t *uuid, char *name, char *error);
void bdev_error_delete(const char *name, bdev_delete_cb cb, void *arg);
int bdev_error_inject(const char *name, const struct bdev_error_injection *opts, char *error);
int bdev_error_resume_pending(const char *name, char *error);
const char *bdev_error_base(const struct bdev *b); /* its base's name; NULL if b is of another kind */

/* uring: a file or block device, read and written through io_uring, past the page cache where the file system allows
 * it. A FLUSH is an fdatasync: what was written before it outlives the machine. */
struct bdev_uring_opts {
	const char *name;
	const char *filename;
	const uint8_t *uuid;
	uint32_t block_size; /* bytes; 0: the device's, or what the file system wants for direct I/O */
	bool readonly;
	bool fallocate; /* UNMAP and WRITE_ZEROES punch holes; otherwise UNMAP does nothing and WRITE_ZEROES writes */
	bool nowait;    /* no effect: io_uring never blocks its caller; kept for the configuration */
	bool aio;       /* made by a bdev_aio_* method: product name "AIO disk" */
};
int bdev_uring_create(const struct bdev_uring_opts *opts, char *error);
/* Names of the other kind are -ENODEV. */
void bdev_uring_delete(const char *name, bdev_delete_cb cb, void *arg);
void bdev_aio_delete(const char *name, bdev_delete_cb cb, void *arg);
/* Takes up a new size of the file or device. */
int bdev_uring_rescan(const char *name, bool aio, char *error);
bool bdev_uring_get(const struct bdev *b, struct bdev_uring_opts *opts);

#endif

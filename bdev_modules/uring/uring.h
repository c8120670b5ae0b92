/* SPDX-License-Identifier: BSD-3-Clause */
/* A file or block device that is read and written through io_uring, with direct I/O where the file system has it. A
 * FLUSH is an fdatasync(): data written before it survives a crash of the machine. Clients know such bdevs by two
 * names, uring and aio, which have the same methods; only the product name and driver_specific differ. Control
 * thread. */
#ifndef BDEV_URING_H
#define BDEV_URING_H

#include "bdev/bdev.h"

struct bdev_uring_opts {
	const char *name;     /* copied */
	const char *filename; /* copied; a relative path is made absolute */
	const uint8_t *uuid;  /* 16 bytes, copied; NULL: a random one */
	uint32_t block_size;  /* bytes; 0: the device's, or the file system's unit of direct I/O */
	bool readonly;        /* shares the file with other bdevs that are read-only or shared */
	bool shared;          /* shares it although it is written: for storage that several processes export, and whose
			       * users agree with each other; otherwise the bdev is its only user */
	bool standby;   /* refuses all I/O until bdev_own() (bdev/owner.h); a regular file. Not with the two above */
	bool fallocate; /* UNMAP and WRITE_ZEROES punch holes; otherwise UNMAP does nothing and WRITE_ZEROES writes */
	bool nowait;    /* no effect, because io_uring never blocks its caller; kept for the configuration */
	bool aio;       /* make an aio bdev */
};

/* Makes and registers one. 0; or a negative errno, and error (BDEV_ERROR_MAX bytes) names the field, its value, and the
 * values that are allowed. -EBUSY: another bdev, another process or the kernel uses the file or device (claim.h). */
int bdev_uring_create(const struct bdev_uring_opts *opts, char *error);

/* As bdev_unregister(); or cb(arg, -ENODEV) if no uring bdev has that name; those of aio do not count. */
void bdev_uring_delete(const char *name, bdev_delete_cb cb, void *arg);

/* The same for an aio bdev. */
void bdev_aio_delete(const char *name, bdev_delete_cb cb, void *arg);

/* Gives the bdev the present size of its file or device. aio: of which of the two names it must be. 0 or a negative
 * errno; on failure error says why. */
int bdev_uring_rescan(const char *name, bool aio, char *error);

/* The options that would make b again. Pointers in opts are into b. False: b is of another module. */
bool bdev_uring_get(const struct bdev *b, struct bdev_uring_opts *opts);

#endif

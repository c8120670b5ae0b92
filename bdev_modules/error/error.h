/* SPDX-License-Identifier: BSD-3-Clause */
/* A bdev EE_<base> that passes I/O to its base bdev until an error is injected. It claims its base, and is removed when
 * its base is; when the base comes back, so does the bdev. Control thread. */
#ifndef BDEV_ERROR_H
#define BDEV_ERROR_H

#include "bdev/bdev.h"

enum bdev_error_kind {
	BDEV_ERROR_FAILURE,      /* completes with Internal Error */
	BDEV_ERROR_PENDING,      /* does not complete until resumed, aborted or reset */
	BDEV_ERROR_CORRUPT_DATA, /* succeeds, with one byte of its data changed */
	BDEV_ERROR_NOMEM,        /* finds the bdev out of resources; the layer submits it again */
	BDEV_ERROR_NVME_FAILURE, /* completes with the given status */
};

struct bdev_error_injection {
	bool clear;             /* remove all injections; the other members have no meaning then */
	enum bdev_io_type type; /* READ, WRITE, UNMAP or FLUSH; BDEV_IO_INVALID: all of these */
	enum bdev_error_kind kind;
	uint32_t num;         /* how many I/Os are affected */
	uint64_t queue_depth; /* only I/Os that find at least this many in flight on their channel, themselves included
			       */
	uint64_t corrupt_offset; /* CORRUPT_DATA: which byte of the I/O's data */
	uint8_t corrupt_value;   /* CORRUPT_DATA: is xored to it */
	uint32_t sct, sc;        /* NVME_FAILURE */
};

/* Makes and registers EE_<base_name>, or, if there is no such base, notes that it is to be made when the base comes
 * (bdev/vbdev/waiting.h). uuid: 16 bytes, or NULL for a random one. 0, and name (256 bytes, or NULL)
 * receives its name; or a negative errno, and error (BDEV_ERROR_MAX bytes) says why. */
int bdev_error_create(const char *base_name, const uint8_t *uuid, char *name, char *error);

/* As bdev_unregister(), also of one that waits for its base; or cb(arg, -ENODEV) if no error bdev has that name. */
void bdev_error_delete(const char *name, bdev_delete_cb cb, void *arg);

/* Replaces the injections of the given type. 0, -ENODEV or -EINVAL; on failure error says why. */
int bdev_error_inject(const char *name, const struct bdev_error_injection *opts, char *error);

/* Passes the I/Os that BDEV_ERROR_PENDING holds to the base. 0 or -ENODEV; on failure error says why. */
int bdev_error_resume_pending(const char *name, char *error);

/* The name of b's base; NULL: b is of another module. */
const char *bdev_error_base(const struct bdev *b);

#endif

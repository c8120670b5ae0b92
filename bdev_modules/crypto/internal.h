/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the module share. */
#ifndef BDEV_CRYPTO_INTERNAL_H
#define BDEV_CRYPTO_INTERNAL_H

#include "bdev/vbdev/vbdev.h"
#include "bdev_modules/crypto/xts.h"

struct crypto_key;

struct crypto_bdev {
	struct vbdev v;
	struct crypto_key *key; /* held */
	/* The base leaves the buffers of a READ as they are, which must not be decrypted: what is there belongs to
	 * others. */
	bool clears_reads;
};

/* The name of a bdev that waits for its base, and is to use that key; NULL: there is none. Control thread. */
const char *crypto_waiting_for_key(const char *key_name);

/* --- io.c --- */

#define CRYPTO_BLOCK_MAX 65536u

extern const struct bdev_ops crypto_ops;
/* What the module needs behind each I/O. */
size_t crypto_io_ctx_size(void);
/* The buffers that all crypto bdevs of a thread share: before the first one is made; after the last one is gone.
 * Control thread. */
void crypto_buffers_init(void);
void crypto_buffers_fini(void);
/* Adds the module's description of b: ops.dump_info, in crypto.c. */
void crypto_dump_info(const struct bdev *b, struct json_t *driver_specific);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* The steps of a rekey, in an order that any crash may interrupt. For each chunk, from block 0 on:
 *
 *     I/O of the chunk is held
 *     the chunk is read, decrypted with the old key and encrypted with the new one
 *     its copy goes to the journal	flush	until here a crash leaves the chunk as it was
 *     header: chunk under way	flush	from here on the copy counts, whatever the base has
 *     the chunk goes to the base	flush
 *     header: position moved	flush	from here on the base counts, and its next write may come
 *     I/O of the chunk goes on, with the new key
 *
 * A failure before "under way" lets I/O go on with the old key. After it, nobody may use the chunk until the same steps
 * have succeeded: a write could be lost to the copy by the next crash.
 *
 * Straight code, which waits for each step: it runs on a worker thread, or in a test. What it needs of others is in a
 * table of functions. */
#ifndef BDEV_CRYPTO_REKEY_ENGINE_H
#define BDEV_CRYPTO_REKEY_ENGINE_H

#include "bdev_modules/crypto/rekey_journal.h"
#include "bdev_modules/crypto/xts.h"

/* Each waits until it is done. 0, or a negative errno. */
struct rekey_ops {
	/* -ENODATA: blocks of the range cannot be read. The engine fails then: a block that it left out would have the
	 * old key, and be read with the new one if it could be read later. */
	int (*base_read)(void *ctx, uint64_t lba, uint32_t blocks, void *data);
	int (*base_write)(void *ctx, uint64_t lba, uint32_t blocks, const void *data);
	int (*base_flush)(void *ctx);
	/* How many blocks the bdev has now: it may have become smaller. */
	uint64_t (*base_blocks)(void *ctx);
	/* offset and bytes: multiples of journal_block, bytes at least REKEY_HEADER_BYTES. */
	int (*journal_read)(void *ctx, uint64_t offset, uint32_t bytes, void *data);
	int (*journal_write)(void *ctx, uint64_t offset, uint32_t bytes, const void *data);
	int (*journal_flush)(void *ctx);
	/* Holds new I/O of up to max_blocks blocks from `position` on, and waits for what is in flight there. *blocks:
	 * how many they are; 0: the bdev ends before, and all I/O from `position` on is held, also of blocks that it
	 * gets later. -ECANCELED: the rekey is to stop; nothing is held. */
	int (*hold)(void *ctx, uint64_t position, uint32_t max_blocks, uint32_t *blocks);
	/* Lets all I/O go on, below `position` with the new key and from there on with the old one. */
	void (*moved)(void *ctx, uint64_t position);
	/* Between chunks: waits as the rate demands. -ECANCELED: the rekey is to stop. */
	int (*pace)(void *ctx, uint32_t bytes);
};

#define REKEY_WRITTEN_MAX 8u

/* What is known of the bdev when a rekey begins. */
enum rekey_begin {
	REKEY_NEW,    /* all blocks have the old key: the journal may not have a rekey that has not ended, but for this
		       * one before its first chunk */
	REKEY_RESUME, /* only the journal knows: it must have this rekey */
	REKEY_CONTINUE, /* the engine has stopped in this process, and knows; the journal is the same one, one that this
			 * rekey has had before, or new */
	REKEY_RETURN,   /* the same, but nobody has asked for it: the bdev of the journal has come back. It must have a
			 * journal of this rekey, otherwise nothing is written: it may be somebody else's */
};

struct rekey_engine {
	/* The caller's, constant. */
	const struct rekey_ops *ops;
	void *ctx;
	const uint8_t *old_secret, *new_secret;
	size_t old_bytes, new_bytes;
	uint32_t block_size, chunk_blocks; /* a chunk has REKEY_CHUNK_BYTES at most */
	uint32_t journal_block;            /* bytes, a power of two up to REKEY_HEADER_STRIDE */
	uint8_t base_uuid[16];
	char base_name[REKEY_NAME_MAX];
	/* The engine's. */
	struct crypto_xts old_xts, new_xts;
	struct rekey_header head;      /* as it was written last, or was to be */
	unsigned slot;                 /* where the next header goes */
	uint8_t last_salt[REKEY_SALT]; /* of the journal that counts: that of the last beginning that has succeeded */
	uint64_t last_generation;      /* of the header that was written to it last, or was to be */
	uint64_t position;
	uint8_t *chunk;         /* encrypted: never plain data */
	uint8_t *header, *copy; /* journal_block bytes at least; one block of plain data, left out of core dumps */
	uint32_t pending;       /* blocks of a chunk that is under way */
	bool copied;            /* the journal has its copy */
	bool is_elsewhere;      /* the caller's: the bdev is another one than that of the journal that counts, and that
				 * one is still there */
	uint8_t written[REKEY_WRITTEN_MAX][REKEY_SALT]; /* the caller's: journals that somebody else still writes to */
	unsigned num_written;
	bool holds; /* I/O must wait, or fail, until the engine goes on */
	char error[REKEY_ERROR_MAX];
};

/* Makes the key schedules and the memory. 0, or a negative errno, and error says why. */
int rekey_engine_init(struct rekey_engine *e);
/* Frees them. */
void rekey_engine_fini(struct rekey_engine *e);
/* Reads the journal, checks it, and makes it say that this rekey is running, durably: what was read may have been in a
 * cache only. Of REKEY_RESUME: completes the chunk that was under way. 0, and the position is known; 1: the journal
 * says that the rekey has ended; or a negative errno, and error says why: no block of the base has changed, or `holds`
 * is true. -EEXIST: another rekey needs the journal, or it is the one that counts, and is_elsewhere is true, or it
 * is in `written`: nothing was written. */
int rekey_engine_begin(struct rekey_engine *e, enum rekey_begin how);
/* Goes on until all blocks have the new key: 0; or -ECANCELED: it was stopped, between chunks; or another errno, and
 * error says why. */
int rekey_engine_run(struct rekey_engine *e);

#endif

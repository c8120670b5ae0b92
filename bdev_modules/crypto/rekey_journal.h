/* SPDX-License-Identifier: BSD-3-Clause */
/* The journal of a rekey, the change of a crypto bdev's key under I/O: how it lies on the bdev that keeps it. Pure.
 *
 *     byte 0		the first header
 *     byte 65536	the second header; they are written in turn, and the one with the higher generation counts
 *     byte 131072	the copy of one chunk, 1 MiB, encrypted with the new key
 *
 * So a header that a crash tears leaves the other one as it was, whatever the size of a block, 65536 bytes at most.
 * A header is 512 bytes, little endian, with a CRC32C. It has no key, only a salted digest of each. */
#ifndef BDEV_CRYPTO_REKEY_JOURNAL_H
#define BDEV_CRYPTO_REKEY_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REKEY_HEADER_BYTES  512u
#define REKEY_HEADER_STRIDE 65536u
#define REKEY_CHUNK_OFFSET  (2u * REKEY_HEADER_STRIDE)
#define REKEY_CHUNK_BYTES   (1u << 20)
#define REKEY_JOURNAL_BYTES (REKEY_CHUNK_OFFSET + REKEY_CHUNK_BYTES) /* what a journal needs */
#define REKEY_DIGEST        32u
#define REKEY_SALT          16u
#define REKEY_NAME_MAX      136u /* bytes of a base's name that are kept, with the NUL */
#define REKEY_ERROR_MAX     256u

enum rekey_state {
	REKEY_RUNNING = 1,   /* blocks below `position` have the new key, all others the old one */
	REKEY_UNDER_WAY = 2, /* the same, but that the next `chunk_blocks` may have either: the copy has them */
	REKEY_DONE = 3,      /* all blocks have the new key */
	REKEY_VOID = 4,      /* the journal says nothing: another one has this rekey, or this one is not complete yet */
};

/* A header, decoded. */
struct rekey_header {
	uint64_t generation;
	uint64_t position; /* blocks */
	enum rekey_state state;
	uint32_t block_size;   /* bytes, of the crypto bdev */
	uint32_t chunk_blocks; /* UNDER_WAY: at least 1 */
	uint32_t chunk_crc;    /* UNDER_WAY: CRC32C of the copy */
	uint8_t base_uuid[16]; /* zeros: the base has another one each time that it is made */
	uint8_t salt[REKEY_SALT];
	uint8_t old_key[REKEY_DIGEST], new_key[REKEY_DIGEST]; /* digests */
	char base_name[REKEY_NAME_MAX];
};

/* Encodes h to REKEY_HEADER_BYTES bytes. */
void rekey_header_encode(const struct rekey_header *h, uint8_t *to);
/* Decodes REKEY_HEADER_BYTES bytes. False: they are no header, a torn or a damaged one, or one of a later format. */
bool rekey_header_decode(const uint8_t *from, struct rekey_header *h);
/* The header that counts of the two; NULL: neither does. first, second: NULL for one that is none. */
const struct rekey_header *rekey_header_newest(const struct rekey_header *first, const struct rekey_header *second);
/* Whether `found` is of the rekey that `wanted` describes: of the same base, with the same keys. The digests of
 * `wanted` were made with found's salt. 0; or -EINVAL, and error (REKEY_ERROR_MAX bytes) says what differs. */
int rekey_header_check(const struct rekey_header *found, const struct rekey_header *wanted, char *error);

/* The bytes of a header's I/O, on a bdev with blocks of `block` bytes. */
static inline uint32_t rekey_header_io_bytes(uint32_t block)
{
	return block > REKEY_HEADER_BYTES ? block : REKEY_HEADER_BYTES;
}

/* CRC32C. */
uint32_t rekey_crc(const void *data, size_t bytes);
/* The digest of a key that tells whether another one is the same, and nothing else of it. 0; or -EIO: OpenSSL failed.
 */
int rekey_key_digest(const uint8_t salt[REKEY_SALT], const uint8_t *key, size_t bytes, uint8_t digest[REKEY_DIGEST]);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
#include "bdev_modules/crypto/rekey_journal.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <isa-l/crc.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "bdev_modules/crypto/xts.h"
#include "util/openssl_memory.h"
#include "util/secret.h"

#define FORMAT 1u

static const char magic[8] = "VRVREKEY";

/* As it is stored. */
struct stored {
	char magic[8];
	uint32_t format;
	uint32_t crc; /* of all 512 bytes, with zeros here */
	uint64_t generation;
	uint64_t position;
	uint32_t state;
	uint32_t block_size;
	uint32_t chunk_blocks;
	uint32_t chunk_crc;
	uint8_t base_uuid[16];
	uint8_t salt[REKEY_SALT];
	uint8_t old_key[REKEY_DIGEST], new_key[REKEY_DIGEST];
	char base_name[REKEY_NAME_MAX];
	uint8_t zeros[REKEY_HEADER_BYTES - 48 - 32 - 2 * REKEY_DIGEST - REKEY_NAME_MAX];
};
_Static_assert(sizeof(struct stored) == REKEY_HEADER_BYTES, "a header is 512 bytes");

uint32_t rekey_crc(const void *data, size_t bytes)
{
	return ~crc32_iscsi((unsigned char *)(uintptr_t)data, (int)bytes, UINT32_MAX);
}

static uint32_t stored_crc(const struct stored *s)
{
	struct stored copy = *s;

	copy.crc = 0;
	return rekey_crc(&copy, sizeof(copy));
}

void rekey_header_encode(const struct rekey_header *h, uint8_t *to)
{
	struct stored s = {.format = htole32(FORMAT),
			   .generation = htole64(h->generation),
			   .position = htole64(h->position),
			   .state = htole32(h->state),
			   .block_size = htole32(h->block_size),
			   .chunk_blocks = htole32(h->chunk_blocks),
			   .chunk_crc = htole32(h->chunk_crc)};

	memcpy(s.magic, magic, sizeof(magic));
	memcpy(s.base_uuid, h->base_uuid, sizeof(s.base_uuid));
	memcpy(s.salt, h->salt, sizeof(s.salt));
	memcpy(s.old_key, h->old_key, sizeof(s.old_key));
	memcpy(s.new_key, h->new_key, sizeof(s.new_key));
	snprintf(s.base_name, sizeof(s.base_name), "%s", h->base_name);
	s.crc = htole32(stored_crc(&s));
	memcpy(to, &s, sizeof(s));
}

static bool header_is_sound(const struct rekey_header *h)
{
	bool moves = h->state == REKEY_UNDER_WAY;

	if (h->state < REKEY_RUNNING || h->state > REKEY_VOID || h->block_size < XTS_UNIT_MIN ||
	    h->block_size > REKEY_HEADER_STRIDE || h->generation == UINT64_MAX) {
		return false;
	}
	if (h->chunk_blocks > REKEY_CHUNK_BYTES / h->block_size || moves != (h->chunk_blocks != 0)) {
		return false;
	}
	return h->position <= UINT64_MAX - h->chunk_blocks;
}

bool rekey_header_decode(const uint8_t *from, struct rekey_header *h)
{
	struct stored s;

	memcpy(&s, from, sizeof(s));
	if (memcmp(s.magic, magic, sizeof(magic)) != 0 || s.format != htole32(FORMAT) ||
	    s.crc != htole32(stored_crc(&s)) || s.base_name[REKEY_NAME_MAX - 1] != 0) {
		return false;
	}
	*h = (struct rekey_header){.generation = le64toh(s.generation),
				   .position = le64toh(s.position),
				   .state = (enum rekey_state)le32toh(s.state),
				   .block_size = le32toh(s.block_size),
				   .chunk_blocks = le32toh(s.chunk_blocks),
				   .chunk_crc = le32toh(s.chunk_crc)};
	memcpy(h->base_uuid, s.base_uuid, sizeof(s.base_uuid));
	memcpy(h->salt, s.salt, sizeof(s.salt));
	memcpy(h->old_key, s.old_key, sizeof(s.old_key));
	memcpy(h->new_key, s.new_key, sizeof(s.new_key));
	memcpy(h->base_name, s.base_name, sizeof(s.base_name));
	return header_is_sound(h);
}

const struct rekey_header *rekey_header_newest(const struct rekey_header *first, const struct rekey_header *second)
{
	if (first == NULL || second == NULL) {
		return first != NULL ? first : second;
	}
	return second->generation > first->generation ? second : first;
}

static bool base_is_the_same(const struct rekey_header *found, const struct rekey_header *wanted)
{
	static const uint8_t none[16];
	bool by_uuid =
		memcmp(found->base_uuid, none, sizeof(none)) != 0 && memcmp(wanted->base_uuid, none, sizeof(none)) != 0;

	return by_uuid ? memcmp(found->base_uuid, wanted->base_uuid, sizeof(none)) == 0
		       : strcmp(found->base_name, wanted->base_name) == 0;
}

int rekey_header_check(const struct rekey_header *found, const struct rekey_header *wanted, char *error)
{
	if (!base_is_the_same(found, wanted)) {
		snprintf(error, REKEY_ERROR_MAX, "the journal is of another rekey, of bdev %s", found->base_name);
	} else if (found->block_size != wanted->block_size) {
		snprintf(error, REKEY_ERROR_MAX,
			 "the journal is of a rekey of blocks of %" PRIu32 " bytes, not of %" PRIu32, found->block_size,
			 wanted->block_size);
	} else if (!secret_equal(found->old_key, wanted->old_key, REKEY_DIGEST)) {
		snprintf(error, REKEY_ERROR_MAX, "the journal is of a rekey from another key: key_name is wrong");
	} else if (!secret_equal(found->new_key, wanted->new_key, REKEY_DIGEST)) {
		snprintf(error, REKEY_ERROR_MAX, "the journal is of a rekey to another key: the new key is wrong");
	} else {
		return 0;
	}
	return -EINVAL;
}

int rekey_key_digest(const uint8_t salt[REKEY_SALT], const uint8_t *key, size_t bytes, uint8_t digest[REKEY_DIGEST])
{
	static const char what[] = "varve crypto rekey";
	/* Fetched outside, as the ciphers are (xts.c). */
	EVP_MD *sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
	EVP_MD_CTX *ctx = NULL;
	bool good = sha256 != NULL && openssl_memory_secret_begin() == 0;

	if (good) {
		ctx = EVP_MD_CTX_new();
		good = ctx != NULL && EVP_DigestInit_ex(ctx, sha256, NULL) && EVP_DigestUpdate(ctx, salt, REKEY_SALT) &&
		       EVP_DigestUpdate(ctx, what, sizeof(what)) && EVP_DigestUpdate(ctx, key, bytes) &&
		       EVP_DigestFinal_ex(ctx, digest, NULL);
		EVP_MD_CTX_free(ctx);
		openssl_memory_secret_end();
	}
	EVP_MD_free(sha256);
	if (!good) {
		ERR_clear_error();
	}
	return good ? 0 : -EIO;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Headers of a rekey's journal, of any contents, as they are and with the CRC put right: what is accepted can be
 * carried out, is the same when it is written again, and is compared with another one without reading beyond it. */
#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include "bdev_modules/crypto/rekey_journal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect_sound(const struct rekey_header *h)
{
	uint64_t bytes = (uint64_t)h->chunk_blocks * h->block_size;

	if (bytes > REKEY_CHUNK_BYTES || (h->state == REKEY_UNDER_WAY) != (bytes != 0) ||
	    h->position + h->chunk_blocks < h->position || memchr(h->base_name, 0, sizeof(h->base_name)) == NULL) {
		abort();
	}
}

static void fuzz(const uint8_t *bytes)
{
	uint8_t again[REKEY_HEADER_BYTES];
	char error[REKEY_ERROR_MAX] = "";
	struct rekey_header h, in;

	if (!rekey_header_decode(bytes, &h)) {
		return;
	}
	expect_sound(&h);
	rekey_header_encode(&h, again);
	if (!rekey_header_decode(again, &in) || rekey_header_check(&h, &in, error) != 0 || in.position != h.position ||
	    rekey_header_newest(&h, &in) != &h) {
		abort();
	}
	in.new_key[0] ^= 1;
	if (rekey_header_check(&h, &in, error) == 0 || error[0] == 0) {
		abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *bytes = calloc(1, REKEY_HEADER_BYTES); /* of its own, so that a byte too many is noticed */
	const size_t at = 12;                           /* of the CRC */

	memcpy(bytes, data, size < REKEY_HEADER_BYTES ? size : REKEY_HEADER_BYTES);
	fuzz(bytes);
	memset(bytes + at, 0, sizeof(uint32_t));
	uint32_t crc = htole32(rekey_crc(bytes, REKEY_HEADER_BYTES));
	memcpy(bytes + at, &crc, sizeof(crc));
	fuzz(bytes);
	free(bytes);
	return 0;
}

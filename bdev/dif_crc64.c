/* SPDX-License-Identifier: BSD-3-Clause */
/* The polynomial is ad93d23594c93659h; bits are reflected; the register begins and ends inverted.
 *
 * Tables carry out 8 bytes at a time. Where the processor multiplies without carry, blocks of 64 bytes are folded
 * first: a polynomial A of 128 bits that stands D bits in front of the end counts as much as A * (x^D mod P) at the
 * end, which has at most 128 bits again. What is left, 16 bytes, goes through the tables. */
#include "bdev/dif_crc64.h"

#include <endian.h>
#include <stdbool.h>
#include <string.h>

#define REFLECTED UINT64_C(0x9a6c9329ac4bc9b5)

static uint64_t tables[8][256]; /* [n][b]: the CRC of byte b with n zeroes behind it */

static uint64_t table_step(uint64_t r)
{
	return r >> 1 ^ (r & 1 ? REFLECTED : 0);
}

static void tables_make(void)
{
	for (unsigned b = 0; b < 256; b++) {
		uint64_t r = b;
		for (unsigned bit = 0; bit < 8; bit++) {
			r = table_step(r);
		}
		tables[0][b] = r;
	}
	for (unsigned n = 1; n < 8; n++) {
		for (unsigned b = 0; b < 256; b++) {
			uint64_t r = tables[n - 1][b];
			tables[n][b] = tables[0][r & 0xff] ^ r >> 8;
		}
	}
}

/* r: the register as it is, not inverted. */
static uint64_t register_move(uint64_t r, const uint8_t *data, size_t bytes)
{
	for (; bytes >= 8; data += 8, bytes -= 8) {
		uint64_t word;
		memcpy(&word, data, sizeof(word));
		r ^= le64toh(word);
		r = tables[7][r & 0xff] ^ tables[6][r >> 8 & 0xff] ^ tables[5][r >> 16 & 0xff] ^
		    tables[4][r >> 24 & 0xff] ^ tables[3][r >> 32 & 0xff] ^ tables[2][r >> 40 & 0xff] ^
		    tables[1][r >> 48 & 0xff] ^ tables[0][r >> 56];
	}
	for (; bytes > 0; data++, bytes--) {
		r = tables[0][(r ^ *data) & 0xff] ^ r >> 8;
	}
	return r;
}

uint64_t dif_crc64_by_table(uint64_t crc, const void *data, size_t bytes)
{
	return ~register_move(~crc, data, bytes);
}

#ifdef __x86_64__
#include <immintrin.h>

#define LANES   4
#define STRIDE  (LANES * sizeof(__m128i))
#define FOLDING __attribute__((target("pclmul,sse4.1")))

static bool can_fold;
/* x^(D + 63) and x^(D - 1) mod P, for D of one lane and of all; a product of reflected factors has one x too many. */
static uint64_t fold_lane[2], fold_lanes[2];

static uint64_t power_of_x(unsigned n)
{
	uint64_t r = UINT64_C(1) << 63;

	while (n-- > 0) {
		r = table_step(r);
	}
	return r;
}

static void folding_make(void)
{
	for (unsigned high = 0; high < 2; high++) {
		fold_lane[high] = power_of_x(128 + (high ? 0 : 64) - 1);
		fold_lanes[high] = power_of_x(LANES * 128 + (high ? 0 : 64) - 1);
	}
	can_fold = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}

FOLDING static __m128i lane_fold(__m128i lane, __m128i by, __m128i next)
{
	__m128i front = _mm_clmulepi64_si128(lane, by, 0x00), back = _mm_clmulepi64_si128(lane, by, 0x11);

	return _mm_xor_si128(_mm_xor_si128(front, back), next);
}

/* bytes: at least STRIDE. *done: how many of them the result covers. */
FOLDING static uint64_t register_fold(uint64_t r, const uint8_t *data, size_t bytes, size_t *done)
{
	__m128i by = _mm_loadu_si128((const __m128i *)fold_lanes);
	__m128i lanes[LANES];
	uint8_t rest[sizeof(__m128i)];

	for (unsigned i = 0; i < LANES; i++) {
		lanes[i] = _mm_loadu_si128((const __m128i *)data + i);
	}
	lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi64_si128((int64_t)r));
	for (*done = STRIDE; bytes - *done >= STRIDE; *done += STRIDE) {
		const __m128i *next = (const __m128i *)(data + *done);
		for (unsigned i = 0; i < LANES; i++) {
			lanes[i] = lane_fold(lanes[i], by, _mm_loadu_si128(next + i));
		}
	}
	by = _mm_loadu_si128((const __m128i *)fold_lane);
	for (unsigned i = 1; i < LANES; i++) {
		lanes[i] = lane_fold(lanes[i - 1], by, lanes[i]);
	}
	_mm_storeu_si128((__m128i *)rest, lanes[LANES - 1]);
	return register_move(0, rest, sizeof(rest));
}

uint64_t dif_crc64(uint64_t crc, const void *data, size_t bytes)
{
	uint64_t r = ~crc;
	size_t done = 0;

	if (can_fold && bytes >= STRIDE) {
		r = register_fold(r, data, bytes, &done);
	}
	return ~register_move(r, (const uint8_t *)data + done, bytes - done);
}
#else
static void folding_make(void)
{
}

uint64_t dif_crc64(uint64_t crc, const void *data, size_t bytes)
{
	return dif_crc64_by_table(crc, data, bytes);
}
#endif

__attribute__((constructor)) static void crc64_prepare(void)
{
	tables_make();
	folding_make();
}

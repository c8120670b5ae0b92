/* SPDX-License-Identifier: BSD-3-Clause */
/* A region of addresses is reserved at the first use. Its chunks are made usable one after the other, each for
 * allocations of one size, a power of two. What is free is in a list per size, and is zero but for the list's link. */
#include "util/secret.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "util/log.h"

#define CHUNK     65536u
#define CHUNKS    8192u /* 512 MiB of addresses: 100 000 connections over TLS */
#define SIZE_MIN  64u
#define SIZE_BITS 9u /* sizes: 64 << 0 to 64 << 8 */

struct free_one {
	struct free_one *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(uint8_t *) region;
static size_t chunks_used;
static uint8_t chunk_bits[CHUNKS];
static struct free_one *free_list[SIZE_BITS];

static unsigned size_bits(size_t bytes)
{
	unsigned bits = 0;

	while ((size_t)SIZE_MIN << bits < bytes) {
		bits++;
	}
	return bits;
}

static bool region_reserve(void)
{
	if (atomic_load(&region) != NULL) {
		return true;
	}
	void *at = mmap(NULL, (size_t)CHUNK * CHUNKS, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED) {
		return false;
	}
	atomic_store(&region, at);
	return true;
}

/* Overcommitted memory is not there before it is touched, so a chunk that is not excluded from dumps is not used. */
static bool chunk_prepare(uint8_t *at)
{
	static bool told;

	if (mprotect(at, CHUNK, PROT_READ | PROT_WRITE) != 0 || madvise(at, CHUNK, MADV_DONTDUMP) != 0 ||
	    madvise(at, CHUNK, MADV_WIPEONFORK) != 0) {
		return false;
	}
	if (mlock(at, CHUNK) != 0 && !told) {
		told = true;
		log_warning("keys are in memory that may be swapped out: it cannot be locked: %s (RLIMIT_MEMLOCK)",
			    strerror(errno));
	}
	return true;
}

static bool chunk_add(unsigned bits)
{
	if (!region_reserve() || chunks_used == CHUNKS) {
		return false;
	}
	uint8_t *at = atomic_load(&region) + chunks_used * CHUNK;
	if (!chunk_prepare(at)) {
		return false;
	}
	chunk_bits[chunks_used++] = (uint8_t)bits;
	for (size_t offset = 0; offset < CHUNK; offset += (size_t)SIZE_MIN << bits) {
		struct free_one *one = (struct free_one *)(at + offset);
		one->next = free_list[bits];
		free_list[bits] = one;
	}
	return true;
}

void *secret_alloc(size_t bytes)
{
	struct free_one *one = NULL;

	if (bytes > SECRET_MAX) {
		return NULL;
	}
	unsigned bits = size_bits(bytes);
	pthread_mutex_lock(&lock);
	if (free_list[bits] != NULL || chunk_add(bits)) {
		one = free_list[bits];
		free_list[bits] = one->next;
		one->next = NULL;
	}
	pthread_mutex_unlock(&lock);
	return one;
}

bool secret_owns(const void *p)
{
	const uint8_t *at = p, *begin = atomic_load_explicit(&region, memory_order_relaxed);

	return begin != NULL && at >= begin && at < begin + (size_t)CHUNK * CHUNKS;
}

static unsigned chunk_bits_of(const void *p)
{
	return chunk_bits[(size_t)((const uint8_t *)p - atomic_load(&region)) / CHUNK];
}

size_t secret_room(const void *p)
{
	return (size_t)SIZE_MIN << chunk_bits_of(p);
}

void secret_free(void *p)
{
	if (p == NULL) {
		return;
	}
	struct free_one *one = p;
	explicit_bzero(p, secret_room(p));
	pthread_mutex_lock(&lock);
	one->next = free_list[chunk_bits_of(p)];
	free_list[chunk_bits_of(p)] = one;
	pthread_mutex_unlock(&lock);
}

void secret_wipe_free(void *p)
{
	if (p != NULL) {
		explicit_bzero(p, malloc_usable_size(p));
		free(p);
	}
}

/* The value of a digit in the lowest bits; all bits if it is none. */
static unsigned hex_value(unsigned char c)
{
	unsigned lower = c | 0x20u;
	/* All ones where c lies in the range, else zero: by the borrow of a subtraction. */
	unsigned is_number = (unsigned)(((int)('0' - 1 - (int)c) & ((int)c - '9' - 1)) >> 31);
	unsigned is_letter = (unsigned)(((int)('a' - 1 - (int)lower) & ((int)lower - 'f' - 1)) >> 31);

	return (is_number & (c - '0')) | (is_letter & (lower - 'a' + 10)) | ~(is_number | is_letter);
}

bool secret_from_hex(const char *digits, unsigned char *to, size_t bytes)
{
	unsigned bad = 0;

	for (size_t i = 0; i < bytes; i++) {
		unsigned high = hex_value((unsigned char)digits[2 * i]);
		unsigned low = hex_value((unsigned char)digits[2 * i + 1]);
		bad |= (high | low) >> 4;
		to[i] = (unsigned char)(high << 4 | (low & 0xf));
	}
	return bad == 0;
}

bool secret_equal(const void *a, const void *b, size_t bytes)
{
	const volatile unsigned char *x = a, *y = b;
	unsigned differ = 0;

	for (size_t i = 0; i < bytes; i++) {
		differ |= (unsigned)(x[i] ^ y[i]);
	}
	return differ == 0;
}

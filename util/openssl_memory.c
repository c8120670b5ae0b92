/* SPDX-License-Identifier: BSD-3-Clause */
/* OpenSSL keeps key schedules, from which keys can be computed, in memory that it allocates as any other; and the
 * secrets of a TLS connection in its SSL object, which it frees as they are. So varve allocates for it: from memory for
 * keys while a key schedule is made, from malloc() otherwise; and overwrites what is freed. */
#include "util/openssl_memory.h"

#include <errno.h>
#include <malloc.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "util/secret.h"

static CRYPTO_malloc_fn next_malloc;
static CRYPTO_realloc_fn next_realloc;
static CRYPTO_free_fn next_free;
static _Thread_local bool is_secret;

static void *memory_malloc(size_t bytes, const char *file, int line)
{
	if (is_secret) {
		return secret_alloc(bytes);
	}
	return next_malloc != NULL ? next_malloc(bytes, file, line) : malloc(bytes);
}

static void memory_free(void *p, const char *file, int line)
{
	if (secret_owns(p)) {
		secret_free(p);
	} else if (next_free != NULL) {
		next_free(p, file, line);
	} else {
		secret_wipe_free(p);
	}
}

/* Where memory grows, what was in the old place is overwritten. */
static void *move_memory(void *p, size_t bytes)
{
	void *to = bytes != 0 ? malloc(bytes) : NULL;

	if (to != NULL && p != NULL) {
		size_t room = malloc_usable_size(p);
		memcpy(to, p, room < bytes ? room : bytes);
	}
	if (to != NULL || bytes == 0) {
		secret_wipe_free(p);
	}
	return to;
}

static void *memory_realloc(void *p, size_t bytes, const char *file, int line)
{
	if (!secret_owns(p) && !(is_secret && p == NULL)) {
		return next_realloc != NULL ? next_realloc(p, bytes, file, line) : move_memory(p, bytes);
	}
	void *to = secret_alloc(bytes);
	if (to != NULL && p != NULL) {
		size_t room = secret_room(p);
		memcpy(to, p, room < bytes ? room : bytes);
		secret_free(p);
	}
	return to;
}

/* Before OpenSSL allocates anything, as it demands. */
__attribute__((constructor)) static void memory_lead_openssl(void)
{
	CRYPTO_malloc_fn m;
	CRYPTO_realloc_fn r;
	CRYPTO_free_fn f;

	CRYPTO_get_mem_functions(&m, &r, &f);
	if (m != CRYPTO_malloc) { /* somebody else allocates for it */
		next_malloc = m;
		next_realloc = r;
		next_free = f;
	}
	(void)CRYPTO_set_mem_functions(memory_malloc, memory_realloc, memory_free);
}

static bool openssl_memory_is_ours(void)
{
	CRYPTO_malloc_fn m;

	CRYPTO_get_mem_functions(&m, NULL, NULL);
	return m == memory_malloc;
}

bool openssl_memory_is_wiped(void)
{
	return openssl_memory_is_ours() && next_free == NULL;
}

int openssl_memory_secret_begin(void)
{
	if (!openssl_memory_is_ours()) {
		return -ENOTSUP;
	}
	is_secret = true;
	return 0;
}

void openssl_memory_secret_end(void)
{
	is_secret = false;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory: the C library's, DPDK's, jansson's, OpenSSL's. */
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <rte_malloc.h>
#include <rte_mempool.h>
#include <rte_memzone.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "systest/faults/faults.h"

FAULTY_GIVES(void *, malloc, ENOMEM, (size_t bytes), (bytes))
FAULTY_GIVES(void *, calloc, ENOMEM, (size_t n, size_t bytes), (n, bytes))
FAULTY_GIVES(void *, aligned_alloc, ENOMEM, (size_t alignment, size_t bytes), (alignment, bytes))
FAULTY_GIVES(char *, strdup, ENOMEM, (const char *s), (s))
FAULTY_GIVES(char *, strndup, ENOMEM, (const char *s, size_t n), (s, n))

void *__real_realloc(void *old, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes)
{
	struct fault_site *site;

	if (fault_gives("realloc", __builtin_return_address(0), __builtin_frame_address(0), &site)) {
		errno = ENOMEM;
		return NULL;
	}
	fault_untrack(old);
	void *p = __real_realloc(old, bytes);
	fault_track(p != NULL ? p : old, site);
	return p;
}

void __real_free(void *p);
void __wrap_free(void *p);
void __wrap_free(void *p)
{
	fault_untrack(p);
	__real_free(p);
}

int __real_vasprintf(char **out, const char *format, va_list args);

static int print(char **out, struct fault_site *site, const char *format, va_list args)
{
	int n = __real_vasprintf(out, format, args);

	if (n >= 0) {
		fault_track(*out, site);
	}
	return n;
}

int __wrap_asprintf(char **out, const char *format, ...);
int __wrap_asprintf(char **out, const char *format, ...)
{
	struct fault_site *site;
	va_list args;

	if (fault_gives("asprintf", __builtin_return_address(0), __builtin_frame_address(0), &site)) {
		errno = ENOMEM;
		return -1;
	}
	va_start(args, format);
	int n = print(out, site, format, args);
	va_end(args);
	return n;
}

int __wrap_vasprintf(char **out, const char *format, va_list args);
int __wrap_vasprintf(char **out, const char *format, va_list args)
{
	struct fault_site *site;

	if (fault_gives("vasprintf", __builtin_return_address(0), __builtin_frame_address(0), &site)) {
		errno = ENOMEM;
		return -1;
	}
	return print(out, site, format, args);
}

/* DPDK. */
FAULTY_GIVES(void *, rte_malloc_socket, ENOMEM, (const char *type, size_t bytes, unsigned align, int socket),
	     (type, bytes, align, socket))
FAULTY_GIVES(const struct rte_memzone *, rte_memzone_reserve_aligned, ENOMEM,
	     (const char *name, size_t bytes, int socket, unsigned flags, unsigned align),
	     (name, bytes, socket, flags, align))
FAULTY_GIVES(struct rte_mempool *, rte_mempool_create_empty, ENOMEM,
	     (const char *name, unsigned n, unsigned size, unsigned cache, unsigned private_bytes, int socket,
	      unsigned flags),
	     (name, n, size, cache, private_bytes, socket, flags))
FAULTY(int, rte_malloc_heap_create, -1, ENOMEM, (const char *name), (name))
FAULTY(int, rte_malloc_heap_memory_add, -1, ENOMEM,
       (const char *heap, void *at, size_t bytes, rte_iova_t iovas[], unsigned pages, size_t page),
       (heap, at, bytes, iovas, pages, page))
FAULTY(int, rte_mem_event_callback_register, -1, ENOMEM, (const char *name, rte_mem_event_callback_t fn, void *arg),
       (name, fn, arg))

FAULTY(int, rte_mempool_populate_iova, -ENOMEM, ENOMEM,
       (struct rte_mempool * mp, char *at, rte_iova_t iova, size_t bytes, rte_mempool_memchunk_free_cb_t *fn,
	void *arg),
       (mp, at, iova, bytes, fn, arg))

void __real_rte_free(void *p);
void __wrap_rte_free(void *p);
void __wrap_rte_free(void *p)
{
	fault_untrack(p);
	__real_rte_free(p);
}

int __real_rte_memzone_free(const struct rte_memzone *m);
int __wrap_rte_memzone_free(const struct rte_memzone *m);
int __wrap_rte_memzone_free(const struct rte_memzone *m)
{
	fault_untrack(m);
	return __real_rte_memzone_free(m);
}

void __real_rte_mempool_free(struct rte_mempool *m);
void __wrap_rte_mempool_free(struct rte_mempool *m);
void __wrap_rte_mempool_free(struct rte_mempool *m)
{
	fault_untrack(m);
	__real_rte_mempool_free(m);
}

/* OpenSSL. Its sites are the calls of ours that it is in: what it keeps for itself from its first use on is there
 * before any fault. */
FAULTY(int, RAND_bytes, 0, EIO, (unsigned char *to, int n), (to, n))

static void *ssl_malloc(size_t bytes, const char *file, int line)
{
	struct fault_site *site;

	(void)file;
	(void)line;
	if (fault_gives("OPENSSL_malloc", __builtin_return_address(0), __builtin_frame_address(0), &site)) {
		return NULL;
	}
	void *p = __real_malloc(bytes);
	fault_track(p, site);
	return p;
}

static void *ssl_realloc(void *old, size_t bytes, const char *file, int line)
{
	struct fault_site *site;

	(void)file;
	(void)line;
	if (bytes == 0) {
		__wrap_free(old);
		return NULL;
	}
	if (fault_gives("OPENSSL_realloc", __builtin_return_address(0), __builtin_frame_address(0), &site)) {
		return NULL;
	}
	fault_untrack(old);
	void *p = __real_realloc(old, bytes);
	fault_track(p != NULL ? p : old, site);
	return p;
}

static void ssl_free(void *p, const char *file, int line)
{
	(void)file;
	(void)line;
	__wrap_free(p);
}

__attribute__((constructor)) static void lead_openssl(void)
{
	if (fault_area != NULL) {
		CRYPTO_set_mem_functions(ssl_malloc, ssl_realloc, ssl_free);
	}
}

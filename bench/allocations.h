/* SPDX-License-Identifier: BSD-3-Clause */
/* Counts the heap allocations of a benchmark: it takes the place of malloc() and its like, so one file of a program
 * includes it. */
#ifndef BENCH_ALLOCATIONS_H
#define BENCH_ALLOCATIONS_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/* Those of the thread that sets `counting`. glibc keeps its own functions under these names. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t align, size_t size);
static __thread bool counting;
static uint64_t allocations;

void *malloc(size_t size)
{
	allocations += counting;
	return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
	allocations += counting;
	return __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
	allocations += counting;
	return __libc_realloc(p, size);
}

void *aligned_alloc(size_t align, size_t size)
{
	allocations += counting;
	return __libc_memalign(align, size);
}

int posix_memalign(void **p, size_t align, size_t size)
{
	allocations += counting;
	*p = __libc_memalign(align, size);
	return *p != NULL ? 0 : ENOMEM;
}

#endif

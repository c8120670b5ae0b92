/* SPDX-License-Identifier: BSD-3-Clause */
/* For one file of a test program that is linked with -Wl,--wrap=malloc, calloc and realloc: lets one allocation fail.
 * Those of shared libraries are their own. */
#ifndef UNITTEST_ALLOCATIONS_H
#define UNITTEST_ALLOCATIONS_H

#include <stdbool.h>
#include <stddef.h>

/* So many succeed, the next one fails, and those after it succeed. Negative: all do. */
static long allocations_left = -1;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);

static bool allocation_fails(void)
{
	return allocations_left >= 0 && allocations_left-- == 0;
}

void *__wrap_malloc(size_t size)
{
	return allocation_fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return allocation_fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
	return allocation_fails() ? NULL : __real_realloc(p, size);
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Pages of memory that is not used for a while. */
#ifndef UTIL_PAGES_H
#define UTIL_PAGES_H

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* Gives the whole pages of `bytes` bytes of malloc()'s memory back to the system until they are used again: what was in
 * them is lost. If it does not work, the memory is kept. Any thread. */
static inline void pages_give_back(void *memory, size_t bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = ((uintptr_t)memory + page - 1) & ~(page - 1),
		  to = ((uintptr_t)memory + bytes) & ~(page - 1);

	if (from < to) {
		(void)madvise((void *)from, to - from, MADV_DONTNEED);
	}
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* What malloc() has left of secrets. */
#ifndef UNITTEST_TLS_HEAP_H
#define UNITTEST_TLS_HEAP_H

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* How often bytes are where malloc() has its memory; a sanitizer has it elsewhere. */
static unsigned count_in_heap(const uint8_t *bytes, size_t n)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	unsigned count = 0;

	while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
		uintptr_t from, to;

		if (strstr(line, "[heap]") == NULL || sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &from, &to) != 2) {
			continue;
		}
		for (const uint8_t *at = (const uint8_t *)from, *end = (const uint8_t *)to;
		     (at = memmem(at, (size_t)(end - at), bytes, n)) != NULL; at++) {
			count++;
		}
	}
	if (maps != NULL) {
		fclose(maps);
	}
	return count;
}

#endif

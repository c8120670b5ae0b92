/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of the executable's functions, static ones too, for a crash handler: looked up in the file's symbol table,
 * which is mapped beforehand. */
#ifndef APPLIANCE_SYMBOLS_H
#define APPLIANCE_SYMBOLS_H

#include <stddef.h>
#include <stdint.h>

/* Maps the executable. Without it, or if it is stripped, nothing is found. */
void symbols_load(void);
/* The function that holds the address, and the offset into it; NULL: not known. Async-signal-safe. */
const char *symbols_find(const void *address, uint64_t *offset);
/* The address as addr2line wants it: its place in the executable's file image. 0: it lies elsewhere. */
uint64_t symbols_file_address(const void *address);

#endif

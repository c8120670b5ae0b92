/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of the executable's functions, static ones too, for a crash handler: it looks them up in the symbol table of
 * the executable's file, which is mapped beforehand. */
#ifndef APPLIANCE_SYMBOLS_H
#define APPLIANCE_SYMBOLS_H

#include <stddef.h>
#include <stdint.h>

/* Maps the executable. If that fails, or the executable is stripped, no symbol will be found. */
void symbols_load(void);
/* The function that contains the address, and the address's offset in it; NULL: not known. Async-signal-safe. */
const char *symbols_find(const void *address, uint64_t *offset);
/* The address as addr2line takes it: relative to the executable's load address. 0: it is in another object.
 * Async-signal-safe. */
uint64_t symbols_file_address(const void *address);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory for keys: locked, so that it is never swapped out; left out of core dumps; empty in a child process; and
 * overwritten when it is freed. Any thread, not on the I/O path: a lock is taken. */
#ifndef UTIL_SECRET_H
#define UTIL_SECRET_H

#include <stdbool.h>
#include <stddef.h>

#define SECRET_MAX 16384u /* bytes of one allocation */

/* Zeroed memory, aligned to 64 bytes; NULL: there is none, or more than SECRET_MAX bytes are asked for. If the system
 * does not lock it (RLIMIT_MEMLOCK), the log says so once, and it can be used. */
void *secret_alloc(size_t bytes);
/* Overwrites and frees it. p may be NULL. */
void secret_free(void *p);
/* Whether p came from secret_alloc(). Takes no lock. */
bool secret_owns(const void *p);
/* Bytes that p, from secret_alloc(), has room for. */
size_t secret_room(const void *p);

/* Overwrites what malloc() and its kin gave and frees it: for memory that had a secret for a while. p may be NULL. */
void secret_wipe_free(void *p);

/* Reads `bytes` bytes from 2 * bytes hexadecimal digits. How long it takes, and what it touches, does not depend on the
 * digits. False: some are no hexadecimal digits. Pure. */
bool secret_from_hex(const char *digits, unsigned char *to, size_t bytes);
/* Whether a and b are equal, in a time that does not depend on where they differ. Pure. */
bool secret_equal(const void *a, const void *b, size_t bytes);

#endif

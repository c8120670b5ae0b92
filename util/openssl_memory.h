/* SPDX-License-Identifier: BSD-3-Clause */
/* What OpenSSL allocates, varve allocates for it: all is overwritten when it is freed, for OpenSSL itself overwrites
 * some secrets only (not those of an SSL object); and where key schedules are made, it is memory of secret_alloc(). */
#ifndef UTIL_OPENSSL_MEMORY_H
#define UTIL_OPENSSL_MEMORY_H

#include <stdbool.h>

/* Whether what OpenSSL frees is overwritten. False: other functions allocate for OpenSSL. Any thread. Who calls it has
 * this file linked, and so its constructor, which is what counts. */
bool openssl_memory_is_wiped(void);

/* Has what OpenSSL allocates on this thread come from secret_alloc() between the two calls. 0, or -ENOTSUP: other
 * functions allocate for OpenSSL. */
int openssl_memory_secret_begin(void);
/* Ends that. */
void openssl_memory_secret_end(void);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Where generated PSKs are kept while they are in use: memory of secret_alloc(), of which hosts cannot take more than
 * TLS_VAULT_KEYS places. Control thread; any thread may read a key. */
#ifndef TLS_VAULT_H
#define TLS_VAULT_H

#include "tls/psk.h"

#define TLS_VAULT_KEYS 1024 /* that there may be at once */

/* A place for a key, zeroed; NULL: all are taken, or there is no memory. */
struct tls_psk *tls_vault_get(void);
/* Overwrites the key and gives its place back. NULL is ignored. */
void tls_vault_put(struct tls_psk *psk);
/* How many places are taken. */
unsigned tls_vault_used(void);

#endif

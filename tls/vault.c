/* SPDX-License-Identifier: BSD-3-Clause */
#include "tls/vault.h"

#include "util/secret.h"

static unsigned used;

struct tls_psk *tls_vault_get(void)
{
	struct tls_psk *psk = used < TLS_VAULT_KEYS ? secret_alloc(sizeof(*psk)) : NULL;

	used += psk != NULL;
	return psk;
}

void tls_vault_put(struct tls_psk *psk)
{
	if (psk != NULL) {
		secret_free(psk);
		used--;
	}
}

unsigned tls_vault_used(void)
{
	return used;
}

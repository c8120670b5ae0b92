/* SPDX-License-Identifier: BSD-3-Clause */
#include "tls/vault.h"

#include <stdint.h>
#include <sys/mman.h>

static struct tls_psk *places;
static uint16_t free_places[TLS_VAULT_KEYS]; /* a stack of num_free */
static unsigned num_free;

static bool vault_open(void)
{
	size_t size = TLS_VAULT_KEYS * sizeof(*places);
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED) {
		return false;
	}
	(void)mlock(memory, size); /* what may not be locked is used all the same */
	(void)madvise(memory, size, MADV_DONTDUMP);
	places = memory;
	for (num_free = 0; num_free < TLS_VAULT_KEYS; num_free++) {
		free_places[num_free] = (uint16_t)(TLS_VAULT_KEYS - 1 - num_free);
	}
	return true;
}

struct tls_psk *tls_vault_get(void)
{
	if ((places == NULL && !vault_open()) || num_free == 0) {
		return NULL;
	}
	return &places[free_places[--num_free]];
}

void tls_vault_put(struct tls_psk *psk)
{
	if (psk != NULL) {
		dhchap_cleanse(psk, sizeof(*psk));
		free_places[num_free++] = (uint16_t)(psk - places);
	}
}

unsigned tls_vault_used(void)
{
	return places != NULL ? TLS_VAULT_KEYS - num_free : 0;
}

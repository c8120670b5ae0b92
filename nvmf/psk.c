/* SPDX-License-Identifier: BSD-3-Clause */
/* The pre-shared keys of hosts, by the names of host and subsystem. A handshake looks for them on a worker thread; so
 * they lie apart from what the control thread owns, and under a lock, which is held for as long as a copy takes. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "nvmf/internal.h"

struct nvmf_psk {
	const struct nvmf_tgt *tgt; /* told apart only */
	char hostnqn[NVMF_NQN_MAX + 1], subnqn[NVMF_NQN_MAX + 1];
	struct tls_psk psk; /* len 0: none */
	TAILQ_ENTRY(nvmf_psk) link;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static TAILQ_HEAD(, nvmf_psk) psks = TAILQ_HEAD_INITIALIZER(psks);

struct nvmf_psk *nvmf_psk_add(const struct nvmf_tgt *tgt, const char *hostnqn, const char *subnqn)
{
	struct nvmf_psk *p = calloc(1, sizeof(*p));

	if (p == NULL) {
		return NULL;
	}
	p->tgt = tgt;
	snprintf(p->hostnqn, sizeof(p->hostnqn), "%s", hostnqn);
	snprintf(p->subnqn, sizeof(p->subnqn), "%s", subnqn);
	pthread_mutex_lock(&lock);
	TAILQ_INSERT_TAIL(&psks, p, link);
	pthread_mutex_unlock(&lock);
	return p;
}

void nvmf_psk_set(struct nvmf_psk *p, const struct tls_psk *psk)
{
	pthread_mutex_lock(&lock);
	p->psk = *psk;
	pthread_mutex_unlock(&lock);
}

void nvmf_psk_remove(struct nvmf_psk *p)
{
	if (p == NULL) {
		return;
	}
	pthread_mutex_lock(&lock);
	TAILQ_REMOVE(&psks, p, link);
	pthread_mutex_unlock(&lock);
	dhchap_cleanse(&p->psk, sizeof(p->psk));
	free(p);
}

bool nvmf_psk_find(const struct nvmf_tgt *tgt, const char *hostnqn, const char *subnqn, struct tls_psk *psk)
{
	const struct nvmf_psk *p;
	bool found = false;

	pthread_mutex_lock(&lock);
	TAILQ_FOREACH (p, &psks, link) {
		if (p->tgt == tgt && strcmp(p->hostnqn, hostnqn) == 0 && strcmp(p->subnqn, subnqn) == 0) {
			*psk = p->psk;
			found = p->psk.len != 0;
			break;
		}
	}
	pthread_mutex_unlock(&lock);
	return found;
}

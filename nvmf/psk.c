/* SPDX-License-Identifier: BSD-3-Clause */
/* The pre-shared keys of hosts, by the names of host and subsystem: the one that an administrator has configured, and
 * those that were generated in authentications (secure channel concatenation). A handshake looks for them on a worker
 * thread; so they lie apart from what the control thread owns, and under a lock, which is held for as long as a copy
 * takes.
 *
 * A generated PSK lives for NVMF_PSK_UNUSED_S, and then for as long as it is in force for a controller, whose admin
 * queue was connected with it or with one that it has replaced. It ends earlier if the host replaces it, gets another
 * DH-HMAC-CHAP key, or is removed. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "nvmf/internal.h"
#include "tls/vault.h"

#define LOOK_US    (10 * UINT64_C(1000000))
#define UNUSED_MAX 16 /* generated ones of a host for a subsystem that no controller uses; the oldest goes first */
#define HOST_MAX   (TLS_VAULT_KEYS / 4) /* generated ones of a host for all subsystems */

struct nvmf_psk {
	const struct nvmf_tgt *tgt; /* told apart only */
	char hostnqn[NVMF_NQN_MAX + 1], subnqn[NVMF_NQN_MAX + 1];
	struct tls_psk psk; /* of a configured one; len 0: none */
	/* Of a generated one. */
	struct tls_psk *generated; /* in the vault */
	const struct nvmf_host *host;
	struct nvmf_subsystem *subsystem;
	char digest[TLS_DIGEST_MAX + 1];
	uint64_t deadline; /* ticks */
	TAILQ_ENTRY(nvmf_psk) generated_link;
	TAILQ_ENTRY(nvmf_psk) link;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static TAILQ_HEAD(, nvmf_psk) psks = TAILQ_HEAD_INITIALIZER(psks);
static void look_at_generated(void *arg);
static struct thread_timer look_timer = {.fn = look_at_generated};
static unsigned num_generated; /* in the list. Control thread */
/* All that are generated, also those that handshakes do not find yet. Control thread. */
static TAILQ_HEAD(, nvmf_psk) generated = TAILQ_HEAD_INITIALIZER(generated);

static struct nvmf_psk *psk_alloc(const struct nvmf_tgt *tgt, const char *hostnqn, const char *subnqn)
{
	struct nvmf_psk *p = calloc(1, sizeof(*p));

	if (p != NULL) {
		p->tgt = tgt;
		snprintf(p->hostnqn, sizeof(p->hostnqn), "%s", hostnqn);
		snprintf(p->subnqn, sizeof(p->subnqn), "%s", subnqn);
	}
	return p;
}

static void psk_insert(struct nvmf_psk *p)
{
	pthread_mutex_lock(&lock);
	TAILQ_INSERT_HEAD(&psks, p, link); /* of those that are generated, the newest comes first */
	pthread_mutex_unlock(&lock);
}

static void psk_free(struct nvmf_psk *p)
{
	dhchap_cleanse(&p->psk, sizeof(p->psk));
	if (p->generated != NULL) {
		TAILQ_REMOVE(&generated, p, generated_link);
		tls_vault_put(p->generated);
	}
	free(p);
}

static void psk_take_out(struct nvmf_psk *p)
{
	pthread_mutex_lock(&lock);
	TAILQ_REMOVE(&psks, p, link);
	pthread_mutex_unlock(&lock);
}

/* ---- Configured ---- */

struct nvmf_psk *nvmf_psk_add(const struct nvmf_tgt *tgt, const char *hostnqn, const char *subnqn)
{
	struct nvmf_psk *p = psk_alloc(tgt, hostnqn, subnqn);

	if (p != NULL) {
		psk_insert(p);
	}
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
	if (p != NULL) {
		psk_take_out(p);
		psk_free(p);
	}
}

/* ---- Generated ---- */

static void generated_remove(struct nvmf_psk *p)
{
	psk_take_out(p);
	psk_free(p);
	if (--num_generated == 0) {
		thread_timer_stop(&look_timer);
	}
}

static bool generated_is_used(const struct nvmf_psk *p)
{
	const struct nvmf_ctrlr *ctrlr;

	TAILQ_FOREACH (ctrlr, &p->subsystem->ctrlrs, link) {
		if (strcmp(ctrlr->hostnqn, p->hostnqn) == 0 && strcmp(ctrlr->psk_digest, p->digest) == 0) {
			return true;
		}
	}
	return false;
}

void nvmf_psk_expire(uint64_t now)
{
	struct nvmf_psk *p, *next;

	for (p = TAILQ_FIRST(&psks); p != NULL; p = next) {
		next = TAILQ_NEXT(p, link);
		if (p->generated != NULL && now >= p->deadline && !generated_is_used(p)) {
			generated_remove(p);
		}
	}
}

static void look_at_generated(void *arg)
{
	thread_timer_start(&look_timer, LOOK_US); /* first: the last one that is removed stops it */
	nvmf_psk_expire(env_ticks());
}

/* Removes the one that is in force for a controller. */
static void generated_remove_of(const struct nvmf_ctrlr *ctrlr)
{
	struct nvmf_psk *p, *next;

	for (p = TAILQ_FIRST(&psks); p != NULL; p = next) {
		next = TAILQ_NEXT(p, link);
		if (p->generated != NULL && p->subsystem == ctrlr->subsystem &&
		    strcmp(p->hostnqn, ctrlr->hostnqn) == 0 && strcmp(p->digest, ctrlr->psk_digest) == 0) {
			generated_remove(p);
		}
	}
}

/* Makes room for one more that is not used. */
static void generated_drop_oldest(const struct nvmf_host *host)
{
	struct nvmf_psk *p, *oldest = NULL;
	unsigned n = 0;

	TAILQ_FOREACH (p, &psks, link) {
		if (p->generated != NULL && p->host == host && !generated_is_used(p)) {
			n++;
			oldest = p;
		}
	}
	if (n >= UNUSED_MAX) {
		generated_remove(oldest);
	}
}

/* Those of the host that p is for. */
static unsigned generated_count(const struct nvmf_psk *p)
{
	const struct nvmf_psk *other;
	unsigned n = 0;

	TAILQ_FOREACH (other, &generated, generated_link) {
		n += other->tgt == p->tgt && strcmp(other->hostnqn, p->hostnqn) == 0;
	}
	return n;
}

static bool generated_has_room(const struct nvmf_psk *p)
{
	return generated_count(p) < HOST_MAX && tls_vault_used() < TLS_VAULT_KEYS;
}

static bool generated_take_place(struct nvmf_psk *p, const struct nvmf_ctrlr *replaces)
{
	if (replaces != NULL && !generated_has_room(p)) {
		generated_remove_of(replaces); /* the new one takes its place */
	}
	p->generated = generated_has_room(p) ? tls_vault_get() : NULL;
	if (p->generated == NULL) {
		log_limited(LOG_LEVEL_WARNING,
			    "%s: no room for a generated key for %s: the host has %u (at most %u), all have %u (%u)",
			    p->hostnqn, p->subnqn, generated_count(p), HOST_MAX, tls_vault_used(), TLS_VAULT_KEYS);
		return false;
	}
	TAILQ_INSERT_TAIL(&generated, p, generated_link);
	return true;
}

struct nvmf_psk *nvmf_psk_generate(struct nvmf_subsystem *s, const struct nvmf_host *host, unsigned hash,
				   const uint8_t *bytes, const struct nvmf_ctrlr *replaces)
{
	struct nvmf_psk *p = psk_alloc(s->tgt, host->nqn, s->nqn);

	if (p == NULL) {
		return NULL;
	}
	if (replaces == NULL) {
		generated_drop_oldest(host);
	}
	if (!generated_take_place(p, replaces)) {
		psk_free(p);
		return NULL;
	}
	p->host = host;
	p->subsystem = s;
	p->generated->hash = (uint8_t)hash;
	p->generated->len = (uint8_t)dhchap_hash_bytes(hash);
	p->generated->generated = true;
	memcpy(p->generated->bytes, bytes, p->generated->len);
	if (tls_psk_digest(p->generated, p->hostnqn, p->subnqn, p->digest) != 0) {
		psk_free(p);
		return NULL;
	}
	return p;
}

void nvmf_psk_discard(struct nvmf_psk *p)
{
	if (p != NULL) {
		psk_free(p);
	}
}

void nvmf_psk_publish(struct nvmf_psk *p, const struct nvmf_host *host)
{
	p->host = host; /* which may have been removed and added again */
	p->deadline = env_ticks() + NVMF_PSK_UNUSED_S * env_ticks_hz();
	psk_insert(p);
	if (num_generated++ == 0) {
		thread_timer_start(&look_timer, LOOK_US);
	}
}

void nvmf_psk_replace(struct nvmf_psk *p, const struct nvmf_host *host, struct nvmf_ctrlr *ctrlr)
{
	generated_remove_of(ctrlr);
	memcpy(ctrlr->psk_digest, p->digest, sizeof(p->digest));
	nvmf_psk_publish(p, host);
}

void nvmf_psk_forget_generated(const struct nvmf_host *host)
{
	struct nvmf_psk *p, *next;

	for (p = TAILQ_FIRST(&psks); p != NULL; p = next) {
		next = TAILQ_NEXT(p, link);
		if (p->generated != NULL && p->host == host) {
			generated_remove(p);
		}
	}
}

bool nvmf_psk_any_generated(const struct nvmf_tgt *tgt)
{
	const struct nvmf_psk *p;

	if (num_generated != 0) {
		TAILQ_FOREACH (p, &psks, link) {
			if (p->generated != NULL && p->tgt == tgt) {
				return true;
			}
		}
	}
	return false;
}

/* ---- Handshakes ---- */

static bool psk_matches(const struct nvmf_psk *p, const struct tls_identity *identity)
{
	if (strcmp(p->hostnqn, identity->hostnqn) != 0 || strcmp(p->subnqn, identity->subnqn) != 0) {
		return false;
	}
	if (identity->generated) {
		return p->generated != NULL && strcmp(p->digest, identity->digest) == 0;
	}
	return p->generated == NULL;
}

bool nvmf_psk_find(const struct nvmf_tgt *tgt, const struct tls_identity *identity, struct tls_psk *psk)
{
	const struct nvmf_psk *p;
	bool found = false;

	pthread_mutex_lock(&lock);
	TAILQ_FOREACH (p, &psks, link) {
		if (p->tgt == tgt && psk_matches(p, identity)) {
			*psk = p->generated != NULL ? *p->generated : p->psk;
			found = psk->len != 0;
			break;
		}
	}
	pthread_mutex_unlock(&lock);
	return found;
}

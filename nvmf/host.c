/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of host NQNs, and which hosts may connect to a subsystem. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "nvmf/internal.h"

struct nvmf_host *nvmf_hosts_find(const struct nvmf_hosts *hosts, const char *nqn)
{
	struct nvmf_host *host;

	TAILQ_FOREACH (host, hosts, link) {
		if (strcmp(host->nqn, nqn) == 0) {
			return host;
		}
	}
	return NULL;
}

int nvmf_hosts_add(struct nvmf_hosts *hosts, const char *nqn)
{
	if (!nvmf_nqn_is_valid(nqn)) {
		log_error("host \"%s\" is not an NQN (nqn.yyyy-mm.reverse.domain[:name], at most %d bytes)", nqn,
			  NVMF_NQN_MAX);
		return -EINVAL;
	}
	if (nvmf_hosts_find(hosts, nqn) != NULL) {
		return -EEXIST;
	}
	struct nvmf_host *host = calloc(1, sizeof(*host));
	if (host == NULL) {
		return -ENOMEM;
	}
	strcpy(host->nqn, nqn);
	TAILQ_INSERT_TAIL(hosts, host, link);
	return 0;
}

static void host_free(struct nvmf_hosts *hosts, struct nvmf_host *host)
{
	TAILQ_REMOVE(hosts, host, link);
	keyring_put(host->key);
	keyring_put(host->ctrlr_key);
	keyring_put(host->psk_key);
	nvmf_psk_remove(host->psk);
	nvmf_psk_forget_generated(host);
	free(host->psk_name);
	free(host);
}

int nvmf_hosts_remove(struct nvmf_hosts *hosts, const char *nqn)
{
	struct nvmf_host *host = nvmf_hosts_find(hosts, nqn);

	if (host == NULL) {
		return -ENOENT;
	}
	host_free(hosts, host);
	return 0;
}

void nvmf_hosts_free(struct nvmf_hosts *hosts)
{
	while (!TAILQ_EMPTY(hosts)) {
		host_free(hosts, TAILQ_FIRST(hosts));
	}
}

/* after: a pointer that this function returned. */
const char *nvmf_hosts_next(const struct nvmf_hosts *hosts, const char *after)
{
	const struct nvmf_host *host;

	if (after == NULL) {
		host = TAILQ_FIRST(hosts);
	} else {
		host = (const struct nvmf_host *)(after - offsetof(struct nvmf_host, nqn));
		host = TAILQ_NEXT(host, link);
	}
	return host != NULL ? host->nqn : NULL;
}

bool nvmf_subsystem_allow_any_host(const struct nvmf_subsystem *s)
{
	return s->allow_any_host;
}

bool nvmf_subsystem_host_allowed(const struct nvmf_subsystem *s, const char *hostnqn)
{
	return s->allow_any_host || nvmf_hosts_find(&s->hosts, hostnqn) != NULL;
}

static bool ctrlr_host_is_not_allowed(const struct nvmf_ctrlr *ctrlr, const struct nvmf_ctrlr_waiter *w)
{
	return !nvmf_subsystem_host_allowed(ctrlr->subsystem, ctrlr->hostnqn);
}

int nvmf_subsystem_set_allow_any_host(struct nvmf_subsystem *s, bool allow)
{
	struct nvmf_ctrlr_waiter *w = NULL;

	if (nvmf_subsystem_refuse_change(s, "allow_any_host") != 0) {
		return -EBUSY;
	}
	if (s->allow_any_host == allow) {
		return 0;
	}
	if (!allow) {
		w = calloc(1, sizeof(*w));
		if (w == NULL) {
			return -ENOMEM;
		}
		w->match = ctrlr_host_is_not_allowed;
	}
	s->allow_any_host = allow;
	nvmf_tgt_discovery_changed(s->tgt);
	if (w != NULL) {
		nvmf_subsystem_end_ctrlrs(s, w, "its host is no longer allowed");
	}
	return 0;
}

/* Takes a reference to a key of the keyring. */
static int host_get_key(const char *what, const char *name, enum keyring_kind kind, struct keyring_key **key,
			char why[NVMF_ERROR_MAX])
{
	const char *reason;

	*key = name != NULL ? keyring_get_kind(name, kind, &reason) : NULL;
	if (name != NULL && *key == NULL) {
		snprintf(why, NVMF_ERROR_MAX, "parameter \"%s\" is \"%.80s\": %s", what, name, reason);
		return -ENOKEY;
	}
	return 0;
}

struct keys {
	struct keyring_key *host, *ctrlr, *psk;
};

static void host_put_keys(const struct keys *keys)
{
	keyring_put(keys->host);
	keyring_put(keys->ctrlr);
	keyring_put(keys->psk);
}

static int host_get_keys(const char *host, const char *ctrlr, const char *psk, struct keys *keys,
			 char why[NVMF_ERROR_MAX])
{
	*keys = (struct keys){0};
	if (host == NULL && ctrlr != NULL) {
		snprintf(why, NVMF_ERROR_MAX,
			 "parameter \"dhchap_ctrlr_key\" is given without \"dhchap_key\": a controller proves who it "
			 "is only to a host that does the same");
		return -EINVAL;
	}
	int rc = host_get_key("dhchap_key", host, KEYRING_DHCHAP, &keys->host, why);
	if (rc == 0) {
		rc = host_get_key("dhchap_ctrlr_key", ctrlr, KEYRING_DHCHAP, &keys->ctrlr, why);
	}
	if (rc == 0) {
		rc = host_get_key("psk", psk, KEYRING_PSK, &keys->psk, why);
	}
	if (rc != 0) {
		host_put_keys(keys);
	}
	return rc;
}

/* Gives handshakes the copy that they find. */
static void host_publish_psk(const struct nvmf_host *host)
{
	struct tls_psk psk = *keyring_key_psk(host->psk_key);

	psk.compat = host->psk_compat;
	nvmf_psk_set(host->psk, &psk);
	dhchap_cleanse(&psk, sizeof(psk));
}

/* A key for TLS alone replaces that one alone. */
static void host_set_keys(struct nvmf_host *host, const struct keys *keys)
{
	if (keys->host != NULL || keys->psk == NULL) {
		host_put_keys(&(struct keys){.host = host->key, .ctrlr = host->ctrlr_key});
		if (host->key != keys->host) {
			nvmf_psk_forget_generated(host);
		}
		host->key = keys->host;
		host->ctrlr_key = keys->ctrlr;
	}
	if (keys->psk != NULL) {
		keyring_put(host->psk_key);
		host->psk_key = keys->psk;
		host_publish_psk(host);
	}
}

/* Where its key for TLS will be, so that setting it cannot fail. */
static int host_make_psk_room(const struct nvmf_subsystem *s, struct nvmf_host *host, const struct keys *keys,
			      char why[NVMF_ERROR_MAX])
{
	if (keys->psk != NULL && host->psk == NULL) {
		host->psk = nvmf_psk_add(s->tgt, host->nqn, s->nqn);
	}
	if (keys->psk != NULL && host->psk == NULL) {
		snprintf(why, NVMF_ERROR_MAX, "%s", strerror(ENOMEM));
		return -ENOMEM;
	}
	return 0;
}

static void host_explain_not_added(const char *hostnqn, int rc, char why[NVMF_ERROR_MAX])
{
	if (rc == -EINVAL) {
		snprintf(why, NVMF_ERROR_MAX,
			 "parameter \"host\" is \"%.64s\": allowed is nqn.yyyy-mm.reverse.domain[:name], at most %d "
			 "bytes",
			 hostnqn, NVMF_NQN_MAX);
	} else if (rc == -EEXIST) {
		snprintf(why, NVMF_ERROR_MAX,
			 "parameter \"host\" is \"%.80s\": it is among the subsystem's hosts already", hostnqn);
	} else {
		snprintf(why, NVMF_ERROR_MAX, "%s", strerror(-rc));
	}
}

/* The keys are looked up before the host is added: a host that has to authenticate must never be in the list without
 * its keys, not even if memory runs out. */
int nvmf_subsystem_add_host_psk(struct nvmf_subsystem *s, const char *hostnqn, const char *key_name,
				const char *ctrlr_key_name, const char *psk_name, char why[NVMF_ERROR_MAX])
{
	struct keys keys;
	int rc = nvmf_subsystem_check_open(s, why);

	rc = rc != 0 ? rc : host_get_keys(key_name, ctrlr_key_name, psk_name, &keys, why);
	if (rc != 0) {
		return rc;
	}
	rc = nvmf_hosts_add(&s->hosts, hostnqn);
	if (rc != 0) {
		host_put_keys(&keys);
		host_explain_not_added(hostnqn, rc, why);
		return rc;
	}
	rc = host_make_psk_room(s, nvmf_hosts_find(&s->hosts, hostnqn), &keys, why);
	if (rc != 0) {
		host_put_keys(&keys);
		nvmf_hosts_remove(&s->hosts, hostnqn);
		return rc;
	}
	host_set_keys(nvmf_hosts_find(&s->hosts, hostnqn), &keys);
	USDT(nvmf_subsystem_add_host, s->nqn, hostnqn);
	nvmf_tgt_discovery_changed(s->tgt);
	return 0;
}

int nvmf_subsystem_add_host(struct nvmf_subsystem *s, const char *hostnqn, const char *key_name,
			    const char *ctrlr_key_name, char why[NVMF_ERROR_MAX])
{
	return nvmf_subsystem_add_host_psk(s, hostnqn, key_name, ctrlr_key_name, NULL, why);
}

int nvmf_subsystem_set_keys(struct nvmf_subsystem *s, const char *hostnqn, const char *key_name,
			    const char *ctrlr_key_name, char why[NVMF_ERROR_MAX])
{
	return nvmf_subsystem_set_keys_psk(s, hostnqn, key_name, ctrlr_key_name, NULL, why);
}

int nvmf_subsystem_set_keys_psk(struct nvmf_subsystem *s, const char *hostnqn, const char *key_name,
				const char *ctrlr_key_name, const char *psk_name, char why[NVMF_ERROR_MAX])
{
	struct nvmf_host *host = nvmf_hosts_find(&s->hosts, hostnqn);
	struct keys keys;

	if (nvmf_subsystem_check_open(s, why) != 0) {
		return -EBUSY;
	}
	if (host == NULL) {
		snprintf(why, NVMF_ERROR_MAX, "parameter \"host\" is \"%.80s\": it is not among the subsystem's hosts",
			 hostnqn);
		return -ENOENT;
	}
	int rc = host_get_keys(key_name, ctrlr_key_name, psk_name, &keys, why);
	if (rc != 0) {
		return rc;
	}
	rc = host_make_psk_room(s, host, &keys, why);
	if (rc == 0) {
		host_set_keys(host, &keys);
	} else {
		host_put_keys(&keys);
	}
	return rc;
}

int nvmf_subsystem_set_psk_compat(struct nvmf_subsystem *s, const char *hostnqn, bool compat)
{
	struct nvmf_host *host = nvmf_hosts_find(&s->hosts, hostnqn);
	char why[NVMF_ERROR_MAX];

	if (host == NULL || nvmf_subsystem_check_open(s, why) != 0) {
		return host == NULL ? -ENOENT : -EBUSY;
	}
	host->psk_compat = compat;
	if (host->psk_key != NULL) {
		host_publish_psk(host);
	}
	return 0;
}

int nvmf_subsystem_keep_psk_name(struct nvmf_subsystem *s, const char *hostnqn, const char *name)
{
	struct nvmf_host *host = nvmf_hosts_find(&s->hosts, hostnqn);
	char *copy = strdup(name);

	if (host == NULL || copy == NULL) {
		free(copy);
		return host == NULL ? -ENOENT : -ENOMEM;
	}
	free(host->psk_name);
	host->psk_name = copy;
	return 0;
}

bool nvmf_subsystem_psk_compat(const struct nvmf_subsystem *s, const char *hostnqn)
{
	return nvmf_hosts_find(&s->hosts, hostnqn)->psk_compat;
}

const char *nvmf_subsystem_host_key(const struct nvmf_subsystem *s, const char *hostnqn, bool of_ctrlr)
{
	const struct nvmf_host *host = nvmf_hosts_find(&s->hosts, hostnqn);
	const struct keyring_key *key = of_ctrlr ? host->ctrlr_key : host->key;

	return key != NULL ? keyring_key_name(key) : NULL;
}

const char *nvmf_subsystem_host_psk(const struct nvmf_subsystem *s, const char *hostnqn)
{
	const struct nvmf_host *host = nvmf_hosts_find(&s->hosts, hostnqn);

	return host->psk_key != NULL ? keyring_key_name(host->psk_key) : host->psk_name;
}

bool nvmf_subsystem_host_psk_counts(const struct nvmf_subsystem *s, const char *hostnqn)
{
	return nvmf_hosts_find(&s->hosts, hostnqn)->psk_key != NULL;
}

static bool ctrlr_host_matches(const struct nvmf_ctrlr *ctrlr, const struct nvmf_ctrlr_waiter *w)
{
	return strcmp(ctrlr->hostnqn, w->hostnqn) == 0 && ctrlr_host_is_not_allowed(ctrlr, w);
}

void nvmf_subsystem_remove_host(struct nvmf_subsystem *s, const char *hostnqn, nvmf_done_fn done, void *arg)
{
	struct nvmf_ctrlr_waiter *w = calloc(1, sizeof(*w));
	int rc = w == NULL ? -ENOMEM : nvmf_subsystem_refuse_change(s, "the removal of a host");

	if (rc == 0) {
		snprintf(w->hostnqn, sizeof(w->hostnqn), "%s", hostnqn);
		rc = nvmf_hosts_remove(&s->hosts, hostnqn);
	}
	if (rc != 0) {
		free(w);
		done(arg, rc);
		return;
	}
	USDT(nvmf_subsystem_remove_host, s->nqn, w->hostnqn);
	nvmf_tgt_discovery_changed(s->tgt);
	w->match = ctrlr_host_matches;
	w->done = done;
	w->arg = arg;
	nvmf_subsystem_end_ctrlrs(s, w, "its host was removed");
}

const char *nvmf_subsystem_next_host(const struct nvmf_subsystem *s, const char *after)
{
	return nvmf_hosts_next(&s->hosts, after);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Secrets for DH-HMAC-CHAP and keys for TLS, from files. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "keyring/keyring.h"
#include "tools/perf/perf.h"

static struct keyring_key *perf_key_read(const char *option, const char *file, enum keyring_kind kind)
{
	const char *why;
	char error[KEYRING_ERROR_MAX];
	char *path = realpath(file, NULL); /* the key ring takes absolute paths only */

	if (path == NULL) {
		fprintf(stderr, "varve-perf: %s '%s': %s\n", option, file, strerror(errno));
		return NULL;
	}
	int rc = keyring_file_add(option, path, error);
	free(path);
	if (rc != 0) {
		fprintf(stderr, "varve-perf: %s: %s\n", option, error);
		return NULL;
	}
	struct keyring_key *key = keyring_get_kind(option, kind, &why);
	if (key == NULL) {
		fprintf(stderr, "varve-perf: %s '%s': %s\n", option, file, why);
	}
	keyring_file_remove(option); /* the references that are held keep it alive */
	return key;
}

bool perf_keys_get(struct nvme_ctrlr_opts *c, const struct perf_options *o)
{
	if (o->dhchap_key != NULL) {
		c->dhchap_key = perf_key_read("--dhchap-key", o->dhchap_key, KEYRING_DHCHAP);
	}
	if (o->dhchap_ctrlr_key != NULL) {
		c->dhchap_ctrlr_key = perf_key_read("--dhchap-ctrlr-key", o->dhchap_ctrlr_key, KEYRING_DHCHAP);
	}
	if (o->psk != NULL) {
		c->tcp_psk = perf_key_read("--psk", o->psk, KEYRING_PSK);
	}
	c->tcp_concat = o->concat;
	return (o->psk == NULL || c->tcp_psk != NULL) && (o->dhchap_key == NULL || c->dhchap_key != NULL) &&
	       (o->dhchap_ctrlr_key == NULL || c->dhchap_ctrlr_key != NULL);
}

void perf_keys_put(const struct nvme_ctrlr_opts *c)
{
	keyring_put(c->dhchap_key);
	keyring_put(c->dhchap_ctrlr_key);
	keyring_put(c->tcp_psk);
}

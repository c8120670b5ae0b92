/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/gateway/tls.h"

#include <errno.h>
#include <gnutls/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <time.h>

#include "tools/gateway/conns.h"

#define CHAIN_MAX 16

struct tls_certificate {
	SLIST_ENTRY(tls_certificate) link;
	unsigned generation;
	gnutls_pcert_st chain[CHAIN_MAX];
	unsigned n;
	gnutls_privkey_t key;
};

/* The one in use comes first. Handshakes read its address without a lock: it is published by one store, and freed when
 * each connection that began before the next one was published has ended. */
static SLIST_HEAD(, tls_certificate) tls_certificates = SLIST_HEAD_INITIALIZER(tls_certificates);
static struct tls_certificate *tls_current;

static int tls_fail(char why[GATEWAY_WHY_MAX], const char *file, const char *what)
{
	snprintf(why, GATEWAY_WHY_MAX, "%s: %s", file, what);
	return -EINVAL;
}

static void tls_certificate_free(struct tls_certificate *c)
{
	for (unsigned i = 0; i < c->n; i++) {
		gnutls_pcert_deinit(&c->chain[i]);
	}
	if (c->key != NULL) {
		gnutls_privkey_deinit(c->key);
	}
	free(c);
}

/* Whether the two belong together. */
static int tls_check_pair(const char *cert_file, const char *key_file, char why[GATEWAY_WHY_MAX])
{
	gnutls_certificate_credentials_t both;
	int rc = gnutls_certificate_allocate_credentials(&both);

	if (rc < 0) {
		return tls_fail(why, cert_file, gnutls_strerror(rc));
	}
	rc = gnutls_certificate_set_x509_key_file(both, cert_file, key_file, GNUTLS_X509_FMT_PEM);
	gnutls_certificate_free_credentials(both);
	if (rc < 0) {
		snprintf(why, GATEWAY_WHY_MAX, "%s and %s: %s", cert_file, key_file, gnutls_strerror(rc));
		return -EINVAL;
	}
	return 0;
}

static int tls_check_time(gnutls_x509_crt_t cert, const char *cert_file, char why[GATEWAY_WHY_MAX])
{
	time_t now = time(NULL);

	if (gnutls_x509_crt_get_expiration_time(cert) < now) {
		return tls_fail(why, cert_file, "the certificate has expired");
	}
	if (gnutls_x509_crt_get_activation_time(cert) > now) {
		return tls_fail(why, cert_file, "the certificate is not yet valid");
	}
	return 0;
}

static int tls_load_chain(struct tls_certificate *c, const char *cert_file, const gnutls_datum_t *pem,
			  char why[GATEWAY_WHY_MAX])
{
	gnutls_x509_crt_t list[CHAIN_MAX];
	unsigned n = CHAIN_MAX;
	int rc = gnutls_x509_crt_list_import(list, &n, pem, GNUTLS_X509_FMT_PEM,
					     GNUTLS_X509_CRT_LIST_IMPORT_FAIL_IF_EXCEED);

	if (rc < 0) {
		return tls_fail(why, cert_file, gnutls_strerror(rc));
	}
	int result = tls_check_time(list[0], cert_file, why);
	for (unsigned i = 0; i < n; i++) {
		if (result == 0 && (rc = gnutls_pcert_import_x509(&c->chain[i], list[i], 0)) < 0) {
			result = tls_fail(why, cert_file, gnutls_strerror(rc));
		}
		c->n += result == 0;
		gnutls_x509_crt_deinit(list[i]);
	}
	return result;
}

static int tls_load_key(struct tls_certificate *c, const char *key_file, const gnutls_datum_t *pem,
			char why[GATEWAY_WHY_MAX])
{
	struct stat st;

	if (stat(key_file, &st) != 0 || (st.st_mode & S_IRWXO) != 0) {
		return tls_fail(why, key_file, "the key must not be readable for all users (chmod o= mends it)");
	}
	int rc = gnutls_privkey_init(&c->key);
	if (rc >= 0) {
		rc = gnutls_privkey_import_x509_raw(c->key, pem, GNUTLS_X509_FMT_PEM, NULL, 0);
	}
	return rc < 0 ? tls_fail(why, key_file, gnutls_strerror(rc)) : 0;
}

/* Loads a file, and calls load with it. */
static int tls_load_file(struct tls_certificate *c, const char *file, char why[GATEWAY_WHY_MAX],
			 int (*load)(struct tls_certificate *, const char *, const gnutls_datum_t *, char *))
{
	gnutls_datum_t pem;
	int rc = gnutls_load_file(file, &pem);

	if (rc < 0) {
		return tls_fail(why, file, gnutls_strerror(rc));
	}
	rc = load(c, file, &pem, why);
	gnutls_memset(pem.data, 0, pem.size);
	gnutls_free(pem.data);
	return rc;
}

int gateway_tls_load(const char *cert_file, const char *key_file, char why[GATEWAY_WHY_MAX])
{
	struct tls_certificate *c = calloc(1, sizeof(*c));

	if (c == NULL) {
		return tls_fail(why, cert_file, "no memory");
	}
	int rc = tls_load_file(c, cert_file, why, tls_load_chain);
	rc = rc != 0 ? rc : tls_load_file(c, key_file, why, tls_load_key);
	rc = rc != 0 ? rc : tls_check_pair(cert_file, key_file, why);
	if (rc != 0) {
		tls_certificate_free(c);
		return rc;
	}
	c->generation = gateway_tls_generation() + 1;
	SLIST_INSERT_HEAD(&tls_certificates, c, link);
	__atomic_store_n(&tls_current, c, __ATOMIC_RELEASE); /* pairs with the loads below */
	return 0;
}

unsigned gateway_tls_generation(void)
{
	const struct tls_certificate *c = __atomic_load_n(&tls_current, __ATOMIC_ACQUIRE);

	return c != NULL ? c->generation : 0;
}

void gateway_tls_collect(void)
{
	struct tls_certificate *current = SLIST_FIRST(&tls_certificates), *old;

	if (current == NULL || gateway_conns_oldest_certificate() < current->generation) {
		return;
	}
	while ((old = SLIST_NEXT(current, link)) != NULL) {
		SLIST_REMOVE(&tls_certificates, old, tls_certificate, link);
		tls_certificate_free(old);
	}
}

int gateway_tls_retrieve(gnutls_session_t session, const gnutls_datum_t *req_ca_dn, int n_req,
			 const gnutls_pk_algorithm_t *algorithms, int n_algorithms, gnutls_pcert_st **pcert,
			 unsigned *pcert_length, gnutls_privkey_t *key)
{
	struct tls_certificate *c = __atomic_load_n(&tls_current, __ATOMIC_ACQUIRE);

	*pcert = c->chain;
	*pcert_length = c->n;
	*key = c->key;
	return 0;
}

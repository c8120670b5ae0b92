/* SPDX-License-Identifier: BSD-3-Clause */
/* The gateway's certificate, which can be replaced while connections exist. */
#ifndef TOOLS_GATEWAY_TLS_H
#define TOOLS_GATEWAY_TLS_H

#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>

#include "tools/gateway/users.h"

/* TLS 1.2 is the oldest that is spoken. */
#define GATEWAY_TLS_PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

/* Reads a chain of certificates and its key, in PEM, and uses them for handshakes that begin later. 0; or -EINVAL with
 * the reason in why, and what was in use stays: a file that cannot be read, a key that is not the certificate's or that
 * all users can read, a certificate that has expired or is not yet valid. One thread at a time. */
int gateway_tls_load(const char *cert_file, const char *key_file, char why[GATEWAY_WHY_MAX]);
/* A number that grows with each gateway_tls_load(). Any thread. */
unsigned gateway_tls_generation(void);
/* Frees what was replaced and what no connection can use any more. The thread of gateway_tls_load(). */
void gateway_tls_collect(void);
/* For MHD_OPTION_HTTPS_CERT_CALLBACK. Any thread. */
int gateway_tls_retrieve(gnutls_session_t session, const gnutls_datum_t *req_ca_dn, int n_req,
			 const gnutls_pk_algorithm_t *algorithms, int n_algorithms, gnutls_pcert_st **pcert,
			 unsigned *pcert_length, gnutls_privkey_t *key);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Each test program is built twice: records are calculated by what is fastest on this CPU, and by OpenSSL. */
#ifndef UNITTEST_TLS_RECORDS_H
#define UNITTEST_TLS_RECORDS_H

#include "tls/gcm.h"

#ifdef RECORDS_BY_OPENSSL
#define RECORDS_SUITE(name_) name_ "-openssl"
#else
#define RECORDS_SUITE(name_) name_
#endif

static inline int records_setup(void)
{
#ifdef RECORDS_BY_OPENSSL
	tls_gcm_use(&tls_gcm_openssl);
#endif
	return 0;
}

#endif

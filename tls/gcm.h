/* SPDX-License-Identifier: BSD-3-Clause */
/* AES-GCM (NIST SP 800-38D), by OpenSSL or by libIPSec_MB, which on some CPUs is two and a half times as fast as
 * OpenSSL before its release 3.1.
 *
 * A message is calculated in pieces: begin_message(), update() for each piece, then seal_end() or open_end(). A state
 * is used by one thread at a time; nothing is allocated but by begin() (and, by OpenSSL, set_key()). */
#ifndef TLS_GCM_H
#define TLS_GCM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TLS_GCM_NONCE 12 /* bytes */
#define TLS_GCM_TAG   16

/* One that can calculate AES-GCM. The functions that say bool: false, it has failed, and the message is worth nothing.
 */
struct tls_gcm_engine {
	const char *name;
	/* What a key needs, of 32 bytes (is_256) or 16, which only encrypts (seals) or only decrypts. NULL: there is no
	 * memory. The caller owns it. */
	void *(*begin)(bool is_256, bool seals);
	/* The key of the messages that follow. */
	bool (*set_key)(void *gcm, const uint8_t *key);
	/* Begins a message. head: what is not encrypted but counts for the tag. */
	bool (*begin_message)(void *gcm, const uint8_t nonce[TLS_GCM_NONCE], const uint8_t *head, size_t head_bytes);
	/* Encrypts or decrypts a piece, of at least one byte. to and from do not overlap. */
	bool (*update)(void *gcm, uint8_t *to, const uint8_t *from, size_t bytes);
	/* The end of a message: gives its tag. */
	bool (*seal_end)(void *gcm, uint8_t tag[TLS_GCM_TAG]);
	/* The end of a message: whether it has this tag. How long that takes does not depend on where they differ. */
	bool (*open_end)(void *gcm, const uint8_t tag[TLS_GCM_TAG]);
	/* Overwrites the key, and frees. NULL is ignored. */
	void (*end)(void *gcm);
};

extern const struct tls_gcm_engine tls_gcm_openssl;
/* libIPSec_MB, loaded at the first call. NULL: it is not there, or not for this CPU, or OpenSSL is no slower. Any
 * thread, but not a reactor: the first call takes milliseconds. */
const struct tls_gcm_engine *tls_gcm_ipsec_mb(void);

/* The one to take: the fastest, or what tls_gcm_use() has said. As tls_gcm_ipsec_mb(). */
const struct tls_gcm_engine *tls_gcm_engine(void);
/* For tests, before the first key: that is taken from now on; NULL: the fastest. */
void tls_gcm_use(const struct tls_gcm_engine *engine);

/* What decides whether libIPSec_MB is faster. */
struct tls_gcm_cpu {
	uint32_t leaf1_ecx, leaf7_ebx, leaf7_ecx; /* of CPUID; zero: it has no such leaf */
	uint64_t xcr0;                            /* registers that the system saves */
	unsigned long openssl;                    /* OpenSSL_version_num() */
};
/* Whether it is: the CPU has all that the library's fastest code uses (AVX-512, VAES, VPCLMULQDQ and more), the system
 * saves these registers, and OpenSSL has no such code. Elsewhere the two are about equal. Pure. */
bool tls_gcm_ipsec_mb_is_faster(const struct tls_gcm_cpu *cpu);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
#include "tls/gcm.h"

#include <openssl/err.h>
#include <openssl/evp.h>

#include "util/openssl_memory.h"

/* ---- OpenSSL: its context is the state ---- */

/* What it says of its errors is not read: they must not be taken for those of a handshake. */
static bool openssl_result(bool good)
{
	if (!good) {
		ERR_clear_error();
	}
	return good;
}

static void openssl_end(void *gcm)
{
	EVP_CIPHER_CTX_free(gcm); /* overwrites the key */
}

/* A context whose key schedule is in memory for keys; in the heap if somebody else allocates for OpenSSL. */
static EVP_CIPHER_CTX *openssl_context(const EVP_CIPHER *cipher, bool seals)
{
	bool is_secret = openssl_memory_secret_begin() == 0;
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();

	if (ctx != NULL && EVP_CipherInit_ex(ctx, cipher, NULL, NULL, NULL, seals) != 1) {
		openssl_end(ctx);
		ctx = NULL;
	}
	if (is_secret) {
		openssl_memory_secret_end();
	}
	return ctx;
}

static void *openssl_begin(bool is_256, bool seals)
{
	/* Fetched outside: it stays, and OpenSSL's tables of it are no secret. */
	EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, is_256 ? "AES-256-GCM" : "AES-128-GCM", NULL);
	EVP_CIPHER_CTX *ctx = cipher != NULL ? openssl_context(cipher, seals) : NULL;

	EVP_CIPHER_free(cipher);
	(void)openssl_result(ctx != NULL);
	return ctx;
}

static bool openssl_set_key(void *gcm, const uint8_t *key)
{
	return openssl_result(EVP_CipherInit_ex(gcm, NULL, NULL, key, NULL, -1) == 1);
}

static bool openssl_begin_message(void *gcm, const uint8_t nonce[TLS_GCM_NONCE], const uint8_t *head, size_t head_bytes)
{
	int n;

	return openssl_result(EVP_CipherInit_ex(gcm, NULL, NULL, NULL, nonce, -1) == 1 &&
			      EVP_CipherUpdate(gcm, NULL, &n, head, (int)head_bytes) == 1);
}

static bool openssl_update(void *gcm, uint8_t *to, const uint8_t *from, size_t bytes)
{
	int n;

	return openssl_result(EVP_CipherUpdate(gcm, to, &n, from, (int)bytes) == 1);
}

static bool openssl_seal_end(void *gcm, uint8_t tag[TLS_GCM_TAG])
{
	int n;

	return openssl_result(EVP_CipherFinal_ex(gcm, tag, &n) == 1 &&
			      EVP_CIPHER_CTX_ctrl(gcm, EVP_CTRL_GCM_GET_TAG, TLS_GCM_TAG, tag) == 1);
}

static bool openssl_open_end(void *gcm, const uint8_t tag[TLS_GCM_TAG])
{
	uint8_t nothing[TLS_GCM_TAG];
	int n;

	return openssl_result(EVP_CIPHER_CTX_ctrl(gcm, EVP_CTRL_GCM_SET_TAG, TLS_GCM_TAG, (void *)(uintptr_t)tag) ==
				      1 &&
			      EVP_CipherFinal_ex(gcm, nothing, &n) == 1);
}

const struct tls_gcm_engine tls_gcm_openssl = {
	.name = "OpenSSL",
	.begin = openssl_begin,
	.set_key = openssl_set_key,
	.begin_message = openssl_begin_message,
	.update = openssl_update,
	.seal_end = openssl_seal_end,
	.open_end = openssl_open_end,
	.end = openssl_end,
};

/* ---- The choice ---- */

static const struct tls_gcm_engine *chosen;

void tls_gcm_use(const struct tls_gcm_engine *engine)
{
	chosen = engine;
}

const struct tls_gcm_engine *tls_gcm_engine(void)
{
	const struct tls_gcm_engine *fast = chosen != NULL ? chosen : tls_gcm_ipsec_mb();

	return fast != NULL ? fast : &tls_gcm_openssl;
}

bool tls_gcm_ipsec_mb_is_faster(const struct tls_gcm_cpu *cpu)
{
	const uint32_t leaf1_ecx = 1u << 1 | 1u << 20 | 1u << 25 | 1u << 27 | 1u << 28; /* PCLMULQDQ, SSE4.2, AES,
											   OSXSAVE, AVX */
	const uint32_t leaf7_ebx = 1u << 5 | 1u << 8 | 1u << 16 | 1u << 17 | 1u << 21 | 1u << 28 | 1u << 29 | 1u << 30 |
				   1u << 31; /* AVX2, BMI2, AVX-512 F, DQ, IFMA, CD, SHA, AVX-512 BW, VL */
	const uint32_t leaf7_ecx = 1u << 8 | 1u << 9 | 1u << 10; /* GFNI, VAES, VPCLMULQDQ */
	const uint64_t xcr0 = 0xe6;                              /* XMM, YMM, mask registers, all of ZMM */

	return (cpu->leaf1_ecx & leaf1_ecx) == leaf1_ecx && (cpu->leaf7_ebx & leaf7_ebx) == leaf7_ebx &&
	       (cpu->leaf7_ecx & leaf7_ecx) == leaf7_ecx && (cpu->xcr0 & xcr0) == xcr0 && cpu->openssl < 0x30100000ul;
}

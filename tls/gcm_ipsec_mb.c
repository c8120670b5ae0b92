/* SPDX-License-Identifier: BSD-3-Clause */
/* libIPSec_MB is loaded when it is needed. One manager serves all threads: after its initialization it is only read,
 * for the addresses of the functions for this CPU. These keep what they know in the key and the context that they are
 * given. (They also store that there was no error, in a variable of the library that nobody reads.) */
#include "tls/gcm.h"

#ifdef TLS_HAS_IPSEC_MB

#include <cpuid.h>
#include <dlfcn.h>
#include <intel-ipsec-mb.h>
#include <pthread.h>
#include <openssl/crypto.h>

#include "util/log.h"
#include "util/secret.h"

LOG_FLAG(tls)

/* In memory of secret_alloc(), which is aligned as a key has to be. */
struct state {
	struct gcm_key_data key;
	struct gcm_context_data context; /* of a message; has some of the key stream */
	bool is_256, seals;
};
_Static_assert(sizeof(struct state) <= SECRET_MAX, "a state has to fit");
_Static_assert(_Alignof(struct state) <= 64, "secret_alloc() aligns to 64 bytes");

static IMB_MGR *mgr; /* NULL: it is not used */

/* ---- The library ---- */

static struct tls_gcm_cpu read_cpu(void)
{
	struct tls_gcm_cpu cpu = {.openssl = OpenSSL_version_num()};
	uint32_t a, b, c, d;

	if (__get_cpuid_count(1, 0, &a, &b, &c, &d)) {
		cpu.leaf1_ecx = c;
	}
	if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
		cpu.leaf7_ebx = b;
		cpu.leaf7_ecx = c;
	}
	if ((cpu.leaf1_ecx & bit_OSXSAVE) != 0) {
		__asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
		cpu.xcr0 = (uint64_t)d << 32 | a;
	}
	return cpu;
}

/* Its own check of the CPU, and its tests of itself, count too. */
static bool is_usable(const IMB_MGR *m)
{
	bool tested = (m->features & IMB_FEATURE_SELF_TEST) == 0 || (m->features & IMB_FEATURE_SELF_TEST_PASS) != 0;

	return (m->features & IMB_CPUFLAGS_AVX512_T2) == IMB_CPUFLAGS_AVX512_T2 && tested;
}

static void load_library(void)
{
	struct tls_gcm_cpu cpu = read_cpu();
	IMB_MGR *(*alloc)(uint64_t) = NULL;
	void (*init)(IMB_MGR *) = NULL;
	void (*release)(IMB_MGR *) = NULL;

	if (!tls_gcm_ipsec_mb_is_faster(&cpu)) {
		log_info(tls, "records of TLS: libIPSec_MB is not faster than OpenSSL on this CPU");
		return;
	}
	void *handle = dlopen("libIPSec_MB.so.1", RTLD_NOW | RTLD_LOCAL);
	if (handle == NULL || (*(void **)&alloc = dlsym(handle, "alloc_mb_mgr")) == NULL ||
	    (*(void **)&init = dlsym(handle, "init_mb_mgr_avx512")) == NULL ||
	    (*(void **)&release = dlsym(handle, "free_mb_mgr")) == NULL) {
		const char *why = dlerror();
		log_info(tls,
			 "records of TLS: by OpenSSL; libIPSec_MB (Debian's package is libipsec-mb1) is faster: %s",
			 why != NULL ? why : "unknown");
		return;
	}
	IMB_MGR *m = alloc(0);
	if (m != NULL) {
		init(m);
		if (!is_usable(m)) {
			release(m);
			m = NULL;
		}
	}
	mgr = m;
	log_info(tls, "records of TLS: by %s", m != NULL ? "libIPSec_MB" : "OpenSSL; libIPSec_MB does not work");
}

/* ---- AES-GCM ---- */

static void *mb_begin(bool is_256, bool seals)
{
	struct state *s = secret_alloc(sizeof(*s));

	if (s != NULL) {
		s->is_256 = is_256;
		s->seals = seals;
	}
	return s;
}

static bool mb_set_key(void *gcm, const uint8_t *key)
{
	struct state *s = gcm;

	(s->is_256 ? mgr->gcm256_pre : mgr->gcm128_pre)(key, &s->key);
	return true;
}

static bool mb_begin_message(void *gcm, const uint8_t nonce[TLS_GCM_NONCE], const uint8_t *head, size_t head_bytes)
{
	struct state *s = gcm;

	(s->is_256 ? mgr->gcm256_init : mgr->gcm128_init)(&s->key, &s->context, nonce, head, head_bytes);
	return true;
}

static bool mb_update(void *gcm, uint8_t *to, const uint8_t *from, size_t bytes)
{
	struct state *s = gcm;
	aes_gcm_enc_dec_update_t update = s->seals    ? s->is_256 ? mgr->gcm256_enc_update : mgr->gcm128_enc_update
					  : s->is_256 ? mgr->gcm256_dec_update
						      : mgr->gcm128_dec_update;

	update(&s->key, &s->context, to, from, bytes);
	return true;
}

static bool mb_seal_end(void *gcm, uint8_t tag[TLS_GCM_TAG])
{
	struct state *s = gcm;

	(s->is_256 ? mgr->gcm256_enc_finalize : mgr->gcm128_enc_finalize)(&s->key, &s->context, tag, TLS_GCM_TAG);
	return true;
}

static bool mb_open_end(void *gcm, const uint8_t tag[TLS_GCM_TAG])
{
	struct state *s = gcm;
	uint8_t right[TLS_GCM_TAG];

	(s->is_256 ? mgr->gcm256_dec_finalize : mgr->gcm128_dec_finalize)(&s->key, &s->context, right, TLS_GCM_TAG);
	bool same = CRYPTO_memcmp(right, tag, TLS_GCM_TAG) == 0;
	OPENSSL_cleanse(right, sizeof(right)); /* of a forged message it is what the forger lacks */
	return same;
}

static const struct tls_gcm_engine engine = {
	.name = "libIPSec_MB",
	.begin = mb_begin,
	.set_key = mb_set_key,
	.begin_message = mb_begin_message,
	.update = mb_update,
	.seal_end = mb_seal_end,
	.open_end = mb_open_end,
	.end = secret_free,
};

const struct tls_gcm_engine *tls_gcm_ipsec_mb(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load_library);
	return mgr != NULL ? &engine : NULL;
}

#else

const struct tls_gcm_engine *tls_gcm_ipsec_mb(void)
{
	return NULL;
}

#endif

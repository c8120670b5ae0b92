/* SPDX-License-Identifier: BSD-3-Clause */
#include "tls/kernel.h"

#include <errno.h>
#include <linux/tls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>

#include "tls/wire.h"
#include "util/log.h"
#include "util/secret.h"

#ifndef TCP_ULP
#define TCP_ULP 31
#endif
#ifndef SOL_TLS
#define SOL_TLS 282
#endif

#ifndef TLS_RX_EXPECT_NO_PAD
#define TLS_RX_EXPECT_NO_PAD 4
#endif

#define OUTCOMES      256 /* of a beginning: 0, or an errno */
#define RANDOM_DIGITS 64  /* of the ClientHello, in a line of the key log */

/* ---- Keys ---- */

/* A line: label, random of the ClientHello, secret, each but the first in hexadecimal digits, with one space between.
 */
static void take_secret(const char *label, const char *line, uint8_t secret[TLS_PSK_MAX], uint8_t *len)
{
	size_t label_len = strlen(label), digits;

	if (strncmp(line, label, label_len) != 0 || strlen(line) <= label_len + RANDOM_DIGITS + 1) {
		return;
	}
	line += label_len + RANDOM_DIGITS + 1;
	digits = strlen(line);
	if (digits <= 2 * (size_t)TLS_PSK_MAX && digits % 2 == 0 && secret_from_hex(line, secret, digits / 2)) {
		*len = (uint8_t)(digits / 2);
	}
}

void tls_secrets_take(struct tls_secrets *secrets, const char *line)
{
	take_secret("CLIENT_TRAFFIC_SECRET_0 ", line, secrets->client, &secrets->client_len);
	take_secret("SERVER_TRAFFIC_SECRET_0 ", line, secrets->server, &secrets->server_len);
}

/* Keys of one direction, as the kernel takes them. */
union crypto {
	struct tls_crypto_info info;
	struct tls12_crypto_info_aes_gcm_128 aes_128;
	struct tls12_crypto_info_aes_gcm_256 aes_256;
};

#define IV_BYTES (TLS_CIPHER_AES_GCM_128_SALT_SIZE + TLS_CIPHER_AES_GCM_128_IV_SIZE)
_Static_assert(TLS_CIPHER_AES_GCM_256_SALT_SIZE == TLS_CIPHER_AES_GCM_128_SALT_SIZE &&
		       TLS_CIPHER_AES_GCM_256_IV_SIZE == TLS_CIPHER_AES_GCM_128_IV_SIZE,
	       "AES-128-GCM and AES-256-GCM have the same IV");

/* Derives key and IV from a secret; records are numbered from 0. */
static int make_crypto(unsigned hash, const uint8_t *secret, union crypto *crypto, socklen_t *bytes)
{
	bool is_256 = hash == DHCHAP_HASH_SHA384;
	uint8_t iv[IV_BYTES];

	memset(crypto, 0, sizeof(*crypto));
	crypto->info.version = TLS_1_3_VERSION;
	crypto->info.cipher_type = is_256 ? TLS_CIPHER_AES_GCM_256 : TLS_CIPHER_AES_GCM_128;
	*bytes = is_256 ? sizeof(crypto->aes_256) : sizeof(crypto->aes_128);
	int rc = is_256 ? tls_expand_label(hash, secret, "tls13 key", crypto->aes_256.key, sizeof(crypto->aes_256.key))
			: tls_expand_label(hash, secret, "tls13 key", crypto->aes_128.key, sizeof(crypto->aes_128.key));
	rc = rc == 0 ? tls_expand_label(hash, secret, "tls13 iv", iv, sizeof(iv)) : rc;
	if (rc == 0) {
		size_t salt = TLS_CIPHER_AES_GCM_128_SALT_SIZE;

		memcpy(is_256 ? crypto->aes_256.salt : crypto->aes_128.salt, iv, salt);
		memcpy(is_256 ? crypto->aes_256.iv : crypto->aes_128.iv, iv + salt, sizeof(iv) - salt);
	}
	dhchap_cleanse(iv, sizeof(iv));
	return rc;
}

static int give_keys(int fd, int direction, unsigned hash, const uint8_t *secret)
{
	union crypto crypto;
	socklen_t bytes;
	int rc = make_crypto(hash, secret, &crypto, &bytes);

	if (rc == 0 && setsockopt(fd, SOL_TLS, direction, &crypto, bytes) != 0) {
		rc = -errno;
	}
	dhchap_cleanse(&crypto, sizeof(crypto));
	return rc;
}

/* ---- The beginning ---- */

/* Payload is decrypted straight to where it belongs, by kernels from 6.0 on; a record with padding takes longer then.
 */
static void expect_no_padding(int fd)
{
	static const int on = 1;

	(void)setsockopt(fd, SOL_TLS, TLS_RX_EXPECT_NO_PAD, &on, sizeof(on));
}

/* Each outcome once. A socket whose other side has gone already says nothing of what the kernel can do. */
static void tell_beginning(int error)
{
	static _Atomic bool told[OUTCOMES];

	if (error == -ENOTCONN ||
	    atomic_exchange_explicit(&told[-error < OUTCOMES ? -error : OUTCOMES - 1], true, memory_order_relaxed)) {
		return;
	}
	if (error == 0) {
		log_notice("TLS: the kernel encrypts and decrypts records (enable_ktls)");
	} else {
		log_warning("TLS: the kernel does not encrypt and decrypt records, as enable_ktls asks: %s%s; OpenSSL "
			    "does it "
			    "where the kernel does not",
			    strerror(-error), error == -ENOENT ? " (its module tls is not loaded: modprobe tls)" : "");
	}
}

int tls_kernel_begin(int fd, unsigned hash, const struct tls_secrets *secrets, bool is_server, bool *receives,
		     bool *sends)
{
	size_t len = dhchap_hash_bytes(hash);
	int rc = 0;

	*receives = *sends = false;
	if (secrets->client_len != len || secrets->server_len != len) {
		rc = -EINVAL;
	} else if (setsockopt(fd, IPPROTO_TCP, TCP_ULP, "tls", sizeof("tls")) != 0) {
		rc = -errno;
	}
	rc = rc == 0 ? give_keys(fd, TLS_RX, hash, is_server ? secrets->client : secrets->server) : rc;
	*receives = rc == 0;
	if (*receives) {
		expect_no_padding(fd);
	}
	rc = rc == 0 ? give_keys(fd, TLS_TX, hash, is_server ? secrets->server : secrets->client) : rc;
	*sends = rc == 0;
	tell_beginning(rc);
	return rc;
}

/* ---- Records ---- */

ssize_t tls_kernel_receive(int fd, const struct iovec *iovs, unsigned n, uint8_t *type)
{
	char control[CMSG_SPACE(sizeof(*type))] __attribute__((aligned(8)));
	struct msghdr msg = {.msg_iov = (struct iovec *)(uintptr_t)iovs,
			     .msg_iovlen = n,
			     .msg_control = control,
			     .msg_controllen = sizeof(control)};
	ssize_t got = recvmsg(fd, &msg, MSG_DONTWAIT);
	const struct cmsghdr *c = got >= 0 ? CMSG_FIRSTHDR(&msg) : NULL;

	*type = TLS_RECORD_DATA;
	if (c != NULL && c->cmsg_level == SOL_TLS && c->cmsg_type == TLS_GET_RECORD_TYPE) {
		*type = *CMSG_DATA(c);
	}
	return got >= 0 ? got : -errno;
}

ssize_t tls_kernel_send(int fd, const struct iovec *iovs, unsigned n)
{
	struct msghdr msg = {.msg_iov = (struct iovec *)(uintptr_t)iovs, .msg_iovlen = n};
	ssize_t sent = sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);

	return sent >= 0 ? sent : -errno;
}

void tls_kernel_alert(int fd, uint8_t level, uint8_t description)
{
	uint8_t alert[] = {level, description};
	char control[CMSG_SPACE(sizeof(uint8_t))] __attribute__((aligned(8))) = {0};
	struct iovec iov = {alert, sizeof(alert)};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_TLS;
	c->cmsg_type = TLS_SET_RECORD_TYPE;
	c->cmsg_len = CMSG_LEN(sizeof(uint8_t));
	*CMSG_DATA(c) = TLS_RECORD_ALERT;
	(void)sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

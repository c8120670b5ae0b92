/* SPDX-License-Identifier: BSD-3-Clause */
#include "tls/session.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "tls/kernel.h"
#include "tls/record.h"
#include "tls/wire.h"
#include "util/log.h"
#include "util/openssl_memory.h"
#include "util/pages.h"
#include "util/secret.h"

/* Records that one call of send() or recv() moves at most: 128 KiB with the heads of its PDUs in one. With two records
 * to a call, sending takes a fifth longer. Memory that is not used is not touched. */
#define RECORDS_MAX 9
#define IN_BYTES    (RECORDS_MAX * TLS_RECORD_MAX)
#define OUT_BYTES   (RECORDS_MAX * TLS_RECORD_MAX)
#define OUT_RESERVE 1024 /* bytes for answers to KeyUpdate, alerts; beyond them the other side reads nothing */
#define OUT_TOTAL   (OUT_BYTES + OUT_RESERVE)
#define READS_MAX   256 /* records that one read takes at most */
#define OFFERS_MAX  4   /* identities of a ClientHello that are looked at: hosts have one or two */
#define WHY_MAX     320
#define NO_ALERT    0xff /* in place of an alert: none is sent */

#define FLOOD "TLS: the other side sends message after message (KeyUpdate) without payload, or with too little"

/* What has come and was not read yet. */
struct incoming {
	size_t begin, end;                     /* of `bytes` */
	size_t plain_begin, plain_end;         /* of `plain` */
	uint8_t bytes[IN_BYTES];               /* records */
	uint8_t plain[TLS_RECORD_CONTENT_MAX]; /* of a record that a read had no room for */
};

struct tls_session {
	SSL *ssl; /* NULL: the handshake is done */
	int fd;
	bool is_server;
	bool is_dry; /* the last read of the socket has emptied it, or found nothing that may be read yet */
	bool done;
	bool more;
	uint8_t rests; /* calls of tls_session_rest() since something was read or written */
	bool followed; /* the read under way has followed new keys */
	bool asks_kernel;
	bool kernel_receives;       /* records */
	bool kernel_sends;          /* them, too */
	struct tls_control control; /* of the records that are received */
	struct tls_secrets secrets; /* overwritten when the handshake is done */
	struct tls_keys rx, tx;     /* of what the kernel does not do */
	int ended;                  /* a negative errno: nothing more can be read or written */
	size_t budget;              /* bytes that the handshake may read */
	tls_find_fn find;
	void *find_arg;
	struct tls_credential credential; /* overwritten when the handshake is done */
	struct tls_identity identity;
	char why[WHY_MAX];
	size_t content_max;        /* bytes of payload in a record that is sent */
	size_t out_begin, out_end; /* what is to be sent of `out` */
	uint8_t *out;              /* OUT_TOTAL bytes; NULL: the kernel sends */
	struct incoming *in;       /* NULL: in the handshake, or the kernel receives */
};

static SSL_CTX *server_ctx, *client_ctx;
static BIO_METHOD *bio_method;

static void session_explain(struct tls_session *s, const char *text)
{
	if (s->why[0] == '\0') { /* the first reason counts */
		snprintf(s->why, sizeof(s->why), "%s", text);
	}
}

/* ---- The socket under OpenSSL ---- */

static int bio_write(BIO *bio, const char *bytes, int n)
{
	struct tls_session *s = BIO_get_data(bio);

	if ((size_t)n > OUT_TOTAL - s->out_end) {
		return -1; /* it floods us with requests, and does not read our answers */
	}
	memcpy(s->out + s->out_end, bytes, (size_t)n);
	s->out_end += (size_t)n;
	return n;
}

static int bio_read(BIO *bio, char *bytes, int n)
{
	struct tls_session *s = BIO_get_data(bio);
	size_t most = (size_t)n < s->budget ? (size_t)n : s->budget;

	BIO_clear_retry_flags(bio);
	if (s->ended != 0) {
		return -1;
	}
	ssize_t got = most > 0 ? recv(s->fd, bytes, most, MSG_DONTWAIT) : -1;
	if (got > 0) {
		s->budget -= (size_t)got;
		return (int)got;
	}
	if (most == 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))) {
		s->is_dry = true;
		BIO_set_retry_read(bio);
		return -1;
	}
	s->ended = got == 0 ? -ECONNRESET : -errno;
	return got == 0 ? 0 : -1;
}

static long bio_ctrl(BIO *bio, int cmd, long n, void *arg)
{
	return cmd == BIO_CTRL_FLUSH;
}

/* ---- Keys ---- */

/* OpenSSL tells secrets only so. They go nowhere but to the kernel and to tls/record.h. */
static void take_secrets(const SSL *ssl, const char *line)
{
	struct tls_session *s = SSL_get_app_data(ssl);

	if (s != NULL) {
		tls_secrets_take(&s->secrets, line);
	}
}

static const char *suite_of(unsigned hash)
{
	return hash == DHCHAP_HASH_SHA384 ? "TLS_AES_256_GCM_SHA384" : "TLS_AES_128_GCM_SHA256";
}

/* OpenSSL takes an external PSK as a session to be resumed. */
static SSL_SESSION *session_of_key(SSL *ssl, const struct tls_credential *c)
{
	const uint8_t suite[] = {0x13, c->hash == DHCHAP_HASH_SHA384 ? 0x02 : 0x01};
	const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, suite);
	SSL_SESSION *psk = SSL_SESSION_new();

	if (psk == NULL || cipher == NULL || !SSL_SESSION_set1_master_key(psk, c->key, c->len) ||
	    !SSL_SESSION_set_cipher(psk, cipher) || !SSL_SESSION_set_protocol_version(psk, TLS1_3_VERSION)) {
		SSL_SESSION_free(psk);
		return NULL;
	}
	return psk;
}

static int use_client_key(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_len, SSL_SESSION **psk)
{
	const struct tls_session *s = SSL_get_app_data(ssl);

	*psk = session_of_key(ssl, &s->credential);
	*id = (const unsigned char *)s->credential.identity;
	*id_len = strlen(s->credential.identity);
	return *psk != NULL;
}

static int find_server_key(SSL *ssl, const unsigned char *id, size_t id_len, SSL_SESSION **psk)
{
	const struct tls_session *s = SSL_get_app_data(ssl);

	*psk = NULL;
	if (s->credential.len == 0 || id_len != strlen(s->credential.identity) ||
	    memcmp(id, s->credential.identity, id_len) != 0) {
		return 1; /* not that one */
	}
	*psk = session_of_key(ssl, &s->credential);
	return *psk != NULL;
}

#define OTHER_KEY "TLS: its identity is of another key than the one of host %.100s for %.100s"
#define OTHER_DERIVATION                                                                                               \
	"TLS: host %.100s has the right psk for %.100s and derives from it in the other way: psk_compat says for a "   \
	"host whether that is libnvme's before its release 1.16"

/* Whether an identity that the host offers is one that it has a key for. */
static bool take_identity(struct tls_session *s, const char *text, size_t len)
{
	struct tls_psk psk = {0};
	char why[WHY_MAX];

	if (!tls_identity_parse(text, len, &s->identity)) {
		session_explain(s, "TLS: its identity is not one of NVMe/TCP (NVMe0R01, NVMe0R02, NVMe1R01, NVMe1R02, "
				   "NVMe1G01, NVMe1G02)");
		return false;
	}
	bool found = s->find(s->find_arg, &s->identity, &psk);
	bool good = found &&
		    tls_credential_make(&psk, s->identity.hostnqn, s->identity.subnqn, s->identity.version,
					&s->credential) == 0 &&
		    strlen(s->credential.identity) == len && memcmp(s->credential.identity, text, len) == 0;

	if (!good) {
		dhchap_cleanse(&s->credential, sizeof(s->credential));
		snprintf(why, sizeof(why),
			 !found && s->identity.generated ? "TLS: host %.100s has no such generated psk for %.100s"
			 : !found                        ? "TLS: host %.100s has no psk for %.100s"
			 : tls_identity_is_derived_otherwise(&s->identity, &psk, text, len) ? OTHER_DERIVATION
											    : OTHER_KEY,
			 s->identity.hostnqn, s->identity.subnqn);
		session_explain(s, why);
	}
	dhchap_cleanse(&psk, sizeof(psk));
	return good;
}

/* Before OpenSSL chooses a cipher suite, which must be one of the key's hash function. */
static int choose_identity(SSL *ssl, int *alert, void *arg)
{
	struct tls_session *s = SSL_get_app_data(ssl);
	const unsigned char *ext;
	size_t ext_len, at = 0, len;
	const char *text;

	dhchap_cleanse(&s->credential, sizeof(s->credential));
	if (SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_psk, &ext, &ext_len) != 1) {
		session_explain(s, "TLS: it offers no pre-shared key");
		*alert = SSL_AD_HANDSHAKE_FAILURE;
		return SSL_CLIENT_HELLO_ERROR;
	}
	for (unsigned i = 0; i < OFFERS_MAX && tls_offer_next(ext, ext_len, &at, &text, &len); i++) {
		if (take_identity(s, text, len)) {
			s->why[0] = '\0';
			return SSL_set_ciphersuites(ssl, suite_of(s->credential.hash)) ? SSL_CLIENT_HELLO_SUCCESS
										       : SSL_CLIENT_HELLO_ERROR;
		}
	}
	session_explain(s, "TLS: it offers no pre-shared key");
	*alert = TLS1_AD_UNKNOWN_PSK_IDENTITY;
	return SSL_CLIENT_HELLO_ERROR;
}

/* ---- Making and unmaking ---- */

/* Without ffdhe4096 and above: one such exchange takes as long as forty with X25519, or more. The second list is for an
 * OpenSSL that has but what FIPS allows. */
static bool set_groups(SSL_CTX *ctx)
{
	bool good = SSL_CTX_set1_groups_list(ctx, "X25519:P-256:X448:P-521:P-384:ffdhe2048:ffdhe3072") ||
		    SSL_CTX_set1_groups_list(ctx, "P-256:P-521:P-384");

	ERR_clear_error();
	return good;
}

static SSL_CTX *make_ctx(const SSL_METHOD *method)
{
	SSL_CTX *ctx = SSL_CTX_new(method);

	if (ctx == NULL || !set_groups(ctx) || !SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) ||
	    !SSL_CTX_set_ciphersuites(ctx, "TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256")) {
		SSL_CTX_free(ctx);
		return NULL;
	}
	SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
	SSL_CTX_set_num_tickets(ctx, 0);
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	SSL_CTX_clear_mode(ctx, SSL_MODE_AUTO_RETRY);
	SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_keylog_callback(ctx, take_secrets);
	return ctx;
}

static void init_openssl(void)
{
	if (!openssl_memory_is_wiped()) {
		log_warning(
			"TLS: other functions than varve's allocate for OpenSSL: it leaves the secrets of connections "
			"that have ended in freed memory");
	}
	bio_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "varve socket");
	if (bio_method == NULL || !BIO_meth_set_write(bio_method, bio_write) ||
	    !BIO_meth_set_read(bio_method, bio_read) || !BIO_meth_set_ctrl(bio_method, bio_ctrl)) {
		return;
	}
	server_ctx = make_ctx(TLS_server_method());
	client_ctx = make_ctx(TLS_client_method());
	if (server_ctx != NULL && client_ctx != NULL) {
		SSL_CTX_set_psk_find_session_callback(server_ctx, find_server_key);
		SSL_CTX_set_client_hello_cb(server_ctx, choose_identity, NULL);
		SSL_CTX_set_psk_use_session_callback(client_ctx, use_client_key);
		/* A controller that proves itself otherwise than with the key is refused: no certificate is trusted. */
		SSL_CTX_set_verify(client_ctx, SSL_VERIFY_PEER, NULL);
	}
}

static struct tls_session *make_session(int fd, bool is_server)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct tls_session *s = calloc(1, sizeof(*s));

	pthread_once(&once, init_openssl);
	SSL_CTX *ctx = is_server ? server_ctx : client_ctx;
	if (s == NULL || ctx == NULL) {
		free(s);
		return NULL;
	}
	s->fd = fd;
	s->is_server = is_server;
	s->out = malloc(OUT_TOTAL);
	s->ssl = s->out != NULL ? SSL_new(ctx) : NULL;
	BIO *bio = s->ssl != NULL ? BIO_new(bio_method) : NULL;
	if (bio == NULL) {
		tls_session_free(s);
		return NULL;
	}
	BIO_set_data(bio, s);
	BIO_set_init(bio, 1);
	SSL_set_bio(s->ssl, bio, bio);
	if (SSL_set_app_data(s->ssl, s) != 1) { /* it takes memory, and all callbacks rely on it */
		tls_session_free(s);
		return NULL;
	}
	return s;
}

struct tls_session *tls_session_server(int fd, tls_find_fn find, void *arg)
{
	struct tls_session *s = make_session(fd, true);

	if (s != NULL) {
		s->find = find;
		s->find_arg = arg;
		SSL_set_accept_state(s->ssl);
	}
	return s;
}

struct tls_session *tls_session_client(int fd, const struct tls_credential *credential)
{
	struct tls_session *s = make_session(fd, false);

	if (s != NULL) {
		s->credential = *credential;
		SSL_set_connect_state(s->ssl);
		if (!SSL_set_ciphersuites(s->ssl, suite_of(credential->hash))) {
			tls_session_free(s);
			return NULL;
		}
	}
	return s;
}

void tls_session_free(struct tls_session *s)
{
	if (s != NULL) {
		SSL_free(s->ssl);
		ERR_clear_error();
		tls_keys_end(&s->rx);
		tls_keys_end(&s->tx);
		dhchap_cleanse(&s->credential, sizeof(s->credential));
		dhchap_cleanse(&s->secrets, sizeof(s->secrets));
		free(s->out);
		if (s->in != NULL) {
			explicit_bzero(s->in->plain, sizeof(s->in->plain));
		}
		free(s->in);
		free(s);
	}
}

void tls_session_ask_kernel(struct tls_session *s)
{
	s->asks_kernel = true;
}

enum tls_records tls_session_records(const struct tls_session *s)
{
	return s->kernel_sends      ? TLS_RECORDS_BY_KERNEL
	       : s->kernel_receives ? TLS_RECORDS_RECEIVED_BY_KERNEL
				    : TLS_RECORDS_BY_OPENSSL;
}

const char *tls_records_name(enum tls_records records)
{
	static const char *const names[] = {
		[TLS_RECORDS_BY_OPENSSL] = "openssl",
		[TLS_RECORDS_RECEIVED_BY_KERNEL] = "received by kernel",
		[TLS_RECORDS_BY_KERNEL] = "kernel",
	};

	return names[records];
}

int tls_session_fd(const struct tls_session *s)
{
	return s->fd;
}

bool tls_session_is_server(const struct tls_session *s)
{
	return s->is_server;
}

const char *tls_session_why(const struct tls_session *s)
{
	return s->why;
}

int tls_session_error(const struct tls_session *s)
{
	return s->ended;
}

const struct tls_identity *tls_session_identity(const struct tls_session *s)
{
	return &s->identity;
}

/* ---- Sending what is encrypted ---- */

bool tls_session_has_unsent(const struct tls_session *s)
{
	return s->out_begin != s->out_end;
}

/* 0: all was sent; -EAGAIN: the socket is full; or another negative errno. */
static int send_out(struct tls_session *s)
{
	while (tls_session_has_unsent(s)) {
		ssize_t n = send(s->fd, s->out + s->out_begin, s->out_end - s->out_begin, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno != EINTR) {
			return -errno;
		}
		s->out_begin += n > 0 ? (size_t)n : 0;
	}
	s->out_begin = s->out_end = 0;
	return 0;
}

/* ---- The handshake ---- */

/* What OpenSSL says; of the other side's alerts the usual reasons. */
static void explain_failure(struct tls_session *s)
{
	char why[WHY_MAX];
	unsigned long e = ERR_get_error();
	int alert = ERR_GET_REASON(e) - SSL_AD_REASON_OFFSET;

	if (s->ended != 0) {
		snprintf(why, sizeof(why), "TLS: %s",
			 s->ended != -ECONNRESET ? strerror(-s->ended)
						 : "the other side has closed the connection in the handshake");
	} else if (ERR_GET_REASON(e) == SSL_R_BINDER_DOES_NOT_VERIFY) {
		snprintf(why, sizeof(why),
			 "TLS: host %.100s has another key than the psk for %.100s, or derives from it in another way "
			 "(psk_compat)",
			 s->identity.hostnqn, s->identity.subnqn);
	} else if (alert >= 0) {
		snprintf(why, sizeof(why), "TLS: the other side says: %s", SSL_alert_desc_string_long(alert));
	} else {
		const char *reason = e != 0 ? ERR_reason_error_string(e) : NULL;
		snprintf(why, sizeof(why), "TLS: %s", reason != NULL ? reason : "the connection has failed");
	}
	session_explain(s, why);
	ERR_clear_error();
}

/* Explains first: what OpenSSL says counts only while no error of the socket has ended the session. */
static enum tls_step fail_step(struct tls_session *s)
{
	explain_failure(s);
	s->ended = s->ended != 0 ? s->ended : -EPROTO;
	(void)send_out(s); /* the alert */
	return TLS_STEP_FAILED;
}

/* Bytes of payload in a record that the other side takes (max_fragment_length, RFC 6066 4). */
static size_t longest_content(const struct tls_session *s)
{
	unsigned code = SSL_SESSION_get_max_fragment_length(SSL_get_session(s->ssl));

	bool asked = code >= TLSEXT_max_fragment_length_512 && code <= TLSEXT_max_fragment_length_4096;

	return asked ? (size_t)256 << code : TLS_RECORD_CONTENT_MAX;
}

/* The kernel's records would be too long for a host that asks for shorter ones. */
static void give_to_kernel(struct tls_session *s)
{
	if (s->asks_kernel && !tls_session_has_unsent(s) && s->content_max == TLS_RECORD_CONTENT_MAX) {
		(void)tls_kernel_begin(s->fd, s->credential.hash, &s->secrets, s->is_server, &s->kernel_receives,
				       &s->kernel_sends);
	}
}

/* What the kernel does not do is done here. 0, or a negative errno. */
static int begin_records(struct tls_session *s)
{
	const uint8_t *theirs = s->is_server ? s->secrets.client : s->secrets.server;
	const uint8_t *ours = s->is_server ? s->secrets.server : s->secrets.client;
	int rc = 0;

	if (!s->kernel_receives) {
		s->in = malloc(sizeof(*s->in));
		rc = s->in != NULL ? tls_keys_begin(&s->rx, s->credential.hash, theirs, false) : -ENOMEM;
	}
	if (s->in != NULL) {
		s->in->begin = s->in->end = s->in->plain_begin = s->in->plain_end = 0;
	}
	if (!s->kernel_sends) {
		return rc == 0 ? tls_keys_begin(&s->tx, s->credential.hash, ours, true) : rc;
	}
	free(s->out);
	s->out = NULL;
	return rc;
}

/* From here on OpenSSL makes and reads no records: it has nothing that it would have to give away. 0, or a negative
 * errno. */
static int leave_handshake(struct tls_session *s)
{
	size_t len = dhchap_hash_bytes(s->credential.hash);

	if (SSL_has_pending(s->ssl)) {
		session_explain(s, "TLS: the other side sends more than a record that ends the handshake may have");
		return -EPROTO;
	}
	if (s->secrets.client_len != len || s->secrets.server_len != len) {
		session_explain(s, "TLS: OpenSSL does not tell the secrets of the connection");
		return -EIO;
	}
	s->content_max = longest_content(s);
	give_to_kernel(s);
	return begin_records(s);
}

static enum tls_step end_handshake(struct tls_session *s)
{
	if (!SSL_session_reused(s->ssl)) {
		session_explain(s, "TLS: the other side has not proved that it has the pre-shared key");
		return fail_step(s);
	}
	int rc = leave_handshake(s);
	dhchap_cleanse(s->credential.key, sizeof(s->credential.key));
	dhchap_cleanse(&s->secrets, sizeof(s->secrets));
	if (rc != 0) {
		s->ended = rc;
		return fail_step(s);
	}
	SSL_free(s->ssl); /* with the pre-shared key and the secrets, which util/openssl_memory.h overwrites */
	s->ssl = NULL;
	ERR_clear_error();
	s->done = true;
	return TLS_STEP_DONE;
}

enum tls_step tls_session_step(struct tls_session *s, size_t bytes)
{
	s->budget = bytes;
	s->is_dry = false;
	ERR_clear_error();
	while (!SSL_is_init_finished(s->ssl)) {
		int rc = SSL_do_handshake(s->ssl);
		if (rc != 1 && (SSL_get_error(s->ssl, rc) != SSL_ERROR_WANT_READ || s->ended != 0)) {
			return fail_step(s);
		}
		if (s->is_dry) {
			break;
		}
	}
	int rc = send_out(s);
	if (rc != 0 && rc != -EAGAIN) {
		s->ended = rc;
		return fail_step(s);
	}
	if (rc == -EAGAIN) {
		return TLS_STEP_WRITE;
	}
	if (!SSL_is_init_finished(s->ssl)) {
		return TLS_STEP_READ;
	}
	return end_handshake(s);
}

/* ---- The end ---- */

/* Makes a record, to be sent by send_out(). 0; -ENOBUFS: the other side does not read; or another negative errno. */
static int put_record(struct tls_session *s, uint8_t type, struct iov_cursor *from, size_t length)
{
	if (length + TLS_RECORD_EXTRA > OUT_TOTAL - s->out_end) {
		return -ENOBUFS;
	}
	ssize_t n = tls_record_seal(&s->tx, type, from, length, s->out + s->out_end);
	s->out_end += n > 0 ? (size_t)n : 0;
	return n > 0 ? 0 : (int)n;
}

static int put_bytes(struct tls_session *s, uint8_t type, const uint8_t *bytes, size_t length)
{
	struct iovec iov = {(void *)(uintptr_t)bytes, length};
	struct iov_cursor from = iov_cursor_at(&iov, 0);

	return put_record(s, type, &from, length);
}

static void give_alert(struct tls_session *s, uint8_t level, uint8_t alert)
{
	const uint8_t bytes[] = {level, alert};

	if (s->kernel_sends) {
		tls_kernel_alert(s->fd, level, alert);
	} else {
		(void)put_bytes(s, TLS_RECORD_ALERT, bytes, sizeof(bytes));
	}
}

static int end_session(struct tls_session *s, int error, uint8_t alert, const char *why)
{
	session_explain(s, why);
	if (alert != NO_ALERT) {
		give_alert(s, TLS_ALERT_FATAL, alert);
	}
	s->ended = error;
	return error;
}

/* Because of an error of the socket, or of a record. */
static int end_by_error(struct tls_session *s, int error)
{
	char why[WHY_MAX];

	switch (error) {
	case -EBADMSG:
		return end_session(s, -EPROTO, TLS_ALERT_BAD_RECORD_MAC, "TLS: decryption failed or bad record mac");
	case -EMSGSIZE:
		return end_session(s, -EPROTO, TLS_ALERT_RECORD_OVERFLOW, "TLS: a record is too long");
	case -ENOMSG:
		return end_session(s, -EPROTO, TLS_ALERT_UNEXPECTED_MESSAGE, "TLS: a record has no type");
	case -EINVAL:
		return end_session(s, -EPROTO, TLS_ALERT_UNEXPECTED_MESSAGE,
				   "TLS: what it sends is no record of TLS 1.3");
	case -ECONNRESET:
		return end_session(s, error, NO_ALERT, "TLS: the other side has closed the connection");
	default:
		snprintf(why, sizeof(why), "TLS: %s", strerror(-error));
		return end_session(s, error, NO_ALERT, why);
	}
}

/* ---- What is no payload ---- */

/* The other side has changed its keys (RFC 8446 4.6.3), and asks this one to do so, too, or not. */
static void follow_update(struct tls_session *s, bool asked)
{
	static const uint8_t answer[] = {24, 0, 0, 1, 0};

	s->control.updated = false;
	if (s->kernel_receives) {
		(void)end_session(s, -EPROTO, TLS_ALERT_INTERNAL_ERROR,
				  "TLS: the other side changes its keys (KeyUpdate). With enable_ktls varve cannot "
				  "follow: the connection ends");
		return;
	}
	s->followed = true;
	int rc = tls_keys_update(&s->rx);
	if (rc != 0) {
		(void)end_session(s, rc, TLS_ALERT_INTERNAL_ERROR,
				  "TLS: OpenSSL does not make the new keys (KeyUpdate)");
		return;
	}
	if (asked) {
		rc = put_bytes(s, TLS_RECORD_HANDSHAKE, answer, sizeof(answer));
		rc = rc == 0 ? tls_keys_update(&s->tx) : rc;
	}
	if (rc == -ENOBUFS) {
		(void)end_session(s, -EPROTO, NO_ALERT,
				  "TLS: the other side asks for new keys (KeyUpdate) and does not read the answers");
	} else if (rc != 0) {
		(void)end_by_error(s, rc);
	}
}

static enum tls_control_result parse_control(struct tls_session *s, uint8_t type, struct iov_cursor c, size_t bytes)
{
	enum tls_control_result result = bytes > 0 ? TLS_CONTROL_GO_ON : TLS_CONTROL_WRONG;

	for (size_t n; bytes > 0 && (result == TLS_CONTROL_GO_ON || s->control.updated); bytes -= n) {
		n = bytes;
		const void *at = iov_next(&c, &n);
		result = tls_control_take(&s->control, type, at, n, !s->is_server);
	}
	return result;
}

/* What has come is no payload. */
static void take_control(struct tls_session *s, uint8_t type, struct iov_cursor c, size_t bytes)
{
	char why[WHY_MAX];

	switch (parse_control(s, type, c, bytes)) {
	case TLS_CONTROL_GO_ON:
		break;
	case TLS_CONTROL_CLOSED:
		give_alert(s, TLS_ALERT_WARNING, TLS_ALERT_CLOSE_NOTIFY);
		(void)end_by_error(s, -ECONNRESET);
		break;
	case TLS_CONTROL_FAILED:
		snprintf(why, sizeof(why), "TLS: the other side says: %s",
			 SSL_alert_desc_string_long(s->control.head[1]));
		(void)end_session(s, -EPROTO, NO_ALERT, why);
		break;
	case TLS_CONTROL_KEY_UPDATE:
		follow_update(s, false);
		break;
	case TLS_CONTROL_KEY_UPDATE_ASKED:
		follow_update(s, true);
		break;
	case TLS_CONTROL_FLOOD:
		(void)end_session(s, -EPROTO, TLS_ALERT_UNEXPECTED_MESSAGE, FLOOD);
		break;
	case TLS_CONTROL_MALFORMED:
		(void)end_session(s, -EPROTO, TLS_ALERT_DECODE_ERROR, "TLS: KeyUpdate has a wrong length");
		break;
	case TLS_CONTROL_ILLEGAL:
		(void)end_session(s, -EPROTO, TLS_ALERT_ILLEGAL_PARAMETER, "TLS: KeyUpdate has a wrong value");
		break;
	case TLS_CONTROL_WRONG:
		(void)end_session(s, -EPROTO, TLS_ALERT_UNEXPECTED_MESSAGE,
				  "TLS: the other side sends a message that may not come now");
		break;
	}
}

/* Payload has come; false: it may not come now. */
static bool may_be_payload(struct tls_session *s, size_t bytes)
{
	if (tls_control_payload(&s->control, bytes)) {
		return true;
	}
	(void)end_session(s, -EPROTO, TLS_ALERT_UNEXPECTED_MESSAGE,
			  s->control.messages > TLS_MESSAGES_MAX
				  ? FLOOD
				  : "TLS: the other side sends payload in the middle of a message");
	return false;
}

/* ---- Records by the kernel ---- */

/* What is no payload comes in the memory for it, which the next bytes are written to, too. */
static ssize_t read_by_kernel(struct tls_session *s, const struct iovec *iovs, unsigned n)
{
	uint8_t type;

	for (unsigned i = 0; i < TLS_MESSAGES_MAX && s->ended == 0; i++) {
		ssize_t got = tls_kernel_receive(s->fd, iovs, n, &type);

		if (got == -EAGAIN || got == -EINTR) {
			return 0;
		}
		if (got < 0 || (got == 0 && type == TLS_RECORD_DATA)) {
			(void)end_by_error(s, got < 0 ? (int)got : -ECONNRESET);
		} else if (type != TLS_RECORD_DATA) {
			take_control(s, type, iov_cursor_at(iovs, 0), (size_t)got);
		} else {
			return may_be_payload(s, (size_t)got) ? got : 0;
		}
	}
	s->more = s->ended == 0;
	return 0;
}

static ssize_t write_by_kernel(struct tls_session *s, const struct iovec *iovs, unsigned n)
{
	ssize_t sent = n > 0 ? tls_kernel_send(s->fd, iovs, n) : 0;

	if (sent >= 0) {
		return sent;
	}
	if (sent == -EAGAIN || sent == -EINTR) {
		return 0;
	}
	return end_by_error(s, (int)sent);
}

/* ---- Receiving ---- */

/* Where payload is read to: the rest of the caller's memory. */
struct sink {
	struct iov_cursor at;
	size_t room;
};

static void give_plain(struct incoming *in, struct sink *to)
{
	size_t left = in->plain_end - in->plain_begin, n = left < to->room ? left : to->room;

	iov_from_buffer(&to->at, in->plain + in->plain_begin, n);
	in->plain_begin += n;
	to->room -= n;
}

/* The bytes of the next record if all of it is here; 0: it is not; or what is wrong with its head. */
static int next_record(const struct incoming *in)
{
	size_t there = in->end - in->begin;
	int bytes = there >= TLS_RECORD_HEAD ? tls_data_record_bytes(in->bytes + in->begin) : 0;

	return bytes > 0 && (size_t)bytes > there ? 0 : bytes;
}

/* Reads the socket once, for a caller that has so much room: no more than that, and a record, so that memory that is
 * not needed is not touched. False: there is nothing, or s->ended. */
static bool read_socket(struct tls_session *s, size_t wanted)
{
	struct incoming *in = s->in;

	if (s->is_dry) {
		return false;
	}
	memmove(in->bytes, in->bytes + in->begin, in->end - in->begin); /* less than a record */
	in->end -= in->begin;
	in->begin = 0;
	size_t left = sizeof(in->bytes) - in->end,
	       room = wanted + TLS_RECORD_MAX < left ? wanted + TLS_RECORD_MAX : left;
	ssize_t n = recv(s->fd, in->bytes + in->end, room, MSG_DONTWAIT);
	if (n > 0) {
		in->end += (size_t)n;
		s->is_dry = (size_t)n < room;
		return true;
	}
	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		s->is_dry = true;
	} else {
		(void)end_by_error(s, n == 0 ? -ECONNRESET : -errno);
	}
	return false;
}

/* Straight to where it belongs if there is room, else to memory of the session. */
static void open_record(struct tls_session *s, size_t bytes, struct sink *to)
{
	struct incoming *in = s->in;
	struct iovec plain = {in->plain, sizeof(in->plain)};
	bool direct = bytes - TLS_RECORD_EXTRA <= to->room;
	struct iov_cursor at = direct ? to->at : iov_cursor_at(&plain, 0);
	uint8_t type;
	size_t length;
	int rc = tls_record_open(&s->rx, in->bytes + in->begin, bytes, at, &type, &length);

	in->begin += bytes;
	if (rc != 0) {
		(void)end_by_error(s, rc);
	} else if (type != TLS_RECORD_DATA) {
		take_control(s, type, at, length);
	} else if (may_be_payload(s, length) && direct) {
		iov_skip(&to->at, length);
		to->room -= length;
	} else if (s->ended == 0) {
		in->plain_begin = 0;
		in->plain_end = length;
		give_plain(in, to);
	}
}

/* The end of a connection is found by the next read, if this one has payload. New keys cost as much time as some
 * hundred records, so the turn ends with them. */
static size_t read_records(struct tls_session *s, const struct iovec *iovs, unsigned n)
{
	size_t room = iov_length(iovs, n);
	struct sink to = {{.iov = iovs}, room};

	s->is_dry = s->followed = false;
	give_plain(s->in, &to);
	for (unsigned i = 0; i < READS_MAX && to.room > 0 && s->ended == 0 && !s->followed;) {
		int bytes = next_record(s->in);

		if (bytes > 0) {
			open_record(s, (size_t)bytes, &to);
			i++;
		} else if (bytes < 0) {
			(void)end_by_error(s, bytes);
		} else if (!read_socket(s, to.room)) {
			break;
		}
	}
	s->more = s->ended == 0 && (s->in->plain_begin != s->in->plain_end || next_record(s->in) != 0);
	return room - to.room;
}

ssize_t tls_session_read(struct tls_session *s, const struct iovec *iovs, unsigned n)
{
	size_t waiting = s->out_end;

	s->rests = 0;
	s->more = false;
	if (s->ended != 0) {
		return s->ended;
	}
	ssize_t total = s->kernel_receives ? read_by_kernel(s, iovs, n) : (ssize_t)read_records(s, iovs, n);
	int rc = s->out_end != waiting ? send_out(s) : 0; /* answers to KeyUpdate, alerts */
	if (rc != 0 && rc != -EAGAIN && s->ended == 0) {
		s->ended = rc;
	}
	if (total > 0) {
		s->more |= s->ended != 0;
		return total;
	}
	return s->ended != 0 ? s->ended : -EAGAIN;
}

bool tls_session_has_more(const struct tls_session *s)
{
	return s->more;
}

/* ---- Sending ---- */

/* Encrypts as much as there is room for. The bytes taken, or a negative errno. */
static ssize_t encrypt_records(struct tls_session *s, struct iov_cursor *from, size_t left)
{
	size_t taken = 0;

	while (taken < left && s->out_end + TLS_RECORD_MAX <= OUT_BYTES) {
		size_t n = left - taken < s->content_max ? left - taken : s->content_max;
		int rc = put_record(s, TLS_RECORD_DATA, from, n);

		if (rc != 0) {
			return end_by_error(s, rc);
		}
		taken += n;
	}
	return (ssize_t)taken;
}

ssize_t tls_session_write(struct tls_session *s, const struct iovec *iovs, unsigned n)
{
	struct iov_cursor from = {.iov = iovs};
	size_t left = iov_length(iovs, n), taken = 0;

	s->rests = 0;
	if (s->ended != 0) {
		return s->ended;
	}
	if (s->kernel_sends) {
		return write_by_kernel(s, iovs, n);
	}
	for (;;) {
		int rc = send_out(s);
		if (rc == -EAGAIN) {
			return (ssize_t)taken;
		}
		if (rc != 0) {
			return end_by_error(s, rc);
		}
		ssize_t more = encrypt_records(s, &from, left - taken);
		if (more <= 0) {
			return more < 0 ? more : (ssize_t)taken;
		}
		taken += (size_t)more;
	}
}

bool tls_session_send_now(struct tls_session *s, const void *bytes, size_t length)
{
	struct iovec iov = {(void *)(uintptr_t)bytes, length};

	return tls_session_write(s, &iov, 1) == (ssize_t)length && !tls_session_has_unsent(s);
}

void tls_session_end(struct tls_session *s)
{
	if (s->done && s->ended == 0) {
		give_alert(s, TLS_ALERT_WARNING, TLS_ALERT_CLOSE_NOTIFY);
		if (!s->kernel_sends) {
			(void)send_out(s);
		}
	}
}

/* ---- Memory ---- */

size_t tls_session_bytes(const struct tls_session *s)
{
	return sizeof(*s) + (s->in != NULL ? sizeof(*s->in) : 0) + (s->out != NULL ? OUT_TOTAL : 0);
}

void tls_session_rest(struct tls_session *s)
{
	struct incoming *in = s->in;

	s->rests += s->rests < 3;
	if (s->rests != 2) {
		return;
	}
	if (in != NULL && in->begin == in->end && in->plain_begin == in->plain_end) {
		pages_give_back(in->bytes, sizeof(in->bytes) + sizeof(in->plain));
	}
	if (s->out != NULL && !tls_session_has_unsent(s)) {
		pages_give_back(s->out, OUT_TOTAL);
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* TLS records by the kernel. Here a fake of its module tls has them: it takes keys as that does, and encrypts and
 * decrypts with them what is sent and received, so that OpenSSL at the other side is the judge. */
#include <errno.h>
#include <linux/tls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include "tls/kernel.h"
#include "tls/session.h"
#include "tls/wire.h"
#include "unittest/tls/records.h"
#include "unittest/unit.h"
#include "util/log.h"

#ifndef TCP_ULP
#define TCP_ULP 31
#endif
#ifndef SOL_TLS
#define SOL_TLS 282
#endif

#define HOSTNQN    "nqn.2026-11.io.varve:host"
#define SUBNQN     "nqn.2026-11.io.varve:a"
#define FDS        64
#define RECORD     16384
#define TAG        16
#define MOST_BYTES 100000

/* ---- The fake ---- */

struct half {
	bool on;
	bool is_256;
	uint8_t key[32], iv[12];
	uint64_t seq;
};

static struct fake {
	bool ulp;
	struct half tx, rx;
	uint8_t plain[RECORD + 1]; /* decrypted, and not received yet */
	size_t at, end;
	uint8_t type;
} fakes[FDS];

static int fail_ulp, fail_rx, fail_tx, fail_send; /* with this errno */
static unsigned sends, receives;

static void reset_fakes(void)
{
	memset(fakes, 0, sizeof(fakes));
	fail_ulp = fail_rx = fail_tx = fail_send = 0;
	sends = receives = 0;
}

static void take_keys(struct half *h, const void *value, socklen_t bytes)
{
	const struct tls_crypto_info *info = value;
	const struct tls12_crypto_info_aes_gcm_128 *a = value;
	const struct tls12_crypto_info_aes_gcm_256 *b = value;
	static const uint8_t zeros[8];

	CU_ASSERT_EQUAL_FATAL(info->version, TLS_1_3_VERSION);
	h->is_256 = info->cipher_type == TLS_CIPHER_AES_GCM_256;
	CU_ASSERT(h->is_256 || info->cipher_type == TLS_CIPHER_AES_GCM_128);
	CU_ASSERT_EQUAL_FATAL(bytes, h->is_256 ? sizeof(*b) : sizeof(*a));
	memcpy(h->key, h->is_256 ? b->key : a->key, h->is_256 ? sizeof(b->key) : sizeof(a->key));
	memcpy(h->iv, h->is_256 ? b->salt : a->salt, 4);
	memcpy(h->iv + 4, h->is_256 ? b->iv : a->iv, 8);
	CU_ASSERT_EQUAL(memcmp(h->is_256 ? b->rec_seq : a->rec_seq, zeros, 8), 0);
	h->on = true;
}

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t n);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t n)
{
	bool is_ulp = level == IPPROTO_TCP && name == TCP_ULP;

	CU_ASSERT_FATAL(fd < FDS && (is_ulp || (level == SOL_TLS && fakes[fd].ulp)));
	errno = is_ulp ? fail_ulp : name == TLS_RX ? fail_rx : name == TLS_TX ? fail_tx : 0;
	if (errno != 0) {
		return -1;
	}
	if (is_ulp) {
		fakes[fd].ulp = true;
		CU_ASSERT_STRING_EQUAL((const char *)value, "tls");
	} else if (name == TLS_RX || name == TLS_TX) {
		take_keys(name == TLS_RX ? &fakes[fd].rx : &fakes[fd].tx, value, n);
	}
	return 0;
}

static void make_nonce(struct half *h, uint8_t nonce[12])
{
	memcpy(nonce, h->iv, 12);
	for (unsigned i = 0; i < 8; i++) {
		nonce[11 - i] ^= (uint8_t)(h->seq >> (8 * i));
	}
	h->seq++;
}

/* Encrypts or decrypts n bytes behind a head. False: the tag does not fit. */
static bool cross(struct half *h, bool encrypt, const uint8_t head[5], uint8_t *bytes, size_t n, uint8_t tag[TAG])
{
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
	uint8_t nonce[12];
	int len;

	make_nonce(h, nonce);
	CU_ASSERT_EQUAL(
		EVP_CipherInit_ex(ctx, h->is_256 ? EVP_aes_256_gcm() : EVP_aes_128_gcm(), NULL, h->key, nonce, encrypt),
		1);
	if (!encrypt) {
		CU_ASSERT_EQUAL(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_SET_TAG, TAG, tag), 1);
	}
	CU_ASSERT_EQUAL(EVP_CipherUpdate(ctx, NULL, &len, head, 5), 1);
	CU_ASSERT_EQUAL(EVP_CipherUpdate(ctx, bytes, &len, bytes, (int)n), 1);
	bool good = EVP_CipherFinal_ex(ctx, bytes + len, &len) == 1;
	if (encrypt) {
		CU_ASSERT_EQUAL(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_GET_TAG, TAG, tag), 1);
	}
	EVP_CIPHER_CTX_free(ctx);
	return good;
}

ssize_t __real_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	uint8_t record[5 + RECORD + 1 + TAG] = {23, 3, 3}, *to = record + 5;
	const struct cmsghdr *c = CMSG_FIRSTHDR(msg);
	struct fake *f = &fakes[fd];
	size_t n = 0;

	CU_ASSERT_FATAL(f->tx.on);
	sends++;
	if (fail_send != 0) {
		errno = fail_send;
		return -1;
	}
	for (size_t i = 0; i < msg->msg_iovlen && n < RECORD; i++) {
		size_t take = msg->msg_iov[i].iov_len < RECORD - n ? msg->msg_iov[i].iov_len : RECORD - n;

		memcpy(to + n, msg->msg_iov[i].iov_base, take);
		n += take;
	}
	to[n] = c != NULL ? *CMSG_DATA(c) : 23;
	record[3] = (uint8_t)((n + 1 + TAG) >> 8);
	record[4] = (uint8_t)(n + 1 + TAG);
	CU_ASSERT(cross(&f->tx, true, record, to, n + 1, to + n + 1));
	CU_ASSERT_EQUAL(send(fd, record, 5 + n + 1 + TAG, flags), (ssize_t)(5 + n + 1 + TAG));
	return (ssize_t)n;
}

/* Decrypts the next record. 1; 0: the end; -1: errno. */
static int decrypt_next(int fd, struct fake *f)
{
	uint8_t record[5 + RECORD + 1 + TAG];
	ssize_t n = recv(fd, record, 5, MSG_PEEK | MSG_DONTWAIT);

	if (n <= 0) {
		return (int)n;
	}
	size_t whole = 5 + ((size_t)record[3] << 8 | record[4]);
	CU_ASSERT_FATAL(n == 5 && whole <= sizeof(record) && recv(fd, record, whole, MSG_DONTWAIT) == (ssize_t)whole);
	f->at = 0;
	f->end = whole - 5 - TAG;
	if (!cross(&f->rx, false, record, record + 5, f->end, record + whole - TAG)) {
		errno = EBADMSG;
		return -1;
	}
	memcpy(f->plain, record + 5, f->end);
	f->type = f->plain[--f->end];
	return 1;
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags)
{
	struct fake *f = &fakes[fd];
	struct cmsghdr *c = CMSG_FIRSTHDR(msg);
	size_t n = 0;

	CU_ASSERT_FATAL(f->rx.on && c != NULL && flags == MSG_DONTWAIT);
	receives++;
	if (f->at == f->end) {
		int rc = decrypt_next(fd, f);
		if (rc <= 0) {
			msg->msg_controllen = 0;
			return rc;
		}
	}
	c->cmsg_level = SOL_TLS;
	c->cmsg_type = TLS_GET_RECORD_TYPE;
	c->cmsg_len = CMSG_LEN(1);
	*CMSG_DATA(c) = f->type;
	for (size_t i = 0; i < msg->msg_iovlen; i++) {
		size_t room = msg->msg_iov[i].iov_len, take = f->end - f->at < room ? f->end - f->at : room;

		memcpy(msg->msg_iov[i].iov_base, f->plain + f->at, take);
		f->at += take;
		n += take;
	}
	return (ssize_t)n;
}

/* ---- Sessions ---- */

static struct tls_psk configured;

static bool find_psk(void *arg, const struct tls_identity *identity, struct tls_psk *psk)
{
	*psk = configured;
	return true;
}

struct pair {
	int fds[2];
	struct tls_session *host, *ctrlr;
};

static void use_hash(unsigned hash)
{
	configured = (struct tls_psk){.hash = (uint8_t)hash, .len = (uint8_t)dhchap_hash_bytes(hash)};
	for (unsigned i = 0; i < configured.len; i++) {
		configured.bytes[i] = (uint8_t)(3 + 5 * i);
	}
}

static enum tls_step go_on(struct tls_session *s, enum tls_step step)
{
	/* a record at a time, as tls/handshake.c has it done */
	while (step == TLS_STEP_READ || step == TLS_STEP_WRITE) {
		uint8_t head[TLS_RECORD_HEAD];
		ssize_t n = recv(tls_session_fd(s), head, sizeof(head), MSG_PEEK | MSG_DONTWAIT);

		if (n != sizeof(head)) {
			break;
		}
		step = tls_session_step(s, (size_t)tls_record_bytes(head, (size_t)n, false));
	}
	return step;
}

/* host, ctrlr: it asks the kernel. */
static void connect_pair(struct pair *p, bool host, bool ctrlr)
{
	struct tls_credential c;

	CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, p->fds), 0);
	CU_ASSERT_EQUAL_FATAL(tls_credential_make(&configured, HOSTNQN, SUBNQN, 1, &c), 0);
	p->host = tls_session_client(p->fds[0], &c);
	p->ctrlr = tls_session_server(p->fds[1], find_psk, NULL);
	CU_ASSERT_FATAL(p->host != NULL && p->ctrlr != NULL);
	if (host) {
		tls_session_ask_kernel(p->host);
	}
	if (ctrlr) {
		tls_session_ask_kernel(p->ctrlr);
	}
	enum tls_step there = tls_session_step(p->host, 0), here = TLS_STEP_READ;
	for (unsigned i = 0; i < 4; i++) {
		here = go_on(p->ctrlr, here);
		there = go_on(p->host, there);
	}
	CU_ASSERT_EQUAL_FATAL(there, TLS_STEP_DONE);
	CU_ASSERT_EQUAL_FATAL(here, TLS_STEP_DONE);
}

static void close_pair(struct pair *p)
{
	tls_session_free(p->host);
	tls_session_free(p->ctrlr);
	memset(&fakes[p->fds[0]], 0, sizeof(fakes[0]));
	memset(&fakes[p->fds[1]], 0, sizeof(fakes[0]));
	close(p->fds[0]);
	close(p->fds[1]);
}

static uint8_t sent[MOST_BYTES], received[MOST_BYTES];

static void move(struct tls_session *from, struct tls_session *to, size_t length, size_t piece)
{
	size_t taken = 0, got = 0;

	memset(received, 0, length);
	for (unsigned i = 0; i < 100000 && got < length; i++) {
		struct iovec out[5], in[3];
		unsigned n = 0, m = 0;

		for (size_t at = taken; at < length && n < 5; at += piece, n++) {
			out[n] = (struct iovec){sent + at, length - at < piece ? length - at : piece};
		}
		ssize_t w = n > 0 ? tls_session_write(from, out, n) : 0;
		CU_ASSERT_FATAL(w >= 0);
		taken += (size_t)w;
		for (size_t at = got; at < length && m < 3; at += piece, m++) {
			in[m] = (struct iovec){received + at, length - at < piece ? length - at : piece};
		}
		ssize_t r = tls_session_read(to, in, m);
		CU_ASSERT_FATAL(r > 0 || r == -EAGAIN);
		got += r > 0 ? (size_t)r : 0;
	}
	CU_ASSERT_EQUAL(got, length);
	CU_ASSERT_EQUAL(memcmp(sent, received, length), 0);
	CU_ASSERT(!tls_session_has_unsent(from));
	CU_ASSERT(tls_session_records(to) == TLS_RECORDS_BY_OPENSSL || !tls_session_has_more(to));
}

static void move_all(struct pair *p)
{
	static const size_t lengths[] = {1, 24, 4096, 16384, 16385, 70000, MOST_BYTES}, pieces[] = {100, 4096, 70000};

	for (size_t i = 0; i < MOST_BYTES; i++) {
		sent[i] = (uint8_t)(i * 7 + i / 251);
	}
	for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		for (unsigned j = 0; j < sizeof(pieces) / sizeof(pieces[0]); j++) {
			move(p->host, p->ctrlr, lengths[i], pieces[j]);
			move(p->ctrlr, p->host, lengths[i], pieces[j]);
		}
	}
}

static void check_end(struct tls_session *from, struct tls_session *to)
{
	struct iovec in = {received, 100};

	CU_ASSERT(tls_session_send_now(from, "x", 1));
	tls_session_end(from);
	CU_ASSERT_EQUAL(tls_session_read(to, &in, 1), 1);
	CU_ASSERT_EQUAL(tls_session_read(to, &in, 1), -ECONNRESET);
	CU_ASSERT_EQUAL(tls_session_error(to), -ECONNRESET);
	CU_ASSERT_EQUAL(tls_session_read(to, &in, 1), -ECONNRESET);
}

static void test_the_kernel_has_the_records_of_either_side_and_of_both(void)
{
	for (unsigned i = 0; i < 6; i++) {
		bool host = i % 3 != 1, ctrlr = i % 3 != 0;
		struct pair p;

		use_hash(i < 3 ? DHCHAP_HASH_SHA256 : DHCHAP_HASH_SHA384);
		for (unsigned end = 0; end < 2; end++) {
			reset_fakes();
			connect_pair(&p, host, ctrlr);
			CU_ASSERT_EQUAL(tls_session_records(p.host),
					host ? TLS_RECORDS_BY_KERNEL : TLS_RECORDS_BY_OPENSSL);
			CU_ASSERT_EQUAL(tls_session_records(p.ctrlr),
					ctrlr ? TLS_RECORDS_BY_KERNEL : TLS_RECORDS_BY_OPENSSL);
			move_all(&p);
			CU_ASSERT(sends > 0 && receives > 0);
			check_end(end == 0 ? p.host : p.ctrlr, end == 0 ? p.ctrlr : p.host);
			close_pair(&p);
		}
	}
}

static void test_what_the_kernel_does_not_do_is_done_by_openssl(void)
{
	static const struct {
		int *fails;
		enum tls_records records;
	} cases[] = {{&fail_ulp, TLS_RECORDS_BY_OPENSSL},
		     {&fail_rx, TLS_RECORDS_BY_OPENSSL},
		     {&fail_tx, TLS_RECORDS_RECEIVED_BY_KERNEL}};
	static const int errors[] = {ENOENT, EOPNOTSUPP, EINVAL, ENOMEM};

	use_hash(DHCHAP_HASH_SHA256);
	for (unsigned i = 0; i < 12; i++) {
		struct pair p;

		reset_fakes();
		*cases[i / 4].fails = errors[i % 4];
		connect_pair(&p, true, true);
		CU_ASSERT_EQUAL(tls_session_records(p.host), cases[i / 4].records);
		CU_ASSERT_EQUAL(tls_session_records(p.ctrlr), cases[i / 4].records);
		move_all(&p);
		check_end(p.host, p.ctrlr);
		close_pair(&p);
	}
	CU_ASSERT_STRING_EQUAL(tls_records_name(TLS_RECORDS_BY_OPENSSL), "openssl");
	CU_ASSERT_STRING_EQUAL(tls_records_name(TLS_RECORDS_RECEIVED_BY_KERNEL), "received by kernel");
	CU_ASSERT_STRING_EQUAL(tls_records_name(TLS_RECORDS_BY_KERNEL), "kernel");
}

static char told[4096]; /* what the log says of beginnings */

static void take_told(enum log_level level, const char *file, int line, const char *text)
{
	if (strstr(text, "as enable_ktls asks") != NULL) {
		strncat(told, text, sizeof(told) - strlen(told) - 1);
	}
}

/* How often the log says so when beginnings fail with this errno. */
static unsigned times_told(int error, const char *words)
{
	unsigned n = 0;

	told[0] = '\0';
	log_set_tap(take_told);
	for (unsigned i = 0; i < 2; i++) {
		struct pair p;

		reset_fakes();
		fail_ulp = error;
		connect_pair(&p, true, true);
		close_pair(&p);
	}
	log_set_tap(NULL);
	for (const char *at = told; (at = strstr(at, words)) != NULL; at++) {
		n++;
	}
	return n;
}

static void test_each_reason_is_told_once_and_that_a_host_has_gone_is_none(void)
{
	use_hash(DHCHAP_HASH_SHA256);
	CU_ASSERT_EQUAL(times_told(ENOTCONN, "enable_ktls"), 0);
	CU_ASSERT_EQUAL(times_told(ENOENT, "modprobe tls"), 1);
	CU_ASSERT_EQUAL(times_told(ENOENT, "enable_ktls"), 0);
	CU_ASSERT_EQUAL(times_told(EOPNOTSUPP, strerror(EOPNOTSUPP)), 1);
	CU_ASSERT_EQUAL(times_told(10000, "enable_ktls"), 1); /* no errno that there is */
	CU_ASSERT_EQUAL(times_told(10001, "enable_ktls"), 0);
}

static void test_a_changed_record_ends_the_connection(void)
{
	struct iovec in = {received, 4000};
	uint8_t record[400];
	struct pair p;

	reset_fakes();
	use_hash(DHCHAP_HASH_SHA256);
	connect_pair(&p, false, true);
	CU_ASSERT(tls_session_send_now(p.host, sent, 100));
	ssize_t n = recv(p.fds[1], record, sizeof(record), 0);
	CU_ASSERT_FATAL(n > 100);
	record[50] ^= 1;
	CU_ASSERT_EQUAL(send(p.fds[0], record, (size_t)n, 0), n);
	CU_ASSERT_EQUAL(tls_session_read(p.ctrlr, &in, 1), -EPROTO);
	CU_ASSERT_PTR_NOT_NULL(strstr(tls_session_why(p.ctrlr), "bad record mac"));
	CU_ASSERT_EQUAL(tls_session_read(p.ctrlr, &in, 1), -EPROTO);
	CU_ASSERT(!tls_session_send_now(p.ctrlr, sent, 1));
	CU_ASSERT_EQUAL(tls_session_read(p.host, &in, 1), -EPROTO); /* the alert */
	CU_ASSERT_PTR_NOT_NULL(strstr(tls_session_why(p.host), "the other side says: bad record mac"));
	close_pair(&p);
}

static void test_an_alert_ends_the_connection(void)
{
	struct iovec in = {received, 4000};
	struct pair p;

	reset_fakes();
	use_hash(DHCHAP_HASH_SHA384);
	connect_pair(&p, true, true);
	tls_kernel_alert(p.fds[1], TLS_ALERT_FATAL, TLS_ALERT_INTERNAL_ERROR);
	CU_ASSERT_EQUAL(tls_session_read(p.host, &in, 1), -EPROTO);
	CU_ASSERT_PTR_NOT_NULL(strstr(tls_session_why(p.host), "the other side says: internal error"));
	CU_ASSERT_EQUAL(tls_session_write(p.host, &in, 1), -EPROTO);
	close_pair(&p);
	connect_pair(&p, true, true);
	shutdown(p.fds[1], SHUT_WR); /* without an alert */
	CU_ASSERT_EQUAL(tls_session_read(p.host, &in, 1), -ECONNRESET);
	close_pair(&p);
}

static void test_a_full_socket_is_no_error(void)
{
	struct iovec out = {sent, 100};
	struct pair p;

	reset_fakes();
	use_hash(DHCHAP_HASH_SHA256);
	connect_pair(&p, true, true);
	fail_send = EAGAIN;
	CU_ASSERT_EQUAL(tls_session_write(p.host, &out, 1), 0);
	CU_ASSERT(!tls_session_has_unsent(p.host) && !tls_session_send_now(p.host, sent, 1));
	CU_ASSERT_EQUAL(tls_session_error(p.host), 0);
	fail_send = 0;
	move(p.host, p.ctrlr, 100, 100);
	fail_send = EPIPE;
	CU_ASSERT_EQUAL(tls_session_write(p.host, &out, 1), -EPIPE);
	fail_send = 0;
	CU_ASSERT_EQUAL(tls_session_write(p.host, &out, 1), -EPIPE);
	close_pair(&p);
}

/* ---- A peer that does what varve's sessions do not: a plain OpenSSL server or client ---- */

static int find_session(SSL *ssl, const unsigned char *id, size_t id_len, SSL_SESSION **psk)
{
	static const uint8_t suite[] = {0x13, 0x01};
	const struct tls_credential *c = SSL_get_app_data(ssl);

	*psk = SSL_SESSION_new();
	return SSL_SESSION_set1_master_key(*psk, c->key, c->len) &&
	       SSL_SESSION_set_cipher(*psk, SSL_CIPHER_find(ssl, suite)) &&
	       SSL_SESSION_set_protocol_version(*psk, TLS1_3_VERSION);
}

/* A host by the kernel at a server that sends tickets, and more of them when it is asked to. */
struct ticketer {
	int fds[2];
	SSL_CTX *ctx;
	SSL *ssl;
	struct tls_credential credential;
	struct tls_session *host;
};

static void open_ticketer(struct ticketer *t)
{
	reset_fakes();
	use_hash(DHCHAP_HASH_SHA256);
	CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, t->fds), 0);
	CU_ASSERT_EQUAL_FATAL(tls_credential_make(&configured, HOSTNQN, SUBNQN, 1, &t->credential), 0);
	t->ctx = SSL_CTX_new(TLS_server_method());
	SSL_CTX_set_psk_find_session_callback(t->ctx, find_session);
	SSL_CTX_set_num_tickets(t->ctx, 2);
	t->ssl = SSL_new(t->ctx);
	SSL_set_app_data(t->ssl, &t->credential);
	SSL_set_fd(t->ssl, t->fds[1]);
	t->host = tls_session_client(t->fds[0], &t->credential);
	CU_ASSERT_PTR_NOT_NULL_FATAL(t->host);
	tls_session_ask_kernel(t->host);
	enum tls_step step = tls_session_step(t->host, 0);
	for (unsigned i = 0; i < 4; i++) {
		(void)SSL_accept(t->ssl);
		step = go_on(t->host, step);
	}
	CU_ASSERT_EQUAL_FATAL(step, TLS_STEP_DONE);
	CU_ASSERT_EQUAL_FATAL(tls_session_records(t->host), TLS_RECORDS_BY_KERNEL);
}

static void close_ticketer(struct ticketer *t)
{
	SSL_free(t->ssl);
	SSL_CTX_free(t->ctx);
	tls_session_free(t->host);
	close(t->fds[0]);
	close(t->fds[1]);
}

static void test_tickets_are_dropped(void)
{
	struct iovec in[] = {{received, 3}, {received + 3, 8}}; /* less room than a ticket takes */
	struct ticketer t;
	ssize_t n = -EAGAIN;

	open_ticketer(&t);
	CU_ASSERT_EQUAL(SSL_write(t.ssl, "hello", 5), 5);
	for (unsigned i = 0; i < 100 && n == -EAGAIN; i++) {
		n = tls_session_read(t.host, in, 2);
		CU_ASSERT(n > 0 || tls_session_has_more(t.host)); /* epoll need not tell */
	}
	CU_ASSERT(n == 5 && memcmp(received, "hello", 5) == 0);
	CU_ASSERT(receives > 6);
	CU_ASSERT(tls_session_send_now(t.host, "back", 4));
	char back[8];
	CU_ASSERT(SSL_read(t.ssl, back, sizeof(back)) == 4 && memcmp(back, "back", 4) == 0);
	close_ticketer(&t);
}

static void test_a_key_update_ends_the_connection(void)
{
	struct iovec in = {received, 4000};
	struct ticketer t;
	char nothing[8];

	open_ticketer(&t);
	CU_ASSERT(SSL_write(t.ssl, "x", 1) == 1 && tls_session_read(t.host, &in, 1) == 1);
	CU_ASSERT(SSL_key_update(t.ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1 && SSL_do_handshake(t.ssl) == 1);
	CU_ASSERT_EQUAL(tls_session_read(t.host, &in, 1), -EPROTO);
	CU_ASSERT_PTR_NOT_NULL(strstr(tls_session_why(t.host), "KeyUpdate"));
	CU_ASSERT(SSL_read(t.ssl, nothing, sizeof(nothing)) <= 0); /* the alert */
	CU_ASSERT(SSL_get_shutdown(t.ssl) & SSL_RECEIVED_SHUTDOWN);
	close_ticketer(&t);
}

static int use_session(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_len, SSL_SESSION **psk)
{
	const struct tls_credential *c = SSL_get_app_data(ssl);

	*id = (const unsigned char *)c->identity;
	*id_len = strlen(c->identity);
	return find_session(ssl, *id, *id_len, psk);
}

/* The kernel's records would be too long for it. */
static void test_a_host_that_asks_for_short_records_gets_them(void)
{
	for (unsigned shorter = 0; shorter < 2; shorter++) {
		SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
		enum tls_step step = TLS_STEP_READ;
		struct tls_credential c;
		int fds[2];

		reset_fakes();
		use_hash(DHCHAP_HASH_SHA256);
		CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
		CU_ASSERT_EQUAL_FATAL(tls_credential_make(&configured, HOSTNQN, SUBNQN, 1, &c), 0);
		SSL_CTX_set_psk_use_session_callback(ctx, use_session);
		SSL_CTX_set_tlsext_max_fragment_length(ctx, shorter ? TLSEXT_max_fragment_length_512
								    : TLSEXT_max_fragment_length_DISABLED);
		SSL *ssl = SSL_new(ctx);
		SSL_set_app_data(ssl, &c);
		SSL_set_fd(ssl, fds[0]);
		struct tls_session *ctrlr = tls_session_server(fds[1], find_psk, NULL);
		CU_ASSERT_PTR_NOT_NULL_FATAL(ctrlr);
		tls_session_ask_kernel(ctrlr);
		for (unsigned i = 0; i < 4; i++) {
			(void)SSL_connect(ssl);
			step = go_on(ctrlr, step);
		}
		CU_ASSERT_EQUAL_FATAL(step, TLS_STEP_DONE);
		CU_ASSERT_EQUAL(tls_session_records(ctrlr), shorter ? TLS_RECORDS_BY_OPENSSL : TLS_RECORDS_BY_KERNEL);
		CU_ASSERT(tls_session_send_now(ctrlr, sent, 4000));
		for (size_t got = 0, n; got < 4000; got += n) {
			n = 0;
			CU_ASSERT_FATAL(SSL_read_ex(ssl, received, sizeof(received), &n) == 1);
		}
		SSL_free(ssl);
		SSL_CTX_free(ctx);
		tls_session_free(ctrlr);
		close(fds[0]);
		close(fds[1]);
	}
}

/* ---- Pure functions ---- */

static const uint8_t ticket[] = {4, 0, 0, 3, 1, 2, 3}, update[] = {24, 0, 0, 1, 0};

static enum tls_control_result take(struct tls_control *c, uint8_t type, const uint8_t *bytes, size_t n)
{
	return tls_control_take(c, type, bytes, n, true);
}

static void test_messages_are_taken_apart_in_pieces_of_any_size(void)
{
	uint8_t many[3 * sizeof(ticket)];

	for (unsigned i = 0; i < 3; i++) {
		memcpy(many + i * sizeof(ticket), ticket, sizeof(ticket));
	}
	for (size_t piece = 1; piece <= sizeof(many); piece++) {
		struct tls_control c = {0};

		for (size_t at = 0; at < sizeof(many); at += piece) {
			size_t n = sizeof(many) - at < piece ? sizeof(many) - at : piece;
			CU_ASSERT_EQUAL(take(&c, TLS_RECORD_HANDSHAKE, many + at, n), TLS_CONTROL_GO_ON);
			CU_ASSERT((at + n) % sizeof(ticket) == 0 || c.have != 0 || c.left != 0);
		}
		CU_ASSERT_EQUAL(c.messages, 3);
		CU_ASSERT(tls_control_payload(&c, 1));
		CU_ASSERT_EQUAL(c.messages, 0);
		CU_ASSERT_EQUAL(take(&c, TLS_RECORD_HANDSHAKE, update, 3), TLS_CONTROL_GO_ON);
		CU_ASSERT_EQUAL(take(&c, TLS_RECORD_HANDSHAKE, update + 3, 2), TLS_CONTROL_KEY_UPDATE);
	}
}

/* What is behind it in its record would be of two keys, however it is cut. */
static void test_nothing_comes_behind_new_keys(void)
{
	static const uint8_t more[] = {24, 0, 0, 1, 1, 4}, empty[] = {24, 0, 0, 0}, longer[] = {24, 0, 0, 2, 0, 0};
	struct tls_control c = {0};

	CU_ASSERT_EQUAL(take(&c, TLS_RECORD_HANDSHAKE, more, 5), TLS_CONTROL_KEY_UPDATE_ASKED);
	CU_ASSERT_EQUAL(take(&c, TLS_RECORD_HANDSHAKE, more + 5, 1), TLS_CONTROL_WRONG);
	c.updated = false; /* it was followed */
	CU_ASSERT_EQUAL(take(&c, TLS_RECORD_HANDSHAKE, update, 5), TLS_CONTROL_KEY_UPDATE);
	c = (struct tls_control){0};
	CU_ASSERT_EQUAL(take(&c, TLS_RECORD_HANDSHAKE, more, 6), TLS_CONTROL_WRONG);
	c = (struct tls_control){0};
	CU_ASSERT_EQUAL(take(&c, TLS_RECORD_HANDSHAKE, empty, 4), TLS_CONTROL_MALFORMED);
	c = (struct tls_control){0};
	CU_ASSERT_EQUAL(take(&c, TLS_RECORD_HANDSHAKE, longer, 6), TLS_CONTROL_MALFORMED);
}

static void test_messages_that_may_not_come_are_found(void)
{
	static const uint8_t hello[] = {1, 0, 0, 0}, large[] = {4, 1, 0, 1}, largest[] = {4, 1, 0, 0};
	static const uint8_t close_notify[] = {1, 0}, bad_mac[] = {2, 20};
	struct tls_control c = {0};

	CU_ASSERT_EQUAL(take(&c, TLS_RECORD_HANDSHAKE, hello, 4), TLS_CONTROL_WRONG);
	c = (struct tls_control){0};
	CU_ASSERT_EQUAL(take(&c, TLS_RECORD_HANDSHAKE, large, 4), TLS_CONTROL_WRONG);
	c = (struct tls_control){0};
	CU_ASSERT_EQUAL(take(&c, TLS_RECORD_HANDSHAKE, largest, 4), TLS_CONTROL_GO_ON);
	CU_ASSERT(!tls_control_payload(&c, 1)); /* in the middle of it */
	c = (struct tls_control){0};
	CU_ASSERT_EQUAL(take(&c, TLS_RECORD_HANDSHAKE, ticket, 3), TLS_CONTROL_GO_ON);
	CU_ASSERT(!tls_control_payload(&c, 1)); /* in the middle of its head */
	c = (struct tls_control){0};
	CU_ASSERT_EQUAL(tls_control_take(&c, TLS_RECORD_HANDSHAKE, ticket, 7, false), TLS_CONTROL_WRONG);
	c = (struct tls_control){0};
	CU_ASSERT_EQUAL(take(&c, TLS_RECORD_HANDSHAKE, ticket, 0), TLS_CONTROL_WRONG);
	CU_ASSERT_EQUAL(take(&c, 20, ticket, 1), TLS_CONTROL_WRONG);
	CU_ASSERT_EQUAL(take(&c, TLS_RECORD_DATA, ticket, 1), TLS_CONTROL_WRONG);
	CU_ASSERT_EQUAL(take(&c, TLS_RECORD_HANDSHAKE, ticket, 5), TLS_CONTROL_GO_ON);
	CU_ASSERT_EQUAL(take(&c, TLS_RECORD_ALERT, bad_mac, 2), TLS_CONTROL_WRONG);
	c = (struct tls_control){0};
	CU_ASSERT_EQUAL(take(&c, TLS_RECORD_ALERT, bad_mac, 2), TLS_CONTROL_FAILED);
	CU_ASSERT_EQUAL(c.head[1], TLS_ALERT_BAD_RECORD_MAC);
	c = (struct tls_control){0};
	CU_ASSERT_EQUAL(take(&c, TLS_RECORD_ALERT, close_notify, 1), TLS_CONTROL_GO_ON);
	CU_ASSERT_EQUAL(take(&c, TLS_RECORD_ALERT, close_notify + 1, 1), TLS_CONTROL_CLOSED);
	c = (struct tls_control){0};
	for (unsigned i = 0; i < TLS_MESSAGES_MAX; i++) {
		CU_ASSERT_EQUAL(take(&c, TLS_RECORD_HANDSHAKE, ticket, 7), TLS_CONTROL_GO_ON);
	}
	CU_ASSERT_EQUAL(take(&c, TLS_RECORD_HANDSHAKE, ticket, 7), TLS_CONTROL_FLOOD);
}

/* RFC 8448, 3: a secret of a server, its key, and its IV. Those with SHA-384 were computed by Python. */
static void test_keys_are_derived_as_rfc_8448_has_them(void)
{
	static const uint8_t secret[] = {0xa1, 0x1a, 0xf9, 0xf0, 0x55, 0x31, 0xf8, 0x56, 0xad, 0x47, 0x11,
					 0x6b, 0x45, 0xa9, 0x50, 0x32, 0x82, 0x04, 0xb4, 0xf4, 0x4b, 0xfb,
					 0x6b, 0x3a, 0x4b, 0x4f, 0x1f, 0x3f, 0xcb, 0x63, 0x16, 0x43};
	static const uint8_t key[] = {0x9f, 0x02, 0x28, 0x3b, 0x6c, 0x9c, 0x07, 0xef,
				      0xc2, 0x6b, 0xb9, 0xf2, 0xac, 0x92, 0xe3, 0x56};
	static const uint8_t iv[] = {0xcf, 0x78, 0x2b, 0x88, 0xdd, 0x83, 0x54, 0x9a, 0xad, 0xf1, 0xe9, 0x84};
	uint8_t got[32], long_secret[48];

	CU_ASSERT_EQUAL(tls_expand_label(DHCHAP_HASH_SHA256, secret, "tls13 key", got, sizeof(key)), 0);
	CU_ASSERT_EQUAL(memcmp(got, key, sizeof(key)), 0);
	CU_ASSERT_EQUAL(tls_expand_label(DHCHAP_HASH_SHA256, secret, "tls13 iv", got, sizeof(iv)), 0);
	CU_ASSERT_EQUAL(memcmp(got, iv, sizeof(iv)), 0);
	for (unsigned i = 0; i < sizeof(long_secret); i++) {
		long_secret[i] = (uint8_t)(7 + 3 * i);
	}
	static const uint8_t iv_384[] = {0x66, 0x00, 0x51, 0x3f, 0xa5, 0x0c, 0xd5, 0x0d, 0x85, 0x59, 0x20, 0x20};
	CU_ASSERT_EQUAL(tls_expand_label(DHCHAP_HASH_SHA384, long_secret, "tls13 iv", got, sizeof(iv_384)), 0);
	CU_ASSERT_EQUAL(memcmp(got, iv_384, sizeof(iv_384)), 0);
}

#define RANDOM "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static void test_secrets_are_read_from_lines(void)
{
	struct tls_secrets s = {0};
	static const char *const wrong[] = {
		"",
		"CLIENT_TRAFFIC_SECRET_0",
		"CLIENT_TRAFFIC_SECRET_0 ",
		"CLIENT_TRAFFIC_SECRET_0 " RANDOM,
		"CLIENT_TRAFFIC_SECRET_0 " RANDOM " ",
		"CLIENT_TRAFFIC_SECRET_0 " RANDOM " 012",
		"CLIENT_TRAFFIC_SECRET_0 " RANDOM " 0x",
		"CLIENT_TRAFFIC_SECRET_0 " RANDOM " " RANDOM RANDOM, /* too long */
		"CLIENT_HANDSHAKE_TRAFFIC_SECRET " RANDOM " 0123",
		"EXPORTER_SECRET " RANDOM " 0123",
	};

	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		tls_secrets_take(&s, wrong[i]);
		CU_ASSERT(s.client_len == 0 && s.server_len == 0);
	}
	tls_secrets_take(&s, "CLIENT_TRAFFIC_SECRET_0 " RANDOM " 0123ab");
	CU_ASSERT(s.client_len == 3 && memcmp(s.client, "\x01\x23\xab", 3) == 0 && s.server_len == 0);
	tls_secrets_take(&s, "SERVER_TRAFFIC_SECRET_0 " RANDOM " " RANDOM);
	CU_ASSERT(s.server_len == 32 && s.server[1] == 0x11 && s.client_len == 3);
}

static const struct unit_test tests[] = {
	UNIT(test_each_reason_is_told_once_and_that_a_host_has_gone_is_none), /* before others make the log say it */
	UNIT(test_the_kernel_has_the_records_of_either_side_and_of_both),
	UNIT(test_what_the_kernel_does_not_do_is_done_by_openssl),
	UNIT(test_a_changed_record_ends_the_connection),
	UNIT(test_an_alert_ends_the_connection),
	UNIT(test_a_full_socket_is_no_error),
	UNIT(test_tickets_are_dropped),
	UNIT(test_a_key_update_ends_the_connection),
	UNIT(test_a_host_that_asks_for_short_records_gets_them),
	UNIT(test_messages_are_taken_apart_in_pieces_of_any_size),
	UNIT(test_nothing_comes_behind_new_keys),
	UNIT(test_messages_that_may_not_come_are_found),
	UNIT(test_keys_are_derived_as_rfc_8448_has_them),
	UNIT(test_secrets_are_read_from_lines),
	UNIT_END,
};
UNIT_MAIN(RECORDS_SUITE("tls-kernel"), tests, records_setup, NULL)

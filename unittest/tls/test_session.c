/* SPDX-License-Identifier: BSD-3-Clause */
/* TLS sessions: a host's and a controller's over a pair of sockets. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <openssl/ssl.h>
#include "tls/session.h"
#include "tls/wire.h"
#include "unittest/tls/heap.h"
#include "unittest/tls/records.h"
#include "unittest/unit.h"

#define HOSTNQN "nqn.2026-11.io.varve:host"
#define SUBNQN  "nqn.2026-11.io.varve:a"

static struct tls_psk configured; /* what the controller has for that host and subsystem */
static unsigned searches;

static bool find_psk(void *arg, const struct tls_identity *identity, struct tls_psk *psk)
{
	searches++;
	*psk = configured;
	return strcmp(identity->hostnqn, HOSTNQN) == 0 && strcmp(identity->subnqn, SUBNQN) == 0;
}

struct pair {
	int fds[2];
	struct tls_session *host, *ctrlr;
	enum tls_step host_step, ctrlr_step;
};

static struct tls_psk psk_of(unsigned hash, unsigned len, uint8_t first)
{
	struct tls_psk psk = {.hash = (uint8_t)hash, .len = (uint8_t)len};

	for (unsigned i = 0; i < len; i++) {
		psk.bytes[i] = (uint8_t)(first + 5 * i);
	}
	return psk;
}

static void open_pair(struct pair *p, const struct tls_psk *psk, const char *hostnqn, unsigned version)
{
	struct tls_credential c;

	*p = (struct pair){.host_step = TLS_STEP_READ, .ctrlr_step = TLS_STEP_READ};
	CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, p->fds), 0);
	CU_ASSERT_EQUAL_FATAL(tls_credential_make(psk, hostnqn, SUBNQN, version, &c), 0);
	p->host = tls_session_client(p->fds[0], &c);
	p->ctrlr = tls_session_server(p->fds[1], find_psk, NULL);
	CU_ASSERT_FATAL(p->host != NULL && p->ctrlr != NULL);
}

static void close_pair(struct pair *p)
{
	tls_session_free(p->host);
	tls_session_free(p->ctrlr);
	close(p->fds[0]);
	close(p->fds[1]);
}

static bool goes_on(enum tls_step step)
{
	return step == TLS_STEP_READ || step == TLS_STEP_WRITE;
}

/* As far as it goes. */
static void handshake(struct pair *p)
{
	for (unsigned i = 0; i < 20; i++) {
		if (goes_on(p->host_step)) {
			p->host_step = tls_session_step(p->host, SIZE_MAX);
		}
		if (goes_on(p->ctrlr_step)) {
			p->ctrlr_step = tls_session_step(p->ctrlr, SIZE_MAX);
		}
	}
}

static void connect_pair(struct pair *p)
{
	configured = psk_of(DHCHAP_HASH_SHA256, 32, 1);
	open_pair(p, &configured, HOSTNQN, 1);
	handshake(p);
	CU_ASSERT_EQUAL_FATAL(p->host_step, TLS_STEP_DONE);
	CU_ASSERT_EQUAL_FATAL(p->ctrlr_step, TLS_STEP_DONE);
}

static void test_keys_of_all_kinds_connect(void)
{
	static const struct {
		unsigned hash, len;
	} kinds[] = {
		{DHCHAP_HASH_NONE, 32}, {DHCHAP_HASH_NONE, 48}, {DHCHAP_HASH_SHA256, 32}, {DHCHAP_HASH_SHA384, 48}};

	for (unsigned i = 0; i < 2 * sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct pair p;

		configured = psk_of(kinds[i / 2].hash, kinds[i / 2].len, 9);
		open_pair(&p, &configured, HOSTNQN, i % 2);
		handshake(&p);
		CU_ASSERT_EQUAL(p.host_step, TLS_STEP_DONE);
		CU_ASSERT_EQUAL(p.ctrlr_step, TLS_STEP_DONE);
		CU_ASSERT_STRING_EQUAL(tls_session_identity(p.ctrlr)->hostnqn, HOSTNQN);
		CU_ASSERT_STRING_EQUAL(tls_session_identity(p.ctrlr)->subnqn, SUBNQN);
		close_pair(&p);
	}
}

static void refuse(const struct tls_psk *psk, const char *hostnqn, unsigned version, const char *why)
{
	struct pair p;

	open_pair(&p, psk, hostnqn, version);
	handshake(&p);
	CU_ASSERT_EQUAL(p.host_step, TLS_STEP_FAILED);
	CU_ASSERT_EQUAL(p.ctrlr_step, TLS_STEP_FAILED);
	CU_ASSERT_PTR_NOT_NULL(strstr(tls_session_why(p.ctrlr), why));
	CU_ASSERT_NOT_EQUAL(tls_session_why(p.host)[0], '\0');
	close_pair(&p);
}

static void test_a_host_with_another_key_is_refused(void)
{
	struct tls_psk other = psk_of(DHCHAP_HASH_SHA256, 32, 2), longer = psk_of(DHCHAP_HASH_SHA384, 48, 1),
		       untransformed = psk_of(DHCHAP_HASH_NONE, 32, 1);

	configured = psk_of(DHCHAP_HASH_SHA256, 32, 1);
	refuse(&other, HOSTNQN, 0, "has another key than the psk for " SUBNQN);
	refuse(&other, HOSTNQN, 1, "is of another key than");
	refuse(&longer, HOSTNQN, 0, "is of another key than");
	refuse(&longer, HOSTNQN, 1, "is of another key than");
	refuse(&untransformed, HOSTNQN, 0, "has another key than the psk for " SUBNQN);
	refuse(&untransformed, HOSTNQN, 1, "is of another key than");
}

static void test_a_host_that_derives_otherwise_is_told_apart(void)
{
	for (unsigned version = 0; version < TLS_IDENTITY_VERSIONS; version++) {
		struct tls_psk right = psk_of(DHCHAP_HASH_SHA256, 32, 1), compat = right;
		struct pair p;

		compat.compat = true;
		configured = right;
		refuse(&compat, HOSTNQN, version,
		       version == 0 ? "derives from it in another way (psk_compat)" : "psk_compat says");
		configured = compat;
		refuse(&right, HOSTNQN, version,
		       version == 0 ? "derives from it in another way (psk_compat)" : "psk_compat says");
		open_pair(&p, &compat, HOSTNQN, version);
		handshake(&p);
		CU_ASSERT_EQUAL(p.ctrlr_step, TLS_STEP_DONE);
		close_pair(&p);
	}
}

static void test_a_host_without_a_key_is_refused(void)
{
	configured = psk_of(DHCHAP_HASH_SHA256, 32, 1);
	refuse(&configured, HOSTNQN "2", 0, "host " HOSTNQN "2 has no psk for " SUBNQN);
	refuse(&configured, HOSTNQN "2", 1, "host " HOSTNQN "2 has no psk for " SUBNQN);
}

static void test_a_host_is_not_fooled_by_a_controller_with_another_key(void)
{
	struct tls_psk psk = psk_of(DHCHAP_HASH_SHA256, 32, 1);
	struct pair p;

	configured = psk_of(DHCHAP_HASH_SHA256, 32, 3);
	open_pair(&p, &psk, HOSTNQN, 0);
	handshake(&p);
	CU_ASSERT_EQUAL(p.host_step, TLS_STEP_FAILED);
	close_pair(&p);
}

static void test_what_is_not_tls_is_refused(void)
{
	struct pair p;
	char nothing[128] = {0};

	configured = psk_of(DHCHAP_HASH_SHA256, 32, 1);
	open_pair(&p, &configured, HOSTNQN, 1);
	CU_ASSERT_EQUAL(send(p.fds[0], nothing, sizeof(nothing), 0), (ssize_t)sizeof(nothing));
	CU_ASSERT_EQUAL(tls_session_step(p.ctrlr, SIZE_MAX), TLS_STEP_FAILED);
	close_pair(&p);
}

static void test_a_handshake_that_is_cut_off_fails(void)
{
	struct pair p;

	configured = psk_of(DHCHAP_HASH_SHA256, 32, 1);
	open_pair(&p, &configured, HOSTNQN, 1);
	CU_ASSERT_EQUAL(tls_session_step(p.ctrlr, SIZE_MAX), TLS_STEP_READ);
	shutdown(p.fds[0], SHUT_WR);
	CU_ASSERT_EQUAL(tls_session_step(p.ctrlr, SIZE_MAX), TLS_STEP_FAILED);
	CU_ASSERT_PTR_NOT_NULL(strstr(tls_session_why(p.ctrlr), "closed the connection in the handshake"));
	close_pair(&p);
}

static void test_a_step_takes_no_more_than_it_may(void)
{
	struct pair p;

	configured = psk_of(DHCHAP_HASH_SHA256, 32, 1);
	open_pair(&p, &configured, HOSTNQN, 1);
	CU_ASSERT_EQUAL(tls_session_step(p.host, SIZE_MAX), TLS_STEP_READ);
	CU_ASSERT_EQUAL(tls_session_step(p.ctrlr, 7), TLS_STEP_READ);
	uint8_t rest[4096];
	ssize_t left = recv(p.fds[1], rest, sizeof(rest), MSG_PEEK);
	CU_ASSERT(left > 100);
	CU_ASSERT_EQUAL(tls_session_step(p.ctrlr, (size_t)left), TLS_STEP_READ);
	CU_ASSERT_EQUAL(recv(p.fds[1], rest, sizeof(rest), MSG_PEEK), -1);
	close_pair(&p);
}

static void add_to_be16(uint8_t *at, size_t n)
{
	size_t sum = ((size_t)at[0] << 8 | at[1]) + n;

	at[0] = (uint8_t)(sum >> 8);
	at[1] = (uint8_t)sum;
}

/* Puts identities of a stranger before the one of a ClientHello. Its length then. */
static size_t offer_more(uint8_t *hello, size_t len, unsigned count)
{
	static const char stranger[] = "NVMe0R01 " HOSTNQN "2 " SUBNQN;
	size_t each = 2 + sizeof(stranger) - 1 + 4, more = count * each;
	uint8_t *list = memmem(hello, len, "NVMe1R01", 8), *exts = hello + 5 + 4 + 2 + 32;

	CU_ASSERT_PTR_NOT_NULL_FATAL(list);
	list -= 2;
	exts += 1 + exts[0];
	exts += 2 + (size_t)(exts[0] << 8 | exts[1]);
	exts += 1 + exts[0];
	add_to_be16(hello + 3, more);
	add_to_be16(hello + 7, more);
	add_to_be16(exts, more);
	add_to_be16(list - 4, more);
	add_to_be16(list - 2, more);
	memmove(list + more, list, len - (size_t)(list - hello));
	memset(list, 0, more);
	for (unsigned i = 0; i < count; i++) {
		add_to_be16(list + i * each, sizeof(stranger) - 1);
		memcpy(list + i * each + 2, stranger, sizeof(stranger) - 1);
	}
	return len + more;
}

/* Those that a host offers beyond the fourth cost nothing. */
static void test_four_identities_are_looked_at(void)
{
	for (unsigned strangers = 3; strangers < 20; strangers += 8) {
		struct pair p;
		uint8_t hello[4096];

		configured = psk_of(DHCHAP_HASH_SHA256, 32, 1);
		open_pair(&p, &configured, HOSTNQN, 1);
		CU_ASSERT_EQUAL(tls_session_step(p.host, SIZE_MAX), TLS_STEP_READ);
		ssize_t n = recv(p.fds[1], hello, 2048, 0);
		CU_ASSERT_FATAL(n > 100);
		size_t len = offer_more(hello, (size_t)n, strangers);
		CU_ASSERT_EQUAL(send(p.fds[0], hello, len, 0), (ssize_t)len);
		searches = 0;
		CU_ASSERT_EQUAL(tls_session_step(p.ctrlr, SIZE_MAX), TLS_STEP_FAILED);
		CU_ASSERT_EQUAL(searches, 4);
		/* it is the right one, or none is; in both cases the host has signed something else */
		CU_ASSERT_EQUAL(strstr(tls_session_why(p.ctrlr), "has no psk for") == NULL, strangers == 3);
		close_pair(&p);
	}
}

/* ---- Payload ---- */

#define MOST 300000

static uint8_t sent[MOST], received[MOST];

/* Sends `length` bytes in pieces and reads them in others. */
static void move(struct tls_session *from, struct tls_session *to, size_t length, size_t sent_by, size_t read_by)
{
	size_t taken = 0, got = 0;

	memset(received, 0, length);
	for (unsigned i = 0; i < 100000 && got < length; i++) {
		struct iovec out[7], in[3];
		unsigned n = 0, m = 0;

		for (size_t at = taken; at < length && n < 7; at += sent_by, n++) {
			out[n] = (struct iovec){sent + at, length - at < sent_by ? length - at : sent_by};
		}
		ssize_t w = tls_session_write(from, out, n);
		CU_ASSERT_FATAL(w >= 0);
		taken += (size_t)w;
		for (size_t at = got; at < length && m < 3; at += read_by, m++) {
			in[m] = (struct iovec){received + at, length - at < read_by ? length - at : read_by};
		}
		ssize_t r = tls_session_read(to, in, m);
		CU_ASSERT_FATAL(r > 0 || r == -EAGAIN);
		got += r > 0 ? (size_t)r : 0;
	}
	CU_ASSERT_EQUAL(got, length);
	CU_ASSERT_EQUAL(taken, length);
	CU_ASSERT_EQUAL(memcmp(sent, received, length), 0);
	CU_ASSERT(!tls_session_has_unsent(from));
}

static void test_payload_of_all_sizes_arrives(void)
{
	static const size_t lengths[] = {1, 2, 24, 128, 4096, 16383, 16384, 16385, 32768, 70000, MOST};
	static const size_t pieces[] = {1, 100, 4096, 16384, 16500, MOST};
	struct pair p;

	connect_pair(&p);
	for (size_t i = 0; i < MOST; i++) {
		sent[i] = (uint8_t)(i * 7 + i / 251);
	}
	for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		for (unsigned j = 0; j < sizeof(pieces) / sizeof(pieces[0]); j++) {
			if (lengths[i] / pieces[j] < 5000) {
				move(p.host, p.ctrlr, lengths[i], pieces[j], 4096);
				move(p.ctrlr, p.host, lengths[i], 8192, pieces[j]);
			}
		}
	}
	close_pair(&p);
}

static void test_what_does_not_fit_waits(void)
{
	struct pair p;
	size_t taken = 0, got = 0;
	ssize_t n;

	connect_pair(&p);
	for (unsigned i = 0; i < 1000; i++) { /* until the socket is full */
		struct iovec out = {sent, MOST};

		n = tls_session_write(p.host, &out, 1);
		CU_ASSERT_FATAL(n >= 0);
		taken += (size_t)n;
		if (n == 0) {
			break;
		}
	}
	CU_ASSERT(tls_session_has_unsent(p.host));
	CU_ASSERT(!tls_session_send_now(p.host, sent, 1));
	for (unsigned i = 0; i < 10000 && got < taken; i++) {
		struct iovec in = {received, MOST};

		n = tls_session_read(p.ctrlr, &in, 1);
		got += n > 0 ? (size_t)n : 0;
		CU_ASSERT(tls_session_write(p.host, NULL, 0) >= 0);
	}
	CU_ASSERT_EQUAL(got, taken);
	CU_ASSERT(!tls_session_has_unsent(p.host));
	close_pair(&p);
}

static void test_a_reader_without_room_is_told_that_there_is_more(void)
{
	struct iovec out = {sent, 10000}, in = {received, 4000};
	struct pair p;

	connect_pair(&p);
	CU_ASSERT_EQUAL(tls_session_write(p.host, &out, 1), 10000);
	CU_ASSERT_EQUAL(tls_session_read(p.ctrlr, &in, 1), 4000);
	CU_ASSERT(tls_session_has_more(p.ctrlr));
	CU_ASSERT_EQUAL(recv(p.fds[1], received, 1, MSG_PEEK), -1); /* the socket is empty */
	CU_ASSERT_EQUAL(tls_session_read(p.ctrlr, &in, 1), 4000);
	CU_ASSERT_EQUAL(tls_session_read(p.ctrlr, &in, 1), 2000);
	CU_ASSERT(!tls_session_has_more(p.ctrlr));
	CU_ASSERT_EQUAL(tls_session_read(p.ctrlr, &in, 1), -EAGAIN);
	close_pair(&p);
}

static void test_the_end_is_told(void)
{
	struct iovec in = {received, 4000};
	struct pair p;

	connect_pair(&p);
	CU_ASSERT(tls_session_send_now(p.host, "x", 1));
	tls_session_end(p.host);
	CU_ASSERT_EQUAL(tls_session_read(p.ctrlr, &in, 1), 1);
	CU_ASSERT_EQUAL(tls_session_read(p.ctrlr, &in, 1), -ECONNRESET);
	CU_ASSERT_EQUAL(tls_session_read(p.ctrlr, &in, 1), -ECONNRESET);
	close_pair(&p);
	connect_pair(&p);
	shutdown(p.fds[0], SHUT_WR);
	CU_ASSERT_EQUAL(tls_session_read(p.ctrlr, &in, 1), -ECONNRESET);
	CU_ASSERT(tls_session_write(p.ctrlr, &in, 1) < 0);
	close_pair(&p);
}

static void test_a_changed_record_ends_the_connection(void)
{
	struct iovec in = {received, 4000};
	uint8_t record[400];
	struct pair p;

	connect_pair(&p);
	CU_ASSERT(tls_session_send_now(p.host, sent, 100));
	ssize_t n = recv(p.fds[1], record, sizeof(record), 0);
	CU_ASSERT_FATAL(n > 100);
	record[50] ^= 1;
	CU_ASSERT_EQUAL(send(p.fds[0], record, (size_t)n, 0), n);
	CU_ASSERT_EQUAL(tls_session_read(p.ctrlr, &in, 1), -EPROTO);
	CU_ASSERT_PTR_NOT_NULL(strstr(tls_session_why(p.ctrlr), "bad record mac"));
	CU_ASSERT_EQUAL(tls_session_read(p.ctrlr, &in, 1), -EPROTO);
	CU_ASSERT(!tls_session_send_now(p.ctrlr, sent, 1));
	close_pair(&p);
}

/* ---- A host that does what varve's does not ---- */

struct odd_host {
	int fds[2];
	SSL_CTX *ctx;
	SSL *ssl;
	struct tls_credential credential;
	struct tls_session *ctrlr;
};

static int use_key(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_len, SSL_SESSION **psk)
{
	static const uint8_t suite[] = {0x13, 0x01};
	const struct tls_credential *c = SSL_get_app_data(ssl);

	*psk = SSL_SESSION_new();
	*id = (const unsigned char *)c->identity;
	*id_len = strlen(c->identity);
	return SSL_SESSION_set1_master_key(*psk, c->key, c->len) &&
	       SSL_SESSION_set_cipher(*psk, SSL_CIPHER_find(ssl, suite)) &&
	       SSL_SESSION_set_protocol_version(*psk, TLS1_3_VERSION);
}

static void open_odd_host(struct odd_host *h)
{
	configured = psk_of(DHCHAP_HASH_SHA256, 32, 1);
	CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, h->fds), 0);
	CU_ASSERT_EQUAL_FATAL(tls_credential_make(&configured, HOSTNQN, SUBNQN, 1, &h->credential), 0);
	h->ctx = SSL_CTX_new(TLS_client_method());
	SSL_CTX_set_psk_use_session_callback(h->ctx, use_key);
	h->ssl = SSL_new(h->ctx);
	SSL_set_app_data(h->ssl, &h->credential);
	SSL_set_ciphersuites(h->ssl, "TLS_AES_128_GCM_SHA256");
	SSL_set_fd(h->ssl, h->fds[0]);
	h->ctrlr = tls_session_server(h->fds[1], find_psk, NULL);
	CU_ASSERT_PTR_NOT_NULL_FATAL(h->ctrlr);
	enum tls_step step = TLS_STEP_READ;
	for (unsigned i = 0; i < 20 && step == TLS_STEP_READ; i++) {
		(void)SSL_connect(h->ssl);
		step = tls_session_step(h->ctrlr, SIZE_MAX);
	}
	CU_ASSERT_EQUAL_FATAL(step, TLS_STEP_DONE);
	SSL_set0_wbio(h->ssl, BIO_new(BIO_s_mem()));
}

/* What it has written, at once: a socket has no room for so many small pieces. */
static void flush_odd_host(struct odd_host *h)
{
	char *bytes;
	long n = BIO_get_mem_data(SSL_get_wbio(h->ssl), &bytes);

	CU_ASSERT_EQUAL_FATAL(send(h->fds[0], bytes, (size_t)n, 0), n);
	(void)BIO_reset(SSL_get_wbio(h->ssl));
}

static void close_odd_host(struct odd_host *h)
{
	SSL_free(h->ssl);
	SSL_CTX_free(h->ctx);
	tls_session_free(h->ctrlr);
	close(h->fds[0]);
	close(h->fds[1]);
}

static void update_keys(struct odd_host *h, unsigned times, int type)
{
	for (unsigned i = 0; i < times; i++) {
		CU_ASSERT_FATAL(SSL_key_update(h->ssl, type) == 1 && SSL_do_handshake(h->ssl) == 1);
	}
}

/* Each KeyUpdate ends a read. */
static ssize_t read_behind_updates(struct odd_host *h, const struct iovec *in)
{
	ssize_t n;

	do {
		n = tls_session_read(h->ctrlr, in, 1);
	} while (n == -EAGAIN && tls_session_has_more(h->ctrlr));
	return n;
}

static void test_a_flood_of_key_updates_ends_the_connection(void)
{
	for (unsigned updates = 17; updates < 2000; updates += 983) {
		struct iovec in = {received, 4000};
		struct odd_host h;

		open_odd_host(&h);
		update_keys(&h, updates, SSL_KEY_UPDATE_NOT_REQUESTED);
		CU_ASSERT_EQUAL(SSL_write(h.ssl, "x", 1), 1);
		flush_odd_host(&h);
		CU_ASSERT_EQUAL(read_behind_updates(&h, &in), -EPROTO);
		CU_ASSERT_PTR_NOT_NULL(strstr(tls_session_why(h.ctrlr), "KeyUpdate"));
		CU_ASSERT_EQUAL(tls_session_read(h.ctrlr, &in, 1), -EPROTO);
		CU_ASSERT(tls_session_write(h.ctrlr, &in, 1) < 0);
		close_odd_host(&h);
	}
}

static void test_some_key_updates_between_payload_are_answered(void)
{
	struct iovec in = {received, 4000}, out = {sent, 1000};
	struct odd_host h;
	uint8_t back[1000];

	open_odd_host(&h);
	for (unsigned i = 0; i < TLS_UPDATES_MAX / 4; i++) {
		update_keys(&h, 4, i % 2 ? SSL_KEY_UPDATE_REQUESTED : SSL_KEY_UPDATE_NOT_REQUESTED);
		CU_ASSERT_EQUAL(SSL_write(h.ssl, sent, 100), 100);
		flush_odd_host(&h);
		CU_ASSERT_EQUAL(read_behind_updates(&h, &in), 100);
		CU_ASSERT_EQUAL(tls_session_write(h.ctrlr, &out, 1), 1000);
		CU_ASSERT_EQUAL(SSL_read(h.ssl, back, sizeof(back)), 1000);
		CU_ASSERT_EQUAL(memcmp(back, sent, sizeof(back)), 0);
	}
	close_odd_host(&h);
}

/* However the records are cut: one read takes only so many, and says that there is more. */
static void test_many_small_records_are_read_in_turns(void)
{
	struct iovec in = {received, MOST};
	struct odd_host h;
	size_t got = 0, most = 0;
	unsigned reads = 0;

	open_odd_host(&h);
	for (unsigned i = 0; i < 700; i++) {
		CU_ASSERT_EQUAL_FATAL(SSL_write(h.ssl, sent + i, 1), 1);
	}
	flush_odd_host(&h);
	for (; got < 700 && reads < 700; reads++) {
		ssize_t n = tls_session_read(h.ctrlr, &(struct iovec){received + got, MOST - got}, 1);
		CU_ASSERT_FATAL(n > 0);
		got += (size_t)n;
		most = (size_t)n > most ? (size_t)n : most;
		CU_ASSERT(tls_session_has_more(h.ctrlr) || got == 700);
	}
	CU_ASSERT_EQUAL(got, 700);
	CU_ASSERT(most <= 256);
	CU_ASSERT_EQUAL(memcmp(sent, received, got), 0);
	CU_ASSERT_EQUAL(tls_session_read(h.ctrlr, &in, 1), -EAGAIN);
	CU_ASSERT(!tls_session_has_more(h.ctrlr));
	close_odd_host(&h);
}

static void test_the_pre_shared_key_is_forgotten(void)
{
	struct tls_credential c;
	struct pair p;

	connect_pair(&p);
	CU_ASSERT_EQUAL(tls_credential_make(&configured, HOSTNQN, SUBNQN, 1, &c), 0);
	CU_ASSERT_EQUAL(count_in_heap(c.key, c.len), 0);
	close_pair(&p);
}

/* ---- Before OpenSSL ---- */

static void test_records_have_a_head(void)
{
	static const uint8_t hello[] = {22, 3, 1, 2, 0}, data[] = {23, 3, 3, 0x41, 0}, over[] = {23, 3, 3, 0x41, 1},
			     none[] = {23, 3, 3, 0, 0}, plain[] = {0, 0, 128, 0, 128}, high[] = {24, 3, 3, 0, 1},
			     old[] = {22, 2, 1, 2, 0};

	for (size_t n = 1; n < 5; n++) {
		CU_ASSERT_EQUAL(tls_record_bytes(hello, n, true), 5);
		CU_ASSERT_EQUAL(tls_record_bytes(plain, n, true), -1);
		CU_ASSERT_EQUAL(tls_record_bytes(data, n, true), -1);
		CU_ASSERT_EQUAL(tls_record_bytes(data, n, false), 5);
	}
	CU_ASSERT_EQUAL(tls_record_bytes(hello, 5, true), 517);
	CU_ASSERT_EQUAL(tls_record_bytes(data, 5, false), 5 + 16384 + 256);
	CU_ASSERT_EQUAL(tls_record_bytes(over, 5, false), -1);
	CU_ASSERT_EQUAL(tls_record_bytes(none, 5, false), -1);
	CU_ASSERT_EQUAL(tls_record_bytes(high, 1, false), -1);
	CU_ASSERT_EQUAL(tls_record_bytes(old, 2, true), -1);
}

static void test_offered_identities_are_taken_apart(void)
{
	static const uint8_t ext[] = {0, 15, 0, 3, 'a', 'b', 'c', 0, 0, 0, 0, 0, 0, 9, 9, 9, 9, 1, 2};
	size_t at = 0, len;
	const char *text;

	CU_ASSERT(tls_offer_next(ext, sizeof(ext), &at, &text, &len));
	CU_ASSERT(len == 3 && memcmp(text, "abc", 3) == 0);
	CU_ASSERT(tls_offer_next(ext, sizeof(ext), &at, &text, &len));
	CU_ASSERT_EQUAL(len, 0);
	CU_ASSERT(!tls_offer_next(ext, sizeof(ext), &at, &text, &len));
	for (size_t n = 0; n < 17; n++) { /* the list is longer than its extension */
		at = 0;
		CU_ASSERT(!tls_offer_next(ext, n, &at, &text, &len));
	}
	for (uint8_t n = 0; n < 9; n++) { /* the first is longer than the list */
		const uint8_t cut[] = {0, n, 0, 3, 'a', 'b', 'c', 0, 0, 0, 0};
		at = 0;
		CU_ASSERT(!tls_offer_next(cut, sizeof(cut), &at, &text, &len));
	}
}

static const struct unit_test tests[] = {
	UNIT(test_keys_of_all_kinds_connect),
	UNIT(test_a_host_with_another_key_is_refused),
	UNIT(test_a_host_that_derives_otherwise_is_told_apart),
	UNIT(test_a_host_without_a_key_is_refused),
	UNIT(test_a_host_is_not_fooled_by_a_controller_with_another_key),
	UNIT(test_what_is_not_tls_is_refused),
	UNIT(test_a_handshake_that_is_cut_off_fails),
	UNIT(test_a_step_takes_no_more_than_it_may),
	UNIT(test_four_identities_are_looked_at),
	UNIT(test_payload_of_all_sizes_arrives),
	UNIT(test_what_does_not_fit_waits),
	UNIT(test_a_reader_without_room_is_told_that_there_is_more),
	UNIT(test_the_end_is_told),
	UNIT(test_a_changed_record_ends_the_connection),
	UNIT(test_a_flood_of_key_updates_ends_the_connection),
	UNIT(test_some_key_updates_between_payload_are_answered),
	UNIT(test_many_small_records_are_read_in_turns),
	UNIT(test_the_pre_shared_key_is_forgotten),
	UNIT(test_records_have_a_head),
	UNIT(test_offered_identities_are_taken_apart),
	UNIT_END,
};
UNIT_MAIN(RECORDS_SUITE("tls-session"), tests, records_setup, NULL)

/* SPDX-License-Identifier: BSD-3-Clause */
/* Records: those of a pair of keys, and what a session does with records that a host of varve would not send. The host
 * here has its handshake made by OpenSSL, and then makes its records itself. */
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <openssl/ssl.h>
#include "tls/kernel.h"
#include "tls/record.h"
#include "tls/session.h"
#include "unittest/tls/heap.h"
#include "unittest/tls/records.h"
#include "unittest/unit.h"
#include "util/secret.h"

#define HOSTNQN "nqn.2026-11.io.varve:host"
#define SUBNQN  "nqn.2026-11.io.varve:a"

static uint8_t sent[TLS_RECORD_CONTENT_MAX], received[TLS_RECORD_CONTENT_MAX + 1], record[TLS_RECORD_MAX];

/* ---- A pair of keys ---- */

static const unsigned hashes[] = {DHCHAP_HASH_SHA256, DHCHAP_HASH_SHA384};
static struct tls_keys sealer, opener;

static void begin_keys(unsigned hash)
{
	static const uint8_t secret[TLS_PSK_MAX] = {5, 4, 3, 2, 1};

	CU_ASSERT_EQUAL_FATAL(tls_keys_begin(&sealer, hash, secret, true), 0);
	CU_ASSERT_EQUAL_FATAL(tls_keys_begin(&opener, hash, secret, false), 0);
	for (size_t i = 0; i < sizeof(sent); i++) {
		sent[i] = (uint8_t)(i * 7 + i / 251 + 1);
	}
}

static void end_keys(void)
{
	tls_keys_end(&sealer);
	tls_keys_end(&opener);
}

static struct iov_cursor cut(struct iovec *iovs, uint8_t *bytes, size_t length, size_t piece)
{
	unsigned n = 0;

	for (size_t at = 0; at < length; at += piece) {
		iovs[n++] = (struct iovec){bytes + at, length - at < piece ? length - at : piece};
	}
	return (struct iov_cursor){.iov = iovs};
}

/* The bytes of a record, made of one piece. */
static size_t seal(struct tls_keys *k, uint8_t type, const void *bytes, size_t length)
{
	struct iovec iov = {(void *)(uintptr_t)bytes, length};
	struct iov_cursor from = {.iov = &iov};
	ssize_t n = tls_record_seal(k, type, &from, length, record);

	CU_ASSERT_EQUAL_FATAL(n, (ssize_t)(length + TLS_RECORD_EXTRA));
	CU_ASSERT_EQUAL(tls_data_record_bytes(record), (int)n);
	return (size_t)n;
}

static int open_it(struct tls_keys *k, size_t bytes, uint8_t *type, size_t *length)
{
	struct iovec iov = {received, sizeof(received)};

	return tls_record_open(k, record, bytes, iov_cursor_at(&iov, 0), type, length);
}

static void test_content_of_all_sizes_and_cuts_comes_out(void)
{
	static const size_t lengths[] = {0, 1, 15, 16, 17, 24, 287, 288, 289, 4096, 16383, 16384},
			    pieces[] = {1, 24, 100, 4096, 16384};
	static struct iovec iovs[TLS_RECORD_CONTENT_MAX];

	for (unsigned i = 0; i < 2 * 12 * 5 * 5; i++) {
		size_t length = lengths[i / 50], in = pieces[i / 10 % 5], out = pieces[i / 2 % 5], got;
		uint8_t type;

		begin_keys(hashes[i % 2]);
		struct iov_cursor from = cut(iovs, sent, length, in);
		CU_ASSERT_EQUAL(tls_record_seal(&sealer, TLS_RECORD_DATA, &from, length, record),
				(ssize_t)(length + TLS_RECORD_EXTRA));
		memset(received, 0, sizeof(received));
		struct iov_cursor to = cut(iovs, received, length, out);
		CU_ASSERT_EQUAL(tls_record_open(&opener, record, length + TLS_RECORD_EXTRA, to, &type, &got), 0);
		CU_ASSERT(type == TLS_RECORD_DATA && got == length && memcmp(sent, received, length) == 0);
		CU_ASSERT_EQUAL(received[length], 0);
		end_keys();
	}
}

static void test_a_record_that_is_changed_anywhere_is_refused(void)
{
	size_t got;
	uint8_t type;

	for (size_t at = 0; at < 40 + TLS_RECORD_EXTRA; at++) {
		begin_keys(hashes[at % 2]);
		size_t n = seal(&sealer, TLS_RECORD_DATA, sent, 40);
		record[at] ^= (uint8_t)(1u << at % 8);
		CU_ASSERT_EQUAL(open_it(&opener, n, &type, &got), -EBADMSG);
		end_keys();
	}
}

static void test_a_record_is_good_once_and_in_its_turn(void)
{
	uint8_t first[100], type;
	size_t got;

	begin_keys(DHCHAP_HASH_SHA256);
	size_t n = seal(&sealer, TLS_RECORD_DATA, sent, 40);
	memcpy(first, record, n);
	CU_ASSERT_EQUAL(open_it(&opener, n, &type, &got), 0);
	CU_ASSERT_EQUAL(open_it(&opener, n, &type, &got), -EBADMSG); /* twice */
	end_keys();
	begin_keys(DHCHAP_HASH_SHA256);
	(void)seal(&sealer, TLS_RECORD_DATA, sent, 40);
	n = seal(&sealer, TLS_RECORD_DATA, sent, 40);
	CU_ASSERT_NOT_EQUAL(memcmp(first, record, n), 0);
	CU_ASSERT_EQUAL(open_it(&opener, n, &type, &got), -EBADMSG); /* the second first */
	end_keys();
}

static void test_new_keys_are_those_of_both_sides(void)
{
	uint8_t type;
	size_t got;

	for (unsigned i = 0; i < 2; i++) {
		begin_keys(hashes[i]);
		for (unsigned update = 0; update < 3; update++) {
			CU_ASSERT_EQUAL(tls_keys_update(&sealer), 0);
			CU_ASSERT_EQUAL(tls_keys_update(&opener), 0);
			CU_ASSERT_EQUAL(open_it(&opener, seal(&sealer, 22, sent, 9), &type, &got), 0);
			CU_ASSERT(type == 22 && got == 9);
		}
		CU_ASSERT_EQUAL(tls_keys_update(&sealer), 0);
		CU_ASSERT_EQUAL(open_it(&opener, seal(&sealer, 22, sent, 9), &type, &got), -EBADMSG);
		end_keys();
	}
}

static bool refuse_key(void *gcm, const uint8_t *key)
{
	return false;
}

/* The number would begin anew with the key before. */
static void test_keys_that_cannot_be_changed_are_not_used_again(void)
{
	struct iovec iov = {sent, 10};
	struct iov_cursor from = {.iov = &iov};
	struct tls_gcm_engine refusing;
	uint8_t type;
	size_t got;

	begin_keys(DHCHAP_HASH_SHA256);
	size_t n = seal(&sealer, 23, sent, 10);
	refusing = *sealer.engine;
	refusing.set_key = refuse_key;
	sealer.engine = opener.engine = &refusing;
	CU_ASSERT_EQUAL(tls_keys_update(&sealer), -EIO);
	CU_ASSERT_EQUAL(tls_keys_update(&opener), -EIO);
	CU_ASSERT_EQUAL(tls_record_seal(&sealer, 23, &from, 10, record), -EIO);
	CU_ASSERT_EQUAL(open_it(&opener, n, &type, &got), -EBADMSG);
	CU_ASSERT_EQUAL(opener.number, UINT64_MAX);
	end_keys();
}

static void test_secrets_are_in_memory_for_keys(void)
{
	begin_keys(DHCHAP_HASH_SHA384);
	CU_ASSERT(secret_owns(sealer.secrets));
	CU_ASSERT(secret_owns(opener.secrets));
	end_keys();
	CU_ASSERT(sealer.secrets == NULL && sealer.cipher == NULL);
}

static void test_padding_is_no_content(void)
{
	static struct iovec iovs[TLS_RECORD_CONTENT_MAX];
	uint8_t padded[5000] = {0}, type;
	size_t got;

	begin_keys(DHCHAP_HASH_SHA256);
	for (size_t padding = 1; padding < 4500; padding += 211) {
		for (size_t piece = 1; piece < 6000; piece += 333) {
			memset(padded, 0, sizeof(padded));
			memcpy(padded, sent, 100);
			padded[100] = 23;
			size_t n = seal(&sealer, 0, padded, 100 + padding);
			struct iov_cursor to = cut(iovs, received, TLS_RECORD_CONTENT_MAX, piece);
			CU_ASSERT_EQUAL(tls_record_open(&opener, record, n, to, &type, &got), 0);
			CU_ASSERT(type == 23 && got == 100 && memcmp(sent, received, 100) == 0);
		}
	}
	memset(padded, 0, sizeof(padded));
	CU_ASSERT_EQUAL(open_it(&opener, seal(&sealer, 0, padded, 300), &type, &got), -ENOMSG);
	CU_ASSERT_EQUAL(open_it(&opener, seal(&sealer, 0, padded, 0), &type, &got), -ENOMSG);
	end_keys();
}

static void test_numbers_do_not_begin_anew(void)
{
	struct iovec iov = {sent, 10};
	struct iov_cursor from = {.iov = &iov};
	uint8_t type;
	size_t got;

	begin_keys(DHCHAP_HASH_SHA256);
	sealer.number = opener.number = UINT64_MAX - 1;
	size_t n = seal(&sealer, 23, sent, 10);
	CU_ASSERT_EQUAL(open_it(&opener, n, &type, &got), 0);
	CU_ASSERT_EQUAL(tls_record_seal(&sealer, 23, &from, 10, record), -EIO);
	CU_ASSERT_EQUAL(sealer.number, UINT64_MAX);
	CU_ASSERT_EQUAL(opener.number, UINT64_MAX);
	sealer.number = 0; /* what would open if numbers began anew */
	n = seal(&sealer, 23, sent, 10);
	CU_ASSERT_EQUAL(open_it(&opener, n, &type, &got), -EBADMSG);
	CU_ASSERT_EQUAL(opener.number, UINT64_MAX);
	end_keys();
}

static void test_heads_of_records_are_checked(void)
{
	static const struct {
		uint8_t head[TLS_RECORD_HEAD];
		int is;
	} heads[] = {
		{{23, 3, 3, 0, 17}, 22},           {{23, 3, 3, 0, 16}, -EBADMSG},
		{{23, 3, 3, 0, 0}, -EBADMSG},      {{23, 3, 3, 0x40, 17}, TLS_RECORD_MAX},
		{{23, 3, 3, 0x40, 18}, -EMSGSIZE}, {{23, 3, 3, 0xff, 0xff}, -EMSGSIZE},
		{{23, 2, 3, 0, 17}, -EINVAL},      {{22, 3, 3, 0, 17}, -EINVAL},
		{{21, 3, 3, 0, 17}, -EINVAL},      {{20, 3, 3, 0, 17}, -EINVAL},
		{{0, 0, 0, 0, 0}, -EINVAL},
	};

	for (unsigned i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
		CU_ASSERT_EQUAL(tls_data_record_bytes(heads[i].head), heads[i].is);
	}
}

/* ---- A session ---- */

static struct tls_psk psk = {.hash = DHCHAP_HASH_SHA256, .len = 32, .bytes = {1, 2, 3}};

struct host {
	int fds[2];
	struct tls_credential credential;
	struct tls_secrets secrets;
	struct tls_keys tx, rx;
	struct tls_session *ctrlr;
};

static bool find_psk(void *arg, const struct tls_identity *identity, struct tls_psk *found)
{
	*found = psk;
	return true;
}

static int use_key(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_len, SSL_SESSION **session)
{
	static const uint8_t suite[] = {0x13, 0x01};
	const struct host *h = SSL_get_app_data(ssl);

	*session = SSL_SESSION_new();
	*id = (const unsigned char *)h->credential.identity;
	*id_len = strlen(h->credential.identity);
	return SSL_SESSION_set1_master_key(*session, h->credential.key, h->credential.len) &&
	       SSL_SESSION_set_cipher(*session, SSL_CIPHER_find(ssl, suite)) &&
	       SSL_SESSION_set_protocol_version(*session, TLS1_3_VERSION);
}

static void take_secrets(const SSL *ssl, const char *line)
{
	struct host *h = SSL_get_app_data(ssl);

	tls_secrets_take(&h->secrets, line);
}

static void open_host(struct host *h)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	enum tls_step step = TLS_STEP_READ;

	*h = (struct host){0};
	CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, h->fds), 0);
	CU_ASSERT_EQUAL_FATAL(tls_credential_make(&psk, HOSTNQN, SUBNQN, 1, &h->credential), 0);
	SSL_CTX_set_psk_use_session_callback(ctx, use_key);
	SSL_CTX_set_keylog_callback(ctx, take_secrets);
	SSL *ssl = SSL_new(ctx);
	SSL_set_app_data(ssl, h);
	SSL_set_ciphersuites(ssl, "TLS_AES_128_GCM_SHA256");
	SSL_set_fd(ssl, h->fds[0]);
	h->ctrlr = tls_session_server(h->fds[1], find_psk, NULL);
	CU_ASSERT_PTR_NOT_NULL_FATAL(h->ctrlr);
	for (unsigned i = 0; i < 20 && step == TLS_STEP_READ; i++) {
		(void)SSL_connect(ssl);
		step = tls_session_step(h->ctrlr, SIZE_MAX);
	}
	CU_ASSERT_EQUAL_FATAL(step, TLS_STEP_DONE);
	SSL_free(ssl);
	SSL_CTX_free(ctx);
	CU_ASSERT_EQUAL_FATAL(tls_keys_begin(&h->tx, DHCHAP_HASH_SHA256, h->secrets.client, true), 0);
	CU_ASSERT_EQUAL_FATAL(tls_keys_begin(&h->rx, DHCHAP_HASH_SHA256, h->secrets.server, false), 0);
}

static void close_host(struct host *h)
{
	tls_keys_end(&h->tx);
	tls_keys_end(&h->rx);
	tls_session_free(h->ctrlr);
	close(h->fds[0]);
	close(h->fds[1]);
}

static void give_raw(struct host *h, size_t bytes)
{
	CU_ASSERT_EQUAL_FATAL(send(h->fds[0], record, bytes, 0), (ssize_t)bytes);
}

static void give(struct host *h, uint8_t type, const void *bytes, size_t length)
{
	give_raw(h, seal(&h->tx, type, bytes, length));
}

/* Receives a record of the controller. Its type; its content is in `received`. */
static uint8_t take(struct host *h, size_t *length)
{
	uint8_t type = 0;

	CU_ASSERT_EQUAL_FATAL(recv(h->fds[0], record, TLS_RECORD_HEAD, 0), TLS_RECORD_HEAD);
	int n = tls_data_record_bytes(record);
	CU_ASSERT_FATAL(n > 0);
	CU_ASSERT_EQUAL_FATAL(recv(h->fds[0], record + TLS_RECORD_HEAD, (size_t)n - TLS_RECORD_HEAD, 0),
			      n - TLS_RECORD_HEAD);
	CU_ASSERT_EQUAL(open_it(&h->rx, (size_t)n, &type, length), 0);
	return type;
}

static ssize_t read_some(struct host *h)
{
	static uint8_t into[2 * TLS_RECORD_CONTENT_MAX];
	struct iovec in = {into, sizeof(into)};
	ssize_t n;

	do {
		n = tls_session_read(h->ctrlr, &in, 1);
	} while (n == -EAGAIN && tls_session_has_more(h->ctrlr));
	return n;
}

/* The session ends; and the host is told so by this alert; 0: it is not told. */
static void check_ended(struct host *h, const char *why, uint8_t alert)
{
	size_t n = 0;

	CU_ASSERT_EQUAL(read_some(h), -EPROTO);
	CU_ASSERT_PTR_NOT_NULL(strstr(tls_session_why(h->ctrlr), why));
	if (alert != 0) {
		CU_ASSERT(take(h, &n) == TLS_RECORD_ALERT && n == 2 && received[0] == 2 && received[1] == alert);
	}
	CU_ASSERT_EQUAL(read_some(h), -EPROTO);
	CU_ASSERT(!tls_session_send_now(h->ctrlr, "x", 1));
	CU_ASSERT_EQUAL(recv(h->fds[0], record, 1, 0), -1); /* nothing more */
}

static void test_records_that_are_none_end_the_connection(void)
{
	static const struct {
		uint8_t head[TLS_RECORD_HEAD];
		const char *why;
		uint8_t alert;
	} cases[] = {
		{{23, 3, 3, 0x40, 18}, "too long", TLS_ALERT_RECORD_OVERFLOW},
		{{23, 3, 3, 0, 0}, "bad record mac", TLS_ALERT_BAD_RECORD_MAC},
		{{23, 3, 3, 0, 16}, "bad record mac", TLS_ALERT_BAD_RECORD_MAC},
		{{20, 3, 3, 0, 1}, "no record of TLS 1.3", TLS_ALERT_UNEXPECTED_MESSAGE},
		{{22, 3, 3, 0, 40}, "no record of TLS 1.3", TLS_ALERT_UNEXPECTED_MESSAGE},
		{{'G', 'E', 'T', ' ', '/'}, "no record of TLS 1.3", TLS_ALERT_UNEXPECTED_MESSAGE},
	};

	for (unsigned i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
		struct host h;

		open_host(&h);
		if (i % 2 == 1) { /* behind a good one, which arrives */
			give(&h, TLS_RECORD_DATA, sent, 100);
		}
		memcpy(record, cases[i / 2].head, TLS_RECORD_HEAD);
		give_raw(&h, TLS_RECORD_HEAD);
		if (i % 2 == 1) {
			CU_ASSERT_EQUAL(read_some(&h), 100);
			CU_ASSERT(tls_session_has_more(h.ctrlr));
		}
		check_ended(&h, cases[i / 2].why, cases[i / 2].alert);
		close_host(&h);
	}
}

static void test_messages_that_may_not_come_end_the_connection(void)
{
	static const uint8_t hello[] = {1, 0, 0, 0}, update[] = {24, 0, 0, 1, 0}, odd[] = {24, 0, 0, 1, 2},
			     more[] = {24, 0, 0, 1, 0, 24}, ticket[] = {4, 0, 0, 1, 9}, none[2] = {0},
			     longer[] = {24, 0, 0, 2, 0, 0}, shorter[] = {24, 0, 0, 0};
	static const struct {
		const uint8_t *bytes;
		size_t n;
		uint8_t type, alert;
		const char *why;
	} cases[] = {
		{hello, 4, 22, 10, "may not come now"},
		{odd, 5, 22, 47, "KeyUpdate has a wrong value"},
		{more, 6, 22, 10, "may not come now"},
		{ticket, 5, 22, 10, "may not come now"},
		{none, 1, 20, 10, "may not come now"},
		{none, 0, 21, 10, "may not come now"},
		{none, 0, 22, 10, "may not come now"},
		{none, 2, 0, 10, "no type"},
		{none, 1, 77, 10, "may not come now"},
		{longer, 6, 22, 50, "KeyUpdate has a wrong length"},
		{shorter, 4, 22, 50, "KeyUpdate has a wrong length"},
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct host h;

		open_host(&h);
		give(&h, cases[i].type, cases[i].bytes, cases[i].n);
		check_ended(&h, cases[i].why, cases[i].alert);
		close_host(&h);
	}
	struct host h;
	open_host(&h);
	give(&h, 22, update, 4);
	give(&h, 23, sent, 10);
	check_ended(&h, "in the middle of a message", TLS_ALERT_UNEXPECTED_MESSAGE);
	close_host(&h);
}

static void test_an_alert_behind_payload_is_found_by_the_next_read(void)
{
	static const uint8_t alert[] = {2, TLS_ALERT_INTERNAL_ERROR};
	struct host h;

	open_host(&h);
	give(&h, TLS_RECORD_DATA, sent, 100);
	give(&h, TLS_RECORD_ALERT, alert, 1);
	give(&h, TLS_RECORD_ALERT, alert + 1, 1);
	CU_ASSERT_EQUAL(read_some(&h), 100);
	CU_ASSERT(tls_session_has_more(h.ctrlr));
	check_ended(&h, "the other side says: internal error", 0);
	close_host(&h);
}

static void test_payload_without_bytes_is_no_end_and_no_flood(void)
{
	struct host h;

	open_host(&h);
	for (unsigned i = 0; i < 3; i++) {
		for (unsigned j = 0; j < TLS_MESSAGES_MAX; j++) {
			give(&h, TLS_RECORD_DATA, sent, 0);
		}
		CU_ASSERT_EQUAL(read_some(&h), -EAGAIN);
		give(&h, TLS_RECORD_DATA, sent, 3);
		CU_ASSERT_EQUAL(read_some(&h), 3);
	}
	for (unsigned j = 0; j <= TLS_MESSAGES_MAX; j++) {
		give(&h, TLS_RECORD_DATA, sent, 0);
	}
	check_ended(&h, "without payload", TLS_ALERT_UNEXPECTED_MESSAGE);
	close_host(&h);
}

static void test_a_record_may_come_byte_by_byte(void)
{
	uint8_t whole[200];
	struct host h;

	open_host(&h);
	for (unsigned i = 0; i < 3; i++) {
		size_t n = seal(&h.tx, TLS_RECORD_DATA, sent, 100);
		memcpy(whole, record, n);
		for (size_t at = 0; at < n; at++) {
			CU_ASSERT_EQUAL(read_some(&h), -EAGAIN);
			CU_ASSERT(!tls_session_has_more(h.ctrlr));
			CU_ASSERT_EQUAL_FATAL(send(h.fds[0], whole + at, 1, 0), 1);
		}
		CU_ASSERT_EQUAL(read_some(&h), 100);
	}
	give_raw(&h, seal(&h.tx, TLS_RECORD_DATA, sent, 100) - 1);
	shutdown(h.fds[0], SHUT_WR);
	CU_ASSERT_EQUAL(read_some(&h), -EAGAIN); /* it has not looked for the end, and epoll tells of it */
	CU_ASSERT_EQUAL(read_some(&h), -ECONNRESET);
	CU_ASSERT_EQUAL(tls_session_error(h.ctrlr), -ECONNRESET);
	close_host(&h);
}

/* In two records, in both directions, and again. */
static void test_new_keys_are_followed_and_the_answer_is_of_the_old_ones(void)
{
	static const uint8_t asks[] = {24, 0, 0, 1, 1};
	struct host h;
	size_t n;

	open_host(&h);
	for (unsigned i = 0; i < 3; i++) {
		give(&h, TLS_RECORD_HANDSHAKE, asks, 3);
		CU_ASSERT_EQUAL(read_some(&h), -EAGAIN);
		give(&h, TLS_RECORD_HANDSHAKE, asks + 3, 2);
		CU_ASSERT_EQUAL(tls_keys_update(&h.tx), 0);
		give(&h, TLS_RECORD_DATA, sent, 10);
		CU_ASSERT_EQUAL(read_some(&h), 10);
		CU_ASSERT_EQUAL(take(&h, &n), TLS_RECORD_HANDSHAKE);
		CU_ASSERT(n == 5 && memcmp(received, "\x18\0\0\1\0", 5) == 0);
		CU_ASSERT_EQUAL(tls_keys_update(&h.rx), 0);
		CU_ASSERT(tls_session_send_now(h.ctrlr, "back", 4));
		CU_ASSERT(take(&h, &n) == TLS_RECORD_DATA && n == 4 && memcmp(received, "back", 4) == 0);
	}
	close_host(&h);
}

static void give_asks(struct host *h)
{
	static const uint8_t asks[] = {24, 0, 0, 1, 1};

	give(h, TLS_RECORD_HANDSHAKE, asks, sizeof(asks));
	CU_ASSERT_EQUAL(tls_keys_update(&h->tx), 0);
}

/* The socket is full, and all but the room for answers is taken. The bytes of payload. */
static size_t fill_socket(struct host *h)
{
	size_t total = 0;

	for (ssize_t n = 1; n > 0; total += (size_t)n) {
		struct iovec out = {sent, sizeof(sent)};
		n = tls_session_write(h->ctrlr, &out, 1);
		CU_ASSERT_FATAL(n >= 0);
	}
	CU_ASSERT(tls_session_has_unsent(h->ctrlr));
	return total;
}

static void test_answers_behind_what_waits_are_of_the_right_keys(void)
{
	size_t total, n, answers = 0;
	struct host h;

	open_host(&h);
	total = fill_socket(&h);
	for (unsigned i = 0; i < 3; i++) {
		give_asks(&h);
		CU_ASSERT_EQUAL(read_some(&h), -EAGAIN);
	}
	while (total > 0 || answers < 3) { /* take() checks that each opens */
		CU_ASSERT_FATAL(tls_session_write(h.ctrlr, NULL, 0) == 0);
		if (take(&h, &n) == TLS_RECORD_DATA) {
			CU_ASSERT_FATAL(n <= total && answers == 0 && memcmp(received, sent, n) == 0);
			total -= n;
		} else {
			CU_ASSERT(n == 5 && memcmp(received, "\x18\0\0\1\0", 5) == 0);
			CU_ASSERT_EQUAL(tls_keys_update(&h.rx), 0);
			answers++;
		}
	}
	CU_ASSERT(tls_session_send_now(h.ctrlr, "back", 4));
	CU_ASSERT(take(&h, &n) == TLS_RECORD_DATA && n == 4 && memcmp(received, "back", 4) == 0);
	close_host(&h);
}

static void test_a_host_that_asks_for_keys_and_never_reads_is_cut_off(void)
{
	ssize_t got = 1;
	struct host h;

	open_host(&h);
	(void)fill_socket(&h);
	for (unsigned i = 0; i < 100000 && got > 0; i++) {
		give_asks(&h);
		for (unsigned j = 0; j < TLS_UPDATE_BYTES / sizeof(sent) && got > 0; j++) {
			give(&h, TLS_RECORD_DATA, sent, sizeof(sent));
			got = read_some(&h);
		}
	}
	CU_ASSERT_EQUAL(got, -EPROTO);
	CU_ASSERT_PTR_NOT_NULL(strstr(tls_session_why(h.ctrlr), "does not read the answers"));
	close_host(&h);
}

/* Each costs some ten microseconds: others of the reactor have their turn in between. */
static void test_one_read_follows_one_change_of_keys(void)
{
	struct iovec in = {received, 4000};
	struct host h;

	open_host(&h);
	for (unsigned i = 0; i < TLS_UPDATES_MAX; i++) {
		give_asks(&h);
	}
	give(&h, TLS_RECORD_DATA, sent, 1);
	for (unsigned i = 0; i < TLS_UPDATES_MAX; i++) {
		size_t n;

		CU_ASSERT_EQUAL(tls_session_read(h.ctrlr, &in, 1), -EAGAIN);
		CU_ASSERT(tls_session_has_more(h.ctrlr));
		CU_ASSERT_EQUAL(take(&h, &n), TLS_RECORD_HANDSHAKE);
		CU_ASSERT_EQUAL(tls_keys_update(&h.rx), 0);
		CU_ASSERT_EQUAL(recv(h.fds[0], record, 1, 0), -1); /* one answer */
	}
	CU_ASSERT_EQUAL(tls_session_read(h.ctrlr, &in, 1), 1);
	CU_ASSERT(!tls_session_has_more(h.ctrlr));
	close_host(&h);
}

/* It gives a byte of payload for each, or as much as is asked of it. */
static void test_new_keys_cost_payload(void)
{
	static const uint8_t update[] = {24, 0, 0, 1, 0};
	unsigned updates = 0;
	ssize_t got = 1;
	struct host h;

	open_host(&h);
	for (unsigned i = 0; i < 3 * TLS_UPDATES_MAX; i++) {
		give(&h, TLS_RECORD_HANDSHAKE, update, sizeof(update));
		CU_ASSERT_EQUAL(tls_keys_update(&h.tx), 0);
		for (unsigned j = 0; j < TLS_UPDATE_BYTES / sizeof(sent); j++) {
			give(&h, TLS_RECORD_DATA, sent, sizeof(sent));
			CU_ASSERT_EQUAL(read_some(&h), (ssize_t)sizeof(sent));
		}
	}
	for (; got > 0 && updates < 1000; updates++) {
		give(&h, TLS_RECORD_HANDSHAKE, update, sizeof(update));
		CU_ASSERT_EQUAL(tls_keys_update(&h.tx), 0);
		give(&h, TLS_RECORD_DATA, sent, 1);
		got = read_some(&h);
	}
	CU_ASSERT(got == -EPROTO && updates == TLS_UPDATES_MAX + 1);
	check_ended(&h, "with too little", TLS_ALERT_UNEXPECTED_MESSAGE);
	close_host(&h);
}

static void test_user_canceled_is_no_end_and_close_notify_is_answered(void)
{
	static const uint8_t canceled[] = {1, TLS_ALERT_USER_CANCELED, 1, TLS_ALERT_CLOSE_NOTIFY};
	struct host h;

	open_host(&h);
	give(&h, TLS_RECORD_ALERT, canceled, 2);
	give(&h, TLS_RECORD_DATA, sent, 5);
	CU_ASSERT_EQUAL(read_some(&h), 5);
	give(&h, TLS_RECORD_ALERT, canceled, 4);
	CU_ASSERT_EQUAL(read_some(&h), -ECONNRESET);
	size_t n; /* close_notify is answered by its like */
	CU_ASSERT(take(&h, &n) == TLS_RECORD_ALERT && n == 2 && received[0] == 1 && received[1] == 0);
	close_host(&h);
	open_host(&h);
	for (unsigned i = 0; i <= TLS_MESSAGES_MAX; i++) {
		give(&h, TLS_RECORD_ALERT, canceled, 2);
	}
	check_ended(&h, "without payload", TLS_ALERT_UNEXPECTED_MESSAGE);
	close_host(&h);
}

static int bytes_in_socket(const struct host *h)
{
	int n = 0;

	CU_ASSERT_EQUAL(ioctl(h->fds[1], FIONREAD, &n), 0);
	return n;
}

/* A connection before Connect has little room. */
static void test_no_more_is_read_than_there_is_room_for(void)
{
	struct iovec in = {received, 4096};
	struct host h;

	open_host(&h);
	for (unsigned i = 0; i < 6; i++) {
		give(&h, TLS_RECORD_DATA, sent, sizeof(sent));
	}
	int there = bytes_in_socket(&h);
	CU_ASSERT_EQUAL(tls_session_read(h.ctrlr, &in, 1), 4096);
	CU_ASSERT(there - bytes_in_socket(&h) <= 4096 + TLS_RECORD_MAX);
	close_host(&h);
}

static long resident_pages(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	long size = 0, resident = 0;

	CU_ASSERT(f != NULL && fscanf(f, "%ld %ld", &size, &resident) == 2);
	fclose(f);
	return resident;
}

static void test_memory_of_an_idle_connection_is_given_back(void)
{
	static uint8_t into[9 * TLS_RECORD_CONTENT_MAX];
	struct iovec in = {into, sizeof(into)};
	struct host h;

	open_host(&h);
	CU_ASSERT(tls_session_bytes(h.ctrlr) > 18 * TLS_RECORD_MAX);
	for (unsigned i = 0; i < 2; i++) {
		for (unsigned j = 0; j < 8; j++) {
			give(&h, TLS_RECORD_DATA, sent, sizeof(sent));
		}
		CU_ASSERT_EQUAL(tls_session_read(h.ctrlr, &in, 1), 8 * (ssize_t)sizeof(sent));
		CU_ASSERT_EQUAL(memcmp(into + 7 * sizeof(sent), sent, sizeof(sent)), 0);
		long busy = resident_pages();
		tls_session_rest(h.ctrlr);
		tls_session_rest(h.ctrlr);
#ifndef __SANITIZE_ADDRESS__ /* which keeps memory of its own */
		CU_ASSERT((busy - resident_pages()) * sysconf(_SC_PAGESIZE) >= 6 * TLS_RECORD_MAX);
#else
		CU_ASSERT(busy > 0);
#endif
	}
	uint8_t type; /* of what has come in part, nothing is lost */
	size_t n = seal(&h.tx, TLS_RECORD_DATA, sent, sizeof(sent)), length;
	CU_ASSERT_EQUAL(send(h.fds[0], record, n - 9, 0), (ssize_t)n - 9);
	CU_ASSERT_EQUAL(tls_session_read(h.ctrlr, &in, 1), -EAGAIN);
	tls_session_rest(h.ctrlr);
	tls_session_rest(h.ctrlr);
	CU_ASSERT_EQUAL(send(h.fds[0], record + n - 9, 9, 0), 9);
	CU_ASSERT_EQUAL(tls_session_read(h.ctrlr, &in, 1), (ssize_t)sizeof(sent));
	size_t total = fill_socket(&h);
	tls_session_rest(h.ctrlr);
	tls_session_rest(h.ctrlr);
	for (; total > 0; total -= length) {
		CU_ASSERT_FATAL(tls_session_write(h.ctrlr, NULL, 0) == 0);
		type = take(&h, &length);
		CU_ASSERT_FATAL(type == TLS_RECORD_DATA && length <= total && memcmp(received, sent, length) == 0);
	}
	close_host(&h);
}

/* OpenSSL has had them in its SSL objects, of both sides; while the connection lasts, the session has each once. */
static void test_the_secrets_of_a_connection_are_forgotten(void)
{
	struct host h;

	open_host(&h);
	CU_ASSERT(count_in_heap(h.secrets.client, h.secrets.client_len) <= 1);
	CU_ASSERT(count_in_heap(h.secrets.server, h.secrets.server_len) <= 1);
	close_host(&h);
	CU_ASSERT_EQUAL(count_in_heap(h.secrets.client, h.secrets.client_len), 0);
	CU_ASSERT_EQUAL(count_in_heap(h.secrets.server, h.secrets.server_len), 0);
}

static const struct unit_test tests[] = {
	UNIT(test_content_of_all_sizes_and_cuts_comes_out),
	UNIT(test_a_record_that_is_changed_anywhere_is_refused),
	UNIT(test_a_record_is_good_once_and_in_its_turn),
	UNIT(test_new_keys_are_those_of_both_sides),
	UNIT(test_keys_that_cannot_be_changed_are_not_used_again),
	UNIT(test_secrets_are_in_memory_for_keys),
	UNIT(test_padding_is_no_content),
	UNIT(test_numbers_do_not_begin_anew),
	UNIT(test_heads_of_records_are_checked),
	UNIT(test_records_that_are_none_end_the_connection),
	UNIT(test_messages_that_may_not_come_end_the_connection),
	UNIT(test_an_alert_behind_payload_is_found_by_the_next_read),
	UNIT(test_payload_without_bytes_is_no_end_and_no_flood),
	UNIT(test_a_record_may_come_byte_by_byte),
	UNIT(test_new_keys_are_followed_and_the_answer_is_of_the_old_ones),
	UNIT(test_answers_behind_what_waits_are_of_the_right_keys),
	UNIT(test_one_read_follows_one_change_of_keys),
	UNIT(test_new_keys_cost_payload),
	UNIT(test_user_canceled_is_no_end_and_close_notify_is_answered),
	UNIT(test_a_host_that_asks_for_keys_and_never_reads_is_cut_off),
	UNIT(test_no_more_is_read_than_there_is_room_for),
	UNIT(test_memory_of_an_idle_connection_is_given_back),
	UNIT(test_the_secrets_of_a_connection_are_forgotten),
	UNIT_END,
};
UNIT_MAIN(RECORDS_SUITE("tls-record"), tests, records_setup, NULL)

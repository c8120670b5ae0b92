/* SPDX-License-Identifier: BSD-3-Clause */
#include "keyring/keyring.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/secret.h"

#define FILE_SIZE_MAX 512 /* a secret has at most 103 characters, a TLS key 89, a key for data 128 */
#define DATA_MIN      32u
#define DATA_MAX      64u /* bytes */

struct keyring_key {
	TAILQ_ENTRY(keyring_key) link;
	unsigned refs;
	bool removed;
	bool kept;    /* removed by keyring_set_aside(): the keyring's reference is not given back yet */
	uint8_t kind; /* enum keyring_kind */
	union {
		struct dhchap_secret secret;
		struct tls_psk psk;
		struct {
			uint8_t *bytes; /* of secret_alloc() */
			size_t len;
		} data;
	};
	char name[KEYRING_NAME_MAX];
	char path[KEYRING_PATH_MAX];
};

static TAILQ_HEAD(, keyring_key) keys = TAILQ_HEAD_INITIALIZER(keys);

/* What the key of a name has to be. */
struct expected {
	SLIST_ENTRY(expected) link;
	uint8_t salt[KEYRING_SALT], digest[KEYRING_DIGEST];
	char name[KEYRING_NAME_MAX];
};

static SLIST_HEAD(, expected) expectations = SLIST_HEAD_INITIALIZER(expectations);

static int keyring_error(char error[KEYRING_ERROR_MAX], int rc, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static int keyring_error(char error[KEYRING_ERROR_MAX], int rc, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(error, KEYRING_ERROR_MAX, fmt, args);
	va_end(args);
	return rc;
}

static struct keyring_key *key_find(const char *name)
{
	struct keyring_key *key;

	TAILQ_FOREACH (key, &keys, link) {
		if (!key->removed && strcmp(key->name, name) == 0) {
			return key;
		}
	}
	return NULL;
}

/* ---- Files ---- */

static int secret_file_check(int fd, const char *path, char error[KEYRING_ERROR_MAX])
{
	struct stat st;

	if (fstat(fd, &st) != 0) {
		return keyring_error(error, -errno, "%s: %s", path, strerror(errno));
	}
	if (!S_ISREG(st.st_mode)) {
		return keyring_error(error, -EINVAL, "%s is not a regular file", path);
	}
	if ((st.st_mode & 077) != 0) {
		return keyring_error(error, -EPERM,
				     "%s has mode %04o: group and others may have no access to it (chmod 0600)", path,
				     st.st_mode & 07777);
	}
	if (st.st_uid != geteuid() &&
	    st.st_uid != 0) { /* an owner may change the mode, and then read and write the file */
		return keyring_error(error, -EPERM,
				     "%s belongs to user %u: allowed are the user that varve runs as, %u, and root",
				     path, st.st_uid, geteuid());
	}
	if (st.st_size > FILE_SIZE_MAX) {
		return keyring_error(error, -EINVAL, "%s has %lld bytes, a secret at most %d", path,
				     (long long)st.st_size, FILE_SIZE_MAX);
	}
	return 0;
}

/* How many of the characters at text are hexadecimal digits. */
static size_t hex_length(const char *text, size_t len)
{
	size_t n = 0;

	while (n < len && isxdigit((unsigned char)text[n])) {
		n++;
	}
	return n;
}

/* text: all of the file, from its first digit on. */
static int key_parse_data(struct keyring_key *key, const char *text, size_t len, const char *path,
			  char error[KEYRING_ERROR_MAX])
{
	size_t digits = hex_length(text, len);

	while (len > digits && isspace((unsigned char)text[len - 1])) {
		len--;
	}
	if (len != digits || (digits != 2 * DATA_MIN && digits != 2 * DATA_MAX)) {
		return keyring_error(error, -EINVAL,
				     "what is in %s is not a key for data: it begins with %zu hexadecimal digits, and "
				     "has %zu characters: expected are %u digits (AES-XTS 128) or %u (256) alone",
				     path, digits, len, 2 * DATA_MIN, 2 * DATA_MAX);
	}
	key->kind = KEYRING_DATA;
	key->data.len = digits / 2;
	key->data.bytes = secret_alloc(DATA_MAX);
	if (key->data.bytes == NULL) {
		return keyring_error(error, -ENOMEM, "no memory for keys");
	}
	(void)secret_from_hex(text, key->data.bytes, key->data.len);
	return 0;
}

#define HEX_BEGIN 8 /* digits that no other kind of key begins with */

/* The first letters say which kind it is. */
static int key_parse(struct keyring_key *key, const char *text, size_t len, const char *path,
		     char error[KEYRING_ERROR_MAX])
{
	static const char psk_prefix[] = "NVMeTLSkey-";
	char why[DHCHAP_ERROR_MAX];
	size_t at = 0;
	int rc;

	while (at < len && isspace((unsigned char)text[at])) {
		at++;
	}
	if (len - at >= strlen(psk_prefix) && memcmp(text + at, psk_prefix, strlen(psk_prefix)) == 0) {
		key->kind = KEYRING_PSK;
		rc = tls_psk_parse(text, len, &key->psk, why);
		return rc == 0 ? 0 : keyring_error(error, rc, "what is in %s is not a TLS key: %s", path, why);
	}
	if (hex_length(text + at, len - at) >= HEX_BEGIN) {
		return key_parse_data(key, text + at, len - at, path, error);
	}
	key->kind = KEYRING_DHCHAP;
	rc = dhchap_secret_parse(text, len, &key->secret, why);
	return rc == 0 ? 0
		       : keyring_error(error, rc, "what is in %s is neither a DH-HMAC-CHAP secret nor a TLS key: %s",
				       path, why);
}

static int key_read(struct keyring_key *key, int fd, const char *path, char error[KEYRING_ERROR_MAX])
{
	char text[FILE_SIZE_MAX];
	ssize_t len = read(fd, text, sizeof(text));

	if (len < 0) {
		return keyring_error(error, -errno, "%s: %s", path, strerror(errno));
	}
	int rc = key_parse(key, text, (size_t)len, path, error);
	dhchap_cleanse(text, sizeof(text));
	return rc;
}

static int key_load(struct keyring_key *key, const char *path, char error[KEYRING_ERROR_MAX])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* whatever it is: it is not waited for */

	if (fd < 0) {
		return keyring_error(error, -errno, "%s: %s", path, strerror(errno));
	}
	int rc = secret_file_check(fd, path, error);
	if (rc == 0) {
		rc = key_read(key, fd, path, error);
	}
	close(fd);
	return rc;
}

/* Overwrites it, too. */
static void key_wipe_free(struct keyring_key *key)
{
	if (key->kind == KEYRING_DATA) {
		secret_free(key->data.bytes);
	}
	dhchap_cleanse(key, sizeof(*key));
	free(key);
}

/* ---- The ring ---- */

static bool key_name_is_good(const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < len; i++) {
		if (!isgraph((unsigned char)name[i])) {
			return false;
		}
	}
	return len != 0 && len < KEYRING_NAME_MAX;
}

/* A key for data of that name that was removed, and that somebody has a reference to; or NULL. */
static const struct keyring_key *key_find_removed_data(const char *name)
{
	const struct keyring_key *key;

	TAILQ_FOREACH (key, &keys, link) {
		if (key->removed && !key->kept && key->kind == KEYRING_DATA && strcmp(key->name, name) == 0) {
			return key;
		}
	}
	return NULL;
}

static int key_names_check(const char *name, const char *path, char error[KEYRING_ERROR_MAX])
{
	if (!key_name_is_good(name)) {
		return keyring_error(error, -EINVAL,
				     "parameter \"name\" is \"%.80s\": allowed are 1 to %d printable characters", name,
				     KEYRING_NAME_MAX - 1);
	}
	if (path[0] != '/' || strlen(path) >= KEYRING_PATH_MAX) {
		return keyring_error(error, -EINVAL,
				     "parameter \"path\" is \"%.80s\": allowed is an absolute path of at most %d bytes",
				     path, KEYRING_PATH_MAX - 1);
	}
	if (key_find(name) != NULL) {
		return keyring_error(error, -EEXIST, "there is a key \"%s\" already", name);
	}
	const struct keyring_key *held = key_find_removed_data(name);
	if (held != NULL) {
		return keyring_error(
			error, -EBUSY,
			"parameter \"name\" is \"%s\": the key of that name was removed, and %u keys for crypto "
			"bdevs are still made of it (\"keyring_key\" in accel_crypto_keys_get): another key by "
			"its name would be mistaken for it; destroy those, or choose another name",
			name, held->refs);
	}
	return 0;
}

/* Puts a key of that name and file that was set aside back into the keyring. False: there is none. */
static bool key_take_back(const char *name, const char *path)
{
	struct keyring_key *key;

	TAILQ_FOREACH (key, &keys, link) {
		if (key->kept && strcmp(key->name, name) == 0 && strcmp(key->path, path) == 0) {
			key->removed = key->kept = false;
			TAILQ_REMOVE(&keys, key, link);
			TAILQ_INSERT_TAIL(&keys, key, link);
			return true;
		}
	}
	return false;
}

/* ---- What a key has to be ---- */

/* All that a key consists of. */
struct key_content {
	uint8_t what[3]; /* its kind, and how the bytes are used */
	const uint8_t *bytes;
	size_t len;
};

static struct key_content key_content_of(const struct keyring_key *key)
{
	struct key_content c = {.what = {key->kind}};

	switch ((enum keyring_kind)key->kind) {
	case KEYRING_DHCHAP:
		c.what[1] = key->secret.hash;
		c.bytes = key->secret.bytes;
		c.len = key->secret.len;
		break;
	case KEYRING_PSK:
		c.what[1] = key->psk.hash;
		c.what[2] = key->psk.compat;
		c.bytes = key->psk.bytes;
		c.len = key->psk.len;
		break;
	case KEYRING_DATA:
		c.bytes = key->data.bytes;
		c.len = key->data.len;
		break;
	}
	return c;
}

int keyring_key_digest(const struct keyring_key *key, const uint8_t salt[KEYRING_SALT], uint8_t digest[KEYRING_DIGEST])
{
	struct key_content c = key_content_of(key);
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	bool good = ctx != NULL && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) &&
		    EVP_DigestUpdate(ctx, salt, KEYRING_SALT) && EVP_DigestUpdate(ctx, c.what, sizeof(c.what)) &&
		    EVP_DigestUpdate(ctx, c.bytes, c.len) && EVP_DigestFinal_ex(ctx, digest, NULL);
	EVP_MD_CTX_free(ctx);
	if (!good) {
		ERR_clear_error();
	}
	return good ? 0 : -EIO;
}

static const struct expected *expected_find(const char *name)
{
	const struct expected *e;

	SLIST_FOREACH (e, &expectations, link) {
		if (strcmp(e->name, name) == 0) {
			return e;
		}
	}
	return NULL;
}

int keyring_expect(const char *name, const uint8_t salt[KEYRING_SALT], const uint8_t digest[KEYRING_DIGEST])
{
	if (!key_name_is_good(name)) {
		return -EINVAL;
	}
	if (expected_find(name) != NULL) {
		return 0;
	}
	struct expected *e = calloc(1, sizeof(*e));
	if (e == NULL) {
		return -ENOMEM;
	}
	strcpy(e->name, name);
	memcpy(e->salt, salt, sizeof(e->salt));
	memcpy(e->digest, digest, sizeof(e->digest));
	SLIST_INSERT_HEAD(&expectations, e, link);
	return 0;
}

static int key_check_expected(const struct keyring_key *key, const char *name, const char *path,
			      char error[KEYRING_ERROR_MAX])
{
	const struct expected *e = expected_find(name);
	uint8_t digest[KEYRING_DIGEST];

	if (e == NULL) {
		return 0;
	}
	if (keyring_key_digest(key, e->salt, digest) != 0) {
		return keyring_error(error, -EIO, "the digest of key \"%s\" cannot be calculated", name);
	}
	if (!secret_equal(digest, e->digest, sizeof(digest))) {
		return keyring_error(error, -ESTALE,
				     "what is in %s now is another key than the one \"%s\" that is in use", path, name);
	}
	return 0;
}

static void expected_forget(void)
{
	struct expected *e;

	while ((e = SLIST_FIRST(&expectations)) != NULL) {
		SLIST_REMOVE_HEAD(&expectations, link);
		free(e);
	}
}

/* ---- Into the keyring, and out of it ---- */

int keyring_file_add(const char *name, const char *path, char error[KEYRING_ERROR_MAX])
{
	int rc = key_names_check(name, path, error);

	if (rc != 0 || key_take_back(name, path)) {
		return rc;
	}
	struct keyring_key *key = calloc(1, sizeof(*key));
	if (key == NULL) {
		return keyring_error(error, -ENOMEM, "out of memory");
	}
	rc = key_load(key, path, error);
	if (rc != 0) {
		free(key); /* what cannot be parsed leaves no bytes of a key there */
		return rc;
	}
	rc = key_check_expected(key, name, path, error);
	if (rc != 0) {
		key_wipe_free(key);
		return rc;
	}
	strcpy(key->name, name);
	strcpy(key->path, path);
	key->refs = 1;
	TAILQ_INSERT_TAIL(&keys, key, link);
	return 0;
}

int keyring_file_remove(const char *name)
{
	struct keyring_key *key = key_find(name);

	if (key == NULL) {
		return -ENOENT;
	}
	key->removed = true;
	keyring_put(key);
	return 0;
}

void keyring_set_aside(void)
{
	struct keyring_key *key;

	TAILQ_FOREACH (key, &keys, link) {
		if (!key->removed) {
			key->removed = key->kept = true;
		}
	}
}

/* A removed key for data, which is never saved. */
static bool key_is_gone(const struct keyring_key *key)
{
	return key->removed && key->kind == KEYRING_DATA;
}

bool keyring_key_is_saved(const struct keyring_key *key)
{
	const struct keyring_key *in_ring = key_find(key->name);

	if (key_is_gone(key) || in_ring != NULL) {
		return in_ring == key;
	}
	for (const struct keyring_key *k = TAILQ_NEXT(key, link); k != NULL; k = TAILQ_NEXT(k, link)) {
		if (!key_is_gone(k) && strcmp(k->name, key->name) == 0) {
			return false;
		}
	}
	return true;
}

void keyring_keep_removed(void)
{
	struct keyring_key *key;

	TAILQ_FOREACH (key, &keys, link) {
		if (key->removed && !key->kept && keyring_key_is_saved(key)) {
			key->refs++;
			key->kept = true;
		}
	}
}

void keyring_forget_set_aside(void)
{
	struct keyring_key *next;

	expected_forget();

	for (struct keyring_key *key = TAILQ_FIRST(&keys); key != NULL; key = next) {
		next = TAILQ_NEXT(key, link);
		if (key->kept) {
			key->kept = false;
			keyring_put(key);
		}
	}
}

void keyring_clear(void)
{
	keyring_set_aside();
	keyring_forget_set_aside();
}

static bool key_is_equal(const struct keyring_key *a, const struct keyring_key *b)
{
	struct key_content ca = key_content_of(a), cb = key_content_of(b);

	return ca.len == cb.len && memcmp(ca.what, cb.what, sizeof(ca.what)) == 0 &&
	       secret_equal(ca.bytes, cb.bytes, ca.len);
}

int keyring_key_check_file(const struct keyring_key *key, char error[KEYRING_ERROR_MAX])
{
	struct keyring_key *now = calloc(1, sizeof(*now));

	if (now == NULL) {
		return keyring_error(error, -ENOMEM, "out of memory");
	}
	int rc = key_load(now, key->path, error);
	if (rc != 0) {
		free(now);
		return rc;
	}
	if (!key_is_equal(key, now)) {
		rc = keyring_error(error, -ESTALE, "what is in %s now is another key than the one in use", key->path);
	}
	key_wipe_free(now);
	return rc;
}

struct keyring_key *keyring_get(const char *name)
{
	return keyring_hold(key_find(name));
}

struct keyring_key *keyring_get_kind(const char *name, enum keyring_kind kind, const char **why)
{
	/* By the kind that is wanted, and the kind that it is. */
	static const char *const mismatches[3][3] = {
		[KEYRING_DHCHAP][KEYRING_PSK] = "that key is for TLS (NVMeTLSkey-1), not for DH-HMAC-CHAP (DHHC-1)",
		[KEYRING_DHCHAP][KEYRING_DATA] = "that key is for data (hexadecimal), not for DH-HMAC-CHAP (DHHC-1)",
		[KEYRING_PSK][KEYRING_DHCHAP] = "that key is for DH-HMAC-CHAP (DHHC-1), not for TLS (NVMeTLSkey-1)",
		[KEYRING_PSK][KEYRING_DATA] = "that key is for data (hexadecimal), not for TLS (NVMeTLSkey-1)",
		[KEYRING_DATA][KEYRING_DHCHAP] = "that key is for DH-HMAC-CHAP (DHHC-1), not for data (hexadecimal)",
		[KEYRING_DATA][KEYRING_PSK] = "that key is for TLS (NVMeTLSkey-1), not for data (hexadecimal)",
	};
	struct keyring_key *key = key_find(name);

	if (key == NULL) {
		*why = "the keyring has no such key";
		return NULL;
	}
	if (key->kind != kind) {
		*why = mismatches[kind][key->kind];
		return NULL;
	}
	return keyring_hold(key);
}

struct keyring_key *keyring_hold(struct keyring_key *key)
{
	if (key != NULL) {
		key->refs++;
	}
	return key;
}

void keyring_put(struct keyring_key *key)
{
	if (key == NULL || --key->refs != 0) {
		return;
	}
	TAILQ_REMOVE(&keys, key, link);
	key_wipe_free(key);
}

const char *keyring_key_name(const struct keyring_key *key)
{
	return key->name;
}

const char *keyring_key_path(const struct keyring_key *key)
{
	return key->path;
}

enum keyring_kind keyring_key_kind(const struct keyring_key *key)
{
	return (enum keyring_kind)key->kind;
}

const struct tls_psk *keyring_key_psk(const struct keyring_key *key)
{
	return &key->psk;
}

const struct dhchap_secret *keyring_key_secret(const struct keyring_key *key)
{
	return &key->secret;
}

const uint8_t *keyring_key_data(const struct keyring_key *key, size_t *len)
{
	*len = key->data.len;
	return key->data.bytes;
}

unsigned keyring_key_refs(const struct keyring_key *key)
{
	return key->refs;
}

bool keyring_key_removed(const struct keyring_key *key)
{
	return key->removed;
}

struct keyring_key *keyring_next(const struct keyring_key *after)
{
	return after == NULL ? TAILQ_FIRST(&keys) : TAILQ_NEXT(after, link);
}

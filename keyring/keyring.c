/* SPDX-License-Identifier: BSD-3-Clause */
#include "keyring/keyring.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_SIZE_MAX 512 /* a secret has at most 103 characters */

struct keyring_key {
	TAILQ_ENTRY(keyring_key) link;
	unsigned refs;
	bool removed;
	struct dhchap_secret secret;
	char name[KEYRING_NAME_MAX];
	char path[KEYRING_PATH_MAX];
};

static TAILQ_HEAD(, keyring_key) keys = TAILQ_HEAD_INITIALIZER(keys);

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

static int secret_read(int fd, const char *path, struct dhchap_secret *secret, char error[KEYRING_ERROR_MAX])
{
	char text[FILE_SIZE_MAX], why[DHCHAP_ERROR_MAX];
	ssize_t len = read(fd, text, sizeof(text));
	int rc;

	if (len < 0) {
		return keyring_error(error, -errno, "%s: %s", path, strerror(errno));
	}
	rc = dhchap_secret_parse(text, (size_t)len, secret, why);
	dhchap_cleanse(text, sizeof(text));
	return rc == 0 ? 0 : keyring_error(error, rc, "what is in %s is not a DH-HMAC-CHAP secret: %s", path, why);
}

static int secret_load(const char *path, struct dhchap_secret *secret, char error[KEYRING_ERROR_MAX])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* whatever it is: it is not waited for */

	if (fd < 0) {
		return keyring_error(error, -errno, "%s: %s", path, strerror(errno));
	}
	int rc = secret_file_check(fd, path, error);
	if (rc == 0) {
		rc = secret_read(fd, path, secret, error);
	}
	close(fd);
	return rc;
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
	return 0;
}

int keyring_file_add(const char *name, const char *path, char error[KEYRING_ERROR_MAX])
{
	int rc = key_names_check(name, path, error);

	if (rc != 0) {
		return rc;
	}
	struct keyring_key *key = calloc(1, sizeof(*key));
	if (key == NULL) {
		return keyring_error(error, -ENOMEM, "out of memory");
	}
	rc = secret_load(path, &key->secret, error);
	if (rc != 0) {
		free(key);
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

struct keyring_key *keyring_get(const char *name)
{
	return keyring_hold(key_find(name));
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
	dhchap_cleanse(&key->secret, sizeof(key->secret));
	free(key);
}

const char *keyring_key_name(const struct keyring_key *key)
{
	return key->name;
}

const char *keyring_key_path(const struct keyring_key *key)
{
	return key->path;
}

const struct dhchap_secret *keyring_key_secret(const struct keyring_key *key)
{
	return &key->secret;
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

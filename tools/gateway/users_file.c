/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "tools/gateway/gateway.h"

static int users_fail(char why[GATEWAY_WHY_MAX], int rc, const char *path, const char *what)
{
	snprintf(why, GATEWAY_WHY_MAX, "%s: %s", path, what);
	return rc;
}

static int users_check_file(int fd, const char *path, size_t *size, char why[GATEWAY_WHY_MAX])
{
	struct stat st;

	if (fstat(fd, &st) != 0) {
		return users_fail(why, -errno, path, strerror(errno));
	}
	if (!S_ISREG(st.st_mode) || st.st_size > GATEWAY_USERS_FILE_MAX) {
		return users_fail(why, -EINVAL, path, "not an ordinary file of at most 1 MiB");
	}
	if (st.st_uid != geteuid() && st.st_uid != 0) {
		return users_fail(why, -EPERM, path, "it belongs to another user");
	}
	if ((st.st_mode & 077) != 0) {
		return users_fail(why, -EPERM, path, "only its owner may have access (chmod 600 mends it)");
	}
	*size = (size_t)st.st_size;
	return 0;
}

/* Reads what is there, up to size bytes. */
static ssize_t users_read_all(int fd, char *text, size_t size)
{
	size_t len = 0;
	ssize_t n;

	while (len < size && (n = read(fd, text + len, size - len)) != 0) {
		if (n < 0 && errno != EINTR) {
			return -errno;
		}
		len += n > 0 ? (size_t)n : 0;
	}
	return (ssize_t)len;
}

/* The text of the file, which the caller frees; NULL with *rc. */
static char *users_read(const char *path, size_t *len, int *rc, char why[GATEWAY_WHY_MAX])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hold us up */
	char *text = NULL;

	if (fd < 0) {
		*rc = users_fail(why, -errno, path, strerror(errno));
		return NULL;
	}
	*rc = users_check_file(fd, path, len, why);
	if (*rc == 0) {
		text = malloc(*len + 1);
		ssize_t n = text != NULL ? users_read_all(fd, text, *len) : -ENOMEM;
		if (n < 0) {
			*rc = users_fail(why, (int)n, path, strerror((int)-n));
			free(text);
			text = NULL;
		}
		*len = n > 0 ? (size_t)n : 0;
	}
	close(fd);
	return text;
}

int gateway_users_load(const char *path, struct gateway_users *users, char why[GATEWAY_WHY_MAX])
{
	char reason[GATEWAY_WHY_MAX];
	size_t len;
	int rc;
	char *text = users_read(path, &len, &rc, why);

	*users = (struct gateway_users){0};
	if (text == NULL) {
		return rc;
	}
	rc = gateway_users_parse(text, len, users, reason);
	if (rc != 0) {
		snprintf(why, GATEWAY_WHY_MAX, "%s: %.400s", path, reason);
	}
	OPENSSL_cleanse(text, len);
	free(text);
	return rc;
}

/* Reads a line; from a terminal without showing it. */
static bool users_read_password(const char *name, char *password, size_t size)
{
	struct termios was, quiet;
	bool terminal = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &was) == 0;

	if (terminal) {
		quiet = was;
		quiet.c_lflag &= ~(tcflag_t)ECHO;
		tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet);
		fprintf(stderr, "Password of %s: ", name);
	}
	char *line = fgets(password, (int)size, stdin);
	if (terminal) {
		tcsetattr(STDIN_FILENO, TCSAFLUSH, &was);
		fputc('\n', stderr);
	}
	return line != NULL;
}

/* The password of a new user. False: it has been said what is wrong. */
static bool users_ask(const char *name, char password[GATEWAY_PASSWORD_MAX + 3])
{
	if (!users_read_password(name, password, GATEWAY_PASSWORD_MAX + 3)) {
		fprintf(stderr, "varve-gateway: there is no password on the standard input\n");
		return false;
	}
	password[strcspn(password, "\n")] = '\0';
	size_t len = strlen(password);
	if (len < 8 || len > GATEWAY_PASSWORD_MAX) {
		fprintf(stderr, "varve-gateway: the password must have 8 to %d bytes\n", GATEWAY_PASSWORD_MAX);
		return false;
	}
	return true;
}

static bool users_make(const char *name, enum gateway_role role, struct gateway_user *user)
{
	char password[GATEWAY_PASSWORD_MAX + 3];

	*user = (struct gateway_user){.role = role, .iterations = GATEWAY_ITERATIONS};
	strcpy(user->name, name);
	bool good = users_ask(name, password);
	if (good &&
	    (RAND_bytes(user->salt, sizeof(user->salt)) != 1 || !gateway_user_hash(user, password, user->hash))) {
		fprintf(stderr, "varve-gateway: no random numbers, or the password cannot be hashed\n");
		good = false;
	}
	OPENSSL_cleanse(password, sizeof(password));
	return good;
}

/* Writes the old text, without the user's line, and the new line. */
static bool users_write_lines(FILE *out, const char *text, size_t len, const struct gateway_user *user)
{
	char line[GATEWAY_LINE_MAX];
	size_t name_len = strlen(user->name);

	for (size_t at = 0; at < len;) {
		const char *end = memchr(text + at, '\n', len - at);
		size_t n = end != NULL ? (size_t)(end - text) - at : len - at;
		bool same = n > name_len && memcmp(text + at, user->name, name_len) == 0 && text[at + name_len] == ':';
		if (!same) {
			fwrite(text + at, 1, n, out);
			fputc('\n', out);
		}
		at += n + 1;
	}
	gateway_user_format(user, line);
	fputs(line, out);
	return fflush(out) == 0 && !ferror(out) && fsync(fileno(out)) == 0;
}

/* The new file takes the place of the old one in one step: a gateway that reads it meanwhile reads the one or the
 * other. */
static bool users_replace(const char *path, const char *text, size_t len, const struct gateway_user *user)
{
	char name[4096];

	if (snprintf(name, sizeof(name), "%s.XXXXXX", path) >= (int)sizeof(name)) {
		errno = ENAMETOOLONG;
		return false;
	}
	int fd = mkostemp(name, O_CLOEXEC); /* mode 0600 */
	FILE *out = fd >= 0 ? fdopen(fd, "w") : NULL;
	if (out == NULL) {
		return false;
	}
	bool good = users_write_lines(out, text, len, user);
	good = fclose(out) == 0 && good;
	if (!good || rename(name, path) != 0) {
		int error = errno;
		unlink(name);
		errno = error;
		return false;
	}
	return true;
}

/* Whether the file is right, or not there yet; then *text is NULL. */
static bool users_read_old(const char *path, char **text, size_t *len)
{
	struct gateway_users users;
	char why[GATEWAY_WHY_MAX];
	int rc = gateway_users_load(path, &users, why);

	*len = 0;
	*text = NULL;
	if (rc == -ENOENT) {
		return true;
	}
	if (rc == 0) {
		*text = users_read(path, len, &rc, why);
	}
	gateway_users_free(&users);
	if (*text == NULL) {
		fprintf(stderr, "varve-gateway: %s\n", why);
	}
	return *text != NULL;
}

int gateway_users_store(const char *path, const char *name, enum gateway_role role)
{
	struct gateway_user user;
	char *text;
	size_t len;

	if (!gateway_name_is_valid(name)) {
		fprintf(stderr,
			"varve-gateway: --add-user: the name must be 1 to %d letters, digits, '.', '-' or '_'\n",
			GATEWAY_NAME_MAX);
		return GATEWAY_EXIT_USAGE;
	}
	if (!users_read_old(path, &text, &len)) {
		return GATEWAY_EXIT_FAIL;
	}
	bool good = users_make(name, role, &user);
	if (good && !users_replace(path, text, len, &user)) {
		fprintf(stderr, "varve-gateway: %s: %s\n", path, strerror(errno));
		good = false;
	}
	free(text);
	return good ? 0 : GATEWAY_EXIT_FAIL;
}
